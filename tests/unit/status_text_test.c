/* SPDX-License-Identifier: BSD-3-Clause
 * status_text_test.c - what `tutti status` prints of jobs and of workers, word by word:
 * the table, JSON, Prometheus' text. */
#include "support/tap.h"

#include <stdio.h>
#include <string.h>

#include "status/status.h"

static char *write_all(const tt_seen_job *jobs, size_t n,
                       tutti_status_form form, size_t *len)
{
    tt_str out = {.mem = &tt_mem_std};
    char *text;
    tt_status_write(jobs, n, form, &out);
    assert_int_equal(tt_str_finish(&out, &text, len), TUTTI_OK);
    return text;
}

static void says(const tt_seen_job *jobs, size_t n, tutti_status_form form,
                 const char *wanted)
{
    size_t len;
    char *text = write_all(jobs, n, form, &len);
    assert_string_equal(text, wanted);
    tt_free(&tt_mem_std, text, len + 1, 1);
}

static void has(const tt_seen_job *job, tutti_status_form form,
                const char *what, bool is_there)
{
    size_t len;
    char *text = write_all(job, 1, form, &len);
    if ((strstr(text, what) != NULL) != is_there)
        fail_msg("%s\n%s %s", text, is_there ? "lacks" : "has", what);
    tt_free(&tt_mem_std, text, len + 1, 1);
}

/* ----------------------------------------------------------------- ranks -- */

static tt_status rank_that(tt_status_is is, uint32_t rank)
{
    return (tt_status){.version = TT_STATUS_VERSION,
                       .is = (uint8_t)is,
                       .rank = rank,
                       .waits_for = TT_NONE,
                       .late_rank = TT_NONE};
}

/* Rank 0 is in a call and waits for rank 2; 1 is outside, 2 has called nothing, 3 is
 * gone, 4 does not answer. */
enum { N = 5 };
static tt_status ranks[N];
static tt_seen_job job;

static void make_job(void)
{
    ranks[0] = rank_that(TT_STATUS_CALLS, 0);
    ranks[0].pid = 4711;
    ranks[0].coll = TUTTI_ALL_REDUCE;
    ranks[0].type = TUTTI_F32;
    ranks[0].op = TUTTI_SUM;
    ranks[0].count = 1 << 20;
    ranks[0].seq = 17;
    ranks[0].n_open = 2;
    ranks[0].step = 3;
    ranks[0].n_steps = 8;
    ranks[0].moved_bytes = 3 << 20;
    ranks[0].waits_for = 2;
    ranks[0].waits = TT_WAITS_TO_COME;
    ranks[0].age_ns = 2500000000;
    ranks[0].rate = 5 << 20;
    ranks[0].n_calls = 17;
    ranks[0].late_rank = 1;
    ranks[0].late_ns = 1500000;
    ranks[0].n_conns = 4;
    ranks[0].n_away = 1;
    ranks[0].n_silent = 2;
    snprintf(ranks[0].host, sizeof(ranks[0].host), "a\"b");
    snprintf(ranks[0].transports, sizeof(ranks[0].transports), "shm,tcp");
    ranks[1] = rank_that(TT_STATUS_IDLE, 1);
    ranks[1].coll = TUTTI_ALL_REDUCE;
    ranks[1].type = TUTTI_F32;
    ranks[1].count = 2;
    ranks[1].seq = 16;
    ranks[1].is_message = 1;
    ranks[1].age_ns = 12000000000;
    ranks[1].n_open = 1;
    ranks[1].late_ns = 999999;
    ranks[1].late_rank = 0;
    ranks[2] = rank_that(TT_STATUS_IDLE, 2);
    ranks[3] = rank_that(TT_STATUS_LEFT, 3);
    ranks[4] = rank_that(TT_STATUS_UNKNOWN, 4);
    ranks[4].seq = 3; /* of before: it says nothing now */
    ranks[4].pid = 9;
    job = (tt_seen_job){.head = {.magic = TT_REPORT_MAGIC,
                                 .version = TT_STATUS_VERSION,
                                 .n_ranks = N,
                                 .id = 0x123,
                                 .job = "my job"},
                        .ranks = ranks};
}

