/* SPDX-License-Identifier: BSD-3-Clause
 * unstable.c - the functions of tutti.h behind TUTTI_UNSTABLE that need no
 * communicator: plan, predict, prove, read, write. Thin: checks what comes
 * from outside, uses the standard allocator, keeps the failure's sentence for
 * tutti_last_message(). */
#include "export/export.h"
#include "plan/plan.h"
#include "verify/verify.h"

#include <stdio.h>
#include <string.h>

/* The nominal network that full:N stands for as long as a specification has
 * no bandwidths: 20 us and 1 GB/s between any two, 10 GB/s reduced. */
static const double nominal_alpha_s = 20e-6;
static const double nominal_beta_s_per_byte = 1e-9;
static const double nominal_gamma_s_per_byte = 0.1e-9;

/* Keeps the sentence of a failure for tutti_last_message(), with its place in
 * a text if it has one, and hands the diagnosis to the caller. */
static tutti_err report(tutti_err err, const tutti_diag *found,
                        tutti_diag *diag)
{
    if (diag)
        *diag = *found;
    if (!err)
        return err;
    char text[sizeof(found->text) + 40] = "";
    if (found->line)
        snprintf(text, sizeof(text), "line %u, column %u: ", found->line,
                 found->column);
    size_t used = strlen(text);
    snprintf(text + used, sizeof(text) - used, "%s", found->text);
    tt_last_message_set(text);
    return err;
}

/* ----------------------------------------------------------------- plan -- */

static tutti_err bad_spec(const char *spec, tutti_diag *diag)
{
    return tt_fail(diag, TUTTI_EINVAL,
                   "\"%.80s\" is not a network: write full:N for N equal "
                   "ranks, N from 1 to %u",
                   spec, TT_MAX_RANKS);
}

static tutti_err read_spec(const char *spec, uint32_t *n_ranks,
                           tutti_diag *diag)
{
    static const char prefix[] = "full:";
    if (!spec)
        return bad_spec("", diag);
    if (strncmp(spec, prefix, strlen(prefix)) != 0)
        return bad_spec(spec, diag);
    const char *digits = spec + strlen(prefix);
    uint32_t n = 0;
    for (const char *at = digits; *at; at++) {
        if (*at < '0' || *at > '9')
            return bad_spec(spec, diag);
        n = n * 10 + (uint32_t)(*at - '0');
        if (n > TT_MAX_RANKS)
            return bad_spec(spec, diag);
    }
    if (n == 0)
        return bad_spec(spec, diag);
    *n_ranks = n;
    return TUTTI_OK;
}

/* Options of an older program are shorter; what they lack is zero. */
static tutti_err read_opts(const tutti_plan_opts *opts, tutti_plan_opts *out,
                           tutti_diag *diag)
{
    *out = (tutti_plan_opts)TUTTI_PLAN_OPTS_INIT;
    if (!opts)
        return TUTTI_OK;
    if (opts->size < sizeof(opts->size))
        return tt_fail(diag, TUTTI_EINVAL,
                       "the options have no size: begin with "
                       "TUTTI_PLAN_OPTS_INIT");
    memset(out, 0, sizeof(*out));
    memcpy(out, opts, opts->size < sizeof(*out) ? opts->size : sizeof(*out));
    return TUTTI_OK;
}

/* The problem, and the planner chosen for it. */
static tutti_err choose(const char *spec, const tutti_plan_opts *opts,
                        tt_problem *p, const tt_planner **planner,
                        tutti_diag *diag)
{
    tutti_plan_opts o;
    *p = (tt_problem){
        .root = TT_NONE,
        .alpha_s = nominal_alpha_s,
        .beta_s_per_byte = nominal_beta_s_per_byte,
        .gamma_s_per_byte = nominal_gamma_s_per_byte,
    };
    tutti_err err = read_opts(opts, &o, diag);
    if (!err)
        err = read_spec(spec, &p->n_ranks, diag);
    if (err)
        return err;
    p->collective = o.collective;
    p->size_bytes = o.size_bytes;
    if (!tt_coll_has_schedule(o.collective))
        return tt_fail(diag, TUTTI_EINVAL, "a %s has no schedule of its own",
                       tutti_coll_name(o.collective));
    if (tt_coll_has_root(o.collective)) {
        if (o.root < 0 || (uint32_t)o.root >= p->n_ranks)
            return tt_fail(diag, TUTTI_EINVAL,
                           "root %d is not a rank: %s has ranks 0 to %u",
                           o.root, spec, p->n_ranks - 1);
        p->root = (uint32_t)o.root;
    }
    return tt_plan_choose(o.planner, p, planner, diag);
}

tutti_err tutti_plan(const char *spec, const tutti_plan_opts *opts,
                     tutti_schedule **out, const char **chosen,
                     tutti_diag *diag)
{
    tutti_diag found;
    tt_diag_clear(&found);
    tt_problem p;
    const tt_planner *planner = NULL;
    tutti_err err = choose(spec, opts, &p, &planner, &found);
    if (!err)
        err = tt_plan_build(planner, &p, &tt_mem_std, out, &found);
    if (!err && chosen)
        *chosen = planner->name;
    return report(err, &found, diag);
}

tutti_err tutti_predict(const char *spec, const tutti_plan_opts *o,
                        double *seconds, tutti_diag *diag)
{
    tutti_diag found;
    tt_diag_clear(&found);
    tt_problem p;
    const tt_planner *planner = NULL;
    tutti_err err = choose(spec, o, &p, &planner, &found);
    if (!err)
        *seconds = planner->guess(&p);
    return report(err, &found, diag);
}

bool tutti_planner_at(size_t index, tutti_planner_info *out)
{
    for (size_t i = 0; i <= index; i++) {
        if (!tt_planners[i])
            return false;
    }
    out->name = tt_planners[index]->name;
    out->blurb = tt_planners[index]->blurb;
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
    tutti_diag found;
    tt_diag_clear(&found);
    tutti_err err = tt_sched_parse(&tt_mem_std, text, len, out, &found);
    return report(err, &found, diag);
}

tutti_err tutti_verify(const tutti_schedule *sched, tutti_diag *diag)
{
    tutti_diag found;
    tt_diag_clear(&found);
    return report(tt_verify(sched, &tt_mem_std, &found), &found, diag);
}

tutti_err tutti_export(const tutti_schedule *sched, const char *format,
                       char **text, size_t *len, tutti_diag *diag)
{
    tutti_diag found;
    tt_diag_clear(&found);
    tutti_err err = tt_export(sched, format, &tt_mem_std, text, len, &found);
    return report(err, &found, diag);
}

void tutti_text_free(char *text)
{
    /* The standard allocator does not need the size. */
    tt_free(&tt_mem_std, text, 1, 1);
}
