/* SPDX-License-Identifier: BSD-3-Clause
 * crc32c_test.c - the sums are those of RFC 3720, whoever makes them; a flipped
 * bit is put right, and more are not taken for one. */
#include "support/tap.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "support/seed.h"

static void expect(const void *bytes, size_t n, uint32_t crc)
{
    assert_int_equal(tt_crc32c(0, bytes, n), crc);
    assert_int_equal(tt_crc32c_by_table(0, bytes, n), crc);
}

/* RFC 3720, B.4; the check value of the catalogues. */
static void test_known(void **state)
{
    (void)state;
    unsigned char bytes[32] = {0};
    static const unsigned char read_command[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
        0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
    expect("", 0, 0);
    expect("123456789", 9, 0xe3069283);
    expect(bytes, 32, 0x8a9136aa);
    memset(bytes, 0xff, 32);
    expect(bytes, 32, 0x62a8ab43);
    for (unsigned char i = 0; i < 32; i++)
        bytes[i] = i;
    expect(bytes, 32, 0x46dd794e);
    for (unsigned char i = 0; i < 32; i++)
        bytes[i] = (unsigned char)(31 - i);
    expect(bytes, 32, 0x113fdb5c);
    expect(read_command, 48, 0xd9963a56);
}

/* Lanes, words and bytes, from any address, in any pieces. */
static void test_each_other(void **state)
{
    (void)state;
    enum { MOST = 80000 };
    tt_rng rng = {tt_test_seed(1)};
    unsigned char *bytes = malloc(MOST + 8);
    assert_non_null(bytes);
    for (size_t i = 0; i < MOST + 8; i++)
        bytes[i] = (unsigned char)tt_rng_next(&rng);
    for (int round = 0; round < 500; round++) {
        size_t at = tt_rng_below(&rng, 8);
        size_t n = tt_rng_below(&rng, UINT64_C(1) << tt_rng_below(&rng, 17));
        n = n < MOST ? n : MOST;
        size_t part = tt_rng_below(&rng, n + 1);
        uint32_t crc = tt_crc32c_by_table(0, bytes + at, n);
        assert_int_equal(tt_crc32c(0, bytes + at, n), crc);
        uint32_t pieces = tt_crc32c(0, bytes + at, part);
        pieces = tt_crc32c(pieces, bytes + at + part, n - part);
        assert_int_equal(pieces, crc);
    }
    free(bytes);
}

static void flip(unsigned char *bytes, size_t n, uint32_t *crc, size_t bit)
{
    if (bit < 8 * n)
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    else
        *crc ^= 1u << (bit - 8 * n);
}

static void test_mending(void **state)
{
    (void)state;
    enum { N = 60 };
    tt_rng rng = {tt_test_seed(2)};
    unsigned char right[N], bytes[N];
    for (size_t i = 0; i < N; i++)
        right[i] = (unsigned char)tt_rng_next(&rng);
    const uint32_t sum = tt_crc32c(0, right, N);
    uint32_t crc = sum;
    memcpy(bytes, right, N);
    assert_int_equal(tt_crc32c_mend(bytes, N, &crc), TT_CRC_RIGHT);
    for (size_t bit = 0; bit < 8 * N + 32; bit++) {
        flip(bytes, N, &crc, bit);
        assert_int_equal(tt_crc32c_mend(bytes, N, &crc), TT_CRC_MENDED);
        assert_memory_equal(bytes, right, N);
        assert_int_equal(crc, sum);
    }
    for (int round = 0; round < 2000; round++) {
        size_t bits[4], n = 2 + tt_rng_below(&rng, 3);
        unsigned char was[N];
        memcpy(bytes, right, N);
        crc = sum;
        for (size_t i = 0; i < n; i++) {
            bits[i] = tt_rng_below(&rng, 8 * N + 32);
            for (size_t k = 0; k < i; k++)
                i -= bits[k] == bits[i] ? 1 : 0; /* another one */
        }
        for (size_t i = 0; i < n; i++)
            flip(bytes, N, &crc, bits[i]);
        memcpy(was, bytes, N);
        assert_int_equal(tt_crc32c_mend(bytes, N, &crc), TT_CRC_WRONG);
        assert_memory_equal(bytes, was, N);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_each_other),
        cmocka_unit_test(test_mending),
    };
    return TT_RUN_TAP(tests);
}
