/* SPDX-License-Identifier: BSD-3-Clause
 * world.c - see world.h. */
#include "support/world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ------------------------------------------------------------------ numbers */

static uint32_t below(tt_rng *rng, uint32_t limit)
{
    return (uint32_t)tt_rng_below(rng, limit);
}

static double uniform(tt_rng *rng)
{
    return (double)(tt_rng_next(rng) >> 11) * 0x1p-53;
}

static double between(tt_rng *rng, double a, double b)
{
    return a * pow(b / a, uniform(rng));
}

double world_gauss(tt_rng *rng)
{
    double u = fmax(uniform(rng), 1e-300), v = uniform(rng);
    double g = sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * v);
    return fmin(fmax(g, -3), 3);
}

/* ------------------------------------------------------------------- making */

static uint32_t add_node(world *w, int parent, double up, double down)
{
    uint32_t v = w->n_nodes++;
    w->parent[v] = parent;
    w->up[v] = up;
    w->down[v] = down;
    w->latency_s[v] = 10e-6;
    return v;
}

/* All ports of a plane come first, so room is kept for them. */
static void add_port(world *w, uint32_t host, const char *dev, double bps)
{
    uint32_t p = w->n_ports++;
    w->ports[p] = (tt_infer_port){.host = host, .dev = dev};
    w->up[p] = w->down[p] = bps;
    w->latency_s[p] = 10e-6;
    w->parent[p] = -1;
}

static void add_hosts(world *w, uint32_t n)
{
    w->n_hosts = n;
    for (uint32_t h = 0; h < n; h++) {
        snprintf(w->name_text[h], sizeof(w->name_text[h]), "h%u", h);
        w->names[h] = w->name_text[h];
    }
}

/* Reach within trees; call when all nodes are there. */
static void set_reach(world *w)
{
    for (uint32_t p = 0; p < w->n_ports; p++) {
        for (uint32_t q = 0; q < w->n_ports; q++) {
            bool links = w->ports[p].host != w->ports[q].host &&
                         world_root(w, p) == world_root(w, q);
            w->reach[p * w->n_ports + q] = links ? TT_REACH_LINK
                                                 : TT_REACH_NONE;
        }
    }
}

void world_star(world *w, uint32_t n, double bps)
{
    *w = (world){.kind = WORLD_STAR};
    add_hosts(w, n);
    for (uint32_t h = 0; h < n; h++)
        add_port(w, h, "eth0", bps);
    w->n_nodes = n;
    uint32_t root = add_node(w, -1, 0, 0);
    for (uint32_t p = 0; p < n; p++)
        w->parent[p] = (int)root;
    set_reach(w);
}

uint32_t world_rack(world *w, uint32_t from, uint32_t to, double up,
                    double down)
{
    uint32_t v = add_node(w, w->parent[from], up, down);
    for (uint32_t p = from; p < to; p++)
        w->parent[p] = (int)v;
    return v;
}

/* The ports of the plane that is being made. */
typedef struct plane {
    world *w;
    tt_rng *rng;
    uint32_t first, n, root;
    double bps;
} plane;

static void make_uneven(plane *p)
{
    world *w = p->w;
    static const double some[] = {1, .4, .1, 2.5};
    bool uneven_ways = below(p->rng, 2);
    uint32_t mode = below(p->rng, 3);
    for (uint32_t i = p->first; i < p->first + p->n; i++) {
        double f = some[below(p->rng, 4)];
        if (mode == 0)
            f = below(p->rng, 4) == 0 ? between(p->rng, .1, 1) : 1;
        else if (mode == 1)
            f = between(p->rng, .1, 1);
        w->up[i] = w->down[i] = p->bps * f;
        if (uneven_ways && mode == 1)
            w->down[i] = p->bps * between(p->rng, .1, 1);
        else if (uneven_ways && below(p->rng, 2))
            w->down[i] *= .25;
    }
}

