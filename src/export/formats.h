/* SPDX-License-Identifier: BSD-3-Clause
 * formats.h - private to this folder: the functions behind the table. */
#ifndef TT_EXPORT_FORMATS_H
#define TT_EXPORT_FORMATS_H

#include "export/export.h"

tutti_err tt_write_dot(const tutti_schedule *s, tt_str *out);
tutti_err tt_write_picture(const tutti_schedule *s, tt_str *out);
/* ELIMIT: too many transfers, or ranks, for a picture. */
#define TT_MAX_DRAWN 20000u
tutti_err tt_write_svg(const tutti_schedule *s, tt_str *out);

#endif
