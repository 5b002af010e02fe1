/* SPDX-License-Identifier: BSD-3-Clause
 * planner.h - what the planners of this folder share: arithmetic on ranks, the
 * cost model behind `guess`, limits. Private to src/plan. */
#ifndef TT_PLAN_PLANNER_H
#define TT_PLAN_PLANNER_H

#include "plan/plan.h"

extern const tt_planner tt_planner_blueconnect, tt_planner_flexreduce,
    tt_planner_flexreduce_bw;
extern const tt_planner tt_planner_ring, tt_planner_biring, tt_planner_doubling,
    tt_planner_halving, tt_planner_halfway, tt_planner_dbtree,
    tt_planner_direct, tt_planner_forest, tt_planner_multitree,
    tt_planner_relay, tt_planner_ring2d, tt_planner_hdrm, tt_planner_star,
    tt_planner_oneshot;

/* Ranks live on a circle: r + k and r - k, for r < n and k <= n. */
static inline uint32_t tt_rank_add(uint32_t r, uint32_t k, uint32_t n)
{
    return (r + k) % n;
}

static inline uint32_t tt_rank_sub(uint32_t r, uint32_t k, uint32_t n)
{
    return (r + n - k) % n;
}

/* Errors of a problem that no planner can help: ELIMIT, EINVAL, ENOFIT. */
tutti_err tt_problem_check(const tt_problem *p, tutti_diag *diag);

/* ENOFIT with the planner's own reason when it does not fit. */
tutti_err tt_planner_check(const tt_planner *planner, const tt_problem *p,
                           tutti_diag *diag);

/* ENOFIT, about who (table.c has it): a transfer of s has no route, as hosts
 * between the two do not forward. */
tutti_err tt_plan_check_routes(const char *who, const tt_problem *p,
                               const tutti_schedule *s, tutti_diag *diag);

/* The builder of a schedule of p whose blocks have n_parts parts. Errors:
 * ENOMEM, ELIMIT. */
tutti_err tt_plan_builder(const tt_problem *p, uint64_t n_parts,
                          const tt_mem *mem, tt_builder **out,
                          tutti_diag *diag);

/* For planners that send along rings or trees, which serve a collective when
 * every value goes to or comes from all: NULL, or the reason why not. */
const char *tt_why_no_trees(const tt_problem *p);

/* For those that halve, or have a chunk for each rank: likewise. */
const char *tt_why_no_shares(const tt_problem *p);

/* NULL when one schedule can hold so many transfers, else the reason. */
const char *tt_too_many(uint64_t n_transfers);

/* n parts in each block, and each of them a chunk. */
void tt_plan_chunks(tt_builder *b, uint32_t n);
/* All-reduce: one chunk per rank, of the whole vector. Else one per block. */
uint32_t tt_chunks_by_rank(const tt_problem *p);

/* A reduction, and the same backwards as a distribution: of an all-reduce both,
 * one after the other. Places are what rank_at[] names. */
typedef struct tt_film {
    tt_builder *b;
    const uint32_t *rank_at; /* NULL: places are ranks */
    bool is_forth, is_back;  /* wanted: as told, and backwards */
    uint32_t first;          /* step */
    uint32_t n_steps;        /* of one of them */
} tt_film;
/* What of the two the collective is. */
tt_film tt_film_of(const tt_problem *p, tt_builder *b, const uint32_t *rank_at);
/* One transfer, forth as a reduction, back as a copy. */
void tt_film_add(const tt_film *f, uint32_t step, uint32_t chunk, uint32_t from,
                 uint32_t to);

/* stripe.c. Replaces a schedule that knows only one way between two ranks by
 * one that uses all their network cards, where that is predicted to be faster.
 * When it fails *s is NULL. */
tutti_err tt_stripe(tutti_schedule **s, const tt_problem *p, const tt_mem *mem,
                    tutti_diag *diag);

/* Predictions that differ by less than this are equal: the model is not so
 * good that it could tell. */
#define TT_EQUAL_GUESS 1.01

/* --------------------------------------------------------- candidate.c -- */

typedef struct tt_candidate {
    const tt_planner *planner;
    tutti_schedule *sched;
    double time_s; /* INFINITY: more than the problem's most_s */
    double worst;  /* by cautious.c, where links are doubtful; else 0 */
} tt_candidate;

/* Some ranks do not reach each other, as hosts between them do not forward. */
bool tt_wants_links(const tt_problem *p);
/* NULL: auto asks it. */
const char *tt_why_not_auto(const tt_planner *planner, const tt_problem *p,
                            bool wants_links);

/* ------------------------------------------------------------ choose.c -- */

/* Hears what becomes of each row of the table. what->sched is there for as long
 * as the call, NULL where why_not says why it does not fit. */
