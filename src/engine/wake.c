/* SPDX-License-Identifier: BSD-3-Clause
 * wake.c - the engine's lock, and how those are woken who sleep by it.
 *
 * Who drives sleeps on the descriptors of the nets and on one more (wake_fd)
 * that others write to; who waits while another drives sleeps on a condition.
 * Here is what every part of the engine may call; who sleeps, and when, is
 * drive.c's. */
#include <sys/epoll.h>

#include "base/bell.h"
#include "engine/state.h"

void tt_engine_lock(tt_engine *e)
{
    if (pthread_mutex_trylock(&e->lock) != 0) {
        atomic_fetch_add_explicit(&e->n_waiting, 1, memory_order_relaxed);
        pthread_mutex_lock(&e->lock);
        atomic_fetch_sub_explicit(&e->n_waiting, 1, memory_order_relaxed);
    }
    e->rest_ns = 0; /* that may be long ago */
}

void tt_engine_unlock(tt_engine *e)
{
    pthread_mutex_unlock(&e->lock);
}

void tt_engine_ring(tt_engine *e)
{
    tt_bell_ring(e->wake_fd);
}

/* Who drives and does not sleep yet looks once more before, with the lock. */
void tt_engine_wake(tt_engine *e)
{
    if (e->n_sleeping > 0)
        tt_engine_ring(e);
    if (e->n_waits > 0)
        pthread_cond_broadcast(&e->changed);
}

bool tt_engine_is_idle(const tt_engine *e)
{
    return e->n_active == 0;
}

uint64_t tt_engine_issued(const tt_engine *e)
{
    return e->issues;
}

void tt_engine_listen(tt_engine *e, int fd, bool on)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd >= 0)
        epoll_ctl(e->epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
}
