/* SPDX-License-Identifier: BSD-3-Clause
 * drive.c - who drives the engine, and when it sleeps.
 *
 * At any time at most one thread drives: it polls the nets, pulls from memory
 * within reach, pumps, and sleeps in epoll_wait() on the nets' descriptors when
 * nothing has moved for a while. A blocking call drives by itself (no hand-over
 * between threads on the way of a small message); the engine thread drives when
 * asynchronous work is in flight or to answer peers while the program computes.
 * The lock is held while polling, and given up for a moment when another thread
 * wants it, and while asleep.
 *
 * The engine thread keeps out of the way for quiet_ns after a blocking call,
 * so that a loop of blocking calls never wakes it. Where it sleeps while a call
 * is begun it sleeps on until something comes: see tt_engine_kick(). */
#include <sched.h>
#include <sys/epoll.h>

#include "base/bell.h"
#include "base/owncpu.h"
#include "base/thread.h"
#include "engine/state.h"
#include "engine/when.h"

static const uint64_t tick_ns = 10 * TT_NS_PER_MS;
static const uint64_t quiet_ns = 20 * TT_NS_PER_MS;
/* Longest sleep: with calls in flight (deadlines, liveness) or of late, and
 * without. */
static const uint64_t sleep_active_ns = 100 * TT_NS_PER_MS;
static const uint64_t sleep_idle_ns = TT_NS_PER_S;
/* The same while a transport has no room: it rings when it has, but this is
 * not the place to rely on it; and while ops are held. */
static const uint64_t sleep_full_ns = 10 * TT_NS_PER_MS;
/* And while calls have not told all partners that they are there, or GPUs are
 * at work, which do not ring each time. */
static const uint64_t sleep_silent_ns = TT_NS_PER_MS;

/* ------------------------------------------------------------------ pass -- */

static void run_news(tt_engine *e)
{
    e->has_news = false; /* there may be more */
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next)
        tt_mesh_run(mesh);
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next)
        for (tt_team *team = mesh->teams; team; team = team->next)
            tt_any_serve(team);
}

/* One slice, of the first call that has one, from where a partner has it. */
static bool pull(tt_engine *e)
{
    while (e->work) {
        tt_op *op = e->work;
        if (tt_walk_pull(&op->walk))
            return true;
        tt_within_forget(op);
    }
    return false;
}

static bool pass(tt_engine *e, bool has_event)
{
    bool moved = false;
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next) {
        uint32_t n = has_event ? mesh->n_nets : mesh->n_busy;
        for (uint32_t i = 0; i < n; i++)
            moved |= mesh->nets[i]->ops->progress(mesh->nets[i], has_event);
    }
    if (e->has_news)
        run_news(e);
    if (TT_UNLIKELY(e->gpu_ops != NULL))
        moved |= tt_giver_run(e);
    moved |= pull(e);
    tt_engine_flush(e);
    return moved;
}

/* What has come is heard before anybody is judged by the clock: this process
 * may have had no processor for long. */
bool tt_engine_step(tt_engine *e)
{
    bool moved = pass(e, true);
    tt_engine_tick(e, tt_now_ns());
    tt_engine_flush(e);
    return moved;
}

static void tick(tt_engine *e)
{
    uint64_t now = tt_now_ns();
    if (now - e->tick_ns < tick_ns)
        return;
    e->tick_ns = now;
    tt_engine_step(e);
}

/* Returns false when something is there already: do not sleep. */
static bool arm_all(tt_engine *e, bool on)
{
    bool is_quiet = true;
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next)
        for (uint32_t i = 0; i < mesh->n_busy; i++)
            is_quiet &= mesh->nets[i]->ops->arm(mesh->nets[i], on);
    return is_quiet;
}

/* The longest that a sleep may last now. */
static uint64_t sleep_ns(const tt_engine *e)
{
    if (e->n_unsaid > 0 || e->gpu_ops)
        return sleep_silent_ns;
    if (e->dirty || e->held)
        return sleep_full_ns;
    /* A GPU may be given a call: tt_giver_call_off(). */
    return e->n_active > 0 || e->was_active || e->giver.runs ? sleep_active_ns
                                                             : sleep_idle_ns;
}

