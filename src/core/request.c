/* SPDX-License-Identifier: BSD-3-Clause
 * request.c - asynchronous outcomes: test, wait, wait-any, event descriptor,
 * and callbacks, which run on a thread of their own so that user code never
 * holds up the engine.
 *
 * A request is freed when both its user and the engine have let go of it. The
 * completion thread starts with the first callback.
 *
 * Process    A request may outlive its communicator. So the process's engine,
 *            which is made with the first communicator, and the completion
 *            thread live until it has neither a communicator nor a request
 *            left.
 * Next       call.c (who makes them), engine/engine.h; base/child.c for what a
 *            fork does. */
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/child.h"
#include "base/fork.h"
#include "base/thread.h"
#include "core/core.h"

struct tutti_request {
    tt_mem mem;
    tt_engine *engine;
    _Atomic int is_done;
    _Atomic int n_refs;
    _Atomic int fd;         /* -1: none */
    bool is_elsewhere;      /* ended by tt_request_end(), not by the engine */
    _Atomic int is_watched; /* then somebody waits in the engine */
    tutti_err err;
    tt_gpu_use gpu;
    _Atomic int calls; /* whether somebody is to be called: see below */
    void (*callback)(void *arg, tutti_err err);
    void *callback_arg;
    tutti_request *next; /* in the completion thread's queue */
};

/* A callback may be given while the request is being done: each side changes
 * `calls` once, and who comes second puts the request into the queue. */
enum { CALLS_NOBODY, CALLS_CALLBACK, CALLS_ARE_OVER };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    tutti_request *head, **tail;
    pthread_t thread;
    bool runs, stops;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .filled = PTHREAD_COND_INITIALIZER};

