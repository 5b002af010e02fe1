/* SPDX-License-Identifier: BSD-3-Clause
 * net_pair.c - see net_pair.h. */
#include "support/net_pair.h"
#include "support/growth.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define STUCK_MS 20000

typedef struct card {
    uint32_t len;
    unsigned char bytes[TT_NET_ADDR_MAX];
} card;

uint64_t tt_test_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        const char *text = getenv("TT_SEED");
        seed = text ? strtoull(text, NULL, 0) : tt_now_ns();
        if (seed == 0)
            seed = 1;
        printf("# TT_SEED=%llu\n", (unsigned long long)seed);
        fflush(stdout);
    }
    return seed;
}

/* -------------------------------------------------------------- counting */

int tt_count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    while (maps && fgets(line, sizeof(line), maps))
        n += strstr(line, "memfd:tutti") != NULL;
    if (maps)
        fclose(maps);
    return n;
}

/* --------------------------------------------------------------- upcalls */

static void *place(void *arg, const tt_msg *m)
{
    tt_peer *peer = arg;
    if (m->len == 0 || m->len > peer->node->net->max_payload || peer->is_lost)
        tt_node_fail(peer->node, __FILE__, __LINE__, "bad place()");
    peer->n_placed++;
    return peer->place;
}

static void arrived(void *arg, const tt_msg *m, const void *data)
{
    tt_peer *peer = arg;
    const bool is_known = m->magic == TT_MSG_MAGIC ||
                          peer->node->nodes->any_magic;
    if (!is_known || peer->is_lost || (m->len == 0) != (data == NULL) ||
        m->len > peer->node->net->max_payload)
        tt_node_fail(peer->node, __FILE__, __LINE__, "bad arrived()");
    peer->n_arrived++;
    if (peer->node->on_arrived)
        peer->node->on_arrived(peer, m, data);
}

static void left(void *arg, uint64_t n)
{
    tt_peer *peer = arg;
    if (peer->is_lost)
        tt_node_fail(peer->node, __FILE__, __LINE__, "left() after lost()");
    peer->n_left += n;
}

static void lost(void *arg, tutti_err why, const char *text)
{
    tt_peer *peer = arg;
    if (peer->is_lost)
        tt_node_fail(peer->node, __FILE__, __LINE__, "lost() twice");
    peer->is_lost = true;
    peer->why = why;
    snprintf(peer->text, sizeof(peer->text), "%s", text);
}

static tt_conn *called(tt_net *net, uint32_t rank, const tt_link_id *id)
{
    (void)id;
    const tt_node *node = net->owner;
    return rank == node->rank || rank >= node->n_ranks ||
                   node->conns[rank]->is_up
               ? NULL
               : node->conns[rank];
}

static void up(tt_conn *conn)
{
    const tt_peer *peer = conn->peer;
    if (!conn->is_up || peer->is_lost || peer->has_missed)
        tt_node_fail(peer->node, __FILE__, __LINE__, "up, but it is not");
    if (peer->node->nodes->on_up)
        peer->node->nodes->on_up(conn);
}

static void missed(tt_conn *conn, tutti_err why, const char *text)
{
    tt_peer *peer = conn->peer;
    tt_node *node = peer->node;
    if (conn->is_up || peer->has_missed)
        tt_node_fail(node, __FILE__, __LINE__, "missed, but it is up");
    peer->has_missed = true;
    if (node->nodes->n_missed)
        (*node->nodes->n_missed)++;
    peer->why = why;
    snprintf(peer->text, sizeof(peer->text), "%s", text);
    if (!node->connect_err)
        node->connect_err = tt_fail(&node->diag, why, "%s", text);
}

static const tt_net_up upcalls = {.place = place,
                                  .arrived = arrived,
                                  .left = left,
                                  .lost = lost,
                                  .called = called,
                                  .up = up,
                                  .missed = missed};

/* ----------------------------------------------------------------- nodes */

