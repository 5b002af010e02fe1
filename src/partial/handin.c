/* SPDX-License-Identifier: BSD-3-Clause
 * handin.c - from a buffer that a worker hands in to a job of its group.
 *
 *   buffer --copy--> draft --plan, prove, bind--> job --> ties.c
 *
 * Early      A draft may come before the group is known: then it waits, and is
 *            begun by the worker's own thread in the turn that brings the
 *            group, so nobody else has to wake up in between. A program that
 *            hands in everything right after its announcement waits once.
 * Who plans  The caller, without the lock; what is early, a thread of its own:
 *            the worker's has to beat meanwhile. Plans are kept, so this
 *            happens once for each size of group, or for each set of members
 *            where the network is known. Whatever is handed in while it plans
 *            waits for its turn.
 * Next       job.c performs the job, crew.c ends it. */
#include <string.h>

#include "base/hash.h"
#include "partial/session.h"
#include "verify/verify.h"

static const uint32_t most_payload = 1 << 20;

/* ----------------------------------------------------------------- plans -- */

/* A part of the schedule bound to this shape. */
static tutti_err make_bound(tt_worker *w, const tt_worker_shape *shape,
                            uint32_t me, uint64_t count, uint32_t elem_bytes,
                            tt_bound **out, tutti_diag *diag)
{
    tt_worker_plan plan = {0};
    tt_part *part = NULL;
    tutti_err err = w->o.plan(w->o.plan_ctx, shape, &plan, diag);
    if (!err)
        err = tt_verify(plan.schedule, &w->mem, diag);
    if (!err)
        err = tt_part_extract(plan.schedule, me, &w->mem, &part);
    if (!err) {
        uint64_t window = w->settings.window;
        tt_shape what = {.coll = TUTTI_ALL_REDUCE,
                         .rank = me,
                         .n_ranks = shape->n,
                         .root = TT_NONE,
                         .elem_bytes = elem_bytes,
                         .count = count};
        tt_layout lay = {.in_place = true,
                         .front_bytes = plan.front_bytes,
                         .front_window_bytes = plan.front_window_bytes,
                         .staging_max_bytes = w->settings.staging_max_bytes,
                         .window = window ? (uint32_t)window : TT_USUAL_WINDOW,
                         .max_payload = most_payload};
        tt_shape_layout(&what, &lay);
        err = tt_bound_create(part, &lay, &w->mem, out);
    }
    tt_part_free(part);
    tt_sched_free(plan.schedule);
    return err == TUTTI_ENOMEM ? tt_fail(diag, err, "out of memory") : err;
}

static uint64_t key_of(const tt_worker *w, const tt_worker_shape *shape,
                       uint32_t me, uint64_t count, uint32_t elem_bytes)
{
    uint64_t key = tt_fnv1a_u64(TT_FNV1A_START, shape->n);
    key = tt_fnv1a_u64(key, me);
    key = tt_fnv1a_u64(key, shape->is_inside);
    key = tt_fnv1a_u64(key, shape->n_cpus);
    key = tt_fnv1a_u64(key, count);
    key = tt_fnv1a_u64(key, elem_bytes);
    if (w->o.plans_by_member)
        key = tt_fnv1a(key, shape->workers, shape->n * sizeof(uint32_t));
    return key;
}

/* [locked] With a reference for the caller; NULL: not there. */
static tt_bound *find_bound(tt_worker *w, uint64_t key)
{
    for (int i = 0; i < TT_BOUNDS_KEPT; i++) {
        tt_bound_entry *e = &w->bounds[i];
        if (!e->bound || e->key != key)
            continue;
        e->used = ++w->n_lookups;
        tt_bound_ref(e->bound);
        return e->bound;
    }
    return NULL;
}

/* [locked] */
static void keep_bound(tt_worker *w, uint64_t key, tt_bound *bound)
{
    tt_bound_entry *oldest = &w->bounds[0];
    for (int i = 1; i < TT_BOUNDS_KEPT; i++)
        if (w->bounds[i].used < oldest->used)
            oldest = &w->bounds[i];
    tt_bound_unref(oldest->bound);
    tt_bound_ref(bound);
    *oldest = (tt_bound_entry){bound, key, ++w->n_lookups};
}

/* ---------------------------------------------------------------- drafts -- */

