/* SPDX-License-Identifier: BSD-3-Clause
 * use.c - what tutti_plan.h shows of a communicator: its network, its plans;
 * and calls are performed by a schedule that the program hands in. Next:
 * plans.c, offline/written.c (where it is kept). */
#include "base/child.h"
#include "core/core.h"
#include "verify/verify.h"

static tutti_err check_use(const tutti_comm *comm, tutti_coll coll,
                           const tutti_schedule *s, tutti_diag *diag)
{
    if (s->collective != coll)
        return tt_fail(diag, TUTTI_EINVAL,
                       "a schedule of %s cannot be used for calls of %s",
                       tutti_coll_name(s->collective), tutti_coll_name(coll));
    if (s->n_ranks != comm->n_ranks)
        return tt_fail(diag, TUTTI_EINVAL,
                       "a schedule of %u ranks cannot be used by a "
                       "communicator of %u",
                       s->n_ranks, comm->n_ranks);
    return tt_verify(s, &comm->mem, diag);
}

static tutti_err use(tutti_comm *comm, tutti_coll coll, const tutti_schedule *s,
                     tutti_diag *diag)
{
    tutti_schedule *own = NULL;
    tutti_err err = s ? check_use(comm, coll, s, diag) : TUTTI_OK;
    if (err)
        return err;
    if (s && tt_sched_copy(s, &comm->mem, &own))
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for a schedule");
    tt_engine_lock(comm->engine);
    err = tt_written_use(&comm->written, coll, own);
    if (!err)
        tt_comm_forget_plans(comm);
    tt_engine_unlock(comm->engine);
    return err ? tt_fail(diag, err, "no memory for a schedule") : TUTTI_OK;
}

tutti_err tutti_plan_use(tutti_comm *comm, tutti_coll coll,
                         const tutti_schedule *sched, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_err err = tt_comm_enter(comm);
    if (err)
        return tt_report(tt_fail(&found, err, "%s", tutti_strerror(err)),
                         &found, diag);
    err = use(comm, coll, sched, &found);
    tt_comm_leave(comm);
    return tt_report(err, &found, diag);
}

const tutti_topology *tutti_comm_topology(const tutti_comm *comm)
{
    if (tt_process_is_child())
        return comm->topology;
    tt_engine_lock(comm->engine); /* a call of another thread may change it */
    const tutti_topology *t = comm->topology;
    tt_engine_unlock(comm->engine);
    return t;
}

tutti_err tutti_comm_plan(const tutti_comm *comm, const tutti_plan_opts *opts,
                          tutti_schedule **out, const char **chosen,
                          tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_plan_opts o;
    tt_problem p;
    tutti_err err = tt_process_enter(&found);
    if (!err)
        err = tt_read_opts(opts, &o, sizeof(o), &found);
    const tt_progress progress = {o.progress, o.progress_ctx};
    if (!err && o.collective == TUTTI_BARRIER) {
        o.collective = TUTTI_ALL_REDUCE;
        o.size_bytes = 1;
    }
    if (!err)
        err = tt_problem_read(&o, comm->n_ranks, &p, &found);
    if (!err) {
        p.progress = &progress;
        err = tt_comm_schedule(comm, &p, o.planner, out, chosen, &found);
    }
    return tt_report(err, &found, diag);
}
