/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_wire.c - any bytes may come from a TCP connection, in any pieces, and
 * any bytes may be told as a rank's addresses. What is handed up is what a
 * plain reading of the same bytes finds; nothing is written outside of the
 * place that was given; what goes on after a bad header is nothing. */
#include "support/fuzz_main.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "net/tcp/tcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define MAX_PAYLOAD 70000

/* The reader's own idea of the stream. */
typedef struct plain {
    const uint8_t *data;
    size_t len, at;
    tt_msg last;          /* before that place; magic 0: none */
    unsigned char *place; /* exactly m.len bytes, so that tools see overruns */
    tt_msg placed;
    tt_tcp_rx *rx;
    tt_rng rng;
} plain;

/* What begins there, where it is whole: its bytes, else 0. */
static size_t read_head(const plain *p, tt_msg *m)
{
    const size_t rest = p->len - p->at;
    tt_tcp_brief b;
    *m = p->last;
    if (rest >= sizeof(b)) {
        memcpy(&b, p->data + p->at, sizeof(b));
        if (b.magic == TT_TCP_BRIEF) {
            m->magic = p->last.magic ? TT_MSG_MAGIC : 0;
            m->kind = b.kind;
            m->flags = b.flags;
            m->len = b.len;
            m->slice = b.slice;
            m->lane = b.lane;
            m->seq += b.n_calls;
            return sizeof(b);
        }
    }
    if (rest < sizeof(*m))
        return 0;
    memcpy(m, p->data + p->at, sizeof(*m));
    return sizeof(*m);
}

static bool is_header(const tt_msg *m)
{
    return m->magic == TT_MSG_MAGIC && m->len <= MAX_PAYLOAD;
}

/* The same, behind the transport's own words, which nobody is told. */
static size_t next_head(plain *p, tt_msg *m)
{
    size_t n = read_head(p, m);
    while (n > 0 && is_header(m) && m->kind == TT_TCP_END && m->len == 0) {
        p->last = *m;
        p->at += n;
        n = read_head(p, m);
    }
    return n;
}

static void *on_place(void *arg, const tt_msg *m)
{
    plain *p = arg;
    if (p->place)
        tt_fuzz_fail("a second place before the first message is whole");
    if (m->len == 0 || m->len > MAX_PAYLOAD)
        tt_fuzz_fail("a place for a payload that cannot be");
    p->place = malloc(m->len);
    p->placed = *m;
    if (!p->place)
        abort();
    return p->place;
}

static void on_arrived(void *arg, const tt_msg *m, const void *payload)
{
    plain *p = arg;
    tt_msg came;
    size_t n_head = next_head(p, &came);
    if (n_head == 0 || p->at + n_head + m->len > p->len ||
        memcmp(&came, m, sizeof(*m)) != 0)
        tt_fuzz_fail("a header that did not come");
    p->last = came;
    p->at += n_head;
    if ((m->len > 0) != (payload != NULL))
        tt_fuzz_fail("a payload without bytes, or bytes without payload");
    if (m->len > 0 && ((p->place && payload != p->place) ||
                       (uintptr_t)payload % sizeof(uint64_t) != 0 ||
                       memcmp(p->data + p->at, payload, m->len) != 0))
        tt_fuzz_fail("another payload than came");
    p->at += m->len;
    free(p->place);
    p->place = NULL;
}

static const tt_net_up upcalls = {.place = on_place, .arrived = on_arrived};

static size_t feed(tt_tcp_rx *rx, const uint8_t *from, size_t n)
{
    struct iovec iov[2];
    int n_iov = tt_tcp_rx_want(rx, iov);
    size_t used = 0;
    for (int i = 0; i < n_iov && used < n; i++) {
        size_t part = iov[i].iov_len < n - used ? iov[i].iov_len : n - used;
        if (part == 0)
            tt_fuzz_fail("an empty segment to read into");
        memcpy(iov[i].iov_base, from + used, part);
        used += part;
    }
    return used;
}

