// SPDX-License-Identifier: BSD-3-Clause
// python.cpp - what Python sees, compiled at once, as groups.cpp is.
#include "../module.cpp"
#include "../partial.cpp"
