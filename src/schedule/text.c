/* SPDX-License-Identifier: BSD-3-Clause
 * text.c - the text form of a schedule, for files and people.
 *
 *     tutti-schedule 1
 *     collective broadcast
 *     ranks 3
 *     root 0
 *     parts 2
 *     chunk 0 0 1            # chunk 0: parts 0 to 1 of block 0
 *     chunk 0 1 2
 *     transfer 0 0 0 1 copy  # step 0, chunk 0, from rank 0 to rank 1
 *     transfer 0 1 0 2 copy
 *     transfer 1 0 1 2 copy
 *     transfer 1 1 2 1 copy
 *     end
 *
 * Grammar: words separated by blanks (space, tab, carriage return), one item
 * a line; `#` begins a comment; empty lines are skipped. In this order:
 *     "tutti-schedule" "1"
 *     "collective" NAME            as tutti_coll_parse() spells it
 *     "ranks" NUMBER
 *     "root" NUMBER                if and only if the collective has a root
 *     "parts" NUMBER               n_parts: the parts of every block
 *     { "chunk" BLOCK BEGIN END }  numbered from 0 as they come, in order
 *     { "transfer" STEP CHUNK SRC DST ("reduce" | "copy") [RAIL] }  any order
 *     "end"                        nothing but blanks and comments follows
 * NUMBER is decimal digits only. What the printer writes has no comments, one
 * space between words, transfers in order, and RAIL only when it is not 0; so
 * equal schedules have equal texts, and printing what was read gives the same
 * bytes again.
 *
 * Any bytes may be handed in: memory is taken only for lines that are there,
 * never for a number that a line claims. An error has line and column. An
 * error that only the whole shows (a chunk is missing) points at "end".
 *
 * Next       build.c (the rules that the items must obey), json.c (the same as
 *            JSON).
 */
#include "schedule/build.h"

#include "base/str.h"

#include <string.h>

/* ---------------------------------------------------------------- print -- */

static const char *op_name(uint8_t op)
{
    switch (op) {
#define TT_X(name, number, text) \
    case TT_XFER_##name:         \
        return text;
        TT_XFER_OP_LIST(TT_X)
#undef TT_X
    }
    return "unknown";
}

/* " 1 2 3": each number after a space. */
static void put_numbers(tt_str *out, const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tt_str_add(out, " ", 1);
        tt_str_u64(out, numbers[i]);
    }
}

static void put_transfer(tt_str *out, const tt_transfer *t)
{
    tt_str_puts(out, "transfer");
    put_numbers(out, (uint64_t[]){t->step, t->chunk, t->src, t->dst}, 4);
    tt_str_add(out, " ", 1);
    tt_str_puts(out, op_name(t->op));
    if (t->rail)
        put_numbers(out, (uint64_t[]){t->rail}, 1);
    tt_str_add(out, "\n", 1);
}

void tt_sched_write(const tutti_schedule *s, tt_str *out)
{
    tt_str_printf(out, "tutti-schedule 1\ncollective %s\nranks %u\n",
                  tutti_coll_name(s->collective), s->n_ranks);
    if (s->root != TT_NONE)
        tt_str_printf(out, "root %u\n", s->root);
    tt_str_printf(out, "parts %llu\n", (unsigned long long)s->n_parts);
    for (uint64_t i = 0; i < s->n_chunks && !out->err; i++) {
        const tt_chunk *c = &s->chunks[i];
        tt_str_puts(out, "chunk");
        put_numbers(out, (uint64_t[]){c->block, c->begin, c->end}, 3);
        tt_str_add(out, "\n", 1);
    }
    for (uint64_t i = 0; i < s->n_transfers && !out->err; i++)
        put_transfer(out, &s->transfers[i]);
    tt_str_puts(out, "end\n");
}

/* --------------------------------------------------------------- header -- */

/* The next line must begin with `name`. */
static tutti_err header_line(tt_words *r, const char *name)
{
    tt_word w = tt_words_line(r);
    if (tt_word_is(w, name))
        return TUTTI_OK;
    char expected[32] = "`";
    strcat(strncat(expected, name, sizeof(expected) - 3), "`");
    return tt_words_unexpected(r, w, expected);
}

