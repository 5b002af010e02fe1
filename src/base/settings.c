/* SPDX-License-Identifier: BSD-3-Clause
 * settings.c - reads the TUTTI_* variables by the table of settings.h.
 *
 * Idea       TT_SETTING_LIST becomes an array of rows; reading, checking,
 *            listing and suggesting are loops over it. Nothing is kept: the
 *            environment is looked at each time, by whoever opens a
 *            communicator or lists the settings.
 * Numbers    Decimal fractions are exact: "1.5KiB" is 1536 bytes, "1.5B" is
 *            refused, and so is what does not fit 64 bits.
 * Next       docs/reference/settings.md (printed from the same rows by
 *            cli/settings.c), tests/unit/base_test.c. */
#include "base/settings.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/nearest.h"
#include "base/words.h"

typedef struct row {
    const char *name;
    tt_setting_kind kind;
    const char *fallback, *least, *most, *help;
    size_t offset; /* of the member in tt_settings */
} row;

static const row rows[] = {
#define TT_X(member, var, kind_, fallback_, least_, most_, help_) \
    {.name = var,                                                 \
     .kind = TT_SETTING_##kind_,                                  \
     .fallback = fallback_,                                       \
     .least = least_,                                             \
     .most = most_,                                               \
     .help = help_,                                               \
     .offset = offsetof(tt_settings, member)},
    TT_SETTING_LIST(TT_X)
#undef TT_X
};

static const size_t n_rows = sizeof(rows) / sizeof(rows[0]);

/* By tt_setting_kind: the name, and what a value looks like. */
static const struct {
    const char *name, *expected;
} kinds[] = {
    [TT_SETTING_STRING] = {"string", "at most 255 characters"},
    [TT_SETTING_COUNT] = {"count", "a whole number"},
    [TT_SETTING_BYTES] = {"bytes", "a size such as 4096, 64KiB or 1.5MB"},
    [TT_SETTING_TIME] = {"time", "a time such as 50us, 5ms or 1.5s"},
    [TT_SETTING_LEVEL] = {"level", "error, warn, info, debug or trace"},
    [TT_SETTING_CHECK] = {"check", "off or crc"},
};

/* --------------------------------------------------------------- parsing -- */

typedef struct word {
    const char *text;
    uint64_t value;
} word;

static const word byte_units[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"KB", 1000},
    {"M", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"MB", 1000000},
    {"G", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {"GB", 1000000000},
    {"T", UINT64_C(1) << 40},
    {"TiB", UINT64_C(1) << 40},
    {"TB", UINT64_C(1000000000000)},
    {NULL, 0},
};

static const word time_units[] = {
    {"", 1000000000},
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", 1000000000},
    {"min", UINT64_C(60000000000)},
    {"h", UINT64_C(3600000000000)},
    {NULL, 0},
};

static const word count_units[] = {{"", 1}, {NULL, 0}};

static const word levels[] = {
    {"error", TUTTI_LOG_ERROR}, {"warn", TUTTI_LOG_WARN},
    {"info", TUTTI_LOG_INFO},   {"debug", TUTTI_LOG_DEBUG},
    {"trace", TUTTI_LOG_TRACE}, {NULL, 0},
};

static const word checks[] = {
    {"off", TT_CHECK_OFF}, {"crc", TT_CHECK_CRC}, {NULL, 0}};

/* The letters' case does not matter: 64kib is 64KiB. */
static bool find_word(const word *list, const char *text, uint64_t *out)
{
    for (; list->text; list++) {
        if (strcasecmp(list->text, text) == 0) {
            *out = list->value;
            return true;
        }
    }
    return false;
}

static bool parse_amount(const char *text, const word *units, uint64_t *out)
{
    uint64_t unit, value;
    bool is_large;
    tt_decimal d = tt_decimal_read(text, strlen(text));
    if (d.len == 0 || d.is_long || !find_word(units, text + d.len, &unit) ||
        !tt_decimal_times(&d, unit, UINT64_MAX, &value, &is_large))
        return false;
    *out = value;
    return true;
}

bool tt_parse_bytes(const char *text, uint64_t *out)
{
    return parse_amount(text, byte_units, out);
}

bool tt_parse_time_ns(const char *text, uint64_t *out)
{
    return parse_amount(text, time_units, out);
}

bool tt_parse_count(const char *text, uint64_t *out)
{
    return !strchr(text, '.') && parse_amount(text, count_units, out);
}

bool tt_parse_check(const char *text, uint64_t *out)
{
    return find_word(checks, text, out);
}

static bool parse_kind(tt_setting_kind kind, const char *text, uint64_t *out)
{
    switch (kind) {
    case TT_SETTING_COUNT:
        return tt_parse_count(text, out);
    case TT_SETTING_BYTES:
        return tt_parse_bytes(text, out);
    case TT_SETTING_TIME:
        return tt_parse_time_ns(text, out);
    case TT_SETTING_LEVEL:
        return find_word(levels, text, out);
    case TT_SETTING_CHECK:
        return tt_parse_check(text, out);
    case TT_SETTING_STRING:
        break;
    }
    return false;
}

