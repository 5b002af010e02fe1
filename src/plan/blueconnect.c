/* SPDX-License-Identifier: BSD-3-Clause
 * blueconnect.c - reduce-scatter dimension by dimension, all-gather back
 * (BlueConnect, MLSys 2019).
 *
 * Idea       N = p0 x p1 x ...: in each dimension the ranks that differ only
 *            there are a group, and all groups work at once. Reduce-scatter in
 *            the innermost dimension first, where links are fast; what is left
 *            to each rank, 1/p0, goes through the next one; and so on. The
 *            all-gather is the film backwards. Within a group: a ring,
 *            halving, or directly, whatever is best there
 *            (blueconnect_factor.c).
 * Chunks     Chunk f of a portion, f a place with coordinates f0, f1, ..., ends
 *            its reduction there. In an all-reduce the chunks lie in the vector
 *            in order of the coordinate visited first, so that what a rank
 *            sends in a step is one run of chunks, and one message.
 * Portions   The vector may be cut into portions that follow each other
 *            through the dimensions, so that one fabric works on one portion
 *            and another on the next; and they may visit the dimensions in
 *            different orders (Themis), and rings in both directions, so that
 *            all links work all the time. On a torus that is nearly the
 *            optimum.
 * Invariant  After the dimensions visited so far, chunk f is at the places that
 *            agree with f in these; each holds the inputs of all that agree
 *            with it in the others.
 * Cost       2 sum_d [(p_d - 1) alpha_d + (p_d - 1) / (p_0 ... p_d) M beta_d]
 *            by rings; (N - 1) / N of the vector per phase and rank in all.
 * Uneven     Where boxes have different sizes there are no dimensions: then it
 *            plans as FlexReduce does (levels.c).
 * Picture    2 x 2, chunk 0 of an all-reduce, a number is a rank:
 *
 *            step 0   1 -> 0   3 -> 2     innermost
 *            step 1   2 -> 0
 *            step 2   0 -> 2
 *            step 3   0 -> 1   2 -> 3
 * Next       blueconnect_factor.c, flexreduce.c. */
#include "plan/blueconnect.h"

#include "plan/levels.h"

/* One variant of the portions: where its stages are. */
typedef struct course {
    uint32_t order[TT_HIER_MAX_DIMS]; /* which dimension at which stage */
    uint32_t first[TT_HIER_MAX_DIMS]; /* step of a stage */
    /* The groups of stage j that a chunk meets: its own coordinates in the
     * dimensions visited before, and these offsets for those after it. */
    uint32_t *groups[TT_HIER_MAX_DIMS];
    uint32_t n_groups[TT_HIER_MAX_DIMS];
    bool is_reverse;
} course;

typedef struct weaver {
    const tt_problem *p;
    const tt_hierarchy *h;
    const tt_blue *b;
    const course *now;
    tt_film film; /* its first step: that of the portion */
} weaver;

/* Of one phase in a dimension. */
static uint32_t dim_steps(const tt_dim *dim)
{
    switch (dim->way) {
    case TT_WAY_RING:
        return dim->size - 1;
    case TT_WAY_HALVING:
        return tt_log2_up(dim->size);
    default:
        return 1;
    }
}

/* --------------------------------------------------------------- courses -- */

/* Offsets of all coordinates in the dimensions that come after stage j. */
static void list_groups(const tt_blue *b, course *c, uint32_t j)
{
    uint32_t n = 1;
    c->groups[j][0] = 0;
    for (uint32_t i = j + 1; i < b->n_dims; i++) {
        const tt_dim *dim = &b->dims[c->order[i]];
        for (uint32_t at = 1; at < dim->size; at++) {
            for (uint32_t g = 0; g < n; g++)
                c->groups[j][at * n + g] = c->groups[j][g] + at * dim->stride;
        }
        n *= dim->size;
    }
    c->n_groups[j] = n;
}

static tutti_err course_init(const tt_blue *b, uint32_t n_ranks, uint32_t i,
                             tt_arena *arena, course *c)
{
    uint32_t step = 0;
    uint32_t n_groups = n_ranks;
    c->is_reverse = i >= b->n_orders;
    for (uint32_t j = 0; j < b->n_dims; j++) {
        c->order[j] = (i % b->n_orders + j) % b->n_dims;
        const tt_dim *dim = &b->dims[c->order[j]];
        c->first[j] = step;
        step += dim_steps(dim);
        n_groups /= dim->size;
        c->groups[j] = tt_arena_new(arena, n_groups, sizeof(uint32_t));
        if (!c->groups[j])
            return TUTTI_ENOMEM;
    }
    for (uint32_t j = 0; j < b->n_dims; j++)
        list_groups(b, c, j);
    return TUTTI_OK;
}

/* ------------------------------------------------------------- transfers -- */

/* The group is the places base + i * stride; the chunk ends at i = end. */
typedef struct group {
    const tt_dim *dim;
    uint32_t base, end, step, chunk;
} group;

static uint32_t place_at(const group *g, uint32_t i)
{
    return g->base + i * g->dim->stride;
}

static void go_round(const weaver *w, const group *g)
{
    uint32_t n = g->dim->size;
    for (uint32_t s = 0; s + 1 < n; s++) {
        uint32_t far = n - 1 - s; /* from the end */
        uint32_t from = w->now->is_reverse ? (g->end + far) % n
                                           : (g->end + n - far) % n;
        uint32_t to = w->now->is_reverse ? (g->end + far - 1) % n
                                         : (g->end + n - far + 1) % n;
        tt_film_add(&w->film, g->step + s, g->chunk, place_at(g, from),
                    place_at(g, to));
    }
}

