/* SPDX-License-Identifier: BSD-3-Clause
 * gpustreams.h - memory and streams of a GPU for tests, by the driver that the
 * library finds: the stand-in (support/gpus.h), or with TT_CUDA=real the
 * machine's own. */
#ifndef TT_TESTS_GPUSTREAMS_H
#define TT_TESTS_GPUSTREAMS_H

#include <stdbool.h>
#include <stddef.h>

/* In main(), before anything else: sees to it that it is found. NULL, or why
 * there is none. */
const char *tt_gpus_find(void);

/* Each fails the process with a sentence. The first one makes the context. */
void *tt_gpu_alloc(size_t bytes); /* unlike any data: not zeroed */
void tt_gpu_free(void *ptr);
void tt_gpu_write(void *to, const void *from, size_t bytes);
void tt_gpu_read(void *to, const void *from, size_t bytes);

typedef struct tt_gpu_stream tt_gpu_stream;
tt_gpu_stream *tt_gpu_stream_new(void);
void tt_gpu_stream_free(tt_gpu_stream *s);
/* In the stream: from pinned host memory (of tt_gpu_pinned()) to the GPU, and
 * back. */
void *tt_gpu_pinned(size_t bytes);
void tt_gpu_pinned_free(void *ptr);
void tt_gpu_stream_write(tt_gpu_stream *s, void *to, const void *from,
                         size_t bytes);
void tt_gpu_stream_read(tt_gpu_stream *s, void *to, const void *from,
                        size_t bytes);
/* A CUevent after all that was put into it: the stream's, until the next. */
void *tt_gpu_stream_event(tt_gpu_stream *s);
void tt_gpu_stream_wait(tt_gpu_stream *s, void *event); /* NULL: nothing */
bool tt_gpu_stream_is_idle(tt_gpu_stream *s);
void tt_gpu_stream_sync(tt_gpu_stream *s);
/* What is put into it from now on waits until *word is 1 or more: pinned
 * memory. */
void tt_gpu_stream_hold(tt_gpu_stream *s, const unsigned *word);

#endif
