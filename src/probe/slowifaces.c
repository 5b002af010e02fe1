/* SPDX-License-Identifier: BSD-3-Clause
 * slowifaces.c - leaves out interfaces of a measured network that are not worth
 * planning with.
 *
 * A **plane** is what hangs together without going through hosts: switches and
 * the links at them, or one cable between two hosts. A plane is left out when
 * another one joins all of its hosts too and has no link that is not eight
 * times as fast as each of its own: a network for administration beside one
 * for data. Its share would be a ninth at most, and who manages the hosts
 * would notice. Two cards of 100 and 400 Mbit/s are both used.
 * Cost       Planes squared, and they are few; cables without switches: links
 *            squared, some million steps for 64 hosts.
 * Next       learn.c. */
#include "base/joined.h"
#include "base/log.h"
#include "probe/learn.h"

static const uint64_t much_faster = 8;

typedef struct plane {
    uint64_t least_bps, most_bps;
    uint32_t better; /* another plane; TT_NONE: this one stays */
    const char *dev; /* at one of its hosts */
} plane;

typedef struct sorter {
    const tutti_topology *t;
    tt_arena arena;
    uint32_t *of_node; /* switches: what is joined */
    uint32_t *of_link; /* plane, or TT_NONE inside a host */
    plane *planes;
    uint32_t n_planes;
} sorter;

/* ---------------------------------------------------------------- planes -- */

static bool is_switch(const tutti_topology *t, uint32_t node)
{
    return t->nodes[node].kind == TT_NODE_SWITCH;
}

static uint32_t add_plane(sorter *s)
{
    s->planes[s->n_planes] = (plane){.least_bps = UINT64_MAX,
                                     .better = TT_NONE};
    return s->n_planes++;
}

static void join_switches(sorter *s)
{
    const tutti_topology *t = s->t;
    tt_joined_none(s->of_node, t->n_nodes);
    for (uint32_t i = 0; i < t->n_links; i++) {
        uint32_t a = t->links[i].from, z = t->links[i].to;
        if (is_switch(t, a) && is_switch(t, z))
            tt_joined_join(s->of_node, a, z);
    }
}

/* The plane of a link between hosts; number[v]: of the switches around v. */
static uint32_t plane_of(sorter *s, uint32_t link, uint32_t *number)
{
    const tutti_topology *t = s->t;
    const tt_link *l = &t->links[link];
    uint32_t at = is_switch(t, l->from) ? l->from : l->to;
    if (!is_switch(t, at))
        return l->twin < link ? s->of_link[l->twin] : add_plane(s);
    at = tt_joined_root(s->of_node, at);
    if (number[at] == TT_NONE)
        number[at] = add_plane(s);
    return number[at];
}

static bool find_planes(sorter *s)
{
    const tutti_topology *t = s->t;
    uint32_t most = t->n_nodes + t->n_links;
    s->of_node = tt_arena_new(&s->arena, t->n_nodes, sizeof(uint32_t));
    s->of_link = tt_arena_new(&s->arena, t->n_links, sizeof(uint32_t));
    s->planes = tt_arena_new(&s->arena, most, sizeof(*s->planes));
    uint32_t *number = tt_arena_new(&s->arena, t->n_nodes, sizeof(uint32_t));
    if (!s->of_node || !s->of_link || !s->planes || !number)
        return false;
    join_switches(s);
    for (uint32_t v = 0; v < t->n_nodes; v++)
        number[v] = TT_NONE;
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[i];
        s->of_link[i] = l->is_memory ? TT_NONE : plane_of(s, i, number);
        if (l->is_memory)
            continue;
        plane *p = &s->planes[s->of_link[i]];
        p->least_bps = l->rate_bps < p->least_bps ? l->rate_bps : p->least_bps;
        p->most_bps = l->rate_bps > p->most_bps ? l->rate_bps : p->most_bps;
        p->dev = l->dev ? l->dev : p->dev;
    }
    return true;
}

/* -------------------------------------------------------------- choosing -- */

static bool has_link_in(const sorter *s, uint32_t node, uint32_t p)
{
    const tutti_topology *t = s->t;
    for (uint32_t i = t->first_out[node]; i < t->first_out[node + 1]; i++) {
        if (s->of_link[t->out[i]] == p)
            return true;
    }
    return false;
}

/* Are all hosts of plane p in plane q too? */
static bool covers(const sorter *s, uint32_t q, uint32_t p)
{
    const tutti_topology *t = s->t;
    for (uint32_t i = 0; i < t->n_links; i++) {
        uint32_t from = t->links[i].from;
        if (s->of_link[i] == p && !is_switch(t, from) &&
            !has_link_in(s, from, q))
            return false;
    }
    return true;
}

static uint32_t find_better(const sorter *s, uint32_t p)
{
    for (uint32_t q = 0; q < s->n_planes; q++) {
        if (s->planes[q].least_bps / much_faster >= s->planes[p].most_bps &&
            covers(s, q, p))
            return q;
    }
    return TT_NONE;
}

/* --------------------------------------------------------------- copying -- */

static tutti_err copy(sorter *s, tutti_topology **out, tutti_diag *diag)
{
    const tutti_topology *t = s->t;
    bool *is_out = tt_arena_new(&s->arena, t->n_links, sizeof(*is_out));
    if (!is_out)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for a network");
    for (uint32_t i = 0; i < t->n_links; i++) {
        uint32_t p = s->of_link[i];
        is_out[i] = p != TT_NONE && s->planes[p].better != TT_NONE;
    }
    return tt_topology_without(t, is_out, &tt_mem_std, out, diag);
}

static void tell(const plane *p, const plane *better)
{
    TT_INFO("interfaces such as %s are left out: at most %.3g Mbit/s, beside "
            "%.3g Mbit/s and more by such as %s",
            p->dev ? p->dev : "?", (double)p->most_bps * 1e-6,
            (double)better->least_bps * 1e-6, better->dev ? better->dev : "?");
}

tutti_err tt_without_slow_ifaces(const tutti_topology *t, tutti_topology **out,
                                 tutti_diag *diag)
{
    sorter s = {.t = t, .arena = {.mem = &tt_mem_std}};
    uint32_t n_left_out = 0;
    *out = NULL;
    bool is_made = find_planes(&s);
    for (uint32_t p = 0; is_made && p < s.n_planes; p++) {
        plane *one = &s.planes[p];
        one->better = find_better(&s, p);
        if (one->better == TT_NONE)
            continue;
        n_left_out++;
        tell(one, &s.planes[one->better]);
    }
    tutti_err err = is_made ? TUTTI_OK : TUTTI_ENOMEM;
    if (err)
        tt_fail(diag, err, "no memory for a network");
    if (n_left_out > 0)
        err = copy(&s, out, diag);
    tt_arena_free(&s.arena);
    return err;
}
