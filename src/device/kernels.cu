// SPDX-License-Identifier: BSD-3-Clause
// kernels.cu - the arithmetic of walk/kernels.c on a GPU; tools/ptx makes
// kernels.ptx of it, which is committed and goes into the library.
//
// Idea       One kernel for each type, one loop in it for each operation. A
//            thread makes 16 bytes of the result at a time, from registers:
//            two sources are read before either is used, so that enough of
//            the memory's latency is hidden.
// Invariant  An element is ((s0 op s1) op s2) ...; its bits depend on those of
//            its sources alone. A place is written at an index only after
//            every source was read there, by the same thread.
// Bits       No multiplication is joined with a sum, no subnormal number is
//            flushed, a division is rounded to nearest: the flags in tools/ptx
//            see to it.
// Next       reduction.c (who starts them).
#define FN static __attribute__((device)) __inline__ __attribute__((always_inline))
#define KERNEL extern "C" __attribute__((global))
#define GLOBAL __attribute__((address_space(1)))

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

// As reduction.c has it.
enum { MOST = 32 };
struct reduction {
    u64 src[MOST], dst[MOST];
    u64 count;   // elements
    u64 head;    // of them before those that are made 16 bytes at a time
    u64 vectors; // of 16 bytes
    u32 n_src, n_dst;
    u32 op;      // as in tutti.h
    u32 divisor; // 0: none
    u64 word;    // 32 bits of the device; 0: none
    u32 turn;    // what it must be, or nothing is done
};
enum { SUM, AVG, PROD, MIN, MAX, BAND, BOR, BXOR, SCALED_SUM };

// ------------------------------------------------------------------ types --

