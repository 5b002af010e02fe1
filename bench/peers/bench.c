/* SPDX-License-Identifier: BSD-3-Clause
 *
 * bench.c - times all-reduce (f32, sum, out of place) by the library that
 * peer.h stands for, and checks what it returns.
 *
 *     bench -s BYTES:CALLS:WARMUP,... [-w WAY,...] [-x FACTOR] [-p MS] [-a]
 *           [-t] -o FILE
 *     bench -i SECONDS -o FILE
 *
 * For each size, in turn, each way (-w: some of the library's algorithms;
 * `all`; the library's own choice unless told) is warmed up and timed. Calls
 * are timed in batches. A batch uses each of K pairs of buffers once: as many
 * as make twice the last-level cache together, 64 MiB at least; for sizes below
 * 32 KiB 64 pairs, which cost no more than they would have to; always at least
 * one. Before each batch every rank writes all its inputs anew, all ranks meet,
 * pause (-p) and meet again; after it they meet, and every element of all
 * outputs is compared; none of this is timed. The time of a size is the mean
 * over its calls, of the slowest rank. The warm-ups of a way at a size end with
 * the batch in which a second has passed. Before all that the first way runs
 * for a second at the first size, untimed: processes that have just begun are
 * slower.
 *
 * -x drops a way that took more than FACTOR times the time of the quickest at a
 * size of 64 KiB or more from the larger sizes: bad algorithms take minutes on
 * slow networks. -a takes the buffers from the library (tutti_alloc,
 * MPI_Alloc_mem), not from malloc. -t makes a call a step of token_step()
 * below. -i measures, instead of times, the processor time that a rank uses
 * while it waits SECONDS for rank 0 that comes late.
 *
 * A row has the processor time of the timed calls, too: of all ranks together,
 * and what the kernel's own threads used meanwhile (cpu.h), per GB of the
 * vectors.
 *
 * Rank 0 writes rows of JSON, one a line, to FILE (a launcher may decorate
 * stdout). with_gloo.py is the same loop in Python: what is changed here is
 * changed there. docs/reference/bench.md defines the numbers. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu.h"
#include "data.h"
#include "peer.h"

enum { MAX_SIZES = 64, MAX_WAYS = 32, PAGE = 4096 };
enum { FEW_PAIRS = 64, MANY_FROM = 32 << 10, DROP_FROM = 64 << 10 };
enum { TOKEN_REDUCES = 96, TOKEN_GATHERED = 128 << 10 }; /* bytes */

/* What to do at one size. */
typedef struct job {
    size_t bytes;
    int n_calls, n_warmup;
} job;

typedef struct config {
    job jobs[MAX_SIZES];
    int n_jobs;
    const char *ways; /* comma-separated, or "all" */
    double drop_factor;
    int pause_ms;
    int own_memory; /* of the library */
    int is_token;
    double idle_s; /* > 0: measure waiting instead */
    const char *out_path;
} config;

typedef struct buffers {
    char *in, *out; /* of `bytes` each */
    size_t bytes;
    int n_pairs; /* at this size */
    size_t count, stride;
    float *part, *whole; /* of the all-gather of a step of a token */
    size_t part_count;
} buffers;

/* One way at one size. */
typedef struct result {
    double mean_s;
    double cpu_s, softirq_s; /* of all calls */
    int n_batches;
    uint64_t n_wrong;
} result;

static int n_batches_so_far; /* no two have the same data */

