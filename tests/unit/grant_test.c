/* SPDX-License-Identifier: BSD-3-Clause
 * grant_test.c - buffers within another's reach: places, numbers that do not
 * come twice, and that nobody touches what was taken back. */
#include "support/tap.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "net/shm/grant.h"

static tt_grant_ctl *ctl_new(void)
{
    tt_grant_ctl *ctl = aligned_alloc(TT_CACHE_LINE, sizeof(*ctl));
    memset(ctl, 0, sizeof(*ctl));
    return ctl;
}

static void places_and_numbers(void **state)
{
    (void)state;
    tt_grant_ctl *ctl = ctl_new();
    tt_granter g = {.ctl = ctl};
    uint64_t first[TT_GRANTS_MAX];
    assert_false(
        tt_grant_hold(ctl, 0)); /* no grant, though no place is valid */
    assert_false(tt_grant_hold(ctl, TT_GRANTS_MAX));
    for (int i = 0; i < TT_GRANTS_MAX; i++) {
        first[i] = tt_grant_open(&g);
        assert_int_not_equal(first[i], 0);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(tt_grant_place(first[i]),
                                 tt_grant_place(first[k]));
    }
    assert_int_equal(tt_grant_open(&g), 0);
    assert_true(tt_grant_close(&g, first[3]));
    assert_true(tt_grant_close(&g, first[3])); /* once more */
    uint64_t again = tt_grant_open(&g);
    assert_int_equal(tt_grant_place(again), tt_grant_place(first[3]));
    assert_false(tt_grant_hold(ctl, first[3]));
    assert_true(tt_grant_hold(ctl, again));
    /* What is held delays nobody else's end. */
    assert_true(tt_grant_close(&g, first[0]));
    tt_grant_release(ctl);
    tt_grant_close_all(&g);
    assert_false(tt_grant_hold(ctl, again));
    free(ctl);
}

/* While a guest is in the middle the grant is closed, but not free. */
static void a_guest_in_the_middle(void **state)
{
    (void)state;
    tt_grant_ctl *ctl = ctl_new();
    tt_granter g = {.ctl = ctl};
    uint64_t number = tt_grant_open(&g), other = tt_grant_open(&g);
    assert_true(tt_grant_hold(ctl, number));
    assert_false(tt_grant_close(&g, number));
    assert_false(tt_grant_close(&g, number));
    assert_true(tt_grant_close(&g, other));
    tt_grant_release(ctl);
    assert_false(tt_grant_hold(ctl, number));
    assert_true(tt_grant_close(&g, number));
    free(ctl);
}

enum { ROUNDS = 20000, BYTES = 512 };

typedef struct scene {
    tt_grant_ctl *ctl;
    unsigned char memory[BYTES];
    _Atomic uint64_t number; /* in place of a message */
    _Atomic bool is_over;
} scene;

static void *be_guest(void *arg)
{
    scene *s = arg;
    while (!atomic_load(&s->is_over)) {
        if (!tt_grant_hold(s->ctl, atomic_load(&s->number)))
            continue;
        for (int i = 0; i < BYTES; i++)
            s->memory[i] = 0xee;
        tt_grant_release(s->ctl);
    }
    return NULL;
}

/* After close() the memory is the owner's, whatever the guest is doing. */
static void nothing_is_touched_afterwards(void **state)
{
    (void)state;
    scene s = {.ctl = ctl_new()};
    tt_granter g = {.ctl = s.ctl};
    pthread_t guest;
    assert_int_equal(pthread_create(&guest, NULL, be_guest, &s), 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t number = tt_grant_open(&g);
        atomic_store(&s.number, number);
        if (round % 16 == 0)
            sched_yield();
        while (!tt_grant_close(&g, number))
            sched_yield();
        memset(s.memory, round % 200, BYTES);
        if (round % 64 == 0)
            sched_yield();
        for (int i = 0; i < BYTES; i++)
            assert_int_equal(s.memory[i], round % 200);
    }
    atomic_store(&s.is_over, true);
    pthread_join(guest, NULL);
    free(s.ctl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_numbers),
        cmocka_unit_test(a_guest_in_the_middle),
        cmocka_unit_test(nothing_is_touched_afterwards),
    };
    return TT_RUN_TAP(tests);
}
