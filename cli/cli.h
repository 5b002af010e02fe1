/* SPDX-License-Identifier: BSD-3-Clause
 * cli.h - what the sub-commands of `tutti` share: one table of commands
 * (main.c), one way to read options and print help from them, one way to
 * fail (util.c).
 *
 * A sub-command is a function int cmd_x(const cli_command *, argc, argv) that
 * declares its options as a table, calls cli_parse(), works, and returns the
 * exit status: CLI_OK, CLI_FAILED or CLI_USAGE. Errors are one sentence on
 * stderr that says what to do. Only <tutti.h>, libc, base/nearest.h and
 * base/ports.h are used. */
#ifndef TT_CLI_CLI_H
#define TT_CLI_CLI_H

#ifndef TUTTI_UNSTABLE
#define TUTTI_UNSTABLE 1
#endif
#include <tutti.h>

#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* A row of the command table. `synopsis` follows the word in the usage line;
 * `about` is a paragraph; `examples` are whole lines, indented by two. */
typedef struct cli_command {
    const char *word;
    int (*run)(const struct cli_command *self, int argc, char **argv);
    const char *blurb, *synopsis, *about, *examples;
} cli_command;

extern const cli_command cli_commands[]; /* ends with a NULL word */

int cmd_view(const cli_command *self, int argc, char **argv);
int cmd_show(const cli_command *self, int argc, char **argv);
int cmd_verify(const cli_command *self, int argc, char **argv);
int cmd_plan(const cli_command *self, int argc, char **argv);
int cmd_topo(const cli_command *self, int argc, char **argv);
int cmd_bound(const cli_command *self, int argc, char **argv);
int cmd_sim(const cli_command *self, int argc, char **argv);
int cmd_export(const cli_command *self, int argc, char **argv);
int cmd_run(const cli_command *self, int argc, char **argv);
int cmd_bench(const cli_command *self, int argc, char **argv);
int cmd_probe(const cli_command *self, int argc, char **argv);
int cmd_trace(const cli_command *self, int argc, char **argv);
int cmd_controller(const cli_command *self, int argc, char **argv);
int cmd_secret(const cli_command *self, int argc, char **argv);
int cmd_status(const cli_command *self, int argc, char **argv);
int cmd_settings(const cli_command *self, int argc, char **argv);
int cmd_completion(const cli_command *self, int argc, char **argv);

/* -------------------------------------------------------------- options -- */

/* What an option's value is, and what cli_option.value points to. */
typedef enum cli_kind {
    CLI_FLAG,   /* no value               bool, set to true           */
    CLI_UNFLAG, /* no value               bool, set to false          */
    CLI_TEXT,   /* anything               const char *                */
    CLI_COUNT,  /* 0 1 2 ...              uint64_t                    */
    CLI_RANK,   /* 0 1 2 ...              int                         */
    CLI_SIZE,   /* 8, 64KiB, 1GB          uint64_t, bytes             */
    CLI_NUMBER, /* 1.5                    double, not negative        */
    CLI_COLL,   /* all-reduce             tutti_coll                  */
    CLI_TYPE,   /* f32                    tutti_type                  */
    CLI_OP      /* sum                    tutti_op                    */
} cli_kind;

/* Tables end with a row whose `name` is NULL. `alias` (a short or second
 * spelling) may be NULL; `arg` names the value in the help. */
typedef struct cli_option {
    const char *name, *alias;
    cli_kind kind;
    void *value;
    const char *arg, *help;
} cli_option;

typedef struct cli_words {
    int n;
    char **at;  /* the words that are not options, in order */
    int status; /* the exit status when cli_parse() says false */
} cli_words;

/* Reads `--name value`, `--name=value`, `-x value`, flags, and `--`; puts the
 * other words together at words->at (in argv's own memory). `stops`: the first
 * word ends the options (`tutti run -n 2 prog -x`). False: the command is over
 * and words->status is its exit status, after --help or a usage error. */
