/* SPDX-License-Identifier: BSD-3-Clause
 * routes.c - the way between any two ranks, in memory that suits the network.
 *
 * Grids      Arithmetic: one link per node and direction.
 * Others     Nodes with one neighbour are taken away, again and again, which
 *            leaves the core and, hanging from it, trees; in a tree the way is
 *            up to where both meet and down again. Inside the core a row of
 *            distances, for each core node below which a rank sits, says at
 *            every node which links lead nearer. So a star of 65536 or racks
 *            need no table, and a fat tree one of switches, not of ranks.
 * Choice     Among n equally good links, in order of number, the one numbered
 *            (dst rank + rail) mod n: on a fat tree D-mod-k, which spreads the
 *            destinations over the spines.
 * Ends       Hosts that do not forward are the first or the last node of a
 *            route, and no tree hangs from one but its own slots. Where there
 *            are any, grids are networks as others.
 * Cost       Making: (core nodes with ranks) * (core links), at worst; a full
 *            network ends each search after one node. A route: its links, and
 *            the links of the core nodes on the way.
 * Next       plan/, sim/, which walk them.
 */
#include "topology/network.h"

#include "base/rng.h"

#include <string.h>

#define FAR UINT16_MAX
/* Entries of the table of distances, 2 bytes each. */
#define MAX_TABLE (UINT64_C(1) << 28)

struct tt_routes {
    const tutti_topology *t;
    tt_arena arena;
    uint32_t max_links;
    bool is_grid; /* whose hosts all forward */
    uint32_t
        *steps; /* grids: link of node v in direction w: [v * 2 dims + w] */
    uint32_t
        *sorted;  /* links by from, to, number; t->first_out has the bounds */
    uint32_t *up; /* node -> its parent in a tree; of the core: TT_NONE */
    uint32_t *depth;  /* links from the core */
    uint32_t *root;   /* node -> core node above it (itself in the core) */
    uint32_t *number; /* core node -> its number in the core */
    uint32_t *row;    /* number in the core -> row of `away`, or TT_NONE */
    uint16_t *away;   /* [row][number]: links from there to the row's node */
    uint32_t n_core, n_rows;
};

/* What is needed while routes are made. */
typedef struct maker {
    tt_routes *r;
    const tutti_topology *t;
    tt_arena arena;
    uint32_t *degree,
        *others;     /* neighbours left: how many; their numbers xor */
    uint32_t *queue; /* nodes in the order they were taken away */
    uint32_t n_queue;
    uint32_t *core;         /* the core's nodes, in order */
    uint32_t *deepest;      /* the deepest rank below a node; TT_NONE */
    uint32_t *first, *from; /* core: who has a link to number i */
    uint32_t longest;
} maker;

/* Where a route goes: written down, or only hashed, each link with its place
 * in the route, because the last part is found from its end. */
typedef struct sink {
    uint32_t *links; /* NULL: hash */
    uint64_t hash;
} sink;

static void put(sink *s, uint32_t i, uint32_t link)
{
    if (s->links)
        s->links[i] = link;
    else
        s->hash += tt_rng_next(&(tt_rng){(uint64_t)i << 32 | link});
}

/* ---------------------------------------------------------------- grids -- */

static bool fill_steps(tt_routes *r)
{
    const tutti_topology *t = r->t;
    size_t n_ways = (size_t)2 * t->grid.n_dims;
    r->steps = tt_arena_new(&r->arena, t->n_nodes, n_ways * 4);
    if (!r->steps)
        return false;
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[i];
        uint32_t way = tt_grid_direction(&t->grid, l->from, l->to);
        r->steps[l->from * n_ways + way] = i;
    }
    for (uint32_t d = 0; d < t->grid.n_dims; d++) {
        uint32_t n = t->grid.dims[d];
        r->max_links += t->grid.wraps ? n / 2 : n - 1;
    }
    return true;
}

/* Steps in one dimension, from a to z; *is_up: the way. */
static uint32_t grid_steps(const tt_grid *g, uint32_t d, uint32_t a, uint32_t z,
                           bool *is_up)
{
    uint32_t n = g->dims[d];
    uint32_t straight = z > a ? z - a : a - z;
    *is_up = z > a;
    if (!g->wraps || n <= 2)
        return straight;
    uint32_t upwards = z >= a ? z - a : n - (a - z);
    *is_up = upwards <= n - upwards;
    return *is_up ? upwards : n - upwards;
}

