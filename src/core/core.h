/* SPDX-License-Identifier: BSD-3-Clause
 * core.h - communicators and their calls.
 *
 * comm.c     communicators: split, destroy, abort, what they tell
 * compare.c  is what should be equal on all ranks equal?
 * rails.c    the connections of a pair of ranks
 * plans.c    from a call to a bound plan, cached; use.c: by hand
 * call.c     checks a call, begins it, waits for it
 * collectives.c  the public calls, messages too
 * gpu.c      calls on memory of GPUs
 * messages.c how messages begin: tags, receives from any rank
 * request.c  asynchronous outcomes, callbacks; the engine, of which the process
 *            has one
 * tracing.c  what a rank does is recorded (TUTTI_TRACE)
 * report.c   the last calls of one that has failed
 *
 * Who makes communicators stands above: start/start.h, members/members.h; and
 * who looks on at their calls: drift/drift.h.
 * Circles  call.c gpu.c request.c: the first call on a GPU that may go without
 *          the host makes two of its own, by which the ranks agree on that. A
 *          request tells where a GPU is with its call.
 * Next: comm.c, call.c. */
#ifndef TT_CORE_CORE_H
#define TT_CORE_CORE_H

#include <stdatomic.h>

#include "base/settings.h"
#include "boot/boot.h"
#include "engine/engine.h"
#include "offline/offline.h"
#include "plan/plan.h"
#include "topology/topology.h"

/* What must be equal on all ranks: rank 0's settings. But the cache is this
 * host's, and what is done with GPUs this process's. */
typedef struct tt_agreed {
    uint64_t window, front_bytes, front_window_bytes, staging_max_bytes;
    uint64_t cache_bytes;
    uint64_t eager_bytes;
    uint64_t quorum; /* members that must be left; 0: more than half */
    /* Of a message: what all transports that ranks have take, or, between
     * hosts, should (tt_net_most_passed_on); and those that some pair may use,
     * so none within a host where no two ranks share one. */
    uint32_t max_payload, used_payload;
    uint32_t n_hosts;
    uint32_t topology_bytes; /* of the network's text; 0: not known */
    bool topology_has_names; /* its hosts may be the job's, by name */
    bool topology_is_learnt; /* it is measured */
    bool topology_is_kept;   /* it was, before newcomers came */
    bool watches_drift;
    /* Planners are tried where costs are not as measured; of several hosts:
     * and just these ranks have measured them. */
    bool amends_costs;
    bool has_rates;    /* some rank has TUTTI_RATE */
    bool is_checked;   /* TUTTI_CHECK: the same on all ranks */
    bool gpu_ipc;      /* TUTTI_GPU_IPC */
    bool is_by_memory; /* one host, where no socket is what is tried first */
    bool is_crowded;   /* one host, with fewer processors than ranks */
    bool is_paired;    /* by memory, and two ranks have each home */
    /* Several hosts, all of them on one machine: processors to a rank; else
     * 0. */
    double shared_cpus;
    double crowd; /* ranks to a processor, if all are on one machine; else 1 */
    bool measures_costs;   /* TUTTI_COSTS=auto, and not done yet */
    bool costs_are_inside; /* they are of ranks that all sit on one host */
    tutti_costs costs;
    char planner[TT_SETTING_TEXT];
    char trace[TT_SETTING_TEXT]; /* where ranks record; "": they do not */
    uint64_t start_id;           /* of each start another one */
} tt_agreed;

typedef struct tt_plan_key {
    uint64_t counts_hash, count, planner_hash;
    uint32_t root, elem_bytes;
    uint8_t coll, in_place, is_pair, is_near, pad[4];
} tt_plan_key;

typedef struct tt_plan_entry {
    tt_plan_key key;
    tt_program *program;
    uint64_t shape, schedule_id; /* for the fingerprint */
    uint64_t used;               /* for least recently used */
    double expected_s;           /* by the observer; 0: not known */
    bool is_within;              /* all of it may be pulled or put */
} tt_plan_entry;

#define TT_PLAN_CACHE 64

/* A rank's part of a schedule, kept for other sizes. */
typedef struct tt_part_key {
    uint64_t planner_hash; /* of the rule; flat networks: of the planner */
    uint32_t root, rank, n_ranks;
    uint8_t coll;
    uint8_t size_class; /* of the vector: see plans.c; 0: any */
    uint16_t pad;
} tt_part_key;