static void die(const char *text)
{
    fprintf(stderr, "bench: %s\n", text);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --------------------------------------------------------------- buffers -- */

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static char *get_memory(const config *c, size_t bytes)
{
    char *ptr = c->own_memory ? peer_alloc(bytes) : aligned_alloc(PAGE, bytes);
    if (!ptr)
        die("out of memory");
    memset(ptr, 0, bytes);
    return ptr;
}

static void get_buffers(const config *c, buffers *b)
{
    size_t most = c->is_token ? 0 : data_footprint() / 2;
    for (int i = 0; i < c->n_jobs; i++)
        most = c->jobs[i].bytes > most ? c->jobs[i].bytes : most;
    b->bytes = whole_pages(most) * (c->is_token ? TOKEN_REDUCES : 1);
    b->in = get_memory(c, b->bytes);
    b->out = get_memory(c, b->bytes);
    b->part_count = TOKEN_GATHERED / sizeof(float) / (size_t)peer_size();
    b->part = (float *)(void *)get_memory(c, whole_pages(TOKEN_GATHERED));
    b->whole = (float *)(void *)get_memory(c, whole_pages(TOKEN_GATHERED));
}

static void shape_buffers(const config *c, buffers *b, size_t bytes)
{
    b->count = bytes / sizeof(float);
    b->stride = whole_pages(bytes);
    if (c->is_token) {
        b->n_pairs = TOKEN_REDUCES;
        return;
    }
    size_t fit = data_footprint() / 2 / b->stride;
    if (bytes < MANY_FROM && fit > FEW_PAIRS)
        fit = FEW_PAIRS;
    b->n_pairs = fit < 1 ? 1 : (int)fit;
}

static float *in_of(const buffers *b, int pair)
{
    return (float *)(void *)(b->in + (size_t)pair * b->stride);
}

static float *out_of(const buffers *b, int pair)
{
    return (float *)(void *)(b->out + (size_t)pair * b->stride);
}

/* ----------------------------------------------------------- measurement -- */

/* What a decode step of a tensor-parallel model sends for one token: two
 * all-reduces of the hidden state for each of 48 layers, and an all-gather of
 * the logits. Every all-reduce has a pair of buffers of its own. */
static void token_step(buffers *b)
{
    for (int k = 0; k < b->n_pairs; k++)
        peer_all_reduce(in_of(b, k), out_of(b, k), b->count);
    peer_all_gather(b->part, b->whole, b->part_count);
}

/* Calls of a batch. */
static int batch_calls(const config *c, const buffers *b)
{
    return c->is_token ? 1 : b->n_pairs;
}

static data_place place_of(int pair)
{
    return (data_place){pair, n_batches_so_far};
}

/* What softirqs have used before it: looked up before the ranks meet, for that
 * takes longer than a small call. */
static double begin_batch(const config *c, buffers *b)
{
    n_batches_so_far++;
    for (int k = 0; k < b->n_pairs; k++)
        data_fill(in_of(b, k), b->count, peer_rank(), peer_size(), place_of(k));
    if (c->is_token)
        data_fill_part(b->part, b->part_count, peer_rank(), peer_size(),
                       place_of(b->n_pairs));
    if (c->pause_ms > 0) {
        peer_barrier();
        usleep((useconds_t)c->pause_ms * 1000);
    }
    double softirq_s = cpu_of_softirqs();
    peer_barrier();
    return softirq_s;
}

/* Of the first so many pairs; in a batch of a token's step, of everything. */
static uint64_t wrong_of(const config *c, const buffers *b, int n_pairs)
{
    uint64_t n_wrong = 0;
    for (int k = 0; k < n_pairs; k++)
        n_wrong += data_wrong(out_of(b, k), b->count, peer_size(), place_of(k));
    if (c->is_token)
        n_wrong += data_wrong_parts(b->whole, b->part_count, peer_size(),
                                    place_of(b->n_pairs));
    return n_wrong;
}

/* So many calls, timed; a token's step is one. Nobody goes on to check before
 * all have ended theirs: where ranks share a processor, that would be part of
 * the last call of another. */
static void time_calls(const config *c, buffers *b, int n, result *r)
{
    double used_s = cpu_of_process(), start_s = now_s();
    if (c->is_token)
        token_step(b);
    for (int k = 0; k < n && !c->is_token; k++)
        peer_all_reduce(in_of(b, k), out_of(b, k), b->count);
    r->mean_s += now_s() - start_s;
    r->cpu_s += cpu_of_process() - used_s;
    peer_barrier();
}

/* Runs n calls in batches. */
static result run_calls(const config *c, buffers *b, int n)
{
    result r = {0};
    for (int done = 0; done < n;) {
        int most = batch_calls(c, b);
        int now = n - done < most ? n - done : most;
        double softirq_s = begin_batch(c, b);
        time_calls(c, b, now, &r);
        r.softirq_s += cpu_of_softirqs() - softirq_s;
        r.n_batches++;
        done += now;
        r.n_wrong += wrong_of(c, b, c->is_token ? b->n_pairs : now);
    }
    r.mean_s /= n > 0 ? n : 1;
    return r;
}

/* Most time for the warm-ups of a process, of a way at a size, and for using
 * every buffer once before it counts. */
static const double once_s = 1;

/* n calls, or as many batches as take that long. */
static result warm_way(const config *c, buffers *b, int n)
{
    int most = batch_calls(c, b), done = 0;
    double start_s = now_s(), passed_s = 0;
    result r = {0};
    while (done < n && passed_s < once_s) {
        int now = n - done < most ? n - done : most;
        result batch = run_calls(c, b, now);
        r.mean_s = batch.mean_s; /* of the last */
        r.n_wrong += batch.n_wrong;
        done += now;
        passed_s = peer_max(now_s() - start_s);
    }
    return r;
}

/* Every buffer has been used before, if that does not take long: a library that
 * maps those of other processes does so once, as in a program that keeps its
 * buffers. */
static result measure(const config *c, buffers *b, const job *j)
{
    int all = batch_calls(c, b);
    result warm = warm_way(c, b, j->n_warmup);
    uint64_t n_wrong = warm.n_wrong;
    if (all > j->n_warmup && peer_max(warm.mean_s) * all < once_s)
        n_wrong += run_calls(c, b, all).n_wrong;
    result r = run_calls(c, b, j->n_calls);
    r.mean_s = peer_max(r.mean_s);
    r.cpu_s = peer_sum(r.cpu_s);
    r.softirq_s = peer_max(r.softirq_s);
    r.n_wrong = (uint64_t)peer_max((double)(r.n_wrong + n_wrong));
    return r;
}

/* Of the vectors of one call. */
static double call_bytes(const config *c, const job *j)
{
    double bytes = (double)j->bytes;
    return c->is_token ? bytes * TOKEN_REDUCES + TOKEN_GATHERED : bytes;
}

static void print_row(const config *c, FILE *out, int way, const job *j,
                      const result *r)
{
    const char *choice = peer_choice(j->bytes / sizeof(float));
    double n = peer_size();
    double bytes = call_bytes(c, j), all_gb = bytes * j->n_calls * 1e-9;
    double algbw = bytes / r->mean_s * 1e-9;
    char busbw[32] = "null"; /* of a step, which is no one collective */
    if (!out)
        return;
    if (!c->is_token)
        snprintf(busbw, sizeof busbw, "%.6g", algbw * 2 * (n - 1) / n);
    fprintf(out,
            "{\"collective\": \"%s\", \"n_ranks\": %d, \"way\": "
            "\"%s\", \"choice\": %s%s%s, \"size_bytes\": %zu, \"type\": "
            "\"f32\", \"op\": \"sum\", \"calls\": %d, \"batches\": %d, "
            "\"time_us\": %.4f, \"algbw_GBps\": %.6g, \"busbw_GBps\": %s, "
            "\"cpu_s_per_GB\": %.6g, \"softirq_s_per_GB\": %.6g, "
            "\"wrong\": %" PRIu64 "}\n",
            c->is_token ? "token" : "all-reduce", peer_size(), peer_way(way),
            choice ? "\"" : "", choice ? choice : "null", choice ? "\"" : "",
            j->bytes, j->n_calls, r->n_batches, r->mean_s * 1e6, algbw, busbw,
            r->cpu_s / all_gb, r->softirq_s / all_gb, r->n_wrong);
    fflush(out);
}

/* Is the way one of those that are asked for? */
static int is_wanted(const config *c, int way)
{
    const char *name = peer_way(way);
    size_t len = strlen(name);
    if (!c->ways)
        return way == 0;
    if (strcmp(c->ways, "all") == 0)
        return 1;
    for (const char *at = c->ways; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || !at[len]))
            return 1;
    }
    return 0;
}

