/* SPDX-License-Identifier: BSD-3-Clause
 * machine.c - the walk: what may go, where what comes belongs, what follows.
 *
 * Idea       Events move counters, counters make lanes ready, ready lanes go
 *            into a heap per partner, ordered by (position, step, chunk); the
 *            owner takes the least one that it has room for. Nothing is
 *            scanned, nothing is allocated.
 * Send k of a lane is ready when its partner may be sent to, k < W + slices
 * that
 *            the partner has consumed (credit), the groups before it have done
 *            slice k, and, where the lane sends own data, the front window
 *            reaches it.
 * Group      slice k is applied when it has arrived on all lanes of the group,
 *            the groups before have done it, and the sends that read the same
 *            memory have been taken. Inputs are taken in order of src, own
 *            value first, or at its place (schedule.h, rule 3), whatever the
 *            order of arrival.
 * Input      lies in a slot; where the slice that came last is (its group waits
 *            for nothing else); in the partner's own buffer (a lane that is
 *            pulled); or at its place already (put).
 * No hang    order events by (slice, step, send before apply): each waits only
 *            for smaller ones. engine.md has the proof. A pull waits for
 *            the partner's word only, so it is a send that happens when the
 *            partner enters; it is not used where the receiver would have to
 *            send the same chunk before (part.c), so "the sender's place is
 *            free" never waits for itself.
 * Input      that is still to come (tt_walk_there) holds back what is sent
 *            of it, and reductions that it goes into: position by position, in
 *            the order of everything else.
 * Next       engine/op.c owns walks. */
#include <string.h>

#include "base/heap.h"
#include "walk/walk.h"

static unsigned char *address(const tt_walk *w, const tt_span *span,
                              uint64_t elem)
{
    return w->base[span->base] + span->offset + elem * w->b->elem_bytes;
}

/* ---------------------------------------------------------------- sizes -- */

/* Where slice k of n elements begins; small calls have one slice. */
static inline uint64_t slice_at(uint64_t n, uint32_t k, uint32_t n_slices)
{
    return n_slices == 1 ? k * n : tt_slice_at(n, k, n_slices);
}

/* ----------------------------------------------------------------- heap -- */

static bool goes_before(const void *arg, const void *a, const void *b)
{
    (void)arg;
    return *(const uint64_t *)a < *(const uint64_t *)b;
}

static const tt_heap_items ready = {.bytes = sizeof(uint64_t),
                                    .is_before = goes_before};

/* ---------------------------------------------------------------- reach -- */

/* The receive lane's slices are read in the partner's input. */
static bool is_pulled(const tt_walk *w, const tt_lane *lane)
{
    return lane->is_pull && w->sides[lane->partner].in != NULL;
}

/* The send lane's slices are read by the partner in this rank's input. */
static bool is_pulled_there(const tt_walk *w, const tt_lane *lane)
{
    return lane->is_pull && w->sides[lane->partner].may_read;
}

static bool goes_there(const tt_walk *w, uint32_t l)
{
    const tt_lane *lane = &w->b->sends[l];
    return lane->is_put && w->sides[lane->partner].out != NULL;
}

static void release(tt_walk *w, const tt_group *group)
{
    const tt_bound *b = w->b;
    for (uint32_t i = 0; i < group->n_lanes; i++)
        w->hooks->release(w, b->recvs[b->index[group->lanes + i]].partner);
    for (uint32_t i = 0; i < group->sends.n; i++)
        w->hooks->release(w, b->sends[b->index[group->sends.at + i]].partner);
}

/* All memory of partners that a slice of the group uses, or none. */
static bool hold(tt_walk *w, const tt_group *group)
{
    const tt_bound *b = w->b;
    bool is_held = true;
    for (uint32_t i = 0; i < group->n_lanes && is_held; i++) {
        const tt_lane *lane = &b->recvs[b->index[group->lanes + i]];
        if (is_pulled(w, lane))
            is_held = w->hooks->hold(w, lane->partner);
    }
    for (uint32_t i = 0; i < group->sends.n && is_held; i++) {
        uint32_t l = b->index[group->sends.at + i];
        if (goes_there(w, l))
            is_held = w->hooks->hold(w, b->sends[l].partner);
    }
    if (!is_held)
        release(w, group);
    return is_held;
}

