/* SPDX-License-Identifier: BSD-3-Clause
 * entrance_test.c - newcomers at an entrance: they are invited in the order in
 * which they came, each as another rank; those who have gone are forgotten; an
 * invitation that makes no sense is refused. */
#include "support/tap.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "boot/boot.h"

typedef struct guest {
    tt_knock *knock;
    pthread_t thread;
    uint64_t most_ns;
    tt_invitation inv;
    tutti_err err;
    tutti_diag diag;
} guest;

static tt_settings settings;
static tt_launch place;

static tt_entrance *open_one(void)
{
    static int n;
    tt_entrance *e;
    tutti_diag diag;
    place = (tt_launch){.listen_fd = -1};
    snprintf(place.job, sizeof(place.job), "entrance-test-%d-%d", (int)getpid(),
             n++);
    assert_int_equal(tt_settings_read(&settings, &diag), 0);
    assert_int_equal(
        tt_entrance_open(&tt_mem_std, &place, &settings, &e, &diag), 0);
    assert_true(tt_entrance_is_here(e));
    return e;
}

static void *wait_to_be_invited(void *arg)
{
    guest *g = arg;
    g->err = tt_knock_wait(g->knock, tt_now_ns() + g->most_ns, &g->inv,
                           &g->diag);
    return NULL;
}

static void come(guest *g, uint64_t most_ns)
{
    *g = (guest){.most_ns = most_ns};
    assert_int_equal(
        tt_knock_open(&tt_mem_std, &place, &settings, &g->knock, &g->diag), 0);
    assert_int_equal(pthread_create(&g->thread, NULL, wait_to_be_invited, g),
                     0);
}

static void await(tt_entrance *e, uint32_t n)
{
    while (tt_entrance_guests(e) != n)
        usleep(1000);
}

/* One behind the other. */
static void come_all(tt_entrance *e, guest *guests, uint32_t n,
                     uint64_t most_ns)
{
    for (uint32_t i = 0; i < n; i++) {
        come(&guests[i], most_ns);
        await(e, i + 1);
    }
}

/* It has been invited, or has gone. */
static void end(guest *g)
{
    pthread_join(g->thread, NULL);
    tt_knock_close(g->knock);
}

static tt_invitation some(uint32_t n_ranks)
{
    return (tt_invitation){
        .n_ranks = n_ranks, .wait_ms = 7, .job = "some job", .place = "there"};
}

#define LONG (100 * TT_NS_PER_S)

static void invited_in_order(void **state)
{
    guest guests[4];
    const tt_invitation inv = some(9);
    tt_entrance *e = open_one();
    (void)state;
    assert_int_equal(tt_entrance_guests(e), 0);
    assert_true(tt_entrance_has(e, 0));
    assert_false(tt_entrance_has(e, 1));
    come_all(e, guests, 4, LONG);
    assert_true(tt_entrance_has(e, 4));
    assert_false(tt_entrance_has(e, 5));
    assert_true(tt_entrance_invite(e, &inv, 3));
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(guests[i].thread, NULL);
        assert_int_equal(guests[i].err, 0);
        assert_int_equal(guests[i].inv.rank, 6 + i);
        assert_int_equal(guests[i].inv.n_ranks, 9);
        assert_int_equal(guests[i].inv.wait_ms, 7);
        assert_string_equal(guests[i].inv.job, "some job");
        assert_string_equal(guests[i].inv.place, "there");
    }
    tt_entrance_dismiss(e, 3);
    assert_int_equal(tt_entrance_guests(e), 1); /* who came last */
    assert_false(tt_entrance_invite(e, &inv, 2));
    end(&guests[3]);
    assert_int_equal(guests[3].inv.rank, 7);
    tt_entrance_dismiss(e, 2); /* one more than there are */
    assert_int_equal(tt_entrance_guests(e), 0);
    for (int i = 0; i < 3; i++)
        tt_knock_close(guests[i].knock);
    tt_entrance_close(e);
}

