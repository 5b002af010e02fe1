/* SPDX-License-Identifier: BSD-3-Clause
 * topology.h - the network: nodes, directed links, and which rank sits where.
 *
 * A node is a host that carries one rank, a switch, the hub of a host that
 * carries several (its memory), or one such rank's slot at the hub. Only
 * `rank` matters to most readers: a node with a rank sends, receives and
 * reduces; every node forwards, but for hosts of which it is said that they do
 * not. A full-duplex cable is two links, each other's twin. Rates are whole
 * bits per second and latencies whole picoseconds, so that a text reads back to
 * the same network and the optimum is exact.
 *
 * Immutable once sealed; owned by `mem`. All functions are pure. [any thread]
 *
 * Next: network.c (how one is made), netfile.c (the file format;
 * docs/reference/topology.md has the grammar), generate.c (torus:8x8 and so
 * on), routes.c. */
#ifndef TT_TOPOLOGY_TOPOLOGY_H
#define TT_TOPOLOGY_TOPOLOGY_H

#include "base/ifacecap.h"
#include "base/limits.h"
#include "base/str.h"

/* Limits: named and checked (TUTTI_ELIMIT). Ranks: TT_MAX_RANKS. */
#define TT_MAX_NODES (UINT32_C(1) << 18)
#define TT_MAX_LINKS (UINT32_C(1) << 23)
#define TT_MAX_DIMS 8u
#define TT_MAX_SOCKETS 16u
#define TT_MAX_RATE_BPS UINT64_C(1000000000000000) /* 1 Pbit/s */

typedef enum tt_node_kind {
    TT_NODE_HOST,   /* of one rank */
    TT_NODE_SWITCH, /* no rank */
    TT_NODE_HUB,    /* of a host of several ranks: joins its slots */
    TT_NODE_SLOT    /* one rank of such a host */
} tt_node_kind;

typedef struct tt_node {
    const char *name; /* "a", "core"; a slot: "a.0" */
    uint32_t rank;    /* TT_NONE: none sits here */
    uint32_t hub;     /* of a slot: its hub's node; else TT_NONE */
    tt_node_kind kind;
    bool forwards; /* what comes for others; false: routes end here */
} tt_node;

typedef struct tt_link {
    uint32_t from, to;   /* nodes */
    uint32_t twin;       /* the link back; TT_NONE: one way only */
    uint64_t rate_bps;   /* > 0; no more than cap_bps, where there is one */
    uint64_t latency_ps; /* may be 0 */
    const char *dev;     /* interface at `from`, or NULL */
    uint64_t cap_bps;    /* a job may send at most so much; 0: all it can */
    uint64_t least_bps;  /* the rate is doubtful: perhaps it is only this, which
                            is less; 0: nobody doubts it */
    bool is_memory;      /* inside a host of several ranks */
} tt_link;

/* The nodes 0 .. product of dims - 1 are a grid, row by row (the last
 * coordinate runs fastest), neighbours joined; wraps: also around. n_dims 0:
 * not a grid. All are hosts of one rank, and there are no others. Routes are
 * dimension ordered on grids. */
typedef struct tt_grid {
    uint32_t n_dims;
    uint32_t dims[TT_MAX_DIMS];
    bool wraps;
} tt_grid;

/* Nodes of the grid; 0: more than 2^32. */
uint64_t tt_grid_points(const tt_grid *g);

struct tutti_topology {
    uint32_t n_ranks, n_nodes, n_links;
    const tt_node *nodes;
    const tt_link *links;
    const uint32_t *rank_node; /* [n_ranks] */
    /* The links that leave (enter) node v are out[first_out[v]] ..
     * out[first_out[v + 1] - 1], in order of number. */
    const uint32_t *first_out, *out, *first_in, *in;
    tt_grid grid;
    bool all_forward;   /* so there is a route between any two ranks */
    uint32_t n_sockets; /* that fill a link between hosts; 1 unless told */
    uint64_t id;        /* FNV-1a of what tt_topology_write writes */
    tt_arena arena;
};

/* Every one of these: the caller owns *out and frees it with
 * tt_topology_free(). Errors: EFORMAT, EINVAL, ELIMIT with one sentence (and
 * line and column where there is a text), ENOMEM. */

/* A `tutti-topology 1` text. */
tutti_err tt_topology_parse(const tt_mem *mem, const char *text, size_t len,
                            tutti_topology **out, tutti_diag *diag);
