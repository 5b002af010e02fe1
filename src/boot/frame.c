/* SPDX-License-Identifier: BSD-3-Clause
 * frame.c - see frame.h. Pure functions: the fuzzer feeds them. */
#include "boot/frame.h"

static uint64_t longest(uint8_t kind, uint32_t n_ranks, uint64_t piece)
{
    switch (kind) {
    case TT_FRAME_DATA:
        return piece;
    case TT_FRAME_ALL:
        return piece * n_ranks; /* below 2^16 * 2^32 */
    case TT_FRAME_ERROR:
        return TT_FRAME_TEXT;
    default:
        return 0;
    }
}

tt_frame_fault tt_frame_check(const tt_frame *frame, const tt_frame *like,
                              uint64_t piece)
{
    if (frame->magic != TT_FRAME_MAGIC)
        return TT_FRAME_STRANGE;
    if (frame->version != TT_FRAME_VERSION)
        return TT_FRAME_OTHER_VERSION;
    if (frame->kind < TT_FRAME_WELCOME || frame->kind > TT_FRAME_ALIVE)
        return TT_FRAME_STRANGE;
    if (frame->len > longest(frame->kind, like->n_ranks, piece))
        return TT_FRAME_TOO_LONG;
    /* A refusal is the answer to a mistake in one of the next three. */
    if (frame->kind == TT_FRAME_ERROR)
        return TT_FRAME_GOOD;
    if (frame->job != like->job)
        return TT_FRAME_OTHER_JOB;
    if (frame->n_ranks != like->n_ranks)
        return TT_FRAME_OTHER_SIZE;
    return frame->rank < like->n_ranks ? TT_FRAME_GOOD : TT_FRAME_BAD_RANK;
}

static tutti_err known_error(uint32_t extra)
{
#define TUTTI_X(name, number, text)                   \
    if (number < 0 && extra == (uint32_t) - (number)) \
        return TUTTI_##name;
    TUTTI_ERR_LIST(TUTTI_X)
#undef TUTTI_X
    return TUTTI_EBOOT;
}

tutti_err tt_frame_error(uint32_t extra, const char *text, size_t len,
                         tutti_diag *diag)
{
    char clean[TT_FRAME_TEXT + 1];
    tt_err_hear(text, len, clean, sizeof(clean));
    return tt_fail(diag, known_error(extra), "%s",
                   clean[0] ? clean : "rank 0 gave up");
}
