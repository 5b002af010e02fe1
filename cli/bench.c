/* SPDX-License-Identifier: BSD-3-Clause
 * bench.c - `tutti bench`: how fast a collective is, and whether it is right.
 *
 * What is measured  For each size: the result is checked once, the call is
 *   warmed up, then repeated; the time is the mean over the repetitions, and
 *   of the ranks' means the greatest. Repetitions fill about 0.2 s.
 * Cold data  From 32 KiB up, repetitions walk through a pool of buffers that
 *   is larger than the caches, because gradients are not in the cache either
 *   (--rotate 0: one buffer).
 * Figures    size is the whole vector (nccl-tests' meaning: of all ranks for
 *   gathering and scattering collectives); algbw = size / time; busbw = algbw
 *   times the factor of cli_bus_factor(). GB is 1e9 bytes.
 * Next       bench_check.c. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double target_s = 0.2; /* per size, when -n is not given */
enum { FEWEST_ITERS = 5, MOST_ITERS = 1000 };
enum { ROTATE_FROM = 32 << 10, ROTATE_OVER = 64 << 20 };

typedef struct bench {
    const cli_command *self;
    tutti_comm *comm;
    bench_call call;
    const char *planner; /* NULL: TUTTI_PLANNER */
    uint64_t least, most, factor, step, n_iters, n_warmup, check, rotate;
    bool wants[2]; /* out of place, in place */
    bool is_json;
    bool uses_malloc;
    char *in, *out; /* the pools */
    size_t pool_bytes;
    /* The outcome. */
    uint64_t n_wrong, n_rows;
    double busbw_sum;
} bench;

typedef struct result {
    double time_s, algbw, busbw; /* GB/s */
    uint64_t wrong;
    bool is_known;
} result;

/* ----------------------------------------------------------------- calls -- */

/* A size and where it lies in the pools. */
typedef struct shape {
    size_t size_bytes;
    size_t n_slots, slot_bytes;
} shape;

typedef struct buffers {
    char *in, *out;
} buffers;

static buffers place(const bench *b, const shape *s, bool in_place,
                     uint64_t iteration)
{
    size_t bytes = tutti_type_bytes(b->call.type);
    size_t at = (size_t)(iteration % s->n_slots) * s->slot_bytes;
    if (!in_place)
        return (buffers){b->in + at, b->out + at};
    return (buffers){b->out + at + bench_in_offset(&b->call) * bytes,
                     b->out + at + bench_out_offset(&b->call) * bytes};
}

static tutti_err send_recv(const bench *b, const buffers *at,
                           const tutti_call_opts *opts)
{
    const bench_call *c = &b->call;
    int next = (c->rank + 1) % c->n_ranks;
    int last = (c->rank + c->n_ranks - 1) % c->n_ranks;
    tutti_request *req;
    tutti_err err = tutti_recv(b->comm, at->out, c->count, c->type, last, opts,
                               &req);
    if (err)
        return err;
    tutti_err sent = tutti_send(b->comm, at->in, c->count, c->type, next, opts,
                                NULL);
    err = tutti_wait(req);
    return sent ? sent : err;
}

static tutti_err call_once(const bench *b, const buffers *at)
{
    const bench_call *c = &b->call;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = b->planner;
    o.scale = bench_scale(c->rank);
    switch (c->coll) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(b->comm, at->in, at->out, c->count, c->type,
                                c->op, &o, NULL);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(b->comm, at->in, at->out, c->count, c->type,
                                    c->op, &o, NULL);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(b->comm, at->in, at->out, c->count, c->type, &o,
                                NULL);
    case TUTTI_BROADCAST:
        return tutti_broadcast(b->comm, at->in, at->out, c->count, c->type,
                               c->root, &o, NULL);
    case TUTTI_REDUCE:
        return tutti_reduce(b->comm, at->in, at->out, c->count, c->type, c->op,
                            c->root, &o, NULL);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(b->comm, at->in, at->out, c->count, c->type, &o,
                                NULL);
    case TUTTI_GATHER:
        return tutti_gather(b->comm, at->in, at->out, c->count, c->type,
                            c->root, &o, NULL);
    case TUTTI_SCATTER:
        return tutti_scatter(b->comm, at->in, at->out, c->count, c->type,
                             c->root, &o, NULL);
    case TUTTI_SENDRECV:
        return send_recv(b, at, &o);
    case TUTTI_BARRIER:
    case TUTTI_COLL_COUNT:
        break;
    }
    return tutti_barrier(b->comm, &o, NULL);
}

