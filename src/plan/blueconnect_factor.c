/* SPDX-License-Identifier: BSD-3-Clause
 * blueconnect_factor.c - into which dimensions to take the ranks of a network
 * apart, which way in each, and in how many portions to cut the vector: for
 * blueconnect.c.
 *
 * Idea       Each dimension (stride s, size p) has its price, whatever the
 *            others are: the routes of all its messages, in all groups at
 *            once, are laid over the links, and the fullest link counts, so
 *            uplinks that groups share are as slow as they will be. Ring,
 *            halving and direct are tried, the cheapest taken. A factorisation
 *            is then a path from 1 to N over the divisors of N, from s to s p
 *            at the price of (s, p): the shortest path is the best of all
 *            ordered factorisations, and each (s, p) is priced once.
 * Model      A step takes the latency of its longest route, and its message's
 *            bytes times the fullest link's seconds per byte; of several
 *            messages in one step all but the first cost TT_MORE_MESSAGES of a
 *            latency. For rings that is the paper's
 *                2 sum_d [(p_d - 1) alpha_d
 *                         + (p_d - 1) / (p_0 ... p_d) M beta_d]
 *            Large vectors count latencies MOST_TURNS times.
 * Portions   With V variants at once (orders of the dimensions, directions of
 *            rings) and m portions of each, C = V m, the M bytes take
 *                M (max(S / C, B / m) + (m - 1) B / m)
 *            where S is what the stages take one after the other, and B what
 *            the fullest link works for a mix of all variants; and each portion
 *            more costs TT_MORE_MESSAGES of all latencies. It must save SAVING.
 * Cost       O(N) routes for each pair of divisors and step; direct only up to
 *            MOST_DIRECT routes.
 * Example    star:64, large: a single dimension, directly. torus:8x8, large:
 *            8 x 8 by rings, four variants, all links in use all the time.
 * Next       blueconnect.c. */
#include "plan/blueconnect.h"

#include <math.h>

/* Routes that one direct exchange may be priced by: a tenth of a second. */
#define MOST_DIRECT (UINT64_C(1) << 19)

/* Smaller portions cost more in messages than they win (as in other libraries);
 * and a plan should stay below 170 MB, with one portion of each variant, and
 * below 20 MB with more. */
#define LEAST_PORTION_BYTES 65536u
#define MOST_PORTIONS 32u
#define MOST_TRANSFERS (UINT64_C(1) << 23)
#define MOST_WITH_MORE (UINT64_C(1) << 20)

/* What more portions must save, of the time: below, the model cannot tell. */
#define SAVING 0.01

/* The engine sends no farther ahead of a rank's results than by its front
 * window, so a vector of many windows waits for the latencies again and again;
 * how often is hard to say, since windows overlap. */
#define MOST_TURNS 5.0

/* Sliced, the steps of halving meet on a link with messages of different
 * lengths; in simulations it then moves 0.86 to 0.92 of what the links could.
 * Rings and direct exchange lose nothing. */
#define HALVING_LOSS 1.12
/* The same happens to dimensions that share their fullest link. */
#define SHARING_LOSS 1.1
#define IS_SHARED 0.95

typedef struct fabric {
    const tt_problem *p;
    const tt_hierarchy *h;
    uint32_t *route;
    double *load;     /* by link */
    double latency_s; /* of the longest route since the last look */
    double turns;     /* how often latencies count */
    bool only_rings;  /* no other way is tried */
} fabric;

static bool fabric_init(fabric *f, tt_arena *arena)
{
    const tt_cutting usual = {.is_inside = false};
    uint64_t size = f->p->size_bytes;
    uint64_t window = tt_cutting_for(&usual, size, 0).front_window_bytes;
    f->turns = fmin(fmax(1, (double)size / (double)window), MOST_TURNS);
    size_t n_route = (size_t)tt_routes_max_links(f->p->routes) + 1;
    size_t n_links = (size_t)f->p->topology->n_links + 1;
    f->route = tt_arena_new(arena, n_route, sizeof(*f->route));
    f->load = tt_arena_new(arena, n_links, sizeof(*f->load));
    return !arena->err;
}

