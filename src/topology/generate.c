/* SPDX-License-Identifier: BSD-3-Clause
 * generate.c - the generators and the papers' machines: makes the networks that
 * a generator spec describes.
 *
 * Nodes are always the hosts, then the switches, so that host i is node i; the
 * links of a kind are numbered as they are made, which is what `nic.7=` counts:
 *     full       hosts h0..; a link for each pair, (0,1) (0,2) .. (1,2) ..
 *     star       hosts on `core`, one NIC each
 *     rails      hosts on `s0` and on `s1`, a NIC each: all of the first, then
 *                all of the second
 *     racks      hosts on their rack's switch, the rack's trunk to `core`
 *     boxes      the same, with GPUs g0.. and uplinks
 *     ring, torus, mesh   host by host, its links upwards, last dimension first
 *     fattree    leaf switches, each joined to as many spines as it has hosts
 *     bigraph    upper and lower switches, each upper joined to each lower
 *     minsky     two sockets, two GPUs each; three NVLinks a socket; X-bus; NIC
 * Ranks: the order of the hosts; or one of each group in turn; or shuffled.
 *
 * Unless told otherwise a link carries 1 GB/s, and a message takes 20 us
 * between two hosts next to each other: 20 us on a direct link, 10 us on each
 * of the two links by way of a switch.
 *
 * Next       genspec.c, which reads a spec; docs/reference/topology.md,
 *            pictures and defaults.
 */
#include "topology/genspec.h"

#include "base/rng.h"

#include <stdio.h>
#include <string.h>

struct tt_gen {
    tt_topo_builder *b;
    const tt_genspec *s;
    tt_arena arena;                 /* of the groups and places */
    uint32_t n_links[TT_MAX_KINDS]; /* made so far */
    size_t next_override;           /* of the kind that is being made, ... */
    uint32_t override_kind;         /* ... which is this */
    /* Hosts come group by group; first[i] is where group i begins. */
    uint32_t *first;
    size_t cap_first;
    uint32_t n_groups;
};

/* -------------------------------------------------------------- helpers -- */

/* "h" 12 -> "h12" */
typedef struct label {
    char text[32];
} label;

static label named(const char *head, uint32_t i)
{
    label l;
    snprintf(l.text, sizeof(l.text), "%s%u", head, i);
    return l;
}

static uint32_t add_host(tt_gen *g, const char *head, uint32_t i)
{
    return tt_topo_host(g->b, named(head, i).text);
}

static uint32_t add_switch(tt_gen *g, const char *head, uint32_t i)
{
    return tt_topo_switch(g->b, named(head, i).text);
}

static void refuse(tt_gen *g, tutti_err err, const char *text)
{
    tt_topo_refuse(g->b, err, g->s->shape_at, "%s", text);
}

static bool failed(const tt_gen *g)
{
    return tt_topo_error(g->b, NULL) != TUTTI_OK;
}

/* The next host begins a new group. */
static void begin_group(tt_gen *g)
{
    g->first = tt_arena_grow(&g->arena, g->first, &g->cap_first,
                             (size_t)g->n_groups + 1, sizeof(*g->first));
    if (g->arena.err)
        tt_topo_refuse(g->b, TUTTI_ENOMEM, (tt_spot){0},
                       "no memory for the network");
    else
        g->first[g->n_groups++] = tt_topo_n_ranks(g->b);
}

/* Applies what was said of this one link of the kind. */
static void apply_overrides(tt_gen *g, uint32_t kind, uint32_t index,
                            tt_wire *w)
{
    const tt_genspec *s = g->s;
    if (g->override_kind != kind || index == 0) {
        g->override_kind = kind;
        g->next_override = 0;
    }
    size_t i = g->next_override;
    for (; i < s->n_overrides; i++) {
        const tt_override *o = &s->overrides[i];
        if (o->kind > kind || (o->kind == kind && o->index > index))
            break;
        if (o->kind < kind || o->index < index)
            continue;
        if (o->has_latency)
            w->latency_ps = o->speed.latency_ps;
        else
            w->up_bps = o->speed.up_bps;
        if (!o->has_latency)
            w->down_bps = o->speed.down_bps;
    }
    g->next_override = i;
}

/* Joins two nodes by the next link of the kind, of this speed and with these
 * interfaces (or none). */
