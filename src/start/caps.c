/* SPDX-License-Identifier: BSD-3-Clause
 * caps.c - how much hosts may send by their interfaces: TUTTI_RATE, and `rate=`
 * in a topology.
 *
 * Idea       Both are caps of a link that leaves a host. Every rank says its
 *            TUTTI_RATE to all, so all put the same caps into the network, and
 *            plan for the same one. Each host then keeps to the caps of its own
 *            links (net/tcp/cap.c). Of several the least counts.
 * Names      A link is known by its `dev=`. A link without one, the only one of
 *            its host, is the interface that TUTTI_RATE names, if it names one
 *            only.
 * Next       net/tcp/capped.c. */
#include <stdio.h>
#include <string.h>

#include "start/steps.h"

/* ---------------------------------------------------------- the network -- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Of the link, by what a rank of its host says; 0: nothing. */
static uint64_t cap_by(const tt_iface_cap *caps, uint32_t n, const char *dev,
                       bool is_only_link)
{
    uint64_t of_all = 0;
    uint32_t n_named = 0;
    const tt_iface_cap *named = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (caps[i].dev[0] == '\0') {
            of_all = caps[i].bps;
            continue;
        }
        if (dev && strcmp(caps[i].dev, dev) == 0)
            return caps[i].bps;
        named = &caps[i];
        n_named++;
    }
    return !dev && is_only_link && n_named == 1 ? named->bps : of_all;
}

static uint32_t count_out(const tutti_topology *t, uint32_t node)
{
    uint32_t n = 0;
    for (uint32_t i = t->first_out[node]; i < t->first_out[node + 1]; i++)
        n += !t->links[t->out[i]].is_memory;
    return n;
}

/* Of the links that leave a node. */
static void add_caps(const tutti_topology *t, uint32_t node,
                     const tt_iface_cap *caps, uint32_t n, uint64_t *caps_bps)
{
    const bool is_only = count_out(t, node) == 1;
    for (uint32_t i = t->first_out[node]; i < t->first_out[node + 1]; i++) {
        const uint32_t at = t->out[i];
        const tt_link *link = &t->links[at];
        if (!link->is_memory)
            caps_bps[at] = least(caps_bps[at],
                                 cap_by(caps, n, link->dev, is_only));
    }
}

/* What all ranks say, in the network. */
static tutti_err cap_network(start *st, const char (*all)[TT_SETTING_TEXT])
{
    const tutti_topology *t = st->topology;
    tutti_topology *capped = NULL;
    uint64_t *caps_bps = tt_arena_new(&st->passing, (size_t)t->n_links + 1,
                                      sizeof(*caps_bps));
    if (!caps_bps)
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory for TUTTI_RATE");
    for (uint32_t i = 0; i < t->n_links; i++)
        caps_bps[i] = t->links[i].cap_bps;
    for (uint32_t r = 0; r < st->n; r++) {
        tt_iface_cap caps[TT_CAPS_MAX];
        uint32_t n;
        tutti_err err = tt_caps_read(all[r], caps, &n, st->diag);
        if (err)
            return err;
        const uint32_t slot = t->rank_node[r];
        const uint32_t host = tt_node_host(t, slot);
        add_caps(t, host, caps, n, caps_bps);
        if (slot != host)
            add_caps(t, slot, caps, n, caps_bps);
    }
    tutti_err err = tt_topology_with_caps(t, caps_bps, st->mem, &capped,
                                          st->diag);
    if (err)
        return err;
    tt_topology_free(st->topology);
    st->topology = capped;
    return TUTTI_OK;
}

static tutti_err share_caps(start *st)
{
    char(*all)[TT_SETTING_TEXT] = tt_arena_new(&st->passing, st->n,
                                               sizeof(*all));
    tutti_err err = TUTTI_OK;
    if (!all)
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory for TUTTI_RATE");
    err = tt_start_agree(st, err);
    if (!err)
        err = tt_boot_exchange(st->boot, st->settings.rate, sizeof(*all), all,
                               st->diag);
    for (uint32_t r = 0; !err && r < st->n; r++)
        all[r][sizeof(all[r]) - 1] = '\0';
    if (!err && st->topology)
        err = cap_network(st, (const char(*)[TT_SETTING_TEXT])all);
    return tt_start_agree(st, err);
}

/* ------------------------------------------------------------- this host -- */

static void add_cap(tt_iface_cap *caps, uint32_t *n, const char *dev,
                    uint64_t bps)
{
    const uint32_t i = tt_iface_cap_find(caps, *n, dev);
    if (i == TT_CAPS_MAX)
        return;
    if (i == *n) {
        caps[(*n)++] = (tt_iface_cap){.bps = 0};
        snprintf(caps[i].dev, sizeof(caps[i].dev), "%s", dev);
    }
    caps[i].bps = least(caps[i].bps, bps);
}

/* What the network says of this host's links. */
static void add_links(const start *st, tt_iface_cap *caps, uint32_t *n)
{
    const tutti_topology *t = st->topology;
    const uint32_t host = t ? tt_node_host(t, t->rank_node[st->rank]) : 0;
    for (uint32_t i = 0; t && i < t->n_links; i++) {
        const tt_link *link = &t->links[i];
        if (link->cap_bps && !link->is_memory &&
            tt_node_host(t, link->from) == host)
            add_cap(caps, n, link->dev ? link->dev : "", link->cap_bps);
    }
}

tutti_err tt_start_caps(start *st)
{
    tt_iface_cap caps[TT_CAPS_MAX];
    uint32_t n = 0;
    tutti_err err = st->agreed.has_rates ? share_caps(st) : TUTTI_OK;
    if (!err)
        err = tt_caps_read(st->settings.rate, caps, &n, st->diag);
    if (err)
        return err;
    add_links(st, caps, &n);
    tt_iface_cap *own = tt_arena_new(&st->kept, n, sizeof(*own));
    if (n > 0 && !own)
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory for TUTTI_RATE");
    if (n > 0)
        memcpy(own, caps, n * sizeof(*own));
    st->caps = own;
    st->n_caps = n;
    return TUTTI_OK;
}
