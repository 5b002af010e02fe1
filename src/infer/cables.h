/* SPDX-License-Identifier: BSD-3-Clause
 * cables.h - planes of two ports. Private to the folder. */
#ifndef TT_INFER_CABLES_H
#define TT_INFER_CABLES_H

#include "infer/infer.h"

enum { TT_CABLE_PASSES = 3 };

/* Rates that were measured one way. */
typedef struct tt_cable_way {
    double alone_bps[TT_CABLE_PASSES], together_bps[TT_CABLE_PASSES];
    uint32_t n_alone, n_together;
} tt_cable_way;

typedef struct tt_cable {
    uint32_t port[2]; /* the lesser first */
    uint32_t host[2];
    bool can[2];         /* forth, back */
    uint32_t colour;     /* when it is measured alone */
    tt_cable_way way[2]; /* forth, back */
    double latency_s;    /* INFINITY: not told */
} tt_cable;

typedef struct tt_cables {
    tt_cable *list;
    uint32_t n, n_colours;
    uint32_t n_told;   /* looks */
    uint32_t n_passes; /* that are wanted */
} tt_cables;

/* When is which measured? Hosts are below n_hosts. ENOMEM. */
tutti_err tt_cables_plan(tt_cables *c, uint32_t n_hosts, const tt_mem *mem);
/* Looks that are left. */
uint32_t tt_cables_left(const tt_cables *c);
/* Is this way of the cable measured in the present look? */
bool tt_cables_now(const tt_cables *c, uint32_t cable, int back);
/* NAN: not measured. */
void tt_cables_told(tt_cables *c, uint32_t cable, int back, double bps);
/* The present look is over. */
void tt_cables_step(tt_cables *c);
/* The cable's rate; 0: nothing was measured. *together: while all are in use;
 * 0: not measured. */
double tt_cable_rate(const tt_cable *c, int back, double *together);

#endif
