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
 * Next       build.c (the rules that the items must obey).
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

tutti_err tt_sched_print(const tutti_schedule *s, const tt_mem *mem,
                         char **text, size_t *len)
{
    tt_str out = {.mem = mem};
    tt_sched_write(s, &out);
    return tt_str_finish(&out, text, len);
}

/* ---------------------------------------------------------------- words -- */

/* The longest item has seven words; one more shows that a line has too many. */
enum { MAX_WORDS = 8 };

typedef struct word {
    const char *at;
    size_t len;
} word;

typedef struct reader {
    const char *next, *end; /* what is not read yet */
    const char *line_start;
    uint32_t line; /* number of the line in `words`, from 1 */
    word words[MAX_WORDS];
    size_t n_words;
    tutti_diag *diag;
} reader;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Splits one line, which begins at r->next, into words. */
static void split_line(reader *r)
{
    const char *p = r->next;
    r->line_start = p;
    r->n_words = 0;
    while (p < r->end && *p != '\n' && *p != '#') {
        if (is_blank(*p)) {
            p++;
            continue;
        }
        const char *start = p;
        while (p < r->end && *p != '\n' && *p != '#' && !is_blank(*p))
            p++;
        if (r->n_words < MAX_WORDS)
            r->words[r->n_words++] = (word){start, (size_t)(p - start)};
    }
    while (p < r->end && *p != '\n')
        p++;
    r->next = p < r->end ? p + 1 : p;
}

/* Goes to the next line that has words; n_words is 0 at the end of the text. */
static void next_line(reader *r)
{
    r->n_words = 0;
    while (r->n_words == 0 && r->next < r->end) {
        r->line += r->line < UINT32_MAX;
        split_line(r);
    }
}

static bool is_word(const word *w, const char *text)
{
    return w->len == strlen(text) && memcmp(w->at, text, w->len) == 0;
}

/* Adds the place of word i of the line (or of the line's or text's end). */
static tutti_err place(const reader *r, size_t i, tutti_err err)
{
    if (!r->diag)
        return err;
    size_t column = 1;
    if (i < r->n_words)
        column += (size_t)(r->words[i].at - r->line_start);
    else if (r->n_words > 0)
        column += (size_t)(r->words[r->n_words - 1].at - r->line_start) +
                  r->words[r->n_words - 1].len;
    r->diag->line = r->line ? r->line : 1;
    r->diag->column = column > UINT32_MAX ? UINT32_MAX : (uint32_t)column;
    return err;
}

/* "expected ..., but here is `word`" at word i. */
static tutti_err unexpected(const reader *r, size_t i, const char *expected)
{
    char shown[24] = "";
    if (i >= r->n_words) {
        tt_fail(r->diag, TUTTI_EFORMAT, "expected %s, but the %s ends here",
                expected, r->n_words ? "line" : "text");
        return place(r, i, TUTTI_EFORMAT);
    }
    const word *w = &r->words[i];
    size_t n = w->len < sizeof(shown) ? w->len : sizeof(shown) - 1;
    for (size_t k = 0; k < n; k++)
        shown[k] = w->at[k] > ' ' && w->at[k] <= '~' ? w->at[k] : '?';
    tt_fail(r->diag, TUTTI_EFORMAT, "expected %s, but here is `%s%s`", expected,
            shown, n < w->len ? "..." : "");
    return place(r, i, TUTTI_EFORMAT);
}

/* A number of the text: what errors call it, and its limit. */
typedef struct field {
    const char *what;
    uint64_t least, most;
    tutti_err too_large; /* ELIMIT for our own limits, else EINVAL */
} field;

static tutti_err out_of_range(const reader *r, size_t i, const field *f,
                              bool is_large)
{
    tutti_err err = is_large ? f->too_large : TUTTI_EINVAL;
    tt_fail(r->diag, err, "%s can be at %s %llu", f->what,
            is_large ? "most" : "least",
            (unsigned long long)(is_large ? f->most : f->least));
    return place(r, i, err);
}

