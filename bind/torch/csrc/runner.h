// SPDX-License-Identifier: BSD-3-Clause
// runner.h - where futures are completed. Their callbacks may do what they like,
// also wait for other futures (torch's PowerSGD hook does), which callbacks of
// tutti.h may not. So each runs on a thread that is not needed for another: one
// that is idle, else a new one. Threads that were idle for a while end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>

namespace tutti_torch
{

class Runner
{
  public:
    // Of this process: a forked child has one of its own.
    static Runner &get();

    void run(const void *owner, std::function<void()> step);
    // Until the owner's steps are over, but for the one that calls this.
    void drain(const void *owner);
    // For the end of Python, after which no callback may run: nothing more is run,
    // and what runs is waited for, at most so long.
    void finish(std::chrono::seconds patience);

  private:
    struct Job {
        const void *owner;
        std::function<void()> step;
    };
    void work();
    void perform(Job job);
    std::mutex lock_;
    std::condition_variable filled_, ended_;
    std::deque<Job> jobs_;
    std::unordered_map<const void *, size_t> n_open_; // by owner
    size_t n_idle_ = 0;
    bool is_over_ = false;
};

} // namespace tutti_torch