static void sum_below(const plane *p, uint32_t v, double *up, double *down)
{
    *up = *down = 0;
    for (uint32_t i = p->first; i < p->first + p->n; i++) {
        if (p->w->parent[i] != (int)v)
            continue;
        *up += p->w->up[i];
        *down += p->w->down[i];
    }
}

static void make_racks(plane *p, bool uneven)
{
    world *w = p->w;
    uint32_t most = p->n / 2 < 2 ? 1 : p->n > 13 ? 5 : p->n / 2 - 1;
    uint32_t n_racks = 2 + below(p->rng, most), first = w->n_nodes;
    bool equal = below(p->rng, 2), uneven_ways = below(p->rng, 3) == 0;
    double over = between(p->rng, 1.3, 6);
    for (uint32_t k = 0; k < n_racks; k++)
        add_node(w, (int)p->root, 0, 0);
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t at = p->first + i, k = i % n_racks;
        if (!equal)
            k = i < 2 * n_racks ? i / 2 : below(p->rng, n_racks);
        w->parent[at] = (int)(first + k);
        if (!uneven || below(p->rng, 3) > 0)
            continue;
        w->up[at] *= between(p->rng, .2, 1);
        w->down[at] = uneven_ways ? w->down[at] * between(p->rng, .2, 1)
                                  : w->up[at];
    }
    for (uint32_t v = first; v < first + n_racks; v++) {
        double up, down, o = equal ? over : between(p->rng, 1.2, 6);
        sum_below(p, v, &up, &down);
        if (!equal && below(p->rng, 4) == 0)
            o = .8;
        w->up[v] = fmax(up, 1e6) / o;
        w->down[v] = fmax(down, 1e6) /
                     (uneven_ways ? between(p->rng, 1.2, 6) : o);
    }
}

static void make_pods(plane *p)
{
    world *w = p->w;
    uint32_t n_pods = 2 + below(p->rng, 2), racks[8], n_racks = 0;
    double over = between(p->rng, 1.3, 4), again = between(p->rng, 1.3, 4);
    for (uint32_t a = 0; a < n_pods; a++) {
        uint32_t pod = add_node(w, (int)p->root, 0, 0);
        for (uint32_t k = 0; k < 2; k++)
            racks[n_racks++] = add_node(w, (int)pod, 0, 0);
    }
    for (uint32_t i = 0; i < p->n; i++)
        w->parent[p->first + i] = (int)racks[i % n_racks];
    for (uint32_t k = 0; k < n_racks; k++) {
        uint32_t v = racks[k], pod = (uint32_t)w->parent[v];
        double up, down;
        sum_below(p, v, &up, &down);
        w->up[v] = w->down[v] = fmax(up, p->bps) / over;
        w->up[pod] = w->down[pod] = w->up[pod] + w->up[v] / again;
    }
}

static void make_tree(plane *p)
{
    world *w = p->w;
    uint32_t at[20] = {p->root}, depth[20] = {0}, n = 1;
    uint32_t wanted = 1 + below(p->rng, p->n / 2 + 1);
    for (uint32_t k = 0; k < wanted && n < 20; k++) {
        uint32_t above = below(p->rng, n);
        if (depth[above] >= 3)
            continue;
        double up = between(p->rng, .3, 4) * p->bps;
        double down = between(p->rng, .3, 4) * p->bps;
        at[n] = add_node(w, (int)at[above], up, below(p->rng, 2) ? up : down);
        depth[n++] = depth[above] + 1;
    }
    for (uint32_t i = p->first; i < p->first + p->n; i++) {
        w->parent[i] = (int)at[below(p->rng, n)];
        if (below(p->rng, 3) == 0)
            w->up[i] = w->down[i] = p->bps * between(p->rng, .2, 1);
    }
}