/* ---------------------------------------------------------------- sends -- */

static bool is_send_ready(const tt_walk *w, uint32_t l)
{
    const tt_lane *lane = &w->b->sends[l];
    uint32_t k = w->sent[l];
    if (k >= lane->n_slices || !w->sides[lane->partner].is_open ||
        k >= w->acked[l] + w->b->window || is_pulled_there(w, lane))
        return false;
    if (lane->has_input && (uint64_t)(k + 1) * lane->stride > w->there)
        return false;
    if (lane->is_origin && tt_has_front(w->b) &&
        (uint64_t)k * lane->stride >=
            (uint64_t)w->front + w->b->window_positions)
        return false;
    const uint32_t *pred = w->b->index + lane->preds.at;
    for (uint32_t i = 0; i < lane->preds.n; i++)
        if (w->done[pred[i]] <= k)
            return false;
    return true;
}

static void consider(tt_walk *w, uint32_t l)
{
    if (w->is_over || w->heaped[l] || !is_send_ready(w, l))
        return;
    const tt_lane *lane = &w->b->sends[l];
    tt_walk_side *side = &w->sides[lane->partner];
    uint64_t position = (uint64_t)w->sent[l] * lane->stride;
    w->heaped[l] = true;
    const uint64_t key = position << 32 | l;
    tt_heap_push(&ready, NULL, side->heap, side->n_ready++, &key);
    if (side->n_ready == 1 && w->hooks->ready)
        w->hooks->ready(w, lane->partner);
}

void tt_walk_open(tt_walk *w, uint32_t partner)
{
    const tt_partner *p = &w->b->partners[partner];
    if (w->sides[partner].is_open)
        return;
    w->sides[partner].is_open = true;
    for (uint32_t i = 0; i < p->n_sends; i++)
        consider(w, p->sends + i);
}

/* The memory of a slice; packs it where the pieces would be too many. */
static void gather(tt_walk *w, const tt_lane *lane, tt_slice *out)
{
    const tt_span *span = &w->b->spans[lane->span];
    const uint64_t size = w->b->elem_bytes;
    const uint64_t at = tt_walk_bytes_before(w, lane, out->slice);
    const uint64_t len = tt_walk_bytes_before(w, lane, out->slice + 1) - at;
    out->len = tt_wire_bytes(len);
    if (lane->is_contiguous) {
        out->iov[0] = (struct iovec){address(w, span, 0) + at, len};
        out->n_iov = 1;
        return;
    }
    if (lane->n_chunks <= TT_WALK_IOV) {
        for (uint32_t i = 0; i < lane->n_chunks; i++)
            out->iov[i] = (struct iovec){address(w, &span[i], 0),
                                         span[i].n_elems * size};
        out->n_iov = (int)lane->n_chunks;
        return;
    }
    unsigned char *to = w->staging + lane->staging;
    out->iov[0] = (struct iovec){to, len};
    out->n_iov = 1;
    for (uint32_t i = 0; i < lane->n_chunks; i++) {
        memcpy(to, address(w, &span[i], 0), span[i].n_elems * size);
        to += span[i].n_elems * size;
    }
}

bool tt_walk_next(tt_walk *w, uint32_t partner, tt_slice *out)
{
    if (w->sides[partner].n_ready == 0)
        return false;
    uint32_t l = (uint32_t)w->sides[partner].heap[0];
    const tt_lane *lane = &w->b->sends[l];
    uint32_t k = w->sent[l];
    out->lane = l;
    out->wire = lane->wire;
    out->slice = k;
    out->is_put = w->put_out[l] && k + 1 >= w->put_out[l];
    out->len = 0;
    out->n_iov = 0;
    if (!out->is_put)
        gather(w, lane, out);
    return true;
}

static void try_group(tt_walk *w, uint32_t g);

