/* SPDX-License-Identifier: BSD-3-Clause
 * schedule.h - what a schedule is, and what it means. Everything else in
 * Tutti writes one (plan), or reads one (verify, engine, export, sim).
 *
 * A collective works on blocks (the parts of the data that the caller sees).
 * A chunk is a share [begin, end) of a block, in parts of n_parts; the chunks
 * of a block cover it without gap or overlap. A transfer says: at `step`,
 * rank `src` sends its present value of `chunk` to rank `dst`, which REDUCEs
 * it into its own value or takes a COPY.
 *
 * Meaning (all there is):
 *  1. Before step 0 rank r holds, for each chunk, the set of contributions of
 *     the table below (tt_sched_start).
 *  2. A transfer of (chunk c, step s) carries the value that src has for c
 *     after all transfers into (src, c) with step < s. Sends of a step read
 *     before receives of the same step write. Sending what one does not hold
 *     (the empty set) is an error.
 *  3. REDUCE: dst's set becomes the disjoint union of its own and all the
 *     inputs; overlap is an error, and so is reducing into an empty set.
 *     COPY: dst's set becomes src's. One (dst, chunk, step) has either one
 *     COPY or any number of REDUCEs, which form one reduction: own value
 *     first, then the inputs in order of src, rounded once. Where dst sends
 *     the chunk in the same step, its own value has its place in that order:
 *     ranks that exchange their values get the same bits.
 *  4. At the end every rank holds exactly what the table promises
 *     (tt_sched_end).
 * Chunks are independent of each other: steps of different chunks are only an
 * order of preference.
 *
 * | collective         | blocks | at the start, rank r   | at the end        |
 * | all-reduce         | 1      | {r}                    | all               |
 * | reduce / broadcast | 1      | {r} / root: {root}     | root: all / {root}|
 * | reduce-scatter     | N      | {r} of every block     | block r: all      |
 * | all-gather         | N      | block r: {r}           | every block b: {b}|
 * | gather / scatter   | N      | block r / root: all    | root: all / block r|
 * | all-to-all         | N*N    | blocks r*N+j: {r}      | blocks i*N+r: {i} |
 * (gather: {r}; scatter: {root}.)  barrier and send-recv have no schedules of
 * their own: they are performed as an all-reduce and a broadcast.
 *
 * Next: build.c (how one is made), text.c and json.c (its texts), cut.h (how
 * chunks become elements and slices), plan/ring.c.
 */
#ifndef TT_SCHEDULE_SCHEDULE_H
#define TT_SCHEDULE_SCHEDULE_H

#include "base/limits.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "schedule/cut.h"

#define TT_XFER_OP_LIST(X) X(REDUCE, 0, "reduce") X(COPY, 1, "copy")

typedef enum tt_xfer_op {
#define TT_X(name, number, text) TT_XFER_##name = number,
    TT_XFER_OP_LIST(TT_X)
#undef TT_X
} tt_xfer_op;

typedef struct tt_chunk {
    uint32_t block;
    uint32_t pad; /* 0 */
    uint64_t begin, end;
} tt_chunk;

typedef struct tt_transfer {
    uint32_t step, chunk, src, dst;
    uint8_t op, rail;
    uint16_t pad; /* 0 */
} tt_transfer;

_Static_assert(sizeof(tt_chunk) == 24, "chunks are 24 bytes");
_Static_assert(sizeof(tt_transfer) == 20, "transfers are 20 bytes");

/* Limits: named and checked (TUTTI_ELIMIT). */
#define TT_MAX_PARTS (UINT64_C(1) << 40)
#define TT_MAX_CHUNKS (UINT64_C(1) << 31)
#define TT_MAX_TRANSFERS (UINT64_C(1) << 32)
#define TT_MAX_STEPS (1u << 24)

/* Immutable once sealed. Chunks are sorted by (block, begin); transfers by
 * (step, chunk, src, dst), no two equal. The struct and both arrays are of
 * exactly that size and belong to `mem`, which must outlive the schedule. */
struct tutti_schedule {
    tutti_coll collective;
    uint32_t n_ranks;
    uint32_t root;    /* TT_NONE: the collective has none */
    uint32_t n_steps; /* last step + 1 */
    uint64_t n_blocks, n_parts, n_chunks, n_transfers;
    const tt_chunk *chunks;
    const tt_transfer *transfers;
    uint64_t id; /* FNV-1a of the canonical bytes, see build.c */
    const tt_mem *mem;
};

