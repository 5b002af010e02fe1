/* SPDX-License-Identifier: BSD-3-Clause
 * tcp_meet.c - every pair of ranks gets one connection.
 *
 * Idea       The higher rank of a pair calls the lower one, on one of its
 *            addresses after the other, until one answers right. Everything
 *            is one poll loop without an order among peers: no rank waits for
 *            one peer while another waits for it, so there is no deadlock.
 * Handshake  HELLO  caller -> listener
 *            REPLY  listener -> caller
 *            DONE   caller -> listener  taken: this is the one
 *            Each carries the token of the side that hears it.
 *            A wrong host at the right address (private networks have equal
 *            addresses everywhere) does not know the token. An answer that
 *            comes too late is no harm: the caller has closed that try, and
 *            without DONE the listener forgets it.
 * Time       Each address gets FIRST_TRY_NS to connect, twice that in the next
 *            round and so on, and ANSWER_NS more to answer. A pair whose
 *            addresses have all refused for GIVE_UP_NS fails early; silence is
 *            waited for until the deadline.
 * Next       tcp_ways.c (which addresses, in which order), tcp.c. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "net/tcp.h"

#define FIRST_TRY_NS (100 * TT_NS_PER_MS)
#define MOST_DOUBLINGS 5
#define ANSWER_NS (1500 * TT_NS_PER_MS)
#define GIVE_UP_NS (3 * TT_NS_PER_S)
/* A pause after a refusal, before the same address is tried again. */
#define PAUSE_NS (50 * TT_NS_PER_MS)
/* How long to wait before looking whether all ranks still live. */
#define LOOK_MS 200
/* A stranger who connects is heard for so long. */
#define GUEST_NS (5 * TT_NS_PER_S)
/* Who is not called waits a little longer: the caller knows more, and calls
 * the start off. */
#define LATE_NS TT_NS_PER_S
#define GUESTS 64

#define WORD_MAGIC UINT32_C(0x63747474) /* "tttc" */
#define WORD_VERSION 2

typedef enum word_kind {
    WORD_HELLO = 1,
    WORD_REPLY = 2,
    WORD_DONE = 3
} word_kind;

/* What the two sides say to each other, little-endian as all. */
typedef struct word {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t from, to;           /* ranks */
    uint32_t strand, pad;        /* which socket of the pair */
    uint8_t token[TT_TCP_TOKEN]; /* of the side that hears this */
} word;
_Static_assert(sizeof(word) == 40, "a word of the handshake is 40 bytes");

/* A call to a lower rank. */
typedef struct call {
    uint32_t rank;
    bool is_done;
    int fd; /* -1: pausing */
    bool is_connected;
    uint32_t strand, n_strands;
    uint32_t n_ways, next, round;
    uint32_t first;            /* the way of the first strand */
    uint64_t until_ns;         /* of this try, or of the pause */
    uint64_t refused_since_ns; /* 0: some try was not refused */
    size_t got;
    word reply;
    int whys[TT_TCP_WAYS]; /* each one's last failure; 0: no answer */
    tt_tcp_way ways[TT_TCP_WAYS];
} call;

/* Somebody who has called us. */
typedef struct guest {
    int fd;
    word_kind expects; /* HELLO, then DONE */
    uint32_t rank, strand;
    uint64_t until_ns;
    size_t got;
    word heard;
} guest;

typedef struct meeting {
    tt_tcp_net *net;
    tt_conn *const *conns;
    const tt_tcp_card *cards; /* [n_ranks] */
    uint32_t n_calls, n_missing;
    call *calls; /* [n_ranks], the first n_calls are used */
    uint32_t n_guests;
    guest guests[GUESTS];
    struct pollfd *polls; /* listener, calls, guests */
    uint64_t deadline_ns;
    tutti_diag *diag;
} meeting;

/* -------------------------------------------------------------- sockets -- */

