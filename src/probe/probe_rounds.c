/* SPDX-License-Identifier: BSD-3-Clause
 * probe_rounds.c - round after round of flows, as the inference asks.
 *
 * Idea       Rank 0 asks the inference what to measure next, and tells all;
 *            the agents connect; when all are ready rank 0 says go; when all
 *            have measured it collects the rates. Everybody goes through the
 *            same exchanges.
 * Time       How long a round takes follows from what is expected: long enough
 *            for some hundred KiB, no longer than a tenth of a second, plus
 *            what long latencies need; longer after rounds in vain. When the
 *            next round would pass the bound the probe ends with what it has,
 *            if that is something of every interface.
 * Next       flows.c; infer/infer.h. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "probe/parts.h"

/* What goes before the measure: more than an idle link lets pass at once. */
static const double warm_bytes = 160 << 10, measure_bytes = 512 << 10;
static const uint32_t least_warm_us = 15000, most_warm_us = 200000,
                      least_measure_us = 30000, most_measure_us = 120000,
                      unknown_warm_us = 30000, unknown_measure_us = 40000,
                      most_rtt_us = 300000;
/* What each flow may have in a queue (as long as its link needs for queue_s),
 * and all together. */
static const uint32_t queue_bytes = 1 << 20, least_window = 32 << 10,
                      slow_window = 16 << 10, least_part = 8 << 10,
                      most_queued = 256 << 10, most_window = 64 << 20,
                      unknown_queued = 128 << 10;
static const double queue_s = 0.002, slow_s = 0.01, alone_s = 0.03;
/* How often a flow's own queue must have passed before it is measured. */
static const double settling = 5;
/* Packets go in pieces of about piece_s, so that many arrive in a round. */
static const uint32_t least_piece = 2896, most_piece = 64 << 10,
                      unknown_piece = 8 << 10;
static const double piece_s = 0.001;
/* Of a path of which nothing is known yet. */
static const double unknown_bps = 10e9;
/* How long the next round waits at most for the queues of the last one. */
static const double most_empty_s = 0.5;
/* What finishing may take. */
#define RESERVE_NS (100 * TT_NS_PER_MS)
/* How much later the first rounds, of which nothing can be left out, may
 * end. */
#define MOST_LATE_NS (30 * TT_NS_PER_S)

/* How often, at most, somebody who could not be measured is looked for. */
#define MOST_LOOKS 3

/* A round after one with a flow that brought nothing takes twice as long, and
 * so on: where processors are busy a host may not run for so long. */
#define MOST_VAIN 3

/* More in a round, or longer, would be a mistake. */
#define FLOWS_PER_TRY 64
#define MOST_ROUND_US 20000000u

typedef struct rounds {
    tt_probe *p;
    tt_probe_round head;
    tt_probe_flow *flows; /* [head.n_flows] */
    tt_infer_rate *rates; /* of those that end here */
    tt_arena arena;       /* of a round: of all lists */
    /* Rank 0's. */
    tt_infer_round asked;
    tt_split split;
    tt_infer_flow sample; /* what split.c measures; asked then is this */
    uint32_t n_each;      /* connections of a flow in this round */
    bool is_sample;
    uint32_t *index;       /* [asked.n_flows]: its first in flows; TT_NONE: no
                            way */
    tt_infer_rate *all;    /* [n_ranks][head.n_flows] */
    tt_infer_rate *told;   /* [asked.n_flows] */
    uint32_t window_bytes; /* of most flows */
    /* The two longest rounds so far; one may have been a pause of some host. */
    uint64_t longest_ns, second_ns;
    bool is_in_doubt; /* a flow could not be measured */
    uint32_t n_vain;  /* rounds in a row with such a flow, up to MOST_VAIN */
    uint32_t n_looks;
    uint64_t empty_ns; /* when the queues of the last one will have passed */
} rounds;

