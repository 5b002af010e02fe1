/* SPDX-License-Identifier: BSD-3-Clause
 * controller.h - the rule (rule.h) with a body: a thread that listens, hears
 * workers and tells them their groups. It is off the data path: O(P) small
 * messages per group. */
#ifndef TT_PARTIAL_CONTROLLER_H
#define TT_PARTIAL_CONTROLLER_H

#include "base/settings.h"
#include "base/sock.h"
#include "partial/rule.h"

typedef tutti_controller tt_controller;

typedef struct tt_controller_opts {
    tt_rule_opts rule;
    /* Where it listens; NULL: on loopback where is_local, else on the addresses
     * that `interfaces` (TUTTI_SOCKET_IFNAME; NULL: all) allows, at a port of
     * `ports`. */
    const tt_addr *listen;
    bool is_local;
    const char *interfaces;
    const char *ports; /* TUTTI_PORT_RANGE; NULL: any */
    /* Who is let in (link/trust.h): anybody who has it, where it is given; else
     * who knows the token; 0: every worker may come. */
    struct tt_trust *trust; /* borrowed for the call */
    uint64_t token;
    /* It is a standby of the controller there: the rule is that one's, and so
     * is liveness. NULL: it leads. */
    const tt_addr *leader;
    uint64_t liveness_ns; /* 0: silence never means death */
    uint64_t patience_ns; /* who waits for so long is told for whom; 0: never */
    /* A worker on another host (is_near: on any) whose connection has dropped
     * may come back for so long; 0: it may not. */
    uint64_t reconnect_ns;
    bool is_near;
    const char *log; /* file for the log of events and groups, or NULL */
} tt_controller_opts;

/* Errors: EINVAL, ESYS, ENOMEM. */
tutti_err tt_controller_open(const tt_controller_opts *o, const tt_mem *mem,
                             tt_controller **out, tutti_diag *diag);
/* Ends the connections, and with them the workers' partial reduce. */
void tt_controller_close(tt_controller *c); /* accepts NULL */
uint16_t tt_controller_port(const tt_controller *c);
/* Unless o->listen: the unix socket where it listens, too. */
void tt_controller_nest(const tt_controller *c, tt_addr *out);
void tt_controller_measure(tt_controller *c, tt_rule_metrics *out);
uint64_t tt_controller_n_of_size(tt_controller *c, uint32_t size);
/* Waits until workers have come and all have gone, or it has ended: true; or
 * for so long. */
bool tt_controller_wait(tt_controller *c, uint64_t ns);
/* Another one leads its workers now: text says so; else it is "". */
bool tt_controller_is_over(tt_controller *c, char *text, size_t size);

#endif