/* So that racks are not what comes next in order. */
static void mix(plane *p)
{
    world *w = p->w;
    for (uint32_t i = p->n; i > 1; i--) {
        uint32_t a = p->first + i - 1, b = p->first + below(p->rng, i);
        int parent = w->parent[a];
        double up = w->up[a], down = w->down[a];
        w->parent[a] = w->parent[b];
        w->up[a] = w->up[b];
        w->down[a] = w->down[b];
        w->parent[b] = parent;
        w->up[b] = up;
        w->down[b] = down;
    }
}

static void make_plane(plane *p, int kind)
{
    p->root = add_node(p->w, -1, 0, 0);
    for (uint32_t i = p->first; i < p->first + p->n; i++)
        p->w->parent[i] = (int)p->root;
    if (kind == WORLD_UNEVEN)
        make_uneven(p);
    else if (kind == WORLD_RACKS || kind == WORLD_UNEVEN_RACKS)
        make_racks(p, kind == WORLD_UNEVEN_RACKS);
    else if (kind == WORLD_PODS)
        make_pods(p);
    else if (kind == WORLD_TREE)
        make_tree(p);
    if (below(p->rng, 3) > 0)
        mix(p);
}

static void add_cable(world *w, tt_rng *rng, uint32_t a, uint32_t b)
{
    static const char *const devs[] = {"eth0", "eth1", "eth2",
                                       "eth3", "eth4", "eth5"};
    uint32_t hosts[2] = {a, b};
    for (int end = 0; end < 2; end++) {
        uint32_t n = 0;
        for (uint32_t p = 0; p < w->n_ports; p++)
            n += w->ports[p].host == hosts[end];
        add_port(w, hosts[end], devs[n], between(rng, 1e8, 1e9));
    }
}

/* Of its host's ports. */
static bool is_first(const world *w, uint32_t port)
{
    for (uint32_t p = 0; p < port; p++) {
        if (w->ports[p].host == w->ports[port].host)
            return false;
    }
    return true;
}

/* A ring, or a mesh or torus of two dimensions. */
static void make_cables(world *w, tt_rng *rng, uint32_t n)
{
    uint32_t columns = below(rng, 2) ? n : 2 + below(rng, 4);
    bool wraps = below(rng, 2), any_address = below(rng, 2);
    add_hosts(w, n);
    for (uint32_t h = 0; h < n; h++) {
        uint32_t c = h % columns;
        if (c + 1 < columns && h + 1 < n)
            add_cable(w, rng, h, h + 1);
        else if (wraps && c > 1)
            add_cable(w, rng, h, h - c);
        if (h + columns < n)
            add_cable(w, rng, h, h + columns);
    }
    w->n_nodes = w->n_ports;
    for (uint32_t p = 0; p < w->n_ports; p += 2) {
        uint32_t v = add_node(w, -1, 0, 0);
        w->parent[p] = w->parent[p + 1] = (int)v;
        w->up[p + 1] = w->down[p];
        w->down[p + 1] = w->up[p];
    }
    set_reach(w);
    /* Hosts that have no cable in common reach each other by others. */
    for (uint32_t i = 0; i < w->n_ports * w->n_ports; i++) {
        uint32_t p = i / w->n_ports, q = i % w->n_ports;
        if (!w->reach[i] && w->ports[p].host != w->ports[q].host &&
            (any_address || (is_first(w, p) && is_first(w, q))))
            w->reach[i] = TT_REACH_ROUTED;
    }
}

