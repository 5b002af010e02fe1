/* SPDX-License-Identifier: BSD-3-Clause
 * treenet.h - a network on which trees are priced: the messages, the rates of
 * the links, and what trees the collective wants. Private to src/plan, between
 * master.c and startup.c.
 *
 * A tree is an array msg[n]: the message by which vertex v hangs on its parent
 * (in-tree: v sends it, out-tree: v receives it); msg[root] is TT_NONE.
 *
 * What is wanted, as goals. All-reduce: each root is a goal of its own, served
 * by an in-tree and an out-tree; the sum over the goals counts. Broadcast and
 * reduce: the same with one root and one tree. All-gather and reduce-scatter:
 * one goal, served by share[r] of a tree of each root r. */
#ifndef TT_PLAN_TREENET_H
#define TT_PLAN_TREENET_H

#include "plan/arborescence.h"
#include "plan/columns.h"
#include "plan/pairs.h"

typedef struct tt_treenet {
    uint32_t n, n_links;
    bool has_side[2]; /* out-trees, in-trees */
    bool is_joint;    /* one goal */
    uint32_t n_roots;
    uint32_t *roots; /* those with a share */
    double *share;   /* [n], of the whole; not joint: 1 or 0 */
    double *rate;    /* of a link, bytes per second */
    tt_pairs pairs;
    tt_arbor arbor;
    tt_price_list list;
    /* Scratch of tt_treenet_find and tt_treenet_load. */
    uint32_t *parent, *depth;
    uint32_t *count; /* [n_links], all 0 between calls */
    int *used;       /* [n_links] */
} tt_treenet;

tutti_err tt_treenet_init(tt_treenet *net, const tutti_topology *t,
                          const tt_routes *routes, const tt_columns_opts *opts,
                          tt_arena *arena);

/* Prices for tt_treenet_find: of links, and what messages cost times that
 * (NULL: 1). */
void tt_treenet_price(tt_treenet *net, const double *link_price,
                      const double *factor);
/* The cheapest tree, as flat as it can be at that price; returns its price.
 * INFINITY: there is none. */
double tt_treenet_find(tt_treenet *net, uint32_t root, bool is_in,
                       uint32_t *msg);
uint32_t tt_treenet_depth(tt_treenet *net, bool is_in, const uint32_t *msg);

/* How often the tree uses each link: used[] holds the links, ascending, and
 * count[] their numbers; returns how many. tt_treenet_unload() clears. */
uint32_t tt_treenet_load(tt_treenet *net, const uint32_t *msg);
void tt_treenet_unload(tt_treenet *net, uint32_t n_used);

/* Trees by multiplicative prices: a start that is near the optimum. Calls
 * take() for trees worth having; price[] ends as good link prices, *rate as a
 * rate (vectors per second, bytes) that is possible. */
typedef struct tt_startup {
    tutti_err (*take)(void *ctx, uint32_t root, bool is_in,
                      const uint32_t *msg);
    void *ctx;
    const tt_progress *progress;
    const double *factor; /* of messages, as for tt_treenet_price */
    uint32_t turns;       /* of every root */
    double *price;        /* [n_links] */
    double rate;
} tt_startup;
tutti_err tt_startup_run(tt_treenet *net, tt_arena *arena, tt_startup *s);

#endif
