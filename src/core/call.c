/* SPDX-License-Identifier: BSD-3-Clause
 * call.c - one collective call: check, plan, begin, wait.
 *
 * The check looks only at this rank's own arguments; what other ranks called
 * is compared by the engine when they meet. */
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/clock.h"
#include "core/core.h"

/* A vector may not be longer than this, in bytes: products stay exact. */
static const uint64_t most_bytes = UINT64_C(1) << 48;

typedef enum place_kind { PLACE_APART, PLACE_SAME, PLACE_BAD } place_kind;

/* How the buffers of `call` would lie in a call of this shape. */
static place_kind compare_places(const tt_call_in *shaped,
                                 const tt_call_in *call)
{
    const uint32_t size = shaped->shape.elem_bytes;
    uint64_t in_bytes = shaped->sizes.in_elems * size;
    uint64_t out_bytes = shaped->sizes.out_elems * size;
    uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    if (in_bytes == 0 || out_bytes == 0)
        return PLACE_APART;
    int64_t at = shaped->sizes.in_place_at * (int64_t)size;
    if (out == in + (uintptr_t)at)
        return PLACE_SAME;
    if (in < out + out_bytes && out < in + in_bytes)
        return PLACE_BAD;
    return PLACE_APART;
}

static tutti_err check_sizes(tutti_comm *comm, const tt_shape *s)
{
    const uint64_t most = most_bytes / s->elem_bytes;
    const size_t *lists[] = {s->counts, s->in_counts, s->out_counts};
    uint64_t total = s->count;
    if (total <= most && tt_coll_blocks(s->coll, 2) > 1)
        total *= s->n_ranks;
    bool is_bad = total > most;
    for (size_t i = 0; i < 3 && !is_bad; i++) {
        total = 0;
        for (uint32_t r = 0; lists[i] && r < s->n_ranks && !is_bad; r++) {
            is_bad = lists[i][r] > most;
            total += lists[i][r];
        }
        is_bad |= total > most;
    }
    if (is_bad)
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "%s: more than 2^48 bytes in all",
                            tutti_coll_name(s->coll));
    return TUTTI_OK;
}

/* A message and a barrier are performed as something else. */
static const char *name_of(const tt_call_in *call)
{
    if (call->is_message)
        return tutti_coll_name(TUTTI_SENDRECV);
    return tutti_coll_name(call->is_barrier ? TUTTI_BARRIER : call->shape.coll);
}

static tutti_err check_arguments(tutti_comm *comm, const tt_call_in *call)
{
    const tt_shape *s = &call->shape;
    const char *name = name_of(call);
    tutti_diag diag;
    if (!s->elem_bytes)
        return tt_comm_fail(comm, TUTTI_EINVAL, "%s: %d is no type", name,
                            (int)call->type);
    if (tt_coll_reduces(s->coll) && tt_op_check(call->op, call->type, &diag))
        return tt_comm_fail(comm, TUTTI_EINVAL, "%s: %s", name, diag.text);
    if (tt_coll_has_root(s->coll) && s->root >= s->n_ranks)
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "%s: there is no root %" PRId32 " among %" PRIu32
                            " ranks",
                            name, (int32_t)s->root, s->n_ranks);
    if (call->opts && call->opts->size != sizeof(*call->opts))
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "%s: options without TUTTI_CALL_OPTS_INIT", name);
    if (call->opts && !(call->opts->timeout_s >= 0))
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "%s: a timeout is a number of seconds", name);
    if (call->opts && call->opts->tag < 0)
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "%s: tag %d; a tag is 0 or more", name,
                            call->opts->tag);
    tutti_err err = check_sizes(comm, s);
    if (err)
        return err;
    bool lacks_in = !call->in && call->sizes.in_elems > 0;
    if (lacks_in || (!call->out && call->sizes.out_elems > 0))
        return tt_comm_fail(comm, TUTTI_EINVAL, "%s: %s is NULL", name,
                            lacks_in ? "in" : "out");
    if (compare_places(call, call) == PLACE_BAD)
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "%s: in and out overlap in a way that is not in "
                            "place (tutti.h says how each call may be)",
                            name);
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- begin -- */

static tt_call describe(const tt_call_in *call, const tt_plan_entry *entry,
                        bool is_near)
{
    const tt_shape *s = &call->shape;
    uint64_t count = s->count;
    for (uint32_t r = 0; s->counts && r < s->n_ranks; r++)
        count += s->counts[r];
    bool is_pair = call->is_message;
    return (tt_call){
        .is_near = is_near,
        .coll = (uint8_t)(is_pair            ? TUTTI_SENDRECV
                          : call->is_barrier ? TUTTI_BARRIER
                                             : s->coll),
        .type = (uint8_t)call->type,
        .op = (uint8_t)call->op,
        .root = is_pair ? TT_NONE : s->root,
        .count = count,
        .schedule_id = entry->schedule_id,
        .shape = entry->shape,
    };
}