void world_make(world *w, tt_rng *rng, int kind, uint32_t n)
{
    static const double speeds[] = {1e7, 1e8, 2e8, 4e8, 1e9, 2.5e9, 1e10};
    memset(w, 0, sizeof(*w));
    w->kind = kind < 0 ? (int)below(rng, WORLD_KINDS) : kind;
    n = n ? n : 2 + below(rng, below(rng, 2) ? 15 : 39);
    if (w->kind == WORLD_CABLES) {
        make_cables(w, rng, n < 30 ? n : 30);
        return;
    }
    add_hosts(w, n);
    /* What is much slower than the other rail would not be measured for
     * long. */
    static const double shares[] = {1, .5, .25};
    double bps = speeds[below(rng, 7)], other = bps * shares[below(rng, 3)];
    uint32_t n_more = 0;
    for (uint32_t h = 0; h < n; h++) {
        add_port(w, h, "eth0", bps);
        if (w->kind == WORLD_RAILS || (w->kind == WORLD_BONDS && h % 3 == 1))
            n_more++;
    }
    for (uint32_t h = 0; h < n && n_more > 0; h++) {
        if (w->kind == WORLD_RAILS)
            add_port(w, h, "eth1", other);
        else if (h % 3 == 1)
            add_port(w, h, "eth1", bps);
    }
    w->n_nodes = w->n_ports;
    plane first = {.w = w, .rng = rng, .first = 0, .n = n, .bps = bps};
    plane second = first;
    second.first = n;
    second.bps = other;
    int sub = (int)below(rng, 3); /* the star, uneven or not, or racks */
    if (w->kind == WORLD_BONDS) {
        first.n = w->n_ports;
        make_plane(&first, sub);
    } else if (w->kind == WORLD_RAILS) {
        make_plane(&first, sub);
        make_plane(&second, (int)below(rng, 3));
    } else {
        make_plane(&first, w->kind);
    }
    set_reach(w);
}

tt_infer_spec world_spec(const world *w, uint64_t seed)
{
    return (tt_infer_spec){.n_hosts = w->n_hosts,
                           .n_ports = w->n_ports,
                           .names = w->names,
                           .ports = w->ports,
                           .reach = w->reach,
                           .seed = seed};
}

/* ------------------------------------------------------------------ running */

uint32_t world_root(const world *w, uint32_t node)
{
    while (w->parent[node] >= 0)
        node = (uint32_t)w->parent[node];
    return node;
}

/* Links of the way: v upwards, WORLD_NODES + v downwards. */
static uint32_t find_way(const world *w, uint32_t src, uint32_t dst,
                         uint32_t *way)
{
    int up[WORLD_DEPTH], down[WORLD_DEPTH];
    uint32_t n_up = 0, n_down = 0, n = 0;
    for (int v = (int)src; v >= 0; v = w->parent[v])
        up[n_up++] = v;
    for (int v = (int)dst; v >= 0; v = w->parent[v])
        down[n_down++] = v;
    while (n_up && n_down && up[n_up - 1] == down[n_down - 1]) {
        n_up--;
        n_down--;
    }
    for (uint32_t i = 0; i < n_up; i++)
        way[n++] = (uint32_t)up[i];
    for (uint32_t i = 0; i < n_down; i++)
        way[n++] = WORLD_NODES + (uint32_t)down[i];
    return n;
}

double world_latency(const world *w, uint32_t src, uint32_t dst)
{
    uint32_t way[2 * WORLD_DEPTH], n = find_way(w, src, dst, way);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += w->latency_s[way[i] % WORLD_NODES];
    return sum;
}

typedef struct running {
    uint32_t way[WORLD_FLOWS][2 * WORLD_DEPTH], n_way[WORLD_FLOWS];
    double weight[WORLD_FLOWS];
    bool is_done[WORLD_FLOWS];
    double left[2 * WORLD_NODES], wanted[2 * WORLD_NODES];
} running;

/* The link with the least share; false: all flows have their rate. */
static bool tightest(running *r, uint32_t n, uint32_t *link, double *share)
{
    bool any = false;
    memset(r->wanted, 0, sizeof(r->wanted));
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < r->n_way[i] && !r->is_done[i]; k++)
            r->wanted[r->way[i][k]] += r->weight[i];
    }
    *share = INFINITY;
    for (uint32_t l = 0; l < 2 * WORLD_NODES; l++) {
        if (r->wanted[l] < 1e-9 || r->left[l] / r->wanted[l] >= *share)
            continue;
        *share = fmax(r->left[l] / r->wanted[l], 0);
        *link = l;
        any = true;
    }
    return any;
}

