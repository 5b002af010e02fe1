/* SPDX-License-Identifier: BSD-3-Clause
 * state.h - the engine's own structs; private to src/engine. */
#ifndef TT_ENGINE_STATE_H
#define TT_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "engine/engine.h"

#define TT_OP_BUCKETS 256
#define TT_HISTORY 256         /* calls of a team that are remembered */
#define TT_IN_FLIGHT_MAX 32768 /* calls of a communicator */
#define TT_EARLY_MAX (2 * TT_IN_FLIGHT_MAX) /* of a peer that are ahead */

typedef struct tt_peer tt_peer;

/* A BIND that came before the call was made here. */
typedef struct tt_early {
    uint64_t comm, channel, seq, fingerprint;
    tt_call call;
    tt_grant grant;
} tt_early;

/* What has come of a small call that was not entered here: messages, each a
 * tt_msg and its payload, in memory of the mesh's eager_bytes. */
typedef struct tt_keep {
    struct tt_keep *next; /* in mesh->spare */
    uint64_t comm, channel, seq, fingerprint;
    uint32_t used; /* bytes */
    unsigned char bytes[];
} tt_keep;

/* A control message that waits for room. */
typedef struct tt_ctl {
    tt_msg m;
    unsigned char payload[TT_NET_INLINE];
} tt_ctl;

/* A payload that the transport has not let go of. */
typedef struct tt_lent {
    tt_op *op;
    uint32_t lane;
} tt_lent;

/* The side of an op that faces one partner. */
typedef struct tt_side {
    tt_op *op;
    tt_peer *peer;
    struct tt_side *next; /* in peer->ready */
    uint64_t *heap;       /* (position, lane) of the ready sends */
    uint32_t n_heap;
    bool is_linked;
    bool is_bound;   /* the partner has entered the call */
    bool is_open;    /* sends need not wait for that */
    bool is_eager;   /* a place among its FIRSTs is reserved, none sent yet */
    bool is_asked;   /* the partner waits for a BIND */
    bool has_spoken; /* it was sent a BIND or a FIRST */
    bool is_held;    /* a slice is being made in its buffers, or of them */
    tt_grant mine;   /* what it was told of this rank's buffers */
    uint64_t theirs; /* the number of what it has granted; 0: nothing */
    tt_buffers far;  /* ... as seen from here */
} tt_side;

struct tt_op {
    tt_team *team;
    tt_plan *plan;
    const tt_bound *b;
    tt_op *hash_next, *next, *prev; /* bucket; the team's list */
    tt_call call;
    uint64_t channel, seq, fingerprint, issue;
    int priority;
    unsigned char *base[3]; /* by tt_base */
    unsigned char *staging;
    tt_reduce_fn reduce;
    tt_lines_fn lines, mean_lines;
    tt_divide_fn divide; /* NULL: nothing to divide */
    uint32_t divisor;
    const uint32_t *members;
    uint32_t member_pair[2]; /* point to point */
    /* Counters in slices. */
    uint32_t *sent, *left, *acked; /* [n_sends] */
    uint32_t *arrived, *credited;  /* [n_recvs] */
    uint64_t *cursor;              /* [n_recvs] */
    uint32_t *done;                /* [n_groups] */
    bool *heaped;                  /* [n_sends] */
    /* Slices from there on (plus 1; 0: none) were written to the partner's
     * buffer, [n_sends]; to this rank's by a partner, [n_recvs]. */
    uint32_t *placed_from, *put_from;
    void **targets;         /* [n_sends + 1] */
    uint32_t *results_left; /* [n_positions] */
    const void **sources;   /* [most inputs + 1] */
    tt_side *sides;         /* [n_partners] */
    uint64_t *heaps;        /* [n_sends] */
    uint32_t front, n_open; /* n_open: lanes to leave + groups to finish */
    uint32_t n_unsaid;      /* sides that have not spoken */
    uint32_t n_near;        /* sides whose buffers are within reach */
    tt_op *work_next;       /* in engine->work */
    bool is_working;
    bool is_over, is_asking, is_beginning;
    bool is_named; /* call, and what follows from it, have been set */
    uint32_t start_pass, start_rest;
    uint64_t start_ns, deadline_ns, ask_until_ns;
    uint64_t moved_bytes;
    uint8_t *answers; /* [team size] of WHO: 0 none, 1 not entered, 2 entered */
    unsigned char *copy; /* of the input */
    uint64_t copy_bytes;
    void (*done_fn)(void *arg, tutti_err err);
    void *done_arg;
    unsigned char *block; /* all arrays; the first are cleared for a call */
    size_t block_bytes, cleared_bytes;
};

