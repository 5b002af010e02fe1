/* SPDX-License-Identifier: BSD-3-Clause
 * rails.c - which connections a pair of ranks has, and which rail goes by
 * which.
 *
 * Idea       Where the network has several routes between two ranks that leave
 *            or enter their hosts by different interfaces, and names these
 *            (dev=), each pair of interfaces is a port with a connection of its
 *            own, bound to them. Routes that differ only inside the network
 *            share a port: nobody at its edge can choose among them.
 * Numbers    Both ends must number ports alike, and both must see the same
 *            ones although the rails from a to b and from b to a differ: the
 *            routes of both ways are read, interfaces are told from the lower
 *            rank to the higher, and ports are in order of speed, then of
 *            latency, then of the interfaces' names. So port 0, which carries
 *            whatever has no rail, is the fastest.
 * Next: start/connect.c (who opens them), plans.c. */
#include "core/core.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"

/* One route, told the same at both ends. */
typedef struct way {
    const char *low, *high; /* interfaces of the lower and the higher rank */
    uint64_t bps, latency_ps;
    bool is_named; /* a connection can be bound to it */
    bool is_forwarded;
} way;

typedef struct reader {
    const tutti_topology *t;
    const tt_routes *routes;
    uint32_t *links; /* of the longest route */
} reader;

/* Does a link lead to a host that forwards? In a part of a network such a host
 * is a switch that has interfaces. */
static bool is_to_forwarder(const tutti_topology *t, const tt_link *link,
                            uint32_t to)
{
    return t->nodes[to].kind != TT_NODE_SWITCH ||
           (link->twin != TT_NONE && t->links[link->twin].dev);
}

static way read_way(const reader *r, uint32_t src, uint32_t dst, uint8_t rail)
{
    const tutti_topology *t = r->t;
    uint32_t n = tt_route(r->routes, src, dst, rail, r->links);
    uint32_t here = tt_node_host(t, t->links[r->links[0]].from);
    uint32_t there = tt_node_host(t, t->links[r->links[n - 1]].to);
    const char *out = NULL, *in = NULL;
    way w = {.bps = UINT64_MAX};
    for (uint32_t i = 0; i < n; i++) {
        const tt_link *link = &t->links[r->links[i]];
        uint32_t from = tt_node_host(t, link->from),
                 to = tt_node_host(t, link->to);
        if (from == to)
            continue; /* inside a host */
        w.bps = link->rate_bps < w.bps ? link->rate_bps : w.bps;
        w.latency_ps += link->latency_ps;
        if (from == here)
            out = link->dev;
        if (to == there && link->twin != TT_NONE)
            in = t->links[link->twin].dev;
        w.is_forwarded |= to != there && is_to_forwarder(t, link, to);
    }
    w.low = src < dst ? out : in;
    w.high = src < dst ? in : out;
    /* Without names nothing is known of what else there is. */
    w.is_forwarded &= w.low || w.high;
    w.is_named = (w.low || w.high) && !w.is_forwarded;
    return w;
}

/* ---------------------------------------------------------------- ports -- */

