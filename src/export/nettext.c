/* SPDX-License-Identifier: BSD-3-Clause
 * nettext.c - a network for a terminal, 80 columns wide. A flat grid is drawn
 * as one. Of others each switch, from the top, has a line for each speed of its
 * links, with what these lead to; then hosts that are linked with hosts. */
#include "export/netdraw.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, GRID_CELL = 6, FEW = 24 };

typedef struct sheet {
    const tutti_topology *t;
    const tt_net_layout *l;
    tt_str *out;
    size_t column;
} sheet;

/* ------------------------------------------------------------------ grid -- */

static bool is_flat(const tutti_topology *t)
{
    const tt_grid *g = &t->grid;
    return g->n_dims == 2 && g->dims[1] * GRID_CELL <= WIDTH;
}

static void draw_grid(sheet *s)
{
    const tt_grid *g = &s->t->grid;
    for (uint32_t y = 0; y < g->dims[0]; y++) {
        for (uint32_t x = 0; x < g->dims[1]; x++) {
            const tt_node *node = &s->t->nodes[y * g->dims[1] + x];
            tt_str_printf(s->out, "%s%3u", x ? " --" : "", node->rank);
        }
        tt_str_puts(s->out, "\n");
        for (uint32_t x = 0; x < g->dims[1] && y + 1 < g->dims[0]; x++)
            tt_str_printf(s->out, "%s  |", x ? "   " : "");
        if (y + 1 < g->dims[0])
            tt_str_puts(s->out, "\n");
    }
    if (g->wraps)
        tt_str_puts(s->out, "Rows and columns are closed: the last is linked "
                            "with the first.\n");
}

/* -------------------------------------------------------------- switches -- */

/* Does the line of `node` tell of the link, rather than that of its other end?
 * Switches tell, the higher one; of hosts the first. */
static bool tells(const sheet *s, uint32_t node, const tt_link *l)
{
    const bool mine = tt_is_switch(s->t, node);
    if (mine != tt_is_switch(s->t, l->to))
        return mine;
    if (l->is_memory)
        return s->t->nodes[node].kind == TT_NODE_HUB;
    const int32_t here = s->l->nodes[node].y, there = s->l->nodes[l->to].y;
    return mine && here != there ? here < there : node < l->to;
}

static void put_word(sheet *s, const char *word, size_t indent)
{
    const size_t len = strlen(word);
    if (s->column + 1 + len > WIDTH) {
        tt_str_puts(s->out, "\n");
        tt_str_fill(s->out, ' ', (int)indent);
        s->column = indent;
    } else {
        tt_str_puts(s->out, " ");
        s->column++;
    }
    tt_str_puts(s->out, word);
    s->column += len;
}

static void put_end(sheet *s, uint32_t node, size_t indent)
{
    const tt_node *v = &s->t->nodes[node];
    char word[300];
    if (v->rank == TT_NONE)
        snprintf(word, sizeof(word), "%.255s", v->name);
    else
        snprintf(word, sizeof(word), "%.255s(%u)", v->name, v->rank);
    put_word(s, word, indent);
}

/* The ends of all links of this speed, of which link i is the first. */
static void put_ends(sheet *s, uint32_t node, uint32_t first, size_t indent)
{
    const tt_link *like = tt_link_of(s->t, node, first);
    uint32_t n = 0, shown = 0;
    for (uint32_t i = first; i < tt_n_links_of(s->t, node); i++) {
        const tt_link *l = tt_link_of(s->t, node, i);
        n += tells(s, node, l) && tt_same_speed(s->t, l, like);
    }
    for (uint32_t i = first; i < tt_n_links_of(s->t, node); i++) {
        const tt_link *l = tt_link_of(s->t, node, i);
        if (!tells(s, node, l) || !tt_same_speed(s->t, l, like))
            continue;
        shown++;
        if (n <= FEW || shown <= FEW / 2 || shown == n)
            put_end(s, l->to, indent);
        else if (shown == FEW / 2 + 1)
            put_word(s, "...", indent);
    }
    if (n > FEW) {
        char word[32];
        snprintf(word, sizeof(word), "(%u)", n);
        put_word(s, word, indent);
    }
}