/* One message's worth of load from place to place. */
static void lay(fabric *f, uint32_t from, uint32_t to, double weight)
{
    const tutti_topology *t = f->p->topology;
    double latency_s = 0;
    uint32_t n = tt_route(f->p->routes, f->h->rank_at[from], f->h->rank_at[to],
                          0, f->route);
    for (uint32_t i = 0; i < n; i++) {
        f->load[f->route[i]] += weight;
        latency_s += tt_link_latency_s(&t->links[f->route[i]]);
    }
    f->latency_s = fmax(f->latency_s, latency_s);
}

typedef struct look {
    double latency_s, s_per_byte;
} look;

/* The fullest link, and the longest route; forgets all. */
static look take(fabric *f)
{
    const tutti_topology *t = f->p->topology;
    look l = {f->latency_s, 0};
    for (uint32_t e = 0; e < t->n_links; e++) {
        l.s_per_byte = fmax(l.s_per_byte,
                            f->load[e] / tt_link_bytes_per_s(&t->links[e]));
        f->load[e] = 0;
    }
    f->latency_s = 0;
    return l;
}

/* -------------------------------------------------------------- patterns -- */

/* Who sends to whom in one step of a dimension, all groups at once. */
typedef struct pattern {
    const tt_dim *dim;
    double weight;
    bool is_mirrored; /* dst sends to src */
} pattern;

static uint32_t coordinate(const pattern *x, uint32_t place)
{
    return place / x->dim->stride % x->dim->size;
}

static void lay_pair(fabric *f, const pattern *x, uint32_t place, uint32_t to)
{
    uint32_t at = coordinate(x, place);
    uint32_t there = place - at * x->dim->stride + to * x->dim->stride;
    if (x->is_mirrored)
        lay(f, there, place, x->weight);
    else
        lay(f, place, there, x->weight);
}

static void lay_ring(fabric *f, const pattern *x, bool is_reverse)
{
    uint32_t n = x->dim->size;
    for (uint32_t place = 0; place < f->h->n_ranks; place++) {
        uint32_t at = coordinate(x, place);
        lay_pair(f, x, place, (at + (is_reverse ? n - 1 : 1)) % n);
    }
}

static void lay_exchange(fabric *f, const pattern *x, uint32_t bit)
{
    for (uint32_t place = 0; place < f->h->n_ranks; place++)
        lay_pair(f, x, place, coordinate(x, place) ^ bit);
}

static void lay_direct(fabric *f, const pattern *x)
{
    for (uint32_t place = 0; place < f->h->n_ranks; place++) {
        uint32_t at = coordinate(x, place);
        for (uint32_t to = 0; to < x->dim->size; to++) {
            if (to != at)
                lay_pair(f, x, place, to);
        }
    }
}

/* ---------------------------------------------------------------- prices -- */

/* Fills in alpha and beta for the dimension's way. */
static void price(fabric *f, tt_dim *dim)
{
    pattern x = {.dim = dim, .weight = 1};
    look l;
    dim->latency_s = dim->messages_s = dim->beta_s_per_byte = 0;
    switch (dim->way) {
    case TT_WAY_RING:
        lay_ring(f, &x, false);
        l = take(f);
        dim->latency_s = (dim->size - 1) * l.latency_s;
        dim->beta_s_per_byte = (dim->size - 1.0) / dim->size * l.s_per_byte;
        break;
    case TT_WAY_HALVING:
        for (uint32_t bit = 1; bit < dim->size; bit *= 2) {
            lay_exchange(f, &x, bit);
            l = take(f);
            dim->latency_s += l.latency_s;
            dim->beta_s_per_byte += l.s_per_byte / (2.0 * bit);
        }
        break;
    default:
        lay_direct(f, &x);
        l = take(f);
        dim->latency_s = l.latency_s;
        dim->messages_s = TT_MORE_MESSAGES * (dim->size - 2) * l.latency_s;
        dim->beta_s_per_byte = l.s_per_byte / dim->size;
        break;
    }
}

