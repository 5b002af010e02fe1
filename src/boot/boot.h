/* SPDX-License-Identifier: BSD-3-Clause
 * boot.h - how the ranks of a job find each other.
 *
 * launch.c reads rank, size and meeting place from the launcher's variables;
 * rendezvous.c brings the ranks together in a star around rank 0 and lets
 * them exchange equal-sized pieces of data a few times (addresses, settings,
 * outcomes). After that the ranks of the control graph connect
 * (start/connect.c) and the star is closed. Nothing received is trusted for a
 * size.
 *
 * entrance.c lets processes in that come later.
 *
 * Next: launch.c, rendezvous.c, frame.h. */
#ifndef TT_BOOT_BOOT_H
#define TT_BOOT_BOOT_H

#include <stdatomic.h>

#include "base/hostid.h" /* which ranks share a host: tt_host_id_get() */
#include "base/mem.h"
#include "base/settings.h"

typedef struct tt_launch {
    uint32_t rank, n_ranks;
    char address[TT_SETTING_TEXT]; /* host:port, [ipv6]:port, or "" (none) */
    /* A name common to the ranks of this job and to no other job of this
     * host; "" when the launcher gives none. */
    char job[TT_SETTING_TEXT];
    const char *source; /* "TUTTI_RANK", "torchrun", "Open MPI", ... */
    /* Rank 0: a socket that listens at `address` already, made by the
     * launcher or by launch.c; never closed here. 0: none. */
    int listen_fd;
    /* The ranks meet through it, whatever else is said; borrowed until the
     * start-up is over. NULL: none. */
    const tutti_store *store;
    struct tt_trust *trust; /* who is let in (link/trust.h); likewise */
    /* When it is true nobody wants the start any more: it fails soon, wherever
     * it waits (EABORTED), the exchanges too. Borrowed until the boot is
     * closed. NULL: never. */
    const atomic_bool *is_off;
} tt_launch;

/* opts may be NULL. Order: explicit opts; TUTTI_*; torchrun's RANK,
 * WORLD_SIZE, MASTER_ADDR, MASTER_PORT (with TORCHELASTIC_USE_AGENT_STORE the
 * port is the agent's: the next one is ours); Open MPI; PMIx; PMI (MPICH, with
 * the PMI-1 wire protocol on PMI_FD for the address); Slurm. None of them: a
 * job of one rank. Errors: ECONFIG, with variable, value, what is expected. */
tutti_err tt_launch_detect(const tutti_comm_opts *opts,
                           const tt_settings *settings, tt_launch *out,
                           tutti_diag *diag);

typedef struct tt_boot tt_boot;

/* Meets all ranks; blocks until deadline_ns. Errors: EBOOT, ETIMEOUT (naming
 * the ranks that are missing), ECONFIG, ENET, ENOMEM. N = 1 needs no
 * network. */
tutti_err tt_boot_open(const tt_launch *launch, const tt_settings *settings,
                       const tt_mem *mem, uint64_t deadline_ns, tt_boot **out,
                       tutti_diag *diag);

/* All-gather: `mine` (len bytes, equal on all ranks, at most 64 KiB) of every
 * rank into all[r * len]. Fails on every rank, naming the rank, when one has
 * died. */
tutti_err tt_boot_exchange(tt_boot *boot, const void *mine, size_t len,
                           void *all, tutti_diag *diag);

/* The same of any length where only rank 0 needs what all say: `all` is rank
 * 0's, the others give NULL and do not wait for anybody. */
tutti_err tt_boot_collect(tt_boot *boot, const void *mine, size_t len,
                          void *all, tutti_diag *diag);
/* What rank 0 has in `bytes` (any len, equal on all ranks), on all ranks. Rank
 * 0 does not wait. */
tutti_err tt_boot_share(tt_boot *boot, void *bytes, size_t len,
                        tutti_diag *diag);
/* What the exchanges from now on belong to, for sentences (a constant;
 * "start-up" before), and how long one may take. */
