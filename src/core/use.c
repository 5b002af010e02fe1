/* SPDX-License-Identifier: BSD-3-Clause
 * use.c - tutti_plan_use(): calls are performed by a schedule that the program
 * hands in. Next: written.c (where it is kept), plans.c. */
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
