/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tutti_plan.h - networks and schedules: what a network allows, which schedule
 * is best for it, and what that takes.
 *
 * Unstable: names and layouts may change from one version to the next. A
 * program gets this file by defining TUTTI_UNSTABLE before tutti.h, or by
 * including it.
 *
 * A network is a file, a generator such as star:8@400Mbit, or measured. For a
 * network the library computes the least time of a collective, plans schedules,
 * proves them, and predicts what they take:
 *
 *     tutti_topology *net;
 *     tutti_schedule *sched;
 *     tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
 *     double seconds;
 *     opts.size_bytes = 64 << 20;
 *     err = tutti_topology_open("star:8@400Mbit", &net, NULL);
 *     if (!err)
 *         err = tutti_plan(net, &opts, &sched, NULL, NULL);
 *     if (!err)
 *         err = tutti_predict(net, sched, &opts, &seconds, NULL);
 *
 * All of it: [any thread]; networks and schedules are immutable, so threads may
 * share them. A function writes its outputs only when it returns TUTTI_OK. diag
 * may be NULL. Strings in structs of rows and infos are the library's and stay,
 * unless it says otherwise. Option structs begin with their _INIT macro, or
 * all zero but `size`, sizeof; NULL: all zero. Every function that can fail may
 * also return TUTTI_ENOMEM, and TUTTI_ELIMIT beyond a limit of
 * docs/reference/topology.md.
 */
#ifndef TUTTI_PLAN_H
#define TUTTI_PLAN_H

#include "tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One sentence about what is wrong, and where when that makes sense. */
typedef struct tutti_diag {
    uint32_t rank, chunk, step; /* UINT32_MAX: does not apply */
    uint32_t line, column;      /* of a text; 0: does not apply */
    char text[512];
} tutti_diag;

/* A schedule: immutable, free of user memory. */
typedef struct tutti_schedule tutti_schedule;

typedef struct tutti_schedule_info {
    tutti_coll collective;
    uint32_t n_ranks, root; /* root: UINT32_MAX when there is none */
    uint64_t n_blocks, n_parts, n_chunks, n_transfers;
    uint32_t n_steps;
    uint64_t id;
} tutti_schedule_info;

/* A row of the planner table. */
typedef struct tutti_planner_info {
    const char *name, *blurb, *fits;
    /* Above so many ranks it plans for a minute or more, and `auto` leaves it
     * alone; 0: there is no such number. */
    uint32_t auto_ranks;
} tutti_planner_info;
/* false when index is past the end. */
TUTTI_API bool tutti_planner_at(size_t index, tutti_planner_info *out);

/* ------------------------------------------------------------ topologies -- */

/* A network: immutable. */
typedef struct tutti_topology tutti_topology;

/* spec: a generator ("torus:8x8@16GB/s,150ns"), the name of one of the papers'
 * machines, or the path of a topology file or of NCCL's topology XML. The
 * caller owns *out (tutti_topology_free). Errors: ESYS (no such file), EFORMAT,
 * EINVAL, ELIMIT with line and column, ENOFIT (XML, and built without
 * libxml2). */
TUTTI_API tutti_err tutti_topology_open(const char *spec, tutti_topology **out,
                                        tutti_diag *diag);
/* The same from the text of a file, a generator or XML. */
TUTTI_API tutti_err tutti_topology_parse(const char *text, size_t len,
                                         tutti_topology **out,
                                         tutti_diag *diag);
TUTTI_API void tutti_topology_free(tutti_topology *net); /* accepts NULL */
TUTTI_API uint32_t tutti_topology_ranks(const tutti_topology *net);
/* As a topology file; the caller owns *text (tutti_text_free). */
TUTTI_API tutti_err tutti_topology_text(const tutti_topology *net, char **text,
                                        size_t *len);

typedef struct tutti_topology_info {
    uint32_t n_ranks, n_switches, n_links; /* links: one direction each */
    uint64_t id;                           /* a hash of the network's file */
} tutti_topology_info;
TUTTI_API void tutti_topology_describe(const tutti_topology *net,
                                       tutti_topology_info *out);