/* A generator: `racks:5+3@nic=400Mbit,trunk=200Mbit,order=interleaved`, or one
 * of the papers' machines by name. Errors count columns from 1 in the spec. */
tutti_err tt_topology_generate(const tt_mem *mem, const char *spec,
                               tutti_topology **out, tutti_diag *diag);
/* NCCL's topology XML (NCCL_TOPO_DUMP_FILE). ENOFIT: built without libxml2. */
tutti_err tt_topology_import_nccl(const tt_mem *mem, const char *text,
                                  size_t len, tutti_topology **out,
                                  tutti_diag *diag);
/* Whichever of the three the text is, by how it begins. */
tutti_err tt_topology_read(const tt_mem *mem, const char *text, size_t len,
                           tutti_topology **out, tutti_diag *diag);
/* The whole text is a rate such as 400Mbit, above zero and within the limit. */
bool tt_rate_parse(const char *text, size_t len, uint64_t *bps);
/* Interfaces that TUTTI_RATE may name. */
#define TT_CAPS_MAX 64
/* Its text into out[TT_CAPS_MAX]; *n: how many. Errors: ECONFIG, ELIMIT. */
tutti_err tt_caps_read(const char *text, tt_iface_cap *out, uint32_t *n,
                       tutti_diag *diag);
/* Does the spec begin with the name of a generator or machine? */
bool tt_topology_is_generator(const char *spec);
/* Names, forms and one-liners of all generators and machines, in table order;
 * false past the end. */
bool tt_generator_at(size_t index, tutti_generator_info *out);

/* The same network with these n different ranks of t only, members[i] as rank
 * i; NULL: all. Hosts without any go on forwarding, as switches, or are left
 * out where they do not forward; those of several ranks keep the slots of
 * members. */
tutti_err tt_topology_subset(const tutti_topology *t, const uint32_t *members,
                             uint32_t n, const tt_mem *mem,
                             tutti_topology **out, tutti_diag *diag);

/* The same network with n ranks more, behind its own: the i-th on the host of
 * rank beside[i]. */
tutti_err tt_topology_with_more(const tutti_topology *t, const uint32_t *beside,
                                uint32_t n, const tt_mem *mem,
                                tutti_topology **out, tutti_diag *diag);

/* The same network without some of its links, is_out[n_links] of both ways
 * alike, and without the switches that have no others. */
tutti_err tt_topology_without(const tutti_topology *t, const bool *is_out,
                              const tt_mem *mem, tutti_topology **out,
                              tutti_diag *diag);

/* The same network with other rates: of link i rates_bps[i], more than 0. */
tutti_err tt_topology_with_rates(const tutti_topology *t,
                                 const uint64_t *rates_bps, const tt_mem *mem,
                                 tutti_topology **out, tutti_diag *diag);

/* Is the rate of any link doubtful? */
bool tt_topology_is_doubtful(const tutti_topology *t);

/* The same network where a job may send at most caps_bps[n_links] by each link;
 * 0: what t says. */
tutti_err tt_topology_with_caps(const tutti_topology *t,
                                const uint64_t *caps_bps, const tt_mem *mem,
                                tutti_topology **out, tutti_diag *diag);

/* The same network as TCP's payload sees it: of a full packet on a link between
 * hosts (MTU 1500, time stamps) 1448 of 1514 bytes; rates become whole bits per
 * second again. */
#define TT_TCP_PAYLOAD UINT64_C(1448)
#define TT_TCP_PACKET UINT64_C(1514)
tutti_err tt_topology_payload(const tutti_topology *t, const tt_mem *mem,
                              tutti_topology **out, tutti_diag *diag);

void tt_topology_free(tutti_topology *t); /* accepts NULL */

/* The network as a file that reads back to the same one (same id). */
void tt_topology_write(const tutti_topology *t, tt_str *out);

static inline double tt_link_bytes_per_s(const tt_link *l)
{
    return (double)l->rate_bps / 8;
}

static inline double tt_link_latency_s(const tt_link *l)
{
    return (double)l->latency_ps * 1e-12;
}

/* The host that a node is a part of: its hub, or the node itself. */
static inline uint32_t tt_node_host(const tutti_topology *t, uint32_t node)
{
    uint32_t hub = t->nodes[node].hub;
    return hub == TT_NONE ? node : hub;
}

/* What rank r can send and receive at most: the sum over its node's links. */
uint64_t tt_rank_out_bps(const tutti_topology *t, uint32_t rank);
uint64_t tt_rank_in_bps(const tutti_topology *t, uint32_t rank);

