/* SPDX-License-Identifier: BSD-3-Clause
 * streams.c - what one communicator does on a GPU, in streams of its own.
 *
 * Idea       A stream waits for a word in page-locked memory, and writes one
 *            when it comes to it. Promises are numbers: a stream of their own
 *            waits until a word has reached each of them, in order, and records
 *            an event behind it.
 * Bells      Streams that move data or work have a second one each, which waits
 *            for what they were given and then calls the host: that takes the
 *            driver longer than most copies do.
 * Queues     Streams of one priority share a few queues of the GPU. Those that
 *            wait for programs (WATCH, promises) have the least priority, those
 *            that move data and ring the greatest. In either kind an operation
 *            waits only for one that was given to the GPU earlier, or for the
 *            host; so sharing cannot make a circle.
 * Next       reduction.c. */
#include "device/cuda.h"

#include <stdatomic.h>

#include "base/child.h"

#define PAGE_BYTES 4096

typedef struct line {
    void *stream, *bell; /* WATCH has no bell: its stream calls the host */
    void *now;           /* an event: what it was given by now */
} line;

struct tt_streams {
    tt_device *d;
    const tt_mem *mem;
    void (*ring)(void *arg);
    void *arg;
    line lines[TT_STREAMS];
    _Atomic int
        broken;  /* the error with which the device has failed; 0: none */
    size_t seen; /* reduction.c's; SIZE_MAX: none */
    pthread_mutex_t making; /* promises, their events; the driver may be slow */
    pthread_mutex_t lock;   /* of what of them is kept and spare: never long */
    void *waits;            /* the stream that waits for them */
    _Atomic uint32_t *kept; /* up to which all are kept; page-locked */
    tt_cuptr kept_at;       /* the same as the device sees it */
    uint64_t promised,
        first;     /* numbers: the last, the first that is not kept */
    bool *is_kept; /* of promise p at p % cap_kept */
    size_t cap_kept;
    void **events; /* all that were made */
    void **spare;  /* those of them that are not in use; as much room */
    size_t n_events, cap_events, n_spare, cap_spare;
};

tt_device *tt_streams_device(const tt_streams *w)
{
    return w->d;
}

void *tt_streams_work(const tt_streams *w)
{
    return w->lines[TT_WORK].stream;
}

size_t *tt_streams_seen(tt_streams *w)
{
    return &w->seen;
}

/* ------------------------------------------------------- begin and end -- */

static tutti_err new_stream(void **out, int priority, tutti_diag *diag)
{
    return tt_cuda_check(
        diag, tt_cuda_fn.stream_create(out, CU_STREAM_NON_BLOCKING, priority),
        "cuStreamCreateWithPriority");
}

static tutti_err new_event(void **out, tutti_diag *diag)
{
    return tt_cuda_check(diag, tt_cuda_fn.event_create(out, CU_EVENT_NO_TIMING),
                         "cuEventCreate");
}

static tutti_err make_line(line *l, bool watches, int priority,
                           tutti_diag *diag)
{
    tutti_err err = new_stream(&l->stream, priority, diag);
    if (!err && !watches)
        err = new_stream(&l->bell, priority, diag);
    if (!err)
        err = new_event(&l->now, diag);
    return err;
}

static tutti_err make_word(tt_streams *w, tutti_diag *diag)
{
    void *ptr;
    tutti_err err =
        tt_cuda_check(diag,
                      tt_cuda_fn.host_alloc(&ptr, PAGE_BYTES,
                                            CU_HOST_PORTABLE | CU_HOST_MAPPED),
                      "cuMemHostAlloc");
    if (err)
        return err;
    w->kept = ptr;
    atomic_init(w->kept, 0);
    return tt_cuda_address_of(w->kept, &w->kept_at, diag);
}

static tutti_err make_all(tt_streams *w, tutti_diag *diag)
{
    int least;
    int greatest;
    tutti_err err = tt_cuda_check(diag,
                                  tt_cuda_fn.priorities(&least, &greatest),
                                  "cuCtxGetStreamPriorityRange");
    if (!err)
        err = make_word(w, diag);
    for (int s = 0; s < TT_STREAMS && !err; s++)
        err = make_line(&w->lines[s], s == TT_WATCH,
                        s == TT_WATCH ? least : greatest, diag);
    return err ? err : new_stream(&w->waits, least, diag);
}

