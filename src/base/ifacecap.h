/* SPDX-License-Identifier: BSD-3-Clause
 * ifacecap.h - how much this host may send by an interface. */
#ifndef TT_BASE_IFACECAP_H
#define TT_BASE_IFACECAP_H

#include <stdint.h>
#include <string.h>

#define TT_IFACE_NAME 16 /* IFNAMSIZ */

typedef struct tt_iface_cap {
    char dev[TT_IFACE_NAME]; /* "": each that no other one names */
    uint64_t bps;            /* on the wire */
} tt_iface_cap;

/* Which of them is that interface's; n: none. */
static inline uint32_t tt_iface_cap_find(const tt_iface_cap *caps, uint32_t n,
                                         const char *dev)
{
    uint32_t i = 0;
    while (i < n && strcmp(caps[i].dev, dev) != 0)
        i++;
    return i;
}

/* Of that interface; 0: it has none. */
static inline uint64_t tt_iface_cap_of(const tt_iface_cap *caps, uint32_t n,
                                       const char *name)
{
    uint32_t i = tt_iface_cap_find(caps, n, name);
    if (i == n)
        i = tt_iface_cap_find(caps, n, "");
    return i < n ? caps[i].bps : 0;
}

#endif
