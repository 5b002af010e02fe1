/* SPDX-License-Identifier: BSD-3-Clause
 * netlevels.c - the layout of networks of several switches.
 *
 * Levels     Switches that form a tree with one middle stand as that tree, the
 *            middle at the top. Others stand by how far they are from hosts.
 * Order      Depth first from the top, so what belongs together stands
 *            together.
 * Blocks     The hosts of a switch (of several: of the fastest link) stand in a
 *            block below, in rows where they are many: the links then run
 *            along the top of the block and down between its columns. */
#include "export/netlayout.h"

enum {
    LEVEL = 92,     /* from one level to the next */
    GAP = 22,       /* between blocks */
    WIDTH = 1250,   /* what many hosts are fitted into */
    BUS = 30,       /* from the top of a block up to where its links run */
    SAME_LEVEL = 22 /* how high a link within a level bows, at least */
};

typedef struct tree {
    const tutti_topology *t;
    const uint32_t *n_slots;
    tt_net_layout *out;
    uint32_t *queue, *parent, *depth, *level, *owner, *order;
    uint32_t n_order, n_levels;
    int32_t *left,
        *right; /* of what is below a switch; left > right: nothing */
    bool *is_placed;
    bool is_tree;
    double rows_width; /* what a host's room counts in the width of its block */
    int32_t x;         /* where the next block begins */
} tree;

/* --------------------------------------------------------------- levels -- */

/* Breadth first over switches alone: parent and depth. Returns the last one,
 * which is as far away as any. */
static uint32_t spread(tree *w, uint32_t from)
{
    for (uint32_t v = 0; v < w->t->n_nodes; v++)
        w->parent[v] = TT_NONE;
    uint32_t n = 0;
    w->queue[n++] = from;
    w->parent[from] = from;
    w->depth[from] = 0;
    for (uint32_t head = 0; head < n; head++) {
        const uint32_t v = w->queue[head];
        for (uint32_t i = 0; i < tt_n_links_of(w->t, v); i++) {
            const uint32_t to = tt_link_of(w->t, v, i)->to;
            if (!tt_is_switch(w->t, to) || w->parent[to] != TT_NONE)
                continue;
            w->parent[to] = v;
            w->depth[to] = w->depth[v] + 1;
            w->queue[n++] = to;
        }
    }
    return w->queue[n - 1];
}

/* Do all switches hang together, by links between parent and child alone? */
static bool spans(const tree *w)
{
    for (uint32_t v = 0; v < w->t->n_nodes; v++) {
        if (tt_is_switch(w->t, v) && w->parent[v] == TT_NONE)
            return false;
    }
    for (uint32_t i = 0; i < w->t->n_links; i++) {
        const tt_link *l = &w->t->links[i];
        if (tt_is_switch(w->t, l->from) && tt_is_switch(w->t, l->to) &&
            w->parent[l->from] != l->to && w->parent[l->to] != l->from)
            return false;
    }
    return true;
}

/* A tree whose longest way has a middle: levels by how far below they reach. */
static bool level_tree(tree *w, uint32_t first)
{
    uint32_t end = spread(w, spread(w, first));
    if (w->depth[end] % 2 || !spans(w))
        return false;
    uint32_t middle = end;
    for (uint32_t up = w->depth[end] / 2; up > 0; up--)
        middle = w->parent[middle];
    const uint32_t deepest = w->depth[spread(w, middle)];
    for (uint32_t v = 0; v < w->t->n_nodes; v++) {
        if (tt_is_switch(w->t, v))
            w->level[v] = deepest - w->depth[v];
    }
    w->n_levels = deepest + 1;
    return true;
}

/* Others: 0 for those that have hosts, and from there. */
static void level_by_hosts(tree *w)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < w->t->n_nodes; v++) {
        w->level[v] = tt_is_switch(w->t, v) ? TT_NONE : 0;
        w->parent[v] = TT_NONE;
        if (!tt_is_switch(w->t, v))
            w->queue[n++] = v;
    }
    w->n_levels = 1;
    for (uint32_t head = 0; head < n; head++) {
        const uint32_t v = w->queue[head];
        const uint32_t next = tt_is_switch(w->t, v) ? w->level[v] + 1 : 0;
        for (uint32_t i = 0; i < tt_n_links_of(w->t, v); i++) {
            const uint32_t to = tt_link_of(w->t, v, i)->to;
            if (w->level[to] != TT_NONE)
                continue;
            w->level[to] = next;
            w->n_levels = next + 1 > w->n_levels ? next + 1 : w->n_levels;
            w->queue[n++] = to;
        }
    }
    for (uint32_t v = 0; v < w->t->n_nodes; v++)
        w->level[v] = w->level[v] == TT_NONE ? 0 : w->level[v];
}

