/* SPDX-License-Identifier: BSD-3-Clause
 * main.c - `tutti WORD ...`: finds the word in the table of commands, calls
 * it. Adding a sub-command = one file and one row. */
#include "cli.h"

#include <string.h>

const cli_command cli_commands[] = {
    {"show", cmd_show, "draw a schedule step by step",
     "FILE | PLANNER SPEC [options]",
     "Draws the schedule in FILE (`-`: standard input), or the one that a\n"
     "planner makes for a network.",
     "  tutti show ring full:5\n"
     "  tutti show dbtree full:8 --coll broadcast --root 3\n"
     "  tutti show my.schedule\n"},
    {"verify", cmd_verify, "prove that a schedule does what it claims",
     "FILE [--json]",
     "Proves the schedule in FILE (`-`: standard input): every rank ends with\n"
     "exactly the contributions that the collective promises. Otherwise names\n"
     "rank, chunk and step of a counterexample, and exits with 1.",
     "  tutti plan full:8 --size 1MiB -o my.schedule\n"
     "  tutti verify my.schedule\n"},
    {"plan", cmd_plan, "compare all planners on a network", "SPEC [options]",
     "Prints a row for every planner: whether it fits the network SPEC or why\n"
     "not, what its schedule is like, and the predicted time. `*` marks the\n"
     "one that is chosen; -o writes its schedule. SPEC is `full:N`: N equal\n"
     "ranks, every two of them joined.",
     "  tutti plan full:8 --size 64MiB\n"
     "  tutti plan full:6 --size 4KiB --coll broadcast --root 2 --json\n"
     "  tutti plan full:16 --size 1GB --planner ring -o ring-16.schedule\n"},
    {"export", cmd_export, "write a schedule in another format",
     "FILE --to json|schedule|picture [-o OUT]",
     "Reads the schedule in FILE (`-`: standard input) and writes it as JSON,\n"
     "in the text form `tutti-schedule 1`, or as a picture.",
     "  tutti export my.schedule --to json -o my.json\n"
     "  tutti plan full:4 -o - | tutti export - --to picture\n"},
    {"run", cmd_run, "start the ranks of a job",
     "[-n N | -H HOST:N,...] [options] PROGRAM [ARGS...]",
     "Starts N ranks of PROGRAM here, or on hosts through ssh; puts [rank]\n"
     "before each line they print; passes signals on; when a rank fails, says\n"
     "which and why, ends the others, and exits with its status.",
     "  tutti run -n 4 ./train --epochs 10\n"
     "  tutti run -H alpha:2,beta:2 ./train\n"
     "  tutti run -H a,b --rsh 'ssh -p 2222' -- ./train -v\n"},
    {"bench", cmd_bench, "measure and check collectives",
     "[COLLECTIVE] [options]",
     "Measures a collective (all-reduce unless named) over a range of sizes\n"
     "and checks every result; prints the columns of nccl-tests. Start it as "
     "a\n"
     "job: under `tutti run`, torchrun, mpirun or srun.",
     "  tutti run -n 4 tutti bench\n"
     "  tutti run -n 4 tutti bench all-gather -b 1KiB -e 1GB -f 4 --type bf16\n"
     "  mpirun -n 2 tutti bench all-reduce -b 8 -e 8 -n 10000 --json\n"},
    {"settings", cmd_settings, "list the TUTTI_* variables", "[options]",
     "Lists every TUTTI_* environment variable: its value, where it comes\n"
     "from, and what it does.",
     "  tutti settings\n"
     "  TUTTI_WINDOW=8 tutti settings --json\n"},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

static const char *next_command(const void *list, size_t i)
{
    return ((const cli_command *)list)[i].word;
}

static void print_commands(FILE *out)
{
    fputs("usage: tutti COMMAND ...\n\n"
          "Collective communication for machines that are not all alike.\n\n",
          out);
    for (const cli_command *c = cli_commands; c->word; c++)
        fprintf(out, "  %-10s %s\n", c->word, c->blurb);
    fputs("\n`tutti COMMAND --help` explains each, with examples.\n\n"
          "example:\n  tutti run -n 4 tutti bench\n",
          out);
}

static int unknown(const char *word)
{
    const char *near = cli_nearest(word, next_command, cli_commands);
    if (near)
        fprintf(stderr, "tutti: unknown command '%s'; did you mean '%s'?\n",
                word, near);
    else
        fprintf(stderr, "tutti: unknown command '%s'; see `tutti --help`\n",
                word);
    return CLI_USAGE;
}

static int run_command(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (!word[0]) {
        print_commands(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(word, "--version")) {
        printf("tutti %s\n", tutti_version());
        return CLI_OK;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h") ||
        !strcmp(word, "help")) {
        print_commands(stdout);
        return CLI_OK;
    }
    for (const cli_command *c = cli_commands; c->word; c++) {
        if (!strcmp(word, c->word))
            return c->run(c, argc - 2, argv + 2);
    }
    return unknown(word);
}

int main(int argc, char **argv)
{
    int status = run_command(argc, argv);
    /* A full disk shows only when the last of the output is written. */
    bool is_lost = fflush(stdout) != 0 || ferror(stdout);
    if (!is_lost || status != CLI_OK)
        return status;
    fprintf(stderr, "tutti: cannot write standard output\n");
    return CLI_FAILED;
}
