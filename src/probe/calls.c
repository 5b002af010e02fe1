/* SPDX-License-Identifier: BSD-3-Clause
 * calls.c - one agent calls the pairs of addresses that begin at its host, and
 * hears who calls it.
 *
 * Idea       All are called at once, a bounded number at a time, each bound to
 *            its interface and address. A caller says which pair it is and then
 *            a few single bytes, each when the one before has been
 *            acknowledged: the least round trip is the kernel's own measure
 *            (TCP_INFO), so it does not matter when the other process runs.
 * Time       Each try has TRY_NS to connect, or PATIENT_NS, in which a packet
 *            may be lost; who is connected has TALK_NS more, for far hosts need
 *            some round trips. What was acknowledged by then reaches. All
 *            together have LIMIT_NS and that, more only where there are more
 *            silent pairs than fit at a time.
 * Next       reach.c. */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/fork.h"
#include "probe/parts.h"

#define TRY_NS (500 * TT_NS_PER_MS)
#define PATIENT_NS (1600 * TT_NS_PER_MS) /* SYNs are sent again after 1 s */
#define TALK_NS (1500 * TT_NS_PER_MS)
#define LIMIT_NS (700 * TT_NS_PER_MS) /* of the first CALLS of them */
#define CALLS 128
#define GUESTS 256
#define PINGS 5
#define TICK_MS 1

typedef struct call {
    bool is_live;
    tt_link_dial *dial; /* NULL: it is connected */
    int fd;             /* -1: not yet */
    uint32_t number;
    uint32_t n_pings;
    uint64_t until_ns;
} call;

struct tt_calls {
    tt_probe *p;
    const uint8_t *is_idle; /* [n_ports]: of a free round; else NULL */
    bool is_patient;
    bool is_short;         /* of descriptors: for a moment */
    tt_probe_mark *marks;  /* of own tries, from the first one on */
    uint8_t *heard;        /* [n_tries] */
    uint32_t next, n_live; /* tries, calls */
    uint32_t n_again;      /* tries for which there was no descriptor */
    uint32_t again[CALLS];
    uint32_t n_guests;
    call calls[CALLS];
    int guests[GUESTS]; /* who has called: bytes only to be acknowledged */
    struct pollfd polls[1 + CALLS + GUESTS]; /* box, calls, guests */
};

/* -------------------------------------------------------------- calling -- */

static tt_probe_mark *mark_of(tt_calls *r, uint32_t number)
{
    return &r->marks[number - r->p->first_try[r->p->me]];
}

