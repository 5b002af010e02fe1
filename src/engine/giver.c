/* SPDX-License-Identifier: BSD-3-Clause
 * giver.c - the calls on GPUs that an engine has, and its thread for what the
 * GPU's driver may take its time over.
 *
 * Idea       Whoever drives the engine does not call the driver (stage.c). But
 *            what a call on memory within reach is, is known only when the
 *            others have told where theirs is; and that a GPU has failed only
 *            the driver can tell. This thread asks and gives, without the lock.
 * Order      Calls are given in the order in which they were handed in.
 * Turns      What the GPU is given behind a wait for the host can be called
 *            off, from the outside, while it is given: by who drives, who does
 *            not need the driver for it. tt_gpu_giving says why.
 * List       All calls on GPUs stand in it from their begin to their end. Who
 *            drives looks after them (tt_giver_run()), each by its own way
 *            (tt_gpu_way).
 * Life       The thread begins with the first call on a GPU and ends with the
 *            engine. A communicator's streams are its business until
 *            tt_engine_part_from() has returned.
 * Next       near.c, stage.c: the ways. */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/thread.h"
#include "engine/state.h"

static const uint64_t look_ns = 100 * TT_NS_PER_MS;
/* The GPU is given a call in some microseconds; so much longer for each turn
 * that was called off. */
static const uint64_t patience_ns = 20 * TT_NS_PER_MS;
/* As many as fit below INT32_MAX: hours. */
static const uint64_t most_turns = 2000;

/* ----------------------------------------------------------------- turns -- */

void tt_giver_enter(tt_gpu_call *call, tt_gpu_giving *out)
{
    tt_engine *e = call->engine;
    *out = (tt_gpu_giving){.call = call, .since_ns = tt_now_ns()};
    pthread_mutex_lock(&e->giver.turns);
    out->next = e->giver.givings;
    e->giver.givings = out;
    pthread_mutex_unlock(&e->giver.turns);
}

bool tt_giver_leave(tt_gpu_giving *giving)
{
    tt_gpu_call *call = giving->call;
    tt_engine *e = call->engine;
    pthread_mutex_lock(&e->giver.turns);
    tt_gpu_giving **at = &e->giver.givings;
    while (*at != giving)
        at = &(*at)->next;
    *at = giving->next;
    if (giving->is_off)
        call->turn += TT_GPU_TURN;
    pthread_mutex_unlock(&e->giver.turns);
    return !giving->is_off;
}

/* Results that are stored too early, over the input, too: that must be here. */
static bool is_stuck(const tt_gpu_giving *g, uint64_t now_ns)
{
    const uint64_t turns = g->call->turn / TT_GPU_TURN;
    return turns < most_turns &&
           now_ns - g->since_ns >= patience_ns * (1 + turns) &&
           tt_gpu_has_fetched(g->call);
}

void tt_giver_call_off(tt_engine *e, uint64_t now_ns)
{
    pthread_mutex_lock(&e->giver.turns);
    for (tt_gpu_giving *g = e->giver.givings; g; g = g->next) {
        if (!is_stuck(g, now_ns))
            continue;
        g->is_off = true;
        tt_gpu_go_on(g->call, g->call->turn + TT_GPU_TURN);
    }
    pthread_mutex_unlock(&e->giver.turns);
}

/* ---------------------------------------------------------------- thread -- */

/* A call of which the GPU has not been given all: what it was given ends. */
static void await_part(tt_engine *e, tt_op_gpu *g)
{
    tt_gpu_release(&g->call);
    tt_engine_unlock(e);
    tt_streams_drain(g->call.streams, TT_WORK);
    tt_engine_lock(e);
    atomic_store_explicit(&g->call.words->done, UINT64_MAX,
                          memory_order_release);
}

/* Its kernels; again, if that was called off. False: it was, and the call has
 * failed meanwhile. */
static bool launch(tt_engine *e, tt_op *op, tutti_err *err, tutti_diag *diag)
{
    tt_op_gpu *g = op->gpu;
    tt_gpu_giving giving;
    bool was_begun = false, is_whole = false;
    while (!is_whole && !*err && (!op->walk.is_over || g->is_returning)) {
        tt_giver_enter(&g->call, &giving);
        tt_engine_unlock(e);
        *err = tt_near_launch(op, diag);
        tt_engine_lock(e);
        was_begun = true;
        is_whole = tt_giver_leave(&giving);
    }
    g->is_given = was_begun;
    return is_whole;
}

