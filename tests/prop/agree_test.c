/* SPDX-License-Identifier: BSD-3-Clause
 * agree_test.c - members of a team agree although some are lost meanwhile: all
 * orders of events for few of them, random ones for more.
 *
 * A world has the members, and a queue of messages from each to each. What may
 * happen next: a member begins, the first message of a queue comes, a member
 * dies, what a dead one has sent and is not there yet gets lost, and the end of
 * a connection is noticed, behind all that came by it. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "engine/agree.h"
#include "support/seed.h"

enum { MOST = 16, DEEP = 40, EPOCHS = 3 };

typedef struct note {
    uint64_t epoch, mask, lost;
    int32_t err;
    uint8_t kind, what;
} note;

typedef struct queue {
    uint32_t n;
    note notes[DEEP];
} queue;

/* What a member knows is a block behind the world; see member(). */
typedef struct world {
    uint32_t n, n_crashes, n_epochs, n_cuts;
    uint32_t alive, stalled, frozen;
    bool is_blind; /* a connection in vain is not noticed */
    uint32_t mix;  /* members agree on different things; 0: on the same */
    uint32_t linked[MOST], tried[MOST], noticed[MOST], cut[MOST];
    uint64_t n_sent;
    tt_opinion decided[MOST][EPOCHS];
    unsigned char members[MOST][sizeof(tt_agree) + MOST * sizeof(tt_voter)];
    queue queues[]; /* [n][n] */
} world;

static world *now; /* that the members send in */

static size_t bytes_of(uint32_t n)
{
    return sizeof(world) + n * n * sizeof(queue);
}

static queue *queue_of(world *w, uint32_t from, uint32_t to)
{
    return &w->queues[from * w->n + to];
}

static tt_agree *member(world *w, uint32_t r)
{
    return (tt_agree *)(void *)w->members[r];
}

static void carry(void *arg, uint32_t to, uint64_t epoch, const tt_opinion *v)
{
    const uint32_t from = (uint32_t)(uintptr_t)arg;
    queue *q = queue_of(now, from, to);
    assert_true(to < now->n && to != from);
    now->tried[from] |= 1u << to;
    now->n_sent++;
    if (!(now->alive >> to & 1) || now->cut[from] >> to & 1)
        return;
    now->linked[from] |= 1u << to;
    now->linked[to] |= 1u << from;
    assert_true(q->n < DEEP);
    q->notes[q->n++] = (note){epoch,  v->mask, v->lost[0],
                              v->err, v->kind, v->what};
}

static bool is_linked(const void *arg, uint32_t rank)
{
    const uint32_t me = (uint32_t)(uintptr_t)arg;
    return now->linked[me] >> rank & 1 && !(now->noticed[me] >> rank & 1);
}

static const tt_agree_ops ops = {carry, is_linked};

static uint64_t mask_of(uint32_t rank, uint64_t epoch)
{
    return ~(UINT64_C(1) << (rank + 16 * epoch));
}

static uint8_t what_of(const world *w, uint32_t rank, uint64_t epoch)
{
    return w->mix ? (uint8_t)(1u << (w->mix >> (rank + epoch) % 24 & 1)) : 1;
}

static world *make(uint32_t n, uint32_t n_epochs, uint32_t n_crashes)
{
    world *w = calloc(1, bytes_of(n));
    assert_non_null(w);
    w->n = n;
    w->n_epochs = n_epochs;
    w->n_crashes = n_crashes;
    w->alive = (1u << n) - 1;
    for (uint32_t r = 0; r < n; r++) {
        tt_agree *a = tt_agree_create(&tt_mem_std, &ops, (void *)(uintptr_t)r,
                                      n, r);
        assert_non_null(a);
        memcpy(member(w, r), a, sizeof(*a) + n * sizeof(tt_voter));
        tt_agree_free(&tt_mem_std, a);
    }
    return w;
}

/* ---------------------------------------------------------------- events -- */

typedef enum kind { BEGIN, COME, DIE, LOSE, NOTICE } kind;

typedef struct event {
    kind kind;
    uint32_t from, to;
} event;

static bool is_done(world *w, uint32_t r)
{
    const tt_agree *a = member(w, r);
    return a->is_out || a->epoch == w->n_epochs;
}

static bool can_begin(world *w, uint32_t r)
{
    return !is_done(w, r) && !member(w, r)->is_open && !(w->stalled >> r & 1);
}

/* The connection from `from` is at its end for `to`: it was there, or was
 * tried. */
