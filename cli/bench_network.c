/* SPDX-License-Identifier: BSD-3-Clause
 * bench_network.c - what a known network (--topology) promises: the time that
 * was predicted before the call, and the least possible one.
 *
 * Both are for TCP's payload: of each full packet on a link between hosts 1448
 * of 1514 bytes are data, and no schedule can change that. The ranks plan for
 * the network as it was given. Rank 0 computes, the others wait for it.
 * Next       bench_print.c. */
#include "bench.h"

#include <stdlib.h>

int bench_network_set(const bench *b)
{
    const char *spec = b->network.spec;
    if (!spec)
        return CLI_OK;
    if (!spec[0]) { /* as a variable it would count as none */
        tutti_topology_free(cli_open_network(b->self, spec));
        return CLI_FAILED;
    }
    if (setenv("TUTTI_TOPOLOGY", spec, 1))
        return cli_fail(b->self, "out of memory");
    return CLI_OK;
}

bool bench_network_open(bench *b)
{
    bench_network *n = &b->network;
    const tutti_topology *net = tutti_comm_topology(b->comm);
    if (!n->spec || !net || !bench_prints(b))
        return true;
    tutti_diag diag = {0};
    tutti_err err = tutti_topology_payload(net, &n->payload, &diag);
    if (err) {
        cli_fail_err(b->self, "cannot use this network", err, diag.text);
        return false;
    }
    cli_progress progress;
    cli_progress_begin(&progress);
    bool ok = cli_find_bound(b->self, n->payload, &progress, &n->optimum);
    cli_progress_end(&progress);
    return ok;
}

void bench_network_close(bench *b)
{
    tutti_topology_free(b->network.payload);
    b->network.payload = NULL;
}

bench_promise bench_network_promise(const bench *b, const bench_shape *s)
{
    const bench_network *n = &b->network;
    const ref_call *c = &b->call;
    bench_promise promise = {0, 0, NULL};
    if (!n->payload)
        return promise;
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    opts.collective = c->coll;
    opts.root = c->root;
    opts.size_bytes = c->coll == TUTTI_BARRIER ? 1 : s->size_bytes;
    opts.planner = b->planner;
    opts.burst_bytes = n->burst;
    promise.optimum_s = tutti_bound_s(n->payload, &n->optimum, c->coll, c->root,
                                      opts.size_bytes);
    tutti_schedule *sched = NULL;
    /* A planner that does not fit fails the call itself, with a sentence. */
    if (tutti_comm_plan(b->comm, &opts, &sched, &promise.planner, NULL))
        return promise;
    double seconds;
    if (!tutti_predict(n->payload, sched, &opts, &seconds, NULL))
        promise.predicted_s = seconds;
    tutti_schedule_free(sched);
    return promise;
}