static void join_by(tt_gen *g, uint32_t kind, uint32_t a, uint32_t z, tt_wire w)
{
    if (g->s->n_overrides)
        apply_overrides(g, kind, g->n_links[kind], &w);
    g->n_links[kind]++;
    tt_topo_link(g->b, a, z, &w);
}

static tt_wire wire_of(const tt_speed *speed)
{
    return (tt_wire){.up_bps = speed->up_bps,
                     .down_bps = speed->down_bps,
                     .latency_ps = speed->latency_ps};
}

static void join_at(tt_gen *g, uint32_t kind, uint32_t a, uint32_t z,
                    const tt_speed *speed)
{
    join_by(g, kind, a, z, wire_of(speed));
}

static void join(tt_gen *g, uint32_t kind, uint32_t a, uint32_t z)
{
    join_at(g, kind, a, z, &g->s->speeds[kind]);
}

/* The product of the shape's numbers is the number of ranks; false: too many.
 */
static bool product(tt_gen *g, uint32_t *out)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < g->s->n_numbers && n <= TT_MAX_RANKS; i++)
        n *= g->s->numbers[i];
    *out = (uint32_t)n;
    if (n > TT_MAX_RANKS)
        tt_topo_refuse(g->b, TUTTI_ELIMIT, g->s->shape_at,
                       "a network can have at most %u ranks", TT_MAX_RANKS);
    return n <= TT_MAX_RANKS;
}

/* ----------------------------------------------------- direct networks -- */