static bool can_notice(world *w, uint32_t from, uint32_t to)
{
    bool is_over = !(w->alive >> from & 1) || w->cut[from] >> to & 1;
    uint32_t known = w->linked[to] | (w->is_blind ? 0 : w->tried[to]);
    bool is_known = known >> from & 1;
    return is_over && is_known && !(w->noticed[to] >> from & 1) &&
           queue_of(w, from, to)->n == 0;
}

static uint32_t list_events(world *w, event *list)
{
    uint32_t n = 0;
    for (uint32_t to = 0; to < w->n; to++) {
        if (!((w->alive & ~w->frozen) >> to & 1))
            continue;
        if (can_begin(w, to))
            list[n++] = (event){BEGIN, to, to};
        if (w->n_crashes > 0)
            list[n++] = (event){DIE, to, to};
        for (uint32_t from = 0; from < w->n; from++) {
            if (from == to)
                continue;
            if (queue_of(w, from, to)->n > 0)
                list[n++] = (event){COME, from, to};
            if (queue_of(w, from, to)->n > 0 && !(w->alive >> from & 1))
                list[n++] = (event){LOSE, from, to};
            if (can_notice(w, from, to))
                list[n++] = (event){NOTICE, from, to};
        }
    }
    return n;
}

static void come(world *w, uint32_t from, uint32_t to)
{
    queue *q = queue_of(w, from, to);
    const note first = q->notes[0];
    tt_opinion v = {.kind = first.kind,
                    .what = first.what,
                    .err = first.err,
                    .mask = first.mask,
                    .lost = {first.lost}};
    memmove(q->notes, q->notes + 1, --q->n * sizeof(note));
    q->notes[q->n] = (note){.epoch = 0};
    assert_true(tt_agree_hear(member(w, to), from, first.epoch, &v));
}

static void perform(world *w, const event *e)
{
    tt_agree *a = member(w, e->to);
    const uint64_t epoch = a->epoch;
    now = w;
    switch (e->kind) {
    case BEGIN:
        tt_agree_begin(a, what_of(w, e->to, epoch), mask_of(e->to, epoch),
                       w->n / 2 + 1);
        break;
    case COME:
        come(w, e->from, e->to);
        break;
    case DIE:
        w->alive &= ~(1u << e->to);
        w->n_crashes--;
        for (uint32_t r = 0; r < w->n; r++)
            memset(queue_of(w, r, e->to), 0, sizeof(queue));
        break;
    case LOSE:
        memset(queue_of(w, e->from, e->to), 0, sizeof(queue));
        break;
    case NOTICE:
        w->noticed[e->to] |= 1u << e->from;
        tt_agree_lose(a, e->from);
        break;
    }
    if (a->epoch > epoch) {
        assert_int_equal(a->epoch, epoch + 1);
        w->decided[e->to][epoch] = a->last;
    }
}

/* ---------------------------------------------------------------- checks -- */

/* What was decided is what the members in it have said, and all who are alive
 * are in it. */
static void check_decision(const world *w, const tt_opinion *v, uint64_t epoch)
{
    const uint64_t lost = v->lost[0];
    uint64_t mask = ~UINT64_C(0);
    uint32_t n_left = 0;
    uint8_t what = 0;
    for (uint32_t r = 0; r < w->n; r++) {
        if (lost >> r & 1)
            continue;
        what |= what_of(w, r, epoch);
        mask &= mask_of(r, epoch);
        n_left++;
    }
    assert_true((lost & w->alive) == 0);
    const tutti_err err = what == 3 ? TUTTI_EMISMATCH : TUTTI_OK;
    assert_int_equal(v->err, n_left > w->n / 2 ? err : TUTTI_EPEER);
    assert_int_equal(v->what, what);
    assert_true(v->mask == mask);
}

/* Nothing can happen any more: all who are alive have ended alike. */
static void check_end(world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        if (!(w->alive >> r & 1))
            continue;
        assert_true(is_done(w, r));
        assert_false(member(w, r)->is_out);
        for (uint32_t k = 0; k < w->n_epochs; k++) {
            const uint32_t first = (uint32_t)__builtin_ctz(w->alive);
            const tt_opinion *one = &w->decided[r][k];
            const tt_opinion *other = &w->decided[first][k];
            check_decision(w, one, k);
            assert_int_equal(one->lost[0], other->lost[0]);
            assert_int_equal(one->err, other->err);
            assert_int_equal(one->what, other->what);
        }
    }
}

/* ------------------------------------------------------------ all orders -- */

