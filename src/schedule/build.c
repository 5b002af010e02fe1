/* SPDX-License-Identifier: BSD-3-Clause
 * build.c - how a schedule is made: a builder collects chunks and transfers,
 * seal sorts them, checks their form, and names the result.
 *
 * Form (meaning is the verifier's business):
 *  1. The collective has schedules; 1 <= n_ranks <= TT_MAX_RANKS; the root is
 *     a rank if the collective has one, else TT_NONE; 1 <= n_parts <=
 *     TT_MAX_PARTS.
 *  2. The chunks, in order, cover every block from part 0 to n_parts without
 *     gap or overlap; no chunk is empty.
 *  3. A transfer names a chunk, two different ranks, and a step below
 *     TT_MAX_STEPS; no two have the same step, chunk, src and dst.
 *
 * Canonical bytes (all numbers little-endian), whose FNV-1a of 64 bits is the
 * schedule's id:
 *     17  the characters "tutti-schedule 1" and a newline
 *      4  collective (its number in tutti.h)
 *      4  n_ranks
 *      4  root (0xffffffff: none)
 *      8  n_parts
 *      8  n_chunks
 *      8  n_transfers
 *     24  per chunk: block (4), zero (4), begin (8), end (8)
 *     20  per transfer: step, chunk, src, dst (4 each), op, rail (1 each),
 *         zero (2)
 * Block count and step count follow from these, so they are left out.
 *
 * Cost       O(n) time; a list that is sorted already is not sorted again.
 *            The transfers are stored once, in an array that grows by doubling
 *            and becomes the schedule's own; sorting needs as much again.
 * Next       sort.c, text.c.
 */
#include "schedule/build.h"

#include "base/hash.h"

#include <string.h>

struct tt_builder {
    const tt_mem *mem;
    tt_sched_head head;
    uint64_t n_blocks;
    tt_chunk *chunks;
    size_t n_chunks, cap_chunks;
    tt_transfer *transfers;
    size_t n_transfers, cap_transfers;
    uint8_t rail;
    tutti_err err; /* the first one; diag explains it */
    tutti_diag diag;
};

/* ----------------------------------------------------------- the header -- */

static tutti_err check_head(const tt_sched_head *head, tutti_diag *diag)
{
    const char *name = tutti_coll_name(head->collective);
    if (!tt_coll_has_schedule(head->collective))
        return tt_fail(diag, TUTTI_EINVAL, "a %s has no schedule of its own",
                       name);
    if (head->n_ranks == 0)
        return tt_fail(diag, TUTTI_EINVAL, "there must be at least one rank");
    if (head->n_ranks > TT_MAX_RANKS)
        return tt_fail(diag, TUTTI_ELIMIT, "%u ranks, but at most %u can be",
                       head->n_ranks, TT_MAX_RANKS);
    if (tt_coll_has_root(head->collective)) {
        if (head->root >= head->n_ranks)
            return tt_fail(diag, TUTTI_EINVAL,
                           "a %s of %u ranks needs a root from 0 to %u", name,
                           head->n_ranks, head->n_ranks - 1);
    } else if (head->root != TT_NONE) {
        return tt_fail(diag, TUTTI_EINVAL, "a %s has no root", name);
    }
    if (head->n_parts == 0)
        return tt_fail(diag, TUTTI_EINVAL,
                       "a block must have at least one part");
    if (head->n_parts > TT_MAX_PARTS)
        return tt_fail(diag, TUTTI_ELIMIT,
                       "%llu parts, but at most %llu can be",
                       (unsigned long long)head->n_parts,
                       (unsigned long long)TT_MAX_PARTS);
    uint64_t n_blocks = tt_coll_blocks(head->collective, head->n_ranks);
    if (n_blocks > TT_MAX_CHUNKS)
        return tt_fail(diag, TUTTI_ELIMIT,
                       "a %s of %u ranks has %llu blocks, but at most %llu "
                       "can be",
                       name, head->n_ranks, (unsigned long long)n_blocks,
                       (unsigned long long)TT_MAX_CHUNKS);
    return TUTTI_OK;
}