static tutti_err check(tt_worker *w, const tt_draft *d)
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
    if (!tt_scale_kernel(d->what.type))
        return tt_worker_refuse(
            w, TUTTI_EINVAL,
            "partial reduce averages f16, bf16, f32 and f64 only");
    if (!d->what.buf && d->what.count > 0)
        return tt_worker_refuse(w, TUTTI_EINVAL, "the buffer is NULL");
    if (d->what.count > SIZE_MAX / 16)
        return tt_worker_refuse(w, TUTTI_EINVAL, "the buffer is too large");
    return TUTTI_OK;
}

static void free_draft(tt_worker *w, tt_draft *d)
{
    tt_copy_drop(&w->spares, &d->copy);
    tt_free(&w->mem, d, 1, sizeof(*d));
}

/* A copy of it, and of the buffer where that is needed. */
static tt_draft *copy_draft(tt_worker *w, const tt_draft *from)
{
    tt_draft *d = tt_new(&w->mem, 1, sizeof(*d));
    if (!d)
        return NULL;
    *d = *from;
    if (d->what.is_scratch) {
        d->copy = (tt_copy){.at = d->what.buf};
        return d;
    }
    if (tt_copy_make(&w->spares, d->what.buf,
                     d->what.count * tutti_type_bytes(d->what.type),
                     &d->copy)) {
        tt_free(&w->mem, d, 1, sizeof(*d));
        return NULL;
    }
    return d;
}

/* ----------------------------------------------------------------- begin -- */

/* What a plan is made for, in memory of its own: the group may end while it is
 * made. */
typedef struct errand {
    tt_worker_shape shape;
    uint64_t group, key;
    uint32_t me, elem_bytes;
    tt_bound *bound; /* a reference; NULL: alone, or to be made */
} errand;

static tt_worker_shape shape_of(const tt_crew *c, const tt_draft *d)
{
    return (tt_worker_shape){.workers = c->workers,
                             .n = c->n,
                             .n_cpus = c->n_cpus,
                             .is_inside = c->is_inside,
                             .bytes = d->what.count *
                                      tutti_type_bytes(d->what.type)};
}

/* [locked] The group is there, and well. */
static tutti_err prepare(tt_worker *w, const tt_draft *d, errand *e)
{
    const tt_crew *c = &w->crew;
    uint32_t *workers = tt_new(&w->mem, c->n, sizeof(*workers));
    if (!workers)
        return TUTTI_ENOMEM;
    memcpy(workers, c->workers, c->n * sizeof(*workers));
    uint32_t elem = (uint32_t)tutti_type_bytes(d->what.type);
    *e = (errand){.shape = shape_of(c, d),
                  .group = c->id,
                  .me = c->me,
                  .elem_bytes = elem};
    e->shape.workers = workers;
    e->key = key_of(w, &e->shape, e->me, d->what.count, elem);
    if (c->n > 1 && d->what.count > 0)
        e->bound = find_bound(w, e->key);
    return TUTTI_OK;
}

/* [locked] Plans, where that has not been done; without the lock if unlocks. */
static tutti_err plan(tt_worker *w, const tt_draft *d, errand *e, bool unlocks,
                      tutti_diag *diag)
{
    if (e->bound || e->shape.n == 1 || d->what.count == 0)
        return TUTTI_OK;
    if (unlocks)
        pthread_mutex_unlock(&w->lock);
    tutti_err err = make_bound(w, &e->shape, e->me, d->what.count,
                               e->elem_bytes, &e->bound, diag);
    if (unlocks)
        pthread_mutex_lock(&w->lock);
    if (!err)
        keep_bound(w, e->key, e->bound);
    return err;
}

static uint64_t fingerprint(const tt_crew *c, const tt_job *job)
{
    uint64_t hash = tt_fnv1a_u64(TT_FNV1A_START, c->id);
    hash = tt_fnv1a_u64(hash, job->bucket);
    hash = tt_fnv1a_u64(hash, job->o.count);
    hash = tt_fnv1a_u64(hash, (uint64_t)job->o.type);
    hash = tt_fnv1a_u64(hash, job->walk.b ? job->walk.b->window : 0);
    return tt_fnv1a_u64(hash, job->walk.b ? job->walk.b->schedule_id : 0);
}

/* [locked] The group may be over by now. */
static tutti_err check_group(tt_worker *w, const errand *e)
{
    if (w->err)
        return w->err;
    if (w->crew.id != e->group || w->phase != TT_PHASE_GROUP)
        return tt_worker_refuse(w, TUTTI_EINVAL,
                                "the group has ended meanwhile");
    return w->crew.err;
}

