/* SPDX-License-Identifier: BSD-3-Clause
 * take.c - what comes in for an op: slices are kept or applied, and whoever has
 * waited for that is told.
 *
 * A slice has its input in a slot, at `direct` (one lane only), in the partner's
 * own buffer (a lane that is pulled), or at its place already (put). op.c has the
 * rules, within.c the buffers of partners. */
#include <string.h>

#include "engine/state.h"

static void credit_back(tt_op *op, uint32_t l, uint32_t consumed)
{
    const tt_lane *lane = &op->b->recvs[l];
    const uint32_t window = op->b->window;
    uint32_t batch = window > 1 ? window / 2 : 1;
    bool is_pulled = tt_within_pulls(op, lane);
    bool is_due = is_pulled ? consumed == lane->n_slices
                            : lane->n_slices > op->credited[l] + window;
    bool is_batch = consumed - op->credited[l] >= batch;
    if (is_pulled ? !is_due && !is_batch : !is_due || !is_batch)
        return;
    op->credited[l] = consumed;
    tt_msg m = tt_team_msg(op->team, TT_KIND_CREDIT, op->channel, op->seq);
    m.fingerprint = op->fingerprint;
    m.lane = lane->wire;
    m.slice = consumed;
    tt_peer_tell(op->sides[lane->partner].peer, &m, NULL);
}

static unsigned char *slot(const tt_op *op, const tt_lane *lane, uint32_t k)
{
    uint64_t stride = (lane->slice_bytes + TT_CACHE_LINE - 1) &
                      ~(uint64_t)(TT_CACHE_LINE - 1);
    return op->staging + lane->staging + (k % op->b->window) * stride;
}

static bool may_apply(const tt_op *op, uint32_t g, uint32_t k)
{
    const tt_group *group = &op->b->groups[g];
    const uint32_t *gate = op->b->index + group->gates;
    for (uint32_t i = 0; i < group->n_gates; i++)
        if (op->left[gate[i]] <= k)
            return false;
    const uint32_t *pred = op->b->index + group->preds;
    for (uint32_t i = 0; i < group->n_preds; i++)
        if (op->done[pred[i]] <= k)
            return false;
    return true;
}

/* The reduction of a group's piece. */
static tt_reduction reduction_of(const tt_op *op, const tt_piece *piece)
{
    const bool divides = piece->divides && op->divide;
    return (tt_reduction){
        .reduce = op->reduce,
        .lines = divides ? op->mean_lines : op->lines,
        .divide = divides ? op->divide : NULL,
        .divisor = op->divisor,
        .elem_bytes = op->b->elem_bytes,
    };
}

static void store_here(const tt_op *op, const tt_group *group,
                       const tt_piece *piece, void *to, size_t count)
{
    const tt_reduction r = reduction_of(op, piece);
    const uint32_t n = piece->n_inputs + 1;
    if (group->is_copy && op->sources[1] == to)
        return;
    if (group->is_copy && group->streams)
        tt_stream_copy(to, op->sources[1], count * r.elem_bytes);
    else if (group->is_copy)
        memcpy(to, op->sources[1], count * r.elem_bytes);
    else if (group->streams)
        tt_stream_reduce(&r, to, op->sources, n, count);
    else
        op->reduce(to, op->sources, n, count);
    if (r.divide && !group->streams)
        r.divide(to, count, r.divisor);
}

/* Here and in the buffers of partners. */
static void store_there(tt_op *op, const tt_group *group, const tt_piece *piece,
                        uint32_t n_targets, size_t count)
{
    tt_reduction r = reduction_of(op, piece);
    const tt_spread to = {
        .dst = op->targets,
        .n_dst = n_targets,
        .streams = group->streams,
    };
    if (!group->is_copy) {
        tt_spread_reduce(&r, &to, op->sources, piece->n_inputs + 1, count);
        return;
    }
    r.reduce = NULL;
    tt_spread_reduce(&r, &to, op->sources + 1, 1, count);
}

typedef struct making {
    uint32_t k;
    uint64_t first;              /* element of the chunk */
    const unsigned char *direct; /* NULL: not */
} making;

/* Where the input by lane l is. */
static const unsigned char *input(tt_op *op, uint32_t l, const making *s,
                                  const unsigned char *to)
{
    const tt_lane *lane = &op->b->recvs[l];
    if (op->put_from[l] && s->k + 1 >= op->put_from[l])
        return to;
    if (tt_within_pulls(op, lane))
        return (const unsigned char *)op->sides[lane->partner].far.in +
               lane->vector_at + s->first * op->b->elem_bytes;
    return (s->direct ? s->direct : slot(op, lane, s->k)) + op->cursor[l];
}

