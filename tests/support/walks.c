/* SPDX-License-Identifier: BSD-3-Clause
 * walks.c - see walks.h. */
#include "support/walks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/blocks.h"

enum { EVENTS = 7, QUIET = 100 };

typedef enum word { SLICE, CREDIT, READ } word;

/* From one rank to another; of one pair in order. */
typedef struct message {
    struct message *next;
    word kind;
    tt_coming what; /* CREDIT: slice is how many */
    tt_slice slice; /* at the sender, until it is taken */
    bool is_taken;
    const void *lent;    /* it is read at the sender */
    unsigned char *data; /* [what.len], from when it is taken */
} message;

typedef struct link {
    message *first, **end;
    void *reading; /* the first is being written there */
    uint32_t reading_lane;
    bool is_near;   /* the sender's memory is within the receiver's reach */
    bool has_heard; /* the receiver knows that the sender has begun */
} link;

typedef struct member {
    tt_walk walk; /* first: hooks get this */
    tt_walks *f;
    uint32_t rank;
    tt_part *part;
    tt_bound *bound;
    unsigned char *memory, *walk_memory;
    uint32_t *in, *out;
    bool has_begun, pulls;
    uint32_t n_done, n_held;
} member;

struct tt_walks {
    tt_walks_opts o;
    uint32_t n;
    tt_rng rng;
    member *members; /* [n] */
    link *links;     /* [from * n + to] */
    bool is_broken;
};

static bool chance(tt_walks *f, uint32_t n)
{
    return tt_rng_below(&f->rng, n) == 0;
}

static link *link_of(tt_walks *f, uint32_t from, uint32_t to)
{
    return &f->links[from * f->n + to];
}

static uint32_t peer_of(const member *m, uint32_t partner)
{
    return m->bound->partners[partner].peer;
}

static message *post(tt_walks *f, uint32_t from, uint32_t to, word kind)
{
    link *l = link_of(f, from, to);
    message *m = calloc(1, sizeof(*m));
    if (!m)
        abort();
    m->kind = kind;
    *l->end = m;
    l->end = &m->next;
    return m;
}

static void drop_first(link *l)
{
    message *m = l->first;
    l->first = m->next;
    if (!l->first)
        l->end = &l->first;
    free(m->data);
    free(m);
}

/* ----------------------------------------------------------------- hooks -- */

static void on_credit(tt_walk *w, uint32_t partner, uint32_t wire,
                      uint32_t consumed)
{
    member *m = (member *)w;
    message *credit = post(m->f, m->rank, peer_of(m, partner), CREDIT);
    credit->what = (tt_coming){.wire = wire, .slice = consumed};
}

static void on_done(tt_walk *w)
{
    ((member *)w)->n_done++;
}

static void on_pulls(tt_walk *w)
{
    ((member *)w)->pulls = true;
}

static bool on_hold(tt_walk *w, uint32_t partner)
{
    (void)partner;
    ((member *)w)->n_held++;
    return true;
}

static void on_release(tt_walk *w, uint32_t partner)
{
    (void)partner;
    ((member *)w)->n_held = 0;
}

static const tt_walk_hooks hooks = {.credit = on_credit,
                                    .done = on_done,
                                    .pulls = on_pulls,
                                    .hold = on_hold,
                                    .release = on_release};
/* ----------------------------------------------------------------- begin -- */

static tutti_err bind_part(tt_walks *f, member *m, const tt_shape *shape)
{
    const tt_walks_opts *o = &f->o;
    tt_layout lay = {.in_place = o->in_place,
                     .front_bytes = o->front_bytes,
                     .front_window_bytes = o->front_window_bytes,
                     .staging_max_bytes = 1 << 26,
                     .window = o->window,
                     .max_payload = 1 << 14};
    tt_shape_layout(shape, &lay);
    tutti_err err = tt_part_extract(o->schedule, m->rank, &tt_mem_std,
                                    &m->part);
    if (!err)
        err = tt_bound_create(m->part, &lay, &tt_mem_std, &m->bound);
    return err;
}

