/* SPDX-License-Identifier: BSD-3-Clause
 * worker.c - a worker's life, its thread, and the calls that reach it.
 *
 * The thread sleeps in one epoll with everything in it: the controller, two
 * listeners, the connections to other workers, and an eventfd by which calls
 * wake it. After each turn it advances the group, sends what may be sent, and
 * frees what was closed. What takes long (copying a buffer, planning) is done
 * by the caller, without the lock. */
#include "partial/session.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/hash.h"
#include "verify/verify.h"

static const uint32_t most_payload = 1 << 20;

void tt_worker_wake(tt_worker *w)
{
    uint64_t one = 1;
    ssize_t n = write(w->wake_fd, &one, sizeof(one));
    (void)n; /* it cannot be full */
}

void tt_worker_call(tt_worker *w, tutti_err err)
{
    tt_worker_done done = w->done;
    w->done = NULL;
    if (done)
        done(w->done_arg, err);
}

/* ---------------------------------------------------------------- thread -- */

static void serve(tt_worker *w, const struct epoll_event *e)
{
    if (e->data.ptr == &w->pipe) {
        tt_visit_hear(w);
        tt_visit_flush(w);
    } else if (e->data.ptr == &w->wake_fd) {
        uint64_t count;
        ssize_t got = read(w->wake_fd, &count, sizeof(count));
        (void)got;
    } else if (e->data.ptr == &w->listener) {
        tt_ties_accept(w, w->listener);
    } else if (e->data.ptr == &w->nest_fd) {
        tt_ties_accept(w, w->nest_fd);
    } else {
        tt_tie_event(e->data.ptr, e->events);
    }
}

static void turn(tt_worker *w, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++)
        serve(w, &events[i]);
    uint64_t now = tt_now_ns();
    tt_visit_check(w, now);
    tt_ties_check(w, now);
    tt_crew_check(w, now);
    tt_ties_pump(w);
    tt_crew_advance(w);
    tt_visit_flush(w);
    tt_ties_sweep(w);
}

static int wait_ms(const tt_worker *w)
{
    uint64_t at = tt_ties_deadline(w);
    if (w->pipe.fd >= 0 && w->liveness_ns > 0 &&
        w->said_ns + w->liveness_ns / 4 < at)
        at = w->said_ns + w->liveness_ns / 4;
    if (w->phase >= TT_PHASE_GROUP && !w->crew.err && w->crew.deadline_ns < at)
        at = w->crew.deadline_ns;
    return tt_poll_ms(at, 1000);
}

static void *thread_main(void *arg)
{
    tt_worker *w = arg;
    struct epoll_event events[32];
    pthread_mutex_lock(&w->lock);
    while (!w->stops) {
        int ms = wait_ms(w);
        pthread_mutex_unlock(&w->lock);
        int n = epoll_wait(w->epoll_fd, events, 32, ms);
        pthread_mutex_lock(&w->lock);
        turn(w, events, n > 0 ? n : 0);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static tutti_err start(tt_worker *w, tutti_diag *diag)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int why = pthread_create(&w->thread, NULL, thread_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, why,
                             "no thread for partial reduce");
    w->has_thread = true;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ life -- */

static void listen_to(tt_worker *w, int *fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = fd};
    if (*fd < 0)
        return;
    tt_fork_watch(*fd);
    epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, *fd, &e);
}

static tutti_err open_fds(tt_worker *w, tutti_diag *diag)
{
    uint16_t first, last;
    tt_addr nest;
    if (!tt_ports_parse(w->settings.ports, &first, &last))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_PORT_RANGE is \"%.60s\"; expected 40000-40100 "
                       "or one port",
                       w->settings.ports);
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    tt_fork_watch(w->epoll_fd);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->spare_fd = tt_sock_spare();
    if (w->epoll_fd < 0 || w->wake_fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno,
                             "no descriptors for partial reduce");
    w->listener = tt_place_listen(first, last);
    if (w->listener < 0) {
        int why = -w->listener;
        w->listener = -1;
        return tt_fail_errno(diag, TUTTI_ESYS, why,
                             "a worker cannot listen for others");
    }
    w->port = tt_sock_port(w->listener);
    w->nest = tt_place_random();
    tt_place_nest(w->nest, &nest);
    w->nest_fd = tt_sock_listen(&nest, 1024); /* TCP serves where it fails */
    listen_to(w, &w->wake_fd);
    listen_to(w, &w->listener);
    listen_to(w, &w->nest_fd);
    return TUTTI_OK;
}

