/* SPDX-License-Identifier: BSD-3-Clause
 * slurm.c - the first name of a Slurm node list. Next: launch.c. */
#include <string.h>

#include "boot/launch.h"

/* Names end at a comma outside of brackets; inside them only the first number
 * matters, with its leading zeros: "r[1-2]n[03,05]" begins with r1n03. */
bool tt_slurm_first_host(const char *list, char *out, size_t size)
{
    size_t used = 0;
    for (const char *at = list; *at != '\0' && *at != ',';) {
        size_t n = 1;
        if (*at == '[') {
            at++;
            n = strspn(at, "0123456789");
            if (n == 0)
                return false;
        } else if (*at == ']') {
            return false;
        }
        if (used + n >= size)
            return false;
        memcpy(out + used, at, n);
        used += n;
        bool was_range = at > list && at[-1] == '[';
        at += n;
        if (was_range) {
            at = strchr(at, ']');
            if (!at)
                return false;
            at++;
        }
    }
    if (used == 0)
        return false;
    out[used] = '\0';
    return true;
}