static void make_full(tt_gen *g)
{
    uint32_t n = g->s->numbers[0];
    uint64_t n_links = (uint64_t)n * (n - 1);
    if (n_links > TT_MAX_LINKS) {
        tt_topo_refuse(g->b, TUTTI_ELIMIT, g->s->shape_at,
                       "full:%u would have %llu links, and %u are the limit; "
                       "star:%u has one switch instead",
                       n, (unsigned long long)n_links, TT_MAX_LINKS, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        add_host(g, "h", i);
    for (uint32_t i = 0; i < n && !failed(g); i++) {
        for (uint32_t k = i + 1; k < n; k++)
            join(g, 0, i, k);
    }
}

/* The links of a grid's node upwards, last dimension first. */
static void join_upwards(tt_gen *g, const tt_grid *grid, uint32_t node)
{
    uint32_t stride = 1;
    for (uint32_t d = grid->n_dims; d-- > 0;) {
        uint32_t n = grid->dims[d];
        uint32_t at = node / stride % n;
        if (at + 1 < n)
            join(g, 0, node, node + stride);
        else if (grid->wraps && n > 2)
            join(g, 0, node, node - (n - 1) * stride);
        stride *= n;
    }
}

static void make_grid(tt_gen *g, bool wraps)
{
    uint32_t n = 0;
    tt_grid grid = {.n_dims = g->s->n_numbers, .wraps = wraps};
    if (!product(g, &n))
        return;
    memcpy(grid.dims, g->s->numbers, grid.n_dims * sizeof(grid.dims[0]));
    for (uint32_t i = 0; i < n; i++)
        add_host(g, "h", i);
    for (uint32_t i = 0; i < n && !failed(g); i++)
        join_upwards(g, &grid, i);
    tt_topo_grid(g->b, &grid);
}

static void make_torus(tt_gen *g)
{
    make_grid(g, true);
}

static void make_mesh(tt_gen *g)
{
    make_grid(g, false);
}

/* ---------------------------------------------------------------- trees -- */

/* The rate of a host of `star:25,25,10`. */
static tt_speed scaled(tt_gen *g, uint32_t host)
{
    const tt_decimal *d = &g->s->factors[host];
    tt_speed speed = g->s->speeds[0];
    bool up_is_large = false, down_is_large = false;
    bool is_good = tt_decimal_times(d, speed.up_bps, TT_MAX_RATE_BPS,
                                    &speed.up_bps, &up_is_large);
    is_good = tt_decimal_times(d, speed.down_bps, TT_MAX_RATE_BPS,
                               &speed.down_bps, &down_is_large) &&
              is_good;
    if (up_is_large || down_is_large)
        refuse(g, TUTTI_ELIMIT, "a multiple of the rate is above 1000 Tbit/s");
    else if (!is_good)
        refuse(g, TUTTI_EINVAL,
               "a multiple of the rate is not a whole number of bits per "
               "second");
    return speed;
}

static void make_star(tt_gen *g)
{
    const tt_genspec *s = g->s;
    uint32_t n = s->factors ? s->n_numbers : s->numbers[0];
    for (uint32_t i = 0; i < n; i++)
        add_host(g, "h", i);
    uint32_t core = tt_topo_switch(g->b, "core");
    for (uint32_t i = 0; i < n && !failed(g); i++) {
        tt_speed speed = s->factors ? scaled(g, i) : s->speeds[0];
        join_at(g, 0, i, core, &speed);
    }
}

static void make_rails(tt_gen *g)
{
    const tt_genspec *s = g->s;
    uint32_t n = s->numbers[0];
    for (uint32_t i = 0; i < n && !failed(g); i++)
        add_host(g, "h", i);
    for (uint32_t k = 0; k < 2; k++)
        add_switch(g, "s", k);
    for (uint32_t k = 0; k < 2; k++) {
        tt_wire w = wire_of(&s->speeds[k]);
        w.dev = s->generator->kinds[k].name;
        for (uint32_t i = 0; i < n && !failed(g); i++)
            join_by(g, k, i, n + k, w);
    }
}

/* Groups of hosts, each on a switch of its own, all switches on the core. */
static void make_groups(tt_gen *g, const char *host, const char *group)
{
    const tt_genspec *s = g->s;
    uint32_t n_hosts = 0;
    for (uint32_t i = 0; i < s->n_numbers && !failed(g); i++) {
        begin_group(g);
        for (uint32_t k = 0; k < s->numbers[i] && !failed(g); k++)
            add_host(g, host, n_hosts++);
    }
    for (uint32_t i = 0; i < s->n_numbers && !failed(g); i++)
        add_switch(g, group, i);
    uint32_t core = tt_topo_switch(g->b, "core");
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->n_numbers && !failed(g); i++) {
        for (uint32_t k = 0; k < s->numbers[i]; k++)
            join(g, 0, at++, n_hosts + i);
    }
    for (uint32_t i = 0; i < s->n_numbers && !failed(g); i++)
        join(g, 1, n_hosts + i, core);
}

static void make_racks(tt_gen *g)
{
    make_groups(g, "h", "rack");
}

static void make_boxes(tt_gen *g)
{
    make_groups(g, "g", "box");
}

/* ------------------------------------------------------- switch networks -- */

/* n_switches switches of n_each hosts: hosts, then links to the switches, which
 * are to be the next nodes. */
static void add_leaf_hosts(tt_gen *g, uint32_t n_switches, uint32_t n_each)
{
    for (uint32_t i = 0; i < n_switches && !failed(g); i++) {
        begin_group(g);
        for (uint32_t k = 0; k < n_each; k++)
            add_host(g, "h", i * n_each + k);
    }
}

static void join_leaf_hosts(tt_gen *g, uint32_t n_switches, uint32_t n_each)
{
    uint32_t n = n_switches * n_each;
    for (uint32_t i = 0; i < n && !failed(g); i++)
        join(g, 0, i, n + i / n_each);
}

/* Every switch of one level with every one of the other. */
static void join_levels(tt_gen *g, uint32_t low, uint32_t n_low, uint32_t high,
                        uint32_t n_high)
{
    for (uint32_t i = 0; i < n_low && !failed(g); i++) {
        for (uint32_t k = 0; k < n_high; k++)
            join(g, 1, low + i, high + k);
    }
}

static void make_fattree(tt_gen *g)
{
    uint32_t n = 0;
    if (!product(g, &n))
        return;
    uint32_t n_leaves = g->s->numbers[0], n_each = g->s->numbers[1];
    add_leaf_hosts(g, n_leaves, n_each);
    for (uint32_t i = 0; i < n_leaves; i++)
        add_switch(g, "leaf", i);
    for (uint32_t i = 0; i < n_each; i++)
        add_switch(g, "spine", i);
    join_leaf_hosts(g, n_leaves, n_each);
    join_levels(g, n, n_leaves, n + n_leaves, n_each);
}

/* Unless told, the links between the switches carry what the hosts can send:
 * n_each NICs over half as many links. */
static uint64_t bigraph_rate(uint64_t nic_bps, uint32_t n_each, uint32_t half)
{
    tt_u128 rate = (tt_u128)nic_bps * n_each / half;
    if (rate > TT_MAX_RATE_BPS)
        return TT_MAX_RATE_BPS;
    return rate ? (uint64_t)rate : 1;
}

static void make_bigraph(tt_gen *g)
{
    uint32_t n = 0;
    uint32_t n_switches = g->s->numbers[0], n_each = g->s->numbers[1];
    uint32_t half = n_switches / 2;
    if (n_switches % 2) {
        refuse(g, TUTTI_EINVAL,
               "a BiGraph needs an even number of switches, half of them upper "
               "and half lower");
        return;
    }
    if ((uint64_t)half * half * 2 > TT_MAX_LINKS) {
        refuse(g, TUTTI_ELIMIT, "a BiGraph can have at most 4096 switches");
        return;
    }
    if (!product(g, &n))
        return;
    tt_genspec with = *g->s;
    tt_speed *trunk = &with.speeds[1];
    if (trunk->up_bps == 0) {
        trunk->up_bps = bigraph_rate(with.speeds[0].up_bps, n_each, half);
        trunk->down_bps = bigraph_rate(with.speeds[0].down_bps, n_each, half);
    }
    const tt_genspec *given = g->s;
    g->s = &with;
    add_leaf_hosts(g, n_switches, n_each);
    for (uint32_t i = 0; i < half; i++)
        add_switch(g, "upper", i);
    for (uint32_t i = 0; i < half; i++)
        add_switch(g, "lower", i);
    join_leaf_hosts(g, n_switches, n_each);
    join_levels(g, n, half, n + half, half);
    g->s = given;
}

/* ---------------------------------------------------------------- minsky -- */

enum { MINSKY_NVLINK, MINSKY_XBUS, MINSKY_NIC };

/* Socket `at` and its two GPUs, `gpu` and the next. */
static void join_socket(tt_gen *g, uint32_t gpu, uint32_t at)
{
    join(g, MINSKY_NVLINK, gpu, gpu + 1);
    join(g, MINSKY_NVLINK, gpu, at);
    join(g, MINSKY_NVLINK, gpu + 1, at);
}

static void make_minsky(tt_gen *g)
{
    uint32_t n = g->s->numbers[0];
    if (n > TT_MAX_RANKS / 4) {
        refuse(g, TUTTI_ELIMIT, "a network can have at most 65536 ranks");
        return;
    }
    for (uint32_t i = 0; i < n && !failed(g); i++) {
        label head = named("m", i);
        strcat(head.text, "g");
        begin_group(g);
        for (uint32_t k = 0; k < 4; k++)
            add_host(g, head.text, k);
    }
    for (uint32_t i = 0; i < 2 * n && !failed(g); i++) {
        label head = named("m", i / 2);
        strcat(head.text, "s");
        add_switch(g, head.text, i % 2);
    }
    uint32_t core = tt_topo_switch(g->b, "core");
    for (uint32_t i = 0; i < 2 * n && !failed(g); i++)
        join_socket(g, 2 * i, 4 * n + i);
    for (uint32_t i = 0; i < n && !failed(g); i++)
        join(g, MINSKY_XBUS, 4 * n + 2 * i, 4 * n + 2 * i + 1);
    for (uint32_t i = 0; i < n && !failed(g); i++)
        join(g, MINSKY_NIC, 4 * n + 2 * i, core);
}

/* ---------------------------------------------------------------- table -- */

#define GBIT UINT64_C(1000000000)
#define NS UINT64_C(1000)
#define US (1000 * NS)

#define DIRECT                    \
    {                             \
        "link", 8 * GBIT, 20 * US \
    }
#define NIC                      \
    {                            \
        "nic", 8 * GBIT, 10 * US \
    }
#define TRUNK                      \
    {                              \
        "trunk", 8 * GBIT, 10 * US \
    }

const tt_generator tt_generators[] = {
    {.name = "full",
     .form = "full:8",
     .blurb = "a link for each pair of hosts",
     .least = 1,
     .most = 1,
     .kinds = {DIRECT},
     .make = make_full},
    {.name = "ring",
     .form = "ring:8",
     .blurb = "hosts in a ring, each linked with the next",
     .least = 1,
     .most = 1,
     .kinds = {DIRECT},
     .make = make_torus},
    {.name = "star",
     .form = "star:8 or star:25,25,10",
     .blurb = "hosts on one switch; two numbers or more: multiples of the rate",
     .separator = ',',
     .least = 1,
     .may_scale = true,
     .kinds = {NIC},
     .make = make_star},
    {.name = "rails",
     .form = "rails:8",
     .blurb = "hosts on two switches, by interfaces eth0 and eth1",
     .least = 1,
     .most = 1,
     .kinds = {{"eth0", 8 * GBIT, 10 * US}, {"eth1", 8 * GBIT, 10 * US}},
     .make = make_rails},
    {.name = "racks",
     .form = "racks:5+3",
     .blurb = "hosts on rack switches, each with a trunk to the core",
     .separator = '+',
     .least = 1,
     .kinds = {NIC, TRUNK},
     .make = make_racks},
    {.name = "boxes",
     .form = "boxes:8+8+4",
     .blurb = "GPUs in boxes, each with an uplink to the core",
     .separator = '+',
     .least = 1,
     .kinds = {{"gpu", 80 * GBIT, US}, {"uplink", 8 * GBIT, 10 * US}},
     .make = make_boxes},
    {.name = "torus",
     .form = "torus:8x8",
     .blurb = "a grid that goes around, of up to 8 dimensions",
     .separator = 'x',
     .least = 1,
     .most = TT_MAX_DIMS,
     .kinds = {DIRECT},
     .make = make_torus},
    {.name = "mesh",
     .form = "mesh:8x8",
     .blurb = "a grid that ends at its borders, of up to 8 dimensions",
     .separator = 'x',
     .least = 1,
     .most = TT_MAX_DIMS,
     .kinds = {DIRECT},
     .make = make_mesh},
    {.name = "fattree",
     .form = "fattree:8x8",
     .blurb = "leaf switches x hosts each, and as many spines as hosts a leaf",
     .separator = 'x',
     .least = 2,
     .most = 2,
     .kinds = {NIC, TRUNK},
     .make = make_fattree},
    {.name = "bigraph",
     .form = "bigraph:4x16",
     .blurb = "switches x hosts each; each upper switch linked with each lower",
     .separator = 'x',
     .least = 2,
     .most = 2,
     .kinds = {NIC, {"trunk", 0, 10 * US}},
     .make = make_bigraph},
    {.name = "minsky",
     .form = "minsky:48",
     .blurb = "hosts of two sockets and four GPUs, one NIC each",
     .least = 1,
     .most = 1,
     .kinds = {{"nvlink", 320 * GBIT, US},
               {"xbus", 307 * GBIT + GBIT / 5, 500 * NS},
               {"nic", 100 * GBIT, US}},
     .make = make_minsky},
    {.name = NULL},
};

#define MULTITREE "@16GB/s,150ns"
#define MACHINE(name, spec, what)  \
    {                              \
        name, spec, what ": " spec \
    }

const tt_machine tt_machines[] = {
    MACHINE("blueconnect-192", "minsky:48", "BlueConnect's 192 GPUs"),
    MACHINE("multitree-torus-4x4", "torus:4x4" MULTITREE, "MultiTree's torus"),
    MACHINE("multitree-torus-8x8", "torus:8x8" MULTITREE, "MultiTree's torus"),
    MACHINE("multitree-mesh-4x4", "mesh:4x4" MULTITREE, "MultiTree's mesh"),
    MACHINE("multitree-mesh-8x8", "mesh:8x8" MULTITREE, "MultiTree's mesh"),
    MACHINE("multitree-fattree-16", "fattree:4x4" MULTITREE,
            "a small fat tree for MultiTree"),
    MACHINE("multitree-fattree-64", "fattree:8x8" MULTITREE,
            "MultiTree's fat tree"),
    MACHINE("multitree-bigraph-32", "bigraph:4x8" MULTITREE,
            "MultiTree's BiGraph"),
    MACHINE("multitree-bigraph-64", "bigraph:4x16" MULTITREE,
            "MultiTree's BiGraph"),
    MACHINE("flexreduce-2+4", "boxes:2+4@gpu=10GB/s,uplink=1GB/s",
            "FlexReduce's uneven boxes"),
    MACHINE("flexreduce-1+3", "boxes:1+3@gpu=10GB/s,uplink=1GB/s",
            "FlexReduce's uneven boxes"),
    MACHINE("flexreduce-3+4", "boxes:3+4@gpu=10GB/s,uplink=1GB/s",
            "FlexReduce's uneven boxes"),
    MACHINE("flexreduce-8+8+4", "boxes:8+8+4@gpu=10GB/s,uplink=2GB/s",
            "FlexReduce's uneven boxes"),
    {.name = NULL},
};

/* ----------------------------------------------------------------- order -- */

/* Ranks go down the columns: the first coordinate runs fastest. */
static void place_columns(const tt_genspec *s, uint32_t *place, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rest = i, stride = n, rank = 0;
        for (uint32_t d = s->n_numbers; d-- > 0;) {
            stride /= s->numbers[d];
            rank += rest % s->numbers[d] * stride;
            rest /= s->numbers[d];
        }
        place[i] = rank;
    }
}