bool cli_parse(const cli_command *self, const cli_option *options, bool stops,
               int argc, char **argv, cli_words *words);

/* ----------------------------------------------------------- completion -- */

/* As a command's first word: cli_parse() then writes what may stand in the
 * place of the last word, for a shell, and says that the command is over. */
#define CLI_COMPLETE "--complete"
/* Both return the exit status. The words of a command behind CLI_COMPLETE: */
int cli_complete(const cli_command *self, const cli_option *options, bool stops,
                 int argc, char **argv);
/* Those behind `tutti`; writes to argv. */
int cli_complete_command(int argc, char **argv);

/* --------------------------------------------------------------- errors -- */

#if defined(__GNUC__)
#define CLI_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define CLI_PRINTF(a, b)
#endif

/* "tutti plan: SENTENCE" on stderr; returns CLI_FAILED. */
int cli_fail(const cli_command *self, const char *fmt, ...) CLI_PRINTF(2, 3);
/* The same, points to --help; returns CLI_USAGE. */
int cli_usage(const cli_command *self, const char *fmt, ...) CLI_PRINTF(2, 3);
/* "doing: what the library said", or the text of err when it said nothing. */
int cli_fail_err(const cli_command *self, const char *doing, tutti_err err,
                 const char *said);

/* The word of a list (next() gives word i, NULL at the end) that is nearest
 * to `word`, if it is near enough to be meant; else NULL. */
const char *cli_nearest(const char *word,
                        const char *(*next)(const void *list, size_t i),
                        const void *list);

/* ---------------------------------------------------------------- texts -- */

bool cli_size_parse(const char *text, uint64_t *out);
/* "64MiB", "1.5KiB", "7B": into buf, which it returns. */
const char *cli_size_text(uint64_t bytes, char *buf, size_t cap);
/* "1.25 ms": four digits or fewer and a unit. */
const char *cli_time_text(double seconds, char *buf, size_t cap);
/* Bandwidths are in GB/s. Where that would be little more than zeros, and links
 * are spoken of in Mbit/s, they are in Mbit/s: by the largest of a table. */
typedef struct cli_unit {
    const char *name; /* "GB/s" */
    double per_s;     /* bytes/s that are 1 of it */
} cli_unit;
cli_unit cli_rate_unit(double most_bytes_per_s);
/* "1.25 GB/s", "99.9 Mbit/s". */
const char *cli_rate_text(double bytes_per_s, char *buf, size_t cap);
/* Of a line: "941 Mbit/s", "9.41 Gbit/s". */
const char *cli_line_text(double bytes_per_s, char *buf, size_t cap);
/* A JSON string with its quotes; text may be NULL: null. */
void cli_json_string(FILE *out, const char *text);
/* A JSON number; null when it is negative or not finite. */
void cli_json_number(FILE *out, double value);
/* A member that follows others of its object: ,"name":value. */
void cli_json_text_member(FILE *out, const char *name, const char *text);
void cli_json_number_member(FILE *out, const char *name, double value);

/* The whole file, NUL-terminated; "-" is standard input. NULL: errno says
 * why. The caller frees it. */
char *cli_read_file(const char *path, size_t *len);
/* To a file, or to standard output when path is NULL or "-". Reports its own
 * failures; returns the exit status. */
int cli_write_file(const cli_command *self, const char *path, const char *text,
                   size_t len);

/* Reads and parses a schedule; reports its own failures. NULL: failed. */
tutti_schedule *cli_read_schedule(const cli_command *self, const char *path);
/* The same when the text of that file has been read. */
tutti_schedule *cli_parse_schedule(const cli_command *self, const char *path,
                                   const char *text, size_t len);
/* What --json and --to FORMAT ask for, or `otherwise`. False: for two things,
 * and that is said. */
bool cli_choose_format(const cli_command *self, bool is_json,
                       const char **format, const char *otherwise);
/* Writes it in a format of tutti_export(), as cli_write_file(). */
int cli_write_schedule(const cli_command *self, const tutti_schedule *sched,
                       const char *format, const char *path);

