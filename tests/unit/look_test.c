/* SPDX-License-Identifier: BSD-3-Clause
 * look_test.c - ranks are asked what they are at: who has left need not answer,
 * who answers nonsense has not answered, and who asks too much, or in another's
 * name, does no harm. */
#include "support/tap.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/state.h"
#include "support/loop.h"
#include "support/rig.h"
#include "support/sums.h"

enum { N = 6, ROUNDS = 60, FLOOD = 1000 };

static uint32_t n_looks, n_seens, n_heres; /* messages */
static bool holds_first;                   /* there is no room for a FIRST */
static uint32_t first_us;                  /* the age that the last one told */
static uint64_t later_ns;                  /* than it is */

/* Stands in front of the C library's. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                         struct timespec *out)
{
    const long err = syscall(SYS_clock_gettime, clock, out);
    out->tv_sec += (time_t)(later_ns / TT_NS_PER_S);
    return (int)err;
}

static tt_sent send_counted(tt_conn *conn, const tt_msg *m,
                            const struct iovec *iov, int n_iov)
{
    if (m->kind == TT_KIND_FIRST && holds_first)
        return TT_FULL;
    if (m->kind == TT_KIND_FIRST)
        first_us = m->slice;
    tt_sent sent = tt_net_loop.send(conn, m, iov, n_iov);
    n_looks += m->kind == TT_KIND_LOOK && sent != TT_FULL;
    n_seens += m->kind == TT_KIND_SEEN && sent != TT_FULL;
    n_heres += m->kind == TT_KIND_HERE && sent != TT_FULL;
    return sent;
}

static const tt_net_ops *counted(void)
{
    static tt_net_ops ops;
    ops = tt_net_loop;
    ops.send = send_counted;
    n_looks = n_seens = n_heres = 0;
    return &ops;
}

static void open_rig(tt_rig *rig, bool is_linked)
{
    const tt_rig_opts opts = {
        .n = N, .ops = counted(), .mem = &tt_mem_std, .is_linked = is_linked};
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

/* Rank 4 asks in the name of rank 0, which nobody has asked before, and tells
 * only rank 3. The others tell it on, to rank 4 as well. So for rank 3 the way
 * to rank
 * 0 leads to rank 4, and from there back to rank 3. */
static void forge(tt_rig *rig, tt_kind kind, uint32_t number)
{
    tt_msg m = tt_team_msg(rig->teams[0][4], kind, 0, 0);
    m.lane = 0;
    m.slice = number;
    tt_engine_lock(rig->engines[4]);
    tt_peer_tell(&rig->meshes[4]->peers[3], &m, NULL);
    tt_engine_unlock(rig->engines[4]);
}

