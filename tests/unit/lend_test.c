/* SPDX-License-Identifier: BSD-3-Clause
 * lend_test.c - payloads on loan: they come back in order, and what is revoked
 * reaches the borrower as it was, although the lender spoils it at once. */
#include "support/tap.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "net/shm/duplex.h"
#include "support/seed.h"

#define LEN 256
#define N_PAYLOADS 20000

typedef struct pair {
    tt_lend_ctl *ctl;
    unsigned char *area;
    tt_lender lender;
    tt_borrower borrower;
    unsigned char data[TT_LEND_MAX][LEN];
    _Atomic uint64_t shown; /* in place of a ring */
    _Atomic bool is_wrong;
} pair;

static pair *pair_new(void)
{
    pair *p = calloc(1, sizeof(*p));
    p->ctl = aligned_alloc(TT_CACHE_LINE, sizeof(*p->ctl));
    memset(p->ctl, 0, sizeof(*p->ctl));
    p->area = malloc(tt_lend_area_bytes(LEN));
    tt_lender_init(&p->lender, p->ctl, p->area, LEN);
    tt_borrower_init(&p->borrower, p->ctl, p->area, LEN);
    return p;
}

static void pair_free(pair *p)
{
    free(p->ctl);
    free(p->area);
    free(p);
}

static unsigned char *data_of(pair *p, uint64_t n)
{
    return p->data[n % TT_LEND_MAX];
}

static void lend(pair *p)
{
    uint64_t n = p->lender.n_lent;
    memset(data_of(p, n), (int)(n % 251), LEN);
    tt_lend_add(&p->lender, data_of(p, n), LEN);
    atomic_store(&p->shown, n + 1);
}

/* Takes the next payload; false: not now. */
static bool take(pair *p, uint64_t n)
{
    const unsigned char *data = tt_borrow_begin(&p->borrower, data_of(p, n),
                                                LEN);
    if (!data)
        return false;
    for (size_t i = 0; i < LEN; i++)
        if (data[i] != n % 251)
            atomic_store(&p->is_wrong, true);
    tt_borrow_end(&p->borrower);
    return true;
}

static void test_order(void **state)
{
    (void)state;
    pair *p = pair_new();
    assert_false(tt_lend_is_out(&p->lender));
    for (int i = 0; i < TT_LEND_MAX; i++) {
        assert_true(tt_lend_has_room(&p->lender));
        lend(p);
    }
    assert_false(tt_lend_has_room(&p->lender));
    assert_int_equal(tt_lend_collect(&p->lender), 0);
    assert_true(tt_lend_is_out(&p->lender));
    assert_false(tt_lend_is_back(&p->lender));
    for (uint64_t n = 0; n < 3; n++)
        assert_true(take(p, n));
    assert_true(tt_lend_is_back(&p->lender));
    assert_int_equal(tt_lend_collect(&p->lender), 3);
    assert_int_equal(tt_lend_collect(&p->lender), 0);
    assert_false(tt_lend_is_back(&p->lender));
    assert_true(tt_lend_has_room(&p->lender));
    tt_lend_add(&p->lender, p->data[0], LEN);
    tt_lend_undo(&p->lender);
    assert_true(tt_lend_revoke(&p->lender));
    assert_false(tt_lend_is_out(&p->lender));
    memset(p->data, 0xff, sizeof(p->data));
    assert_true(tt_lend_revoke(&p->lender)); /* nothing is out */
    for (uint64_t n = 3; n < TT_LEND_MAX; n++)
        assert_true(take(p, n));
    assert_false(atomic_load(&p->is_wrong));
    assert_int_equal(tt_lend_collect(&p->lender), 0); /* not reported */
    lend(p);
    assert_true(take(p, TT_LEND_MAX));
    assert_int_equal(tt_lend_collect(&p->lender), 1);
    pair_free(p);
}

