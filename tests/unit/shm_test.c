/* SPDX-License-Identifier: BSD-3-Clause
 * shm_test.c - what only the shared-memory transport can get wrong: who may
 * share, that both sides agree on it, and what happens when one never comes.
 * The rest of its promises are in net_test.c. */
#include "support/tap.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/shm/shm.h"
#include "net/table.h"
#include "support/growth.h"
#include "support/net_pair.h"

#define N_RANKS 4

#define AT(field) offsetof(tt_link_card, field)
/* Behind the card. */
#define AT_RING TT_LINK_CARD_HEAD

/* Ranks 0 and 2 cannot share; everybody else can, and does. */
static int apart_body(tt_node *node)
{
    for (uint32_t r = 0; r < N_RANKS; r++) {
        bool is_pair = (node->rank == 0 && r == 2) ||
                       (node->rank == 2 && r == 0);
        if (r != node->rank)
            NODE_CHECK(node, node->conns[r]->is_up == !is_pair);
    }
    return 0;
}

/* What rank 0 and rank 2 read about each other is not what was written. */
static void change_both(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX],
                        size_t at)
{
    if (rank == 0)
        addrs[2][at] ^= 1;
    if (rank == 2)
        addrs[0][at] ^= 1;
}

static void other_ring(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    change_both(rank, addrs, AT_RING + 2);
}

static void other_uid(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    change_both(rank, addrs, AT(uid));
}

static void other_netns(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    change_both(rank, addrs, AT(netns));
}

static void other_boot(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    change_both(rank, addrs, AT(boot_id));
}

/* The dials fail; still both must agree. */
static void wrong_name(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    change_both(rank, addrs, AT(nest));
}

static void wrong_token(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    change_both(rank, addrs, AT(token));
}

static void wrong_process(uint32_t rank,
                          unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    change_both(rank, addrs, AT(id));
}

static void no_address(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    change_both(rank, addrs, AT(version));
}

/* Only one of two dials fails: the other one serves. */
static void one_way(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    if (rank == 2)
        addrs[0][AT(nest)] ^= 1;
}

static void run_apart(void (*tamper)(uint32_t,
                                     unsigned char (*)[TT_NET_ADDR_MAX]))
{
    tt_nodes nodes = {.ops = &tt_net_shm, .n = N_RANKS, .body = apart_body};
    nodes.settings.shm_ring_bytes = 64 << 10;
    nodes.connect_s = 100; /* nobody waits for it to find out */
    nodes.tamper = tamper;
    nodes.may_fail_connect = true;
    for (tt_dials who = TT_DIALS_DOWN; who <= TT_DIALS_BOTH; who++) {
        nodes.dials = who;
        assert_int_equal(tt_nodes_run(&nodes), 0);
    }
}

static void test_apart(void **state)
{
    (void)state;
    run_apart(other_ring);
    run_apart(other_uid);
    run_apart(other_netns);
    run_apart(other_boot);
}

static void test_agreement(void **state)
{
    (void)state;
    run_apart(wrong_name);
    run_apart(wrong_token);
    run_apart(wrong_process);
    run_apart(no_address);
}

static int all_up_body(tt_node *node);

