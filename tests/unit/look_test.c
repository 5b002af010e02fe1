/* SPDX-License-Identifier: BSD-3-Clause
 * look_test.c - ranks are asked what they are at: who has left need not answer,
 * who answers nonsense has not answered, and who asks too much is not heard. */
#include "support/tap.h"

#include <string.h>

#include "engine/state.h"
#include "support/loop.h"
#include "support/rig.h"

enum { N = 6, ROUNDS = 60, FLOOD = 1000 };

static uint32_t n_looks, n_seens; /* messages */

static tt_sent send_counted(tt_conn *conn, const tt_msg *m,
                            const struct iovec *iov, int n_iov)
{
    tt_sent sent = tt_net_loop.send(conn, m, iov, n_iov);
    n_looks += m->kind == TT_KIND_LOOK && sent != TT_FULL;
    n_seens += m->kind == TT_KIND_SEEN && sent != TT_FULL;
    return sent;
}

static void open_rig(tt_rig *rig, bool is_linked)
{
    static tt_net_ops ops;
    ops = tt_net_loop;
    ops.send = send_counted;
    n_looks = n_seens = 0;
    const tt_rig_opts opts = {
        .n = N, .ops = &ops, .mem = &tt_mem_std, .is_linked = is_linked};
    assert_int_equal(tt_rig_create(&opts, rig), TUTTI_OK);
}

static void look(tt_rig *rig)
{
    tt_engine_lock(rig->engines[0]);
    assert_int_equal(tt_team_look(rig->teams[0][0]), TUTTI_OK);
    tt_engine_unlock(rig->engines[0]);
}

static tt_status_is seen(const tt_rig *rig, uint32_t rank)
{
    tt_status s;
    tt_team_seen(rig->teams[0][0], rank, &s);
    return s.is;
}

static tutti_err state_of(const tt_rig *rig, uint32_t r)
{
    const char *text;
    return tt_team_state(rig->teams[0][r], &text);
}

static void all_answer(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig, true);
    for (int i = 0; i < 5; i++) { /* some may come at once */
        look(&rig);
        assert_false(tt_team_has_seen_all(rig.teams[0][0]));
        tt_rig_step(&rig, ROUNDS);
        assert_true(tt_team_has_seen_all(rig.teams[0][0]));
    }
    for (uint32_t r = 0; r < N; r++)
        assert_int_equal(seen(&rig, r), TT_STATUS_IDLE);
    tt_rig_destroy(&rig);
}

/* It may be known by hearsay only. */
static void who_has_left_is_not_asked(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig, true);
    tt_rig_step(&rig, ROUNDS);
    tt_engine_lock(rig.engines[3]);
    tt_team_leave(rig.teams[0][3]);
    rig.teams[0][3] = NULL;
    tt_engine_unlock(rig.engines[3]);
    tt_rig_step(&rig, ROUNDS);
    assert_false(tt_team_has_left(rig.teams[0][0], &rig.meshes[0]->peers[3]));
    look(&rig);
    tt_rig_step(&rig, ROUNDS);
    assert_true(tt_team_has_seen_all(rig.teams[0][0]));
    assert_int_equal(seen(&rig, 3), TT_STATUS_LEFT);
    assert_int_equal(seen(&rig, 2), TT_STATUS_IDLE);
    tt_rig_destroy(&rig);
}

/* Nor is anything else of all told to a neighbour without a connection that has
 * left, as others say. */
static void who_has_left_is_not_dialled(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig, false);
    tt_engine_lock(rig.engines[0]);
    tt_team_note_gone(rig.teams[0][0], 1, NULL);
    tt_engine_unlock(rig.engines[0]);
    look(&rig);
    assert_false(tt_peer_is_linked(&rig.meshes[0]->peers[1]));
    assert_int_equal(rig.meshes[0]->peers[1].n_ctl, 0);
    assert_true(tt_peer_is_linked(&rig.meshes[0]->peers[2]));
    tt_rig_destroy(&rig);
}

