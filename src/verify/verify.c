/* SPDX-License-Identifier: BSD-3-Clause
 * verify.c - the proof that a schedule performs its collective.
 *
 * Idea       Symbolic execution, chunk by chunk: for each rank the set of
 *            contributions that it holds. The transfers of one step read the
 *            sets from before the step; the sets after it replace them when
 *            all have been read (rules 2 and 3 of schedule.h). At the end the
 *            sets must be those of the table (rule 4).
 * Sets       Nothing, one contribution and all contributions need no memory;
 *            any other set is a row of n_ranks bits in a pool. Sets do not
 *            change once a step is over, so a COPY shares the row, and rows
 *            are counted and used again.
 * Invariant  A rank that no transfer of the chunk has touched has no entry:
 *            it holds what the table says for the start. So a chunk costs what
 *            its transfers cost, and the n^2 chunks of an all-to-all are cheap.
 * Cost       O(transfers * n_ranks / 64) time; memory for the index of
 *            transfers by chunk, and rows for the sets alive at one time (at
 *            most 2 n_ranks rows). A ring of 1024: 2 million transfers, 0.05 s
 *            (docs/explanation/engine.md shows how to measure it).
 * Next       tests/support/naive.c, which must always agree.
 */
#include "verify/verify.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/sets.h"

/* count contributions. 1: that of rank `ref`; neither 0, 1 nor n_ranks: the
 * bits of row `ref`. */
typedef struct set {
    uint32_t count, ref;
} set;

typedef struct holder {
    set now, next;
    uint32_t chunk; /* + 1: the last chunk that touched this rank */
    /* How this step has written `next` so far; INPUT_NONE between steps. */
    enum { INPUT_NONE, INPUT_REDUCE, INPUT_COPY } input;
} holder;

typedef struct proof {
    const tutti_schedule *s;
    const tt_mem *mem;
    tutti_diag *diag;
    uint32_t chunk;
    holder *holders;    /* n_ranks */
    uint32_t *written;  /* ranks that this step has written, n_written */
    uint32_t n_written; /* of n_ranks */
    /* The pool of rows. */
    size_t n_words;
    uint64_t *bits; /* n_words per row */
    uint32_t *uses; /* per row; of a free row: the next free one */
    size_t cap_words, cap_uses;
    uint32_t n_rows, free_row; /* TT_NONE: none is free */
} proof;

/* ----------------------------------------------------------------- sets -- */

static bool has_row(const proof *p, set a)
{
    return a.count > 1 && a.count < p->s->n_ranks;
}

static uint64_t *row(const proof *p, uint32_t ref)
{
    return p->bits + (size_t)ref * p->n_words;
}

static bool contains(const proof *p, set a, uint32_t rank)
{
    if (a.count == p->s->n_ranks)
        return true;
    if (has_row(p, a))
        return tt_set_has(row(p, a.ref), rank);
    return a.count == 1 && a.ref == rank;
}

static bool overlap(const proof *p, set a, set b)
{
    if (a.count == 0 || b.count == 0)
        return false;
    if (a.count + b.count > p->s->n_ranks)
        return true;
    if (a.count == 1)
        return contains(p, b, a.ref);
    if (b.count == 1)
        return contains(p, a, b.ref);
    return tt_set_overlap(row(p, a.ref), row(p, b.ref), p->n_words);
}

static set share(proof *p, set a)
{
    if (has_row(p, a))
        p->uses[a.ref]++;
    return a;
}

static void drop(proof *p, set a)
{
    if (!has_row(p, a) || --p->uses[a.ref] > 0)
        return;
    p->uses[a.ref] = p->free_row;
    p->free_row = a.ref;
}

