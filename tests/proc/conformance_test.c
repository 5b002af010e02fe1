/* SPDX-License-Identifier: BSD-3-Clause
 * conformance_test.c - every collective, between real processes, over every
 * transport between processes: random data, shapes, types and operations, every
 * planner, blocking and not, in place and not, in memory of the library and in
 * any other, against a reference. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cli/reference.h"
#include "support/procs.h"
#include "support/seed.h"
#include "support/ucx.h"

typedef struct round_in {
    tutti_coll coll;
    tutti_type type;
    tutti_op op;
    size_t counts[TT_PROCS_MAX], count; /* counts: the v variants */
    bool has_counts, in_place, is_async;
    int root;
    const char *planner;
    uint64_t seed;
} round_in;

/* As the reference knows it. */
static ref_call call_of(const round_in *in, int rank, int n)
{
    return (ref_call){.coll = in->coll,
                      .type = in->type,
                      .op = in->op,
                      .root = in->root,
                      .rank = rank,
                      .n_ranks = n,
                      .count = in->count,
                      .counts = in->has_counts ? in->counts : NULL,
                      .seed = (uint32_t)in->seed};
}

static tutti_err start(tutti_comm *comm, const round_in *in, const void *src,
                       void *dst, tutti_request **req)
{
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = in->planner;
    o.scale = ref_scale(tutti_comm_rank(comm));
    const tutti_type t = in->type;
    switch (in->coll) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(comm, src, dst, in->count, t, in->op, &o, req);
    case TUTTI_REDUCE:
        return tutti_reduce(comm, src, dst, in->count, t, in->op, in->root, &o,
                            req);
    case TUTTI_BROADCAST:
        return tutti_broadcast(comm, src, dst, in->count, t, in->root, &o, req);
    case TUTTI_REDUCE_SCATTER:
        if (in->has_counts)
            return tutti_reduce_scatter_v(comm, src, dst, in->counts, t, in->op,
                                          &o, req);
        return tutti_reduce_scatter(comm, src, dst, in->count, t, in->op, &o,
                                    req);
    case TUTTI_ALL_GATHER:
        if (in->has_counts)
            return tutti_all_gather_v(comm, src, dst, in->counts, t, &o, req);
        return tutti_all_gather(comm, src, dst, in->count, t, &o, req);
    case TUTTI_GATHER:
        return tutti_gather(comm, src, dst, in->count, t, in->root, &o, req);
    case TUTTI_SCATTER:
        return tutti_scatter(comm, src, dst, in->count, t, in->root, &o, req);
    default:
        return tutti_all_to_all(comm, src, dst, in->count, t, &o, req);
    }
}

/* A ring of messages. Without requests rank 0 receives first, and so breaks
 * the circle in which all would wait for each other. */
static tutti_err pass_on(tutti_comm *comm, const round_in *in, const void *src,
                         void *dst)
{
    int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    int right = (rank + 1) % n, left = (rank + n - 1) % n;
    tutti_request *sent = NULL, *got = NULL;
    tutti_request **s = in->is_async ? &sent : NULL;
    tutti_request **g = in->is_async ? &got : NULL;
    tutti_err err = TUTTI_OK, late = TUTTI_OK;
    if (rank > 0)
        err = tutti_send(comm, src, in->count, in->type, right, NULL, s);
    if (!err)
        err = tutti_recv(comm, dst, in->count, in->type, left, NULL, g);
    if (!err && rank == 0)
        err = tutti_send(comm, src, in->count, in->type, right, NULL, s);
    if (got)
        late = tutti_wait(got);
    if (sent)
        err = tutti_wait(sent);
    return err ? err : late;
}

/* One that is defined for the type. */
static tutti_op random_op(tt_rng *rng, tutti_type type)
{
    tutti_op op;
    do
        op = (tutti_op)tt_rng_below(rng, TUTTI_OP_COUNT);
    while (tutti_op_check(op, type));
    return op;
}