/* The owner hears where nothing else is waited for. */
static void settle_all(tt_walk *w)
{
    const tt_bound *b = w->b;
    if (w->n_lent < w->n_open || !w->hooks->settle)
        return;
    for (uint32_t l = 0; l < b->n_sends && !w->is_over; l++)
        if (w->lent[l] > 0)
            w->hooks->settle(w, b->sends[l].partner);
}

/* A lane is taken, or a group done. */
static void close_one(tt_walk *w)
{
    if (--w->n_open > 0 && !w->is_over)
        settle_all(w);
    if (w->n_open > 0 || w->is_over)
        return;
    w->is_over = true;
    if (w->hooks->done)
        w->hooks->done(w);
}

/* The first n slices of the lane are taken. */
static void take(tt_walk *w, uint32_t l, uint32_t n)
{
    const tt_bound *b = w->b;
    const tt_lane *lane = &b->sends[l];
    if (w->is_over)
        return;
    for (uint32_t k = w->taken[l]; w->hooks->tell && k < n; k++)
        w->hooks->tell(w, TT_TOLD_TAKEN, l, k);
    w->taken[l] = n;
    for (uint32_t i = 0; i < lane->blocks.n && !w->is_over; i++)
        try_group(w, b->index[lane->blocks.at + i]);
    if (n == lane->n_slices && !w->is_over)
        close_one(w);
}

/* A slice that is taken at once may follow one that is lent still (transports
 * decide by size, and slices of a lane differ a little): it counts when that
 * one does. */
void tt_walk_sent(tt_walk *w, uint32_t partner, bool is_taken)
{
    tt_walk_side *side = &w->sides[partner];
    uint32_t l = (uint32_t)side->heap[0];
    tt_heap_pop(&ready, NULL, side->heap, side->n_ready--);
    w->heaped[l] = false;
    if (TT_UNLIKELY(w->hooks->tell != NULL))
        w->hooks->tell(w, TT_TOLD_SENT, l, w->sent[l]);
    if (++w->sent[l] < w->b->sends[l].n_slices)
        consider(w, l);
    const tt_lane *lane = &w->b->sends[l];
    w->lent[l] += !is_taken;
    if (w->lent[l] == 0) {
        take(w, l, w->sent[l]);
        return;
    }
    w->n_lent += w->sent[l] == lane->n_slices;
    for (uint32_t i = 0; i < lane->blocks.n && !w->is_over; i++)
        try_group(w, w->b->index[lane->blocks.at + i]);
    if (!w->is_over)
        settle_all(w);
}

void tt_walk_taken(tt_walk *w, uint32_t l)
{
    const uint32_t n = --w->lent[l] == 0 ? w->sent[l] : w->taken[l] + 1;
    w->n_lent -= n == w->b->sends[l].n_slices;
    take(w, l, n);
}

/* Of a lane that is pulled it says how much has been read, which is taken. */
void tt_walk_acked(tt_walk *w, uint32_t partner, uint32_t wire,
                   uint32_t consumed)
{
    const tt_partner *p = &w->b->partners[partner];
    if (wire >= p->n_sends)
        return;
    uint32_t l = p->sends + wire;
    const tt_lane *lane = &w->b->sends[l];
    if (is_pulled_there(w, lane)) {
        while (w->taken[l] < consumed && w->taken[l] < lane->n_slices &&
               !w->is_over)
            take(w, l, w->taken[l] + 1);
        return;
    }
    if (consumed > w->acked[l] && consumed <= w->sent[l])
        w->acked[l] = consumed;
    consider(w, l);
}

/* --------------------------------------------------------------- groups -- */

static unsigned char *slot(const tt_walk *w, const tt_lane *lane, uint32_t k)
{
    uint64_t stride = (lane->slice_bytes + TT_CACHE_LINE - 1) &
                      ~(uint64_t)(TT_CACHE_LINE - 1);
    return w->staging + lane->staging + (k % w->b->window) * stride;
}

/* Nothing but its inputs from others, and who reads its places, keeps slice k
 * of the group. */
