/* SPDX-License-Identifier: BSD-3-Clause
 * json.c - the JSON form of a schedule, for other programs: one object,
 *
 *     {"collective":"all-reduce","n_ranks":2,"root":null,"n_blocks":1,
 *      "n_parts":1,
 *      "chunks":[[block,begin,end],...],
 *      "transfers":[[step,chunk,src,dst,"reduce"],...]}
 *
 * with one chunk or transfer per line, so that a person can read it too. A
 * transfer on a rail other than 0 has the rail as a sixth item.
 *
 * Read are these members in any order, and no others; n_blocks, and a root that
 * is null, may be missing. Numbers are decimal digits only, names have no
 * escapes. Items mean what they mean in text.c, and so are transfers in any
 * order. The text is gone through twice: once to find where the members are.
 *
 * Any bytes may be handed in: as in text.c. An error that only the whole shows
 * points at the end of the object.
 *
 * Next       text.c. */
#include "schedule/build.h"

#include <string.h>

#include "base/str.h"

/* ---------------------------------------------------------------- print -- */

/* "[1,2,3": the numbers of an item, which stays open. */
static void open_item(tt_str *out, const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tt_str_add(out, i ? "," : "[", 1);
        tt_str_u64(out, numbers[i]);
    }
}

/* Between two items of a list, and before the first. */
static void separate(tt_str *out, uint64_t i)
{
    tt_str_puts(out, i ? ",\n  " : "\n  ");
}

void tt_sched_write_json(const tutti_schedule *s, tt_str *out)
{
    tt_str_printf(out, "{\"collective\":\"%s\",\"n_ranks\":%u,\"root\":",
                  tutti_coll_name(s->collective), s->n_ranks);
    if (s->root == TT_NONE)
        tt_str_puts(out, "null");
    else
        tt_str_u64(out, s->root);
    tt_str_printf(out, ",\"n_blocks\":%llu,\"n_parts\":%llu,\n \"chunks\":[",
                  (unsigned long long)s->n_blocks,
                  (unsigned long long)s->n_parts);
    for (uint64_t i = 0; i < s->n_chunks && !out->err; i++) {
        const tt_chunk *c = &s->chunks[i];
        separate(out, i);
        open_item(out, (uint64_t[]){c->block, c->begin, c->end}, 3);
        tt_str_add(out, "]", 1);
    }
    tt_str_puts(out, "],\n \"transfers\":[");
    for (uint64_t i = 0; i < s->n_transfers && !out->err; i++) {
        const tt_transfer *t = &s->transfers[i];
        separate(out, i);
        open_item(out, (uint64_t[]){t->step, t->chunk, t->src, t->dst}, 4);
        tt_str_puts(out, t->op == TT_XFER_REDUCE ? ",\"reduce\"" : ",\"copy\"");
        if (t->rail) {
            tt_str_add(out, ",", 1);
            tt_str_u64(out, t->rail);
        }
        tt_str_add(out, "]", 1);
    }
    tt_str_puts(out, "]}\n");
}

/* --------------------------------------------------------------- tokens -- */

/* In a tt_words only `next`, the line and where it starts move. */
static tt_words begin_json(const char *text, size_t len, tutti_diag *diag)
{
    return (tt_words){.end = text + len,
                      .line_start = text,
                      .next = text,
                      .line_end = text + len,
                      .line = 1,
                      .diag = diag};
}

static void skip_blanks(tt_words *r)
{
    for (; r->next < r->end && strchr(" \t\r\n", *r->next) && *r->next;
         r->next++) {
        if (*r->next != '\n')
            continue;
        r->line += r->line < UINT32_MAX;
        r->line_start = r->next + 1;
    }
}

static size_t text_len(const char *at, const char *end)
{
    const char *p = at + 1;
    while (p < end && *p != '"' && *p != '\n')
        p += *p == '\\' && p + 1 < end ? 2 : 1;
    return (size_t)(p - at) + (p < end && *p == '"');
}

/* A bracket, comma or colon; a text with its quotes; or what is between those,
 * a number or `null`. len 0: the end. */
static tt_word token(tt_words *r)
{
    skip_blanks(r);
    tt_word w = {r->next, 0};
    if (w.at == r->end)
        return w;
    if (*w.at == '"') {
        w.len = text_len(w.at, r->end);
    } else {
        while (w.at + w.len < r->end && w.at[w.len] &&
               !strchr("{}[],:\" \t\r\n", w.at[w.len]))
            w.len++;
        w.len += w.len == 0;
    }
    r->next += w.len;
    return w;
}

static tutti_err expect(tt_words *r, const char *what, const char *said)
{
    tt_word w = token(r);
    return tt_word_is(w, what) ? TUTTI_OK : tt_words_unexpected(r, w, said);
}

