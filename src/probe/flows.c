/* SPDX-License-Identifier: BSD-3-Clause
 * flows.c - one agent's ends of the flows of a round.
 *
 * Idea       Senders write as much as goes, receivers read and take the time.
 *            All agents have connected before any begins, and all go on until
 *            the last has measured, so that each rate is that under the load
 *            of all.
 * Window     A receiver lets only so much be on the way (TCP_WINDOW_CLAMP):
 *            enough to fill the path, but not the queues of switches. Then
 *            nothing is dropped, flows that share a link share it evenly, and
 *            the next round finds the queues empty. Senders use reno: its slow
 *            start goes on until the window is full, while cubic's ends when
 *            latency begins to grow, at another window for each flow.
 * Time       of an arrival is when the kernel had it (SO_TIMESTAMPNS), not when
 *            this process came to run.
 * Next       meter.c, probe_rounds.c. */
#include <errno.h>
#include <linux/tcp.h>
#include <poll.h>
#include <string.h>

#include "probe/parts.h"

/* One SYN may be lost. */
#define SETUP_NS (1300 * TT_NS_PER_MS)
/* Senders go on for so long when receivers have measured. */
#define TAIL_NS (10 * TT_NS_PER_MS)
#define PIECE (64u << 10) /* the largest */
#define PIECES 8          /* in one turn of a flow */
/* Windows that a buffer of fixed size can have on every system. */
#define FIXED (320 << 10)
/* Connections that have not said yet what they are. */
#define GUESTS 32

typedef enum role { FREE, CALLER, SENDER, GUEST, RECEIVER } role;

typedef struct end {
    role role;
    int fd;
    uint32_t flow;
    uint32_t ear; /* GUEST: the listener */
    size_t got;
    tt_wire_word word;
    bool is_timed,
        has_stamps; /* the meter's clock is set; it is the kernel's */
    tt_meter meter;
} end;

struct tt_traffic {
    const tt_probe *p;
    const tt_probe_round *round;
    const tt_probe_flow *flows;
    tt_infer_rate *rates;
    uint32_t n_missing; /* ends */
    uint32_t n_ends;    /* places for them */
    end *ends;
    struct pollfd *polls; /* of ends, then of listeners */
    char *piece;
    uint64_t begin_ns, begin_real_ns;
};

static uint32_t from_host(const tt_traffic *f, uint32_t i)
{
    return f->p->place_host[f->p->tries[f->flows[i].number].src];
}

static uint32_t to_host(const tt_traffic *f, uint32_t i)
{
    return f->p->place_host[f->p->tries[f->flows[i].number].dst];
}

static void drop(end *e)
{
    tt_wire_cut(e->fd);
    e->role = FREE;
    e->fd = -1;
}

static end *free_end(tt_traffic *f)
{
    for (uint32_t i = 0; i < f->n_ends; i++) {
        if (f->ends[i].role == FREE)
            return &f->ends[i];
    }
    return NULL;
}

/* ----------------------------------------------------------- connecting -- */

static void set_option(int fd, int level, int option, int value)
{
    /* What is refused only makes the measure a little worse. */
    setsockopt(fd, level, option, &value, sizeof(value));
}

static void begin_calls(tt_traffic *f)
{
    for (uint32_t i = 0; i < f->round->n_flows; i++) {
        f->n_missing += to_host(f, i) == f->p->me;
        if (from_host(f, i) != f->p->me)
            continue;
        int fd = tt_wire_call(f->p, f->flows[i].number, f->flows[i].is_free);
        end *e = free_end(f);
        if (fd < 0 || !e) {
            tt_wire_cut(fd);
            continue;
        }
        *e = (end){.role = CALLER, .fd = fd, .flow = i};
        f->n_missing++;
    }
}

static void greet(tt_traffic *f, end *e)
{
    f->n_missing--;
    if (tt_wire_outcome(e->fd) != 0 ||
        !tt_wire_say(f->p, e->fd, TT_WIRE_FLOW, e->flow, f->round->number,
                     to_host(f, e->flow))) {
        drop(e);
        return;
    }
    set_option(e->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 2 * PIECE);
    e->role = SENDER;
}

/* Is this flow expected, and not there yet? */
static bool is_expected(const tt_traffic *f, const end *g)
{
    const tt_wire_word *w = &g->word;
    if (w->kind != TT_WIRE_FLOW || w->round != f->round->number ||
        w->number >= f->round->n_flows ||
        !tt_wire_is_right(f->p, w, f->flows[w->number].number, g->ear))
        return false;
    for (uint32_t i = 0; i < f->n_ends; i++) {
        if (f->ends[i].role == RECEIVER && f->ends[i].flow == w->number)
            return false;
    }
    return true;
}

