/* SPDX-License-Identifier: BSD-3-Clause
 * world.h - the simulator's own structs; private to src/sim.
 *
 *   lane    one transfer of the schedule; its number is the transfer's
 *   group   the lanes that form one reduction: of one (dst, chunk, step)
 *   conn    the connection (src, dst, rail): sends one slice at a time
 *   msg     one slice on its way
 *   gate    in lockstep: whose steps wait for each other (a rank, or all)
 *
 * Circles  sim.c fluid.c packet.c gate.c: the event core asks the model and the
 *          gate, and they tell it what happens next
 *
 * Next: lanes.c (how a schedule becomes these), sim.c (what happens). */
#ifndef TT_SIM_WORLD_H
#define TT_SIM_WORLD_H

#include "sim/sim.h"

/* n_slices 0: the chunk is empty, its lanes have nothing to do. */
typedef struct tt_sim_chunk {
    uint64_t n_elems;
    uint32_t n_slices;
    uint32_t stride; /* positions per slice */
} tt_sim_chunk;

typedef struct tt_sim_lane {
    uint32_t group;
    uint32_t pred; /* the group that it passes on; TT_NONE: own data */
    uint32_t conn;
    /* In slices: begun to send, come to dst, consumed there as src knows. */
    uint32_t sent, arrived, acked;
    bool is_heaped;
} tt_sim_lane;

typedef struct tt_sim_group {
    uint32_t first_in, n_in;   /* its lanes, in world->ins */
    uint32_t first_out, n_out; /* lanes that pass it on, in world->outs */
    uint32_t begun, done;      /* slices given to the reducer; reduced */
    uint32_t here;             /* lanes on which slice `begun` has come */
    /* prev, next: the groups before and after this one are of the same rank
     * and chunk. is_result: the last word on something promised. */
    bool has_prev, has_next, is_result, is_copy;
} tt_sim_group;

typedef struct tt_sim_conn {
    uint32_t src, dst;
    uint32_t route, n_links;    /* in world->links */
    uint32_t heap, cap, n_heap; /* of ready lanes, in world->heaps */
    uint32_t lane, msg;         /* while it is busy */
    uint8_t rail;
    bool is_busy, is_dirty;
    double latency_s;
} tt_sim_conn;

/* A ready lane; the least key goes first. */
typedef struct tt_sim_ready {
    uint64_t key;
    uint32_t lane;
} tt_sim_ready;

typedef struct tt_sim_msg {
    double begin_s, sent_s;
    uint32_t lane, slice;
    uint32_t next; /* free list; what has come to a lane; queue: left child */
    /* The packet model. */
    uint32_t right, hop;
    uint64_t wire_bytes;
    uint64_t seq;
    double tail_s; /* when its last byte is where it queues */
} tt_sim_msg;

typedef struct tt_sim_rank {
    double sends_at, reduces_at; /* when it is free to */
    uint32_t front;
    uint32_t first_origin, n_origins; /* in world->origins */
} tt_sim_rank;

typedef struct tt_sim_gate {
    uint64_t next; /* first of its lanes of a later step, in world->turns */
    uint64_t end;
    uint32_t step;   /* open: lanes up to this step */
    uint32_t n_left; /* of the open step */
} tt_sim_gate;

typedef enum tt_sim_kind {
    TT_SIM_ARRIVE, /* id: msg */
    TT_SIM_CREDIT, /* id: lane */
    TT_SIM_REDUCE, /* id: group: the reducer has done a slice */
    TT_SIM_LEAVE,  /* id: conn: the overhead is over */
    TT_SIM_SERVED, /* id: link: a slice has left */
    TT_SIM_HOP     /* id: msg: joins the next queue */
} tt_sim_kind;

typedef struct tt_sim_event {
    double at_s;
    uint64_t seq; /* of equal times the first made comes first */
    uint32_t id;
    tt_sim_kind kind;
} tt_sim_event;

typedef struct tt_sim_calendar {
    tt_sim_event *heap;
    size_t n, cap;
    uint64_t seq;
} tt_sim_calendar;

/* A list of numbers that grows. */
typedef struct tt_sim_list {
    uint32_t *at;
    size_t n, cap;
} tt_sim_list;

