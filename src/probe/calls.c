/* SPDX-License-Identifier: BSD-3-Clause
 * calls.c - one agent calls the pairs of addresses that begin at its host, and
 * hears who calls it.
 *
 * Idea       All are called at once, a bounded number at a time, each bound to
 *            its interface and address. A caller says which pair it is and then
 *            a few single bytes, each when the one before has been
 *            acknowledged: the least round trip is the kernel's own measure
 *            (TCP_INFO), so it does not matter when the other process runs.
 * Time       Each try has TRY_NS to connect, or PATIENT_NS, in which a packet may
 *            be lost; who is connected has TALK_NS more, for far hosts need some
 *            round trips. What was acknowledged by then reaches. All together
 *            have LIMIT_NS and that, more only where there are more silent pairs
 *            than fit at a time.
 * Next       reach.c. */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
    int fd; /* -1: a free place */
    uint32_t number;
    bool is_connected;
    uint32_t n_pings;
    uint64_t until_ns;
} call;

/* Who has called; ear: on which listener. */
typedef struct guest {
    int fd;
    uint32_t ear;
    bool is_known;
    size_t got;
    tt_wire_word word;
} guest;

struct tt_calls {
    tt_probe *p;
    const uint8_t *is_idle; /* [n_ports]: of a free round; else NULL */
    bool is_patient;
    tt_probe_mark *marks;  /* of own tries, from the first one on */
    uint8_t *heard;        /* [n_tries] */
    uint32_t next, n_live; /* tries, calls */
    uint32_t n_guests;
    call calls[CALLS];
    guest guests[GUESTS];
    struct pollfd polls[CALLS + GUESTS + TT_PROBE_PLACES + 1];
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
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
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

static void begin_calls(tt_calls *r)
{
    const tt_probe *p = r->p;
    uint32_t end = p->first_try[p->me + 1];
    for (uint32_t i = 0; i < CALLS && r->next < end; i++) {
        call *c = &r->calls[i];
        if (c->fd >= 0)
            continue;
        while (r->next < end && !is_due(r, r->next))
            r->next++;
        if (r->next == end)
            return;
        *c = (call){.number = r->next++,
                    .until_ns = tt_now_ns() + try_ns(r->is_patient)};
        r->n_live++;
        c->fd = tt_wire_call(p, c->number, r->is_idle != NULL);
        int why = c->fd < 0 ? -c->fd : 0;
        if ((why == EMFILE || why == ENFILE) && r->n_live > 1) {
            c->fd = -1; /* later, when others have ended */
            r->next--;
            r->n_live--;
            return;
        }
        if (why)
            end_call(r, c, TT_TRY_FAILED, why);
    }
}

/* It stands: says which try this is. */
static void greet(tt_calls *r, call *c)
{
    const tt_probe *p = r->p;
    uint32_t host = p->place_host[p->tries[c->number].dst];
    int why = tt_wire_outcome(c->fd);
    if (why == 0 && !tt_wire_say(p, c->fd, TT_WIRE_TRY, c->number, 0, host))
        why = errno;
    if (why) {
        end_call(r, c, TT_TRY_FAILED, why);
        return;
    }
    c->is_connected = true;
    c->until_ns = tt_now_ns() + TALK_NS;
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
        if (!c->is_connected && polls[i].fd == c->fd && polls[i].revents)
            greet(r, c);
        else if (c->is_connected && (polls[i].revents & (POLLERR | POLLHUP)))
            end_call(r, c, TT_TRY_STRANGE, 0); /* it has hung up */
        else if (c->is_connected)
            ping(r, c);
        if (c->fd >= 0 && now >= c->until_ns)
            give_up(r, c);
    }
}

/* ------------------------------------------------------------ listening -- */

static bool hear_guest(tt_calls *r, guest *g)
{
    char rest[64];
    if (g->is_known) { /* its bytes are only there to be acknowledged */
        ssize_t n = recv(g->fd, rest, sizeof(rest), 0);
        return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    }
    int how = tt_wire_hear(r->p, g->fd, &g->word, &g->got);
    if (how <= 0)
        return how == 0;
    g->is_known = true;
    if (g->word.kind == TT_WIRE_TRY &&
        tt_wire_is_right(r->p, &g->word, g->word.number, g->ear))
        r->heard[g->word.number] = 1;
    return true;
}

