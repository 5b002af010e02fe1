/* SPDX-License-Identifier: BSD-3-Clause
 * sift.c - which interfaces of a measured network are worth planning with.
 *
 * A **plane** is what hangs together without going through hosts: switches and
 * the links at them, or one cable between two hosts. A plane is left out when
 * another one joins all of its hosts too and has no link that is not eight
 * times as fast as each of its own: a network for administration beside one
 * for data. Its share would be a ninth at most, and who manages the hosts
 * would notice. Two cards of 100 and 400 Mbit/s are both used.
 * Cost       Planes squared, and they are few; cables without switches: links
 *            squared, some million steps for 64 hosts. */
#include "base/log.h"
#include "core/learn.h"

static const uint64_t much_faster = 8;

typedef struct plane {
    uint64_t least_bps, most_bps;
    uint32_t better; /* another plane; TT_NONE: this one stays */
    const char *dev; /* at one of its hosts */
} plane;

typedef struct sifting {
    const tutti_topology *t;
    tt_arena arena;
    uint32_t *of_node; /* switches: their plane's first one, then its number */
    uint32_t *of_link; /* plane, or TT_NONE inside a host */
    plane *planes;
    uint32_t n_planes;
} sifting;

/* ---------------------------------------------------------------- planes -- */

static bool is_switch(const tutti_topology *t, uint32_t node)
{
    return t->nodes[node].kind == TT_NODE_SWITCH;
}

static uint32_t first_of(uint32_t *of, uint32_t v)
{
    while (of[v] != v)
        v = of[v] = of[of[v]];
    return v;
}

static uint32_t add_plane(sifting *s)
{
    s->planes[s->n_planes] = (plane){.least_bps = UINT64_MAX,
                                     .better = TT_NONE};
    return s->n_planes++;
}

static void join_switches(sifting *s)
{
    const tutti_topology *t = s->t;
    for (uint32_t v = 0; v < t->n_nodes; v++)
        s->of_node[v] = v;
    for (uint32_t i = 0; i < t->n_links; i++) {
        uint32_t a = t->links[i].from, z = t->links[i].to;
        if (is_switch(t, a) && is_switch(t, z))
            s->of_node[first_of(s->of_node, z)] = first_of(s->of_node, a);
    }
}

/* The plane of a link between hosts; number[v]: of the switches around v. */
static uint32_t plane_of(sifting *s, uint32_t link, uint32_t *number)
{
    const tutti_topology *t = s->t;
    const tt_link *l = &t->links[link];
    uint32_t at = is_switch(t, l->from) ? l->from : l->to;
    if (!is_switch(t, at))
        return l->twin < link ? s->of_link[l->twin] : add_plane(s);
    at = first_of(s->of_node, at);
    if (number[at] == TT_NONE)
        number[at] = add_plane(s);
    return number[at];
}

static bool find_planes(sifting *s)
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
    /* Those that are first of theirs keep their numbers, so the order in which
     * this is done does not matter. */
    for (uint32_t v = 0; v < t->n_nodes; v++)
        number[v] = is_switch(t, v) ? number[first_of(s->of_node, v)] : TT_NONE;
    s->of_node = number;
    return true;
}

/* -------------------------------------------------------------- choosing -- */

static bool has_link_in(const sifting *s, uint32_t node, uint32_t p)
{
    const tutti_topology *t = s->t;
    for (uint32_t i = t->first_out[node]; i < t->first_out[node + 1]; i++) {
        if (s->of_link[t->out[i]] == p)
            return true;
    }
    return false;
}

/* Are all hosts of plane p in plane q too? */
static bool covers(const sifting *s, uint32_t q, uint32_t p)
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

static uint32_t find_better(const sifting *s, uint32_t p)
{
    for (uint32_t q = 0; q < s->n_planes; q++) {
        if (s->planes[q].least_bps / much_faster >= s->planes[p].most_bps &&
            covers(s, q, p))
            return q;
    }
    return TT_NONE;
}

/* --------------------------------------------------------------- copying -- */

static tt_wire wire_of(const tutti_topology *t, uint32_t i)
{
    const tt_link *link = &t->links[i];
    const tt_link *back = link->twin == TT_NONE ? NULL : &t->links[link->twin];
    return (tt_wire){.up_bps = link->rate_bps,
                     .down_bps = back ? back->rate_bps : 0,
                     .latency_ps = link->latency_ps,
                     .dev = link->dev,
                     .far_dev = back ? back->dev : NULL,
                     .is_memory = link->is_memory};
}

/* A host of several ranks; its slots come after its hub. */
static uint32_t add_big_host(const tutti_topology *t, uint32_t hub,
                             tt_topo_builder *b)
{
    tt_wire memory = {0};
    uint32_t n = 0;
    for (uint32_t i = t->first_in[hub]; i < t->first_in[hub + 1]; i++) {
        if (!t->links[t->in[i]].is_memory)
            continue;
        memory = wire_of(t, t->in[i]);
        n++;
    }
    return tt_topo_big_host(b, t->nodes[hub].name, n, &memory);
}

static void add_nodes(const sifting *s, uint32_t *map, uint32_t *place,
                      tt_topo_builder *b)
{
    const tutti_topology *t = s->t;
    uint32_t n = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        const tt_node *node = &t->nodes[v];
        uint32_t p = s->of_node[v];
        if (node->kind == TT_NODE_HUB)
            map[v] = add_big_host(t, v, b);
        else if (node->kind == TT_NODE_HOST)
            map[v] = tt_topo_host(b, node->name);
        else if (node->kind == TT_NODE_SWITCH && p != TT_NONE &&
                 s->planes[p].better == TT_NONE)
            map[v] = tt_topo_switch(b, node->name);
        if (node->rank != TT_NONE)
            place[n++] = node->rank;
    }
    tt_topo_place(b, place, n);
}

static tutti_err copy(sifting *s, tutti_topology **out, tutti_diag *diag)
{
    const tutti_topology *t = s->t;
    tt_topo_builder *b;
    uint32_t *map = tt_arena_new(&s->arena, t->n_nodes, sizeof(uint32_t));
    uint32_t *place = tt_arena_new(&s->arena, t->n_ranks, sizeof(uint32_t));
    if (!map || !place)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for a network");
    tutti_err err = tt_topo_builder_create(&tt_mem_std, &b, diag);
    if (err)
        return err;
    add_nodes(s, map, place, b);
    tt_topo_sockets(b, t->n_sockets);
    for (uint32_t i = 0; i < t->n_links; i++) {
        uint32_t p = s->of_link[i];
        const tt_link *l = &t->links[i];
        if (p == TT_NONE || s->planes[p].better != TT_NONE ||
            (l->twin != TT_NONE && l->twin < i))
            continue;
        const tt_wire wire = wire_of(t, i);
        tt_topo_link(b, map[l->from], map[l->to], &wire);
    }
    return tt_topo_seal(b, out, diag);
}

static void tell(const plane *p, const plane *better)
{
    TT_INFO("interfaces such as %s are left out: at most %.3g Mbit/s, beside "
            "%.3g Mbit/s and more by such as %s",
            p->dev ? p->dev : "?", (double)p->most_bps * 1e-6,
            (double)better->least_bps * 1e-6, better->dev ? better->dev : "?");
}

tutti_err tt_learn_sift(const tutti_topology *t, tutti_topology **out,
                        tutti_diag *diag)
{
    sifting s = {.t = t, .arena = {.mem = &tt_mem_std}};
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
