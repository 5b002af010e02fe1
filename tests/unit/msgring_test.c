/* SPDX-License-Identifier: BSD-3-Clause
 * msgring_test.c - a ring keeps what it is given, whatever the sizes, and harms
 * nobody whatever the other side writes into it. */
#include "support/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/shm/msgring.h"
#include "support/net_pair.h"

#define SIZE 16384u
#define LAPS_SIZE (256u << 10) /* its laps may end early */

typedef struct channel {
    tt_ring_ctl *ctl;
    unsigned char *data;
    tt_ring_tx tx;
    tt_ring_rx rx;
} channel;

/* The data is its own allocation: a sanitizer sees every step outside. */
static channel channel_of(uint32_t size)
{
    channel p = {.ctl = aligned_alloc(64, sizeof(tt_ring_ctl)),
                 .data = aligned_alloc(64, size)};
    memset(p.ctl, 0, sizeof(*p.ctl));
    memset(p.data, 0, size);
    tt_ring_tx_init(&p.tx, p.ctl, p.data, size);
    tt_ring_rx_init(&p.rx, p.ctl, p.data, size);
    return p;
}

static channel channel_new(void)
{
    return channel_of(SIZE);
}

static void channel_free(channel *p)
{
    free(p->ctl);
    free(p->data);
}

static bool put(channel *p, uint64_t seq, uint32_t len)
{
    unsigned char *payload = malloc(len + 1);
    memset(payload, (int)(seq & 0xff), len);
    tt_msg m = {.magic = TT_MSG_MAGIC, .len = len, .seq = seq};
    struct iovec iov[2] = {{payload, len / 2},
                           {payload + len / 2, len - len / 2}};
    bool done = tt_ring_put(&p->tx, &m, iov, 2);
    free(payload);
    return done;
}

static void get(channel *p, uint64_t seq, uint32_t len)
{
    tt_msg m;
    const void *data = NULL;
    assert_int_equal(tt_ring_get(&p->rx, &m, &data), 1);
    assert_int_equal(m.seq, seq);
    assert_int_equal(m.len, len);
    assert_int_equal(data == NULL, len == 0);
    const unsigned char *byte = data;
    for (uint32_t i = 0; i < len; i++) {
        if (byte[i] != (seq & 0xff))
            fail_msg("message %u, byte %u", (unsigned)seq, i);
    }
    tt_ring_done(&p->rx);
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(tt_ring_size(0), 16 << 10);
    assert_int_equal(tt_ring_size((1 << 20) - 1), 512 << 10);
    assert_int_equal(tt_ring_size(1 << 20), 1 << 20);
    assert_int_equal(tt_ring_size(UINT64_MAX), 64 << 20);
    channel p = channel_new();
    uint32_t most = tt_ring_max_payload(SIZE);
    assert_int_equal(most, SIZE / 4);
    uint64_t seq = 0;
    for (uint32_t len = 0; len <= most; len += len < 300 ? 1 : 37, seq++) {
        assert_true(put(&p, seq, len));
        get(&p, seq, len);
    }
    assert_true(put(&p, seq, most));
    get(&p, seq, most);
    assert_false(tt_ring_has_message(&p.rx));
    channel_free(&p);
}

/* Filled to the brim and drained, with messages of random sizes: the order
 * holds, and there is room again once all is read. */
static void fill_and_empty(uint32_t size, int n_rounds)
{
    tt_rng rng = {tt_test_seed()};
    channel p = channel_of(size);
    uint64_t n_put = 0;
    uint64_t n_got = 0;
    static uint32_t lens[1 << 12];
    for (int round = 0; round < n_rounds; round++) {
        uint32_t most = round % 3 ? 200 : size / 4;
        uint32_t len = (uint32_t)tt_rng_below(&rng, most + 1);
        while (put(&p, n_put, len)) {
            assert_true(n_put - n_got < size / 64);
            lens[n_put++ % (1 << 12)] = len;
            len = (uint32_t)tt_rng_below(&rng, most + 1);
        }
        assert_true(n_put - n_got >= 2);
        uint64_t n = 1 + tt_rng_below(&rng, n_put - n_got);
        for (; n > 0; n--, n_got++)
            get(&p, n_got, lens[n_got % (1 << 12)]);
        if (n_got == n_put) {
            assert_true(tt_ring_has_room(&p.tx));
            assert_true(put(&p, n_put, size / 4));
            get(&p, n_put, size / 4);
            n_put++;
            n_got++;
        }
    }
    assert_false(p.tx.is_broken);
    channel_free(&p);
}

