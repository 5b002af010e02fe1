/* SPDX-License-Identifier: BSD-3-Clause
 * loop.c - the smallest transport: ranks that are threads of one process, or
 * that one thread drives one after the other.
 *
 * Idea       Two nets share a pair: one block of memory with two rings
 *            (net/shm/duplex.h). The first of the two that dials creates it in
 *            the process-wide registry; the other one finds it there when it
 *            dials or looks for what is new. The last one to close unmaps it.
 * Left       Payloads are copied, but the engine hears that they have left only
 * when it asks (settle), and what it has changed by then ends the process
 *            (not where ranks put results into each other's memory: they know
 *            by these that the payload has come). Of those that are more than
 *            MOST_OWED it hears at once.
 * Grants     Both sides have the same addresses: the pair says which.
 * Invariant  The registry's mutex guards the list, `closed` and `bell`; it is
 *            never taken while messages are moved, only to wake a sleeper, at
 *            connect, close and fini, and on a slow tick.
 * Next       net/shm/duplex.h, net/shm/msgring.c; then net/shm/shm.c. */
#include "support/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fork.h"
#include "net/shm/duplex.h"

typedef struct loop_pair {
    struct loop_pair *next;
    tt_link_id id[2]; /* of the two nets, the smaller one first */
    uint32_t rank[2]; /* of the two nets */
    int bell[2];      /* eventfd of a side that has connected, else -1 */
    bool joined[2], closed[2];
    uint32_t ring_size;
    tt_buffers granted[2][TT_GRANTS_MAX]; /* by side */
} loop_pair;

#define MOST_OWED 16

/* A payload of which left() is owed, and its CRC. */
typedef struct owed {
    uint32_t crc;
    int n_iov;
    struct iovec iov[TT_NET_IOV_MAX];
} owed;

typedef struct loop_conn {
    tt_conn base;
    owed owed[MOST_OWED]; /* the oldest first */
    uint32_t n_owed;
    tt_duplex duplex;
    loop_pair *pair; /* NULL: not connected, or closed */
    int side;
    bool is_gone;         /* the other side has closed: only the ring is left */
    bool is_lost, is_new; /* is_new: to be told that it is up */
} loop_conn;

typedef struct loop_net {
    tt_net base;
    uint32_t ring_size;
    uint32_t n_live, n_new;
    loop_conn **live; /* [most_live]; the first n_live are polled */
    size_t most_live;
    uint64_t seen; /* of registry.n_made */
    bool has_news; /* left() was called since the last progress() */
} loop_net;

/* What address() tells. */
typedef struct loop_address {
    tt_link_id id;
    uint64_t process; /* address of the registry ... */
    uint64_t pid;     /* ... in this process */
    uint32_t ring_size, rank;
} loop_address;
_Static_assert(sizeof(loop_address) <= TT_NET_INLINE, "address() has room");

