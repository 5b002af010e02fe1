/* SPDX-License-Identifier: BSD-3-Clause
 * figures.c - figures for people and planners: equal links get equal figures.
 *
 * Idea       Sorted, figures fall into runs without a wide gap. A run that is
 *            narrow as a whole is one figure, the middle one: strays do not
 *            move it. One that is wide is cut at its widest gap, and so on.
 * Why        Sixteen equal interfaces, measured, are sixteen rates; a planner
 *            that believes them finds no symmetry.
 * Next       drawing.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/inference.h"

typedef struct item {
    double value;
    uint32_t at;
} item;

static int by_value(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The widest gap, as the index after it. */
static uint32_t widest(const item *items, uint32_t n)
{
    uint32_t at = 1;
    double most = 0;
    for (uint32_t i = 1; i < n; i++) {
        double gap = items[i].value / items[i - 1].value;
        if (gap <= most)
            continue;
        most = gap;
        at = i;
    }
    return at;
}

static void even_run(item *items, uint32_t n, double spread)
{
    while (n > 1) {
        uint32_t at = widest(items, n);
        double gap = items[at].value / items[at - 1].value - 1;
        double all = items[n - 1].value / items[0].value - 1;
        if (gap <= 0.4 * spread && all <= spread)
            break;
        /* The shorter part by recursion: no deeper than log n. */
        bool left = at < n - at;
        even_run(left ? items : items + at, left ? at : n - at, spread);
        items = left ? items + at : items;
        n = left ? n - at : at;
    }
    double middle = (items[(n - 1) / 2].value + items[n / 2].value) / 2;
    for (uint32_t i = 0; i < n; i++)
        items[i].value = middle;
}

tutti_err tt_figures_even(double *values, uint32_t n, double spread,
                          tt_arena *scratch)
{
    item *items = tt_arena_new(scratch, (size_t)n + 1, sizeof(*items));
    uint32_t n_items = 0;
    if (!items)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        if (values[i] > 0)
            items[n_items++] = (item){.value = values[i], .at = i};
    }
    qsort(items, n_items, sizeof(*items), by_value);
    if (n_items > 0)
        even_run(items, n_items, spread);
    for (uint32_t i = 0; i < n_items; i++)
        values[items[i].at] = items[i].value;
    return TUTTI_OK;
}

uint64_t tt_figure_round(double value)
{
    if (!(value >= 1))
        return 0;
    double unit = pow(10, floor(log10(value)) - 2);
    unit = unit < 1 ? 1 : unit;
    return (uint64_t)(round(value / unit) * unit + 0.5);
}

/* The steps of round figures, of their power of ten. */
static const double steps[] = {1, 0.5, 0.2, 0.1, 0.05, 0.02};

uint64_t tt_figure_rate(double value)
{
    if (!(value >= 1))
        return 0;
    double power = pow(10, floor(log10(value)));
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        double step = steps[i] * power, near = round(value / step) * step;
        if (step >= 1 && fabs(near / value - 1) <= TT_LEAST_NOISE)
            return (uint64_t)(near + 0.5);
    }
    return tt_figure_round(value);
}
