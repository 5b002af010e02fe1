/* SPDX-License-Identifier: BSD-3-Clause
 * turn_test.c - ranks that issue calls at their own paces change something
 * before the same call: all orders of events for two and three ranks.
 *
 * A world has the ranks, and a queue of words from rank 0 to each of the
 * others, and back. What may happen next: a rank issues a call, or goes on with
 * one that had to wait; rank 0 begins a change; the first word of a queue
 * comes; a rank that has made all its calls leaves, and rank 0 tells on that
 * words are over. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "drift/turn.h"

enum { RANKS = 3, DEEP = 8, MOST = 8, TABLE = 1 << 22 };

typedef enum kind { CHANGE = 1, PROMISE, TURN, OVER } kind;

typedef struct word {
    uint32_t kind, call;
} word;

typedef struct queue {
    uint32_t n;
    word words[DEEP];
} queue;

typedef struct world {
    uint32_t n, n_calls, n_changes;
    uint32_t n_begun; /* changes */
    tt_turn turns[RANKS];
    tt_turn_count count; /* its list is put in its place before it is used */
    uint64_t promised[RANKS];
    uint32_t n_made[RANKS];  /* calls that were issued, the last may wait */
    uint32_t version[RANKS]; /* changes that the rank has seen come */
    uint32_t made_by[MOST];  /* the version of each call, + 1 */
    bool waits[RANKS], has_left[RANKS], is_over[RANKS];
    queue down[RANKS], up[RANKS];
} world;

static uint64_t n_states, n_ends, n_changed;
static uint64_t *seen;

static void put(queue *q, kind what, uint64_t call)
{
    assert_true(q->n < DEEP);
    q->words[q->n++] = (word){what, (uint32_t)call};
}

static void tell_all(world *w, kind what, uint64_t call)
{
    for (uint32_t r = 1; r < w->n; r++)
        put(&w->down[r], what, call);
}

/* The call that it has issued begins. */
static void begin(world *w, uint32_t r)
{
    const uint32_t call = w->n_made[r];
    w->waits[r] = false;
    if (tt_turn_comes(&w->turns[r])) {
        w->version[r]++;
        n_changed++;
    }
    /* The same on all ranks, or results are wrong. */
    if (w->made_by[call] == 0)
        w->made_by[call] = w->version[r] + 1;
    assert_int_equal(w->made_by[call], w->version[r] + 1);
}

static void issue(world *w, uint32_t r)
{
    w->n_made[r]++;
    if (!tt_turn_count_call(&w->turns[r]) && !tt_turn_may_begin(&w->turns[r]))
        w->waits[r] = true;
    else
        begin(w, r);
}

static void take_promise(world *w, uint32_t r, uint64_t call)
{
    assert_true(tt_turn_take(&w->count, r, call));
    assert_false(tt_turn_take(&w->count, r, call));
    if (w->count.n_missing > 0)
        return;
    tell_all(w, TURN, w->count.latest);
    assert_true(tt_turn_decide(&w->turns[0], w->count.latest));
}

static void change(world *w)
{
    w->n_begun++;
    tt_turn_gather(&w->count);
    tell_all(w, CHANGE, 0);
    take_promise(w, 0, tt_turn_promise(&w->turns[0]));
}

static void end_words(world *w, uint32_t r)
{
    if (w->is_over[r])
        return;
    w->is_over[r] = true;
    tt_turn_cancel(&w->turns[r]);
    if (r == 0)
        tell_all(w, OVER, 0);
}

static void come_down(world *w, uint32_t r)
{
    const word got = w->down[r].words[0];
    memmove(w->down[r].words, w->down[r].words + 1,
            --w->down[r].n * sizeof(word));
    w->down[r].words[w->down[r].n] = (word){0, 0};
    if (got.kind == OVER)
        end_words(w, r);
    if (w->is_over[r])
        return;
    if (got.kind == CHANGE)
        put(&w->up[r], PROMISE, tt_turn_promise(&w->turns[r]));
    else
        assert_true(tt_turn_decide(&w->turns[r], got.call));
}

static void come_up(world *w, uint32_t r)
{
    const word got = w->up[r].words[0];
    memmove(w->up[r].words, w->up[r].words + 1, --w->up[r].n * sizeof(word));
    w->up[r].words[w->up[r].n] = (word){0, 0};
    if (got.kind == OVER)
        end_words(w, 0);
    else if (!w->is_over[0])
        take_promise(w, r, got.call);
}

static void leave(world *w, uint32_t r)
{
    w->has_left[r] = true;
    if (r == 0)
        end_words(w, 0);
    else
        put(&w->up[r], OVER, 0);
}

/* ---------------------------------------------------------------- orders -- */

typedef enum event { ISSUE, GO_ON, DOWN, UP, LEAVE, BEGIN, EVENTS } event;

/* Rank 0 begins no change before it has heard of all that the last one came. */
static bool is_any_near(const world *w)
{
    bool is = false;
    for (uint32_t r = 0; r < w->n; r++)
        is |= tt_turn_is_near(&w->turns[r]);
    return is;
}

