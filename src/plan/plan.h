/* SPDX-License-Identifier: BSD-3-Clause
 * plan.h - planners: pure functions from a problem to a schedule.
 *
 * The folder has four kinds of files:
 *   planners     ring, biring, ring2d, hdrm, doubling, halving, halfway,
 *                dbtree, direct, star, oneshot, relay, blueconnect,
 *                flexreduce (and -bw), multitree, forest
 *   their parts  NAME_*.c belongs to the planner NAME: blueconnect_factor.c,
 *                multitree_grow.c
 *   shared       what several planners build on: planner.h (limits, the cost
 *                of flat networks), butterfly.c, ringorder.h (the ranks around
 *                a ring), hierarchy.h (the ranks in a tree), levels.h (along
 *                that tree), shares.h (uneven shares), stripe.c (several cards)
 *   the choice   table.c (all planners), choose.c (which), cautious.c (which
 *                where links are doubtful), candidate.c (what both ask of
 *                each), explain.c (why), charge.c (what messages and bytes
 *                cost), predict.c and estimate.c (what a schedule takes on a
 *                topology)
 * What the best planner could reach is not here but in bound/bound.h.
 *
 * Adding a planner = its files and one row in table.c; the command line, the
 * settings, `auto`, the property tests and the benches loop over the table.
 * No I/O, clock, environment or globals: same problem, same bytes.
 *
 * Next: ring.c (a planner), planner.h, choose.c. */
#ifndef TT_PLAN_PLAN_H
#define TT_PLAN_PLAN_H

#include <string.h>

#include "sim/sim.h"

/* What a job says of how its vectors are cut (TUTTI_FRONT, ...). Zeros: its
 * ranks sit on several hosts, and nothing is said. */
typedef struct tt_cutting {
    bool is_inside;                           /* all ranks on one host */
    uint64_t front_bytes, front_window_bytes; /* 0: by size */
    uint64_t staging_max_bytes;               /* 0: no limit */
    uint32_t window;                          /* W; 0: TT_USUAL_WINDOW */
    uint32_t max_payload;                     /* of a message; 0: no limit */
    /* Between hosts whose links are as fast as the processors: bytes that pass
     * in the time of one message; 0: they are slower, or it is not known. */
    uint64_t message_bytes;
} tt_cutting;

/* Schedules that somebody wrote: planners read no files, who calls them
 * does. */
typedef struct tt_shelf {
    /* What the file at `path` holds, proven; it lives as long as ctx. Errors:
     * ECONFIG with a sentence, ENOMEM. */
    tutti_err (*find)(void *ctx, const char *path, const tutti_schedule **out,
                      tutti_diag *diag);
    void *ctx;
} tt_shelf;

/* What to plan for. With a topology, that is the network. Without one it is
 * flat: n equal ranks, each pair joined by a path of alpha seconds and beta
 * seconds per byte, one message at a time each way. gamma: seconds per byte
 * reduced, in both cases. */
typedef struct tt_problem {
    tutti_coll collective;
    uint32_t n_ranks, root; /* root TT_NONE where there is none */
    /* Of the whole vector: all blocks together; all-to-all: the blocks that
     * one rank sends. */
    uint64_t size_bytes;
    double alpha_s, beta_s_per_byte, gamma_s_per_byte;
    /* On a flat network: what one more message of the same step costs, in
     * alphas; 0: as usual. */
    double more_messages;
    /* What a message costs a rank that sends or receives it, beside the
     * network. Counts on a topology (alpha has it already), and there for the
     * first front: that of others hides behind what is on the way. */
    double overhead_s;
    /* All ranks sit on one machine, whose processors they share: what a message
     * of every rank takes of them; its links are limited by token buckets,
     * which make up for waits. 0: each host is a machine of its own. The time
     * counts beside overhead_s, for vectors of one front. */
    double shared_s;
    uint64_t burst_bytes;           /* that a token bucket holds; 0: no such */
    const tutti_topology *topology; /* NULL: flat */
    const tt_routes *routes; /* of the topology; NULL exactly when flat */
    /* Reduce-scatter and all-gather: the blocks' sizes that the caller
     * prescribes, [n_ranks]; NULL: equal. */
    const uint64_t *block_bytes;
    tt_cutting cutting;          /* how a job would cut it */
    const tt_progress *progress; /* NULL: nobody listens */
    /* What takes longer than this is not asked for: which of two such
     * schedules is better need not be found out. 0: all are asked for. */
    double most_s;
    const tt_shelf *shelf; /* for rules that name files; NULL: none is read */
    bool has_job_rule;     /* the rule is for all calls of a job */
    /* The ranks of a flat network wait for processors, not for links: so many
     * ranks for each. crowd 0: as 1. is_crowd_inside: all are on one host. */
    bool is_crowd, is_crowd_inside;
    bool is_paired; /* two for each, and they speak through memory */
    double crowd;
} tt_problem;

