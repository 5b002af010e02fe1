/* SPDX-License-Identifier: BSD-3-Clause
 * with_mpi.c - the benchmark's functions by MPI, whichever mpicc brings. MPI's
 * default error handler ends the job, so results need no checks here. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "peer.h"

void peer_start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
}

void peer_stop(void)
{
    MPI_Finalize();
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
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void peer_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

double peer_max(double value)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

void *peer_alloc(size_t bytes)
{
    void *ptr = NULL;
    MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &ptr);
    return ptr;
}
