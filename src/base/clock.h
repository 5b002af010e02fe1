/* SPDX-License-Identifier: BSD-3-Clause
 * clock.h - the monotonic clock in nanoseconds. */
#ifndef TT_BASE_CLOCK_H
#define TT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TT_NS_PER_S UINT64_C(1000000000)
#define TT_NS_PER_MS UINT64_C(1000000)
#define TT_NS_PER_US UINT64_C(1000)

static inline uint64_t tt_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * TT_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* seconds > 0, at most 100 years: sums of times stay in range. */
static inline uint64_t tt_seconds_to_ns(double seconds)
{
    const double most = 100.0 * 365 * 86400;
    return (uint64_t)((seconds < most ? seconds : most) * 1e9);
}

#endif
