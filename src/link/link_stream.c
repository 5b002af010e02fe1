/* SPDX-License-Identifier: BSD-3-Clause
 * link_stream.c - the bytes of a link: the socket itself, or a layer over
 * it. */
#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "base/fork.h"
#include "link/link.h"

/* How often a wait looks whether it is still wanted. */
#define LOOK_NS (50 * TT_NS_PER_MS)

void tt_link_stream_open(tt_link_stream *s, int fd)
{
    *s = (tt_link_stream){.fd = fd};
}

ssize_t tt_link_send(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    if (s->layer)
        return s->layer->send(s, iov, n_iov);
    const struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov,
                             .msg_iovlen = (size_t)n_iov};
    const int flags = s->goes_on ? MSG_NOSIGNAL | MSG_MORE : MSG_NOSIGNAL;
    ssize_t n;
    do {
        n = sendmsg(s->fd, &m, flags);
    } while (n < 0 && errno == EINTR);
    return n;
}

ssize_t tt_link_recv(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    if (s->layer)
        return s->layer->recv(s, iov, n_iov);
    ssize_t n;
    do {
        n = n_iov == 1 ? recv(s->fd, iov->iov_base, iov->iov_len, 0)
                       : readv(s->fd, iov, n_iov);
    } while (n < 0 && errno == EINTR);
    return n;
}

/* Until the socket is ready; 0 or errno. */
static int wait_for(const tt_link_stream *s, short events, uint64_t deadline_ns)
{
    if (!s->is_off)
        return tt_sock_wait(s->fd, events, deadline_ns) ? 0 : ETIMEDOUT;
    for (;;) {
        const uint64_t soon_ns = tt_now_ns() + LOOK_NS;
        if (atomic_load(s->is_off))
            return ECANCELED;
        if (tt_sock_wait(s->fd, events,
                         soon_ns < deadline_ns ? soon_ns : deadline_ns))
            return 0;
        if (soon_ns >= deadline_ns)
            return ETIMEDOUT;
    }
}

int tt_link_write_all(tt_link_stream *s, const void *buf, size_t len,
                      uint64_t deadline_ns)
{
    struct iovec rest = {(void *)(uintptr_t)buf, len};
    int why;
    while (rest.iov_len > 0 || tt_link_unsent(s) > 0) {
        ssize_t n = tt_link_send(s, &rest, 1);
        if (n >= 0) {
            rest.iov_base = (char *)rest.iov_base + n;
            rest.iov_len -= (size_t)n;
        } else if (errno != EAGAIN) {
            return errno;
        } else if ((why = wait_for(s, POLLOUT, deadline_ns)) != 0) {
            return why;
        }
    }
    return 0;
}

int tt_link_read_all(tt_link_stream *s, void *buf, size_t len,
                     uint64_t deadline_ns)
{
    struct iovec rest = {buf, len};
    int why;
    while (rest.iov_len > 0) {
        ssize_t n = tt_link_recv(s, &rest, 1);
        if (n > 0) {
            rest.iov_base = (char *)rest.iov_base + n;
            rest.iov_len -= (size_t)n;
        } else if (n == 0) {
            return EPIPE;
        } else if (errno != EAGAIN) {
            return errno;
        } else if (tt_link_pending(s) == 0 &&
                   (why = wait_for(s, POLLIN, deadline_ns)) != 0) {
            return why;
        }
    }
    return 0;
}

bool tt_link_end(tt_link_stream *s)
{
    if (s->layer && !s->layer->end(s))
        return false;
    shutdown(s->fd, SHUT_WR);
    return true;
}

const char *tt_link_error_text(int err)
{
    switch (err) {
    case EBADMSG:
        return "bytes were changed on their way: a seal is broken";
    case EACCES:
        return "it does not take this side's secret or certificate";
    case ESTALE:
        return "more was lost than is kept (TUTTI_RECONNECT_BUFFER)";
    case ENOLINK:
        return "the other side has given the connection up";
    default:
        return tt_errno_text(err);
    }
}

void tt_link_stream_close(tt_link_stream *s)
{
    if (s->layer)
        s->layer->close(s);
    s->layer = NULL;
    tt_fork_close(&s->fd);
}
