/* SPDX-License-Identifier: BSD-3-Clause
 * tcp_stream_test.c - the two byte streams of a TCP connection, cut at every
 * place, given up half-way, fed with nonsense. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/tcp_stream.h"
#include "support/fail_mem.h"
#include "support/seed.h"

static uint64_t seed;

typedef struct sink {
    tt_tcp_rx *rx;
    uint32_t n_arrived;
    uint32_t drop_at; /* this message's payload is given up half-way */
    uint64_t hash;    /* of all that came, in order */
    unsigned char *room;
} sink;

static void *on_place(void *arg, const tt_msg *m)
{
    sink *s = arg;
    assert_true(m->len > 0);
    return s->room;
}

static void on_arrived(void *arg, const tt_msg *m, const void *data)
{
    sink *s = arg;
    assert_int_equal(m->seq, s->n_arrived);
    assert_true((data != NULL) == (m->len > 0));
    for (uint32_t i = 0; i < m->len; i++)
        assert_int_equal(((const unsigned char *)data)[i],
                         (unsigned char)(m->seq * 7 + i));
    s->n_arrived++;
}

static const tt_net_up stream_up = {.place = on_place, .arrived = on_arrived};

static const uint32_t lengths[] = {0,     1, 8,    300, 0,     9000,
                                   40000, 3, 8192, 0,   65536, 5};
#define N_LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static size_t make_stream(unsigned char *out)
{
    size_t used = 0;
    for (uint32_t k = 0; k < N_LENGTHS; k++) {
        tt_msg m = {.magic = TT_MSG_MAGIC, .seq = k, .len = lengths[k]};
        memcpy(out + used, &m, sizeof(m));
        used += sizeof(m);
        for (uint32_t i = 0; i < m.len; i++)
            out[used++] = (unsigned char)(k * 7 + i);
    }
    return used;
}

/* Reads at most n bytes, as readv() would. */
static size_t feed(tt_tcp_rx *rx, const unsigned char *from, size_t n)
{
    struct iovec iov[2];
    int n_iov = tt_tcp_rx_want(rx, iov);
    size_t used = 0;
    for (int i = 0; i < n_iov && used < n; i++) {
        size_t part = iov[i].iov_len < n - used ? iov[i].iov_len : n - used;
        assert_true(part > 0);
        memcpy(iov[i].iov_base, from + used, part);
        used += part;
    }
    return used;
}

static tt_tcp_rx open_rx(sink *s)
{
    return (tt_tcp_rx){.buf = malloc(TT_TCP_BUF),
                       .up = &stream_up,
                       .peer = s,
                       .max_payload = 1 << 20,
                       .tail = TT_TCP_BUF};
}

static void test_receive(void **state)
{
    (void)state;
    static unsigned char stream[1 << 18];
    static unsigned char room[1 << 20];
    size_t len = make_stream(stream);
    tt_rng rng = {seed};
    for (uint32_t limit = 1; limit < 200000; limit = limit * 3 + 1) {
        sink s = {.room = room};
        tt_tcp_rx rx = open_rx(&s);
        tt_msg bad;
        for (size_t at = 0; at < len;) {
            size_t n = 1 + tt_rng_below(&rng, limit);
            n = feed(&rx, stream + at, n < len - at ? n : len - at);
            assert_true(tt_tcp_rx_took(&rx, n, &bad));
            at += n;
        }
        assert_int_equal(s.n_arrived, N_LENGTHS);
        assert_int_equal(rx.left + rx.have, 0);
        free(rx.buf);
    }
}

static void test_receive_drop(void **state)
{
    (void)state;
    static unsigned char stream[1 << 18];
    size_t len = make_stream(stream);
    sink s = {.room = malloc(1 << 20)};
    tt_tcp_rx rx = open_rx(&s);
    tt_msg bad;
    size_t at = 0;
    while (rx.left == 0 || rx.m.seq < 6) { /* until the one of 40000 bytes */
        size_t n = feed(&rx, stream + at, 100);
        assert_true(tt_tcp_rx_took(&rx, n, &bad));
        at += n;
    }
    assert_int_equal(s.n_arrived, 6);
    tt_tcp_rx_drop(&rx);
    free(s.room); /* any write would be noticed by the sanitizer */
    s.room = malloc(1 << 20);
    s.n_arrived++;
    while (at < len) {
        size_t n = feed(&rx, stream + at, len - at);
        assert_true(tt_tcp_rx_took(&rx, n, &bad));
        at += n;
    }
    assert_int_equal(s.n_arrived, N_LENGTHS);
    tt_tcp_rx_drop(&rx); /* between messages it means nothing */
    assert_false(rx.is_dropping);
    free(s.room);
    free(rx.buf);
}

