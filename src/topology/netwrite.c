/* SPDX-License-Identifier: BSD-3-Clause
 * netwrite.c - a network as a file, and its id, the hash of that file.
 *
 * One network has one text: all nodes in order of number, hosts of one kind
 * together on a line; the grid; all cables but memory in order of number; the
 * largest units that are whole. So what is written reads back to the same
 * nodes, links, ranks and id. The hash is taken piece by piece: no network is
 * too large for it.
 *
 * Next       netfile.c, which reads it; docs/reference/topology.md, the
 *            grammar. */
#include "topology/network.h"

#include "base/hash.h"

#include <string.h>

enum { LINE_WIDTH = 76, FLUSH_BYTES = 1 << 16 };

typedef struct writer {
    const tutti_topology *t;
    tt_str *out;
    uint64_t *hash;    /* not NULL: hashes and forgets instead of keeping */
    size_t line_start; /* in out */
    bool is_given;     /* ranks are in the order of the nodes */
    uint32_t n_memory; /* the links before this are memory */
} writer;

static void end_line(writer *w)
{
    tt_str_add(w->out, "\n", 1);
    if (w->hash && w->out->len > FLUSH_BYTES) {
        *w->hash = tt_fnv1a(*w->hash, w->out->data, w->out->len);
        w->out->len = 0;
    }
    w->line_start = w->out->len;
}

/* The rate both ways, as RATE or RATE/RATE. */
static void put_rates(writer *w, uint64_t up, uint64_t down)
{
    tt_rate_write(w->out, up);
    if (down == up)
        return;
    tt_str_add(w->out, "/", 1);
    tt_rate_write(w->out, down);
}

static void put_forwards(writer *w, const tt_node *node)
{
    if (!node->forwards)
        tt_str_puts(w->out, " forwards=no");
}

/* A run of nodes that one line can declare. */
static uint32_t put_plain(writer *w, uint32_t v)
{
    const tt_node *nodes = w->t->nodes;
    const tt_node *like = &nodes[v];
    tt_node_kind kind = like->kind;
    bool with_rank = kind == TT_NODE_HOST && !w->is_given;
    tt_str_puts(w->out, kind == TT_NODE_SWITCH ? "switch" : "host");
    for (; v < w->t->n_nodes && nodes[v].kind == kind &&
           nodes[v].forwards == like->forwards;
         v++) {
        size_t len = w->out->len - w->line_start;
        bool is_first = len <= strlen("switch");
        if (!is_first &&
            (with_rank || len + strlen(nodes[v].name) > LINE_WIDTH))
            break;
        tt_str_add(w->out, " ", 1);
        tt_str_puts(w->out, nodes[v].name);
        if (with_rank) {
            tt_str_puts(w->out, " rank=");
            tt_str_u64(w->out, nodes[v].rank);
        }
    }
    put_forwards(w, like);
    end_line(w);
    return v;
}

/* A host of several ranks: its hub at v, then its slots. */
static uint32_t put_big(writer *w, uint32_t v)
{
    const tt_node *nodes = w->t->nodes;
    const tutti_topology *t = w->t;
    uint32_t first = v + 1, end = first;
    while (end < t->n_nodes && nodes[end].kind == TT_NODE_SLOT &&
           nodes[end].hub == v)
        end++;
    tt_str_puts(w->out, "host ");
    tt_str_puts(w->out, nodes[v].name);
    tt_str_puts(w->out, w->is_given ? " ranks=" : " rank=");
    if (w->is_given)
        tt_str_u64(w->out, end - first);
    for (uint32_t s = first; s < end && !w->is_given; s++) {
        if (s > first)
            tt_str_add(w->out, ",", 1);
        tt_str_u64(w->out, nodes[s].rank);
    }
    const tt_link *up = &t->links[t->out[t->first_out[first]]];
    tt_str_puts(w->out, " memory=");
    put_rates(w, up->rate_bps, t->links[up->twin].rate_bps);
    tt_str_add(w->out, ",", 1);
    tt_latency_write(w->out, up->latency_ps);
    put_forwards(w, &nodes[v]);
    end_line(w);
    return end;
}

static void put_nodes(writer *w)
{
    const tutti_topology *t = w->t;
    for (uint32_t v = 0; v < t->n_nodes && !w->out->err;)
        v = t->nodes[v].kind == TT_NODE_HUB ? put_big(w, v) : put_plain(w, v);
}

