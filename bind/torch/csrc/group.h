// SPDX-License-Identifier: BSD-3-Clause
// group.h - ProcessGroupTutti: torch's collectives as calls of tutti.h.
//
// No algorithm here. A method checks its tensors, finds the call of tutti that
// is meant, and returns a Work (work.h). Lists of tensors become one place
// behind another (Row in tensors.h), with a copy only where they do not lie so.
// Methods that exist in newer torch only are not marked `override`.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm.h"
#include "recorder.h"
#include "tensors.h"
#include "torch_version.h"
#include "work.h"

namespace tutti_torch
{

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Millis = std::chrono::milliseconds;
struct How;   // planned.h
struct Times; // planned.h

class ProcessGroupTutti : public c10d::Backend
{
  public:
    // name: for the flight recorder; no ranks: those of the job.
    ProcessGroupTutti(std::shared_ptr<Comm> comm, int rank, int size,
                      c10::intrusive_ptr<Options> options, GroupName name,
                      Trust trust);
    ~ProcessGroupTutti() override;

    const std::string getBackendName() const override
    {
        return "tutti";
    }
    bool supportsSplitting() const override
    {
        return true;
    }
    bool supportsShrinking() const
    {
        return true;
    }
    bool supportsCoalescing() const
    {
        return true;
    }
    bool supportsTensorAlloc(c10::DeviceIndex)
    {
        return true;
    }
    at::Tensor allocateTensor(long size, at::TensorOptions options = {})
    {
        return allocate(size, options);
    }

    // A copy: torch writes what a part is to have into it (splitGroup).
    c10::intrusive_ptr<Options> getBackendOptions()
    {
        return c10::make_intrusive<Options>(*options_);
    }
    void setTimeout(Millis timeout)
    {
        options_->timeout = timeout;
    }