static bool is_due(const tt_walk *w, const tt_group *group, uint32_t k)
{
    if (!group->is_copy && (uint64_t)(k + 1) * group->stride > w->there)
        return false;
    const uint32_t *pred = w->b->index + group->preds.at;
    for (uint32_t i = 0; i < group->preds.n; i++)
        if (w->done[pred[i]] <= k)
            return false;
    return true;
}

/* Nobody reads them. */
static bool is_taken(const tt_walk *w, const tt_group *group, uint32_t k)
{
    const uint32_t *gate = w->b->index + group->gates.at;
    for (uint32_t i = 0; i < group->gates.n; i++)
        if (w->taken[gate[i]] <= k)
            return false;
    return true;
}

/* Nothing but its inputs from others keeps slice k of the group. */
static bool is_free(const tt_walk *w, const tt_group *group, uint32_t k)
{
    return is_due(w, group, k) && is_taken(w, group, k);
}

/* Slice k, which has arrived or is about to, waits only for those who read its
 * places: the owner hears that. */
static void settle(tt_walk *w, const tt_group *group, uint32_t k)
{
    const uint32_t *gate = w->b->index + group->gates.at;
    if (!w->hooks->settle || !is_due(w, group, k))
        return;
    for (uint32_t i = 0; i < group->gates.n && !w->is_over; i++)
        if (w->taken[gate[i]] <= k && w->lent[gate[i]] > 0)
            w->hooks->settle(w, w->b->sends[gate[i]].partner);
}

static bool has_arrived(const tt_walk *w, const tt_group *group, uint32_t k)
{
    const uint32_t *lanes = w->b->index + group->lanes;
    for (uint32_t i = 0; i < group->n_lanes; i++)
        if (w->arrived[lanes[i]] <= k)
            return false;
    return true;
}

static bool is_ready(const tt_walk *w, uint32_t g)
{
    const tt_group *group = &w->b->groups[g];
    return !w->is_over && w->done[g] < group->n_slices && !w->making[g] &&
           has_arrived(w, group, w->done[g]) && is_free(w, group, w->done[g]);
}

/* The reduction of a group's piece. */
static tt_reduction reduction_of(const tt_walk *w, const tt_piece *piece)
{
    const bool divides = piece->divides && w->kernels.divide;
    return (tt_reduction){
        .reduce = w->kernels.reduce,
        .lines = divides ? w->kernels.mean_lines : w->kernels.lines,
        .divide = divides ? w->kernels.divide : NULL,
        .divisor = w->divisor,
        .elem_bytes = w->b->elem_bytes,
    };
}

static void store_here(const tt_walk *w, const tt_group *group,
                       const tt_piece *piece, void *to, size_t count)
{
    const tt_reduction r = reduction_of(w, piece);
    const uint32_t n = piece->n_inputs + 1;
    if (group->is_copy)
        memcpy(to, w->sources[1], count * r.elem_bytes);
    else
        w->kernels.reduce(to, w->sources, n, count);
    if (r.divide)
        r.divide(to, count, r.divisor);
}

/* Here and in the outputs of partners, or past the cache. */
static void store_there(const tt_walk *w, const tt_group *group,
                        const tt_piece *piece, uint32_t n_targets, size_t count)
{
    tt_reduction r = reduction_of(w, piece);
    const tt_spread to = {
        .dst = w->targets,
        .n_dst = n_targets,
        .streams = group->streams,
    };
    if (!group->is_copy) {
        tt_spread_reduce(&r, &to, w->sources, piece->n_inputs + 1, count);
        return;
    }
    r.reduce = NULL;
    tt_spread_reduce(&r, &to, w->sources + 1, 1, count);
}

/* One slice of a group. */
typedef struct making {
    uint32_t k;
    uint32_t lane; /* TT_NONE, or whose input lies at `data` */
    const unsigned char *data;
    uint64_t first; /* element of the chunk */
    bool has_begun; /* somebody else makes a part of it */
} making;

