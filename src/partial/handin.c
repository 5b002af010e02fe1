/* SPDX-License-Identifier: BSD-3-Clause
 * handin.c - from a buffer that a worker hands in to a call of its group.
 *
 *   buffer --copy--> job --plan, prove, bind--> program --> a call of the
 *   engine
 *
 * Copy       A member contributes its buffer times its weight, in a copy of it
 *            that is averaged in place; where all weights are equal the sum is
 *            divided once, by the rank that completes it.
 * Early      A buffer may come before the group is known: then it waits, and is
 *            begun by the worker's own thread in the turn that brings the
 *            group, so nobody else has to wake up in between. A program that
 *            hands in everything right after its announcement waits once.
 * Who plans  The caller, without the lock; what is early, a thread of its own:
 *            the worker's has to beat meanwhile. Plans are kept, so this
 *            happens once for each size of group, or for each set of members
 *            where the network is known. Whatever is handed in while it plans
 *            waits for its turn.
 * Next       engine/engine.h performs the call, crew.c ends the group. */
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "partial/session.h"
#include "verify/verify.h"

/* ----------------------------------------------------------------- plans -- */

/* What a plan is made for. */
typedef struct errand {
    tt_worker_shape shape;
    uint64_t key, count;
    uint32_t me, elem_bytes, max_payload;
} errand;

/* A part of the schedule bound to this shape. */
static tutti_err make_bound(tt_worker *w, const errand *e, tt_bound **out,
                            tutti_diag *diag)
{
    tt_worker_plan plan = {0};
    tt_part *part = NULL;
    tutti_err err = w->o.plan(w->o.plan_ctx, &e->shape, &plan, diag);
    if (!err)
        err = tt_verify(plan.schedule, &w->mem, diag);
    if (!err)
        err = tt_part_extract(plan.schedule, e->me, NULL, &w->mem, &part);
    if (!err) {
        uint64_t window = w->settings.window;
        tt_shape what = {.coll = TUTTI_ALL_REDUCE,
                         .rank = e->me,
                         .n_ranks = e->shape.n,
                         .root = TT_NONE,
                         .elem_bytes = e->elem_bytes,
                         .count = e->count};
        tt_layout lay = {.in_place = true,
                         .front_bytes = plan.front_bytes,
                         .front_window_bytes = plan.front_window_bytes,
                         .staging_max_bytes = w->settings.staging_max_bytes,
                         .window = window ? (uint32_t)window : TT_USUAL_WINDOW,
                         .max_payload = e->max_payload};
        tt_shape_layout(&what, &lay);
        err = tt_bound_create(part, &lay, &w->mem, out);
    }
    tt_part_free(part);
    tt_sched_free(plan.schedule);
    return err;
}

static tutti_err make_program(tt_worker *w, const errand *e, tt_program **out,
                              tutti_diag *diag)
{
    tt_bound *bound = NULL;
    tutti_err err = make_bound(w, e, &bound, diag);
    if (!err)
        err = tt_program_create(bound, &w->mem, out);
    if (err)
        tt_bound_free(bound);
    return err == TUTTI_ENOMEM ? tt_fail(diag, err, "out of memory") : err;
}

/* The members are the crew's: they go with the group. */
static errand errand_of(const tt_worker *w, const tt_job *job)
{
    const tt_crew *c = &w->crew;
    const uint32_t elem_bytes = (uint32_t)tutti_type_bytes(job->what.type);
    errand e = {.shape = {.workers = c->workers,
                          .n = c->n,
                          .n_cpus = c->n_cpus,
                          .is_inside = c->is_inside,
                          .bytes = (job->what.count ? job->what.count : 1) *
                                   elem_bytes},
                .count = job->what.count,
                .me = c->me,
                .elem_bytes = elem_bytes,
                .max_payload = c->max_payload};
    e.key = tt_fnv1a_u64(TT_FNV1A_START, c->n);
    e.key = tt_fnv1a_u64(e.key, c->me);
    e.key = tt_fnv1a_u64(e.key, c->is_inside);
    e.key = tt_fnv1a_u64(e.key, c->n_cpus);
    e.key = tt_fnv1a_u64(e.key, c->max_payload);
    e.key = tt_fnv1a_u64(e.key, e.count);
    e.key = tt_fnv1a_u64(e.key, elem_bytes);
    if (w->o.plans_by_member)
        e.key = tt_fnv1a(e.key, c->workers, c->n * sizeof(uint32_t));
    return e;
}

