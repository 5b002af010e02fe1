// SPDX-License-Identifier: BSD-3-Clause
// names.h - what c10d's calls are called. Private to group.cpp and recorder.cpp.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti_torch
{

struct Names {
    c10d::OpType op;
    const char *plain;    // in sentences
    const char *title;    // in profiles
    const char *recorded; // for torch's analyser, which has a list of names
};

// Messages are recorded in words of their own.
inline const Names &names_of(c10d::OpType op)
{
    using c10d::OpType;
    static const Names all[] = {
        {OpType::BROADCAST, "broadcast", "tutti:broadcast", "broadcast"},
        {OpType::ALLREDUCE, "all-reduce", "tutti:all_reduce", "all_reduce"},
        {OpType::ALLREDUCE_COALESCED, "all-reduce", "tutti:all_reduce",
         "allreduce_coalesced"},
        {OpType::_ALLREDUCE_SPARSE, "all-reduce of sparse tensors",
         "tutti:sparse_all_reduce", "all_reduce"},
        {OpType::REDUCE, "reduce", "tutti:reduce", "reduce"},
        {OpType::ALLGATHER, "all-gather", "tutti:all_gather", "all_gather"},
        {OpType::ALLGATHER_COALESCED, "all-gather", "tutti:all_gather",
         "ALLGATHER_coalesced"},
        {OpType::_ALLGATHER_BASE, "all-gather", "tutti:_all_gather_base",
         "_all_gather_base"},
        {OpType::GATHER, "gather", "tutti:gather", "gather"},
        {OpType::SCATTER, "scatter", "tutti:scatter", "scatter"},
        {OpType::REDUCE_SCATTER, "reduce-scatter", "tutti:reduce_scatter",
         "reduce_scatter"},
        {OpType::_REDUCE_SCATTER_BASE, "reduce-scatter",
         "tutti:_reduce_scatter_base", "_reduce_scatter_base"},
        {OpType::ALLTOALL, "all-to-all", "tutti:all_to_all", "all_to_all"},
        {OpType::ALLTOALL_BASE, "all-to-all", "tutti:all_to_all", "all_to_all"},
        {OpType::SEND, "send", "tutti:send", nullptr},
        {OpType::RECV, "recv", "tutti:recv", nullptr},
        {OpType::RECVANYSOURCE, "recvAnysource", "tutti:recvAnySource",
         nullptr},
        {OpType::BARRIER, "barrier", "tutti:barrier", "barrier"},
        {OpType::COALESCED, "coalesced call", "tutti:coalesced", "coalesced"},
    };
    const Names *found = all;
    while (found->op != op && found->op != OpType::COALESCED)
        found++;
    return *found;
}

} // namespace tutti_torch
