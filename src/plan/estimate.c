/* SPDX-License-Identifier: BSD-3-Clause
 * estimate.c - what a schedule takes on a topology, by adding up, where a
 * simulation would never end.
 *
 * Idea       One front: the steps one after the other, each as long as its
 *            busiest link, or its busiest rank where reducing takes time, and
 *            the longest latency of its messages, and the overhead of the rank
 *            that sends or receives most of them. The fronts behind it follow
 *            at the pace of the link that is busiest in all.
 * Errs       On the quick side where flows that share a link do not get equal
 *            parts of it, on the slow side where steps overlap. Never below
 *            what the links and latencies must take.
 * Cost       The links of every transfer's route, once.
 * Next       predict.c. */
#include "plan/planner.h"

#include <math.h>
#include <string.h>

/* Ranks of whose pairs a table is made: 64 MB. */
#define MOST_PAIRED 4096

enum { RAIL_BITS = 7, STEP_BITS = 25 };
_Static_assert(TT_MAX_STEPS < 1u << STEP_BITS, "a step has room");

typedef struct sums {
    const tutti_schedule *s;
    const tt_problem *p;
    const tt_routes *routes;
    tt_arena arena;
    /* Of each link, and behind them of each rank's reducing: seconds in this
     * step, in all. */
    double *step_s, *all_s;
    uint32_t *touched, n_touched; /* in this step */
    uint32_t *route;
    double latency_s; /* the longest of this step */
    /* Messages of this step: per rank, out and in (NULL: they cost nothing);
     * the most; the last step in which each pair had one, + 1, and above it
     * the rails by which (NULL: so many ranks that every transfer counts). */
    uint32_t *n_out, *n_in, n_most, *paired;
} sums;

static double block_bytes(const sums *k, uint32_t block)
{
    if (k->p->block_bytes)
        return (double)k->p->block_bytes[block];
    /* All-to-all: the size is that of the blocks which one rank sends. */
    bool is_to_all = k->s->collective == TUTTI_ALL_TO_ALL;
    return (double)k->p->size_bytes /
           (double)(is_to_all ? k->s->n_ranks : k->s->n_blocks);
}

static void load(sums *k, uint32_t i, double s)
{
    if (k->step_s[i] == 0 && s > 0)
        k->touched[k->n_touched++] = i;
    k->step_s[i] += s;
    k->all_s[i] += s;
}

/* What a message takes of a link besides its payload: a header, a packet that
 * is not full, and an acknowledgement, over TCP. */
static const double message_bytes = 16 + 66 + 66;

/* What a rank sends to another in a step by a rail is one message: false, it is
 * part of one that was counted. */
static bool count_message(sums *k, const tt_transfer *x)
{
    if (k->paired) {
        uint32_t *last = &k->paired[(size_t)x->src * k->s->n_ranks + x->dst];
        uint32_t rail = UINT32_C(1) << (STEP_BITS + x->rail % RAIL_BITS);
        if ((*last & ((UINT32_C(1) << STEP_BITS) - 1)) != x->step + 1)
            *last = x->step + 1;
        if (*last & rail)
            return false;
        *last |= rail;
    }
    uint32_t out = ++k->n_out[x->src], in = ++k->n_in[x->dst];
    uint32_t more = out > in ? out : in;
    k->n_most = more > k->n_most ? more : k->n_most;
    return true;
}

static void add(sums *k, const tt_transfer *x)
{
    const tutti_topology *t = k->p->topology;
    const tt_chunk *c = &k->s->chunks[x->chunk];
    double bytes = block_bytes(k, c->block) * (double)(c->end - c->begin) /
                   (double)k->s->n_parts;
    uint32_t n = tt_route(k->routes, x->src, x->dst, x->rail, k->route);
    double latency_s = 0;
    if (bytes == 0)
        return;
    double sent = bytes;
    if (k->n_out && count_message(k, x) && k->p->shared_s > 0)
        sent += message_bytes;
    for (uint32_t i = 0; i < n; i++) {
        const tt_link *link = &t->links[k->route[i]];
        load(k, k->route[i], sent / tt_link_bytes_per_s(link));
        latency_s += tt_link_latency_s(link);
    }
    if (x->op == TT_XFER_REDUCE)
        load(k, t->n_links + x->dst, bytes * k->p->gamma_s_per_byte);
    k->latency_s = fmax(k->latency_s, latency_s);
}

