/* SPDX-License-Identifier: BSD-3-Clause
 * launch.h - private to start-up: what launch.c asks of single launchers. */
#ifndef TT_BOOT_LAUNCH_H
#define TT_BOOT_LAUNCH_H

#include "boot/boot.h"

/* The first host of a Slurm node list: "node[07-09,12],gpu1" -> "node07".
 * False when the list makes no sense or the name does not fit. */
bool tt_slurm_first_host(const char *list, char *out, size_t size);

/* Hands text from rank 0 to all ranks through the process manager at PMI_FD,
 * by the PMI-1 wire protocol; every rank of the job calls it. text: rank 0's,
 * and on the others the result (size bytes). Errors: EBOOT. */
tutti_err tt_pmi_share(int fd, bool is_root, char *text, size_t size,
                       tutti_diag *diag);

#endif
