/* SPDX-License-Identifier: BSD-3-Clause
 * checked_test.c - what net/checked.c promises: a bit that is flipped once, in
 * whatever place, is named and changes nothing; twice in the same message, and
 * both sides lose the connection with a sentence; none goes unnoticed.
 * Two ranks on the loop transport, in this one thread, with chaos between; and
 * two processes over TCP whose streams flip bits. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/table.h"
#include "net/tcp/tcp.h"
#include "support/chaos.h"
#include "support/loop.h"
#include "support/net_flow.h"
#include "support/rough.h"

/* Within a head, behind it, and so that there is more than it may borrow. */
static const uint32_t sizes[] = {0, 8, 192, 193, 256, 257, 5000, 3, 1000};
enum { N_SIZES = sizeof(sizes) / sizeof(*sizes), MOST_BYTES = 5000 };

/* Log lines that name a flip. */
static unsigned n_named;
static char line[400];

static void note_line(void *arg, tutti_log_level level, const char *text)
{
    (void)arg;
    if (level > TUTTI_LOG_WARN || !strstr(text, "flipped"))
        return;
    n_named++;
    snprintf(line, sizeof(line), "%s", text);
}

typedef struct seen {
    uint64_t n;
    bool is_wrong;
} seen;

static void check(tt_peer *peer, const tt_msg *m, const void *data)
{
    static unsigned char want[MOST_BYTES];
    seen *s = peer->test;
    if (!s)
        return;
    tt_fill(want, m->len, m->seq);
    s->is_wrong |= m->seq != s->n || m->len != sizes[s->n % N_SIZES] ||
                   m->lane != 7 || memcmp(want, m->len ? data : want, m->len);
    s->n++;
}

typedef struct pair {
    tt_node node[2];
    seen seen;
    uint64_t n_sent, n_queued;
    unsigned char data[2 * N_SIZES][MOST_BYTES];
} pair;

static unsigned n_up;

static void note_up(tt_conn *conn)
{
    (void)conn;
    n_up++;
}

static void open_over(pair *p, const tt_net_ops *row)
{
    static tt_nodes nodes;
    nodes = (tt_nodes){.ops = row, .n = 2, .on_up = note_up};
    nodes.settings.shm_ring_bytes = 64 << 10;
    nodes.settings.check = TT_CHECK_CRC;
    nodes.settings.start_timeout_ns = 10 * TT_NS_PER_S;
    nodes.settings.timeout_ns = 10 * TT_NS_PER_S;
    memset(p, 0, sizeof(*p));
    n_named = 0;
    assert_int_equal(tt_nodes_local(&nodes, p->node), 0);
    p->node[1].on_arrived = check;
    p->node[1].peers[0].test = &p->seen;
}

static void open_pair(pair *p, const tt_chaos_opts *opts)
{
    open_over(p, tt_chaos_wrap(&tt_net_loop, opts));
}

static bool is_lost(const pair *p)
{
    return p->node[0].peers[1].is_lost || p->node[1].peers[0].is_lost;
}

static void poll_both(pair *p)
{
    tt_node_poll(&p->node[0], true);
    tt_node_poll(&p->node[1], true);
}

/* Of the first n messages so many are borrowed. */
static uint64_t borrowed(uint64_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < N_SIZES; i++)
        if (sizes[i] > TT_NET_INLINE)
            sum += n / N_SIZES + (n % N_SIZES > i);
    return sum;
}

/* The memory of message n has been given back by the one before. */
static bool is_free(const tt_peer *peer, uint64_t n)
{
    return n < 2 * N_SIZES || peer->n_left >= borrowed(n - 2 * N_SIZES + 1);
}

/* Rank 0 sends the next message to rank 1; false: not now. */
static bool send_next(pair *p)
{
    const uint32_t len = sizes[p->n_sent % N_SIZES];
    unsigned char *data = p->data[p->n_sent % (2 * N_SIZES)];
    const tt_msg m = {.magic = TT_MSG_MAGIC,
                      .kind = 2,
                      .len = len,
                      .seq = p->n_sent,
                      .lane = 7};
    struct iovec iov = {data, len};
    if (!is_free(&p->node[0].peers[1], p->n_sent))
        return false;
    tt_fill(data, len, p->n_sent);
    tt_sent sent = p->node[0].ops->send(p->node[0].conns[1], &m, &iov, len > 0);
    p->n_sent += sent != TT_FULL;
    p->n_queued += sent == TT_QUEUED;
    return sent != TT_FULL;
}

/* So many messages, and all that follows from them. */
static void play(pair *p, uint64_t n)
{
    for (uint64_t quiet = 0; quiet < 2000 && !is_lost(p); quiet++) {
        if (p->n_sent < n && send_next(p))
            quiet = 0;
        poll_both(p);
        if (p->seen.n == n && p->node[0].peers[1].n_left == p->n_queued)
            break;
    }
}

