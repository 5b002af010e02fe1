/* SPDX-License-Identifier: BSD-3-Clause
 * messages_test.c - send and receive: tags, receives from any rank, and what
 * happens when the others do not come, leave, die, or send something else. */
#include "support/tap.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "base/rng.h"
#include "core/core.h"
#include "support/cases.h"
#include "support/seed.h"

static tutti_call_opts tagged(int tag)
{
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.tag = tag;
    return o;
}

/* ------------------------------------------------------------------ tags -- */

enum { TAGS = 20 };
static const size_t sizes[] = {1, 100, 5000, 300000};

static void fill(int32_t *x, size_t n, int from, int tag, int k)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)(i * 7 + (size_t)(from * 1000003 + tag * 1009 + k));
}

static int check(const int32_t *x, size_t n, int from, int tag, int k)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] !=
            (int32_t)(i * 7 + (size_t)(from * 1000003 + tag * 1009 + k)))
            return tt_procs_complain(0, "element %zu from %d, tag %d is wrong",
                                     i, from, tag);
    return 0;
}

/* Rank 0 sends tags upwards, rank 1 receives them downwards. */
static int send_tags(tutti_comm *comm, int32_t *x[TAGS])
{
    tutti_request *reqs[TAGS];
    int bad = 0;
    for (int t = 0; t < TAGS; t++) {
        tutti_call_opts o = tagged(t * 1000000);
        size_t n = sizes[t % 4];
        fill(x[t], n, 0, t, 0);
        bad |= tt_well(comm,
                       tutti_send(comm, x[t], n, TUTTI_I32, 1, &o, &reqs[t]),
                       "send");
    }
    for (int t = 0; t < TAGS && !bad; t++)
        bad |= tt_well(comm, tutti_wait(reqs[t]), "wait");
    return bad;
}

static int receive_tags(tutti_comm *comm, int32_t *x[TAGS])
{
    int bad = 0;
    for (int t = TAGS; t-- > 0 && !bad;) {
        tutti_call_opts o = tagged(t * 1000000);
        size_t n = sizes[t % 4];
        bad |= tt_well(comm, tutti_recv(comm, x[t], n, TUTTI_I32, 0, &o, NULL),
                       "recv");
        bad = bad || check(x[t], n, 0, t, 0);
    }
    return bad;
}

static int tags_match_in_any_order(tutti_comm *comm, int rank, int n)
{
    int32_t *x[TAGS];
    (void)n;
    for (int t = 0; t < TAGS; t++)
        x[t] = calloc(sizes[t % 4], sizeof(int32_t));
    int bad = rank == 0 ? send_tags(comm, x) : receive_tags(comm, x);
    tutti_call_opts o = tagged(-1);
    if (tutti_send(comm, x[0], 1, TUTTI_I32, 1 - rank, &o, NULL) !=
        TUTTI_EINVAL)
        bad |= tt_procs_complain(rank, "a negative tag was taken");
    bad = bad || tt_well(comm, tutti_barrier(comm, NULL, NULL), "barrier");
    for (int t = 0; t < TAGS; t++)
        free(x[t]);
    return bad;
}

/* -------------------------------------------------------------- from any -- */

enum { EACH = 40, LONG = 30000 };

/* What the senders do: a few calls that are in flight at a time. */
static int send_many(tutti_comm *comm, int rank, size_t n)
{
    static int32_t x[4][LONG];
    tutti_request *reqs[4] = {NULL};
    tutti_call_opts o = tagged(9);
    int bad = 0;
    for (int k = 0; k < EACH && !bad; k++) {
        if (reqs[k % 4])
            bad |= tt_well(comm, tutti_wait(reqs[k % 4]), "wait");
        fill(x[k % 4], n, rank, 9, k);
        bad |= tt_well(
            comm, tutti_send(comm, x[k % 4], n, TUTTI_I32, 0, &o, &reqs[k % 4]),
            "send");
    }
    for (int k = 0; k < 4 && !bad; k++)
        bad |= tt_well(comm, tutti_wait(reqs[k]), "wait");
    return bad;
}

