/* SPDX-License-Identifier: BSD-3-Clause
 * genspec.h - a generator spec, read: what to make, how large, how fast, who
 * sits where. Private to the folder.
 *
 * Circles  generate.c genspec.c: a generator has its spec read, which finds the
 *          row of its name, which names the maker */
#ifndef TT_TOPOLOGY_GENSPEC_H
#define TT_TOPOLOGY_GENSPEC_H

#include "topology/network.h"

enum { TT_MAX_KINDS = 3 };

/* A kind of link that a generator makes, and what it is unless told. */
typedef struct tt_link_kind {
    const char *name;  /* NULL: no more */
    uint64_t rate_bps; /* 0: follows from the others */
    uint64_t latency_ps;
} tt_link_kind;

typedef struct tt_gen tt_gen;

/* A row of the table of generators. */
typedef struct tt_generator {
    const char *name, *form, *blurb;
    char separator;       /* between the numbers of the shape */
    uint32_t least, most; /* how many numbers the shape has; most 0: any */
    bool may_scale;       /* two numbers or more are multiples of the rate */
    tt_link_kind kinds[TT_MAX_KINDS + 1];
    /* Adds all nodes and links; checks what the reader cannot. */
    void (*make)(tt_gen *g);
} tt_generator;

/* A row of the table of machines: another name for a spec. */
typedef struct tt_machine {
    const char *name, *spec, *blurb;
} tt_machine;

extern const tt_generator tt_generators[]; /* ends with a NULL name */
extern const tt_machine tt_machines[];     /* the same */

typedef enum tt_order {
    TT_ORDER_GIVEN,
    TT_ORDER_INTERLEAVED,
    TT_ORDER_RANDOM
} tt_order;

typedef struct tt_speed {
    uint64_t up_bps, down_bps, latency_ps;
} tt_speed;

/* `nic.7=100Mbit`: one link of a kind. */
typedef struct tt_override {
    uint32_t kind, index;
    tt_speed speed; /* rates 0: not said */
    bool has_latency;
    tt_spot at;
} tt_override;

typedef struct tt_genspec {
    tt_arena arena; /* of the lists */
    const tt_generator *generator;
    tt_spot shape_at;
    uint32_t n_numbers;
    uint32_t *numbers;   /* [n_numbers]; NULL when they are multiples */
    tt_decimal *factors; /* [n_numbers]; NULL when they are not */
    size_t cap_numbers, cap_factors;
    tt_speed speeds[TT_MAX_KINDS];
    tt_override *overrides; /* in order of kind and index */
    size_t n_overrides, cap_overrides;
    tt_order order;
    uint64_t seed;
    bool ends_routes; /* hosts do not forward */
} tt_genspec;

/* Reads; tt_arena_free(&out->arena) in any case. */
tutti_err tt_genspec_read(const tt_mem *mem, const char *spec, tt_genspec *out,
                          tutti_diag *diag);

#endif
