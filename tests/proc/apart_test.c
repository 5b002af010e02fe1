/* SPDX-License-Identifier: BSD-3-Clause
 * apart_test.c - what a program does in its communicator, with parts of it and
 * with each other rank: every collective, from every root, messages between all
 * pairs, groups of ranks that are no neighbours, an agreement, partial reduce.
 *
 * It forks its ranks. Where TUTTI_RANK is set it is one rank of a job instead:
 * neighbours.sh runs it on hosts of which only neighbours reach each other. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti.h>
#include <tutti_partial.h>

#include "support/procs.h"

enum { COUNT = 20000 };

typedef struct job {
    tutti_comm *comm;
    int rank, n;
    uint32_t *in, *out; /* [n * COUNT] */
} job;

static uint32_t value(int from, int to, int i)
{
    return (uint32_t)(from * 1000003 + to * 7919 + i);
}

static int failed(const job *j, const char *what)
{
    return tt_procs_complain(j->rank, "%s: %s", what,
                             tutti_comm_message(j->comm));
}

static int wrong(const job *j, const char *what, int at)
{
    return tt_procs_complain(j->rank, "%s: block %d is wrong", what, at);
}

/* Block b is what `from` has for `to`. */
static bool is_block(const job *j, int b, int from, int to)
{
    for (int i = 0; i < COUNT; i++)
        if (j->out[(size_t)b * COUNT + (size_t)i] != value(from, to, i))
            return false;
    return true;
}

static void fill(job *j, int to_first, int n_blocks)
{
    memset(j->out, 0, (size_t)j->n * COUNT * sizeof(*j->out));
    for (int b = 0; b < n_blocks; b++)
        for (int i = 0; i < COUNT; i++)
            j->in[(size_t)b * COUNT + (size_t)i] = value(j->rank, to_first + b,
                                                         i);
}

/* Of `to` by all ranks, in block b. */
static bool is_sum(const job *j, int b, int to)
{
    for (int i = 0; i < COUNT; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < j->n; r++)
            sum += value(r, to, i);
        if (j->out[(size_t)b * COUNT + (size_t)i] != sum)
            return false;
    }
    return true;
}

/* ----------------------------------------------------------- collectives -- */

static int of_all(job *j)
{
    fill(j, 0, 1);
    if (tutti_all_reduce(j->comm, j->in, j->out, COUNT, TUTTI_U32, TUTTI_SUM,
                         NULL, NULL))
        return failed(j, "all-reduce");
    if (!is_sum(j, 0, 0))
        return wrong(j, "all-reduce", 0);
    fill(j, 0, j->n);
    if (tutti_reduce_scatter(j->comm, j->in, j->out, COUNT, TUTTI_U32,
                             TUTTI_SUM, NULL, NULL))
        return failed(j, "reduce-scatter");
    if (!is_sum(j, 0, j->rank))
        return wrong(j, "reduce-scatter", j->rank);
    fill(j, 0, 1);
    if (tutti_all_gather(j->comm, j->in, j->out, COUNT, TUTTI_U32, NULL, NULL))
        return failed(j, "all-gather");
    for (int b = 0; b < j->n; b++)
        if (!is_block(j, b, b, 0))
            return wrong(j, "all-gather", b);
    fill(j, 0, j->n);
    if (tutti_all_to_all(j->comm, j->in, j->out, COUNT, TUTTI_U32, NULL, NULL))
        return failed(j, "all-to-all");
    for (int b = 0; b < j->n; b++)
        if (!is_block(j, b, b, j->rank))
            return wrong(j, "all-to-all", b);
    if (tutti_barrier(j->comm, NULL, NULL))
        return failed(j, "barrier");
    return 0;
}

static int of_root(job *j, int root)
{
    fill(j, 0, 1);
    if (tutti_broadcast(j->comm, j->in, j->out, COUNT, TUTTI_U32, root, NULL,
                        NULL))
        return failed(j, "broadcast");
    if (!is_block(j, 0, root, 0))
        return wrong(j, "broadcast", 0);
    fill(j, 0, 1);
    if (tutti_reduce(j->comm, j->in, j->out, COUNT, TUTTI_U32, TUTTI_SUM, root,
                     NULL, NULL))
        return failed(j, "reduce");
    if (j->rank == root && !is_sum(j, 0, 0))
        return wrong(j, "reduce", 0);
    fill(j, 0, 1);
    if (tutti_gather(j->comm, j->in, j->out, COUNT, TUTTI_U32, root, NULL,
                     NULL))
        return failed(j, "gather");
    for (int b = 0; b < j->n && j->rank == root; b++)
        if (!is_block(j, b, b, 0))
            return wrong(j, "gather", b);
    fill(j, 0, j->n);
    if (tutti_scatter(j->comm, j->in, j->out, COUNT, TUTTI_U32, root, NULL,
                      NULL))
        return failed(j, "scatter");
    return is_block(j, 0, root, j->rank) ? 0 : wrong(j, "scatter", 0);
}