int tt_node_fail(tt_node *node, const char *file, int line, const char *text)
{
    if (!node->failure[0])
        snprintf(node->failure, sizeof(node->failure), "%s rank %u: %s:%d: %s",
                 node->ops->name, node->rank, file, line, text);
    return 1;
}

bool tt_node_poll(tt_node *node, bool has_event)
{
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        if (node->conns[r] && node->ops->flush && node->conns[r]->is_up)
            node->ops->flush(node->conns[r]);
    }
    return node->ops->progress(node->net, has_event);
}

bool tt_node_turn(tt_node *node)
{
    if (tt_node_poll(node, false))
        return true;
    for (uint32_t r = 0; node->ops->settle && r < node->n_ranks; r++)
        if (node->conns[r] && node->conns[r]->is_up)
            node->ops->settle(node->conns[r]);
    if (!node->ops->arm(node->net, true))
        return true;
    struct pollfd fd = {.fd = node->net->fd, .events = POLLIN};
    int n = poll(&fd, 1, STUCK_MS);
    node->ops->arm(node->net, false);
    if (n == 0)
        tt_node_fail(node, __FILE__, __LINE__, "slept for 20 s");
    tt_node_poll(node, true);
    return n != 0;
}

static void exchange(int sock, card *own, card *all, uint32_t n)
{
    if (write(sock, own, sizeof(*own)) != sizeof(*own))
        abort();
    size_t want = n * sizeof(*all);
    char *to = (char *)all;
    while (want > 0) {
        ssize_t got = read(sock, to, want);
        if (got <= 0)
            abort();
        to += got;
        want -= (size_t)got;
    }
}

static void *must(void *ptr)
{
    if (!ptr)
        abort();
    return ptr;
}

static tutti_err node_open(tt_node *node, const tt_nodes *nodes, uint32_t rank)
{
    *node = (tt_node){.nodes = nodes,
                      .rank = rank,
                      .n_ranks = nodes->n,
                      .regions = TT_REGIONS_INIT(&tt_mem_std),
                      .n_fds = tt_count_fds()};
    const tt_net as = {.ops = nodes->ops,
                       .up = &upcalls,
                       .mem = &tt_mem_std,
                       .settings = &nodes->settings,
                       .regions = nodes->is_direct ? &node->regions : NULL,
                       .rank = rank,
                       .n_ranks = nodes->n,
                       .owner = node,
                       .fd = -1};
    tt_net *net = must(tt_net_new(&as));
    node->net = net;
    node->ops = net->ops;
    const tt_trust_opts trust = {
        .secret = (const uint8_t *)nodes->secret,
        .n_secret = nodes->secret ? strlen(nodes->secret) : 0};
    tutti_err err = tt_trust_open(&trust, &net->trust, &node->diag);
    if (!err)
        err = net->ops->open(net, &node->diag);
    if (err)
        return err;
    for (uint32_t r = 0; r < nodes->n; r++) {
        if (r == rank)
            continue;
        tt_conn *conn = must(calloc(1, net->ops->conn_size));
        tt_peer *peer = &node->peers[r];
        *conn = (tt_conn){.net = net, .peer = peer, .rank = r};
        *peer = (tt_peer){.node = node,
                          .conn = conn,
                          .place = must(malloc(net->max_payload))};
        node->conns[r] = conn;
    }
    return TUTTI_OK;
}

static bool is_dialled(const tt_node *node, uint32_t r)
{
    tt_dials dials = node->nodes->dials;
    return r != node->rank && (dials == TT_DIALS_BOTH ||
                               (dials == TT_DIALS_UP) == (r > node->rank));
}

