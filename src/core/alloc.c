/* SPDX-License-Identifier: BSD-3-Clause
 * alloc.c - memory for buffers. Next: base/regions.h. */
#include "core/core.h"

void *tutti_alloc(size_t bytes)
{
    return tt_regions_alloc(tt_process_regions(), bytes);
}

void tutti_free(void *ptr)
{
    tt_regions_free(tt_process_regions(), ptr);
}