/* Something was changed while others sleep. What wakes them was set up for what
 * was to come then: what a transport rings for depends on what it has been
 * given (a payload that it reads in place, say), and the time on what was in
 * flight.
 * So it is set up anew, as before a sleep, and they are woken only where they
 * would not have gone to sleep now, or not for so long. They see no less than
 * if they had begun to sleep at this moment: the flags are set before anything
 * is looked at, and the lock is held. One that has been woken and does not have
 * the lock yet takes the flags back after this, and looks at everything. */
static bool can_sleep_on(tt_engine *e)
{
    e->was_active |= e->n_active > 0;
    return !e->dirty && !e->work && !e->has_news &&
           tt_now_ns() + sleep_ns(e) >= e->wakes_ns && arm_all(e, true);
}

static inline void kick(tt_engine *e, bool waits)
{
    bool drives = waits && !e->is_driven; /* it will look itself */
    if (e->n_sleeping > 0 && (drives ? e->dirty || e->work : !can_sleep_on(e)))
        tt_engine_ring(e);
    if (!waits && !e->is_driven && e->is_quiet)
        pthread_cond_broadcast(&e->changed);
}

void tt_engine_kick(tt_engine *e, bool waits)
{
    kick(e, waits);
}

void tt_engine_poke(tt_engine *e)
{
    if (pthread_mutex_trylock(&e->lock) != 0)
        return;
    e->rest_ns = 0;
    bool moved = !e->is_driven && pass(e, false);
    tt_engine_kick(e, !moved || e->n_active == 0);
    pthread_mutex_unlock(&e->lock);
}

static bool has_last_words(const tt_peer *peer)
{
    bool is_reached = !peer->mesh->is_open || peer->conn != &peer->none;
    return is_reached && !peer->is_lost && peer->n_ctl > 0;
}

/* Gives the last control messages (BYE, ABORT) a moment to get out. */
static void drain(tt_mesh *mesh)
{
    tt_engine *e = mesh->engine;
    uint64_t until = tt_now_ns() + TT_NS_PER_S;
    bool busy = true;
    tt_engine_flush(e);
    while (busy && tt_now_ns() < until) {
        busy = false;
        for (uint32_t i = 0; i < mesh->n_peers; i++)
            busy |= has_last_words(&mesh->peers[i]);
        if (busy)
            tt_engine_step(e);
    }
}

void tt_mesh_unref(tt_mesh *mesh)
{
    if (!mesh)
        return;
    tt_engine *e = mesh->engine;
    tt_engine_lock(e);
    bool is_last = --mesh->n_refs == 0;
    if (is_last) {
        drain(mesh);
        tt_mesh_detach(mesh);
    }
    tt_engine_unlock(e);
    if (is_last)
        tt_mesh_end(mesh);
}

/* ----------------------------------------------------------------- sleep -- */

static void record_sleep(const tt_engine *e, uint64_t from_ns)
{
    tt_mark *r = tt_trail_next(e->trail);
    if (!r)
        return;
    r->t_ns = from_ns;
    r->until_ns = tt_now_ns();
    r->kind = TT_MARK_ASLEEP;
}

/* Sleeps until something happens; the lock is given up meanwhile. Two threads
 * may sleep at a time (the engine thread listens while a wait sleeps). They
 * share descriptors, so what wakes one may be gone before the other looks: who
 * wakes first wakes the other, and the last one disarms. */
static void sleep_once(tt_engine *e)
{
    const uint64_t ns = sleep_ns(e);
    e->wakes_ns = tt_now_ns() + ns;
    e->n_sleeping++;
    if (arm_all(e, true) && !e->work && !e->has_news) {
        struct epoll_event event;
        const uint64_t from_ns = e->trail ? tt_now_ns() : 0;
        pthread_mutex_unlock(&e->lock);
        int n = epoll_wait(e->epoll_fd, &event, 1, (int)(ns / TT_NS_PER_MS));
        tt_engine_lock(e);
        if (e->trail && from_ns > 0 && e->n_active > 0)
            record_sleep(e, from_ns);
        if (n > 0 && event.data.fd == e->wake_fd)
            tt_bell_hear(e->wake_fd); /* perhaps another sleeper was faster */
        if (n == 0)
            e->was_active = e->n_active > 0;
    }
    if (--e->n_sleeping == 0)
        arm_all(e, false);
    else
        tt_engine_ring(e);
}