struct tt_plan {
    const tt_mem *mem;
    tt_bound *bound;
    uint32_t n_refs, most_inputs;
    tt_op *idle; /* linked by next */
};

/* Another rank by one of its ports. */
struct tt_peer {
    tt_mesh *mesh;
    tt_conn *conn;
    uint32_t rank;
    uint8_t port;
    bool is_lost, is_dirty;
    tt_peer *next_port; /* of the same rank */
    char why[200];      /* lost */
    tt_peer *dirty_next;
    tt_side *ready;
    tt_ctl *ctl; /* ring */
    size_t ctl_cap, ctl_head, n_ctl;
    tt_lent *lent; /* ring */
    size_t lent_cap, lent_head, n_lent;
    tt_early *early;
    size_t early_cap, n_early;
    /* FIRSTs to it: sent, let go of, and places promised to sides. */
    uint8_t n_first, n_first_taken, n_reserved;
    /* FIRSTs from it: let go of, and of those it has been told of. */
    uint8_t n_taken, n_told;
    uint8_t n_kept;
    tt_keep *kept[TT_EAGER_CALLS];
    tt_keep *placing_keep;        /* a payload is being read into it */
    tt_op *placing;               /* a payload is being read into its memory */
    uint64_t heard, heard_before; /* messages */
    uint64_t silent_since_ns;     /* while an op waits for it */
    uint64_t watched_ns;          /* when it was last looked at */
    unsigned char control[TT_NET_INLINE]; /* a control payload being read */
};

typedef struct tt_past {
    uint64_t channel, seq, fingerprint;
    tt_call call;
    bool knows_bytes; /* the fingerprint tells what every pair exchanges */
} tt_past;

struct tt_mesh {
    tt_engine *engine;
    const tt_mem *mem;
    tt_mem *home; /* freed last */
    tt_mesh *next;
    uint32_t rank, n_ranks, n_nets, n_refs;
    uint32_t n_peers;
    tt_net **nets;
    /* [n_peers]: first port 0 of each rank (the own one is unused), then the
     * other ports. */
    tt_peer *peers;
    tt_team *teams;
    unsigned char *trash; /* payloads nobody wants */
    size_t trash_bytes;
    uint64_t eager_bytes;
    tt_keep *spare;   /* not in use */
    uint64_t n_ahead; /* early BINDs and kept calls of all peers */
    bool is_broken;   /* a team of it has failed */
};

struct tt_team {
    tt_mesh *mesh;
    tt_team *next;
    uint64_t id, next_seq;
    uint32_t rank, n;
    uint32_t *members; /* mesh ranks */
    uint32_t *rank_of; /* [mesh n_ranks] rank in the team, or TT_NONE */
    /* [mesh n_peers] said BYE by this port: nothing will follow there. */
    bool *has_left;
    double *lateness; /* ns, moving average */
    tt_op *ops;
    uint32_t n_ops;
    tt_past past[TT_HISTORY];
    uint32_t n_past;
    tutti_err err;
    uint32_t culprit;
    char text[512];
    /* A member was told DIFFER, of this call: until it answers, what comes is
     * not taken, so that no later call ends well. */
    bool is_odd;
    uint32_t odd_rank;
    tt_past odd;
    tt_any *anys;      /* that wait, the oldest first */
    uint32_t any_last; /* the rank that one of them has found last */
};

