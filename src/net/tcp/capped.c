/* SPDX-License-Identifier: BSD-3-Clause
 * capped.c - which sockets have a cap, and until when they are held.
 *
 * Idea       A socket has the cap of the interface that has its own address.
 *            What stays inside the host has none. A strand that may not send
 *            now is held: it does not ask epoll, which would say at once that
 *            the socket takes more. progress() looks at the time while strands
 *            are held, and who sleeps is woken by a timer. All that are held
 *            try again when the first of them may.
 * Next       cap.c, tcp.c. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "net/tcp/tcp.h"

#define MOST_IFACES 128

static tt_tcp_net *net_of(const tt_tcp_strand *s)
{
    return (tt_tcp_net *)s->conn->base.net;
}

/* ----------------------------------------------------------------- caps -- */

/* In the net's epoll; false: there is none. */
static bool has_timer(tt_tcp_net *net)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &net->timer};
    if (net->timer >= 0)
        return true;
    net->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (net->timer < 0)
        return false;
    tt_fork_watch(net->timer);
    if (epoll_ctl(net->base.fd, EPOLL_CTL_ADD, net->timer, &event) == 0)
        return true;
    tt_fork_close(&net->timer);
    return false;
}

/* NULL: it has none. */
static tt_tcp_cap *cap_of(tt_tcp_net *net, const char *dev)
{
    const uint64_t bps = tt_iface_cap_of(net->base.caps, net->base.n_caps, dev);
    tt_tcp_cap *cap = net->caps;
    while (cap && strcmp(cap->dev, dev) != 0)
        cap = cap->next;
    if (cap || bps == 0)
        return cap;
    cap = has_timer(net) ? tt_new(net->base.mem, 1, sizeof(*cap)) : NULL;
    if (!cap) {
        TT_WARN("%s has no cap: memory or descriptors are out", dev);
        return NULL;
    }
    tt_tcp_cap_open(cap, dev, bps);
    cap->next = net->caps;
    net->caps = cap;
    TT_DEBUG("tcp: at most %.4g Mbit/s are sent by %s", (double)bps / 1e6, dev);
    return cap;
}

void tt_tcp_caps_close(tt_tcp_net *net)
{
    while (net->caps) {
        tt_tcp_cap *cap = net->caps;
        net->caps = cap->next;
        tt_tcp_cap_close(cap);
        tt_free(net->base.mem, cap, 1, sizeof(*cap));
    }
    if (net->timer >= 0)
        tt_fork_close(&net->timer);
}

void tt_tcp_cap_socket(tt_tcp_strand *s, int fd)
{
    tt_iface all[MOST_IFACES];
    tt_addr own = {.len = sizeof(own.u)}, far = {.len = sizeof(far.u)};
    const char *dev = NULL;
    bool is_inside = false;
    s->cap = NULL;
    if (net_of(s)->base.n_caps == 0 ||
        getsockname(fd, &own.u.sa, &own.len) != 0 ||
        getpeername(fd, &far.u.sa, &far.len) != 0)
        return;
    tt_tcp_plain(&own);
    tt_tcp_plain(&far);
    for (size_t i = tt_ifaces_list("", all, MOST_IFACES); i-- > 0;) {
        is_inside |= tt_addr_same_ip(&all[i].addr, &far);
        if (tt_addr_same_ip(&all[i].addr, &own))
            dev = all[i].name;
    }
    if (!dev || is_inside)
        return;
    s->cap = cap_of(net_of(s), dev);
    if (!s->cap)
        return;
    /* What waits in the socket must not all leave at once. */
    const uint64_t pace = tt_tcp_cap_pace(s->cap);
    const unsigned most = pace < UINT32_MAX ? (unsigned)pace : UINT32_MAX;
    if (setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &most, sizeof(most)))
        TT_DEBUG("SO_MAX_PACING_RATE: %s", strerror(errno));
}

/* ----------------------------------------------------------------- held -- */

size_t tt_tcp_leave(tt_tcp_strand *s, size_t want, bool hold)
{
    tt_tcp_net *net = net_of(s);
    uint64_t when_ns = 0;
    if (want == 0)
        return 0;
    size_t n = tt_tcp_cap_take(s->cap, tt_now_ns(), want, &when_ns);
    if (n > 0 || !hold)
        return n;
    if (net->n_held == 0 || when_ns < net->held_ns)
        net->held_ns = when_ns;
    net->n_held += !s->is_held;
    s->is_held = true;
    return 0;
}

void tt_tcp_unhold(tt_tcp_strand *s)
{
    net_of(s)->n_held -= s->is_held;
    s->is_held = false;
}

bool tt_tcp_release_held(tt_tcp_net *net)
{
    if (tt_now_ns() < net->held_ns)
        return false;
    for (uint32_t i = 0; i < net->n_live; i++)
        for (uint32_t k = 0; k < net->live[i]->n_strands; k++) {
            tt_tcp_strand *s = &net->live[i]->strands[k];
            s->is_due = s->is_held;
            tt_tcp_unhold(s);
        }
    return true;
}

void tt_tcp_set_timer(const tt_tcp_net *net)
{
    const uint64_t ns = net->held_ns ? net->held_ns : 1;
    const struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(ns / TT_NS_PER_S),
                     .tv_nsec = (long)(ns % TT_NS_PER_S)}};
    timerfd_settime(net->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

void tt_tcp_clear_timer(const tt_tcp_net *net)
{
    uint64_t n_times;
    ssize_t n = read(net->timer, &n_times, sizeof(n_times));
    (void)n; /* nothing: it has been set anew since */
}
