/* SPDX-License-Identifier: BSD-3-Clause
 * exchange.c - performs a bound part on the shadow of a buffer.
 *
 * Send       slice k of a lane goes when the partner may have it (ties.c), k is
 *            less than W beyond what it has consumed (credit), the groups
 *            before it have done slice k, and, for own data, the front window
 *            reaches it. Of those that may go the least position goes first.
 * Group      slice k is applied when it has arrived on all its lanes, the
 *            groups before have done it, and the sends that read the same
 *            memory have left it. Inputs in order of src: the bits do not
 *            depend on arrival.
 * No hang    as docs/engine.md proves for the engine: the conditions are the
 *            same.
 * Cost       next() looks at all lanes of a partner: a few for the groups that
 *            partial reduce has.
 * Next       mesh.c moves the bytes. */
#include "partial/exchange.h"

#include <string.h>

/* Smaller blocks are not worth whole pages that others may map (views.c). */
static const size_t shared_bytes = 16 << 10;

static unsigned char *address(const tt_job *job, const tt_span *span,
                              uint64_t elem)
{
    return job->base[span->base] + span->offset + elem * job->b->elem_bytes;
}

/* ----------------------------------------------------------------- sends -- */

static bool may_send(const tt_job *job, uint32_t l)
{
    const tt_bound *b = job->b;
    const tt_lane *lane = &b->sends[l];
    uint32_t k = job->sent[l];
    if (k >= lane->n_slices || k >= job->acked[l] + b->window)
        return false;
    if (lane->is_origin && b->window_positions != UINT32_MAX &&
        (uint64_t)k * lane->stride >=
            (uint64_t)job->front + b->window_positions)
        return false;
    for (uint32_t i = 0; i < lane->n_preds; i++)
        if (job->finished[b->index[lane->preds + i]] <= k)
            return false;
    return true;
}

/* Merged lanes of many chunks are packed. */
static void gather(tt_job *job, const tt_lane *lane, tt_job_slice *out)
{
    const tt_span *span = &job->b->spans[lane->span];
    const uint64_t size = job->b->elem_bytes;
    uint64_t first = tt_slice_at(span->n_elems, out->slice, lane->n_slices);
    uint64_t last = tt_slice_at(span->n_elems, out->slice + 1, lane->n_slices);
    out->len = lane->n_chunks > 1 ? lane->slice_bytes : (last - first) * size;
    out->n_iov = 1;
    if (lane->is_contiguous) {
        out->iov[0] = (struct iovec){address(job, span, first), out->len};
        return;
    }
    if (lane->n_chunks <= TT_JOB_IOV) {
        for (uint32_t i = 0; i < lane->n_chunks; i++)
            out->iov[i] = (struct iovec){address(job, &span[i], 0),
                                         span[i].n_elems * size};
        out->n_iov = (int)lane->n_chunks;
        return;
    }
    unsigned char *to = job->staging + lane->staging;
    out->iov[0] = (struct iovec){to, out->len};
    for (uint32_t i = 0; i < lane->n_chunks; i++) {
        memcpy(to, address(job, &span[i], 0), span[i].n_elems * size);
        to += span[i].n_elems * size;
    }
}

bool tt_job_next(tt_job *job, uint32_t partner, tt_job_slice *out)
{
    const tt_partner *p = &job->b->partners[partner];
    uint64_t best = UINT64_MAX;
    for (uint32_t l = p->sends; l < p->sends + p->n_sends; l++) {
        uint64_t at = (uint64_t)job->sent[l] * job->b->sends[l].stride;
        if (at < best && may_send(job, l)) {
            best = at;
            out->l = l;
        }
    }
    if (best == UINT64_MAX)
        return false;
    const tt_lane *lane = &job->b->sends[out->l];
    out->wire = lane->wire;
    out->slice = job->sent[out->l]++;
    gather(job, lane, out);
    return true;
}