static void apply_piece(tt_op *op, const tt_piece *piece, uint32_t at,
                        const tt_group *group, making *s)
{
    const tt_bound *b = op->b;
    const uint64_t n = piece->to.n_elems;
    s->first = tt_slice_at(n, s->k, group->n_slices);
    uint64_t count = tt_slice_at(n, s->k + 1, group->n_slices) - s->first;
    unsigned char *to = tt_op_address(op, &piece->to, s->first);
    op->sources[0] = tt_op_address(op, &piece->own, s->first);
    for (uint32_t i = 0; i < piece->n_inputs; i++) {
        uint32_t l = b->index[piece->inputs + i];
        if (b->recvs[l].chunk == at)
            op->cursor[l] = 0;
        op->sources[1 + i] = input(op, l, s, to);
        op->cursor[l] += count * b->elem_bytes;
    }
    op->targets[0] = to;
    uint32_t n_targets = tt_within_targets(op, group, s->k, s->first);
    if (n_targets == 1)
        store_here(op, group, piece, to, count);
    else
        store_there(op, group, piece, n_targets, count);
}

void tt_op_advance_front(tt_op *op)
{
    const tt_bound *b = op->b;
    uint32_t before = op->front;
    while (op->front < b->n_positions && op->results_left[op->front] == 0)
        op->front++;
    if (op->front == before || b->window_positions == UINT32_MAX)
        return;
    for (uint32_t l = 0; l < b->n_sends; l++)
        if (b->sends[l].is_origin)
            tt_op_consider(op, l);
}

static bool has_arrived(const tt_op *op, const tt_group *group, uint32_t k)
{
    const uint32_t *lanes = op->b->index + group->lanes;
    for (uint32_t i = 0; i < group->n_lanes; i++)
        if (op->arrived[lanes[i]] <= k)
            return false;
    return true;
}

static bool apply(tt_op *op, uint32_t g, const unsigned char *direct);

static bool is_ready(const tt_op *op, uint32_t g)
{
    const tt_group *group = &op->b->groups[g];
    return !op->is_over && op->done[g] < group->n_slices &&
           has_arrived(op, group, op->done[g]) && may_apply(op, g, op->done[g]);
}

/* Applies all slices of a group whose time has come; what is pulled might be all
 * of it at once, so that is done one slice at a time, between other things. */
static void try_group(tt_op *op, uint32_t g)
{
    if (op->n_near > 0 && op->b->groups[g].pulls) {
        tt_within_note(op);
        return;
    }
    while (is_ready(op, g) && apply(op, g, NULL))
        continue;
}

void tt_op_try(tt_op *op, uint32_t lane)
{
    try_group(op, op->b->recvs[lane].group);
}

bool tt_op_pull(tt_op *op)
{
    const tt_bound *b = op->b;
    uint32_t best = TT_NONE, least = UINT32_MAX;
    for (uint32_t g = 0; g < b->n_groups; g++) {
        uint32_t position = op->done[g] * b->groups[g].stride;
        if (b->groups[g].pulls && position < least && is_ready(op, g)) {
            best = g;
            least = position;
        }
    }
    return best != TT_NONE && apply(op, best, NULL);
}

/* Applies the next slice of group g; then tells everybody who waited for it.
 * False: a partner's buffers are not within reach any more, so its call has
 * failed, and word of that is on the way. */
static bool apply(tt_op *op, uint32_t g, const unsigned char *direct)
{
    const tt_bound *b = op->b;
    const tt_group *group = &b->groups[g];
    uint32_t k = op->done[g];
    uint32_t at = b->recvs[b->index[group->lanes]].chunk;
    making s = {.k = k, .direct = direct};
    if (op->n_near > 0 && !tt_within_hold(op, group))
        return false;
    for (uint32_t p = 0; p < group->n_pieces; p++)
        apply_piece(op, &b->pieces[group->pieces + p], at + p, group, &s);
    if (op->n_near > 0)
        tt_within_release(op, group);
    op->done[g] = k + 1;
    for (uint32_t i = 0; i < group->n_lanes; i++)
        credit_back(op, b->index[group->lanes + i], k + 1);
    if (group->is_result) {
        op->results_left[(k + 1) * group->stride - 1]--;
        tt_op_advance_front(op);
    }
    for (uint32_t i = 0; i < group->n_sends; i++)
        tt_op_consider(op, b->index[group->sends + i]);
    for (uint32_t i = 0; i < group->n_nexts; i++)
        try_group(op, b->index[group->nexts + i]);
    if (op->done[g] == group->n_slices)
        tt_op_close_one(op);
    return true;
}

