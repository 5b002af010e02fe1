/* SPDX-License-Identifier: BSD-3-Clause
 * job.h - one buffer being averaged among the members of a group: a walk
 * (walk/walk.h) on a copy of the buffer, and what the connections note of it. No
 * sockets; ties.c moves the bytes.
 *
 * The copy (the shadow) is scaled by the member's weight; the buffer itself is
 * written only by tt_job_write(), when all of the group has gone well; or is its
 * own shadow, where it is a copy already.
 *
 * Partners are those of the bound part: bound->partners[i].peer is a member's
 * place in the group. */
#ifndef TT_PARTIAL_JOB_H
#define TT_PARTIAL_JOB_H

#include "partial/spares.h"
#include "walk/walk.h"

typedef struct tt_job_opts {
    tt_bound *bound; /* a reference is taken over; NULL: alone in the group */
    void *buf;       /* borrowed until the job is freed */
    tt_copy copy;    /* of it, taken over */
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
    tt_walk walk; /* alone: of nothing, and done; walk.b is NULL */
    tt_spares *spares;
    tt_job_opts o;
    uint64_t bytes;
    unsigned char *block;
    size_t block_bytes;
    uint32_t *lent; /* [n_sends] slices that the partner reads where they lie */
} tt_job;

/* Errors: ENOMEM (and the bound part's reference and the copy stay the
 * caller's). */
tutti_err tt_job_create(const tt_job_opts *o, tt_spares *spares, tt_job **out);
/* Nothing more goes to the partner, or comes from it. */
bool tt_job_is_done_with(const tt_job *job, uint32_t partner);
/* Writes the result to the buffer. */
void tt_job_write(tt_job *job);
/* Lets the bound part go: call it under the lock that counts its references. */
void tt_job_free(tt_job *job); /* accepts NULL */

/* The slice that was sent last is read by the partner where it lies. */
void tt_job_lent(tt_job *job, uint32_t send_lane);
/* Slices are lent so that the partner has not taken. */
bool tt_job_lends(const tt_job *job, uint32_t send_lane);
/* The partner has read those of its lane below `taken`. */
void tt_job_taken(tt_job *job, uint32_t partner, uint32_t wire, uint32_t taken);

#endif
