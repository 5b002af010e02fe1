/* SPDX-License-Identifier: BSD-3-Clause
 * alloc.c - memory for buffers: whole pages, zeroed. A page in front of the
 * buffer keeps its size. */
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *tutti_alloc(size_t bytes)
{
    size_t page = page_bytes();
    if (bytes > SIZE_MAX - 2 * page)
        return NULL;
    size_t all = page + (bytes + page - 1) / page * page;
    void *base = mmap(NULL, all, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    *(size_t *)base = all;
    return (char *)base + page;
}

void tutti_free(void *ptr)
{
    if (!ptr)
        return;
    char *base = (char *)ptr - page_bytes();
    munmap(base, *(size_t *)(void *)base);
}
