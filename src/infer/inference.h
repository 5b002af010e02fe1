/* SPDX-License-Identifier: BSD-3-Clause
 * inference.h - the object of infer.h, as infer.c, drawing.c and findings.c
 * share it. Private to the folder. */
#ifndef TT_INFER_INFERENCE_H
#define TT_INFER_INFERENCE_H

#include "infer/cables.h"
#include "infer/plane.h"

/* Of the network that was drawn last. */
typedef struct tt_finding {
    tt_infer_note_kind kind;
    size_t at; /* in the text */
} tt_finding;

/* Of a host: rounds without any answer, each with another peer. */
typedef struct tt_silence {
    uint32_t n, peer, next_peer;
    bool is_heard, is_asked; /* in this round */
} tt_silence;

/* One way of a port. */
typedef struct tt_port_way {
    double bps;    /* the most that has passed in any round */
    double sum;    /* that has passed in this one */
    uint32_t n;    /* flows in this round */
    uint32_t vain; /* rounds with flows, up to as many as are enough */
} tt_port_way;

struct tt_infer {
    const tt_mem *mem;
    tt_arena arena;
    tt_infer_spec spec; /* all it points to is in the arena */
    uint32_t n_ranks, n_sockets;
    tt_plane *planes; /* of three ports and more */
    uint32_t n_planes;
    tt_cables cables;
    /* Of each port: its plane or, after all planes, its cable; TT_NONE. Its
     * leaf there (of a cable: which end). */
    uint32_t *plane_of, *leaf_of;
    /* The present round. */
    tt_infer_flow *flows;
    size_t cap_flows;
    uint32_t n_flows, number;
    const char *why;
    bool is_out;         /* it waits to be told */
    bool is_cut;         /* there was more to measure */
    bool is_apart;       /* some hosts reach each other by others only, which do
                            not forward */
    tt_port_way *ways;   /* [2 * n_ports]: of each port out, in */
    tt_silence *silence; /* [n_hosts] */
    /* What the last finish found. */
    tt_str text; /* of the notes, each with its NUL */
    tt_finding *findings;
    size_t cap_findings, n_findings;
};

static inline tt_port_way *tt_port_out(const tt_infer *inf, uint32_t port)
{
    return &inf->ways[2 * port];
}

static inline tt_port_way *tt_port_in(const tt_infer *inf, uint32_t port)
{
    return &inf->ways[2 * port + 1];
}

static inline const char *tt_port_dev(const tt_infer *inf, uint32_t port)
{
    return inf->spec.ports[port].dev;
}

static inline const char *tt_host_name(const tt_infer *inf, uint32_t host)
{
    return inf->spec.names[host];
}

/* delays.c: one way over each link of the plane's tree (p->tree), from the
 * latencies of pairs: [n] of the leaves' links, then [n_nodes] of the nodes'
 * links to their parents. ENOMEM. */
tutti_err tt_delays_share(const tt_plane *p, tt_arena *scratch,
                          double *seconds);

/* Figures as close as this, errors alone can make differ. */
#define TT_RATE_SPREAD 0.08
#define TT_LATENCY_SPREAD 0.4

/* figures.c: figures that errors alone can make differ become the same; 0 stays
 * 0. A figure of three digits. ENOMEM. */
tutti_err tt_figures_even(double *values, uint32_t n, double spread,
                          tt_arena *scratch);
uint64_t tt_figure_round(double value);
/* The roundest rate as near as it can be known: links have round rates, and
 * plans for 30, 40 and 50 fit together where those for 29.9, 40.1 and 49.7
 * have a remainder. */
uint64_t tt_figure_rate(double value);

/* What one plane becomes: figures of the leaves' links, then of the nodes'. */
typedef struct tt_figure {
    double bps; /* 0: there is no link */
    tt_evidence evidence;
    bool is_least;   /* it was never the limit: it can do this at least */
    bool is_unknown; /* nothing was measured: taken as the other way */
    double kept;     /* perhaps it is only so much of bps; 0: no doubt */
} tt_figure;

typedef struct tt_figures {
    uint32_t n;        /* leaves and nodes */
    tt_figure *way[2]; /* up, down */
    double *latency_s;
} tt_figures;

/* linkfigures.c: what a settled plane comes to; sets p->tree. The arrays are
 * the arena's. ENOMEM. */
tutti_err tt_link_figures(tt_plane *p, tt_arena *arena, tt_figures *f);

/* opening.c */
tutti_err tt_infer_check(const tt_infer_spec *spec, tutti_diag *diag);
/* Copies the spec; planes and cables. Errors: ENET, ENOMEM. */
tutti_err tt_infer_make(tt_infer *inf, const tt_infer_spec *spec,
                        tutti_diag *diag);

/* drawing.c */
tutti_err tt_draw(tt_infer *inf, tutti_topology **out, tutti_diag *diag);

/* findings.c */
void tt_notes_clear(tt_infer *inf);
/* Rates as text, "400Mbit": written to at. */
const char *tt_rate_text(double bps, char at[32]);
void tt_note(tt_infer *inf, tt_infer_note_kind kind, const char *fmt, ...)
    TT_PRINTF(3, 4);

#endif