/* A row whose bits are not set to anything, used once. */
static tutti_err take_row(proof *p, uint32_t *out)
{
    if (p->free_row != TT_NONE) {
        *out = p->free_row;
        p->free_row = p->uses[*out];
    } else {
        size_t need = (size_t)p->n_rows + 1;
        tutti_err err = tt_grow(p->mem, (void **)(void *)&p->bits,
                                &p->cap_words, need * p->n_words, 8);
        if (!err)
            err = tt_grow(p->mem, (void **)(void *)&p->uses, &p->cap_uses, need,
                          sizeof(*p->uses));
        if (err)
            return tt_fail(p->diag, err, "no memory for the proof");
        *out = p->n_rows++;
    }
    p->uses[*out] = 1;
    return TUTTI_OK;
}

/* Adds the contributions of a to a row. */
static void add_bits(const proof *p, uint64_t *to, set a)
{
    if (a.count == 1)
        tt_set_add(to, a.ref);
    else
        tt_set_unite(to, row(p, a.ref), p->n_words);
}

/* *a := *a + b, which do not overlap and are not empty. Takes a's use of its
 * row, and leaves b's alone. */
static tutti_err unite(proof *p, set *a, set b)
{
    uint32_t count = a->count + b.count, ref = 0;
    if (count == p->s->n_ranks) {
        drop(p, *a);
        *a = (set){.count = count};
        return TUTTI_OK;
    }
    if (has_row(p, *a) && p->uses[a->ref] == 1) {
        ref = a->ref;
    } else {
        tutti_err err = take_row(p, &ref);
        if (err)
            return err;
        if (has_row(p, *a)) {
            tt_set_copy(row(p, ref), row(p, a->ref), p->n_words);
        } else {
            tt_set_clear(row(p, ref), p->n_words);
            add_bits(p, row(p, ref), *a);
        }
        drop(p, *a);
    }
    add_bits(p, row(p, ref), b);
    *a = (set){.count = count, .ref = ref};
    return TUTTI_OK;
}

/* ------------------------------------------------------- counterexamples -- */

/* The ranks below n_ranks for which is_in says yes, as "1, 7-9". */
typedef bool is_in_fn(const proof *p, set a, set b, uint32_t rank);

static bool in_both(const proof *p, set a, set b, uint32_t rank)
{
    return contains(p, a, rank) && contains(p, b, rank);
}

static bool only_in_first(const proof *p, set a, set b, uint32_t rank)
{
    return contains(p, a, rank) && !contains(p, b, rank);
}

typedef struct rank_list {
    char text[240];
    size_t len;
    uint32_t count;
} rank_list;

static void list_range(rank_list *l, uint32_t from, uint32_t to)
{
    const char *comma = l->count ? ", " : "";
    l->count += to - from + 1;
    /* Long lists end in dots; the sentence must fit a diagnosis. */
    if (l->len > sizeof(l->text) - 60) {
        if (l->text[l->len - 1] != '.')
            l->len += (size_t)snprintf(l->text + l->len, 8, ", ...");
        return;
    }
    const char *format = from == to ? "%s%u" : "%s%u-%u";
    /* Two of a kind read better as "1, 2" than as "1-2". */
    if (to == from + 1)
        format = "%s%u, %u";
    l->len += (size_t)snprintf(l->text + l->len, sizeof(l->text) - l->len,
                               format, comma, from, to);
}

/* "the contribution of rank 3", "the contributions of ranks 1, 7-9". */
static const char *name_ranks(const proof *p, is_in_fn *is_in, set a, set b,
                              rank_list *out)
{
    rank_list l = {.len = 0};
    uint32_t n = p->s->n_ranks;
    for (uint32_t r = 0; r < n; r++) {
        if (!is_in(p, a, b, r))
            continue;
        uint32_t from = r;
        while (r + 1 < n && is_in(p, a, b, r + 1))
            r++;
        list_range(&l, from, r);
    }
    const char *head = l.count == 1 ? "the contribution of rank"
                                    : "the contributions of ranks";
    /* list_range() keeps text so short that this fits. */
    out->len = (size_t)snprintf(out->text, sizeof(out->text), "%s %.200s", head,
                                l.text);
    out->count = l.count;
    return out->text;
}