static void dial_all(tt_node *node, const card *all)
{
    const tt_nodes *nodes = node->nodes;
    unsigned char(*bytes)[TT_NET_ADDR_MAX] =
        must(calloc(nodes->n, TT_NET_ADDR_MAX));
    for (uint32_t r = 0; r < nodes->n; r++)
        memcpy(bytes[r], all[r].bytes, TT_NET_ADDR_MAX);
    if (nodes->tamper)
        nodes->tamper(node->rank, bytes);
    double seconds = nodes->connect_s > 0 ? nodes->connect_s : 30;
    uint64_t deadline = tt_now_ns() + (uint64_t)(seconds * 1e9);
    for (uint32_t r = 0; r < nodes->n; r++) {
        if (!is_dialled(node, r))
            continue;
        tutti_diag why;
        tutti_err err = node->ops->dial(node->conns[r], bytes[r], all[r].len,
                                        deadline, &why);
        if (err)
            missed(node->conns[r], err, why.text);
    }
    free(bytes);
}

/* Those that are up, as bits; *is_settled: so are all that this node dials, or
 * they have missed. */
static uint32_t look_at_dials(const tt_node *node, bool *is_settled)
{
    uint32_t mask = 0;
    *is_settled = true;
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        if (r == node->rank)
            continue;
        mask |= (uint32_t)node->conns[r]->is_up << r;
        *is_settled &= node->conns[r]->is_up || node->peers[r].has_missed ||
                       !is_dialled(node, r);
    }
    return mask;
}

/* Until all nodes have settled, and what is up there is up here. */
static void wait_for_dials(tt_node *node, int sock)
{
    bool is_settled = false, is_told = false, knows = false;
    uint32_t mask = 0, wanted = 0;
    uint64_t until = tt_now_ns() + UINT64_C(40000000000);
    while ((!is_settled || !knows || (mask & wanted) != wanted) &&
           !node->failure[0]) {
        if (tt_now_ns() > until)
            tt_node_fail(node, __FILE__, __LINE__, "the dials never end");
        if (!tt_node_poll(node, true))
            usleep(200);
        mask = look_at_dials(node, &is_settled);
        if (is_settled && !is_told) {
            if (write(sock, &mask, sizeof(mask)) != sizeof(mask))
                abort();
            is_told = true;
        }
        if (is_told && !knows)
            knows = recv(sock, &wanted, sizeof(wanted), MSG_DONTWAIT) ==
                    sizeof(wanted);
    }
}

/* All are connected; then all have ceased to look at what comes: a first
 * message is for the body, and some bodies begin before others. */
static void wait_for_bodies(tt_node *node, int sock)
{
    char c = 0;
    if (node->failure[0]) {
        shutdown(sock, SHUT_WR); /* the others go on without it */
        return;
    }
    if (write(sock, &c, 1) != 1)
        abort();
    while (recv(sock, &c, 1, MSG_DONTWAIT) < 0)
        if (!tt_node_poll(node, true))
            usleep(200);
    if (write(sock, &c, 1) != 1 || read(sock, &c, 1) != 1)
        abort();
}

static void node_connect(tt_node *node, int sock)
{
    card own = {.len = 0};
    card *all = must(calloc(node->n_ranks, sizeof(card)));
    own.len = (uint32_t)node->ops->address(node->net, own.bytes,
                                           TT_NET_ADDR_MAX);
    exchange(sock, &own, all, node->n_ranks);
    if (node->nodes->before)
        node->nodes->before(node);
    dial_all(node, all);
    wait_for_dials(node, sock);
    wait_for_bodies(node, sock);
    if (node->connect_err && !node->nodes->may_fail_connect)
        tt_node_fail(node, __FILE__, __LINE__, node->diag.text);
    free(all);
}

tt_conn *tt_node_below(tt_conn *conn, const tt_net_ops *row)
{
    size_t at = conn->net->ops->conn_size - row->conn_size;
    return (tt_conn *)(void *)((char *)conn + at);
}

void tt_node_close(tt_node *node)
{
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        if (!node->conns[r])
            continue;
        node->ops->close(node->conns[r], 20 * TT_NS_PER_S);
        node->ops->close(node->conns[r], 0);
    }
    node->ops->fini(node->net);
    node->ops->fini(node->net);
}

