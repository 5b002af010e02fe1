/* SPDX-License-Identifier: BSD-3-Clause
 * hierarchy.c - a tree over the ranks, made from a rough one.
 *
 * Idea       Whoever looks at the network (hierarchy_tree.c,
 *            hierarchy_cluster.c, and the grids here) hands over a rough tree
 *            in which a node may have one kid, no rank below, or a rank and
 *            kids. Here the ranks below each node are counted; nodes without
 *            any are dropped; a node with one kid gives way to it, and the
 *            kid's uplink is the slower of the two; a rank with kids becomes a
 *            kid of its own node, with an uplink that limits nothing.
 * Invariant  Nodes are numbered breadth first: kids follow each other, and
 *            come after their parent. A loop from the last node to the first
 *            is the walk from the leaves to the root, without recursion,
 *            however deep a chain somebody has wired.
 * Cost       O(nodes).
 * Picture    boxes:2+1 with a switch between, rough and as it becomes:
 *
 *                  switch                    *
 *                 /      \                  / \
 *               hub0     hub1      ->      *   c
 *               /  \       |              / \
 *              a    b      c             a   b
 * Next       hierarchy_tree.c, hierarchy_cluster.c, then flexreduce.c and
 *            blueconnect.c. */
#include "plan/hierarchy.h"

/* ------------------------------------------------------- the rough tree -- */

/* Kids of v: kid[first[v]] .. kid[first[v + 1] - 1], ascending. */
typedef struct kids {
    uint32_t *first, *kid;
    uint32_t *n_ranks; /* below v and at v */
    uint32_t *order;   /* parents first */
    uint32_t root;
} kids;

static uint32_t *words(tt_arena *arena, size_t n)
{
    return tt_arena_new(arena, n, sizeof(uint32_t));
}

static void list_kids(const tt_rough *rough, kids *k)
{
    for (uint32_t v = 0; v < rough->n_nodes; v++) {
        if (rough->nodes[v].parent == TT_NONE)
            k->root = v;
        else
            k->first[rough->nodes[v].parent + 1]++;
    }
    for (uint32_t v = 0; v < rough->n_nodes; v++)
        k->first[v + 1] += k->first[v];
    /* From the last to the first: each list is filled from its end. */
    uint32_t *end = k->order;
    for (uint32_t v = 0; v < rough->n_nodes; v++)
        end[v] = k->first[v + 1];
    for (uint32_t v = rough->n_nodes; v-- > 0;) {
        uint32_t parent = rough->nodes[v].parent;
        if (parent != TT_NONE)
            k->kid[--end[parent]] = v;
    }
}

static void count_ranks(const tt_rough *rough, kids *k)
{
    uint32_t n = 1;
    k->order[0] = k->root;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = k->order[i];
        for (uint32_t j = k->first[v]; j < k->first[v + 1]; j++)
            k->order[n++] = k->kid[j];
    }
    while (n-- > 0) {
        uint32_t v = k->order[n];
        k->n_ranks[v] += rough->nodes[v].rank != TT_NONE;
        if (v != k->root)
            k->n_ranks[rough->nodes[v].parent] += k->n_ranks[v];
    }
}

static tutti_err survey(const tt_rough *rough, tt_arena *arena, kids *k)
{
    k->first = words(arena, (size_t)rough->n_nodes + 2);
    k->kid = words(arena, rough->n_nodes);
    k->n_ranks = words(arena, rough->n_nodes);
    k->order = words(arena, rough->n_nodes);
    if (arena->err)
        return arena->err;
    list_kids(rough, k);
    count_ranks(rough, k);
    return TUTTI_OK;
}

/* ----------------------------------------------------------- the result -- */

typedef struct maker {
    const tt_rough *rough;
    kids kids;
    tt_hierarchy *h;
    uint32_t *from; /* rough node of each new one; TT_NONE: a rank's own leaf */
} maker;

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The only kid of v that has ranks below, when v is nothing but a way to it;
 * TT_NONE: it is more. */
