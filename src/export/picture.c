/* SPDX-License-Identifier: BSD-3-Clause
 * picture.c - a schedule drawn for people, 80 columns wide: who sends what to
 * whom, step by step, and what every rank then holds.
 *
 * Idea       What is small is drawn in full, what is large only in part, and
 *            the drawing says what it has left out. The sends are a table with
 *            a column per rank where that fits, else a list. What ranks hold is
 *            drawn as sets of contributions, one table per chunk, where all
 *            tables together fit a screen or two; else as one character per
 *            chunk; else not at all. A schedule that is wrong is drawn like any
 *            other (sets are united without a check): `tutti verify` tells.
 * Look       `tutti show ring full:5`.
 * Next       dot.c, trace.c (other pictures). */
#include "export/formats.h"

#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 80,
    MAX_TABLE_LINES = 120, /* of the table of sends */
    MAX_LIST_LINES = 120,  /* of the list of sends */
    MAX_STEP_LINES = 4,    /* of one step in the list */
    MAX_SET_RANKS = 16,    /* a set is as many characters wide */
    MAX_SET_LINES = 72,    /* all tables of sets together */
    MAX_COUNT_RANKS = 35,  /* a count is one character */
    MAX_COUNT_LINES = 120,
    MAX_SHARES = 24 /* uneven shares that are listed one by one */
};

/* A step that has transfers: list[first] to list[end - 1]. */
typedef struct step_span {
    uint32_t step;
    uint64_t first, end;
} step_span;

typedef struct picture {
    const tutti_schedule *s;
    tt_str *out;
    tt_arena arena;
    step_span *steps;
    size_t n_steps;
    /* What (rank, chunk) holds, a bit per contribution: before the first
     * step, then after each of `steps`. */
    uint64_t *held;
} picture;

