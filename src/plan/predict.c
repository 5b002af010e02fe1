/* SPDX-License-Identifier: BSD-3-Clause
 * predict.c - what a schedule would take on a topology, and how the engine
 * would cut it there.
 *
 * The sizes of fronts and windows are those that engine.md has measured;
 * the engine's plans (core/plans.c) take them from here, and both are cut by
 * schedule/cut.h, so prediction and performance are cut alike.
 * Links      are queues, first come first served, as a network's are: what a
 *            flow may take of a link is what it sends there, not an equal
 *            part of it (docs/explanation/simulator.md).
 * Cost       A simulation costs about a third of a microsecond for each link
 *            that a slice crosses. Above MOST_HOPS of those the prediction
 *            takes fewer, larger slices (bound_work): it then errs, mostly on
 *            the slow side, by less than one more front per step.
 *            What takes too long even then is added up (estimate.c).
 * Next       sim/sim.h, estimate.c. */
#include "plan/planner.h"

#include "base/numbers.h"
#include "base/sets.h"
#include "base/settings.h"

#include <math.h>

/* Half a second of simulation. */
#define MOST_HOPS 1.5e6
/* Fewer fronts are no pipeline, and adding up says more. */
#define LEAST_FRONTS 4
/* Whatever their routes are, these are not too many. */
#define FEW_TRANSFERS 1e4
/* By so many fronts a window is tried, and by more of them until it gains less
 * than that; in at most some hundredths of a second each. */
#define LEAST_TRIED 16
#define MOST_TRIED 128
#define MOST_DOUBLINGS 4
#define WORTH_DOUBLING 0.99
#define MOST_TRIED_HOPS 1e5

static const uint64_t kib = 1024;

static uint64_t isqrt(uint64_t x)
{
    uint64_t r = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit; bit >>= 1)
        if ((r + bit) * (r + bit) <= x)
            r += bit;
    return r;
}

/* Across hosts as measured for TCP: 64 KiB below 1 MiB, where messages would be
 * too small; from there 32 KiB, growing with the root of the size up to 128
 * KiB. Inside a host a front should stay in the second-level cache. */
static uint64_t front_for(uint64_t total_bytes, bool is_inside)
{
    if (is_inside)
        return 512 * kib;
    uint64_t front = 32 * isqrt(total_bytes);
    if (total_bytes < 1024 * kib)
        return 64 * kib;
    return front < 128 * kib ? front : 128 * kib;
}

/* A window must hold what is on the way when the pipeline is full, else it
 * starves it; and half as much again for unevenness. */
static const double window_fronts = 1.5;

/* 64 KiB at 1 MiB, 256 KiB at 16 MiB, 512 KiB at 64 MiB, but so much as those
 * fronts need; none in a host. */
static uint64_t window_for(uint64_t total_bytes, const tt_cutting *c,
                           double fronts)
{
    if (c->is_inside)
        return 0;
    uint64_t least = 64 * isqrt(total_bytes);
    least = least < 64 * kib ? 64 * kib : least;
    double need = fmin(window_fronts * fronts * (double)c->front_bytes, 0x1p62);
    return need > (double)least ? (uint64_t)need : least;
}

/* On fast links what counts is how many messages there are. A front's message
 * should take little beside its bytes, which a rank sends in a few slices.
 * Vectors of more than 256 KiB have at least two fronts. */
static const uint64_t fast_front_messages = 32, most_fast_front_kib = 512;
static const uint64_t most_single_kib = 256;
/* No more is on the way than caches hold. */
static const uint64_t fast_window_fronts = 8;

static void cut_for_speed(tt_cutting *c, uint64_t total_bytes)
{
    uint64_t front = most_fast_front_kib * kib, most = most_single_kib * kib;
    if (c->message_bytes < front / fast_front_messages)
        front = c->message_bytes * fast_front_messages;
    if (most < total_bytes)
        most = tt_div_up(total_bytes, 2);
    front = front < most ? front : most;
    if (c->front_bytes == 0 && front > front_for(total_bytes, false))
        c->front_bytes = front;
    if (c->front_window_bytes == 0 && c->front_bytes == front)
        c->front_window_bytes = fast_window_fronts * front;
}

