/* SPDX-License-Identifier: BSD-3-Clause
 * written_test.c - schedules that somebody wrote are performed, between real
 * processes: files that the call's planner names, and tutti_plan_use(). Who has
 * another one than the others, or none, ends the call for all, with a sentence.
 * Next: proc/schedules.sh (TUTTI_PLANNER=file:). */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti.h>
#include <tutti_plan.h>

#include "support/cases.h"

enum { COUNT = 10000 };

static tutti_schedule *plan(int n, const char *planner, tutti_coll coll)
{
    char spec[32];
    tutti_plan_opts o = TUTTI_PLAN_OPTS_INIT;
    tutti_topology *net = NULL;
    tutti_schedule *s = NULL;
    snprintf(spec, sizeof(spec), "full:%d", n);
    o.planner = planner;
    o.collective = coll;
    o.size_bytes = COUNT * 4;
    if (!tutti_topology_open(spec, &net, NULL))
        tutti_plan(net, &o, &s, NULL, NULL);
    tutti_topology_free(net);
    return s;
}

static uint64_t id_of(const tutti_schedule *s)
{
    tutti_schedule_info info;
    tutti_schedule_describe(s, &info);
    return info.id;
}

/* That the communicator performs an all-reduce by; 0: none. */
static uint64_t id_on(tutti_comm *comm)
{
    tutti_plan_opts o = TUTTI_PLAN_OPTS_INIT;
    tutti_schedule *s = NULL;
    o.size_bytes = COUNT * 4;
    if (tutti_comm_plan(comm, &o, &s, NULL, NULL))
        return 0;
    uint64_t id = id_of(s);
    tutti_schedule_free(s);
    return id;
}

static tutti_err add_up(tutti_comm *comm, const char *planner, int *bad)
{
    static int32_t x[COUNT], y[COUNT];
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = planner;
    for (int i = 0; i < COUNT; i++)
        x[i] = i * (rank + 1);
    tutti_err err = tutti_all_reduce(comm, x, y, COUNT, TUTTI_I32, TUTTI_SUM,
                                     &o, NULL);
    for (int i = 0; !err && i < COUNT; i++)
        if (y[i] != i * (n * (n + 1) / 2)) {
            *bad |= tt_procs_complain(rank, "element %d is %d", i, y[i]);
            break;
        }
    return err;
}

static int need(int rank, bool is_so, const char *what)
{
    return is_so ? 0 : tt_procs_complain(rank, "%s", what);
}

/* The sentence has these words. */
static int says(int rank, const char *text, const char *words)
{
    return strstr(text, words)
               ? 0
               : tt_procs_complain(rank, "\"%s\" lacks \"%s\"", text, words);
}

/* ------------------------------------------------------------------- use -- */

static int refuses(tutti_comm *world, int rank, int n)
{
    tutti_diag diag = {0};
    int bad = 0;
    tutti_schedule *other = plan(n + 1, "ring", TUTTI_ALL_REDUCE);
    bad |= tt_expect(NULL,
                     tutti_plan_use(world, TUTTI_ALL_REDUCE, other, &diag),
                     TUTTI_EINVAL, "a schedule of more ranks");
    bad |= says(rank, diag.text, "ranks cannot be used");
    tutti_schedule_free(other);
    other = plan(n, "ring", TUTTI_ALL_GATHER);
    bad |= tt_expect(NULL,
                     tutti_plan_use(world, TUTTI_ALL_REDUCE, other, &diag),
                     TUTTI_EINVAL, "a schedule of another collective");
    tutti_schedule_free(other);
    static const char lie[] = "tutti-schedule 1\ncollective all-reduce\nranks "
                              "3\nparts 1\nchunk 0 0 1\n"
                              "transfer 0 0 0 1 reduce\nend\n";
    if (tutti_schedule_read(lie, strlen(lie), &other, &diag))
        return tt_procs_complain(rank, "%s", diag.text);
    bad |= tt_expect(NULL,
                     tutti_plan_use(world, TUTTI_ALL_REDUCE, other, &diag),
                     TUTTI_EPROOF, "a schedule that is not proven");
    bad |= says(rank, diag.text, "rank");
    tutti_schedule_free(other);
    return bad;
}

static int a_used_schedule_is_performed(tutti_comm *world, int rank, int n)
{
    int bad = 0;
    const uint64_t before = id_on(world);
    tutti_schedule *s = plan(n, "ring", TUTTI_ALL_REDUCE);
    tutti_schedule *t = plan(n, "direct", TUTTI_ALL_REDUCE);
    bad |= need(rank, id_of(s) != before && id_of(t) != id_of(s),
                "the schedules are alike");
    bad |= tt_well(world, add_up(world, NULL, &bad), "before");
    bad |= refuses(world, rank, n);
    bad |= need(rank, id_on(world) == before, "a refused one is used");
    bad |= tt_well(world, tutti_plan_use(world, TUTTI_ALL_REDUCE, s, NULL),
                   "tutti_plan_use");
    bad |= need(rank, id_on(world) == id_of(s), "it is not used");
    bad |= tt_well(world, add_up(world, NULL, &bad), "with it");
    bad |= tt_well(world, add_up(world, "direct", &bad), "with a planner");
    bad |= tt_well(world, tutti_barrier(world, NULL, NULL), "a barrier");
    bad |= tt_well(world, tutti_plan_use(world, TUTTI_ALL_REDUCE, t, NULL),
                   "tutti_plan_use again");
    bad |= need(rank, id_on(world) == id_of(t), "the second is not used");
    bad |= tt_well(world, add_up(world, NULL, &bad), "with the second");
    bad |= tt_well(world, tutti_plan_use(world, TUTTI_ALL_REDUCE, NULL, NULL),
                   "tutti_plan_use of none");
    bad |= need(rank, id_on(world) == before, "it is used after its end");
    bad |= tt_well(world, add_up(world, NULL, &bad), "afterwards");
    tutti_schedule_free(s);
    tutti_schedule_free(t);
    return bad;
}

