/* SPDX-License-Identifier: BSD-3-Clause
 * ring2d.c - rings along rows and along columns.
 *
 * Idea       The ranks stand in rows and columns: as in the grid that the
 *            network is, or else along the ring that fits the network, cut into
 *            rows as nearly square as n allows. Every block is cut in two. The
 *            first half is reduced along the rows, every rank ending with the
 *            shares of its column, then along the columns; the second half
 *            along the columns first, so that both dimensions always work. The
 *            all-gather goes back: what was last comes first.
 * Picture    2 x 3, reduce-scatter, first half: the chunks that a step moves.
 *
 *               step 0, 1: rings of 3       step 2: rings of 2
 *               0 -> 1 -> 2 -> 0            0  1  2
 *               3 -> 4 -> 5 -> 3            :  :  :   each of its own
 *               two chunks each: those      3  4  5   column's two chunks
 *               of one column               one
 * Cost       All-reduce: 2 (rows + columns - 2) steps instead of the ring's
 *            2 (n - 1), and no more bytes.
 * Next       ringorder_grid.c (a row of a mesh is a ring too), hdrm.c. */
#include "plan/planner.h"
#include "plan/ringorder.h"

#include <string.h>

/* at[row * n_cols + col] is the rank there. */
typedef struct table {
    uint32_t n_rows, n_cols;
    uint32_t *at;
} table;

/* The largest divisor of n that is at most its root. */
static uint32_t least_side(uint32_t n)
{
    uint32_t side = 1;
    for (uint32_t i = 2; (uint64_t)i * i <= n; i++) {
        if (n % i == 0)
            side = i;
    }
    return side;
}

/* A grid with more than one row and column. */
static bool is_grid(const tt_grid *grid)
{
    uint32_t n_long = 0;
    for (uint32_t d = 0; d < grid->n_dims; d++)
        n_long += grid->dims[d] > 1;
    return n_long >= 2;
}

static const char *why_not(const tt_problem *p)
{
    uint64_t n = p->n_ranks;
    if (!p->topology)
        return "it needs a topology";
    if (n > 1 && least_side(p->n_ranks) == 1)
        return "the ranks do not fill rows and columns: their number is prime";
    const char *why = tt_why_no_shares(p);
    if (why)
        return why;
    return tt_too_many((p->collective == TUTTI_ALL_REDUCE ? 4 : 2) * n *
                       (n - 1));
}

/* ------------------------------------------------------ rows and columns -- */

/* Dimensions from `first` on become columns, those before it rows. */
static void split(const tt_grid *grid, uint32_t first, tt_grid *rows,
                  tt_grid *cols)
{
    *rows = *grid;
    *cols = *grid;
    rows->n_dims = first;
    cols->n_dims = grid->n_dims - first;
    memmove(cols->dims, grid->dims + first, cols->n_dims * sizeof(*cols->dims));
}

/* Where rows and columns are most alike. */
static void fold(const tt_grid *grid, tt_grid *rows, tt_grid *cols)
{
    uint32_t best = 0, least_longest = UINT32_MAX;
    for (uint32_t first = 1; first < grid->n_dims; first++) {
        split(grid, first, rows, cols);
        uint32_t a = (uint32_t)tt_grid_points(rows);
        uint32_t z = (uint32_t)tt_grid_points(cols);
        uint32_t longest = a > z ? a : z;
        if (a > 1 && z > 1 && longest < least_longest) {
            best = first;
            least_longest = longest;
        }
    }
    split(grid, best, rows, cols);
}

/* Each row and each column is a round trip through its part of the grid. */
static tutti_err table_of_grid(const tt_problem *p, tt_arena *arena, table *t)
{
    tt_grid rows, cols;
    fold(&p->topology->grid, &rows, &cols);
    t->n_rows = (uint32_t)tt_grid_points(&rows);
    t->n_cols = (uint32_t)tt_grid_points(&cols);
    uint32_t most = t->n_rows > t->n_cols ? t->n_rows : t->n_cols;
    uint32_t *row = tt_arena_new(arena, t->n_rows, sizeof(*row));
    uint32_t *col = tt_arena_new(arena, t->n_cols, sizeof(*col));
    uint32_t *spare = tt_arena_new(arena, most, sizeof(*spare));
    if (arena->err)
        return TUTTI_ENOMEM;
    tt_ringorder_grid(&rows, false, row, spare);
    tt_ringorder_grid(&cols, false, col, spare);
    for (uint32_t i = 0; i < t->n_rows; i++) {
        for (uint32_t j = 0; j < t->n_cols; j++)
            t->at[i * t->n_cols + j] =
                p->topology->nodes[row[i] * t->n_cols + col[j]].rank;
    }
    return TUTTI_OK;
}

