/* SPDX-License-Identifier: BSD-3-Clause
 * table.h - the rows of table.c, each defined in the folder of its name. */
#ifndef TT_NET_TABLE_H
#define TT_NET_TABLE_H

#include "net/net.h"

extern const tt_net_ops tt_net_shm;
extern const tt_net_ops tt_net_tcp;
extern const tt_net_ops tt_net_ucx; /* when built with TT_HAVE_UCX */

#endif
