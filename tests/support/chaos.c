/* SPDX-License-Identifier: BSD-3-Clause
 * chaos.c - see chaos.h.
 *
 * Idea       A chaos net and conn lie in front of the inner ones, in the same
 *            allocation. Mischief is done on the sending side: the messages of
 *            a conn pass through a queue of copies (`held`), which is empty
 *            most of the time; upcalls are passed on.
 * Invariant  Order is kept except for the one message of swap_at: while
 *            anything is held, everything new is held behind it.
 * Borrowing  For every message that the inner transport has queued there is a
 *            `lent` record, the engine's or our own, so that left() is passed
 *            on for the engine's alone. */
#include "support/chaos.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"

#define WRAPS 16
#define HELD_MAX 16 /* more than that on a conn: TT_FULL */
#define ALIGN(n) (((n) + 63) & ~(size_t)63)

typedef struct held {
    struct held *next;
    tt_msg m;
    bool is_ours; /* lent records: free it and tell nobody */
    unsigned char data[];
} held;

typedef struct queue {
    held *first;
    held **end;
} queue;

typedef struct chaos_conn {
    tt_conn base;
    tt_conn *inner; /* NULL until it is dialled or called */
    tt_rng rng;
    uint64_t n_taken;
    queue waiting; /* to be sent */
    uint32_t n_waiting;
    queue lent;        /* queued by the inner transport */
    uint32_t turns;    /* the first one waits so many turns more */
    bool swap_pending; /* the first one goes after the next */
    bool is_doomed;    /* to be killed in the next progress() */
    bool is_dead;
    bool is_owed; /* the inner transport is to settle what waits, too */
} chaos_conn;

typedef struct chaos_net {
    tt_net base;
    tt_net *inner;
    chaos_conn **conns; /* by rank */
} chaos_net;

typedef struct wrap {
    tt_net_ops ops; /* first: an ops pointer is a wrap pointer */
    const tt_net_ops *inner;
    tt_chaos_opts opts;
} wrap;

static wrap wraps[WRAPS];
static unsigned n_wraps;

static const wrap *wrap_of(const tt_net *net)
{
    return (const wrap *)(const void *)net->ops;
}

/* ---------------------------------------------------------------- queues */

static held *held_new(const tt_mem *mem, const tt_msg *m,
                      const struct iovec *iov, int n_iov)
{
    held *h = tt_new(mem, 1, sizeof(*h) + m->len);
    if (!h)
        return NULL;
    h->m = *m;
    size_t at = 0;
    for (int i = 0; i < n_iov && at < m->len; i++) {
        size_t n = iov[i].iov_len < m->len - at ? iov[i].iov_len : m->len - at;
        if (n > 0)
            memcpy(h->data + at, iov[i].iov_base, n);
        at += n;
    }
    return h;
}

static void held_free(const tt_mem *mem, held *h)
{
    tt_free(mem, h, 1, sizeof(*h) + h->m.len);
}

static void push(queue *q, held *h)
{
    if (!q->first)
        q->end = &q->first;
    h->next = NULL;
    *q->end = h;
    q->end = &h->next;
}

static held *pop(queue *q)
{
    held *h = q->first;
    q->first = h->next;
    return h;
}

static void clear(const tt_mem *mem, queue *q)
{
    while (q->first)
        held_free(mem, pop(q));
}

/* --------------------------------------------------------------- upcalls */

static void *on_place(void *arg, const tt_msg *m)
{
    chaos_conn *conn = arg;
    return conn->base.net->up->place(conn->base.peer, m);
}

static void on_arrived(void *arg, const tt_msg *m, const void *data)
{
    chaos_conn *conn = arg;
    conn->base.net->up->arrived(conn->base.peer, m, data);
}

static void on_left(void *arg, uint64_t n)
{
    chaos_conn *conn = arg;
    uint64_t n_theirs = 0;
    for (; n > 0 && conn->lent.first; n--) {
        held *h = pop(&conn->lent);
        n_theirs += !h->is_ours;
        held_free(conn->base.net->mem, h);
    }
    if (n_theirs > 0)
        conn->base.net->up->left(conn->base.peer, n_theirs);
}

