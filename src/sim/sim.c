/* SPDX-License-Identifier: BSD-3-Clause
 * sim.c - the event core: what a schedule does, whatever the network is.
 *
 * Idea       The same counters as the engine's (walk/machine.c), for all ranks
 *            at once. A lane whose next slice may go enters the heap of its
 *            connection; an idle connection takes the least (position, step,
 *            chunk), or (step, position, chunk), and hands it to the network
 *            model; what arrives makes its group complete, is reduced,
 *            releases the lanes that pass it on, and gives credit back.
 * Slice k of a lane may go when the group before it has done slice k, k < W +
 *            slices known to be consumed, the front window reaches it (own
 *            data only), and in lockstep its step is open.
 * Credit     is given back every W/2 slices, as by the engine, and is as long
 *            on its way as the route's latency; it takes no bandwidth.
 * Reducing   a rank reduces one slice of one group at a time, in the order in
 *            which they become complete: gamma seconds per byte and input.
 *            Copies take no time. A write waits for no send of the same data:
 *            staging is free.
 * Overhead   a rank prepares one slice at a time.
 * Time       events at one moment (to 1e-12 of the time) happen together,
 *            then connections choose, then the network shares: choices do not
 *            hang on the order of rounding errors.
 * Cost       O(log) per event; 3 or 4 events per slice and link.
 * Next       fluid.c, packet.c. */
#include "sim/world.h"

#include <math.h>
#include <stdlib.h>

#include "base/heap.h"

static const double same_time = 1e-12;
static const uint64_t tell_every = 1 << 16;

/* Room for one more than n. */
static void *grow(tt_sim_world *w, void *list, size_t *cap, size_t n,
                  size_t size)
{
    if (n == *cap && !w->err) {
        list = tt_arena_grow(&w->arena, list, cap, n + 1, size);
        w->err = w->arena.err;
    }
    return list;
}

/* ------------------------------------------------------------- calendar -- */

static bool is_before(const void *arg, const void *a, const void *b)
{
    const tt_sim_event *x = a, *y = b;
    (void)arg;
    return x->at_s < y->at_s || (x->at_s <= y->at_s && x->seq < y->seq);
}

static const tt_heap_items events = {sizeof(tt_sim_event), is_before, NULL};

void tt_sim_at(tt_sim_world *w, double at_s, tt_sim_kind kind, uint32_t id)
{
    tt_sim_calendar *c = &w->calendar;
    c->heap = grow(w, c->heap, &c->cap, c->n, sizeof(*c->heap));
    if (w->err)
        return;
    const tt_sim_event e = {at_s, c->seq++, id, kind};
    tt_heap_push(&events, NULL, c->heap, c->n++, &e);
}

static const tt_sim_event *peek(const tt_sim_world *w)
{
    return w->calendar.n ? &w->calendar.heap[0] : NULL;
}

static void pop(tt_sim_world *w)
{
    tt_sim_calendar *c = &w->calendar;
    tt_heap_pop(&events, NULL, c->heap, c->n--);
}

/* ------------------------------------------------------------ messages -- */

static void push(tt_sim_world *w, tt_sim_list *list, uint32_t value)
{
    list->at = grow(w, list->at, &list->cap, list->n, sizeof(*list->at));
    if (!w->err)
        list->at[list->n++] = value;
}

/* TT_NONE and w->err when there is no memory. */
static uint32_t new_msg(tt_sim_world *w, uint32_t lane, uint32_t slice)
{
    uint32_t m = w->free_msg;
    if (m != TT_NONE) {
        w->free_msg = w->msgs[m].next;
    } else {
        if (w->n_msgs == TT_NONE)
            w->err = TUTTI_ELIMIT;
        w->msgs = grow(w, w->msgs, &w->cap_msgs, w->n_msgs, sizeof(*w->msgs));
        if (w->err)
            return TT_NONE;
        m = (uint32_t)w->n_msgs++;
    }
    w->msgs[m] = (tt_sim_msg){
        .lane = lane, .slice = slice, .next = TT_NONE, .right = TT_NONE};
    return m;
}

static void free_msg(tt_sim_world *w, uint32_t m)
{
    w->msgs[m].next = w->free_msg;
    w->free_msg = m;
}

