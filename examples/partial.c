/* SPDX-License-Identifier: BSD-3-Clause
 * partial.c - partial reduce in its smallest form: workers that take steps of
 * different lengths and average their models in groups.
 *
 *   tutti run -n 4 build/examples/partial
 *   tutti controller -n 4 --group 2 --listen 127.0.0.1:29600 &
 *   TUTTI_CONTROLLER=127.0.0.1:29600 build/examples/partial --worker 0 ...
 *
 * The "model" is a vector that each worker pulls towards its own number; they
 * end, after the last group of all, with the same vector. */
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COUNT = 100000 };

static float model[COUNT];

static void local_step(uint32_t worker)
{
    struct timespec pause = {.tv_nsec = 500000L * (1 + worker)};
    nanosleep(&pause, NULL);
    for (int i = 0; i < COUNT; i++)
        model[i] += 0.1F * ((float)worker - model[i]);
}

/* One group: announce, average, take the result or go on without. */
static tutti_err average(tutti_partial *p, uint64_t step, bool is_last)
{
    tutti_err err = tutti_partial_announce(p, step, is_last, NULL, NULL);
    if (!err)
        err = tutti_partial_reduce(p, model, COUNT, TUTTI_F32, NULL, NULL);
    if (!err)
        err = tutti_partial_commit(p, NULL, NULL);
    return err;
}

static int work(tutti_partial *p, uint64_t n_steps)
{
    tutti_partial_info info;
    tutti_partial_describe(p, &info);
    for (uint64_t step = 1; step <= n_steps;) {
        if (!info.is_newcomer) /* it first gets the others' model */
            local_step(info.worker);
        tutti_err err = average(p, step, step == n_steps);
        if (tutti_partial_state(p)) {
            fprintf(stderr, "partial: %s\n", tutti_partial_message(p));
            return 1;
        }
        /* A group that broke has written nothing; the last one must be. */
        step += !err || step < n_steps;
        tutti_partial_describe(p, &info);
    }
    double mean = 0;
    for (int i = 0; i < COUNT; i++)
        mean += (double)model[i] / COUNT;
    printf("worker %u of %u: %llu groups, %llu broke, mean %.9g\n", info.worker,
           info.n_workers, (unsigned long long)info.n_groups,
           (unsigned long long)info.n_broken, mean);
    return 0;
}

static long option(int argc, char **argv, const char *name, long otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtol(argv[i + 1], NULL, 10);
    return otherwise;
}

int main(int argc, char **argv)
{
    long worker = option(argc, argv, "--worker", -2);
    long n_steps = option(argc, argv, "--steps", 100);
    tutti_partial_opts opts = TUTTI_PARTIAL_OPTS_INIT;
    tutti_comm *comm = NULL;
    tutti_partial *p = NULL;
    opts.group_size = (int)option(argc, argv, "--group", 0);
    tutti_err err = TUTTI_OK;
    if (worker == -2) {
        err = tutti_comm_create(NULL, &comm);
        if (!err)
            err = tutti_partial_open(comm, &opts, &p);
        tutti_comm_destroy(comm); /* it has no part in what follows */
    } else {
        err = tutti_partial_join(NULL, (int)worker, &opts, &p);
    }
    if (err) {
        fprintf(stderr, "partial: %s\n", tutti_last_message());
        return 1;
    }
    int status = work(p, (uint64_t)n_steps);
    tutti_partial_close(p);
    return status;
}