static void test_table(void **state)
{
    (void)state;
    make_job();
    says(&job, 1, TUTTI_STATUS_TABLE,
         "job my job: 5 ranks\n"
         "rank  host  pid   state      call                     since  step  "
         "moved  waits for  rate     connections\n"
         "0     a\"b   4711  in calls   #17 all-reduce of 4 MiB  2.5 s  3/8   "
         "3 MiB  2 to call  5 MiB/s  4 shm,tcp, 1 away, 2 silent\n"
         "1     -     -     outside    m16 all-reduce of 8 B    12 s   -     "
         "-      -          -        0 \n"
         "2     -     -     outside    -                        -      -     "
         "-      -          -        0 \n"
         "3     -     -     left       -                        -      -     "
         "-      -          -        -\n"
         "4     -     9     no answer  -                        -      -     "
         "-      -          -        -\n"
         "rank 2 has called nothing yet, and holds up 1 other\n"
         "rank 3 has left\n"
         "rank 4 does not answer (stopped, or cut off?)\n"
         "rank 0: rank 1 comes 1.5 ms later on the average\n");
}

static void test_reasons(void **state)
{
    (void)state;
    make_job();
    /* Two wait for one that is outside; nobody for the other. */
    ranks[2] = ranks[0];
    ranks[2].rank = 2;
    ranks[0].waits_for = ranks[2].waits_for = 1;
    ranks[0].waits = TT_WAITS_TO_TAKE;
    ranks[3].is = TT_STATUS_LOST;
    ranks[4].is = TT_STATUS_STOPPED;
    const tutti_status_form form = TUTTI_STATUS_TABLE;
    has(&job, form, "  1 to take  ", true);
    has(&job, form,
        "\nrank 1 has not called since message 16 ended 12 s ago, and holds up "
        "2 others\n",
        true);
    has(&job, form, "\nrank 3 is lost\nrank 4 is stopped\n", true);
    has(&job, form, "rank 2 ", false);
    ranks[1].is_message = 0;
    has(&job, form, "since call 16 ended 12 s ago", true);
    /* Who is in no call waits for nobody. */
    ranks[0].is = ranks[2].is = TT_STATUS_IDLE;
    has(&job, form, "holds up", false);
    has(&job, form, "has not called", false);
    has(&job, form, "rank 0: rank 1 comes 1.5 ms later on the average", true);
    ranks[0].late_ns = 1000000;
    has(&job, form, "comes 1 ms later", true);
    ranks[0].is = TT_STATUS_FAILED;
    has(&job, form, "  failed", true);
    has(&job, form, "rank 0 is failed", false);
    ranks[0].is = TT_STATUS_LOST;
    has(&job, form, "comes 1 ms later", false);
    has(&job, form, "\nfailed: ", false);
    snprintf(job.head.failure, sizeof(job.head.failure), "it is broken");
    has(&job, form, "\nfailed: it is broken\n", true);
    job.head.job[0] = '\0';
    job.head.n_ranks = 1;
    has(&job, form, "job without a name: 1 rank\n", true);
    ranks[0] = rank_that(TT_STATUS_CALLS, 0);
    ranks[0].n_open = 1;
    has(&job, form, "  in call  ", true);
    ranks[0].n_silent = 1;
    has(&job, form, "0 , 0 away, 1 silent\n", true);
}

