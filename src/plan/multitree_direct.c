/* SPDX-License-Identifier: BSD-3-Clause
 * multitree_direct.c - trees whose branches are single links between ranks.
 *
 * Idea       MultiTree's construction. Each step begins with all links free.
 *            The trees take turns; in its turn a tree adds one rank: its
 *            members of earlier steps are asked in the order in which they
 *            joined, and the first that has a free link to a rank outside the
 *            tree takes it along. The step ends when no tree can add any. (The
 *            authors' program ends it when the last tree of a round cannot,
 *            which costs two steps of ten on a 4x4 mesh.)
 * Invariant  Whoever joins in a step is no parent before the next: the chunk
 *            must have arrived.
 * Time       Within a step links only get busier and trees larger, so a member
 *            that could not help once is not asked again: a cursor. Members
 *            whose neighbours all belong to the tree are dropped for ever.
 *            Then a step costs little more than what it adds.
 * Ways       in which order trees take turns: the smallest first, by root, as
 *            the roots sit on the ring; times which neighbour a member tries
 *            first: always the same, another in each tree, another in each
 *            tree and step, another after each rank that joins. Each of them
 *            is the best somewhere.
 * Next       multitree_switched.c. */
#include "plan/multitree_grow.h"

#include "base/sets.h"

#include <string.h>

typedef struct hop {
    uint32_t child, link;
    uint8_t rail;
} hop;

/* The hops of rank r are list[first[r]] .. list[first[r + 1] - 1]. */
typedef struct hops {
    uint32_t *first;
    hop *list;
} hops;

typedef struct sapling {
    uint32_t *live; /* members with a neighbour outside, as they joined */
    uint64_t *members;
    uint32_t n_live, n_parents, cursor;
    uint32_t size;
} sapling;

typedef struct garden {
    tt_grower *g;
    hops h;
    sapling *saplings;
    uint32_t *turns; /* trees that may still add something in this step */
    uint32_t *spare;
} garden;

/* ------------------------------------------------------------------ hops -- */

/* The rail on which the route between these neighbours is just this link. It
 * is nearly always the first; counting the others takes longer. */
static bool find_rail(const tt_grower *g, uint32_t parent, uint32_t child,
                      uint32_t link, uint8_t *rail)
{
    uint32_t n_rails = 1;
    for (uint32_t i = 0; i < n_rails; i++) {
        uint32_t len = tt_grow_route(g, parent, child, (uint8_t)i);
        if (len == 1 && g->route[0] == link) {
            *rail = (uint8_t)i;
            return true;
        }
        if (i == 0)
            n_rails = tt_grow_rails(g, parent, child);
    }
    return false;
}

static tutti_err find_hops(const tt_grower *g, hops *h)
{
    const tutti_topology *t = g->t;
    uint32_t n = 0;
    h->first = tt_arena_new(g->arena, (size_t)g->n + 1, sizeof(*h->first));
    h->list = tt_arena_new(g->arena, t->n_links, sizeof(*h->list));
    if (g->arena->err)
        return TUTTI_ENOMEM;
    for (uint32_t r = 0; r < g->n; r++) {
        const uint32_t *links;
        uint32_t n_links = tt_grow_links(g, r, true, &links);
        for (uint32_t i = 0; i < n_links; i++) {
            const tt_link *l = &t->links[links[i]];
            hop x = {.link = links[i]};
            x.child = t->nodes[g->task->is_in ? l->from : l->to].rank;
            if (x.child != TT_NONE && find_rail(g, r, x.child, x.link, &x.rail))
                h->list[n++] = x;
        }
        h->first[r + 1] = n;
    }
    return TUTTI_OK;
}

/* Do the hops lead from rank 0 to all others? */
static tutti_err reaches_all(const tt_grower *g, bool *out)
{
    hops h;
    tutti_err err = find_hops(g, &h);
    uint32_t *queue = tt_arena_new(g->arena, g->n, sizeof(*queue));
    bool *is_seen = tt_arena_new(g->arena, g->n, sizeof(*is_seen));
    if (err || g->arena->err)
        return TUTTI_ENOMEM;
    uint32_t n = 1;
    is_seen[0] = true;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = queue[i];
        for (uint32_t j = h.first[r]; j < h.first[r + 1]; j++) {
            uint32_t child = h.list[j].child;
            if (!is_seen[child])
                queue[n++] = child;
            is_seen[child] = true;
        }
    }
    *out = n == g->n;
    return TUTTI_OK;
}

bool tt_grow_is_direct(tt_grower *g, tutti_err *err)
{
    const tt_grow_task *task = g->task;
    bool is_direct = true;
    *err = TUTTI_OK;
    for (int is_in = 0; is_in <= 1 && is_direct && !*err; is_in++) {
        tt_grow_task there = *task;
        there.is_in = is_in;
        g->task = &there;
        *err = reaches_all(g, &is_direct);
    }
    g->task = task;
    return is_direct;
}