tutti_err tt_streams_create(tt_device *d, const tt_mem *mem,
                            void (*ring)(void *arg), void *arg,
                            tt_streams **out, tutti_diag *diag)
{
    if (!d->has_words)
        return tt_fail(diag, TUTTI_ESYS,
                       "the streams of GPU %d cannot wait for a value",
                       d->ordinal);
    tt_streams *w = tt_new(mem, 1, sizeof(*w));
    if (!w)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    *w = (tt_streams){.d = d,
                      .mem = mem,
                      .ring = ring,
                      .arg = arg,
                      .first = 1,
                      .seen = SIZE_MAX};
    pthread_mutex_init(&w->making, NULL);
    pthread_mutex_init(&w->lock, NULL);
    tutti_err err = tt_cuda_enter(d, diag);
    if (!err) {
        err = make_all(w, diag);
        if (!err)
            err = tt_kernels_prepare(w, diag);
        tt_cuda_leave();
    }
    if (err) {
        tt_streams_free(w);
        return err;
    }
    *out = w;
    return TUTTI_OK;
}

static void end_stream(void *stream)
{
    if (!stream)
        return;
    tt_cuda_fn.stream_wait(stream);
    tt_cuda_fn.stream_destroy(stream);
}

static void end_event(void *event)
{
    if (event)
        tt_cuda_fn.event_destroy(event);
}

/* What a stream waits for ends before it: the word is still there. */
static void end_all(tt_streams *w)
{
    end_stream(w->waits);
    for (int s = 0; s < TT_STREAMS; s++)
        end_stream(w->lines[s].stream);
    for (int s = 0; s < TT_STREAMS; s++) {
        line *l = &w->lines[s];
        end_stream(l->bell);
        end_event(l->now);
    }
    for (size_t i = 0; i < w->n_events; i++)
        end_event(w->events[i]);
    if (w->kept)
        tt_cuda_fn.host_free(w->kept);
    tt_kernels_forget(w);
}

void tt_streams_free(tt_streams *w)
{
    if (!w)
        return;
    if (!tt_cuda_enter(w->d, NULL)) {
        if (w->kept)
            atomic_store_explicit(w->kept, (uint32_t)w->promised,
                                  memory_order_release);
        end_all(w);
        tt_cuda_leave();
    }
    pthread_mutex_destroy(&w->making);
    pthread_mutex_destroy(&w->lock);
    tt_free(w->mem, w->is_kept, w->cap_kept, sizeof(bool));
    tt_free(w->mem, w->events, w->cap_events, sizeof(void *));
    tt_free(w->mem, w->spare, w->cap_spare, sizeof(void *));
    tt_free(w->mem, w, 1, sizeof(*w));
}

/* -------------------------------------------------------- order, copies -- */

/* The end of a call of the driver in the device's context. */
static tutti_err leave(tutti_diag *diag, int error, const char *what)
{
    tt_cuda_leave();
    return tt_cuda_check(diag, error, what);
}

tutti_err tt_streams_after(tt_streams *w, tt_stream s, void *event,
                           tutti_diag *diag)
{
    tutti_err err = tt_cuda_enter(w->d, diag);
    if (err)
        return err;
    return leave(diag, tt_cuda_fn.after(w->lines[s].stream, event, 0),
                 "cuStreamWaitEvent");
}

/* `stream` goes on when what `l` was given by now is done. */
static tutti_err follow(const line *l, void *stream, tutti_diag *diag)
{
    tutti_err err = tt_cuda_check(
        diag, tt_cuda_fn.event_record(l->now, l->stream), "cuEventRecord");
    if (err)
        return err;
    return tt_cuda_check(diag, tt_cuda_fn.after(stream, l->now, 0),
                         "cuStreamWaitEvent");
}

tutti_err tt_streams_follow(tt_streams *w, tt_stream s, tt_stream other,
                            tutti_diag *diag)
{
    tutti_err err = tt_cuda_enter(w->d, diag);
    if (err)
        return err;
    err = follow(&w->lines[other], w->lines[s].stream, diag);
    tt_cuda_leave();
    return err;
}

