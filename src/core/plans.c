/* SPDX-License-Identifier: BSD-3-Clause
 * plans.c - from a call to what the engine performs, cached.
 *
 *   call --choose--> planner --build--> schedule --verify--> proof
 *        --extract--> part (kept per planner, collective, root)
 *        --bind--> bound part (kept per exact shape; the least recently
 *                  used goes)
 *
 * Planners are pure and every rank gives them the same problem, so every rank
 * plans by itself and gets the same bytes; the schedule's id is part of what
 * ranks compare when they meet in a call. Nothing unproven is performed.
 * Next: plan/choose.c, walk/lower.h, call.c. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "base/trail.h"
#include "base/units.h"
#include "bound/bound.h"
#include "core/core.h"
#include "plan/plan.h"
#include "verify/verify.h"

/* Where ranks wait for processors more slices of a transfer may be on the way
 * than the usual ones. */
static const uint32_t crowd_window = 16;

static uint32_t slices_ahead(const tutti_comm *comm)
{
    if (comm->agreed.window > 0)
        return (uint32_t)comm->agreed.window;
    return comm->agreed.is_crowded ? crowd_window : TT_USUAL_WINDOW;
}

/* Costs that were measured hold where they were: within a host, or across. */
static tt_place place_of(const tutti_comm *comm)
{
    const tt_agreed *a = &comm->agreed;
    tt_place here = {
        .is_inside = a->n_hosts == 1,
        .is_memory = a->n_hosts == 1 && a->is_by_memory,
        .is_crowded = a->is_crowded,
        .is_paired = a->is_paired,
        .crowd = a->crowd,
        .cpus = a->shared_cpus,
    };
    if (a->costs_are_inside == here.is_inside)
        here.costs = a->costs;
    return here;
}

/* --------------------------------------------------------------- cutting -- */

static tt_cutting cutting_of(const tutti_comm *comm)
{
    const tt_place here = place_of(comm);
    tt_cutting c = {
        .front_bytes = comm->agreed.front_bytes,
        .front_window_bytes = comm->agreed.front_window_bytes,
        .staging_max_bytes = comm->agreed.staging_max_bytes,
        .window = slices_ahead(comm),
        .max_payload = comm->agreed.max_payload,
    };
    tt_plan_cut_for(&c, &here, !comm->topology);
    /* On fast links only transports in use bound a message; elsewhere long ones
     * gain nothing, and who passes one on waits until it is whole. */
    if (c.message_bytes > 0)
        c.max_payload = comm->agreed.used_payload;
    return c;
}

/* Whether what the ranks of this host put in and get out is more than their
 * cache holds. */
static bool exceeds_cache(const tutti_comm *comm, uint64_t total)
{
    uint64_t n_here = 0;
    for (uint32_t r = 0; r < comm->n_ranks; r++)
        n_here += comm->hosts[r] == comm->hosts[comm->rank];
    return total >= comm->agreed.cache_bytes / (2 * n_here);
}

/* ----------------------------------------------------------------- parts -- */

/* Without collective, ranks and size. Errors: ENOMEM. */
static tutti_err blank_problem(const tutti_comm *comm, tt_problem *p)
{
    const tt_place here = place_of(comm);
    *p = (tt_problem){
        .topology = comm->topology,
        .routes = comm->routes,
        .cutting = cutting_of(comm),
    };
    return tt_plan_charge(p, &here);
}

static tutti_err problem_of(const tutti_comm *comm, const tt_want *want,
                            tt_problem *p)
{
    const tt_shape *shape = want->shape;
    tutti_err err = blank_problem(comm, p);
    p->shelf = &comm->written.shelf;
    p->collective = shape->coll;
    p->n_ranks = shape->n_ranks;
    p->root = shape->root;
    p->size_bytes = want->total_bytes;
    if (shape->coll == TUTTI_ALL_TO_ALL)
        p->size_bytes /= shape->n_ranks;
    return err;
}

