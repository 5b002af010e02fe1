/* SPDX-License-Identifier: BSD-3-Clause
 * tcp_test.c - the parts of the TCP transport that net_test.c does not see:
 * the choice of interfaces and addresses, strangers and wrong hosts while
 * connecting, two network namespaces. */
#include "support/tap.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ifaces.h"
#include "net/table.h"
#include "net/tcp.h"

/* --------------------------------------------------- names and addresses */

static void test_filter(void **state)
{
    (void)state;
    static const struct {
        const char *filter, *name;
        bool is_allowed;
    } cases[] = {
        {"", "eth0", true},          {"eth", "eth0", true},
        {"eth", "ib0", false},       {"eth,ib", "ib0", true},
        {"eth0", "eth01", true}, /* a prefix */
        {"=eth0", "eth01", false},   {"=eth0", "eth0", true},
        {"=eth0,ib1", "ib1", true},  {"=eth0,ib1", "ib10", false},
        {"^docker", "eth0", true},   {"^docker", "docker0", false},
        {"^docker,lo", "lo", false}, {"^docker,lo", "lo0", false},
        {"^=lo", "lo0", true},       {"^=lo", "lo", false},
        {",,eth", "eth0", true},     {",,eth", "ib0", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (tt_iface_allowed(cases[i].filter, cases[i].name) !=
            cases[i].is_allowed)
            fail_msg("\"%s\" and %s", cases[i].filter, cases[i].name);
    }
}

static void test_ifaces(void **state)
{
    (void)state;
    tt_iface all[64];
    size_t n = tt_ifaces_list("", all, 64);
    assert_in_range(n, 1, 64);
    for (size_t i = 1; i < n; i++)
        assert_true(all[i - 1].order <= all[i].order);
    assert_true(all[n - 1].order == TT_IFACE_LOOPBACK);
    assert_int_equal(tt_ifaces_list("", all, 1), 1);
    n = tt_ifaces_list("=lo", all, 64);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(all[i].name, "lo");
    assert_int_equal(tt_ifaces_list("none-such", all, 64), 0);
    char names[64];
    tt_ifaces_names(names, sizeof(names));
    assert_non_null(strstr(names, "lo"));
    tt_ifaces_names(names, 4); /* too short: cut, not overrun */
}

static void test_ports(void **state)
{
    (void)state;
    uint16_t a;
    uint16_t b;
    assert_true(tt_tcp_parse_ports("", &a, &b));
    assert_int_equal(a + b, 0);
    assert_true(tt_tcp_parse_ports("40000", &a, &b));
    assert_true(a == 40000 && b == 40000);
    assert_true(tt_tcp_parse_ports("1-65535", &a, &b));
    assert_true(a == 1 && b == 65535);
    static const char *const bad[] = {"0",   "x",     "1-",    "-1",
                                      "5-4", "1-2-3", "65536", "1-65536",
                                      " 1",  "1 ",    "1-0",   "100000"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (tt_tcp_parse_ports(bad[i], &a, &b))
            fail_msg("\"%s\" was taken", bad[i]);
    }
}

static tt_tcp_place place(const char *ip, uint16_t port, bool is_loopback)
{
    tt_addr addr;
    assert_true(tt_addr_numeric(ip, port, &addr));
    tt_tcp_place p = {.family = 4, .port = port, .is_loopback = is_loopback};
    memcpy(p.ip, &addr.u.v4.sin_addr, 4);
    if (addr.u.sa.sa_family == AF_INET6) {
        p.family = 6;
        memcpy(p.ip, &addr.u.v6.sin6_addr, 16);
    }
    return p;
}

static void test_cards(void **state)
{
    (void)state;
    tt_tcp_card card = {.version = 1, .n_places = 3, .netns = 7};
    card.places[0] = place("10.0.0.1", 5, false);
    card.places[1] = place("fd00::1", 5, false);
    card.places[2] = place("127.0.0.1", 5, true);
    tt_tcp_card got;
    size_t len = tt_tcp_card_bytes(&card);
    assert_true(tt_tcp_card_read(&got, &card, len));
    assert_memory_equal(&got, &card, sizeof(card));
    tt_addr addrs[TT_TCP_PLACES];
    char text[TT_SOCK_TEXT];
    tt_tcp_card own = card;
    assert_int_equal(tt_tcp_card_addrs(&card, &own, addrs), 3);
    assert_string_equal(tt_addr_text(&addrs[0], text), "127.0.0.1:5");
    assert_string_equal(tt_addr_text(&addrs[1], text), "10.0.0.1:5");
    assert_string_equal(tt_addr_text(&addrs[2], text), "[fd00::1]:5");
    own.netns = 8; /* a container of the same host: loopback is another */
    assert_int_equal(tt_tcp_card_addrs(&card, &own, addrs), 2);
    assert_string_equal(tt_addr_text(&addrs[0], text), "10.0.0.1:5");
    card.places[0].family = 9;
    card.places[1].port = 0;
    assert_int_equal(tt_tcp_card_addrs(&card, &own, addrs), 0);
    for (size_t cut = 0; cut < len; cut++)
        assert_false(tt_tcp_card_read(&got, &card, cut));
    card.n_places = 4;
    assert_false(tt_tcp_card_read(&got, &card, len));
    card.n_places = TT_TCP_PLACES + 1;
    assert_false(tt_tcp_card_read(&got, &card, sizeof(card)));
    card.n_places = 0;
    assert_false(tt_tcp_card_read(&got, &card, tt_tcp_card_bytes(&card)));
}

/* ---------------------------------------------------------------- meeting */

typedef struct side {
    tt_net *net;
    tt_conn *conns[3];
    unsigned char cards[3][TT_NET_ADDR_MAX];
    size_t lens[3];
    uint64_t deadline_ns;
    tutti_err err;
    tutti_diag diag;
    pthread_t thread;
} side;

static tt_settings settings = {.timeout_ns = 10 * TT_NS_PER_S};

static void open_side(side *s, uint32_t rank, uint32_t n)
{
    *s = (side){.deadline_ns = tt_now_ns() + 30 * TT_NS_PER_S};
    s->net = calloc(1, tt_net_tcp.net_size);
    *s->net = (tt_net){.ops = &tt_net_tcp,
                       .mem = &tt_mem_std,
                       .settings = &settings,
                       .rank = rank,
                       .n_ranks = n};
    assert_int_equal(tt_net_tcp.open(s->net, &s->diag), TUTTI_OK);
    for (uint32_t r = 0; r < n; r++) {
        if (r == rank)
            continue;
        s->conns[r] = calloc(1, tt_net_tcp.conn_size);
        *s->conns[r] = (tt_conn){.net = s->net, .rank = r};
    }
}

static void *connect_side(void *arg)
{
    side *s = arg;
    const void *addrs[3] = {s->cards[0], s->cards[1], s->cards[2]};
    s->err = tt_net_tcp.connect(s->net, s->conns, addrs, s->lens,
                                s->deadline_ns, &s->diag);
    return NULL;
}

static void open_sides(side *sides, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        open_side(&sides[r], r, n);
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t of = 0; of < n; of++)
            sides[r].lens[of] = tt_net_tcp.address(sides[of].net,
                                                   sides[r].cards[of]);
    }
}

