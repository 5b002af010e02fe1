/* SPDX-License-Identifier: BSD-3-Clause
 * parts.h - private to the probe: what its files share.
 *
 *   probe.c         the order of things
 *   together.c      what all ranks do at the same time
 *   hosts.c         who is there: hosts, agents, addresses, listeners
 *   tries.c         which pairs of addresses are worth a try
 *   calls.c         one agent calls its pairs, and hears who calls it
 *   reach.c         which interfaces reach each other
 *   begin.c         what the inference has to know
 *   probe_rounds.c  round after round, as the inference asks
 *   flows.c         one agent's ends of one round
 *   meter.c         the rate of a flow
 *   ways.c          what people are told of all pairs of addresses
 *   wires.c         sockets that are bound to an interface, and their first
 *                   word
 *
 * Beside it, with a header of their own (learn.h): learn.c, cache.c,
 * fingerprint.c, slowifaces.c.
 *
 * A place is an address of a host, a port an interface; both are numbered
 * through all hosts, in order of the hosts, on all ranks alike.
 *
 * Next: probe.c.
 *
 * Circles    begin.c reach.c: what a round loses is told in the words in which
 *            the beginning tells what cannot be reached. */
#ifndef TT_PROBE_PARTS_H
#define TT_PROBE_PARTS_H

#include "link/link.h"
#include "probe/probe.h"

#define TT_PROBE_PLACES 32 /* addresses that a host tells */
#define TT_PROBE_TOKEN 16
/* Bytes in which a rank says how it fares: a tutti_err, and a sentence. */
#define TT_PROBE_SAYING (sizeof(((tutti_diag *)0)->text) + sizeof(int32_t))

/* One address, as told to all; 40 bytes, little-endian. */
typedef struct tt_probe_place {
    char dev[TT_IFACE_NAME];
    uint8_t family, order; /* 4 or 6; tt_iface_order */
    uint16_t port;         /* of its interface's listener */
    uint32_t on_card; /* equal for interfaces of the host on one card; not 0 */
    uint8_t ip[16];   /* 4 of them for family 4 */
} tt_probe_place;
_Static_assert(sizeof(tt_probe_place) == 40, "a place is 40 bytes");

/* What an agent tells of its host. */
typedef struct tt_probe_card {
    uint16_t n_places;
    uint16_t any_port; /* of the listener for all interfaces */
    uint32_t pad;
    uint8_t token[TT_PROBE_TOKEN];
    tt_probe_place places[TT_PROBE_PLACES];
} tt_probe_card;

typedef struct tt_probe_host {
    uint32_t rank; /* of its agent */
    uint32_t n_ranks;
    uint32_t first_place, n_places; /* of all places */
    uint32_t first_port, n_ports;   /* of all ports */
    const tt_probe_card *card;
    char name[64]; /* as in topology files, unique */
} tt_probe_host;

/* Two addresses of different hosts. */
typedef struct tt_probe_try {
    uint32_t src, dst; /* places */
} tt_probe_try;

typedef enum tt_try_state {
    TT_TRY_NOT,     /* no time for it */
    TT_TRY_OWN,     /* the address leads back to the host that would call it */
    TT_TRY_FAILED,  /* `why` has the errno */
    TT_TRY_SILENT,  /* no answer in time */
    TT_TRY_STRANGE, /* somebody answers, but it is another host */
    TT_TRY_ROUTED,
    TT_TRY_LINK,
    TT_TRY_STATES
} tt_try_state;

/* What the caller of a try, and then rank 0, knows of it. */
typedef struct tt_probe_mark {
    uint8_t state; /* tt_try_state */
    uint8_t why;
    uint8_t is_free; /* the kernel chose the interface */
    uint8_t pad;
    uint32_t rtt_us;
} tt_probe_mark;
_Static_assert(sizeof(tt_probe_mark) == 8, "a mark is 8 bytes");

