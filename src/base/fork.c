/* SPDX-License-Identifier: BSD-3-Clause
 * fork.c - see fork.h.
 *
 * Idea       One bit per descriptor number, set and cleared atomically: no
 *            lock, so a child forked at any moment finds a usable map.
 * Invariant  A bit is cleared before its descriptor is closed, so the child
 *            never closes a number that somebody else has got meanwhile.
 * Cost       128 KiB of zero pages, of which only the used ones are real.
 *            Numbers beyond the map are not watched. */
#include "base/fork.h"

#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#define FD_LIMIT (1 << 20) /* the kernel's default for fs.nr_open */

static _Atomic uint64_t watched[FD_LIMIT / 64];
static _Atomic int highest = -1;

void tt_fork_watch(int fd)
{
    if (fd < 0 || fd >= FD_LIMIT)
        return;
    atomic_fetch_or(&watched[fd / 64], UINT64_C(1) << (fd % 64));
    int seen = atomic_load(&highest);
    while (seen < fd && !atomic_compare_exchange_weak(&highest, &seen, fd))
        continue;
}

void tt_fork_unwatch(int fd)
{
    if (fd < 0 || fd >= FD_LIMIT)
        return;
    atomic_fetch_and(&watched[fd / 64], ~(UINT64_C(1) << (fd % 64)));
}

void tt_fork_close(int *fd)
{
    if (*fd < 0)
        return;
    tt_fork_unwatch(*fd);
    close(*fd);
    *fd = -1;
}

void tt_fork_child(void)
{
    int last = atomic_load(&highest);
    for (int word = 0; word <= last / 64 && last >= 0; word++) {
        uint64_t bits = atomic_exchange(&watched[word], 0);
        while (bits) {
            close(word * 64 + __builtin_ctzll(bits));
            bits &= bits - 1;
        }
    }
}
