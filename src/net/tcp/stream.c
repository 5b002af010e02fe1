/* SPDX-License-Identifier: BSD-3-Clause
 * stream.c - see stream.h.
 *
 * Receiving has two states: between payloads, everything is read into buf and
 * taken apart there, and what is whole goes up from there; inside a payload
 * (left > 0), the rest of it is read straight to its place and only what
 * follows it into buf. After every step buf holds less than one header, so
 * moving it to the front is cheap; at the end of a turn it may hold more.
 * Next: tcp.c. */
#include "net/tcp/stream.h"

#include <string.h>

#include "base/crc32c.h"

/* ------------------------------------------------------------ receiving -- */

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

int tt_tcp_rx_want(const tt_tcp_rx *rx, struct iovec out[2])
{
    if (rx->left == 0) {
        out[0] = (struct iovec){rx->buf + rx->have, rx->tail - rx->have};
        return 1;
    }
    if (rx->is_dropping) {
        out[0] = (struct iovec){rx->buf, least(rx->left, TT_TCP_BUF)};
        return 1;
    }
    out[0] = (struct iovec){rx->at, rx->left};
    out[1] = (struct iovec){rx->buf, rx->tail};
    return 2;
}

/* A payload is whole. */
static void end_payload(tt_tcp_rx *rx)
{
    rx->is_over = rx->turn_bytes > 0 &&
                  tt_tcp_ends_turn(&rx->in_turn, rx->m.len, rx->turn_bytes);
}

/* The payload's next n bytes are there; tells when it is whole. */
static void advance(tt_tcp_rx *rx, uint32_t n)
{
    rx->left -= n;
    if (!rx->is_dropping)
        rx->at += n;
    if (rx->left > 0)
        return;
    bool is_dropped = rx->is_dropping;
    rx->is_dropping = false;
    end_payload(rx);
    if (!is_dropped)
        rx->up->arrived(rx->peer, &rx->m, rx->at - rx->m.len);
}

static bool is_right(const tt_tcp_rx *rx)
{
    return rx->m.magic == TT_MSG_MAGIC && rx->m.len <= rx->max_payload;
}

/* But for one bit of three that tell the two magics apart, if it may be
 * flipped. */
static bool is_brief(uint16_t magic, bool is_checked)
{
    const unsigned apart = magic ^ TT_TCP_BRIEF;
    return apart == 0 || (is_checked && (apart & (apart - 1)) == 0);
}

/* The bytes of the header that begins at `at`, where there are `rest`; more
 * than that: it is not whole. */
static size_t head_bytes(const tt_tcp_rx *rx, const char *at, size_t rest)
{
    uint16_t magic;
    if (rest < sizeof(magic))
        return sizeof(tt_msg);
    memcpy(&magic, at, sizeof(magic));
    return is_brief(magic, rx->is_checked) ? sizeof(tt_tcp_brief)
                                           : sizeof(tt_msg);
}

/* A header of n bytes, by the CRC behind it. False: too much of it is wrong. */
static bool mend(tt_tcp_rx *rx, char *at, size_t n)
{
    uint32_t crc;
    memcpy(&crc, at + n, sizeof(crc));
    tt_crc_found found = tt_crc32c_mend(at, n, &crc);
    rx->n_mended += found == TT_CRC_MENDED;
    return found != TT_CRC_WRONG;
}

static void read_brief(tt_tcp_rx *rx, const char *at)
{
    tt_tcp_brief brief;
    memcpy(&brief, at, sizeof(brief));
    if (rx->m.magic != TT_MSG_MAGIC)
        rx->m.magic = brief.magic; /* nothing came before: it is not right */
    rx->m.kind = brief.kind;
    rx->m.flags = brief.flags;
    rx->m.len = brief.len;
    rx->m.slice = brief.slice;
    rx->m.lane = brief.lane;
    rx->m.seq += brief.n_calls;
}

/* It is handed up from where it lies, in buf: then nothing is copied before it
 * is reduced. Not where elements would lie across their borders. */
static bool is_here(const tt_tcp_rx *rx, const char *at, size_t rest)
{
    return rx->m.len <= rest && (uintptr_t)at % sizeof(uint64_t) == 0;
}

/* A header has been read; behind it buf has `rest` bytes at `at`. Returns how
 * many of them were its whole payload. */
