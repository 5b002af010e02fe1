/* SPDX-License-Identifier: BSD-3-Clause
 * master.c - the linear programme of column generation; master.h writes it
 * down.
 *
 * Why in-trees and out-trees are columns of their own, and not pairs of them:
 * k in-trees and k out-trees of a root make k * k pairs, all of which the
 * programme can mix without having been shown one of them. The rows of the
 * roots cost little, and a few rounds take the place of a hundred.
 * Next: lp.c (who solves it), columns.c (who asks). */
#include "bound/master.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

/* Links that carry less than this share of the best rate, all of them
 * together, are not used. */
#define NEGLIGIBLE 1e-8
/* A column must improve the solution by more than the tolerance of lp.c. */
#define IMPROVES 2e-9
/* How far the rate may fall for trees that are otherwise better: as far as a
 * few rows' tolerances can add up, or there is no solution. */
#define FALLS 1e-7
/* What a hop of depth costs, against a message of a tree. */
#define DEPTH 1e-4

tutti_err tt_master_init(tt_master *m, tt_pricing *net, tt_arena *arena,
                         tutti_diag *diag)
{
    size_t n = net->n;
    size_t n_links = net->n_links;
    size_t n_rows = n_links + 2 * n + 1;
    *m = (tt_master){
        .net = net,
        .arena = arena,
        .diag = diag,
        .bound = INFINITY,
        .link_row = tt_arena_new(arena, n_links, sizeof(*m->link_row)),
        .root_row[0] = tt_arena_new(arena, n, sizeof(*m->root_row[0])),
        .root_row[1] = tt_arena_new(arena, n, sizeof(*m->root_row[1])),
        .limits = tt_arena_new(arena, n_rows, sizeof(*m->limits)),
        .best = tt_arena_new(arena, n_links, sizeof(*m->best)),
        .link_price = tt_arena_new(arena, n_links, sizeof(*m->link_price)),
        .rows = tt_arena_new(arena, n_rows, sizeof(*m->rows)),
        .values = tt_arena_new(arena, n_rows, sizeof(*m->values)),
        .tree = tt_arena_new(arena, n, sizeof(*m->tree)),
    };
    return arena->err;
}