static tutti_err copy_opts(tt_worker *w, const tt_worker_opts *o,
                           tutti_diag *diag)
{
    w->o = *o;
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
    for (tt_tie *tie = w->ties; tie; tie = tie->next)
        tt_tie_close(tie);
    tt_ties_sweep(w);
    for (int i = 0; i < TT_BONDS; i++)
        tt_bond_unref(w->bonds[i].bond);
    tt_pool_fini(&w->pool);
    tt_pipe_close(&w->pipe);
    tt_fork_close(&w->listener);
    tt_fork_close(&w->nest_fd);
    tt_fork_close(&w->wake_fd);
    tt_fork_close(&w->spare_fd);
    tt_fork_close(&w->epoll_fd);
    tt_free(&mem, w->by_worker, w->n, sizeof(*w->by_worker));
    tt_free(&mem, (void *)(uintptr_t)w->o.controllers, w->o.n_controllers,
            sizeof(*w->o.controllers));
    pthread_mutex_destroy(&w->lock);
    tt_free(&mem, w, 1, sizeof(*w));
}

tutti_err tt_worker_open(const tt_worker_opts *o, const tt_mem *mem,
                         tt_worker **out, tutti_diag *diag)
{
    tt_worker *w = tt_new(mem, 1, sizeof(*w));
    if (!w)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a worker");
    w->mem = *mem;
    w->epoll_fd = w->wake_fd = w->listener = w->nest_fd = w->pipe.fd = -1;
    w->spare_fd = -1;
    tt_pool_init(&w->pool, &w->mem);
    w->host = tt_place_host();
    w->crew.jobs_end = &w->crew.jobs;
    pthread_mutex_init(&w->lock, NULL);
    tutti_err err = copy_opts(w, o, diag);
    if (!err)
        err = open_fds(w, diag);
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
}

void tt_worker_leave(tt_worker *w)
{
    pthread_mutex_lock(&w->lock);
    if (!w->err) {
        tt_crew_break(w, TUTTI_EABORTED, true, "worker %u leaves", w->id);
        tt_talk head = tt_talk_head(TT_TALK_LEAVE, 0, 0);
        tt_visit_say(w, &head, NULL);
        w->has_left = true;
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
    pthread_mutex_lock(&w->lock);
    tutti_err err = TUTTI_OK;
    if (!w->err)
        err = tt_fail(diag, TUTTI_EINVAL,
                      "worker %u is there already: it can only join again "
                      "when it has left or is lost",
                      w->id);
    if (!err && w->phase >= TT_PHASE_GROUP)
        tt_crew_end(w); /* broken when it was lost */
    if (!err)
        err = tt_visit_join(w, is_current, diag);
    if (!err) {
        /* Others know this worker by its incarnation. */
        for (tt_tie *tie = w->ties; tie; tie = tie->next)
            tt_tie_close(tie);
        w->text[0] = '\0';
        tt_worker_wake(w);
    }
    pthread_mutex_unlock(&w->lock);
    return err;
}

/* ------------------------------------------------------------------ calls -- */

static tutti_err refuse(tt_worker *w, tutti_err err, const char *text)
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
        return refuse(w, TUTTI_EINVAL,
                      "it has announced already, and waits "
                      "for a group");
    if (w->phase != TT_PHASE_IDLE)
        return refuse(w, TUTTI_EINVAL,
                      "a group is in progress: commit or "
                      "abandon it first");
    return TUTTI_OK;
}

tutti_err tt_worker_announce(tt_worker *w, uint64_t iteration, bool is_last,
                             tt_worker_done done, void *arg)
{
    pthread_mutex_lock(&w->lock);
    tutti_err err = begin_announce(w);
    if (!err) {
        w->phase = TT_PHASE_ANNOUNCED;
        w->announced = iteration;
        w->done = done;
        w->done_arg = arg;
        tt_talk head = tt_talk_head(TT_TALK_ANNOUNCE, iteration, 0);
        head.flags = is_last ? TT_TALK_LAST : 0;
        tt_visit_say(w, &head, NULL);
        if (w->pipe.is_broken)
            tt_worker_wake(w);
    }
    pthread_mutex_unlock(&w->lock);
    return err;
}

tutti_err tt_worker_group_of(tt_worker *w, tt_worker_group *out)
{
    pthread_mutex_lock(&w->lock);
    const tt_crew *c = &w->crew;
    bool is_there = c->id > 0 && w->phase != TT_PHASE_ANNOUNCED;
    if (is_there)
        *out = (tt_worker_group){.id = c->id,
                                 .iteration = c->iteration,
                                 .kind = c->kind,
                                 .n = c->n,
                                 .me = c->me,
                                 .is_even = c->is_even,
                                 .members = c->members};
    tutti_err err = is_there ? TUTTI_OK
                             : refuse(w, TUTTI_EINVAL, "there is no group");
    pthread_mutex_unlock(&w->lock);
    return err;
}