static int first_of(const int *wanted)
{
    for (int w = 0; w < MAX_WAYS; w++)
        if (wanted[w])
            return w;
    return 0;
}

static void measure_all(const config *c, FILE *out)
{
    static buffers b;
    int wanted[MAX_WAYS] = {0};
    double times_s[MAX_WAYS];
    get_buffers(c, &b);
    for (int w = 0; w < MAX_WAYS && peer_way(w); w++)
        wanted[w] = is_wanted(c, w);
    peer_use(first_of(wanted));
    shape_buffers(c, &b, c->jobs[0].bytes);
    warm_way(c, &b, INT_MAX);
    for (int i = 0; i < c->n_jobs; i++) {
        const job *j = &c->jobs[i];
        double least_s = 1e30;
        shape_buffers(c, &b, j->bytes);
        for (int w = 0; w < MAX_WAYS; w++) {
            if (!wanted[w])
                continue;
            peer_use(w);
            result r = measure(c, &b, j);
            times_s[w] = r.mean_s;
            least_s = r.mean_s < least_s ? r.mean_s : least_s;
            print_row(c, out, w, j, &r);
        }
        for (int w = 0; w < MAX_WAYS && c->drop_factor > 0; w++)
            wanted[w] = wanted[w] && (j->bytes < DROP_FROM ||
                                      times_s[w] <= c->drop_factor * least_s);
    }
}

