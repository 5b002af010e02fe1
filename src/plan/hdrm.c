/* SPDX-License-Identifier: BSD-3-Clause
 * hdrm.c - halving and doubling with rank mapping, for BiGraphs.
 *
 * Idea       In a BiGraph half of the switches are upper, half lower ones; each
 *            has m ranks, and a link to every switch of the other half. Halving
 *            and doubling pairs number v with v xor 2^k. Numbers are given to
 *            ranks such that partners never sit in the same half, and that in
 *            every step all links between the halves carry equally much:
 *            - n switches in all; number v = group * n + 2 * place + (0 or 1);
 *              group g uses the g-th rank of every switch
 *            - upper half where v has an even number of one bits, else lower:
 *              every partner differs in one bit
 *            - at the upper switch `place`, or the lower switch (place + g) mod
 *              n/2: partners that would meet on one link in one group do
 *              not in the next
 * Invariant  After step k number v holds, of the chunks c that agree with v in
 *            the lowest k + 1 bits, the inputs of all that agree with v above
 *            them. Chunk c belongs to the rank with number c.
 * Cost       All-reduce: 2 log2 N steps, every rank sends 2(N-1)/N of the
 *            vector, no link between switches carries more than its share.
 * Picture    bigraph:4x2, numbers at the switches; upper 0 1, lower 0 1:
 *
 *               group 0:   0  3  |  1  2       group 1:   5  6  |  7  4
 * Next       multitree.c, which this is a baseline of. */
#include "plan/planner.h"

/* More could not be told from other networks quickly. */
#define MOST_SWITCHES 512u

static bool is_switch(const tutti_topology *t, uint32_t node)
{
    return t->nodes[node].rank == TT_NONE;
}

static uint32_t count_out(const tutti_topology *t, uint32_t node,
                          bool to_switches)
{
    uint32_t n = 0;
    for (uint32_t i = t->first_out[node]; i < t->first_out[node + 1]; i++)
        n += is_switch(t, t->links[t->out[i]].to) == to_switches;
    return n;
}

static bool has_link(const tutti_topology *t, uint32_t from, uint32_t to)
{
    for (uint32_t i = t->first_out[from]; i < t->first_out[from + 1]; i++) {
        if (t->links[t->out[i]].to == to)
            return true;
    }
    return false;
}

static uint32_t first_switch(const tutti_topology *t)
{
    uint32_t v = 0;
    while (v < t->n_nodes && !is_switch(t, v))
        v++;
    return v;
}

/* The upper half is the first switch's, which has no link to any of them. */
static bool is_lower(const tutti_topology *t, uint32_t first, uint32_t node)
{
    return has_link(t, first, node);
}

/* The switch has m ranks, and links to exactly the other half. */
static bool is_good_switch(const tutti_topology *t, uint32_t first,
                           uint32_t node)
{
    uint32_t n = t->n_nodes - t->n_ranks;
    if (count_out(t, node, true) != n / 2 ||
        count_out(t, node, false) != t->n_ranks / n)
        return false;
    bool is_down = is_lower(t, first, node);
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        if (is_switch(t, v) &&
            (is_lower(t, first, v) != is_down) != has_link(t, node, v))
            return false;
    }
    return true;
}

static bool is_bigraph(const tutti_topology *t)
{
    uint32_t n = t->n_nodes - t->n_ranks;
    if (n < 2 || n > MOST_SWITCHES || n % 2 != 0 || t->n_ranks % n != 0)
        return false;
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        uint32_t v = t->rank_node[r];
        if (count_out(t, v, true) != 1 || count_out(t, v, false) != 0)
            return false;
    }
    uint32_t first = first_switch(t);
    for (uint32_t v = first; v < t->n_nodes; v++) {
        if (is_switch(t, v) && !is_good_switch(t, first, v))
            return false;
    }
    return true;
}

static const char *why_not(const tt_problem *p)
{
    uint64_t n = p->n_ranks;
    if (!p->topology)
        return "it needs a topology";
    if (!tt_is_pow2(n))
        return "the number of ranks is not a power of two";
    if (!is_bigraph(p->topology))
        return "the network is not a BiGraph";
    if (p->collective == TUTTI_ALL_REDUCE)
        return tt_too_many(2 * n * (n - 1));
    return tt_why_no_shares(p);
}

/* --------------------------------------------------------------- numbers -- */

/* place[p * m + g]: the g-th rank of switch p; upper switches, then lower. */
static tutti_err find_places(const tutti_topology *t, tt_arena *arena,
                             uint32_t **out)
{
    uint32_t *place = tt_arena_new(arena, t->n_ranks, sizeof(*place));
    if (!place)
        return TUTTI_ENOMEM;
    uint32_t n = 0, first = first_switch(t);
    for (int half = 0; half <= 1; half++) {
        for (uint32_t v = 0; v < t->n_nodes; v++) {
            if (!is_switch(t, v) || is_lower(t, first, v) != half)
                continue;
            for (uint32_t i = t->first_out[v]; i < t->first_out[v + 1]; i++) {
                uint32_t to = t->links[t->out[i]].to;
                if (!is_switch(t, to))
                    place[n++] = t->nodes[to].rank;
            }
        }
    }
    *out = place;
    return TUTTI_OK;
}

/* The rank of each number. */
static tutti_err find_ranks(const tutti_topology *t, tt_arena *arena,
                            uint32_t **out)
{
    uint32_t n = t->n_nodes - t->n_ranks, m = t->n_ranks / n, half = n / 2;
    uint32_t *rank = tt_arena_new(arena, t->n_ranks, sizeof(*rank));
    uint32_t *place;
    if (!rank || find_places(t, arena, &place))
        return TUTTI_ENOMEM;
    for (uint32_t v = 0; v < t->n_ranks; v++) {
        uint32_t group = v / n, at = v % n / 2;
        if (__builtin_parity(v))
            at = half + (at + group) % half;
        rank[v] = place[at * m + group];
    }
    *out = rank;
    return TUTTI_OK;
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    uint32_t *rank;
    (void)diag;
    tutti_err err = find_ranks(p->topology, scratch, &rank);
    if (!err)
        tt_butterfly_plan(p, rank, b);
    return err;
}

const tt_planner tt_planner_hdrm = {
    .name = "hdrm",
    .blurb = "halving and doubling, ranks numbered so that a BiGraph is used "
             "evenly",
    .fits = "BiGraphs whose number of ranks is a power of two",
    .why_not = why_not,
    .build = build,
};
