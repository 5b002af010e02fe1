/* SPDX-License-Identifier: BSD-3-Clause
 * places.h - addresses that tests make up: of a card, of an interface.
 * Include support/tap.h first. */
#ifndef TT_TESTS_PLACES_H
#define TT_TESTS_PLACES_H

#include <stdio.h>
#include <string.h>

#include "link/link.h"

static inline tt_link_place tt_test_place(const char *ip, uint16_t port,
                                          tt_iface_order order)
{
    tt_addr addr;
    assert_true(tt_addr_numeric(ip, port, &addr));
    tt_link_place p = {.family = 4, .port = port, .order = (uint8_t)order};
    memcpy(p.ip, &addr.u.v4.sin_addr, 4);
    if (addr.u.sa.sa_family == AF_INET6) {
        p.family = 6;
        memcpy(p.ip, &addr.u.v6.sin6_addr, 16);
    }
    return p;
}

/* "eth0 10.0.0.1/24": an address of an interface; "a/32>b": with its other
 * end. */
static inline tt_iface tt_test_iface(const char *text, tt_iface_order order,
                                     uint32_t mbit)
{
    tt_iface one = {.order = order, .mbit = mbit};
    char ip[64], far[64] = "";
    int n = sscanf(text, "%15s %63[^/]/%u>%63s", one.name, ip, &one.prefix,
                   far);
    assert_true(n >= 3 && tt_addr_numeric(ip, 0, &one.addr));
    assert_true(!far[0] || tt_addr_numeric(far, 0, &one.far));
    if (order == TT_IFACE_LINK_LOCAL)
        one.addr.u.v6.sin6_scope_id = (uint32_t)one.name[3];
    return one;
}

#endif
