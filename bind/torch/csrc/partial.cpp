// SPDX-License-Identifier: BSD-3-Clause
// partial.cpp - see partial.h. Next: tutti/torch/partial.py, which calls it.
#include "partial.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include "group.h"
#include "parts.h"
#include "wayback.h"

namespace tutti_torch
{

namespace
{

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

void check(tutti_err err)
{
    TORCH_CHECK(!err, "tutti: ",
                tutti_last_message()[0] ? tutti_last_message()
                                        : tutti_strerror(err));
}

// The options of tutti.h, with the texts that they point to.
struct Options {
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    std::string log, planner;
    Trust trust;

    const tutti_partial_opts *get()
    {
        o.log = log.empty() ? nullptr : log.c_str();
        o.planner = planner.empty() ? nullptr : planner.c_str();
        o.trust = trust.get();
        return &o;
    }
};

struct Session {
    tutti_partial *p = nullptr;

    ~Session()
    {
        tutti_partial_close(p);
    }
};

using SessionPtr = std::shared_ptr<Session>;

// An announcement, or a commit. It may outlive the session, which ends it.
class Request
{
  public:
    Request() = default;
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;
    ~Request()
    {
        tutti_request_free(req_);
    }

    void take(tutti_err err, tutti_request *req)
    {
        err_ = err;
        req_ = req;
    }
    bool is_over() const
    {
        return !req_ || tutti_test(req_) != TUTTI_AGAIN;
    }
    // Whether it is over within that time.
    bool wait_for(double seconds)
    {
        int fd = -1;
        if (is_over() || tutti_request_fd(req_, &fd))
            return true; // wait() tells
        pollfd p{fd, POLLIN, 0};
        ::poll(&p, 1, static_cast<int>(seconds * 1000));
        return is_over();
    }
    int wait()
    {
        if (req_)
            err_ = tutti_wait(req_);
        req_ = nullptr;
        return err_;
    }

  private:
    tutti_request *req_ = nullptr;
    tutti_err err_ = TUTTI_OK;
};

using RequestPtr = std::shared_ptr<Request>;

// The session may be closed while another thread is in a call: that one keeps it.
class Partial
{
  public:
    explicit Partial(SessionPtr s) : session_(std::move(s))
    {
    }

    RequestPtr announce(uint64_t iteration, bool is_last)
    {
        const auto session = open();
        auto made = std::make_shared<Request>();
        tutti_request *req = nullptr;
        const tutti_err err = tutti_partial_announce(session->p, iteration,
                                                     is_last, nullptr, &req);
        if (!err)
            keep(nullptr);
        made->take(err, req);
        return made;
    }
    // The bucket is on its way, and lost if the group breaks; how that ends the
    // commit says.
    int reduce(const at::Tensor &t)
    {
        TORCH_CHECK_VALUE(t.is_cpu() && t.is_contiguous(),
                          "tutti: a bucket is a contiguous tensor on the CPU");
        const auto session = open();
        const auto e = to_reduce(t, c10d::ReduceOp(c10d::ReduceOp::AVG));
        const auto n = count_of(t, e);
        tutti_request *req = nullptr;
        tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
        opts.is_scratch = true; // tensors are copies of the weights
        keep(&t);
        const tutti_err err = tutti_partial_reduce(session->p, t.data_ptr(), n,
                                                   e.type, &opts, &req);
        tutti_request_free(req);
        return err;
    }
    RequestPtr commit()
    {
        const auto session = open();
        auto made = std::make_shared<Request>();
        tutti_request *req = nullptr;
        const tutti_err err = tutti_partial_commit(session->p, nullptr, &req);
        made->take(err, req);
        return made;
    }
    // An error, and what differs between a newcomer and the one that it has the
    // model of; "": nothing, or nobody compares.
    std::pair<int, std::string> compare(const std::vector<std::string> &names,
                                        const Tensors &tensors)
    {
        const auto session = open();
        tutti_difference d = TUTTI_DIFFERENCE_INIT;
        std::vector<tutti_shared> shared;
        TORCH_CHECK_VALUE(names.size() == tensors.size(),
                          "tutti: as many names as tensors");
        for (size_t i = 0; i < names.size(); i++) {
            TORCH_CHECK_VALUE(tensors[i].is_cpu() && tensors[i].is_contiguous(),
                              "tutti: contiguous tensors on the CPU");
            shared.push_back(
                {names[i].c_str(), tensors[i].data_ptr(), tensors[i].nbytes()});
        }
        const tutti_err err = tutti_partial_compare(session->p, shared.data(),
                                                    shared.size(), &d);
        if ((err == TUTTI_EPEER || err == TUTTI_ETIMEOUT) &&
            !tutti_partial_state(session->p))
            return {TUTTI_OK, ""};
        return {err, d.text};
    }
    void abandon(const std::string &why)
    {
        const auto session = open();
        tutti_partial_abandon(session->p, why.c_str());
    }
    void leave()
    {
        tutti_partial_leave(open()->p);
    }
    int rejoin(bool is_current)
    {
        return tutti_partial_rejoin(open()->p, is_current);
    }
    int state()
    {
        return tutti_partial_state(open()->p);
    }
    std::string message()
    {
        return tutti_partial_message(open()->p);
    }
    void close()
    {
        SessionPtr last;
        {
            const std::lock_guard<std::mutex> lock(lock_);
            last = std::move(session_);
            session_ = nullptr;
        }
        if (last) // who waits for something keeps it a while
            tutti_partial_leave(last->p);
        last = nullptr;
        keep(nullptr);
    }
    SessionPtr open()
    {
        const std::lock_guard<std::mutex> lock(lock_);
        TORCH_CHECK(session_ && session_->p,
                    "tutti: this partial reduce is closed");
        return session_;
    }

