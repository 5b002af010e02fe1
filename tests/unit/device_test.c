/* SPDX-License-Identifier: BSD-3-Clause
 * device_test.c - GPUs by their driver's interface, against a stand-in for the
 * driver that does its work late and dies of every misuse. */
#include "support/tap.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "device/device.h"
#include "support/alloc.h"
#include "support/gpus.h"

#define COUNT 5000
#define BYTES (COUNT * sizeof(float))
#define PINNED (32 << 10)

static const gpus *g;

static void hear(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* ---------------------------------------------------------------- world -- */

typedef struct world {
    tt_device *device;
    tt_streams *streams;
    atomic_int rung;
    float *there[2];        /* memory of the GPU */
    float *host;            /* page-locked */
    _Atomic uint64_t *word; /* the same */
    uint64_t told;          /* to the word, the last time */
    tutti_diag diag;
} world;

static void open_on(world *w, int gpu)
{
    *w = (world){.diag = TT_DIAG_NONE};
    gpus_begin(g, gpu);
    for (int i = 0; i < 2; i++)
        w->there[i] = gpus_new(g, BYTES);
    gpus_end(g);
    w->host = mmap(NULL, PINNED, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(w->host != MAP_FAILED);
    w->word = (_Atomic uint64_t *)(void *)((char *)w->host + PINNED - 64);
    assert_int_equal(tt_device_of(w->there[0], &w->device, &w->diag), TUTTI_OK);
    assert_int_equal(tt_device_ordinal(w->device), gpu);
    assert_int_equal(tt_device_pin(w->device, w->host, PINNED, &w->diag),
                     TUTTI_OK);
    assert_int_equal(tt_streams_create(w->device, &tt_mem_std, hear, &w->rung,
                                       &w->streams, &w->diag),
                     TUTTI_OK);
}

static void close_world(world *w)
{
    tt_streams_free(w->streams);
    tt_device_unpin(w->device, w->host);
    munmap(w->host, PINNED);
    gpus_begin(g, tt_device_ordinal(w->device));
    for (int i = 0; i < 2; i++)
        gpus_free(g, w->there[i]);
    gpus_end(g);
    assert_int_equal(g->standin_live("streams"), 0);
    assert_int_equal(g->standin_live("events"), 0);
    assert_int_equal(g->standin_live("allocations"), 0);
    assert_int_equal(g->standin_live("registrations"), 0);
    assert_int_equal(g->standin_live("depth"), 0);
}

static void tell(world *w, tt_stream s)
{
    assert_int_equal(
        tt_streams_tell(w->streams, s, w->word, ++w->told, &w->diag), TUTTI_OK);
}

static bool is_told(const world *w)
{
    return atomic_load(w->word) == w->told;
}

static void await_word(world *w, tt_stream s)
{
    tell(w, s);
    while (!is_told(w))
        usleep(100);
}

/* ------------------------------------------------------------ the tests -- */

static void whose_memory(void **state)
{
    (void)state;
    world w;
    tt_device *d = NULL;
    int on_stack = 0;
    open_on(&w, 1);
    assert_int_equal(tt_device_of(&on_stack, &d, &w.diag), TUTTI_EINVAL);
    assert_non_null(strstr(w.diag.text, "is not memory of a GPU"));
    assert_int_equal(tt_device_of(w.host, &d, &w.diag), TUTTI_EINVAL);
    assert_int_equal(tt_device_of(w.there[0] + COUNT - 1, &d, &w.diag),
                     TUTTI_OK);
    assert_ptr_equal(d, w.device);
    close_world(&w);
}

/* Input comes, is added to, and goes back; each stream follows the other. */
static void there_and_back(world *w)
{
    const void *src[] = {w->there[0], w->there[1]};
    void *dst[] = {w->there[0]};
    const tt_device_reduction r = {.type = TUTTI_F32,
                                   .op = TUTTI_SUM,
                                   .n_src = 2,
                                   .n_dst = 1,
                                   .src = src,
                                   .dst = dst,
                                   .count = COUNT};
    void *second[] = {w->there[1]};
    tt_device_reduction copy = r;
    copy.n_src = 1;
    copy.dst = second;
    for (int i = 0; i < COUNT; i++)
        w->host[i] = (float)i;
    assert_int_equal(tt_device_move(w->streams, TT_STORE, w->there[0], w->host,
                                    BYTES, &w->diag),
                     TUTTI_OK);
    assert_int_equal(tt_streams_follow(w->streams, TT_WORK, TT_STORE, &w->diag),
                     TUTTI_OK);
    assert_int_equal(tt_device_reduce(w->streams, &copy, &w->diag), TUTTI_OK);
    assert_int_equal(tt_device_reduce(w->streams, &r, &w->diag), TUTTI_OK);
    assert_int_equal(tt_streams_follow(w->streams, TT_FETCH, TT_WORK, &w->diag),
                     TUTTI_OK);
    assert_int_equal(tt_device_move(w->streams, TT_FETCH, w->host, w->there[0],
                                    BYTES, &w->diag),
                     TUTTI_OK);
    await_word(w, TT_FETCH);
    for (int i = 0; i < COUNT; i++)
        assert_true(w->host[i] == 2 * (float)i);
}

static void moves_and_reduces(void **state)
{
    (void)state;
    world w;
    open_on(&w, 0);
    for (int i = 0; i < 20; i++)
        there_and_back(&w);
    /* Nothing is nothing. */
    for (int s = TT_FETCH; s <= TT_STORE; s++)
        assert_int_equal(
            tt_device_move(w.streams, (tt_stream)s, NULL, NULL, 0, &w.diag), 0);
    assert_int_equal(tt_streams_check(w.streams, &w.diag), TUTTI_OK);
    close_world(&w);
}

/* Each stream waits for its word, and tells the next one's. */
static void holds_and_tells(void **state)
{
    (void)state;
    world w;
    open_on(&w, 0);
    _Atomic uint32_t *gates = (_Atomic uint32_t *)(void *)(w.word - 64);
    memset((void *)gates, 0, 4);
    for (uint32_t i = 1; i <= 50; i++) {
        tt_stream s = (tt_stream)(i % TT_STREAMS);
        assert_int_equal(tt_streams_hold(w.streams, s, gates, i, &w.diag), 0);
        tell(&w, s);
        usleep(i % 7 == 0 ? 2000 : 0);
        assert_false(is_told(&w));
        atomic_store(gates, i);
        while (!is_told(&w))
            usleep(100);
    }
    close_world(&w);
}

/* A part of the test in a process of its own, with a driver of its own: this
 * program again, of which main() then runs no more than that. */
static pid_t begin_apart(const char *part)
{
    pid_t child = fork();
    if (child == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execl("/proc/self/exe", "device_test", part, (char *)NULL);
        _exit(2);
    }
    assert_true(child > 0);
    return child;
}

static void end_apart(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Where streams cannot wait for words a sentence says so. */
static void needs_words(void **state)
{
    (void)state;
    setenv("STANDIN_WORDS", "0", 1);
    pid_t child = begin_apart("without_words");
    unsetenv("STANDIN_WORDS");
    end_apart(child);
}

static void without_words(void **state)
{
    (void)state;
    tt_device *d = NULL;
    tt_streams *streams = NULL;
    tutti_diag diag = TT_DIAG_NONE;
    g = gpus_standin();
    gpus_begin(g, 0);
    void *there = gpus_new(g, BYTES);
    assert_int_equal(tt_device_of(there, &d, &diag), TUTTI_OK);
    assert_int_equal(
        tt_streams_create(d, &tt_mem_std, hear, NULL, &streams, &diag),
        TUTTI_ESYS);
    assert_non_null(strstr(diag.text, "cannot wait for a value"));
    assert_null(streams);
    gpus_free(g, there);
    gpus_end(g);
}

static void rings(void **state)
{
    (void)state;
    world w;
    open_on(&w, 0);
    for (int s = 0; s < TT_STREAMS; s++) {
        atomic_store(&w.rung, 0);
        for (int i = 1; i <= 10; i++) {
            tell(&w, (tt_stream)s);
            assert_int_equal(tt_streams_ring(w.streams, (tt_stream)s, &w.diag),
                             TUTTI_OK);
            while (atomic_load(&w.rung) < i)
                usleep(100);
            assert_true(is_told(&w));
        }
    }
    close_world(&w);
}

static tutti_err promise(world *w, tt_promise *out)
{
    tt_streams_lock(w->streams);
    tutti_err err = tt_streams_promise(w->streams, out, &w->diag);
    if (!err)
        err = tt_streams_event(w->streams, out, &w->diag);
    tt_streams_unlock(w->streams);
    return err;
}

/* What waits for the program's event does not hold up the other streams. */
static void waits_for_the_program(void **state)
{
    (void)state;
    world w;
    tt_promise p;
    open_on(&w, 0);
    there_and_back(&w);
    /* A promise stands for the program's event: it happens when we want. */
    assert_int_equal(promise(&w, &p), TUTTI_OK);
    assert_int_equal(tt_streams_after(w.streams, TT_WATCH, p.event, &w.diag),
                     TUTTI_OK);
    tell(&w, TT_WATCH);
    assert_int_equal(tt_streams_ring(w.streams, TT_WATCH, &w.diag), 0);
    for (int s = 0; s < TT_STREAMS; s++)
        if (s != TT_WATCH)
            tt_streams_ring(w.streams, (tt_stream)s, &w.diag);
    while (atomic_load(&w.rung) < TT_STREAMS - 1)
        usleep(100);
    assert_false(is_told(&w));
    tt_streams_keep(w.streams, &p);
    while (atomic_load(&w.rung) < TT_STREAMS)
        usleep(100);
    assert_true(is_told(&w));
    tt_streams_forget(w.streams, &p);
    close_world(&w);
}

static bool has_happened(const tt_promise *p)
{
    gpus_begin(g, 0);
    bool has = g->event_query(p->event) == 0;
    gpus_end(g);
    return has;
}

static void await_promise(const tt_promise *p)
{
    gpus_begin(g, 0);
    assert_int_equal(g->event_wait(p->event), 0);
    gpus_end(g);
}

#define PROMISES 100

static void promises_in_any_order(void **state)
{
    (void)state;
    world w;
    tt_promise p[PROMISES];
    open_on(&w, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PROMISES; i++)
            assert_int_equal(promise(&w, &p[i]), 0);
        for (int i = PROMISES; i-- > 1;)
            tt_streams_keep(w.streams, &p[i]);
        /* What is wrong has time to happen; right stays right. */
        for (int i = 0; i < 5; i++)
            there_and_back(&w);
        for (int i = 0; i < PROMISES; i++)
            assert_false(has_happened(&p[i]));
        tt_streams_keep(w.streams, &p[0]);
        tt_streams_keep(w.streams, &p[0]); /* once more is nothing */
        for (int i = 0; i < PROMISES; i++)
            await_promise(&p[i]);
        for (int i = 0; i < PROMISES; i++) {
            tt_streams_forget(w.streams, &p[i]);
            tt_streams_forget(w.streams, &p[i]);
        }
    }
    /* Events are used again. */
    assert_true(g->standin_live("events") < PROMISES + 2 * TT_STREAMS);
    close_world(&w);
}

static void freed_with_promises(void **state)
{
    (void)state;
    world w;
    tt_promise p[3];
    void *stream;
    open_on(&w, 0);
    gpus_begin(g, 0);
    assert_int_equal(g->stream_create(&stream, 1), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(promise(&w, &p[i]), 0);
        assert_int_equal(g->stream_after(stream, p[i].event, 0), 0);
    }
    tt_streams_keep(w.streams, &p[1]);
    for (int i = 0; i < 3; i++)
        tt_streams_forget(w.streams, &p[i]);
    tt_streams_free(w.streams);
    w.streams = NULL;
    assert_int_equal(g->stream_wait(stream), 0);
    assert_int_equal(g->stream_destroy(stream), 0);
    gpus_end(g);
    close_world(&w);
}

static _Atomic uint32_t *word_of(world *w)
{
    return (_Atomic uint32_t *)(void *)(w->word + 1);
}

/* What these streams are to do in that turn is done. */
static bool is_done_in(world *w, tt_streams *streams, uint32_t turn)
{
    const void *src[] = {w->there[0]};
    void *dst[] = {w->there[1]};
    const tt_device_reduction r = {.type = TUTTI_F32,
                                   .op = TUTTI_SUM,
                                   .n_src = 1,
                                   .n_dst = 1,
                                   .src = src,
                                   .dst = dst,
                                   .count = 1,
                                   .turn = turn};
    float *from = g->standin_host((uintptr_t)w->there[0]);
    float *to = g->standin_host((uintptr_t)w->there[1]);
    *from += 1;
    assert_int_equal(tt_device_reduce(streams, &r, &w->diag), TUTTI_OK);
    tt_streams_drain(streams, TT_WORK);
    return *to == *from;
}

/* Each has looked for itself, also after some have gone and others have
 * come. */
static void looks_at_a_word(void **state)
{
    (void)state;
    enum { N = 5 };
    world w;
    tt_streams *s[N];
    open_on(&w, 0);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(tt_streams_create(w.device, &tt_mem_std, hear, &w.rung,
                                           &s[i], &w.diag),
                         TUTTI_OK);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < N; i++) {
            atomic_store(word_of(&w), 1 + i);
            assert_int_equal(tt_device_look(s[i], word_of(&w), &w.diag),
                             TUTTI_OK);
            tt_streams_drain(s[i], TT_WORK);
        }
        for (uint32_t i = 0; i < N; i++) {
            assert_true(is_done_in(&w, s[i], 1 + i));
            assert_false(is_done_in(&w, s[i], 2 + i));
            assert_true(is_done_in(&w, s[i], 0)); /* in any */
        }
        for (int i = round; i < N; i += 2) {
            tt_streams_free(s[i]);
            assert_int_equal(tt_streams_create(w.device, &tt_mem_std, hear,
                                               &w.rung, &s[i], &w.diag),
                             TUTTI_OK);
        }
    }
    for (int i = 0; i < N; i++)
        tt_streams_free(s[i]);
    close_world(&w);
}

