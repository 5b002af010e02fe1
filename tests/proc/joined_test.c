/* SPDX-License-Identifier: BSD-3-Clause
 * joined_test.c - a newcomer of partial reduce compares what it has with the
 * worker that has given it the model: nothing differs, or the first difference
 * is named; a worker that does not compare, and one that is told nothing. Who
 * waits meanwhile says for whom. */
#include "support/tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti.h>

#include "support/seed.h"

enum { COUNT = 100 };

typedef struct member {
    tutti_partial *p;
    float model[COUNT], frozen[COUNT];
    tutti_shared has[3];
    size_t n;
} member;

static tutti_controller *controller;
static char where[32];
static _Atomic bool is_over, compares = true;
static member first;

/* Where worker 0 stays, in a group of several, until the other one has said
 * twice that it waits. */
typedef enum place { NOWHERE, BUFFER, COMPARISON } place;
static _Atomic place stays;
static const char *lines[2]; /* that it says; set while worker 0 goes on */
static _Atomic int n_said, n_of_ranks;

static void hear(void *arg, tutti_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (atomic_load(&stays) == NOWHERE)
        return;
    const int n = atomic_load(&n_said);
    if (n < 2 && strstr(line, lines[n]))
        atomic_store(&n_said, n + 1);
    if (strstr(line, " s for rank"))
        atomic_fetch_add(&n_of_ranks, 1);
}

static void stay(const member *m, place at)
{
    tutti_partial_group g;
    if (m != &first || tutti_partial_group_of(m->p, &g) || g.n < 2)
        return;
    while (atomic_load(&stays) == at && atomic_load(&n_said) < 2)
        usleep(1000);
    if (atomic_load(&stays) == at)
        atomic_store(&stays, NOWHERE);
}

static void open_member(member *m, int number, float value)
{
    for (int i = 0; i < COUNT; i++) {
        m->model[i] = value;
        m->frozen[i] = (float)i;
    }
    m->n = 2;
    m->has[0] = (tutti_shared){"layer1.weight", m->model, sizeof(m->model)};
    m->has[1] = (tutti_shared){"layer4.weight", m->frozen, sizeof(m->frozen)};
    m->has[2] = (tutti_shared){NULL, m->frozen, 1};
    if (tutti_partial_join(where, number, NULL, &m->p))
        fail_msg("%s", tutti_last_message());
}

static tutti_err average(member *m, uint64_t step)
{
    tutti_err err = tutti_partial_announce(m->p, step, false, NULL, NULL);
    stay(m, BUFFER);
    if (!err)
        err = tutti_partial_reduce(m->p, m->model, COUNT, TUTTI_F32, NULL,
                                   NULL);
    return err ? err : tutti_partial_commit(m->p, NULL, NULL);
}

static tutti_difference compare(member *m, tutti_err want)
{
    tutti_difference d = TUTTI_DIFFERENCE_INIT;
    tutti_err err = tutti_partial_compare(m->p, m->has, m->n, &d);
    if (err != want)
        fail_msg("%s", tutti_partial_message(m->p));
    return d;
}

/* Worker 0 has a model, and steps. */
static void *go_on(void *unused)
{
    (void)unused;
    for (uint64_t step = 1; !atomic_load(&is_over); step++) {
        assert_int_equal(average(&first, step), TUTTI_OK);
        stay(&first, COMPARISON);
        if (atomic_load(&compares))
            assert_int_equal(compare(&first, TUTTI_OK).n_ranks, 0);
        usleep(1000);
    }
    return NULL;
}

/* Until it has the others' model. */
static void catch_up(member *m)
{
    tutti_partial_info info;
    tutti_partial_describe(m->p, &info);
    assert_true(info.is_newcomer);
    assert_int_equal(average(m, 1), TUTTI_OK);
    tutti_partial_describe(m->p, &info);
    assert_false(info.is_newcomer);
    assert_true(info.n_workers > info.worker);
}

static void test_nothing_differs(void **state)
{
    (void)state;
    member m;
    open_member(&m, 9, 1e30F);
    tutti_difference d = TUTTI_DIFFERENCE_INIT;
    assert_int_equal(tutti_partial_compare(m.p, m.has, 2, &d), TUTTI_EINVAL);
    assert_non_null(strstr(tutti_partial_message(m.p), "commit a group first"));
    catch_up(&m);
    assert_int_equal(compare(&m, TUTTI_OK).n_ranks, 0);
    /* It is a newcomer no longer: others have nothing to say. */
    assert_int_equal(average(&m, 2), TUTTI_OK);
    m.frozen[0]++;
    assert_int_equal(compare(&m, TUTTI_OK).n_ranks, 0);
    tutti_partial_leave(m.p);
    /* It comes back, and takes their model once more. */
    assert_int_equal(tutti_partial_rejoin(m.p, false), TUTTI_OK);
    catch_up(&m);
    assert_int_equal(compare(&m, TUTTI_OK).n_ranks, 1);
    tutti_partial_close(m.p);
}