void world_run(const world *w, const tt_infer_flow *flows, uint32_t n,
               double unfair, tt_rng *rng, double *bps)
{
    static running r; /* large */
    uint32_t link = 0;
    double share;
    for (uint32_t v = 0; v < w->n_nodes; v++) {
        r.left[v] = w->up[v];
        r.left[WORLD_NODES + v] = w->down[v];
    }
    for (uint32_t i = 0; i < n; i++) {
        r.n_way[i] = find_way(w, flows[i].src, flows[i].dst, r.way[i]);
        r.is_done[i] = false;
        r.weight[i] = unfair > 0 ? exp(unfair * world_gauss(rng)) : 1;
    }
    while (tightest(&r, n, &link, &share)) {
        for (uint32_t i = 0; i < n; i++) {
            bool on = false;
            for (uint32_t k = 0; k < r.n_way[i]; k++)
                on |= r.way[i][k] == link;
            if (!on || r.is_done[i])
                continue;
            r.is_done[i] = true;
            bps[i] = share * r.weight[i];
            for (uint32_t k = 0; k < r.n_way[i]; k++)
                r.left[r.way[i][k]] -= bps[i];
        }
    }
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What would be measured. */
static void measure(const world *w, const tt_infer_round *round, tt_rng *rng,
                    world_measure *m, double *bps)
{
    world_run(w, round->flows, round->n_flows, m->unfair, rng, bps);
    for (uint32_t i = 0; i < round->n_flows; i++) {
        bps[i] *= 1 + m->noise * world_gauss(rng);
        if (m->stray > 0 && uniform(rng) < m->stray)
            bps[i] *= .5 + .4 * uniform(rng);
    }
    m->n_rounds++;
    m->n_flows += round->n_flows;
}

tutti_err world_tell(tt_infer *inf, const double *bps, uint32_t n,
                     tutti_diag *diag)
{
    static tt_infer_rate rates[WORLD_FLOWS];
    for (uint32_t i = 0; i < n && i < WORLD_FLOWS; i++)
        rates[i] = (tt_infer_rate){.bps = bps[i]};
    return tt_infer_told(inf, rates, n, diag);
}

tutti_err world_probe(const world *w, tt_infer *inf, tt_rng *rng,
                      world_measure *m, tutti_diag *diag)
{
    static double bps[WORLD_FLOWS];
    tt_infer_round round;
    for (;;) {
        double begin = cpu_now();
        tutti_err err = tt_infer_next(inf, &round, diag);
        m->cpu_s += cpu_now() - begin;
        if (err != TUTTI_AGAIN)
            return err;
        if (round.n_flows > WORLD_FLOWS)
            return tt_fail(diag, TUTTI_ELIMIT, "too many flows in a round");
        measure(w, &round, rng, m, bps);
        err = world_tell(inf, bps, round.n_flows, diag);
        if (err)
            return err;
    }
}

/* ------------------------------------------------------------------ reading */

static uint32_t port_of(const world *w, const char *host, const char *dev)
{
    for (uint32_t p = 0; p < w->n_ports; p++) {
        if (dev && strcmp(w->names[w->ports[p].host], host) == 0 &&
            strcmp(w->ports[p].dev, dev) == 0)
            return p;
    }
    return TT_NONE;
}

/* The node of out that the topology's node v is; switches are made. */
static uint32_t node_of(world *out, uint32_t *node, uint32_t v)
{
    if (node[v] == TT_NONE)
        node[v] = add_node(out, -1, 0, 0);
    return node[v];
}

static void set_link(world *out, uint32_t v, uint32_t parent, const tt_link *up,
                     const tt_link *down)
{
    out->parent[v] = (int)parent;
    out->up[v] = (double)up->rate_bps;
    out->down[v] = (double)down->rate_bps;
    out->latency_s[v] = tt_link_latency_s(up);
}

/* Links between switches, from each root outwards. */
static bool read_trunks(const tutti_topology *t, world *out, uint32_t *node)
{
    static bool seen[WORLD_NODES];
    memset(seen, 0, sizeof(seen));
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < t->n_links; i++) {
            const tt_link *l = &t->links[i], *back = &t->links[l->twin];
            if (t->nodes[l->from].kind != TT_NODE_SWITCH ||
                t->nodes[l->to].kind != TT_NODE_SWITCH)
                continue;
            uint32_t a = node_of(out, node, l->from);
            uint32_t b = node_of(out, node, l->to);
            if (out->parent[a] == (int)b || out->parent[b] == (int)a)
                continue;
            if (seen[a] && seen[b])
                return false; /* a loop */
            if (!seen[a] && !seen[b])
                continue;
            set_link(out, seen[a] ? b : a, seen[a] ? a : b, seen[a] ? back : l,
                     seen[a] ? l : back);
            seen[a] = seen[b] = more = true;
        }
        for (uint32_t v = 0; v < t->n_nodes && !more; v++) {
            if (t->nodes[v].kind != TT_NODE_SWITCH ||
                seen[node_of(out, node, v)])
                continue;
            seen[node[v]] = more = true;
        }
    }
    return true;
}

