/* SPDX-License-Identifier: BSD-3-Clause
 * net_flow.c - see net_flow.h. */
#include "support/net_flow.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* Sizes around every border; few are really large, or time goes on them. */
static uint32_t random_len(tt_rng *rng, uint32_t max)
{
    uint32_t usual = max < 16384 ? max : 16384;
    switch (tt_rng_below(rng, 8)) {
    case 0:
    case 1:
        return (uint32_t)tt_rng_below(rng, 10);
    case 2:
    case 3:
        return (uint32_t)tt_rng_below(rng, 300);
    case 4:
        return TT_NET_INLINE - 1 + (uint32_t)tt_rng_below(rng, 3);
    case 5:
        if (tt_rng_below(rng, 8) == 0)
            usual = max;
        return usual - (uint32_t)tt_rng_below(rng, 2);
    default:
        return (uint32_t)tt_rng_below(rng, usual + 1);
    }
}

void tt_fill(unsigned char *to, size_t n, uint64_t seed)
{
    tt_rng rng = {seed};
    for (; n >= 8; n -= 8, to += 8) {
        uint64_t word = tt_rng_next(&rng);
        memcpy(to, &word, 8);
    }
    uint64_t word = tt_rng_next(&rng);
    memcpy(to, &word, n);
}

static tt_msg make(tt_rng *rng, uint64_t seq, uint32_t max, unsigned char *to)
{
    tt_msg m = {.magic = TT_MSG_MAGIC,
                .kind = (uint8_t)tt_rng_below(rng, 255),
                .flags = (uint8_t)tt_rng_next(rng),
                .comm = tt_rng_next(rng),
                .channel = tt_rng_next(rng),
                .seq = seq,
                .fingerprint = tt_rng_next(rng),
                .lane = (uint32_t)tt_rng_next(rng),
                .slice = (uint32_t)tt_rng_next(rng)};
    m.len = random_len(rng, max);
    tt_fill(to, m.len, m.fingerprint);
    return m;
}

static uint64_t pair_seed(const tt_node *node, uint32_t src, uint32_t dst)
{
    uint64_t hash = tt_fnv1a_u64(TT_FNV1A_START, node->nodes->seed);
    return tt_fnv1a_u64(tt_fnv1a_u64(hash, src), dst);
}

static tt_flow *flow_new(tt_node *node, uint32_t rank)
{
    tt_flow *f = calloc(1, sizeof(*f));
    size_t room = node->net->max_payload + 8;
    f->out.state = pair_seed(node, node->rank, rank);
    f->in.state = pair_seed(node, rank, node->rank);
    f->cuts.state = f->out.state ^ 1;
    for (int i = 0; i < FLOW_SLOTS; i++)
        f->slot[i] = tt_node_alloc(node, room);
    f->expected = malloc(room);
    return f;
}

void tt_flows_open(tt_node *node)
{
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        if (r != node->rank)
            node->peers[r].test = flow_new(node, r);
    }
}

void tt_flows_close(tt_node *node)
{
    tt_node_close(node);
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        tt_flow *f = node->peers[r].test;
        for (int i = 0; f && i < FLOW_SLOTS; i++)
            tt_node_free(node, f->slot[i]);
        if (f)
            free(f->expected);
        free(f);
        node->peers[r].test = NULL;
    }
}

static int cut(tt_flow *f, unsigned char *data, uint32_t len, struct iovec *iov)
{
    int n = (int)tt_rng_below(&f->cuts, 4);
    if (n == 3)
        n = (int)tt_rng_below(&f->cuts, TT_NET_IOV_MAX);
    for (int i = 0; i < n; i++) {
        uint32_t part = (uint32_t)tt_rng_below(&f->cuts, len + 1);
        iov[i] = (struct iovec){.iov_base = data, .iov_len = part};
        data += part;
        len -= part;
    }
    if (len > 0 || n == 0) {
        iov[n] = (struct iovec){.iov_base = data, .iov_len = len};
        n++;
    }
    return n;
}

bool tt_flow_send(tt_peer *peer)
{
    tt_flow *f = peer->test;
    tt_node *node = peer->node;
    if (f->n_queued - peer->n_left >= FLOW_SLOTS)
        return false;
    unsigned char *data = f->slot[f->n_queued % FLOW_SLOTS];
    if (!f->is_made)
        f->m = make(&f->out, f->n_sent, node->net->max_payload, data);
    f->is_made = true;
    struct iovec iov[TT_NET_IOV_MAX];
    int n = cut(f, data, f->m.len, iov);
    tt_sent sent = node->ops->send(peer->conn, &f->m, iov, n);
    if (sent == TT_FULL)
        return false;
    if (sent == TT_QUEUED && f->m.len <= TT_NET_INLINE)
        tt_node_fail(node, __FILE__, __LINE__, "a small payload is borrowed");
    if (sent == TT_QUEUED)
        f->n_queued++;
    else
        memset(data, 0xee, f->m.len);
    f->is_made = false;
    f->n_sent++;
    return true;
}

void tt_flow_arrived(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_flow *f = peer->test;
    tt_node *node = peer->node;
    tt_msg want = make(&f->in, f->n_got, node->net->max_payload, f->expected);
    f->n_got++;
    if (memcmp(&want, m, sizeof(want)) != 0)
        tt_node_fail(node, __FILE__, __LINE__, "another header than sent");
    else if (m->len > 0 && memcmp(f->expected, data, m->len) != 0)
        tt_node_fail(node, __FILE__, __LINE__, "another payload than sent");
}