static void test_wake(void **state)
{
    (void)state;
    pair *p = pair_new();
    lend(p);
    lend(p);
    assert_false(tt_borrow_must_wake(&p->borrower));
    assert_true(take(p, 0));
    assert_false(tt_borrow_must_wake(&p->borrower)); /* it does not sleep */
    tt_lender_sleeps(&p->lender, true);
    assert_false(tt_borrow_must_wake(&p->borrower)); /* it was told */
    assert_true(take(p, 1));
    assert_true(tt_borrow_must_wake(&p->borrower));
    assert_false(tt_borrow_must_wake(&p->borrower));
    pair_free(p);
}

/* Of a borrower that is in the middle of a payload nothing is taken back until
 * it has read it to the end; then all, and it reads the next one aside. */
static void test_in_the_middle(void **state)
{
    (void)state;
    pair *p = pair_new();
    uint32_t len;
    for (int i = 0; i < 3; i++)
        lend(p);
    assert_true(take(p, 0));
    assert_non_null(tt_borrow_begin(&p->borrower, p->data[1], LEN));
    for (int i = 0; i < 2; i++) {
        assert_false(tt_lend_revoke(&p->lender));
        assert_ptr_equal(tt_lend_being_read(&p->lender, &len), p->data[1]);
        assert_int_equal(len, LEN);
    }
    assert_int_equal(tt_lend_collect(&p->lender), 1);
    tt_borrow_end(&p->borrower);
    assert_null(tt_borrow_begin(&p->borrower, p->data[2], LEN)); /* not yet */
    assert_true(tt_lend_revoke(&p->lender));
    memset(p->data, 0xff, sizeof(p->data));
    assert_int_equal(tt_lend_collect(&p->lender), 0);
    /* What it reads aside keeps nobody from revoking. */
    assert_ptr_not_equal(tt_borrow_begin(&p->borrower, p->data[2], LEN),
                         p->data[2]);
    lend(p);
    assert_true(tt_lend_revoke(&p->lender));
    assert_true(take(p, 2));
    memset(p->data, 0xff, sizeof(p->data));
    assert_true(take(p, 3));
    assert_false(atomic_load(&p->is_wrong));
    pair_free(p);
}

/* Whatever the borrower writes, the lender notices or does not care. */
static void test_nonsense(void **state)
{
    (void)state;
    static const uint64_t values[] = {5, 6, 7, UINT64_MAX, UINT64_MAX - 1};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        pair *p = pair_new();
        lend(p);
        lend(p);
        assert_true(take(p, 0));
        assert_int_equal(tt_lend_collect(&p->lender), 1);
        atomic_store(&p->ctl->taken, values[i]);
        assert_int_equal(tt_lend_collect(&p->lender), 0);
        assert_true(p->lender.is_broken);
        assert_true(tt_lend_revoke(&p->lender));
        pair_free(p);
    }
    pair *p = pair_new();
    lend(p);
    assert_true(take(p, 0));
    assert_int_equal(tt_lend_collect(&p->lender), 1);
    atomic_store(&p->ctl->taken, 0); /* backwards */
    lend(p);
    assert_int_equal(tt_lend_collect(&p->lender), 0);
    assert_true(p->lender.is_broken);
    pair_free(p);
}

static void *borrow_all(void *arg)
{
    pair *p = arg;
    for (uint64_t n = 0; n < N_PAYLOADS; n++) {
        while (atomic_load(&p->shown) <= n || !take(p, n))
            sched_yield();
    }
    return NULL;
}

/* Revokes at random moments and spoils at once what it got back. */
static void test_race(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(11)};
    pair *p = pair_new();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, borrow_all, p), 0);
    uint64_t n_back = 0, n_revoked = 0;
    while (n_back + n_revoked < N_PAYLOADS) {
        if (p->lender.n_lent < N_PAYLOADS && tt_lend_has_room(&p->lender))
            lend(p);
        else
            sched_yield();
        if (tt_rng_below(&rng, 40) == 0) {
            uint64_t n = p->lender.n_lent - p->lender.n_back;
            while (!tt_lend_revoke(&p->lender))
                sched_yield();
            n_revoked += n;
            memset(p->data, 0xff, sizeof(p->data));
        }
        n_back += tt_lend_collect(&p->lender);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(atomic_load(&p->is_wrong));
    assert_false(p->lender.is_broken);
    assert_int_equal(n_back + n_revoked, N_PAYLOADS);
    assert_true(n_back > 0 && n_revoked > 0);
    pair_free(p);
}

