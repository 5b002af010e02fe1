/* SPDX-License-Identifier: BSD-3-Clause
 * lp.h - a linear programme that grows column by column: maximise the sum of
 * cost * x, x >= 0, so that each row's sum of value * x is at most its limit.
 * Private to src/bound; lp.c is the one file that knows the library. */
#ifndef TT_BOUND_LP_H
#define TT_BOUND_LP_H

#include "base/mem.h"

typedef struct tt_lp tt_lp;

typedef struct tt_lp_column {
    double cost;
    uint32_t n;
    const int *rows; /* ascending */
    const double *values;
} tt_lp_column;

bool tt_lp_is_there(void);

/* limits: [n_rows]. All but what the library holds is the arena's. Errors:
 * ENOFIT
 * (built without the library), ENOMEM. */
tutti_err tt_lp_create(tt_arena *arena, uint32_t n_rows, const double *limits,
                       tt_lp **out, tutti_diag *diag);
void tt_lp_free(tt_lp *lp); /* accepts NULL */

/* Columns are numbered as added. Errors: ENOMEM. */
tutti_err tt_lp_add(tt_lp *lp, const tt_lp_column *column);
/* A new cost of every column. */
void tt_lp_costs(tt_lp *lp, const double *costs);
/* A new limit of every row. */
void tt_lp_limits(tt_lp *lp, const double *limits);

/* Goes on from the last solution. Errors: ENOFIT when the library gives up
 * (then the last solution, if any, is no longer to be had). */
tutti_err tt_lp_solve(tt_lp *lp, tutti_diag *diag);
/* Of the last solution; valid until the next call of anything else. */
const double *tt_lp_values(const tt_lp *lp); /* of the columns */
const double *tt_lp_prices(const tt_lp *lp); /* of the rows, >= 0 */

#endif