static tutti_err header_number(tt_words *r, const char *name,
                               const tt_number *n, uint64_t *out)
{
    tutti_err err = header_line(r, name);
    if (!err)
        err = tt_words_number(r, tt_words_next(r), n, out);
    return err ? err : tt_words_end_line(r);
}

static tutti_err read_version(tt_words *r)
{
    tutti_err err = header_line(r, "tutti-schedule");
    if (err)
        return err;
    tt_word w = tt_words_next(r);
    if (!tt_word_is(w, "1"))
        return tt_words_unexpected(r, w,
                                   "version 1, the only one that can be read");
    return tt_words_end_line(r);
}

static tutti_err read_collective(tt_words *r, tutti_coll *out)
{
    tutti_err err = header_line(r, "collective");
    if (err)
        return err;
    tt_word w = tt_words_next(r);
    char name[32] = "";
    if (w.len < sizeof(name))
        memcpy(name, w.at, w.len);
    if (tutti_coll_parse(name, out) || strlen(name) != w.len)
        return tt_words_unexpected(r, w, "the name of a collective");
    return tt_words_end_line(r);
}

static tutti_err read_head(tt_words *r, tt_sched_head *head)
{
    tutti_err err = read_version(r);
    if (!err)
        err = read_collective(r, &head->collective);
    tt_number n = TT_RANKS_NUMBER;
    uint64_t n_ranks = 1, root = TT_NONE;
    if (!err)
        err = header_number(r, "ranks", &n, &n_ranks);
    n = tt_root_number(n_ranks);
    if (!err && tt_coll_has_root(head->collective))
        err = header_number(r, "root", &n, &root);
    n = TT_PARTS_NUMBER;
    if (!err)
        err = header_number(r, "parts", &n, &head->n_parts);
    head->n_ranks = (uint32_t)n_ranks;
    head->root = (uint32_t)root;
    return err;
}

/* ---------------------------------------------------------------- items -- */

typedef struct parse {
    tt_words r;
    tt_sched_head head;
    tt_builder *b;
    uint64_t n_chunks;
    tt_spot end; /* where `end` is */
} parse;

/* The next n words as numbers. */
static tutti_err numbers(tt_words *r, const tt_number *what, size_t n,
                         tt_word *words, uint64_t *out)
{
    tutti_err err = TUTTI_OK;
    for (size_t i = 0; i < n && !err; i++) {
        words[i] = tt_words_next(r);
        err = tt_words_number(r, words[i], &what[i], &out[i]);
    }
    return err;
}

static tutti_err read_chunk(parse *p)
{
    tt_words *r = &p->r;
    tt_number what[3];
    tt_word words[3];
    tt_chunk_numbers(&p->head, what);
    uint64_t v[3];
    tutti_err err = numbers(r, what, 3, words, v);
    if (!err)
        err = tt_words_end_line(r);
    if (err)
        return err;
    tt_builder_chunk(p->b, (uint32_t)v[0], v[1], v[2]);
    p->n_chunks++;
    err = tt_builder_error(p->b, r->diag);
    if (err)
        tt_diag_spot(r->diag, tt_words_spot(r, words[0].at));
    return err;
}

static tutti_err read_op(tt_words *r, tt_xfer_op *out)
{
    tt_word w = tt_words_next(r);
#define TT_X(name, number, text) \
    if (tt_word_is(w, (text))) { \
        *out = TT_XFER_##name;   \
        return TUTTI_OK;         \
    }
    TT_XFER_OP_LIST(TT_X)
#undef TT_X
    return tt_words_unexpected(r, w, "`reduce` or `copy`");
}