void tt_job_lent(tt_job *job, uint32_t l)
{
    job->lent[l] = job->sent[l];
}

bool tt_job_lends(const tt_job *job, uint32_t l)
{
    return job->left[l] < job->lent[l];
}

void tt_job_taken(tt_job *job, uint32_t partner, uint32_t wire, uint32_t taken)
{
    const tt_partner *p = &job->b->partners[partner];
    if (wire >= p->n_sends)
        return;
    uint32_t l = p->sends + wire;
    while (job->left[l] < taken && job->left[l] < job->lent[l])
        tt_job_left(job, l);
}

void tt_job_credit(tt_job *job, uint32_t partner, uint32_t wire,
                   uint32_t consumed)
{
    const tt_partner *p = &job->b->partners[partner];
    if (wire >= p->n_sends)
        return;
    uint32_t l = p->sends + wire;
    if (consumed > job->acked[l] && consumed <= job->sent[l])
        job->acked[l] = consumed;
}

/* ---------------------------------------------------------------- groups -- */

static unsigned char *slot(const tt_job *job, const tt_lane *lane, uint32_t k)
{
    uint64_t stride = (lane->slice_bytes + TT_CACHE_LINE - 1) &
                      ~(uint64_t)(TT_CACHE_LINE - 1);
    return job->staging + lane->staging + (k % job->b->window) * stride;
}

/* What has come; of one slice, by job->ref, it lies with the partner. */
static const unsigned char *input(const tt_job *job, uint32_t l, uint32_t k)
{
    return job->ref && l == job->ref_lane ? job->ref
                                          : slot(job, &job->b->recvs[l], k);
}

/* Whether nothing but its inputs keeps slice k of the group. */
static bool is_free(const tt_job *job, const tt_group *group, uint32_t k)
{
    const uint32_t *index = job->b->index;
    for (uint32_t i = 0; i < group->n_gates; i++)
        if (job->left[index[group->gates + i]] <= k)
            return false;
    for (uint32_t i = 0; i < group->n_preds; i++)
        if (job->finished[index[group->preds + i]] <= k)
            return false;
    return true;
}

static bool has_arrived(const tt_job *job, const tt_group *group, uint32_t k)
{
    for (uint32_t i = 0; i < group->n_lanes; i++)
        if (job->arrived[job->b->index[group->lanes + i]] <= k)
            return false;
    return true;
}

/* The place of a copied slice; NULL: it has to be put together. */
static unsigned char *copied_to(const tt_job *job, const tt_lane *lane,
                                uint32_t k)
{
    const tt_group *group = &job->b->groups[lane->group];
    const tt_piece *piece = &job->b->pieces[group->pieces];
    if (!group->is_copy || !lane->is_contiguous || group->n_lanes != 1)
        return NULL;
    return address(job, &piece->to,
                   tt_slice_at(piece->to.n_elems, k, lane->n_slices));
}

static void apply_piece(tt_job *job, const tt_piece *piece, uint32_t at,
                        const tt_group *group, uint32_t k)
{
    const tt_bound *b = job->b;
    uint64_t n = piece->to.n_elems;
    uint64_t first = tt_slice_at(n, k, group->n_slices);
    uint64_t count = tt_slice_at(n, k + 1, group->n_slices) - first;
    unsigned char *to = address(job, &piece->to, first);
    job->sources[0] = address(job, &piece->own, first);
    for (uint32_t i = 0; i < piece->n_inputs; i++) {
        uint32_t l = b->index[piece->inputs + i];
        if (b->recvs[l].chunk == at)
            job->cursor[l] = 0;
        job->sources[1 + i] = input(job, l, k) + job->cursor[l];
        job->cursor[l] += count * b->elem_bytes;
    }
    if (group->is_copy)
        memcpy(to, job->sources[1], count * b->elem_bytes);
    else
        job->reduce(to, job->sources, piece->n_inputs + 1, count);
    if (piece->divides && job->divide)
        job->divide(to, count, job->o.n);
}