static void on_lost(void *arg, tutti_err why, const char *text)
{
    chaos_conn *conn = arg;
    conn->is_dead = true;
    conn->base.net->up->lost(conn->base.peer, why, text);
}

static tt_conn *on_called(tt_net *inner, uint32_t rank, const tt_link_id *id);

static void on_up(tt_conn *inner)
{
    chaos_conn *conn = inner->peer;
    conn->base.is_up = true;
    conn->base.net->up->up(&conn->base);
}

static void on_missed(tt_conn *inner, tutti_err why, const char *text)
{
    chaos_conn *conn = inner->peer;
    conn->base.net->up->missed(&conn->base, why, text);
}

static const tt_net_up upcalls = {.place = on_place,
                                  .arrived = on_arrived,
                                  .left = on_left,
                                  .lost = on_lost,
                                  .called = on_called,
                                  .up = on_up,
                                  .missed = on_missed};

/* ---------------------------------------------------------------- set-up */

static tutti_err chaos_open(tt_net *base, tutti_diag *diag)
{
    chaos_net *net = (chaos_net *)base;
    const wrap *w = wrap_of(base);
    base->fd = -1;
    net->conns = tt_new(base->mem, base->n_ranks, sizeof(chaos_conn *));
    if (!net->conns)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    net->inner = (tt_net *)(void *)((char *)net + ALIGN(sizeof(*net)));
    *net->inner = *base;
    net->inner->ops = w->inner;
    net->inner->up = &upcalls;
    net->inner->owner = net;
    tutti_err err = w->inner->open(net->inner, diag);
    base->max_payload = net->inner->max_payload;
    base->fd = net->inner->fd;
    return err;
}

static size_t chaos_address(tt_net *base, void *buf, size_t size)
{
    const chaos_net *net = (chaos_net *)base;
    return wrap_of(base)->inner->address(net->inner, buf, size);
}

static void adopt(chaos_net *net, chaos_conn *conn)
{
    const wrap *w = wrap_of(&net->base);
    conn->inner = (tt_conn *)(void *)((char *)conn + ALIGN(sizeof(*conn)));
    conn->inner->net = net->inner;
    conn->inner->peer = conn;
    conn->inner->rank = conn->base.rank;
    uint64_t seed = tt_fnv1a_u64(TT_FNV1A_START, w->opts.seed);
    seed = tt_fnv1a_u64(seed, net->base.rank);
    conn->rng.state = tt_fnv1a_u64(seed, conn->base.rank);
    net->conns[conn->base.rank] = conn;
}

static tutti_err chaos_dial(tt_conn *base, const void *addr, size_t len,
                            uint64_t deadline_ns, tutti_diag *diag)
{
    chaos_conn *conn = (chaos_conn *)base;
    chaos_net *net = (chaos_net *)base->net;
    if (!conn->inner)
        adopt(net, conn);
    if (wrap_of(base->net)->opts.only_down && base->rank > net->base.rank)
        return tt_fail(diag, TUTTI_ENET, "rank %u cannot be reached",
                       base->rank);
    net->inner->hints = base->net->hints;
    return wrap_of(base->net)->inner->dial(conn->inner, addr, len, deadline_ns,
                                           diag);
}

static tt_conn *on_called(tt_net *inner, uint32_t rank, const tt_link_id *id)
{
    chaos_net *net = inner->owner;
    chaos_conn *conn = (chaos_conn *)net->base.up->called(&net->base, rank, id);
    if (!conn)
        return NULL;
    if (!conn->inner)
        adopt(net, conn);
    return conn->inner;
}

/* --------------------------------------------------------------- sending */

/* Offers a held message to the inner transport; false: no room. */
static bool offer_held(chaos_conn *conn, held *h)
{
    struct iovec iov = {.iov_base = h->data, .iov_len = h->m.len};
    const tt_net_ops *ops = conn->inner->net->ops;
    tt_sent sent = ops->send(conn->inner, &h->m, &iov, 1);
    if (sent == TT_FULL)
        return false;
    h->is_ours = true;
    conn->is_owed |= sent == TT_QUEUED && conn->inner->net->ops->settle;
    if (sent == TT_QUEUED)
        push(&conn->lent, h);
    else
        held_free(conn->base.net->mem, h);
    return true;
}

