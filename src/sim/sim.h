/* SPDX-License-Identifier: BSD-3-Clause
 * sim.h - how long a schedule takes on a topology: one event core, two models
 * of the network.
 *
 *   fluid   all slices on the way share the links max-min fairly (as TCP does)
 *   packet  a slice occupies each link of its route in turn, first come first
 *           served, with flits and packet headers; store-and-forward of whole
 *           slices, or cut-through (the head moves on after the latency)
 *
 * Both: chunks are cut into slices; a transfer's slice may be sent when the
 * sender's value of it is complete, credit is there and the front window
 * allows; of the sends that are ready, each connection (src, dst, rail) serves
 * the lowest (position, step, chunk), one slice at a time. As the engine does.
 * docs/simulator.md says what is modelled how, and what is not.
 *
 * Pure; [any thread]. Next: world.h, sim.c (the event core), fluid.c,
 * packet.c. */
#ifndef TT_SIM_SIM_H
#define TT_SIM_SIM_H

#include "base/event.h"
#include "base/progress.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

typedef struct tt_sim_opts {
    bool is_packet; /* else fluid */
    /* Of the whole vector, as in tt_problem; or per block (NULL: equal). */
    uint64_t size_bytes;
    const uint64_t *block_bytes;
    uint32_t elem_bytes; /* borders are whole elements; 0: 1 */
    /* Slices (schedule/cut.h): n_slices per chunk; or, when 0, so that a front
     * has front_bytes and staging suffices; or, when those are 0 too, one. */
    uint32_t n_slices;
    uint64_t front_bytes, staging_max_bytes;
    uint32_t max_payload;        /* of a message; 0: no limit */
    uint32_t window;             /* W, slices of credit; 0: unlimited */
    uint64_t front_window_bytes; /* F; 0: none; not with lockstep */
    /* Per slice, before it leaves; a rank prepares one at a time. */
    double overhead_s;
    double gamma_s_per_byte; /* reducing; a rank reduces one at a time */
    tutti_lockstep lockstep; /* tutti_plan.h */
    bool by_step; /* links (packet) and connections serve the lowest step first
                     (MultiTree's schedule priority) */
    /* Packet model. Zeros: no packets, no headers. */
    bool cut_through;
    uint32_t packet_bytes; /* payload of a packet */
    uint32_t flit_bytes;   /* payload and header are whole flits */
    uint32_t header_bytes; /* per packet; message_mode: per slice */
    bool message_mode;
    const tt_event_sink *sink;   /* NULL: no events */
    const tt_progress *progress; /* NULL: nobody listens */
} tt_sim_opts;

/* sim.c
 * Errors: EINVAL (ranks of schedule and topology differ; bad options), EPROOF
 * (a transfer that can never start: the schedule is not sound), ELIMIT (more
 * bytes or messages than can be counted), ENOMEM. */
tutti_err tt_simulate(const tutti_schedule *s, const tutti_topology *t,
                      const tt_sim_opts *opts, const tt_mem *mem,
                      tutti_sim_result *out, tutti_diag *diag);

/* sizes.c
 * K: into how many fronts it cuts the vector; 0: each chunk has its own number.
 * Errors: ELIMIT, ENOMEM. */
tutti_err tt_sim_fronts(const tutti_schedule *s, const tt_sim_opts *opts,
                        const tt_mem *mem, uint64_t *n, tutti_diag *diag);

#endif