struct tt_engine {
    const tt_mem *mem;
    tt_engine_opts opts;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* done flags, driver changes */
    pthread_t thread;
    bool has_thread, stops, is_driven, is_quiet, was_inline;
    _Atomic int n_waiting;      /* threads that want the lock */
    uint32_t n_waits;           /* waits that do not drive */
    uint32_t n_sleeping;        /* threads in epoll_wait() */
    uint32_t n_passes, n_rests; /* n_rests: yields and sleeps */
    int wake_fd, epoll_fd; /* epoll_fd: wake_fd and the nets' descriptors */
    uint64_t issues, tick_ns, n_active;
    uint64_t n_large;  /* of those that are active */
    uint64_t n_unsaid; /* of all ops */
    bool has_news;     /* for the receives from any rank of some team */
    tt_mesh *meshes;
    tt_peer *dirty;
    tt_op *buckets[TT_OP_BUCKETS];
    tt_op *over; /* to be recycled after the pass */
    tt_op *work; /* that may have slices to pull */
};

/* op.c */
tt_op *tt_op_find(const tt_engine *e, const tt_team *team, uint64_t channel,
                  uint64_t seq);
tt_team *tt_team_find(const tt_mesh *mesh, uint64_t id);
tt_side *tt_op_side(tt_op *op, const tt_peer *peer);
uint32_t tt_op_team_rank(const tt_op *op, uint32_t schedule_rank);
/* Another port of the peer has spoken of the call already. */
bool tt_op_is_heard(tt_op *op, const tt_peer *peer);
/* The partner has entered the call. */
void tt_op_hear(tt_op *op, tt_side *side);
/* Says that this rank has: BIND. */
void tt_side_speak(tt_side *side);
void tt_op_credit(tt_op *op, tt_side *side, const tt_msg *m);
void tt_op_left(tt_op *op, uint32_t lane);
void *tt_op_place(tt_op *op, tt_side *side, const tt_msg *m);
tutti_err tt_op_data(tt_op *op, tt_side *side, const tt_msg *m,
                     const void *data);
tt_sent tt_op_send_next(tt_op *op, tt_side *side);
void tt_op_finish(tt_op *op, tutti_err err);
void tt_op_recycle(tt_engine *e);

void tt_op_consider(tt_op *op, uint32_t send_lane);
/* A lane has left, or a group is done. */
void tt_op_close_one(tt_op *op);
static inline unsigned char *tt_op_address(const tt_op *op, const tt_span *span,
                                           uint64_t elem)
{
    return op->base[span->base] + span->offset + elem * op->b->elem_bytes;
}

/* take.c */
void tt_op_advance_front(tt_op *op);
/* Applies what can be of the group of a receive lane. */
void tt_op_try(tt_op *op, uint32_t recv_lane);
/* Applies the least slice of what is pulled; false: there is none. */
bool tt_op_pull(tt_op *op);

/* within.c */
/* Grants this rank's buffers to those partners who can use them. */
void tt_within_offer(tt_op *op);
/* The partner has entered the call, and grants its own. */
void tt_within_hear(tt_op *op, tt_side *side, const tt_grant *theirs);
/* Nobody uses this rank's buffers any more. */
void tt_within_end(tt_op *op);
/* The receive lane's slices are read in the partner's input. */
static inline bool tt_within_pulls(const tt_op *op, const tt_lane *lane)
{
    return lane->is_pull && op->sides[lane->partner].far.in != NULL;
}
/* For one slice of a group: all buffers of partners that it uses, or none;
 * where the slice is to be written there, into op->targets from place 1 on
 * (returns 1 + how many); and the end. */
bool tt_within_hold(tt_op *op, const tt_group *group);
uint32_t tt_within_targets(tt_op *op, const tt_group *group, uint32_t k,
                           uint64_t first_elem);
void tt_within_release(tt_op *op, const tt_group *group);
/* The op may have slices to pull; does one of the first op that has. */
void tt_within_note(tt_op *op);
bool tt_within_step(tt_engine *e);