static void choose_congestion(int fd)
{
    if (!tt_sock_congestion(fd))
        TT_DEBUG("tcp: neither cubic nor reno may be chosen");
}

static void set_option(int fd, int level, int option, int value)
{
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0)
        TT_DEBUG("tcp: socket option %d of level %d: %s", option, level,
                 strerror(errno));
}

/* Little unsent data stays in the kernel, so that the engine's choice of what
 * goes next stays late. A silent host is probed after 10 s, and given up when
 * it has acknowledged nothing for user_ms. */
static void set_options(const tt_net *net, int fd)
{
    uint64_t user_ms = net->settings->timeout_ns / TT_NS_PER_MS;
    if (user_ms > 60000)
        user_ms = 60000;
    if (user_ms < 5000)
        user_ms = 5000;
    choose_congestion(fd);
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 64 * 1024);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)user_ms);
}

static int listen_at(uint16_t port, int backlog)
{
    tt_addr any = {.u.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)},
                   .len = sizeof(any.u.v6)};
    int fd = tt_sock_listen(&any, backlog);
    if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL)
        return fd;
    any = (tt_addr){.u.v4 = {.sin_family = AF_INET, .sin_port = htons(port)},
                    .len = sizeof(any.u.v4)};
    return tt_sock_listen(&any, backlog);
}

tutti_err tt_tcp_listen(tt_tcp_net *net, tutti_diag *diag)
{
    const tt_net *base = &net->base;
    uint16_t first;
    uint16_t last;
    if (!tt_ports_parse(base->settings->ports, &first, &last))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_PORT_RANGE is \"%.60s\"; expected ports such as "
                       "40000-40100",
                       base->settings->ports);
    int backlog = base->n_ranks < 128 ? 128 : (int)base->n_ranks;
    int fd = -1;
    for (uint32_t port = first; port <= last; port++) {
        fd = listen_at((uint16_t)port, backlog);
        if (fd != -EADDRINUSE)
            break;
    }
    if (fd < 0 && first > 0)
        return tt_fail_errno(diag, TUTTI_ESYS, -fd,
                             "no port of TUTTI_PORT_RANGE %u-%u to listen on",
                             first, last);
    if (fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, -fd, "cannot listen");
    net->listener = fd;
    tt_fork_watch(fd);
    /* Accepted sockets inherit it, from their first packet on. */
    choose_congestion(fd);
    if (getrandom(net->card.token, TT_TCP_TOKEN, 0) != TT_TCP_TOKEN)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "getrandom");
    return tt_tcp_card_fill(&net->card, base, tt_sock_port(fd), diag);
}

/* ---------------------------------------------------------- both sides -- */

/* A socket that is new has room for 40 bytes: a short write is a failure. */
static bool say(const meeting *m, int fd, word_kind kind, uint32_t to,
                uint32_t strand)
{
    word w = {.magic = WORD_MAGIC,
              .version = WORD_VERSION,
              .kind = (uint16_t)kind,
              .from = m->net->base.rank,
              .to = to,
              .strand = strand};
    memcpy(w.token, m->cards[to].token, sizeof(w.token));
    return send(fd, &w, sizeof(w), MSG_NOSIGNAL) == sizeof(w);
}

/* 1: the word is whole; 0: not yet; -1: the connection has ended. */
static int hear(int fd, word *w, size_t *got)
{
    ssize_t n = recv(fd, (char *)w + *got, sizeof(*w) - *got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        errno = n == 0 ? 0 : errno;
        return -1;
    }
    *got += (size_t)n;
    return *got == sizeof(*w);
}

static bool is_right(const meeting *m, const word *w, word_kind kind)
{
    const tt_net *net = &m->net->base;
    return w->magic == WORD_MAGIC && w->version == WORD_VERSION &&
           w->kind == kind && w->to == net->rank && w->from < net->n_ranks &&
           m->conns[w->from] &&
           memcmp(w->token, m->net->card.token, TT_TCP_TOKEN) == 0;
}

