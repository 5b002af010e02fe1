/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_rule.c - any text may be given as the rule that names planners. What is
 * refused comes with a sentence; what is taken names a planner that fits, and
 * the same one again, for every collective and size. */
#include "support/fuzz_main.h"

#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check(const char *rule, const tt_problem *p)
{
    const tt_planner *first = NULL, *second = NULL;
    tutti_diag diag = {0};
    tutti_err err = tt_plan_choose(rule, p, &first, &diag);
    if (err && (err != TUTTI_ECONFIG && err != TUTTI_ENOFIT))
        tt_fuzz_fail("an error of another kind");
    if (err && (first || !diag.text[0]))
        tt_fuzz_fail("a refusal without a sentence, or with a planner");
    if (err)
        return;
    if (!first || first->why_not(p))
        tt_fuzz_fail("a planner that does not fit");
    if (tt_plan_choose(rule, p, &second, NULL) || first != second)
        tt_fuzz_fail("the same rule chooses differently");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *rule = malloc(len + 1);
    if (!rule)
        return 0;
    memcpy(rule, data, len);
    rule[len] = '\0';
    for (int coll = 0; coll < TUTTI_COLL_COUNT; coll++) {
        if (!tt_coll_has_schedule((tutti_coll)coll))
            continue;
        for (uint64_t size = 1; size < UINT64_C(1) << 50; size <<= 12) {
            const tt_problem p = {
                .collective = (tutti_coll)coll,
                .n_ranks = 6,
                .root = tt_coll_has_root((tutti_coll)coll) ? 1 : TT_NONE,
                .size_bytes = size - 1,
                .alpha_s = 20e-6,
                .beta_s_per_byte = 1e-9,
                .gamma_s_per_byte = 0.1e-9,
            };
            check(rule, &p);
        }
    }
    free(rule);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/rule",
                        LLVMFuzzerTestOneInput);
}
#endif