static uint32_t clamp(double value, uint32_t least, uint32_t most)
{
    if (!(value > least))
        return least;
    return value < most ? (uint32_t)value : most;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* What the flow may have in queues. */
static double queue_of(const rounds *r, const tt_infer_flow *flow)
{
    double guess = flow->guess_bps,
           share = (double)queue_bytes / r->asked.n_flows;
    if (guess <= 0)
        return clamp(share, least_window, unknown_queued);
    if (flow->is_alone)
        return clamp(guess / 8 * alone_s, least_window, most_queued);
    double queue = guess / 8 * queue_s;
    uint32_t least = clamp(guess / 8 * slow_s, slow_window, least_window);
    return clamp(queue < share ? queue : share, least, most_queued);
}

/* On its path and in its queues, of each of its connections. */
static uint32_t window_of(const rounds *r, const tt_infer_flow *flow,
                          uint32_t rtt_us)
{
    double most_bps = flow->guess_bps > 0 ? 4 * flow->guess_bps : unknown_bps;
    double all = most_bps / 8 * rtt_us * 1e-6 + queue_of(r, flow);
    return clamp(all / r->n_each, slow_window, most_window);
}

/* Makes the round long enough for one flow. */
static void stretch(rounds *r, uint32_t i, uint32_t number)
{
    tt_probe_round *head = &r->head;
    const tt_infer_flow *flow = &r->asked.flows[i];
    double guess = flow->guess_bps;
    uint32_t rtt_us = r->p->marks[number].rtt_us;
    rtt_us = rtt_us < most_rtt_us ? rtt_us : most_rtt_us;
    uint32_t warm_us = unknown_warm_us, measure_us = unknown_measure_us;
    if (guess > 0) {
        warm_us = clamp(warm_bytes * 8e6 / fmax(guess, flow->link_bps),
                        least_warm_us, most_warm_us);
        measure_us = clamp(measure_bytes * 8e6 / guess, least_measure_us,
                           most_measure_us);
    }
    /* Alone it is as fast as it will be before its queue is full. */
    if (guess > 0 && !flow->is_alone)
        warm_us = larger(warm_us,
                         clamp(settling * 8e6 * queue_of(r, flow) / guess,
                               least_warm_us, most_warm_us));
    head->measure_us = larger(head->measure_us, measure_us + 2 * rtt_us);
    head->warm_us = larger(head->warm_us, warm_us + 10 * rtt_us);
    uint32_t window = window_of(r, flow, rtt_us);
    for (uint32_t k = 0; k < r->n_each; k++)
        r->flows[r->index[i] + k].window_bytes = window;
    if (!flow->is_alone)
        r->window_bytes = larger(r->window_bytes, window);
}

/* All flows have the same window, or those that share a link would not share it
 * evenly; but for those that shall have a part of it. */
static void set_window(rounds *r, uint32_t i)
{
    const tt_infer_flow *flow = &r->asked.flows[i];
    if (flow->is_alone)
        return;
    for (uint32_t k = 0; k < r->n_each; k++)
        r->flows[r->index[i] + k].window_bytes =
            clamp(flow->part * r->window_bytes, least_part, r->window_bytes);
}

static uint32_t piece_of(double guess)
{
    return guess > 0 ? clamp(guess / 8 * piece_s, least_piece, most_piece)
                     : unknown_piece;
}

static tutti_err make_room(rounds *r, tutti_diag *diag)
{
    const size_t n = r->head.n_flows + 1, n_asked = r->asked.n_flows + 1;
    const size_t n_all = r->p->job->n_ranks * n;
    bool is_root = r->p->job->rank == 0;
    tt_arena_free(&r->arena);
    r->flows = tt_arena_new(&r->arena, n, sizeof(*r->flows));
    r->rates = tt_arena_new(&r->arena, n, sizeof(*r->rates));
    bool is_made = r->flows && r->rates;
    if (is_root) {
        r->index = tt_arena_new(&r->arena, n_asked, sizeof(*r->index));
        r->told = tt_arena_new(&r->arena, n_asked, sizeof(*r->told));
        r->all = tt_arena_new(&r->arena, n_all, sizeof(*r->all));
        is_made = is_made && r->index && r->told && r->all;
    }
    return is_made ? TUTTI_OK : tt_probe_no_memory(diag);
}

static uint32_t *best_of(const rounds *r, uint32_t i)
{
    const tt_infer_flow *flow = &r->asked.flows[i];
    return &r->p->best[(size_t)flow->src * r->p->n_ports + flow->dst];
}

/* What is still in the queues would come before the next flows. */
static void let_pass(const rounds *r)
{
    uint64_t now_ns = tt_now_ns();
    uint64_t ns = r->empty_ns > now_ns ? r->empty_ns - now_ns : 0;
    struct timespec rest = {.tv_sec = (time_t)(ns / TT_NS_PER_S),
                            .tv_nsec = (long)(ns % TT_NS_PER_S)};
    if (ns > 0)
        nanosleep(&rest, NULL);
}

/* Would the next round pass the bound? */
static bool is_late(const rounds *r, uint64_t bound_ns)
{
    uint64_t used_ns = tt_now_ns() - r->p->begin_ns;
    return used_ns + (r->second_ns << r->n_vain) + RESERVE_NS > bound_ns;
}

/* What is to be measured: the sample, as long as split.c asks for it, then what
 * the inference would like. AGAIN: it is in asked; OK: nothing. */
static tutti_err ask(rounds *r, tutti_diag *diag)
{
    tutti_err err = tt_infer_next(r->p->infer, &r->asked, diag);
    uint32_t n = tt_split_next(&r->split);
    if (err != TUTTI_AGAIN || r->asked.n_flows == 0)
        return err == TUTTI_AGAIN ? TUTTI_OK : err;
    if (is_late(r, r->p->time_ns)) { /* what is left is for what must be */
        r->split.is_done = true;
        n = 0;
    }
    r->sample = r->asked.flows[0];
    r->sample.part = 1; /* it is alone */
    r->is_sample = n > 0 && *best_of(r, 0) != TT_NONE;
    r->n_each = r->is_sample ? n : tt_split_count(&r->split);
    if (r->is_sample) {
        /* What an idle link lets pass at once looks like a faster one. */
        if (r->split.n_told > 0 && r->split.bps[0] > 0)
            r->sample.guess_bps = r->sample.link_bps = r->split.bps[0];
        r->asked.flows = &r->sample;
        r->asked.n_flows = 1;
        r->asked.why = "one connection, or several";
    }
    return err;
}

/* The flows of what is asked. */
static void fill(rounds *r)
{
    uint32_t n = 0;
    r->window_bytes = 0;
    for (uint32_t i = 0; i < r->asked.n_flows; i++) {
        uint32_t number = *best_of(r, i);
        r->told[i] = (tt_infer_rate){0};
        r->index[i] = number == TT_NONE ? TT_NONE : n;
        for (uint32_t k = 0; k < r->n_each && number != TT_NONE; k++)
            r->flows[n++] =
                (tt_probe_flow){.number = number,
                                .is_free = r->p->marks[number].is_free,
                                .piece_bytes = piece_of(
                                    r->asked.flows[i].guess_bps / r->n_each)};
        if (number != TT_NONE)
            stretch(r, i, number);
    }
    for (uint32_t i = 0; i < r->asked.n_flows; i++) {
        if (r->index[i] != TT_NONE)
            set_window(r, i);
    }
    r->head.measure_us <<= r->n_vain;
}

/* Rank 0: the next round that has a flow; none when it is over. */
static tutti_err plan_round(rounds *r, tutti_diag *diag)
{
    tt_probe *p = r->p;
    for (r->head.n_flows = 0; r->head.n_flows == 0;) {
        r->head = (tt_probe_round){.number = p->n_rounds};
        tutti_err err = ask(r, diag);
        if (err != TUTTI_AGAIN)
            return err;
        p->is_cut = is_late(r, p->time_ns) &&
                    (is_late(r, p->time_ns + MOST_LATE_NS) ||
                     tt_infer_is_enough(p->infer));
        if (p->is_cut) {
            tt_infer_cut(p->infer);
            return TUTTI_OK;
        }
        for (uint32_t i = 0; i < r->asked.n_flows; i++)
            r->head.n_flows += *best_of(r, i) != TT_NONE ? r->n_each : 0;
        err = make_room(r, diag);
        if (err)
            return err;
        fill(r);
        if (r->head.n_flows == 0) /* nothing that could be measured */
            err = tt_infer_told(p->infer, r->told, r->asked.n_flows, diag);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

static void tell_progress(const rounds *r)
{
    uint32_t n = r->asked.n_likely > 0 ? r->asked.n_likely : 1;
    tt_probe *p = r->p;
    double done = (double)p->n_rounds / n;
    double time = (double)(tt_now_ns() - p->begin_ns) / (double)p->time_ns;
    done = done > time ? done : time;
    tt_probe_tell(p, r->asked.why, 10 + (uint32_t)(89 * (done < 1 ? done : 1)));
}

/* For who wonders what the network rests on. */
static void tell_flow(const rounds *r, uint32_t i)
{
    const tt_probe *p = r->p;
    const tt_infer_port *src = &p->ports[r->asked.flows[i].src];
    const tt_infer_port *dst = &p->ports[r->asked.flows[i].dst];
    TT_DEBUG("round %u, %s: %s %s to %s %s, %.4g Mbit/s, mean %.4g",
             r->head.number, r->asked.why, p->hosts[src->host].name, src->dev,
             p->hosts[dst->host].name, dst->dev, r->told[i].bps * 1e-6,
             r->told[i].mean_bps * 1e-6);
}

/* All connections of a flow. */
static tt_infer_rate rate_of(const rounds *r, uint32_t i)
{
    uint32_t n = r->head.n_flows;
    uint32_t host = r->p->ports[r->asked.flows[i].dst].host;
    const tt_infer_rate *rates = r->all + (size_t)r->p->hosts[host].rank * n +
                                 r->index[i];
    tt_infer_rate all = rates[0];
    for (uint32_t k = 1; k < r->n_each; k++) {
        all.mean_bps += rates[k].mean_bps;
        /* They take turns to pause; what they do when not is more. */
        all.bps = all.mean_bps;
    }
    return all;
}

/* The sample's rate: then it may be known how many connections fill a link. */
static void tell_split(rounds *r)
{
    tt_split *s = &r->split;
    tt_split_told(s, r->told[0].bps);
    uint32_t n = tt_split_count(s);
    if (!s->is_done || n == 1)
        return;
    tt_infer_sockets(r->p->infer, n);
    TT_INFO(
        "one connection does not fill a link: every flow is %u of them, and "
        "jobs use as many (TUTTI_SOCKETS)",
        n);
}

/* Rank 0: what the receivers have measured. */
static tutti_err take_rates(rounds *r, tutti_diag *diag)
{
    tt_probe *p = r->p;
    double wait_s = 0;
    bool is_vain = false;
    for (uint32_t i = 0; i < r->asked.n_flows; i++) {
        if (r->index[i] == TT_NONE)
            continue;
        const tt_infer_flow *flow = &r->asked.flows[i];
        r->told[i] = rate_of(r, i);
        double *most = &p->bps[(size_t)flow->src * p->n_ports + flow->dst];
        double bps = r->told[i].bps;
        bps = isfinite(bps) && bps > 0 ? bps : 0;
        is_vain |= !(bps > 0);
        *most = bps > *most ? bps : *most;
        tell_flow(r, i);
        double window = (double)r->n_each * r->flows[r->index[i]].window_bytes;
        if (bps > 0)
            wait_s = fmax(wait_s, 8 * window / bps);
    }
    r->is_in_doubt |= is_vain;
    r->n_vain = !is_vain                ? 0
                : r->n_vain < MOST_VAIN ? r->n_vain + 1
                                        : MOST_VAIN;
    r->empty_ns += tt_seconds_to_ns(fmin(wait_s, most_empty_s));
    if (!r->is_sample)
        return tt_infer_told(p->infer, r->told, r->asked.n_flows, diag);
    tell_split(r);
    return TUTTI_OK;
}

/* The same steps on every rank: tell, connect, go, measure, collect. */
static tutti_err run_round(rounds *r, tutti_diag *diag)
{
    tt_probe *p = r->p;
    size_t n = r->head.n_flows;
    uint64_t begin_ns = tt_now_ns();
    tt_traffic *f = NULL;
    tutti_err err = tt_boot_share(p->job->boot, r->flows, n * sizeof(*r->flows),
                                  diag);
    if (err)
        return err;
    memset(r->rates, 0, n * sizeof(*r->rates));
    for (size_t i = 0; i < n && !err; i++) {
        if (r->flows[i].number >= p->n_tries)
            err = tt_fail(diag, TUTTI_EPROTO,
                          "rank 0 asked for a flow that makes no sense");
    }
    if (!err && p->me != TT_NONE) {
        f = tt_traffic_open(p, &r->head, r->flows, r->rates);
        if (f)
            tt_traffic_connect(f);
        else
            err = tt_probe_no_memory(diag);
    }
    err = tt_probe_agree(p, err, diag); /* all are ready: go */
    if (!err) {
        tutti_err mine = f ? tt_traffic_run(f, diag) : TUTTI_OK;
        r->empty_ns = tt_now_ns();
        err = tt_probe_agree(p, mine, diag);
    }
    tt_traffic_close(f);
    if (!err)
        err = tt_boot_collect(p->job->boot, r->rates, n * sizeof(*r->rates),
                              r->all, diag);
    uint64_t ns = tt_now_ns() - begin_ns;
    if (ns > r->longest_ns) {
        r->second_ns = r->longest_ns;
        r->longest_ns = ns;
    } else if (ns > r->second_ns) {
        r->second_ns = ns;
    }
    return err;
}

/* Rank 0: what all do next. */
static tutti_err plan_next(rounds *r, tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    if (r->is_in_doubt && r->n_looks < MOST_LOOKS) {
        r->head = (tt_probe_round){.looks_again = 1};
        r->is_in_doubt = false;
        r->n_looks++;
    } else {
        err = plan_round(r, diag);
        if (r->head.n_flows > 0)
            let_pass(r);
    }
    if (err)
        tt_boot_fail(r->p->job->boot, err, diag);
    return err;
}

/* Of what rank 0 has told. */
static tutti_err check_head(const rounds *r, tutti_diag *diag)
{
    const tt_probe_round *head = &r->head;
    if (head->n_flows > FLOWS_PER_TRY * (uint64_t)r->p->n_tries)
        return tt_fail(diag, TUTTI_EPROTO,
                       "rank 0 asked for %u flows, which makes no sense",
                       head->n_flows);
    if (head->measure_us == 0 || head->measure_us > MOST_ROUND_US ||
        head->warm_us > MOST_ROUND_US - head->measure_us)
        return tt_fail(diag, TUTTI_EPROTO,
                       "rank 0 asked for a round of %u and %u us, which makes "
                       "no sense",
                       head->warm_us, head->measure_us);
    return TUTTI_OK;
}

static tutti_err run_rounds(rounds *r, tutti_diag *diag)
{
    tt_probe *p = r->p;
    bool is_root = p->job->rank == 0;
    for (;;) {
        tutti_err err = is_root ? plan_next(r, diag) : TUTTI_OK;
        if (err)
            return err;
        err = tt_boot_share(p->job->boot, &r->head, sizeof(r->head), diag);
        if (!err && r->head.looks_again) {
            err = tt_probe_look_again(p, diag);
            if (!err)
                continue;
        }
        if (err || r->head.n_flows == 0)
            return err;
        err = check_head(r, diag);
        if (!err && !is_root)
            err = make_room(r, diag);
        err = tt_probe_agree(p, err, diag);
        if (!err && is_root)
            tell_progress(r);
        if (!err)
            err = run_round(r, diag);
        if (!err && is_root)
            err = take_rates(r, diag);
        if (err && is_root) /* the others wait for the next round */
            tt_boot_fail(p->job->boot, err, diag);
        if (err)
            return err;
        p->n_rounds++;
    }
}

tutti_err tt_probe_rounds(tt_probe *p, tutti_diag *diag)
{
    rounds r = {.p = p, .arena = {.mem = p->mem}};
    tutti_err err = run_rounds(&r, diag);
    tt_arena_free(&r.arena);
    return err;
}
