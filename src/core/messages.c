/* SPDX-License-Identifier: BSD-3-Clause
 * messages.c - how a message between two ranks begins.
 *
 * Idea       A message is a broadcast between two ranks, on a channel that is
 *            made of both ranks and the tag. Both count the messages of each
 *            channel; the count is the call's number there, so what matches
 *            what needs no word.
 * Any        A receive from any rank has its plan, but no channel, until
 *            somebody's next message is there (engine/any.c).
 * Tallies    The counts lie in a hash table, [locked] like all calls. They
 *            are never dropped: the next message of that channel needs them.
 * Next: engine/any.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"

typedef struct tt_tally {
    uint64_t channel; /* 0: an empty place */
    uint64_t n;
} tt_tally;

static const size_t first_cap = 16;

static uint64_t channel_of(const tutti_comm *comm, uint32_t from, uint32_t to,
                           int tag)
{
    _Static_assert(TT_CHANNEL_TAG == 33, "65535 ranks squared need 32 bits");
    return (1 + (uint64_t)from * comm->n_ranks + to) | (uint64_t)tag
                                                           << TT_CHANNEL_TAG;
}

/* Where the channel is, or would be. cap is a power of two, never full. */
static tt_tally *place_of(tt_tally *tallies, size_t cap, uint64_t channel)
{
    uint64_t hash = channel * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(hash >> 32) & (cap - 1);
    while (tallies[at].channel != 0 && tallies[at].channel != channel)
        at = (at + 1) & (cap - 1);
    return &tallies[at];
}

static tutti_err grow(tutti_comm *comm)
{
    size_t cap = comm->tally_cap ? 2 * comm->tally_cap : first_cap;
    tt_tally *bigger = tt_new(&comm->mem, cap, sizeof(*bigger));
    if (!bigger)
        return TUTTI_ENOMEM;
    for (size_t i = 0; i < comm->tally_cap; i++)
        if (comm->tallies[i].channel != 0)
            *place_of(bigger, cap, comm->tallies[i].channel) = comm->tallies[i];
    tt_comm_free_tallies(comm);
    comm->tallies = bigger;
    comm->tally_cap = cap;
    return TUTTI_OK;
}

void tt_comm_free_tallies(tutti_comm *comm)
{
    tt_free(&comm->mem, comm->tallies, comm->tally_cap, sizeof(tt_tally));
    comm->tallies = NULL;
    comm->tally_cap = 0;
}

static uint64_t count_of(const tutti_comm *comm, uint64_t channel)
{
    if (!comm->tallies)
        return 0;
    return place_of(comm->tallies, comm->tally_cap, channel)->n;
}

/* NULL: out of memory. */
static tt_tally *tally_of(tutti_comm *comm, uint64_t channel)
{
    if (2 * (comm->n_tallies + 1) > comm->tally_cap && grow(comm))
        return NULL;
    tt_tally *tally = place_of(comm->tallies, comm->tally_cap, channel);
    comm->n_tallies += tally->channel == 0;
    tally->channel = channel;
    return tally;
}

static tutti_err begin_from_to(tutti_comm *comm, uint32_t from, uint32_t to,
                               int tag, tt_op_start *start)
{
    const uint32_t pair[2] = {from, to};
    tt_tally *tally = tally_of(comm, channel_of(comm, from, to, tag));
    if (!tally)
        return TUTTI_ENOMEM;
    start->members = pair;
    start->channel = tally->channel;
    start->seq = tally->n;
    /* Before it begins: what a callback calls comes behind it. */
    tally->n++;
    tutti_err err = tt_op_begin(comm->team, start);
    if (err)
        tally->n--;
    return err;
}

/* -------------------------------------------------------------- from any -- */

typedef struct wanted {
    tt_any any;
    tutti_comm *comm;
    tt_op_start start;
    int *source;
} wanted;

static void expect(const tt_any *any, uint32_t rank, uint64_t *channel,
                   uint64_t *seq)
{
    const tutti_comm *comm = ((const wanted *)any)->comm;
    *channel = channel_of(comm, rank, comm->rank, any->tag);
    *seq = count_of(comm, *channel);
}

static void found(tt_any *any, uint32_t rank, tutti_err err)
{
    wanted *w = (wanted *)any;
    tutti_comm *comm = w->comm;
    bool is_found = !err;
    if (is_found) {
        if (w->source)
            *w->source = (int)rank;
        err = begin_from_to(comm, rank, comm->rank, any->tag, &w->start);
    }
    if (err && is_found) {
        char text[120];
        snprintf(text, sizeof(text),
                 "rank %" PRIu32 " cannot receive from rank %" PRIu32 ": %s",
                 comm->rank, rank, tutti_strerror(err));
        tt_team_fail(comm->team, err, comm->rank, text);
    }
    if (err)
        w->start.done(w->start.arg, err);
    tt_free(&comm->mem, w, 1, sizeof(*w));
}

static tutti_err begin_any(tutti_comm *comm, const tt_call_in *call,
                           const tt_op_start *start, int tag)
{
    wanted *w = tt_new(&comm->mem, 1, sizeof(*w));
    if (!w)
        return TUTTI_ENOMEM;
    *w = (wanted){.any = {.start_ns = start->now_ns,
                          .deadline_ns = start->deadline_ns,
                          .tag = tag,
                          .program = start->program,
                          .expect = expect,
                          .found = found},
                  .comm = comm,
                  .start = *start,
                  .source = call->source};
    tt_any_begin(comm->team, &w->any);
    return TUTTI_OK;
}

tutti_err tt_message_begin(tutti_comm *comm, const tt_call_in *call,
                           tt_op_start *start)
{
    int tag = call->opts ? call->opts->tag : 0;
    if (call->from == TT_NONE)
        return begin_any(comm, call, start, tag);
    return begin_from_to(comm, call->from, call->to, tag, start);
}