static void connect_sides(side *sides, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        pthread_create(&sides[r].thread, NULL, connect_side, &sides[r]);
    for (uint32_t r = 0; r < n; r++)
        pthread_join(sides[r].thread, NULL);
}

static void close_sides(side *sides, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t p = 0; p < n; p++) {
            if (sides[r].conns[p])
                tt_net_tcp.close(sides[r].conns[p], 0);
            free(sides[r].conns[p]);
        }
        tt_net_tcp.fini(sides[r].net);
        free(sides[r].net);
    }
}

static int silent_listener(uint16_t *port)
{
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", 0, &addr));
    int fd = tt_sock_listen(&addr, 16);
    assert_true(fd >= 0);
    *port = tt_sock_port(fd);
    return fd;
}

/* The card leads first to a dead port, to somebody silent and to another rank
 * (who does not know the token), then to the right place. */
static void test_wrong_hosts(void **state)
{
    (void)state;
    side sides[3];
    open_sides(sides, 3);
    uint16_t silent;
    int fd = silent_listener(&silent);
    tt_tcp_card *card = (tt_tcp_card *)(void *)sides[2].cards[0];
    const tt_tcp_card *other = (tt_tcp_card *)(void *)sides[2].cards[1];
    tt_tcp_place right = place("127.0.0.1", card->places[0].port, true);
    card->n_places = 4;
    card->places[0] = place("127.0.0.1", 1, true);
    card->places[1] = place("127.0.0.1", silent, true);
    card->places[2] = place("127.0.0.1", other->places[0].port, true);
    card->places[3] = right;
    sides[2].lens[0] = tt_tcp_card_bytes(card);
    connect_sides(sides, 3);
    for (int r = 0; r < 3; r++) {
        if (sides[r].err)
            print_message("%s\n", sides[r].diag.text);
        assert_int_equal(sides[r].err, TUTTI_OK);
    }
    close_sides(sides, 3);
    close(fd);
}

/* Rank 1 of each of two jobs is led to rank 0 of the other one first: only the
 * token tells them apart. */
