/* SPDX-License-Identifier: BSD-3-Clause
 * stripe.c - uses all network cards of a pair of ranks, for planners that know
 * only one way between two ranks.
 *
 * Idea       Where routes between two ranks leave and enter their hosts by
 *            different links, each is a plane; the planes of a pair are
 *            numbered from the fastest, and share no link of either host. Every
 *            chunk is cut into one piece per plane, as large as what the plane
 *            carries, and the piece's transfers take the rails of that plane.
 *            The pieces do not wait for each other, as chunks never do.
 * Shares     What counts is the slowest pair: a piece passes many. Two cards of
 *            400 and 100 Mbit in every host make four fifths and a fifth.
 * Small      A piece costs a message as a chunk does, so the plan that leaves
 *            all on the fastest plane is predicted too, and wins where they are
 *            equal.
 * Who knows  Planners that choose rails themselves (knows_rails: forest,
 *            multitree) have no need of it.
 * Next       predict.c, docs/reference/topology.md (rails). */
#include "plan/planner.h"

#include <string.h>

/* A table of pairs is kept. */
enum { MAX_PLANES = 8, MOST_RANKS = 4096 };

/* Slower planes cost more messages than they save. */
static const uint64_t least_fraction = 50;
/* Shares are told in so many parts, when their own ratio needs more. */
static const uint64_t most_shares = 64, fine_shares = 1000;

typedef struct plane {
    uint32_t first, last; /* links between hosts: out of one, into another */
    uint64_t bps, latency_ps;
    uint8_t rail;
} plane;

typedef struct pair {
    bool is_known;
    uint8_t n_planes;
    uint8_t rail[MAX_PLANES];
} pair;

typedef struct work {
    const tt_problem *p;
    const tutti_schedule *from;
    const tt_mem *mem;
    tt_arena arena;
    uint32_t *links;
    pair *pairs;       /* [n_ranks * n_ranks] those that the schedule uses */
    bool has_several;  /* some pair has several */
    uint32_t n_planes; /* most of any pair */
    uint64_t bps[MAX_PLANES];   /* of the slowest pair that has it */
    uint64_t share[MAX_PLANES]; /* parts of n_shares */
    uint64_t n_shares;
} work;

static plane read_plane(const work *w, uint32_t src, uint32_t dst, uint8_t rail)
{
    const tutti_topology *t = w->p->topology;
    uint32_t n = tt_route(w->p->routes, src, dst, rail, w->links);
    plane out = {.first = TT_NONE, .bps = UINT64_MAX, .rail = rail};
    for (uint32_t i = 0; i < n; i++) {
        const tt_link *link = &t->links[w->links[i]];
        if (tt_node_host(t, link->from) == tt_node_host(t, link->to))
            continue; /* inside a host */
        if (out.first == TT_NONE)
            out.first = w->links[i];
        out.last = w->links[i];
        out.bps = link->rate_bps < out.bps ? link->rate_bps : out.bps;
        out.latency_ps += link->latency_ps;
    }
    return out;
}

static bool is_before(const plane *a, const plane *b)
{
    if (a->bps != b->bps)
        return a->bps > b->bps;
    if (a->latency_ps != b->latency_ps)
        return a->latency_ps < b->latency_ps;
    return a->first != b->first ? a->first < b->first : a->last < b->last;
}

/* Of the rails of one plane the first stays: what it shares with others inside
 * the network is the rule of the routes. */
static uint32_t add_plane(plane *planes, uint32_t n, const plane *next)
{
    for (uint32_t i = 0; i < n; i++)
        if (planes[i].first == next->first && planes[i].last == next->last)
            return n;
    uint32_t at = n;
    for (; at > 0 && is_before(next, &planes[at - 1]); at--)
        planes[at] = planes[at - 1];
    planes[at] = *next;
    return n + 1;
}

/* Leaves the fastest one, the fastest of those that share no link with it, and
 * so on: the others would only halve what these have. */
static uint32_t keep_disjoint(plane *planes, uint32_t n)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool is_apart = true;
        for (uint32_t k = 0; k < n_kept; k++)
            is_apart &= planes[k].first != planes[i].first &&
                        planes[k].last != planes[i].last;
        if (is_apart)
            planes[n_kept++] = planes[i];
    }
    return n_kept;
}

static void learn_pair(work *w, uint32_t src, uint32_t dst)
{
    pair *pr = &w->pairs[(size_t)src * w->from->n_ranks + dst];
    if (pr->is_known)
        return;
    plane planes[TT_RAILS_MAX];
    uint32_t n = 0, n_rails = tt_route_rails(w->p->routes, src, dst);
    for (uint32_t rail = 0; rail < n_rails; rail++) {
        plane next = read_plane(w, src, dst, (uint8_t)rail);
        n = add_plane(planes, n, &next);
    }
    w->has_several |= n > 1;
    n = keep_disjoint(planes, n);
    n = n < MAX_PLANES ? n : MAX_PLANES;
    while (n > 1 && planes[n - 1].bps < planes[0].bps / least_fraction)
        n--;
    pr->is_known = true;
    pr->n_planes = (uint8_t)n;
    for (uint32_t k = 0; k < n; k++) {
        pr->rail[k] = planes[k].rail;
        if (k >= w->n_planes || planes[k].bps < w->bps[k])
            w->bps[k] = planes[k].bps;
        w->n_planes = k >= w->n_planes ? k + 1 : w->n_planes;
    }
}

