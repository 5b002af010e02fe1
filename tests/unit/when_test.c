/* SPDX-License-Identifier: BSD-3-Clause
 * when_test.c - which calls do without a look at the clock, and which time they
 * have then; by a clock that the test sets. */
#include "support/tap.h"

#include <string.h>
#include <time.h>

#include "engine/when.h"

static uint64_t shown_ns;
static uint32_t n_looks;

/* Stands in front of the C library's. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                         struct timespec *out)
{
    (void)clock;
    n_looks++;
    out->tv_sec = (time_t)(shown_ns / TT_NS_PER_S);
    out->tv_nsec = (long)(shown_ns % TT_NS_PER_S);
    return 0;
}

enum { HISTORY = 8, SMALL = 8, TIMEOUT_NS = 5000 };

/* A call that begins, and what it is in. */
typedef struct scene {
    tt_engine e;
    tt_mesh mesh;
    tt_team *team;
    tt_bound b;
    tt_op op, other;
    tt_op_start start;
} scene;

/* A small one that somebody waits for, when the clock was looked at long
 * ago. */
static scene *open_scene(void)
{
    static scene s;
    static union {
        tt_team team;
        char room[sizeof(tt_team) + HISTORY * sizeof(tt_past)];
    } team;
    memset(&s, 0, sizeof(s));
    memset(&team, 0, sizeof(team));
    s.team = &team.team;
    s.e.about_ns = 1000;
    s.mesh.engine = &s.e;
    s.team->mesh = &s.mesh;
    s.team->n_history = HISTORY;
    s.b.total_bytes = SMALL;
    s.op.team = s.team;
    s.op.walk.b = &s.b;
    s.op.issue = 1;
    s.start.is_awaited = true;
    s.start.deadline_ns = TIMEOUT_NS;
    shown_ns = 70000;
    n_looks = 0;
    return &s;
}

/* It began at that time, after so many looks. */
static void begins(scene *s, bool is_undated, uint64_t at_ns, uint32_t looks)
{
    tt_op_note_begin(&s->op, &s->start);
    assert_int_equal(s->op.is_undated, is_undated);
    assert_int_equal(s->op.start_ns, at_ns);
    assert_int_equal(n_looks, looks);
    if (is_undated)
        assert_ptr_equal(s->e.undated, &s->op);
}

static void small_ones_do_not_look(void **state)
{
    (void)state;
    scene *s = open_scene();
    begins(s, true, 1000, 0);
    assert_int_equal(s->op.deadline_ns, 1000 + TIMEOUT_NS);
    /* One of 16 does, and so does one that finds somebody asleep. */
    for (uint32_t i = 0; i < 64; i++) {
        s = open_scene();
        s->op.issue = i;
        begins(s, true, i % 16 == 0 ? 70000 : 1000, i % 16 == 0);
    }
    s = open_scene();
    s->e.n_sleeping = 1;
    begins(s, true, 70000, 1);
}

static void others_look(void **state)
{
    (void)state;
    scene *s = open_scene();
    s->e.is_driven = true;
    begins(s, false, 70000, 1);
    assert_null(s->e.undated);
    assert_int_equal(s->op.deadline_ns, 70000 + TIMEOUT_NS);
    s = open_scene();
    s->e.undated = &s->other;
    begins(s, false, 70000, 1);
    assert_ptr_equal(s->e.undated, &s->other);
    s = open_scene();
    s->b.total_bytes = (64 << 10) + 1;
    begins(s, false, 70000, 1);
    s = open_scene();
    s->b.total_bytes = 64 << 10;
    begins(s, true, 1000, 0);
    s = open_scene();
    s->mesh.trail = (void *)s;
    begins(s, false, 70000, 1);
    /* Not waited for: its caller has said when, or it is looked at; the
     * deadline is a time, not how long. */
    s = open_scene();
    s->start.is_awaited = false;
    begins(s, false, 70000, 1);
    assert_int_equal(s->op.deadline_ns, TIMEOUT_NS);
    s = open_scene();
    s->start.now_ns = 69000;
    begins(s, false, 69000, 0);
    assert_int_equal(s->op.deadline_ns, TIMEOUT_NS);
}

/* From the first look on it counts. */
static void dated(void **state)
{
    (void)state;
    scene *s = open_scene();
    s->op.past = 0;
    s->team->n_past = 1;
    begins(s, true, 1000, 0);
    assert_true(tt_op_is_prompt(&s->op));
    s->e.n_passes = 1000;
    assert_true(tt_op_is_prompt(&s->op));
    tt_op_date(&s->e, 90000);
    assert_null(s->e.undated);
    assert_false(s->op.is_undated);
    assert_int_equal(s->op.start_ns, 90000);
    assert_int_equal(s->op.deadline_ns, 90000 + TIMEOUT_NS);
    assert_int_equal(s->team->past[0].begin_ns, 90000);
    assert_false(tt_op_is_prompt(&s->op));
    assert_int_equal(n_looks, 0);
}

/* Few passes after it began, and nobody rested. */
static void prompt(void **state)
{
    (void)state;
    scene *s = open_scene();
    s->op.start_pass = UINT32_MAX - 9;
    s->op.start_rest = 3;
    s->e.n_rests = 3;
    for (uint32_t i = 0; i < 100; i++) {
        s->e.n_passes = s->op.start_pass + i;
        assert_int_equal(tt_op_is_prompt(&s->op), i < 64);
    }
    s->e.n_passes = s->op.start_pass;
    s->e.n_rests = 4;
    assert_false(tt_op_is_prompt(&s->op));
}

/* A look holds for some passes: not where a large call is, nor from before the
 * call began. */
static void about_now(void **state)
{
    (void)state;
    scene *s = open_scene();
    s->op.start_ns = 60000;
    s->e.rest_ns = 60000;
    s->e.rest_pass = UINT32_MAX - 9;
    for (uint32_t i = 0; i < 100; i++) {
        s->e.n_passes = s->e.rest_pass + i;
        assert_int_equal(tt_op_about_now(&s->op), i < 64 ? 60000 : 70000);
    }
    assert_int_equal(n_looks, 100 - 64);
    s->e.n_passes = s->e.rest_pass;
    assert_int_equal(tt_op_about_now(&s->op), 60000);
    s->e.n_large = 1;
    assert_int_equal(tt_op_about_now(&s->op), 70000);
    s->e.n_large = 0;
    s->op.start_ns = 60001;
    assert_int_equal(tt_op_about_now(&s->op), 70000);
}

/* The last ones are remembered, each in a place of its own. */
static void remembered(void **state)
{
    (void)state;
    scene *s = open_scene();
    s->op.past = 100;
    for (uint32_t later = 1; later < 3 * HISTORY; later++) {
        s->team->n_past = 100 + later;
        tt_past *at = tt_op_past_of(&s->op);
        if (later <= HISTORY)
            assert_ptr_equal(at, &s->team->past[100 % HISTORY]);
        else
            assert_null(at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ones_do_not_look),
        cmocka_unit_test(others_look),
        cmocka_unit_test(dated),
        cmocka_unit_test(prompt),
        cmocka_unit_test(about_now),
        cmocka_unit_test(remembered),
    };
    return TT_RUN_TAP(tests);
}
