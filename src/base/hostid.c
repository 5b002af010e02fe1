/* SPDX-License-Identifier: BSD-3-Clause
 * hostid.c - see hostid.h. The kernel's boot id tells hosts apart, the network
 * namespace containers of one host. */
#include "base/hostid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/str.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "f7b6...-....-": 32 hex digits with dashes between. */
static bool read_boot_id(uint8_t out[16])
{
    char text[64];
    size_t n = 0;
    tt_file_head("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    for (const char *at = text; *at && n < 32; at++) {
        int digit = hex_digit(*at);
        if (digit < 0)
            continue;
        out[n / 2] = (uint8_t)(out[n / 2] << 4 | digit);
        n++;
    }
    return n == 32;
}

void tt_host_id_get(tt_host_id *out)
{
    *out = (tt_host_id){.uid = geteuid()};
    if (gethostname(out->name, sizeof(out->name) - 1) != 0)
        snprintf(out->name, sizeof(out->name), "unknown");
    if (!read_boot_id(out->boot_id)) {
        /* Without /proc the host's name is the best there is. */
        uint64_t hash = tt_fnv1a(TT_FNV1A_START, out->name, sizeof(out->name));
        memset(out->boot_id, 0, sizeof(out->boot_id));
        memcpy(out->boot_id, &hash, sizeof(hash));
    }
    struct stat ns;
    if (stat("/proc/self/ns/net", &ns) == 0)
        out->netns = ns.st_ino;
}

bool tt_host_is_same(const tt_host_id *a, const tt_host_id *b)
{
    return memcmp(a->boot_id, b->boot_id, sizeof(a->boot_id)) == 0 &&
           a->netns == b->netns;
}

/* Not from sysconf(), which inside a virtual machine tells the cache of the
 * whole processor. */
uint64_t tt_host_cache_bytes(void)
{
    for (int index = 3; index > 1; index--) {
        char path[80], text[32];
        snprintf(path, sizeof(path),
                 "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        char *unit;
        uint64_t size = strtoull(tt_file_head(path, text, sizeof(text)), &unit,
                                 10);
        if (size > 0)
            return *unit == 'M' ? size << 20 : size << 10;
    }
    return UINT64_C(32) << 20;
}