static size_t begin(tt_tcp_rx *rx, const char *at, size_t rest)
{
    if (rx->m.len == 0 && rx->m.kind == TT_TCP_END) {
        rx->is_ended = true;
        return 0;
    }
    if (rx->m.len == 0 && rx->is_deaf)
        return 0;
    if (rx->m.len == 0) {
        rx->up->arrived(rx->peer, &rx->m, NULL);
        return 0;
    }
    rx->tail = rx->m.len >= TT_TCP_BUF / 2 ? TT_TCP_TAIL : TT_TCP_BUF;
    if (!rx->is_deaf && is_here(rx, at, rest)) {
        end_payload(rx);
        rx->up->arrived(rx->peer, &rx->m, at);
        return rx->m.len;
    }
    rx->left = rx->m.len;
    rx->is_dropping = rx->is_deaf;
    if (!rx->is_deaf)
        rx->at = rx->up->place(rx->peer, &rx->m);
    return 0;
}

/* Takes buf's first `have` bytes apart. */
static bool take_apart(tt_tcp_rx *rx, uint32_t have, tt_msg *bad)
{
    const size_t crc = rx->is_checked ? sizeof(uint32_t) : 0;
    char *at = rx->buf;
    const char *end = rx->buf + have;
    while (at < end && !rx->is_over) {
        size_t rest = (size_t)(end - at);
        if (rx->left > 0) {
            uint32_t n = least(rx->left, rest);
            if (!rx->is_dropping)
                memcpy(rx->at, at, n);
            at += n;
            advance(rx, n);
            continue;
        }
        size_t n_head = head_bytes(rx, at, rest);
        if (rest < n_head + crc)
            break;
        bool is_whole = crc == 0 || mend(rx, at, n_head);
        if (n_head == sizeof(rx->m))
            memcpy(&rx->m, at, n_head);
        else
            read_brief(rx, at);
        at += n_head + crc;
        if (!is_whole || !is_right(rx)) {
            *bad = rx->m;
            return false;
        }
        at += begin(rx, at, (size_t)(end - at));
    }
    rx->have = (uint32_t)(end - at);
    memmove(rx->buf, at, rx->have);
    return true;
}

bool tt_tcp_rx_took(tt_tcp_rx *rx, size_t n, tt_msg *bad)
{
    if (rx->left == 0)
        return take_apart(rx, rx->have + (uint32_t)n, bad);
    uint32_t direct = least(rx->left, n);
    advance(rx, direct);
    return n == direct || take_apart(rx, (uint32_t)(n - direct), bad);
}

bool tt_tcp_rx_resume(tt_tcp_rx *rx, tt_msg *bad)
{
    rx->is_over = false;
    return take_apart(rx, rx->have, bad);
}

void tt_tcp_rx_drop(tt_tcp_rx *rx)
{
    rx->is_dropping = rx->left > 0;
}

bool tt_tcp_rx_deafen(tt_tcp_rx *rx, tt_msg *bad)
{
    if (rx->is_deaf)
        return true;
    rx->is_deaf = true;
    rx->turn_bytes = 0;
    tt_tcp_rx_drop(rx);
    return tt_tcp_rx_resume(rx, bad);
}

/* -------------------------------------------------------------- sending -- */

/* Chooses the header of out->m: brief where it may be. */
static void choose_head(tt_tcp_out *out, const tt_msg *before)
{
    const tt_msg *m = &out->m;
    out->head = m;
    out->head_len = sizeof(*m);
    if (before->magic != TT_MSG_MAGIC || m->magic != TT_MSG_MAGIC ||
        m->comm != before->comm || m->channel != before->channel ||
        m->fingerprint != before->fingerprint || m->lane > UINT16_MAX ||
        m->seq - before->seq > UINT16_MAX)
        return;
    out->brief = (tt_tcp_brief){.magic = TT_TCP_BRIEF,
                                .kind = m->kind,
                                .flags = m->flags,
                                .len = m->len,
                                .slice = m->slice,
                                .lane = (uint16_t)m->lane,
                                .n_calls = (uint16_t)(m->seq - before->seq)};
    out->head = &out->brief;
    out->head_len = sizeof(out->brief);
}

_Static_assert(offsetof(tt_tcp_out, crc) ==
                       offsetof(tt_tcp_out, m) + sizeof(tt_msg) &&
                   offsetof(tt_tcp_out, brief_crc) ==
                       offsetof(tt_tcp_out, brief) + sizeof(tt_tcp_brief),
               "a header's CRC is behind it");

static void add_crc(tt_tcp_out *out)
{
    uint32_t *crc = out->head == &out->m ? &out->crc : &out->brief_crc;
    *crc = tt_crc32c(0, out->head, out->head_len);
    out->head_len += sizeof(*crc);
}

