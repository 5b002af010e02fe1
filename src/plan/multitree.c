/* SPDX-License-Identifier: BSD-3-Clause
 * multitree.c - a tree from every rank, all grown together; after MultiTree
 * (Huang and others, ISCA 2021).
 *
 * Idea       Chunk c belongs to rank c and has a tree whose root is rank c. The
 *            trees are grown together, step by step, each step with all links
 *            free (multitree_grow.c), so near the roots they use many links,
 *            near the leaves what is left, and in no step does a link carry
 *            more than it can: no contention. All-gather: the chunks go down
 *            the trees. Reduce-scatter: they come up, last step first, over
 *            trees grown for that direction. All-reduce is the one after the
 *            other. Broadcast and reduce: the tree of the root, grown alone.
 * Invariant  Who joins a tree in step s sends its chunk on in later steps only.
 * Cost       All-gather: on meshes ceil((n-1) / least degree) steps, the least
 *            possible, one more on tori; n - 1 where ranks have one link to a
 *            fat tree. Chunks are equal, so a rank with slow links holds up
 *            all others: forest.c does not have that weakness.
 * Picture    mesh:2x2, the four trees of an all-gather; a number is a step:
 *
 *               0 -0-> 1     0 <-0- 1     0 -1-> 1     0 <-1- 1
 *               |      |     |      |     ^                   ^
 *               0      1     1      0     0                   0
 *               v      v     v      v     |                   |
 *               2      3     2      3     2 -0-> 3     2 <-0- 3
 * Next       forest.c, ../verify/contention.c. */
#include "plan/multitree_grow.h"
#include "plan/planner.h"

static const char *why_not(const tt_problem *p)
{
    if (!p->topology)
        return "it needs a topology";
    if (p->n_ranks > TT_GROW_MAX_RANKS)
        return "more ranks than it can grow trees for (2048)";
    return tt_why_no_trees(p);
}

/* Up the trees: whoever joined last sends first. */
static void collect(const tt_trees *trees, bool is_whole, tt_builder *b)
{
    for (size_t i = trees->n; i-- > 0;) {
        const tt_branch *x = &trees->list[i];
        tt_builder_rail(b, x->rail);
        tt_builder_transfer(b, trees->n_steps - 1 - x->step,
                            is_whole ? 0 : x->tree, x->child, x->parent,
                            TT_XFER_REDUCE);
    }
}

/* Down the trees, from step `first`. */
static void spread(const tt_trees *trees, bool is_whole, uint32_t first,
                   tt_builder *b)
{
    for (size_t i = 0; i < trees->n; i++) {
        const tt_branch *x = &trees->list[i];
        tt_builder_rail(b, x->rail);
        tt_builder_transfer(b, first + x->step, is_whole ? 0 : x->tree,
                            x->parent, x->child, TT_XFER_COPY);
    }
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    tutti_coll coll = p->collective;
    bool is_whole = tt_coll_has_root(coll);
    tt_grow_task task = {.p = p, .root = is_whole ? p->root : TT_NONE};
    tt_trees in = {0}, to = {0};
    tutti_err err = TUTTI_OK;
    if (tt_coll_reduces(coll)) {
        task.is_in = true;
        err = tt_grow_trees(&task, scratch, &in, diag);
    }
    if (!err && (coll == TUTTI_ALL_REDUCE || !tt_coll_reduces(coll))) {
        task.is_in = false;
        err = tt_grow_trees(&task, scratch, &to, diag);
    }
    if (err)
        return err;
    tt_plan_chunks(b, tt_chunks_by_rank(p));
    collect(&in, is_whole, b);
    spread(&to, is_whole, in.n_steps, b);
    return TUTTI_OK;
}

const tt_planner tt_planner_multitree = {
    .name = "multitree",
    .blurb = "a tree from every rank, grown together so that no link is "
             "loaded twice in a step",
    .fits = "every topology of up to 2048 ranks",
    .why_not = why_not,
    .build = build,
    .knows_rails = true,
};
