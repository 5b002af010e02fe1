/* SPDX-License-Identifier: BSD-3-Clause
 * fluid.c - all slices on the way share the links max-min fairly.
 *
 * Idea       A busy connection is a flow. Rates are max-min fair exactly when
 *            every flow has a bottleneck: a full link on which nobody is
 *            faster. So after a change only the flows on the changed links
 *            are shared out anew (progressive filling, the others' rates as
 *            they are); then the bottlenecks of their neighbours are checked,
 *            and whoever has lost its own joins, until nobody has.
 *            A connection that ends a slice and begins the next at the same
 *            moment changes nothing.
 * Invariant  Between moments every flow's `rate` is its max-min rate, `left`
 *            the bytes that were left at `since`, and the flow stands in the
 *            heap at the time at which it ends if nothing changes.
 * Cost       Per moment at which flows come or go: O(flows on the links that
 *            these touch), usually; O(flows * route) at worst, times a log.
 *            A flow alone on its links costs O(route).
 * Next       packet.c. */
#include "sim/world.h"

#include <math.h>

#include "base/heap.h"

/* Sums of rates are exact to about 1e-13. */
static const double slack = 1e-11;
/* Rates this close are the same: no event is moved. */
static const double same_rate = 1e-13;
/* After so many rounds whole neighbourhoods join: there are not many more. */
static const uint32_t patient_rounds = 6;

typedef struct flow {
    double rate, left, since, end_s;
    double fresh;        /* its new rate, while shared out; < 0: not yet */
    uint32_t bottleneck; /* link */
    uint32_t at;         /* in the heap of ends; TT_NONE: not there */
    uint32_t joined;     /* the sharing (number) of which it is a part */
    bool is_there;       /* on its links */
    bool is_over;        /* its slice has left; others may follow at once */
} flow;

/* A place of a flow on a link; number: that of the hop in world->links. */
typedef struct hop {
    uint32_t conn, prev, next;
} hop;

typedef struct channel {
    double rate, left; /* of the link; while shared out: what is left of it */
    uint32_t first, n_flows, n_open;
    uint32_t joined, changed; /* numbers of sharings */
} channel;

typedef struct share {
    double key;
    uint32_t link;
} share;

typedef struct fluid {
    flow *flows;       /* [n_conns] */
    hop *hops;         /* [links.n] */
    channel *channels; /* [n_links] */
    uint32_t *ends;    /* heap of flows by end_s, n_ends */
    uint32_t n_ends;
    uint32_t *over, n_over;       /* flows that are over */
    uint32_t *changed, n_changed; /* links */
    uint32_t *set, n_set;         /* flows that are shared out */
    uint32_t *area, n_area;       /* their links */
    share *shares;                /* heap, at most one entry per link */
    uint32_t n_shares;
    uint32_t sharing; /* number of the present one */
} fluid;

/* ----------------------------------------------------------- heap of ends */

static bool ends_before(const void *arg, const void *a, const void *b)
{
    const fluid *f = arg;
    uint32_t c = *(const uint32_t *)a, d = *(const uint32_t *)b;
    double x = f->flows[c].end_s, y = f->flows[d].end_s;
    return x < y || (x <= y && c < d);
}

static void end_moved(void *arg, const void *item, size_t at)
{
    const fluid *f = arg;
    f->flows[*(const uint32_t *)item].at = (uint32_t)at;
}

static const tt_heap_items by_end = {sizeof(uint32_t), ends_before, end_moved};

static void set_end(fluid *f, uint32_t c, double end_s)
{
    flow *x = &f->flows[c];
    bool is_later = x->at != TT_NONE && end_s > x->end_s;
    x->end_s = end_s;
    if (is_later)
        tt_heap_sink(&by_end, f, f->ends, f->n_ends, x->at, &c);
    else
        tt_heap_rise(&by_end, f, f->ends,
                     x->at == TT_NONE ? f->n_ends++ : x->at, &c);
}

