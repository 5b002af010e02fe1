/* SPDX-License-Identifier: BSD-3-Clause
 * crew_test.c - a group that breaks ends every call that waits for it: of those
 * buffers that are not complete with what went wrong, of one that has become so
 * in the same turn well. A connection that fails breaks no group but its own. */
#include "support/tap.h"

#include <sys/socket.h>

#include "base/clock.h"
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
    tt_job second = {.done = take, .arg = &half, .walk = {.n_open = 1}};
    tt_job first = {.done = take, .arg = &complete, .next = &second};
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

/* Worker 2 is in a group with worker 1, and cannot reach worker `other`. */
static tutti_err cannot_reach(uint32_t other)
{
    tt_lane lane = {.n_slices = 1};
    tt_partner partner = {.peer = 0, .n_sends = 1};
    tt_bound bound = {
        .n_partners = 1, .n_sends = 1, .partners = &partner, .sends = &lane};
    uint32_t taken = 0;
    tt_job job = {.walk = {.b = &bound, .taken = &taken, .n_open = 1}};
    tt_seat seats[2] = {{.worker = 1, .incarnation = 3},
                        {.worker = 2, .incarnation = 1}};
    uint32_t workers[2] = {1, 2};
    tt_tie *by_worker[3] = {NULL};
    tt_worker *w = tt_new(&tt_mem_std, 1, sizeof(*w));
    tt_tie *tie = tt_new(&tt_mem_std, 1, sizeof(*tie));
    assert_true(w && tie);
    w->mem = tt_mem_std;
    w->id = 2;
    w->n = 3;
    w->epoll_fd = w->pipe.s.fd = -1;
    w->by_worker = by_worker;
    w->phase = TT_PHASE_GROUP;
    w->crew = (tt_crew){.id = 8,
                        .n = 2,
                        .me = 1,
                        .seats = seats,
                        .workers = workers,
                        .jobs = &job};
    tie->w = w;
    tie->state = TT_TIE_CONNECTING;
    tie->fd = -1;
    tie->worker = other;
    tie->incarnation = 3;
    tie->since_ns = 1;
    w->ties = by_worker[other] = tie;
    tt_ties_check(w, 100 * TT_NS_PER_S);
    assert_int_equal(tie->state, TT_TIE_CLOSED);
    assert_null(by_worker[other]);
    tutti_err err = w->crew.err;
    tt_ties_sweep(w);
    tt_free(&tt_mem_std, w, 1, sizeof(*w));
    return err;
}

static void test_connection_of_an_old_group(void **state)
{
    (void)state;
    assert_int_equal(cannot_reach(1), TUTTI_ENET);
    assert_int_equal(cannot_reach(0), TUTTI_OK);
}

/* Who was counted as dead says something before it has read why. */
static void test_last_words_are_heard(void **state)
{
    (void)state;
    static const char why[] = "this worker was silent";
    int fds[2];
    tt_pipe here;
    tt_pipe there;
    tt_talk head = tt_talk_head(TT_TALK_REFUSE, 0, sizeof(why));
    const unsigned char *payload;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    tt_pipe_open(&here, &tt_mem_std, fds[0]);
    tt_pipe_open(&there, &tt_mem_std, fds[1]);
    tt_pipe_put(&there, &head, why);
    assert_true(tt_pipe_flush(&there));
    tt_pipe_close(&there);
    tt_talk beat = tt_talk_head(TT_TALK_BEAT, 0, 0);
    tt_pipe_put(&here, &beat, NULL);
    assert_true(tt_pipe_flush(&here));
    tt_pipe_fill(&here);
    assert_true(tt_pipe_next(&here, sizeof(why), &head, &payload));
    assert_string_equal((const char *)payload, why);
    tt_pipe_fill(&here);
    assert_true(here.is_broken);
    tt_pipe_close(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_break_ends_all),
        cmocka_unit_test(test_connection_of_an_old_group),
        cmocka_unit_test(test_last_words_are_heard),
    };
    return TT_RUN_TAP(tests);
}
