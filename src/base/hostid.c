/* SPDX-License-Identifier: BSD-3-Clause
 * hostid.c - see hostid.h. The kernel's boot id tells hosts apart, the network
 * namespace containers of one host. */
#include "base/hostid.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
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
