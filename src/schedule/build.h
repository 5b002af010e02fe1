/* SPDX-License-Identifier: BSD-3-Clause
 * build.h - private to this folder: what the builder shares with the sort
 * and the texts. */
#ifndef TT_SCHEDULE_BUILD_H
#define TT_SCHEDULE_BUILD_H

#include "base/words.h"
#include "schedule/schedule.h"

/* The first error so far, with its sentence; TUTTI_OK when there is none. */
tutti_err tt_builder_error(const tt_builder *b, tutti_diag *diag);

/* tt_builder_seal, which also says which transfer is there twice when that
 * is the error (twin->step == TT_NONE: it is not). */
tutti_err tt_builder_close(tt_builder *b, tutti_schedule **out,
                           tutti_diag *diag, tt_transfer *twin);

/* Sorts by (step, chunk, src, dst), where no field of any transfer exceeds
 * that of `most`. *list has `cap` items allocated from mem; the sorted list
 * may be another allocation of the same size. Errors: ENOMEM. */
tutti_err tt_xfers_sort(const tt_mem *mem, tt_transfer **list, size_t cap,
                        size_t n, const tt_transfer *most);

/* < 0, 0, > 0: the order of (step, chunk, src, dst). */
static inline int tt_xfer_compare(const tt_transfer *a, const tt_transfer *b)
{
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    if (a->src != b->src)
        return a->src < b->src ? -1 : 1;
    if (a->dst != b->dst)
        return a->dst < b->dst ? -1 : 1;
    return 0;
}

/* ------------------------------------------------------------ the texts -- */

/* build.c: what the numbers of a text may be, in the order of the items. */
#define TT_RANKS_NUMBER \
    ((tt_number){"the number of ranks", 1, TT_MAX_RANKS, TUTTI_ELIMIT})
#define TT_PARTS_NUMBER \
    ((tt_number){"the number of parts", 1, TT_MAX_PARTS, TUTTI_ELIMIT})
extern const tt_number tt_rail_number;
tt_number tt_root_number(uint64_t n_ranks);
void tt_chunk_numbers(const tt_sched_head *head, tt_number out[3]);
/* n_chunks: there is one at least. */
void tt_xfer_numbers(const tt_sched_head *head, uint64_t n_chunks,
                     tt_number out[4]);

#endif
