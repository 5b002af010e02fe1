/* SPDX-License-Identifier: BSD-3-Clause
 * sim.c - `tutti sim`: how long a schedule takes on a network, and a trace. */
#include "cli.h"

#include <math.h>
#include <string.h>

typedef struct request {
    const cli_command *self;
    const char *what, *spec;
    const char *planner; /* NULL: the schedule came from a file */
    const char *trace;
    tutti_plan_opts plan;
    tutti_sim_opts sim;
    bool is_tcp;
    bool is_json;
    cli_progress progress;
} request;

/* The least possible time; NAN: not known. */
static double optimum_of(const request *rq, const tutti_topology *net,
                         const tutti_schedule_info *info)
{
    tutti_bound_info bound;
    cli_progress progress = rq->progress;
    if (!cli_find_bound(rq->self, net, &progress, &bound))
        return NAN;
    int root = info->root == UINT32_MAX ? 0 : (int)info->root;
    return tutti_bound_s(net, &bound, info->collective, root,
                         rq->sim.size_bytes);
}

static double busbw_of(const request *rq, const tutti_schedule_info *info,
                       double time_s)
{
    if (time_s <= 0)
        return NAN;
    return (double)rq->sim.size_bytes / time_s / 1e9 *
           cli_bus_factor(info->collective, info->n_ranks);
}

static bool is_packet(const tutti_sim_opts *o)
{
    return o->is_packet || (o->as_engine && !o->is_fluid);
}

static void print_json(const request *rq, const tutti_schedule_info *info,
                       const tutti_sim_result *r, const tutti_link_info *link,
                       double optimum_s)
{
    fputs("{\"network\":", stdout);
    cli_json_string(stdout, rq->spec);
    printf(",\"time_s\":%.12g,\"busbw_GBps\":", r->time_s);
    cli_json_number(stdout, busbw_of(rq, info, r->time_s));
    cli_json_number_member(stdout, "optimum_s", optimum_s);
    cli_json_number_member(stdout, "efficiency",
                           r->time_s > 0 ? optimum_s / r->time_s : NAN);
    printf(",\"max_link_utilisation\":%.9g,\"mean_link_utilisation\":%.9g,"
           "\"busiest_link\":",
           r->max_link_utilisation, r->mean_link_utilisation);
    if (link->from) {
        fputs("[", stdout);
        cli_json_string(stdout, link->from);
        fputs(",", stdout);
        cli_json_string(stdout, link->to);
        fputs("]", stdout);
    } else {
        fputs("null", stdout);
    }
    printf(",\"model\":\"%s\",\"as_engine\":%s,\"planner\":",
           is_packet(&rq->sim) ? "packet" : "fluid",
           rq->sim.as_engine ? "true" : "false");
    cli_json_string(stdout, rq->planner);
    printf(",\"collective\":\"%s\",\"n_ranks\":%u,\"size_bytes\":%llu,"
           "\"steps\":%u,\"transfers\":%llu,\"messages\":%llu,\"bytes\":%llu,"
           "\"link_bytes\":%llu}\n",
           tutti_coll_name(info->collective), info->n_ranks,
           (unsigned long long)rq->sim.size_bytes, info->n_steps,
           (unsigned long long)info->n_transfers,
           (unsigned long long)r->n_messages, (unsigned long long)r->bytes,
           (unsigned long long)r->link_bytes);
}

static void print_text(const request *rq, const tutti_schedule_info *info,
                       const tutti_sim_result *r, const tutti_link_info *link,
                       double optimum_s)
{
    char time[32], size[32], rate[32];
    printf("%s of %s by %s on %s, %s model, %s\n",
           tutti_coll_name(info->collective),
           cli_size_text(rq->sim.size_bytes, size, sizeof(size)),
           rq->planner ? rq->planner : rq->what, rq->spec,
           is_packet(&rq->sim) ? "packet" : "fluid",
           rq->sim.as_engine ? "cut as the engine cuts"
                             : "cut as the options say");
    printf("  time         %s\n", cli_time_text(r->time_s, time, sizeof(time)));
    if (r->time_s > 0)
        printf("  busbw        %s\n",
               cli_rate_text(1e9 * busbw_of(rq, info, r->time_s), rate,
                             sizeof(rate)));
    if (isfinite(optimum_s) && r->time_s > 0)
        printf("  efficiency   %.3f of the optimum\n", optimum_s / r->time_s);
    if (link->from)
        printf("  links        busiest %.3f (%s to %s), mean %.3f\n",
               r->max_link_utilisation, link->from, link->to,
               r->mean_link_utilisation);
    printf("  messages     %llu\n", (unsigned long long)r->n_messages);
}