/* [locked] NULL: not there. It may go when the lock does. */
static tt_program *find_program(tt_worker *w, uint64_t key)
{
    for (int i = 0; i < TT_PROGRAMS_KEPT; i++) {
        tt_program_entry *e = &w->programs[i];
        if (!e->program || e->key != key)
            continue;
        e->used = ++w->n_lookups;
        return e->program;
    }
    return NULL;
}

/* [locked] */
static void keep_program(tt_worker *w, uint64_t key, tt_program *program)
{
    tt_program_entry *oldest = &w->programs[0];
    for (int i = 1; i < TT_PROGRAMS_KEPT; i++)
        if (w->programs[i].used < oldest->used)
            oldest = &w->programs[i];
    tt_engine_lock(w->o.engine);
    tt_program_unref(oldest->program);
    tt_engine_unlock(w->o.engine);
    *oldest = (tt_program_entry){program, key, ++w->n_lookups};
}

void tt_programs_free(tt_worker *w)
{
    tt_engine_lock(w->o.engine);
    for (int i = 0; i < TT_PROGRAMS_KEPT; i++)
        tt_program_unref(w->programs[i].program);
    tt_engine_unlock(w->o.engine);
}

/* [locked] Without the lock while it plans, if unlocks: the group may be over
 * then. */
static tutti_err find_or_plan(tt_worker *w, const tt_job *job, bool unlocks,
                              tt_program **out, tutti_diag *diag)
{
    errand e = errand_of(w, job);
    *out = find_program(w, e.key);
    if (*out)
        return TUTTI_OK;
    const size_t n = e.shape.n;
    uint32_t *workers = tt_new(&w->mem, n, sizeof(*workers));
    if (!workers)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    memcpy(workers, e.shape.workers, n * sizeof(*workers));
    e.shape.workers = workers;
    if (unlocks)
        pthread_mutex_unlock(&w->lock);
    tutti_err err = make_program(w, &e, out, diag);
    if (unlocks)
        pthread_mutex_lock(&w->lock);
    if (!err)
        keep_program(w, e.key, *out);
    tt_free(&w->mem, workers, n, sizeof(*workers));
    return err;
}

/* ------------------------------------------------------------------ jobs -- */

static tutti_err check(tt_worker *w, const tt_worker_buffer *what)
{
    if (w->err)
        return w->err;
    if (w->phase == TT_PHASE_GROUP && w->crew.err)
        return w->crew.err;
    if (w->phase == TT_PHASE_COMMIT || w->early.is_there)
        return tt_worker_refuse(w, TUTTI_EINVAL,
                                "the group is being committed");
    if (w->phase == TT_PHASE_IDLE)
        return tt_worker_refuse(
            w, TUTTI_EINVAL, "there is no group to reduce in: announce first");
    if (!tt_scale_kernel(what->type))
        return tt_worker_refuse(
            w, TUTTI_EINVAL,
            "partial reduce averages f16, bf16, f32 and f64 only");
    if (!what->buf && what->count > 0)
        return tt_worker_refuse(w, TUTTI_EINVAL, "the buffer is NULL");
    if (what->count > SIZE_MAX / 16)
        return tt_worker_refuse(w, TUTTI_EINVAL, "the buffer is too large");
    return TUTTI_OK;
}

void tt_job_free(tt_job *job)
{
    tt_worker *w = job->w;
    tt_copy_drop(&w->spares, &job->copy);
    tt_free(&w->mem, job, 1, sizeof(*job));
}

void tt_job_end(tt_job *job, tutti_err err)
{
    tt_worker_done done = job->done;
    job->done = NULL;
    tt_worker_end(job->w, done, job->arg, err);
}

