/* SPDX-License-Identifier: BSD-3-Clause
 * rig.c - see rig.h. */
#include "support/rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/blocks.h"

/* What start-up needs and a rig does not keep. Each port has a net of its own:
 * the one of port k of rank r is number k * n + r. Nothing is connected before
 * calls need it. */
typedef struct meeting {
    const tt_rig_opts *opts;
    const tt_net_ops *ops;
    tt_net **nets;        /* [n_ports * n] */
    unsigned char *addrs; /* [n_ports * n] */
    size_t *lens;         /* likewise */
    uint32_t *members;    /* [n] */
} meeting;

uint32_t tt_rig_n_ports(uint32_t a, uint32_t b, uint32_t n_ports)
{
    return 1 + (a + b) % n_ports;
}

static tutti_err open_net(tt_rig *rig, meeting *m, uint32_t i, tutti_diag *diag)
{
    uint32_t r = i % rig->n;
    m->members[r] = r;
    const tt_net as = {.ops = m->ops,
                       .up = &tt_engine_up,
                       .mem = rig->mem,
                       .settings = &rig->settings,
                       .regions = m->opts->regions ? &m->opts->regions[r]
                                                   : NULL,
                       .trust = m->opts->trust,
                       .is_local = true,
                       .rank = r,
                       .n_ranks = rig->n};
    tt_net *net = m->nets[i] = tt_net_new(&as);
    tutti_err err = net->ops->open(net, diag);
    unsigned char *addr = m->addrs + (size_t)i * TT_NET_ADDR_MAX;
    m->lens[i] = net->ops->address(net, addr, TT_NET_ADDR_MAX);
    return err;
}

/* Port k of rank p, as rank r sees it. */
static tt_port_opts port_opts(const tt_rig *rig, const meeting *m, uint32_t r,
                              uint32_t k, uint32_t p, tt_arena *kept)
{
    size_t theirs = (size_t)k * rig->n + p;
    tt_access *access = tt_arena_new(kept, 1, sizeof(*access));
    void *addr = tt_arena_new(kept, 1, TT_NET_ADDR_MAX);
    memcpy(addr, m->addrs + theirs * TT_NET_ADDR_MAX, TT_NET_ADDR_MAX);
    *access = (tt_access){.net = m->nets[(size_t)k * rig->n + r],
                          .addr = addr,
                          .addr_bytes = m->lens[theirs]};
    return (tt_port_opts){.rank = p, .accesses = access, .n_accesses = p != r};
}

static tutti_err create_mesh(tt_rig *rig, meeting *m, uint32_t r)
{
    const uint32_t n = rig->n, n_ports = rig->n_ports;
    tt_net **nets = calloc(n_ports, sizeof(*nets));
    tt_port_opts *ports = calloc(n, sizeof(*ports));
    tt_port_opts *more = calloc((size_t)n_ports * n, sizeof(*more));
    tt_mesh_opts opts = {.rank = r,
                         .n_ranks = n,
                         .n_nets = n_ports,
                         .nets = nets,
                         .ports = ports,
                         .more = more,
                         .eager_bytes = m->opts->eager_bytes,
                         .dial_ns = 30 * TT_NS_PER_S,
                         .kept.mem = rig->mem};
    for (uint32_t k = 0; k < n_ports; k++) {
        nets[k] = m->nets[(size_t)k * n + r];
        for (uint32_t p = 0; p < n; p++) {
            if (k == 0)
                ports[p] = port_opts(rig, m, r, k, p, &opts.kept);
            else if (p != r && k < tt_rig_n_ports(r, p, n_ports))
                more[opts.n_more++] = port_opts(rig, m, r, k, p, &opts.kept);
        }
    }
    tutti_err err = tt_mesh_create(rig->engines[r], rig->mem, &opts,
                                   &rig->meshes[r]);
    free(nets);
    free(ports);
    free(more);
    return err;
}

static tutti_err create_teams(tt_rig *rig, meeting *m, uint32_t r,
                              tutti_diag *diag)
{
    tt_engine_opts opts = {.speak_ns = m->opts->is_silent ? UINT64_MAX : 0,
                           .liveness_ns = m->opts->liveness_ns,
                           .reconnect_ns = m->opts->reconnect_ns};
    tutti_err err = tt_engine_create(rig->mem, &opts, &rig->engines[r], diag);
    if (!err)
        err = create_mesh(rig, m, r);
    for (uint32_t t = 0; t < TT_RIG_TEAMS && !err; t++)
        err = tt_team_create(rig->meshes[r], 1 + t, m->members, rig->n,
                             &rig->teams[t][r]);
    return err;
}

