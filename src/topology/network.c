/* SPDX-License-Identifier: BSD-3-Clause
 * network.c - how a network is made: a builder collects nodes and cables, seal
 * checks them and lays them out.
 *
 * Order      Nodes keep the order in which they were added. Links: first the
 *            memory of hosts with several ranks, in order of hosts, then the
 *            others as added; a cable is two links, one after the other. So a
 *            file that lists all nodes and then all links, as the writer's do,
 *            reads back to the same numbers.
 * Ranks      Numbered in the order of hosts (slots) added, unless placed.
 * Checks     While adding: names, rates, self links, limits. At seal: every
 *            host has a link; every rank reaches every other (from rank 0
 *            forwards, and backwards); a grid is exactly one.
 * Cost       O(nodes + links), and one hash table of names.
 * Next       netfile.c (reads and writes files), generate.c, routes.c.
 */
#include "topology/network.h"

#include "base/hash.h"
#include "base/nearest.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct cable {
    uint32_t a, z;
    tt_wire wire;
} cable;

typedef struct cables {
    cable *list;
    size_t cap;
    uint32_t n; /* cables */
} cables;

struct tt_topo_builder {
    const tt_mem *mem;
    tt_arena arena; /* names; the topology takes it over */
    tt_arena work;  /* all lists */
    tutti_err err;
    tutti_diag diag;
    tt_spot at;
    tt_node *nodes;
    tt_spot *spots; /* of nodes */
    size_t cap_nodes, cap_spots;
    uint32_t n_nodes, n_ranks, n_links;
    cables memory, wires;
    uint32_t *table; /* hash of names: node + 1 */
    size_t n_table;  /* a power of two, or 0 */
    tt_grid grid;
    bool forwards; /* hosts that are added */
    uint32_t n_sockets;
    tt_spot grid_at;
    uint32_t *place; /* [n_place], or NULL */
    uint32_t n_place;
    bool is_part; /* of a network: switches may have been hosts */
};

/* --------------------------------------------------------------- errors -- */

void tt_topo_refuse(tt_topo_builder *b, tutti_err err, tt_spot spot,
                    const char *fmt, ...)
{
    char sentence[440];
    va_list args;
    if (b->err)
        return;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof(sentence), fmt, args);
    va_end(args);
    b->err = tt_fail_at(&b->diag, err, spot, "%s", sentence);
}

static void no_memory(tt_topo_builder *b)
{
    tt_topo_refuse(b, TUTTI_ENOMEM, (tt_spot){0},
                   "no memory for a network of %u nodes and %u links",
                   b->n_nodes, b->n_links);
}

tutti_err tt_topo_error(const tt_topo_builder *b, tutti_diag *diag)
{
    if (b->err && diag)
        *diag = b->diag;
    return b->err;
}

/* ---------------------------------------------------------------- names -- */

bool tt_name_is_good(const char *name, size_t len)
{
    if (len == 0 || len > TT_MAX_NAME)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       (c >= '0' && c <= '9');
        if (!is_word && (c == 0 || !strchr("._-", c)))
            return false;
    }
    return true;
}

bool tt_dev_is_good(const char *name, size_t len)
{
    if (len == 0 || len > TT_MAX_DEV)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '/' || name[i] == '#')
            return false;
    }
    return true;
}

/* Where in the table the name is, or the free place where it belongs. */
static size_t slot_of(const tt_topo_builder *b, const char *name, size_t len)
{
    size_t mask = b->n_table - 1;
    size_t i = (size_t)tt_fnv1a(TT_FNV1A_START, name, len) & mask;
    while (b->table[i]) {
        const char *other = b->nodes[b->table[i] - 1].name;
        if (strncmp(other, name, len) == 0 && other[len] == 0)
            break;
        i = (i + 1) & mask;
    }
    return i;
}

/* A slot gives way to a node that files can name. */
static void enter(tt_topo_builder *b, uint32_t v)
{
    const char *name = b->nodes[v].name;
    uint32_t *place = &b->table[slot_of(b, name, strlen(name))];
    if (*place == 0 || b->nodes[v].kind != TT_NODE_SLOT)
        *place = v + 1;
}