static int receive_many(tutti_comm *comm, int n_ranks, size_t n)
{
    static int32_t x[LONG];
    int seen[TT_PROCS_MAX] = {0};
    tutti_call_opts o = tagged(9);
    int bad = 0;
    for (int i = 0; i < EACH * (n_ranks - 1) && !bad; i++) {
        int from = -1;
        bad |= tt_well(comm,
                       tutti_recv_any(comm, x, n, TUTTI_I32, &from, &o, NULL),
                       "recv from any");
        if (!bad && (from < 1 || from >= n_ranks))
            bad = tt_procs_complain(0, "from %d", from);
        bad = bad || check(x, n, from, 9, seen[from]++);
    }
    return bad;
}

static int nothing_is_lost_from_any(tutti_comm *comm, int rank, int n)
{
    int bad = 0;
    static const size_t lens[] = {3, LONG};
    for (int i = 0; i < 2 && !bad; i++) {
        bad = rank == 0 ? receive_many(comm, n, lens[i])
                        : send_many(comm, rank, lens[i]);
        bad = bad || tt_well(comm, tutti_barrier(comm, NULL, NULL), "barrier");
    }
    return bad;
}

/* Everybody has sent, and the barrier tells that it is here: now they must take
 * turns. Both kinds of announcement: small (kept) and large (early). */
static int senders_take_turns(tutti_comm *comm, int rank, int n)
{
    enum { ROUNDS = 5 };
    static int32_t x[ROUNDS][LONG];
    static const size_t lens[] = {2, LONG};
    int bad = 0;
    for (int i = 0; i < 2 && !bad; i++) {
        tutti_request *reqs[ROUNDS];
        tutti_call_opts o = tagged(i);
        for (int k = 0; rank > 0 && k < ROUNDS; k++)
            bad |= tt_well(
                comm,
                tutti_send(comm, x[k], lens[i], TUTTI_I32, 0, &o, &reqs[k]),
                "send");
        bad = bad || tt_well(comm, tutti_barrier(comm, NULL, NULL), "barrier");
        int count[8] = {0};
        for (int k = 0; rank == 0 && k < ROUNDS * (n - 1) && !bad; k++) {
            int from;
            bad |= tt_well(
                comm,
                tutti_recv_any(comm, x[0], lens[i], TUTTI_I32, &from, &o, NULL),
                "recv from any");
            if (!bad && count[from]++ != k / (n - 1))
                bad = tt_procs_complain(rank, "message %d is from %d again", k,
                                        from);
        }
        for (int k = 0; rank > 0 && k < ROUNDS && !bad; k++)
            bad |= tt_well(comm, tutti_wait(reqs[k]), "wait");
    }
    return bad;
}

/* ---------------------------------------------------------------- random -- */

enum { STEPS = 150, MOST = 2000 };

typedef struct message {
    int from, to, tag, k;
    size_t n;
    bool is_any;
    tutti_request *req;
    int source;
    int32_t x[MOST];
} message;

/* All ranks draw the same messages; a pair's tag is either for receives from
 * any rank (all of one length) or for such that name the rank. */