static void hear(tt_traffic *f, end *g)
{
    int how = tt_wire_hear(f->p, g->fd, &g->word, &g->got);
    if (how == 0)
        return;
    if (how < 0 || !is_expected(f, g)) {
        drop(g);
        return;
    }
    g->role = RECEIVER;
    g->flow = g->word.number;
    if (f->flows[g->flow].window_bytes <= FIXED) /* else it grows as it will */
        set_option(g->fd, SOL_SOCKET, SO_RCVBUF, FIXED);
    set_option(g->fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    f->n_missing--;
}

static void accept_guests(tt_traffic *f)
{
    for (uint32_t ear = 0; ear <= f->p->n_ears; ear++) {
        for (end *e = free_end(f); e; e = free_end(f)) {
            int fd = tt_sock_accept(f->p->ears[ear]);
            if (fd < 0)
                break;
            *e = (end){.role = GUEST, .fd = fd, .ear = ear};
            hear(f, e);
        }
    }
}

static int wait_for(tt_traffic *f, bool is_running, uint64_t until_ns)
{
    static const short events[] = {[CALLER] = POLLOUT,
                                   [SENDER] = POLLOUT,
                                   [GUEST] = POLLIN,
                                   [RECEIVER] = POLLIN};
    uint32_t n = f->n_ends;
    for (uint32_t i = 0; i < n; i++) {
        const end *e = &f->ends[i];
        bool is_idle = e->role == FREE ||
                       (!is_running &&
                        (e->role == SENDER || e->role == RECEIVER));
        f->polls[i] = (struct pollfd){.fd = is_idle ? -1 : e->fd,
                                      .events = events[e->role]};
    }
    for (uint32_t i = 0; !is_running && i <= f->p->n_ears; i++)
        f->polls[n++] = (struct pollfd){.fd = f->p->ears[i], .events = POLLIN};
    int got = poll(f->polls, n, tt_poll_ms(until_ns, 1000));
    return got < 0 && errno == EINTR ? 0 : got;
}

tutti_err tt_traffic_connect(tt_traffic *f, tutti_diag *diag)
{
    uint64_t deadline_ns = tt_now_ns() + SETUP_NS;
    begin_calls(f);
    while (f->n_missing > 0 && tt_now_ns() < deadline_ns) {
        tt_probe_alive(f->p);
        int got = wait_for(f, false, deadline_ns);
        if (got < 0)
            return tt_fail_errno(diag, TUTTI_ESYS, errno, "poll");
        for (uint32_t i = 0; i < f->n_ends; i++) {
            end *e = &f->ends[i];
            if (!f->polls[i].revents || f->polls[i].fd != e->fd)
                continue;
            if (e->role == CALLER)
                greet(f, e);
            else if (e->role == GUEST)
                hear(f, e);
        }
        accept_guests(f);
    }
    for (uint32_t i = 0; i < f->n_ends; i++) {
        if (f->ends[i].role == CALLER || f->ends[i].role == GUEST)
            drop(&f->ends[i]);
    }
    return TUTTI_OK;
}

/* -------------------------------------------------------------- running -- */

static uint64_t real_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * TT_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* False: the flow has ended before its time. A slow link would carry a few large
 * pieces only, so the kernel must not make larger ones (EOR). */
static bool put(const tt_traffic *f, end *e)
{
    uint32_t piece = f->flows[e->flow].piece_bytes;
    piece = piece > 0 && piece < PIECE ? piece : PIECE;
    int flags = MSG_NOSIGNAL | (piece < PIECE ? MSG_EOR : 0);
    for (int i = 0; i < PIECES; i++) {
        ssize_t n = send(e->fd, f->piece, piece, flags);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
    }
    return true;
}

/* When the kernel had the last of it; 0: it does not say. */
static uint64_t stamp_of(struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        struct timespec ts;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&ts, CMSG_DATA(c), sizeof(ts));
        return (uint64_t)ts.tv_sec * TT_NS_PER_S + (uint64_t)ts.tv_nsec;
    }
    return 0;
}

