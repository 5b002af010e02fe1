/* SPDX-License-Identifier: BSD-3-Clause
 * collectives.c - the public calls, each in a few lines: what shape it has. */
#include "core/core.h"

/* op: of those that reduce; of the others any. */
static TT_ALWAYS_INLINE tutti_err call(tutti_comm *comm, tt_shape shape,
                                       const void *in, void *out,
                                       tutti_type type, tutti_op op,
                                       const tutti_call_opts *opts,
                                       tutti_request **req)
{
    tt_call_in what = {.shape = shape,
                       .in = in,
                       .out = out,
                       .type = type,
                       .op = op,
                       .opts = opts,
                       .req = req};
    return tt_comm_call(comm, &what);
}

#define NO_ROOT TT_NONE
#define NO_OP TUTTI_SUM

tutti_err tutti_all_reduce(tutti_comm *comm, const void *in, void *out,
                           size_t count, tutti_type type, tutti_op op,
                           const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_ALL_REDUCE, .root = NO_ROOT, .count = count};
    return call(comm, shape, in, out, type, op, opts, req);
}

tutti_err tutti_reduce_scatter(tutti_comm *comm, const void *in, void *out,
                               size_t count, tutti_type type, tutti_op op,
                               const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_REDUCE_SCATTER, .root = NO_ROOT, .count = count};
    return call(comm, shape, in, out, type, op, opts, req);
}

static tutti_err no_counts(tutti_comm *comm, const char *name)
{
    return tt_comm_fail(comm, TUTTI_EINVAL, "%s: counts is NULL", name);
}

tutti_err tutti_reduce_scatter_v(tutti_comm *comm, const void *in, void *out,
                                 const size_t *counts, tutti_type type,
                                 tutti_op op, const tutti_call_opts *opts,
                                 tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_REDUCE_SCATTER, .root = NO_ROOT, .counts = counts};
    if (!counts)
        return no_counts(comm, "reduce-scatter");
    return call(comm, shape, in, out, type, op, opts, req);
}

tutti_err tutti_all_gather(tutti_comm *comm, const void *in, void *out,
                           size_t count, tutti_type type,
                           const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_ALL_GATHER, .root = NO_ROOT, .count = count};
    return call(comm, shape, in, out, type, NO_OP, opts, req);
}

tutti_err tutti_all_gather_v(tutti_comm *comm, const void *in, void *out,
                             const size_t *counts, tutti_type type,
                             const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_ALL_GATHER, .root = NO_ROOT, .counts = counts};
    if (!counts)
        return no_counts(comm, "all-gather");
    return call(comm, shape, in, out, type, NO_OP, opts, req);
}

tutti_err tutti_broadcast(tutti_comm *comm, const void *in, void *out,
                          size_t count, tutti_type type, int root,
                          const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_BROADCAST, .root = (uint32_t)root, .count = count};
    return call(comm, shape, in, out, type, NO_OP, opts, req);
}

tutti_err tutti_reduce(tutti_comm *comm, const void *in, void *out,
                       size_t count, tutti_type type, tutti_op op, int root,
                       const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_REDUCE, .root = (uint32_t)root, .count = count};
    return call(comm, shape, in, out, type, op, opts, req);
}

tutti_err tutti_all_to_all(tutti_comm *comm, const void *in, void *out,
                           size_t count, tutti_type type,
                           const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_ALL_TO_ALL, .root = NO_ROOT, .count = count};
    return call(comm, shape, in, out, type, NO_OP, opts, req);
}

tutti_err tutti_all_to_all_v(tutti_comm *comm, const void *in,
                             const size_t *in_counts, void *out,
                             const size_t *out_counts, tutti_type type,
                             const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {.coll = TUTTI_ALL_TO_ALL,
                            .root = NO_ROOT,
                            .in_counts = in_counts,
                            .out_counts = out_counts};
    if (!in_counts || !out_counts)
        return no_counts(comm, "all-to-all");
    return call(comm, shape, in, out, type, NO_OP, opts, req);
}

