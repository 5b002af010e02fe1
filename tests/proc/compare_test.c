/* SPDX-License-Identifier: BSD-3-Clause
 * compare_test.c - tutti_comm_compare(), between real processes: what differs
 * first, and on which ranks; all ranks are told the same. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti.h>

#include "support/cases.h"

enum { N_BUFFERS = 600, BYTES = 33 };

typedef struct held {
    unsigned char bytes[N_BUFFERS][BYTES];
    tutti_shared shared[N_BUFFERS];
    int ranks[8];
    tutti_difference d;
} held;

/* The same on all ranks. */
static held *hold(void)
{
    held *h = calloc(1, sizeof(*h));
    for (size_t i = 0; h && i < N_BUFFERS; i++) {
        for (size_t k = 0; k < BYTES; k++)
            h->bytes[i][k] = (unsigned char)(i * 31 + k);
        h->shared[i] = (tutti_shared){NULL, h->bytes[i], BYTES};
    }
    return h;
}

static int compare(held *h, tutti_comm *world, size_t n)
{
    h->d = (tutti_difference)TUTTI_DIFFERENCE_INIT;
    h->d.ranks = h->ranks;
    return tt_well(world, tutti_comm_compare(world, h->shared, n, &h->d),
                   "compare");
}

/* Who differs: a bit each. */
static int expect(const held *h, int rank, unsigned who, int like,
                  size_t buffer, const char *text)
{
    unsigned found = 0;
    for (int i = 0; i < h->d.n_ranks; i++)
        found |= 1u << h->ranks[i];
    if (found != who || (who && (h->d.like != like || h->d.buffer != buffer ||
                                 h->d.rank != h->ranks[0])))
        return tt_procs_complain(rank, "ranks %x and not %x, buffer %zu: %s",
                                 found, who, h->d.buffer, h->d.text);
    if (strcmp(h->d.text, text) != 0)
        return tt_procs_complain(rank, "it says \"%s\"", h->d.text);
    return 0;
}

static int nothing_differs(tutti_comm *world, int rank, int n)
{
    held *h = hold();
    (void)n;
    int bad = compare(h, world, 0) || expect(h, rank, 0, 0, 0, "");
    bad |= compare(h, world, N_BUFFERS) || expect(h, rank, 0, 0, 0, "");
    h->shared[3].bytes = 0;
    h->shared[3].buf = NULL;
    bad |= compare(h, world, 5) || expect(h, rank, 0, 0, 0, "");
    free(h);
    return bad;
}

/* The last buffer of all, far behind the first block, by one bit; then one
 * before that, on rank 0, which is in the minority. */
static int one_bit_differs(tutti_comm *world, int rank, int n)
{
    held *h = hold();
    const uint64_t hash = tutti_hash(h->bytes[N_BUFFERS - 1], BYTES, 0);
    (void)n;
    h->bytes[N_BUFFERS - 1][BYTES - 1] ^= rank == 2;
    int bad = compare(h, world, N_BUFFERS) ||
              expect(h, rank, 4, 0, N_BUFFERS - 1,
                     "buffer 599 of 600 is not equal: rank 2 has other bytes "
                     "in it than rank 0");
    if (h->d.like_hash != hash || h->d.hash == hash || h->d.bytes != BYTES)
        bad |= tt_procs_complain(rank, "the hashes are not those");
    h->bytes[7][0] += rank == 0;
    h->shared[7].name = "layer 4";
    bad |= compare(h, world, N_BUFFERS) ||
           expect(h, rank, 1, 1, 7,
                  "buffer 7 of 600 (layer 4) is not equal: rank 0 has other "
                  "bytes in it than rank 1");
    free(h);
    return bad;
}

/* Of two halves that with rank 0 is right. */
static int halves_differ(tutti_comm *world, int rank, int n)
{
    held *h = hold();
    (void)n;
    h->bytes[1][1] ^= rank >= 2;
    int bad = compare(h, world, 2) ||
              expect(h, rank, 12, 0, 1,
                     "buffer 1 of 2 is not equal: rank 2 and 1 more have other "
                     "bytes in it than rank 0");
    free(h);
    return bad;
}

static int sizes_differ(tutti_comm *world, int rank, int n)
{
    held *h = hold();
    (void)n;
    h->shared[5].bytes -= rank == 1;
    int bad = compare(h, world, 9) ||
              expect(h, rank, 2, 0, 5,
                     "buffer 5 of 9 is not equal: rank 1 has 32 bytes, rank 0 "
                     "has 33");
    bad |= compare(h, world, rank == 3 ? 4 : 6) ||
           expect(h, rank, 8, 0, 4,
                  "rank 3 has another number of buffers (4) than rank 0 (6)");
    free(h);
    return bad;
}

/* It leaves the communicator, and what it would have told, as they were. */
static int nonsense_is_refused(tutti_comm *world, int rank, int n)
{
    held *h = hold();
    int64_t x = 1;
    (void)rank;
    h->shared[1].buf = NULL;
    h->d.rank = 17;
    int bad = tt_expect(world, tutti_comm_compare(world, h->shared, 2, NULL),
                        TUTTI_EINVAL, "no place");
    bad |= tt_expect(world, tutti_comm_compare(world, h->shared, 2, &h->d),
                     TUTTI_EINVAL, "no size");
    h->d.size = sizeof(h->d);
    bad |= tt_expect(world, tutti_comm_compare(world, h->shared, 2, &h->d),
                     TUTTI_EINVAL, "a NULL buffer");
    bad |= tt_expect(world, tutti_comm_compare(world, NULL, 2, &h->d),
                     TUTTI_EINVAL, "NULL buffers");
    bad |= tt_expect(world,
                     tutti_comm_compare(world, h->shared, SIZE_MAX, &h->d),
                     TUTTI_EINVAL, "too many buffers");
    bad |= tt_well(
        world,
        tutti_all_reduce(world, &x, &x, 1, TUTTI_I64, TUTTI_SUM, NULL, NULL),
        "all-reduce");
    if (h->d.rank != 17 || x != n)
        bad |= tt_procs_complain(rank, "something was changed");
    free(h);
    return bad;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_CASE(nothing_differs, 4),
        TT_CASE_ON("shm", nothing_differs, 1),
        TT_CASE(one_bit_differs, 4),
        TT_CASE_ON("shm", halves_differ, 4),
        TT_CASE_ON("shm", sizes_differ, 4),
        TT_CASE_ON("shm", nonsense_is_refused, 2),
    };
    return TT_RUN_TAP(tests);
}
