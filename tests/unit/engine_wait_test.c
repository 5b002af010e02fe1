/* SPDX-License-Identifier: BSD-3-Clause
 * engine_wait_test.c - nobody in the engine sleeps through what it is to see.
 *
 * What ends a wait from outside of the engine is noticed, also when the waiting
 * thread is just going to sleep and the word of it wakes the engine's thread.
 * Missed, the wait sleeps for a second. And a thread that sleeps while a call
 * is begun is woken, or what wakes it is set up for that call, too. How often a
 * wait offers the processor to others depends on whom it waits for. What others
 * wait for goes out before more is taken. */
#include "support/tap.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/state.h"
#include "support/loop.h"
#include "support/rig.h"
#include "support/sums.h"

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
                           .crowd_polls = 1};
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

/* ----------------------------------------------------------- calls begun -- */

enum { CALLS = 60, COUNT = 50000 };

/* The transport, and what rank 0 has sent when it was set up to wake
 * somebody. */
static struct {
    tt_net_ops ops;
    uint64_t n_sent, n_sent_then;
    bool is_armed;
} seen;

static tt_sent watched_send(tt_conn *conn, const tt_msg *m,
                            const struct iovec *iov, int n_iov)
{
    tt_sent sent = tt_net_loop.send(conn, m, iov, n_iov);
    if (conn->net->rank == 0 && sent != TT_FULL)
        seen.n_sent++;
    return sent;
}

static bool watched_arm(tt_net *net, bool on)
{
    bool is_idle = tt_net_loop.arm(net, on);
    if (net->rank == 0) {
        seen.is_armed = on && is_idle;
        seen.n_sent_then = seen.n_sent;
    }
    return is_idle;
}

static void note(void *arg, tutti_err err)
{
    assert_int_equal(err, 0);
    *(atomic_bool *)arg = true;
}

/* Locked, with rank 0's thread asleep. */
static void lock_asleep(tt_engine *e)
{
    for (;;) {
        tt_engine_lock(e);
        if (e->n_sleeping > 0 && seen.is_armed)
            return;
        tt_engine_unlock(e);
        usleep(50);
    }
}

static bool has_been_rung(const tt_engine *e)
{
    struct pollfd bell = {.fd = e->wake_fd, .events = POLLIN};
    return poll(&bell, 1, 0) > 0;
}

static void step(tt_engine *e)
{
    tt_engine_lock(e);
    tt_engine_step(e);
    tt_engine_unlock(e);
}

/* Rank 0 is moved by its thread, rank 1 by hand. Returns whether rank 0's slept
 * on. */
static bool call_once(const tt_rig *rig, tt_program *const programs[2],
                      uint32_t *const at[2])
{
    atomic_bool is_over[2] = {false, false};
    tt_engine *const *e = rig->engines;
    lock_asleep(e[0]);
    assert_int_equal(tt_sum_begin(rig->teams[0][0], programs[0], at[0], 0, note,
                                  &is_over[0]),
                     0);
    tt_engine_kick(e[0], false);
    bool is_rung = has_been_rung(e[0]);
    assert_true(is_rung || (seen.is_armed && seen.n_sent_then == seen.n_sent));
    tt_engine_unlock(e[0]);
    tt_engine_lock(e[1]);
    assert_int_equal(tt_sum_begin(rig->teams[0][1], programs[1], at[1], 0, note,
                                  &is_over[1]),
                     0);
    tt_engine_unlock(e[1]);
    while (!atomic_load(&is_over[0]) || !atomic_load(&is_over[1]))
        step(e[1]);
    for (uint32_t r = 0; r < 2; r++) {
        tt_engine_lock(e[r]);
        assert_null(e[r]->newest); /* it will be another call's */
        tt_engine_unlock(e[r]);
    }
    return !is_rung;
}

static void test_a_sleeper_is_ready_for_a_call(void **state)
{
    (void)state;
    tt_rig rig;
    tt_program *programs[2];
    uint32_t *at[2];
    tutti_diag diag;
    int n_slept = 0;
    seen.ops = tt_net_loop;
    seen.ops.send = watched_send;
    seen.ops.arm = watched_arm;
    tt_regions regions[] = {TT_REGIONS_INIT(&tt_mem_std),
                            TT_REGIONS_INIT(&tt_mem_std)};
    const tt_rig_opts opts = {.n = 2,
                              .ops = &seen.ops,
                              .mem = &tt_mem_std,
                              .direct_bytes = 4096, /* payloads are lent */
                              .regions = regions,
                              .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, &rig), 0);
    for (uint32_t r = 0; r < 2; r++) {
        programs[r] = tt_sum_program(&tt_mem_std, 2, r, COUNT);
        at[r] = tt_regions_alloc(&regions[r], COUNT * sizeof(uint32_t));
    }
    assert_int_equal(tt_engine_start(rig.engines[0], &diag), 0);
    for (int i = 0; i < CALLS; i++)
        n_slept += call_once(&rig, programs, at);
    printf("# of %d calls %d woke nobody\n", CALLS, n_slept);
    for (uint32_t r = 0; r < 2; r++) {
        tt_engine_lock(rig.engines[r]);
        tt_program_unref(programs[r]);
        tt_engine_unlock(rig.engines[r]);
    }
    tt_rig_destroy(&rig);
    for (uint32_t r = 0; r < 2; r++) {
        tt_regions_free(&regions[r], at[r]);
        tt_regions_fini(&regions[r]);
    }
}

