/* SPDX-License-Identifier: BSD-3-Clause
 *
 * roofline.c - the fastest all-reduce that this machine's memory permits.
 *
 *     roofline [--ranks N] [--min BYTES] [--max BYTES] [--rounds R] [--json]
 *
 * No library, no messages: N processes, each bound to a core, with all buffers
 * in shared memory. Of every vector (f32) each rank
 *
 *   1. reads its share (1/N) of all N inputs and writes the sum to its output,
 *   2. copies the other shares from the others' outputs to its own,
 *
 * which is the least work for a rank that may read the others' memory: for 2
 * ranks it reads two halves, writes one and copies one. It works slice by
 * slice, so that what is copied may still lie in the cache, and says how far it
 * is in one word. Or, where it may write the others' memory too ("put"), it
 *
 *   1. reads its share of all N inputs and writes the sum to all N outputs,
 *
 * line by line, and nothing else: every input is read once, every result
 * written once. Ranks begin and end every call together, as an all-reduce
 * must: inputs may change after it, outputs may be read.
 *
 * Every size is measured in every variant: slices of 128 KiB up to the whole
 * share; ordinary stores, non-temporal stores for what is copied, and for the
 * sum too; put with ordinary and with non-temporal stores; out of place and in
 * place. The best of each kind of store is
 * printed, and the best of all is the roofline; --json has every variant. As
 * in bench.c buffers rotate so that a batch of calls uses twice the last-level
 * cache of each rank's memory (data.h), every input is written anew before a
 * batch, every output is checked after it, and a time is the mean over the
 * calls of a batch, of the slowest rank; here the median of R batches counts.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "data.h"

#if defined(__SSE2__)
#include <immintrin.h>
#define HAS_STREAMS 1
#else
#define HAS_STREAMS 0
#endif

enum { MAX_RANKS = 64, MAX_ROUNDS = 99, LINE = 16 /*floats*/ };

enum stores { PLAIN, STREAM_COPY, STREAM_ALL, PUT, STREAM_PUT, N_STORES };
static const char *const store_names[] = {"plain", "nt-copy", "nt-all", "put",
                                          "nt-put"};
/* 0: the whole share is one slice. */
static const size_t slice_sizes[] = {128 << 10, 512 << 10, 2 << 20, 0};
enum { N_SLICES = sizeof(slice_sizes) / sizeof(slice_sizes[0]) };

/* What one rank tells the others: each member is written by it alone. */
struct progress {
    _Alignas(128) _Atomic uint64_t entered; /* calls */
    _Alignas(128) _Atomic uint64_t reduced; /* slices */
    _Alignas(128) _Atomic uint64_t left;    /* calls */
    _Alignas(128) double mean_s;
    uint64_t n_wrong;
};

struct job {
    int n_ranks, n_rounds;
    bool is_crowded, as_json;
    size_t min_bytes, max_bytes;
    struct progress *progress; /* [n_ranks] */
    float *memory[MAX_RANKS];  /* per rank: in, out, in, out, ... */
};

struct variant {
    enum stores stores;
    size_t slice_bytes;
    bool in_place;
};

struct rank {
    const struct job *job;
    int rank;
    uint64_t n_meetings, n_calls, n_slices; /* so far */
};

struct result {
    double time_s;
    struct variant variant;
};