static void expect_all(pair *p, uint64_t n, const char *what, uint64_t which)
{
    if (p->seen.n != n || p->seen.is_wrong || is_lost(p) ||
        p->node[0].peers[1].n_left != p->n_queued)
        fail_msg("%s %llu: %llu of %llu messages came, %s, %s", what,
                 (unsigned long long)which, (unsigned long long)p->seen.n,
                 (unsigned long long)n, p->seen.is_wrong ? "wrong" : "right",
                 is_lost(p) ? p->node[1].peers[0].text : "not lost");
}

static void close_pair(pair *p)
{
    for (int r = 0; r < 2; r++)
        assert_string_equal(p->node[r].failure, "");
    tt_nodes_local_close(p->node, 2);
}

static tt_chaos_opts on_rank(uint32_t rank)
{
    tt_chaos_opts opts = TT_CHAOS_OPTS_INIT;
    opts.seed = tt_test_seed();
    opts.only_rank = rank;
    return opts;
}

/* Messages below that a rank sends for the first 2 N_SIZES. */
static uint64_t count_below(void)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < 2 * N_SIZES; i++)
        n += 1 + (sizes[i % N_SIZES] > 192);
    return n;
}

/* One bit, in every message that either side sends, words among them; in each
 * of them the first bits, the last ones, and others at random. */
static void test_one_flip(void **state)
{
    (void)state;
    static pair p;
    const uint64_t n = 2 * N_SIZES, most = count_below();
    tt_rng rng = {tt_test_seed()};
    uint64_t which = 0, n_hit = 0;
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint64_t k = 1; k <= most; k++) {
            for (int round = 0; round < 40; round++) {
                tt_chaos_opts opts = on_rank(rank);
                opts.seed += which++;
                opts.spoil_at = k;
                opts.spoil_bit = round < 16 ? (uint64_t)round * 31 : UINT64_MAX;
                if (round % 4 == 3)
                    opts.spoil_bit = tt_rng_below(&rng, 8 * MOST_BYTES);
                open_pair(&p, &opts);
                play(&p, n);
                expect_all(&p, n, rank ? "word" : "message", k);
                n_hit += n_named > 0;
                if (rank == 0 && n_named == 0 && opts.spoil_bit < 8 * 64)
                    fail_msg("message %llu: bit %llu is not named",
                             (unsigned long long)k,
                             (unsigned long long)opts.spoil_bit);
                close_pair(&p);
            }
        }
    }
    assert_true(n_hit > 20 * most);
}

/* Whatever is sent is flipped, whenever it is sent. */
static void test_two_flips(void **state)
{
    (void)state;
    static pair p;
    tt_chaos_opts opts = on_rank(0);
    opts.spoil_per_1000 = 1000;
    for (int round = 0; round < 50; round++, opts.seed++) {
        open_pair(&p, &opts);
        play(&p, 4 * N_SIZES);
        for (int i = 0; i < 100; i++)
            poll_both(&p);
        const tt_peer *from = &p.node[1].peers[0], *to = &p.node[0].peers[1];
        assert_false(p.seen.is_wrong);
        assert_true(from->is_lost && to->is_lost);
        assert_int_equal(from->why, TUTTI_EPROTO);
        assert_int_equal(to->why, TUTTI_EPROTO);
        assert_non_null(strstr(from->text,
                               "from rank 0 to rank 1 were flipped, "
                               "twice"));
        assert_non_null(strstr(from->text, "by chaos"));
        assert_true(strstr(from->text, "lane 7") ||
                    strstr(from->text, "bits of message "));
        assert_non_null(strstr(to->text, "flipped, twice"));
        assert_non_null(strstr(line, "flipped"));
        close_pair(&p);
    }
}

/* Bits are flipped on both ways until the connection is lost, then on a new
 * one: nothing wrong is ever handed up. TT_ROUNDS: so many thousands of
 * flips. */
static void test_many_flips(void **state)
{
    (void)state;
    static pair p;
    const char *text = getenv("TT_ROUNDS");
    const uint64_t wanted = (text ? strtoull(text, NULL, 0) : 20) * 1000;
    uint64_t n_flips = 0, n_lost = 0, n_right = 0;
    tt_chaos_opts opts = on_rank(TT_NONE);
    opts.spoil_per_1000 = 100;
    while (n_flips < wanted) {
        opts.seed++;
        open_pair(&p, &opts);
        play(&p, 4000);
        n_flips += n_named;
        n_lost += is_lost(&p);
        n_right += p.seen.n;
        if (!is_lost(&p))
            expect_all(&p, 4000, "round", opts.seed);
        assert_false(p.seen.is_wrong);
        close_pair(&p);
    }
    print_message("# %llu flips named, %llu messages right, %llu connections "
                  "lost\n",
                  (unsigned long long)n_flips, (unsigned long long)n_right,
                  (unsigned long long)n_lost);
}

