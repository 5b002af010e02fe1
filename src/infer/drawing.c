/* SPDX-License-Identifier: BSD-3-Clause
 * drawing.c - what was found, as a network (topology/topology.h), with a note
 * for each of its figures.
 *
 * Names      Hosts as they were given. The switch of a plane is `switch0`,
 *            `switch1`, ... by plane; one that others hang from is `core0`, and
 *            these are `rack0`, `rack1`, ... by their first interface, as are
 *            two that are joined by one trunk. (`net-` is put before a name
 *            that a host has.)
 * Next       linkfigures.c, delays.c; findings.c keeps the notes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/joined.h"
#include "infer/cutsearch.h"
#include "infer/inference.h"

typedef struct drawer {
    tt_infer *inf;
    tt_topo_builder *b;
    tt_arena arena;
    uint32_t *host_node; /* [n_hosts] */
    uint32_t *joined;    /* [n_hosts + planes]: a forest of what is connected */
    uint32_t n_racks;
    bool has_latency;
    tt_plane *plane; /* the present one, and its figures */
    tt_figures figures;
    uint32_t which;
    uint32_t *node;     /* [n_nodes]: in the network */
    char (*names)[300]; /* [n_nodes] */
} drawer;

static uint64_t picoseconds(double seconds)
{
    /* Whole nanoseconds, three digits. */
    return seconds < INFINITY ? tt_figure_round(seconds * 1e9) * 1000 : 0;
}

/* 0: nobody doubts it. */
static uint64_t least_of(const tt_figure *w)
{
    return w->kept > 0 ? tt_figure_round(w->bps * w->kept) : 0;
}

static tt_wire wire_of(drawer *d, uint32_t at)
{
    const tt_figures *f = &d->figures;
    tt_wire w = {.up_bps = tt_figure_rate(f->way[0][at].bps),
                 .down_bps = tt_figure_rate(f->way[1][at].bps),
                 .up_least_bps = least_of(&f->way[0][at]),
                 .down_least_bps = least_of(&f->way[1][at]),
                 .latency_ps = picoseconds(f->latency_s[at])};
    d->has_latency |= w.latency_ps > 0;
    return w;
}

/* ------------------------------------------------------------------- notes */

static void note_way(const tt_figure *w, const char *way, tt_str *text)
{
    const tt_evidence *e = &w->evidence;
    char rate[32];
    tt_rate_text(w->bps, rate);
    if (w->is_unknown)
        tt_str_printf(text, "%s not measured", way);
    else if (e->n_looks == 0) /* the other way of a trunk */
        tt_str_printf(text, "%s never the limit: %s as what is below it", way,
                      rate);
    else if (w->is_least)
        tt_str_printf(text, "%s %s or more: never the limit in %u round%s", way,
                      rate, e->n_looks, e->n_looks == 1 ? "" : "s");
    else
        tt_str_printf(text, "%s %s, full in %u of %u round%s", way, rate,
                      e->n_full, e->n_looks, e->n_looks == 1 ? "" : "s");
    if (w->kept > 0)
        tt_str_printf(text, ", but perhaps only %s, which is planned for, too",
                      tt_rate_text(w->bps * w->kept, rate));
}

static void note_link(drawer *d, uint32_t at, const char *from, const char *dev,
                      const char *to)
{
    tt_str text = {.mem = d->inf->mem};
    const tt_figure *up = &d->figures.way[0][at],
                    *down = &d->figures.way[1][at];
    bool is_unknown = up->is_least || up->is_unknown || down->is_least ||
                      down->is_unknown;
    bool is_doubtful = up->kept > 0 || down->kept > 0;
    note_way(up, "up", &text);
    tt_str_puts(&text, "; ");
    note_way(down, "down", &text);
    tt_str_add(&text, "", 1);
    if (text.err)
        d->inf->text.err = text.err;
    else
        tt_note(d->inf,
                is_doubtful  ? TT_NOTE_DOUBT
                : is_unknown ? TT_NOTE_UNKNOWN
                             : TT_NOTE_LINK,
                "%s%s%s - %s: %s", from, dev ? " " : "", dev ? dev : "", to,
                text.data);
    tt_str_free(&text);
}

/* Of flows, how many are far from what the network as drawn says? */
static void note_misfit(drawer *d)
{
    const tt_plane *p = d->plane;
    uint32_t n_far = p->spare.n_far, n = p->looks.n_told_flows;
    if (n_far > 2 + n / 50)
        tt_note(d->inf, TT_NOTE_DOUBT,
                "%s: %u of %u flows ran at another rate than this network "
                "explains; links in loops, interfaces that share a wire "
                "(VLANs), other traffic, or hosts that are too slow do that",
                d->names[0], n_far, n);
}