static struct {
    pthread_mutex_t lock;
    loop_pair *pairs;
    _Atomic uint64_t n_made; /* pairs */
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The pair's own head takes the first page of its memory. */
#define PAIR_HEAD_BYTES 4096
_Static_assert(sizeof(loop_pair) <= PAIR_HEAD_BYTES, "the head fits");

static size_t pair_bytes(uint32_t ring_size)
{
    return PAIR_HEAD_BYTES + tt_duplex_bytes(ring_size);
}

/* --------------------------------------- pairs, under the registry's lock */

/* Not from the net's allocator: only touched pages shall cost memory, and the
 * two sides may have allocators of different life time. */
static loop_pair *pair_create(const tt_link_id id[2], const uint32_t rank[2],
                              uint32_t ring_size)
{
    loop_pair *pair = mmap(NULL, pair_bytes(ring_size), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pair == MAP_FAILED)
        return NULL;
    *pair = (loop_pair){.next = registry.pairs,
                        .id = {id[0], id[1]},
                        .rank = {rank[0], rank[1]},
                        .bell = {-1, -1},
                        .ring_size = ring_size};
    registry.pairs = pair;
    atomic_fetch_add(&registry.n_made, 1);
    return pair;
}

static bool is_same(const tt_link_id *a, const tt_link_id *b)
{
    return tt_link_id_compare(a, b) == 0;
}

/* That this side has not joined: two may meet again. */
static loop_pair *pair_find(const tt_link_id id[2], int side)
{
    loop_pair *pair = registry.pairs;
    while (pair && (!is_same(&pair->id[0], &id[0]) ||
                    !is_same(&pair->id[1], &id[1]) || pair->joined[side]))
        pair = pair->next;
    return pair;
}

static void ring_bell(const loop_pair *pair, int side)
{
    uint64_t one = 1;
    if (pair->bell[side] >= 0 &&
        write(pair->bell[side], &one, sizeof(one)) != sizeof(one))
        return; /* the counter is full: it is readable, which is enough */
}

static void pair_leave(loop_pair *pair, int side)
{
    pair->closed[side] = true;
    pair->bell[side] = -1;
    ring_bell(pair, 1 - side);
    if (!pair->closed[1 - side])
        return;
    loop_pair **link = &registry.pairs;
    while (*link != pair)
        link = &(*link)->next;
    *link = pair->next;
    munmap(pair, pair_bytes(pair->ring_size));
}

/* --------------------------------------------------------------- set-up -- */

static const uint64_t default_ring_bytes = 256 << 10;

static tutti_err loop_open(tt_net *base, tutti_diag *diag)
{
    loop_net *net = (loop_net *)base;
    base->fd = -1;
    net->live = tt_new(base->mem, base->n_ranks, sizeof(loop_conn *));
    if (!net->live)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u connections",
                       base->n_ranks);
    net->most_live = base->n_ranks;
    base->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (base->fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "eventfd");
    tt_fork_watch(base->fd);
    tutti_err err = tt_link_id_is_none(&base->id)
                        ? tt_link_id_make(&base->id, diag)
                        : TUTTI_OK;
    if (err)
        return err;
    uint64_t wish = base->settings->shm_ring_bytes;
    net->ring_size = tt_ring_size(wish ? wish : default_ring_bytes);
    base->max_payload = tt_ring_max_payload(net->ring_size);
    return TUTTI_OK;
}

static size_t loop_address_of(tt_net *base, void *buf, size_t size)
{
    const loop_net *net = (loop_net *)base;
    loop_address address = {.id = base->id,
                            .process = (uint64_t)(uintptr_t)&registry,
                            .pid = (uint64_t)getpid(),
                            .ring_size = net->ring_size,
                            .rank = base->rank};
    (void)size;
    memcpy(buf, &address, sizeof(address));
    return sizeof(address);
}

static bool has_place(loop_net *net)
{
    return !tt_grow(net->base.mem, (void **)&net->live, &net->most_live,
                    net->n_live + 1, sizeof(loop_conn *));
}

static void join(loop_net *net, loop_conn *conn, loop_pair *pair, int side)
{
    pair->joined[side] = true;
    pair->bell[side] = net->base.fd;
    if (pair->closed[1 - side])
        ring_bell(pair, side); /* it has come and gone already */
    conn->pair = pair;
    conn->side = side;
    conn->is_new = true;
    tt_duplex_init(&conn->duplex, (char *)pair + PAIR_HEAD_BYTES,
                   pair->ring_size, side, NULL, NULL);
    net->live[net->n_live++] = conn;
    net->n_new++;
}