tt_cutting tt_cutting_for(const tt_cutting *asked, uint64_t total_bytes,
                          double fronts)
{
    tt_cutting c = *asked;
    if (c.message_bytes > 0 && !c.is_inside)
        cut_for_speed(&c, total_bytes);
    if (c.front_bytes == 0)
        c.front_bytes = front_for(total_bytes, c.is_inside);
    if (c.front_window_bytes == 0)
        c.front_window_bytes = window_for(total_bytes, &c, fronts);
    if (c.window == 0)
        c.window = TT_USUAL_WINDOW;
    return c;
}

/* Of all blocks together. */
static uint64_t total_bytes(const tt_problem *p)
{
    bool is_to_all = p->collective == TUTTI_ALL_TO_ALL;
    return p->size_bytes * (is_to_all ? p->n_ranks : 1);
}

static uint64_t front_bytes(const tt_problem *p)
{
    return tt_cutting_for(&p->cutting, total_bytes(p), 0).front_bytes;
}

/* How many connections there are: (from, to, rail), as the simulator's. */
static tutti_err count_conns(const tutti_schedule *s, const tt_mem *mem,
                             uint64_t *out, tutti_diag *diag)
{
    uint64_t n = s->n_ranks, n_rails = 1;
    for (uint64_t i = 0; i < s->n_transfers; i++)
        if (s->transfers[i].rail >= n_rails)
            n_rails = s->transfers[i].rail + UINT64_C(1);
    size_t n_words = (size_t)(n * n * n_rails / 64 + 1);
    uint64_t *seen = tt_new(mem, n_words, sizeof(*seen));
    if (!seen)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for a prediction");
    uint64_t count = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *x = &s->transfers[i];
        uint64_t conn = (x->src * n + x->dst) * n_rails + x->rail;
        count += !tt_set_has(seen, conn);
        tt_set_add(seen, conn);
    }
    tt_free(mem, seen, n_words, sizeof(*seen));
    *out = count;
    return TUTTI_OK;
}

enum { ROUTES_LOOKED_AT = 1024 };

/* Links of a route, on the average over some transfers. */
static tutti_err mean_hops(const tutti_schedule *s, const tt_problem *p,
                           const tt_mem *mem, double *out, tutti_diag *diag)
{
    tt_routes *own = NULL;
    const tt_routes *routes = p->routes;
    tutti_err err = TUTTI_OK;
    if (!routes) {
        err = tt_routes_create(p->topology, mem, &own, diag);
        routes = own;
    }
    if (err)
        return err;
    size_t n_links = (size_t)tt_routes_max_links(routes) + 1;
    uint32_t *links = tt_new(mem, n_links, sizeof(*links));
    uint64_t stride = s->n_transfers / ROUTES_LOOKED_AT + 1, n = 0, sum = 0;
    for (uint64_t i = 0; links && i < s->n_transfers; i += stride) {
        const tt_transfer *x = &s->transfers[i];
        sum += tt_route(routes, x->src, x->dst, x->rail, links);
        n++;
    }
    if (!links)
        err = tt_fail(diag, TUTTI_ENOMEM, "no memory for a prediction");
    tt_free(mem, links, n_links, sizeof(*links));
    tt_routes_free(own);
    *out = n > 0 ? (double)sum / (double)n : 1;
    return err;
}

/* How many links all transfers cross. (Are the ranks others than the network's?
 * The simulator says so.) */
static tutti_err count_hops(const tutti_schedule *s, const tt_problem *p,
                            const tt_mem *mem, double *out, tutti_diag *diag)
{
    double hops = 1;
    tutti_err err = TUTTI_OK;
    if (s->n_ranks == p->topology->n_ranks)
        err = mean_hops(s, p, mem, &hops, diag);
    *out = (double)s->n_transfers * hops;
    return err;
}

/* Would it take too long, each transfer in a few slices? */
static tutti_err is_endless(const tutti_schedule *s, const tt_problem *p,
                            const tt_mem *mem, bool *out, tutti_diag *diag)
{
    double hops = (double)s->n_transfers;
    tutti_err err = TUTTI_OK;
    if (hops > FEW_TRANSFERS && hops * LEAST_FRONTS <= MOST_HOPS)
        err = count_hops(s, p, mem, &hops, diag);
    *out = hops * LEAST_FRONTS > MOST_HOPS &&
           s->n_ranks == p->topology->n_ranks;
    return err;
}

