// SPDX-License-Identifier: BSD-3-Clause
// work.h - what a call returns: torch's Work over requests of tutti.
//
// A Call is the calls of one Work (more than one when they are coalesced), what
// is to be done when they are over (copies to where the caller wants the
// result), and the outcome. Whoever first sees that they are over (a wait, a
// poll, a thread of the runner) settles it, once. That is asked for only when
// there is a future to complete, or nobody left to wait: a Work that was dropped
// keeps its Call, and with it the tensors, until it is over.
//
// Of a GPU's tensors a call begins when the current stream has got there, and
// wait() does not wait: it puts the current stream of whoever calls it behind
// the call, and what is to be done afterwards into that stream. So nobody may
// see that such a call has failed: the next one of the group tells. It waits as
// others do where it is given a time, and with TUTTI_BLOCKING_WAIT=1.
//
// Futures are completed, and their callbacks run, on the thread that settles:
// without a lock, so they may take the GIL; never on the engine's or on the
// completion thread of tutti.h, where nothing may wait (runner.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <c10/util/FunctionRef.h>

#include "comm.h"
#include "device.h"
#include "tensors.h"

namespace tutti_torch
{

using Step = std::function<void()>;

class Call : public std::enable_shared_from_this<Call>
{
  public:
    Call(std::shared_ptr<Comm> comm, const char *name)
        : comm_(std::move(comm)), name_(name)
    {
    }
    ~Call();

    // Makes a call of tutti; `keep` lives until it is over, then `after` is run
    // if it went well. Throws when it is refused.
    using Issue = c10::function_ref<tutti_err(
        tutti_comm *, const tutti_call_opts *, tutti_request **)>;
    void add(const tutti_call_opts &opts, Issue issue, Tensors keep,
             Step after);
    // These live as long as what add() keeps.
    void hold(const Tensors &more);
    // The GPU that its tensors are on, if they are.
    const std::optional<at::Device> &device() const
    {
        return device_;
    }
    // Its end is told to the recorder under this number.
    void record(uint64_t id)
    {
        records_.push_back(id);
    }

    // It is not over before these are.
    void follow(std::vector<std::shared_ptr<Call>> before)
    {
        before_ = std::move(before);
    }
    bool is_settled() const
    {
        return settled_.load(std::memory_order_acquire);
    }

    // All is added. `outputs`: the value of the future.
    void close(std::vector<Tensors> outputs, Step on_end);
    const std::vector<Tensors> &outputs() const
    {
        return outputs_;
    }

    bool is_over(); // settles it, then
    // Throw what went wrong. A GPU's: wait() returns before it is over, see above;
    // finish() is for the processor.
    void wait(std::chrono::milliseconds timeout);
    void finish(std::chrono::milliseconds timeout);
    void await(); // also when it went wrong
    std::exception_ptr outcome();                 // null: well, or not over
    bool went_well() const; // all is added and has, settled or not
    c10::intrusive_ptr<c10::ivalue::Future> future();
    void detach(); // nobody will wait

    // Of a receive from any rank: who it was.
    int source = -1;
    const char *name() const
    {
        return name_;
    }

  private:
    void settle();
    // What is not over by then throws.
    void wait_for_requests(std::chrono::milliseconds timeout) const;
    bool is_ordered() const;
    void check_requests() const;
    void put_behind(const c10::Stream &stream);
    void complete(c10::ivalue::Future &future);
    void complete_at_once();
    c10::IValue value() const;
    bool ask_for_callbacks();
    static void on_done(void *holder, tutti_err err);
    bool all_done() const;

    const std::shared_ptr<Comm> comm_;
    const char *const name_;
    std::vector<tutti_request *> reqs_;
    std::vector<Step> after_;
    Tensors keep_;
    std::optional<at::Device> device_;
    std::optional<c10::Stream> stream_; // it was called in
    bool has_host_part_ = false;        // not all of it is on the device
    bool has_placed_ = false;           // after_ is done, or in a stream
    std::optional<c10::Event> placed_;  // and this is behind it there
    std::vector<std::shared_ptr<Call>> before_;
    Step on_end_;
    std::mutex lock_;
    std::atomic<bool> is_closed_{false}, settled_{false};
    std::atomic<size_t> left_{0}; // callbacks to come
    bool has_callbacks_ = false;
    std::exception_ptr outcome_;
    std::vector<Tensors> outputs_;
    std::vector<uint64_t> records_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class TuttiWork : public c10d::Work
{
  public:
    TuttiWork(int rank, c10d::OpType op, const char *title,
              const std::optional<Tensors> &inputs)
        : c10d::Work(rank, op, title, inputs)
    {
    }
    ~TuttiWork() override;

    // The call is made, as number `seq`; `outputs` are what result() and the future
    // give.
    void take(std::shared_ptr<Call> call, std::vector<Tensors> outputs,
              uint64_t seq);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    Tensors result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override;

  private:
    std::shared_ptr<Call> call_;
    uint64_t seq_ = 0;
};

} // namespace tutti_torch
