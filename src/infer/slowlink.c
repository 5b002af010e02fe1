/* SPDX-License-Identifier: BSD-3-Clause
 * slowlink.c - which link is slower than it was described? From how fast the
 * paths between pairs of ranks have been while something was on its way there.
 *
 * Idea       Where one link is slower than it was described, what waits, waits
 *            there: its connections are busy all the time, and all others only
 *            for moments. A connection's pace is compared with the slowest link
 *            of its route; those nearer to the slowest of all than to the
 *            fastest are slow, the others well. Acknowledgements wait in the
 *            same queue, so what passes a link the other way is slow too: both
 *            directions are one suspect, and ways there and back are taken for
 *            the same. It is the link with most slow pairs,
 *            each that is well counting against it twice.
 * Rate       What its slow pairs have sent together, if that has kept it busy,
 *            or a little more: as the calls were slower than planned;
 *            of one that was thought slower than described: what the fastest of
 *            its pairs has shown that it carries.
 * Limits     With one slow link at a time. Of links that always occur together,
 *            as in a job of two hosts, all are meant.
 * Equal      Ranks decide by this, each on its own: nothing here may depend on
 *            more than the arguments, nor on functions that libraries round in
 *            their own way.
 * Next       drift/drift.c (who observes and asks). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "infer/infer.h"

#define MOST_NAMED 3
/* Paces less far apart than this say nothing. */
#define LEAST_SPREAD 1.5
/* For less of the time a link was not what its pairs have waited for. */
#define LEAST_SHARE 0.45
/* Of the pace of a flow that waits for a link: what was saved up in a pause
 * passes at once. */
#define STEADY 0.96
/* A rate that is nearer to the one planned for is none to plan anew for. */
#define LEAST_LOSS 0.87
/* What a link must have carried to be faster; bursts are, for moments. */
#define LEAST_GAIN 1.3
/* Flows that wait for a link at the same time are busy for longer; if they are
 * not, each has shown what it alone carries, and more so all together. */
#define IDLE_SHARE 0.65
/* So much of the rate that was described, and it is that. */
#define RESTORED 0.7
/* Two changes are the same if their rates differ by no more. */
#define SAME 2.0

typedef struct finder {
    tt_arena arena;
    const tutti_topology *t;
    const tt_routes *routes;
    const tt_pair_pace *pairs;
    uint32_t n;
    double *pace;    /* [n] of what its route should carry */
    int32_t *score;  /* [n_links]; of a link with a twin: of the lower one */
    uint32_t *links; /* of one route */
    double limit;    /* slower is slow */
    bool were_quick; /* no call took longer than planned */
    double kept;     /* predicted time, over that which calls took */
} finder;

static uint32_t both_ways(const tutti_topology *t, uint32_t link)
{
    uint32_t twin = t->links[link].twin;
    return twin < link ? twin : link;
}

/* What the slowest link of the route carries, in bytes. */
static double route_rate(finder *f, const tt_pair_pace *p)
{
    double least = INFINITY;
    uint32_t n = tt_route(f->routes, p->from, p->to, p->rail, f->links);
    for (uint32_t i = 0; i < n; i++)
        least = fmin(least, tt_link_bytes_per_s(&f->t->links[f->links[i]]));
    return least;
}

/* False: nothing stands out. */
static bool find_limit(finder *f)
{
    double least = INFINITY, most = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        f->pace[i] = (double)f->pairs[i].bytes_per_s /
                     route_rate(f, &f->pairs[i]);
        least = fmin(least, f->pace[i]);
        most = fmax(most, f->pace[i]);
    }
    f->limit = sqrt(least * most);
    return f->n > 0 && most >= LEAST_SPREAD * least;
}

static void add_route(finder *f, uint32_t pair)
{
    const tt_pair_pace *p = &f->pairs[pair];
    uint32_t n = tt_route(f->routes, p->from, p->to, p->rail, f->links);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t link = both_ways(f->t, f->links[i]);
        if (!f->t->links[link].is_memory)
            f->score[link] += f->pace[pair] < f->limit ? 1 : -2;
    }
}

/* Returns its length; 0, and nothing is put: there is no room. */
static size_t put_link(const tutti_topology *t, uint32_t number, char *out,
                       size_t size)
{
    const tt_link *link = &t->links[number];
    const char *dev = link->dev;
    if (!dev && link->twin != TT_NONE)
        dev = t->links[link->twin].dev;
    int n = snprintf(out, size, "%.60s - %.60s%s%.15s%s",
                     t->nodes[link->from].name, t->nodes[link->to].name,
                     dev ? " (" : "", dev ? dev : "", dev ? ")" : "");
    if (n > 0 && (size_t)n < size)
        return (size_t)n;
    out[0] = '\0';
    return 0;
}

