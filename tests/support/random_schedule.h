/* SPDX-License-Identifier: BSD-3-Clause
 * random_schedule.h - seeded random schedules, all of them right. */
#ifndef TT_TESTS_RANDOM_SCHEDULE_H
#define TT_TESTS_RANDOM_SCHEDULE_H

#include "base/rng.h"
#include "schedule/schedule.h"

/* A random schedule of coll (any that has schedules; a random root) for
 * n_ranks >= 1: random trees in and out with uneven shares, rings in random
 * orders, butterflies, groups of these. Uses tt_mem_std. */
tutti_err tt_random_schedule(tt_rng *rng, tutti_coll coll, uint32_t n_ranks,
                             tutti_schedule **out);

/* Random chunks and random transfers that obey the form (n_transfers at most
 * that many), but hardly ever perform their collective. */
tutti_err tt_random_garbage(tt_rng *rng, tutti_coll coll, uint32_t n_ranks,
                            uint32_t n_transfers, tutti_schedule **out);

#endif
