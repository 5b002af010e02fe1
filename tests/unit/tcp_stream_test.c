/* SPDX-License-Identifier: BSD-3-Clause
 * tcp_stream_test.c - the two byte streams of a TCP connection, cut at every
 * place, given up half-way, fed with nonsense. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/tcp/stream.h"
#include "support/alloc.h"
#include "support/seed.h"

static uint64_t seed;

typedef struct sink {
    tt_tcp_rx *rx;
    uint32_t n_arrived, n_places;
    uint32_t drop_at; /* this message's payload is given up half-way */
    uint64_t hash;    /* of all that came, in order */
    unsigned char *room;
} sink;

static const uint32_t lengths[] = {0,     1, 8,    300, 0,     9000,
                                   40000, 3, 8192, 0,   65536, 5};
#define N_LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

/* Some differ from the one before in a way that a brief header cannot say. */
static tt_msg message(uint32_t k)
{
    return (tt_msg){.magic = TT_MSG_MAGIC,
                    .kind = (uint8_t)(k + 1),
                    .flags = (uint8_t)(255 - k),
                    .len = lengths[k],
                    .comm = 7 + (k >= 2),
                    .channel = k >= 4,
                    .seq = (k + UINT64_C(1)) << (k == 6 ? 40 : 3),
                    .fingerprint = k >= 10 ? UINT64_MAX : 5,
                    .lane = k == 9 ? 1 << 16 : k,
                    .slice = UINT32_MAX - k};
}

static bool is_brief(uint32_t k)
{
    return k != 0 && k != 2 && k != 4 && k != 6 && k != 7 && k != 9 && k != 10;
}

static void *on_place(void *arg, const tt_msg *m)
{
    sink *s = arg;
    assert_true(m->len > 0);
    s->n_places++;
    return s->room;
}

static void on_arrived(void *arg, const tt_msg *m, const void *data)
{
    sink *s = arg;
    const uint32_t k = s->n_arrived;
    const tt_msg want = message(k);
    assert_memory_equal(m, &want, sizeof(want));
    assert_true((data != NULL) == (m->len > 0));
    /* What was given no place is handed up where elements may lie. */
    if (data && data != s->room)
        assert_int_equal((uintptr_t)data % sizeof(double), 0);
    for (uint32_t i = 0; i < m->len; i++)
        assert_int_equal(((const unsigned char *)data)[i],
                         (unsigned char)(k * 7 + i));
    s->n_arrived++;
}

static const tt_net_up stream_up = {.place = on_place, .arrived = on_arrived};

/* Every header that may be is brief. */
static size_t put_head(unsigned char *out, uint32_t k)
{
    const tt_msg m = message(k);
    if (!is_brief(k)) {
        memcpy(out, &m, sizeof(m));
        return sizeof(m);
    }
    const tt_tcp_brief b = {
        .magic = TT_TCP_BRIEF,
        .kind = m.kind,
        .flags = m.flags,
        .len = m.len,
        .slice = m.slice,
        .lane = (uint16_t)m.lane,
        .n_calls = (uint16_t)(m.seq - message(k - 1).seq),
    };
    memcpy(out, &b, sizeof(b));
    return sizeof(b);
}