/* What one more message of the same step costs, in latencies: about a quarter
 * of a message's latency is work in the sender and the receiver. */
#define TT_MORE_MESSAGES 0.25

/* A flat problem with the alpha, beta and gamma that are assumed until somebody
 * knows better: of ranks on one host (through memory), or across hosts
 * (TCP). */
tt_problem tt_problem_assumed(bool is_inside);

/* ------------------------------------------------------------ charge.c -- */

/* What is known of the ranks, beside their network. */
typedef struct tt_place {
    bool is_inside;    /* all on one host */
    bool is_memory;    /* likewise, and they speak through memory */
    bool is_crowded;   /* all on one host, with fewer processors than ranks */
    bool is_paired;    /* with two ranks to each, which speak through memory */
    double crowd;      /* ranks to a processor, if all share those of a
                          machine; else 1 */
    double cpus;       /* several hosts, all of them on one machine: processors
                          to a rank; else 0 */
    tutti_costs costs; /* message_ns 0: not known */
} tt_place;

/* What messages, bytes and reducing cost there, into p, which has its topology
 * or none; whose latencies and rates are the network's, what is beyond them the
 * ranks'. Nothing else is set. Errors: ENOMEM. */
tutti_err tt_plan_charge(tt_problem *p, const tt_place *here);
/* How vectors are cut there, beside what a job says. */
void tt_plan_cut_for(tt_cutting *c, const tt_place *here, bool is_flat);

/* Seconds, and of what: what messages take with few bytes, what their bytes
 * add, what reducing adds. */
typedef struct tt_charge {
    double time_s, messages_s, bytes_s, reduce_s;
} tt_charge;

typedef struct tt_planner {
    const char *name, *blurb;
    /* The networks and N that it must fit, one phrase for people; the test of
     * the table (tests/prop/topology_plan_test.c) holds each planner to it. */
    const char *fits;
    /* Cheap. NULL: fits; else one phrase why not, static text. */
    const char *(*why_not)(const tt_problem *p);
    /* Predicted seconds on a flat network, closed form with pipelining where
     * the engine does. NULL: it needs a topology (and why_not says so). */
    double (*guess)(const tt_problem *p);
    /* Adds all chunks and transfers; called only when it fits. The builder has
     * one part per block until it is told otherwise, scratch is freed behind
     * it. Errors: ENOMEM, for which the caller has a sentence, and others. */
    tutti_err (*build)(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag);
    /* It says by which rail each transfer goes; for others stripe.c does. */
    bool knows_rails;
    /* It lets neighbours send only, where the network has a way to do so:
     * `auto` asks no others where some ranks do not reach each other. */
    bool uses_links;
    /* Above so many ranks it plans for a minute or more, so only those who
     * name it get it, not `auto`; 0: there is no such number. */
    uint32_t auto_ranks;
} tt_planner;

/* ------------------------------------------------------------- table.c -- */

extern const tt_planner *const tt_planners[];        /* ends with NULL */
const tt_planner *tt_planner_find(const char *name); /* NULL: no such */
size_t tt_plan_rows(void);                           /* without the NULL */

/* Builds, seals. Errors: ENOFIT with the reason, ENOMEM, ELIMIT, EINVAL (no
 * ranks, or the root is none of them, or not the topology's N). */
tutti_err tt_plan_build(const tt_planner *planner, const tt_problem *p,
                        const tt_mem *mem, tutti_schedule **out,
                        tutti_diag *diag);

/* ----------------------------------------------------------- predict.c -- */