/* Has an earlier link of the node that it tells of this speed? */
static bool is_told(const sheet *s, uint32_t node, uint32_t link)
{
    for (uint32_t i = 0; i < link; i++) {
        const tt_link *l = tt_link_of(s->t, node, i);
        if (tells(s, node, l) &&
            tt_same_speed(s->t, l, tt_link_of(s->t, node, link)))
            return true;
    }
    return false;
}

static void draw_node(sheet *s, uint32_t node, size_t name_width)
{
    bool is_first = true;
    for (uint32_t i = 0; i < tt_n_links_of(s->t, node); i++) {
        const tt_link *l = tt_link_of(s->t, node, i);
        if (!tells(s, node, l) || is_told(s, node, i))
            continue;
        const size_t begin = s->out->len;
        tt_str_printf(s->out, "%-*s -- ", (int)name_width,
                      is_first ? s->t->nodes[node].name : "");
        tt_put_speed(s->out, s->t, l);
        tt_str_puts(s->out, " --");
        s->column = s->out->len - begin;
        put_ends(s, node, i, name_width + 4);
        tt_str_puts(s->out, "\n");
        is_first = false;
    }
}

/* From the top, each level from the left. */
static bool is_before(const sheet *s, uint32_t a, uint32_t b)
{
    const tt_point p = s->l->nodes[a], q = s->l->nodes[b];
    if (p.y != q.y)
        return p.y < q.y;
    return p.x != q.x ? p.x < q.x : a < b;
}

/* The next switch behind this one (TT_NONE: the first); TT_NONE at the end. */
static uint32_t next_switch(const sheet *s, uint32_t after)
{
    uint32_t best = TT_NONE;
    for (uint32_t v = 0; v < s->t->n_nodes; v++) {
        if (!tt_is_switch(s->t, v) ||
            (after != TT_NONE && !is_before(s, after, v)))
            continue;
        if (best == TT_NONE || is_before(s, v, best))
            best = v;
    }
    return best;
}

static size_t longest_name(const sheet *s)
{
    size_t most = 0;
    for (uint32_t v = 0; v < s->t->n_nodes; v++) {
        bool has_line = false;
        for (uint32_t i = 0; i < tt_n_links_of(s->t, v); i++)
            has_line |= tells(s, v, tt_link_of(s->t, v, i));
        const size_t len = strlen(s->t->nodes[v].name);
        if (has_line && len > most)
            most = len;
    }
    return most < 24 ? most : 24;
}

/* ------------------------------------------------------------------- all -- */

static bool has_one_speed(const tutti_topology *t)
{
    for (uint32_t i = 0; i < t->n_links; i++) {
        if (tt_is_drawn(t, i) && !tt_same_speed(t, &t->links[0], &t->links[i]))
            return false;
    }
    return t->n_links > 0;
}

void tt_net_text(const tutti_topology *t, const tt_net_layout *l, tt_str *out)
{
    sheet s = {.t = t, .l = l, .out = out};
    tt_str_printf(out, "%u ranks", t->n_ranks);
    if (has_one_speed(t)) {
        tt_str_puts(out, ", every link ");
        tt_put_speed(out, t, &t->links[0]);
    }
    tt_str_puts(out, "\n\n");
    if (is_flat(t)) {
        draw_grid(&s);
        return;
    }
    const size_t width = longest_name(&s);
    for (uint32_t v = next_switch(&s, TT_NONE); v != TT_NONE;
         v = next_switch(&s, v))
        draw_node(&s, v, width);
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        if (!tt_is_switch(t, v))
            draw_node(&s, v, width);
    }
}
