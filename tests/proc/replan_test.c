/* SPDX-License-Identifier: BSD-3-Clause
 * replan_test.c - links have other rates in the middle of a job: all ranks plan
 * for that, calls that are open go on, and results stay right. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "core/drift.h"
#include "support/cases.h"

enum { COUNT = 1 << 18 };

static int check(const int32_t *x, int rank, int n)
{
    for (int i = 0; i < COUNT; i++)
        if (x[i] != n * (n + 1) / 2 + n * i)
            return tt_procs_complain(rank, "element %d is %d", i, x[i]);
    return 0;
}

static void fill(int32_t *x, int rank)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = rank + 1 + i;
}

/* Link of host 1 to a quarter, both ways. */
static tutti_err make_slower(tutti_comm *comm, tt_old_network **pasts)
{
    const tutti_topology *t = comm->topology;
    uint64_t bps[64];
    for (uint32_t i = 0; i < t->n_links && i < 64; i++) {
        bool is_its = t->links[i].from == t->rank_node[1] ||
                      t->links[i].to == t->rank_node[1];
        bps[i] = t->links[i].rate_bps / (is_its ? 4 : 1);
    }
    return tt_replan(comm, bps, pasts);
}

static int calls_go_on(tutti_comm *comm, int rank, int n)
{
    static int32_t before[COUNT], open[COUNT], after[COUNT];
    tt_old_network *pasts = NULL;
    tutti_request *req = NULL;
    uint64_t old = comm->topology->id;
    fill(before, rank);
    fill(open, rank);
    fill(after, rank);
    tutti_err err = tutti_all_reduce(comm, before, before, COUNT, TUTTI_I32,
                                     TUTTI_SUM, NULL, NULL);
    if (!err)
        err = tutti_all_reduce(comm, open, open, COUNT, TUTTI_I32, TUTTI_SUM,
                               NULL, &req);
    if (!err)
        err = make_slower(comm, &pasts);
    bool is_other = comm->topology->id != old;
    if (!err)
        err = tutti_all_reduce(comm, after, after, COUNT, TUTTI_I32, TUTTI_SUM,
                               NULL, NULL);
    if (!err)
        err = tutti_wait(req);
    bool is_kept = pasts && pasts->topology->id == old;
    tt_old_networks_free(&comm->mem, pasts);
    if (tt_well(comm, err, "calls"))
        return 1;
    if (!is_other || !is_kept)
        return tt_procs_complain(rank, "the network is %s",
                                 is_other ? "not kept" : "the same");
    return check(before, rank, n) || check(open, rank, n) ||
           check(after, rank, n);
}

int main(void)
{
    setenv("TUTTI_TOPOLOGY", "star:3@10Gbit", 1);
    setenv("TUTTI_PROBE_CACHE", "off", 1);
    setenv("TUTTI_LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        TT_CASE_ON("tcp", calls_go_on, 3),
        TT_CASE_ON("shm", calls_go_on, 3),
    };
    return TT_RUN_TAP(tests);
}
