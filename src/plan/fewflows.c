/* SPDX-License-Identifier: BSD-3-Clause
 * fewflows.c - of equally good trees, those that use few pairs of ranks.
 *
 * Why        Behind a switch any rank can send to any other, and the linear
 *            programme does not care to how many. The network does: the flows
 *            that meet at a network card get equal parts of it, whatever the
 *            plan meant them to have, so unequal ones run ahead, and where
 *            every card is full what one flow took too early is missing
 *            elsewhere later. Simulated, stars in place of chains cost 5 to 20
 *            % on networks of racks. One flow per card can only run as planned.
 * How        Around a ring whose order fits the network (order.h) each rank
 *            sends to one other. So the neighbours on the ring are made cheap
 *            and all other pairs dear, and trees are planted at those prices:
 *            chains where the network is even, and where it is not, chains with
 *            branches where they are needed. Then the programme, bound to its
 *            best rate, has to find the cheapest solution in the pool; after
 *            that pairs are priced by how little they carry, so that small
 *            flows are moved to where there are large ones, some times over.
 * Limits     Where every link serves one pair (meshes, tori) there is no choice
 *            and only the depth counts.
 * Next       columns.c. */
#include "plan/fewflows.h"

#include "plan/order.h"

#include <math.h>

/* Prices of messages: to the next on the ring, to the one before, others. */
#define COST_NEXT 1.0
#define COST_BEFORE 1.05
#define COST_OTHER 3.0
/* Turns of each root (startup.c). */
#define TURNS 6
/* How often flows are weighed, and from which share of the largest they are
 * no longer small. */
#define WEIGHINGS 3
#define SMALL 0.1

tutti_err tt_fewflows_init(tt_fewflows *f, const tutti_topology *t,
                           const tt_routes *routes, tt_treenet *net,
                           tt_arena *arena)
{
    const tt_pairs *pairs = &net->pairs;
    uint32_t n = net->n;
    *f = (tt_fewflows){
        .net = net,
        .arena = arena,
        .has_choice = pairs->m_first[pairs->n_messages] > pairs->n_messages,
        .cost = tt_arena_new(arena, pairs->n_messages, sizeof(*f->cost)),
        .flow = tt_arena_new(arena, pairs->n_messages, sizeof(*f->flow)),
        .next = tt_arena_new(arena, n, sizeof(*f->next)),
        .before = tt_arena_new(arena, n, sizeof(*f->before)),
    };
    if (!f->cost || !f->flow || !f->next || !f->before)
        return TUTTI_ENOMEM;
    if (!f->has_choice)
        return TUTTI_OK;
    const tt_problem p = {.collective = TUTTI_ALL_REDUCE,
                          .n_ranks = n,
                          .root = TT_NONE,
                          .topology = t,
                          .routes = routes};
    tt_ring ring;
    tutti_err err = tt_order_ring(&p, false, arena, &ring, NULL);
    if (err)
        return err;
    for (uint32_t i = 0; i < n; i++) {
        f->next[ring.at[i]] = ring.at[(i + 1) % n];
        f->before[ring.at[(i + 1) % n]] = ring.at[i];
    }
    for (uint32_t m = 0; m < pairs->n_messages; m++) {
        bool is_next = f->next[pairs->src[m]] == pairs->dst[m];
        bool is_before = f->before[pairs->src[m]] == pairs->dst[m];
        f->cost[m] = is_next ? COST_NEXT : is_before ? COST_BEFORE : COST_OTHER;
    }
    return TUTTI_OK;
}

/* The chain once around that ends at the root, or begins there. false: two
 * neighbours on the ring have no message of their own. */
static bool chain(const tt_fewflows *f, uint32_t root, bool is_in,
                  uint32_t *msg)
{
    const tt_pairs *pairs = &f->net->pairs;
    size_t n = f->net->n;
    for (uint32_t v = 0; v < n; v++) {
        size_t pair = is_in ? v * n + f->next[v] : f->before[v] * n + v;
        msg[v] = TT_NONE;
        if (v == root)
            continue;
        if (pairs->first[pair] == pairs->first[pair + 1])
            return false;
        msg[v] = pairs->first[pair];
    }
    return true;
}

static tutti_err plant_chains(tt_fewflows *f, tt_startup *startup)
{
    const tt_treenet *net = f->net;
    uint32_t *msg = tt_arena_new(f->arena, net->n, sizeof(*msg));
    if (!msg)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < net->n_roots; i++) {
        for (int side = 0; side < 2; side++) {
            if (!net->has_side[side] || !chain(f, net->roots[i], side, msg))
                continue;
            tutti_err err = startup->take(startup->ctx, net->roots[i], side,
                                          msg);
            if (err)
                return err;
        }
    }
    return TUTTI_OK;
}

tutti_err tt_fewflows_plant(tt_fewflows *f, tt_startup *startup)
{
    if (!f->has_choice)
        return TUTTI_OK;
    tutti_err err = plant_chains(f, startup);
    startup->factor = f->cost;
    startup->turns = TURNS;
    return err ? err : tt_startup_run(f->net, f->arena, startup);
}

/* When Clp gives up, the solution before is still a good one. */
tutti_err tt_fewflows_settle(tt_fewflows *f, tt_master *m)
{
    tutti_err err = tt_master_prefer(m, f->cost);
    for (uint32_t i = 0; i < WEIGHINGS && f->has_choice && !err; i++) {
        double most = 0;
        tt_master_flow(m, f->flow);
        for (uint32_t k = 0; k < f->net->pairs.n_messages; k++)
            most = fmax(most, f->flow[k]);
        for (uint32_t k = 0; k < f->net->pairs.n_messages; k++)
            f->cost[k] = SMALL / (SMALL + f->flow[k] / most);
        err = tt_master_prefer(m, f->cost);
    }
    return err == TUTTI_ENOFIT ? TUTTI_OK : err;
}