/* A vertex of the network. Names live as long as the topology. */
typedef enum tutti_node_kind {
    TUTTI_NODE_HOST,   /* with one rank, or, with none, with slots */
    TUTTI_NODE_SWITCH, /* forwards only */
    TUTTI_NODE_SLOT    /* of one rank of a host of several */
} tutti_node_kind;
typedef struct tutti_node_info {
    const char *name;
    const char *host; /* of a slot: the host's name; else NULL */
    tutti_node_kind kind;
    int rank;      /* -1: none */
    bool forwards; /* what comes for others; only hosts may not */
} tutti_node_info;
/* false when index is past the end. */
TUTTI_API bool tutti_node_at(const tutti_topology *net, size_t index,
                             tutti_node_info *out);

/* A directed link. Names live as long as the topology. */
typedef struct tutti_link_info {
    const char *from, *to;
    double bytes_per_s, latency_s;
    uint64_t rate_bps;  /* the same rate, exactly */
    size_t twin;        /* index of the link back; SIZE_MAX: one way only */
    const char *dev;    /* the interface at `from`; NULL: not known */
    uint64_t least_bps; /* perhaps it is only so much; 0: nobody doubts it */
} tutti_link_info;
/* false when index is past the end. */
TUTTI_API bool tutti_link_at(const tutti_topology *net, size_t index,
                             tutti_link_info *out);

/* The route from every rank to every other, by increasing (src, dst): the
 * indices of its links, which are the callback's while it runs. No links: hosts
 * between the two do not forward, so there is no route. */
typedef void (*tutti_route_fn)(void *ctx, int src, int dst,
                               const uint32_t *links, uint32_t n_links);
TUTTI_API tutti_err tutti_routes(const tutti_topology *net, tutti_route_fn fn,
                                 void *ctx, tutti_diag *diag);
/* The other routes of each pair, where it has several: rails 1 and up. */
typedef void (*tutti_rail_fn)(void *ctx, int src, int dst, int rail,
                              const uint32_t *links, uint32_t n_links);
TUTTI_API tutti_err tutti_rails(const tutti_topology *net, tutti_rail_fn fn,
                                void *ctx, tutti_diag *diag);

/* A picture of the network. format: "svg", "text" (for a terminal), "layout"
 * (JSON: where nodes and links lie in both). The caller owns *text
 * (tutti_text_free). Errors: EINVAL (no such picture; diag lists them), ELIMIT
 * (too large for one). */
TUTTI_API tutti_err tutti_topology_draw(const tutti_topology *net,
                                        const char *format, char **text,
                                        size_t *len, tutti_diag *diag);

/* The same network as TCP's payload sees it: of every full packet on a link
 * between hosts 1448 of 1514 bytes; links inside a host stay as they are. The
 * caller owns *out. */
TUTTI_API tutti_err tutti_topology_payload(const tutti_topology *net,
                                           tutti_topology **out,
                                           tutti_diag *diag);

/* A row of the table of generators and named machines. */
typedef struct tutti_generator_info {
    const char *name, *form, *blurb;
} tutti_generator_info;
TUTTI_API bool tutti_generator_at(size_t index, tutti_generator_info *out);

/* How far long work is: `what` a phrase; `done` pieces of `total` (0: unknown).
 * Called often, in the caller's thread, while a function works. */
typedef void (*tutti_progress_fn)(void *ctx, const char *what, uint64_t done,
                                  uint64_t total);