/* ----------------------------------------------------------------- drive -- */

typedef struct spin {
    uint64_t idle_since_ns; /* 0: something moved just now */
    uint32_t idle_passes;
    uint32_t polls; /* of them before the processor is offered to others */
    bool is_aside;  /* by the engine's thread, or long */
} spin;

static void has_moved(spin *s)
{
    s->idle_since_ns = 0;
    s->idle_passes = 0;
}

/* How long to poll before the next sleep. */
static uint64_t spin_of(const tt_engine *e, const spin *s)
{
    uint64_t ns = e->n_large > 0 ? e->opts.spin_large_ns : e->opts.spin_ns;
    if (s->is_aside && e->n_waits == 0 && ns > e->opts.spin_aside_ns)
        return e->opts.spin_aside_ns;
    return ns;
}

/* The mutex is not fair: wait until the others have had it, but not long. */
static void give_way(tt_engine *e)
{
    if (atomic_load_explicit(&e->n_waiting, memory_order_relaxed) == 0)
        return;
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < 50; i++) {
        sched_yield();
        if (atomic_load_explicit(&e->n_waiting, memory_order_relaxed) == 0)
            break;
    }
    tt_engine_lock(e);
}

/* Polls between two looks at the clock, and before the processor is offered
 * to others. Two ranks that the kernel has put on one processor would otherwise
 * each poll until it sleeps, and so never be seen running at the same time and
 * moved apart. */
static const uint32_t polls_per_yield = 256;
/* The least time from one move home to the next. */
static const uint64_t home_gap_ns = TT_NS_PER_MS;

/* Of a small call. A neighbour can only run when this rank does not. Who has
 * lent something to others waits for their turn, too. */
static uint32_t polls_of_small(const tt_engine *e, const tt_op *op)
{
    bool lends = false;
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        const tt_peer *peer = op->sides[p].peer;
        lends |= peer->n_lent > 0;
        if (peer->shares_home && tt_walk_waits_for(&op->walk, p))
            return 1;
    }
    return !lends && e->opts.apart_polls > 0 ? e->opts.apart_polls
                                             : e->opts.crowd_polls;
}

/* Where several calls are open the newest stands for all: it is what most waits
 * are for, and a wrong guess costs some polls. */
static uint32_t polls_of(const tt_engine *e)
{
    if (e->opts.crowd_polls == 0)
        return polls_per_yield;
    if (!e->newest || tt_op_is_large(e->newest) || e->opts.home_cpu == 0)
        return e->opts.crowd_polls;
    return polls_of_small(e, e->newest);
}

/* After a pass that moved nothing: true when it is time to sleep. */
static bool rest(tt_engine *e, spin *s)
{
    if (s->is_aside && e->n_active == 0)
        return true;
    if (s->idle_passes == 0)
        s->polls = polls_of(e);
    if (++s->idle_passes % s->polls != 0) {
        TT_CPU_RELAX();
        return false;
    }
    e->n_rests++;
    pthread_mutex_unlock(&e->lock);
    sched_yield();
    tt_engine_lock(e);
    const uint64_t now = tt_now_ns();
    e->rest_ns = now;
    e->rest_pass = e->n_passes;
    if (e->undated)
        tt_op_date(e, now);
    if (s->idle_since_ns == 0)
        s->idle_since_ns = now;
    return now - s->idle_since_ns >= spin_of(e, s);
}

/* Where ranks share processors: a wait that drives, now and then. */
static void go_home(tt_engine *e)
{
    const uint32_t cpu = e->opts.home_cpu - 1;
    if (e->opts.crowd_polls == 0 || e->opts.home_cpu == 0 || !e->ready ||
        !tt_owncpu_is_away(cpu))
        return;
    const uint64_t now = tt_now_ns();
    if (now - e->home_ns < home_gap_ns)
        return;
    e->home_ns = now;
    pthread_mutex_unlock(&e->lock);
    const bool is_free = tt_owncpu_return(cpu);
    tt_engine_lock(e);
    e->rest_ns = 0;
    if (!is_free)
        e->opts.home_cpu = 0;
}

/* Before a sleep: who hears nothing may be waiting for a word. */
static void speak(tt_engine *e)
{
    tt_engine_speak(e, tt_now_ns());
    tt_engine_flush(e);
}