tutti_err tt_device_move(tt_streams *w, tt_stream s, void *to, const void *from,
                         size_t bytes, tutti_diag *diag)
{
    const tt_cuda *f = &tt_cuda_fn;
    void *stream = w->lines[s].stream;
    tutti_err err = bytes > 0 ? tt_cuda_enter(w->d, diag) : TUTTI_OK;
    if (err || bytes == 0)
        return err;
    if (s == TT_FETCH)
        return leave(diag, f->fetch(to, (uintptr_t)from, bytes, stream),
                     "cuMemcpyDtoHAsync");
    return leave(diag, f->store((uintptr_t)to, from, bytes, stream),
                 "cuMemcpyHtoDAsync");
}

/* ---------------------------------------------------------------- words -- */

tutti_err tt_streams_hold(tt_streams *w, tt_stream s, _Atomic uint32_t *at,
                          uint32_t value, tutti_diag *diag)
{
    tt_cuptr there;
    tutti_err err = tt_cuda_enter(w->d, diag);
    if (err)
        return err;
    err = tt_cuda_address_of(at, &there, diag);
    if (!err)
        err = tt_cuda_check(diag,
                            tt_cuda_fn.wait_value(w->lines[s].stream, there,
                                                  value, CU_WAIT_GEQ),
                            "cuStreamWaitValue32");
    tt_cuda_leave();
    return err;
}

tutti_err tt_streams_tell(tt_streams *w, tt_stream s, _Atomic uint64_t *at,
                          uint64_t value, tutti_diag *diag)
{
    tt_cuptr there;
    tutti_err err = tt_cuda_enter(w->d, diag);
    if (err)
        return err;
    err = tt_cuda_address_of(at, &there, diag);
    if (!err)
        err = tt_cuda_check(
            diag, tt_cuda_fn.write_value(w->lines[s].stream, there, value, 0),
            "cuStreamWriteValue64");
    tt_cuda_leave();
    return err;
}

tutti_err tt_streams_ring(tt_streams *w, tt_stream s, tutti_diag *diag)
{
    line *l = &w->lines[s];
    tutti_err err = tt_cuda_enter(w->d, diag);
    if (err)
        return err;
    if (l->bell)
        err = follow(l, l->bell, diag);
    if (!err)
        err = tt_cuda_check(diag,
                            tt_cuda_fn.host_call(l->bell ? l->bell : l->stream,
                                                 w->ring, w->arg),
                            "cuLaunchHostFunc");
    tt_cuda_leave();
    return err;
}

tutti_err tt_streams_check(tt_streams *w, tutti_diag *diag)
{
    int error = 0;
    tutti_err err = tt_cuda_enter(w->d, diag);
    if (err)
        return err;
    for (int s = 0; s < TT_STREAMS && !error; s++) {
        error = tt_cuda_fn.stream_query(w->lines[s].stream);
        if (error == CUDA_ERROR_NOT_READY)
            error = 0;
    }
    if (error)
        atomic_store_explicit(&w->broken, error, memory_order_relaxed);
    return leave(diag, error, "a GPU has failed");
}

bool tt_streams_is_broken(const tt_streams *w)
{
    return atomic_load_explicit(&w->broken, memory_order_relaxed) != 0;
}

tutti_err tt_streams_why(const tt_streams *w, tutti_diag *diag)
{
    return tt_cuda_fail(diag,
                        atomic_load_explicit(&w->broken, memory_order_relaxed),
                        "a GPU has failed");
}

void tt_streams_drain(tt_streams *w, tt_stream s)
{
    if (tt_cuda_enter(w->d, NULL))
        return;
    tt_cuda_fn.stream_wait(w->lines[s].stream);
    tt_cuda_leave();
}

/* ------------------------------------------------------------- promises -- */

void tt_streams_lock(tt_streams *w)
{
    pthread_mutex_lock(&w->making);
}

void tt_streams_unlock(tt_streams *w)
{
    pthread_mutex_unlock(&w->making);
}

/* Room for one more that is not kept. A ring: what lies in it moves when it
 * grows. */
