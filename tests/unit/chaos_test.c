/* SPDX-License-Identifier: BSD-3-Clause
 * chaos_test.c - the chaos transport does what it is told: every fault hits
 * the message it is meant for, and no other. Three ranks on the loop
 * transport, all in this one thread. */
#include "support/tap.h"

#include <stdio.h>
#include <string.h>

#include "support/chaos.h"
#include "support/loop.h"
#include "support/net_pair.h"

#define N_RANKS 3
#define N_MESSAGES 10

/* What arrived at rank 1 from rank 0, in order. */
typedef struct seen {
    uint64_t n;
    tt_msg m[N_MESSAGES + 1];
    uint64_t payload[N_MESSAGES + 1];
} seen;

static void note(tt_peer *peer, const tt_msg *m, const void *data)
{
    seen *s = peer->test;
    if (!s || s->n > N_MESSAGES)
        return;
    s->m[s->n] = *m;
    memcpy(&s->payload[s->n], data, m->len < 8 ? m->len : 8);
    s->n++;
}

static tt_msg message(uint64_t k)
{
    return (tt_msg){.magic = TT_MSG_MAGIC, .len = 8, .seq = k, .lane = 7};
}

/* Rank 0 sends messages 1..10 to rank 1 and to rank 2, then all take some
 * turns. */
static void play(const tt_chaos_opts *opts, tt_node *node, seen *s)
{
    tt_nodes nodes = {.ops = tt_chaos_wrap(&tt_net_loop, opts), .n = N_RANKS};
    nodes.settings.shm_ring_bytes = 64 << 10;
    assert_int_equal(tt_nodes_local(&nodes, node), 0);
    node[1].on_arrived = note;
    node[1].peers[0].test = s;
    for (uint64_t k = 1; k <= N_MESSAGES; k++) {
        tt_msg m = message(k);
        struct iovec iov = {.iov_base = &k, .iov_len = 8};
        for (uint32_t r = 1; r < N_RANKS; r++) {
            tt_sent sent = node[0].ops->send(node[0].conns[r], &m, &iov, 1);
            if (opts->kill_at == 0)
                assert_int_equal(sent, TT_LEFT);
        }
    }
    for (int turn = 0; turn < 100; turn++) {
        for (uint32_t r = 0; r < N_RANKS; r++)
            tt_node_poll(&node[r], true);
    }
    assert_int_equal(node[2].peers[0].n_arrived, N_MESSAGES);
    for (uint32_t r = 0; r < N_RANKS; r++)
        assert_string_equal(node[r].failure, "");
}

static tt_chaos_opts hit(void)
{
    tt_chaos_opts opts = TT_CHAOS_OPTS_INIT;
    opts.seed = tt_test_seed();
    opts.only_rank = 0;
    opts.only_peer = 1;
    return opts;
}

static void test_none(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    tt_node node[N_RANKS];
    seen s = {0};
    play(&opts, node, &s);
    assert_int_equal(s.n, N_MESSAGES);
    for (uint64_t k = 1; k <= N_MESSAGES; k++) {
        tt_msg m = message(k);
        assert_memory_equal(&s.m[k - 1], &m, sizeof(m));
        assert_int_equal(s.payload[k - 1], k);
    }
    tt_nodes_local_close(node, N_RANKS);
}

static void test_drop(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    opts.drop_at = 4;
    tt_node node[N_RANKS];
    seen s = {0};
    play(&opts, node, &s);
    assert_int_equal(s.n, N_MESSAGES - 1);
    assert_int_equal(s.m[2].seq, 3);
    assert_int_equal(s.m[3].seq, 5);
    tt_nodes_local_close(node, N_RANKS);
}

static void test_hole(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    opts.hole_at = 4;
    tt_node node[N_RANKS];
    seen s = {0};
    play(&opts, node, &s);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.m[2].seq, 3);
    tt_nodes_local_close(node, N_RANKS);
}

static void test_double(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    opts.double_at = 4;
    tt_node node[N_RANKS];
    seen s = {0};
    play(&opts, node, &s);
    assert_int_equal(s.n, N_MESSAGES + 1);
    for (uint64_t k = 1; k <= N_MESSAGES + 1; k++) {
        assert_int_equal(s.m[k - 1].seq, k < 5 ? k : k - 1);
        assert_int_equal(s.payload[k - 1], k < 5 ? k : k - 1);
    }
    tt_nodes_local_close(node, N_RANKS);
}