/* Where the input by lane l is. */
static const unsigned char *input(const tt_walk *w, uint32_t l, const making *s,
                                  const unsigned char *to)
{
    const tt_lane *lane = &w->b->recvs[l];
    if (w->put_in[l] && s->k + 1 >= w->put_in[l])
        return to;
    if (is_pulled(w, lane))
        return w->sides[lane->partner].in + lane->vector_at +
               s->first * w->b->elem_bytes;
    return (l == s->lane ? s->data : slot(w, lane, s->k)) + w->cursor[l];
}

/* The places of partners that the slice goes to, from place 1 on; returns 1 +
 * how many. */
static uint32_t find_targets(tt_walk *w, const tt_group *group, const making *s)
{
    const tt_bound *b = w->b;
    uint32_t n = 1;
    for (uint32_t i = 0; i < group->sends.n && w->n_near > 0; i++) {
        uint32_t l = b->index[group->sends.at + i];
        const tt_lane *lane = &b->sends[l];
        if (!goes_there(w, l))
            continue;
        if (!w->put_out[l])
            w->put_out[l] = s->k + 1;
        w->targets[n++] = w->sides[lane->partner].out + lane->vector_at +
                          s->first * b->elem_bytes;
    }
    return n;
}

/* What is put lies there already. */
static bool store_elsewhere(tt_walk *w, const tt_group *group,
                            const tt_piece *piece, uint32_t n_targets,
                            size_t count, making *s)
{
    const uint32_t first = group->is_copy ? 1 : 0;
    const tt_walk_job job = {
        .src = w->sources + first,
        .dst = w->targets,
        .n_src = piece->n_inputs + 1 - first,
        .n_dst = n_targets,
        .count = count,
        .divides = piece->divides && w->kernels.divide,
    };
    if (group->is_copy && n_targets == 1 && w->sources[1] == w->targets[0])
        return true;
    s->has_begun = true;
    return w->hooks->reduce(w, &job);
}

/* False: hook reduce() says so. */
static bool apply_piece(tt_walk *w, const tt_piece *piece, uint32_t chunk,
                        const tt_group *group, making *s)
{
    const tt_bound *b = w->b;
    const uint64_t n = piece->to.n_elems;
    s->first = slice_at(n, s->k, group->n_slices);
    uint64_t count = slice_at(n, s->k + 1, group->n_slices) - s->first;
    unsigned char *to = address(w, &piece->to, s->first);
    w->sources[piece->own_at] = address(w, &piece->own, s->first);
    for (uint32_t i = 0; i < piece->n_inputs; i++) {
        uint32_t l = b->index[piece->inputs + i];
        if (b->recvs[l].chunk == chunk)
            w->cursor[l] = 0;
        w->sources[i + (i >= piece->own_at)] = input(w, l, s, to);
        w->cursor[l] += count * b->elem_bytes;
    }
    w->targets[0] = to;
    uint32_t n_targets = find_targets(w, group, s);
    if (TT_UNLIKELY(w->hooks->reduce))
        return store_elsewhere(w, group, piece, n_targets, count, s);
    if (n_targets == 1 && group->is_copy && w->sources[1] == to)
        return true;
    if (n_targets == 1 && !group->streams)
        store_here(w, group, piece, to, count);
    else
        store_there(w, group, piece, n_targets, count);
    return true;
}

static void advance_front(tt_walk *w)
{
    const tt_bound *b = w->b;
    uint32_t before = w->front;
    while (w->front < b->n_positions && w->results_left[w->front] == 0)
        w->front++;
    if (w->front == before)
        return;
    for (uint32_t l = 0; l < b->n_sends; l++)
        if (b->sends[l].is_origin)
            consider(w, l);
}

/* A partner that waits for the word of what was read must get it before this
 * rank needs the partner's front to move. */
static inline uint32_t credit_batch(const tt_walk *w, const tt_lane *lane)
{
    const uint32_t half = w->b->window / 2;
    const uint32_t ahead = tt_has_front(w->b) && lane->is_pull
                               ? w->b->window_positions / lane->stride
                               : half;
    const uint32_t least = half < ahead ? half : ahead;
    return least > 0 ? least : 1;
}

/* Credit goes by half windows, and not for slices that need none; but who reads
 * where it lies says so to the end. */
