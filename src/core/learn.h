/* SPDX-License-Identifier: BSD-3-Clause
 * learn.h - the network is measured (TUTTI_TOPOLOGY=auto): private to src/core.
 *
 * learn.c        from the cache, or by the probe
 * fingerprint.c  which hosts and interfaces these are
 * sift.c         which interfaces are worth planning with
 * probe_cache.c  networks that were measured before */
#ifndef TT_CORE_LEARN_H
#define TT_CORE_LEARN_H

#include "core/core.h"
#include "probe/probe.h"

/* Of the fingerprint and of the files: raise it when the probe finds other
 * networks than before. */
#define TT_LEARN_VERSION 2

/* All ranks have met. */
typedef struct tt_learn_job {
    const tt_mem *mem;
    tt_boot *boot;
    uint32_t rank, n_ranks, n_hosts;
    const tt_settings *settings;
    bool is_fresh; /* whatever was measured before */
} tt_learn_job;

/* ---------------------------------------------------------------- learn.c */

bool tt_learn_is_wanted(const tt_settings *settings);
/* Collective. On rank 0 *known becomes the network of the job, from the cache
 * or measured now; on all ranks *n_bytes the length of its text, 0 where all
 * ranks are on one host. Errors: those of the probe and of boot, the same on
 * all ranks. */
tutti_err tt_learn(const tt_learn_job *job, tt_known *known, uint32_t *n_bytes,
                   tutti_diag *diag);
/* From here on a rank that has stopped, rank 0 too, is noticed in seconds. */
void tt_learn_begin(tt_boot *boot);
/* How long a job measures so many hosts. */
uint64_t tt_learn_time_ns(uint32_t n_hosts);
/* Rank 0: keeps what was measured for the next job; what fails is a warning. */
void tt_learn_keep(const tt_settings *settings, uint64_t fingerprint,
                   const tt_probe *probe);

/* ---------------------------------------------------------- fingerprint.c */

/* Collective: *out on rank 0; 0 elsewhere. */
tutti_err tt_fingerprint(const tt_learn_job *job, uint64_t *out,
                         tutti_diag *diag);
/* Of this rank's host: its name, its interfaces (names, addresses, MTU, speed,
 * hardware address), and which of them may be used. */
uint64_t tt_fingerprint_host(const tt_settings *settings, const char *name);

/* ----------------------------------------------------------------- sift.c */

/* *out is t without the interfaces that are much slower than others that reach
 * the same hosts; NULL when there are none. The caller owns it. Errors: ENOMEM.
 */
tutti_err tt_learn_sift(const tutti_topology *t, tutti_topology **out,
                        tutti_diag *diag);

/* ---------------------------------------------------------- probe_cache.c */

/* The directory; "" where there is to be none. */
void tt_probe_cache_dir(const tt_settings *settings, char *out, size_t size);
/* True: *out is the network that was kept for the fingerprint. What cannot be
 * read, or is not what was kept, is a warning. */
bool tt_probe_cache_read(const char *dir, uint64_t fingerprint,
                         uint32_t n_ranks, tt_known *out);
/* Rank 0, before it measures: false when another job measures the same just now.
 * *lock is held until unlock(); -1 where none can be made: then nobody is waited
 * for. */
bool tt_probe_cache_lock(const char *dir, uint64_t fingerprint, int *lock);
void tt_probe_cache_unlock(const char *dir, uint64_t fingerprint, int lock);
/* text: a topology file, of len bytes. What fails is a warning. */
void tt_probe_cache_write(const char *dir, uint64_t fingerprint,
                          const char *text, size_t len);

#endif
