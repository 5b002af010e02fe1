/* SPDX-License-Identifier: BSD-3-Clause
 * netdraw.h - private to this folder: what the pictures of a network share. */
#ifndef TT_EXPORT_NETDRAW_H
#define TT_EXPORT_NETDRAW_H

#include "export/netlayout.h"

/* --------------------------------------------------------- netspeed.c -- */

/* For people, rounded: "400 Mbit/s, 20 us"; there, and back where that
 * differs. */
void tt_put_speed(tt_str *out, const tutti_topology *t, const tt_link *l);
/* In one of two directions, or one way: a cable is drawn once. */
bool tt_is_drawn(const tutti_topology *t, uint32_t link);
/* So many links that each is drawn paler? */
static inline bool tt_is_crowded(const tutti_topology *t)
{
    return t->n_links > 4 * t->n_nodes + 64;
}
/* The same rates and latency, there and back? */
bool tt_same_speed(const tutti_topology *t, const tt_link *a, const tt_link *b);

/* -------------------------------------------------- netsvg.c, nettext.c -- */

void tt_net_svg(const tutti_topology *t, const tt_net_layout *l, tt_str *out);
void tt_net_text(const tutti_topology *t, const tt_net_layout *l, tt_str *out);

#endif