static uint32_t grid_route(const tt_routes *r, uint32_t from, uint32_t to,
                           sink *out)
{
    const tt_grid *g = &r->t->grid;
    uint32_t n_links = 0, at = from, left = from, goal = to;
    for (uint32_t d = g->n_dims; d-- > 0;) {
        uint32_t n = g->dims[d];
        bool is_up;
        uint32_t n_steps = grid_steps(g, d, left % n, goal % n, &is_up);
        for (uint32_t i = 0; i < n_steps; i++) {
            size_t way = (size_t)at * 2 * g->n_dims + 2 * d + !is_up;
            put(out, n_links++, r->steps[way]);
            at = r->t->links[r->steps[way]].to;
        }
        left /= n;
        goal /= n;
    }
    return n_links;
}

/* ---------------------------------------------------------------- trees -- */

/* The links out of (into) each node by the node at their other end, then by
 * number: t->in (t->out) has them all in order of that node. */
static uint32_t *sort_links(maker *m, tt_arena *arena, bool is_out)
{
    const tutti_topology *t = m->t;
    const uint32_t *from = is_out ? t->in : t->out;
    uint32_t *list = tt_arena_new(arena, (size_t)t->n_links + 1, 4);
    uint32_t *next = tt_arena_new(&m->arena, t->n_nodes, 4);
    if (!list || !next)
        return NULL;
    memcpy(next, is_out ? t->first_out : t->first_in,
           t->n_nodes * sizeof(*next));
    for (uint32_t k = 0; k < t->n_links; k++) {
        const tt_link *l = &t->links[from[k]];
        list[next[is_out ? l->from : l->to]++] = from[k];
    }
    return list;
}

/* Counts the neighbours of v, whichever way the links go. */
static void count_neighbours(maker *m, const uint32_t *entering, uint32_t v)
{
    const tutti_topology *t = m->t;
    uint32_t i = t->first_out[v], k = t->first_in[v];
    uint32_t last = TT_NONE;
    while (i < t->first_out[v + 1] || k < t->first_in[v + 1]) {
        uint32_t a = TT_NONE, b = TT_NONE;
        if (i < t->first_out[v + 1])
            a = t->links[m->r->sorted[i]].to;
        if (k < t->first_in[v + 1])
            b = t->links[entering[k]].from;
        uint32_t other = a < b ? a : b;
        i += a == other;
        k += b == other;
        if (other == last)
            continue;
        last = other;
        m->degree[v]++;
        m->others[v] ^= other;
    }
}

/* Takes v, which has one neighbour left, away. */
static void take_away(maker *m, uint32_t v)
{
    uint32_t parent = m->others[v];
    m->r->up[v] = parent;
    m->degree[v] = 0;
    m->others[parent] ^= v;
    if (--m->degree[parent] == 1)
        m->queue[m->n_queue++] = parent;
}

/* May v, which has one neighbour left, hang from that? */
static bool may_hang(const maker *m, uint32_t v)
{
    uint32_t parent = m->others[v];
    return m->t->nodes[parent].forwards || m->t->nodes[v].hub == parent;
}

static void strip(maker *m)
{
    uint32_t n_taken = 0;
    for (uint32_t v = 0; v < m->t->n_nodes; v++) {
        m->r->up[v] = TT_NONE;
        if (m->degree[v] == 1)
            m->queue[m->n_queue++] = v;
    }
    for (uint32_t i = 0; i < m->n_queue; i++) {
        uint32_t v = m->queue[i];
        /* The last two of a tree are neighbours: one of them stays. */
        if (m->degree[v] != 1 || !may_hang(m, v))
            continue;
        take_away(m, v);
        m->queue[n_taken++] = v;
    }
    m->n_queue = n_taken;
}

