/* SPDX-License-Identifier: BSD-3-Clause
 * via.c - the ranks meet by way of others, where not every host reaches rank
 * 0's.
 *
 * Nobody knows anybody yet. So each rank that has TUTTI_VIA listens at the port
 * at which rank 0 does, on its own host, and passes on to rank 0, or to the
 * hosts that TUTTI_VIA names (link/pass.c); of the ranks of a host the first
 * one does. It stays until the start is over. Only who names the job, and has
 * the secret where there is one, is passed on, and to rank 0's port only.
 * Next: join.c. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "boot/meet.h"

/* The most addresses of neighbours. */
#define MOST_VIAS TT_LINK_PASSES

static bool is_wanted(const tt_boot *boot)
{
    return boot->via && boot->via[0] && !boot->store && !boot->is_local;
}

/* There rank 0 is to listen itself. */
static bool is_own_host(const tt_addr *addrs, size_t n)
{
    tt_iface own[128];
    const size_t n_own = tt_ifaces_list("", own, sizeof(own) / sizeof(own[0]));
    bool is = false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_own; k++)
            is |= tt_addr_same_ip(&own[k].addr, &addrs[i]);
    return is;
}

/* Where the port is taken another rank of this host passes on. */
static tutti_err listen_here(const tt_boot *boot, tutti_diag *diag)
{
    tt_link_listener *listener;
    char port[8];
    snprintf(port, sizeof(port), "%u", boot->port);
    const tt_link_listen_opts o = {
        .self = boot->id,
        .job = boot->like.job,
        .trust = boot->trust,
        .interfaces = boot->interfaces,
        .ports = port,
    };
    tutti_err err = tt_link_listen(boot->passing, &o, &listener, NULL, diag);
    if (!err)
        tt_link_listener_pass(listener);
    if (err != TUTTI_ESYS)
        return err;
    TT_DEBUG("this rank passes nobody on to rank 0: %s", diag->text);
    tt_diag_clear(diag);
    return TUTTI_OK;
}

/* Of one host; a name may come to be known later. */
static uint32_t look_up(const tt_boot *boot, const char *host,
                        tt_link_way *ways, uint32_t most)
{
    char port[8];
    uint32_t n = 0;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    snprintf(port, sizeof(port), "%u", boot->port);
    if (getaddrinfo(host, port, &hints, &list) != 0)
        return 0;
    for (struct addrinfo *a = list; a && n < most; a = a->ai_next) {
        if (a->ai_addrlen > sizeof(ways[n].to.u))
            continue;
        memset(&ways[n], 0, sizeof(ways[n]));
        ways[n].is_via = true;
        ways[n].to.len = a->ai_addrlen;
        memcpy(&ways[n].to.u, a->ai_addr, a->ai_addrlen);
        n++;
    }
    freeaddrinfo(list);
    return n;
}

static uint32_t list_vias(const tt_boot *boot, tt_link_way ways[MOST_VIAS])
{
    uint32_t n = 0;
    char host[TT_SOCK_HOST];
    for (const char *at = boot->via; *at && n < MOST_VIAS;) {
        size_t len = strcspn(at, ",");
        if (len > 0 && len < sizeof(host)) {
            snprintf(host, sizeof(host), "%.*s", (int)len, at);
            n += look_up(boot, host, ways + n, MOST_VIAS - n);
        }
        at += len + (at[len] == ',');
    }
    return n;
}

tutti_err tt_boot_via_know(tt_boot *boot, tt_link_box *box,
                           const tt_addr *addrs, size_t n, tutti_diag *diag)
{
    tt_link_way ways[TT_BOOT_WAYS + MOST_VIAS];
    if (!is_wanted(boot))
        return TUTTI_OK;
    const bool is_first = !boot->passing;
    tutti_err err = TUTTI_OK;
    if (is_first)
        err = tt_link_id_make(&boot->id, diag);
    if (!err && is_first)
        err = tt_link_box_open(&boot->mem, &boot->passing, diag);
    if (err)
        return err;
    memset(ways, 0, sizeof(ways));
    for (size_t i = 0; i < n; i++)
        ways[i].to = addrs[i];
    const tt_link_far rank0 = {
        .at = addrs,
        .n_at = (uint32_t)n,
        .ways = ways,
        .n_ways = (uint32_t)n + list_vias(boot, ways + n),
        .port = boot->port,
    };
    if (tt_link_book_set(box, &rank0, 1) ||
        tt_link_book_set(boot->passing, &rank0, 1))
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory at start-up");
    return is_first && !is_own_host(addrs, n) ? listen_here(boot, diag)
                                              : TUTTI_OK;
}
