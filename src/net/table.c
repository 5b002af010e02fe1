/* SPDX-License-Identifier: BSD-3-Clause
 * table.c - every transport, one row each.
 *
 * Optional transports appear here inside #if and in the Makefile, nowhere
 * else. They come last: ranks tell each other rows by number, and one that is
 * built without them numbers the others as all do. */
#include <string.h>

#include "net/table.h"

#if TT_HAVE_UCX
#define UCX_ROW &tt_net_ucx
#define UCX_LACK NULL
#else
#define UCX_ROW NULL
#define UCX_LACK                                                      \
    "this Tutti was built without UCX; install its headers (Debian: " \
    "libucx-dev) and build again, or leave ucx out"
#endif

const tt_net_ops *const tt_transports[] = {&tt_net_shm, &tt_net_tcp, UCX_ROW,
                                           NULL};

const tt_net_ops *tt_transport_find(const char *name)
{
    for (const tt_net_ops *const *row = tt_transports; *row; row++) {
        if (strcmp((*row)->name, name) == 0)
            return *row;
    }
    return NULL;
}

uint32_t tt_net_most_passed_on(const tt_net *net, uint32_t n)
{
    static const uint32_t most = 64 << 10;
    const bool is_usual_ring = net->ops->same_host &&
                               net->settings->shm_ring_bytes == 0;
    return is_usual_ring && n > 2 && net->max_payload > most ? most
                                                             : net->max_payload;
}

const char *tt_transport_lack(const char *name)
{
    return strcmp(name, "ucx") == 0 ? UCX_LACK : NULL;
}
