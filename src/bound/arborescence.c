/* SPDX-License-Identifier: BSD-3-Clause
 * arborescence.c - the cheapest spanning tree from a root (Chu-Liu, Edmonds).
 *
 * Idea       Every vertex but the root must be entered by one edge. Start
 *            anywhere, take the cheapest edge into the vertex, go to where it
 *            comes from, and so on. Either this path reaches what is already
 *            hung up: then all of it is. Or it bites its own tail: then the
 *            cycle becomes one vertex, which must be entered too. Entering it
 *            at v replaces v's edge of the cycle, so that edge's cost (the
 *            toll) is taken off all edges into v. At the end the cycles are
 *            opened again, the last first, each where it is entered.
 * Picture    r -> 2 costs 5, r -> 3 costs 9, 2 -> 3, 3 -> 4 and 4 -> 2 cost 1:
 *
 *                    5        1             The path 3 <- 2 <- 4 <- 3 is a
 *                r ----> 2 ------> 3        cycle. It can be entered at 2 for
 *                         \      /          5 - 1 or at 3 for 9 - 1 more. At 2:
 *                        1 \    / 1         4 -> 2 falls away, and the tree is
 *                            4 <            r -> 2 -> 3 -> 4.
 *
 * Cost       A matrix of costs: n^2 to copy, n to find each vertex's cheapest
 *            edge, n for each merged vertex, so O(n^2) in all: the best there
 *            is where every two vertices are joined. No recursion.
 * Next       columns.c (who wants trees). */
#include "bound/arborescence.h"

#include <math.h>
#include <string.h>

enum { FRESH, ON_PATH, HUNG };

tutti_err tt_arbor_init(tt_arbor *a, uint32_t n, tt_arena *arena)
{
    size_t n2 = (size_t)n * n;
    size_t twice = 2 * (size_t)n;
    *a = (tt_arbor){
        .n = n,
        .cost = tt_arena_new(arena, n2, sizeof(*a->cost)),
        .edge = tt_arena_new(arena, n2, sizeof(*a->edge)),
        .owner = tt_arena_new(arena, n, sizeof(*a->owner)),
        .live = tt_arena_new(arena, n, sizeof(*a->live)),
        .row = tt_arena_new(arena, twice, sizeof(*a->row)),
        .into = tt_arena_new(arena, twice, sizeof(*a->into)),
        .enter = tt_arena_new(arena, twice, sizeof(*a->enter)),
        .toll = tt_arena_new(arena, twice, sizeof(*a->toll)),
        .state = tt_arena_new(arena, twice, sizeof(*a->state)),
        .path = tt_arena_new(arena, n, sizeof(*a->path)),
    };
    return arena->err;
}

static void start(tt_arbor *a, const double *cost, uint32_t root)
{
    uint32_t n = a->n;
    memcpy(a->cost, cost, (size_t)n * n * sizeof(*cost));
    for (uint32_t e = 0; e < n * n; e++)
        a->edge[e] = e;
    for (uint32_t v = 0; v < n; v++) {
        a->owner[v] = v;
        a->live[v] = v;
        a->row[v] = v;
    }
    for (uint32_t v = 0; v < 2 * n; v++) {
        a->into[v] = TT_NONE;
        a->state[v] = FRESH;
    }
    a->state[root] = HUNG;
}

/* Chooses the cheapest edge into v; the row it comes from, or TT_NONE. */
static uint32_t choose(tt_arbor *a, uint32_t n_live, uint32_t v)
{
    uint32_t best = TT_NONE;
    uint32_t to = a->row[v];
    double least = INFINITY;
    for (uint32_t i = 0; i < n_live; i++) {
        uint32_t from = a->live[i];
        double c = a->cost[(size_t)from * a->n + to];
        if (c < least && from != to) {
            least = c;
            best = from;
        }
    }
    if (best == TT_NONE)
        return TT_NONE;
    a->toll[v] = least;
    a->enter[v] = a->edge[(size_t)best * a->n + to];
    return best;
}

/* The edges of row `gone` become edges of row `kept`, where cheaper. */
static void take_over(tt_arbor *a, uint32_t n_live, uint32_t kept,
                      uint32_t gone)
{
    size_t n = a->n;
    for (uint32_t i = 0; i < n_live; i++) {
        size_t x = a->live[i];
        size_t ins[2] = {x * n + kept, x * n + gone};
        size_t outs[2] = {kept * n + x, gone * n + x};
        if (a->cost[ins[1]] < a->cost[ins[0]]) {
            a->cost[ins[0]] = a->cost[ins[1]];
            a->edge[ins[0]] = a->edge[ins[1]];
        }
        if (a->cost[outs[1]] < a->cost[outs[0]]) {
            a->cost[outs[0]] = a->cost[outs[1]];
            a->edge[outs[0]] = a->edge[outs[1]];
        }
    }
}