void *tt_node_alloc(tt_node *node, size_t bytes)
{
    if (node->nodes->is_direct)
        return must(tt_regions_alloc(&node->regions, bytes));
    return must(malloc(bytes));
}

void tt_node_free(tt_node *node, void *ptr)
{
    if (node->nodes->is_direct)
        tt_regions_free(&node->regions, ptr);
    else
        free(ptr);
}

static void node_free(tt_node *node)
{
    tt_regions_fini(&node->regions);
    for (uint32_t r = 0; r < node->n_ranks; r++) {
        free(node->conns[r]);
        free(node->peers[r].place);
    }
    tt_trust_close(node->net->trust);
    free(node->net);
}

static int node_main(const tt_nodes *nodes, uint32_t rank, int sock)
{
    tt_node *node = must(calloc(1, sizeof(*node)));
    tutti_err err = node_open(node, nodes, rank);
    if (err)
        tt_node_fail(node, __FILE__, __LINE__, node->diag.text);
    if (!err)
        node_connect(node, sock);
    int rc = 0;
    if (!node->failure[0])
        rc = nodes->body(node);
    tt_node_close(node);
    if (node->failure[0])
        fprintf(stderr, "# %s\n", node->failure);
    rc |= node->failure[0] != 0;
    node_free(node);
    free(node);
    return rc;
}

int tt_nodes_local(const tt_nodes *nodes, tt_node *node)
{
    card *all = must(calloc(nodes->n, sizeof(card)));
    int rc = 0;
    for (uint32_t r = 0; r < nodes->n; r++) {
        rc |= node_open(&node[r], nodes, r) != TUTTI_OK;
        all[r].len = (uint32_t)node[r].ops->address(node[r].net, all[r].bytes,
                                                    TT_NET_ADDR_MAX);
    }
    for (uint32_t r = 0; r < nodes->n; r++)
        dial_all(&node[r], all);
    free(all);
    const uint32_t n_all = nodes->n * (nodes->n - 1);
    const uint64_t until = tt_now_ns() + 10 * TT_NS_PER_S;
    uint32_t n_up = 0;
    while (n_up < n_all && tt_now_ns() < until) {
        n_up = 0;
        for (uint32_t r = 0; r < nodes->n; r++) {
            bool is_settled;
            tt_node_poll(&node[r], true);
            uint32_t mask = look_at_dials(&node[r], &is_settled);
            n_up += (uint32_t)__builtin_popcount(mask);
        }
    }
    for (uint32_t r = 0; r < nodes->n; r++)
        if (node[r].diag.text[0])
            fprintf(stderr, "# rank %u: %s\n", r, node[r].diag.text);
    return rc | (n_up != n_all);
}

void tt_nodes_local_close(tt_node *node, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        tt_node_close(&node[r]);
        node_free(&node[r]);
    }
}

/* --------------------------------------------------------------- running */

typedef struct runner {
    const tt_nodes *nodes;
    uint32_t rank;
    int sock;
    int rc;
    pthread_t thread;
} runner;

static void *thread_main(void *arg)
{
    runner *r = arg;
    r->rc = node_main(r->nodes, r->rank, r->sock);
    return NULL;
}

/* Tells each node who is connected to it there. */
static void settle(const int *socks, uint32_t n)
{
    uint32_t masks[NODES_MAX] = {0};
    for (uint32_t r = 0; r < n; r++)
        if (recv(socks[r], &masks[r], sizeof(masks[r]), MSG_WAITALL) !=
            sizeof(masks[r]))
            masks[r] = 0; /* it says why */
    for (uint32_t r = 0; r < n; r++) {
        uint32_t mask = 0;
        for (uint32_t of = 0; of < n; of++)
            mask |= (masks[of] >> r & 1) << of;
        if (send(socks[r], &mask, sizeof(mask), MSG_NOSIGNAL) < 0)
            fprintf(stderr, "# rank %u did not wait for the others\n", r);
    }
}

