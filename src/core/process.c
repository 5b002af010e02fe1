/* SPDX-License-Identifier: BSD-3-Clause
 * process.c - what the process has one of: the engine, shared by all
 * communicators, and the memory of tutti_alloc(); and what a forked child may
 * do: nothing.
 *
 * The engine is made with the first communicator and goes with the last
 * communicator or request. The memory outlives it.
 * Next: engine/engine.h, base/regions.c, base/fork.c. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/fork.h"
#include "core/core.h"

static struct {
    pthread_mutex_t lock;
    tt_engine *engine;
    uint32_t n_users;
    uint64_t n_instances;
    void (*at_end)(void); /* NULL: nothing to do */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static tt_regions regions = TT_REGIONS_INIT(&tt_mem_std);

static atomic_bool is_child;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    tt_regions_before_fork(&regions);
}

static void after_fork_in_parent(void)
{
    tt_regions_after_fork(&regions);
}

static void after_fork_in_child(void)
{
    atomic_store_explicit(&is_child, true, memory_order_relaxed);
    tt_regions_child(&regions); /* needs the descriptors */
    tt_fork_child();
}

static void install(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

tt_regions *tt_process_regions(void)
{
    pthread_once(&once, install);
    return &regions;
}

bool tt_process_is_child(void)
{
    return atomic_load_explicit(&is_child, memory_order_relaxed);
}

tutti_err tt_process_enter(tutti_diag *diag)
{
    pthread_once(&once, install);
    if (tt_process_is_child())
        return tt_fail(diag, TUTTI_EFORK,
                       "this process was forked from one that had used "
                       "tutti; only an exec makes it usable again");
    return TUTTI_OK;
}

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

void tt_process_retain(void (*at_end)(void))
{
    pthread_mutex_lock(&process.lock);
    process.n_users++;
    process.at_end = at_end;
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
    if (process.n_users == 0 && process.at_end)
        process.at_end();
    pthread_mutex_unlock(&process.lock);
}

/* ---------------------------------------------------- memory for buffers -- */

void *tutti_alloc(size_t bytes)
{
    return tt_regions_alloc(tt_process_regions(), bytes);
}

void tutti_free(void *ptr)
{
    tt_regions_free(tt_process_regions(), ptr);
}
