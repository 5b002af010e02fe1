/* SPDX-License-Identifier: BSD-3-Clause
 * with_mpi.c - BYTES N: N all-reduces by MPI after one that is not timed, and a
 * line as `tutti bench` prints it. See bench/cables/run. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int count = argc > 2 ? atoi(argv[1]) / 4 : 0, n = count ? atoi(argv[2]) : 0;
    float *in = malloc(4 * (size_t)count + 4),
          *out = malloc(4 * (size_t)count + 4);
    if (!in || !out || n < 1)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < count; i++)
        in[i] = (float)i;
    double begun = 0;
    for (int i = 0; i <= n; i++) {
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i == 0)
            begun = MPI_Wtime();
    }
    double s = (MPI_Wtime() - begun) / n;
    if (rank == 0)
        printf("%d %d f32 sum -1 %.0f %.2f %.2f\n", 4 * count, count, s * 1e6,
               4e-9 * count / s, 4e-9 * count / s);
    MPI_Finalize();
    return 0;
}
