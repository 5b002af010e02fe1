/* SPDX-License-Identifier: BSD-3-Clause
 * walks.c - see walks.h. */
#include "support/walks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/blocks.h"

enum { EVENTS = 9, QUIET = 100, JOBS = 64 };

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

/* A slice that its receiver may have, but is not taken yet. */
typedef struct owed {
    struct owed *next;
    tt_slice slice;
    unsigned char *data; /* as it was when it was sent */
} owed;

typedef struct link {
    message *first, **end;
    void *reading; /* the first is being written there */
    uint32_t reading_lane;
    bool is_near;   /* the sender's memory is within the receiver's reach */
    bool has_heard; /* the receiver knows that the sender has begun */
    owed *owed;     /* by the sender, the oldest first */
} link;

/* A reduction that is still to be made, or the end of a group's slice. */
typedef struct job {
    uint32_t group; /* TT_NONE: a reduction */
    const uint32_t *src[16];
    uint32_t *dst[16];
    uint32_t n_src, n_dst;
    size_t count;
} job;

typedef struct member {
    tt_walk walk; /* first: hooks get this */
    tt_walks *f;
    uint32_t rank;
    tt_part *part;
    tt_bound *bound;
    unsigned char *memory, *walk_memory;
    size_t bytes;          /* of memory */
    unsigned char *mirror; /* of it; the walk's, if the input comes late */
    job jobs[JOBS];
    uint32_t n_jobs;
    uint32_t *in, *out;
    bool has_begun, pulls, hears_all;
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

static bool on_reduce(tt_walk *w, const tt_walk_job *what)
{
    member *m = (member *)w;
    job *j = &m->jobs[m->n_jobs++];
    if (m->n_jobs > JOBS || what->n_src > 16 || what->n_dst > 16)
        abort();
    *j = (job){.group = TT_NONE,
               .n_src = what->n_src,
               .n_dst = what->n_dst,
               .count = what->count};
    for (uint32_t i = 0; i < what->n_src; i++)
        j->src[i] = what->src[i];
    for (uint32_t i = 0; i < what->n_dst; i++)
        j->dst[i] = what->dst[i];
    return true;
}

static void on_begun(tt_walk *w, uint32_t group)
{
    member *m = (member *)w;
    if (m->n_jobs == JOBS)
        abort();
    m->jobs[m->n_jobs++].group = group;
}

static void copy(message *x);

/* It is as it was when it was sent. */
static bool is_unchanged(const owed *o)
{
    size_t at = 0;
    bool is = true;
    for (int i = 0; i < o->slice.n_iov; i++) {
        const struct iovec *one = &o->slice.iov[i];
        is &= memcmp(o->data + at, one->iov_base, one->iov_len) == 0;
        at += one->iov_len;
    }
    return is;
}

/* Slice k of the group waits for its places, which the partner may still
 * read. */
static bool is_kept_by(const tt_walk *w, const tt_group *group, uint32_t k,
                       uint32_t partner)
{
    const tt_bound *b = w->b;
    bool is = false;
    for (uint32_t i = 0; i < group->gates.n; i++) {
        const uint32_t l = b->index[group->gates.at + i];
        is |= b->sends[l].partner == partner && w->taken[l] <= k &&
              w->lent[l] > 0;
    }
    for (uint32_t i = 0; i < group->preds.n; i++)
        is = is && w->done[b->index[group->preds.at + i]] > k;
    return is;
}

/* Nothing is left but what the partners read; or a group waits for one. */
static bool waits_for(const tt_walk *w, uint32_t partner)
{
    const tt_bound *b = w->b;
    bool is_ending = true, is = false;
    for (uint32_t l = 0; l < b->n_sends; l++)
        is_ending &= w->sent[l] == b->sends[l].n_slices ||
                     w->taken[l] == b->sends[l].n_slices;
    for (uint32_t g = 0; g < b->n_groups; g++) {
        const uint32_t k = w->done[g];
        is_ending &= k == b->groups[g].n_slices;
        is |= k < b->groups[g].n_slices &&
              is_kept_by(w, &b->groups[g], k, partner);
    }
    return is || (is_ending && w->there == b->n_positions);
}

static void on_settle(tt_walk *w, uint32_t partner)
{
    member *m = (member *)w;
    m->f->is_broken |= !waits_for(w, partner);
    link *l = link_of(m->f, m->rank, peer_of(m, partner));
    while (l->owed) {
        owed *o = l->owed;
        const uint32_t lane = o->slice.lane;
        l->owed = o->next;
        m->f->is_broken |= !is_unchanged(o);
        free(o->data);
        free(o);
        tt_walk_taken(w, lane);
    }
}

static void put_off(link *l, const message *x)
{
    owed **end = &l->owed, *o = calloc(1, sizeof(*o));
    unsigned char *data = malloc(x->what.len + 1);
    if (!o || !data)
        abort();
    memcpy(data, x->data, x->what.len);
    *o = (owed){.slice = x->slice, .data = data};
    while (*end)
        end = &(*end)->next;
    *end = o;
}

static const tt_walk_hooks putting_off = {.credit = on_credit,
                                          .settle = on_settle,
                                          .done = on_done,
                                          .pulls = on_pulls,
                                          .hold = on_hold,
                                          .release = on_release};

static const tt_walk_hooks elsewhere = {.credit = on_credit,
                                        .done = on_done,
                                        .pulls = on_pulls,
                                        .hold = on_hold,
                                        .release = on_release,
                                        .reduce = on_reduce,
                                        .begun = on_begun};

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
                     .max_payload = o->is_elsewhere ? UINT32_MAX : 1 << 14,
                     .is_near = o->is_elsewhere};
    tt_shape_layout(shape, &lay);
    tutti_err err = tt_part_extract(o->schedule, m->rank, NULL, &tt_mem_std,
                                    &m->part);
    if (!err)
        err = tt_bound_create(m->part, &lay, &tt_mem_std, &m->bound);
    if (!err && o->is_elsewhere && !m->bound->is_within)
        err = TUTTI_ENOFIT;
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
    m->bytes = (n_in + n_out + 2) * 4;
    m->memory = calloc(1, m->bytes);
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
    tt_walk_init(&m->walk, m->bound,
                 f->o.is_elsewhere ? &elsewhere
                 : f->o.is_put_off ? &putting_off
                                   : &hooks,
                 m->walk_memory);
    if (f->o.buffers) {
        m->in = m->out = (uint32_t *)(void *)f->o.buffers[m->rank];
        tt_walk_reduces(&m->walk, TUTTI_F32,
                        f->o.is_mean ? TUTTI_AVG : TUTTI_SUM, f->n);
        return;
    }
    tt_blocks_fill(&blocks, m->rank, m->in);
    const bool is_last = f->o.comes_last && m->rank == 0;
    if (is_last || (f->o.comes_late && chance(f, 2))) {
        m->mirror = malloc(m->bytes);
        if (!m->mirror)
            abort();
        memset(m->mirror, 0xab, m->bytes);
    }
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
        f->links[i].is_near = o->is_elsewhere || (o->has_near && chance(f, 2));
    }
    for (uint32_t r = 0; r < n && !err; r++)
        err = make_member(f, r);
    if (!err)
        return f;
    tt_walks_free(f);
    return NULL;
}

