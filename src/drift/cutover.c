/* SPDX-License-Identifier: BSD-3-Clause
 * cutover.c - see cutover.h. */
#include "drift/cutover.h"

#include <string.h>

typedef enum word_kind {
    PROMISE = 1, /* to rank 0: `call` is not begun before more is known */
    TURN         /* rank 0: the new counts from `call` on */
} word_kind;

/* No word of the owners is so short. */
typedef struct word {
    uint32_t kind, pad;
    uint64_t call;
} word;

tutti_err tt_cutover_init(tt_cutover *c, tutti_comm *comm)
{
    c->comm = comm;
    if (comm->rank > 0)
        return TUTTI_OK;
    c->promises.n_ranks = comm->n_ranks;
    c->promises.promised = tt_new(&comm->mem, comm->n_ranks, sizeof(uint64_t));
    return c->promises.promised ? TUTTI_OK : TUTTI_ENOMEM;
}

void tt_cutover_free(tt_cutover *c)
{
    tt_free(&c->comm->mem, c->promises.promised, c->comm->n_ranks,
            sizeof(uint64_t));
}

static void say(const tt_cutover *c, word_kind kind, uint64_t call)
{
    const word w = {.kind = kind, .call = call};
    tt_team_say(c->comm->team, &w, sizeof(w));
}

static uint64_t promise(tt_cutover *c)
{
    tt_team_await(c->comm->team, c->comm->timeout_ns);
    return tt_turn_promise(&c->turn);
}

static bool take_turn(tt_cutover *c, uint64_t call)
{
    if (!tt_turn_decide(&c->turn, call))
        return false;
    tt_team_await(c->comm->team, 0);
    tt_engine_wake(c->comm->engine);
    return true;
}

/* Rank 0; when it has all it decides. */
static bool take_promise(tt_cutover *c, uint32_t from, uint64_t call)
{
    if (!tt_turn_take(&c->promises, from, call))
        return false;
    if (c->promises.n_missing > 0)
        return true;
    say(c, TURN, c->promises.latest);
    return take_turn(c, c->promises.latest);
}

void tt_cutover_begin(tt_cutover *c, const void *w, uint32_t len)
{
    if (!tt_cutover_may_begin(c))
        return;
    tt_turn_gather(&c->promises);
    tt_team_say(c->comm->team, w, len);
    take_promise(c, 0, promise(c));
}

bool tt_cutover_promise(tt_cutover *c)
{
    if (tt_turn_is_near(&c->turn))
        return false;
    say(c, PROMISE, promise(c));
    return true;
}

bool tt_cutover_hears(tt_cutover *c, uint32_t from, const void *bytes,
                      uint32_t len, bool *is_right)
{
    word w;
    if (len != sizeof(w))
        return false;
    memcpy(&w, bytes, sizeof(w));
    *is_right = c->comm->rank > 0
                    ? w.kind == TURN && take_turn(c, w.call)
                    : w.kind == PROMISE && take_promise(c, from, w.call);
    return true;
}

void tt_cutover_end(tt_cutover *c)
{
    c->is_over = true;
    tt_turn_cancel(&c->turn);
}

static bool may_begin(const void *arg)
{
    const char *text;
    const tt_cutover *c = arg;
    return tt_turn_may_begin(&c->turn) || tt_team_state(c->comm->team, &text);
}

bool tt_cutover_comes(tt_cutover *c)
{
    tt_engine_wait_locked(c->comm->engine, may_begin, c);
    return tt_turn_comes(&c->turn);
}