static void close_one(tt_job *job)
{
    if (--job->n_open == 0)
        job->is_over = true;
}

static void try_group(tt_job *job, uint32_t g);

static void finish_slice(tt_job *job, uint32_t g)
{
    const tt_bound *b = job->b;
    const tt_group *group = &b->groups[g];
    uint32_t k = ++job->finished[g];
    for (uint32_t i = 0; i < group->n_lanes; i++)
        job->applied[b->index[group->lanes + i]] = k;
    if (group->is_result)
        job->results_left[k * group->stride - 1]--;
    while (job->front < b->n_positions && job->results_left[job->front] == 0)
        job->front++;
    for (uint32_t i = 0; i < group->n_nexts; i++)
        try_group(job, b->index[group->nexts + i]);
    if (k == group->n_slices)
        close_one(job);
}

static void apply(tt_job *job, uint32_t g)
{
    const tt_bound *b = job->b;
    const tt_group *group = &b->groups[g];
    uint32_t k = job->finished[g];
    const tt_lane *lane = &b->recvs[b->index[group->lanes]];
    for (uint32_t p = 0; p < group->n_pieces; p++)
        apply_piece(job, &b->pieces[group->pieces + p], lane->chunk + p, group,
                    k);
    finish_slice(job, g);
}

static void try_group(tt_job *job, uint32_t g)
{
    const tt_group *group = &job->b->groups[g];
    while (job->finished[g] < group->n_slices &&
           has_arrived(job, group, job->finished[g]) &&
           is_free(job, group, job->finished[g]))
        apply(job, g);
}

void tt_job_left(tt_job *job, uint32_t l)
{
    const tt_lane *lane = &job->b->sends[l];
    job->left[l]++;
    for (uint32_t i = 0; i < lane->n_blocks; i++)
        try_group(job, job->b->index[lane->blocks + i]);
    if (job->left[l] == lane->n_slices)
        close_one(job);
}

bool tt_job_is_done_with(const tt_job *job, uint32_t partner)
{
    const tt_bound *b = job->b;
    const tt_partner *p = &b->partners[partner];
    for (uint32_t l = p->sends; l < p->sends + p->n_sends; l++)
        if (job->left[l] < b->sends[l].n_slices)
            return false;
    for (uint32_t i = 0; i < p->n_recvs; i++) {
        uint32_t l = b->index[p->recvs + i];
        if (job->arrived[l] < b->recvs[l].n_slices)
            return false;
    }
    return true;
}

uint32_t tt_job_partner(const tt_job *job, uint32_t member)
{
    uint32_t low = 0;
    uint32_t high = job->b ? job->b->n_partners : 0;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (job->b->partners[mid].peer == member)
            return mid;
        if (job->b->partners[mid].peer < member)
            low = mid + 1;
        else
            high = mid;
    }
    return TT_NONE;
}

/* -------------------------------------------------------------- receives -- */

static uint64_t slice_bytes(const tt_job *job, const tt_lane *lane, uint32_t k)
{
    const tt_bound *b = job->b;
    if (lane->n_chunks > 1)
        return lane->slice_bytes;
    const tt_group *group = &b->groups[lane->group];
    const tt_lane *first = &b->recvs[b->index[group->lanes]];
    uint64_t n =
        b->pieces[group->pieces + (lane->chunk - first->chunk)].to.n_elems;
    return (tt_slice_at(n, k + 1, lane->n_slices) -
            tt_slice_at(n, k, lane->n_slices)) *
           b->elem_bytes;
}

static uint32_t find_recv(const tt_job *job, uint32_t partner, uint32_t wire)
{
    const tt_partner *p = &job->b->partners[partner];
    return wire < p->n_recvs ? job->b->index[p->recvs + wire] : TT_NONE;
}

