/* SPDX-License-Identifier: BSD-3-Clause
 * pass.c - streams that are passed on, where only neighbours reach each other.
 *
 * Idea       Who cannot dial another process dials one that can, or that knows
 *            one who can, and says in its greeting whom it means
 *            (TT_LINK_PASS). That one connects to the next, and from then on
 *            copies bytes both ways, whatever they are: the two ends greet each
 *            other through it, and where there is a trust they prove themselves
 *            to each other, and TLS goes from end to end. Who passes on has no
 *            key of theirs.
 * Book       A box knows hosts: their addresses, and how they are reached.
 *            Dials look there, so who dials need not know that somebody passes
 *            it on.
 * Who may    Whoever has come the one way in (link.h): it knows the listener's
 *            token and, where there is a trust, has proved itself. It is passed
 *            on only to hosts of the book.
 * Bounds     MOST_PASSED streams at a time; each has one buffer each way, and
 *            what does not fit stays with whoever sends. A connection onwards
 *            is tried once by each way, for ONWARDS_NS in all.
 * Circles    Each request has a number of its own, the same all along. A
 *            process takes one number once, and none that it has given itself.
 *            So a search asks each process once at most, and comes to an end.
 * Life       A stream ends when both directions have. A socket that fails has
 *            ended: the other end still gets what had come before, and then the
 *            end. For the ends that is an outage, and they look for another
 *            way, unless they have said that this was all. A box
 *            that closes waits for those that it passes on, for LINGER_NS: the
 *            two ends may be saying their last words.
 * Next       dial.c (who asks), guests.c (who hears it). */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/fork.h"
#include "base/log.h"
#include "link/inside.h"

#define MOST_PASSED 1024
#define BUF (64 << 10)
/* Of each socket, each way; the kernel takes twice that. So at most 576 KiB
 * each way are in a process that passes on; the ends keep that, and more
 * (resume.c). */
#define KERNEL_BUF (128 << 10)
/* Reads of a turn, of each side. */
#define TURN 4
#define ONWARDS_NS (8 * TT_NS_PER_S)
#define LINGER_NS (10 * TT_NS_PER_S)

typedef struct side {
    tt_link_node node;
    struct tt_link_passed *passed;
    int fd; /* -1: not connected */
    uint32_t events;
    bool has_ended; /* nothing more comes of it */
    bool is_shut;   /* nothing more goes to it */
    bool is_gone;   /* what goes to it is dropped */
    size_t at, n;   /* of buf: what has come, and must go to the other side */
    unsigned char *buf;
} side;

struct tt_link_passed {
    struct tt_link_passed *next;
    tt_link_box *box;
    tt_link_dial *dial; /* onwards; NULL: it has ended */
    tt_greet_pass said;
    side sides[2]; /* who asked, and whom it meant */
};

/* ----------------------------------------------------------------- book -- */

struct tt_link_book {
    uint32_t n, n_at, n_ways;
    tt_link_far *list;
    tt_addr *at;
    tt_link_way *ways;
};

static void free_book(const tt_mem *mem, struct tt_link_book *book)
{
    if (!book)
        return;
    tt_free(mem, book->list, book->n, sizeof(*book->list));
    tt_free(mem, book->at, book->n_at, sizeof(*book->at));
    tt_free(mem, book->ways, book->n_ways, sizeof(*book->ways));
    tt_free(mem, book, 1, sizeof(*book));
}

static struct tt_link_book *make_book(const tt_mem *mem,
                                      const tt_link_far *list, uint32_t n)
{
    struct tt_link_book *book = tt_new(mem, 1, sizeof(*book));
    if (!book)
        return NULL;
    book->n = n;
    for (uint32_t i = 0; i < n; i++) {
        book->n_at += list[i].n_at;
        book->n_ways += list[i].n_ways;
    }
    book->list = tt_new(mem, n, sizeof(*book->list));
    book->at = tt_new(mem, book->n_at, sizeof(*book->at));
    book->ways = tt_new(mem, book->n_ways, sizeof(*book->ways));
    if ((n > 0 && !book->list) || (book->n_at > 0 && !book->at) ||
        (book->n_ways > 0 && !book->ways)) {
        free_book(mem, book);
        return NULL;
    }
    tt_addr *at = book->at;
    tt_link_way *ways = book->ways;
    for (uint32_t i = 0; i < n; i++) {
        const tt_link_far *far = &list[i];
        if (far->n_at > 0)
            memcpy(at, far->at, far->n_at * sizeof(*at));
        if (far->n_ways > 0)
            memcpy(ways, far->ways, far->n_ways * sizeof(*ways));
        book->list[i] = *far;
        book->list[i].at = at;
        book->list[i].ways = ways;
        at += far->n_at;
        ways += far->n_ways;
    }
    return book;
}