static void measure_idle(const config *c, FILE *out)
{
    float in[2] = {1, 2}, sum[2];
    peer_use(0);
    peer_all_reduce(in, sum, 2);
    peer_barrier();
    double start_s = now_s(), start_cpu_s = cpu_of_process();
    if (peer_rank() == 0)
        usleep((useconds_t)(c->idle_s * 1e6));
    peer_all_reduce(in, sum, 2);
    double share = (cpu_of_process() - start_cpu_s) / (now_s() - start_s);
    double worst = peer_max(peer_rank() == 0 ? 0 : share);
    if (out)
        fprintf(out, "{\"n_ranks\": %d, \"idle_s\": %g, \"cpu\": %.4f}\n",
                peer_size(), c->idle_s, worst);
}

/* --------------------------------------------------------------- options -- */

static int read_jobs(char *text, config *c)
{
    for (char *at = strtok(text, ","); at; at = strtok(NULL, ",")) {
        job j;
        if (c->n_jobs == MAX_SIZES ||
            sscanf(at, "%zu:%d:%d", &j.bytes, &j.n_calls, &j.n_warmup) != 3 ||
            j.bytes < sizeof(float) || j.n_calls < 1 || j.n_warmup < 0)
            return 0;
        c->jobs[c->n_jobs++] = j;
    }
    return c->n_jobs > 0;
}

static int read_options(int argc, char **argv, config *c)
{
    int is_good = 1;
    for (int opt; (opt = getopt(argc, argv, "s:w:x:p:i:o:at")) != -1;) {
        switch (opt) {
        case 's':
            is_good &= read_jobs(optarg, c);
            break;
        case 'w':
            c->ways = optarg;
            break;
        case 'x':
            c->drop_factor = strtod(optarg, NULL);
            break;
        case 'p':
            c->pause_ms = (int)strtol(optarg, NULL, 10);
            break;
        case 'i':
            c->idle_s = strtod(optarg, NULL);
            break;
        case 'o':
            c->out_path = optarg;
            break;
        case 'a':
            c->own_memory = 1;
            break;
        case 't':
            c->is_token = 1;
            break;
        default:
            return 0;
        }
    }
    return is_good && c->out_path && (c->n_jobs > 0 || c->idle_s > 0);
}

int main(int argc, char **argv)
{
    static config c;
    peer_start(&argc, &argv);
    if (!read_options(argc, argv, &c))
        die("usage: bench -s BYTES:CALLS:WARMUP,... [-w WAYS] [-x FACTOR] "
            "[-p MS] [-a] [-t] -o FILE");
    FILE *out = NULL;
    if (peer_rank() == 0 && !(out = fopen(c.out_path, "w")))
        die("the output file cannot be written");
    if (c.idle_s > 0)
        measure_idle(&c, out);
    else
        measure_all(&c, out);
    if (out) {
        fprintf(out, "{\"done\": true}\n");
        fclose(out);
    }
    peer_stop();
    return 0;
}
