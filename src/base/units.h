/* SPDX-License-Identifier: BSD-3-Clause
 * units.h - amounts for people: "4 MiB", "1.25 ms". */
#ifndef TT_BASE_UNITS_H
#define TT_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TT_UNITS_TEXT 32

static inline const char *tt_units_bytes(double bytes, char text[TT_UNITS_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;
    for (; bytes >= 1024 && i + 1 < sizeof(units) / sizeof(*units); i++)
        bytes /= 1024;
    snprintf(text, TT_UNITS_TEXT, "%.4g %s", bytes, units[i]);
    return text;
}

static inline const char *tt_units_seconds(double s, char text[TT_UNITS_TEXT])
{
    const bool is_s = s >= 1, is_ms = s >= 1e-3;
    snprintf(text, TT_UNITS_TEXT, is_s && s >= 1000 ? "%.0f %s" : "%.3g %s",
             is_s    ? s
             : is_ms ? s * 1e3
                     : s * 1e6,
             is_s    ? "s"
             : is_ms ? "ms"
                     : "us");
    return text;
}

#endif