/* --------------------------------------------------------------- reading -- */

/* True when text is a value that r accepts; a number goes to *number. */
static bool accept(const row *r, const char *text, uint64_t *number)
{
    if (r->kind == TT_SETTING_STRING)
        return strlen(text) < TT_SETTING_TEXT;
    uint64_t least = 0;
    uint64_t most = UINT64_MAX;
    if (r->least[0])
        parse_kind(r->kind, r->least, &least);
    if (r->most[0])
        parse_kind(r->kind, r->most, &most);
    return parse_kind(r->kind, text, number) && *number >= least &&
           *number <= most;
}

static tutti_err refuse(const row *r, const char *text, tutti_diag *diag)
{
    char limits[64] = "";
    if (r->least[0] && r->most[0])
        snprintf(limits, sizeof(limits), ", from %s to %s", r->least, r->most);
    else if (r->least[0])
        snprintf(limits, sizeof(limits), ", at least %s", r->least);
    else if (r->most[0])
        snprintf(limits, sizeof(limits), ", at most %s", r->most);
    bool is_long = strlen(text) > 60;
    return tt_fail(diag, TUTTI_ECONFIG, "%s is \"%.60s%s\"; expected %s%s",
                   r->name, text, is_long ? "..." : "", kinds[r->kind].expected,
                   limits);
}

tutti_err tt_settings_read(tt_settings *out, tutti_diag *diag)
{
    tt_settings fresh = {0};
    for (size_t i = 0; i < n_rows; i++) {
        const row *r = &rows[i];
        const char *text = getenv(r->name);
        if (!text)
            text = r->fallback;
        uint64_t number = 0;
        if (!accept(r, text, &number))
            return refuse(r, text, diag);
        char *member = (char *)&fresh + r->offset;
        if (r->kind == TT_SETTING_STRING)
            memcpy(member, text, strlen(text) + 1);
        else
            memcpy(member, &number, sizeof(number));
    }
    *out = fresh;
    return TUTTI_OK;
}

bool tutti_setting_at(size_t index, tutti_setting_info *out)
{
    if (index >= n_rows)
        return false;
    const row *r = &rows[index];
    const char *text = getenv(r->name);
    uint64_t number;
    *out = (tutti_setting_info){.name = r->name,
                                .type = kinds[r->kind].name,
                                .fallback = r->fallback,
                                .least = r->least,
                                .most = r->most,
                                .help = r->help,
                                .source = "default"};
    if (text)
        out->source = accept(r, text, &number) ? "environment" : "invalid";
    snprintf(out->value, sizeof(out->value), "%s", text ? text : r->fallback);
    return true;
}

/* --------------------------------------------------------- unknown names -- */

enum { LONGEST_NAME = 48 };

/* The setting that was probably meant: at most a third of its own letters
 * (those after TUTTI_) differ. NULL: none is so near. */
static const row *nearest(const char *name, size_t prefix)
{
    const row *found = NULL;
    size_t best = LONGEST_NAME;
    for (size_t i = 0; i < n_rows; i++) {
        const char *own = rows[i].name + prefix;
        size_t d = tt_letters_apart(name + prefix, strlen(name + prefix), own);
        if (d < best && d <= (strlen(own) + 2) / 3) {
            best = d;
            found = &rows[i];
        }
    }
    return found;
}

static bool is_setting(const char *name)
{
    for (size_t i = 0; i < n_rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return true;
    return false;
}

static void warn_entry(const char *entry)
{
    static const char prefix[] = "TUTTI_";
    const size_t prefix_len = sizeof(prefix) - 1;
    char name[LONGEST_NAME + 1];
    size_t len = strcspn(entry, "=");
    if (strncmp(entry, prefix, prefix_len) != 0)
        return;
    if (len > LONGEST_NAME) {
        TT_WARN("%.*s... is no setting; `tutti settings` lists them",
                LONGEST_NAME, entry);
        return;
    }
    memcpy(name, entry, len);
    name[len] = '\0';
    if (is_setting(name))
        return;
    const row *meant = nearest(name, prefix_len);
    if (meant)
        TT_WARN("%s is no setting; did you mean %s?", name, meant->name);
    else
        TT_WARN("%s is no setting; `tutti settings` lists them", name);
}

void tt_settings_warn_unknown(void)
{
    /* Once in a process, however many communicators it opens. */
    static atomic_flag has_warned = ATOMIC_FLAG_INIT;
    if (!environ || atomic_flag_test_and_set(&has_warned))
        return;
    for (char **entry = environ; *entry; entry++)
        warn_entry(*entry);
}
