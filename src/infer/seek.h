/* SPDX-License-Identifier: BSD-3-Clause
 * seek.h - what weigh.c, kin.c and seek.c share: the search for cuts. */
#ifndef TT_INFER_SEEK_H
#define TT_INFER_SEEK_H

#include "infer/plane.h"

/* A set that may be a cut. */
typedef struct tt_found {
    uint64_t *in;
    double gain, bps;
} tt_found;

enum {
    TT_MAX_FOUND = 16,
    TT_SEEK_LEAVES =
        1024 /* more are not searched: memory and time are leaves^2 */
};

/* The best so far, best first. */
typedef struct tt_pool {
    tt_found list[TT_MAX_FOUND];
    uint32_t n;
} tt_pool;

/* Of the flows that cross a set in one round. */
typedef struct tt_sum {
    double got, wanted, loss;
    uint32_t n;
} tt_sum;

typedef struct tt_seeker {
    uint32_t *first, *mine; /* flows of each leaf, sent or received */
    uint32_t *look_of;      /* of each flow */
    double *loss; /* of each flow: log(measured / expected), clipped */
    tt_sum *sums; /* of each look */
    size_t caps[4];
    uint64_t *set, *other;
    tt_pool found[2], seeds[2]; /* by mode */
    /* What moves together: the kids of one node. */
    uint32_t n_atoms;
    uint32_t *atom_first, *atom_leaf; /* leaves of each atom */
    uint32_t *atom_of;                /* of each leaf; TT_NONE */
    bool is_root;
    /* kin.c */
    double *away;       /* [n][n] */
    double *seen;       /* [n][n] */
    double *level;      /* [n] */
    uint32_t *n_short;  /* [n] */
    uint64_t *groups;   /* [n] sets */
    uint32_t *size;     /* [n] */
    double *least_away; /* [n] */
    uint32_t *nearest;  /* [n] */
} tt_seeker;

/* weigh.c. Before: expected rates are set, looks are told. */
tutti_err tt_weigh_prepare(tt_plane *p);
void tt_weigh_expect(tt_plane *p);
void tt_weigh_start(tt_plane *p, const uint64_t *in);
void tt_weigh_flip(tt_plane *p, uint64_t *in, uint32_t leaf);
/* The gain of the set that was started (and flipped), and a rate for it. */
double tt_weigh(tt_plane *p, int mode, double *bps);

/* kin.c: calls `each` with groups of atoms (as sets of leaves) that behave
 * alike. */
void tt_kin_groups(tt_plane *p, void (*each)(tt_plane *, const uint64_t *));

/* climb.c: fills s->found with sets of kids of node v that may be cuts, new
 * ones, best first. */
void tt_climb_find(tt_plane *p, uint32_t v);
/* From s->set, a set of kids of node v, to the best near it. */
void tt_climb_from(tt_plane *p, uint32_t v, int mode, double gain_bps[2]);
bool tt_is_known(const tt_plane *p, const uint64_t *set);

#endif