static void drop_all(link *l)
{
    while (l->first)
        drop_first(l);
    while (l->owed) {
        owed *o = l->owed;
        l->owed = o->next;
        free(o->data);
        free(o);
    }
}

void tt_walks_free(tt_walks *f)
{
    for (uint32_t r = 0; f && f->members && r < f->n; r++) {
        member *m = &f->members[r];
        tt_bound_free(m->bound);
        tt_part_free(m->part);
        free(m->memory);
        free(m->mirror);
        free(m->walk_memory);
    }
    for (uint32_t i = 0; f && f->links && i < f->n * f->n; i++)
        drop_all(&f->links[i]);
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
    const ptrdiff_t away = m->mirror ? m->mirror - m->memory : 0;
    tt_walk_reset(&m->walk, (unsigned char *)m->in + away,
                  (unsigned char *)m->out + away);
    if (m->mirror)
        tt_walk_await(&m->walk);
    for (uint32_t p = 0; p < m->bound->n_partners; p++) {
        link *l = link_of(f, r, peer_of(m, p));
        l->is_near = l->is_near && m->bound->partners[p].grants && !m->mirror;
        m->walk.sides[p].may_read = m->walk.sides[p].may_write = l->is_near;
    }
    tt_walk_begin(&m->walk);
    for (uint32_t p = 0; f->o.is_eager && p < m->bound->n_partners; p++)
        tt_walk_open(&m->walk, p);
    return true;
}

static bool hear(tt_walks *f, uint32_t r, uint32_t partner);

