/* SPDX-License-Identifier: BSD-3-Clause
 * lanes.c - who waits for whom, and who sends through which connection.
 *
 * Idea       Everything follows from the lanes in three orders, each made by
 *            stable counting sorts: as inputs (dst, chunk, step) they fall
 *            into groups; as outputs (src, chunk, step) each follows the last
 *            group of its rank and chunk with a smaller step; by src, dst and
 *            rail they fall into connections.
 * Invariant  Groups are numbered by (rank, chunk, step), so the group before
 *            is number - 1 and the one after number + 1, if of the same rank
 *            and chunk. Connections are numbered by src, then by how far dst
 *            is from it: where everybody begins at once, not everybody begins
 *            with the same one.
 * Cost       O(transfers + chunks + ranks) time; about 100 bytes a transfer.
 * Next       sim.c. */
#include "sim/world.h"

#include <string.h>

/* ---------------------------------------------------------------- sorts -- */

typedef uint32_t (*key_fn)(const tutti_schedule *s, const tt_transfer *t);

static uint32_t key_chunk(const tutti_schedule *s, const tt_transfer *t)
{
    (void)s;
    return t->chunk;
}

static uint32_t key_src(const tutti_schedule *s, const tt_transfer *t)
{
    (void)s;
    return t->src;
}

static uint32_t key_dst(const tutti_schedule *s, const tt_transfer *t)
{
    (void)s;
    return t->dst;
}

static uint32_t key_way(const tutti_schedule *s, const tt_transfer *t)
{
    return (t->dst + s->n_ranks - t->src) % s->n_ranks;
}

static uint32_t key_rail(const tutti_schedule *s, const tt_transfer *t)
{
    (void)s;
    return t->rail;
}

typedef struct sorter {
    const tutti_schedule *s;
    tt_arena arena;
    uint32_t *count; /* one more than the largest number of keys */
    uint32_t *spare; /* n_transfers */
} sorter;

static tutti_err sorter_open(sorter *z, const tt_sim_world *w)
{
    const tutti_schedule *s = w->s;
    *z = (sorter){.s = s, .arena.mem = w->mem};
    uint64_t keys = s->n_chunks > s->n_ranks ? s->n_chunks : s->n_ranks;
    keys = keys > UINT8_MAX + 1 ? keys : UINT8_MAX + 1;
    z->count = tt_arena_new(&z->arena, keys + 1, sizeof(uint32_t));
    z->spare = tt_arena_new(&z->arena, s->n_transfers, sizeof(uint32_t));
    return z->arena.err;
}

/* Stable, by a key below limit. */
static void sort_by(const sorter *z, uint32_t *order, key_fn key,
                    uint64_t limit)
{
    const tt_transfer *t = z->s->transfers;
    const uint64_t n = z->s->n_transfers;
    uint32_t *count = z->count;
    memset(count, 0, (limit + 1) * sizeof(*count));
    for (uint64_t i = 0; i < n; i++)
        count[key(z->s, &t[i]) + 1]++;
    for (uint64_t k = 0; k < limit; k++)
        count[k + 1] += count[k];
    for (uint64_t i = 0; i < n; i++)
        z->spare[count[key(z->s, &t[order[i]])]++] = order[i];
    memcpy(order, z->spare, n * sizeof(*order));
}

static uint32_t *all_lanes(const tutti_schedule *s, tt_arena *arena)
{
    uint32_t *order = tt_arena_new(arena, s->n_transfers, sizeof(*order));
    for (uint64_t i = 0; order && i < s->n_transfers; i++)
        order[i] = (uint32_t)i;
    return order;
}

/* --------------------------------------------------------------- groups -- */

static int compare_place(uint32_t rank_a, const tt_transfer *a, uint32_t rank_b,
                         const tt_transfer *b)
{
    if (rank_a != rank_b)
        return rank_a < rank_b ? -1 : 1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    return 0;
}