static uint64_t timeout(const tutti_comm *comm, const tutti_call_opts *opts)
{
    if (opts && opts->timeout_s > 0)
        return tt_seconds_to_ns(opts->timeout_s);
    return comm->timeout_ns;
}

static tutti_err team_error(tutti_comm *comm)
{
    const char *text;
    tutti_err err = tt_team_state(comm->team, &text);
    if (err)
        tt_comm_fail(comm, err, "%s", text);
    return err;
}

/* A call after a failure. */
static tutti_err refuse(tutti_comm *comm)
{
    tutti_err err = tt_team_refusal(comm->team, comm->message,
                                    sizeof(comm->message));
    if (err)
        comm->says_own = true;
    return err;
}

/* The blocking call's own outcome; lives on its stack. */
typedef struct result {
    tt_engine *engine;
    tt_gpu_use *gpu;
    _Atomic int flag;
    tutti_err err;
} result;

static void set_result(void *arg, tutti_err err)
{
    result *r = arg;
    tt_engine *e = r->engine;
    if (TT_UNLIKELY(r->gpu != NULL))
        tt_gpu_done(r->gpu, err);
    r->err = err;
    /* From here on *r may be gone; the lock keeps the engine. */
    atomic_store_explicit(&r->flag, 1, memory_order_release);
    tt_engine_wake(e);
}

static bool has_result(const void *arg)
{
    const result *r = arg;
    return atomic_load_explicit(&r->flag, memory_order_acquire) != 0;
}

void tt_comm_end(tutti_comm *comm, tutti_err err, const char *text)
{
    tt_engine_lock(comm->engine);
    tt_team_fail(comm->team, err, comm->rank, text);
    tt_engine_flush(comm->engine);
    tt_engine_unlock(comm->engine);
}

void tt_comm_call_off(tutti_comm *comm, tutti_err err)
{
    char text[200];
    snprintf(text, sizeof(text), "rank %u cannot call %.150s", comm->rank,
             comm->message);
    tt_comm_end(comm, err, text);
}

static bool is_seen_alike(tutti_err err)
{
    return err == TUTTI_ENOFIT || err == TUTTI_ECONFIG || err == TUTTI_EINVAL ||
           err == TUTTI_ELIMIT;
}

/* A call that this rank cannot make. Where every rank sees the same (no planner
 * fits) it ends there. */
static tutti_err give_up(tutti_comm *comm, tutti_err err,
                         const tt_call_in *call, const char *why)
{
    tt_comm_fail(comm, err, "%s: %s", name_of(call), why);
    if (!is_seen_alike(err))
        tt_comm_call_off(comm, err);
    return err;
}

/* The same, because of its plan. A file is not the same on all hosts unless
 * somebody has seen to it. */
static tutti_err give_up_plan(tutti_comm *comm, tutti_err err,
                              const tt_call_in *call, const char *rule,
                              const char *why)
{
    give_up(comm, err, call, why);
    if (is_seen_alike(err) && strstr(rule, "file:"))
        tt_comm_call_off(comm, err);
    return err;
}

/* Begins, and waits for a result if there is one to wait for. */
static tutti_err begin_locked(tutti_comm *comm, const tt_call_in *call,
                              tt_op_start *start, result *r)
{
    tt_engine_lock(comm->engine);
    tutti_err err = refuse(comm);
    bool is_well = !err;
    if (is_well && call->is_observed)
        comm->observer->begins(comm, call, start);
    if (is_well)
        err = call->is_message ? tt_message_begin(comm, call, start)
                               : tt_op_begin(comm->team, start);
    if (is_well && err && call->is_observed)
        comm->observer->failed(comm, start, err);
    if (!err && r) {
        tt_engine_see_through(comm->engine, has_result, r);
        if (r->err)
            team_error(comm);
    } else if (!err) {
        tt_engine_kick(comm->engine, call->opts && call->opts->waits);
    }
    tt_engine_unlock(comm->engine);
    if (err && is_well)
        give_up(comm, err, call, tutti_strerror(err));
    return err;
}

/* use: NULL: it is on host memory. */
static tutti_err run_blocking(tutti_comm *comm, const tt_call_in *call,
                              tt_op_start *start, tt_gpu_use *use)
{
    result r = {.engine = comm->engine, .gpu = use};
    start->done = set_result;
    start->arg = &r;
    start->is_awaited = true;
    tutti_err err = begin_locked(comm, call, start, &r);
    if (TT_UNLIKELY(use != NULL))
        tt_gpu_forget(use);
    return err ? err : r.err;
}