    WorkPtr broadcast(Tensors &tensors,
                      const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors,
                      const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_sparse(Tensors &tensors,
                             const c10d::AllreduceOptions &opts) override;
    WorkPtr
    allreduce_coalesced(Tensors &tensors,
                        const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(
        Tensors &outputs, Tensors &inputs,
        const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr
    _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                         const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(
        Tensors &outputs, Tensors &inputs,
        const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input,
                          std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                     const c10d::AllToAllOptions &opts) override;
    WorkPtr send(Tensors &tensors, int to, int tag) override;
    WorkPtr recv(Tensors &tensors, int from, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    // See planned.h.
    std::tuple<WorkPtr, std::shared_ptr<Times>>
    all_reduce_planned(const at::Tensor &input, const at::Tensor &output,
                       const How &how);
    void with_comm(const char *what,
                   const std::function<void(tutti_comm *)> &use)
    {
        comm_->issue(what, [&](tutti_comm *comm) {
            use(comm);
            return TUTTI_OK;
        });
    }
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts,
                          bool wait_all) override;

    void startCoalescing() override;
    WorkPtr endCoalescing() override;

    void setSequenceNumberForGroup() override
    {
    }
    uint64_t getSequenceNumberForGroup() override;

    c10::intrusive_ptr<Backend>
    split(const c10::intrusive_ptr<c10d::Store> &store,
          const std::vector<int> &ranks,
          const c10::intrusive_ptr<Options> &opts);
    // Of those that are left, but for these, whether they live or not; who is lost
    // and not among them is an error on all ranks. flags: 1 ends the calls in flight
    // with an error, on all ranks; else they are waited for.
    c10::intrusive_ptr<Backend>
    shrink(const std::vector<int64_t> &exclude, int flags = 0,
           const c10::intrusive_ptr<Options> &opts = nullptr);
    // The same, of all that are left; and, by new rank, the rank here. puts_out: as in
    // tutti_shrink_opts.
    std::tuple<c10::intrusive_ptr<Backend>, std::vector<int>>
    shrink_to_left(const std::vector<int> &exclude, bool puts_out,
                   const c10::intrusive_ptr<Options> &opts);
    // Whether all that are left say so and none of them has noticed a failure: the
    // same on all. Throws when too few are left.
    bool agree(bool mine);
    bool has_failed()
    {
        return comm_->failure() != TUTTI_OK;
    }
    // A larger one, of these ranks and newcomers behind them; null: see Comm::grow().
    std::tuple<c10::intrusive_ptr<Backend>, std::string> grow(const Door &door);
    // See reconfigure.cpp.
    std::string handle();
    void meet(const std::vector<std::string> &handles, int64_t number,
              Millis timeout);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsReconfigure() const override
    {
        return true;
    }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    WorkPtr reconfigure(const c10d::ReconfigureOptions &opts) override;
#endif
    // Of all calls to come: those of a group with less are served behind others.
    // The same on all ranks.
    void set_priority(int priority)
    {
        priority_ = priority;
    }
    std::string failure_text()
    {
        return comm_->failure_text();
    }
    void abort();
    void shutdown();
#if TUTTI_TORCH_AT_LEAST(2, 7)
    c10d::ErrorType getError();
#endif

  private:
    // What a Work is made of, beside the calls.
    struct Job {
        c10d::OpType op;
        Millis timeout;
        bool waits;                   // the caller, at once
        Tensors inputs;               // for profiles
        std::vector<Tensors> outputs; // of the Work
        int other = -1, tag = 0;      // of messages
    };
    template <class Opts>
    static Job job(c10d::OpType op, const Opts &opts, Tensors inputs,
                   std::vector<Tensors> outputs)
    {
        return {op, opts.timeout, waits(opts, 0), std::move(inputs),
                std::move(outputs)};
    }
    // Whether the caller will wait at once; torch before 2.7 does not say.
    template <class Opts>
    static auto waits(const Opts &opts, int) -> decltype(opts.asyncOp)
    {
        return !opts.asyncOp;
    }
    template <class Opts> static bool waits(const Opts &, long)
    {
        return false;
    }
    using Add = c10::function_ref<void(Call &, const tutti_call_opts &)>;
    // A Work of the calls that `add` makes, or, while coalescing, of all.
    WorkPtr start(Job job, Add add);
    // A Work of these calls, also while coalescing.
    WorkPtr start_alone(Job job, Add add);
    // Runs the checks of a call's arguments, which throw. While coalescing that is
    // left to endCoalescing(), and the call to be left out: false.
    bool accepts(c10::function_ref<void()> checks);
    void put_off(std::exception_ptr error);
    void record(const std::shared_ptr<Call> &call, const Job &job,
                uint64_t seq);
    tutti_call_opts options_of(Millis timeout) const;
    // For a group that comes of this one.
    c10::intrusive_ptr<Options>
    with_defaults(const c10::intrusive_ptr<Options> &opts) const;
    Millis timeout_of(Millis timeout) const;

    void add_allreduce(Call &call, tutti_call_opts opts, const at::Tensor &t,
                       const c10d::ReduceOp &op);
    void add_allgather(Call &call, const tutti_call_opts &opts,
                       const at::Tensor &output, const at::Tensor &input);
    void add_allgather_list(Call &call, const tutti_call_opts &opts,
                            const Tensors &outputs, const Tensors &inputs,
                            Step after);
    void add_reduce_scatter(Call &call, tutti_call_opts opts,
                            const at::Tensor &output, const at::Tensor &input,
                            const c10d::ReduceOp &op);
    WorkPtr allreduce_several(Tensors &tensors,
                              const c10d::AllreduceOptions &opts);
    // What each rank has of a sparse tensor: nnz, dimensions, sizes.
    at::Tensor gather_shapes(const at::Tensor &mine, Millis timeout);
    WorkPtr message(Tensors &tensors, int other, int tag, c10d::OpType op);
    // Rank 0's and the others' part of a monitored barrier.
    void hear_all(Millis timeout, bool wait_all);
    void report_to_0(Millis timeout);

    // With comm_, and its rank and size: at first, and when it has met others.
    void begin();
    void set_place(int rank, int size);

    const c10::intrusive_ptr<Options> options_;
    const Trust trust_;
    c10::intrusive_ptr<c10d::TCPStore>
        meeting_; // this member's own, in handle_
    std::string handle_;
    std::shared_ptr<Comm> comm_;
    std::atomic<int> priority_{0};
    // Of collectives; messages count for themselves in tutti.
    std::atomic<uint64_t> seq_{0};
    // Of the GPU that its calls have last used; -1: none.
    std::atomic<int> gpu_{-1};
    void note_device(const Call &call);
    // Collectives that may not be over, for barriers: these follow them.
    std::mutex recent_lock_;
    std::vector<std::weak_ptr<Call>> recent_;
    std::vector<std::shared_ptr<Call>> unfinished();
    void note(const std::shared_ptr<Call> &call);
    // What was split off last, and where its ranks have met.
    c10::weak_intrusive_ptr<c10d::Store> split_store_{
        c10::intrusive_ptr<c10d::Store>()};
    c10::weak_intrusive_ptr<c10d::Backend> split_{
        c10::intrusive_ptr<c10d::Backend>()};
    std::mutex lock_;            // of what is coalesced
    std::shared_ptr<Call> open_; // while coalescing
    std::vector<Tensors> open_outputs_;
    bool open_collectives_ = false; // not messages only
    std::exception_ptr open_error_; // the first; endCoalescing() throws it
    // For the flight recorder.
    std::shared_ptr<GroupName> name_;
    std::once_flag is_named_;
    std::mutex sent_lock_;
    std::map<std::tuple<bool, int, int>, uint64_t> sent_; // and received
};

// A newcomer's group, with those who were there; the others have it by grow().
c10::intrusive_ptr<c10d::Backend> join(const Door &door, const Millis &timeout,
                                       const Trust &trust);

// The group, which must be Tutti's: else ValueError.
ProcessGroupTutti &tutti_of(const c10::intrusive_ptr<c10d::Backend> &group);

} // namespace tutti_torch
