/* SPDX-License-Identifier: BSD-3-Clause
 * plan_golden_test.c - the all-reduce of five ranks, as each planner has
 * always built it: tests/golden/plan-NAME-5.txt. A change of these bytes is a
 * change of the schedule's id, so it should be meant. TT_GOLDEN_WRITE=1
 * writes the files anew instead of comparing. */
#include "export/export.h"
#include "support/tap.h"

#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of the schedule; the caller frees len + 1 bytes. */
static char *plan_text(const tt_planner *planner, size_t *len)
{
    const tt_problem p = {
        .collective = TUTTI_ALL_REDUCE, .n_ranks = 5, .root = TT_NONE};
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    char *text = NULL;
    if (tt_plan_build(planner, &p, &tt_mem_std, &s, &diag))
        fail_msg("%s: %s", planner->name, diag.text);
    assert_int_equal(tt_export(s, "schedule", &tt_mem_std, &text, len, NULL),
                     TUTTI_OK);
    tt_sched_free(s);
    return text;
}

static void compare(const char *path, const char *text, size_t len)
{
    char *golden = calloc(1, len + 2);
    assert_non_null(golden);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s cannot be opened (run the tests in the top folder)", path);
    size_t got = fread(golden, 1, len + 1, f);
    fclose(f);
    if (got != len || memcmp(golden, text, len) != 0)
        fail_msg("%s differs; it should be:\n%s", path, text);
    free(golden);
}

static void rewrite(const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "w");
    if (!f || fwrite(text, 1, len, f) != len || fclose(f))
        fail_msg("%s cannot be written", path);
}

static void five_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; tt_planners[i]; i++) {
        char path[128];
        if (!tt_planners[i]->guess) /* it needs a topology */
            continue;
        snprintf(path, sizeof(path), "tests/golden/plan-%s-5.txt",
                 tt_planners[i]->name);
        size_t len = 0;
        char *text = plan_text(tt_planners[i], &len);
        if (getenv("TT_GOLDEN_WRITE"))
            rewrite(path, text, len);
        else
            compare(path, text, len);
        tt_free(&tt_mem_std, text, len + 1, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_ranks),
    };
    return TT_RUN_TAP(tests);
}
