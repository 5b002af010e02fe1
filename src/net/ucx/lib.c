/* SPDX-License-Identifier: BSD-3-Clause
 * lib.c - the UCX library: found at run time, kept quiet.
 *
 * Idea       Loaded when a communicator wants it, not linked: the mere
 *            loading makes it take over signals (SIGSEGV, SIGHUP, ...), patch
 *            mmap() and its like, and takes milliseconds. Programs that only
 *            could use it are spared all that, and run where it is missing.
 * Signals    What it has taken over goes back to its owner, unless the user
 *            has set UCX_HANDLE_ERRORS.
 * Words      Its log goes into ours: warnings and errors at level info, for a
 *            rank that dies is an error to UCX. A user who sets UCX_LOG_LEVEL
 *            gets UCX's own log instead.
 * Next       meet.c. */
#include "net/ucx/ucx.h"

#if TT_HAVE_UCX

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#define LIBRARY "libucp.so.0"

static struct {
    pthread_mutex_t lock;
    tt_ucx_api api;
    bool is_loaded;
    bool has_handler;
    unsigned n_users;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --------------------------------------------------------------- loading -- */

#define FIRST_REALTIME 32

static void *load_library(void)
{
    struct sigaction owner[FIRST_REALTIME], now;
    bool is_known[FIRST_REALTIME];
    bool gives_back = !getenv("UCX_HANDLE_ERRORS");
    for (int i = 1; i < FIRST_REALTIME; i++)
        is_known[i] = sigaction(i, NULL, &owner[i]) == 0;
    /* Never unloaded: it has threads and hooks. */
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (int i = 1; gives_back && handle && i < FIRST_REALTIME; i++) {
        if (is_known[i] && sigaction(i, NULL, &now) == 0 &&
            now.sa_handler != owner[i].sa_handler)
            sigaction(i, &owner[i], NULL);
    }
    return handle;
}

/* The name of the first call that the library lacks; NULL: it has all. */
static const char *find_calls(void *handle)
{
    void *at;
#define TT_X(name)             \
    at = dlsym(handle, #name); \
    if (!at)                   \
        return #name;          \
    memcpy(&library.api.name, &at, sizeof(void *));
    TT_UCX_CALLS(TT_X)
#undef TT_X
    return NULL;
}

static tutti_err load(tutti_diag *diag)
{
    void *handle = load_library();
    if (!handle)
        return tt_fail(diag, TUTTI_ENET,
                       "the transport ucx needs the UCX library: %.200s; "
                       "install it (Debian: libucx0), or leave ucx out of "
                       "TUTTI_TRANSPORTS",
                       dlerror());
    const char *lacks = find_calls(handle);
    if (lacks)
        return tt_fail(diag, TUTTI_ENET,
                       "the UCX library " LIBRARY " of this host has no %s: "
                       "it is too old; install UCX 1.12 or newer, or leave "
                       "ucx out of TUTTI_TRANSPORTS",
                       lacks);
    library.is_loaded = true;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------- log -- */

static ucs_log_func_rc_t on_log(const char *file, unsigned line,
                                const char *function, ucs_log_level_t level,
                                const ucs_log_component_config_t *component,
                                const char *message, va_list args)
{
    (void)file;
    (void)line;
    (void)function;
    (void)component;
    if (level == UCS_LOG_LEVEL_FATAL || level >= UCS_LOG_LEVEL_PRINT)
        return UCS_LOG_FUNC_RC_CONTINUE; /* its last words; or asked for */
    char text[400];
    vsnprintf(text, sizeof(text), message, args);
    if (level <= UCS_LOG_LEVEL_WARN)
        TT_INFO("ucx: %s", text);
    else
        TT_DEBUG("ucx: %s", text);
    return UCS_LOG_FUNC_RC_STOP;
}

const tt_ucx_api *tt_ucx_take(tutti_diag *diag)
{
    pthread_mutex_lock(&library.lock);
    tutti_err err = library.is_loaded ? TUTTI_OK : load(diag);
    if (!err && library.n_users++ == 0 && !getenv("UCX_LOG_LEVEL")) {
        library.api.ucs_log_push_handler(on_log);
        library.has_handler = true;
    }
    pthread_mutex_unlock(&library.lock);
    return err ? NULL : &library.api;
}

void tt_ucx_give_back(void)
{
    pthread_mutex_lock(&library.lock);
    if (--library.n_users == 0 && library.has_handler) {
        library.api.ucs_log_pop_handler();
        library.has_handler = false;
    }
    pthread_mutex_unlock(&library.lock);
}

/* ------------------------------------------------------------------ RDMA -- */

bool tt_ucx_has_rdma(const char *sysfs)
{
    char pattern[300], text[32];
    bool found = false;
    glob_t states = {0};
    snprintf(pattern, sizeof(pattern), "%.200s/*/ports/*/state", sysfs);
    glob(pattern, GLOB_NOSORT, NULL, &states);
    for (size_t i = 0; i < states.gl_pathc; i++) /* "4: ACTIVE" */
        found |= strncmp(tt_file_head(states.gl_pathv[i], text, sizeof(text)),
                         "4:", 2) == 0;
    globfree(&states);
    return found;
}

bool tt_ucx_is_wanted(void)
{
    return tt_ucx_has_rdma("/sys/class/infiniband");
}

#else
typedef int tt_ucx_lib_is_empty;
#endif
