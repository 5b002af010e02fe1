/* SPDX-License-Identifier: BSD-3-Clause
 * fleet.h - simulated workers for the rule of partial reduce: each has a
 * number for a model, averages it in the groups that the rule decides, and
 * announces when the test, or its own clock, says. */
#ifndef TT_TESTS_FLEET_H
#define TT_TESTS_FLEET_H

#include "base/rng.h"
#include "partial/rule.h"

#define TT_FLEET_MAX 1024
#define TT_FLEET_DIMS 32

typedef struct tt_fleet {
    tt_rule *rule;
    uint32_t n;
    uint64_t now;
    uint64_t n_groups; /* decided since the test looked */
    tt_decision last;  /* of them; its members are kept below */
    tt_group_member members[TT_FLEET_MAX];
    double x[TT_FLEET_MAX][TT_FLEET_DIMS];
    double ratio_sum; /* of the variance: after a group / before */
    bool is_quiet;    /* models are left alone */
    bool stays_busy;  /* members are not done at once */
    uint32_t to_finish[TT_FLEET_MAX];
    uint32_t n_to_finish;
    bool is_running;
    uint64_t next[TT_FLEET_MAX]; /* announcement; 0: waits for a group */
    uint32_t n_each;             /* at a site; 0: there are none */
    uint64_t near_ns, far_ns; /* that a group of one site takes, of several */
    uint64_t ends[TT_FLEET_MAX]; /* when the group does; 0: in none */
    uint64_t announced[TT_FLEET_MAX];
    bool is_far[TT_FLEET_MAX]; /* its group has several sites */
    bool goes_ahead;           /* steps go on while a group works */
    uint64_t n_far;            /* groups of several sites */
    uint64_t waited_ns;        /* from announcing to the group's end, all */
    uint64_t longest_ns;       /* from announcing to a group */
    uint64_t iterations[TT_FLEET_MAX];
    /* Whom groups have joined since tt_fleet_part(). */
    uint32_t part[TT_FLEET_MAX];
} tt_fleet;

/* All n join at time 1, each on the host of its number. */
void tt_fleet_open(tt_fleet *f, const tt_rule_opts *opts);
/* n_each of them at a site. With goes_ahead they say so. */
void tt_fleet_open_sites(tt_fleet *f, const tt_rule_opts *opts, uint32_t n_each,
                         bool goes_ahead);
/* Another worker, of the next number, joins now; in tt_fleet_run() its first
 * step begins now. */
void tt_fleet_come(tt_fleet *f, uint64_t step_ns);
void tt_fleet_close(tt_fleet *f);
/* Gaussian-like numbers. */
void tt_fleet_scatter(tt_fleet *f, tt_rng *rng);
double tt_fleet_variance(const tt_fleet *f);
double tt_fleet_mean(const tt_fleet *f, int dim);
/* Everybody is apart. */
void tt_fleet_part(tt_fleet *f);
uint32_t tt_fleet_find(const tt_fleet *f, uint32_t worker);
/* Announces, then finishes the groups that it made. */
void tt_fleet_announce(tt_fleet *f, uint32_t worker, uint64_t iteration);
/* Worker w's steps take step_ns[w], groups what near_ns and far_ns say (before
 * the workers join: goes_ahead); until so many more groups have been made.
 * After every event the rule must not ask for a tick in the past. */
void tt_fleet_run(tt_fleet *f, const uint64_t *step_ns, uint64_t n_groups);

#endif
