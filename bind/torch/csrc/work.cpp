// SPDX-License-Identifier: BSD-3-Clause
// work.cpp - see work.h. Next: group.cpp.
#include "work.h"

#include <algorithm>

#include <cstdlib>
#include <cstring>

#include <poll.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include "recorder.h"
#include "runner.h"
#include "wayback.h"

namespace tutti_torch
{

namespace
{

// Other values than 0 and 1 are refused by the library, as all settings are.
bool wait_blocks()
{
    static const bool it_does = [] {
        const char *set = std::getenv("TUTTI_BLOCKING_WAIT");
        return set && !std::strcmp(set, "1");
    }();
    return it_does;
}

} // namespace

Call::~Call()
{
    for (auto *req : reqs_)
        tutti_request_free(req);
}

void Call::hold(const Tensors &more)
{
    keep_.insert(keep_.end(), more.begin(), more.end());
}

void Call::add(const tutti_call_opts &given, Issue issue, Tensors keep,
               Step after)
{
    tutti_request *req = nullptr;
    auto opts = given;
    const auto device = device_of(name_, keep);
    std::optional<c10::Event> begun; // until issue() returns
    if (device) {
        TORCH_CHECK(!device_ || *device_ == *device, "tutti ", name_,
                    ": its parts must be on one device, these are on ",
                    *device_, " and ", *device);
        device_ = device;
        stream_ = current_stream(*device);
        begun = mark(name_, *stream_);
        // A rank that has no bytes in the call has no memory to look at.
        opts.on_device =
            std::any_of(keep.begin(), keep.end(), [](const at::Tensor &t) {
                return t.defined() && t.numel() > 0;
            });
        if (opts.on_device)
            opts.after = begun->eventId();
    } else {
        has_host_part_ = true;
    }
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
            if (device_ && !outcome_ && !has_placed_)
                put_behind(*stream_);
            for (size_t i = 0; !device_ && !outcome_ && i < after_.size(); i++)
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
    if (future && !future->completed())
        complete(*future);
}

// It is settled.
void Call::complete(c10::ivalue::Future &future)
{
    if (outcome_) {
        future.setError(outcome_);
        return;
    }
    // Whoever takes the value is put behind this stream.
    std::optional<c10::StreamGuard> guard;
    if (device_)
        guard.emplace(*stream_);
    future.markCompleted(value());
}

// ---------------------------------------------------------------- of a GPU --

// Streams alone can be put behind it.
bool Call::is_ordered() const
{
    return device_ && !has_host_part_;
}

// With the lock. What the stream is given from now on sees the results, if all
// goes well.
void Call::put_behind(const c10::Stream &stream)
{
    if (has_placed_) {
        if (placed_)
            placed_->block(stream);
        return;
    }
    for (auto *req : reqs_) {
        void *event = nullptr;
        // EINVAL: this rank has no bytes in it.
        const tutti_err err = tutti_request_event(req, &event);
        TORCH_CHECK(!err || err == TUTTI_EINVAL, "tutti ", name_, ": ",
                    tutti_strerror(err));
        if (!err && event)
            block(stream, event);
    }
    if (std::none_of(after_.begin(), after_.end(),
                     [](const Step &step) { return bool(step); }))
        return; // others find the same
    const c10::StreamGuard guard(stream);
    at::AutoDispatchBelowADInplaceOrView below;
    has_placed_ = true;
    for (const auto &step : after_)
        if (step)
            step();
    use_on(stream, keep_);
    placed_ = mark(name_, stream);
}

// Throws what has gone wrong by now.
void Call::check_requests() const
{
    for (auto *req : reqs_) {
        const tutti_err err = tutti_test(req);
        if (err != TUTTI_OK && err != TUTTI_AGAIN)
            std::rethrow_exception(comm_->error(name_, err));
    }
}

void Call::wait(std::chrono::milliseconds timeout)
{
    if (!is_ordered() || timeout != kNoTimeout || wait_blocks()) {
        finish(timeout);
        return;
    }
    if (!is_over())
        check_requests();
    std::lock_guard<std::mutex> lock(lock_);
    if (outcome_)
        std::rethrow_exception(outcome_);
    put_behind(current_stream(*device_));
}

// With the lock. The future is completed in a stream of its own that is behind
// the call: whoever takes the value, or is called back, is behind that. So a hook
// of DDP does not hold up the backward pass.
void Call::complete_at_once()
{
    try {
        check_requests();
    } catch (...) {
        future_->setError(std::current_exception());
        return;
    }
    const c10::StreamGuard guard(spare_stream(*device_));
    put_behind(guard.current_stream());
    future_->markCompleted(value());
}

// ------------------------------------------------------------------- waiting --

void Call::finish(std::chrono::milliseconds timeout)
{
    wait_for_requests(timeout);
    if (is_ordered()) {
        std::lock_guard<std::mutex> lock(lock_);
        if (went_well() && !settled_.load(std::memory_order_relaxed))
            put_behind(current_stream(*device_));
    }
    settle();
    if (outcome_)
        std::rethrow_exception(outcome_);
    if (device_) {
        std::lock_guard<std::mutex> lock(lock_);
        put_behind(current_stream(*device_));
    }
}

void Call::wait_for_requests(std::chrono::milliseconds timeout) const
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
}

void Call::await()
{
    try {
        finish(kNoTimeout);
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
    std::vector<c10::Device> devices;
    if (device_)
        devices.push_back(*device_);
    future_ = c10::make_intrusive<c10::ivalue::Future>(type,
                                                       std::move(devices));
    if (settled_.load(std::memory_order_relaxed)) {
        complete(*future_);
        return future_;
    }
    if (is_ordered()) {
        complete_at_once();
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

// Whom a receive from any rank has met is known when it is over.
int TuttiWork::sourceRank() const
{
    if (call_->device() && !call_->is_settled()) {
        const WithoutGil free;
        call_->finish(kNoTimeout);
    }
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
    if (call_->device())
        wait(kNoTimeout);
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
