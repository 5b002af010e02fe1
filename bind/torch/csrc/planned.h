// SPDX-License-Identifier: BSD-3-Clause
// planned.h - what tutti.torch.DataParallel and the hook for DDP need beyond
// c10d: an all-reduce by a named planner and with a priority, when it was over,
// and how long it is predicted to take.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <tuple>

#include "group.h"

namespace tutti_torch
{

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// Nanoseconds of the steady clock, Python's time.monotonic_ns(); 0: not yet.
struct Times {
    int64_t started = 0;
    std::atomic<int64_t> finished{0};
};

// How a call is to be made; equal on all ranks.
struct How {
    std::string planner; // or rule; empty: TUTTI_PLANNER
    int priority;        // higher is served first
    bool average;        // else the sum
};

// All-reduce of `input` (contiguous) to `output`, which may be the same. The
// Work is of this call alone, also while coalescing.
std::tuple<WorkPtr, std::shared_ptr<Times>>
planned_all_reduce(const BackendPtr &group, const at::Tensor &input,
                   const at::Tensor &output, const How &how);

// {seconds, the planner's name} of an all-reduce of so many bytes, by the
// simulator on the network that the group knows, else on a stand-in for it.
// Nothing is sent. Throws ValueError where the planner does not fit.
std::tuple<double, std::string> predict(const BackendPtr &group, int64_t bytes,
                                        const std::string &planner);

// {of the group's network, in words; whether it is known}
std::tuple<std::string, bool> network(const BackendPtr &group);

} // namespace tutti_torch
