/* SPDX-License-Identifier: BSD-3-Clause
 * ifaces.h - the addresses of this host's network interfaces, the ones that
 * others are most likely to reach first, filtered by TUTTI_SOCKET_IFNAME. */
#ifndef TT_BASE_IFACES_H
#define TT_BASE_IFACES_H

#include "base/err.h"
#include "base/sock.h"

typedef enum tt_iface_order {
    TT_IFACE_ORDINARY,
    TT_IFACE_INNER, /* bridges of containers and virtual machines */
    TT_IFACE_LOOPBACK
} tt_iface_order;

typedef struct tt_iface {
    tt_addr addr; /* port 0 */
    tt_iface_order order;
    char name[16];
} tt_iface;

/* NCCL's syntax: a list of prefixes "eth,ib"; "^docker,lo" all but these;
 * "=eth0,eth1" exact names; "^=eth0" all but exactly this. "" is all. */
bool tt_iface_allowed(const char *filter, const char *name);

/* Fills at most `most` entries of interfaces that are up and allowed, in
 * order; loopback only where `filter` does not exclude it. Returns how many.
 * Errors of the system give 0. */
size_t tt_ifaces_list(const char *filter, tt_iface *out, size_t most);

/* "eth0, lo": the interfaces that are up, for messages. */
void tt_ifaces_names(char *out, size_t size);

#endif