bool world_read(const world *w, const tutti_topology *t, world *out)
{
    static uint32_t node[2 * WORLD_NODES];
    uint32_t n_found = 0;
    if (t->n_nodes > 2 * WORLD_NODES)
        return false;
    *out = *w;
    out->n_nodes = w->n_ports;
    memset(node, 0xff, sizeof(node));
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[i], *back = &t->links[l->twin];
        if (t->nodes[l->from].kind == TT_NODE_SWITCH)
            continue;
        uint32_t p = port_of(w, t->nodes[l->from].name, l->dev);
        if (p == TT_NONE)
            return false;
        n_found++;
        if (t->nodes[l->to].kind == TT_NODE_SWITCH) {
            set_link(out, p, node_of(out, node, l->to), l, back);
            continue;
        }
        uint32_t q = port_of(w, t->nodes[l->to].name, back->dev);
        if (q == TT_NONE)
            return false;
        if (q < p)
            set_link(out, p, (uint32_t)out->parent[q], l, back);
        else
            set_link(out, p, add_node(out, -1, 0, 0), l, back);
    }
    return n_found == w->n_ports && read_trunks(t, out, node);
}

/* ------------------------------------------------------------ what can pass */

double world_below(const world *w, uint32_t node, bool down)
{
    const double *bps = down ? w->down : w->up;
    if (node < w->n_ports)
        return bps[node];
    double sum = 0;
    for (uint32_t v = 0; v < w->n_nodes; v++) {
        if (w->parent[v] == (int)node)
            sum += fmin(world_below(w, v, down), bps[v]);
    }
    return sum;
}

double world_beyond(const world *w, uint32_t node, bool down)
{
    if (w->parent[node] < 0)
        return 0;
    uint32_t above = (uint32_t)w->parent[node];
    const double *bps = down ? w->down : w->up;
    double sum = 0;
    for (uint32_t v = 0; v < w->n_nodes; v++) {
        if (w->parent[v] == (int)above && v != node)
            sum += fmin(world_below(w, v, down), bps[v]);
    }
    if (w->parent[above] >= 0)
        sum += fmin(world_beyond(w, above, down),
                    down ? w->up[above] : w->down[above]);
    return sum;
}

bool world_is_below(const world *w, uint32_t port, uint32_t node)
{
    for (int v = (int)port; v >= 0; v = w->parent[v]) {
        if (v == (int)node)
            return true;
    }
    return false;
}
