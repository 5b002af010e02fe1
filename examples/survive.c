/* SPDX-License-Identifier: BSD-3-Clause
 * survive.c - ranks that go on when one of them is killed: call; when the
 * communicator has failed, shrink; continue.
 *
 *   tutti run -n 4 --keep-going build/examples/survive
 *   tutti run -n 4 --keep-going build/examples/survive --kill 1 40
 *
 * Every rank pulls a vector towards its own number, and all average it, 100
 * times. With --kill a rank kills itself at that step (or kill one by hand).
 * The step that fails is done again by those that are left.
 * docs/explanation/failures.md explains. */
#include <tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 100000, STEPS = 100 };

static float model[COUNT], mean[COUNT];

/* In place of comm: its ranks that are left. */
static tutti_err go_on(tutti_comm **comm, int step)
{
    tutti_comm *smaller;
    fprintf(stderr, "step %d: %s\n", step, tutti_comm_message(*comm));
    tutti_err err = tutti_comm_shrink(*comm, NULL, &smaller);
    if (err) /* too few are left, or they go on without this one */
        return err;
    tutti_comm_destroy(*comm);
    *comm = smaller;
    return TUTTI_OK;
}

/* Not all need have failed in the same step: one may have its result already
 * when another one is lost. All go on from the last that somebody has. */
static tutti_err catch_up(tutti_comm *comm, int *step)
{
    int32_t own = *step, last, root;
    tutti_err err = tutti_all_reduce(comm, &own, &last, 1, TUTTI_I32, TUTTI_MAX,
                                     NULL, NULL);
    root = own == last ? tutti_comm_rank(comm) : -1;
    if (!err)
        err = tutti_all_reduce(comm, &root, &root, 1, TUTTI_I32, TUTTI_MAX,
                               NULL, NULL);
    if (!err)
        err = tutti_broadcast(comm, mean, mean, COUNT, TUTTI_F32, root, NULL,
                              NULL);
    if (!err)
        *step = last;
    return err;
}

static tutti_err take_step(tutti_comm *comm, float own)
{
    for (int i = 0; i < COUNT; i++)
        model[i] = mean[i] + 0.1F * (own - mean[i]);
    tutti_err err = tutti_all_reduce(comm, model, model, COUNT, TUTTI_F32,
                                     TUTTI_AVG, NULL, NULL);
    if (!err)
        memcpy(mean, model, sizeof(mean));
    return err;
}

static tutti_err work(tutti_comm **comm, int victim, int victim_step)
{
    const int own = tutti_comm_rank(*comm);
    tutti_err err = TUTTI_OK;
    for (int step = 0; step < STEPS && !err;) {
        if (step == victim_step && own == victim)
            raise(SIGKILL);
        err = take_step(*comm, (float)own);
        step += !err;
        while (err && tutti_comm_failure(*comm)) {
            if (go_on(comm, step))
                return err;
            err = catch_up(*comm, &step);
        }
    }
    return err;
}

int main(int argc, char **argv)
{
    int victim = -1, victim_step = -1;
    tutti_comm *comm;
    if (argc == 4 && strcmp(argv[1], "--kill") == 0) {
        victim = atoi(argv[2]);
        victim_step = atoi(argv[3]);
    } else if (argc > 1) {
        fprintf(stderr, "usage: survive [--kill RANK STEP]\n");
        return 2;
    }
    if (tutti_comm_create(NULL, &comm)) {
        fprintf(stderr, "survive: %s\n", tutti_last_message());
        return 1;
    }
    tutti_err err = work(&comm, victim, victim_step);
    if (err)
        fprintf(stderr, "survive: %s\n", tutti_comm_message(comm));
    else
        printf("rank %d of %d: mean %.6f\n", tutti_comm_rank(comm),
               tutti_comm_size(comm), (double)mean[0]);
    tutti_comm_destroy(comm);
    return err ? 1 : 0;
}
