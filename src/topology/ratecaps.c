/* SPDX-License-Identifier: BSD-3-Clause
 * ratecaps.c - TUTTI_RATE's text: how much a host may send by its interfaces.
 * Next       start/caps.c, which puts them into the network. */
#include <string.h>

#include "topology/topology.h"

static tutti_err bad_item(const char *item, size_t len, const char *why,
                          tutti_diag *diag)
{
    return tt_fail(diag, TUTTI_ECONFIG,
                   "TUTTI_RATE: \"%.*s\" %s; expected 100Mbit for all "
                   "interfaces, or eth0=100Mbit,eth1=20Mbit",
                   (int)(len < 60 ? len : 60), item, why);
}

/* One item, into a place of its own. */
static tutti_err read_item(const char *item, size_t len, tt_iface_cap *out,
                           tutti_diag *diag)
{
    const char *mark = memchr(item, '=', len);
    size_t n_dev = mark ? (size_t)(mark - item) : 0;
    const char *rate = mark ? mark + 1 : item;
    size_t n_rate = len - (size_t)(rate - item);
    *out = (tt_iface_cap){.bps = 0};
    if (mark && (n_dev == 0 || n_dev >= sizeof(out->dev)))
        return bad_item(item, len, "names no interface", diag);
    memcpy(out->dev, item, n_dev);
    if (!tt_rate_parse(rate, n_rate, &out->bps))
        return bad_item(item, len, "is no rate", diag);
    return TUTTI_OK;
}

tutti_err tt_caps_read(const char *text, tt_iface_cap *out, uint32_t *n,
                       tutti_diag *diag)
{
    *n = 0;
    for (const char *at = text; text[0];) {
        size_t len = strcspn(at, ",");
        tt_iface_cap one;
        tutti_err err = read_item(at, len, &one, diag);
        if (err)
            return err;
        if (tt_iface_cap_find(out, *n, one.dev) < *n)
            return bad_item(at, len, "says what has been said already", diag);
        if (*n == TT_CAPS_MAX)
            return tt_fail(diag, TUTTI_ELIMIT,
                           "TUTTI_RATE names more than %u interfaces",
                           (unsigned)TT_CAPS_MAX);
        out[(*n)++] = one;
        if (at[len] == '\0')
            break;
        at += len + 1;
    }
    return TUTTI_OK;
}
