/* SPDX-License-Identifier: BSD-3-Clause
 * trail.h - what a rank did, in a file of its own: TUTTI_TRACE.
 *
 * The file is written through memory that the system has already found room for
 * on the disk: a record is a store of 64 bytes, what was stored is there even
 * when the process is killed, and a disk that is full is an error when the next
 * piece is asked for, never a signal. One thread at a time.
 *
 *   512 bytes   tt_trail_head
 *    64 bytes   a tt_mark, any number; behind a text its len bytes, filled up
 *               with zeros to 64. A kind of 0 is the end of its piece of the
 *               file (TT_TRAIL_PIECE bytes); the next piece may have more.
 * Numbers are as this machine has them; the magic tells a reader that has others.
 *
 * Next: engine/recording.c (who records), export/measured.c (who reads). */
#ifndef TT_BASE_TRAIL_H
#define TT_BASE_TRAIL_H

#include <stddef.h>

#include "base/err.h"

#define TT_TRAIL_MAGIC UINT64_C(0x0a31636572747574) /* "tutrec1\n" */
#define TT_TRAIL_SUFFIX ".record"
/* Of the file is mapped at a time: 16384 records, in a third of a
 * millisecond. */
#define TT_TRAIL_PIECE ((size_t)1 << 20)

typedef struct tt_trail_head {
    uint64_t magic;
    uint64_t meeting; /* the same in all files of a start */
    uint32_t rank, n_ranks, pid;
    uint32_t parent;  /* whose clock was compared with; TT_NONE: nobody's */
    int64_t ahead_ns; /* the parent's clock is so much ahead */
    uint64_t trip_ns; /* to and fro, when that was measured */
    uint64_t now_ns, real_ns; /* the same moment by the monotonic clock, as in
                                 all records, and by that of the day */
    char host[64];
    unsigned char zeros[384];
} tt_trail_head;

typedef enum tt_mark_kind {
    TT_MARK_END,
    TT_MARK_CALL,     /* is entered; u.call */
    TT_MARK_DONE,     /* is over; peer: its error, negated */
    TT_MARK_SENT,     /* a slice is handed over, until then; u.slice */
    TT_MARK_TAKEN,    /* and has left */
    TT_MARK_ARRIVED,  /* a slice is here */
    TT_MARK_APPLIED,  /* and is reduced, or where it belongs */
    TT_MARK_ASLEEP,   /* the engine was, until then */
    TT_MARK_NETWORK,  /* u.n_bytes of text: a topology file ... */
    TT_MARK_SCHEDULE, /* ... or `tutti-schedule 1` */
    TT_MARK_CLOCK,    /* peer's was asked; u.ahead_ns; until_ns: to and fro */
    TT_MARK_KINDS
} tt_mark_kind;

typedef struct tt_mark {
    uint64_t t_ns, until_ns;
    uint64_t call; /* its number in this process */
    uint8_t kind, port, reduces, coll;
    uint32_t peer; /* in the numbers of tt_trail_head.rank */
    union {
        struct {
            uint64_t comm, channel, seq, schedule;
        } call;
        struct {
            uint32_t step, chunk, wire, slice;
            uint64_t bytes;
            uint64_t zero;
        } slice;
        uint64_t n_bytes;
        int64_t ahead_ns; /* as in tt_trail_head */
    } u;
} tt_mark;

_Static_assert(sizeof(tt_trail_head) == 512, "a head is 512 bytes");
_Static_assert(sizeof(tt_mark) == 64, "records are 64 bytes");

typedef struct tt_trail {
    tt_mark *next, *end; /* of the piece that is mapped */
    tt_mark *piece;      /* NULL: there is none */
    uint64_t at;         /* of the piece in the file, bytes */
    int fd;
    char path[400];
} tt_trail;

/* A file that is not there yet. Errors: ESYS with a sentence (no such directory,
 * no room); ENOMEM. */
tutti_err tt_trail_open(const char *path, const tt_trail_head *head,
                        tt_trail **out, tutti_diag *diag);
void tt_trail_close(tt_trail *r); /* accepts NULL */

/* The next piece of the file; false: there is no room, which has been logged, and
 * nothing more is recorded. */
bool tt_trail_turn(tt_trail *r);

/* Room for a record, zeroed, to be filled at once, its kind last; NULL: nothing
 * is recorded any more. */
static inline tt_mark *tt_trail_next(tt_trail *r)
{
    if (TT_LIKELY(r->next != r->end) || tt_trail_turn(r))
        return r->next++;
    return NULL;
}

/* A text, whole or not at all. */
void tt_trail_text(tt_trail *r, tt_mark_kind kind, const char *text,
                   size_t len);

#endif