static tutti_err room_for_promise(tt_streams *w)
{
    size_t used = (size_t)(w->promised + 1 - w->first);
    if (used < w->cap_kept)
        return TUTTI_OK;
    size_t cap = w->cap_kept ? 2 * w->cap_kept : 16;
    bool *larger = tt_new(w->mem, cap, sizeof(bool));
    if (!larger)
        return TUTTI_ENOMEM;
    for (uint64_t p = w->first; p <= w->promised; p++)
        larger[p % cap] = w->is_kept[p % w->cap_kept];
    tt_free(w->mem, w->is_kept, w->cap_kept, sizeof(bool));
    w->is_kept = larger;
    w->cap_kept = cap;
    return TUTTI_OK;
}

tutti_err tt_streams_promise(tt_streams *w, tt_promise *out, tutti_diag *diag)
{
    pthread_mutex_lock(&w->lock);
    tutti_err err = room_for_promise(w);
    if (!err) {
        *out = (tt_promise){.number = ++w->promised};
        w->is_kept[out->number % w->cap_kept] = false;
    }
    pthread_mutex_unlock(&w->lock);
    return err ? tt_fail(diag, err, "out of memory") : TUTTI_OK;
}

static bool take_spare(tt_streams *w, void **out)
{
    pthread_mutex_lock(&w->lock);
    const bool is_there = w->n_spare > 0;
    if (is_there)
        *out = w->spare[--w->n_spare];
    pthread_mutex_unlock(&w->lock);
    return is_there;
}

static tutti_err room_for_event(tt_streams *w)
{
    void *events = w->events;
    void *spare = w->spare;
    pthread_mutex_lock(&w->lock);
    tutti_err err = tt_grow(w->mem, &events, &w->cap_events, w->n_events + 1,
                            sizeof(void *));
    w->events = events;
    if (!err)
        err = tt_grow(w->mem, &spare, &w->cap_spare, w->n_events + 1,
                      sizeof(void *));
    w->spare = spare;
    pthread_mutex_unlock(&w->lock);
    return err;
}

static tutti_err take_event(tt_streams *w, void **out, tutti_diag *diag)
{
    if (take_spare(w, out))
        return TUTTI_OK;
    tutti_err err = room_for_event(w);
    if (err)
        return tt_fail(diag, err, "out of memory");
    err = new_event(out, diag);
    if (!err)
        w->events[w->n_events++] = *out;
    return err;
}

static void put_spare(tt_streams *w, void *event)
{
    pthread_mutex_lock(&w->lock);
    w->spare[w->n_spare++] = event;
    pthread_mutex_unlock(&w->lock);
}

/* In the device's context. */
static tutti_err make_event(tt_streams *w, uint64_t number, void **out,
                            tutti_diag *diag)
{
    void *event;
    tutti_err err = take_event(w, &event, diag);
    if (err)
        return err;
    err = tt_cuda_check(diag,
                        tt_cuda_fn.wait_value(w->waits, w->kept_at,
                                              (uint32_t)number, CU_WAIT_GEQ),
                        "cuStreamWaitValue32");
    if (!err)
        err = tt_cuda_check(diag, tt_cuda_fn.event_record(event, w->waits),
                            "cuEventRecord");
    if (err)
        put_spare(w, event);
    else
        *out = event;
    return err;
}

tutti_err tt_streams_event(tt_streams *w, tt_promise *p, tutti_diag *diag)
{
    tutti_err err = tt_cuda_enter(w->d, diag);
    if (!err) {
        err = make_event(w, p->number, &p->event, diag);
        tt_cuda_leave();
    }
    if (err) /* the stream must not wait for what nobody keeps */
        tt_streams_keep(w, p);
    return err;
}

void tt_streams_keep(tt_streams *w, const tt_promise *p)
{
    if (p->number == 0 || tt_process_is_child())
        return;
    pthread_mutex_lock(&w->lock);
    if (p->number >= w->first) {
        w->is_kept[p->number % w->cap_kept] = true;
        while (w->first <= w->promised && w->is_kept[w->first % w->cap_kept])
            w->first++;
        /* What the host did before it is seen by what the promise lets go
         * on. */
        atomic_store_explicit(w->kept, (uint32_t)(w->first - 1),
                              memory_order_release);
    }
    pthread_mutex_unlock(&w->lock);
}

void tt_streams_forget(tt_streams *w, tt_promise *p)
{
    if (!p->event || tt_process_is_child())
        return;
    put_spare(w, p->event);
    p->event = NULL;
}
