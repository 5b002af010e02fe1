/* SPDX-License-Identifier: BSD-3-Clause
 * log.c - see log.h. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

tutti_log_level tt_log_level = TUTTI_LOG_WARN;

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static tutti_log_fn sink;
static void *sink_arg;
static int log_rank = -1;

void tutti_log_set(tutti_log_fn fn, void *arg)
{
    pthread_mutex_lock(&sink_lock);
    sink = fn;
    sink_arg = arg;
    pthread_mutex_unlock(&sink_lock);
}

void tt_log_setup(tutti_log_level level)
{
    tt_log_level = level;
}

void tt_log_rank(int rank)
{
    pthread_mutex_lock(&sink_lock);
    log_rank = rank;
    pthread_mutex_unlock(&sink_lock);
}

void tt_log_write(tutti_log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug",
                                        "trace"};
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);

    pthread_mutex_lock(&sink_lock);
    tutti_log_fn fn = sink;
    void *arg = sink_arg;
    if (!fn && log_rank >= 0)
        fprintf(stderr, "tutti %s rank %d: %s\n", names[level], log_rank, line);
    else if (!fn)
        fprintf(stderr, "tutti %s: %s\n", names[level], line);
    pthread_mutex_unlock(&sink_lock);
    if (fn)
        fn(arg, level, line);
}
