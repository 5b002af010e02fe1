/* SPDX-License-Identifier: BSD-3-Clause
 * log.h - one log for the process. The level is checked before the arguments
 * are evaluated. Words are lower case, "rank 3 peer 7", no "=". */
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

#include <stdatomic.h>

#include "base/err.h"

/* Set by tt_log_setup(), while other threads may log; read by tt_logs(). */
extern _Atomic tutti_log_level tt_log_level;

/* Is what has this level written at all? */
static inline bool tt_logs(tutti_log_level level)
{
    return level <= atomic_load_explicit(&tt_log_level, memory_order_relaxed);
}

/* The level from TUTTI_LOG and the rank that lines begin with (-1: none). */
void tt_log_setup(tutti_log_level level);
void tt_log_rank(int rank);
/* From now on to that file, a pattern as of tt_log_path(), if it can be opened;
 * "": to stderr. Once in a process. */
void tt_log_file(const char *pattern);
/* %r is the rank, %h the host, %p the process; %% a %. */
void tt_log_path(const char *pattern, char *out, size_t size);
void tt_log_write(tutti_log_level level, const char *fmt, ...) TT_PRINTF(2, 3);

#define TT_LOG(level, ...)                      \
    do {                                        \
        if (TT_UNLIKELY(tt_logs(level)))        \
            tt_log_write((level), __VA_ARGS__); \
    } while (0)
#define TT_WARN(...) TT_LOG(TUTTI_LOG_WARN, __VA_ARGS__)
#define TT_INFO(...) TT_LOG(TUTTI_LOG_INFO, __VA_ARGS__)
#define TT_DEBUG(...) TT_LOG(TUTTI_LOG_DEBUG, __VA_ARGS__)
#define TT_TRACE(...) TT_LOG(TUTTI_LOG_TRACE, __VA_ARGS__)

#endif
