/* SPDX-License-Identifier: BSD-3-Clause
 * append.h - opens a file that is written at its end, by a name that a setting
 * has: it may lie where others write, too. */
#ifndef TT_BASE_APPEND_H
#define TT_BASE_APPEND_H

#include <stdio.h>

/* It is made where there is none. Never blocks. In a directory where everybody
 * may make files (/tmp) links, and files of other users, are refused. Returns
 * NULL, or why it cannot be written, and *out is NULL. */
const char *tt_append_open(const char *path, FILE **out);

#endif
