/* SPDX-License-Identifier: BSD-3-Clause
 * process.c - what the process has one of: the engine, shared by all
 * communicators.
 *
 * It is made with the first communicator and goes with the last communicator or
 * request. Next: engine/engine.h; base/child.c for what a fork does. */
#include <pthread.h>

#include "core/core.h"

static struct {
    pthread_mutex_t lock;
    tt_engine *engine;
    uint32_t n_users;
    uint64_t n_instances;
    void (*at_end)(void); /* NULL: nothing to do */
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
