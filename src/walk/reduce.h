/* SPDX-License-Identifier: BSD-3-Clause
 * reduce.h - the arithmetic: one function per (type, operation).
 *
 * A kernel makes one reduction of n_src values per element, in the order
 * given: dst = src[0] op src[1] op ... op src[n_src - 1], n_src >= 1 (n_src 1
 * is a copy). f16 and bf16 accumulate in f32 and are rounded once at the end
 * (round to nearest even); f32, f64 and integers accumulate in their own type.
 * dst may be equal to any one of the sources, never partly overlap one. No
 * alignment is assumed. The bits of an element depend only on its sources'
 * bits, never on its position, on count or on alignment. */
#ifndef TT_WALK_REDUCE_H
#define TT_WALK_REDUCE_H

#include <stdbool.h>

#include "base/err.h"

typedef void (*tt_reduce_fn)(void *dst, const void *const *src, uint32_t n_src,
                             size_t count);
/* The same of 2 to TT_LINES_MOST sources for whole cache lines, to places that
 * are aligned to one, the first n_past of them past the cache; means are
 * divided, too. */
#define TT_LINES_MOST 4
typedef struct tt_lines_to {
    unsigned char *const *dst; /* n_dst */
    uint32_t n_dst, n_past;
} tt_lines_to;
typedef void (*tt_lines_fn)(const tt_lines_to *to, const void *const *src,
                            uint32_t n_src, size_t n_lines, uint32_t divisor);
/* dst[i] = dst[i] / n: truncates to zero for integers, one rounding for
 * floats (16-bit floats divide in f32). */
typedef void (*tt_divide_fn)(void *dst, size_t count, uint32_t n);
/* dst[i] = src[i] * factor, one rounding to the type (f64: in f64; f32 and
 * 16-bit floats: factor rounded to f32 first). dst may equal src. */
typedef void (*tt_scale_fn)(void *dst, const void *src, size_t count,
                            double factor);

/* NULL where op is not defined for type (see TUTTI_OP_LIST). AVG and
 * SCALED_SUM give SUM's kernel. */
tt_reduce_fn tt_reduce_kernel(tutti_type type, tutti_op op);
/* tutti_op_check(), and why. */
tutti_err tt_op_check(tutti_op op, tutti_type type, tutti_diag *diag);
tt_lines_fn tt_lines_kernel(tutti_type type, tutti_op op,
                            bool divides);      /* NULL: use others */
tt_divide_fn tt_divide_kernel(tutti_type type); /* NULL for BOOL */
tt_scale_fn tt_scale_kernel(tutti_type type);   /* NULL unless a float */
/* What a reduction, its division and the scaling before it take. */
typedef struct tt_kernels {
    tt_reduce_fn reduce;
    tt_lines_fn lines, mean_lines;
    tt_divide_fn divide; /* NULL: nothing to divide */
    tt_scale_fn scale;   /* NULL unless a float */
} tt_kernels;
tt_kernels tt_kernels_of(tutti_type type, tutti_op op);

/* stream.c: results that will not be read before they have left the cache. What
 * they overwrite is not first read from memory, which saves a third of the
 * traffic; but they are in no cache afterwards. Bits are those of the kernels,
 * and the result is visible to other threads as any other. */
typedef struct tt_reduction {
    tt_reduce_fn reduce;
    tt_lines_fn lines;   /* divides where `divide` is set; may be NULL */
    tt_divide_fn divide; /* NULL: nothing to divide */
    uint32_t divisor, elem_bytes;
} tt_reduction;

/* One result to one place or more, each of which may be one of the sources. */
typedef struct tt_spread {
    void *const *dst;
    uint32_t n_dst; /* at least 1 */
    bool streams;   /* what is no source is stored past the cache */
} tt_spread;
/* r->reduce NULL: a copy of the only source. */
void tt_spread_reduce(const tt_reduction *r, const tt_spread *to,
                      const void *const *src, uint32_t n_src, size_t count);

#endif