void tt_sim_carried(tt_sim_world *w, uint32_t link, uint64_t bytes)
{
    w->link_bytes[link] += (double)bytes;
    w->wire_bytes += bytes;
}

/* --------------------------------------------------------- connections -- */

static bool goes_before(const void *arg, const void *a, const void *b)
{
    const tt_sim_ready *x = a, *y = b;
    (void)arg;
    return x->key < y->key || (x->key == y->key && x->lane < y->lane);
}

static const tt_heap_items ready_lanes = {sizeof(tt_sim_ready), goes_before,
                                          NULL};

static void push_ready(tt_sim_world *w, tt_sim_conn *c, tt_sim_ready r)
{
    tt_heap_push(&ready_lanes, NULL, w->heaps + c->heap, c->n_heap++, &r);
}

static uint32_t pop_ready(tt_sim_world *w, tt_sim_conn *c)
{
    const uint32_t lane = w->heaps[c->heap].lane;
    tt_heap_pop(&ready_lanes, NULL, w->heaps + c->heap, c->n_heap--);
    return lane;
}

static void wake_conn(tt_sim_world *w, uint32_t c)
{
    tt_sim_conn *conn = &w->conns[c];
    if (conn->is_busy || conn->is_dirty || conn->n_heap == 0)
        return;
    conn->is_dirty = true;
    push(w, &w->dirty, c);
}

static bool is_ready(const tt_sim_world *w, uint32_t l)
{
    const tt_sim_lane *lane = &w->lanes[l];
    const tt_transfer *t = &w->s->transfers[l];
    const tt_sim_chunk *chunk = &w->chunks[t->chunk];
    const uint32_t window = w->opts->window;
    const uint32_t k = lane->sent;
    if (lane->is_heaped || k == chunk->n_slices ||
        (window && k >= (uint64_t)lane->acked + window))
        return false;
    if (lane->pred != TT_NONE) {
        if (w->groups[lane->pred].done <= k)
            return false;
    } else if (w->window_positions != UINT32_MAX &&
               (uint64_t)k * chunk->stride >=
                   (uint64_t)w->ranks[t->src].front + w->window_positions) {
        return false;
    }
    return tt_sim_gate_open(w, l);
}

void tt_sim_consider(tt_sim_world *w, uint32_t l)
{
    if (!is_ready(w, l))
        return;
    tt_sim_lane *lane = &w->lanes[l];
    const tt_transfer *t = &w->s->transfers[l];
    uint64_t position = (uint64_t)lane->sent * w->chunks[t->chunk].stride;
    uint64_t step = t->step;
    /* At equal keys the lane's number: the order of the schedule. */
    const tt_sim_ready r = {
        .key = w->opts->by_step ? step << 32 | position : position << 32 | step,
        .lane = l,
    };
    lane->is_heaped = true;
    push_ready(w, &w->conns[lane->conn], r);
    wake_conn(w, lane->conn);
}

static void leave(tt_sim_world *w, uint32_t c)
{
    w->msgs[w->conns[c].msg].begin_s = w->now_s;
    w->model->begin(w, c);
}

