/* SPDX-License-Identifier: BSD-3-Clause
 * calls.c - so many all-reduces of so many bytes, and nothing else that
 * depends on their number. bench/pair runs it twice under a tool that counts:
 * the difference is what the calls cost, without start and end.
 *
 *     calls BYTES CALLS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

int main(int argc, char **argv)
{
    peer_start(&argc, &argv);
    size_t bytes = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    long n_calls = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    float *in = calloc(1, bytes);
    float *out = calloc(1, bytes);
    if (bytes < sizeof(float) || n_calls < 1 || !in || !out) {
        fprintf(stderr, "usage: calls BYTES CALLS\n");
        return 2;
    }
    peer_use(0);
    for (long k = 0; k < n_calls; k++)
        peer_all_reduce(in, out, bytes / sizeof(float));
    free(in);
    free(out);
    peer_stop();
    return 0;
}
