/* SPDX-License-Identifier: BSD-3-Clause
 * cutsearch_gain.c - how well would one more cut explain what was measured? In
 * microseconds, so that thousands of sets can be tried.
 *
 * Idea       In each round the flows that cross the cut are added up, as
 *            measured and as the present model expects them. If the cut were
 *            a link of rate C, the sum would be C wherever more is expected;
 *            and each flow would fall short by about as much as the sum does.
 *            The gain is by how much that is nearer to what was measured than
 *            the model without the link. It is only a guess (nobody else gets
 *            what these flows lose), so the best sets are then fitted in
 *            earnest.
 *            Sums alone (mode 0) find links which several others feed; with
 *            the flows one by one (mode 1) it also counts who was not slowed
 *            down, which parts groups that are all alike.
 * Cost       Rounds, for a set; its leaves' flows, to flip some.
 * Next       cutsearch.c. */
#include "infer/cutsearch.h"

#include <math.h>
#include <string.h>

/* A sum is seldom nearer to what the rest of a wrong model makes of it. */
static const double rough = 0.04;
/* No round decides alone. */
static const double worst_square = 36;
/* What falls short by less is noise. */
static const double fell_short = 0.85;

/* log(x) to 1e-4, x > 0 and normal. */
static double quick_log(double x)
{
    union {
        double value;
        uint64_t bits;
    } u = {.value = x};
    int exponent = (int)(u.bits >> 52) - 1023;
    u.bits = (u.bits & UINT64_C(0xfffffffffffff)) | UINT64_C(1023) << 52;
    /* log(m) = 2 atanh(z), z = (m - 1) / (m + 1) <= 1/3 */
    double z = (u.value - 1) / (u.value + 1), zz = z * z;
    double series = 2 * z * (1 + zz * (1. / 3 + zz * (1. / 5 + zz / 7)));
    return exponent * 0.69314718055994531 + series;
}

/* ------------------------------------------------------------------- sums */

tutti_err tt_cutsearch_prepare(tt_plane *p)
{
    tt_cutsearch *s = p->search;
    uint32_t n_flows = p->looks.n_flows, n_looks = p->looks.n_told;
    tt_arena *a = &p->arena;
    s->look_of = tt_arena_grow(a, s->look_of, &s->caps[0], n_flows + 1, 4);
    s->mine = tt_arena_grow(a, s->mine, &s->caps[1], (size_t)2 * n_flows + 1,
                            sizeof(*s->mine));
    s->loss = tt_arena_grow(a, s->loss, &s->caps[2], n_flows + 1,
                            sizeof(*s->loss));
    s->sums = tt_arena_grow(a, s->sums, &s->caps[3], n_looks + 1,
                            sizeof(*s->sums));
    if (a->err)
        return TUTTI_ENOMEM;
    memset(s->first, 0, ((size_t)p->n + 2) * sizeof(*s->first));
    for (uint32_t t = 0; t < n_looks; t++) {
        const tt_look *l = &p->looks.list[t];
        for (uint32_t i = l->first; i < l->first + l->n; i++)
            s->look_of[i] = t;
    }
    /* Flows of looks that are told come first. */
    n_flows = p->looks.n_told_flows;
    uint32_t *next = s->first + 1;
    for (uint32_t i = 0; i < n_flows; i++) {
        const tt_flow *f = &p->looks.flows[i];
        if (isnan(f->bps))
            continue;
        next[f->src + 1]++;
        next[f->dst + 1]++;
    }
    for (uint32_t v = 0; v < p->n; v++)
        next[v + 1] += next[v];
    for (uint32_t i = 0; i < n_flows; i++) {
        const tt_flow *f = &p->looks.flows[i];
        if (isnan(f->bps))
            continue;
        s->mine[next[f->src]++] = i;
        s->mine[next[f->dst]++] = i;
    }
    return TUTTI_OK;
}

void tt_cutsearch_expect(tt_plane *p)
{
    tt_cutsearch *s = p->search;
    for (uint32_t i = 0; i < p->looks.n_told_flows; i++) {
        double bps = p->looks.flows[i].bps;
        double loss = isnan(bps) ? 0 : quick_log(bps / p->expected[i]);
        s->loss[i] = loss < -1 ? -1 : loss > 0.2 ? 0.2 : loss;
    }
}

