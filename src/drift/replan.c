/* SPDX-License-Identifier: BSD-3-Clause
 * replan.c - during a job links have other rates, and plans change.
 *
 * What may fail comes first; then network and plans change together. Calls that
 * are open go on by the plans that they have. Connections stay as they are;
 * which of them is which rail is told by interface.
 * Next       drift.c (when), core/plans.c. */
#include "base/log.h"
#include "drift/drift.h"

void tt_old_networks_free(const tt_mem *mem, tt_old_network *pasts)
{
    while (pasts) {
        tt_old_network *p = pasts;
        pasts = p->next;
        tt_routes_free(p->routes);
        tt_topology_free(p->topology);
        tt_free(mem, p, 1, sizeof(*p));
    }
}

typedef struct fresh {
    tutti_topology *topology;
    tt_routes *routes;
    tt_rail_map *rails;
} fresh;

static tutti_err make(const tutti_comm *comm, const uint64_t *rates_bps,
                      fresh *out)
{
    tutti_err err = tt_topology_with_rates(comm->topology, rates_bps,
                                           &comm->mem, &out->topology, NULL);
    if (!err)
        err = tt_routes_create(out->topology, &comm->mem, &out->routes, NULL);
    if (!err)
        err = tt_rail_map_make(comm, out->topology, out->routes, &out->rails);
    return err;
}

static void change(tutti_comm *comm, const fresh *f)
{
    tt_engine_lock(comm->engine);
    tt_comm_forget_plans(comm);
    tt_comm_free_rails(comm);
    comm->topology = f->topology;
    comm->routes = f->routes;
    comm->rails = f->rails;
    tt_engine_unlock(comm->engine);
}

tutti_err tt_replan(tutti_comm *comm, const uint64_t *rates_bps,
                    tt_old_network **pasts)
{
    fresh f = {0};
    tt_old_network *old = tt_new(&comm->mem, 1, sizeof(*old));
    tutti_err err = old ? make(comm, rates_bps, &f) : TUTTI_ENOMEM;
    if (err) {
        tt_rail_map_free(comm, f.rails);
        tt_routes_free(f.routes);
        tt_topology_free(f.topology);
        tt_free(&comm->mem, old, 1, sizeof(*old));
        return err;
    }
    *old = (tt_old_network){*pasts, comm->topology, comm->routes};
    *pasts = old;
    change(comm, &f);
    TT_INFO("plans are for the network %016llx of %u ranks",
            (unsigned long long)comm->topology->id, comm->n_ranks);
    return TUTTI_OK;
}
