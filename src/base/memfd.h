/* SPDX-License-Identifier: BSD-3-Clause
 * memfd.h - memory without a name that other processes may map, once they have
 * been handed its descriptor. Its size is sealed: whoever maps it can touch
 * all of it for ever, whatever the others do. */
#ifndef TT_BASE_MEMFD_H
#define TT_BASE_MEMFD_H

#include <stdbool.h>
#include <stdint.h>

/* A descriptor, close-on-exec, of `bytes` zero bytes that take no memory until
 * they are touched; -1 with errno. */
int tt_memfd_create(const char *name, uint64_t bytes);

/* Maps all of it, shared, where huge pages are possible (a multiple of 2 MiB);
 * a forked child does not have the mapping. NULL with errno. */
void *tt_memfd_map(int fd, uint64_t bytes, int prot);

/* Whether fd, which somebody else has sent, is such memory of this size. */
bool tt_memfd_is_sound(int fd, uint64_t bytes);

#endif
