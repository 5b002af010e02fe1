/* SPDX-License-Identifier: BSD-3-Clause
 * walk.h - performs one rank's part of a schedule: the one interpreter, and the
 * face of src/walk.
 *
 * A walk is one bound part (lower.h) being performed once, on the memory of one
 * call. It knows what may be sent next, where what comes belongs, and what
 * follows from either. It moves no message: whoever owns the walk does that,
 * over whatever there is (the engine over its mesh, a test through memory). It
 * is pure: no socket, lock or clock, and its memory is handed in.
 *
 *   owner                         walk
 *   tt_walk_reset(in, out)        counters are 0
 *   tt_walk_begin()               what stays here is copied
 *   tt_walk_open(partner)         sends to it that wait for nothing are ready
 *     hook ready(partner)  <--
 *   tt_walk_next(partner)         the ready slice that goes first: where it
 *                                 lies, how long it is, which one it is
 *   tt_walk_sent(partner, ...)    it is on its way
 *   tt_walk_taken(lane)           TAKEN: nobody reads its memory any more, so
 *                                 groups may write there; now, or by then
 *     hook settle(partner) <--    nothing else is waited for
 *   tt_walk_acked(partner, ...)   ACKNOWLEDGED: the partner has consumed so
 *                                 many slices of a lane, so there is room for
 *                                 more
 *   tt_walk_find(partner, what)   the lane of a slice that comes; or it breaks
 *                                 a rule
 *   tt_walk_place(lane)           where its bytes are best written
 *   tt_walk_arrived(lane, data)   it is applied if its turn has come, else kept
 *     hook credit(partner) <--    and whoever waited for that is told
 *     hook done()          <--    nothing is left to come or to be taken
 *
 * Input that comes bit by bit: tt_walk_await() before tt_walk_begin(), then
 * tt_walk_there() as it comes. What is sent or reduced of it waits until then.
 *
 * Taken and acknowledged are two things: a transport has taken a slice when it
 * has copied or sent it, the partner acknowledges it when it has been reduced.
 *
 * Memory within reach: a partner's input and output may lie where this rank can
 * use them. Then transfers that part.c allows need no message of their own:
 *   pull   the receiver reads its input in the sender's buffer, by
 *          tt_walk_pull(), a slice at a time
 *   put    the sender writes a result to the receiver's output as it makes it
 *
 * Next: machine.c (how, and why it cannot hang), carve.c (its memory), lower.h
 * (from a schedule to what one rank has to do), layout.h (the caller's
 * buffers), reduce.h (the arithmetic). */
#ifndef TT_WALK_WALK_H
#define TT_WALK_WALK_H

#include <sys/uio.h>

#include "walk/layout.h"
#include "walk/lower.h"
#include "walk/reduce.h"

#define TT_WALK_IOV 64

typedef struct tt_walk tt_walk;

/* What has happened to a slice: of a send lane, of receive lanes. */
typedef enum tt_told {
    TT_TOLD_SENT,
    TT_TOLD_TAKEN,
    TT_TOLD_ARRIVED,
    TT_TOLD_APPLIED
} tt_told;

/* A reduction of sources to places; one source: a copy. */
typedef struct tt_walk_job {
    const void *const *src;
    void *const *dst;
    uint32_t n_src, n_dst;
    size_t count;
    bool divides;
} tt_walk_job;

/* What the owner does for a walk. A hook may end the walk (is_over), and not
 * free it. */
typedef struct tt_walk_hooks {
    /* A send to the partner is ready, and none was. NULL: the owner asks
     * tt_walk_next(). */
    void (*ready)(tt_walk *w, uint32_t partner);
    /* The partner is to hear how many slices of its lane have been consumed:
     * tt_walk_acked() there. NULL: nobody is told. */
    void (*credit)(tt_walk *w, uint32_t partner, uint32_t wire,
                   uint32_t consumed);
    /* A slice that is here, or all of the walk, waits for nothing else than
     * that what was lent to the partner is taken; the owner may say so
     * (tt_walk_taken()) before it returns. NULL: it comes by itself. */
    void (*settle)(tt_walk *w, uint32_t partner);
    /* Nothing is left: the result is there, and all that was sent is taken.
     * NULL: the owner looks at is_over. */
    void (*done)(tt_walk *w);
    /* These three only where memory is within reach. There may be slices to
     * pull. */
    void (*pulls)(tt_walk *w);
    /* A partner's memory is used from now on; false: it is gone, and so will
     * be this walk. Nests not; release() may come without. */
    bool (*hold)(tt_walk *w, uint32_t partner);
    void (*release)(tt_walk *w, uint32_t partner);
    /* Slice k of a lane: for who keeps a record. What is pulled has not arrived
     * when it is applied. NULL: nobody does. */
    void (*tell)(tt_walk *w, tt_told what, uint32_t lane, uint32_t k);
    /* Who makes reductions and copies elsewhere. Begins one, to all of these
     * places; they are made in the order in which they were begun. False: it
     * cannot, and will end the walk. When all of a group's slice have begun:
     * begun(), and the owner calls tt_walk_made() when they are made. All
     * memory must be within reach then, and all is pulled or put. NULL: they
     * are made here. */
    bool (*reduce)(tt_walk *w, const tt_walk_job *job);
    void (*begun)(tt_walk *w, uint32_t group);
} tt_walk_hooks;