static void stop_thread(void)
{
    pthread_mutex_lock(&queue.lock);
    bool runs = queue.runs;
    queue.stops = true;
    queue.runs = false;
    pthread_cond_broadcast(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
    if (!runs)
        return;
    /* The last of them may go with a callback. */
    if (pthread_equal(queue.thread, pthread_self()))
        pthread_detach(queue.thread);
    else
        pthread_join(queue.thread, NULL);
}

/* --------------------------------------------------------------- process -- */

static struct {
    pthread_mutex_t lock;
    tt_engine *engine;
    uint32_t n_users;
    uint64_t n_instances;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t tt_process_next_instance(void)
{
    pthread_mutex_lock(&process.lock);
    uint64_t n = process.n_instances++;
    pthread_mutex_unlock(&process.lock);
    return n;
}

tutti_err tt_process_engine(const tt_engine_opts *opts, tt_engine **out,
                            tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    pthread_mutex_lock(&process.lock);
    if (!process.engine) {
        tt_engine *e;
        err = tt_engine_create(&tt_mem_std, opts, &e, diag);
        if (!err) {
            err = tt_engine_start(e, diag);
            if (err)
                tt_engine_destroy(e);
            else
                process.engine = e;
        }
    }
    if (!err) {
        process.n_users++;
        *out = process.engine;
    }
    pthread_mutex_unlock(&process.lock);
    /* Order of locks: the engine's before this one (a request that is done
     * lets go of the process). */
    if (!err) {
        tt_engine_lock(*out);
        tt_engine_restrain(*out, opts);
        tt_engine_unlock(*out);
    }
    return err;
}

static void retain(void)
{
    pthread_mutex_lock(&process.lock);
    process.n_users++;
    pthread_mutex_unlock(&process.lock);
}

/* The last user cannot be inside the engine: an op's request is let go of by
 * its communicator's end at the latest, and the communicator is a user. */
void tt_process_release(void)
{
    tt_engine *gone = NULL;
    pthread_mutex_lock(&process.lock);
    if (--process.n_users == 0) {
        gone = process.engine;
        process.engine = NULL;
    }
    pthread_mutex_unlock(&process.lock);
    if (!gone)
        return;
    tt_engine_destroy(gone);
    /* Unless somebody has begun anew meanwhile. */
    pthread_mutex_lock(&process.lock);
    if (process.n_users == 0)
        stop_thread();
    pthread_mutex_unlock(&process.lock);
}

/* -------------------------------------------------------------- requests -- */

static void unref(tutti_request *req)
{
    if (atomic_fetch_sub_explicit(&req->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    int fd = atomic_load_explicit(&req->fd, memory_order_relaxed);
    if (fd >= 0) {
        tt_fork_unwatch(fd);
        close(fd);
    }
    tt_gpu_forget(&req->gpu);
    tt_mem mem = req->mem;
    tt_free(&mem, req, 1, sizeof(*req));
    tt_process_release();
}

static void *completion_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    while (!queue.stops || queue.head) {
        tutti_request *req = queue.head;
        if (!req) {
            pthread_cond_wait(&queue.filled, &queue.lock);
            continue;
        }
        queue.head = req->next;
        if (!queue.head)
            queue.tail = &queue.head;
        pthread_mutex_unlock(&queue.lock);
        req->callback(req->callback_arg, req->err);
        unref(req);
        pthread_mutex_lock(&queue.lock);
    }
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

static tutti_err start_thread(void)
{
    tutti_err err = TUTTI_OK;
    pthread_mutex_lock(&queue.lock);
    if (!queue.runs) {
        queue.head = NULL;
        queue.tail = &queue.head;
        queue.stops = false;
        queue.runs = tt_thread_start(&queue.thread, completion_main, NULL) == 0;
        err = queue.runs ? TUTTI_OK : TUTTI_ESYS;
    }
    pthread_mutex_unlock(&queue.lock);
    return err;
}

tutti_err tt_request_make(const tt_mem *mem, tt_engine *engine,
                          const tutti_call_opts *opts, tutti_request **out)
{
    if (opts && opts->callback) {
        tutti_err err = start_thread();
        if (err)
            return err;
    }
    tutti_request *req = tt_new(mem, 1, sizeof(*req));
    if (!req)
        return TUTTI_ENOMEM;
    retain();
    req->mem = *mem;
    req->engine = engine;
    req->is_elsewhere = true;
    req->callback = opts ? opts->callback : NULL;
    req->callback_arg = opts ? opts->callback_arg : NULL;
    atomic_init(&req->calls, req->callback ? CALLS_CALLBACK : CALLS_NOBODY);
    atomic_init(&req->fd, -1);
    atomic_init(&req->n_refs, 2);
    *out = req;
    return TUTTI_OK;
}

void tt_request_drop(tutti_request *req)
{
    atomic_store_explicit(&req->n_refs, 1, memory_order_relaxed);
    unref(req);
}

/* The reference goes with it. */
static void enqueue(tutti_request *req)
{
    pthread_mutex_lock(&queue.lock);
    req->next = NULL;
    *queue.tail = req;
    queue.tail = &req->next;
    pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}

tutti_err tutti_request_callback(tutti_request *req,
                                 void (*callback)(void *arg, tutti_err err),
                                 void *arg)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    if (!callback || req->callback)
        return TUTTI_EINVAL;
    tutti_err err = start_thread();
    if (err)
        return err;
    req->callback = callback;
    req->callback_arg = arg;
    int before = CALLS_NOBODY;
    if (atomic_compare_exchange_strong_explicit(
            &req->calls, &before, CALLS_CALLBACK, memory_order_acq_rel,
            memory_order_acquire))
        return TUTTI_OK;
    atomic_fetch_add_explicit(&req->n_refs, 1, memory_order_relaxed);
    enqueue(req);
    return TUTTI_OK;
}

static void settle(tutti_request *req, tutti_err err)
{
    req->err = err;
    /* Pairs with tutti_request_fd: it stores fd, then looks at is_done. */
    atomic_store_explicit(&req->is_done, 1, memory_order_seq_cst);
    int fd = atomic_load_explicit(&req->fd, memory_order_seq_cst);
    if (fd >= 0)
        tt_bell_ring(fd);
}

static void let_go(tutti_request *req)
{
    if (atomic_exchange_explicit(&req->calls, CALLS_ARE_OVER,
                                 memory_order_acq_rel) == CALLS_CALLBACK)
        enqueue(req);
    else
        unref(req);
}

void tt_request_end(void *arg, tutti_err err, bool is_locked)
{
    tutti_request *req = arg;
    settle(req, err);
    /* The engine's lock is not asked for unless somebody waits there. Pairs
     * with watch(): it stores is_watched, and then is_done is looked at. */
    bool locks = !is_locked &&
                 atomic_load_explicit(&req->is_watched, memory_order_seq_cst);
    if (locks)
        tt_engine_lock(req->engine);
    if (locks || is_locked)
        tt_engine_wake(req->engine);
    if (locks)
        tt_engine_unlock(req->engine);
    let_go(req);
}

static void finish(void *arg, tutti_err err)
{
    tutti_request *req = arg;
    tt_gpu_done(&req->gpu, err);
    tt_request_end(req, err, true);
}

tutti_err tt_request_create(tutti_comm *comm, const tutti_call_opts *opts,
                            const tt_gpu_use *use, tt_op_start *start,
                            tutti_request **out)
{
    tutti_err err = tt_request_make(&comm->mem, comm->engine, opts, out);
    if (err)
        return err;
    (*out)->is_elsewhere = false;
    (*out)->gpu = *use;
    start->done = finish;
    start->arg = *out;
    return TUTTI_OK;
}

static bool is_done(const void *arg)
{
    const tutti_request *req = arg;
    return atomic_load_explicit(&req->is_done, memory_order_seq_cst) != 0;
}

tutti_err tutti_test(tutti_request *req)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    if (!is_done(req) && !req->is_elsewhere)
        tt_engine_poke(req->engine);
    return is_done(req) ? req->err : TUTTI_AGAIN;
}

/* Whoever waits sees it done, or is seen waiting by who ends it. */
static void watch(tutti_request *req)
{
    if (req->is_elsewhere)
        atomic_store_explicit(&req->is_watched, 1, memory_order_seq_cst);
}

tutti_err tutti_wait(tutti_request *req)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    /* A request that is done may be older than its engine. */
    watch(req);
    if (!is_done(req))
        tt_engine_wait(req->engine, is_done, req, req->is_elsewhere);
    tutti_err err = req->err;
    unref(req);
    return err;
}

typedef struct any {
    tutti_request *const *reqs;
    size_t n;
} any;

static size_t find_done(const any *a)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->reqs[i] && is_done(a->reqs[i]))
            return i;
    return a->n;
}

