/* SPDX-License-Identifier: BSD-3-Clause
 * log.c - see log.h. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/append.h"

_Atomic tutti_log_level tt_log_level = TUTTI_LOG_WARN;

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static tutti_log_fn sink;
static void *sink_arg;
static int log_rank = -1;
static FILE *file; /* NULL: stderr */

void tutti_log_set(tutti_log_fn fn, void *arg)
{
    pthread_mutex_lock(&sink_lock);
    sink = fn;
    sink_arg = arg;
    pthread_mutex_unlock(&sink_lock);
}

void tt_log_setup(tutti_log_level level)
{
    atomic_store_explicit(&tt_log_level, level, memory_order_relaxed);
}

void tt_log_rank(int rank)
{
    pthread_mutex_lock(&sink_lock);
    log_rank = rank;
    pthread_mutex_unlock(&sink_lock);
}

void tt_log_path(const char *pattern, char *out, size_t size)
{
    char host[64] = "";
    size_t n = 0;
    gethostname(host, sizeof(host) - 1);
    pthread_mutex_lock(&sink_lock);
    const int rank = log_rank;
    pthread_mutex_unlock(&sink_lock);
    for (const char *c = pattern; *c && n + 1 < size; c++) {
        const char what = *c == '%' ? c[1] : '\0';
        int used = 1;
        if (what == 'r')
            used = snprintf(out + n, size - n, "%d", rank);
        else if (what == 'h')
            used = snprintf(out + n, size - n, "%s", host);
        else if (what == 'p')
            used = snprintf(out + n, size - n, "%d", (int)getpid());
        else
            out[n] = *c;
        c += what == 'r' || what == 'h' || what == 'p' || what == '%';
        n += (size_t)used;
    }
    out[n < size ? n : size - 1] = '\0';
}

void tt_log_file(const char *pattern)
{
    char path[512];
    const char *why = NULL;
    if (!pattern[0])
        return;
    tt_log_path(pattern, path, sizeof(path));
    pthread_mutex_lock(&sink_lock);
    if (!file) {
        why = tt_append_open(path, &file);
        if (!why)
            setvbuf(file, NULL, _IOLBF, 0);
    }
    pthread_mutex_unlock(&sink_lock);
    if (why)
        TT_WARN("TUTTI_LOG_FILE: cannot write %s: %s", path, why);
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
    FILE *to = file ? file : stderr;
    if (!fn && log_rank >= 0)
        fprintf(to, "tutti %s rank %d: %s\n", names[level], log_rank, line);
    else if (!fn)
        fprintf(to, "tutti %s: %s\n", names[level], line);
    pthread_mutex_unlock(&sink_lock);
    if (fn)
        fn(arg, level, line);
}
