/* SPDX-License-Identifier: BSD-3-Clause
 * large_test.c - one vector of more than 2^31 elements, so that a count or an
 * offset that is kept in 32 bits somewhere shows. */
#include "support/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti.h>

#include "base/rng.h"
#include "support/cases.h"
#include "support/seed.h"

/* In bytes. The length is odd, and so are the pieces of equal content. */
static const size_t length = ((size_t)1 << 31) + 3;
static const size_t piece = 65537;
static const uint64_t needed = (uint64_t)10 << 30;

static uint8_t content(int rank, size_t index)
{
    tt_rng rng = {(uint64_t)(index / piece) * 8 + (uint64_t)rank};
    return (uint8_t)tt_rng_next(&rng);
}

static int check_at(const uint8_t *x, size_t i, int rank, int n)
{
    uint8_t most = 0;
    for (int r = 0; r < n; r++)
        if (content(r, i) > most)
            most = content(r, i);
    if (x[i] == most)
        return 0;
    return tt_procs_complain(rank, "element %zu is %d instead of %d", i, x[i],
                             most);
}

static int all_reduce_in_place(tutti_comm *world, int rank, int n)
{
    tt_rng rng = {tt_test_seed(23)};
    uint8_t *x = malloc(length);
    if (!x)
        return tt_procs_complain(rank, "out of memory");
    for (size_t at = 0; at < length; at += piece)
        memset(x + at, content(rank, at),
               at + piece < length ? piece : length - at);
    int bad = tt_well(
        world,
        tutti_all_reduce(world, x, x, length, TUTTI_U8, TUTTI_MAX, NULL, NULL),
        "all-reduce");
    /* Both ends, the surroundings of 2^31 and of its half, and anywhere. */
    const size_t marks[] = {0, length / 2 - 8, length - 16};
    for (size_t m = 0; m < 3; m++)
        for (size_t i = 0; i < 16 && !bad; i++)
            bad = check_at(x, marks[m] + i, rank, n);
    for (int i = 0; i < 5000 && !bad; i++)
        bad = check_at(x, tt_rng_below(&rng, length), rank, n);
    free(x);
    return bad;
}

/* 0 when the host does not tell. */
static uint64_t available_bytes(void)
{
    char line[128];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && kib == 0 && fgets(line, sizeof(line), file))
        sscanf(line, "MemAvailable: %" SCNu64, &kib);
    if (file)
        fclose(file);
    return kib * 1024;
}

static void more_than_two_to_the_31(void **state)
{
    tt_case c = {all_reduce_in_place, 2, "shm"};
    void *at = &c;
    (void)state;
    if (available_bytes() < needed) {
        print_message("needs 10 GiB of available memory, has %.1f\n",
                      (double)available_bytes() / (double)(1 << 30));
        skip();
    }
    tt_case_run(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_two_to_the_31),
    };
    return TT_RUN_TAP(tests);
}