/* One host of each group in turn. */
static void place_round_robin(const tt_gen *g, uint32_t *place, uint32_t n)
{
    uint32_t rank = 0;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < g->n_groups; i++) {
        uint32_t end = i + 1 < g->n_groups ? g->first[i + 1] : n;
        uint32_t size = end - g->first[i];
        longest = size > longest ? size : longest;
    }
    for (uint32_t k = 0; k < longest; k++) {
        for (uint32_t i = 0; i < g->n_groups; i++) {
            uint32_t end = i + 1 < g->n_groups ? g->first[i + 1] : n;
            if (k < end - g->first[i])
                place[g->first[i] + k] = rank++;
        }
    }
}

static void place_ranks(tt_gen *g)
{
    const tt_genspec *s = g->s;
    uint32_t n = tt_topo_n_ranks(g->b);
    if (s->order == TT_ORDER_GIVEN || failed(g))
        return;
    uint32_t *place = tt_arena_new(&g->arena, n, sizeof(*place));
    if (!place) {
        refuse(g, TUTTI_ENOMEM, "no memory for the network");
        return;
    }
    bool is_grid = s->generator->make == make_torus ||
                   s->generator->make == make_mesh;
    if (s->order == TT_ORDER_RANDOM)
        tt_rng_order(&(tt_rng){s->seed}, place, n);
    else if (is_grid)
        place_columns(s, place, n);
    else
        place_round_robin(g, place, n);
    tt_topo_place(g->b, place, n);
}

