/* SPDX-License-Identifier: BSD-3-Clause
 * subset.c - copies of a network: with fewer ranks or more, or with others in
 * their places (what a communicator of some ranks of a job sees; hosts without
 * a rank go on forwarding, as switches do, or are left out where they do not
 * forward), without some of its links, with other rates or caps, and with those
 * that TCP leaves. */
#include "topology/topology.h"

#include <stdio.h>
#include <string.h>

const tt_wire tt_wire_memory = {.up_bps = UINT64_C(80000000000),
                                .down_bps = UINT64_C(80000000000),
                                .latency_ps = 1000000,
                                .is_memory = true};

/* What is left of so much on a link. */
typedef uint64_t rate_fn(const tt_link *link, uint64_t bps);

/* What of a network is copied. */
typedef struct choice {
    const uint32_t *members; /* [n]; NULL: all, in order */
    uint32_t n;
    rate_fn *rate_bps;
    const bool *is_out;        /* [n_links]: left out; NULL: none */
    const uint64_t *rates_bps; /* [n_links]: instead of theirs; NULL: none */
    const uint64_t *caps_bps;  /* [n_links]: where not 0; NULL: none */
    const uint32_t *beside;    /* [n_more] ranks of t that get a neighbour */
    uint32_t n_more;
} choice;

/* members[rank] of t becomes ranks_of[...] of the new network: the inverse. */
static uint32_t *invert(const tutti_topology *t, const uint32_t *members,
                        uint32_t n, tt_arena *arena)
{
    uint32_t *number = tt_arena_new(arena, t->n_ranks, sizeof(*number));
    for (uint32_t r = 0; number && r < t->n_ranks; r++)
        number[r] = TT_NONE;
    for (uint32_t i = 0; number && i < n; i++)
        number[members ? members[i] : i] = i;
    return number;
}

typedef struct copier {
    const tutti_topology *t;
    const choice *what;
    tt_topo_builder *b;
    uint32_t *number; /* of ranks of t: their new ones; TT_NONE: none */
    uint32_t *node;   /* of nodes of t: their new ones; TT_NONE: none */
    uint32_t *place;  /* the new rank of each host or slot as it is added */
    uint32_t n_placed;
} copier;

static uint32_t new_rank(const copier *c, uint32_t v)
{
    uint32_t rank = c->t->nodes[v].rank;
    return rank == TT_NONE ? TT_NONE : c->number[rank];
}

/* Is a rank of the part at this hub? Its slots come behind it. */
static bool is_in_use(const copier *c, uint32_t hub)
{
    const tutti_topology *t = c->t;
    for (uint32_t v = hub + 1; v < t->n_nodes && t->nodes[v].hub == hub; v++) {
        if (new_rank(c, v) != TT_NONE)
            return true;
    }
    return false;
}

/* Is any link of this switch copied? */
static bool is_joined(const copier *c, uint32_t v)
{
    const tutti_topology *t = c->t;
    const bool *is_out = c->what->is_out;
    for (uint32_t i = t->first_out[v]; i < t->first_out[v + 1]; i++) {
        if (!is_out || !is_out[t->out[i]])
            return true;
    }
    return !is_out;
}

static uint64_t rate_of(const copier *c, uint32_t i)
{
    const uint64_t *rates_bps = c->what->rates_bps;
    const tt_link *link = &c->t->links[i];
    return rates_bps ? rates_bps[i] : c->what->rate_bps(link, link->rate_bps);
}

static uint64_t least_of(const copier *c, uint32_t i)
{
    const tt_link *link = &c->t->links[i];
    return link->least_bps ? c->what->rate_bps(link, link->least_bps) : 0;
}

static uint64_t cap_of(const copier *c, uint32_t i)
{
    const uint64_t *caps_bps = c->what->caps_bps;
    return caps_bps && caps_bps[i] ? caps_bps[i] : c->t->links[i].cap_bps;
}

