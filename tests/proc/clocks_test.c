/* SPDX-License-Identifier: BSD-3-Clause
 * clocks_test.c - a job that is recorded while the clock of one of its ranks runs
 * faster: what `tutti trace` makes of it is by one clock, from the first slice to the
 * last. The clocks are compared again while the job runs. */
#include "support/tap.h"

#include <dirent.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "base/trail.h"
#include "support/folder.h"
#include "support/procs.h"

enum { RANKS = 2, COUNT = 1000, WANTED = 4, SECONDS = 64 };
/* So much faster: 20 ms each second. */
enum { FASTER = 50 };
/* A loaded machine lets a slice wait, but hardly all of a second. */
static const double most_s = 0.03;

static atomic_bool *is_over;
static long long fast_since; /* 0: the clock is right */

/* In place of the C library's, for the whole program. */
int clock_gettime(clockid_t id, struct timespec *at)
{
    const long long s = 1000000000;
    const int err = (int)syscall(SYS_clock_gettime, id, at);
    long long ns = at->tv_sec * s + at->tv_nsec;
    if (err || id != CLOCK_MONOTONIC || fast_since == 0)
        return err;
    ns += (ns - fast_since) / FASTER;
    at->tv_sec = (time_t)(ns / s);
    at->tv_nsec = (long)(ns % s);
    return 0;
}

static void run_faster(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    fast_since = at.tv_sec * 1000000000LL + at.tv_nsec;
}

static int call_often(int rank, int n, void *arg)
{
    float x[COUNT] = {0};
    tutti_comm *comm;
    int goes_on = 1;
    (void)n;
    setenv("TUTTI_TRACE", arg, 1);
    if (rank == 1)
        run_faster();
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    while (goes_on) {
        goes_on = !atomic_load(is_over);
        if (tutti_all_reduce(comm, x, x, COUNT, TUTTI_F32, TUTTI_SUM, NULL,
                             NULL) ||
            tutti_all_reduce(comm, &goes_on, &goes_on, 1, TUTTI_I32, TUTTI_MIN,
                             NULL, NULL))
            return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
        usleep(5000);
    }
    tutti_comm_destroy(comm);
    return 0;
}

/* Of all files of the folder: only one rank compares. */
static size_t count_clocks(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[300];
        tt_mark m;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        FILE *f = strstr(path, "-1" TT_TRAIL_SUFFIX) ? fopen(path, "rb") : NULL;
        if (f && fseek(f, sizeof(tt_trail_head), SEEK_SET) == 0)
            while (fread(&m, sizeof(m), 1, f) == 1)
                n += m.kind == TT_MARK_CLOCK;
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return n;
}

static void watch(const pid_t *pids, int n, double seconds, void *arg)
{
    static double next_s;
    (void)pids;
    (void)n;
    if (seconds < next_s)
        return;
    next_s = seconds + 0.2;
    if (count_clocks(arg) >= WANTED)
        atomic_store(is_over, true);
}

/* The quickest slice of each second, from either rank; INFINITY: there was none. */
typedef struct quickest {
    double s[RANKS][SECONDS];
    int n;
} quickest;

static void on_slice(void *ctx, const tutti_recorded_info *info)
{
    quickest *q = ctx;
    const tutti_event_info *e = &info->event;
    const int second = (int)e->begin_s;
    if (info->call_name || e->src >= RANKS || second >= SECONDS)
        return;
    q->s[e->src][second] = fmin(q->s[e->src][second], e->end_s - e->begin_s);
    q->n = second + 1 > q->n ? second + 1 : q->n;
}

static double number_behind(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? atof(at + strlen(name)) : NAN;
}

static void test_drift(void **state)
{
    (void)state;
    int status[RANKS];
    assert_true(tt_folder_open("clocks"));
    char dir[300];
    snprintf(dir, sizeof(dir), "%s", tt_folder_path("."));
    const tt_procs p = {.n = RANKS,
                        .timeout_s = 120,
                        .transports = "tcp",
                        .run = call_often,
                        .arg = dir,
                        .watch = watch};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, RANKS), 0);
    const tutti_merge_opts opts = TUTTI_MERGE_OPTS_INIT;
    tutti_merge_info info;
    tutti_diag diag;
    char *text;
    size_t len;
    assert_int_equal(tutti_trace_merge(dir, &opts, &info, &text, &len, &diag),
                     TUTTI_OK);
    assert_int_equal(info.n_unclocked, 0);
    const char *rank_1 = strstr(text,
                                "\"process_labels\",\"ph\":\"M\",\"pid\":1");
    assert_non_null(rank_1);
    const double drift = number_behind(rank_1, "\"drift_us_per_s\":");
    if (!(fabs(drift - 1e6 / FASTER) < 0.1 * 1e6 / FASTER))
        fail_msg("the clock gains %g us each second, not %d", drift,
                 1000000 / FASTER);
    quickest q = {.n = 0};
    for (int i = 0; i < RANKS * SECONDS; i++)
        q.s[i / SECONDS][i % SECONDS] = INFINITY;
    assert_int_equal(tutti_trace_read(text, len, on_slice, &q, &diag),
                     TUTTI_OK);
    tutti_text_free(text);
    /* Comparisons come after 1, 2, 4 and 8 s. */
    assert_true(q.n >= 7);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < q.n; i++)
            if (!(q.s[r][i] < most_s) && q.s[r][i] < INFINITY)
                fail_msg("after %d s a slice of rank %d takes %g s at least", i,
                         r, q.s[r][i]);
    tt_folder_close();
}

int main(void)
{
    is_over = mmap(NULL, sizeof(*is_over), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(is_over != MAP_FAILED);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drift)};
    return TT_RUN_TAP(tests);
}
