/* SPDX-License-Identifier: BSD-3-Clause
 * word_test.c - words between rank 0 and all others: everybody hears them, in
 * order, until a member leaves; and who waits for them is not left alone. */
#include "support/tap.h"

#include <string.h>
#include <unistd.h>

#include "engine/state.h"
#include "support/loop.h"
#include "support/rig.h"
#include "support/seed.h"

enum { MOST = 23, WORDS = 20 };

typedef struct said {
    uint32_t from, number;
    char more[TT_WORD_MAX - 8];
} said;

typedef struct rank {
    uint32_t me;
    uint32_t heard[MOST]; /* words of each rank */
    uint32_t n_over;
    bool doubts;
} rank;

static rank ranks[MOST];
static tt_rig rig;

static bool hear(void *arg, uint32_t from, const void *bytes, uint32_t len)
{
    said s;
    rank *r = arg;
    assert_int_equal(len, sizeof(s));
    memcpy(&s, bytes, sizeof(s));
    assert_int_equal(s.from, from);
    assert_int_equal(s.number, r->heard[from]);
    assert_true(r->me == 0 ? from > 0 : from == 0);
    assert_int_equal(s.more[sizeof(s.more) - 1], (char)(from + s.number));
    assert_int_equal(r->n_over, 0);
    r->heard[from]++;
    return !r->doubts;
}

static void over(void *arg)
{
    rank *r = arg;
    r->n_over++;
}

static const tt_listener listener = {hear, over};

static void step_all(tt_rng *rng)
{
    for (int i = 0; i < 40; i++)
        for (uint32_t k = 0; k < rig.n; k++) {
            tt_engine *e = rig.engines[tt_rng_below(rng, rig.n)];
            tt_engine_lock(e);
            tt_engine_step(e);
            tt_engine_unlock(e);
        }
    for (int i = 0; i < 12; i++)
        for (uint32_t k = 0; k < rig.n; k++) {
            tt_engine_lock(rig.engines[k]);
            tt_engine_step(rig.engines[k]);
            tt_engine_unlock(rig.engines[k]);
        }
}

static void say(uint32_t from, uint32_t number)
{
    said s = {from, number, ""};
    memset(s.more, (char)(from + number), sizeof(s.more));
    tt_engine_lock(rig.engines[from]);
    tt_team_say(rig.teams[0][from], &s, sizeof(s));
    tt_engine_unlock(rig.engines[from]);
}

static void open_rig(uint32_t n)
{
    const tt_rig_opts opts = {
        .n = n, .ops = &tt_net_loop, .mem = &tt_mem_std, .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, &rig), TUTTI_OK);
    memset(ranks, 0, sizeof(ranks));
    for (uint32_t r = 0; r < n; r++) {
        ranks[r].me = r;
        tt_team_listen(rig.teams[0][r], &listener, &ranks[r]);
    }
}

static const char *sentence(uint32_t r)
{
    const char *text;
    tt_engine_lock(rig.engines[r]);
    tt_team_state(rig.teams[0][r], &text);
    tt_engine_unlock(rig.engines[r]);
    return text;
}

static tutti_err state_of(uint32_t r)
{
    const char *text;
    tt_engine_lock(rig.engines[r]);
    tutti_err err = tt_team_state(rig.teams[0][r], &text);
    tt_engine_unlock(rig.engines[r]);
    return err;
}

/* All say something, in any order. */
static void all_hear(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST; n++) {
        tt_rng rng = {tt_test_seed(1) + n};
        uint32_t next[MOST] = {0};
        open_rig(n);
        for (uint32_t left = n * WORDS; left > 0;) {
            uint32_t r = (uint32_t)tt_rng_below(&rng, n);
            if (next[r] == WORDS)
                continue;
            say(r, next[r]++);
            left--;
            tt_engine *e = rig.engines[tt_rng_below(&rng, n)];
            tt_engine_lock(e);
            tt_engine_step(e);
            tt_engine_unlock(e);
        }
        step_all(&rng);
        for (uint32_t r = 1; r < n; r++) {
            assert_int_equal(ranks[r].heard[0], WORDS);
            assert_int_equal(ranks[0].heard[r], WORDS);
        }
        tt_rig_destroy(&rig);
    }
}

