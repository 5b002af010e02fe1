/* SPDX-License-Identifier: BSD-3-Clause
 * views.c - members of one host read each other's buffers where they lie.
 *
 * Idea       Buffers that lie in memory of tutti_alloc(), and all copies of buffers,
 *            are in a few segments (base/regions.h). The first slice of a segment
 *            that goes to a worker of the same host is copied, as any other, and
 *            the segment's descriptor goes with it; when the other side has mapped
 *            it and said so, only the places of slices are told (REF). Who hears of
 *            one reads it at once: reduces it into its own buffer, or puts it aside
 *            if that cannot be yet; and says so (TAKEN), since until then it must
 *            not change. Nobody keeps a place to read it later, so no two wait for
 *            each other.
 * Broken     A member whose group breaks uses the memory for other things, though
 *            others may be reading it. So first it counts, where they see it (the
 *            board); they compare after reading, before anything follows from it:
 *
 *              owner   board = epoch + 1       reader  read the slice
 *                      fence                           fence
 *                      write to the buffer             load board
 *
 *            Who has read something newer sees the new epoch; its group breaks.
 * Trust      The other end of the socket has this user's uid (ties.c). What comes
 *            must be a memfd that cannot shrink, or reading it could kill us; it is
 *            mapped for reading only.
 * Life       A mapping stays until its connection closes, whatever becomes of the
 *            process whose memory it is. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fdpass.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/memfd.h"
#include "partial/ties.h"

/* A smaller slice is copied faster than its place is told, and that it was read. */
static const uint64_t least_bytes = 16 << 10;