static tutti_err run_async(tutti_comm *comm, const tt_call_in *call,
                           tt_op_start *start, tt_gpu_use *use)
{
    tutti_request *req;
    tutti_err err = tt_request_create(comm, call->opts, use, start, &req);
    if (err) {
        tt_gpu_forget(use);
        return give_up(comm, err, call, "no memory or thread for a request");
    }
    /* A callback may want it before this returns. */
    *call->req = req;
    err = begin_locked(comm, call, start, NULL);
    if (err) {
        *call->req = NULL;
        tt_request_drop(req);
    }
    return err;
}

/* On GPUs within each other's reach by what needs no message, where it goes so
 * far: that follows from the call, and is the same on all ranks. */
static tutti_err find_plan(tutti_comm *comm, tt_want *want, tt_gpu_use *use,
                           tt_plan_entry **entry, tutti_diag *diag)
{
    if (tt_gpu_is_near(&use->call)) {
        const char *rule = want->planner;
        want->is_near = true;
        want->planner = "direct";
        tutti_err err = tt_comm_plan(comm, want, entry, diag);
        if (err != TUTTI_ENOFIT && (err || (*entry)->is_within))
            return err;
        use->call.way = &tt_way_stage;
        want->is_near = false;
        want->planner = rule;
    }
    return tt_comm_plan(comm, want, entry, diag);
}

/* Finds the plan of a call; *start lacks who is told when it is over. */
static tutti_err prepare(tutti_comm *comm, tt_call_in *call, const char *rule,
                         tt_op_start *start, tt_gpu_use *use)
{
    tutti_diag diag;
    const tutti_call_opts *opts = call->opts;
    const tt_shape *s = &call->shape;
    comm->last_call.is_kept = false; /* its plan may go */
    bool is_scaled = call->op == TUTTI_SCALED_SUM && tt_coll_reduces(s->coll);
    bool is_same = compare_places(call, call) == PLACE_SAME;
    tt_want want = {
        .shape = s,
        .total_bytes = call->sizes.total_bytes,
        .is_pair = call->is_message,
        .copies_input = is_scaled || (is_same && s->coll == TUTTI_ALL_TO_ALL),
        .planner = rule,
    };
    want.in_place = is_same && !want.copies_input;
    tt_plan_entry *entry;
    tutti_err err = find_plan(comm, &want, use, &entry, &diag);
    if (err)
        return give_up_plan(comm, err, call, rule, diag.text);
    *start = (tt_op_start){
        .program = entry->program,
        .call = describe(call, entry, tt_gpu_is_near(&use->call)),
        .in = call->in,
        .out = call->out,
        .in_elems = call->sizes.in_elems,
        .copies_input = want.copies_input,
        .scale = opts ? opts->scale : 1,
        .priority = opts ? opts->priority : 0,
        .now_ns = tt_now_ns(),
    };
    call->expected_s = entry->expected_s;
    if (call->is_observed)
        call->is_observed = entry->expected_s > 0 || !comm->observer->expect;
    if (TT_UNLIKELY(use->gpu != NULL))
        err = tt_gpu_begin(call, !want.in_place, use, start, &diag);
    if (!err)
        return TUTTI_OK;
    give_up(comm, err, call, diag.text);
    /* The others' memory may be such that it can be used. */
    if (is_seen_alike(err))
        tt_comm_call_off(comm, err);
    return err;
}

/* ----------------------------------------------------------------- again -- */

/* The call has been found right, and may be made again. What others see of it,
 * or what depends on more than its arguments, is looked at anew each time. */
static void keep(tutti_comm *comm, const tt_call_in *call,
                 const tt_op_start *start)
{
    tt_last_call *last = &comm->last_call;
    const tutti_call_opts *opts = call->opts;
    const char *planner = opts && opts->planner ? opts->planner : "";
    if (call->is_message || call->is_observed || call->shape.counts ||
        call->shape.in_counts || !call->in || !call->out ||
        (opts && opts->on_device) || strlen(planner) >= sizeof(last->planner))
        return;
    last->is_kept = true;
    last->is_in_place = compare_places(call, call) == PLACE_SAME;
    last->call = *call;
    if (opts)
        last->opts = *opts;
    strcpy(last->planner, planner);
    last->start = *start;
}

/* All of them that a blocking call on host memory looks at. */
static bool has_same_opts(const tt_last_call *last, const tutti_call_opts *opts)
{
    const tutti_call_opts *o = &last->opts;
    if (!opts || !last->call.opts)
        return opts == last->call.opts;
    if (opts->size != o->size || opts->priority != o->priority ||
        opts->timeout_s != o->timeout_s || opts->scale != o->scale ||
        opts->tag != o->tag || opts->on_device != o->on_device)
        return false;
    return opts->planner
               ? o->planner && strcmp(opts->planner, last->planner) == 0
               : !o->planner;
}

