/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_schedule.c - any bytes may be handed to the parser of schedules, of the
 * text form and of JSON. What it refuses has a place; what it reads prints as
 * both, reads back to the same schedule and prints to the same bytes; the proof
 * and the pictures of it end. */
#include "support/alloc.h"
#include "support/fuzz_main.h"

#include "export/export.h"
#include "verify/verify.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_round_trip(const tt_mem *mem, const tutti_schedule *s,
                             const char *format)
{
    char *text = NULL, *again = NULL;
    size_t len = 0, again_len = 0;
    tutti_schedule *t = NULL;
    if (tt_export(s, format, mem, &text, &len, NULL))
        tt_fuzz_fail("a schedule cannot be printed");
    if (tt_sched_parse(mem, text, len, &t, NULL))
        tt_fuzz_fail("a printed schedule cannot be read");
    if (t->id != s->id)
        tt_fuzz_fail("a printed schedule reads back to another");
    if (tt_export(t, format, mem, &again, &again_len, NULL) ||
        again_len != len || memcmp(text, again, len) != 0)
        tt_fuzz_fail("a schedule prints in two ways");
    tt_free(mem, text, len + 1, 1);
    tt_free(mem, again, again_len + 1, 1);
    tt_sched_free(t);
}

static void check_uses(const tt_mem *mem, const tutti_schedule *s)
{
    tutti_err err = tt_verify(s, mem, NULL);
    if (err != TUTTI_OK && err != TUTTI_EPROOF)
        tt_fuzz_fail("the proof ends with an error of another kind");
    for (const tt_format *f = tt_formats; f->name; f++) {
        char *text = NULL;
        size_t len = 0;
        err = tt_export(s, f->name, mem, &text, &len, NULL);
        if (err && err != TUTTI_ELIMIT) /* too large for a picture */
            tt_fuzz_fail("a schedule cannot be exported");
        if (!err)
            tt_free(mem, text, len + 1, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, 0);
    tutti_schedule *s = NULL;
    tutti_diag diag;
    tutti_err err = tt_sched_parse(&mem, (const char *)data, len, &s, &diag);
    /* A line of six bytes cannot justify more than a chunk or a transfer, and
     * doubling, sorting and the reallocation make it less than 24 times. */
    if (m.peak_bytes > 4096 + 24 * len)
        tt_fuzz_fail("the text costs more memory than it justifies");
    if (err && (diag.line == 0 || diag.column == 0 || !diag.text[0]))
        tt_fuzz_fail("an error without a place or a sentence");
    if (!err) {
        check_round_trip(&mem, s, "schedule");
        check_round_trip(&mem, s, "json");
        check_uses(&mem, s);
    }
    tt_sched_free(s);
    if (!tt_test_mem_is_clean(&m))
        tt_fuzz_fail("memory is lost");
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/schedule",
                        LLVMFuzzerTestOneInput);
}
#endif