static void test_fill(void **state)
{
    (void)state;
    fill_and_empty(SIZE, 2000);
    fill_and_empty(LAPS_SIZE, 500);
}

/* Long payloads through the cache and past it, from any address. */
static void test_past(void **state)
{
    enum { LARGE = 64 << 10, MOST = LARGE / 4 };
    (void)state;
    tt_rng rng = {tt_test_seed()};
    unsigned char *from = malloc(MOST + 64);
    channel p = channel_of(LARGE);
    /* Nothing is tried on pages that are new. */
    assert_true(p.tx.how.n_rests >= LARGE / TT_COPYIN_LEAST / 8);
    for (uint64_t seq = 0; seq < 2000; seq++) {
        const uint32_t len =
            TT_COPYIN_LEAST - 64 +
            (uint32_t)tt_rng_below(&rng, MOST - TT_COPYIN_LEAST + 65);
        const struct iovec iov = {from + tt_rng_below(&rng, 64), len};
        const tt_msg m = {.magic = TT_MSG_MAGIC, .len = len, .seq = seq};
        memset(iov.iov_base, (int)(seq & 0xff), len);
        p.tx.how.phase = seq % 2 ? TT_COPYIN_PAST : TT_COPYIN_THROUGH;
        assert_true(tt_ring_put(&p.tx, &m, &iov, 1));
        get(&p, seq, len);
        assert_false(tt_ring_has_message(&p.rx));
    }
    free(from);
    channel_free(&p);
}

/* Messages whose payload lies elsewhere, among others. */
static void test_refs(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed()};
    channel p = channel_new();
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t most = tt_ring_max_payload(SIZE);
        uint32_t len = (uint32_t)tt_rng_below(&rng, most + 1);
        if (tt_rng_below(&rng, 2)) {
            assert_true(put(&p, i, len));
            get(&p, i, len);
            continue;
        }
        tt_msg m = {.magic = TT_MSG_MAGIC, .seq = i, .len = len}, came;
        const void *data;
        uint64_t ref = tt_rng_next(&rng), back;
        assert_true(tt_ring_put_ref(&p.tx, &m, ref));
        assert_int_equal(tt_ring_get(&p.rx, &came, &data), TT_RING_REF);
        assert_memory_equal(&came, &m, sizeof(m));
        memcpy(&back, data, sizeof(back));
        assert_int_equal(back, ref);
        tt_ring_done(&p.rx);
    }
    channel_free(&p);
}

/* The sleeper is woken exactly once, by the side that owes it. */
static void test_wake(void **state)
{
    (void)state;
    channel p = channel_new();
    assert_false(tt_ring_must_wake_reader(&p.tx));
    tt_ring_reader_sleeps(&p.rx, true);
    assert_true(put(&p, 0, 8));
    assert_true(tt_ring_must_wake_reader(&p.tx));
    assert_false(tt_ring_must_wake_reader(&p.tx));
    uint64_t n_put = 1;
    while (put(&p, n_put, 1000))
        n_put++;
    assert_false(tt_ring_has_room(&p.tx));
    tt_ring_writer_sleeps(&p.tx, true);
    int n_wakes = 0;
    for (uint64_t i = 0; i < n_put; i++) {
        tt_msg m;
        const void *data;
        assert_int_equal(tt_ring_get(&p.rx, &m, &data), 1);
        n_wakes += tt_ring_done(&p.rx);
    }
    assert_int_equal(n_wakes, 1);
    assert_true(tt_ring_has_room(&p.tx));
    channel_free(&p);
}