typedef struct tt_part_entry {
    struct tt_part_entry *next;
    tt_part_key key;
    tt_part *part;
    double fronts; /* in the pipeline when it is full; 0: not known */
    /* As in tt_plan_entry, of the largest size of its class. */
    double expected_s;
    bool is_told; /* in the log, that the program has such calls */
} tt_part_entry;

typedef struct tt_rail_map tt_rail_map;

/* Where the ranks have met, and where newcomers may come to. */
typedef struct tt_home {
    char address[TT_SETTING_TEXT], job[TT_SETTING_TEXT];
    int listen_fd; /* 0: none */
} tt_home;

/* Begins to look on while calls are made (tt_observer), where it wants to: sets
 * observer and observed, which are freed even if it fails. Errors: ENOMEM. */
typedef tutti_err (*tt_observe)(tutti_comm *comm);

typedef struct tt_call_in {
    tt_shape shape;
    tt_measures sizes; /* set here */
    const void *in;
    void *out;
    tutti_type type;
    tutti_op op;
    const tutti_call_opts *opts;
    tutti_request **req;
    bool is_barrier, is_message;
    uint32_t from, to; /* of a message, in ranks of the comm; from may be
                          TT_NONE: any */
    int *source;       /* from any: who it was */
    bool is_observed;  /* set here; as is expected_s, of one that is */
    double expected_s;
} tt_call_in;

/* A blocking call on host memory, the last one: what is the same but for its
 * buffers is begun as that was, without a check or a look for its plan. */
typedef struct tt_last_call {
    bool is_kept; /* else there is none */
    bool is_in_place;
    tt_call_in call;
    tutti_call_opts opts; /* if it had any */
    char planner[32];     /* that they name */
    tt_op_start start;
} tt_last_call;

enum { TT_TAKEN_COLLS = 16, TT_TAKEN_CLASSES = 64 };

struct tutti_comm {
    tt_mem mem;
    tt_mesh *mesh;
    tt_team *team;
    tt_engine *engine;
    uint64_t id, n_splits, timeout_ns;
    uint32_t rank, n_ranks;
    tt_agreed agreed;
    uint32_t *hosts;          /* [n_ranks] number of each rank's host */
    tutti_topology *topology; /* of its ranks; NULL: not known */
    tt_routes *routes;        /* of the topology */
    /* For the log: what is possible at all on a network; NULL: on none yet. */
    const tutti_topology *least_of;
    tutti_bound_info least;
    tt_rail_map *rails; /* [n_ranks]; NULL: one port per pair */
    tt_trust *trust;    /* NULL: none */
    tt_home home;
    /* Of one that grows or may: before it ends; NULL: it does not. */
    void (*stop_growing)(tutti_comm *comm);
    struct tt_growth *growth;   /* newcomers are on the way; NULL: none */
    struct tt_growth *given_up; /* a list: their threads end soon */
    tt_entrance *entrance;      /* where they come to; NULL: not here */
    uint64_t n_growths;         /* rank 0's */
    bool is_growing;            /* all members know of it */
    atomic_flag busy;
    char message[512];
    bool has_told_calls;
    bool is_for_start; /* made and ended by the start, and no program's */
    bool says_own;     /* message counts although the communicator has failed */
    tt_observe observe;                 /* NULL: nobody looks on */
    const struct tt_observer *observer; /* NULL: nobody does here */
    void *observed;                     /* what it keeps */
    uint64_t planner_hash;              /* of agreed.planner */
    /* By which rows of the planner table, + 1, calls of a collective and a
     * class of size are performed where `auto` is to choose and no network is
     * known; 0: by what is predicted. Equal on all ranks at each call. */
    uint8_t taken[TT_TAKEN_COLLS][TT_TAKEN_CLASSES];
    struct tt_gpu *gpu;       /* its part of a GPU; NULL: it has used none */
    struct tt_trail *trail;   /* of its mesh; NULL: nothing is recorded */
    unsigned char barrier[1]; /* what a barrier reduces */
    tt_plan_entry plans[TT_PLAN_CACHE];
    tt_plan_entry *last; /* hit most recently */
    uint64_t n_lookups;
    tt_last_call last_call;
    tt_part_entry *parts;
    struct tutti_comm *parts_of; /* whose it uses, and adds to: its own */
    tt_written written;
    /* How many messages of each pair and tag there were; see messages.c. */
    struct tt_tally *tallies; /* [tally_cap], a hash table */
    size_t tally_cap, n_tallies;
};

