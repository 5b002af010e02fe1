/* SPDX-License-Identifier: BSD-3-Clause
 * util.c - errors, texts and files for all sub-commands. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/nearest.h"

/* --------------------------------------------------------------- errors -- */

int cli_fail(const cli_command *self, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "tutti %s: ", self->word);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return CLI_FAILED;
}

int cli_usage(const cli_command *self, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "tutti %s: ", self->word);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, " (see `tutti %s --help`)\n", self->word);
    va_end(args);
    return CLI_USAGE;
}

int cli_fail_err(const cli_command *self, const char *doing, tutti_err err,
                 const char *said)
{
    bool is_silent = !said || !said[0];
    return cli_fail(self, "%s: %s", doing,
                    is_silent ? tutti_strerror(err) : said);
}

const char *cli_nearest(const char *word,
                        const char *(*next)(const void *list, size_t i),
                        const void *list)
{
    /* More than a third of the word wrong is another word. */
    size_t best = strlen(word) / 3 + 1;
    const char *found = NULL;
    for (size_t i = 0;; i++) {
        const char *name = next(list, i);
        if (!name)
            return found;
        size_t d = tt_letters_apart(word, strlen(word), name);
        if (d < best || (d == best && !found)) {
            best = d;
            found = name;
        }
    }
}

/* ---------------------------------------------------------------- texts -- */

bool cli_size_parse(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},        {"B", 1},         {"K", 1024},
                 {"KiB", 1024},  {"KB", 1e3},      {"kB", 1e3},
                 {"M", 1 << 20}, {"MiB", 1 << 20}, {"MB", 1e6},
                 {"G", 1 << 30}, {"GiB", 1 << 30}, {"GB", 1e9},
                 {"T", 0x1p40},  {"TiB", 0x1p40},  {"TB", 1e12}};
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        double bytes = value * units[i].bytes;
        if (strcmp(end, units[i].name) == 0 && bytes < 0x1p53) {
            *out = (uint64_t)bytes;
            return (double)*out == bytes;
        }
    }
    return false;
}

const char *cli_size_text(uint64_t bytes, char *buf, size_t cap)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t i = 0;
    while (value >= 1024 && i < 4) {
        value /= 1024;
        i++;
    }
    snprintf(buf, cap, "%.4g%s", value, units[i]);
    return buf;
}

