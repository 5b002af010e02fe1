/* SPDX-License-Identifier: BSD-3-Clause
 * cutsearch_groups.c - who behaves like whom: groups that may sit behind one
 * link.
 *
 * Idea       Three measures of how far two leaves are apart: as senders (do
 *            their flows, when held back, run at the same level?), as
 *            receivers, and by how much the flows between them fell short
 *            (those who sit together do not meet the link that holds back the
 *            others). By each measure the nearest groups are joined, again and
 *            again; every group on the way is one to start from.
 * Cost       Rounds * leaves^2.
 * Next       cutsearch.c. */
#include "infer/cutsearch.h"

#include <math.h>
#include <string.h>

enum { AS_SENDERS, AS_RECEIVERS, BETWEEN, N_MEASURES };

static const double fell_short = 0.88;
/* As far as anybody can be. */
static const double far = 0.5;
/* One was held back and the other not: perhaps it sent to a neighbour. */
static const double unlike = 0.15;

/* Levels of the senders (receivers) of a look: the mean log rate of the flows
 * that fell short; NAN: it has no flows. */
static void set_levels(tt_plane *p, const tt_look *look, int measure)
{
    tt_cutsearch *s = p->search;
    for (uint32_t v = 0; v < p->n; v++) {
        s->level[v] = NAN;
        s->n_short[v] = 0;
    }
    for (uint32_t i = look->first; i < look->first + look->n; i++) {
        const tt_flow *f = &p->looks.flows[i];
        if (isnan(f->bps))
            continue;
        uint32_t v = measure == AS_RECEIVERS ? f->dst : f->src;
        if (isnan(s->level[v]))
            s->level[v] = 0;
        if (f->bps < fell_short * p->expected[i]) {
            s->level[v] += log(f->bps);
            s->n_short[v]++;
        }
    }
    for (uint32_t v = 0; v < p->n; v++) {
        if (s->n_short[v] > 0)
            s->level[v] /= s->n_short[v];
    }
}

static void add_away(tt_cutsearch *s, uint32_t a, uint32_t b, double away)
{
    size_t n = s->n_atoms;
    if (a == TT_NONE || b == TT_NONE || a == b)
        return;
    s->away[a * n + b] += away;
    s->away[b * n + a] += away;
    s->seen[a * n + b]++;
    s->seen[b * n + a]++;
}

static void add_look(tt_plane *p, const tt_look *look, int measure)
{
    tt_cutsearch *s = p->search;
    set_levels(p, look, measure);
    for (uint32_t a = 0; a < p->n; a++) {
        if (isnan(s->level[a]))
            continue;
        for (uint32_t b = a + 1; b < p->n; b++) {
            if (isnan(s->level[b]) || s->n_short[a] + s->n_short[b] == 0)
                continue;
            double away = unlike;
            if (s->n_short[a] > 0 && s->n_short[b] > 0)
                away = fabs(s->level[a] - s->level[b]);
            add_away(s, s->atom_of[a], s->atom_of[b], away < far ? away : far);
        }
    }
}

static void measure_all(tt_plane *p, int measure)
{
    tt_cutsearch *s = p->search;
    size_t n = s->n_atoms;
    double sum = 0, count = 0;
    memset(s->seen, 0, n * n * sizeof(*s->seen));
    memset(s->away, 0, n * n * sizeof(*s->away));
    if (measure == BETWEEN) {
        for (uint32_t i = 0; i < p->looks.n_told_flows; i++) {
            const tt_flow *f = &p->looks.flows[i];
            if (!isnan(f->bps))
                add_away(s, s->atom_of[f->src], s->atom_of[f->dst],
                         -s->loss[i]);
        }
    } else {
        for (uint32_t t = 0; t < p->looks.n_told; t++)
            add_look(p, &p->looks.list[t], measure);
    }
    for (size_t i = 0; i < n * n; i++) {
        sum += s->away[i];
        count += s->seen[i];
    }
    /* Those who were not seen together are as far apart as people are. */
    double usual = count > 0 ? sum / count : far;
    for (size_t i = 0; i < n * n; i++)
        s->away[i] = (s->away[i] + 0.1 * usual) / (s->seen[i] + 0.1);
}

