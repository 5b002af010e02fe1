/* SPDX-License-Identifier: BSD-3-Clause
 * fail_mem.c - see fail_mem.h. */
#include "support/fail_mem.h"

#include <stdlib.h>

static void *fail_alloc(void *ctx, void *ptr, size_t old_bytes,
                        size_t new_bytes)
{
    tt_fail_mem *f = ctx;
    if (new_bytes > 0 && ++f->n_calls == f->fail_at) {
        f->has_failed = true;
        return NULL;
    }
    void *fresh = NULL;
    if (new_bytes == 0) {
        free(ptr);
    } else {
        fresh = realloc(ptr, new_bytes);
        if (!fresh)
            return NULL;
    }
    f->live_bytes += new_bytes - old_bytes;
    if (f->live_bytes > f->peak_bytes)
        f->peak_bytes = f->live_bytes;
    return fresh;
}

void tt_fail_mem_init(tt_fail_mem *f, uint64_t fail_at)
{
    *f = (tt_fail_mem){.mem = {.fn = fail_alloc, .ctx = f}, .fail_at = fail_at};
}