static void free_meeting(meeting *m)
{
    free(m->nets);
    free(m->addrs);
    free(m->lens);
    free(m->members);
}

static void connect_neighbours(tt_rig *rig)
{
    bool is_met = false;
    for (uint32_t r = 0; r < rig->n; r++)
        tt_mesh_dial(rig->meshes[r], false);
    while (!is_met) {
        is_met = true;
        tt_rig_step(rig, 1);
        for (uint32_t r = 0; r < rig->n; r++)
            is_met &= tt_mesh_met(rig->meshes[r], true, NULL) != TUTTI_AGAIN;
    }
}

tutti_err tt_rig_create(const tt_rig_opts *opts, tt_rig *out)
{
    const uint32_t n = opts->n;
    tutti_diag diag;
    const uint32_t n_ports = opts->n_ports ? opts->n_ports : 1;
    const uint32_t n_nets = n * n_ports;
    *out = (tt_rig){.n = n, .n_ports = n_ports, .mem = opts->mem};
    if (tt_settings_read(&out->settings, &diag))
        return TUTTI_ECONFIG;
    out->settings.shm_ring_bytes = 64 * 1024; /* small: rings fill up */
    out->settings.shm_direct_bytes = opts->direct_bytes;
    out->settings.reconnect_ns = opts->reconnect_ns;
    out->settings.reconnect_near = opts->reconnect_ns > 0;
    if (opts->is_checked)
        out->settings.check = TT_CHECK_CRC;
    out->engines = calloc(n, sizeof(*out->engines));
    out->meshes = calloc(n, sizeof(*out->meshes));
    for (uint32_t t = 0; t < TT_RIG_TEAMS; t++)
        out->teams[t] = calloc(n, sizeof(*out->teams[t]));
    meeting m = {.opts = opts,
                 .ops = opts->ops,
                 .nets = calloc(n_nets, sizeof(*m.nets)),
                 .addrs = calloc(n_nets, TT_NET_ADDR_MAX),
                 .lens = calloc(n_nets, sizeof(*m.lens)),
                 .members = calloc(n, sizeof(*m.members))};
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < n_nets; i++) {
        tutti_err own = open_net(out, &m, i, &diag);
        err = err ? err : own;
    }
    for (uint32_t r = 0; r < n && !err; r++)
        err = create_teams(out, &m, r, &diag);
    if (opts->is_linked && !err)
        connect_neighbours(out);
    free_meeting(&m);
    return err;
}

void tt_rig_step(const tt_rig *rig, int rounds)
{
    for (int i = 0; i < rounds; i++)
        for (uint32_t r = 0; r < rig->n; r++) {
            tt_engine_lock(rig->engines[r]);
            tt_engine_step(rig->engines[r]);
            tt_engine_unlock(rig->engines[r]);
        }
}

void tt_rig_destroy(tt_rig *rig)
{
    for (uint32_t r = 0; r < rig->n; r++) {
        tt_engine_lock(rig->engines[r]);
        for (uint32_t t = 0; t < TT_RIG_TEAMS; t++)
            if (rig->teams[t][r])
                tt_team_leave(rig->teams[t][r]);
        tt_engine_unlock(rig->engines[r]);
        tt_mesh_unref(rig->meshes[r]);
        tt_engine_destroy(rig->engines[r]);
    }
    free(rig->engines);
    free(rig->meshes);
    for (uint32_t t = 0; t < TT_RIG_TEAMS; t++)
        free(rig->teams[t]);
}

typedef struct outcome {
    bool is_done;
    tutti_err err;
} outcome;

static void note(void *arg, tutti_err err)
{
    outcome *o = arg;
    o->is_done = true;
    o->err = err;
}

typedef struct job {
    const tt_rig_call *call;
    tt_shape shape;
    uint64_t n_in, n_out;
    unsigned char *memory;
    uint32_t *in, *out;
    tt_part *part;
    tt_program *program;
    outcome outcome;
} job;

static tt_blocks blocks_of(const tt_rig_call *c)
{
    return (tt_blocks){.schedule = c->schedule,
                       .count = c->count,
                       .counts = c->counts,
                       .seed = c->seed};
}

/* Any port of the pair, the same at both ends. */
static uint8_t port_of(const void *ctx, const tt_transfer *t)
{
    const tt_rig *rig = ctx;
    uint32_t n = tt_rig_n_ports(t->src, t->dst, rig->n_ports);
    tt_rng rng = {(uint64_t)t->chunk << 32 | t->step << 8 | t->src};
    return (uint8_t)tt_rng_below(&rng, n);
}

