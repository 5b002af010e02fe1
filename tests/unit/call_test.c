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

enum { N = 3, ROUNDS = 200 };

/* Of each rank: how often it has made the conn to each other one anew, and by
 * what it was told of that one. */
static uint32_t n_renewed[N][N];
static char known[N][N][32];

static size_t address(tt_net *net, void *buf, size_t size)
{
    if (size > TT_NET_INLINE)
        return tt_net_loop.address(net, buf, size); /* of the first time */
    return (size_t)snprintf(buf, 32, "rank %u is here now", net->rank);
}

static void renew(tt_conn *conn)
{
    size_t len;
    const void *addr = conn->net->up->address(conn, &len);
    n_renewed[conn->net->rank][conn->rank]++;
    if (len < 32)
        snprintf(known[conn->net->rank][conn->rank], 32, "%.*s", (int)len,
                 (const char *)addr);
}

static void run(tt_rig *rig)
{
    for (int i = 0; i < ROUNDS; i++)
        for (uint32_t r = 0; r < N; r++) {
            tt_engine_lock(rig->engines[r]);
            tt_engine_step(rig->engines[r]);
            tt_engine_unlock(rig->engines[r]);
        }
}

static void urge(tt_rig *rig, uint64_t after_ns)
{
    tt_engine_lock(rig->engines[0]);
    tt_mesh_urge(rig->meshes[0], tt_now_ns() + after_ns);
    tt_engine_unlock(rig->engines[0]);
    run(rig);
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
    tt_net_ops ops = tt_net_loop;
    tt_rig rig;
    ops.address = address;
    ops.renew = renew;
    const tt_rig_opts opts = {
        .n = N, .ops = &ops, .mem = &tt_mem_std, .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, &rig), TUTTI_OK);
    run(&rig);
    set_away(&rig, true);
    urge(&rig, 0);
    assert_int_equal(n_renewed[0][2] + n_renewed[2][0], 0); /* too early */
    urge(&rig, TT_NS_PER_S);
    assert_int_equal(n_renewed[0][2], 1);
    assert_int_equal(n_renewed[2][0], 1);
    assert_string_equal(known[2][0], "rank 0 is here now");
    assert_string_equal(known[0][2], ""); /* what it was at first */
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
    tt_net_ops ops = tt_net_loop;
    tt_rig rig;
    memset(n_renewed, 0, sizeof(n_renewed));
    ops.address = address;
    ops.renew = renew;
    const tt_rig_opts opts = {
        .n = N, .ops = &ops, .mem = &tt_mem_std, .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, &rig), TUTTI_OK);
    run(&rig);
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
    run(&rig);
    assert_ptr_equal(zero->accesses[0].addr, before.addr);
    assert_int_equal(zero->accesses[0].addr_bytes, before.addr_bytes);
    assert_int_equal(n_renewed[2][0], 2); /* of its port, nevertheless */
    tt_rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call),
        cmocka_unit_test(test_nonsense),
    };
    return TT_RUN_TAP(tests);
}
