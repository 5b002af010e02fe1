// SPDX-License-Identifier: BSD-3-Clause
// recorder.h - the flight recorder: what this rank has called last, for the file
// that torch's analyser reads (torchfrtrace, torch.distributed.flight_recorder).
//
// One per process, as the file is one per rank and tells of all its groups. The
// last TORCH_FR_BUFFER_SIZE calls (2000; 0: none) lie in a ring; the places are
// used again, so that recording allocates nothing after a while. The file is
// written when a group first fails, unless TORCH_NCCL_DUMP_ON_TIMEOUT is 0. Python's
// frames are in it where TORCH_DISTRIBUTED_DEBUG is INFO or DETAIL. Its
// form is that of torch's recorder of NCCL; because the analyser refuses names
// that it does not know, calls stand there as Gloo's ("gloo:all_reduce").
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm.h"
#include "work.h"

namespace tutti_torch
{

// A process group, as the file names it.
struct GroupName {
    std::string name, desc;
    std::vector<uint64_t> ranks; // of the job, in the group's order
};

// One call. For messages `other` is the other rank, and seq counts those between
// the two with this tag; for collectives it is -1.
struct Event {
    std::shared_ptr<GroupName> group;
    std::weak_ptr<Call> call;
    c10d::OpType op;
    uint64_t seq;
    int64_t timeout_ms;
    int rank, other, tag;
};

// Where in Python it was called.
struct Frame {
    std::string name, file;
    int64_t line;
};

class Recorder
{
  public:
    static Recorder &get();

    bool is_on() const
    {
        return size_ > 0;
    }
    bool dumps_on_failure() const
    {
        return is_on() && dumps_;
    }
    // The number under which its end is told.
    uint64_t begin(Event event, const Tensors &inputs,
                   const std::vector<Tensors> &outputs);
    void end(uint64_t id, bool is_well);

    // The file's contents.
    std::string text();
    // Writes the file of this rank of the job. Never throws; the log says where
    // it is, or what went wrong.
    void dump(uint64_t rank, const std::string &why);

  private:
    Recorder();
    // Sizes behind each other: for each tensor how many, then they.
    struct Shapes {
        std::vector<int64_t> dims;
        std::vector<at::ScalarType> types;
        void add(const at::Tensor &t);
        void clear();
    };
    struct Entry {
        Event event;
        uint64_t id = 0;
        int64_t created_ns = 0, completed_ns = 0;
        bool has_ended = false, is_well = false;
        Shapes in, out;
        std::vector<Frame> frames;
    };
    c10::IValue entry_of(const Entry &e) const;

    size_t size_;
    bool dumps_, has_frames_;
    std::mutex lock_;
    std::vector<Entry> ring_;
    uint64_t next_ = 0;
};

// Looks after communicators: one that a failure has ended while this rank was
// not calling anything is noticed within half a second, and its on_failure()
// called. A thread, while there is something to look after.
class Watch
{
  public:
    // Of this process: a forked child has one of its own.
    static Watch &get();
    void add(Comm *comm);
    // It is not looked at afterwards. The last one ends the thread.
    void remove(Comm *comm);

  private:
    void run();
    std::mutex life_, lock_; // of the thread; of what follows. In this order.
    std::vector<Comm *> comms_;
    bool is_over_ = false;
    std::condition_variable changed_;
    std::thread thread_;
};

} // namespace tutti_torch
