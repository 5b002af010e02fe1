// SPDX-License-Identifier: BSD-3-Clause
// group.cpp - see group.h. Next: module.cpp; tests/torch compares with Gloo.
#include "group.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include <Python.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace tutti_torch
{

using c10d::OpType;

namespace
{

// Errors in Gloo's words, because programs look for them.
std::function<void(const std::string &)> complain(const char *what)
{
    return [what](const std::string &msg) {
        TORCH_CHECK(false, "ProcessGroupTutti::", what, ": ", msg);
    };
}

// Destroying a communicator waits for the completion thread, which may be
// waiting for the GIL.
class WithoutGil
{
  public:
    WithoutGil() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr)
    {
    }
    ~WithoutGil()
    {
        if (state_)
            PyEval_RestoreThread(state_);
    }

  private:
    PyThreadState *const state_;
};

// Whether the caller will wait at once; torch before 2.7 does not say.
template <class Opts>
auto waits(const Opts &opts, int) -> decltype(opts.asyncOp)
{
    return !opts.asyncOp;
}
template <class Opts> bool waits(const Opts &, long)
{
    return false;
}

size_t count_of(const at::Tensor &t, const Elements &e)
{
    return static_cast<size_t>(t.numel()) * e.n;
}

// Where a result goes: the tensor itself, or a place from which it is copied.
struct Place {
    at::Tensor to;
    Step after;
};

Place place_for(const at::Tensor &t)
{
    if (t.is_contiguous())
        return {t, nullptr};
    auto apart = at::empty(t.sizes(), t.options());
    return {apart, [t, apart] { t.detach().copy_(apart); }};
}

// For what is read and written: the copy is filled.
Place filled_place_for(const at::Tensor &t)
{
    auto place = place_for(t);
    if (place.after)
        place.to.copy_(t.detach());
    return place;
}

void check_same_type(const char *what, const at::Tensor &a, const at::Tensor &b)
{
    if (a.scalar_type() != b.scalar_type())
        complain(what)(
            c10::str("input and output tensors have different types (",
                     a.scalar_type(), " and ", b.scalar_type(), ")"));
}

void check_one(const char *what, const Tensors &tensors)
{
    c10d::assertSingleElement(complain(what), tensors);
    check_tensors(what, tensors);
}

} // namespace

ProcessGroupTutti::ProcessGroupTutti(
    const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
    c10::intrusive_ptr<Options> options)
    : Backend(rank, size), options_(std::move(options)),
      comm_(Comm::open(store, rank, size, options_->timeout))
{
    init();
}

ProcessGroupTutti::~ProcessGroupTutti()
{
    shutdown();
}

at::Tensor ProcessGroupTutti::allocateTensor(long size,
                                             at::TensorOptions options)
{
    const auto bytes = static_cast<size_t>(size) * options.dtype().itemsize();
    void *ptr = tutti_alloc(std::max<size_t>(bytes, 1));
    TORCH_CHECK(ptr != nullptr, "tutti: out of memory for ", bytes, " bytes");
    return at::from_blob(
        ptr, {size}, [](void *p) { tutti_free(p); }, options.device(at::kCPU));
}

// ------------------------------------------------------------------ starting --

Millis ProcessGroupTutti::timeout_of(Millis timeout) const
{
    return timeout.count() > 0 ? timeout : options_->timeout;
}

tutti_call_opts ProcessGroupTutti::options_of(Millis timeout) const
{
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.timeout_s = static_cast<double>(timeout_of(timeout).count()) / 1000;
    return opts;
}

WorkPtr ProcessGroupTutti::start(Job job, const Add &add)
{
    auto opts = options_of(job.timeout);
    opts.waits = job.waits;
    const bool is_message = c10d::isP2POp(job.op);
    const uint64_t seq = is_message ? seq_.load() : ++seq_;
    std::unique_lock<std::mutex> lock(lock_);
    if (open_) {
        add(*open_, opts);
        auto &all = open_job_;
        if (all.outputs.empty())
            all.outputs.emplace_back();
        for (const auto &list : job.outputs)
            all.outputs[0].insert(all.outputs[0].end(), list.begin(),
                                  list.end());
        // Python's coalescing manager looks at the Work of the whole only.
        return nullptr;
    }
    lock.unlock();
    auto work = c10::make_intrusive<TuttiWork>(rank_, job.op, job.title,
                                               job.inputs, seq);
    auto call = std::make_shared<Call>(comm_, job.name);
    add(*call, opts);
    if (!is_message)
        note(call);
    work->take(std::move(call), std::move(job.outputs));
    return work;
}