/* ------------------------------------------------------- two of a duplex -- */

#define RING 16384u

typedef struct ends {
    unsigned char *memory;
    size_t bytes;
    tt_duplex d[2];
    tt_net net;
    tt_conn conn;
} ends;

static uint64_t n_arrived, n_left;
static uint64_t n_awaited = UINT64_MAX; /* messages; then who waits is served */

static void on_arrived(void *peer, const tt_msg *m, const void *data)
{
    (void)peer;
    (void)data;
    n_arrived += m->kind == 1;
}

static bool is_served(void *peer)
{
    (void)peer;
    return n_arrived == n_awaited;
}

static bool there_are_sends;

static bool has_sends(void *peer)
{
    (void)peer;
    return there_are_sends;
}

static void on_left(void *peer, uint64_t n)
{
    (void)peer;
    n_left += n;
}

static const void *resolve(void *arg, uint64_t ref, uint32_t len)
{
    (void)len;
    return (const unsigned char *)arg + ref;
}

static void open_ends(ends *e, unsigned char *lent)
{
    static const tt_net_up up = {.arrived = on_arrived,
                                 .is_served = is_served,
                                 .has_sends = has_sends,
                                 .left = on_left};
    *e = (ends){.bytes = tt_duplex_bytes(RING)};
    e->net.up = &up;
    e->conn.net = &e->net;
    e->memory = aligned_alloc(4096, (e->bytes + 4095) / 4096 * 4096);
    assert_non_null(e->memory);
    memset(e->memory, 0, e->bytes);
    for (int side = 0; side < 2; side++)
        tt_duplex_init(&e->d[side], e->memory, RING, side, resolve, lent);
    n_arrived = n_left = 0;
}

/* Both sides mean the same places, which have nothing in common. */
static void test_places(void **state)
{
    (void)state;
    ends e;
    open_ends(&e, NULL);
    const tt_duplex *a = &e.d[0], *b = &e.d[1];
    assert_ptr_equal(a->tx.data, b->rx.data);
    assert_ptr_equal(b->tx.data, a->rx.data);
    assert_ptr_equal(a->lender.area, b->borrower.area);
    assert_ptr_equal(b->lender.area, a->borrower.area);
    size_t area = tt_lend_area_bytes(tt_ring_max_payload(RING));
    const struct {
        const unsigned char *at;
        size_t bytes;
    } parts[] = {{e.memory, 4096},
                 {a->tx.data, RING},
                 {b->tx.data, RING},
                 {a->lender.area, area},
                 {b->lender.area, area}};
    for (size_t i = 0; i < 5; i++) {
        assert_true(parts[i].at >= e.memory &&
                    parts[i].at + parts[i].bytes <= e.memory + e.bytes);
        for (size_t k = 0; k < i; k++)
            assert_true(parts[i].at >= parts[k].at + parts[k].bytes ||
                        parts[k].at >= parts[i].at + parts[i].bytes);
    }
    free(e.memory);
}

/* Who sleeps while its payloads are out is woken when they are back. */
static void test_sleeper(void **state)
{
    (void)state;
    static unsigned char data[LEN];
    ends e;
    open_ends(&e, data);
    const tt_msg m = {.magic = TT_MSG_MAGIC, .kind = 1, .len = LEN};
    bool wake = false;
    assert_int_equal(tt_duplex_lend(&e.d[0], &m, data, 0, &wake), TT_QUEUED);
    tt_duplex_announce(&e.d[0]);
    assert_false(tt_duplex_has_work(&e.d[0]));
    assert_int_equal(tt_duplex_drain(&e.d[1], &e.conn, &wake), 1);
    assert_true(wake);
    assert_true(tt_duplex_has_work(&e.d[0]));
    tt_duplex_withdraw(&e.d[0]);
    assert_int_equal(tt_duplex_drain(&e.d[0], &e.conn, &wake), 1);
    assert_int_equal(n_arrived, 1);
    assert_int_equal(n_left, 1);
    free(e.memory);
}

