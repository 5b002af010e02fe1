/* SPDX-License-Identifier: BSD-3-Clause
 * net_test.c - what net.h promises, checked on every row of the table:
 * contents, order, back-pressure, sleep and wake, cancel, close, death, leaks.
 * Messages come from support/net_flow.h. */
#include "support/tap.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "net/table.h"
#include "net/tcp/tcp.h"
#include "support/cases.h"
#include "support/chaos.h"
#include "support/growth.h"
#include "support/loop.h"
#include "support/net_flow.h"
#include "support/rough.h"
#include "support/ucx.h"

#define RING_BYTES (64 << 10) /* small: it wraps and fills often */

/* ------------------------------------------------------- contents, order */

typedef struct exchange_arg {
    uint64_t n_messages; /* of every ordered pair */
} exchange_arg;

/* Sends what can be sent; *is_done: all is sent and received. Returns whether
 * anything was sent. */
static bool exchange_send(tt_node *node, uint64_t n_messages, bool *is_done)
{
    bool moved = false;
    *is_done = true;
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        tt_peer *peer = &node->peers[r];
        tt_flow *f = peer->test;
        if (!f)
            continue;
        for (int i = 0; i < 8 && f->n_sent < n_messages; i++) {
            if (!tt_flow_send(peer))
                break;
            moved = true;
        }
        *is_done &= f->n_sent == n_messages && f->n_got == n_messages &&
                    f->n_queued == peer->n_left;
    }
    return moved;
}

static int exchange_check(tt_node *node, uint64_t n_messages)
{
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        const tt_peer *peer = &node->peers[r];
        const tt_flow *f = peer->test;
        /* Who has left had got everything, and had sent everything. */
        NODE_CHECK(node, !f || !peer->is_lost || f->n_got == n_messages);
    }
    return 0;
}

/* Where tcp is not wrapped, so that its streams can be seen. */
static bool is_sealed(const tt_node *node)
{
    bool is_all = true;
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        const tt_tcp_conn *conn = (const tt_tcp_conn *)node->conns[r];
        if (r == node->rank || conn->base.net->ops != &tt_net_tcp)
            continue;
        for (uint32_t i = 0; i < conn->n_strands; i++)
            is_all &= conn->strands[i].link.layer != NULL;
    }
    return is_all;
}

static int exchange_body(tt_node *node)
{
    const exchange_arg *arg = node->nodes->arg;
    tt_flows_open(node);
    node->on_arrived = tt_flow_arrived;
    for (uint32_t r = 0; r < node->n_ranks; r++)
        NODE_CHECK(node, r == node->rank || node->conns[r]->is_up);
    NODE_CHECK(node, !node->nodes->secret || is_sealed(node));
    bool is_done = false;
    while (!is_done && !node->failure[0]) {
        if (exchange_send(node, arg->n_messages, &is_done))
            tt_node_poll(node, false);
        else if (!is_done && !tt_node_turn(node))
            break;
        exchange_check(node, arg->n_messages);
    }
    tt_flows_close(node);
    return node->failure[0] != 0;
}

/* What the promises are checked on: every row of the table, shm once more with
 * payloads that it need not copy, and tcp with other streams. */
typedef struct net_case {
    const char *name;
    const tt_net_ops *ops;
    bool is_direct;
    uint64_t sockets;    /* of TCP; 0: one */
    const char *ucx_tls; /* of the transport ucx */
    bool is_sealed;      /* there is a secret */
    bool is_rough;       /* streams of TCP take and give bytes as they like */
    bool is_checked;     /* net/checked.c is over it */
} net_case;

/* The two sides read and write by other seeds. */
static void roughen(tt_conn *conn)
{
    tt_tcp_conn *tcp = (tt_tcp_conn *)(void *)tt_node_below(conn, &tt_net_tcp);
    for (uint32_t i = 0; i < tcp->n_strands; i++) {
        const tt_rough_opts o = {.seed = tt_test_seed() + conn->net->rank * 64 +
                                         conn->rank * 1000 + i};
        tt_rough_put(&tcp->strands[i].link, &o);
    }
}

