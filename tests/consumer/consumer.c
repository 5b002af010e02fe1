/* SPDX-License-Identifier: BSD-3-Clause
 * consumer.c - a program of somebody else's, built against an installed Tutti
 * by the CMakeLists.txt or the Makefile beside it. A job of one rank; exit
 * status 0 when the sum and the version are right. C and C++. */
#include <stdio.h>
#include <string.h>
#include <tutti.h>

int main(void)
{
    tutti_comm *comm;
    tutti_comm_opts opts = TUTTI_COMM_OPTS_INIT;
    opts.n_ranks = 1;
    tutti_err err = tutti_comm_create(&opts, &comm);
    if (err) {
        fprintf(stderr, "%s: %s\n", tutti_strerror(err), tutti_last_message());
        return 1;
    }
    float x[3] = {1, 2, 3};
    err = tutti_all_reduce(comm, x, x, 3, TUTTI_F32, TUTTI_SUM, NULL, NULL);
    tutti_comm_destroy(comm);
    char built[32];
    snprintf(built, sizeof(built), "%d.%d.%d", TUTTI_VERSION_MAJOR,
             TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    if (err || x[2] != 3 || strcmp(tutti_version(), built) != 0) {
        fprintf(stderr, "sum %g, built with %s, runs with %s\n", x[2], built,
                tutti_version());
        return 1;
    }
    return 0;
}
