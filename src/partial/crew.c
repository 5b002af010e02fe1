/* SPDX-License-Identifier: BSD-3-Clause
 * crew.c - the group that a worker is in.
 *
 * All or nothing  Every buffer is averaged in a copy, the library's or the
 *            program's own. The buffers themselves are written in one go, at this member's commit, after the last of
 *            them is complete here. Nobody is asked: a member that has all it
 *            needs commits, one whose group broke before that keeps its model.
 *            So members of a broken group may differ, which the next groups,
 *            and the next re-centring, put right; nobody ever has half of a
 *            result, and nobody waits for a second phase.
 * Bounded    A group ends by the deadline; earlier if a member dies (the
 *            controller tells), a connection that is needed ends, a member
 *            gives up, or has reduced something else.
 * Next       job.c, ties.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "partial/session.h"

/* ----------------------------------------------------------------- begin -- */

static void free_arrays(tt_worker *w)
{
    tt_crew *c = &w->crew;
    tt_free(&w->mem, c->seats, c->cap, sizeof(*c->seats));
    tt_free(&w->mem, c->members, c->cap, sizeof(*c->members));
    tt_free(&w->mem, c->workers, c->cap, sizeof(*c->workers));
    *c = (tt_crew){.id = 0};
}

static bool reserve(tt_worker *w, uint32_t n)
{
    tt_crew *c = &w->crew;
    if (n <= c->cap)
        return true;
    free_arrays(w);
    c->cap = n;
    c->seats = tt_new(&w->mem, n, sizeof(*c->seats));
    c->members = tt_new(&w->mem, n, sizeof(*c->members));
    c->workers = tt_new(&w->mem, n, sizeof(*c->workers));
    if (c->seats && c->members && c->workers)
        return true;
    free_arrays(w);
    return false;
}

/* Members come sorted, all different, this worker among them. */
static bool are_sound(const tt_worker *w, const tt_crew *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->seats[i].worker >= w->n ||
            (i > 0 && c->seats[i].worker <= c->seats[i - 1].worker) ||
            !(c->seats[i].weight >= 0 && c->seats[i].weight <= 1))
            return false;
    }
    return c->seats[c->me].worker == w->id &&
           c->seats[c->me].incarnation == w->incarnation;
}

tutti_err tt_crew_begin(tt_worker *w, const tt_talk *head,
                        const unsigned char *payload)
{
    tt_group_head group;
    if (w->phase != TT_PHASE_ANNOUNCED || head->len < sizeof(group) ||
        head->number == 0)
        return TUTTI_EPROTO;
    memcpy(&group, payload, sizeof(group));
    if (group.n == 0 || group.n > w->n || group.me >= group.n ||
        group.kind >= TUTTI_GROUP_KIND_COUNT ||
        head->len != sizeof(group) + group.n * sizeof(tt_seat))
        return TUTTI_EPROTO;
    if (!reserve(w, group.n))
        return TUTTI_ENOMEM;
    tt_crew *c = &w->crew;
    c->id = head->number;
    c->iteration = group.iteration;
    c->kind = (tt_group_kind)group.kind;
    c->n = group.n;
    c->me = group.me;
    c->is_even = group.is_even != 0;
    c->has_model = group.has_model != 0;
    c->n_cpus = group.n_cpus;
    c->is_inside = true;
    c->n_jobs = 0;
    c->err = TUTTI_OK;
    c->jobs = NULL;
    c->jobs_end = &c->jobs;
    c->deadline_ns = tt_now_ns() + w->o.timeout_ns;
    memcpy(c->seats, payload + sizeof(group), group.n * sizeof(tt_seat));
    if (!are_sound(w, c))
        return TUTTI_EPROTO;
    for (uint32_t i = 0; i < c->n; i++) {
        const tt_seat *s = &c->seats[i];
        c->workers[i] = s->worker;
        c->members[i] = (tt_group_member){.worker = s->worker,
                                          .incarnation = s->incarnation,
                                          .iteration = s->iteration,
                                          .weight = s->weight};
        c->is_inside = c->is_inside && s->host == w->host;
    }
    w->n_groups++;
    w->phase = TT_PHASE_GROUP;
    tt_worker_call(w, TUTTI_OK);
    tt_handin_begin(w);
    return TUTTI_OK;
}

tt_job *tt_crew_job(tt_worker *w, uint64_t group, uint32_t bucket)
{
    if (w->phase < TT_PHASE_GROUP || w->crew.id != group || w->crew.err)
        return NULL;
    for (tt_job *job = w->crew.jobs; job; job = job->next)
        if (job->bucket == bucket)
            return job;
    return NULL;
}

/* ------------------------------------------------------------------- end -- */

static void say_done(tt_worker *w, tutti_err err, const char *why)
{
    size_t len = why ? strlen(why) : 0;
    if (len >= TT_TALK_TEXT)
        len = TT_TALK_TEXT - 1;
    tt_talk head = tt_talk_head(TT_TALK_DONE, w->crew.id, len);
    head.flags = err == TUTTI_EMISMATCH ? TT_TALK_DIFFERS : 0;
    tt_visit_say(w, &head, why);
}

static void finish_job(tt_job *job, tutti_err err)
{
    tt_worker_done done = job->done;
    job->done = NULL;
    if (done)
        done(job->arg, err);
}