/* Simulates, and writes the trace if one is wanted. */
static int simulate(request *rq, const tutti_topology *net,
                    const tutti_schedule *sched, tutti_sim_result *out)
{
    tutti_diag diag = {0};
    char *text = NULL;
    size_t len = 0;
    tutti_err err =
        rq->trace ? tutti_trace(net, sched, &rq->sim, out, &text, &len, &diag)
                  : tutti_simulate(net, sched, &rq->sim, out, &diag);
    cli_progress_end(&rq->progress);
    if (err)
        return cli_fail_err(rq->self, "cannot simulate", err, diag.text);
    int status = CLI_OK;
    if (rq->trace)
        status = cli_write_file(rq->self, rq->trace, text, len);
    tutti_text_free(text);
    return status;
}

static int work(request *rq, const tutti_topology *net)
{
    tutti_schedule *sched = cli_make_schedule(rq->self, rq->what, net,
                                              &rq->plan, &rq->planner);
    if (!sched)
        return CLI_FAILED;
    tutti_schedule_info info;
    tutti_sim_result result;
    tutti_link_info link = {0};
    tutti_schedule_describe(sched, &info);
    int status = simulate(rq, net, sched, &result);
    tutti_schedule_free(sched);
    if (status)
        return status;
    if (result.busiest_link != UINT32_MAX)
        tutti_link_at(net, result.busiest_link, &link);
    double optimum_s = optimum_of(rq, net, &info);
    cli_progress_end(&rq->progress);
    /* The trace has standard output for itself. */
    if (rq->trace && !strcmp(rq->trace, "-"))
        return CLI_OK;
    if (rq->is_json)
        print_json(rq, &info, &result, &link, optimum_s);
    else
        print_text(rq, &info, &result, &link, optimum_s);
    return CLI_OK;
}

static const char *const lockstep_words[] = {"off", "rank", "all"};

/* false: no such word. */
static bool read_model(const char *model, const char *lockstep,
                       tutti_sim_opts *o)
{
    if (model && !strcmp(model, "packet"))
        o->is_packet = true;
    else if (model && !strcmp(model, "fluid"))
        o->is_fluid = true;
    else if (model)
        return false;
    for (int i = 0; i < 3; i++) {
        if (!strcmp(lockstep, lockstep_words[i])) {
            o->lockstep = (tutti_lockstep)i;
            return true;
        }
    }
    return false;
}

/* What the command line gives in wider types than the simulator's. */
typedef struct numbers {
    const char *model, *lockstep;
    uint64_t slices, window, packet, flit, header, elem;
    double overhead_us, gamma_ns;
    bool is_ideal;
} numbers;

/* The command line says something of slices, credit and window. */
static bool is_own_cut(const request *rq, const numbers *n)
{
    return n->is_ideal || n->slices || n->window || rq->sim.front_bytes ||
           rq->sim.front_window_bytes;
}

/* Returns CLI_OK, or the status after a usage error. */
static int read_numbers(request *rq, const numbers *n)
{
    const cli_command *self = rq->self;
    if (!read_model(n->model, n->lockstep, &rq->sim))
        return cli_usage(self, "--model is fluid or packet, --lockstep is "
                               "off, rank or all");
    const uint64_t limits[] = {n->slices, n->window, n->packet,
                               n->flit,   n->header, n->elem};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (limits[i] > UINT32_MAX)
            return cli_usage(self, "%llu is too much",
                             (unsigned long long)limits[i]);
    }
    if (n->elem && rq->plan.size_bytes % n->elem)
        return cli_usage(self,
                         "%llu bytes are no whole number of elements of "
                         "%llu bytes; --elem says how large they are",
                         (unsigned long long)rq->plan.size_bytes,
                         (unsigned long long)n->elem);
    const bool is_cut = is_own_cut(rq, n);
    if (rq->sim.as_engine && is_cut)
        return cli_usage(self,
                         "--as-engine says how it is cut, so it goes without "
                         "--ideal, --slices, --window, --front, "
                         "--front-window");
    /* Nor does the engine go in lockstep, or by step. */
    if (!is_cut && !rq->sim.by_step && rq->sim.lockstep == TUTTI_LOCKSTEP_OFF)
        rq->sim.as_engine = true;
    rq->sim.size_bytes = rq->plan.size_bytes;
    rq->sim.n_slices = (uint32_t)n->slices;
    rq->sim.window = (uint32_t)n->window;
    rq->sim.packet_bytes = (uint32_t)n->packet;
    rq->sim.flit_bytes = (uint32_t)n->flit;
    rq->sim.header_bytes = (uint32_t)n->header;
    rq->sim.elem_bytes = (uint32_t)n->elem;
    rq->sim.overhead_s = n->overhead_us * 1e-6;
    rq->sim.gamma_s_per_byte = n->gamma_ns * 1e-9;
    return CLI_OK;
}