tt_sent tt_tcp_tx_put(tt_tcp_tx *tx, const tt_msg *m, const struct iovec *iov,
                      int n_iov)
{
    if (tx->n == TT_TCP_QUEUE || tx->unsent >= tx->ahead)
        return TT_FULL;
    tt_tcp_out *out = &tx->out[(tx->first + tx->n) % TT_TCP_QUEUE];
    out->m = *m;
    out->sent = 0;
    out->aside = NULL;
    out->is_borrowed = m->len > TT_NET_INLINE;
    choose_head(out, &tx->last);
    if (tx->is_checked)
        add_crc(out);
    tx->last = *m;
    tx->n++;
    tx->unsent += out->head_len + m->len;
    if (out->is_borrowed) {
        out->n_iov = (uint32_t)n_iov;
        memcpy(out->iov, iov, (size_t)n_iov * sizeof(*iov));
        return TT_QUEUED;
    }
    size_t used = 0;
    for (int i = 0; i < n_iov; i++) {
        memcpy(out->small + used, iov[i].iov_base, iov[i].iov_len);
        used += iov[i].iov_len;
    }
    out->n_iov = used > 0;
    out->iov[0] = (struct iovec){out->small, used};
    return TT_LEFT;
}

/* The unsent segments of one message, at most `most`. */
static int gather_one(tt_tcp_out *out, struct iovec *to, int most)
{
    int n = 0;
    size_t skip = out->sent;
    if (skip < out->head_len) {
        const char *head = out->head;
        to[n++] = (struct iovec){(void *)(uintptr_t)(head + skip),
                                 out->head_len - skip};
        skip = 0;
    } else {
        skip -= out->head_len;
    }
    for (uint32_t i = 0; i < out->n_iov && n < most; i++) {
        const struct iovec *seg = &out->iov[i];
        if (skip >= seg->iov_len) {
            skip -= seg->iov_len;
            continue;
        }
        to[n++] = (struct iovec){(char *)seg->iov_base + skip,
                                 seg->iov_len - skip};
        skip = 0;
    }
    return n;
}

int tt_tcp_tx_gather(const tt_tcp_tx *tx, struct iovec out[TT_TCP_IOV])
{
    int n = 0;
    for (uint32_t i = 0; i < tx->n && n < TT_TCP_IOV; i++) {
        tt_tcp_out *one = &tx->out[(tx->first + i) % TT_TCP_QUEUE];
        int most = TT_TCP_IOV - n;
        if (one->n_iov + 1 > (uint32_t)most && n > 0)
            break; /* only whole messages, but for the first */
        n += gather_one(one, out + n, most);
    }
    return n;
}

static void release(const tt_tcp_tx *tx, tt_tcp_out *out)
{
    tt_free(tx->mem, out->aside, out->m.len, 1);
    out->aside = NULL;
}

void tt_tcp_tx_took(tt_tcp_tx *tx, size_t n)
{
    tx->unsent -= n;
    tx->took += n;
    while (tx->n > 0) {
        tt_tcp_out *out = &tx->out[tx->first];
        uint32_t rest = out->head_len + out->m.len - out->sent;
        if (n < rest) {
            out->sent += (uint32_t)n;
            return;
        }
        n -= rest;
        release(tx, out);
        tx->first = (tx->first + 1) % TT_TCP_QUEUE;
        tx->n--;
    }
    tx->has_aside = false;
}

void tt_tcp_tx_adapt(tt_tcp_tx *tx, size_t n, size_t wanted)
{
    if (n < wanted)
        tx->ahead = TT_TCP_LEAST_AHEAD;
    else if (n >= tx->ahead && tx->ahead < TT_TCP_MOST_AHEAD)
        tx->ahead *= 2;
}

/* The whole payload, sent or not: rare, and the offsets stay as they are. */
static bool copy_aside(tt_tcp_tx *tx, tt_tcp_out *out)
{
    char *copy = tt_new(tx->mem, out->m.len, 1);
    if (!copy)
        return false;
    size_t used = 0;
    for (uint32_t i = 0; i < out->n_iov; i++) {
        memcpy(copy + used, out->iov[i].iov_base, out->iov[i].iov_len);
        used += out->iov[i].iov_len;
    }
    out->aside = copy;
    out->iov[0] = (struct iovec){copy, used};
    out->n_iov = 1;
    out->is_borrowed = false;
    tx->has_aside = true;
    return true;
}

bool tt_tcp_tx_own(tt_tcp_tx *tx)
{
    for (uint32_t i = 0; i < tx->n; i++) {
        tt_tcp_out *out = &tx->out[(tx->first + i) % TT_TCP_QUEUE];
        if (out->is_borrowed && !copy_aside(tx, out)) {
            tt_tcp_tx_clear(tx);
            return false;
        }
    }
    return true;
}

void tt_tcp_tx_clear(tt_tcp_tx *tx)
{
    for (uint32_t i = 0; i < tx->n; i++)
        release(tx, &tx->out[(tx->first + i) % TT_TCP_QUEUE]);
    tx->n = 0;
    tx->unsent = 0;
}