/* ---------------------------------------------------------------- order -- */

/* The switch and all that first hang from it. The depth is that of levels, each
 * lower than the last: no circle. */
static void visit(tree *w, uint32_t v)
{
    w->is_placed[v] = true;
    w->order[w->n_order++] = v;
    for (uint32_t i = 0; i < tt_n_links_of(w->t, v); i++) {
        const uint32_t to = tt_link_of(w->t, v, i)->to;
        if (tt_is_switch(w->t, to) && !w->is_placed[to] &&
            w->level[to] < w->level[v]) {
            w->parent[to] = v;
            visit(w, to);
        }
    }
}

static void find_order(tree *w)
{
    for (uint32_t level = w->n_levels; level-- > 0;) {
        for (uint32_t v = 0; v < w->t->n_nodes; v++) {
            if (!tt_is_switch(w->t, v) || w->is_placed[v] ||
                w->level[v] != level)
                continue;
            w->parent[v] = TT_NONE;
            visit(w, v);
        }
    }
}

/* The switch that the host's fastest link leads to; hosts behind other hosts
 * stand with the first switch. */
static void find_owner(tree *w, uint32_t host)
{
    uint64_t best = 0;
    w->owner[host] = w->order[0];
    for (uint32_t i = 0; i < tt_n_links_of(w->t, host); i++) {
        const tt_link *l = tt_link_of(w->t, host, i);
        if (tt_is_switch(w->t, l->to) && l->rate_bps > best) {
            best = l->rate_bps;
            w->owner[host] = l->to;
        }
    }
}

/* --------------------------------------------------------------- blocks -- */

static bool is_mine(const tree *w, uint32_t owner, uint32_t v)
{
    return tt_is_whole_host(w->t, v) && w->owner[v] == owner;
}

/* The links of a host in a block of several rows: from the host up between the
 * columns, along the top of the block to its switch. */
static void bend_down(tree *w, uint32_t host, tt_point corner, int32_t top)
{
    for (uint32_t i = 0; i < tt_n_links_of(w->t, host); i++) {
        const uint32_t number = w->t->out[w->t->first_out[host] + i];
        const tt_link *l = &w->t->links[number];
        if (l->to != w->owner[host])
            continue;
        tt_bends *up = &w->out->bends[number];
        up->n = 3;
        up->at[0] = (tt_point){corner.x, w->out->nodes[host].y};
        up->at[1] = (tt_point){corner.x, top};
        up->at[2] = (tt_point){INT32_MIN, top}; /* below the switch: later */
        if (l->twin != TT_NONE)
            w->out->bends[l->twin] =
                (tt_bends){3, {up->at[2], up->at[1], up->at[0]}};
    }
}

static tt_point largest_room(const tree *w, uint32_t owner, uint32_t *n)
{
    tt_point most = {0, 0};
    *n = 0;
    for (uint32_t v = 0; v < w->t->n_nodes; v++) {
        if (!is_mine(w, owner, v))
            continue;
        tt_point room = tt_drawn_room(w->n_slots[v]);
        most.x = room.x > most.x ? room.x : most.x;
        most.y = room.y > most.y ? room.y : most.y;
        ++*n;
    }
    return most;
}

/* Places the hosts of a switch from w->x on. */
static void place_block(tree *w, uint32_t owner)
{
    uint32_t n;
    const tt_point room = largest_room(w, owner, &n);
    if (n == 0)
        return;
    uint32_t columns = (uint32_t)((double)n * w->rows_width + 0.999);
    columns = columns < 2 ? 2 : columns;
    columns = columns > n ? n : columns;
    const int32_t top = (int32_t)w->n_levels * LEVEL;
    uint32_t i = 0;
    for (uint32_t v = 0; v < w->t->n_nodes; v++) {
        if (!is_mine(w, owner, v))
            continue;
        const tt_point corner = {w->x + (int32_t)(i % columns) * room.x,
                                 top + (int32_t)(i / columns) * room.y};
        w->out->nodes[v] = (tt_point){corner.x + room.x / 2, corner.y};
        if (n > columns)
            bend_down(w, v, corner, top - BUS);
        i++;
    }
    w->left[owner] = w->x;
    w->right[owner] = w->x + (int32_t)columns * room.x;
    w->x = w->right[owner] + GAP;
}

