/* SPDX-License-Identifier: BSD-3-Clause
 * crew_test.c - a group that breaks ends every call that waits for it: of those
 * buffers that are not complete with what went wrong, of one that has become so
 * in the same turn well. */
#include "support/tap.h"

#include "partial/session.h"

typedef struct told {
    int n;
    tutti_err err;
} told;

static void take(void *arg, tutti_err err)
{
    told *t = arg;
    t->n++;
    t->err = err;
}

static void test_break_ends_all(void **state)
{
    (void)state;
    static tt_worker w;
    told complete = {0, TUTTI_AGAIN};
    told half = {0, TUTTI_AGAIN};
    tt_job second = {.done = take, .arg = &half};
    tt_job first = {
        .done = take, .arg = &complete, .is_over = true, .next = &second};
    w.phase = TT_PHASE_GROUP;
    w.crew.id = 7;
    w.crew.jobs = &first;
    tt_crew_break(&w, TUTTI_EPEER, false, "worker 3 has died");
    assert_int_equal(complete.n, 1);
    assert_int_equal(complete.err, TUTTI_OK);
    assert_int_equal(half.n, 1);
    assert_int_equal(half.err, TUTTI_EPEER);
    tt_crew_break(&w, TUTTI_EPEER, false, "worker 3 has died");
    tt_crew_advance(&w);
    assert_int_equal(complete.n + half.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_break_ends_all),
    };
    return TT_RUN_TAP(tests);
}
