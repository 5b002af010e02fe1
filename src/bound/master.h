/* SPDX-License-Identifier: BSD-3-Clause
 * master.h - the linear programme of columns.c: a pool of trees, how much of
 * the data each carries, and the prices of the links that follow from it.
 * Private to src/bound.
 *
 *     maximise   x, the sum over the goals (pricing.h)
 *     so that    each link:  the sum of uses * share * w over the trees
 *                            is at most its rate
 *                each root and side: what its trees w carry together is at
 *                            least x of its goal
 *
 * Rates are in `unit`, near the best x, and each link's row is divided by its
 * rate, so that rows of all kinds are near 1. A link so slow that it cannot
 * matter is forbidden (and its rate added to the bound), one so fast that it
 * can never be full has no row. Next: master.c. */
#ifndef TT_BOUND_MASTER_H
#define TT_BOUND_MASTER_H

#include "bound/lp.h"
#include "bound/pricing.h"

typedef struct tt_pooled {
    uint64_t hash;
    uint32_t root;
    bool is_in;
} tt_pooled;

typedef struct tt_master {
    tt_pricing *net;
    tt_arena *arena; /* of all lists */
    tutti_diag *diag;
    tt_lp *lp;
    double unit;  /* bytes per second */
    double slack; /* rates of the forbidden links together, in units */
    /* Rows: links, then roots, then the sum of the goals. */
    int *link_row;    /* TT_ROW_FREE, TT_ROW_FORBIDDEN */
    int *root_row[2]; /* by side */
    uint32_t n_link_rows, n_rows, n_goals;
    double *limits;
    /* The pool: pooled[i] is column n_goals + i, when it is below n_in_lp, and
     * its tree msg[i * n ..]. */
    tt_pooled *pooled;
    uint32_t *msg;
    size_t n_pooled, n_in_lp, cap_pooled, cap_msg;
    /* The last solution: of each column, n_solved of them trees; of all goals
     * together. */
    double *value;
    size_t n_solved, cap_value;
    double rate;  /* in units */
    double bound; /* the best so far */
    double *best; /* [n_link_rows]: row prices that gave it; sum 1 */
    double *link_price;
    /* Scratch for one column, one tree. */
    int *rows;
    double *values;
    uint32_t *tree;
} tt_master;

#define TT_ROW_FREE -1
#define TT_ROW_FORBIDDEN -2

/* After a failure too, tt_lp_free(m->lp) is due. */
tutti_err tt_master_init(tt_master *m, tt_pricing *net, tt_arena *arena,
                         tutti_diag *diag);

/* A tree for the pool, unless it has it already; m is a tt_master. */
tutti_err tt_master_take(void *m, uint32_t root, bool is_in,
                         const uint32_t *msg);

/* Makes the programme, when a rate is known that is possible. */
tutti_err tt_master_open(tt_master *m, double unit);
/* Solves it with all the pool: value, rate, tt_lp_prices(m->lp). ENOFIT: Clp
 * has given up; value and rate are those of the last time. */
tutti_err tt_master_solve(tt_master *m);
/* Finds every root's cheapest trees at these prices of the link rows, and takes
 * those that improve the last solution. Improves bound. */
tutti_err tt_master_price(tt_master *m, const double *prices);
/* Prices for tt_pricing_find: those that gave the bound. */
void tt_master_best_prices(tt_master *m);
/* Of all solutions by this pool that have this rate: the one whose trees'
 * messages cost least, and among these one with flat trees. */
tutti_err tt_master_prefer(tt_master *m, const double *message_cost);
/* What each message carries in the last solution. */
void tt_master_flow(const tt_master *m, double *flow);
/* What pooled[i] carries in the last solution, in units; of a goal that has
 * shares: this much of its root's share. */
double tt_master_carried(const tt_master *m, size_t i);

#endif