static void end_step(sums *k, tt_estimate *out)
{
    double longest_s = 0;
    for (uint32_t i = 0; i < k->n_touched; i++) {
        longest_s = fmax(longest_s, k->step_s[k->touched[i]]);
        k->step_s[k->touched[i]] = 0;
    }
    out->bytes_s += longest_s;
    out->latency_s += k->latency_s;
    out->overhead_s += k->n_most * k->p->overhead_s;
    k->n_touched = 0;
    k->latency_s = 0;
    if (k->n_most > 0) {
        memset(k->n_out, 0, k->s->n_ranks * sizeof(*k->n_out));
        memset(k->n_in, 0, k->s->n_ranks * sizeof(*k->n_in));
    }
    k->n_most = 0;
}

static void add_all(sums *k, tt_estimate *out)
{
    const tutti_schedule *s = k->s;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        add(k, &s->transfers[i]);
        if (i + 1 < s->n_transfers &&
            s->transfers[i + 1].step == s->transfers[i].step)
            continue;
        end_step(k, out);
        tt_progress_tell(k->p->progress, "adding up", i + 1, s->n_transfers);
    }
    size_t n = (size_t)k->p->topology->n_links + s->n_ranks;
    for (size_t i = 0; i < n; i++)
        out->busy_s = fmax(out->busy_s, k->all_s[i]);
}

static tutti_err run(sums *k, tt_estimate *out)
{
    size_t n = (size_t)k->p->topology->n_links + k->s->n_ranks;
    k->step_s = tt_arena_new(&k->arena, n, sizeof(*k->step_s));
    k->all_s = tt_arena_new(&k->arena, n, sizeof(*k->all_s));
    k->touched = tt_arena_new(&k->arena, n, sizeof(*k->touched));
    k->route = tt_arena_new(&k->arena,
                            (size_t)tt_routes_max_links(k->routes) + 1,
                            sizeof(*k->route));
    if (k->arena.err)
        return TUTTI_ENOMEM;
    if (k->p->overhead_s > 0) {
        size_t ranks = k->s->n_ranks;
        bool is_huge = ranks > MOST_PAIRED;
        if (!is_huge)
            k->paired = tt_arena_new(&k->arena, ranks * ranks,
                                     sizeof(uint32_t));
        k->n_out = tt_arena_new(&k->arena, ranks, sizeof(uint32_t));
        k->n_in = tt_arena_new(&k->arena, ranks, sizeof(uint32_t));
        if (k->arena.err)
            return TUTTI_ENOMEM;
    }
    add_all(k, out);
    return TUTTI_OK;
}

tutti_err tt_estimate_find(const tutti_schedule *s, const tt_problem *p,
                           const tt_mem *mem, tt_estimate *out,
                           tutti_diag *diag)
{
    sums k = {.s = s, .p = p, .routes = p->routes, .arena = {.mem = mem}};
    tt_routes *own = NULL;
    tutti_err err = TUTTI_OK;
    *out = (tt_estimate){0};
    if (!p->routes) {
        err = tt_routes_create(p->topology, mem, &own, diag);
        k.routes = own;
    }
    if (!err)
        err = run(&k, out);
    tt_arena_free(&k.arena);
    tt_routes_free(own);
    if (err == TUTTI_ENOMEM)
        return tt_fail(diag, err, "no memory for a prediction");
    return err;
}

tutti_err tt_estimate_is_over(const tutti_schedule *s, const tt_problem *p,
                              const tt_mem *mem, bool *out, tutti_diag *diag)
{
    tt_estimate e = {0};
    tutti_err err = TUTTI_OK;
    if (p->most_s > 0)
        err = tt_estimate_find(s, p, mem, &e, diag);
    *out = !err && p->most_s > 0 && e.busy_s > p->most_s;
    return err;
}

double tt_estimate_s(const tt_estimate *e, double front)
{
    return e->latency_s + e->overhead_s + e->bytes_s * front +
           e->busy_s * (1 - front);
}
