/* SPDX-License-Identifier: BSD-3-Clause
 * cut_test.c - the engine and the simulator cut alike: of random schedules and
 * those of planners, for any collective, sizes from 0 to 2^46 bytes, uneven
 * blocks, elements, fronts, windows, staging memory and messages, what every
 * rank binds has the chunks, slices and positions that the simulator has; and
 * no slice is empty. */
#include "support/tap.h"

#include "plan/plan.h"
#include "sim/world.h"
#include "walk/layout.h"

#include "support/nets.h"
#include "support/random_schedule.h"
#include "support/seed.h"

#include <stdlib.h>

static const tutti_coll colls[] = {
    TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER, TUTTI_BROADCAST,
    TUTTI_REDUCE,     TUTTI_ALL_TO_ALL,     TUTTI_GATHER,     TUTTI_SCATTER};

enum { MOST_RANKS = 16 };

typedef struct call {
    uint64_t seed;
    const tutti_schedule *s;
    uint32_t elem_bytes;
    uint64_t count;
    bool has_counts; /* counts[i * n_ranks + j]: of block (i, j), or (0, j) */
    size_t counts[MOST_RANKS * MOST_RANKS];
    uint64_t block_bytes[MOST_RANKS * MOST_RANKS];
    size_t in_counts[MOST_RANKS], out_counts[MOST_RANKS]; /* of one rank */
    tt_layout lay;
} call;

/* ---------------------------------------------------------- the two cuts -- */

static void need(bool ok, const call *c, uint32_t rank, const char *what)
{
    if (!ok)
        fail_msg("%s of %u ranks, count %llu%s of %u bytes, front %llu, "
                 "window %u, payload %u, staging %llu: rank %u: %s "
                 "(TT_SEED=%llu)",
                 tutti_coll_name(c->s->collective), c->s->n_ranks,
                 (unsigned long long)c->count, c->has_counts ? "s" : "",
                 c->elem_bytes, (unsigned long long)c->lay.front_bytes,
                 c->lay.window, c->lay.max_payload,
                 (unsigned long long)c->lay.staging_max_bytes, rank, what,
                 (unsigned long long)c->seed);
}

static tt_shape shape_of(call *c, uint32_t rank)
{
    uint32_t n = c->s->n_ranks;
    tt_shape shape = {.coll = c->s->collective,
                      .rank = rank,
                      .n_ranks = n,
                      .root = c->s->root,
                      .elem_bytes = c->elem_bytes,
                      .count = c->has_counts ? 0 : c->count};
    if (!c->has_counts)
        return shape;
    if (c->s->collective != TUTTI_ALL_TO_ALL) {
        shape.counts = c->counts;
        return shape;
    }
    for (uint32_t r = 0; r < n; r++) {
        c->in_counts[r] = c->counts[rank * n + r];
        c->out_counts[r] = c->counts[r * n + rank];
    }
    shape.in_counts = c->in_counts;
    shape.out_counts = c->out_counts;
    return shape;
}

/* What the simulator is told of the same call. */
static tutti_sim_opts sim_opts(call *c)
{
    uint64_t n_blocks = c->s->n_blocks;
    if (c->s->collective == TUTTI_ALL_TO_ALL)
        n_blocks = c->s->n_ranks;
    tutti_sim_opts o = {
        .size_bytes = c->count * n_blocks * c->elem_bytes,
        .elem_bytes = c->elem_bytes,
        .front_bytes = c->lay.front_bytes,
        .staging_max_bytes = c->lay.staging_max_bytes,
        .max_payload = c->lay.max_payload,
        .window = c->lay.window,
    };
    for (uint64_t b = 0; c->has_counts && b < c->s->n_blocks; b++)
        c->block_bytes[b] = c->counts[b] * c->elem_bytes;
    if (c->has_counts)
        o.block_bytes = c->block_bytes;
    return o;
}

/* ------------------------------------------------------------- comparing -- */

