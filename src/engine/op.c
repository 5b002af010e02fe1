/* SPDX-License-Identifier: BSD-3-Clause
 * op.c - performs a bound part: one op is one collective on this rank.
 *
 * Idea       Events move counters, counters make lanes ready, ready lanes go
 *            into a heap per partner, ordered by (position, step, chunk); the
 *            pump (engine.c) takes the least one that the transport has room
 *            for. Nothing is scanned, nothing is allocated per slice.
 * Send k of a lane is ready when its partner has entered the call, k < W +
 *            slices that the partner has consumed (credit), the groups before
 *            it have done slice k, and, where the lane sends own data, the
 *            front window reaches it.
 * Group      slice k is applied when it has arrived on all lanes of the group,
 *            the groups before have done it, and the sends that read the same
 *            memory have left. Inputs are taken in order of src, own value
 *            first, whatever the order of arrival.
 * No hang    order events by (slice, step, send before apply): each waits only
 *            for smaller ones. docs/engine.md has the proof.
 * Next: take.c, within.c, engine.c. */
#include <string.h>

#include "engine/state.h"

/* ---------------------------------------------------------------- tables -- */

static size_t bucket(const tt_team *team, uint64_t channel, uint64_t seq)
{
    return (size_t)(team->id ^ channel * 31 ^ seq) % TT_OP_BUCKETS;
}

tt_op *tt_op_find(const tt_engine *e, const tt_team *team, uint64_t channel,
                  uint64_t seq)
{
    tt_op *op = e->buckets[bucket(team, channel, seq)];
    while (op && (op->team != team || op->channel != channel || op->seq != seq))
        op = op->hash_next;
    return op;
}

uint32_t tt_op_team_rank(const tt_op *op, uint32_t schedule_rank)
{
    return op->members ? op->members[schedule_rank] : schedule_rank;
}

tt_side *tt_op_side(tt_op *op, const tt_peer *peer)
{
    const tt_bound *b = op->b;
    if (op->members) /* point to point: one partner, or none */
        return b->n_partners > 0 && op->sides[0].peer == peer ? op->sides
                                                              : NULL;
    uint32_t rank = op->team->rank_of[peer->rank];
    uint32_t low = 0, high = b->n_partners;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (b->partners[mid].peer < rank)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < b->n_partners && b->partners[low].peer == rank; low++)
        if (b->partners[low].port == peer->port)
            return &op->sides[low];
    return NULL;
}