static void begin_next(tt_sim_world *w, uint32_t c)
{
    tt_sim_conn *conn = &w->conns[c];
    uint32_t l = pop_ready(w, conn);
    tt_sim_lane *lane = &w->lanes[l];
    uint32_t m = new_msg(w, l, lane->sent);
    if (w->err)
        return;
    conn->msg = m;
    conn->is_busy = true;
    lane->is_heaped = false;
    lane->sent++;
    tt_sim_consider(w, l);
    const double overhead_s = w->opts->overhead_s;
    if (overhead_s <= 0) {
        leave(w, c);
        return;
    }
    double *free_at = &w->ranks[conn->src].sends_at;
    *free_at = fmax(*free_at, w->now_s) + overhead_s;
    tt_sim_at(w, *free_at, TT_SIM_LEAVE, c);
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* In order of number, whatever woke them in which order. */
static void begin_all(tt_sim_world *w)
{
    tt_sim_list *dirty = &w->dirty;
    if (dirty->n > 1)
        qsort(dirty->at, dirty->n, sizeof(*dirty->at), compare_u32);
    for (size_t i = 0; i < dirty->n && !w->err; i++) {
        w->conns[dirty->at[i]].is_dirty = false;
        begin_next(w, dirty->at[i]);
    }
    dirty->n = 0;
}

void tt_sim_sent(tt_sim_world *w, uint32_t c)
{
    tt_sim_conn *conn = &w->conns[c];
    tt_sim_msg *msg = &w->msgs[conn->msg];
    const tt_transfer *t = &w->s->transfers[msg->lane];
    msg->sent_s = w->now_s;
    conn->is_busy = false;
    wake_conn(w, c);
    if (msg->slice + 1 == w->chunks[t->chunk].n_slices)
        tt_sim_gate_left(w, msg->lane);
}

/* ------------------------------------------------------------- receives -- */

static void emit(tt_sim_world *w, uint32_t l)
{
    if (!w->arrived_first)
        return;
    uint32_t m = w->arrived_first[l];
    const tt_sim_msg *msg = &w->msgs[m];
    const tt_transfer *t = &w->s->transfers[l];
    const tutti_event_info e = {
        .begin_s = msg->begin_s,
        .sent_s = msg->sent_s,
        .end_s = w->now_s,
        .bytes = tt_sim_slice_bytes(w, l, msg->slice),
        .step = t->step,
        .chunk = t->chunk,
        .src = t->src,
        .dst = t->dst,
        .slice = msg->slice,
        .rail = t->rail,
        .reduces = t->op == TT_XFER_REDUCE,
    };
    w->arrived_first[l] = msg->next;
    free_msg(w, m);
    w->opts->on_event(w->opts->event_ctx, &e);
}

static void give_credit(tt_sim_world *w, uint32_t l, uint32_t consumed)
{
    const uint32_t window = w->opts->window;
    const uint32_t batch = window > 1 ? window / 2 : 1;
    const tt_sim_lane *lane = &w->lanes[l];
    uint32_t n_slices = w->chunks[w->s->transfers[l].chunk].n_slices;
    if (window == 0 || consumed % batch != 0 ||
        n_slices <= (uint64_t)consumed - batch + window)
        return;
    double latency_s = w->conns[lane->conn].latency_s;
    tt_sim_at(w, w->now_s + latency_s, TT_SIM_CREDIT, l);
}

static void take_credit(tt_sim_world *w, uint32_t l)
{
    const uint32_t window = w->opts->window;
    w->lanes[l].acked += window > 1 ? window / 2 : 1;
    tt_sim_consider(w, l);
}

static void finish_slice(tt_sim_world *w, uint32_t g)
{
    tt_sim_group *group = &w->groups[g];
    const uint32_t *ins = w->ins + group->first_in;
    const uint32_t *outs = w->outs + group->first_out;
    const tt_transfer *t = &w->s->transfers[ins[0]];
    const tt_sim_chunk *chunk = &w->chunks[t->chunk];
    const uint32_t done = ++group->done;
    for (uint32_t i = 0; i < group->n_in; i++) {
        emit(w, ins[i]);
        give_credit(w, ins[i], done);
        if (done == chunk->n_slices)
            tt_sim_gate_consumed(w, ins[i]);
    }
    w->n_done += group->n_in;
    if (group->is_result)
        tt_sim_front(w, t->dst, done * chunk->stride - 1);
    for (uint32_t i = 0; i < group->n_out; i++)
        tt_sim_consider(w, outs[i]);
}

/* The lanes on which slice `begun` has come, after a step forward. */
static void recount(tt_sim_world *w, tt_sim_group *group)
{
    const uint32_t *ins = w->ins + group->first_in;
    group->here = 0;
    for (uint32_t i = 0; i < group->n_in; i++)
        group->here += w->lanes[ins[i]].arrived > group->begun;
}

static void begin_slice(tt_sim_world *w, uint32_t g)
{
    tt_sim_group *group = &w->groups[g];
    const uint32_t l = w->ins[group->first_in];
    double seconds = 0;
    if (w->opts->gamma_s_per_byte > 0 && !group->is_copy)
        seconds = w->opts->gamma_s_per_byte * group->n_in *
                  (double)tt_sim_slice_bytes(w, l, group->begun);
    group->begun++;
    recount(w, group);
    if (seconds <= 0) {
        finish_slice(w, g);
        return;
    }
    double *free_at = &w->ranks[w->s->transfers[l].dst].reduces_at;
    *free_at = fmax(*free_at, w->now_s) + seconds;
    tt_sim_at(w, *free_at, TT_SIM_REDUCE, g);
}

/* All that can go on at group g, and then at those after it. */
static void go_on(tt_sim_world *w, uint32_t g)
{
    for (;; g++) {
        const tt_sim_group *group = &w->groups[g];
        const uint32_t before = group->done;
        while (group->here == group->n_in &&
               (!group->has_prev || group[-1].done > group->begun))
            begin_slice(w, g);
        if (!group->has_next || group->done == before)
            return;
    }
}

void tt_sim_arrived(tt_sim_world *w, uint32_t m)
{
    const uint32_t l = w->msgs[m].lane;
    tt_sim_lane *lane = &w->lanes[l];
    tt_sim_group *group = &w->groups[lane->group];
    if (w->arrived_first) {
        w->msgs[m].next = TT_NONE;
        if (w->arrived_first[l] == TT_NONE)
            w->arrived_first[l] = m;
        else
            w->msgs[w->arrived_last[l]].next = m;
        w->arrived_last[l] = m;
    } else {
        free_msg(w, m);
    }
    group->here += lane->arrived++ == group->begun;
    go_on(w, lane->group);
}

/* ------------------------------------------------------------------ run -- */

static void happen(tt_sim_world *w, const tt_sim_event *e)
{
    switch (e->kind) {
    case TT_SIM_ARRIVE:
        tt_sim_arrived(w, e->id);
        break;
    case TT_SIM_CREDIT:
        take_credit(w, e->id);
        break;
    case TT_SIM_REDUCE:
        finish_slice(w, e->id);
        if (w->groups[e->id].has_next)
            go_on(w, e->id + 1);
        break;
    case TT_SIM_LEAVE:
        leave(w, e->id);
        break;
    default:
        w->model->event(w, e);
        break;
    }
}

static void run(tt_sim_world *w)
{
    const tt_progress progress = {w->opts->progress, w->opts->progress_ctx};
    double end_s = 0;
    uint64_t told = 0, done = 0;
    tt_sim_gates_start(w);
    while (!w->err) {
        begin_all(w);
        w->model->settle(w);
        const tt_sim_event *e = peek(w);
        double next_s = e ? e->at_s : INFINITY;
        if (w->model->next)
            next_s = fmin(next_s, w->model->next(w));
        if (w->err || isinf(next_s))
            break;
        w->now_s = fmax(w->now_s, next_s);
        double until_s = w->now_s + w->now_s * same_time;
        if (w->model->fire)
            w->model->fire(w, until_s);
        while ((e = peek(w)) && e->at_s <= until_s && !w->err) {
            const tt_sim_event now = *e;
            pop(w);
            happen(w, &now);
        }
        end_s = w->n_done > done ? w->now_s : end_s;
        done = w->n_done;
        if (done - told >= tell_every) {
            told = done;
            tt_progress_tell(&progress, "simulating", done, w->n_slices);
        }
    }
    w->now_s = end_s;
}

/* Sound schedules do not get here. */
static tutti_err stuck(const tt_sim_world *w)
{
    uint64_t l = 0;
    for (; l + 1 < w->s->n_transfers; l++)
        if (w->groups[w->lanes[l].group].done <
            w->chunks[w->s->transfers[l].chunk].n_slices)
            break;
    const tt_transfer *t = &w->s->transfers[l];
    tt_fail(w->diag, TUTTI_EPROOF,
            "chunk %u: the transfer from rank %u to rank %u at step %u can "
            "never end",
            t->chunk, t->src, t->dst, t->step);
    tt_diag_at(w->diag, t->src, t->chunk, t->step);
    return TUTTI_EPROOF;
}

/* ------------------------------------------------------------ tt_simulate */

static bool is_number(double x)
{
    return x >= 0 && isfinite(x);
}

static tutti_err check(const tt_sim_world *w)
{
    const tutti_sim_opts *o = w->opts;
    if (w->s->n_ranks != w->t->n_ranks)
        return tt_fail(w->diag, TUTTI_EINVAL,
                       "the schedule is for %u ranks, the topology has %u",
                       w->s->n_ranks, w->t->n_ranks);
    if (!is_number(o->overhead_s) || !is_number(o->gamma_s_per_byte))
        return tt_fail(w->diag, TUTTI_EINVAL,
                       "the overhead and the cost of reducing must be numbers "
                       "of seconds, not negative");
    if (o->lockstep != TUTTI_LOCKSTEP_OFF &&
        o->lockstep != TUTTI_LOCKSTEP_RANK && o->lockstep != TUTTI_LOCKSTEP_ALL)
        return tt_fail(w->diag, TUTTI_EINVAL, "there is no such lockstep (%d)",
                       (int)o->lockstep);
    if (o->lockstep != TUTTI_LOCKSTEP_OFF && o->front_window_bytes)
        return tt_fail(w->diag, TUTTI_EINVAL,
                       "lockstep has no front window: the first step would "
                       "wait for the last");
    return TUTTI_OK;
}

static tutti_err make_arrays(tt_sim_world *w)
{
    const size_t n = w->s->n_transfers;
    w->link_bytes = tt_arena_new(&w->arena, w->t->n_links + (size_t)1,
                                 sizeof(*w->link_bytes));
    if (!w->link_bytes)
        return TUTTI_ENOMEM;
    if (n == 0 || !w->opts->on_event)
        return TUTTI_OK;
    w->arrived_first = tt_arena_new(&w->arena, n, sizeof(uint32_t));
    w->arrived_last = tt_arena_new(&w->arena, n, sizeof(uint32_t));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    for (size_t l = 0; l < n; l++)
        w->arrived_first[l] = TT_NONE;
    return TUTTI_OK;
}

static void report(const tt_sim_world *w, tutti_sim_result *out)
{
    const tutti_schedule *s = w->s;
    double most = 0, sum = 0;
    *out = (tutti_sim_result){.time_s = w->now_s,
                              .busiest_link = TT_NONE,
                              .n_messages = w->n_done,
                              .link_bytes = w->wire_bytes};
    for (uint32_t i = 0; i < w->t->n_links; i++) {
        double busy_s = w->link_bytes[i] / tt_link_bytes_per_s(&w->t->links[i]);
        sum += busy_s;
        if (busy_s > most) {
            most = busy_s;
            out->busiest_link = i;
        }
    }
    for (uint64_t l = 0; l < s->n_transfers; l++)
        out->bytes += w->chunks[s->transfers[l].chunk].n_elems * w->elem_bytes;
    if (w->now_s > 0) {
        out->max_link_utilisation = most / w->now_s;
        out->mean_link_utilisation = sum / w->t->n_links / w->now_s;
    }
}

tutti_err tt_simulate(const tutti_schedule *s, const tutti_topology *t,
                      const tutti_sim_opts *opts, const tt_mem *mem,
                      tutti_sim_result *out, tutti_diag *diag)
{
    tt_sim_world w = {
        .s = s,
        .t = t,
        .opts = opts,
        .mem = mem,
        .diag = diag,
        .arena.mem = mem,
        .free_msg = TT_NONE,
        .model = opts->is_packet ? &tt_sim_packet : &tt_sim_fluid,
    };
    tt_diag_clear(diag);
    tutti_err err = check(&w);
    if (!err)
        err = tt_sim_cut(&w);
    if (!err)
        err = tt_sim_make(&w);
    if (!err)
        err = tt_sim_gates_make(&w);
    if (!err)
        err = make_arrays(&w);
    if (!err)
        err = w.model->open(&w);
    if (!err) {
        run(&w);
        err = w.err;
    }
    if (!err && w.n_done < w.n_slices)
        err = stuck(&w);
    if (!err)
        report(&w, out);
    tt_arena_free(&w.arena);
    if (err == TUTTI_ELIMIT && diag && !diag->text[0])
        tt_fail(diag, err,
                "the simulation is larger than 2^32 messages or "
                "hops at a time");
    if (err == TUTTI_ENOMEM)
        tt_fail(diag, err, "no memory to simulate %llu transfers",
                (unsigned long long)s->n_transfers);
    return err;
}
