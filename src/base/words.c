/* SPDX-License-Identifier: BSD-3-Clause
 * words.c - words in lines, and where errors are; see words.h. Any bytes may be
 * handed in: nothing is copied, and nothing behind the end is looked at. */
#include "base/words.h"

#include <stdarg.h>
#include <stdio.h>

void tt_diag_spot(tutti_diag *diag, tt_spot spot)
{
    if (!diag || !spot.column)
        return;
    diag->line = spot.line ? spot.line : 1;
    diag->column = spot.column;
}

tutti_err tt_fail_at(tutti_diag *diag, tutti_err err, tt_spot spot,
                     const char *fmt, ...)
{
    char sentence[440];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof(sentence), fmt, args);
    va_end(args);
    tt_fail(diag, err, "%s", sentence);
    tt_diag_spot(diag, spot);
    return err;
}

tt_quote tt_quoted(const char *at, size_t len)
{
    tt_quote q = {""};
    size_t most = sizeof(q.text) - 4;
    size_t n = len < most ? len : most;
    for (size_t i = 0; i < n; i++)
        q.text[i] = at[i] >= ' ' && at[i] <= '~' ? at[i] : '?';
    strcpy(q.text + n, n < len ? "..." : "");
    return q;
}

/* ---------------------------------------------------------------- lines -- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

tt_words tt_words_of(const char *text, size_t len, tutti_diag *diag)
{
    return (tt_words){.following = text,
                      .end = text + len,
                      .line_start = text,
                      .next = text,
                      .line_end = text,
                      .diag = diag};
}

tt_spot tt_words_spot(const tt_words *r, const char *at)
{
    uint64_t column = (uint64_t)(at - r->line_start) + 1;
    uint32_t most = UINT32_MAX;
    return (tt_spot){r->line, column < most ? (uint32_t)column : most};
}

tt_word tt_words_next(tt_words *r)
{
    const char *p = r->next;
    while (p < r->line_end && is_blank(*p))
        p++;
    tt_word w = {p, 0};
    while (p < r->line_end && !is_blank(*p))
        p++;
    w.len = (size_t)(p - w.at);
    r->next = p;
    return w;
}

/* Makes the following line the one that is read. */
static void begin_line(tt_words *r)
{
    const char *start = r->following;
    const char *stop = memchr(start, '\n', (size_t)(r->end - start));
    r->following = stop ? stop + 1 : NULL;
    stop = stop ? stop : r->end;
    const char *comment = memchr(start, '#', (size_t)(stop - start));
    r->line_start = r->next = start;
    r->line_end = comment ? comment : stop;
    r->line += r->line < UINT32_MAX;
}

tt_word tt_words_line(tt_words *r)
{
    tt_word w = {r->line_end, 0};
    while (w.len == 0 && r->following) {
        begin_line(r);
        w = tt_words_next(r);
    }
    return w;
}

/* What ends at this place of the line. */
static const char *end_of_what(const tt_words *r, const char *at)
{
    while (at < r->line_end && is_blank(*at))
        at++;
    if (at < r->line_end)
        return "word";
    return r->following ? "line" : "text";
}

tutti_err tt_words_unexpected(const tt_words *r, tt_word w,
                              const char *expected)
{
    if (w.len)
        return tt_fail_at(r->diag, TUTTI_EFORMAT, tt_words_spot(r, w.at),
                          "expected %s, but here is `%s`", expected,
                          tt_quoted(w.at, w.len).text);
    return tt_fail_at(r->diag, TUTTI_EFORMAT, tt_words_spot(r, w.at),
                      "expected %s, but the %s ends here", expected,
                      end_of_what(r, w.at));
}

tutti_err tt_words_end_line(tt_words *r)
{
    tt_word rest = tt_words_next(r);
    return rest.len ? tt_words_unexpected(r, rest, "the end of the line")
                    : TUTTI_OK;
}

tutti_err tt_words_number(const tt_words *r, tt_word w, const tt_number *n,
                          uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < w.len; i++) {
        unsigned digit = (unsigned)(unsigned char)w.at[i] - '0';
        if (digit > 9)
            return tt_words_unexpected(r, w, n->what);
        value = value > n->most ? value : value * 10 + digit;
    }
    if (w.len == 0)
        return tt_words_unexpected(r, w, n->what);
    if (value > n->most)
        return tt_fail_at(r->diag, n->too_large, tt_words_spot(r, w.at),
                          "%s can be at most %llu", n->what,
                          (unsigned long long)n->most);
    if (value < n->least)
        return tt_fail_at(r->diag, TUTTI_EINVAL, tt_words_spot(r, w.at),
                          "%s can be at least %llu", n->what,
                          (unsigned long long)n->least);
    *out = value;
    return TUTTI_OK;
}

tt_decimal tt_decimal_read(const char *text, size_t len)
{
    tt_decimal d = {0};
    size_t i = 0, n_digits = 0;
    bool has_point = false;
    for (; i < len; i++) {
        if (text[i] == '.' && !has_point && n_digits > 0) {
            has_point = true;
            continue;
        }
        unsigned digit = (unsigned)(unsigned char)text[i] - '0';
        if (digit > 9)
            break;
        n_digits++;
        if (d.digits > (UINT64_MAX - digit) / 10) {
            d.is_long = true;
            continue;
        }
        d.digits = d.digits * 10 + digit;
        d.n_places += has_point;
    }
    if (has_point && text[i - 1] == '.')
        n_digits = 0;
    d.len = n_digits ? i : 0;
    return d;
}

bool tt_decimal_times(const tt_decimal *d, uint64_t scale, uint64_t most,
                      uint64_t *out, bool *is_large)
{
    /* digits < 2^64 and scale < 2^63: no overflow. */
    tt_u128 product = (tt_u128)d->digits * scale;
    bool is_whole = true;
    for (uint32_t i = 0; i < d->n_places; i++) {
        is_whole = is_whole && product % 10 == 0;
        product /= 10;
    }
    *is_large = product > most;
    *out = *is_large ? 0 : (uint64_t)product;
    return is_whole && !*is_large;
}