/* Wherever the two of them are when the largest message finds no room: who has
 * read all has woken the writer, or told it that there is room. */
static void test_waits_for_room(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed()};
    for (int round = 0; round < 4000; round++) {
        const uint32_t size = round % 8 ? SIZE : LAPS_SIZE;
        const uint32_t most = tt_ring_max_payload(size);
        channel p = channel_of(size);
        uint64_t n_put = 0, n_got = 0;
        static uint32_t lens[2 * LAPS_SIZE / 64];
        for (uint64_t n = tt_rng_below(&rng, size / 16); n > 0; n--) {
            assert_true(put(&p, 0, 0));
            get(&p, 0, 0);
        }
        for (uint64_t n = tt_rng_below(&rng, size / 64); n > 0; n--)
            if (put(&p, n_put, 0))
                lens[n_put++] = 0;
        while (put(&p, n_put, most))
            lens[n_put++] = most;
        tt_ring_writer_sleeps(&p.tx, true);
        int n_wakes = 0;
        for (; n_got < n_put; n_got++) {
            tt_msg m;
            const void *data;
            assert_int_equal(tt_ring_get(&p.rx, &m, &data), TT_RING_MSG);
            assert_int_equal(m.len, lens[n_got]);
            n_wakes += tt_ring_done(&p.rx);
        }
        assert_int_equal(n_wakes, 1);
        assert_true(tt_ring_has_room(&p.tx));
        assert_true(put(&p, n_put, most));
        channel_free(&p);
    }
}

/* The first place behind what messages of this length use of a large ring,
 * whose reader is so many of them behind, and reads on when there is no
 * room. */
static uint64_t used_by(channel *p, uint32_t len, uint64_t behind)
{
    const uint64_t size = p->tx.size, lap = size / (len + 64);
    uint64_t used = 0, n_put = 0, n_got = 0;
    while (n_put < 4 * lap) {
        if (!put(p, n_put, len))
            get(p, n_got++, len);
        else if (++n_put - n_got > behind)
            get(p, n_got++, len);
        const uint64_t at = p->tx.pos & (size - 1);
        used = n_put > 2 * lap && at > used ? at : used;
    }
    for (; n_got < n_put; n_got++)
        get(p, n_got, len);
    return used;
}

/* As many as find room; then they are read. */
static uint64_t fill(channel *p, uint32_t len)
{
    uint64_t n = 0;
    while (put(p, n, len))
        n++;
    for (uint64_t k = 0; k < n; k++)
        get(p, k, len);
    return n;
}

/* Messages go round in as little memory as they need, so that it stays in the
 * caches, while their reader keeps up. When it stops, at least about as many
 * find room as have gone before in this round; behind one that is slow all is
 * used. */
static void test_laps(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20 };
    const struct {
        uint32_t len;
        uint64_t least, most;
    } rows[] = {{0, 64 << 10, 72 << 10},
                {960, 64 << 10, 74 << 10},
                {16 << 10, 256 << 10, 340 << 10},
                {64 << 10, 900 << 10, LARGE},
                {256 << 10, 768 << 10, LARGE}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        channel p = channel_of(LARGE);
        const uint32_t len = rows[i].len;
        assert_true((fill(&p, len) + 2) * (len + 64) >= LARGE);
        used_by(&p, 64 << 10, 0); /* what was long before does not count */
        const uint64_t used = used_by(&p, len, 0);
        printf("# messages of %u bytes use %" PRIu64 "\n", len, used);
        assert_in_range(used, rows[i].least, rows[i].most);
        const uint64_t n = fill(&p, len);
        printf("# and find room for %" PRIu64 "\n", n * (len + 64));
        assert_true((n + 2) * (len + 64) + p.rx.tells >= rows[i].least * 3 / 4);
        const uint64_t in_half = LARGE / 2 / (len + 64);
        assert_true(used_by(&p, len, in_half) + len + 64 >= LARGE);
        channel_free(&p);
    }
}

