/* SPDX-License-Identifier: BSD-3-Clause
 * packet.c - a slice occupies each link of its route in turn.
 *
 * Idea       A link serves one slice at a time, for wire_bytes / rate. A token
 *            bucket (burst_bytes) makes up for what the link has waited: its
 *            clock may lag behind by the time of a burst, not more. It is
 *            empty at the beginning, as the call before has left it. Others
 *            wait in its queue, without limit: first come first served, or
 *            the lowest step first (by_step), then first come. The slice joins
 *            the next link's queue a latency after it has left (store-and-
 *            forward), or after its head has (cut-through). A link that is
 *            faster than the one before serves others while a slice comes:
 *            the slice joins so late that it passes without a gap.
 * Wire       the payload in whole flits, and a header in whole flits for each
 *            packet; message mode: one for the slice.
 * Invariant  A connection has at most one slice in its first link's queue; so
 *            what is chosen is chosen late.
 * Queues     skew heaps linked through the messages: no memory of their own.
 * Cost       2 events per slice and link; O(log) of the queue, amortised.
 * Next       tests/unit/sim_test.c. */
#include "sim/world.h"

#include <math.h>

#include "base/numbers.h"

typedef struct channel {
    double rate;
    double clock_s;  /* until when the rate allows what has passed */
    uint32_t queue;  /* root; TT_NONE: empty */
    uint32_t sender; /* the connection whose slice enters here; or TT_NONE */
    bool is_busy, is_dirty;
} channel;

typedef struct packet {
    channel *channels;             /* [n_links] */
    uint64_t flit, header, packet; /* header and packet with their flits */
    uint64_t seq;
    uint32_t *dirty, n_dirty; /* links that may serve, each once */
} packet;

static uint64_t wire_bytes(const tt_sim_world *w, uint64_t payload)
{
    const packet *p = w->net;
    const uint64_t size = w->opts->packet_bytes;
    if (w->opts->message_mode || size == 0)
        return tt_round_up(payload, p->flit) + p->header;
    uint64_t rest = payload % size;
    uint64_t wire = payload / size * (p->packet + p->header);
    return rest ? wire + tt_round_up(rest, p->flit) + p->header : wire;
}

/* --------------------------------------------------------------- queues -- */

static bool goes_before(const tt_sim_world *w, uint32_t a, uint32_t b)
{
    const tt_sim_msg *x = &w->msgs[a], *y = &w->msgs[b];
    uint32_t step_x = w->s->transfers[x->lane].step;
    uint32_t step_y = w->s->transfers[y->lane].step;
    if (w->opts->by_step && step_x != step_y)
        return step_x < step_y;
    return x->seq < y->seq;
}

/* next is the left child. */
static uint32_t merge(tt_sim_world *w, uint32_t a, uint32_t b)
{
    uint32_t root = TT_NONE;
    uint32_t *at = &root;
    while (a != TT_NONE && b != TT_NONE) {
        if (goes_before(w, b, a)) {
            uint32_t kept = a;
            a = b;
            b = kept;
        }
        tt_sim_msg *top = &w->msgs[a];
        *at = a;
        a = top->right;
        top->right = top->next;
        at = &top->next;
    }
    *at = a != TT_NONE ? a : b;
    return root;
}

/* The link that the slice is at, or that comes so many hops later. */
static uint32_t link_of(const tt_sim_world *w, uint32_t m, uint32_t ahead)
{
    const tt_sim_msg *msg = &w->msgs[m];
    const tt_sim_conn *conn = &w->conns[w->lanes[msg->lane].conn];
    return w->links.at[conn->route + msg->hop + ahead];
}

static void wake_link(tt_sim_world *w, uint32_t link)
{
    packet *p = w->net;
    channel *ch = &p->channels[link];
    if (ch->is_busy || ch->is_dirty || ch->queue == TT_NONE)
        return;
    ch->is_dirty = true;
    p->dirty[p->n_dirty++] = link;
}

static void join_queue(tt_sim_world *w, uint32_t m)
{
    packet *p = w->net;
    uint32_t link = link_of(w, m, 0);
    tt_sim_msg *msg = &w->msgs[m];
    msg->next = msg->right = TT_NONE;
    msg->seq = p->seq++;
    p->channels[link].queue = merge(w, p->channels[link].queue, m);
    wake_link(w, link);
}

/* -------------------------------------------------------------- service -- */

/* When a slice that begins to leave now is in the next link's queue. */
static double joins_at(const tt_sim_world *w, uint32_t m, double latency_s)
{
    const packet *p = w->net;
    const tt_sim_msg *msg = &w->msgs[m];
    if (!w->opts->cut_through)
        return msg->tail_s;
    double rate = p->channels[link_of(w, m, 1)].rate;
    return fmax(w->now_s + latency_s,
                msg->tail_s - (double)msg->wire_bytes / rate);
}