/* [not locked] With a copy of the buffer where that is needed. */
static tt_job *make_job(tt_worker *w, const tt_worker_buffer *what,
                        tt_worker_done done, void *arg)
{
    tt_job *job = tt_new(&w->mem, 1, sizeof(*job));
    if (!job)
        return NULL;
    *job = (tt_job){.w = w, .what = *what, .done = done, .arg = arg};
    if (what->is_scratch) {
        job->copy = (tt_copy){.at = what->buf};
        return job;
    }
    if (tt_copy_make(&w->spares, what->buf,
                     what->count * tutti_type_bytes(what->type), &job->copy)) {
        tt_free(&w->mem, job, 1, sizeof(*job));
        return NULL;
    }
    return job;
}

/* ----------------------------------------------------------------- begin -- */

/* The engine's callback, under its lock. */
static void on_over(void *arg, tutti_err err)
{
    tt_job *job = arg;
    tt_worker *w = job->w;
    job->err = err;
    atomic_store_explicit(&job->is_over, true, memory_order_release);
    if (!err && w->is_beginning)
        return;
    if (err || pthread_mutex_trylock(&w->lock) != 0) {
        tt_worker_wake(w);
        return;
    }
    w->is_inside = true;
    tt_crew_advance(w);
    w->is_inside = false;
    pthread_mutex_unlock(&w->lock);
}

/* The member's contribution. */
static void weigh(const tt_crew *c, tt_job *job)
{
    const tt_worker_buffer *what = &job->what;
    const double weight = c->members[c->me].weight;
    if (what->count == 0 || c->is_even)
        return;
    if (weight > 0)
        tt_scale_kernel(what->type)(job->copy.at, job->copy.at, what->count,
                                    weight);
    else
        memset(job->copy.at, 0, what->count * tutti_type_bytes(what->type));
}

/* Of what all members must agree on beyond the call's own fields. */
static uint64_t shape_hash(const tt_bound *bound)
{
    uint64_t hash = tt_fnv1a_u64(TT_FNV1A_START, bound->window);
    return tt_fnv1a_u64(hash, bound->elem_bytes);
}

/* [locked] */
static tutti_err call(tt_worker *w, tt_job *job, tt_program *program)
{
    const tt_crew *c = &w->crew;
    const tt_bound *bound = tt_program_bound(program);
    const tt_op_start start = {
        .program = program,
        .call = {.coll = TUTTI_ALL_REDUCE,
                 .type = (uint8_t)job->what.type,
                 .op = c->is_even ? TUTTI_AVG : TUTTI_SUM,
                 .root = TT_NONE,
                 .count = job->what.count,
                 .schedule_id = bound->schedule_id,
                 .shape = shape_hash(bound)},
        .in = job->copy.at,
        .out = job->copy.at,
        .in_elems = job->what.count,
        .deadline_ns = UINT64_MAX, /* the crew has one */
        .done = on_over,
        .arg = job,
    };
    weigh(c, job);
    tt_engine_lock(w->o.engine);
    w->is_beginning = true;
    tutti_err err = tt_op_begin(c->team, &start);
    w->is_beginning = false;
    if (!err)
        tt_engine_kick(w->o.engine, job->what.waits);
    tt_engine_unlock(w->o.engine);
    return err;
}

/* [locked] The group may be over by now. */
static tutti_err check_group(tt_worker *w, uint64_t group)
{
    if (w->err)
        return w->err;
    if (w->crew.id != group || w->phase != TT_PHASE_GROUP)
        return tt_worker_refuse(w, TUTTI_EINVAL,
                                "the group has ended meanwhile");
    return w->crew.err;
}

/* [locked] The group is there, and well. The job is the crew's then, or else
 * the caller's, and its outcome is not told. */