enum { SEEN = 1 << 22 };
static uint64_t *seen;
static uint64_t n_seen, n_ends;

static bool is_new(world *w)
{
    uint64_t h = TT_FNV1A_START;
    const size_t fixed = offsetof(world, n_sent);
    h = tt_fnv1a(h, w, fixed);
    for (uint32_t a = 0; a < w->n; a++) {
        for (uint32_t b = 0; b < w->n; b++)
            h = tt_fnv1a(h, queue_of(w, a, b),
                         offsetof(queue, notes) +
                             queue_of(w, a, b)->n * sizeof(note));
        const tt_agree *m = member(w, a);
        const uint64_t words[] = {m->n_lost,  m->epoch,       m->asked,
                                  m->is_open, m->own.lost[0], m->last.lost[0],
                                  m->is_out,  m->last.mask};
        h = tt_fnv1a(h, words, sizeof(words));
        for (uint32_t b = 0; b < w->n; b++)
            h = tt_fnv1a_u64(h,
                             m->voters[b].n_lost | m->voters[b].awaits << 32);
        for (uint32_t k = 0; k < w->n_epochs; k++)
            h = tt_fnv1a_u64(h, w->decided[a][k].lost[0]);
    }
    h += h == 0;
    uint32_t at = (uint32_t)(h % SEEN);
    while (seen[at] != 0 && seen[at] != h)
        at = (at + 1) % SEEN;
    if (seen[at] == h)
        return false;
    seen[at] = h;
    assert_true(++n_seen < SEEN / 2);
    return true;
}

static void explore(world *w)
{
    event list[MOST * 4 + 3 * MOST * MOST];
    const uint32_t n = list_events(w, list);
    bool only_deaths = true;
    for (uint32_t i = 0; i < n; i++) {
        only_deaths &= list[i].kind == DIE;
        world *next = malloc(bytes_of(w->n));
        assert_non_null(next);
        memcpy(next, w, bytes_of(w->n));
        perform(next, &list[i]);
        if (is_new(next))
            explore(next);
        free(next);
    }
    if (only_deaths) {
        n_ends++;
        check_end(w);
    }
}

static void explore_all(uint32_t n, uint32_t n_epochs, uint32_t n_crashes,
                        bool all_linked)
{
    world *w = make(n, n_epochs, n_crashes);
    seen = calloc(SEEN, sizeof(*seen));
    assert_non_null(seen);
    n_seen = n_ends = 0;
    for (uint32_t r = 0; r < n; r++)
        w->linked[r] = all_linked ? w->alive & ~(1u << r) : 0;
    explore(w);
    printf("# %u members, %u agreements, %u deaths%s: %llu states, %llu ends\n",
           n, n_epochs, n_crashes, all_linked ? "" : ", no connections",
           (unsigned long long)n_seen, (unsigned long long)n_ends);
    assert_true(n_ends > 0);
    free(seen);
    free(w);
}

static void every_order(void **state)
{
    (void)state;
    explore_all(2, 2, 1, true);
    explore_all(2, 3, 2, false);
    explore_all(3, 1, 1, true);
    explore_all(3, 1, 1, false);
    explore_all(3, 1, 2, true);
}

/* ------------------------------------------------------------- at random -- */

static uint32_t rounds(void)
{
    const char *text = getenv("TT_ROUNDS");
    return text ? (uint32_t)strtoul(text, NULL, 10) : 1;
}

static void link_some(world *w, tt_rng *rng)
{
    for (uint32_t a = 0; a < w->n; a++)
        for (uint32_t b = a + 1; b < w->n; b++)
            if (tt_rng_below(rng, 2)) {
                w->linked[a] |= 1u << b;
                w->linked[b] |= 1u << a;
            }
}

/* Deaths are rare, so that they come at any time. */
static bool step(world *w, tt_rng *rng)
{
    event list[MOST * 4 + 3 * MOST * MOST];
    const uint32_t n = list_events(w, list);
    bool has_other = false;
    for (uint32_t i = 0; i < n; i++)
        has_other |= list[i].kind != DIE;
    while (has_other) {
        const event *e = &list[tt_rng_below(rng, n)];
        if ((e->kind == DIE || e->kind == LOSE) && tt_rng_below(rng, 8))
            continue;
        perform(w, e);
        return true;
    }
    return false;
}

