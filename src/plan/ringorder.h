/* SPDX-License-Identifier: BSD-3-Clause
 * ringorder.h - in which order ranks sit around a ring. Private to src/plan. */
#ifndef TT_PLAN_RINGORDER_H
#define TT_PLAN_RINGORDER_H

#include "plan/plan.h"

/* Rank at[i] sits at place i, rank r at place[r]; place n - 1 is next to
 * place 0. */
typedef struct tt_ring {
    uint32_t n;
    uint32_t *at, *place;
} tt_ring;

/* An order in which the busiest link is as little busy as we can make it; on a
 * flat network 0, 1, 2, ... is_both: data goes round in both directions, half
 * of it each way. The arrays are the arena's. Errors: ENOMEM. */
tutti_err tt_ringorder_find(const tt_problem *p, bool is_both, tt_arena *arena,
                            tt_ring *out);

/* ringorder_grid.c. Once through every point of a grid and back, neighbour by
 * neighbour where that can be. Points are numbered row by row (the last
 * coordinate runs fastest); there are at most TT_MAX_DIMS dimensions. Where all
 * sides are odd and nothing wraps, one hop must go over two links, from the
 * last point to the first; is_crossing: both directions of that hop pass
 * through the middle of the grid and take nothing from other hops (false is
 * returned where there is no such tour). tour and spare have room for all
 * points. */
bool tt_ringorder_grid(const tt_grid *grid, bool is_crossing, uint32_t *tour,
                       uint32_t *spare);

#endif
