/* SPDX-License-Identifier: BSD-3-Clause
 * netlayout.h - where the nodes and links of a network are drawn. One truth for
 * the SVG, the terminal and the page of `tutti view`, which only draw. Pure:
 * the same network gives the same places.
 *
 * Shapes     A grid is a grid (its wraps run between the rows). Hosts without
 *            switches stand on a circle, with one switch around it. Where there
 *            are several switches these stand in levels, and the hosts of each
 *            in a block at the bottom.
 * Next       netlayout.c (circles and grids), netlevels.c (switches), netdraw.c
 *            (what is drawn of it). */
#ifndef TT_EXPORT_NETLAYOUT_H
#define TT_EXPORT_NETLAYOUT_H

#include "topology/topology.h"

/* More is too much for any picture: TUTTI_ELIMIT. */
#define TT_DRAWN_NODES 4096u
#define TT_DRAWN_LINKS (UINT32_C(1) << 17)

/* Sizes, in the units of the layout: the radius of a host, the room of a host
 * or switch, the room of a slot within its host. */
enum { TT_DRAWN_HOST = 13, TT_DRAWN_CELL = 48, TT_DRAWN_SLOT = 34 };

typedef struct tt_point {
    int32_t x, y; /* to the right, and down */
} tt_point;

/* The way of a link between its ends: straight; one bend: a curve towards that
 * point; several: a line with these corners. */
enum { TT_MAX_BENDS = 4 };
typedef struct tt_bends {
    uint32_t n;
    tt_point at[TT_MAX_BENDS];
} tt_bends;

typedef struct tt_net_layout {
    tt_point size;   /* everything lies between (0, 0) and here */
    tt_point *nodes; /* the middle of each */
    tt_bends *bends; /* of each link, on its way from its first end */
    tt_arena arena;
} tt_net_layout;

/* The caller frees *out with tt_layout_free(). Errors: ELIMIT, ENOMEM. */
tutti_err tt_layout_find(const tutti_topology *t, const tt_mem *mem,
                         tt_net_layout *out, tutti_diag *diag);
void tt_layout_free(tt_net_layout *l);

/* --------------------------------------------- private to this folder -- */

/* In how many columns the slots of a host stand: twice as many as rows. */
static inline uint32_t tt_drawn_columns(uint32_t n_slots)
{
    uint32_t columns = n_slots < 4 ? n_slots : 4;
    while (columns * columns < 2 * n_slots && columns < n_slots)
        columns++;
    return columns;
}

/* Room of a host with all its slots. */
static inline tt_point tt_drawn_room(uint32_t n_slots)
{
    if (n_slots == 0)
        return (tt_point){TT_DRAWN_CELL, TT_DRAWN_CELL};
    const uint32_t columns = tt_drawn_columns(n_slots);
    const uint32_t rows = (n_slots + columns - 1) / columns;
    return (tt_point){(int32_t)(columns * TT_DRAWN_SLOT) + 24,
                      (int32_t)(rows * TT_DRAWN_SLOT) + 44};
}

/* netlevels.c: places switches and hosts; n_slots[v]: of the host at node v. */
tutti_err tt_layout_levels(const tutti_topology *t, const uint32_t *n_slots,
                           tt_net_layout *out);

static inline uint32_t tt_n_links_of(const tutti_topology *t, uint32_t node)
{
    return t->first_out[node + 1] - t->first_out[node];
}

/* The i-th that leaves the node. */
static inline const tt_link *tt_link_of(const tutti_topology *t, uint32_t node,
                                        uint32_t i)
{
    return &t->links[t->out[t->first_out[node] + i]];
}

static inline bool tt_is_switch(const tutti_topology *t, uint32_t node)
{
    return t->nodes[node].kind == TT_NODE_SWITCH;
}

/* A host, with the slots that it may have. */
static inline bool tt_is_whole_host(const tutti_topology *t, uint32_t node)
{
    return t->nodes[node].kind == TT_NODE_HOST ||
           t->nodes[node].kind == TT_NODE_HUB;
}

#endif
