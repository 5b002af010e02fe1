/* SPDX-License-Identifier: BSD-3-Clause
 * opening.c - checks and copies what infer.h is given, and lays out what is to
 * be measured: planes and cables.
 *
 * Next       infer.c, planes.c. */
#include <math.h>
#include <string.h>

#include "base/joined.h"
#include "infer/inference.h"
#include "infer/planes.h"

/* ------------------------------------------------------------------- check */

/* Names as many as fit into one sentence. */
enum { MAX_NAMED = 4 };

/* Which hosts reach each other, by any ports, in any direction: as far as that
 * can be known to be missing. */
typedef struct pairs {
    uint8_t *reached; /* [n_hosts][n_hosts] */
    uint8_t *shared;  /* [n_hosts][n_hosts]: they have ports of one plane */
    uint32_t *joined; /* [n_hosts]: a forest of what planes join */
} pairs;

static void mark_pairs(const tt_infer *inf, pairs *m)
{
    const tt_infer_spec *s = &inf->spec;
    tt_joined_none(m->joined, s->n_hosts);
    for (uint32_t p = 0; p < s->n_ports; p++) {
        size_t a = s->ports[p].host;
        for (uint32_t q = 0; q < s->n_ports; q++) {
            size_t b = s->ports[q].host, at = a * s->n_hosts + b;
            if (s->reach[(size_t)p * s->n_ports + q] != TT_REACH_NONE)
                m->reached[at] = m->reached[b * s->n_hosts + a] = 1;
            if (inf->plane_of[p] == TT_NONE ||
                inf->plane_of[p] != inf->plane_of[q])
                continue;
            m->shared[at] = 1;
            tt_joined_join(m->joined, s->ports[p].host, s->ports[q].host);
        }
    }
}

static bool is_one(const pairs *m, uint32_t n_hosts)
{
    for (uint32_t h = 1; h < n_hosts; h++) {
        if (tt_joined_root(m->joined, h) != tt_joined_root(m->joined, 0))
            return false;
    }
    return true;
}

/* Pairs that are missing: in a plane everybody must reach everybody. Between
 * planes that only hosts join there may be none, where all hang together: these
 * hosts do not forward. */
static tutti_err check_pairs(tt_infer *inf, const pairs *m, tutti_diag *diag)
{
    const tt_infer_spec *s = &inf->spec;
    bool is_whole = is_one(m, s->n_hosts);
    size_t n_pairs = 0;
    tt_str text = {.mem = inf->mem};
    for (size_t a = 0; a < s->n_hosts; a++) {
        for (size_t b = a + 1; b < s->n_hosts; b++) {
            size_t at = a * s->n_hosts + b;
            if (m->reached[at])
                continue;
            inf->is_apart = true;
            if ((!is_whole || m->shared[at]) && n_pairs++ < MAX_NAMED)
                tt_str_printf(&text, "%s%s and %s", n_pairs > 1 ? ", " : "",
                              s->names[a], s->names[b]);
        }
    }
    tutti_err err = text.err;
    if (!err && n_pairs > MAX_NAMED)
        err = tt_fail(diag, TUTTI_ENET,
                      "no interface of one reaches one of the other: %s, and "
                      "%zu more pairs",
                      text.data, n_pairs - MAX_NAMED);
    else if (!err && n_pairs > 0)
        err = tt_fail(diag, TUTTI_ENET,
                      "no interface of one reaches one of the other: %s",
                      text.data);
    tt_str_free(&text);
    return err;
}

static tutti_err check_reached(tt_infer *inf, tutti_diag *diag)
{
    size_t n = inf->spec.n_hosts;
    tt_arena arena = {.mem = inf->mem};
    pairs m = {.reached = tt_arena_new(&arena, n * n, 1),
               .shared = tt_arena_new(&arena, n * n, 1),
               .joined = tt_arena_new(&arena, n, sizeof(uint32_t))};
    tutti_err err = arena.err;
    if (!err) {
        mark_pairs(inf, &m);
        err = check_pairs(inf, &m, diag);
    }
    tt_arena_free(&arena);
    return err;
}

static tutti_err check_hosts(const tt_infer_spec *s, tutti_diag *diag)
{
    uint64_t n_ranks = 0;
    for (uint32_t h = 0; h < s->n_hosts; h++) {
        if (!s->names[h] || !s->names[h][0])
            return tt_fail(diag, TUTTI_EINVAL, "host %u has no name", h);
        if (s->n_ranks && s->n_ranks[h] == 0)
            return tt_fail(diag, TUTTI_EINVAL, "host %s has no rank",
                           s->names[h]);
        n_ranks += s->n_ranks ? s->n_ranks[h] : 1;
    }
    if (n_ranks > TT_MAX_RANKS)
        return tt_fail(diag, TUTTI_ELIMIT, "there are more than %u ranks",
                       TT_MAX_RANKS);
    return TUTTI_OK;
}

