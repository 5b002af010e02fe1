/* SPDX-License-Identifier: BSD-3-Clause
 * worker.c - a worker's life, its thread, and the calls that reach it.
 *
 * The thread sleeps until the controller has said something, or an eventfd says
 * that there is something to do: a call was made, or the engine has ended one
 * of the group's. What takes long is done by others, without the lock: copying
 * a buffer and planning (handin.c), moving the data (the engine). */
#include "partial/session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/thread.h"

void tt_worker_wake(tt_worker *w)
{
    if (!atomic_exchange(&w->is_woken, true))
        tt_bell_ring(w->wake_fd);
}

void tt_worker_enter(tt_worker *w, tt_worker_phase phase)
{
    w->awaited[0] = '\0';
    w->phase = phase;
    w->phase_ns = tt_now_ns();
}

void tt_worker_end(tt_worker *w, tt_worker_done done, void *arg, tutti_err err)
{
    if (done)
        done(arg, err, w->is_inside);
}

void tt_worker_call(tt_worker *w, tutti_err err)
{
    tt_worker_done done = w->done;
    w->done = NULL;
    tt_worker_end(w, done, w->done_arg, err);
}

/* ---------------------------------------------------------------- thread -- */

static void turn(tt_worker *w, bool is_woken, bool is_told)
{
    if (is_woken) {
        tt_bell_hear(w->wake_fd);
        /* What is done for a wake is looked for behind this. */
        atomic_exchange(&w->is_woken, false);
    }
    if (is_told || w->pipe.is_broken)
        tt_visit_hear(w);
    uint64_t now = tt_now_ns();
    tt_away_check(w, now);
    tt_visit_check(w, now);
    tt_crew_check(w, now);
    tt_compare_check(w, now);
    tt_crew_advance(w);
    tt_pipe_flush(&w->pipe);
}

static int wait_ms(const tt_worker *w)
{
    uint64_t at = tt_away_deadline(w);
    if (at == UINT64_MAX && w->pipe.s.fd >= 0 && w->liveness_ns > 0)
        at = w->said_ns + w->liveness_ns / 4;
    if (w->phase >= TT_PHASE_GROUP && !w->crew.err && w->crew.deadline_ns < at)
        at = w->crew.deadline_ns;
    return tt_poll_ms(at, 1000);
}