tutti_err tt_link_book_set(tt_link_box *box, const tt_link_far *list,
                           uint32_t n)
{
    struct tt_link_book *book = make_book(box->mem, list, n), *was;
    if (!book)
        return TUTTI_ENOMEM;
    tt_link_lock(box->host);
    was = box->book;
    box->book = book;
    tt_link_unlock(box->host);
    free_book(box->mem, was);
    return TUTTI_OK;
}

void tt_link_free_book(tt_link_box *box)
{
    free_book(box->mem, box->book);
}

void tt_link_listener_pass(tt_link_listener *l)
{
    tt_link_lock(l->box->host);
    l->terms.purposes |= TT_LINK_FOR(TT_LINK_PASS);
    tt_link_unlock(l->box->host);
}

static bool is_straight(const tt_link_far *far)
{
    bool is = far->is_near;
    for (uint32_t i = 0; i < far->n_ways; i++)
        is |= !far->ways[i].is_via;
    return is;
}

/* The host of this address. Where two hosts have the same one, the one that is
 * reached without help. */
static const tt_link_far *find_in(const struct tt_link_book *book,
                                  const tt_addr *to)
{
    const tt_link_far *found = NULL;
    for (uint32_t i = 0; i < book->n; i++)
        for (uint32_t k = 0; k < book->list[i].n_at; k++) {
            const tt_link_far *far = &book->list[i];
            if (tt_addr_same_ip(&far->at[k], to) &&
                (!found || (!is_straight(found) && is_straight(far))))
                found = far;
        }
    return found;
}

static const tt_link_far *find(const tt_link_box *box, const tt_addr *to)
{
    const tt_link_far *far = NULL;
    if (to->u.sa.sa_family == AF_UNIX)
        return NULL;
    if (box->book)
        return find_in(box->book, to);
    for (const tt_link_box *b = box->host->boxes; b && !far; b = b->next)
        far = b->book ? find_in(b->book, to) : NULL;
    return far;
}

/* --------------------------------------------------------------- detours -- */

static void put_way(tt_link_dial *d, const tt_link_way *way, uint32_t origin,
                    const tt_addr *meant)
{
    const uint32_t at = d->o.n_ways++;
    d->ways[at] = *way;
    d->origins[at] = origin;
    d->meant[at] = *meant;
}

static void put_detours(tt_link_dial *d, const tt_link_far *far,
                        uint32_t origin, const tt_addr *meant)
{
    for (uint32_t i = 0; i < far->n_ways && d->o.n_ways < d->room; i++)
        if (far->ways[i].is_via)
            put_way(d, &far->ways[i], origin, meant);
}

/* All addresses of a host lead there alike, so one of them is enough. */
void tt_link_detour(tt_link_dial *d)
{
    tt_link_way ways[TT_LINK_WAYS];
    const tt_link_far *fars[TT_LINK_WAYS];
    const uint32_t n = d->o.n_ways, first = d->o.first;
    bool has_any = false;
    if (n > TT_LINK_WAYS || d->o.purpose == TT_LINK_PROBE)
        return;
    for (uint32_t i = 0; i < n; i++) {
        ways[i] = d->ways[i];
        fars[i] = ways[i].is_via ? NULL : find(d->box, &ways[i].to);
        has_any |= fars[i] != NULL;
    }
    if (!has_any)
        return;
    d->o.n_ways = 0;
    d->o.first = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (fars[i] && !is_straight(fars[i]) && fars[i]->n_ways > 0)
            continue;
        if (i == first)
            d->o.first = d->o.n_ways;
        put_way(d, &ways[i], i, &ways[i].to);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool is_again = false;
        for (uint32_t k = 0; k < i; k++)
            is_again |= fars[k] == fars[i];
        if (fars[i] && !is_again && (!fars[i]->is_near || d->o.is_again))
            put_detours(d, fars[i], i, &ways[i].to);
    }
    d->at = d->o.first;
}

/* ----------------------------------------------------------------- words -- */

tt_greet_pass tt_link_pass_to(const tt_addr *to)
{
    tt_greet_pass said = {.family = to->u.sa.sa_family == AF_INET ? 4 : 6};
    if (said.family == 4) {
        memcpy(said.ip, &to->u.v4.sin_addr, 4);
        said.port = ntohs(to->u.v4.sin_port);
    } else {
        memcpy(said.ip, &to->u.v6.sin6_addr, 16);
        said.port = ntohs(to->u.v6.sin6_port);
    }
    return said;
}

/* False: it makes no sense. */
static bool read_pass(const tt_greet_pass *said, tt_addr *to)
{
    if ((said->family != 4 && said->family != 6) || said->port == 0 ||
        said->number == 0)
        return false;
    tt_addr_of(said->family, said->ip, said->port, to);
    return true;
}

