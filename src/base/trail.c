/* SPDX-License-Identifier: BSD-3-Clause
 * trail.c - the file of a rank: see trail.h. */
#include "base/trail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

/* 16 million records; a trace that is larger is looked at by nobody. */
static const uint64_t most_bytes = UINT64_C(1) << 30;

static size_t padded(size_t len)
{
    return (len + sizeof(tt_mark) - 1) & ~(sizeof(tt_mark) - 1);
}

static void unmap(tt_trail *r)
{
    if (r->piece)
        munmap(r->piece, TT_TRAIL_PIECE);
    r->piece = r->next = r->end = NULL;
}

/* The piece of the file from `at` on. 0, or what was wrong. */
static int map_piece(tt_trail *r, uint64_t at)
{
    int err = posix_fallocate(r->fd, (off_t)at, (off_t)TT_TRAIL_PIECE);
    if (err)
        return err;
    void *p = mmap(NULL, TT_TRAIL_PIECE, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_POPULATE, r->fd, (off_t)at);
    if (p == MAP_FAILED)
        return errno;
    r->at = at;
    r->piece = r->next = p;
    r->end = r->piece + TT_TRAIL_PIECE / sizeof(tt_mark);
    return 0;
}

bool tt_trail_turn(tt_trail *r)
{
    if (!r->piece)
        return false;
    const uint64_t at = r->at + TT_TRAIL_PIECE;
    unmap(r);
    if (at >= most_bytes) {
        TT_WARN("%s has %u MiB: no more of this rank is recorded", r->path,
                (unsigned)(most_bytes >> 20));
        return false;
    }
    int err = map_piece(r, at);
    if (err)
        TT_WARN("cannot write more to %s, so the rest is not recorded: %s",
                r->path, strerror(err));
    return !err;
}

void tt_trail_text(tt_trail *r, tt_mark_kind kind, const char *text, size_t len)
{
    if (padded(len) / sizeof(tt_mark) + 1 > (size_t)(r->end - r->next) &&
        (padded(len) + sizeof(tt_mark) > TT_TRAIL_PIECE || !tt_trail_turn(r)))
        return;
    tt_mark *head = r->next;
    r->next += 1 + padded(len) / sizeof(tt_mark);
    memcpy(head + 1, text, len);
    head->u.n_bytes = len;
    head->kind = (uint8_t)kind;
}

tutti_err tt_trail_open(const char *path, const tt_trail_head *head,
                        tt_trail **out, tutti_diag *diag)
{
    tt_trail *r = tt_new(&tt_mem_std, 1, sizeof(*r));
    if (!r)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory to record");
    snprintf(r->path, sizeof(r->path), "%s", path);
    /* One that is there is somebody's, who may have it mapped. */
    r->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int err = r->fd < 0 ? errno : map_piece(r, 0);
    if (err) {
        tt_fail_errno(diag, TUTTI_ESYS, err, "cannot write %s", path);
        if (r->fd >= 0)
            close(r->fd);
        tt_free(&tt_mem_std, r, 1, sizeof(*r));
        return TUTTI_ESYS;
    }
    memcpy(r->piece, head, sizeof(*head));
    r->next += sizeof(*head) / sizeof(tt_mark);
    *out = r;
    return TUTTI_OK;
}

void tt_trail_close(tt_trail *r)
{
    if (!r)
        return;
    const uint64_t used =
        r->piece ? r->at + (uint64_t)((char *)r->next - (char *)r->piece) : 0;
    unmap(r);
    /* What is behind is zeros, which the reader takes for the end, too. */
    if (used > 0 && ftruncate(r->fd, (off_t)used) != 0)
        TT_DEBUG("%s keeps the zeros at its end", r->path);
    close(r->fd);
    tt_free(&tt_mem_std, r, 1, sizeof(*r));
}