void ProcessGroupTutti::note(const std::shared_ptr<Call> &call)
{
    std::lock_guard<std::mutex> lock(recent_lock_);
    if (recent_.size() >= 64) {
        const auto over = [](const std::weak_ptr<Call> &weak) {
            const auto one = weak.lock();
            return !one || one->is_settled();
        };
        recent_.erase(std::remove_if(recent_.begin(), recent_.end(), over),
                      recent_.end());
    }
    recent_.push_back(call);
}

std::vector<std::shared_ptr<Call>> ProcessGroupTutti::unfinished()
{
    std::vector<std::shared_ptr<Call>> calls;
    std::lock_guard<std::mutex> lock(recent_lock_);
    for (const auto &weak : recent_) {
        auto call = weak.lock();
        if (call && !call->is_settled())
            calls.push_back(std::move(call));
    }
    recent_.clear();
    return calls;
}

void ProcessGroupTutti::startCoalescing()
{
    std::lock_guard<std::mutex> lock(lock_);
    TORCH_CHECK(!open_, "tutti: startCoalescing() within startCoalescing()");
    open_ = std::make_shared<Call>(comm_, "coalesced call");
    open_job_ = Job{};
}

WorkPtr ProcessGroupTutti::endCoalescing()
{
    std::lock_guard<std::mutex> lock(lock_);
    TORCH_CHECK(open_, "tutti: endCoalescing() without startCoalescing()");
    auto work = c10::make_intrusive<TuttiWork>(
        rank_, OpType::COALESCED, "tutti:coalesced", std::nullopt, seq_.load());
    note(open_);
    work->take(std::move(open_), std::move(open_job_.outputs));
    open_ = nullptr;
    return work;
}

// ---------------------------------------------------------------- reductions --

void ProcessGroupTutti::add_allreduce(Call &call, tutti_call_opts opts,
                                      const at::Tensor &t,
                                      const c10d::ReduceOp &op)
{
    const auto e = to_reduce(t, op);
    const auto how = op_of(op);
    const auto n = count_of(t, e);
    auto place = filled_place_for(t);
    opts.scale = scale_of(op);
    call.add(
        opts,
        [&](tutti_comm *comm, const tutti_call_opts *o, tutti_request **req) {
            void *at = place.to.data_ptr();
            return tutti_all_reduce(comm, at, at, n, e.type, how, o, req);
        },
        {t, place.to}, place.after);
}

WorkPtr ProcessGroupTutti::allreduce(Tensors &tensors,
                                     const c10d::AllreduceOptions &opts)
{
    check_one("allreduce", tensors);
    return start({"all-reduce",
                  "tutti:all_reduce",
                  OpType::ALLREDUCE,
                  opts.timeout,
                  tensors,
                  {tensors},
                  waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     add_allreduce(call, o, tensors[0], opts.reduceOp);
                 });
}

WorkPtr ProcessGroupTutti::allreduce_coalesced(
    Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
    c10d::assertNonEmpty(complain("allreduce_coalesced"), tensors);
    check_tensors("allreduce_coalesced", tensors);
    for (const auto &t : tensors)
        if (t.scalar_type() != tensors[0].scalar_type())
            complain("allreduce_coalesced")(
                "tensors must all have the same type");
    return start({"all-reduce",
                  "tutti:all_reduce",
                  OpType::ALLREDUCE_COALESCED,
                  opts.timeout,
                  tensors,
                  {tensors},
                  waits(opts, 0)},
                 [&](Call &call, tutti_call_opts o) {
                     // One call for all: small ones would cost a round each.
                     const auto e = to_reduce(tensors[0], opts.reduceOp);
                     const auto how = op_of(opts.reduceOp);
                     Row row(tensors);
                     row.fill();
                     size_t n = 0;
                     for (const auto &t : tensors)
                         n += count_of(t, e);
                     o.scale = scale_of(opts.reduceOp);
                     auto keep = tensors;
                     keep.push_back(row.tensor());
                     call.add(
                         o,
                         [&](tutti_comm *c, const tutti_call_opts *p,
                             tutti_request **req) {
                             return tutti_all_reduce(c, row.data(), row.data(),
                                                     n, e.type, how, p, req);
                         },
                         keep, row.unfill());
                 });
}

