/* SPDX-License-Identifier: BSD-3-Clause
 * levels_segments.c - uneven shares: who owns which segment of the vector at
 * each node of a hierarchy (FlexReduce).
 *
 * Idea       Below a leaf its rank owns all. At a node, look at the borders of
 *            all kids' segments together: between two of them each kid has one
 *            owner. Cut such an interval in as many segments as there are
 *            kids, by weight; the i-th goes to the owner at kid i. So every
 *            kid, large or small, ends with its weight's share of the vector,
 *            and a rank with the product of the shares on its way up.
 * Invariant  The segments of a node cover the vector and lie within those of
 *            every node below. None is empty.
 * Cuts       Intervals cut in k segments, each of which is an interval one
 *            level up: the numbers multiply when borders do not coincide.
 *            Beyond a limit they are dealt out as work is on one processor:
 *            kid i wants its share of each of its segments, and cannot have it
 *            before that begins or after it ends. Whoever's segment ends first
 *            is served first. That meets all wants whenever it is possible
 *            (the rule of the earliest deadline), and it is, since cutting
 *            every interval does; now each border and each want met makes at
 *            most one segment. Where all borders coincide both rules are the
 *            same.
 * Parts      n_parts is the least number that all cuts divide, up to
 *            MOST_EXACT; beyond, that number, and cuts are rounded down.
 * Example    boxes:2+4: halves in one, quarters in the other, four intervals,
 *            eight segments: 1/4 each for two ranks, 1/8 each for four.
 * Next       levels.c. */
#include "plan/levels.h"

/* Every cut of three levels of 1000 kids; and products with weights, which
 * have up to 20 bits, stay far below 128 bits. */
#define MOST_EXACT (UINT64_C(1) << 32)

typedef struct cutter {
    const tt_levels *l;
    tt_segments *s;
    tt_arena *arena;
    uint32_t node;
    uint64_t max_segments;
    bool is_dealt;  /* earliest deadline first */
    size_t *at;     /* by kid: its present segment */
    uint64_t *want; /* by kid: of its present segment, when dealt */
} cutter;

/* There are too many segments. */
#define TOO_MANY TUTTI_ELIMIT

/* ----------------------------------------------------------- arithmetic -- */

/* The product, or MOST_EXACT + 1 when it is more than MOST_EXACT. */
static uint64_t capped(uint64_t a, uint64_t b)
{
    return b != 0 && a > MOST_EXACT / b ? MOST_EXACT + 1 : a * b;
}

/* What every node's cuts divide: its kids' parts times its weights. parts[]
 * is [n_nodes], all 0. */
static uint64_t count_parts(const tt_levels *l, uint64_t *parts)
{
    const tt_hierarchy *h = l->h;
    for (uint32_t v = 0; v < h->n_nodes; v++)
        parts[v] = 1;
    for (uint32_t v = h->n_nodes; v-- > 0;) {
        if (h->nodes[v].n_kids > 0)
            parts[v] = capped(parts[v], l->total[v]);
        if (v == 0)
            break;
        uint64_t *up = &parts[h->nodes[v].parent];
        if (parts[v] > MOST_EXACT)
            *up = parts[v];
        else
            *up = capped(*up, parts[v] / (uint64_t)tt_gcd(*up, parts[v]));
    }
    return parts[0] > MOST_EXACT ? MOST_EXACT : parts[0];
}

/* ------------------------------------------------------------- segments -- */

static tutti_err push(cutter *c, uint64_t end, uint32_t place)
{
    tt_segment_list *p = &c->s->at[c->node];
    if (p->n == c->max_segments)
        return TOO_MANY;
    p->list = tt_arena_grow(c->arena, p->list, &p->cap, p->n + 1,
                            sizeof(*p->list));
    if (!c->arena->err)
        p->list[p->n++] = (tt_owned){.end = end, .place = place};
    return c->arena->err;
}

static const tt_owned *present(const cutter *c, uint32_t kid)
{
    const tt_hier_node *node = &c->l->h->nodes[c->node];
    return &c->s->at[node->first_kid + kid].list[c->at[kid]];
}

/* Where the present interval ends: at the first border of any kid. */
static uint64_t next_border(const cutter *c)
{
    uint64_t end = c->s->n_parts;
    for (uint32_t i = 0; i < c->l->h->nodes[c->node].n_kids; i++) {
        uint64_t border = present(c, i)->end;
        end = border < end ? border : end;
    }
    return end;
}

/* What kid i wants of its present segment, which begins at `begin`: rounded so
 * that its wants up to any border sum to its share of all up to there. */
static void set_want(cutter *c, uint32_t kid, uint64_t begin)
{
    uint32_t v = c->l->h->nodes[c->node].first_kid + kid;
    uint64_t weight = c->l->weight[v];
    uint64_t total = c->l->total[c->node];
    c->want[kid] = tt_mul_div(present(c, kid)->end, weight, total) -
                   tt_mul_div(begin, weight, total);
}