typedef struct pair {
    const call *c;
    const tt_sim_world *w;
    const tt_part *part;
    const tt_bound *b;
    const tt_shape *shape;
    tt_layout lay;
} pair;

/* Where the simulator's chunk begins in its block. */
static uint64_t sim_begin(const tt_sim_world *w, uint32_t chunk)
{
    uint64_t at = 0;
    for (uint32_t c = chunk; c > 0; c--) {
        if (w->s->chunks[c - 1].block != w->s->chunks[chunk].block)
            break;
        at += w->chunks[c - 1].n_elems;
    }
    return at;
}

static void compare_span(const pair *p, const tt_span *span, uint32_t i)
{
    const tt_part_chunk *pc = &p->part->chunks[i];
    const uint32_t rank = p->part->rank, elem = p->c->elem_bytes;
    need(span->n_elems == p->w->chunks[pc->chunk].n_elems, p->c, rank,
         "a chunk's size");
    if (span->base == TT_SCRATCH)
        return;
    uint64_t block_at = span->base == TT_IN
                            ? p->lay.in_at(p->shape, pc->c.block)
                            : p->lay.out_at(p->shape, pc->c.block);
    need(span->offset / elem == block_at + sim_begin(p->w, pc->chunk), p->c,
         rank, "a chunk's border");
}

/* A lane of one chunk, or of several that are one slice each. */
static void compare_lane(const pair *p, const tt_lane *lane)
{
    const uint32_t rank = p->part->rank;
    uint64_t most = 0, sum = 0;
    need(lane->stride == p->b->n_positions / lane->n_slices, p->c, rank,
         "a lane's stride");
    for (uint32_t i = 0; i < lane->n_chunks; i++) {
        uint32_t chunk = p->part->chunks[lane->chunk + i].chunk;
        const tt_sim_chunk *sim = &p->w->chunks[chunk];
        need(lane->n_slices == sim->n_slices, p->c, rank, "slices of a chunk");
        sum += sim->n_elems * p->c->elem_bytes;
        for (uint32_t k = 0; k < sim->n_slices; k++) {
            uint64_t n = tt_slice_at(sim->n_elems, k + 1, sim->n_slices) -
                         tt_slice_at(sim->n_elems, k, sim->n_slices);
            need(n > 0, p->c, rank, "an empty slice");
            most = n > most ? n : most;
        }
    }
    need(lane->slice_bytes ==
             (lane->n_slices > 1 ? most * p->c->elem_bytes : sum),
         p->c, rank, "a lane's largest slice");
}

static uint32_t finest_of(const pair *p)
{
    uint32_t finest = 1;
    for (uint64_t i = 0; i < p->part->n_chunks; i++) {
        uint32_t n = p->w->chunks[p->part->chunks[i].chunk].n_slices;
        need((n & (n - 1)) == 0, p->c, p->part->rank, "no power of two");
        finest = n > finest ? n : finest;
    }
    return finest;
}

/* Chunks that move, in the schedule and in what the rank has bound. */
static void compare_totals(const pair *p)
{
    const tutti_schedule *s = p->w->s;
    uint64_t want = 0, got = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        bool is_here = t->src == p->part->rank || t->dst == p->part->rank;
        want += is_here && p->w->chunks[t->chunk].n_elems > 0;
    }
    for (uint32_t l = 0; l < p->b->n_sends; l++)
        got += p->b->sends[l].n_chunks;
    for (uint32_t l = 0; l < p->b->n_recvs; l++)
        got += p->b->recvs[l].n_chunks;
    need(got == want, p->c, p->part->rank, "transfers are missing");
}