static tutti_err loop_dial(tt_conn *base, const void *addr, size_t len,
                           uint64_t deadline_ns, tutti_diag *diag)
{
    (void)deadline_ns; /* never waits */
    loop_net *net = (loop_net *)base->net;
    loop_address other;
    if (len == sizeof(other))
        memcpy(&other, addr, sizeof(other));
    if (len != sizeof(other) || other.pid != (uint64_t)getpid() ||
        other.process != (uint64_t)(uintptr_t)&registry ||
        other.ring_size != net->ring_size || is_same(&other.id, &base->net->id))
        return tt_fail(diag, TUTTI_ENET, "rank %u is not of this process",
                       base->rank);
    if (!has_place(net))
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a connection");
    int side = tt_link_id_compare(&base->net->id, &other.id) > 0;
    tt_link_id id[2];
    uint32_t rank[2];
    id[side] = base->net->id;
    id[1 - side] = other.id;
    rank[side] = base->net->rank;
    rank[1 - side] = other.rank;
    pthread_mutex_lock(&registry.lock);
    loop_pair *pair = pair_find(id, side);
    if (!pair)
        pair = pair_create(id, rank, net->ring_size);
    if (pair) {
        join(net, (loop_conn *)base, pair, side);
        ring_bell(pair, 1 - side);
    }
    pthread_mutex_unlock(&registry.lock);
    return pair ? TUTTI_OK
                : tt_fail(diag, TUTTI_ENOMEM,
                          "out of memory for rings to rank %u", base->rank);
}

/* A pair that another net has made with this one. */
static loop_pair *find_call(const loop_net *net, int *side)
{
    for (loop_pair *pair = registry.pairs; pair; pair = pair->next)
        for (*side = 0; *side < 2; ++*side)
            if (is_same(&pair->id[*side], &net->base.id) &&
                !pair->joined[*side] && !pair->closed[*side])
                return pair;
    return NULL;
}

static bool take_calls(loop_net *net)
{
    uint64_t n_made = atomic_load(&registry.n_made);
    int side;
    if (net->seen == n_made)
        return false;
    net->seen = n_made;
    for (;;) {
        pthread_mutex_lock(&registry.lock);
        loop_pair *pair = find_call(net, &side);
        if (pair)
            pair->joined[side] = true; /* nobody else frees it */
        pthread_mutex_unlock(&registry.lock);
        if (!pair)
            return true;
        tt_conn *conn = net->base.up->called(&net->base, pair->rank[1 - side],
                                             &pair->id[1 - side]);
        pthread_mutex_lock(&registry.lock);
        if (conn && has_place(net))
            join(net, (loop_conn *)conn, pair, side);
        else
            pair_leave(pair, side);
        pthread_mutex_unlock(&registry.lock);
    }
}

static void tell_new(loop_net *net)
{
    for (uint32_t i = 0; i < net->n_live && net->n_new > 0; i++) {
        if (!net->live[i]->is_new)
            continue;
        net->live[i]->is_new = false;
        net->n_new--;
        net->live[i]->base.is_up = true;
        net->base.up->up(&net->live[i]->base);
    }
}

/* ------------------------------------------------------------- messages -- */

static void wake(const loop_conn *conn)
{
    pthread_mutex_lock(&registry.lock);
    ring_bell(conn->pair, 1 - conn->side);
    pthread_mutex_unlock(&registry.lock);
}

static uint32_t crc_of(const struct iovec *iov, int n_iov)
{
    uint32_t crc = 0;
    for (int i = 0; i < n_iov; i++)
        crc = tt_crc32c(crc, iov[i].iov_base, iov[i].iov_len);
    return crc;
}

/* Nothing is borrowed any more. Returns how many payloads were. */
static uint32_t give_back(loop_conn *conn)
{
    const uint32_t n = conn->n_owed;
    const bool may_put = conn->base.net->settings->shm_direct_bytes > 0;
    for (uint32_t i = 0; i < n && !may_put; i++) {
        const owed *o = &conn->owed[i];
        if (crc_of(o->iov, o->n_iov) == o->crc)
            continue;
        fprintf(stderr, "loop: a payload has changed before it left\n");
        abort();
    }
    conn->n_owed = 0;
    return n;
}

static void loop_settle(tt_conn *base)
{
    const uint32_t n = give_back((loop_conn *)base);
    if (n == 0)
        return;
    ((loop_net *)base->net)->has_news = true;
    base->net->up->left(base->peer, n);
}

