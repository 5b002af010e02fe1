/* SPDX-License-Identifier: BSD-3-Clause
 * regions.c - see regions.h.
 *
 * Idea       Few large segments instead of one memfd per buffer: a process has
 *            1024 descriptors by default, a peer maps a segment once and then
 *            reads every buffer in it, and nothing has to be taken back from a
 *            peer when a buffer is freed: a hole is punched, which returns the
 *            pages to the system whoever has them mapped.
 * Sizes      A segment is as large as all before it together, at least 256 MiB,
 *            at most 16 GiB, and no smaller than what is asked for; so 64 of
 *            them are plenty. It is sparse: untouched pages cost nothing, and
 *            memfds are charged to the process that touches them, as any memory
 *            (not to /dev/shm, which containers keep small).
 * Fork       Segments are MAP_SHARED: a child that inherited them would write
 *            into its parent's buffers, and a data loader's worker may well do
 *            so. So they are MADV_DONTFORK, and the handler in the child puts a
 *            MAP_PRIVATE view of the same memory in their place. That is no
 *            snapshot: pages that the child has not written follow the parent.
 *            A child made without the handlers (raw clone()) has a hole there.
 * Lock       Held for the lists and the system calls; tt_regions_find() takes
 *            none, it reads what is complete before n_segments says so.
 * Cost       A list of buffers per segment, first fit: linear in the buffers.
 * Next       net/shm/segments.c (who maps them), child.c. */
#include "base/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/memfd.h"
#include "base/numbers.h"

#define HUGE_BYTES (UINT64_C(2) << 20)
static const uint64_t most_segment_bytes = UINT64_C(16) << 30;

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* -------------------------------------------------------------- ordinary -- */

/* A page in front of the buffer keeps its size. */
static void *ordinary(uint64_t bytes)
{
    uint64_t page = page_bytes();
    if (bytes > SIZE_MAX - page)
        return NULL;
    void *base = mmap(NULL, page + bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    *(uint64_t *)base = page + bytes;
    return (char *)base + page;
}

static void free_ordinary(void *ptr)
{
    char *base = (char *)ptr - page_bytes();
    munmap(base, *(uint64_t *)(void *)base);
}

/* -------------------------------------------------------------- segments -- */

static bool open_segment(tt_segment *s, uint64_t bytes)
{
    int fd = tt_memfd_create("tutti-alloc", bytes);
    if (fd < 0)
        return false;
    void *base = tt_memfd_map(fd, bytes, PROT_READ | PROT_WRITE);
    if (!base) {
        int err = errno;
        close(fd);
        errno = err;
        return false;
    }
    tt_fork_watch(fd);
    s->base = base;
    s->bytes = bytes;
    s->fd = fd;
    return true;
}

/* A new last segment of at least `bytes`; NULL: there is none to be had. */
static tt_segment *add_segment(tt_regions *r, uint64_t bytes)
{
    uint32_t n = atomic_load_explicit(&r->n_segments, memory_order_relaxed);
    if (n == TT_SEGMENTS_MAX) {
        TT_DEBUG("no more segments for tutti_alloc");
        return NULL;
    }
    uint64_t size = bytes > r->segment_bytes ? tt_round_up(bytes, HUGE_BYTES)
                                             : r->segment_bytes;
    tt_segment *s = &r->segments[n];
    if (!open_segment(s, size)) {
        size = bytes; /* limits: no more than what is needed */
        if (!open_segment(s, size)) {
            TT_DEBUG("no shareable memory of %llu bytes: %s",
                     (unsigned long long)size, tt_errno_text(errno));
            return NULL;
        }
    }
    uint64_t all = size;
    for (uint32_t i = 0; i < n; i++)
        all += r->segments[i].bytes;
    r->segment_bytes = all < most_segment_bytes ? all : most_segment_bytes;
    /* Release: pairs with the acquire in tt_regions_find(). */
    atomic_store_explicit(&r->n_segments, n + 1, memory_order_release);
    return s;
}

/* ------------------------------------------------------------- in a segment */

static void *place(tt_regions *r, tt_segment *s, uint64_t bytes)
{
    uint64_t align = bytes >= HUGE_BYTES ? HUGE_BYTES : page_bytes();
    uint64_t at = 0;
    size_t i = 0;
    for (; i < s->n_used && at + bytes > s->used[i].offset; i++)
        at = tt_round_up(s->used[i].offset + s->used[i].bytes, align);
    if (at + bytes > s->bytes || tt_grow(r->mem, (void **)&s->used, &s->cap,
                                         s->n_used + 1, sizeof(tt_extent)))
        return NULL;
    memmove(&s->used[i + 1], &s->used[i], (s->n_used - i) * sizeof(tt_extent));
    s->used[i] = (tt_extent){at, bytes};
    s->n_used++;
    return s->base + at;
}

static void remove_from(tt_segment *s, uint64_t offset)
{
    size_t low = 0, high = s->n_used;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->used[mid].offset < offset)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == s->n_used || s->used[low].offset != offset)
        return; /* not the beginning of a buffer */
    if (s->is_torn)
        return; /* who was stopped may still write there */
    uint64_t bytes = s->used[low].bytes;
    if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)offset, (off_t)bytes) != 0)
        memset(s->base + offset, 0, bytes);
    s->n_used--;
    memmove(&s->used[low], &s->used[low + 1],
            (s->n_used - low) * sizeof(tt_extent));
}