static double loss(const tt_dim *dim)
{
    return dim->way == TT_WAY_HALVING ? HALVING_LOSS : 1;
}

/* A phase, where each rank holds 1 / stride of the vector at first. */
static double dim_time(const fabric *f, const tt_dim *dim)
{
    return f->turns * dim->latency_s + dim->messages_s +
           (double)f->p->size_bytes / dim->stride * dim->beta_s_per_byte *
               loss(dim);
}

static bool is_possible(const fabric *f, const tt_dim *dim)
{
    switch (dim->way) {
    case TT_WAY_HALVING:
        return dim->size > 2 && tt_is_pow2(dim->size);
    case TT_WAY_DIRECT:
        return dim->size > 2 &&
               (uint64_t)f->h->n_ranks * dim->size <= MOST_DIRECT;
    default:
        return true;
    }
}

/* The best way in a dimension; the first in this order when times are equal. */
static tt_dim best_way(fabric *f, uint32_t stride, uint32_t size)
{
    static const tt_way ways[] = {TT_WAY_RING, TT_WAY_HALVING, TT_WAY_DIRECT};
    tt_dim best = {0};
    for (size_t i = 0; i < (f->only_rings ? 1 : 3); i++) {
        tt_dim dim = {.size = size, .stride = stride, .way = ways[i]};
        if (!is_possible(f, &dim))
            continue;
        price(f, &dim);
        if (best.size == 0 || dim_time(f, &dim) < dim_time(f, &best))
            best = dim;
    }
    return best;
}

/* -------------------------------------------------------- factorisations -- */

/* One divisor s of N: the cheapest way from s to N, and its first dimension. */
typedef struct stop {
    uint32_t stride;
    double time_s;
    tt_dim first;
} stop;

static uint32_t list_divisors(uint32_t n, stop *stops)
{
    uint32_t n_stops = 0;
    for (uint32_t s = 1; s <= n; s++) {
        if (n % s == 0)
            stops[n_stops++].stride = s;
    }
    return n_stops;
}

/* Fewer dimensions when times are equal: larger first steps are tried first. */
static void best_path(fabric *f, stop *stops, uint32_t n_stops)
{
    stops[n_stops - 1].time_s = 0;
    for (uint32_t i = n_stops - 1; i-- > 0;) {
        stop *from = &stops[i];
        from->time_s = INFINITY;
        for (uint32_t j = n_stops; j-- > i + 1;) {
            if (stops[j].stride % from->stride != 0)
                continue;
            tt_dim dim = best_way(f, from->stride,
                                  stops[j].stride / from->stride);
            double time_s = dim_time(f, &dim) + stops[j].time_s;
            if (time_s < from->time_s * (1 - 1e-12)) {
                from->time_s = time_s;
                from->first = dim;
            }
        }
    }
}

/* No number up to TT_MAX_RANKS has more divisors (55440 has 120). */
#define MOST_DIVISORS 128u

static void best_factors(fabric *f, tt_blue *b, stop *stops)
{
    uint32_t n_stops = list_divisors(f->h->n_ranks, stops);
    best_path(f, stops, n_stops);
    *b = (tt_blue){.n_orders = 1, .n_portions = 1};
    b->time_s = stops[0].time_s;
    uint32_t i = 0;
    while (i + 1 < n_stops) {
        b->dims[b->n_dims++] = stops[i].first;
        uint32_t stride = stops[i].stride * stops[i].first.size;
        while (stops[i].stride < stride)
            i++;
    }
}

/* -------------------------------------------------------------- portions -- */

static bool has_rings(const tt_blue *b)
{
    for (uint32_t d = 0; d < b->n_dims; d++) {
        if (b->dims[d].way == TT_WAY_RING && b->dims[d].size > 2)
            return true;
    }
    return false;
}

