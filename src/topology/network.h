/* SPDX-License-Identifier: BSD-3-Clause
 * network.h - what the files of this folder share: the builder with places of
 * a text, units, and steps on a grid. */
#ifndef TT_TOPOLOGY_NETWORK_H
#define TT_TOPOLOGY_NETWORK_H

#include "base/words.h"
#include "topology/topology.h"

/* -------------------------------------------------------------- builder -- */

/* Nodes and links added from now on come from here. */
void tt_topo_at(tt_topo_builder *b, tt_spot spot);
/* Remembers this error unless there is one already. */
void tt_topo_refuse(tt_topo_builder *b, tutti_err err, tt_spot spot,
                    const char *fmt, ...) TT_PRINTF(4, 5);
/* The remembered error. */
tutti_err tt_topo_error(const tt_topo_builder *b, tutti_diag *diag);
/* The node of that name, or TT_NONE. */
uint32_t tt_topo_find(const tt_topo_builder *b, const char *name, size_t len);
/* The name most like this one, or NULL. */
const char *tt_topo_nearest(const tt_topo_builder *b, const char *name,
                            size_t len);
tt_node_kind tt_topo_kind(const tt_topo_builder *b, uint32_t node);
uint32_t tt_topo_n_ranks(const tt_topo_builder *b);
const tt_mem *tt_topo_mem(const tt_topo_builder *b);
/* The id: the hash of what tt_topology_write() writes. ENOMEM. */
tutti_err tt_topology_hash(const tutti_topology *t, const tt_mem *mem,
                           uint64_t *id);

enum { TT_MAX_NAME = 255, TT_MAX_DEV = 63 };
bool tt_name_is_good(const char *name, size_t len);
/* Could it be the name of a network interface? */
bool tt_dev_is_good(const char *name, size_t len);

/* ---------------------------------------------------------------- units -- */

#define TT_MAX_LATENCY_PS UINT64_C(1000000000000000) /* 1000 s */

/* Rates and latencies as people write them; see units.c. */
typedef struct tt_amount {
    uint64_t value;    /* bits per second, or picoseconds */
    const char *error; /* one phrase when it is none; static text */
    tutti_err err;
    size_t len; /* characters read; on an error, up to what is wrong */
    bool is_latency;
} tt_amount;

/* Reads a number with a unit at the start of text. */
tt_amount tt_amount_read(const char *text, size_t len);

void tt_rate_write(tt_str *out, uint64_t bps);
void tt_latency_write(tt_str *out, uint64_t ps);

/* ---------------------------------------------------------------- grids -- */

/* The direction of the step between two nodes: 2 * dim for upwards, 2 * dim + 1
 * for downwards; TT_NONE when they are not neighbours. In a dimension of size 2
 * the one neighbour of 0 is up, that of 1 down. */
uint32_t tt_grid_direction(const tt_grid *g, uint32_t from, uint32_t to);

#endif