static int collectives(job *j)
{
    int bad = of_all(j);
    for (int root = 0; root < j->n && !bad; root++)
        bad = of_root(j, root);
    return bad;
}

/* -------------------------------------------------------------- messages -- */

/* All pairs, both ways. */
static int messages(job *j)
{
    for (int far = 1; far < j->n; far++) {
        const int to = (j->rank + far) % j->n;
        const int from = (j->rank + j->n - far) % j->n;
        tutti_request *sent = NULL, *got = NULL;
        fill(j, to, 1);
        if (tutti_recv(j->comm, j->out, COUNT, TUTTI_U32, from, NULL, &got) ||
            tutti_send(j->comm, j->in, COUNT, TUTTI_U32, to, NULL, &sent) ||
            tutti_wait(sent) || tutti_wait(got))
            return failed(j, "a message");
        if (!is_block(j, 0, from, j->rank))
            return wrong(j, "a message", from);
    }
    return 0;
}

/* ----------------------------------------------------------------- parts -- */

/* Even and odd ranks: no two of them are neighbours on a ring. */
static int parts(job *j)
{
    tutti_comm *part;
    if (tutti_comm_split(j->comm, j->rank % 2, j->rank, &part))
        return failed(j, "split");
    job own = *j;
    own.comm = part;
    own.rank = tutti_comm_rank(part);
    own.n = tutti_comm_size(part);
    int bad = collectives(&own);
    if (!bad)
        bad = messages(&own);
    tutti_comm_destroy(part);
    uint64_t mask = ~(UINT64_C(1) << j->rank);
    if (!bad && tutti_comm_agree(j->comm, &mask))
        bad = failed(j, "agree");
    for (int r = 0; r < j->n && !bad; r++)
        if (mask >> r & 1)
            bad = wrong(j, "agree", r);
    return bad;
}

/* -------------------------------------------------------- partial reduce -- */

/* In groups of two, whoever they are, and all at the end. */
static int partial(job *j)
{
    enum { STEPS = 12 };
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    tutti_partial *p;
    static float model[COUNT];
    o.group_size = 2;
    if (tutti_partial_open(j->comm, &o, &p))
        return tt_procs_complain(j->rank, "partial: %s", tutti_last_message());
    for (int i = 0; i < COUNT; i++)
        model[i] = (float)j->rank;
    for (uint64_t step = 1; step <= STEPS; step++) {
        if (tutti_partial_announce(p, step, step == STEPS, NULL, NULL) ||
            tutti_partial_reduce(p, model, COUNT, TUTTI_F32, NULL, NULL) ||
            tutti_partial_commit(p, NULL, NULL))
            return tt_procs_complain(j->rank, "partial: %s",
                                     tutti_partial_message(p));
    }
    tutti_partial_info info;
    tutti_partial_describe(p, &info);
    tutti_partial_close(p);
    for (int i = 0; i < COUNT; i++)
        if (model[i] < 0 || model[i] > (float)(j->n - 1))
            return wrong(j, "partial", i);
    return info.n_broken == 0 ? 0 : tt_procs_complain(j->rank, "a group broke");
}

/* ------------------------------------------------------------------ rank -- */

static int be_rank(int rank, int n, void *arg)
{
    (void)rank, (void)n, (void)arg;
    job j = {0};
    if (tutti_comm_create(NULL, &j.comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    j.rank = tutti_comm_rank(j.comm);
    j.n = tutti_comm_size(j.comm);
    j.in = calloc((size_t)j.n * COUNT, sizeof(*j.in));
    j.out = calloc((size_t)j.n * COUNT, sizeof(*j.out));
    int bad = !j.in || !j.out;
    for (int i = 0; i < 2 && !bad; i++)
        bad = collectives(&j) || messages(&j) || parts(&j);
    if (!bad)
        bad = partial(&j);
    if (!bad && j.rank == 0)
        printf("all is well on %d ranks\n", j.n);
    free(j.in);
    free(j.out);
    tutti_comm_destroy(j.comm);
    return bad;
}

static void on_one_host(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = 4, .timeout_s = 120, .run = be_rank};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, 4), 0);
}

int main(void)
{
    const char *rank = getenv("TUTTI_RANK");
    if (rank && *rank)
        return be_rank(atoi(rank), 0, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_host),
    };
    return TT_RUN_TAP(tests);
}
