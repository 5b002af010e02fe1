/* SPDX-License-Identifier: BSD-3-Clause
 * ifaces.h - the addresses of this host's network interfaces, the ones that
 * others are most likely to reach first, filtered by TUTTI_SOCKET_IFNAME. */
#ifndef TT_BASE_IFACES_H
#define TT_BASE_IFACES_H

#include "base/err.h"
#include "base/sock.h"

typedef struct tt_iface {
    tt_addr addr;  /* port 0 */
    uint8_t order; /* 0 ordinary, 1 bridges and containers', 2 loopback */
    char name[16];
} tt_iface;

/* NCCL's syntax: a list of prefixes "eth,ib"; "^docker,lo" all but these;
 * "=eth0,eth1" exact names; "^=eth0" all but exactly this. "" is all. */
bool tt_iface_allowed(const char *filter, const char *name);

/* Fills at most `most` entries of interfaces that are up and allowed, in
 * order; loopback only where `filter` does not exclude it. Returns how many.
 * Errors of the system give 0. */
size_t tt_ifaces_list(const char *filter, tt_iface *out, size_t most);

#endif