/* Leaves; another team takes its place in the rig. */
static void leave(uint32_t r)
{
    uint32_t members[MOST];
    tt_engine_lock(rig.engines[r]);
    tt_team_leave(rig.teams[0][r]);
    tt_engine_unlock(rig.engines[r]);
    for (uint32_t i = 0; i < rig.n; i++)
        members[i] = i;
    assert_int_equal(
        tt_team_create(rig.meshes[r], 0x999, members, rig.n, &rig.teams[0][r]),
        TUTTI_OK);
}

/* Whoever leaves, all others hear of it, behind what was said before. */
static void over_for_all(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 12; n++)
        for (uint32_t gone = 0; gone < n; gone++) {
            tt_rng rng = {tt_test_seed(1) + n};
            open_rig(n);
            for (uint32_t r = 0; r < n; r++) {
                say(r, 0);
                tt_engine_lock(rig.engines[r]);
                tt_team_await(rig.teams[0][r], 100 * TT_NS_PER_S);
                assert_int_equal(rig.engines[r]->n_active, 1);
                tt_engine_unlock(rig.engines[r]);
            }
            step_all(&rng);
            leave(gone);
            step_all(&rng);
            for (uint32_t r = 0; r < n; r++) {
                assert_int_equal(rig.engines[r]->n_active, 0);
                assert_int_equal(state_of(r), TUTTI_OK);
                if (r == gone)
                    continue;
                assert_int_equal(ranks[r].n_over, 1);
                assert_int_equal(ranks[r].heard[0], r > 0);
                say(r, 1); /* to nobody */
                tt_engine_lock(rig.engines[r]);
                tt_team_await(rig.teams[0][r], TT_NS_PER_S); /* for nothing */
                assert_int_equal(rig.engines[r]->n_active, 0);
                tt_engine_unlock(rig.engines[r]);
            }
            step_all(&rng);
            tt_rig_destroy(&rig);
        }
}

/* Who waits for too long fails the team, on all ranks. */
static void waits_end(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(1)};
    open_rig(4);
    tt_engine_lock(rig.engines[3]);
    tt_team_await(rig.teams[0][3], TT_NS_PER_MS);
    tt_team_await(rig.teams[0][3], TT_NS_PER_MS); /* once more is as good */
    assert_int_equal(rig.engines[3]->n_active, 1);
    tt_engine_unlock(rig.engines[3]);
    usleep(2000);
    step_all(&rng);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(state_of(r), TUTTI_ETIMEOUT);
        assert_int_equal(rig.engines[r]->n_active, 0);
    }
    tt_engine_lock(rig.engines[3]); /* it waits no more */
    tt_team_await(rig.teams[0][3], TT_NS_PER_S);
    assert_int_equal(rig.engines[3]->n_active, 0);
    tt_engine_unlock(rig.engines[3]);
    tt_rig_destroy(&rig);
}

/* A message that a rank cannot have sent; and a word that nobody
 * understands. */
static void nonsense(void **state)
{
    (void)state;
    static const struct {
        uint32_t from, to, lane, slice, len, n;
    } wrong[] = {
        {3, 2, 1, 0, 8, 4}, /* rank 1 is not behind rank 3 */
        {3, 2, 4, 0, 8, 4}, /* nor is rank 4, or there at all */
        {1, 0, 2, 0, 8, 4}, {1, 0, 1, 1, 8, 4}, /* down, from below */
        {1, 0, 0, 1, 8, 4}, {2, 0, 3, 0, 8, 3}, /* of three */
        {2, 3, 2, 1, 8, 4},                     /* from rank 0, it says */
        {2, 3, 3, 0, 8, 4},                     /* up, from above */
        {1, 0, 1, 2, 8, 4}, {1, 0, 1, 3, 8, 4}, {1, 3, 1, 0, 8, 4},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        tt_rng rng = {tt_test_seed(1)};
        open_rig(wrong[i].n);
        tt_team *team = rig.teams[0][wrong[i].from];
        tt_msg m = tt_team_msg(team, TT_KIND_WORD, 0, 0);
        m.lane = wrong[i].lane;
        m.slice = wrong[i].slice;
        m.len = wrong[i].len;
        tt_engine_lock(rig.engines[wrong[i].from]);
        tt_peer_tell(tt_team_peer(team, wrong[i].to), &m, "12345678");
        tt_engine_unlock(rig.engines[wrong[i].from]);
        step_all(&rng);
        for (uint32_t r = 0; r < wrong[i].n; r++)
            assert_int_equal(state_of(r), TUTTI_EPROTO);
        tt_rig_destroy(&rig);
    }
}