static round_in random_round(tt_rng *rng, int n)
{
    static const tutti_coll colls[] = {
        TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER,
        TUTTI_BROADCAST,  TUTTI_REDUCE,         TUTTI_ALL_TO_ALL,
        TUTTI_GATHER,     TUTTI_SCATTER,        TUTTI_SENDRECV};
    static const size_t sizes[] = {0, 1, 3, 17, 1000, 4097, 30001, 200003};
    round_in in = {
        .coll = colls[tt_rng_below(rng, n > 1 ? 9 : 8)],
        .type = (tutti_type)tt_rng_below(rng, TUTTI_TYPE_COUNT),
        .count = sizes[tt_rng_below(rng, 8)],
        .in_place = tt_rng_below(rng, 2),
        .is_async = tt_rng_below(rng, 2),
        .root = (int)tt_rng_below(rng, (uint64_t)n),
        .planner = "auto",
        .seed = tt_rng_next(rng),
    };
    in.op = random_op(rng, in.type);
    if (in.coll == TUTTI_SENDRECV)
        in.in_place = false;
    bool has_v = in.coll == TUTTI_REDUCE_SCATTER || in.coll == TUTTI_ALL_GATHER;
    uint64_t wish = tt_rng_next(rng), rows = 0;
    tutti_planner_info row;
    while (tutti_planner_at(rows, &row))
        rows++;
    /* A range, not a name: a planner that does not fit gives way to auto. */
    static char rule[32];
    if (tutti_planner_at(wish % (rows + 1), &row)) {
        snprintf(rule, sizeof(rule), "0-:%s", row.name);
        in.planner = rule;
    }
    in.has_counts = has_v && tt_rng_below(rng, 2);
    for (int r = 0; in.has_counts && r < n; r++)
        in.counts[r] = tt_rng_below(rng, 4) * tt_rng_below(rng, 9000);
    if (in.coll == TUTTI_ALL_TO_ALL || in.coll == TUTTI_GATHER ||
        in.coll == TUTTI_SCATTER)
        in.count /= 4;
    return in;
}

/* A buffer of `bytes`, at some offset in memory of the library (which ranks of
 * one host read directly) or of malloc; every rank as it likes. */
typedef struct memory {
    char *base, *at;
    bool is_own;
} memory;

static memory get_memory(tt_rng *rng, size_t bytes)
{
    memory m = {.is_own = tt_rng_below(rng, 3) > 0};
    size_t skip = tt_rng_below(rng, 3) ? 8 * tt_rng_below(rng, 600) : 0;
    m.base = m.is_own ? tutti_alloc(bytes + skip) : malloc(bytes + skip);
    m.at = m.base + skip;
    memset(m.at, 0x5a, bytes);
    return m;
}

static void put_memory(memory m)
{
    if (m.is_own)
        tutti_free(m.base);
    else
        free(m.base);
}

static int one_round(tutti_comm *comm, int rank, int n, const round_in *in)
{
    size_t size = tutti_type_bytes(in->type);
    const ref_call c = call_of(in, rank, n);
    size_t n_in = ref_in_offset(&c) + ref_in_count(&c);
    size_t n_out = ref_out_offset(&c) + ref_out_count(&c);
    size_t most = (n_in > n_out ? n_in : n_out) * size + 16;
    tt_rng own = {in->seed ^ (uint64_t)rank << 32};
    memory first = get_memory(&own, most), second = get_memory(&own, most);
    char *src = first.at, *dst = second.at;
    if (in->in_place) {
        dst = src + ref_out_offset(&c) * size;
        src += ref_in_offset(&c) * size;
    }
    ref_fill(&c, src);
    tutti_request *req = NULL;
    tutti_err err;
    if (in->coll == TUTTI_SENDRECV)
        err = pass_on(comm, in, src, dst);
    else
        err = start(comm, in, src, dst, in->is_async ? &req : NULL);
    if (!err && req)
        err = tutti_wait(req);
    int bad = 0;
    if (err)
        bad = tt_procs_complain(rank, "%s: %s", tutti_errname(err),
                                tutti_comm_message(comm));
    else if (ref_wrong(&c, dst) > 0)
        bad = tt_procs_complain(
            rank,
            "wrong: %s of %zu %s %s by %s, in place %d, root %d, counts %d",
            tutti_coll_name(in->coll), in->count, tutti_type_name(in->type),
            tutti_op_name(in->op), in->planner, in->in_place, in->root,
            in->has_counts);
    put_memory(first);
    put_memory(second);
    return bad;
}