/* way: NULL where the other side chose it. */
static void settle(meeting *m, const word *w, int fd, const tt_tcp_way *way)
{
    uint32_t rank = w->from;
    tt_tcp_conn *conn = (tt_tcp_conn *)m->conns[rank];
    tt_tcp_strand *strand = &conn->strands[w->strand];
    set_options(&m->net->base, fd);
    strand->fd = fd;
    strand->is_open = true;
    tt_fork_watch(fd);
    char where[TT_SOCK_TEXT];
    tt_sock_peer_text(fd, where);
    if (w->strand == 0)
        memcpy(conn->where, where, sizeof(where));
    m->n_missing -= ++conn->n_open == conn->n_strands;
    if (!way)
        TT_DEBUG("tcp: peer %u at %s, by its choice", rank, where);
    else
        TT_DEBUG("tcp: peer %u at %s, %s%s", rank, where,
                 way->is_routed ? "by a route" : "on ",
                 way->is_routed ? ""
                 : way->dev[0]  ? way->dev
                                : "this host");
}

/* -------------------------------------------------------------- calling -- */

/* This try is over; the next one is for the next address. */
static void drop_call(call *c, int why)
{
    uint64_t now = tt_now_ns();
    uint32_t at = c->next;
    close(c->fd);
    c->fd = -1;
    c->whys[at] = why;
    c->next = (c->next + 1) % c->n_ways;
    c->round += c->next == 0;
    if (why == 0 && !c->ways[at].is_guess)
        c->refused_since_ns = 0;
    else if (c->refused_since_ns == 0)
        c->refused_since_ns = now;
    c->until_ns = c->next == 0 ? now + PAUSE_NS : now;
}

/* From the address of the interface that was chosen. The port is found when
 * both ends are known, so that ports do not run short. */
static int bind_call(int fd, const tt_tcp_end *from)
{
    int on = 1;
    bool is_v4 = from->sa.sa_family == AF_INET;
    if (from->sa.sa_family == AF_UNSPEC)
        return 0;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    return bind(fd, &from->sa, is_v4 ? sizeof(from->v4) : sizeof(from->v6)) == 0
               ? 0
               : errno;
}

/* The socket of one of several rails goes by its interface whatever the routes
 * say, and at both ends. Kernels before 5.7 let only root do that; there the
 * addresses alone must lead the right way. */
static int bind_rail(const meeting *m, int fd, uint32_t rank)
{
    const tt_net *net = &m->net->base;
    const tt_net_hint *hint = net->hints ? &net->hints[rank] : NULL;
    if (!hint || !hint->is_rail || !hint->dev)
        return 0;
    int rc = setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, hint->dev,
                        (socklen_t)strlen(hint->dev));
    return rc == 0 || errno == EPERM ? 0 : errno;
}

static void start_call(const meeting *m, call *c)
{
    const tt_tcp_way *way = &c->ways[c->next];
    const tt_tcp_end *to = &way->to;
    bool is_v4 = to->sa.sa_family == AF_INET;
    uint32_t doublings = c->round < MOST_DOUBLINGS ? c->round : MOST_DOUBLINGS;
    c->until_ns = tt_now_ns() + (FIRST_TRY_NS << doublings);
    c->is_connected = false;
    c->got = 0;
    c->fd = tt_sock_new(to->sa.sa_family);
    if (c->fd < 0) {
        drop_call(c, -c->fd); /* no IPv6 here, say */
        return;
    }
    set_options(&m->net->base, c->fd);
    int why = bind_rail(m, c->fd, c->rank);
    if (why == 0)
        why = bind_call(c->fd, &way->from);
    if (why == 0 &&
        connect(c->fd, &to->sa, is_v4 ? sizeof(to->v4) : sizeof(to->v6)) != 0)
        why = errno;
    if (why != 0 && why != EINPROGRESS && why != EINTR)
        drop_call(c, why);
}