tutti_err tt_builder_create(const tt_mem *mem, const tt_sched_head *head,
                            tt_builder **out, tutti_diag *diag)
{
    tutti_err err = check_head(head, diag);
    if (err)
        return err;
    tt_builder *b = tt_new(mem, 1, sizeof(*b));
    if (!b)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for a schedule");
    b->mem = mem;
    b->head = *head;
    b->n_blocks = tt_coll_blocks(head->collective, head->n_ranks);
    tt_diag_clear(&b->diag);
    *out = b;
    return TUTTI_OK;
}

void tt_builder_free(tt_builder *b)
{
    if (!b)
        return;
    tt_free(b->mem, b->chunks, b->cap_chunks, sizeof(*b->chunks));
    tt_free(b->mem, b->transfers, b->cap_transfers, sizeof(*b->transfers));
    tt_free(b->mem, b, 1, sizeof(*b));
}

tutti_err tt_builder_error(const tt_builder *b, tutti_diag *diag)
{
    if (b->err && diag)
        *diag = b->diag;
    return b->err;
}

void tt_builder_parts(tt_builder *b, uint64_t n_parts)
{
    b->head.n_parts = n_parts;
    if (!b->err)
        b->err = check_head(&b->head, &b->diag);
}

/* -------------------------------------------------------------- numbers -- */

const tt_number tt_rail_number = {"the rail", 0, UINT8_MAX, TUTTI_EINVAL};

tt_number tt_root_number(uint64_t n_ranks)
{
    return (tt_number){"the root", 0, n_ranks - 1, TUTTI_EINVAL};
}

void tt_chunk_numbers(const tt_sched_head *head, tt_number out[3])
{
    uint64_t n_blocks = tt_coll_blocks(head->collective, head->n_ranks);
    out[0] = (tt_number){"the block", 0, n_blocks - 1, TUTTI_EINVAL};
    out[1] = (tt_number){"the first part", 0, head->n_parts, TUTTI_EINVAL};
    out[2] = (tt_number){"the end part", 0, head->n_parts, TUTTI_EINVAL};
}

void tt_xfer_numbers(const tt_sched_head *head, uint64_t n_chunks,
                     tt_number out[4])
{
    uint64_t most = head->n_ranks - 1;
    out[0] = (tt_number){"the step", 0, TT_MAX_STEPS - 1, TUTTI_ELIMIT};
    out[1] = (tt_number){"the chunk", 0, n_chunks - 1, TUTTI_EINVAL};
    out[2] = (tt_number){"the sending rank", 0, most, TUTTI_EINVAL};
    out[3] = (tt_number){"the receiving rank", 0, most, TUTTI_EINVAL};
}

/* ----------------------------------------------------- chunks, transfers -- */

/* Room for `more` chunks; false (and an error kept) when there is none. */
static bool chunk_room(tt_builder *b, uint64_t more)
{
    if (b->err)
        return false;
    if (more > TT_MAX_CHUNKS - b->n_chunks) {
        b->err = tt_fail(&b->diag, TUTTI_ELIMIT, "more than %llu chunks",
                         (unsigned long long)TT_MAX_CHUNKS);
        return false;
    }
    b->err = tt_grow(b->mem, (void **)(void *)&b->chunks, &b->cap_chunks,
                     b->n_chunks + (size_t)more, sizeof(*b->chunks));
    if (b->err)
        tt_fail(&b->diag, b->err, "no memory for %llu chunks",
                (unsigned long long)(b->n_chunks + more));
    return !b->err;
}

/* Is this where the next chunk must begin (rule 2)? */
static bool is_next(const tt_builder *b, uint32_t block, uint64_t begin)
{
    if (b->n_chunks == 0)
        return block == 0 && begin == 0;
    const tt_chunk *last = &b->chunks[b->n_chunks - 1];
    if (last->end == b->head.n_parts)
        return block == (uint64_t)last->block + 1 && begin == 0;
    return block == last->block && begin == last->end;
}

static void bad_chunk(tt_builder *b, const char *what, uint32_t block,
                      uint64_t begin, uint64_t end)
{
    b->err = tt_fail(&b->diag, TUTTI_EINVAL,
                     "chunk %zu (block %u, parts %llu to %llu) %s", b->n_chunks,
                     block, (unsigned long long)begin, (unsigned long long)end,
                     what);
    b->diag.chunk = (uint32_t)b->n_chunks;
}