static int compare_names(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

static bool is_same_port(const way *a, const way *b)
{
    return compare_names(a->low, b->low) == 0 &&
           compare_names(a->high, b->high) == 0;
}

static bool is_before(const way *a, const way *b)
{
    if (a->bps != b->bps)
        return a->bps > b->bps;
    if (a->latency_ps != b->latency_ps)
        return a->latency_ps < b->latency_ps;
    int low = compare_names(a->low, b->low);
    return low != 0 ? low < 0 : compare_names(a->high, b->high) < 0;
}

/* Into its place among those that are there; of equal ports the better route
 * counts. */
static uint32_t add_way(way *ports, uint32_t n, way w)
{
    uint32_t at = 0;
    while (at < n && !is_same_port(&ports[at], &w))
        at++;
    if (at < n && !is_before(&w, &ports[at]))
        return n;
    if (at == n && n == 2 * TT_RAILS_MAX)
        return n;
    n += at == n;
    for (; at > 0 && is_before(&w, &ports[at - 1]); at--)
        ports[at] = ports[at - 1];
    ports[at] = w;
    return n;
}

/* The ports of a pair; 0 when nothing can be bound. */
static uint32_t list_ports(const reader *r, uint32_t a, uint32_t b,
                           way ports[2 * TT_RAILS_MAX])
{
    const uint32_t ends[2] = {a < b ? a : b, a < b ? b : a};
    uint32_t n = 0;
    for (int back = 0; back < 2; back++) {
        uint32_t src = ends[back], dst = ends[!back];
        uint32_t n_rails = tt_route_rails(r->routes, src, dst);
        for (uint32_t rail = 0; rail < n_rails; rail++) {
            way w = read_way(r, src, dst, (uint8_t)rail);
            if (w.is_named)
                n = add_way(ports, n, w);
        }
    }
    return n < TT_PORTS_MAX ? n : TT_PORTS_MAX;
}

static bool names_interfaces(const tutti_topology *t)
{
    for (uint32_t i = 0; i < t->n_links; i++)
        if (t->links[i].dev)
            return true;
    return false;
}

uint64_t tt_rail_id(const char *low, const char *high)
{
    uint64_t hash = TT_FNV1A_START;
    hash = tt_fnv1a(hash, low ? low : "", low ? strlen(low) + 1 : 1);
    hash = tt_fnv1a(hash, high ? high : "", high ? strlen(high) + 1 : 1);
    return hash ? hash : 1;
}

static tt_link_hint hint_of(const way *w, bool is_low, bool is_one_of_several)
{
    return (tt_link_hint){.dev = is_low ? w->low : w->high, /* the network's */
                          .far_dev = is_low ? w->high : w->low,
                          .is_forwarded = w->is_forwarded,
                          .is_rail = is_one_of_several};
}

/* Ranks that share a host in truth have no network between them. */
static void read_hints(const reader *r, uint32_t rank, uint32_t peer,
                       bool is_near, tt_rail_hints *out)
{
    way ports[2 * TT_RAILS_MAX];
    uint32_t n = is_near ? 0 : list_ports(r, rank, peer, ports);
    if (tt_route_rails(r->routes, rank, peer) == 0)
        return; /* hosts between them do not forward */
    if (n < 2) {
        way w = read_way(r, rank, peer, 0);
        out->hints[0][peer] = hint_of(&w, rank < peer, false);
        return;
    }
    out->n_ports[peer] = n;
    for (uint32_t k = 0; k < n; k++)
        out->hints[k][peer] = hint_of(&ports[k], rank < peer, true);
}

/* The network goes with the start. */
static bool keep_name(const char **name, tt_arena *arena)
{
    size_t size = *name ? strlen(*name) + 1 : 0;
    char *own = size ? tt_arena_new(arena, size, 1) : NULL;
    if (own)
        memcpy(own, *name, size);
    *name = own;
    return own || !size;
}

static tutti_err keep_names(uint32_t n, tt_arena *arena, tt_rail_hints *out)
{
    bool is_well = true;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t k = 0; k < out->n_ports[r]; k++) {
            tt_link_hint *hint = &out->hints[k][r];
            is_well &= keep_name(&hint->dev, arena);
            is_well &= keep_name(&hint->far_dev, arena);
        }
    return is_well ? TUTTI_OK : TUTTI_ENOMEM;
}

tutti_err tt_rail_hints_read(const tutti_topology *t, uint32_t rank,
                             const uint32_t *hosts, tt_arena *arena,
                             tt_rail_hints *out, tutti_diag *diag)
{
    if (!names_interfaces(t))
        return TUTTI_OK;
    out->has_names = true;
    tt_routes *routes = NULL;
    tutti_err err = tt_routes_create(t, &tt_mem_std, &routes, diag);
    uint32_t n_links = err ? 0 : tt_routes_max_links(routes);
    uint32_t *links = tt_new(&tt_mem_std, n_links, sizeof(*links));
    bool has_room = links != NULL;
    for (uint32_t k = 0; k < TT_PORTS_MAX; k++) {
        out->hints[k] = tt_arena_new(arena, t->n_ranks, sizeof(tt_link_hint));
        has_room &= out->hints[k] != NULL;
    }
    const reader r = {.t = t, .routes = routes, .links = links};
    for (uint32_t p = 0; !err && has_room && p < t->n_ranks; p++)
        if (p != rank)
            read_hints(&r, rank, p, hosts[p] == hosts[rank], out);
    if (!err && (!has_room || keep_names(t->n_ranks, arena, out)))
        err = tt_fail(diag, TUTTI_ENOMEM, "no memory for TUTTI_TOPOLOGY");
    tt_free(&tt_mem_std, links, n_links, sizeof(*links));
    tt_routes_free(routes);
    return err;
}

