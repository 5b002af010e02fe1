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
 *            of the engine (drive.c), and says by CREDIT how far it is.
 * Put        A result is written to the partner as soon as it is made, and the
 *            message (PUT) only says so. Nothing may read what is overwritten:
 *            walk/part.c knows from the schedule where that is certain.
 * Failure    A call that has failed withdraws its buffers first
 *            (net/shm/grant.c). Who cannot hold them any more makes no slice;
 *            word of the failure is on the way, as every rank of the
 *            communicator is told.
 * Next       walk/machine.c (the slices; why it cannot hang),
 *            net/shm/grant.c. */
#include "engine/state.h"

const tt_net_within *tt_within_of(const tt_side *side)
{
    return side->peer->conn->net->ops->within;
}

/* Small calls may go without BIND (eager.c), and so without grants. */
static bool says_bind(const tt_op *op, const tt_partner *partner)
{
    const uint64_t most = op->team->mesh->eager_bytes;
    return most == 0 || (partner->out_cost > most && partner->in_cost > most);
}

/* What comes from a GPU is not there yet. */
static tt_buffers buffers_of(const tt_op *op)
{
    return (tt_buffers){
        .in = op->gpu ? NULL : op->walk.base[TT_IN],
        .out = op->walk.base[TT_OUT],
        .bytes = op->walk.b->total_bytes,
        .is_elsewhere = tt_op_is_near(op),
    };
}

void tt_within_offer(tt_op *op)
{
    if (!op->walk.b->grants)
        return;
    const tt_buffers mine = buffers_of(op);
    for (uint32_t p = 0; p < op->walk.b->n_partners && !mine.is_elsewhere;
         p++) {
        const tt_partner *partner = &op->walk.b->partners[p];
        tt_side *side = &op->sides[p];
        if (!partner->grants || !tt_within_of(side) || !says_bind(op, partner))
            continue;
        tt_grant g;
        if (!tt_within_of(side)->grant(side->peer->conn, &mine, &g))
            continue;
        side->mine = g;
        op->walk.sides[p].may_read = g.in != 0;
        op->walk.sides[p].may_write = g.out != 0;
    }
}

bool tt_within_hear(tt_side *side, const tt_grant *theirs)
{
    tt_op *op = side->op;
    tt_buffers far = {.bytes = op->walk.b->total_bytes};
    if (op->walk.is_over || !theirs->number || side->theirs)
        return true;
    if (!tt_within_of(side) ||
        !tt_within_of(side)->reach(side->peer->conn, theirs, &far))
        return false;
    side->theirs = theirs->number;
    tt_walk_near(&op->walk, tt_side_partner(side), far.in, far.out);
    return true;
}

/* ---------------------------------------------------------------- slices -- */

bool tt_within_hold(tt_side *side)
{
    if (!side->is_held)
        side->is_held = tt_within_of(side)->hold(side->peer->conn,
                                                 side->theirs);
    return side->is_held;
}

void tt_within_release(tt_side *side)
{
    if (side->is_held)
        tt_within_of(side)->release(side->peer->conn);
    side->is_held = false;
}

/* ------------------------------------------------------------------ work -- */

/* By priority, then in the order in which the calls were made. */
void tt_within_note(tt_op *op)
{
    if (op->is_working || op->walk.is_over)
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

void tt_within_forget(tt_op *op)
{
    tt_op **at = &op->team->mesh->engine->work;
    if (!op->is_working)
        return;
    while (*at != op)
        at = &(*at)->work_next;
    *at = op->work_next;
    op->is_working = false;
}

bool tt_within_part(tt_side *side, bool is_final)
{
    const uint64_t number = side->mine.number;
    if (!number)
        return true;
    const tt_buffers mine = buffers_of(side->op);
    if (!tt_within_of(side)->withdraw(side->peer->conn, &mine, number,
                                      is_final))
        return false;
    side->mine = (tt_grant){0};
    return true;
}

bool tt_within_end(tt_op *op)
{
    bool is_free = true;
    tt_within_forget(op);
    if (!op->walk.b->grants && !op->gpu)
        return true;
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++)
        is_free &= tt_within_part(&op->sides[p], op->sides[p].peer->is_lost);
    return is_free;
}