/* What rank 0 hands to the transport below. */
static struct {
    bool is_spoilt;    /* the next message is */
    uint32_t n_room;   /* for so many more */
    uint32_t n_bodies; /* payloads of large messages */
} gate;

static tt_sent send_by_gate(tt_conn *conn, const tt_msg *m,
                            const struct iovec *iov, int n_iov)
{
    tt_msg as = *m;
    if (conn->net->rank != 0)
        return tt_net_loop.send(conn, m, iov, n_iov);
    if (gate.n_room == 0)
        return TT_FULL;
    as.kind ^= gate.is_spoilt;
    tt_sent sent = tt_net_loop.send(conn, &as, iov, n_iov);
    if (sent == TT_FULL)
        return sent;
    gate.n_room--;
    gate.is_spoilt = false;
    gate.n_bodies += m->len > TT_NET_INLINE;
    return sent;
}

/* A word by rank 0 is spoilt, so rank 1 asks for what it misses, which is on
 * the way already. Rank 0 is about to send it again (and its head has gone,
 * where there is room for that) when it is confirmed: from then on its memory
 * is not looked at. */
static void come_before_asked(uint32_t n_room)
{
    static pair p;
    tt_net_ops row = tt_net_loop;
    row.send = send_by_gate;
    gate.n_room = UINT32_MAX;
    open_over(&p, &row);
    tt_node *node = p.node;
    unsigned char *data = malloc(MOST_BYTES);
    assert_non_null(data);
    const tt_msg m = {.magic = TT_MSG_MAGIC, .kind = 2, .len = MOST_BYTES};
    const struct iovec iov = {data, MOST_BYTES};
    tt_fill(data, MOST_BYTES, 0);
    node[1].ops->send(node[1].conns[0], &m, &iov, 1);
    gate.is_spoilt = true;
    tt_node_poll(&node[0], true); /* confirms that */
    tt_node_poll(&node[1], true); /* asks for message 1 */
    assert_int_equal(n_named, 1);
    gate.n_bodies = 0;
    p.node[1].on_arrived = NULL;
    assert_int_equal(node[0].ops->send(node[0].conns[1], &m, &iov, 1),
                     TT_QUEUED);
    gate.n_room = n_room;
    tt_node_poll(&node[0], true); /* is asked */
    tt_node_poll(&node[1], true); /* has it, and confirms it */
    assert_int_equal(node[1].peers[0].n_arrived, 1);
    assert_int_equal(node[0].peers[1].n_left, 0);
    tt_node_poll(&node[0], true);
    assert_int_equal(gate.n_bodies, 1);
    assert_int_equal(node[0].peers[1].n_left, 1);
    free(data);
    gate.n_room = UINT32_MAX;
    p.node[1].on_arrived = check;
    for (int i = 0; i < 10; i++)
        poll_both(&p);
    assert_int_equal(gate.n_bodies, 1);
    p.n_queued = 1;
    play(&p, 2 * N_SIZES);
    expect_all(&p, 2 * N_SIZES, "room", n_room);
    assert_int_equal(n_named, 1);
    close_pair(&p);
}

static void test_confirmed_when_asked(void **state)
{
    (void)state;
    come_before_asked(0);
    come_before_asked(1);
}

/* A connection comes up while the net is drained: nobody is told, as nobody
 * holds the engine's lock. */
static void test_drain(void **state)
{
    (void)state;
    static pair p;
    static unsigned char data[MOST_BYTES], addr[TT_NET_ADDR_MAX];
    const tt_chaos_opts opts = on_rank(0);
    open_pair(&p, &opts);
    tt_node *node = &p.node[0];
    const tt_msg m = {.magic = TT_MSG_MAGIC, .kind = 2, .len = MOST_BYTES};
    const struct iovec iov = {data, MOST_BYTES};
    while (node->ops->send(node->conns[1], &m, &iov, 1) != TT_FULL)
        ; /* so that there is something to wait for */
    tt_peer peer = {.node = node};
    tt_conn *late = calloc(1, node->ops->conn_size);
    assert_non_null(late);
    *late = (tt_conn){.net = node->net, .peer = &peer, .rank = 1};
    peer.conn = late;
    size_t len = p.node[1].ops->address(p.node[1].net, addr, TT_NET_ADDR_MAX);
    assert_int_equal(node->ops->dial(late, addr, len, UINT64_MAX, NULL), 0);
    const unsigned before = n_up;
    node->ops->drain(node->net, tt_now_ns() + TT_NS_PER_S / 10, 0);
    assert_int_equal(n_up, before);
    assert_false(late->is_up || peer.is_lost || peer.has_missed);
    node->ops->close(late, 0);
    free(late);
    close_pair(&p);
}

