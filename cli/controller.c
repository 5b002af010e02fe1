/* SPDX-License-Identifier: BSD-3-Clause
 * controller.c - `tutti controller`: the controller of partial reduce by
 * itself, so that no worker is special; and what a recorded log says. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    const char *listen, *group, *replay, *leader;
    uint64_t n, most, min_group, history, recentre;
    bool is_patient, stays, is_json;
    tutti_partial_opts o;
} options;

static volatile sig_atomic_t was_interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    was_interrupted = 1;
}

/* -------------------------------------------------------------- printing -- */

/* "0 1 2-3 4-7": what a bin counts. */
static const char *bin_text(int bin, char *buf, size_t cap)
{
    uint64_t first = bin == 0 ? 0 : UINT64_C(1) << (bin - 1);
    if (bin + 1 == TUTTI_STALENESS_BINS)
        snprintf(buf, cap, "%" PRIu64 "+", first);
    else if (bin < 2)
        snprintf(buf, cap, "%d", bin);
    else
        snprintf(buf, cap, "%" PRIu64 "-%" PRIu64, first, 2 * first - 1);
    return buf;
}

/* Groups by size: of the controller, or, in a replay, as counted. */
typedef uint64_t (*size_fn)(const void *ctx, uint32_t size);

static void print_text(const tutti_partial_metrics *m, size_fn of,
                       const void *c)
{
    char name[48];
    printf("groups       %" PRIu64 " (", m->n_groups);
    for (int k = 0; k < TUTTI_GROUP_KIND_COUNT; k++)
        printf("%s%" PRIu64 " %s", k ? ", " : "", m->n_kind[k],
               tutti_group_kind_name((tutti_group_kind)k));
    printf("), %" PRIu64 " members gave one up\nsizes       ", m->n_broken);
    for (uint32_t s = 1; s <= m->n_workers; s++)
        if (of(c, s) > 0)
            printf(" %u: %" PRIu64, s, of(c, s));
    printf("\nstaleness   ");
    for (int b = 0; b < TUTTI_STALENESS_BINS; b++)
        if (m->staleness[b] > 0)
            printf(" %s: %" PRIu64, bin_text(b, name, sizeof(name)),
                   m->staleness[b]);
    printf("; mean %.2f\nmixing       %u component%s in the last %u groups, "
           "spectral gap %.3f (random groups of %u: %.3f)\n",
           m->mean_staleness, m->n_components, m->n_components == 1 ? "" : "s",
           m->window, m->spectral_gap, m->group_size, m->random_gap);
    printf("joined       %" PRIu64 " groups on purpose, %" PRIu64
           " waits for it, %" PRIu64 " in vain\n",
           m->n_frozen, m->n_holds, m->n_late);
    printf("workers      %" PRIu64 " came, %" PRIu64 " left, %" PRIu64
           " died\n",
           m->n_joins, m->n_leaves, m->n_deaths);
}

static void print_counts(const char *name, const uint64_t *counts, int n)
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < n; i++)
        printf("%s%" PRIu64, i ? ", " : "", counts[i]);
    printf("]");
}

static void print_json(const tutti_partial_metrics *m, size_fn of,
                       const void *c)
{
    printf("{\"workers\": %u, \"groups\": %" PRIu64 ", \"members\": %" PRIu64
           ", \"broken\": %" PRIu64 ", \"group_size\": %u",
           m->n_workers, m->n_groups, m->n_members, m->n_broken, m->group_size);
    print_counts("kinds", m->n_kind, TUTTI_GROUP_KIND_COUNT);
    printf(", \"sizes\": {");
    const char *comma = "";
    for (uint32_t s = 1; s <= m->n_workers; s++) {
        if (of(c, s) == 0)
            continue;
        printf("%s\"%u\": %" PRIu64, comma, s, of(c, s));
        comma = ", ";
    }
    printf("}");
    print_counts("staleness", m->staleness, TUTTI_STALENESS_BINS);
    printf(", \"mean_staleness\": ");
    cli_json_number(stdout, m->mean_staleness);
    printf(", \"window\": %u, \"components\": %u, \"spectral_gap\": ",
           m->window, m->n_components);
    cli_json_number(stdout, m->spectral_gap);
    printf(", \"random_gap\": ");
    cli_json_number(stdout, m->random_gap);
    printf(", \"joined\": %" PRIu64 ", \"holds\": %" PRIu64
           ", \"late\": %" PRIu64 ", \"joins\": %" PRIu64
           ", \"leaves\": %" PRIu64 ", \"deaths\": %" PRIu64 "}\n",
           m->n_frozen, m->n_holds, m->n_late, m->n_joins, m->n_leaves,
           m->n_deaths);
}