void tt_boot_phase(tt_boot *boot, const char *phase, uint64_t timeout_ns);
/* On all ranks, until the next phase: rank 0 may take as long as it likes, as
 * long as it is alive; the others give it up when they have not heard of it for
 * timeout_ns and a little. While it waits in an exchange it sees to that
 * itself; else it calls tt_boot_alive() at least every second.
 * tt_boot_is_well() has no place in such a phase. */
void tt_boot_beats(tt_boot *boot);
void tt_boot_alive(tt_boot *boot); /* costs next to nothing; never blocks */
/* Rank 0, between exchanges: the next one fails on all ranks with this error
 * and sentence. */
void tt_boot_fail(tt_boot *boot, tutti_err err, const tutti_diag *diag);

/* Between exchanges: false, with a sentence, when a rank is known to be gone,
 * or has called the start off. Never blocks. */
bool tt_boot_is_well(tt_boot *boot, tutti_diag *diag);
/* Between exchanges: this rank cannot go on, and need not be waited for. All
 * should come to the next exchange, where it says why. Never blocks. */
void tt_boot_call_off(tt_boot *boot);

void tt_boot_close(tt_boot *boot); /* accepts NULL */

/* ------------------------------------------------------- who comes later -- */

/* Of those that wait; more are told to come again. */
#define TT_GUESTS_MAX 64

/* What a newcomer is told: little-endian, as sent. Then all start, as the ranks
 * of a job do that has this name, and meet there. */
typedef struct tt_invitation {
    uint32_t magic; /* set and checked here */
    uint32_t rank, n_ranks;
    uint32_t wait_ms; /* how long all wait for each other */
    char job[TT_SETTING_TEXT];
    char place[2048]; /* of a store (boot/store.c); "": this host, by name */
} tt_invitation;
_Static_assert(sizeof(tt_invitation) == 2320, "as sent");
bool tt_invitation_is_sound(const tt_invitation *inv);

/* Where newcomers come to, of one member. */
typedef struct tt_entrance tt_entrance;
/* Listens where `place` says: through its store, at its address, or at a name
 * of this host that is made of its job's. place and set are borrowed for the
 * call, but for the trust. Errors: ECONFIG (no place), EBOOT, ESYS, ENOMEM. */
tutti_err tt_entrance_open(const tt_mem *mem, const tt_launch *place,
                           const tt_settings *set, tt_entrance **out,
                           tutti_diag *diag);
/* It is a name of this host. */
bool tt_entrance_is_here(const tt_entrance *e);
/* How many wait, in order of coming; who has gone is forgotten. Never
 * blocks. */
uint32_t tt_entrance_guests(tt_entrance *e);
/* The first n are there still. */
bool tt_entrance_has(tt_entrance *e, uint32_t n);
/* Invites the first n, as the last n ranks of what->n_ranks. False: one has
 * gone. */
bool tt_entrance_invite(tt_entrance *e, const tt_invitation *what, uint32_t n);
/* Sends the first n away, or has done with them. */
void tt_entrance_dismiss(tt_entrance *e, uint32_t n);
void tt_entrance_close(tt_entrance *e); /* accepts NULL */

/* A newcomer's side. */
typedef struct tt_knock tt_knock;
/* place, set: borrowed until it is closed. Errors: ECONFIG, ESYS, ENOMEM. */
tutti_err tt_knock_open(const tt_mem *mem, const tt_launch *place,
                        const tt_settings *set, tt_knock **out,
                        tutti_diag *diag);
/* Waits to be invited, once more if it was before; the members see it as long
 * as neither this nor close is called. Errors: ETIMEOUT, EBOOT (no secret in
 * common), EPROTO, ENOMEM. */
tutti_err tt_knock_wait(tt_knock *k, uint64_t deadline_ns, tt_invitation *out,
                        tutti_diag *diag);
void tt_knock_close(tt_knock *k); /* accepts NULL */

#endif
