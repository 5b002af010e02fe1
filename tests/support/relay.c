/* SPDX-License-Identifier: BSD-3-Clause
 * relay.c - see relay.h.
 *
 * A wire is a connection that was dialled and the one that the relay has made
 * for it. It has two pipes; what was read waits in a pipe until it is due. A
 * pipe that holds a lot is not read, so the sender feels it. */
#include "support/relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"

enum { DOORS = 64, PIECE = 16384, MOST_HELD = 256 << 10, MOST_FDS = 512 };

typedef struct piece {
    struct piece *next;
    uint64_t due_ns;
    size_t at, len;
    unsigned char bytes[PIECE];
} piece;

typedef struct pipe_way {
    piece *first, **end;
    size_t held;
    uint64_t n_passed, last_ns; /* last_ns: when the last one is due */
    bool is_ended, has_told;    /* no more is read; and the receiver knows */
} pipe_way;

typedef struct wire {
    struct wire *next;
    uint32_t number;
    int fd[2];        /* of who has dialled, and of who was dialled */
    pipe_way pipe[2]; /* pipe[i] is read from fd[i] */
} wire;

/* A listener for what was to go to a port. */
typedef struct door {
    uint16_t to, port;
    int fd;
} door;

struct tt_relay {
    tt_relay_opts o;
    tt_rng rng;
    pthread_mutex_t lock; /* of the doors */
    door doors[DOORS];
    _Atomic uint32_t n_doors;
    wire *wires;
    uint32_t n_wires;
    _Atomic uint64_t hit_ns;
    uint64_t lost;
    _Atomic bool stops;
    bool has_thread;
    pthread_t thread;
};

static tt_relay *_Atomic the_relay;

static int really_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    return (int)syscall(SYS_connect, fd, addr, len);
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* ----------------------------------------------------------------- doors -- */

static bool open_door(door *d, uint16_t to)
{
    struct sockaddr_in at = loopback(0);
    socklen_t len = sizeof(at);
    *d = (door){.to = to};
    d->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->fd >= 0 && bind(d->fd, (struct sockaddr *)&at, len) == 0 &&
        listen(d->fd, 64) == 0 &&
        getsockname(d->fd, (struct sockaddr *)&at, &len) == 0) {
        d->port = ntohs(at.sin_port);
        return true;
    }
    if (d->fd >= 0)
        close(d->fd);
    return false;
}

/* 0: there is none. */
static uint16_t door_to(tt_relay *r, uint16_t to)
{
    uint16_t port = 0;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->n_doors; i++)
        if (r->doors[i].to == to)
            port = r->doors[i].port;
    if (port == 0 && r->n_doors < DOORS &&
        open_door(&r->doors[r->n_doors], to)) {
        port = r->doors[r->n_doors].port;
        atomic_fetch_add(&r->n_doors, 1);
    }
    pthread_mutex_unlock(&r->lock);
    return port;
}

int tt_relay_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    tt_relay *r = atomic_load(&the_relay);
    struct sockaddr_in to;
    if (!r || addr->sa_family != AF_INET || len < sizeof(to))
        return really_connect(fd, addr, len);
    memcpy(&to, addr, sizeof(to));
    uint16_t port = door_to(r, ntohs(to.sin_port));
    if (ntohl(to.sin_addr.s_addr) >> 24 != 127 || port == 0)
        return really_connect(fd, addr, len);
    to = loopback(port);
    return really_connect(fd, (struct sockaddr *)&to, sizeof(to));
}

/* ----------------------------------------------------------------- wires -- */

static void reset(int fd)
{
    const struct linger now = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
}

static void end_wire(tt_relay *r, wire *w)
{
    wire **at = &r->wires;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    for (int i = 0; i < 2; i++) {
        r->lost += w->pipe[i].held;
        while (w->pipe[i].first) {
            piece *p = w->pipe[i].first;
            w->pipe[i].first = p->next;
            free(p);
        }
        reset(w->fd[i]);
    }
    free(w);
}

