/* SPDX-License-Identifier: BSD-3-Clause
 * noted.c - sets of leaves of which something was measured on purpose: once is
 * enough.
 *
 * Next       target.c, rivals.c. */
#include "infer/plane.h"

bool tt_is_noted(const tt_plane *p, const uint64_t *in, uint32_t what)
{
    size_t n = p->n_words + 1;
    for (uint32_t i = 0; i < p->n_stressed; i++) {
        if (p->stressed[i * n] == what &&
            tt_set_same(p->stressed + i * n + 1, in, p->n_words))
            return true;
    }
    return false;
}

bool tt_note_set(tt_plane *p, const uint64_t *in, uint32_t what)
{
    size_t n = p->n_words + 1;
    if (p->n_stressed == p->max_stressed || tt_is_noted(p, in, what))
        return false;
    p->stressed[p->n_stressed * n] = what;
    tt_set_copy(p->stressed + p->n_stressed++ * n + 1, in, p->n_words);
    return true;
}
