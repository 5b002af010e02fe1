/* SPDX-License-Identifier: BSD-3-Clause
 * cap.c - see cap.h.
 *
 * Idea       One number says until when the interface is busy with what has
 *            been sent. Who sends n bytes moves it on by the time that they
 *            take at the cap. It may run ahead of the clock by BURST_NS; who
 *            would go further waits. One compare-and-swap is all there is to
 *            lock, and a process that dies leaves nothing behind.
 * Shared     The number lies in a file in /dev/shm, named by user, network
 *            namespace and interface. So all ranks of a host, and all jobs of a
 *            user, send no more than the cap together. Each has its own cap:
 *            the number is a time, so they need not agree. The last one removes
 *            the file.
 * Wire       The cap counts what links carry. Packets have 1448 bytes of
 *            payload in 1514 (topology.h says the same), so payload takes so
 *            much longer. Acknowledgements are not counted: they are 2 % of
 *            what comes.
 * Bound      In any 100 ms at most the cap's 100 ms and BURST_NS of it are
 *            sent, and a packet or two where the cap is below 12 Mbit/s. What
 *            waits in a socket does not break out either: the kernel paces each
 *            socket at the cap (tt_tcp_cap_pace()).
 * Next       tcp.c, which waits; tests/unit/cap_test.c. */
#include "net/tcp/cap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/hostid.h"
#include "base/log.h"

#define BURST_NS (2 * TT_NS_PER_MS)
#define PAYLOAD 1448u
#define PACKET 1514u
/* The burst, where the cap is so low that less would be no packet. */
#define LEAST_BYTES ((size_t)2 * PAYLOAD)
/* What is further ahead was written by somebody else, or before a suspend. */
#define STALE_NS (10 * TT_NS_PER_S)
#define FILE_BYTES 4096

/* How long n bytes of payload take. */
static uint64_t time_of(const tt_tcp_cap *cap, size_t n)
{
    const double bits = 8.0 * (double)n * PACKET / PAYLOAD;
    return (uint64_t)(bits * 1e9 / (double)cap->bps);
}

static size_t bytes_in(const tt_tcp_cap *cap, uint64_t ns)
{
    const double bits = (double)ns * (double)cap->bps / 1e9;
    return (size_t)(bits * PAYLOAD / PACKET / 8);
}

static uint64_t burst_of(const tt_tcp_cap *cap)
{
    const uint64_t least = time_of(cap, LEAST_BYTES);
    return least > BURST_NS ? least : BURST_NS;
}

size_t tt_tcp_cap_take(tt_tcp_cap *cap, uint64_t now_ns, size_t want,
                       uint64_t *when_ns)
{
    const uint64_t burst = burst_of(cap);
    uint64_t was = atomic_load_explicit(cap->busy_ns, memory_order_relaxed);
    for (;;) {
        /* Nothing else is read by what this number says: relaxed. */
        const bool is_stale = was < now_ns || was - now_ns > burst + STALE_NS;
        uint64_t busy = is_stale ? now_ns : was;
        uint64_t ahead = busy - now_ns;
        size_t room = ahead < burst ? bytes_in(cap, burst - ahead) : 0;
        size_t enough = bytes_in(cap, burst / 2); /* few system calls */
        if (room < want && room < enough) {
            *when_ns = busy - burst + (burst + 1) / 2;
            if (*when_ns <= now_ns)
                *when_ns = now_ns + 1;
            return 0;
        }
        size_t n = want < room ? want : room;
        if (atomic_compare_exchange_weak_explicit(
                cap->busy_ns, &was, busy + time_of(cap, n),
                memory_order_relaxed, memory_order_relaxed))
            return n;
    }
}

void tt_tcp_cap_give_back(tt_tcp_cap *cap, size_t n)
{
    if (n > 0)
        atomic_fetch_sub_explicit(cap->busy_ns, time_of(cap, n),
                                  memory_order_relaxed);
}

uint64_t tt_tcp_cap_pace(const tt_tcp_cap *cap)
{
    const uint64_t pace = bytes_in(cap, TT_NS_PER_S);
    return pace ? pace : 1;
}

/* --------------------------------------------------------------- shared -- */

static void name_file(const tt_tcp_cap *cap, char *out, size_t size)
{
    tt_host_id id;
    tt_host_id_get(&id);
    snprintf(out, size, "/dev/shm/tutti-rate-%u-%llx-%.15s",
             (unsigned)geteuid(), (unsigned long long)id.netns, cap->dev);
}

/* Nobody else may write there, or keep us from sending. */
static bool is_ours(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           st.st_uid == geteuid() && (st.st_mode & 077) == 0;
}

/* Locked for reading as long as it is in use: who can lock it for writing is
 * the last one. -1: it cannot be had. */
static int open_file(const char *path)
{
    for (int tries = 0; tries < 100; tries++) {
        struct stat st;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -1;
        if (!is_ours(fd) || flock(fd, LOCK_SH) != 0 ||
            ftruncate(fd, FILE_BYTES) != 0) {
            close(fd);
            return -1;
        }
        if (fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        close(fd); /* the last one has just removed it */
    }
    return -1;
}

void tt_tcp_cap_open(tt_tcp_cap *cap, const char *dev, uint64_t bps)
{
    char path[96];
    *cap = (tt_tcp_cap){.bps = bps, .busy_ns = &cap->own, .fd = -1};
    snprintf(cap->dev, sizeof(cap->dev), "%s", dev);
    name_file(cap, path, sizeof(path));
    cap->fd = open_file(path);
    if (cap->fd < 0) {
        TT_INFO("TUTTI_RATE: %s cannot be shared (%s): this process keeps to "
                "its cap by itself",
                path, strerror(errno));
        return;
    }
    tt_fork_watch(cap->fd);
    void *at = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                    cap->fd, 0);
    if (at == MAP_FAILED)
        return;
    madvise(at, FILE_BYTES, MADV_DONTFORK);
    cap->busy_ns = at;
}

void tt_tcp_cap_close(tt_tcp_cap *cap)
{
    char path[96];
    if (!cap->busy_ns)
        return;
    if (cap->busy_ns != &cap->own)
        munmap((void *)cap->busy_ns, FILE_BYTES);
    cap->busy_ns = NULL;
    if (cap->fd < 0)
        return;
    name_file(cap, path, sizeof(path));
    if (flock(cap->fd, LOCK_EX | LOCK_NB) == 0)
        unlink(path);
    tt_fork_close(&cap->fd);
}