static tt_wire wire_of(const copier *c, uint32_t i)
{
    const tutti_topology *t = c->t;
    const tt_link *link = &t->links[i];
    const tt_link *back = link->twin == TT_NONE ? NULL : &t->links[link->twin];
    return (tt_wire){.up_bps = rate_of(c, i),
                     .down_bps = back ? rate_of(c, link->twin) : 0,
                     .latency_ps = link->latency_ps,
                     .dev = link->dev,
                     .far_dev = back ? back->dev : NULL,
                     .up_cap_bps = cap_of(c, i),
                     .down_cap_bps = back ? cap_of(c, link->twin) : 0,
                     .up_least_bps = least_of(c, i),
                     .down_least_bps = back ? least_of(c, link->twin) : 0,
                     .is_memory = link->is_memory};
}

static uint32_t add_slot(const copier *c, uint32_t v)
{
    const tutti_topology *t = c->t;
    const tt_wire memory = wire_of(c, t->out[t->first_out[v]]);
    return tt_topo_slot(c->b, c->node[t->nodes[v].hub], t->nodes[v].name,
                        &memory);
}

/* More ranks for the host that is node `host` of t. */
static bool has_more(const copier *c, uint32_t host, uint32_t i)
{
    const tutti_topology *t = c->t;
    return tt_node_host(t, t->rank_node[c->what->beside[i]]) == host;
}

static bool has_any_more(const copier *c, uint32_t host)
{
    bool has = false;
    for (uint32_t i = 0; i < c->what->n_more && !has; i++)
        has = has_more(c, host, i);
    return has;
}

static bool is_taken(const tutti_topology *t, const char *name)
{
    uint32_t v = 0;
    while (v < t->n_nodes && strcmp(t->nodes[v].name, name) != 0)
        v++;
    return v < t->n_nodes;
}

static void add_more(copier *c, uint32_t host, const tt_wire *memory)
{
    char name[320];
    uint32_t number = 1;
    for (uint32_t i = 0; i < c->what->n_more; i++) {
        if (!has_more(c, host, i))
            continue;
        do
            snprintf(name, sizeof(name), "%.300s.%u", c->t->nodes[host].name,
                     number++);
        while (is_taken(c->t, name));
        tt_topo_slot(c->b, c->node[host], name, memory);
        c->place[c->n_placed++] = c->what->n + i;
    }
}

/* Of one rank so far. */
static void add_host(copier *c, uint32_t v)
{
    char name[320];
    const tt_node *node = &c->t->nodes[v];
    if (!has_any_more(c, v)) {
        c->node[v] = tt_topo_host(c->b, node->name);
        return;
    }
    c->node[v] = tt_topo_hub(c->b, node->name);
    snprintf(name, sizeof(name), "%.300s.0", node->name);
    tt_topo_slot(c->b, c->node[v], name, &tt_wire_memory);
    add_more(c, v, &tt_wire_memory);
}

/* Those that come to a hub come behind its last slot. */
static void add_behind(copier *c, uint32_t v)
{
    const tutti_topology *t = c->t;
    const uint32_t hub = t->nodes[v].hub;
    if (v + 1 < t->n_nodes && t->nodes[v + 1].hub == hub)
        return;
    const tt_wire memory = wire_of(c, t->out[t->first_out[v]]);
    add_more(c, hub, &memory);
}

/* In the old order; so are links, and where nobody is left out they keep their
 * numbers. */
static void add_nodes(copier *c)
{
    const tutti_topology *t = c->t;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        const tt_node *node = &t->nodes[v];
        uint32_t rank = new_rank(c, v);
        if (rank != TT_NONE)
            c->place[c->n_placed++] = rank;
        tt_topo_forwards(c->b, node->forwards);
        if (node->kind == TT_NODE_SLOT) {
            c->node[v] = rank == TT_NONE ? TT_NONE : add_slot(c, v);
            add_behind(c, v);
        } else if (rank != TT_NONE) {
            add_host(c, v);
        } else if (node->kind == TT_NODE_HUB && is_in_use(c, v)) {
            c->node[v] = tt_topo_hub(c->b, node->name);
        } else {
            c->node[v] = node->forwards && is_joined(c, v)
                             ? tt_topo_switch(c->b, node->name)
                             : TT_NONE;
        }
    }
    tt_topo_place(c->b, c->place, c->n_placed);
}