/* One round of driving: a pass, and what follows from it. */
static void drive(tt_engine *e, spin *s)
{
    give_way(e);
    if (++e->n_passes % 1024 == 0)
        tick(e); /* even a busy engine must see deadlines */
    if (pass(e, false)) {
        has_moved(s);
        return;
    }
    if (!rest(e, s))
        return;
    if (e->n_unsaid > 0)
        speak(e);
    /* It may have come while the lock was given up to rest; and the word of it
     * may have woken the engine's thread instead, which sleeps, too. */
    if (tt_engine_is_served(e))
        return;
    sleep_once(e);
    go_home(e);
    tick(e);
    pass(e, true);
    has_moved(s);
}

static void wait_locked(tt_engine *e, bool (*ready)(const void *arg),
                        const void *arg, bool is_long)
{
    if (ready(arg))
        return; /* the engine thread still has to listen */
    while (!ready(arg)) {
        if (e->is_driven) {
            e->n_waits++;
            pthread_cond_wait(&e->changed, &e->lock);
            e->n_waits--;
            e->rest_ns = 0;
            continue;
        }
        e->is_driven = true;
        e->ready = ready;
        e->ready_arg = arg;
        if (e->n_sleeping > 0)
            arm_all(e, false); /* who polls need not be rung for */
        go_home(e);
        spin s = {.is_aside = is_long};
        while (!ready(arg))
            drive(e, &s);
        e->is_driven = false;
        e->ready = NULL;
    }
    e->was_inline = true;
    if (e->n_waits > 0)
        pthread_cond_broadcast(&e->changed); /* another wait takes over */
    else if (e->n_active > 0 || e->n_sleeping > 0)
        tt_engine_kick(e, false); /* the engine's thread takes over */
}

void tt_engine_wait_locked(tt_engine *e, bool (*ready)(const void *arg),
                           const void *arg)
{
    wait_locked(e, ready, arg, false);
}

void tt_engine_see_through(tt_engine *e, bool (*ready)(const void *arg),
                           const void *arg)
{
    kick(e, true);
    tt_engine_wait_locked(e, ready, arg);
}

void tt_engine_wait(tt_engine *e, bool (*ready)(const void *arg),
                    const void *arg, bool is_long)
{
    if (ready(arg))
        return;
    tt_engine_lock(e);
    wait_locked(e, ready, arg, is_long);
    tt_engine_unlock(e);
}

static bool holds_nothing(const void *arg)
{
    return ((const tt_team *)arg)->n_held == 0;
}

void tt_team_leave(tt_team *team)
{
    tt_engine *e = team->mesh->engine;
    if (e->over) {
        team->leaving_next = e->leaving;
        e->leaving = team;
        return;
    }
    if (tt_team_take_leave(team, false))
        return;
    tt_engine_wait_locked(e, holds_nothing, team);
    tt_team_free(team);
}

/* ---------------------------------------------------------------- thread -- */

static void keep_quiet(tt_engine *e)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    uint64_t until = (uint64_t)at.tv_nsec + quiet_ns;
    at.tv_sec += (time_t)(until / TT_NS_PER_S);
    at.tv_nsec = (long)(until % TT_NS_PER_S);
    e->is_quiet = true;
    pthread_cond_timedwait(&e->changed, &e->lock, &at);
    e->about_ns = tt_now_ns();
    e->rest_ns = 0;
    e->is_quiet = false;
}

static void *thread_main(void *arg)
{
    tt_engine *e = arg;
    spin s = {.is_aside = true};
    tt_engine_lock(e);
    while (!e->stops) {
        bool was_inline = e->was_inline;
        e->was_inline = false;
        if (e->is_driven || (was_inline && e->n_active == 0)) {
            keep_quiet(e);
        } else if (e->n_active > 0) {
            drive(e, &s);
        } else {
            sleep_once(e);
            if (!e->is_driven)
                tt_engine_step(e);
        }
    }
    tt_engine_unlock(e);
    return NULL;
}

tutti_err tt_engine_start(tt_engine *e, tutti_diag *diag)
{
    int rc = tt_thread_start(&e->thread, thread_main, e);
    if (rc != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, rc,
                             "cannot start the engine thread");
    e->has_thread = true;
    return TUTTI_OK;
}