/* [locked] The bound part and the copy are the job's then. */
static tutti_err make_job(tt_worker *w, tt_draft *d, errand *e, tt_job **out)
{
    const tt_crew *c = &w->crew;
    const tt_job_opts o = {.bound = e->bound,
                           .buf = d->what.buf,
                           .copy = d->copy,
                           .count = d->what.count,
                           .type = d->what.type,
                           .weight = c->members[c->me].weight,
                           .is_even = c->is_even,
                           .n = c->n};
    tutti_err err = tt_job_create(&o, &w->spares, out);
    if (err)
        return err;
    e->bound = NULL;
    d->copy = (tt_copy){.at = NULL};
    (*out)->done = d->done;
    (*out)->arg = d->arg;
    return TUTTI_OK;
}

/* [locked] */
static void hand_in(tt_worker *w, tt_job *job)
{
    tt_crew *c = &w->crew;
    job->bucket = c->n_jobs++;
    job->fingerprint = fingerprint(c, job);
    *c->jobs_end = job;
    c->jobs_end = &job->next;
    tt_ties_need(w, job);
}

/* [locked] On an error the outcome is not told. */
static tutti_err begin(tt_worker *w, tt_draft *d, bool unlocks)
{
    errand e = {.bound = NULL};
    tutti_diag diag;
    tt_job *job = NULL;
    tt_diag_clear(&diag);
    tutti_err err = prepare(w, d, &e);
    if (!err)
        err = plan(w, d, &e, unlocks, &diag);
    tutti_err over = e.group ? check_group(w, &e) : TUTTI_OK;
    if (!err && !over)
        err = make_job(w, d, &e, &job);
    if (err && !over)
        tt_crew_break(w, err, true, "worker %u cannot begin a buffer: %s",
                      w->id, diag.text[0] ? diag.text : tutti_strerror(err));
    if (job)
        hand_in(w, job);
    tt_bound_unref(e.bound);
    tt_free(&w->mem, (void *)(uintptr_t)e.shape.workers, e.shape.n,
            sizeof(uint32_t));
    return over ? over : err;
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
    tt_draft *d = w->drafts;
    w->drafts = d->next;
    if (!w->drafts)
        w->drafts_end = &w->drafts;
    tutti_err err = w->phase == TT_PHASE_GROUP ? w->crew.err : TUTTI_EABORTED;
    if (!err)
        err = begin(w, d, unlocks);
    if (err && d->done)
        d->done(d->arg, err);
    free_draft(w, d);
}

/* [locked] */
static bool is_planned(tt_worker *w, const tt_draft *d)
{
    const tt_crew *c = &w->crew;
    const tt_worker_shape shape = shape_of(c, d);
    if (c->err || c->n == 1 || d->what.count == 0)
        return true;
    tt_bound *bound =
        find_bound(w, key_of(w, &shape, c->me, d->what.count,
                             (uint32_t)tutti_type_bytes(d->what.type)));
    tt_bound_unref(bound);
    return bound != NULL;
}

static void *plan_main(void *arg)
{
    tt_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (w->drafts) {
        begin_first(w, true);
        tt_worker_wake(w); /* it sends */
    }
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
    if (w->drafts && tt_worker_thread(w, &w->planner, plan_main) == 0) {
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
        tt_draft *d = w->drafts;
        w->drafts = d->next;
        if (d->done)
            d->done(d->arg, err);
        free_draft(w, d);
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

/* ------------------------------------------------------------------ calls -- */

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
    const tt_draft new = {.what = *what, .done = done, .arg = arg};
    pthread_mutex_lock(&w->lock);
    tutti_err err = check(w, &new);
    pthread_mutex_unlock(&w->lock);
    if (err)
        return err;
    tt_draft *d = copy_draft(w, &new);
    pthread_mutex_lock(&w->lock);
    err = d ? check(w, d) : lack(w);
    if (!err && tt_handin_waits(w)) {
        *w->drafts_end = d;
        w->drafts_end = &d->next;
        d = NULL;
    } else if (!err) {
        err = begin(w, d, true);
        tt_worker_wake(w);
    }
    pthread_mutex_unlock(&w->lock);
    if (d)
        free_draft(w, d);
    return err;
}