static void drop_guest(tt_calls *r, uint32_t i)
{
    close(r->guests[i].fd);
    r->guests[i] = r->guests[--r->n_guests];
}

/* Where there is no more room the oldest stranger goes. */
static bool make_room(tt_calls *r)
{
    for (uint32_t i = 0; r->n_guests == GUESTS && i < GUESTS; i++) {
        if (!r->guests[i].is_known)
            drop_guest(r, i);
    }
    return r->n_guests < GUESTS;
}

static void accept_guests(tt_calls *r)
{
    const tt_probe *p = r->p;
    for (uint32_t ear = 0; ear <= p->n_ears; ear++) {
        while (make_room(r)) {
            int fd = tt_sock_accept(p->ears[ear]);
            if (fd < 0)
                break;
            r->guests[r->n_guests] = (guest){.fd = fd, .ear = ear};
            if (hear_guest(r, &r->guests[r->n_guests++]))
                continue;
            drop_guest(r, r->n_guests - 1);
        }
    }
}

static void serve_guests(tt_calls *r, const struct pollfd *polls, uint32_t n)
{
    /* From the end, because the last one moves into a free place. */
    for (uint32_t i = n; i-- > 0;) {
        if ((!polls || polls[i].revents) && !hear_guest(r, &r->guests[i]))
            drop_guest(r, i);
    }
}

void tt_calls_hear_rest(tt_calls *r)
{
    serve_guests(r, NULL, r->n_guests);
    while (r->n_guests > 0)
        drop_guest(r, 0);
    for (bool is_full = true; is_full;) {
        accept_guests(r);
        is_full = r->n_guests == GUESTS;
        while (r->n_guests > 0)
            drop_guest(r, 0);
    }
}

/* ------------------------------------------------------------- the loop -- */

static uint32_t fill_polls(tt_calls *r)
{
    struct pollfd *at = r->polls;
    for (uint32_t i = 0; i < CALLS; i++) {
        const call *c = &r->calls[i];
        *at++ = (struct pollfd){.fd = c->fd,
                                .events = c->is_connected ? 0 : POLLOUT};
    }
    for (uint32_t i = 0; i < r->n_guests; i++)
        *at++ = (struct pollfd){.fd = r->guests[i].fd, .events = POLLIN};
    for (uint32_t i = 0; i <= r->p->n_ears; i++)
        *at++ = (struct pollfd){.fd = r->p->ears[i], .events = POLLIN};
    return (uint32_t)(at - r->polls);
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
        uint32_t n_polls = fill_polls(r), n_guests = r->n_guests;
        int got = poll(r->polls, n_polls, TICK_MS);
        if (got < 0 && errno != EINTR)
            return tt_fail_errno(diag, TUTTI_ESYS, errno, "poll");
        if (got < 0)
            continue;
        serve_calls(r, r->polls);
        serve_guests(r, r->polls + CALLS, n_guests);
        accept_guests(r);
        if (tt_now_ns() > deadline_ns)
            r->next = p->first_try[p->me + 1]; /* no more of them */
    }
    return TUTTI_OK;
}

tt_calls *tt_calls_open(tt_probe *p, const tt_calls_spec *spec)
{
    tt_calls *r = tt_new(p->mem, 1, sizeof(*r));
    if (!r)
        return NULL;
    *r = (tt_calls){.p = p,
                    .is_idle = spec->is_idle,
                    .is_patient = spec->is_patient,
                    .marks = spec->marks,
                    .heard = spec->heard};
    for (uint32_t i = 0; i < CALLS; i++)
        r->calls[i].fd = -1;
    return r;
}

void tt_calls_close(tt_calls *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < CALLS; i++) {
        if (r->calls[i].fd >= 0)
            close(r->calls[i].fd);
    }
    while (r->n_guests > 0)
        drop_guest(r, 0);
    tt_free(r->p->mem, r, 1, sizeof(*r));
}
