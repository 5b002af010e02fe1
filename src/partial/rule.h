/* SPDX-License-Identifier: BSD-3-Clause
 * rule.h - who averages with whom: the controller's mind, without its body.
 *
 * Workers announce that they have finished a step; the rule decides groups.
 * It is a pure state machine: no sockets, no clock (time is an argument and
 * never runs backwards), no randomness. The same events give the same groups,
 * so a recorded log replays (grouplog.c), and a bench can ask it about a
 * thousand workers that do not exist.
 *
 * partial.md has the rules in prose. In short, of the workers that are
 * ready, in the order in which they became ready:
 *   the first P form a group;
 *   unless the last `window` groups leave the workers in several components
 *   (the graph is frozen): then the group must have a member of a second
 *   component, and waits for one for a bounded time;
 *   among several that would do, those on the host of the first one go first;
 *   where they are at several sites, groups are of one site, and now and then
 *   of everybody who is ready, as often as it costs little; where P are not
 *   ready, a group of min_group goes after soft_wait, and whoever is ready
 *   after max_wait; every recentre_every iterations, and at the end, everybody
 *   alive is one group, for a bounded time.
 *
 * Next: rule.c, rulestate.h. */
#ifndef TT_PARTIAL_RULE_H
#define TT_PARTIAL_RULE_H

#include "base/str.h"

#define TT_NEVER UINT64_MAX
/* Limits, checked. */
#define TT_RULE_WORKERS_MAX 16384u
#define TT_RULE_WINDOW_MAX (1u << 20)
#define TT_RULE_WAIT_MAX (UINT64_C(1) << 62) /* ns */
#define TT_RULE_EVERY_MAX (UINT64_C(1) << 40)
/* An announcement goes no further beyond the iteration at which the worker's
 * last group left it; its first: beyond the greatest of the others'. The first
 * of all may go on from a checkpoint. */
#define TT_RULE_JUMP_MAX (UINT64_C(1) << 20)
#define TT_RULE_FIRST_MAX (UINT64_C(1) << 40)
/* The default of end_wait_ns, for the last group of all. */
#define TT_RULE_END_WAIT_NS (UINT64_C(300000000000))

/* All zero means default, but for n. Times in nanoseconds. */
typedef struct tt_rule_opts {
    uint32_t n;          /* workers that are there at the start */
    uint32_t most;       /* numbers of workers go up to it; 0: n */
    uint32_t group_size; /* P; 0: chosen while it runs */
    uint32_t min_group;  /* 0: 2 */
    uint32_t window;     /* groups of history; 0: 4 ceil((n-1)/(P-1)) */
    bool is_dynamic;     /* weights by staleness; else 1/P */
    bool is_blind;       /* looks at no history: for comparison only */
    bool adapts;         /* soft_wait is a quarter of a step; 0 if P is all, or
                            if all go ahead */
    double decay;        /* 0: 0.8 */
    uint64_t soft_wait_ns, max_wait_ns; /* 0: none, 10 s */
    uint64_t join_wait_ns;              /* frozen; 0: twice a step */
    uint64_t recentre_every;            /* iterations; 0: never */
    uint64_t end_wait_ns;               /* 0: TT_RULE_END_WAIT_NS */
    uint64_t start_wait_ns;             /* for n workers; 0: 60 s */
    uint64_t first_group; /* so many were made by another rule before */
} tt_rule_opts;

typedef tutti_group_kind tt_group_kind;
const char *tt_group_kind_name(tt_group_kind kind);
typedef tutti_group_member tt_group_member;
typedef tutti_group_decision tt_decision;
typedef tutti_partial_metrics tt_rule_metrics;

/* Called inside the function that made it; must not call the rule. */
typedef struct tt_rule_up {
    tutti_group_fn decided;
    void *ctx;
} tt_rule_up;

typedef struct tt_rule tt_rule;

/* Errors: EINVAL (a bad option, with a sentence), ENOMEM. */
tutti_err tt_rule_create(const tt_rule_opts *opts, const tt_rule_up *up,
                         const tt_mem *mem, tt_rule **out, tutti_diag *diag);
void tt_rule_free(tt_rule *rule); /* accepts NULL */