static bool is_again(const tt_last_call *last, const tt_call_in *call)
{
    const tt_shape *a = &last->call.shape, *b = &call->shape;
    if (!last->is_kept || a->coll != b->coll || a->count != b->count ||
        a->root != b->root || b->counts || b->in_counts ||
        last->call.type != call->type || last->call.op != call->op ||
        last->call.is_barrier != call->is_barrier || call->is_message ||
        call->req || !call->in || !call->out ||
        !has_same_opts(last, call->opts))
        return false;
    return compare_places(&last->call, call) ==
           (last->is_in_place ? PLACE_SAME : PLACE_APART);
}

static tutti_err repeat(tutti_comm *comm, const tt_call_in *call)
{
    tt_op_start *start = &comm->last_call.start;
    start->in = call->in;
    start->out = call->out;
    start->now_ns = 0;
    start->deadline_ns = timeout(comm, call->opts);
    return run_blocking(comm, call, start, NULL);
}

/* ------------------------------------------------------------------- run -- */

static bool is_observed(const tutti_comm *comm, const tt_call_in *call)
{
    return !call->is_message && !call->is_barrier &&
           comm->observer->wants(call->shape.coll, call->sizes.total_bytes);
}

static tutti_err run(tutti_comm *comm, tt_call_in *call, uint64_t timeout_ns)
{
    const tutti_call_opts *opts = call->opts;
    const char *rule = opts && opts->planner ? opts->planner
                                             : comm->agreed.planner;
    tt_op_start start;
    tt_gpu_use use = {.gpu = NULL};
    tutti_err err = TUTTI_OK;
    if (TT_UNLIKELY(opts && opts->on_device))
        err = tt_gpu_look(comm, call, &use);
    if (!err)
        err = prepare(comm, call, rule, &start, &use);
    if (err)
        return err;
    start.deadline_ns = start.now_ns + timeout_ns;
    if (call->req)
        return run_async(comm, call, &start, &use);
    keep(comm, call, &start);
    return run_blocking(comm, call, &start, use.gpu ? &use : NULL);
}

static tutti_err perform(tutti_comm *comm, tt_call_in *call)
{
    uint64_t timeout_ns = timeout(comm, call->opts);
    call->is_observed = false;
    if (!comm->observer || !is_observed(comm, call))
        return run(comm, call, timeout_ns);
    tutti_err err = comm->observer->before(comm);
    if (err)
        return err;
    call->is_observed = true;
    return run(comm, call, timeout_ns);
}

/* What follows from who calls. */
static void measure(const tutti_comm *comm, tt_call_in *call)
{
    call->shape.elem_bytes = (uint32_t)tutti_type_bytes(call->type);
    if (!call->is_message) {
        call->shape.rank = comm->rank;
        call->shape.n_ranks = comm->n_ranks;
    }
    call->sizes = tt_shape_measure(&call->shape);
}

/* One thread at a time. A callback may be so quick that the call it belongs to
 * has not returned yet, so a short while is waited. */
static bool enter(tutti_comm *comm)
{
    uint64_t until = 0;
    while (
        atomic_flag_test_and_set_explicit(&comm->busy, memory_order_acquire)) {
        uint64_t now = tt_now_ns();
        if (until == 0)
            until = now + 2 * TT_NS_PER_MS;
        if (now > until)
            return false;
        sched_yield();
    }
    return true;
}

tutti_err tt_comm_fail(tutti_comm *comm, tutti_err err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(comm->message, sizeof(comm->message), fmt, args);
    va_end(args);
    return err;
}

tutti_err tt_comm_enter(tutti_comm *comm)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    if (!enter(comm))
        return TUTTI_EBUSY;
    comm->message[0] = '\0';
    comm->says_own = false;
    return TUTTI_OK;
}

void tt_comm_leave(tutti_comm *comm)
{
    atomic_flag_clear_explicit(&comm->busy, memory_order_release);
}

tutti_err tt_comm_call_inner(tutti_comm *comm, tt_call_in *call)
{
    call->is_observed = false;
    measure(comm, call);
    tutti_err err = run(comm, call, comm->timeout_ns);
    comm->last_call.is_kept = false; /* a program's may have to be observed */
    return err;
}

tutti_err tt_comm_call(tutti_comm *comm, tt_call_in *call)
{
    tutti_err err = tt_comm_enter(comm);
    if (err)
        return err;
    if (TT_UNLIKELY(!is_again(&comm->last_call, call))) {
        measure(comm, call);
        err = check_arguments(comm, call);
        if (!err)
            err = perform(comm, call);
    } else {
        err = repeat(comm, call);
    }
    if (err)
        tt_comm_tell_calls(comm);
    tt_comm_leave(comm);
    return err;
}
