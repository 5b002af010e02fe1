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
 * How        Around a ring whose order fits the network each rank
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
#include "bound/fewflows.h"

#include <math.h>

/* Prices of messages: to the next on the ring, to the one before, others. */
#define COST_NEXT 1.0
#define COST_BEFORE 1.05
#define COST_OTHER 3.0
/* Turns of each root (firsttrees.c). */
#define TURNS 6
/* How often flows are weighed, and from which share of the largest they are
 * no longer small. */
#define WEIGHINGS 3
#define SMALL 0.1

tutti_err tt_fewflows_init(tt_fewflows *f, const uint32_t *ring,
                           tt_pricing *net, tt_arena *arena)
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
    if (arena->err)
        return TUTTI_ENOMEM;
    if (!f->has_choice)
        return TUTTI_OK;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t here = ring ? ring[i] : i;
        uint32_t next = ring ? ring[(i + 1) % n] : (i + 1) % n;
        f->next[here] = next;
        f->before[next] = here;
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

static tutti_err plant_chains(tt_fewflows *f, tt_firsttrees *first)
{
    const tt_pricing *net = f->net;
    uint32_t *msg = tt_arena_new(f->arena, net->n, sizeof(*msg));
    if (!msg)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < net->n_roots; i++) {
        for (int side = net->first_side; side <= net->last_side; side++) {
            if (!chain(f, net->roots[i], side, msg))
                continue;
            tutti_err err = first->take(first->ctx, net->roots[i], side, msg);
            if (err)
                return err;
        }
    }
    return TUTTI_OK;
}

tutti_err tt_fewflows_plant(tt_fewflows *f, tt_firsttrees *first)
{
    if (!f->has_choice)
        return TUTTI_OK;
    tutti_err err = plant_chains(f, first);
    first->factor = f->cost;
    first->turns = TURNS;
    return err ? err : tt_firsttrees_find(f->net, f->arena, first);
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
