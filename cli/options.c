/* SPDX-License-Identifier: BSD-3-Clause
 * options.c - reads a command's options from one table, and prints its help
 * from the same table. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *next_option(const void *list, size_t i)
{
    return ((const cli_option *)list)[i].name;
}

static bool takes_value(const cli_option *option)
{
    return option->kind != CLI_FLAG && option->kind != CLI_UNFLAG;
}

static void print_help(const cli_command *self, const cli_option *options)
{
    printf("usage: tutti %s %s\n\n%s\n\noptions:\n", self->word, self->synopsis,
           self->about);
    for (const cli_option *o = options; o->name; o++) {
        char left[64];
        int width = snprintf(left, sizeof(left), "%s%s%s%s%s",
                             o->alias ? o->alias : "", o->alias ? ", " : "",
                             o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        /* What is too wide for its column has a line of its own. */
        const char *gap = width >= 26 ? "\n                             " : " ";
        printf("  %-26s%s%s\n", left, gap, o->help);
    }
    printf("  %-26s %s\n\nexamples:\n%s", "-h, --help", "this text",
           self->examples);
}

/* The row that `word` names, and in *value what follows its `=`, if any. */
static const cli_option *find(const cli_option *options, char *word,
                              char **value)
{
    char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    for (const cli_option *o = options; o->name; o++) {
        bool is_name = strlen(o->name) == len && !strncmp(o->name, word, len);
        bool is_alias = o->alias && strlen(o->alias) == len &&
                        !strncmp(o->alias, word, len);
        if (is_name || is_alias) {
            *value = equals ? equals + 1 : NULL;
            return o;
        }
    }
    return NULL;
}

static bool parse_count(const char *text, uint64_t *out)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end || errno)
        return false;
    *out = value;
    return true;
}

static bool parse_rank(const char *text, int *out)
{
    uint64_t value;
    if (!parse_count(text, &value) || value > INT32_MAX)
        return false;
    *out = (int)value;
    return true;
}

static bool parse_number(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0)
        return false;
    *out = value;
    return true;
}

/* Stores the value; returns what was expected when it is not one. */
static const char *store(const cli_option *o, const char *text)
{
    switch (o->kind) {
    case CLI_FLAG:
    case CLI_UNFLAG:
        *(bool *)o->value = o->kind == CLI_FLAG;
        return NULL;
    case CLI_TEXT:
        *(const char **)o->value = text;
        return NULL;
    case CLI_COUNT:
        return parse_count(text, o->value) ? NULL : "a whole number";
    case CLI_RANK:
        return parse_rank(text, o->value) ? NULL : "a rank";
    case CLI_SIZE:
        return cli_size_parse(text, o->value) ? NULL
                                              : "a size such as 8, 64KiB, 1GB";
    case CLI_NUMBER:
        return parse_number(text, o->value) ? NULL : "a number such as 2.5";
    case CLI_COLL:
        return tutti_coll_parse(text, o->value)
                   ? "all-reduce, reduce-scatter, all-gather, broadcast, "
                     "reduce, all-to-all, gather, scatter, barrier or send-recv"
                   : NULL;
    case CLI_TYPE:
        return tutti_type_parse(text, o->value)
                   ? "i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64 or bool"
                   : NULL;
    case CLI_OP:
        return tutti_op_parse(text, o->value)
                   ? "sum, avg, prod, min, max, band, bor, bxor or scaled-sum"
                   : NULL;
    }
    return "something else";
}

static int unknown(const cli_command *self, const cli_option *options,
                   const char *word)
{
    const char *near = cli_nearest(word, next_option, options);
    if (near)
        return cli_usage(self, "unknown option '%s'; did you mean '%s'?", word,
                         near);
    return cli_usage(self, "unknown option '%s'", word);
}

static const char *next_coll(const void *list, size_t i)
{
    (void)list;
    return i < TUTTI_COLL_COUNT ? tutti_coll_name((tutti_coll)i) : NULL;
}

/* Reads the option at argv[*i], moves *i to its last word. */
static int read_option(const cli_command *self, const cli_option *options,
                       int argc, char **argv, int *i)
{
    char *value = NULL;
    const cli_option *o = find(options, argv[*i], &value);
    if (!o)
        return unknown(self, options, argv[*i]);
    if (!takes_value(o) && value)
        return cli_usage(self, "%s takes no value", o->name);
    if (takes_value(o) && !value) {
        if (*i + 1 >= argc)
            return cli_usage(self, "%s needs a value", argv[*i]);
        value = argv[++*i];
    }
    const char *expected = store(o, value);
    if (!expected)
        return CLI_OK;
    const char *near = o->kind == CLI_COLL ? cli_nearest(value, next_coll, NULL)
                                           : NULL;
    if (near)
        return cli_usage(self, "%s '%s' is wrong: did you mean %s? It is %s",
                         o->name, value, near, expected);
    return cli_usage(self, "%s '%s' is wrong: expected %s", o->name, value,
                     expected);
}

bool cli_parse(const cli_command *self, const cli_option *options, bool stops,
               int argc, char **argv, cli_words *words)
{
    *words = (cli_words){0, argv, CLI_OK};
    if (argc > 0 && !strcmp(argv[0], CLI_COMPLETE)) {
        words->status = cli_complete(self, options, stops, argc - 1, argv + 1);
        return false;
    }
    bool is_over = false; /* no options from here on */
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        if (is_over || word[0] != '-' || !word[1]) {
            argv[words->n++] = word;
            is_over = is_over || stops;
        } else if (strcmp(word, "--") == 0) {
            is_over = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(self, options);
            return false;
        } else {
            words->status = read_option(self, options, argc, argv, &i);
            if (words->status)
                return false;
        }
    }
    return true;
}
