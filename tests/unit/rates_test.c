/* SPDX-License-Identifier: BSD-3-Clause
 * rates_test.c - the rate of a link and the doubt about it, from passages that
 * are written down here: infer/rates.c's rules, each at its edge. */
#include "support/tap.h"

#include <math.h>

#include "infer/plane.h"

enum { MOST = 16 };

typedef struct one_link {
    tt_passage passages[MOST];
    uint32_t by_link[MOST], first[2];
    tt_vote votes[MOST];
    tt_plane p;
} one_link;

static one_link seen;

static void begin(void)
{
    seen = (one_link){.p = {.noise = 0.1,
                            .lone_noise = 0.02,
                            .passages = seen.passages,
                            .by_link = seen.by_link,
                            .link_first = seen.first,
                            .votes = seen.votes}};
}

static void add(uint32_t times, tt_passage a)
{
    while (times-- > 0) {
        seen.by_link[seen.first[1]] = seen.first[1];
        seen.passages[seen.first[1]++] = a;
    }
}

/* So many rounds that should fill the link, and which part of its rate passed
 * in them. */
static void full(uint32_t times, double part, bool is_sure)
{
    add(times, (tt_passage){.bps = part * 1e8,
                            .n_flows = 2,
                            .n_sure = is_sure,
                            .is_full = true});
}

static double doubt(void)
{
    return tt_doubt_of(&seen.p, 0, 1e8);
}

static void near(double is, double wanted)
{
    if (fabs(is - wanted) > 1e-3 * fabs(wanted))
        fail_msg("%g instead of %g", is, wanted);
}

/* What a flow has had alone the link can do, but for twice what its errors may
 * be. */
static void test_lone(void **state)
{
    (void)state;
    begin();
    add(5,
        (tt_passage){.bps = 12e6, .n_flows = 4, .n_sure = 2, .is_full = true});
    near(tt_rate_of(&seen.p, 0), 12e6);
    add(1, (tt_passage){.bps = 20e6, .n_flows = 1, .is_lone = true});
    near(tt_rate_of(&seen.p, 0), 20e6 * 0.96);
}

/* Two rounds at least, and one in three. */
static void test_few_fall_short(void **state)
{
    (void)state;
    begin();
    full(1, 0.4, true);
    full(1, 1, true);
    near(doubt(), 0);
    begin();
    full(2, 0.4, true);
    full(5, 1, true);
    near(doubt(), 0);
    begin();
    full(2, 0.4, true);
    full(4, 1, true);
    near(doubt(), 0.4);
}

/* The middle one of those that fell short. */
static void test_how_short(void **state)
{
    (void)state;
    begin();
    full(1, 0.2, true);
    full(1, 0.5, true);
    full(1, 0.8, true);
    full(3, 0.86, true);
    near(doubt(), 0.5);
    begin();
    full(3, 0.86, true);
    near(doubt(), 0);
    begin();
    full(3, 0.84, true);
    near(doubt(), 0.84);
}

/* Rounds in which another link may have been the limit count where no others
 * tell of a doubt; those that should not fill it never do. */
static void test_unsure(void **state)
{
    (void)state;
    begin();
    full(4, 1, true);
    full(3, 0.4, false);
    near(doubt(), 0.4);
    full(2, 0.6, true);
    near(doubt(), 0.6);
    begin();
    add(6, (tt_passage){.bps = 4e7, .n_flows = 2});
    near(doubt(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lone),
        cmocka_unit_test(test_few_fall_short),
        cmocka_unit_test(test_how_short),
        cmocka_unit_test(test_unsure),
    };
    return TT_RUN_TAP(tests);
}
