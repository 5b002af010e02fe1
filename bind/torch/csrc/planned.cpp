// SPDX-License-Identifier: BSD-3-Clause
// planned.cpp - see planned.h. Next: tutti/torch/parallel.py, which calls it.
#include "planned.h"

#include <cstring>

#include "parts.h"

namespace tutti_torch
{

namespace
{

// Stand-ins for networks that nobody has described or measured: ranks of one host
// meet in its memory, others behind one switch. The library keeps what it assumes
// there to itself; these are drawn after it: 1 us and 8 GB/s within a host, 25 us
// and 1 GB/s between hosts, half of the latency on each side.
const char *const one_host = "tutti-topology 1\nhost here ranks=%d "
                             "memory=8GB/s,500ns\n";
const char *const one_switch = "star:%d@8Gbit,12500ns";
// What waking those who wait adds to each step between hosts; networks and so
// predictions know no such cost.
constexpr double step_s = 40e-6;

int64_t steady_ns()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void check(tutti_err err, const tutti_diag &diag)
{
    TORCH_CHECK_VALUE(
        !err, "tutti: ", diag.text[0] ? diag.text : tutti_strerror(err));
}

bool is_one_host(const tutti_comm *comm)
{
    for (int r = 0; r < tutti_comm_size(comm); r++) {
        const char *name = tutti_comm_transport(comm, r);
        if (r != tutti_comm_rank(comm) && std::strcmp(name, "shm") != 0)
            return false;
    }
    return true;
}

using Topology =
    std::unique_ptr<tutti_topology, decltype(&tutti_topology_free)>;
using Schedule =
    std::unique_ptr<tutti_schedule, decltype(&tutti_schedule_free)>;

// As TCP's payload sees it; of an unknown network the stand-in.
Topology network_of(const tutti_comm *comm)
{
    tutti_topology *net = nullptr;
    tutti_diag diag{};
    const tutti_topology *known = tutti_comm_topology(comm);
    if (known) {
        check(tutti_topology_payload(known, &net, &diag), diag);
        return {net, tutti_topology_free};
    }
    char text[128];
    std::snprintf(text, sizeof(text), is_one_host(comm) ? one_host : one_switch,
                  tutti_comm_size(comm));
    check(tutti_topology_parse(text, std::strlen(text), &net, &diag), diag);
    return {net, tutti_topology_free};
}

std::tuple<double, std::string> predict_on(const tutti_comm *comm,
                                           const tutti_plan_opts &opts)
{
    const auto net = network_of(comm);
    tutti_schedule *made = nullptr;
    const char *chosen = "";
    tutti_diag diag{};
    check(tutti_comm_plan(comm, &opts, &made, &chosen, &diag), diag);
    const Schedule sched(made, tutti_schedule_free);
    double seconds = 0;
    check(tutti_predict(net.get(), made, &opts, &seconds, &diag), diag);
    tutti_schedule_info info;
    tutti_schedule_describe(made, &info);
    if (!is_one_host(comm))
        seconds += step_s * info.n_steps;
    return {seconds, chosen};
}

} // namespace

std::tuple<WorkPtr, std::shared_ptr<Times>>
planned_all_reduce(const BackendPtr &group, const at::Tensor &input,
                   const at::Tensor &output, const How &how)
{
    return tutti_of(group).all_reduce_planned(input, output, how);
}

std::tuple<WorkPtr, std::shared_ptr<Times>>
ProcessGroupTutti::all_reduce_planned(const at::Tensor &input,
                                      const at::Tensor &output, const How &how)
{
    const char *what = "planned_all_reduce";
    check_tensors(what, {input, output});
    check_on_cpu(what, {input, output});
    check_same_type(what, input, output);
    if (!input.is_non_overlapping_and_dense() || !output.is_contiguous() ||
        input.numel() != output.numel())
        complain(what)("the input must be dense, the output contiguous and of "
                       "the same size");
    auto times = std::make_shared<Times>();
    const c10d::ReduceOp op(how.average ? c10d::ReduceOp::AVG
                                        : c10d::ReduceOp::SUM);
    const auto e = to_reduce(output, op);
    const auto n = count_of(output, e);
    auto work = start_alone(
        {OpType::ALLREDUCE, kNoTimeout, false, {input}, {{output}}},
        [&](Call &call, tutti_call_opts o) {
            o.priority = how.priority;
            o.planner = how.planner.empty() ? nullptr : how.planner.c_str();
            times->started = steady_ns();
            call.add(
                o,
                [&](auto *c, auto *p, auto **req) {
                    return tutti_all_reduce(c, input.data_ptr(),
                                            output.data_ptr(), n, e.type,
                                            op_of(op), p, req);
                },
                {input, output}, [times] { times->finished = steady_ns(); });
        });
    // With a future it is settled at once when it is over, whoever waits.
    work->getFuture();
    return {work, times};
}

std::tuple<double, std::string> predict(const BackendPtr &group, int64_t bytes,
                                        const std::string &planner)
{
    std::tuple<double, std::string> found;
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    opts.size_bytes = static_cast<uint64_t>(std::max<int64_t>(bytes, 1));
    opts.planner = planner.empty() ? nullptr : planner.c_str();
    tutti_of(group).with_comm("prediction", [&](tutti_comm *comm) {
        found = tutti_comm_size(comm) > 1
                    ? predict_on(comm, opts)
                    : std::tuple<double, std::string>(0, "none");
    });
    return found;
}

std::tuple<std::string, bool> network(const BackendPtr &group)
{
    std::tuple<std::string, bool> found;
    tutti_of(group).with_comm("network", [&](tutti_comm *comm) {
        const int n = tutti_comm_size(comm);
        const bool known = tutti_comm_topology(comm) != nullptr;
        const bool here = is_one_host(comm);
        found = {c10::str(n, n == 1 ? " rank" : " ranks",
                          here    ? " of one host"
                          : known ? " on the network that TUTTI_TOPOLOGY names"
                                  : " on several hosts, network not known "
                                    "(TUTTI_TOPOLOGY=auto measures it)"),
                 known};
    });
    return found;
}

} // namespace tutti_torch
