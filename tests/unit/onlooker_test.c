/* SPDX-License-Identifier: BSD-3-Clause
 * onlooker_test.c - a process that tells of jobs without an end, as a damaged
 * one might: whoever looks on comes back all the same. */
#include "support/tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/link.h"
#include "status/status.h"

static atomic_bool is_over;
static tt_link_box *box;

/* The same job again and again, with one rank; until nobody listens. */
static void tell(tt_link_stream *to)
{
    const struct timespec moment = {.tv_nsec = 10 * TT_NS_PER_MS};
    struct {
        tt_job_head head;
        tt_status rank;
    } job;
    memset(&job, 0, sizeof(job));
    job.head.magic = TT_REPORT_MAGIC;
    job.head.version = job.rank.version = TT_STATUS_VERSION;
    job.head.n_ranks = 1;
    snprintf(job.head.job, sizeof(job.head.job), "endless-%d", (int)getpid());
    while (tt_link_write_all(to, &job, sizeof(job),
                             tt_now_ns() + 60 * TT_NS_PER_S) == 0)
        nanosleep(&moment, NULL);
}

static void *serve(void *unused)
{
    tt_link_event e;
    (void)unused;
    while (!atomic_load(&is_over)) {
        tt_link_box_wait(box, tt_now_ns() + 100 * TT_NS_PER_MS);
        if (!tt_link_box_take(box, &e))
            continue;
        tell(&e.stream);
        tt_link_stream_close(&e.stream);
    }
    return NULL;
}

static void test_endless(void **state)
{
    char name[64], *text = NULL;
    size_t n_jobs = 0;
    pthread_t thread;
    tt_link_ear ear = {0};
    const tt_link_listen_opts o = {
        .purposes = TT_LINK_FOR(TT_LINK_STATUS), .ears = &ear, .n_ears = 1};
    tt_link_listener *listener;
    (void)state;
    tt_service_name((int)getpid(), name, sizeof(name));
    tt_addr_abstract(name, &ear.at);
    assert_int_equal(tt_link_box_open(&tt_mem_std, &box, NULL), TUTTI_OK);
    assert_int_equal(tt_link_listen(box, &o, &listener, NULL, NULL), TUTTI_OK);
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    snprintf(name, sizeof(name), "endless-%d", (int)getpid());
    assert_int_equal(tutti_status(name, TUTTI_STATUS_TABLE, &text, &n_jobs),
                     TUTTI_OK);
    assert_int_equal(n_jobs, 1);
    assert_non_null(strstr(text, name));
    tutti_text_free(text);
    atomic_store(&is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tt_link_box_close(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_endless)};
    tt_test_limit(300);
    return TT_RUN_TAP(tests);
}
