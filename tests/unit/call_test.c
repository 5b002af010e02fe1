/* SPDX-License-Identifier: BSD-3-Clause
 * call_test.c - a rank whose connection is away asks the other side, by way of
 * those that are connected, to connect itself, and tells where it is now. */
#include "support/tap.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "engine/state.h"
#include "support/loop.h"
#include "support/rig.h"

enum { N = 3, MANY = 16, ROUNDS = 200 };

/* Of each rank: how often it has made the conn to each other one anew, and by
 * what it was told of that one. */
static uint32_t n_renewed[MANY][MANY];
static char known[MANY][MANY][32];
static uint64_t missed[MANY][MANY];
static uint32_t n_calls; /* messages */

static size_t address(tt_net *net, void *buf, size_t size)
{
    if (size > TT_NET_INLINE)
        return tt_net_loop.address(net, buf, size); /* of the first time */
    return (size_t)snprintf(buf, 32, "rank %u is here now", net->rank);
}

static uint64_t renew(tt_conn *conn, uint64_t parts)
{
    size_t len;
    const void *addr = conn->net->up->address(conn, &len);
    n_renewed[conn->net->rank][conn->rank]++;
    missed[conn->net->rank][conn->rank] = parts;
    if (len < 32)
        snprintf(known[conn->net->rank][conn->rank], 32, "%.*s", (int)len,
                 (const char *)addr);
    return 5;
}

static tt_sent send_counted(tt_conn *conn, const tt_msg *m,
                            const struct iovec *iov, int n_iov)
{
    tt_sent sent = tt_net_loop.send(conn, m, iov, n_iov);
    n_calls += m->kind == TT_KIND_CALL && sent != TT_FULL;
    return sent;
}

static void open_rig(tt_rig *rig, uint32_t n)
{
    static const tt_net_far far = {.renew = renew};
    static tt_net_ops ops;
    ops = tt_net_loop;
    ops.address = address;
    ops.far = &far;
    ops.send = send_counted;
    memset(n_renewed, 0, sizeof(n_renewed));
    const tt_rig_opts opts = {
        .n = n, .ops = &ops, .mem = &tt_mem_std, .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, rig), TUTTI_OK);
}

static void urge(tt_rig *rig, uint64_t after_ns)
{
    tt_engine_lock(rig->engines[0]);
    tt_seek_urge(rig->meshes[0], tt_now_ns() + after_ns);
    tt_engine_unlock(rig->engines[0]);
    tt_rig_step(rig, ROUNDS);
}

static void set_away(tt_rig *rig, bool is_away)
{
    tt_peer *peer = &rig->meshes[0]->peers[2];
    tt_engine_lock(rig->engines[0]);
    tt_engine_up.away(peer, is_away);
    tt_engine_unlock(rig->engines[0]);
}

static void test_call(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig, N);
    tt_rig_step(&rig, ROUNDS);
    set_away(&rig, true);
    urge(&rig, 0);
    assert_int_equal(n_renewed[0][2] + n_renewed[2][0], 0); /* too early */
    urge(&rig, TT_NS_PER_S);
    assert_int_equal(n_renewed[0][2], 1);
    assert_int_equal(n_renewed[2][0], 1);
    assert_string_equal(known[2][0], "rank 0 is here now");
    assert_string_equal(known[0][2], ""); /* what it was at first */
    assert_int_equal(missed[0][2], 0);    /* what is away there */
    assert_int_equal(missed[2][0], 5);
    urge(&rig, 2 * TT_NS_PER_S);
    assert_int_equal(n_renewed[2][0], 2);
    set_away(&rig, false);
    urge(&rig, 100 * TT_NS_PER_S);
    assert_int_equal(n_renewed[0][2], 2);
    assert_int_equal(n_renewed[2][0], 2);
    for (uint32_t r = 0; r < N; r++)
        assert_int_equal(n_renewed[1][r] + n_renewed[r][1], 0);
    tt_rig_destroy(&rig);
}

/* Calls that make no sense change nothing. */
static void test_nonsense(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig, N);
    tt_rig_step(&rig, ROUNDS);
    const tt_peer *zero = &rig.meshes[2]->peers[0];
    const tt_access before = zero->accesses[0];
    tt_engine_lock(rig.engines[0]);
    for (uint32_t i = 0; i < 3; i++) {
        const tt_msg m = {.magic = TT_MSG_MAGIC,
                          .kind = TT_KIND_CALL,
                          .seq = i + 1,
                          .fingerprint = i == 0   ? 1
                                         : i == 1 ? UINT64_MAX
                                                  : 0,
                          .channel = i == 2 ? 5 : 0,
                          .len = 4,
                          .lane = 2};
        tt_peer_tell(&rig.meshes[0]->peers[1], &m, "here");
    }
    tt_engine_unlock(rig.engines[0]);
    tt_rig_step(&rig, ROUNDS);
    assert_ptr_equal(zero->accesses[0].addr, before.addr);
    assert_int_equal(zero->accesses[0].addr_bytes, before.addr_bytes);
    assert_int_equal(n_renewed[2][0], 2); /* of its port, nevertheless */
    tt_rig_destroy(&rig);
}

