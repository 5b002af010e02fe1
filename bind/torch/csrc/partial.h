// SPDX-License-Identifier: BSD-3-Clause
// partial.h - partial reduce of tutti.h for tutti/torch/partial.py, call by
// call: no rule and no policy here.
//
// Errors that a training loop lives through (a broken group) are numbers, as in
// tutti.h; what it cannot begin throws, with the library's sentence.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace tutti_torch
{

void define_partial(py::module_ &m);

} // namespace tutti_torch