static void place_blocks(tree *w)
{
    double width = 0;
    for (uint32_t v = 0; v < w->t->n_nodes; v++)
        width += tt_is_whole_host(w->t, v) ? tt_drawn_room(w->n_slots[v]).x : 0;
    w->rows_width = width > WIDTH ? WIDTH / width : 1;
    for (uint32_t i = 0; i < w->n_order; i++) {
        w->left[w->order[i]] = INT32_MAX;
        w->right[w->order[i]] = INT32_MIN;
        place_block(w, w->order[i]);
    }
}

/* ------------------------------------------------------------- switches -- */

static void take_in(tree *w, uint32_t parent, uint32_t child)
{
    if (w->left[child] < w->left[parent])
        w->left[parent] = w->left[child];
    if (w->right[child] > w->right[parent])
        w->right[parent] = w->right[child];
}

/* No two of these closer than a cell: to the right, in order of place. */
static void push_apart(tree *w, uint32_t n)
{
    tt_point *at = w->out->nodes;
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t v = w->queue[i];
        uint32_t k = i;
        for (; k > 0 && at[w->queue[k - 1]].x > at[v].x; k--)
            w->queue[k] = w->queue[k - 1];
        w->queue[k] = v;
    }
    for (uint32_t i = 1; i < n; i++) {
        const int32_t least = at[w->queue[i - 1]].x + TT_DRAWN_CELL;
        if (at[w->queue[i]].x < least)
            at[w->queue[i]].x = least;
    }
}

/* In a tree over the middle of all below. Elsewhere over the own hosts, and
 * those without spread over the whole width. */
static void place_level(tree *w, uint32_t level, int32_t width)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < w->n_order; k++) {
        if (w->level[w->order[k]] == level)
            w->queue[n++] = w->order[k];
    }
    const int32_t y = (int32_t)(w->n_levels - 1 - level) * LEVEL;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t v = w->queue[i];
        int32_t x = (int32_t)((2 * (int64_t)i + 1) * width / (2 * (int64_t)n));
        if (w->left[v] < w->right[v])
            x = w->left[v] + (w->right[v] - w->left[v]) / 2;
        w->out->nodes[v] = (tt_point){x, y};
        if (w->is_tree && w->parent[v] != TT_NONE)
            take_in(w, w->parent[v], v);
    }
    push_apart(w, n);
}

/* Ends what bend_down() began, and lets links within a level bow upwards, the
 * longer the higher. */
static void bend_links(tree *w)
{
    for (uint32_t i = 0; i < w->t->n_links; i++) {
        const tt_link *l = &w->t->links[i];
        const tt_point from = w->out->nodes[l->from];
        const tt_point to = w->out->nodes[l->to];
        tt_bends *b = &w->out->bends[i];
        const bool is_up = tt_is_switch(w->t, l->to);
        for (uint32_t k = 0; k < b->n; k++) {
            if (b->at[k].x == INT32_MIN)
                b->at[k].x = is_up ? to.x : from.x;
        }
        const int32_t apart = to.x > from.x ? to.x - from.x : from.x - to.x;
        if (b->n == 0 && from.y == to.y && !l->is_memory)
            *b = (tt_bends){
                1, {{(from.x + to.x) / 2, from.y - SAME_LEVEL - apart / 5}}};
    }
}

static void place_all(tree *w)
{
    for (uint32_t v = 0; v < w->t->n_nodes; v++) {
        if (tt_is_whole_host(w->t, v))
            find_owner(w, v);
    }
    place_blocks(w);
    const int32_t width = w->x > GAP ? w->x - GAP
                                     : (int32_t)w->n_order * TT_DRAWN_CELL;
    for (uint32_t level = 0; level < w->n_levels; level++)
        place_level(w, level, width);
    bend_links(w);
}

tutti_err tt_layout_levels(const tutti_topology *t, const uint32_t *n_slots,
                           tt_net_layout *out)
{
    tree w = {.t = t, .n_slots = n_slots, .out = out};
    uint32_t **const lists[] = {&w.queue, &w.parent, &w.depth,
                                &w.level, &w.owner,  &w.order};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        *lists[i] = tt_arena_new(&out->arena, t->n_nodes, 4);
    w.left = tt_arena_new(&out->arena, t->n_nodes, 4);
    w.right = tt_arena_new(&out->arena, t->n_nodes, 4);
    w.is_placed = tt_arena_new(&out->arena, t->n_nodes, sizeof(bool));
    if (out->arena.err)
        return out->arena.err;
    uint32_t first = 0;
    while (!tt_is_switch(t, first))
        first++;
    w.is_tree = level_tree(&w, first);
    if (!w.is_tree)
        level_by_hosts(&w);
    find_order(&w);
    place_all(&w);
    return TUTTI_OK;
}