/* The slowest pair. */
static const tt_pair_pace *slowest(const finder *f)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < f->n; i++)
        at = f->pace[i] < f->pace[at] ? i : at;
    return &f->pairs[at];
}

static void name_links(const finder *f, int32_t best, char *out, size_t size)
{
    char tail[80];
    const tt_pair_pace *p = slowest(f);
    uint32_t n = 0, n_best = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < f->t->n_links; i++)
        n_best += f->score[i] == best;
    snprintf(tail, sizeof(tail), ": rank %u sent to rank %u at %.3g Mbit/s",
             p->from, p->to, (double)p->bytes_per_s * 8e-6);
    used = (size_t)snprintf(out, size, "the link%s suspected %s ",
                            n_best > 1 ? "s" : "", n_best > 1 ? "are" : "is");
    /* What has to come after the names has its room. */
    size_t most = size - strlen(tail) - strlen(", and 4294967295 more");
    for (uint32_t i = 0; i < f->t->n_links && n < MOST_NAMED; i++) {
        if (f->score[i] != best)
            continue;
        const char *comma = n > 0 ? ", " : "";
        if (used + strlen(comma) >= most)
            break;
        size_t len = put_link(f->t, i, out + used + strlen(comma),
                              most - used - strlen(comma));
        if (len == 0)
            break;
        memcpy(out + used, comma, strlen(comma));
        used += strlen(comma) + len;
        n++;
    }
    if (n_best > n)
        used += (size_t)snprintf(out + used, size - used, "%s%u more",
                                 n > 0 ? " and " : "", n_best - n);
    snprintf(out + used, size - used, "%s", tail);
}

static int32_t best_score(const finder *f)
{
    int32_t best = 0;
    for (uint32_t i = 0; i < f->t->n_links; i++)
        best = f->score[i] > best ? f->score[i] : best;
    return best;
}

static tutti_err begin(const tt_paces *p, finder *f)
{
    *f = (finder){.arena = {.mem = &tt_mem_std},
                  .t = p->t,
                  .routes = p->routes,
                  .pairs = p->pairs,
                  .n = p->n};
    f->pace = tt_arena_new(&f->arena, p->n + 1, sizeof(double));
    f->score = tt_arena_new(&f->arena, p->t->n_links, sizeof(int32_t));
    f->links = tt_arena_new(&f->arena, tt_routes_max_links(p->routes),
                            sizeof(uint32_t));
    if (!f->arena.err && find_limit(f)) {
        for (uint32_t i = 0; i < f->n; i++)
            add_route(f, i);
    }
    return f->arena.err;
}

tutti_err tt_infer_slow_link(const tt_paces *p, char *out, size_t size)
{
    finder f;
    out[0] = '\0';
    tutti_err err = begin(p, &f);
    int32_t best = err ? 0 : best_score(&f);
    if (best > 0)
        name_links(&f, best, out, size);
    tt_arena_free(&f.arena);
    return err;
}

/* ----------------------------------------------------------------- rates -- */

/* Of the pairs of a direction. */
typedef struct flow {
    double sent, share, pace; /* together */
    double fastest;
    uint32_t n;
} flow;

static bool passes(finder *f, const tt_pair_pace *p, uint32_t link)
{
    uint32_t n = tt_route(f->routes, p->from, p->to, p->rail, f->links);
    for (uint32_t i = 0; i < n; i++)
        if (f->links[i] == link)
            return true;
    return false;
}

static flow flow_over(finder *f, uint32_t link, bool slow_only)
{
    flow out = {0};
    for (uint32_t i = 0; i < f->n; i++) {
        const tt_pair_pace *p = &f->pairs[i];
        if ((slow_only && f->pace[i] >= f->limit) || !passes(f, p, link))
            continue;
        out.sent += (double)p->bytes_per_s * (double)p->share;
        out.share += (double)p->share;
        out.pace += (double)p->bytes_per_s;
        out.n++;
        out.fastest = fmax(out.fastest, (double)p->bytes_per_s);
    }
    return out;
}

/* Of payload, with what headers take. */
static uint64_t link_bps(double bytes_per_s)
{
    double bps = bytes_per_s * 8 * TT_TCP_PACKET / TT_TCP_PAYLOAD;
    return bps < 1 ? 1 : bps > 0x1p62 ? UINT64_C(1) << 62 : (uint64_t)bps;
}

/* What it carries now; its rate where nothing tells. */
static uint64_t slower_bps(finder *f, uint32_t link)
{
    uint64_t was = f->t->links[link].rate_bps;
    flow over = flow_over(f, link, true);
    if (over.share < LEAST_SHARE)
        return was;
    uint64_t now = link_bps(fmax(over.sent, STEADY * over.fastest));
    /* If it was busy all the time it is as slow as the calls were. */
    uint64_t least = link_bps(over.sent);
    uint64_t as_calls = (uint64_t)((double)was * f->kept);
    if (now > as_calls)
        now = as_calls > least ? as_calls : least;
    return (double)now < LEAST_LOSS * (double)was ? now : was;
}