const char *cli_time_text(double seconds, char *buf, size_t cap)
{
    if (seconds < 1e-3)
        snprintf(buf, cap, "%.4g us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(buf, cap, "%.4g ms", seconds * 1e3);
    else
        snprintf(buf, cap, "%.4g s", seconds);
    return buf;
}

/* 800 Mbit/s. */
static const double least_giga = 1e8;

cli_unit cli_rate_unit(double most_bytes_per_s)
{
    const bool is_slow = most_bytes_per_s > 0 && most_bytes_per_s < least_giga;
    return is_slow ? (cli_unit){"Mbit/s", 1e6 / 8} : (cli_unit){"GB/s", 1e9};
}

const char *cli_rate_text(double bytes_per_s, char *buf, size_t cap)
{
    const cli_unit unit = cli_rate_unit(bytes_per_s);
    snprintf(buf, cap, "%.4g %s", bytes_per_s / unit.per_s, unit.name);
    return buf;
}

const char *cli_line_text(double bytes_per_s, char *buf, size_t cap)
{
    const double mbits = bytes_per_s * 8e-6;
    const bool is_giga = mbits >= 1000;
    snprintf(buf, cap, "%.4g %s", is_giga ? mbits * 1e-3 : mbits,
             is_giga ? "Gbit/s" : "Mbit/s");
    return buf;
}

/* Bytes of the UTF-8 character that begins here; 0: none does. */
static size_t utf8_length(const unsigned char *c)
{
    const size_t n = c[0] < 0x80   ? 1
                     : c[0] < 0xc2 ? 0
                     : c[0] < 0xe0 ? 2
                     : c[0] < 0xf0 ? 3
                     : c[0] < 0xf5 ? 4
                                   : 0;
    /* Too long for what it says, a surrogate, beyond the last. */
    if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) ||
        (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

void cli_json_string(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    const unsigned char *c = (const unsigned char *)text;
    for (size_t n; *c; c += n ? n : 1) {
        n = utf8_length(c);
        if (n == 0)
            fputs("\\ufffd", out);
        else if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else
            fwrite(c, 1, n, out);
    }
    fputc('"', out);
}

void cli_json_number(FILE *out, double value)
{
    if (!isfinite(value) || value < 0)
        fputs("null", out);
    else
        fprintf(out, "%.9g", value);
}

void cli_json_text_member(FILE *out, const char *name, const char *text)
{
    fprintf(out, ",\"%s\":", name);
    cli_json_string(out, text);
}

void cli_json_number_member(FILE *out, const char *name, double value)
{
    fprintf(out, ",\"%s\":", name);
    cli_json_number(out, value);
}

/* ---------------------------------------------------------------- files -- */

/* A ring of 4096 ranks is about 1 GiB of text; /dev/zero has no end. */
static const size_t most_file_bytes = (size_t)1 << 31;

static char *read_all(FILE *in, size_t *len)
{
    size_t cap = 1 << 16;
    char *text = malloc(cap + 1);
    *len = 0;
    while (text) {
        *len += fread(text + *len, 1, cap - *len, in);
        if (*len < cap)
            break;
        if (cap >= most_file_bytes) {
            free(text);
            errno = EFBIG;
            return NULL;
        }
        cap *= 2;
        char *more = realloc(text, cap + 1);
        if (!more)
            free(text);
        text = more;
    }
    if (text && ferror(in)) {
        free(text);
        return NULL;
    }
    if (text)
        text[*len] = 0;
    return text;
}

char *cli_read_file(const char *path, size_t *len)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *in = is_stdin ? stdin : fopen(path, "rb");
    if (!in)
        return NULL;
    char *text = read_all(in, len);
    int saved = errno;
    if (!is_stdin)
        fclose(in);
    errno = saved;
    return text;
}

int cli_write_file(const cli_command *self, const char *path, const char *text,
                   size_t len)
{
    bool is_stdout = !path || strcmp(path, "-") == 0;
    FILE *out = is_stdout ? stdout : fopen(path, "wb");
    if (!out)
        return cli_fail(self, "cannot write '%s': %s", path, strerror(errno));
    bool is_good = fwrite(text, 1, len, out) == len && fflush(out) == 0;
    int saved = errno;
    if (!is_stdout && fclose(out) != 0)
        is_good = false;
    if (!is_good)
        return cli_fail(self, "cannot write '%s': %s",
                        is_stdout ? "standard output" : path, strerror(saved));
    return CLI_OK;
}

tutti_schedule *cli_parse_schedule(const cli_command *self, const char *path,
                                   const char *text, size_t len)
{
    tutti_schedule *sched = NULL;
    tutti_diag diag = {0};
    tutti_err err = tutti_schedule_read(text, len, &sched, &diag);
    if (err && diag.line)
        cli_fail(self, "%s:%u:%u: %s", path, diag.line, diag.column, diag.text);
    else if (err)
        cli_fail_err(self, path, err, diag.text);
    return err ? NULL : sched;
}

tutti_schedule *cli_read_schedule(const cli_command *self, const char *path)
{
    size_t len;
    char *text = cli_read_file(path, &len);
    if (!text) {
        cli_fail(self, "cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    tutti_schedule *sched = cli_parse_schedule(self, path, text, len);
    free(text);
    return sched;
}

bool cli_choose_format(const cli_command *self, bool is_json,
                       const char **format, const char *otherwise)
{
    if (is_json && *format) {
        cli_usage(self, "--json and --to exclude each other");
        return false;
    }
    if (!*format)
        *format = is_json ? "json" : otherwise;
    return true;
}

int cli_write_schedule(const cli_command *self, const tutti_schedule *sched,
                       const char *format, const char *path)
{
    char *text;
    size_t len;
    tutti_diag diag = {0};
    tutti_err err = tutti_export(sched, format, &text, &len, &diag);
    if (err == TUTTI_EINVAL)
        return cli_usage(self,
                         "unknown format '%s': it is json, schedule, picture, "
                         "dot or svg",
                         format);
    if (err)
        return cli_fail_err(self, "cannot write the schedule", err, diag.text);
    int status = cli_write_file(self, path, text, len);
    tutti_text_free(text);
    return status;
}

/* -------------------------------------------------------------- figures -- */

static const struct {
    bool has_root, reduces;
} colls[TUTTI_COLL_COUNT] = {
#define TUTTI_X(name, number, text, rooted, reduces) \
    [TUTTI_##name] = {rooted, reduces},
    TUTTI_COLL_LIST(TUTTI_X)
#undef TUTTI_X
};

bool cli_has_root(tutti_coll coll)
{
    return (unsigned)coll < TUTTI_COLL_COUNT && colls[coll].has_root;
}

bool cli_reduces(tutti_coll coll)
{
    return (unsigned)coll < TUTTI_COLL_COUNT && colls[coll].reduces;
}

double cli_bus_factor(tutti_coll coll, uint32_t n_ranks)
{
    double share = n_ranks ? (n_ranks - 1.0) / n_ranks : 0;
    switch (coll) {
    case TUTTI_ALL_REDUCE:
        return 2 * share;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_TO_ALL:
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return share;
    default:
        return 1;
    }
}

double cli_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