static void end_call(tt_calls *r, call *c, tt_try_state state, int why)
{
    tt_probe_mark *mark = mark_of(r, c->number);
    struct tcp_info info;
    socklen_t len = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (c->fd >= 0 && state >= TT_TRY_ROUTED &&
        getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
        mark->rtt_us = info.tcpi_min_rtt != UINT32_MAX && info.tcpi_min_rtt
                           ? info.tcpi_min_rtt
                           : info.tcpi_rtt;
    mark->state = (uint8_t)state;
    mark->why = (uint8_t)(why < 256 ? why : EIO);
    mark->is_free = r->is_idle != NULL;
    tt_fork_close(&c->fd);
    tt_link_dial_end(c->dial);
    *c = (call){.fd = -1};
    r->n_live--;
}

/* Is it this round's? */
static bool is_due(tt_calls *r, uint32_t number)
{
    const tt_probe *p = r->p;
    const tt_probe_try *t = &p->tries[number];
    if (r->is_idle && !(r->is_idle[p->place_port[t->src]] &&
                        r->is_idle[p->place_port[t->dst]]))
        return false;
    tt_probe_mark *mark = mark_of(r, number);
    if (tt_probe_foresee(p, t) == TT_TRY_OWN)
        mark->state = TT_TRY_OWN;
    return mark->state != TT_TRY_OWN;
}

static uint64_t try_ns(bool is_patient)
{
    return is_patient ? PATIENT_NS : TRY_NS;
}

/* The next one to be called; TT_NONE: there is none. */
static uint32_t next_number(tt_calls *r)
{
    uint32_t end = r->p->first_try[r->p->me + 1];
    if (r->n_again > 0)
        return r->again[--r->n_again];
    while (r->next < end && !is_due(r, r->next))
        r->next++;
    return r->next < end ? r->next++ : TT_NONE;
}

static void begin_calls(tt_calls *r)
{
    for (uint32_t i = 0; i < CALLS && !r->is_short; i++) {
        call *c = &r->calls[i];
        if (c->is_live)
            continue;
        uint32_t number = next_number(r);
        if (number == TT_NONE)
            return;
        *c = (call){.is_live = true,
                    .fd = -1,
                    .number = number,
                    .until_ns = tt_now_ns() + try_ns(r->is_patient)};
        r->n_live++;
        const tt_wire_call_opts o = {
            .try_number = number,
            .is_free = r->is_idle != NULL,
            .word = {.kind = TT_WIRE_TRY, .number = number},
            .deadline_ns = c->until_ns,
            .arg = c};
        c->dial = tt_wire_call(r->p, &o);
        if (!c->dial)
            end_call(r, c, TT_TRY_FAILED, ENOMEM);
    }
}

/* How it has ended: it stands, and has said which try this is, or has not. */
static void hear_outcome(tt_calls *r, call *c, const tt_link_event *e)
{
    tt_link_outcome how = tt_link_dial_outcome(c->dial, 0);
    bool is_short = how.err == EMFILE || how.err == ENFILE;
    if (e->kind == TT_LINK_DIALLED) {
        tt_link_dial_end(c->dial);
        c->dial = NULL;
        c->fd = e->stream.fd; /* bare */
        c->until_ns = tt_now_ns() + TALK_NS;
    } else if (is_short && r->n_live > 1) {
        r->again[r->n_again++] = c->number; /* when others have ended */
        r->is_short = true;
        tt_link_dial_end(c->dial);
        *c = (call){.fd = -1};
        r->n_live--;
    } else if (how.err) {
        end_call(r, c, TT_TRY_FAILED, how.err);
    } else {
        end_call(r, c, TT_TRY_SILENT, 0);
    }
}

static void reaches(tt_calls *r, call *c)
{
    bool is_link = !r->is_idle &&
                   tt_probe_is_link(r->p, &r->p->tries[c->number]);
    end_call(r, c, is_link ? TT_TRY_LINK : TT_TRY_ROUTED, 0);
}

/* The next byte when the last has been acknowledged. */
static void ping(tt_calls *r, call *c)
{
    int n_waiting = 0;
    if (ioctl(c->fd, SIOCOUTQ, &n_waiting) != 0) {
        end_call(r, c, TT_TRY_FAILED, errno);
        return;
    }
    if (n_waiting > 0)
        return;
    if (c->n_pings++ < PINGS) {
        if (send(c->fd, "", 1, MSG_NOSIGNAL) != 1)
            end_call(r, c, TT_TRY_FAILED, errno);
        return;
    }
    reaches(r, c);
}

/* Its time is over. */
static void give_up(tt_calls *r, call *c)
{
    if (c->n_pings > 0)
        reaches(r, c);
    else
        end_call(r, c, TT_TRY_SILENT, 0);
}

static void serve_calls(tt_calls *r, const struct pollfd *polls)
{
    uint64_t now = tt_now_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
        call *c = &r->calls[i];
        if (c->fd < 0)
            continue;
        if (polls++->revents & (POLLERR | POLLHUP))
            end_call(r, c, TT_TRY_STRANGE, 0); /* it has hung up */
        else
            ping(r, c);
        if (c->fd >= 0 && now >= c->until_ns)
            give_up(r, c);
    }
}

/* ------------------------------------------------------------ listening -- */

static void drop_guest(tt_calls *r, uint32_t i)
{
    tt_fork_close(&r->guests[i]);
    r->guests[i] = r->guests[--r->n_guests];
}

static void hear_guest(tt_calls *r, const tt_link_event *e)
{
    uint32_t ear;
    tt_wire_word w = tt_wire_heard(e, &ear);
    if (w.kind == TT_WIRE_TRY && tt_wire_is_right(r->p, &w, w.number, ear))
        r->heard[w.number] = 1;
    if (r->n_guests == GUESTS)
        drop_guest(r, 0);
    r->guests[r->n_guests++] = e->stream.fd;
}

