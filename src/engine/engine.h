/* SPDX-License-Identifier: BSD-3-Clause
 * engine.h - performs schedules over transports: the face of src/engine.
 *
 *   engine  one per process: a lock, a thread, the nets it drives
 *   mesh    the ranks that met at start-up, and the conns between them; or, an
 *           open one, ranks at which processes sit that come and go
 *   team    a communicator: an id, members of a mesh, its calls in order
 *   op      one collective being performed: a bound part (walk/lower.h),
 *           buffers, counters
 *
 * Everything below marked [locked] is called with the engine's lock held.
 * engine.md explains slices, credit and order, and why it cannot hang.
 * Circles  differ.c op.c team.c: a call that finds a fault, or differs from a
 *          partner's, fails its team, and a team that fails ends its calls.
 * Circles  giver.c near.c: a call hands its kernels in, and the thread asks it
 *          for them.
 * Next: walk/walk.h (how an op advances), op.c (its life), engine.c (messages),
 * drive.c (threads). */
#ifndef TT_ENGINE_ENGINE_H
#define TT_ENGINE_ENGINE_H

#include "base/str.h"
#include "engine/agree.h"
#include "engine/wire.h"
#include "walk/walk.h"

typedef struct tt_engine tt_engine;
typedef struct tt_mesh tt_mesh;
typedef struct tt_team tt_team;
typedef struct tt_op tt_op;
struct tt_trail; /* base/trail.h */

/* --------------------------------------------------------------- engine -- */

