/* SPDX-License-Identifier: BSD-3-Clause
 * lp.c - linear programmes by COIN-OR's Clp; the one file that knows it.
 *
 * Idea       Columns come in batches between solves. They are gathered here and
 *            handed over together, because Clp copies its matrix on every
 *            addition; the primal simplex method then goes on from the last
 *            basis, which is still feasible: more columns cannot hurt a row.
 * Exactness  Clp minimises, so costs change sign on the way in and prices on
 *            the way out. No time limits, no random numbers but its own with a
 *            fixed start: the same calls give the same bits.
 * Memory     What is gathered is ours. What Clp holds is its own, and
 *            out of memory inside Clp ends the process: it is C++.
 * Next       columns.c (what it is used for). */
#include "bound/lp.h"

#if TT_HAVE_CLP

/* Its header is not as clean as ours must be. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <Clp_C_Interface.h>
#pragma GCC diagnostic pop

#include <float.h>

/* Of a row, which is scaled to a limit near 1, and of a reduced cost. */
#define TOLERANCE 1e-9

struct tt_lp {
    tt_arena *arena;
    Clp_Simplex *clp;
    uint32_t n_rows;
    double *prices;
    /* Columns gathered since the last solve; column i has items starts[i] ..
     * starts[i + 1] - 1. */
    uint32_t n_new;
    size_t n_items;
    CoinBigIndex *starts;
    double *costs;
    int *rows;
    double *values;
    size_t cap_starts, cap_costs, cap_rows, cap_values;
};

bool tt_lp_is_there(void)
{
    return true;
}

void tt_lp_free(tt_lp *lp)
{
    if (lp)
        Clp_deleteModel(lp->clp);
}

tutti_err tt_lp_create(tt_arena *arena, uint32_t n_rows, const double *limits,
                       tt_lp **out, tutti_diag *diag)
{
    tt_lp *lp = tt_arena_new(arena, 1, sizeof(*lp));
    double *prices = tt_arena_new(arena, n_rows, sizeof(*prices));
    if (arena->err)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for a linear programme");
    *lp = (tt_lp){.arena = arena, .n_rows = n_rows, .prices = prices};
    lp->clp = Clp_newModel();
    Clp_setLogLevel(lp->clp, 0);
    Clp_setPrimalTolerance(lp->clp, TOLERANCE);
    Clp_setDualTolerance(lp->clp, TOLERANCE);
    Clp_resize(lp->clp, (int)n_rows, 0);
    tt_lp_limits(lp, limits);
    *out = lp;
    return TUTTI_OK;
}

tutti_err tt_lp_add(tt_lp *lp, const tt_lp_column *column)
{
    tt_arena *a = lp->arena;
    size_t need = lp->n_items + column->n;
    lp->starts = tt_arena_grow(a, lp->starts, &lp->cap_starts,
                               (size_t)lp->n_new + 2, sizeof(*lp->starts));
    lp->costs = tt_arena_grow(a, lp->costs, &lp->cap_costs,
                              (size_t)lp->n_new + 1, sizeof(*lp->costs));
    lp->rows = tt_arena_grow(a, lp->rows, &lp->cap_rows, need,
                             sizeof(*lp->rows));
    lp->values = tt_arena_grow(a, lp->values, &lp->cap_values, need,
                               sizeof(*lp->values));
    if (a->err)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < column->n; i++) {
        lp->rows[lp->n_items + i] = column->rows[i];
        lp->values[lp->n_items + i] = column->values[i];
    }
    lp->n_items = need;
    lp->costs[lp->n_new] = -column->cost;
    lp->n_new++;
    lp->starts[lp->n_new] = (CoinBigIndex)need;
    return TUTTI_OK;
}

static void hand_over(tt_lp *lp)
{
    if (lp->n_new == 0)
        return;
    Clp_addColumns(lp->clp, (int)lp->n_new, NULL, NULL, lp->costs, lp->starts,
                   lp->rows, lp->values);
    lp->n_new = 0;
    lp->n_items = 0;
}

void tt_lp_costs(tt_lp *lp, const double *costs)
{
    hand_over(lp);
    double *own = Clp_objective(lp->clp);
    int n = Clp_getNumCols(lp->clp);
    for (int i = 0; i < n; i++)
        own[i] = -costs[i];
    Clp_chgObjCoefficients(lp->clp, own);
}

void tt_lp_limits(tt_lp *lp, const double *limits)
{
    Clp_chgRowUpper(lp->clp, limits);
    double *lower = Clp_rowLower(lp->clp);
    for (uint32_t i = 0; i < lp->n_rows; i++)
        lower[i] = -DBL_MAX;
}

tutti_err tt_lp_solve(tt_lp *lp, tutti_diag *diag)
{
    hand_over(lp);
    Clp_primal(lp->clp, 0);
    if (!Clp_isProvenOptimal(lp->clp)) {
        /* Once more from nothing: the old basis may have become singular. */
        Clp_initialSolve(lp->clp);
        if (!Clp_isProvenOptimal(lp->clp))
            return tt_fail(diag, TUTTI_ENOFIT,
                           "the linear programme of %u rows and %d columns "
                           "defeats Clp (status %d)",
                           lp->n_rows, Clp_getNumCols(lp->clp),
                           Clp_status(lp->clp));
    }
    const double *dual = Clp_getRowPrice(lp->clp);
    for (uint32_t i = 0; i < lp->n_rows; i++)
        lp->prices[i] = dual[i] < 0 ? -dual[i] : 0;
    return TUTTI_OK;
}

const double *tt_lp_values(const tt_lp *lp)
{
    return Clp_getColSolution(lp->clp);
}

const double *tt_lp_prices(const tt_lp *lp)
{
    return lp->prices;
}

#else

bool tt_lp_is_there(void)
{
    return false;
}

tutti_err tt_lp_create(tt_arena *arena, uint32_t n_rows, const double *limits,
                       tt_lp **out, tutti_diag *diag)
{
    (void)arena;
    (void)n_rows;
    (void)limits;
    (void)out;
    return tt_fail(diag, TUTTI_ENOFIT,
                   "built without Clp, the library for linear programmes");
}

/* Nobody has one, so nobody calls these. */
void tt_lp_free(tt_lp *lp)
{
    (void)lp;
}

tutti_err tt_lp_add(tt_lp *lp, const tt_lp_column *column)
{
    (void)lp;
    (void)column;
    return TUTTI_ENOFIT;
}

void tt_lp_costs(tt_lp *lp, const double *costs)
{
    (void)lp;
    (void)costs;
}

void tt_lp_limits(tt_lp *lp, const double *limits)
{
    (void)lp;
    (void)limits;
}

tutti_err tt_lp_solve(tt_lp *lp, tutti_diag *diag)
{
    (void)lp;
    return tt_fail(diag, TUTTI_ENOFIT,
                   "built without Clp, the library for linear programmes");
}

const double *tt_lp_values(const tt_lp *lp)
{
    (void)lp;
    return NULL;
}

const double *tt_lp_prices(const tt_lp *lp)
{
    (void)lp;
    return NULL;
}

#endif
