/* SPDX-License-Identifier: BSD-3-Clause
 * with_mpi.c - the benchmark's functions by MPI, whichever mpicc brings. MPI's
 * default error handler ends the job, so results need no checks here.
 *
 * Open MPI's ways: its algorithms of all-reduce. It reads which one to force,
 * and in which segments, when a communicator is made, and lets the tools
 * interface (MPI_T) set both, so one job has a communicator for each. (Given
 * --mca coll_tuned_use_dynamic_rules 1.) MPICH reads its choice once, when it
 * starts; there a way is another launch, and here is only one. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

/* Open MPI's algorithms by number. The segmented ring has several ways: the
 * other algorithms of all-reduce do not look at segments. `gather` is that of
 * the all-gather of a token's step: the one most like it. */
static const struct {
    const char *name;
    int algorithm, segment_bytes, gather;
} all_ways[] = {
    {"default", 0, 0, 0},        {"linear", 1, 0, 1},
    {"nonoverlapping", 2, 0, 5}, {"doubling", 3, 0, 3},
    {"ring", 4, 0, 4},           {"ring/64K", 5, 64 << 10, 4},
    {"ring/1M", 5, 1 << 20, 4},  {"rabenseifner", 6, 0, 2},
};
enum { N_WAYS = sizeof(all_ways) / sizeof(all_ways[0]) };

static MPI_Comm comms[N_WAYS];
static int n_ways, now;

/* The number of a control variable of the library; -1: it has none. */
static int find_variable(const char *name)
{
    int n = 0;
    MPI_T_cvar_get_num(&n);
    for (int i = 0; i < n; i++) {
        char found[256];
        int len = sizeof(found), skip, bind, scope;
        MPI_Datatype type;
        if (MPI_T_cvar_get_info(i, found, &len, &skip, &type, NULL, NULL, NULL,
                                &bind, &scope) == MPI_SUCCESS &&
            strcmp(found, name) == 0 && type == MPI_INT)
            return i;
    }
    return -1;
}

static int set_variable(int index, int value)
{
    MPI_T_cvar_handle handle;
    int count;
    if (index < 0 ||
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS)
        return 0;
    int err = MPI_T_cvar_write(handle, &value);
    MPI_T_cvar_handle_free(&handle);
    return err == MPI_SUCCESS;
}

static void find_ways(void)
{
    int algorithm = find_variable("coll_tuned_allreduce_algorithm");
    int segment = find_variable("coll_tuned_allreduce_algorithm_segmentsize");
    int gather = find_variable("coll_tuned_allgather_algorithm");
    comms[0] = MPI_COMM_WORLD;
    n_ways = 1;
    if (algorithm < 0 || segment < 0 || gather < 0)
        return;
    for (; n_ways < N_WAYS; n_ways++) {
        if (!set_variable(algorithm, all_ways[n_ways].algorithm) ||
            !set_variable(segment, all_ways[n_ways].segment_bytes) ||
            !set_variable(gather, all_ways[n_ways].gather))
            return;
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[n_ways]);
    }
}

void peer_start(int *argc, char ***argv)
{
    int provided;
    MPI_Init(argc, argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    find_ways();
}

void peer_stop(void)
{
    MPI_T_finalize();
    MPI_Finalize();
}

const char *peer_way(int way)
{
    return way < n_ways ? all_ways[way].name : NULL;
}

void peer_use(int way)
{
    now = way;
}

const char *peer_choice(size_t count)
{
    (void)count;
    return NULL;
}

int peer_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int peer_size(void)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

void peer_all_reduce(const float *in, float *out, size_t count)
{
    if (count > INT_MAX) {
        fprintf(stderr, "MPI-3 counts are ints\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, comms[now]);
}

void peer_all_gather(const float *in, float *out, size_t count)
{
    MPI_Allgather(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT,
                  comms[now]);
}

void peer_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static double over_all(double value, MPI_Op op)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
    return value;
}

double peer_max(double value)
{
    return over_all(value, MPI_MAX);
}

double peer_sum(double value)
{
    return over_all(value, MPI_SUM);
}

void *peer_alloc(size_t bytes)
{
    void *ptr = NULL;
    MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &ptr);
    return ptr;
}
