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
 * docs/explanation/simulator.md says what is modelled how, and what is not.
 *
 * Pure; [any thread]. Next: world.h, sim.c (the event core), fluid.c,
 * packet.c. */
#ifndef TT_SIM_SIM_H
#define TT_SIM_SIM_H

#include "base/progress.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

/* Options are the public ones (tutti_plan.h), but for `size` and as_engine,
 * which are not looked at. */

/* sim.c
 * Errors: EINVAL (ranks of schedule and topology differ; bad options), EPROOF
 * (a transfer that can never start: the schedule is not sound), ELIMIT (more
 * bytes or messages than can be counted), ENOMEM. */
tutti_err tt_simulate(const tutti_schedule *s, const tutti_topology *t,
                      const tutti_sim_opts *opts, const tt_mem *mem,
                      tutti_sim_result *out, tutti_diag *diag);

/* sizes.c
 * K: into how many fronts it cuts the vector; 0: each chunk has its own number.
 * Errors: ELIMIT, ENOMEM. */
tutti_err tt_sim_fronts(const tutti_schedule *s, const tutti_sim_opts *opts,
                        const tt_mem *mem, uint64_t *n, tutti_diag *diag);

#endif