static uint64_t faster_bps(finder *f, uint32_t link, uint64_t described)
{
    uint64_t was = f->t->links[link].rate_bps;
    if (was >= described)
        return was;
    flow over = flow_over(f, link, false);
    bool is_idle = f->were_quick && over.share < IDLE_SHARE * over.n;
    uint64_t now = link_bps(is_idle ? over.pace : over.fastest);
    if ((double)now < LEAST_GAIN * (double)was)
        return was;
    return (double)now < RESTORED * (double)described ? now : described;
}

/* described_bps NULL: slower ones. False: too many. */
static bool add_change(finder *f, uint32_t link, const uint64_t *described_bps,
                       tt_link_change *out)
{
    const uint32_t ends[2] = {link, f->t->links[link].twin};
    uint64_t bps[2] = {0, 0};
    bool is_change = false;
    for (int i = 0; i < 2 && ends[i] != TT_NONE; i++) {
        bps[i] = described_bps ? faster_bps(f, ends[i], described_bps[ends[i]])
                               : slower_bps(f, ends[i]);
        is_change |= bps[i] != f->t->links[ends[i]].rate_bps;
    }
    if (!is_change)
        return true;
    if (out->n == TT_CHANGED_LINKS)
        return false;
    out->links[out->n].link = link;
    memcpy(out->links[out->n++].bps, bps, sizeof(bps));
    return true;
}

tutti_err tt_infer_slower_links(const tt_paces *p, double kept,
                                tt_link_change *out)
{
    finder f;
    *out = (tt_link_change){0};
    tutti_err err = begin(p, &f);
    f.kept = kept;
    int32_t best = err ? 0 : best_score(&f);
    for (uint32_t i = 0; best > 0 && i < p->t->n_links; i++)
        if (f.score[i] == best && !add_change(&f, i, NULL, out))
            best = out->n = 0;
    tt_arena_free(&f.arena);
    return err;
}

/* A cable that carries more one way does so both ways, as it was described. */
static void restore_twins(const tutti_topology *t,
                          const uint64_t *described_bps, tt_link_change *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t link = c->links[i].link, twin = t->links[link].twin;
        uint64_t *bps = c->links[i].bps;
        if (twin == TT_NONE)
            continue;
        if (bps[0] == described_bps[link])
            bps[1] = described_bps[twin];
        else if (bps[1] == described_bps[twin])
            bps[0] = described_bps[link];
    }
}

tutti_err tt_infer_faster_links(const tt_paces *p, bool were_quick,
                                const uint64_t *described_bps,
                                tt_link_change *out)
{
    finder f;
    bool has_room = true;
    *out = (tt_link_change){.are_faster = true};
    tutti_err err = begin(p, &f);
    f.were_quick = were_quick;
    for (uint32_t i = 0; !err && has_room && i < p->t->n_links; i++)
        if (both_ways(p->t, i) == i && !p->t->links[i].is_memory)
            has_room = add_change(&f, i, described_bps, out);
    restore_twins(p->t, described_bps, out);
    tt_arena_free(&f.arena);
    return err;
}

static bool is_near(uint64_t a, uint64_t b)
{
    return (double)a <= SAME * (double)b && (double)b <= SAME * (double)a;
}

bool tt_infer_is_same_change(const tt_link_change *a, const tt_link_change *b)
{
    bool is = a->n == b->n && a->are_faster == b->are_faster;
    for (uint32_t i = 0; is && i < a->n; i++)
        is = a->links[i].link == b->links[i].link &&
             is_near(a->links[i].bps[0], b->links[i].bps[0]) &&
             is_near(a->links[i].bps[1], b->links[i].bps[1]);
    return is;
}

void tt_infer_change_text(const tutti_topology *t, const tt_link_change *c,
                          char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < c->n && used < size; i++) {
        char name[160];
        uint32_t link = c->links[i].link, twin = t->links[link].twin;
        const uint64_t *bps = c->links[i].bps;
        bool is_back = bps[0] == t->links[link].rate_bps && twin != TT_NONE;
        put_link(t, link, name, sizeof(name));
        int n = snprintf(
            out + used, size - used,
            "%s%s carries %.3g Mbit/s instead of %.3g Mbit/s",
            i > 0 ? ", " : "the link ", name, (double)bps[is_back] * 1e-6,
            (double)t->links[is_back ? twin : link].rate_bps * 1e-6);
        used += n > 0 ? (size_t)n : 0;
    }
}
