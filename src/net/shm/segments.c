/* SPDX-License-Identifier: BSD-3-Clause
 * segments.c - which memory of the other process can be read directly.
 *
 * Idea       Buffers from tutti_alloc() lie in a few segments (base/regions.h).
 *            When the first payload of a segment goes to a peer, the peer gets
 *            the segment's descriptor over the unix socket of the connection,
 *            and a word in the ring that it should look there; the payload is
 *            copied, as any other. When the peer has mapped the segment it sets
 *            a bit in shared memory (tt_lend_ctl), and from then on payloads in
 *            it are sent as references: segment << 48 | offset. A peer that
 *            cannot map it never sets the bit.
 * Trust      The socket's other end has this user's uid (meet.c). What comes
 *            must be a memfd that cannot shrink, or reading it could kill us,
 *            and a reference must lie inside. It is written only where the
 *            other side has granted it (grants.c).
 * Life       Segments stay until their process ends, and mappings until the
 *            connection closes; what frees a buffer frees its pages at once,
 *            whoever has them mapped. A peer's mappings are addresses only.
 * Next       lend.c (what may be read when), shm.c. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fdpass.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/memfd.h"
#include "net/shm/shm.h"

#define MAGIC UINT32_C(0x316d6573) /* "sem1" */
#define OFFSET_BITS 48
#define OFFSET_MASK ((UINT64_C(1) << OFFSET_BITS) - 1)

_Static_assert(TT_SEGMENTS_MAX <= 64, "a segment is a bit of a word");

/* Comes with the descriptor of the segment. */
typedef struct note {
    uint32_t magic, segment;
    uint64_t bytes;
} note;

/* ------------------------------------------------------------- own segments */

/* At most once per connection; what fails is tried again by the next send. */
static void announce(tt_shm_conn *conn, uint32_t segment)
{
    const tt_segment *s = &conn->base.net->regions->segments[segment];
    const note n = {.magic = MAGIC, .segment = segment, .bytes = s->bytes};
    if (!tt_fdpass_send(conn->sock, &n, sizeof(n), &s->fd, 1))
        return;
    conn->announced |= UINT64_C(1) << segment;
    tt_duplex_nudge(&conn->duplex);
}

bool tt_shm_refer(tt_shm_conn *conn, const void *data, size_t len,
                  uint64_t *ref)
{
    const tt_regions *regions = conn->base.net->regions;
    uint32_t segment = tt_regions_find(regions, data, len);
    if (segment == TT_NONE)
        return false;
    uint64_t bit = UINT64_C(1) << segment;
    if (TT_UNLIKELY(!(conn->readable & bit))) {
        if (!(conn->announced & bit))
            announce(conn, segment);
        /* Acquire is not needed: what the bit tells is the other's business. */
        conn->readable =
            conn->announced &
            atomic_load_explicit(&conn->duplex.lender.ctl->readable,
                                 memory_order_relaxed);
        if (!(conn->readable & bit))
            return false;
    }
    const unsigned char *base = regions->segments[segment].base;
    *ref = (uint64_t)segment << OFFSET_BITS |
           (uint64_t)((const unsigned char *)data - base);
    return true;
}

/* ----------------------------------------------------- the other's segments */

/* Returns why it cannot be used, or NULL. */
static const char *take_segment(tt_shm_conn *conn, const note *n, int fd)
{
    if (n->magic != MAGIC || n->segment >= TT_SEGMENTS_MAX)
        return "it makes no sense";
    tt_shm_view *view = &conn->views[n->segment];
    if (view->base)
        return "it has come before";
    if (n->bytes == 0 || !tt_memfd_is_sound(fd, n->bytes))
        return "its memory is not acceptable";
    void *base = tt_memfd_map(fd, n->bytes, PROT_READ | PROT_WRITE);
    if (!base)
        return strerror(errno);
    madvise(base, n->bytes, MADV_DONTDUMP);
    *view = (tt_shm_view){.base = base, .bytes = n->bytes};
    _Atomic uint64_t *readable = &conn->duplex.borrower.ctl->readable;
    atomic_fetch_or_explicit(readable, UINT64_C(1) << n->segment,
                             memory_order_relaxed);
    return NULL;
}

tt_shm_heard tt_shm_hear(tt_shm_conn *conn)
{
    for (;;) {
        char byte;
        ssize_t len = recv(conn->sock, &byte, 1,
                           MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
        if (len < 0)
            return errno == EAGAIN || errno == EINTR ? TT_SHM_QUIET
                                                     : TT_SHM_END;
        if (len != sizeof(note)) /* the good-bye has one byte */
            return len == 1 ? TT_SHM_BYE : TT_SHM_END;
        note n;
        int fd;
        int came = tt_fdpass_recv(conn->sock, &n, sizeof(n), &fd, 1);
        if (came != 1) {
            TT_DEBUG("peer %u: its memory came without a descriptor",
                     conn->base.rank);
            if (came < 0 && (errno == ENOMEM || errno == ENOBUFS))
                return TT_SHM_QUIET; /* it is still there: another time */
            continue; /* we have too many: payloads are copied as before */
        }
        tt_fork_watch(fd);
        const char *why_not = take_segment(conn, &n, fd);
        tt_fork_close(&fd);
        TT_DEBUG("peer %u: segment %u of %llu bytes %s%s", conn->base.rank,
                 n.segment, (unsigned long long)n.bytes,
                 why_not ? "cannot be read: " : "can be read",
                 why_not ? why_not : "");
    }
}

void *tt_shm_find(const tt_shm_conn *conn, uint64_t ref, uint64_t bytes)
{
    uint64_t segment = ref >> OFFSET_BITS, offset = ref & OFFSET_MASK;
    if (segment >= TT_SEGMENTS_MAX)
        return NULL;
    const tt_shm_view *view = &conn->views[segment];
    if (!view->base || offset > view->bytes || bytes > view->bytes - offset)
        return NULL;
    return view->base + offset;
}

const void *tt_shm_resolve(void *arg, uint64_t ref, uint32_t len)
{
    tt_shm_conn *conn = arg;
    if (len == 0) {
        tt_shm_hear(conn); /* an end is seen again by who looks for it */
        return conn;
    }
    return tt_shm_find(conn, ref, len);
}

void tt_shm_unmap_segments(tt_shm_conn *conn)
{
    for (uint32_t i = 0; i < TT_SEGMENTS_MAX; i++) {
        tt_shm_view *view = &conn->views[i];
        if (view->base)
            munmap(view->base, view->bytes);
        *view = (tt_shm_view){.base = NULL};
    }
}
