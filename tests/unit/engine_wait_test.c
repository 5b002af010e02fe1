/* SPDX-License-Identifier: BSD-3-Clause
 * engine_wait_test.c - what ends a wait from outside of the engine is noticed,
 * also when the waiting thread is just going to sleep and the word of it wakes
 * the engine's thread. Missed, the wait sleeps for a second. */
#include "support/tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"

/* A busy machine may hold up a wait now and then; missed words are a third. */
enum { WAITS = 100, MOST_LATE = 8 };

typedef struct word {
    tt_engine *e;
    atomic_bool is_said;
    useconds_t after_us;
} word;

static bool is_said(const void *arg)
{
    const word *w = arg;
    return atomic_load(&w->is_said);
}

static void *say(void *arg)
{
    word *w = arg;
    usleep(w->after_us);
    tt_engine_lock(w->e);
    atomic_store(&w->is_said, true);
    tt_engine_wake(w->e);
    tt_engine_unlock(w->e);
    return NULL;
}

static uint64_t wait_once(tt_engine *e, useconds_t after_us)
{
    word w = {.e = e, .after_us = after_us};
    pthread_t thread;
    uint64_t before = tt_now_ns();
    atomic_init(&w.is_said, false);
    assert_int_equal(pthread_create(&thread, NULL, say, &w), 0);
    tt_engine_wait(e, is_said, &w, false);
    uint64_t took = tt_now_ns() - before;
    pthread_join(thread, NULL);
    return took;
}

static void test_no_word_is_missed(void **state)
{
    (void)state;
    tt_engine *e;
    tutti_diag diag;
    tt_engine_opts opts = {.spin_ns = 100 * TT_NS_PER_US,
                           .spin_large_ns = 100 * TT_NS_PER_US,
                           .spin_aside_ns = 100 * TT_NS_PER_US,
                           .yields = true};
    assert_int_equal(tt_engine_create(&tt_mem_std, &opts, &e, &diag), 0);
    assert_int_equal(tt_engine_start(e, &diag), 0);
    int n_late = 0;
    for (int i = 0; i < WAITS && n_late <= MOST_LATE; i++) {
        usleep(25000); /* the engine's thread goes to sleep */
        n_late += wait_once(e, (useconds_t)(i % 40) * 5) > TT_NS_PER_S * 9 / 10;
    }
    tt_engine_destroy(e);
    assert_true(n_late <= MOST_LATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_word_is_missed),
    };
    return TT_RUN_TAP(tests);
}