/* The least possible times on a network, in seconds per byte of the vector. */
typedef struct tutti_bound_info {
    uint32_t n_ranks;
    double allreduce_s_per_byte;
    bool is_exact; /* else: a lower bound, and the best schedule known takes
                      (1 + gap) times as long; infinite: none is known */
    double gap;
    double allgather_s_per_byte, reducescatter_s_per_byte;
    /* The all-gather's exactly: num / den seconds per bit. den 0: not proven
     * to be the optimum (tens of thousands of ranks); a lower bound. */
    uint64_t allgather_num, allgather_den;
    double cut_s_per_byte, aggregate_s_per_byte; /* lower bounds of the
                                                    all-reduce */
    double latency_s; /* no all-reduce, all-gather, reduce-scatter or
                         all-to-all takes less */
} tutti_bound_info;
typedef struct tutti_bound_opts {
    size_t size;
    double gap;       /* good enough; 0: 1e-7 */
    bool only_bounds; /* no column generation */
    tutti_progress_fn progress;
    void *progress_ctx;
} tutti_bound_opts;
#define TUTTI_BOUND_OPTS_INIT                      \
    {                                              \
        sizeof(tutti_bound_opts), 0, 0, NULL, NULL \
    }
/* Column generation is the long part; only_bounds leaves it out. */
TUTTI_API tutti_err tutti_bound(const tutti_topology *net,
                                const tutti_bound_opts *opts,
                                tutti_bound_info *out, tutti_diag *diag);
/* The least seconds of a collective of so many bytes (as tutti_plan_opts counts
 * them), by `bound` of net. 0: one rank, send-recv, or the root is no rank. */
TUTTI_API double tutti_bound_s(const tutti_topology *net,
                               const tutti_bound_info *bound, tutti_coll coll,
                               int root, uint64_t size_bytes);

/* A sentence: what is the limit of an all-reduce, what it takes at least (TCP's
 * payload counted), and how near the best plan comes. Takes as long as both
 * take. Errors: EINVAL (one rank); those of tutti_bound and tutti_plan. */
TUTTI_API tutti_err tutti_network_summary(const tutti_topology *net,
                                          uint64_t size_bytes, char *text,
                                          size_t size, tutti_diag *diag);

/* ---------------------------------------------------------------- probe -- */

/* The network between the hosts of a job, measured. */
typedef struct tutti_probe tutti_probe;

typedef struct tutti_probe_opts {
    size_t size;
    double time_s;              /* measures no longer than this; 0: 10 */
    tutti_progress_fn progress; /* called on rank 0, with per cent of 100 */
    void *progress_ctx;
} tutti_probe_opts;
#define TUTTI_PROBE_OPTS_INIT                   \
    {                                           \
        sizeof(tutti_probe_opts), 0, NULL, NULL \
    }
/* Every rank of a job calls it, started by any launcher, as it would call
 * tutti_comm_create; no communicator is needed or made. The ranks find each
 * other, one of each host finds out which interfaces reach each other and how
 * fast they are alone and together, and rank 0 infers the network. Blocks. The
 * links should be idle. The caller owns *out (tutti_probe_free). Errors, on all
 * ranks: as tutti_comm_create; ENET (hosts that cannot reach each other, by
 * name), EPEER and ETIMEOUT (a rank that has left or does not answer), EINVAL
 * (a time that is none). */
TUTTI_API tutti_err tutti_probe_run(const tutti_probe_opts *opts,
                                    tutti_probe **out, tutti_diag *diag);
TUTTI_API void tutti_probe_free(tutti_probe *probe); /* accepts NULL */

/* What follows is known on rank 0 alone; elsewhere there is no network, no note
 * and no way. Everything lives as long as the probe. */
typedef struct tutti_probe_info {
    uint32_t rank, n_ranks; /* known everywhere */
    uint32_t n_hosts, n_interfaces, n_rounds;
    double seconds;
} tutti_probe_info;
TUTTI_API void tutti_probe_describe(const tutti_probe *probe,
                                    tutti_probe_info *out);
/* NULL where it is not known. Rates are those of the links, with headers. */
TUTTI_API const tutti_topology *tutti_probe_topology(const tutti_probe *probe);

