// SPDX-License-Identifier: BSD-3-Clause
// messages.cpp - messages between two ranks, and barriers, of which the
// monitored one is made of messages; see group.h.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device.h"
#include "parts.h"
#include "wayback.h"

namespace tutti_torch
{

// ----------------------------------------------------------------- messages --

namespace
{
// Of monitored barriers.
const int barrier_tag = INT_MAX;
} // namespace

WorkPtr ProcessGroupTutti::message(Tensors &tensors, int other, int tag,
                                   OpType op)
{
    const bool is_send = op == OpType::SEND;
    const bool is_any = op == OpType::RECVANYSOURCE;
    const char *what = is_send ? "send" : is_any ? "recvAnysource" : "recv";
    if (!accepts([&] {
            check_one(what, tensors);
            TORCH_CHECK(tag >= 0, "Tag must be nonnegative");
            TORCH_CHECK(tag < barrier_tag, "Tag must be less than ",
                        barrier_tag);
        }))
        return nullptr;
    return start(
        {op, c10d::kUnsetTimeout, false, tensors, {tensors}, other, tag},
        [&](Call &call, tutti_call_opts o) {
            const auto &t = tensors[0];
            const auto e = to_move(t);
            const auto n = count_of(t, e);
            auto place = is_send ? Place{packed(t), nullptr} : place_for(t);
            void *at = place.to.data_ptr();
            o.tag = tag;
            if (!is_any)
                call.source = other;
            call.add(
                o,
                [&](auto *c, auto *p, auto **req) {
                    if (is_send)
                        return tutti_send(c, at, n, e.type, other, p, req);
                    if (is_any)
                        return tutti_recv_any(c, at, n, e.type, &call.source, p,
                                              req);
                    return tutti_recv(c, at, n, e.type, other, p, req);
                },
                {t, place.to}, place.after);
        });
}

WorkPtr ProcessGroupTutti::send(Tensors &tensors, int to, int tag)
{
    return message(tensors, to, tag, OpType::SEND);
}

WorkPtr ProcessGroupTutti::recv(Tensors &tensors, int from, int tag)
{
    return message(tensors, from, tag, OpType::RECV);
}

WorkPtr ProcessGroupTutti::recvAnysource(Tensors &tensors, int tag)
{
    return message(tensors, -1, tag, OpType::RECVANYSOURCE);
}

// ----------------------------------------------------------------- barriers --

// With GPUs it is for what their current stream was given by now, too: as NCCL
// has it, the caller waits for that. The stream is of the device that is named,
// else of the one that the group has last used.
WorkPtr ProcessGroupTutti::barrier(const c10d::BarrierOptions &opts)
{
    const int64_t gpu = opts.device_ids.empty() ? gpu_.load()
                                                : opts.device_ids[0];
    if (gpu >= 0 && c10::impl::hasDeviceGuardImpl(at::kCUDA) &&
        gpu < c10::impl::getDeviceGuardImpl(at::kCUDA)->deviceCount())
        drain(current_stream(
            {at::kCUDA, static_cast<c10::DeviceIndex>(gpu)}));
    return start(job(OpType::BARRIER, opts, {}, {}),
                 [&](Call &call, const tutti_call_opts &o) {
                     call.follow(unfinished());
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             return tutti_barrier(c, p, req);
                         },
                         {}, nullptr);
                 });
}

namespace
{

// A byte to or from each rank of a list; what has not come stays with the
// communicator, so the bytes live as long as their call.
struct Bytes {
    std::vector<std::shared_ptr<Call>> calls;

    void add(const std::shared_ptr<Comm> &comm, const tutti_call_opts &opts,
             int other, bool is_send)
    {
        auto call = std::make_shared<Call>(comm, "monitored barrier");
        auto byte = at::zeros({1}, at::kByte);
        call->add(
            opts,
            [&](auto *c, auto *o, auto **req) {
                void *at = byte.data_ptr();
                return is_send ? tutti_send(c, at, 1, TUTTI_U8, other, o, req)
                               : tutti_recv(c, at, 1, TUTTI_U8, other, o, req);
            },
            {byte}, nullptr);
        calls.push_back(std::move(call));
    }
    ~Bytes()
    {
        for (auto &call : calls)
            call->detach();
    }
};

} // namespace

// Others report in any order. Who has not by the deadline is named, in Gloo's
// words, and the group is aborted: its messages no longer match.
void ProcessGroupTutti::hear_all(Millis timeout, bool wait_all)
{
    const auto until = std::chrono::steady_clock::now() + timeout;
    auto opts = options_of(timeout + options_->timeout);
    opts.tag = barrier_tag;
    Bytes reports;
    for (int r = 1; r < size_; r++)
        reports.add(comm_, opts, r, false);
    std::vector<int> late;
    std::string why;
    for (int r = 1; r < size_; r++) {
        const auto left = std::chrono::duration_cast<Millis>(
            until - std::chrono::steady_clock::now());
        try {
            reports.calls[r - 1]->wait(std::max(left, Millis(1)));
        } catch (const std::exception &e) {
            if (reports.calls[r - 1]->outcome())
                throw; // the group has failed, which says nothing of r
            late.push_back(r);
            why = e.what();
            if (!wait_all)
                break;
        }
    }
    if (late.empty()) {
        Bytes answers;
        for (int r = 1; r < size_; r++)
            answers.add(comm_, opts, r, true);
        for (auto &call : answers.calls)
            call->wait(kNoTimeout);
        return;
    }
    const auto error = c10::str(
        "[Rank 0]: Rank", late.size() > 1 ? "s " : " ", c10::Join(", ", late),
        " failed to pass monitoredBarrier in ", timeout.count(), " ms");
    comm_->abort(error);
    TORCH_CHECK(false, error, "\n Original exception: \n", why);
}

void ProcessGroupTutti::report_to_0(Millis timeout)
{
    // Rank 0 gives up first and says why.
    auto opts = options_of(2 * timeout + Millis(1000));
    opts.tag = barrier_tag;
    try {
        Bytes all;
        all.add(comm_, opts, 0, true);
        all.add(comm_, opts, 0, false);
        for (auto &call : all.calls)
            call->wait(kNoTimeout);
    } catch (const std::exception &e) {
        TORCH_CHECK(
            false, "Rank ", rank_,
            " successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0. Please check rank 0 logs for "
            "faulty rank.\n Original exception: \n",
            e.what());
    }
}

void ProcessGroupTutti::monitoredBarrier(const c10d::BarrierOptions &opts,
                                         bool wait_all)
{
    const WayBack back;
    const bool is_given = opts.timeout != c10d::kUnsetTimeout;
    const auto timeout = is_given ? opts.timeout : options_->timeout;
    if (rank_ == 0 && timeout.count() <= 0)
        TORCH_CHECK(false, "[Rank 0]: Rank 0 timed out in monitoredBarrier "
                           "after 0 ms.");
    if (rank_ == 0)
        hear_all(timeout, wait_all);
    else
        report_to_0(timeout);
}

} // namespace tutti_torch