static void test_first_difference(void **state)
{
    (void)state;
    int who = -1;
    member m;
    tutti_difference d = TUTTI_DIFFERENCE_INIT;
    open_member(&m, 5, 1e30F);
    m.frozen[COUNT - 1]++;
    catch_up(&m);
    d.ranks = &who;
    assert_int_equal(tutti_partial_compare(m.p, m.has, 2, &d), TUTTI_OK);
    assert_int_equal(d.n_ranks, 1);
    assert_int_equal(d.rank, 5);
    assert_int_equal(who, 5);
    assert_int_equal(d.like, 0);
    assert_int_equal(d.buffer, 1);
    assert_true(d.hash == tutti_hash(m.frozen, sizeof(m.frozen), 0));
    assert_true(d.like_hash ==
                tutti_hash(first.frozen, sizeof(first.frozen), 0));
    assert_string_equal(d.text, "worker 5 joined with other bytes in buffer 1 "
                                "(layer4.weight) than worker 0");
    tutti_partial_close(m.p);
}

static void test_other_sizes(void **state)
{
    (void)state;
    member m;
    open_member(&m, -1, 1e30F);
    m.has[0].bytes -= 4;
    catch_up(&m);
    tutti_difference d = compare(&m, TUTTI_OK);
    assert_string_equal(d.text, "worker 1 joined with 396 bytes in buffer 0 "
                                "(layer1.weight), worker 0 has 400");
    tutti_partial_close(m.p);
    open_member(&m, -1, 1e30F);
    m.n = 3;
    catch_up(&m);
    d = compare(&m, TUTTI_OK);
    assert_int_equal(d.buffer, 2);
    assert_string_equal(d.text, "worker 1 joined with another number of "
                                "buffers (3) than worker 0 (2)");
    tutti_partial_close(m.p);
}

/* The other one announces its next step without a word. */
static void test_nobody_to_compare_with(void **state)
{
    (void)state;
    member m;
    tutti_difference d = TUTTI_DIFFERENCE_INIT;
    atomic_store(&compares, false);
    open_member(&m, 7, 1e30F);
    catch_up(&m);
    assert_int_equal(tutti_partial_compare(m.p, m.has, 2, NULL), TUTTI_EINVAL);
    assert_int_equal(tutti_partial_compare(m.p, m.has, 16385, &d),
                     TUTTI_EINVAL);
    assert_int_equal(tutti_partial_compare(m.p, NULL, 1, &d), TUTTI_EINVAL);
    compare(&m, TUTTI_EPEER);
    assert_non_null(strstr(tutti_partial_message(m.p),
                           "worker 7 cannot compare what it has: worker 0"));
    assert_int_equal(average(&m, 2), TUTTI_OK);
    atomic_store(&compares, true);
    tutti_partial_close(m.p);
}

static void expect(place at, const char *once, const char *twice)
{
    lines[0] = once;
    lines[1] = twice;
    atomic_store(&n_said, 0);
    atomic_store(&stays, at);
}

static void test_nobody_waits_in_silence(void **state)
{
    (void)state;
    member m;
    tutti_log_set(hear, NULL);
    expect(BUFFER, "worker 3: waiting 1 s for worker 0: buffer 0 of group ",
           "worker 3: waiting 2 s for worker 0: buffer 0 of group ");
    open_member(&m, 3, 1e30F);
    catch_up(&m);
    assert_int_equal(atomic_load(&n_said), 2);
    compare(&m, TUTTI_OK);
    tutti_partial_leave(m.p);
    expect(COMPARISON,
           "worker 3: waiting 1 s for worker 0, to compare what it has joined",
           "worker 3: waiting 2 s for worker 0, to compare what it has joined");
    assert_int_equal(tutti_partial_rejoin(m.p, false), TUTTI_OK);
    catch_up(&m);
    compare(&m, TUTTI_OK);
    assert_int_equal(atomic_load(&n_said), 2);
    assert_int_equal(atomic_load(&n_of_ranks), 0); /* it is a worker */
    tutti_log_set(NULL, NULL);
    tutti_partial_close(m.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_differs),
        cmocka_unit_test(test_first_difference),
        cmocka_unit_test(test_other_sizes),
        cmocka_unit_test(test_nobody_to_compare_with),
        cmocka_unit_test(test_nobody_waits_in_silence),
    };
    pthread_t thread;
    tt_test_limit(300);
    setenv("TUTTI_LIVENESS", "30s", 1);
    setenv("TUTTI_PATIENCE", "1s", 1);
    if (tutti_controller_open("127.0.0.1:0", 1, NULL, &controller)) {
        printf("Bail out! %s\n", tutti_last_message());
        return 1;
    }
    snprintf(where, sizeof(where), "127.0.0.1:%d",
             tutti_controller_port(controller));
    open_member(&first, 0, 0.5F);
    /* Who comes when a group has been made is a newcomer. */
    average(&first, 0);
    if (pthread_create(&thread, NULL, go_on, NULL))
        return 1;
    int failed = TT_RUN_TAP(tests);
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    tutti_partial_close(first.p);
    tutti_controller_close(controller);
    return failed;
}