/* On a known network a schedule is made for the class, by what 2^class bytes
 * need, and serves all of it: planning takes long there. */
uint8_t tt_comm_size_class(uint64_t size_bytes)
{
    uint8_t class = 1;
    while (class < 63 && (UINT64_C(1) << class) < size_bytes)
        class ++;
    return class;
}

/* For `tutti trace`, which predicts by it. */
static void record(const tutti_comm *comm, const tutti_schedule *s)
{
    tt_str text = {.mem = &tt_mem_std};
    char *data;
    size_t len;
    if (!comm->trail || comm->rank != 0 || s->n_ranks != comm->n_ranks)
        return;
    tt_sched_write(s, &text);
    if (tt_str_finish(&text, &data, &len))
        return;
    tt_engine_lock(comm->engine);
    tt_trail_text(comm->trail, TT_MARK_SCHEDULE, data, len);
    tt_engine_unlock(comm->engine);
    tt_free(&tt_mem_std, data, len + 1, 1);
}

/* Proves, and takes this rank's part; on a known network also how deep the
 * pipeline is. Frees s. */
static tutti_err take_part(tutti_comm *comm, const tt_problem *p,
                           tutti_schedule *s, uint32_t rank, tt_part_entry *out,
                           tutti_diag *diag)
{
    const tt_mem *mem = &comm->mem;
    const tt_ports ports = {tt_comm_port_of, comm};
    const bool has_ports = p->topology && comm->rails;
    tutti_err err = tt_verify(s, mem, diag);
    if (!err && p->topology)
        err = tt_plan_pipeline(s, p, mem, &out->fronts, diag);
    if (!err && comm->observer && comm->observer->expect &&
        comm->observer->wants(p->collective, p->size_bytes))
        out->expected_s = comm->observer->expect(comm, s, p);
    if (!err)
        err = tt_part_extract(s, rank, has_ports ? &ports : NULL, mem,
                              &out->part);
    if (!err)
        record(comm, s);
    if (err == TUTTI_ENOMEM)
        tt_fail(diag, err, "out of memory for a plan");
    TT_DEBUG("schedule of %s for %u ranks: id fnv1a:%016llx, %llu transfers",
             tutti_coll_name(p->collective), p->n_ranks,
             (unsigned long long)s->id, (unsigned long long)s->n_transfers);
    tt_sched_free(s);
    return err;
}

/* Found once for each network; exact for up to so many ranks, where it is
 * cheap. */
static const double least_gap = 0.005;
enum { CHEAP_RANKS = 16 };

static bool find_least(tutti_comm *comm)
{
    const tt_optimum_opts how = {
        .gap = least_gap,
        .max_ranks = comm->n_ranks <= CHEAP_RANKS ? CHEAP_RANKS : 1};
    tutti_diag diag = TT_DIAG_NONE;
    if (comm->least_of == comm->topology)
        return true;
    if (tt_optimum_find(comm->topology, &how, &tt_mem_std, &comm->least, &diag))
        return false;
    comm->least_of = comm->topology;
    return true;
}

/* Whether the least time is known that this takes: else there is only a time
 * that it takes at least. */
static bool is_least_known(const tutti_bound_info *o, const tt_problem *p)
{
    const double size = (double)p->size_bytes;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return o->gap <= least_gap &&
               size * o->allreduce_s_per_byte > o->latency_s;
    case TUTTI_ALL_GATHER:
        return o->allgather_den > 0 &&
               size * o->allgather_s_per_byte > o->latency_s;
    case TUTTI_REDUCE_SCATTER:
        return o->allgather_den > 0 &&
               size * o->reducescatter_s_per_byte > o->latency_s;
    default:
        return false;
    }
}

/* On a known network beside what is possible at all; on others s is not
 * needed. */
