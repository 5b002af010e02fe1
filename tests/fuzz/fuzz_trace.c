/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_trace.c - any bytes may be handed to the reader of traces. What it hands
 * on lies within the limits; what it refuses has a sentence. */
#include "support/fuzz_main.h"

#include "export/export.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check(void *ctx, const tutti_recorded_info *info)
{
    const tutti_event_info *e = &info->event;
    *(uint64_t *)ctx += info->call_name == NULL;
    if (e->src >= TT_MAX_RANKS || e->dst >= TT_MAX_RANKS ||
        !(e->begin_s >= 0 && e->begin_s <= e->sent_s && e->sent_s <= e->end_s &&
          e->end_s < 1e11))
        tt_fuzz_fail("an event that cannot be");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint64_t n = 0;
    tutti_diag diag = TT_DIAG_NONE;
    tutti_err err = tt_trace_read((const char *)data, len, check, &n, &diag);
    if (err && !diag.text[0])
        tt_fuzz_fail("an error without a sentence");
    if (!err && n == 0)
        tt_fuzz_fail("a trace without transfers");
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/trace",
                        LLVMFuzzerTestOneInput);
}
#endif