static void test_two_jobs(void **state)
{
    (void)state;
    side a[2];
    side b[2];
    open_sides(a, 2);
    open_sides(b, 2);
    tt_tcp_card *in_a = (tt_tcp_card *)(void *)a[1].cards[0];
    tt_tcp_card *in_b = (tt_tcp_card *)(void *)b[1].cards[0];
    uint16_t port_a = in_a->places[0].port;
    uint16_t port_b = in_b->places[0].port;
    in_a->n_places = in_b->n_places = 2;
    in_a->places[0] = in_b->places[1] = place("127.0.0.1", port_b, true);
    in_a->places[1] = in_b->places[0] = place("127.0.0.1", port_a, true);
    a[1].lens[0] = b[1].lens[0] = tt_tcp_card_bytes(in_a);
    side *all[] = {&a[0], &a[1], &b[0], &b[1]};
    for (int i = 0; i < 4; i++)
        pthread_create(&all[i]->thread, NULL, connect_side, all[i]);
    for (int i = 0; i < 4; i++) {
        pthread_join(all[i]->thread, NULL);
        assert_int_equal(all[i]->err, TUTTI_OK);
    }
    char where[TT_SOCK_TEXT];
    snprintf(where, sizeof(where), "127.0.0.1:%u", port_a);
    assert_string_equal(((tt_tcp_conn *)a[1].conns[0])->where, where);
    snprintf(where, sizeof(where), "127.0.0.1:%u", port_b);
    assert_string_equal(((tt_tcp_conn *)b[1].conns[0])->where, where);
    close_sides(a, 2);
    close_sides(b, 2);
}

/* Who connects without the token gets nothing and breaks nothing. */
static void test_strangers(void **state)
{
    (void)state;
    side sides[2];
    open_sides(sides, 2);
    const tt_tcp_card *card = (tt_tcp_card *)(void *)sides[0].cards[0];
    uint16_t port = card->places[0].port;
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", port, &addr));
    int fds[20];
    char rubbish[64];
    memset(rubbish, 0x5a, sizeof(rubbish));
    for (size_t i = 0; i < 20; i++) {
        fds[i] = tt_sock_connect(&addr, tt_now_ns() + TT_NS_PER_S);
        assert_true(fds[i] >= 0);
        tt_sock_write_all(fds[i], rubbish, 3 * i, 0);
    }
    connect_sides(sides, 2);
    assert_int_equal(sides[0].err, TUTTI_OK);
    assert_int_equal(sides[1].err, TUTTI_OK);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
    close_sides(sides, 2);
}

static void test_unreachable(void **state)
{
    (void)state;
    side sides[2];
    open_sides(sides, 2);
    tt_tcp_card *card = (tt_tcp_card *)(void *)sides[1].cards[0];
    card->n_places = 1;
    card->places[0] = place("127.0.0.1", 1, true);
    sides[1].lens[0] = tt_tcp_card_bytes(card);
    for (int r = 0; r < 2; r++)
        sides[r].deadline_ns = tt_now_ns() + 300 * TT_NS_PER_MS;
    connect_sides(sides, 2);
    assert_int_equal(sides[0].err, TUTTI_ETIMEOUT);
    assert_non_null(
        strstr(sides[0].diag.text, "rank 1 did not connect to rank 0"));
    assert_int_equal(sides[1].err, TUTTI_ETIMEOUT);
    assert_non_null(strstr(sides[1].diag.text,
                           "rank 1 cannot reach rank 0 (last tried "
                           "127.0.0.1:1: Connection refused)"));
    close_sides(sides, 2);
}

static void test_settings(void **state)
{
    (void)state;
    tt_settings wrong = settings;
    snprintf(wrong.interfaces, sizeof(wrong.interfaces), "none-such");
    tt_net *net = calloc(1, tt_net_tcp.net_size);
    *net = (tt_net){.ops = &tt_net_tcp,
                    .mem = &tt_mem_std,
                    .settings = &wrong,
                    .n_ranks = 2};
    tutti_diag diag;
    assert_int_equal(tt_net_tcp.open(net, &diag), TUTTI_ECONFIG);
    assert_non_null(strstr(diag.text, "\"none-such\" allows none"));
    assert_non_null(strstr(diag.text, "lo"));
    tt_net_tcp.fini(net);
    wrong = settings;
    snprintf(wrong.ports, sizeof(wrong.ports), "7-x");
    assert_int_equal(tt_net_tcp.open(net, &diag), TUTTI_ECONFIG);
    assert_non_null(strstr(diag.text, "TUTTI_PORT_RANGE is \"7-x\""));
    tt_net_tcp.fini(net);
    uint16_t port;
    int fd = silent_listener(&port);
    snprintf(wrong.ports, sizeof(wrong.ports), "%u", port);
    assert_int_equal(tt_net_tcp.open(net, &diag), TUTTI_ESYS);
    assert_non_null(strstr(diag.text, "TUTTI_PORT_RANGE"));
    tt_net_tcp.fini(net);
    close(fd);
    free(net);
}

