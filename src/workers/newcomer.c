/* SPDX-License-Identifier: BSD-3-Clause
 * newcomer.c - see workers.h. Next: core/compare.c, for the ranks of a
 * communicator. */
#include "workers/workers.h"

#include <stdio.h>
#include <string.h>

#include "base/xxh64.h"
#include "core/core.h"

tutti_err tt_newcomer_check(const tutti_shared *buffers, size_t n,
                            const tutti_difference *out, tutti_diag *diag)
{
    if (n > TT_PRINTS)
        return tt_fail(diag, TUTTI_EINVAL,
                       "tutti_partial_compare: %zu buffers are too many; it "
                       "takes %u",
                       n, TT_PRINTS);
    return tt_shared_check("tutti_partial_compare", buffers, n, out, diag);
}

void tt_newcomer_clear(tutti_difference *out)
{
    out->n_ranks = 0;
    out->text[0] = '\0';
}

void tt_newcomer_prints(const tutti_shared *buffers, size_t n, tt_print *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (tt_print){tt_xxh64(buffers[i].buf, buffers[i].bytes, 0),
                            buffers[i].bytes};
}

static void explain(const tutti_shared *buffer, tutti_difference *d)
{
    char what[120];
    snprintf(what, sizeof(what),
             buffer->name ? "buffer %zu (%.80s)" : "buffer %zu", d->buffer,
             buffer->name);
    if (d->bytes != d->like_bytes)
        snprintf(d->text, sizeof(d->text),
                 "worker %d joined with %llu bytes in %s, worker %d has %llu",
                 d->rank, (unsigned long long)d->bytes, what, d->like,
                 (unsigned long long)d->like_bytes);
    else
        snprintf(d->text, sizeof(d->text),
                 "worker %d joined with other bytes in %s than worker %d",
                 d->rank, what, d->like);
}

void tt_newcomer_compare(const tt_worker_compared *with,
                         const tutti_shared *buffers, const tt_print *mine,
                         size_t n, const tt_print *theirs, size_t n_theirs,
                         tutti_difference *out)
{
    const size_t least = n < n_theirs ? n : n_theirs;
    size_t i = 0;
    while (i < least && memcmp(&mine[i], &theirs[i], sizeof(*mine)) == 0)
        i++;
    if (i == n && i == n_theirs)
        return;
    out->n_ranks = 1;
    out->rank = (int)with->worker;
    out->like = (int)with->source;
    out->buffer = i;
    out->hash = i < n ? mine[i].hash : 0;
    out->bytes = i < n ? mine[i].bytes : 0;
    out->like_hash = i < n_theirs ? theirs[i].hash : 0;
    out->like_bytes = i < n_theirs ? theirs[i].bytes : 0;
    if (out->ranks)
        out->ranks[0] = out->rank;
    if (i < least)
        explain(&buffers[i], out);
    else
        snprintf(out->text, sizeof(out->text),
                 "worker %d joined with another number of buffers (%zu) than "
                 "worker %d (%zu)",
                 out->rank, n, out->like, n_theirs);
}