/* Where figures come from, and what could not be found out. */
typedef enum tutti_note_kind {
    TUTTI_NOTE_LINK,    /* what the figures of a link rest on */
    TUTTI_NOTE_UNKNOWN, /* what traffic could not tell */
    TUTTI_NOTE_DOUBT    /* measurements that do not fit together */
} tutti_note_kind;
typedef struct tutti_probe_note {
    tutti_note_kind kind;
    const char *text; /* one line */
} tutti_probe_note;
/* false when index is past the end. */
TUTTI_API bool tutti_probe_note_at(const tutti_probe *probe, size_t index,
                                   tutti_probe_note *out);

/* One address of a host, called from one address of another. */
typedef struct tutti_probe_way {
    const char *from, *to; /* hosts */
    const char *from_dev, *to_dev, *from_address, *to_address;
    const char *outcome; /* "connects, in one subnet", "no answer", ... */
    bool connects;
    bool is_chosen;     /* of all ways from this host to that one */
    const char *why;    /* it is chosen, or not; NULL: it does not connect */
    double latency_s;   /* one way; 0: not known */
    double bytes_per_s; /* of the link; 0: not known */
} tutti_probe_way;
/* By host from and host to; false when index is past the end. */
TUTTI_API bool tutti_probe_way_at(const tutti_probe *probe, size_t index,
                                  tutti_probe_way *out);

/* ---------------------------------------------------------------- plans -- */

/* What messages and bytes cost a job's ranks, as TUTTI_COSTS tells it: measured
 * with all of them at work. */
typedef struct tutti_costs {
    uint64_t message_ns; /* until a few bytes are there; 0: not known, what is
                            assumed counts */
    uint64_t byte_ps;    /* a further byte, sent and received */
    uint64_t reduce_ps;  /* a byte of one that is added */
} tutti_costs;
/* "50000,800,100", or "off": not known. False: it is neither. */
TUTTI_API bool tutti_costs_parse(const char *text, tutti_costs *out);

typedef struct tutti_plan_opts {
    size_t size;
    tutti_coll collective;
    int root;
    /* Of the vector; decides among planners. Reduce-scatter, all-gather,
     * gather, scatter: all blocks together; all-to-all: what one rank sends. */
    uint64_t size_bytes;
    const char *planner; /* name, rule string ("0-4K:doubling,4K-:ring"),
                            schedule that somebody wrote ("file:x.schedule"),
                            or NULL = auto */
    /* Reduce-scatter, all-gather: bytes of each rank's block, n_ranks of them;
     * NULL: equal. */
    const uint64_t *block_bytes;
    tutti_progress_fn progress;
    void *progress_ctx;
    /* What ranks pay beside the network: messages beyond the latency of links,
     * and reducing. NULL: nothing. */
    const tutti_costs *costs;
    /* Where all ranks share the processors of one machine: ranks to one; 0:
     * they do not. */
    double crowd;
    bool is_one_host;     /* all ranks are on one host, and have its memory */
    uint64_t burst_bytes; /* predictions: as in tutti_sim_opts */
} tutti_plan_opts;
#define TUTTI_PLAN_OPTS_INIT                                               \
    {                                                                      \
        sizeof(tutti_plan_opts), TUTTI_ALL_REDUCE, 0, 0, NULL, NULL, NULL, \
            NULL, NULL, 0, false, 0                                        \
    }

/* Plans for the network. The caller owns *out (tutti_schedule_free). *chosen
 * (may be NULL) is the planner's name. Errors: ENOFIT (diag says why), ECONFIG
 * (no such planner, or a bad rule), EINVAL (the collective has no schedule, or
 * the root is no rank). */
TUTTI_API tutti_err tutti_plan(const tutti_topology *net,
                               const tutti_plan_opts *opts,
                               tutti_schedule **out, const char **chosen,
                               tutti_diag *diag);

/* The network that calls on comm are planned for, with comm's ranks; NULL: none
 * is known (TUTTI_TOPOLOGY). Lives as long as comm. */