void tt_op_left(tt_op *op, uint32_t l)
{
    const tt_bound *b = op->b;
    const tt_lane *lane = &b->sends[l];
    if (op->is_over)
        return;
    op->left[l]++;
    for (uint32_t i = 0; i < lane->n_blocks && !op->is_over; i++)
        try_group(op, b->index[lane->blocks + i]);
    if (op->left[l] == lane->n_slices && !op->is_over)
        tt_op_close_one(op);
}

static uint64_t slice_bytes(const tt_op *op, const tt_lane *lane, uint32_t k)
{
    if (lane->n_chunks > 1)
        return lane->slice_bytes;
    const tt_group *group = &op->b->groups[lane->group];
    const tt_lane *first = &op->b->recvs[op->b->index[group->lanes]];
    const tt_piece *piece =
        &op->b->pieces[group->pieces + (lane->chunk - first->chunk)];
    uint64_t n = piece->to.n_elems;
    return (tt_slice_at(n, k + 1, lane->n_slices) -
            tt_slice_at(n, k, lane->n_slices)) *
           op->b->elem_bytes;
}

/* The lane that m's payload belongs to, or TT_NONE when it breaks a rule. */
static uint32_t check_data(const tt_op *op, const tt_side *side,
                           const tt_msg *m)
{
    const tt_partner *partner = &op->b->partners[side - op->sides];
    if (m->fingerprint != op->fingerprint || m->lane >= partner->n_recvs)
        return TT_NONE;
    uint32_t l = op->b->index[partner->recvs + m->lane];
    const tt_lane *lane = &op->b->recvs[l];
    if (m->slice != op->arrived[l] || m->slice >= lane->n_slices ||
        m->slice >= op->credited[l] + op->b->window)
        return TT_NONE;
    if (m->kind == TT_KIND_PUT)
        return lane->is_put && side->mine.out && m->len == 0 ? l : TT_NONE;
    return m->len == slice_bytes(op, lane, m->slice) ? l : TT_NONE;
}

static bool goes_direct(const tt_op *op, const tt_lane *lane, uint32_t k)
{
    return op->b->groups[lane->group].n_lanes == 1 &&
           op->done[lane->group] == k && may_apply(op, lane->group, k);
}

/* Where a streaming transport may write the payload: straight to its place
 * when nothing forbids it, else to its slot. NULL when m breaks a rule. */
void *tt_op_place(tt_op *op, tt_side *side, const tt_msg *m)
{
    tt_msg slice = *m;
    if (m->kind == TT_KIND_FIRST)
        slice.slice = 0;
    m = &slice;
    uint32_t l = check_data(op, side, m);
    if (l == TT_NONE)
        return NULL;
    const tt_lane *lane = &op->b->recvs[l];
    const tt_group *group = &op->b->groups[lane->group];
    if (!group->is_copy || !lane->is_contiguous ||
        !goes_direct(op, lane, m->slice))
        return slot(op, lane, m->slice);
    const tt_piece *piece = &op->b->pieces[group->pieces];
    return tt_op_address(
        op, &piece->to,
        tt_slice_at(piece->to.n_elems, m->slice, lane->n_slices));
}

/* The slice lies at its place. Nothing here reads what was there: the sender
 * knows (tt_part_xfer), even if this rank has not heard of it yet. */
static void take_put(tt_op *op, uint32_t l, uint32_t k)
{
    uint32_t g = op->b->recvs[l].group;
    if (!op->put_from[l])
        op->put_from[l] = k + 1;
    op->moved_bytes += slice_bytes(op, &op->b->recvs[l], k);
    op->arrived[l]++;
    if (op->done[g] != k || !apply(op, g, NULL))
        try_group(op, g);
}

/* Takes a slice. Errors: EPROTO (the text is the caller's). */
tutti_err tt_op_data(tt_op *op, tt_side *side, const tt_msg *m,
                     const void *data)
{
    uint32_t l = check_data(op, side, m);
    if (l == TT_NONE)
        return TUTTI_EPROTO;
    if (m->kind == TT_KIND_PUT) {
        take_put(op, l, m->slice);
        return TUTTI_OK;
    }
    const tt_lane *lane = &op->b->recvs[l];
    op->moved_bytes += m->len;
    op->arrived[l]++;
    if (goes_direct(op, lane, m->slice) && apply(op, lane->group, data))
        return TUTTI_OK;
    unsigned char *to = slot(op, lane, m->slice);
    if (to != data)
        memcpy(to, data, m->len);
    try_group(op, lane->group);
    return TUTTI_OK;
}