static void find_shares(work *w)
{
    uint64_t sum = 0, common = 0;
    for (uint32_t k = 0; k < w->n_planes; k++) {
        sum += w->bps[k];
        common = (uint64_t)tt_gcd(w->bps[k], common);
    }
    for (uint32_t k = 0; k < w->n_planes; k++) {
        uint64_t share = w->bps[k] / common;
        if (sum / common > most_shares)
            share = tt_mul_div(w->bps[k], fine_shares, sum);
        w->share[k] = share > 0 ? share : 1;
        w->n_shares += w->share[k];
    }
}

/* ------------------------------------------------------------- rewriting -- */

/* The rail of the pair's k-th plane. */
static uint8_t rail_of(const work *w, const tt_transfer *t, uint32_t k)
{
    const pair *pr = &w->pairs[(size_t)t->src * w->from->n_ranks + t->dst];
    return pr->rail[k < pr->n_planes ? k : 0];
}

/* The schedule with its chunks cut into n pieces, one per plane. */
static tutti_err rewrite(const work *w, uint32_t n, tutti_schedule **out,
                         tutti_diag *diag)
{
    const tutti_schedule *s = w->from;
    const uint64_t n_shares = n > 1 ? w->n_shares : 1;
    const uint64_t whole[1] = {1}, *share = n > 1 ? w->share : whole;
    if (n_shares > TT_MAX_PARTS / s->n_parts)
        return TUTTI_ELIMIT;
    tt_builder *b;
    tutti_err err = tt_plan_builder(w->p, s->n_parts * n_shares, w->mem, &b,
                                    diag);
    if (err)
        return err;
    for (uint64_t c = 0; c < s->n_chunks; c++) {
        const tt_chunk *chunk = &s->chunks[c];
        uint64_t at = chunk->begin * n_shares;
        for (uint32_t k = 0; k < n; k++) {
            uint64_t end = at + (chunk->end - chunk->begin) * share[k];
            tt_builder_chunk(b, chunk->block, at, end);
            at = end;
        }
    }
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        for (uint32_t k = 0; k < n; k++) {
            tt_builder_rail(b, rail_of(w, t, k));
            tt_builder_transfer(b, t->step, t->chunk * n + k, t->src, t->dst,
                                (tt_xfer_op)t->op);
        }
    }
    return tt_builder_seal(b, out, diag);
}

/* -------------------------------------------------------------- choosing -- */

/* Whether any host has several links to the network. */
static bool has_cards(const tutti_topology *t)
{
    if (t->grid.n_dims)
        return false;
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        uint32_t host = tt_node_host(t, t->rank_node[r]), n = 0;
        for (uint32_t i = t->first_out[host]; i < t->first_out[host + 1]; i++)
            n += tt_node_host(t, t->links[t->out[i]].to) != host;
        if (n > 1)
            return true;
    }
    return false;
}

static tutti_err learn(work *w, tutti_diag *diag)
{
    const uint64_t n = w->from->n_ranks;
    uint32_t n_links = tt_routes_max_links(w->p->routes);
    w->links = tt_arena_new(&w->arena, n_links + 1, sizeof(uint32_t));
    w->pairs = tt_arena_new(&w->arena, n * n, sizeof(pair));
    if (w->arena.err)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for a plan");
    for (uint64_t i = 0; i < w->from->n_transfers; i++)
        learn_pair(w, w->from->transfers[i].src, w->from->transfers[i].dst);
    find_shares(w);
    return TUTTI_OK;
}

/* Whether the pieces are faster than all on the fastest plane. Where both are
 * too slow it does not matter. */
static tutti_err compare(const work *w, const tutti_schedule *one,
                         const tutti_schedule *many, bool *out,
                         tutti_diag *diag)
{
    double one_s = 0, many_s = 0;
    bool is_one_over, is_over = false;
    tutti_err err = tt_estimate_is_over(one, w->p, w->mem, &is_one_over, diag);
    if (!err && is_one_over)
        err = tt_estimate_is_over(many, w->p, w->mem, &is_over, diag);
    *out = false;
    if (err || is_over)
        return err;
    err = tt_plan_predict(one, w->p, w->mem, &one_s, diag);
    if (!err)
        err = tt_plan_predict(many, w->p, w->mem, &many_s, diag);
    *out = many_s * TT_EQUAL_GUESS < one_s;
    return err;
}

static tutti_err choose(const work *w, tutti_schedule **out, tutti_diag *diag)
{
    tutti_schedule *one = NULL, *many = NULL;
    bool is_faster = false;
    tutti_err err = rewrite(w, 1, &one, diag);
    if (!err && w->p->size_bytes > 0 && w->n_planes > 1) {
        err = rewrite(w, w->n_planes, &many, diag);
        if (!err)
            err = compare(w, one, many, &is_faster, diag);
        if (err == TUTTI_ELIMIT) /* too much to cut, or to predict */
            err = TUTTI_OK;
    }
    if (!err)
        *out = is_faster ? many : one;
    tt_sched_free(err || is_faster ? one : NULL);
    tt_sched_free(err || !is_faster ? many : NULL);
    return err;
}

tutti_err tt_stripe(tutti_schedule **s, const tt_problem *p, const tt_mem *mem,
                    tutti_diag *diag)
{
    const tutti_schedule *from = *s;
    if (!p->topology || from->n_ranks != p->topology->n_ranks ||
        from->n_ranks > MOST_RANKS || !has_cards(p->topology))
        return TUTTI_OK;
    work w = {.p = p, .from = from, .mem = mem, .arena = {.mem = mem}};
    tutti_schedule *better = NULL;
    tutti_err err = learn(&w, diag);
    if (!err && w.has_several)
        err = choose(&w, &better, diag);
    tt_arena_free(&w.arena);
    if (better || err) {
        tt_sched_free(*s);
        *s = better;
    }
    return err;
}