/* What a job says for a vector of so many bytes (all blocks together), with
 * nothing left open: then 0 front_window_bytes are no window. fronts: how many
 * are in the pipeline when it is full (tt_plan_pipeline); 0: not known. What
 * the engine performs and what is predicted are both cut by this. */
tt_cutting tt_cutting_for(const tt_cutting *asked, uint64_t total_bytes,
                          double fronts);

/* Seconds of a schedule on p's topology: links are queues; cut, credited and
 * windowed as the engine would be (tt_plan_sim_opts), with fewer slices where
 * the simulation would be long. Errors: those of tt_simulate. */
tutti_err tt_plan_predict(const tutti_schedule *s, const tt_problem *p,
                          const tt_mem *mem, double *seconds, tutti_diag *diag);
/* How many fronts are on the way when s runs on p's topology at full speed;
 * at least 1. Errors: those of tt_simulate. */
tutti_err tt_plan_pipeline(const tutti_schedule *s, const tt_problem *p,
                           const tt_mem *mem, double *fronts, tutti_diag *diag);
/* How the engine cuts and windows p's vector when this schedule performs it on
 * p's topology (tt_cutting_for; simulator.md). Errors: those of
 * tt_simulate. */
tutti_err tt_plan_sim_opts(const tutti_schedule *s, const tt_problem *p,
                           const tt_mem *mem, tutti_sim_opts *out,
                           tutti_diag *diag);

/* ------------------------------------------------------------ choose.c -- */

/* Does the rule leave it to what is predicted? So does NULL, and "". */
static inline bool tt_rule_is_auto(const char *rule)
{
    return !rule || !rule[0] || strcmp(rule, "auto") == 0;
}

/* The planner that `rule` names for p: a name; "auto", NULL or "" (least time
 * among those that fit; times within 1 % are equal, and the first in the table
 * wins); or ranges over size_bytes, "0-4K:doubling,4K-:ring" (a size in no
 * range, or a named planner that does not fit the collective when it was
 * chosen by a range: auto). choose.c has the grammar. Flat problems only: auto
 * goes by the closed forms. Where the rule names a file, tt_plan_written()
 * comes first; this is who plans what its schedule is not for. Errors: ECONFIG
 * (bad rule), ENOFIT, and those of tt_plan_build's problem. */
tutti_err tt_plan_choose(const char *rule, const tt_problem *p,
                         const tt_planner **out, tutti_diag *diag);

/* "ring 1.2 ms, doubling 3 ms": what each planner that fits a flat problem is
 * charged. */
void tt_plan_charges(const tt_problem *p, char *text, size_t size);

/* The schedule of the file that the rule names for p (file:PATH); the shelf's.
 * NULL: it names none, or one that is for another collective, root or number of
 * ranks, in a range; or, in a rule for all calls, for another collective or
 * root. Errors: ENOFIT (it is for others all the same), ECONFIG (bad rule),
 * those of the shelf. */
tutti_err tt_plan_written(const char *rule, const tt_problem *p,
                          const tutti_schedule **out, tutti_diag *diag);

/* The same with the schedule, and on any network: with a topology, auto builds
 * and predicts every planner that fits. *chosen may be NULL; its name is "file"
 * for a schedule that was written. */
tutti_err tt_plan_make(const char *rule, const tt_problem *p, const tt_mem *mem,
                       tutti_schedule **out, const tt_planner **chosen,
                       tutti_diag *diag);

/* ----------------------------------------------------------- explain.c -- */

/* Of every planner of the table, as `auto` finds it out: what it is charged,
 * and why it is chosen or not. */
typedef struct tt_explained {
    const tt_planner *planner;
    bool fits, is_chosen;
    /* Where links are doubtful: how many times as long as the best plan that
     * caution may take it takes, in the reading where that is worst; INFINITY:
     * it is too slow. 0: no link is doubtful. */
    double worst;
    uint64_t n_transfers; /* 0: not built */
    tt_charge charge; /* where it fits and could be predicted: time_s >= 0 */
    char why[240];
} tt_explained;
/* out: one for each row (tt_plan_rows()), and one for the end, whose planner is
 * NULL. Errors: as tt_plan_make by auto. */
tutti_err tt_plan_explain(const tt_problem *p, const tt_mem *mem,
                          tt_explained *out, tutti_diag *diag);

#endif