static void count(const tt_traffic *f, end *e, uint64_t n, uint64_t stamp_ns)
{
    if (!e->is_timed) {
        uint64_t now = stamp_ns ? stamp_ns : tt_now_ns();
        uint64_t begin = stamp_ns ? f->begin_real_ns : f->begin_ns;
        uint64_t warm = f->round->warm_us * TT_NS_PER_US;
        uint64_t last = begin + warm + f->round->measure_us * TT_NS_PER_US;
        /* All end together; who began late warms up later. */
        warm += now > begin ? now : begin;
        e->meter = (tt_meter){.warm_ns = warm, .end_ns = last};
        e->is_timed = true;
        e->has_stamps = stamp_ns != 0;
    }
    if (e->has_stamps && stamp_ns == 0)
        e->meter.bytes += n; /* the next arrival has its time */
    else
        tt_meter_add(&e->meter, n, e->has_stamps ? stamp_ns : tt_now_ns());
}

static bool take(const tt_traffic *f, end *e)
{
    /* The kernel forgets it when it learns how large packets are. */
    set_option(e->fd, IPPROTO_TCP, TCP_WINDOW_CLAMP,
               (int)f->flows[e->flow].window_bytes);
    for (int i = 0; i < PIECES; i++) {
        union {
            struct cmsghdr align;
            char bytes[256];
        } control;
        struct iovec part = {f->piece, PIECE};
        struct msghdr m = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof(control)};
        /* TRUNC: nothing is copied. */
        ssize_t n = recvmsg(e->fd, &m, MSG_TRUNC);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0)
            return false;
        count(f, e, (uint64_t)n, stamp_of(&m));
    }
    return true;
}

static void measure(const tt_traffic *f, const end *e)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    memset(&info, 0, sizeof(info));
    getsockopt(e->fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    const tt_probe *p = f->p;
    uint32_t place = p->tries[f->flows[e->flow].number].dst;
    double bits =
        8 * tt_meter_overhead(info.tcpi_rcv_mss, p->places[place].family == 6,
                              info.tcpi_options & TCPI_OPT_TIMESTAMPS);
    f->rates[e->flow] = (tt_infer_rate){bits * tt_meter_rate(&e->meter),
                                        bits * tt_meter_mean(&e->meter)};
}

tutti_err tt_traffic_run(tt_traffic *f, tutti_diag *diag)
{
    f->begin_ns = tt_now_ns();
    f->begin_real_ns = real_now_ns();
    uint64_t end_ns = f->begin_ns + TAIL_NS +
                      (f->round->warm_us + f->round->measure_us) * TT_NS_PER_US;
    while (tt_now_ns() < end_ns) {
        tt_probe_alive(f->p);
        if (wait_for(f, true, end_ns) < 0)
            return tt_fail_errno(diag, TUTTI_ESYS, errno, "poll");
        for (uint32_t i = 0; i < f->n_ends; i++) {
            end *e = &f->ends[i];
            if (!f->polls[i].revents)
                continue;
            if (e->role == SENDER ? put(f, e) : take(f, e))
                continue;
            if (e->role == RECEIVER) /* its sender was ahead of us */
                measure(f, e);
            drop(e);
        }
    }
    for (uint32_t i = 0; i < f->n_ends; i++) {
        if (f->ends[i].role == RECEIVER)
            measure(f, &f->ends[i]);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------- opening, closing -- */

tt_traffic *tt_traffic_open(const tt_probe *p, const tt_probe_round *round,
                            const tt_probe_flow *flows, tt_infer_rate *rates)
{
    tt_traffic *f = tt_new(p->mem, 1, sizeof(*f));
    if (!f)
        return NULL;
    *f = (tt_traffic){.p = p, .round = round, .flows = flows, .rates = rates};
    f->n_ends = GUESTS;
    for (uint32_t i = 0; i < round->n_flows; i++)
        f->n_ends += (from_host(f, i) == p->me) + (to_host(f, i) == p->me);
    f->ends = tt_new(p->mem, f->n_ends, sizeof(*f->ends));
    f->polls = tt_new(p->mem, f->n_ends + p->n_ears + 1, sizeof(*f->polls));
    f->piece = tt_new(p->mem, PIECE, 1);
    for (uint32_t i = 0; f->ends && i < f->n_ends; i++)
        f->ends[i].fd = -1;
    if (f->ends && f->polls && f->piece)
        return f;
    tt_traffic_close(f);
    return NULL;
}

void tt_traffic_close(tt_traffic *f)
{
    if (!f)
        return;
    const tt_probe *p = f->p;
    for (uint32_t i = 0; f->ends && i < f->n_ends; i++)
        drop(&f->ends[i]);
    tt_free(p->mem, f->ends, f->n_ends, sizeof(*f->ends));
    tt_free(p->mem, f->polls, f->n_ends + p->n_ears + 1, sizeof(*f->polls));
    tt_free(p->mem, f->piece, PIECE, 1);
    tt_free(p->mem, f, 1, sizeof(*f));
}
