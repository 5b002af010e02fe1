/* SPDX-License-Identifier: BSD-3-Clause
 * leave_test.c - who leaves a communicator in good order is known to all that
 * are left, also to those that it was never connected with; and what it had
 * sent before counts, whatever others say of it meanwhile. */
#include "support/tap.h"

#include <string.h>

#include "engine/state.h"
#include "plan/plan.h"
#include "support/loop.h"
#include "support/rig.h"
#include "support/sums.h"

/* Ranks 0 and 3 are no neighbours in the control graph. */
enum { N = 6, GONE = 3, COUNT = 5, ROUNDS = 300 };

static uint32_t n_byes; /* that were told on */
static bool is_refused; /* whoever dials GONE */

static tt_sent send_counted(tt_conn *conn, const tt_msg *m,
                            const struct iovec *iov, int n_iov)
{
    tt_sent sent = tt_net_loop.send(conn, m, iov, n_iov);
    n_byes += m->kind == TT_KIND_BYE && m->lane > 0 && sent != TT_FULL;
    return sent;
}

static tutti_err dial(tt_conn *conn, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag)
{
    if (is_refused && conn->rank == GONE)
        return tt_fail(diag, TUTTI_EPEER, "nobody is there");
    return tt_net_loop.dial(conn, addr, len, deadline_ns, diag);
}

typedef struct call {
    bool is_over;
    tutti_err err;
} call;

static void note(void *arg, tutti_err err)
{
    call *c = arg;
    c->is_over = true;
    c->err = err;
}

static void open_rig(tt_rig *rig)
{
    static tt_net_ops ops;
    ops = tt_net_loop;
    ops.send = send_counted;
    ops.dial = dial;
    n_byes = 0;
    is_refused = false;
    const tt_rig_opts opts = {
        .n = N, .ops = &ops, .mem = &tt_mem_std, .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, rig), TUTTI_OK);
}

static void leave(tt_rig *rig, uint32_t rank)
{
    tt_engine_lock(rig->engines[rank]);
    tt_team_leave(rig->teams[0][rank]);
    rig->teams[0][rank] = NULL;
    tt_engine_unlock(rig->engines[rank]);
    tt_rig_step(rig, ROUNDS);
}

static void begin(tt_rig *rig, uint32_t rank, uint32_t *x, call *c)
{
    tt_program *program = tt_sum_program(&tt_mem_std, N, rank, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        x[i] = rank + i;
    tt_engine_lock(rig->engines[rank]);
    assert_int_equal(tt_sum_begin(rig->teams[0][rank], program, x, 0, note, c),
                     TUTTI_OK);
    tt_program_unref(program);
    tt_engine_unlock(rig->engines[rank]);
}

static void all_hear_of_it(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig);
    tt_rig_step(&rig, ROUNDS);
    leave(&rig, GONE);
    assert_false(tt_peer_is_linked(&rig.meshes[0]->peers[GONE]));
    for (uint32_t r = 0; r < N; r++)
        if (r != GONE)
            assert_true(
                tt_team_is_gone(rig.teams[0][r], &rig.meshes[r]->peers[GONE]));
    for (uint32_t r = 1; r < N; r++)
        assert_false(
            tt_team_is_gone(rig.teams[0][0], &rig.meshes[0]->peers[r]) &&
            r != GONE);
    assert_in_range(n_byes, 1, N * 4); /* 4 neighbours, and once */
    tt_rig_destroy(&rig);
}

/* It is there no more, or says itself that it has left: the same sentence. */
static void who_needs_it_is_told(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        tt_rig rig;
        const char *text;
        uint32_t x[COUNT];
        call c = {false, TUTTI_OK};
        open_rig(&rig);
        tt_rig_step(&rig, ROUNDS);
        leave(&rig, GONE);
        is_refused = i == 0;
        begin(&rig, 0, x, &c);
        tt_rig_step(&rig, ROUNDS);
        assert_true(c.is_over);
        assert_int_equal(c.err, TUTTI_EPEER);
        tt_team_state(rig.teams[0][0], &text);
        assert_string_equal(text, "rank 3 has left the communicator and will "
                                  "not call all-reduce of 5 u32 sum");
        tt_rig_destroy(&rig);
    }
}