uint32_t tt_builder_chunk(tt_builder *b, uint32_t block, uint64_t begin,
                          uint64_t end)
{
    if (!chunk_room(b, 1))
        return 0;
    if (block >= b->n_blocks)
        bad_chunk(b, "is of a block that does not exist", block, begin, end);
    else if (begin >= end)
        bad_chunk(b, "is empty", block, begin, end);
    else if (end > b->head.n_parts)
        bad_chunk(b, "ends behind the last part", block, begin, end);
    else if (!is_next(b, block, begin))
        bad_chunk(b,
                  "does not begin where the one before ends: chunks must "
                  "cover the blocks in order, without gap or overlap",
                  block, begin, end);
    if (b->err)
        return 0;
    b->chunks[b->n_chunks] =
        (tt_chunk){.block = block, .begin = begin, .end = end};
    return (uint32_t)b->n_chunks++;
}

void tt_builder_whole_blocks(tt_builder *b)
{
    if (!chunk_room(b, b->n_blocks))
        return;
    for (uint64_t block = 0; block < b->n_blocks; block++)
        tt_builder_chunk(b, (uint32_t)block, 0, b->head.n_parts);
}

void tt_builder_equal_chunks(tt_builder *b, uint32_t n)
{
    if (n != b->head.n_parts && !b->err)
        b->err = tt_fail(&b->diag, TUTTI_EINVAL,
                         "%u equal chunks of a block of %llu parts", n,
                         (unsigned long long)b->head.n_parts);
    if (!chunk_room(b, b->n_blocks * n))
        return;
    for (uint64_t block = 0; block < b->n_blocks; block++) {
        for (uint32_t i = 0; i < n; i++)
            tt_builder_chunk(b, (uint32_t)block, i, (uint64_t)i + 1);
    }
}

void tt_builder_rail(tt_builder *b, uint8_t rail)
{
    b->rail = rail;
}

void tt_builder_transfer(tt_builder *b, uint32_t step, uint32_t chunk,
                         uint32_t src, uint32_t dst, tt_xfer_op op)
{
    if (b->err)
        return;
    if (b->n_transfers >= TT_MAX_TRANSFERS) {
        b->err = tt_fail(&b->diag, TUTTI_ELIMIT, "more than %llu transfers",
                         (unsigned long long)TT_MAX_TRANSFERS);
        return;
    }
    b->err = tt_grow(b->mem, (void **)(void *)&b->transfers, &b->cap_transfers,
                     b->n_transfers + 1, sizeof(*b->transfers));
    if (b->err) {
        tt_fail(&b->diag, b->err, "no memory for %zu transfers",
                b->n_transfers + 1);
        return;
    }
    /* An op out of range must not become a good one by losing bits. */
    b->transfers[b->n_transfers++] = (tt_transfer){
        .step = step,
        .chunk = chunk,
        .src = src,
        .dst = dst,
        .op = (unsigned)op > UINT8_MAX ? UINT8_MAX : (uint8_t)op,
        .rail = b->rail,
    };
}

/* ----------------------------------------------------------------- seal -- */

static tutti_err check_cover(const tt_builder *b, tutti_diag *diag)
{
    uint64_t block = 0, part = 0;
    if (b->n_chunks > 0) {
        block = b->chunks[b->n_chunks - 1].block;
        part = b->chunks[b->n_chunks - 1].end;
    }
    if (part == b->head.n_parts && block + 1 == b->n_blocks)
        return TUTTI_OK;
    if (part == b->head.n_parts) {
        part = 0;
        block++;
    }
    return tt_fail(diag, TUTTI_EINVAL,
                   "the chunks do not cover the blocks: they end before part "
                   "%llu of block %llu (there are %llu blocks of %llu parts)",
                   (unsigned long long)part, (unsigned long long)block,
                   (unsigned long long)b->n_blocks,
                   (unsigned long long)b->head.n_parts);
}