/* The greatest of the ranks' values. */
static tutti_err agree_max(const bench *b, double *value)
{
    return tutti_all_reduce(b->comm, value, value, 1, TUTTI_F64, TUTTI_MAX,
                            NULL, NULL);
}

/* ----------------------------------------------------------- measurement -- */

static tutti_err check_once(const bench *b, const shape *s, bool in_place,
                            uint64_t *wrong)
{
    buffers at = place(b, s, in_place, 0);
    /* What is there from before must not pass for a result. */
    memset(b->out, 0xa5, s->slot_bytes);
    bench_fill(&b->call, at.in);
    tutti_err err = call_once(b, &at);
    if (err)
        return err;
    *wrong = bench_wrong(&b->call, at.out);
    return tutti_all_reduce(b->comm, wrong, wrong, 1, TUTTI_U64, TUTTI_SUM,
                            NULL, NULL);
}

/* The mean seconds of n calls on this rank. */
static tutti_err repeat(const bench *b, const shape *s, bool in_place,
                        uint64_t n, double *mean_s)
{
    tutti_err err = tutti_barrier(b->comm, NULL, NULL);
    double start_s = cli_now_s();
    for (uint64_t i = 0; i < n && !err; i++) {
        buffers at = place(b, s, in_place, i);
        err = call_once(b, &at);
    }
    *mean_s = (cli_now_s() - start_s) / (double)(n ? n : 1);
    return err ? err : agree_max(b, mean_s);
}

static uint64_t choose_iters(const bench *b, double once_s)
{
    if (b->n_iters)
        return b->n_iters;
    double n = once_s > 0 ? target_s / once_s : MOST_ITERS;
    n = n < FEWEST_ITERS ? FEWEST_ITERS : n;
    return n > MOST_ITERS ? MOST_ITERS : (uint64_t)n;
}