/* What was said of a link that has not been made. */
static void check_overrides(tt_gen *g)
{
    const tt_genspec *s = g->s;
    for (size_t i = 0; i < s->n_overrides && !failed(g); i++) {
        const tt_override *o = &s->overrides[i];
        if (o->index >= g->n_links[o->kind])
            tt_topo_refuse(g->b, TUTTI_EINVAL, o->at,
                           "there is no `%s.%u`: the network has %u of them, "
                           "numbered from 0",
                           s->generator->kinds[o->kind].name, o->index,
                           g->n_links[o->kind]);
    }
}

static tutti_err make(const tt_genspec *s, tutti_topology **out,
                      tutti_diag *diag)
{
    tt_gen g = {.s = s, .arena = {.mem = s->arena.mem}};
    tutti_err err = tt_topo_builder_create(s->arena.mem, &g.b, diag);
    if (err)
        return err;
    tt_topo_at(g.b, s->shape_at);
    tt_topo_forwards(g.b, !s->ends_routes);
    s->generator->make(&g);
    check_overrides(&g);
    if (g.n_groups == 0) /* a group of all */
        begin_group(&g);
    if (g.n_groups == 1)
        g.first[0] = 0;
    place_ranks(&g);
    tt_arena_free(&g.arena);
    return tt_topo_seal(g.b, out, diag);
}

tutti_err tt_topology_generate(const tt_mem *mem, const char *spec,
                               tutti_topology **out, tutti_diag *diag)
{
    tt_genspec s;
    tutti_err err = tt_genspec_read(mem, spec, &s, diag);
    if (!err)
        err = make(&s, out, diag);
    tt_arena_free(&s.arena);
    return err;
}