static void serve(tt_sim_world *w, uint32_t link)
{
    packet *p = w->net;
    channel *ch = &p->channels[link];
    const tt_link *l = &w->t->links[link];
    uint32_t m = ch->queue;
    tt_sim_msg *msg = &w->msgs[m];
    const tt_sim_conn *conn = &w->conns[w->lanes[msg->lane].conn];
    bool is_last = msg->hop + 1 == conn->n_links;
    ch->queue = merge(w, msg->next, msg->right);
    ch->is_busy = true;
    ch->sender = msg->hop == 0 ? w->lanes[msg->lane].conn : TT_NONE;
    if (msg->hop == 0)
        msg->begin_s = w->now_s;
    tt_sim_carried(w, link, msg->wire_bytes);
    const double burst_s = (double)w->opts->burst_bytes / ch->rate;
    ch->clock_s = fmax(w->now_s - burst_s, ch->clock_s) +
                  (double)msg->wire_bytes / ch->rate;
    double end_s = fmax(fmax(w->now_s, ch->clock_s), msg->tail_s);
    msg->tail_s = end_s + tt_link_latency_s(l);
    tt_sim_at(w, end_s, TT_SIM_SERVED, link);
    if (is_last)
        tt_sim_at(w, msg->tail_s, TT_SIM_ARRIVE, m);
    else
        tt_sim_at(w, joins_at(w, m, tt_link_latency_s(l)), TT_SIM_HOP, m);
}

static void begin(tt_sim_world *w, uint32_t c)
{
    const uint32_t m = w->conns[c].msg;
    tt_sim_msg *msg = &w->msgs[m];
    uint64_t bytes = tt_sim_slice_bytes(w, msg->lane, msg->slice);
    msg->wire_bytes = wire_bytes(w, bytes);
    join_queue(w, m);
}

static void settle(tt_sim_world *w)
{
    packet *p = w->net;
    for (uint32_t i = 0; i < p->n_dirty && !w->err; i++) {
        p->channels[p->dirty[i]].is_dirty = false;
        serve(w, p->dirty[i]);
    }
    p->n_dirty = 0;
}

static void event(tt_sim_world *w, const tt_sim_event *e)
{
    packet *p = w->net;
    if (e->kind == TT_SIM_HOP) {
        w->msgs[e->id].hop++;
        join_queue(w, e->id);
        return;
    }
    channel *ch = &p->channels[e->id];
    ch->is_busy = false;
    if (ch->sender != TT_NONE)
        tt_sim_sent(w, ch->sender);
    wake_link(w, e->id);
}

/* --------------------------------------------------------------- model -- */

/* The bytes over all links must fit 64 bits, headers of small packets too. */
static tutti_err check_volume(const tt_sim_world *w)
{
    const packet *p = w->net;
    double per_slice = (double)p->flit + (double)p->header, wire = 1;
    if (w->opts->packet_bytes && !w->opts->message_mode)
        wire = (double)(p->packet + p->header) / w->opts->packet_bytes;
    double volume = 0;
    for (uint64_t l = 0; l < w->s->n_transfers; l++) {
        const tt_sim_chunk *c = &w->chunks[w->s->transfers[l].chunk];
        const tt_sim_conn *conn = &w->conns[w->lanes[l].conn];
        double payload = (double)c->n_elems * w->elem_bytes;
        volume += (payload * wire + per_slice * c->n_slices) * conn->n_links;
    }
    if (volume < 9e18)
        return TUTTI_OK;
    return tt_fail(w->diag, TUTTI_ELIMIT,
                   "more bytes would cross the links than can be counted");
}

static tutti_err open(tt_sim_world *w)
{
    const tutti_sim_opts *o = w->opts;
    packet *p = w->net = tt_arena_new(&w->arena, 1, sizeof(packet));
    if (!p)
        return TUTTI_ENOMEM;
    p->flit = o->flit_bytes ? o->flit_bytes : 1;
    p->header = tt_round_up(o->header_bytes, p->flit);
    p->packet = tt_round_up(o->packet_bytes, p->flit);
    p->channels = tt_arena_new(&w->arena, w->t->n_links, sizeof(channel));
    p->dirty = tt_arena_new(&w->arena, w->t->n_links, sizeof(uint32_t));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < w->t->n_links; i++) {
        p->channels[i].rate = tt_link_bytes_per_s(&w->t->links[i]);
        p->channels[i].queue = TT_NONE;
    }
    return check_volume(w);
}

const tt_sim_model tt_sim_packet = {
    .open = open,
    .begin = begin,
    .settle = settle,
    .event = event,
};
