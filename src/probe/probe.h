/* SPDX-License-Identifier: BSD-3-Clause
 * probe.h - measures the network between the hosts of a job.
 *
 * All ranks have met (boot/boot.h); the lowest rank of each host is its agent,
 * the others only wait. The agents try which interfaces reach each other
 * (reach.c) and run rounds of flows (flows.c) that the inference asks for
 * (infer/infer.h). Rates are those of the link: headers are counted, as in
 * topology files.
 *
 * A job that wants its network measured (TUTTI_TOPOLOGY=auto) asks learn.c,
 * which knows networks that were measured before.
 *
 * Next: probe.c (the order of things), parts.h (what all files here share),
 * learn.h. */
#ifndef TT_PROBE_PROBE_H
#define TT_PROBE_PROBE_H

#include "base/clock.h"
#include "base/ifaces.h"
#include "boot/boot.h"
#include "infer/infer.h"

/* How long rank 0 waits for a rank that has nothing left to do, and a little
 * more the others for rank 0. */
#define TT_PROBE_PATIENCE_NS (4 * TT_NS_PER_S)

typedef struct tt_probe tt_probe;

typedef struct tt_probe_job {
    const tt_mem *mem;
    tt_boot *boot; /* borrowed; unusable when the probe has failed */
    uint32_t rank, n_ranks;
    const tt_settings *settings; /* interfaces, ports */
    struct tt_trust *trust;      /* who is let in (link/trust.h); or NULL */
    uint64_t time_ns;            /* the bound; 0: 10 s */
    tutti_progress_fn progress;  /* rank 0's; percents of 100; or NULL */
    void *progress_ctx;
    /* For tests: another host than the kernel says, with these addresses. */
    const tt_host_id *id;
    const tt_iface *ifaces;
    size_t n_ifaces;
} tt_probe_job;

/* Every rank calls it; blocks. On rank 0 *out has what was found, elsewhere it
 * is empty. Errors, the same on all ranks: ECONFIG (no interface, a bad
 * range of ports), ENET (hosts that cannot reach each other, by name), EPEER,
 * ETIMEOUT (a rank that has left, or stopped answering, by number), ESYS,
 * ENOMEM. */
tutti_err tt_probe_run(const tt_probe_job *job, tt_probe **out,
                       tutti_diag *diag);
void tt_probe_free(tt_probe *p); /* accepts NULL */

/* NULL on ranks other than 0. Lives as long as the probe. */
const tutti_topology *tt_probe_topology(const tt_probe *p);
bool tt_probe_note_at(const tt_probe *p, size_t index, tt_infer_note *out);
/* Every pair of addresses of different hosts, and what became of it, by host
 * from and host to; strings live as long as the probe. */
bool tt_probe_way_at(const tt_probe *p, size_t index, tutti_probe_way *out);
void tt_probe_describe(const tt_probe *p, tutti_probe_info *out);
/* On rank 0: was there more to measure when the time was over? */
bool tt_probe_is_cut(const tt_probe *p);

/* ------------------------------------------------------------- learn.c -- */

bool tt_learn_is_wanted(const tt_settings *settings);
/* Collective. On rank 0 *out becomes the network of the job, from the cache or
 * measured now, without interfaces that are not worth planning with; NULL on
 * other ranks, and where all ranks are on one host. The caller owns it. Errors:
 * those of the probe and of boot, the same on all ranks; but rank 0's last step
 * may fail alone: then it has told boot, and the next exchange fails. */
tutti_err tt_learn(const tt_probe_job *job, uint32_t n_hosts,
                   tutti_topology **out, tutti_diag *diag);
/* From here on a rank that has stopped, rank 0 too, is noticed in seconds. */
void tt_learn_begin(tt_boot *boot);
/* How long a job measures so many hosts. */
uint64_t tt_learn_time_ns(uint32_t n_hosts);
/* Rank 0: keeps what was measured for the next job; what fails is a warning. */
void tt_learn_keep(const tt_settings *settings, uint64_t fingerprint,
                   const tt_probe *probe);

/* ------------------------------------------------------- fingerprint.c -- */

/* Of fingerprints, and of the files that are kept: raise it when what is
 * measured comes out otherwise than before. */
#define TT_LEARN_VERSION 6

/* Collective: *out on rank 0; 0 elsewhere. */
tutti_err tt_fingerprint(const tt_probe_job *job, uint64_t *out,
                         tutti_diag *diag);

/* Of this rank's host: its name, its interfaces (names, addresses, MTU, speed,
 * hardware address), and which of them may be used. */
uint64_t tt_fingerprint_host(const tt_settings *settings, const char *name);

/* ------------------------------------------------------------- cache.c -- */

/* What is kept of one kind of things that are measured. */
typedef struct tt_kept_kind {
    const char *suffix, *first_line; /* of a file */
    const char *name;                /* for the log: "network" */
    uint64_t most_age_s;             /* older ones do not count; 0: all do */
    bool is_asked_for; /* who cannot keep it says so in a warning */
} tt_kept_kind;

/* The directory; "" where there is to be none. */
void tt_probe_cache_dir(const tt_settings *settings, char *out, size_t size);
/* True: `line` (of so many bytes) is what was kept for the fingerprint. What
 * cannot be read, or another user could have written, is a warning. */
bool tt_kept_read(const tt_settings *settings, const tt_kept_kind *kind,
                  uint64_t fingerprint, char *line, size_t size);
/* What fails is told in the log; what is too old is removed. */
void tt_kept_write(const tt_settings *settings, const tt_kept_kind *kind,
                   uint64_t fingerprint, const char *line);

#endif
