/* SPDX-License-Identifier: BSD-3-Clause
 * complete.c - what may stand where the cursor is, for shells, and their
 * scripts
 * (share/completion, which completion.S puts into the program).
 *
 * Idea     the scripts know nothing. They call `tutti --complete WORD...` with
 *          the words of the line up to the cursor, the last one begun or empty.
 *          Commands come from cli_commands, options from the tables that
 *          cli_parse() reads, arguments from the words of synopses and tables.
 * Answer   lines. `VALUE<tab>WHAT IT IS` is a word that may stand there, or
 *          only `VALUE`; `:files`, `:dirs` and `:commands` ask the shell to add
 *          its own.
 * Next     options.c has the entrance, cli_parse(). */
#include "cli.h"

#include <ctype.h>
#include <string.h>

extern const char cli_completion_bash[], cli_completion_zsh[];

/* The word that is completed: `head` stands as it is ("--to="), `part` is the
 * beginning of what is looked for. */
typedef struct begun {
    const char *part;
    const char *head;
    size_t head_len;
    bool asks_files; /* the shell has been asked for its files */
} begun;

static void offer(begun *b, const char *value, const char *about)
{
    if (strncmp(value, b->part, strlen(b->part)) != 0)
        return;
    printf("%.*s%s%s%s\n", (int)b->head_len, b->head, value, about ? "\t" : "",
           about ? about : "");
}

static void ask_files(begun *b)
{
    if (!b->asks_files)
        puts(":files");
    b->asks_files = true;
}

static void offer_planners(begun *b)
{
    tutti_planner_info info;
    for (size_t i = 0; tutti_planner_at(i, &info); i++)
        offer(b, info.name, info.blurb);
    offer(b, "auto", "the one that is predicted to be fastest");
}

/* Generators go on behind a colon, where nothing is known; named machines are
 * whole words. */
static void offer_networks(begun *b)
{
    tutti_generator_info info;
    for (size_t i = 0; tutti_generator_at(i, &info); i++) {
        const bool goes_on = strchr(info.form, ':') != NULL;
        char word[64];
        snprintf(word, sizeof(word), "%s%s", info.name, goes_on ? ":" : "");
        if (!goes_on || strcmp(word, b->part) != 0)
            offer(b, word, info.blurb);
    }
    ask_files(b);
}

static void offer_colls(begun *b)
{
    for (int i = 0; i < TUTTI_COLL_COUNT; i++)
        offer(b, tutti_coll_name((tutti_coll)i), NULL);
}

static void offer_types(begun *b)
{
    for (int i = 0; i < TUTTI_TYPE_COUNT; i++)
        offer(b, tutti_type_name((tutti_type)i), NULL);
}

static void offer_ops(begun *b)
{
    for (int i = 0; i < TUTTI_OP_COUNT; i++)
        offer(b, tutti_op_name((tutti_op)i), NULL);
}

static void ask_dirs(begun *b)
{
    (void)b;
    puts(":dirs");
}

static void ask_commands(begun *b)
{
    (void)b;
    puts(":commands");
}

/* What the capital words of synopses and option tables stand for. Nothing can
 * be offered for those that are not here: a size, a number, an address. */
static const struct {
    const char *word;
    void (*offer)(begun *b);
} meanings[] = {{"FILE", ask_files},
                {"OUT", ask_files},
                {"PAGE", ask_files},
                {"DIR", ask_dirs},
                {"PROGRAM", ask_commands},
                {"COMMAND", ask_commands},
                {"PLANNER", offer_planners},
                {"SPEC", offer_networks},
                {"COLLECTIVE", offer_colls},
                {"TYPE", offer_types},
                {"OP", offer_ops}};

/* A word of a table: it has a meaning, or in small letters is itself a
 * value. */
static void offer_meaning(begun *b, const char *word, size_t len)
{
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if (strlen(meanings[i].word) == len &&
            !memcmp(meanings[i].word, word, len))
            meanings[i].offer(b);
    }
    char value[32];
    if (isupper((unsigned char)word[0]) || len >= sizeof(value))
        return;
    memcpy(value, word, len);
    value[len] = 0;
    offer(b, value, NULL);
}

/* "FILE", "SPEC|FILE|PLANNER...", "0|1|both" */
static void offer_meanings(begun *b, const char *words, size_t len)
{
    const char *end = words + len;
    for (const char *at = words; at < end;) {
        size_t n = strcspn(at, "| ].");
        n = n < (size_t)(end - at) ? n : (size_t)(end - at);
        if (n > 0)
            offer_meaning(b, at, n);
        at += n > 0 ? n : 1;
    }
}

