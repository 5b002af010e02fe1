/* SPDX-License-Identifier: BSD-3-Clause
 * fit.c - what passed a model's links in each round, and how well the model
 * explains what was measured.
 *
 * Score      Flows that share a full link are seldom exactly equal; their sum
 *            is exact. So the score adds, in units of the expected error, the
 *            square of how far each flow is from its max-min rate (loosely
 *            where it shares its link) and of how far each full link's sum is
 *            from the link's rate. No single one counts for more than 25: a
 *            stray measurement must not decide.
 * Cost       A few times all rounds by maxmin.c.
 * Next       rates.c (the links' rates), cutsearch.c (which models are
 *            fitted). */
#include "infer/plane.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FITS = 4 };

static const double worst_square = 25;
/* ... and for less where a queue on the way back may be why. */
static const double worst_slowed = 8;
/* A link this full was full. */
static const double full = 0.95;
/* ... and below this it surely was not. */
static const double nearly = 0.85;

static double square(double x)
{
    return x * x;
}

/* ---------------------------------------------------------- the way back -- */

/* What waits in the queue of the link, in units of what one flow may have on
 * its way, over the link's rate. 0: nobody waits there. */
static double wait_at(const tt_plane *p, const tt_look *look, uint32_t l)
{
    const tt_filler *f = &p->filler;
    double most = 0;
    for (uint32_t u = f->first[l]; u < f->first[l + 1]; u++) {
        uint32_t i = f->users[u];
        double wait = p->looks.flows[look->first + i].part / f->bps[i];
        most = f->by[i] == l && wait > most ? wait : most;
    }
    return most;
}

/* The longest queue of the way from leaf src to leaf dst. */
static double wait_of(const tt_plane *p, const tt_model *m, uint32_t src,
                      uint32_t dst)
{
    double most = fmax(p->wait[src], p->wait[m->n + dst]);
    for (uint32_t c = 0; c < m->n_cuts; c++) {
        const uint64_t *in = m->cuts[c].in;
        if (tt_set_has(in, src) && !tt_set_has(in, dst))
            most = fmax(most, p->wait[2 * m->n + c]);
    }
    return most;
}

/* What acknowledges a flow waits in the queues of the way back, with the flows
 * that fill these: so it may be as slow as they are. Sets p->low: between that
 * and the model's rate nothing can be said against the model. Rounds that go
 * one way only tell more. */
static tutti_err set_low(tt_plane *p, const tt_model *m, const tt_look *look)
{
    const double alike = 0.9;
    const tt_filler *f = &p->filler;
    tt_arena *a = &p->arena;
    p->wait = tt_arena_grow(a, p->wait, &p->caps[9], tt_model_links(m),
                            sizeof(*p->wait));
    p->low = tt_arena_grow(a, p->low, &p->caps[10], look->n + 1,
                           sizeof(*p->low));
    if (a->err)
        return TUTTI_ENOMEM;
    for (uint32_t l = 0; l < tt_model_links(m); l++)
        p->wait[l] = p->ack > 0 ? wait_at(p, look, l) : 0;
    for (uint32_t i = 0; i < look->n; i++) {
        const tt_flow *flow = &p->looks.flows[look->first + i];
        double wait = wait_of(p, m, flow->dst, flow->src);
        double low = wait > 0 ? flow->part / wait : f->bps[i];
        p->low[i] = low < alike * f->bps[i] ? low : f->bps[i];
    }
    return TUTTI_OK;
}

static bool is_slowed(const tt_plane *p, uint32_t flow)
{
    return p->low[flow] < p->filler.bps[flow];
}

/* Does a flow use the link that may be slower? Then others may be faster. */
static bool has_slowed(const tt_plane *p, uint32_t link)
{
    const tt_filler *f = &p->filler;
    for (uint32_t u = f->first[link]; u < f->first[link + 1]; u++) {
        if (is_slowed(p, f->users[u]))
            return true;
    }
    return false;
}

