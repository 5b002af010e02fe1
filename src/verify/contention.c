/* SPDX-License-Identifier: BSD-3-Clause
 * contention.c - does any step load a link beyond its capacity?
 *
 * Idea       A link's capacity is its rate over the slowest rate of all links
 *            that the schedule uses, rounded down: so many chunks it carries
 *            while the slowest link carries one. The transfers of a step lie
 *            together in the schedule; each adds one to every link of its
 *            route, and when the step ends the links touched are compared with
 *            their capacities and cleared.
 * Cost       Every route is walked twice: once to learn the slowest rate,
 *            once to count.
 * Next       plan/multitree.c, whose schedules are free of contention. */
#include "verify/verify.h"

typedef struct counter {
    const tutti_schedule *s;
    const tutti_topology *t;
    const tt_routes *routes;
    uint64_t slowest_bps;
    uint64_t *load;    /* [n_links], in this step */
    uint32_t *touched; /* links with a load, n_touched of them */
    uint32_t *route;
    uint32_t n_touched;
    tutti_contention_info worst;
} counter;

static uint32_t route_of(const counter *k, const tt_transfer *x)
{
    return tt_route(k->routes, x->src, x->dst, x->rail, k->route);
}

const tt_transfer *tt_find_unrouted(const tutti_schedule *s,
                                    const tutti_topology *t,
                                    const tt_routes *routes)
{
    for (uint64_t i = 0; i < s->n_transfers && !t->all_forward; i++)
        if (tt_route_rails(routes, s->transfers[i].src, s->transfers[i].dst) ==
            0)
            return &s->transfers[i];
    return NULL;
}

static void find_slowest(counter *k)
{
    k->slowest_bps = UINT64_MAX;
    for (uint64_t i = 0; i < k->s->n_transfers; i++) {
        uint32_t len = route_of(k, &k->s->transfers[i]);
        for (uint32_t j = 0; j < len; j++) {
            uint64_t rate_bps = k->t->links[k->route[j]].rate_bps;
            if (rate_bps < k->slowest_bps)
                k->slowest_bps = rate_bps;
        }
    }
}

static void add(counter *k, const tt_transfer *x)
{
    uint32_t len = route_of(k, x);
    for (uint32_t j = 0; j < len; j++) {
        uint32_t link = k->route[j];
        if (k->load[link]++ == 0)
            k->touched[k->n_touched++] = link;
    }
}

static uint32_t capacity_of(const counter *k, uint32_t link)
{
    uint64_t capacity = k->t->links[link].rate_bps / k->slowest_bps;
    return capacity < UINT32_MAX ? (uint32_t)capacity : UINT32_MAX;
}

/* More transfers per capacity; of equal ones in a step the lowest link. There
 * are at most 2^32 transfers, so the products fit. */
static bool is_worse(const tutti_contention_info *worst, uint32_t step,
                     uint32_t link, const uint64_t load_capacity[2])
{
    if (worst->is_free)
        return true;
    uint64_t now = load_capacity[0] * worst->capacity;
    uint64_t before = worst->n_transfers * load_capacity[1];
    return now > before ||
           (now == before && step == worst->step && link < worst->link);
}

static void end_step(counter *k, uint32_t step)
{
    for (uint32_t i = 0; i < k->n_touched; i++) {
        uint32_t link = k->touched[i];
        uint64_t load = k->load[link];
        uint32_t capacity = capacity_of(k, link);
        k->load[link] = 0;
        if (load <= capacity)
            continue;
        k->worst.n_overloaded++;
        const uint64_t now[2] = {load, capacity};
        if (!is_worse(&k->worst, step, link, now))
            continue;
        k->worst.is_free = false;
        k->worst.step = step;
        k->worst.link = link;
        k->worst.n_transfers = (uint32_t)load;
        k->worst.capacity = capacity;
    }
    k->n_touched = 0;
}

static void count(counter *k)
{
    const tt_transfer *list = k->s->transfers;
    for (uint64_t i = 0; i < k->s->n_transfers; i++) {
        add(k, &list[i]);
        if (i + 1 == k->s->n_transfers || list[i + 1].step != list[i].step)
            end_step(k, list[i].step);
    }
}

tutti_err tt_contention(const tutti_schedule *s, const tutti_topology *t,
                        const tt_routes *routes, const tt_mem *mem,
                        tutti_contention_info *out, tutti_diag *diag)
{
    if (s->n_ranks != t->n_ranks)
        return tt_fail(diag, TUTTI_EINVAL,
                       "the schedule is for %u ranks, the topology has %u",
                       s->n_ranks, t->n_ranks);
    const tt_transfer *unrouted = tt_find_unrouted(s, t, routes);
    if (unrouted)
        return tt_fail(diag, TUTTI_ENOFIT,
                       "rank %u cannot send to rank %u: hosts between them do "
                       "not forward",
                       unrouted->src, unrouted->dst);
    tt_arena arena = {.mem = mem};
    counter k = {.s = s, .t = t, .routes = routes};
    k.worst = (tutti_contention_info){
        .is_free = true, .step = TT_NONE, .link = TT_NONE};
    tutti_err err = TUTTI_OK;
    if (s->n_transfers == 0)
        goto out;
    k.load = tt_arena_new(&arena, t->n_links, sizeof(*k.load));
    k.touched = tt_arena_new(&arena, t->n_links, sizeof(*k.touched));
    k.route = tt_arena_new(&arena, (size_t)tt_routes_max_links(routes) + 1,
                           sizeof(*k.route));
    if (arena.err) {
        err = tt_fail(diag, TUTTI_ENOMEM,
                      "no memory to count the transfers of %u links",
                      t->n_links);
        goto out;
    }
    find_slowest(&k);
    count(&k);
out:
    if (!err)
        *out = k.worst;
    tt_arena_free(&arena);
    return err;
}