static uint32_t way_to(const maker *m, uint32_t v)
{
    uint32_t only = TT_NONE;
    if (m->rough->nodes[v].rank != TT_NONE)
        return TT_NONE;
    for (uint32_t j = m->kids.first[v]; j < m->kids.first[v + 1]; j++) {
        uint32_t kid = m->kids.kid[j];
        if (m->kids.n_ranks[kid] == 0)
            continue;
        if (only != TT_NONE)
            return TT_NONE;
        only = kid;
    }
    return only;
}

/* Adds rough node v, or what it is the way to. */
static void add(maker *m, uint32_t parent, uint32_t v)
{
    uint64_t out_bps = m->rough->nodes[v].out_bps;
    uint64_t in_bps = m->rough->nodes[v].in_bps;
    for (uint32_t next = way_to(m, v); next != TT_NONE; next = way_to(m, v)) {
        v = next;
        out_bps = lesser(out_bps, m->rough->nodes[v].out_bps);
        in_bps = lesser(in_bps, m->rough->nodes[v].in_bps);
    }
    bool is_root = parent == TT_NONE;
    m->from[m->h->n_nodes] = v;
    m->h->nodes[m->h->n_nodes++] = (tt_hier_node){
        .parent = parent,
        .rank = TT_NONE,
        .out_bps = is_root ? 0 : out_bps,
        .in_bps = is_root ? 0 : in_bps,
    };
}

static void add_own_leaf(maker *m, uint32_t parent, uint32_t rank)
{
    m->from[m->h->n_nodes] = TT_NONE;
    m->h->nodes[m->h->n_nodes++] = (tt_hier_node){
        .parent = parent,
        .rank = rank,
        .out_bps = TT_HIER_UNLIMITED,
        .in_bps = TT_HIER_UNLIMITED,
    };
}

/* The kids of new node `at`, behind all nodes that are there. */
static void expand(maker *m, uint32_t at)
{
    uint32_t v = m->from[at];
    if (v == TT_NONE)
        return;
    uint32_t rank = m->rough->nodes[v].rank;
    if (m->kids.n_ranks[v] == 1) {
        m->h->nodes[at].rank = rank;
        return;
    }
    m->h->nodes[at].first_kid = m->h->n_nodes;
    if (rank != TT_NONE)
        add_own_leaf(m, at, rank);
    for (uint32_t j = m->kids.first[v]; j < m->kids.first[v + 1]; j++) {
        if (m->kids.n_ranks[m->kids.kid[j]] > 0)
            add(m, at, m->kids.kid[j]);
    }
    m->h->nodes[at].n_kids = m->h->n_nodes - m->h->nodes[at].first_kid;
}

static void count_up(tt_hierarchy *h)
{
    for (uint32_t v = h->n_nodes; v-- > 0;) {
        tt_hier_node *node = &h->nodes[v];
        if (node->n_kids == 0)
            node->n_ranks = 1;
        if (v == 0)
            return;
        tt_hier_node *parent = &h->nodes[node->parent];
        parent->n_ranks += node->n_ranks;
        if (parent->height <= node->height)
            parent->height = node->height + 1;
    }
}

static void give_places(tt_hierarchy *h)
{
    for (uint32_t v = 0; v < h->n_nodes; v++) {
        uint32_t place = h->nodes[v].first_place;
        for (uint32_t i = 0; i < h->nodes[v].n_kids; i++) {
            tt_hier_node *kid = &h->nodes[h->nodes[v].first_kid + i];
            kid->first_place = place;
            place += kid->n_ranks;
        }
        if (h->nodes[v].n_kids > 0)
            continue;
        h->rank_at[place] = h->nodes[v].rank;
        h->leaf_at[place] = v;
        h->place_of[h->nodes[v].rank] = place;
    }
}

tutti_err tt_hierarchy_make(const tt_rough *rough, tt_arena *arena,
                            tt_hierarchy *out)
{
    tt_hierarchy h = {.n_ranks = rough->n_ranks};
    maker m = {.rough = rough, .h = &h};
    size_t most = 2 * (size_t)rough->n_ranks; /* every inner node branches */
    h.nodes = tt_arena_new(arena, most, sizeof(*h.nodes));
    h.rank_at = words(arena, h.n_ranks);
    h.leaf_at = words(arena, h.n_ranks);
    h.place_of = words(arena, h.n_ranks);
    m.from = words(arena, most);
    if (survey(rough, arena, &m.kids))
        return TUTTI_ENOMEM;
    add(&m, TT_NONE, m.kids.root);
    for (uint32_t at = 0; at < h.n_nodes; at++)
        expand(&m, at);
    count_up(&h);
    give_places(&h);
    *out = h;
    return TUTTI_OK;
}

