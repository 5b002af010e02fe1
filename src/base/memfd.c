/* SPDX-License-Identifier: BSD-3-Clause
 * memfd.c - see memfd.h. */
#include "base/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_BYTES (UINT64_C(2) << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* Beyond the limit on file sizes ftruncate() would end the process. */
static bool is_allowed(uint64_t bytes)
{
    struct rlimit limit;
    return bytes <= INT64_MAX && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

int tt_memfd_create(const char *name, uint64_t bytes)
{
    if (!is_allowed(bytes)) {
        errno = EFBIG;
        return -1;
    }
    /* The flag is refused by old kernels, and demanded by some new ones. */
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, flags);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

void *tt_memfd_map(int fd, uint64_t bytes, int prot)
{
    if (bytes > SIZE_MAX - HUGE_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    void *space = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return NULL;
    unsigned char *first = space;
    size_t before = (HUGE_BYTES - (uintptr_t)first % HUGE_BYTES) % HUGE_BYTES;
    unsigned char *base = first + before;
    if (before > 0)
        munmap(first, before);
    munmap(base + bytes, HUGE_BYTES - before);
    if (mmap(base, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int err = errno;
        munmap(base, bytes);
        errno = err;
        return NULL;
    }
    madvise(base, bytes, MADV_DONTFORK);
    madvise(base, bytes, MADV_HUGEPAGE); /* where the system lets memfds */
    return base;
}

bool tt_memfd_is_sound(int fd, uint64_t bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &st) == 0 &&
           st.st_size >= 0 && (uint64_t)st.st_size == bytes;
}