/* The longest record of a lap counts, also behind shorter ones; and one that is
 * longer still does not wait for the turn. */
static void test_mixed_laps(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20, LONG = 16 << 10 };
    channel p = channel_of(LARGE);
    uint64_t used = 0, n = 0;
    for (int i = 0; i < 4 * LARGE / LONG; i++)
        for (int k = 0; k < 16; k++, n++) {
            const uint32_t len = k == 0 ? LONG : 0;
            assert_true(put(&p, n, len));
            get(&p, n, len);
            const uint64_t at = p.tx.pos & (LARGE - 1);
            used = i > 2 * LARGE / LONG && at > used ? at : used;
        }
    assert_in_range(used, 16 * LONG, 24 * LONG);
    for (int i = 0; i < 4 * LARGE / 64; i++, n++) {
        const uint32_t len = i % 1025 == 1024 ? LARGE / 4 : 0;
        assert_true(put(&p, n, len));
        get(&p, n, len);
    }
    channel_free(&p);
}

/* A writer gone mad: random words at random places, in a ring with traffic.
 * The reader says "broken" or reads something, but stays inside. */
static void test_mad_writer(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed()};
    int n_broken = 0;
    for (int round = 0; round < 3000; round++) {
        channel p = channel_new();
        uint64_t n = tt_rng_below(&rng, 30);
        for (uint64_t i = 0; i < n; i++) {
            put(&p, i, (uint32_t)tt_rng_below(&rng, 600));
            tt_msg m;
            const void *data;
            if (tt_rng_below(&rng, 2) && tt_ring_get(&p.rx, &m, &data) == 1)
                tt_ring_done(&p.rx);
        }
        for (int i = 0; i < 20; i++) {
            uint64_t line = tt_rng_below(&rng, SIZE / 64) * 64;
            uint64_t word = tt_rng_next(&rng);
            if (tt_rng_below(&rng, 2))
                word = (1 + tt_rng_below(&rng, 3)) << 56 |
                       tt_rng_below(&rng, 2 * SIZE / 64) * 64;
            memcpy(p.data + line, &word, 8);
            uint32_t len = (uint32_t)tt_rng_next(&rng) >>
                           tt_rng_below(&rng, 32);
            memcpy(p.data + line + 8 + offsetof(tt_msg, len), &len, 4);
        }
        unsigned sum = 0;
        for (int i = 0; i < 1000; i++) {
            tt_msg m;
            const void *data;
            int got = tt_ring_get(&p.rx, &m, &data);
            n_broken += got < 0;
            if (got <= 0)
                break;
            uint32_t n_bytes = got == TT_RING_REF ? 8 : m.len;
            for (uint32_t k = 0; k < n_bytes; k++)
                sum += ((const unsigned char *)data)[k];
            tt_ring_done(&p.rx);
        }
        (void)sum;
        channel_free(&p);
    }
    assert_true(n_broken > 0);
}

static void test_mad_reader(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed()};
    int n_broken = 0;
    for (int round = 0; round < 3000; round++) {
        channel p = channel_new();
        for (uint64_t i = 0; i < 200; i++) {
            put(&p, i, (uint32_t)tt_rng_below(&rng, SIZE / 4 + 1));
            if (tt_rng_below(&rng, 4) == 0)
                atomic_store(&p.ctl->tail,
                             tt_rng_next(&rng) >> tt_rng_below(&rng, 64));
        }
        n_broken += p.tx.is_broken;
        assert_true(p.tx.limit - p.tx.pos <= SIZE);
        channel_free(&p);
    }
    assert_true(n_broken > 0);
}

/* Messages of a line each, put and read, until the next one is at this
 * place. */