/* The pipeline: one front alone takes t seconds, of which the busiest link
 * works u * t; when all runs at that link's pace, a front is done every u * t,
 * so 1 / u fronts are on the way. */
static double front_share(const tt_problem *p)
{
    uint64_t front = front_bytes(p), total = total_bytes(p);
    return front < total ? (double)front / (double)total : 1;
}

/* How busy the busiest link is while one front is on the way alone. */
static tutti_err simulate_front(const tutti_schedule *s, const tt_problem *p,
                                const tt_mem *mem, double *busy,
                                tutti_diag *diag)
{
    uint64_t bytes = front_bytes(p);
    tutti_sim_result front;
    if (p->collective == TUTTI_ALL_TO_ALL)
        bytes /= p->n_ranks;
    const tutti_sim_opts alone = {
        .size_bytes = bytes < p->size_bytes ? bytes : p->size_bytes,
        .gamma_s_per_byte = p->gamma_s_per_byte,
        .is_packet = true,
        .cut_through = true,
    };
    tutti_err err = tt_simulate(s, p->topology, &alone, mem, &front, diag);
    if (!err)
        *busy = front.max_link_utilisation;
    return err;
}

static tutti_err estimate_front(const tutti_schedule *s, const tt_problem *p,
                                const tt_mem *mem, double *busy,
                                tutti_diag *diag)
{
    double share = front_share(p);
    tt_estimate e;
    tutti_err err = tt_estimate_find(s, p, mem, &e, diag);
    if (!err && e.busy_s > 0)
        *busy = e.busy_s * share / (e.latency_s + e.bytes_s * share);
    return err;
}

/* Of a usual element, if the sizes are whole ones. */
static uint32_t elem_bytes(const tt_problem *p)
{
    uint64_t odd = p->size_bytes % sizeof(float);
    for (uint32_t r = 0; p->block_bytes && r < p->n_ranks; r++)
        odd |= p->block_bytes[r] % sizeof(float);
    return odd ? 1 : sizeof(float);
}

/* With so many fronts in the pipeline. */
static tutti_sim_opts cut_with(const tt_problem *p, double fronts)
{
    const bool has_window = tt_coll_has_window(p->collective);
    const tt_cutting c = tt_cutting_for(&p->cutting, total_bytes(p), fronts);
    return (tutti_sim_opts){
        .size_bytes = p->size_bytes,
        .block_bytes = p->block_bytes,
        .elem_bytes = elem_bytes(p),
        .front_bytes = c.front_bytes,
        .staging_max_bytes = c.staging_max_bytes,
        .max_payload = c.max_payload,
        .window = c.window,
        .front_window_bytes = has_window ? c.front_window_bytes : 0,
        .gamma_s_per_byte = p->gamma_s_per_byte,
        .is_packet = true,
        .cut_through = true,
        .burst_bytes = p->burst_bytes,
    };
}

/* Would twice as many fronts have a wider window, and are there some to try it
 * by? No wider is what was told, and what has room for all the same. */
static bool may_widen(const tutti_schedule *s, const tt_problem *p,
                      double fronts)
{
    return tt_coll_has_window(p->collective) && !p->block_bytes &&
           s->n_ranks == p->topology->n_ranks &&
           p->size_bytes >= LEAST_TRIED * front_bytes(p) &&
           cut_with(p, fronts).front_window_bytes <
               cut_with(p, 2 * fronts).front_window_bytes;
}

/* Of how many fronts a part of the vector tells how quick the whole is; 0: of
 * none that are simulated soon enough. */
static uint64_t tried_fronts(double hops)
{
    double most = MOST_TRIED_HOPS / fmax(1, hops);
    if (most < LEAST_TRIED)
        return 0;
    return most < MOST_TRIED ? (uint64_t)most : MOST_TRIED;
}

/* Where several links are to be busy all the time fronts wait for each other,
 * and more of them are on the way. How many, some fronts tell: as long as twice
 * as many make them quicker. */
