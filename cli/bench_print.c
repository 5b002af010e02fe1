/* SPDX-License-Identifier: BSD-3-Clause
 * bench_print.c - what `tutti bench` shows: nccl-tests' columns, and those that
 * a known network adds, or JSON. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool bench_prints(const bench *b)
{
    return b->call.rank == 0;
}

/* Two decimals, more where there would be fewer than three digits: nccl-tests'
 * columns are in GB/s, and 0.00 says nothing of a slow link. No wider than
 * `width` letters. */
static const char *number(double value, int width, char *buf, size_t cap)
{
    int decimals = 2;
    double least = 1;
    while (value > 0 && value < least && decimals < width - 2) {
        decimals++;
        least /= 10;
    }
    const bool is_seen = value <= 0 || value * pow(10, decimals) >= 1;
    for (; decimals >= 0 && is_seen; decimals--) {
        if (snprintf(buf, cap, "%.*f", decimals, value) <= width)
            return buf;
    }
    snprintf(buf, cap, "%.*e", width > 6 ? width - 6 : 0, value);
    return buf;
}

static void print_half(const bench *b, const bench_result *r)
{
    char time[32];
    char algbw[32];
    char busbw[32];
    if (!r->is_known) {
        printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    printf("  %7s  %6s  %6s", number(r->time_s * 1e6, 7, time, sizeof(time)),
           number(r->algbw, 6, algbw, sizeof(algbw)),
           number(r->busbw, 6, busbw, sizeof(busbw)));
    if (b->check)
        printf("  %6g", (double)r->wrong);
    else
        printf("  %6s", "N/A");
}

/* 0: there is none. */
static double efficiency(const bench_promise *promise, const bench_result *r)
{
    if (!r->is_known || r->time_s <= 0)
        return 0;
    return promise->optimum_s / r->time_s;
}

static void print_promise(const bench_promise *promise, const bench_result r[2])
{
    const double times[2] = {promise->predicted_s, promise->optimum_s};
    for (int i = 0; i < 2; i++) {
        char text[32] = "N/A";
        if (times[i] > 0)
            number(times[i] * 1e6, 8, text, sizeof(text));
        printf("  %8s", text);
    }
    for (int i = 0; i < 2; i++) {
        double share = efficiency(promise, &r[i]);
        if (share > 0)
            printf("  %6.3f", share);
        else
            printf("  %6s", "N/A");
    }
    printf("  %s", promise->planner ? promise->planner : "N/A");
}

static const char *op_name(const ref_call *c)
{
    return cli_reduces(c->coll) ? tutti_op_name(c->op) : "none";
}

void bench_print_row(const bench *b, const bench_shape *s,
                     const bench_promise *promise, const bench_result r[2])
{
    const ref_call *c = &b->call;
    char root[16];
    snprintf(root, sizeof(root), "%d", cli_has_root(c->coll) ? c->root : -1);
    printf("%12li  %12li  %8s  %6s  %6s", (long)s->size_bytes, (long)c->count,
           tutti_type_name(c->type), op_name(c), root);
    print_half(b, &r[0]);
    print_half(b, &r[1]);
    if (b->network.spec)
        print_promise(promise, r);
    printf("\n");
    fflush(stdout);
}

/* null where there is nothing to say. */
static void json_promise(const bench_promise *promise, const bench_result *r)
{
    const struct {
        const char *name;
        double value;
    } fields[] = {{"predicted_us", promise->predicted_s * 1e6},
                  {"optimum_us", promise->optimum_s * 1e6},
                  {"efficiency", efficiency(promise, r)}};
    cli_json_text_member(stdout, "chosen", promise->planner);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        printf(",\"%s\":", fields[i].name);
        cli_json_number(stdout, fields[i].value > 0 ? fields[i].value : -1.0);
    }
}

void bench_print_json(const bench *b, const bench_shape *s,
                      const bench_promise *promise, int in_place,
                      const bench_result *r)
{
    const ref_call *c = &b->call;
    const char *env = getenv("TUTTI_PLANNER");
    const char *planner = b->planner ? b->planner : env && *env ? env : "auto";
    printf("%s{\"collective\":\"%s\",\"n_ranks\":%d,\"planner\":",
           b->n_rows ? ",\n " : "[", tutti_coll_name(c->coll), c->n_ranks);
    cli_json_string(stdout, planner);
    printf(",\"size_bytes\":%zu,\"count\":%zu,\"type\":\"%s\",\"op\":",
           s->size_bytes, c->count, tutti_type_name(c->type));
    cli_json_string(stdout, cli_reduces(c->coll) ? op_name(c) : NULL);
    printf(",\"inplace\":%d,\"time_us\":", in_place);
    cli_json_number(stdout, r->time_s * 1e6);
    cli_json_number_member(stdout, "algbw_GBps", r->algbw);
    cli_json_number_member(stdout, "busbw_GBps", r->busbw);
    cli_json_number_member(stdout, "wrong", b->check ? (double)r->wrong : -1.0);
    cli_json_text_member(stdout, "network", b->network.spec);
    json_promise(promise, r);
    printf("}");
    fflush(stdout);
}

