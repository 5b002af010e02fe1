/* SPDX-License-Identifier: BSD-3-Clause
 * rough.c - see rough.h.
 *
 * What is read at a time is copied through a buffer of its own, as a layer that
 * decrypts does, so what has been read and not given is pending. */
#include "support/rough.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/rng.h"

#define BUF 4096
/* Of so many calls, one is told to come again. */
#define NOT_NOW 8

typedef struct rough {
    tt_rough_opts o;
    tt_link_stream below; /* as it was: the socket, or another layer */
    tt_rng rng;
    uint64_t n_read;
    size_t at, have; /* of buf */
    unsigned char buf[BUF];
} rough;

/* 1 to `most` bytes, often few. */
static size_t part_of(rough *r, size_t most)
{
    size_t n = 1 +
               tt_rng_below(&r->rng, UINT64_C(1) << tt_rng_below(&r->rng, 18));
    return n < most ? n : most;
}

static bool is_not_now(rough *r)
{
    errno = EAGAIN;
    return tt_rng_below(&r->rng, NOT_NOW) == 0;
}

/* The kernel says when the socket is full, and tells when it is not any
 * more. */
static ssize_t rough_send(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    rough *r = s->state;
    return tt_link_send(&r->below, iov, n_iov);
}

/* What is pending, or what comes with the next read. 1: there is something. */
static ssize_t fill(tt_link_stream *s)
{
    rough *r = s->state;
    const struct iovec iov = {r->buf, BUF};
    if (r->at < r->have)
        return 1;
    ssize_t n = tt_link_recv(&r->below, &iov, 1);
    r->at = 0;
    r->have = n > 0 ? (size_t)n : 0;
    return n > 0 ? 1 : n;
}

/* Any bit, whatever it is of. */
static void spoil(rough *r, unsigned char *bytes, size_t n)
{
    uint64_t at = r->o.flip_at - 1;
    if (r->o.flip_at > 0 && at >= r->n_read && at - r->n_read < n) {
        bytes[at - r->n_read] ^= (unsigned char)(1u
                                                 << tt_rng_below(&r->rng, 8));
        r->o.flip_at = r->o.flip_each > 0 ? r->o.flip_at + r->o.flip_each : 0;
    }
    r->n_read += n;
}

static ssize_t rough_recv(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    rough *r = s->state;
    if (r->o.end_at > 0 && r->n_read >= r->o.end_at) {
        errno = ECONNRESET;
        return -1;
    }
    ssize_t is = fill(s);
    if (is <= 0)
        return is;
    if (is_not_now(r))
        return -1;
    for (int i = 0; i < n_iov; i++) {
        if (iov[i].iov_len == 0)
            continue;
        size_t most = r->have - r->at < iov[i].iov_len ? r->have - r->at
                                                       : iov[i].iov_len;
        size_t n = part_of(r, most);
        if (r->o.end_at > 0 && r->o.end_at - r->n_read < n)
            n = r->o.end_at - r->n_read;
        memcpy(iov[i].iov_base, r->buf + r->at, n);
        spoil(r, iov[i].iov_base, n);
        r->at += n;
        return (ssize_t)n;
    }
    return 0;
}

static size_t rough_pending(const tt_link_stream *s)
{
    const rough *r = s->state;
    return r->have - r->at + tt_link_pending(&r->below);
}

static size_t rough_unsent(const tt_link_stream *s)
{
    const rough *r = s->state;
    return tt_link_unsent(&r->below);
}

static bool rough_end(tt_link_stream *s)
{
    rough *r = s->state;
    return !r->below.layer || r->below.layer->end(&r->below);
}

static void rough_close(tt_link_stream *s)
{
    rough *r = s->state;
    if (r->below.layer)
        r->below.layer->close(&r->below);
    free(r);
}

static const tt_link_layer layer = {.send = rough_send,
                                    .recv = rough_recv,
                                    .pending = rough_pending,
                                    .unsent = rough_unsent,
                                    .end = rough_end,
                                    .close = rough_close};

void tt_rough_put(tt_link_stream *s, const tt_rough_opts *o)
{
    const int few = 128 << 10;
    rough *r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    r->o = *o;
    r->below = *s;
    r->rng.state = o->seed;
    setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof(few));
    s->state = r;
    s->layer = &layer;
}
