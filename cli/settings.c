/* SPDX-License-Identifier: BSD-3-Clause
 * settings.c - `tutti settings`: the TUTTI_* variables, as this process sees
 * them; --md prints settings.md, in which only the table itself counts,
 * not the environment. */
#include "cli.h"

#include <string.h>

enum { LINE = 80, LEAST_HELP = 30 };

typedef struct widths {
    int name, value;
} widths;

/* What may be written: "count, 1 to 1024". */
static const char *type_text(const tutti_setting_info *s, char *buf, size_t cap)
{
    const char *least = s->least;
    const char *most = s->most;
    if (least[0] && most[0])
        snprintf(buf, cap, "%s, %s to %s", s->type, least, most);
    else if (least[0])
        snprintf(buf, cap, "%s, at least %s", s->type, least);
    else if (most[0])
        snprintf(buf, cap, "%s, at most %s", s->type, most);
    else
        snprintf(buf, cap, "%s", s->type);
    return buf;
}

/* The text in lines that end before column LINE; all but the first one are
 * indented by `column`. */
static void print_wrapped(const char *text, int column)
{
    int room = LINE - column > LEAST_HELP ? LINE - column : LEAST_HELP;
    while ((int)strlen(text) > room) {
        int at = room;
        while (at > 0 && text[at] != ' ')
            at--;
        if (at == 0)
            break;
        printf("%.*s\n%*s", at, text, column, "");
        text += at + 1;
    }
    puts(text);
}

static void print_row(const char *name, const char *value, const char *source,
                      const char *help, widths w)
{
    int column = printf("%-*s  %-*s  %-11s  ", w.name, name, w.value, value,
                        source);
    print_wrapped(help, column);
}

static const char *shown(const char *value)
{
    return value[0] ? value : "-";
}

static void print_table(void)
{
    tutti_setting_info s;
    widths w = {4, 5};
    for (size_t i = 0; tutti_setting_at(i, &s); i++) {
        int name = (int)strlen(s.name);
        int value = (int)strlen(shown(s.value));
        w.name = name > w.name ? name : w.name;
        w.value = value > w.value ? value : w.value;
    }
    /* One long value must not push the whole column aside. */
    w.value = w.value > 16 ? 16 : w.value;
    print_row("name", "value", "source", "what it is", w);
    for (size_t i = 0; tutti_setting_at(i, &s); i++)
        print_row(s.name, shown(s.value), s.source, s.help, w);
}

static void print_member(const char *name, const char *text, const char *end)
{
    printf("\"%s\": ", name);
    cli_json_string(stdout, text);
    fputs(end, stdout);
}

static void print_json(void)
{
    tutti_setting_info s;
    fputs("[", stdout);
    for (size_t i = 0; tutti_setting_at(i, &s); i++) {
        fputs(i ? ",\n {" : "\n {", stdout);
        print_member("name", s.name, ", ");
        print_member("value", s.value, ", ");
        print_member("source", s.source, ", ");
        print_member("type", s.type, ", ");
        print_member("default", s.fallback, ", ");
        print_member("least", s.least[0] ? s.least : NULL, ", ");
        print_member("most", s.most[0] ? s.most : NULL, ", ");
        print_member("help", s.help, "}");
    }
    fputs("\n]\n", stdout);
}

static void print_md(void)
{
    fputs(
        "# Settings\n\n"
        "Environment variables, read by each rank when a communicator opens. "
        "A wrong value is an\n"
        "error (`TUTTI_ECONFIG`) that says what is accepted; a `TUTTI_` name "
        "that is not here is a\n"
        "warning that names the nearest one. `tutti settings` lists them with "
        "the values that it sees.\n\n"
        "Sizes: `4096`, `64KiB`, `1.5MB` (K, M, G, T alone are powers of "
        "1024). Times: `50us`, `5ms`,\n"
        "`1.5s`, `2min`, `1h`; a plain number is seconds. Yes or no: `0`, "
        "`1`, `no`, `yes`, `off`, `on`.\n\n"
        "This page is what `tutti settings --md` prints; a test compares "
        "them.\n\n"
        "| variable | value | default | what it is |\n"
        "| --- | --- | --- | --- |\n",
        stdout);
    tutti_setting_info s;
    for (size_t i = 0; tutti_setting_at(i, &s); i++) {
        char type[96];
        const char *tick = s.fallback[0] ? "`" : "";
        printf("| `%s` | %s | %s%s%s | %s |\n", s.name,
               type_text(&s, type, sizeof(type)), tick, s.fallback, tick,
               s.help);
    }
}

/* The first bad value as a sentence. */
static int check(const cli_command *self)
{
    tutti_setting_info s;
    for (size_t i = 0; tutti_setting_at(i, &s); i++) {
        char type[96];
        if (strcmp(s.source, "invalid") == 0)
            return cli_fail(self, "%s is \"%.60s\"; expected: %s", s.name,
                            s.value, type_text(&s, type, sizeof(type)));
    }
    return CLI_OK;
}

int cmd_settings(const cli_command *self, int argc, char **argv)
{
    bool is_json = false;
    bool is_md = false;
    const cli_option options[] = {
        {"--json", NULL, CLI_FLAG, &is_json, NULL, "JSON, one object each"},
        {"--md", NULL, CLI_FLAG, &is_md, NULL, "docs/reference/settings.md"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n > 0)
        return cli_usage(self, "'%s' is not understood", words.at[0]);
    if (is_json && is_md)
        return cli_usage(self, "--json and --md exclude each other");
    if (is_md) {
        print_md();
        return CLI_OK;
    }
    if (is_json)
        print_json();
    else
        print_table();
    return check(self);
}