/* The connection stands: the next thing to wait for is the reply. */
static void greet(const meeting *m, call *c)
{
    int why = 0;
    socklen_t len = sizeof(why);
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &len) != 0)
        why = errno;
    if (why == 0 && !say(m, c->fd, WORD_HELLO, c->rank, c->strand))
        why = errno;
    if (why != 0) {
        drop_call(c, why);
        return;
    }
    c->is_connected = true;
    /* The other side answers when it gets round to it. */
    c->until_ns += ANSWER_NS;
}

/* One socket stands: the next one. */
static void next_strand(call *c)
{
    c->fd = -1;
    if (c->strand == 0)
        c->first = c->next;
    c->is_done = ++c->strand == c->n_strands;
    c->next = tt_tcp_way_of(c->ways, c->n_ways, c->first, c->strand);
    c->round = 0;
    c->refused_since_ns = c->until_ns = 0;
}

static void serve_call(meeting *m, call *c, const struct pollfd *p)
{
    if (c->fd < 0) {
        /* Where there is no route the next one's turn comes at once. */
        for (uint32_t i = 0;
             i < c->n_ways && c->fd < 0 && tt_now_ns() >= c->until_ns; i++)
            start_call(m, c);
        return;
    }
    if (p->fd == c->fd && p->revents != 0 && !c->is_connected) {
        greet(m, c);
        return;
    }
    int heard = 0;
    if (p->fd == c->fd && p->revents != 0)
        heard = hear(c->fd, &c->reply, &c->got);
    if (heard < 0 || (heard > 0 && (!is_right(m, &c->reply, WORD_REPLY) ||
                                    c->reply.from != c->rank ||
                                    c->reply.strand != c->strand))) {
        drop_call(c, heard < 0 && errno ? errno : ECONNREFUSED);
    } else if (heard > 0) {
        if (!say(m, c->fd, WORD_DONE, c->rank, c->strand)) {
            drop_call(c, errno);
            return;
        }
        settle(m, &c->reply, c->fd, &c->ways[c->next]);
        next_strand(c);
    } else if (tt_now_ns() >= c->until_ns) {
        drop_call(c, 0);
    }
}

/* ------------------------------------------------------------ listening -- */

/* When all places are taken, the stranger who has been silent for longest
 * goes; ours speak at once. */
static bool make_room(meeting *m)
{
    guest *oldest = NULL;
    if (m->n_guests < GUESTS)
        return true;
    for (uint32_t i = 0; i < m->n_guests; i++) {
        guest *g = &m->guests[i];
        if (g->rank == TT_NONE && (!oldest || g->until_ns < oldest->until_ns))
            oldest = g;
    }
    if (!oldest)
        return false;
    close(oldest->fd);
    *oldest = m->guests[--m->n_guests];
    return true;
}

static void accept_guests(meeting *m)
{
    /* Not without end: others are served in between. */
    for (int n = 0; n < GUESTS && make_room(m); n++) {
        int fd = tt_sock_accept(m->net->listener);
        if (fd < 0)
            return;
        m->guests[m->n_guests++] = (guest){.fd = fd,
                                           .expects = WORD_HELLO,
                                           .rank = TT_NONE,
                                           .until_ns = tt_now_ns() + GUEST_NS};
    }
}

/* Only higher ranks call, and only once for each strand. */
static bool is_expected(const meeting *m, const guest *g)
{
    const word *w = &g->heard;
    const tt_tcp_conn *conn = (const tt_tcp_conn *)m->conns[w->from];
    return w->from > m->net->base.rank && w->strand < conn->n_strands &&
           !conn->strands[w->strand].is_open &&
           (g->expects == WORD_HELLO ||
            (w->from == g->rank && w->strand == g->strand));
}

