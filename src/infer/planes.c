/* SPDX-License-Identifier: BSD-3-Clause
 * planes.c - ports to planes: what one switch, some switches or a router join.
 *
 * Idea       Ports that reach each other by a link are together (a **subnet**).
 *            So are subnets that a router joins - but not those that only other
 *            hosts join, by passing on what is not for them: on a torus of
 *            cables everybody reaches everybody, and yet there are only the
 *            cables. Two subnets stay apart when they
 *              1. have a port of the same host (it would reach itself), or
 *              2. have hosts that cables (subnets of two hosts) connect.
 *            Of the others those whose ports have the same names are joined
 *            first: rail 0 of one rack with rail 0 of the next. If hosts are
 *            left that are connected by nothing, whatever reaches joins.
 * Cards      VLANs of one card are planes that have one another's rate. One
 *            that has all its interfaces on cards of another plane, which joins
 *            the same hosts, is left out.
 * Cost       ports^2, and subnets^2 bits.
 * Next       infer.c. */
#include "infer/planes.h"
#include "base/joined.h"
#include "base/sets.h"

#include <string.h>

typedef struct finder {
    const tt_infer_spec *spec;
    tt_arena arena;
    uint32_t
        *subnet; /* [n_ports]: a forest of sets; the roots stand for them */
    uint32_t *cabled; /* [n_hosts]: the same, of hosts that cables connect */
    uint64_t *apart;  /* [n_ports][n_words]: of subnets that are roots */
    uint32_t n_words;
    uint32_t *mate; /* [n_ports]: the next one on the same card */
} finder;

static uint8_t reach(const finder *f, uint32_t p, uint32_t q)
{
    const tt_infer_spec *s = f->spec;
    if (s->ports[p].host == s->ports[q].host)
        return TT_REACH_NONE;
    uint8_t to = s->reach[(size_t)p * s->n_ports + q];
    uint8_t from = s->reach[(size_t)q * s->n_ports + p];
    return to > from ? to : from;
}

static void join_links(finder *f)
{
    for (uint32_t p = 0; p < f->spec->n_ports; p++) {
        for (uint32_t q = 0; q < p; q++) {
            if (reach(f, p, q) == TT_REACH_LINK)
                tt_joined_join(f->subnet, p, q);
        }
    }
}

/* Hosts whose subnet has nobody else are connected by a cable. */
static tutti_err join_cabled(finder *f)
{
    const tt_infer_spec *s = f->spec;
    uint32_t *a = tt_arena_new(&f->arena, s->n_ports, sizeof(*a));
    uint32_t *b = tt_arena_new(&f->arena, s->n_ports, sizeof(*b));
    uint8_t *n = tt_arena_new(&f->arena, s->n_ports, 1); /* hosts, up to 3 */
    if (f->arena.err)
        return TUTTI_ENOMEM;
    for (uint32_t p = 0; p < s->n_ports; p++) {
        uint32_t r = tt_joined_root(f->subnet, p), host = s->ports[p].host;
        if (n[r] == 0)
            a[r] = host;
        else if (host != a[r] && n[r] == 1)
            b[r] = host;
        else if (host == a[r] || (n[r] > 1 && host == b[r]))
            continue;
        n[r] += n[r] < 3;
    }
    for (uint32_t r = 0; r < s->n_ports; r++) {
        if (n[r] == 2)
            tt_joined_join(f->cabled, a[r], b[r]);
    }
    return TUTTI_OK;
}

static bool are_apart(const finder *f, uint32_t a, uint32_t b)
{
    return tt_set_has(f->apart + (size_t)a * f->n_words, b);
}

static void part(finder *f, uint32_t a, uint32_t b)
{
    tt_set_add(f->apart + (size_t)a * f->n_words, b);
    tt_set_add(f->apart + (size_t)b * f->n_words, a);
}

/* By the two rules above. */
static void find_apart(finder *f)
{
    const tt_infer_spec *s = f->spec;
    for (uint32_t p = 0; p < s->n_ports; p++) {
        uint32_t a = tt_joined_root(f->subnet, p);
        for (uint32_t q = 0; q < p; q++) {
            uint32_t b = tt_joined_root(f->subnet, q);
            uint32_t hp = s->ports[p].host, hq = s->ports[q].host;
            if (a != b &&
                tt_joined_root(f->cabled, hp) == tt_joined_root(f->cabled, hq))
                part(f, a, b);
        }
    }
}