static bool send_first(chaos_conn *conn)
{
    held *h = pop(&conn->waiting);
    if (!offer_held(conn, h)) {
        h->next = conn->waiting.first;
        if (!h->next)
            conn->waiting.end = &h->next;
        conn->waiting.first = h;
        return false;
    }
    conn->n_waiting--;
    return true;
}

/* Sends what has waited long enough; returns whether anything went. */
static bool send_waiting(chaos_conn *conn)
{
    bool moved = false;
    if (conn->swap_pending && conn->n_waiting < 2)
        return false;
    if (conn->swap_pending) {
        held *first = pop(&conn->waiting);
        held *second = pop(&conn->waiting);
        first->next = conn->waiting.first;
        second->next = first;
        if (!first->next)
            conn->waiting.end = &first->next;
        conn->waiting.first = second;
        conn->swap_pending = false;
    }
    while (conn->waiting.first && conn->turns == 0 && send_first(conn))
        moved = true;
    return moved;
}

static held *hold(chaos_conn *conn, const tt_msg *m, const struct iovec *iov,
                  int n_iov)
{
    held *h = held_new(conn->base.net->mem, m, iov, n_iov);
    if (!h)
        return NULL;
    push(&conn->waiting, h);
    conn->n_waiting++;
    return h;
}

/* Passes the message through, changed or not; nothing is held. */
static tt_sent pass(chaos_conn *conn, const tt_msg *m, const struct iovec *iov,
                    int n_iov)
{
    const tt_mem *mem = conn->base.net->mem;
    tt_msg header = *m;
    header.len = 0; /* the record holds no payload */
    held *record = held_new(mem, &header, NULL, 0);
    if (!record)
        return TT_FULL;
    tt_sent sent = conn->inner->net->ops->send(conn->inner, m, iov, n_iov);
    if (sent == TT_QUEUED)
        push(&conn->lent, record);
    else
        held_free(mem, record);
    return sent;
}

static bool is_target(const tt_conn *conn, const tt_chaos_opts *opts)
{
    return (opts->only_rank == TT_NONE || opts->only_rank == conn->net->rank) &&
           (opts->only_peer == TT_NONE || opts->only_peer == conn->rank);
}