static bool take_all(tt_calls *r)
{
    tt_link_event e;
    bool is_any = false;
    while (tt_link_box_take(r->p->box, &e)) {
        is_any = true;
        if (e.kind == TT_LINK_ARRIVED)
            hear_guest(r, &e);
        else
            hear_outcome(r, e.arg, &e);
    }
    return is_any;
}

static void serve_guests(tt_calls *r, const struct pollfd *polls, uint32_t n)
{
    char rest[64];
    /* From the end, because the last one moves into a free place. */
    for (uint32_t i = n; i-- > 0;) {
        if (!polls[i].revents)
            continue;
        ssize_t got = recv(r->guests[i], rest, sizeof(rest), 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            drop_guest(r, i);
    }
}

void tt_calls_hear_rest(tt_calls *r)
{
    do {
        while (r->n_guests > 0)
            drop_guest(r, 0);
        tt_link_box_settle(r->p->box);
    } while (take_all(r));
}

/* ------------------------------------------------------------- the loop -- */

/* Not more than there are: the system takes no more than it lets us open.
 * Returns where the guests begin. */
static uint32_t fill_polls(tt_calls *r)
{
    struct pollfd *at = r->polls;
    *at++ = (struct pollfd){.fd = tt_link_box_fd(r->p->box), .events = POLLIN};
    for (uint32_t i = 0; i < CALLS; i++) {
        if (r->calls[i].fd >= 0)
            *at++ = (struct pollfd){.fd = r->calls[i].fd};
    }
    uint32_t first = (uint32_t)(at - r->polls);
    for (uint32_t i = 0; i < r->n_guests; i++)
        *at++ = (struct pollfd){.fd = r->guests[i], .events = POLLIN};
    return first;
}

uint64_t tt_calls_limit_ns(uint32_t n, bool is_patient)
{
    uint64_t each_ns = try_ns(is_patient);
    return LIMIT_NS + each_ns + TALK_NS + n / CALLS * (each_ns / 2);
}

tutti_err tt_calls_run(tt_calls *r, tutti_diag *diag)
{
    tt_probe *p = r->p;
    r->next = p->first_try[p->me];
    uint32_t n = p->first_try[p->me + 1] - r->next;
    uint64_t deadline_ns = tt_now_ns() + tt_calls_limit_ns(n, r->is_patient) -
                           TALK_NS - try_ns(r->is_patient);
    tt_probe_tell(p, "trying addresses", r->is_idle ? 7 : 3);
    for (begin_calls(r); r->n_live > 0; begin_calls(r)) {
        tt_probe_alive(p);
        uint32_t first = fill_polls(r), n_guests = r->n_guests;
        int got = poll(r->polls, first + n_guests, TICK_MS);
        if (got < 0 && errno != EINTR)
            return tt_fail_errno(diag, TUTTI_ESYS, errno, "poll");
        if (got < 0)
            continue;
        r->is_short = false;
        serve_calls(r, r->polls + 1);
        serve_guests(r, r->polls + first, n_guests);
        take_all(r);
        if (tt_now_ns() > deadline_ns)
            r->next = p->first_try[p->me + 1], r->n_again = 0; /* no more */
    }
    return TUTTI_OK;
}

tt_calls *tt_calls_open(tt_probe *p, const uint8_t *is_idle, bool is_patient,
                        tt_probe_mark *marks, uint8_t *heard)
{
    tt_calls *r = tt_new(p->mem, 1, sizeof(*r));
    if (!r)
        return NULL;
    *r = (tt_calls){.p = p,
                    .is_idle = is_idle,
                    .is_patient = is_patient,
                    .marks = marks,
                    .heard = heard};
    for (uint32_t i = 0; i < CALLS; i++)
        r->calls[i].fd = -1;
    return r;
}

void tt_calls_close(tt_calls *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < CALLS; i++) {
        tt_link_dial_end(r->calls[i].dial);
        tt_fork_close(&r->calls[i].fd);
    }
    while (r->n_guests > 0)
        drop_guest(r, 0);
    tt_free(r->p->mem, r, 1, sizeof(*r));
}
