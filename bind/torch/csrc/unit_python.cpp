// SPDX-License-Identifier: BSD-3-Clause
// unit_python.cpp - what Python sees, compiled at once, as unit_groups.cpp is.
#include "module.cpp"
#include "partial.cpp"