static void begin_wire(tt_relay *r, const door *d, int fd)
{
    const int yes = 1;
    const struct sockaddr_in at = loopback(d->to);
    wire *w = calloc(1, sizeof(*w));
    int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* On the loopback that is done, or refused, at once. */
    if (!w || far < 0 ||
        really_connect(far, (const struct sockaddr *)&at, sizeof(at)) != 0) {
        if (far >= 0)
            close(far);
        reset(fd);
        free(w);
        return;
    }
    *w = (wire){.fd = {fd, far}, .number = ++r->n_wires, .next = r->wires};
    for (int i = 0; i < 2; i++) {
        w->pipe[i].end = &w->pipe[i].first;
        fcntl(w->fd[i], F_SETFL, O_NONBLOCK);
        setsockopt(w->fd[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    r->wires = w;
}

/* ---------------------------------------------------------------- faults -- */

static bool is_over(const tt_relay *r, uint64_t now)
{
    return r->o.for_ns > 0 && r->hit_ns > 0 && now >= r->hit_ns + r->o.for_ns;
}

static bool is_down(const tt_relay *r, uint64_t now)
{
    return r->o.fault == TT_RELAY_DOWN && r->hit_ns > 0 && !is_over(r, now);
}

/* Nothing passes by the pipe i of any wire. */
static bool is_shut(const tt_relay *r, int i, uint64_t now)
{
    bool is_hole = r->o.fault == TT_RELAY_HOLE && r->hit_ns > 0 &&
                   i == (int)r->o.is_back && !is_over(r, now);
    return is_hole || is_down(r, now);
}

static bool is_aimed_at(const tt_relay *r, const wire *w, int i)
{
    return r->o.fault != TT_RELAY_NONE && r->hit_ns == 0 &&
           w->number == r->o.at_conn && i == (int)r->o.is_back;
}

/* Of len bytes of the pipe, how many may pass before the fault comes. */
static size_t before_fault(const tt_relay *r, const wire *w, int i, size_t len)
{
    if (!is_aimed_at(r, w, i) || w->pipe[i].n_passed + len < r->o.at_byte)
        return len;
    return (size_t)(r->o.at_byte - 1 - w->pipe[i].n_passed);
}

/* ----------------------------------------------------------------- bytes -- */

static uint64_t due(tt_relay *r, pipe_way *p, size_t n)
{
    uint64_t at = tt_now_ns() + r->o.delay_ns;
    if (r->o.jitter_ns > 0)
        at += tt_rng_below(&r->rng, r->o.jitter_ns);
    if (tt_rng_below(&r->rng, 1000) < r->o.stall_per_1000)
        at += r->o.stall_ns;
    if (at < p->last_ns)
        at = p->last_ns;
    if (r->o.bytes_per_s > 0)
        at += n * TT_NS_PER_S / r->o.bytes_per_s;
    p->last_ns = at;
    return at;
}

/* True when something was read. */
static bool fill(tt_relay *r, wire *w, int i)
{
    pipe_way *p = &w->pipe[i];
    if (p->is_ended || p->held >= MOST_HELD)
        return false;
    piece *one = malloc(sizeof(*one));
    ssize_t n = one ? recv(w->fd[i], one->bytes, PIECE, 0) : -1;
    if (n <= 0) {
        p->is_ended = one && (n == 0 || (errno != EAGAIN && errno != EINTR));
        free(one);
        return p->is_ended;
    }
    one->next = NULL;
    one->at = 0;
    one->len = (size_t)n;
    one->due_ns = due(r, p, (size_t)n);
    *p->end = one;
    p->end = &one->next;
    p->held += (size_t)n;
    return true;
}

static void drop_first(pipe_way *p)
{
    piece *one = p->first;
    p->held -= one->len - one->at;
    p->first = one->next;
    if (!p->first)
        p->end = &p->first;
    free(one);
}

/* Passes up to `most` bytes of the first piece; how many it took, -1: the
 * receiver has gone. */
static ssize_t pass(wire *w, int i, size_t most)
{
    pipe_way *p = &w->pipe[i];
    piece *one = p->first;
    size_t n = one->len - one->at < most ? one->len - one->at : most;
    ssize_t sent =
        n > 0 ? send(w->fd[1 - i], one->bytes + one->at, n, MSG_NOSIGNAL) : 0;
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    one->at += (size_t)sent;
    p->held -= (size_t)sent;
    p->n_passed += (size_t)sent;
    if (one->at == one->len)
        drop_first(p);
    return sent;
}

/* All that has been sent passes, if the receivers take it. */
static void pass_all(tt_relay *r, wire *w)
{
    for (int i = 0; i < 2; i++) {
        ssize_t n = 1;
        while (n > 0 || fill(r, w, i))
            n = w->pipe[i].first ? pass(w, i, PIECE) : 0;
    }
}

/* The fault comes now. False: the wire is gone. */
static bool hit(tt_relay *r, wire *w, int i)
{
    r->hit_ns = tt_now_ns();
    switch (r->o.fault) {
    case TT_RELAY_CUT:
        pass_all(r, w);
        end_wire(r, w);
        return false;
    case TT_RELAY_RESET:
        end_wire(r, w);
        return false;
    case TT_RELAY_FLIP:
        w->pipe[i].first->bytes[w->pipe[i].first->at] ^=
            (unsigned char)(1u << tt_rng_below(&r->rng, 8));
        return true;
    case TT_RELAY_END:
        r->lost += w->pipe[i].held;
        while (w->pipe[i].first)
            drop_first(&w->pipe[i]);
        w->pipe[i].is_ended = true;
        return true;
    default:
        return true;
    }
}

/* The receiver has gone. What it has said before is passed on all the same: its
 * kernel was told that it had come. */
static void lose_receiver(tt_relay *r, pipe_way *p)
{
    r->lost += p->held;
    while (p->first)
        drop_first(p);
    p->is_ended = p->has_told = true;
}

/* True when something moved; *w is NULL when the wire is gone. */
static bool empty(tt_relay *r, wire **at, int i, uint64_t now)
{
    wire *w = *at;
    pipe_way *p = &w->pipe[i];
    bool has_moved = false;
    while (p->first && p->first->due_ns <= now && !is_shut(r, i, now)) {
        size_t len = p->first->len - p->first->at;
        size_t most = before_fault(r, w, i, len);
        ssize_t n = pass(w, i, most);
        has_moved |= n > 0;
        bool is_hit = n == (ssize_t)most && most < len;
        if (n < 0) {
            lose_receiver(r, p);
            return true;
        }
        if (is_hit && !hit(r, w, i)) {
            *at = NULL;
            return true;
        }
        if (n == 0 && !is_hit)
            break;
    }
    if (p->is_ended && !p->first && !p->has_told && !is_shut(r, i, now)) {
        p->has_told = has_moved = true;
        shutdown(w->fd[1 - i], SHUT_WR);
    }
    return has_moved;
}

/* has_input: of each side. */
static bool serve(tt_relay *r, wire *w, const bool has_input[2], uint64_t now)
{
    bool has_moved = false;
    for (int i = 0; i < 2 && w; i++) {
        if (has_input[i])
            has_moved |= fill(r, w, i);
        has_moved |= empty(r, &w, i, now);
    }
    if (w && w->pipe[0].has_told && w->pipe[1].has_told)
        end_wire(r, w);
    return has_moved;
}

/* The doors, then both sides of each wire; those that are not to be read are
 * -1. Returns how many. */
static nfds_t list_fds(const tt_relay *r, struct pollfd *at, uint64_t now)
{
    nfds_t n = 0;
    for (uint32_t i = 0; i < r->n_doors; i++)
        at[n++].fd = is_down(r, now) ? -1 : r->doors[i].fd;
    for (const wire *w = r->wires; w && n + 2 <= MOST_FDS; w = w->next)
        for (int i = 0; i < 2; i++) {
            const pipe_way *p = &w->pipe[i];
            at[n++].fd = p->is_ended || p->held >= MOST_HELD ? -1 : w->fd[i];
        }
    for (nfds_t i = 0; i < n; i++)
        at[i].events = POLLIN;
    return n;
}

bool tt_relay_turn(tt_relay *r)
{
    const uint64_t now = tt_now_ns();
    struct pollfd fds[MOST_FDS];
    bool has_moved = false;
    const nfds_t n = list_fds(r, fds, now);
    if (poll(fds, n, 0) <= 0)
        for (nfds_t i = 0; i < n; i++)
            fds[i].revents = 0;
    nfds_t k = r->n_doors < n ? r->n_doors : n;
    wire *next, *w = r->wires; /* without those that begin now */
    for (nfds_t i = 0; i < k; i++) {
        int fd = fds[i].revents
                     ? accept4(r->doors[i].fd, NULL, NULL, SOCK_CLOEXEC)
                     : -1;
        has_moved |= fd >= 0;
        if (fd >= 0)
            begin_wire(r, &r->doors[i], fd);
    }
    for (; w && k + 2 <= n; w = next, k += 2) {
        const bool has_input[2] = {fds[k].revents, fds[k + 1].revents};
        next = w->next;
        has_moved |= serve(r, w, has_input, now);
    }
    return has_moved;
}

uint64_t tt_relay_next_ns(const tt_relay *r)
{
    const uint64_t now = tt_now_ns();
    uint64_t next = UINT64_MAX;
    for (const wire *w = r->wires; w; w = w->next)
        for (int i = 0; i < 2; i++) {
            const piece *one = w->pipe[i].first;
            if (one && !is_shut(r, i, now) && one->due_ns < next)
                next = one->due_ns;
        }
    return next;
}

void tt_relay_strike(tt_relay *r)
{
    atomic_store(&r->hit_ns, tt_now_ns());
}

uint64_t tt_relay_hit_ns(const tt_relay *r)
{
    return r->hit_ns;
}

uint64_t tt_relay_lost(const tt_relay *r)
{
    return r->lost;
}

/* ------------------------------------------------------------------ life -- */

static void *thread_main(void *arg)
{
    tt_relay *r = arg;
    const struct timespec nap = {.tv_nsec = 200 * 1000};
    while (!atomic_load(&r->stops))
        if (!tt_relay_turn(r))
            nanosleep(&nap, NULL);
    return NULL;
}

bool tt_relay_start(tt_relay *r)
{
    r->has_thread = pthread_create(&r->thread, NULL, thread_main, r) == 0;
    return r->has_thread;
}

tt_relay *tt_relay_open(const tt_relay_opts *o)
{
    tt_relay *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->o = *o;
    r->rng.state = o->seed;
    pthread_mutex_init(&r->lock, NULL);
    atomic_store(&the_relay, r);
    return r;
}

void tt_relay_close(tt_relay *r)
{
    if (!r)
        return;
    atomic_store(&the_relay, NULL);
    atomic_store(&r->stops, true);
    if (r->has_thread)
        pthread_join(r->thread, NULL);
    while (r->wires)
        end_wire(r, r->wires);
    for (uint32_t i = 0; i < r->n_doors; i++)
        close(r->doors[i].fd);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