/* comm.c */
/* Takes the mesh reference; hosts is copied. */
typedef struct tt_comm_parts {
    tt_mesh *mesh;
    const uint32_t *members, *hosts;
    uint32_t n, rank;
    uint64_t id, timeout_ns;
    const tt_agreed *agreed;
    const tutti_topology *topology; /* copied; NULL: not known */
    /* Its ranks that are the members; NULL: all, in order. */
    const uint32_t *seats;
    tt_trust *trust;     /* one more owner */
    const tt_home *home; /* copied */
    tt_observe observe;  /* of it, and of those that are made of it; or NULL */
    struct tt_trail *trail; /* its mesh's; NULL: nothing is recorded */
    tutti_diag *diag;       /* says what is wrong with the network; or NULL */
} tt_comm_parts;
tutti_err tt_comm_make(const tt_mem *mem, tt_engine *e,
                       const tt_comm_parts *parts, tutti_comm **out);
/* A communicator of n ranks of comm, by their ranks there; the caller's is one
 * of them. */
tutti_err tt_comm_make_part(tutti_comm *comm, const uint32_t *ranks, uint32_t n,
                            uint64_t id, tutti_comm **out);
/* It was not made everywhere: those who have it are to hear why it ends.
 * Accepts NULL. */
void tt_comm_drop(const tutti_comm *parent, tutti_comm *made);
/* report.c: if it has failed tells the last calls, once (TUTTI_CALLS_FILE, or
 * the log). */
void tt_comm_tell_calls(tutti_comm *comm);

/* costmeter.c: all ranks together, on a communicator that serves nothing else.
 * It has the ranks of `whole`, which gets the parts that are planned here and
 * outlives it. out->message_ns 0: it would take too long. *is_sound: as
 * tt_comm_costs_of() says. Errors: those of calls; ENOMEM: the others wait
 * until comm ends. */
tutti_err tt_comm_meter(tutti_comm *comm, tutti_comm *whole, tutti_costs *out,
                        bool *is_sound);

typedef struct tt_metered {
    uint64_t few_ns;      /* a call of a few bytes, in the shortest group */
    uint64_t quickest_ns; /* the shortest of many, */
    uint64_t large_ns;    /* and of the most, */
    uint64_t sent_bytes;  /* of which each rank has sent so many */
    uint64_t reduce_ps;   /* of a byte */
    uint32_t n_steps;     /* of a call */
} tt_metered;
/* False: such times cannot be, something was in the way. out is bounded by what
 * may be. */
bool tt_comm_costs_of(const tt_metered *m, tutti_costs *out);
/* How many small calls are timed together next, behind `group` of them, when
 * they have taken spent_ns in all; 0: that is enough. */
uint32_t tt_comm_next_group(uint32_t group, uint64_t spent_ns);
/* What vectors of `bytes` in all are timed next, where these took ns: the same
 * ones at the end. is_limited: a link may let a burst pass. */
size_t tt_comm_next_bytes(size_t bytes, uint64_t ns, bool is_limited);
/* How long `factor` times as many bytes take at most, if all is well. */
uint64_t tt_comm_promised_ns(uint64_t few_ns, uint64_t ns, uint64_t factor);

/* compare.c: what `call` has been given to compare. Errors: EINVAL. */
tutti_err tt_shared_check(const char *call, const tutti_shared *buffers,
                          size_t n, const tutti_difference *out,
                          tutti_diag *diag);

/* tracing.c: where the job's settings say so, what the communicator and its
 * parts do is recorded from now on. What keeps a rank from it is logged.
 * is_new: all its ranks come here, and their clocks are compared. */
void tt_comm_record(tutti_comm *comm, const char *host, bool is_new);

/* rails.c */
#define TT_PORTS_MAX 8
/* What the network says of the connections of one rank; in memory of the mesh,
 * whose nets look at it for as long as they dial. */