static void join(finder *f, uint32_t a, uint32_t b)
{
    tt_joined_join(f->subnet, a, b);
    uint32_t r = tt_joined_root(f->subnet, a), gone = r == a ? b : a;
    const uint64_t *lost = f->apart + (size_t)gone * f->n_words;
    for (uint32_t c = 0; c < f->spec->n_ports; c++) {
        if (tt_set_has(lost, c))
            part(f, r, c);
    }
}

static bool same_name(const finder *f, uint32_t p, uint32_t q)
{
    const char *a = f->spec->ports[p].dev, *b = f->spec->ports[q].dev;
    return a && b && strcmp(a, b) == 0;
}

static void join_routed(finder *f, bool same_names)
{
    for (uint32_t p = 0; p < f->spec->n_ports; p++) {
        for (uint32_t q = 0; q < p; q++) {
            if (reach(f, p, q) != TT_REACH_ROUTED ||
                (same_names && !same_name(f, p, q)))
                continue;
            uint32_t a = tt_joined_root(f->subnet, p),
                     b = tt_joined_root(f->subnet, q);
            if (a != b && !are_apart(f, a, b))
                join(f, a, b);
        }
    }
}

/* Hosts that nothing connects yet. */
static void join_rest(finder *f)
{
    const tt_infer_spec *s = f->spec;
    uint32_t *host = f->cabled; /* from now on: by whatever connects */
    for (uint32_t p = 0; p < s->n_ports; p++) {
        for (uint32_t q = 0; q < p; q++) {
            if (tt_joined_root(f->subnet, p) == tt_joined_root(f->subnet, q))
                tt_joined_join(host, s->ports[p].host, s->ports[q].host);
        }
    }
    for (uint32_t p = 0; p < s->n_ports; p++) {
        for (uint32_t q = 0; q < p; q++) {
            uint32_t hp = s->ports[p].host, hq = s->ports[q].host;
            if (reach(f, p, q) == TT_REACH_NONE ||
                tt_joined_root(host, hp) == tt_joined_root(host, hq))
                continue;
            tt_joined_join(host, hp, hq);
            tt_joined_join(f->subnet, p, q);
        }
    }
}

static bool is_alone(finder *f, uint32_t port)
{
    for (uint32_t q = 0; q < f->spec->n_ports; q++) {
        if (q != port &&
            tt_joined_root(f->subnet, q) == tt_joined_root(f->subnet, port))
            return false;
    }
    return true;
}

static void number(finder *f, uint32_t *of, uint32_t *n_planes)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < f->spec->n_ports; p++) {
        uint32_t r = tt_joined_root(f->subnet, p);
        if (r < p)
            of[p] = of[r];
        else
            of[p] = is_alone(f, p) ? TT_NONE : n++;
    }
    *n_planes = n;
}

/* ------------------------------------------------------- one card, twice -- */

/* The ports of a host on one card, in rings. */
static void find_mates(finder *f)
{
    const tt_infer_port *ports = f->spec->ports;
    for (uint32_t p = 0; p < f->spec->n_ports; p++) {
        f->mate[p] = p;
        for (uint32_t q = 0; q < p && f->mate[p] == p && ports[p].card; q++) {
            if (ports[q].host != ports[p].host ||
                ports[q].card != ports[p].card)
                continue;
            f->mate[p] = f->mate[q];
            f->mate[q] = p;
        }
    }
}

/* The port's mate in the plane; TT_NONE: there is none. */
static uint32_t mate_in(const finder *f, const uint32_t *of, uint32_t port,
                        uint32_t plane)
{
    uint32_t p = f->mate[port];
    while (p != port && of[p] != plane)
        p = f->mate[p];
    return p != port ? p : TT_NONE;
}

static bool reaches(const finder *f, uint32_t p, uint32_t q)
{
    return f->spec->reach[(size_t)p * f->spec->n_ports + q] != TT_REACH_NONE;
}

/* To the host by any port, both ways? */
static bool reaches_host(const finder *f, uint32_t port, uint32_t host)
{
    bool to = false, from = false;
    for (uint32_t q = 0; q < f->spec->n_ports; q++) {
        if (f->spec->ports[q].host != host)
            continue;
        to |= reaches(f, port, q);
        from |= reaches(f, q, port);
    }
    return to && from;
}