/* Keeps the table at most half full. */
static tutti_err grow_table(tt_topo_builder *b)
{
    if ((size_t)b->n_nodes * 2 < b->n_table)
        return TUTTI_OK;
    size_t n = b->n_table ? b->n_table * 4 : 64;
    uint32_t *table = tt_arena_new(&b->work, n, sizeof(*table));
    if (!table)
        return TUTTI_ENOMEM;
    b->table = table;
    b->n_table = n;
    for (uint32_t v = 0; v < b->n_nodes; v++)
        enter(b, v);
    return TUTTI_OK;
}

uint32_t tt_topo_find(const tt_topo_builder *b, const char *name, size_t len)
{
    if (b->n_table == 0)
        return TT_NONE;
    return b->table[slot_of(b, name, len)] - 1; /* 0 - 1 is TT_NONE */
}

const char *tt_topo_nearest(const tt_topo_builder *b, const char *name,
                            size_t len)
{
    /* Farther away is no help. */
    size_t best = len < 3 ? 1 : len < 5 ? 2 : 3;
    const char *found = NULL;
    for (uint32_t v = 0; v < b->n_nodes && best > 1; v++) {
        const char *other = b->nodes[v].name;
        size_t other_len = strlen(other);
        if (other_len >= len + best || len >= other_len + best)
            continue; /* that is quicker seen, among many names */
        size_t d = tt_letters_apart(name, len, other);
        if (d < best) {
            best = d;
            found = other;
        }
    }
    return found;
}

/* A copy in the arena; NULL stays NULL. */
static const char *keep(tt_topo_builder *b, const char *text)
{
    if (!text)
        return NULL;
    size_t len = strlen(text);
    char *copy = tt_arena_new(&b->arena, len + 1, 1);
    if (!copy) {
        no_memory(b);
        return NULL;
    }
    memcpy(copy, text, len);
    return copy;
}

/* ---------------------------------------------------------------- nodes -- */

tutti_err tt_topo_builder_create(const tt_mem *mem, tt_topo_builder **out,
                                 tutti_diag *diag)
{
    tt_topo_builder *b = tt_new(mem, 1, sizeof(*b));
    if (!b)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for a network");
    b->mem = mem;
    b->arena.mem = b->work.mem = mem;
    b->forwards = true;
    *out = b;
    return TUTTI_OK;
}

void tt_topo_builder_free(tt_topo_builder *b)
{
    if (!b)
        return;
    tt_arena_free(&b->arena);
    tt_arena_free(&b->work);
    tt_free(b->mem, b, 1, sizeof(*b));
}

void tt_topo_at(tt_topo_builder *b, tt_spot spot)
{
    b->at = spot;
}

tt_node_kind tt_topo_kind(const tt_topo_builder *b, uint32_t node)
{
    return b->nodes[node].kind;
}

uint32_t tt_topo_n_ranks(const tt_topo_builder *b)
{
    return b->n_ranks;
}

const tt_mem *tt_topo_mem(const tt_topo_builder *b)
{
    return b->mem;
}

static bool has_rank(tt_node_kind kind)
{
    return kind == TT_NODE_HOST || kind == TT_NODE_SLOT;
}

/* The slots of a host have names that nobody gave them: one may be that of a
 * host, as when a host grows. */
static bool is_clash(const tt_topo_builder *b, const char *name,
                     tt_node_kind kind)
{
    const uint32_t v = tt_topo_find(b, name, strlen(name));
    return v != TT_NONE &&
           (b->nodes[v].kind == TT_NODE_SLOT) == (kind == TT_NODE_SLOT);
}

/* May a node be added, by name and by number? */
static bool may_add(tt_topo_builder *b, const char *name, tt_node_kind kind)
{
    size_t len = strlen(name);
    if (b->err)
        return false;
    if (!tt_name_is_good(name, len))
        tt_topo_refuse(b, TUTTI_EINVAL, b->at,
                       "`%s` is not a name: letters, digits, '.', '_' and '-', "
                       "at most %d of them",
                       tt_quoted(name, len).text, (int)TT_MAX_NAME);
    else if (b->n_nodes >= TT_MAX_NODES)
        tt_topo_refuse(b, TUTTI_ELIMIT, b->at,
                       "a network can have at most %u nodes", TT_MAX_NODES);
    else if (has_rank(kind) && b->n_ranks >= TT_MAX_RANKS)
        tt_topo_refuse(b, TUTTI_ELIMIT, b->at,
                       "a network can have at most %u ranks", TT_MAX_RANKS);
    else if (is_clash(b, name, kind))
        tt_topo_refuse(b, TUTTI_EINVAL, b->at,
                       "two nodes would have the name `%s`",
                       tt_quoted(name, len).text);
    return b->err == TUTTI_OK;
}

