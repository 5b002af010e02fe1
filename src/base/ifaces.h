/* SPDX-License-Identifier: BSD-3-Clause
 * ifaces.h - the addresses of this host's network interfaces, the ones that
 * others are most likely to reach first, filtered by TUTTI_SOCKET_IFNAME. */
#ifndef TT_BASE_IFACES_H
#define TT_BASE_IFACES_H

#include "base/err.h"
#include "base/ifacecap.h"
#include "base/sock.h"

typedef enum tt_iface_order {
    TT_IFACE_ORDINARY,
    TT_IFACE_HOST,       /* an address without a network: reached by routes */
    TT_IFACE_INNER,      /* bridges of containers and virtual machines */
    TT_IFACE_LOOPBACK,   /* 127.0.0.1, ::1 */
    TT_IFACE_LINK_LOCAL, /* fe80::, means something on its own link only */
    TT_IFACE_ORDERS
} tt_iface_order;

/* One address of an interface. Its name is that of the device, also where the
 * address has a label (eth0:1) of its own. */
typedef struct tt_iface {
    tt_addr addr;    /* port 0 */
    tt_addr far;     /* the other end, where the system knows it; len 0: not */
    unsigned prefix; /* bits of addr (or far) that are the network's */
    uint32_t mbit;   /* speed of the interface; 0: not known */
    tt_iface_order order;
    bool is_further; /* the interface has several of this family before it */
    char name[TT_IFACE_NAME];
} tt_iface;

/* NCCL's syntax: a list of prefixes "eth,ib"; "^docker,lo" all but these;
 * "=eth0,eth1" exact names; "^=eth0" all but exactly this. "" is all. A mark
 * before the first name holds for all names. A later name may have marks of its
 * own: "eth,^eth1,=ib0". What is excluded stays so. */
bool tt_iface_allowed(const char *filter, const char *name);

/* Fills at most `most` entries of interfaces that are up and allowed, in
 * order, and of one order the fastest first; loopback only where `filter` does
 * not exclude it. Further addresses of interfaces that have many come last, so
 * that they leave room for the others. Returns how many. Errors of the system
 * give 0. */
size_t tt_ifaces_list(const char *filter, tt_iface *out, size_t most);

/* Is `to` on the network of this address, or its other end? */
bool tt_iface_reaches(const tt_iface *iface, const tt_addr *to);
bool tt_addr_same_ip(const tt_addr *a, const tt_addr *b);
bool tt_addr_is_loopback(const tt_addr *addr);
/* Orders by speed: an unknown one is taken for 1 Gbit/s. */
uint32_t tt_iface_speed(uint32_t mbit);

/* The card below the interface (a VLAN, a macvlan, a bridge or bond of one
 * card), as sysfs (/sys/class/net) tells; the interface itself when there is
 * none, or several. */
void tt_iface_card(const char *sysfs, const char *name,
                   char out[TT_IFACE_NAME]);

/* ECONFIG: the filter allows no interface that is up. */
tutti_err tt_ifaces_fail(const char *filter, tutti_diag *diag);
/* "eth0, lo": the interfaces that are up, for messages. */
void tt_ifaces_names(char *out, size_t size);

#endif