static tutti_err measure(const bench *b, const shape *s, bool in_place,
                         result *out)
{
    tutti_err err = TUTTI_OK;
    uint64_t wrong = 0;
    if (b->check)
        err = check_once(b, s, in_place, &wrong);
    double once_s = 0;
    if (!err)
        err = repeat(b, s, in_place, b->n_warmup, &once_s);
    double mean_s = 0;
    if (!err)
        err = repeat(b, s, in_place,
                     choose_iters(b, b->n_warmup ? once_s : target_s / 20),
                     &mean_s);
    if (err)
        return err;
    *out = (result){.time_s = mean_s, .wrong = wrong, .is_known = true};
    if (mean_s > 0)
        out->algbw = (double)s->size_bytes / mean_s / 1e9;
    out->busbw = out->algbw *
                 cli_bus_factor(b->call.coll, (uint32_t)b->call.n_ranks);
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- print -- */

static bool prints(const bench *b)
{
    return b->call.rank == 0;
}

/* As many decimals as `width` letters leave room for. */
static const char *number(double value, int width, char *buf, size_t cap)
{
    for (int decimals = 2; decimals >= 0; decimals--) {
        if (snprintf(buf, cap, "%.*f", decimals, value) <= width)
            return buf;
    }
    snprintf(buf, cap, "%.*e", width > 6 ? width - 6 : 0, value);
    return buf;
}

static void print_half(const bench *b, const result *r)
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

static const char *op_name(const bench_call *c)
{
    return cli_reduces(c->coll) ? tutti_op_name(c->op) : "none";
}

static void print_row(const bench *b, const shape *s, const result r[2])
{
    const bench_call *c = &b->call;
    char root[16];
    snprintf(root, sizeof(root), "%d", cli_has_root(c->coll) ? c->root : -1);
    printf("%12li  %12li  %8s  %6s  %6s", (long)s->size_bytes, (long)c->count,
           tutti_type_name(c->type), op_name(c), root);
    print_half(b, &r[0]);
    print_half(b, &r[1]);
    printf("\n");
    fflush(stdout);
}

static void print_json(bench *b, const shape *s, int in_place, const result *r)
{
    const bench_call *c = &b->call;
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
    printf(",\"algbw_GBps\":");
    cli_json_number(stdout, r->algbw);
    printf(",\"busbw_GBps\":");
    cli_json_number(stdout, r->busbw);
    printf(",\"wrong\":");
    cli_json_number(stdout, b->check ? (double)r->wrong : -1.0);
    printf("}");
    fflush(stdout);
}

/* Who takes part, one line for each rank. */
static tutti_err print_ranks(const bench *b)
{
    enum { LINE = 128 };
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    char mine[LINE] = "";
    snprintf(mine, sizeof(mine), "pid %6d on %s", (int)getpid(), host);
    int n = b->call.n_ranks;
    char *all = malloc((size_t)n * LINE);
    if (!all)
        return TUTTI_ENOMEM;
    tutti_err err = tutti_all_gather(b->comm, mine, all, LINE, TUTTI_U8, NULL,
                                     NULL);
    for (int r = 0; r < n && !err && prints(b) && !b->is_json; r++)
        printf("#  rank %2d %.*s via %s\n", r, LINE - 1, all + r * LINE,
               tutti_comm_transport(b->comm, r));
    free(all);
    return err;
}

static tutti_err print_head(const bench *b)
{
    const bench_call *c = &b->call;
    if (prints(b) && !b->is_json) {
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
    if (err || !prints(b) || b->is_json)
        return err;
    printf("#\n# %10s  %12s  %8s  %6s  %6s  %33s  %33s\n", "", "", "", "", "",
           "out-of-place             ", "in-place               ");
    printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop",
           "root");
    for (int i = 0; i < 2; i++)
        printf("  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
    printf("\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; i++)
        printf("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
    printf("\n");
    return TUTTI_OK;
}

static void print_foot(const bench *b, bool is_complete)
{
    if (prints(b) && b->is_json)
        printf("%s]\n", b->n_rows ? "" : "[");
    if (!prints(b) || b->is_json || !is_complete)
        return;
    if (b->check)
        printf("# Out of bounds values : %llu %s\n",
               (unsigned long long)b->n_wrong, b->n_wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n",
           b->n_rows ? b->busbw_sum / (double)b->n_rows : 0.0);
}

/* ----------------------------------------------------------------- sizes -- */

/* Whether the size is shared out among the ranks. */
static bool is_divided(tutti_coll coll)
{
    return coll == TUTTI_REDUCE_SCATTER || coll == TUTTI_ALL_GATHER ||
           coll == TUTTI_ALL_TO_ALL || coll == TUTTI_GATHER ||
           coll == TUTTI_SCATTER;
}

/* Sets the call's count: the size rounded down, but at least one element. */
static shape shape_of(bench *b, uint64_t size)
{
    size_t unit = tutti_type_bytes(b->call.type);
    if (is_divided(b->call.coll))
        unit *= (size_t)b->call.n_ranks;
    size_t count = (size_t)(size / unit);
    if (!count && size)
        count = 1;
    if (b->call.coll == TUTTI_BARRIER)
        count = 0;
    b->call.count = count;
    shape s = {count * unit, 1, (count * unit + 63) / 64 * 64};
    if (b->rotate && s.size_bytes >= ROTATE_FROM)
        s.n_slots = b->pool_bytes / s.slot_bytes;
    return s;
}

static tutti_err run_size(bench *b, const shape *s)
{
    result r[2] = {{.is_known = false}, {.is_known = false}};
    for (int in_place = 0; in_place < 2; in_place++) {
        if (!b->wants[in_place])
            continue;
        tutti_err err = measure(b, s, in_place, &r[in_place]);
        if (err)
            return err;
        if (prints(b) && b->is_json)
            print_json(b, s, in_place, &r[in_place]);
        b->n_wrong += r[in_place].wrong;
        b->busbw_sum += r[in_place].busbw;
        b->n_rows++;
    }
    if (prints(b) && !b->is_json)
        print_row(b, s, r);
    return TUTTI_OK;
}

static uint64_t next_size(const bench *b, uint64_t size)
{
    if (b->step)
        return size + b->step;
    return size ? size * b->factor : 1;
}

static tutti_err run_sizes(bench *b)
{
    size_t last = SIZE_MAX;
    for (uint64_t size = b->least; size <= b->most; size = next_size(b, size)) {
        shape s = shape_of(b, size);
        if (s.size_bytes == last)
            continue;
        last = s.size_bytes;
        tutti_err err = run_size(b, &s);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

/* ---------------------------------------------------------------- set up -- */

static void *get_memory(const bench *b, size_t bytes)
{
    return b->uses_malloc ? calloc(1, bytes) : tutti_alloc(bytes);
}

static void free_memory(const bench *b, void *ptr)
{
    if (b->uses_malloc)
        free(ptr);
    else
        tutti_free(ptr);
}

/* Two pools per rank, larger than the caches when all ranks of this machine
 * can have that much, every page touched, filled with harmless values. */
static bool make_pools(bench *b)
{
    size_t unit = 8 * (size_t)b->call.n_ranks;
    b->pool_bytes = (b->most + unit + 63) / 64 * 64;
    double free_bytes = (double)sysconf(_SC_AVPHYS_PAGES) *
                        (double)sysconf(_SC_PAGESIZE);
    bool has_room = 4.0 * ROTATE_OVER * b->call.n_ranks < free_bytes;
    if (b->rotate && b->most >= ROTATE_FROM && b->pool_bytes < ROTATE_OVER &&
        has_room)
        b->pool_bytes = ROTATE_OVER;
    b->in = get_memory(b, b->pool_bytes);
    b->out = get_memory(b, b->pool_bytes);
    if (!b->in || !b->out)
        return false;
    bench_call all = b->call;
    all.coll = TUTTI_ALL_REDUCE;
    all.count = b->pool_bytes / tutti_type_bytes(all.type);
    bench_fill(&all, b->in);
    memcpy(b->out, b->in, b->pool_bytes);
    return true;
}

/* What only makes sense for some number of ranks. */
static const char *find_misuse(const bench *b)
{
    const bench_call *c = &b->call;
    if (cli_has_root(c->coll) && c->root >= c->n_ranks)
        return "--root is not a rank of this job";
    if (c->coll == TUTTI_SENDRECV && c->n_ranks < 2)
        return "send-recv needs two ranks or more: `tutti run -n 2 tutti bench "
               "send-recv`";
    if (cli_reduces(c->coll) && tutti_op_check(c->op, c->type))
        return "--op is not defined for this --type";
    return NULL;
}

static int run(bench *b)
{
    tutti_err err = tutti_comm_create(NULL, &b->comm);
    if (err)
        return cli_fail_err(b->self, "cannot start", err, tutti_last_message());
    b->call.rank = tutti_comm_rank(b->comm);
    b->call.n_ranks = tutti_comm_size(b->comm);
    int status = CLI_OK;
    const char *misuse = find_misuse(b);
    if (misuse && prints(b))
        cli_usage(b->self, "%s", misuse);
    if (misuse) {
        status = CLI_USAGE;
        goto out;
    }
    if (!make_pools(b)) {
        status = cli_fail(b->self, "out of memory: choose a smaller -e");
        goto out;
    }
    err = print_head(b);
    if (!err)
        err = run_sizes(b);
    if (err)
        status = cli_fail(b->self, "%s", tutti_comm_message(b->comm));
    else if (b->n_wrong)
        status = CLI_FAILED;
    print_foot(b, !err);
out:
    free_memory(b, b->in);
    free_memory(b, b->out);
    tutti_comm_destroy(b->comm);
    return status;
}

/* ------------------------------------------------------------- arguments -- */

/* The one word and what cannot be told from the options one by one. */
static int check_arguments(bench *b, const cli_words *words, const char *place,
                           uint64_t root)
{
    if (words->n > 1)
        return cli_usage(b->self, "give one collective at a time");
    if (words->n == 1 && tutti_coll_parse(words->at[0], &b->call.coll))
        return cli_usage(b->self,
                         "'%s' is no collective; these are: all-reduce, "
                         "reduce-scatter, all-gather, broadcast, reduce, "
                         "all-to-all, gather, scatter, barrier, send-recv",
                         words->at[0]);
    if (strcmp(place, "0") && strcmp(place, "1") && strcmp(place, "both"))
        return cli_usage(b->self, "--inplace is 0, 1 or both");
    if (root > INT32_MAX)
        return cli_usage(b->self, "--root is no rank");
    if (b->factor < 2)
        return cli_usage(b->self, "-f must be 2 or more");
    if (b->least > b->most)
        return cli_usage(b->self, "-b is more than -e");
    b->call.root = (int)root;
    b->wants[0] = strcmp(place, "1") != 0;
    b->wants[1] = strcmp(place, "0") != 0;
    if (b->call.coll == TUTTI_BARRIER) {
        b->least = b->most = 0;
        b->check = 0;
    }
    /* These two have no meaning in place. */
    if (b->call.coll == TUTTI_BARRIER || b->call.coll == TUTTI_SENDRECV) {
        b->wants[0] = true;
        b->wants[1] = false;
    }
    return CLI_OK;
}

int cmd_bench(const cli_command *self, int argc, char **argv)
{
    bench b = {.self = self,
               .call = {.type = TUTTI_F32, .op = TUTTI_SUM, .seed = 1},
               .least = 8,
               .most = 128 << 20,
               .factor = 2,
               .n_warmup = 5,
               .check = 1,
               .rotate = 1};
    const char *place = "both";
    uint64_t root = 0;
    uint64_t seed = 1;
    const cli_option options[] = {
        {"--min", "-b", CLI_SIZE, &b.least, "SIZE", "first size (8)"},
        {"--max", "-e", CLI_SIZE, &b.most, "SIZE", "last size (128MiB)"},
        {"--factor", "-f", CLI_COUNT, &b.factor, "N",
         "from one size to the next (2)"},
        {"--step", "-i", CLI_SIZE, &b.step, "SIZE",
         "add this instead of multiplying"},
        {"--iters", "-n", CLI_COUNT, &b.n_iters, "N",
         "repetitions (as many as fill 0.2 s, 5 to 1000)"},
        {"--warmup", "-w", CLI_COUNT, &b.n_warmup, "N",
         "repetitions before them (5)"},
        {"--type", "-d", CLI_TYPE, &b.call.type, "TYPE", "of elements (f32)"},
        {"--op", "-o", CLI_OP, &b.call.op, "OP", "of reductions (sum)"},
        {"--root", "-r", CLI_COUNT, &root, "RANK", "of rooted collectives (0)"},
        {"--inplace", NULL, CLI_TEXT, &place, "0|1|both",
         "out of place, in place, or both (both)"},
        {"--planner", "-p", CLI_TEXT, &b.planner, "PLANNER",
         "planner or rules by size (TUTTI_PLANNER)"},
        {"--check", "-c", CLI_COUNT, &b.check, "0|1", "check the results (1)"},
        {"--rotate", NULL, CLI_COUNT, &b.rotate, "0|1",
         "walk through more memory than caches hold, from 32KiB up (1)"},
        {"--seed", NULL, CLI_COUNT, &seed, "N", "of the random data (1)"},
        {"--malloc", NULL, CLI_FLAG, &b.uses_malloc, NULL,
         "buffers from malloc instead of tutti_alloc"},
        {"--json", "-J", CLI_FLAG, &b.is_json, NULL, "rows as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    b.call.seed = (uint32_t)seed;
    int status = check_arguments(&b, &words, place, root);
    return status ? status : run(&b);
}