/* ------------------------------------------------------------- who polls -- */

enum { NOBODY, PASSES = 96 };

static bool has_polled(const void *arg)
{
    return ((const tt_engine *)arg)->n_passes == PASSES;
}

/* The call never ends well: nobody else makes it. */
static void ignore(void *arg, tutti_err err)
{
    (void)arg;
    (void)err;
}

enum {
    HOME = 1,  /* rank 0 has one */
    LENDS = 2, /* what it has sent is not taken yet */
    BOUND = 4  /* it may send when others have said that they call */
};
typedef struct waited {
    uint64_t count; /* 0: no call */
    unsigned how;
    uint32_t neighbour; /* has the same home */
    uint32_t passes;    /* what is expected */
} waited;

/* Of so many passes that move nothing: after how many the processor is offered.
 * Rank 0 waits in a ring of three, where it sends to rank 1 and rank 2 sends to
 * it. */
static uint32_t passes_per_offer(const waited *w)
{
    tt_rig rig;
    const tt_rig_opts opts = {.n = 3,
                              .ops = &tt_net_loop,
                              .mem = &tt_mem_std,
                              .eager_bytes = w->how & BOUND ? 0 : 1 << 20,
                              .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, &rig), 0);
    tt_engine *e = rig.engines[0];
    tt_peer *peers = rig.meshes[0]->peers;
    tt_program *program = tt_sum_program(&tt_mem_std, 3, 0, w->count + 1);
    uint32_t *at = calloc(w->count + 1, sizeof(*at));
    assert_non_null(at);
    tt_engine_lock(e);
    e->opts.crowd_polls = 3;
    e->opts.home_cpu = w->how & HOME ? 1 : 0;
    e->opts.apart_polls = 32;
    e->opts.spin_ns = e->opts.spin_large_ns = UINT64_MAX;
    if (w->neighbour != NOBODY)
        peers[w->neighbour].shares_home = true;
    if (w->count > 0)
        assert_int_equal(
            tt_sum_begin(rig.teams[0][0], program, at, 0, ignore, NULL), 0);
    do {
        if (!(w->how & LENDS))
            tt_peer_settle(&peers[1]);
    } while (tt_engine_step(e));
    assert_int_equal(peers[1].n_lent > 0, (w->how & LENDS) != 0);
    e->n_passes = e->n_rests = 0;
    tt_engine_wait_locked(e, has_polled, e);
    const uint32_t n_offers = e->n_rests;
    tt_program_unref(program);
    tt_engine_unlock(e);
    tt_rig_destroy(&rig);
    free(at);
    assert_true(n_offers > 0);
    return PASSES / n_offers;
}

static void test_whom_it_waits_for(void **state)
{
    (void)state;
    static const uint64_t few = (16 << 10) - 1, many = few + 3; /* 64 KiB */
    static const waited cases[] = {
        {few, HOME, NOBODY, 32},
        {few, HOME, 1, 32}, /* it has all that could be sent */
        {few, HOME, 2, 1},
        {few, 0, 2, 3},
        {few, HOME | LENDS, NOBODY, 3},
        {few, HOME | LENDS, 1, 1},
        {few, HOME | LENDS, 2, 1},
        {few, LENDS, 1, 3},
        {few, HOME | BOUND, NOBODY, 32},
        {few, HOME | BOUND, 1, 1}, /* it may not be sent to yet */
        {many, HOME, NOBODY, 3},
        {many, HOME, 2, 3},
        {0, HOME, 2, 3},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(passes_per_offer(&cases[i]), cases[i].passes);
}

/* What is to be sent since the last pass goes before what takes long; what
 * finds no room holds up nothing. */
static void test_sends_go_first(void **state)
{
    (void)state;
    tt_rig rig;
    const tt_rig_opts opts = {
        .n = 3, .ops = &tt_net_loop, .mem = &tt_mem_std, .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, &rig), 0);
    tt_engine *e = rig.engines[0];
    tt_peer *peers = rig.meshes[0]->peers;
    tt_engine_lock(e);
    tt_engine_step(e);
    assert_false(tt_engine_up.has_sends(&peers[1]));
    tt_peer_dirty(&peers[1]);
    assert_true(tt_engine_up.has_sends(&peers[1]));
    tt_engine_flush(e);
    assert_false(tt_engine_up.has_sends(&peers[1]));
    const tt_msg nothing = {.magic = TT_MSG_MAGIC, .kind = TT_KIND_CREDIT};
    while (!e->full) {
        tt_peer_tell(&peers[1], &nothing, NULL);
        tt_engine_flush(e);
    }
    assert_ptr_equal(e->dirty, &peers[1]);
    assert_false(tt_engine_up.has_sends(&peers[2]));
    tt_peer_dirty(&peers[2]);
    assert_true(tt_engine_up.has_sends(&peers[2]));
    tt_engine_flush(e);
    assert_ptr_equal(e->dirty, &peers[1]);
    assert_false(tt_engine_up.has_sends(&peers[2]));
    tt_engine_unlock(e);
    for (int i = 0; i < 1000 && e->dirty; i++) {
        step(rig.engines[1]);
        step(e);
    }
    assert_null(e->dirty);
    tt_rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whom_it_waits_for),
        cmocka_unit_test(test_sends_go_first),
        cmocka_unit_test(test_no_word_is_missed),
        cmocka_unit_test(test_a_sleeper_is_ready_for_a_call),
    };
    return TT_RUN_TAP(tests);
}