tutti_err tt_master_take(void *ctx, uint32_t root, bool is_in,
                         const uint32_t *msg)
{
    tt_master *m = ctx;
    size_t n = m->net->n;
    uint64_t hash = tt_fnv1a(TT_FNV1A_START, msg, n * sizeof(*msg));
    for (size_t i = 0; i < m->n_pooled; i++) {
        const tt_pooled *p = &m->pooled[i];
        if (p->hash == hash && p->root == root && p->is_in == is_in)
            return TUTTI_OK;
    }
    m->pooled = tt_arena_grow(m->arena, m->pooled, &m->cap_pooled,
                              m->n_pooled + 1, sizeof(*m->pooled));
    m->msg = tt_arena_grow(m->arena, m->msg, &m->cap_msg, (m->n_pooled + 1) * n,
                           sizeof(*m->msg));
    if (m->arena->err)
        return TUTTI_ENOMEM;
    memcpy(m->msg + m->n_pooled * n, msg, n * sizeof(*msg));
    m->pooled[m->n_pooled++] =
        (tt_pooled){.hash = hash, .root = root, .is_in = is_in};
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- rows -- */

/* A tree pair uses a link at most 2n times, and the rate is at most what one
 * rank's links take in, so far above `unit` only where unit is poor. */
static void lay_rows(tt_master *m)
{
    const tt_pricing *net = m->net;
    double slow = NEGLIGIBLE * m->unit / net->n_links;
    double fast = m->unit / NEGLIGIBLE * net->n;
    uint32_t row = 0;
    for (uint32_t e = 0; e < net->n_links; e++) {
        m->link_row[e] = TT_ROW_FREE;
        if (net->rate[e] < slow) {
            m->link_row[e] = TT_ROW_FORBIDDEN;
            m->slack += net->rate[e] / m->unit;
        } else if (net->rate[e] < fast) {
            m->limits[row] = 1;
            m->link_row[e] = (int)row++;
        }
    }
    m->n_link_rows = row;
    for (uint32_t i = 0; i < net->n_roots; i++) {
        for (int side = net->first_side; side <= net->last_side; side++)
            m->root_row[side][net->roots[i]] = (int)row++;
    }
    m->n_rows = row + 1;
}

static bool is_forbidden(tt_master *m, const uint32_t *msg)
{
    uint32_t n_used = tt_pricing_load(m->net, msg);
    bool is = false;
    for (uint32_t k = 0; k < n_used; k++)
        is = is || m->link_row[m->net->used[k]] == TT_ROW_FORBIDDEN;
    tt_pricing_unload(m->net, n_used);
    return is;
}

/* Trees were taken before anybody knew which links are forbidden. */
static void weed(tt_master *m)
{
    size_t n = m->net->n;
    size_t kept = 0;
    for (size_t i = 0; i < m->n_pooled; i++) {
        if (is_forbidden(m, m->msg + i * n))
            continue;
        m->pooled[kept] = m->pooled[i];
        memmove(m->msg + kept * n, m->msg + i * n, n * sizeof(*m->msg));
        kept++;
    }
    m->n_pooled = kept;
}

/* The goal of `root`; TT_NONE: of all together. */
static tutti_err add_goal(tt_master *m, uint32_t root)
{
    const tt_pricing *net = m->net;
    uint32_t n = 0;
    for (uint32_t i = 0; i < net->n_roots; i++) {
        uint32_t r = net->roots[i];
        if (root != TT_NONE && r != root)
            continue;
        for (int side = net->first_side; side <= net->last_side; side++) {
            m->rows[n] = m->root_row[side][r];
            m->values[n++] = 1;
        }
    }
    m->rows[n] = (int)m->n_rows - 1;
    m->values[n++] = -1;
    m->n_goals++;
    return tt_lp_add(
        m->lp, &(tt_lp_column){
                   .cost = 1, .n = n, .rows = m->rows, .values = m->values});
}

tutti_err tt_master_open(tt_master *m, double unit)
{
    m->unit = unit;
    lay_rows(m);
    if (m->slack > 0)
        weed(m);
    tutti_err err = tt_lp_create(m->arena, m->n_rows, m->limits, &m->lp,
                                 m->diag);
    if (m->net->is_joint)
        return err ? err : add_goal(m, TT_NONE);
    for (uint32_t i = 0; i < m->net->n_roots && !err; i++)
        err = add_goal(m, m->net->roots[i]);
    return err;
}

/* -------------------------------------------------------------- columns -- */

/* What a unit that flows over link e takes of its row. */
static double weight(const tt_master *m, uint32_t e, double share)
{
    return share * m->unit / m->net->rate[e];
}

static tutti_err add_tree(tt_master *m, size_t i)
{
    tt_pricing *net = m->net;
    const tt_pooled *p = &m->pooled[i];
    uint32_t n_used = tt_pricing_load(net, m->msg + i * net->n);
    uint32_t n = 0;
    for (uint32_t k = 0; k < n_used; k++) {
        uint32_t e = (uint32_t)net->used[k];
        if (m->link_row[e] < 0)
            continue;
        m->rows[n] = m->link_row[e];
        m->values[n++] = net->count[e] * weight(m, e, net->share[p->root]);
    }
    tt_pricing_unload(net, n_used);
    m->rows[n] = m->root_row[p->is_in][p->root];
    m->values[n++] = -1;
    return tt_lp_add(
        m->lp, &(tt_lp_column){.n = n, .rows = m->rows, .values = m->values});
}

static tutti_err add_pool(tt_master *m)
{
    tutti_err err = TUTTI_OK;
    for (; m->n_in_lp < m->n_pooled && !err; m->n_in_lp++)
        err = add_tree(m, m->n_in_lp);
    return err;
}

tutti_err tt_master_solve(tt_master *m)
{
    size_t n_columns = m->n_goals + m->n_pooled;
    tutti_err err = add_pool(m);
    m->value = tt_arena_grow(m->arena, m->value, &m->cap_value, n_columns,
                             sizeof(*m->value));
    if (!err)
        err = m->arena->err;
    if (!err)
        err = tt_lp_solve(m->lp, m->diag);
    if (err)
        return err;
    m->n_solved = m->n_in_lp;
    memcpy(m->value, tt_lp_values(m->lp), n_columns * sizeof(*m->value));
    m->rate = 0;
    for (uint32_t g = 0; g < m->n_goals; g++)
        m->rate += m->value[g];
    return TUTTI_OK;
}

double tt_master_carried(const tt_master *m, size_t i)
{
    return i < m->n_solved ? m->value[m->n_goals + i] : 0;
}

/* -------------------------------------------------------------- pricing -- */

/* Sets the prices of the links; returns the sum of the rows'. */
static double reprice(tt_master *m, const double *prices)
{
    double sum = 0;
    for (uint32_t e = 0; e < m->net->n_links; e++) {
        int row = m->link_row[e];
        if (row >= 0) {
            m->link_price[e] = prices[row] * weight(m, e, 1);
            sum += prices[row];
        } else {
            m->link_price[e] = row == TT_ROW_FREE ? 0 : INFINITY;
        }
    }
    tt_pricing_price(m->net, m->link_price, NULL);
    return sum;
}

void tt_master_best_prices(tt_master *m)
{
    reprice(m, m->best);
}

/* Is m->tree cheaper, at the prices of the last solution, than what that pays
 * for trees of this root and side? */
static bool improves(tt_master *m, uint32_t root, bool is_in)
{
    tt_pricing *net = m->net;
    const double *prices = tt_lp_prices(m->lp);
    uint32_t n_used = tt_pricing_load(net, m->tree);
    double cost = 0;
    for (uint32_t k = 0; k < n_used; k++) {
        uint32_t e = (uint32_t)net->used[k];
        if (m->link_row[e] >= 0)
            cost += net->count[e] * prices[m->link_row[e]] *
                    weight(m, e, net->share[root]);
    }
    tt_pricing_unload(net, n_used);
    return cost < prices[m->root_row[is_in][root]] - IMPROVES;
}

/* The price of the goals' cheapest trees bounds the rate: a rate x costs at
 * least x times that, and all there is to spend is the links' rates at their
 * prices, which is `sum`. */
tutti_err tt_master_price(tt_master *m, const double *prices)
{
    const tt_pricing *net = m->net;
    double sum = reprice(m, prices);
    double least = INFINITY;
    double all = 0;
    for (uint32_t i = 0; i < net->n_roots; i++) {
        uint32_t root = net->roots[i];
        double price = 0;
        for (int side = net->first_side; side <= net->last_side; side++) {
            price += tt_pricing_find(m->net, root, side, m->tree);
            if (!improves(m, root, side))
                continue;
            tutti_err err = tt_master_take(m, root, side, m->tree);
            if (err)
                return err;
        }
        least = fmin(least, price);
        all += net->share[root] * price;
    }
    double bound = sum / (net->is_joint ? all : least) + m->slack;
    if (bound < m->bound) {
        m->bound = bound;
        for (uint32_t row = 0; row < m->n_link_rows; row++)
            m->best[row] = prices[row] / sum;
    }
    return TUTTI_OK;
}

/* --------------------------------------------------- of equals, the best -- */

tutti_err tt_master_prefer(tt_master *m, const double *message_cost)
{
    const tt_pricing *net = m->net;
    size_t n_columns = m->n_goals + m->n_pooled;
    tutti_err err = add_pool(m);
    if (err)
        return err;
    double *costs = tt_new(m->arena->mem, n_columns, sizeof(*costs));
    if (!costs)
        return TUTTI_ENOMEM;
    for (size_t i = 0; i < m->n_in_lp; i++) {
        const tt_pooled *p = &m->pooled[i];
        const uint32_t *msg = m->msg + i * net->n;
        double cost = DEPTH * tt_pricing_depth(m->net, p->is_in, msg);
        for (uint32_t v = 0; v < net->n; v++)
            cost += msg[v] == TT_NONE ? 0 : message_cost[msg[v]];
        costs[m->n_goals + i] = -net->share[p->root] * cost / net->n;
    }
    if (m->limits[m->n_rows - 1] >= 0) /* the first time: hold the rate */
        m->limits[m->n_rows - 1] = -m->rate * (1 - FALLS);
    tt_lp_limits(m->lp, m->limits);
    tt_lp_costs(m->lp, costs);
    tt_free(m->arena->mem, costs, n_columns, sizeof(*costs));
    return tt_master_solve(m);
}

void tt_master_flow(const tt_master *m, double *flow)
{
    const tt_pricing *net = m->net;
    for (uint32_t i = 0; i < net->pairs.n_messages; i++)
        flow[i] = 0;
    for (size_t i = 0; i < m->n_in_lp; i++) {
        const uint32_t *msg = m->msg + i * net->n;
        double carried = tt_master_carried(m, i) *
                         net->share[m->pooled[i].root];
        for (uint32_t v = 0; v < net->n; v++) {
            if (msg[v] != TT_NONE)
                flow[msg[v]] += carried;
        }
    }
}