/* ------------------------------------------------------------------- TCP -- */

/* The receiver drops a message in the middle of reading it: its sender hears as
 * soon as for any other that it has come, and gets the memory back. */
static void test_dropped_is_confirmed(void **state)
{
    (void)state;
    static pair p;
    static unsigned char data[TT_TCP_MAX_PAYLOAD / 2];
    open_over(&p, &tt_net_tcp);
    tt_conn *to = p.node[0].conns[1], *from = p.node[1].conns[0];
    const tt_tcp_conn *tcp = (tt_tcp_conn *)(void *)tt_node_below(from,
                                                                  &tt_net_tcp);
    const tt_msg m = {
        .magic = TT_MSG_MAGIC, .kind = 2, .len = sizeof(data), .lane = 7};
    struct iovec iov = {data, sizeof(data)};
    uint64_t n_sent = 0;
    p.node[1].peers[0].test = NULL; /* what is whole is not looked at */
    for (int i = 0; i < 1000 && tcp->strands[0].rx.left == 0; i++) {
        if (p.node[0].ops->send(to, &m, &iov, 1) != TT_FULL)
            n_sent++;
        poll_both(&p);
    }
    assert_int_not_equal(tcp->strands[0].rx.left, 0); /* in the middle of one */
    p.node[1].ops->cancel(from, true, false);
    for (int i = 0; i < 100000 && p.node[0].peers[1].n_left < n_sent; i++)
        poll_both(&p);
    assert_int_equal(p.node[0].peers[1].n_left, n_sent);
    assert_false(is_lost(&p));
    close_pair(&p);
}

enum { TCP_MESSAGES = 3000 };

/* More bytes between two flips than can be on the way: what comes again is not
 * hit again. */
static void roughen(tt_conn *conn)
{
    tt_tcp_conn *tcp = (tt_tcp_conn *)(void *)tt_node_below(conn, &tt_net_tcp);
    const tt_rough_opts o = {.seed = tt_test_seed() + conn->rank,
                             .flip_at = 1 + tt_test_seed() % 1000,
                             .flip_each = 200001};
    tt_rough_put(&tcp->strands[0].link, &o);
}

static int stream_body(tt_node *node)
{
    seen s = {0};
    uint64_t n_sent = 0;
    tt_peer *peer = &node->peers[1 - node->rank];
    static unsigned char data[2 * N_SIZES][MOST_BYTES];
    tutti_log_set(note_line, NULL);
    peer->test = &s;
    node->on_arrived = check;
    while (s.n < TCP_MESSAGES || n_sent < TCP_MESSAGES) {
        const uint32_t len = sizes[n_sent % N_SIZES];
        const tt_msg m = {.magic = TT_MSG_MAGIC,
                          .kind = 2,
                          .len = len,
                          .seq = n_sent,
                          .lane = 7};
        struct iovec iov = {data[n_sent % (2 * N_SIZES)], len};
        NODE_CHECK(node, !peer->is_lost || s.n == TCP_MESSAGES);
        if (n_sent < TCP_MESSAGES && is_free(peer, n_sent)) {
            tt_fill(iov.iov_base, len, n_sent);
            n_sent += node->ops->send(peer->conn, &m, &iov, len > 0) != TT_FULL;
        }
        tt_node_poll(node, true);
    }
    while (!peer->is_lost && peer->n_left < borrowed(TCP_MESSAGES))
        tt_node_poll(node, true);
    tt_node_close(node);
    NODE_CHECK(node, !s.is_wrong);
    NODE_CHECK(node, n_named > 3);
    return node->failure[0] != 0;
}

/* Any bit of the stream, lengths among them. */
static void test_streams(void **state)
{
    (void)state;
    tt_nodes nodes = {.ops = &tt_net_tcp,
                      .n = 2,
                      .seed = tt_test_seed(),
                      .dials = TT_DIALS_BOTH,
                      .body = stream_body,
                      .on_up = roughen};
    nodes.settings.check = TT_CHECK_CRC;
    nodes.settings.start_timeout_ns = 10 * TT_NS_PER_S;
    nodes.settings.timeout_ns = 10 * TT_NS_PER_S;
    nodes.settings.liveness_ns = TT_NS_PER_S;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_flip),
        cmocka_unit_test(test_two_flips),
        cmocka_unit_test(test_many_flips),
        cmocka_unit_test(test_confirmed_when_asked),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_dropped_is_confirmed),
        cmocka_unit_test(test_streams),
    };
    tt_test_limit(600);
    tutti_log_set(note_line, NULL);
    return TT_RUN_TAP(tests);
}
