/* SPDX-License-Identifier: BSD-3-Clause
 * meet.h - private to start-up: one rank's end of the star.
 *
 * Circles    gather.c join.c rendezvous.c: a star is opened by gathering or by
 *            joining, and these speak in the frames in which it exchanges. */
#ifndef TT_BOOT_MEET_H
#define TT_BOOT_MEET_H

#include "base/clock.h"
#include "base/sock.h"
#include "boot/boot.h"
#include "boot/frame.h"
#include "link/link.h"

/* The most addresses at which rank 0 is looked for. */
#define TT_BOOT_WAYS 16

/* How often a wait looks whether the start is still wanted. */
#define TT_BOOT_LOOK_MS 50

/* Text: 16 hexadecimal digits and the end. */
#define TT_STORE_TOKEN 17

/* The longest piece of an exchange. */
#define TT_BOOT_PIECE_MAX (64 * 1024)

/* The connection to another rank. */
typedef struct tt_boot_line {
    tt_link_stream link; /* fd -1: none */
    tt_frame ahead;      /* what has been read of it before its turn, ... */
    size_t n_ahead;      /* ... so many bytes */
} tt_boot_line;

struct tt_boot {
    tt_mem mem; /* a copy: it may outlive what the caller has */
    uint32_t rank, n_ranks;
    uint64_t timeout_ns;  /* of one exchange */
    uint64_t patience_ns; /* who waits for so long says for whom */
    const char *phase;    /* what exchanges belong to, for sentences */
    bool beats;           /* rank 0 tells the others that it is alive */
    uint64_t next_beat_ns;
    tt_frame like; /* what this rank's headers begin with */
    /* Where the ranks meet: host and port, or an abstract unix address. */
    bool is_local;
    char host[TT_SOCK_HOST];
    uint16_t port;
    tt_addr local;
    char where[TT_SETTING_TEXT]; /* the same, for sentences */
    /* The program's; NULL: none. All are looked at while it is opened only. */
    const tutti_store *store;
    const char *key; /* there */
    tt_trust *trust;
    const char *interfaces; /* TUTTI_SOCKET_IFNAME */
    const char *via;        /* TUTTI_VIA */
    /* Where it is set (via.c), of a rank other than 0: who this one is, and
     * what passes others on until the end of the start. */
    tt_link_id id;
    tt_link_box *passing;
    /* Rank 0: lines[r] is rank r's (lines[0] is none); others: lines[0] is rank
     * 0's; n_lines of them. */
    tt_boot_line *lines;
    uint32_t n_lines;
    bool is_off;                 /* the start was called off */
    const atomic_bool *unwanted; /* the launch's is_off */
    /* The first failure: all later exchanges repeat it. */
    tutti_err broken;
    tutti_diag why;
};

/* Where the ranks meet, by store, address or name of the job. Errors:
 * ECONFIG. */
tutti_err tt_boot_set_place(tt_boot *boot, const tt_launch *launch,
                            tutti_diag *diag);
/* Where to listen, into o, for which an ear is borrowed: at the address or the
 * name, is_any: at its port only; with a store as settings allow. */
void tt_boot_set_ear(const tt_boot *boot, const tt_settings *set, bool is_any,
                     tt_link_ear *ear, tt_link_listen_opts *o);
/* Where to dial; returns how many of TT_BOOT_WAYS, or 0 and why. */
size_t tt_boot_resolve(const tt_boot *boot, tt_addr *out, char *why,
                       size_t size);
/* Rank 0: listens and waits until all ranks have come (gather.c). */
tutti_err tt_boot_gather(tt_boot *boot, const tt_launch *launch,
                         const tt_settings *settings, uint64_t deadline_ns,
                         tutti_diag *diag);
/* Rank 0: tells `err` and diag's sentence to all who have come, and sees to
 * it that they can read it before the connections close. */
void tt_boot_tell(tt_boot *boot, tutti_err err, const tutti_diag *diag);
/* Other ranks: finds rank 0 and waits for READY (join.c). */
tutti_err tt_boot_join(tt_boot *boot, uint64_t deadline_ns, tutti_diag *diag);

/* Other ranks, where TUTTI_VIA is set. Rank 0 is at these n addresses: from now
 * on the box's dials go there, or by way of others; and whoever dials this host
 * at rank 0's port is passed on there. Errors: ESYS, ECONFIG, ENOMEM. */
tutti_err tt_boot_via_know(tt_boot *boot, tt_link_box *box,
                           const tt_addr *addrs, size_t n, tutti_diag *diag);

/* Rank 0: a token for the store, the job's name from now on. */
tutti_err tt_store_begin(tt_boot *boot, char token[TT_STORE_TOKEN],
                         tutti_diag *diag);
/* Rank 0: tells in the store where it listens. */
tutti_err tt_store_tell(tt_boot *boot, const char *token,
                        const tt_settings *set, uint16_t port,
                        tutti_diag *diag);
/* The others: rank 0's addresses (TT_BOOT_WAYS) as the store has them now, the
 * most promising first; waits for them. AGAIN: not there by the deadline. */
tutti_err tt_store_find(tt_boot *boot, uint64_t deadline_ns, tt_addr *out,
                        size_t *n, tutti_diag *diag);

/* Reads one header from rank 0 and checks it; an ERROR frame is read whole
 * and becomes the result. */
tutti_err tt_boot_hear(tt_boot *boot, tt_frame *frame, uint64_t piece,
                       uint64_t deadline_ns, tutti_diag *diag);

static inline bool tt_boot_has(const tt_boot *boot, uint32_t rank)
{
    return boot->lines[rank].link.fd >= 0;
}

/* Sends a header, of len bytes that follow; 0 or errno. */
int tt_boot_put(const tt_boot *boot, tt_link_stream *to, tt_frame_kind kind,
                uint64_t len, uint64_t deadline_ns);

static inline bool tt_boot_is_unwanted(const tt_boot *boot)
{
    return boot->unwanted && atomic_load(boot->unwanted);
}
/* Sets diag's sentence about that. */
tutti_err tt_boot_fail_unwanted(const tt_boot *boot, tutti_diag *diag);
/* Takes the connection to another rank. */
void tt_boot_take(tt_boot *boot, uint32_t line, const tt_link_stream *link);

/* Sets diag's sentence about one rank. */
tutti_err tt_boot_blame(tutti_diag *diag, tutti_err err, uint32_t rank,
                        const char *fmt, ...) TT_PRINTF(4, 5);

#endif
