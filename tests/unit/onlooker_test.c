/* SPDX-License-Identifier: BSD-3-Clause
 * onlooker_test.c - a process that tells of jobs as it likes: without an end,
 * the same one twice, nonsense, or nothing. Whoever looks on comes back all the
 * same, and believes what can be. */
#include "support/tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hostid.h"
#include "link/link.h"
#include "status/status.h"

enum { RANKS = 2, MOST_TOLD = 3 };

/* A job, as it is sent. */
typedef struct told {
    tt_job_head head;
    tt_status ranks[RANKS];
} told;

static struct {
    atomic_bool is_over;
    tt_link_box *box;
    bool is_endless;
    told all[MOST_TOLD];
    size_t n, cut; /* cut: bytes of the last one that are not told */
} server;

/* All there is, or the first one again and again until nobody listens. */
static void tell(tt_link_stream *to)
{
    const struct timespec moment = {.tv_nsec = 10 * TT_NS_PER_MS};
    const uint64_t until_ns = tt_now_ns() + 60 * TT_NS_PER_S;
    if (!server.is_endless)
        tt_link_write_all(to, server.all, server.n * sizeof(told) - server.cut,
                          until_ns);
    while (server.is_endless &&
           tt_link_write_all(to, server.all, sizeof(told), until_ns) == 0)
        nanosleep(&moment, NULL);
}

static void *serve(void *unused)
{
    tt_link_event e;
    (void)unused;
    while (!atomic_load(&server.is_over)) {
        tt_link_box_wait(server.box, tt_now_ns() + 100 * TT_NS_PER_MS);
        if (!tt_link_box_take(server.box, &e))
            continue;
        tell(&e.stream);
        tt_link_stream_close(&e.stream);
    }
    return NULL;
}

static int begin(void **state)
{
    (void)state;
    server.box = NULL;
    server.is_endless = false;
    server.cut = 0;
    return tt_service_listen(&server.box, NULL);
}

static int end(void **state)
{
    (void)state;
    tt_link_box_close(server.box);
    return 0;
}

/* A name that no other job has. */
static const char *name_of(const char *what)
{
    static char names[4][64];
    static int n;
    char *name = names[n++ % 4];
    snprintf(name, sizeof(names[0]), "%s-%d", what, (int)getpid());
    return name;
}

/* Of two ranks that are outside. */
static told *add_job(const char *name)
{
    told *t = &server.all[server.n++];
    *t = (told){.head = {.magic = TT_REPORT_MAGIC,
                         .version = TT_STATUS_VERSION,
                         .n_ranks = RANKS,
                         .id = 7}};
    snprintf(t->head.job, sizeof(t->head.job), "%s", name);
    for (uint32_t r = 0; r < RANKS; r++)
        t->ranks[r] = (tt_status){.version = TT_STATUS_VERSION,
                                  .is = TT_STATUS_IDLE,
                                  .rank = r,
                                  .waits_for = TT_NONE,
                                  .late_rank = TT_NONE,
                                  .host = "h",
                                  .transports = "tcp"};
    return t;
}

/* The process that tells answers meanwhile, and then no more. */
static tutti_err look_on(const char *job, char **text, size_t *n)
{
    pthread_t thread;
    atomic_store(&server.is_over, false);
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    const tutti_err err = tutti_status(job, TUTTI_STATUS_TABLE, text, n);
    atomic_store(&server.is_over, true);
    pthread_join(thread, NULL);
    return err;
}

/* Looks: so many jobs, and the table has this (NULL: whatever). */
static void look(const char *job, size_t n_jobs, const char *has,
                 const char *lacks)
{
    char *text = NULL;
    size_t n = 99;
    assert_int_equal(look_on(job, &text, &n), TUTTI_OK);
    if (job)
        assert_int_equal(n, n_jobs);
    if ((has && !strstr(text, has)) || (lacks && strstr(text, lacks)))
        fail_msg("has not \"%s\", or has \"%s\":\n%s", has ? has : "",
                 lacks ? lacks : "", text);
    tutti_text_free(text);
}

static void test_endless(void **state)
{
    (void)state;
    server.n = 0;
    server.is_endless = true;
    add_job(name_of("endless"));
    look(name_of("endless"), 1, name_of("endless"), NULL);
}

/* Two have told of the same communicator, and each has not heard one rank. */
static void test_together(void **state)
{
    (void)state;
    server.n = 0;
    const char *name = name_of("twice");
    add_job(name)->ranks[1].is = TT_STATUS_UNKNOWN;
    told *other = add_job(name);
    other->ranks[0].is = TT_STATUS_LOST;
    other->ranks[1].is = TT_STATUS_FAILED;
    look(name, 1, "\n0     h     -    outside  ", "no answer");
    look(name, 1, "\n1     h     -    failed   ", "lost");
    /* What says less changes nothing. */
    server.all[0].ranks[1].is = TT_STATUS_LOST;
    other->ranks[1].is = TT_STATUS_UNKNOWN;
    look(name, 1, "  lost  ", "no answer");
    /* Another communicator, job, or number of ranks. */
    other->head.id = 8;
    look(name, 2, NULL, NULL);
    other->head.id = 7;
    snprintf(other->head.job, sizeof(other->head.job), "%s#2", name);
    look(name, 2, NULL, NULL);
    look(other->head.job, 1, NULL, NULL);
}