static tt_sent put_off(loop_conn *conn, const tt_msg *m,
                       const struct iovec *iov, int n_iov)
{
    /* checked.c does not ask. */
    const bool is_checked = conn->base.net->settings->check == TT_CHECK_CRC;
    if (m->len <= TT_NET_INLINE || conn->n_owed == MOST_OWED || is_checked)
        return TT_LEFT;
    owed *o = &conn->owed[conn->n_owed++];
    o->crc = crc_of(iov, n_iov);
    o->n_iov = n_iov;
    memcpy(o->iov, iov, (size_t)n_iov * sizeof(*iov));
    return TT_QUEUED;
}

static tt_sent loop_send(tt_conn *base, const tt_msg *m,
                         const struct iovec *iov, int n_iov)
{
    loop_conn *conn = (loop_conn *)base;
    if (!conn->pair || conn->is_lost)
        return TT_FULL;
    bool must_wake = false;
    tt_sent sent = tt_duplex_send(&conn->duplex, m, iov, n_iov, &must_wake);
    if (must_wake)
        wake(conn);
    return sent == TT_LEFT ? put_off(conn, m, iov, n_iov) : sent;
}

static void loop_flush(tt_conn *base)
{
    loop_conn *conn = (loop_conn *)base;
    if (conn->pair && tt_duplex_flush(&conn->duplex))
        wake(conn);
}

static bool other_closed(const loop_conn *conn)
{
    pthread_mutex_lock(&registry.lock);
    bool closed = conn->pair->closed[1 - conn->side];
    pthread_mutex_unlock(&registry.lock);
    return closed;
}

/* Returns the number of messages moved, -1 when the conn is lost. */
static int serve(loop_net *net, loop_conn *conn, bool has_event)
{
    const tt_net_up *up = net->base.up;
    /* Looked at before the ring: what was sent before closing is seen. */
    conn->is_gone |= has_event && other_closed(conn);
    bool must_wake = false;
    int n = tt_duplex_drain(&conn->duplex, &conn->base, &must_wake);
    if (must_wake)
        wake(conn);
    if (n < 0) {
        conn->is_lost = true;
        up->lost(conn->base.peer, TUTTI_EPROTO, "broken ring");
        return -1;
    }
    if (conn->is_gone && !tt_ring_has_message(&conn->duplex.rx)) {
        char text[64];
        snprintf(text, sizeof(text), "rank %u left", conn->base.rank);
        conn->is_lost = true;
        up->lost(conn->base.peer, TUTTI_EPEER, text);
        return -1;
    }
    return n + tt_duplex_found_room(&conn->duplex);
}

static bool loop_progress(tt_net *base, bool has_event)
{
    loop_net *net = (loop_net *)base;
    bool moved = net->has_news;
    uint64_t count;
    net->has_news = false;
    if (has_event && read(base->fd, &count, sizeof(count)) > 0)
        moved = true;
    moved |= take_calls(net) || net->n_new > 0;
    tell_new(net);
    for (uint32_t i = 0; i < net->n_live;) {
        int n = net->live[i]->is_new ? 0 : serve(net, net->live[i], has_event);
        moved |= n != 0;
        if (n < 0)
            net->live[i] = net->live[--net->n_live];
        else
            i++;
    }
    return moved;
}

static bool loop_arm(tt_net *base, bool on)
{
    loop_net *net = (loop_net *)base;
    bool is_idle = true;
    for (uint32_t i = 0; on && i < net->n_live; i++)
        tt_duplex_announce(&net->live[i]->duplex);
    tt_ring_fence();
    for (uint32_t i = 0; on && i < net->n_live; i++)
        is_idle &= !tt_duplex_has_work(&net->live[i]->duplex);
    for (uint32_t i = 0; !(on && is_idle) && i < net->n_live; i++)
        tt_duplex_withdraw(&net->live[i]->duplex);
    return is_idle && net->n_new == 0 && !net->has_news &&
           net->seen == atomic_load(&registry.n_made);
}

static bool loop_cancel(tt_conn *conn, bool drops_input, bool is_final)
{
    (void)drops_input; /* arrived() takes */
    (void)is_final;
    give_back((loop_conn *)conn);
    return true;
}