/* A part of the schedule bound to this shape. */
static tutti_err make_bond(tt_worker *w, const tt_worker_shape *shape,
                           uint32_t me, uint64_t count, uint32_t elem_bytes,
                           tt_bond **out, tutti_diag *diag)
{
    tt_worker_plan plan = {0};
    tt_part *part = NULL;
    tt_bond *bond = NULL;
    tutti_err err = w->o.plan(w->o.plan_ctx, shape, &plan, diag);
    if (!err)
        err = tt_verify(plan.schedule, &w->mem, diag);
    if (!err)
        err = tt_part_extract(plan.schedule, me, &w->mem, &part);
    if (!err) {
        bond = tt_new(&w->mem, 1, sizeof(*bond));
        err = bond ? TUTTI_OK : TUTTI_ENOMEM;
    }
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
        *bond = (tt_bond){.mem = &w->mem, .id = plan.schedule->id, .n_refs = 1};
        err = tt_bound_create(part, &lay, &w->mem, &bond->b);
    }
    if (err)
        tt_free(&w->mem, bond, 1, sizeof(*bond));
    tt_part_free(part);
    tt_sched_free(plan.schedule);
    if (err)
        return err == TUTTI_ENOMEM ? tt_fail(diag, err, "out of memory") : err;
    for (uint32_t p = 0; p < bond->b->n_pieces; p++)
        if (bond->b->pieces[p].n_inputs > bond->most_inputs)
            bond->most_inputs = bond->b->pieces[p].n_inputs;
    *out = bond;
    return TUTTI_OK;
}

static uint64_t key_of(const tt_worker *w, const tt_worker_shape *shape,
                       uint32_t me, uint64_t count, uint32_t elem_bytes)
{
    uint64_t key = tt_fnv1a_u64(TT_FNV1A_START, shape->n);
    key = tt_fnv1a_u64(key, me);
    key = tt_fnv1a_u64(key, shape->is_inside);
    key = tt_fnv1a_u64(key, count);
    key = tt_fnv1a_u64(key, elem_bytes);
    if (w->o.plans_by_member)
        key = tt_fnv1a(key, shape->workers, shape->n * sizeof(uint32_t));
    return key;
}

/* [locked] With a reference for the caller; NULL: not there. */
static tt_bond *find_bond(tt_worker *w, uint64_t key)
{
    for (int i = 0; i < TT_BONDS; i++) {
        tt_bond_entry *e = &w->bonds[i];
        if (!e->bond || e->key != key)
            continue;
        e->used = ++w->n_lookups;
        e->bond->n_refs++;
        return e->bond;
    }
    return NULL;
}

/* [locked] */
static void keep_bond(tt_worker *w, uint64_t key, tt_bond *bond)
{
    tt_bond_entry *oldest = &w->bonds[0];
    for (int i = 1; i < TT_BONDS; i++)
        if (w->bonds[i].used < oldest->used)
            oldest = &w->bonds[i];
    tt_bond_unref(oldest->bond);
    bond->n_refs++;
    *oldest = (tt_bond_entry){bond, key, ++w->n_lookups};
}

/* The shape of the group, in arrays of its own: the group may end while a plan
 * is made. */
typedef struct errand {
    tt_worker_shape shape;
    uint64_t group;
    uint32_t me;
    tt_job_opts job;
    tt_bond *bond;
    uint64_t key;
} errand;

static tutti_err check_reduce(tt_worker *w, const tt_job_opts *o)
{
    if (w->err)
        return w->err;
    if (w->phase == TT_PHASE_GROUP && w->crew.err)
        return w->crew.err;
    if (w->phase != TT_PHASE_GROUP)
        return refuse(w, TUTTI_EINVAL,
                      "there is no group to reduce in: announce first");
    if (!tt_scale_kernel(o->type))
        return refuse(w, TUTTI_EINVAL,
                      "partial reduce averages f16, bf16, f32 and f64 only");
    if (!o->buf && o->count > 0)
        return refuse(w, TUTTI_EINVAL, "the buffer is NULL");
    if (o->count > SIZE_MAX / 16)
        return refuse(w, TUTTI_EINVAL, "the buffer is too large");
    return TUTTI_OK;
}

