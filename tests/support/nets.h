/* SPDX-License-Identifier: BSD-3-Clause
 * nets.h - networks for tests of planners: by spec, or random by seed. Every
 * function fails the test when it cannot do what it says. */
#ifndef TT_TESTS_NETS_H
#define TT_TESTS_NETS_H

#include "base/rng.h"
#include "plan/plan.h"

/* A network, its routes, and a problem on it. */
typedef struct tt_net_case {
    tutti_topology *t;
    tt_routes *routes;
    tt_problem p; /* collective, root and size are the caller's */
} tt_net_case;

tt_net_case tt_net_of(const char *spec);
/* Of the text of a topology file. */
tt_net_case tt_net_parse(const char *text);
/* Of n ranks; kind 0: a tree of switches, hosts anywhere; 1: hosts joined
 * directly, with some links more than hold them together; 2: racks whose trunks
 * and NICs differ; 3: a ring of one-way links, and some one-way short cuts. */
#define TT_NET_KINDS 4u
tt_net_case tt_net_random(tt_rng *rng, uint32_t kind, uint32_t n);
void tt_net_free(tt_net_case *c);

/* Builds and proves. */
tutti_schedule *tt_net_plan(const tt_net_case *c, const char *planner,
                            tutti_coll coll, uint32_t root);

#endif
