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
 *            this process came to run. The kernel tells it by the clock that
 *            people set, but what counts is only how long ago that was: where
 *            the clock is set meanwhile, what waits to be read just then may
 *            seem to have come a little earlier or later, no more.
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

typedef enum role { FREE, CALLER, SENDER, RECEIVER } role;

typedef struct end {
    role role;
    int fd;             /* -1: FREE, CALLER */
    tt_link_dial *dial; /* CALLER */
    uint32_t flow;
    bool has_stamps; /* the kernel tells */
    uint64_t last_ns;
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
    struct pollfd *polls; /* of ends */
    char *piece;
    uint64_t begin_ns;
    tt_iface_cap caps[TT_CAPS_MAX]; /* TUTTI_RATE */
    uint32_t n_caps;
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
    tt_link_dial_end(e->dial);
    e->dial = NULL;
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

/* The interface by which a flow of this agent's leaves. */
static const char *dev_of(const tt_traffic *f, uint32_t flow)
{
    const tt_probe *p = f->p;
    return p->places[p->tries[f->flows[flow].number].src].dev;
}

/* TUTTI_RATE holds for measurements, too, and what they find is what may be
 * sent: the flows of the interface share it. */
static void pace(const tt_traffic *f, const end *e)
{
    const char *dev = dev_of(f, e->flow);
    const uint64_t bps = tt_iface_cap_of(f->caps, f->n_caps, dev);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->round->n_flows; i++)
        n += from_host(f, i) == f->p->me && strcmp(dev_of(f, i), dev) == 0;
    if (bps == 0 || n == 0)
        return;
    const uint64_t share = bps / 8 * TT_TCP_PAYLOAD / TT_TCP_PACKET / n;
    const unsigned most = share < UINT32_MAX ? (unsigned)share : UINT32_MAX;
    setsockopt(e->fd, SOL_SOCKET, SO_MAX_PACING_RATE, &most, sizeof(most));
}

static void begin_calls(tt_traffic *f, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < f->round->n_flows; i++) {
        f->n_missing += to_host(f, i) == f->p->me;
        end *e = from_host(f, i) == f->p->me ? free_end(f) : NULL;
        if (!e)
            continue;
        *e = (end){.role = CALLER, .fd = -1, .flow = i};
        const tt_wire_call_opts o = {.try_number = f->flows[i].number,
                                     .is_free = f->flows[i].is_free,
                                     .word = {.kind = TT_WIRE_FLOW,
                                              .number = i,
                                              .round = f->round->number},
                                     .deadline_ns = deadline_ns,
                                     .arg = e};
        e->dial = tt_wire_call(f->p, &o);
        if (!e->dial)
            drop(e);
        f->n_missing += e->role == CALLER;
    }
}

static void hear_outcome(tt_traffic *f, end *e, const tt_link_event *how)
{
    f->n_missing--;
    if (how->kind != TT_LINK_DIALLED) {
        drop(e);
        return;
    }
    tt_link_dial_end(e->dial);
    e->dial = NULL;
    e->fd = how->stream.fd; /* bare */
    e->role = SENDER;
    set_option(e->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 2 * PIECE);
    pace(f, e);
}

/* Is this flow expected, and not there yet? */
static bool is_expected(const tt_traffic *f, const tt_wire_word *w,
                        uint32_t ear)
{
    if (w->kind != TT_WIRE_FLOW || w->round != f->round->number ||
        w->number >= f->round->n_flows ||
        !tt_wire_is_right(f->p, w, f->flows[w->number].number, ear))
        return false;
    for (uint32_t i = 0; i < f->n_ends; i++) {
        if (f->ends[i].role == RECEIVER && f->ends[i].flow == w->number)
            return false;
    }
    return true;
}