static void tell_plan(tutti_comm *comm, const tt_problem *p, const char *who,
                      const tutti_schedule *s)
{
    char bytes[TT_UNITS_TEXT], time[TT_UNITS_TEXT], near[48] = "", all[300];
    tutti_diag diag = TT_DIAG_NONE;
    double seconds = 0;
    tt_units_bytes((double)p->size_bytes, bytes);
    if (!p->topology) {
        tt_plan_charges(p, all, sizeof(all));
        TT_INFO("%s of %s: %s; charged: %s", tutti_coll_name(p->collective),
                bytes, who, all);
        return;
    }
    if (tt_plan_predict(s, p, &tt_mem_std, &seconds, &diag) != TUTTI_OK) {
        TT_INFO("%s of %s: %s", tutti_coll_name(p->collective), bytes, who);
        return;
    }
    if (p->topology == comm->topology && seconds > 0 && find_least(comm)) {
        const double least_s = tt_optimum_s(
            &comm->least, p->topology, p->collective, p->root, p->size_bytes);
        snprintf(near, sizeof(near), ", %s%.2f of the optimum",
                 is_least_known(&comm->least, p) ? "" : "at least ",
                 least_s / seconds);
    }
    TT_INFO("%s up to %s: %s, predicted %s%s", tutti_coll_name(p->collective),
            bytes, who, tt_units_seconds(seconds, time), near);
}

/* What is to be planned, and by whom. */
typedef struct asked {
    tt_problem p;
    const char *rule;
    bool is_own; /* the communicator's, as the call names none */
    const tutti_schedule *written; /* by somebody; NULL: a planner's */
} asked;

static tutti_err make_schedule(const asked *a, const tt_mem *mem,
                               tutti_schedule **out, const char **who,
                               tutti_diag *diag)
{
    const tt_planner *planner = NULL;
    tutti_err err;
    *who = "file";
    if (!a->written) {
        err = tt_plan_make(a->rule, &a->p, mem, out, &planner, diag);
        if (!err)
            *who = planner->name;
        return err;
    }
    err = tt_sched_copy(a->written, mem, out);
    return err ? tt_fail(diag, err, "out of memory for a plan") : TUTTI_OK;
}

/* Once, by rank 0, what the program's calls are performed by. */
static bool may_tell(const tutti_comm *comm, tt_part_entry *entry)
{
    bool may = !entry->is_told && !comm->is_for_start && entry->key.rank == 0 &&
               tt_logs(TUTTI_LOG_INFO);
    entry->is_told |= may;
    return may;
}

static tutti_err make_part(tutti_comm *comm, const asked *a, tt_part_entry *out,
                           tutti_diag *diag)
{
    tutti_schedule *s;
    const char *who;
    tutti_err err = make_schedule(a, &comm->mem, &s, &who, diag);
    if (err)
        return err;
    TT_DEBUG("%s plans %s of %llu bytes", who, tutti_coll_name(a->p.collective),
             (unsigned long long)a->p.size_bytes);
    if (may_tell(comm, out))
        tell_plan(comm, &a->p, who, s);
    return take_part(comm->parts_of, &a->p, s, out->key.rank, out, diag);
}

static uint64_t hash_text(const char *text)
{
    return tt_fnv1a(TT_FNV1A_START, text, strlen(text));
}

/* Where the program does not say by what such a call is performed: does a
 * file? */
static tutti_err find_file(asked *a, tutti_diag *diag)
{
    return a->written ? TUTTI_OK
                      : tt_plan_written(a->rule, &a->p, &a->written, diag);
}

/* What a schedule depends on: on itself where somebody wrote it; on a flat
 * network on the planner, cheaply chosen, whatever the size; on a known one on
 * the rule and the class of the size. */