static tutti_err prepare(tt_rig *rig, const tt_rig_call *c, uint32_t r, job *j)
{
    const tutti_schedule *s = c->schedule;
    j->call = c;
    j->shape = (tt_shape){.coll = s->collective,
                          .rank = r,
                          .n_ranks = s->n_ranks,
                          .root = s->root,
                          .elem_bytes = 4,
                          .count = c->count,
                          .counts = c->counts};
    const tt_measures sizes = tt_shape_measure(&j->shape);
    j->n_in = sizes.in_elems;
    j->n_out = sizes.out_elems;
    j->memory = malloc((j->n_in + j->n_out + 2) * 4);
    memset(j->memory, 0xa5, (j->n_in + j->n_out + 2) * 4);
    j->in = (uint32_t *)(void *)j->memory;
    j->out = j->in + j->n_in + 1;
    if (c->in_place && s->collective != TUTTI_ALL_TO_ALL) {
        int64_t at = sizes.in_place_at;
        j->out = j->in + at;
        if (at < 0) {
            j->out = (uint32_t *)(void *)j->memory;
            j->in = j->out - at;
        }
    }
    const tt_blocks blocks = blocks_of(c);
    tt_blocks_fill(&blocks, r, j->in);
    tt_layout lay = {.in_place = c->in_place &&
                                 s->collective != TUTTI_ALL_TO_ALL,
                     .front_bytes = c->front_bytes,
                     .front_window_bytes = c->front_window_bytes,
                     .staging_max_bytes = 1 << 26,
                     .window = c->window,
                     .max_payload = 1 << 14};
    tt_shape_layout(&j->shape, &lay);
    const tt_ports ports = {port_of, rig};
    tutti_err err = tt_part_extract(s, r, &ports, rig->mem, &j->part);
    tt_bound *bound;
    if (!err)
        err = tt_bound_create(j->part, &lay, rig->mem, &bound);
    if (!err)
        err = tt_program_create(bound, rig->mem, &j->program);
    return err;
}

static tutti_err begin(tt_rig *rig, job *j)
{
    const tt_rig_call *c = j->call;
    tt_op_start start = {
        .program = j->program,
        .call = {.coll = (uint8_t)c->schedule->collective,
                 .type = TUTTI_U32,
                 .op = (uint8_t)c->op,
                 .root = c->schedule->root,
                 .count = c->count,
                 .schedule_id = c->schedule->id},
        .in = j->in,
        .out = j->out,
        .deadline_ns = UINT64_MAX,
        .done = note,
        .arg = &j->outcome,
    };
    return tt_op_begin(rig->teams[c->team][j->shape.rank], &start);
}

/* The calls of one rank. */
typedef struct script {
    job *jobs; /* [n_calls] */
    uint32_t next[TT_RIG_TEAMS], n_begun, n_done;
    tutti_err err;
} script;

typedef struct play {
    tt_rig *rig;
    const tt_rig_call *calls;
    uint32_t n_calls;
    script *scripts; /* [n] */
    tt_rng rng;
    uint32_t favourite, lazy; /* has the machine; begins nothing */
    char *why;
    size_t why_size;
} play;

/* Begins the next call of a team of the rank's choice. */
static tutti_err begin_next(play *p, uint32_t r)
{
    script *s = &p->scripts[r];
    uint32_t team = (uint32_t)tt_rng_below(&p->rng, TT_RIG_TEAMS);
    for (;; team = (team + 1) % TT_RIG_TEAMS) {
        uint32_t *i = &s->next[team];
        while (*i < p->n_calls && p->calls[*i].team != team)
            ++*i;
        if (*i == p->n_calls)
            continue;
        s->n_begun++;
        return begin(p->rig, &s->jobs[(*i)++]);
    }
}

/* True when something moved. */
static bool step(play *p, uint32_t r)
{
    script *s = &p->scripts[r];
    tt_engine *e = p->rig->engines[r];
    bool moved = true;
    tt_engine_lock(e);
    if (s->n_begun < p->n_calls && r != p->lazy &&
        tt_rng_below(&p->rng, 3) == 0)
        s->err = begin_next(p, r);
    else
        moved = tt_engine_step(e) || s->n_begun < p->n_calls;
    tt_engine_unlock(e);
    s->n_done = 0;
    for (uint32_t i = 0; i < p->n_calls; i++) {
        s->n_done += s->jobs[i].outcome.is_done;
        if (!s->err)
            s->err = s->jobs[i].outcome.err;
    }
    return moved;
}