bool tt_coll_has_root(tutti_coll coll);
bool tt_coll_reduces(tutti_coll coll);
bool tt_coll_has_schedule(tutti_coll coll); /* not barrier, send-recv */
/* Every value goes to or comes from all. */
bool tt_coll_has_trees(tutti_coll coll);
uint64_t tt_coll_blocks(tutti_coll coll, uint32_t n_ranks);

/* The table. What rank r holds of a block at the start, or must hold at the
 * end: nothing, the one contribution of rank *who, or all of them. For `end`,
 * TT_HOLD_NONE means that nothing is promised. */
typedef enum tt_hold { TT_HOLD_NONE, TT_HOLD_ONE, TT_HOLD_ALL } tt_hold;
tt_hold tt_sched_start(const tutti_schedule *s, uint64_t block, uint32_t rank,
                       uint32_t *who);
tt_hold tt_sched_end(const tutti_schedule *s, uint64_t block, uint32_t rank,
                     uint32_t *who);
/* The only rank to which anything of a block is promised at the end; TT_NONE
 * when every rank is promised something. */
uint32_t tt_sched_end_only(const tutti_schedule *s, uint64_t block);

/* ------------------------------------------------------------- building -- */

/* Collects chunks and transfers in any order; an error (no memory, a limit)
 * is remembered and returned by seal, so planners need not check each add. */
typedef struct tt_builder tt_builder;

typedef struct tt_sched_head {
    tutti_coll collective;
    uint32_t n_ranks, root; /* root TT_NONE where there is none */
    uint64_t n_parts;
} tt_sched_head;

tutti_err tt_builder_create(const tt_mem *mem, const tt_sched_head *head,
                            tt_builder **out, tutti_diag *diag);
void tt_builder_free(tt_builder *b); /* accepts NULL */

/* Another number of parts than the head's, before there are chunks. */
void tt_builder_parts(tt_builder *b, uint64_t n_parts);
/* Returns the chunk's number: chunks are numbered as added, and must be added
 * sorted by (block, begin). */
uint32_t tt_builder_chunk(tt_builder *b, uint32_t block, uint64_t begin,
                          uint64_t end);
/* One chunk per block, covering it whole; chunk number = block number. */
void tt_builder_whole_blocks(tt_builder *b);
/* n equal chunks of every block when n_parts == n: chunk block*n + i. */
void tt_builder_equal_chunks(tt_builder *b, uint32_t n);

void tt_builder_transfer(tt_builder *b, uint32_t step, uint32_t chunk,
                         uint32_t src, uint32_t dst, tt_xfer_op op);
/* The rail of the transfers added from now on; 0 at first. */
void tt_builder_rail(tt_builder *b, uint8_t rail);

/* Sorts, checks the form (ranges, cover, duplicates, src != dst), computes the
 * id. Takes and frees the builder, also when it fails. Errors: EINVAL with
 * the place, ELIMIT, ENOMEM. */
tutti_err tt_builder_seal(tt_builder *b, tutti_schedule **out,
                          tutti_diag *diag);

/* Of mem. Errors: ENOMEM. */
tutti_err tt_sched_copy(const tutti_schedule *s, const tt_mem *mem,
                        tutti_schedule **out);
void tt_sched_free(tutti_schedule *s); /* accepts NULL */

/* -------------------------------------------------------------- walking -- */

/* The transfers of each chunk in order of (step, src, dst): those of chunk c
 * are transfers[order[first[c]]] .. transfers[order[first[c + 1] - 1]]. */
typedef struct tt_by_chunk {
    uint64_t *first; /* n_chunks + 1 */
    uint32_t *order; /* n_transfers */
} tt_by_chunk;
tutti_err tt_sched_by_chunk(const tutti_schedule *s, tt_arena *arena,
                            tt_by_chunk *out);

/* ---------------------------------------------------------------- texts -- */

/* text.c, json.c: `tutti-schedule 1`, or JSON, appended to a string
 * (base/str.h) that keeps the error; both read back to the same schedule. */
struct tt_str;
void tt_sched_write(const tutti_schedule *s, struct tt_str *out);
void tt_sched_write_json(const tutti_schedule *s, struct tt_str *out);
/* Either: JSON begins with a brace. Errors: EFORMAT, EINVAL, ELIMIT with line
 * and column; ENOMEM. */
tutti_err tt_sched_parse(const tt_mem *mem, const char *text, size_t len,
                         tutti_schedule **out, tutti_diag *diag);
tutti_err tt_sched_parse_json(const tt_mem *mem, const char *text, size_t len,
                              tutti_schedule **out, tutti_diag *diag);

#endif