/* -------------------------------------------------------------- failure -- */

/* Every call of the driver that making streams needs fails once. */
static void creation_fails(void **state)
{
    (void)state;
    static const char *const names[] = {"cuCtxPushCurrent_v2",
                                        "cuCtxGetStreamPriorityRange",
                                        "cuMemHostAlloc",
                                        "cuMemAlloc_v2",
                                        "cuMemHostGetDevicePointer_v2",
                                        "cuStreamCreateWithPriority",
                                        "cuEventCreate"};
    world w;
    open_on(&w, 0);
    tt_streams_free(w.streams);
    w.streams = NULL;
    int n_failed = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (unsigned nth = 1;; nth++) {
            tt_streams *made = NULL;
            g->standin_fail(names[i], nth, 2);
            tutti_err err = tt_streams_create(w.device, &tt_mem_std, hear,
                                              &w.rung, &made, &w.diag);
            g->standin_fail(names[i], 0, 0);
            if (!err) {
                tt_streams_free(made);
                assert_true(nth > 1);
                break;
            }
            n_failed++;
            assert_int_equal(err, TUTTI_ESYS);
            assert_null(made);
            assert_non_null(strstr(w.diag.text, "CUDA_ERROR_OUT_OF_MEMORY"));
            assert_int_equal(g->standin_live("streams"), 0);
            assert_int_equal(g->standin_live("events"), 0);
            assert_int_equal(g->standin_live("registrations"), 1);
            assert_int_equal(g->standin_live("allocations"), 2);
        }
    }
    assert_true(n_failed >= 4 + 8 + TT_STREAMS);
    close_world(&w);
}