static void make_walk(tt_walks *f, member *m, const tt_shape *shape)
{
    const tt_measures sizes = tt_shape_measure(shape);
    const uint64_t n_in = sizes.in_elems, n_out = sizes.out_elems;
    const size_t size = tt_walk_init(&m->walk, m->bound, &hooks, NULL);
    const tt_blocks blocks = {.schedule = f->o.schedule,
                              .count = f->o.count,
                              .counts = f->o.counts,
                              .seed = f->o.seed};
    m->memory = malloc((n_in + n_out + 2) * 4);
    m->walk_memory = size > 0 ? malloc(size) : NULL;
    if (!m->memory || (size > 0 && !m->walk_memory))
        abort();
    m->in = (uint32_t *)(void *)m->memory;
    m->out = m->in + n_in;
    if (f->o.in_place) {
        int64_t at = sizes.in_place_at;
        m->in = (uint32_t *)(void *)m->memory + (at < 0 ? -at : 0);
        m->out = m->in + at;
    }
    tt_walk_init(&m->walk, m->bound, &hooks, m->walk_memory);
    if (f->o.buffers) {
        m->in = m->out = (uint32_t *)(void *)f->o.buffers[m->rank];
        tt_walk_reduces(&m->walk, TUTTI_F32,
                        f->o.is_mean ? TUTTI_AVG : TUTTI_SUM, f->n);
        return;
    }
    tt_blocks_fill(&blocks, m->rank, m->in);
    tt_walk_reduces(&m->walk, TUTTI_U32, TUTTI_SUM, f->n);
}

static tutti_err make_member(tt_walks *f, uint32_t rank)
{
    member *m = &f->members[rank];
    const tutti_schedule *s = f->o.schedule;
    tt_shape shape = {.coll = s->collective,
                      .rank = rank,
                      .n_ranks = s->n_ranks,
                      .root = s->root,
                      .elem_bytes = 4,
                      .count = f->o.count,
                      .counts = f->o.counts};
    m->f = f;
    m->rank = rank;
    tutti_err err = bind_part(f, m, &shape);
    if (err)
        return err;
    make_walk(f, m, &shape);
    return TUTTI_OK;
}

tt_walks *tt_walks_new(const tt_walks_opts *o)
{
    tt_walks *f = calloc(1, sizeof(*f));
    const uint32_t n = o->schedule->n_ranks;
    if (!f)
        return NULL;
    *f = (tt_walks){.o = *o,
                    .n = n,
                    .rng = {o->seed},
                    .members = calloc(n, sizeof(member)),
                    .links = calloc((size_t)n * n, sizeof(link))};
    tutti_err err = f->members && f->links ? TUTTI_OK : TUTTI_ENOMEM;
    for (uint32_t i = 0; !err && i < n * n; i++) {
        f->links[i].end = &f->links[i].first;
        f->links[i].is_near = o->has_near && chance(f, 2);
    }
    for (uint32_t r = 0; r < n && !err; r++)
        err = make_member(f, r);
    if (!err)
        return f;
    tt_walks_free(f);
    return NULL;
}

void tt_walks_free(tt_walks *f)
{
    for (uint32_t r = 0; f && f->members && r < f->n; r++) {
        member *m = &f->members[r];
        tt_bound_free(m->bound);
        tt_part_free(m->part);
        free(m->memory);
        free(m->walk_memory);
    }
    for (uint32_t i = 0; f && f->links && i < f->n * f->n; i++)
        while (f->links[i].first)
            drop_first(&f->links[i]);
    if (f) {
        free(f->members);
        free(f->links);
    }
    free(f);
}

/* ---------------------------------------------------------------- events -- */

/* Each returns whether something has happened. */

static bool begin(tt_walks *f, uint32_t r)
{
    member *m = &f->members[r];
    if (m->has_begun)
        return false;
    m->has_begun = true;
    tt_walk_reset(&m->walk, m->in, m->out);
    for (uint32_t p = 0; p < m->bound->n_partners; p++) {
        link *l = link_of(f, r, peer_of(m, p));
        l->is_near = l->is_near && m->bound->partners[p].grants;
        m->walk.sides[p].may_read = m->walk.sides[p].may_write = l->is_near;
    }
    tt_walk_begin(&m->walk);
    for (uint32_t p = 0; f->o.is_eager && p < m->bound->n_partners; p++)
        tt_walk_open(&m->walk, p);
    return true;
}

