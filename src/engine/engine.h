/* SPDX-License-Identifier: BSD-3-Clause
 * engine.h - performs schedules: the face of src/engine.
 *
 *   engine  one per process: a lock, a thread, the nets it drives
 *   mesh    the ranks that met at start-up, and the conns between them
 *   team    a communicator: an id, members of a mesh, its calls in order
 *   op      one collective being performed: a bound part (lower.h), buffers,
 *           counters
 *
 * Everything below marked [locked] is called with the engine's lock held.
 * docs/engine.md explains slices, credit and order, and why it cannot hang.
 * Next: op.c (how an op advances), engine.c (messages), drive.c (threads). */
#ifndef TT_ENGINE_ENGINE_H
#define TT_ENGINE_ENGINE_H

#include "engine/layout.h"
#include "engine/lower.h"
#include "engine/reduce.h"
#include "engine/wire.h"

typedef struct tt_engine tt_engine;
typedef struct tt_mesh tt_mesh;
typedef struct tt_team tt_team;
typedef struct tt_op tt_op;

/* --------------------------------------------------------------- engine -- */

typedef struct tt_engine_opts {
    uint64_t spin_ns;       /* how long a wait polls before it sleeps */
    uint64_t spin_large_ns; /* while a call of more than 64 KiB is on the way */
    /* The engine's thread while nobody waits: the program may be computing on
     * the same processors. */
    uint64_t spin_aside_ns;
    uint64_t liveness_ns; /* 0: only closed connections count */
    /* A call that has told a partner nothing for so long says that it is
     * there (BIND): see wire.h. */
    uint64_t speak_ns;
    bool yields; /* more ranks than cores on this host */
} tt_engine_opts;

tutti_err tt_engine_create(const tt_mem *mem, const tt_engine_opts *opts,
                           tt_engine **out, tutti_diag *diag);
/* All meshes must be gone. Stops the thread. Accepts NULL. */
void tt_engine_destroy(tt_engine *e);
/* Starts the engine thread; without it only waits and steps make progress. */
tutti_err tt_engine_start(tt_engine *e, tutti_diag *diag);

void tt_engine_lock(tt_engine *e);
void tt_engine_unlock(tt_engine *e);

/* For one more communicator: where it has more ranks than cores on this host
 * waits yield, and poll no longer than opts has it; nor does the engine's thread
 * in any case. [locked] */
void tt_engine_restrain(tt_engine *e, const tt_engine_opts *opts);

/* One pass over all nets; true when anything moved. [locked] */
bool tt_engine_step(tt_engine *e);

/* Drives, or lets others drive, until ready(arg); what it looks at changes
 * only in done callbacks and team failures. [unlocked; any thread] */
void tt_engine_wait(tt_engine *e, bool (*ready)(const void *arg),
                    const void *arg);
/* The same for a caller that holds the lock, once. [locked; any thread] */
void tt_engine_wait_locked(tt_engine *e, bool (*ready)(const void *arg),
                           const void *arg);

/* One pass if nobody else is at it; never blocks. [unlocked] */
void tt_engine_poke(tt_engine *e);

/* Work was handed in: whoever drives must see it. waits: the caller will wait
 * for it, else the thread takes over when nobody drives. [locked] */
void tt_engine_kick(tt_engine *e, bool waits);
/* Sends what has been handed in by now. [locked] */
void tt_engine_flush(tt_engine *e);
/* Something that a sleeping wait may be waiting for has happened. [locked] */
void tt_engine_wake(tt_engine *e);
/* The same where it did not happen in a pass. [locked; any thread] */
void tt_engine_alert(tt_engine *e);

/* ----------------------------------------------------------------- mesh -- */

/* A pair of ranks has one port, or several where rails between them use
 * different interfaces; each has a conn of its own. Port 0 carries what
 * belongs to no transfer.
 *
 * conns[r] for every other rank: port 0. more: the other ports, of each rank in
 * order; both ends have as many. The mesh owns nets and conns (memory from mem
 * by their ops' sizes) once it returns TUTTI_OK. */
typedef struct tt_mesh_opts {
    uint32_t rank, n_ranks, n_nets, n_more;
    tt_net **nets;   /* [n_nets] */
    tt_conn **conns; /* [n_ranks], own is NULL */
    tt_conn **more;  /* [n_more]; conn->rank says whose; may be NULL */
    /* Calls that cost a partner at most so much (lower.h: out_cost) do not
     * wait for it; equal on all ranks; 0: all wait. */
    uint64_t eager_bytes;
    tt_mem *home; /* mem itself, to be freed last; NULL: static */
} tt_mesh_opts;
tutti_err tt_mesh_create(tt_engine *e, const tt_mem *mem,
                         const tt_mesh_opts *opts, tt_mesh **out);