typedef struct tt_rail_hints {
    uint32_t *n_ports;                 /* [n] to each rank; at least 1 */
    tt_link_hint *hints[TT_PORTS_MAX]; /* [n] of each port; NULL: none */
    bool has_names;                    /* the network names interfaces */
} tt_rail_hints;

/* No hints, one port each. Errors: ENOMEM. */
tutti_err tt_rail_hints_create(uint32_t n, tt_arena *arena, tt_rail_hints *out);
/* hosts: number of each rank's host. Errors: ENOMEM. */
tutti_err tt_rail_hints_read(const tutti_topology *t, uint32_t rank,
                             const uint32_t *hosts, tt_arena *arena,
                             tt_rail_hints *out, tutti_diag *diag);
/* Of two interfaces, the lower rank's first: the rail of a port. Never 0. */
uint64_t tt_rail_id(const char *low, const char *high);
/* Which rail of the communicator's network goes by which port. */
tutti_err tt_comm_map_rails(tutti_comm *comm);
void tt_comm_free_rails(tutti_comm *comm);
/* The same for another network of its ranks: ports are known by their
 * interfaces. The caller owns *out (comm->mem, [n_ranks]); NULL: one port per
 * pair. Errors: ENOMEM. */
tutti_err tt_rail_map_make(const tutti_comm *comm, const tutti_topology *t,
                           const tt_routes *routes, tt_rail_map **out);
/* A rail to the rank that goes by the port. */
uint8_t tt_comm_rail_of(const tutti_comm *comm, uint32_t rank, uint32_t port);
void tt_rail_map_free(const tutti_comm *comm, tt_rail_map *map);
/* Of a communicator (ctx) that knows its rails. */
uint8_t tt_comm_port_of(const void *ctx, const tt_transfer *t);

/* plans.c */
typedef struct tt_want {
    const tt_shape *shape;
    uint64_t total_bytes;
    bool in_place, is_pair;
    bool copies_input;
    bool is_near;        /* on memory of GPUs within reach of each other */
    const char *planner; /* rule, never NULL */
} tt_want;
tutti_err tt_comm_plan(tutti_comm *comm, const tt_want *want,
                       tt_plan_entry **out, tutti_diag *diag);
void tt_comm_free_plans(tutti_comm *comm); /* [locked] */
/* Calls are planned anew. [locked] */
void tt_comm_forget_plans(tutti_comm *comm);
/* What a call of `what` (collective, root, size, progress) is performed by;
 * rule NULL: as agreed. The caller owns *out. */
tutti_err tt_comm_schedule(const tutti_comm *comm, const tt_problem *what,
                           const char *rule, tutti_schedule **out,
                           const char **chosen, tutti_diag *diag);

/* Vectors from half of 2^class to 2^class bytes are one class. */
uint8_t tt_comm_size_class(uint64_t size_bytes);
/* Is there a schedule that the program has given for such calls? */
bool tt_comm_uses(const tutti_comm *comm, tutti_coll coll, uint32_t root);
/* Where no network is known: what `auto` predicts for such a call; out as of
 * tt_plan_explain(). */
tutti_err tt_comm_explain(const tutti_comm *comm, tutti_coll coll,
                          uint64_t size_bytes, tt_explained *out);

/* call.c */
tutti_err tt_comm_call(tutti_comm *comm, tt_call_in *call);
/* The same, blocking, for who is in a call already: host memory. */
tutti_err tt_comm_call_inner(tutti_comm *comm, tt_call_in *call);
/* One thread at a time: begins, and ends. Errors: EFORK, EBUSY. */
tutti_err tt_comm_enter(tutti_comm *comm);
void tt_comm_leave(tutti_comm *comm);
/* Keeps the sentence for tutti_comm_message(), until the next
 * tt_comm_enter(). */
tutti_err tt_comm_fail(tutti_comm *comm, tutti_err err, const char *fmt, ...)
    TT_PRINTF(3, 4);
/* Ends it on all ranks, by this one, for the reason in text. */
void tt_comm_end(tutti_comm *comm, tutti_err err, const char *text);
/* Only this rank cannot make the call that its message names: the others must
 * not be left waiting for it. */