/* Depths and roots, from the core outwards; how deep ranks are, inwards. */
static void measure_trees(maker *m)
{
    tt_routes *r = m->r;
    uint32_t *deepest = m->deepest;
    for (uint32_t v = 0; v < m->t->n_nodes; v++) {
        deepest[v] = m->t->nodes[v].rank == TT_NONE ? TT_NONE : 0;
        if (r->up[v] == TT_NONE)
            r->root[v] = v;
    }
    for (uint32_t i = m->n_queue; i-- > 0;) {
        uint32_t v = m->queue[i];
        r->depth[v] = r->depth[r->up[v]] + 1;
        r->root[v] = r->root[r->up[v]];
    }
    for (uint32_t i = 0; i < m->n_queue; i++) {
        uint32_t v = m->queue[i], p = r->up[v];
        if (deepest[v] == TT_NONE)
            continue;
        uint32_t below = deepest[v] + 1;
        uint32_t through = deepest[p] == TT_NONE ? 0 : deepest[p] + below;
        m->longest = through > m->longest ? through : m->longest;
        if (deepest[p] == TT_NONE || deepest[p] < below)
            deepest[p] = below;
    }
}

static bool find_trees(maker *m)
{
    size_t n = m->t->n_nodes;
    tt_routes *r = m->r;
    r->up = tt_arena_new(&r->arena, n, 4);
    r->depth = tt_arena_new(&r->arena, n, 4);
    r->root = tt_arena_new(&r->arena, n, 4);
    m->degree = tt_arena_new(&m->arena, n, 4);
    m->others = tt_arena_new(&m->arena, n, 4);
    m->queue = tt_arena_new(&m->arena, n, 4);
    m->deepest = tt_arena_new(&m->arena, n, 4);
    r->sorted = sort_links(m, &r->arena, true);
    const uint32_t *entering = sort_links(m, &m->arena, false);
    if (r->arena.err || m->arena.err)
        return false;
    for (uint32_t v = 0; v < n; v++)
        count_neighbours(m, entering, v);
    strip(m);
    measure_trees(m);
    return true;
}

/* ----------------------------------------------------------------- core -- */

/* Numbers the core's nodes; those with ranks below get a row. */
static bool number_core(maker *m)
{
    tt_routes *r = m->r;
    uint32_t n = m->t->n_nodes;
    r->n_core = n - m->n_queue;
    r->number = tt_arena_new(&r->arena, n, 4);
    r->row = tt_arena_new(&r->arena, r->n_core, 4);
    m->core = tt_arena_new(&m->arena, r->n_core, 4);
    if (r->arena.err || m->arena.err)
        return false;
    uint32_t i = 0;
    for (uint32_t v = 0; v < n; v++) {
        r->number[v] = TT_NONE;
        if (r->up[v] != TT_NONE)
            continue;
        r->number[v] = i;
        m->core[i] = v;
        r->row[i++] = m->deepest[v] == TT_NONE ? TT_NONE : r->n_rows++;
    }
    return true;
}

/* Who in the core has a link to whom, each once. */
static bool list_core_links(maker *m)
{
    const tutti_topology *t = m->t;
    const tt_routes *r = m->r;
    m->first = tt_arena_new(&m->arena, (size_t)r->n_core + 1, 4);
    m->from = tt_arena_new(&m->arena, (size_t)t->n_links + 1, 4);
    if (m->arena.err)
        return false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_core; i++) {
        uint32_t v = m->core[i];
        m->first[i] = n;
        for (uint32_t k = t->first_in[v]; k < t->first_in[v + 1]; k++) {
            uint32_t a = r->number[t->links[t->in[k]].from];
            bool is_twice = n > m->first[i] && m->from[n - 1] == a;
            if (a != TT_NONE && !is_twice)
                m->from[n++] = a;
        }
    }
    m->first[r->n_core] = n;
    return true;
}

/* The distances to core node `goal`, breadth first; ends when all are known.
 * false: one is too far to be written down. */
static bool measure_row(maker *m, uint32_t goal)
{
    const tt_routes *r = m->r;
    uint16_t *away = r->away + (size_t)r->row[goal] * r->n_core;
    uint32_t *queue = m->queue, n = 1;
    memset(away, 0xff, r->n_core * sizeof(*away));
    away[goal] = 0;
    queue[0] = goal;
    for (uint32_t i = 0; i < n && n < r->n_core; i++) {
        uint32_t v = queue[i];
        if (away[v] == FAR - 1)
            return false;
        if (v != goal && !m->t->nodes[m->core[v]].forwards)
            continue;
        for (uint32_t k = m->first[v]; k < m->first[v + 1]; k++) {
            uint32_t a = m->from[k];
            if (away[a] != FAR)
                continue;
            away[a] = (uint16_t)(away[v] + 1);
            queue[n++] = a;
        }
    }
    return true;
}

