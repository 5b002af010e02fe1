/* SPDX-License-Identifier: BSD-3-Clause
 * readtrace.c - reads what trace.c writes, and what is like it: transfers out of
 * a text in Chrome's trace event format.
 *
 *   1. The text is {"traceEvents":[...], ...} or the list alone.
 *   2. A transfer is an object with "ph":"X", "cat":"reduce" or "copy", whole
 *      numbers "pid" and "tid" as in trace.c, on the track of a send, numbers
 *      "ts" and "dur" (microseconds), and in "args" at least step, chunk and
 *      bytes. "done_us" says when it was consumed, else it counts as when it had
 *      left; "call" which call it belongs to.
 *   3. A call is an object with "ph":"X", on a track of the rank's own (tid from
 *      2^26 on), with "call" in "args"; "name" says what was called.
 *   4. pid is the rank; but where the process 1 is named as one of rank 0, pid is
 *      twice the rank, and one more for what was predicted.
 *   5. Everything else in it, counters, arrows, names, is passed over.
 * Nothing in the text sets a size: transfers are handed on one by one. */
#include "export/export.h"

#include <string.h>

enum { MAX_DEPTH = 64, MAX_WORD = 128 };

static const double most_us = 9e15;

typedef struct reader {
    const char *begin, *at, *end;
    const char *wrong; /* what should be here; the first error */
    tutti_recorded_fn fn;
    void *ctx;
    uint64_t n_found;
    bool has_views; /* rule 4 */
} reader;

/* What is told of an item of the list. */
typedef struct item {
    char ph[MAX_WORD], cat[MAX_WORD], name[MAX_WORD];
    char label[MAX_WORD]; /* args.name */
    double pid, tid, ts, dur;
    double step, chunk, slice, bytes, done_us, call; /* below 0: not told */
} item;

/* ---------------------------------------------------------------- words -- */

static bool fail(reader *r, const char *wrong)
{
    if (!r->wrong)
        r->wrong = wrong;
    return false;
}

