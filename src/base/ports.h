/* SPDX-License-Identifier: BSD-3-Clause
 * ports.h - numbers of ports as users write them. */
#ifndef TT_BASE_PORTS_H
#define TT_BASE_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A port: digits, 1 to 65535. */
static inline bool tt_port_parse(const char *text, uint16_t *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 5 || text[n] != '\0')
        return false;
    unsigned long value = strtoul(text, NULL, 10);
    if (value == 0 || value > UINT16_MAX)
        return false;
    *out = (uint16_t)value;
    return true;
}

/* "40000-40100" or "40000"; "" gives 0 and 0. */
static inline bool tt_ports_parse(const char *text, uint16_t *first,
                                  uint16_t *last)
{
    *first = *last = 0;
    if (text[0] == '\0')
        return true;
    char from[8] = "";
    size_t n = strcspn(text, "-");
    if (n >= sizeof(from))
        return false;
    memcpy(from, text, n);
    if (!tt_port_parse(from, first))
        return false;
    *last = *first;
    return text[n] == '\0' ||
           (tt_port_parse(text + n + 1, last) && *first <= *last);
}

#endif