/* The engine's upcalls, for tt_net.up before the net's open. */
extern const tt_net_up tt_engine_up;
tt_mesh *tt_mesh_ref(tt_mesh *mesh);
/* The last one flushes, closes and frees everything. [unlocked] */
void tt_mesh_unref(tt_mesh *mesh);
const tt_mem *tt_mesh_mem(const tt_mesh *mesh);
/* What is known of a port's conn to a rank; false: nothing. [locked] */
bool tt_mesh_pace(const tt_mesh *mesh, uint32_t rank, uint32_t port,
                  tt_net_pace *out);
const char *tt_mesh_transport(const tt_mesh *mesh, uint32_t rank);
/* Ports to another rank: at least 1. */
uint32_t tt_mesh_n_ports(const tt_mesh *mesh, uint32_t rank);
/* The port whose conn has this rail; 0 when none has. */
uint8_t tt_mesh_port(const tt_mesh *mesh, uint32_t rank, uint64_t rail);

/* ----------------------------------------------------------------- team -- */

/* members[i]: the mesh rank of rank i. Takes a reference on the mesh. */
tutti_err tt_team_create(tt_mesh *mesh, uint64_t id, const uint32_t *members,
                         uint32_t n, tt_team **out);
/* Ends what is open with EABORTED, says BYE, frees. [locked] */
void tt_team_leave(tt_team *team);

/* Ends all ops with err; tells the other members. The first failure stays.
 * culprit: rank in the team or TT_NONE. [locked] */
void tt_team_fail(tt_team *team, tutti_err err, uint32_t culprit,
                  const char *text);
/* TUTTI_OK while all is well; text: where it is kept (never NULL). [locked] */
tutti_err tt_team_state(const tt_team *team, const char **text);
/* No call of all ranks is open; messages may be. [locked] */
bool tt_team_is_between_calls(const tt_team *team);
double tt_team_lateness(const tt_team *team, uint32_t rank);
/* The mesh rank of a member. */
uint32_t tt_team_member(const tt_team *team, uint32_t rank);

/* ------------------------------------------------------------------- op -- */

/* In a channel of messages, above the bits that tell the pair: the tag. */
#define TT_CHANNEL_TAG 33

/* Reference-counted home of a bound part and its idle ops. */
typedef struct tt_plan tt_plan;
/* Takes the bound part. */
tutti_err tt_plan_create(tt_bound *bound, const tt_mem *mem, tt_plan **out);
void tt_plan_ref(tt_plan *plan);   /* [locked] */
void tt_plan_unref(tt_plan *plan); /* accepts NULL; [locked] */
const tt_bound *tt_plan_bound(const tt_plan *plan);

typedef struct tt_op_start {
    tt_plan *plan;
    tt_call call;
    uint64_t channel; /* 0: the team's collectives, seq counted by the team;
                         others: point to point, seq given */
    uint64_t seq;
    const uint32_t *members; /* schedule rank -> team rank; NULL: identity */
    const void *in;
    void *out;
    uint64_t in_elems; /* of `in`, for pre-scaling and in-place copies */
    bool copies_input; /* perform on a copy of the input */
    double scale;      /* SCALED_SUM */
    int priority;
    uint64_t deadline_ns; /* absolute */
    uint64_t now_ns;      /* when it is called; 0: ask the clock */
    /* Called once, [locked], when the op is over; not when start fails. */
    void (*done)(void *arg, tutti_err err);
    void *arg;
} tt_op_start;

/* Starts it; it may be over (done called) on return. Errors: ENOMEM; the
 * team's failure. [locked] */
tutti_err tt_op_begin(tt_team *team, const tt_op_start *start);

/* A receive from whoever sends first, until it has found out: then its owner
 * begins an ordinary one. The owner's memory. */
typedef struct tt_any {
    struct tt_any *next; /* the engine's, like team */
    tt_team *team;
    uint64_t start_ns, deadline_ns;
    int tag; /* for sentences */
    /* What the next message from `rank` would be. [locked] */
    void (*expect)(const struct tt_any *any, uint32_t rank, uint64_t *channel,
                   uint64_t *seq);
    /* Called once: `rank` has sent, and its message is to be received now; or
     * err, and the team has failed or is left. The engine knows it no more.
     * [locked] */
    void (*found)(struct tt_any *any, uint32_t rank, tutti_err err);
} tt_any;
/* May call found before it returns. [locked] */
void tt_any_begin(tt_team *team, tt_any *any);

#endif