static bool may(const world *w, event e, uint32_t r)
{
    const bool is_here = !w->has_left[r];
    switch (e) {
    case ISSUE:
        return is_here && !w->waits[r] && w->n_made[r] < w->n_calls;
    case GO_ON:
        return w->waits[r] && tt_turn_may_begin(&w->turns[r]);
    case DOWN:
        return w->down[r].n > 0 && is_here;
    case UP:
        return w->up[r].n > 0 && !w->has_left[0];
    case LEAVE: /* what it has not heard by then it does not need */
        return is_here && !w->waits[r] && w->n_made[r] == w->n_calls;
    default:
        return r == 0 && is_here && !w->is_over[0] &&
               w->n_begun < w->n_changes && !is_any_near(w);
    }
}

static void perform(world *w, event e, uint32_t r)
{
    w->count.promised = w->promised;
    if (e == ISSUE)
        issue(w, r);
    else if (e == GO_ON)
        begin(w, r);
    else if (e == DOWN)
        come_down(w, r);
    else if (e == UP)
        come_up(w, r);
    else if (e == LEAVE)
        leave(w, r);
    else
        change(w);
    w->count.promised = NULL;
}

static bool is_new(const world *w)
{
    uint64_t hash = tt_fnv1a(TT_FNV1A_START, w, sizeof(*w)) | 1;
    uint64_t at = hash % TABLE;
    while (seen[at] != 0 && seen[at] != hash)
        at = (at + 1) % TABLE;
    bool is = seen[at] == 0;
    seen[at] = hash;
    n_states += is;
    assert_true(n_states < TABLE / 2);
    return is;
}

static void explore(const world *w)
{
    bool is_end = true;
    if (!is_new(w))
        return;
    for (event e = 0; e < EVENTS; e++)
        for (uint32_t r = 0; r < w->n; r++) {
            if (!may(w, e, r))
                continue;
            world next;
            memcpy(&next, w, sizeof(next));
            perform(&next, e, r);
            explore(&next);
            is_end = false;
        }
    if (!is_end)
        return;
    n_ends++;
    for (uint32_t r = 0; r < w->n; r++) /* nobody has to wait for ever */
        assert_true(w->has_left[r] && w->n_made[r] == w->n_calls);
}

static void explore_all(uint32_t n, uint32_t n_calls, uint32_t n_changes)
{
    world w;
    memset(&w, 0, sizeof(w));
    w.n = n;
    w.n_calls = n_calls;
    w.n_changes = n_changes;
    w.count.n_ranks = n;
    seen = calloc(TABLE, sizeof(*seen));
    assert_non_null(seen);
    n_states = n_ends = n_changed = 0;
    explore(&w);
    free(seen);
    print_message("# %u ranks, %u calls, %u changes: %llu states, %llu ends\n",
                  n, n_calls, n_changes, (unsigned long long)n_states,
                  (unsigned long long)n_ends);
    assert_true(n_ends > 0 && n_changed > 0);
}

static void two_ranks(void **state)
{
    (void)state;
    explore_all(2, 5, 3);
}

static void three_ranks(void **state)
{
    (void)state;
    explore_all(3, 3, 1);
}

/* What another rank may say that makes no sense. */
static void nonsense(void **state)
{
    (void)state;
    uint64_t promised[2];
    tt_turn t;
    tt_turn_count c = {.promised = promised, .n_ranks = 2};
    memset(&t, 0, sizeof(t));
    assert_false(tt_turn_take(&c, 0, 1)); /* nobody has asked */
    assert_false(tt_turn_decide(&t, 1));
    assert_true(tt_turn_count_call(&t));
    assert_int_equal(tt_turn_promise(&t), 2);
    assert_true(tt_turn_may_begin(&t)); /* the one that was counted */
    assert_false(tt_turn_comes(&t));
    assert_false(tt_turn_decide(&t, 1));
    assert_true(tt_turn_decide(&t, 3));
    assert_false(tt_turn_decide(&t, 3));
    assert_false(tt_turn_count_call(&t));
    assert_false(tt_turn_comes(&t));
    assert_false(tt_turn_count_call(&t));
    assert_true(tt_turn_comes(&t));
    assert_false(tt_turn_comes(&t));
    assert_true(tt_turn_count_call(&t));
    tt_turn_gather(&c);
    assert_false(tt_turn_take(&c, 1, 0));
    assert_true(tt_turn_take(&c, 1, 7) && tt_turn_take(&c, 0, 4));
    assert_int_equal(c.latest, 7);
    tt_turn_gather(&c);
    assert_true(tt_turn_take(&c, 0, 2) && tt_turn_take(&c, 1, 3));
    assert_int_equal(c.latest, 3);
    /* What is decided stays so, whoever leaves. */
    assert_int_equal(tt_turn_promise(&t), 5);
    assert_true(tt_turn_decide(&t, 5));
    tt_turn_cancel(&t);
    assert_false(tt_turn_count_call(&t));
    assert_true(tt_turn_may_begin(&t) && tt_turn_comes(&t));
    assert_int_equal(tt_turn_promise(&t), 6);
    assert_false(tt_turn_count_call(&t));
    assert_false(tt_turn_may_begin(&t));
    tt_turn_cancel(&t);
    assert_true(tt_turn_may_begin(&t) && !tt_turn_comes(&t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(three_ranks),
        cmocka_unit_test(nonsense),
    };
    return TT_RUN_TAP(tests);
}