static void add_group(tt_sim_world *w, uint32_t at)
{
    const tutti_schedule *s = w->s;
    const tt_transfer *t = &s->transfers[w->ins[at]];
    tt_sim_group *g = &w->groups[w->n_groups++];
    uint32_t who;
    *g = (tt_sim_group){.first_in = at, .is_copy = t->op == TT_XFER_COPY};
    g->is_result = tt_sched_end(s, s->chunks[t->chunk].block, t->dst, &who) !=
                   TT_HOLD_NONE;
    if (at == 0)
        return;
    const tt_transfer *before = &s->transfers[w->ins[at - 1]];
    if (compare_place(before->dst, before, t->dst, t) != 0)
        return;
    g->has_prev = true;
    g[-1].has_next = true;
    g[-1].is_result = false;
}

static bool begins_group(const tt_sim_world *w, uint64_t i)
{
    if (i == 0)
        return true;
    const tt_transfer *a = &w->s->transfers[w->ins[i - 1]];
    const tt_transfer *b = &w->s->transfers[w->ins[i]];
    return a->step != b->step || compare_place(a->dst, a, b->dst, b) != 0;
}

static tutti_err make_groups(tt_sim_world *w)
{
    size_t n = 0;
    for (uint64_t i = 0; i < w->s->n_transfers; i++)
        n += begins_group(w, i);
    w->groups = tt_arena_new(&w->arena, n, sizeof(*w->groups));
    if (!w->groups)
        return TUTTI_ENOMEM;
    for (uint64_t i = 0; i < w->s->n_transfers; i++) {
        if (begins_group(w, i))
            add_group(w, (uint32_t)i);
        w->groups[w->n_groups - 1].n_in++;
        w->lanes[w->ins[i]].group = w->n_groups - 1;
    }
    return TUTTI_OK;
}

static tutti_err no_value(const tt_sim_world *w, const tt_transfer *t)
{
    tutti_err err = tt_fail(w->diag, TUTTI_EPROOF,
                            "chunk %u: at step %u rank %u sends to rank %u "
                            "what it never gets, so the transfer can never "
                            "start",
                            t->chunk, t->step, t->src, t->dst);
    tt_diag_at(w->diag, t->src, t->chunk, t->step);
    return err;
}

/* Outputs and groups are both sorted by (rank, chunk, step): one walk. */
static tutti_err follow_groups(tt_sim_world *w)
{
    const tutti_schedule *s = w->s;
    uint32_t g = 0; /* groups before the place and step of the output */
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *out = &s->transfers[w->outs[i]];
        int order = -1;
        for (; g < w->n_groups; g++) {
            const tt_transfer *in =
                &s->transfers[w->ins[w->groups[g].first_in]];
            order = compare_place(in->dst, in, out->src, out);
            if (order > 0 || (order == 0 && in->step >= out->step))
                break;
        }
        tt_sim_lane *lane = &w->lanes[w->outs[i]];
        lane->pred = TT_NONE;
        if (g > 0) {
            tt_sim_group *last = &w->groups[g - 1];
            const tt_transfer *in = &s->transfers[w->ins[last->first_in]];
            if (compare_place(in->dst, in, out->src, out) == 0) {
                lane->pred = g - 1;
                if (last->n_out++ == 0)
                    last->first_out = (uint32_t)i;
            }
        }
        uint32_t who;
        if (lane->pred == TT_NONE &&
            tt_sched_start(s, s->chunks[out->chunk].block, out->src, &who) ==
                TT_HOLD_NONE)
            return no_value(w, out);
    }
    return TUTTI_OK;
}

/* ---------------------------------------------------------- connections -- */

static bool begins_conn(const tutti_schedule *s, const uint32_t *order,
                        uint64_t i)
{
    if (i == 0)
        return true;
    const tt_transfer *a = &s->transfers[order[i - 1]];
    const tt_transfer *b = &s->transfers[order[i]];
    return a->src != b->src || a->dst != b->dst || a->rail != b->rail;
}

static tutti_err make_conns(tt_sim_world *w, const uint32_t *order)
{
    const tutti_schedule *s = w->s;
    size_t n = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++)
        n += begins_conn(s, order, i);
    w->conns = tt_arena_new(&w->arena, n, sizeof(*w->conns));
    w->heaps = tt_arena_new(&w->arena, s->n_transfers, sizeof(*w->heaps));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[order[i]];
        if (begins_conn(s, order, i))
            w->conns[w->n_conns++] = (tt_sim_conn){.src = t->src,
                                                   .dst = t->dst,
                                                   .rail = t->rail,
                                                   .heap = (uint32_t)i};
        w->lanes[order[i]].conn = w->n_conns - 1;
    }
    return TUTTI_OK;
}

