/* SPDX-License-Identifier: BSD-3-Clause
 * main.c - `tutti WORD ...`: finds the word in the table of commands, calls
 * it. Adding a sub-command = one file and one row. */
#include "cli.h"

#include <string.h>

static int cmd_version(const cli_command *self, int argc, char **argv)
{
    const cli_option options[] = {{NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n > 0)
        return cli_usage(self, "it takes nothing");
    printf("tutti %s\n", tutti_version());
    return CLI_OK;
}

const cli_command cli_commands[] = {
    {"show", cmd_show, "draw a schedule step by step",
     "FILE | PLANNER SPEC [options]",
     "Draws the schedule in FILE (`-`: standard input), or the one that a\n"
     "planner makes for a network.",
     "  tutti show ring full:5\n"
     "  tutti show dbtree full:8 --coll broadcast --root 3\n"
     "  tutti show ring full:5 --to svg -o ring.svg\n"
     "  tutti show my.schedule\n"},
    {"verify", cmd_verify, "prove that a schedule does what it claims",
     "FILE [--on SPEC] [--json]",
     "Proves the schedule in FILE (`-`: standard input): every rank ends with\n"
     "exactly the contributions that the collective promises. Otherwise names\n"
     "rank, chunk and step of a counterexample, and exits with 1.",
     "  tutti plan torus:4x4 --planner multitree -o my.schedule\n"
     "  tutti verify my.schedule\n"
     "  tutti verify my.schedule --on torus:4x4\n"},
    {"plan", cmd_plan, "compare all planners on a network",
     "SPEC | --explain --ranks N [options]",
     "Prints a row for every planner: whether it fits the network SPEC or why\n"
     "not, what its schedule is like, its predicted time, and how near that "
     "is\n"
     "to the optimum. The last line names the one that `auto` takes; -o "
     "writes\n"
     "its schedule. --explain says what `auto` charges each planner, and why "
     "it\n"
     "takes one; where nobody has described the network: for --ranks N.",
     "  tutti plan torus:4x4 --size 64MiB\n"
     "  tutti plan racks:5+3@nic=400Mbit,trunk=200Mbit --size 4KiB --json\n"
     "  tutti plan full:16 --coll broadcast --root 2 --planner ring -o r.s\n"
     "  tutti plan --explain --ranks 4 --size 1MiB --costs 50000,800,100\n"},
    {"topo", cmd_topo, "print a network as a file", "SPEC | --list [options]",
     "Prints the network SPEC as a topology file. SPEC is a generator such as\n"
     "`torus:8x8@16GB/s,150ns`, one of the machines of `--list`, a topology\n"
     "file, or NCCL's topology XML. --draw draws it here, --to svg for a "
     "paper.",
     "  tutti topo racks:5+3@nic=400Mbit,trunk=200Mbit -o racks.topo\n"
     "  tutti topo system.xml\n"
     "  tutti topo fattree:4x4 --draw\n"
     "  tutti topo torus:4x4 --to svg -o torus.svg\n"
     "  tutti topo --list\n"},
    {"bound", cmd_bound, "find the least possible times on a network",
     "SPEC [options]",
     "Finds the least time that an all-reduce and an all-gather can take on\n"
     "the network SPEC: exactly, or a lower bound and how far it may be off.",
     "  tutti bound mesh:4x4\n"
     "  tutti bound star:25,25,10,10@1Gbit --json\n"},
    {"sim", cmd_sim, "simulate a schedule on a network",
     "FILE|PLANNER SPEC [options]",
     "Predicts how long the schedule in FILE, or the one that PLANNER makes,\n"
     "takes on the network SPEC, and which link is busiest, cut into slices "
     "as\n"
     "a job cuts it, or as the options say; --trace writes what happens when.",
     "  tutti sim ring mesh:4x4 --size 1GB --slices 64\n"
     "  tutti sim multitree torus:8x8 --model packet --lockstep all\n"
     "  tutti sim forest racks:5+3 --trace trace.json\n"},
    {"view", cmd_view, "make a page that shows networks, schedules and runs",
     "SPEC|FILE|PLANNER... [-o PAGE]",
     "Writes one HTML page that needs nothing else: the network drawn, a\n"
     "schedule played over it, time lines, and all planners beside the\n"
     "optimum. It shows a network SPEC, schedules, planners, and recorded "
     "runs\n"
     "(traces of `tutti sim --trace` or of a job), in any order.",
     "  tutti view racks:5+3@nic=400Mbit,trunk=200Mbit\n"
     "  tutti view ring forest torus:4x4 -o page.html\n"
     "  tutti view my.schedule\n"
     "  tutti view my.net trace.json\n"},
    {"export", cmd_export, "write a schedule in another format",
     "FILE --to json|schedule|picture|dot|svg [-o OUT]",
     "Reads the schedule in FILE (`-`: standard input) and writes it as JSON,\n"
     "in the text form `tutti-schedule 1`, as a picture in text or SVG, or as "
     "a\n"
     "graph for Graphviz. A trace over time is what `tutti sim --trace` "
     "writes.",
     "  tutti export my.schedule --to json -o my.json\n"
     "  tutti plan full:4 -o - | tutti export - --to picture\n"},
    {"run", cmd_run, "start the ranks of a job",
     "[-n N | -H HOST:N,...] [options] PROGRAM [ARGS...]",
     "Starts N ranks of PROGRAM here, or on hosts through ssh; puts [rank]\n"
     "before each line they print; passes signals on; when a rank fails, says\n"
     "which and why, ends the others, and exits with its status.",
     "  tutti run -n 4 ./train --epochs 10\n"
     "  tutti run -H alpha:2,beta:2 ./train\n"
     "  tutti run -H a,b --rsh 'ssh -p 2222' -- ./train -v\n"
     "  tutti run -n 4 --keep-going ./train &\n"
     "  tutti run -n 2 --join $! ./train\n"},
    {"status", cmd_status, "show what running jobs are at", "[JOB] [options]",
     "Shows, for each rank of the jobs of this user on this host (or of JOB: "
     "a\n"
     "name, or the number of one of its processes), its call and how far it "
     "is,\n"
     "whom it waits for, its rate, and its connections; also while a job "
     "hangs.\n"
     "SIGUSR1 to `tutti run` does the same.",
     "  tutti status\n"
     "  tutti status --watch\n"
     "  tutti status my-job --json\n"
     "  kill -USR1 PID_OF_TUTTI_RUN\n"},
    {"bench", cmd_bench, "measure and check collectives",
     "[COLLECTIVE] [options]",
     "Measures a collective (all-reduce unless named) over a range of sizes\n"
     "and checks every result; prints the columns of nccl-tests. Start it as "
     "a\n"
     "job: under `tutti run`, torchrun, mpirun or srun.",
     "  tutti run -n 4 tutti bench\n"
     "  tutti run -n 4 tutti bench all-gather -b 1KiB -e 1GB -f 4 --type bf16\n"
     "  mpirun -n 2 tutti bench all-reduce -b 8 -e 8 -n 10000 --json\n"
     "  tutti run -H a,b,c tutti bench --topology my.topo\n"},
    {"probe", cmd_probe, "measure the network of a job", "[options]",
     "Measures the network between the hosts of a job: which interfaces reach\n"
     "each other, how fast links are alone and together. Writes it as a\n"
     "topology file that says where each figure comes from. Start it as a "
     "job,\n"
     "under `tutti run`, torchrun, mpirun or srun, on links that are idle.",
     "  tutti run -H a,b,c --no-prefix tutti probe -o my.topo\n"
     "  srun tutti probe --explain -o my.topo\n"
     "  tutti run -H a,b,c tutti bench --topology my.topo\n"},
    {"trace", cmd_trace, "draw over time what a job did", "DIR [options]",
     "Puts together what the ranks of a job recorded in DIR, which "
     "TUTTI_TRACE\n"
     "named: calls, slices and waits by one clock, beside what was predicted, "
     "as\n"
     "one file for Perfetto (https://ui.perfetto.dev) or chrome://tracing.",
     "  TUTTI_TRACE=/tmp/t tutti run -n 4 tutti bench -b 1MiB -e 1MiB\n"
     "  tutti trace /tmp/t -o trace.json\n"},
    {"controller", cmd_controller, "form the groups of partial reduce",
     "-n N [options]",
     "Hears workers announce that they have finished a step, and tells them\n"
     "with whom to average. Ends, with a summary, when all workers have come\n"
     "and gone, or on Ctrl-C. Workers find it through TUTTI_CONTROLLER.",
     "  tutti controller -n 8 --group 4 --listen 0.0.0.0:29600 &\n"
     "  TUTTI_CONTROLLER=head:29600 ./worker\n"
     "  tutti controller -n 64 --dynamic --recentre 500 --log groups.log\n"
     "  tutti controller --standby head:29600 --listen 0.0.0.0:29601\n"
     "  tutti controller --replay groups.log --json\n"},
    {"secret", cmd_secret, "make the secret of a job, or change it",
     "FILE [--rotate | --drop]",
     "Writes a new secret to FILE, which must not exist and which only you "
     "may\n"
     "read. Ranks with TUTTI_SECRET_FILE=FILE let nobody in who does not have\n"
     "it. Jobs of `tutti run` have one each without that.",
     "  tutti secret ~/job.secret\n"
     "  tutti secret --rotate ~/job.secret\n"
     "  tutti secret --drop ~/job.secret\n"},
    {"settings", cmd_settings, "list the TUTTI_* variables", "[options]",
     "Lists every TUTTI_* environment variable: its value, where it comes\n"
     "from, and what it does.",
     "  tutti settings\n"
     "  TUTTI_WINDOW=8 tutti settings --json\n"},
    {"completion", cmd_completion, "complete words in a shell", "bash|zsh",
     "Prints a script that lets the shell complete commands, options, "
     "networks,\n"
     "planners and files. The script asks `tutti --complete` what may stand "
     "where\n"
     "the cursor is.",
     "  source <(tutti completion bash)\n"
     "  tutti completion bash >~/.local/share/bash-completion/completions/"
     "tutti\n"
     "  source <(tutti completion zsh)\n"},
    {"version", cmd_version, "say which version this is", "",
     "Prints the version of Tutti, as --version does.", "  tutti version\n"},
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
    if (!strcmp(word, CLI_COMPLETE))
        return cli_complete_command(argc - 2, argv + 2);
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
