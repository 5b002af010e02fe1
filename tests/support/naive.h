/* SPDX-License-Identifier: BSD-3-Clause
 * naive.h - performs a schedule on random numbers, in the most literal way,
 * and says whether the outcome is right. It shares no code with the verifier,
 * nor the library's table of collectives, and must always agree with it. */
#ifndef TT_TESTS_NAIVE_H
#define TT_TESTS_NAIVE_H

#include "schedule/schedule.h"

/* true: every rule was kept and every rank ends with the right sums. Else
 * *why is a few words, static. For small schedules: memory and time are
 * n_ranks^2 * n_chunks. */
bool tt_naive_is_right(const tutti_schedule *s, uint64_t seed,
                       const char **why);

#endif
