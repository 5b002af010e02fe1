/* SPDX-License-Identifier: BSD-3-Clause
 * child.c - see child.h. The handlers of fork() are installed with the first
 * use of the library. Next: fork.c, regions.c. */
#include "base/child.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/fork.h"

static tt_regions regions = TT_REGIONS_INIT(&tt_mem_std);

static atomic_bool is_child;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    tt_regions_before_fork(&regions);
}

static void after_fork_in_parent(void)
{
    tt_regions_after_fork(&regions);
}

static void after_fork_in_child(void)
{
    atomic_store_explicit(&is_child, true, memory_order_relaxed);
    tt_regions_child(&regions); /* needs the descriptors */
    tt_fork_child();
}

static void install(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

bool tt_process_is_child(void)
{
    return atomic_load_explicit(&is_child, memory_order_relaxed);
}

tutti_err tt_process_enter(tutti_diag *diag)
{
    pthread_once(&once, install);
    if (tt_process_is_child())
        return tt_fail(diag, TUTTI_EFORK,
                       "this process was forked from one that had used "
                       "tutti; only an exec makes it usable again");
    return TUTTI_OK;
}

tt_regions *tt_process_regions(void)
{
    pthread_once(&once, install);
    return &regions;
}

void *tutti_alloc(size_t bytes)
{
    return tt_regions_alloc(tt_process_regions(), bytes);
}

void tutti_free(void *ptr)
{
    tt_regions_free(tt_process_regions(), ptr);
}