WorkPtr ProcessGroupTutti::reduce(Tensors &tensors,
                                  const c10d::ReduceOptions &opts)
{
    c10d::assertRootRank(complain("reduce"), opts.rootRank, size_);
    check_one("reduce", tensors);
    return start({"reduce",
                  "tutti:reduce",
                  OpType::REDUCE,
                  opts.timeout,
                  tensors,
                  {tensors},
                  waits(opts, 0)},
                 [&](Call &call, tutti_call_opts o) {
                     const auto &t = tensors[0];
                     const auto e = to_reduce(t, opts.reduceOp);
                     const auto how = op_of(opts.reduceOp);
                     const int root = static_cast<int>(opts.rootRank);
                     auto place = filled_place_for(t);
                     o.scale = scale_of(opts.reduceOp);
                     call.add(
                         o,
                         [&](tutti_comm *c, const tutti_call_opts *p,
                             tutti_request **req) {
                             void *at = place.to.data_ptr();
                             return tutti_reduce(c, at, at, count_of(t, e),
                                                 e.type, how, root, p, req);
                         },
                         {t, place.to}, rank_ == root ? place.after : nullptr);
                 });
}

void ProcessGroupTutti::add_reduce_scatter(Call &call, tutti_call_opts opts,
                                           const at::Tensor &output,
                                           const at::Tensor &input,
                                           const c10d::ReduceOp &op)
{
    const char *what = "_reduce_scatter_base";
    check_tensors(what, {output, input});
    check_same_type(what, input, output);
    if (output.numel() * size_ != input.numel())
        complain(what)(c10::str("input tensor must be the same size as output "
                                "size times world size (",
                                input.numel(), " is not ", output.numel(),
                                " * ", size_, ")"));
    const auto e = to_reduce(output, op);
    const auto how = op_of(op);
    const auto n = count_of(output, e);
    auto in = packed(input);
    auto place = place_for(output);
    opts.scale = scale_of(op);
    call.add(
        opts,
        [&](tutti_comm *comm, const tutti_call_opts *o, tutti_request **req) {
            return tutti_reduce_scatter(comm, in.data_ptr(),
                                        place.to.data_ptr(), n, e.type, how, o,
                                        req);
        },
        {in, output, place.to}, place.after);
}

WorkPtr
ProcessGroupTutti::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                        const c10d::ReduceScatterOptions &opts)
{
    return start({"reduce-scatter",
                  "tutti:_reduce_scatter_base",
                  OpType::_REDUCE_SCATTER_BASE,
                  opts.timeout,
                  {input},
                  {{output}},
                  waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     add_reduce_scatter(call, o, output, input, opts.reduceOp);
                 });
}

WorkPtr ProcessGroupTutti::reduce_scatter_tensor_coalesced(
    Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts)
{
    c10d::assertInputOutputTensorListsSameSize(
        complain("reduce_scatter_tensor_coalesced"), outputs.size(),
        inputs.size());
    return start({"reduce-scatter",
                  "tutti:_reduce_scatter_base",
                  OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                  opts.timeout,
                  inputs,
                  {outputs},
                  waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     for (size_t i = 0; i < inputs.size(); i++)
                         add_reduce_scatter(call, o, outputs[i], inputs[i],
                                            opts.reduceOp);
                 });
}