/* Does the mate reach the hosts that the port reaches? */
static bool is_as_good(const finder *f, uint32_t mate, uint32_t port)
{
    for (uint32_t q = 0; q < f->spec->n_ports; q++) {
        if ((reaches(f, port, q) || reaches(f, q, port)) &&
            !reaches_host(f, mate, f->spec->ports[q].host))
            return false;
    }
    return true;
}

/* In one plane: the first port on a card stays. */
static void leave_out_twins(const finder *f, uint32_t *of)
{
    for (uint32_t p = f->spec->n_ports; p-- > 0;) {
        uint32_t first = of[p] == TT_NONE ? TT_NONE : mate_in(f, of, p, of[p]);
        if (first != TT_NONE && first < p && is_as_good(f, first, p))
            of[p] = TT_NONE;
    }
}

/* Is all that `less` joins joined by `more` too, by the same cards? */
static bool covers(const finder *f, const uint32_t *of, uint32_t more,
                   uint32_t less)
{
    uint32_t n = f->spec->n_ports;
    for (uint32_t a = 0; a < n; a++) {
        uint32_t p = of[a] == less ? mate_in(f, of, a, more) : 0;
        if (p == TT_NONE)
            return false;
        for (uint32_t b = 0; b < n && of[a] == less; b++) {
            uint32_t q = of[b] == less ? mate_in(f, of, b, more) : TT_NONE;
            if (q != TT_NONE && reaches(f, a, b) && !reaches(f, p, q))
                return false;
        }
    }
    return true;
}

/* Another plane with all that this one has. Of two that are equal the first
 * stays. */
static bool is_covered(const finder *f, const uint32_t *of, uint32_t plane)
{
    uint32_t port = 0;
    while (of[port] != plane)
        port++;
    for (uint32_t p = f->mate[port]; p != port; p = f->mate[p]) {
        uint32_t other = of[p];
        if (other != TT_NONE && other != plane && covers(f, of, other, plane) &&
            (other < plane || !covers(f, of, plane, other)))
            return true;
    }
    return false;
}

static void leave_out_shared(const finder *f, uint32_t *of, uint32_t *n_planes)
{
    leave_out_twins(f, of);
    for (uint32_t plane = *n_planes; plane-- > 0;) {
        if (!is_covered(f, of, plane))
            continue;
        for (uint32_t p = 0; p < f->spec->n_ports; p++) {
            if (of[p] == plane)
                of[p] = TT_NONE;
            else if (of[p] != TT_NONE && of[p] > plane)
                of[p]--;
        }
        --*n_planes;
    }
}

static tutti_err make(finder *f)
{
    uint32_t n = f->spec->n_ports, n_hosts = f->spec->n_hosts;
    f->n_words = (n + 63) / 64;
    f->subnet = tt_arena_new(&f->arena, n, sizeof(*f->subnet));
    f->cabled = tt_arena_new(&f->arena, n_hosts, sizeof(*f->cabled));
    f->apart = tt_arena_new(&f->arena, (size_t)n * f->n_words,
                            sizeof(*f->apart));
    f->mate = tt_arena_new(&f->arena, n, sizeof(*f->mate));
    if (f->arena.err)
        return TUTTI_ENOMEM;
    tt_joined_none(f->subnet, n);
    tt_joined_none(f->cabled, n_hosts);
    return TUTTI_OK;
}

tutti_err tt_planes_find(const tt_infer_spec *spec, const tt_mem *mem,
                         uint32_t *of, uint32_t *n_planes)
{
    finder f = {.spec = spec, .arena = {.mem = mem}};
    *n_planes = 0;
    if (spec->n_ports == 0)
        return TUTTI_OK;
    tutti_err err = make(&f);
    if (!err) {
        join_links(&f);
        err = join_cabled(&f);
    }
    if (!err) {
        find_apart(&f);
        join_routed(&f, true);
        join_routed(&f, false);
        join_rest(&f);
        number(&f, of, n_planes);
        find_mates(&f);
        leave_out_shared(&f, of, n_planes);
    }
    tt_arena_free(&f.arena);
    return err;
}