/* True when the guest goes: settled, or sent away. */
static bool serve_guest(meeting *m, guest *g)
{
    int heard = hear(g->fd, &g->heard, &g->got);
    if (heard == 0)
        return false;
    if (heard < 0 || !is_right(m, &g->heard, g->expects) ||
        !is_expected(m, g)) {
        close(g->fd);
        return true;
    }
    g->got = 0;
    g->rank = g->heard.from;
    g->strand = g->heard.strand;
    if (g->expects == WORD_DONE) {
        settle(m, &g->heard, g->fd, NULL);
        return true;
    }
    g->expects = WORD_DONE;
    g->until_ns = m->deadline_ns; /* it is one of us */
    if (bind_rail(m, g->fd, g->rank) == 0 &&
        say(m, g->fd, WORD_REPLY, g->rank, g->strand))
        return false;
    close(g->fd);
    return true;
}

static void serve_guests(meeting *m, const struct pollfd *polls)
{
    uint64_t now = tt_now_ns();
    /* From the end, because the last one moves into a free place. */
    for (uint32_t i = m->n_guests; i-- > 0;) {
        guest *g = &m->guests[i];
        bool is_gone = polls[i].revents != 0 && serve_guest(m, g);
        if (!is_gone && now >= g->until_ns) {
            close(g->fd);
            is_gone = true;
        }
        if (is_gone)
            m->guests[i] = m->guests[--m->n_guests];
    }
}

/* --------------------------------------------------------------- errors -- */

/* "10.0.0.5:4000 (Connection refused), 10.9.0.5:4000 (no answer) and 2 more" */
static void tell_tries(const call *c, char *out, size_t size)
{
    size_t used = 0;
    uint32_t n_more = 0;
    char text[TT_SOCK_TEXT], last[TT_SOCK_TEXT] = "";
    for (uint32_t i = 0; i < c->n_ways; i++) {
        tt_tcp_end_text(&c->ways[i].to, text);
        /* The same one from another address of ours. */
        bool is_again = strcmp(text, last) == 0;
        n_more += !is_again && used + 130 > size;
        if (is_again || n_more > 0)
            continue;
        int why = c->whys[i];
        used += (size_t)snprintf(out + used, size - used, "%s%.60s (%.40s)",
                                 i ? ", " : "", text,
                                 why ? strerror(why) : "no answer");
        memcpy(last, text, sizeof(last));
    }
    if (n_more > 0)
        snprintf(out + used, size - used, " and %u more", n_more);
}

static const char no_answer[] =
    "is a firewall between, or the wrong interface chosen "
    "(TUTTI_SOCKET_IFNAME)?";
static const char no_network[] =
    "they have no network in common, so both need a route, and what is "
    "between must forward (hosts: net.ipv4.ip_forward=1)";

/* "rank 3 cannot reach rank 1: tried 10.0.0.5:4000 (Connection refused); is a
 * firewall ...": the first one of them, and how many others. */
static tutti_err fail_calls(const meeting *m, bool is_late)
{
    const call *first = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_calls; i++) {
        const call *c = &m->calls[i];
        if (c->is_done || (!is_late && c->refused_since_ns == 0))
            continue;
        first = n++ ? first : c;
    }
    bool is_routed = true;
    for (uint32_t i = 0; i < first->n_ways; i++)
        is_routed &= first->ways[i].is_routed || first->ways[i].is_guess;
    char tries[240], others[40] = "";
    tell_tries(first, tries, sizeof(tries));
    if (n > 1)
        snprintf(others, sizeof(others), " and %u other rank%s", n - 1,
                 n > 2 ? "s" : "");
    return tt_fail(m->diag, TUTTI_ENET,
                   "rank %u cannot reach rank %u%s: tried %s; %s",
                   m->net->base.rank, first->rank, others, tries,
                   is_routed ? no_network : no_answer);
}