typedef struct tt_engine_opts {
    uint64_t spin_ns;       /* how long a wait polls before it sleeps */
    uint64_t spin_large_ns; /* while a call of more than 64 KiB is on the way */
    /* The engine's thread while nobody waits: the program may be computing on
     * the same processors. */
    uint64_t spin_aside_ns;
    uint64_t liveness_ns; /* 0: only closed connections count */
    /* How long a peer that is silent, or whose connection has dropped, may stay
     * away before it is lost; 0: not at all. */
    uint64_t reconnect_ns;
    /* A call that has told a partner nothing for so long says that it is
     * there (BIND): see wire.h. */
    uint64_t speak_ns;
    /* A call that waits for so long says for whom; 0: never. */
    uint64_t patience_ns;
    /* More ranks than cores on this host: so many polls before the processor is
     * offered to others; 0: there are enough. */
    uint32_t crowd_polls;
    /* With that: the processor that this rank shares, and 1; 0: any. */
    uint32_t home_cpu;
    /* With that: polls while the small call that was begun last waits for ranks
     * of other homes alone, and has lent nothing; 0: as crowd_polls. While it
     * waits for a rank of the same home there is one. */
    uint32_t apart_polls;
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
 * waits yield, and poll no longer than opts has it; nor does the engine's
 * thread in any case. The first home stays. [locked] */
void tt_engine_restrain(tt_engine *e, const tt_engine_opts *opts);

/* One pass over all nets; true when anything moved. [locked] */
bool tt_engine_step(tt_engine *e);

/* Drives, or lets others drive, until ready(arg); what it looks at changes
 * only in done callbacks and team failures, or tt_engine_wake() tells. is_long:
 * it does not poll while no call is in flight. [unlocked; any thread] */
void tt_engine_wait(tt_engine *e, bool (*ready)(const void *arg),
                    const void *arg, bool is_long);
/* The same for a caller that holds the lock, once. [locked; any thread] */
void tt_engine_wait_locked(tt_engine *e, bool (*ready)(const void *arg),
                           const void *arg);

/* One pass if nobody else is at it; never blocks. [unlocked] */
void tt_engine_poke(tt_engine *e);

/* Work was handed in: whoever drives must see it. waits: the caller will wait
 * for it, else the thread takes over when nobody drives. [locked] */
void tt_engine_kick(tt_engine *e, bool waits);
/* Likewise, and the caller waits for it: as tt_engine_wait_locked(). */
void tt_engine_see_through(tt_engine *e, bool (*ready)(const void *arg),
                           const void *arg);
/* Sends what has been handed in by now. [locked] */
void tt_engine_flush(tt_engine *e);
/* Something that a wait may be waiting for has happened, in a pass or
 * elsewhere. [locked; any thread] */
void tt_engine_wake(tt_engine *e);
/* Of all communicators of the process: no call, message or word is waited for.
 * [locked] */
bool tt_engine_is_idle(const tt_engine *e);
/* ... so many calls and messages were begun. [locked] */
uint64_t tt_engine_issued(const tt_engine *e);

/* ----------------------------------------------------------------- mesh -- */

/* A pair of ranks has one port, or several where rails between them use
 * different interfaces; each has a connection of its own. Port 0 carries what
 * belongs to no transfer. */

/* By which net a port may be reached, and at what address, as the other side's
 * net has told it. */
typedef struct tt_access {
    tt_net *net;
    const void *addr;
    size_t addr_bytes;
} tt_access;

typedef struct tt_port_opts {
    uint32_t rank;
    uint64_t rail;       /* for tt_mesh_port() */
    tt_access *accesses; /* in the order of trying; both ends have the
                                  same nets, each net at most once */
    uint32_t n_accesses; /* 0: the own rank */
    bool is_apart;    /* no route leads there: it is dialled for a call only */
    bool shares_home; /* home_cpu, with this rank */
} tt_port_opts;

/* ports[r]: port 0 of each rank. more: the other ports, of each rank in order;
 * both ends have as many. An open mesh has neither: nobody is known at first,
 * more ranks may come, and it has groups only. The mesh owns the nets (memory
 * from mem by their ops' sizes) and what is kept once it returns TUTTI_OK. */
typedef struct tt_mesh_opts {
    uint32_t rank, n_ranks, n_nets, n_more;
    uint32_t most_ranks;       /* an open one's; 0: n_ranks */
    tt_net **nets;             /* [n_nets] */
    const tt_port_opts *ports; /* [n_ranks]; NULL: it is open */
    const tt_port_opts *more;  /* [n_more]; may be NULL */
    /* Calls that cost a partner at most so much (walk/lower.h: out_cost) do not
     * wait for it; equal on all ranks; 0: all wait. */
    uint64_t eager_bytes;
    uint64_t dial_ns; /* how long a connection is tried for */
    /* In which accesses, and what nets read, may lie; of mem. It is the mesh's
     * then. */
    tt_arena kept;
    tt_mem *home; /* mem itself, to be freed last; NULL: static */
} tt_mesh_opts;
tutti_err tt_mesh_create(tt_engine *e, const tt_mem *mem,
                         const tt_mesh_opts *opts, tt_mesh **out);
/* There are so many ranks, from now on: of an open mesh, before its groups have
 * these. [unlocked] */
void tt_mesh_expect(tt_mesh *mesh, uint32_t n_ranks);
/* At the start, on all ranks: connects the ports of the ranks that are this
 * one's neighbours in the control graph, or of all. The others are dialled when
 * there is something to say. [unlocked] */
void tt_mesh_dial(tt_mesh *mesh, bool all);
/* Of these: OK, all are connected (without for_all: somebody is), or apart:
 * they cannot be reached, which is no error until a call needs them; AGAIN, not
 * yet, or nobody is connected; else why one is lost, or why nobody can be
 * reached; with the rank in the diagnosis. [unlocked] */
tutti_err tt_mesh_met(const tt_mesh *mesh, bool for_all, tutti_diag *diag);
/* From now on a connection to another host is tried for so long. Who is on this
 * one is waited for: it may be stopped, and the system tells of its end.
 * [unlocked] */
void tt_mesh_patience(tt_mesh *mesh, uint64_t dial_ns);
/* Of an open mesh: the process `id` sits at this rank, and is reached so
 * (copied; each net at most once, in the order of trying). Where another one
 * sat there that one has ended: its connection is dropped, and groups that need
 * it fail. It may have called before this. Errors: EPEER (it is known to have
 * been replaced by another), ENOMEM, EINVAL. [unlocked] */
tutti_err tt_mesh_seat(tt_mesh *mesh, uint32_t rank, const tt_link_id *id,
                       const tt_access *accesses, uint32_t n_accesses);
/* The engine's upcalls, for tt_net.up before the net's open. */
extern const tt_net_up tt_engine_up;
tt_mesh *tt_mesh_ref(tt_mesh *mesh);
/* The last one flushes, closes and frees everything. [unlocked] */
void tt_mesh_unref(tt_mesh *mesh);
/* Do its ranks pass on to others what these do not reach themselves? [any] */
bool tt_mesh_passes_on(const tt_mesh *mesh);
const tt_mem *tt_mesh_mem(const tt_mesh *mesh);
/* What is known of a port's conn to a rank; false: nothing. [locked] */
bool tt_mesh_pace(const tt_mesh *mesh, uint32_t rank, uint32_t port,
                  tt_net_pace *out);
/* That connects the rank, or will when it is needed. */
const char *tt_mesh_transport(const tt_mesh *mesh, uint32_t rank);
/* The same of all members of a team, but for this rank. [unlocked] */
bool tt_team_goes_by(const tt_team *team, const char *transport);
/* By which id the links of a net of the rank greet: of its first access, the
 * second and so on; false: there are no more. All zero: it tells none. Of a
 * mesh that is not open. [unlocked] */
bool tt_mesh_id(const tt_mesh *mesh, uint32_t rank, uint32_t access,
                tt_link_id *out);
/* The rank is lost, whatever it does: it is heard no more, and teams with it
 * fail. [unlocked] */
void tt_mesh_put_out(tt_mesh *mesh, uint32_t rank);
/* Ports to another rank: at least 1. */
uint32_t tt_mesh_n_ports(const tt_mesh *mesh, uint32_t rank);
/* The port whose conn has this rail; 0 when none has. */
uint8_t tt_mesh_port(const tt_mesh *mesh, uint32_t rank, uint64_t rail);

/* recording.c: from now on what calls do is recorded; the mesh's. The rank's
 * clock was compared with a parent's, a neighbour in the control graph, and is
 * from time to time; TT_NONE: it was not. [locked] */
void tt_mesh_record(tt_mesh *mesh, struct tt_trail *trail, uint32_t parent);

/* ----------------------------------------------------------------- team -- */

/* members[i]: the mesh rank of rank i. Takes a reference on the mesh.
 * [unlocked] */
tutti_err tt_team_create(tt_mesh *mesh, uint64_t id, const uint32_t *members,
                         uint32_t n, tt_team **out);
/* A group: a team that its members make without a word between them, as its
 * origin has told them. A process is in one group of an origin at a time, and
 * their numbers rise. It fails alone: its members that are connected are told,
 * no connection ends, and what is still on the way to it is dropped. It
 * outlives a member whose connection ends when no call that is open needs it.
 * In its sentences members have the numbers that they have in the mesh. Of an
 * open mesh a member that was lost before is tried again. */
typedef struct tt_group_opts {
    uint64_t origin, number;
    const uint32_t *members; /* as of tt_team_create() */
    uint32_t n;
} tt_group_opts;
/* It may have failed already: tt_team_state(). All that is for teams is for it.
 * [unlocked] */
tutti_err tt_group_create(tt_mesh *mesh, const tt_group_opts *opts,
                          tt_team **out);
/* Ends what is open with EABORTED, says BYE (of a group nothing, unless
 * something was open), frees, and gives the mesh back, of which the caller has
 * a reference. In a done callback: when the engine is through with the call.
 * Otherwise it waits, without the lock, while others use buffers of what was
 * open, a second at most. [locked] */
void tt_team_leave(tt_team *team);

/* Ends all ops with err; tells the other members. The first failure stays.
 * culprit: rank in the team or TT_NONE. [locked] */
void tt_team_fail(tt_team *team, tutti_err err, uint32_t culprit,
                  const char *text);
/* If the team whose ranks it was made from has failed, so does this one, by the
 * same loss where it has the lost rank, too. [locked] */
void tt_team_follow(tt_team *team, const tt_team *parent);
/* TUTTI_OK while all is well; text: where it is kept (never NULL). [locked] */
tutti_err tt_team_state(const tt_team *team, const char **text);
/* The same, and in which call it has failed: what the next call is told.
 * [locked] */
tutti_err tt_team_refusal(const tt_team *team, char *text, size_t size);
/* The mesh rank of a member that an open call of all ranks waits for, one that
 * has not entered it rather than one that has; and the call's number. TT_NONE:
 * there is no such call. [locked] */
uint32_t tt_team_awaits(const tt_team *team, uint64_t *seq, bool *has_entered);
/* What this rank says in an agreement of those members that are left. */
typedef struct tt_ballot {
    uint8_t what; /* the same on all ranks */
    uint32_t quorum;
    uint64_t mask, timeout_ns;
    const int *exclude; /* [n_exclude] members that are not waited for */
    int n_exclude;
} tt_ballot;
typedef struct tt_verdict {
    uint64_t comm, seq; /* seq: the number of the agreement */
    tt_opinion decision;
} tt_verdict;
/* Begins; all members that are left must, in the same order, also of a team
 * that has failed. Who does not come in time is lost to the others. Errors:
 * ENOMEM. [locked] */
tutti_err tt_team_agree(tt_team *team, const tt_ballot *own);
/* Of one that was begun: it is decided; for tt_engine_wait_locked(). */
bool tt_team_has_agreed(const void *team);
/* Then, once: *out, whose error is the decision's own. Errors: EPEER (the
 * others go on without this rank). [locked] */
tutti_err tt_team_decision(const tt_team *team, tt_verdict *out);
/* Words between rank 0 and all others, that the engines carry whatever the
 * programs do, in order; from the start of a team until a member leaves it. */
#define TT_WORD_MAX 248 /* bytes */
_Static_assert(TT_WORD_MAX <= TT_NET_INLINE, "fits inline");
typedef struct tt_listener {
    /* At rank 0 what another rank has said, at others what rank 0 has. False:
     * it makes no sense. [locked] */
    bool (*hear)(void *arg, uint32_t from, const void *bytes, uint32_t len);
    /* There will be no more words: a member has left. [locked] */
    void (*over)(void *arg);
} tt_listener;
/* [unlocked] */
void tt_team_listen(tt_team *team, const tt_listener *listener, void *arg);
/* Rank 0 says it to all others, they to it. Nothing where the team has failed;
 * nobody hears it where words are over. [locked] */
void tt_team_say(tt_team *team, const void *bytes, uint32_t len);
/* This rank waits for words: those who carry them must be alive. Who waits for
 * longer fails the team; 0: it does not wait any more. [locked] */
void tt_team_await(tt_team *team, uint64_t timeout_ns);
double tt_team_lateness(const tt_team *team, uint32_t rank);
/* The last calls, the oldest first, a line each; at most so many. [locked] */
void tt_team_print_calls(const tt_team *team, uint32_t most, tt_str *out);

/* How many calls there were, and how long they took in all, those apart that
 * were over at once. [locked] */
uint64_t tt_team_calls(const tt_team *team, double *seconds);

/* The communicator with the most ranks of each mesh, but for open ones: the
 * i-th; NULL: there are no more. [locked] */
tt_team *tt_engine_world(tt_engine *e, uint32_t i);
uint64_t tt_team_id(const tt_team *team);
uint32_t tt_team_size(const tt_team *team);
/* What this rank is at. [locked] */
void tt_team_look_here(const tt_team *world, tt_status *out);
/* Asks all others; answers come while somebody drives. Errors: ENOMEM.
 * [locked] */
tutti_err tt_team_look(tt_team *world);
/* Of the last look: everybody who can has answered. [locked] */
bool tt_team_has_seen_all(const tt_team *world);
/* What is known of a member since then. [locked] */
void tt_team_seen(const tt_team *world, uint32_t rank, tt_status *out);
/* The mesh rank of a member. */
uint32_t tt_team_member(const tt_team *team, uint32_t rank);

/* ------------------------------------------------------------------- op -- */

/* In a channel of messages, above the bits that tell the pair: the tag. */
#define TT_CHANNEL_TAG 33

/* A bound part with the ops that have performed it and will again. */
typedef struct tt_program tt_program;
/* Takes the reference to the bound part. */
tutti_err tt_program_create(tt_bound *bound, const tt_mem *mem,
                            tt_program **out);
void tt_program_unref(tt_program *program); /* accepts NULL; [locked] */
const tt_bound *tt_program_bound(const tt_program *program);

/* Words of a call in host memory that the GPU knows: what they tell each other.
 * All 0 at first. Of the GPU (64 bits) and of the host (32 bits). */
typedef struct tt_gpu_words {
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t ready; /* its event has happened */
    _Atomic uint64_t fetched; /* batches of the input that are here */
    _Atomic uint64_t done;    /* turn + 1: all results are there */
    /* turn + batches of results that are made; near: + 1: kernels may begin */
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t made;
    _Atomic uint32_t is_given; /* the GPU has all that it will be given */
} tt_gpu_words;

/* How far a call's turns lie apart: more than batches there can be. */
#define TT_GPU_TURN (UINT32_C(1) << 20)

typedef struct tt_gpu_way tt_gpu_way;
/* Of a call on memory of a GPU. `in` and `out` of its op are host memory of the
 * same shape, which the GPU knows. Or, the near way, the GPU's memory itself,
 * which all ranks have within reach. */
typedef struct tt_gpu_call {
    struct tt_streams *streams; /* NULL: it is no such call */
    struct tt_device *device;
    tt_gpu_words *words;
    const void *in; /* there */
    void *out;
    struct tt_engine *engine;
    uint64_t in_bytes, out_bytes; /* that this rank uses */
    void *after;                  /* an event that comes before; NULL: none */
    const tt_gpu_way *way; /* by which it goes; NULL: it is no such call */
    /* From which `made` counts: what the GPU was given behind that word can be
     * called off, and be given again (giver.c). */
    uint32_t turn;
    /* Set by way->give(). */
    uint32_t n_batches; /* borders: [n_batches] positions, of mem */
    uint32_t *borders;
    bool has_input, has_results;
    tt_device_place in_place, out_place; /* near: of in and out */
} tt_gpu_call;
/* What a GPU calls when it is done with something. [any thread] */
void tt_engine_bell(void *engine);

/* What such a call does otherwise than one on host memory: a table, as there
 * are two ways, and those who perform calls know neither. */
struct tt_op_start;
struct tt_side;
struct tt_gpu_way {
    bool is_near; /* on the GPU's memory itself, which all have within reach */
    /* All that the GPU will have to do is given to it now: by the thread that
     * makes the call, without the lock. The call begins later, or is called
     * off. Errors: ENOMEM, those of device.h. */
    tutti_err (*give)(struct tt_op_start *start, tutti_diag *diag);
    /* Frees what give() made. */
    void (*take_back)(const tt_mem *mem, tt_gpu_call *call);
    /* All else is an op's. [locked] Begins, before the walk does. Errors:
     * ENOMEM. */
    tutti_err (*begin)(tt_op *op, const struct tt_op_start *start);
    /* Looks what the GPU has done; true: something has moved. The op may be
     * over then. */
    bool (*step)(tt_op *op);
    /* The walk is done; false: there is something left that goes to the GPU,
     * and step() finishes the op. */
    bool (*end)(tt_op *op);
    /* It has ended; false: the GPU still uses its memory. */
    bool (*is_free)(tt_op *op);
    /* Its own way with it is over. */
    void (*forget)(tt_op *op);
    /* Until nothing is given any more; gives up the lock. */
    void (*wait)(tt_op *op);
    void (*free)(tt_op *op); /* its memory */
    /* The rest is NULL but for the near way. Where this rank's memory is. */
    void (*places)(const tt_op *op, tt_binding_near *out);
    /* The partner's; and that it may be used. */
    void (*hear)(struct tt_side *side, const tt_binding_near *theirs);
    void (*hear_ready)(struct tt_side *side);
    /* This rank touches others' memory, or will; false: it may not. */
    bool (*hold)(tt_op *op);
    bool (*reduce)(tt_op *op, const tt_walk_job *job);
    void (*begun)(tt_op *op, uint32_t group);
};
extern const tt_gpu_way tt_way_stage; /* by the host: stage.c */
extern const tt_gpu_way tt_way_near;  /* within reach: near.c */
static inline bool tt_gpu_is_near(const tt_gpu_call *c)
{
    return c->way && c->way->is_near;
}

/* It will not begin, or has ended: the GPU goes on to the end of what it was
 * given, for nothing; kernels see that, and do nothing. */
static inline void tt_gpu_release(const tt_gpu_call *c)
{
    if (!c->words)
        return;
    /* GPUs compare as if it were signed. */
    atomic_store_explicit(&c->words->made, INT32_MAX, memory_order_release);
}
/* What waits for the first step of this turn goes on, if it was not
 * released. */
static inline void tt_gpu_go_on(const tt_gpu_call *c, uint32_t upto)
{
    uint32_t made = c->turn;
    /* The GPU's wait for it sees what was written before. */
    atomic_compare_exchange_strong_explicit(&c->words->made, &made, upto,
                                            memory_order_release,
                                            memory_order_relaxed);
}
/* The GPU is through with what it was given. */
static inline bool tt_gpu_is_through(const tt_gpu_call *c)
{
    return atomic_load_explicit(&c->words->done, memory_order_acquire) >
           c->turn;
}
/* All of the input is here. */
static inline bool tt_gpu_has_fetched(const tt_gpu_call *c)
{
    return !c->has_input ||
           atomic_load_explicit(&c->words->fetched, memory_order_acquire) >=
               c->n_batches;
}
/* Nobody uses the streams any more, once this has returned. [unlocked] */
void tt_engine_part_from(tt_engine *e, const struct tt_streams *streams);

typedef struct tt_op_start {
    tt_program *program;
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
    tt_gpu_call gpu;
    int priority;
    uint64_t deadline_ns; /* absolute */
    uint64_t now_ns;      /* when it is called; 0: ask the clock */
    /* Its caller does nothing before tt_engine_see_through(). Where now_ns is 0
     * deadline_ns counts from now. */
    bool is_awaited;
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
    tt_program
        *program; /* of the receive: it stays until found() has returned */
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
