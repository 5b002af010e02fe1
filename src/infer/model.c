/* SPDX-License-Identifier: BSD-3-Clause
 * model.c - models and their cuts; see plane.h. */
#include "infer/plane.h"

#include <math.h>
#include <string.h>

void tt_model_create(tt_model *m, uint32_t n, tt_arena *arena)
{
    *m = (tt_model){.n = n, .n_words = (n + 63) / 64, .max_cuts = 2 * n + 2};
    m->leaf_bps = tt_arena_new(arena, (size_t)2 * n, sizeof(double));
    m->cuts = tt_arena_new(arena, m->max_cuts, sizeof(tt_plane_cut));
    uint64_t *words = tt_arena_new(arena, (size_t)m->max_cuts * m->n_words,
                                   sizeof(*words));
    if (arena->err)
        return;
    for (uint32_t i = 0; i < m->max_cuts; i++)
        m->cuts[i].in = words + (size_t)i * m->n_words;
    for (uint32_t i = 0; i < 2 * n; i++)
        m->leaf_bps[i] = (double)TT_MAX_RATE_BPS;
}

static void set_cut(tt_model *m, uint32_t c, const tt_plane_cut *from)
{
    tt_set_copy(m->cuts[c].in, from->in, m->n_words);
    m->cuts[c].bps = from->bps;
}

void tt_model_copy(tt_model *to, const tt_model *from)
{
    memcpy(to->leaf_bps, from->leaf_bps, (size_t)2 * from->n * sizeof(double));
    for (uint32_t c = 0; c < from->n_cuts; c++)
        set_cut(to, c, &from->cuts[c]);
    to->n_cuts = from->n_cuts;
    to->score = from->score;
    to->n_far = from->n_far;
}

void tt_model_add(tt_model *m, const uint64_t *in, double bps)
{
    tt_set_copy(m->cuts[m->n_cuts].in, in, m->n_words);
    m->cuts[m->n_cuts++].bps = bps;
}

void tt_model_drop(tt_model *m, uint32_t cut)
{
    for (uint32_t c = cut; c + 1 < m->n_cuts; c++)
        set_cut(m, c, &m->cuts[c + 1]);
    m->n_cuts--;
}

bool tt_cuts_agree(const tt_model *m, const uint64_t *a, const uint64_t *b)
{
    /* One of the four ways to be in or out of both has nobody. */
    bool seen[4] = {false};
    for (uint32_t i = 0; i < m->n; i++)
        seen[2 * tt_set_has(a, i) + tt_set_has(b, i)] = true;
    return !(seen[0] && seen[1] && seen[2] && seen[3]);
}