WorkPtr
ProcessGroupTutti::reduce_scatter(Tensors &outputs,
                                  std::vector<Tensors> &inputs,
                                  const c10d::ReduceScatterOptions &opts)
{
    const char *what = "reduce_scatter";
    c10d::assertSingleElementOutput(complain(what), outputs);
    c10d::assertScatterInputTensorList(complain(what), inputs, size_);
    check_tensors(what, outputs);
    check_tensors(what, inputs[0]);
    for (const auto &t : inputs[0])
        check_same_type(what, t, outputs[0]);
    if (inputs[0][rank_].numel() != outputs[0].numel())
        complain(what)("the output has not the size of this rank's input");
    return start(
        {"reduce-scatter",
         "tutti:reduce_scatter",
         OpType::REDUCE_SCATTER,
         opts.timeout,
         inputs[0],
         {outputs},
         waits(opts, 0)},
        [&](Call &call, tutti_call_opts o) {
            const auto e = to_reduce(outputs[0], opts.reduceOp);
            const auto how = op_of(opts.reduceOp);
            Row row(inputs[0]);
            row.fill();
            std::vector<size_t> counts;
            for (const auto &t : inputs[0])
                counts.push_back(count_of(t, e));
            auto place = place_for(outputs[0]);
            auto keep = inputs[0];
            keep.insert(keep.end(), {row.tensor(), outputs[0], place.to});
            o.scale = scale_of(opts.reduceOp);
            call.add(
                o,
                [&](tutti_comm *c, const tutti_call_opts *p,
                    tutti_request **req) {
                    return tutti_reduce_scatter_v(
                        c, row.data(), place.to.data_ptr(), counts.data(),
                        e.type, how, p, req);
                },
                keep, place.after);
        });
}

// ------------------------------------------------------------- moving data --

WorkPtr ProcessGroupTutti::broadcast(Tensors &tensors,
                                     const c10d::BroadcastOptions &opts)
{
    c10d::assertRootRank(complain("broadcast"), opts.rootRank, size_);
    check_one("broadcast", tensors);
    c10d::assertRootTensor(complain("broadcast"), opts.rootTensor,
                           tensors.size());
    return start({"broadcast",
                  "tutti:broadcast",
                  OpType::BROADCAST,
                  opts.timeout,
                  tensors,
                  {tensors},
                  waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     const auto &t = tensors[0];
                     const auto e = to_move(t);
                     const int root = static_cast<int>(opts.rootRank);
                     auto place = rank_ == root ? filled_place_for(t)
                                                : place_for(t);
                     call.add(
                         o,
                         [&](tutti_comm *c, const tutti_call_opts *p,
                             tutti_request **req) {
                             void *at = place.to.data_ptr();
                             return tutti_broadcast(c, at, at, count_of(t, e),
                                                    e.type, root, p, req);
                         },
                         {t, place.to}, rank_ == root ? nullptr : place.after);
                 });
}

void ProcessGroupTutti::add_allgather(Call &call, const tutti_call_opts &opts,
                                      const at::Tensor &output,
                                      const at::Tensor &input)
{
    const char *what = "_allgather_base";
    check_tensors(what, {output, input});
    check_same_type(what, input, output);
    if (input.numel() * size_ != output.numel())
        complain(what)(c10::str(
            "output tensor size must be equal to world_size times input tensor "
            "size (",
            output.numel(), " is not ", size_, " * ", input.numel(), ")"));
    const auto e = to_move(input);
    auto in = packed(input);
    auto place = place_for(output);
    call.add(
        opts,
        [&](tutti_comm *c, const tutti_call_opts *o, tutti_request **req) {
            return tutti_all_gather(c, in.data_ptr(), place.to.data_ptr(),
                                    count_of(input, e), e.type, o, req);
        },
        {in, output, place.to}, place.after);
}

WorkPtr ProcessGroupTutti::_allgather_base(at::Tensor &output,
                                           at::Tensor &input,
                                           const c10d::AllgatherOptions &opts)
{
    return start({"all-gather",
                  "tutti:_all_gather_base",
                  OpType::_ALLGATHER_BASE,
                  opts.timeout,
                  {input},
                  {{output}},
                  waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     add_allgather(call, o, output, input);
                 });
}

WorkPtr ProcessGroupTutti::allgather_into_tensor_coalesced(
    Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    c10d::assertInputOutputTensorListsSameSize(
        complain("allgather_into_tensor_coalesced"), outputs.size(),
        inputs.size());
    return start({"all-gather",
                  "tutti:_all_gather_base",
                  OpType::_ALLGATHER_BASE,
                  opts.timeout,
                  inputs,
                  {outputs},
                  waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     for (size_t i = 0; i < inputs.size(); i++)
                         add_allgather(call, o, outputs[i], inputs[i]);
                 });
}