static bool loop_grant(tt_conn *base, const tt_buffers *mine, tt_grant *out)
{
    loop_conn *conn = (loop_conn *)base;
    uint64_t least = base->net->settings->shm_direct_bytes;
    if (!conn->pair || conn->is_lost || least == 0 || mine->bytes < least)
        return false;
    uint64_t number = tt_grant_open(&conn->duplex.granter);
    if (number == 0)
        return false;
    conn->pair->granted[conn->side][tt_grant_place(number)] = *mine;
    *out = (tt_grant){number, mine->in != NULL, mine->out != NULL};
    return true;
}

static bool loop_withdraw(tt_conn *base, const tt_buffers *mine,
                          uint64_t number, bool is_final)
{
    (void)mine;
    (void)is_final;
    loop_conn *conn = (loop_conn *)base;
    return !conn->pair || tt_grant_close(&conn->duplex.granter, number);
}

static bool loop_hold(tt_conn *base, uint64_t number)
{
    const loop_conn *conn = (loop_conn *)base;
    return conn->pair && tt_grant_hold(conn->duplex.theirs, number);
}

static void loop_release(tt_conn *base)
{
    const loop_conn *conn = (loop_conn *)base;
    if (conn->pair)
        tt_grant_release(conn->duplex.theirs);
}

/* The numbers alone count: messages may be spoilt, for a test. */
static bool loop_reach(tt_conn *base, const tt_grant *theirs, tt_buffers *out)
{
    const loop_conn *conn = (loop_conn *)base;
    uint32_t place = tt_grant_place(theirs->number);
    if (!loop_hold(base, theirs->number))
        return true; /* withdrawn: nothing is there any more */
    const tt_buffers *there = &conn->pair->granted[1 - conn->side][place];
    bool is_same = there->bytes == out->bytes;
    if (is_same)
        *out = *there;
    loop_release(base);
    return is_same;
}

static void loop_close(tt_conn *base, uint64_t linger_ns)
{
    (void)linger_ns; /* what was taken is in the ring, which stays */
    loop_conn *conn = (loop_conn *)base;
    if (!conn->pair)
        return;
    loop_net *net = (loop_net *)base->net;
    net->n_new -= conn->is_new;
    base->is_up = false;
    for (uint32_t i = 0; i < net->n_live; i++) {
        if (net->live[i] == conn)
            net->live[i] = net->live[--net->n_live];
    }
    tt_grant_close_all(&conn->duplex.granter);
    pthread_mutex_lock(&registry.lock);
    pair_leave(conn->pair, conn->side);
    pthread_mutex_unlock(&registry.lock);
    conn->pair = NULL;
}

/* Leaves the pairs that others made for us and that we never joined. */
static void leave_unjoined(const tt_link_id *id)
{
    pthread_mutex_lock(&registry.lock);
    loop_pair *next;
    for (loop_pair *pair = registry.pairs; pair; pair = next) {
        next = pair->next;
        for (int side = 0; side < 2; side++) {
            if (is_same(&pair->id[side], id) && !pair->closed[side]) {
                pair_leave(pair, side);
                break;
            }
        }
    }
    pthread_mutex_unlock(&registry.lock);
}

static void loop_fini(tt_net *base)
{
    loop_net *net = (loop_net *)base;
    if (net->live) {
        leave_unjoined(&base->id);
        tt_fork_close(&base->fd);
    }
    tt_free(base->mem, net->live, net->most_live, sizeof(loop_conn *));
    net->live = NULL;
}

static const tt_net_within loop_within = {
    .grant = loop_grant,
    .withdraw = loop_withdraw,
    .reach = loop_reach,
    .hold = loop_hold,
    .release = loop_release,
};

const tt_net_ops tt_net_loop = {
    .name = "loop",
    .net_size = sizeof(loop_net),
    .conn_size = sizeof(loop_conn),
    .same_host = true,
    .open = loop_open,
    .address = loop_address_of,
    .dial = loop_dial,
    .send = loop_send,
    .flush = loop_flush,
    .settle = loop_settle,
    .progress = loop_progress,
    .arm = loop_arm,
    .cancel = loop_cancel,
    .within = &loop_within,
    .close = loop_close,
    .fini = loop_fini,
};
