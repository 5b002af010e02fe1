/* SPDX-License-Identifier: BSD-3-Clause
 * crc32c.c - see crc32c.h.
 *
 * The instruction takes three cycles and can begin one in each, so long runs
 * are taken as three lanes at a time. A lane of n bytes behind a sum multiplies
 * it by x^(8 n), modulo the polynomial; bits are reflected, so 1 is 0x80000000.
 * The table takes 32 bits at a time: row k has what becomes of the k-th four of
 * them. */
#include "base/crc32c.h"

#include <string.h>

#include "base/compiler.h"

#define POLYNOMIAL 0x82f63b78u

/* --------------------------------------------------------------- table -- */

static const uint32_t table[8][16] = {
    {0x00000000, 0xdd45aab8, 0xbf672381, 0x62228939, 0x7b2231f3, 0xa6679b4b,
     0xc4451272, 0x1900b8ca, 0xf64463e6, 0x2b01c95e, 0x49234067, 0x9466eadf,
     0x8d665215, 0x5023f8ad, 0x32017194, 0xef44db2c},
    {0x00000000, 0xe964b13d, 0xd725148b, 0x3e41a5b6, 0xaba65fe7, 0x42c2eeda,
     0x7c834b6c, 0x95e7fa51, 0x52a0c93f, 0xbbc47802, 0x8585ddb4, 0x6ce16c89,
     0xf90696d8, 0x106227e5, 0x2e238253, 0xc747336e},
    {0x00000000, 0xa541927e, 0x4f6f520d, 0xea2ec073, 0x9edea41a, 0x3b9f3664,
     0xd1b1f617, 0x74f06469, 0x38513ec5, 0x9d10acbb, 0x773e6cc8, 0xd27ffeb6,
     0xa68f9adf, 0x03ce08a1, 0xe9e0c8d2, 0x4ca15aac},
    {0x00000000, 0x70a27d8a, 0xe144fb14, 0x91e6869e, 0xc76580d9, 0xb7c7fd53,
     0x26217bcd, 0x56830647, 0x8b277743, 0xfb850ac9, 0x6a638c57, 0x1ac1f1dd,
     0x4c42f79a, 0x3ce08a10, 0xad060c8e, 0xdda47104},
    {0x00000000, 0x13a29877, 0x274530ee, 0x34e7a899, 0x4e8a61dc, 0x5d28f9ab,
     0x69cf5132, 0x7a6dc945, 0x9d14c3b8, 0x8eb65bcf, 0xba51f356, 0xa9f36b21,
     0xd39ea264, 0xc03c3a13, 0xf4db928a, 0xe7790afd},
    {0x00000000, 0x3fc5f181, 0x7f8be302, 0x404e1283, 0xff17c604, 0xc0d23785,
     0x809c2506, 0xbf59d487, 0xfbc3faf9, 0xc4060b78, 0x844819fb, 0xbb8de87a,
     0x04d43cfd, 0x3b11cd7c, 0x7b5fdfff, 0x449a2e7e},
    {0x00000000, 0xf26b8303, 0xe13b70f7, 0x1350f3f4, 0xc79a971f, 0x35f1141c,
     0x26a1e7e8, 0xd4ca64eb, 0x8ad958cf, 0x78b2dbcc, 0x6be22838, 0x9989ab3b,
     0x4d43cfd0, 0xbf284cd3, 0xac78bf27, 0x5e133c24},
    {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
     0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
     0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75},
};

static uint32_t by_byte(uint32_t c, unsigned char byte)
{
    c ^= byte;
    c = c >> 4 ^ table[7][c & 15];
    return c >> 4 ^ table[7][c & 15];
}

static uint32_t by_word(uint32_t c, uint32_t word)
{
    uint32_t sum = 0;
    c ^= word;
    for (uint32_t k = 0; k < 8; k++)
        sum ^= table[k][c >> 4 * k & 15];
    return sum;
}

uint32_t tt_crc32c_by_table(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint32_t c = ~crc, word;
    for (; n >= sizeof(word); n -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        c = by_word(c, word);
    }
    for (; n > 0; n--)
        c = by_byte(c, *at++);
    return ~c;
}

/* --------------------------------------------------------- instruction -- */

#if TT_HAVE_CRC32C

/* Bytes of a lane, and x to the power of its bits. */
static const struct lanes {
    size_t n;
    uint32_t power;
} lanes[] = {{8192, 0x28461564}, {1024, 0xe4172b16}};

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit > 0; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

static uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

static uint32_t by_lanes(uint32_t a, const unsigned char *at,
                         const struct lanes *by)
{
    uint32_t b = 0, c = 0;
    for (const unsigned char *end = at + by->n; at < end; at += 8) {
        a = tt_cpu_crc32c_8(a, word_at(at));
        b = tt_cpu_crc32c_8(b, word_at(at + by->n));
        c = tt_cpu_crc32c_8(c, word_at(at + 2 * by->n));
    }
    b ^= multiply(by->power, a);
    return c ^ multiply(by->power, b);
}

static uint32_t by_instruction(uint32_t crc, const unsigned char *at, size_t n)
{
    uint32_t c = ~crc;
    for (size_t i = 0; i < sizeof(lanes) / sizeof(*lanes); i++)
        for (; n >= 3 * lanes[i].n; n -= 3 * lanes[i].n) {
            c = by_lanes(c, at, &lanes[i]);
            at += 3 * lanes[i].n;
        }
    for (; n >= 8; n -= 8, at += 8)
        c = tt_cpu_crc32c_8(c, word_at(at));
    for (; n > 0; n--)
        c = tt_cpu_crc32c_1(c, *at++);
    return ~c;
}

uint32_t tt_crc32c(uint32_t crc, const void *bytes, size_t n)
{
    return TT_CPU_HAS_CRC32C() ? by_instruction(crc, bytes, n)
                               : tt_crc32c_by_table(crc, bytes, n);
}

#else

uint32_t tt_crc32c(uint32_t crc, const void *bytes, size_t n)
{
    return tt_crc32c_by_table(crc, bytes, n);
}

#endif

/* ------------------------------------------------------------- mending -- */

tt_crc_found tt_crc32c_mend(void *bytes, size_t n, uint32_t *crc)
{
    unsigned char *at = bytes;
    const uint32_t is = tt_crc32c(0, bytes, n), apart = is ^ *crc;
    if (apart == 0)
        return TT_CRC_RIGHT;
    if ((apart & (apart - 1)) == 0) { /* the crc itself */
        *crc = is;
        return TT_CRC_MENDED;
    }
    for (size_t bit = 0; bit < 8 * n; bit++) {
        at[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (tt_crc32c(0, bytes, n) == *crc)
            return TT_CRC_MENDED;
        at[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    return TT_CRC_WRONG;
}