/* Who was refused is told once that there is room, and only then. */
static void test_room(void **state)
{
    (void)state;
    ends e;
    open_ends(&e, NULL);
    const tt_msg m = {.magic = TT_MSG_MAGIC, .kind = 1};
    bool wake = false;
    assert_false(tt_duplex_found_room(&e.d[0]));
    uint64_t n_sent = 0;
    while (tt_duplex_send(&e.d[0], &m, NULL, 0, &wake) == TT_LEFT)
        n_sent++;
    assert_false(tt_duplex_found_room(&e.d[0]));
    while (n_arrived < n_sent)
        tt_duplex_drain(&e.d[1], &e.conn, &wake);
    assert_true(tt_duplex_found_room(&e.d[0]));
    assert_false(tt_duplex_found_room(&e.d[0]));
    free(e.memory);
}

/* Few small messages are handed up together, however much came before. */
static void test_drain(void **state)
{
    (void)state;
    ends e;
    open_ends(&e, NULL);
    const tt_msg m = {.magic = TT_MSG_MAGIC, .kind = 1};
    bool wake = false;
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 20; i++)
            assert_int_equal(tt_duplex_send(&e.d[0], &m, NULL, 0, &wake),
                             TT_LEFT);
        assert_int_equal(tt_duplex_drain(&e.d[1], &e.conn, &wake), 20);
    }
    free(e.memory);
}

/* What comes behind the message that is waited for stays where it is, and is
 * handed up when somebody comes again. */
static void test_served(void **state)
{
    (void)state;
    ends e;
    open_ends(&e, NULL);
    const tt_msg m = {.magic = TT_MSG_MAGIC, .kind = 1};
    bool wake = false;
    for (int i = 0; i < 5; i++)
        assert_int_equal(tt_duplex_send(&e.d[0], &m, NULL, 0, &wake), TT_LEFT);
    n_awaited = 2;
    assert_int_equal(tt_duplex_drain(&e.d[1], &e.conn, &wake), 2);
    n_awaited = UINT64_MAX;
    assert_true(tt_duplex_has_work(&e.d[1]));
    assert_int_equal(tt_duplex_drain(&e.d[1], &e.conn, &wake), 3);
    free(e.memory);
}

/* What takes long waits until others have what they wait for: not the first
 * message, or nothing would ever go on, and nothing that is short. */
static void test_sends_go_first(void **state)
{
    (void)state;
    static const struct {
        uint32_t len;
        int n_taken;
    } rows[] = {{4095, 4}, {4096, 1}};
    static unsigned char data[4096];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ends e;
        open_ends(&e, data);
        const tt_msg m = {.magic = TT_MSG_MAGIC, .kind = 1, .len = rows[i].len};
        const struct iovec iov = {data, m.len};
        bool wake = false;
        for (int k = 0; k < 2; k++) {
            assert_int_equal(tt_duplex_send(&e.d[0], &m, &iov, 1, &wake),
                             TT_LEFT);
            assert_int_equal(tt_duplex_lend(&e.d[0], &m, data, 0, &wake),
                             TT_QUEUED);
        }
        there_are_sends = true;
        assert_int_equal(tt_duplex_drain(&e.d[1], &e.conn, &wake),
                         rows[i].n_taken);
        if (rows[i].n_taken < 4)
            assert_int_equal(tt_duplex_drain(&e.d[1], &e.conn, &wake), 1);
        there_are_sends = false;
        while (n_arrived < 4)
            assert_true(tt_duplex_drain(&e.d[1], &e.conn, &wake) > 0);
        free(e.memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),          cmocka_unit_test(test_wake),
        cmocka_unit_test(test_in_the_middle),  cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_race),           cmocka_unit_test(test_places),
        cmocka_unit_test(test_sleeper),        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_room),           cmocka_unit_test(test_served),
        cmocka_unit_test(test_sends_go_first),
    };
    return TT_RUN_TAP(tests);
}