/* A copy whose time has come goes straight to its place. */
static unsigned char *direct(const tt_job *job, const tt_lane *lane, uint32_t k)
{
    const tt_group *group = &job->b->groups[lane->group];
    if (job->finished[lane->group] != k || !is_free(job, group, k))
        return NULL;
    return copied_to(job, lane, k);
}

/* The lane of which this slice is the next; TT_NONE: it breaks a rule. */
static uint32_t find_next(const tt_job *job, uint32_t partner,
                          const tt_job_wire *wire)
{
    uint32_t l = find_recv(job, partner, wire->wire);
    if (l == TT_NONE || job->is_over)
        return TT_NONE;
    const tt_lane *lane = &job->b->recvs[l];
    const uint32_t slice = wire->slice;
    return slice == job->arrived[l] && slice < lane->n_slices &&
                   slice < job->credited[l] + job->b->window &&
                   wire->len == slice_bytes(job, lane, slice)
               ? l
               : TT_NONE;
}

void *tt_job_place(tt_job *job, uint32_t partner, const tt_job_wire *wire)
{
    uint32_t l = find_next(job, partner, wire);
    if (l == TT_NONE)
        return NULL;
    const tt_lane *lane = &job->b->recvs[l];
    unsigned char *to = direct(job, lane, wire->slice);
    job->is_direct[l] = to != NULL;
    return to ? to : slot(job, lane, wire->slice);
}

static void arrive(tt_job *job, uint32_t l)
{
    const tt_lane *lane = &job->b->recvs[l];
    job->arrived[l]++;
    if (job->is_direct[l])
        finish_slice(job, lane->group);
    try_group(job, lane->group);
}

void tt_job_arrived(tt_job *job, uint32_t partner, uint32_t wire)
{
    arrive(job, find_recv(job, partner, wire));
}

/* Whether it is all that the group's next slice waits for. */
static bool is_last(const tt_job *job, uint32_t l, uint32_t k)
{
    const tt_group *group = &job->b->groups[job->b->recvs[l].group];
    for (uint32_t i = 0; i < group->n_lanes; i++) {
        uint32_t other = job->b->index[group->lanes + i];
        if (other != l && job->arrived[other] <= k)
            return false;
    }
    return job->finished[job->b->recvs[l].group] == k && is_free(job, group, k);
}

bool tt_job_refer(tt_job *job, uint32_t partner, const tt_job_wire *wire,
                  const void *from)
{
    uint32_t l = find_next(job, partner, wire);
    if (l == TT_NONE)
        return false;
    unsigned char *to = direct(job, &job->b->recvs[l], wire->slice);
    job->is_direct[l] = to != NULL;
    if (!to && is_last(job, l, wire->slice)) {
        job->ref = from;
        job->ref_lane = l;
    } else {
        memcpy(to ? to : slot(job, &job->b->recvs[l], wire->slice), from,
               wire->len);
    }
    arrive(job, l);
    job->ref = NULL;
    return true;
}