static inline bool owes_credit(const tt_walk *w, uint32_t l, uint32_t consumed)
{
    const tt_lane *lane = &w->b->recvs[l];
    const uint32_t window = w->b->window;
    const bool is_needed = lane->n_slices > w->credited[l] + window;
    if (!is_needed && !lane->is_pull)
        return false;
    const bool is_batch = consumed - w->credited[l] >= credit_batch(w, lane);
    const bool is_end = consumed == lane->n_slices && consumed > w->credited[l];
    return is_pulled(w, lane) ? is_batch || is_end : is_batch && is_needed;
}

static void give_credit(tt_walk *w, uint32_t l, uint32_t consumed)
{
    const tt_lane *lane = &w->b->recvs[l];
    if (!w->hooks->credit || !owes_credit(w, l, consumed))
        return;
    w->credited[l] = consumed;
    w->hooks->credit(w, lane->partner, lane->wire, consumed);
}

/* The next slice of group g is made: tells everybody who waited for it. */
static void finish_slice(tt_walk *w, uint32_t g)
{
    const tt_bound *b = w->b;
    const tt_group *group = &b->groups[g];
    const uint32_t k = w->done[g]++;
    w->n_applied++;
    for (uint32_t i = 0; w->hooks->tell && i < group->n_lanes; i++)
        w->hooks->tell(w, TT_TOLD_APPLIED, b->index[group->lanes + i], k);
    for (uint32_t i = 0; i < group->n_lanes; i++)
        give_credit(w, b->index[group->lanes + i], k + 1);
    if (group->is_result && tt_has_front(b)) {
        w->results_left[(k + 1) * group->stride - 1]--;
        advance_front(w);
    }
    for (uint32_t i = 0; i < group->sends.n; i++)
        consider(w, b->index[group->sends.at + i]);
    for (uint32_t i = 0; i < group->nexts.n; i++)
        try_group(w, b->index[group->nexts.at + i]);
    if (k + 1 == group->n_slices) /* others may have been made meanwhile */
        close_one(w);
}

/* Applies the next slice of group g, then tells everybody who waited for it;
 * `at` is where the input by `lane` lies. False: a partner's memory is not
 * within reach any more. */
static bool apply(tt_walk *w, uint32_t g, uint32_t lane, const void *at)
{
    const tt_bound *b = w->b;
    const tt_group *group = &b->groups[g];
    making s = {.k = w->done[g], .lane = lane, .data = at};
    uint32_t chunk = b->recvs[b->index[group->lanes]].chunk;
    if (w->n_near > 0 && !hold(w, group))
        return false;
    bool is_well = true;
    for (uint32_t p = 0; p < group->n_pieces && is_well; p++)
        is_well = apply_piece(w, &b->pieces[group->pieces + p], chunk + p,
                              group, &s);
    if (TT_UNLIKELY(s.has_begun)) {
        w->making[g] = true;
        w->hooks->begun(w, g);
        return is_well;
    }
    if (w->n_near > 0)
        release(w, group);
    finish_slice(w, g);
    return true;
}

void tt_walk_made(tt_walk *w, uint32_t g)
{
    w->making[g] = false;
    if (w->n_near > 0)
        release(w, &w->b->groups[g]);
    if (w->is_over)
        return;
    finish_slice(w, g);
    try_group(w, g);
}

static void settle_group(tt_walk *w, uint32_t g)
{
    const tt_group *group = &w->b->groups[g];
    const uint32_t k = w->done[g];
    if (!w->is_over && k < group->n_slices && !w->making[g] &&
        has_arrived(w, group, k))
        settle(w, group, k);
}

/* Applies all slices of a group whose time has come; what is pulled might be
 * all of it at once, so that is done one slice at a time, between other
 * things. */
static void try_group(tt_walk *w, uint32_t g)
{
    if (w->n_near > 0 && w->b->groups[g].pulls) {
        if (!w->is_over)
            w->hooks->pulls(w);
        return;
    }
    while (is_ready(w, g) && apply(w, g, TT_NONE, NULL))
        continue;
    settle_group(w, g);
}