static void give(tt_engine *e, tt_op *op)
{
    tutti_diag diag = TT_DIAG_NONE;
    tt_op_gpu *g = op->gpu;
    tutti_err err = TUTTI_OK;
    bool is_whole = true;
    e->giver.at = g->call.streams;
    tt_engine_unlock(e);
    err = tt_near_map(op, &diag);
    tt_engine_lock(e);
    tt_near_mapped(op);
    if (!err && !op->walk.is_over)
        tt_near_plan(op);
    /* Others may have done with it by now, and only what stays here is left. */
    if (!err)
        is_whole = launch(e, op, &err, &diag);
    if (err && (!op->walk.is_over || g->is_returning))
        tt_giver_fail(op, err, &diag);
    if (g->is_given && (err || !is_whole))
        await_part(e, g);
    g->is_giving = false;
    e->giver.at = NULL;
    atomic_store_explicit(&g->call.words->is_given, 1, memory_order_release);
    tt_engine_flush(e);
    tt_engine_wake(e);
    tt_engine_ring(e);
}

/* Of one communicator after the other; the list may be another one
 * meanwhile. */
static void look(tt_engine *e)
{
    const tt_op *op = e->gpu_ops;
    uint64_t before = UINT64_MAX;
    while (op) {
        tutti_diag diag = TT_DIAG_NONE;
        tt_streams *streams = op->gpu->call.streams;
        before = op->issue;
        e->giver.at = streams;
        tt_engine_unlock(e);
        tutti_err err = tt_streams_check(streams, &diag);
        tt_engine_lock(e);
        e->giver.at = NULL;
        if (err)
            tt_engine_ring(e);
        op = e->gpu_ops; /* the newest first */
        while (op && (op->issue >= before || op->gpu->call.streams == streams))
            op = op->gpu->next;
    }
}

/* Until there is something to do, without the engine's lock, and then it is
 * asked for as others ask for it: who drives gives way only to them. False: it
 * is time to look. */
static bool rest(tt_engine *e, bool looks)
{
    int rc = 0;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t ns = (uint64_t)until.tv_nsec + look_ns;
    until.tv_sec += (time_t)(ns / TT_NS_PER_S);
    until.tv_nsec = (long)(ns % TT_NS_PER_S);
    tt_engine_unlock(e);
    pthread_mutex_lock(&e->giver.lock);
    while (!e->giver.is_called && rc == 0)
        rc = looks ? pthread_cond_timedwait(&e->giver.called, &e->giver.lock,
                                            &until)
                   : pthread_cond_wait(&e->giver.called, &e->giver.lock);
    e->giver.is_called = false;
    pthread_mutex_unlock(&e->giver.lock);
    tt_engine_lock(e);
    return rc == 0;
}

static void call(tt_engine *e)
{
    pthread_mutex_lock(&e->giver.lock);
    e->giver.is_called = true;
    pthread_cond_signal(&e->giver.called);
    pthread_mutex_unlock(&e->giver.lock);
}

static void *giver_main(void *arg)
{
    tt_engine *e = arg;
    tt_engine_lock(e);
    while (!e->giver.stops) {
        tt_op *op = e->giver.to_give;
        if (op) {
            e->giver.to_give = op->gpu->give_next;
            if (!e->giver.to_give)
                e->giver.last = &e->giver.to_give;
            give(e, op);
        } else if (!rest(e, e->gpu_ops != NULL)) {
            look(e);
        }
        pthread_cond_broadcast(&e->changed); /* tt_engine_part_from() */
    }
    tt_engine_unlock(e);
    return NULL;
}

/* There are calls on GPUs. */
static void need(tt_engine *e)
{
    if (e->giver.runs) {
        if (!e->gpu_ops->gpu->next) /* the first */
            call(e);
        return;
    }
    tt_cond_init(&e->giver.called);
    pthread_mutex_init(&e->giver.lock, NULL);
    e->giver.is_called = false;
    e->giver.to_give = NULL;
    e->giver.last = &e->giver.to_give;
    e->giver.stops = false;
    e->giver.runs = tt_thread_start(&e->giver.thread, giver_main, e) == 0;
    if (!e->giver.runs)
        TT_WARN("there is no thread to look after GPUs");
}