/* Waits for a word of each, and gives each one. */
static void gather(const int *socks, uint32_t n)
{
    char c = 0;
    for (uint32_t r = 0; r < n; r++)
        (void)!recv(socks[r], &c, 1, 0);
    for (uint32_t r = 0; r < n; r++)
        (void)!send(socks[r], &c, 1, MSG_NOSIGNAL);
}

/* Gathers every node's card and hands all to each. */
static void rendezvous(const int *socks, uint32_t n)
{
    card *all = must(calloc(n, sizeof(card)));
    bool is_complete = true;
    for (uint32_t r = 0; r < n; r++) {
        ssize_t got = recv(socks[r], &all[r], sizeof(card), MSG_WAITALL);
        is_complete &= got == sizeof(card);
    }
    for (uint32_t r = 0; is_complete && r < n; r++) {
        if (send(socks[r], all, n * sizeof(card), MSG_NOSIGNAL) < 0)
            fprintf(stderr, "# rank %u did not get the addresses\n", r);
    }
    if (is_complete) {
        settle(socks, n);
        gather(socks, n); /* all are connected */
        gather(socks, n); /* nobody polls */
    }
    free(all);
}

static int process_main(const tt_nodes *nodes, uint32_t rank, int sock)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    int n_fds = tt_count_fds();
    int rc = node_main(nodes, rank, sock);
    if (tt_count_fds() != n_fds) {
        fprintf(stderr, "# rank %u: %d descriptors before, %d after\n", rank,
                n_fds, tt_count_fds());
        rc = 1;
    }
    if (tt_count_mappings() != 0) {
        fprintf(stderr, "# rank %u: mappings are left\n", rank);
        rc = 1;
    }
    return rc;
}

static int run_processes(const tt_nodes *nodes)
{
    int socks[NODES_MAX];
    pid_t pids[NODES_MAX];
    for (uint32_t r = 0; r < nodes->n; r++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            abort();
        fflush(NULL);
        pids[r] = fork();
        if (pids[r] == 0) {
            for (uint32_t i = 0; i < r; i++)
                close(socks[i]);
            close(pair[0]);
            _exit(process_main(nodes, r, pair[1]));
        }
        close(pair[1]);
        socks[r] = pair[0];
    }
    rendezvous(socks, nodes->n);
    int rc = 0;
    uint32_t n_killed = 0;
    for (uint32_t r = 0; r < nodes->n; r++) {
        int status = 0;
        while (waitpid(pids[r], &status, 0) < 0 && errno == EINTR)
            continue;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
            n_killed++;
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "# rank %u ended with status %#x\n", r,
                    (unsigned)status);
            rc = 1;
        }
        close(socks[r]);
    }
    return rc | (n_killed != nodes->n_killed);
}

static int run_threads(const tt_nodes *nodes)
{
    int socks[NODES_MAX];
    runner runners[NODES_MAX];
    int n_fds = tt_count_fds();
    for (uint32_t r = 0; r < nodes->n; r++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            abort();
        socks[r] = pair[0];
        runners[r] = (runner){.nodes = nodes, .rank = r, .sock = pair[1]};
        if (pthread_create(&runners[r].thread, NULL, thread_main,
                           &runners[r]) != 0)
            abort();
    }
    rendezvous(socks, nodes->n);
    int rc = 0;
    for (uint32_t r = 0; r < nodes->n; r++) {
        pthread_join(runners[r].thread, NULL);
        rc |= runners[r].rc;
        close(socks[r]);
        close(runners[r].sock);
    }
    if (tt_count_fds() != n_fds) {
        fprintf(stderr, "# %d descriptors before, %d after\n", n_fds,
                tt_count_fds());
        rc = 1;
    }
    return rc;
}

int tt_nodes_run(const tt_nodes *nodes)
{
    return nodes->is_threads ? run_threads(nodes) : run_processes(nodes);
}