static tutti_err begin(tt_worker *w, tt_job *job, bool unlocks)
{
    tt_crew *c = &w->crew;
    const uint64_t group = c->id;
    tt_program *program = NULL;
    tutti_diag diag = TT_DIAG_NONE;
    tutti_err err = c->team ? find_or_plan(w, job, unlocks, &program, &diag)
                            : TUTTI_OK;
    tutti_err over = check_group(w, group);
    if (over)
        return over;
    if (!err && c->team)
        err = call(w, job, program);
    else if (!err)
        job->is_over = true; /* it is its own average */
    if (err)
        tt_crew_fail(w);
    if (err && !c->err)
        tt_crew_break(w, err, true, "worker %u cannot begin a buffer: %s",
                      w->id, diag.text[0] ? diag.text : tutti_strerror(err));
    if (err)
        return c->err;
    job->bucket = c->n_jobs++;
    c->waits = tt_patience_begin(w->settings.patience_ns, tt_now_ns());
    *c->jobs_end = job;
    c->jobs_end = &job->next;
    tt_crew_advance(w);
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- early -- */

bool tt_handin_waits(const tt_worker *w)
{
    return w->phase == TT_PHASE_ANNOUNCED ||
           (w->phase == TT_PHASE_GROUP && w->is_planning);
}

/* [locked] Begins the first that waits, or tells it why not. */
static void begin_first(tt_worker *w, bool unlocks)
{
    tt_job *job = w->drafts;
    w->drafts = job->next;
    job->next = NULL;
    if (!w->drafts)
        w->drafts_end = &w->drafts;
    tutti_err err = w->phase == TT_PHASE_GROUP ? w->crew.err : TUTTI_EABORTED;
    if (!err)
        err = begin(w, job, unlocks);
    if (!err)
        return;
    tt_job_end(job, err);
    tt_job_free(job);
}

/* [locked] */
static bool is_planned(tt_worker *w, const tt_job *job)
{
    const tt_crew *c = &w->crew;
    return c->err || !c->team || find_program(w, errand_of(w, job).key);
}

static void *plan_main(void *arg)
{
    tt_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (w->drafts)
        begin_first(w, true);
    w->is_planning = false;
    tt_worker_commit_early(w);
    tt_worker_wake(w);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void tt_handin_begin(tt_worker *w)
{
    if (w->lacks_draft)
        tt_crew_break(w, TUTTI_ENOMEM, true,
                      "worker %u has no memory for a buffer", w->id);
    w->lacks_draft = false;
    while (w->drafts && is_planned(w, w->drafts))
        begin_first(w, false);
    if (w->drafts && tt_thread_start(&w->planner, plan_main, w) == 0) {
        w->has_planner = w->is_planning = true;
        return;
    }
    while (w->drafts)
        begin_first(w, false);
    tt_worker_commit_early(w);
}

void tt_handin_drop(tt_worker *w, tutti_err err)
{
    w->lacks_draft = false;
    while (w->drafts) {
        tt_job *job = w->drafts;
        w->drafts = job->next;
        tt_job_end(job, err);
        tt_job_free(job);
    }
    w->drafts_end = &w->drafts;
}

void tt_handin_join(tt_worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool has_planner = w->has_planner;
    w->has_planner = false;
    pthread_mutex_unlock(&w->lock);
    if (has_planner)
        pthread_join(w->planner, NULL);
}

/* ----------------------------------------------------------------- calls -- */

/* [locked] No copy of a buffer: its group cannot succeed. */
static tutti_err lack(tt_worker *w)
{
    if (w->phase == TT_PHASE_ANNOUNCED)
        w->lacks_draft = true;
    tt_crew_break(w, TUTTI_ENOMEM, true, "worker %u has no memory for a buffer",
                  w->id);
    return tt_worker_refuse(w, TUTTI_ENOMEM, "out of memory for a buffer");
}

tutti_err tt_worker_reduce(tt_worker *w, const tt_worker_buffer *what,
                           tt_worker_done done, void *arg)
{
    pthread_mutex_lock(&w->lock);
    tutti_err err = check(w, what);
    pthread_mutex_unlock(&w->lock);
    if (err)
        return err;
    tt_job *job = make_job(w, what, done, arg);
    pthread_mutex_lock(&w->lock);
    err = job ? check(w, what) : lack(w);
    if (!err && tt_handin_waits(w)) {
        *w->drafts_end = job;
        w->drafts_end = &job->next;
    } else if (!err) {
        err = begin(w, job, true);
    }
    pthread_mutex_unlock(&w->lock);
    if (err && job)
        tt_job_free(job);
    return err;
}