/* OK: not yet. */
static tutti_err check_time(const meeting *m, uint64_t now)
{
    if (now < m->deadline_ns)
        return TUTTI_OK;
    for (uint32_t i = 0; i < m->n_calls; i++) {
        if (!m->calls[i].is_done)
            return fail_calls(m, true);
    }
    if (now < m->deadline_ns + LATE_NS)
        return TUTTI_OK;
    char list[120];
    size_t used = 0;
    const tt_net *net = &m->net->base;
    for (uint32_t r = net->rank + 1; r < net->n_ranks; r++) {
        const tt_tcp_conn *conn = (const tt_tcp_conn *)m->conns[r];
        if (conn && conn->n_open < conn->n_strands && used + 20 < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u",
                                     used ? ", " : "", r);
    }
    return tt_fail(m->diag, TUTTI_ETIMEOUT,
                   "rank %s did not connect to rank %u (port %u) in time; is "
                   "a firewall between, or the wrong interface chosen "
                   "(TUTTI_SOCKET_IFNAME)?",
                   list, net->rank, tt_sock_port(m->net->listener));
}

/* ------------------------------------------------------------- the loop -- */

static uint64_t fill_polls(meeting *m)
{
    uint64_t wake = tt_now_ns() + LOOK_MS * TT_NS_PER_MS;
    if (m->deadline_ns < wake && tt_now_ns() < m->deadline_ns)
        wake = m->deadline_ns;
    m->polls[0] = (struct pollfd){.fd = m->net->listener, .events = POLLIN};
    struct pollfd *p = m->polls + 1;
    for (uint32_t i = 0; i < m->n_calls; i++, p++) {
        const call *c = &m->calls[i];
        *p = (struct pollfd){.fd = c->fd,
                             .events = c->is_connected ? POLLIN : POLLOUT};
        if (!c->is_done && c->until_ns < wake)
            wake = c->until_ns;
    }
    for (uint32_t i = 0; i < m->n_guests; i++, p++) {
        *p = (struct pollfd){.fd = m->guests[i].fd, .events = POLLIN};
        if (m->guests[i].until_ns < wake)
            wake = m->guests[i].until_ns;
    }
    return wake;
}

static tutti_err run(meeting *m)
{
    uint64_t look_ns = tt_now_ns() + LOOK_MS * TT_NS_PER_MS;
    while (m->n_missing > 0) {
        uint64_t wake = fill_polls(m);
        uint32_t n_polls = 1 + m->n_calls + m->n_guests;
        int n = poll(m->polls, n_polls, tt_poll_ms(wake, LOOK_MS));
        if (n < 0 && errno != EINTR)
            return tt_fail_errno(m->diag, TUTTI_ESYS, errno, "poll");
        if (n < 0)
            continue;
        const tt_net *net = &m->net->base;
        uint64_t now = tt_now_ns();
        if (net->is_well && now >= look_ns) {
            if (!net->is_well(net->is_well_arg, m->diag))
                return TUTTI_EPEER;
            look_ns = now + LOOK_MS * TT_NS_PER_MS;
        }
        serve_guests(m, m->polls + 1 + m->n_calls);
        for (uint32_t i = 0; i < m->n_calls; i++) {
            call *c = &m->calls[i];
            if (!c->is_done)
                serve_call(m, c, &m->polls[1 + i]);
            if (!c->is_done && c->refused_since_ns != 0 &&
                now > c->refused_since_ns + GIVE_UP_NS)
                return fail_calls(m, false);
        }
        if (m->polls[0].revents != 0)
            accept_guests(m);
        tutti_err err = m->n_missing > 0 ? check_time(m, now) : TUTTI_OK;
        if (err)
            return err;
    }
    return TUTTI_OK;
}

