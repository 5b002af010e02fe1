/* SPDX-License-Identifier: BSD-3-Clause
 * bench.c - `tutti bench`: how fast a collective is, and whether it is right.
 *
 * What is measured  For each size: the result is checked once, the call is
 *   warmed up, then repeated (bench_measure.c).
 * Figures    size is the whole vector (nccl-tests' meaning: of all ranks for
 *   gathering and scattering collectives); algbw = size / time; busbw = algbw
 *   times the factor of cli_bus_factor(). GB is 1e9 bytes. On a known network
 *   (--topology) also what was predicted, and optimum / time (bench_network.c).
 * Next       bench_measure.c, bench_print.c. */
#include "bench.h"

#include <string.h>

static tutti_err run_size(bench *b, const bench_shape *s)
{
    const bench_promise promise = bench_network_promise(b, s);
    bench_result r[2] = {{.is_known = false}, {.is_known = false}};
    for (int in_place = 0; in_place < 2; in_place++) {
        if (!b->wants[in_place])
            continue;
        tutti_err err = bench_measure(b, s, in_place, &r[in_place]);
        cli_progress_end(&b->progress);
        if (err)
            return err;
        if (bench_prints(b) && b->is_json)
            bench_print_json(b, s, &promise, in_place, &r[in_place]);
        b->n_wrong += r[in_place].wrong;
        b->busbw_sum += r[in_place].busbw;
        b->n_rows++;
    }
    if (bench_prints(b) && !b->is_json)
        bench_print_row(b, s, &promise, r);
    return TUTTI_OK;
}

static uint64_t next_size(const bench *b, uint64_t size)
{
    if (b->step)
        return size + b->step;
    return size ? size * b->factor : 1;
}

/* For the progress: nobody waits for the end of more. */
enum { MOST_COUNTED = 1 << 20 };

static tutti_err run_sizes(bench *b)
{
    size_t last = SIZE_MAX;
    uint64_t n_sizes = 0, n_done = 0;
    for (uint64_t size = b->least; size <= b->most && n_sizes < MOST_COUNTED;
         size = next_size(b, size))
        n_sizes++;
    cli_progress_begin(&b->progress);
    for (uint64_t size = b->least; size <= b->most; size = next_size(b, size)) {
        bench_shape s = bench_shape_of(b, size);
        if (s.size_bytes == last)
            continue;
        last = s.size_bytes;
        if (bench_prints(b))
            cli_progress_tell(&b->progress, "sizes", n_done, n_sizes);
        n_done++;
        tutti_err err = run_size(b, &s);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

/* What only makes sense for some number of ranks. */
static const char *find_misuse(const bench *b)
{
    const ref_call *c = &b->call;
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
    int status = bench_network_set(b);
    if (status)
        return status;
    tutti_err err = tutti_comm_create(NULL, &b->comm);
    if (err)
        return cli_fail_err(b->self, "cannot start", err, tutti_last_message());
    b->call.rank = tutti_comm_rank(b->comm);
    b->call.n_ranks = tutti_comm_size(b->comm);
    const char *misuse = find_misuse(b);
    if (misuse && bench_prints(b))
        cli_usage(b->self, "%s", misuse);
    if (misuse) {
        status = CLI_USAGE;
        goto out;
    }
    if (!bench_make_pools(b)) {
        status = cli_fail(b->self, "out of memory: choose a smaller -e");
        goto out;
    }
    if (!bench_network_open(b)) {
        status = CLI_FAILED;
        goto out;
    }
    err = bench_print_head(b);
    if (!err)
        err = run_sizes(b);
    if (err)
        status = cli_fail(b->self, "%s", tutti_comm_message(b->comm));
    else if (b->n_wrong)
        status = CLI_FAILED;
    bench_print_foot(b, !err);
out:
    bench_free_pools(b);
    bench_network_close(b);
    tutti_comm_destroy(b->comm);
    return status;
}

/* ------------------------------------------------------------- arguments -- */

/* The one word and what cannot be told from the options one by one. */
static int check_arguments(bench *b, const cli_words *words, const char *place)
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
    if (b->factor < 2)
        return cli_usage(b->self, "-f must be 2 or more");
    if (b->step == 0)
        return cli_usage(b->self, "-i must be more than nothing");
    if (b->step == UINT64_MAX)
        b->step = 0;
    if (b->least > b->most)
        return cli_usage(b->self, "-b is more than -e");
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
               .step = UINT64_MAX, /* not given */
               .n_warmup = 5,
               .check = 1,
               .rotate = 1};
    const char *place = "both";
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
        {"--root", "-r", CLI_RANK, &b.call.root, "RANK",
         "of rooted collectives (0)"},
        {"--inplace", NULL, CLI_TEXT, &place, "0|1|both",
         "out of place, in place, or both (both)"},
        {"--planner", "-p", CLI_TEXT, &b.planner, "PLANNER",
         "planner or rules by size (TUTTI_PLANNER)"},
        {"--topology", "-t", CLI_TEXT, &b.network.spec, "SPEC",
         "plan for this network (auto: as measured), and compare with its "
         "optimum"},
        {"--burst", NULL, CLI_SIZE, &b.network.burst, "SIZE",
         "predict for links that are token buckets of this size (0)"},
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
    int status = check_arguments(&b, &words, place);
    return status ? status : run(&b);
}
