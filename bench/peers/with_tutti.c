/* SPDX-License-Identifier: BSD-3-Clause
 * with_tutti.c - the benchmark's functions by Tutti. Its ways are `auto` and
 * every planner that plans for this job: on a known network (TUTTI_TOPOLOGY)
 * those that fit it, else those that need to know none. */
#define TUTTI_UNSTABLE 1
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

#include "peer.h"

enum { MAX_WAYS = 32 };
static tutti_comm *comm;
static const char *ways[MAX_WAYS] = {"auto"};
static tutti_call_opts call_opts = TUTTI_CALL_OPTS_INIT;

/* Ends the process when a call has failed. */
static void check(tutti_err err)
{
    if (!err)
        return;
    fprintf(stderr, "%s: %s\n", tutti_strerror(err),
            comm ? tutti_comm_message(comm) : tutti_last_message());
    exit(1);
}

/* NULL: the planner does not fit. */
static tutti_schedule *planned(const char *rule, size_t count,
                               const char **planner)
{
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    tutti_schedule *plan = NULL;
    opts.size_bytes = count * sizeof(float);
    opts.planner = rule;
    return tutti_comm_plan(comm, &opts, &plan, planner, NULL) ? NULL : plan;
}

static void find_ways(void)
{
    tutti_planner_info row;
    int n = 1;
    for (size_t i = 0; tutti_planner_at(i, &row) && n < MAX_WAYS - 1; i++) {
        tutti_schedule *plan = planned(row.name, 1 << 20, NULL);
        if (plan)
            ways[n++] = row.name;
        tutti_schedule_free(plan);
    }
}

void peer_start(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    check(tutti_comm_create(NULL, &comm));
    find_ways();
}

const char *peer_way(int way)
{
    return way < MAX_WAYS ? ways[way] : NULL;
}

void peer_use(int way)
{
    call_opts.planner = ways[way];
}

const char *peer_choice(size_t count)
{
    const char *planner = NULL;
    tutti_schedule *plan = planned(call_opts.planner, count, &planner);
    tutti_schedule_free(plan);
    return planner;
}

void peer_stop(void)
{
    tutti_comm_destroy(comm);
}

int peer_rank(void)
{
    return tutti_comm_rank(comm);
}

int peer_size(void)
{
    return tutti_comm_size(comm);
}

void peer_all_reduce(const float *in, float *out, size_t count)
{
    check(tutti_all_reduce(comm, in, out, count, TUTTI_F32, TUTTI_SUM,
                           &call_opts, NULL));
}

void peer_all_gather(const float *in, float *out, size_t count)
{
    check(tutti_all_gather(comm, in, out, count, TUTTI_F32, NULL, NULL));
}

void peer_barrier(void)
{
    check(tutti_barrier(comm, NULL, NULL));
}

static double over_all(double value, tutti_op op)
{
    check(tutti_all_reduce(comm, &value, &value, 1, TUTTI_F64, op, NULL, NULL));
    return value;
}

double peer_max(double value)
{
    return over_all(value, TUTTI_MAX);
}

double peer_sum(double value)
{
    return over_all(value, TUTTI_SUM);
}

void *peer_alloc(size_t bytes)
{
    return tutti_alloc(bytes);
}
