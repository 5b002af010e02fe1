/* SPDX-License-Identifier: BSD-3-Clause
 * frame.h - the messages of start-up: a header of 40 bytes, little-endian,
 * and `len` bytes that follow it. Before the first one both sides have greeted
 * (link/link.h): who comes says its rank there, tt_boot_said.
 *
 *   kind     from    payload
 *   WELCOME  rank 0  none: r is known, others are still missing
 *   READY    rank 0  none: all ranks are there
 *   DATA     rank r  r's piece of an exchange
 *   ALL      rank 0  n_ranks pieces
 *   ERROR    rank 0  a sentence, at most TT_FRAME_TEXT; extra: -tutti_err
 *   OFF      any     none: it cannot go on; rank 0 passes it on. In the next
 *                    exchange all learn why
 *   ALIVE    rank 0  none: it is still at it
 *
 * Rules: (1) magic and version are checked before anything else and never
 * move; (2) job is the hash of the job's name and n_ranks the number of
 * ranks, equal on all sides; (3) rank is the sender's; (4) seq counts the
 * exchanges, 0 before the first; (5) a receiver says how long a payload may
 * be, and nothing longer is read. Next: rendezvous.c. */
#ifndef TT_BOOT_FRAME_H
#define TT_BOOT_FRAME_H

#include "base/err.h"

#define TT_FRAME_MAGIC UINT32_C(0x62747474) /* "tttb" */
#define TT_FRAME_VERSION 3
#define TT_FRAME_TEXT 500

typedef enum tt_frame_kind {
    TT_FRAME_WELCOME = 2,
    TT_FRAME_READY = 3,
    TT_FRAME_DATA = 4,
    TT_FRAME_ALL = 5,
    TT_FRAME_ERROR = 6,
    TT_FRAME_OFF = 7,
    TT_FRAME_ALIVE = 8
} tt_frame_kind;

typedef struct tt_frame {
    uint32_t magic;
    uint16_t version;
    uint8_t kind, pad;
    uint64_t job, len;
    uint32_t rank, n_ranks, seq, extra;
} tt_frame;
_Static_assert(sizeof(tt_frame) == 40, "a start-up header is 40 bytes");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the start-up header is little-endian; this machine needs a conversion"
#endif

/* What rank r says of itself when it greets rank 0. */
typedef struct tt_boot_said {
    uint32_t rank, n_ranks;
    uint32_t wait_ms; /* how long it is ready to wait */
} tt_boot_said;
_Static_assert(sizeof(tt_boot_said) == 12, "as sent");

typedef enum tt_frame_fault {
    TT_FRAME_GOOD,
    TT_FRAME_STRANGE, /* not this protocol at all */
    TT_FRAME_OTHER_VERSION,
    TT_FRAME_OTHER_JOB,
    TT_FRAME_OTHER_SIZE,
    TT_FRAME_BAD_RANK, /* rank >= n_ranks */
    TT_FRAME_TOO_LONG  /* a payload that its kind cannot have */
} tt_frame_fault;

/* Checks a header from outside against `like` (this rank's job and n_ranks).
 * piece: the bytes of one rank's piece in an exchange, 0 before it. */
tt_frame_fault tt_frame_check(const tt_frame *frame, const tt_frame *like,
                              uint64_t piece);

/* The sentence of an ERROR frame: len bytes from outside, made printable, into
 * diag; returns the error that `extra` names, EBOOT when it names none. */
tutti_err tt_frame_error(uint32_t extra, const char *text, size_t len,
                         tutti_diag *diag);

#endif
