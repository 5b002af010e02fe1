/* SPDX-License-Identifier: BSD-3-Clause
 * shares.c - shares of a vector by water-filling, and as whole numbers.
 *
 * Idea       In an all-reduce by direct exchange, member i gives away what it
 *            does not own, 1 - x_i, and hands what it owns to n - 1 others:
 *            1 + (n - 2) x_i vectors in all, and as many come in. The best
 *            shares end at one time T: x_i = max(0, (T rate_i - 1) / c). They
 *            sum to 1 at
 *                T = (c + k) / sum of the rates of the k members with x_i > 0
 *            but nobody can give its own vector away faster than 1 / rate, so
 *            the answer is the larger of T and 1 / slowest rate.
 * Invariant  Members are struck out of the k, all at once that have
 *            T rate_i < 1. T only falls by that, so nobody comes back, and
 *            who is left at the end has T rate_i >= 1.
 * Cost       O(n) a round; few rounds, since each strikes out all members
 *            below about half the mean. Whole numbers: O(n log n).
 * Example    Rates 25, 25, 10, 10 and c = 2: the first round has T = 6/70 and
 *            strikes out the slow two; then T = 4/50, shares 1/2, 1/2, 0, 0,
 *            and the slow two need 1/10.
 * Next       direct.c, flexreduce.c. */
#include "plan/shares.h"

#include <math.h>

#include "base/heap.h"

/* So near to 0, c divides by nothing useful: shares do not matter. */
#define NO_MATTER 1e-9

/* A share is a whole number of parts when it is so near to one. */
#define WHOLE 1e-9

static void even_shares(uint32_t n, double *share)
{
    for (uint32_t i = 0; i < n; i++)
        share[i] = 1.0 / n;
}

static void by_rate(const double *rate, uint32_t n, double *share)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += rate[i];
    for (uint32_t i = 0; i < n; i++)
        share[i] = rate[i] / sum;
}

/* Strikes members out until all that are left have a share; returns T. */
static double settle(const double *rate, uint32_t n, double c)
{
    double least_rate = 0; /* of those that are left */
    for (;;) {
        double sum = 0;
        uint32_t k = 0;
        double slowest = INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            if (rate[i] < least_rate)
                continue;
            sum += rate[i];
            slowest = fmin(slowest, rate[i]);
            k++;
        }
        double time = (c + k) / sum;
        if (time * slowest >= 1 || k == 1)
            return time;
        least_rate = fmax(1 / time, nextafter(slowest, INFINITY));
    }
}

double tt_shares_fill(const double *rate, uint32_t n, double c, double *share)
{
    double slowest = rate[0];
    double fastest = rate[0];
    for (uint32_t i = 1; i < n; i++) {
        slowest = fmin(slowest, rate[i]);
        fastest = fmax(fastest, rate[i]);
    }
    if (slowest == fastest) {
        even_shares(n, share);
        return (1 + c / n) / slowest;
    }
    if (c < NO_MATTER) {
        by_rate(rate, n, share);
        return 1 / slowest;
    }
    double time = settle(rate, n, c);
    for (uint32_t i = 0; i < n; i++)
        share[i] = fmax(0, (time * rate[i] - 1) / c);
    return fmax(time, 1 / slowest);
}

/* -------------------------------------------------------- whole numbers -- */

/* Is every share a whole number of `total` parts? */
static bool are_whole(const double *share, uint32_t n, uint64_t total)
{
    for (uint32_t i = 0; i < n; i++) {
        double parts = share[i] * (double)total;
        if (fabs(parts - round(parts)) > WHOLE * (double)total)
            return false;
    }
    return true;
}

/* The one with the smaller rest is taken off first; of equals, the last. */
static bool goes_last(const void *arg, const void *a, const void *b)
{
    const double *rest = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return rest[x] < rest[y] || (rest[x] <= rest[y] && x > y);
}

static const tt_heap_items by_rest = {sizeof(uint32_t), goes_last, NULL};

/* One more for each of the `left` members with the largest rests. */
static void hand_out(double *rest, uint32_t n, uint64_t left, uint32_t *heap,
                     uint64_t *whole)
{
    for (uint32_t i = 0; i < n; i++)
        heap[i] = i;
    tt_heap_make(&by_rest, rest, heap, n);
    for (size_t end = n; end > left; end--)
        tt_heap_pop(&by_rest, rest, heap, end);
    for (uint64_t i = 0; i < left; i++)
        whole[heap[i]]++;
}

static bool round_shares(const double *share, uint32_t n, tt_arena *arena,
                         uint64_t *whole)
{
    double *rest = tt_arena_new(arena, n, sizeof(*rest));
    uint32_t *heap = tt_arena_new(arena, n, sizeof(*heap));
    uint64_t given = 0;
    if (arena->err)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        double parts = share[i] * TT_SHARES_FINE;
        whole[i] = (uint64_t)parts;
        rest[i] = parts - (double)whole[i];
        given += whole[i];
    }
    if (given < TT_SHARES_FINE) {
        uint64_t left = TT_SHARES_FINE - given;
        hand_out(rest, n, left < n ? left : n, heap, whole);
    }
    return true;
}

/* The sum is what it must be in spite of rounding in the shares themselves:
 * whoever has most makes up for it. */
static void square(uint64_t *whole, uint32_t n, uint64_t total)
{
    uint64_t sum = 0;
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += whole[i];
        if (whole[i] > whole[most])
            most = i;
    }
    whole[most] += total - sum;
}

uint64_t tt_shares_whole(const double *share, uint32_t n, tt_arena *arena,
                         uint64_t *whole)
{
    uint64_t most = n > TT_SHARES_EXACT ? n : TT_SHARES_EXACT;
    for (uint64_t total = 1; total <= most; total++) {
        if (!are_whole(share, n, total))
            continue;
        for (uint32_t i = 0; i < n; i++)
            whole[i] = (uint64_t)llround(share[i] * (double)total);
        square(whole, n, total);
        return total;
    }
    if (!round_shares(share, n, arena, whole))
        return 0;
    square(whole, n, TT_SHARES_FINE);
    return TT_SHARES_FINE;
}