static void *thread_main(void *arg)
{
    tt_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stops) {
        const bool has_more = tt_pipe_has_unsent(&w->pipe);
        const bool has_read = tt_link_pending(&w->pipe.s) > 0;
        struct pollfd fds[3] = {
            {.fd = w->wake_fd, .events = POLLIN},
            {.fd = w->pipe.s.fd,
             .events = (short)(POLLIN | (has_more ? POLLOUT : 0))},
            {.fd = w->away.box ? tt_link_box_fd(w->away.box) : -1,
             .events = POLLIN}};
        int ms = has_read ? 0 : wait_ms(w);
        pthread_mutex_unlock(&w->lock);
        int n = poll(fds, 3, ms);
        pthread_mutex_lock(&w->lock);
        turn(w, n > 0 && fds[0].revents != 0,
             has_read || (n > 0 && fds[1].revents != 0));
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static tutti_err start(tt_worker *w, tutti_diag *diag)
{
    int why = tt_thread_start(&w->thread, thread_main, w);
    if (why != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, why,
                             "no thread for partial reduce");
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ life -- */

static tutti_err copy_opts(tt_worker *w, const tt_worker_opts *o,
                           tutti_diag *diag)
{
    w->o = *o;
    w->o.trust = tt_trust_ref(o->trust);
    w->settings = *o->settings;
    tt_addr *copy = tt_new(&w->mem, o->n_controllers, sizeof(*copy));
    if (!copy)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a worker");
    memcpy(copy, o->controllers, o->n_controllers * sizeof(*copy));
    w->o.controllers = copy;
    w->o.settings = &w->settings;
    return TUTTI_OK;
}

static void free_worker(tt_worker *w)
{
    const tt_mem mem = w->mem;
    tt_crew_fini(w);
    tt_compare_fini(w);
    tt_programs_free(w);
    tt_mesh_unref(w->mesh);
    tt_spares_fini(&w->spares);
    tt_away_end(w);
    tt_pipe_close(&w->pipe);
    tt_fork_close(&w->wake_fd);
    tt_trust_close(w->o.trust);
    tt_free(&mem, (void *)(uintptr_t)w->o.controllers, w->o.n_controllers,
            sizeof(*w->o.controllers));
    pthread_mutex_destroy(&w->lock);
    tt_free(&mem, w, 1, sizeof(*w));
}

static tutti_err open_fd(tt_worker *w, tutti_diag *diag)
{
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake_fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno,
                             "no descriptors for partial reduce");
    tt_fork_watch(w->wake_fd);
    return tt_link_id_make(&w->process, diag);
}

tutti_err tt_worker_open(const tt_worker_opts *o, const tt_mem *mem,
                         tt_worker **out, tutti_diag *diag)
{
    tt_worker *w = tt_new(mem, 1, sizeof(*w));
    if (!w)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a worker");
    w->mem = *mem;
    w->wake_fd = w->pipe.s.fd = -1;
    tt_spares_init(&w->spares, &w->mem, o->regions);
    w->host = tt_place_host();
    w->drafts_end = &w->drafts;
    pthread_mutex_init(&w->lock, NULL);
    tt_worker_enter(w, TT_PHASE_IDLE);
    tutti_err err = copy_opts(w, o, diag);
    if (!err)
        err = open_fd(w, diag);
    if (!err)
        err = tt_visit_join(w, o->is_current, diag);
    if (!err)
        err = start(w, diag);
    if (err)
        free_worker(w);
    else
        *out = w;
    return err;
}

static void stop(tt_worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->stops = true;
    tt_worker_wake(w);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    tt_handin_join(w);
}

void tt_worker_leave(tt_worker *w)
{
    pthread_mutex_lock(&w->lock);
    if (!w->err) {
        tt_crew_break(w, TUTTI_EABORTED, true, "worker %u leaves", w->id);
        tt_talk head = tt_talk_head(TT_TALK_LEAVE, 0, 0);
        tt_visit_say(w, &head, NULL);
        tt_worker_lose(w, TUTTI_EABORTED, "worker %u has left", w->id);
    }
    pthread_mutex_unlock(&w->lock);
}

void tt_worker_close(tt_worker *w)
{
    if (!w)
        return;
    tt_worker_leave(w);
    stop(w);
    free_worker(w);
}

tutti_err tt_worker_rejoin(tt_worker *w, bool is_current, tutti_diag *diag)
{
    tt_handin_join(w);
    pthread_mutex_lock(&w->lock);
    tutti_err err = TUTTI_OK;
    if (!w->err)
        err = tt_fail(diag, TUTTI_EINVAL,
                      "worker %u is there already: it can only join again "
                      "when it has left or is lost",
                      w->id);
    if (!err)
        tt_crew_end(w); /* broken when it was lost */
    if (!err)
        err = tt_visit_join(w, is_current, diag);
    if (!err) {
        w->text[0] = '\0';
        tt_worker_wake(w);
    }
    pthread_mutex_unlock(&w->lock);
    return err;
}

/* ----------------------------------------------------------------- calls -- */

tutti_err tt_worker_refuse(tt_worker *w, tutti_err err, const char *text)
{
    tt_worker_note(w, "%s", text);
    return err;
}

static tutti_err begin_announce(tt_worker *w)
{
    if (w->err)
        return w->err;
    if (w->phase == TT_PHASE_GROUP && w->crew.err)
        tt_crew_end(w);
    if (w->phase == TT_PHASE_ANNOUNCED)
        return tt_worker_refuse(w, TUTTI_EINVAL,
                                "it has announced already, and waits "
                                "for a group");
    if (w->phase != TT_PHASE_IDLE)
        return tt_worker_refuse(w, TUTTI_EINVAL,
                                "a group is in progress: commit or "
                                "abandon it first");
    return TUTTI_OK;
}

tutti_err tt_worker_announce(tt_worker *w, uint64_t iteration, bool is_last,
                             tt_worker_done done, void *arg)
{
    tt_handin_join(w); /* of a group that was given up */
    pthread_mutex_lock(&w->lock);
    tutti_err err = begin_announce(w);
    if (!err) {
        tt_compare_begin(w);
        tt_worker_enter(w, TT_PHASE_ANNOUNCED);
        w->done = done;
        w->done_arg = arg;
        w->announced = tt_talk_head(TT_TALK_ANNOUNCE, iteration, 0);
        w->announced.flags = is_last ? TT_TALK_LAST : 0;
        tt_visit_say(w, &w->announced, NULL);
        if (w->pipe.is_broken)
            tt_worker_wake(w);
    }
    pthread_mutex_unlock(&w->lock);
    return err;
}

tutti_err tt_worker_group_of(tt_worker *w, tutti_partial_group *out)
{
    pthread_mutex_lock(&w->lock);
    const tt_crew *c = &w->crew;
    bool is_there = c->id > 0 && w->phase != TT_PHASE_ANNOUNCED;
    if (is_there)
        *out = (tutti_partial_group){.id = c->id,
                                     .kind = c->kind,
                                     .n = c->n,
                                     .rank = c->me,
                                     .is_even = c->is_even,
                                     .iteration = c->iteration,
                                     .members = c->members};
    tutti_err err = is_there ? TUTTI_OK
                             : tt_worker_refuse(w, TUTTI_EINVAL,
                                                "there is no group");
    pthread_mutex_unlock(&w->lock);
    return err;
}

/* [locked] The group is there. Its failure, if it has broken. */
static tutti_err begin_commit(tt_worker *w, tt_worker_done done, void *arg)
{
    tutti_err err = w->crew.err;
    if (err) {
        tt_crew_end(w);
        return err;
    }
    tt_worker_enter(w, TT_PHASE_COMMIT);
    w->crew.waits = tt_patience_begin(w->settings.patience_ns, tt_now_ns());
    w->done = done;
    w->done_arg = arg;
    tt_crew_advance(w);
    return TUTTI_OK;
}

void tt_worker_commit_early(tt_worker *w)
{
    const tt_early_commit early = w->early;
    if (!early.is_there)
        return;
    w->early = (tt_early_commit){.is_there = false};
    tutti_err err = w->phase == TT_PHASE_GROUP
                        ? begin_commit(w, early.done, early.arg)
                        : TUTTI_EABORTED;
    if (err)
        tt_worker_end(w, early.done, early.arg, err);
}

void tt_worker_drop_early(tt_worker *w, tutti_err err)
{
    const tt_early_commit early = w->early;
    w->early = (tt_early_commit){.is_there = false};
    tt_handin_drop(w, err);
    if (early.is_there)
        tt_worker_end(w, early.done, early.arg, err);
}

tutti_err tt_worker_commit(tt_worker *w, tt_worker_done done, void *arg)
{
    pthread_mutex_lock(&w->lock);
    tutti_err err = w->phase == TT_PHASE_GROUP ? TUTTI_OK : w->err;
    if (!err && tt_handin_waits(w) && !w->early.is_there) {
        w->early = (tt_early_commit){true, done, arg};
    } else if (!err && (w->phase != TT_PHASE_GROUP || w->early.is_there)) {
        err = tt_worker_refuse(w, TUTTI_EINVAL, "there is no group to commit");
    } else if (!err) {
        err = begin_commit(w, done, arg);
    }
    pthread_mutex_unlock(&w->lock);
    return err;
}

void tt_worker_abandon(tt_worker *w, const char *reason)
{
    pthread_mutex_lock(&w->lock);
    tt_crew_break(w, TUTTI_EABORTED, true, "worker %u gives up: %s", w->id,
                  reason ? reason : "it does not say why");
    if (w->phase == TT_PHASE_GROUP)
        tt_crew_end(w);
    tt_worker_drop_early(w, TUTTI_EABORTED);
    tt_worker_wake(w);
    pthread_mutex_unlock(&w->lock);
}

/* ------------------------------------------------------------- questions -- */

void tt_worker_tell(tt_worker *w, tutti_partial_info *out)
{
    pthread_mutex_lock(&w->lock);
    *out = (tutti_partial_info){.worker = w->id,
                                .n_workers = w->n_seen,
                                .incarnation = w->incarnation,
                                .is_newcomer = w->is_newcomer,
                                .is_dynamic = w->is_dynamic,
                                .n_groups = w->n_groups,
                                .n_broken = w->n_broken};
    pthread_mutex_unlock(&w->lock);
}

tutti_err tt_worker_state(tt_worker *w, char *text)
{
    pthread_mutex_lock(&w->lock);
    tutti_err err = w->err;
    memcpy(text, w->text, sizeof(w->text));
    pthread_mutex_unlock(&w->lock);
    return err;
}

/* Of the group that it is in. */
static void look_at_group(tt_worker *w, tt_worker_status *out)
{
    const tt_crew *c = &w->crew;
    uint64_t bucket = 0;
    bool has_begun = false;
    tt_engine_lock(w->o.engine);
    if (c->team)
        out->waits_for = tt_team_awaits(c->team, &bucket, &has_begun);
    tt_engine_unlock(w->o.engine);
    out->n = c->n;
    if (out->waits_for != TT_NONE) {
        out->waits = has_begun ? TT_WAITS_TO_SEND : TT_WAITS_TO_COME;
        out->buffer = bucket + 1;
    }
}

bool tt_worker_look(tt_worker *w, tt_worker_status *out)
{
    static const uint8_t states[] = {
        [TT_PHASE_IDLE] = TT_WORKER_OUTSIDE,
        [TT_PHASE_ANNOUNCED] = TT_WORKER_READY,
        [TT_PHASE_GROUP] = TT_WORKER_GROUP,
        [TT_PHASE_COMMIT] = TT_WORKER_COMMITS,
    };
    if (pthread_mutex_trylock(&w->lock) != 0)
        return false;
    const uint64_t now_ns = tt_now_ns();
    *out = (tt_worker_status){.version = TT_STATUS_VERSION,
                              .is = w->err ? TT_WORKER_LOST : states[w->phase],
                              .is_away = w->away.is_away,
                              .worker = w->id,
                              .incarnation = w->incarnation,
                              .n_workers = w->n_seen,
                              .waits_for = TT_NONE,
                              .origin = w->origin,
                              .iteration = w->announced.number,
                              .group = w->crew.id,
                              .age_ns = now_ns - w->phase_ns,
                              .n_groups = w->n_groups,
                              .n_broken = w->n_broken};
    if (w->phase >= TT_PHASE_GROUP && !w->crew.err)
        look_at_group(w, out);
    snprintf(out->text, sizeof(out->text), "%.167s",
             w->err ? w->text : w->awaited);
    pthread_mutex_unlock(&w->lock);
    return true;
}
