/* SPDX-License-Identifier: BSD-3-Clause
 * crew.c - the group that a worker is in.
 *
 * Team       A group of several is a light team of the engine's (engine.h), by the
 *            controller's own and the group's number; its members are the
 *            workers' numbers. It fails alone, and the connections stay.
 * All or nothing  Every buffer is averaged in a copy, the library's or the
 *            program's own. The buffers themselves are written in one go, at
 *            this member's commit, after the last of them is complete here.
 *            Nobody is asked: a member that has all it needs commits, one whose
 *            group broke before that keeps its model. So members of a broken
 *            group may differ, which the next groups, and the next re-centring,
 *            put right; nobody ever has half of a result, and nobody waits for
 *            a second phase.
 * Bounded    A group ends by the deadline; earlier if a member dies (the
 *            controller tells, or its connection does), gives up, has ended it,
 *            or has reduced something else (the engine tells).
 * Next       handin.c, engine/team.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "partial/session.h"

/* Results of so many bytes are written while the engine waits. */
static const size_t most_inside = 256 << 10;

/* ----------------------------------------------------------------- begin -- */

static void free_arrays(tt_worker *w)
{
    tt_crew *c = &w->crew;
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
    c->members = tt_new(&w->mem, n, sizeof(*c->members));
    c->workers = tt_new(&w->mem, n, sizeof(*c->workers));
    if (c->members && c->workers)
        return true;
    free_arrays(w);
    return false;
}

/* Members come sorted, all different, this worker among them. */
static bool read_seats(tt_worker *w, const unsigned char *bytes)
{
    tt_crew *c = &w->crew;
    c->is_inside = true;
    for (uint32_t i = 0; i < c->n; i++) {
        tt_seat s;
        memcpy(&s, bytes + i * sizeof(s), sizeof(s));
        if (s.worker >= w->most || (i > 0 && s.worker <= c->workers[i - 1]) ||
            !(s.weight >= 0 && s.weight <= 1))
            return false;
        tt_worker_see(w, s.worker);
        c->workers[i] = s.worker;
        c->members[i] = (tt_group_member){.worker = s.worker,
                                          .incarnation = s.incarnation,
                                          .iteration = s.iteration,
                                          .weight = s.weight};
        c->is_inside = c->is_inside && s.host == w->host;
    }
    return c->workers[c->me] == w->id &&
           c->members[c->me].incarnation == w->incarnation;
}

static tutti_err read_group(tt_worker *w, const tt_talk *head,
                            const unsigned char *payload)
{
    tt_group_head group;
    if (w->phase != TT_PHASE_ANNOUNCED || head->len < sizeof(group) ||
        head->number == 0)
        return TUTTI_EPROTO;
    memcpy(&group, payload, sizeof(group));
    if (group.n == 0 || group.n > w->most || group.me >= group.n ||
        group.kind >= TUTTI_GROUP_KIND_COUNT ||
        (group.n > 1 && group.max_payload < TT_CARD_LEAST_PAYLOAD) ||
        head->len != sizeof(group) + group.n * sizeof(tt_seat))
        return TUTTI_EPROTO;
    if (!reserve(w, group.n))
        return TUTTI_ENOMEM;
    tt_crew *c = &w->crew;
    *c = (tt_crew){.id = head->number,
                   .iteration = group.iteration,
                   .kind = (tt_group_kind)group.kind,
                   .n = group.n,
                   .me = group.me,
                   .n_cpus = group.n_cpus,
                   .max_payload = group.max_payload,
                   .is_even = group.is_even != 0,
                   .has_model = group.has_model != 0,
                   .members = c->members,
                   .workers = c->workers,
                   .jobs_end = &c->jobs,
                   .deadline_ns = tt_now_ns() + w->o.timeout_ns,
                   .cap = c->cap};
    return read_seats(w, payload + sizeof(group)) ? TUTTI_OK : TUTTI_EPROTO;
}