static tutti_err refuse(const proof *p, uint32_t rank, uint32_t step,
                        const char *fmt, ...) TT_PRINTF(4, 5);

/* Fills diag: "chunk 3 (block 1): " and the sentence. */
static tutti_err refuse(const proof *p, uint32_t rank, uint32_t step,
                        const char *fmt, ...)
{
    char block[32] = "";
    char sentence[440];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof(sentence), fmt, args);
    va_end(args);
    if (p->s->n_blocks > 1)
        snprintf(block, sizeof(block), " (block %u)",
                 p->s->chunks[p->chunk].block);
    tt_fail(p->diag, TUTTI_EPROOF, "chunk %u%s: %s", p->chunk, block, sentence);
    tt_diag_at(p->diag, rank, p->chunk, step);
    return TUTTI_EPROOF;
}

/* ------------------------------------------------------------- execution -- */

static set start_set(const proof *p, uint32_t rank)
{
    uint32_t who;
    uint32_t block = p->s->chunks[p->chunk].block;
    if (tt_sched_start(p->s, block, rank, &who) == TT_HOLD_NONE)
        return (set){0};
    return (set){.count = 1, .ref = who};
}

/* The rank's entry for this chunk. */
static holder *touch(proof *p, uint32_t rank)
{
    holder *h = &p->holders[rank];
    if (h->chunk != p->chunk + 1)
        *h = (holder){.now = start_set(p, rank), .chunk = p->chunk + 1};
    return h;
}

static tutti_err take_copy(proof *p, const tt_transfer *t, set value)
{
    holder *dst = &p->holders[t->dst];
    if (dst->input != INPUT_NONE)
        return refuse(p, t->dst, t->step,
                      "at step %u rank %u takes a copy from rank %u besides "
                      "another input",
                      t->step, t->dst, t->src);
    dst->next = share(p, value);
    dst->input = INPUT_COPY;
    return TUTTI_OK;
}

static tutti_err take_reduce(proof *p, const tt_transfer *t, set value)
{
    holder *dst = &p->holders[t->dst];
    if (dst->input == INPUT_COPY)
        return refuse(p, t->dst, t->step,
                      "at step %u rank %u reduces an input from rank %u "
                      "besides taking a copy",
                      t->step, t->dst, t->src);
    if (dst->now.count == 0)
        return refuse(p, t->dst, t->step,
                      "at step %u rank %u reduces an input from rank %u into "
                      "nothing: it holds no value yet",
                      t->step, t->dst, t->src);
    if (dst->input == INPUT_NONE)
        dst->next = share(p, dst->now);
    dst->input = INPUT_REDUCE;
    if (overlap(p, dst->next, value)) {
        rank_list twice;
        return refuse(p, t->dst, t->step,
                      "at step %u rank %u reduces %s a second time (from rank "
                      "%u)",
                      t->step, t->dst,
                      name_ranks(p, in_both, dst->next, value, &twice), t->src);
    }
    return unite(p, &dst->next, value);
}

static tutti_err take(proof *p, const tt_transfer *t)
{
    set value = touch(p, t->src)->now;
    if (value.count == 0)
        return refuse(p, t->src, t->step,
                      "at step %u rank %u sends to rank %u before it holds a "
                      "value",
                      t->step, t->src, t->dst);
    if (touch(p, t->dst)->input == INPUT_NONE)
        p->written[p->n_written++] = t->dst;
    return t->op == TT_XFER_COPY ? take_copy(p, t, value)
                                 : take_reduce(p, t, value);
}

/* The step is over: what was written becomes what is held. */
static void end_step(proof *p)
{
    for (uint32_t i = 0; i < p->n_written; i++) {
        holder *h = &p->holders[p->written[i]];
        drop(p, h->now);
        h->now = h->next;
        h->input = INPUT_NONE;
    }
    p->n_written = 0;
}

