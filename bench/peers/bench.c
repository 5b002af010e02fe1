/* SPDX-License-Identifier: BSD-3-Clause
 *
 * bench.c - times all-reduce (f32, sum, out of place) by the library that
 * peer.h stands for, and checks what it returns.
 *
 *     bench -b BYTES -e BYTES -n CALLS -w WARMUP [-a] -o FILE
 *     bench -i SECONDS -o FILE
 *
 * For each size from -b to -e, doubling, CALLS calls are timed, in batches.
 * A batch uses each of K pairs of buffers once: as many as make 64 MiB
 * together (above any cache of the machines in mind), at most 64, at least
 * one. Before each batch every rank writes all its inputs anew and all ranks
 * meet at a barrier; neither is timed. The time of a size is the mean over its
 * calls, of the slowest rank. Inputs are random integers small enough for
 * their sum to be exact in any order; after the warm-up and at the end every
 * element of every output of the last batch is compared.
 *
 * -a takes the buffers from the library (tutti_alloc, MPI_Alloc_mem), not from
 * malloc. -i measures, instead of times, the processor time that a rank uses
 * while it waits SECONDS in an all-reduce for rank 0 that comes late.
 *
 * Rank 0 writes rows of JSON, one a line, to FILE (a launcher may decorate
 * stdout). docs/bench.md defines the numbers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

enum { MAX_PAIRS = 64, PAGE = 4096 };
static const size_t footprint_bytes = (size_t)64 << 20;

struct config {
    size_t min_bytes, max_bytes;
    int n_calls, n_warmup;
    int own_memory; /* of the library */
    double idle_s;  /* > 0: measure waiting instead */
    const char *out_path;
};

struct buffers {
    float *in[MAX_PAIRS], *out[MAX_PAIRS];
    int n_pairs;
    size_t count; /* elements of each */
};

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

/* The element i that `rank` puts into its buffer `pair` of batch `batch`: an
 * integer of 11 bits, so that 2^13 ranks add up exactly in f32. */
static float element(int rank, int pair, int batch, size_t i)
{
    uint32_t seed = (uint32_t)rank * 0x9E3779B1u ^
                    (uint32_t)pair * 0x85EBCA77u ^
                    (uint32_t)batch * 0xC2B2AE3Du;
    uint32_t x = ((uint32_t)i + seed) * 0x27D4EB2Fu;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    return (float)((int)(x >> 21) - 1024);
}

static void fill(struct buffers *b, int batch)
{
    int rank = peer_rank();
    for (int k = 0; k < b->n_pairs; k++)
        for (size_t i = 0; i < b->count; i++)
            b->in[k][i] = element(rank, k, batch, i);
}

/* How many elements of the first n outputs are not the sum. */
static uint64_t count_wrong(const struct buffers *b, int n, int batch)
{
    uint64_t n_wrong = 0;
    int n_ranks = peer_size();
    for (int k = 0; k < n; k++) {
        for (size_t i = 0; i < b->count; i++) {
            float sum = 0;
            for (int r = 0; r < n_ranks; r++)
                sum += element(r, k, batch, i);
            n_wrong += b->out[k][i] != sum;
        }
    }
    return n_wrong;
}

static float *get_memory(const struct config *c, size_t bytes)
{
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    float *ptr = c->own_memory ? peer_alloc(whole) : aligned_alloc(PAGE, whole);
    if (!ptr)
        die("out of memory");
    memset(ptr, 0, whole);
    return ptr;
}

/* Buffers for the largest size; smaller ones use their beginnings. */
static void get_buffers(const struct config *c, struct buffers *b)
{
    for (int k = 0; k < MAX_PAIRS; k++) {
        /* Pair k serves only sizes of which k pairs fit the footprint. */
        size_t bytes = k ? footprint_bytes / 2 / (size_t)k : c->max_bytes;
        if (bytes > c->max_bytes)
            bytes = c->max_bytes;
        b->in[k] = get_memory(c, bytes);
        b->out[k] = get_memory(c, bytes);
    }
}

/* Runs n calls in batches; returns the seconds they took, on this rank. */
static double run_calls(struct buffers *b, int n, int *batch, uint64_t *n_wrong)
{
    double total_s = 0;
    int done = 0;
    while (done < n) {
        int now = n - done < b->n_pairs ? n - done : b->n_pairs;
        fill(b, ++*batch);
        peer_barrier();
        double start_s = now_s();
        for (int k = 0; k < now; k++)
            peer_all_reduce(b->in[k], b->out[k], b->count);
        total_s += now_s() - start_s;
        done += now;
        if (done == n)
            *n_wrong += count_wrong(b, now, *batch);
    }
    return total_s;
}

static void measure_size(const struct config *c, struct buffers *b,
                         size_t bytes, FILE *out)
{
    size_t fit = footprint_bytes / 2 / bytes;
    b->n_pairs = fit < 1 ? 1 : fit > MAX_PAIRS ? MAX_PAIRS : (int)fit;
    b->count = bytes / sizeof(float);
    int batch = 0;
    uint64_t n_wrong = 0;
    run_calls(b, c->n_warmup, &batch, &n_wrong);
    double mean_s = run_calls(b, c->n_calls, &batch, &n_wrong) / c->n_calls;
    double worst_s = peer_max(mean_s);
    double n_wrong_max = peer_max((double)n_wrong);
    if (!out)
        return;
    double n = peer_size();
    double algbw = (double)bytes / worst_s * 1e-9;
    fprintf(out,
            "{\"collective\": \"all-reduce\", \"n_ranks\": %d, "
            "\"size_bytes\": %zu, \"count\": %zu, \"type\": \"f32\", "
            "\"op\": \"sum\", \"inplace\": false, \"calls\": %d, "
            "\"time_us\": %.4f, \"algbw_GBps\": %.6g, \"busbw_GBps\": %.6g, "
            "\"wrong\": %.0f}\n",
            peer_size(), bytes, b->count, c->n_calls, worst_s * 1e6, algbw,
            algbw * 2 * (n - 1) / n, n_wrong_max);
    fflush(out);
}

static void measure_idle(const struct config *c, FILE *out)
{
    float in[2] = {1, 2}, sum[2];
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

static int read_options(int argc, char **argv, struct config *c)
{
    for (int opt; (opt = getopt(argc, argv, "b:e:n:w:i:o:a")) != -1;) {
        switch (opt) {
        case 'b':
            c->min_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'e':
            c->max_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            c->n_calls = (int)strtol(optarg, NULL, 10);
            break;
        case 'w':
            c->n_warmup = (int)strtol(optarg, NULL, 10);
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
    return c->out_path && c->min_bytes >= sizeof(float) &&
           c->max_bytes >= c->min_bytes && c->n_calls > 0 && c->n_warmup > 0;
}

int main(int argc, char **argv)
{
    static struct buffers b;
    struct config c = {
        .min_bytes = 8, .max_bytes = 8, .n_calls = 1, .n_warmup = 1};
    peer_start(&argc, &argv);
    if (!read_options(argc, argv, &c))
        die("usage: bench -b BYTES -e BYTES -n CALLS -w WARMUP [-a] -o FILE");
    FILE *out = NULL;
    if (peer_rank() == 0 && !(out = fopen(c.out_path, "w")))
        die("the output file cannot be written");
    if (c.idle_s > 0) {
        measure_idle(&c, out);
    } else {
        get_buffers(&c, &b);
        for (size_t bytes = c.min_bytes; bytes <= c.max_bytes; bytes *= 2)
            measure_size(&c, &b, bytes, out);
    }
    if (out)
        fclose(out);
    peer_stop();
    return 0;
}