static void flip(tt_msg *m, tt_rng *rng)
{
    size_t bit;
    do
        bit = tt_rng_below(rng, sizeof(*m) * 8);
    while (bit / 8 - offsetof(tt_msg, len) < sizeof(m->len));
    ((unsigned char *)m)[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

/* A bit of the payload, or as flip(). */
static void spoil(held *h, uint64_t bit, tt_rng *rng)
{
    uint64_t n = 8 * (uint64_t)h->m.len;
    if (bit == UINT64_MAX)
        bit = tt_rng_below(rng, n + 8 * sizeof(h->m));
    if (bit < n)
        h->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    else
        flip(&h->m, rng);
}

/* The message is counted only when it is taken, so that a fault hits the same
 * message however often it was refused before. */
static tt_sent take(chaos_conn *conn, const tt_msg *m, const struct iovec *iov,
                    int n_iov)
{
    const tt_chaos_opts *opts = &wrap_of(conn->base.net)->opts;
    uint64_t k = is_target(&conn->base, opts) ? conn->n_taken + 1 : 0;
    tt_msg changed = *m;
    if (k && k == opts->kill_at) {
        conn->is_doomed = true;
        return TT_LEFT;
    }
    if (k && (k == opts->drop_at || (opts->hole_at && k >= opts->hole_at)))
        return TT_LEFT;
    bool doubles = k && k == opts->double_at;
    bool is_spoilt = k &&
                     (k == opts->spoil_at ||
                      tt_rng_below(&conn->rng, 1000) < opts->spoil_per_1000);
    bool is_changed = is_spoilt ||
                      (k && (k == opts->truncate_at || k == opts->flip_at));
    if (k && k == opts->truncate_at)
        changed.len /= 2;
    if (k && k == opts->flip_at)
        flip(&changed, &conn->rng);
    bool swaps = k && k == opts->swap_at;
    bool delays = tt_rng_below(&conn->rng, 1000) < opts->delay_per_1000;
    if (!conn->waiting.first && !swaps && !delays && !is_changed && !doubles)
        return pass(conn, m, iov, n_iov);
    held *h = hold(conn, &changed, iov, n_iov);
    if (!h || (doubles && !hold(conn, &changed, iov, n_iov)))
        return TT_FULL;
    if (is_spoilt)
        spoil(h, k == opts->spoil_at ? opts->spoil_bit : UINT64_MAX,
              &conn->rng);
    conn->swap_pending |= swaps;
    if (delays && conn->n_waiting == 1)
        conn->turns = 1 +
                      (uint32_t)tt_rng_below(&conn->rng, opts->delay_turns + 1);
    return TT_LEFT;
}

static tt_sent chaos_send(tt_conn *base, const tt_msg *m,
                          const struct iovec *iov, int n_iov)
{
    chaos_conn *conn = (chaos_conn *)base;
    if (!conn->inner || conn->is_dead || conn->is_doomed ||
        conn->n_waiting >= HELD_MAX)
        return TT_FULL;
    const tt_chaos_opts *opts = &wrap_of(base->net)->opts;
    if (tt_rng_below(&conn->rng, 1000) < opts->full_per_1000)
        return TT_FULL;
    tt_sent sent = take(conn, m, iov, n_iov);
    conn->n_taken += sent != TT_FULL;
    return sent;
}

/* What waits here is taken, too, as far as the inner transport's owner sees. */
static void chaos_settle(tt_conn *base)
{
    chaos_conn *conn = (chaos_conn *)base;
    if (!conn->inner || conn->is_dead)
        return;
    conn->is_owed = conn->waiting.first != NULL;
    conn->inner->net->ops->settle(conn->inner);
}

static void chaos_flush(tt_conn *base)
{
    chaos_conn *conn = (chaos_conn *)base;
    if (!conn->inner || conn->is_dead)
        return;
    send_waiting(conn);
    if (conn->inner->net->ops->flush)
        conn->inner->net->ops->flush(conn->inner);
    if (conn->is_owed)
        chaos_settle(base);
}

/* -------------------------------------------------------------- progress */

static void kill_conn(chaos_conn *conn)
{
    conn->is_dead = true;
    conn->inner->net->ops->close(conn->inner, TT_NS_PER_S);
    clear(conn->base.net->mem, &conn->lent);
    conn->base.net->up->lost(conn->base.peer, TUTTI_ENET,
                             "killed by the chaos transport");
}

static bool chaos_progress(tt_net *base, bool has_event)
{
    const chaos_net *net = (chaos_net *)base;
    const tt_net_ops *ops = net->inner->ops;
    bool moved = ops->progress(net->inner, has_event);
    for (uint32_t r = 0; r < base->n_ranks; r++) {
        chaos_conn *conn = net->conns[r];
        if (!conn || conn->is_dead)
            continue;
        if (conn->is_doomed) {
            kill_conn(conn);
            moved = true;
            continue;
        }
        if (conn->turns > 0)
            conn->turns--;
        if (send_waiting(conn)) {
            moved = true;
            if (ops->flush)
                ops->flush(conn->inner);
            if (conn->is_owed)
                chaos_settle(&conn->base);
        }
    }
    return moved;
}

static bool chaos_arm(tt_net *base, bool on)
{
    const chaos_net *net = (chaos_net *)base;
    const wrap *w = wrap_of(base);
    /* A refusal by us, a delay or a doom ends without any event. */
    bool is_busy = w->opts.full_per_1000 > 0;
    for (uint32_t r = 0; r < base->n_ranks; r++) {
        const chaos_conn *conn = net->conns[r];
        is_busy |= conn && !conn->is_dead &&
                   (conn->is_doomed ||
                    (conn->n_waiting > 0 && !conn->swap_pending));
    }
    if (on && is_busy)
        return false;
    return w->inner->arm(net->inner, on);
}

static bool chaos_cancel(tt_conn *base, bool drops_input, bool is_final)
{
    chaos_conn *conn = (chaos_conn *)base;
    if (!conn->inner || conn->is_dead)
        return true;
    if (!conn->inner->net->ops->cancel(conn->inner, drops_input, is_final))
        return false;
    clear(base->net->mem, &conn->lent);
    return true;
}

static bool chaos_grant(tt_conn *base, const tt_buffers *mine, tt_grant *out)
{
    const chaos_conn *conn = (chaos_conn *)base;
    return conn->inner && !conn->is_dead &&
           conn->inner->net->ops->within->grant(conn->inner, mine, out);
}

static bool chaos_withdraw(tt_conn *base, const tt_buffers *mine,
                           uint64_t number, bool is_final)
{
    const chaos_conn *conn = (chaos_conn *)base;
    return !conn->inner || conn->is_dead ||
           conn->inner->net->ops->within->withdraw(conn->inner, mine, number,
                                                   is_final);
}

static bool chaos_reach(tt_conn *base, const tt_grant *theirs, tt_buffers *out)
{
    const chaos_conn *conn = (chaos_conn *)base;
    return conn->inner && !conn->is_dead &&
           conn->inner->net->ops->within->reach(conn->inner, theirs, out);
}

static bool chaos_hold(tt_conn *base, uint64_t number)
{
    const chaos_conn *conn = (chaos_conn *)base;
    return conn->inner && !conn->is_dead &&
           conn->inner->net->ops->within->hold(conn->inner, number);
}

static void chaos_release(tt_conn *base)
{
    const chaos_conn *conn = (chaos_conn *)base;
    if (conn->inner && !conn->is_dead)
        conn->inner->net->ops->within->release(conn->inner);
}

static void chaos_drain(tt_net *base, uint64_t deadline_ns,
                        uint64_t patience_ns)
{
    chaos_net *net = (chaos_net *)base;
    const tt_net_ops *inner = wrap_of(base)->inner;
    if (inner->drain)
        inner->drain(net->inner, deadline_ns, patience_ns);
}

static void chaos_close(tt_conn *base, uint64_t linger_ns)
{
    chaos_conn *conn = (chaos_conn *)base;
    if (!conn->inner)
        return;
    const tt_net_ops *ops = conn->inner->net->ops;
    uint64_t deadline = tt_now_ns() + linger_ns;
    struct timespec nap = {.tv_nsec = 100000};
    conn->turns = 0;
    conn->swap_pending = false;
    while (!conn->is_dead && conn->waiting.first) {
        if (!send_waiting(conn) && tt_now_ns() >= deadline)
            break;
        if (ops->flush)
            ops->flush(conn->inner);
        ops->progress(((chaos_net *)base->net)->inner, true);
        if (conn->waiting.first)
            nanosleep(&nap, NULL);
    }
    ops->close(conn->inner, linger_ns);
    clear(base->net->mem, &conn->waiting);
    clear(base->net->mem, &conn->lent);
    chaos_conn **at = &((chaos_net *)base->net)->conns[base->rank];
    if (*at == conn) /* else another one has replaced it */
        *at = NULL;
    conn->inner = NULL;
}

static void chaos_fini(tt_net *base)
{
    chaos_net *net = (chaos_net *)base;
    if (net->inner)
        wrap_of(base)->inner->fini(net->inner);
    tt_free(base->mem, net->conns, base->n_ranks, sizeof(chaos_conn *));
    net->conns = NULL;
}

static const tt_net_within chaos_within = {
    .grant = chaos_grant,
    .withdraw = chaos_withdraw,
    .reach = chaos_reach,
    .hold = chaos_hold,
    .release = chaos_release,
};

const tt_net_ops *tt_chaos_wrap(const tt_net_ops *inner,
                                const tt_chaos_opts *opts)
{
    wrap *w = &wraps[n_wraps++ % WRAPS];
    w->inner = inner;
    w->opts = *opts;
    w->ops = (tt_net_ops){
        .name = "chaos",
        .net_size = ALIGN(sizeof(chaos_net)) + inner->net_size,
        .conn_size = ALIGN(sizeof(chaos_conn)) + inner->conn_size,
        .same_host = inner->same_host && !opts->only_down,
        .binds = inner->binds,
        .open = chaos_open,
        .address = chaos_address,
        .dial = chaos_dial,
        .send = chaos_send,
        .flush = chaos_flush,
        .settle = inner->settle ? chaos_settle : NULL,
        .progress = chaos_progress,
        .arm = chaos_arm,
        .cancel = chaos_cancel,
        .within = inner->within ? &chaos_within : NULL,
        .drain = chaos_drain,
        .close = chaos_close,
        .fini = chaos_fini,
    };
    return &w->ops;
}