static tutti_err make_table(const tt_problem *p, tt_arena *arena, table *t)
{
    t->at = tt_arena_new(arena, p->n_ranks, sizeof(*t->at));
    if (!t->at)
        return TUTTI_ENOMEM;
    if (is_grid(&p->topology->grid))
        return table_of_grid(p, arena, t);
    tt_ring ring;
    tutti_err err = tt_ringorder_find(p, false, arena, &ring);
    if (err)
        return err;
    t->n_rows = least_side(p->n_ranks);
    t->n_cols = p->n_ranks / t->n_rows;
    memcpy(t->at, ring.at, p->n_ranks * sizeof(*t->at));
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- rings -- */

/* One half of the data: the first runs along rows before columns. */
typedef struct half {
    const table *t;
    uint32_t which;
    bool is_all_reduce;
    tt_builder *b;
} half;

static uint32_t chunk_of(const half *h, uint32_t owner)
{
    uint32_t n = h->t->n_rows * h->t->n_cols;
    return h->is_all_reduce ? h->which * n + owner : 2 * owner + h->which;
}

/* Rings along one dimension: the rows, or the columns. From step `first`; a
 * chunk starts `lead` places behind its end: see lap() of ring.c. */
typedef struct lap {
    uint32_t first, lead;
    bool is_along_row;
    bool is_wide; /* in all parallel rings, not only in the owner's */
} lap;

static uint32_t rank_at(const table *t, bool is_along_row, uint32_t line,
                        uint32_t place)
{
    return is_along_row ? t->at[line * t->n_cols + place]
                        : t->at[place * t->n_cols + line];
}

/* The chunk of the rank at `place` of ring `line`. */
static void go_round(const half *h, lap l, uint32_t line, uint32_t place)
{
    const table *t = h->t;
    uint32_t len = l.is_along_row ? t->n_cols : t->n_rows;
    uint32_t n_lines = l.is_along_row ? t->n_rows : t->n_cols;
    uint32_t chunk = chunk_of(h, rank_at(t, l.is_along_row, line, place));
    uint32_t from = l.is_wide ? 0 : line;
    uint32_t to = l.is_wide ? n_lines : line + 1;
    tt_xfer_op op = l.lead == 1 ? TT_XFER_REDUCE : TT_XFER_COPY;
    for (uint32_t s = 0; s + 1 < len; s++) {
        uint32_t src = tt_rank_add(place, (l.lead + s) % len, len);
        uint32_t dst = tt_rank_add(src, 1, len);
        for (uint32_t i = from; i < to; i++)
            tt_builder_transfer(h->b, l.first + s, chunk,
                                rank_at(t, l.is_along_row, i, src),
                                rank_at(t, l.is_along_row, i, dst), op);
    }
}

static void go_round_all(const half *h, lap l)
{
    uint32_t len = l.is_along_row ? h->t->n_cols : h->t->n_rows;
    uint32_t n_lines = l.is_along_row ? h->t->n_rows : h->t->n_cols;
    for (uint32_t line = 0; line < n_lines; line++) {
        for (uint32_t place = 0; place < len; place++)
            go_round(h, l, line, place);
    }
}

/* First along one dimension, all parallel rings; then along the other, in the
 * owner's ring. */
static void scatter(const half *h)
{
    bool rows_first = h->which == 0;
    uint32_t len = rows_first ? h->t->n_cols : h->t->n_rows;
    lap l = {
        .first = 0, .lead = 1, .is_along_row = rows_first, .is_wide = true};
    go_round_all(h, l);
    l = (lap){.first = len - 1, .lead = 1, .is_along_row = !rows_first};
    go_round_all(h, l);
}

static void gather(const half *h, uint32_t first)
{
    bool rows_last = h->which == 0;
    uint32_t len = rows_last ? h->t->n_rows : h->t->n_cols;
    lap l = {.first = first, .is_along_row = !rows_last};
    go_round_all(h, l);
    l = (lap){
        .first = first + len - 1, .is_along_row = rows_last, .is_wide = true};
    go_round_all(h, l);
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    bool is_all_reduce = p->collective == TUTTI_ALL_REDUCE;
    table t = {0};
    (void)diag;
    tutti_err err = make_table(p, scratch, &t);
    if (err)
        return err;
    tt_plan_chunks(b, 2 * tt_chunks_by_rank(p));
    for (uint32_t i = 0; i < 2; i++) {
        half h = {&t, i, is_all_reduce, b};
        if (p->collective != TUTTI_ALL_GATHER)
            scatter(&h);
        if (p->collective != TUTTI_REDUCE_SCATTER)
            gather(&h, is_all_reduce ? t.n_rows + t.n_cols - 2 : 0);
    }
    return TUTTI_OK;
}

const tt_planner tt_planner_ring2d = {
    .name = "ring2d",
    .blurb = "rings along rows and columns, half of the data each way first",
    .fits = "every topology whose number of ranks is not prime",
    .why_not = why_not,
    .build = build,
    .uses_links = true,
};