/* ------------------------------------------------------------- receives -- */

void *tt_walk_place(tt_walk *w, uint32_t l)
{
    const tt_lane *lane = &w->b->recvs[l];
    const tt_group *group = &w->b->groups[lane->group];
    const uint32_t k = w->arrived[l];
    if (!group->is_copy || !lane->is_contiguous || group->n_lanes > 1 ||
        w->done[lane->group] != k)
        return slot(w, lane, k);
    if (!is_free(w, group, k))
        settle(w, group, k);
    if (!is_free(w, group, k))
        return slot(w, lane, k);
    const tt_piece *piece = &w->b->pieces[group->pieces];
    return address(w, &piece->to,
                   slice_at(piece->to.n_elems, k, lane->n_slices));
}

/* Nothing here reads what was at its place: the sender knows (tt_part_xfer),
 * even if this rank has not heard of it yet. */
static void take_put(tt_walk *w, uint32_t l)
{
    const tt_lane *lane = &w->b->recvs[l];
    const uint32_t g = lane->group;
    const uint32_t k = w->arrived[l]++;
    if (w->hooks->tell)
        w->hooks->tell(w, TT_TOLD_ARRIVED, l, k);
    if (!w->put_in[l])
        w->put_in[l] = k + 1;
    if (w->done[g] != k || !apply(w, g, TT_NONE, NULL))
        try_group(w, g);
}

void tt_walk_arrived(tt_walk *w, uint32_t l, const void *data)
{
    if (!data) {
        take_put(w, l);
        return;
    }
    const tt_lane *lane = &w->b->recvs[l];
    const uint32_t g = lane->group;
    const tt_group *group = &w->b->groups[g];
    const uint32_t k = w->arrived[l]++;
    if (w->hooks->tell)
        w->hooks->tell(w, TT_TOLD_ARRIVED, l, k);
    if (w->done[g] == k && (group->n_lanes == 1 || has_arrived(w, group, k)) &&
        is_free(w, group, k) && apply(w, g, l, data))
        return;
    unsigned char *to = slot(w, lane, k);
    if (to != data)
        memcpy(to, data, tt_wire_bytes(tt_walk_slice_bytes(w, lane, k)));
    try_group(w, g);
}

/* --------------------------------------------------------- within reach -- */

void tt_walk_near(tt_walk *w, uint32_t partner, const void *in, void *out)
{
    const tt_bound *b = w->b;
    const tt_partner *p = &b->partners[partner];
    w->sides[partner].in = in;
    w->sides[partner].out = out;
    w->n_near++;
    for (uint32_t i = 0; i < p->n_recvs; i++) {
        uint32_t l = b->index[p->recvs + i];
        if (!is_pulled(w, &b->recvs[l]))
            continue;
        w->arrived[l] = b->recvs[l].n_slices;
        try_group(w, b->recvs[l].group);
    }
}

bool tt_walk_pull(tt_walk *w)
{
    const tt_bound *b = w->b;
    uint32_t best = TT_NONE, least = UINT32_MAX;
    for (uint32_t g = 0; g < b->n_groups; g++) {
        uint32_t position = w->done[g] * b->groups[g].stride;
        if (b->groups[g].pulls && position < least && is_ready(w, g)) {
            best = g;
            least = position;
        }
    }
    return best != TT_NONE && apply(w, best, TT_NONE, NULL);
}

/* ----------------------------------------------------------------- life -- */

/* Slices [from, to) of what stays here. Where copies are made elsewhere, all
 * that others hear of comes after them. */
static void copy_here(tt_walk *w, const tt_local_copy *c, uint32_t from,
                      uint32_t to)
{
    const uint64_t n = c->to.n_elems;
    const uint64_t first = slice_at(n, from, c->n_slices);
    const uint64_t count = slice_at(n, to, c->n_slices) - first;
    void *dst = address(w, &c->to, first);
    const void *src = address(w, &c->from, first);
    if (dst == src || count == 0)
        return;
    if (w->hooks->reduce)
        w->hooks->reduce(w, &(tt_walk_job){&src, &dst, 1, 1, count, false});
    else
        memcpy(dst, src, count * w->b->elem_bytes);
}