static void compare(const pair *p)
{
    const tt_bound *b = p->b;
    const uint32_t finest = finest_of(p);
    need(b->n_positions == finest, p->c, p->part->rank, "positions");
    if (tt_coll_has_window(p->w->s->collective)) {
        need(b->n_positions == p->w->n_positions, p->c, p->part->rank,
             "positions of all ranks");
        if (p->lay.total_bytes > 0)
            need(p->lay.total_bytes == p->w->total_bytes, p->c, p->part->rank,
                 "the vector's size");
    }
    for (uint32_t l = 0; l < b->n_sends; l++) {
        compare_lane(p, &b->sends[l]);
        for (uint32_t i = 0; i < b->sends[l].n_chunks; i++)
            compare_span(p, &b->spans[b->sends[l].span + i],
                         b->sends[l].chunk + i);
    }
    for (uint32_t l = 0; l < b->n_recvs; l++)
        compare_lane(p, &b->recvs[l]);
    for (uint32_t g = 0; g < b->n_groups; g++) {
        const tt_group *group = &b->groups[g];
        uint32_t chunk = b->recvs[b->index[group->lanes]].chunk;
        for (uint32_t i = 0; i < group->n_pieces; i++)
            compare_span(p, &b->pieces[group->pieces + i].to, chunk + i);
    }
    compare_totals(p);
}

/* A slice that no message holds: so much memory has nobody. */
static bool is_beyond(const call *c, const tt_sim_world *w)
{
    for (uint64_t i = 0; i < c->s->n_chunks; i++)
        if (w->chunks[i].n_slices == TT_MOST_SLICES)
            return true;
    return false;
}

static void compare_ranks(call *c, const tutti_sim_opts *o)
{
    tutti_diag diag;
    tt_sim_world w = {.s = c->s, .opts = o, .mem = &tt_mem_std, .diag = &diag};
    w.arena.mem = &tt_mem_std;
    assert_int_equal(tt_sim_cut(&w), 0);
    for (uint32_t r = 0; r < c->s->n_ranks; r++) {
        const tt_shape shape = shape_of(c, r);
        pair p = {.c = c, .w = &w, .shape = &shape, .lay = c->lay};
        tt_part *part;
        tt_bound *bound;
        tt_shape_layout(&shape, &p.lay);
        assert_int_equal(tt_part_extract(c->s, r, NULL, &tt_mem_std, &part), 0);
        tutti_err err = tt_bound_create(part, &p.lay, &tt_mem_std, &bound);
        need(!err || is_beyond(c, &w), c, r, "it is not bound");
        if (!err) {
            p.part = part;
            p.b = bound;
            compare(&p);
            tt_bound_free(bound);
        }
        tt_part_free(part);
    }
    tt_arena_free(&w.arena);
}

/* ----------------------------------------------------------------- cases -- */

static uint64_t random_size(tt_rng *rng)
{
    static const uint64_t odd[] = {0, 1, 2, 3, 7, 64, 1000, 16384, 65537};
    switch (tt_rng_below(rng, 4)) {
    case 0:
        return odd[tt_rng_below(rng, 9)];
    case 1:
        return tt_rng_below(rng, 100000);
    case 2:
        return tt_rng_below(rng, 20 << 20);
    default:
        return tt_rng_below(rng, UINT64_C(1) << (20 + tt_rng_below(rng, 18)));
    }
}

/* A rank knows the sizes of what it sends and receives in an all-to-all: then
 * nothing may be forwarded. */
static bool may_vary(const tutti_schedule *s)
{
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        uint64_t block = s->chunks[t->chunk].block;
        if (s->collective == TUTTI_ALL_TO_ALL &&
            block != (uint64_t)t->src * s->n_ranks + t->dst)
            return false;
    }
    return s->n_blocks > 1;
}

static tutti_schedule *direct(uint32_t n)
{
    const tt_problem p = {.collective = TUTTI_ALL_TO_ALL,
                          .n_ranks = n,
                          .root = TT_NONE,
                          .size_bytes = 1 << 20};
    tutti_schedule *s;
    assert_int_equal(
        tt_plan_build(tt_planner_find("direct"), &p, &tt_mem_std, &s, NULL), 0);
    return s;
}