/* Kids whose segment ends at `border` go on to the next one. */
static void advance(cutter *c, uint64_t border)
{
    for (uint32_t i = 0; i < c->l->h->nodes[c->node].n_kids; i++) {
        if (present(c, i)->end != border || border == c->s->n_parts)
            continue;
        c->at[i]++;
        if (c->is_dealt)
            set_want(c, i, border);
    }
}

/* The paper's rule: every interval in as many segments as there are kids. */
static tutti_err cut_interval(cutter *c, uint64_t begin, uint64_t end)
{
    const tt_hier_node *node = &c->l->h->nodes[c->node];
    uint64_t total = c->l->total[c->node];
    uint64_t weights = 0;
    uint64_t from = begin;
    for (uint32_t i = 0; i < node->n_kids; i++) {
        weights += c->l->weight[node->first_kid + i];
        uint64_t to = begin + tt_mul_div(end - begin, weights, total);
        if (to == from)
            continue;
        tutti_err err = push(c, to, present(c, i)->place);
        if (err)
            return err;
        from = to;
    }
    return TUTTI_OK;
}

/* Who wants something and has least time for it. Rounding may leave an
 * interval that nobody wants: then whoever had the last segment. */
static uint32_t most_urgent(const cutter *c, uint32_t otherwise)
{
    uint32_t best = TT_NONE;
    for (uint32_t i = 0; i < c->l->h->nodes[c->node].n_kids; i++) {
        if (c->want[i] > 0 &&
            (best == TT_NONE || present(c, i)->end < present(c, best)->end))
            best = i;
    }
    return best == TT_NONE ? otherwise : best;
}

static tutti_err deal_interval(cutter *c, uint64_t begin, uint64_t end,
                               uint32_t *last)
{
    while (begin < end) {
        uint32_t kid = most_urgent(c, *last);
        uint64_t length = end - begin;
        if (c->want[kid] > 0 && c->want[kid] < length)
            length = c->want[kid];
        c->want[kid] -= c->want[kid] < length ? c->want[kid] : length;
        begin += length;
        *last = kid;
        tutti_err err = push(c, begin, present(c, kid)->place);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

/* A kid that may get what nobody wants. */
static uint32_t heaviest(const cutter *c)
{
    const tt_hier_node *node = &c->l->h->nodes[c->node];
    const uint64_t *weight = &c->l->weight[node->first_kid];
    uint32_t best = 0;
    for (uint32_t i = 1; i < node->n_kids; i++)
        best = weight[i] > weight[best] ? i : best;
    return best;
}

static tutti_err cut_node(cutter *c)
{
    const tt_hier_node *node = &c->l->h->nodes[c->node];
    if (node->n_kids == 0)
        return push(c, c->s->n_parts, node->first_place);
    for (uint32_t i = 0; i < node->n_kids; i++) {
        c->at[i] = 0;
        if (c->is_dealt)
            set_want(c, i, 0);
    }
    uint32_t last = heaviest(c);
    for (uint64_t begin = 0; begin < c->s->n_parts;) {
        uint64_t end = next_border(c);
        tutti_err err = c->is_dealt ? deal_interval(c, begin, end, &last)
                                    : cut_interval(c, begin, end);
        if (err)
            return err;
        advance(c, end);
        begin = end;
    }
    return TUTTI_OK;
}

static tutti_err cut_all(cutter *c)
{
    for (uint32_t v = c->l->h->n_nodes; v-- > 0;) {
        c->node = v;
        c->s->at[v].n = 0;
        tutti_err err = cut_node(c);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ make -- */

static uint32_t most_kids(const tt_hierarchy *h)
{
    uint32_t most = 1;
    for (uint32_t v = 0; v < h->n_nodes; v++)
        most = h->nodes[v].n_kids > most ? h->nodes[v].n_kids : most;
    return most;
}

static tutti_err cut_within(cutter *c, const tt_segments_limits *limits)
{
    c->max_segments = limits->by_paper;
    c->is_dealt = false;
    tutti_err err = cut_all(c);
    if (err != TOO_MANY)
        return err;
    c->max_segments = limits->at_all;
    c->is_dealt = true;
    return cut_all(c);
}

tutti_err tt_segments_make(const tt_levels *l, const tt_segments_limits *limits,
                           tt_arena *arena, tt_segments *out, tutti_diag *diag)
{
    uint32_t n_nodes = l->h->n_nodes, n_kids = most_kids(l->h);
    cutter c = {.l = l, .s = out, .arena = arena};
    uint64_t *parts = tt_arena_new(arena, n_nodes, sizeof(*parts));
    c.at = tt_arena_new(arena, n_kids, sizeof(*c.at));
    c.want = tt_arena_new(arena, n_kids, sizeof(*c.want));
    out->at = tt_arena_new(arena, n_nodes, sizeof(*out->at));
    tutti_err err = arena->err;
    if (!err) {
        out->n_parts = count_parts(l, parts);
        err = cut_within(&c, limits);
    }
    if (err == TOO_MANY)
        return tt_fail(diag, TUTTI_ELIMIT,
                       "the levels of this network cut the vector into more "
                       "than %llu segments",
                       (unsigned long long)limits->at_all);
    return err;
}
