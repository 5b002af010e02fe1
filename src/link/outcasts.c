/* SPDX-License-Identifier: BSD-3-Clause
 * outcasts.c - lists of who counts no more, and of who has shown what; plain
 * memory, not locked. See tls.h. */
#include "link/tls.h"

#if TT_HAVE_OPENSSL

#include <stdlib.h>
#include <string.h>

/* More than any job has members; the oldest goes, so that nobody fills it. */
#define SHOWN_MOST 4096
/* Ids are what the other side says, so one certificate must not fill it either;
 * those of a host's ranks may share one. */
#define SHOWN_MOST_OF_ONE 256
#define OUT_MOST 4096

struct tt_tls_shown {
    tt_link_id who;
    tt_tls_print print;
};

bool tt_outcasts_has(const tt_outcasts *o, const tt_tls_print *print)
{
    for (size_t i = 0; i < o->n_out; i++)
        if (memcmp(&o->out[i], print, sizeof(*print)) == 0)
            return true;
    return false;
}

bool tt_outcasts_reserve(tt_outcasts *o, size_t n)
{
    if (o->n_out + n > OUT_MOST)
        return false;
    if (o->n_out + n <= o->cap_out)
        return true;
    size_t cap = 2 * o->n_out + n;
    tt_tls_print *more = realloc(o->out, cap * sizeof(*more));
    if (!more)
        return false;
    o->out = more;
    o->cap_out = cap;
    return true;
}

bool tt_outcasts_add(tt_outcasts *o, const tt_tls_print *print)
{
    if (tt_outcasts_has(o, print))
        return true;
    if (!tt_outcasts_reserve(o, 1))
        return false;
    o->out[o->n_out++] = *print;
    return true;
}

/* Makes room for one more of this certificate. */
static void forget_oldest(tt_outcasts *o, const tt_tls_print *print)
{
    size_t n = 0, oldest = 0;
    for (size_t i = o->n_shown; i-- > 0;)
        if (memcmp(&o->shown[i].print, print, sizeof(*print)) == 0) {
            oldest = i;
            n++;
        }
    if (n < SHOWN_MOST_OF_ONE && o->n_shown < SHOWN_MOST)
        return;
    if (n < SHOWN_MOST_OF_ONE)
        oldest = 0;
    o->n_shown--;
    memmove(&o->shown[oldest], &o->shown[oldest + 1],
            (o->n_shown - oldest) * sizeof(*o->shown));
}

void tt_outcasts_note(tt_outcasts *o, const tt_link_id *who,
                      const tt_tls_print *print)
{
    struct tt_tls_shown new = {*who, *print};
    if (!o->shown)
        o->shown = calloc(SHOWN_MOST, sizeof(new));
    for (size_t i = 0; o->shown && i < o->n_shown; i++)
        if (memcmp(&o->shown[i], &new, sizeof(new)) == 0)
            return;
    if (!o->shown)
        return;
    forget_oldest(o, print);
    o->shown[o->n_shown++] = new;
}

size_t tt_outcasts_shown(const tt_outcasts *o, const tt_link_id *who,
                         tt_tls_print *out, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n_shown && n < most; i++)
        if (tt_link_id_compare(&o->shown[i].who, who) == 0)
            out[n++] = o->shown[i].print;
    return n;
}

void tt_outcasts_free(tt_outcasts *o)
{
    free(o->out);
    free(o->shown);
    *o = (tt_outcasts){0};
}

#endif
