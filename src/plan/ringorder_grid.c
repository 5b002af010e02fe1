/* SPDX-License-Identifier: BSD-3-Clause
 * ringorder_grid.c - round trips through grids, from neighbour to neighbour.
 *
 * Idea       A round trip of one or two dimensions is stretched over the
 *            other dimensions one by one. If h0 h1 .. hm is a round trip of a
 *            layer, come up through the h0 of all layers, then walk h1 .. hm
 *            in the first layer, hm .. h1 in the next, and so on:
 *
 *                h0 -h1 - h2 - h3           h0 -h1 - h2 - h3
 *                |               |          |               |
 *                h0  h1 - h2 - h3           h0  h1 - h2 - h3
 *                |   |                      |   |
 *                h0  h1 - h2 - h3           h0  h1 - h2 - h3 -> h0
 *                |               |
 *                h0 -h1 - h2 - h3           three layers: by the edge h3 - h0
 *                four layers                of the layer's own round trip
 *
 *            With an even number of layers the layer needs no round trip, a
 *            path will do. So only meshes whose sides are all odd have none
 *            (colour them like a chess-board: one colour has a point more);
 *            there one hop of two links is allowed, from the last point of
 *            the tour to the first, which an odd stretch uses only once.
 *            - corner: a tour of all points but (0,0), with (0,0) put in
 *              behind its neighbour (1,0).
 *            - crossing: the tour goes straight down through a point inside,
 *              and the long hop straight across it, so each takes two of its
 *              four links in each direction.
 * Next       ringorder.c. */
#include "plan/ringorder.h"

#include <string.h>

/* A side of the grid that is longer than one point. */
typedef struct side {
    uint32_t n, stride;
} side;

typedef struct walk {
    uint32_t *at;
    uint32_t n;
} walk;

static void go(walk *w, uint32_t point)
{
    w->at[w->n++] = point;
}

/* Stretches w over the layers of side s; spare has room for all of it. */
static void stretch(walk *w, side s, uint32_t *spare)
{
    uint32_t m = w->n;
    memcpy(spare, w->at, m * sizeof(*spare));
    w->n = 0;
    for (uint32_t i = s.n; i-- > 0;)
        go(w, spare[0] + i * s.stride);
    for (uint32_t i = 0; i < s.n; i++) {
        for (uint32_t j = 1; j < m; j++)
            go(w, spare[i % 2 == 0 ? j : m - j] + i * s.stride);
    }
}

static void line(walk *w, side s)
{
    for (uint32_t i = 0; i < s.n; i++)
        go(w, i * s.stride);
}

/* A line alone: out over the even points, back over the odd ones. No hop is
 * longer than two links, and each link is used once in each direction. */
static void there_and_back(walk *w, side s)
{
    for (uint32_t i = 0; i < s.n; i += 2)
        go(w, i * s.stride);
    for (uint32_t i = s.n / 2; i-- > 0;)
        go(w, (2 * i + 1) * s.stride);
}

typedef struct sheet {
    side row, col; /* row.n rows, col.n columns */
} sheet;

static void go_at(walk *w, sheet s, uint32_t row, uint32_t col)
{
    go(w, row * s.row.stride + col * s.col.stride);
}

/* Row `row` from column a to column z, whichever way that is. */
static void go_row(walk *w, sheet s, uint32_t row, uint32_t a, uint32_t z)
{
    for (uint32_t col = a; col != z; col = a < z ? col + 1 : col - 1)
        go_at(w, s, row, col);
    go_at(w, s, row, z);
}

/* From (1,1) along row 1, with detours to row 0 over pairs of columns; back and
 * forth through the other rows; up column 0; the corner last. */
static void corner_tour(walk *w, sheet s)
{
    uint32_t last = s.col.n - 1;
    for (uint32_t col = 1; col < s.col.n; col += 2) {
        go_at(w, s, 1, col);
        go_row(w, s, 0, col, col + 1);
        go_at(w, s, 1, col + 1);
    }
    for (uint32_t row = 2; row < s.row.n; row++) {
        if (row % 2 == 0)
            go_row(w, s, row, last, 1);
        else
            go_row(w, s, row, 1, last);
    }
    for (uint32_t row = s.row.n; row-- > 0;)
        go_at(w, s, row, 0);
}

/* Sides of at least 5. It goes down through (1,2); the long hop leads from
 * (1,3) to (1,1), where the tour begins. From (2,2): row 2 to the left; columns
 * 0, 1, 2 of the rows below, up and down; the columns from 3 on in rows, from
 * the bottom up to row 2; then up and down through rows 0 and 1, to the left.
 * */
static void crossing_tour(walk *w, sheet s)
{
    uint32_t bottom = s.row.n - 1, last = s.col.n - 1;
    go_row(w, s, 1, 1, 0);
    go_row(w, s, 0, 0, 2);
    go_at(w, s, 1, 2);
    go_row(w, s, 2, 2, 0);
    for (uint32_t col = 0; col < 3; col++) {
        for (uint32_t i = 3; i <= bottom; i++)
            go_at(w, s, col == 1 ? bottom + 3 - i : i, col);
    }
    for (uint32_t row = bottom; row >= 2; row--) {
        if (row % 2 == 0)
            go_row(w, s, row, 3, last);
        else
            go_row(w, s, row, last, 3);
    }
    for (uint32_t col = last; col >= 3; col--) {
        go_at(w, s, col % 2 == 0, col);
        go_at(w, s, col % 2 == 1, col);
    }
}

/* The sides longer than one point, last dimension first. */
static uint32_t find_sides(const tt_grid *grid, side *sides)
{
    uint32_t n = 0, stride = 1;
    for (uint32_t d = grid->n_dims; d-- > 0;) {
        if (grid->dims[d] > 1)
            sides[n++] = (side){grid->dims[d], stride};
        stride *= grid->dims[d];
    }
    return n;
}

/* Begins the tour; returns how many sides it has used: these are moved to the
 * front. 0: there is no such tour. */
static uint32_t begin(walk *w, side *sides, uint32_t n, bool wraps,
                      bool is_crossing, uint32_t *spare)
{
    if (wraps || n == 1) {
        if (is_crossing)
            return 0;
        if (wraps)
            line(w, sides[0]);
        else
            there_and_back(w, sides[0]);
        return 1;
    }
    uint32_t even = 0;
    while (even < n && sides[even].n % 2 == 1)
        even++;
    if (even == n) {
        const sheet s = {.row = sides[1], .col = sides[0]};
        if (is_crossing && (s.row.n < 5 || s.col.n < 5))
            return 0;
        if (is_crossing)
            crossing_tour(w, s);
        else
            corner_tour(w, s);
        return 2;
    }
    if (is_crossing)
        return 0;
    const side layers = sides[even];
    sides[even] = sides[0];
    sides[0] = layers;
    line(w, sides[1]);
    stretch(w, layers, spare);
    return 2;
}

bool tt_ringorder_grid(const tt_grid *grid, bool is_crossing, uint32_t *tour,
                       uint32_t *spare)
{
    side sides[TT_MAX_DIMS];
    uint32_t n = find_sides(grid, sides);
    walk w = {.at = tour, .n = 0};
    if (n == 0) {
        go(&w, 0);
        return !is_crossing;
    }
    uint32_t used = begin(&w, sides, n, grid->wraps, is_crossing, spare);
    for (uint32_t i = used; used > 0 && i < n; i++)
        stretch(&w, sides[i], spare);
    return used > 0;
}