/* What the model says of a flow that was measured so, as near as it can. */
static double nearest(const tt_plane *p, uint32_t flow, double bps)
{
    double most = p->filler.bps[flow];
    return bps < p->low[flow] ? p->low[flow] : bps < most ? bps : most;
}

/* -------------------------------------------------------------- passages -- */

/* What the links carry in one round, as it is filled. */
static tutti_err set_loads(tt_plane *p, const tt_model *m, uint32_t n_flows)
{
    const tt_filler *f = &p->filler;
    uint32_t n_links = tt_model_links(m);
    tt_arena *a = &p->arena;
    p->load = tt_arena_grow(a, p->load, &p->caps[4], n_links, sizeof(*p->load));
    p->n_sure = tt_arena_grow(a, p->n_sure, &p->caps[5], n_links, 4);
    p->back = tt_arena_grow(a, p->back, &p->caps[8], n_links, sizeof(*p->back));
    if (a->err)
        return TUTTI_ENOMEM;
    memset(p->load, 0, n_links * sizeof(*p->load));
    memset(p->n_sure, 0, n_links * sizeof(*p->n_sure));
    for (uint32_t l = 0; l < n_links; l++) {
        for (uint32_t u = f->first[l]; u < f->first[l + 1]; u++)
            p->load[l] += f->bps[f->users[u]];
    }
    for (uint32_t i = 0; i < n_flows; i++) {
        uint32_t n_near = 0, which = 0;
        for (uint32_t k = f->start[i]; k < f->start[i + 1]; k++) {
            uint32_t l = f->way[k];
            if (p->load[l] < nearly * *tt_model_bps(m, l))
                continue;
            n_near++;
            which = l;
        }
        if (n_near == 1 && p->load[which] >= full * *tt_model_bps(m, which))
            p->n_sure[which]++;
    }
    return TUTTI_OK;
}

/* Of a flow that has a link for itself: how it runs when it does not pause. But
 * meanwhile a link saves up, and lets pass more than it can; then the mean is
 * nearer. */
static double steady_of(const tt_flow *f)
{
    const double ahead = 1.1;
    return f->bps > ahead * f->mean_bps ? f->mean_bps : f->bps;
}

/* What passed the other way of each link in one round: its acknowledgements
 * share the link. */
static void set_back(tt_plane *p, const tt_model *m, const tt_look *look)
{
    memset(p->back, 0, tt_model_links(m) * sizeof(*p->back));
    for (uint32_t i = look->first; i < look->first + look->n && p->ack > 0;
         i++) {
        const tt_flow *f = &p->looks.flows[i];
        if (isnan(f->mean_bps))
            continue;
        p->back[f->dst] += f->mean_bps;
        p->back[m->n + f->src] += f->mean_bps;
        for (uint32_t c = 0; c < m->n_cuts; c++) {
            const uint64_t *in = m->cuts[c].in;
            if (tt_set_has(in, f->dst) && !tt_set_has(in, f->src))
                p->back[2 * m->n + c] += f->mean_bps;
        }
    }
}

/* Adds what passed each link in one round; the flows are filled. Rounds in
 * which a flow of the link was not measured say nothing about it. */
static tutti_err add_passages(tt_plane *p, const tt_model *m,
                              const tt_look *look, size_t *n)
{
    const tt_filler *f = &p->filler;
    const tt_flow *flows = p->looks.flows + look->first;
    uint32_t n_links = tt_model_links(m);
    tutti_err err = set_loads(p, m, look->n);
    if (err)
        return err;
    p->passages = tt_arena_grow(&p->arena, p->passages, &p->caps[0],
                                *n + n_links, sizeof(*p->passages));
    if (p->arena.err)
        return TUTTI_ENOMEM;
    set_back(p, m, look);
    for (uint32_t l = 0; l < n_links; l++) {
        if (f->first[l] == f->first[l + 1])
            continue;
        tt_passage *a = &p->passages[*n];
        *a = (tt_passage){.link = l,
                          .n_flows = f->first[l + 1] - f->first[l],
                          .n_sure = p->n_sure[l],
                          .load = p->load[l],
                          .bps = p->ack * p->back[l],
                          .is_lone = look->n == 1};
        for (uint32_t u = f->first[l]; u < f->first[l + 1]; u++)
            a->bps += a->n_flows == 1 ? steady_of(&flows[f->users[u]])
                                      : flows[f->users[u]].mean_bps;
        a->is_full = a->load >= full * *tt_model_bps(m, l);
        if (has_slowed(p, l)) {
            a->is_full = false;
            a->n_sure = 0;
        }
        *n += !isnan(a->bps);
    }
    return TUTTI_OK;
}

