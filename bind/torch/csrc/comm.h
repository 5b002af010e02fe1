// SPDX-License-Identifier: BSD-3-Clause
// comm.h - a communicator as the process group holds it: made through torch's
// store, used by one thread at a time, closed once, with its last words kept.
#pragma once

#include <tutti.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <c10/util/FunctionRef.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch
{

// By what ranks know each other, as tutti_trust says it; empty: the environment's.
struct Trust {
    std::string secret_file, tls_cert, tls_key, tls_ca, tls_crl;
    bool encrypt = true;

    // Points into this.
    tutti_trust get() const;
};

// Where newcomers come to a group that is there: an address, a name on one host, or
// a store; neither: as the environment says. And the time that a start with them
// has; 0: the library's.
struct Door {
    std::string address;
    c10::intrusive_ptr<c10d::Store> store;
    std::chrono::milliseconds timeout{0};
};

class Comm
{
  public:
    // Meets the other ranks through the store, for which they have the time of a
    // call, or `least`: they come one by one, however soon a call must be done, and
    // torch's own barrier of a new group waits as long. Throws DistBackendError.
    static std::shared_ptr<Comm>
    open(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
         std::chrono::milliseconds timeout, const Trust &trust,
         std::chrono::milliseconds least = std::chrono::seconds(10));

    // None yet: calls are refused.
    static std::shared_ptr<Comm> unmet(int rank);
    // Comes to one whose ranks call grow(). Throws DistBackendError.
    static std::shared_ptr<Comm> join(const Door &door,
                                      std::chrono::milliseconds timeout,
                                      const Trust &trust);

    ~Comm();

    // A larger one, with those who have come (tutti_comm_grow()): all ranks call it.
    // Null: nobody, or they are on the way; or, with a sentence in `why`, they were
    // not taken in, or cannot come. This one stays. Throws when it has failed.
    std::shared_ptr<Comm> grow(const Door &door, std::string &why);

    // Of the ranks that are left, but for these, whether they live or not: all that
    // are left call it (tutti_comm_shrink(), which says what puts_out is). `left`: by
    // new rank, the rank here.
    // Throws DistBackendError. This one stays, to be closed.
    std::shared_ptr<Comm> shrink(const std::vector<int> &exclude, bool puts_out,
                                 std::vector<int> &left);

    // Whether all that are left say so and none of them has noticed a failure
    // (tutti_comm_agree()). Throws DistBackendError.
    bool agree(bool mine);

    int rank() const
    {
        return rank_;
    }
    int size();

    // To be called when it fails, once, by whatever thread sees it first; also
    // (see Watch) when that is none of the caller's.
    void watch(std::function<void(const std::string &)> on_failure);
    void look();

    // Makes one call; calls of several threads go one after the other. Throws
    // when it is refused, or the communicator has failed or is closed.
    void issue(const char *what,
               c10::function_ref<tutti_err(tutti_comm *)> call);

    // Ends what is in flight here and on all other ranks. Any thread.
    void abort(const std::string &reason);
    // The same, for a shrink to follow.
    void revoke(const std::string &reason);

    // Calls that are in flight end with an error. Any thread; twice is once.
    void close();

    // The exception that tells of an outcome. A deadline that passed is kept
    // apart: see failure(). before: the call that the communicator had failed in
    // when this one was made, "" none.
    std::exception_ptr error(const char *what, tutti_err err,
                             const std::string &before = "");

    // Of the communicator, TUTTI_OK while it is well.
    tutti_err failure();
    // In words, ""; not that peers have left whom nobody has called since.
    std::string failure_text();

  private:
    Comm(tutti_comm *comm, int rank) : comm_(comm), rank_(rank)
    {
    }
    std::string message();
    void note(tutti_err err, const std::string &text, const char *what);
    std::string failed_in();

    // Calls, one at a time; and the life of comm_. In this order.
    std::mutex calls_, life_;
    tutti_comm *comm_;
    const int rank_;
    std::string last_; // when comm_ is gone
    const char *gone_ = "the process group has been shut down";
    tutti_err failure_ = TUTTI_OK;
    std::string failure_text_, failed_in_;
    std::function<void(const std::string &)> on_failure_;
};

} // namespace tutti_torch