/* The longest route to the ranks below this core node. */
static void find_longest(maker *m, uint32_t goal)
{
    const tt_routes *r = m->r;
    const uint16_t *away = r->away + (size_t)r->row[goal] * r->n_core;
    uint32_t below = m->deepest[m->core[goal]];
    for (uint32_t i = 0; i < r->n_core; i++) {
        if (i == goal || r->row[i] == TT_NONE || away[i] == FAR)
            continue;
        uint32_t n = m->deepest[m->core[i]] + away[i] + below;
        m->longest = n > m->longest ? n : m->longest;
    }
}

static tutti_err no_memory(tutti_diag *diag)
{
    return tt_fail(diag, TUTTI_ENOMEM, "no memory for the routes");
}

static tutti_err too_large(tutti_diag *diag, const tt_routes *r)
{
    return tt_fail(diag, TUTTI_ELIMIT,
                   "routes between %u of %u nodes that are no tree would need "
                   "too large a table; if they are a grid, say so with `grid`",
                   r->n_rows, r->n_core);
}

static tutti_err fill_table(maker *m, tutti_diag *diag)
{
    tt_routes *r = m->r;
    if (!number_core(m))
        return no_memory(diag);
    if (r->n_core < 2)
        return TUTTI_OK;
    uint64_t n = (uint64_t)r->n_rows * r->n_core;
    if (n > MAX_TABLE)
        return too_large(diag, r);
    r->away = tt_arena_new(&r->arena, (size_t)n, sizeof(*r->away));
    if (!r->away || !list_core_links(m))
        return no_memory(diag);
    for (uint32_t i = 0; i < r->n_core; i++) {
        if (r->row[i] == TT_NONE)
            continue;
        if (!measure_row(m, i))
            return too_large(diag, r);
        find_longest(m, i);
    }
    return TUTTI_OK;
}

static tutti_err make_general(tt_routes *r, tutti_diag *diag)
{
    maker m = {.r = r, .t = r->t, .arena = {.mem = r->arena.mem}};
    tutti_err err = find_trees(&m) ? fill_table(&m, diag) : no_memory(diag);
    r->max_links = m.longest;
    tt_arena_free(&m.arena);
    return err;
}

tutti_err tt_routes_create(const tutti_topology *t, const tt_mem *mem,
                           tt_routes **out, tutti_diag *diag)
{
    tt_arena arena = {.mem = mem};
    tt_routes *r = tt_arena_new(&arena, 1, sizeof(*r));
    if (!r)
        return no_memory(diag);
    r->t = t;
    r->arena = arena;
    r->is_grid = t->grid.n_dims > 0 && t->all_forward;
    tutti_err err = TUTTI_OK;
    if (!r->is_grid)
        err = make_general(r, diag);
    else if (!fill_steps(r))
        err = no_memory(diag);
    if (err)
        tt_routes_free(r);
    else
        *out = r;
    return err;
}

void tt_routes_free(tt_routes *r)
{
    if (!r)
        return;
    tt_arena arena = r->arena; /* r lies in it */
    tt_arena_free(&arena);
}

uint32_t tt_routes_max_links(const tt_routes *r)
{
    return r->max_links;
}

/* --------------------------------------------------------------- walking -- */

/* Of the links from a to its neighbour z, the one for this key. */
static uint32_t parallel(const tt_routes *r, uint32_t a, uint32_t z,
                         uint32_t key)
{
    const tt_link *links = r->t->links;
    uint32_t low = r->t->first_out[a], end = r->t->first_out[a + 1];
    for (uint32_t high = end; low < high;) {
        uint32_t mid = low + (high - low) / 2;
        if (links[r->sorted[mid]].to < z)
            low = mid + 1;
        else
            high = mid;
    }
    uint32_t n = 1;
    while (low + n < end && links[r->sorted[low + n]].to == z)
        n++;
    return r->sorted[low + key % n];
}

/* Is this a link of the core that leads to where `left` links are left, and on
 * from there? */
static bool is_nearer(const tt_routes *r, const uint16_t *away, uint32_t link,
                      uint32_t left)
{
    uint32_t to = r->t->links[link].to;
    uint32_t i = r->number[to];
    return i != TT_NONE && away[i] == left && r->t->nodes[to].forwards;
}

/* The link out of core node v for this key towards the row's node, which is
 * more than one link away. */
