/* SPDX-License-Identifier: BSD-3-Clause
 * schedules.c - the functions of tutti_plan.h that are about
 * schedules alone: read, prove, write; and the rows of tables. Thin: checks
 * what comes from outside, uses the standard allocator, keeps the failure's
 * sentence for tutti_last_message(). networks.c has those that need a
 * topology. */
#include "export/export.h"
#include "plan/plan.h"
#include "verify/verify.h"

bool tutti_planner_at(size_t index, tutti_planner_info *out)
{
    for (size_t i = 0; i <= index; i++) {
        if (!tt_planners[i])
            return false;
    }
    out->name = tt_planners[index]->name;
    out->blurb = tt_planners[index]->blurb;
    out->fits = tt_planners[index]->fits;
    out->auto_ranks = tt_planners[index]->auto_ranks;
    return true;
}

/* ------------------------------------------------------------ schedules -- */

void tutti_schedule_free(tutti_schedule *sched)
{
    tt_sched_free(sched);
}

void tutti_schedule_describe(const tutti_schedule *sched,
                             tutti_schedule_info *out)
{
    *out = (tutti_schedule_info){
        .collective = sched->collective,
        .n_ranks = sched->n_ranks,
        .root = sched->root,
        .n_blocks = sched->n_blocks,
        .n_parts = sched->n_parts,
        .n_chunks = sched->n_chunks,
        .n_transfers = sched->n_transfers,
        .n_steps = sched->n_steps,
        .id = sched->id,
    };
}

tutti_err tutti_schedule_read(const char *text, size_t len,
                              tutti_schedule **out, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_err err = tt_sched_parse(&tt_mem_std, text, len, out, &found);
    return tt_report(err, &found, diag);
}

tutti_err tutti_verify(const tutti_schedule *sched, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    return tt_report(tt_verify(sched, &tt_mem_std, &found), &found, diag);
}

tutti_err tutti_export(const tutti_schedule *sched, const char *format,
                       char **text, size_t *len, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_err err = tt_export(sched, format, &tt_mem_std, text, len, &found);
    return tt_report(err, &found, diag);
}

void tutti_text_free(char *text)
{
    /* The standard allocator does not need the size. */
    tt_free(&tt_mem_std, text, 1, 1);
}