static size_t make_stream(unsigned char *out)
{
    size_t used = 0;
    for (uint32_t k = 0; k < N_LENGTHS; k++) {
        used += put_head(out + used, k);
        for (uint32_t i = 0; i < lengths[k]; i++)
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

static void put(tt_tcp_rx *rx, const void *from, size_t n)
{
    tt_msg bad;
    assert_int_equal(feed(rx, from, n), n);
    assert_true(tt_tcp_rx_took(rx, n, &bad));
}

/* What is whole in the buffer gets no place, unless it lies across the borders
 * of elements; long ones are read straight to theirs. */
static void test_receive_here(void **state)
{
    (void)state;
    static unsigned char stream[1 << 18];
    static unsigned char room[1 << 20];
    make_stream(stream);
    size_t begins[N_LENGTHS + 1] = {0};
    for (uint32_t k = 0; k < N_LENGTHS; k++)
        begins[k + 1] = begins[k] + sizeof(tt_msg) + lengths[k] -
                        is_brief(k) * (sizeof(tt_msg) - sizeof(tt_tcp_brief));
    sink s = {.room = room};
    tt_tcp_rx rx = open_rx(&s);
    /* 0, 1, and 8 bytes, each at the front. */
    put(&rx, stream, begins[2]);
    assert_int_equal(s.n_places, 0);
    put(&rx, stream + begins[2], begins[3] - begins[2]);
    assert_int_equal(s.n_places, 0);
    put(&rx, stream + begins[3], begins[5] - begins[3]); /* 300 bytes, and 0 */
    assert_int_equal(s.n_places, 0);
    put(&rx, stream + begins[5], begins[6] - begins[5]); /* 9000 */
    assert_int_equal(s.n_places, 0);
    assert_int_equal(rx.tail, TT_TCP_BUF);
    /* The first of 40000 bytes. */
    put(&rx, stream + begins[6], TT_TCP_BUF);
    assert_int_equal(s.n_places, 1);
    assert_int_equal(rx.tail, TT_TCP_TAIL);
    const size_t rest = begins[7] - begins[6] - TT_TCP_BUF;
    put(&rx, stream + begins[6] + TT_TCP_BUF, rest);
    /* 3 bytes, and right behind them 8192 that are not aligned. */
    rx.tail = TT_TCP_BUF;
    put(&rx, stream + begins[7], begins[9] - begins[7]);
    assert_int_equal(s.n_places, 2);
    assert_int_equal(s.n_arrived, 9);
    /* A part of one is no whole. */
    put(&rx, stream + begins[9], begins[10] - begins[9] + sizeof(tt_msg) + 8);
    assert_int_equal(s.n_places, 3);
    assert_int_equal(s.n_arrived, 10);
    free(rx.buf);
}

/* Who is deaf is handed nothing up. */
static void test_receive_deaf(void **state)
{
    (void)state;
    static unsigned char stream[1 << 18];
    sink s = {.room = NULL};
    tt_tcp_rx rx = open_rx(&s);
    tt_msg bad;
    size_t len = make_stream(stream);
    assert_true(tt_tcp_rx_deafen(&rx, &bad));
    for (size_t at = 0; at < len;) {
        size_t n = feed(&rx, stream + at, len - at);
        assert_true(tt_tcp_rx_took(&rx, n, &bad));
        at += n;
    }
    assert_int_equal(s.n_arrived + s.n_places, 0);
    free(rx.buf);
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

/* Whether a turn of 300 bytes ends with each message. */
static uint64_t mark_turns(bool *ends)
{
    uint64_t n_turns = 0, in_turn = 0;
    for (size_t i = 0; i < N_LENGTHS; i++) {
        in_turn += lengths[i];
        ends[i] = in_turn >= 300;
        if (ends[i])
            in_turn = 0;
        n_turns += ends[i];
    }
    return n_turns;
}

/* A turn ends with the message that makes it long enough, and nothing of the
 * next one is handed up before it is the stream's turn again. */
static void test_receive_turns(void **state)
{
    (void)state;
    static unsigned char stream[1 << 18];
    static unsigned char room[1 << 20];
    size_t len = make_stream(stream);
    bool ends[N_LENGTHS];
    uint64_t n_ends = mark_turns(ends);
    tt_rng rng = {seed};
    for (uint32_t limit = 1; limit < 200000; limit = limit * 3 + 1) {
        sink s = {.room = room};
        tt_tcp_rx rx = open_rx(&s);
        rx.turn_bytes = 300;
        tt_msg bad;
        uint64_t n_turns = 0;
        for (size_t at = 0; at < len || rx.is_over;) {
            uint64_t n_arrived = s.n_arrived;
            if (rx.is_over) {
                n_turns++;
                assert_true(ends[n_arrived - 1]);
                assert_true(tt_tcp_rx_resume(&rx, &bad));
            } else {
                size_t n = 1 + tt_rng_below(&rng, limit);
                n = feed(&rx, stream + at, n < len - at ? n : len - at);
                assert_true(tt_tcp_rx_took(&rx, n, &bad));
                at += n;
            }
            for (uint64_t i = n_arrived; i + 1 < s.n_arrived; i++)
                assert_false(ends[i]);
        }
        assert_int_equal(n_turns, n_ends);
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
    while (rx.left == 0 || s.n_arrived < 6) { /* until the one of 40000 bytes */
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

/* The transport's own last message is not handed up. */
static void test_receive_end(void **state)
{
    (void)state;
    sink s = {.room = NULL};
    tt_tcp_rx rx = open_rx(&s);
    tt_msg bad;
    const tt_msg end = {.magic = TT_MSG_MAGIC, .kind = TT_TCP_END};
    for (size_t at = 0; at < sizeof(end); at++) {
        assert_false(rx.is_ended);
        assert_int_equal(feed(&rx, (const unsigned char *)&end + at, 1), 1);
        assert_true(tt_tcp_rx_took(&rx, 1, &bad));
    }
    assert_true(rx.is_ended);
    assert_int_equal(s.n_arrived, 0);
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

/* What is brief says nothing where no message came before. */
static void test_receive_brief_first(void **state)
{
    (void)state;
    const tt_tcp_brief first = {.magic = TT_TCP_BRIEF, .kind = 2};
    sink s = {.rx = NULL};
    tt_tcp_rx rx = open_rx(&s);
    tt_msg bad = {.magic = 0};
    memcpy(rx.buf, &first, sizeof(first));
    assert_false(tt_tcp_rx_took(&rx, sizeof(first), &bad));
    assert_int_equal(bad.magic, TT_TCP_BRIEF);
    assert_int_equal(s.n_arrived, 0);
    free(rx.buf);
}

/* A sender whose bytes go straight into a receiver. */
typedef struct line {
    tt_tcp_tx tx;
    tt_tcp_rx rx;
    sink sink;
    tt_rng rng;
    uint32_t next;    /* message to be queued */
    uint64_t n_bytes; /* that went out */
    /* Of what is borrowed: where each message ends in the stream. */
    uint64_t ends[N_LENGTHS];
    uint32_t n_queued, n_left;
} line;

static unsigned char sent_data[N_LENGTHS][65536];

/* What the sender has let go of is the caller's again. */
static void spoil(uint32_t k)
{
    memset(sent_data[k], 0xee, lengths[k]);
}

/* Queues messages until there is no more room. */
static void put_all(line *l)
{
    for (; l->next < N_LENGTHS; l->next++) {
        const uint32_t k = l->next, cut = lengths[k] / 3;
        unsigned char *data = sent_data[k];
        for (uint32_t i = 0; i < lengths[k]; i++)
            data[i] = (unsigned char)(k * 7 + i);
        struct iovec iov[3] = {
            {data, cut}, {data + cut, 0}, {data + cut, lengths[k] - cut}};
        tt_msg m = message(k);
        tt_sent sent = tt_tcp_tx_put(&l->tx, &m, iov, 3);
        if (sent == TT_FULL)
            return;
        if (sent == TT_QUEUED)
            l->ends[l->n_queued++] = l->tx.took + l->tx.unsent;
        assert_int_equal(sent == TT_QUEUED, lengths[k] > TT_NET_INLINE);
        if (sent == TT_LEFT)
            spoil(k);
    }
}

/* As cancel() does. */
static void take_back(line *l)
{
    assert_true(tt_tcp_tx_own(&l->tx));
    l->n_queued = l->n_left = 0;
    for (uint32_t i = 0; i < l->next; i++)
        spoil(i);
}

/* Lets a random part of what is due go through. */
static void carry(line *l)
{
    struct iovec out[TT_TCP_IOV];
    int n_out = tt_tcp_tx_gather(&l->tx, out);
    assert_in_range(n_out, 1, TT_TCP_IOV);
    const size_t most = tt_rng_below(&l->rng, 70000) + 1;
    size_t gone = 0;
    for (int i = 0; i < n_out && gone < most; i++) {
        const unsigned char *from = out[i].iov_base;
        size_t len = out[i].iov_len;
        size_t part = len < most - gone ? len : most - gone;
        for (size_t at = 0; at < part;) {
            tt_msg bad;
            size_t n = feed(&l->rx, from + at, part - at);
            assert_true(tt_tcp_rx_took(&l->rx, n, &bad));
            at += n;
        }
        gone += part;
    }
    l->n_bytes += gone;
    tt_tcp_tx_took(&l->tx, gone);
    assert_int_equal(l->tx.took, l->n_bytes);
    while (l->n_left < l->n_queued && l->ends[l->n_left] <= l->tx.took)
        l->n_left++;
}

/* What went out, byte by byte, goes into a receiver. */
static void test_send(void **state)
{
    (void)state;
    static unsigned char room[1 << 20], stream[1 << 18];
    const size_t n_bytes = make_stream(stream);
    tt_rng rng = {seed};
    for (int round = 0; round < 50; round++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, 0);
        line l = {.tx = {.mem = &mem,
                         .ahead = TT_TCP_LEAST_AHEAD,
                         .out = calloc(TT_TCP_QUEUE, sizeof(tt_tcp_out))},
                  .sink = {.room = room},
                  .rng = {tt_rng_next(&rng)}};
        l.rx = open_rx(&l.sink);
        while (l.sink.n_arrived < N_LENGTHS) {
            put_all(&l);
            if (tt_rng_below(&l.rng, 8) == 0)
                take_back(&l);
            carry(&l);
        }
        assert_int_equal(l.n_left, l.n_queued);
        assert_int_equal(l.tx.n + l.tx.unsent, 0);
        assert_int_equal(l.n_bytes, n_bytes);
        assert_true(tt_test_mem_is_clean(&m));
        free(l.tx.out);
        free(l.rx.buf);
    }
}

static void test_send_limits(void **state)
{
    (void)state;
    static char data[TT_TCP_LEAST_AHEAD];
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, 1); /* the first allocation fails */
    tt_tcp_tx tx = {.mem = &mem,
                    .ahead = TT_TCP_LEAST_AHEAD,
                    .out = calloc(TT_TCP_QUEUE, sizeof(tt_tcp_out))};
    tt_msg empty = {.magic = TT_MSG_MAGIC};
    for (int i = 0; i < TT_TCP_QUEUE; i++)
        assert_int_equal(tt_tcp_tx_put(&tx, &empty, NULL, 0), TT_LEFT);
    assert_int_equal(tt_tcp_tx_put(&tx, &empty, NULL, 0), TT_FULL);
    tt_tcp_tx_took(&tx, sizeof(empty));
    assert_int_equal(tx.took, sizeof(empty));
    assert_int_equal(tt_tcp_tx_put(&tx, &empty, NULL, 0), TT_LEFT);
    tt_tcp_tx_clear(&tx);
    tt_msg large = {.magic = TT_MSG_MAGIC, .len = sizeof(data)};
    struct iovec iov = {data, sizeof(data)};
    assert_int_equal(tt_tcp_tx_put(&tx, &large, &iov, 1), TT_QUEUED);
    assert_int_equal(tt_tcp_tx_put(&tx, &large, &iov, 1), TT_FULL);
    assert_false(tt_tcp_tx_own(&tx));
    assert_int_equal(tx.n, 0);
    /* What is short is copied at once. */
    for (uint32_t i = 0; i < 2; i++) {
        large.len = TT_NET_INLINE + i;
        iov.iov_len = large.len;
        assert_int_equal(tt_tcp_tx_put(&tx, &large, &iov, 1),
                         i ? TT_QUEUED : TT_LEFT);
    }
    free(tx.out);
}

/* It takes more where the socket takes all that it is given, and little again
 * where it does not. */
static void test_ahead(void **state)
{
    (void)state;
    static char data[TT_TCP_LEAST_AHEAD / 2];
    tt_tcp_tx tx = {.ahead = TT_TCP_LEAST_AHEAD,
                    .out = calloc(TT_TCP_QUEUE, sizeof(tt_tcp_out))};
    tt_msg m = {.magic = TT_MSG_MAGIC, .len = sizeof(data)};
    struct iovec iov = {data, sizeof(data)};
    uint32_t n = 2;
    for (int round = 0; round < 8; round++) {
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(tt_tcp_tx_put(&tx, &m, &iov, 1), TT_QUEUED);
        assert_int_equal(tt_tcp_tx_put(&tx, &m, &iov, 1), TT_FULL);
        /* A part of what was there says nothing about the rest. */
        tt_tcp_tx_adapt(&tx, tx.ahead - 1, tx.ahead - 1);
        assert_int_equal(tt_tcp_tx_put(&tx, &m, &iov, 1), TT_FULL);
        const uint64_t unsent = tx.unsent;
        tt_tcp_tx_took(&tx, unsent);
        assert_int_equal(tx.n + tx.unsent, 0);
        tt_tcp_tx_adapt(&tx, unsent, unsent);
        assert_true(tx.ahead <= TT_TCP_MOST_AHEAD);
        n = n < TT_TCP_QUEUE ? 2 * n : n;
    }
    assert_int_equal(n, TT_TCP_QUEUE);
    tt_tcp_tx_adapt(&tx, 1, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(tt_tcp_tx_put(&tx, &m, &iov, 1), TT_QUEUED);
    assert_int_equal(tt_tcp_tx_put(&tx, &m, &iov, 1), TT_FULL);
    free(tx.out);
}

int main(void)
{
    seed = tt_test_seed(tt_now_ns());
    printf("# TT_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receive),
        cmocka_unit_test(test_receive_here),
        cmocka_unit_test(test_receive_deaf),
        cmocka_unit_test(test_receive_turns),
        cmocka_unit_test(test_receive_drop),
        cmocka_unit_test(test_receive_end),
        cmocka_unit_test(test_receive_nonsense),
        cmocka_unit_test(test_receive_brief_first),
        cmocka_unit_test(test_send),
        cmocka_unit_test(test_send_limits),
        cmocka_unit_test(test_ahead),
    };
    return TT_RUN_TAP(tests);
}