static tutti_err widen(const tutti_schedule *s, const tt_problem *p,
                       const tt_mem *mem, double *fronts, tutti_diag *diag)
{
    double hops, best = HUGE_VAL, n = *fronts;
    if (!may_widen(s, p, n))
        return TUTTI_OK;
    tutti_err err = count_hops(s, p, mem, &hops, diag);
    uint64_t tried = err ? 0 : tried_fronts(hops);
    for (int i = 0; tried > 0 && i < MOST_DOUBLINGS; i++, n *= 2) {
        tutti_sim_opts o = cut_with(p, n);
        tutti_sim_result r;
        if (o.size_bytes > tried * o.front_bytes)
            o.size_bytes = tried * o.front_bytes;
        err = tt_simulate(s, p->topology, &o, mem, &r, diag);
        if (err || r.time_s > best * WORTH_DOUBLING)
            break;
        best = r.time_s;
        *fronts = n;
    }
    return err;
}

tutti_err tt_plan_pipeline(const tutti_schedule *s, const tt_problem *p,
                           const tt_mem *mem, double *fronts, tutti_diag *diag)
{
    bool is_long;
    double busy = 0;
    tutti_err err = is_endless(s, p, mem, &is_long, diag);
    if (!err)
        err = is_long ? estimate_front(s, p, mem, &busy, diag)
                      : simulate_front(s, p, mem, &busy, diag);
    if (err)
        return err;
    *fronts = busy > 0 ? fmax(1, 1 / busy) : 1;
    return is_long ? TUTTI_OK : widen(s, p, mem, fronts, diag);
}

tutti_err tt_plan_sim_opts(const tutti_schedule *s, const tt_problem *p,
                           const tt_mem *mem, tutti_sim_opts *out,
                           tutti_diag *diag)
{
    double fronts = 0;
    tutti_err err = TUTTI_OK;
    if (tt_coll_has_window(p->collective))
        err = tt_plan_pipeline(s, p, mem, &fronts, diag);
    if (err)
        return err;
    *out = cut_with(p, fronts);
    out->progress = p->progress ? p->progress->fn : NULL;
    out->progress_ctx = p->progress ? p->progress->ctx : NULL;
    return TUTTI_OK;
}

/* Of a usual chunk, where a front has so many bytes. */
static double slice_bytes(const tutti_schedule *s, double front)
{
    return fmax(TT_LEAST_SLICE, front / fmax(1, (double)s->n_chunks));
}

/* Does credit hold slices back, because what it lets one connection have on
 * the way is less than what a link holds there and back? Then larger slices
 * with as much credit would be faster than the engine's. */
static bool does_credit_bind(const tutti_schedule *s, const tutti_topology *t,
                             const tutti_sim_opts *o, uint64_t n_conns)
{
    double slice = slice_bytes(s, (double)o->front_bytes);
    double active = fmax(1, (double)s->n_transfers / (2 * (double)n_conns));
    double held = 0;
    for (uint32_t i = 0; i < t->n_links; i++)
        held = fmax(held, tt_link_bytes_per_s(&t->links[i]) * 2 *
                              tt_link_latency_s(&t->links[i]));
    return o->window * slice * active < held;
}

/* The one place where a prediction is cut otherwise than the engine cuts:
 * fewer, larger fronts where the simulation would take long, and a window of as
 * many of them; and where credit binds, of about as many bytes. */
static tutti_err bound_work(const tutti_schedule *s, const tt_problem *p,
                            const tt_mem *mem, tutti_sim_opts *o,
                            tutti_diag *diag)
{
    uint64_t n_conns = 0, k;
    double hops;
    tutti_err err = tt_sim_fronts(s, o, mem, &k, diag);
    if (err || (double)k * (double)s->n_transfers <= FEW_TRANSFERS)
        return err;
    err = count_hops(s, p, mem, &hops, diag);
    if (!err)
        err = count_conns(s, mem, &n_conns, diag);
    if (err)
        return err;
    double most = fmax(1, MOST_HOPS / fmax(1, hops));
    double fronts = exp2(floor(log2(most)));
    if ((double)k <= fronts)
        return TUTTI_OK;
    double front = ceil((double)total_bytes(p) / fronts);
    double ahead = (double)o->front_window_bytes / (double)o->front_bytes;
    double engines = (double)total_bytes(p) / (double)k;
    double scale = slice_bytes(s, engines) / slice_bytes(s, front);
    if (n_conns > 0 && does_credit_bind(s, p->topology, o, n_conns))
        o->window = (uint32_t)fmax(1, o->window * scale);
    o->n_slices = (uint32_t)fronts;
    o->max_payload = 0;
    o->front_window_bytes = (uint64_t)ceil(ahead * front);
    return TUTTI_OK;
}

