/* SPDX-License-Identifier: BSD-3-Clause
 * view_routes.c - the ways through the network of what the runs of the page of
 * `tutti view` send; what each link carries in a run of which the page shows
 * only a part. */
#include "view.h"

#include <stdlib.h>

/* An event: the connection that it uses, and whose it is. */
typedef struct use {
    uint64_t key, bytes;
    view_run *run;
    bool is_shown;
} use;

typedef struct used {
    use *all; /* by key */
    size_t n;
    bool has_rails, has_some;
    FILE *out;
} used;

static uint64_t key_of(uint64_t src, uint64_t dst, uint64_t rail)
{
    return src << 40 | dst << 16 | rail;
}

static int by_key(const void *x, const void *y)
{
    const use *a = x, *b = y;
    return (a->key > b->key) - (a->key < b->key);
}

static void add_run(used *u, view_run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        const tutti_event_info *e = &run->events[i];
        u->all[u->n++] = (use){key_of(e->src, e->dst, e->rail), e->bytes, run,
                               i < run->n_shown};
        u->has_rails |= e->rail > 0;
    }
}

static bool find_used(used *u, uint32_t n_links, view_run *runs, size_t n_runs)
{
    size_t n = 0;
    for (size_t i = 0; i < n_runs; i++)
        n += runs[i].n;
    u->all = calloc(n + 1, sizeof(*u->all));
    if (!u->all)
        return false;
    for (size_t i = 0; i < n_runs; i++) {
        view_run *run = &runs[i];
        add_run(u, run);
        free(run->link_bytes);
        run->link_bytes = NULL;
        if (run->n_shown == run->n)
            continue;
        run->link_bytes = calloc(n_links + 1, sizeof(*run->link_bytes));
        if (!run->link_bytes)
            return false;
    }
    qsort(u->all, u->n, sizeof(*u->all), by_key);
    return true;
}

/* The first of this key or a higher one. */
static size_t find(const used *u, uint64_t key)
{
    size_t low = 0, high = u->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (u->all[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void put_rail(void *ctx, int src, int dst, int rail,
                     const uint32_t *links, uint32_t n_links)
{
    used *u = ctx;
    const uint64_t key = key_of((uint64_t)src, (uint64_t)dst, (uint64_t)rail);
    bool is_shown = false;
    for (size_t i = find(u, key); i < u->n && u->all[i].key == key; i++) {
        const use *at = &u->all[i];
        is_shown |= at->is_shown;
        for (uint32_t k = 0; k < n_links && at->run->link_bytes; k++)
            at->run->link_bytes[links[k]] += (double)at->bytes;
    }
    if (!is_shown)
        return;
    fprintf(u->out, "%s[%d,%d,%d,[", u->has_some ? ",\n" : "\n", src, dst,
            rail);
    for (uint32_t i = 0; i < n_links; i++)
        fprintf(u->out, "%s%u", i ? "," : "", links[i]);
    fputs("]]", u->out);
    u->has_some = true;
}

static void put_route(void *ctx, int src, int dst, const uint32_t *links,
                      uint32_t n_links)
{
    put_rail(ctx, src, dst, 0, links, n_links);
}

tutti_err view_routes_json(FILE *out, const tutti_topology *net, view_run *runs,
                           size_t n_runs, tutti_diag *diag)
{
    used u = {.out = out};
    tutti_err err = TUTTI_ENOMEM;
    tutti_topology_info info;
    tutti_topology_describe(net, &info);
    fputs("[", out);
    if (find_used(&u, info.n_links, runs, n_runs))
        err = tutti_routes(net, put_route, &u, diag);
    if (!err && u.has_rails)
        err = tutti_rails(net, put_rail, &u, diag);
    fputs("]", out);
    free(u.all);
    return err;
}
