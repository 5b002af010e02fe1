/* SPDX-License-Identifier: BSD-3-Clause
 * life.c - an engine is made, its settings are lowered by who comes later, and
 * it goes. Next: drive.c, which has its thread. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/thread.h"
#include "engine/state.h"

tutti_err tt_engine_create(const tt_mem *mem, const tt_engine_opts *opts,
                           tt_engine **out, tutti_diag *diag)
{
    tt_engine *e = tt_new(mem, 1, sizeof(*e));
    if (!e)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for the engine");
    e->mem = mem;
    e->opts = *opts;
    e->epoll_fd = -1;
    e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->wake_fd >= 0)
        e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->epoll_fd < 0) {
        tutti_err err = tt_fail_errno(diag, TUTTI_ESYS, errno,
                                      "cannot make an event descriptor");
        if (e->wake_fd >= 0)
            close(e->wake_fd);
        tt_free(mem, e, 1, sizeof(*e));
        return err;
    }
    tt_fork_watch(e->wake_fd);
    tt_fork_watch(e->epoll_fd);
    tt_engine_listen(e, e->wake_fd, true);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->giver.turns, NULL);
    tt_cond_init(&e->changed);
    *out = e;
    return TUTTI_OK;
}

void tt_engine_destroy(tt_engine *e)
{
    if (!e)
        return;
    tt_giver_end(e);
    if (e->has_thread) {
        tt_engine_lock(e);
        e->stops = true;
        tt_engine_ring(e);
        pthread_cond_broadcast(&e->changed);
        tt_engine_unlock(e);
        pthread_join(e->thread, NULL);
    }
    tt_fork_close(&e->epoll_fd);
    tt_fork_close(&e->wake_fd);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->giver.turns);
    pthread_mutex_destroy(&e->lock);
    tt_free(e->mem, e, 1, sizeof(*e));
}

static void lower(uint64_t *limit, uint64_t to)
{
    if (*limit > to)
        *limit = to;
}

void tt_engine_restrain(tt_engine *e, const tt_engine_opts *opts)
{
    lower(&e->opts.spin_aside_ns, opts->spin_aside_ns);
    if (opts->crowd_polls == 0)
        return;
    if (e->opts.crowd_polls == 0 || e->opts.crowd_polls > opts->crowd_polls)
        e->opts.crowd_polls = opts->crowd_polls;
    /* Who shares a home is known of those of the same. */
    if (e->opts.home_cpu == 0)
        e->opts.apart_polls = opts->apart_polls;
    else if (e->opts.home_cpu != opts->home_cpu || opts->apart_polls == 0)
        e->opts.apart_polls = 0;
    if (e->opts.home_cpu == 0)
        e->opts.home_cpu = opts->home_cpu;
    lower(&e->opts.spin_ns, opts->spin_ns);
    lower(&e->opts.spin_large_ns, opts->spin_large_ns);
}
