/* SPDX-License-Identifier: BSD-3-Clause
 * cases.c - see cases.h. */
#include "support/tap.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/cases.h"

int tt_expect(tutti_comm *comm, tutti_err got, tutti_err want, const char *what)
{
    if (got == want)
        return 0;
    return tt_procs_complain(comm ? tutti_comm_rank(comm) : -1,
                             "%s: %s instead of %s: %s", what,
                             tutti_errname(got), tutti_errname(want),
                             comm ? tutti_comm_message(comm) : "");
}

int tt_well(tutti_comm *comm, tutti_err got, const char *what)
{
    return tt_expect(comm, got, TUTTI_OK, what);
}

tutti_comm *tt_twin(tutti_comm *world)
{
    tutti_comm *twin = NULL;
    tutti_err err = tutti_comm_split(world, 0, tutti_comm_rank(world), &twin);
    return tt_well(world, err, "split") ? NULL : twin;
}

static int be_rank(int rank, int n, void *arg)
{
    const tt_case *c = arg;
    tutti_comm *world;
    /* What hangs shall say what it waits for. */
    setenv("TUTTI_TIMEOUT", "40s", 1);
    if (tutti_comm_create(NULL, &world))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = c->run(world, rank, n);
    tutti_comm_destroy(world);
    return bad;
}

void tt_case_run(void **state)
{
    static const char *const both[] = {"shm", "tcp"};
    tt_case *c = *state;
    for (int i = 0; i < 2; i++) {
        int status[TT_PROCS_MAX];
        if (c->only && strcmp(c->only, both[i]) != 0)
            continue;
        tt_procs p = {.n = c->n,
                      .timeout_s = 90,
                      .transports = both[i],
                      .run = be_rank,
                      .arg = c};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, p.n), 0);
    }
}