/* After an item of a list: is there another one? */
static tutti_err more(tt_words *r, const char *end, const char *said, bool *out)
{
    tt_word w = token(r);
    *out = tt_word_is(w, ",");
    return *out || tt_word_is(w, end) ? TUTTI_OK
                                      : tt_words_unexpected(r, w, said);
}

/* What is within the brackets is looked at when it is read. */
static tutti_err skip_value(tt_words *r)
{
    size_t depth = 0;
    do {
        tt_word w = token(r);
        if (w.len == 0 || (depth == 0 && strchr("}],:", *w.at)))
            return tt_words_unexpected(r, w, "a value");
        if (*w.at == '"' && (w.len < 2 || w.at[w.len - 1] != '"'))
            return tt_words_unexpected(r, w, "a text with both quotes");
        if (*w.at == '[' || *w.at == '{')
            depth++;
        else if (*w.at == ']' || *w.at == '}')
            depth--;
    } while (depth > 0);
    return TUTTI_OK;
}

/* -------------------------------------------------------------- members -- */

enum { COLLECTIVE, RANKS, ROOT, BLOCKS, PARTS, CHUNKS, TRANSFERS, N_MEMBERS };

static const char *const member_names[N_MEMBERS] = {
    "\"collective\"", "\"n_ranks\"", "\"root\"",      "\"n_blocks\"",
    "\"n_parts\"",    "\"chunks\"",  "\"transfers\"",
};

typedef struct parse {
    tt_words at[N_MEMBERS]; /* before the value; line 0: it is not there */
    tt_words end;           /* behind the object */
    tt_sched_head head;
    tt_builder *b;
    uint64_t n_chunks;
} parse;

static tutti_err find_member(parse *p, tt_words *r)
{
    tt_word name = token(r);
    size_t i = 0;
    while (i < N_MEMBERS && !tt_word_is(name, member_names[i]))
        i++;
    if (i == N_MEMBERS)
        return tt_words_unexpected(r, name, "a member of a schedule");
    if (p->at[i].line)
        return tt_words_unexpected(r, name, "each member once");
    tutti_err err = expect(r, ":", "`:`");
    p->at[i] = *r;
    return err ? err : skip_value(r);
}

static tutti_err is_missing(const parse *p, size_t i)
{
    return tt_fail_at(p->end.diag, TUTTI_EFORMAT,
                      tt_words_spot(&p->end, p->end.next),
                      "the member %s is missing", member_names[i]);
}

static tutti_err find_members(parse *p, tt_words *r)
{
    tutti_err err = expect(r, "{", "`{`");
    for (bool is_more = true; is_more && !err;) {
        err = find_member(p, r);
        if (!err)
            err = more(r, "}", "`,` or `}`", &is_more);
    }
    p->end = *r;
    tt_word rest = err ? (tt_word){r->next, 0} : token(r);
    if (rest.len)
        err = tt_words_unexpected(r, rest, "nothing behind the schedule");
    for (size_t i = 0; i < N_MEMBERS && !err; i++)
        if (!p->at[i].line && i != ROOT && i != BLOCKS)
            err = is_missing(p, i);
    return err;
}

static tutti_err read_number(tt_words *r, const tt_number *n, uint64_t *out)
{
    return tt_words_number(r, token(r), n, out);
}

static tutti_err read_collective(tt_words *r, tutti_coll *out)
{
    tt_word w = token(r);
    char name[32] = "";
    if (w.len >= 2 && w.len < sizeof(name))
        memcpy(name, w.at + 1, w.len - 2);
    if (*w.at != '"' || tutti_coll_parse(name, out))
        return tt_words_unexpected(r, w, "the name of a collective");
    return TUTTI_OK;
}

static tutti_err read_root(parse *p)
{
    tt_words *r = &p->at[ROOT];
    tt_words ahead = *r;
    uint64_t root = TT_NONE;
    bool is_none = !r->line || tt_word_is(token(&ahead), "null");
    tutti_err err = TUTTI_OK;
    const tt_number n = tt_root_number(p->head.n_ranks);
    if (tt_coll_has_root(p->head.collective))
        err = r->line ? read_number(r, &n, &root) : is_missing(p, ROOT);
    else if (!is_none)
        err = tt_words_unexpected(r, token(r), "`null`, as there is no root");
    p->head.root = (uint32_t)root;
    return err;
}