/* ------------------------------------------------------------- namespaces */

/* A rank in a network of its own: a veth to the other one, and a bridge's
 * address that both have, so that it leads to oneself. */
static int namespace_rank(uint32_t rank, int sock)
{
    char go;
    if (unshare(CLONE_NEWNET) != 0)
        return 2;
    if (write(sock, "u", 1) != 1 || read(sock, &go, 1) != 1)
        return 3;
    char command[400];
    snprintf(command, sizeof(command),
             "ip link set lo up && ip link set tt%u up && "
             "ip addr add 10.77.0.%u/24 dev tt%u && "
             "ip link add docker0 type veth peer name tt9 && "
             "ip link set docker0 up && ip link set tt9 up && "
             "ip addr add 172.17.0.1/16 dev docker0",
             rank, rank + 1, rank);
    if (system(command) != 0)
        return 2;
    side s;
    open_side(&s, rank, 2);
    s.lens[rank] = tt_net_tcp.address(s.net, s.cards[rank]);
    size_t n = sizeof(s.cards[0]);
    if (write(sock, s.cards[rank], n) != (ssize_t)n ||
        recv(sock, s.cards[1 - rank], n, MSG_WAITALL) != (ssize_t)n)
        return 4;
    s.lens[1 - rank] =
        tt_tcp_card_bytes((tt_tcp_card *)(void *)s.cards[1 - rank]);
    connect_side(&s);
    if (s.err)
        fprintf(stderr, "# rank %u: %s\n", rank, s.diag.text);
    bool is_veth = strncmp(((tt_tcp_conn *)s.conns[1 - rank])->where,
                           "10.77.0.", 8) == 0;
    for (uint32_t r = 0; r < 2; r++) {
        if (s.conns[r])
            tt_net_tcp.close(s.conns[r], 0);
        free(s.conns[r]);
    }
    tt_net_tcp.fini(s.net);
    free(s.net);
    return s.err == TUTTI_OK && is_veth ? 0 : 1;
}

/* Passes cards between the two; returns false when one of them cannot. */
static bool relay(const int *socks, const pid_t *pids)
{
    char text[200];
    char c;
    for (int r = 0; r < 2; r++) {
        if (read(socks[r], &c, 1) != 1)
            return false;
    }
    snprintf(text, sizeof(text),
             "ip link add tt0 netns %d type veth peer name tt1 netns %d",
             (int)pids[0], (int)pids[1]);
    if (system(text) != 0)
        return false;
    for (int r = 0; r < 2; r++) {
        if (write(socks[r], "g", 1) != 1)
            return false;
    }
    for (int r = 0; r < 2; r++) {
        unsigned char card[TT_NET_ADDR_MAX];
        if (recv(socks[r], card, sizeof(card), MSG_WAITALL) != sizeof(card) ||
            write(socks[1 - r], card, sizeof(card)) != sizeof(card))
            return false;
    }
    return true;
}

static void test_namespaces(void **state)
{
    (void)state;
    if (geteuid() != 0 || system("ip link show lo >/dev/null 2>&1") != 0) {
        print_message("needs root and the command ip\n");
        skip();
    }
    int pairs[2][2];
    pid_t pids[2];
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[r]), 0);
        pids[r] = fork();
        if (pids[r] == 0) {
            close(pairs[r][0]);
            if (r == 1)
                close(pairs[0][0]);
            _exit(namespace_rank(r, pairs[r][1]));
        }
        close(pairs[r][1]);
    }
    int socks[2] = {pairs[0][0], pairs[1][0]};
    bool is_relayed = relay(socks, pids);
    close(socks[0]);
    close(socks[1]);
    int status[2];
    for (int r = 0; r < 2; r++)
        waitpid(pids[r], &status[r], 0);
    if (!is_relayed) {
        print_message("this machine does not let us make namespaces\n");
        skip();
    }
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filter),      cmocka_unit_test(test_ifaces),
        cmocka_unit_test(test_ports),       cmocka_unit_test(test_cards),
        cmocka_unit_test(test_wrong_hosts), cmocka_unit_test(test_two_jobs),
        cmocka_unit_test(test_strangers),   cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_settings),    cmocka_unit_test(test_namespaces),
    };
    return TT_RUN_TAP(tests);
}
