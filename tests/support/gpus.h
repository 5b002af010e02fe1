/* SPDX-License-Identifier: BSD-3-Clause
 * gpus.h - what a program does with GPUs, for tests: memory, streams, events,
 * by the driver's own functions; and the stand-in for the driver, where there
 * is to be one (support/cuda/standin.c). */
#ifndef TT_TESTS_GPUS_H
#define TT_TESTS_GPUS_H

#include <stddef.h>
#include <stdint.h>

#include "support/cuda/standin.h"

typedef struct gpus {
    int (*init)(unsigned flags);
    int (*count)(int *out);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*alloc)(unsigned long long *out, size_t bytes);
    int (*release)(unsigned long long ptr);
    int (*put)(unsigned long long to, const void *from, size_t bytes);
    int (*get)(void *to, unsigned long long from, size_t bytes);
    int (*stream_create)(void **out, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*stream_after)(void *stream, void *event, unsigned flags);
    int (*event_create)(void **out, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_wait)(void *event);
    /* Of the stand-in; NULL where the driver is a real one. */
#define STANDIN_X(name, result, args) result(*name) args;
    STANDIN_LIST(STANDIN_X)
#undef STANDIN_X
} gpus;

/* The stand-in that was built beside this program is the process's driver from
 * now on. Ends the process where it is not there. Before anything else looks
 * for a driver; settings are those of the environment at their first use. */
const gpus *gpus_standin(void);
/* The real one; NULL: there is none, and *why. */
const gpus *gpus_real(const char **why);

/* A context of that device is current in this thread from now on. */
void gpus_begin(const gpus *g, int device);
void gpus_end(const gpus *g);
/* Memory of the current device; ends the process where there is none. */
void *gpus_new(const gpus *g, size_t bytes);
void gpus_free(const gpus *g, void *ptr);
void gpus_put(const gpus *g, void *to, const void *from, size_t bytes);
void gpus_get(const gpus *g, void *to, const void *from, size_t bytes);

#endif