/* The group is over, well or broken; its members can still be read. */
void tt_crew_end(tt_worker *w)
{
    tt_crew *c = &w->crew;
    bool was_empty = !c->jobs || !c->jobs->walk.b;
    while (c->jobs) {
        tt_job *job = c->jobs;
        c->jobs = job->next;
        tt_ties_forget(w, job);
        tt_job_free(job);
    }
    c->jobs_end = &c->jobs;
    w->phase = TT_PHASE_IDLE;
    tt_ties_over(w, was_empty);
}

void tt_crew_break(tt_worker *w, tutti_err err, bool tells, const char *fmt,
                   ...)
{
    tt_crew *c = &w->crew;
    char text[TT_TALK_TEXT];
    if (w->phase < TT_PHASE_GROUP || c->err)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    c->err = err;
    w->ended = w->broken = c->id;
    tt_views_ended(w);
    w->n_broken++;
    tt_worker_note(w, "group %llu broke: %s", (unsigned long long)c->id, text);
    TT_INFO("worker %u: %s", w->id, w->text);
    if (tells)
        say_done(w, err, text);
    for (tt_job *job = c->jobs; job; job = job->next) {
        tt_ties_forget(w, job);
        /* One that is complete may not have been told yet, and nobody will. */
        finish_job(job, tt_walk_is_done(&job->walk) ? TUTTI_OK : err);
    }
    if (w->phase == TT_PHASE_COMMIT) {
        tt_crew_end(w);
        tt_worker_call(w, err);
    }
}

static bool is_complete(const tt_crew *c)
{
    for (const tt_job *job = c->jobs; job; job = job->next)
        if (!tt_walk_is_done(&job->walk))
            return false;
    return true;
}

void tt_crew_advance(tt_worker *w)
{
    tt_crew *c = &w->crew;
    if (w->phase < TT_PHASE_GROUP || c->err)
        return;
    for (tt_job *job = c->jobs; job; job = job->next)
        if (tt_walk_is_done(&job->walk) && job->done)
            finish_job(job, TUTTI_OK);
    if (w->phase != TT_PHASE_COMMIT || !is_complete(c))
        return;
    for (tt_job *job = c->jobs; job; job = job->next)
        tt_job_write(job);
    w->ended = c->id;
    tt_views_ended(w);
    w->is_newcomer = w->is_newcomer && !c->has_model;
    say_done(w, TUTTI_OK, NULL);
    tt_crew_end(w);
    tt_worker_call(w, TUTTI_OK);
}

/* ------------------------------------------------------------- watching -- */

bool tt_crew_agrees(tt_worker *w, const tt_job *job, uint32_t other,
                    const tt_bind *bind)
{
    if (bind->fingerprint == job->fingerprint)
        return true;
    tt_crew_break(w, TUTTI_EMISMATCH, true,
                  "buffer %u is %llu of %s at worker %u and %llu of %s at "
                  "worker %u; all members must reduce the same buffers in the "
                  "same order, by the same planner",
                  job->bucket, (unsigned long long)job->o.count,
                  tutti_type_name(job->o.type), w->id,
                  (unsigned long long)bind->count,
                  tutti_type_name((tutti_type)bind->type), other);
    return false;
}

/* A sentence about who is missing. */
static void break_late(tt_worker *w)
{
    tt_crew *c = &w->crew;
    double s = (double)w->o.timeout_ns * 1e-9;
    for (const tt_job *job = c->jobs; job; job = job->next)
        for (uint32_t p = 0;
             !tt_walk_is_done(&job->walk) && p < job->walk.b->n_partners; p++) {
            uint32_t other = c->workers[job->walk.b->partners[p].peer];
            if (tt_job_is_done_with(job, p))
                continue;
            /* The first is begun with its first slice, which may wait for a
             * third worker's. */
            const char *what = job->has_bound[p] ? "has not finished"
                               : job->bucket > 0 ? "has not begun"
                                                 : "has sent nothing of";
            tt_crew_break(w, TUTTI_ETIMEOUT, true,
                          "worker %u %s buffer %u within %.3g s", other, what,
                          job->bucket, s);
            return;
        }
    tt_crew_break(w, TUTTI_ETIMEOUT, true,
                  "worker %u has not committed it within %.3g s", w->id, s);
}

void tt_crew_check(tt_worker *w, uint64_t now)
{
    if (w->phase >= TT_PHASE_GROUP && !w->crew.err &&
        now >= w->crew.deadline_ns)
        break_late(w);
}

bool tt_crew_needs(const tt_worker *w, const tt_tie *tie)
{
    const tt_crew *c = &w->crew;
    if (w->phase < TT_PHASE_GROUP || c->err)
        return false;
    for (const tt_job *job = c->jobs; job; job = job->next) {
        for (uint32_t p = 0; job->walk.b && p < job->walk.b->n_partners; p++) {
            uint32_t member = job->walk.b->partners[p].peer;
            if (c->workers[member] == tie->worker &&
                c->seats[member].incarnation == tie->incarnation &&
                !tt_job_is_done_with(job, p))
                return true;
        }
    }
    return false;
}

void tt_crew_fini(tt_worker *w)
{
    if (w->phase >= TT_PHASE_GROUP)
        tt_crew_end(w);
    free_arrays(w);
}
