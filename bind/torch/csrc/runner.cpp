// SPDX-License-Identifier: BSD-3-Clause
// runner.cpp - see runner.h. Next: work.cpp.
#include "runner.h"

#include <csignal>
#include <thread>

#include <pthread.h>

#include <c10/util/Exception.h>

namespace tutti_torch
{

namespace
{

const auto patience = std::chrono::seconds(1);
thread_local const void *owner_of_this_step = nullptr;

// Signals are for the program's own threads.
void start_thread(std::function<void()> main)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    try {
        std::thread(std::move(main)).detach();
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

} // namespace

Runner &Runner::get()
{
    // Never destroyed: groups may end after static objects.
    static Runner *one = [] {
        pthread_atfork(nullptr, nullptr, [] { one = new Runner(); });
        return new Runner();
    }();
    return *one;
}

void Runner::run(const void *owner, std::function<void()> step)
{
    std::unique_lock<std::mutex> lock(lock_);
    if (is_over_) {
        // Kept for ever: what it holds may be Python's.
        new std::function<void()>(std::move(step));
        return;
    }
    n_open_[owner]++;
    jobs_.push_back({owner, std::move(step)});
    if (jobs_.size() <= n_idle_) {
        filled_.notify_one();
        return;
    }
    try {
        start_thread([this] { work(); });
        return;
    } catch (const std::exception &e) {
        TORCH_WARN("tutti: no thread for a callback: ", e.what());
    }
    // Here, then; it may have to wait for others, which is better than never.
    auto job = std::move(jobs_.back());
    jobs_.pop_back();
    lock.unlock();
    perform(std::move(job));
}

void Runner::perform(Job job)
{
    const void *before = owner_of_this_step;
    owner_of_this_step = job.owner;
    try {
        job.step();
    } catch (const std::exception &e) {
        // Of a callback; there is nobody to tell but the user.
        TORCH_WARN("tutti, in a callback: ", e.what());
    }
    job.step = nullptr; // what it holds may be the owner's last
    owner_of_this_step = before;
    std::lock_guard<std::mutex> lock(lock_);
    auto it = n_open_.find(job.owner);
    if (--it->second == 0)
        n_open_.erase(it);
    ended_.notify_all();
}

void Runner::work()
{
    std::unique_lock<std::mutex> lock(lock_);
    for (;;) {
        n_idle_++;
        const bool is_called =
            filled_.wait_for(lock, patience, [this] { return !jobs_.empty(); });
        n_idle_--;
        if (!is_called)
            return;
        auto job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        perform(std::move(job));
        lock.lock();
    }
}

void Runner::drain(const void *owner)
{
    const size_t mine = owner_of_this_step == owner;
    std::unique_lock<std::mutex> lock(lock_);
    ended_.wait(lock, [&] {
        auto it = n_open_.find(owner);
        return it == n_open_.end() || it->second <= mine;
    });
}

void Runner::finish(std::chrono::seconds patience)
{
    std::unique_lock<std::mutex> lock(lock_);
    is_over_ = true;
    ended_.wait_for(lock, patience, [this] { return n_open_.empty(); });
}

} // namespace tutti_torch