tutti_err tutti_gather(tutti_comm *comm, const void *in, void *out,
                       size_t count, tutti_type type, int root,
                       const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_GATHER, .root = (uint32_t)root, .count = count};
    return call(comm, shape, in, out, type, NO_OP, opts, req);
}

tutti_err tutti_scatter(tutti_comm *comm, const void *in, void *out,
                        size_t count, tutti_type type, int root,
                        const tutti_call_opts *opts, tutti_request **req)
{
    const tt_shape shape = {
        .coll = TUTTI_SCATTER, .root = (uint32_t)root, .count = count};
    return call(comm, shape, in, out, type, NO_OP, opts, req);
}

/* A barrier is an all-reduce of one byte that nobody looks at. */
tutti_err tutti_barrier(tutti_comm *comm, const tutti_call_opts *opts,
                        tutti_request **req)
{
    tt_call_in call = {
        .shape = {.coll = TUTTI_ALL_REDUCE, .root = NO_ROOT, .count = 1},
        .in = comm->barrier,
        .out = comm->barrier,
        .type = TUTTI_U8,
        .op = TUTTI_BOR,
        .opts = opts,
        .req = req,
        .is_barrier = true};
    return tt_comm_call(comm, &call);
}

/* -------------------------------------------------------------- messages -- */

static void make_message(tt_call_in *call, bool is_send)
{
    call->is_message = true;
    call->shape.coll = TUTTI_BROADCAST;
    call->shape.rank = is_send ? 0 : 1;
    call->shape.n_ranks = 2;
    call->shape.root = 0;
}

static tutti_err check_other(tutti_comm *comm, int other, const char *what)
{
    if (other >= 0 && (uint32_t)other < comm->n_ranks &&
        (uint32_t)other != comm->rank)
        return TUTTI_OK;
    return tt_comm_fail(comm, TUTTI_EINVAL,
                        "%s: rank %d is not another of the %u ranks", what,
                        other, comm->n_ranks);
}

tutti_err tutti_send(tutti_comm *comm, const void *buf, size_t count,
                     tutti_type type, int to, const tutti_call_opts *opts,
                     tutti_request **req)
{
    /* The root of a broadcast has its result already: out is in. */
    tt_call_in call = {.shape = {.count = count},
                       .in = buf,
                       .out = (void *)(uintptr_t)buf,
                       .type = type,
                       .opts = opts,
                       .req = req,
                       .from = comm->rank,
                       .to = (uint32_t)to};
    tutti_err err = check_other(comm, to, "send");
    make_message(&call, true);
    return err ? err : tt_comm_call(comm, &call);
}

tutti_err tutti_recv(tutti_comm *comm, void *buf, size_t count, tutti_type type,
                     int from, const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {.shape = {.count = count},
                       .out = buf,
                       .type = type,
                       .opts = opts,
                       .req = req,
                       .from = (uint32_t)from,
                       .to = comm->rank};
    tutti_err err = check_other(comm, from, "recv");
    make_message(&call, false);
    return err ? err : tt_comm_call(comm, &call);
}

tutti_err tutti_recv_any(tutti_comm *comm, void *buf, size_t count,
                         tutti_type type, int *from,
                         const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {.shape = {.count = count},
                       .out = buf,
                       .type = type,
                       .opts = opts,
                       .req = req,
                       .from = TT_NONE,
                       .to = comm->rank,
                       .source = from};
    if (count == 0 || comm->n_ranks == 1)
        return tt_comm_fail(comm, TUTTI_EINVAL, "recv from any rank: %s",
                            count == 0 ? "a message of no elements tells "
                                         "nothing, not even who has sent it"
                                       : "there is no other rank");
    make_message(&call, false);
    return tt_comm_call(comm, &call);
}