static void note_size(drawer *d)
{
    if (d->plane->n > TT_CUTSEARCH_LEAVES)
        tt_note(d->inf, TT_NOTE_UNKNOWN,
                "%s: racks were not looked for, of more than %d interfaces",
                d->names[0], TT_CUTSEARCH_LEAVES);
}

/* The port that is used instead; TT_NONE: it is used itself, or reaches
 * nobody. */
static uint32_t used_instead(const tt_infer *inf, uint32_t port)
{
    const tt_infer_port *ports = inf->spec.ports;
    uint32_t p = 0, n = inf->spec.n_ports;
    while (p < n &&
           (ports[p].host != ports[port].host ||
            ports[p].card != ports[port].card || inf->plane_of[p] == TT_NONE))
        p++;
    bool is_out = ports[port].card && inf->plane_of[port] == TT_NONE;
    return is_out && p < n ? p : TT_NONE;
}

static void note_shared(drawer *d)
{
    const tt_infer *inf = d->inf;
    uint32_t n = 0, first = 0;
    for (uint32_t p = inf->spec.n_ports; p-- > 0;) {
        if (used_instead(inf, p) == TT_NONE)
            continue;
        first = p;
        n++;
    }
    if (n == 0)
        return;
    const char *dev = tt_port_dev(inf, first);
    const char *other = tt_port_dev(inf, used_instead(inf, first));
    tt_note(d->inf, TT_NOTE_UNKNOWN,
            "%s of %s is left out, and so are %u more: it is on one card with "
            "%s",
            dev ? dev : "", tt_host_name(inf, inf->spec.ports[first].host),
            n - 1, other ? other : "another");
}

static void note_common(drawer *d)
{
    const tt_infer *inf = d->inf;
    bool any = inf->n_planes + inf->cables.n > 0;
    if (inf->is_cut)
        tt_note(d->inf, TT_NOTE_UNKNOWN,
                "ended after %u rounds, before everything was measured: thin "
                "trunks may be missing",
                inf->number);
    if (inf->cables.n > 0)
        tt_note(d->inf, TT_NOTE_UNKNOWN,
                "of two interfaces that reach only each other the slower one "
                "gives the rate");
    if (inf->n_planes > 0)
        tt_note(d->inf, TT_NOTE_UNKNOWN,
                "switches and trunks that never hold traffic back do not show");
    if (inf->n_planes > 0)
        tt_note(d->inf, TT_NOTE_UNKNOWN,
                "switches are drawn as a tree: where they have loops (several "
                "spines, a ring) its trunks are what the measured flows could "
                "have");
    if (inf->is_apart)
        tt_note(d->inf, TT_NOTE_UNKNOWN,
                "some hosts reach each other by way of others only, which do "
                "not forward");
    note_shared(d);
    if (any && !d->has_latency)
        tt_note(d->inf, TT_NOTE_UNKNOWN, "latencies were not measured");
    if (inf->n_ranks > inf->spec.n_hosts)
        tt_note(d->inf, TT_NOTE_UNKNOWN,
                "memory of hosts with several ranks was not measured: 10 GB/s "
                "is assumed");
}

/* ------------------------------------------------------------------- nodes */

static bool is_taken(const drawer *d, const char *name)
{
    for (uint32_t h = 0; h < d->inf->spec.n_hosts; h++) {
        if (strcmp(tt_host_name(d->inf, h), name) == 0)
            return true;
    }
    return false;
}

static void add_switch(drawer *d, uint32_t v, const char *kind, uint32_t number)
{
    char *name = d->names[v];
    size_t size = sizeof(d->names[v]), len = 0;
    for (;;) {
        snprintf(name + len, size - len, "%s%u", kind, number);
        if (!is_taken(d, name) || len + 32 > size)
            break;
        memcpy(name + len, "net-", 4);
        len += 4;
    }
    d->node[v] = tt_topo_switch(d->b, name);
}

static void add_switches(drawer *d)
{
    const tt_tree *t = d->plane->tree;
    if (t->n_nodes == 1) {
        add_switch(d, 0, "switch", d->which);
        return;
    }
    uint32_t n_inner = 0;
    for (uint32_t v = 1; v < t->n_nodes; v++)
        n_inner += t->nodes[v].parent == 0;
    /* The two ends of one trunk are of one kind. */
    if (n_inner == 1)
        add_switch(d, 0, "rack", d->n_racks++);
    else
        add_switch(d, 0, "core", d->which);
    /* By first leaf; of those with the same the larger first. */
    for (uint32_t i = 0; i < d->plane->n; i++) {
        for (uint32_t v = 1; v < t->n_nodes; v++) {
            if (!d->names[v][0] && tt_set_has(t->nodes[v].in, i))
                add_switch(d, v, "rack", d->n_racks++);
        }
    }
}