bool tt_job_next_credit(tt_job *job, uint32_t partner, uint32_t *wire,
                        uint32_t *consumed)
{
    const tt_bound *b = job->b;
    const tt_partner *p = &b->partners[partner];
    const uint32_t batch = b->window > 1 ? b->window / 2 : 1;
    for (uint32_t i = 0; i < p->n_recvs; i++) {
        uint32_t l = b->index[p->recvs + i];
        const tt_lane *lane = &b->recvs[l];
        if (lane->n_slices <= job->credited[l] + b->window ||
            job->applied[l] - job->credited[l] < batch)
            continue;
        *consumed = job->credited[l] = job->applied[l];
        *wire = i;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ pool -- */

/* Memory of its own, or that others may map. */
static bool is_shared(const tt_pool *p, size_t bytes)
{
    return p->regions && bytes >= shared_bytes;
}

static unsigned char *new_block(tt_pool *p, size_t bytes)
{
    return is_shared(p, bytes) ? tt_regions_alloc(p->regions, bytes)
                               : p->mem->fn(p->mem->ctx, NULL, 0, bytes);
}

static void free_block(tt_pool *p, unsigned char *block, size_t bytes)
{
    if (is_shared(p, bytes))
        tt_regions_free(p->regions, block);
    else
        p->mem->fn(p->mem->ctx, block, bytes, 0);
}

void tt_pool_init(tt_pool *p, const tt_mem *mem, tt_regions *regions)
{
    *p = (tt_pool){.mem = mem, .regions = regions};
    pthread_mutex_init(&p->lock, NULL);
}

void tt_pool_fini(tt_pool *p)
{
    for (int i = 0; i < TT_POOL_BLOCKS; i++)
        if (p->spare[i].block)
            free_block(p, p->spare[i].block, p->spare[i].bytes);
    pthread_mutex_destroy(&p->lock);
}

/* At least *bytes, and not much more; *bytes is what there is. Not zeroed. */
static unsigned char *take_block(tt_pool *p, size_t *bytes)
{
    unsigned char *found = NULL;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < TT_POOL_BLOCKS && !found; i++) {
        size_t have = p->spare[i].bytes;
        if (!p->spare[i].block || have < *bytes || have / 4 * 3 > *bytes)
            continue;
        found = p->spare[i].block;
        p->spare[i].block = NULL;
        *bytes = have;
    }
    pthread_mutex_unlock(&p->lock);
    return found ? found : new_block(p, *bytes);
}

static void give_block(tt_pool *p, unsigned char *block, size_t bytes)
{
    pthread_mutex_lock(&p->lock);
    uint32_t at = 0;
    while (at < TT_POOL_BLOCKS && p->spare[at].block)
        at++;
    if (at == TT_POOL_BLOCKS)
        at = p->next++ % TT_POOL_BLOCKS;
    unsigned char *old = p->spare[at].block;
    size_t old_bytes = p->spare[at].bytes;
    p->spare[at].block = block;
    p->spare[at].bytes = bytes;
    pthread_mutex_unlock(&p->lock);
    if (old)
        free_block(p, old, old_bytes);
}

static unsigned char *aligned(unsigned char *at)
{
    uintptr_t skew = (uintptr_t)at % TT_CACHE_LINE;
    return at + (skew ? TT_CACHE_LINE - skew : 0);
}

tutti_err tt_copy_make(tt_pool *p, const void *buf, uint64_t bytes,
                       tt_copy *out)
{
    *out = (tt_copy){.block_bytes = bytes + TT_CACHE_LINE};
    if (bytes == 0)
        return TUTTI_OK;
    out->block = take_block(p, &out->block_bytes);
    if (!out->block)
        return TUTTI_ENOMEM;
    out->at = aligned(out->block);
    memcpy(out->at, buf, bytes);
    return TUTTI_OK;
}

void tt_copy_drop(tt_pool *p, tt_copy *copy)
{
    if (copy->block)
        give_block(p, copy->block, copy->block_bytes);
    *copy = (tt_copy){.at = NULL};
}

/* ------------------------------------------------------------------ life -- */

typedef struct carver {
    unsigned char *at; /* NULL: only adds up */
    size_t used;
} carver;

static void *carve(carver *c, uint64_t n, size_t size, size_t align)
{
    c->used = (c->used + align - 1) & ~(align - 1);
    void *ptr = c->at ? c->at + c->used : NULL;
    c->used += n * size;
    return ptr;
}

static void carve_job(tt_job *job, carver *c)
{
    const tt_bound *b = job->b;
    const size_t u32 = sizeof(uint32_t);
    if (b) {
        job->sources = carve(c, job->o.bond->most_inputs + 1u,
                             sizeof(job->sources[0]), 8);
        job->cursor = carve(c, b->n_recvs, sizeof(uint64_t), 8);
        job->sent = carve(c, b->n_sends, u32, 4);
        job->left = carve(c, b->n_sends, u32, 4);
        job->acked = carve(c, b->n_sends, u32, 4);
        job->lent = carve(c, b->n_sends, u32, 4);
        job->arrived = carve(c, b->n_recvs, u32, 4);
        job->credited = carve(c, b->n_recvs, u32, 4);
        job->applied = carve(c, b->n_recvs, u32, 4);
        job->finished = carve(c, b->n_groups, u32, 4);
        job->results_left = carve(c, b->n_positions, u32, 4);
        job->has_bound = carve(c, b->n_partners, sizeof(bool), 1);
        job->has_said = carve(c, b->n_partners, sizeof(bool), 1);
        job->may_say = carve(c, b->n_partners, sizeof(bool), 1);
        job->is_direct = carve(c, b->n_recvs, sizeof(bool), 1);
        job->cleared_bytes = c->used;
        job->staging = carve(c, b->staging_bytes, 1, TT_CACHE_LINE);
        job->base[TT_SCRATCH] = carve(c, b->scratch_bytes, 1, TT_CACHE_LINE);
    }
}

/* The member's contribution. */
static void weigh(tt_job *job)
{
    const tt_job_opts *o = &job->o;
    if (job->bytes == 0 || o->is_even || o->n == 1)
        return;
    if (o->weight > 0)
        tt_scale_kernel(o->type)(job->shadow, job->shadow, o->count, o->weight);
    else
        memset(job->shadow, 0, job->bytes);
}

static void start(tt_job *job)
{
    const tt_bound *b = job->b;
    job->base[TT_IN] = job->base[TT_OUT] = job->shadow;
    job->reduce = tt_reduce_kernel(job->o.type, TUTTI_SUM);
    job->divide = job->o.is_even ? tt_divide_kernel(job->o.type) : NULL;
    job->n_open = b ? b->n_sends + b->n_groups : 0;
    job->is_over = job->n_open == 0;
    if (b && b->results_at)
        memcpy(job->results_left, b->results_at,
               b->n_positions * sizeof(uint32_t));
    while (b && job->front < b->n_positions &&
           job->results_left[job->front] == 0)
        job->front++;
}

tutti_err tt_job_create(const tt_job_opts *o, tt_pool *pool, tt_job **out)
{
    const tt_mem *mem = pool->mem;
    tt_job *job = tt_new(mem, 1, sizeof(*job));
    if (!job)
        return TUTTI_ENOMEM;
    job->pool = pool;
    job->o = *o;
    job->b = o->bond ? o->bond->b : NULL;
    job->bytes = o->count * tutti_type_bytes(o->type);
    job->shadow = o->copy.at;
    carver c = {0};
    carve_job(job, &c);
    job->block_bytes = c.used + TT_CACHE_LINE;
    job->block = take_block(pool, &job->block_bytes);
    if (!job->block) {
        tt_free(mem, job, 1, sizeof(*job));
        return TUTTI_ENOMEM;
    }
    c = (carver){.at = aligned(job->block)};
    memset(c.at, 0, job->cleared_bytes);
    carve_job(job, &c);
    weigh(job);
    start(job);
    *out = job;
    return TUTTI_OK;
}

void tt_job_write(tt_job *job)
{
    if (job->bytes > 0 && job->shadow != job->o.buf)
        memcpy(job->o.buf, job->shadow, job->bytes);
}

void tt_bond_unref(tt_bond *bond)
{
    if (!bond || --bond->n_refs > 0)
        return;
    tt_bound_free(bond->b);
    tt_free(bond->mem, bond, 1, sizeof(*bond));
}

void tt_job_free(tt_job *job)
{
    if (!job)
        return;
    tt_pool *pool = job->pool;
    tt_bond_unref(job->o.bond);
    tt_copy_drop(pool, &job->o.copy);
    give_block(pool, job->block, job->block_bytes);
    tt_free(pool->mem, job, 1, sizeof(*job));
}