/* Nothing is lost inside a host. */
static uint64_t payload_of(const tt_link *link, uint64_t bps)
{
    if (link->is_memory)
        return bps;
    uint64_t rate_bps = bps * TT_TCP_PAYLOAD / TT_TCP_PACKET;
    return rate_bps ? rate_bps : 1;
}

static uint64_t all_of(const tt_link *link, uint64_t bps)
{
    (void)link;
    return bps;
}

/* Memory came with its slots. */
static void add_links(const copier *c)
{
    const tutti_topology *t = c->t;
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *link = &t->links[i];
        if (link->is_memory || (link->twin != TT_NONE && link->twin < i) ||
            (c->what->is_out && c->what->is_out[i]) ||
            c->node[link->from] == TT_NONE || c->node[link->to] == TT_NONE)
            continue;
        const tt_wire wire = wire_of(c, i);
        tt_topo_link(c->b, c->node[link->from], c->node[link->to], &wire);
    }
}

static void fill(copier *c)
{
    const tutti_topology *t = c->t;
    tt_topo_is_part(c->b);
    tt_topo_sockets(c->b, t->n_sockets);
    add_nodes(c);
    add_links(c);
    /* A grid with holes is none. */
    if (t->grid.n_dims > 0 && c->what->n == t->n_ranks && !c->what->is_out &&
        c->what->n_more == 0)
        tt_topo_grid(c->b, &t->grid);
}

static tutti_err copy(const tutti_topology *t, const choice *what,
                      const tt_mem *mem, tutti_topology **out, tutti_diag *diag)
{
    tt_arena arena = {.mem = mem};
    copier c = {.t = t,
                .what = what,
                .number = invert(t, what->members, what->n, &arena),
                .node = tt_arena_new(&arena, t->n_nodes, sizeof(uint32_t)),
                .place = tt_arena_new(&arena, what->n + what->n_more,
                                      sizeof(uint32_t))};
    tutti_err err = arena.err;
    if (err)
        tt_fail(diag, err, "no memory for a copy of a network");
    else
        err = tt_topo_builder_create(mem, &c.b, diag);
    if (!err) {
        fill(&c);
        err = tt_topo_seal(c.b, out, diag);
    }
    tt_arena_free(&arena);
    return err;
}

tutti_err tt_topology_subset(const tutti_topology *t, const uint32_t *members,
                             uint32_t n, const tt_mem *mem,
                             tutti_topology **out, tutti_diag *diag)
{
    const choice c = {.members = members, .n = n, .rate_bps = all_of};
    return copy(t, &c, mem, out, diag);
}

tutti_err tt_topology_payload(const tutti_topology *t, const tt_mem *mem,
                              tutti_topology **out, tutti_diag *diag)
{
    const choice c = {.n = t->n_ranks, .rate_bps = payload_of};
    return copy(t, &c, mem, out, diag);
}

tutti_err tt_topology_without(const tutti_topology *t, const bool *is_out,
                              const tt_mem *mem, tutti_topology **out,
                              tutti_diag *diag)
{
    const choice c = {.n = t->n_ranks, .rate_bps = all_of, .is_out = is_out};
    return copy(t, &c, mem, out, diag);
}

tutti_err tt_topology_with_rates(const tutti_topology *t,
                                 const uint64_t *rates_bps, const tt_mem *mem,
                                 tutti_topology **out, tutti_diag *diag)
{
    const choice c = {
        .n = t->n_ranks, .rate_bps = all_of, .rates_bps = rates_bps};
    return copy(t, &c, mem, out, diag);
}

tutti_err tt_topology_with_caps(const tutti_topology *t,
                                const uint64_t *caps_bps, const tt_mem *mem,
                                tutti_topology **out, tutti_diag *diag)
{
    const choice c = {
        .n = t->n_ranks, .rate_bps = all_of, .caps_bps = caps_bps};
    return copy(t, &c, mem, out, diag);
}

tutti_err tt_topology_with_more(const tutti_topology *t, const uint32_t *beside,
                                uint32_t n, const tt_mem *mem,
                                tutti_topology **out, tutti_diag *diag)
{
    const choice c = {
        .n = t->n_ranks, .rate_bps = all_of, .beside = beside, .n_more = n};
    return copy(t, &c, mem, out, diag);
}
