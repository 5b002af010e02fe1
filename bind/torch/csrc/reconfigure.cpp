// SPDX-License-Identifier: BSD-3-Clause
// reconfigure.cpp - a process group whose members change in place, as torch from 2.14
// on asks of a backend (torch.distributed._reconfigure).
//
// Each member has a handle, which programs exchange as they like. Given those of all
// that are to be members, and a number that no earlier time had, they meet at a store
// that the first one has, and ranks are the places in the list; of a set, in the order
// of the texts. What was in flight ends with an error.
//
// A handle is tutti:ID:PORT:HOST, ID random.
#include "group.h"

#include <algorithm>
#include <random>

#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "wayback.h"

namespace tutti_torch
{

namespace
{

std::string own_host()
{
    char name[256] = "";
    if (gethostname(name, sizeof(name) - 1))
        return "localhost";
    return name;
}

c10::intrusive_ptr<c10d::TCPStore> open_store(const std::string &host,
                                              uint16_t port, bool is_server,
                                              Millis timeout)
{
    c10d::TCPStoreOptions opts;
    opts.port = port;
    opts.isServer = is_server;
    opts.waitWorkers = false;
    opts.timeout = timeout;
    return c10::make_intrusive<c10d::TCPStore>(host, opts);
}

c10::intrusive_ptr<c10d::TCPStore> dial(const std::string &handle,
                                        Millis timeout)
{
    const size_t id = handle.find(':'), port = handle.find(':', id + 1);
    const size_t host = handle.find(':', port + 1);
    unsigned long number = 0;
    if (handle.rfind("tutti:", 0) == 0 && port != std::string::npos &&
        host != std::string::npos)
        number = std::strtoul(handle.c_str() + port + 1, nullptr, 10);
    TORCH_CHECK_VALUE(
        0 < number && number <= UINT16_MAX,
        "tutti: this is no handle of a member: ", handle.substr(0, 200));
    return open_store(handle.substr(host + 1), static_cast<uint16_t>(number),
                      false, timeout);
}

} // namespace

std::string ProcessGroupTutti::handle()
{
    std::lock_guard<std::mutex> lock(lock_);
    if (handle_.empty()) {
        std::random_device random;
        meeting_ = open_store(own_host(), 0, true, options_->timeout);
        handle_ = c10::str("tutti:", random(), random(), ":",
                           meeting_->getPort(), ":", own_host());
    }
    return handle_;
}

void ProcessGroupTutti::meet(const std::vector<std::string> &handles,
                             int64_t number, Millis timeout)
{
    const WithoutGil free;
    const auto mine = std::find(handles.begin(), handles.end(), handle());
    TORCH_CHECK_VALUE(mine != handles.end(),
                      "tutti: this member's handle is not among those of the "
                      "members to be");
    const int rank = static_cast<int>(mine - handles.begin());
    const int size = static_cast<int>(handles.size());
    const auto time = timeout_of(timeout);
    const c10::intrusive_ptr<c10d::TCPStore> at = rank ? dial(handles[0], time)
                                                       : meeting_;
    const auto store = c10::make_intrusive<c10d::PrefixStore>(
        c10::str("reconfigure ", number), at);
    if (rank == 0)
        TORCH_CHECK(store->add("used", 1) == 1, "tutti: the number ", number,
                    " was already used for a reconfiguration");
    comm_->close();
    comm_ = Comm::open(store, rank, size, time, trust_, Millis(0));
    set_place(rank, size);
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace
{

class Done : public c10d::Work
{
  public:
    bool isCompleted() override
    {
        return true;
    }
    bool isSuccess() const override
    {
        return true;
    }
    bool wait(Millis) override
    {
        return true;
    }
};

std::vector<std::string> in_order(const c10d::ReconfigureOptions &opts)
{
    return std::visit(
        [](const auto &given) {
            std::vector<std::string> all(given.begin(), given.end());
            if (!std::is_same_v<std::decay_t<decltype(given)>,
                                std::vector<c10d::ReconfigureHandle>>)
                std::sort(all.begin(), all.end());
            return all;
        },
        opts.handles);
}

} // namespace

c10d::ReconfigureHandle ProcessGroupTutti::get_reconfigure_handle() const
{
    return const_cast<ProcessGroupTutti *>(this)->handle();
}

WorkPtr ProcessGroupTutti::reconfigure(const c10d::ReconfigureOptions &opts)
{
    meet(in_order(opts), opts.uuid, opts.timeout.value_or(Millis(0)));
    return c10::make_intrusive<Done>();
}

void ProcessGroupTutti::set_place(int rank, int size)
{
    rank_ = rank;
    size_ = size;
    begin();
}

#else

void ProcessGroupTutti::set_place(int rank, int size)
{
    TORCH_CHECK(rank == rank_ && size == size_,
                "tutti: this torch keeps a group's rank and size: build tutti "
                "for torch 2.14 or later");
    begin();
}

#endif

} // namespace tutti_torch