static tutti_err part_key(const tt_shape *shape, asked *a, tt_part_key *key,
                          tutti_diag *diag)
{
    *key = (tt_part_key){
        .root = shape->root,
        .rank = shape->rank,
        .n_ranks = shape->n_ranks,
        .coll = (uint8_t)shape->coll,
    };
    if (a->p.topology) {
        key->size_class = tt_comm_size_class(a->p.size_bytes);
    } else if (!a->written) {
        const tt_planner *planner;
        tutti_err err = tt_plan_choose(a->rule, &a->p, &planner, diag);
        if (err)
            return err;
        a->rule = planner->name;
    }
    key->planner_hash = a->written ? a->written->id : hash_text(a->rule);
    return TUTTI_OK;
}

static void round_up(tt_problem *p)
{
    if (p->topology)
        p->size_bytes = UINT64_C(1) << tt_comm_size_class(p->size_bytes);
}

/* Where `auto` is asked for, and by what such calls have taken another planner
 * is known to be better, or is tried. */
static const char *rule_of(const tutti_comm *comm, const char *rule,
                           const tt_problem *p)
{
    const uint8_t row =
        comm->taken[p->collective][tt_comm_size_class(p->size_bytes)];
    if (row == 0 || p->topology || !tt_rule_is_auto(rule) ||
        tt_planners[row - 1]->why_not(p))
        return rule;
    return tt_planners[row - 1]->name;
}

bool tt_comm_uses(const tutti_comm *comm, tutti_coll coll, uint32_t root)
{
    return tt_written_used(&comm->written, coll, root) != NULL;
}

tutti_err tt_comm_explain(const tutti_comm *comm, tutti_coll coll,
                          uint64_t size_bytes, tt_explained *out)
{
    tt_problem p;
    tutti_err err = blank_problem(comm, &p);
    p.collective = coll;
    p.n_ranks = comm->n_ranks;
    p.root = TT_NONE;
    p.size_bytes = size_bytes;
    return err ? err : tt_plan_explain(&p, &comm->mem, out, NULL);
}

/* Another thread may be in a call, which changes network and schedules: those
 * are looked at under the lock. Networks that were last as long as the
 * communicator; a schedule that is used does not, so *used is a copy
 * (tt_mem_std). */
static tutti_err look(const tutti_comm *comm, const tt_problem *what, asked *a,
                      tutti_schedule **used)
{
    const tutti_schedule *s = NULL;
    tt_engine_lock(comm->engine);
    tutti_err err = blank_problem(comm, &a->p);
    if (a->is_own)
        s = tt_written_used(&comm->written, what->collective, what->root);
    if (!err && s)
        err = tt_sched_copy(s, &tt_mem_std, used);
    a->p.collective = what->collective;
    a->p.n_ranks = comm->n_ranks;
    a->p.root = what->root;
    a->p.size_bytes = what->size_bytes;
    a->rule = rule_of(comm, a->rule, &a->p);
    tt_engine_unlock(comm->engine);
    return err;
}

tutti_err tt_comm_schedule(const tutti_comm *comm, const tt_problem *what,
                           const char *rule, tutti_schedule **out,
                           const char **chosen, tutti_diag *diag)
{
    tt_written files; /* those of calls are not touched */
    tt_written_init(&files, &tt_mem_std);
    asked a = {.is_own = !rule, .rule = rule ? rule : comm->agreed.planner};
    tutti_schedule *used = NULL;
    if (look(comm, what, &a, &used))
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a plan");
    a.p.progress = what->progress;
    a.p.shelf = &files.shelf;
    a.p.has_job_rule = a.is_own;
    round_up(&a.p);
    a.written = used;
    const char *who;
    tutti_err err = find_file(&a, diag);
    if (!err)
        err = make_schedule(&a, &tt_mem_std, out, &who, diag);
    if (!err && chosen)
        *chosen = who;
    tt_sched_free(used);
    tt_written_free(&files);
    return err;
}