static void print(const options *o, const tutti_partial_metrics *m, size_fn of,
                  const void *ctx)
{
    if (o->is_json)
        print_json(m, of, ctx);
    else
        print_text(m, of, ctx);
}

/* ---------------------------------------------------------------- replay -- */

enum { MOST_SIZES = 16385 };

static void count_size(void *ctx, const tutti_group_decision *group)
{
    uint64_t *sizes = ctx;
    if (group->n < MOST_SIZES)
        sizes[group->n]++;
}

static uint64_t counted(const void *ctx, uint32_t size)
{
    return size < MOST_SIZES ? ((const uint64_t *)ctx)[size] : 0;
}

static int replay(const cli_command *self, const options *o)
{
    size_t len;
    static uint64_t sizes[MOST_SIZES];
    tutti_diag diag = {0};
    tutti_partial_metrics m;
    char *text = cli_read_file(o->replay, &len);
    if (!text)
        return cli_fail(self, "cannot read '%s': %s", o->replay,
                        strerror(errno));
    tutti_err err = tutti_grouping_replay(text, len, count_size, sizes, &m,
                                          &diag);
    free(text);
    if (err)
        return cli_fail_err(self, o->replay, err, diag.text);
    print(o, &m, counted, sizes);
    return CLI_OK;
}

/* ------------------------------------------------------------------- run -- */

static uint64_t of_controller(const void *ctx, uint32_t size)
{
    return tutti_controller_n_of_size((tutti_controller *)(uintptr_t)ctx, size);
}

static int serve(const cli_command *self, options *o)
{
    tutti_controller *c;
    tutti_partial_metrics m;
    if (tutti_controller_open(o->listen, (uint32_t)o->n, &o->o, &c))
        return cli_fail(self, "%s", tutti_last_message());
    struct sigaction act = {.sa_handler = interrupt};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (o->leader)
        fprintf(stderr, "tutti controller: standby of %s at port %d\n",
                o->leader, tutti_controller_port(c));
    else
        fprintf(stderr,
                "tutti controller: waits for %" PRIu64 " workers at port %d\n",
                o->n, tutti_controller_port(c));
    tutti_err err = TUTTI_AGAIN;
    while (!was_interrupted && (err == TUTTI_AGAIN || (o->stays && !err))) {
        struct timespec pause = {.tv_nsec = 100000000};
        err = tutti_controller_wait(c, 0.2);
        if (!err)
            nanosleep(&pause, NULL);
    }
    if (err == TUTTI_EPEER)
        cli_fail(self, "%s", tutti_last_message());
    tutti_controller_measure(c, &m);
    print(o, &m, of_controller, c);
    tutti_controller_close(c);
    return err == TUTTI_EPEER ? CLI_FAILED : CLI_OK;
}

static bool read_group(const options *o, int *size)
{
    char *end;
    long value;
    *size = 0;
    if (strcmp(o->group, "auto") == 0)
        return true;
    value = strtol(o->group, &end, 10);
    *size = (int)value;
    return *end == '\0' && end != o->group && value >= 1 && value < MOST_SIZES;
}