/* A team that has failed at one rank must soon have failed at all. */
static void check_all_told(play *p, uint32_t t)
{
    const char *text;
    for (uint32_t i = 0; i < 1000; i++)
        for (uint32_t r = 0; r < p->rig->n; r++) {
            tt_engine_lock(p->rig->engines[r]);
            tt_engine_step(p->rig->engines[r]);
            tt_engine_unlock(p->rig->engines[r]);
        }
    for (uint32_t r = 0; r < p->rig->n; r++)
        if (!tt_team_state(p->rig->teams[t][r], &text))
            snprintf(p->why, p->why_size,
                     "stuck: rank %" PRIu32 " was not told of a failure", r);
}

static bool report_error(play *p, uint32_t r)
{
    for (uint32_t t = 0; t < TT_RIG_TEAMS; t++) {
        const char *text;
        if (!tt_team_state(p->rig->teams[t][r], &text))
            continue;
        snprintf(p->why, p->why_size, "rank %" PRIu32 ": %s", r, text);
        check_all_told(p, t);
    }
    return false;
}

/* Buffers are let go of before they are freed. */
static void give_up(tt_rig *rig)
{
    for (uint32_t r = 0; r < rig->n; r++) {
        tt_engine_lock(rig->engines[r]);
        for (uint32_t t = 0; t < TT_RIG_TEAMS; t++)
            tt_team_fail(rig->teams[t][r], TUTTI_EABORTED, TT_NONE, "given up");
        tt_engine_flush(rig->engines[r]);
        tt_engine_unlock(rig->engines[r]);
    }
}

/* Now and then one rank has the machine almost to itself and another begins
 * nothing, so that the one may run far ahead of the other. */
static bool run(play *p)
{
    const uint32_t n = p->rig->n;
    uint32_t quiet = 0;
    for (;;) {
        if (tt_rng_below(&p->rng, 200) == 0) {
            p->favourite = (uint32_t)tt_rng_below(&p->rng, n);
            p->lazy = (uint32_t)tt_rng_below(&p->rng, 2 * n);
        }
        uint32_t r = tt_rng_below(&p->rng, 4)
                         ? p->favourite
                         : (uint32_t)tt_rng_below(&p->rng, n);
        quiet = step(p, r) ? 0 : quiet + 1;
        if (p->scripts[r].err)
            return report_error(p, r);
        uint32_t n_waiting = 0;
        for (uint32_t i = 0; i < n; i++)
            n_waiting += p->scripts[i].n_done < p->n_calls;
        if (n_waiting == 0)
            return true;
        if (quiet > 4000 * n) {
            snprintf(p->why, p->why_size, "stuck: %" PRIu32 " ranks wait",
                     n_waiting);
            return false;
        }
    }
}

static void free_job(tt_rig *rig, job *j, uint32_t r)
{
    if (j->program) {
        tt_engine_lock(rig->engines[r]);
        tt_program_unref(j->program);
        tt_engine_unlock(rig->engines[r]);
    }
    tt_part_free(j->part);
    free(j->memory);
}

bool tt_rig_perform(tt_rig *rig, const tt_rig_call *calls, uint32_t n_calls,
                    char *why, size_t why_size)
{
    const uint32_t n = rig->n;
    job *jobs = calloc((size_t)n * n_calls, sizeof(*jobs));
    play p = {.rig = rig,
              .calls = calls,
              .n_calls = n_calls,
              .scripts = calloc(n, sizeof(script)),
              .rng = {calls[0].seed},
              .why = why,
              .why_size = why_size};
    bool ok = true;
    snprintf(why, why_size, "out of memory");
    for (uint32_t r = 0; r < n; r++) {
        p.scripts[r].jobs = jobs + (size_t)r * n_calls;
        for (uint32_t i = 0; i < n_calls && ok; i++)
            ok = prepare(rig, &calls[i], r, &p.scripts[r].jobs[i]) == TUTTI_OK;
    }
    ok = ok && run(&p);
    if (!ok)
        give_up(rig);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < n_calls; i++) {
            job *j = &p.scripts[r].jobs[i];
            const tt_blocks blocks = blocks_of(&calls[i]);
            if (ok)
                ok = tt_blocks_are_right(&blocks, r, j->out, why, why_size);
            free_job(rig, j, r);
        }
    free(p.scripts);
    free(jobs);
    return ok;
}