/* r hears that its partner has begun. */
static bool hear(tt_walks *f, uint32_t r, uint32_t partner)
{
    member *m = &f->members[r];
    const member *other = &f->members[peer_of(m, partner)];
    link *l = link_of(f, other->rank, r);
    if (!m->has_begun || !other->has_begun || l->has_heard)
        return false;
    l->has_heard = true;
    tt_walk_open(&m->walk, partner);
    if (l->is_near)
        tt_walk_near(&m->walk, partner, other->in, other->out);
    return true;
}

static void copy(message *x)
{
    size_t at = 0;
    x->data = malloc(x->what.len + 1);
    if (!x->data)
        abort();
    for (int i = 0; i < x->slice.n_iov; i++) {
        memcpy(x->data + at, x->slice.iov[i].iov_base, x->slice.iov[i].iov_len);
        at += x->slice.iov[i].iov_len;
    }
    if (at != x->what.len)
        abort();
    x->is_taken = true;
}

static bool send(tt_walks *f, uint32_t r, uint32_t partner)
{
    member *m = &f->members[r];
    tt_slice slice;
    if (!m->has_begun || !tt_walk_next(&m->walk, partner, &slice))
        return false;
    bool is_lent = chance(f, 3) && slice.n_iov == 1 && !slice.is_put;
    bool is_copied = !is_lent && chance(f, 2);
    message *x = post(f, r, peer_of(m, partner), SLICE);
    x->slice = slice;
    x->what = (tt_coming){slice.wire, slice.slice, slice.len, slice.is_put};
    if (is_lent)
        x->lent = slice.iov[0].iov_base;
    if (is_copied)
        copy(x);
    tt_walk_sent(&m->walk, partner, is_copied);
    return true;
}

/* The oldest slice that the transport has kept back for so long; not before
 * those that the partner is to read. */
static bool take_one(tt_walks *f, uint32_t r, uint32_t partner)
{
    member *m = &f->members[r];
    message *x = link_of(f, r, peer_of(m, partner))->first;
    while (x && (x->kind != SLICE || x->is_taken))
        x = x->next;
    if (!x || x->lent)
        return false;
    copy(x);
    tt_walk_taken(&m->walk, x->slice.lane);
    return true;
}

static void arrive(tt_walks *f, member *m, uint32_t partner, link *l)
{
    const message *x = l->first;
    uint32_t lane = tt_walk_find(&m->walk, partner, &x->what);
    /* Nobody should break a rule here, nor send what it may put. */
    f->is_broken = lane == TT_NONE || (m->walk.put_in[lane] && !x->what.is_put);
    if (f->is_broken)
        return;
    if (x->what.is_put) {
        tt_walk_arrived(&m->walk, lane, NULL);
    } else if (x->lent) {
        tt_walk_arrived(&m->walk, lane, x->lent);
        message *read = post(f, m->rank, peer_of(m, partner), READ);
        read->what = (tt_coming){.wire = x->what.wire};
    } else if (chance(f, 2)) {
        l->reading = tt_walk_place(&m->walk, lane);
        l->reading_lane = lane;
        return;
    } else {
        tt_walk_arrived(&m->walk, lane, x->data);
    }
    drop_first(l);
}

/* What comes from the partner next. */
static bool deliver(tt_walks *f, uint32_t r, uint32_t partner)
{
    member *m = &f->members[r];
    link *l = link_of(f, peer_of(m, partner), r);
    const message *x = l->first;
    if (!m->has_begun || !x || (x->kind == SLICE && !x->is_taken && !x->lent))
        return false;
    if (l->reading) {
        memcpy(l->reading, x->data, x->what.len);
        tt_walk_arrived(&m->walk, l->reading_lane, l->reading);
        l->reading = NULL;
    } else if (x->kind == SLICE) {
        arrive(f, m, partner, l);
        return true;
    } else if (x->kind == CREDIT) {
        tt_walk_acked(&m->walk, partner, x->what.wire, x->what.slice);
    } else {
        tt_walk_taken(&m->walk,
                      m->bound->partners[partner].sends + x->what.wire);
    }
    drop_first(l);
    return true;
}

