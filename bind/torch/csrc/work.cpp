// SPDX-License-Identifier: BSD-3-Clause
// work.cpp - see work.h. Next: group.cpp.
#include "work.h"

#include <algorithm>

#include <poll.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include "recorder.h"
#include "runner.h"
#include "wayback.h"

namespace tutti_torch
{

Call::~Call()
{
    for (auto *req : reqs_)
        tutti_request_free(req);
}

void Call::add(const tutti_call_opts &opts, Issue issue, Tensors keep,
               Step after)
{
    tutti_request *req = nullptr;
    // Nothing may fail once the library has the buffers.
    reqs_.reserve(reqs_.size() + 1);
    after_.reserve(after_.size() + 1);
    if (keep_.empty())
        keep_ = std::move(keep);
    else
        keep_.insert(keep_.end(), keep.begin(), keep.end());
    comm_->issue(name_,
                 [&](tutti_comm *comm) { return issue(comm, &opts, &req); });
    reqs_.push_back(req);
    after_.push_back(std::move(after));
}

void Call::close(std::vector<Tensors> outputs, Step on_end)
{
    outputs_ = std::move(outputs);
    on_end_ = std::move(on_end);
    is_closed_.store(true, std::memory_order_release);
}

c10::IValue Call::value() const
{
    if (outputs_.size() > 1)
        return outputs_;
    return outputs_.empty() ? Tensors() : outputs_[0];
}

// The flight recorder asks from any thread, also while calls are being added.
bool Call::went_well() const
{
    if (!is_closed_.load(std::memory_order_acquire))
        return false;
    for (auto *req : reqs_)
        if (tutti_test(req) != TUTTI_OK)
            return false;
    return true;
}

bool Call::all_done() const
{
    for (auto *req : reqs_)
        if (tutti_test(req) == TUTTI_AGAIN)
            return false;
    for (const auto &call : before_)
        if (!call->is_over())
            return false;
    return true;
}

bool Call::is_over()
{
    if (settled_.load(std::memory_order_acquire))
        return true;
    if (!all_done())
        return false;
    settle();
    return true;
}

// All requests are done. What it follows it waits for, but what goes wrong
// there is not its business.
void Call::settle()
{
    for (const auto &call : before_)
        call->await();
    c10::intrusive_ptr<c10::ivalue::Future> future;
    Step on_end;
    // They go without the lock: a tensor that Python has too asks for the GIL
    // when it goes, and who has that may be waiting for the lock.
    std::vector<Step> after;
    Tensors keep;
    {
        std::lock_guard<std::mutex> lock(lock_);
        if (settled_.load(std::memory_order_relaxed))
            return;
        for (auto *req : reqs_) {
            const tutti_err err = tutti_test(req);
            if (err && !outcome_)
                outcome_ = comm_->error(name_, err);
        }
        try {
            at::AutoDispatchBelowADInplaceOrView guard;
            for (size_t i = 0; !outcome_ && i < after_.size(); i++)
                if (after_[i])
                    after_[i]();
        } catch (...) {
            outcome_ = std::current_exception();
        }
        after.swap(after_);
        keep.swap(keep_);
        for (const uint64_t id : records_)
            Recorder::get().end(id, !outcome_);
        future = future_;
        on_end = std::move(on_end_);
        settled_.store(true, std::memory_order_release);
    }
    if (on_end)
        on_end();
    if (future && outcome_)
        future->setError(outcome_);
    else if (future)
        future->markCompleted(value());
}

void Call::wait(std::chrono::milliseconds timeout)
{
    // 34 years; a timedelta may be longer than clocks can count.
    const auto most = std::chrono::milliseconds(int64_t(1) << 40);
    const auto until = std::chrono::steady_clock::now() +
                       std::min(timeout, most);
    for (size_t i = 0;
         !settled_.load(std::memory_order_acquire) && i < reqs_.size(); i++) {
        size_t index = 0;
        if (tutti_test(reqs_[i]) != TUTTI_AGAIN)
            continue;
        if (timeout == kNoTimeout) {
            tutti_wait_any(&reqs_[i], 1, &index);
            continue;
        }
        int fd = -1;
        const tutti_err err = tutti_request_fd(reqs_[i], &fd);
        TORCH_CHECK(!err, "tutti ", name_, ": ", tutti_strerror(err));
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            until - std::chrono::steady_clock::now());
        pollfd p{fd, POLLIN, 0};
        if (left.count() > 0)
            ::poll(&p, 1,
                   static_cast<int>(std::min<int64_t>(left.count(), 1 << 30)));
        TORCH_CHECK(tutti_test(reqs_[i]) != TUTTI_AGAIN, "tutti ", name_,
                    ": Operation timed out! wait() was given ", timeout.count(),
                    " ms");
    }
    settle();
    if (outcome_)
        std::rethrow_exception(outcome_);
}