struct tt_probe {
    const tt_probe_job *job; /* NULL when the run is over */
    const tt_mem *mem;
    tt_arena arena; /* of all that follows */
    uint64_t begin_ns, time_ns;
    uint32_t percent; /* that was told last */
    uint32_t me; /* the own host, if this rank is its agent; else TT_NONE */
    uint32_t n_hosts, n_ports, n_places, n_tries;
    uint32_t *host_of; /* [n_ranks] */
    tt_probe_host *hosts;
    tt_probe_place *places;
    uint32_t *place_host, *place_port; /* [n_places] */
    tt_infer_port *ports;
    tt_probe_try *tries; /* by host from, host to, places */
    uint32_t *first_try; /* [n_hosts + 1], by host from */
    uint32_t *n_into;    /* [n_hosts]: tries that end there */
    /* This agent's. */
    tt_iface own[TT_PROBE_PLACES]; /* by place of the own host */
    tt_link_box *box;              /* who calls, and outcomes of calls */
    /* Of its interfaces, and one for all of them; NULL: none. */
    tt_link_listener *ears[TT_PROBE_PLACES + 1];
    uint32_t n_ears;        /* without the last */
    const uint8_t *is_idle; /* by port: tried without binding too; or NULL */
    uint8_t token[TT_PROBE_TOKEN];
    /* Rank 0's. */
    tt_probe_mark *marks; /* [n_tries] */
    uint32_t *best;       /* [n_ports][n_ports]: a try, or TT_NONE */
    double *bps;          /* [n_ports][n_ports]: the most measured; 0: not */
    void *says;           /* [n_ranks]: room for tt_probe_agree() */
    tt_infer *infer;
    tutti_topology *topology;
    uint32_t n_rounds;
    bool is_cut; /* there was more to measure, and no time for it */
    double seconds;
    tutti_probe_way *ways; /* [n_tries], for people */
};

/* ------------------------------------------------------------ together.c */

/* Says so to whom the caller named; never less than before. */
void tt_probe_tell(tt_probe *p, const char *what, uint32_t percent);
tutti_err tt_probe_no_memory(tutti_diag *diag);
/* What comes next may take so much longer than talking does. */
void tt_probe_be_patient(const tt_probe *p, uint64_t more_ns);
/* Now and then in whatever takes long: the others hear that rank 0 is alive. */
void tt_probe_alive(const tt_probe *p);
/* All ranks: each says how it fares (diag: why not); fails everywhere,
 * naming the rank and its host, when one fares ill. */
tutti_err tt_probe_agree(tt_probe *p, tutti_err mine, tutti_diag *diag);

/* --------------------------------------------------------------- hosts.c */

tutti_err tt_probe_meet(tt_probe *p, tutti_diag *diag);

/* --------------------------------------------------------------- tries.c */

tutti_err tt_probe_tries(tt_probe *p, tutti_diag *diag);
/* Of this agent's own tries: what can be told without one. */
tt_try_state tt_probe_foresee(const tt_probe *p, const tt_probe_try *t);
/* Is the far end in a subnet of the near one? Of own tries. */
bool tt_probe_is_link(const tt_probe *p, const tt_probe_try *t);

/* --------------------------------------------------------------- calls.c */

typedef struct tt_calls tt_calls;

/* How long so many calls may take. */
uint64_t tt_calls_limit_ns(uint32_t n, bool is_patient);
/* is_idle: by port; then only pairs of these are tried, and without binding to
 * the interface; or NULL. is_patient: one packet of a call may be lost. marks:
 * of own tries, from the first one on; heard: by try, set to 1. All are
 * borrowed. NULL: no memory. */
tt_calls *tt_calls_open(tt_probe *p, const uint8_t *is_idle, bool is_patient,
                        tt_probe_mark *marks, uint8_t *heard);
/* Calls all. Errors: ESYS. */
tutti_err tt_calls_run(tt_calls *r, tutti_diag *diag);
/* When all agents have called: hears what still waits in the queues. */
void tt_calls_hear_rest(tt_calls *r);
void tt_calls_close(tt_calls *r); /* accepts NULL */

/* --------------------------------------------------------------- reach.c */

/* Fills marks, best (rank 0). */
tutti_err tt_probe_reach(tt_probe *p, tutti_diag *diag);
/* Rank 0, then: by any interfaces, this way. */
bool tt_probe_reaches(const tt_probe *p, uint32_t from_host, uint32_t to_host);
/* All ranks: do those still reach each other that did before? Errors: ENET, by
 * name; ENOMEM. */
tutti_err tt_probe_look_again(tt_probe *p, tutti_diag *diag);

/* --------------------------------------------------------------- meter.c */

/* What a receiver has seen of a flow: from this comes its rate. Times are of
 * one clock, any. Pure. */
#define TT_METER_SLOTS 8
typedef struct tt_meter {
    uint64_t warm_ns, end_ns; /* what comes before or after does not count */
    uint64_t bytes, counted;  /* all; from warm to end */
    uint64_t last_ns;         /* the last arrival, until the end; 0: none */
    bool is_over;             /* something came after it */
    /* The bytes so far, and when, of the last arrival before warm (or the first
     * one that counts), and then of the last one in each slot of the time; ns
     * 0: there was none. */
    struct {
        uint64_t bytes, ns;
    } marks[TT_METER_SLOTS + 1];
} tt_meter;

/* n more bytes have come, the last of them at now_ns. */
void tt_meter_add(tt_meter *m, uint64_t n, uint64_t now_ns);
/* Bytes per second once the rate has settled; 0: nothing has come. */
double tt_meter_rate(const tt_meter *m);
/* The same over all of the time from warm to end; 0: nothing has come. */
double tt_meter_mean(const tt_meter *m);
/* Bits on the wire for each bit of payload: headers of a full packet. mss: of
 * its payload. */
