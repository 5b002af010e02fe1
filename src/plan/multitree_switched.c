/* SPDX-License-Identifier: BSD-3-Clause
 * multitree_switched.c - trees whose branches are routes through switches.
 *
 * Idea       A rank has few links of its own, so here it is the ranks that
 *            take turns: in its turn a rank looks for one other that holds a
 *            chunk it lacks (a tree to which it does not belong) and to which a
 *            route is free, on any rail. Of the chunks on offer it takes the
 *            one that fewest ranks behind its own switch have, then the one
 *            that fewest have at all. The step ends when nobody finds any.
 *            Chunks that come in a step are on offer from the next on.
 * Ways       whom a rank asks first:
 *            - in step s the rank s + 1 places before it on the ring (all of
 *              them together a shift, which fat trees carry well);
 *            - those with the shortest routes;
 *            - those with the longest routes, but only for what nobody behind
 *              its switch has yet, so that trunks are busy from the first
 *              step; then those with the shortest.
 *            Times the order of turns: as on the ring, each step beginning with
 *            the next; those that lack most first; by rank.
 * Time       n * n looks per step at worst, each at n / 64 words.
 * Next       multitree.c. */
#include "plan/multitree_grow.h"

#include "base/sets.h"
#include "plan/planner.h"

#include <string.h>

/* A rank that gives, as another sees it. */
typedef struct giver {
    uint32_t rank, len; /* links of the route */
} giver;

typedef struct bed {
    tt_grower *g;
    size_t n_words;
    /* Bit t of rank r: it belongs to tree t; joined it in this step. */
    uint64_t *has, *got;
    uint32_t *group;     /* of each rank: those behind the same switch */
    uint32_t *n_behind;  /* [group * n_trees + tree]: members behind it */
    uint64_t *is_behind; /* the same as bits: are there any? */
    uint32_t *n_all;     /* [tree]: members */
    /* [group * n_groups + group]: 1 + the last step in which nothing could go
     * from the first to the second any more, whoever sent it. */
    uint32_t *blocked;
    uint32_t n_groups;
    giver *givers; /* [n * (n - 1)], by length; NULL: way 0 */
    uint32_t *turns, *n_missing;
} bed;

/* What to look for. */
typedef struct wish {
    uint32_t rank;
    bool is_far; /* only what nobody behind the own switch has */
} wish;

/* ---------------------------------------------------------------- chunks -- */

static uint32_t *behind(const bed *a, uint32_t rank, uint32_t tree)
{
    return &a->n_behind[(size_t)a->group[rank] * a->g->n_trees + tree];
}

/* Word i of the trees that the rank would take from the giver. */
static uint64_t offer(const bed *a, wish w, uint32_t from, size_t i)
{
    size_t n = a->n_words, at = w.rank * n + i;
    uint64_t useful = a->has[from * n + i] & ~a->has[at] & ~a->got[at];
    return w.is_far ? useful & ~a->is_behind[a->group[w.rank] * n + i] : useful;
}

static bool has_offer(const bed *a, wish w, uint32_t from)
{
    size_t i = 0;
    while (i < a->n_words && !offer(a, w, from, i))
        i++;
    return i < a->n_words;
}

/* The rarest tree on offer; the giver's own comes first among equals. The one
 * loop that all time is spent in. */
static uint32_t pick_tree(const bed *a, wish w, uint32_t from)
{
    uint32_t own = tt_grow_tree(a->g, from);
    const uint32_t *n_behind = behind(a, w.rank, 0);
    uint32_t best = TT_NONE;
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < a->n_words; i++) {
        for (uint64_t bits = offer(a, w, from, i); bits; bits &= bits - 1) {
            uint32_t tree = (uint32_t)(i * 64) +
                            (uint32_t)__builtin_ctzll(bits);
            uint64_t n = (uint64_t)n_behind[tree] << 32 | a->n_all[tree];
            if (n > least || (n == least && tree != own))
                continue;
            best = tree;
            least = n;
        }
    }
    return best;
}

/* ---------------------------------------------------------------- routes -- */

/* May anything more leave this rank in this step (gives), or come to it? In
 * the trees' direction: what is_in turns round. */
static bool has_room(const tt_grower *g, uint32_t rank, bool gives)
{
    const uint32_t *links;
    uint32_t n_links = tt_grow_links(g, rank, gives, &links);
    for (uint32_t i = 0; i < n_links; i++) {
        if (g->left[links[i]] > 0)
            return true;
    }
    return false;
}

/* The first link of this route that is full; len: none. */
static uint32_t find_full(const tt_grower *g, uint32_t len)
{
    uint32_t i = 0;
    while (i < len && g->left[g->route[i]] > 0)
        i++;
    return i;
}

/* Takes a free route from the giver to the rank. What is full between their
 * switches, on all rails, is full for all their neighbours too. */
