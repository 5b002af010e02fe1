/* SPDX-License-Identifier: BSD-3-Clause
 * network.c - what the sub-commands that work on a network share: opening it,
 * planning, progress on the terminal, efficiency. */
#include "cli.h"

#include <string.h>
#include <unistd.h>

/* -------------------------------------------------------------- progress -- */

void cli_progress_begin(cli_progress *p)
{
    *p = (cli_progress){.begin_s = cli_now_s(),
                        .is_terminal = isatty(STDERR_FILENO)};
}

/* "12 of 100 (3 s, 4.1/s, 21 s left)", of this phase of the work. */
static int print_progress(const cli_progress *p, uint64_t done, uint64_t total,
                          double now)
{
    const double here_s = now - p->phase_s;
    const double per_s = here_s > 0 ? (double)(done - p->phase_done) / here_s
                                    : 0;
    int width = fprintf(stderr, "\r%s: %llu", p->what,
                        (unsigned long long)done);
    if (total)
        width += fprintf(stderr, " of %llu", (unsigned long long)total);
    width += fprintf(stderr, " (%.0f s", now - p->begin_s);
    if (per_s > 0)
        width += fprintf(stderr, ", %.3g/s", per_s);
    if (per_s > 0 && total > done)
        width += fprintf(stderr, ", %.0f s left",
                         (double)(total - done) / per_s);
    return width + fprintf(stderr, ")");
}

/* From the first second on, ten times a second at most. */
void cli_progress_tell(void *ctx, const char *what, uint64_t done,
                       uint64_t total)
{
    cli_progress *p = ctx;
    double now = cli_now_s();
    if (strcmp(p->what, what) != 0 || done < p->phase_done) {
        snprintf(p->what, sizeof(p->what), "%s", what);
        p->phase_s = now;
        p->phase_done = done;
    }
    if (!p->is_terminal || now - p->begin_s < 1 || now - p->shown_s < 0.1)
        return;
    p->shown_s = now;
    int width = print_progress(p, done, total, now);
    if (width < p->width)
        fprintf(stderr, "%*s", p->width - width, "");
    p->width = width > p->width ? width : p->width;
}

void cli_progress_end(cli_progress *p)
{
    if (p->width)
        fprintf(stderr, "\r%*s\r", p->width, "");
    p->width = 0;
}

/* --------------------------------------------------------------- network -- */

tutti_topology *cli_open_network(const cli_command *self, const char *spec)
{
    tutti_topology *net = NULL;
    tutti_diag diag = {0};
    tutti_err err = tutti_topology_open(spec, &net, &diag);
    if (!err)
        return net;
    if (diag.line && access(spec, F_OK) != 0)
        cli_fail(self, "%.200s, at its letter %u: %s", spec, diag.column,
                 diag.text);
    else if (diag.line)
        cli_fail(self, "%.200s:%u:%u: %s", spec, diag.line, diag.column,
                 diag.text);
    else
        cli_fail_err(self, "cannot use this network", err, diag.text);
    return NULL;
}

tutti_topology *cli_open_payload(const cli_command *self, const char *spec,
                                 bool is_tcp)
{
    tutti_topology *net = cli_open_network(self, spec);
    if (!net || !is_tcp)
        return net;
    tutti_topology *payload = NULL;
    tutti_diag diag = {0};
    tutti_err err = tutti_topology_payload(net, &payload, &diag);
    if (err)
        cli_fail_err(self, "cannot use this network", err, diag.text);
    tutti_topology_free(net);
    return payload;
}

/* Good enough for an efficiency, and much faster than the last digit. */
static const double optimum_gap = 0.005;

bool cli_find_bound(const cli_command *self, const tutti_topology *net,
                    cli_progress *progress, tutti_bound_info *out)
{
    tutti_bound_opts opts = TUTTI_BOUND_OPTS_INIT;
    tutti_diag diag = {0};
    opts.gap = optimum_gap;
    opts.progress = cli_progress_tell;
    opts.progress_ctx = progress;
    tutti_err err = tutti_bound(net, &opts, out, &diag);
    if (err)
        cli_fail_err(self, "cannot find the optimum", err, diag.text);
    return !err;
}

/* ------------------------------------------------------------- schedules -- */

static bool is_file(const char *path)
{
    return !strcmp(path, "-") || strchr(path, '/') || !access(path, F_OK);
}

bool cli_is_planner(const char *word)
{
    tutti_planner_info row;
    if (!strcmp(word, "auto"))
        return true;
    for (size_t i = 0; tutti_planner_at(i, &row); i++) {
        if (!strcmp(word, row.name))
            return true;
    }
    return false;
}

tutti_schedule *cli_make_schedule(const cli_command *self, const char *word,
                                  const tutti_topology *net,
                                  tutti_plan_opts *opts, const char **chosen)
{
    *chosen = NULL;
    if (!cli_is_planner(word) && is_file(word))
        return cli_read_schedule(self, word);
    tutti_schedule *sched = NULL;
    tutti_diag diag = {0};
    opts->planner = word;
    tutti_err err = tutti_plan(net, opts, &sched, chosen, &diag);
    if (!err)
        return sched;
    cli_fail_err(self, "cannot plan", err, diag.text);
    return NULL;
}