static void test_receive_nonsense(void **state)
{
    (void)state;
    static const tt_msg wrong[] = {
        {.magic = 0x7475},
        {.magic = TT_MSG_MAGIC, .len = (1 << 20) + 1},
        {.magic = TT_MSG_MAGIC, .len = UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        sink s = {.rx = NULL};
        tt_tcp_rx rx = open_rx(&s);
        tt_msg bad = {.magic = 0};
        memcpy(rx.buf, &wrong[i], sizeof(wrong[i]));
        assert_false(tt_tcp_rx_took(&rx, sizeof(wrong[i]), &bad));
        assert_memory_equal(&bad, &wrong[i], sizeof(bad));
        assert_int_equal(s.n_arrived, 0);
        free(rx.buf);
    }
}

/* What went out, byte by byte, goes into a receiver. */
static void test_send(void **state)
{
    (void)state;
    static unsigned char data[N_LENGTHS][65536];
    static unsigned char room[1 << 20];
    tt_rng rng = {seed};
    for (int round = 0; round < 50; round++) {
        tt_fail_mem f;
        tt_fail_mem_init(&f, 0);
        tt_tcp_tx tx = {.mem = &f.mem,
                        .out = calloc(TT_TCP_QUEUE, sizeof(tt_tcp_out))};
        sink s = {.room = room};
        tt_tcp_rx rx = open_rx(&s);
        uint64_t n_queued = 0;
        uint64_t n_left = 0;
        uint32_t k = 0;
        while (s.n_arrived < N_LENGTHS) {
            for (; k < N_LENGTHS; k++) {
                for (uint32_t i = 0; i < lengths[k]; i++)
                    data[k][i] = (unsigned char)(k * 7 + i);
                uint32_t cut = lengths[k] / 3;
                struct iovec iov[3] = {{data[k], cut},
                                       {data[k] + cut, 0},
                                       {data[k] + cut, lengths[k] - cut}};
                tt_msg m = {.magic = TT_MSG_MAGIC, .seq = k, .len = lengths[k]};
                tt_sent sent = tt_tcp_tx_put(&tx, &m, iov, 3);
                if (sent == TT_FULL)
                    break;
                n_queued += sent == TT_QUEUED;
                assert_int_equal(sent == TT_QUEUED, lengths[k] > TT_NET_INLINE);
                if (sent == TT_LEFT)
                    memset(data[k], 0xee, lengths[k]);
            }
            if (tt_rng_below(&rng, 8) == 0) { /* as cancel() does */
                assert_true(tt_tcp_tx_own(&tx));
                n_queued = n_left = 0;
                for (uint32_t i = 0; i < k; i++)
                    memset(data[i], 0xee, lengths[i]);
            }
            struct iovec out[TT_TCP_IOV];
            int n_out = tt_tcp_tx_gather(&tx, out);
            assert_in_range(n_out, 1, TT_TCP_IOV);
            size_t most = tt_rng_below(&rng, 70000) + 1;
            size_t gone = 0;
            for (int i = 0; i < n_out && gone < most; i++) {
                size_t part = out[i].iov_len < most - gone ? out[i].iov_len
                                                           : most - gone;
                for (size_t at = 0; at < part;) {
                    tt_msg bad;
                    const unsigned char *from = out[i].iov_base;
                    size_t n = feed(&rx, from + at, part - at);
                    assert_true(tt_tcp_rx_took(&rx, n, &bad));
                    at += n;
                }
                gone += part;
            }
            n_left += tt_tcp_tx_took(&tx, gone);
            assert_true(n_left <= n_queued);
        }
        assert_int_equal(n_left, n_queued);
        assert_int_equal(tx.n + tx.unsent, 0);
        assert_int_equal(f.live_bytes, 0);
        free(tx.out);
        free(rx.buf);
    }
}

static void test_send_limits(void **state)
{
    (void)state;
    static char data[TT_TCP_AHEAD];
    tt_fail_mem f;
    tt_fail_mem_init(&f, 1); /* the first allocation fails */
    tt_tcp_tx tx = {.mem = &f.mem,
                    .out = calloc(TT_TCP_QUEUE, sizeof(tt_tcp_out))};
    tt_msg empty = {.magic = TT_MSG_MAGIC};
    for (int i = 0; i < TT_TCP_QUEUE; i++)
        assert_int_equal(tt_tcp_tx_put(&tx, &empty, NULL, 0), TT_LEFT);
    assert_int_equal(tt_tcp_tx_put(&tx, &empty, NULL, 0), TT_FULL);
    assert_int_equal(tt_tcp_tx_took(&tx, sizeof(empty)), 0);
    assert_int_equal(tt_tcp_tx_put(&tx, &empty, NULL, 0), TT_LEFT);
    tt_tcp_tx_clear(&tx);
    tt_msg large = {.magic = TT_MSG_MAGIC, .len = sizeof(data)};
    struct iovec iov = {data, sizeof(data)};
    assert_int_equal(tt_tcp_tx_put(&tx, &large, &iov, 1), TT_QUEUED);
    assert_int_equal(tt_tcp_tx_put(&tx, &large, &iov, 1), TT_FULL);
    assert_false(tt_tcp_tx_own(&tx));
    assert_int_equal(tx.n, 0);
    free(tx.out);
}

int main(void)
{
    seed = tt_test_seed(tt_now_ns());
    printf("# TT_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receive),
        cmocka_unit_test(test_receive_drop),
        cmocka_unit_test(test_receive_nonsense),
        cmocka_unit_test(test_send),
        cmocka_unit_test(test_send_limits),
    };
    return TT_RUN_TAP(tests);
}