typedef struct tt_sim_world tt_sim_world;

/* A network model. */
typedef struct tt_sim_model {
    tutti_err (*open)(tt_sim_world *w); /* all memory is the world's arena's */
    /* conn->msg begins to leave. When its last byte has left src, the model
     * calls tt_sim_sent(); then, a latency later, tt_sim_arrived(). */
    void (*begin)(tt_sim_world *w, uint32_t conn);
    /* All connections that could begin at this moment have. */
    void (*settle)(tt_sim_world *w);
    /* Events that the model keeps itself (NULL, both: it keeps none): the time
     * of the next (INFINITY: none), and doing those up to a time. */
    double (*next)(const tt_sim_world *w);
    void (*fire)(tt_sim_world *w, double until_s);
    /* SERVED and HOP. NULL: it makes none. */
    void (*event)(tt_sim_world *w, const tt_sim_event *e);
} tt_sim_model;

extern const tt_sim_model tt_sim_fluid, tt_sim_packet;

struct tt_sim_world {
    const tutti_schedule *s;
    const tutti_topology *t;
    const tutti_sim_opts *opts;
    const tt_mem *mem;
    tutti_diag *diag;
    tt_arena arena;
    const tt_sim_model *model;
    void *net; /* the model's */

    uint64_t total_bytes, n_slices; /* n_slices: over all lanes */
    uint32_t elem_bytes, n_positions, window_positions;
    uint32_t n_groups, n_conns, n_gates;
    tt_sim_chunk *chunks;
    tt_sim_lane *lanes;
    tt_sim_group *groups;
    tt_sim_conn *conns;
    tt_sim_rank *ranks;
    uint32_t *ins;     /* lanes by (dst, chunk, step, src) */
    uint32_t *outs;    /* lanes by (src, chunk, step, dst) */
    tt_sim_list links; /* the routes of all connections */
    tt_sim_ready *heaps;
    uint32_t *origins;      /* lanes of own data, by rank; NULL: no window */
    uint32_t *results_left; /* [n_ranks * n_positions]; NULL: no window */
    tt_sim_gate *gates;     /* NULL: no lockstep */
    uint32_t *turns;        /* lanes by (gate, step), at both of their ends */
    uint32_t *arrived_first,
        *arrived_last; /* msgs by lane; NULL: no on_event */
    double *link_bytes;

    double now_s;
    tt_sim_calendar calendar;
    tt_sim_list dirty; /* connections that may begin */
    tt_sim_msg *msgs;
    size_t n_msgs, cap_msgs;
    uint32_t free_msg;
    uint64_t n_done, wire_bytes; /* slices consumed; bytes over all links */
    tutti_err err;               /* the first; everything stops */
};

/* lanes.c: everything but the model. Errors as tt_simulate. */
tutti_err tt_sim_make(tt_sim_world *w);

/* sizes.c: chunks and their slices. */
tutti_err tt_sim_cut(tt_sim_world *w);
uint64_t tt_sim_slice_bytes(const tt_sim_world *w, uint32_t lane,
                            uint32_t slice);

/* sim.c: called by the models. Events: at equal times first in, first out. */
void tt_sim_at(tt_sim_world *w, double at_s, tt_sim_kind kind, uint32_t id);
void tt_sim_sent(tt_sim_world *w, uint32_t conn);
void tt_sim_arrived(tt_sim_world *w, uint32_t msg);
void tt_sim_carried(tt_sim_world *w, uint32_t link, uint64_t bytes);
/* May lane l send its next slice now? Then it is put into its heap. */
void tt_sim_consider(tt_sim_world *w, uint32_t l);

/* gate.c: front window and lockstep. */
tutti_err tt_sim_gates_make(tt_sim_world *w);
void tt_sim_gates_start(tt_sim_world *w);
bool tt_sim_gate_open(const tt_sim_world *w, uint32_t l);
/* A result's slice at that position is complete at the rank. */
void tt_sim_front(tt_sim_world *w, uint32_t rank, uint32_t position);
/* All of a lane has left its src, or has been consumed by its dst. */
void tt_sim_gate_left(tt_sim_world *w, uint32_t l);
void tt_sim_gate_consumed(tt_sim_world *w, uint32_t l);

#endif