static uint32_t remove_row(tt_arbor *a, uint32_t n_live, uint32_t row)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_live; i++) {
        if (a->live[i] != row)
            a->live[n++] = a->live[i];
    }
    return n;
}

/* path[first .. len - 1] is a cycle and becomes the vertex `made`; returns how
 * many rows are left. What is before it on the path is entered from the row of
 * path[first], which stays. */
static uint32_t contract(tt_arbor *a, uint32_t n_live, uint32_t first,
                         uint32_t len, uint32_t made)
{
    uint32_t kept = a->row[a->path[first]];
    for (uint32_t i = first; i < len; i++) {
        uint32_t v = a->path[i];
        a->into[v] = made;
        for (uint32_t k = 0; k < n_live; k++)
            a->cost[(size_t)a->live[k] * a->n + a->row[v]] -= a->toll[v];
    }
    for (uint32_t i = first + 1; i < len; i++) {
        uint32_t gone = a->row[a->path[i]];
        n_live = remove_row(a, n_live, gone);
        take_over(a, n_live, kept, gone);
    }
    a->row[made] = kept;
    a->owner[kept] = made;
    return n_live;
}

static uint32_t position(const tt_arbor *a, uint32_t v)
{
    uint32_t i = 0;
    while (a->path[i] != v)
        i++;
    return i;
}

/* Chooses an edge for every vertex, merging cycles. Returns the number of
 * vertices, given and merged; 0: one cannot be entered. */
static uint32_t grow(tt_arbor *a)
{
    uint32_t n_live = a->n, n_made = a->n;
    for (uint32_t begin = 0; begin < a->n; begin++) {
        uint32_t len = 0;
        uint32_t v = begin;
        while (a->into[v] != TT_NONE)
            v = a->into[v];
        while (a->state[v] != HUNG) {
            if (a->state[v] == ON_PATH) {
                uint32_t first = position(a, v);
                n_live = contract(a, n_live, first, len, n_made);
                len = first;
                v = n_made++;
            }
            a->state[v] = ON_PATH;
            a->path[len++] = v;
            uint32_t from = choose(a, n_live, v);
            if (from == TT_NONE)
                return 0;
            v = a->owner[from];
        }
        for (uint32_t i = 0; i < len; i++)
            a->state[a->path[i]] = HUNG;
    }
    return n_made;
}

bool tt_arbor_find(tt_arbor *a, const double *cost, uint32_t root,
                   uint32_t *parent)
{
    start(a, cost, root);
    uint32_t n = a->n;
    uint32_t n_made = grow(a);
    if (n_made == 0)
        return false;
    /* A merged vertex is entered at one of the given vertices inside it, and
     * with it the part of it in which that vertex lies. */
    for (uint32_t v = n_made; v-- > n;) {
        uint32_t inside = a->enter[v] % n;
        while (a->into[inside] != v)
            inside = a->into[inside];
        a->enter[inside] = a->enter[v];
    }
    for (uint32_t v = 0; v < n; v++)
        parent[v] = v == root ? root : a->enter[v] / n;
    return true;
}

/* path[] serves as the stack of one walk to the root. */
uint32_t tt_arbor_depth(tt_arbor *a, const uint32_t *parent, uint32_t *depth)
{
    uint32_t deepest = 0;
    for (uint32_t v = 0; v < a->n; v++)
        depth[v] = parent[v] == v ? 0 : TT_NONE;
    for (uint32_t v = 0; v < a->n; v++) {
        uint32_t len = 0;
        uint32_t x = v;
        for (; depth[x] == TT_NONE; x = parent[x])
            a->path[len++] = x;
        uint32_t d = depth[x];
        while (len > 0)
            depth[a->path[--len]] = ++d;
        deepest = d > deepest ? d : deepest;
    }
    return deepest;
}

/* Hanging v below a vertex that is nearer to the root than v makes no cycle:
 * nothing below v is nearer than v. */
static bool hang_higher(const tt_arbor *a, const double *cost, double slack,
                        uint32_t v, uint32_t *parent, const uint32_t *depth)
{
    uint32_t best = parent[v];
    double most = cost[(size_t)best * a->n + v] + slack;
    for (uint32_t u = 0; u < a->n; u++) {
        if (depth[u] < depth[best] && cost[(size_t)u * a->n + v] <= most)
            best = u;
    }
    bool is_better = best != parent[v];
    parent[v] = best;
    return is_better;
}

uint32_t tt_arbor_flatten(tt_arbor *a, const double *cost, double slack,
                          uint32_t *parent, uint32_t *depth)
{
    uint32_t deepest = tt_arbor_depth(a, parent, depth);
    bool has_changed = true;
    while (has_changed) {
        has_changed = false;
        for (uint32_t v = 0; v < a->n; v++) {
            if (parent[v] != v &&
                hang_higher(a, cost, slack, v, parent, depth)) {
                has_changed = true;
                deepest = tt_arbor_depth(a, parent, depth);
            }
        }
    }
    return deepest;
}
