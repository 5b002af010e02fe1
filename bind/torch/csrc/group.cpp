// SPDX-License-Identifier: BSD-3-Clause
// group.cpp - life and end of a process group, and how a call becomes a Work; see
// group.h. Next: reductions.cpp, moving.cpp, messages.cpp (the calls), module.cpp;
// tests/torch compares with Gloo.
#include "group.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include "names.h"
#include "wayback.h"

namespace tutti_torch
{

using c10d::OpType;

namespace
{

std::shared_ptr<GroupName> with_ranks(GroupName name, int size)
{
    for (int r = 0; name.ranks.size() < static_cast<size_t>(size); r++)
        name.ranks.push_back(static_cast<uint64_t>(r));
    return std::make_shared<GroupName>(std::move(name));
}

// Newcomers' state travels over it at first, behind the calls of the group that
// is used.
c10::intrusive_ptr<ProcessGroupTutti>
larger_group(std::shared_ptr<Comm> comm,
             c10::intrusive_ptr<c10d::Backend::Options> options,
             const Trust &trust)
{
    const int rank = comm->rank(), size = comm->size();
    auto made = c10::make_intrusive<ProcessGroupTutti>(
        std::move(comm), rank, size, std::move(options), GroupName{}, trust);
    made->set_priority(-1);
    return made;
}

} // namespace

ProcessGroupTutti::ProcessGroupTutti(std::shared_ptr<Comm> comm, int rank,
                                     int size,
                                     c10::intrusive_ptr<Options> options,
                                     GroupName name, Trust trust)
    : Backend(rank, size), options_(std::move(options)),
      trust_(std::move(trust)), comm_(std::move(comm)),
      name_(with_ranks(std::move(name), size))
{
    init();
    begin();
}

void ProcessGroupTutti::begin()
{
    seq_ = 0;
    sent_.clear();
    recent_.clear();
    if (name_->ranks.size() != static_cast<size_t>(size_))
        name_ = with_ranks({name_->name, name_->desc, {}}, size_);
    if (Recorder::get().dumps_on_failure())
        comm_->watch(
            [me = name_->ranks[static_cast<size_t>(rank_)]](
                const std::string &why) { Recorder::get().dump(me, why); });
}

ProcessGroupTutti::~ProcessGroupTutti()
{
    shutdown();
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
    opts.priority = priority_;
    return opts;
}

WorkPtr ProcessGroupTutti::start(Job job, Add add)
{
    const WayBack back;
    std::unique_lock<std::mutex> lock(lock_);
    if (!open_) {
        lock.unlock();
        return start_alone(std::move(job), add);
    }
    auto opts = options_of(job.timeout);
    opts.waits = job.waits;
    try {
        add(*open_, opts);
    } catch (...) {
        put_off(std::current_exception());
        return nullptr;
    }
    note_device(*open_);
    if (c10d::isP2POp(job.op))
        record(open_, job, 0);
    else
        open_collectives_ = true;
    for (const auto &list : job.outputs)
        open_outputs_[0].insert(open_outputs_[0].end(), list.begin(),
                                list.end());
    // Python's coalescing manager looks at the Work of the whole only.
    return nullptr;
}

WorkPtr ProcessGroupTutti::start_alone(Job job, Add add)
{
    const WayBack back;
    auto opts = options_of(job.timeout);
    opts.waits = job.waits;
    const bool is_message = c10d::isP2POp(job.op);
    const auto &names = names_of(job.op);
    auto work = c10::make_intrusive<TuttiWork>(rank_, job.op, names.title,
                                               job.inputs);
    auto call = std::make_shared<Call>(comm_, names.plain);
    try {
        add(*call, opts);
    } catch (...) {
        call->detach(); // the library has the buffers of what was added before
        throw;
    }
    note_device(*call);
    // What is refused does not count. Once it is noted others may settle it.
    const uint64_t seq = is_message ? seq_.load() : ++seq_;
    record(call, job, seq);
    work->take(call, std::move(job.outputs), seq);
    if (!is_message)
        note(call);
    return work;
}

void ProcessGroupTutti::note_device(const Call &call)
{
    if (call.device())
        gpu_ = call.device()->index();
}

// Whom a receive from any rank meets is not known: it is not recorded.
void ProcessGroupTutti::record(const std::shared_ptr<Call> &call,
                               const Job &job, uint64_t seq)
{
    auto &recorder = Recorder::get();
    if (!recorder.is_on() || job.op == OpType::RECVANYSOURCE)
        return;
    if (job.other >= 0) {
        std::lock_guard<std::mutex> guard(sent_lock_);
        seq = ++sent_[{job.op == OpType::SEND, job.other, job.tag}];
    }
    // torch tells names after the group is made, and not to a group within
    // that of TORCH_DISTRIBUTED_DEBUG=DETAIL.
    std::call_once(is_named_, [this] {
        if (name_->name.empty())
#if TUTTI_TORCH_AT_LEAST(2, 5)
            name_->name = getGroupUid();
#else
            name_->name = getGroupName();
#endif
        name_->desc = getGroupDesc().empty() ? "undefined" : getGroupDesc();
    });
    Event event{name_, call,      job.op, seq, timeout_of(job.timeout).count(),
                rank_, job.other, job.tag};
    call->record(recorder.begin(std::move(event), job.inputs, job.outputs));
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
    open_outputs_.assign(1, {});
    open_collectives_ = false;
}

// With the lock, while coalescing. Torch calls endCoalescing() only where nothing
// was thrown before, and would take all later calls for parts of this one.
void ProcessGroupTutti::put_off(std::exception_ptr error)
{
    if (!open_error_)
        open_error_ = std::move(error);
}

bool ProcessGroupTutti::accepts(c10::function_ref<void()> checks)
{
    try {
        checks();
        return true;
    } catch (...) {
        std::lock_guard<std::mutex> lock(lock_);
        if (!open_)
            throw;
        put_off(std::current_exception());
        return false;
    }
}

WorkPtr ProcessGroupTutti::endCoalescing()
{
    std::unique_lock<std::mutex> lock(lock_);
    TORCH_CHECK(open_, "tutti: endCoalescing() without startCoalescing()");
    if (open_error_) {
        const auto call = std::move(open_);
        const auto outputs = std::move(open_outputs_);
        const auto error = std::exchange(open_error_, nullptr);
        open_ = nullptr;
        lock.unlock();
        call->detach();
        std::rethrow_exception(error);
    }
    const uint64_t seq = open_collectives_ ? ++seq_ : seq_.load();
    auto work = c10::make_intrusive<TuttiWork>(rank_, OpType::COALESCED,
                                               "tutti:coalesced", std::nullopt);
    if (open_collectives_)
        record(open_, {OpType::COALESCED, c10d::kUnsetTimeout, false, {}, {}},
               seq);
    work->take(open_, std::move(open_outputs_), seq);
    note(std::exchange(open_, nullptr));
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
    // torch asks once for each type of device, with one store: it is one group.
    if (split_store_.lock() == store)
        if (auto made = split_.lock())
            return made;
    GroupName name;
    for (const int r : ranks) {
        TORCH_CHECK_VALUE(0 <= r && r < size_, "tutti: there is no rank ", r,
                          " in a group of ", size_, " to split");
        name.ranks.push_back(name_->ranks[static_cast<size_t>(r)]);
    }
    const int rank = static_cast<int>(it - ranks.begin());
    const int size = static_cast<int>(ranks.size());
    auto options = with_defaults(opts);
    auto made = c10::make_intrusive<ProcessGroupTutti>(
        Comm::open(store, rank, size, options->timeout, trust_), rank, size,
        options, std::move(name), trust_);
    split_store_ = store;
    split_ = c10::intrusive_ptr<Backend>(made);
    return made;
}

c10::intrusive_ptr<c10d::Backend::Options>
ProcessGroupTutti::with_defaults(const c10::intrusive_ptr<Options> &opts) const
{
    auto options = c10::make_intrusive<Options>(*options_);
    if (opts && opts->timeout.count() > 0)
        options->timeout = opts->timeout;
    return options;
}

std::tuple<c10::intrusive_ptr<c10d::Backend>, std::vector<int>>
ProcessGroupTutti::shrink_to_left(const std::vector<int> &exclude,
                                  bool puts_out,
                                  const c10::intrusive_ptr<Options> &opts)
{
    const WithoutGil free;
    std::vector<int> left;
    for (const auto &call : unfinished())
        call->await();
    auto comm = comm_->shrink(exclude, puts_out, left);
    GroupName name;
    for (const int r : left)
        name.ranks.push_back(name_->ranks[static_cast<size_t>(r)]);
    const auto me = std::find(left.begin(), left.end(), rank_);
    auto made = c10::make_intrusive<ProcessGroupTutti>(
        std::move(comm), static_cast<int>(me - left.begin()),
        static_cast<int>(left.size()), with_defaults(opts), std::move(name),
        trust_);
    return {std::move(made), left};
}

c10::intrusive_ptr<c10d::Backend>
ProcessGroupTutti::shrink(const std::vector<int64_t> &exclude, int flags,
                          const c10::intrusive_ptr<Options> &opts)
{
    const std::vector<int> out(exclude.begin(), exclude.end());
    if (flags & 1)
        comm_->revoke("the program called shrink_group()");
    auto [made, left] = shrink_to_left(out, false, opts);
    std::string others;
    for (int r = 0; r < size_; r++)
        if (std::find(left.begin(), left.end(), r) == left.end() &&
            std::find(out.begin(), out.end(), r) == out.end())
            others += c10::str(" ", r);
    if (!others.empty())
        C10_THROW_ERROR(
            DistBackendError,
            c10::str(
                "[rank ", rank_,
                "] tutti shrink: also lost, and not among "
                "those to exclude:",
                others,
                "; tutti.torch.shrink_group() leaves out whoever is lost"));
    return made;
}

bool ProcessGroupTutti::agree(bool mine)
{
    const WithoutGil free;
    return comm_->agree(mine);
}

std::tuple<c10::intrusive_ptr<c10d::Backend>, std::string>
ProcessGroupTutti::grow(const Door &door)
{
    const WithoutGil free;
    std::string why;
    auto comm = comm_->grow(door, why);
    if (!comm)
        return {nullptr, why};
    return {larger_group(std::move(comm), with_defaults(nullptr), trust_), why};
}

c10::intrusive_ptr<c10d::Backend> join(const Door &door, const Millis &timeout,
                                       const Trust &trust)
{
    const WithoutGil free;
    return larger_group(
        Comm::join(door, timeout, trust),
        c10::make_intrusive<c10d::Backend::Options>("tutti", timeout), trust);
}

// Destroying a communicator waits for the completion thread, which may be
// waiting for the GIL.
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

#if TUTTI_TORCH_AT_LEAST(2, 7)
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
#endif

ProcessGroupTutti &tutti_of(const c10::intrusive_ptr<c10d::Backend> &group)
{
    auto *found = dynamic_cast<ProcessGroupTutti *>(group.get());
    TORCH_CHECK_VALUE(found != nullptr,
                      "this needs a process group of the backend \"tutti\"");
    return *found;
}

} // namespace tutti_torch