/* Of three who were invited the second goes. */
static void gone_is_forgotten(void **state)
{
    guest guests[4];
    tt_invitation inv = some(5);
    tt_entrance *e = open_one();
    (void)state;
    come_all(e, guests, 3, LONG);
    assert_true(tt_entrance_invite(e, &inv, 3));
    for (int i = 0; i < 3; i++)
        pthread_join(guests[i].thread, NULL);
    assert_true(tt_entrance_has(e, 3));
    tt_knock_close(guests[1].knock);
    while (tt_entrance_has(e, 3))
        usleep(1000);
    assert_true(tt_entrance_has(e, 1));
    assert_false(tt_entrance_has(e, 2));
    await(e, 2);
    assert_true(tt_entrance_has(e, 2));
    come(&guests[3], LONG);
    await(e, 3);
    tt_entrance_dismiss(e, 2);
    assert_true(tt_entrance_invite(e, &inv, 1));
    end(&guests[3]);
    assert_int_equal(guests[3].err, 0);
    assert_int_equal(guests[3].inv.rank, 4);
    tt_knock_close(guests[0].knock);
    tt_knock_close(guests[2].knock);
    tt_entrance_close(e);
}

/* More than there is room for: some wait outside. */
static void crowd_waits(void **state)
{
    enum { N = TT_GUESTS_MAX + 2 };
    static guest guests[N];
    bool is_taken[N] = {false};
    const tt_invitation inv = some(N);
    tt_entrance *e = open_one();
    (void)state;
    for (int i = 0; i < N; i++)
        come(&guests[i], LONG);
    await(e, TT_GUESTS_MAX);
    assert_false(tt_entrance_has(e, TT_GUESTS_MAX + 1));
    assert_true(tt_entrance_invite(e, &inv, TT_GUESTS_MAX));
    tt_entrance_dismiss(e, TT_GUESTS_MAX);
    await(e, 2);
    assert_true(tt_entrance_invite(e, &inv, 2));
    for (int i = 0; i < N; i++) {
        end(&guests[i]);
        assert_int_equal(guests[i].err, 0);
        assert_in_range(guests[i].inv.rank, 2, N - 1);
        is_taken[guests[i].inv.rank] = true;
    }
    for (int r = 2; r < N; r++)
        assert_true(is_taken[r]);
    tt_entrance_close(e);
}

static void waits_in_vain(void **state)
{
    guest g;
    tt_entrance *e = open_one();
    (void)state;
    come_all(e, &g, 1, 300 * TT_NS_PER_MS); /* nobody invites it */
    end(&g);
    assert_int_equal(g.err, TUTTI_ETIMEOUT);
    assert_non_null(strstr(g.diag.text, "it was not invited"));
    await(e, 0);
    come_all(e, &g, 1, 2 * TT_NS_PER_S);
    tt_entrance_close(e); /* it looks for another one */
    end(&g);
    assert_int_equal(g.err, TUTTI_ETIMEOUT);
    assert_non_null(strstr(g.diag.text, place.job));
    assert_null(strstr(g.diag.text, "it was not invited"));
}

static void sense_and_nonsense(void **state)
{
    guest g;
    tt_invitation inv = some(2);
    (void)state;
    inv.rank = 1;
    assert_true(tt_invitation_is_sound(&inv));
    inv.rank = 2;
    assert_false(tt_invitation_is_sound(&inv));
    inv.n_ranks = UINT16_MAX;
    assert_true(tt_invitation_is_sound(&inv));
    inv.n_ranks++;
    assert_false(tt_invitation_is_sound(&inv));
    inv.rank = 0;
    inv.n_ranks = 1;
    assert_false(tt_invitation_is_sound(&inv));
    inv = some(2);
    inv.wait_ms = 0;
    assert_false(tt_invitation_is_sound(&inv));
    inv = some(2);
    inv.job[0] = '\0';
    assert_false(tt_invitation_is_sound(&inv));
    memset(inv.job, 'x', sizeof(inv.job));
    assert_false(tt_invitation_is_sound(&inv));
    inv.job[sizeof(inv.job) - 1] = '\0';
    assert_true(tt_invitation_is_sound(&inv));
    memset(inv.place, 'x', sizeof(inv.place));
    assert_false(tt_invitation_is_sound(&inv));
    tt_entrance *e = open_one();
    come_all(e, &g, 1, LONG);
    assert_true(tt_entrance_invite(e, &inv, 1));
    end(&g);
    assert_int_equal(g.err, TUTTI_EPROTO);
    assert_non_null(strstr(g.diag.text, "makes no sense"));
    tt_entrance_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invited_in_order),
        cmocka_unit_test(gone_is_forgotten),
        cmocka_unit_test(crowd_waits),
        cmocka_unit_test(waits_in_vain),
        cmocka_unit_test(sense_and_nonsense),
    };
    tt_test_limit(120);
    return TT_RUN_TAP(tests);
}
