/* SPDX-License-Identifier: BSD-3-Clause
 * within.c - partners whose buffers this rank can use where they lie.
 *
 * Idea       Inside one host, with memory from tutti_alloc(), a rank that makes
 *            a reduction can read all inputs in the others' buffers and write
 *            the result to all outputs: every input is read once and every
 *            result written once, the least there is. So BIND also says where
 *            the buffers of the call are (net.h: grant).
 * Pull       A transfer whose sender still has its own value needs no message:
 *            who reduces takes it when its turn comes, one slice for each pass
 *            of the engine, and says by CREDIT how far it is.
 * Put        A result is written to the partner as soon as it is made, and the
 *            message (PUT) only says so. Nothing may read what is overwritten:
 *            part.c knows from the schedule where that is certain.
 * No hang    A pull waits for the partner's BIND only, so it is a send that
 *            happens when the partner enters; it is not used where the receiver
 *            would have to send the same chunk before (part.c), so "the sender's
 *            place is free" never waits for itself. docs/engine.md has the rest.
 * Failure    A call that has failed withdraws its buffers first (net/grant.c).
 *            Who cannot hold them any more makes no slice; word of the failure
 *            is on the way, as every rank of the communicator is told.
 * Next       take.c (the slices), net/grant.c. */
#include <stdio.h>

#include "engine/state.h"

static const tt_net_ops *ops_of(const tt_side *side)
{
    return side->peer->conn->net->ops;
}

/* Small calls may go without BIND (eager.c), and so without grants. */
static bool says_bind(const tt_op *op, const tt_partner *partner)
{
    const uint64_t most = op->team->mesh->eager_bytes;
    return most == 0 || (partner->out_cost > most && partner->in_cost > most);
}

static tt_buffers buffers_of(const tt_op *op)
{
    return (tt_buffers){
        .in = op->base[TT_IN],
        .out = op->base[TT_OUT],
        .bytes = op->b->total_bytes,
    };
}

void tt_within_offer(tt_op *op)
{
    const tt_buffers mine = buffers_of(op);
    for (uint32_t p = 0; p < op->b->n_partners; p++) {
        const tt_partner *partner = &op->b->partners[p];
        tt_side *side = &op->sides[p];
        if (!partner->grants || !ops_of(side)->grant || !says_bind(op, partner))
            continue;
        tt_grant g;
        if (ops_of(side)->grant(side->peer->conn, &mine, &g))
            side->mine = g;
    }
}

void tt_within_hear(tt_op *op, tt_side *side, const tt_grant *theirs)
{
    const tt_bound *b = op->b;
    const tt_partner *partner = &b->partners[side - op->sides];
    tt_buffers far = {.bytes = b->total_bytes};
    if (op->is_over || !theirs->number || side->theirs)
        return;
    if (!ops_of(side)->reach ||
        !ops_of(side)->reach(side->peer->conn, theirs, &far)) {
        char text[96];
        uint32_t rank = tt_team_rank_of(op->team, side->peer);
        snprintf(text, sizeof(text),
                 "rank %u granted memory that is not where it says", rank);
        tt_team_fail(op->team, TUTTI_EPROTO, rank, text);
        return;
    }
    side->theirs = theirs->number;
    side->far = far;
    op->n_near++;
    for (uint32_t i = 0; i < partner->n_recvs; i++) {
        uint32_t l = b->index[partner->recvs + i];
        if (!tt_within_pulls(op, &b->recvs[l]))
            continue;
        op->arrived[l] = b->recvs[l].n_slices;
        tt_op_try(op, l);
    }
}

/* ---------------------------------------------------------------- slices -- */

static bool hold(tt_side *side)
{
    if (!side->is_held)
        side->is_held = ops_of(side)->hold(side->peer->conn, side->theirs);
    return side->is_held;
}

static void release(tt_side *side)
{
    if (side->is_held)
        ops_of(side)->release(side->peer->conn);
    side->is_held = false;
}

static bool goes_there(const tt_op *op, uint32_t l)
{
    const tt_lane *lane = &op->b->sends[l];
    return lane->is_put && op->sides[lane->partner].far.out != NULL;
}

bool tt_within_hold(tt_op *op, const tt_group *group)
{
    const tt_bound *b = op->b;
    bool is_held = true;
    for (uint32_t i = 0; i < group->n_lanes && is_held; i++) {
        const tt_lane *lane = &b->recvs[b->index[group->lanes + i]];
        if (tt_within_pulls(op, lane))
            is_held = hold(&op->sides[lane->partner]);
    }
    for (uint32_t i = 0; i < group->n_sends && is_held; i++) {
        uint32_t l = b->index[group->sends + i];
        if (goes_there(op, l))
            is_held = hold(&op->sides[b->sends[l].partner]);
    }
    if (!is_held)
        tt_within_release(op, group);
    return is_held;
}

void tt_within_release(tt_op *op, const tt_group *group)
{
    const tt_bound *b = op->b;
    for (uint32_t i = 0; i < group->n_lanes; i++)
        release(&op->sides[b->recvs[b->index[group->lanes + i]].partner]);
    for (uint32_t i = 0; i < group->n_sends; i++)
        release(&op->sides[b->sends[b->index[group->sends + i]].partner]);
}

uint32_t tt_within_targets(tt_op *op, const tt_group *group, uint32_t k,
                           uint64_t first_elem)
{
    const tt_bound *b = op->b;
    uint32_t n = 1;
    for (uint32_t i = 0; i < group->n_sends && op->n_near > 0; i++) {
        uint32_t l = b->index[group->sends + i];
        const tt_lane *lane = &b->sends[l];
        if (!goes_there(op, l))
            continue;
        if (!op->placed_from[l])
            op->placed_from[l] = k + 1;
        op->targets[n++] = (unsigned char *)op->sides[lane->partner].far.out +
                           lane->vector_at + first_elem * b->elem_bytes;
    }
    return n;
}

/* ------------------------------------------------------------------ work -- */

/* By priority, then in the order in which the calls were made. */
void tt_within_note(tt_op *op)
{
    if (op->is_working || op->is_over)
        return;
    tt_op **at = &op->team->mesh->engine->work;
    while (*at &&
           ((*at)->priority > op->priority ||
            ((*at)->priority == op->priority && (*at)->issue < op->issue)))
        at = &(*at)->work_next;
    op->work_next = *at;
    *at = op;
    op->is_working = true;
}

static void forget(tt_op *op)
{
    tt_op **at = &op->team->mesh->engine->work;
    if (!op->is_working)
        return;
    while (*at != op)
        at = &(*at)->work_next;
    *at = op->work_next;
    op->is_working = false;
}

bool tt_within_step(tt_engine *e)
{
    while (e->work) {
        tt_op *op = e->work;
        if (tt_op_pull(op))
            return true;
        forget(op);
    }
    return false;
}

void tt_within_end(tt_op *op)
{
    const tt_buffers mine = buffers_of(op);
    forget(op);
    for (uint32_t p = 0; p < op->b->n_partners; p++) {
        tt_side *side = &op->sides[p];
        if (side->mine.number)
            ops_of(side)->withdraw(side->peer->conn, &mine, side->mine.number);
    }
}