tutti_err tt_rail_hints_create(uint32_t n, tt_arena *arena, tt_rail_hints *out)
{
    *out = (tt_rail_hints){.has_names = false};
    out->n_ports = tt_arena_new(arena, n, sizeof(*out->n_ports));
    for (uint32_t r = 0; out->n_ports && r < n; r++)
        out->n_ports[r] = 1;
    return out->n_ports ? TUTTI_OK : TUTTI_ENOMEM;
}

/* --------------------------------------------------- rails of a schedule -- */

/* The port of each rail between this rank and the others: rails from it, then
 * rails to it. */
struct tt_rail_map {
    uint8_t n_rails[2];
    uint8_t port[2][TT_RAILS_MAX];
};

static void map_rails(const tutti_comm *comm, const reader *r, uint32_t peer,
                      tt_rail_map *out)
{
    uint32_t rank = comm->rank, far = tt_team_member(comm->team, peer);
    /* A port's ends are told by the ranks of the whole job. */
    bool is_turned = (rank < peer) != (tt_team_member(comm->team, rank) < far);
    for (int back = 0; back < 2; back++) {
        uint32_t src = back ? peer : rank, dst = back ? rank : peer;
        uint32_t n_rails = tt_route_rails(r->routes, src, dst);
        out->n_rails[back] = (uint8_t)n_rails;
        for (uint32_t rail = 0; rail < n_rails; rail++) {
            way w = read_way(r, src, dst, (uint8_t)rail);
            uint64_t id = is_turned ? tt_rail_id(w.high, w.low)
                                    : tt_rail_id(w.low, w.high);
            out->port[back][rail] = tt_mesh_port(comm->mesh, far, id);
        }
    }
}

tutti_err tt_rail_map_make(const tutti_comm *comm, const tutti_topology *t,
                           const tt_routes *routes, tt_rail_map **out)
{
    bool any = false;
    *out = NULL;
    for (uint32_t p = 0; p < comm->n_ranks; p++) {
        uint32_t member = tt_team_member(comm->team, p);
        any |= p != comm->rank && tt_mesh_n_ports(comm->mesh, member) > 1;
    }
    if (!any || !t)
        return TUTTI_OK;
    uint32_t n_links = tt_routes_max_links(routes);
    uint32_t *links = tt_new(&tt_mem_std, n_links, sizeof(*links));
    *out = tt_new(&comm->mem, comm->n_ranks, sizeof(**out));
    const reader r = {t, routes, links};
    for (uint32_t p = 0; links && *out && p < comm->n_ranks; p++)
        if (p != comm->rank)
            map_rails(comm, &r, p, &(*out)[p]);
    tt_free(&tt_mem_std, links, n_links, sizeof(*links));
    return links && *out ? TUTTI_OK : TUTTI_ENOMEM;
}

tutti_err tt_comm_map_rails(tutti_comm *comm)
{
    return tt_rail_map_make(comm, comm->topology, comm->routes, &comm->rails);
}

uint8_t tt_comm_rail_of(const tutti_comm *comm, uint32_t rank, uint32_t port)
{
    uint8_t rail = 0;
    if (!comm->rails)
        return 0;
    const tt_rail_map *map = &comm->rails[rank];
    while (rail < map->n_rails[0] && map->port[0][rail] != port)
        rail++;
    return rail < map->n_rails[0] ? rail : 0;
}

void tt_rail_map_free(const tutti_comm *comm, tt_rail_map *map)
{
    tt_free(&comm->mem, map, comm->n_ranks, sizeof(*map));
}

void tt_comm_free_rails(tutti_comm *comm)
{
    tt_rail_map_free(comm, comm->rails);
    comm->rails = NULL;
}

uint8_t tt_comm_port_of(const void *ctx, const tt_transfer *t)
{
    const tutti_comm *comm = ctx;
    bool is_back = t->dst == comm->rank;
    const tt_rail_map *map = &comm->rails[is_back ? t->src : t->dst];
    uint8_t n_rails = map->n_rails[is_back]; /* 0: no route */
    return n_rails ? map->port[is_back][t->rail % n_rails] : 0;
}