double tt_meter_overhead(uint32_t mss, bool is_v6, bool has_stamps);

/* --------------------------------------------------------------- flows.c */

/* What rank 0 tells of a round; its flows follow. */
typedef struct tt_probe_round {
    uint32_t number, n_flows; /* no flows: there are no more rounds */
    uint32_t warm_us, measure_us;
    uint32_t looks_again; /* not a round: who still reaches whom? */
} tt_probe_round;

typedef struct tt_probe_flow {
    uint32_t number; /* of a try */
    uint32_t is_free;
    uint32_t piece_bytes;  /* that its packets are taken together to */
    uint32_t window_bytes; /* how much may be on the way */
} tt_probe_flow;

typedef struct tt_traffic tt_traffic;
/* rates: by flow; run() sets them for flows that end here. All are borrowed.
 * NULL: no memory. */
tt_traffic *tt_traffic_open(const tt_probe *p, const tt_probe_round *round,
                            const tt_probe_flow *flows, tt_infer_rate *rates);
/* Connects what begins or ends here; a flow that does not come about is left
 * out. */
void tt_traffic_connect(tt_traffic *f);
/* From now on, for the time that the round takes. Errors: ESYS. */
tutti_err tt_traffic_run(tt_traffic *f, tutti_diag *diag);
void tt_traffic_close(tt_traffic *f); /* accepts NULL */

/* --------------------------------------------------------------- begin.c */

/* Rank 0, after reach: opens the inference. Errors: ENET (hosts that cannot
 * reach each other), and those of tt_infer_open(). */
tutti_err tt_probe_begin(tt_probe *p, tutti_diag *diag);
/* Rank 0, of pairs of ports that reach each other no more: ENET, in a sentence.
 * is_lost: [n_ports][n_ports]. */
tutti_err tt_probe_say_lost(tt_probe *p, const uint8_t *is_lost,
                            tutti_diag *diag);

/* --------------------------------------------------------------- split.c */

/* How many connections fill a link? Pure; zero is the beginning. */
typedef struct tt_split {
    uint32_t level, n_told;
    double bps[2]; /* by fewer, by more */
    bool is_done;
} tt_split;

/* By how many connections the pair is to be measured next; 0: it is decided. */
uint32_t tt_split_next(const tt_split *s);
void tt_split_told(tt_split *s, double bps);
/* As far as it is known. */
uint32_t tt_split_count(const tt_split *s);

/* -------------------------------------------------------- probe_rounds.c */

/* Until the inference has what it needs, or the time is over. */
tutti_err tt_probe_rounds(tt_probe *p, tutti_diag *diag);

/* ---------------------------------------------------------------- ways.c */

/* Rank 0: which pair of interfaces two hosts would take, and why; fills ways.
 * Errors: ENOMEM. */
tutti_err tt_probe_choose(tt_probe *p, tutti_diag *diag);

/* --------------------------------------------------------------- wires.c */

typedef enum tt_wire_kind {
    TT_WIRE_TRY = 1, /* number: a try */
    TT_WIRE_FLOW = 2 /* number: a flow of this round */
} tt_wire_kind;

/* What the caller says in its greeting; little-endian. */
typedef struct tt_wire_word {
    uint16_t kind, pad;
    uint32_t number, round, host; /* host: the caller's */
} tt_wire_word;
_Static_assert(sizeof(tt_wire_word) == 16, "a word is 16 bytes");

/* Begins to call the far end of a try; is_free: the kernel chooses the
 * interface. The outcome, with arg, comes into p->box. NULL: no memory. */
typedef struct tt_wire_call_opts {
    uint32_t try_number;
    bool is_free;
    tt_wire_word word; /* but for host */
    uint64_t deadline_ns;
    void *arg;
} tt_wire_call_opts;
tt_link_dial *tt_wire_call(const tt_probe *p, const tt_wire_call_opts *o);
/* Who has come into p->box: what it has said, and which listener has heard it
 * (n_ears: that for all). */
tt_wire_word tt_wire_heard(const tt_link_event *e, uint32_t *ear);
/* Did the try arrive where it was sent to? */
bool tt_wire_is_right(const tt_probe *p, const tt_wire_word *w,
                      uint32_t try_number, uint32_t ear);
/* Listens, as p->ears[n_ears]; dev NULL for all interfaces. Errors: those of
 * tt_link_listen(). */
tutti_err tt_wire_listen(tt_probe *p, const char *dev, int *why,
                         tutti_diag *diag);
/* Ends a connection without a trace. */
void tt_wire_cut(int fd);

#endif
