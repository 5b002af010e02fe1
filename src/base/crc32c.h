/* SPDX-License-Identifier: BSD-3-Clause
 * crc32c.h - the CRC-32C of Castagnoli, as in iSCSI (RFC 3720, B.4): by the
 * processor's instruction where it has one, else by a table. */
#ifndef TT_BASE_CRC32C_H
#define TT_BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of what had `crc` and the n bytes that follow it; nothing has 0. */
uint32_t tt_crc32c(uint32_t crc, const void *bytes, size_t n);
/* The same by the table, on any processor. */
uint32_t tt_crc32c_by_table(uint32_t crc, const void *bytes, size_t n);

/* Puts one flipped bit of `n` bytes and their crc right. Of at most 655 bytes
 * with their crc no six flips make other right ones, so up to four are never
 * taken for one. */
typedef enum tt_crc_found {
    TT_CRC_RIGHT,
    TT_CRC_MENDED,
    TT_CRC_WRONG /* nothing was changed */
} tt_crc_found;
tt_crc_found tt_crc32c_mend(void *bytes, size_t n, uint32_t *crc);

#endif