static tutti_err add_route(tt_sim_world *w, const tt_routes *routes,
                           tt_sim_conn *conn)
{
    tt_sim_list *links = &w->links;
    size_t most = tt_routes_max_links(routes);
    links->at = tt_arena_grow(&w->arena, links->at, &links->cap,
                              links->n + most, sizeof(*links->at));
    if (w->arena.err)
        return w->arena.err;
    conn->route = (uint32_t)links->n;
    conn->n_links = tt_route(routes, conn->src, conn->dst, conn->rail,
                             links->at + links->n);
    if (conn->n_links == 0)
        return tt_fail(w->diag, TUTTI_ENOFIT,
                       "rank %u cannot send to rank %u: hosts between them do "
                       "not forward",
                       conn->src, conn->dst);
    for (uint32_t i = 0; i < conn->n_links; i++) {
        const tt_link *link = &w->t->links[links->at[links->n + i]];
        conn->latency_s += tt_link_latency_s(link);
    }
    links->n += conn->n_links;
    return links->n < TT_NONE - most ? TUTTI_OK : TUTTI_ELIMIT;
}

static tutti_err make_routes(tt_sim_world *w)
{
    tt_routes *routes = NULL;
    tutti_err err = tt_routes_create(w->t, w->mem, &routes, w->diag);
    for (uint32_t c = 0; c < w->n_conns && !err; c++)
        err = add_route(w, routes, &w->conns[c]);
    tt_routes_free(routes);
    return err;
}

/* ----------------------------------------------------------------- make -- */

static tutti_err make_orders(tt_sim_world *w, sorter *z)
{
    const tutti_schedule *s = w->s;
    w->ins = all_lanes(s, &w->arena);
    w->outs = all_lanes(s, &w->arena);
    uint32_t *order = all_lanes(s, &z->arena);
    if (w->arena.err || z->arena.err)
        return TUTTI_ENOMEM;
    sort_by(z, w->ins, key_chunk, s->n_chunks);
    memcpy(w->outs, w->ins, s->n_transfers * sizeof(*w->outs));
    sort_by(z, w->ins, key_dst, s->n_ranks);
    sort_by(z, w->outs, key_src, s->n_ranks);
    sort_by(z, order, key_rail, UINT8_MAX + 1);
    sort_by(z, order, key_way, s->n_ranks);
    sort_by(z, order, key_src, s->n_ranks);
    return make_conns(w, order);
}

/* The payload over all links must fit 64 bits. */
static tutti_err count_slices(tt_sim_world *w)
{
    const tutti_schedule *s = w->s;
    double volume = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_sim_chunk *c = &w->chunks[s->transfers[i].chunk];
        const tt_sim_conn *conn = &w->conns[w->lanes[i].conn];
        w->n_slices += c->n_slices;
        volume += (double)(c->n_elems * w->elem_bytes) * conn->n_links;
    }
    if (volume < 9e18)
        return TUTTI_OK;
    return tt_fail(w->diag, TUTTI_ELIMIT,
                   "more bytes would cross the links than can be counted");
}

tutti_err tt_sim_make(tt_sim_world *w)
{
    const tutti_schedule *s = w->s;
    if (s->n_transfers >= TT_NONE)
        return tt_fail(w->diag, TUTTI_ELIMIT,
                       "%llu transfers are more than the simulator can follow",
                       (unsigned long long)s->n_transfers);
    w->ranks = tt_arena_new(&w->arena, s->n_ranks, sizeof(*w->ranks));
    if (!w->ranks)
        return TUTTI_ENOMEM;
    if (s->n_transfers == 0)
        return TUTTI_OK;
    w->lanes = tt_arena_new(&w->arena, s->n_transfers, sizeof(*w->lanes));
    if (!w->lanes)
        return TUTTI_ENOMEM;
    sorter z;
    tutti_err err = sorter_open(&z, w);
    if (!err)
        err = make_orders(w, &z);
    tt_arena_free(&z.arena);
    if (!err)
        err = make_groups(w);
    if (!err)
        err = follow_groups(w);
    if (!err)
        err = make_routes(w);
    return err ? err : count_slices(w);
}