// Sizes may differ, where all ranks know them.
void ProcessGroupTutti::add_allgather_list(Call &call,
                                           const tutti_call_opts &opts,
                                           const Tensors &outputs,
                                           const at::Tensor &input)
{
    const char *what = "allgather";
    check_tensors(what, outputs);
    check_tensor(what, input);
    for (const auto &t : outputs)
        c10d::assertTypeMatch(complain(what), input.options(), {t}, 0);
    if (outputs[rank_].numel() != input.numel())
        c10d::assertSizesMatch(complain(what), input.sizes(), outputs, rank_);
    const auto e = to_move(input);
    auto in = packed(input);
    Row row(outputs);
    std::vector<size_t> counts;
    for (const auto &t : outputs)
        counts.push_back(count_of(t, e));
    auto keep = outputs;
    keep.insert(keep.end(), {in, row.tensor()});
    call.add(
        opts,
        [&](tutti_comm *c, const tutti_call_opts *o, tutti_request **req) {
            return tutti_all_gather_v(c, in.data_ptr(), row.data(),
                                      counts.data(), e.type, o, req);
        },
        keep, row.unfill());
}

WorkPtr ProcessGroupTutti::allgather(std::vector<Tensors> &outputs,
                                     Tensors &inputs,
                                     const c10d::AllgatherOptions &opts)
{
    const char *what = "allgather";
    c10d::assertSingleElementInput(complain(what), inputs);
    c10d::assertInputOutputTensorListsSameSize(complain(what), outputs.size(),
                                               inputs.size());
    if (outputs[0].size() != static_cast<size_t>(size_))
        complain(what)(
            c10::str("invalid output tensor list at index 0 (expected length ",
                     size_, ", got ", outputs[0].size(), ")"));
    return start({"all-gather", "tutti:all_gather", OpType::ALLGATHER,
                  opts.timeout, inputs, outputs, waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     add_allgather_list(call, o, outputs[0], inputs[0]);
                 });
}

WorkPtr
ProcessGroupTutti::allgather_coalesced(std::vector<Tensors> &outputs,
                                       Tensors &inputs,
                                       const c10d::AllgatherOptions &opts)
{
    const char *what = "allgather_coalesced";
    c10d::assertNonEmpty(complain(what), inputs);
    c10d::assertAllgatherCoalescedOutputTensorLists(complain(what), outputs,
                                                    inputs.size(), size_);
    return start({"all-gather", "tutti:all_gather", OpType::ALLGATHER_COALESCED,
                  opts.timeout, inputs, outputs, waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     for (size_t i = 0; i < inputs.size(); i++) {
                         Tensors column;
                         for (const auto &list : outputs)
                             column.push_back(list[i]);
                         add_allgather_list(call, o, column, inputs[i]);
                     }
                 });
}

WorkPtr ProcessGroupTutti::gather(std::vector<Tensors> &outputs,
                                  Tensors &inputs,
                                  const c10d::GatherOptions &opts)
{
    const char *what = "gather";
    const int root = static_cast<int>(opts.rootRank);
    c10d::assertRootRank(complain(what), opts.rootRank, size_);
    c10d::assertSingleElementInput(complain(what), inputs);
    check_tensors(what, inputs);
    if (rank_ == root) {
        c10d::assertGatherOutputTensorList(complain(what), outputs, size_);
        check_tensors(what, outputs[0]);
        c10d::assertTypeAndSizesMatch(complain(what), outputs[0],
                                      inputs[0].options(), inputs[0].sizes());
    } else {
        c10d::assertEmptyOutputTensorList(complain(what), outputs);
    }
    return start({"gather", "tutti:gather", OpType::GATHER, opts.timeout,
                  inputs, outputs, waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     const auto e = to_move(inputs[0]);
                     auto in = packed(inputs[0]);
                     Row row(rank_ == root ? outputs[0] : Tensors());
                     auto keep = rank_ == root ? outputs[0] : Tensors();
                     keep.insert(keep.end(), {in, row.tensor()});
                     call.add(
                         o,
                         [&](tutti_comm *c, const tutti_call_opts *p,
                             tutti_request **req) {
                             return tutti_gather(
                                 c, in.data_ptr(),
                                 rank_ == root ? row.data() : nullptr,
                                 count_of(in, e), e.type, root, p, req);
                         },
                         keep, rank_ == root ? row.unfill() : nullptr);
                 });
}

