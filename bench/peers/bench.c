/* SPDX-License-Identifier: BSD-3-Clause
 *
 * bench.c - times all-reduce (f32, sum, out of place) by the library that
 * peer.h stands for, and checks what it returns.
 *
 *     bench -s BYTES:CALLS:WARMUP,... [-w WAY,...] [-x FACTOR] [-p MS] [-a]
 *           -o FILE
 *     bench -i SECONDS -o FILE
 *
 * For each size, in turn, each way (-w: some of the library's algorithms;
 * `all`; the library's own choice unless told) is warmed up and timed. Calls
 * are timed in batches. A batch uses each of K pairs of buffers once: as many
 * as make twice the last-level cache together, 64 MiB at least; for sizes below
 * 32 KiB 64 pairs, which cost no more than they would have to; always at least
 * one. Before each batch every rank writes all its inputs anew, all ranks meet,
 * pause (-p) and meet again; after it every element of all outputs is compared;
 * none of this is timed. The time of a size is the mean over its calls, of the
 * slowest rank. Before all that the first way runs for a second at the first
 * size, untimed: processes that have just begun are slower.
 *
 * -x drops a way that took more than FACTOR times the time of the quickest at a
 * size of 64 KiB or more from the larger sizes: bad algorithms take minutes on
 * slow networks. -a takes the buffers from the library (tutti_alloc,
 * MPI_Alloc_mem), not from malloc. -i measures, instead of times, the processor
 * time that a rank uses while it waits SECONDS for rank 0 that comes late.
 *
 * Rank 0 writes rows of JSON, one a line, to FILE (a launcher may decorate
 * stdout). with_gloo.py is the same loop in Python: what is changed here is
 * changed there. docs/reference/bench.md defines the numbers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "data.h"
#include "peer.h"

enum { MAX_SIZES = 64, MAX_WAYS = 32, PAGE = 4096 };
static const double warm_s = 1;
enum { FEW_PAIRS = 64, MANY_FROM = 32 << 10, DROP_FROM = 64 << 10 };

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
    double idle_s;  /* > 0: measure waiting instead */
    const char *out_path;
} config;

typedef struct buffers {
    char *in, *out; /* of `bytes` each */
    size_t bytes;
    int n_pairs; /* at this size */
    size_t count, stride;
} buffers;

/* One way at one size. */
typedef struct result {
    double mean_s;
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

/* Processor time of the whole process, its threads included. */
static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* --------------------------------------------------------------- buffers -- */

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
    size_t most = data_footprint() / 2;
    for (int i = 0; i < c->n_jobs; i++)
        most = c->jobs[i].bytes > most ? c->jobs[i].bytes : most;
    b->bytes = (most + PAGE - 1) / PAGE * PAGE;
    b->in = get_memory(c, b->bytes);
    b->out = get_memory(c, b->bytes);
}

static void shape_buffers(buffers *b, size_t bytes)
{
    b->count = bytes / sizeof(float);
    b->stride = (bytes + PAGE - 1) / PAGE * PAGE;
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

static void begin_batch(const config *c, buffers *b)
{
    n_batches_so_far++;
    for (int k = 0; k < b->n_pairs; k++)
        data_fill(in_of(b, k), b->count, peer_rank(), peer_size(),
                  (data_place){k, n_batches_so_far});
    peer_barrier();
    if (c->pause_ms > 0) {
        usleep((useconds_t)c->pause_ms * 1000);
        peer_barrier();
    }
}

/* Runs n calls in batches. */
static result run_calls(const config *c, buffers *b, int n)
{
    result r = {0, 0, 0};
    int done = 0;
    while (done < n) {
        int now = n - done < b->n_pairs ? n - done : b->n_pairs;
        begin_batch(c, b);
        double start_s = now_s();
        for (int k = 0; k < now; k++)
            peer_all_reduce(in_of(b, k), out_of(b, k), b->count);
        r.mean_s += (now_s() - start_s) / n;
        r.n_batches++;
        done += now;
        for (int k = 0; k < now; k++)
            r.n_wrong += data_wrong(out_of(b, k), b->count, peer_size(),
                                    (data_place){k, n_batches_so_far});
    }
    return r;
}

/* Most time for using every buffer once before it counts. */
static const double once_s = 1;

/* Every buffer has been used before, if that does not take long: a library that
 * maps those of other processes does so once, as in a program that keeps its
 * buffers. */
static result measure(const config *c, buffers *b, const job *j)
{
    result warm = run_calls(c, b, j->n_warmup);
    uint64_t n_wrong = warm.n_wrong;
    if (b->n_pairs > j->n_warmup && peer_max(warm.mean_s) * b->n_pairs < once_s)
        n_wrong += run_calls(c, b, b->n_pairs).n_wrong;
    result r = run_calls(c, b, j->n_calls);
    r.mean_s = peer_max(r.mean_s);
    r.n_wrong = (uint64_t)peer_max((double)(r.n_wrong + n_wrong));
    return r;
}

static void print_row(FILE *out, int way, const job *j, const result *r)
{
    const char *choice = peer_choice(j->bytes / sizeof(float));
    double n = peer_size();
    double algbw = (double)j->bytes / r->mean_s * 1e-9;
    if (!out)
        return;
    fprintf(out,
            "{\"collective\": \"all-reduce\", \"n_ranks\": %d, \"way\": "
            "\"%s\", \"choice\": %s%s%s, \"size_bytes\": %zu, \"type\": "
            "\"f32\", \"op\": \"sum\", \"calls\": %d, \"batches\": %d, "
            "\"time_us\": %.4f, \"algbw_GBps\": %.6g, \"busbw_GBps\": %.6g, "
            "\"wrong\": %" PRIu64 "}\n",
            peer_size(), peer_way(way), choice ? "\"" : "",
            choice ? choice : "null", choice ? "\"" : "", j->bytes, j->n_calls,
            r->n_batches, r->mean_s * 1e6, algbw, algbw * 2 * (n - 1) / n,
            r->n_wrong);
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

/* Rank 0's clock counts. */
static void warm_up(const config *c, buffers *b, const job *j)
{
    double start_s = now_s(), passed_s = 0;
    shape_buffers(b, j->bytes);
    while (passed_s < warm_s) {
        run_calls(c, b, j->n_warmup);
        passed_s = peer_max(peer_rank() == 0 ? now_s() - start_s : 0);
    }
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
    warm_up(c, &b, &c->jobs[0]);
    for (int i = 0; i < c->n_jobs; i++) {
        const job *j = &c->jobs[i];
        double least_s = 1e30;
        shape_buffers(&b, j->bytes);
        for (int w = 0; w < MAX_WAYS; w++) {
            if (!wanted[w])
                continue;
            peer_use(w);
            result r = measure(c, &b, j);
            times_s[w] = r.mean_s;
            least_s = r.mean_s < least_s ? r.mean_s : least_s;
            print_row(out, w, j, &r);
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
    double start_s = now_s(), start_cpu_s = cpu_s();
    if (peer_rank() == 0)
        usleep((useconds_t)(c->idle_s * 1e6));
    peer_all_reduce(in, sum, 2);
    double share = (cpu_s() - start_cpu_s) / (now_s() - start_s);
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
    for (int opt; (opt = getopt(argc, argv, "s:w:x:p:i:o:a")) != -1;) {
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
            "[-p MS] [-a] -o FILE");
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
