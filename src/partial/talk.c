/* SPDX-License-Identifier: BSD-3-Clause
 * talk.c - see talk.h. */
#include "partial/talk.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/hostid.h"

/* More than this unsent: the other side does not read. */
static const size_t most_unsent = (size_t)64 << 20;
static const size_t read_bytes = 16384;
/* Then it is somebody else's turn: who sends faster than it is heard would fill
 * memory. */
static const size_t most_at_once = 256 * 1024;

tt_talk tt_talk_head(tt_talk_kind kind, uint64_t number, size_t len)
{
    return (tt_talk){.magic = TT_TALK_MAGIC,
                     .version = TT_TALK_VERSION,
                     .kind = (uint8_t)kind,
                     .len = (uint32_t)len,
                     .number = number};
}

bool tt_talk_is_sound(const tt_talk *head, uint64_t most_len)
{
    return head->magic == TT_TALK_MAGIC && head->version == TT_TALK_VERSION &&
           head->len <= most_len;
}

bool tt_card_is_sound(const void *bytes, size_t len)
{
    tt_card card;
    if (len < sizeof(card))
        return false;
    memcpy(&card, bytes, sizeof(card));
    size_t used = sizeof(card);
    for (int i = 0; i < TT_CARD_NETS; i++) {
        if (card.lens[i] > TT_NET_ADDR_MAX)
            return false;
        used += card.lens[i];
    }
    return used == len && card.max_payload >= TT_CARD_LEAST_PAYLOAD &&
           !tt_link_id_is_none(&card.id);
}

/* ------------------------------------------------------------------ pipe -- */

void tt_pipe_open(tt_pipe *p, const tt_mem *mem, tt_link_stream s)
{
    *p = (tt_pipe){.mem = mem, .s = s};
}

void tt_pipe_close(tt_pipe *p)
{
    if (!p->mem)
        return;
    tt_link_stream_close(&p->s);
    tt_free(p->mem, p->in, p->in_cap, 1);
    tt_free(p->mem, p->out, p->out_cap, 1);
    *p = (tt_pipe){.s.fd = -1};
}

static void append(tt_pipe *p, const void *bytes, size_t len)
{
    if (tt_grow(p->mem, (void **)(void *)&p->out, &p->out_cap, p->out_len + len,
                1)) {
        p->is_broken = true;
        return;
    }
    if (len > 0)
        memcpy(p->out + p->out_len, bytes, len);
    p->out_len += len;
}

void tt_pipe_put(tt_pipe *p, const tt_talk *head, const void *payload)
{
    if (p->s.fd < 0 || p->is_broken || p->is_deaf)
        return;
    if (p->out_at > p->out_len / 2) { /* a byte moves once, or less */
        p->out_len -= p->out_at;
        memmove(p->out, p->out + p->out_at, p->out_len);
        p->out_at = 0;
    }
    if (p->out_len - p->out_at > most_unsent) {
        p->is_broken = true;
        return;
    }
    append(p, head, sizeof(*head));
    if (!p->is_broken)
        append(p, payload, head->len);
}

/* Why it was closed may be among what was not read yet. */
static void forget_unsent(tt_pipe *p)
{
    p->is_deaf = true;
    p->out_at = p->out_len = 0;
}

bool tt_pipe_has_unsent(const tt_pipe *p)
{
    return p->out_at < p->out_len || (!p->is_deaf && tt_link_unsent(&p->s) > 0);
}

bool tt_pipe_flush(tt_pipe *p)
{
    while (p->s.fd >= 0 && !p->is_broken && tt_pipe_has_unsent(p)) {
        const struct iovec iov = {p->out + p->out_at, p->out_len - p->out_at};
        ssize_t n = tt_link_send(&p->s, &iov, 1);
        if (n >= 0)
            p->out_at += (size_t)n;
        else if (errno == EAGAIN)
            return false;
        else if (errno == EPIPE || errno == ECONNRESET)
            forget_unsent(p);
        else
            p->is_broken = true;
    }
    return true;
}

void tt_pipe_fill(tt_pipe *p)
{
    if (p->in_at > 0) {
        memmove(p->in, p->in + p->in_at, p->in_len - p->in_at);
        p->in_len -= p->in_at;
        p->in_at = 0;
    }
    const size_t before = p->in_len;
    while (p->s.fd >= 0 && !p->is_broken) {
        if (tt_grow(p->mem, (void **)(void *)&p->in, &p->in_cap,
                    p->in_len + read_bytes, 1)) {
            p->is_broken = true;
            return;
        }
        const struct iovec iov = {p->in + p->in_len, read_bytes};
        ssize_t n = tt_link_recv(&p->s, &iov, 1);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            p->is_broken = true;
        else
            p->in_len += (size_t)n;
        bool is_all = n < (ssize_t)read_bytes && tt_link_pending(&p->s) == 0;
        if (is_all || p->in_len - before >= most_at_once)
            return;
    }
}

bool tt_pipe_next(tt_pipe *p, uint64_t most_len, tt_talk *head,
                  const unsigned char **payload)
{
    size_t have = p->in_len - p->in_at;
    if (have < sizeof(*head))
        return false;
    memcpy(head, p->in + p->in_at, sizeof(*head));
    if (!tt_talk_is_sound(head, most_len)) {
        p->is_broken = true;
        p->in_at = p->in_len = 0;
        return false;
    }
    if (have < sizeof(*head) + head->len)
        return false;
    *payload = p->in + p->in_at + sizeof(*head);
    p->in_at += sizeof(*head) + head->len;
    return true;
}

/* ----------------------------------------------------------------- place -- */

uint64_t tt_place_host(void)
{
    tt_host_id id;
    tt_host_id_get(&id);
    uint64_t hash = tt_fnv1a(TT_FNV1A_START, id.boot_id, sizeof(id.boot_id));
    hash = tt_fnv1a_u64(hash, id.netns);
    return tt_fnv1a_u64(hash, id.uid);
}