static int n_digits(uint64_t value)
{
    int n = 1;
    for (; value > 9; value /= 10)
        n++;
    return n;
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static int widest(int a, int b)
{
    return a > b ? a : b;
}

/* Fills p->steps. */
static tutti_err find_steps(picture *p)
{
    const tutti_schedule *s = p->s;
    for (uint64_t i = 0; i < s->n_transfers; i++)
        p->n_steps += i == 0 ||
                      s->transfers[i].step != s->transfers[i - 1].step;
    p->steps = tt_arena_new(&p->arena, p->n_steps, sizeof(*p->steps));
    if (!p->steps && p->n_steps > 0)
        return TUTTI_ENOMEM;
    size_t k = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        if (i > 0 && s->transfers[i].step != s->transfers[i - 1].step)
            k++;
        if (i == 0 || s->transfers[i].step != s->transfers[i - 1].step)
            p->steps[k] = (step_span){.step = s->transfers[i].step, .first = i};
        p->steps[k].end = i + 1;
    }
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- head -- */

static void draw_shares(picture *p)
{
    const tutti_schedule *s = p->s;
    uint64_t least = UINT64_MAX, most = 0;
    for (uint64_t c = 0; c < s->n_chunks; c++) {
        uint64_t size = s->chunks[c].end - s->chunks[c].begin;
        least = size < least ? size : least;
        most = size > most ? size : most;
    }
    const char *of = s->n_blocks > 1 ? "its block" : "the vector";
    if (least == s->n_parts) {
        tt_str_printf(p->out, "Each chunk is the whole of %s.\n", of);
    } else if (least == most && s->n_parts % least == 0) {
        tt_str_printf(p->out, "Each chunk is 1/%llu of %s.\n",
                      (unsigned long long)(s->n_parts / least), of);
    } else if (s->n_chunks > MAX_SHARES) {
        tt_str_printf(p->out,
                      "Chunks are uneven: %llu to %llu of the %llu parts of "
                      "%s.\n",
                      (unsigned long long)least, (unsigned long long)most,
                      (unsigned long long)s->n_parts, of);
    } else {
        tt_str_printf(p->out, "Chunks, in parts of %llu of %s:",
                      (unsigned long long)s->n_parts, of);
        int digits = n_digits(most);
        uint64_t per_line = (uint64_t)(WIDTH / (9 + digits));
        for (uint64_t c = 0; c < s->n_chunks; c++) {
            const tt_chunk *chunk = &s->chunks[c];
            tt_str_printf(p->out, "%s    %3llu: %*llu",
                          c % per_line == 0 ? "\n" : "", (unsigned long long)c,
                          digits,
                          (unsigned long long)(chunk->end - chunk->begin));
        }
        tt_str_puts(p->out, "\n");
    }
}

static void draw_head(picture *p)
{
    const tutti_schedule *s = p->s;
    tt_str_puts(p->out, tutti_coll_name(s->collective));
    if (s->root != TT_NONE) {
        bool inwards = s->collective == TUTTI_REDUCE ||
                       s->collective == TUTTI_GATHER;
        tt_str_printf(p->out, " %s rank %u", inwards ? "to" : "from", s->root);
    }
    tt_str_printf(p->out, " on %u rank%s: %llu chunk%s, %llu step%s, ",
                  s->n_ranks, plural(s->n_ranks),
                  (unsigned long long)s->n_chunks, plural(s->n_chunks),
                  (unsigned long long)p->n_steps, plural(p->n_steps));
    tt_str_printf(p->out, "%llu transfer%s\n",
                  (unsigned long long)s->n_transfers, plural(s->n_transfers));
    draw_shares(p);
    tt_str_printf(p->out, "Id %016llx.\n", (unsigned long long)s->id);
}

/* ---------------------------------------------------------------- sends -- */

static char sign(const tt_transfer *t)
{
    return t->op == TT_XFER_REDUCE ? '+' : '=';
}

/* The k-th transfer of the span that rank sends, or NULL. */
static const tt_transfer *kth_send(const picture *p, const step_span *span,
                                   uint32_t rank, size_t k)
{
    for (uint64_t i = span->first; i < span->end; i++) {
        const tt_transfer *t = &p->s->transfers[i];
        if (t->src == rank && k-- == 0)
            return t;
    }
    return NULL;
}

/* One line: the k-th send of every rank. false when there is none. */
static bool draw_table_line(picture *p, const step_span *span, size_t k,
                            int width)
{
    char cell[64];
    size_t mark = p->out->len;
    int gap = 0; /* blanks owed, so that no line ends in blanks */
    bool any = false;
    if (k == 0)
        tt_str_printf(p->out, "%6u", span->step);
    else
        tt_str_fill(p->out, ' ', 6);
    for (uint32_t r = 0; r < p->s->n_ranks; r++) {
        const tt_transfer *t = kth_send(p, span, r, k);
        gap += width;
        if (!t)
            continue;
        int n = snprintf(cell, sizeof(cell), "%u %c> %u", t->chunk, sign(t),
                         t->dst);
        tt_str_fill(p->out, ' ', gap - n);
        tt_str_add(p->out, cell, (size_t)n);
        gap = 0;
        any = true;
    }
    if (any)
        tt_str_puts(p->out, "\n");
    else if (!p->out->err)
        p->out->len = mark;
    return any;
}

static void draw_rest(picture *p, size_t n_steps)
{
    if (n_steps > 0)
        tt_str_printf(p->out, "   ... and %zu more step%s\n", n_steps,
                      plural(n_steps));
}

static void draw_table(picture *p, int width)
{
    tt_str_puts(p->out, "\n  step");
    for (uint32_t r = 0; r < p->s->n_ranks; r++)
        tt_str_printf(p->out, "%*s%u", width - n_digits(r), "rank ", r);
    tt_str_puts(p->out, "\n");
    int lines = 0;
    size_t i = 0;
    for (; i < p->n_steps && lines < MAX_TABLE_LINES; i++) {
        size_t k = 0;
        while (k < MAX_TABLE_LINES &&
               draw_table_line(p, &p->steps[i], k, width))
            k++;
        if (k == MAX_TABLE_LINES)
            tt_str_puts(p->out, "        ... (a long step is cut here)\n");
        lines += (int)k;
    }
    draw_rest(p, p->n_steps - i);
}

/* One step of the list, in order of sender, in columns of `width`; returns
 * the number of lines. */
static int draw_list_step(picture *p, const step_span *span, int width)
{
    uint64_t todo = span->end - span->first, drawn = 0;
    uint64_t per_line = (uint64_t)((WIDTH - 6) / width);
    int lines = 0, gap = 0;
    const tt_transfer *t = NULL;
    for (uint32_t r = 0; r < p->s->n_ranks && drawn < todo; r++) {
        for (size_t k = 0; (t = kth_send(p, span, r, k)) != NULL; k++) {
            char entry[64];
            int n = snprintf(entry, sizeof(entry), "%u: %u %c> %u", t->src,
                             t->chunk, sign(t), t->dst);
            if (drawn == per_line * MAX_STEP_LINES) {
                tt_str_printf(p->out, "\n        ... and %llu more\n",
                              (unsigned long long)(todo - drawn));
                return lines + 1;
            }
            if (drawn == 0)
                tt_str_printf(p->out, "%6u", span->step);
            else if (drawn % per_line == 0)
                tt_str_puts(p->out, "\n      ");
            gap = drawn % per_line == 0 ? 2 : gap;
            lines += drawn % per_line == 0;
            tt_str_fill(p->out, ' ', gap);
            tt_str_add(p->out, entry, (size_t)n);
            gap = width - n;
            drawn++;
        }
    }
    tt_str_puts(p->out, "\n");
    return lines;
}

static void draw_list(picture *p, int width)
{
    tt_str_puts(p->out, "\n  step  sender: chunk +> receiver\n");
    int lines = 0;
    size_t i = 0;
    for (; i < p->n_steps && lines < MAX_LIST_LINES; i++)
        lines += draw_list_step(p, &p->steps[i], width);
    draw_rest(p, p->n_steps - i);
}

static void draw_sends(picture *p)
{
    const tutti_schedule *s = p->s;
    if (s->n_transfers == 0) {
        tt_str_puts(p->out, "\nNothing is sent.\n");
        return;
    }
    int rank_digits = n_digits(s->n_ranks - 1);
    int cell = n_digits(s->n_chunks - 1) + 4 + rank_digits;
    int width = 2 + widest(cell, 5 + rank_digits);
    /* A little more air where there is room. */
    if (6 + (width + 1) * (int64_t)s->n_ranks <= WIDTH)
        width++;
    bool is_table = 6 + width * (int64_t)s->n_ranks <= WIDTH;
    tt_str_printf(
        p->out,
        "\nWho sends what. `%s3 +> 1`%s sends chunk 3 to rank 1, "
        "which adds it\n(+) to its own value; `=>`: it takes a "
        "copy.\n",
        is_table ? "" : "2: ", is_table ? " under a rank: it" : ": rank 2");
    if (is_table)
        draw_table(p, width);
    else
        draw_list(p, rank_digits + 2 + cell + 2);
}

/* ----------------------------------------------------------------- held -- */

static uint64_t *held(const picture *p, size_t when, uint32_t rank,
                      uint64_t chunk)
{
    size_t at = (when * p->s->n_ranks + rank) * (size_t)p->s->n_chunks;
    return &p->held[at + (size_t)chunk];
}

/* Fills p->held; only for what is small. */
static tutti_err find_held(picture *p)
{
    const tutti_schedule *s = p->s;
    size_t cells = (size_t)(s->n_ranks * s->n_chunks);
    p->held = tt_arena_new(&p->arena, (p->n_steps + 1) * cells, 8);
    if (!p->held)
        return TUTTI_ENOMEM;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        for (uint64_t c = 0; c < s->n_chunks; c++) {
            uint32_t who;
            if (tt_sched_start(s, s->chunks[c].block, r, &who))
                *held(p, 0, r, c) = UINT64_C(1) << who;
        }
    }
    for (size_t k = 0; k < p->n_steps; k++) {
        memcpy(held(p, k + 1, 0, 0), held(p, k, 0, 0), cells * 8);
        for (uint64_t i = p->steps[k].first; i < p->steps[k].end; i++) {
            const tt_transfer *t = &s->transfers[i];
            uint64_t *to = held(p, k + 1, t->dst, t->chunk);
            uint64_t kept = t->op == TT_XFER_REDUCE ? *to : 0;
            *to = kept | *held(p, k, t->src, t->chunk);
        }
    }
    return TUTTI_OK;
}

