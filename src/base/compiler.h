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
/* Soon to be written: others' copies of the line go meanwhile. (Where compilers
 * may not use it by themselves 64-bit processors have it, or do nothing.) */
#if defined(__x86_64__)
#define TT_PREFETCH_TO_WRITE(ptr) \
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)(ptr)))
#else
#define TT_PREFETCH_TO_WRITE(ptr) __builtin_prefetch(ptr, 1)
#endif
/* For what costs too much as a call: callbacks become code where it is used. */
#define TT_ALWAYS_INLINE inline __attribute__((always_inline))
/* Hardly ever called: its caller is not to make room for it. */
#define TT_COLD __attribute__((cold, noinline))
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

/* CRC-32C by the processor: eight bytes or one more. */
#if defined(__x86_64__)
#define TT_HAVE_CRC32C 1
#define TT_CPU_HAS_CRC32C() __builtin_cpu_supports("sse4.2")
static inline uint32_t tt_cpu_crc32c_8(uint64_t crc, uint64_t word)
{
    __asm__("crc32q %1, %0" : "+r"(crc) : "rm"(word));
    return (uint32_t)crc;
}
static inline uint32_t tt_cpu_crc32c_1(uint32_t crc, uint8_t byte)
{
    __asm__("crc32b %1, %0" : "+r"(crc) : "rm"(byte));
    return crc;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#define TT_HAVE_CRC32C 1
#define TT_CPU_HAS_CRC32C() ((getauxval(16 /* AT_HWCAP */) & 1 << 7) != 0)
static inline uint32_t tt_cpu_crc32c_8(uint32_t crc, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1"
            : "+r"(crc)
            : "r"(word));
    return crc;
}
static inline uint32_t tt_cpu_crc32c_1(uint32_t crc, uint8_t byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
            : "+r"(crc)
            : "r"((uint32_t)byte));
    return crc;
}
#else
#define TT_HAVE_CRC32C 0
#endif

/* The 128-bit product that element borders need. */
__extension__ typedef unsigned __int128 tt_u128;

#endif
