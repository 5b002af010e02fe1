/* SPDX-License-Identifier: BSD-3-Clause
 * infer.h - what network is it? The pure part of the probe: which flows to
 * measure next, and what the measured rates say.
 *
 *     tt_infer_open(&spec, mem, &inf, &diag);
 *     while (tt_infer_next(inf, &round, &diag) == TUTTI_AGAIN) {
 *         ... run the flows of the round at the same time, measure each ...
 *         tt_infer_told(inf, rates, round.n_flows, &diag);
 *     }
 *     tt_infer_finish(inf, &topology, &diag);
 *
 * No sockets, clock or environment: the same spec and the same answers give
 * the same rounds and the same network on every machine. What could not be
 * told apart, and what each figure rests on, is in the notes. probe.md
 * tells how it works and how often it is right.
 *
 * A **port** is an interface of a host, a **plane** the ports that reach each
 * other, a **round** flows that run at the same time.
 *
 * Not thread safe; one object, one thread at a time. Nothing blocks.
 *
 * Beside it: is the network as it was when calls were planned? (slowcalls.c,
 * slowlink.c, changes.c)
 *
 * Next: infer.c (the order of things), plane.h (what all files here share). */
#ifndef TT_INFER_INFER_H
#define TT_INFER_INFER_H

#include "topology/topology.h"

typedef struct tt_infer tt_infer;

typedef struct tt_infer_port {
    uint32_t host;
    const char *dev; /* the interface's name, for `dev=`; NULL: not known */
    uint32_t card;   /* interfaces of a host on one card have the same; 0: not
                        known */
} tt_infer_port;

typedef enum tt_infer_reach {
    TT_REACH_NONE,   /* no connection came about, or was not tried */
    TT_REACH_ROUTED, /* by way of routers, or of other hosts */
    TT_REACH_LINK    /* both addresses are in one subnet */
} tt_infer_reach;

typedef struct tt_infer_spec {
    uint32_t n_hosts, n_ports;
    const char *const *names;   /* of hosts, as in topology files */
    const tt_infer_port *ports; /* by host */
    const uint8_t *reach; /* [n_ports][n_ports]: a tt_infer_reach, from, to */
    const uint32_t *n_ranks; /* of each host; NULL: one each */
    const uint32_t *place;   /* as in tt_topo_place(); NULL: in order */
    double noise;            /* standard error of a rate, relative; 0: 0.05 */
    double unfair; /* how unlike flows that share a link are; 0: 0.1 */
    double ack; /* what acknowledges a flow takes of the way back, relative to
                   the flow */
    uint32_t max_rounds; /* 0: as many as it takes (which is bounded) */
    uint64_t seed;       /* of the random pairings */
    /* Called now and then while it computes, which may take seconds; or
     * NULL. */
    void (*tick)(void *ctx);
    void *tick_ctx;
} tt_infer_spec;

typedef struct tt_infer_flow {
    uint32_t src, dst; /* ports */
    /* What is expected at least: how long the caller must measure. 0: no
     * idea yet. */
    double guess_bps;
    /* What the link carries, with all its flows, that is expected to hold this
     * one back. 0: no idea yet. */
    double link_bps;
    /* What it may have on the way, as a share of what the others may: where a
     * pair sends both ways and one way is slower, that one's is less. */
    double part;
    bool is_alone; /* on its links: what it has in their queues is in nobody's
                      way */
} tt_infer_flow;

/* What was measured of a flow, in bits per second. Flows that share a link take
 * turns to pause: each alone is best told by how it runs when it does not, what
 * passes the link by their means. */
typedef struct tt_infer_rate {
    double bps;      /* not above zero, or no number: it was not measured */
    double mean_bps; /* over all of the time that was measured; 0: as bps */
} tt_infer_rate;

typedef struct tt_infer_round {
    uint32_t number;   /* from 0 */
    uint32_t n_likely; /* rounds there will be in all, as it looks now */
    uint32_t n_flows;
    const tt_infer_flow *flows; /* valid until it is told */
    const char *why;            /* one phrase for people */
} tt_infer_round;

typedef enum tt_infer_note_kind {
    TT_NOTE_LINK,    /* what the figures of a link rest on */
    TT_NOTE_UNKNOWN, /* what traffic could not tell */
    TT_NOTE_DOUBT    /* measurements that do not fit together */
} tt_infer_note_kind;

typedef struct tt_infer_note {
    tt_infer_note_kind kind;
    const char *text; /* one line */
} tt_infer_note;

enum { TT_INFER_MAX_PORTS = 4096 };

/* The spec is copied. Errors: EINVAL (with a sentence), ENET (hosts that no
 * port connects, named pairwise), ELIMIT, ENOMEM. */
tutti_err tt_infer_open(const tt_infer_spec *spec, const tt_mem *mem,
                        tt_infer **out, tutti_diag *diag);
void tt_infer_close(tt_infer *inf); /* accepts NULL */

/* AGAIN: *round is to be run; OK: nothing more to measure. Asking again
 * without telling gives the same round. Errors: ENOMEM. */
tutti_err tt_infer_next(tt_infer *inf, tt_infer_round *round, tutti_diag *diag);
/* What was measured of each flow of the round. Errors: EINVAL (no such round),
 * EPEER (a host whose flows have not been measured for several rounds),
 * ENOMEM. */