/* Does step k change what anybody holds of the chunk? */
static bool changes(const picture *p, size_t k, uint64_t chunk)
{
    for (uint32_t r = 0; r < p->s->n_ranks; r++) {
        if (*held(p, k, r, chunk) != *held(p, k + 1, r, chunk))
            return true;
    }
    return false;
}

static int set_width(const picture *p)
{
    return widest((int)p->s->n_ranks, 5) + 2;
}

static void draw_set(picture *p, uint64_t set)
{
    for (uint32_t r = 0; r < p->s->n_ranks; r++) {
        const char *mark = set >> r & 1 ? &"0123456789abcdef"[r] : ".";
        tt_str_add(p->out, mark, 1);
    }
}

/* A rank's row in the table of a chunk: its set at the start and wherever it
 * changes, in the columns of the steps at which any rank's set does. */
static void draw_set_row(picture *p, uint64_t chunk, uint32_t rank)
{
    int n = (int)p->s->n_ranks, gap = set_width(p) - n;
    tt_str_printf(p->out, "  rank %-3u", rank);
    tt_str_fill(p->out, ' ', gap);
    draw_set(p, *held(p, 0, rank, chunk));
    gap = 0;
    for (size_t k = 0; k < p->n_steps; k++) {
        if (!changes(p, k, chunk))
            continue;
        gap += set_width(p);
        uint64_t set = *held(p, k + 1, rank, chunk);
        if (set == *held(p, k, rank, chunk))
            continue;
        tt_str_fill(p->out, ' ', gap - n);
        draw_set(p, set);
        gap = 0;
    }
    tt_str_puts(p->out, "\n");
}

