/* SPDX-License-Identifier: BSD-3-Clause
 * subset.c - copies of a network: with fewer ranks, or with others in their
 * places (what a communicator of some ranks of a job sees; hosts without a rank
 * go on forwarding, as switches do), and with the rates that TCP leaves. */
#include "topology/topology.h"

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

/* Every node in its old place, so that links keep their numbers; place[] is
 * the new rank of each host as it is added. */
static void add_nodes(const tutti_topology *t, const uint32_t *number,
                      uint32_t *place, tt_topo_builder *b)
{
    uint32_t n_hosts = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        const tt_node *node = &t->nodes[v];
        uint32_t rank = node->rank == TT_NONE ? TT_NONE : number[node->rank];
        if (rank == TT_NONE) {
            tt_topo_switch(b, node->name);
            continue;
        }
        tt_topo_host(b, node->name);
        place[n_hosts++] = rank;
    }
    tt_topo_place(b, place, n_hosts);
}

/* What is left of a rate; nothing is lost inside a host. */
static uint64_t payload_of(const tt_link *link)
{
    if (link->is_memory)
        return link->rate_bps;
    uint64_t rate_bps = link->rate_bps * TT_TCP_PAYLOAD / TT_TCP_PACKET;
    return rate_bps ? rate_bps : 1;
}

static uint64_t all_of(const tt_link *link)
{
    return link->rate_bps;
}

static void add_links(const tutti_topology *t,
                      uint64_t (*rate_bps)(const tt_link *link),
                      tt_topo_builder *b)
{
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *link = &t->links[i];
        bool is_two_way = link->twin != TT_NONE;
        if (is_two_way && link->twin < i)
            continue;
        const tt_wire wire = {
            .up_bps = rate_bps(link),
            .down_bps = is_two_way ? rate_bps(&t->links[link->twin]) : 0,
            .latency_ps = link->latency_ps,
            .dev = link->dev,
            .far_dev = is_two_way ? t->links[link->twin].dev : NULL,
            .is_memory = link->is_memory,
        };
        tt_topo_link(b, link->from, link->to, &wire);
    }
}

/* What of a network is copied. */
typedef struct choice {
    const uint32_t *members; /* [n]; NULL: all, in order */
    uint32_t n;
    uint64_t (*rate_bps)(const tt_link *link);
} choice;

static tutti_err copy(const tutti_topology *t, const choice *c,
                      const tt_mem *mem, tutti_topology **out, tutti_diag *diag)
{
    tt_arena arena = {.mem = mem};
    tt_topo_builder *b = NULL;
    uint32_t *number = invert(t, c->members, c->n, &arena);
    uint32_t *place = tt_arena_new(&arena, c->n, sizeof(*place));
    tutti_err err = TUTTI_ENOMEM;
    if (number && place)
        err = tt_topo_builder_create(mem, &b, diag);
    else
        tt_fail(diag, err, "no memory for a copy of a network");
    if (!err) {
        tt_topo_is_part(b);
        add_nodes(t, number, place, b);
        add_links(t, c->rate_bps, b);
        /* A grid with holes is none. */
        if (t->grid.n_dims > 0 && c->n == t->n_ranks)
            tt_topo_grid(b, &t->grid);
        err = tt_topo_seal(b, out, diag);
    }
    tt_arena_free(&arena);
    return err;
}

tutti_err tt_topology_subset(const tutti_topology *t, const uint32_t *members,
                             uint32_t n, const tt_mem *mem,
                             tutti_topology **out, tutti_diag *diag)
{
    const choice c = {members, n, all_of};
    return copy(t, &c, mem, out, diag);
}

tutti_err tt_topology_payload(const tutti_topology *t, const tt_mem *mem,
                              tutti_topology **out, tutti_diag *diag)
{
    const choice c = {NULL, t->n_ranks, payload_of};
    return copy(t, &c, mem, out, diag);
}
