/* SPDX-License-Identifier: BSD-3-Clause
 * golden.h - a schedule against the file that has its text. With
 * TT_GOLDEN_WRITE=1 in the environment the file is written anew instead.
 * Include support/tap.h first. */
#ifndef TT_TESTS_GOLDEN_H
#define TT_TESTS_GOLDEN_H

#include "export/export.h"
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void tt_golden_compare(const char *path, const char *text,
                                     size_t len)
{
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s cannot be opened (run the tests in the top folder)", path);
    char *golden = calloc(1, len + 2);
    assert_non_null(golden);
    size_t got = fread(golden, 1, len + 1, f);
    fclose(f);
    bool is_same = got == len && memcmp(golden, text, len) == 0;
    free(golden);
    if (!is_same)
        fail_msg("%s differs; it should be:\n%s", path, text);
}

static inline void tt_golden_schedule(const char *path, const tutti_schedule *s)
{
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(tt_export(s, "schedule", &tt_mem_std, &text, &len, NULL),
                     TUTTI_OK);
    if (getenv("TT_GOLDEN_WRITE")) {
        FILE *f = fopen(path, "w");
        if (!f || fwrite(text, 1, len, f) != len || fclose(f))
            fail_msg("%s cannot be written", path);
    } else {
        tt_golden_compare(path, text, len);
    }
    tt_free(&tt_mem_std, text, len + 1, 1);
}

#endif