static tutti_err bad_transfer(const tt_transfer *t, tutti_err err,
                              const char *what, tutti_diag *diag)
{
    tt_fail(diag, err,
            "the transfer of chunk %u from rank %u to rank %u at "
            "step %u %s",
            t->chunk, t->src, t->dst, t->step, what);
    tt_diag_at(diag, t->dst, t->chunk, t->step);
    return err;
}

static tutti_err check_transfer(const tt_builder *b, const tt_transfer *t,
                                tutti_diag *diag)
{
    if (t->chunk >= b->n_chunks)
        return bad_transfer(t, TUTTI_EINVAL,
                            "names a chunk that does not "
                            "exist",
                            diag);
    if (t->src >= b->head.n_ranks || t->dst >= b->head.n_ranks)
        return bad_transfer(t, TUTTI_EINVAL, "names a rank that does not exist",
                            diag);
    if (t->src == t->dst)
        return bad_transfer(t, TUTTI_EINVAL, "is from a rank to itself", diag);
    if (t->op != TT_XFER_REDUCE && t->op != TT_XFER_COPY)
        return bad_transfer(t, TUTTI_EINVAL, "neither reduces nor copies",
                            diag);
    if (t->step >= TT_MAX_STEPS)
        return bad_transfer(t, TUTTI_ELIMIT, "is later than any step can be",
                            diag);
    return TUTTI_OK;
}

static void raise_to(uint32_t *most, uint32_t value)
{
    if (value > *most)
        *most = value;
}

/* Checks every transfer, and puts them in order if they are not. */
static tutti_err order_transfers(tt_builder *b, tutti_diag *diag)
{
    tt_transfer most = {0};
    bool is_sorted = true;
    for (size_t i = 0; i < b->n_transfers; i++) {
        const tt_transfer *t = &b->transfers[i];
        tutti_err err = check_transfer(b, t, diag);
        if (err)
            return err;
        if (i > 0 && tt_xfer_compare(t - 1, t) > 0)
            is_sorted = false;
        raise_to(&most.step, t->step);
        raise_to(&most.chunk, t->chunk);
        raise_to(&most.src, t->src);
        raise_to(&most.dst, t->dst);
    }
    if (is_sorted)
        return TUTTI_OK;
    if (tt_xfers_sort(b->mem, &b->transfers, b->cap_transfers, b->n_transfers,
                      &most))
        return tt_fail(diag, TUTTI_ENOMEM, "no memory to sort %zu transfers",
                       b->n_transfers);
    return TUTTI_OK;
}

static tutti_err check_twins(const tt_builder *b, tutti_diag *diag,
                             tt_transfer *twin)
{
    for (size_t i = 1; i < b->n_transfers; i++) {
        const tt_transfer *t = &b->transfers[i];
        if (tt_xfer_compare(t - 1, t) != 0)
            continue;
        *twin = *t;
        return bad_transfer(t, TUTTI_EINVAL, "is there twice", diag);
    }
    return TUTTI_OK;
}

static uint64_t name_of(const tutti_schedule *s)
{
    static const char magic[] = "tutti-schedule 1\n";
    uint64_t hash = tt_fnv1a(TT_FNV1A_START, magic, sizeof(magic) - 1);
    hash = tt_fnv1a_u32(hash, (uint32_t)s->collective);
    hash = tt_fnv1a_u32(hash, s->n_ranks);
    hash = tt_fnv1a_u32(hash, s->root);
    hash = tt_fnv1a_u64(hash, s->n_parts);
    hash = tt_fnv1a_u64(hash, s->n_chunks);
    hash = tt_fnv1a_u64(hash, s->n_transfers);
    for (uint64_t i = 0; i < s->n_chunks; i++) {
        hash = tt_fnv1a_u64(hash, s->chunks[i].block);
        hash = tt_fnv1a_u64(hash, s->chunks[i].begin);
        hash = tt_fnv1a_u64(hash, s->chunks[i].end);
    }
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        hash = tt_fnv1a_u32(hash, t->step);
        hash = tt_fnv1a_u32(hash, t->chunk);
        hash = tt_fnv1a_u32(hash, t->src);
        hash = tt_fnv1a_u32(hash, t->dst);
        hash = tt_fnv1a_u32(hash, (uint32_t)t->op | (uint32_t)t->rail << 8);
    }
    return hash;
}

