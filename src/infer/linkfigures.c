/* SPDX-License-Identifier: BSD-3-Clause
 * linkfigures.c - the figures of one plane: of every interface's link and of every
 * trunk, both ways, and what each rests on.
 *
 * Idea       Interfaces' rates and trunks that hold something back are the
 *            model's. The other way of a trunk that holds back only one way
 *            carries at least what is below it: so that is its figure.
 * Next       drawing.c. */
#include <math.h>
#include <string.h>

#include "infer/inference.h"

static tutti_err make(const tt_plane *p, tt_figures *f)
{
    size_t n = p->n + p->tree->n_nodes;
    f->n = (uint32_t)n;
    f->arena.mem = p->mem;
    f->up_bps = tt_arena_new(&f->arena, n, sizeof(*f->up_bps));
    f->down_bps = tt_arena_new(&f->arena, n, sizeof(*f->down_bps));
    f->latency_s = tt_arena_new(&f->arena, n, sizeof(*f->latency_s));
    f->doubt = tt_arena_new(&f->arena, n, sizeof(*f->doubt));
    f->up = tt_arena_new(&f->arena, n, sizeof(*f->up));
    f->down = tt_arena_new(&f->arena, n, sizeof(*f->down));
    if (!f->up_bps || !f->down_bps || !f->latency_s || !f->doubt || !f->up ||
        !f->down)
        return TUTTI_ENOMEM;
    return TUTTI_OK;
}

/* One way of a leaf's link. */
static double leaf_rate(const tt_plane *p, uint32_t link, tt_evidence *e)
{
    *e = tt_evidence_of(p, link);
    return e->n_looks > 0 ? tt_rate_of(p, link) : 0;
}

static void reckon_leaves(const tt_plane *p, tt_figures *f)
{
    for (uint32_t i = 0; i < p->n; i++) {
        f->up_bps[i] = leaf_rate(p, i, &f->up[i]);
        f->down_bps[i] = leaf_rate(p, p->n + i, &f->down[i]);
        bool any_up = f->up_bps[i] > 0, any_down = f->down_bps[i] > 0;
        if (any_up && !f->up[i].was_limit)
            f->doubt[i] |= TT_UP_LEAST;
        if (any_down && !f->down[i].was_limit)
            f->doubt[i] |= TT_DOWN_LEAST;
        if (any_up && !any_down) {
            f->doubt[i] |= TT_DOWN_UNKNOWN;
            f->down_bps[i] = f->up_bps[i];
        } else if (any_down && !any_up) {
            f->doubt[i] |= TT_UP_UNKNOWN;
            f->up_bps[i] = f->down_bps[i];
        }
    }
}

/* Which cut is one way of the node's link? TT_NONE: none. */
static uint32_t cut_of(const tt_plane *p, const tt_model *m, uint32_t node,
                       bool down)
{
    const uint64_t *below = p->tree->nodes[node].in;
    for (uint32_t c = 0; c < m->n_cuts; c++) {
        bool same = true;
        for (uint32_t i = 0; i < p->n && same; i++)
            same = tt_set_has(m->cuts[c].in, i) ==
                   (tt_set_has(below, i) != down);
        if (same)
            return c;
    }
    return TT_NONE;
}

static double trunk_rate(const tt_plane *p, const tt_model *m, uint32_t cut,
                         tt_evidence *e)
{
    if (cut == TT_NONE)
        return 0;
    *e = tt_evidence_of(p, 2 * m->n + cut);
    return tt_rate_of(p, 2 * m->n + cut);
}

/* Nodes come after their parents, so what is below one is known first. */
static void reckon_trunks(const tt_plane *p, const tt_model *m, tt_figures *f)
{
    const tt_tree *t = p->tree;
    for (uint32_t v = t->n_nodes; v-- > 1;) {
        uint32_t at = p->n + v;
        double up = 0, down = 0;
        for (uint32_t i = 0; i < p->n; i++) {
            up += t->leaf_node[i] == v ? f->up_bps[i] : 0;
            down += t->leaf_node[i] == v ? f->down_bps[i] : 0;
        }
        for (uint32_t u = v + 1; u < t->n_nodes; u++) {
            up += t->nodes[u].parent == v ? f->up_bps[p->n + u] : 0;
            down += t->nodes[u].parent == v ? f->down_bps[p->n + u] : 0;
        }
        f->up_bps[at] = trunk_rate(p, m, cut_of(p, m, v, false), &f->up[at]);
        f->down_bps[at] = trunk_rate(p, m, cut_of(p, m, v, true), &f->down[at]);
        if (f->up_bps[at] <= 0) {
            f->doubt[at] |= TT_UP_LEAST;
            f->up_bps[at] = up;
        }
        if (f->down_bps[at] <= 0) {
            f->doubt[at] |= TT_DOWN_LEAST;
            f->down_bps[at] = down;
        }
    }
}

/* Both ways together: a link that is the same both ways shall look so. */
static tutti_err even_rates(const tt_plane *p, tt_figures *f)
{
    double *both = tt_new(p->mem, (size_t)2 * f->n, sizeof(*both));
    if (!both)
        return TUTTI_ENOMEM;
    memcpy(both, f->up_bps, f->n * sizeof(*both));
    memcpy(both + f->n, f->down_bps, f->n * sizeof(*both));
    tutti_err err = tt_figures_even(both, 2 * f->n, TT_RATE_SPREAD, p->mem);
    memcpy(f->up_bps, both, f->n * sizeof(*both));
    memcpy(f->down_bps, both + f->n, f->n * sizeof(*both));
    tt_free(p->mem, both, (size_t)2 * f->n, sizeof(*both));
    return err;
}

tutti_err tt_link_figures(tt_plane *p, tt_figures *f)
{
    *f = (tt_figures){0};
    tt_tree_build(p, &p->best);
    /* The passages shall be those of the best model, which stays as it is. */
    tt_model_copy(&p->spare, &p->best);
    tutti_err err = tt_fit(p, &p->spare);
    if (!err)
        err = make(p, f);
    if (err)
        return err;
    reckon_leaves(p, f);
    reckon_trunks(p, &p->spare, f);
    err = even_rates(p, f);
    if (!err)
        err = tt_delays_share(p, f->latency_s);
    if (!err)
        err = tt_figures_even(f->latency_s, f->n, TT_LATENCY_SPREAD, p->mem);
    return err;
}

void tt_figures_free(tt_figures *f)
{
    tt_arena_free(&f->arena);
}
