/* SPDX-License-Identifier: BSD-3-Clause
 * files.c - see files.h. */
#include "base/files.h"

#include <sys/resource.h>

#include "base/log.h"

bool tt_files_allow(uint64_t n)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || n <= limit.rlim_cur)
        return true;
    uint64_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (before < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        TT_INFO("the limit on open files was %llu; it is raised to %llu",
                (unsigned long long)before, (unsigned long long)limit.rlim_max);
    return n <= tt_files_limit();
}

uint64_t tt_files_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : UINT64_MAX;
}