/* Of a rank of which nobody has said that, it is a loss. */
static void a_loss_is_a_loss(void **state)
{
    (void)state;
    tt_rig rig;
    const char *text;
    uint32_t x[COUNT];
    call c = {false, TUTTI_OK};
    open_rig(&rig);
    tt_rig_step(&rig, ROUNDS);
    leave(&rig, 4);
    is_refused = true;
    begin(&rig, 0, x, &c);
    tt_rig_step(&rig, ROUNDS);
    tt_team_state(rig.teams[0][0], &text);
    assert_int_equal(c.err, TUTTI_EPEER);
    assert_true(strstr(text, "rank 4 has left") || strstr(text, "rank 3 is"));
    tt_rig_destroy(&rig);
}

static void say_gone(tt_rig *rig, uint32_t lane)
{
    tt_msg m = tt_team_msg(rig->teams[0][1], TT_KIND_BYE, 0, 0);
    m.lane = lane;
    m.slice = 1;
    tt_engine_lock(rig->engines[1]);
    tt_peer_tell(&rig->meshes[1]->peers[0], &m, NULL);
    tt_engine_unlock(rig->engines[1]);
}

/* Word of it is faster than what it has sent. */
static void hearsay_fails_nothing(void **state)
{
    (void)state;
    tt_rig rig;
    uint32_t x[N][COUNT];
    call c[N] = {{false, TUTTI_OK}};
    open_rig(&rig);
    tt_rig_step(&rig, ROUNDS);
    for (uint32_t r = 1; r < N; r++)
        begin(&rig, r, x[r], &c[r]);
    say_gone(&rig, GONE + 1);
    say_gone(&rig, 1); /* of the one who is told: never mind */
    begin(&rig, 0, x[0], &c[0]);
    tt_rig_step(&rig, ROUNDS);
    for (uint32_t r = 0; r < N; r++) {
        assert_true(c[r].is_over);
        assert_int_equal(c[r].err, TUTTI_OK);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(x[r][i], N * (N - 1) / 2 + N * i);
    }
    tt_rig_destroy(&rig);
}

static void nonsense_is_a_breach(void **state)
{
    (void)state;
    tt_rig rig;
    const char *text;
    open_rig(&rig);
    tt_rig_step(&rig, ROUNDS);
    say_gone(&rig, N);
    tt_rig_step(&rig, ROUNDS);
    assert_int_equal(tt_team_state(rig.teams[0][0], &text), TUTTI_OK);
    say_gone(&rig, N + 1);
    tt_rig_step(&rig, ROUNDS);
    assert_int_equal(tt_team_state(rig.teams[0][0], &text), TUTTI_EPROTO);
    tt_rig_destroy(&rig);
}

/* ------------------------------------------------------------ agreements -- */

/* Of all but `without`, by this team. */
static void agree(tt_rig *rig, uint32_t team, uint64_t mask, uint32_t without)
{
    const tt_ballot own = {
        .what = 1, .mask = mask, .quorum = 1, .timeout_ns = 100 * TT_NS_PER_S};
    for (uint32_t r = 0; r < N; r++) {
        if (r == without)
            continue;
        tt_engine_lock(rig->engines[r]);
        assert_int_equal(tt_team_agree(rig->teams[team][r], &own), TUTTI_OK);
        tt_engine_unlock(rig->engines[r]);
    }
    tt_rig_step(rig, ROUNDS);
    for (uint32_t r = 0; r < N; r++) {
        tt_verdict got;
        if (r == without)
            continue;
        assert_true(tt_team_has_agreed(rig->teams[team][r]));
        assert_int_equal(tt_team_decision(rig->teams[team][r], &got), TUTTI_OK);
        assert_int_equal(got.decision.mask, mask);
        if (without != TT_NONE)
            assert_true(tt_vote_has_lost(&got.decision, without));
    }
}

