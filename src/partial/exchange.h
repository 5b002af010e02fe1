/* SPDX-License-Identifier: BSD-3-Clause
 * exchange.h - one buffer being averaged among the members of a group: what
 * is to be sent next, and what follows from what has come. No sockets; the
 * caller moves the bytes.
 *
 * A job performs a bound part (engine/lower.h) on a copy of the buffer (the
 * shadow), scaled by the member's weight; the buffer itself is written only by
 * tt_job_write(), when all of the group has gone well; or is its own shadow, where
 * it is a copy already. It is the engine's walk
 * (op.c) with what partial reduce does not need left out: no communicator, no
 * priorities, no small-call path.
 *
 * Partners are those of the bound part: bound->partners[i].peer is a member's
 * place in the group. */
#ifndef TT_PARTIAL_EXCHANGE_H
#define TT_PARTIAL_EXCHANGE_H

#include <pthread.h>
#include <sys/uio.h>

#include "base/regions.h"
#include "engine/engine.h"

#define TT_JOB_IOV 64

/* Memory of jobs that are over, for the next ones: a model is averaged again
 * and again, and fresh pages cost as much as copying it. [any thread] */
enum { TT_POOL_BLOCKS = 64 };
typedef struct tt_pool {
    const tt_mem *mem;
    tt_regions *regions; /* where large blocks lie, if there is room; or NULL */
    pthread_mutex_t lock;
    struct {
        unsigned char *block;
        size_t bytes;
    } spare[TT_POOL_BLOCKS];
    uint32_t next; /* to give way when all are taken */
} tt_pool;
void tt_pool_init(tt_pool *p, const tt_mem *mem, tt_regions *regions);
void tt_pool_fini(tt_pool *p);

/* A buffer's copy in a block of the pool; or the buffer itself. */
typedef struct tt_copy {
    unsigned char *at;    /* NULL: of no bytes */
    unsigned char *block; /* NULL: the program's */
    size_t block_bytes;
} tt_copy;
/* Errors: ENOMEM. [any thread] */
tutti_err tt_copy_make(tt_pool *p, const void *buf, uint64_t bytes,
                       tt_copy *out);
void tt_copy_drop(tt_pool *p, tt_copy *copy);

/* A bound part that several jobs may use. */
typedef struct tt_bond {
    const tt_mem *mem;
    tt_bound *b;
    uint64_t id; /* of the schedule */
    uint32_t most_inputs;
    uint32_t n_refs; /* under the worker's lock */
} tt_bond;

typedef struct tt_job_opts {
    tt_bond *bond; /* a reference is taken over; NULL: alone in the group */
    void *buf;     /* borrowed until the job is freed */
    tt_copy copy;  /* of it, taken over */
    uint64_t count;
    tutti_type type; /* a float */
    double weight;   /* used unless is_even */
    bool is_even;
    uint32_t n; /* members */
} tt_job_opts;

typedef struct tt_job {
    struct tt_job *next; /* the owner's, like the next seven */
    uint32_t bucket;
    uint64_t fingerprint;
    bool *has_bound; /* [n_partners] the partner has begun it too */
    bool *has_said;  /* [n_partners] it was told that we have */
    bool *may_say;   /* [n_partners] there is a connection */
    void (*done)(void *arg, tutti_err err);
    void *arg;
    /* Its own. */
    tt_pool *pool;
    tt_job_opts o;
    const tt_bound *b; /* NULL: alone */
    unsigned char *base[3];
    unsigned char *staging, *shadow; /* shadow: the copy, or the buffer */
    uint64_t bytes;
    tt_reduce_fn reduce;
    tt_divide_fn divide;                    /* NULL: nothing to divide */
    uint32_t *sent, *left, *acked, *lent;   /* [n_sends] */
    uint32_t *arrived, *credited, *applied; /* [n_recvs] */
    uint32_t *finished;                     /* [n_groups] slices */
    uint32_t *results_left;                 /* [n_positions] */
    uint64_t *cursor;                       /* [n_recvs] */
    bool *is_direct; /* [n_recvs] what comes is placed where it belongs */
    const void **sources;
    const unsigned char *ref; /* a slice of recv ref_lane that lies elsewhere */
    uint32_t ref_lane;
    uint32_t front, n_open;
    bool is_over;
    unsigned char *block;
    size_t block_bytes, cleared_bytes;
} tt_job;

/* Errors: ENOMEM (and the bond's reference and the copy stay the caller's). */
tutti_err tt_job_create(const tt_job_opts *o, tt_pool *pool, tt_job **out);
/* Nothing more goes to the partner, or comes from it. */
bool tt_job_is_done_with(const tt_job *job, uint32_t partner);
/* The partner that is this member; TT_NONE: it is none. */
uint32_t tt_job_partner(const tt_job *job, uint32_t member);
/* Writes the result to the buffer. */
void tt_job_write(tt_job *job);
/* Lets the bond go: call it under the lock that counts its references. */
void tt_job_free(tt_job *job); /* accepts NULL */
void tt_bond_unref(tt_bond *bond);

typedef struct tt_job_slice {
    uint32_t l;           /* the lane, here */
    uint32_t wire, slice; /* what the other side knows it by */
    uint64_t len;
    struct iovec iov[TT_JOB_IOV];
    int n_iov;
} tt_job_slice;

/* A slice that comes: of which lane, as the partner counts them, and how long. */
typedef struct tt_job_wire {
    uint32_t wire, slice;
    uint64_t len;
} tt_job_wire;

/* The slice that goes to the partner next; false: none is ready. */
bool tt_job_next(tt_job *job, uint32_t partner, tt_job_slice *out);
/* It has left its memory. */
void tt_job_left(tt_job *job, uint32_t l);
/* In place of leaving, the slice that tt_job_next() gave is read by the partner where
 * it lies; it has taken those below `taken`. */
void tt_job_lent(tt_job *job, uint32_t l);
void tt_job_taken(tt_job *job, uint32_t partner, uint32_t wire, uint32_t taken);
/* Slices are lent that the partner has not taken. */
bool tt_job_lends(const tt_job *job, uint32_t l);
/* What the partner is owed in credit; false: nothing. */
bool tt_job_next_credit(tt_job *job, uint32_t partner, uint32_t *wire,
                        uint32_t *consumed);
void tt_job_credit(tt_job *job, uint32_t partner, uint32_t wire,
                   uint32_t consumed);
/* Where its bytes go; NULL: it breaks a rule. */
void *tt_job_place(tt_job *job, uint32_t partner, const tt_job_wire *wire);
/* They are there. */
void tt_job_arrived(tt_job *job, uint32_t partner, uint32_t wire);
/* A slice that lies with the partner: it is read before this returns. False: it
 * breaks a rule. */
bool tt_job_refer(tt_job *job, uint32_t partner, const tt_job_wire *wire,
                  const void *from);

#endif