static uint32_t nearer(const tt_routes *r, const uint16_t *away, uint32_t v,
                       uint32_t key)
{
    const tutti_topology *t = r->t;
    uint32_t left = (uint32_t)away[r->number[v]] - 1;
    uint32_t n = 0;
    for (uint32_t k = t->first_out[v]; k < t->first_out[v + 1]; k++)
        n += is_nearer(r, away, t->out[k], left);
    uint32_t pick = key % n;
    uint32_t k = t->first_out[v];
    for (;; k++) {
        if (is_nearer(r, away, t->out[k], left) && pick-- == 0)
            return t->out[k];
    }
}

/* From each core node to this one. */
static const uint16_t *away_from(const tt_routes *r, uint32_t to)
{
    return r->away + (size_t)r->row[r->number[to]] * r->n_core;
}

/* Puts the route's links from the n-th on; returns n for what comes next. */
static uint32_t core_route(const tt_routes *r, uint32_t from, uint32_t to,
                           uint32_t key, sink *out, uint32_t n)
{
    if (from == to)
        return n;
    const uint16_t *away = away_from(r, to);
    while (from != to) {
        bool is_last = away[r->number[from]] == 1;
        uint32_t link = is_last ? parallel(r, from, to, key)
                                : nearer(r, away, from, key);
        put(out, n++, link);
        from = r->t->links[link].to;
    }
    return n;
}

/* Where the ways of a and z out of their trees meet: a node, or, when they
 * meet in the core only, the root of each. */
static void meet(const tt_routes *r, uint32_t *a, uint32_t *z)
{
    if (r->root[*a] != r->root[*z]) {
        *a = r->root[*a];
        *z = r->root[*z];
    }
    while (*a != *z && r->root[*a] == r->root[*z]) {
        bool a_is_deeper = r->depth[*a] >= r->depth[*z];
        uint32_t *deeper = a_is_deeper ? a : z;
        *deeper = r->up[*deeper];
    }
}

static uint32_t general_route(const tt_routes *r, uint32_t from, uint32_t to,
                              uint32_t key, sink *out)
{
    uint32_t top = from, other = to, n = 0;
    meet(r, &top, &other);
    if (top != other && away_from(r, other)[r->number[top]] == FAR)
        return 0;
    for (; from != top; from = r->up[from])
        put(out, n++, parallel(r, from, r->up[from], key));
    if (top != other)
        n = core_route(r, top, other, key, out, n);
    uint32_t end = n + r->depth[to] - r->depth[other];
    for (uint32_t i = end; i-- > n; to = r->up[to])
        put(out, i, parallel(r, r->up[to], to, key));
    return end;
}

/* The route by the rule, whatever the rail. */
static uint32_t route(const tt_routes *r, uint32_t src, uint32_t dst,
                      uint32_t rail, sink *out)
{
    uint32_t from = r->t->rank_node[src], to = r->t->rank_node[dst];
    if (r->is_grid)
        return grid_route(r, from, to, out);
    return general_route(r, from, to, dst + rail, out);
}

/* The first rail, up to `most`, whose route an earlier one has, or `most`. */
static uint32_t count_rails(const tt_routes *r, uint32_t src, uint32_t dst,
                            uint32_t most)
{
    uint64_t seen[TT_RAILS_MAX];
    if (r->is_grid || src == dst)
        return 1;
    for (uint32_t rail = 0; rail < most; rail++) {
        sink s = {0};
        if (route(r, src, dst, rail, &s) == 0)
            return 0;
        for (uint32_t i = 0; i < rail; i++) {
            if (seen[i] == s.hash)
                return rail;
        }
        seen[rail] = s.hash;
    }
    return most;
}

uint32_t tt_route_rails(const tt_routes *r, uint32_t src, uint32_t dst)
{
    return count_rails(r, src, dst, TT_RAILS_MAX);
}

uint32_t tt_route(const tt_routes *r, uint32_t src, uint32_t dst, uint8_t rail,
                  uint32_t *links)
{
    uint32_t most = rail < TT_RAILS_MAX ? rail + 1u : TT_RAILS_MAX;
    uint32_t n_rails = rail ? count_rails(r, src, dst, most) : 1;
    sink s = {.links = links};
    return n_rails ? route(r, src, dst, rail % n_rails, &s) : 0;
}
