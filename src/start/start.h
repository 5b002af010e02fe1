/* SPDX-License-Identifier: BSD-3-Clause
 * start.h - how ranks that do not know each other come to a communicator, or to
 * a probe.
 *
 * create.c   tutti_comm_create(): settings, launch, rendezvous, who is where
 * connect.c  transports, ports, mesh, connections
 * steps.c    what these share: steps.h
 * caps.c     how much hosts may send by their interfaces (TUTTI_RATE)
 * known.c    the network that the job knows (TUTTI_TOPOLOGY)
 * costs.c    what messages and bytes cost here; keptcosts.c: from before
 * probing.c  the probe instead of a communicator
 *
 * Next: create.c. */
#ifndef TT_START_START_H
#define TT_START_START_H

#include "boot/boot.h"
#include "core/core.h"

/* --------------------------------------------------------------- known.c */

typedef struct tt_known {
    char *text; /* n_bytes + 1; NULL: not known */
    size_t n_bytes;
    bool has_names;
} tt_known;
typedef struct tt_known_job {
    const tt_mem *mem; /* for the network */
    tt_boot *boot;
    uint32_t rank, n;
    const tt_known *known; /* rank 0's counts */
    /* Where names count: that of a rank's host; [n]: which ranks share one,
     * numbered in order of the ranks. */
    const char *(*host)(const void *ctx, uint32_t rank);
    const void *ctx;
    const uint32_t *hosts;
} tt_known_job;
/* Reads the setting. Errors: ECONFIG, ELIMIT, ENOMEM. */
tutti_err tt_known_read(const char *spec, tt_known *out, tutti_diag *diag);
/* Collective: measured, or known from before (probe/probe.h); on rank 0 *out,
 * on all ranks the length of its text, 0 where all are on one host. Errors:
 * those of the probe and of boot, the same on all ranks. */
struct tt_probe_job;
tutti_err tt_known_learn(const struct tt_probe_job *job, uint32_t n_hosts,
                         tt_known *out, uint32_t *n_bytes, tutti_diag *diag);
void tt_known_free(tt_known *k);
/* Of a network whose ranks are the first of n, with the others on their hosts;
 * hosts[n]: the number of each rank's. Errors: EINVAL (one is on a host that is
 * not in it), ENOMEM. */
tutti_err tt_known_write(const tutti_topology *t, tt_known *out);
tutti_err tt_known_extend(const tt_known *old, const uint32_t *hosts,
                          uint32_t n, tt_known *out, tutti_diag *diag);
/* Collective: rank 0's network, n_bytes of text, on all ranks; *out NULL when
 * n_bytes is 0. Errors: ECONFIG (it is not this job's), those of boot and of
 * the parser. */
tutti_err tt_known_share(const tt_known_job *job, uint64_t n_bytes,
                         bool has_names, tutti_topology **out,
                         tutti_diag *diag);

/* -------------------------------------------------------------- create.c */

/* A start of ranks that know more than the environment says. */
typedef struct tt_start_how {
    const tt_launch *launch; /* copied; one more owner of its trust */
    const tt_home *home;
    const tt_settings *settings; /* copied */
    /* What all agree on, of those who are there already: in place of the
     * settings; NULL: this rank comes newly. */
    const tt_agreed *agreed;
    const tt_known *network; /* rank 0's, if it is kept */
    uint64_t timeout_ns;     /* of the communicator */
    bool is_loopback; /* all are on this host: rank 0 listens there only */
} tt_start_how;

/* What the environment says of the job and of this rank; the log is set up.
 * What one process makes one after the other does not meet: each has another
 * name of the job. opts may be NULL. The caller closes launch->trust. */
tutti_err tt_start_read(const tutti_comm_opts *opts, tt_settings *settings,
                        tt_launch *launch, tutti_diag *diag);
/* By what others are known: what is given, else the settings. NULL: by nothing.
 * is_first: who says for all that data travels in clear. Errors: those of
 * tt_trust_open(). */
tutti_err tt_start_trust(const tutti_trust *given, const tt_settings *settings,
                         bool is_first, tt_trust **out, tutti_diag *diag);

/* The start itself; all ranks together. mem, home: as of tutti_comm_create(),
 * an allocator at an address that lasts, and *home, to free it by (NULL:
 * static). Errors: those of tutti_comm_create(). [any thread] */
tutti_err tt_start_run(const tt_mem *mem, tt_mem **home,
                       const tt_start_how *how, tutti_comm **out,
                       tutti_diag *diag);
/* Of `own`: NULL, the static allocator, or *home, a copy that the mesh will
 * take over; the caller frees what is left. NULL: out of memory. */
const tt_mem *tt_start_home(const tt_mem *own, tt_mem **home);
void tt_start_free_home(tt_mem *home); /* accepts NULL */

#endif
