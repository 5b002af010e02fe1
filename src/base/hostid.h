/* SPDX-License-Identifier: BSD-3-Clause
 * hostid.h - who this process is, to find out which ranks share a host; and
 * what they share there. */
#ifndef TT_BASE_HOSTID_H
#define TT_BASE_HOSTID_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tt_host_id {
    uint8_t boot_id[16]; /* of the kernel */
    uint64_t netns;      /* inode of the network namespace */
    uint32_t uid, pad;
    char name[64]; /* host name, for messages */
} tt_host_id;

void tt_host_id_get(tt_host_id *out);
/* The same machine and network namespace. */
bool tt_host_is_same(const tt_host_id *a, const tt_host_id *b);

/* Of the last-level cache, as the kernel tells; a guess where it does not. */
uint64_t tt_host_cache_bytes(void);

#endif
