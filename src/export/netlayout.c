/* SPDX-License-Identifier: BSD-3-Clause
 * netlayout.c - hosts on a grid or around a circle, slots within their
 * hosts. */
#include "export/netlayout.h"

#include <math.h>

static const double full_turn = 6.283185307179586;

enum {
    GRID_STEP = 64,   /* between neighbours */
    GRID_DEPTH = 26,  /* between planes of the third dimension, aslant */
    LANE = 27,        /* from a row of nodes to where its wraps run */
    MARGIN = 36,      /* around everything */
    LEAST_RADIUS = 96 /* of a circle */
};

static tt_point plus(tt_point a, int32_t x, int32_t y)
{
    return (tt_point){a.x + x, a.y + y};
}

/* --------------------------------------------------------------- circle -- */

/* All hosts around the middle, from the top, clockwise; two side by side. What
 * else there is, a switch, stands in the middle. */
static void place_circle(const tutti_topology *t, const uint32_t *n_slots,
                         tt_net_layout *out)
{
    double around = 0, largest = 0;
    uint32_t n = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        if (!tt_is_whole_host(t, v))
            continue;
        tt_point room = tt_drawn_room(n_slots[v]);
        around += room.x;
        largest = fmax(largest, fmax(room.x, room.y));
        n++;
    }
    double radius = fmax(around / full_turn, LEAST_RADIUS);
    radius = n < t->n_nodes || n > 1 ? fmax(radius, largest) : 0;
    double angle = n == 2 ? -full_turn / 2 : -full_turn / 4;
    double before = -1;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        if (!tt_is_whole_host(t, v))
            continue;
        double half = tt_drawn_room(n_slots[v]).x / around * full_turn / 2;
        if (before >= 0)
            angle += before + half;
        before = half;
        out->nodes[v] = (tt_point){(int32_t)lround(radius * cos(angle)),
                                   (int32_t)lround(radius * sin(angle))};
    }
}

/* ----------------------------------------------------------------- grid -- */

/* The last dimension goes to the right, the one before down, the one before
 * that aslant; the next two begin again, with all that as one cell. */
static tt_point grid_place(const tt_grid *g, const uint32_t *at)
{
    tt_point p = {0, 0};
    uint32_t d = g->n_dims;
    const int32_t deep = d >= 3 ? (int32_t)g->dims[d - 3] : 1;
    const int32_t step = GRID_STEP + (deep - 1) * GRID_DEPTH;
    int32_t wide = step, high = step;
    for (uint32_t k = 0; k < d; k++) {
        const int32_t i = (int32_t)at[d - 1 - k];
        const int32_t n = (int32_t)g->dims[d - 1 - k];
        if (k == 2) {
            p = plus(p, i * GRID_DEPTH, -i * GRID_DEPTH);
        } else if (k == 0 || (k > 2 && k % 2)) {
            p.x += i * wide;
            wide = n * wide + GRID_STEP / 2;
        } else {
            p.y += i * high;
            high = n * high + GRID_STEP / 2;
        }
    }
    return p;
}

/* A wrap of a flat grid runs beside its row or column and around the ends. */
static void bend_wrap(tt_bends *b, tt_point from, tt_point to)
{
    b->n = 4;
    if (from.y == to.y) {
        const int32_t out = from.x > to.x ? LANE : -LANE;
        b->at[0] = plus(from, out, 0);
        b->at[1] = plus(from, out, LANE);
        b->at[2] = plus(to, -out, LANE);
        b->at[3] = plus(to, -out, 0);
    } else {
        const int32_t out = from.y > to.y ? LANE : -LANE;
        b->at[0] = plus(from, 0, out);
        b->at[1] = plus(from, LANE, out);
        b->at[2] = plus(to, LANE, -out);
        b->at[3] = plus(to, 0, -out);
    }
}

/* In a grid of three dimensions and more a wrap is a curve beside its row. */
static void bend_aslant(tt_bends *b, tt_point from, tt_point to)
{
    const int32_t x = to.x - from.x, y = to.y - from.y;
    const double length = sqrt((double)x * x + (double)y * y);
    const double side = length > 0 ? (40 + length / 10) / length : 0;
    b->n = 1;
    b->at[0] = (tt_point){(from.x + to.x) / 2 + (int32_t)lround(-y * side),
                          (from.y + to.y) / 2 + (int32_t)lround(x * side)};
}

/* Do the two differ by more than one step, in the one coordinate in which they
 * differ? By the numbers: a neighbour in dimension d is so far away. */
static bool is_wrap(const tt_grid *g, uint32_t a, uint32_t b)
{
    const uint32_t apart = a > b ? a - b : b - a;
    uint32_t stride = 1;
    for (uint32_t k = 0; k < g->n_dims; k++) {
        const uint32_t n = g->dims[g->n_dims - 1 - k];
        if (apart == stride && a / (stride * n) == b / (stride * n))
            return false;
        stride *= n;
    }
    return true;
}