static uint32_t add_node(tt_topo_builder *b, const char *name,
                         tt_node_kind kind, uint32_t hub)
{
    if (!may_add(b, name, kind))
        return TT_NONE;
    size_t need = (size_t)b->n_nodes + 1;
    const char *copy = keep(b, name);
    b->nodes = tt_arena_grow(&b->work, b->nodes, &b->cap_nodes, need,
                             sizeof(*b->nodes));
    b->spots = tt_arena_grow(&b->work, b->spots, &b->cap_spots, need,
                             sizeof(*b->spots));
    if (!copy || b->work.err || grow_table(b)) {
        no_memory(b);
        return TT_NONE;
    }
    uint32_t v = b->n_nodes;
    b->nodes[v] = (tt_node){.name = copy, .hub = hub, .kind = kind};
    b->nodes[v].rank = has_rank(kind) ? b->n_ranks++ : TT_NONE;
    b->nodes[v].forwards = b->forwards || kind == TT_NODE_SWITCH;
    b->spots[v] = b->at;
    enter(b, v);
    b->n_nodes++;
    return v;
}

uint32_t tt_topo_switch(tt_topo_builder *b, const char *name)
{
    return add_node(b, name, TT_NODE_SWITCH, TT_NONE);
}

void tt_topo_forwards(tt_topo_builder *b, bool forwards)
{
    b->forwards = forwards;
}

uint32_t tt_topo_host(tt_topo_builder *b, const char *name)
{
    return add_node(b, name, TT_NODE_HOST, TT_NONE);
}

/* ---------------------------------------------------------------- links -- */

static bool wire_is_good(tt_topo_builder *b, const tt_wire *w)
{
    if (b->err)
        return false;
    if (w->up_bps == 0)
        tt_topo_refuse(b, TUTTI_EINVAL, b->at, "a rate must be above zero");
    else if (w->up_bps > TT_MAX_RATE_BPS || w->down_bps > TT_MAX_RATE_BPS)
        tt_topo_refuse(b, TUTTI_ELIMIT, b->at,
                       "a rate can be at most 1000 Tbit/s");
    else if (w->latency_ps > TT_MAX_LATENCY_PS)
        tt_topo_refuse(b, TUTTI_ELIMIT, b->at,
                       "a latency can be at most 1000 s");
    return b->err == TUTTI_OK;
}

static void add_cable(tt_topo_builder *b, cables *to, const cable *c)
{
    uint32_t n_links = c->wire.down_bps ? 2 : 1;
    if (b->n_links + n_links > TT_MAX_LINKS) {
        tt_topo_refuse(b, TUTTI_ELIMIT, b->at,
                       "a network can have at most %u links, counted in each "
                       "direction",
                       TT_MAX_LINKS);
        return;
    }
    to->list = tt_arena_grow(&b->work, to->list, &to->cap, (size_t)to->n + 1,
                             sizeof(*to->list));
    if (b->work.err) {
        no_memory(b);
        return;
    }
    to->list[to->n++] = *c;
    b->n_links += n_links;
}

void tt_topo_is_part(tt_topo_builder *b)
{
    b->is_part = true;
}

/* An interface can be named at a host, in words that a file can have. */
static bool dev_fits(const tt_topo_builder *b, uint32_t node, const char *dev)
{
    bool has_devs = b->nodes[node].kind != TT_NODE_SWITCH || b->is_part;
    return !dev || (has_devs && tt_dev_is_good(dev, strlen(dev)));
}

static uint64_t capped(uint64_t bps, uint64_t cap_bps)
{
    return cap_bps && cap_bps < bps ? cap_bps : bps;
}

/* Less than the rate, or no doubt. */
static uint64_t doubted(uint64_t least_bps, uint64_t bps)
{
    return least_bps < bps ? least_bps : 0;
}

