/* SPDX-License-Identifier: BSD-3-Clause
 * tree.c - the cuts of a model as a tree.
 *
 * Idea       A cut and its inverse are the two directions of one link, which
 *            parts the leaves in two. Of both parts the smaller one is put
 *            below the link. Parts that agree, taken so, are disjoint or
 *            nested: a tree, whose root is in the middle.
 * Next       rounds.c. */
#include "infer/plane.h"

#include <stdlib.h>

void tt_tree_create(tt_plane *p)
{
    tt_tree *t = p->tree = tt_arena_new(&p->arena, 1, sizeof(*t));
    if (!t)
        return;
    t->max_nodes = 2 * p->n + 3;
    t->nodes = tt_arena_new(&p->arena, t->max_nodes, sizeof(*t->nodes));
    t->leaf_node = tt_arena_new(&p->arena, p->n, 4);
    uint64_t *words = tt_arena_new(&p->arena, (size_t)t->max_nodes * p->n_words,
                                   8);
    for (uint32_t i = 0; !p->arena.err && i < t->max_nodes; i++)
        t->nodes[i].in = words + (size_t)i * p->n_words;
}

static void add_part(tt_plane *p, const tt_plane_cut *cut)
{
    tt_tree *t = p->tree;
    uint32_t n_in = tt_set_size(cut->in, p->n_words);
    bool inverse = 2 * n_in > p->n ||
                   (2 * n_in == p->n && tt_set_has(cut->in, 0));
    tt_tree_node *v = &t->nodes[t->n_nodes];
    tt_set_copy(v->in, cut->in, p->n_words);
    if (inverse)
        tt_set_invert(v->in, p->n);
    v->n_leaves = inverse ? p->n - n_in : n_in;
    v->up_bps = v->down_bps = 0;
    for (uint32_t k = 1; k < t->n_nodes; k++) {
        if (tt_set_same(t->nodes[k].in, v->in, p->n_words)) {
            v = &t->nodes[k];
            t->n_nodes--;
            break;
        }
    }
    t->n_nodes++;
    *(inverse ? &v->down_bps : &v->up_bps) = cut->bps;
}

static int by_size(const void *a, const void *b)
{
    const tt_tree_node *x = a, *y = b;
    return (x->n_leaves < y->n_leaves) - (x->n_leaves > y->n_leaves);
}

void tt_tree_build(tt_plane *p, const tt_model *m)
{
    tt_tree *t = p->tree;
    t->n_nodes = 1;
    tt_set_clear(t->nodes[0].in, p->n_words);
    tt_set_invert(t->nodes[0].in, p->n);
    t->nodes[0].n_leaves = p->n;
    t->nodes[0].parent = TT_NONE;
    t->nodes[0].up_bps = t->nodes[0].down_bps = 0;
    for (uint32_t c = 0; c < m->n_cuts; c++)
        add_part(p, &m->cuts[c]);
    qsort(t->nodes + 1, t->n_nodes - 1, sizeof(*t->nodes), by_size);
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        t->nodes[v].n_kids = 0;
        for (uint32_t u = 0; u < v; u++) {
            if (tt_set_is_within(t->nodes[v].in, t->nodes[u].in, p->n_words))
                t->nodes[v].parent = u; /* the last is the smallest */
        }
        if (v > 0)
            t->nodes[t->nodes[v].parent].n_kids++;
        for (uint32_t i = 0; i < p->n; i++) {
            if (tt_set_has(t->nodes[v].in, i))
                t->leaf_node[i] = v;
        }
    }
    for (uint32_t i = 0; i < p->n; i++)
        t->nodes[t->leaf_node[i]].n_kids++;
}