WorkPtr ProcessGroupTutti::scatter(Tensors &outputs,
                                   std::vector<Tensors> &inputs,
                                   const c10d::ScatterOptions &opts)
{
    const char *what = "scatter";
    const int root = static_cast<int>(opts.rootRank);
    c10d::assertRootRank(complain(what), opts.rootRank, size_);
    c10d::assertSingleElementOutput(complain(what), outputs);
    check_tensors(what, outputs);
    if (rank_ == root) {
        c10d::assertScatterInputTensorList(complain(what), inputs, size_);
        check_tensors(what, inputs[0]);
        c10d::assertTypeAndSizesMatch(complain(what), inputs[0],
                                      outputs[0].options(), outputs[0].sizes());
    } else {
        c10d::assertEmptyInputTensorList(complain(what), inputs);
    }
    return start(
        {"scatter",
         "tutti:scatter",
         OpType::SCATTER,
         opts.timeout,
         rank_ == root ? inputs[0] : Tensors(),
         {outputs},
         waits(opts, 0)},
        [&](Call &call, const tutti_call_opts &o) {
            const auto e = to_move(outputs[0]);
            Row row(rank_ == root ? inputs[0] : Tensors());
            row.fill();
            auto place = place_for(outputs[0]);
            auto keep = rank_ == root ? inputs[0] : Tensors();
            keep.insert(keep.end(), {outputs[0], place.to, row.tensor()});
            call.add(
                o,
                [&](tutti_comm *c, const tutti_call_opts *p,
                    tutti_request **req) {
                    return tutti_scatter(
                        c, rank_ == root ? row.data() : nullptr,
                        place.to.data_ptr(), count_of(outputs[0], e), e.type,
                        root, p, req);
                },
                keep, place.after);
        });
}

namespace
{

// Elements for each rank, of a tensor that is split along dimension 0.
std::vector<size_t> split_counts(const at::Tensor &t,
                                 const std::vector<int64_t> &splits, int size,
                                 const Elements &e)
{
    c10d::checkSplitSizes(splits, t, size);
    const int64_t rows = t.size(0);
    const size_t row = rows > 0 ? count_of(t, e) / rows : 0;
    std::vector<size_t> counts;
    for (int r = 0; r < size; r++) {
        const int64_t n = splits.empty() ? rows / size : splits[r];
        TORCH_CHECK(n >= 0, "ProcessGroupTutti::alltoall_base: a split of ", n);
        counts.push_back(static_cast<size_t>(n) * row);
    }
    return counts;
}

} // namespace

WorkPtr ProcessGroupTutti::alltoall_base(at::Tensor &output, at::Tensor &input,
                                         std::vector<int64_t> &output_splits,
                                         std::vector<int64_t> &input_splits,
                                         const c10d::AllToAllOptions &opts)
{
    const char *what = "alltoall_base";
    check_tensors(what, {output, input});
    check_same_type(what, input, output);
    TORCH_CHECK(input.dim() > 0 && output.dim() > 0,
                "ProcessGroupTutti::alltoall_base: a tensor without dimensions "
                "cannot be "
                "split");
    return start(
        {"all-to-all",
         "tutti:all_to_all",
         OpType::ALLTOALL_BASE,
         opts.timeout,
         {input},
         {{output}},
         waits(opts, 0)},
        [&](Call &call, const tutti_call_opts &o) {
            const auto e = to_move(input);
            const auto n_in = split_counts(input, input_splits, size_, e);
            const auto n_out = split_counts(output, output_splits, size_, e);
            auto in = packed(input);
            auto place = place_for(output);
            call.add(
                o,
                [&](tutti_comm *c, const tutti_call_opts *p,
                    tutti_request **req) {
                    return tutti_all_to_all_v(c, in.data_ptr(), n_in.data(),
                                              place.to.data_ptr(), n_out.data(),
                                              e.type, p, req);
                },
                {in, output, place.to}, place.after);
        });
}