/* --------------------------------------------------------------- growing -- */

static void join(sapling *s, uint32_t rank)
{
    tt_set_add(s->members, rank);
    s->live[s->n_live++] = rank;
    s->size++;
}

/* Drops members with nobody left to take along. */
static void begin_step(const garden *a, sapling *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_live; i++) {
        uint32_t r = s->live[i];
        uint32_t j = a->h.first[r];
        while (j < a->h.first[r + 1] &&
               tt_set_has(s->members, a->h.list[j].child))
            j++;
        if (j < a->h.first[r + 1])
            s->live[n++] = r;
    }
    s->n_live = n;
    s->n_parents = n;
    s->cursor = 0;
}

/* Which of a member's hops is tried first. */
static uint32_t first_hop(const tt_grower *g, uint32_t tree, uint32_t size)
{
    switch (g->way / 3) {
    case 0:
        return 0;
    case 1:
        return tree;
    case 2:
        return tree + g->out->n_steps;
    default:
        return size;
    }
}

/* Adds a rank to the tree; false: it cannot in this step. */
static bool take_turn(garden *a, uint32_t tree)
{
    tt_grower *g = a->g;
    sapling *s = &a->saplings[tree];
    for (; s->cursor < s->n_parents; s->cursor++) {
        uint32_t parent = s->live[s->cursor];
        uint32_t n_hops = a->h.first[parent + 1] - a->h.first[parent];
        uint32_t first = first_hop(g, tree, s->size);
        for (uint32_t j = 0; j < n_hops; j++) {
            const hop *x =
                &a->h.list[a->h.first[parent] + (first + j) % n_hops];
            if (g->left[x->link] == 0 || tt_set_has(s->members, x->child))
                continue;
            g->left[x->link]--;
            join(s, x->child);
            tt_grow_add(g, (tt_branch){.tree = tt_grow_root(g, tree),
                                       .parent = parent,
                                       .child = x->child,
                                       .step = g->out->n_steps,
                                       .rail = x->rail});
            return true;
        }
    }
    return false;
}

/* Smallest first; of equal ones the lowest number: a counting sort. */
static void sort_by_size(const garden *a, uint32_t n_turns)
{
    uint32_t *first = a->spare, *sorted = a->spare + a->g->n + 2;
    memset(first, 0, ((size_t)a->g->n + 2) * sizeof(*first));
    for (uint32_t i = 0; i < n_turns; i++)
        first[a->saplings[a->turns[i]].size + 1]++;
    for (uint32_t size = 0; size <= a->g->n; size++)
        first[size + 1] += first[size];
    for (uint32_t i = 0; i < n_turns; i++)
        sorted[first[a->saplings[a->turns[i]].size]++] = a->turns[i];
    memcpy(a->turns, sorted, n_turns * sizeof(*sorted));
}

/* The trees that are not complete, in their order; returns how many. */
static uint32_t line_up(garden *a)
{
    tt_grower *g = a->g;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_trees; i++) {
        bool is_by_place = g->way % 3 == 2 && g->n_trees > 1;
        uint32_t tree = is_by_place ? g->at[i] : i;
        if (a->saplings[tree].size == g->n)
            continue;
        begin_step(a, &a->saplings[tree]);
        a->turns[n++] = tree;
    }
    if (g->way % 3 == 0)
        sort_by_size(a, n);
    return n;
}

void tt_grow_direct_step(void *ctx)
{
    garden *a = ctx;
    uint32_t n_turns = line_up(a);
    while (n_turns > 0) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_turns; i++) {
            if (take_turn(a, a->turns[i]))
                a->turns[n++] = a->turns[i];
        }
        n_turns = n;
    }
}

static tutti_err plant(garden *a)
{
    tt_grower *g = a->g;
    size_t n_words = ((size_t)g->n + 63) / 64;
    a->saplings = tt_arena_new(g->arena, g->n_trees, sizeof(*a->saplings));
    a->turns = tt_arena_new(g->arena, g->n_trees, sizeof(*a->turns));
    a->spare = tt_arena_new(g->arena, (size_t)g->n + 2 + g->n_trees,
                            sizeof(*a->spare));
    uint64_t *bits = tt_arena_new(g->arena, n_words * g->n_trees, 8);
    uint32_t *live = tt_arena_new(g->arena, (size_t)g->n * g->n_trees, 4);
    if (g->arena->err)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < g->n_trees; i++) {
        sapling *s = &a->saplings[i];
        s->live = live + (size_t)i * g->n;
        s->members = bits + (size_t)i * n_words;
        join(s, tt_grow_root(g, i));
    }
    return find_hops(g, &a->h);
}

void *tt_grow_direct_begin(tt_grower *g)
{
    garden *a = tt_arena_new(g->arena, 1, sizeof(*a));
    if (!a)
        return NULL;
    a->g = g;
    return plant(a) ? NULL : a;
}
