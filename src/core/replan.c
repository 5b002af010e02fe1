/* SPDX-License-Identifier: BSD-3-Clause
 * replan.c - during a job the network is measured again, and plans change
 * (TUTTI_REPLAN).
 *
 * All ranks come here between two calls, with none open but messages
 * (drift.c), and go through the same steps: the probe over the connections of
 * the start, which were kept; the new network, spread as at the start; one last
 * word whether all have it. Then all change network and plans, or none.
 * Connections stay as they are; which of them is which rail is told by
 * interface.
 * Cost       A probe, during which calls wait; then plans are made anew. The
 *            next may be after REST_NS, twice that, and so on: a network that
 *            is never as measured must not be measured for ever.
 * Next       known.c, probe/learn.c. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/drift.h"
#include "probe/probe.h"

#define REST_NS (60 * TT_NS_PER_S)
#define MOST_DOUBLINGS 6

/* A network that was the communicator's: the program may look at it still. */
typedef struct past {
    struct past *next;
    tutti_topology *topology;
    tt_routes *routes;
} past;

struct tt_replan {
    const tt_mem *mem;
    tt_boot *boot; /* NULL: broken */
    tt_settings settings;
    uint64_t next_ns; /* rank 0: not before */
    uint32_t n_done;
    past *pasts;
};

tutti_err tt_replan_prepare(tutti_comm *comm, const tt_settings *settings)
{
    if (!comm->observer || !comm->agreed.replans)
        return TUTTI_OK;
    tt_replan *r = comm->replan = tt_new(&comm->mem, 1, sizeof(*r));
    if (!r)
        return TUTTI_ENOMEM;
    *r = (tt_replan){.mem = &comm->mem, .settings = *settings};
    return TUTTI_OK;
}

void tt_replan_give(tutti_comm *comm, tt_boot **boot)
{
    if (!comm->replan)
        return;
    comm->replan->boot = *boot;
    *boot = NULL;
}

void tt_replan_free(tt_replan *r)
{
    if (!r)
        return;
    tt_boot_close(r->boot);
    while (r->pasts) {
        past *p = r->pasts;
        r->pasts = p->next;
        tt_routes_free(p->routes);
        tt_topology_free(p->topology);
        tt_free(r->mem, p, 1, sizeof(*p));
    }
    tt_free(r->mem, r, 1, sizeof(*r));
}

bool tt_replan_may(const tt_replan *r)
{
    return r->boot && tt_now_ns() >= r->next_ns;
}

/* All ranks: the network as it is now; on rank 0 kept for the next job. */
static tutti_err measure(const tutti_comm *comm, tt_replan *r,
                         tutti_topology **out, tutti_diag *diag)
{
    tt_known known = {0};
    uint32_t n_bytes = 0;
    const tt_probe_job job = {.mem = &tt_mem_std,
                              .boot = r->boot,
                              .rank = comm->rank,
                              .n_ranks = comm->n_ranks,
                              .settings = &r->settings,
                              .trust = comm->trust};
    const tt_known_job share = {.mem = &comm->mem,
                                .boot = r->boot,
                                .rank = comm->rank,
                                .n = comm->n_ranks,
                                .known = &known};
    *out = NULL;
    tutti_err err = tt_known_learn(&job, comm->agreed.n_hosts, true, &known,
                                   &n_bytes, diag);
    if (!err)
        err = tt_known_share(&share, n_bytes, false, out, diag);
    tt_known_free(&known);
    return err;
}

/* Everything that may fail comes before anything is changed. */
typedef struct fresh {
    past *old; /* a place for what was there before */
    tutti_topology *topology;
    tt_routes *routes;
    tt_rail_map *rails;
} fresh;

static tutti_err make(const tutti_comm *comm, const tutti_topology *measured,
                      fresh *out)
{
    tutti_err err = tt_topology_subset(measured, NULL, comm->n_ranks,
                                       &comm->mem, &out->topology, NULL);
    if (!err)
        err = tt_routes_create(out->topology, &comm->mem, &out->routes, NULL);
    out->old = tt_new(&comm->mem, 1, sizeof(*out->old));
    if (!out->old)
        return TUTTI_ENOMEM;
    return err ? err
               : tt_rail_map_make(comm, out->topology, out->routes,
                                  &out->rails);
}

static void change(tutti_comm *comm, tt_replan *r, fresh *f)
{
    tt_engine_lock(comm->engine);
    tt_comm_free_plans(comm);
    tt_engine_unlock(comm->engine);
    memset(comm->plans, 0, sizeof(comm->plans));
    comm->last = NULL;
    *f->old = (past){r->pasts, comm->topology, comm->routes};
    r->pasts = f->old;
    tt_comm_free_rails(comm);
    comm->topology = f->topology;
    comm->routes = f->routes;
    comm->rails = f->rails;
    *f = (fresh){0};
}

static void drop(tutti_comm *comm, fresh *f)
{
    tt_free(&comm->mem, f->old, 1, sizeof(past));
    tt_rail_map_free(comm, f->rails);
    tt_routes_free(f->routes);
    tt_topology_free(f->topology);
}

static void rest(tt_replan *r)
{
    uint32_t n = r->n_done < MOST_DOUBLINGS ? r->n_done : MOST_DOUBLINGS;
    r->next_ns = tt_now_ns() + (REST_NS << n);
    r->n_done++;
}

tutti_err tt_replan_run(tutti_comm *comm, tt_least_fn least,
                        uint64_t timeout_ns)
{
    tt_replan *r = comm->replan;
    tutti_diag diag = TT_DIAG_NONE;
    tutti_topology *measured = NULL;
    fresh f = {0};
    uint64_t begin_ns = tt_now_ns();
    tutti_err mine = TUTTI_EBOOT;
    if (r->boot)
        mine = measure(comm, r, &measured, &diag);
    bool is_broken = mine != TUTTI_OK;
    if (!mine)
        mine = make(comm, measured, &f);
    tt_topology_free(measured);
    int32_t worst = mine;
    tutti_err err = least(comm, &worst, timeout_ns);
    if (!err && !worst)
        change(comm, r, &f);
    drop(comm, &f);
    if (is_broken) { /* what was said last on it is not known */
        tt_boot_close(r->boot);
        r->boot = NULL;
    }
    rest(r);
    if (comm->rank == 0 && !err && worst)
        TT_WARN("the network could not be measured again: %s; plans stay as "
                "they were",
                mine && diag.text[0] ? diag.text
                                     : tutti_strerror((tutti_err)worst));
    else if (comm->rank == 0 && !err)
        TT_WARN("all ranks plan for the network as it is now (%016llx), after "
                "%.1f s",
                (unsigned long long)comm->topology->id,
                (double)(tt_now_ns() - begin_ns) * 1e-9);
    return err;
}