/* eager.c */
/* A place for one more FIRST to this peer. */
bool tt_eager_reserve(tt_peer *peer);
/* A side's FIRST is sent; or will not be. */
void tt_eager_sent(tt_side *side);
void tt_eager_unreserve(tt_side *side);
/* The peer lets go of FIRSTs; false: of more than there were. */
bool tt_eager_taken(tt_peer *peer, uint8_t flags);
/* Lets go of one of the peer's. */
void tt_eager_take(tt_peer *peer);
/* Where the payload of a slice goes whose call was not entered here; NULL: it
 * breaks a rule, or memory is out. */
void *tt_eager_place(tt_peer *peer, const tt_msg *m);
/* Keeps it. Errors: EPROTO, ENOMEM. */
tutti_err tt_eager_keep(tt_peer *peer, const tt_msg *m, const void *data);
/* What was placed has arrived, and has been kept or not. */
void tt_eager_placed(tt_peer *peer);
/* Takes a call out of what is kept of a peer; NULL: there is none. To be
 * given back. */
tt_keep *tt_eager_find(tt_peer *peer, uint64_t comm, uint64_t channel,
                       uint64_t seq);
void tt_eager_give_back(tt_peer *peer, tt_keep *keep);
/* Drops what is kept for a team. */
void tt_eager_drop(tt_team *team);
void tt_eager_free(tt_mesh *mesh);

/* team.c */
/* The call of the peer's FIRST differs from ours. */
void tt_team_differ(tt_team *team, tt_peer *peer, const tt_past *own);
/* Fails the team when the peer has left and cannot say what it called. */
void tt_team_check_odd(tt_team *team, const tt_peer *peer);
/* Fails the team when op needs a rank that has left and has not entered. */
void tt_op_check_left(tt_op *op);
void tt_team_told(tt_team *team, tutti_err err, uint32_t culprit,
                  const char *text);
void tt_peer_gone(tt_peer *peer, tutti_err why, const char *text);

/* engine.c */
void tt_peer_dirty(tt_peer *peer);
void tt_peer_tell(tt_peer *peer, const tt_msg *m, const void *payload);
void tt_engine_pump(tt_engine *e);
/* The peer called something else than a call that nobody remembers here. */
void tt_team_forgot(tt_team *team, uint32_t peer_rank, const tt_msg *m,
                    const tt_call *theirs);
/* Compares a peer's call with the own one; fails the team if they differ. */
bool tt_team_compare(tt_team *team, const tt_peer *peer, const tt_past *own,
                     const tt_call *theirs, uint64_t fingerprint);
uint32_t tt_team_rank_of(const tt_team *team, const tt_peer *peer);
/* Port 0 of a member; next_port leads on. */
tt_peer *tt_team_peer(const tt_team *team, uint32_t rank);
bool tt_team_has_left(const tt_team *team, const tt_peer *peer);
tt_msg tt_team_msg(const tt_team *team, tt_kind kind, uint64_t channel,
                   uint64_t seq);
/* Takes a slice of the call, or finds that the peer calls something else. */
void tt_op_take(tt_op *op, tt_peer *peer, const tt_msg *m, const void *data);
bool tt_team_past(const tt_team *team, uint64_t channel, uint64_t seq,
                  tt_past *out);

/* any.c: what waits is served where something new was kept, or a rank has left;
 * all fail; a deadline may have passed. */
void tt_any_run(tt_engine *e);
void tt_any_end(tt_team *team, tutti_err err);
void tt_any_expire(tt_team *team, uint64_t now_ns);

/* drive.c */
void tt_engine_listen(tt_engine *e, int fd, bool on); /* -1: nothing */

/* watch.c */
void tt_engine_tick(tt_engine *e, uint64_t now_ns);
/* Says BIND where calls have been silent for long. */
void tt_engine_speak(tt_engine *e, uint64_t now_ns);

#endif