static tutti_err add_call(meeting *m, const tt_tcp_here *here, uint32_t rank)
{
    const tt_net *net = &m->net->base;
    const tt_net_hint *hint = net->hints ? &net->hints[rank] : NULL;
    call *c = &m->calls[m->n_calls];
    *c = (call){.rank = rank,
                .fd = -1,
                .n_strands = ((tt_tcp_conn *)m->conns[rank])->n_strands};
    size_t n = tt_tcp_ways(here, &m->cards[rank], hint, c->ways);
    if (n == 0 && hint && (hint->dev || hint->far_dev))
        return tt_fail(m->diag, TUTTI_ENET,
                       "TUTTI_TOPOLOGY says that rank %u reaches rank %u from "
                       "interface %.15s at interface %.15s; they are not up, "
                       "not allowed (TUTTI_SOCKET_IFNAME) or have no address",
                       net->rank, rank, hint->dev ? hint->dev : "(any)",
                       hint->far_dev ? hint->far_dev : "(any)");
    if (n == 0)
        return tt_fail(m->diag, TUTTI_ENET,
                       "rank %u tells no address that rank %u could reach: "
                       "they are those of loopback or of rank %u's own host, "
                       "and it is on another host",
                       rank, net->rank, net->rank);
    c->n_ways = (uint32_t)n;
    m->n_calls++;
    return TUTTI_OK;
}

static tutti_err prepare(meeting *m, tt_tcp_card *cards,
                         const void *const *addrs, const size_t *addr_lens)
{
    const tt_net *net = &m->net->base;
    tt_iface own[TT_TCP_OWN];
    tt_tcp_here here = {.card = &m->net->card,
                        .filter = net->settings->interfaces,
                        .ifaces = own,
                        .n_ifaces = tt_ifaces_list("", own, TT_TCP_OWN)};
    for (uint32_t r = 0; r < net->n_ranks; r++) {
        if (!m->conns[r])
            continue;
        m->n_missing++;
        if (!tt_tcp_card_read(&cards[r], addrs[r], addr_lens[r]) ||
            cards[r].rank != r)
            return tt_fail(m->diag, TUTTI_EPROTO,
                           "rank %u told addresses that make no sense (%zu "
                           "bytes); do all ranks use the same Tutti?",
                           r, addr_lens[r]);
        tutti_err err = TUTTI_OK;
        if (r < net->rank)
            err = add_call(m, &here, r);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

tutti_err tt_tcp_meet(tt_tcp_net *net, tt_conn *const *conns,
                      const void *const *addrs, const size_t *addr_lens,
                      uint64_t deadline_ns, tutti_diag *diag)
{
    const tt_mem *mem = net->base.mem;
    uint32_t n_ranks = net->base.n_ranks;
    size_t n_polls = 1 + (size_t)n_ranks + GUESTS;
    tutti_err err = TUTTI_ENOMEM;
    meeting *m = tt_new(mem, 1, sizeof(*m));
    tt_tcp_card *cards = tt_new(mem, n_ranks, sizeof(*cards));
    call *calls = tt_new(mem, n_ranks, sizeof(*calls));
    struct pollfd *polls = tt_new(mem, n_polls, sizeof(*polls));
    if (!m || !cards || !calls || !polls) {
        tt_fail(diag, err, "out of memory for %u connections", n_ranks);
        goto out;
    }
    *m = (meeting){.net = net,
                   .conns = conns,
                   .cards = cards,
                   .calls = calls,
                   .polls = polls,
                   .deadline_ns = deadline_ns,
                   .diag = diag};
    err = prepare(m, cards, addrs, addr_lens);
    if (!err)
        err = run(m);
    for (uint32_t i = 0; i < m->n_calls; i++) {
        if (calls[i].fd >= 0)
            close(calls[i].fd);
    }
    for (uint32_t i = 0; i < m->n_guests; i++)
        close(m->guests[i].fd);
out:
    tt_free(mem, polls, n_polls, sizeof(*polls));
    tt_free(mem, calls, n_ranks, sizeof(*calls));
    tt_free(mem, cards, n_ranks, sizeof(*cards));
    tt_free(mem, m, 1, sizeof(*m));
    return err;
}
