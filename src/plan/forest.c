/* SPDX-License-Identifier: BSD-3-Clause
 * forest.c - the best trees there are, each with the share it deserves.
 *
 * Idea       columns.c finds the trees and shares that keep the busiest link
 *            busy for the least time; here they become a schedule. A chunk is a
 *            share that one in-tree of a root reduces and one out-tree of that
 *            root distributes; while one chunk is still being reduced another
 *            is already on its way out, over the other direction of the links.
 *            Shares need not be equal, and some ranks may be no root at all:
 *            that is what schedules with equal shares leave on the table.
 * Pairing    A root's in-trees and out-trees carry the same in total, but in
 *            different portions. Laid side by side, each border of either
 *            begins a chunk: k and l trees give at most k + l - 1 chunks. The
 *            deepest in-trees are laid beside the flattest out-trees, so that
 *            all chunks take about equally long to get through.
 *
 *              in-trees    |----a----|------b------|
 *              out-trees   |--c--|--------d--------|
 *              chunks      |a,c  |a,d|     b,d     |
 *
 * Steps      A chunk's own: all children of a vertex send in one step, the
 *            deepest first, so each vertex makes one reduction.
 * Cost       The least possible time, but for what it takes to fill the
 *            pipeline. Planning is a linear programme: a tenth of a second for
 *            25 ranks, a second for 64.
 * Next       bound/columns.c (where the trees come from). */
#include "bound/bound.h"
#include "plan/planner.h"
#include "plan/ringorder.h"

#include <math.h>

/* Of each block: fine enough that rounding a border costs nothing. */
#define PARTS (UINT64_C(1) << 24)
/* This near to the optimum is near enough for a schedule. */
#define GOOD_ENOUGH 1e-5
/* The way through a chunk's trees, in time that the whole of a front takes. A
 * ring's chunks of 1/n and depth 2(n-1) have this too. */
#define FRONTS_DEEP 2.0

static const char *why_not(const tt_problem *p)
{
    const char *reason = tt_why_no_trees(p);
    if (reason)
        return reason;
    return p->topology ? tt_columns_why_not(p->topology)
                       : "it needs a topology";
}

typedef struct planting {
    const tt_problem *p;
    tt_builder *b;
    uint32_t *depth; /* of each rank in the tree at hand */
} planting;

/* One tree of a chunk, from this step on; returns the step after it. */
static uint32_t plant(planting *f, const tt_spantree *tree, uint32_t chunk,
                      uint32_t step)
{
    f->depth[tree->root] = 0;
    for (uint32_t i = 0; i + 1 < f->p->n_ranks; i++) {
        const tt_hop *hop = &tree->hops[i];
        uint32_t child = tree->is_in ? hop->src : hop->dst;
        uint32_t parent = tree->is_in ? hop->dst : hop->src;
        uint32_t d = f->depth[parent];
        f->depth[child] = d + 1;
        tt_builder_rail(f->b, hop->rail);
        if (tree->is_in)
            tt_builder_transfer(f->b, step + tree->depth - 1 - d, chunk,
                                hop->src, hop->dst, TT_XFER_REDUCE);
        else
            tt_builder_transfer(f->b, step + d, chunk, hop->src, hop->dst,
                                TT_XFER_COPY);
    }
    return step + tree->depth;
}

/* Where the next chunk begins. */
typedef struct cutter {
    uint32_t block;
    double whole; /* the block's share of the vector */
    double end;   /* share of the vector in the chunks of the block so far */
    uint64_t part;
} cutter;

/* Adds a share to the block's; false: too little for a chunk. */
static bool cut(planting *f, cutter *c, double share, uint32_t *chunk)
{
    c->end += share;
    double end = c->whole > 0 ? c->end / c->whole : 1;
    end = round(end * (double)PARTS);
    uint64_t part = end >= (double)PARTS ? PARTS : (uint64_t)end;
    if (part <= c->part)
        return false;
    *chunk = tt_builder_chunk(f->b, c->block, c->part, part);
    c->part = part;
    return true;
}

/* A share that flows along these trees (one may be NULL), in chunks that are so
 * small that the way through a deep tree is not longer than that of the
 * ring's chunks. */
static void flow(planting *f, cutter *c, double share, const tt_spantree *in,
                 const tt_spantree *out)
{
    double depth = (in ? in->depth : 0) + (out ? out->depth : 0);
    uint32_t n = (uint32_t)ceil(share * depth / FRONTS_DEEP);
    n = n ? n : 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t chunk = 0;
        if (!cut(f, c, share / n, &chunk))
            continue;
        uint32_t step = in ? plant(f, in, chunk, 0) : 0;
        if (out)
            plant(f, out, chunk, step);
    }
}

