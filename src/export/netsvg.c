/* SPDX-License-Identifier: BSD-3-Clause
 * netsvg.c - a network as SVG, for papers: hosts are discs with their rank,
 * switches are dark, a faster link is a wider line, and a legend says how fast
 * each width is. */
#include "export/netdraw.h"

#include <string.h>

enum {
    MAX_SPEEDS = 8, /* that the legend tells; others: the last line */
    LEGEND_LINE = 18,
    LEAST_WIDTH = 260, /* room for a line of the legend */
    SMALL_NAMES = 7,   /* letters that fit under a host */
    CORNER = 8
};

typedef struct speeds {
    uint32_t link[MAX_SPEEDS]; /* one that has it; slowest first */
    uint32_t n, n_others;
} speeds;

static speeds find_speeds(const tutti_topology *t)
{
    speeds s = {0};
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[i];
        if (!tt_is_drawn(t, i))
            continue;
        uint32_t at = 0;
        while (at < s.n && !tt_same_speed(t, l, &t->links[s.link[at]]))
            at++;
        if (at < s.n)
            continue;
        if (s.n == MAX_SPEEDS) {
            s.n_others++;
            continue;
        }
        for (s.n++; at > 0; at--) {
            if (t->links[s.link[at - 1]].rate_bps <= l->rate_bps)
                break;
            s.link[at] = s.link[at - 1];
        }
        s.link[at] = i;
    }
    return s;
}

/* Wider for what is faster, in tenths: 12 to 44. */
static uint32_t width_of(const tutti_topology *t, const speeds *s,
                         const tt_link *l)
{
    uint32_t rank = 0;
    while (rank + 1 < s->n && t->links[s->link[rank]].rate_bps < l->rate_bps)
        rank++;
    return s->n < 2 ? 20 : 12 + 32 * rank / (s->n - 1);
}

static void put_width(tt_str *out, uint32_t tenths)
{
    tt_str_printf(out, " stroke-width=\"%u.%u\"", tenths / 10, tenths % 10);
}

static void put_point(tt_str *out, const char *before, tt_point p)
{
    tt_str_printf(out, "%s%d %d", before, p.x, p.y);
}

/* So far from a corner towards the next point, along one axis. */
static tt_point towards(tt_point corner, tt_point to)
{
    const int32_t x = to.x - corner.x, y = to.y - corner.y;
    const int32_t far_x = x < 0 ? -x : x, far_y = y < 0 ? -y : y;
    const int32_t far = far_x > far_y ? far_x : far_y;
    const int32_t step = far / 2 < CORNER ? far / 2 : CORNER;
    if (far == 0)
        return corner;
    return (tt_point){corner.x + x * step / far, corner.y + y * step / far};
}

static void put_path(tt_str *out, tt_point from, const tt_bends *b, tt_point to)
{
    put_point(out, "<path d=\"M", from);
    for (uint32_t k = 0; k < b->n; k++) {
        if (b->n == 1) {
            put_point(out, "Q", b->at[0]);
            break;
        }
        put_point(out, "L", towards(b->at[k], k == 0 ? from : b->at[k - 1]));
        put_point(out, "Q", b->at[k]);
        put_point(out, " ",
                  towards(b->at[k], k + 1 == b->n ? to : b->at[k + 1]));
    }
    put_point(out, b->n == 1 ? " " : "L", to);
    tt_str_puts(out, "\"");
}

static void put_links(const tutti_topology *t, const tt_net_layout *l,
                      const speeds *s, tt_str *out)
{
    const char *opacity = tt_is_crowded(t) ? "0.35" : "1";
    tt_str_printf(out,
                  "<g fill=\"none\" stroke=\"#8493a8\" stroke-linejoin=\"round"
                  "\" stroke-opacity=\"%s\">\n",
                  opacity);
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *link = &t->links[i];
        if (!tt_is_drawn(t, i))
            continue;
        put_path(out, l->nodes[link->from], &l->bends[i], l->nodes[link->to]);
        put_width(out, width_of(t, s, link));
        tt_str_puts(out, "><title>");
        tt_str_printf(out, "%s - %s: ", t->nodes[link->from].name,
                      t->nodes[link->to].name);
        tt_put_speed(out, t, link);
        tt_str_puts(out, "</title></path>\n");
    }
    tt_str_puts(out, "</g>\n");
}

static void put_text(tt_str *out, tt_point at, const char *look,
                     const char *text)
{
    tt_str_printf(out, "<text x=\"%d\" y=\"%d\" %s>%s</text>\n", at.x, at.y,
                  look, text);
}

