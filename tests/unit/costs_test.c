/* SPDX-License-Identifier: BSD-3-Clause
 * costs_test.c - what messages and bytes cost, of times that calls took; also
 * of times that cannot be, as other work was in the way. */
#include "support/tap.h"

#include <string.h>

#include "base/hash.h"
#include "core/core.h"
#include "probe/probe.h"
#include "start/steps.h"

/* 4 ranks: 2 steps, 20 us for few bytes; 786432 bytes sent in 180 us. */
static const tt_metered quiet = {.few_ns = 20000,
                                 .quickest_ns = 31000,
                                 .large_ns = 180000,
                                 .sent_bytes = 786432,
                                 .reduce_ps = 36,
                                 .n_steps = 2};

static void test_quiet(void **state)
{
    (void)state;
    tutti_costs c;
    assert_true(tt_comm_costs_of(&quiet, &c));
    assert_int_equal(c.message_ns, 10001);
    assert_int_equal(c.byte_ps, 204); /* 160 us of 786432 bytes */
    assert_int_equal(c.reduce_ps, 36);
}

/* All small calls were held up: as on a busy host, 1.7 ms. */
static void test_slow_messages(void **state)
{
    (void)state;
    tt_metered m = quiet;
    tutti_costs c;
    m.few_ns = 1700000;
    assert_false(tt_comm_costs_of(&m, &c));
    assert_int_equal(c.message_ns, 15501); /* what is longer bounds it */
    assert_int_equal(c.byte_ps, 190);
    m.few_ns = m.quickest_ns;
    assert_true(tt_comm_costs_of(&m, &c));
}

/* The largest call is no longer than the smallest: no memory is so fast. */
static void test_free_bytes(void **state)
{
    (void)state;
    tt_metered m = quiet;
    tutti_costs c;
    m.few_ns = m.quickest_ns = m.large_ns;
    assert_false(tt_comm_costs_of(&m, &c));
    assert_int_equal(c.byte_ps, 18); /* half of reducing one */
    m.large_ns += 14000;             /* 17.8 ps */
    assert_true(tt_comm_costs_of(&m, &c));
    assert_int_equal(c.byte_ps, 18);
    m.large_ns -= 1000; /* 16.5 ps */
    assert_false(tt_comm_costs_of(&m, &c));
    assert_int_equal(c.byte_ps, 18);
}

/* By what costs are kept, of two ranks on these hosts; differs: the bit of
 * hello
 * 1 that does, 0: none. */
static uint64_t print_of(const uint32_t hosts[2], uint32_t n_hosts,
                         size_t differs)
{
    static start st;
    static hello hellos[2];
    uint32_t places[2] = {hosts[0], hosts[1]};
    memset(hellos, 0, sizeof(hellos));
    if (differs > 0)
        ((unsigned char *)&hellos[1])[differs / 8] =
            (unsigned char)(1 << differs % 8);
    st = (start){.n = 2, .hosts = places, .agreed.n_hosts = n_hosts};
    tt_start_costs_look(&st, hellos);
    return st.costs_print;
}

/* Costs of a job are those of another one if that is the same in all that
 * counts, and of a build that measures alike. */
static void test_same_job(void **state)
{
    (void)state;
    static const uint32_t together[2] = {0, 0}, apart[2] = {0, 1};
    static const size_t inside = 8 * offsetof(hello, print),
                        ifaces = inside + 64, cpus = 8 * offsetof(hello, cpus);
    uint64_t plain = tt_fnv1a_u64(TT_FNV1A_START, TT_LEARN_VERSION);
    const cpu_set_t none = {0};
    plain = tt_fnv1a_u64(plain, 2);
    for (int r = 0; r < 2; r++) {
        plain = tt_fnv1a_u64(tt_fnv1a_u64(plain, 0), 0);
        plain = tt_fnv1a(plain, &none, sizeof(none));
    }
    assert_int_equal(print_of(together, 1, 0), plain);
    for (uint32_t n = 1; n <= 2; n++) {
        const uint32_t *hosts = n == 1 ? together : apart;
        const uint64_t print = print_of(hosts, n, 0);
        assert_int_not_equal(print_of(hosts, n, inside + 3), print);
        assert_int_not_equal(print_of(hosts, n, cpus + 1), print);
        /* By what it reaches other hosts, where there are some. */
        assert_int_equal(print_of(hosts, n, ifaces + 1) == print, n == 1);
    }
    assert_int_not_equal(print_of(apart, 2, 0), print_of(together, 2, 0));
}

/* Sizes double up to 1 MiB; they grow by four where that takes no more than 1
 * ms: through memory, and else from 64 KiB. */
static void test_sizes(void **state)
{
    (void)state;
    static const size_t kib = 1024;
    for (uint64_t ns = 0; ns <= 4000000; ns += 1000) {
        size_t bytes = 64 * kib, n = 1;
        for (; bytes < 1024 * kib; n++) {
            const size_t next = tt_comm_next_bytes(bytes, ns, true);
            const bool by_four = ns <= 1000000 && bytes == 64 * kib;
            assert_int_equal(next, by_four ? 4 * bytes : 2 * bytes);
            bytes = next;
        }
        assert_int_equal(bytes, 1024 * kib);
        assert_int_equal(tt_comm_next_bytes(bytes, ns, true), bytes);
        assert_int_equal(n, ns <= 1000000 ? 4 : 5);
        const size_t factor = ns <= 1000000 ? 4 : 2;
        for (bytes = 64 * kib; bytes < 512 * kib; bytes *= factor)
            assert_int_equal(tt_comm_next_bytes(bytes, ns, false),
                             factor * bytes);
        for (bytes = 64 * kib; bytes <= 1024 * kib; bytes *= 2)
            for (int is_limited = 0; is_limited < 2; is_limited++)
                assert_true(tt_comm_next_bytes(bytes, ns, is_limited) <=
                            1024 * kib);
    }
}

/* 1, 2, 4 and 8 small calls at a time, until 2 ms are over. */
static void test_groups(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 8; n *= 2) {
        assert_int_equal(tt_comm_next_group(n, 0), 2 * n);
        assert_int_equal(tt_comm_next_group(n, 1999999), 2 * n);
        assert_int_equal(tt_comm_next_group(n, 2000000), 0);
    }
    assert_int_equal(tt_comm_next_group(8, 0), 0);
}

/* What a few bytes take is not multiplied. */
static void test_promises(void **state)
{
    (void)state;
    assert_int_equal(tt_comm_promised_ns(900, 1000, 4), 1300);
    assert_int_equal(tt_comm_promised_ns(900, 1000, 1), 1000);
    assert_int_equal(tt_comm_promised_ns(900, 900, 4), 900);
    assert_int_equal(tt_comm_promised_ns(900, 800, 4), 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet),      cmocka_unit_test(test_slow_messages),
        cmocka_unit_test(test_free_bytes), cmocka_unit_test(test_same_job),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_groups),
        cmocka_unit_test(test_promises),
    };
    return TT_RUN_TAP(tests);
}
