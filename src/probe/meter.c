/* SPDX-License-Identifier: BSD-3-Clause
 * meter.c - the rate of a flow, from what its receiver has seen.
 *
 * Idea       The time is cut into slots; the rate of a slot is the bytes from
 *            the last arrival before it to the last one in it, over the time
 *            between these: nothing is lost to where slots begin and end. The
 *            slots in the middle of all rates count, the fastest and the
 *            slowest do not: when a process has to wait for a processor its
 *            flow pauses, and then a link (a token bucket) lets pass at once
 *            what it has saved.
 * Mean       All of the time: when one flow pauses others have its part of a
 *            link that they share, so only means add up to what passed the
 *            link. Bytes come many at a time; those around the first and the
 *            last moment count in part.
 * Settling   What comes before `warm` does not count, for the same reason, and
 *            because TCP starts slowly. Where that was not long enough the
 *            second half differs from the first, and counts alone.
 * Next       flows.c. */
#include "probe/parts.h"

/* The halves may differ by so much before the first one is left out. */
static const double settled = 0.2;

/* Of n bytes that came from from_ns to to_ns, those until then. */
static uint64_t part(uint64_t n, uint64_t from_ns, uint64_t to_ns,
                     uint64_t then_ns)
{
    double share = (double)(then_ns - from_ns) / (double)(to_ns - from_ns);
    return (uint64_t)((double)n * share);
}

/* What comes after the end was on its way before. */
static void close_window(tt_meter *m, uint64_t n, uint64_t now_ns)
{
    if (m->counted > 0 && !m->is_over)
        m->counted += part(n, m->last_ns, now_ns, m->end_ns);
    m->is_over = true;
}

void tt_meter_add(tt_meter *m, uint64_t n, uint64_t now_ns)
{
    m->bytes += n;
    if (now_ns > m->end_ns) {
        close_window(m, n, now_ns);
        return;
    }
    bool counts = now_ns >= m->warm_ns && m->end_ns > m->warm_ns;
    uint64_t slot = 0;
    if (counts) {
        bool is_first = m->last_ns != 0 && m->last_ns < m->warm_ns;
        m->counted += n;
        if (is_first)
            m->counted -= part(n, m->last_ns, now_ns, m->warm_ns);
        slot = (now_ns - m->warm_ns) * TT_METER_SLOTS /
               (m->end_ns - m->warm_ns);
        slot = slot < TT_METER_SLOTS ? slot : TT_METER_SLOTS - 1;
    }
    m->last_ns = now_ns;
    uint64_t at = counts && m->marks[0].ns != 0 ? slot + 1 : 0;
    m->marks[at].bytes = m->bytes;
    m->marks[at].ns = now_ns;
}

typedef struct stretch {
    uint64_t bytes, ns;
} stretch;

static double rate_of(stretch s)
{
    return s.ns > 0 ? (double)s.bytes * 1e9 / (double)s.ns : 0;
}

static stretch sum(const stretch *s, uint32_t n)
{
    stretch all = {0, 0};
    for (uint32_t i = 0; i < n; i++) {
        all.bytes += s[i].bytes;
        all.ns += s[i].ns;
    }
    return all;
}

/* The slots that had arrivals, in order of time. */
static uint32_t find_slots(const tt_meter *m, stretch *out)
{
    uint32_t n = 0, last = 0;
    for (uint32_t i = 1; i <= TT_METER_SLOTS; i++) {
        if (m->marks[i].ns <= m->marks[last].ns)
            continue;
        out[n++] = (stretch){m->marks[i].bytes - m->marks[last].bytes,
                             m->marks[i].ns - m->marks[last].ns};
        last = i;
    }
    return n;
}

/* Of n, without the slowest and the fastest quarter. */
static double middle(stretch *s, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        for (uint32_t k = i; k > 0 && rate_of(s[k]) < rate_of(s[k - 1]); k--) {
            stretch other = s[k];
            s[k] = s[k - 1];
            s[k - 1] = other;
        }
    }
    return rate_of(sum(s + n / 4, n - 2 * (n / 4)));
}

double tt_meter_rate(const tt_meter *m)
{
    stretch slots[TT_METER_SLOTS];
    uint64_t window_ns = m->end_ns - m->warm_ns;
    if (m->counted == 0)
        return 0;
    uint32_t n = find_slots(m, slots);
    if (n == 0 || sum(slots, n).ns < window_ns / 4)
        return tt_meter_mean(m);
    double early = rate_of(sum(slots, n / 2)),
           late = rate_of(sum(slots + n / 2, n - n / 2));
    bool has_settled = n < 4 || (early > late * (1 - settled) &&
                                 early < late * (1 + settled));
    return has_settled ? middle(slots, n) : middle(slots + n / 2, n - n / 2);
}

double tt_meter_mean(const tt_meter *m)
{
    uint64_t window_ns = m->end_ns - m->warm_ns;
    if (m->counted == 0) /* then there may be no window either */
        return 0;
    return (double)m->counted * 1e9 / (double)window_ns;
}

double tt_meter_overhead(uint32_t mss, bool is_v6, bool has_stamps)
{
    const uint32_t ethernet = 14, tcp = 20, stamps = 12;
    uint32_t headers = ethernet + tcp + (is_v6 ? 40 : 20) +
                       (has_stamps ? stamps : 0);
    return mss > 0 ? 1 + (double)headers / mss : 1;
}
