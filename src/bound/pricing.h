/* SPDX-License-Identifier: BSD-3-Clause
 * pricing.h - a network on which trees are priced: the messages, the rates of
 * the links, and what trees the collective wants. Private to src/bound, between
 * master.c and firsttrees.c.
 *
 * A tree is an array msg[n]: the message by which vertex v hangs on its parent
 * (in-tree: v sends it, out-tree: v receives it); msg[root] is TT_NONE.
 *
 * A message takes the route that tt_route() gives it. One that passes through
 * the node of a third rank is left out: that rank can take it in and send it on
 * itself, with the same load on the links. So on a mesh only neighbours are
 * left, on a star all pairs.
 *
 * What is wanted, as goals. All-reduce: each root is a goal of its own, served
 * by an in-tree and an out-tree; the sum over the goals counts. Broadcast and
 * reduce: the same with one root and one tree. All-gather and reduce-scatter:
 * one goal, served by share[r] of a tree of each root r.
 *
 * Next: pricing.c, arborescence.c. */
#ifndef TT_BOUND_PRICING_H
#define TT_BOUND_PRICING_H

#include "bound/arborescence.h"
#include "bound/bound.h"

/* Message m of pair (src, dst): first[src * n + dst] <= m < first[.. + 1]; it
 * uses the links link[m_first[m]] .. link[m_first[m + 1] - 1]. */
typedef struct tt_pairs {
    uint32_t n, n_links;
    uint32_t n_messages;
    uint32_t *first;     /* n * n + 1 */
    uint32_t *src, *dst; /* of a message */
    uint8_t *rail;
    uint32_t *m_first; /* n_messages + 1 */
    uint32_t *link;
} tt_pairs;

/* Of each pair at the present prices: that of its cheapest message, in
 * out[src * n + dst] and in[dst * n + src], and which it is, in
 * best[src * n + dst]; INFINITY where there is none. */
typedef struct tt_price_list {
    double *out, *in;
    uint32_t *best;
} tt_price_list;

typedef struct tt_pricing {
    uint32_t n, n_links;
    int first_side, last_side; /* 0: out-trees, 1: in-trees */
    bool is_joint;             /* one goal */
    uint32_t n_roots;
    uint32_t *roots; /* those with a share */
    double *share;   /* [n], of the whole; not joint: 1 or 0 */
    double *rate;    /* of a link, bytes per second */
    tt_pairs pairs;
    tt_arbor arbor;
    tt_price_list list;
    /* Scratch of tt_pricing_find and tt_pricing_load. */
    uint32_t *parent, *depth;
    uint32_t *count; /* [n_links], all 0 between calls */
    int *used;       /* [n_links] */
} tt_pricing;

tutti_err tt_pricing_init(tt_pricing *net, const tutti_topology *t,
                          const tt_routes *routes, const tt_columns_opts *opts,
                          tt_arena *arena);

/* Prices for tt_pricing_find: of links (INFINITY: must not be used), and what
 * messages cost times that (NULL: 1). */
void tt_pricing_price(tt_pricing *net, const double *link_price,
                      const double *factor);
/* The cheapest tree, as flat as it can be at that price; returns its price.
 * INFINITY: there is none. */
double tt_pricing_find(tt_pricing *net, uint32_t root, bool is_in,
                       uint32_t *msg);
uint32_t tt_pricing_depth(tt_pricing *net, bool is_in, const uint32_t *msg);

/* How often the tree uses each link: used[] holds the links, ascending, and
 * count[] their numbers; returns how many. tt_pricing_unload() clears. */
uint32_t tt_pricing_load(tt_pricing *net, const uint32_t *msg);
void tt_pricing_unload(tt_pricing *net, uint32_t n_used);

/* firsttrees.c. Trees by multiplicative prices: a start that is near the
 * optimum. Calls take() for trees worth having; price[] ends as good link
 * prices, *rate as a rate (vectors per second, bytes) that is possible. */
typedef struct tt_firsttrees {
    tutti_err (*take)(void *ctx, uint32_t root, bool is_in,
                      const uint32_t *msg);
    void *ctx;
    const tt_progress *progress;
    const double *factor; /* of messages, as for tt_pricing_price */
    uint32_t turns;       /* of every root */
    double *price;        /* [n_links] */
    double rate;
} tt_firsttrees;
tutti_err tt_firsttrees_find(tt_pricing *net, tt_arena *arena,
                             tt_firsttrees *s);

#endif