static void say_call(tt_rig *rig, uint64_t number, uint32_t to)
{
    const tt_msg m = {
        .magic = TT_MSG_MAGIC, .kind = TT_KIND_CALL, .seq = number, .lane = to};
    tt_engine_lock(rig->engines[0]);
    tt_peer_tell(&rig->meshes[0]->peers[1], &m, NULL);
    tt_engine_unlock(rig->engines[0]);
    tt_rig_step(rig, ROUNDS);
}

/* A call for one rank that comes later than a later one for another is heard;
 * once. */
static void test_order(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig, N);
    tt_rig_step(&rig, ROUNDS);
    say_call(&rig, 70, 1);
    assert_int_equal(n_renewed[1][0], 1);
    for (uint64_t i = 69; i > 6; i--) {
        say_call(&rig, i, 2);
        say_call(&rig, i, 2);
        assert_int_equal(n_renewed[2][0], 70 - i);
    }
    assert_int_equal(missed[2][0] == UINT64_MAX, true); /* it has none of it */
    say_call(&rig, 6, 2);
    say_call(&rig, 70, 2);
    assert_int_equal(n_renewed[2][0], 63);
    say_call(&rig, 1000, 2);
    say_call(&rig, 999, 1);
    assert_int_equal(n_renewed[2][0], 64);
    assert_int_equal(n_renewed[1][0], 2);
    tt_rig_destroy(&rig);
}

static void leave_out(tt_rig *rig, uint32_t rank, uint32_t from)
{
    tt_engine_lock(rig->engines[rank]);
    tt_engine_up.away(&rig->meshes[rank]->peers[from], true);
    tt_engine_unlock(rig->engines[rank]);
}

/* Of many that are all connected few tell a call on. */
static void test_few(void **state)
{
    (void)state;
    tt_rig rig;
    open_rig(&rig, MANY);
    for (uint32_t r = 0; r < MANY; r++)
        tt_mesh_dial(rig.meshes[r], true);
    tt_rig_step(&rig, ROUNDS);
    for (uint32_t r = 1; r < MANY; r++)
        assert_true(rig.meshes[0]->peers[r].conn->is_up);
    leave_out(&rig, 0, 5);
    n_calls = 0;
    urge(&rig, TT_NS_PER_S);
    assert_int_equal(n_renewed[5][0], 1);
    assert_int_equal(n_calls, 7 + 7); /* 1, 2, 4, 8 on either side */
    for (uint32_t r = 1; r < MANY; r++)
        leave_out(&rig, r, 5);
    n_calls = 0;
    urge(&rig, 4 * TT_NS_PER_S);
    assert_int_equal(n_renewed[5][0], 1);
    assert_in_range(n_calls, MANY - 2, MANY * 7);
    tt_rig_destroy(&rig);
}

/* Of one that nobody can reach, as long as that lasts: it is looked for all the
 * time, and asked about seldom; but at once when another one is back. */
static void test_in_vain(void **state)
{
    (void)state;
    enum { GONE = 5, BACK = 3, SECONDS = 100 };
    tt_rig rig;
    uint32_t n_asked = 0;
    open_rig(&rig, MANY);
    for (uint32_t r = 0; r < MANY; r++)
        tt_mesh_dial(rig.meshes[r], true);
    tt_rig_step(&rig, ROUNDS);
    for (uint32_t r = 0; r < MANY; r++)
        if (r != GONE)
            leave_out(&rig, r, GONE);
    uint32_t before = n_renewed[0][GONE];
    for (uint32_t i = 1; i <= 2 * SECONDS; i++) {
        n_calls = 0;
        urge(&rig, i * TT_NS_PER_S / 2);
        n_asked += n_calls > 0;
    }
    assert_in_range(n_asked, 6, 9); /* 1 2 4 8 16 32 64 */
    assert_in_range(n_renewed[0][GONE] - before, SECONDS / 4 - 1, SECONDS / 2);
    leave_out(&rig, 0, BACK);
    tt_engine_lock(rig.engines[0]);
    tt_engine_up.away(&rig.meshes[0]->peers[BACK], false);
    tt_engine_unlock(rig.engines[0]);
    n_calls = 0;
    urge(&rig, 2 * TT_NS_PER_S);
    assert_in_range(n_calls, 1, MANY * 7);
    tt_rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call),    cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_order),   cmocka_unit_test(test_few),
        cmocka_unit_test(test_in_vain),
    };
    return TT_RUN_TAP(tests);
}