static void pop_end(fluid *f)
{
    f->flows[f->ends[0]].at = TT_NONE;
    tt_heap_pop(&by_end, f, f->ends, f->n_ends--);
}

/* -------------------------------------------------------------- flows -- */

static void mark_changed(fluid *f, uint32_t link)
{
    channel *ch = &f->channels[link];
    if (ch->changed == f->sharing)
        return;
    ch->changed = f->sharing;
    f->changed[f->n_changed++] = link;
}

static void join_links(tt_sim_world *w, fluid *f, uint32_t c)
{
    const tt_sim_conn *conn = &w->conns[c];
    const uint32_t *links = w->links.at;
    bool is_alone = true;
    flow *x = &f->flows[c];
    x->fresh = INFINITY;
    for (uint32_t h = conn->route; h < conn->route + conn->n_links; h++) {
        channel *ch = &f->channels[links[h]];
        f->hops[h] = (hop){.conn = c, .prev = TT_NONE, .next = ch->first};
        if (ch->first != TT_NONE)
            f->hops[ch->first].prev = h;
        ch->first = h;
        is_alone = ch->n_flows++ == 0 && is_alone;
        if (ch->rate < x->fresh) {
            x->fresh = ch->rate;
            x->bottleneck = links[h];
        }
    }
    x->is_there = true;
    x->rate = is_alone ? x->fresh : 0;
    for (uint32_t h = conn->route; h < conn->route + conn->n_links; h++)
        if (!is_alone)
            mark_changed(f, links[h]);
}

static void leave_links(tt_sim_world *w, fluid *f, uint32_t c)
{
    const tt_sim_conn *conn = &w->conns[c];
    for (uint32_t h = conn->route; h < conn->route + conn->n_links; h++) {
        uint32_t link = w->links.at[h];
        const hop *place = &f->hops[h];
        if (place->prev != TT_NONE)
            f->hops[place->prev].next = place->next;
        else
            f->channels[link].first = place->next;
        if (place->next != TT_NONE)
            f->hops[place->next].prev = place->prev;
        if (--f->channels[link].n_flows > 0)
            mark_changed(f, link);
    }
    f->flows[c].is_there = false;
}

static void begin(tt_sim_world *w, uint32_t c)
{
    fluid *f = w->net;
    const tt_sim_conn *conn = &w->conns[c];
    const tt_sim_msg *msg = &w->msgs[conn->msg];
    flow *x = &f->flows[c];
    uint64_t bytes = tt_sim_slice_bytes(w, msg->lane, msg->slice);
    for (uint32_t h = conn->route; h < conn->route + conn->n_links; h++)
        tt_sim_carried(w, w->links.at[h], bytes);
    x->left = (double)bytes;
    x->since = w->now_s;
    x->is_over = false;
    if (!x->is_there)
        join_links(w, f, c);
    if (x->rate > 0)
        set_end(f, c, w->now_s + x->left / x->rate);
}

/* ------------------------------------------------------------ sharing -- */

static bool is_less(const void *arg, const void *a, const void *b)
{
    (void)arg;
    return ((const share *)a)->key < ((const share *)b)->key;
}

static const tt_heap_items by_share = {sizeof(share), is_less, NULL};

static void push_share(fluid *f, share s)
{
    tt_heap_push(&by_share, NULL, f->shares, f->n_shares++, &s);
}

static share pop_share(fluid *f)
{
    const share top = f->shares[0];
    tt_heap_pop(&by_share, NULL, f->shares, f->n_shares--);
    return top;
}

static void join_set(tt_sim_world *w, fluid *f, uint32_t c)
{
    flow *x = &f->flows[c];
    if (x->joined == f->sharing)
        return;
    x->joined = f->sharing;
    f->set[f->n_set++] = c;
    const tt_sim_conn *conn = &w->conns[c];
    for (uint32_t h = conn->route; h < conn->route + conn->n_links; h++) {
        uint32_t link = w->links.at[h];
        if (f->channels[link].joined == f->sharing)
            continue;
        f->channels[link].joined = f->sharing;
        f->area[f->n_area++] = link;
    }
}

