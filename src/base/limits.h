/* SPDX-License-Identifier: BSD-3-Clause
 * limits.h - limits that several folders share: named, and checked
 * (TUTTI_ELIMIT). */
#ifndef TT_BASE_LIMITS_H
#define TT_BASE_LIMITS_H

#define TT_MAX_RANKS 65536u

#endif