static bool take_route(bed *a, uint32_t from, uint32_t rank, uint8_t *rail)
{
    tt_grower *g = a->g;
    uint32_t *blocked =
        &a->blocked[(size_t)a->group[from] * a->n_groups + a->group[rank]];
    if (*blocked == g->out->n_steps + 1)
        return false;
    uint32_t n_rails = 1;
    bool is_between = true;
    for (uint32_t i = 0; i < n_rails; i++) {
        uint32_t len = tt_grow_route(g, from, rank, (uint8_t)i);
        if (len == 0) /* there is none */
            return false;
        uint32_t full = find_full(g, len);
        is_between = is_between && full > 0 && full + 1 < len;
        if (i == 0 && full < len)
            n_rails = tt_grow_rails(g, from, rank);
        if (full < len)
            continue;
        for (uint32_t j = 0; j < len; j++)
            g->left[g->route[j]]--;
        *rail = (uint8_t)i;
        return true;
    }
    if (is_between)
        *blocked = g->out->n_steps + 1;
    return false;
}

static void join(bed *a, uint32_t tree, uint32_t rank)
{
    tt_set_add(a->got + rank * a->n_words, tree);
    a->n_all[tree]++;
    a->n_missing[rank]--;
    (*behind(a, rank, tree))++;
    tt_set_add(a->is_behind + a->group[rank] * a->n_words, tree);
}

static bool take_from(bed *a, wish w, uint32_t from)
{
    tt_grower *g = a->g;
    uint8_t rail;
    if (!has_room(g, from, true) || !has_offer(a, w, from) ||
        !take_route(a, from, w.rank, &rail))
        return false;
    uint32_t tree = pick_tree(a, w, from);
    join(a, tree, w.rank);
    tt_grow_add(g, (tt_branch){.tree = tt_grow_root(g, tree),
                               .parent = from,
                               .child = w.rank,
                               .step = g->out->n_steps,
                               .rail = rail});
    return true;
}

/* ----------------------------------------------------------------- turns -- */

static bool ask_shift(bed *a, wish w)
{
    const tt_grower *g = a->g;
    uint32_t first = g->out->n_steps;
    for (uint32_t i = 0; i + 1 < g->n; i++) {
        uint32_t back = 1 + (first + i) % (g->n - 1);
        uint32_t place = tt_rank_sub(g->place[w.rank], back, g->n);
        if (take_from(a, w, g->at[place]))
            return true;
    }
    return false;
}

/* Those as far away as list[begin] take turns in being first. */
static bool ask_equals(bed *a, wish w, const giver *list, uint32_t n)
{
    uint32_t first = a->g->out->n_steps % n;
    for (uint32_t i = 0; i < n; i++) {
        if (take_from(a, w, list[(first + i) % n].rank))
            return true;
    }
    return false;
}

static bool ask_near(bed *a, wish w)
{
    uint32_t n = a->g->n - 1;
    const giver *list = a->givers + (size_t)w.rank * n;
    for (uint32_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && list[j].len == list[i].len;)
            j++;
        if (ask_equals(a, w, list + i, j - i))
            return true;
    }
    return false;
}

static bool ask_far(bed *a, wish w)
{
    uint32_t n = a->g->n - 1;
    const giver *list = a->givers + (size_t)w.rank * n;
    for (uint32_t j = n, i; j > 0; j = i) {
        for (i = j - 1; i > 0 && list[i - 1].len == list[j - 1].len;)
            i--;
        if (ask_equals(a, w, list + i, j - i))
            return true;
    }
    return false;
}

static bool take_turn(bed *a, wish w)
{
    if (a->n_missing[w.rank] == 0 || !has_room(a->g, w.rank, false))
        return false;
    if (a->g->way % 3 == 0)
        return ask_shift(a, w);
    return w.is_far ? ask_far(a, w) : ask_near(a, w);
}

/* Those that lack most first; of equal ones as they stand. They differ little,
 * so little is moved. */
static void sort_by_need(const bed *a)
{
    uint32_t *turns = a->turns;
    for (uint32_t i = 1; i < a->g->n; i++) {
        uint32_t rank = turns[i], j = i;
        for (; j > 0 && a->n_missing[turns[j - 1]] < a->n_missing[rank]; j--)
            turns[j] = turns[j - 1];
        turns[j] = rank;
    }
}

/* All ranks in turn, again and again until nobody finds anything. */
static void take_turns(bed *a, bool is_far)
{
    const tt_grower *g = a->g;
    uint32_t n_turns = g->n, step = g->out->n_steps;
    for (uint32_t i = 0; i < g->n; i++)
        a->turns[i] = g->way / 3 == 2 ? i : g->at[(i + step) % g->n];
    if (g->way / 3 == 1)
        sort_by_need(a);
    while (n_turns > 0) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_turns; i++) {
            if (take_turn(a, (wish){a->turns[i], is_far}))
                a->turns[n++] = a->turns[i];
        }
        n_turns = n;
    }
}

