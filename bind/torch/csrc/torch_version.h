// SPDX-License-Identifier: BSD-3-Clause
// torch_version.h - which torch this is compiled against: 2.4 or later. Where
// something came later than 2.4, the code asks for it; tools/torch-compat compiles
// it all against the headers of each version.
#pragma once

#include <torch/version.h>

#define TUTTI_TORCH_AT_LEAST(major, minor) \
    (TORCH_VERSION_MAJOR > (major) ||      \
     (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))