bool tt_op_is_heard(tt_op *op, const tt_peer *peer)
{
    const tt_peer *other = &peer->mesh->peers[peer->rank];
    if (!other->next_port)
        return false;
    for (; other; other = other->next_port) {
        const tt_side *side = tt_op_side(op, other);
        if (side && side->is_bound)
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------ heap -- */

static void heap_push(tt_side *side, uint64_t key)
{
    uint32_t at = side->n_heap++;
    while (at > 0 && side->heap[(at - 1) / 2] > key) {
        side->heap[at] = side->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    side->heap[at] = key;
}

static void heap_pop(tt_side *side)
{
    uint64_t last = side->heap[--side->n_heap];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= side->n_heap)
            break;
        if (child + 1 < side->n_heap &&
            side->heap[child + 1] < side->heap[child])
            child++;
        if (side->heap[child] >= last)
            break;
        side->heap[at] = side->heap[child];
        at = child;
    }
    if (side->n_heap > 0)
        side->heap[at] = last;
}

/* Into the peer's list of sides that have something ready: by priority, then
 * in the order in which the calls were made. */
static void link_side(tt_side *side)
{
    if (side->is_linked)
        return;
    tt_side **at = &side->peer->ready;
    const tt_op *op = side->op;
    while (*at && ((*at)->op->priority > op->priority ||
                   ((*at)->op->priority == op->priority &&
                    (*at)->op->issue < op->issue)))
        at = &(*at)->next;
    side->next = *at;
    *at = side;
    side->is_linked = true;
    tt_peer_dirty(side->peer);
}

static void unlink_side(tt_side *side)
{
    if (!side->is_linked)
        return;
    tt_side **at = &side->peer->ready;
    while (*at != side)
        at = &(*at)->next;
    *at = side->next;
    side->is_linked = false;
}

/* ----------------------------------------------------------------- sends -- */

static bool send_is_ready(const tt_op *op, uint32_t l)
{
    const tt_lane *lane = &op->b->sends[l];
    uint32_t k = op->sent[l];
    const tt_side *side = &op->sides[lane->partner];
    if (k >= lane->n_slices || !side->is_open ||
        k >= op->acked[l] + op->b->window || (lane->is_pull && side->mine.in))
        return false;
    if (lane->is_origin && op->b->window_positions != UINT32_MAX &&
        (uint64_t)k * lane->stride >=
            (uint64_t)op->front + op->b->window_positions)
        return false;
    const uint32_t *pred = op->b->index + lane->preds;
    for (uint32_t i = 0; i < lane->n_preds; i++)
        if (op->done[pred[i]] <= k)
            return false;
    return true;
}

void tt_op_consider(tt_op *op, uint32_t l)
{
    if (op->is_over || op->heaped[l] || !send_is_ready(op, l))
        return;
    const tt_lane *lane = &op->b->sends[l];
    tt_side *side = &op->sides[lane->partner];
    uint64_t position = (uint64_t)op->sent[l] * lane->stride;
    op->heaped[l] = true;
    heap_push(side, position << 32 | l);
    link_side(side);
}

static void open_side(tt_op *op, tt_side *side)
{
    const tt_partner *partner = &op->b->partners[side - op->sides];
    if (side->is_open)
        return;
    side->is_open = true;
    for (uint32_t i = 0; i < partner->n_sends; i++)
        tt_op_consider(op, partner->sends + i);
}

void tt_op_hear(tt_op *op, tt_side *side)
{
    side->is_bound = true;
    open_side(op, side);
}

static void note_spoken(tt_side *side)
{
    if (side->has_spoken)
        return;
    side->has_spoken = true;
    side->op->n_unsaid--;
    side->op->team->mesh->engine->n_unsaid--;
}

void tt_side_speak(tt_side *side)
{
    tt_op *op = side->op;
    const tt_partner *partner = &op->b->partners[side - op->sides];
    if (side->has_spoken || op->is_over)
        return;
    note_spoken(side);
    tt_msg m = tt_team_msg(op->team, TT_KIND_BIND, op->channel, op->seq);
    tt_binding bind = {.call = op->call, .grant = side->mine};
    bind.call.to_bytes = partner->out_bytes;
    bind.call.from_bytes = partner->in_bytes;
    m.fingerprint = op->fingerprint;
    m.len = side->mine.number ? sizeof(bind) : sizeof(bind.call);
    tt_peer_tell(side->peer, &m, &bind);
}

void tt_op_credit(tt_op *op, tt_side *side, const tt_msg *m)
{
    const tt_partner *partner = &op->b->partners[side - op->sides];
    if (m->lane >= partner->n_sends)
        return;
    uint32_t l = partner->sends + m->lane;
    const tt_lane *lane = &op->b->sends[l];
    if (lane->is_pull && side->mine.in) {
        while (op->left[l] < m->slice && op->left[l] < lane->n_slices &&
               !op->is_over)
            tt_op_left(op, l);
        return;
    }
    if (m->slice > op->acked[l] && m->slice <= op->sent[l])
        op->acked[l] = m->slice;
    tt_op_consider(op, l);
}

/* The segments of slice k; packs them where they would be too many. */
static int gather(tt_op *op, const tt_lane *lane, uint32_t k, struct iovec *iov,
                  uint64_t *len)
{
    const tt_span *span = &op->b->spans[lane->span];
    const uint64_t size = op->b->elem_bytes;
    uint64_t first = tt_slice_at(span->n_elems, k, lane->n_slices);
    uint64_t last = tt_slice_at(span->n_elems, k + 1, lane->n_slices);
    *len = (last - first) * size;
    if (lane->n_chunks > 1)
        *len = lane->slice_bytes; /* merged lanes have one slice */
    if (lane->is_contiguous) {
        iov[0] = (struct iovec){tt_op_address(op, span, first), *len};
        return 1;
    }
    if (lane->n_chunks <= TT_NET_IOV_MAX) {
        for (uint32_t i = 0; i < lane->n_chunks; i++)
            iov[i] = (struct iovec){tt_op_address(op, &span[i], 0),
                                    span[i].n_elems * size};
        return (int)lane->n_chunks;
    }
    unsigned char *to = op->staging + lane->staging;
    iov[0] = (struct iovec){to, *len};
    for (uint32_t i = 0; i < lane->n_chunks; i++) {
        memcpy(to, tt_op_address(op, &span[i], 0), span[i].n_elems * size);
        to += span[i].n_elems * size;
    }
    return 1;
}

static void lend(tt_peer *peer, tt_op *op, uint32_t l)
{
    size_t at = (peer->lent_head + peer->n_lent++) % peer->lent_cap;
    peer->lent[at] = (tt_lent){op, l};
}

/* What goes out in the call itself goes at once. */
static uint32_t age_us(const tt_op *op)
{
    if (op->is_beginning)
        return 0;
    uint64_t us = (tt_now_ns() - op->start_ns) / TT_NS_PER_US;
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* Sends the least ready slice of this side. TT_FULL: nothing was sent. */
tt_sent tt_op_send_next(tt_op *op, tt_side *side)
{
    tt_peer *peer = side->peer;
    if (side->n_heap == 0) {
        unlink_side(side);
        return TT_LEFT;
    }
    if (peer->n_lent == peer->lent_cap)
        return TT_FULL;
    uint32_t l = (uint32_t)side->heap[0];
    const tt_lane *lane = &op->b->sends[l];
    uint32_t k = op->sent[l];
    struct iovec iov[TT_NET_IOV_MAX];
    uint64_t len = 0;
    bool is_put = op->placed_from[l] && k + 1 >= op->placed_from[l];
    int n = is_put ? 0 : gather(op, lane, k, iov, &len);
    tt_msg m = tt_team_msg(op->team, TT_KIND_DATA, op->channel, op->seq);
    m.fingerprint = op->fingerprint;
    m.lane = lane->wire;
    m.slice = k;
    m.len = (uint32_t)len;
    m.flags = peer->n_taken;
    if (is_put)
        m.kind = TT_KIND_PUT;
    if (side->is_eager) {
        m.kind = TT_KIND_FIRST;
        m.slice = age_us(op);
    }
    tt_sent sent = peer->conn->net->ops->send(peer->conn, &m, iov, n);
    if (sent == TT_FULL)
        return TT_FULL;
    peer->n_told = peer->n_taken;
    if (side->is_eager) {
        tt_eager_sent(side);
        note_spoken(side);
    }
    heap_pop(side);
    op->heaped[l] = false;
    op->sent[l] = k + 1;
    tt_op_consider(op, l);
    if (side->n_heap == 0)
        unlink_side(side);
    if (sent == TT_QUEUED)
        lend(peer, op, l);
    else
        tt_op_left(op, l);
    return sent;
}

/* ------------------------------------------------------------------ life -- */

void tt_op_close_one(tt_op *op)
{
    if (--op->n_open == 0)
        tt_op_finish(op, TUTTI_OK);
}

tutti_err tt_plan_create(tt_bound *bound, const tt_mem *mem, tt_plan **out)
{
    tt_plan *plan = tt_new(mem, 1, sizeof(*plan));
    if (!plan)
        return TUTTI_ENOMEM;
    *plan = (tt_plan){.mem = mem, .bound = bound, .n_refs = 1};
    for (uint32_t p = 0; p < bound->n_pieces; p++)
        if (bound->pieces[p].n_inputs > plan->most_inputs)
            plan->most_inputs = bound->pieces[p].n_inputs;
    *out = plan;
    return TUTTI_OK;
}

const tt_bound *tt_plan_bound(const tt_plan *plan)
{
    return plan->bound;
}

static void free_op(tt_plan *plan, tt_op *op)
{
    tt_free(plan->mem, op->copy, op->copy_bytes, 1);
    tt_free(plan->mem, op->block, op->block_bytes, 1);
    tt_free(plan->mem, op, 1, sizeof(*op));
}

void tt_plan_ref(tt_plan *plan)
{
    plan->n_refs++;
}

void tt_plan_unref(tt_plan *plan)
{
    if (!plan || --plan->n_refs > 0)
        return;
    while (plan->idle) {
        tt_op *op = plan->idle;
        plan->idle = op->next;
        free_op(plan, op);
    }
    tt_bound_free(plan->bound);
    tt_free(plan->mem, plan, 1, sizeof(*plan));
}

/* Hands out pieces of one block; a first pass with at == NULL adds up. */
typedef struct carver {
    unsigned char *at;
    size_t used;
} carver;

static void *carve(carver *c, uint64_t n, size_t size)
{
    void *ptr = c->at ? c->at + c->used : NULL;
    c->used += (n * size + 7) & ~(size_t)7;
    return ptr;
}

static void *carve_lines(carver *c, uint64_t n_bytes)
{
    c->used = (c->used + TT_CACHE_LINE - 1) & ~(size_t)(TT_CACHE_LINE - 1);
    return carve(c, n_bytes, 1);
}

static void carve_op(tt_op *op, const tt_plan *plan, carver *c)
{
    const tt_bound *b = plan->bound;
    op->sent = carve(c, b->n_sends, sizeof(uint32_t));
    op->left = carve(c, b->n_sends, sizeof(uint32_t));
    op->acked = carve(c, b->n_sends, sizeof(uint32_t));
    op->arrived = carve(c, b->n_recvs, sizeof(uint32_t));
    op->credited = carve(c, b->n_recvs, sizeof(uint32_t));
    op->placed_from = carve(c, b->n_sends, sizeof(uint32_t));
    op->put_from = carve(c, b->n_recvs, sizeof(uint32_t));
    op->done = carve(c, b->n_groups, sizeof(uint32_t));
    op->heaped = carve(c, b->n_sends, sizeof(bool));
    op->sides = carve(c, b->n_partners, sizeof(tt_side));
    op->cleared_bytes = c->used;
    op->results_left = carve(c, b->n_positions, sizeof(uint32_t));
    op->cursor = carve(c, b->n_recvs, sizeof(uint64_t));
    op->heaps = carve(c, b->n_sends, sizeof(uint64_t));
    op->sources = carve(c, plan->most_inputs + 1, sizeof(void *));
    op->targets = carve(c, (uint64_t)b->n_sends + 1, sizeof(void *));
    op->base[TT_SCRATCH] = carve_lines(c, b->scratch_bytes);
    op->staging = carve_lines(c, b->staging_bytes);
}

static tt_op *new_op(tt_plan *plan)
{
    tt_op *op = plan->idle;
    if (op) {
        plan->idle = op->next;
        return op;
    }
    op = tt_new(plan->mem, 1, sizeof(*op));
    if (!op)
        return NULL;
    op->plan = plan;
    op->b = plan->bound;
    carver count = {0};
    carve_op(op, plan, &count);
    op->block_bytes = count.used;
    if (count.used == 0)
        return op;
    op->block = plan->mem->fn(plan->mem->ctx, NULL, 0, count.used);
    if (!op->block) {
        tt_free(plan->mem, op, 1, sizeof(*op));
        return NULL;
    }
    carver c = {.at = op->block};
    carve_op(op, plan, &c);
    return op;
}

/* What the call is: the same as last time, most often. */
static void name_op(tt_op *op, const tt_call *call)
{
    if (op->is_named && memcmp(&op->call, call, sizeof(*call)) == 0)
        return;
    tutti_type type = (tutti_type)call->type;
    op->is_named = true;
    op->call = *call;
    op->fingerprint = tt_call_fingerprint(call);
    op->reduce = tt_reduce_kernel(type, (tutti_op)call->op);
    op->lines = tt_lines_kernel(type, (tutti_op)call->op, false);
    op->mean_lines = tt_lines_kernel(type, (tutti_op)call->op, true);
    op->divide = call->op == TUTTI_AVG ? tt_divide_kernel(type) : NULL;
}

/* Everything that a call changes, and that may differ from the last one. */
static void reset_op(tt_op *op, tt_team *team, const tt_op_start *start)
{
    const tt_bound *b = op->b;
    name_op(op, &start->call);
    op->team = team;
    op->channel = start->channel;
    op->seq = start->channel ? start->seq : team->next_seq;
    op->issue = team->mesh->engine->issues++;
    op->priority = start->priority;
    op->divisor = team->n;
    op->front = 0;
    op->n_open = b->n_sends + b->n_groups;
    op->is_over = op->is_asking = false;
    op->n_near = 0;
    op->deadline_ns = start->deadline_ns;
    op->start_ns = start->now_ns ? start->now_ns : tt_now_ns();
    op->start_pass = team->mesh->engine->n_passes;
    op->start_rest = team->mesh->engine->n_rests;
    op->moved_bytes = 0;
    op->done_fn = start->done;
    op->done_arg = start->arg;
    if (op->block)
        memset(op->block, 0, op->cleared_bytes);
    if (b->results_at)
        memcpy(op->results_left, b->results_at,
               b->n_positions * sizeof(uint32_t));
    op->base[TT_OUT] = start->out;
    /* The input is only read: COPY and REDUCE write to OUT and SCRATCH. */
    op->base[TT_IN] = (unsigned char *)(uintptr_t)start->in;
    op->members = NULL;
    if (start->members) {
        op->member_pair[0] = start->members[0];
        op->member_pair[1] = start->members[1];
        op->members = op->member_pair;
    }
}

static tutti_err copy_input(tt_op *op, const tt_op_start *start)
{
    uint64_t bytes = start->in_elems * op->b->elem_bytes;
    if (!start->copies_input || bytes == 0)
        return TUTTI_OK;
    const tt_mem *mem = op->plan->mem;
    if (op->copy_bytes < bytes) {
        tt_free(mem, op->copy, op->copy_bytes, 1);
        op->copy_bytes = 0;
        op->copy = mem->fn(mem->ctx, NULL, 0, bytes);
        if (!op->copy)
            return TUTTI_ENOMEM;
        op->copy_bytes = bytes;
    }
    if (start->call.op == TUTTI_SCALED_SUM &&
        tt_coll_reduces((tutti_coll)start->call.coll))
        tt_scale_kernel((tutti_type)start->call.type)(
            op->copy, start->in, start->in_elems, start->scale);
    else
        memcpy(op->copy, start->in, bytes);
    op->base[TT_IN] = op->copy;
    return TUTTI_OK;
}

static void make_sides(tt_op *op)
{
    const tt_bound *b = op->b;
    for (uint32_t p = 0; p < b->n_partners; p++) {
        uint32_t rank = tt_op_team_rank(op, b->partners[p].peer);
        tt_peer *peer = tt_team_peer(op->team, rank);
        while (peer->port < b->partners[p].port)
            peer = peer->next_port;
        op->sides[p] = (tt_side){
            .op = op,
            .peer = peer,
            .heap = op->heaps + b->partners[p].sends,
        };
    }
    op->n_unsaid = b->n_partners;
    op->team->mesh->engine->n_unsaid += b->n_partners;
}

static bool is_large(const tt_op *op)
{
    return op->b->total_bytes > 64 << 10;
}

static void enlist(tt_op *op)
{
    tt_team *team = op->team;
    tt_engine *e = team->mesh->engine;
    size_t at = bucket(team, op->channel, op->seq);
    op->hash_next = e->buckets[at];
    e->buckets[at] = op;
    op->next = team->ops;
    op->prev = NULL;
    if (team->ops)
        team->ops->prev = op;
    team->ops = op;
    team->n_ops++;
    op->plan->n_refs++;
    e->n_active++;
    e->n_large += is_large(op);
    if (op->channel == 0)
        team->next_seq++;
    team->past[team->n_past++ % TT_HISTORY] =
        (tt_past){op->channel, op->seq, op->fingerprint, op->call,
                  op->b->total_bytes > 0};
}

static void delist(tt_op *op)
{
    tt_engine *e = op->team->mesh->engine;
    tt_op **at = &e->buckets[bucket(op->team, op->channel, op->seq)];
    while (*at != op)
        at = &(*at)->hash_next;
    *at = op->hash_next;
    if (op->prev)
        op->prev->next = op->next;
    else
        op->team->ops = op->next;
    if (op->next)
        op->next->prev = op->prev;
    op->team->n_ops--;
    e->n_active--;
    e->n_large -= is_large(op);
}

/* The op stays readable until tt_op_recycle: its callers may be in the middle
 * of something. */
void tt_op_finish(tt_op *op, tutti_err err)
{
    if (op->is_over)
        return;
    op->is_over = true;
    for (uint32_t p = 0; p < op->b->n_partners; p++) {
        unlink_side(&op->sides[p]);
        tt_eager_unreserve(&op->sides[p]);
    }
    tt_within_end(op);
    delist(op);
    tt_engine *e = op->team->mesh->engine;
    e->n_unsaid -= op->n_unsaid;
    op->n_unsaid = 0;
    op->next = e->over;
    e->over = op;
    op->done_fn(op->done_arg, err);
}

void tt_op_recycle(tt_engine *e)
{
    while (e->over) {
        tt_op *op = e->over;
        tt_plan *plan = op->plan;
        e->over = op->next;
        if (op->answers)
            tt_free(plan->mem, op->answers, op->team->n, 1);
        op->answers = NULL;
        op->next = plan->idle;
        plan->idle = op;
        tt_plan_unref(plan);
    }
}

static void copy_local(tt_op *op)
{
    const tt_bound *b = op->b;
    for (uint32_t i = 0; i < b->n_copies; i++) {
        const tt_local_copy *c = &b->copies[i];
        unsigned char *to = tt_op_address(op, &c->to, 0);
        const unsigned char *from = tt_op_address(op, &c->from, 0);
        if (to != from)
            memcpy(to, from, c->to.n_elems * b->elem_bytes);
    }
}

/* Tells every partner that the call is entered: at once, or, where what goes
 * to and fro is small, with the first slice that goes there (see eager.c). */
static void greet(tt_op *op)
{
    const uint64_t most = op->team->mesh->eager_bytes;
    for (uint32_t p = 0; p < op->b->n_partners && !op->is_over; p++) {
        const tt_partner *partner = &op->b->partners[p];
        tt_side *side = &op->sides[p];
        bool is_small = op->b->total_bytes > 0 && most > 0;
        side->is_eager = is_small && partner->n_sends > 0 &&
                         partner->out_cost <= most &&
                         tt_eager_reserve(side->peer);
        if (!is_small || partner->in_cost > most || side->is_asked ||
            (partner->n_sends > 0 && !side->is_eager))
            tt_side_speak(side);
        if (side->is_eager)
            open_side(op, side);
    }
}

/* What the peer has sent of the call before it was entered here. */
static void take_kept(tt_op *op, tt_peer *peer)
{
    tt_keep *keep = tt_eager_find(peer, op->team->id, op->channel, op->seq);
    if (!keep)
        return;
    tt_side *side = tt_op_side(op, peer);
    if (side && keep->fingerprint == op->fingerprint)
        tt_op_hear(op, side);
    for (uint32_t at = 0; at < keep->used && !op->is_over;) {
        tt_msg m;
        memcpy(&m, keep->bytes + at, sizeof(m));
        tt_op_take(op, peer, &m, keep->bytes + at + sizeof(m));
        at += (uint32_t)((sizeof(m) + m.len + 7) & ~(size_t)7);
    }
    tt_eager_give_back(peer, keep);
}

static void take_early(tt_op *op, tt_peer *peer)
{
    tt_team *team = op->team;
    for (size_t i = 0; i < peer->n_early; i++) {
        tt_early *early = &peer->early[i];
        if (early->comm != team->id || early->channel != op->channel ||
            early->seq != op->seq)
            continue;
        tt_early found = *early;
        *early = peer->early[--peer->n_early];
        peer->mesh->n_ahead--;
        tt_past own = {op->channel, op->seq, op->fingerprint, op->call,
                       op->b->total_bytes > 0};
        if (!tt_team_compare(team, peer, &own, &found.call, found.fingerprint))
            return;
        tt_side *side = tt_op_side(op, peer);
        if (!side)
            return;
        side->is_asked = true;
        tt_op_hear(op, side);
        tt_within_hear(op, side, &found.grant);
        return;
    }
}

/* Partners, and ranks that think they are, that came first. */
static void meet_early(tt_op *op)
{
    const tt_team *team = op->team;
    const tt_mesh *mesh = team->mesh;
    for (uint32_t r = 0; r < team->n && mesh->n_ahead > 0; r++) {
        tt_peer *peer = r == team->rank ? NULL : tt_team_peer(team, r);
        for (; peer; peer = peer->next_port) {
            if (peer->n_early > 0 && !op->is_over)
                take_early(op, peer);
            if (peer->n_kept > 0 && !op->is_over)
                take_kept(op, peer);
        }
    }
}

tutti_err tt_op_begin(tt_team *team, const tt_op_start *start)
{
    if (team->err)
        return team->err;
    if (team->n_ops >= TT_IN_FLIGHT_MAX)
        return TUTTI_ELIMIT;
    tt_op *op = new_op(start->plan);
    if (!op)
        return TUTTI_ENOMEM;
    reset_op(op, team, start);
    tutti_err err = copy_input(op, start);
    if (err) {
        op->next = start->plan->idle;
        start->plan->idle = op;
        return err;
    }
    make_sides(op);
    tt_within_offer(op);
    enlist(op);
    op->is_beginning = true;
    copy_local(op);
    tt_op_advance_front(op);
    meet_early(op);
    if (!op->is_over)
        greet(op);
    tt_engine *e = team->mesh->engine;
    if (op->n_open == 0)
        tt_op_finish(op, TUTTI_OK);
    tt_op_check_left(op);
    tt_engine_pump(e);
    op->is_beginning = false;
    tt_op_recycle(e);
    return TUTTI_OK;
}
