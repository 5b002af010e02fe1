// SPDX-License-Identifier: BSD-3-Clause
// module.cpp - what Python sees: create(), version(), flight_record(), get_error(),
// and what planned.h and partial.h have. tutti/torch/__init__.py registers it with
// torch.distributed.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>

#include "group.h"
#include "partial.h"
#include "planned.h"
#include "runner.h"
#include "wayback.h"

namespace
{

using namespace tutti_torch;

c10::intrusive_ptr<c10d::Backend>
create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
       const Millis &timeout, std::string name, std::vector<uint64_t> ranks,
       const Trust &trust, const Millis &start_at_least, bool is_unmet)
{
    auto options = c10::make_intrusive<c10d::Backend::Options>("tutti",
                                                               timeout);
    return c10::make_intrusive<ProcessGroupTutti>(
        is_unmet
            ? Comm::unmet(rank)
            : Comm::open(store, rank, size, timeout, trust, start_at_least),
        rank, size, options, GroupName{std::move(name), "", std::move(ranks)},
        trust);
}

Door door_of(const std::string &address,
             const std::optional<c10::intrusive_ptr<c10d::Store>> &store,
             const Millis &timeout)
{
    Door door;
    door.address = address;
    if (store)
        door.store = *store;
    door.timeout = timeout;
    return door;
}

// Groups whose members change.
void define_elastic(py::module_ &m)
{
    using MaybeStore = std::optional<c10::intrusive_ptr<c10d::Store>>;
    m.def(
        "shrink",
        [](const BackendPtr &group, const std::vector<int> &exclude,
           bool puts_out) {
            return tutti_of(group).shrink_to_left(exclude, puts_out, nullptr);
        },
        py::arg("group"), py::arg("exclude") = std::vector<int>(),
        py::arg("puts_out") = false,
        "A group of all ranks that are left, and, by new rank, the rank "
        "before.");
    m.def(
        "agree",
        [](const BackendPtr &group, bool mine) {
            return tutti_of(group).agree(mine);
        },
        py::arg("group"), py::arg("mine"),
        "Whether all that are left say so, and have noticed no failure.");
    m.def(
        "has_failed",
        [](const BackendPtr &group) { return tutti_of(group).has_failed(); },
        py::arg("group"), py::call_guard<WithoutGil>(),
        "Also where nobody has called it since.");
    m.def(
        "grow",
        [](const BackendPtr &group, const std::string &address,
           const MaybeStore &store, const Millis &timeout) {
            return tutti_of(group).grow(door_of(address, store, timeout));
        },
        py::arg("group"), py::arg("address") = "",
        py::arg("store") = py::none(), py::arg("timeout") = Millis(0),
        "A larger group or None; and why newcomers were not taken in.");
    m.def(
        "join",
        [](const std::string &address, const MaybeStore &store,
           const Millis &patience, const Millis &timeout, const Trust &trust) {
            return join(door_of(address, store, patience), timeout, trust);
        },
        py::arg("address") = "", py::arg("store") = py::none(),
        py::arg("patience") = Millis(0), py::arg("timeout") = Millis(0),
        py::arg("trust") = Trust(),
        "The group of a job that takes this process in; patience: for that.");
    m.def(
        "handle",
        [](const BackendPtr &group) { return tutti_of(group).handle(); },
        py::arg("group"), py::call_guard<WithoutGil>(), "See reconfigure.cpp.");
    m.def(
        "meet",
        [](const BackendPtr &group, const std::vector<std::string> &handles,
           int64_t number, const Millis &timeout) {
            tutti_of(group).meet(handles, number, timeout);
        },
        py::arg("group"), py::arg("handles"), py::arg("number"),
        py::arg("timeout") = Millis(0),
        "Makes the group anew, of those who have these handles.");
    m.def(
        "set_priority",
        [](const BackendPtr &group, int priority) {
            tutti_of(group).set_priority(priority);
        },
        py::arg("group"), py::arg("priority"), "Of calls to come.");
}

void define_planned(py::module_ &m)
{
    py::class_<Times, std::shared_ptr<Times>>(m, "Times")
        .def_readonly("started", &Times::started)
        .def_property_readonly(
            "finished", [](const Times &t) { return t.finished.load(); });
    m.def(
        "all_reduce",
        [](const BackendPtr &group, const at::Tensor &in, const at::Tensor &out,
           const std::string &planner, int priority, bool average) {
            WithoutGil free;
            return planned_all_reduce(group, in, out,
                                      {planner, priority, average});
        },
        py::arg("group"), py::arg("input"), py::arg("output"),
        py::arg("planner") = "", py::arg("priority") = 0,
        py::arg("average") = false, "See planned.h.");
    const py::call_guard<WithoutGil> no_gil;
    m.def("predict", &predict, py::arg("group"), py::arg("bytes"),
          py::arg("planner") = "", no_gil, "Seconds, and the planner's name.");
    m.def("network", &network, py::arg("group"), no_gil,
          "The group's network in words, and whether it is known.");
    m.def(
        "allocate", [](int64_t bytes) { return allocate(bytes, at::kByte); },
        py::arg("bytes"),
        "A tensor of bytes that ranks of this host read in place.");
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    py::class_<Trust>(m, "Trust")
        .def(py::init<>())
        .def_readwrite("secret_file", &Trust::secret_file)
        .def_readwrite("tls_cert", &Trust::tls_cert)
        .def_readwrite("tls_key", &Trust::tls_key)
        .def_readwrite("tls_ca", &Trust::tls_ca)
        .def_readwrite("tls_crl", &Trust::tls_crl)
        .def_readwrite("encrypt", &Trust::encrypt);
    m.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
          py::arg("timeout"), py::arg("name") = "",
          py::arg("ranks") = std::vector<uint64_t>(),
          py::arg("trust") = Trust(), py::arg("start_at_least") = Millis(10000),
          py::arg("is_unmet") = false, py::call_guard<WithoutGil>(),
          "Meets the other ranks through the store; a process group of tutti. "
          "ranks: its members, as the job numbers them; none: all. is_unmet: "
          "they "
          "meet later, by meet().");
    m.def(
        "flight_record", [] { return py::bytes(Recorder::get().text()); },
        "What this rank has called last, as a pickle for torchfrtrace.");
    m.def(
        "finish",
        [] {
            Runner::get().finish(std::chrono::seconds(5));
            WayBack::close();
        },
        py::call_guard<WithoutGil>(), "Python ends: see runner.h, wayback.h.");
#if TUTTI_TORCH_AT_LEAST(2, 7)
    m.def(
        "get_error", [](const BackendPtr &group) { return group->getError(); },
        py::arg("group"), py::call_guard<WithoutGil>(),
        "torch's ErrorType of a group, which torch itself asks from C++ only.");
#endif
    m.def(
        "failure",
        [](const BackendPtr &group) { return tutti_of(group).failure_text(); },
        py::arg("group"), py::call_guard<WithoutGil>(),
        "What has ended a group, \"\" while it is well; see comm.h.");
    define_elastic(m);
    define_planned(m);
    define_partial(m);
    m.def("version", &tutti_version, "The version of the library.");
}
