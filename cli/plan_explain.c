/* SPDX-License-Identifier: BSD-3-Clause
 * plan_explain.c - `tutti plan --explain`: what each planner is charged, and
 * why `auto` takes it or not. Next: plan.c. */
#include "cli.h"

#include <string.h>

typedef struct printing {
    const cli_explaining *ex;
    bool is_first;
    char chosen[64];
} printing;

static bool has_costs(const tutti_plan_opts *o)
{
    return o->costs && o->costs->message_ns > 0;
}

static void print_json_head(const cli_explaining *ex)
{
    const tutti_plan_opts *o = ex->opts;
    fputs("{\"network\":", stdout);
    cli_json_string(stdout, ex->net ? ex->spec : NULL);
    printf(",\"n_ranks\":%u,\"collective\":\"%s\",\"root\":", ex->n_ranks,
           tutti_coll_name(o->collective));
    cli_json_number(stdout, cli_has_root(o->collective) ? o->root : -1.0);
    printf(",\"size_bytes\":%llu,\"costs\":",
           (unsigned long long)o->size_bytes);
    if (has_costs(o))
        printf("{\"message_ns\":%llu,\"byte_ps\":%llu,\"reduce_ps\":%llu}",
               (unsigned long long)o->costs->message_ns,
               (unsigned long long)o->costs->byte_ps,
               (unsigned long long)o->costs->reduce_ps);
    else
        fputs("null", stdout);
    fputs(",\"planners\":[", stdout);
}

/* What is charged for what. */
static void print_costs(const cli_explaining *ex)
{
    const tutti_plan_opts *o = ex->opts;
    char message[32];
    if (has_costs(o) && ex->net)
        printf("# a message: %s, less the latency of links; reducing a byte: "
               "%.4g ns\n",
               cli_time_text((double)o->costs->message_ns * 1e-9, message,
                             sizeof(message)),
               (double)o->costs->reduce_ps * 1e-3);
    else if (has_costs(o))
        printf("# a message: %s; a byte: %.4g ns; reducing one: %.4g ns\n",
               cli_time_text((double)o->costs->message_ns * 1e-9, message,
                             sizeof(message)),
               (double)o->costs->byte_ps * 1e-3,
               (double)o->costs->reduce_ps * 1e-3);
    else if (ex->net && !o->costs)
        puts("# the network alone: ranks pay nothing beside it (--costs)");
    else
        puts("# what messages and reducing cost is assumed (--costs)");
}

static void print_head(const cli_explaining *ex)
{
    char size[32];
    const tutti_plan_opts *o = ex->opts;
    printf("# %s of %s ", tutti_coll_name(o->collective),
           cli_size_text(o->size_bytes, size, sizeof(size)));
    if (ex->net)
        printf("on %s\n", ex->spec);
    else
        printf("on %u ranks, whose network nobody has described\n",
               ex->n_ranks);
    print_costs(ex);
    printf("%-14s %11s %11s %11s %11s  %s\n", "planner", "time", "messages",
           "bytes", "reducing", "why");
}

/* As tutti_charge_fn. */
static void print(void *ctx, const tutti_charge *c)
{
    printing *p = ctx;
    char text[4][32];
    const double s[] = {c->time_s, c->messages_s, c->bytes_s, c->reduce_s};
    if (p->is_first)
        print_head(p->ex);
    p->is_first = false;
    if (c->is_chosen)
        snprintf(p->chosen, sizeof(p->chosen), "%s", c->planner);
    for (int i = 0; i < 4; i++)
        cli_time_text(s[i], text[i], sizeof(text[i]));
    if (!c->fits)
        printf("%-14s does not fit: %s\n", c->planner, c->why);
    else
        printf("%-14s %11s %11s %11s %11s  %s%s\n", c->planner, text[0],
               text[1], text[2], text[3], c->is_chosen ? "chosen: " : "",
               c->why);
}

/* The same as JSON. */
static void print_json(void *ctx, const tutti_charge *c)
{
    printing *p = ctx;
    if (p->is_first)
        print_json_head(p->ex);
    fputs(p->is_first ? "\n " : ",\n ", stdout);
    p->is_first = false;
    if (c->is_chosen)
        snprintf(p->chosen, sizeof(p->chosen), "%s", c->planner);
    fputs("{\"planner\":", stdout);
    cli_json_string(stdout, c->planner);
    printf(",\"fits\":%s,\"chosen\":%s", c->fits ? "true" : "false",
           c->is_chosen ? "true" : "false");
    cli_json_number_member(stdout, "time_s", c->time_s);
    cli_json_number_member(stdout, "messages_s", c->messages_s);
    cli_json_number_member(stdout, "bytes_s", c->bytes_s);
    cli_json_number_member(stdout, "reduce_s", c->reduce_s);
    cli_json_text_member(stdout, "why", c->why);
    fputs("}", stdout);
}

int cli_explain(const cli_explaining *ex)
{
    printing p = {.ex = ex, .is_first = true};
    tutti_diag diag = {0};
    tutti_err err = tutti_explain(ex->net, ex->n_ranks, ex->opts,
                                  ex->is_json ? print_json : print, &p, &diag);
    cli_progress_end(ex->progress);
    if (err)
        return cli_fail_err(ex->self, ex->spec, err, diag.text);
    if (ex->is_json) {
        fputs("]", stdout);
        cli_json_text_member(stdout, "chosen", p.chosen);
        puts("}");
    } else {
        printf("# auto takes %s\n", p.chosen);
    }
    return CLI_OK;
}
