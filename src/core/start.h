/* SPDX-License-Identifier: BSD-3-Clause
 * start.h - what create.c and connect.c share while a communicator is made. */
#ifndef TT_CORE_START_H
#define TT_CORE_START_H

#include <sched.h>

#include "core/core.h"

#define MAX_TRANSPORTS 8

/* What a rank tells all others first; equal-sized. */
typedef struct hello {
    tt_host_id host;
    tt_agreed settings;            /* only rank 0's count */
    cpu_set_t cpus;                /* that the process may use */
    uint8_t order[MAX_TRANSPORTS]; /* rows + 1, MAY_MISS; likewise */
} hello;

typedef struct start {
    const tt_mem *mem;  /* for what goes when the call ends */
    const tt_mem *keep; /* the same, at an address that lasts with the mesh */
    tt_mem **home;      /* of keep, for the mesh to take */
    tt_settings settings;
    tt_launch launch;
    uint64_t deadline_ns;
    tt_boot *boot;
    uint32_t rank, n;
    hello *hellos;                 /* [n] */
    tt_net *nets[MAX_TRANSPORTS];  /* by row; NULL: not open, or the mesh's */
    tt_net *known[MAX_TRANSPORTS]; /* the same, also when they are the mesh's */
    tt_arena kept;                 /* for the mesh */
    tt_settings *net_settings;     /* there */
    unsigned char *cards;          /* [n * card_bytes], there */
    size_t card_bytes;
    tt_port_opts *ports; /* [n] */
    tt_rail_hints hints;
    tt_rails rails;    /* ports beyond these */
    tt_engine *engine; /* NULL: not taken */
    tt_mesh *mesh;
    uint32_t *hosts; /* [n] */
    tt_agreed agreed;
    tt_known told;            /* rank 0: what it has been told */
    tutti_topology *topology; /* NULL: not known */
    tutti_diag *diag;
} start;

/* connect.c; all but the first are for all ranks together. */

/* TUTTI_TRANSPORTS into hello.order. */
tutti_err tt_start_order(const start *st, uint8_t *order);
/* Every rank learns whether all are well; of those that are not the first of
 * those who know most is named. */
tutti_err tt_start_agree(start *st, tutti_err mine);
/* Opens transports, and tells their addresses. */
tutti_err tt_start_offer(start *st);
/* By which transports each rank may be reached, by how many ports. */
tutti_err tt_start_ports(start *st);
/* The mesh, by st->engine; not for all together. */
tutti_err tt_start_mesh(start *st);
/* Connects what is to be connected at the start. */
tutti_err tt_start_connect(start *st);
/* Frees what has not become the mesh's. */
void tt_start_clean(start *st);

/* On the same machine, in the same network namespace. */
bool tt_start_is_near(const hello *a, const hello *b);

#endif