/* What a rank that has left remembers of one communicator decides nothing for
 * another. */
static void decisions_are_of_one(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig);
    tt_rig_step(&rig, ROUNDS);
    agree(&rig, 0, 0xf0, TT_NONE);
    leave(&rig, GONE);
    tt_engine_lock(rig.engines[GONE]);
    tt_team_leave(rig.teams[1][GONE]);
    rig.teams[1][GONE] = NULL;
    tt_engine_unlock(rig.engines[GONE]);
    agree(&rig, 1, 0x0f, GONE);
    tt_rig_destroy(&rig);
}

/* ------------------------------------------------ who has been served well */

/* An all-gather around a ring: rank 0 only sends to rank 1 and only hears of
 * rank 2. The last that rank 2 sends it is held up, so that rank 1 is through
 * before it. What rank 0 has sent to rank 1 is taken; but the transport tells
 * only who asks. */
enum { RING = 3, SHARE = 100, EAGER = 2048 };
_Static_assert(SHARE * 4 > TT_NET_INLINE && SHARE * 4 * 2 < EAGER,
               "what may be told late, and is sent before it is asked for");

static bool is_held_up; /* what follows the first from rank 2 to rank 0 */

static tt_sent send_late(tt_conn *conn, const tt_msg *m,
                         const struct iovec *iov, int n_iov)
{
    if (is_held_up && conn->net->rank == 2 && conn->rank == 0 &&
        m->kind == TT_KIND_DATA)
        return TT_FULL;
    return tt_net_loop.send(conn, m, iov, n_iov);
}

typedef struct ring {
    tt_rig rig;
    uint32_t in[RING][SHARE], out[RING][RING * SHARE];
    call calls[RING];
} ring;

static void open_ring(ring *o)
{
    static tt_net_ops ops;
    ops = tt_net_loop;
    ops.send = send_late;
    is_held_up = true;
    memset(o, 0, sizeof(*o));
    const tt_rig_opts opts = {.n = RING,
                              .ops = &ops,
                              .mem = &tt_mem_std,
                              .eager_bytes = EAGER,
                              .is_linked = true,
                              .is_silent = true};
    assert_int_equal(tt_rig_create(&opts, &o->rig), TUTTI_OK);
    tt_rig_step(&o->rig, ROUNDS);
}

static tt_program *gather_program(uint32_t rank)
{
    const tt_problem problem = {.collective = TUTTI_ALL_GATHER,
                                .n_ranks = RING,
                                .root = TT_NONE,
                                .size_bytes = RING * SHARE * 4,
                                .alpha_s = 1e-5,
                                .beta_s_per_byte = 1e-9};
    const tt_shape shape = {.coll = TUTTI_ALL_GATHER,
                            .rank = rank,
                            .n_ranks = RING,
                            .root = TT_NONE,
                            .elem_bytes = 4,
                            .count = SHARE};
    tt_layout lay = {
        .staging_max_bytes = 1 << 26, .window = 2, .max_payload = 1 << 14};
    tutti_schedule *s;
    tt_program *program;
    tt_part *part;
    tt_bound *bound;
    assert_int_equal(
        tt_plan_build(tt_planner_find("ring"), &problem, &tt_mem_std, &s, NULL),
        TUTTI_OK);
    tt_shape_layout(&shape, &lay);
    assert_int_equal(tt_part_extract(s, rank, NULL, &tt_mem_std, &part), 0);
    assert_int_equal(tt_bound_create(part, &lay, &tt_mem_std, &bound), 0);
    assert_int_equal(tt_program_create(bound, &tt_mem_std, &program), 0);
    tt_part_free(part);
    tt_sched_free(s);
    return program;
}