static void test_json(void **state)
{
    (void)state;
    make_job();
    job.head.n_ranks = 2;
    snprintf(job.head.failure, sizeof(job.head.failure), "a\\b\n");
    says(&job, 1, TUTTI_STATUS_JSON,
         "{\"jobs\":[{\"job\":\"my job\","
         "\"communicator\":\"0000000000000123\",\"failure\":\"a\\\\b?\","
         "\"ranks\":[\n"
         "{\"rank\":0,\"pid\":4711,\"host\":\"a\\\"b\",\"state\":\"in call\","
         "\"away\":1,\"silent\":2,\"calls\":17,\"open\":2,"
         "\"call\":\"all-reduce of 4 MiB\",\"number\":17,\"bytes\":4194304,"
         "\"seconds\":2.500000,\"step\":3,\"steps\":8,\"moved\":3145728,"
         "\"waits_for\":2,\"waits\":\"to call\",\"late_rank\":1,"
         "\"late_seconds\":0.001500000,\"bytes_per_second\":5242880,"
         "\"connections\":4,\"transports\":\"shm,tcp\"},\n"
         "{\"rank\":1,\"pid\":0,\"host\":\"\",\"state\":\"outside\","
         "\"away\":0,\"silent\":0,\"calls\":0,\"open\":1,"
         "\"call\":\"all-reduce of 8 B\",\"number\":16,\"bytes\":8,"
         "\"seconds\":12.000000,\"step\":0,\"steps\":0,\"moved\":0,"
         "\"waits_for\":null,\"waits\":\"\",\"late_rank\":0,"
         "\"late_seconds\":0.000999999,\"bytes_per_second\":0,"
         "\"connections\":0,\"transports\":\"\"}]}],\"partial\":[]}\n");
    says(&job, 0, TUTTI_STATUS_JSON, "{\"jobs\":[],\"partial\":[]}\n");
    job.head.n_ranks = 1;
    ranks[0].seq = 0;
    has(&job, TUTTI_STATUS_JSON, "\"open\":2,\"waits_for\"", true);
}

static void test_prometheus(void **state)
{
    (void)state;
#define AT(rank, host)                                               \
    "{job=\"my job\",communicator=\"0000000000000123\",rank=\"" rank \
    "\",host=\"" host "\"} "
#define ROWS(name, help, type, a, b, c)                   \
    "# HELP " name " " help "\n# TYPE " name " " type     \
    "\n" name AT("0", "a\\\"b") a "\n" name AT("1", "") b \
        "\n" name AT("4", "") c "\n"
    make_job();
    job.head.n_ranks = 3;
    ranks[2] = ranks[4];
    ranks[1].age_ns = 5; /* since its call has ended */
    says(
        &job, 1, TUTTI_STATUS_PROMETHEUS,
        ROWS("tutti_up", "1: the rank answers, and has not failed", "gauge",
             "1", "1", "0") ROWS("tutti_calls_total", "calls begun", "counter",
                                 "17", "0", "0")
            ROWS("tutti_open_calls", "calls in progress", "gauge", "2", "1",
                 "0") ROWS("tutti_call_seconds",
                           "age of the oldest call; 0: none", "gauge", "2.5",
                           "0", "0") ROWS("tutti_waits_for_rank",
                                          "rank that it waits for; -1: none",
                                          "gauge", "2", "-1", "-1")
                ROWS("tutti_rate_bytes_per_second",
                     "of the vectors of the calls of the last 10 s", "gauge",
                     "5242880", "0", "0")
                    ROWS("tutti_lateness_seconds",
                         "by which the latest rank comes later, on the average",
                         "gauge", "0.0015", "0.000999999", "0")
                        ROWS("tutti_connections", "to other ranks", "gauge",
                             "4", "0", "0") ROWS("tutti_connections_away",
                                                 "of these, suspended", "gauge",
                                                 "1", "0", "0"));
    ranks[0].is = TT_STATUS_FAILED;
    has(&job, TUTTI_STATUS_PROMETHEUS, "\ntutti_up" AT("0", "a\\\"b") "0\n",
        true);
}

/* --------------------------------------------------------------- workers -- */

static tt_worker_status workers[4];
static tt_seen_job partial;

static void make_workers(void)
{
    for (uint32_t i = 0; i < 4; i++)
        workers[i] = (tt_worker_status){.version = TT_STATUS_VERSION,
                                        .is = TT_WORKER_READY,
                                        .worker = i,
                                        .pid = 10 + i,
                                        .waits_for = TT_NONE,
                                        .iteration = 7,
                                        .group = 5,
                                        .n_groups = 4,
                                        .n_broken = 1,
                                        .n_workers = 4,
                                        .incarnation = 1,
                                        .age_ns = 3000000000,
                                        .host = "h"};
    workers[1].is = TT_WORKER_GROUP;
    workers[1].n = 3;
    workers[1].waits_for = 2;
    workers[1].waits = TT_WAITS_TO_COME;
    workers[1].buffer = 6;
    workers[2].is = TT_WORKER_OUTSIDE;
    workers[3].is = TT_WORKER_LOST;
    workers[3].iteration = workers[3].group = 0;
    workers[3].is_away = 1;
    snprintf(workers[3].text, sizeof(workers[3].text), "it is gone");
    partial = (tt_seen_job){
        .head = {.n_ranks = 4, .is_partial = 1, .id = 0xabc, .job = "w"},
        .workers = workers};
}

