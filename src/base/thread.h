/* SPDX-License-Identifier: BSD-3-Clause
 * thread.h - a thread of the library's own: signals are the program's, and none
 * is handled there; and what it waits for. */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* As pthread_create(): 0 or an errno value. */
static inline int tt_thread_start(pthread_t *thread, void *(*fn)(void *arg),
                                  void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int why = pthread_create(thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

/* Waits for it go by CLOCK_MONOTONIC: the time of day may jump. */
static inline void tt_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &steady);
    pthread_condattr_destroy(&steady);
}

#endif