static void test_truncate(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    opts.truncate_at = 2;
    tt_node node[N_RANKS];
    seen s = {0};
    play(&opts, node, &s);
    assert_int_equal(s.n, N_MESSAGES);
    assert_int_equal(s.m[0].len, 8);
    assert_int_equal(s.m[1].len, 4);
    assert_int_equal(s.m[1].seq, 2);
    assert_int_equal(s.m[2].len, 8);
    tt_nodes_local_close(node, N_RANKS);
}

static void test_swap(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    opts.swap_at = 6;
    tt_node node[N_RANKS];
    seen s = {0};
    play(&opts, node, &s);
    assert_int_equal(s.n, N_MESSAGES);
    const uint64_t order[N_MESSAGES] = {1, 2, 3, 4, 5, 7, 6, 8, 9, 10};
    for (int i = 0; i < N_MESSAGES; i++) {
        assert_int_equal(s.m[i].seq, order[i]);
        assert_int_equal(s.payload[i], order[i]);
    }
    tt_nodes_local_close(node, N_RANKS);
}

static void test_flip(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    opts.flip_at = 1;
    tt_node node[N_RANKS];
    for (uint64_t i = 0; i < 50; i++) {
        opts.seed = tt_test_seed() + i;
        seen s = {0};
        /* The node checks the magic itself and would call that a failure. */
        tt_nodes nodes = {.ops = tt_chaos_wrap(&tt_net_loop, &opts),
                          .n = N_RANKS};
        nodes.settings.shm_ring_bytes = 64 << 10;
        assert_int_equal(tt_nodes_local(&nodes, node), 0);
        node[1].on_arrived = note;
        node[1].peers[0].test = &s;
        tt_msg m = message(1);
        struct iovec iov = {.iov_base = &i, .iov_len = 8};
        node[0].ops->send(node[0].conns[1], &m, &iov, 1);
        tt_node_poll(&node[0], false);
        tt_node_poll(&node[1], false);
        assert_int_equal(s.n, 1);
        int n_bits = 0;
        for (size_t b = 0; b < sizeof(m); b++)
            n_bits += __builtin_popcount(((unsigned char *)&m)[b] ^
                                         ((unsigned char *)&s.m[0])[b]);
        assert_int_equal(n_bits, 1);
        assert_int_equal(s.m[0].len, 8);
        tt_nodes_local_close(node, N_RANKS);
    }
}

static void test_kill(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    opts.kill_at = 3;
    tt_node node[N_RANKS];
    seen s = {0};
    play(&opts, node, &s);
    assert_int_equal(s.n, 2);
    assert_true(node[0].peers[1].is_lost);
    assert_true(node[1].peers[0].is_lost);
    assert_false(node[0].peers[2].is_lost);
    assert_false(node[2].peers[0].is_lost);
    assert_false(node[1].peers[2].is_lost);
    tt_nodes_local_close(node, N_RANKS);
}

/* Messages that are held back when their conn is closed still arrive. */
static void test_close_delayed(void **state)
{
    (void)state;
    tt_chaos_opts opts = hit();
    opts.delay_per_1000 = 1000;
    opts.delay_turns = 1000000;
    tt_node node[N_RANKS];
    seen s = {0};
    tt_nodes nodes = {.ops = tt_chaos_wrap(&tt_net_loop, &opts), .n = N_RANKS};
    nodes.settings.shm_ring_bytes = 64 << 10;
    assert_int_equal(tt_nodes_local(&nodes, node), 0);
    node[1].on_arrived = note;
    node[1].peers[0].test = &s;
    for (uint64_t k = 1; k <= N_MESSAGES; k++) {
        tt_msg m = message(k);
        struct iovec iov = {.iov_base = &k, .iov_len = 8};
        assert_int_equal(node[0].ops->send(node[0].conns[1], &m, &iov, 1),
                         TT_LEFT);
    }
    tt_node_poll(&node[0], false);
    tt_node_poll(&node[1], true);
    assert_int_equal(s.n, 0);
    tt_node_close(&node[0]);
    tt_node_poll(&node[1], true);
    assert_int_equal(s.n, N_MESSAGES);
    assert_true(node[1].peers[0].is_lost);
    tt_nodes_local_close(node, N_RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),          cmocka_unit_test(test_drop),
        cmocka_unit_test(test_hole),          cmocka_unit_test(test_double),
        cmocka_unit_test(test_truncate),      cmocka_unit_test(test_swap),
        cmocka_unit_test(test_flip),          cmocka_unit_test(test_kill),
        cmocka_unit_test(test_close_delayed),
    };
    return TT_RUN_TAP(tests);
}