TUTTI_API const tutti_topology *tutti_comm_topology(const tutti_comm *comm);
/* The schedule that such a call on comm is performed by; opts->planner NULL:
 * TUTTI_PLANNER; block_bytes is not looked at, nor are costs and where ranks
 * sit. Nothing is sent: no other rank need do the same. The caller owns *out;
 * *chosen (may be NULL) is the planner's name. A barrier is an all-reduce of
 * one byte. Errors: as tutti_plan. */
TUTTI_API tutti_err tutti_comm_plan(const tutti_comm *comm,
                                    const tutti_plan_opts *opts,
                                    tutti_schedule **out, const char **chosen,
                                    tutti_diag *diag);

/* From now on calls of comm of this collective (with the schedule's root, where
 * it has one) that name no planner of their own are performed by the schedule,
 * which is proven first, and copied. All ranks must, between the same calls:
 * one with another schedule is found in the next call (EMISMATCH). NULL: as
 * before any. What comm was split from, or is split into, knows nothing of it.
 * A barrier is an all-reduce. Errors: EINVAL (it is of another collective or
 * number of ranks), EPROOF and the counterexample, EBUSY, EFORK, ENOMEM; then
 * nothing has changed, but for ENOMEM. */
TUTTI_API tutti_err tutti_plan_use(tutti_comm *comm, tutti_coll coll,
                                   const tutti_schedule *sched,
                                   tutti_diag *diag);

/* The seconds that the schedule is predicted to take for the vector that opts
 * describe: queues, and the engine's slices, credits and window, but fewer
 * slices where that would take long; messages beyond the latency of links, and
 * reducing, cost what opts->costs says. The collective and its root are the
 * schedule's. Errors: as tutti_simulate. */
TUTTI_API tutti_err tutti_predict(const tutti_topology *net,
                                  const tutti_schedule *sched,
                                  const tutti_plan_opts *opts, double *seconds,
                                  tutti_diag *diag);

/* What a planner is charged, and why `auto` takes it or not. */
typedef struct tutti_charge {
    const char *planner;
    bool fits, is_chosen;
    double time_s;     /* predicted; negative: not known */
    double messages_s; /* of that: what messages take, with few bytes */
    double bytes_s;    /* what their bytes add */
    double reduce_s;   /* what reducing adds */
    const char *why;   /* it is chosen, is not, or does not fit */
} tutti_charge;
typedef void (*tutti_charge_fn)(void *ctx, const tutti_charge *charge);

/* All planners, in the order of their table, by the numbers and the rules by
 * which `auto` chooses one; net NULL: n_ranks ranks on a network that nobody
 * has described, which go by costs alone (opts->costs NULL: by what is
 * assumed). opts->planner is not looked at. What fn is told lives as long as
 * the call. Errors: as tutti_plan; EINVAL (no ranks, costs or a crowd that are
 * none). */
TUTTI_API tutti_err tutti_explain(const tutti_topology *net, uint32_t n_ranks,
                                  const tutti_plan_opts *opts,
                                  tutti_charge_fn fn, void *ctx,
                                  tutti_diag *diag);

/* -------------------------------------------------------------- simulate -- */

/* What happened to one slice of one transfer. */
typedef struct tutti_event_info {
    double begin_s, sent_s, end_s; /* leaves, has left, has been consumed */
    uint64_t bytes;
    uint32_t step, chunk, src, dst, slice;
    uint8_t rail; /* with src and dst: the connection */
    bool reduces; /* else copies */
} tutti_event_info;
typedef void (*tutti_event_fn)(void *ctx, const tutti_event_info *event);

typedef enum tutti_lockstep {
    TUTTI_LOCKSTEP_OFF,
    TUTTI_LOCKSTEP_RANK, /* a rank waits for its own earlier steps */
    TUTTI_LOCKSTEP_ALL   /* ... and for everybody's */
} tutti_lockstep;

/* All zero but `size` and size_bytes: the fluid model, one slice per chunk.
 * docs/explanation/simulator.md says what is modelled. */