/* [locked] */
static tutti_err prepare(tt_worker *w, errand *e)
{
    const tt_crew *c = &w->crew;
    tutti_err err = check_reduce(w, &e->job);
    if (err)
        return err;
    uint32_t elem = (uint32_t)tutti_type_bytes(e->job.type);
    uint32_t *workers = tt_new(&w->mem, c->n, sizeof(*workers));
    if (!workers)
        return refuse(w, TUTTI_ENOMEM, "out of memory for a group");
    memcpy(workers, c->workers, c->n * sizeof(*workers));
    e->group = c->id;
    e->me = c->me;
    e->shape = (tt_worker_shape){.workers = workers,
                                 .n = c->n,
                                 .is_inside = c->is_inside,
                                 .bytes = e->job.count * elem};
    e->job.n = c->n;
    e->job.is_even = c->is_even;
    e->job.weight = c->members[c->me].weight;
    e->key = key_of(w, &e->shape, e->me, e->job.count, elem);
    if (c->n > 1 && e->job.count > 0)
        e->bond = find_bond(w, e->key);
    return TUTTI_OK;
}

static uint64_t fingerprint(const tt_crew *c, const tt_job *job)
{
    uint64_t hash = tt_fnv1a_u64(TT_FNV1A_START, c->id);
    hash = tt_fnv1a_u64(hash, job->bucket);
    hash = tt_fnv1a_u64(hash, job->o.count);
    hash = tt_fnv1a_u64(hash, (uint64_t)job->o.type);
    hash = tt_fnv1a_u64(hash, job->b ? job->b->window : 0);
    return tt_fnv1a_u64(hash, job->o.bond ? job->o.bond->id : 0);
}

/* [locked] The group may be over by now. */
static tutti_err hand_in(tt_worker *w, const errand *e, tt_job *job)
{
    tt_crew *c = &w->crew;
    if (w->err)
        return w->err;
    if (c->id != e->group || w->phase != TT_PHASE_GROUP)
        return refuse(w, TUTTI_EINVAL, "the group has ended meanwhile");
    if (c->err)
        return c->err;
    job->bucket = c->n_jobs++;
    job->fingerprint = fingerprint(c, job);
    *c->jobs_end = job;
    c->jobs_end = &job->next;
    if (job->b)
        tt_ties_need(w, job);
    tt_worker_wake(w);
    return TUTTI_OK;
}

tutti_err tt_worker_reduce(tt_worker *w, void *buf, uint64_t count,
                           tutti_type type, tt_worker_done done, void *arg)
{
    errand e = {.job = {.buf = buf, .count = count, .type = type}};
    tutti_diag diag;
    tt_job *job = NULL;
    bool is_new = false;
    pthread_mutex_lock(&w->lock);
    tutti_err err = prepare(w, &e);
    pthread_mutex_unlock(&w->lock);
    if (err)
        return err;
    tt_diag_clear(&diag);
    if (!e.bond && e.shape.n > 1 && count > 0) {
        err = make_bond(w, &e.shape, e.me, count,
                        (uint32_t)tutti_type_bytes(type), &e.bond, &diag);
        is_new = !err;
    }
    e.job.bond = e.bond;
    if (!err)
        err = tt_job_create(&e.job, &w->pool, &job);
    pthread_mutex_lock(&w->lock);
    if (is_new)
        keep_bond(w, e.key, e.bond);
    if (err)
        tt_crew_break(w, err, true, "worker %u cannot begin a buffer: %s",
                      w->id, diag.text[0] ? diag.text : tutti_strerror(err));
    if (job) {
        job->done = done;
        job->arg = arg;
    }
    if (!err)
        err = hand_in(w, &e, job);
    if (err && job)
        tt_job_free(job);
    else if (err)
        tt_bond_unref(e.bond);
    pthread_mutex_unlock(&w->lock);
    tt_free(&w->mem, (void *)(uintptr_t)e.shape.workers, e.shape.n,
            sizeof(uint32_t));
    return err;
}

tutti_err tt_worker_commit(tt_worker *w, tt_worker_done done, void *arg)
{
    pthread_mutex_lock(&w->lock);
    tutti_err err = w->err;
    if (w->phase == TT_PHASE_GROUP && w->crew.err) {
        err = w->crew.err;
        tt_crew_end(w);
    } else if (!err && w->phase != TT_PHASE_GROUP) {
        err = refuse(w, TUTTI_EINVAL, "there is no group to commit");
    }
    if (!err) {
        w->phase = TT_PHASE_COMMIT;
        w->done = done;
        w->done_arg = arg;
        tt_crew_advance(w);
        tt_worker_wake(w);
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
    tt_worker_wake(w);
    pthread_mutex_unlock(&w->lock);
}

/* ------------------------------------------------------------- questions -- */

void tt_worker_tell(tt_worker *w, tt_worker_info *out)
{
    pthread_mutex_lock(&w->lock);
    *out = (tt_worker_info){.worker = w->id,
                            .n_workers = w->n,
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
