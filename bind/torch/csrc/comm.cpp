// SPDX-License-Identifier: BSD-3-Clause
// comm.cpp - see comm.h. Next: work.cpp.
#include "comm.h"

#include <algorithm>
#include <cstring>

#include <c10/util/Exception.h>

#include "recorder.h"
#include "runner.h"

namespace tutti_torch
{

namespace
{

using Clock = std::chrono::steady_clock;

// torch's store behind the functions of a tutti_store; nothing may be thrown
// through the library.
struct StoreAdapter {
    c10::intrusive_ptr<c10d::Store> store;
    std::string why; // it failed
};

tutti_err put(void *ctx, const char *key, const void *bytes, size_t len)
{
    auto *adapter = static_cast<StoreAdapter *>(ctx);
    try {
        const auto *at = static_cast<const uint8_t *>(bytes);
        adapter->store->set(key, std::vector<uint8_t>(at, at + len));
        return TUTTI_OK;
    } catch (const std::exception &e) {
        adapter->why = e.what();
    } catch (...) {
        adapter->why = "unknown";
    }
    return TUTTI_EBOOT;
}

tutti_err get(void *ctx, const char *key, void *buf, size_t cap, size_t *len,
              double timeout_s)
{
    auto *adapter = static_cast<StoreAdapter *>(ctx);
    const auto ms =
        std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000) + 1);
    const auto start = Clock::now();
    try {
        adapter->store->wait({key}, ms);
        const auto value = adapter->store->get(key);
        *len = value.size();
        if (value.size() <= cap)
            std::memcpy(buf, value.data(), value.size());
        return TUTTI_OK;
    } catch (const std::exception &e) {
        adapter->why = e.what();
    } catch (...) {
        adapter->why = "unknown";
    }
    // Stores tell in their own ways that a key has not come; the clock is sure.
    return Clock::now() - start >= ms ? TUTTI_AGAIN : TUTTI_EBOOT;
}

double seconds(std::chrono::milliseconds ms)
{
    return static_cast<double>(ms.count()) / 1000;
}

const char *text_or_null(const std::string &s)
{
    return s.empty() ? nullptr : s.c_str();
}

void check_timeout(std::chrono::milliseconds timeout)
{
    TORCH_CHECK_VALUE(timeout.count() >= 0,
                      "tutti: the timeout of a process group cannot be ",
                      timeout.count(), " ms");
}

// It was not made; the library and the store know why.
[[noreturn]] void fail_to_start(const std::string &who,
                                const StoreAdapter &adapter)
{
    C10_THROW_ERROR(
        DistBackendError,
        c10::str("tutti, ", who, ": ", tutti_last_message(),
                 adapter.why.empty() ? "" : "; the store said: ", adapter.why));
}

} // namespace

tutti_trust Trust::get() const
{
    tutti_trust t = TUTTI_TRUST_INIT;
    t.secret_file = text_or_null(secret_file);
    t.tls_cert = text_or_null(tls_cert);
    t.tls_key = text_or_null(tls_key);
    t.tls_ca = text_or_null(tls_ca);
    t.tls_crl = text_or_null(tls_crl);
    t.is_plain = !encrypt;
    return t;
}

std::shared_ptr<Comm> Comm::open(const c10::intrusive_ptr<c10d::Store> &store,
                                 int rank, int size,
                                 std::chrono::milliseconds timeout,
                                 const Trust &trust,
                                 std::chrono::milliseconds least)
{
    check_timeout(timeout);
    StoreAdapter adapter{store, ""};
    const tutti_store callbacks{put, get, &adapter};
    tutti_comm_opts opts = TUTTI_COMM_OPTS_INIT;
    opts.rank = rank;
    opts.n_ranks = size;
    opts.store = &callbacks;
    opts.trust = trust.get();
    opts.timeout_s = seconds(timeout);
    if (timeout.count() > 0)
        opts.start_timeout_s = seconds(std::max(timeout, least));
    tutti_comm *comm = nullptr;
    if (tutti_comm_create(&opts, &comm))
        fail_to_start(c10::str("rank ", rank, " of ", size), adapter);
    return std::shared_ptr<Comm>(new Comm(comm, rank));
}

std::shared_ptr<Comm> Comm::unmet(int rank)
{
    auto none = std::shared_ptr<Comm>(new Comm(nullptr, rank));
    none->gone_ = "the process group has no members yet: reconfigure() comes "
                  "first";
    return none;
}

std::shared_ptr<Comm> Comm::join(const Door &door,
                                 std::chrono::milliseconds timeout,
                                 const Trust &trust)
{
    check_timeout(timeout);
    StoreAdapter adapter{door.store, ""};
    const tutti_store callbacks{put, get, &adapter};
    tutti_comm_opts opts = TUTTI_COMM_OPTS_INIT;
    opts.address = text_or_null(door.address);
    opts.store = door.store ? &callbacks : nullptr;
    opts.trust = trust.get();
    opts.timeout_s = seconds(timeout);
    opts.start_timeout_s = seconds(door.timeout);
    tutti_comm *comm = nullptr;
    if (tutti_comm_join(&opts, &comm))
        fail_to_start("a newcomer", adapter);
    return std::shared_ptr<Comm>(new Comm(comm, tutti_comm_rank(comm)));
}

Comm::~Comm()
{
    close();
}

void Comm::watch(std::function<void(const std::string &)> on_failure)
{
    on_failure_ = std::move(on_failure);
    Watch::get().add(this);
}

// Peers that have left in peace are no failure until somebody calls them.
void Comm::look()
{
    std::string text;
    tutti_err err = TUTTI_OK;
    {
        std::lock_guard<std::mutex> lock(life_);
        if (!comm_ || failure_)
            return;
        err = tutti_comm_failure(comm_);
        if (!err || err == TUTTI_EPEER)
            return;
        text = tutti_comm_message(comm_);
    }
    note(err, text, "");
}

