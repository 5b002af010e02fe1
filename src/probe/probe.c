/* SPDX-License-Identifier: BSD-3-Clause
 * probe.c - the order of things: who is there, who reaches whom, round after
 * round of flows, the network.
 *
 * Invariant  All ranks go through the same exchanges. What fails on one is
 *            told where all agree next, and fails on all with one sentence;
 *            who is gone or silent is named by rank 0.
 * Next       hosts.c, reach.c, begin.c, probe_rounds.c, ways.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "probe/parts.h"

#define DEFAULT_NS (10 * TT_NS_PER_S)

/* ------------------------------------------------------------ in order -- */

static tutti_err run(tt_probe *p, tutti_diag *diag)
{
    bool is_root = p->job->rank == 0;
    tt_probe_tell(p, "meeting", 0);
    tutti_err err = tt_probe_meet(p, diag);
    if (!err)
        err = tt_probe_reach(p, diag);
    if (!err)
        err = tt_probe_agree(p, is_root ? tt_probe_begin(p, diag) : TUTTI_OK,
                             diag);
    if (!err)
        err = tt_probe_rounds(p, diag);
    if (err)
        return err;
    if (is_root)
        err = tt_infer_finish(p->infer, &p->topology, diag);
    if (!err && is_root)
        err = tt_probe_choose(p, diag); /* now with speeds */
    return tt_probe_agree(p, err, diag);
}

/* Of an agent that is lost the host is told too. */
static void name_lost(const tt_probe *p, tutti_err err, tutti_diag *diag)
{
    if (!diag || (err != TUTTI_EPEER && err != TUTTI_ETIMEOUT) ||
        p->n_hosts == 0 || diag->rank >= p->job->n_ranks)
        return;
    size_t len = strlen(diag->text);
    snprintf(diag->text + len, sizeof(diag->text) - len, " (rank %u is on %s)",
             diag->rank, p->hosts[p->host_of[diag->rank]].name);
}

tutti_err tt_probe_run(const tt_probe_job *job, tt_probe **out,
                       tutti_diag *diag)
{
    tutti_diag why = TT_DIAG_NONE;
    tt_probe *p = tt_new(job->mem, 1, sizeof(*p));
    void *says = tt_new(job->mem, job->n_ranks, TT_PROBE_SAYING);
    tutti_err err = p && says ? TUTTI_OK : tt_probe_no_memory(&why);
    if (err && job->rank == 0)
        tt_boot_fail(job->boot, err, &why);
    if (!err) {
        *p = (tt_probe){.job = job,
                        .mem = job->mem,
                        .arena = {.mem = job->mem},
                        .begin_ns = tt_now_ns(),
                        .time_ns = job->time_ns ? job->time_ns : DEFAULT_NS,
                        .me = TT_NONE,
                        .says = says};
        tt_probe_be_patient(p, 0);
        err = run(p, &why);
        tt_link_box_close(p->box);
        name_lost(p, err, &why);
        p->seconds = (double)(tt_now_ns() - p->begin_ns) / TT_NS_PER_S;
        p->box = NULL;
        p->job = NULL;
        p->says = NULL;
    }
    tt_free(job->mem, says, job->n_ranks, TT_PROBE_SAYING);
    if (err && p)
        tt_probe_free(p);
    else if (!err)
        *out = p;
    if (diag)
        *diag = why;
    return err;
}

/* ----------------------------------------------------------- the outcome -- */

void tt_probe_free(tt_probe *p)
{
    if (!p)
        return;
    const tt_mem *mem = p->mem;
    tt_infer_close(p->infer);
    tt_topology_free(p->topology);
    tt_arena_free(&p->arena);
    tt_free(mem, p, 1, sizeof(*p));
}

const tutti_topology *tt_probe_topology(const tt_probe *p)
{
    return p->topology;
}

bool tt_probe_note_at(const tt_probe *p, size_t index, tt_infer_note *out)
{
    return p->infer && tt_infer_note_at(p->infer, index, out);
}

bool tt_probe_way_at(const tt_probe *p, size_t index, tutti_probe_way *out)
{
    if (!p->ways || index >= p->n_tries)
        return false;
    *out = p->ways[index];
    return true;
}

void tt_probe_describe(const tt_probe *p, tutti_probe_info *out)
{
    *out = (tutti_probe_info){.n_hosts = p->n_hosts,
                              .n_interfaces = p->n_ports,
                              .n_rounds = p->n_rounds,
                              .seconds = p->seconds};
}

bool tt_probe_is_cut(const tt_probe *p)
{
    return p->is_cut;
}
