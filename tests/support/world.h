/* SPDX-License-Identifier: BSD-3-Clause
 * world.h - made-up networks of which everything is known, and how fast flows
 * run on them: max-min fairly, but with unequal weights, as flows do.
 *
 * A world is a forest: node i < n_ports is port i with its link to its parent;
 * the others are switches. A cable is a switch with two ports. */
#ifndef TT_TESTS_WORLD_H
#define TT_TESTS_WORLD_H

#include "base/rng.h"
#include "infer/infer.h"

enum {
    WORLD_PORTS = 600,
    WORLD_NODES = 2 * WORLD_PORTS,
    WORLD_FLOWS = 4096,
    WORLD_DEPTH = 12
};

enum {
    WORLD_STAR,
    WORLD_UNEVEN,
    WORLD_RACKS,
    WORLD_PODS,
    WORLD_TREE,
    WORLD_UNEVEN_RACKS,
    WORLD_CABLES, /* ring, mesh, torus */
    WORLD_RAILS,  /* two planes */
    WORLD_BONDS,  /* two ports of some hosts on one switch */
    WORLD_KINDS
};

typedef struct world {
    int kind;
    uint32_t n_hosts, n_ports, n_nodes;
    int parent[WORLD_NODES]; /* -1: none */
    double up[WORLD_NODES], down[WORLD_NODES];
    double latency_s[WORLD_NODES]; /* of the link to the parent */
    tt_infer_port ports[WORLD_PORTS];
    const char *names[WORLD_PORTS];
    char name_text[WORLD_PORTS][16];
    uint8_t reach[WORLD_PORTS * WORLD_PORTS];
} world;

/* kind: one of the above, or -1: any; n: hosts, or 0: any (2 to 40). */
void world_make(world *w, tt_rng *rng, int kind, uint32_t n);
/* A few hosts on one switch, all links of that rate; to be changed. */
void world_star(world *w, uint32_t n, double bps);
/* A switch below another one; moves the ports from .. to - 1 below it. */
uint32_t world_rack(world *w, uint32_t from, uint32_t to, double up,
                    double down);
/* The spec of it; borrows w. */
tt_infer_spec world_spec(const world *w, uint64_t seed);

/* Rates of flows between ports; unfair: spread of their weights. */
void world_run(const world *w, const tt_infer_flow *flows, uint32_t n,
               double unfair, tt_rng *rng, double *bps);
double world_latency(const world *w, uint32_t src, uint32_t dst);
/* Normal, cut off at three standard deviations. */
double world_gauss(tt_rng *rng);

/* Measures until nothing is left, with that noise; how many rounds. */
typedef struct world_measure {
    double noise, unfair;
    double stray; /* of so many flows half to nine tenths get through */
    uint32_t n_rounds, n_flows;
    double cpu_s; /* of the inference */
} world_measure;
tutti_err world_probe(const world *w, tt_infer *inf, tt_rng *rng,
                      world_measure *m, tutti_diag *diag);
/* As tt_infer_told(), of flows whose means are their rates. */
tutti_err world_tell(tt_infer *inf, const double *bps, uint32_t n,
                     tutti_diag *diag);

/* What the network says of the same ports: like w, but for rates and switches.
 * false: a port of w is missing, or it is no forest. */
bool world_read(const world *w, const tutti_topology *t, world *out);

/* What can pass upwards (downwards) out of the node, at most, for lack of
 * interfaces; and what the rest of its tree can take (give). */
double world_below(const world *w, uint32_t node, bool down);
double world_beyond(const world *w, uint32_t node, bool down);
bool world_is_below(const world *w, uint32_t port, uint32_t node);
uint32_t world_root(const world *w, uint32_t node);

#endif
