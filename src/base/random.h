/* SPDX-License-Identifier: BSD-3-Clause
 * random.h - random bytes of the system's, which nobody can guess. What a test
 * must be able to replay has rng.h. */
#ifndef TT_BASE_RANDOM_H
#define TT_BASE_RANDOM_H

#include <errno.h>
#include <sys/random.h>

#include "base/err.h"

/* At most 256 bytes. Errors: ESYS where the system has none. */
static inline tutti_err tt_random(void *out, size_t len, tutti_diag *diag)
{
    if (getrandom(out, len, 0) == (ssize_t)len)
        return TUTTI_OK;
    return tt_fail_errno(diag, TUTTI_ESYS, errno, "getrandom");
}

#endif
