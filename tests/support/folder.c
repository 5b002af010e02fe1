/* SPDX-License-Identifier: BSD-3-Clause
 * folder.c - see folder.h. */
#include "support/folder.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[64];

bool tt_folder_open(const char *name)
{
    snprintf(folder, sizeof(folder), "/tmp/tutti-%s-XXXXXX", name);
    return mkdtemp(folder) != NULL;
}

const char *tt_folder_path(const char *file)
{
    static char paths[8][512];
    static uint32_t n;
    char *out = paths[n++ % 8];
    snprintf(out, sizeof(paths[0]), "%s/%s", folder, file);
    return out;
}

void tt_folder_close(void)
{
    DIR *dir = opendir(folder);
    const struct dirent *e;
    while (dir && (e = readdir(dir)) != NULL)
        remove(tt_folder_path(e->d_name)); /* "." is not empty */
    if (dir)
        closedir(dir);
    remove(folder);
}