static int open_and_work(request *rq)
{
    cli_progress_begin(&rq->progress);
    rq->plan.progress = rq->sim.progress = cli_progress_tell;
    rq->plan.progress_ctx = rq->sim.progress_ctx = &rq->progress;
    tutti_topology *net = cli_open_payload(rq->self, rq->spec, rq->is_tcp);
    if (!net)
        return CLI_FAILED;
    int status = work(rq, net);
    tutti_topology_free(net);
    return status;
}

/* What the command line says. False: the command is over, with
 * words->status. */
static bool read_options(request *rq, int argc, char **argv, cli_words *words)
{
    numbers n = {.lockstep = "off", .elem = 4};
    const cli_option options[] = {
        {"--size", "-s", CLI_SIZE, &rq->plan.size_bytes, "SIZE",
         "of the vector (64MiB)"},
        {"--coll", "-c", CLI_COLL, &rq->plan.collective, "COLLECTIVE",
         "what a planner plans (all-reduce)"},
        {"--root", "-r", CLI_RANK, &rq->plan.root, "RANK", "its root (0)"},
        {"--model", "-m", CLI_TEXT, &n.model, "fluid|packet",
         "links are shared max-min fairly, or serve slices in turn (as the "
         "engine: packet, cut-through; else fluid)"},
        {"--as-engine", "-e", CLI_FLAG, &rq->sim.as_engine, NULL,
         "slices, credit, window as the engine has them (the default)"},
        {"--ideal", "-i", CLI_FLAG, &n.is_ideal, NULL,
         "one slice per chunk, no limits, but for what follows"},
        {"--slices", "-k", CLI_COUNT, &n.slices, "K", "slices per chunk (1)"},
        {"--front", NULL, CLI_SIZE, &rq->sim.front_bytes, "SIZE",
         "bytes of the vector per front, instead of --slices"},
        {"--window", "-w", CLI_COUNT, &n.window, "W",
         "credit in slices per transfer; 0: unlimited (0)"},
        {"--front-window", NULL, CLI_SIZE, &rq->sim.front_window_bytes, "SIZE",
         "how far new sends may run ahead of the result; 0: any (0)"},
        {"--lockstep", "-l", CLI_TEXT, &n.lockstep, "off|rank|all",
         "rank: waits for its own earlier steps; all: for everybody's (off)"},
        {"--by-step", NULL, CLI_FLAG, &rq->sim.by_step, NULL,
         "links serve the lowest step first (schedule priority)"},
        {"--cut-through", NULL, CLI_FLAG, &rq->sim.cut_through, NULL,
         "packet: heads move on before tails arrive"},
        {"--packet", NULL, CLI_SIZE, &n.packet, "SIZE",
         "packet: payload of a packet (no packets)"},
        {"--flit", NULL, CLI_SIZE, &n.flit, "SIZE", "packet: flit (none)"},
        {"--header", NULL, CLI_SIZE, &n.header, "SIZE",
         "packet: header per packet (0)"},
        {"--message-mode", NULL, CLI_FLAG, &rq->sim.message_mode, NULL,
         "packet: one header per slice"},
        {"--burst", NULL, CLI_SIZE, &rq->sim.burst_bytes, "SIZE",
         "packet: links are token buckets that hold so much (0)"},
        {"--overhead", NULL, CLI_NUMBER, &n.overhead_us, "US",
         "microseconds of work per message (0)"},
        {"--gamma", NULL, CLI_NUMBER, &n.gamma_ns, "NS",
         "nanoseconds to reduce a byte (0)"},
        {"--elem", NULL, CLI_COUNT, &n.elem, "BYTES",
         "bytes of an element, at which chunks are cut (4)"},
        {"--trace", "-t", CLI_TEXT, &rq->trace, "FILE",
         "write a Chrome trace, for Perfetto or chrome://tracing"},
        {"--tcp", NULL, CLI_FLAG, &rq->is_tcp, NULL,
         "links between hosts carry TCP's payload, 1448/1514 of their rate"},
        {"--json", NULL, CLI_FLAG, &rq->is_json, NULL, "as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    if (!cli_parse(rq->self, options, false, argc, argv, words))
        return false;
    words->status = words->n == 2
                        ? read_numbers(rq, &n)
                        : cli_usage(rq->self,
                                    "give a FILE or a PLANNER, and a network");
    return words->status == CLI_OK;
}

int cmd_sim(const cli_command *self, int argc, char **argv)
{
    request rq = {.self = self,
                  .plan = TUTTI_PLAN_OPTS_INIT,
                  .sim = {.size = sizeof(tutti_sim_opts)}};
    cli_words words;
    rq.plan.size_bytes = 64 << 20;
    if (!read_options(&rq, argc, argv, &words))
        return words.status;
    rq.what = words.at[0];
    rq.spec = words.at[1];
    return open_and_work(&rq);
}