void Comm::note(tutti_err err, const std::string &text, const char *what)
{
    {
        std::lock_guard<std::mutex> lock(life_);
        if (failure_ || (!comm_ && err == TUTTI_EABORTED))
            return; // it was destroyed, which is no failure
        failure_ = err;
        failure_text_ = text;
        failed_in_ = what;
    }
    if (on_failure_)
        on_failure_(text);
}

void Comm::issue(const char *what,
                 c10::function_ref<tutti_err(tutti_comm *)> call)
{
    std::lock_guard<std::mutex> one(calls_);
    // comm_ changes only under both locks, so here it stays.
    TORCH_CHECK(comm_ != nullptr, "tutti ", what, ": ", gone_,
                last_.empty() ? "" : "; before that: ", last_);
    const std::string before = failed_in();
    const tutti_err err = call(comm_);
    if (err)
        std::rethrow_exception(error(what, err, before));
}

void Comm::abort(const std::string &reason)
{
    std::lock_guard<std::mutex> lock(life_);
    if (comm_)
        tutti_comm_abort(comm_, reason.c_str());
}

void Comm::revoke(const std::string &reason)
{
    std::lock_guard<std::mutex> lock(life_);
    if (comm_)
        tutti_comm_revoke(comm_, reason.c_str());
}

std::shared_ptr<Comm> Comm::shrink(const std::vector<int> &exclude, bool puts_out,
                                   std::vector<int> &left)
{
    tutti_comm *made = nullptr;
    issue("shrink", [&](tutti_comm *comm) {
        tutti_shrink_opts opts = TUTTI_SHRINK_OPTS_INIT;
        left.resize(static_cast<size_t>(tutti_comm_size(comm)));
        opts.old_ranks = left.data();
        opts.exclude = exclude.data();
        opts.n_exclude = static_cast<int>(exclude.size());
        opts.puts_out = puts_out;
        return tutti_comm_shrink(comm, &opts, &made);
    });
    left.resize(static_cast<size_t>(tutti_comm_size(made)));
    return std::shared_ptr<Comm>(new Comm(made, tutti_comm_rank(made)));
}

bool Comm::agree(bool mine)
{
    uint64_t mask = 0;
    issue("agree", [&](tutti_comm *comm) {
        mask = mine && !tutti_comm_failure(comm);
        return tutti_comm_agree(comm, &mask);
    });
    return mask & 1;
}

std::shared_ptr<Comm> Comm::grow(const Door &door, std::string &why)
{
    tutti_comm *made = nullptr;
    StoreAdapter adapter{door.store, ""};
    const tutti_store callbacks{put, get, &adapter};
    issue("grow", [&](tutti_comm *comm) {
        tutti_grow_opts opts = TUTTI_GROW_OPTS_INIT;
        opts.address = text_or_null(door.address);
        opts.store = door.store ? &callbacks : nullptr;
        opts.timeout_s = seconds(door.timeout);
        const tutti_err err = tutti_comm_grow(comm, &opts, &made);
        if (err == TUTTI_EBOOT)
            why = tutti_comm_message(comm);
        return err == TUTTI_EBOOT || err == TUTTI_AGAIN ? TUTTI_OK : err;
    });
    return std::shared_ptr<Comm>(made ? new Comm(made, tutti_comm_rank(made))
                                      : nullptr);
}

int Comm::size()
{
    std::lock_guard<std::mutex> lock(life_);
    return comm_ ? tutti_comm_size(comm_) : 0;
}

void Comm::close()
{
    if (on_failure_)
        Watch::get().remove(this);
    {
        std::lock_guard<std::mutex> one(calls_);
        tutti_comm *comm = nullptr;
        {
            std::lock_guard<std::mutex> lock(life_);
            comm = comm_;
            if (comm)
                last_ = tutti_comm_message(comm);
            comm_ = nullptr;
        }
        tutti_comm_destroy(comm);
    }
    Runner::get().drain(this);
}

std::string Comm::message()
{
    std::lock_guard<std::mutex> lock(life_);
    return comm_ ? tutti_comm_message(comm_) : last_;
}

std::string Comm::failed_in()
{
    std::lock_guard<std::mutex> lock(life_);
    return failed_in_;
}

std::exception_ptr Comm::error(const char *what, tutti_err err,
                               const std::string &before)
{
    std::string text = message();
    if (text.empty())
        text = err == TUTTI_EABORTED
                   ? "the process group was destroyed before it was over"
                   : tutti_strerror(err);
    // What is refused leaves the group as it was; a forked child has none.
    const tutti_err why = failure();
    if (why && why != TUTTI_EFORK)
        note(why, text, what);
    // The words that Gloo has for it, because programs look for them.
    const char *gloo = err == TUTTI_ETIMEOUT ? "Timed out waiting: " : "";
    text = c10::str("[rank ", rank_, "] tutti ", what, ": ", gloo, text);
    if (!before.empty())
        text += c10::str("; the group has failed before, in ", before);
    const c10::SourceLocation here{__func__, __FILE__, __LINE__};
    if (err == TUTTI_EINVAL)
        return std::make_exception_ptr(c10::ValueError(here, text));
    return std::make_exception_ptr(c10::DistBackendError(here, text));
}

std::string Comm::failure_text()
{
    look();
    std::lock_guard<std::mutex> lock(life_);
    return failure_text_;
}

tutti_err Comm::failure()
{
    std::lock_guard<std::mutex> lock(life_);
    return failure_ || !comm_ ? failure_ : tutti_comm_failure(comm_);
}

} // namespace tutti_torch