void tt_topo_link(tt_topo_builder *b, uint32_t a, uint32_t z,
                  const tt_wire *wire)
{
    if (!wire_is_good(b, wire))
        return;
    if (a >= b->n_nodes || z >= b->n_nodes) {
        tt_topo_refuse(b, TUTTI_EINVAL, b->at, "a link to a node that is none");
        return;
    }
    if (a == z) {
        tt_topo_refuse(b, TUTTI_EINVAL, b->at, "`%.100s` is linked with itself",
                       b->nodes[a].name);
        return;
    }
    if (!dev_fits(b, a, wire->dev) || !dev_fits(b, z, wire->far_dev)) {
        tt_topo_refuse(b, TUTTI_EINVAL, b->at,
                       "an interface is named at a switch, or badly");
        return;
    }
    cable c = {a, z, *wire};
    c.wire.up_bps = capped(wire->up_bps, wire->up_cap_bps);
    c.wire.down_bps = capped(wire->down_bps, wire->down_cap_bps);
    c.wire.up_least_bps = doubted(wire->up_least_bps, c.wire.up_bps);
    c.wire.down_least_bps = doubted(wire->down_least_bps, c.wire.down_bps);
    c.wire.dev = keep(b, wire->dev);
    c.wire.far_dev = keep(b, wire->far_dev);
    if (!b->err)
        add_cable(b, &b->wires, &c);
}

uint32_t tt_topo_hub(tt_topo_builder *b, const char *name)
{
    return add_node(b, name, TT_NODE_HUB, TT_NONE);
}

uint32_t tt_topo_slot(tt_topo_builder *b, uint32_t hub, const char *name,
                      const tt_wire *memory)
{
    if (!wire_is_good(b, memory))
        return TT_NONE;
    uint32_t v = add_node(b, name, TT_NODE_SLOT, hub);
    uint64_t down = memory->down_bps ? memory->down_bps : memory->up_bps;
    const cable c = {v,
                     hub,
                     {.up_bps = memory->up_bps,
                      .down_bps = down,
                      .latency_ps = memory->latency_ps,
                      .is_memory = true}};
    if (!b->err)
        add_cable(b, &b->memory, &c);
    return v;
}

uint32_t tt_topo_big_host(tt_topo_builder *b, const char *name,
                          uint32_t n_ranks, const tt_wire *memory)
{
    if (n_ranks == 1)
        return tt_topo_host(b, name);
    if (n_ranks == 0)
        tt_topo_refuse(b, TUTTI_EINVAL, b->at, "a host needs a rank");
    if (!wire_is_good(b, memory))
        return TT_NONE;
    uint32_t hub = tt_topo_hub(b, name);
    for (uint32_t i = 0; i < n_ranks && !b->err; i++) {
        char slot[TT_MAX_NAME + 16];
        snprintf(slot, sizeof(slot), "%.*s.%u", (int)TT_MAX_NAME, name, i);
        tt_topo_slot(b, hub, slot, memory);
    }
    return b->err ? TT_NONE : hub;
}

void tt_topo_grid(tt_topo_builder *b, const tt_grid *grid)
{
    b->grid = *grid;
    b->grid_at = b->at;
}

void tt_topo_sockets(tt_topo_builder *b, uint32_t n)
{
    b->n_sockets = n;
}

void tt_topo_place(tt_topo_builder *b, const uint32_t *place, uint32_t n)
{
    if (b->err)
        return;
    b->place = tt_arena_new(&b->work, n, sizeof(*b->place));
    b->n_place = b->place ? n : 0;
    if (b->place)
        memcpy(b->place, place, n * sizeof(*place));
    else if (n)
        no_memory(b);
}

/* ----------------------------------------------------------------- seal -- */

/* What is written to while a topology is made. */
typedef struct draft {
    tutti_topology *t;
    tt_node *nodes;
    tt_link *links;
    uint32_t *rank_node, *first_out, *out, *first_in, *in;
} draft;

static void draft_new(tt_topo_builder *b, draft *d)
{
    tt_arena *a = &b->arena;
    size_t n = b->n_nodes;
    /* One more, so that a network without links is no special case. */
    size_t m = (size_t)b->n_links + 1;
    d->t = tt_arena_new(a, 1, sizeof(*d->t));
    d->nodes = tt_arena_new(a, n, sizeof(*d->nodes));
    d->links = tt_arena_new(a, m, sizeof(*d->links));
    d->rank_node = tt_arena_new(a, b->n_ranks, 4);
    d->first_out = tt_arena_new(a, n + 1, 4);
    d->first_in = tt_arena_new(a, n + 1, 4);
    d->out = tt_arena_new(a, m, 4);
    d->in = tt_arena_new(a, m, 4);
    if (a->err)
        no_memory(b);
}

