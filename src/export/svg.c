/* SPDX-License-Identifier: BSD-3-Clause
 * svg.c - a schedule as SVG, for papers: a column for each rank, time runs
 * downwards, an arrow from the sender's column to the receiver's for each
 * transfer of a step. Solid blue arrows reduce, dashed orange ones copy. Where
 * there are several chunks the way of chunk 0 stands out, and the others are
 * pale behind it. */
#include "export/formats.h"

#include <stdio.h>

enum {
    LEFT = 62,
    TOP = 66,
    WIDTH = 900,      /* of all columns, about */
    MAX_HEIGHT = 900, /* of all steps, about */
    LABELLED = 160,   /* transfers that carry their chunk's number */
    KEY = 30
};

typedef struct grid {
    const tutti_schedule *s;
    int32_t column, row; /* from one to the next, in tenths */
    tt_str *out;
} grid;

static int32_t within(int32_t value, int32_t least, int32_t most)
{
    return value < least ? least : value > most ? most : value;
}

static int32_t at_rank(const grid *g, uint32_t rank)
{
    return LEFT + (int32_t)(rank * (uint64_t)g->column / 10);
}

static int32_t at_step(const grid *g, uint32_t step)
{
    return TOP + (int32_t)(step * (uint64_t)g->row / 10);
}

static void put_columns(const grid *g)
{
    const uint32_t every = (uint32_t)(180 / g->column) + 1;
    const int32_t end = at_step(g, g->s->n_steps);
    tt_str_puts(g->out, "<g stroke=\"#c5cdd8\">\n");
    for (uint32_t r = 0; r < g->s->n_ranks; r++)
        tt_str_printf(g->out, "<path d=\"M%d %dV%d\"/>\n", at_rank(g, r), TOP,
                      end);
    tt_str_puts(g->out, "</g>\n<g text-anchor=\"middle\">\n");
    for (uint32_t r = 0; r < g->s->n_ranks; r += every)
        tt_str_printf(g->out, "<text x=\"%d\" y=\"%d\">%u</text>\n",
                      at_rank(g, r), TOP - 8, r);
    tt_str_puts(g->out, "</g>\n<g text-anchor=\"end\" fill=\"#5b6776\">\n");
    const uint32_t nth = (uint32_t)(140 / g->row) + 1;
    for (uint32_t k = 0; k < g->s->n_steps; k += nth)
        tt_str_printf(g->out, "<text x=\"%d\" y=\"%d\">%u</text>\n", LEFT - 22,
                      (at_step(g, k) + at_step(g, k + 1)) / 2 + 4, k);
    tt_str_printf(g->out, "<text x=\"%d\" y=\"%d\">step</text>\n", LEFT - 22,
                  TOP - 8);
    tt_str_puts(g->out, "</g>\n");
}

static void put_arrow(const grid *g, const tt_transfer *t)
{
    const char *head = t->op == TT_XFER_REDUCE ? "r" : "c";
    tt_str_printf(g->out,
                  "<path class=\"%s\" d=\"M%d %dL%d %d\" "
                  "marker-end=\"url(#%s)\"/>\n",
                  head, at_rank(g, t->src), at_step(g, t->step) + 1,
                  at_rank(g, t->dst), at_step(g, t->step + 1) - 1, head);
    if (g->s->n_transfers > LABELLED || g->s->n_chunks < 2)
        return;
    /* A third of the way, beside the arrow. */
    const int32_t x = (2 * at_rank(g, t->src) + at_rank(g, t->dst)) / 3;
    const int32_t y = (2 * at_step(g, t->step) + at_step(g, t->step + 1)) / 3;
    tt_str_printf(g->out, "<text x=\"%d\" y=\"%d\" class=\"l\">%u</text>\n",
                  x + 3, y - 1, t->chunk);
}

static void put_arrows(const grid *g, bool of_first)
{
    const bool is_pale = !of_first;
    tt_str_printf(g->out, "<g fill=\"none\" stroke-width=\"%s\"%s>\n",
                  of_first ? "1.8" : "1", is_pale ? " opacity=\"0.3\"" : "");
    for (uint64_t i = 0; i < g->s->n_transfers; i++) {
        if ((g->s->transfers[i].chunk == 0) == of_first)
            put_arrow(g, &g->s->transfers[i]);
    }
    tt_str_puts(g->out, "</g>\n");
}

static void put_head(const grid *g, int32_t width, int32_t height)
{
    const tutti_schedule *s = g->s;
    tt_str_printf(g->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                  "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"Helvetica"
                  ", Arial, sans-serif\" font-size=\"11\" fill=\"#1b1f24\">\n",
                  width, height, width, height);
    tt_str_puts(g->out, "<style>.r{stroke:#0072b2}.c{stroke:#d55e00;"
                        "stroke-dasharray:5 3}.l{font-size:8px;fill:#5b6776;"
                        "stroke:none}</style>\n<defs>\n");
    static const char *const heads[][2] = {{"r", "#0072b2"}, {"c", "#d55e00"}};
    for (int i = 0; i < 2; i++)
        tt_str_printf(g->out,
                      "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"7\" "
                      "refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
                      "markerUnits=\"userSpaceOnUse\" orient=\"auto\">"
                      "<path d=\"M0 1L8 4L0 7z\" fill=\"%s\"/></marker>\n",
                      heads[i][0], heads[i][1]);
    tt_str_printf(g->out,
                  "</defs>\n<text x=\"12\" y=\"22\" font-size=\"14\" "
                  "font-weight=\"600\">%s on %u ranks, %llu chunks</text>\n",
                  tutti_coll_name(s->collective), s->n_ranks,
                  (unsigned long long)s->n_chunks);
    tt_str_printf(g->out,
                  "<text x=\"%d\" y=\"42\" fill=\"#5b6776\">rank"
                  "</text>\n",
                  LEFT);
}

static void put_key(const grid *g)
{
    const int32_t y = at_step(g, g->s->n_steps) + KEY;
    tt_str_printf(g->out,
                  "<g stroke-width=\"1.8\"><path class=\"r\" d=\"M%d %dh30\" "
                  "marker-end=\"url(#r)\"/><path class=\"c\" d=\"M%d %dh30\" "
                  "marker-end=\"url(#c)\"/></g>\n",
                  LEFT, y, LEFT + 110, y);
    tt_str_printf(g->out,
                  "<text x=\"%d\" y=\"%d\">reduces</text>"
                  "<text x=\"%d\" y=\"%d\">copies%s</text>\n",
                  LEFT + 38, y + 4, LEFT + 148, y + 4,
                  g->s->n_chunks > 1 ? "; strong: the way of chunk 0" : "");
}

tutti_err tt_write_svg(const tutti_schedule *s, tt_str *out)
{
    if (s->n_transfers > TT_MAX_DRAWN || s->n_ranks > TT_MAX_DRAWN)
        return TUTTI_ELIMIT;
    const int32_t n_columns = (int32_t)s->n_ranks;
    const int32_t n_rows = s->n_steps ? (int32_t)s->n_steps : 1;
    const grid g = {.s = s,
                    .column = within(10 * WIDTH / n_columns, 60, 700),
                    .row = within(10 * MAX_HEIGHT / n_rows, 60, 440),
                    .out = out};
    const int32_t right = at_rank(&g, s->n_ranks - 1) + 40;
    put_head(&g, right < 420 ? 420 : right, at_step(&g, s->n_steps) + KEY + 20);
    put_columns(&g);
    put_arrows(&g, false);
    put_arrows(&g, true);
    put_key(&g);
    tt_str_puts(out, "</svg>\n");
    return out->err;
}