  private:
    // What the library writes at a commit lives until the next announcement.
    void keep(const at::Tensor *t)
    {
        Tensors gone; // without the lock: they may ask for the GIL
        const std::lock_guard<std::mutex> lock(lock_);
        if (t)
            kept_.push_back(*t);
        else
            gone.swap(kept_);
    }
    std::mutex lock_;
    Tensors kept_; // longer than the session, which may be writing them
    SessionPtr session_;
};

using PartialPtr = std::shared_ptr<Partial>;

PartialPtr open_partial(const BackendPtr &group, Options &options)
{
    auto session = std::make_shared<Session>();
    tutti_err err = TUTTI_OK;
    tutti_of(group).with_comm("partial reduce", [&](tutti_comm *comm) {
        err = tutti_partial_open(comm, options.get(), &session->p);
    });
    check(err);
    return std::make_shared<Partial>(session);
}

PartialPtr join_partial(const std::string &where, int worker, Options &options)
{
    auto session = std::make_shared<Session>();
    check(tutti_partial_join(where.empty() ? nullptr : where.c_str(), worker,
                             options.get(), &session->p));
    return std::make_shared<Partial>(session);
}

py::dict describe(Partial &self)
{
    tutti_partial_info info;
    tutti_partial_describe(self.open()->p, &info);
    py::dict d;
    d["worker"] = info.worker;
    d["n_workers"] = info.n_workers;
    d["incarnation"] = info.incarnation;
    d["is_newcomer"] = info.is_newcomer;
    d["is_dynamic"] = info.is_dynamic;
    d["has_controller"] = info.has_controller;
    d["n_groups"] = info.n_groups;
    d["n_broken"] = info.n_broken;
    return d;
}

py::object group_of(Partial &self)
{
    tutti_partial_group g;
    const auto session = self.open();
    if (tutti_partial_group_of(session->p, &g))
        return py::none();
    py::list members;
    for (uint32_t i = 0; i < g.n; i++) {
        const auto &m = g.members[i];
        members.append(
            py::make_tuple(m.worker, m.incarnation, m.iteration, m.weight));
    }
    py::dict d;
    d["id"] = g.id;
    d["kind"] = tutti_group_kind_name(g.kind);
    d["rank"] = g.rank;
    d["is_even"] = g.is_even;
    d["iteration"] = g.iteration;
    d["members"] = members;
    return d;
}

template <typename OfSize>
py::dict metrics_of(const tutti_partial_metrics &m, OfSize n_of_size)
{
    py::dict d, kinds, sizes;
    for (uint32_t size = 1; size <= m.n_workers; size++)
        if (const uint64_t n = n_of_size(size))
            sizes[py::int_(size)] = n;
    d["sizes"] = sizes;
    for (int k = 0; k < TUTTI_GROUP_KIND_COUNT; k++)
        kinds[tutti_group_kind_name(static_cast<tutti_group_kind>(k))] =
            m.n_kind[k];
    d["workers"] = m.n_workers;
    d["alive"] = m.n_alive;
    d["group_size"] = m.group_size;
    d["window"] = m.window;
    d["components"] = m.n_components;
    d["most_components"] = m.most_components;
    d["groups"] = m.n_groups;
    d["mean_size"] = m.n_groups ? double(m.n_members) / double(m.n_groups) : 0;
    d["broken"] = m.n_broken;
    d["frozen"] = m.n_frozen;
    d["holds"] = m.n_holds;
    d["late"] = m.n_late;
    d["kinds"] = kinds;
    d["joins"] = m.n_joins;
    d["leaves"] = m.n_leaves;
    d["deaths"] = m.n_deaths;
    d["staleness"] = std::vector<uint64_t>(m.staleness,
                                           m.staleness + TUTTI_STALENESS_BINS);
    d["mean_staleness"] = m.mean_staleness;
    d["spectral_gap"] = m.spectral_gap;
    d["random_gap"] = m.random_gap;
    d["soft_wait_s"] = m.soft_wait_s;
    return d;
}

py::object measure(Partial &self)
{
    tutti_partial_metrics m;
    const auto session = self.open();
    if (tutti_partial_measure(session->p, &m))
        return py::none();
    return metrics_of(m, [&](uint32_t size) {
        return tutti_partial_n_of_size(session->p, size);
    });
}

class Controller
{
  public:
    Controller(const std::string &listen, uint32_t n, Options &options)
    {
        check(tutti_controller_open(listen.empty() ? nullptr : listen.c_str(),
                                    n, options.get(), &c_));
    }
    Controller(const Controller &) = delete;
    Controller &operator=(const Controller &) = delete;
    ~Controller()
    {
        tutti_controller_close(c_);
    }
    void close()
    {
        tutti_controller_close(c_);
        c_ = nullptr;
    }
    bool wait(double seconds)
    {
        return tutti_controller_wait(open(), seconds) == TUTTI_OK;
    }
    tutti_controller *open()
    {
        TORCH_CHECK(c_, "tutti: this controller is closed");
        return c_;
    }