static tutti_err read_head(parse *p)
{
    const tt_number ranks_number = TT_RANKS_NUMBER;
    const tt_number parts_number = TT_PARTS_NUMBER;
    uint64_t n_ranks = 1, n_blocks = 0;
    tutti_err err = read_collective(&p->at[COLLECTIVE], &p->head.collective);
    if (!err)
        err = read_number(&p->at[RANKS], &ranks_number, &n_ranks);
    p->head.n_ranks = (uint32_t)n_ranks;
    if (!err)
        err = read_root(p);
    if (!err)
        err = read_number(&p->at[PARTS], &parts_number, &p->head.n_parts);
    uint64_t blocks = err ? 0
                          : tt_coll_blocks(p->head.collective, p->head.n_ranks);
    const tt_number blocks_number = {"the number of blocks", blocks, blocks,
                                     TUTTI_EINVAL};
    if (!err && p->at[BLOCKS].line)
        err = read_number(&p->at[BLOCKS], &blocks_number, &n_blocks);
    return err;
}

/* ---------------------------------------------------------------- items -- */

/* n numbers with commas between them. */
static tutti_err numbers(tt_words *r, const tt_number *what, size_t n,
                         uint64_t *out)
{
    tutti_err err = TUTTI_OK;
    for (size_t i = 0; i < n && !err; i++) {
        if (i > 0)
            err = expect(r, ",", "`,`");
        if (!err)
            err = read_number(r, &what[i], &out[i]);
    }
    return err;
}

/* The builder's error, of the item that begins there. */
static tutti_err added(const parse *p, tt_words *r, tt_spot item)
{
    tutti_err err = tt_builder_error(p->b, r->diag);
    if (err)
        tt_diag_spot(r->diag, item);
    return err;
}

static tutti_err read_chunk(parse *p, tt_words *r, tt_spot item)
{
    tt_number what[3];
    uint64_t v[3];
    tt_chunk_numbers(&p->head, what);
    tutti_err err = numbers(r, what, 3, v);
    if (!err)
        err = expect(r, "]", "`]`");
    if (err)
        return err;
    tt_builder_chunk(p->b, (uint32_t)v[0], v[1], v[2]);
    p->n_chunks++;
    return added(p, r, item);
}

static tutti_err read_transfer(parse *p, tt_words *r, tt_spot item)
{
    tt_number what[4];
    uint64_t v[4], rail = 0;
    bool has_rail = false;
    if (p->n_chunks == 0)
        return tt_words_unexpected(r, token(r), "a chunk for the transfer");
    tt_xfer_numbers(&p->head, p->n_chunks, what);
    tutti_err err = numbers(r, what, 4, v);
    if (!err)
        err = expect(r, ",", "`,`");
    tt_word op = err ? (tt_word){r->next, 0} : token(r);
    bool is_copy = tt_word_is(op, "\"copy\"");
    if (!err && !is_copy && !tt_word_is(op, "\"reduce\""))
        err = tt_words_unexpected(r, op, "\"reduce\" or \"copy\"");
    if (!err)
        err = more(r, "]", "`]`, or `,` and a rail", &has_rail);
    if (!err && has_rail)
        err = read_number(r, &tt_rail_number, &rail);
    if (!err && has_rail)
        err = expect(r, "]", "`]`");
    if (err)
        return err;
    if (v[2] == v[3])
        return tt_fail_at(r->diag, TUTTI_EINVAL, item,
                          "a rank cannot send to itself");
    tt_builder_rail(p->b, (uint8_t)rail);
    tt_builder_transfer(p->b, (uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2],
                        (uint32_t)v[3],
                        is_copy ? TT_XFER_COPY : TT_XFER_REDUCE);
    return added(p, r, item);
}

static tutti_err read_list(parse *p, tt_words *r,
                           tutti_err (*read)(parse *p, tt_words *r,
                                             tt_spot item))
{
    tutti_err err = expect(r, "[", "`[`");
    tt_words ahead = *r;
    bool is_more = !tt_word_is(token(&ahead), "]");
    while (is_more && !err) {
        err = expect(r, "[", "`[`");
        if (!err)
            err = read(p, r, tt_words_spot(r, r->next - 1));
        if (!err)
            err = more(r, "]", "`,` or `]`", &is_more);
    }
    return err;
}

tutti_err tt_sched_parse_json(const tt_mem *mem, const char *text, size_t len,
                              tutti_schedule **out, tutti_diag *diag)
{
    tt_words r = begin_json(text ? text : "", text ? len : 0, diag);
    parse p = {.at = {{0}}};
    tutti_err err = find_members(&p, &r);
    if (!err)
        err = read_head(&p);
    if (err)
        return err;
    const tt_spot end = tt_words_spot(&p.end, p.end.next - 1);
    err = tt_builder_create(mem, &p.head, &p.b, diag);
    if (err) {
        tt_diag_spot(diag, end);
        return err;
    }
    err = read_list(&p, &p.at[CHUNKS], read_chunk);
    if (!err)
        err = read_list(&p, &p.at[TRANSFERS], read_transfer);
    if (err) {
        tt_builder_free(p.b);
        return err;
    }
    err = tt_builder_seal(p.b, out, diag);
    if (err)
        tt_diag_spot(diag, end);
    return err;
}