/* All of the team begin; rank 1 alone comes to its end. */
static void gather_at_one(ring *o, tt_team *const *team)
{
    for (uint32_t r = 0; r < RING; r++) {
        tt_program *program = gather_program(r);
        for (uint32_t i = 0; i < SHARE; i++)
            o->in[r][i] = r * SHARE + i;
        const tt_op_start start = {
            .program = program,
            .call = {.coll = TUTTI_ALL_GATHER,
                     .type = TUTTI_U32,
                     .root = TT_NONE,
                     .count = SHARE,
                     .schedule_id = tt_program_bound(program)->schedule_id},
            .in = o->in[r],
            .out = o->out[r],
            .deadline_ns = UINT64_MAX,
            .done = note,
            .arg = &o->calls[r]};
        tt_engine_lock(o->rig.engines[r]);
        assert_int_equal(tt_op_begin(team[r], &start), TUTTI_OK);
        tt_program_unref(program);
        tt_engine_unlock(o->rig.engines[r]);
    }
    tt_rig_step(&o->rig, ROUNDS);
    assert_true(o->calls[1].is_over);
    assert_int_equal(o->calls[1].err, TUTTI_OK);
    assert_false(o->calls[0].is_over);
}

/* That rank 1 has gone has failed nothing. */
static void end_gather(ring *o, const tt_team *team)
{
    const char *text;
    tt_team_state(team, &text);
    assert_string_equal(text, "");
    assert_false(o->calls[0].is_over);
    is_held_up = false;
    tt_rig_step(&o->rig, ROUNDS);
    for (uint32_t r = 0; r < RING; r++) {
        assert_true(o->calls[r].is_over);
        assert_int_equal(o->calls[r].err, TUTTI_OK);
        for (uint32_t i = 0; i < RING * SHARE; i++)
            assert_int_equal(o->out[r][i], i);
    }
}

static void who_was_served_may_leave(void **state)
{
    (void)state;
    ring o;
    open_ring(&o);
    gather_at_one(&o, o.rig.teams[0]);
    leave(&o.rig, 1);
    assert_true(
        tt_team_has_left(o.rig.teams[0][0], &o.rig.meshes[0]->peers[1]));
    end_gather(&o, o.rig.teams[0][0]);
    tt_rig_destroy(&o.rig);
}

/* Whoever leaves a group says nothing: its connection ends. */
static void who_was_served_may_close(void **state)
{
    (void)state;
    static const uint32_t members[RING] = {0, 1, 2};
    const tt_group_opts opts = {
        .origin = 7, .number = 1, .members = members, .n = RING};
    ring o;
    tt_team *group[RING];
    open_ring(&o);
    for (uint32_t r = 0; r < RING; r++)
        assert_int_equal(tt_group_create(o.rig.meshes[r], &opts, &group[r]),
                         TUTTI_OK);
    gather_at_one(&o, group);
    tt_engine_lock(o.rig.engines[1]);
    tt_team_leave(group[1]);
    tt_conn *conn = o.rig.meshes[1]->peers[0].conn;
    conn->net->ops->close(conn, 0);
    tt_engine_unlock(o.rig.engines[1]);
    tt_rig_step(&o.rig, ROUNDS);
    assert_true(o.rig.meshes[0]->peers[1].is_lost);
    end_gather(&o, group[0]);
    for (uint32_t r = 0; r < RING; r += 2) {
        tt_engine_lock(o.rig.engines[r]);
        tt_team_leave(group[r]);
        tt_engine_unlock(o.rig.engines[r]);
    }
    tt_rig_destroy(&o.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_hear_of_it),
        cmocka_unit_test(who_needs_it_is_told),
        cmocka_unit_test(a_loss_is_a_loss),
        cmocka_unit_test(hearsay_fails_nothing),
        cmocka_unit_test(nonsense_is_a_breach),
        cmocka_unit_test(decisions_are_of_one),
        cmocka_unit_test(who_was_served_may_leave),
        cmocka_unit_test(who_was_served_may_close),
    };
    return TT_RUN_TAP(tests);
}
