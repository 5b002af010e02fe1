/* SPDX-License-Identifier: BSD-3-Clause
 * arithmetic.h - what the kernels of src/device/kernels.cu must make, written
 * without regard to speed and independently of them and of the library's. */
#ifndef TT_TESTS_CUDA_ARITHMETIC_H
#define TT_TESTS_CUDA_ARITHMETIC_H

#include <stddef.h>
#include <stdint.h>

/* The kernels' parameter. */
typedef struct reduction {
    uint64_t src[32], dst[32];
    uint64_t count, head, vectors;
    uint32_t n_src, n_dst, op, divisor;
    uint64_t word;
    uint32_t turn;
} reduction;

/* The number of the type that a kernel is for, by its name; -1: of none. */
int arithmetic_type(const char *kernel);
size_t arithmetic_size(int type);
/* What would make the kernel fault, or leave elements out; NULL: nothing. */
const char *arithmetic_fault(int type, const reduction *r);
void arithmetic_reduce(int type, const reduction *r);

#endif