static int start(const cli_command *self, options *o)
{
    o->o.leader = o->leader;
    if (o->leader)
        return o->n > 0 ? cli_usage(self, "a standby goes by its leader's "
                                          "options; leave -n out")
                        : serve(self, o);
    if (o->n == 0)
        return cli_usage(self, "how many workers? Give -n");
    if (o->most >= MOST_SIZES || (o->most > 0 && o->most < o->n))
        return cli_usage(self, "--max-workers is from -n to %d",
                         MOST_SIZES - 1);
    if (o->n >= MOST_SIZES || o->min_group > o->n || o->history > INT32_MAX ||
        o->recentre > INT32_MAX)
        return cli_usage(self,
                         "-n goes to %d, --min-group to -n, the other "
                         "counts to %d",
                         MOST_SIZES - 1, INT32_MAX);
    if (!read_group(o, &o->o.group_size))
        return cli_usage(self,
                         "--group '%s' is wrong: expected auto, or 2 to "
                         "the number of workers",
                         o->group);
    o->o.min_group = (int)o->min_group;
    o->o.history = (int)o->history;
    o->o.max_workers = (int)o->most;
    o->o.recentre_every = (int)o->recentre;
    if (o->is_patient)
        o->o.soft_wait_s = -1;
    return serve(self, o);
}

int cmd_controller(const cli_command *self, int argc, char **argv)
{
    cli_words words;
    options o = {.group = "auto", .o = TUTTI_PARTIAL_OPTS_INIT};
    const cli_option table[] = {
        {"-n", NULL, CLI_COUNT, &o.n, "N",
         "workers of the start; groups are made when they have come"},
        {"--max-workers", NULL, CLI_COUNT, &o.most, "N",
         "so many may come, at any time (1024)"},
        {"--standby", NULL, CLI_TEXT, &o.leader, "HOST:PORT",
         "follow the controller there, and lead when it is gone"},
        {"--listen", NULL, CLI_TEXT, &o.listen, "HOST:PORT",
         "where workers find it (TUTTI_SOCKET_IFNAME's addresses, any port)"},
        {"--group", NULL, CLI_TEXT, &o.group, "P|auto",
         "members of a group; auto: chosen while it runs (auto)"},
        {"--dynamic", NULL, CLI_FLAG, &o.o.is_dynamic, NULL,
         "weights by staleness, not 1/P each"},
        {"--decay", NULL, CLI_NUMBER, &o.o.decay, "X",
         "... by this factor for each iteration behind (0.8)"},
        {"--min-group", NULL, CLI_COUNT, &o.min_group, "N",
         "what goes before P are ready (2)"},
        {"--soft-wait", NULL, CLI_NUMBER, &o.o.soft_wait_s, "S",
         "... after so many seconds (a quarter of a step)"},
        {"--patient", NULL, CLI_FLAG, &o.is_patient, NULL,
         "... never: groups wait until P are ready"},
        {"--max-wait", NULL, CLI_NUMBER, &o.o.max_wait_s, "S",
         "nobody waits longer for a group (10)"},
        {"--history", NULL, CLI_COUNT, &o.history, "N",
         "groups that must mix all (4 ceil((n-1)/(P-1)))"},
        {"--join-wait", NULL, CLI_NUMBER, &o.o.join_wait_s, "S",
         "wait for a member that mixes (two steps)"},
        {"--recentre", NULL, CLI_COUNT, &o.recentre, "S",
         "iterations until a group of all (never)"},
        {"--end-wait", NULL, CLI_NUMBER, &o.o.end_wait_s, "S",
         "for the last group of all (300)"},
        {"--liveness", NULL, CLI_NUMBER, &o.o.liveness_s, "S",
         "silence that means death (TUTTI_LIVENESS)"},
        {"--log", NULL, CLI_TEXT, &o.o.log, "FILE",
         "write all events and groups there"},
        {"--replay", NULL, CLI_TEXT, &o.replay, "FILE",
         "check such a log instead, and say what it shows"},
        {"--stay", NULL, CLI_FLAG, &o.stays, NULL,
         "do not end when all workers have gone"},
        {"--json", NULL, CLI_FLAG, &o.is_json, NULL,
         "the summary at the end as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    if (!cli_parse(self, table, false, argc, argv, &words))
        return words.status;
    if (words.n > 0)
        return cli_usage(self, "'%s' is not an option", words.at[0]);
    if (o.replay && o.leader)
        return cli_usage(self, "--standby follows a controller, and --replay "
                               "reads a log: use one of them");
    return o.replay ? replay(self, &o) : start(self, &o);
}