/* A dimension in one phase, when each rank holds `held` of the vector. */
static void lay_dim(fabric *f, const tt_dim *dim, double held, bool is_reverse,
                    bool is_mirrored)
{
    pattern x = {.dim = dim, .is_mirrored = is_mirrored};
    switch (dim->way) {
    case TT_WAY_RING:
        x.weight = held * (dim->size - 1) / dim->size;
        lay_ring(f, &x, is_reverse);
        break;
    case TT_WAY_HALVING:
        for (uint32_t bit = 1; bit < dim->size; bit *= 2) {
            x.weight = held / (2.0 * bit) * HALVING_LOSS;
            lay_exchange(f, &x, bit);
        }
        break;
    default:
        x.weight = held / dim->size;
        lay_direct(f, &x);
        break;
    }
}

/* S and B of the head comment, in seconds per byte of the vector. */
typedef struct mix {
    double alone, fullest, loss;
} mix;

static mix try_mix(fabric *f, const tt_blue *b)
{
    uint32_t n = tt_blue_variants(b);
    bool is_forth = f->p->collective != TUTTI_ALL_GATHER;
    bool is_back = f->p->collective != TUTTI_REDUCE_SCATTER;
    mix m = {0};
    for (uint32_t i = 0; i < n; i++) {
        double alone = 0;
        double held = 1;
        for (uint32_t j = 0; j < b->n_dims; j++) {
            const tt_dim *dim = &b->dims[(i % b->n_orders + j) % b->n_dims];
            if (is_forth)
                lay_dim(f, dim, held / n, i >= b->n_orders, false);
            if (is_back)
                lay_dim(f, dim, held / n, i >= b->n_orders, true);
            alone += held * dim->beta_s_per_byte * loss(dim) *
                     (is_forth + is_back);
            held /= dim->size;
        }
        m.alone = fmax(m.alone, alone);
    }
    m.fullest = take(f).s_per_byte;
    bool is_shared = b->n_dims > 1 && m.fullest > IS_SHARED * m.alone;
    m.loss = is_shared ? SHARING_LOSS : 1;
    return m;
}

static double mix_time(const fabric *f, const tt_blue *b, const mix *m)
{
    double latency_s = 0;
    double messages_s = 0;
    for (uint32_t d = 0; d < b->n_dims; d++) {
        latency_s += b->dims[d].latency_s;
        messages_s += b->dims[d].messages_s;
    }
    double n = b->n_portions;
    double turns = n / tt_blue_variants(b);
    double first = fmax(m->alone / n, m->fullest / turns);
    double bytes = first + (turns - 1) * m->fullest / turns;
    messages_s = n * messages_s + TT_MORE_MESSAGES * (n - 1) * latency_s;
    double phases = f->p->collective == TUTTI_ALL_REDUCE ? 2 : 1;
    return phases * (f->turns * latency_s + messages_s) +
           (double)f->p->size_bytes * bytes * m->loss;
}

static uint32_t most_portions(const tt_problem *p, uint64_t most_transfers)
{
    uint64_t n = p->n_ranks;
    uint64_t by_transfers = most_transfers / (2 * n * (n - 1));
    uint64_t by_bytes = p->size_bytes / LEAST_PORTION_BYTES;
    uint64_t most = by_transfers < by_bytes ? by_transfers : by_bytes;
    if (most < 1)
        return 1;
    return most < MOST_PORTIONS ? (uint32_t)most : MOST_PORTIONS;
}

/* Tries the variants that *b names with any number of portions. */
static void try_portions(fabric *f, tt_blue *b, tt_blue *best)
{
    uint32_t n = tt_blue_variants(b);
    if (n > most_portions(f->p, MOST_TRANSFERS))
        return;
    uint32_t most = most_portions(f->p, MOST_WITH_MORE);
    mix m = try_mix(f, b);
    for (b->n_portions = n; b->n_portions == n || b->n_portions <= most;
         b->n_portions *= 2) {
        b->time_s = mix_time(f, b, &m);
        if (best->n_portions == 0 || b->time_s < best->time_s * (1 - SAVING))
            *best = *b;
    }
}