static tt_link *lay_cables(tt_link *at, const tt_link *first,
                           const cables *from)
{
    for (uint32_t i = 0; i < from->n; i++) {
        const cable *c = &from->list[i];
        const tt_wire *w = &c->wire;
        uint32_t there = (uint32_t)(at - first), back = there + 1;
        bool both = w->down_bps > 0;
        *at++ = (tt_link){.from = c->a,
                          .to = c->z,
                          .twin = both ? back : TT_NONE,
                          .rate_bps = w->up_bps,
                          .latency_ps = w->latency_ps,
                          .dev = w->dev,
                          .cap_bps = w->up_cap_bps,
                          .least_bps = w->up_least_bps,
                          .is_memory = w->is_memory};
        if (both)
            *at++ = (tt_link){.from = c->z,
                              .to = c->a,
                              .twin = there,
                              .rate_bps = w->down_bps,
                              .latency_ps = w->latency_ps,
                              .dev = w->far_dev,
                              .cap_bps = w->down_cap_bps,
                              .least_bps = w->down_least_bps,
                              .is_memory = w->is_memory};
    }
    return at;
}

/* Lists the links by the node where they leave, or enter; stable. */
static void index_links(const draft *d, uint32_t n_nodes, uint32_t n_links,
                        bool is_out)
{
    uint32_t *first = is_out ? d->first_out : d->first_in;
    uint32_t *list = is_out ? d->out : d->in;
    /* first[v + 1] counts, then tells where v's links end, ... */
    for (uint32_t i = 0; i < n_links; i++)
        first[(is_out ? d->links[i].from : d->links[i].to) + 1]++;
    for (uint32_t v = 0; v < n_nodes; v++)
        first[v + 1] += first[v];
    /* ... and first[v] moves to its end while the list is filled. */
    for (uint32_t i = 0; i < n_links; i++)
        list[first[is_out ? d->links[i].from : d->links[i].to]++] = i;
    for (uint32_t v = n_nodes; v > 0; v--)
        first[v] = first[v - 1];
    first[0] = 0;
}

/* Ranks become what place says; then rank_node. */
static void number_ranks(tt_topo_builder *b, const draft *d)
{
    if (b->place && b->n_place != b->n_ranks)
        tt_topo_refuse(b, TUTTI_EINVAL, (tt_spot){0},
                       "%u ranks are placed, but there are %u", b->n_place,
                       b->n_ranks);
    for (uint32_t r = 0; r < b->n_ranks; r++)
        d->rank_node[r] = TT_NONE;
    for (uint32_t v = 0; v < b->n_nodes && !b->err; v++) {
        tt_node *node = &d->nodes[v];
        if (node->rank == TT_NONE)
            continue;
        if (b->place)
            node->rank = b->place[node->rank];
        if (node->rank >= b->n_ranks)
            tt_topo_refuse(b, TUTTI_EINVAL, b->spots[v],
                           "`%.100s` has rank %u, but there are %u ranks, "
                           "numbered from 0",
                           node->name, node->rank, b->n_ranks);
        else if (d->rank_node[node->rank] != TT_NONE)
            tt_topo_refuse(b, TUTTI_EINVAL, b->spots[v],
                           "`%.100s` and `%.100s` both have rank %u",
                           d->nodes[d->rank_node[node->rank]].name, node->name,
                           node->rank);
        else
            d->rank_node[node->rank] = v;
    }
}

static void check_links(tt_topo_builder *b, const draft *d)
{
    for (uint32_t v = 0; v < b->n_nodes && !b->err && b->n_ranks > 1; v++) {
        const tt_node *node = &b->nodes[v];
        bool has_out = d->first_out[v] != d->first_out[v + 1];
        bool has_in = d->first_in[v] != d->first_in[v + 1];
        if (node->kind == TT_NODE_HOST && !has_out && !has_in)
            tt_topo_refuse(b, TUTTI_EINVAL, b->spots[v],
                           "host `%.100s` has no link", node->name);
    }
}

