/* SPDX-License-Identifier: BSD-3-Clause
 * net_pair.h - a few connected nodes on one transport, for tests of
 * transports without an engine.
 *
 * Each node runs the same body, as a forked process or as a thread. Addresses
 * are exchanged over socketpairs, then the nodes dial each other; the body
 * begins when every dial has come through or has missed, on both sides. It
 * returns 0 or fails through NODE_CHECK; the node closes and checks for leaks
 * after it. */
#ifndef TT_TESTS_NET_PAIR_H
#define TT_TESTS_NET_PAIR_H

#include "base/rng.h"
#include "net/net.h"

#define NODES_MAX 8

typedef struct tt_node tt_node;
typedef struct tt_peer tt_peer;
typedef struct tt_nodes tt_nodes;

/* What the tests know of a connection; it is the conn's `peer`. */
struct tt_peer {
    tt_node *node;
    tt_conn *conn;
    uint64_t n_arrived, n_left, n_placed;
    bool is_lost, has_missed;
    tutti_err why; /* lost, or missed */
    char text[300];
    unsigned char *place; /* where a streamed payload goes */
    void *test;           /* the body's */
};

struct tt_node {
    const tt_nodes *nodes;
    tt_net *net;
    const tt_net_ops *ops;
    tt_regions regions; /* used where nodes->is_direct */
    uint32_t rank, n_ranks;
    int n_fds; /* descriptors of the process before open() */
    tt_conn *conns[NODES_MAX];
    tt_peer peers[NODES_MAX];
    /* Called by the upcall arrived(); the body sets it. */
    void (*on_arrived)(tt_peer *peer, const tt_msg *m, const void *data);
    char failure[1024];    /* "" while all is well */
    tutti_err connect_err; /* of the first dial that missed */
    tutti_diag diag;
};

/* Who dials whom. */
typedef enum tt_dials { TT_DIALS_DOWN, TT_DIALS_UP, TT_DIALS_BOTH } tt_dials;

struct tt_nodes {
    const tt_net_ops *ops;
    uint32_t n;
    tt_settings settings;
    int (*body)(tt_node *node);
    void *arg; /* the body's */
    uint64_t seed;
    const char *secret; /* of all; NULL: none */
    bool is_direct;     /* payloads lie in memory that peers may map */
    bool is_threads;    /* threads instead of processes */
    double connect_s;   /* deadline of a dial; 0: 30 s */
    /* May change what `rank` sees of the others' addresses. */
    void (*tamper)(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX]);
    tt_dials dials;
    bool any_magic;             /* messages that arrive may have another one */
    bool may_fail_connect;      /* what has missed is the body's business */
    _Atomic uint32_t *n_missed; /* counts them, if in shared memory; or NULL */
    /* Runs after the exchange, before the dials; may be NULL. */
    void (*before)(tt_node *node);
    /* Runs when a connection is up, before anything is sent; may be NULL. */
    void (*on_up)(tt_conn *conn);
    uint32_t n_killed; /* nodes that are expected to die by SIGKILL */
};

/* The transport's own, where the settings put a layer over it. */
tt_conn *tt_node_below(tt_conn *conn, const tt_net_ops *row);

/* Runs n nodes; returns 0 when all bodies did. Failures are printed. */
int tt_nodes_run(const tt_nodes *nodes);

/* Opens and connects n nodes in this thread (transports of one process whose
 * dials never wait for long); 0 or a failure, which is printed. Whatever the
 * outcome, tt_nodes_local_close() them. */
int tt_nodes_local(const tt_nodes *nodes, tt_node *node);
void tt_nodes_local_close(tt_node *node, uint32_t n);

/* The seed from TT_SEED or the clock; printed once. */
uint64_t tt_test_seed(void);

/* One turn: flush all, progress; when nothing moved sleep until an event
 * (arm and poll). Returns false (with failure set) when nothing happened for
 * 5 s. */
bool tt_node_turn(tt_node *node);
/* Only progress, never sleeps. */
bool tt_node_poll(tt_node *node, bool has_event);

/* Memory for payloads: of the node's regions if is_direct, else of malloc. */
void *tt_node_alloc(tt_node *node, size_t bytes);
void tt_node_free(tt_node *node, void *ptr);

/* As the engine does at the end; idempotent. */
void tt_node_close(tt_node *node);

int tt_node_fail(tt_node *node, const char *file, int line, const char *text);
#define NODE_CHECK(node, cond)                                    \
    do {                                                          \
        if (!(cond))                                              \
            return tt_node_fail(node, __FILE__, __LINE__, #cond); \
    } while (0)

/* Of memfds, in this process. */
int tt_count_mappings(void);

#endif