void tt_cutsearch_start(tt_plane *p, const uint64_t *in)
{
    tt_cutsearch *s = p->search;
    p->filler.work += p->looks.n_told_flows;
    for (uint32_t t = 0; t < p->looks.n_told; t++) {
        const tt_look *l = &p->looks.list[t];
        tt_sum *sum = &s->sums[t];
        *sum = (tt_sum){0};
        for (uint32_t i = l->first; i < l->first + l->n; i++) {
            const tt_flow *f = &p->looks.flows[i];
            if (!tt_set_has(in, f->src) || tt_set_has(in, f->dst) ||
                isnan(f->bps))
                continue;
            sum->got += f->bps;
            sum->wanted += p->expected[i];
            sum->loss += s->loss[i];
            sum->n++;
        }
    }
}

void tt_cutsearch_flip(tt_plane *p, uint64_t *in, uint32_t leaf)
{
    tt_cutsearch *s = p->search;
    bool was_in = tt_set_has(in, leaf);
    p->filler.work += s->first[leaf + 1] - s->first[leaf];
    for (uint32_t k = s->first[leaf]; k < s->first[leaf + 1]; k++) {
        uint32_t i = s->mine[k];
        const tt_flow *f = &p->looks.flows[i];
        tt_sum *sum = &s->sums[s->look_of[i]];
        /* With the leaf within, its flows to those without cross; with it
         * without, the flows of those within to it. */
        bool outward = f->src == leaf;
        if (outward == tt_set_has(in, outward ? f->dst : f->src))
            continue;
        double sign = outward == was_in ? -1 : 1;
        sum->got += sign * f->bps;
        sum->wanted += sign * p->expected[i];
        sum->loss += sign * s->loss[i];
        sum->n += outward == was_in ? (uint32_t)-1 : 1;
    }
    tt_set_flip(in, leaf);
}

/* ------------------------------------------------------------------- gain */

static double gain_at(const tt_plane *p, double bps, int mode)
{
    const tt_cutsearch *s = p->search;
    double gain = 0, noise = p->noise * p->noise;
    double each = noise + p->unfair * p->unfair;
    for (uint32_t t = 0; t < p->looks.n_told; t++) {
        const tt_sum *sum = &s->sums[t];
        if (sum->n == 0 || sum->wanted <= bps)
            continue; /* the link would make no difference */
        double err = rough * rough + noise / sum->n;
        double rho = quick_log(bps / sum->wanted);
        double before = quick_log(sum->got / sum->wanted);
        double after = (before - rho) * (before - rho) / err;
        before *= before / err;
        gain += (before < worst_square ? before : worst_square) -
                (after < worst_square ? after : worst_square);
        if (mode == 1)
            gain += (2 * rho * sum->loss - sum->n * rho * rho) / each;
    }
    return gain;
}

/* A rate for the cut: where the sums that fell short accumulate, from the top
 * or from the middle. 0: none did. */
static double rate_near(const tt_plane *p, bool from_top)
{
    const tt_cutsearch *s = p->search;
    double top = 0, low = INFINITY;
    for (uint32_t t = 0; t < p->looks.n_told; t++) {
        const tt_sum *sum = &s->sums[t];
        if (sum->n == 0 || sum->got > fell_short * sum->wanted)
            continue;
        top = sum->got > top ? sum->got : top;
        low = sum->got < low ? sum->got : low;
    }
    if (top <= 0)
        return 0;
    double rate = from_top ? top : sqrt(top * low);
    for (int i = 0; i < 4; i++) {
        double total = 0;
        uint32_t n = 0;
        for (uint32_t t = 0; t < p->looks.n_told; t++) {
            const tt_sum *sum = &s->sums[t];
            if (sum->n == 0 || sum->got > fell_short * sum->wanted ||
                sum->got < 0.8 * rate || sum->got > 1.25 * rate)
                continue;
            total += sum->got;
            n++;
        }
        if (n == 0 || fabs(total / n - rate) < 1e-3 * rate)
            break;
        rate = total / n;
    }
    return rate;
}

double tt_cutsearch_gain(tt_plane *p, int mode, double *bps)
{
    double best = 0;
    *bps = 0;
    tt_filler_work(&p->filler, (uint64_t)16 * p->looks.n_told);
    for (int from_top = 0; from_top < 2; from_top++) {
        double rate = rate_near(p, from_top);
        if (rate <= 0)
            return 0;
        double gain = gain_at(p, rate, mode);
        if (gain > best || *bps <= 0) {
            best = gain;
            *bps = rate;
        }
    }
    return best;
}
