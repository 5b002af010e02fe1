/* SPDX-License-Identifier: BSD-3-Clause
 * event.h - what happened to one slice of one transfer, and when. Simulator
 * and engine write the same records, so one viewer compares the predicted with
 * the measured, transfer by transfer. */
#ifndef TT_BASE_EVENT_H
#define TT_BASE_EVENT_H

#include <stdint.h>

typedef struct tt_event {
    double begin_s, end_s; /* first byte leaves src; dst has consumed it */
    double sent_s;         /* the last byte has left src */
    uint64_t bytes;
    uint32_t step, chunk, src, dst, slice;
    uint8_t op, rail; /* as in tt_transfer */
    uint16_t pad;     /* 0 */
} tt_event;

_Static_assert(sizeof(tt_event) == 56, "events are 56 bytes");

/* Called once per slice, in order of end_s. */
typedef struct tt_event_sink {
    void (*fn)(void *ctx, const tt_event *event);
    void *ctx;
} tt_event_sink;

#endif
