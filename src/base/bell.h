/* SPDX-License-Identifier: BSD-3-Clause
 * bell.h - an eventfd as a bell: readable from when it is rung until it is
 * heard. Neither blocks. */
#ifndef TT_BASE_BELL_H
#define TT_BASE_BELL_H

#include <stdint.h>
#include <unistd.h>

static inline void tt_bell_ring(int fd)
{
    const uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof(one));
    (void)n; /* where the counter is full it is readable, which is enough */
}

static inline void tt_bell_hear(int fd)
{
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));
    (void)n;
}

#endif