/* Marks in seen[] (of zeros) what `from` reaches, or what reaches it. queue:
 * room for all nodes. */
static void flood(const draft *d, uint32_t from, bool is_out, uint8_t *seen,
                  uint32_t *queue)
{
    const uint32_t *first = is_out ? d->first_out : d->first_in;
    const uint32_t *list = is_out ? d->out : d->in;
    uint32_t n = 1;
    queue[0] = from;
    seen[from] = 1;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = first[queue[i]]; k < first[queue[i] + 1]; k++) {
            const tt_link *l = &d->links[list[k]];
            uint32_t next = is_out ? l->to : l->from;
            if (!seen[next])
                queue[n++] = next;
            seen[next] = 1;
        }
    }
}

static void check_paths(tt_topo_builder *b, const draft *d)
{
    uint32_t *queue = tt_arena_new(&b->work, b->n_nodes, sizeof(*queue));
    uint8_t *seen = tt_arena_new(&b->work, b->n_nodes, 1);
    if (b->work.err)
        no_memory(b);
    uint32_t first = d->rank_node[0];
    for (int is_out = 1; is_out >= 0 && !b->err; is_out--) {
        memset(seen, 0, b->n_nodes);
        flood(d, first, is_out, seen, queue);
        for (uint32_t r = 1; r < b->n_ranks && !b->err; r++) {
            uint32_t v = d->rank_node[r];
            if (seen[v])
                continue;
            const char *one = d->nodes[is_out ? first : v].name;
            const char *other = d->nodes[is_out ? v : first].name;
            tt_topo_refuse(b, TUTTI_EINVAL, b->spots[v],
                           "there is no path from `%.100s` to `%.100s`", one,
                           other);
        }
    }
}

/* ---------------------------------------------------------------- grids -- */

uint64_t tt_grid_points(const tt_grid *g)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < g->n_dims; i++) {
        n *= g->dims[i];
        if (n > UINT32_MAX)
            return 0;
    }
    return n;
}

uint32_t tt_grid_direction(const tt_grid *g, uint32_t from, uint32_t to)
{
    uint32_t found = TT_NONE;
    for (uint32_t i = g->n_dims; i-- > 0;) {
        uint32_t n = g->dims[i];
        uint32_t a = from % n, z = to % n;
        from /= n;
        to /= n;
        if (a == z)
            continue;
        bool is_up = z == a + 1 || (g->wraps && n > 2 && z == 0 && a == n - 1);
        bool is_down = a == z + 1 ||
                       (g->wraps && n > 2 && a == 0 && z == n - 1);
        if (found != TT_NONE || !(is_up || is_down))
            return TT_NONE;
        found = 2 * i + (is_up ? 0 : 1);
    }
    return found;
}

/* The directions in which a node of the grid has neighbours, as bits. */
static uint32_t directions(const tt_grid *g, uint32_t node)
{
    uint32_t bits = 0;
    for (uint32_t i = g->n_dims; i-- > 0;) {
        uint32_t n = g->dims[i];
        uint32_t at = node % n;
        node /= n;
        if (at + 1 < n || (g->wraps && n > 2))
            bits |= 1u << (2 * i);
        if (at > 0 || (g->wraps && n > 2))
            bits |= 1u << (2 * i + 1);
    }
    return bits;
}

static void check_grid_node(tt_topo_builder *b, const draft *d, uint32_t v)
{
    uint32_t want = directions(&b->grid, v), have = 0;
    for (uint32_t k = d->first_out[v]; k < d->first_out[v + 1]; k++) {
        uint32_t to = d->links[d->out[k]].to;
        uint32_t way = tt_grid_direction(&b->grid, v, to);
        if (way == TT_NONE || (have >> way & 1)) {
            tt_topo_refuse(b, TUTTI_EINVAL, b->grid_at,
                           "`%.100s` and `%.100s` are linked %s of this grid",
                           b->nodes[v].name, b->nodes[to].name,
                           way == TT_NONE ? "but no neighbours"
                                          : "twice, which is no part");
            return;
        }
        have |= 1u << way;
    }
    if (have != want || b->nodes[v].kind != TT_NODE_HOST)
        tt_topo_refuse(b, TUTTI_EINVAL, b->grid_at,
                       have != want
                           ? "`%.100s` is not linked with all its neighbours "
                             "of this grid"
                           : "`%.100s` is not a host of one rank, as all nodes "
                             "of a grid are",
                       b->nodes[v].name);
}