static void put_grid(writer *w)
{
    const tt_grid *g = &w->t->grid;
    if (g->n_dims == 0)
        return;
    tt_str_puts(w->out, "grid ");
    for (uint32_t i = 0; i < g->n_dims; i++) {
        if (i > 0)
            tt_str_add(w->out, "x", 1);
        tt_str_u64(w->out, g->dims[i]);
    }
    tt_str_puts(w->out, g->wraps ? " torus" : " mesh");
    end_line(w);
}

static void put_sockets(writer *w)
{
    if (w->t->n_sockets < 2)
        return;
    tt_str_puts(w->out, "sockets ");
    tt_str_u64(w->out, w->t->n_sockets);
    end_line(w);
}

/* " dev=eth0": of the first node if it is a host, else of the second;
 * " dev=eth0/eth1" or "dev=/eth1" when that does not tell. */
static void put_devs(writer *w, const tt_link *l)
{
    const tt_link *back = l->twin == TT_NONE ? NULL : &w->t->links[l->twin];
    const char *far = back ? back->dev : NULL;
    if (!l->dev && !far)
        return;
    bool is_first_host = w->t->nodes[l->from].kind != TT_NODE_SWITCH;
    tt_str_puts(w->out, " dev=");
    if (l->dev)
        tt_str_puts(w->out, l->dev);
    if (far && (l->dev || is_first_host))
        tt_str_add(w->out, "/", 1);
    if (far)
        tt_str_puts(w->out, far);
}

/* `-`: 0. */
static void put_rate_or_none(writer *w, uint64_t bps)
{
    if (bps == 0)
        tt_str_add(w->out, "-", 1);
    else
        tt_rate_write(w->out, bps);
}

/* " rate=100Mbit"; " rate=100Mbit/-" where it is said of one way only. */
static void put_both_ways(writer *w, const char *word, uint64_t there,
                          uint64_t back)
{
    if (there == 0 && back == 0)
        return;
    tt_str_puts(w->out, word);
    put_rate_or_none(w, there);
    if (back == there)
        return;
    tt_str_add(w->out, "/", 1);
    put_rate_or_none(w, back);
}

static void put_link(writer *w, const tt_link *l)
{
    const tt_node *nodes = w->t->nodes;
    const tt_link *back = l->twin == TT_NONE ? l : &w->t->links[l->twin];
    tt_str_puts(w->out, "link ");
    tt_str_puts(w->out, nodes[l->from].name);
    tt_str_add(w->out, " ", 1);
    tt_str_puts(w->out, nodes[l->to].name);
    tt_str_add(w->out, " ", 1);
    put_rates(w, l->rate_bps, back->rate_bps);
    tt_str_add(w->out, " ", 1);
    tt_latency_write(w->out, l->latency_ps);
    put_devs(w, l);
    put_both_ways(w, " rate=", l->cap_bps, back->cap_bps);
    put_both_ways(w, " least=", l->least_bps, back->least_bps);
    if (l->twin == TT_NONE)
        tt_str_puts(w->out, " oneway");
    end_line(w);
}

static void put_links(writer *w)
{
    const tutti_topology *t = w->t;
    for (uint32_t i = w->n_memory; i < t->n_links && !w->out->err; i++) {
        const tt_link *l = &t->links[i];
        bool is_back = l->twin != TT_NONE && l->twin < i;
        if (!is_back)
            put_link(w, l);
    }
}

static void put_all(writer *w)
{
    const tutti_topology *t = w->t;
    uint32_t next = 0;
    w->is_given = true;
    w->line_start = w->out->len;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        w->n_memory += t->nodes[v].kind == TT_NODE_SLOT ? 2 : 0;
        if (t->nodes[v].rank != TT_NONE)
            w->is_given = w->is_given && t->nodes[v].rank == next++;
    }
    tt_str_puts(w->out, "tutti-topology 1");
    end_line(w);
    put_nodes(w);
    put_grid(w);
    put_sockets(w);
    put_links(w);
}

void tt_topology_write(const tutti_topology *t, tt_str *out)
{
    writer w = {.t = t, .out = out};
    put_all(&w);
}

tutti_err tt_topology_hash(const tutti_topology *t, const tt_mem *mem,
                           uint64_t *id)
{
    tt_str piece = {.mem = mem};
    uint64_t hash = TT_FNV1A_START;
    writer w = {.t = t, .out = &piece, .hash = &hash};
    put_all(&w);
    tutti_err err = piece.err;
    if (!err)
        *id = tt_fnv1a(hash, piece.data, piece.len);
    tt_str_free(&piece);
    return err;
}