  private:
    tutti_controller *c_ = nullptr;
};

void define_options(py::module_ &m)
{
    py::class_<Options> c(m, "PartialOptions");
    c.def(py::init<>())
        .def_readwrite("log", &Options::log)
        .def_readwrite("planner", &Options::planner)
        .def_readwrite("trust", &Options::trust);
#define TT_FIELD(name, type)                              \
    c.def_property(                                       \
        #name, [](const Options &o) { return o.o.name; }, \
        [](Options &o, type v) { o.o.name = v; })
    TT_FIELD(group_size, int);
    TT_FIELD(min_group, int);
    TT_FIELD(history, int);
    TT_FIELD(is_dynamic, bool);
    TT_FIELD(decay, double);
    TT_FIELD(max_wait_s, double);
    TT_FIELD(soft_wait_s, double);
    TT_FIELD(join_wait_s, double);
    TT_FIELD(recentre_every, int);
    TT_FIELD(max_workers, int);
    TT_FIELD(end_wait_s, double);
    TT_FIELD(start_wait_s, double);
    TT_FIELD(liveness_s, double);
    TT_FIELD(timeout_s, double);
    TT_FIELD(is_current, bool);
    TT_FIELD(goes_ahead, bool);
#undef TT_FIELD
}

void define_controller(py::module_ &m)
{
    const py::call_guard<WithoutGil> no_gil;
    py::class_<Controller>(m, "Controller")
        .def(py::init<const std::string &, uint32_t, Options &>(), no_gil)
        .def_property_readonly(
            "port",
            [](Controller &c) { return tutti_controller_port(c.open()); })
        .def("metrics",
             [](Controller &c) {
                 tutti_partial_metrics m;
                 tutti_controller_measure(c.open(), &m);
                 return metrics_of(m, [&](uint32_t size) {
                     return tutti_controller_n_of_size(c.open(), size);
                 });
             })
        .def("wait", &Controller::wait, no_gil)
        .def("close", &Controller::close, no_gil);
}

} // namespace

void define_partial(py::module_ &m)
{
    const py::call_guard<WithoutGil> no_gil;
    define_options(m);
    define_controller(m);
    py::class_<Request, RequestPtr>(m, "PartialRequest")
        .def("wait", &Request::wait, no_gil)
        .def("wait_for", &Request::wait_for, no_gil)
        .def("is_over", &Request::is_over);
    py::class_<Partial, PartialPtr>(m, "Partial")
        .def("announce", &Partial::announce, no_gil)
        .def("reduce", &Partial::reduce, no_gil)
        .def("commit", &Partial::commit, no_gil)
        .def("compare", &Partial::compare, no_gil)
        .def("abandon", &Partial::abandon, no_gil)
        .def("leave", &Partial::leave, no_gil)
        .def("rejoin", &Partial::rejoin, no_gil)
        .def("state", &Partial::state)
        .def("message", &Partial::message)
        .def("close", &Partial::close, no_gil)
        .def("describe", &describe)
        .def("group", &group_of)
        .def("metrics", &measure);
    m.def("partial_open", &open_partial, no_gil);
    m.def("partial_join", &join_partial, no_gil);
    m.attr("EMISMATCH") = static_cast<int>(TUTTI_EMISMATCH);
    m.def("strerror",
          [](int err) { return tutti_strerror(static_cast<tutti_err>(err)); });
}

} // namespace tutti_torch