FN float f16_load(u16 bits)
{
    float value;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

FN u16 f16_save(float value)
{
    u16 bits;
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

FN float bf16_load(u16 bits)
{
    return __builtin_bit_cast(float, (u32)bits << 16);
}

// To nearest, ties to even: half a unit less one, and one more where the kept
// part is odd. A NaN stays one.
FN u16 bf16_save(float value)
{
    u32 bits = __builtin_bit_cast(u32, value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (u16)((bits | 0x400000) >> 16);
    return (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// `bits` is what lies in memory, `acc` what accumulates, `key` is ordered like
// the numbers: floats as sign and magnitude, -0 below +0.
template <class T> struct plain {
    typedef T bits;
    typedef T acc;
    typedef T key;
    FN acc load(bits x) { return x; }
    FN bits save(acc x) { return x; }
    FN key order(bits x) { return x; }
    FN bool is_nan(bits) { return false; }
    FN bits nan() { return 0; }
};
// Of signed ones the means and the order; all else wraps and is unsigned.
template <class S, class U> struct whole {
    typedef U bits;
    typedef U acc;
    typedef S key;
    FN acc load(bits x) { return x; }
    FN bits save(acc x) { return x; }
    FN key order(bits x) { return (S)x; }
    FN bool is_nan(bits) { return false; }
    FN bits nan() { return 0; }
};
template <class U, class S, class A> struct real {
    typedef U bits;
    typedef A acc;
    typedef S key;
    static constexpr U magnitude = (U)((U)~(U)0 >> 1);
    FN key order(bits x) { return (S)x < 0 ? (S)(x ^ magnitude) : (S)x; }
};
struct f16 : real<u16, short, float> {
    FN acc load(bits x) { return f16_load(x); }
    FN bits save(acc x) { return f16_save(x); }
    FN bool is_nan(bits x) { return (x & magnitude) > 0x7c00; }
    FN bits nan() { return 0x7e00; }
};
struct bf16 : real<u16, short, float> {
    FN acc load(bits x) { return bf16_load(x); }
    FN bits save(acc x) { return bf16_save(x); }
    FN bool is_nan(bits x) { return (x & magnitude) > 0x7f80; }
    FN bits nan() { return 0x7fc0; }
};
struct f32 : real<u32, i32, float> {
    FN acc load(bits x) { return __builtin_bit_cast(float, x); }
    FN bits save(acc x) { return __builtin_bit_cast(u32, x); }
    FN bool is_nan(bits x) { return (x & magnitude) > 0x7f800000; }
    FN bits nan() { return 0x7fc00000; }
};
struct f64 : real<u64, i64, double> {
    FN acc load(bits x) { return __builtin_bit_cast(double, x); }
    FN bits save(acc x) { return __builtin_bit_cast(u64, x); }
    FN bool is_nan(bits x) { return (x & magnitude) > 0x7ff0000000000000; }
    FN bits nan() { return 0x7ff8000000000000; }
};
struct boolean : plain<u8> {
    FN acc load(bits x) { return x != 0; }
};

// A mean of whole numbers truncates; of floats it is rounded once more, from
// the sum as the type has it.
FN u8 mean(whole<i8, u8>, u8 x, u32 n)
{
    i32 v = (i8)x;
    u32 q = (u32)(v < 0 ? -v : v) / n;
    return (u8)(v < 0 ? 0 - q : q);
}
FN u32 mean(whole<i32, u32>, u32 x, u32 n)
{
    u32 q = ((i32)x < 0 ? 0 - x : x) / n;
    return (i32)x < 0 ? 0 - q : q;
}
FN u64 mean(whole<i64, u64>, u64 x, u32 n)
{
    u64 q = ((i64)x < 0 ? 0 - x : x) / n;
    return (i64)x < 0 ? 0 - q : q;
}
template <class T> FN T mean(plain<T>, T x, u32 n)
{
    return (T)(x / n);
}
template <class U, class S> FN float mean(real<U, S, float>, float x, u32 n)
{
    return x / (float)n;
}
FN double mean(f64, double x, u32 n)
{
    return x / (double)n;
}
template <class E> FN typename E::bits mean_of(typename E::bits x, u32 n)
{
    return E::save(mean(E(), E::load(x), n));
}

// ------------------------------------------------------------- operations --

// What accumulates, and how it begins and ends.
template <class E> struct number {
    typedef typename E::bits bits;
    typedef typename E::acc acc;
    FN acc load(bits x) { return E::load(x); }
    FN bits save(acc x) { return E::save(x); }
};
template <class E> struct raw {
    typedef typename E::bits bits;
    typedef typename E::bits acc;
    FN acc load(bits x) { return x; }
    FN bits save(acc x) { return x; }
};
template <class E> struct sum : number<E> {
    FN typename E::acc join(typename E::acc a, typename E::acc b)
    {
        return a + b;
    }
};
template <class E> struct prod : number<E> {
    FN typename E::acc join(typename E::acc a, typename E::acc b)
    {
        return a * b;
    }
};
template <class E, bool LEAST> struct pick : raw<E> {
    FN typename E::bits join(typename E::bits a, typename E::bits b)
    {
        bool first = LEAST ? E::order(a) < E::order(b)
                           : E::order(a) > E::order(b);
        return E::is_nan(a) || E::is_nan(b) ? E::nan() : first ? a : b;
    }
};
template <class E> struct band : number<E> {
    FN typename E::acc join(typename E::acc a, typename E::acc b)
    {
        return a & b;
    }
};
template <class E> struct bor : number<E> {
    FN typename E::acc join(typename E::acc a, typename E::acc b)
    {
        return a | b;
    }
};
template <class E> struct bxor : number<E> {
    FN typename E::acc join(typename E::acc a, typename E::acc b)
    {
        return a ^ b;
    }
};

// -------------------------------------------------------------- reduction --

// What a thread makes at a time: 16 bytes, or one element. The compiler would
// else load 16 bytes one by one where it wants to see them so.
struct four {
    u32 w[4];
    FN four load(u64 at)
    {
        four x;
        __asm__ volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]),
                           "=r"(x.w[3])
                         : "l"(at)
                         : "memory");
        return x;
    }
    FN void store(u64 at, const four &x)
    {
        __asm__ volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                         :
                         : "l"(at), "r"(x.w[0]), "r"(x.w[1]), "r"(x.w[2]),
                           "r"(x.w[3])
                         : "memory");
    }
};
template <class T> struct lot { // of one
    typedef T word;
    static constexpr u64 n = 1;
    FN T load(u64 at) { return *(const GLOBAL T *)at; }
    FN void store(u64 at, T x) { *(GLOBAL T *)at = x; }
    FN T get(T x, u64) { return x; }
    FN void put(T &x, u64, T value) { x = value; }
};
template <class T> struct lots { // 16 bytes
    typedef four word;
    static constexpr u64 n = 16 / sizeof(T);
    static constexpr u64 in_word = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    FN four load(u64 at) { return four::load(at); }
    FN void store(u64 at, const four &x) { four::store(at, x); }
    FN T get(const four &x, u64 i)
    {
        if (sizeof(T) == 8)
            return (T)(x.w[2 * i] | (u64)x.w[2 * i + 1] << 32);
        return (T)(x.w[i / in_word] >> i % in_word * 8 * sizeof(T));
    }
    FN void put(four &x, u64 i, T value)
    {
        if (sizeof(T) == 8) {
            x.w[2 * i] = (u32)value;
            x.w[2 * i + 1] = (u32)((u64)value >> 32);
        } else if (i % in_word == 0) {
            x.w[i / in_word] = value;
        } else {
            x.w[i / in_word] |= (u32)value << i % in_word * 8 * sizeof(T);
        }
    }
};

// The next source is on its way while one is added.
template <class E, class O, class L, bool MEANS>
FN void make(const reduction &r, u64 offset)
{
    typename O::acc acc[L::n];
    typename L::word first = L::load(r.src[0] + offset);
    typename L::word next = first;
    if (r.n_src > 1)
        next = L::load(r.src[1] + offset);
#pragma unroll
    for (u64 i = 0; i < L::n; i++)
        acc[i] = O::load(L::get(first, i));
#pragma unroll 1
    for (u32 k = 1; k < r.n_src;) {
        typename L::word word = next;
        if (++k < r.n_src)
            next = L::load(r.src[k] + offset);
#pragma unroll
        for (u64 i = 0; i < L::n; i++)
            acc[i] = O::join(acc[i], O::load(L::get(word, i)));
    }
    typename L::word made;
#pragma unroll
    for (u64 i = 0; i < L::n; i++) {
        typename O::bits x = O::save(acc[i]);
        L::put(made, i, MEANS ? mean_of<E>(x, r.divisor) : x);
    }
#pragma unroll 1
    for (u32 i = 0; i < r.n_dst; i++)
        L::store(r.dst[i] + offset, made);
}

FN u64 first_index()
{
    return (u64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() +
           __nvvm_read_ptx_sreg_tid_x();
}

FN u64 stride()
{
    return (u64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
}

// Elements before the vectors and behind them are made one by one. V is the
// operation within a vector, which may take other elements.
template <class E, class O, class V, bool MEANS>
FN void span_of(const reduction &r)
{
    typedef typename E::bits bits;
    const u64 n = lots<bits>::n;
    const u64 step = stride();
    const u64 singles = r.count - r.vectors * n;
    for (u64 v = first_index(); v < r.vectors; v += step)
        make<E, V, lots<typename V::bits>, MEANS>(r, r.head * sizeof(bits) +
                                                        v * 16);
    for (u64 i = first_index(); i < singles; i += step) {
        u64 at = i < r.head ? i : i + r.vectors * n;
        make<E, O, lot<bits>, MEANS>(r, at * sizeof(bits));
    }
}

template <class E, class O, bool MEANS = false> FN void span(const reduction &r)
{
    span_of<E, O, O, MEANS>(r);
}

template <class E> FN void sums(const reduction &r)
{
    if (r.divisor)
        span<E, sum<E>, true>(r);
    else
        span<E, sum<E>>(r);
}

template <class E> FN void run_ordered(const reduction &r)
{
    switch (r.op) {
    case PROD:
        return span<E, prod<E>>(r);
    case MIN:
        return span<E, pick<E, true>>(r);
    case MAX:
        return span<E, pick<E, false>>(r);
    default:
        return sums<E>(r);
    }
}

// All else is done as of unsigned ones.
template <class E> FN void run_signed(const reduction &r)
{
    switch (r.op) {
    case MIN:
        return span<E, pick<E, true>>(r);
    case MAX:
        return span<E, pick<E, false>>(r);
    default:
        return span<E, sum<E>, true>(r);
    }
}

template <class E> FN void run_whole(const reduction &r)
{
    switch (r.op) {
    case BAND:
        return span_of<E, band<E>, band<plain<u32>>, false>(r);
    case BOR:
        return span_of<E, bor<E>, bor<plain<u32>>, false>(r);
    case BXOR:
        return span_of<E, bxor<E>, bxor<plain<u32>>, false>(r);
    default:
        return run_ordered<E>(r);
    }
}

FN void run_bool(const reduction &r)
{
    switch (r.op) {
    case PROD:
    case MIN:
    case BAND:
        return span<boolean, band<boolean>>(r);
    case BXOR:
        return span<boolean, bxor<boolean>>(r);
    default:
        return span<boolean, bor<boolean>>(r);
    }
}

// One thread of a block looks for all.
FN bool is_wanted(const reduction &r)
{
    return !r.word ||
           __nvvm_bar0_or(__nvvm_read_ptx_sreg_tid_x() == 0 &&
                          *(const volatile u32 GLOBAL *)r.word == r.turn);
}

#define REDUCE(type, run)              \
    KERNEL void tt_##type(reduction r) \
    {                                  \
        if (is_wanted(r))              \
            run(r);                    \
    }
REDUCE(i8, (run_signed<whole<i8, u8>>))
REDUCE(u8, run_whole<plain<u8>>)
REDUCE(i32, (run_signed<whole<i32, u32>>))
REDUCE(u32, run_whole<plain<u32>>)
REDUCE(i64, (run_signed<whole<i64, u64>>))
REDUCE(u64, run_whole<plain<u64>>)
REDUCE(f16, run_ordered<f16>)
REDUCE(bf16, run_ordered<bf16>)
REDUCE(f32, run_ordered<f32>)
REDUCE(f64, run_ordered<f64>)
REDUCE(bool, run_bool)
