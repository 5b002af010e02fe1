/* SPDX-License-Identifier: BSD-3-Clause
 * random_network.h - networks of every sort: hosts of one and of many ranks,
 * switches, parallel and one-way links, ranks in any order; hosts that do not
 * forward. */
#ifndef TT_TESTS_RANDOM_NETWORK_H
#define TT_TESTS_RANDOM_NETWORK_H

#include "base/rng.h"
#include "topology/topology.h"

/* Up to `most` nodes (at least 3), connected. The caller frees it. */
tutti_topology *tt_random_network(const tt_mem *mem, tt_rng *rng,
                                  uint32_t most);

#endif