static void draw_set_table(picture *p, uint64_t chunk)
{
    int width = set_width(p);
    tt_str_printf(p->out, "\n  chunk %-2llu%*s", (unsigned long long)chunk,
                  width, "start");
    for (size_t k = 0; k < p->n_steps; k++) {
        if (changes(p, k, chunk))
            tt_str_printf(p->out, "%*u", width, p->steps[k].step);
    }
    tt_str_puts(p->out, "\n");
    for (uint32_t r = 0; r < p->s->n_ranks; r++)
        draw_set_row(p, chunk, r);
}

/* Is there room for a table per chunk? A table has a column for every step
 * that has a transfer of its chunk, at most. */
static bool sets_fit(const picture *p)
{
    const tutti_schedule *s = p->s;
    if (s->n_ranks > MAX_SET_RANKS ||
        s->n_chunks * (s->n_ranks + 2) > MAX_SET_LINES || p->n_steps > WIDTH)
        return false;
    int64_t most = 0;
    for (uint64_t c = 0; c < s->n_chunks; c++) {
        int64_t columns = 1;
        uint32_t last = TT_NONE;
        for (uint64_t i = 0; i < s->n_transfers; i++) {
            const tt_transfer *t = &s->transfers[i];
            columns += t->chunk == c && t->step != last;
            last = t->chunk == c ? t->step : last;
        }
        most = columns > most ? columns : most;
    }
    return 10 + most * set_width(p) <= WIDTH;
}