tutti_err tt_infer_told(tt_infer *inf, const tt_infer_rate *rates,
                        uint32_t n_flows, tutti_diag *diag);
/* One way from port to port; the least of what is told counts. [any time
 * before finish] */
void tt_infer_latency(tt_infer *inf, uint32_t src, uint32_t dst,
                      uint64_t latency_ps);

/* So many connections were each flow that was measured, since one does not fill
 * a link. [any time before finish] */
void tt_infer_sockets(tt_infer *inf, uint32_t n);

/* Has every interface been measured both ways, as far as it can be? Before that
 * the network would lack some. */
bool tt_infer_is_enough(const tt_infer *inf);
/* There is more to measure, and no time for it: finish says so. */
void tt_infer_cut(tt_infer *inf);

/* The network as measured so far; may be called at any time, and again. The
 * caller owns *out. Errors: ENET (too little was measured), ENOMEM. */
tutti_err tt_infer_finish(tt_infer *inf, tutti_topology **out,
                          tutti_diag *diag);
/* Notes of the last finish, valid until the next; false past the end. */
bool tt_infer_note_at(const tt_infer *inf, size_t index, tt_infer_note *out);

/* ------------------------------------------------------- slowcalls.c -- */

/* When a call was open, and how long it was predicted to be; end 0: not known.
 */
typedef struct tt_call_time {
    uint64_t begin_ns, end_ns;
    double predicted_s;
} tt_call_time;
/* What each of n calls has taken, in order of their begin; negative: not known,
 * nor of those that it overlaps. from_ns: when the call before them has ended;
 * 0: there was none. */
void tt_infer_share_times(const tt_call_time *calls, uint32_t n,
                          uint64_t from_ns, float *took_s);
/* That is much longer. */
bool tt_infer_is_slow(double took_s, double predicted_s);

#define TT_JUDGED_CALLS 3
typedef struct tt_judged_calls {
    double took_s, predicted_s; /* of all calls together; 0: not known */
    bool are_slow;
} tt_judged_calls;
/* Has each call taken much longer than predicted, from the last rank on? Of the
 * last TT_JUDGED_CALLS; nothing where one is not known. took_s: theirs of each
 * rank, stride floats from one to the next; negative: not known; predicted_s:
 * by call. */
tt_judged_calls tt_infer_judge_calls(const float *took_s, uint32_t n_ranks,
                                     size_t stride, const float *predicted_s);

/* -------------------------------------------------------- slowlink.c -- */

/* A pair of ranks and the rate of the path between them, as far as what the
 * first has sent can tell. */
typedef struct tt_pair_pace {
    uint32_t from, to;
    float bytes_per_s; /* while something was on its way */
    float share;       /* of the time of calls for which something was */
    uint8_t rail;
} tt_pair_pace;

typedef struct tt_paces {
    const tutti_topology *t; /* the network as it was planned for */
    const tt_routes *routes;
    const tt_pair_pace *pairs;
    uint32_t n;
} tt_paces;

/* What links carry that are not as they were planned for. */
#define TT_CHANGED_LINKS 4
typedef struct tt_link_change {
    uint32_t n; /* 0: none stands out */
    bool are_faster;
    struct {
        uint32_t link;
        uint64_t bps[2]; /* its own rate, and its twin's, 0 without one */
    } links[TT_CHANGED_LINKS];
} tt_link_change;

/* Where calls were slow; kept: what was planned for them, over what they took.
 * Errors: ENOMEM. */
tutti_err tt_infer_slower_links(const tt_paces *p, double kept,
                                tt_link_change *out);
/* Of links that were thought slower than described_bps[n_links]; were_quick:
 * calls were as quick as planned. */
tutti_err tt_infer_faster_links(const tt_paces *p, bool were_quick,
                                const uint64_t *described_bps,
                                tt_link_change *out);
/* Are both about the same? */
bool tt_infer_is_same_change(const tt_link_change *a, const tt_link_change *b);
/* The change in words, to be followed by why. */
void tt_infer_change_text(const tutti_topology *t, const tt_link_change *c,
                          char *out, size_t size);
/* Why the network may be so slow, as the end of a sentence, "" when nothing
 * stands out. Errors: ENOMEM. */
tutti_err tt_infer_slow_link(const tt_paces *p, char *out, size_t size);

/* --------------------------------------------------------- changes.c -- */

/* What was seen so far; all 0 at the start. */
typedef struct tt_watched {
    tt_link_change suspected;
    uint32_t n_times;  /* in a row */
    uint32_t n_doubts; /* how often a link was not faster in the end */
    bool was_faster;   /* the last change */
} tt_watched;

/* One more look: *out is what has changed for good, n 0: nothing. After a
 * change the next looks are at the changed network. Errors: ENOMEM. */
tutti_err tt_infer_decide(tt_watched *w, const tt_judged_calls *v,
                          const tt_paces *paces, const uint64_t *described_bps,
                          tt_link_change *out);
/* How many looks in a row at such calls count. */
uint32_t tt_infer_times_for(const tt_judged_calls *v);

#endif
