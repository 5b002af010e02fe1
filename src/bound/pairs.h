/* SPDX-License-Identifier: BSD-3-Clause
 * pairs.h - which messages between two ranks a tree may be made of, what they
 * load, and what they cost at given prices of the links. Private to src/bound.
 *
 * Idea       A message takes the route that tt_route() gives it. One that
 *            passes through the node of a third rank is left out: that rank can
 *            take it in and send it on itself, with the same load on the links.
 *            So on a mesh only neighbours are left, on a star all pairs. */
#ifndef TT_BOUND_PAIRS_H
#define TT_BOUND_PAIRS_H

#include "base/mem.h"
#include "topology/topology.h"

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

/* Freed with the arena. Errors: ENOMEM, ELIMIT. */
tutti_err tt_pairs_init(tt_pairs *p, const tutti_topology *t,
                        const tt_routes *routes, tt_arena *arena);

/* The cheapest message of each pair at these link prices (INFINITY: must not
 * be used), times the message's factor (NULL: 1): its price in
 * out[src * n + dst] and in[dst * n + src], and which it is in
 * best[src * n + dst]; INFINITY where there is none. */
typedef struct tt_price_list {
    double *out, *in;
    uint32_t *best;
} tt_price_list;
void tt_pairs_price(const tt_pairs *p, const double *link_price,
                    const double *factor, tt_price_list *list);

#endif
