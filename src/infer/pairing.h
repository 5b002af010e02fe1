/* SPDX-License-Identifier: BSD-3-Clause
 * pairing.h - what rounds.c and target.c share: looks, and who sends to whom in
 * them. */
#ifndef TT_INFER_PAIRING_H
#define TT_INFER_PAIRING_H

#include "infer/plane.h"

/* Who may send to whom. */
typedef struct tt_pairing_rule {
    const uint64_t *from; /* senders within, receivers without; NULL: all */
    bool both;            /* ... and the other way round */
    bool local; /* only leaves that meet in p->node, from different p->kid */
} tt_pairing_rule;

static inline bool tt_may(const tt_plane *p, uint32_t src, uint32_t dst)
{
    return p->can[(size_t)src * p->n + dst];
}

/* A new look (instead of the last one, where that has no flows), and a flow of
 * it. ENOMEM, as below. */
tutti_err tt_look_begin(tt_plane *p, const char *why);
tutti_err tt_look_add(tt_plane *p, uint32_t src, uint32_t dst);

/* p->to: a random receiver for each sender that has none yet, each used once;
 * TT_NONE: none was left. First forgets all. */
void tt_pair_none(tt_plane *p);
void tt_pair_rest(tt_plane *p, const tt_pairing_rule *r);
/* Adds so many of the pairs to the look. */
tutti_err tt_look_pairs(tt_plane *p, uint32_t per_cent);

/* A look of n_each pairings at once. */
tutti_err tt_look_pairing(tt_plane *p, const tt_pairing_rule *r,
                          const char *why, uint32_t n_each);
/* A look of one pairing, then n_masks that leave some of it out. */
tutti_err tt_look_masked(tt_plane *p, const tt_pairing_rule *r, const char *why,
                         uint32_t n_masks);

#endif