/* A new secret as a line of text (secret.c); false: the system has no random
 * bytes. */
enum { CLI_SECRET = 66 };
bool cli_secret_make(char out[CLI_SECRET]);

/* -------------------------------------------------------------- networks -- */

/* How far long work has come, how fast, and how long it still takes, shown on a
 * terminal from the first second on.
 * cli_progress_tell is a tutti_progress_fn whose ctx is the cli_progress. */
typedef struct cli_progress {
    double begin_s, shown_s;
    bool is_terminal;
    int width;     /* of what stands on the terminal */
    char what[60]; /* the phase of the work, when and at what it began */
    double phase_s;
    uint64_t phase_done;
} cli_progress;
void cli_progress_begin(cli_progress *p);
void cli_progress_tell(void *ctx, const char *what, uint64_t done,
                       uint64_t total);
void cli_progress_end(cli_progress *p); /* wipes it; may be called often */

/* A file or generator; reports its own failures. NULL: failed. */
tutti_topology *cli_open_network(const cli_command *self, const char *spec);
/* The same as TCP's payload sees it, when is_tcp: for the option --tcp. */
tutti_topology *cli_open_payload(const cli_command *self, const char *spec,
                                 bool is_tcp);
/* The optimum, near enough for an efficiency; reports its own failures. */
bool cli_find_bound(const cli_command *self, const tutti_topology *net,
                    cli_progress *progress, tutti_bound_info *out);
/* The schedule in the file `word` (*chosen NULL), or what the planner or rule
 * `word` makes for net; reports its own failures. NULL: failed. */
tutti_schedule *cli_make_schedule(const cli_command *self, const char *word,
                                  const tutti_topology *net,
                                  tutti_plan_opts *opts, const char **chosen);

/* Is it the name of a planner, or auto? */
bool cli_is_planner(const char *word);

/* What is known about one planner; times are negative when unknown. */
typedef struct cli_row {
    const char *planner;
    tutti_err err;
    char why_not[sizeof((tutti_diag *)0)->text];
    tutti_schedule_info info;
    double time_s, plan_s, busbw, efficiency;
} cli_row;

typedef struct cli_planning {
    const cli_command *self;
    const tutti_topology *net;
    tutti_bound_info bound;
    tutti_plan_opts opts;
    cli_progress *progress;
    /* Called with each row when it is known; sched NULL: it does not fit. */
    void (*on_row)(void *ctx, const cli_row *row, const tutti_schedule *sched,
                   bool is_first);
    void *ctx;
} cli_planning;

/* Plans with `planner`; the caller frees *sched when row->err is TUTTI_OK. */
void cli_plan_row(cli_planning *p, const char *planner, cli_row *out,
                  tutti_schedule **sched);
/* A row for each planner of the table; *best is the one that `auto` takes. Its
 * schedule is the caller's. False: none fits. */
bool cli_plan_rows(cli_planning *p, cli_row *best, tutti_schedule **kept);
/* plan_explain.c: what `auto` charges. */
typedef struct cli_explaining {
    const cli_command *self;
    const char *spec;
    const tutti_topology *net; /* NULL: nobody has described it */
    uint32_t n_ranks;
    const tutti_plan_opts *opts;
    bool is_json;
    cli_progress *progress;
} cli_explaining;
int cli_explain(const cli_explaining *ex); /* the exit status */
/* Of the rows' busbw: by what the optimum has, which none exceeds. */
cli_unit cli_busbw_unit(const cli_planning *p);
void cli_row_json(FILE *out, const cli_row *row);

/* -------------------------------------------------------------- figures -- */

/* Bus bandwidth / algorithm bandwidth, as nccl-tests defines it. */
double cli_bus_factor(tutti_coll coll, uint32_t n_ranks);
bool cli_has_root(tutti_coll coll);
bool cli_reduces(tutti_coll coll);
double cli_now_s(void); /* a monotonic clock */

#endif
