/* SPDX-License-Identifier: BSD-3-Clause
 * table.c - every transport, one row each, the preferred one first.
 *
 * Optional transports appear here inside #if and in the Makefile, nowhere
 * else. */
#include <string.h>

#include "net/table.h"

const tt_net_ops *const tt_transports[] = {&tt_net_shm, &tt_net_tcp,
                                           &tt_net_loop, NULL};

const tt_net_ops *tt_transport_find(const char *name)
{
    for (const tt_net_ops *const *row = tt_transports; *row; row++) {
        if (strcmp((*row)->name, name) == 0)
            return *row;
    }
    return NULL;
}