/* What faces one partner. */
typedef struct tt_walk_side {
    uint64_t *heap; /* of the lanes that are ready: (position, lane) */
    uint32_t n_ready;
    bool is_open;             /* it may be sent to */
    bool may_read, may_write; /* by it: this rank's input, its output */
    const unsigned char *in;  /* the partner's; NULL: not within reach */
    unsigned char *out;
} tt_walk_side;

struct tt_walk {
    const tt_bound *b;
    const tt_walk_hooks *hooks;
    unsigned char *base[3]; /* by tt_base */
    unsigned char *staging;
    tt_kernels kernels;
    uint32_t divisor;
    /* Counters in slices. */
    uint32_t *sent, *taken, *acked; /* [n_sends] */
    uint32_t *lent; /* [n_sends] sent, and read by others until they say so */
    uint32_t *arrived, *credited; /* [n_recvs] */
    uint32_t *done;               /* [n_groups] */
    bool *heaped;                 /* [n_sends] */
    bool *making;                 /* [n_groups] a slice of it, elsewhere */
    uint32_t there;               /* positions of the input */
    uint32_t n_applied;           /* slices of groups */
    /* Slices from there on (plus 1; 0: none) were put: to the partner's output,
     * [n_sends]; to this rank's, [n_recvs]. */
    uint32_t *put_out, *put_in;
    tt_walk_side *sides;    /* [n_partners] */
    uint32_t *results_left; /* [n_positions] */
    uint64_t *cursor;       /* [n_recvs] */
    uint64_t *heaps;        /* [n_sends], by partner */
    const void **sources;   /* [most inputs + 1] */
    void **targets;         /* [n_sends + 1] */
    uint32_t front;         /* where there is a front window */
    uint32_t n_open;        /* lanes to be taken + groups to finish */
    uint32_t n_lent;        /* of these lanes: all is sent, and lent */
    uint32_t n_near;        /* sides whose memory is within reach */
    bool is_over;           /* it is done, or its owner has ended it */
    unsigned char *memory;
    size_t cleared_bytes;
};

/* ----------------------------------------------------------------- life -- */

/* memory: borrowed, best aligned to a cache line; returns how many bytes of it
 * the walk needs, so ask with NULL first. The walk serves any number of calls,
 * one after the other. */
size_t tt_walk_init(tt_walk *w, const tt_bound *b, const tt_walk_hooks *hooks,
                    unsigned char *memory);
/* The arithmetic; AVG divides by divisor. Stays for later calls. */
static inline void tt_walk_reduces(tt_walk *w, tutti_type type, tutti_op op,
                                   uint32_t divisor)
{
    w->kernels = tt_kernels_of(type, op);
    w->divisor = divisor;
}
/* Before every call. `in` is only read. */
void tt_walk_reset(tt_walk *w, const void *in, void *out);
void tt_walk_begin(tt_walk *w);
/* After the reset: nothing of the input is there yet. */
void tt_walk_await(tt_walk *w);
/* Its first so many positions are there, of lower.h's n_positions. More than
 * before. */
void tt_walk_there(tt_walk *w, uint32_t positions);
static inline bool tt_walk_is_done(const tt_walk *w)
{
    return w->n_open == 0;
}

/* Results go out in order, by fronts. */
static inline bool tt_has_front(const tt_bound *b)
{
    return b->window_positions != UINT32_MAX;
}

/* -------------------------------------------------------------- lengths -- */

