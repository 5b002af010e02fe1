/* SPDX-License-Identifier: BSD-3-Clause
 * shares.h - who gets how much of a vector, when not all are equally fast.
 * Private to src/plan. */
#ifndef TT_PLAN_SHARES_H
#define TT_PLAN_SHARES_H

#include "base/mem.h"

/* Member i of n, with share x_i of the vector (sum 1), moves 1 + c * x_i
 * vectors in each direction at rate[i] > 0. Writes the shares that end
 * soonest; returns the time in vectors per unit of rate: the least T such
 * that T * rate[i] >= 1 + c * x_i for all. A share may be 0. Where T leaves
 * the shares open, the members that are not at the limit end as soon as they
 * can, too; where shares do not matter (c = 0) they follow the rates. Equal
 * rates: exactly equal shares. c >= 0, n >= 1. */
double tt_shares_fill(const double *rate, uint32_t n, double c, double *share);

/* Exact integers in place of shares: the least total up to TT_SHARES_EXACT
 * (or n) in which every share is a whole number to 1e-9, else TT_SHARES_FINE,
 * rounded by largest remainder (the first wins a tie). They sum to the total,
 * which is returned; 0: no memory (the arena is for scratch). Shares sum to
 * 1. */
#define TT_SHARES_EXACT 4096u
#define TT_SHARES_FINE (1u << 20)
uint64_t tt_shares_whole(const double *share, uint32_t n, tt_arena *arena,
                         uint64_t *whole);

#endif