static void join_all_of(tt_sim_world *w, fluid *f, uint32_t link)
{
    for (uint32_t h = f->channels[link].first; h != TT_NONE;
         h = f->hops[h].next)
        join_set(w, f, f->hops[h].conn);
}

/* What the flows outside of the set leave of each link. */
static void measure(fluid *f)
{
    f->n_shares = 0;
    for (uint32_t i = 0; i < f->n_area; i++) {
        channel *ch = &f->channels[f->area[i]];
        ch->left = ch->rate;
        ch->n_open = 0;
        for (uint32_t h = ch->first; h != TT_NONE; h = f->hops[h].next) {
            const flow *x = &f->flows[f->hops[h].conn];
            if (x->joined == f->sharing)
                ch->n_open++;
            else
                ch->left -= x->rate;
        }
        push_share(f, (share){ch->left / ch->n_open, f->area[i]});
    }
    for (uint32_t i = 0; i < f->n_set; i++)
        f->flows[f->set[i]].fresh = -1;
}

static void give(const tt_sim_world *w, fluid *f, uint32_t c, uint32_t link,
                 double rate)
{
    const tt_sim_conn *conn = &w->conns[c];
    f->flows[c].fresh = rate;
    f->flows[c].bottleneck = link;
    for (uint32_t h = conn->route; h < conn->route + conn->n_links; h++) {
        channel *ch = &f->channels[w->links.at[h]];
        ch->left -= rate;
        ch->n_open--;
    }
}

/* Progressive filling: the link with the least share is full first. Shares
 * of the others only grow by that, so an old key is a lower bound. */
static void fill(const tt_sim_world *w, fluid *f)
{
    while (f->n_shares > 0) {
        share s = pop_share(f);
        channel *ch = &f->channels[s.link];
        if (ch->n_open == 0)
            continue;
        double now = ch->left / ch->n_open;
        if (now > s.key && f->n_shares > 0 && now > f->shares[0].key) {
            push_share(f, (share){now, s.link});
            continue;
        }
        now = now > 0 ? now : 0;
        for (uint32_t h = ch->first; h != TT_NONE; h = f->hops[h].next) {
            uint32_t c = f->hops[h].conn;
            if (f->flows[c].joined == f->sharing && f->flows[c].fresh < 0)
                give(w, f, c, s.link, now);
        }
    }
}

/* Those on the link whose rates are not max-min fair any more join the set:
 * their bottleneck is not full, or has a faster flow, or they are the faster
 * ones. */
static void check_link(tt_sim_world *w, fluid *f, uint32_t link)
{
    const channel *ch = &f->channels[link];
    double most = 0, least = INFINITY;
    for (uint32_t h = ch->first; h != TT_NONE; h = f->hops[h].next) {
        const flow *x = &f->flows[f->hops[h].conn];
        if (x->joined != f->sharing)
            continue;
        most = fmax(most, x->fresh);
        if (x->bottleneck == link)
            least = fmin(least, x->fresh);
    }
    bool is_full = ch->left <= ch->rate * slack;
    for (uint32_t h = ch->first; h != TT_NONE; h = f->hops[h].next) {
        const flow *x = &f->flows[f->hops[h].conn];
        if (x->joined == f->sharing)
            continue;
        if ((x->bottleneck == link &&
             (!is_full || most > x->rate * (1 + slack))) ||
            x->rate > least * (1 + slack))
            join_set(w, f, f->hops[h].conn);
    }
}

