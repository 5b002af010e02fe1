/* SPDX-License-Identifier: BSD-3-Clause
 * units.c - rates and latencies, exactly.
 *
 *     400Mbit  12.5GB/s  16GB/s  1Gbit/s  3MiB/s    20us  150ns  0.5ms  0
 *
 * Idea       A rate is a whole number of bits per second, a latency a whole
 *            number of picoseconds. A decimal is kept as digits and places, so
 *            that 12.5GB/s is exactly 10^11; what does not come out whole is
 *            an error, never rounded. Writing takes the largest unit that
 *            divides the value, so reading gives it back.
 * Bits       bit kbit Mbit Gbit Tbit, each also with /s; bytes only with /s:
 *            B/s kB/s MB/s GB/s TB/s and KiB/s MiB/s GiB/s TiB/s.
 * Next       netfile.c and genspec.c, which read them.
 */
#include "topology/network.h"

#include <string.h>

typedef struct unit {
    const char *name;
    uint64_t scale; /* in bit/s or ps */
    bool is_latency;
} unit;

#define KILO UINT64_C(1000)
#define KIBI UINT64_C(1024)

/* Where one name begins another, the longer comes first. */
static const unit units[] = {
    {"bit", 1, false},
    {"kbit", KILO, false},
    {"Mbit", KILO *KILO, false},
    {"Gbit", KILO *KILO *KILO, false},
    {"Tbit", KILO *KILO *KILO *KILO, false},
    {"B/s", 8, false},
    {"kB/s", 8 * KILO, false},
    {"MB/s", 8 * KILO *KILO, false},
    {"GB/s", 8 * KILO *KILO *KILO, false},
    {"TB/s", 8 * KILO *KILO *KILO *KILO, false},
    {"KiB/s", 8 * KIBI, false},
    {"MiB/s", 8 * KIBI *KIBI, false},
    {"GiB/s", 8 * KIBI *KIBI *KIBI, false},
    {"TiB/s", 8 * KIBI *KIBI *KIBI *KIBI, false},
    {"ps", 1, true},
    {"ns", KILO, true},
    {"us", KILO *KILO, true},
    {"ms", KILO *KILO *KILO, true},
    {"s", KILO *KILO *KILO *KILO, true},
};

enum { N_UNITS = sizeof(units) / sizeof(units[0]) };

static bool is_wordy(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
}

/* The unit at the start of text, and its length with a "/s". */
static const unit *find_unit(const char *text, size_t len, size_t *used)
{
    for (const unit *u = units; u < units + N_UNITS; u++) {
        size_t n = strlen(u->name);
        if (n > len || memcmp(u->name, text, n) != 0)
            continue;
        bool is_bits = !u->is_latency && u->name[n - 1] == 't';
        if (is_bits && n + 2 <= len && memcmp(text + n, "/s", 2) == 0)
            n += 2;
        if (n < len && is_wordy(text[n]))
            continue;
        *used = n;
        return u;
    }
    return NULL;
}

static tt_amount wrong(tutti_err err, const char *error, size_t len)
{
    return (tt_amount){.error = error, .err = err, .len = len};
}

tt_amount tt_amount_read(const char *text, size_t len)
{
    if (len > 0 && text[0] == '-')
        return wrong(TUTTI_EINVAL, "it cannot be negative", 0);
    tt_decimal d = tt_decimal_read(text, len);
    if (d.len == 0)
        return wrong(TUTTI_EFORMAT, "it must begin with a number", 0);
    size_t used = 0;
    const unit *u = find_unit(text + d.len, len - d.len, &used);
    bool ends = d.len == len || !is_wordy(text[d.len]);
    if (!u && ends && d.digits == 0 && !d.is_long)
        return (tt_amount){.len = d.len, .is_latency = true};
    if (!u)
        return wrong(TUTTI_EFORMAT,
                     "units are kbit Mbit Gbit Tbit, kB/s MB/s GB/s KiB/s "
                     "MiB/s GiB/s, and ns us ms s",
                     d.len);
    tt_amount a = {.len = d.len + used, .is_latency = u->is_latency};
    bool is_large = false;
    uint64_t most = u->is_latency ? TT_MAX_LATENCY_PS : TT_MAX_RATE_BPS;
    bool is_good = tt_decimal_times(&d, u->scale, most, &a.value, &is_large);
    if (is_large || d.is_long)
        return wrong(TUTTI_ELIMIT,
                     u->is_latency ? "a latency can be at most 1000 s"
                                   : "a rate can be at most 1000 Tbit/s",
                     0);
    if (!is_good)
        return wrong(TUTTI_EINVAL,
                     u->is_latency
                         ? "a latency must be a whole number of picoseconds"
                         : "a rate must be a whole number of bits per second",
                     0);
    if (!u->is_latency && a.value == 0)
        return wrong(TUTTI_EINVAL, "a rate must be above zero", 0);
    return a;
}

bool tt_rate_parse(const char *text, size_t len, uint64_t *bps)
{
    const tt_amount a = tt_amount_read(text, len);
    if (a.error || a.is_latency || a.len != len)
        return false;
    *bps = a.value;
    return true;
}

/* In the last of n units, from `first`, that divides the value. */
static void write_in(tt_str *out, uint64_t value, const char *first, size_t n)
{
    const unit *u = units;
    while (strcmp(u->name, first) != 0)
        u++;
    const unit *best = u;
    for (size_t i = 0; i < n; i++) {
        if (value % u[i].scale == 0)
            best = &u[i];
    }
    tt_str_u64(out, value / best->scale);
    tt_str_puts(out, best->name);
}

void tt_rate_write(tt_str *out, uint64_t bps)
{
    write_in(out, bps, "bit", 5);
}

void tt_latency_write(tt_str *out, uint64_t ps)
{
    if (ps == 0)
        tt_str_puts(out, "0");
    else
        write_in(out, ps, "ps", 5);
}
