// SPDX-License-Identifier: BSD-3-Clause
// recorder.cpp - see recorder.h. Next: group.cpp.
#include "recorder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include "names.h"

namespace tutti_torch
{

namespace
{

using Dict = c10::Dict<c10::IValue, c10::IValue>;
using List = c10::List<c10::IValue>;

Dict new_dict()
{
    return Dict(c10::AnyType::get(), c10::AnyType::get());
}

List new_list()
{
    return List(c10::AnyType::get());
}

int64_t now_ns()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

// The first of the variables that is set.
const char *setting(std::initializer_list<const char *> names)
{
    for (const char *name : names)
        if (const char *value = std::getenv(name))
            return value;
    return nullptr;
}

std::string prefix_of_file()
{
    if (const char *given = setting(
            {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}))
        return given;
    const char *home = std::getenv("HOME");
    std::string dir = home ? home : "/tmp";
    for (const char *part : {"/.cache", "/torch"}) {
        dir += part;
        ::mkdir(dir.c_str(), 0700); // it may be there; open() will tell
    }
    return dir + "/comm_lib_trace_rank_";
}

// Its name can be foreseen, so others may have put something there: a link to a
// file of this user's, say. That goes, and what is made is new. NULL: errno.
std::FILE *create(const std::string &path)
{
    ::unlink(path.c_str());
    int fd = ::open(path.c_str(),
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? nullptr : ::fdopen(fd, "wb");
}

// Lists of one block per rank, which the analyser wants as one tensor.
bool is_list(c10d::OpType op)
{
    return op == c10d::OpType::ALLGATHER ||
           op == c10d::OpType::REDUCE_SCATTER || op == c10d::OpType::ALLTOALL;
}

List sizes_of(const std::vector<int64_t> &dims, bool as_one)
{
    auto all = new_list();
    int64_t total = 0;
    for (size_t at = 0; at < dims.size(); at += 1 + dims[at]) {
        auto one = new_list();
        int64_t n = 1;
        for (int64_t d = 1; d <= dims[at]; d++) {
            one.push_back(dims[at + d]);
            n *= dims[at + d];
        }
        total += n;
        if (!as_one)
            all.push_back(one);
    }
    if (as_one) {
        auto one = new_list();
        one.push_back(total);
        all.push_back(one);
    }
    return all;
}

List types_of(const std::vector<at::ScalarType> &types, bool as_one)
{
    auto all = new_list();
    for (const auto type : types)
        if (!as_one || all.empty())
            all.push_back(std::string(c10::toString(type)));
    return all;
}

// Messages form a group per direction and tag: there the n-th send meets the n-th
// receive, which is how the analyser pairs what is in one group.
GroupName named(const Event &e)
{
    if (e.other < 0)
        return *e.group;
    const bool is_send = e.op == c10d::OpType::SEND;
    const int from = is_send ? e.rank : e.other,
              to = is_send ? e.other : e.rank;
    const auto &ranks = e.group->ranks;
    return {c10::str(e.group->name, "/", from, "->", to, "#", e.tag),
            e.group->desc,
            {ranks[from], ranks[to]}};
}

std::string title_of(const Event &e)
{
    if (e.other < 0)
        return c10::str("gloo:", names_of(e.op).recorded);
    // Places in the sorted pair.
    const auto &ranks = e.group->ranks;
    const int me = ranks[e.rank] > ranks[e.other], you = !me;
    return e.op == c10d::OpType::SEND ? c10::str("gloo:send ", me, "->", you)
                                      : c10::str("gloo:recv ", me, "<-", you);
}

std::string pickled(const c10::IValue &value)
{
    std::string text;
    torch::jit::Pickler pickler(
        [&](const char *data, size_t n) { text.append(data, n); }, nullptr,
        nullptr, nullptr, nullptr, false);
    pickler.protocol();
    pickler.pushIValue(value);
    pickler.stop();
    return text;
}

// The innermost first. They are told in words here, where the GIL may be taken;
// who writes the file may have locks.
std::vector<Frame> frames_here()
{
    const auto trace = torch::CapturedTraceback::gather(true, false, false);
    const auto told = torch::symbolize({trace.get()});
    std::vector<Frame> frames;
    for (const auto i : told.tracebacks.at(0)) {
        const auto &f = told.all_frames.at(i);
        frames.push_back(
            {f.funcname, f.filename, static_cast<int64_t>(f.lineno)});
    }
    return frames;
}

List list_of(const std::vector<Frame> &frames)
{
    auto all = new_list();
    for (const auto &f : frames) {
        auto one = new_dict();
        one.insert("name", f.name);
        one.insert("filename", f.file);
        one.insert("line", f.line);
        all.push_back(one);
    }
    return all;
}

} // namespace

Recorder &Recorder::get()
{
    // Never destroyed: groups may end after static objects.
    static auto *one = new Recorder();
    return *one;
}

Recorder::Recorder()
{
    const char *size =
        setting({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"});
    const char *dumps = setting({"TORCH_NCCL_DUMP_ON_TIMEOUT"});
    const long n = size ? std::atol(size) : 2000;
    size_ = n > 0 ? static_cast<size_t>(std::min(n, 1000000L)) : 0;
    dumps_ = !dumps ||
             (std::strcmp(dumps, "0") != 0 && std::strcmp(dumps, "false") != 0);
    has_frames_ = c10d::debug_level() != c10d::DebugLevel::Off;
}

void Recorder::Shapes::add(const at::Tensor &t)
{
    const auto sizes = t.sizes();
    dims.push_back(static_cast<int64_t>(sizes.size()));
    dims.insert(dims.end(), sizes.begin(), sizes.end());
    types.push_back(t.scalar_type());
}

void Recorder::Shapes::clear()
{
    dims.clear();
    types.clear();
}

uint64_t Recorder::begin(Event event, const Tensors &inputs,
                         const std::vector<Tensors> &outputs)
{
    auto frames = has_frames_ ? frames_here() : std::vector<Frame>();
    std::lock_guard<std::mutex> guard(lock_);
    const uint64_t id = next_++;
    if (ring_.size() < size_)
        ring_.emplace_back();
    auto &e = ring_[id % size_];
    e.event = std::move(event);
    e.id = id;
    e.created_ns = now_ns();
    e.completed_ns = 0;
    e.has_ended = e.is_well = false;
    e.frames = std::move(frames);
    e.in.clear();
    e.out.clear();
    for (const auto &t : inputs)
        e.in.add(t);
    for (const auto &list : outputs)
        for (const auto &t : list)
            e.out.add(t);
    return id;
}

void Recorder::end(uint64_t id, bool is_well)
{
    std::lock_guard<std::mutex> guard(lock_);
    auto &e = ring_[id % size_];
    if (e.id != id)
        return;
    e.has_ended = true;
    e.is_well = is_well;
    e.completed_ns = now_ns();
    e.event.call.reset();
}

c10::IValue Recorder::entry_of(const Entry &e) const
{
    const auto group = named(e.event);
    const bool is_message = e.event.other >= 0;
    const bool as_one = is_list(e.event.op);
    bool is_well = e.is_well;
    // Done, but nobody has asked yet.
    const auto call = e.has_ended ? nullptr : e.event.call.lock();
    if (call)
        is_well = call->went_well();
    auto d = new_dict();
    d.insert("record_id", static_cast<int64_t>(e.id));
    d.insert("pg_id", int64_t{0});
    d.insert("process_group", std::make_tuple(group.name, group.desc));
    d.insert("collective_seq_id", static_cast<int64_t>(e.event.seq));
    d.insert("p2p_seq_id", static_cast<int64_t>(is_message ? e.event.seq : 0));
    d.insert("op_id", static_cast<int64_t>(e.id));
    d.insert("profiling_name", title_of(e.event));
    d.insert("time_created_ns", e.created_ns);
    d.insert("input_sizes", sizes_of(e.in.dims, as_one));
    d.insert("input_dtypes", types_of(e.in.types, as_one));
    d.insert("output_sizes", sizes_of(e.out.dims, as_one));
    d.insert("output_dtypes", types_of(e.out.types, as_one));
    d.insert("state", std::string(is_well ? "completed" : "started"));
    d.insert("time_discovered_started_ns", e.created_ns);
    d.insert("time_discovered_completed_ns", is_well && e.has_ended
                                                 ? c10::IValue(e.completed_ns)
                                                 : c10::IValue());
    d.insert("retired", e.has_ended);
    d.insert("timeout_ms", e.event.timeout_ms);
    d.insert("is_p2p", is_message);
    d.insert("frames", list_of(e.frames));
    return d;
}

std::string Recorder::text()
{
    std::vector<Entry> entries;
    {
        std::lock_guard<std::mutex> guard(lock_);
        for (size_t i = 0; i < ring_.size(); i++)
            entries.push_back(ring_[(next_ + i) % ring_.size()]);
    }
    auto list = new_list();
    auto groups = new_dict();
    for (const auto &e : entries) {
        const auto group = named(e.event);
        auto g = new_dict();
        g.insert("name", group.name);
        g.insert("desc", group.desc);
        g.insert("ranks", c10::str("[", c10::Join(", ", group.ranks), "]"));
        groups.insert_or_assign(group.name, g);
        list.push_back(entry_of(e));
    }
    auto all = new_dict();
    all.insert("version", std::string("2.10"));
    all.insert("comm_lib_version", c10::str("tutti ", tutti_version()));
    all.insert("pg_config", groups);
    all.insert("pg_status", new_dict());
    all.insert("entries", list);
    return pickled(all);
}

void Recorder::dump(uint64_t rank, const std::string &why)
{
    try {
        const auto bytes = text();
        const auto path = c10::str(prefix_of_file(), rank);
        const auto part = path + ".part";
        std::FILE *file = create(part);
        bool is_well = file != nullptr;
        if (file) {
            is_well = std::fwrite(bytes.data(), 1, bytes.size(), file) ==
                      bytes.size();
            is_well = std::fclose(file) == 0 && is_well;
        }
        is_well = is_well && std::rename(part.c_str(), path.c_str()) == 0;
        LOG(ERROR) << "tutti: " << why << "; "
                   << (is_well ? c10::str("the last calls of rank ", rank,
                                          " are in ", path,
                                          " (torchfrtrace reads those of all "
                                          "ranks)")
                               : c10::str(path, " cannot be written: ",
                                          std::strerror(errno)));
    } catch (const std::exception &e) {
        LOG(ERROR) << "tutti: the flight recorder: " << e.what();
    }
}

// ------------------------------------------------------------------- watch --

Watch &Watch::get()
{
    static Watch *one = [] {
        pthread_atfork(nullptr, nullptr, [] { one = new Watch(); });
        return new Watch();
    }();
    return *one;
}

void Watch::add(Comm *comm)
{
    std::lock_guard<std::mutex> life(life_);
    std::lock_guard<std::mutex> guard(lock_);
    comms_.push_back(comm);
    if (comms_.size() > 1)
        return;
    is_over_ = false;
    thread_ = std::thread([this] { run(); });
}

void Watch::remove(Comm *comm)
{
    std::lock_guard<std::mutex> life(life_);
    {
        std::lock_guard<std::mutex> guard(lock_);
        comms_.erase(std::remove(comms_.begin(), comms_.end(), comm),
                     comms_.end());
        is_over_ = comms_.empty();
    }
    if (!is_over_)
        return;
    changed_.notify_all();
    if (thread_.joinable())
        thread_.join();
}

void Watch::run()
{
    std::unique_lock<std::mutex> guard(lock_);
    while (!is_over_) {
        for (auto *comm : comms_)
            comm->look();
        changed_.wait_for(guard, std::chrono::milliseconds(500));
    }
}

} // namespace tutti_torch
