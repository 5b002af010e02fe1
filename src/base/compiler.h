/* SPDX-License-Identifier: BSD-3-Clause
 * compiler.h - the only place where compiler extensions are named. */
#ifndef TT_BASE_COMPILER_H
#define TT_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define TT_LIKELY(x) __builtin_expect(!!(x), 1)
#define TT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
/* Soon to be read. Any address will do. */
#define TT_PREFETCH(ptr) __builtin_prefetch(ptr)
/* For what costs too much as a call: callbacks become code where it is used. */
#define TT_ALWAYS_INLINE inline __attribute__((always_inline))
#define TT_TYPEOF(x) __typeof__(x)
#define TT_CACHE_LINE 64

/* The struct that holds `member` at `ptr`. */
#define TT_CONTAINER(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#if defined(__x86_64__) || defined(__i386__)
#define TT_CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TT_CPU_RELAX() __asm__ __volatile__("yield")
#else
#define TT_CPU_RELAX() ((void)0)
#endif

/* The 128-bit product that element borders need. */
__extension__ typedef unsigned __int128 tt_u128;

#endif