static void place_grid(const tutti_topology *t, tt_net_layout *out)
{
    const tt_grid *g = &t->grid;
    uint32_t at[TT_MAX_DIMS] = {0};
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        out->nodes[v] = grid_place(g, at);
        for (uint32_t k = g->n_dims; k-- > 0;) {
            if (++at[k] < g->dims[k])
                break;
            at[k] = 0;
        }
    }
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[i];
        if (!is_wrap(g, l->from, l->to))
            continue;
        const tt_point from = out->nodes[l->from], to = out->nodes[l->to];
        if (g->n_dims <= 2)
            bend_wrap(&out->bends[i], from, to);
        else
            bend_aslant(&out->bends[i], from, to);
    }
}

/* ------------------------------------------------------------ all of it -- */

/* Rows of slots under the middle of their host, which is its name. */
static void place_slots(const tutti_topology *t, const uint32_t *n_slots,
                        uint32_t *placed, tt_net_layout *out)
{
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        const uint32_t hub = t->nodes[v].hub;
        if (hub == TT_NONE)
            continue;
        const int32_t columns = (int32_t)tt_drawn_columns(n_slots[hub]);
        const int32_t i = (int32_t)placed[hub]++;
        const int32_t x = (2 * (i % columns) - (columns - 1)) * TT_DRAWN_SLOT /
                          2;
        out->nodes[v] = plus(out->nodes[hub], x,
                             34 + i / columns * TT_DRAWN_SLOT);
    }
}

static void widen(tt_point p, tt_point *least, tt_point *most)
{
    least->x = p.x < least->x ? p.x : least->x;
    least->y = p.y < least->y ? p.y : least->y;
    most->x = p.x > most->x ? p.x : most->x;
    most->y = p.y > most->y ? p.y : most->y;
}

/* So that everything, with room for what is drawn around nodes, begins at
 * (0, 0). */
static void move_to_origin(const tutti_topology *t, tt_net_layout *out)
{
    tt_point least = {INT32_MAX, INT32_MAX}, most = {INT32_MIN, INT32_MIN};
    for (uint32_t v = 0; v < t->n_nodes; v++)
        widen(out->nodes[v], &least, &most);
    for (uint32_t i = 0; i < t->n_links; i++)
        for (uint32_t k = 0; k < out->bends[i].n; k++)
            widen(out->bends[i].at[k], &least, &most);
    const int32_t x = MARGIN - least.x, y = MARGIN - least.y;
    for (uint32_t v = 0; v < t->n_nodes; v++)
        out->nodes[v] = plus(out->nodes[v], x, y);
    for (uint32_t i = 0; i < t->n_links; i++)
        for (uint32_t k = 0; k < out->bends[i].n; k++)
            out->bends[i].at[k] = plus(out->bends[i].at[k], x, y);
    out->size = plus(most, x + MARGIN, y + MARGIN);
}

static tutti_err place(const tutti_topology *t, tt_net_layout *out)
{
    uint32_t *n_slots = tt_arena_new(&out->arena, t->n_nodes, 4);
    uint32_t *placed = tt_arena_new(&out->arena, t->n_nodes, 4);
    out->nodes = tt_arena_new(&out->arena, t->n_nodes, sizeof(*out->nodes));
    out->bends = tt_arena_new(&out->arena, t->n_links, sizeof(*out->bends));
    if (out->arena.err)
        return out->arena.err;
    uint32_t n_switches = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        n_switches += tt_is_switch(t, v);
        if (t->nodes[v].hub != TT_NONE)
            n_slots[t->nodes[v].hub]++;
    }
    tutti_err err = TUTTI_OK;
    if (t->grid.n_dims > 1 || (t->grid.n_dims == 1 && !t->grid.wraps))
        place_grid(t, out);
    else if (n_switches > 1)
        err = tt_layout_levels(t, n_slots, out);
    else
        place_circle(t, n_slots, out);
    if (err)
        return err;
    place_slots(t, n_slots, placed, out);
    move_to_origin(t, out);
    return TUTTI_OK;
}

tutti_err tt_layout_find(const tutti_topology *t, const tt_mem *mem,
                         tt_net_layout *out, tutti_diag *diag)
{
    if (t->n_nodes > TT_DRAWN_NODES || t->n_links > TT_DRAWN_LINKS)
        return tt_fail(diag, TUTTI_ELIMIT,
                       "a network of %u nodes and %u links is too much for a "
                       "picture, which has at most %u and %u",
                       t->n_nodes, t->n_links, TT_DRAWN_NODES, TT_DRAWN_LINKS);
    tt_net_layout l = {.arena = {.mem = mem}};
    tutti_err err = place(t, &l);
    if (err) {
        tt_layout_free(&l);
        return tt_fail(diag, err, "no memory for the picture of the network");
    }
    *out = l;
    return TUTTI_OK;
}

void tt_layout_free(tt_net_layout *l)
{
    tt_arena_free(&l->arena);
}