/* Of a call: a pair's is always the same. */
static tutti_err ask(tutti_comm *comm, const tt_want *want, asked *a,
                     tutti_diag *diag)
{
    *a = (asked){.rule = want->planner,
                 .is_own = want->planner == comm->agreed.planner};
    if (problem_of(comm, want, &a->p))
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a plan");
    a->p.has_job_rule = a->is_own;
    if (want->is_pair) {
        a->rule = "direct";
        a->p.topology = NULL;
        a->p.routes = NULL;
        return TUTTI_OK;
    }
    a->rule = rule_of(comm, a->rule, &a->p);
    round_up(&a->p);
    if (a->is_own)
        a->written = tt_written_used(&comm->written, a->p.collective,
                                     a->p.root);
    return find_file(a, diag);
}

static tutti_err find_part(tutti_comm *comm, const tt_want *want,
                           tt_part_entry **out, tutti_diag *diag)
{
    asked a;
    tt_part_key key;
    tutti_err err = ask(comm, want, &a, diag);
    if (!err)
        err = part_key(want->shape, &a, &key, diag);
    if (err)
        return err;
    tutti_comm *home = comm->parts_of;
    for (tt_part_entry *e = home->parts; e; e = e->next)
        if (memcmp(&e->key, &key, sizeof(key)) == 0) {
            if (!a.p.topology && may_tell(comm, e)) /* made for the start */
                tell_plan(comm, &a.p, a.rule, NULL);
            *out = e;
            return TUTTI_OK;
        }
    tt_part_entry *entry = tt_new(&home->mem, 1, sizeof(*entry));
    if (!entry)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a plan");
    entry->key = key;
    err = make_part(comm, &a, entry, diag);
    if (err) {
        tt_free(&home->mem, entry, 1, sizeof(*entry));
        return err;
    }
    entry->next = home->parts;
    home->parts = entry;
    *out = entry;
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- plans -- */

static uint64_t hash_counts(uint64_t hash, const size_t *counts, uint32_t n)
{
    for (uint32_t i = 0; counts && i < n; i++)
        hash = tt_fnv1a_u64(hash, counts[i]);
    return hash;
}

static tt_plan_key key_of(tutti_comm *comm, const tt_want *want)
{
    if (!comm->planner_hash)
        comm->planner_hash = hash_text(comm->agreed.planner);
    const tt_shape *s = want->shape;
    tt_plan_key key = {
        .count = s->count,
        .planner_hash = want->planner == comm->agreed.planner
                            ? comm->planner_hash
                            : hash_text(want->planner),
        /* The rank matters for pairs: 0 sends, 1 receives. */
        .root = want->is_pair ? s->rank : s->root,
        .elem_bytes = s->elem_bytes,
        .coll = (uint8_t)s->coll,
        .in_place = want->in_place,
        .is_pair = want->is_pair,
        .is_near = want->is_near,
    };
    if (s->counts || s->in_counts) {
        key.counts_hash = hash_counts(TT_FNV1A_START, s->counts, s->n_ranks);
        key.counts_hash = hash_counts(key.counts_hash, s->in_counts,
                                      s->n_ranks);
        key.counts_hash = hash_counts(key.counts_hash, s->out_counts,
                                      s->n_ranks);
    }
    return key;
}

/* Of what all ranks must agree on beyond the call's own fields. */
static uint64_t shape_hash(const tt_want *want, const tt_bound *bound)
{
    const tt_shape *s = want->shape;
    uint64_t hash = tt_fnv1a_u64(TT_FNV1A_START, bound->window);
    if (s->coll == TUTTI_ALL_TO_ALL)
        return hash; /* every rank sees only its own sizes */
    hash = tt_fnv1a_u64(hash, s->elem_bytes);
    return hash_counts(hash, s->counts, s->n_ranks);
}

/* All transfers are pulled or put, each by one kernel. */
static void lay_near(tt_layout *lay)
{
    lay->front_bytes = 0;
    lay->front_window_bytes = 0;
    lay->staging_max_bytes = 0;
    lay->max_payload = UINT32_MAX;
    lay->is_near = true;
    lay->streams = false;
}

static tutti_err bind_part(tutti_comm *comm, const tt_want *want,
                           const tt_part_entry *part, tt_plan_entry *entry)
{
    const uint64_t total = want->total_bytes;
    tt_cutting cut = cutting_of(comm);
    cut = tt_cutting_for(&cut, total, part->fronts);
    tt_layout lay = {
        .in_place = want->in_place,
        .front_bytes = cut.front_bytes,
        .front_window_bytes = cut.front_window_bytes,
        .staging_max_bytes = cut.staging_max_bytes,
        .window = cut.window,
        .max_payload = cut.max_payload,
        .streams = exceeds_cache(comm, total),
    };
    if (want->is_near)
        lay_near(&lay);
    tt_shape_layout(want->shape, &lay);
    tt_bound *bound;
    tutti_err err = tt_bound_create(part->part, &lay, &comm->mem, &bound);
    if (err)
        return err;
    err = tt_program_create(bound, &comm->mem, &entry->program);
    if (err) {
        tt_bound_free(bound);
        return err;
    }
    entry->is_within = bound->is_within;
    entry->shape = shape_hash(want, bound);
    entry->schedule_id = bound->schedule_id;
    /* At these sizes time is in proportion to size. */
    if (part->expected_s > 0)
        entry->expected_s = part->expected_s * (double)total /
                            (double)(UINT64_C(1) << part->key.size_class);
    return TUTTI_OK;
}

static tt_plan_entry *oldest(tutti_comm *comm)
{
    tt_plan_entry *least = &comm->plans[0];
    for (size_t i = 1; i < TT_PLAN_CACHE && least->program; i++)
        if (!comm->plans[i].program || comm->plans[i].used < least->used)
            least = &comm->plans[i];
    return least;
}

static tt_plan_entry *lookup(tutti_comm *comm, const tt_plan_key *key)
{
    if (comm->last && memcmp(&comm->last->key, key, sizeof(*key)) == 0)
        return comm->last;
    for (size_t i = 0; i < TT_PLAN_CACHE; i++)
        if (comm->plans[i].program &&
            memcmp(&comm->plans[i].key, key, sizeof(*key)) == 0)
            return &comm->plans[i];
    return NULL;
}

tutti_err tt_comm_plan(tutti_comm *comm, const tt_want *want,
                       tt_plan_entry **out, tutti_diag *diag)
{
    tt_plan_key key = key_of(comm, want);
    tt_plan_entry *entry = lookup(comm, &key);
    if (!entry) {
        tt_part_entry *part = NULL;
        tt_plan_entry fresh = {.key = key};
        tutti_err err = find_part(comm, want, &part, diag);
        if (err)
            return err;
        err = bind_part(comm, want, part, &fresh);
        if (err)
            return tt_fail(diag, err, "cannot bind a plan: %s",
                           tutti_strerror(err));
        entry = oldest(comm);
        tt_engine_lock(comm->engine);
        tt_program_unref(entry->program);
        tt_engine_unlock(comm->engine);
        *entry = fresh;
    }
    entry->used = ++comm->n_lookups;
    comm->last = entry;
    *out = entry;
    return TUTTI_OK;
}

void tt_comm_forget_plans(tutti_comm *comm)
{
    tt_comm_free_plans(comm);
    memset(comm->plans, 0, sizeof(comm->plans));
    comm->last = NULL;
    comm->last_call.is_kept = false;
}

void tt_comm_free_plans(tutti_comm *comm)
{
    for (size_t i = 0; i < TT_PLAN_CACHE; i++)
        tt_program_unref(comm->plans[i].program);
    while (comm->parts) {
        tt_part_entry *entry = comm->parts;
        comm->parts = entry->next;
        tt_part_free(entry->part);
        tt_free(&comm->mem, entry, 1, sizeof(*entry));
    }
}