/* Word i as a number. */
static tutti_err number(const reader *r, size_t i, const field *f,
                        uint64_t *out)
{
    if (i >= r->n_words)
        return unexpected(r, i, f->what);
    const word *w = &r->words[i];
    uint64_t value = 0;
    bool is_large = false;
    for (size_t k = 0; k < w->len; k++) {
        unsigned digit = (unsigned)(unsigned char)w->at[k] - '0';
        if (digit > 9)
            return unexpected(r, i, f->what);
        /* No overflow: every limit is far below 2^64 / 10. */
        value = is_large ? 0 : value * 10 + digit;
        is_large = is_large || value > f->most;
    }
    if (is_large || value < f->least)
        return out_of_range(r, i, f, is_large);
    *out = value;
    return TUTTI_OK;
}

/* Words 1 to n as numbers. */
static tutti_err numbers(const reader *r, const field *fields, size_t n,
                         uint64_t *out)
{
    tutti_err err = TUTTI_OK;
    for (size_t i = 0; i < n && !err; i++)
        err = number(r, i + 1, &fields[i], &out[i]);
    return err;
}

static tutti_err no_more_words(const reader *r, size_t n)
{
    return r->n_words > n ? unexpected(r, n, "the end of the line") : TUTTI_OK;
}

/* --------------------------------------------------------------- header -- */

/* The next line must be `name` and one more word. */
static tutti_err header_line(reader *r, const char *name)
{
    next_line(r);
    if (r->n_words == 0 || !is_word(&r->words[0], name)) {
        char expected[32] = "`";
        strcat(strncat(expected, name, sizeof(expected) - 3), "`");
        return unexpected(r, 0, expected);
    }
    return no_more_words(r, 2);
}

static tutti_err header_number(reader *r, const char *name, const field *f,
                               uint64_t *out)
{
    tutti_err err = header_line(r, name);
    return err ? err : number(r, 1, f, out);
}

static tutti_err read_collective(reader *r, tutti_coll *out)
{
    tutti_err err = header_line(r, "collective");
    if (err)
        return err;
    char name[32] = "";
    if (r->n_words > 1 && r->words[1].len < sizeof(name))
        memcpy(name, r->words[1].at, r->words[1].len);
    if (tutti_coll_parse(name, out) || strlen(name) != r->words[1].len)
        return unexpected(r, 1, "the name of a collective");
    return TUTTI_OK;
}

static tutti_err read_head(reader *r, tt_sched_head *head)
{
    tutti_err err = header_line(r, "tutti-schedule");
    if (!err && (r->n_words < 2 || !is_word(&r->words[1], "1")))
        err = unexpected(r, 1, "version 1, the only one that can be read");
    if (!err)
        err = read_collective(r, &head->collective);
    field f = {"the number of ranks", 1, TT_MAX_RANKS, TUTTI_ELIMIT};
    uint64_t n_ranks = 1, root = TT_NONE;
    if (!err)
        err = header_number(r, "ranks", &f, &n_ranks);
    f = (field){"the root", 0, n_ranks - 1, TUTTI_EINVAL};
    if (!err && tt_coll_has_root(head->collective))
        err = header_number(r, "root", &f, &root);
    f = (field){"the number of parts", 1, TT_MAX_PARTS, TUTTI_ELIMIT};
    if (!err)
        err = header_number(r, "parts", &f, &head->n_parts);
    head->n_ranks = (uint32_t)n_ranks;
    head->root = (uint32_t)root;
    return err;
}

/* ---------------------------------------------------------------- items -- */

typedef struct parse {
    reader r;
    tt_sched_head head;
    tt_builder *b;
    uint64_t n_chunks;
} parse;

static tutti_err read_chunk(parse *p)
{
    uint64_t n_blocks = tt_coll_blocks(p->head.collective, p->head.n_ranks);
    const field fields[] = {
        {"the block", 0, n_blocks - 1, TUTTI_EINVAL},
        {"the first part", 0, p->head.n_parts, TUTTI_EINVAL},
        {"the end part", 0, p->head.n_parts, TUTTI_EINVAL},
    };
    uint64_t v[3];
    tutti_err err = numbers(&p->r, fields, 3, v);
    if (!err)
        err = no_more_words(&p->r, 4);
    if (err)
        return err;
    tt_builder_chunk(p->b, (uint32_t)v[0], v[1], v[2]);
    p->n_chunks++;
    err = tt_builder_error(p->b, p->r.diag);
    return err ? place(&p->r, 1, err) : TUTTI_OK;
}

static tutti_err read_op(const reader *r, tt_xfer_op *out)
{
    if (r->n_words > 5) {
#define TT_X(name, number, text)         \
    if (is_word(&r->words[5], (text))) { \
        *out = TT_XFER_##name;           \
        return TUTTI_OK;                 \
    }
        TT_XFER_OP_LIST(TT_X)
#undef TT_X
    }
    return unexpected(r, 5, "`reduce` or `copy`");
}