WorkPtr ProcessGroupTutti::alltoall(Tensors &outputs, Tensors &inputs,
                                    const c10d::AllToAllOptions &opts)
{
    const char *what = "alltoall";
    c10d::assertAllToAllTensorListSizes(complain(what), outputs.size(),
                                        inputs.size(), size_);
    check_tensors(what, outputs);
    check_tensors(what, inputs);
    for (int r = 0; r < size_; r++) {
        check_same_type(what, inputs[0], inputs[r]);
        check_same_type(what, inputs[0], outputs[r]);
    }
    return start({"all-to-all",
                  "tutti:all_to_all",
                  OpType::ALLTOALL,
                  opts.timeout,
                  inputs,
                  {outputs},
                  waits(opts, 0)},
                 [&](Call &call, const tutti_call_opts &o) {
                     const auto e = to_move(inputs[0]);
                     std::vector<size_t> n_in, n_out;
                     for (int r = 0; r < size_; r++) {
                         n_in.push_back(count_of(inputs[r], e));
                         n_out.push_back(count_of(outputs[r], e));
                     }
                     Row from(inputs), to(outputs);
                     from.fill();
                     auto keep = inputs;
                     keep.insert(keep.end(), outputs.begin(), outputs.end());
                     keep.insert(keep.end(), {from.tensor(), to.tensor()});
                     call.add(
                         o,
                         [&](tutti_comm *c, const tutti_call_opts *p,
                             tutti_request **req) {
                             return tutti_all_to_all_v(
                                 c, from.data(), n_in.data(), to.data(),
                                 n_out.data(), e.type, p, req);
                         },
                         keep, to.unfill());
                 });
}

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
    check_one(what, tensors);
    TORCH_CHECK(tag >= 0, "Tag must be nonnegative");
    TORCH_CHECK(tag < barrier_tag, "Tag must be less than ", barrier_tag);
    const char *title = is_send  ? "tutti:send"
                        : is_any ? "tutti:recvAnySource"
                                 : "tutti:recv";
    return start(
        {what, title, op, c10d::kUnsetTimeout, tensors, {tensors}},
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
                [&](tutti_comm *c, const tutti_call_opts *p,
                    tutti_request **req) {
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

WorkPtr ProcessGroupTutti::barrier(const c10d::BarrierOptions &opts)
{
    return start(
        {"barrier",
         "tutti:barrier",
         OpType::BARRIER,
         opts.timeout,
         {},
         {},
         waits(opts, 0)},
        [&](Call &call, const tutti_call_opts &o) {
            call.follow(unfinished());
            call.add(
                o,
                [&](tutti_comm *c, const tutti_call_opts *p,
                    tutti_request **req) { return tutti_barrier(c, p, req); },
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
            [&](tutti_comm *c, const tutti_call_opts *o, tutti_request **req) {
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
    const auto timeout = timeout_of(opts.timeout);
    if (rank_ == 0)
        hear_all(timeout, wait_all);
    else
        report_to_0(timeout);
}

// ------------------------------------------------------------- life and end --

uint64_t ProcessGroupTutti::getSequenceNumberForGroup()
{
    return seq_.load();
}

c10::intrusive_ptr<c10d::Backend>
ProcessGroupTutti::split(const c10::intrusive_ptr<c10d::Store> &store,
                         const std::vector<int> &ranks,
                         const c10::intrusive_ptr<Options> &opts)
{
    const auto it = std::find(ranks.begin(), ranks.end(), rank_);
    if (it == ranks.end())
        return nullptr;
    auto options = c10::make_intrusive<Options>(*options_);
    if (opts && opts->timeout.count() > 0)
        options->timeout = opts->timeout;
    return c10::make_intrusive<ProcessGroupTutti>(
        store, static_cast<int>(it - ranks.begin()),
        static_cast<int>(ranks.size()), options);
}

void ProcessGroupTutti::abort()
{
    WithoutGil free;
    comm_->abort("the program called abort()");
}

void ProcessGroupTutti::shutdown()
{
    WithoutGil free;
    comm_->close();
}

c10d::ErrorType ProcessGroupTutti::getError()
{
    switch (comm_->failure()) {
    case TUTTI_OK:
        return c10d::ErrorType::SUCCESS;
    case TUTTI_ETIMEOUT:
        return c10d::ErrorType::TIMEOUT;
    case TUTTI_EPEER:
    case TUTTI_EABORTED:
    case TUTTI_EMISMATCH:
        return c10d::ErrorType::REMOTE_ERROR;
    default:
        return c10d::ErrorType::COMM_ERROR;
    }
}

} // namespace tutti_torch