void tt_giver_give(tt_op *op)
{
    tt_engine *e = op->team->mesh->engine;
    op->gpu->give_next = NULL;
    *e->giver.last = op;
    e->giver.last = &op->gpu->give_next;
    call(e);
}

/* Unless it is at it: is_giving. */
static void take_back(tt_op *op)
{
    tt_engine *e = op->team->mesh->engine;
    if (!op->gpu->is_giving)
        return;
    for (tt_op **at = &e->giver.to_give; *at; at = &(*at)->gpu->give_next)
        if (*at == op) {
            *at = op->gpu->give_next;
            if (!*at)
                e->giver.last = at;
            op->gpu->is_giving = false;
            return;
        }
}

void tt_giver_wait(tt_op *op)
{
    tt_engine *e = op->team->mesh->engine;
    while (op->gpu && op->gpu->is_giving)
        pthread_cond_wait(&e->changed, &e->lock);
}

void tt_giver_end(tt_engine *e)
{
    if (!e->giver.runs)
        return;
    tt_engine_lock(e);
    e->giver.stops = true;
    tt_engine_unlock(e);
    call(e);
    pthread_join(e->giver.thread, NULL);
    pthread_cond_destroy(&e->giver.called);
    pthread_mutex_destroy(&e->giver.lock);
    e->giver.runs = false;
}

void tt_engine_bell(void *engine)
{
    tt_engine_ring(engine);
}

/* What waits to be given does not count: its call has ended. */
void tt_engine_part_from(tt_engine *e, const tt_streams *streams)
{
    tt_engine_lock(e);
    while (e->giver.at == streams)
        pthread_cond_wait(&e->changed, &e->lock);
    tt_engine_unlock(e);
}

/* ------------------------------------------------------------------ list -- */

tutti_err tt_giver_begin(tt_op *op, const tt_op_start *start)
{
    tt_op_gpu *g = op->gpu_memory;
    if (!g)
        op->gpu_memory = g = tt_new(op->program->mem, 1, sizeof(*g));
    if (!g)
        return TUTTI_ENOMEM;
    *g = (tt_op_gpu){
        .call = start->gpu,
        .jobs = g->jobs,
        .theirs = g->theirs,
        .scales = start->call.op == TUTTI_SCALED_SUM &&
                  tt_coll_reduces((tutti_coll)start->call.coll),
        .scale = start->scale,
    };
    op->gpu = g;
    return TUTTI_OK;
}

void tt_giver_list(tt_op *op)
{
    tt_engine *e = op->team->mesh->engine;
    op->gpu->next = e->gpu_ops;
    e->gpu_ops = op;
    op->gpu->is_listed = true;
    need(e);
}

void tt_giver_forget(tt_op *op)
{
    if (!op->gpu->is_listed)
        return;
    tt_op **at = &op->team->mesh->engine->gpu_ops;
    while (*at != op)
        at = &(*at)->gpu->next;
    *at = op->gpu->next;
    op->gpu->is_listed = false;
    op->gpu->is_returning = false;
    take_back(op);
    tt_gpu_release(&op->gpu->call); /* it may have failed */
}

void tt_giver_fail(tt_op *op, tutti_err err, const tutti_diag *diag)
{
    char text[300];
    snprintf(text, sizeof(text), "rank %u: %.240s",
             tt_team_name(op->team, op->team->rank), diag->text);
    tt_team_fail(op->team, err, op->team->rank, text);
}

static bool is_sick(tt_op *op)
{
    tutti_diag diag = TT_DIAG_NONE;
    if (!tt_streams_is_broken(op->gpu->call.streams))
        return false;
    tt_giver_fail(op, tt_streams_why(op->gpu->call.streams, &diag), &diag);
    return true;
}

/* After something has moved the list may be another. */
bool tt_giver_run(tt_engine *e)
{
    bool moved = false;
    for (tt_op *op = e->gpu_ops; op;) {
        bool has_moved = op->gpu->call.way->step(op) || is_sick(op);
        moved |= has_moved;
        op = has_moved ? e->gpu_ops : op->gpu->next;
    }
    return moved;
}