static tutti_err call_after(world *w)
{
    return tt_streams_follow(w->streams, TT_FETCH, TT_WORK, &w->diag);
}
static tutti_err call_fetch(world *w)
{
    return tt_device_move(w->streams, TT_FETCH, w->host, w->there[0], 8,
                          &w->diag);
}
static tutti_err call_store(world *w)
{
    return tt_device_move(w->streams, TT_STORE, w->there[0], w->host, 8,
                          &w->diag);
}
static tutti_err call_tell(world *w)
{
    return tt_streams_tell(w->streams, TT_WORK, w->word, 1, &w->diag);
}
static tutti_err call_hold(world *w)
{
    static _Atomic uint32_t *open;
    open = (_Atomic uint32_t *)(void *)(w->word + 1);
    atomic_store(open, 1);
    return tt_streams_hold(w->streams, TT_WORK, open, 1, &w->diag);
}
static tutti_err call_ring(world *w)
{
    return tt_streams_ring(w->streams, TT_WORK, &w->diag);
}
static tutti_err call_check(world *w)
{
    return tt_streams_check(w->streams, &w->diag);
}
static tutti_err call_promise(world *w)
{
    tt_promise p;
    tutti_err err = promise(w, &p);
    if (!err) {
        tt_streams_keep(w->streams, &p);
        tt_streams_forget(w->streams, &p);
    }
    return err;
}
static tutti_err call_reduce(world *w)
{
    const void *src[] = {w->there[0]};
    void *dst[] = {w->there[1]};
    const tt_device_reduction r = {.type = TUTTI_I8,
                                   .op = TUTTI_MAX,
                                   .n_src = 1,
                                   .n_dst = 1,
                                   .src = src,
                                   .dst = dst,
                                   .count = 3};
    return tt_device_reduce(w->streams, &r, &w->diag);
}
static tutti_err call_look(world *w)
{
    return tt_device_look(w->streams, word_of(w), &w->diag);
}
static tutti_err call_export(world *w)
{
    tt_device_place place;
    return tt_device_export(w->device, w->there[0], 8, &place, &w->diag);
}
static tutti_err call_of(world *w)
{
    tt_device *d;
    return tt_device_of(w->there[0], &d, &w->diag);
}

