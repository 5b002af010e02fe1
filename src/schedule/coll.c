/* SPDX-License-Identifier: BSD-3-Clause
 * coll.c - the table of collectives of schedule.h: blocks, what a rank holds
 * at the start, what it must hold at the end. Nobody else may know it (but
 * for the naive executor of the tests, which checks this file). */
#include "schedule/schedule.h"

#include <string.h>

static const struct {
    const char *name;
    bool has_root, reduces;
} colls[TUTTI_COLL_COUNT] = {
#define TUTTI_X(name, number, text, rooted, reduces) \
    [number] = {(text), (rooted), (reduces)},
    TUTTI_COLL_LIST(TUTTI_X)
#undef TUTTI_X
};

const char *tutti_coll_name(tutti_coll coll)
{
    return (unsigned)coll < TUTTI_COLL_COUNT ? colls[coll].name : "unknown";
}

tutti_err tutti_coll_parse(const char *text, tutti_coll *out)
{
    if (!text || !out)
        return TUTTI_EINVAL;
    for (int i = 0; i < TUTTI_COLL_COUNT; i++) {
        if (strcmp(text, colls[i].name) == 0) {
            *out = (tutti_coll)i;
            return TUTTI_OK;
        }
    }
    return TUTTI_EINVAL;
}

bool tt_coll_has_root(tutti_coll coll)
{
    return (unsigned)coll < TUTTI_COLL_COUNT && colls[coll].has_root;
}

bool tt_coll_reduces(tutti_coll coll)
{
    return (unsigned)coll < TUTTI_COLL_COUNT && colls[coll].reduces;
}

bool tt_coll_has_trees(tutti_coll coll)
{
    return tt_coll_has_schedule(coll) && coll != TUTTI_GATHER &&
           coll != TUTTI_SCATTER && coll != TUTTI_ALL_TO_ALL;
}

bool tt_coll_has_schedule(tutti_coll coll)
{
    return tt_coll_blocks(coll, 1) != 0;
}

uint64_t tt_coll_blocks(tutti_coll coll, uint32_t n_ranks)
{
    switch (coll) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        return 1;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return n_ranks;
    case TUTTI_ALL_TO_ALL:
        return (uint64_t)n_ranks * n_ranks;
    case TUTTI_BARRIER:
    case TUTTI_SENDRECV:
    case TUTTI_COLL_COUNT:
        break;
    }
    return 0;
}

static tt_hold one_if(bool holds, uint32_t contribution, uint32_t *who)
{
    *who = holds ? contribution : TT_NONE;
    return holds ? TT_HOLD_ONE : TT_HOLD_NONE;
}

tt_hold tt_sched_start(const tutti_schedule *s, uint64_t block, uint32_t rank,
                       uint32_t *who)
{
    switch (s->collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE:
    case TUTTI_REDUCE_SCATTER:
        return one_if(true, rank, who);
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
        return one_if(rank == s->root, rank, who);
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return one_if(rank == block, rank, who);
    case TUTTI_ALL_TO_ALL:
        return one_if(rank == block / s->n_ranks, rank, who);
    case TUTTI_BARRIER:
    case TUTTI_SENDRECV:
    case TUTTI_COLL_COUNT:
        break;
    }
    return one_if(false, 0, who);
}

uint32_t tt_sched_end_only(const tutti_schedule *s, uint64_t block)
{
    switch (s->collective) {
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
        return s->root;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_SCATTER:
        return (uint32_t)block;
    case TUTTI_ALL_TO_ALL:
        return (uint32_t)(block % s->n_ranks);
    default:
        return TT_NONE;
    }
}

tt_hold tt_sched_end(const tutti_schedule *s, uint64_t block, uint32_t rank,
                     uint32_t *who)
{
    uint32_t only = tt_sched_end_only(s, block);
    *who = TT_NONE;
    if (only != TT_NONE && rank != only)
        return TT_HOLD_NONE;
    switch (s->collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE:
    case TUTTI_REDUCE_SCATTER:
        return TT_HOLD_ALL;
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
        return one_if(true, s->root, who);
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return one_if(true, (uint32_t)block, who);
    case TUTTI_ALL_TO_ALL:
        return one_if(true, (uint32_t)(block / s->n_ranks), who);
    case TUTTI_BARRIER:
    case TUTTI_SENDRECV:
    case TUTTI_COLL_COUNT:
        break;
    }
    return TT_HOLD_NONE;
}