/* The arguments that a synopsis names. An option's value follows it there. */
static void offer_arguments(begun *b, const char *synopsis)
{
    bool is_value = false;
    for (const char *at = synopsis; *at;) {
        at += strspn(at, " [");
        size_t len = strcspn(at, " ");
        bool is_option = at[0] == '-';
        if (!is_option && !is_value && strncmp(at, "options", 7) != 0)
            offer_meanings(b, at, len);
        is_value = is_option && at[len - 1] != ']';
        at += len;
    }
}

static void offer_options(begun *b, const cli_option *options)
{
    for (const cli_option *o = options; o->name; o++) {
        offer(b, o->name, o->help);
        if (o->alias && !strcmp(o->alias, b->part))
            offer(b, o->alias, o->help);
    }
    offer(b, "--help", "explain it, with examples");
}

/* The row of the option `word`, of which `len` letters count. */
static const cli_option *find(const cli_option *options, const char *word,
                              size_t len)
{
    for (const cli_option *o = options; o->name; o++) {
        if ((strlen(o->name) == len && !memcmp(o->name, word, len)) ||
            (o->alias && strlen(o->alias) == len &&
             !memcmp(o->alias, word, len)))
            return o;
    }
    return NULL;
}

static bool takes_value(const cli_option *o)
{
    return o && o->kind != CLI_FLAG && o->kind != CLI_UNFLAG;
}

/* `--name=part`: true when the word is of that form. */
static bool offer_joined(const cli_option *options, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals || strncmp(word, "--", 2) != 0)
        return false;
    const cli_option *o = find(options, word, (size_t)(equals - word));
    begun b = {equals + 1, word, (size_t)(equals - word) + 1, false};
    if (takes_value(o) && o->arg)
        offer_meanings(&b, o->arg, strlen(o->arg));
    return true;
}

/* Behind the program of `tutti run`: another tutti knows its own words. */
static int complete_program(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    if (!strcmp(slash ? slash + 1 : argv[0], "tutti"))
        return cli_complete_command(argc - 1, argv + 1);
    puts(":files");
    return CLI_OK;
}

int cli_complete(const cli_command *self, const cli_option *options, bool stops,
                 int argc, char **argv)
{
    const char *word = argc > 0 ? argv[argc - 1] : "";
    begun b = {word, "", 0, false};
    const cli_option *open = NULL; /* waits for its value */
    bool is_over = false;          /* no options from here on */
    for (int i = 0; i < argc - 1; i++) {
        const char *at = argv[i];
        if (open)
            open = NULL;
        else if (!is_over && !strcmp(at, "--"))
            is_over = true;
        else if (!is_over && at[0] == '-' && at[1])
            open = find(options, at, strlen(at));
        else if (stops)
            return complete_program(argc - i, argv + i);
        if (!takes_value(open))
            open = NULL;
    }
    if (open && open->arg)
        offer_meanings(&b, open->arg, strlen(open->arg));
    else if (open || (!is_over && offer_joined(options, word)))
        return CLI_OK;
    else if (!is_over && word[0] == '-')
        offer_options(&b, options);
    else
        offer_arguments(&b, self->synopsis);
    return CLI_OK;
}

int cli_complete_command(int argc, char **argv)
{
    begun b = {argc > 0 ? argv[0] : "", "", 0, false};
    for (const cli_command *c = cli_commands; c->word; c++) {
        if (argc < 2) {
            offer(&b, c->word, c->blurb);
        } else if (!strcmp(argv[0], c->word)) {
            char mark[] = CLI_COMPLETE;
            argv[0] = mark;
            return c->run(c, argc, argv);
        }
    }
    if (argc < 2 && b.part[0] == '-') {
        offer(&b, "--help", "list the commands");
        offer(&b, "--version", "say which version this is");
    }
    return CLI_OK;
}

int cmd_completion(const cli_command *self, int argc, char **argv)
{
    const cli_option options[] = {{NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    const char *shell = words.n == 1 ? words.at[0] : "";
    if (!strcmp(shell, "bash"))
        fputs(cli_completion_bash, stdout);
    else if (!strcmp(shell, "zsh"))
        fputs(cli_completion_zsh, stdout);
    else
        return cli_usage(self, "say the shell: bash or zsh");
    return CLI_OK;
}
