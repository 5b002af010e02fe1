/* SPDX-License-Identifier: BSD-3-Clause
 * steps.h - what create.c and connect.c share while a communicator is made;
 * steps.c has what each of them needs. Private to src/start. */
#ifndef TT_START_STEPS_H
#define TT_START_STEPS_H

#include <sched.h>

#include "start/start.h"

#define MAX_TRANSPORTS 8

/* What a rank tells rank 0 first. */
typedef struct hello {
    tt_host_id host;
    cpu_set_t cpus; /* that the process may use */
    bool has_rate;  /* TUTTI_RATE */
    /* What messages go by; interfaces: by which costs are found again. 0 where
     * a network is named. */
    uint64_t print[2];
} hello;

/* What rank 0 then tells all; equal on all ranks from then on. */
typedef struct rules {
    tt_agreed settings;
    uint8_t order[MAX_TRANSPORTS]; /* of transports: rows + 1 */
} rules;

/* A host of the job, as all know it. */
typedef struct tt_start_host {
    char name[64];
    /* Ranks on its machine, and the processors that any of them may use. Hosts
     * that are containers share them. */
    uint32_t n_here, n_cpus;
} tt_start_host;

/* Of every rank, told to all: that much is needed to know who is connected by
 * what. */
typedef struct tt_offer {
    uint32_t max_payload, used_payload; /* see tt_agreed */
    uint8_t rows; /* of the table: a bit for each transport that it has */
    uint8_t none[3];
} tt_offer;

/* The ports beyond port 0, and their nets. */
typedef struct tt_rails {
    uint32_t n_nets;
    tt_net *nets[TT_PORTS_MAX - 1];
    tt_port_opts *more; /* of each rank in order of port */
    size_t n_more, cap;
} tt_rails;

typedef struct start {
    const tt_mem *mem;  /* for what goes when the call ends */
    tt_arena passing;   /* of mem: the same, freed with the start */
    const tt_mem *keep; /* the same, at an address that lasts with the mesh */
    tt_mem **home;      /* of keep, for the mesh to take */
    const tt_start_how *how; /* NULL: options and environment say it */
    tt_settings settings;
    tt_launch launch;
    uint64_t deadline_ns;
    tt_boot *boot;
    uint32_t rank, n;
    uint8_t order[MAX_TRANSPORTS]; /* rank 0's; see rules */
    uint8_t wish[MAX_TRANSPORTS];  /* this rank's own */
    tt_net *nets[MAX_TRANSPORTS];  /* by row; NULL: not open, or the mesh's */
    tt_net *known[MAX_TRANSPORTS]; /* the same, also when they are the mesh's */
    tt_arena kept;                 /* for the mesh */
    tt_settings *net_settings;     /* there */
    tt_offer *offers;              /* [n] */
    unsigned char *cards;          /* [n * card_bytes], of the mesh */
    uint32_t card_bytes;
    tt_port_opts *ports; /* [n] */
    tt_rail_hints hints;
    tt_rails rails;    /* ports beyond these; its lists: of keep */
    tt_engine *engine; /* NULL: not taken */
    tt_mesh *mesh;
    uint32_t *hosts;       /* [n] the number of each rank's host */
    uint32_t *cpus;        /* [n] see tt_owncpu_home() */
    tt_start_host *places; /* [agreed.n_hosts] */
    tt_agreed agreed;
    tt_known told;        /* rank 0: what it has been told */
    uint64_t costs_print; /* rank 0: by what costs are kept; 0: they are not */
    bool looks_for_costs; /* TUTTI_COSTS=auto */
    bool costs_are_found; /* rank 0: they were kept */
    tutti_topology *topology; /* NULL: not known */
    const tt_iface_cap *caps; /* [n_caps] of this host's interfaces; in kept */
    uint32_t n_caps;
    tutti_diag *diag;
} start;

static inline const tt_start_host *tt_start_own_host(const start *st)
{
    return &st->places[st->hosts[st->rank]];
}

/* More threads of ranks, so many each, on this machine than processors that any
 * rank may use. Each rank alone may be bound to one, and hosts that are
 * containers share them. */
static inline bool tt_start_is_crowded(const start *st, uint32_t n_threads)
{
    const tt_start_host *own = tt_start_own_host(st);
    return own->n_here * n_threads > own->n_cpus;
}

/* Ranks q and r of one host share a processor (base/owncpu.h). */
static inline bool tt_start_share_home(const start *st, uint32_t q, uint32_t r)
{
    return st->agreed.n_hosts == 1 && st->cpus[q] != TT_NONE &&
           st->cpus[q] == st->cpus[r];
}

/* -------------------------------------------------------------- steps.c */

/* Of a rank's host. */
const char *tt_start_host_name(const start *st, uint32_t rank);

/* TUTTI_TRANSPORTS into hello.order. */
tutti_err tt_start_order(const start *st, uint8_t *order);
/* Into a number from 0; false: that is the end. */
bool tt_start_row(uint8_t entry, uint8_t *row);
/* Opens the transports of this rank's order; what was not asked for by name is
 * no reason to fail. */
tutti_err tt_start_nets(start *st);
/* Opens one, as *out, which is the caller's to drop even when it fails (NULL:
 * out of memory). */
tutti_err tt_start_net(start *st, const tt_net_ops *ops, tt_net **out);
/* All ranks: every rank learns whether all are well; of those that are not the
 * first of those who know most is named. */
tutti_err tt_start_agree(start *st, tutti_err mine);

/* -------------------------------------- connect.c: all ranks together */

/* Opens transports, and tells which. */
tutti_err tt_start_offer(start *st);
/* By which transports each rank may be reached, by how many ports, and
 * where. */
tutti_err tt_start_ports(start *st);
/* The mesh, by st->engine; not for all together. */
tutti_err tt_start_mesh(start *st);
/* How long a connection is tried for that is needed later. */
uint64_t tt_start_dial_ns(const start *st);
/* Connects what is to be connected at the start. */
tutti_err tt_start_connect(start *st);
/* Frees what has not become the mesh's. */
void tt_start_clean(start *st);

/* --------------------------------------------------------------- caps.c */

/* All ranks, when the network is known: what each host may send is in it, and
 * this host's in st->caps. Errors: ECONFIG, ENOMEM, those of boot. */
tutti_err tt_start_caps(start *st);

/* ----------------------------------------------------------- keptcosts.c */

/* What a rank tells of itself: beside its processors; of its interfaces. */
void tt_start_costs_print(const start *st, const char *host, uint64_t print[2]);
/* Rank 0, which knows who is where: what was kept, into st->agreed. */
void tt_start_costs_look(start *st, const hello *hellos);
/* On rank 0; elsewhere it does nothing. */
void tt_start_costs_keep(const start *st, const tutti_costs *costs);

/* ------------------------------------------------------------- costs.c */

/* TUTTI_COSTS into st->agreed. Errors: ECONFIG. */
tutti_err tt_start_costs_read(start *st);
/* Are they to be measured, as far as this rank knows? */
bool tt_start_costs_are_wanted(const start *st);
/* All ranks together: what is to be measured, into comm->agreed. Errors: those
 * of boot; ENOMEM, on all. */
tutti_err tt_start_costs(start *st, tutti_comm *comm);

/* --------------------------------------------------------------
 * neighbours.c */

/* By way of whom each rank is reached, in st->kept, but for what they have
 * told; by NULL: all reach each other, as far as is known. Errors: ENOMEM. */
tutti_err tt_start_reach(start *st, tt_net_reach *out);

#endif
