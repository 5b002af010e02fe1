/* SPDX-License-Identifier: BSD-3-Clause
 * files.h - how many descriptors this process may have.
 *
 * The soft limit (ulimit -n) is there for programs of old, the hard one says
 * what is allowed. So the soft limit is raised to the hard one, but not before
 * it is nearly reached. */
#ifndef TT_BASE_FILES_H
#define TT_BASE_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* As many as n are needed: raises the limit where it is lower. False: not so
 * many are allowed. [any thread] */
bool tt_files_allow(uint64_t n);

/* The limit, for sentences. */
uint64_t tt_files_limit(void);

#endif