/* The first n slices of a lane, in memory; a lane of several chunks has one. */
static inline uint64_t tt_walk_bytes_before(const tt_walk *w,
                                            const tt_lane *lane, uint32_t n)
{
    if (lane->n_slices == 1)
        return n * lane->slice_bytes;
    return tt_slice_at(lane->n_elems, n, lane->n_slices) * w->b->elem_bytes;
}
/* Slice k of it. */
static inline uint64_t tt_walk_slice_bytes(const tt_walk *w,
                                           const tt_lane *lane, uint32_t k)
{
    return lane->n_slices == 1 ? lane->slice_bytes
                               : tt_walk_bytes_before(w, lane, k + 1) -
                                     tt_walk_bytes_before(w, lane, k);
}
/* What a slice of so many bytes in memory has on its way: as many, as long as
 * nothing is encoded. */
static inline uint64_t tt_wire_bytes(uint64_t bytes)
{
    return bytes;
}

/* ---------------------------------------------------------------- sends -- */

typedef struct tt_slice {
    uint32_t lane;        /* here */
    uint32_t wire, slice; /* what the partner knows it by */
    bool is_put;          /* it is there already: only the word goes */
    int n_iov;
    uint64_t len; /* on the wire */
    struct iovec iov[TT_WALK_IOV];
} tt_slice;

/* The partner may be sent to. */
void tt_walk_open(tt_walk *w, uint32_t partner);
/* The slice that goes to the partner next; false: none is ready. Nothing has
 * changed until tt_walk_sent(). */
bool tt_walk_next(tt_walk *w, uint32_t partner, tt_slice *out);
/* The slice that tt_walk_next() gave is on its way, and taken, or lent until
 * tt_walk_taken(). */
void tt_walk_sent(tt_walk *w, uint32_t partner, bool is_taken);
/* The oldest slice of the lane that was lent is taken. */
void tt_walk_taken(tt_walk *w, uint32_t send_lane);
/* The partner has consumed so many of the lane that it knows as `wire`; what
 * makes no sense is ignored. */
void tt_walk_acked(tt_walk *w, uint32_t partner, uint32_t wire,
                   uint32_t consumed);

/* ------------------------------------------------------------- receives -- */

/* What the partner says of a slice that comes. */
typedef struct tt_coming {
    uint32_t wire, slice;
    uint64_t len; /* on the wire */
    bool is_put;  /* it lies at its place already */
} tt_coming;

/* The receive lane of which it is the next slice, within credit and of the
 * right length; TT_NONE: it breaks a rule. */
static inline uint32_t tt_walk_find(const tt_walk *w, uint32_t partner,
                                    const tt_coming *what)
{
    const tt_partner *p = &w->b->partners[partner];
    if (what->wire >= p->n_recvs)
        return TT_NONE;
    uint32_t l = w->b->index[p->recvs + what->wire];
    const tt_lane *lane = &w->b->recvs[l];
    const uint32_t k = what->slice;
    if (k != w->arrived[l] || k >= lane->n_slices ||
        k >= w->credited[l] + w->b->window)
        return TT_NONE;
    bool is_right =
        what->is_put
            ? lane->is_put && w->sides[partner].may_write && what->len == 0
            : what->len == tt_wire_bytes(tt_walk_slice_bytes(w, lane, k));
    return is_right ? l : TT_NONE;
}
/* Where the next slice of the lane may be written as it comes: straight to its
 * place when nothing forbids it, else to its slot. */
void *tt_walk_place(tt_walk *w, uint32_t recv_lane);
/* It is here, at tt_walk_place() or anywhere else; data is not used after the
 * return. NULL: it was put. */
void tt_walk_arrived(tt_walk *w, uint32_t recv_lane, const void *data);

/* --------------------------------------------------------- within reach -- */

/* The partner has begun, and this is its memory here; either may be NULL. Once
 * a call. */
void tt_walk_near(tt_walk *w, uint32_t partner, const void *in, void *out);
/* Applies the least slice that is pulled; false: there is none. */
bool tt_walk_pull(tt_walk *w);
/* What hook begun() told of is made. */
void tt_walk_made(tt_walk *w, uint32_t group);

/* ------------------------------------------------------------ questions -- */

/* All that comes from the partner is here. */
bool tt_walk_has_heard(const tt_walk *w, uint32_t partner);
/* It is the partner's turn: to send something, to let this rank send, or to
 * take what was sent. */
bool tt_walk_waits_for(const tt_walk *w, uint32_t partner);
/* All that comes from it is here, and all that goes to it has been taken. */
bool tt_walk_is_through(const tt_walk *w, uint32_t partner);
/* How far it is. */
typedef struct tt_walk_state {
    uint32_t step, n_steps; /* the first one in which something is left to do;
                               n_steps when nothing is */
    uint64_t moved_bytes;   /* that have come */
    uint64_t gone_bytes;    /* that were sent, and are taken */
} tt_walk_state;
tt_walk_state tt_walk_look(const tt_walk *w);

#endif
