/* SPDX-License-Identifier: BSD-3-Clause
 * learn.h - the network is measured (TUTTI_TOPOLOGY=auto). Private to
 * src/probe.
 *
 * learn.c        from the cache, or by the probe
 * fingerprint.c  which hosts and interfaces these are
 * slowifaces.c   which interfaces are not worth planning with
 * cache.c        what was measured before */
#ifndef TT_PROBE_LEARN_H
#define TT_PROBE_LEARN_H

#include "probe/probe.h"

/* ----------------------------------------------------------- slowifaces.c */

/* *out is t without the interfaces that are much slower than others that reach
 * the same hosts; NULL when there are none. The caller owns it. Errors: ENOMEM.
 */
tutti_err tt_without_slow_ifaces(const tutti_topology *t, tutti_topology **out,
                                 tutti_diag *diag);

/* ---------------------------------------------------------------- cache.c */

extern const tt_kept_kind tt_kept_network;
/* True: *out is the network that was kept for the fingerprint; the caller owns
 * it. What cannot be read, or is not what was kept, is a warning. */
bool tt_probe_cache_read(const char *dir, uint64_t fingerprint,
                         uint32_t n_ranks, tutti_topology **out);
/* Rank 0, before it measures: false when another job measures the same just
 * now.
 * *lock is held until tt_probe_cache_unlock(); -1 where none can be made: then
 * nobody is waited for. */
bool tt_probe_cache_lock(const char *dir, uint64_t fingerprint, int *lock);
void tt_probe_cache_unlock(const char *dir, uint64_t fingerprint, int lock);
/* text: a topology file, of len bytes. What fails is a warning. */
void tt_probe_cache_write(const char *dir, uint64_t fingerprint,
                          const char *text, size_t len);

#endif