static void another_name_makes_no_circle(void **state)
{
    (void)state;
    static const tt_kind kinds[] = {TT_KIND_LOOK, TT_KIND_WHO};
    static uint32_t *const answers[] = {&n_seens, &n_heres};
    for (int k = 0; k < 2; k++) {
        tt_rig rig;
        open_rig(&rig, true);
        tt_rig_step(&rig, ROUNDS);
        forge(&rig, kinds[k], 1);
        tt_rig_step(&rig, 10 * ROUNDS);
        const uint32_t n = *answers[k];
        assert_in_range(n, 1, 100 * N);
        tt_rig_step(&rig, 10 * ROUNDS);
        assert_int_equal(*answers[k], n);
        for (uint32_t r = 0; r < N; r++)
            assert_int_equal(state_of(&rig, r), TUTTI_OK);
        /* Its own next questions are answered. */
        rig.teams[0][0]->n_asks = 1;
        look(&rig);
        tt_rig_step(&rig, ROUNDS);
        assert_true(tt_team_has_seen_all(rig.teams[0][0]));
        tt_rig_destroy(&rig);
    }
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

/* ------------------------------------------------------------- calls -- */

static void note(void *arg, tutti_err err)
{
    *(tutti_err *)arg = err;
}

enum { COUNT = 1000, PENDING = 1 };

/* Of one team; its outcome comes later. */
static void begin(tt_rig *rig, int team, uint32_t r, tt_program *program,
                  uint32_t *data, tutti_err *outcome)
{
    *outcome = (tutti_err)PENDING;
    tt_engine_lock(rig->engines[r]);
    assert_int_equal(
        tt_sum_begin(rig->teams[team][r], program, data, 0, note, outcome),
        TUTTI_OK);
    tt_engine_unlock(rig->engines[r]);
}

static tt_status here(const tt_rig *rig, uint32_t r)
{
    tt_status s;
    tt_engine_lock(rig->engines[r]);
    tt_team_look_here(rig->teams[0][r], &s);
    tt_engine_unlock(rig->engines[r]);
    return s;
}

/* What a rank tells of its calls: before the first, of one that waits for a
 * rank to come, when that has come but sends nothing, and when all is over. */
static void calls_are_told(void **state)
{
    (void)state;
    tt_rig rig;
    tt_program *programs[N];
    static uint32_t data[2][N][COUNT];
    tutti_err outcomes[2][N];
    open_rig(&rig, true);
    tt_rig_step(&rig, ROUNDS);
    for (uint32_t r = 0; r < N; r++)
        programs[r] = tt_sum_program(&tt_mem_std, N, r, COUNT);
    tt_status s = here(&rig, 0);
    assert_int_equal(s.is, TT_STATUS_IDLE);
    assert_int_equal(s.version, TT_STATUS_VERSION);
    assert_int_equal(s.seq + s.n_open + s.n_calls + s.rate + s.late_ns, 0);
    assert_int_equal(s.waits_for, TT_NONE);
    assert_int_equal(s.late_rank, TT_NONE);
    assert_int_equal(s.pid, getpid());
    assert_int_equal(s.n_conns, 4); /* neighbours of the control graph */
    assert_int_equal(s.n_away + s.n_silent, 0);
    assert_string_equal(s.transports, "loop");
    for (uint32_t r = 0; r < N - 1; r++) /* all but the last one */
        begin(&rig, 0, r, programs[r], data[0][r], &outcomes[0][r]);
    begin(&rig, 1, 0, programs[0], data[1][0], &outcomes[1][0]);
    tt_rig_step(&rig, ROUNDS);
    s = here(&rig, 0);
    assert_int_equal(s.is, TT_STATUS_CALLS);
    assert_int_equal(s.coll, TUTTI_ALL_REDUCE);
    assert_int_equal(s.type, TUTTI_U32);
    assert_int_equal(s.op, TUTTI_SUM);
    assert_int_equal(s.count, COUNT);
    assert_int_equal(s.seq, 1);
    assert_int_equal(s.n_open, 2);
    assert_int_equal(s.n_calls, 2);
    assert_int_equal(s.is_message, 0);
    assert_int_equal(s.waits_for, N - 1);
    assert_int_equal(s.waits, TT_WAITS_TO_COME);
    assert_true(s.n_steps > 0 && s.step <= s.n_steps);
    assert_true(s.moved_bytes > 0 && s.age_ns > 0);
    /* The oldest call counts, whichever team's it is. */
    begin(&rig, 0, N - 1, programs[N - 1], data[0][N - 1], &outcomes[0][N - 1]);
    tt_rig_step(&rig, ROUNDS);
    assert_int_equal(outcomes[0][0], TUTTI_OK);
    s = here(&rig, 0);
    assert_int_equal(s.is, TT_STATUS_CALLS);
    assert_int_equal(s.n_open, 1);
    assert_int_equal(s.waits, TT_WAITS_TO_COME);
    for (uint32_t r = 1; r < N; r++)
        begin(&rig, 1, r, programs[r], data[1][r], &outcomes[1][r]);
    tt_rig_step(&rig, ROUNDS);
    s = here(&rig, 0);
    assert_int_equal(outcomes[1][0], TUTTI_OK);
    assert_int_equal(s.is, TT_STATUS_IDLE);
    assert_int_equal(s.n_open, 0);
    assert_int_equal(s.n_calls, 2);
    assert_int_equal(s.seq, 1);
    assert_int_equal(s.count, COUNT);
    assert_int_equal(s.step + s.n_steps + s.moved_bytes, 0);
    assert_true(s.rate > 0);
    const uint64_t age_ns = s.age_ns;
    s = here(&rig, 0);
    assert_true(s.age_ns >= age_ns);
    /* The last call is that of either team which was begun last. */
    for (int i = 0; i < 3; i++) {
        const int team = i == 0;
        for (uint32_t r = 0; r < N; r++)
            begin(&rig, team, r, programs[r], data[team][r],
                  &outcomes[team][r]);
        tt_rig_step(&rig, ROUNDS);
        assert_int_equal(outcomes[team][0], TUTTI_OK);
        assert_int_equal(here(&rig, 0).seq, i == 2 ? 3 : 2);
    }
    /* The latest one is told. */
    rig.teams[0][1]->lateness[3] = 5e6;
    rig.teams[0][1]->lateness[4] = 6e6;
    rig.teams[0][1]->lateness[5] = 4e6;
    s = here(&rig, 1);
    assert_int_equal(s.late_rank, 4);
    assert_int_equal(s.late_ns, 6000000);
    for (uint32_t r = 0; r < N; r++)
        tt_program_unref(programs[r]);
    tt_rig_destroy(&rig);
}

/* A FIRST that found no room tells how long ago its rank entered the call, so
 * that it does not count as late; not where that is not known, and one that
 * goes at once is no older. */
static void a_first_tells_its_age(void **state)
{
    (void)state;
    const uint32_t second_us = 1000000, few = 8;
    const tt_rig_opts opts = {.n = N,
                              .ops = counted(),
                              .mem = &tt_mem_std,
                              .eager_bytes = 4096,
                              .is_linked = true};
    for (int how = 0; how < 3; how++) {
        tt_rig rig;
        static uint32_t data[8];
        tutti_err outcome;
        assert_int_equal(tt_rig_create(&opts, &rig), TUTTI_OK);
        tt_rig_step(&rig, ROUNDS);
        tt_program *program = tt_sum_program(&tt_mem_std, N, 0, few);
        first_us = UINT32_MAX;
        holds_first = how > 0;
        begin(&rig, 0, 0, program, data, &outcome);
        if (how == 2) { /* its time is about one of the last */
            rig.engines[0]->undated = rig.teams[0][0]->ops;
            rig.engines[0]->undated->is_undated = true;
        }
        later_ns = how > 0 ? 7 * TT_NS_PER_S : 0;
        holds_first = false;
        tt_rig_step(&rig, ROUNDS);
        if (how == 1)
            assert_in_range(first_us, 7 * second_us, 600 * second_us);
        else
            assert_in_range(first_us, 0, second_us);
        later_ns = 0;
        tt_program_unref(program);
        tt_rig_destroy(&rig);
    }
}

/* The last calls, as they are written when a communicator fails. */
static void calls_are_printed(void **state)
{
    (void)state;
    tt_rig rig;
    tt_program *programs[N];
    static uint32_t data[N][COUNT];
    tutti_err outcomes[N];
    tt_str out = {.mem = &tt_mem_std};
    double seconds;
    open_rig(&rig, true);
    tt_rig_step(&rig, ROUNDS);
    for (uint32_t r = 0; r < N; r++)
        programs[r] = tt_sum_program(&tt_mem_std, N, r, COUNT);
    for (int i = 0; i < 2; i++) {
        for (uint32_t r = 0; r < N; r++)
            begin(&rig, 0, r, programs[r], data[r], &outcomes[r]);
        tt_rig_step(&rig, ROUNDS);
    }
    begin(&rig, 0, 0, programs[0], data[0], &outcomes[0]);
    const tt_team *team = rig.teams[0][0];
    assert_int_equal(tt_team_calls(team, &seconds), 3);
    assert_true(seconds >= 0 && seconds < 600);
    tt_engine_lock(rig.engines[0]);
    tt_team_print_calls(team, 2, &out);
    tt_engine_unlock(rig.engines[0]);
    tt_str_add(&out, "", 1);
    assert_int_equal(out.err, TUTTI_OK);
    assert_null(strstr(out.data, "call 1:"));
    assert_non_null(strstr(out.data, "call 2: all-reduce of 1000 u32 sum, "
                                     "begun "));
    assert_non_null(strstr(out.data, " s ago, took "));
    assert_non_null(strstr(out.data, "\ncall 3: all-reduce of 1000 u32 sum"));
    assert_non_null(strstr(out.data, " s ago, open for "));
    tt_str_free(&out);
    tt_engine_lock(rig.engines[0]);
    tt_team_fail(rig.teams[0][0], TUTTI_EABORTED, TT_NONE, "enough");
    tt_team_print_calls(team, 9, &out);
    tt_engine_unlock(rig.engines[0]);
    tt_str_add(&out, "", 1);
    assert_int_equal(out.err, TUTTI_OK);
    assert_non_null(strstr(out.data, "call 1: "));
    assert_non_null(strstr(out.data, " s ago, failed after "));
    tt_str_free(&out);
    const tt_status s = here(&rig, 0);
    assert_int_equal(s.is, TT_STATUS_FAILED);
    tt_rig_step(&rig, ROUNDS); /* all hear of it */
    for (uint32_t r = 0; r < N; r++)
        tt_program_unref(programs[r]);
    tt_rig_destroy(&rig);
}

/* The others, as far as they are known without an answer. */
static void connections_are_told(void **state)
{
    (void)state;
    tt_rig rig;
    tt_status s;
    open_rig(&rig, true);
    tt_rig_step(&rig, ROUNDS);
    static const char hosts[N][TT_NET_HOST] = {"here", "there"};
    tt_peer *peers = rig.meshes[0]->peers;
    rig.meshes[0]->nets[0]->hosts = hosts;
    assert_string_equal(here(&rig, 0).host, "here");
    tt_team_seen(rig.teams[0][0], 1, &s);
    assert_string_equal(s.host, "there");
    peers[1].is_away = true;
    peers[2].is_silent = true;
    s = here(&rig, 0);
    assert_int_equal(s.n_away, 1);
    assert_int_equal(s.n_silent, 1);
    tt_team_seen(rig.teams[0][0], 1, &s);
    assert_int_equal(s.is, TT_STATUS_UNKNOWN);
    assert_int_equal(s.rank, 1);
    assert_int_equal(s.n_away, 1);
    assert_int_equal(s.n_silent, 0);
    assert_int_equal(s.waits_for, TT_NONE);
    tt_team_seen(rig.teams[0][0], 2, &s);
    assert_int_equal(s.n_silent, 1);
    peers[1].is_away = peers[2].is_silent = false;
    tt_team_seen(rig.teams[0][0], 0, &s);
    assert_int_equal(s.is, TT_STATUS_IDLE);
    tt_engine_lock(rig.engines[0]);
    tt_peer_gone(&peers[3], TUTTI_EPEER, "gone");
    tt_engine_unlock(rig.engines[0]);
    tt_team_seen(rig.teams[0][0], 3, &s);
    assert_int_equal(s.is, TT_STATUS_LOST);
    s = here(&rig, 0);
    assert_int_equal(s.is, TT_STATUS_FAILED);
    /* Nobody is asked by a team that has failed: nothing is awaited. */
    look(&rig);
    assert_true(tt_team_has_seen_all(rig.teams[0][0]));
    /* The largest communicator of the mesh is looked at. */
    tt_engine_lock(rig.engines[0]);
    tt_team *world = tt_engine_world(rig.engines[0], 0);
    assert_int_equal(tt_team_size(world), N);
    assert_null(tt_engine_world(rig.engines[0], 1));
    tt_engine_unlock(rig.engines[0]);
    tt_rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_told),
        cmocka_unit_test(a_first_tells_its_age),
        cmocka_unit_test(calls_are_printed),
        cmocka_unit_test(connections_are_told),
        cmocka_unit_test(all_answer),
        cmocka_unit_test(who_has_left_is_not_asked),
        cmocka_unit_test(who_has_left_is_not_dialled),
        cmocka_unit_test(few_wait),
        cmocka_unit_test(who_asks_too_much_is_not_heard),
        cmocka_unit_test(another_name_makes_no_circle),
        cmocka_unit_test(nonsense_is_no_answer),
    };
    return TT_RUN_TAP(tests);
}
