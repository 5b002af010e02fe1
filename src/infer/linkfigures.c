/* SPDX-License-Identifier: BSD-3-Clause
 * linkfigures.c - the figures of one plane: of every interface's link and of
 * every trunk, both ways, and what each rests on.
 *
 * Idea       Interfaces' rates and trunks that hold something back are the
 *            model's. The other way of a trunk that holds back only one way
 *            carries at least what has passed it, and as a rule as much.
 * Next       drawing.c. */
#include <math.h>

#include "infer/inference.h"

static void reckon_leaves(const tt_plane *p, tt_figures *f)
{
    for (uint32_t i = 0; i < p->n; i++) {
        tt_figure *both[2] = {&f->way[0][i], &f->way[1][i]};
        for (uint32_t way = 0; way < 2; way++) {
            tt_figure *w = both[way];
            w->evidence = tt_evidence_of(p, way * p->n + i);
            if (w->evidence.n_looks > 0)
                w->bps = tt_rate_of(p, way * p->n + i);
            if (w->bps > 0)
                w->kept = tt_doubt_of(p, way * p->n + i, w->bps);
            w->is_least = w->bps > 0 && !w->evidence.was_limit;
        }
        for (uint32_t way = 0; way < 2; way++) {
            if (both[way]->bps > 0 || !(both[!way]->bps > 0))
                continue;
            both[way]->is_unknown = true;
            both[way]->bps = both[!way]->bps;
        }
    }
}

/* Which cut is one way of the node's link? TT_NONE: none. */
static uint32_t cut_of(const tt_plane *p, const tt_model *m, uint32_t node,
                       bool down)
{
    uint64_t *in = p->search_set;
    tt_set_copy(in, p->tree->nodes[node].in, p->n_words);
    if (down)
        tt_set_invert(in, p->n);
    for (uint32_t c = 0; c < m->n_cuts; c++) {
        if (tt_set_same(m->cuts[c].in, in, p->n_words))
            return c;
    }
    return TT_NONE;
}

/* What all that hangs from the node can carry together. */
static double rate_below(const tt_plane *p, const tt_figure *way, uint32_t node)
{
    const tt_tree *t = p->tree;
    double sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        sum += t->leaf_node[i] == node ? way[i].bps : 0;
    for (uint32_t u = node + 1; u < t->n_nodes; u++)
        sum += t->nodes[u].parent == node ? way[p->n + u].bps : 0;
    return sum;
}

/* Of a trunk that holds something back one way only: what has passed the other
 * way, and no less than the one way, is all that is known of it, unless that is
 * about what is below it. */
static void reckon_other(const tt_plane *p, const tt_model *m, uint32_t node,
                         bool down, tt_figure *w)
{
    uint32_t cut = cut_of(p, m, node, down), back = cut_of(p, m, node, !down);
    if (cut == TT_NONE || back == TT_NONE)
        return;
    double bps = fmax(tt_rate_of(p, 2 * m->n + cut),
                      tt_rate_of(p, 2 * m->n + back));
    if (bps >= w->bps * (1 - TT_RATE_SPREAD))
        return;
    w->bps = bps;
    w->evidence = tt_evidence_of(p, 2 * m->n + cut);
}

/* Nodes come after their parents, so what is below one is known first. */
static void reckon_trunks(const tt_plane *p, const tt_model *m, tt_figures *f)
{
    for (uint32_t i = 2 * p->tree->n_nodes; i-- > 2;) {
        uint32_t v = i / 2, way = i % 2, cut = cut_of(p, m, v, way);
        tt_figure *w = &f->way[way][p->n + v];
        if (cut != TT_NONE && cut < p->best.n_cuts) {
            w->evidence = tt_evidence_of(p, 2 * m->n + cut);
            w->bps = tt_rate_of(p, 2 * m->n + cut);
            if (w->bps > 0)
                w->kept = tt_doubt_of(p, 2 * m->n + cut, w->bps);
        }
        if (w->bps <= 0) {
            w->is_least = true;
            w->bps = rate_below(p, f->way[way], v);
            reckon_other(p, m, v, way, w);
        }
    }
}

/* The other ways of trunks, too: what has passed them? */
static void add_others(tt_plane *p, tt_model *m)
{
    uint64_t *other = p->search_set;
    for (uint32_t c = 0; c < p->best.n_cuts && m->n_cuts < m->max_cuts; c++) {
        bool is_there = false;
        tt_set_copy(other, p->best.cuts[c].in, p->n_words);
        tt_set_invert(other, p->n);
        for (uint32_t k = 0; k < p->best.n_cuts; k++)
            is_there |= tt_set_same(other, p->best.cuts[k].in, p->n_words);
        if (!is_there)
            tt_model_add(m, other, (double)TT_MAX_RATE_BPS);
    }
}

/* Both ways together: a link that is the same both ways shall look so. */
static void even_rates(tt_figures *f, tt_arena *arena)
{
    double *both = tt_arena_new(arena, (size_t)2 * f->n, sizeof(*both));
    for (uint32_t i = 0; !arena->err && i < 2 * f->n; i++)
        both[i] = f->way[i / f->n][i % f->n].bps;
    if (arena->err || tt_figures_even(both, 2 * f->n, TT_RATE_SPREAD, arena))
        return;
    for (uint32_t i = 0; i < 2 * f->n; i++)
        f->way[i / f->n][i % f->n].bps = both[i];
}

tutti_err tt_link_figures(tt_plane *p, tt_arena *arena, tt_figures *f)
{
    tt_tree_build(p, &p->best);
    /* The passages shall be those of the best model, which stays as it is. */
    tt_model_copy(&p->spare, &p->best);
    add_others(p, &p->spare);
    tutti_err err = tt_fit(p, &p->spare);
    f->n = p->n + p->tree->n_nodes;
    f->way[0] = tt_arena_new(arena, f->n, sizeof(tt_figure));
    f->way[1] = tt_arena_new(arena, f->n, sizeof(tt_figure));
    f->latency_s = tt_arena_new(arena, f->n, sizeof(*f->latency_s));
    if (err || arena->err)
        return TUTTI_ENOMEM;
    reckon_leaves(p, f);
    reckon_trunks(p, &p->spare, f);
    even_rates(f, arena);
    err = tt_delays_share(p, arena, f->latency_s);
    return err ? err
               : tt_figures_even(f->latency_s, f->n, TT_LATENCY_SPREAD, arena);
}