static void test_workers(void **state)
{
    (void)state;
    make_workers();
    says(&partial, 1, TUTTI_STATUS_TABLE,
         "partial reduce of job w: 4 workers here\n"
         "worker  host  pid  state                  iteration  group     since"
         "  waits for            groups  broken\n"
         "0       h     10   ready                  7          after #5  3 s  "
         "  a group              4       1\n"
         "1       h     11   in group               7          #5 of 3   3 s  "
         "  2 to begin buffer 6  4       1\n"
         "2       h     12   outside                7          after #5  3 s  "
         "  -                    4       1\n"
         "3       h     13   lost, controller away  -          -         -    "
         "  -                    4       1\n"
         "worker 2 has not announced for 3 s, while 1 waits for a group\n"
         "worker 3: it is gone\n");
    const tutti_status_form form = TUTTI_STATUS_TABLE;
    workers[3].text[0] = '\0';
    has(&partial, form, "\nworker 3: lost\n", true);
    workers[1].is = TT_WORKER_COMMITS;
    workers[1].waits = TT_WAITS_TO_SEND;
    has(&partial, form, "  commits ", true);
    has(&partial, form, "  2 to finish buffer 6  ", true);
    workers[1].is = TT_WORKER_READY;
    has(&partial, form, "while 2 wait for a group", true);
    workers[0].is = workers[1].is = TT_WORKER_OUTSIDE;
    has(&partial, form, "has not announced", false);
    partial.head.n_ranks = 1;
    partial.head.job[0] = '\0';
    has(&partial, form, "of job without a name: 1 worker here\n", true);
}

static void test_workers_json(void **state)
{
    (void)state;
    make_workers();
    partial.head.n_ranks = 2;
    says(&partial, 1, TUTTI_STATUS_JSON,
         "{\"jobs\":[],\"partial\":[{\"job\":\"w\","
         "\"controller\":\"0000000000000abc\",\"workers\":[\n"
         "{\"worker\":0,\"pid\":10,\"host\":\"h\",\"state\":\"ready\","
         "\"controller_away\":false,\"incarnation\":1,\"iteration\":7,"
         "\"group\":5,\"members\":0,\"seconds\":3.000000,\"waits_for\":null,"
         "\"waits\":\"for a group\",\"buffer\":0,\"groups\":4,\"broken\":1,"
         "\"workers\":4,\"text\":\"\"},\n"
         "{\"worker\":1,\"pid\":11,\"host\":\"h\",\"state\":\"in group\","
         "\"controller_away\":false,\"incarnation\":1,\"iteration\":7,"
         "\"group\":5,\"members\":3,\"seconds\":3.000000,\"waits_for\":2,"
         "\"waits\":\"to begin\",\"buffer\":6,\"groups\":4,\"broken\":1,"
         "\"workers\":4,\"text\":\"\"}]}]}\n");
    has(&partial, TUTTI_STATUS_JSON, "\"waits\":\"to finish\"", false);
    workers[1].waits = TT_WAITS_TO_SEND;
    has(&partial, TUTTI_STATUS_JSON, "\"waits\":\"to finish\"", true);
    /* Both kinds, each in its list. */
    make_job();
    job.head.n_ranks = 0;
    partial.head.n_ranks = 0;
    const tt_seen_job all[] = {partial, job, partial, job};
    says(all, 4, TUTTI_STATUS_JSON,
         "{\"jobs\":[{\"job\":\"my job\","
         "\"communicator\":\"0000000000000123\",\"failure\":\"\","
         "\"ranks\":[]},\n{\"job\":\"my job\","
         "\"communicator\":\"0000000000000123\",\"failure\":\"\","
         "\"ranks\":[]}],\"partial\":[{\"job\":\"w\","
         "\"controller\":\"0000000000000abc\",\"workers\":[]},\n"
         "{\"job\":\"w\",\"controller\":\"0000000000000abc\","
         "\"workers\":[]}]}\n");
}

