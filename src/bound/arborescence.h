/* SPDX-License-Identifier: BSD-3-Clause
 * arborescence.h - the cheapest spanning tree of a directed graph with a given
 * root. Private to src/bound; arborescence.c has the idea. */
#ifndef TT_BOUND_ARBORESCENCE_H
#define TT_BOUND_ARBORESCENCE_H

#include "base/mem.h"

/* Room for graphs of n vertices; made once, used for many trees. A row is a
 * place in the matrix; a vertex that was merged from others is numbered n, n+1
 * and so on, and takes over the row of one of them. */
typedef struct tt_arbor {
    uint32_t n;
    double *cost;    /* n * n: between rows */
    uint32_t *edge;  /* n * n: which given edge that is, from * n + to */
    uint32_t *owner; /* n: the vertex in this row */
    uint32_t *live;  /* n: the rows still in use */
    uint32_t *row;   /* 2n: of a vertex */
    uint32_t *into;  /* 2n: the vertex into which it was merged */
    uint32_t *enter; /* 2n: the edge by which it is entered */
    double *toll;    /* 2n: what that edge costs */
    uint8_t *state;  /* 2n */
    uint32_t *path;  /* n */
} tt_arbor;

/* Errors: ENOMEM. Freed with the arena. */
tutti_err tt_arbor_init(tt_arbor *a, uint32_t n, tt_arena *arena);

/* cost[from * n + to], INFINITY where there is no edge; the diagonal is not
 * looked at. parent[v]: where v hangs (parent[root] = root). Among equal costs
 * always the same tree. false: some vertex cannot be reached. */
bool tt_arbor_find(tt_arbor *a, const double *cost, uint32_t root,
                   uint32_t *parent);

/* depth[v]: hops to the root. Returns the greatest. */
uint32_t tt_arbor_depth(tt_arbor *a, const uint32_t *parent, uint32_t *depth);

/* Makes a tree flatter: hangs vertices nearer to the root, where their edge
 * costs at most `slack` more than it did, until nothing changes. Returns the
 * greatest depth. */
uint32_t tt_arbor_flatten(tt_arbor *a, const double *cost, double slack,
                          uint32_t *parent, uint32_t *depth);

#endif
