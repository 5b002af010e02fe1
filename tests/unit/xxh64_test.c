/* SPDX-License-Identifier: BSD-3-Clause
 * xxh64_test.c - the hash is XXH64, at every length, and wherever it lies. */
#include "support/tap.h"

#include <string.h>

#include <tutti.h>

#include "base/rng.h"
#include "base/xxh64.h"
#include "support/seed.h"

/* The buffer and the values of xxHash's own sanity check, and other known
 * ones. */
static void test_known(void **state)
{
    (void)state;
    static const char said[] = "Nobody inspects the spammish repetition";
    const uint64_t seed = 2654435761;
    unsigned char bytes[222];
    uint64_t x = seed;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)(x >> 56);
        x *= UINT64_C(11400714785074694797);
    }
    assert_int_equal(tt_xxh64("", 0, 0), UINT64_C(0xef46db3751d8e999));
    assert_int_equal(tt_xxh64(NULL, 0, 0), UINT64_C(0xef46db3751d8e999));
    assert_int_equal(tt_xxh64(bytes, 1, 0), UINT64_C(0xe934a84adb052768));
    assert_int_equal(tt_xxh64(bytes, 1, seed), UINT64_C(0x5014607643a9b4c3));
    assert_int_equal(tt_xxh64(bytes, 4, 0), UINT64_C(0x9136a0dca57457ee));
    assert_int_equal(tt_xxh64(bytes, 14, 0), UINT64_C(0x8282dcc4994e35c8));
    assert_int_equal(tt_xxh64(bytes, 14, seed), UINT64_C(0xc3bd6bf63deb6df0));
    assert_int_equal(tt_xxh64(bytes, 222, 0), UINT64_C(0xb641ae8cb691c174));
    assert_int_equal(tt_xxh64(bytes, 222, seed), UINT64_C(0x20cb8ab7ae10c14a));
    assert_int_equal(tt_xxh64(said, sizeof(said) - 1, 0),
                     UINT64_C(0xfbcea83c8a378bf1));
    assert_int_equal(tutti_hash("xxhash", 6, 20141025),
                     UINT64_C(13067679811253438005));
}

/* From any address; and no flipped bit, at any length, leaves it as it was. */
static void test_bits(void **state)
{
    (void)state;
    enum { MOST = 100 };
    tt_rng rng = {tt_test_seed(1)};
    unsigned char bytes[MOST], moved[MOST + 8];
    for (size_t i = 0; i < MOST; i++)
        bytes[i] = (unsigned char)tt_rng_next(&rng);
    for (size_t n = 0; n <= MOST; n++) {
        const uint64_t hash = tt_xxh64(bytes, n, 5);
        memcpy(moved + 1 + n % 7, bytes, n);
        assert_int_equal(tt_xxh64(moved + 1 + n % 7, n, 5), hash);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_int_not_equal(tt_xxh64(bytes, n, 5), hash);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_bits),
    };
    return TT_RUN_TAP(tests);
}