/* The test ends here where the case cannot be had. */
static void need(const net_case *c)
{
    const char *lack = c->ucx_tls ? tt_ucx_use(c->ucx_tls) : NULL;
    if (c->is_sealed && !TT_HAVE_OPENSSL)
        lack = "built without OpenSSL";
    if (!lack)
        return;
    print_message("# skipped: %s\n", lack);
    skip();
}

static tt_nodes base_nodes(const net_case *c, uint32_t n)
{
    need(c);
    tt_nodes nodes = {.ops = c->ops, .n = n, .seed = tt_test_seed()};
    nodes.is_threads = c->ops == &tt_net_loop;
    nodes.is_direct = c->is_direct;
    nodes.dials = TT_DIALS_BOTH; /* of two dials at once one stays */
    nodes.settings.shm_direct_bytes = c->is_direct;
    nodes.settings.shm_ring_bytes = RING_BYTES;
    nodes.settings.sockets = c->sockets;
    nodes.settings.check = c->is_checked ? TT_CHECK_CRC : TT_CHECK_OFF;
    nodes.secret = c->is_sealed ? "0123456789abcdef0123456789abcdef" : NULL;
    nodes.settings.start_timeout_ns = 10 * TT_NS_PER_S;
    nodes.settings.timeout_ns = 10 * TT_NS_PER_S;
    nodes.settings.liveness_ns = TT_NS_PER_S;
    nodes.on_up = c->is_rough ? roughen : NULL;
    return nodes;
}

static void test_exchange(void **state)
{
    exchange_arg arg = {.n_messages = 600};
    for (uint32_t n = 2; n <= 5; n += TT_CASE_SANITIZED ? 3 : 1) {
        tt_nodes nodes = base_nodes(*state, n);
        nodes.body = exchange_body;
        arg.n_messages = n == 2 ? 2000 : 300;
        nodes.arg = &arg;
        assert_int_equal(tt_nodes_run(&nodes), 0);
    }
}

/* The same when the transport refuses and delays at random: the engine may
 * meet that any time, so this test's own flows must stand it too. */