static void commit(const tt_sim_world *w, fluid *f)
{
    for (uint32_t i = 0; i < f->n_set; i++) {
        flow *x = &f->flows[f->set[i]];
        if (fabs(x->fresh - x->rate) <= same_rate * x->rate)
            continue;
        x->left = fmax(0, x->left - x->rate * (w->now_s - x->since));
        x->since = w->now_s;
        x->rate = x->fresh;
        set_end(f, f->set[i], w->now_s + x->left / x->rate);
    }
}

static void share_out(tt_sim_world *w, fluid *f)
{
    f->n_set = f->n_area = 0;
    for (uint32_t i = 0; i < f->n_changed; i++)
        join_all_of(w, f, f->changed[i]);
    for (uint32_t round = 0;; round++) {
        measure(f);
        fill(w, f);
        const uint32_t n_set = f->n_set, n_area = f->n_area;
        for (uint32_t i = 0; i < n_area; i++)
            check_link(w, f, f->area[i]);
        if (f->n_set == n_set)
            break;
        for (uint32_t i = 0; round >= patient_rounds && i < n_area; i++)
            join_all_of(w, f, f->area[i]);
    }
    commit(w, f);
}

/* --------------------------------------------------------------- model -- */

static void settle(tt_sim_world *w)
{
    fluid *f = w->net;
    for (uint32_t i = 0; i < f->n_over; i++)
        if (f->flows[f->over[i]].is_over)
            leave_links(w, f, f->over[i]);
    f->n_over = 0;
    if (f->n_changed > 0)
        share_out(w, f);
    f->n_changed = 0;
    f->sharing++;
}

static double next(const tt_sim_world *w)
{
    const fluid *f = w->net;
    return f->n_ends ? f->flows[f->ends[0]].end_s : INFINITY;
}

static void fire(tt_sim_world *w, double until_s)
{
    fluid *f = w->net;
    while (f->n_ends > 0 && f->flows[f->ends[0]].end_s <= until_s && !w->err) {
        uint32_t c = f->ends[0];
        const tt_sim_conn *conn = &w->conns[c];
        pop_end(f);
        f->flows[c].is_over = true;
        f->over[f->n_over++] = c;
        tt_sim_sent(w, c);
        if (conn->latency_s > 0)
            tt_sim_at(w, w->now_s + conn->latency_s, TT_SIM_ARRIVE, conn->msg);
        else
            tt_sim_arrived(w, conn->msg);
    }
}

static tutti_err open(tt_sim_world *w)
{
    tt_arena *a = &w->arena;
    const size_t n_conns = w->n_conns + (size_t)1;
    const size_t n_links = w->t->n_links + (size_t)1;
    fluid *f = w->net = tt_arena_new(a, 1, sizeof(fluid));
    if (!f)
        return TUTTI_ENOMEM;
    f->flows = tt_arena_new(a, n_conns, sizeof(flow));
    f->hops = tt_arena_new(a, w->links.n + 1, sizeof(hop));
    f->channels = tt_arena_new(a, n_links, sizeof(channel));
    f->ends = tt_arena_new(a, n_conns, sizeof(uint32_t));
    f->over = tt_arena_new(a, n_conns, sizeof(uint32_t));
    f->set = tt_arena_new(a, n_conns, sizeof(uint32_t));
    f->changed = tt_arena_new(a, n_links, sizeof(uint32_t));
    f->area = tt_arena_new(a, n_links, sizeof(uint32_t));
    f->shares = tt_arena_new(a, n_links, sizeof(share));
    if (a->err)
        return TUTTI_ENOMEM;
    for (uint32_t c = 0; c < w->n_conns; c++)
        f->flows[c].at = TT_NONE;
    for (uint32_t i = 0; i < w->t->n_links; i++) {
        f->channels[i].rate = tt_link_bytes_per_s(&w->t->links[i]);
        f->channels[i].first = TT_NONE;
    }
    f->sharing = 1; /* 0: has never been part of one */
    return TUTTI_OK;
}

const tt_sim_model tt_sim_fluid = {
    .open = open,
    .begin = begin,
    .settle = settle,
    .next = next,
    .fire = fire,
};
