/* SPDX-License-Identifier: BSD-3-Clause
 * state.h - the engine's own structs; private to src/engine. */
#ifndef TT_ENGINE_STATE_H
#define TT_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/patience.h"
#include "base/trail.h"
#include "engine/engine.h"

#define TT_OP_BUCKETS 256
#define TT_HISTORY 256         /* calls of a team that are remembered ... */
#define TT_GROUP_HISTORY 16    /* ... and of a group; powers of two */
#define TT_IN_FLIGHT_MAX 32768 /* calls of a communicator */
#define TT_EARLY_MAX (2 * TT_IN_FLIGHT_MAX) /* of a peer that are ahead */
#define TT_CTL_MAX \
    (2 * TT_EARLY_MAX) /* control messages that wait for a peer */

typedef struct tt_peer tt_peer;

/* A BIND that came before the call was made here. */
typedef struct tt_early {
    uint64_t comm, channel, seq, fingerprint;
    tt_binding_near bind;
    bool is_ready; /* its GPU's memory may be used */
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

/* The side of an op that faces one partner; walk.sides has the rest. */
typedef struct tt_side {
    tt_op *op;
    tt_peer *peer;
    struct tt_side *next; /* in peer->ready */
    bool is_linked;
    bool is_bound;   /* the partner has entered the call */
    bool is_eager;   /* a place among its FIRSTs is reserved, none sent yet */
    bool is_asked;   /* the partner waits for a BIND */
    bool has_spoken; /* it was sent a BIND or a FIRST */
    bool is_held;    /* a slice is being made in its buffers, or of them */
    bool is_ready;   /* near.c: its memory may be used */
    tt_grant mine;   /* what it was told of this rank's buffers */
    uint64_t theirs; /* the number of what it has granted; 0: nothing */
} tt_side;

struct tt_op {
    tt_walk walk; /* first: hooks get this */
    tt_team *team;
    tt_program *program;
    tt_op *hash_next, *next, *prev; /* bucket; the team's list */
    tt_call call;
    uint64_t channel, seq, fingerprint, issue;
    int priority;
    const uint32_t *members;
    uint32_t member_pair[2]; /* point to point */
    tt_side *sides;          /* [n_partners] */
    uint32_t n_unsaid;       /* sides that have not spoken */
    tt_op *work_next;        /* in engine->work */
    bool is_working;
    bool is_asking, is_beginning;
    bool is_undated; /* engine->undated */
    bool is_named;   /* call, and what follows from it, have been set */
    uint32_t start_pass, start_rest;
    uint32_t past; /* its number among the team's calls */
    uint64_t start_ns, deadline_ns, ask_until_ns;
    uint8_t *answers; /* [team size] of WHO: 0 none, 1 not entered, 2 entered */
    struct tt_op_gpu *gpu;        /* NULL: it is on ordinary memory */
    struct tt_op_gpu *gpu_memory; /* for when it is not; NULL: none yet */
    unsigned char *copy;          /* of the input */
    uint64_t copy_bytes;
    void (*done_fn)(void *arg, tutti_err err);
    void *done_arg;
    tutti_err err;        /* while it is held, or recorded */
    uint64_t sending_ns;  /* since then, while it is recorded */
    unsigned char *block; /* the walk's memory and the sides */
    size_t block_bytes;
};

struct tt_program {
    const tt_mem *mem;
    tt_bound *bound;
    uint32_t n_refs;
    tt_op *idle; /* linked by next */
};

/* Another rank by one of its ports. mesh.c has the life of its connection. */
struct tt_peer {
    tt_mesh *mesh;
    tt_conn *conn;    /* while there is none: &none; of the own rank: NULL */
    tt_conn none;     /* its send() takes nothing, and dials */
    tt_conn *dialled; /* by this rank, not up yet; NULL: none */
    tt_conn *called;  /* by the other one, likewise */
    tt_access *accesses;
    uint32_t n_accesses, access; /* access: that is tried, or was */
    uint64_t rail;
    /* Of an open mesh: who sits there, and who did before (none: nobody). */
    tt_link_id id, was;
    /* Where accesses lie: of an open mesh; else the addresses that have
     * changed, TT_NET_INLINE bytes for each access. */
    unsigned char *seat;
    size_t seat_bytes;
    bool is_expected; /* at the start: it has been dialled */
    bool is_apart;    /* it cannot be reached, and no call has needed it yet */
    bool shares_home; /* see tt_port_opts */
    bool has_missed;  /* the access that was tried leads nowhere */
    bool has_asked;   /* nor any other: it was asked to connect, ... */
    uint64_t ask_until_ns; /* ... and has so long */
    uint64_t asks;         /* of its own (CALL): the highest number */
    uint64_t asks_known;   /* bit i: the one i below that has come */
    /* Dialled, or away, since sought_ns: it is looked for then, and again so
     * much later; and asked to connect not before call_ns. */
    uint64_t sought_ns, urge_ns, urge_again_ns, call_ns;
    tutti_err why_err; /* lost */
    uint32_t rank;
    uint8_t port;
    bool is_lost, is_dirty, is_pumped;
    tt_peer *next_port; /* of the same rank */
    char why[480];      /* lost */
    tt_peer *dirty_next, *pumped_next;
    tt_side *ready;
    tt_side *latest; /* of the call with it that began last; NULL: it is over */
    tt_ctl *ctl;     /* ring */
    size_t ctl_cap, ctl_head, n_ctl;
    tt_lent *lent; /* ring */
    size_t lent_cap, lent_head, n_lent;
    bool is_reading; /* one of them, that is to be given back */
    tt_early *early;
    size_t early_cap, n_early;
    /* FIRSTs to it: sent, let go of, and places promised to sides. */
    uint8_t n_first, n_first_taken, n_reserved;
    /* FIRSTs from it: let go of, and of those it has been told of. */
    uint8_t n_taken, n_told;
    uint8_t n_kept;
    tt_keep *kept[TT_EAGER_CALLS];
    tt_keep *placing_keep; /* a payload is being read into it */
    /* A payload is being read into the memory of this side's op: its lane. */
    tt_side *placing;
    uint32_t placing_lane;
    bool placing_first; /* by a FIRST */
    /* The latest group that it has spoken of and that was not entered here; the
     * latest that it has ended. 0: none. */
    uint64_t group_ahead, group_over;
    uint64_t heard, heard_before; /* messages */
    uint64_t silent_ns;           /* while an op waits for it */
    uint64_t watched_ns;          /* when it was last looked at */
    uint64_t silent_since_ns;
    bool is_silent;   /* since then, for TUTTI_LIVENESS: it has been named */
    bool is_doubted;  /* another rank has given it up, so it has less time */
    bool is_given_up; /* lost, because it was silent */
    bool is_away;     /* its transport connects it again */
    struct tt_device *mapped; /* memory of its GPU is, there; NULL: none */
    unsigned char control[TT_NET_INLINE]; /* a control payload being read */
};

/* The last WHO or LOOK of a rank, and where its answers go: whoever has told
 * the question on had it before, so answers to older ones get there, too. */
typedef struct tt_asked {
    uint32_t number; /* 0: none yet */
    tt_peer *back;
    uint64_t n_back;    /* answers that have gone there since the question */
    uint64_t looked_ns; /* LOOKs are answered up to then: see may_look() */
} tt_asked;

/* A call that was made. */
typedef struct tt_past {
    uint64_t channel, seq, fingerprint;
    tt_call call;
    uint64_t begin_ns, end_ns; /* end_ns 0: it goes on */
    uint64_t late_ns;   /* that the latest partner came after this rank */
    uint32_t late_rank; /* in the team */
    int16_t err;
    bool knows_bytes; /* the fingerprint tells what every pair exchanges */
} tt_past;

/* What the members of a team that was left are to know, should they connect
 * later. */
typedef struct tt_farewell {
    tt_msg m;
    tt_reason reason;
} tt_farewell;
#define TT_FAREWELLS 32
/* Decisions of teams that were left: the last ones of the latest. */
#define TT_VERDICTS 8

/* Groups come from controllers, each with numbers of its own; up to which they
 * are over here. */
#define TT_ORIGINS 8

struct tt_mesh {
    tt_engine *engine;
    tt_trail *trail; /* NULL: nothing is recorded */
    const tt_mem *mem;
    tt_mem *home; /* freed last */
    tt_mesh *next;
    uint32_t rank, n_ranks, n_nets, n_refs;
    uint32_t n_peers, most_peers; /* of an open one there may be as many */
    bool is_open;
    tt_net **nets; /* the first n_busy have connections, or will soon; the
                      others have something to do only when there is an event */
    uint32_t n_busy;
    uint64_t dial_ns;
    bool is_patient;   /* tt_mesh_patience() was called */
    uint32_t n_opened; /* connections, ever */
    uint32_t n_asking; /* peers that were asked to connect */
    uint64_t n_asks;
    uint64_t urge_ns; /* the earliest of the peers' */
    tt_conn *dropped; /* to be closed in the next pass */
    bool has_news;    /* ... or something else is to be done there */
    tt_arena kept;
    /* [most_peers]: first port 0 of each rank (the own one is unused), then the
     * other ports. What lies beyond n_peers has never been written, so it takes
     * no memory. */
    tt_peer *peers;
    tt_team *teams;
    unsigned char *trash; /* payloads nobody wants */
    size_t trash_bytes;
    uint64_t eager_bytes;
    tt_keep *spare;   /* not in use */
    uint64_t n_ahead; /* early BINDs and kept calls of all peers */
    bool is_broken;   /* a team of it has failed */
    tt_farewell farewells[TT_FAREWELLS]; /* the latest, a ring */
    uint32_t n_farewells;
    tt_verdict verdicts[TT_VERDICTS]; /* a ring */
    uint32_t n_verdicts;
    uint64_t groups_over[TT_ORIGINS]; /* ids; the latest origins, a ring */
    uint32_t n_origins;
    tt_peer nobody; /* of connections that are dropped */
    struct {
        tt_peer *with; /* NULL: it is compared with nobody's */
        uint64_t begun_ns, next_ns;
        uint64_t sent_ns; /* of the PING that is out; 0: none is */
        uint32_t n_left;
        uint64_t trip_ns, middle_ns; /* of the quickest */
        int64_t ahead_ns;
    } clock;
};

struct tt_team {
    tt_mesh *mesh;
    tt_team *next;
    uint64_t id, next_seq;
    uint32_t rank, n;
    uint32_t *members; /* mesh ranks */
    uint32_t *rank_of; /* [mesh most_peers] rank in the team, or TT_NONE */
    /* [mesh most_peers] said BYE by this port: nothing will follow there. */
    bool *has_left;
    bool some_have_left; /* one of them at least */
    bool *gone;          /* [n] somebody has said that it has left */
    double *lateness;    /* ns, moving average */
    tt_asked *asked;     /* [n]; NULL: nobody has asked */
    uint32_t n_asks;     /* of its own that are told on */
    tt_status *seen; /* [n] what the others are at; NULL: nobody has looked */
    tt_op *ops;      /* the oldest is the last */
    uint32_t n_ops, n_held;
    /* With the oldest call (its issue and 1): when it was looked at, and what
     * of it had moved; see late.c. */
    tt_patience patience, any_patience, agree_patience;
    uint64_t waits_issue, waits_look_ns, waits_moved;
    bool is_group;
    tt_agree *agree;         /* NULL: there was no agreement yet */
    uint64_t agree_until_ns; /* of one that is open */
    uint64_t agree_ns;       /* how long it waits for others */
    struct {
        const tt_listener *listener; /* NULL: nobody listens */
        void *arg;
        uint64_t until_ns; /* they are awaited; 0: they are not */
        uint64_t timeout_ns;
        bool are_over;
    } words;
    tt_team *leaving_next;
    tutti_err err;
    uint32_t culprit;
    char text[512];
    const char *cause; /* in text: why the culprit is lost; NULL: it is not */
    /* The call that it was in when it failed, the oldest; has_broken: there was
     * one. */
    tt_past broken;
    bool has_broken;
    /* A member was told DIFFER, of this call: until it answers, what comes is
     * not taken, so that no later call ends well. */
    bool is_odd;
    uint32_t odd_rank;
    tt_past odd;
    tt_any *anys;      /* that wait, the oldest first */
    uint32_t any_last; /* the rank that one of them has found last */
    uint32_t n_past, n_history;
    uint64_t spent_ns; /* in calls */
    tt_past past[];    /* [n_history] a ring */
};

struct tt_engine {
    const tt_mem *mem;
    tt_engine_opts opts;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* done flags, driver changes */
    pthread_t thread;
    bool has_thread, stops, is_driven, is_quiet, was_inline;
    _Atomic int n_waiting; /* threads that want the lock */
    uint32_t n_waits;      /* waits that do not drive */
    /* What the wait that drives waits for; NULL: the engine's thread does. */
    bool (*ready)(const void *arg);
    const void *ready_arg;
    uint32_t n_sleeping; /* threads in epoll_wait() */
    uint64_t wakes_ns;   /* when one of them wakes by itself */
    bool was_active;     /* a call was begun in the last sleep, or since */
    uint32_t n_passes, n_rests; /* n_rests: yields and sleeps */
    uint32_t rest_pass; /* when the clock showed rest_ns, after a yield */
    uint64_t rest_ns;   /* 0: the lock was given up since */
    uint64_t home_ns;   /* when a thread was moved home last */
    tt_op *undated; /* began about when it says: when.h; NULL: there is none */
    uint64_t about_ns; /* when the clock was looked at last for such a one */
    tt_op *newest;     /* began last of all; NULL: it is over, or none did */
    int wake_fd, epoll_fd; /* epoll_fd: wake_fd and the nets' descriptors */
    uint64_t issues, tick_ns, n_active;
    uint64_t n_large;  /* of those that are active */
    uint64_t n_unsaid; /* of all ops */
    uint32_t n_silent; /* peers */
    /* For the receives from any rank of some team, or for connections. */
    bool has_news;
    tt_mesh *meshes;
    tt_peer *dirty, *pumped; /* pumped: to be flushed */
    tt_peer *full;           /* from there on they have found no room */
    tt_op *buckets[TT_OP_BUCKETS];
    tt_op *over;      /* to be recycled after the pass */
    tt_op *held;      /* have ended, but others use their memory: op.c */
    tt_team *leaving; /* likewise */
    tt_op *work;      /* that may have slices to pull */
    tt_op *gpu_ops;   /* on memory of GPUs */
    struct {
        pthread_t thread;
        pthread_mutex_t lock; /* of is_called */
        pthread_cond_t called;
        bool runs, stops, is_called;
        tt_op *to_give, **last; /* linked by gpu->give_next */
        pthread_mutex_t turns;  /* of givings; as long as the engine */
        struct tt_gpu_giving *givings;
        const struct tt_streams
            *at; /* used now, without the lock; NULL: none */
    } giver;
    tt_trail *trail; /* of one of the meshes; NULL: none has one */
};

/* recording.c: only where there is a trail. [locked] */
/* The call begins; or it is over, with op->err. */
void tt_tell_call(const tt_op *op);
void tt_tell_walk(tt_walk *w, tt_told what, uint32_t lane, uint32_t k);

/* The wait that drives has what it waits for. */
static inline bool tt_engine_is_served(const tt_engine *e)
{
    return e->ready && e->ready(e->ready_arg);
}

/* wake.c */
void tt_engine_ring(tt_engine *e); /* whoever sleeps on its descriptors */
void tt_engine_listen(tt_engine *e, int fd, bool on); /* -1: nothing */

/* peer.c */
/* Something is to be sent to it; or it is to be connected. */
void tt_peer_dirty(tt_peer *peer);
void tt_peer_tell(tt_peer *peer, const tt_msg *m, const void *payload);
/* If there is room, also when it is lost. */
void tt_peer_tell_now(tt_peer *peer, const tt_msg *m, const void *payload);
/* Sends the control messages that wait; false: the transport is full. */
bool tt_peer_say(tt_peer *peer);
/* What has been sent to it, and is taken, is known to be (net.h, settle). */
static inline void tt_peer_settle(const tt_peer *peer)
{
    if (peer->n_lent > 0 && peer->conn->net->ops->settle)
        peer->conn->net->ops->settle(peer->conn);
}
/* Something about its connection is in vain: mesh.c sees to it in the next
 * pass. */
void tt_peer_miss(tt_peer *peer, tutti_err why, const char *text);
/* By which it is known: none while it is not connected. */
static inline const tt_conn *tt_peer_conn(const tt_peer *peer)
{
    bool is_none = peer->conn == &peer->none && peer->dialled;
    return is_none ? peer->dialled : peer->conn;
}
/* It is connected, or about to be. */
static inline bool tt_peer_is_linked(const tt_peer *peer)
{
    return peer->conn != &peer->none || peer->dialled || peer->called;
}

/* op.c */
tt_op *tt_op_find(const tt_engine *e, const tt_team *team, uint64_t channel,
                  uint64_t seq);
tt_side *tt_op_side(tt_op *op, const tt_peer *peer);
/* The partner's number in the bound part. */
static inline uint32_t tt_side_partner(const tt_side *side)
{
    return (uint32_t)(side - side->op->sides);
}
/* Says that this rank has entered the call: BIND. */
void tt_side_speak(tt_side *side);
/* A BIND of the call has come. */
void tt_op_bind(tt_op *op, tt_peer *peer, const tt_msg *m,
                const tt_binding_near *bind);
/* The lane of the walk that a slice is the next of, and whose; TT_NONE: it is
 * of another call, or breaks a rule. */
uint32_t tt_op_lane(tt_op *op, const tt_peer *peer, const tt_msg *m,
                    tt_side **side);
/* Takes a slice of that lane. */
void tt_side_take(tt_side *side, uint32_t lane, const tt_msg *m,
                  const void *data);
/* Takes a slice of the call, or finds that the peer calls something else. */
void tt_op_take(tt_op *op, tt_peer *peer, const tt_msg *m, const void *data);
/* Fails the team when op needs a rank that has left and has not entered. */
void tt_op_check_left(tt_op *op);
void tt_op_finish(tt_op *op, tutti_err err);
/* Looks whether ops that are held are free now; those of a team that is gone
 * are, whatever others do with their memory. NULL: none is. */
void tt_op_run_held(tt_engine *e, const tt_team *gone);
/* The peer is cut off from what it has of the op. */
void tt_op_part(tt_op *op, tt_peer *peer);
static inline tt_past tt_op_past(const tt_op *op)
{
    return (tt_past){.channel = op->channel,
                     .seq = op->seq,
                     .fingerprint = op->fingerprint,
                     .call = op->call,
                     .begin_ns = op->start_ns,
                     .knows_bytes = op->walk.b->total_bytes > 0};
}

/* stage.c: calls on memory of GPUs. */
typedef struct tt_op_gpu {
    tt_gpu_call call;
    tt_op *next; /* in engine->gpu_ops */
    bool is_listed;
    bool is_returning; /* all is done but for what goes back to the GPU */
    /* Of others. */
    uint32_t n_here;    /* batches of the input */
    uint32_t n_applied; /* of the walk, when results were last looked for */
    bool scales;        /* the input, as it comes */
    double scale;
    /* Of calls within reach. */
    bool has_granted, has_said_ready; /* to the partners */
    bool is_giving, is_given;         /* its kernels, to the GPU */
    uint32_t n_heard, n_ready;        /* partners */
    uint32_t n_jobs;
    bool has_taken;              /* they have been made, and others are told */
    struct tt_near_job *jobs;    /* [n_copies + 2 n_groups] */
    struct tt_near_side *theirs; /* [n_partners] */
    tt_op *give_next;            /* in engine->to_give */
} tt_op_gpu;

/* Where the batches of a call of so many bytes end, in positions; how many
 * there are. NULL: they are only counted. */
uint32_t tt_stage_cut(const tt_bound *b, uint64_t bytes, uint32_t *borders);
static inline bool tt_op_is_near(const tt_op *op)
{
    return op->gpu && tt_gpu_is_near(&op->gpu->call);
}

/* BIND may be said: this rank's memory is granted. */
static inline bool tt_near_may_speak(const tt_op *op)
{
    return !tt_op_is_near(op) || op->gpu->has_granted;
}
/* Its partner's GPU has come to the call. */
static inline void tt_near_hear_ready(tt_side *side)
{
    if (tt_op_is_near(side->op))
        side->op->gpu->call.way->hear_ready(side);
}
/* near.c. By the giver, without the lock: maps the partners' memory; then, with
 * it, what kernels are to be; then, without it, gives them to the GPU. */
tutti_err tt_near_map(tt_op *op, tutti_diag *diag);
void tt_near_mapped(tt_op *op); /* [locked] whatever has come of it */
void tt_near_plan(tt_op *op);
tutti_err tt_near_launch(const tt_op *op, tutti_diag *diag);

/* giver.c: calls on GPUs, and a thread that may be kept waiting by the driver,
 * and that asks it how the GPUs are. [locked] */
/* What it has in common with all: op->gpu. Errors: ENOMEM. */
tutti_err tt_giver_begin(tt_op *op, const tt_op_start *start);
void tt_giver_list(tt_op *op);   /* there is one more */
void tt_giver_forget(tt_op *op); /* one less */
/* Looks after all of them; true: something moved. */
bool tt_giver_run(tt_engine *e);
/* The team has failed, by this rank's GPU. */
void tt_giver_fail(tt_op *op, tutti_err err, const tutti_diag *diag);
void tt_giver_give(tt_op *op); /* tt_near_map() and so on */
/* What a GPU is given behind a wait for words->made: between the two, and again
 * while the second says false. Who frees memory in between would wait for that
 * word, and the driver would let nobody in who gives the rest; so after a while
 * it is called off: `made` goes on to the next turn, and so does the call. What
 * was given is done for nothing: copies of what is written again later, kernels
 * that look at the word. [any thread] */
typedef struct tt_gpu_giving {
    tt_gpu_call *call;
    uint64_t since_ns;
    bool is_off;
    struct tt_gpu_giving *next;
} tt_gpu_giving;
void tt_giver_enter(tt_gpu_call *call, tt_gpu_giving *out);
bool tt_giver_leave(tt_gpu_giving *giving);
/* What takes too long. [locked] */
void tt_giver_call_off(tt_engine *e, uint64_t now_ns);
void tt_giver_wait(tt_op *op);   /* while it is at it: is_giving */
void tt_giver_end(tt_engine *e); /* [unlocked] */

/* within.c */
/* The transport's; NULL: the partner's memory is never within reach. */
const tt_net_within *tt_within_of(const tt_side *side);
/* Grants this rank's buffers to those partners who can use them. */
void tt_within_offer(tt_op *op);
/* The partner has entered the call, and grants its own; false: they are not
 * where it says. */
bool tt_within_hear(tt_side *side, const tt_grant *theirs);
/* This rank's buffers are withdrawn from all partners, or from one. False:
 * somebody uses them right now; to be asked again. A partner that is_final does
 * not get them for longer: it is lost. */
bool tt_within_end(tt_op *op);
bool tt_within_part(tt_side *side, bool is_final);
/* A partner's buffers, while a slice is made (the walk's hooks). */
bool tt_within_hold(tt_side *side);
void tt_within_release(tt_side *side);
/* The op may have slices to pull; it has none now. */
void tt_within_note(tt_op *op);
void tt_within_forget(tt_op *op);

/* eager.c */
/* The peer lets go of FIRSTs; false: of more than there were. */
bool tt_eager_taken(tt_peer *peer, uint8_t flags);
/* How many FIRSTs a peer is not told of before it is told with no other
 * message: so it has places left while it learns of free ones. */
#define TT_EAGER_UNTOLD (TT_EAGER_CALLS / 2)
/* Lets go of one of the peer's. */
static inline void tt_eager_take(tt_peer *peer)
{
    peer->n_taken++;
    if ((uint8_t)(peer->n_taken - peer->n_told) < TT_EAGER_UNTOLD)
        return;
    tt_msg m = {.magic = TT_MSG_MAGIC, .kind = TT_KIND_TOOK};
    tt_peer_tell(peer, &m, NULL);
}
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
/* Drops what is kept of the peer for a team. NULL: for all, as if nothing had
 * been sent to the peer, which is lost, or had come from it. */
void tt_eager_drop(tt_peer *peer, const tt_team *team);
void tt_eager_free(tt_mesh *mesh);

/* team.c */
static inline uint32_t tt_team_rank_of(const tt_team *team, const tt_peer *peer)
{
    return team->rank_of[peer->rank];
}
/* What has been sent to its members, and is taken, is known to be (peer.c):
 * before it is looked at who waits for whom. */
void tt_team_settle(const tt_team *team);
/* Port 0 of a member; next_port leads on. */
static inline tt_peer *tt_team_peer(const tt_team *team, uint32_t rank)
{
    return &team->mesh->peers[team->members[rank]];
}
static inline bool tt_team_has_left(const tt_team *team, const tt_peer *peer)
{
    return team->has_left[peer - team->mesh->peers];
}
static inline void tt_team_mark_left(tt_team *team, const tt_peer *peer)
{
    team->has_left[peer - team->mesh->peers] = true;
    team->some_have_left = true;
}
/* It has left, or others say so. What it sent before may be on its way by a
 * connection that is just being made: so a call that needs it tries that
 * first. */
static inline bool tt_team_is_gone(const tt_team *team, const tt_peer *peer)
{
    const uint32_t rank = tt_team_rank_of(team, peer);
    return tt_team_has_left(team, peer) ||
           (rank != TT_NONE && team->gone[rank]);
}
/* It has said so, or can say nothing any more: calls that need it fail. */
void tt_team_note_left(tt_team *team, const tt_peer *peer);
/* `from` says that a member has left in good order: its neighbours in the
 * control graph are told, once. */
void tt_team_note_gone(tt_team *team, uint32_t rank, const tt_peer *from);
static inline tt_msg tt_team_msg(const tt_team *team, tt_kind kind,
                                 uint64_t channel, uint64_t seq)
{
    return (tt_msg){.magic = TT_MSG_MAGIC,
                    .kind = (uint8_t)kind,
                    .comm = team->id,
                    .channel = channel,
                    .seq = seq};
}
/* What a sentence calls a member: of a group its rank in the mesh. */
static inline uint32_t tt_team_name(const tt_team *team, uint32_t rank)
{
    return team->is_group ? team->members[rank] : rank;
}
/* A moving average over about 16 calls. */
static inline void tt_team_note_lateness(tt_team *team, uint32_t rank,
                                         double ns)
{
    double *late = &team->lateness[rank];
    *late += (ns - *late) / 16;
    if (*late < 1)
        *late = 0; /* processors are slow with what is almost nothing */
}
/* Those of the team that are connected, and its neighbours in the control
 * graph; but: NULL, or one who is not told. */
void tt_team_tell(tt_team *team, const tt_msg *m, const void *payload,
                  const tt_peer *but);
/* See tt_team_leave(): nobody is in the middle of one of its calls. It is taken
 * out of the mesh, and freed. False: it still holds an op, whose memory others
 * use, unless they are cut off; then it is freed behind that. */
bool tt_team_take_leave(tt_team *team, bool cuts_off);
void tt_team_free(tt_team *team);
void tt_team_told(tt_team *team, const tt_reason *reason);
/* Fails a team that is well: the culprit is lost, to everybody. */
void tt_team_lose(tt_team *team, tutti_err err, uint32_t culprit,
                  const char *cause);
/* What was lent to the peer is taken back from it, for the ops of a team that
 * fails or for those that are held. False: it reads one of them right now. */
bool tt_peer_reclaim(tt_peer *peer, const tt_team *team, bool is_final);
void tt_peer_gone(tt_peer *peer, tutti_err why, const char *text);
/* A peer that was given up speaks of a team, which has failed or was left: it
 * is told why, if there is room. */
void tt_team_tell_lost(tt_peer *peer, uint64_t id);
/* The peer is connected now: the groups with it that have failed before. */
void tt_group_retell(tt_peer *peer);
static inline bool tt_is_group(uint64_t id)
{
    return id >> 63 != 0;
}
/* The peer speaks of a group that is not entered here. It may be: those before
 * it are over at the peer, and what was kept of them goes. False: it is over,
 * and who waits for an answer (asks) is told. */
bool tt_group_expect(tt_peer *peer, uint64_t id, bool asks);
/* Likewise, with data; returns whether it is kept. */
bool tt_group_keep(tt_peer *peer, const tt_msg *m, const void *data);
/* This rank will not take part: the peer's group is to fail. */
void tt_group_refuse(tt_peer *peer, uint64_t id);
/* "rank 3 has ended it before rank 1" */
void tt_group_print_ended(const tt_team *team, uint32_t rank, char *text,
                          size_t size);
/* The peer has ended the group before it was entered here. */
void tt_group_told(tt_peer *peer, uint64_t id);

/* differ.c */
/* A call that this rank has made, of those that are remembered. */
bool tt_team_past(const tt_team *team, uint64_t channel, uint64_t seq,
                  tt_past *out);
/* The peer's message breaks a rule: fails the team. */
void tt_team_breach(tt_team *team, const tt_peer *peer, const tt_msg *m);
/* Compares a peer's call with the own one, of which op is left, or NULL; fails
 * the team if they differ. */
bool tt_team_compare(tt_team *team, const tt_peer *peer, const tt_op *op,
                     const tt_past *own, const tt_call *theirs,
                     uint64_t fingerprint);
/* The peer called something else than a call that nobody remembers here. */
void tt_team_forgot(tt_team *team, uint32_t peer_rank, const tt_msg *m,
                    const tt_call *theirs);
/* Data that is for no lane of the own call: a FIRST of another call is answered
 * (DIFFER), all else breaks a rule. */
void tt_team_refuse(tt_team *team, tt_peer *peer, const tt_past *own,
                    const tt_msg *m);
/* Fails the team when the peer has left and cannot say what it called. */
void tt_team_check_odd(tt_team *team, const tt_peer *peer);

/* agree.c: agreements of a team. */
/* A VOTE has come; false: it makes no sense. */
bool tt_vote_hear(tt_peer *peer, tt_team *team, const tt_msg *m,
                  const void *data);
/* The same of a peer that was given up: it is told that it is out, if there is
 * room. */
void tt_vote_hear_lost(tt_peer *peer, const tt_msg *m, const void *data);
/* The peer is lost. */
void tt_vote_lose(const tt_peer *peer);
/* The team is left: it has no agreement any more. */
void tt_vote_leave(tt_team *team);
/* Looks at the time of an agreement that is open; TT_NONE, or a member that has
 * not come. */
uint32_t tt_vote_expire(tt_team *team, uint64_t now_ns);
/* An agreement of the team waits for the peer. */
static inline bool tt_vote_awaits(const tt_team *team, const tt_peer *peer)
{
    uint32_t rank = tt_team_rank_of(team, peer);
    return team->agree && rank != TT_NONE && tt_agree_awaits(team->agree, rank);
}

/* word.c */
/* A WORD has come: BREACH, the peer cannot have sent that; else what the member
 * m->lane has said, which the peer may have told on. */
typedef enum tt_word_is {
    TT_WORD_HEARD,
    TT_WORD_BREACH,
    TT_WORD_SENSELESS, /* says who listens */
    TT_WORD_FLOOD
} tt_word_is;
tt_word_is tt_word_hear(tt_team *team, const tt_peer *peer, const tt_msg *m,
                        const void *data);
/* A member has left: words that go by it do not come. */
void tt_word_part(tt_team *team, const tt_peer *peer);
/* The neighbours in the tree, one after the other; TT_NONE: no more. */
uint32_t tt_word_next(const tt_team *team, uint32_t after);

/* seek.c */
/* It is dialled, or away, from now on: where that lasts it is asked to connect
 * (tick). */
void tt_seek_begin(tt_peer *peer);
void tt_seek_anew(tt_mesh *mesh); /* all that still last */
void tt_seek_urge(tt_mesh *mesh, uint64_t now_ns);
/* No access leads to it; it may have one that leads here, so it is asked.
 * False: it cannot be, or was. */
bool tt_seek_ask(tt_peer *peer);
/* Calls for several ranks may overtake each other. False: it has come round, or
 * is too old to tell. */
bool tt_seek_is_new(tt_peer *who, uint64_t number);
/* A CALL, by first ports. `but` has told this rank; NULL: it is this rank's. */
void tt_seek_tell_on(tt_mesh *mesh, const tt_msg *m, const void *data,
                     const tt_peer *but);

/* mesh.c: connections that come and go: tried, found, given up; where there are
 * news. */
static inline void tt_mesh_has_news(tt_mesh *mesh)
{
    mesh->has_news = true;
    mesh->engine->has_news = true;
}
void tt_mesh_run(tt_mesh *mesh);
/* A CALL has come. */
void tt_mesh_asked(tt_peer *from, const tt_msg *m, const void *data);
tt_conn *tt_mesh_called(tt_net *net, uint32_t rank, const tt_link_id *id);
void tt_mesh_up(tt_conn *conn);
void tt_mesh_missed(tt_conn *conn, tutti_err why, const char *text);
const void *tt_mesh_address(const tt_conn *conn, size_t *len);
/* Takes it out of the engine. [locked] Then closes and frees it. [unlocked] */
void tt_mesh_detach(tt_mesh *mesh);
void tt_mesh_end(tt_mesh *mesh);
/* Ranks a and b of n are neighbours in the control graph: their distance on the
 * ring is a power of two. */
static inline bool tt_is_neighbour(uint32_t a, uint32_t b, uint32_t n)
{
    uint32_t there = (b + n - a) % n, back = n - there;
    return a != b && ((there & (there - 1)) == 0 || (back & (back - 1)) == 0);
}

/* any.c: what waits is served where something new was kept, or a rank has
 * left. */
void tt_any_serve(tt_team *team);
static inline void tt_any_end(tt_any *any, uint32_t rank, tutti_err err)
{
    tt_any **at = &any->team->anys;
    tt_program *program = any->program;
    while (*at != any)
        at = &(*at)->next;
    *at = any->next;
    any->team->mesh->engine->n_active--;
    any->found(any, rank, err); /* may free it */
    tt_program_unref(program);
}

/* clocks.c: that of the mesh is compared with a parent's (TT_NONE: with
 * nobody's) from now on; time passes; a PONG has come. */
void tt_clock_begin(tt_mesh *mesh, uint32_t parent);
void tt_clock_tick(tt_mesh *mesh, uint64_t now_ns);
void tt_clock_hear(const tt_peer *peer, const tt_msg *m);

/* late.c */
/* When it is time says for whom the team's calls wait, a receive from any rank,
 * or an agreement; or fails it. */
void tt_team_look_late(tt_team *team, uint64_t now_ns);
/* The side that an op waits for: one that has not entered it rather than one
 * that has; NULL: none. */
const tt_side *tt_op_awaits(const tt_op *op);

/* status.c */
/* A SEEN of that member. */
void tt_team_saw(tt_team *team, uint32_t rank, const void *data);

/* watch.c */
void tt_engine_tick(tt_engine *e, uint64_t now_ns);
/* Says BIND where calls have been silent for long. */
void tt_engine_speak(tt_engine *e, uint64_t now_ns);

#endif