static void move_to(channel *p, uint64_t place)
{
    for (uint64_t i = 0; p->tx.pos % SIZE != place; i++) {
        assert_true(put(p, i, 0));
        get(p, i, 0);
    }
}

/* What a writer claims, exactly: a record reaches to the end of the ring, and
 * no further, and its payload is as long as any may be, and no longer. */
static void test_claims(void **state)
{
    (void)state;
    const uint32_t most = SIZE / 4;
    const struct {
        uint64_t place, kind, bytes;
        uint32_t len;
        int got;
    } claims[] = {
        {SIZE - 128, 1, 128, 64, TT_RING_MSG},
        {SIZE - 64, 1, 128, 64, TT_RING_NONSENSE},
        {SIZE - 64, 1, 64, 8, TT_RING_MSG},
        {SIZE - 64, 1, 64, 9, TT_RING_NONSENSE},
        {64, 1, 64 + most, most, TT_RING_MSG},
        {64, 1, 128 + most, most + 1, TT_RING_NONSENSE},
        {64, 3, 64, most, TT_RING_REF},
        {64, 3, 64, most + 1, TT_RING_NONSENSE},
        {64, 3, 128, 64, TT_RING_NONSENSE},
        {64, 2, SIZE - 64, 0, TT_RING_NONSENSE}, /* nothing comes behind it */
        {64, 2, SIZE - 128, 0, TT_RING_NONSENSE},
        {0, 2, SIZE, 0, TT_RING_NONSENSE},
        {64, 4, 64, 0, TT_RING_NONSENSE},
    };
    for (size_t i = 0; i < sizeof(claims) / sizeof(*claims); i++) {
        channel p = channel_new();
        tt_msg m = {.magic = TT_MSG_MAGIC, .len = claims[i].len};
        const void *data;
        const uint64_t word = claims[i].kind << 56 | claims[i].bytes;
        move_to(&p, claims[i].place);
        memcpy(p.data, &(uint64_t){0}, sizeof(uint64_t));
        memcpy(p.data + claims[i].place, &word, sizeof(word));
        memcpy(p.data + claims[i].place + 8, &m, sizeof(m));
        if (tt_ring_get(&p.rx, &m, &data) != claims[i].got)
            fail_msg("claim %zu", i);
        channel_free(&p);
    }
}

/* What a reader claims: it has read whole lines, no fewer than before, and
 * nothing that was not written. */
static void test_told_tail(void **state)
{
    (void)state;
    enum { READ = 3 };
    const struct {
        int64_t tail; /* from 0; negative: from what is written */
        bool is_broken;
    } claims[] = {{0, false},        {64, false},         {READ * 64, false},
                  {72, true},        {63, true},          {-64, false},
                  {-1, true},        {-64 * READ, false}, {SIZE, true},
                  {SIZE + 64, true}, {INT64_MAX, true},   {INT64_MIN, true}};
    for (size_t i = 0; i < sizeof(claims) / sizeof(*claims); i++) {
        channel p = channel_new();
        uint64_t n = 0;
        while (put(&p, n, 0))
            n++;
        const int64_t tail = claims[i].tail;
        const uint64_t told = tail < 0 ? p.tx.pos + (uint64_t)tail
                                       : (uint64_t)tail;
        atomic_store(&p.ctl->tail, told);
        assert_int_equal(put(&p, n, 0), !claims[i].is_broken && tail != 0);
        assert_int_equal(p.tx.is_broken, claims[i].is_broken);
        assert_true(p.tx.limit - p.tx.pos <= SIZE);
        /* Broken counts as room: what waits for it must not wait on. */
        assert_int_equal(tt_ring_has_room(&p.tx), tail != 0);
        channel_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_past),
        cmocka_unit_test(test_refs),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_mad_writer),
        cmocka_unit_test(test_mad_reader),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_told_tail),
        cmocka_unit_test(test_waits_for_room),
        cmocka_unit_test(test_laps),
        cmocka_unit_test(test_mixed_laps),
    };
    return TT_RUN_TAP(tests);
}