typedef struct tt_audience {
    void (*told)(void *ctx, size_t row, const tt_candidate *what,
                 const char *why_not);
    void *ctx;
} tt_audience;

/* On a topology, the best of all that fit: who asks owns its schedule. With an
 * audience also those are predicted that cannot win; the outcome is the same.
 * Errors: ENOFIT, ENOMEM. */
tutti_err tt_choose_auto(const tt_problem *p, const tt_mem *mem,
                         const tt_audience *audience, tt_candidate *best,
                         tutti_diag *diag);
/* On a flat network: the ranks wait for processors, and direct is taken,
 * whatever is charged. */
bool tt_choose_few_steps(const tt_problem *p);

/* ---------------------------------------------------------- cautious.c -- */

/* As tt_choose_auto(), where the rates of some links are doubtful. */
tutti_err tt_choose_cautiously(const tt_problem *p, const tt_mem *mem,
                               const tt_audience *audience, tt_candidate *best,
                               tutti_diag *diag);

/* ----------------------------------------------------------- predict.c -- */

/* Seconds of s on p's topology, added up (estimate.c): what tt_plan_predict()
 * says where nothing is simulated. Errors: ENOMEM. */
tutti_err tt_plan_add_up(const tutti_schedule *s, const tt_problem *p,
                         const tt_mem *mem, double *seconds, tutti_diag *diag);

/* Of `seconds`, which tt_plan_predict() has said, what is what. Errors: those
 * of tt_simulate. */
tutti_err tt_plan_split(const tutti_schedule *s, const tt_problem *p,
                        const tt_mem *mem, double seconds, tt_charge *out,
                        tutti_diag *diag);

/* ------------------------------------------------------------- the cost -- */

/* The rank that is busiest passes `steps` steps one after the other and sends
 * (or receives, whichever is more) `messages` messages in them. */
double tt_cost_alpha(const tt_problem *p, double steps, double messages);
/* One step in which each rank sends so many messages, each to another rank, and
 * waits for as many. */
double tt_cost_step(const tt_problem *p, double messages);
/* A step in which one rank receives a message of each of `others`, or sends
 * them one; and the share of the time that as many bytes would take it if the
 * others were as busy. */
double tt_cost_hub(const tt_problem *p, double others);
double tt_cost_hub_share(const tt_problem *p);
/* It moves and reduces these shares of the whole vector. */
double tt_cost_bytes(const tt_problem *p, double moved, double reduced);
/* Round a ring once or (all-reduce) twice; in each step a rank sends so many
 * messages. */
double tt_cost_laps(const tt_problem *p, double messages);
/* A chain or tree: the first slice passes `hops` hops, the whole vector
 * unsliced would take hop_s seconds in each; then the busiest rank works for
 * total_s seconds. With the best number of slices. */
double tt_cost_pipelined(const tt_problem *p, double hops, double hop_s,
                         double total_s);

/* ------------------------------------------------------- the estimate -- */

/* estimate.c. Seconds of the vector of p on its topology: the bytes of all
 * steps one after the other; their latencies; what the busiest link works; what
 * messages cost the rank that in each step sends or receives most of them. */
typedef struct tt_estimate {
    double bytes_s, latency_s, busy_s, overhead_s;
} tt_estimate;
/* Errors: ENOMEM. The ranks of s are the topology's. */
tutti_err tt_estimate_find(const tutti_schedule *s, const tt_problem *p,
                           const tt_mem *mem, tt_estimate *out,
                           tutti_diag *diag);
/* Whether s must take longer than p->most_s, as its busiest link alone does:
 * known without a simulation. Errors: ENOMEM. */
tutti_err tt_estimate_is_over(const tutti_schedule *s, const tt_problem *p,
                              const tt_mem *mem, bool *out, tutti_diag *diag);
/* Pipelined in fronts of this share of the vector. */
double tt_estimate_s(const tt_estimate *e, double front);

/* ------------------------------------------------------- the butterfly -- */

/* butterfly.c. The chunks by rank, and what reduces chunk c of all ranks'
 * values to rank c, or distributes it from there, or both, in tt_log2_up(n)
 * steps each. rank_of: of each number 0 .. n - 1 of a power of two; neighbours
 * in the lowest bit exchange the largest part. NULL: ranks are the numbers, and
 * of an all-reduce chunk c meets at another rank than c, as nobody asks at
 * which. */
void tt_butterfly_plan(const tt_problem *p, const uint32_t *rank_of,
                       tt_builder *b);

/* What the steps of a reduction cost, or of a distribution, without the bytes.
 */
double tt_butterfly_alpha(const tt_problem *p);

/* halfway.c. An all-reduce with 2^k chunks of k halvings; 0: only doubling. */
void tt_halfway_plan(const tt_problem *p, uint32_t k, tt_builder *b);
double tt_halfway_cost(const tt_problem *p, uint32_t k);

#endif