static tutti_err read_transfer(parse *p, tt_transfer *out)
{
    const reader *r = &p->r;
    if (p->n_chunks == 0)
        return unexpected(r, 0, "a `chunk` before the first transfer");
    const field fields[] = {
        {"the step", 0, TT_MAX_STEPS - 1, TUTTI_ELIMIT},
        {"the chunk", 0, p->n_chunks - 1, TUTTI_EINVAL},
        {"the sending rank", 0, p->head.n_ranks - 1, TUTTI_EINVAL},
        {"the receiving rank", 0, p->head.n_ranks - 1, TUTTI_EINVAL},
    };
    const field rail_field = {"the rail", 0, UINT8_MAX, TUTTI_EINVAL};
    uint64_t v[4], rail = 0;
    tt_xfer_op op = TT_XFER_REDUCE;
    tutti_err err = numbers(r, fields, 4, v);
    if (!err && v[2] == v[3]) {
        tt_fail(r->diag, TUTTI_EINVAL, "a rank cannot send to itself");
        err = place(r, 4, TUTTI_EINVAL);
    }
    if (!err)
        err = read_op(r, &op);
    if (!err && r->n_words > 6)
        err = number(r, 6, &rail_field, &rail);
    if (!err)
        err = no_more_words(r, 7);
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

static tutti_err add_transfer(parse *p)
{
    tt_transfer t;
    tutti_err err = read_transfer(p, &t);
    if (err)
        return err;
    tt_builder_rail(p->b, t.rail);
    tt_builder_transfer(p->b, t.step, t.chunk, t.src, t.dst, (tt_xfer_op)t.op);
    return tt_builder_error(p->b, p->r.diag);
}

/* Chunks, transfers, `end`. */
static tutti_err read_items(parse *p)
{
    reader *r = &p->r;
    bool may_be_chunk = true;
    tutti_err err = TUTTI_OK;
    while (!err) {
        next_line(r);
        const word none = {0};
        const word *first = r->n_words > 0 ? &r->words[0] : &none;
        if (is_word(first, "end"))
            break;
        if (is_word(first, "transfer")) {
            may_be_chunk = false;
            err = add_transfer(p);
        } else if (!may_be_chunk) {
            err = unexpected(r, 0, "`transfer` or `end`");
        } else if (is_word(first, "chunk")) {
            err = read_chunk(p);
        } else {
            err = unexpected(r, 0, "`chunk`, `transfer` or `end`");
        }
    }
    return err ? err : no_more_words(r, 1);
}

static tutti_err read_nothing_more(parse *p)
{
    reader rest = p->r;
    next_line(&rest);
    return rest.n_words ? unexpected(&rest, 0, "nothing after `end`")
                        : TUTTI_OK;
}

/* Points diag at the second transfer line that says `twin`, in a text that
 * has been read once without an error. */
static void place_twin(parse *p, const char *text, const tt_transfer *twin)
{
    reader *r = &p->r;
    r->next = text;
    r->line = 0;
    for (int seen = 0; seen < 2;) {
        tt_transfer t;
        next_line(r);
        if (r->n_words == 0)
            return;
        if (is_word(&r->words[0], "transfer") && !read_transfer(p, &t))
            seen += tt_xfer_compare(&t, twin) == 0;
    }
    place(r, 0, TUTTI_EINVAL);
}

tutti_err tt_sched_parse(const tt_mem *mem, const char *text, size_t len,
                         tutti_schedule **out, tutti_diag *diag)
{
    if (!text)
        text = "";
    parse p = {.r = {.next = text, .end = text + len, .diag = diag}};
    tutti_err err = read_head(&p.r, &p.head);
    if (err)
        return err;
    err = tt_builder_create(mem, &p.head, &p.b, diag);
    if (err)
        return place(&p.r, 0, err);
    err = read_items(&p);
    if (!err)
        err = read_nothing_more(&p);
    if (err) {
        tt_builder_free(p.b);
        return err;
    }
    tt_transfer twin;
    err = tt_builder_close(p.b, out, diag, &twin);
    if (err)
        place(&p.r, 0, err);
    if (err && twin.step != TT_NONE)
        place_twin(&p, text, &twin);
    return err;
}