static void test_names(void **state)
{
    (void)state;
    char long_name[80], pid[16];
    tt_host_id host;
    server.n = 0;
    const char *name = name_of("name");
    told *t = add_job(name);
    look(name, 1, NULL, NULL);
    snprintf(long_name, sizeof(long_name), "%s1", name);
    look(long_name, 0, NULL, name);
    snprintf(long_name, sizeof(long_name), "%.4s", name);
    look(long_name, 0, NULL, name);
    snprintf(t->head.job, sizeof(t->head.job), "%s#1", name);
    look(name, 1, NULL, NULL);
    snprintf(long_name, sizeof(long_name), "%s#2", name);
    look(long_name, 0, NULL, name);
    /* By a process: of this host, or of one that is not known. */
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    look(pid, 0, NULL, name);
    t->ranks[1].pid = (uint32_t)getpid();
    look(pid, 0, NULL, name);
    t->ranks[1].host[0] = '\0';
    look(pid, 1, name, NULL);
    tt_host_id_get(&host);
    snprintf(t->ranks[1].host, sizeof(t->ranks[1].host), "%s", host.name);
    look(pid, 1, name, NULL);
}

/* Nothing of a job is believed in which something cannot be; what came before
 * it is. */
static void test_nonsense(void **state)
{
    (void)state;
    char dumb[60];
    snprintf(dumb, sizeof(dumb), "process %d does not answer\n", (int)getpid());
    const char *name = name_of("bad");
    for (int i = 0; i < 14; i++) {
        server.n = 0;
        server.cut = 0;
        if (i == 13)
            add_job(name_of("good"));
        told *t = add_job(name);
        t->head.magic += i == 0 || i == 13;
        t->head.version += i == 1;
        t->head.n_ranks = i == 2 ? TT_REPORT_RANKS + 1u : RANKS;
        t->head.is_partial = i == 3 ? 2 : 0;
        t->ranks[1].version += i == 4;
        t->ranks[1].is = i == 5 ? TT_STATUS_FAILED + 1 : TT_STATUS_IDLE;
        t->ranks[1].waits = i == 6 ? TT_WAITS_TO_TAKE + 1 : 0;
        if (i == 7)
            memset(t->ranks[1].host, 'x', sizeof(t->ranks[1].host));
        if (i == 8)
            memset(t->ranks[1].transports, 'x', sizeof(t->ranks[1].transports));
        if (i == 9)
            memset(t->head.job, 'x', sizeof(t->head.job));
        if (i == 10)
            memset(t->head.failure, 'x', sizeof(t->head.failure));
        server.cut = i == 11 ? 1 : i == 12 ? sizeof(told) : 0;
        look(name, 0, NULL, name);
        look(NULL, 0, i < 13 ? dumb : NULL, i < 13 ? NULL : dumb);
        if (i == 13)
            look(name_of("good"), 1, NULL, NULL);
    }
}

/* A launcher whose ranks have nothing to tell has answered. */
static void test_nothing(void **state)
{
    (void)state;
    char dumb[60];
    snprintf(dumb, sizeof(dumb), "process %d does not", (int)getpid());
    server.n = 0;
    add_job("x")->head.n_ranks = 0;
    server.cut = sizeof(told) - sizeof(tt_job_head);
    look(NULL, 0, NULL, dumb);
}

/* What goes to a terminal is text. */
static void test_letters(void **state)
{
    (void)state;
    server.n = 0;
    const char *name = name_of("text");
    told *t = add_job(name);
    snprintf(t->ranks[0].host, sizeof(t->ranks[0].host), "a\033b\177c");
    snprintf(t->head.failure, sizeof(t->head.failure), "d\ne~");
    look(name, 1, "  a?b?c  ", "\033");
    look(name, 1, "failed: d?e~\n", NULL);
}

/* A worker may be unsound, too. */
static void test_workers(void **state)
{
    (void)state;
    struct {
        tt_job_head head;
        tt_worker_status worker;
    } *w = (void *)server.all;
    const char *name = name_of("worker");
    assert_true(sizeof(*w) <= sizeof(server.all));
    for (int i = 0; i < 6; i++) {
        char pid[16];
        server.n = 1;
        server.cut = sizeof(told) - sizeof(*w);
        memset(w, 0, sizeof(*w));
        w->head = (tt_job_head){.magic = TT_REPORT_MAGIC,
                                .version = TT_STATUS_VERSION,
                                .n_ranks = 1,
                                .is_partial = 1};
        snprintf(w->head.job, sizeof(w->head.job), "%s", name);
        w->worker.version = TT_STATUS_VERSION + (i == 1);
        w->worker.is = i == 2 ? TT_WORKER_COMMITS + 1 : TT_WORKER_COMMITS;
        w->worker.waits = i == 3 ? TT_WAITS_TO_TAKE + 1 : 0;
        w->worker.pid = (uint32_t)getpid();
        memset(w->worker.host, i == 4 ? 'x' : 0, sizeof(w->worker.host));
        memset(w->worker.text, i == 5 ? 'x' : 0, sizeof(w->worker.text));
        look(name, i == 0, i == 0 ? "  commits  " : NULL, NULL);
        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        look(pid, i == 0, NULL, NULL);
    }
}

static void test_forms(void **state)
{
    char *text;
    size_t n;
    (void)state;
    assert_int_equal(tutti_status(NULL, TUTTI_STATUS_PROMETHEUS + 1, &text, &n),
                     TUTTI_EINVAL);
    assert_int_equal(tutti_status(NULL, TUTTI_STATUS_TABLE, NULL, &n),
                     TUTTI_EINVAL);
    assert_int_equal(tutti_status(NULL, TUTTI_STATUS_TABLE, &text, NULL),
                     TUTTI_EINVAL);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_endless), WITH_SERVER(test_together),
        WITH_SERVER(test_names),   WITH_SERVER(test_nonsense),
        WITH_SERVER(test_nothing), WITH_SERVER(test_letters),
        WITH_SERVER(test_workers), cmocka_unit_test(test_forms),
    };
    tt_test_limit(300);
    return TT_RUN_TAP(tests);
}