/* ------------------------------------------------------------------ end -- */

/* events: of epoll. */
static void watch(side *s, uint32_t events)
{
    if (events == s->events)
        return;
    tt_link_watch(s->passed->box->host, s->fd, &s->node, events,
                  s->events == 0);
    s->events = events;
}

/* It ends; its memory stays until the turn has ended. */
static void drop(tt_link_passed *p)
{
    tt_link_host *host = p->box->host;
    tt_link_passed **at = &host->passed;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    host->n_passed--;
    for (int i = 0; i < 2; i++) {
        side *s = &p->sides[i];
        if (s->fd >= 0) {
            watch(s, 0);
            tt_fork_close(&s->fd);
        }
        s->node.is_dead = true;
    }
    if (p->dial)
        tt_link_dial_bury(p->dial);
    p->dial = NULL;
    p->next = host->passed_grave;
    host->passed_grave = p;
}

static void free_passed(tt_link_passed *p)
{
    for (int i = 0; i < 2; i++)
        tt_free(&tt_mem_std, p->sides[i].buf, BUF, 1);
    tt_free(&tt_mem_std, p, 1, sizeof(*p));
}

void tt_link_bury_passed(tt_link_host *host)
{
    while (host->passed_grave) {
        tt_link_passed *p = host->passed_grave;
        host->passed_grave = p->next;
        free_passed(p);
    }
}

/* One of the box's; NULL: it passes nothing on. */
static tt_link_passed *any_of(const tt_link_box *box)
{
    tt_link_passed *p = box->host->passed;
    while (p && p->box != box)
        p = p->next;
    return p;
}

/* Those that lead nowhere yet: who asked looks for another way. */
static void drop_dialling(const tt_link_box *box)
{
    tt_link_passed *next;
    for (tt_link_passed *p = box->host->passed; p; p = next) {
        next = p->next;
        if (p->box == box && p->dial)
            drop(p);
    }
}

void tt_link_end_passed(tt_link_box *box)
{
    const struct timespec pause = {.tv_nsec = TT_NS_PER_MS};
    uint64_t until_ns = tt_now_ns() + LINGER_NS;
    tt_link_lock(box->host);
    box->is_closing = true;
    drop_dialling(box);
    while (any_of(box) && tt_now_ns() < until_ns) {
        tt_link_unlock(box->host);
        nanosleep(&pause, NULL);
        tt_link_lock(box->host);
    }
    for (tt_link_passed *p = any_of(box); p; p = any_of(box))
        drop(p);
    tt_link_unlock(box->host);
}

/* ---------------------------------------------------------------- bytes -- */

/* A socket that has failed gives and takes nothing more. */
static void move(side *from, side *to)
{
    for (int i = 0; i < TURN; i++) {
        if (from->n == 0 && !from->has_ended) {
            ssize_t got = recv(from->fd, from->buf, BUF, 0);
            if (got < 0 && (errno == EAGAIN || errno == EINTR))
                return;
            from->has_ended = got <= 0;
            from->at = 0;
            from->n = got > 0 ? (size_t)got : 0;
        }
        while (from->n > 0 && !to->is_gone) {
            ssize_t put = send(to->fd, from->buf + from->at, from->n,
                               MSG_NOSIGNAL);
            if (put < 0 && (errno == EAGAIN || errno == EINTR))
                return;
            to->is_gone = put < 0;
            from->at += put > 0 ? (size_t)put : 0;
            from->n -= put > 0 ? (size_t)put : 0;
        }
        if (to->is_gone)
            from->n = 0;
        if (from->has_ended) {
            if (!to->is_shut)
                shutdown(to->fd, SHUT_WR);
            to->is_shut = true;
            return;
        }
    }
}

static uint32_t events_of(const side *s, const side *other)
{
    uint32_t in = s->n == 0 && !s->has_ended ? EPOLLIN : 0;
    return in | (other->n > 0 ? EPOLLOUT : 0);
}

static void pass_on(tt_link_passed *p)
{
    side *a = &p->sides[0], *z = &p->sides[1];
    move(a, z);
    move(z, a);
    if (a->is_shut && z->is_shut) {
        drop(p);
        return;
    }
    watch(a, events_of(a, z));
    watch(z, events_of(z, a));
}

void tt_link_pass_event(tt_link_node *node)
{
    side *s = (side *)(void *)node;
    pass_on(s->passed);
}

/* ---------------------------------------------------------------- begin -- */

/* A silent host is noticed. */
static void tune(int fd)
{
    const int on = 1, idle_s = 10, each_s = 5, n = 4, user_ms = 60000,
              room = KERNEL_BUF;
    tt_sock_hurry(fd);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &each_s, sizeof(each_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof(n));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
}