static void test_workers_prometheus(void **state)
{
    (void)state;
    make_workers();
#define WORKER(i, pid)                                                       \
    "{job=\"w\",controller=\"0000000000000abc\",worker=\"" i "\",pid=\"" pid \
    "\",host=\"h\"} "
    const tutti_status_form form = TUTTI_STATUS_PROMETHEUS;
    has(&partial, form, "\ntutti_worker_up" WORKER("2", "12") "1\n", true);
    has(&partial, form, "\ntutti_worker_up" WORKER("3", "13") "0\n", true);
    has(&partial, form, "\ntutti_worker_iteration" WORKER("0", "10") "7\n",
        true);
    has(&partial, form, "\ntutti_worker_groups_total" WORKER("0", "10") "4\n",
        true);
    has(&partial, form,
        "\ntutti_worker_broken_groups_total" WORKER("0", "10") "1\n", true);
    has(&partial, form, "\ntutti_worker_ready_seconds" WORKER("0", "10") "3\n",
        true);
    has(&partial, form, "\ntutti_worker_ready_seconds" WORKER("1", "11") "0\n",
        true);
    has(&partial, form, "\ntutti_worker_group_seconds" WORKER("1", "11") "3\n",
        true);
    has(&partial, form, "\ntutti_worker_group_seconds" WORKER("2", "12") "0\n",
        true);
    has(&partial, form,
        "\ntutti_worker_waits_for_worker" WORKER("1", "11") "2\n", true);
    has(&partial, form,
        "\ntutti_worker_waits_for_worker" WORKER("0", "10") "-1\n", true);
    has(&partial, form, "\ntutti_up{", false);
    make_job();
    has(&job, form, "tutti_worker", false);
}

static tt_seen_job one_worker(uint32_t worker, uint32_t pid, uint64_t id,
                              const char *name)
{
    tt_seen_job made = {.head = {.n_ranks = 1, .is_partial = 1, .id = id}};
    made.workers = tt_new(&tt_mem_std, 1, sizeof(*made.workers));
    assert_non_null(made.workers);
    *made.workers = (tt_worker_status){.worker = worker, .pid = pid};
    snprintf(made.head.job, sizeof(made.head.job), "%s", name);
    return made;
}

/* Workers of one controller and job are put together, in order, each once. */
static void test_merge(void **state)
{
    (void)state;
    tt_seen_job jobs[2] = {one_worker(2, 20, 7, "a"), one_worker(1, 1, 8, "a")};
    tt_seen_job more = one_worker(0, 30, 7, "a");
    assert_true(tt_partial_merge(jobs, 2, &more));
    assert_null(more.workers);
    more = one_worker(1, 40, 7, "a");
    assert_true(tt_partial_merge(jobs, 2, &more));
    assert_int_equal(jobs[0].head.n_ranks, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(jobs[0].workers[i].worker, i);
    /* The same one again, with news; another process of that number. */
    more = one_worker(1, 40, 7, "a");
    more.workers->n_groups = 9;
    assert_true(tt_partial_merge(jobs, 2, &more));
    assert_int_equal(jobs[0].head.n_ranks, 3);
    assert_int_equal(jobs[0].workers[1].n_groups, 9);
    more = one_worker(1, 39, 7, "a");
    assert_true(tt_partial_merge(jobs, 2, &more));
    assert_int_equal(jobs[0].head.n_ranks, 4);
    assert_int_equal(jobs[0].workers[1].pid, 39);
    assert_int_equal(jobs[0].workers[2].pid, 40);
    /* Another controller, another job. */
    more = one_worker(1, 40, 9, "a");
    assert_false(tt_partial_merge(jobs, 2, &more));
    assert_int_equal(more.head.n_ranks, 1);
    tt_seen_drop(&more);
    more = one_worker(1, 40, 7, "b");
    assert_false(tt_partial_merge(jobs, 2, &more));
    tt_seen_drop(&more);
    assert_int_equal(jobs[1].head.n_ranks, 1);
    tt_seen_drop(&jobs[0]);
    tt_seen_drop(&jobs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_prometheus),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_workers_json),
        cmocka_unit_test(test_workers_prometheus),
        cmocka_unit_test(test_merge),
    };
    return TT_RUN_TAP(tests);
}