static const struct {
    const char *name;
    tutti_err (*call)(world *w);
} calls[] = {{"cuCtxPushCurrent_v2", call_fetch},
             {"cuEventRecord", call_after},
             {"cuStreamWaitEvent", call_after},
             {"cuMemcpyDtoHAsync_v2", call_fetch},
             {"cuMemcpyHtoDAsync_v2", call_store},
             {"cuMemHostGetDevicePointer_v2", call_tell},
             {"cuStreamWriteValue64_v2", call_tell},
             {"cuMemHostGetDevicePointer_v2", call_hold},
             {"cuStreamWaitValue32_v2", call_hold},
             {"cuEventRecord", call_ring},
             {"cuLaunchHostFunc", call_ring},
             {"cuStreamQuery", call_check},
             {"cuEventCreate", call_promise},
             {"cuStreamWaitValue32_v2", call_promise},
             {"cuEventRecord", call_promise},
             {"cuLaunchKernel", call_reduce},
             {"cuLaunchKernel", call_look},
             {"cuMemHostGetDevicePointer_v2", call_look},
             {"cuMemGetAddressRange_v2", call_export},
             {"cuPointerGetAttributes", call_export},
             {"cuIpcGetMemHandle", call_export},
             {"cuPointerGetAttributes", call_of}};

