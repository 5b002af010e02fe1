/* SPDX-License-Identifier: BSD-3-Clause
 * folder.h - a folder for the files of one test. */
#ifndef TT_TESTS_FOLDER_H
#define TT_TESTS_FOLDER_H

#include <stdbool.h>

/* Makes it, below /tmp, with this in its name; once in a process. */
bool tt_folder_open(const char *name);
/* Of a file in it; good until the eighth call from here. */
const char *tt_folder_path(const char *file);
/* Removes it, with the files and empty folders in it. */
void tt_folder_close(void);

#endif