static void die(const char *text)
{
    fprintf(stderr, "roofline: %s: %s\n", text, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* -------------------------------------------------------------- the work -- */

#if defined(__clang__)
#define VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTORISE _Pragma("GCC ivdep")
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && \
    (!defined(__clang__) || __clang_major__ >= 14)
#define CLONES __attribute__((target_clones("default", "avx2")))
#else
#define CLONES
#endif

/* to may be a. */
CLONES static void add_plain(float *to, const float *a, const float *b,
                             size_t n)
{
    VECTORISE
    for (size_t i = 0; i < n; i++)
        to[i] = a[i] + b[i];
}

/* Whole lines, with stores that do not first read what they overwrite. */
static void add_stream(float *to, const float *a, const float *b, size_t n)
{
#if HAS_STREAMS
    for (size_t i = 0; i < n; i += LINE)
        for (size_t k = i; k < i + LINE; k += 4)
            _mm_stream_ps(to + k,
                          _mm_add_ps(_mm_load_ps(a + k), _mm_load_ps(b + k)));
    _mm_sfence();
#else
    add_plain(to, a, b, n);
#endif
}

/* To be followed by fence_stream(). */
static void copy_stream(float *to, const float *from, size_t n)
{
#if HAS_STREAMS
    for (size_t i = 0; i < n; i += LINE)
        for (size_t k = i; k < i + LINE; k += 4)
            _mm_stream_ps(to + k, _mm_load_ps(from + k));
#else
    memcpy(to, from, n * sizeof(float));
#endif
}

static void fence_stream(void)
{
#if HAS_STREAMS
    _mm_sfence();
#endif
}

static void wait_for(const struct job *job, _Atomic uint64_t *word,
                     uint64_t least)
{
    while (atomic_load_explicit(word, memory_order_acquire) < least) {
        if (job->is_crowded)
            sched_yield();
#if HAS_STREAMS
        else
            _mm_pause();
#endif
    }
}

static void wait_for_all(const struct job *job, size_t member, uint64_t least)
{
    for (int r = 0; r < job->n_ranks; r++)
        wait_for(job, (void *)((char *)&job->progress[r] + member), least);
}

static void say(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static void meet(struct rank *me)
{
    say(&me->job->progress[me->rank].entered, ++me->n_meetings);
    wait_for_all(me->job, offsetof(struct progress, entered), me->n_meetings);
}

/* Where slice k of K of rank r's share begins, in elements: a whole line. */
static size_t border(const struct job *job, size_t count, int r, size_t k,
                     size_t n_slices)
{
    size_t lines = count / LINE;
    size_t first = lines * (size_t)r / (size_t)job->n_ranks;
    size_t last = lines * (size_t)(r + 1) / (size_t)job->n_ranks;
    return (first + (last - first) * k / n_slices) * LINE;
}

struct call {
    float *in[MAX_RANKS], *out[MAX_RANKS]; /* of every rank */
    size_t count, n_slices;
    enum stores stores;
};

static void reduce_slice(const struct rank *me, const struct call *c, size_t k)
{
    const struct job *job = me->job;
    size_t first = border(job, c->count, me->rank, k, c->n_slices);
    size_t n = border(job, c->count, me->rank, k + 1, c->n_slices) - first;
    float *to = c->out[me->rank] + first;
    const float *a = c->in[me->rank] + first; /* own first: to may be a */
    for (int i = 1; i < job->n_ranks; i++) {
        const float *b = c->in[(me->rank + i) % job->n_ranks] + first;
        bool is_last = i == job->n_ranks - 1;
        if (is_last && c->stores == STREAM_ALL)
            add_stream(to, a, b, n);
        else
            add_plain(to, a, b, n);
        a = to;
    }
}

static void copy_slices(const struct rank *me, const struct call *c, size_t k)
{
    const struct job *job = me->job;
    for (int i = 1; i < job->n_ranks; i++) {
        int r = (me->rank + i) % job->n_ranks;
        size_t first = border(job, c->count, r, k, c->n_slices);
        size_t n = border(job, c->count, r, k + 1, c->n_slices) - first;
        wait_for(job, &job->progress[r].reduced, me->n_slices + k + 1);
        if (c->stores == PLAIN)
            memcpy(c->out[me->rank] + first, c->out[r] + first,
                   n * sizeof(float));
        else
            copy_stream(c->out[me->rank] + first, c->out[r] + first, n);
        fence_stream();
    }
}

/* Reads and stores alternate as finely as can be: a line of the sum stays in
 * registers. */
static void put_line(float *const *out, const float *const *in, int n, size_t i,
                     bool streams)
{
#if HAS_STREAMS
    __m128 sum[LINE / 4];
    for (int q = 0; q < LINE / 4; q++)
        sum[q] = _mm_load_ps(in[0] + i + 4 * q);
    for (int r = 1; r < n; r++)
        for (int q = 0; q < LINE / 4; q++)
            sum[q] = _mm_add_ps(sum[q], _mm_load_ps(in[r] + i + 4 * q));
    for (int r = 0; r < n; r++)
        for (int q = 0; q < LINE / 4; q++)
            if (streams)
                _mm_stream_ps(out[r] + i + 4 * q, sum[q]);
            else
                _mm_store_ps(out[r] + i + 4 * q, sum[q]);
#else
    (void)streams;
    float sum[LINE];
    memcpy(sum, in[0] + i, sizeof(sum));
    for (int r = 1; r < n; r++)
        add_plain(sum, sum, in[r] + i, LINE);
    for (int r = 0; r < n; r++)
        memcpy(out[r] + i, sum, sizeof(sum));
#endif
}

static void put_share(const struct rank *me, const struct call *c)
{
    const struct job *job = me->job;
    size_t end = border(job, c->count, me->rank, 1, 1);
    const float *in[MAX_RANKS];
    for (int r = 0; r < job->n_ranks; r++)
        in[r] = c->in[r];
    for (size_t i = border(job, c->count, me->rank, 0, 1); i < end; i += LINE)
        put_line(c->out, in, job->n_ranks, i, c->stores == STREAM_PUT);
    fence_stream();
}

/* A rank copies one slice behind what it reduces, so that nobody waits for
 * one who is a little slower. */
static void reduce_and_copy(struct rank *me, const struct call *c)
{
    struct progress *mine = &me->job->progress[me->rank];
    for (size_t k = 0; k < c->n_slices; k++) {
        reduce_slice(me, c, k);
        say(&mine->reduced, me->n_slices + k + 1);
        if (k > 0)
            copy_slices(me, c, k - 1);
    }
    copy_slices(me, c, c->n_slices - 1);
    me->n_slices += c->n_slices;
}

static void all_reduce(struct rank *me, const struct call *c)
{
    struct progress *mine = &me->job->progress[me->rank];
    meet(me);
    if (c->stores < PUT)
        reduce_and_copy(me, c);
    else
        put_share(me, c);
    say(&mine->left, ++me->n_calls);
    wait_for_all(me->job, offsetof(struct progress, left), me->n_calls);
}

/* ----------------------------------------------------------- measurement -- */

/* Pair `pair` of buffers of a call; in place the output is the input. */
static struct call call_of(const struct job *job, size_t bytes,
                           const struct variant *v, size_t pair)
{
    size_t count = bytes / sizeof(float);
    struct call c = {.count = count, .n_slices = 1, .stores = v->stores};
    size_t share = bytes / (size_t)job->n_ranks;
    if (v->slice_bytes && share > v->slice_bytes)
        c.n_slices = share / v->slice_bytes;
    for (int r = 0; r < job->n_ranks; r++) {
        c.in[r] = job->memory[r] + 2 * pair * count;
        c.out[r] = v->in_place ? c.in[r] : c.in[r] + count;
    }
    return c;
}

/* One batch; the seconds of a call on the slowest rank. */
static double run_batch(struct rank *me, size_t bytes, const struct variant *v,
                        int batch)
{
    const struct job *job = me->job;
    size_t n_pairs = data_footprint() / 2 / bytes;
    n_pairs = n_pairs < 1 ? 1 : n_pairs;
    for (size_t p = 0; p < n_pairs; p++) {
        struct call c = call_of(job, bytes, v, p);
        data_fill(c.in[me->rank], c.count, me->rank, job->n_ranks,
                  (data_place){(int)p, batch});
    }
    meet(me);
    double start_s = now_s();
    for (size_t p = 0; p < n_pairs; p++) {
        struct call c = call_of(job, bytes, v, p);
        all_reduce(me, &c);
    }
    struct progress *mine = &job->progress[me->rank];
    mine->mean_s = (now_s() - start_s) / (double)n_pairs;
    mine->n_wrong = 0;
    for (size_t p = 0; p < n_pairs; p++) {
        struct call c = call_of(job, bytes, v, p);
        mine->n_wrong += data_wrong(c.out[me->rank], c.count, job->n_ranks,
                                    (data_place){(int)p, batch});
    }
    meet(me);
    double worst_s = 0;
    for (int r = 0; r < job->n_ranks; r++) {
        if (job->progress[r].mean_s > worst_s)
            worst_s = job->progress[r].mean_s;
        if (job->progress[r].n_wrong) {
            errno = EILSEQ;
            die("a sum is wrong");
        }
    }
    meet(me);
    return worst_s;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(struct rank *me, size_t bytes, const struct variant *v)
{
    double times[MAX_ROUNDS];
    int n = me->job->n_rounds;
    run_batch(me, bytes, v, 0);
    for (int i = 0; i < n; i++)
        times[i] = run_batch(me, bytes, v, i + 1);
    qsort(times, (size_t)n, sizeof(times[0]), by_time);
    return times[n / 2];
}

static void put_json(const struct job *job, size_t bytes,
                     const struct result *r, bool is_roofline)
{
    printf("{\"collective\": \"all-reduce\", \"n_ranks\": %d, "
           "\"size_bytes\": %zu, \"type\": \"f32\", \"op\": \"sum\", "
           "\"inplace\": %s, \"stores\": \"%s\", \"slice_bytes\": %zu, "
           "\"time_us\": %.3f, \"algbw_GBps\": %.4g, \"roofline\": %s}\n",
           job->n_ranks, bytes, r->variant.in_place ? "true" : "false",
           store_names[r->variant.stores], r->variant.slice_bytes,
           r->time_s * 1e6, (double)bytes / r->time_s * 1e-9,
           is_roofline ? "true" : "false");
}

static void put_row(size_t bytes, const struct result *best,
                    const struct result *roofline)
{
    char slice[24] = "whole";
    if (roofline->variant.slice_bytes)
        snprintf(slice, sizeof(slice), "%zu KiB",
                 roofline->variant.slice_bytes >> 10);
    printf("%7zu KiB", bytes >> 10);
    for (int s = 0; s < N_STORES; s++)
        printf("%12.1f", best[s].time_s * 1e6);
    printf("%12.1f%10.2f   %s, %s\n", roofline->time_s * 1e6,
           (double)bytes / roofline->time_s * 1e-9,
           store_names[roofline->variant.stores], slice);
}

static void measure_size(struct rank *me, size_t bytes, bool in_place)
{
    const struct job *job = me->job;
    struct result best[N_STORES] = {{0}}, roofline = {0};
    for (int i = 0; i < N_STORES * N_SLICES; i++) {
        struct result r = {.variant = {.stores = (enum stores)(i / N_SLICES),
                                       .slice_bytes = slice_sizes[i % N_SLICES],
                                       .in_place = in_place}};
        bool is_whole = r.variant.slice_bytes >= bytes / (size_t)job->n_ranks;
        /* What is put needs no slices. */
        bool is_more = r.variant.stores >= PUT && r.variant.slice_bytes > 0;
        if (is_whole || is_more ||
            (r.variant.stores != PLAIN && r.variant.stores != PUT &&
             !HAS_STREAMS))
            continue;
        r.time_s = measure(me, bytes, &r.variant);
        struct result *kind = &best[r.variant.stores];
        if (kind->time_s == 0 || r.time_s < kind->time_s)
            *kind = r;
        if (roofline.time_s == 0 || r.time_s < roofline.time_s)
            roofline = r;
        if (me->rank == 0 && job->as_json)
            put_json(job, bytes, &r, false);
    }
    if (me->rank == 0 && job->as_json)
        put_json(job, bytes, &roofline, true);
    else if (me->rank == 0)
        put_row(bytes, best, &roofline);
    fflush(stdout);
}

static void put_head(const struct job *job, bool in_place)
{
    printf("\n# all-reduce, f32 sum, %d ranks, %s\n%11s", job->n_ranks,
           in_place ? "in place" : "out of place", "size");
    for (int s = 0; s < N_STORES; s++)
        printf("%12s", store_names[s]);
    printf("%12s%10s   %s\n%11s", "roofline", "GB/s", "stores, slices", "");
    for (int s = 0; s <= N_STORES; s++)
        printf("%12s", "us");
    printf("\n");
}

static void run_rank(const struct job *job, int rank)
{
    struct rank me = {.job = job, .rank = rank};
    for (int in_place = 0; in_place < 2; in_place++) {
        if (rank == 0 && !job->as_json)
            put_head(job, in_place);
        for (size_t b = job->min_bytes; b <= job->max_bytes; b *= 2)
            measure_size(&me, b, in_place);
    }
}

/* ---------------------------------------------------------------- set-up -- */

static void *get_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("shared memory");
    return memory;
}

/* To the rank-th of the processors that the program may use. */
static void bind_to_core(int rank)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return;
    int left = rank % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || left-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

static void start_rank(const struct job *job, int rank, pid_t parent)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid > 0)
        return;
    /* If anything ends the parent, nobody is left spinning. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        exit(1);
    if (!job->is_crowded)
        bind_to_core(rank);
    run_rank(job, rank);
    exit(0);
}

static size_t read_size(const char *text)
{
    char *end;
    size_t value = strtoull(text, &end, 10);
    if (strcmp(end, "MiB") == 0)
        return value << 20;
    if (strcmp(end, "KiB") == 0)
        return value << 10;
    return *end ? 0 : value;
}

static bool read_options(int argc, char **argv, struct job *job)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'},
        {"min", required_argument, NULL, 'b'},
        {"max", required_argument, NULL, 'e'},
        {"rounds", required_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'n')
            job->n_ranks = (int)strtol(optarg, NULL, 10);
        else if (o == 'b')
            job->min_bytes = read_size(optarg);
        else if (o == 'e')
            job->max_bytes = read_size(optarg);
        else if (o == 'r')
            job->n_rounds = (int)strtol(optarg, NULL, 10);
        else if (o == 'j')
            job->as_json = true;
        else
            return false;
    }
    return optind == argc && job->n_ranks >= 2 && job->n_ranks <= MAX_RANKS &&
           job->min_bytes >= 64 << 10 && job->min_bytes % 4096 == 0 &&
           job->max_bytes >= job->min_bytes && job->n_rounds >= 1 &&
           job->n_rounds <= MAX_ROUNDS;
}

int main(int argc, char **argv)
{
    struct job job = {.n_ranks = 2,
                      .n_rounds = 5,
                      .min_bytes = 1 << 20,
                      .max_bytes = 256 << 20};
    if (!read_options(argc, argv, &job)) {
        fprintf(stderr,
                "usage: roofline [--ranks N] [--min BYTES] [--max BYTES] "
                "[--rounds R] [--json]\n"
                "sizes from 64KiB, whole pages, written 64KiB, 128MiB or in "
                "bytes; 2 to %d ranks\n",
                MAX_RANKS);
        return 2;
    }
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
        job.is_crowded = job.n_ranks > CPU_COUNT(&allowed);
    job.progress = get_shared((size_t)job.n_ranks * sizeof(*job.progress));
    size_t bytes = data_footprint();
    bytes = 2 * job.max_bytes > bytes ? 2 * job.max_bytes : bytes;
    for (int r = 0; r < job.n_ranks; r++)
        job.memory[r] = get_shared(bytes);
    pid_t parent = getpid();
    for (int r = 0; r < job.n_ranks; r++)
        start_rank(&job, r, parent);
    for (int r = 0; r < job.n_ranks; r++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            return 1; /* the others end with this process */
    }
    return 0;
}