static void check_grid(tt_topo_builder *b, const draft *d)
{
    if (b->grid.n_dims == 0 || b->err)
        return;
    bool has_zero = b->grid.n_dims > TT_MAX_DIMS;
    for (uint32_t i = 0; i < b->grid.n_dims && !has_zero; i++)
        has_zero = b->grid.dims[i] == 0;
    uint64_t n = has_zero ? 0 : tt_grid_points(&b->grid);
    if (n != b->n_nodes)
        tt_topo_refuse(b, TUTTI_EINVAL, b->grid_at,
                       "this grid does not have the network's %u nodes",
                       b->n_nodes);
    for (uint32_t v = 0; v < b->n_nodes && !b->err; v++)
        check_grid_node(b, d, v);
}

/* ------------------------------------------------------------------------- */

static void fill(tt_topo_builder *b, const draft *d)
{
    memcpy(d->nodes, b->nodes, b->n_nodes * sizeof(*d->nodes));
    tt_link *end = lay_cables(d->links, d->links, &b->memory);
    lay_cables(end, d->links, &b->wires);
    index_links(d, b->n_nodes, b->n_links, true);
    index_links(d, b->n_nodes, b->n_links, false);
    number_ranks(b, d);
    if (!b->err)
        check_links(b, d);
    if (!b->err)
        check_paths(b, d);
    check_grid(b, d);
}

static bool all_forward(const tt_topo_builder *b)
{
    for (uint32_t v = 0; v < b->n_nodes; v++)
        if (!b->nodes[v].forwards)
            return false;
    return true;
}

tutti_err tt_topo_seal(tt_topo_builder *b, tutti_topology **out,
                       tutti_diag *diag)
{
    draft d = {0};
    if (!b->err && b->n_ranks == 0)
        tt_topo_refuse(b, TUTTI_EINVAL, b->at, "a network needs a host");
    if (!b->err)
        draft_new(b, &d);
    if (!b->err)
        fill(b, &d);
    if (!b->err) {
        *d.t = (tutti_topology){.n_ranks = b->n_ranks,
                                .n_nodes = b->n_nodes,
                                .n_links = b->n_links,
                                .nodes = d.nodes,
                                .links = d.links,
                                .rank_node = d.rank_node,
                                .first_out = d.first_out,
                                .out = d.out,
                                .first_in = d.first_in,
                                .in = d.in,
                                .grid = b->grid,
                                .all_forward = all_forward(b),
                                .n_sockets = b->n_sockets ? b->n_sockets : 1,
                                .arena = b->arena};
        if (tt_topology_hash(d.t, b->mem, &d.t->id))
            no_memory(b);
    }
    tutti_err err = tt_topo_error(b, diag);
    if (!err) {
        b->arena.head = NULL;
        *out = d.t;
    }
    tt_topo_builder_free(b);
    return err;
}

void tt_topology_free(tutti_topology *t)
{
    if (!t)
        return;
    tt_arena arena = t->arena; /* t lies in it */
    tt_arena_free(&arena);
}

/* ------------------------------------------------------------- questions -- */

static uint64_t sum_bps(const tutti_topology *t, const uint32_t *list,
                        const uint32_t *end)
{
    uint64_t sum = 0; /* 2^23 links of at most 10^15: below 2^73... */
    for (; list < end; list++) {
        uint64_t more = t->links[*list].rate_bps;
        sum = sum > UINT64_MAX - more ? UINT64_MAX : sum + more;
    }
    return sum;
}

bool tt_topology_is_doubtful(const tutti_topology *t)
{
    uint32_t i = 0;
    while (i < t->n_links && t->links[i].least_bps == 0)
        i++;
    return i < t->n_links;
}

uint64_t tt_rank_out_bps(const tutti_topology *t, uint32_t rank)
{
    uint32_t v = t->rank_node[rank];
    return sum_bps(t, t->out + t->first_out[v], t->out + t->first_out[v + 1]);
}

uint64_t tt_rank_in_bps(const tutti_topology *t, uint32_t rank)
{
    uint32_t v = t->rank_node[rank];
    return sum_bps(t, t->in + t->first_in[v], t->in + t->first_in[v + 1]);
}