static void best_portions(fabric *f, tt_blue *b)
{
    tt_blue best = {0};
    for (int is_both = 0; is_both <= has_rings(b); is_both++) {
        b->is_both_ways = is_both;
        b->n_orders = 1;
        try_portions(f, b, &best);
        b->n_orders = b->n_dims;
        if (b->n_dims > 1)
            try_portions(f, b, &best);
    }
    *b = best;
}

/* ------------------------------------------------------------------ both -- */

/* The hierarchy's own dimensions. */
static void own_factors(fabric *f, tt_blue *b)
{
    uint32_t sizes[TT_HIER_MAX_DIMS];
    uint32_t stride = 1;
    b->n_dims = tt_hierarchy_dims(f->h, sizes);
    for (uint32_t d = 0; d < b->n_dims; d++) {
        b->dims[d] = best_way(f, stride, sizes[d]);
        stride *= sizes[d];
    }
}

/* All ranks in one. */
static void one_factor(fabric *f, tt_blue *b)
{
    b->n_dims = 1;
    b->dims[0] = best_way(f, 1, f->h->n_ranks);
}

static void keep_better(fabric *f, tt_blue *b, tt_blue *best)
{
    if (b->n_dims == 0)
        return;
    best_portions(f, b);
    if (best->n_dims == 0 || b->time_s < best->time_s * (1 - SAVING))
        *best = *b;
}

/* The shortest path does not know of portions, which let dimensions overlap and
 * rings use both directions of their links; so paths and dimensions that may
 * be better by that are tried as well. */
static void best_of_all(fabric *f, stop *stops, tt_blue *best)
{
    *best = (tt_blue){0};
    for (int only_rings = 0; only_rings <= 1; only_rings++) {
        tt_blue b = {0};
        f->only_rings = only_rings;
        best_factors(f, &b, stops);
        keep_better(f, &b, best);
        own_factors(f, &b);
        keep_better(f, &b, best);
        one_factor(f, &b);
        keep_better(f, &b, best);
    }
}

tutti_err tt_blue_choose(const tt_problem *p, const tt_hierarchy *h,
                         tt_arena *scratch, tt_blue *out)
{
    fabric f = {.p = p, .h = h};
    stop *stops = tt_arena_new(scratch, MOST_DIVISORS, sizeof(*stops));
    if (!fabric_init(&f, scratch))
        return TUTTI_ENOMEM;
    best_of_all(&f, stops, out);
    return TUTTI_OK;
}

tutti_err tt_blue_path(const tt_problem *p, const tt_hierarchy *h,
                       tt_arena *scratch, tt_blue *out)
{
    fabric f = {.p = p, .h = h};
    stop *stops = tt_arena_new(scratch, MOST_DIVISORS, sizeof(*stops));
    if (!fabric_init(&f, scratch))
        return TUTTI_ENOMEM;
    best_factors(&f, out, stops);
    if (p->collective == TUTTI_ALL_REDUCE)
        out->time_s *= 2;
    return TUTTI_OK;
}

tutti_err tt_blue_price(const tt_problem *p, const tt_hierarchy *h,
                        tt_arena *scratch, tt_blue *b)
{
    fabric f = {.p = p, .h = h};
    uint32_t stride = 1;
    if (!fabric_init(&f, scratch))
        return TUTTI_ENOMEM;
    b->n_orders = b->n_portions = 1;
    b->is_both_ways = false;
    b->time_s = 0;
    for (uint32_t d = 0; d < b->n_dims; d++) {
        tt_dim *dim = &b->dims[d];
        dim->stride = stride;
        stride *= dim->size;
        price(&f, dim);
        b->time_s += dim->latency_s + dim->messages_s +
                     (double)p->size_bytes / dim->stride * dim->beta_s_per_byte;
    }
    if (p->collective == TUTTI_ALL_REDUCE)
        b->time_s *= 2;
    return TUTTI_OK;
}