/* Neighbours first: they exchange most. At bit i those are left that agree
 * with the end in the bits below. */
static void halve(const weaver *w, const group *g)
{
    uint32_t step = g->step;
    for (uint32_t bit = 1; bit < g->dim->size; bit *= 2, step++) {
        for (uint32_t far = bit; far < g->dim->size; far += 2 * bit)
            tt_film_add(&w->film, step, g->chunk, place_at(g, g->end ^ far),
                        place_at(g, g->end ^ far ^ bit));
    }
}

static void meet(const weaver *w, const group *g)
{
    for (uint32_t i = 0; i < g->dim->size; i++) {
        if (i != g->end)
            tt_film_add(&w->film, g->step, g->chunk, place_at(g, i),
                        place_at(g, g->end));
    }
}

static void one_group(const weaver *w, const group *g)
{
    switch (g->dim->way) {
    case TT_WAY_RING:
        go_round(w, g);
        break;
    case TT_WAY_HALVING:
        halve(w, g);
        break;
    default:
        meet(w, g);
        break;
    }
}

/* All transfers of the chunk that ends its reduction at place f. */
static void one_chunk(const weaver *w, uint32_t chunk, uint32_t f)
{
    const course *c = w->now;
    uint32_t fixed = 0; /* f's offsets in the dimensions visited */
    for (uint32_t j = 0; j < w->b->n_dims; j++) {
        const tt_dim *dim = &w->b->dims[c->order[j]];
        group g = {.dim = dim,
                   .end = f / dim->stride % dim->size,
                   .step = c->first[j],
                   .chunk = chunk};
        for (uint32_t i = 0; i < c->n_groups[j]; i++) {
            g.base = fixed + c->groups[j][i];
            one_group(w, &g);
        }
        fixed += g.end * dim->stride;
    }
}

/* ----------------------------------------------------------------- plan -- */

/* Where the chunk ends that is the i-th of its portion in the vector. In
 * halving those lie together that are sent together. */
static uint32_t place_of_chunk(const tt_blue *b, const course *c, uint32_t i)
{
    uint32_t place = 0;
    for (uint32_t j = b->n_dims; j-- > 0;) {
        const tt_dim *dim = &b->dims[c->order[j]];
        uint32_t at = i % dim->size;
        if (dim->way == TT_WAY_HALVING)
            at = tt_bits_back(at, tt_log2_up(dim->size));
        place += at * dim->stride;
        i /= dim->size;
    }
    return place;
}

/* The chunks of portion number `portion`. */
static void weave(weaver *w, uint32_t portion)
{
    uint32_t n = w->p->n_ranks;
    uint32_t n_portions = w->b->n_portions;
    for (uint32_t i = 0; i < n; i++) {
        if (w->p->collective == TUTTI_ALL_REDUCE)
            one_chunk(w, portion * n + i, place_of_chunk(w->b, w->now, i));
        else
            one_chunk(w, i * n_portions + portion, w->h->place_of[i]);
    }
}

/* How far behind the portion before it a portion of the same variant begins: as
 * long as the longest dimension takes. */
static uint32_t stagger(const tt_blue *b)
{
    uint32_t most = 0;
    for (uint32_t d = 0; d < b->n_dims; d++) {
        uint32_t steps = dim_steps(&b->dims[d]);
        most = steps > most ? steps : most;
    }
    return most;
}

static tutti_err weave_all(weaver *w, tt_arena *arena)
{
    uint32_t n_variants = tt_blue_variants(w->b);
    course *courses = tt_arena_new(arena, n_variants, sizeof(*courses));
    if (!courses)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < n_variants; i++) {
        tutti_err err = course_init(w->b, w->p->n_ranks, i, arena, &courses[i]);
        if (err)
            return err;
    }
    for (uint32_t d = 0; d < w->b->n_dims; d++)
        w->film.n_steps += dim_steps(&w->b->dims[d]);
    for (uint32_t i = 0; i < w->b->n_portions; i++) {
        tt_progress_tell(w->p->progress, "writing transfers", i,
                         w->b->n_portions);
        w->now = &courses[i % n_variants];
        w->film.first = i / n_variants * stagger(w->b);
        weave(w, i);
    }
    return TUTTI_OK;
}

tutti_err tt_blue_plan(const tt_problem *p, const tt_hierarchy *h,
                       const tt_blue *b, tt_arena *scratch, tt_builder *out)
{
    weaver w = {.p = p, .h = h, .b = b, .film = tt_film_of(p, out, h->rank_at)};
    tt_plan_chunks(out, b->n_portions * tt_chunks_by_rank(p));
    return weave_all(&w, scratch);
}

/* -------------------------------------------------------------- planner -- */

static const char *why_not(const tt_problem *p)
{
    const char *reason = tt_levels_why_not(p);
    return reason ? reason : tt_why_no_shares(p);
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    tt_hierarchy h;
    tt_blue blue;
    uint32_t dims[TT_HIER_MAX_DIMS];
    tutti_err err = tt_hierarchy_find(p->topology, scratch, &h);
    if (!err && tt_hierarchy_dims(&h, dims) == 0)
        return tt_levels_plan(p, &h, TT_BY_COUNT, scratch, b, diag);
    if (!err)
        err = tt_blue_choose(p, &h, scratch, &blue);
    return err ? err : tt_blue_plan(p, &h, &blue, scratch, b);
}

const tt_planner tt_planner_blueconnect = {
    .name = "blueconnect",
    .blurb = "dimension by dimension, inwards out and back (BlueConnect)",
    .fits = "any network, up to 8192 ranks",
    .why_not = why_not,
    .build = build,
};