void Call::await()
{
    try {
        wait(kNoTimeout);
    } catch (const std::exception &) {
    }
}

std::exception_ptr Call::outcome()
{
    std::lock_guard<std::mutex> lock(lock_);
    return outcome_;
}

c10::intrusive_ptr<c10::ivalue::Future> Call::future()
{
    if (reqs_.empty())
        is_over(); // nobody will call back
    std::unique_lock<std::mutex> lock(lock_);
    if (future_)
        return future_;
    auto type = c10::ListType::create(c10::TensorType::get());
    if (outputs_.size() > 1)
        type = c10::ListType::create(type);
    future_ = c10::make_intrusive<c10::ivalue::Future>(type);
    if (settled_.load(std::memory_order_relaxed)) {
        if (outcome_)
            future_->setError(outcome_);
        else
            future_->markCompleted(value());
        return future_;
    }
    ask_for_callbacks();
    return future_;
}

namespace
{
struct Holder {
    std::shared_ptr<Call> call;
};
} // namespace

void Call::on_done(void *holder, tutti_err)
{
    std::unique_ptr<Holder> own(static_cast<Holder *>(holder));
    auto call = std::move(own->call);
    if (call->left_.fetch_sub(1, std::memory_order_acq_rel) > 1)
        return;
    const void *owner = call->comm_.get();
    Runner::get().run(owner, [call = std::move(call)] { call->settle(); });
}

// With the lock. False: there is no thread to call back; whoever waits or polls
// settles it.
bool Call::ask_for_callbacks()
{
    if (has_callbacks_)
        return true;
    has_callbacks_ = true;
    left_.store(reqs_.size(), std::memory_order_relaxed);
    bool is_well = true;
    for (auto *req : reqs_) {
        auto *holder = new Holder{shared_from_this()};
        if (tutti_request_callback(req, on_done, holder)) {
            delete holder;
            is_well = false;
        }
    }
    return is_well;
}

void Call::detach()
{
    if (is_over())
        return;
    {
        std::lock_guard<std::mutex> lock(lock_);
        if (settled_.load(std::memory_order_relaxed) || ask_for_callbacks())
            return;
    }
    // Buffers must not go while the library has them.
    size_t index = 0;
    for (auto *req : reqs_)
        tutti_wait_any(&req, 1, &index);
}

// ------------------------------------------------------------------ work --

TuttiWork::~TuttiWork()
{
    if (call_)
        call_->detach();
}

void TuttiWork::take(std::shared_ptr<Call> call, std::vector<Tensors> outputs,
                     uint64_t seq)
{
    call_ = std::move(call);
    seq_ = seq;
    call_->close(std::move(outputs), std::move(recordFunctionEndCallback_));
    recordFunctionEndCallback_ = nullptr;
}

bool TuttiWork::isCompleted()
{
    return call_->is_over();
}

bool TuttiWork::isSuccess() const
{
    return call_->is_over() && !call_->outcome();
}

std::exception_ptr TuttiWork::exception() const
{
    return call_->outcome();
}

int TuttiWork::sourceRank() const
{
    return call_->source;
}

Tensors TuttiWork::result()
{
    TORCH_CHECK(isCompleted(),
                "Work needs to be completed before calling result(). "
                "Should call wait() before result().");
    const auto &outputs = call_->outputs();
    TORCH_CHECK(
        outputs.size() <= 1,
        "work result does not support list of lists, use .getFuture() and "
        "value()");
    return outputs.empty() ? Tensors() : outputs[0];
}

void TuttiWork::synchronize()
{
}

bool TuttiWork::wait(std::chrono::milliseconds timeout)
{
    const WayBack back;
    call_->wait(timeout);
    return true;
}

void TuttiWork::abort()
{
    TORCH_CHECK(
        false,
        "tutti: one call cannot be aborted alone; abort the process group");
}

c10::intrusive_ptr<c10::ivalue::Future> TuttiWork::getFuture()
{
    return call_->future();
}

uint64_t TuttiWork::getSequencenumber() const
{
    return seq_;
}

} // namespace tutti_torch