static void fence(void)
{
#if defined(__SANITIZE_THREAD__)
    /* ThreadSanitizer knows no fences and the compiler warns about them. */
    static _Atomic uint32_t all;
    atomic_fetch_add(&all, 1);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* -------------------------------------------------------------- own memory -- */

static uint64_t offset_in(const tt_segment *s, const volatile void *at)
{
    return (uint64_t)((uintptr_t)at - (uintptr_t)s->base);
}

/* One at a time: then a descriptor that comes is the one of the next REACH. */
static void offer(tt_tie *tie, uint32_t segment)
{
    const tt_worker *w = tie->w;
    const tt_segment *all = w->o.regions->segments;
    struct {
        tt_talk head;
        tt_reach reach;
    } m = {.head = tt_talk_head(TT_TALK_REACH, 0, sizeof(m.reach)),
           .reach = {.bytes = all[segment].bytes,
                     .board = offset_in(&all[w->board_segment], w->board),
                     .board_segment = w->board_segment}};
    _Static_assert(sizeof(m) == sizeof(m.head) + sizeof(m.reach), "as sent");
    m.head.who = segment;
    tt_tie_settle(tie); /* what waits was to go first */
    if (tie->state != TT_TIE_UP || tie->out_at < tie->out_len ||
        !tt_fdpass_send(tie->fd, &m, sizeof(m), &all[segment].fd, 1))
        return;
    tie->views.offered |= UINT64_C(1) << segment;
    tie->views.is_asking = true;
}

bool tt_views_is_worth(const tt_worker *w, uint64_t len)
{
    return len >= least_bytes && len >= w->settings.shm_direct_bytes;
}

bool tt_views_refer(tt_tie *tie, const void *data, uint64_t len, tt_ref *out)
{
    const tt_worker *w = tie->w;
    tt_views *r = &tie->views;
    if (!w->board || !tie->is_unix)
        return false;
    uint32_t segment = tt_regions_find(w->o.regions, data, len);
    if (segment == TT_NONE)
        return false;
    uint64_t board = UINT64_C(1) << w->board_segment;
    uint64_t bit = UINT64_C(1) << segment;
    if (r->readable & bit) {
        const tt_segment *s = &w->o.regions->segments[segment];
        *out = (tt_ref){.offset = offset_in(s, data),
                        .len = len,
                        .epoch = w->epoch,
                        .segment = segment};
        return true;
    }
    uint32_t next = r->offered & board ? segment : w->board_segment;
    if (!r->is_asking && !(r->offered & UINT64_C(1) << next))
        offer(tie, next);
    return false;
}

bool tt_views_answered(tt_tie *tie)
{
    tt_views *r = &tie->views;
    if (!r->is_asking || tie->head.who >= TT_SEGMENTS_MAX ||
        !(r->offered & UINT64_C(1) << tie->head.who))
        return false;
    r->is_asking = false;
    if (!(tie->head.flags & TT_TALK_CANNOT))
        r->readable |= UINT64_C(1) << tie->head.who;
    return true;
}

void tt_views_ended(tt_worker *w)
{
    if (!w->board)
        return;
    atomic_store_explicit(w->board, ++w->epoch, memory_order_relaxed);
    fence(); /* pairs with the one in tt_views_is_stale() */
}

/* ------------------------------------------------------- the other's memory -- */

const void *tt_views_find(const tt_tie *tie, const tt_ref *ref)
{
    if (ref->segment >= TT_SEGMENTS_MAX)
        return NULL;
    const unsigned char *base = tie->views.of[ref->segment].base;
    uint64_t bytes = tie->views.of[ref->segment].bytes;
    if (!base || ref->offset > bytes || ref->len > bytes - ref->offset)
        return NULL;
    return base + ref->offset;
}

/* Why it cannot be read; NULL: it can. */
static const char *map(tt_tie *tie, uint32_t segment, const tt_reach *reach,
                       int fd)
{
    tt_views *r = &tie->views;
    if (fd < 0)
        return "no descriptor came";
    if (!tt_memfd_is_sound(fd, reach->bytes))
        return "it is no memory that can be trusted";
    void *base = tt_memfd_map(fd, reach->bytes, PROT_READ);
    if (!base)
        return strerror(errno);
    r->of[segment].base = base;
    r->of[segment].bytes = reach->bytes;
    const tt_ref at = {.offset = reach->board,
                       .len = sizeof(*r->board),
                       .segment = reach->board_segment};
    const _Atomic uint64_t *board = tt_views_find(tie, &at);
    if (board && reach->board % sizeof(*board) == 0) {
        r->board = board;
        return NULL;
    }
    munmap(base, reach->bytes);
    r->of[segment].base = NULL;
    return "it has no board";
}

bool tt_views_hear(tt_tie *tie)
{
    tt_reach reach;
    uint32_t segment = tie->head.who;
    memcpy(&reach, tie->small, sizeof(reach));
    if (segment >= TT_SEGMENTS_MAX || tie->views.of[segment].base ||
        reach.bytes == 0)
        return false;
    const char *why_not = map(tie, segment, &reach, tie->views.came_fd);
    if (tie->views.came_fd >= 0)
        tt_fork_close(&tie->views.came_fd);
    if (why_not)
        TT_DEBUG("worker %u: memory of worker %u cannot be read: %s",
                 tie->w->id, tie->worker, why_not);
    tt_talk head = tt_talk_head(TT_TALK_REACHED, 0, 0);
    head.who = segment;
    head.flags = why_not ? TT_TALK_CANNOT : 0;
    tt_tie_put(tie, &head, NULL);
    return true;
}

bool tt_views_is_stale(const tt_tie *tie, const tt_ref *ref)
{
    fence(); /* pairs with the one in tt_views_ended() */
    return atomic_load_explicit(tie->views.board, memory_order_relaxed) !=
           ref->epoch;
}

/* -------------------------------------------------------------------- life -- */

void tt_views_open(tt_worker *w)
{
    if (!w->o.regions)
        return;
    w->board = tt_regions_alloc(w->o.regions, sizeof(*w->board));
    w->board_segment = w->board ? tt_regions_find(w->o.regions, w->board,
                                                  sizeof(*w->board))
                                : TT_NONE;
    if (w->board_segment == TT_NONE) /* ordinary memory */
        tt_views_fini(w);
    /* Nobody takes what was there before, or is when it is freed, for this one's. */
    w->epoch = tt_place_random() | 1;
    tt_views_ended(w);
}

void tt_views_fini(tt_worker *w)
{
    if (w->board)
        tt_regions_free(w->o.regions, w->board);
    w->board = NULL;
}

void tt_views_close(tt_tie *tie)
{
    tt_views *r = &tie->views;
    if (r->came_fd >= 0)
        tt_fork_close(&r->came_fd);
    for (uint32_t i = 0; i < TT_SEGMENTS_MAX; i++)
        if (r->of[i].base)
            munmap((void *)(uintptr_t)r->of[i].base, r->of[i].bytes);
    memset(r->of, 0, sizeof(r->of));
}