void tt_link_pass_dialled(tt_link_passed *p, tt_link_event_kind kind,
                          tt_link_stream *s)
{
    if (kind != TT_LINK_DIALLED) {
        drop(p);
        return;
    }
    p->sides[1].fd = s->fd;
    s->fd = -1;
    tt_link_dial_bury(p->dial);
    p->dial = NULL;
    for (int i = 0; i < 2; i++)
        tune(p->sides[i].fd);
    pass_on(p);
}

static bool has_seen(const tt_link_box *box, uint64_t number)
{
    bool has = false;
    for (size_t i = 0; i < TT_LINK_SEEN; i++)
        has |= box->seen[i] == number;
    return has;
}

static bool may_reach(const tt_link_far *far, uint16_t port)
{
    return far && (far->port == 0 || far->port == port);
}

static bool is_full(const tt_link_host *host)
{
    return host->n_passed >= MOST_PASSED;
}

tt_link_why tt_link_pass_judge(tt_link_guest *g)
{
    const tt_link_listener *l = g->listener;
    tt_link_box *box = l->box;
    tt_greet_pass said;
    tt_addr to;
    memcpy(&said, g->hello.said, sizeof(said));
    if (is_full(box->host))
        return TT_LINK_FULL;
    if (box->is_closing || !read_pass(&said, &to) ||
        has_seen(box, said.number) ||
        tt_link_id_compare(&said.first, &l->terms.self) == 0 ||
        !may_reach(find(box, &to), said.port))
        return TT_LINK_NO_WAY;
    box->seen[box->n_seen++ % TT_LINK_SEEN] = said.number;
    return TT_LINK_WELL;
}

/* Straight ones first, and of these the one that was asked for; but for those
 * that lead back. */
static uint32_t ways_onwards(const tt_link_far *far, const tt_addr *to,
                             uint16_t port, const tt_link_id *asker,
                             const tt_link_id *first,
                             tt_link_way out[3 * TT_LINK_PASSES])
{
    uint32_t n = 0, n_of[3] = {0};
    for (uint32_t turn = 0; turn < 3; turn++)
        for (uint32_t i = 0; i < far->n_ways; i++) {
            tt_link_way way = far->ways[i];
            uint32_t kind = way.is_via                      ? 2
                            : !tt_addr_same_ip(&way.to, to) ? 1
                                                            : 0;
            if (kind != turn || n_of[kind] == TT_LINK_PASSES ||
                (way.is_via && (tt_link_id_compare(&way.via, asker) == 0 ||
                                tt_link_id_compare(&way.via, first) == 0)))
                continue;
            if (!way.is_via)
                tt_addr_set_port(&way.to, port);
            out[n++] = way;
            n_of[kind]++;
        }
    return n;
}

/* False: there is no way, or no memory. */
static bool dial_onwards(tt_link_passed *p, const tt_link_listener *l,
                         const tt_link_id *asker)
{
    tt_link_way ways[3 * TT_LINK_PASSES];
    tt_addr to;
    const tt_link_far *far = read_pass(&p->said, &to) ? find(p->box, &to)
                                                      : NULL;
    const tt_link_dial_opts o = {
        .self = l->terms.self,
        .job = l->terms.job,
        .trust = l->trust,
        .ways = ways,
        .n_ways = far ? ways_onwards(far, &to, p->said.port, asker,
                                     &p->said.first, ways)
                      : 0,
        .deadline_ns = tt_now_ns() + ONWARDS_NS,
        .try_ns = TT_NS_PER_S,
        .n_rounds = 1,
    };
    return o.n_ways > 0 &&
           tt_link_dial_onwards(p->box, &o, p, &p->said, &p->dial);
}

void tt_link_pass_begin(tt_link_guest *g)
{
    const tt_link_listener *l = g->listener;
    const tt_link_id asker = g->hello.from;
    tt_link_host *host = l->box->host;
    tt_link_event in;
    tt_link_guest_take(g, &in); /* its listener stays */
    /* Others may have begun since it was judged. */
    const bool may = !l->box->is_closing && !is_full(host);
    tt_link_passed *p = may ? tt_new(&tt_mem_std, 1, sizeof(*p)) : NULL;
    if (!p) {
        tt_link_stream_close(&in.stream);
        return;
    }
    p->box = l->box;
    memcpy(&p->said, in.who.said, sizeof(p->said));
    for (int i = 0; i < 2; i++)
        p->sides[i] = (side){.node.kind = TT_LINK_NODE_PASS,
                             .passed = p,
                             .fd = -1,
                             .buf = tt_new_raw(&tt_mem_std, BUF, 1)};
    p->sides[0].fd = in.stream.fd;
    p->next = host->passed;
    host->passed = p;
    host->n_passed++;
    if (!p->sides[0].buf || !p->sides[1].buf || !dial_onwards(p, l, &asker))
        drop(p);
}