/* For one that takes nothing. */
static void few_wait(void **state)
{
    (void)state;
    static const tt_kind kinds[] = {TT_KIND_LOOK, TT_KIND_SEEN};
    tt_rig rig;
    open_rig(&rig, false);
    tt_engine_lock(rig.engines[0]);
    for (int k = 0; k < 2; k++) {
        tt_peer *peer = &rig.meshes[0]->peers[1 + k];
        tt_msg m = tt_team_msg(rig.teams[0][0], kinds[k], 0, 0);
        for (m.slice = 1; m.slice < 3000; m.slice++)
            tt_peer_tell(peer, &m, NULL);
        assert_in_range(peer->n_ctl, 1000, 2048);
        peer->n_ctl = 0;
    }
    tt_engine_unlock(rig.engines[0]);
    tt_rig_destroy(&rig);
}

/* One asks ever again. */
static void who_asks_too_much_is_not_heard(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig, true);
    tt_rig_step(&rig, ROUNDS);
    tt_team *team = rig.teams[0][4];
    for (uint32_t i = 1; i <= FLOOD; i++) {
        tt_msg m = tt_team_msg(team, TT_KIND_LOOK, 0, 0);
        m.lane = 4;
        m.slice = i;
        tt_engine_lock(rig.engines[4]);
        tt_peer_tell(&rig.meshes[4]->peers[3], &m, NULL);
        tt_engine_unlock(rig.engines[4]);
        if (i % 20 == 0)
            tt_rig_step(&rig, ROUNDS);
    }
    /* A slow machine takes more than 50 ms for that. */
    assert_in_range(n_looks - FLOOD, 1, FLOOD * N);
    assert_in_range(n_seens, 1, FLOOD * 4);
    for (uint32_t r = 0; r < N; r++)
        assert_int_equal(state_of(&rig, r), TUTTI_OK);
    look(&rig); /* another one is answered */
    tt_rig_step(&rig, ROUNDS);
    assert_true(tt_team_has_seen_all(rig.teams[0][0]));
    tt_rig_destroy(&rig);
}

static void answer(tt_rig *rig, uint32_t lane, const tt_status *s)
{
    tt_msg m = tt_team_msg(rig->teams[0][1], TT_KIND_SEEN, 0, 0);
    m.lane = lane;
    m.fingerprint = 0;
    m.len = sizeof(*s);
    tt_engine_lock(rig->engines[1]);
    tt_peer_tell(&rig->meshes[1]->peers[0], &m, s);
    tt_engine_unlock(rig->engines[1]);
    tt_rig_step(rig, ROUNDS);
}

/* Rank 1 may have been told that by another. */
static void nonsense_is_no_answer(void **state)
{
    (void)state;
    tt_rig rig;
    tt_status good, bad[7];
    open_rig(&rig, true);
    tt_rig_step(&rig, ROUNDS);
    tt_team_look_here(rig.teams[0][3], &good);
    for (int i = 0; i < 7; i++)
        bad[i] = good;
    bad[0].version++;
    bad[1].rank = 2;
    bad[2].is = TT_STATUS_LEFT;
    bad[3].is = TT_STATUS_FAILED + 1;
    bad[4].waits = TT_WAITS_TO_TAKE + 1;
    memset(bad[5].host, 'x', sizeof(bad[5].host));
    memset(bad[6].transports, 'x', sizeof(bad[6].transports));
    look(&rig); /* nobody has heard it yet */
    for (int i = 0; i < 7; i++) {
        memset(rig.teams[0][0]->seen, 0, N * sizeof(tt_status));
        answer(&rig, 3, &bad[i]);
        if (i > 0) /* the true answer comes in the first run */
            assert_int_equal(rig.teams[0][0]->seen[3].version, 0);
        assert_int_equal(state_of(&rig, 0), TUTTI_OK);
    }
    answer(&rig, 3, &good);
    assert_int_equal(seen(&rig, 3), TT_STATUS_IDLE);
    answer(&rig, N, &good); /* this can be nobody but rank 1 */
    assert_int_equal(state_of(&rig, 0), TUTTI_EPROTO);
    assert_int_equal(rig.teams[0][0]->culprit, 1);
    tt_rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_answer),
        cmocka_unit_test(who_has_left_is_not_asked),
        cmocka_unit_test(who_has_left_is_not_dialled),
        cmocka_unit_test(few_wait),
        cmocka_unit_test(who_asks_too_much_is_not_heard),
        cmocka_unit_test(nonsense_is_no_answer),
    };
    return TT_RUN_TAP(tests);
}