static void test_mischief(void **state)
{
    tt_chaos_opts opts = TT_CHAOS_OPTS_INIT;
    opts.seed = tt_test_seed();
    opts.full_per_1000 = 200;
    opts.delay_per_1000 = 100;
    opts.delay_turns = 20;
    exchange_arg arg = {.n_messages = 400};
    const net_case *c = *state;
    tt_nodes nodes = base_nodes(c, 3);
    nodes.ops = tt_chaos_wrap(c->ops, &opts);
    nodes.on_up = NULL; /* it would be given the wrap */
    nodes.body = exchange_body;
    nodes.arg = &arg;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

/* --------------------------------------------------------- sleep and wake */

#define TOKEN_ROUNDS 1500

/* A token goes round; everybody sleeps until it comes. */
static int token_body(tt_node *node)
{
    tt_rng rng = {node->nodes->seed + node->rank};
    uint32_t next = (node->rank + 1) % node->n_ranks;
    uint32_t before = (node->rank + node->n_ranks - 1) % node->n_ranks;
    for (uint64_t round = 1; round <= TOKEN_ROUNDS; round++) {
        while (node->rank != 0 && node->peers[before].n_arrived < round) {
            NODE_CHECK(node, !node->peers[before].is_lost);
            NODE_CHECK(node, tt_node_turn(node));
        }
        /* From nothing to a few microseconds: to hit every gap between
         * looking and sleeping. */
        for (uint64_t i = tt_rng_below(&rng, 3000); i > 0; i--)
            TT_CPU_RELAX();
        tt_msg m = {.magic = TT_MSG_MAGIC, .len = 8, .seq = round};
        struct iovec iov = {.iov_base = &round, .iov_len = 8};
        while (node->ops->send(node->conns[next], &m, &iov, 1) == TT_FULL)
            NODE_CHECK(node, tt_node_turn(node));
        if (node->ops->flush)
            node->ops->flush(node->conns[next]);
        while (node->rank == 0 && node->peers[before].n_arrived < round) {
            NODE_CHECK(node, !node->peers[before].is_lost);
            NODE_CHECK(node, tt_node_turn(node));
        }
    }
    return 0;
}

static void test_token(void **state)
{
    tt_nodes nodes = base_nodes(*state, 3);
    nodes.body = token_body;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

static void nap_ms(long ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&ts, NULL);
}

/* Rank 0 sends into a receiver that does not look, has to be told "full", and
 * must be woken when there is room. */
static int full_body(tt_node *node)
{
    tt_flows_open(node);
    node->on_arrived = tt_flow_arrived;
    tt_flow *f = node->peers[1 - node->rank].test;
    const uint64_t most = 20000;
    bool was_full = false;
    if (node->rank == 0) {
        while (f->n_sent < most && !was_full) {
            was_full = !tt_flow_send(&node->peers[1]);
            tt_node_poll(node, false);
        }
        for (uint64_t goal = f->n_sent + 300; f->n_sent < goal;) {
            if (!tt_flow_send(&node->peers[1]) && !tt_node_turn(node))
                break;
        }
        while (f->n_queued != node->peers[1].n_left && tt_node_turn(node))
            continue;
    } else {
        nap_ms(150);
        while (!node->peers[0].is_lost && tt_node_turn(node))
            continue;
    }
    uint64_t n = f->n_sent + f->n_got;
    tt_flows_close(node);
    NODE_CHECK(node, node->rank != 0 || was_full);
    NODE_CHECK(node, n >= 300);
    return node->failure[0] != 0;
}

static void test_full(void **state)
{
    tt_nodes nodes = base_nodes(*state, 2);
    nodes.body = full_body;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

/* ---------------------------------------------------------------- cancel */

#define CANCEL_ROUNDS 40

/* The sender cancels after every message and spoils the payload at once. */
static int cancel_sender(tt_node *node)
{
    tt_peer *peer = &node->peers[1];
    uint32_t len = node->net->max_payload;
    unsigned char *data = tt_node_alloc(node, len);
    for (uint64_t i = 0; i < CANCEL_ROUNDS && !node->failure[0]; i++) {
        tt_fill(data, len, i);
        tt_msg m = {.magic = TT_MSG_MAGIC, .len = len, .seq = i};
        struct iovec iov = {.iov_base = data, .iov_len = len};
        while (node->ops->send(node->conns[1], &m, &iov, 1) == TT_FULL) {
            if (!tt_node_turn(node))
                break;
        }
        if (i % 2)
            tt_node_poll(node, false);
        while (!node->ops->cancel(node->conns[1], true, false))
            tt_node_poll(node, false);
        uint64_t n_left = peer->n_left;
        memset(data, 0xee, len);
        tt_node_poll(node, false);
        if (peer->n_left != n_left)
            tt_node_fail(node, __FILE__, __LINE__, "left() after cancel()");
    }
    tt_node_close(node);
    tt_node_free(node, data);
    return node->failure[0] != 0;
}

static void cancel_arrived(tt_peer *peer, const tt_msg *m, const void *data)
{
    unsigned char *want = malloc(m->len);
    tt_fill(want, m->len, m->seq);
    uint64_t *next = peer->test;
    if (m->seq < *next || memcmp(want, data, m->len) != 0)
        tt_node_fail(peer->node, __FILE__, __LINE__, "a spoilt payload");
    *next = m->seq + 1;
    free(want);
}

/* The receiver cancels whenever it is in the middle of a payload. */
static int cancel_receiver(tt_node *node)
{
    tt_peer *peer = &node->peers[0];
    uint64_t next = 0;
    uint64_t n_dropped = 0;
    peer->test = &next;
    node->on_arrived = cancel_arrived;
    while (!peer->is_lost && !node->failure[0]) {
        uint64_t before = peer->n_arrived;
        if (!tt_node_turn(node))
            break;
        if (peer->n_placed > peer->n_arrived + n_dropped &&
            peer->n_arrived == before && n_dropped < CANCEL_ROUNDS / 2) {
            n_dropped++;
            node->ops->cancel(node->conns[0], true, true);
            memset(peer->place, 0, node->net->max_payload);
        }
    }
    NODE_CHECK(node, peer->n_arrived + n_dropped == CANCEL_ROUNDS);
    return 0;
}

static int cancel_body(tt_node *node)
{
    return node->rank == 0 ? cancel_sender(node) : cancel_receiver(node);
}

static void test_cancel(void **state)
{
    tt_nodes nodes = base_nodes(*state, 2);
    nodes.body = cancel_body;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

/* -------------------------------------------------------------- borrowing */

enum { MOST_LOANS = 800, LOAN_BYTES = 64 << 10 };

/* Messages that wait as borrowed or have left, in order. */
typedef struct loans {
    unsigned char *data[MOST_LOANS];
    uint32_t len[MOST_LOANS];
    uint32_t n, n_spoilt;
    uint64_t n_sent;
} loans;

/* What has left is the program's again, which writes to it. */
static void spoil_what_left(tt_node *node, loans *l)
{
    for (; l->n_spoilt < node->peers[1].n_left; l->n_spoilt++)
        memset(l->data[l->n_spoilt], 0xee, l->len[l->n_spoilt]);
}

static bool send_loan(tt_node *node, loans *l, uint32_t len)
{
    if (l->n == MOST_LOANS)
        return false;
    unsigned char *data = tt_node_alloc(node, len);
    tt_fill(data, len, l->n_sent);
    const tt_msg m = {.magic = TT_MSG_MAGIC, .len = len, .seq = l->n_sent};
    const struct iovec iov = {.iov_base = data, .iov_len = len};
    tt_sent sent = node->ops->send(node->conns[1], &m, &iov, 1);
    l->n_sent += sent != TT_FULL;
    if (sent == TT_QUEUED) {
        l->len[l->n] = len;
        l->data[l->n++] = data;
    } else {
        tt_node_free(node, data);
    }
    tt_node_poll(node, false);
    spoil_what_left(node, l);
    return sent != TT_FULL;
}

/* Where a transport has several streams this fills one of them, and then sends
 * what the others have room for. */
static int loan_sender(tt_node *node)
{
    static loans l;
    l = (loans){.n = 0};
    uint32_t most = node->net->max_payload;
    uint32_t large = most < LOAN_BYTES ? most : LOAN_BYTES;
    while (send_loan(node, &l, large) && l.n == node->peers[1].n_left) {
        send_loan(node, &l, large / 16);
        send_loan(node, &l, large / 16);
    }
    for (int i = 0; i < 200; i++)
        send_loan(node, &l, 1000);
    while (node->peers[1].n_left < l.n && tt_node_turn(node))
        spoil_what_left(node, &l);
    uint64_t n_back = node->peers[1].n_left;
    tt_node_close(node);
    for (uint32_t i = 0; i < l.n; i++)
        tt_node_free(node, l.data[i]);
    NODE_CHECK(node, n_back == l.n);
    return node->failure[0] != 0;
}

static int loan_body(tt_node *node)
{
    if (node->rank == 0)
        return loan_sender(node);
    uint64_t next = 0;
    node->peers[0].test = &next;
    node->on_arrived = cancel_arrived;
    nap_ms(300);
    while (!node->peers[0].is_lost && tt_node_turn(node))
        continue;
    return node->failure[0] != 0;
}

static void test_loans(void **state)
{
    tt_nodes nodes = base_nodes(*state, 2);
    nodes.body = loan_body;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

/* ------------------------------------------------------- close and death */

/* Rank 0 sends what it can and leaves at once; rank 1 looks late, and must
 * get all of it, then be told. */
static int leave_body(tt_node *node)
{
    tt_flows_open(node);
    node->on_arrived = tt_flow_arrived;
    if (node->rank == 0) {
        for (int i = 0; i < 5 && tt_flow_send(&node->peers[1]); i++)
            tt_node_poll(node, false);
        const tt_flow *f = node->peers[1].test;
        uint64_t n_sent = f->n_sent;
        tt_flows_close(node);
        NODE_CHECK(node, n_sent > 0);
        return 0;
    }
    nap_ms(100);
    while (!node->peers[0].is_lost && tt_node_turn(node))
        continue;
    const tt_flow *f = node->peers[0].test;
    uint64_t n_got = f->n_got;
    tt_flows_close(node);
    NODE_CHECK(node, node->peers[0].is_lost);
    NODE_CHECK(node, node->peers[0].why == TUTTI_EPEER);
    NODE_CHECK(node, n_got == 5 || (n_got > 0 && n_got < 5));
    return 0;
}

static void test_leave(void **state)
{
    tt_nodes nodes = base_nodes(*state, 2);
    nodes.body = leave_body;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

typedef struct death_arg {
    enum { DIE_ALONE, DIE_WITH_CHILD, DIE_WITH_CAREFUL_CHILD } how;
} death_arg;

/* Leaves a child behind that has inherited all descriptors. */
static void leave_child(bool is_careful)
{
    if (fork() != 0)
        return;
    if (is_careful)
        tt_fork_child();
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
    alarm(9);
    for (;;)
        pause();
}

/* A library does it: what a process sent last goes down with it, and there are
 * descriptors that nobody else knows. */
static bool is_foreign(const tt_node *node)
{
    return strcmp(node->ops->name, "ucx") == 0;
}

static void say_nothing(tt_node *node, uint32_t to)
{
    const tt_msg m = {.magic = TT_MSG_MAGIC};
    while (node->ops->send(node->conns[to], &m, NULL, 0) == TT_FULL)
        tt_node_turn(node);
    tt_node_poll(node, false);
}

static int death_victim(tt_node *node)
{
    const death_arg *arg = node->nodes->arg;
    enum { LEN = 2 * TT_NET_INLINE }; /* may be borrowed until the end */
    void *data = tt_node_alloc(node, LEN);
    for (uint64_t i = 0; i < 10; i++) {
        for (uint32_t r = 0; r < node->n_ranks; r++) {
            tt_msg m = {.magic = TT_MSG_MAGIC, .len = LEN, .seq = i};
            struct iovec iov = {.iov_base = data, .iov_len = LEN};
            if (r != node->rank)
                node->ops->send(node->conns[r], &m, &iov, 1);
        }
        tt_node_poll(node, false);
        nap_ms(3);
    }
    while (is_foreign(node) &&
           (node->peers[0].n_arrived == 0 || node->peers[2].n_arrived == 0))
        NODE_CHECK(node, tt_node_turn(node));
    if (arg->how != DIE_ALONE)
        leave_child(arg->how == DIE_WITH_CAREFUL_CHILD);
    raise(SIGKILL);
    return 1;
}

static int death_body(tt_node *node)
{
    if (node->rank == 1)
        return death_victim(node);
    tt_peer *victim = &node->peers[1];
    while (victim->n_arrived < 10 && !victim->is_lost)
        NODE_CHECK(node, tt_node_turn(node));
    if (is_foreign(node))
        say_nothing(node, 1);
    uint64_t start = tt_now_ns();
    while (!victim->is_lost)
        NODE_CHECK(node, tt_node_turn(node));
    NODE_CHECK(node, tt_now_ns() - start < 8 * TT_NS_PER_S);
    NODE_CHECK(node, victim->n_arrived == 10);
    NODE_CHECK(node, victim->why == TUTTI_EPEER || victim->why == TUTTI_ENET);
    NODE_CHECK(node, strstr(victim->text, "1") != NULL);
    /* The living go on: rank 0 and rank 2 still talk. */
    uint32_t other = 2 - node->rank;
    tt_msg m = {.magic = TT_MSG_MAGIC};
    NODE_CHECK(node, node->ops->send(node->conns[1], &m, NULL, 0) == TT_FULL);
    NODE_CHECK(node,
               node->ops->send(node->conns[other], &m, NULL, 0) != TT_FULL);
    tt_node_poll(node, false);
    while (node->peers[other].n_arrived < 1)
        NODE_CHECK(node, tt_node_turn(node));
    return 0;
}

static void test_death(void **state)
{
    const net_case *c = *state;
    for (int how = DIE_ALONE; how <= DIE_WITH_CAREFUL_CHILD; how++) {
        /* Between hosts a socket that a child holds hides the death: that is
         * what tt_fork_child() is for. */
        if (how == DIE_WITH_CHILD && !c->ops->same_host)
            continue;
        death_arg arg = {.how = (int)how};
        tt_nodes nodes = base_nodes(c, 3);
        nodes.body = death_body;
        nodes.arg = &arg;
        nodes.n_killed = 1;
        assert_int_equal(tt_nodes_run(&nodes), 0);
    }
}

/* A child that does what the atfork handler does keeps no descriptor and no
 * mapping, and its parent's connections stay alive. */
static int fork_body(tt_node *node)
{
    uint32_t other = 1 - node->rank;
    void *data = tt_node_alloc(node, 1);
    pid_t pid = fork();
    if (pid == 0) {
        tt_fork_child();
        bool has_none = is_foreign(node) || tt_count_fds() == node->n_fds;
        _exit(has_none && tt_count_mappings() == 0 ? 0 : 1);
    }
    int status = -1;
    NODE_CHECK(node, waitpid(pid, &status, 0) == pid);
    NODE_CHECK(node, status == 0);
    tt_node_free(node, data);
    tt_msg m = {.magic = TT_MSG_MAGIC};
    NODE_CHECK(node,
               node->ops->send(node->conns[other], &m, NULL, 0) == TT_LEFT);
    tt_node_poll(node, false);
    while (node->peers[other].n_arrived < 1)
        NODE_CHECK(node, tt_node_turn(node));
    return 0;
}

static void test_fork(void **state)
{
    tt_nodes nodes = base_nodes(*state, 2);
    nodes.body = fork_body;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

/* ----------------------------------------------------------------- tables */

static void expect_whole(const tt_net_ops *ops)
{
    assert_true(ops->net_size >= sizeof(tt_net));
    assert_true(ops->conn_size >= sizeof(tt_conn));
    assert_non_null(ops->open);
    assert_non_null(ops->address);
    assert_non_null(ops->dial);
    assert_non_null(ops->send);
    assert_non_null(ops->progress);
    assert_non_null(ops->arm);
    assert_non_null(ops->cancel);
    assert_non_null(ops->close);
    assert_non_null(ops->fini);
    const tt_net_within *within = ops->within;
    assert_true(!within || (within->grant && within->withdraw &&
                            within->reach && within->hold && within->release));
}

static void test_table(void **state)
{
    (void)state;
    for (const tt_net_ops *const *row = tt_transports; *row; row++) {
        assert_true(tt_transport_find((*row)->name) == *row);
        expect_whole(*row);
    }
    expect_whole(&tt_net_loop);
    assert_null(tt_transport_find("loop")); /* for tests alone */
    assert_null(tt_transport_find("pigeon"));
}

static const struct {
    const char *name;
    void (*run)(void **state);
    bool needs_processes; /* threads cannot be killed one by one */
} promises[] = {
    {"contents and order", test_exchange, false},
    {"contents and order under mischief", test_mischief, false},
    {"no wake-up is lost", test_token, false},
    {"back-pressure", test_full, false},
    {"cancel", test_cancel, false},
    {"what is borrowed is not told to have left", test_loans, false},
    {"close delivers", test_leave, false},
    {"a death is noticed", test_death, true},
    {"a child keeps nothing", test_fork, true},
};
#define N_PROMISES (sizeof(promises) / sizeof(promises[0]))

int main(void)
{
    enum { MOST = 18 };
    static net_case cases[MOST];
    static struct CMUnitTest tests[MOST * N_PROMISES + 1];
    static char names[MOST * N_PROMISES][64];
    size_t n_cases = 0, n = 0;
    cases[n_cases++] = (net_case){.name = "loop", .ops = &tt_net_loop};
    const tt_net_ops *ucx = tt_transport_find("ucx"); /* NULL: not built */
    for (const tt_net_ops *const *row = tt_transports; *row; row++) {
        if (*row != ucx)
            cases[n_cases++] = (net_case){.name = (*row)->name, .ops = *row};
    }
    cases[n_cases++] = (net_case){
        .name = "shm, direct", .ops = &tt_net_shm, .is_direct = true};
    cases[n_cases++] =
        (net_case){.name = "tcp, 3 sockets", .ops = &tt_net_tcp, .sockets = 3};
    cases[n_cases++] =
        (net_case){.name = "tcp, rough", .ops = &tt_net_tcp, .is_rough = true};
    cases[n_cases++] = (net_case){.name = "tcp, 3 rough sockets",
                                  .ops = &tt_net_tcp,
                                  .sockets = 3,
                                  .is_rough = true};
    for (uint64_t sockets = 1; sockets <= 3; sockets += 2)
        cases[n_cases++] = (net_case){
            .name = sockets == 1 ? "tcp, sealed" : "tcp, 3 sealed sockets",
            .ops = &tt_net_tcp,
            .sockets = sockets,
            .is_sealed = true};
    cases[n_cases++] = (net_case){.name = "tcp, 3 sealed, rough sockets",
                                  .ops = &tt_net_tcp,
                                  .sockets = 3,
                                  .is_sealed = true,
                                  .is_rough = true};
    cases[n_cases++] =
        (net_case){.name = "ucx by tcp", .ops = ucx, .ucx_tls = TT_UCX_BY_TCP};
    cases[n_cases++] = (net_case){.name = "ucx by shm, sealed links",
                                  .ops = ucx,
                                  .ucx_tls = TT_UCX_BY_SHM,
                                  .is_sealed = TT_HAVE_OPENSSL};
    cases[n_cases++] = (net_case){
        .name = "loop, checked", .ops = &tt_net_loop, .is_checked = true};
    cases[n_cases++] = (net_case){.name = "shm, direct, checked",
                                  .ops = &tt_net_shm,
                                  .is_direct = true,
                                  .is_checked = true};
    cases[n_cases++] = (net_case){.name = "tcp, 3 rough sockets, checked",
                                  .ops = &tt_net_tcp,
                                  .sockets = 3,
                                  .is_rough = true,
                                  .is_checked = true};
    cases[n_cases++] = (net_case){.name = "ucx by tcp, checked",
                                  .ops = ucx,
                                  .ucx_tls = TT_UCX_BY_TCP,
                                  .is_checked = true};
    for (size_t i = 0; i < n_cases * N_PROMISES; i++) {
        const net_case *c = &cases[i / N_PROMISES];
        if (c->ops == &tt_net_loop && promises[i % N_PROMISES].needs_processes)
            continue;
        snprintf(names[n], sizeof(names[n]), "%s: %s", c->name,
                 promises[i % N_PROMISES].name);
        tests[n] =
            (struct CMUnitTest){.name = names[n],
                                .test_func = promises[i % N_PROMISES].run,
                                .initial_state = (void *)(uintptr_t)c};
        n++;
    }
    tests[n++] = (struct CMUnitTest){.name = "table", .test_func = test_table};
    tt_test_seed();
    return TT_RUN_TAP(tests);
}