static uint32_t locate(const tt_regions *r, const void *ptr, size_t len)
{
    /* Acquire: pairs with the release in add_segment(). */
    uint32_t n = atomic_load_explicit(&r->n_segments, memory_order_acquire);
    uintptr_t at = (uintptr_t)ptr;
    for (uint32_t i = 0; i < n; i++) {
        const tt_segment *s = &r->segments[i];
        uintptr_t base = (uintptr_t)s->base;
        if (at >= base && at - base <= s->bytes &&
            len <= s->bytes - (at - base))
            return i;
    }
    return TT_NONE;
}

uint32_t tt_regions_find(const tt_regions *r, const void *ptr, size_t len)
{
    uint32_t i = locate(r, ptr, len);
    if (i != TT_NONE && TT_UNLIKELY(atomic_load_explicit(
                            &r->segments[i].is_torn, memory_order_relaxed)))
        return TT_NONE;
    return i;
}

/* ------------------------------------------------------------------ calls */

void *tt_regions_alloc(tt_regions *r, size_t bytes)
{
    uint64_t page = page_bytes();
    if (bytes > SIZE_MAX / 2)
        return NULL;
    uint64_t whole = bytes ? tt_round_up(bytes, page) : page;
    void *ptr = NULL;
    pthread_mutex_lock(&r->lock);
    uint32_t n = r->is_child ? 0 : atomic_load(&r->n_segments);
    for (uint32_t i = 0; i < n && !ptr; i++)
        if (!r->segments[i].is_torn)
            ptr = place(r, &r->segments[i], whole);
    if (!ptr && !r->is_child) {
        tt_segment *s = add_segment(r, whole);
        if (s)
            ptr = place(r, s, whole);
    }
    pthread_mutex_unlock(&r->lock);
    return ptr ? ptr : ordinary(whole);
}

void tt_regions_free(tt_regions *r, void *ptr)
{
    if (!ptr)
        return;
    uint32_t i = locate(r, ptr, 1);
    if (i == TT_NONE) {
        free_ordinary(ptr);
        return;
    }
    pthread_mutex_lock(&r->lock);
    tt_segment *s = &r->segments[i];
    if (!r->is_child) /* a child's view goes with the child */
        remove_from(s, (uint64_t)((unsigned char *)ptr - s->base));
    pthread_mutex_unlock(&r->lock);
}

/* A private view follows the memory until a page of it is written. */
void tt_regions_tear(tt_regions *r, void *ptr, size_t len)
{
    uint32_t i = locate(r, ptr, len);
    if (i == TT_NONE)
        return;
    tt_segment *s = &r->segments[i];
    uint64_t page = page_bytes();
    uint64_t at = (uint64_t)((unsigned char *)ptr - s->base);
    uint64_t first = at / page * page, last = tt_round_up(at + len, page);
    pthread_mutex_lock(&r->lock);
    atomic_store_explicit(&s->is_torn, true, memory_order_relaxed);
    if (mmap(s->base + first, last - first, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, s->fd,
             (off_t)first) == MAP_FAILED)
        TT_DEBUG("memory stays shared: %s", strerror(errno));
    pthread_mutex_unlock(&r->lock);
}

void tt_regions_before_fork(tt_regions *r)
{
    pthread_mutex_lock(&r->lock);
}

void tt_regions_after_fork(tt_regions *r)
{
    pthread_mutex_unlock(&r->lock);
}

void tt_regions_child(tt_regions *r)
{
    r->is_child = true;
    uint32_t n = atomic_load(&r->n_segments);
    for (uint32_t i = 0; i < n; i++) {
        const tt_segment *s = &r->segments[i];
        /* If this fails the child has no such memory: a hole. */
        void *view = mmap(s->base, s->bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, s->fd, 0);
        (void)view;
    }
    pthread_mutex_unlock(&r->lock);
}

void tt_regions_fini(tt_regions *r)
{
    uint32_t n = atomic_load(&r->n_segments);
    for (uint32_t i = 0; i < n; i++) {
        tt_segment *s = &r->segments[i];
        munmap(s->base, s->bytes);
        tt_fork_close(&s->fd);
        s->is_torn = false;
        tt_free(r->mem, s->used, s->cap, sizeof(tt_extent));
    }
    atomic_store(&r->n_segments, 0);
}