static int random_messages_arrive(tutti_comm *comm, int rank, int n)
{
    static message list[STEPS];
    tt_rng rng = {.state = tt_test_seed(20261122)};
    int counts[8][8][8] = {{{0}}};
    int taken[8][8] = {{0}};
    int bad = 0;
    int32_t sum = 0;
    for (int i = 0; i < STEPS; i++) {
        message *m = &list[i];
        m->from = (int)tt_rng_below(&rng, (uint64_t)n);
        m->to = (m->from + 1 + (int)tt_rng_below(&rng, (uint64_t)n - 1)) % n;
        m->tag = (int)tt_rng_below(&rng, 8);
        m->is_any = m->tag >= 5;
        m->n = m->is_any ? (size_t)m->tag * 50 : 1 + tt_rng_below(&rng, MOST);
        m->k = counts[m->from][m->to][m->tag]++;
    }
    for (int i = 0; i < STEPS && !bad; i++) {
        message *m = &list[i];
        tutti_call_opts o = tagged(m->tag);
        tutti_err err = TUTTI_OK;
        if (m->from == rank) {
            fill(m->x, m->n, rank, m->tag, m->k);
            err = tutti_send(comm, m->x, m->n, TUTTI_I32, m->to, &o, &m->req);
        } else if (m->to == rank && m->is_any) {
            err = tutti_recv_any(comm, m->x, m->n, TUTTI_I32, &m->source, &o,
                                 &m->req);
        } else if (m->to == rank) {
            err = tutti_recv(comm, m->x, m->n, TUTTI_I32, m->from, &o, &m->req);
        }
        bad |= tt_well(comm, err, "a message");
        if (i % 20 == 19)
            bad |= tt_well(comm,
                           tutti_all_reduce(comm, &sum, &sum, 1, TUTTI_I32,
                                            TUTTI_SUM, NULL, NULL),
                           "all-reduce");
    }
    for (int i = 0; i < STEPS && !bad; i++)
        if (list[i].req)
            bad |= tt_well(comm, tutti_wait(list[i].req), "wait");
    for (int i = 0; i < STEPS && !bad; i++) {
        message *m = &list[i];
        if (m->to != rank)
            continue;
        int from = m->is_any ? m->source : m->from;
        int k = m->is_any ? taken[from][m->tag]++ : m->k;
        bad = check(m->x, m->n, from, m->tag, k);
    }
    return bad;
}

/* -------------------------------------------------------------- failures -- */

static int expect(tutti_comm *comm, int rank, tutti_err got, tutti_err want,
                  const char *text)
{
    if (got == want && strstr(tutti_comm_message(comm), text))
        return 0;
    return tt_procs_complain(rank, "%s: \"%s\", expected %s: \"%s\"",
                             tutti_errname(got), tutti_comm_message(comm),
                             tutti_errname(want), text);
}

static int other_counts_are_named(tutti_comm *comm, int rank, int n)
{
    int32_t x[8] = {0};
    int from = -1;
    tutti_err err;
    tutti_call_opts o = tagged(3);
    (void)n;
    if (rank == 0) {
        err = tutti_recv_any(comm, x, 8, TUTTI_I32, &from, &o, NULL);
    } else {
        err = tutti_send(comm, x, 7, TUTTI_I32, 0, &o, NULL);
        if (!err) /* it had left before the other looked */
            err = tutti_barrier(comm, NULL, NULL);
    }
    return expect(comm, rank, err, TUTTI_EMISMATCH, "send-recv of 7 i32") ||
           expect(comm, rank, err, TUTTI_EMISMATCH, "message 1 of tag 3");
}

static int a_deadline_passes(tutti_comm *comm, int rank, int n)
{
    int32_t x[8] = {0};
    int from = 77;
    tutti_call_opts o = tagged(3);
    (void)n;
    o.timeout_s = 0.3;
    double start = tt_now_s();
    if (rank == 0)
        return expect(comm, rank,
                      tutti_recv_any(comm, x, 8, TUTTI_I32, &from, &o, NULL),
                      TUTTI_ETIMEOUT,
                      "recv from any rank, tag 3, timed out on rank 0 after "
                      "0.3 s") ||
               tt_now_s() - start > 20 || from != 77;
    return expect(comm, rank, tutti_barrier(comm, NULL, NULL), TUTTI_ETIMEOUT,
                  "no rank has sent");
}

static int watch_death(tutti_comm *comm, int rank, int n)
{
    int32_t x[8] = {0};
    int from;
    (void)n;
    if (rank == 1) {
        usleep(100000);
        kill(getpid(), SIGKILL);
    }
    double start = tt_now_s();
    tutti_err err = tutti_recv_any(comm, x, 8, TUTTI_I32, &from, NULL, NULL);
    return expect(comm, rank, err, TUTTI_EPEER, "rank 1 is lost") ||
           tt_now_s() - start > 20;
}