static void hear_guest(tt_traffic *f, const tt_link_event *how)
{
    uint32_t ear;
    const tt_wire_word w = tt_wire_heard(how, &ear);
    end *e = is_expected(f, &w, ear) ? free_end(f) : NULL;
    if (!e) {
        tt_wire_cut(how->stream.fd);
        return;
    }
    *e = (end){.role = RECEIVER, .fd = how->stream.fd, .flow = w.number};
    if (f->flows[e->flow].window_bytes <= FIXED) /* else it grows as it will */
        set_option(e->fd, SOL_SOCKET, SO_RCVBUF, FIXED);
    set_option(e->fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    f->n_missing--;
}

static int wait_for(tt_traffic *f, uint64_t until_ns)
{
    for (uint32_t i = 0; i < f->n_ends; i++)
        f->polls[i] = (struct pollfd){
            .fd = f->ends[i].fd,
            .events = f->ends[i].role == SENDER ? POLLOUT : POLLIN};
    int got = poll(f->polls, f->n_ends, tt_poll_ms(until_ns, 1000));
    return got < 0 && errno == EINTR ? 0 : got;
}

void tt_traffic_connect(tt_traffic *f)
{
    tt_link_event e;
    uint64_t deadline_ns = tt_now_ns() + SETUP_NS;
    begin_calls(f, deadline_ns);
    while (f->n_missing > 0 && tt_now_ns() < deadline_ns) {
        uint64_t soon = tt_now_ns() + TT_NS_PER_S;
        tt_probe_alive(f->p);
        tt_link_box_wait(f->p->box, soon < deadline_ns ? soon : deadline_ns);
        while (tt_link_box_take(f->p->box, &e)) {
            if (e.kind == TT_LINK_ARRIVED)
                hear_guest(f, &e);
            else
                hear_outcome(f, e.arg, &e);
        }
    }
    for (uint32_t i = 0; i < f->n_ends; i++) {
        if (f->ends[i].role == CALLER)
            drop(&f->ends[i]);
    }
}

/* -------------------------------------------------------------- running -- */

static uint64_t real_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * TT_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* False: the flow has ended before its time. A slow link would carry a few
 * large pieces only, so the kernel must not make larger ones (EOR). */
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

/* When it came, by our clock: not before what came before it, nor later than
 * now. */
static uint64_t time_of(const tt_traffic *f, const end *e, uint64_t stamp_ns)
{
    uint64_t now = tt_now_ns();
    int64_t age = stamp_ns ? (int64_t)(real_now_ns() - stamp_ns) : 0;
    uint64_t last = e->last_ns ? e->last_ns : f->begin_ns;
    if (age <= 0)
        return now;
    return (uint64_t)age < now - last ? now - (uint64_t)age : last;
}

static void count(const tt_traffic *f, end *e, uint64_t n, uint64_t stamp_ns)
{
    e->has_stamps |= stamp_ns != 0;
    if (e->has_stamps && stamp_ns == 0) {
        e->meter.bytes += n; /* the next arrival has its time */
        return;
    }
    e->last_ns = time_of(f, e, stamp_ns);
    if (e->meter.end_ns == 0) {
        /* All end together; who began late warms up later. */
        uint64_t warm = f->round->warm_us * TT_NS_PER_US;
        e->meter.warm_ns = e->last_ns + warm;
        e->meter.end_ns = f->begin_ns + warm +
                          f->round->measure_us * TT_NS_PER_US;
    }
    tt_meter_add(&e->meter, n, e->last_ns);
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
    uint64_t end_ns = f->begin_ns + TAIL_NS +
                      (f->round->warm_us + f->round->measure_us) * TT_NS_PER_US;
    while (tt_now_ns() < end_ns) {
        tt_probe_alive(f->p);
        if (wait_for(f, end_ns) < 0)
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

/* ------------------------------------------------------ opening, closing -- */

tt_traffic *tt_traffic_open(const tt_probe *p, const tt_probe_round *round,
                            const tt_probe_flow *flows, tt_infer_rate *rates)
{
    tt_traffic *f = tt_new(p->mem, 1, sizeof(*f));
    if (!f)
        return NULL;
    *f = (tt_traffic){.p = p, .round = round, .flows = flows, .rates = rates};
    if (tt_caps_read(p->job->settings->rate, f->caps, &f->n_caps, NULL))
        f->n_caps = 0; /* a start has checked it */
    for (uint32_t i = 0; i < round->n_flows; i++)
        f->n_ends += (from_host(f, i) == p->me) + (to_host(f, i) == p->me);
    f->ends = tt_new(p->mem, f->n_ends, sizeof(*f->ends));
    f->polls = tt_new(p->mem, f->n_ends, sizeof(*f->polls));
    f->piece = tt_new(p->mem, PIECE, 1);
    for (uint32_t i = 0; f->ends && i < f->n_ends; i++)
        f->ends[i].fd = -1;
    if (f->n_ends == 0 || (f->ends && f->polls && f->piece))
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
    tt_free(p->mem, f->polls, f->n_ends, sizeof(*f->polls));
    tt_free(p->mem, f->piece, PIECE, 1);
    tt_free(p->mem, f, 1, sizeof(*f));
}
