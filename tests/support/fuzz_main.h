/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_main.h - runs a fuzz driver as a plain test: every file of its corpus,
 * and seeded random mutations of them.
 *
 * A driver defines LLVMFuzzerTestOneInput(), and, unless TT_LIBFUZZER is set
 * (then libFuzzer brings its own), a main() that calls tt_fuzz_main(). What a
 * driver finds wrong it says on stderr, and aborts. */
#ifndef TT_TESTS_FUZZ_MAIN_H
#define TT_TESTS_FUZZ_MAIN_H

#include <stddef.h>
#include <stdint.h>

/* argv[1]: a file or a directory instead of `corpus` (a directory, from the
 * repository's root); argv[2]: the number of mutations. TT_SEED as ever.
 * Prints TAP; returns the exit status. */
int tt_fuzz_main(int argc, char **argv, const char *corpus,
                 int (*one)(const uint8_t *data, size_t len));

/* How many where the command line does not say: 20000 of texts of a kilobyte
 * take about a second. A driver whose inputs take longer sets less, in its
 * main(). */
extern size_t tt_fuzz_mutations;

/* Says what is wrong with an input, and aborts. */
void tt_fuzz_fail(const char *what);

/* What is left of an input. */
typedef struct tt_fuzz_input {
    const uint8_t *data;
    size_t len;
} tt_fuzz_input;

/* Its next byte; 0 at its end. */
uint8_t tt_fuzz_next(tt_fuzz_input *in);
/* Changes some of len bytes (256 at most): by pairs of an offset and a byte,
 * until a byte that is no offset, which is taken too. */
void tt_fuzz_change(tt_fuzz_input *in, void *bytes, size_t len);

#endif
