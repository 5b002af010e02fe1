/* SPDX-License-Identifier: BSD-3-Clause
 * collectives.c - the public calls, each in a few lines: what shape it has. */
#include "core/core.h"

#define NO_ROOT TT_NONE

tutti_err tutti_all_reduce(tutti_comm *comm, const void *in, void *out,
                           size_t count, tutti_type type, tutti_op op,
                           const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {
        .shape = {.coll = TUTTI_ALL_REDUCE, .root = NO_ROOT, .count = count},
        .in = in,
        .out = out,
        .type = type,
        .op = op,
        .opts = opts,
        .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_reduce_scatter(tutti_comm *comm, const void *in, void *out,
                               size_t count, tutti_type type, tutti_op op,
                               const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {.shape = {.coll = TUTTI_REDUCE_SCATTER,
                                 .root = NO_ROOT,
                                 .count = count},
                       .in = in,
                       .out = out,
                       .type = type,
                       .op = op,
                       .opts = opts,
                       .req = req};
    return tt_comm_call(comm, &call);
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
    if (!counts)
        return no_counts(comm, "reduce-scatter");
    tt_call_in call = {.shape = {.coll = TUTTI_REDUCE_SCATTER,
                                 .root = NO_ROOT,
                                 .counts = counts},
                       .in = in,
                       .out = out,
                       .type = type,
                       .op = op,
                       .opts = opts,
                       .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_all_gather(tutti_comm *comm, const void *in, void *out,
                           size_t count, tutti_type type,
                           const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {
        .shape = {.coll = TUTTI_ALL_GATHER, .root = NO_ROOT, .count = count},
        .in = in,
        .out = out,
        .type = type,
        .opts = opts,
        .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_all_gather_v(tutti_comm *comm, const void *in, void *out,
                             const size_t *counts, tutti_type type,
                             const tutti_call_opts *opts, tutti_request **req)
{
    if (!counts)
        return no_counts(comm, "all-gather");
    tt_call_in call = {
        .shape = {.coll = TUTTI_ALL_GATHER, .root = NO_ROOT, .counts = counts},
        .in = in,
        .out = out,
        .type = type,
        .opts = opts,
        .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_broadcast(tutti_comm *comm, const void *in, void *out,
                          size_t count, tutti_type type, int root,
                          const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {.shape = {.coll = TUTTI_BROADCAST,
                                 .root = (uint32_t)root,
                                 .count = count},
                       .in = in,
                       .out = out,
                       .type = type,
                       .opts = opts,
                       .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_reduce(tutti_comm *comm, const void *in, void *out,
                       size_t count, tutti_type type, tutti_op op, int root,
                       const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {
        .shape = {.coll = TUTTI_REDUCE, .root = (uint32_t)root, .count = count},
        .in = in,
        .out = out,
        .type = type,
        .op = op,
        .opts = opts,
        .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_all_to_all(tutti_comm *comm, const void *in, void *out,
                           size_t count, tutti_type type,
                           const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {
        .shape = {.coll = TUTTI_ALL_TO_ALL, .root = NO_ROOT, .count = count},
        .in = in,
        .out = out,
        .type = type,
        .opts = opts,
        .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_all_to_all_v(tutti_comm *comm, const void *in,
                             const size_t *in_counts, void *out,
                             const size_t *out_counts, tutti_type type,
                             const tutti_call_opts *opts, tutti_request **req)
{
    if (!in_counts || !out_counts)
        return no_counts(comm, "all-to-all");
    tt_call_in call = {.shape = {.coll = TUTTI_ALL_TO_ALL,
                                 .root = NO_ROOT,
                                 .in_counts = in_counts,
                                 .out_counts = out_counts},
                       .in = in,
                       .out = out,
                       .type = type,
                       .opts = opts,
                       .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_gather(tutti_comm *comm, const void *in, void *out,
                       size_t count, tutti_type type, int root,
                       const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {
        .shape = {.coll = TUTTI_GATHER, .root = (uint32_t)root, .count = count},
        .in = in,
        .out = out,
        .type = type,
        .opts = opts,
        .req = req};
    return tt_comm_call(comm, &call);
}

tutti_err tutti_scatter(tutti_comm *comm, const void *in, void *out,
                        size_t count, tutti_type type, int root,
                        const tutti_call_opts *opts, tutti_request **req)
{
    tt_call_in call = {.shape = {.coll = TUTTI_SCATTER,
                                 .root = (uint32_t)root,
                                 .count = count},
                       .in = in,
                       .out = out,
                       .type = type,
                       .opts = opts,
                       .req = req};
    return tt_comm_call(comm, &call);
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