static tutti_err check_ports(const tt_infer_spec *s, tutti_diag *diag)
{
    for (uint32_t p = 0; p < s->n_ports; p++) {
        if (s->ports[p].host >= s->n_hosts)
            return tt_fail(diag, TUTTI_EINVAL, "port %u is on host %u of %u", p,
                           s->ports[p].host, s->n_hosts);
    }
    for (size_t i = 0; i < (size_t)s->n_ports * s->n_ports; i++) {
        if (s->reach[i] > TT_REACH_LINK)
            return tt_fail(
                diag, TUTTI_EINVAL,
                "reach from port %zu to port %zu is none of tt_infer_reach",
                i / s->n_ports, i % s->n_ports);
    }
    return TUTTI_OK;
}

tutti_err tt_infer_check(const tt_infer_spec *s, tutti_diag *diag)
{
    if (s->n_hosts == 0 || !s->names)
        return tt_fail(diag, TUTTI_EINVAL, "there are no hosts");
    if (s->n_ports > 0 && (!s->ports || !s->reach))
        return tt_fail(diag, TUTTI_EINVAL, "ports, but not what they reach");
    if (s->n_ports > TT_INFER_MAX_PORTS)
        return tt_fail(diag, TUTTI_ELIMIT,
                       "%u interfaces are more than %d; name those to be used "
                       "in TUTTI_SOCKET_IFNAME",
                       s->n_ports, TT_INFER_MAX_PORTS);
    if (s->n_hosts > TT_MAX_RANKS)
        return tt_fail(diag, TUTTI_ELIMIT, "%u hosts are more than %u",
                       s->n_hosts, TT_MAX_RANKS);
    if (!(s->noise >= 0 && s->noise < 1) ||
        !(s->unfair >= 0 && s->unfair < 1) || !(s->ack >= 0 && s->ack < 1))
        return tt_fail(diag, TUTTI_EINVAL,
                       "noise, unfairness and acknowledgements are from 0 to "
                       "1");
    tutti_err err = check_hosts(s, diag);
    return err ? err : check_ports(s, diag);
}

/* -------------------------------------------------------------------- copy */

static void *copy(tt_arena *arena, const void *from, size_t n, size_t size)
{
    void *to = tt_arena_new(arena, n, size);
    if (to)
        memcpy(to, from, n * size);
    return to;
}

static const char *copy_text(tt_arena *arena, const char *text)
{
    return text ? copy(arena, text, strlen(text) + 1, 1) : NULL;
}

static void copy_names(tt_infer *inf, const tt_infer_spec *s)
{
    tt_arena *a = &inf->arena;
    const char **names = tt_arena_new(a, s->n_hosts, sizeof(*names));
    tt_infer_port *ports = tt_arena_new(a, s->n_ports + 1, sizeof(*ports));
    for (uint32_t h = 0; !a->err && h < s->n_hosts; h++)
        names[h] = copy_text(a, s->names[h]);
    for (uint32_t p = 0; !a->err && p < s->n_ports; p++) {
        ports[p] = s->ports[p];
        ports[p].dev = copy_text(a, s->ports[p].dev);
    }
    inf->spec.names = names;
    inf->spec.ports = ports;
}

static void copy_spec(tt_infer *inf, const tt_infer_spec *s)
{
    tt_arena *a = &inf->arena;
    size_t n = s->n_ports;
    inf->spec = *s;
    inf->n_ranks = 0;
    for (uint32_t h = 0; h < s->n_hosts; h++)
        inf->n_ranks += s->n_ranks ? s->n_ranks[h] : 1;
    inf->spec.noise = s->noise > 0 ? s->noise : 0.05;
    inf->spec.unfair = s->unfair > 0 ? s->unfair : 0.1;
    copy_names(inf, s);
    inf->spec.reach = copy(a, s->reach, n * n, 1);
    if (s->n_ranks)
        inf->spec.n_ranks = copy(a, s->n_ranks, s->n_hosts, sizeof(uint32_t));
    if (s->place)
        inf->spec.place = copy(a, s->place, inf->n_ranks, sizeof(uint32_t));
}

/* ------------------------------------------------------------------ planes */