/* ------------------------------------------------------------------- end -- */

static tutti_err refuse_end(const proof *p, uint32_t rank, set have, set want)
{
    rank_list wanted, list;
    const set none = {0};
    name_ranks(p, only_in_first, want, none, &wanted);
    if (have.count == 0)
        return refuse(p, rank, TT_NONE,
                      "rank %u ends with nothing instead of %s", rank,
                      wanted.text);
    name_ranks(p, only_in_first, want, have, &list);
    if (list.count > 0 && want.count > 1)
        return refuse(p, rank, TT_NONE, "rank %u ends without %s", rank,
                      list.text);
    name_ranks(p, only_in_first, have, none, &list);
    return refuse(p, rank, TT_NONE, "rank %u ends with %s instead of %s", rank,
                  list.text, wanted.text);
}

static tutti_err check_end(proof *p, uint32_t rank)
{
    uint32_t who = TT_NONE;
    uint32_t block = p->s->chunks[p->chunk].block;
    tt_hold hold = tt_sched_end(p->s, block, rank, &who);
    if (hold == TT_HOLD_NONE)
        return TUTTI_OK;
    const holder *h = &p->holders[rank];
    set have = h->chunk == p->chunk + 1 ? h->now : start_set(p, rank);
    set want = {.count = 1, .ref = who};
    if (hold == TT_HOLD_ALL)
        want = (set){.count = p->s->n_ranks};
    bool is_same = have.count == want.count &&
                   (hold == TT_HOLD_ALL || contains(p, have, who));
    return is_same ? TUTTI_OK : refuse_end(p, rank, have, want);
}

static tutti_err check_ends(proof *p)
{
    uint32_t only = tt_sched_end_only(p->s, p->s->chunks[p->chunk].block);
    if (only != TT_NONE)
        return check_end(p, only);
    tutti_err err = TUTTI_OK;
    for (uint32_t r = 0; r < p->s->n_ranks && !err; r++)
        err = check_end(p, r);
    return err;
}

/* ------------------------------------------------------------ the proof -- */

/* The transfers of the chunk are list[order[0]] .. list[order[n - 1]]. */
static tutti_err prove_chunk(proof *p, const uint32_t *order, uint64_t n)
{
    const tt_transfer *list = p->s->transfers;
    p->n_rows = 0;
    p->free_row = TT_NONE;
    for (uint64_t i = 0; i < n; i++) {
        const tt_transfer *t = &list[order[i]];
        tutti_err err = take(p, t);
        if (err)
            return err;
        if (i + 1 == n || list[order[i + 1]].step != t->step)
            end_step(p);
    }
    return check_ends(p);
}

tutti_err tt_verify(const tutti_schedule *s, const tt_mem *mem,
                    tutti_diag *diag)
{
    tt_arena arena = {.mem = mem};
    proof p = {.s = s, .mem = mem, .diag = diag};
    p.n_words = tt_set_words(s->n_ranks);
    p.holders = tt_arena_new(&arena, s->n_ranks, sizeof(*p.holders));
    p.written = tt_arena_new(&arena, s->n_ranks, sizeof(*p.written));
    tt_by_chunk by = {0};
    tutti_err err = tt_sched_by_chunk(s, &arena, &by);
    if (err || !p.holders || !p.written) {
        err = tt_fail(diag, TUTTI_ENOMEM, "no memory for the proof");
        goto out;
    }
    for (uint64_t c = 0; c < s->n_chunks && !err; c++) {
        const uint32_t *order = by.order ? by.order + by.first[c] : NULL;
        p.chunk = (uint32_t)c;
        err = prove_chunk(&p, order, by.first[c + 1] - by.first[c]);
    }
out:
    tt_free(mem, p.bits, p.cap_words, sizeof(*p.bits));
    tt_free(mem, p.uses, p.cap_uses, sizeof(*p.uses));
    tt_arena_free(&arena);
    return err;
}