/* Who tells it on is not to blame. */
static void words_that_nobody_understands(void **state)
{
    (void)state;
    static const struct {
        uint32_t from, doubts, by;
        const char *text;
    } cases[] = {
        {0, 3, 3,
         "rank 0 said something that makes no sense (told on by rank "
         "2)"},
        {3, 0, 0,
         "rank 3 said something that makes no sense (told on by rank "
         "2)"},
        {2, 0, 0, "rank 2 said something that makes no sense"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_rng rng = {tt_test_seed(1)};
        open_rig(4);
        ranks[cases[i].doubts].doubts = true;
        say(cases[i].from, 0);
        step_all(&rng);
        for (uint32_t r = 0; r < 4; r++) {
            assert_int_equal(state_of(r), TUTTI_EPROTO);
            assert_int_equal(rig.teams[0][r]->culprit, cases[i].from);
        }
        assert_string_equal(sentence(cases[i].by), cases[i].text);
        tt_rig_destroy(&rig);
    }
}

static void step(uint32_t r)
{
    tt_engine_lock(rig.engines[r]);
    tt_engine_step(rig.engines[r]);
    tt_engine_unlock(rig.engines[r]);
}

/* While rank 0 takes nothing rank 2 keeps what rank 3 says, but not without
 * end. Its own words do not count. */
static void no_end_of_words(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(1)};
    uint32_t n = 0;
    open_rig(4);
    for (uint32_t i = 0; i < 1000; i++)
        say(2, i);
    while (state_of(2) == TUTTI_OK) {
        say(3, n++);
        step(3);
        step(2);
    }
    assert_in_range(n, 4096, 5000);
    step_all(&rng);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(state_of(r), TUTTI_EPROTO);
        assert_int_equal(rig.teams[0][r]->culprit, 3);
    }
    assert_string_equal(sentence(0), "rank 3 says more words than are heard");
    tt_rig_destroy(&rig);
}

/* ------------------------------------------------------- who waits for
 * words */

static tutti_err dial_nobody(tt_conn *conn, const void *addr, size_t len,
                             uint64_t deadline_ns, tutti_diag *diag)
{
    (void)conn;
    (void)addr;
    (void)len;
    (void)deadline_ns;
    (void)diag;
    return TUTTI_OK; /* but it is never up */
}

/* The one by which words come is silent, and has left, as others say: that is
 * no failure, whatever was waited for. */
static void over_while_they_are_awaited(void **state)
{
    (void)state;
    static tt_net_ops ops;
    ops = tt_net_loop;
    ops.dial = dial_nobody;
    const tt_rig_opts opts = {.n = 2,
                              .ops = &ops,
                              .mem = &tt_mem_std,
                              .liveness_ns = 80 * TT_NS_PER_MS};
    assert_int_equal(tt_rig_create(&opts, &rig), TUTTI_OK);
    memset(ranks, 0, sizeof(ranks));
    tt_team *team = rig.teams[0][1];
    tt_team_listen(team, &listener, &ranks[1]);
    tt_engine *e = rig.engines[1];
    tt_engine_lock(e);
    tt_team_note_gone(team, 0, NULL);
    tt_team_await(team, 100 * TT_NS_PER_S);
    uint64_t now_ns = tt_now_ns();
    for (int i = 0; i < 50; i++)
        tt_engine_tick(e, now_ns += 10 * TT_NS_PER_MS);
    assert_true(rig.meshes[1]->peers[0].is_lost);
    assert_int_equal(ranks[1].n_over, 1);
    assert_int_equal(team->err, TUTTI_OK);
    tt_engine_unlock(e);
    tt_rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_hear),
        cmocka_unit_test(over_for_all),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(nonsense),
        cmocka_unit_test(words_that_nobody_understands),
        cmocka_unit_test(no_end_of_words),
        cmocka_unit_test(over_while_they_are_awaited),
    };
    return TT_RUN_TAP(tests);
}