static bool is_any_done(const void *arg)
{
    const any *a = arg;
    return find_done(a) < a->n;
}

tutti_err tutti_wait_any(tutti_request *const *reqs, size_t n, size_t *index)
{
    any a = {reqs, n};
    tutti_request *first = NULL;
    if (tt_process_is_child())
        return TUTTI_EFORK;
    for (size_t i = 0; reqs && i < n && !first; i++)
        first = reqs[i];
    if (!first || !index)
        return TUTTI_EINVAL;
    for (size_t i = 0; i < n; i++)
        if (reqs[i])
            watch(reqs[i]);
    if (!is_any_done(&a))
        tt_engine_wait(first->engine, is_any_done, &a, first->is_elsewhere);
    *index = find_done(&a);
    return TUTTI_OK;
}

tutti_err tutti_request_fd(tutti_request *req, int *fd)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    int have = atomic_load_explicit(&req->fd, memory_order_relaxed);
    if (have < 0) {
        int mine = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (mine < 0)
            return TUTTI_ESYS;
        tt_fork_watch(mine);
        /* Pairs with settle: one of the two sees the other. */
        if (!atomic_compare_exchange_strong(&req->fd, &have, mine))
            tt_fork_close(&mine); /* another thread was first */
        else
            have = mine;
        if (atomic_load_explicit(&req->is_done, memory_order_seq_cst))
            tt_bell_ring(have);
    }
    *fd = have;
    return TUTTI_OK;
}

static bool is_given(const void *arg)
{
    const tutti_request *req = arg;
    return is_done(req) || tt_gpu_is_given(&req->gpu);
}

tutti_err tutti_request_event(tutti_request *req, void **event)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    if (!event || !req->gpu.is_on_device)
        return TUTTI_EINVAL;
    *event = NULL;
    if (is_done(req) || !req->gpu.gpu)
        return TUTTI_OK;
    /* Nobody is to wait for a call that needs the driver first. */
    tt_engine_wait(req->engine, is_given, req, true);
    return tt_gpu_event(&req->gpu, is_done, req, event);
}

void tutti_request_free(tutti_request *req)
{
    if (req && !tt_process_is_child())
        unref(req);
}