void tt_comm_call_off(tutti_comm *comm, tutti_err err);
/* Who looks on while calls are made. The functions that are called once a call
 * get only those that wants() names, which must be equal on all ranks. */
typedef struct tt_observer {
    bool (*wants)(tutti_coll coll, uint64_t bytes);
    /* When such a call is planned: the seconds it should take; 0: not known,
     * and begins() is left out. NULL: nobody asks for that. */
    double (*expect)(const tutti_comm *comm, const tutti_schedule *s,
                     const tt_problem *p);
    /* Before it is; all ranks come here at the same calls. It may wait for the
     * engines of others, and plans may change. Errors: those of a call. */
    tutti_err (*before)(tutti_comm *comm);
    /* start's done may go by way of the observer. [locked] */
    void (*begins)(tutti_comm *comm, const tt_call_in *call,
                   tt_op_start *start);
    /* It could not be begun, and done will not be called. [locked] */
    void (*failed)(tutti_comm *comm, const tt_op_start *start, tutti_err err);
    void (*free)(tutti_comm *comm); /* the communicator has left its team */
} tt_observer;

/* gpu.c */
typedef struct tt_gpu tt_gpu;
typedef struct tt_mirror tt_mirror;
/* What one call has of it. */
typedef struct tt_gpu_use {
    tt_gpu *gpu; /* NULL: the call is on host memory. Its own ref, once begun */
    bool is_on_device; /* ... or on none at all of a GPU */
    bool is_open;      /* it has begun, and is not done */
    tt_gpu_call call;
    tt_mirror *mirror;  /* NULL: none */
    tt_promise promise; /* number 0: nobody has asked */
} tt_gpu_use;
/* Is the call on memory of a GPU, and how is it to be performed? May make calls
 * of its own. Errors: those of a call, with the sentence. */
tutti_err tt_gpu_look(tutti_comm *comm, const tt_call_in *call,
                      tt_gpu_use *use);
/* Sets start's buffers, and gives the GPU what it has to do. is_apart: in and
 * out are not the same, also where the call's are. On success it is to be
 * forgotten in the end. */
tutti_err tt_gpu_begin(const tt_call_in *call, bool is_apart, tt_gpu_use *use,
                       tt_op_start *start, tutti_diag *diag);
/* The GPU has all that it will be given for it. */
bool tt_gpu_is_given(const tt_gpu_use *use);
/* The call is over. [locked] */
void tt_gpu_done(tt_gpu_use *use, tutti_err err);
/* An event that happens then, if the call is not over. [unlocked] */
tutti_err tt_gpu_event(tt_gpu_use *use, bool (*is_over)(const void *arg),
                       const void *arg, void **event);
/* Nobody asks for it any more. If it is not done it will not begin: it is
 * called off. [unlocked] */
void tt_gpu_forget(tt_gpu_use *use);
void tt_gpu_unref(tt_gpu *g); /* accepts NULL */
/* The communicator's: what GPUs were given is done when it returns. */
void tt_gpu_end(tt_gpu *g);

/* messages.c */
/* Begins a message: start, but for members, channel and seq. [locked] */
tutti_err tt_message_begin(tutti_comm *comm, const tt_call_in *call,
                           tt_op_start *start);
void tt_comm_free_tallies(tutti_comm *comm);

/* request.c */
/* One more use of the process's engine, until it is released. */
tutti_err tt_process_engine(const tt_engine_opts *opts, tt_engine **out,
                            tutti_diag *diag);
void tt_process_release(void);
uint64_t tt_process_next_instance(void);
/* It is told when the call is over: that is put into start. Of a call on memory
 * of a GPU it takes `use` over. */
tutti_err tt_request_create(tutti_comm *comm, const tutti_call_opts *opts,
                            const tt_gpu_use *use, tt_op_start *start,
                            tutti_request **out);
/* One that tt_request_end() ends, not the engine; mem must outlive the
 * process's engine. */
tutti_err tt_request_make(const tt_mem *mem, tt_engine *engine,
                          const tutti_call_opts *opts, tutti_request **out);
/* is_locked: the engine is. [any thread] */
void tt_request_end(void *req, tutti_err err, bool is_locked);
void tt_request_drop(tutti_request *req); /* was never begun */

#endif