void tt_grow_switched_step(void *ctx)
{
    bed *a = ctx;
    const tt_grower *g = a->g;
    if (g->way % 3 == 2)
        take_turns(a, true);
    take_turns(a, false);
    for (size_t i = 0; i < g->n * a->n_words; i++) {
        a->has[i] |= a->got[i];
        a->got[i] = 0;
    }
}

/* ----------------------------------------------------------------- start -- */

static uint32_t switch_of(const tutti_topology *t, uint32_t rank)
{
    uint32_t v = t->rank_node[rank];
    for (uint32_t i = t->first_out[v]; i < t->first_out[v + 1]; i++) {
        uint32_t to = t->links[t->out[i]].to;
        if (t->nodes[to].rank == TT_NONE)
            return to;
    }
    return v;
}

static tutti_err find_groups(bed *a)
{
    tt_grower *g = a->g;
    uint32_t *number = tt_arena_new(g->arena, g->t->n_nodes, sizeof(*number));
    uint32_t n_groups = 0;
    if (!number)
        return TUTTI_ENOMEM;
    memset(number, 0xff, g->t->n_nodes * sizeof(*number));
    for (uint32_t r = 0; r < g->n; r++) {
        uint32_t v = switch_of(g->t, r);
        if (number[v] == TT_NONE)
            number[v] = n_groups++;
        a->group[r] = number[v];
    }
    a->n_behind = tt_arena_new(g->arena, (size_t)n_groups * g->n_trees,
                               sizeof(*a->n_behind));
    a->n_groups = n_groups;
    a->blocked = tt_arena_new(g->arena, (size_t)n_groups * n_groups,
                              sizeof(*a->blocked));
    a->is_behind = tt_arena_new(g->arena, n_groups * a->n_words,
                                sizeof(*a->is_behind));
    return g->arena->err;
}

/* Shortest route first; of equal ones as they sit before it on the ring: a
 * counting sort by length. */
static tutti_err find_givers(bed *a)
{
    tt_grower *g = a->g;
    size_t n = g->n, n_most = (size_t)tt_routes_max_links(g->routes) + 2;
    a->givers = tt_arena_new(g->arena, n * (n - 1), sizeof(*a->givers));
    uint32_t *first = tt_arena_new(g->arena, n_most, sizeof(*first));
    giver *list = tt_arena_new(g->arena, n - 1, sizeof(*list));
    if (g->arena->err)
        return TUTTI_ENOMEM;
    for (uint32_t r = 0; r < g->n; r++) {
        memset(first, 0, n_most * sizeof(*first));
        for (uint32_t i = 0; i + 1 < g->n; i++) {
            uint32_t place = tt_rank_sub(g->place[r], i + 1, g->n);
            list[i].rank = g->at[place];
            list[i].len = tt_grow_route(g, list[i].rank, r, 0);
            first[list[i].len + 1]++;
        }
        for (size_t len = 1; len < n_most; len++)
            first[len] += first[len - 1];
        for (uint32_t i = 0; i + 1 < g->n; i++)
            a->givers[r * (n - 1) + first[list[i].len]++] = list[i];
    }
    return TUTTI_OK;
}

static tutti_err prepare(bed *a)
{
    tt_grower *g = a->g;
    a->n_words = ((size_t)g->n_trees + 63) / 64;
    a->has = tt_arena_new(g->arena, g->n * a->n_words, sizeof(*a->has));
    a->got = tt_arena_new(g->arena, g->n * a->n_words, sizeof(*a->got));
    a->group = tt_arena_new(g->arena, g->n, sizeof(*a->group));
    a->n_all = tt_arena_new(g->arena, g->n_trees, sizeof(*a->n_all));
    a->turns = tt_arena_new(g->arena, g->n, sizeof(*a->turns));
    a->n_missing = tt_arena_new(g->arena, g->n, sizeof(*a->n_missing));
    if (g->arena->err || find_groups(a))
        return TUTTI_ENOMEM;
    for (uint32_t r = 0; r < g->n; r++)
        a->n_missing[r] = g->n_trees;
    for (uint32_t i = 0; i < g->n_trees; i++) {
        uint32_t root = tt_grow_root(g, i);
        join(a, i, root);
        tt_set_add(a->has + root * a->n_words, i);
    }
    return g->way % 3 == 0 ? TUTTI_OK : find_givers(a);
}

void *tt_grow_switched_begin(tt_grower *g)
{
    bed *a = tt_arena_new(g->arena, 1, sizeof(*a));
    if (!a)
        return NULL;
    a->g = g;
    return prepare(a) ? NULL : a;
}