/* No pair of type and operation is left to chance. */
static int every_pair(tutti_comm *comm, int rank, int n, uint64_t seed)
{
    int bad = 0;
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
        for (int op = 0; op < TUTTI_OP_COUNT && !bad; op++) {
            round_in in = {.type = (tutti_type)t,
                           .op = (tutti_op)op,
                           .count = 301,
                           .in_place = op % 2,
                           .planner = "auto",
                           .seed = seed + (uint64_t)op};
            if (!tutti_op_check(in.op, in.type))
                bad = one_round(comm, rank, n, &in);
        }
    }
    return bad;
}

static const char *check; /* of the communicator's options */

static int rounds(int rank, int n, void *arg)
{
    const int n_rounds = *(const int *)arg;
    const uint64_t seed = tt_test_seed(7);
    tt_rng rng = {seed + ((uint64_t)n << 32)};
    if (n % 2) { /* as large vectors: all in place, all past the cache */
        setenv("TUTTI_SHM_DIRECT", "1", 1);
        setenv("TUTTI_CACHE", "1", 1);
    }
    tutti_comm *comm;
    tutti_comm_opts opts = TUTTI_COMM_OPTS_INIT;
    opts.check = check;
    tutti_err err = tutti_comm_create(&opts, &comm);
    if (err)
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = n < 5 && every_pair(comm, rank, n, seed);
    for (int i = 0; i < n_rounds && !bad; i++) {
        round_in in = random_round(&rng, n);
        bad = one_round(comm, rank, n, &in);
    }
    if (bad)
        tt_procs_complain(rank, "TT_SEED=%llu", (unsigned long long)seed);
    tutti_comm_destroy(comm);
    return bad;
}

static void sweep(const char *transports)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        int status[TT_PROCS_MAX], n_rounds = sizes[i] > 4 ? 40 : 100;
        tt_procs p = {.n = sizes[i],
                      .timeout_s = 90,
                      .transports = transports,
                      .run = rounds,
                      .arg = &n_rounds};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, p.n), 0);
    }
}

static void over_shm(void **state)
{
    (void)state;
    sweep("shm");
}

static void over_tcp(void **state)
{
    (void)state;
    sweep("tcp");
}

static void over_sockets(void **state)
{
    (void)state;
    setenv("TUTTI_SOCKETS", "3", 1);
    sweep("tcp");
    unsetenv("TUTTI_SOCKETS");
}

static void over_both(void **state)
{
    (void)state;
    sweep("shm,tcp");
}

static void checked(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it starts no thread of its own */
#endif
    check = "crc";
    sweep("shm");
    sweep("tcp");
    check = NULL;
}

/* By each of what UCX can do without special hardware. */
static void over_ucx(void **state)
{
    const char *lack = tt_ucx_use(*state);
    if (lack) {
        print_message("# skipped: %s\n", lack);
        skip();
    }
    sweep("ucx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shm),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(over_sockets),
        cmocka_unit_test(over_both),
        cmocka_unit_test(checked),
        {.name = "over_ucx_by_tcp",
         .test_func = over_ucx,
         .initial_state = TT_UCX_BY_TCP},
        {.name = "over_ucx_by_shm",
         .test_func = over_ucx,
         .initial_state = TT_UCX_BY_SHM},
    };
    return TT_RUN_TAP(tests);
}