tutti_err tt_crew_begin(tt_worker *w, const tt_talk *head,
                        const unsigned char *payload)
{
    tt_crew *c = &w->crew;
    tutti_err err = read_group(w, head, payload);
    const tt_group_opts opts = {
        .origin = w->origin, .number = c->id, .members = c->workers, .n = c->n};
    if (!err && c->n > 1)
        tt_mesh_expect(w->mesh, w->n_seen);
    if (!err && c->n > 1)
        err = tt_group_create(w->mesh, &opts, &c->team);
    if (err)
        return err;
    tt_compare_begin(w);
    w->n_groups++;
    w->heard = c->id;
    tt_worker_enter(w, TT_PHASE_GROUP);
    tt_worker_call(w, TUTTI_OK);
    tt_handin_begin(w);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------- end -- */

static void say_done(tt_worker *w, tutti_err err, const char *why)
{
    size_t len = why ? strlen(why) : 0;
    if (len >= TT_TALK_TEXT)
        len = TT_TALK_TEXT - 1;
    w->ended = tt_talk_head(TT_TALK_DONE, w->crew.id, len);
    w->ended.flags = err == TUTTI_EMISMATCH ? TT_TALK_DIFFERS : 0;
    if (len > 0)
        memcpy(w->ended_why, why, len);
    tt_visit_say(w, &w->ended, w->ended_why);
}

/* After it the engine has nothing of the jobs any more. */
static void leave_team(tt_worker *w)
{
    tt_crew *c = &w->crew;
    if (!c->team)
        return;
    if (!w->is_inside)
        tt_engine_lock(w->o.engine);
    tt_team_leave(c->team);
    if (!w->is_inside) {
        tt_engine_kick(w->o.engine,
                       true); /* there may be no room for its BYE */
        tt_engine_unlock(w->o.engine);
    }
    c->team = NULL;
}

/* The group is over, well or broken; its members can still be read. */
void tt_crew_end(tt_worker *w)
{
    tt_crew *c = &w->crew;
    leave_team(w);
    while (c->jobs) {
        tt_job *job = c->jobs;
        c->jobs = job->next;
        tt_job_free(job);
    }
    c->jobs_end = &c->jobs;
    tt_worker_enter(w, TT_PHASE_IDLE);
}

static bool is_complete(tt_job *job)
{
    return atomic_load_explicit(&job->is_over, memory_order_acquire) &&
           !job->err;
}

/* The others hear from the engine, too, where they are connected. */
static void fail_team(tt_worker *w, tutti_err err, const char *text)
{
    if (!w->crew.team)
        return;
    tt_engine_lock(w->o.engine);
    tt_team_fail(w->crew.team, err == TUTTI_EMISMATCH ? err : TUTTI_EPEER,
                 TT_NONE, text);
    tt_engine_flush(w->o.engine);
    tt_engine_unlock(w->o.engine);
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
    w->n_broken++;
    tt_worker_note(w, "group %llu broke: %s", (unsigned long long)c->id, text);
    TT_INFO("worker %u: %s", w->id, w->text);
    if (tells)
        say_done(w, err, text);
    fail_team(w, err, text);
    /* One that is complete may not have been told yet, and nobody will. */
    for (tt_job *job = c->jobs; job; job = job->next)
        tt_job_end(job, is_complete(job) ? TUTTI_OK : err);
    if (w->phase == TT_PHASE_COMMIT) {
        tt_crew_end(w);
        tt_worker_call(w, err);
    }
}

/* "rank 3 is lost" -> "worker 3 is lost": ranks of the mesh are workers. */
static void name_workers(const char *from, char *to, size_t size)
{
    static const char *const words[][2] = {{"rank ", "worker "},
                                           {"ranks ", "workers "}};
    size_t n = 0;
    while (*from && n + 1 < size) {
        const char *word = NULL;
        for (int i = 0; i < 2 && !word; i++) {
            size_t len = strlen(words[i][0]);
            if (strncmp(from, words[i][0], len) != 0 || from[len] < '0' ||
                from[len] > '9')
                continue;
            word = words[i][1];
            from += len;
        }
        if (word)
            n += (size_t)snprintf(to + n, size - n, "%s", word);
        else
            to[n++] = *from++;
    }
    to[n < size ? n : size - 1] = '\0';
}

void tt_crew_fail(tt_worker *w)
{
    static const char same[] = "; all members must reduce the same buffers in "
                               "the same order, by the same planner";
    const char *why;
    char text[TT_TALK_TEXT];
    if (!w->crew.team)
        return;
    tt_engine_lock(w->o.engine);
    tutti_err err = tt_team_state(w->crew.team, &why);
    name_workers(why, text, sizeof(text));
    tt_engine_unlock(w->o.engine);
    if (!err)
        return;
    /* What another member has said ends so already. */
    bool is_bare = err == TUTTI_EMISMATCH && !strstr(text, "the same buffers");
    tt_crew_break(w, err == TUTTI_EABORTED ? TUTTI_EPEER : err, true, "%s%s",
                  text, is_bare ? same : "");
}

static size_t bytes_to_write(const tt_crew *c)
{
    size_t bytes = 0;
    for (const tt_job *job = c->jobs; job; job = job->next)
        if (!job->what.is_scratch)
            bytes += job->what.count * tutti_type_bytes(job->what.type);
    return bytes;
}

static void commit(tt_worker *w)
{
    tt_crew *c = &w->crew;
    if (w->is_inside && bytes_to_write(c) > most_inside) {
        tt_worker_wake(w);
        return;
    }
    for (tt_job *job = c->jobs; job; job = job->next)
        if (job->what.count > 0 && !job->what.is_scratch)
            memcpy(job->what.buf, job->copy.at,
                   job->what.count * tutti_type_bytes(job->what.type));
    w->is_newcomer = w->is_newcomer && !c->has_model;
    w->prints.may = true;
    say_done(w, TUTTI_OK, NULL);
    tt_crew_end(w);
    tt_worker_call(w, TUTTI_OK);
}

void tt_crew_advance(tt_worker *w)
{
    tt_crew *c = &w->crew;
    bool has_all = true;
    bool has_failed = false;
    if (w->phase < TT_PHASE_GROUP || c->err)
        return;
    for (tt_job *job = c->jobs; job; job = job->next) {
        bool is_over = atomic_load_explicit(&job->is_over,
                                            memory_order_acquire);
        has_all &= is_over && !job->err;
        has_failed |= is_over && job->err;
        if (is_over && !job->err)
            tt_job_end(job, TUTTI_OK);
    }
    if (has_failed && !w->is_inside) /* its thread has been woken for that */
        tt_crew_fail(w);
    else if (has_all && w->phase == TT_PHASE_COMMIT)
        commit(w);
}

/* ------------------------------------------------------------- watching -- */

/* A sentence about who is missing. */
static void break_late(tt_worker *w)
{
    const tt_crew *c = &w->crew;
    const double s = (double)w->o.timeout_ns * 1e-9;
    uint32_t other = TT_NONE;
    uint64_t bucket = 0;
    bool has_begun = false;
    tt_engine_lock(w->o.engine);
    if (c->team)
        other = tt_team_awaits(c->team, &bucket, &has_begun);
    tt_engine_unlock(w->o.engine);
    if (other != TT_NONE)
        tt_crew_break(w, TUTTI_ETIMEOUT, true,
                      "worker %u has not %s buffer %llu within %.3g s", other,
                      has_begun ? "finished" : "begun",
                      (unsigned long long)bucket, s);
    else
        tt_crew_break(w, TUTTI_ETIMEOUT, true,
                      "worker %u has not committed it within %.3g s", w->id, s);
}

/* Nobody waits in silence. */
static void tell_waiting(tt_worker *w, uint64_t now)
{
    tt_crew *c = &w->crew;
    uint64_t bucket = 0;
    bool has_begun = false;
    if (!tt_patience_is_over(&c->waits, now))
        return;
    const double s = tt_patience_say(&c->waits);
    tt_engine_lock(w->o.engine);
    uint32_t other = c->team ? tt_team_awaits(c->team, &bucket, &has_begun)
                             : TT_NONE;
    tt_engine_unlock(w->o.engine);
    if (other != TT_NONE)
        TT_WARN("worker %u: waiting %.4g s for worker %u: buffer %llu of group "
                "%llu",
                w->id, s, other, (unsigned long long)bucket,
                (unsigned long long)c->id);
}

void tt_crew_check(tt_worker *w, uint64_t now)
{
    if (w->phase >= TT_PHASE_GROUP && !w->crew.err)
        tell_waiting(w, now);
    if (w->phase >= TT_PHASE_GROUP && !w->crew.err &&
        now >= w->crew.deadline_ns)
        break_late(w);
}

void tt_crew_fini(tt_worker *w)
{
    tt_crew_end(w);
    free_arrays(w);
}
