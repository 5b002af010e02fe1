/* SPDX-License-Identifier: BSD-3-Clause
 * ucx.c - see ucx.h. */
#include "support/ucx.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/table.h"

/* Asked by libasan. GCC 12's takes the thread-local memory of a library that is
 * loaded late for something else where it begins 16 bytes into a page, and
 * crashes in its search for leaks. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "intercept_tls_get_addr=0";
}

/* In a child: to load it is to have its hooks. */
static bool is_loadable(void)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(dlopen("libucp.so.0", RTLD_NOW) ? 0 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

const char *tt_ucx_use(const char *tls)
{
    static int loads = -1;
    const char *lack = tt_transport_lack("ucx");
    /* Sanitizers stand where its hooks would be. */
    setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 0);
    setenv("UCX_TLS", tls, 1);
    if (lack)
        return lack;
    if (loads < 0)
        loads = is_loadable();
    return loads ? NULL : "the UCX library is not installed (Debian: libucx0)";
}