static void put_rank(tt_str *out, tt_point at, uint32_t rank)
{
    tt_str_printf(out,
                  "<circle cx=\"%d\" cy=\"%d\" r=\"%d\" fill=\"#dcebf7\" "
                  "stroke=\"#0072b2\" stroke-width=\"1.5\"/>\n",
                  at.x, at.y, TT_DRAWN_HOST);
    tt_str_printf(out,
                  "<text x=\"%d\" y=\"%d\" font-size=\"11\" "
                  "font-weight=\"600\">%u</text>\n",
                  at.x, at.y + 4, rank);
}

/* The box of a host of several ranks, with its name where the hub is. */
static void put_hub(const tutti_topology *t, const tt_net_layout *l,
                    uint32_t hub, tt_str *out)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++)
        n += t->nodes[v].hub == hub;
    const tt_point room = tt_drawn_room(n), at = l->nodes[hub];
    tt_str_printf(out,
                  "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" "
                  "fill=\"#f5f8fb\" stroke=\"#8493a8\"/>\n",
                  at.x - room.x / 2 + 4, at.y - 12, room.x - 8, room.y - 6);
}

static void put_switch(tt_str *out, tt_point at, const char *name)
{
    const int32_t half = (int32_t)strlen(name) * 4 + 8;
    tt_str_printf(out,
                  "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"20\" "
                  "rx=\"5\" fill=\"#33404f\"/>\n",
                  at.x - half, at.y - 10, 2 * half);
    put_text(out, (tt_point){at.x, at.y + 4}, "fill=\"#fff\"", name);
}

static void put_nodes(const tutti_topology *t, const tt_net_layout *l,
                      tt_str *out)
{
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        const tt_node *node = &t->nodes[v];
        tt_point at = l->nodes[v];
        if (node->kind == TT_NODE_SWITCH)
            put_switch(out, at, node->name);
        else if (node->kind == TT_NODE_HUB)
            put_text(out, (tt_point){at.x, at.y + 4}, "", node->name);
        else
            put_rank(out, at, node->rank);
        if (node->kind == TT_NODE_HOST && strlen(node->name) <= SMALL_NAMES)
            put_text(out, (tt_point){at.x, at.y + TT_DRAWN_HOST + 10},
                     "font-size=\"9\" fill=\"#5b6776\"", node->name);
    }
}

static void put_legend(const tutti_topology *t, const speeds *s, int32_t top,
                       tt_str *out)
{
    tt_str_puts(out, "<g text-anchor=\"start\">\n");
    for (uint32_t i = 0; i < s->n; i++) {
        const tt_link *l = &t->links[s->link[s->n - 1 - i]];
        const int32_t y = top + (int32_t)i * LEGEND_LINE;
        tt_str_printf(out, "<path d=\"M12 %dH44\" stroke=\"#8493a8\"", y);
        put_width(out, width_of(t, s, l));
        tt_str_printf(out, "/><text x=\"52\" y=\"%d\">", y + 4);
        tt_put_speed(out, t, l);
        tt_str_puts(out, "</text>\n");
    }
    if (s->n_others)
        tt_str_printf(out,
                      "<text x=\"52\" y=\"%d\">and links of other speeds"
                      "</text>\n",
                      top + (int32_t)s->n * LEGEND_LINE + 4);
    tt_str_puts(out, "</g>\n");
}

void tt_net_svg(const tutti_topology *t, const tt_net_layout *l, tt_str *out)
{
    const speeds s = find_speeds(t);
    const int32_t lines = (int32_t)s.n + (s.n_others > 0);
    const int32_t width = l->size.x < LEAST_WIDTH ? LEAST_WIDTH : l->size.x;
    const int32_t height = l->size.y + lines * LEGEND_LINE + 8;
    tt_str_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                  "height=\"%d\" viewBox=\"%d 0 %d %d\" "
                  "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11"
                  "\" text-anchor=\"middle\" fill=\"#1b1f24\">\n",
                  width, height, 0, width, height);
    tt_str_printf(out,
                  "<title>%u ranks</title>\n<g transform=\"translate(%d "
                  "0)\">\n",
                  t->n_ranks, (width - l->size.x) / 2);
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        if (t->nodes[v].kind == TT_NODE_HUB)
            put_hub(t, l, v, out);
    }
    put_links(t, l, &s, out);
    put_nodes(t, l, out);
    tt_str_puts(out, "</g>\n");
    put_legend(t, &s, l->size.y + 4, out);
    tt_str_puts(out, "</svg>\n");
}