static char count_mark(const picture *p, uint64_t set)
{
    unsigned n = 0;
    for (; set; set &= set - 1)
        n++;
    if (n == 0)
        return '.';
    if (!tt_coll_reduces(p->s->collective))
        return 'o';
    if (n == p->s->n_ranks)
        return '*';
    return "0123456789abcdefghijklmnopqrstuvwxyz"[n];
}

static int count_width(const picture *p)
{
    return widest((int)p->s->n_chunks, 5) + 2;
}

/* How many steps (and the start) stand side by side. */
static size_t counts_per_bank(const picture *p)
{
    return (size_t)((WIDTH - 8) / count_width(p));
}

static bool counts_fit(const picture *p)
{
    const tutti_schedule *s = p->s;
    if (s->n_ranks > MAX_COUNT_RANKS || s->n_chunks > WIDTH / 2 ||
        p->n_steps > MAX_COUNT_LINES)
        return false;
    size_t per_bank = counts_per_bank(p);
    size_t banks = (p->n_steps + per_bank) / per_bank;
    return banks * (s->n_ranks + 2) <= MAX_COUNT_LINES;
}

static void draw_count_bank(picture *p, size_t first, size_t end)
{
    int width = count_width(p);
    tt_str_puts(p->out, "\n          ");
    for (size_t k = first; k < end; k++) {
        char label[16] = "start";
        if (k > 0)
            snprintf(label, sizeof(label), "%u", p->steps[k - 1].step);
        tt_str_printf(p->out, "%-*s", k + 1 < end ? width : 0, label);
    }
    for (uint32_t r = 0; r < p->s->n_ranks; r++) {
        tt_str_printf(p->out, "\n  rank %-3u", r);
        for (size_t k = first; k < end; k++) {
            tt_str_fill(p->out, ' ',
                        k == first ? 0 : width - (int)p->s->n_chunks);
            for (uint64_t c = 0; c < p->s->n_chunks; c++) {
                char mark = count_mark(p, *held(p, k, r, c));
                tt_str_add(p->out, &mark, 1);
            }
        }
    }
    tt_str_puts(p->out, "\n");
}

static void draw_counts(picture *p)
{
    tt_str_puts(p->out, "\nWhat ranks hold after each step, a character per "
                        "chunk: ");
    if (tt_coll_reduces(p->s->collective))
        tt_str_puts(p->out, "of how many ranks it\nhas the contributions "
                            "(. none, * all).\n");
    else
        tt_str_puts(p->out, "o holds it, . does not.\n");
    size_t per_bank = counts_per_bank(p);
    for (size_t first = 0; first <= p->n_steps; first += per_bank) {
        size_t end = first + per_bank;
        draw_count_bank(p, first, end > p->n_steps ? p->n_steps + 1 : end);
    }
}

static tutti_err draw_held(picture *p)
{
    bool as_sets = sets_fit(p);
    if (!as_sets && !counts_fit(p)) {
        tt_str_puts(p->out, "\nWhat ranks hold after each step is too much to "
                            "draw.\n");
        return TUTTI_OK;
    }
    tutti_err err = find_held(p);
    if (err)
        return err;
    if (!as_sets) {
        draw_counts(p);
        return TUTTI_OK;
    }
    tt_str_puts(p->out, "\nWhose contributions ranks hold after each step, "
                        "where that changes.\n");
    for (uint64_t c = 0; c < p->s->n_chunks; c++)
        draw_set_table(p, c);
    return TUTTI_OK;
}

tutti_err tt_write_picture(const tutti_schedule *s, tt_str *out)
{
    picture p = {.s = s, .out = out, .arena = {.mem = out->mem}};
    tutti_err err = find_steps(&p);
    if (!err) {
        draw_head(&p);
        draw_sends(&p);
        if (s->n_transfers > 0)
            err = draw_held(&p);
    }
    tt_arena_free(&p.arena);
    return err ? err : out->err;
}
