/* SPDX-License-Identifier: BSD-3-Clause
 * rough.h - a layer over a link's stream (link/link.h) that takes and gives
 * bytes as it likes, by seed.
 *
 * Legal mischief, which nobody must notice: reads that give a part of what is
 * there, or come again; a socket that soon takes no more. Faults, which must be
 * noticed: flip, end. */
#ifndef TT_TESTS_ROUGH_H
#define TT_TESTS_ROUGH_H

#include "link/link.h"

typedef struct tt_rough_opts {
    uint64_t seed;
    uint64_t flip_at; /* that byte read (from 1; 0: none) has one bit flipped */
    uint64_t flip_each; /* and so many bytes later again; 0: no more */
    uint64_t end_at;    /* after so many read (0: never) it is reset */
} tt_rough_opts;

/* Over an open stream, or the layer that it has; it goes when that closes. */
void tt_rough_put(tt_link_stream *s, const tt_rough_opts *o);

#endif