/* The nearest of the groups after i; none: least_away is INFINITY. */
static void set_nearest(tt_cutsearch *s, uint32_t i)
{
    uint32_t n = s->n_atoms;
    const double *row = s->away + (size_t)i * n;
    s->least_away[i] = INFINITY;
    for (uint32_t k = i + 1; k < n; k++) {
        if (s->size[k] == 0 || row[k] >= s->least_away[i])
            continue;
        s->least_away[i] = row[k];
        s->nearest[i] = k;
    }
}

/* The two groups that are nearest; false: only one is left. */
static bool find_nearest(const tt_cutsearch *s, uint32_t *a, uint32_t *b)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < s->n_atoms; i++) {
        if (s->size[i] == 0 || s->least_away[i] >= least)
            continue;
        least = s->least_away[i];
        *a = i;
        *b = s->nearest[i];
    }
    return least < INFINITY;
}

/* Rows whose nearest may have changed by joining b to a. */
static void renew_nearest(tt_cutsearch *s, uint32_t a, uint32_t b)
{
    size_t n = s->n_atoms;
    set_nearest(s, a);
    for (uint32_t k = 0; k < b; k++) {
        if (k == a || s->size[k] == 0)
            continue;
        if (s->nearest[k] == a || s->nearest[k] == b) {
            set_nearest(s, k);
        } else if (k < a && s->away[k * n + a] < s->least_away[k]) {
            s->least_away[k] = s->away[k * n + a];
            s->nearest[k] = a;
        }
    }
}

/* Group b becomes part of a; a < b. */
static void join(tt_plane *p, uint32_t a, uint32_t b)
{
    tt_cutsearch *s = p->search;
    size_t n = s->n_atoms;
    double wa = s->size[a], wb = s->size[b];
    for (uint32_t k = 0; k < n; k++) {
        double away = (wa * s->away[a * n + k] + wb * s->away[b * n + k]) /
                      (wa + wb);
        s->away[a * n + k] = s->away[k * n + a] = away;
    }
    tt_set_unite(s->groups + (size_t)a * p->n_words,
                 s->groups + (size_t)b * p->n_words, p->n_words);
    s->size[a] += s->size[b];
    s->size[b] = 0;
    renew_nearest(s, a, b);
}

static void begin_groups(tt_plane *p)
{
    tt_cutsearch *s = p->search;
    memset(s->groups, 0, (size_t)s->n_atoms * p->n_words * sizeof(*s->groups));
    for (uint32_t v = 0; v < s->n_atoms; v++) {
        s->size[v] = s->atom_first[v + 1] - s->atom_first[v];
        for (uint32_t k = s->atom_first[v]; k < s->atom_first[v + 1]; k++)
            tt_set_add(s->groups + (size_t)v * p->n_words, s->atom_leaf[k]);
    }
    for (uint32_t v = 0; v < s->n_atoms; v++)
        set_nearest(s, v);
}

void tt_cutsearch_groups(tt_plane *p,
                         void (*each)(tt_plane *, const uint64_t *))
{
    tt_cutsearch *s = p->search;
    uint64_t pairs = (uint64_t)p->n * p->n;
    for (int measure = 0; measure < N_MEASURES; measure++) {
        uint32_t a = 0, b = 0;
        measure_all(p, measure);
        begin_groups(p);
        tt_filler_work(&p->filler, pairs * (4 + p->looks.n_told / 2));
        while (find_nearest(s, &a, &b)) {
            join(p, a, b);
            each(p, s->groups + (size_t)a * p->n_words);
        }
    }
}