static tutti_schedule *random_schedule(tt_rng *rng, uint32_t n)
{
    tutti_schedule *s;
    if (tt_rng_below(rng, 9) == 0)
        return direct(n);
    tutti_coll coll = colls[tt_rng_below(rng, 8)];
    assert_int_equal(tt_random_schedule(rng, coll, n, &s), 0);
    return s;
}

static call random_call(tt_rng *rng, const tutti_schedule *s, uint64_t seed)
{
    call c = {.seed = seed,
              .s = s,
              .elem_bytes = 1u << tt_rng_below(rng, 4),
              .count = random_size(rng)};
    c.lay = (tt_layout){
        .front_bytes = UINT64_C(256) << tt_rng_below(rng, 16),
        .staging_max_bytes = UINT64_C(65536) << tt_rng_below(rng, 12),
        .window = 1u << tt_rng_below(rng, 5),
        .max_payload = 16384u << tt_rng_below(rng, 9),
    };
    c.has_counts = may_vary(s) && tt_rng_below(rng, 2);
    for (uint64_t b = 0; c.has_counts && b < s->n_blocks; b++)
        c.counts[b] = tt_rng_below(rng, 4) ? random_size(rng) >> 4 : 0;
    return c;
}

/* Slices are compared one by one. */
static bool is_fine(const call *c)
{
    return c->count >> 40 || c->lay.front_bytes < 65536 ||
           c->lay.staging_max_bytes < 1 << 20;
}

static void random_schedules(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    tt_rng rng = {seed};
    for (int round = 0; round < 1000; round++) {
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, 9);
        tutti_schedule *s = random_schedule(&rng, n);
        call c = random_call(&rng, s, seed);
        if (is_fine(&c) && c.count > 4 << 20)
            c.count >>= 16;
        const tutti_sim_opts o = sim_opts(&c);
        compare_ranks(&c, &o);
        tt_sched_free(s);
    }
}

/* What is predicted for a job is what the job binds (core/plans.c). */
static void predictions(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(2);
    tt_rng rng = {seed};
    for (int round = 0; round < 200; round++) {
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 9);
        tt_net_case net = tt_net_random(&rng, (uint32_t)round % TT_NET_KINDS,
                                        n);
        tutti_schedule *s = random_schedule(&rng, n);
        net.p.collective = s->collective;
        call c = {.seed = seed,
                  .s = s,
                  .elem_bytes = 4,
                  .count = tt_rng_below(&rng, 4 << 20)};
        net.p.root = s->root;
        net.p.cutting = (tt_cutting){
            .is_inside = tt_rng_below(&rng, 2),
            .front_bytes = tt_rng_below(&rng, 3) ? 0 : 50000,
            .staging_max_bytes = UINT64_C(65536) << tt_rng_below(&rng, 11),
            .window = tt_rng_below(&rng, 2) ? 0 : 2,
            .max_payload = 65536u << tt_rng_below(&rng, 7),
            .message_bytes = tt_rng_below(&rng, 2) ? 0
                                                   : tt_rng_below(&rng, 65536)};
        const tt_shape shape = shape_of(&c, 0);
        tt_cutting cut = tt_cutting_for(
            &net.p.cutting, tt_shape_measure(&shape).total_bytes, 1);
        c.lay = (tt_layout){.front_bytes = cut.front_bytes,
                            .staging_max_bytes = cut.staging_max_bytes,
                            .window = cut.window,
                            .max_payload = cut.max_payload};
        net.p.size_bytes = sim_opts(&c).size_bytes;
        tutti_sim_opts o;
        assert_int_equal(tt_plan_sim_opts(s, &net.p, &tt_mem_std, &o, NULL), 0);
        compare_ranks(&c, &o);
        tt_sched_free(s);
        tt_net_free(&net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules),
        cmocka_unit_test(predictions),
    };
    return TT_RUN_TAP(tests);
}
