/* SPDX-License-Identifier: BSD-3-Clause
 * cutsearch.h - what the four files of the search for cuts share. */
#ifndef TT_INFER_CUTSEARCH_H
#define TT_INFER_CUTSEARCH_H

#include <math.h>

#include "infer/plane.h"

/* A set that may be a cut. */
typedef struct tt_cut_candidate {
    uint64_t *in;
    double gain, bps;
} tt_cut_candidate;

enum {
    TT_MAX_CANDIDATES = 16,
    TT_CUTSEARCH_LEAVES =
        1024 /* more are not searched: memory and time are leaves^2 */
};

/* The best so far, best first. */
typedef struct tt_cut_list {
    tt_cut_candidate list[TT_MAX_CANDIDATES];
    uint32_t n;
} tt_cut_list;

/* Of the flows that cross a set in one round. */
typedef struct tt_sum {
    double got, wanted, loss;
    uint32_t n;
} tt_sum;

typedef struct tt_cutsearch {
    uint32_t *first, *mine; /* flows of each leaf, sent or received */
    uint32_t *look_of;      /* of each flow */
    double *loss; /* of each flow: log(measured / expected), clipped */
    tt_sum *sums; /* of each look */
    size_t caps[4];
    uint64_t *set, *other;
    tt_cut_list found[2], seeds[2]; /* by mode */
    /* What moves together: the kids of one node. */
    uint32_t n_atoms;
    uint32_t *atom_first, *atom_leaf; /* leaves of each atom */
    uint32_t *atom_of;                /* of each leaf; TT_NONE */
    bool is_root;
    /* cutsearch_groups.c */
    double *away;       /* [n][n] */
    double *seen;       /* [n][n] */
    double *level;      /* [n] */
    uint32_t *n_short;  /* [n] */
    uint64_t *groups;   /* [n] sets */
    uint32_t *size;     /* [n] */
    double *least_away; /* [n] */
    uint32_t *nearest;  /* [n] */
} tt_cutsearch;

/* What a cut must explain to be worth it. */
static inline double tt_cut_price(const tt_plane *p)
{
    return 12 + 4 * log(p->n);
}

/* cutsearch_gain.c. Before: expected rates are set, looks are told. */
tutti_err tt_cutsearch_prepare(tt_plane *p);
void tt_cutsearch_expect(tt_plane *p);
void tt_cutsearch_start(tt_plane *p, const uint64_t *in);
void tt_cutsearch_flip(tt_plane *p, uint64_t *in, uint32_t leaf);
/* The gain of the set that was started (and flipped), and a rate for it. */
double tt_cutsearch_gain(tt_plane *p, int mode, double *bps);

/* cutsearch_groups.c: calls `each` with groups of atoms (as sets of leaves)
 * that behave alike. */
void tt_cutsearch_groups(tt_plane *p,
                         void (*each)(tt_plane *, const uint64_t *));

/* cutsearch_sets.c: fills s->found with sets of kids of node v that may be
 * cuts, new ones, best first. */
void tt_cutsearch_sets(tt_plane *p, uint32_t v);
/* From s->set, a set of kids of node v, to the best near it. */
void tt_cutsearch_improve(tt_plane *p, uint32_t v, int mode,
                          double gain_bps[2]);
bool tt_is_known(const tt_plane *p, const uint64_t *set);

#endif
