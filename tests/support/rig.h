/* SPDX-License-Identifier: BSD-3-Clause
 * rig.h - N ranks inside one thread: an engine, a mesh and two teams each,
 * joined by any same-process transport, and stepped in an order that a seed
 * decides. */
#ifndef TT_TESTS_RIG_H
#define TT_TESTS_RIG_H

#include "base/rng.h"
#include "engine/engine.h"

enum { TT_RIG_TEAMS = 2 };

typedef struct tt_rig_opts {
    uint32_t n;
    const tt_net_ops *ops; /* the transport, often tt_net_loop */
    const tt_mem *mem;
    uint64_t eager_bytes;
    uint64_t direct_bytes; /* buffers from so many bytes are granted; 0: none */
    uint64_t liveness_ns;  /* 0: silence does not count */
    uint64_t reconnect_ns; /* 0: what drops, or is silent, is lost at once */
    bool is_checked;       /* net/checked.c is over the transport */
    bool is_linked;        /* neighbours of the control graph are connected */
    bool is_silent;        /* a rank says BIND only where it must; else soon */
    tt_regions *regions;   /* [n] memory that the others may map; NULL: none */
    struct tt_trust *trust; /* who is let in (link/trust.h); NULL: anybody */
    uint32_t n_ports; /* at most so many per pair, some have fewer; 0: one */
} tt_rig_opts;

/* Ports of a pair in a rig where there are at most n_ports. */
uint32_t tt_rig_n_ports(uint32_t a, uint32_t b, uint32_t n_ports);

typedef struct tt_rig {
    uint32_t n, n_ports;
    tt_settings settings;
    const tt_mem *mem;
    tt_engine **engines;
    tt_mesh **meshes;
    tt_team **teams[TT_RIG_TEAMS]; /* NULL: has been left */
} tt_rig;

/* Errors as the library's. */
tutti_err tt_rig_create(const tt_rig_opts *opts, tt_rig *out);
void tt_rig_destroy(tt_rig *rig);
/* So many passes of every engine, in turn. */
void tt_rig_step(const tt_rig *rig, int rounds);

typedef struct tt_rig_call {
    const tutti_schedule *schedule;
    tutti_type type;
    tutti_op op;
    uint64_t count;
    const size_t *counts;
    bool in_place;
    uint32_t window;
    uint64_t front_bytes, front_window_bytes;
    uint64_t seed;
    uint32_t team;
} tt_rig_call;

/* Performs collectives on random data: every rank begins those of a team in
 * order, mixes teams as it likes, waits for none, and is stepped until all are
 * done; compares with a reference. false: `why` says what went wrong (stuck,
 * wrong, error). */
bool tt_rig_perform(tt_rig *rig, const tt_rig_call *calls, uint32_t n_calls,
                    char *why, size_t why_size);

#endif
