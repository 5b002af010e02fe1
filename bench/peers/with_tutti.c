/* SPDX-License-Identifier: BSD-3-Clause
 * with_tutti.c - the benchmark's functions by Tutti. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

#include "peer.h"

static tutti_comm *comm;

/* Ends the process when a call has failed. */
static void check(tutti_err err)
{
    if (!err)
        return;
    fprintf(stderr, "%s: %s\n", tutti_strerror(err),
            comm ? tutti_comm_message(comm) : tutti_last_message());
    exit(1);
}

void peer_start(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    check(tutti_comm_create(NULL, &comm));
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
    check(tutti_all_reduce(comm, in, out, count, TUTTI_F32, TUTTI_SUM, NULL,
                           NULL));
}

void peer_barrier(void)
{
    check(tutti_barrier(comm, NULL, NULL));
}

double peer_max(double value)
{
    check(tutti_all_reduce(comm, &value, &value, 1, TUTTI_F64, TUTTI_MAX, NULL,
                           NULL));
    return value;
}

void *peer_alloc(size_t bytes)
{
    return tutti_alloc(bytes);
}