/* Who has no connection to a member that is lost believes who has one. */
static void told_by_others(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        tt_rng rng = {tt_test_seed(1) + i};
        world *w = make(3 + (uint32_t)tt_rng_below(&rng, MOST - 2), 1, 1);
        w->is_blind = true;
        for (uint32_t r = 0; r < w->n; r++)
            w->linked[r] = r == 1 ? w->alive & ~2u : 2;
        perform(w, &(event){DIE, 0, 0});
        while (step(w, &rng))
            continue;
        check_end(w);
        free(w);
    }
}

static void random_deaths(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 6000 * (uint64_t)rounds(); i++) {
        tt_rng rng = {tt_test_seed(1) + i};
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, MOST - 1);
        world *w = make(n, EPOCHS, (uint32_t)tt_rng_below(&rng, n));
        w->mix = i % 2 ? (uint32_t)tt_rng_next(&rng) : 0;
        link_some(w, &rng);
        while (step(w, &rng))
            continue;
        check_end(w);
        free(w);
    }
}

/* Who is not there in time is lost to the others, and hears so. */
static void random_absence(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 3000 * (uint64_t)rounds(); i++) {
        tt_rng rng = {tt_test_seed(1) + i};
        uint32_t n = 3 + (uint32_t)tt_rng_below(&rng, MOST - 2);
        world *w = make(n, EPOCHS, 0);
        link_some(w, &rng);
        while (w->stalled == 0)
            w->stalled = (uint32_t)tt_rng_next(&rng) & (w->alive >> 1);
        while (__builtin_popcount(w->stalled) > (int)(n - 1) / 2)
            w->stalled &= w->stalled - 1;
        bool is_waiting = true;
        for (uint32_t turn = 0; is_waiting; turn++) {
            assert_true(turn < 100 * n);
            while (step(w, &rng))
                continue;
            now = w;
            is_waiting = false;
            for (uint32_t r = 0; r < n; r++) {
                tt_agree *a = member(w, r);
                const uint64_t epoch = a->epoch;
                is_waiting |= a->is_open;
                tt_agree_overdue(a);
                if (a->epoch > epoch)
                    w->decided[r][epoch] = a->last;
            }
        }
        const uint32_t late = w->stalled;
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t k = 0; k < EPOCHS && !(late >> r & 1); k++) {
                assert_true(is_done(w, r) && !member(w, r)->is_out);
                assert_int_equal(w->decided[r][k].lost[0], late);
                assert_int_equal(w->decided[r][k].err, TUTTI_OK);
            }
        w->stalled = 0;
        while (step(w, &rng))
            continue;
        for (uint32_t r = 0; r < n; r++)
            if (late >> r & 1) {
                assert_true(is_done(w, r));
                assert_true(member(w, r)->is_out ||
                            w->decided[r][EPOCHS - 1].err == TUTTI_EPEER);
            }
        free(w);
    }
}

/* Who stops in the middle is left behind by the others, and told later. */
static bool wait_long(world *w, tt_rng *rng)
{
    bool is_waiting = false;
    while (step(w, rng))
        continue;
    now = w;
    for (uint32_t r = 0; r < w->n; r++) {
        tt_agree *a = member(w, r);
        const uint64_t epoch = a->epoch;
        if (w->frozen >> r & 1 || !a->is_open)
            continue;
        is_waiting = true;
        tt_agree_overdue(a);
        if (a->epoch > epoch)
            w->decided[r][epoch] = a->last;
    }
    return is_waiting;
}

static void random_freezes(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 3000 * (uint64_t)rounds(); i++) {
        tt_rng rng = {tt_test_seed(1) + i};
        uint32_t n = 3 + (uint32_t)tt_rng_below(&rng, MOST - 2);
        world *w = make(n, EPOCHS, 0);
        link_some(w, &rng);
        for (uint64_t k = tt_rng_below(&rng, 8 * n); k > 0; k--)
            step(w, &rng);
        w->frozen = tt_rng_below(&rng, 2) ? 1 : 1u << tt_rng_below(&rng, n);
        for (uint32_t turn = 0; wait_long(w, &rng); turn++)
            assert_true(turn < 100);
        const uint32_t frozen = w->frozen;
        uint32_t first = frozen & 1 ? 1 : 0;
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t k = 0; k < EPOCHS && !(frozen >> r & 1); k++) {
                assert_true(is_done(w, r) && !member(w, r)->is_out);
                assert_true((w->decided[r][k].lost[0] & ~frozen) == 0);
                assert_int_equal(w->decided[r][k].lost[0],
                                 w->decided[first][k].lost[0]);
            }
        w->frozen = 0;
        while (step(w, &rng))
            continue;
        for (uint32_t r = 0; r < n; r++)
            assert_true(is_done(w, r));
        free(w);
    }
}

