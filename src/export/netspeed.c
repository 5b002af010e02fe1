/* SPDX-License-Identifier: BSD-3-Clause
 * netspeed.c - how fast a link is, for people; which links are alike. */
#include "export/netdraw.h"

/* A value in the largest unit of which it is one, to 3 digits or more. */
static void put_in(tt_str *out, uint64_t value, const char *const *units)
{
    uint64_t scale = 1;
    while (units[1] && value / scale >= 1000) {
        scale *= 1000;
        units++;
    }
    /* Hundredths, as many as are seen. */
    uint64_t whole = value / scale;
    uint64_t rest = (value % scale * 100 + scale / 2) / scale;
    if (whole >= 100 && rest >= 50 && scale > 1)
        whole++;
    if (rest == 100) {
        whole += whole < 100;
        rest = 0;
    }
    tt_str_u64(out, whole);
    if (whole < 100 && rest > 0) {
        const char digits[] = {'.', (char)('0' + rest / 10),
                               (char)('0' + rest % 10)};
        tt_str_add(out, digits, rest % 10 ? 3 : 2);
    }
    tt_str_puts(out, " ");
    tt_str_puts(out, *units);
}

static void put_rate(tt_str *out, uint64_t bps)
{
    static const char *const units[] = {"bit/s",  "kbit/s", "Mbit/s",
                                        "Gbit/s", "Tbit/s", NULL};
    put_in(out, bps, units);
}

static void put_latency(tt_str *out, uint64_t ps)
{
    static const char *const units[] = {"ps", "ns", "us", "ms", "s", NULL};
    put_in(out, ps, units);
}

static uint64_t rate_back(const tutti_topology *t, const tt_link *l)
{
    return l->twin == TT_NONE ? 0 : t->links[l->twin].rate_bps;
}

bool tt_same_speed(const tutti_topology *t, const tt_link *a, const tt_link *b)
{
    return a->rate_bps == b->rate_bps && a->latency_ps == b->latency_ps &&
           rate_back(t, a) == rate_back(t, b);
}

void tt_put_speed(tt_str *out, const tutti_topology *t, const tt_link *l)
{
    const uint64_t back = rate_back(t, l);
    put_rate(out, l->rate_bps);
    if (back == 0) {
        tt_str_puts(out, " one way");
    } else if (back != l->rate_bps) {
        tt_str_puts(out, " there, ");
        put_rate(out, back);
        tt_str_puts(out, " back");
    }
    if (l->latency_ps) {
        tt_str_puts(out, ", ");
        put_latency(out, l->latency_ps);
    }
}

bool tt_is_drawn(const tutti_topology *t, uint32_t link)
{
    const uint32_t twin = t->links[link].twin;
    return twin == TT_NONE || link < twin;
}
