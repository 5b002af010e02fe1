/* SPDX-License-Identifier: BSD-3-Clause
 * planner.c - the cost model, and the limits that all planners share.
 *
 * The network is flat: a message takes alpha seconds to set out and arrive,
 * beta seconds per byte at each end, and reducing takes gamma per byte. A rank
 * sends and receives at the same time, but only one message each way; of
 * several messages in one step the wire time of all but the first overlaps,
 * the work at the ends does not. Next: choose.c, predict.c. */
#include "plan/planner.h"

#include <math.h>

/* Slices under 2 KiB are mostly header; the engine does not cut them. */
#define LEAST_SLICE_BYTES 2048.0

tt_problem tt_problem_assumed(bool is_inside)
{
    static const tt_problem inside = {.alpha_s = 1e-6,
                                      .beta_s_per_byte = 1.0 / 8e9,
                                      .gamma_s_per_byte = 1.0 / 20e9};
    static const tt_problem across = {.alpha_s = 25e-6,
                                      .beta_s_per_byte = 1.0 / 1e9,
                                      .gamma_s_per_byte = 1.0 / 10e9};
    return is_inside ? inside : across;
}

tutti_err tt_problem_check(const tt_problem *p, tutti_diag *diag)
{
    if (p->n_ranks == 0)
        return tt_fail(diag, TUTTI_EINVAL, "there must be at least one rank");
    if (p->n_ranks > TT_MAX_RANKS)
        return tt_fail(diag, TUTTI_ELIMIT,
                       "%u ranks are more than the limit of %u", p->n_ranks,
                       TT_MAX_RANKS);
    if (!tt_coll_has_schedule(p->collective))
        return tt_fail(diag, TUTTI_ENOFIT, "%s has no schedule of its own",
                       tutti_coll_name(p->collective));
    if (tt_coll_has_root(p->collective) && p->root >= p->n_ranks)
        return tt_fail(diag, TUTTI_EINVAL,
                       "the root of %s, %u, is not one of the %u ranks",
                       tutti_coll_name(p->collective), p->root, p->n_ranks);
    if (p->topology && p->topology->n_ranks != p->n_ranks)
        return tt_fail(diag, TUTTI_EINVAL,
                       "the problem has %u ranks and its topology %u",
                       p->n_ranks, p->topology->n_ranks);
    return TUTTI_OK;
}

tutti_err tt_planner_check(const tt_planner *planner, const tt_problem *p,
                           tutti_diag *diag)
{
    const char *reason = planner->why_not(p);
    if (!reason)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ENOFIT,
                   "planner %s does not fit %s on %u ranks: %s", planner->name,
                   tutti_coll_name(p->collective), p->n_ranks, reason);
}

tutti_err tt_plan_builder(const tt_problem *p, uint64_t n_parts,
                          const tt_mem *mem, tt_builder **out, tutti_diag *diag)
{
    const tt_sched_head head = {
        .collective = p->collective,
        .n_ranks = p->n_ranks,
        .root = tt_coll_has_root(p->collective) ? p->root : TT_NONE,
        .n_parts = n_parts,
    };
    return tt_builder_create(mem, &head, out, diag);
}

const char *tt_why_no_trees(const tt_problem *p)
{
    return tt_coll_has_trees(p->collective)
               ? NULL
               : "it has no gather, scatter or all-to-all";
}

const char *tt_why_no_shares(const tt_problem *p)
{
    bool has_root = tt_coll_has_root(p->collective);
    return tt_coll_has_trees(p->collective) && !has_root
               ? NULL
               : "it has only all-reduce, reduce-scatter and all-gather";
}

const char *tt_too_many(uint64_t n_transfers)
{
    return n_transfers > TT_MAX_TRANSFERS
               ? "more transfers than one schedule can hold"
               : NULL;
}

void tt_plan_chunks(tt_builder *b, uint32_t n)
{
    tt_builder_parts(b, n);
    tt_builder_equal_chunks(b, n);
}

uint32_t tt_chunks_by_rank(const tt_problem *p)
{
    return p->collective == TUTTI_ALL_REDUCE ? p->n_ranks : 1;
}

tt_film tt_film_of(const tt_problem *p, tt_builder *b, const uint32_t *rank_at)
{
    return (tt_film){
        .b = b,
        .rank_at = rank_at,
        .is_forth = tt_coll_reduces(p->collective),
        .is_back = p->collective == TUTTI_ALL_REDUCE ||
                   !tt_coll_reduces(p->collective),
    };
}

