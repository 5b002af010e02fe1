// SPDX-License-Identifier: BSD-3-Clause
// unit_groups.cpp - all that does not speak to Python, compiled at once: what
// takes long is reading torch's headers.
#define TUTTI_UNSTABLE
#include "comm.cpp"
#include "device.cpp"
#include "group.cpp"
#include "messages.cpp"
#include "moving.cpp"
#include "planned.cpp"
#include "reconfigure.cpp"
#include "recorder.cpp"
#include "reductions.cpp"
#include "runner.cpp"
#include "sparse.cpp"
#include "tensors.cpp"
#include "wayback.cpp"
#include "work.cpp"
