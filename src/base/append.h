/* SPDX-License-Identifier: BSD-3-Clause
 * append.h - opens a file that is written at its end, by a name that a setting
 * has: it may lie where others write, too. */
#ifndef TT_BASE_APPEND_H
#define TT_BASE_APPEND_H

#include <stdio.h>

#include "base/err.h"

/* It is made where there is none. Never blocks. In a directory where everybody may
 * make files (/tmp) links, and files of other users, are refused. Errors: ESYS
 * with a sentence. */
tutti_err tt_append_open(const char *path, FILE **out, tutti_diag *diag);

#endif
