/* SPDX-License-Identifier: BSD-3-Clause
 * standin.h - what the stand-in for the GPU driver (standin.c) tells tests of
 * itself, beside the driver's own functions. */
#ifndef TT_TESTS_CUDA_STANDIN_H
#define TT_TESTS_CUDA_STANDIN_H

/* How many there are now: "streams", "events", "allocations", "registrations"
 * (host memory), "mappings" (of other processes), and "depth", the contexts on
 * this thread's stack. */
#define STANDIN_LIST(X)                                                       \
    X(standin_live, int, (const char *what))                                  \
    /* Calls of that function, "cuEventRecord", since it was loaded. */       \
    X(standin_calls, unsigned long, (const char *name))                       \
    /* The nth call of it from now on fails so; 0: none. */                   \
    X(standin_fail, void, (const char *name, unsigned nth, int error))        \
    /* Memory is freed by another thread, from the end of its nth call on. */ \
    X(standin_free_after, void, (const char *name, unsigned nth))             \
    /* Every call fails so from now on, and nothing is done; 0: heals. */     \
    X(standin_break, void, (int error))                                       \
    /* Where the host may look at memory of a GPU. */                         \
    X(standin_host, void *, (unsigned long long ptr))

#define STANDIN_X(name, result, args) result name args;
STANDIN_LIST(STANDIN_X)
#undef STANDIN_X

#endif