typedef struct tutti_sim_opts {
    size_t size;
    uint64_t size_bytes;         /* as in tutti_plan_opts */
    const uint64_t *block_bytes; /* as in tutti_plan_opts */
    uint32_t elem_bytes; /* 0: 1; the part of an element at the end of the
                            vector, or of a block, is left out */
    bool as_engine;    /* slices, window and front window as the engine has them
                       (the next four are not looked at), in packets that cut
                       through, unless is_packet or is_fluid says otherwise */
    uint32_t n_slices; /* per chunk, rounded up to a power of two, fewer where
                          they would fall under 2 KiB; 0: by front_bytes */
    uint64_t front_bytes; /* slices so that one of every chunk is at most so
                             much of the vector; 0: one slice */
    uint32_t window;      /* credit, in slices per transfer; 0: unlimited */
    uint64_t front_window_bytes; /* how far sends of own data run ahead of the
                                    result; 0: any; not with lockstep */
    double overhead_s;           /* of a rank, per slice it sends */
    double gamma_s_per_byte;     /* of a rank, per byte and input it reduces */
    tutti_lockstep lockstep;
    bool by_step;     /* connections, and links (packet), serve the lowest step
                       first */
    bool is_packet;   /* else fluid; the rest is of the packet model */
    bool cut_through; /* else a slice is stored and forwarded */
    uint32_t packet_bytes; /* payload of a packet; 0: no packets */
    uint32_t flit_bytes;   /* payload and headers are whole flits; 0: 1 */
    uint32_t header_bytes; /* of each packet */
    bool message_mode;     /* one header per slice instead */
    /* Called in the caller's thread, in order of consumption. */
    tutti_event_fn on_event;
    void *event_ctx;
    tutti_progress_fn progress;
    void *progress_ctx;
    /* As TUTTI_STAGING_MAX and the transports limit slices; 0: nothing does. */
    uint64_t staging_max_bytes; /* of a rank, for what is not reduced yet */
    uint32_t max_payload;       /* of a message */
    uint64_t burst_bytes;       /* packet: every link is limited by a token
                                   bucket that holds so much; 0: by its rate */
    bool is_fluid;              /* fluid with as_engine, too */
} tutti_sim_opts;

typedef struct tutti_sim_result {
    double time_s;
    /* Busy seconds of the busiest link, and of all on average, by time_s. */
    double max_link_utilisation, mean_link_utilisation;
    uint32_t busiest_link; /* UINT32_MAX: nothing was sent */
    uint64_t n_messages;   /* slices */
    uint64_t bytes;        /* payload over all transfers */
    uint64_t link_bytes;   /* over all links, with headers */
} tutti_sim_result;

/* Errors: EINVAL (the schedule is for another number of ranks; bad options),
 * EPROOF (a transfer that can never start: the schedule is not sound). */
TUTTI_API tutti_err tutti_simulate(const tutti_topology *net,
                                   const tutti_schedule *sched,
                                   const tutti_sim_opts *opts,
                                   tutti_sim_result *out, tutti_diag *diag);

/* The same, and what happens when as a Chrome trace (JSON, for Perfetto or
 * chrome://tracing). The caller owns *text (tutti_text_free). on_event is not
 * looked at. */
TUTTI_API tutti_err tutti_trace(const tutti_topology *net,
                                const tutti_schedule *sched,
                                const tutti_sim_opts *opts,
                                tutti_sim_result *out, char **text, size_t *len,
                                tutti_diag *diag);

/* What a job did whose ranks recorded it (TUTTI_TRACE=dir), all of them in one
 * Chrome trace: calls, slices (an arrow from where one left to where it was
 * consumed), when a rank slept, what each sent and received over time; beside
 * it what was predicted, where the network is known. Clocks are those of rank
 * 0's host. */
typedef struct tutti_merge_opts {
    size_t size;
    uint64_t job; /* 0: the latest in the directory */
    /* To predict on; NULL: that of the job (TUTTI_TOPOLOGY), if it knew one. */
    const tutti_topology *net;
} tutti_merge_opts;
#define TUTTI_MERGE_OPTS_INIT             \
    {                                     \
        sizeof(tutti_merge_opts), 0, NULL \
    }