static int die_or_watch(int rank, int n, void *arg)
{
    tutti_comm *comm;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = watch_death(comm, rank, n);
    tutti_comm_destroy(comm);
    return bad;
}

static void a_death_ends_it(void **state)
{
    (void)state;
    static const char *const transports[] = {"shm", "tcp"};
    for (int i = 0; i < 2; i++) {
        int status[TT_PROCS_MAX];
        tt_procs p = {.n = 3,
                      .timeout_s = 55,
                      .transports = transports[i],
                      .run = die_or_watch};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(status[0], 0);
        assert_int_equal(status[2], 0);
    }
}

/* What those who have left had sent is received; then there is nobody. */
static int all_others_leave(tutti_comm *comm, int rank, int n)
{
    int32_t x[8] = {0};
    int from;
    if (rank > 0)
        return tt_well(comm, tutti_send(comm, x, 8, TUTTI_I32, 0, NULL, NULL),
                       "send");
    for (int i = 1; i < n; i++)
        if (tt_well(comm,
                    tutti_recv_any(comm, x, 8, TUTTI_I32, &from, NULL, NULL),
                    "recv from any"))
            return 1;
    return expect(comm, rank,
                  tutti_recv_any(comm, x, 8, TUTTI_I32, &from, NULL, NULL),
                  TUTTI_EPEER, "all other ranks have left");
}

static int a_communicator_ends_with_one_waiting(tutti_comm *comm, int rank,
                                                int n)
{
    static int32_t x[8];
    tutti_comm *all;
    tutti_request *req;
    (void)n;
    if (tt_well(comm, tutti_comm_split(comm, 0, rank, &all), "split") ||
        tt_well(all, tutti_recv_any(all, x, 8, TUTTI_I32, NULL, NULL, &req),
                "recv from any"))
        return 1;
    int bad = tutti_test(req) != TUTTI_AGAIN;
    bad |= tt_well(comm, tutti_barrier(comm, NULL, NULL), "barrier");
    tutti_comm_destroy(all);
    tutti_err err = tutti_wait(req);
    if (err != TUTTI_EABORTED && err != TUTTI_EPEER)
        bad = tt_procs_complain(rank, "%s", tutti_errname(err));
    return bad || tt_well(comm, tutti_barrier(comm, NULL, NULL), "barrier");
}

static int bad_arguments_are_refused(tutti_comm *comm, int rank, int n)
{
    int32_t x = 0;
    tutti_comm *self;
    (void)n;
    if (tutti_comm_split(comm, rank, 0, &self))
        return 1;
    int bad = tutti_recv_any(self, &x, 1, TUTTI_I32, NULL, NULL, NULL) !=
                  TUTTI_EINVAL ||
              tutti_recv_any(comm, &x, 0, TUTTI_I32, NULL, NULL, NULL) !=
                  TUTTI_EINVAL ||
              tutti_recv_any(comm, NULL, 1, TUTTI_I32, NULL, NULL, NULL) !=
                  TUTTI_EINVAL ||
              tutti_recv_any(comm, &x, 1, (tutti_type)99, NULL, NULL, NULL) !=
                  TUTTI_EINVAL;
    tutti_comm_destroy(self);
    return bad || tt_well(comm, tutti_barrier(comm, NULL, NULL), "barrier");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_CASE(tags_match_in_any_order, 2),
        TT_CASE(nothing_is_lost_from_any, 2),
        TT_CASE(nothing_is_lost_from_any, 4),
        TT_CASE(senders_take_turns, 4),
        TT_CASE(random_messages_arrive, 4),
        TT_CASE(random_messages_arrive, 7),
        TT_CASE(other_counts_are_named, 2),
        TT_CASE(a_deadline_passes, 3),
        cmocka_unit_test(a_death_ends_it),
        TT_CASE(all_others_leave, 3),
        TT_CASE(a_communicator_ends_with_one_waiting, 3),
        TT_CASE_ON("shm", bad_arguments_are_refused, 2),
    };
    return TT_RUN_TAP(tests);
}