/* Where reductions are made elsewhere, of all at once. */
static bool hear_all(tt_walks *f, uint32_t r)
{
    member *m = &f->members[r];
    for (uint32_t p = 0; p < m->bound->n_partners; p++)
        if (!f->members[peer_of(m, p)].has_begun)
            return false;
    m->hears_all = true;
    for (uint32_t p = 0; p < m->bound->n_partners; p++)
        hear(f, r, p);
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
    if (f->o.is_elsewhere && !m->hears_all)
        return hear_all(f, r);
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
    bool is_lent = chance(f, 3) && slice.n_iov == 1 && !slice.is_put &&
                   !f->o.is_put_off;
    bool is_copied = !is_lent && chance(f, 2);
    message *x = post(f, r, peer_of(m, partner), SLICE);
    x->slice = slice;
    x->what = (tt_coming){slice.wire, slice.slice, slice.len, slice.is_put};
    if (is_lent)
        x->lent = slice.iov[0].iov_base;
    if (is_copied || f->o.is_put_off)
        copy(x);
    if (!is_copied && f->o.is_put_off)
        put_off(link_of(f, r, peer_of(m, partner)), x);
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

/* It comes next, and only who reads its place was in the way of it. */
static bool has_not_asked(const tt_walk *w, uint32_t l)
{
    const tt_lane *lane = &w->b->recvs[l];
    const tt_group *group = &w->b->groups[lane->group];
    const uint32_t k = w->arrived[l];
    bool is = false;
    for (uint32_t p = 0; p < w->b->n_partners; p++)
        is |= is_kept_by(w, group, k, p);
    return is && group->is_copy && lane->is_contiguous && group->n_lanes == 1 &&
           w->done[lane->group] == k;
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
        f->is_broken |= f->o.is_put_off && has_not_asked(&m->walk, lane);
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

/* More of the input. */
static bool come(tt_walks *f, uint32_t r)
{
    member *m = &f->members[r];
    const tt_bound *b = m->bound;
    const uint32_t there = m->walk.there, left = b->n_positions - there;
    if (!m->mirror || !m->has_begun || left == 0)
        return false;
    const uint32_t upto = there + 1 + (uint32_t)tt_rng_below(&f->rng, left);
    for (uint32_t i = 0; i < b->n_inputs; i++) {
        const tt_held *in = &b->inputs[i];
        const uint32_t stride = b->n_positions / in->n_slices;
        for (uint32_t k = there / stride; k < upto / stride; k++) {
            const uint64_t at = tt_slice_at(in->at.n_elems, k, in->n_slices);
            const uint64_t end = tt_slice_at(in->at.n_elems, k + 1,
                                             in->n_slices);
            memcpy(m->walk.base[TT_IN] + in->at.offset + at * 4,
                   (unsigned char *)m->in + in->at.offset + at * 4,
                   (end - at) * 4);
        }
    }
    tt_walk_there(&m->walk, upto);
    return true;
}

/* The oldest that is to be made elsewhere. */
static bool make(tt_walks *f, uint32_t r)
{
    member *m = &f->members[r];
    if (m->n_jobs == 0)
        return false;
    const job j = m->jobs[0];
    memmove(m->jobs, m->jobs + 1, --m->n_jobs * sizeof(*m->jobs));
    if (j.group != TT_NONE) {
        tt_walk_made(&m->walk, j.group);
        return true;
    }
    for (size_t i = 0; i < j.count; i++) {
        uint32_t sum = 0;
        for (uint32_t k = 0; k < j.n_src; k++)
            sum += j.src[k][i];
        for (uint32_t k = 0; k < j.n_dst; k++)
            j.dst[k][i] = sum;
    }
    return true;
}

/* Back from where the walk had it. */
static void take_back(member *m)
{
    const tt_bound *b = m->bound;
    for (uint32_t g = 0; m->mirror && g < b->n_groups; g++)
        for (uint32_t p = 0; p < b->groups[g].n_pieces; p++) {
            const tt_span *to = &b->pieces[b->groups[g].pieces + p].to;
            if (b->groups[g].is_result && to->base == TT_OUT)
                memcpy((unsigned char *)m->out + to->offset,
                       m->walk.base[TT_OUT] + to->offset, to->n_elems * 4);
        }
    for (uint32_t i = 0; m->mirror && i < b->n_copies; i++)
        memmove((unsigned char *)m->out + b->copies[i].to.offset,
                m->walk.base[TT_OUT] + b->copies[i].to.offset,
                b->copies[i].to.n_elems * 4);
}

static bool event(tt_walks *f, uint32_t what, uint32_t r, uint32_t partner)
{
    switch (what) {
    case 0:
        return begin(f, r);
    case 1:
        return pull(f, r);
    case 7:
        return !(f->o.comes_last && r == 0) && come(f, r);
    case 8:
        return make(f, r);
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
    return f->o.comes_last && come(f, 0);
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
                    m->n_held == 0 && !m->f->is_broken;
    for (uint32_t p = 0; p < m->bound->n_partners; p++)
        is_right = is_right && w->sides[p].n_ready == 0 &&
                   tt_walk_is_through(w, p);
    if (m->bound->n_partners > 0 || m->mirror)
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
        take_back(m);
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
