// SPDX-License-Identifier: BSD-3-Clause
// module.cpp - what Python sees: create(), version(). tutti/torch/__init__.py
// registers it with torch.distributed.
#include <torch/extension.h>

#include <pybind11/chrono.h>

#include "group.h"

namespace
{

using namespace tutti_torch;

c10::intrusive_ptr<c10d::Backend>
create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
       const std::chrono::milliseconds &timeout)
{
    auto options = c10::make_intrusive<c10d::Backend::Options>("tutti",
                                                               timeout);
    return c10::make_intrusive<ProcessGroupTutti>(store, rank, size, options);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
          py::arg("timeout"), py::call_guard<py::gil_scoped_release>(),
          "Meets the other ranks through the store; a process group of tutti.");
    m.def("version", &tutti_version, "The version of the library.");
}