/* --------------------------------------------------------------- making -- */

/* Collects nodes and links in any order; an error is remembered and returned
 * by seal, so makers need not check each add. */
typedef struct tt_topo_builder tt_topo_builder;
tutti_err tt_topo_builder_create(const tt_mem *mem, tt_topo_builder **out,
                                 tutti_diag *diag);
void tt_topo_builder_free(tt_topo_builder *b); /* accepts NULL */
/* A copy of a part of a network: what was a host is a switch where no rank of
 * the part is, and its interfaces keep their names. */
void tt_topo_is_part(tt_topo_builder *b);
/* Names are copied, must be new, [A-Za-z0-9._-]+. They return the node's
 * number. A host of several ranks makes its hub and its slots. */
uint32_t tt_topo_switch(tt_topo_builder *b, const char *name);
/* Whether hosts that are added from now on forward; they do until this says
 * otherwise. */
void tt_topo_forwards(tt_topo_builder *b, bool forwards);
uint32_t tt_topo_host(tt_topo_builder *b, const char *name);
typedef struct tt_wire {
    uint64_t up_bps, down_bps; /* from first to second, and back; down 0:
                                    one way only */
    uint64_t latency_ps;       /* each way */
    const char *dev, *far_dev; /* interfaces at the first and at the second
                                  node; NULL: not known */
    /* What a job may send at most, there and back; 0: all it can. A rate that
     * is greater becomes that. */
    uint64_t up_cap_bps, down_cap_bps;
    /* What it may carry only, there and back, as far as that is less; 0: its
     * rate is not doubtful. */
    uint64_t up_least_bps, down_least_bps;
    bool is_memory; /* inside a host of several ranks */
} tt_wire;
/* Memory that nobody has measured: what topology.md has as the default. */
extern const tt_wire tt_wire_memory;
uint32_t tt_topo_big_host(tt_topo_builder *b, const char *name,
                          uint32_t n_ranks, const tt_wire *memory);
/* The same piece by piece: the hub, and at once its slots, by any names. */
uint32_t tt_topo_hub(tt_topo_builder *b, const char *name);
uint32_t tt_topo_slot(tt_topo_builder *b, uint32_t hub, const char *name,
                      const tt_wire *memory);
void tt_topo_link(tt_topo_builder *b, uint32_t a, uint32_t z,
                  const tt_wire *wire);
void tt_topo_grid(tt_topo_builder *b, const tt_grid *grid);
/* How many connections fill a link between hosts; 1 unless told. */
void tt_topo_sockets(tt_topo_builder *b, uint32_t n);
/* Ranks are numbered in the order in which hosts (slots) were added, unless
 * this says otherwise: place[i] is the rank of the i-th of them; a permutation
 * of all n. */
void tt_topo_place(tt_topo_builder *b, const uint32_t *place, uint32_t n);
/* Checks (duplicate names, rates, a path from every rank to every other, be it
 * by hosts that do not forward, that a grid is one), takes and frees the
 * builder also when it fails. */
tutti_err tt_topo_seal(tt_topo_builder *b, tutti_topology **out,
                       tutti_diag *diag);

/* --------------------------------------------------------------- routes -- */

/* Between any two ranks: the path of fewest links through nodes that forward;
 * dimension ordered on grids where all do (last dimension first, the shorter
 * way round, up when equal). Where several are as short, `rail` picks: at each
 * fork with n equally good links, in order of number, the one numbered (dst
 * rank + rail) mod n. Immutable. */
typedef struct tt_routes tt_routes;
tutti_err tt_routes_create(const tutti_topology *t, const tt_mem *mem,
                           tt_routes **out, tutti_diag *diag);
void tt_routes_free(tt_routes *r); /* accepts NULL */
/* Links of the longest route. */
uint32_t tt_routes_max_links(const tt_routes *r);
/* Writes the links of the route, in order, to links[] (of at least
 * tt_routes_max_links()); returns how many; 0: there is no route. src !=
 * dst. */
uint32_t tt_route(const tt_routes *r, uint32_t src, uint32_t dst, uint8_t rail,
                  uint32_t *links);
#define TT_RAILS_MAX 16
/* Rails 0 .. this - 1 give the different routes of this pair (at most
 * TT_RAILS_MAX); higher rails repeat them. 0: there is no route, because hosts
 * between the two do not forward. */
uint32_t tt_route_rails(const tt_routes *r, uint32_t src, uint32_t dst);

#endif