/* What follows `transfer`, the line's first word. */
static tutti_err read_transfer(parse *p, tt_word first, tt_transfer *out)
{
    tt_words *r = &p->r;
    if (p->n_chunks == 0)
        return tt_words_unexpected(r, first,
                                   "a `chunk` before the first transfer");
    tt_number what[4];
    tt_xfer_numbers(&p->head, p->n_chunks, what);
    tt_word words[4];
    uint64_t v[4], rail = 0;
    tt_xfer_op op = TT_XFER_REDUCE;
    tutti_err err = numbers(r, what, 4, words, v);
    if (!err && v[2] == v[3])
        err = tt_fail_at(r->diag, TUTTI_EINVAL, tt_words_spot(r, words[3].at),
                         "a rank cannot send to itself");
    if (!err)
        err = read_op(r, &op);
    tt_word last = err ? first : tt_words_next(r);
    if (!err && last.len)
        err = tt_words_number(r, last, &tt_rail_number, &rail);
    if (!err)
        err = tt_words_end_line(r);
    if (err)
        return err;
    *out = (tt_transfer){.step = (uint32_t)v[0],
                         .chunk = (uint32_t)v[1],
                         .src = (uint32_t)v[2],
                         .dst = (uint32_t)v[3],
                         .op = (uint8_t)op,
                         .rail = (uint8_t)rail};
    return TUTTI_OK;
}

static tutti_err add_transfer(parse *p, tt_word first)
{
    tt_transfer t;
    tutti_err err = read_transfer(p, first, &t);
    if (err)
        return err;
    tt_builder_rail(p->b, t.rail);
    tt_builder_transfer(p->b, t.step, t.chunk, t.src, t.dst, (tt_xfer_op)t.op);
    return tt_builder_error(p->b, p->r.diag);
}

/* Chunks, transfers, `end`, and nothing behind it. */
static tutti_err read_items(parse *p)
{
    tt_words *r = &p->r;
    bool may_be_chunk = true;
    tt_word first;
    while (!tt_word_is(first = tt_words_line(r), "end")) {
        tutti_err err;
        if (tt_word_is(first, "transfer")) {
            may_be_chunk = false;
            err = add_transfer(p, first);
        } else if (!may_be_chunk) {
            err = tt_words_unexpected(r, first, "`transfer` or `end`");
        } else if (tt_word_is(first, "chunk")) {
            err = read_chunk(p);
        } else {
            err = tt_words_unexpected(r, first, "`chunk`, `transfer` or `end`");
        }
        if (err)
            return err;
    }
    p->end = tt_words_spot(r, first.at);
    tutti_err err = tt_words_end_line(r);
    if (err)
        return err;
    first = tt_words_line(r);
    return first.len ? tt_words_unexpected(r, first, "nothing after `end`")
                     : TUTTI_OK;
}

/* Where the second transfer line is that says `twin`, in a text that has been
 * read once without an error. */
static tt_spot find_twin(parse *p, const char *text, const tt_transfer *twin)
{
    tt_words *r = &p->r;
    tt_word first;
    *r = tt_words_of(text, (size_t)(r->end - text), r->diag);
    for (int seen = 0; (first = tt_words_line(r)).len;) {
        tt_transfer t;
        if (!tt_word_is(first, "transfer") || read_transfer(p, first, &t))
            continue;
        seen += tt_xfer_compare(&t, twin) == 0;
        if (seen == 2)
            break;
    }
    return tt_words_spot(r, first.at);
}

/* The text form. */
static tutti_err parse_text(const tt_mem *mem, const char *text, size_t len,
                            tutti_schedule **out, tutti_diag *diag)
{
    parse p = {.r = tt_words_of(text, len, diag)};
    tutti_err err = read_head(&p.r, &p.head);
    if (err)
        return err;
    err = tt_builder_create(mem, &p.head, &p.b, diag);
    if (err) {
        tt_diag_spot(diag, tt_words_spot(&p.r, p.r.line_start));
        return err;
    }
    err = read_items(&p);
    if (err) {
        tt_builder_free(p.b);
        return err;
    }
    tt_transfer twin;
    err = tt_builder_close(p.b, out, diag, &twin);
    if (err)
        tt_diag_spot(diag,
                     twin.step == TT_NONE ? p.end : find_twin(&p, text, &twin));
    return err;
}

tutti_err tt_sched_parse(const tt_mem *mem, const char *text, size_t len,
                         tutti_schedule **out, tutti_diag *diag)
{
    if (!text)
        return parse_text(mem, "", 0, out, diag);
    size_t i = 0;
    while (i < len && text[i] && strchr(" \t\r\n", text[i]))
        i++;
    return i < len && text[i] == '{'
               ? tt_sched_parse_json(mem, text, len, out, diag)
               : parse_text(mem, text, len, out, diag);
}