void tt_film_add(const tt_film *f, uint32_t step, uint32_t chunk, uint32_t from,
                 uint32_t to)
{
    uint32_t src = f->rank_at ? f->rank_at[from] : from;
    uint32_t dst = f->rank_at ? f->rank_at[to] : to;
    uint32_t last = f->first + (f->is_forth ? 2 : 1) * f->n_steps - 1;
    if (f->is_forth)
        tt_builder_transfer(f->b, f->first + step, chunk, src, dst,
                            TT_XFER_REDUCE);
    if (f->is_back)
        tt_builder_transfer(f->b, last - step, chunk, dst, src, TT_XFER_COPY);
}

static double more_messages(const tt_problem *p)
{
    return p->more_messages > 0 ? p->more_messages : TT_MORE_MESSAGES;
}

double tt_cost_alpha(const tt_problem *p, double steps, double messages)
{
    return p->alpha_s * (steps + more_messages(p) * (messages - steps));
}

/* A hub needs a connection with everybody, and what follows was measured for
 * small vectors. With more ranks or bytes than this it is charged as if there
 * was no crowd, so that others are taken. */
static const uint32_t most_hub_ranks = 64;
static const uint64_t most_hub_bytes = 64 << 10;

static double crowd_of(const tt_problem *p)
{
    return p->crowd > 1 && p->n_ranks <= most_hub_ranks &&
                   p->size_bytes <= most_hub_bytes
               ? p->crowd
               : 1;
}

/* What a message from or to the hub takes of alpha: all processors together an
 * n-th, as a step has n of them; the hub alone, whose work is half of it, and
 * who shares its processor with nobody as the others wait, 1 / 2k. */
static double hub_share(const tt_problem *p, double k)
{
    return fmax(1.0 / p->n_ranks, 1 / (2 * k));
}

/* Measured between hosts, beside that work. */
static const double hub_wait = 0.2;

/* Two ranks to a processor each have it once in a call by doubling, as those of
 * a step run at the same time (engine/drive.c). By that alpha was measured:
 * three quarters of log2 n alphas are the turns, the rest is log2 n
 * messages. */
static double turns_s(const tt_problem *p)
{
    return p->alpha_s * tt_log2_up(p->n_ranks) * (1 - more_messages(p));
}

double tt_cost_step(const tt_problem *p, double messages)
{
    return p->is_paired ? turns_s(p) + p->alpha_s * more_messages(p) * messages
                        : tt_cost_alpha(p, 1, messages);
}

/* Where k ranks share a processor alpha is what k messages take it, as all
 * ranks send in a step; to and from the hub there are fewer. Where they are
 * paired each of its steps is a turn. Without a crowd nothing was measured: one
 * message is charged after the other. */
double tt_cost_hub(const tt_problem *p, double others)
{
    const double k = crowd_of(p), work = others * hub_share(p, k);
    if (k <= 1)
        return p->alpha_s * others;
    return p->is_crowd_inside ? tt_cost_step(p, work)
                              : p->alpha_s * (work + hub_wait);
}

/* Measured between hosts with 2 and 4 ranks to a processor: 0.43 and 0.2. */
double tt_cost_hub_share(const tt_problem *p)
{
    const double k = crowd_of(p);
    return k > 1 && p->is_crowd_inside ? hub_share(p, k)
                                       : 1 / (1 + (k - 1) * 4 / 3);
}

double tt_cost_bytes(const tt_problem *p, double moved, double reduced)
{
    return (double)p->size_bytes *
           (moved * p->beta_s_per_byte + reduced * p->gamma_s_per_byte);
}

double tt_cost_laps(const tt_problem *p, double messages)
{
    double steps = p->n_ranks - 1.0;
    double share = steps / p->n_ranks;
    double lap_s = tt_cost_alpha(p, steps, messages * steps);
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return tt_cost_alpha(p, 2 * steps, 2 * messages * steps) +
               tt_cost_bytes(p, 2 * share, share);
    case TUTTI_REDUCE_SCATTER:
        return lap_s + tt_cost_bytes(p, share, share);
    default: /* all-gather */
        return lap_s + tt_cost_bytes(p, share, 0);
    }
}

/* hops * (alpha + hop_s / k) + alpha * (1 + more * (k - 1)) + total_s has its
 * least value at k = sqrt(hops * hop_s / (more * alpha)). */
double tt_cost_pipelined(const tt_problem *p, double hops, double hop_s,
                         double total_s)
{
    double most = fmax(1, (double)p->size_bytes / LEAST_SLICE_BYTES);
    double slices = most;
    if (p->alpha_s > 0)
        slices = sqrt(hops * hop_s / (more_messages(p) * p->alpha_s));
    slices = fmin(fmax(1, slices), most);
    return hops * (p->alpha_s + hop_s / slices) + tt_cost_alpha(p, 1, slices) +
           total_s;
}