static tutti_err make_plane(tt_infer *inf, uint32_t which, uint32_t n)
{
    const tt_infer_spec *s = &inf->spec;
    tt_plane *p = &inf->planes[which];
    tutti_err err = tt_plane_open(p, n, inf->mem);
    if (err)
        return err;
    p->noise = p->seen_noise = p->lone_noise = s->noise;
    p->ack = s->ack;
    p->unfair = s->unfair;
    p->filler.tick = s->tick;
    p->filler.tick_ctx = s->tick_ctx;
    p->rng.state = s->seed + UINT64_C(0x9e3779b97f4a7c15) * which;
    uint32_t at = 0;
    for (uint32_t port = 0; port < s->n_ports; port++) {
        if (inf->plane_of[port] != which)
            continue;
        inf->leaf_of[port] = at;
        p->port[at] = port;
        p->host[at++] = s->ports[port].host;
    }
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++)
            p->can[(size_t)a * n + b] = tt_planes_may(s, p->port[a],
                                                      p->port[b]);
    }
    return TUTTI_OK;
}

static void make_cable(tt_infer *inf, uint32_t which)
{
    const tt_infer_spec *s = &inf->spec;
    tt_cable *c = &inf->cables.list[which];
    uint32_t end = 0;
    for (uint32_t port = 0; port < s->n_ports; port++) {
        if (inf->plane_of[port] != inf->n_planes + which)
            continue;
        inf->leaf_of[port] = end;
        c->port[end] = port;
        c->host[end++] = s->ports[port].host;
    }
    c->can[0] = tt_planes_may(s, c->port[0], c->port[1]);
    c->can[1] = tt_planes_may(s, c->port[1], c->port[0]);
    c->latency_s = INFINITY;
}

/* Numbers planes, then cables; *size: ports of each. */
static uint32_t renumber(tt_infer *inf, uint32_t n_all, uint32_t *size,
                         uint32_t *as)
{
    uint32_t n_ports = inf->spec.n_ports, n = 0;
    for (uint32_t p = 0; p < n_ports; p++) {
        if (inf->plane_of[p] != TT_NONE)
            size[inf->plane_of[p]]++;
    }
    for (uint32_t i = 0; i < n_all; i++)
        as[i] = size[i] > 2 ? n++ : 0;
    uint32_t n_planes = n;
    for (uint32_t i = 0; i < n_all; i++) {
        if (size[i] == 2)
            as[i] = n++;
    }
    for (uint32_t p = 0; p < n_ports; p++) {
        if (inf->plane_of[p] != TT_NONE)
            inf->plane_of[p] = as[inf->plane_of[p]];
    }
    return n_planes;
}

static tutti_err make_planes(tt_infer *inf, uint32_t n_all)
{
    tt_arena *a = &inf->arena;
    uint32_t *size = tt_arena_new(a, n_all + 1, sizeof(*size));
    uint32_t *as = tt_arena_new(a, n_all + 1, sizeof(*as));
    if (a->err)
        return TUTTI_ENOMEM;
    inf->n_planes = renumber(inf, n_all, size, as);
    inf->cables.n = n_all - inf->n_planes;
    inf->planes = tt_arena_new(a, inf->n_planes + 1, sizeof(*inf->planes));
    inf->cables.list = tt_arena_new(a, inf->cables.n + 1,
                                    sizeof(*inf->cables.list));
    if (a->err)
        return TUTTI_ENOMEM;
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < n_all && !err; i++) {
        if (size[i] > 2)
            err = make_plane(inf, as[i], size[i]);
        else
            make_cable(inf, as[i] - inf->n_planes);
    }
    return err ? err
               : tt_cables_plan(&inf->cables, inf->spec.n_hosts, inf->mem);
}

static void make_room(tt_infer *inf)
{
    tt_arena *a = &inf->arena;
    size_t n = (size_t)inf->spec.n_ports + 1;
    inf->plane_of = tt_arena_new(a, n, sizeof(uint32_t));
    inf->leaf_of = tt_arena_new(a, n, sizeof(uint32_t));
    inf->ways = tt_arena_new(a, 2 * n, sizeof(*inf->ways));
    inf->silence = tt_arena_new(a, inf->spec.n_hosts, sizeof(*inf->silence));
    for (uint32_t h = 0; inf->silence && h < inf->spec.n_hosts; h++)
        inf->silence[h].peer = TT_NONE;
}

tutti_err tt_infer_make(tt_infer *inf, const tt_infer_spec *spec,
                        tutti_diag *diag)
{
    uint32_t n_all = 0;
    copy_spec(inf, spec);
    make_room(inf);
    tutti_err err = inf->arena.err;
    if (!err)
        err = tt_planes_find(&inf->spec, inf->mem, inf->plane_of, &n_all);
    if (!err)
        err = check_reached(inf, diag);
    if (!err)
        err = make_planes(inf, n_all);
    return err && err != TUTTI_ENET ? tt_fail(diag, err, "out of memory") : err;
}