static void add_hosts(drawer *d)
{
    const tt_infer_spec *s = &d->inf->spec;
    tt_topo_forwards(d->b, !d->inf->is_apart);
    for (uint32_t h = 0; h < s->n_hosts; h++)
        d->host_node[h] = tt_topo_big_host(
            d->b, s->names[h], s->n_ranks ? s->n_ranks[h] : 1, &tt_wire_memory);
}

/* ------------------------------------------------------------------- links */

static void add_leaves(drawer *d)
{
    const tt_plane *p = d->plane;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t host = p->host[i], v = p->tree->leaf_node[i];
        const char *name = tt_host_name(d->inf, host);
        tt_wire w = wire_of(d, i);
        w.dev = tt_port_dev(d->inf, p->port[i]);
        if (w.up_bps == 0) {
            tt_note(d->inf, TT_NOTE_DOUBT,
                    "%s %s is left out: none of its flows could be measured",
                    name, w.dev ? w.dev : "");
            continue;
        }
        tt_topo_link(d->b, d->host_node[host], d->node[v], &w);
        note_link(d, i, name, w.dev, d->names[v]);
        tt_joined_join(d->joined, host, d->inf->spec.n_hosts + d->which);
    }
}

static void add_trunks(drawer *d)
{
    const tt_tree *t = d->plane->tree;
    for (uint32_t v = 1; v < t->n_nodes; v++) {
        uint32_t up = t->nodes[v].parent;
        tt_wire w = wire_of(d, d->plane->n + v);
        /* Nothing below it was measured: only so that it hangs together. */
        w.up_bps = w.up_bps ? w.up_bps : 1;
        w.down_bps = w.down_bps ? w.down_bps : 1;
        tt_topo_link(d->b, d->node[v], d->node[up], &w);
        note_link(d, d->plane->n + v, d->names[v], NULL, d->names[up]);
    }
}

static tutti_err draw_plane(drawer *d, uint32_t which)
{
    d->which = which;
    d->plane = &d->inf->planes[which];
    tutti_err err = tt_link_figures(d->plane, &d->arena, &d->figures);
    uint32_t n = d->plane->tree->n_nodes;
    d->node = tt_arena_new(&d->arena, n, sizeof(*d->node));
    d->names = tt_arena_new(&d->arena, n, sizeof(*d->names));
    if (err || d->arena.err)
        return TUTTI_ENOMEM;
    add_switches(d);
    add_leaves(d);
    add_trunks(d);
    note_misfit(d);
    note_size(d);
    return TUTTI_OK;
}

/* A cable, and its figures. */
typedef struct wire {
    const tt_cable *cable;
    double bps[2], latency_s;
    double least_bps[2]; /* 0: no doubt */
    const char *from, *to;
} wire;

static void note_cable(drawer *d, wire *w)
{
    char up[32], down[32];
    const tt_cable_way *way = w->cable->way;
    tt_note(d->inf, TT_NOTE_LINK,
            "%s - %s: up %s, down %s, in the middle of %u rounds", w->from,
            w->to, tt_rate_text(w->bps[0], up), tt_rate_text(w->bps[1], down),
            way[0].n_alone);
    for (int back = 0; back < 2; back++) {
        double together, bps = tt_cable_rate(w->cable, back, &together);
        if (together <= 0 || together >= bps * 0.85)
            continue;
        tt_note(d->inf, TT_NOTE_DOUBT,
                "%s - %s: only %s %s while all cables are in use: the hosts "
                "have limits of their own, and that is planned for, too",
                w->from, w->to, back ? "down" : "up",
                tt_rate_text(together, up));
        w->least_bps[back] = together;
    }
}

static const char *dev_text(const drawer *d, uint32_t port)
{
    const char *dev = tt_port_dev(d->inf, port);
    return dev ? dev : "";
}

