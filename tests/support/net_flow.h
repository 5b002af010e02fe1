/* SPDX-License-Identifier: BSD-3-Clause
 * net_flow.h - random but replayable messages between the nodes of
 * net_pair.h: both sides derive the k-th message of an ordered pair from
 * (seed, src, dst), so the receiver can check every byte. */
#ifndef TT_TESTS_NET_FLOW_H
#define TT_TESTS_NET_FLOW_H

#include "support/net_pair.h"

#define FLOW_SLOTS 4 /* payloads that may be borrowed at a time */

/* The messages from this node to a peer, and back; peer->test points to it. */
typedef struct tt_flow {
    tt_rng out, in;
    tt_rng cuts; /* how payloads are cut into segments; local */
    uint64_t n_sent, n_got, n_queued;
    tt_msg m; /* the next message, when it is made already */
    bool is_made;
    unsigned char *slot[FLOW_SLOTS];
    unsigned char *expected;
} tt_flow;

/* A flow for every peer; tt_flows_close() closes the node, too, and first: a
 * payload may be borrowed until then. */
void tt_flows_open(tt_node *node);
void tt_flows_close(tt_node *node);

/* Sends the flow's next message; false: no room now. */
bool tt_flow_send(tt_peer *peer);

/* For node->on_arrived: compares with what must have been sent. */
void tt_flow_arrived(tt_peer *peer, const tt_msg *m, const void *data);

/* n bytes made from a seed. */
void tt_fill(unsigned char *to, size_t n, uint64_t seed);

#endif