/* Of a rooted collective only calls with its root. */
static int a_root_counts(tutti_comm *world, int rank, int n)
{
    int bad = 0;
    tutti_schedule *s = plan(n, "direct", TUTTI_BROADCAST); /* root 0 */
    bad |= tt_well(world, tutti_plan_use(world, TUTTI_BROADCAST, s, NULL),
                   "tutti_plan_use");
    for (int root = 0; root < n; root++) {
        int32_t x = rank == root ? 7 + root : 0;
        bad |= tt_well(
            world,
            tutti_broadcast(world, &x, &x, 1, TUTTI_I32, root, NULL, NULL),
            "a broadcast");
        bad |= need(rank, x == 7 + root, "a broadcast has not arrived");
    }
    tutti_schedule_free(s);
    return bad;
}

static int another_than_others_is_found(tutti_comm *world, int rank, int n)
{
    tutti_comm *twin = tt_twin(world);
    if (!twin)
        return 1;
    int bad = 0;
    tutti_schedule *s = plan(n, rank == 1 ? "direct" : "ring",
                             TUTTI_ALL_REDUCE);
    bad |= tt_well(twin, tutti_plan_use(twin, TUTTI_ALL_REDUCE, s, NULL),
                   "tutti_plan_use");
    bad |= tt_expect(twin, add_up(twin, NULL, &bad), TUTTI_EMISMATCH,
                     "with different schedules");
    tutti_schedule_free(s);
    tutti_comm_destroy(twin);
    return bad;
}

/* ----------------------------------------------------------------- files -- */

/* file:PATH of what is written there for this rank. */
static const char *put(const char *text, char *rule, size_t size)
{
    snprintf(rule, size, "file:/tmp/tutti-written-%ld.schedule",
             (long)getpid());
    FILE *f = fopen(rule + 5, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        return NULL;
    return rule;
}

static const char *put_plan(int n, const char *planner, const char *format,
                            char *rule, size_t size)
{
    char *text = NULL;
    size_t len = 0;
    tutti_schedule *s = plan(n, planner, TUTTI_ALL_REDUCE);
    tutti_export(s, format, &text, &len, NULL);
    rule = (char *)put(text, rule, size);
    tutti_text_free(text);
    tutti_schedule_free(s);
    return rule;
}

static int a_file_is_performed(tutti_comm *world, int rank, int n)
{
    char rule[80], range[120];
    int32_t x = rank;
    int bad = 0;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    if (!put_plan(n, "ring", rank % 2 ? "json" : "schedule", rule,
                  sizeof(rule)))
        return tt_procs_complain(rank, "cannot write %s", rule);
    bad |= tt_well(world, add_up(world, rule, &bad), "of a file");
    unlink(rule + 5);
    bad |= tt_well(world, add_up(world, rule, &bad), "of a file that was");
    snprintf(range, sizeof(range), "0-1K:doubling,1K-:%s", rule);
    bad |= tt_well(world, add_up(world, range, &bad), "of a range");
    o.planner = range;
    bad |= tt_well(world,
                   tutti_broadcast(world, &x, &x, 1, TUTTI_I32, 1, &o, NULL),
                   "what the file in a range is not for");
    bad |= need(rank, x == 1, "the broadcast has not arrived");
    return bad;
}

/* One rank has something else there; all hear what. */
static int a_bad_file(tutti_comm *world, int rank, const char *text,
                      tutti_err err, const char *words)
{
    char rule[80];
    int bad = 0;
    tutti_comm *twin = tt_twin(world);
    if (!twin)
        return 1;
    if (rank != 1)
        put_plan(tutti_comm_size(world), "ring", "schedule", rule,
                 sizeof(rule));
    else if (text)
        put(text, rule, sizeof(rule));
    else
        snprintf(rule, sizeof(rule), "file:/nowhere/x.schedule");
    bad |= tt_expect(twin, add_up(twin, rule, &bad), err, words);
    bad |= says(rank, tutti_comm_message(twin), words);
    unlink(rule + 5);
    tutti_comm_destroy(twin);
    return bad;
}

static int a_bad_file_is_refused(tutti_comm *world, int rank, int n)
{
    (void)n;
    int bad = a_bad_file(world, rank, NULL, TUTTI_ESYS,
                         "cannot open /nowhere/x.schedule");
    bad |= a_bad_file(world, rank, "tutti-schedule 7\n", TUTTI_EFORMAT,
                      ":1:16: expected version 1");
    bad |= a_bad_file(world, rank,
                      "tutti-schedule 1\ncollective all-reduce\nranks 3\n"
                      "parts 1\nchunk 0 0 1\ntransfer 0 0 0 1 reduce\nend\n",
                      TUTTI_EPROOF, "is not proven");
    bad |= a_bad_file(world, rank,
                      "tutti-schedule 1\ncollective all-reduce\nranks 2\n"
                      "parts 1\nchunk 0 0 1\ntransfer 0 0 0 1 reduce\n"
                      "transfer 0 0 1 0 reduce\nend\n",
                      TUTTI_ENOFIT, "is for a call of all-reduce of 2 ranks");
    return bad;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_CASE(a_used_schedule_is_performed, 3),
        TT_CASE(a_root_counts, 3),
        TT_CASE_ON("shm", another_than_others_is_found, 3),
        TT_CASE(a_file_is_performed, 4),
        TT_CASE_ON("shm", a_bad_file_is_refused, 3),
    };
    return TT_RUN_TAP(tests);
}