/* Gives back what an array has beyond n items. */
static tutti_err shrink(const tt_mem *mem, void **list, size_t *cap, size_t n,
                        size_t size)
{
    if (*cap == n)
        return TUTTI_OK;
    void *exact = mem->fn(mem->ctx, *list, *cap * size, n * size);
    if (!exact && n > 0)
        return TUTTI_ENOMEM;
    *list = exact;
    *cap = n;
    return TUTTI_OK;
}

/* Moves the arrays of b into a new schedule. */
static tutti_err hand_over(tt_builder *b, tutti_schedule **out)
{
    tutti_err err = shrink(b->mem, (void **)(void *)&b->chunks, &b->cap_chunks,
                           b->n_chunks, sizeof(*b->chunks));
    if (!err)
        err = shrink(b->mem, (void **)(void *)&b->transfers, &b->cap_transfers,
                     b->n_transfers, sizeof(*b->transfers));
    tutti_schedule *s = err ? NULL : tt_new(b->mem, 1, sizeof(*s));
    if (!s)
        return TUTTI_ENOMEM;
    *s = (tutti_schedule){
        .collective = b->head.collective,
        .n_ranks = b->head.n_ranks,
        .root = b->head.root,
        .n_blocks = b->n_blocks,
        .n_parts = b->head.n_parts,
        .n_chunks = b->n_chunks,
        .n_transfers = b->n_transfers,
        .chunks = b->chunks,
        .transfers = b->transfers,
        .mem = b->mem,
    };
    if (s->n_transfers > 0)
        s->n_steps = s->transfers[s->n_transfers - 1].step + 1;
    s->id = name_of(s);
    b->chunks = NULL;
    b->transfers = NULL;
    *out = s;
    return TUTTI_OK;
}

tutti_err tt_builder_close(tt_builder *b, tutti_schedule **out,
                           tutti_diag *diag, tt_transfer *twin)
{
    twin->step = TT_NONE;
    tutti_err err = tt_builder_error(b, diag);
    if (!err)
        err = check_cover(b, diag);
    if (!err)
        err = order_transfers(b, diag);
    if (!err)
        err = check_twins(b, diag, twin);
    if (!err) {
        err = hand_over(b, out);
        if (err)
            tt_fail(diag, err, "no memory for a schedule");
    }
    tt_builder_free(b);
    return err;
}

tutti_err tt_builder_seal(tt_builder *b, tutti_schedule **out, tutti_diag *diag)
{
    tt_transfer twin;
    return tt_builder_close(b, out, diag, &twin);
}

tutti_err tt_sched_copy(const tutti_schedule *s, const tt_mem *mem,
                        tutti_schedule **out)
{
    tutti_schedule *copy = tt_new(mem, 1, sizeof(*copy));
    tt_chunk *chunks = tt_new(mem, (size_t)s->n_chunks, sizeof(*chunks));
    tt_transfer *transfers = tt_new(mem, (size_t)s->n_transfers,
                                    sizeof(*transfers));
    if (!copy || (!chunks && s->n_chunks) || (!transfers && s->n_transfers)) {
        tt_free(mem, copy, 1, sizeof(*copy));
        tt_free(mem, chunks, (size_t)s->n_chunks, sizeof(*chunks));
        tt_free(mem, transfers, (size_t)s->n_transfers, sizeof(*transfers));
        return TUTTI_ENOMEM;
    }
    memcpy(chunks, s->chunks, (size_t)s->n_chunks * sizeof(*chunks));
    if (s->n_transfers > 0)
        memcpy(transfers, s->transfers,
               (size_t)s->n_transfers * sizeof(*transfers));
    *copy = *s;
    copy->chunks = chunks;
    copy->transfers = transfers;
    copy->mem = mem;
    *out = copy;
    return TUTTI_OK;
}

void tt_sched_free(tutti_schedule *s)
{
    if (!s)
        return;
    const tt_mem *mem = s->mem;
    tt_free(mem, (void *)s->chunks, (size_t)s->n_chunks, sizeof(*s->chunks));
    tt_free(mem, (void *)s->transfers, (size_t)s->n_transfers,
            sizeof(*s->transfers));
    tt_free(mem, s, 1, sizeof(*s));
}
