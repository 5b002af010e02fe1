// SPDX-License-Identifier: BSD-3-Clause
// group.cpp - life and end of a process group, and how a call becomes a Work; see
// group.h. Next: reductions.cpp, moving.cpp, messages.cpp (the calls), module.cpp;
// tests/torch compares with Gloo.
#include "group.h"

#include <algorithm>

#include <Python.h>
#include <c10/util/Exception.h>

namespace tutti_torch
{

using c10d::OpType;

namespace
{

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