static void test_one_way(void **state)
{
    (void)state;
    tt_nodes nodes = {.ops = &tt_net_shm,
                      .n = N_RANKS,
                      .body = all_up_body,
                      .tamper = one_way,
                      .may_fail_connect = true,
                      .dials = TT_DIALS_UP};
    nodes.settings.shm_ring_bytes = 64 << 10;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

static int late_body(tt_node *node)
{
    NODE_CHECK(node, !node->conns[1 - node->rank]->is_up);
    if (node->rank == 0)
        return 0;
    NODE_CHECK(node, node->connect_err == TUTTI_ENET);
    NODE_CHECK(node, strstr(node->diag.text, "rank 0: no answer") != NULL);
    return 0;
}

/* Rank 0 does not look at what has come before rank 1 has given up. */
static void look_late(tt_node *node)
{
    while (node->rank == 0 && *node->nodes->n_missed == 0)
        usleep(1000);
}

static void test_deadline(void **state)
{
    (void)state;
    tt_nodes nodes = {.ops = &tt_net_shm, .n = 2, .body = late_body};
    nodes.settings.shm_ring_bytes = 64 << 10;
    nodes.before = look_late;
    nodes.connect_s = 0.3;
    nodes.may_fail_connect = true;
    nodes.n_missed = mmap(NULL, sizeof(*nodes.n_missed), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(nodes.n_missed, MAP_FAILED);
    assert_int_equal(tt_nodes_run(&nodes), 0);
    munmap(nodes.n_missed, sizeof(*nodes.n_missed));
}

/* Strangers that call and leave, talk nonsense, or stay and say nothing,
 * disturb nobody. */
static int strangers[NODES_MAX];

static int call_as_stranger(const unsigned char *address)
{
    tt_link_card card;
    tt_addr to;
    memcpy(&card, address, TT_LINK_CARD_HEAD);
    tt_link_card_nest(&card, &to);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
                      0);
    if (connect(sock, &to.u.sa, to.len) != 0)
        fprintf(stderr, "# a stranger was refused\n"); /* backlog full */
    return sock;
}

static void call_all(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    for (uint32_t r = 0; r < N_RANKS; r++) {
        strangers[r] = -1;
        if (r == rank)
            continue;
        close(call_as_stranger(addrs[r]));
        int sock = call_as_stranger(addrs[r]);
        send(sock, "hello", 5, MSG_NOSIGNAL);
        close(sock);
        strangers[r] = call_as_stranger(addrs[r]);
    }
}

static int all_up_body(tt_node *node)
{
    for (uint32_t r = 0; r < N_RANKS; r++) {
        if (strangers[r] > 0)
            close(strangers[r]);
        if (r != node->rank)
            NODE_CHECK(node, node->conns[r]->is_up);
    }
    return 0;
}

static void test_strangers(void **state)
{
    (void)state;
    tt_nodes nodes = {.ops = &tt_net_shm, .n = N_RANKS, .body = all_up_body};
    nodes.settings.shm_ring_bytes = 64 << 10;
    nodes.tamper = call_all;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

/* A peer that writes nonsense loses its conn, and nothing else happens. */
static int nonsense_body(tt_node *node)
{
    uint32_t other = 1 - node->rank;
    if (node->rank == 1) {
        const tt_shm_conn *conn = (const tt_shm_conn *)node->conns[other];
        memset(conn->duplex.tx.data, 0xff, conn->duplex.tx.size);
    }
    while (!node->peers[other].is_lost)
        NODE_CHECK(node, tt_node_poll(node, true) || usleep(1000) == 0);
    if (node->rank == 0) {
        NODE_CHECK(node, node->peers[other].why == TUTTI_EPROTO);
        NODE_CHECK(node, strstr(node->peers[other].text, "rank 1") != NULL);
    }
    return 0;
}

static void test_nonsense(void **state)
{
    (void)state;
    tt_nodes nodes = {.ops = &tt_net_shm, .n = 2, .body = nonsense_body};
    nodes.settings.shm_ring_bytes = 64 << 10;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

/* Two nodes that may lend; rank 1 has lent one payload to rank 0, which can
 * read rank 1's segment 0 since. */
static int lend_one(tt_node *node)
{
    tt_peer *other = &node->peers[1 - node->rank];
    unsigned char *data = tt_node_alloc(node, 4096);
    tt_msg m = {.magic = TT_MSG_MAGIC, .len = 4096};
    struct iovec iov = {.iov_base = data, .iov_len = m.len};
    for (int n = 0; node->rank == 1 && other->n_left == 0; n++) {
        NODE_CHECK(node, n < 5000);
        node->ops->send(other->conn, &m, &iov, 1);
        tt_node_poll(node, true);
        usleep(1000);
    }
    while (node->rank == 0 && other->n_arrived == 0 && !other->is_lost)
        NODE_CHECK(node, tt_node_poll(node, true) || usleep(1000) == 0);
    return 0;
}

static uint64_t bad_ref;
static uint32_t bad_len;

/* A reference outside of what is mapped costs the connection, nothing else. */
static int bad_ref_body(tt_node *node)
{
    tt_peer *other = &node->peers[1 - node->rank];
    if (lend_one(node))
        return 1;
    tt_shm_conn *conn = (tt_shm_conn *)other->conn;
    tt_msg m = {.magic = TT_MSG_MAGIC, .len = bad_len};
    const tt_grant grant = {TT_GRANTS_MAX, bad_ref + 1, bad_ref + 1};
    tt_buffers far = {.bytes = bad_len};
    NODE_CHECK(node, bad_ref == UINT64_MAX ||
                         !node->ops->within->reach(other->conn, &grant, &far));
    NODE_CHECK(node, !node->ops->within->hold(other->conn, grant.number));
    if (node->rank == 1)
        NODE_CHECK(node, tt_ring_put_ref(&conn->duplex.tx, &m, bad_ref));
    while (!other->is_lost)
        NODE_CHECK(node, tt_node_poll(node, true) || usleep(1000) == 0);
    if (node->rank == 0) {
        NODE_CHECK(node, other->why == TUTTI_EPROTO);
        NODE_CHECK(node, strstr(other->text, "rank 1") != NULL);
    }
    return 0;
}

static tt_nodes lending_nodes(int (*body)(tt_node *))
{
    tt_nodes nodes = {.ops = &tt_net_shm, .n = 2, .body = body};
    nodes.settings.shm_ring_bytes = 64 << 10;
    nodes.settings.shm_direct_bytes = 1;
    nodes.is_direct = true;
    return nodes;
}

static void test_bad_refs(void **state)
{
    (void)state;
    static const struct {
        uint64_t ref;
        uint32_t len;
    } cases[] = {
        {TT_SEGMENT_BYTES, 1},       {TT_SEGMENT_BYTES - 4095, 4096},
        {UINT64_C(1) << 48, 1},      {UINT64_C(64) << 48, 1},
        {UINT64_C(0xffff) << 48, 1}, {UINT64_MAX, 4096},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        bad_ref = cases[i].ref;
        bad_len = cases[i].len;
        tt_nodes nodes = lending_nodes(bad_ref_body);
        assert_int_equal(tt_nodes_run(&nodes), 0);
    }
}

/* Segments that are not what they should be are not mapped, and payloads in
 * them arrive as copies: a file that may shrink, one of another size, no memfd
 * at all. */
static int bad_segment_body(tt_node *node)
{
    const int how = *(const int *)node->nodes->arg;
    tt_peer *other = &node->peers[1 - node->rank];
    tt_shm_conn *conn = (tt_shm_conn *)other->conn;
    unsigned char *data = tt_node_alloc(node, 4096);
    int fds[] = {memfd_create("unsealed", MFD_CLOEXEC),
                 node->regions.segments[0].fd, STDERR_FILENO};
    int own = node->regions.segments[0].fd;
    NODE_CHECK(node, ftruncate(fds[0], TT_SEGMENT_BYTES) == 0);
    node->regions.segments[0].fd = fds[how];
    node->regions.segments[0].bytes -= how == 1 ? 4096 : 0;
    tt_msg m = {.magic = TT_MSG_MAGIC, .len = 4096};
    struct iovec iov = {.iov_base = data, .iov_len = m.len};
    for (int n = 0; n < 20; n++) {
        tt_sent sent = node->ops->send(other->conn, &m, &iov, 1);
        NODE_CHECK(node, sent != TT_QUEUED);
        n -= sent == TT_FULL;
        NODE_CHECK(node, tt_node_poll(node, true) || usleep(1000) == 0);
    }
    while (other->n_arrived < 20)
        NODE_CHECK(node, tt_node_poll(node, true) || usleep(1000) == 0);
    NODE_CHECK(node, conn->announced == 1 && conn->readable == 0);
    NODE_CHECK(node, conn->views[0].base == NULL && !other->is_lost);
    node->regions.segments[0].fd = own;
    node->regions.segments[0].bytes = TT_SEGMENT_BYTES;
    close(fds[0]);
    return 0;
}

static void test_bad_segments(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        tt_nodes nodes = lending_nodes(bad_segment_body);
        nodes.arg = &how;
        assert_int_equal(tt_nodes_run(&nodes), 0);
    }
}

/* Few ranks have large rings: all that end at a rank are 3 MiB together, but
 * each has 256 KiB, and 1 MiB at most. Of many, and whatever was wished, they
 * stay within 32 MiB together, as long as 64 KiB each are not more. */
static void test_ring_sizes(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_ranks;
        uint64_t wish, ring_size;
    } rows[] = {{1, 0, 1 << 20},         {2, 0, 1 << 20},
                {4, 0, 1 << 20},         {5, 0, 512 << 10},
                {7, 0, 512 << 10},       {8, 0, 256 << 10},
                {128, 0, 256 << 10},     {256, 0, 128 << 10},
                {1024, 0, 64 << 10},     {2, 8 << 20, 8 << 20},
                {8, 8 << 20, 4 << 20},   {1024, 8 << 20, 64 << 10},
                {1024, 16 << 10, 16384}, {2, 16 << 10, 16384}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tutti_diag diag = {0};
        const tt_settings settings = {.shm_ring_bytes = rows[i].wish};
        tt_shm_net net = {.base = {.ops = &tt_net_shm,
                                   .mem = &tt_mem_std,
                                   .settings = &settings,
                                   .n_ranks = rows[i].n_ranks}};
        if (tt_net_shm.open(&net.base, &diag))
            fail_msg("%s", diag.text);
        assert_int_equal(net.ring_size, rows[i].ring_size);
        tt_net_shm.fini(&net.base);
    }
}

/* Rings that are long because few ranks have them lengthen no message that
 * others pass on; those that were asked for do, and two ranks pass none on. */
static void test_passed_on(void **state)
{
    (void)state;
    static const struct {
        const tt_net_ops *ops;
        uint64_t wish;
        uint32_t max_payload, n, most;
    } rows[] = {{&tt_net_shm, 0, 256 << 10, 3, 64 << 10},
                {&tt_net_shm, 0, 256 << 10, 2, 256 << 10},
                {&tt_net_shm, 0, 16 << 10, 3, 16 << 10},
                {&tt_net_shm, 1 << 20, 256 << 10, 3, 256 << 10},
                {&tt_net_tcp, 0, 256 << 10, 3, 256 << 10}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const tt_settings settings = {.shm_ring_bytes = rows[i].wish};
        const tt_net net = {.ops = rows[i].ops,
                            .settings = &settings,
                            .max_payload = rows[i].max_payload};
        assert_int_equal(tt_net_most_passed_on(&net, rows[i].n), rows[i].most);
    }
}

/* ------------------------------------------------------------------ death */

/* The other process, with which this one meets. */
typedef enum end {
    REFUSES, /* it is dead when it is dialled */
    KILLED,  /* it dies when it has been dialled, before its reply */
    CALLED,  /* when it has dialled, before its hello */
    REAPED,  /* likewise, and has no pid any more when its link is taken */
    HANGS_UP /* it lives, and ends what was dialled */
} end;

static tt_shm_conn other;
static tutti_err missed_err;
static char missed_text[200];

static tt_conn *take_call(tt_net *net, uint32_t rank, const tt_link_id *id)
{
    (void)id;
    other.base = (tt_conn){.net = net, .rank = rank};
    return &other.base;
}

static void note_up(tt_conn *conn)
{
    (void)conn;
    missed_err = TUTTI_AGAIN;
}

static void note_missed(tt_conn *conn, tutti_err err, const char *text)
{
    (void)conn;
    assert_int_equal(missed_err, TUTTI_OK); /* once */
    missed_err = err;
    snprintf(missed_text, sizeof(missed_text), "%s", text);
}

typedef struct card {
    unsigned char bytes[TT_NET_ADDR_MAX];
    size_t len;
} card;

static const tt_settings no_settings;

/* Returns where it is. */
static card open_net(tt_shm_net *net, uint32_t rank)
{
    static const tt_net_up up = {
        .called = take_call, .up = note_up, .missed = note_missed};
    card own;
    tutti_diag diag = {0};
    *net = (tt_shm_net){.base = {.ops = &tt_net_shm,
                                 .up = &up,
                                 .mem = &tt_mem_std,
                                 .settings = &no_settings,
                                 .rank = rank,
                                 .n_ranks = 2}};
    if (tt_net_shm.open(&net->base, &diag))
        fail_msg("%s", diag.text);
    own.len = tt_shm_address(&net->base, own.bytes, sizeof(own.bytes));
    return own;
}

static void dial(tt_shm_net *net, uint32_t rank, const card *to)
{
    tutti_diag diag = {0};
    other.base = (tt_conn){.net = &net->base, .rank = rank};
    if (tt_shm_dial(&other.base, to->bytes, to->len,
                    tt_now_ns() + 100 * TT_NS_PER_S, &diag))
        fail_msg("%s", diag.text);
}

/* It never looks at what comes; only its link thread does something. */
static void be_met(int sock, end how)
{
    tt_shm_net net;
    card own = open_net(&net, 0), theirs;
    char word;
    if (write(sock, &own, sizeof(own)) < 0 ||
        read(sock, &theirs, sizeof(theirs)) < 0)
        _exit(1);
    if (how == CALLED || how == REAPED)
        dial(&net, 1, &theirs);
    if (read(sock, &word, 1) == 1)
        tt_net_shm.fini(&net.base);
    pause();
}

static void end_other(pid_t pid, int sock, end how)
{
    int status;
    if (how == HANGS_UP) {
        assert_int_equal(write(sock, "", 1), 1);
        return;
    }
    kill(pid, SIGKILL);
    if (how == REFUSES || how == REAPED)
        waitpid(pid, &status, 0);
}

static void meet(end how)
{
    int socks[2];
    card theirs, own;
    tt_shm_net net;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
    missed_err = TUTTI_OK;
    other = (tt_shm_conn){.sock = -1};
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        be_met(socks[1], how);
        _exit(1);
    }
    own = open_net(&net, 1);
    assert_int_equal(read(socks[0], &theirs, sizeof(theirs)), sizeof(theirs));
    assert_int_equal(write(socks[0], &own, sizeof(own)), sizeof(own));
    if (how == REFUSES)
        end_other(pid, socks[0], how);
    if (how == REFUSES || how == KILLED || how == HANGS_UP)
        dial(&net, 0, &theirs);
    struct pollfd box = {.fd = tt_link_box_fd(net.door.box), .events = POLLIN};
    if (how == REAPED) {
        assert_int_equal(poll(&box, 1, 20000), 1);
        end_other(pid, socks[0], how);
    }
    bool is_ended = how == REFUSES || how == REAPED;
    for (int i = 0; i < 20000 && !missed_err; i++) {
        tt_net_shm.progress(&net.base, true);
        if (!is_ended && other.sock >= 0) {
            end_other(pid, socks[0], how);
            is_ended = true;
        }
        usleep(1000);
    }
    char want[64];
    snprintf(want, sizeof(want), "rank 0 (pid %d) exited", pid);
    if (how == REFUSES)
        snprintf(want, sizeof(want), "rank 0 exited or left: nobody");
    if (how == HANGS_UP)
        snprintf(want, sizeof(want), "rank 0: it closed the connection");
    assert_int_equal(missed_err, how == HANGS_UP ? TUTTI_ENET : TUTTI_EPEER);
    assert_non_null(strstr(missed_text, want));
    tt_net_shm.progress(&net.base, true); /* missed once, whatever it finds */
    tt_net_shm.close(&other.base, 0);
    tt_net_shm.fini(&net.base);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(socks[0]);
    close(socks[1]);
}

/* Who dies while it is met is dead, and not somewhere else. */
static void test_death(void **state)
{
    (void)state;
    const int n_fds = tt_count_fds();
    for (end how = REFUSES; how <= HANGS_UP; how++)
        meet(how);
    assert_int_equal(tt_count_fds(), n_fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apart),      cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_one_way),    cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_strangers),  cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_ring_sizes), cmocka_unit_test(test_passed_on),
        cmocka_unit_test(test_bad_refs),   cmocka_unit_test(test_bad_segments),
        cmocka_unit_test(test_death),
    };
    return TT_RUN_TAP(tests);
}