typedef struct tutti_merge_info {
    uint64_t job;
    uint32_t n_jobs;    /* in the directory */
    uint32_t n_ranks;   /* of the job */
    uint32_t n_missing; /* of them: no record is there */
    uint64_t n_calls, n_slices;
    uint64_t n_predicted; /* calls of all ranks together, with their slices */
    double seconds;       /* from the first record to the last */
    double clock_error_s; /* the most that clocks may be off, where they were
                             compared */
    uint32_t n_unclocked; /* ranks whose clock was not: the day's is taken */
} tutti_merge_info;
/* The caller owns *text (tutti_text_free). Errors: ESYS (no records; they
 * cannot be read), EFORMAT, EINVAL (no such job). */
TUTTI_API tutti_err tutti_trace_merge(const char *dir,
                                      const tutti_merge_opts *opts,
                                      tutti_merge_info *info, char **text,
                                      size_t *len, tutti_diag *diag);
/* What stands in a trace: a slice, or a call of a rank. */
typedef struct tutti_recorded_info {
    tutti_event_info event; /* a call: its rank is src; bytes, begin and end */
    uint64_t call; /* its number in the job; 0: the trace does not say */
    const char *call_name; /* a call: what was called; NULL: a slice */
    bool is_predicted;     /* in a trace of what was and what was predicted */
} tutti_recorded_info;
typedef void (*tutti_recorded_fn)(void *ctx, const tutti_recorded_info *info);
/* Reads a trace back, one that tutti_trace() wrote or that a job has recorded:
 * calls fn for each slice and call, in the order of the text; times count from
 * what the text counts from. Errors: EFORMAT with its line (no such text, or no
 * slices in it). */
TUTTI_API tutti_err tutti_trace_read(const char *text, size_t len,
                                     tutti_recorded_fn fn, void *ctx,
                                     tutti_diag *diag);

/* Does any step load a link beyond its capacity, when all transfers of a step
 * are on the way together? A link's capacity is its rate over the slowest
 * rate that the schedule uses, rounded down. Errors: EINVAL (another number of
 * ranks). */
typedef struct tutti_contention_info {
    bool is_free;
    uint32_t step, link, n_transfers, capacity; /* the worst; when not free */
    uint64_t n_overloaded; /* (step, link) pairs beyond their capacity */
} tutti_contention_info;
TUTTI_API tutti_err tutti_contention(const tutti_topology *net,
                                     const tutti_schedule *sched,
                                     tutti_contention_info *out,
                                     tutti_diag *diag);

/* ------------------------------------------------------------- schedules -- */

TUTTI_API void tutti_schedule_free(tutti_schedule *sched);
TUTTI_API void tutti_schedule_describe(const tutti_schedule *sched,
                                       tutti_schedule_info *out);
/* Reads the text form `tutti-schedule 1`, or JSON (schedule.md). The caller
 * owns *out. Errors: EFORMAT, EINVAL, ELIMIT with line and column. */
TUTTI_API tutti_err tutti_schedule_read(const char *text, size_t len,
                                        tutti_schedule **out, tutti_diag *diag);
/* Proves the schedule: TUTTI_OK, or TUTTI_EPROOF and the counterexample. */
TUTTI_API tutti_err tutti_verify(const tutti_schedule *sched, tutti_diag *diag);
/* format: "schedule" (the text form), "json", "picture", "dot", "svg". The
 * caller owns *text (free with tutti_text_free); it is NUL-terminated. Errors:
 * EINVAL (no such format; diag lists them), ELIMIT (too large for this one). */
TUTTI_API tutti_err tutti_export(const tutti_schedule *sched,
                                 const char *format, char **text, size_t *len,
                                 tutti_diag *diag);
TUTTI_API void tutti_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif /* TUTTI_PLAN_H */