/* Connections break between members that live: everybody ends, and of those
 * who go on there is one set that all in it have agreed to. */
static void cut_one(world *w, tt_rng *rng)
{
    uint32_t a = (uint32_t)tt_rng_below(rng, w->n);
    uint32_t b = (uint32_t)tt_rng_below(rng, w->n);
    if (a == b)
        return;
    w->cut[a] |= 1u << b;
    w->cut[b] |= 1u << a;
    memset(queue_of(w, a, b), 0, sizeof(queue));
    memset(queue_of(w, b, a), 0, sizeof(queue));
}

static void cut_in_two(world *w, tt_rng *rng)
{
    const uint32_t side = (uint32_t)tt_rng_next(rng) & w->alive;
    for (uint32_t a = 0; a < w->n; a++)
        for (uint32_t b = 0; b < w->n; b++)
            if ((side >> a & 1) != (side >> b & 1)) {
                w->cut[a] |= 1u << b;
                memset(queue_of(w, a, b), 0, sizeof(queue));
            }
}

/* Returns how many sets of members go on. */
static uint32_t check_sets(world *w, uint64_t epoch)
{
    uint32_t n_sets = 0;
    uint64_t sets[MOST];
    for (uint32_t r = 0; r < w->n; r++) {
        const tt_opinion *v = &w->decided[r][epoch];
        bool is_whole = member(w, r)->epoch > epoch && v->err == TUTTI_OK;
        for (uint32_t q = 0; q < w->n && is_whole; q++)
            if (!(v->lost[0] >> q & 1))
                is_whole = member(w, q)->epoch > epoch &&
                           w->decided[q][epoch].err == TUTTI_OK &&
                           w->decided[q][epoch].lost[0] == v->lost[0];
        for (uint32_t i = 0; i < n_sets && is_whole; i++)
            is_whole = sets[i] != v->lost[0];
        if (is_whole)
            sets[n_sets++] = v->lost[0];
    }
    return n_sets;
}

static void random_cuts(void **state)
{
    (void)state;
    uint32_t n_going = 0;
    for (uint64_t i = 0; i < 4000 * (uint64_t)rounds(); i++) {
        tt_rng rng = {tt_test_seed(1) + i};
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, MOST - 1);
        world *w = make(n, EPOCHS, 0);
        link_some(w, &rng);
        uint32_t n_cuts = 1 + (uint32_t)tt_rng_below(&rng, 3);
        bool is_moving = true;
        while (is_moving || n_cuts > 0) {
            is_moving = step(w, &rng);
            if (n_cuts == 0 || (is_moving && tt_rng_below(&rng, 3 * n)))
                continue;
            n_cuts--;
            if (tt_rng_below(&rng, 2))
                cut_one(w, &rng);
            else
                cut_in_two(w, &rng);
        }
        for (uint32_t r = 0; r < n; r++)
            assert_true(is_done(w, r));
        for (uint64_t k = 0; k < EPOCHS; k++)
            assert_true(check_sets(w, k) <= 1);
        n_going += check_sets(w, EPOCHS - 1);
        free(w);
    }
    assert_true(n_going > 0);
}

/* Without losses: of each member at most two reports, to it a question and the
 * decision, once more if it has reported twice. */
static void counts_messages(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MOST; n++) {
        world *w = make(n, 1, 0);
        tt_rng rng = {n};
        while (step(w, &rng))
            continue;
        check_end(w);
        assert_in_range(w->n_sent, 3 * (n - 1), 5 * (n - 1));
        free(w);
    }
}

/* Their set does not fit a message. */
static void too_many(void **state)
{
    (void)state;
    tt_agree *most = tt_agree_create(&tt_mem_std, &ops, NULL, TT_VOTERS_MAX, 0);
    assert_non_null(most);
    tt_agree_free(&tt_mem_std, most);
    assert_null(tt_agree_create(&tt_mem_std, &ops, NULL, TT_VOTERS_MAX + 1, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order),     cmocka_unit_test(told_by_others),
        cmocka_unit_test(random_freezes),  cmocka_unit_test(random_deaths),
        cmocka_unit_test(random_absence),  cmocka_unit_test(random_cuts),
        cmocka_unit_test(counts_messages), cmocka_unit_test(too_many),
    };
    tt_test_limit(600);
    return TT_RUN_TAP(tests);
}