static void draw_cable(drawer *d, wire *w)
{
    const tt_cable *c = w->cable;
    w->from = tt_host_name(d->inf, c->host[0]);
    w->to = tt_host_name(d->inf, c->host[1]);
    if (w->bps[0] <= 0 && w->bps[1] <= 0) {
        tt_note(d->inf, TT_NOTE_DOUBT,
                "%s %s - %s %s is left out: nothing could be measured", w->from,
                dev_text(d, c->port[0]), w->to, dev_text(d, c->port[1]));
        return;
    }
    if (w->bps[0] <= 0 || w->bps[1] <= 0) {
        tt_note(d->inf, TT_NOTE_UNKNOWN,
                "%s - %s: measured one way only, the other is taken as equal",
                w->from, w->to);
        w->bps[0] = w->bps[1] = fmax(w->bps[0], w->bps[1]);
    }
    note_cable(d, w);
    tt_wire link = {.up_bps = tt_figure_rate(w->bps[0]),
                    .down_bps = tt_figure_rate(w->bps[1]),
                    .up_least_bps = tt_figure_round(w->least_bps[0]),
                    .down_least_bps = tt_figure_round(w->least_bps[1]),
                    .latency_ps = picoseconds(w->latency_s),
                    .dev = tt_port_dev(d->inf, c->port[0]),
                    .far_dev = tt_port_dev(d->inf, c->port[1])};
    d->has_latency |= link.latency_ps > 0;
    tt_topo_link(d->b, d->host_node[c->host[0]], d->host_node[c->host[1]],
                 &link);
    tt_joined_join(d->joined, c->host[0], c->host[1]);
}

/* Cables that errors alone can make differ are equal, too. */
static tutti_err draw_cables(drawer *d)
{
    const tt_cables *c = &d->inf->cables;
    tt_arena *a = &d->arena;
    double together;
    double *bps = tt_arena_new(a, (size_t)2 * c->n, sizeof(*bps));
    double *latency = tt_arena_new(a, c->n, sizeof(*latency));
    for (uint32_t i = 0; i < c->n && !a->err; i++) {
        const tt_cable *w = &c->list[i];
        bps[2 * i] = tt_cable_rate(w, 0, &together);
        bps[2 * i + 1] = tt_cable_rate(w, 1, &together);
        latency[i] = w->latency_s < INFINITY ? w->latency_s : 0;
    }
    if (a->err || tt_figures_even(bps, 2 * c->n, TT_RATE_SPREAD, a) ||
        tt_figures_even(latency, c->n, TT_LATENCY_SPREAD, a))
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < c->n; i++) {
        wire w = {.cable = &c->list[i],
                  .bps = {bps[2 * i], bps[2 * i + 1]},
                  .latency_s = latency[i]};
        draw_cable(d, &w);
    }
    return TUTTI_OK;
}

/* --------------------------------------------------------------------- all */

static tutti_err check_joined(drawer *d, tutti_diag *diag)
{
    const tt_infer *inf = d->inf;
    for (uint32_t h = 1; h < inf->spec.n_hosts; h++) {
        if (tt_joined_root(d->joined, h) != tt_joined_root(d->joined, 0))
            return tt_fail(diag, TUTTI_ENET,
                           "too little was measured: nothing between hosts %s "
                           "and %s after %u rounds%s",
                           tt_host_name(inf, 0), tt_host_name(inf, h),
                           inf->number,
                           inf->is_cut ? "; it needs more time" : "");
    }
    return TUTTI_OK;
}

static tutti_err draw_all(drawer *d, tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    add_hosts(d);
    for (uint32_t i = 0; i < d->inf->n_planes && !err; i++)
        err = draw_plane(d, i);
    if (!err)
        err = draw_cables(d);
    if (!err) {
        note_common(d);
        err = d->inf->text.err;
    }
    if (err)
        return tt_fail(diag, err, "out of memory");
    tt_topo_sockets(d->b, d->inf->n_sockets);
    if (d->inf->spec.place)
        tt_topo_place(d->b, d->inf->spec.place, d->inf->n_ranks);
    return check_joined(d, diag);
}

tutti_err tt_draw(tt_infer *inf, tutti_topology **out, tutti_diag *diag)
{
    drawer d = {.inf = inf, .arena = {.mem = inf->mem}};
    uint32_t n = inf->spec.n_hosts + inf->n_planes;
    tt_notes_clear(inf);
    tutti_err err = tt_topo_builder_create(inf->mem, &d.b, diag);
    if (err)
        return err;
    d.host_node = tt_arena_new(&d.arena, n, sizeof(*d.host_node));
    d.joined = tt_arena_new(&d.arena, n, sizeof(*d.joined));
    if (d.joined)
        tt_joined_none(d.joined, n);
    err = d.arena.err ? tt_fail(diag, TUTTI_ENOMEM, "out of memory")
                      : draw_all(&d, diag);
    tt_arena_free(&d.arena);
    if (!err)
        return tt_topo_seal(d.b, out, diag);
    tt_topo_builder_free(d.b);
    return err;
}