/* Who takes part, one line for each rank. */
static tutti_err print_ranks(const bench *b)
{
    enum { LINE = 128 };
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    int n = b->call.n_ranks;
    char *all = calloc((size_t)n, LINE);
    if (!all)
        return TUTTI_ENOMEM;
    /* Each rank fills its own line; all calls that are not measured are
     * all-reduces by the planner of the job, and every planner but relay has
     * them (--planner names that one for what is measured alone). */
    snprintf(all + tutti_comm_rank(b->comm) * LINE, LINE, "pid %6d on %s",
             (int)getpid(), host);
    tutti_err err = tutti_all_reduce(b->comm, all, all, (size_t)n * LINE,
                                     TUTTI_U8, TUTTI_SUM, NULL, NULL);
    for (int r = 0; r < n && !err && bench_prints(b) && !b->is_json; r++)
        printf("#  rank %2d %.*s via %s\n", r, LINE - 1, all + r * LINE,
               tutti_comm_transport(b->comm, r));
    free(all);
    return err;
}

/* What is the limit of the largest call. */
static void print_limit(const bench *b)
{
    char text[320];
    const tutti_topology *net = tutti_comm_topology(b->comm);
    if (net && !tutti_network_summary(net, b->most, text, sizeof(text), NULL))
        printf("# %s\n", text);
}

static void print_network(const bench_network *n)
{
    const tutti_bound_info *o = &n->optimum;
    char remark[64] = "exact";
    if (!n->payload) {
        printf("#\n# network %s: all ranks are on one host\n", n->spec);
        return;
    }
    if (!o->is_exact && isfinite(o->gap))
        snprintf(remark, sizeof(remark), "within %.3g %%", 100 * o->gap);
    else if (!o->is_exact)
        snprintf(remark, sizeof(remark), "a lower bound");
    printf("#\n# network %s, payload of TCP counted; optimum of an all-reduce: "
           "%s\n",
           n->spec, remark);
}

static void print_titles(bool has_network)
{
    printf("#\n# %10s  %12s  %8s  %6s  %6s  %33s  %33s%s\n", "", "", "", "", "",
           "out-of-place             ", "in-place               ",
           has_network ? "               optimum/time" : "");
    printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop",
           "root");
    for (int i = 0; i < 2; i++)
        printf("  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
    if (has_network)
        printf("  %8s  %8s  %6s  %6s  %s", "predict", "optimum", "out-of", "in",
               "planner");
    printf("\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; i++)
        printf("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
    if (has_network)
        printf("  %8s  %8s  %6s  %6s", "(us)", "(us)", "place", "place");
    printf("\n");
}

tutti_err bench_print_head(const bench *b)
{
    const ref_call *c = &b->call;
    if (bench_prints(b) && !b->is_json) {
        printf("# tutti %s %s: minBytes %llu maxBytes %llu step: %llu(%s) "
               "warmup iters: %llu iters: %llu%s validation: %llu\n#\n",
               tutti_version(), tutti_coll_name(c->coll),
               (unsigned long long)b->least, (unsigned long long)b->most,
               (unsigned long long)(b->step ? b->step : b->factor),
               b->step ? "bytes" : "factor", (unsigned long long)b->n_warmup,
               (unsigned long long)b->n_iters, b->n_iters ? "" : "(by time)",
               (unsigned long long)b->check);
    }
    tutti_err err = print_ranks(b);
    if (err || !bench_prints(b) || b->is_json)
        return err;
    if (b->network.spec) {
        print_network(&b->network);
        print_limit(b);
    }
    print_titles(b->network.spec != NULL);
    return TUTTI_OK;
}

void bench_print_foot(const bench *b, bool is_complete)
{
    if (bench_prints(b) && b->is_json)
        printf("%s]\n", b->n_rows ? "" : "[");
    if (!bench_prints(b) || b->is_json || !is_complete)
        return;
    if (b->check)
        printf("# Out of bounds values : %llu %s\n",
               (unsigned long long)b->n_wrong, b->n_wrong ? "FAILED" : "OK");
    const double mean = b->n_rows ? b->busbw_sum / (double)b->n_rows : 0.0;
    char rate[32];
    printf("# Avg bus bandwidth    : %g", mean);
    if (cli_rate_unit(mean * 1e9).per_s < 1e9)
        printf(" (%s)", cli_rate_text(mean * 1e9, rate, sizeof(rate)));
    printf("\n");
}