/* One front, of ranks whose messages take time beside the network's: it goes
 * step by step, and in each of them what the engine sends to a peer is one
 * message, which the simulator does not know. */
static bool is_one_front(const tt_problem *p)
{
    return p->overhead_s > 0 && total_bytes(p) <= front_bytes(p);
}

static tutti_err add_overhead(const tutti_schedule *s, const tt_problem *p,
                              const tt_mem *mem, double *seconds,
                              tutti_diag *diag)
{
    tt_estimate e;
    if (p->overhead_s <= 0)
        return TUTTI_OK;
    tutti_err err = tt_estimate_find(s, p, mem, &e, diag);
    if (!err)
        *seconds += e.overhead_s;
    return err;
}

/* On links that make up for waits, time is what passes them, or what the ranks
 * take, whichever is longer. */
static double one_front_s(const tt_estimate *e, const tt_problem *p)
{
    double messages = e->overhead_s / p->overhead_s;
    return fmax(e->latency_s + messages * p->shared_s, e->bytes_s);
}

tutti_err tt_plan_add_up(const tutti_schedule *s, const tt_problem *p,
                         const tt_mem *mem, double *seconds, tutti_diag *diag)
{
    tt_estimate e;
    tutti_err err = tt_estimate_find(s, p, mem, &e, diag);
    if (err)
        return err;
    *seconds = p->shared_s > 0 && is_one_front(p)
                   ? one_front_s(&e, p)
                   : tt_estimate_s(&e, front_share(p));
    return TUTTI_OK;
}

tutti_err tt_plan_predict(const tutti_schedule *s, const tt_problem *p,
                          const tt_mem *mem, double *seconds, tutti_diag *diag)
{
    tutti_sim_opts o;
    tutti_sim_result result;
    bool is_long;
    tutti_err err = is_endless(s, p, mem, &is_long, diag);
    if (!err && (is_long || is_one_front(p)))
        return tt_plan_add_up(s, p, mem, seconds, diag);
    if (!err)
        err = tt_plan_sim_opts(s, p, mem, &o, diag);
    if (!err)
        err = bound_work(s, p, mem, &o, diag);
    if (!err)
        err = tt_simulate(s, p->topology, &o, mem, &result, diag);
    if (err)
        return err;
    *seconds = result.time_s;
    return add_overhead(s, p, mem, seconds, diag);
}

/* Reducing: what the same takes longer with it. Messages: the latencies of all
 * steps, one after the other, and what messages cost ranks. The rest is what
 * bytes add. */
tutti_err tt_plan_split(const tutti_schedule *s, const tt_problem *p,
                        const tt_mem *mem, double seconds, tt_charge *out,
                        tutti_diag *diag)
{
    tt_problem bare = *p;
    double bare_s = seconds;
    tt_estimate e;
    tutti_err err = TUTTI_OK;
    bare.gamma_s_per_byte = 0;
    if (p->gamma_s_per_byte > 0 && tt_coll_reduces(p->collective))
        err = tt_plan_predict(s, &bare, mem, &bare_s, diag);
    if (!err)
        err = tt_estimate_find(s, &bare, mem, &e, diag);
    if (err)
        return err;
    double messages_s = e.latency_s + e.overhead_s;
    if (p->shared_s > 0 && is_one_front(p))
        messages_s = e.latency_s + e.overhead_s / p->overhead_s * p->shared_s;
    bare_s = fmin(bare_s, seconds);
    messages_s = fmin(messages_s, bare_s);
    *out = (tt_charge){seconds, messages_s, bare_s - messages_s,
                       seconds - bare_s};
    return TUTTI_OK;
}