/* As text, " name value" for each that is not 0; and of such a text. */
void tt_rule_opts_write(const tt_rule_opts *o, tt_str *out);
bool tt_rule_opts_read(char *text, tt_rule_opts *out);

/* With the defaults put in. */
const tt_rule_opts *tt_rule_opts_of(const tt_rule *rule);

/* From now on every event and every group is written there as a line. NULL:
 * no more. */
void tt_rule_record(tt_rule *rule, tt_str *log);

/* Events. A worker that is not there, or not in the state for it, gives
 * EINVAL, and nothing has happened. Times must not decrease. A worker may join
 * by any number under opts.most; there is memory for the greatest that has
 * come. ENOMEM: nothing has happened. */

enum {
    TT_JOIN_CURRENT = 1, /* it has the current weights */
    TT_JOIN_AHEAD = 2,   /* it computes while its group works */
    TT_JOIN_LIFE = 8     /* from this bit on: its incarnation; 0: the next */
};
/* place: equal for workers of one host; its upper half, the site, for those
 * that reach each other cheaply (0: not known). *is_newcomer (may be NULL):
 * others have averaged without it; its model has no weight in the first group,
 * from which it gets theirs. */
tutti_err tt_rule_join(tt_rule *rule, uint32_t worker, uint64_t place,
                       uint32_t flags, uint64_t now, bool *is_newcomer);
/* ELIMIT: the iteration is beyond TT_RULE_JUMP_MAX; nothing has happened. */
tutti_err tt_rule_announce(tt_rule *rule, uint32_t worker, uint64_t iteration,
                           bool is_last, uint64_t now);
/* The member has the group's result, or (well false) the group broke. */
tutti_err tt_rule_done(tt_rule *rule, uint32_t worker, uint64_t group,
                       bool well, uint64_t now);
tutti_err tt_rule_leave(tt_rule *rule, uint32_t worker, bool is_dead,
                        uint64_t now);
/* Time has passed. */
void tt_rule_tick(tt_rule *rule, uint64_t now);
/* When the next tick could decide something; TT_NEVER: not before an event. */
uint64_t tt_rule_deadline(const tt_rule *rule);

/* What a worker is in; of any number. */
uint32_t tt_rule_incarnation(const tt_rule *rule, uint32_t worker);
bool tt_rule_is_there(const tt_rule *rule, uint32_t worker);
uint64_t tt_rule_group_of(const tt_rule *rule, uint32_t worker); /* 0: none */

/* Since when it has been ready, and in no group; 0: it is not. */
uint64_t tt_rule_ready_ns(const tt_rule *rule, uint32_t worker);
/* Whom a worker waits for that is ready; TT_NONE: whom the start waits for. */
#define TT_RULE_NAMED 8
typedef struct tt_rule_awaited {
    uint32_t n, of; /* so many of so many */
    bool have_come; /* they have, and compute, or are in a group */
    uint32_t n_named, named[TT_RULE_NAMED];
} tt_rule_awaited;
tt_rule_awaited tt_rule_who_is_missing(const tt_rule *rule, uint32_t worker);

/* ----------------------------------------------------------- metrics -- */

/* Costs about a hundred walks over the window. */
void tt_rule_measure(tt_rule *rule, tt_rule_metrics *out);
/* Groups of so many members; 0: more than there ever were. */
uint64_t tt_rule_n_of_size(const tt_rule *rule, uint32_t size);

/* ----------------------------------------------------------- weights -- */

/* decay^staleness, never under 2^-20 of the greatest, normalised: sums to 1,
 * falls with staleness, equal for equals. staleness: of the least stale 0. */
void tt_weights_dynamic(const uint64_t *iterations, uint32_t n, double decay,
                        double *weights);

/* ------------------------------------------------------------ replay -- */

/* Feeds the events of a log to a new rule, and compares the groups. *metrics
 * (may be NULL) is as of the end. Errors: EFORMAT (line and what), EMISMATCH
 * (the rule decides otherwise: the line), EINVAL, ENOMEM. */
tutti_err tt_rule_replay(const char *text, size_t len, const tt_mem *mem,
                         const tt_rule_up *up, tt_rule_metrics *metrics,
                         tutti_diag *diag);

#endif