static bool pull(tt_walks *f, uint32_t r)
{
    member *m = &f->members[r];
    if (!m->pulls)
        return false;
    m->pulls = tt_walk_pull(&m->walk);
    return m->pulls;
}

static bool event(tt_walks *f, uint32_t what, uint32_t r, uint32_t partner)
{
    switch (what) {
    case 0:
        return begin(f, r);
    case 1:
        return pull(f, r);
    default:
        break;
    }
    if (partner >= f->members[r].bound->n_partners)
        return false;
    switch (what) {
    case 2:
        return hear(f, r, partner);
    case 3:
        return send(f, r, partner);
    case 4:
        return take_one(f, r, partner);
    default:
        return deliver(f, r, partner);
    }
}

bool tt_walks_step(tt_walks *f)
{
    if (f->is_broken)
        return false;
    for (int i = 0; i < QUIET; i++)
        if (event(f, (uint32_t)tt_rng_below(&f->rng, EVENTS),
                  (uint32_t)tt_rng_below(&f->rng, f->n),
                  (uint32_t)tt_rng_below(&f->rng, f->n)))
            return true;
    for (uint32_t what = 0; what < EVENTS; what++)
        for (uint32_t r = 0; r < f->n; r++)
            for (uint32_t p = 0; p < f->n; p++)
                if (event(f, what, r, p))
                    return true;
    return false;
}

/* --------------------------------------------------------------- outcome -- */

bool tt_walks_are_done(const tt_walks *f)
{
    for (uint32_t r = 0; r < f->n; r++)
        if (!f->members[r].has_begun || !tt_walk_is_done(&f->members[r].walk))
            return false;
    return true;
}

static bool is_clean(const member *m, char *why, size_t size)
{
    const tt_walk *w = &m->walk;
    const tt_walk_state is = tt_walk_look(w);
    bool is_right = tt_walk_is_done(w) && is.step == is.n_steps &&
                    m->n_held == 0;
    for (uint32_t p = 0; p < m->bound->n_partners; p++)
        is_right = is_right && w->sides[p].n_ready == 0 &&
                   tt_walk_has_served(w, p) && tt_walk_has_heard(w, p);
    if (m->bound->n_partners > 0)
        is_right = is_right && m->n_done == 1;
    if (!is_right)
        snprintf(why, size,
                 "rank %" PRIu32 " is left at step %" PRIu32 " of %" PRIu32
                 ", over %u times",
                 m->rank, is.step, is.n_steps, m->n_done);
    return is_right;
}

bool tt_walks_are_right(tt_walks *f, char *why, size_t size)
{
    const tt_blocks blocks = {.schedule = f->o.schedule,
                              .count = f->o.count,
                              .counts = f->o.counts,
                              .seed = f->o.seed};
    for (uint32_t r = 0; r < f->n; r++) {
        member *m = &f->members[r];
        if (!is_clean(m, why, size))
            return false;
        if (!f->o.buffers &&
            !tt_blocks_are_right(&blocks, r, m->out, why, size))
            return false;
    }
    return true;
}

bool tt_walks_peek(tt_walks *f, tt_walk **w, uint32_t *partner, tt_coming *what)
{
    uint32_t from = (uint32_t)tt_rng_below(&f->rng, f->n);
    uint32_t to = (uint32_t)tt_rng_below(&f->rng, f->n);
    const link *l = link_of(f, from, to);
    member *m = &f->members[to];
    if (!l->first || l->first->kind != SLICE || l->reading || !m->has_begun)
        return false;
    *w = &m->walk;
    *partner = tt_bound_partner(m->bound, from, 0);
    *what = l->first->what;
    return true;
}
