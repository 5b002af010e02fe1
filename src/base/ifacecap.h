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

/* Of that interface; 0: it has none. */
static inline uint64_t tt_iface_cap_of(const tt_iface_cap *caps, uint32_t n,
                                       const char *name)
{
    uint64_t bps = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(caps[i].dev, name) == 0)
            return caps[i].bps;
        if (caps[i].dev[0] == '\0')
            bps = caps[i].bps;
    }
    return bps;
}

#endif
