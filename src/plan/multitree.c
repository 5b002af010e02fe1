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

/* Up the trees, whoever joined last sends first; or down, the film
 * backwards. */
static void show(const tt_trees *trees, bool is_whole, const tt_film *f)
{
    for (size_t i = 0; i < trees->n; i++) {
        const tt_branch *x = &trees->list[f->is_forth ? trees->n - 1 - i : i];
        tt_builder_rail(f->b, x->rail);
        tt_film_add(f, trees->n_steps - 1 - x->step, is_whole ? 0 : x->tree,
                    x->child, x->parent);
    }
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    tutti_coll coll = p->collective;
    bool is_whole = tt_coll_has_root(coll);
    const tt_film whole = tt_film_of(p, b, NULL);
    tt_grow_task task = {.p = p, .root = is_whole ? p->root : TT_NONE};
    tt_trees in = {0}, to = {0};
    tutti_err err = TUTTI_OK;
    if (whole.is_forth) {
        task.is_in = true;
        err = tt_grow_trees(&task, scratch, &in, diag);
    }
    if (!err && whole.is_back) {
        task.is_in = false;
        err = tt_grow_trees(&task, scratch, &to, diag);
    }
    if (err)
        return err;
    tt_plan_chunks(b, tt_chunks_by_rank(p));
    const tt_film up = {.b = b, .is_forth = true, .n_steps = in.n_steps};
    const tt_film down = {
        .b = b, .is_back = true, .first = in.n_steps, .n_steps = to.n_steps};
    show(&in, is_whole, &up);
    show(&to, is_whole, &down);
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
    .uses_links = true,
};