/* Sorts the passages by link into by_link, link_first. */
static tutti_err sort_passages(tt_plane *p, uint32_t n_links, size_t n)
{
    tt_arena *a = &p->arena;
    p->by_link = tt_arena_grow(a, p->by_link, &p->caps[1], n + 1, 4);
    p->link_first = tt_arena_grow(a, p->link_first, &p->caps[2], n_links + 2,
                                  4);
    p->votes = tt_arena_grow(a, p->votes, &p->caps[7], n + 1,
                             sizeof(*p->votes));
    if (a->err)
        return TUTTI_ENOMEM;
    memset(p->link_first, 0, (n_links + 2) * sizeof(*p->link_first));
    uint32_t *next = p->link_first + 1;
    for (size_t i = 0; i < n; i++)
        p->link_first[p->passages[i].link + 2]++;
    for (uint32_t l = 0; l < n_links; l++)
        next[l + 1] += next[l];
    for (size_t i = 0; i < n; i++)
        p->by_link[next[p->passages[i].link]++] = (uint32_t)i;
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- score -- */

static double capped(double z)
{
    return square(z) < worst_square ? square(z) : worst_square;
}

/* How far one round, as it is filled, is from what was measured. */
static double look_score(const tt_plane *p, tt_model *m, const tt_look *look)
{
    const tt_filler *f = &p->filler;
    const tt_flow *flows = p->looks.flows + look->first;
    double score = 0;
    double shared = sqrt(square(p->noise) + square(p->unfair));
    for (uint32_t l = 0; l < tt_model_links(m); l++) {
        double got = 0, wanted = 0, all = 0;
        uint32_t n = 0;
        bool is_free = has_slowed(p, l);
        for (uint32_t u = f->first[l]; u < f->first[l + 1]; u++) {
            uint32_t i = f->users[u];
            all += isnan(flows[i].bps) ? 0 : flows[i].mean_bps;
            if (f->by[i] != l || isnan(flows[i].bps))
                continue;
            got += flows[i].mean_bps;
            wanted += f->bps[i];
            n++;
        }
        if (is_free) {
            got = all;
            wanted = fmin(all, *tt_model_bps(m, l));
        }
        if (n == 0)
            continue;
        for (uint32_t u = f->first[l]; u < f->first[l + 1]; u++) {
            uint32_t i = f->users[u];
            if (f->by[i] != l || isnan(flows[i].bps))
                continue;
            double bps = flows[i].bps;
            double width = n == 1 ? p->noise : shared;
            double best = is_free ? fmax(bps, p->low[i]) : f->bps[i];
            double far = capped(log(bps / best) / width);
            if (bps < f->bps[i])
                far = fmax(far, fmin(capped(log(bps / f->bps[i]) / width),
                                     worst_slowed));
            score += far;
            m->n_far += far > 12;
            if (l == m->watched) {
                m->n_held++;
                m->n_near += far < 4;
            }
        }
        if (n > 1 || is_free)
            score += capped(log(got / wanted) / sqrt(square(p->noise) / n +
                                                     square(TT_COMMON_ERROR)));
    }
    return score;
}

/* Fills all rounds: the passages, the score, and, when asked, what is
 * expected of each flow. */
static tutti_err fill_all(tt_plane *p, tt_model *m, size_t *n_passages,
                          double *expected)
{
    *n_passages = 0;
    m->score = 0;
    m->n_held = m->n_near = m->n_far = 0;
    for (uint32_t t = 0; t < p->looks.n_told; t++) {
        const tt_look *look = &p->looks.list[t];
        tutti_err err = tt_maxmin(&p->filler, m, p->looks.flows + look->first,
                                  look->n);
        if (!err)
            err = set_low(p, m, look);
        if (!err && !expected)
            err = add_passages(p, m, look, n_passages);
        if (err)
            return err;
        m->score += look_score(p, m, look);
        for (uint32_t i = 0; i < look->n && expected; i++)
            expected[look->first + i] =
                nearest(p, i, p->looks.flows[look->first + i].bps);
    }
    return TUTTI_OK;
}

tutti_err tt_fit(tt_plane *p, tt_model *m)
{
    for (int i = 0; i < MAX_FITS; i++) {
        size_t n;
        tutti_err err = fill_all(p, m, &n, NULL);
        if (!err)
            err = sort_passages(p, tt_model_links(m), n);
        if (err)
            return err;
        if (i + 1 == MAX_FITS || tt_rates_set(p, m) < 0.005)
            break;
    }
    return TUTTI_OK;
}

/* How far flows that had a link for themselves are from what the model says;
 * adds them to p->residual. */
static void add_residuals(tt_plane *p, const tt_look *look, size_t *n)
{
    const tt_filler *f = &p->filler;
    for (uint32_t i = 0; i < look->n; i++) {
        uint32_t l = f->by[i], n_held = 0;
        for (uint32_t u = f->first[l]; u < f->first[l + 1]; u++)
            n_held += f->by[f->users[u]] == l;
        double got = steady_of(&p->looks.flows[look->first + i]);
        if (n_held == 1 && !isnan(got) && !is_slowed(p, i))
            p->residual[(*n)++] = fabs(log(got / f->bps[i]));
    }
}

/* Of all rounds, or of those of one flow only; how many there are. */
static tutti_err set_residuals(tt_plane *p, bool lone, size_t *n)
{
    *n = 0;
    for (uint32_t t = 0; t < p->looks.n_told; t++) {
        const tt_look *look = &p->looks.list[t];
        if (lone && look->n != 1)
            continue;
        if (tt_maxmin(&p->filler, &p->best, p->looks.flows + look->first,
                      look->n) ||
            set_low(p, &p->best, look))
            return TUTTI_ENOMEM;
        add_residuals(p, look, n);
    }
    qsort(p->residual, *n, sizeof(*p->residual), tt_compare_doubles);
    return TUTTI_OK;
}

/* Their deviation: half of normal errors are within 0.674 of it, a quarter
 * within 0.319. */
static double deviation(const tt_plane *p, double residual, double share,
                        double least)
{
    return fmin(p->noise, fmax(residual / share, least));
}

int tt_compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

tutti_err tt_fit_noise(tt_plane *p)
{
    enum { ENOUGH = 16, ENOUGH_LONE = 5 };
    size_t n;
    p->residual = tt_arena_grow(&p->arena, p->residual, &p->caps[6],
                                p->looks.n_told_flows + 1,
                                sizeof(*p->residual));
    if (p->arena.err || set_residuals(p, true, &n))
        return TUTTI_ENOMEM;
    if (n >= ENOUGH_LONE)
        /* The best quarter: where flows that share have pulled a rate away, all
         * that ran there alone would seem wrong. */
        p->lone_noise = deviation(p, p->residual[n / 4], 0.319,
                                  TT_LEAST_LONE_NOISE);
    if (set_residuals(p, false, &n))
        return TUTTI_ENOMEM;
    if (n >= ENOUGH)
        p->seen_noise = deviation(p, p->residual[n / 2], 0.674, TT_LEAST_NOISE);
    return TUTTI_OK;
}

tutti_err tt_predict(tt_plane *p, const tt_model *m)
{
    size_t n;
    p->expected = tt_arena_grow(&p->arena, p->expected, &p->caps[3],
                                p->looks.n_flows + 1, sizeof(*p->expected));
    if (p->arena.err)
        return TUTTI_ENOMEM;
    tt_model copy = *m; /* only its score changes */
    return fill_all(p, &copy, &n, p->expected);
}
