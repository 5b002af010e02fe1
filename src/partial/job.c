/* SPDX-License-Identifier: BSD-3-Clause
 * job.c - a walk on the shadow of a buffer.
 *
 * A member contributes its buffer times its weight; where all weights are equal
 * the sum is divided once, by the rank that completes it. Slices are sent, or
 * lent: then the partner reads them in this member's memory, and they count as
 * taken when it says so.
 * Next       walk/machine.c (the order of events), tie_send.c and tie_read.c (what
 *            moves the bytes). */
#include "partial/job.h"

#include <string.h>

/* The connections ask the walk what there is to send, and what credit is due. */
static const tt_walk_hooks hooks = {.ready = NULL};

/* ------------------------------------------------------------------ life -- */

/* Zeroed: the walk's memory, then what the connections note. */
static tutti_err make_walk(tt_job *job)
{
    const tt_bound *b = job->o.bound;
    const size_t n_flags = b->n_partners * sizeof(bool);
    const size_t n_lent = b->n_sends * sizeof(uint32_t);
    const size_t walk_bytes = tt_walk_init(&job->walk, b, &hooks, NULL);
    job->block_bytes = TT_CACHE_LINE + walk_bytes + n_lent + 3 * n_flags;
    job->block = tt_spares_take(job->spares, &job->block_bytes);
    if (!job->block)
        return TUTTI_ENOMEM;
    unsigned char *at = tt_spares_align(job->block);
    tt_walk_init(&job->walk, b, &hooks, at);
    at += walk_bytes;
    memset(at, 0, n_lent + 3 * n_flags);
    job->lent = (uint32_t *)(void *)at;
    job->has_bound = (bool *)(at + n_lent);
    job->has_said = job->has_bound + b->n_partners;
    job->may_say = job->has_said + b->n_partners;
    return TUTTI_OK;
}

/* The member's contribution. */
static void weigh(tt_job *job)
{
    const tt_job_opts *o = &job->o;
    unsigned char *shadow = o->copy.at;
    if (job->bytes == 0 || o->is_even || o->n == 1)
        return;
    if (o->weight > 0)
        tt_scale_kernel(o->type)(shadow, shadow, o->count, o->weight);
    else
        memset(shadow, 0, job->bytes);
}

tutti_err tt_job_create(const tt_job_opts *o, tt_spares *spares, tt_job **out)
{
    tt_job *job = tt_new(spares->mem, 1, sizeof(*job));
    if (!job)
        return TUTTI_ENOMEM;
    job->spares = spares;
    job->o = *o;
    job->bytes = o->count * tutti_type_bytes(o->type);
    tutti_err err = o->bound ? make_walk(job) : TUTTI_OK;
    if (err) {
        tt_free(spares->mem, job, 1, sizeof(*job));
        return err;
    }
    weigh(job);
    *out = job;
    if (!o->bound)
        return TUTTI_OK;
    tt_walk *w = &job->walk;
    tt_walk_reduces(w, o->type, o->is_even ? TUTTI_AVG : TUTTI_SUM, o->n);
    tt_walk_reset(w, o->copy.at, o->copy.at);
    tt_walk_begin(w);
    /* Whom the connections may not send to yet they do not ask about. */
    for (uint32_t p = 0; p < o->bound->n_partners; p++)
        tt_walk_open(w, p);
    return TUTTI_OK;
}

void tt_job_write(tt_job *job)
{
    if (job->bytes > 0 && job->o.copy.at != job->o.buf)
        memcpy(job->o.buf, job->o.copy.at, job->bytes);
}

void tt_job_free(tt_job *job)
{
    if (!job)
        return;
    tt_spares *spares = job->spares;
    tt_bound_unref(job->o.bound);
    tt_copy_drop(spares, &job->o.copy);
    if (job->block)
        tt_spares_give(spares, job->block, job->block_bytes);
    tt_free(spares->mem, job, 1, sizeof(*job));
}

/* -------------------------------------------------------------- partners -- */

bool tt_job_is_done_with(const tt_job *job, uint32_t partner)
{
    return tt_walk_has_served(&job->walk, partner) &&
           tt_walk_has_heard(&job->walk, partner);
}

/* --------------------------------------------------------------- lending -- */

void tt_job_lent(tt_job *job, uint32_t l)
{
    job->lent[l] = job->walk.sent[l];
}

bool tt_job_lends(const tt_job *job, uint32_t l)
{
    return job->walk.taken[l] < job->lent[l];
}

void tt_job_taken(tt_job *job, uint32_t partner, uint32_t wire, uint32_t taken)
{
    const tt_partner *p = &job->walk.b->partners[partner];
    if (wire >= p->n_sends)
        return;
    uint32_t l = p->sends + wire;
    while (job->walk.taken[l] < taken && tt_job_lends(job, l))
        tt_walk_taken(&job->walk, l);
}
