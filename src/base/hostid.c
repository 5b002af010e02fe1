/* SPDX-License-Identifier: BSD-3-Clause
 * hostid.c - see hostid.h. The kernel's boot id tells hosts apart, the network
 * namespace containers of one host. */
#include "base/hostid.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

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
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, text, sizeof(text));
    close(fd);
    size_t n = 0;
    for (ssize_t i = 0; i < len && n < 32; i++) {
        int digit = hex_digit(text[i]);
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

/* Not from sysconf(), which inside a virtual machine tells the cache of the
 * whole processor. */
uint64_t tt_host_cache_bytes(void)
{
    for (int index = 3; index > 1; index--) {
        char path[80], text[32] = "";
        snprintf(path, sizeof(path),
                 "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        ssize_t len = read(fd, text, sizeof(text) - 1);
        close(fd);
        char *unit;
        uint64_t size = len > 0 ? strtoull(text, &unit, 10) : 0;
        if (size > 0)
            return *unit == 'M' ? size << 20 : size << 10;
    }
    return UINT64_C(32) << 20;
}