/* A root's trees of one side. */
typedef struct row {
    tt_spantree *trees;
    uint32_t n;
} row;

/* Deepest first, or flattest first; equal ones stay in order. */
static void sort(row *r, bool deepest_first)
{
    for (uint32_t i = 1; i < r->n; i++) {
        tt_spantree tree = r->trees[i];
        uint32_t k = i;
        for (; k > 0; k--) {
            uint32_t before = r->trees[k - 1].depth;
            if (deepest_first ? before >= tree.depth : before <= tree.depth)
                break;
            r->trees[k] = r->trees[k - 1];
        }
        r->trees[k] = tree;
    }
}

/* Less than this of a tree is rounding. */
#define REST 1e-12

/* Lays the rows side by side. */
static void pair_up(planting *f, row in, row out, cutter *c)
{
    uint32_t i = 0, k = 0;
    double in_used = 0, out_used = 0;
    while (i < in.n && k < out.n) {
        double in_left = in.trees[i].share - in_used;
        double out_left = out.trees[k].share - out_used;
        double share = fmin(in_left, out_left);
        flow(f, c, share, &in.trees[i], &out.trees[k]);
        in_used += share;
        out_used += share;
        if (in_left - share <= REST) {
            i++;
            in_used = 0;
        }
        if (out_left - share <= REST) {
            k++;
            out_used = 0;
        }
    }
}

static void one_side(planting *f, row r, cutter *c)
{
    for (uint32_t i = 0; i < r.n; i++) {
        const tt_spantree *tree = &r.trees[i];
        flow(f, c, tree->share, tree->is_in ? tree : NULL,
             tree->is_in ? NULL : tree);
    }
}

/* The row that begins at *i. */
static row next_row(const tt_columns *best, uint32_t *i)
{
    row r = {.trees = best->trees + *i};
    while (*i < best->n_trees && best->trees[*i].root == r.trees->root &&
           best->trees[*i].is_in == r.trees->is_in) {
        r.n++;
        ++*i;
    }
    sort(&r, r.trees->is_in);
    return r;
}

static double sum_of(row r)
{
    double sum = 0;
    for (uint32_t i = 0; i < r.n; i++)
        sum += r.trees[i].share;
    return sum;
}

static void plant_all(planting *f, const tt_columns *best)
{
    bool has_blocks = tt_coll_blocks(f->p->collective, f->p->n_ranks) > 1;
    cutter c = {.whole = 1};
    uint32_t i = 0;
    while (i < best->n_trees) {
        row first = next_row(best, &i);
        if (f->p->collective == TUTTI_ALL_REDUCE) {
            pair_up(f, first, next_row(best, &i), &c);
            continue;
        }
        if (has_blocks)
            c = (cutter){.block = first.trees->root, .whole = sum_of(first)};
        one_side(f, first, &c);
    }
}

/* Without switches every message has links of its own, and no order matters. */
static tutti_err find_trees(const tt_problem *p, tt_arena *scratch,
                            tt_columns *out, tutti_diag *diag)
{
    tt_ring ring = {0};
    if (p->topology->n_nodes > p->n_ranks &&
        tt_ringorder_find(p, false, scratch, &ring))
        return TUTTI_ENOMEM;
    const tt_columns_opts opts = {
        .collective = p->collective,
        .root = p->root,
        .block_bytes = p->block_bytes,
        .ring = ring.at,
        .gap = GOOD_ENOUGH,
        .progress = p->progress,
    };
    return tt_columns_find(p->topology, p->routes, &opts, scratch->mem, out,
                           diag);
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    tt_columns best;
    if (p->n_ranks == 1) {
        tt_builder_whole_blocks(b);
        return TUTTI_OK;
    }
    planting f = {.p = p, .b = b};
    f.depth = tt_arena_new(scratch, p->n_ranks, sizeof(*f.depth));
    tutti_err err = f.depth ? find_trees(p, scratch, &best, diag)
                            : TUTTI_ENOMEM;
    if (err)
        return err;
    tt_builder_parts(b, PARTS);
    plant_all(&f, &best);
    tt_columns_free(&best);
    return TUTTI_OK;
}

const tt_planner tt_planner_forest = {
    .name = "forest",
    .blurb = "the best trees that the network has, with uneven shares",
    .fits = "any network up to 192 ranks; auto: up to 128",
    .auto_ranks = 128,
    .why_not = why_not,
    .build = build,
    .knows_rails = true,
    .uses_links = true,
};