void tt_walk_begin(tt_walk *w)
{
    const tt_bound *b = w->b;
    for (uint32_t i = 0; i < b->n_copies && w->there > 0; i++)
        copy_here(w, &b->copies[i], 0, b->copies[i].n_slices);
    if (tt_has_front(b))
        advance_front(w);
}

/* The input is one thing more that is to come. */
void tt_walk_await(tt_walk *w)
{
    w->there = 0;
    w->n_open++;
}

void tt_walk_there(tt_walk *w, uint32_t positions)
{
    const tt_bound *b = w->b;
    for (uint32_t i = 0; i < b->n_copies && !w->is_over; i++) {
        const tt_local_copy *c = &b->copies[i];
        const uint32_t stride = b->n_positions / c->n_slices;
        copy_here(w, c, w->there / stride, positions / stride);
    }
    w->there = positions;
    for (uint32_t l = 0; l < b->n_sends; l++)
        consider(w, l);
    for (uint32_t g = 0; g < b->n_groups && !w->is_over; g++)
        try_group(w, g);
    if (positions == b->n_positions && !w->is_over)
        close_one(w);
}

/* ------------------------------------------------------------ questions -- */

static bool has_served(const tt_walk *w, uint32_t partner)
{
    const tt_partner *p = &w->b->partners[partner];
    for (uint32_t l = p->sends; l < p->sends + p->n_sends; l++)
        if (w->taken[l] < w->b->sends[l].n_slices)
            return false;
    return true;
}

bool tt_walk_has_heard(const tt_walk *w, uint32_t partner)
{
    const tt_partner *p = &w->b->partners[partner];
    for (uint32_t i = 0; i < p->n_recvs; i++) {
        uint32_t l = w->b->index[p->recvs + i];
        if (w->arrived[l] < w->b->recvs[l].n_slices)
            return false;
    }
    return true;
}

/* What was sent is not taken, or what is pulled not read. */
static bool is_taking(const tt_walk *w, uint32_t l)
{
    const tt_lane *lane = &w->b->sends[l];
    return w->taken[l] <
           (is_pulled_there(w, lane) ? lane->n_slices : w->sent[l]);
}

bool tt_walk_waits_for(const tt_walk *w, uint32_t partner)
{
    const tt_partner *p = &w->b->partners[partner];
    const tt_walk_side *side = &w->sides[partner];
    bool waits = !tt_walk_has_heard(w, partner) || side->n_ready > 0 ||
                 (p->n_sends > 0 && !side->is_open);
    for (uint32_t i = 0; i < p->n_sends && !waits; i++)
        waits = is_taking(w, p->sends + i);
    return waits;
}

bool tt_walk_is_through(const tt_walk *w, uint32_t partner)
{
    return has_served(w, partner) && tt_walk_has_heard(w, partner);
}

tt_walk_state tt_walk_look(const tt_walk *w)
{
    const tt_bound *b = w->b;
    tt_walk_state s = {.step = TT_NONE};
    for (uint32_t l = 0; l < b->n_recvs; l++) {
        const tt_lane *lane = &b->recvs[l];
        const uint32_t n_done = w->done[lane->group];
        if (lane->step + 1 > s.n_steps)
            s.n_steps = lane->step + 1;
        if (n_done < lane->n_slices && lane->step < s.step)
            s.step = lane->step;
        s.moved_bytes += tt_walk_bytes_before(
            w, lane, is_pulled(w, lane) ? n_done : w->arrived[l]);
    }
    for (uint32_t l = 0; l < b->n_sends; l++) {
        const tt_lane *lane = &b->sends[l];
        if (lane->step + 1 > s.n_steps)
            s.n_steps = lane->step + 1;
        if (w->taken[l] < lane->n_slices && lane->step < s.step)
            s.step = lane->step;
        s.gone_bytes += tt_walk_bytes_before(w, lane, w->taken[l]);
    }
    if (s.step == TT_NONE)
        s.step = s.n_steps;
    return s;
}