static char peek(reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

static bool take(reader *r, char c, const char *wrong)
{
    if (peek(r) != c)
        return fail(r, wrong);
    r->at++;
    return true;
}

/* Keeps the beginning of the string; an escape counts as a '?'. */
static bool take_string(reader *r, char word[MAX_WORD])
{
    size_t n = 0;
    if (!take(r, '"', "a string"))
        return false;
    while (r->at < r->end && *r->at != '"') {
        char c = *r->at++;
        if (c == '\\') {
            if (r->at < r->end)
                r->at++;
            c = '?';
        }
        if (n + 1 < MAX_WORD)
            word[n++] = c;
    }
    word[n] = '\0';
    return take(r, '"', "the end of a string");
}

static bool is_digit(const reader *r)
{
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

/* Any number of JSON, without a look at the locale. */
static bool take_number(reader *r, double *out)
{
    const bool is_below = peek(r) == '-';
    double value = 0, place = 1;
    int power = 0;
    r->at += is_below;
    if (!is_digit(r))
        return fail(r, "a number");
    for (; is_digit(r); r->at++)
        value = value * 10 + (*r->at - '0');
    if (r->at < r->end && *r->at == '.') {
        for (r->at++; is_digit(r); r->at++) {
            place /= 10;
            value += place * (*r->at - '0');
        }
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        const bool is_small = r->at < r->end && *r->at == '-';
        r->at += r->at < r->end && (*r->at == '-' || *r->at == '+');
        for (; is_digit(r); r->at++)
            power = power < 400 ? power * 10 + (*r->at - '0') : power;
        for (; power > 0; power--)
            value = is_small ? value / 10 : value * 10;
    }
    *out = is_below ? -value : value;
    return true;
}

static bool pass_value(reader *r, int depth);

static bool pass_list(reader *r, int depth, char close)
{
    char word[MAX_WORD];
    r->at++;
    if (peek(r) == close)
        return take(r, close, "");
    do {
        if (close == '}' && !(take_string(r, word) && take(r, ':', "a colon")))
            return false;
        if (!pass_value(r, depth + 1))
            return false;
    } while (peek(r) == ',' && r->at++);
    return take(r, close, "a comma or the end of a list");
}

static bool pass_value(reader *r, int depth)
{
    char word[MAX_WORD];
    double number;
    const char c = peek(r);
    if (depth > MAX_DEPTH)
        return fail(r, "less depth");
    if (c == '"')
        return take_string(r, word);
    if (c == '{' || c == '[')
        return pass_list(r, depth, c == '{' ? '}' : ']');
    static const char *const names[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        const size_t len = strlen(names[i]);
        if ((size_t)(r->end - r->at) >= len && !memcmp(r->at, names[i], len)) {
            r->at += len;
            return true;
        }
    }
    return take_number(r, &number);
}

/* ---------------------------------------------------------------- items -- */

/* The member's value: a number where one is, else nothing is kept. */
static bool take_figure(reader *r, double *out)
{
    const char c = peek(r);
    if (c == '-' || (c >= '0' && c <= '9'))
        return take_number(r, out);
    return pass_value(r, 1);
}

static bool take_word(reader *r, char word[MAX_WORD])
{
    return peek(r) == '"' ? take_string(r, word) : pass_value(r, 1);
}

static bool take_args(reader *r, item *it);

static bool take_member(reader *r, item *it, bool is_args)
{
    char key[MAX_WORD];
    if (!take_string(r, key) || !take(r, ':', "a colon"))
        return false;
    const struct {
        const char *name;
        bool in_args;
        double *to;
    } figures[] = {{"pid", false, &it->pid},        {"tid", false, &it->tid},
                   {"ts", false, &it->ts},          {"dur", false, &it->dur},
                   {"step", true, &it->step},       {"chunk", true, &it->chunk},
                   {"slice", true, &it->slice},     {"bytes", true, &it->bytes},
                   {"done_us", true, &it->done_us}, {"call", true, &it->call}};
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        if (figures[i].in_args == is_args && !strcmp(key, figures[i].name))
            return take_figure(r, figures[i].to);
    }
    if (!is_args && !strcmp(key, "ph"))
        return take_word(r, it->ph);
    if (!is_args && !strcmp(key, "cat"))
        return take_word(r, it->cat);
    if (!strcmp(key, "name"))
        return take_word(r, is_args ? it->label : it->name);
    if (!is_args && !strcmp(key, "args") && peek(r) == '{')
        return take_args(r, it);
    return pass_value(r, 1);
}

static bool take_members(reader *r, item *it, bool is_args)
{
    if (!take(r, '{', "an object"))
        return false;
    if (peek(r) == '}')
        return take(r, '}', "");
    do {
        if (!take_member(r, it, is_args))
            return false;
    } while (peek(r) == ',' && r->at++);
    return take(r, '}', "a comma or the end of an object");
}

static bool take_args(reader *r, item *it)
{
    return take_members(r, it, true);
}

static bool is_within(double value, double most)
{
    return value >= 0 && value <= most && (double)(uint64_t)value == value;
}

/* Is it a bar, with a place and a time that can be? */
static bool is_bar(const item *it)
{
    return !strcmp(it->ph, "X") && is_within(it->pid, 2.0 * TT_MAX_RANKS) &&
           is_within(it->tid, UINT32_MAX) && it->tid >= 1 && it->ts >= 0 &&
           it->ts < most_us && it->dur >= 0 && it->dur < most_us;
}

/* The first of the tracks of its peer, or of its kind. */
static uint32_t first_track(const item *it)
{
    return (uint32_t)it->tid % (uint32_t)TT_TRACE_LANE;
}

static bool is_transfer(const item *it)
{
    return is_bar(it) &&
           (!strcmp(it->cat, "reduce") || !strcmp(it->cat, "copy")) &&
           first_track(it) >= 1 && first_track(it) < TT_TRACE_RECEIVES &&
           (first_track(it) - 1) / 256 < TT_MAX_RANKS &&
           is_within(it->step, UINT32_MAX - 1) &&
           is_within(it->chunk, UINT32_MAX - 1) && it->slice <= UINT32_MAX &&
           is_within(it->bytes, 0x1p53);
}

static bool is_call(const item *it)
{
    return is_bar(it) && first_track(it) >= TT_TRACE_OWN &&
           is_within(it->call, 0x1p53);
}

/* What both have. False: no rank can have that number. */
static bool place(const reader *r, const item *it, tutti_recorded_info *out)
{
    const uint32_t pid = (uint32_t)it->pid;
    const double sent_us = it->ts + it->dur;
    *out = (tutti_recorded_info){
        .call = is_within(it->call, 0x1p53) ? (uint64_t)it->call : 0,
        .is_predicted = r->has_views && pid % 2,
        .event = {.begin_s = it->ts * 1e-6,
                  .sent_s = sent_us * 1e-6,
                  .end_s = sent_us * 1e-6,
                  .bytes = is_within(it->bytes, 0x1p53) ? (uint64_t)it->bytes
                                                        : 0,
                  .src = r->has_views ? pid / 2 : pid}};
    return out->event.src < TT_MAX_RANKS;
}

static void hand_on_call(reader *r, const item *it)
{
    tutti_recorded_info info;
    if (!place(r, it, &info))
        return;
    info.call_name = it->name;
    r->fn(r->ctx, &info);
}

static void hand_on(reader *r, const item *it)
{
    const uint32_t track = first_track(it) - 1;
    tutti_recorded_info info;
    if (!place(r, it, &info))
        return;
    tutti_event_info *e = &info.event;
    if (it->done_us > it->ts + it->dur && it->done_us < most_us)
        e->end_s = it->done_us * 1e-6;
    e->step = (uint32_t)it->step;
    e->chunk = (uint32_t)it->chunk;
    e->slice = it->slice > 0 ? (uint32_t)it->slice : 0;
    e->dst = track / 256;
    e->rail = (uint8_t)(track % 256);
    e->reduces = it->cat[0] == 'r';
    r->n_found++;
    r->fn(r->ctx, &info);
}

static void use(reader *r, const item *it)
{
    if (!strcmp(it->name, "process_name") && it->pid >= 1 && it->pid <= 1) {
        const char *rank = strstr(it->label, "rank 0");
        r->has_views = rank && (rank[6] < '0' || rank[6] > '9');
    }
    if (is_transfer(it))
        hand_on(r, it);
    else if (is_call(it))
        hand_on_call(r, it);
}

static bool take_items(reader *r)
{
    if (!take(r, '[', "a list of events"))
        return false;
    if (peek(r) == ']')
        return take(r, ']', "");
    do {
        item it = {.pid = -1,
                   .tid = -1,
                   .ts = -1,
                   .dur = -1,
                   .step = -1,
                   .chunk = -1,
                   .slice = -1,
                   .bytes = -1,
                   .done_us = -1,
                   .call = -1};
        if (!take_members(r, &it, false))
            return false;
        use(r, &it);
    } while (peek(r) == ',' && r->at++);
    return take(r, ']', "a comma or the end of the list of events");
}

static bool take_text(reader *r)
{
    char key[MAX_WORD];
    if (peek(r) == '[')
        return take_items(r);
    if (!take(r, '{', "a trace, which begins with { or ["))
        return false;
    if (peek(r) == '}')
        return take(r, '}', "");
    do {
        if (!take_string(r, key) || !take(r, ':', "a colon"))
            return false;
        const bool is_list = !strcmp(key, "traceEvents");
        if (is_list ? !take_items(r) : !pass_value(r, 1))
            return false;
    } while (peek(r) == ',' && r->at++);
    return take(r, '}', "a comma or the end of the trace");
}

tutti_err tt_trace_read(const char *text, size_t len, tutti_recorded_fn fn,
                        void *ctx, tutti_diag *diag)
{
    reader r = {
        .begin = text, .at = text, .end = text + len, .fn = fn, .ctx = ctx};
    if (!take_text(&r)) {
        uint32_t line = 1;
        for (const char *c = text; c < r.at; c++)
            line += *c == '\n';
        tutti_err err = tt_fail(diag, TUTTI_EFORMAT,
                                "no trace: here should be %s", r.wrong);
        if (diag)
            diag->line = line;
        return err;
    }
    if (r.n_found == 0)
        return tt_fail(diag, TUTTI_EFORMAT,
                       "no transfers in this trace; `tutti sim --trace` writes "
                       "one that has them");
    return TUTTI_OK;
}