/* As cancel() does in the middle of a payload: it is skipped from then on. */
static void drop(plain *p)
{
    if (p->rx->left == 0 || p->rx->is_dropping)
        return;
    tt_tcp_rx_drop(p->rx);
    tt_msg came;
    size_t n_head = next_head(p, &came);
    p->at += n_head + p->placed.len;
    p->last = came;
    free(p->place);
    p->place = NULL;
}

static void check_stream(const uint8_t *data, size_t len, uint64_t seed)
{
    plain p = {.data = data, .len = len, .rng = {seed}};
    tt_tcp_rx rx = {.buf = malloc(TT_TCP_BUF),
                    .up = &upcalls,
                    .peer = &p,
                    .max_payload = MAX_PAYLOAD,
                    .tail = TT_TCP_BUF};
    p.rx = &rx;
    if (!rx.buf)
        abort();
    bool is_good = true;
    for (size_t at = 0; at < len && is_good;) {
        size_t n = 1 + tt_rng_below(&p.rng, 200);
        if (tt_rng_below(&p.rng, 4) == 0)
            n = len;
        n = feed(&rx, data + at, n < len - at ? n : len - at);
        tt_msg bad;
        is_good = tt_tcp_rx_took(&rx, n, &bad);
        at += n;
        if (is_good && tt_rng_below(&p.rng, 16) == 0)
            drop(&p);
    }
    tt_msg next;
    bool has_header = p.at <= len && next_head(&p, &next) > 0;
    if (!is_good && (!has_header || is_header(&next)))
        tt_fuzz_fail("a good header was refused");
    if (is_good && has_header && !is_header(&next))
        tt_fuzz_fail("a bad header was taken");
    free(p.place);
    free(rx.buf);
}

/* What a host with an address of every kind makes of the card. */
static void check_ways(const tt_link_card *card)
{
    tt_iface own[TT_IFACE_ORDERS];
    memset(own, 0, sizeof(own));
    for (int i = 0; i < TT_IFACE_ORDERS; i++) {
        own[i].order = (tt_iface_order)i;
        own[i].name[0] = (char)('a' + i);
        own[i].prefix = 8;
        tt_addr_numeric(i == TT_IFACE_LINK_LOCAL ? "fe80::1" : "10.0.0.1", 0,
                        &own[i].addr);
    }
    tt_link_card mine = {.netns = card->uid & 1 ? card->netns : 1};
    tt_link_here here = {.card = &mine,
                         .interfaces = "",
                         .ifaces = own,
                         .n_ifaces = TT_IFACE_ORDERS};
    tt_link_hint hint = {.dev = card->uid & 2 ? "a" : NULL,
                         .is_forwarded = card->uid & 4};
    tt_link_way ways[TT_LINK_WAYS];
    size_t n = tt_link_ways(&here, card, &hint, ways);
    if (n > TT_LINK_WAYS)
        tt_fuzz_fail("more ways than there is room for");
    for (size_t i = 0; i < n; i++) {
        char text[TT_SOCK_TEXT];
        tt_addr_text(&ways[i].to, text);
        if (i > 0 && ways[i].cost < ways[i - 1].cost)
            tt_fuzz_fail("ways out of order");
    }
}

static void check_card(const uint8_t *data, size_t len)
{
    tt_link_card card;
    size_t used;
    if (!tt_link_card_read(&card, data, len, &used))
        return;
    if (used > len || tt_link_card_bytes(&card) != used ||
        memcmp(&card, data, used) != 0)
        tt_fuzz_fail("a card that is not what came");
    check_ways(&card);
}

/* The first byte says how the rest comes in pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    check_card(data, len);
    if (len > 0)
        check_stream(data + 1, len - 1, data[0]);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/wire",
                        LLVMFuzzerTestOneInput);
}
#endif
