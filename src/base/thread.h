/* SPDX-License-Identifier: BSD-3-Clause
 * thread.h - a thread of the library's own: signals are the program's, and none
 * is handled there. */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

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

#endif