static void calls_fail(void **state)
{
    (void)state;
    world w;
    open_on(&w, 0);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        g->standin_fail(calls[i].name, 1, 2);
        assert_int_equal(calls[i].call(&w), TUTTI_ESYS);
        g->standin_fail(calls[i].name, 0, 0);
        assert_non_null(strstr(w.diag.text, "CUDA_ERROR_OUT_OF_MEMORY"));
        assert_int_equal(g->standin_live("depth"), 0);
        assert_int_equal(calls[i].call(&w), TUTTI_OK);
    }
    close_world(&w);
}

static void a_gpu_breaks(void **state)
{
    (void)state;
    world w;
    tt_promise p;
    open_on(&w, 0);
    assert_int_equal(promise(&w, &p), TUTTI_OK);
    g->standin_break(700);
    for (size_t i = 1; i < sizeof(calls) / sizeof(calls[0]); i++) {
        assert_int_equal(calls[i].call(&w), TUTTI_ESYS);
        assert_non_null(strstr(w.diag.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
    for (int s = 0; s < TT_STREAMS; s++)
        tt_streams_drain(w.streams, (tt_stream)s);
    tt_streams_keep(w.streams, &p);
    tt_streams_forget(w.streams, &p);
    tt_streams_free(w.streams);
    w.streams = NULL;
    g->standin_break(0);
    close_world(&w);
}

/* The k-th allocation fails until all passes. */
static void out_of_memory(void **state)
{
    (void)state;
    world w;
    open_on(&w, 0);
    tt_streams_free(w.streams);
    w.streams = NULL;
    for (uint64_t k = 1;; k++) {
        tt_test_mem f;
        tt_mem mem = tt_test_mem_init(&f, k);
        tt_promise p = {NULL, 0};
        tutti_err err = tt_streams_create(w.device, &mem, hear, &w.rung,
                                          &w.streams, &w.diag);
        if (!err) {
            err = promise(&w, &p);
            tt_streams_keep(w.streams, &p);
            tt_streams_forget(w.streams, &p);
            tt_streams_free(w.streams);
            w.streams = NULL;
        }
        assert_true(tt_test_mem_is_clean(&f));
        if (tt_test_mem_n_allocs(&f) < k)
            break;
        assert_int_equal(err, TUTTI_ENOMEM);
    }
    close_world(&w);
}

/* ------------------------------------------------------ other processes -- */

typedef struct told {
    tt_device_place place[2], small;
} told;

/* The number of the socket to the process that began this one. */
#define SOCKET "DEVICE_TEST_SOCKET"

/* Fills the first half of there[1] with `value`, and tells where it is. */
static void show_small(world *w, float value, tt_device_place *out)
{
    for (int i = 0; i < COUNT; i++)
        w->host[i] = value;
    gpus_begin(g, 1);
    gpus_put(g, w->there[1], w->host, BYTES / 2);
    gpus_end(g);
    assert_int_equal(
        tt_device_export(w->device, w->there[1], BYTES / 2, out, &w->diag),
        TUTTI_OK);
}

/* A smaller one, which lies where the one before lay, as small ones do. */
static void take_again(world *w)
{
    const float *before = w->there[1];
    gpus_begin(g, 1);
    gpus_free(g, w->there[1]);
    w->there[1] = gpus_new(g, BYTES / 2);
    gpus_end(g);
    assert_ptr_equal(w->there[1], before);
}

static void shows_its_memory(void **state)
{
    (void)state;
    world w;
    told t;
    char word;
    const int socket = atoi(getenv(SOCKET));
    g = gpus_standin();
    open_on(&w, 1);
    for (int i = 0; i < COUNT; i++)
        w.host[i] = (float)i;
    gpus_begin(g, 1);
    gpus_put(g, w.there[0], w.host, BYTES);
    gpus_end(g);
    assert_int_equal(tt_device_export(w.device, w.there[0] + COUNT - 1, 8,
                                      &t.place[0], &w.diag),
                     TUTTI_EINVAL);
    assert_int_equal(
        tt_device_export(w.device, w.there[0] + 3, 40, &t.place[0], &w.diag),
        TUTTI_OK);
    assert_int_equal(
        tt_device_export(w.device, w.there[0] + 8, 40, &t.place[1], &w.diag),
        TUTTI_OK);
    show_small(&w, 1, &t.small);
    assert_int_equal(write(socket, &t, sizeof(t)), sizeof(t));
    assert_int_equal(read(socket, &word, 1), 1);
    take_again(&w);
    show_small(&w, 2, &t.small);
    assert_int_equal(write(socket, &t, sizeof(t)), sizeof(t));
    assert_int_equal(read(socket, &word, 1), 1);
    gpus_begin(g, 1);
    gpus_get(g, w.host, w.there[0], BYTES);
    gpus_end(g);
    assert_true(w.host[5] == 1005);
    close_world(&w);
}

static float first_of(world *w, const tt_device_place *place)
{
    void *at;
    assert_int_equal(tt_device_import(w->device, 7, place, &at, &w->diag),
                     TUTTI_OK);
    gpus_begin(g, 0);
    gpus_get(g, w->host, at, sizeof(float));
    gpus_end(g);
    tt_device_release(w->device, place, at);
    return w->host[0];
}

/* A small allocation, and the next one in its place: the first has to go, and
 * does when nobody uses it. */
static void reads_one_that_comes_again(world *w, int socket, told *now)
{
    void *at, *whole;
    told before;
    assert_int_equal(read(socket, &before, sizeof(before)), sizeof(before));
    assert_true(first_of(w, &before.small) == 1);
    assert_int_equal(
        tt_device_import(w->device, 7, &before.place[1], &whole, &w->diag),
        TUTTI_OK);
    assert_int_equal(
        tt_device_import(w->device, 8, &before.small, &at, &w->diag), TUTTI_OK);
    assert_int_equal(write(socket, "", 1), 1);
    assert_int_equal(read(socket, now, sizeof(*now)), sizeof(*now));
    assert_true(before.small.id != now->small.id);
    tt_device_let_go(w->device, 8); /* when it is released */
    void *there;
    assert_int_equal(
        tt_device_import(w->device, 7, &now->small, &there, &w->diag),
        TUTTI_ESYS);
    assert_non_null(strstr(w->diag.text, "ALREADY_MAPPED"));
    assert_int_equal(g->standin_live("mappings"), 2);
    tt_device_release(w->device, &before.small, at);
    assert_true(first_of(w, &now->small) == 2);
    assert_int_equal(g->standin_live("mappings"), 2); /* and the one in use */
    tt_device_release(w->device, &before.place[1], whole);
}

static void reads_another_process(void **state)
{
    (void)state;
    int ends[2];
    char number[16];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
    snprintf(number, sizeof(number), "%d", ends[1]);
    setenv(SOCKET, number, 1);
    pid_t child = begin_apart("shows_its_memory");
    close(ends[1]);
    world w;
    told t;
    void *at[2];
    open_on(&w, 0);
    reads_one_that_comes_again(&w, ends[0], &t);
    tt_device_let_go(w.device, 7);
    unsigned long opened = g->standin_calls("cuIpcOpenMemHandle_v2");
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            tt_device_import(w.device, 7, &t.place[i], &at[i], &w.diag),
            TUTTI_OK);
    assert_int_equal(g->standin_calls("cuIpcOpenMemHandle_v2"), opened + 1);
    assert_int_equal((char *)at[1] - (char *)at[0], 20);
    gpus_begin(g, 0);
    gpus_get(g, w.host, at[0], 40);
    assert_true(w.host[0] == 3 && w.host[9] == 12);
    w.host[2] = 1005;
    gpus_put(g, at[0], w.host, 40);
    gpus_end(g);
    tt_device_let_go(w.device, 8);
    assert_int_equal(g->standin_live("mappings"), 1);
    tt_device_release(w.device, &t.place[1], at[1]);
    tt_device_let_go(w.device, 7);
    assert_int_equal(g->standin_live("mappings"), 1); /* in use */
    tt_device_release(w.device, &t.place[0], at[0]);
    assert_int_equal(g->standin_live("mappings"), 1); /* not now */
    assert_int_equal(
        tt_device_import(w.device, 9, &t.place[0], &at[0], &w.diag), TUTTI_OK);
    assert_int_equal(g->standin_live("mappings"), 1); /* another one */
    assert_int_equal(g->standin_calls("cuIpcOpenMemHandle_v2"), opened + 2);
    tt_device_release(w.device, &t.place[0], at[0]);
    tt_device_let_go(w.device, 9);
    assert_int_equal(g->standin_live("mappings"), 0);
    assert_int_equal(write(ends[0], "", 1), 1);
    close(ends[0]);
    end_apart(child);
    /* It is gone, and so is its memory. */
    assert_int_equal(
        tt_device_import(w.device, 7, &t.place[0], &at[0], &w.diag),
        TUTTI_ESYS);
    assert_non_null(strstr(w.diag.text, "cannot reach"));
    close_world(&w);
}

/* A process that was forked after the first use may not use it. */
static void a_child_is_refused(void **state)
{
    (void)state;
    world w;
    open_on(&w, 0);
    pid_t child = fork();
    if (child == 0) {
        tt_promise p = {NULL, 0};
        bool ok = true;
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
            ok = ok && calls[i].call(&w) == TUTTI_EFORK;
        tt_streams_keep(w.streams, &p);
        tt_streams_free(w.streams);
        tt_device_unpin(w.device, w.host);
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    there_and_back(&w);
    close_world(&w);
}

static void wrong_reductions(void **state)
{
    (void)state;
    world w;
    open_on(&w, 0);
    const void *src[] = {w.there[0]};
    void *dst[] = {w.there[1]};
    const tt_device_reduction good = {.type = TUTTI_F32,
                                      .op = TUTTI_SUM,
                                      .n_src = 1,
                                      .n_dst = 1,
                                      .src = src,
                                      .dst = dst,
                                      .count = 3};
    tt_device_reduction r = good;
    r.op = TUTTI_BAND;
    assert_int_equal(tt_device_reduce(w.streams, &r, &w.diag), TUTTI_EINVAL);
    r = good, r.op = TUTTI_MAX, r.divisor = 3;
    assert_int_equal(tt_device_reduce(w.streams, &r, &w.diag), TUTTI_EINVAL);
    r = good, r.type = (tutti_type)99;
    assert_int_equal(tt_device_reduce(w.streams, &r, &w.diag), TUTTI_EINVAL);
    r = good, r.n_src = TT_DEVICE_SOURCES + 1;
    assert_int_equal(tt_device_reduce(w.streams, &r, &w.diag), TUTTI_EINVAL);
    r = good, r.n_dst = 0;
    assert_int_equal(tt_device_reduce(w.streams, &r, &w.diag), TUTTI_EINVAL);
    r = good, r.count = 0;
    assert_int_equal(tt_device_reduce(w.streams, &r, &w.diag), TUTTI_OK);
    close_world(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest words[] = {cmocka_unit_test(without_words)};
    const struct CMUnitTest shows[] = {cmocka_unit_test(shows_its_memory)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(needs_words),
        cmocka_unit_test(reads_another_process),
        cmocka_unit_test(whose_memory),
        cmocka_unit_test(moves_and_reduces),
        cmocka_unit_test(holds_and_tells),
        cmocka_unit_test(rings),
        cmocka_unit_test(waits_for_the_program),
        cmocka_unit_test(promises_in_any_order),
        cmocka_unit_test(freed_with_promises),
        cmocka_unit_test(looks_at_a_word),
        cmocka_unit_test(creation_fails),
        cmocka_unit_test(calls_fail),
        cmocka_unit_test(a_gpu_breaks),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(wrong_reductions),
        cmocka_unit_test(a_child_is_refused),
    };
    tt_test_limit(60);
    setenv("STANDIN_GPUS", "2", 1);
    if (argc > 1 && strcmp(argv[1], "without_words") == 0)
        return TT_RUN_TAP(words);
    if (argc > 1)
        return TT_RUN_TAP(shows);
    g = gpus_standin();
    return TT_RUN_TAP(tests);
}