/* --------------------------------------------------------------- grids -- */

/* The leaves are the rough nodes 0 .. n - 1; then come the groups of ranks
 * that agree in all but the last coordinate, and so on up to the root. */
typedef struct levels {
    uint32_t n;
    uint32_t first[TT_MAX_DIMS + 1], size[TT_MAX_DIMS + 1];
} levels;

static levels grid_levels(const tutti_topology *t, uint32_t *n_rough)
{
    levels l = {.n = t->grid.n_dims + 1};
    uint32_t size = 1;
    uint32_t first = 0;
    for (uint32_t i = 0; i < l.n; i++) {
        l.first[i] = first;
        l.size[i] = size;
        first += t->n_nodes / size;
        if (i + 1 < l.n)
            size *= t->grid.dims[t->grid.n_dims - 1 - i];
    }
    *n_rough = first;
    return l;
}

static void add_rate(const levels *l, const tt_link *link, tt_rough *rough)
{
    for (uint32_t i = 0; link->from / l->size[i] != link->to / l->size[i];
         i++) {
        uint32_t from = l->first[i] + link->from / l->size[i];
        uint32_t to = l->first[i] + link->to / l->size[i];
        rough->nodes[from].out_bps += link->rate_bps;
        rough->nodes[to].in_bps += link->rate_bps;
    }
}

static tutti_err rough_grid(const tutti_topology *t, tt_arena *arena,
                            tt_rough *rough)
{
    levels l = grid_levels(t, &rough->n_nodes);
    rough->n_ranks = t->n_ranks;
    rough->nodes = tt_arena_new(arena, rough->n_nodes, sizeof(*rough->nodes));
    if (!rough->nodes)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < l.n; i++) {
        for (uint32_t g = 0; g < t->n_nodes / l.size[i]; g++) {
            tt_rough_node *node = &rough->nodes[l.first[i] + g];
            node->rank = i == 0 ? t->nodes[g].rank : TT_NONE;
            node->parent = TT_NONE;
            if (i + 1 < l.n)
                node->parent = l.first[i + 1] + g / (l.size[i + 1] / l.size[i]);
        }
    }
    for (uint32_t e = 0; e < t->n_links; e++)
        add_rate(&l, &t->links[e], rough);
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- any -- */

tutti_err tt_hierarchy_find(const tutti_topology *t, tt_arena *arena,
                            tt_hierarchy *out)
{
    tt_rough rough = {0};
    bool is_grid = t->grid.n_dims > 0;
    bool is_found = is_grid;
    tutti_err err = is_grid ? rough_grid(t, arena, &rough)
                            : tt_rough_tree(t, arena, &rough, &is_found);
    if (!err && !is_found)
        err = tt_rough_cluster(t, arena, &rough);
    if (!err)
        err = tt_hierarchy_make(&rough, arena, out);
    if (!err)
        out->is_grid = is_grid;
    return err;
}

uint32_t tt_hierarchy_dims(const tt_hierarchy *h,
                           uint32_t dims[TT_HIER_MAX_DIMS])
{
    uint32_t n_dims = h->nodes[0].height;
    if (n_dims > TT_HIER_MAX_DIMS)
        return 0;
    for (uint32_t i = 0; i < n_dims; i++)
        dims[i] = 0;
    for (uint32_t v = 0; v < h->n_nodes; v++) {
        const tt_hier_node *node = &h->nodes[v];
        if (v > 0 && h->nodes[node->parent].height != node->height + 1)
            return 0;
        if (node->height == 0)
            continue;
        uint32_t *dim = &dims[node->height - 1];
        if (*dim != 0 && *dim != node->n_kids)
            return 0;
        *dim = node->n_kids;
    }
    return n_dims;
}
