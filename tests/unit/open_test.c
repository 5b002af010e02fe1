/* SPDX-License-Identifier: BSD-3-Clause
 * open_test.c - an open mesh, case by case: who sits where, who calls before it
 * is known, and what is left of a connection that is not there any more. Two or
 * three processes in one thread; tests/fault/open_test.c has real ones. */
#include "support/tap.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/state.h"
#include "support/alloc.h"
#include "support/chaos.h"
#include "support/loop.h"
#include "support/seed.h"
#include "support/sums.h"

enum { RANKS = 3, COUNT = 5000 };
static const uint64_t origin = 5;
static const uint32_t both[2] = {0, 1};

typedef struct process {
    tt_engine *engine;
    tt_mesh *mesh;
    tt_net *net, *other; /* other: NULL, or of w->other */
    tt_link_id id;
    unsigned char addr[TT_NET_ADDR_MAX], other_addr[TT_NET_ADDR_MAX];
    size_t addr_bytes, other_bytes;
    tt_team *team; /* NULL: in no group */
    tt_program *program;
    uint32_t at[COUNT];
    bool is_over;
    tutti_err err;
} process;

typedef struct world {
    const tt_net_ops *ops, *other; /* other: NULL, or a second transport */
    tt_settings settings;
    tt_test_mem counts;
    tt_mem mem;
    process p[RANKS];
} world;

/* ------------------------------------------------------------- processes -- */

static tt_net *open_net(world *w, uint32_t r, const tt_net_ops *ops)
{
    tt_net *net = tt_new(&w->mem, 1, ops->net_size);
    *net = (tt_net){.ops = ops,
                    .up = &tt_engine_up,
                    .mem = &w->mem,
                    .settings = &w->settings,
                    .rank = r,
                    .n_ranks = RANKS,
                    .id = w->p[r].id,
                    .is_local = true,
                    .fd = -1};
    assert_int_equal(ops->open(net, NULL), 0);
    return net;
}

static void start(world *w, uint32_t r)
{
    process *p = &w->p[r];
    const tt_engine_opts opts = {.speak_ns = 0};
    *p = (process){.engine = NULL};
    assert_int_equal(tt_link_id_make(&p->id, NULL), 0);
    p->net = open_net(w, r, w->ops);
    p->addr_bytes = w->ops->address(p->net, p->addr, TT_NET_ADDR_MAX);
    if (w->other) {
        p->other = open_net(w, r, w->other);
        p->other_bytes = w->other->address(p->other, p->other_addr,
                                           TT_NET_ADDR_MAX);
    }
    assert_int_equal(tt_engine_create(&w->mem, &opts, &p->engine, NULL), 0);
    tt_net *nets[2] = {p->net, p->other};
    const tt_mesh_opts mesh = {.rank = r,
                               .n_ranks = RANKS,
                               .n_nets = w->other ? 2 : 1,
                               .nets = nets,
                               .eager_bytes = 2048,
                               .dial_ns = 5 * TT_NS_PER_S,
                               .kept.mem = &w->mem};
    assert_int_equal(tt_mesh_create(p->engine, &w->mem, &mesh, &p->mesh), 0);
}

static void go_out(process *p)
{
    tt_engine_lock(p->engine);
    tt_team_leave(p->team);
    tt_program_unref(p->program);
    tt_engine_unlock(p->engine);
    p->team = NULL;
}

static void stop(world *w, uint32_t r)
{
    process *p = &w->p[r];
    if (p->team)
        go_out(p);
    tt_mesh_unref(p->mesh);
    tt_engine_destroy(p->engine);
    *p = (process){.engine = NULL};
}

static world *open_world_of(const tt_net_ops *ops, const tt_net_ops *other)
{
    world *w = calloc(1, sizeof(*w));
    w->ops = ops;
    w->other = other;
    w->mem = tt_test_mem_init(&w->counts, 0);
    assert_int_equal(tt_settings_read(&w->settings, NULL), 0);
    w->settings.shm_ring_bytes = 64 << 10;
    for (uint32_t r = 0; r < RANKS; r++)
        start(w, r);
    return w;
}

static world *open_world(const tt_net_ops *ops)
{
    return open_world_of(ops, NULL);
}

static void close_world(world *w)
{
    for (uint32_t r = 0; r < RANKS; r++)
        stop(w, r);
    assert_true(tt_test_mem_is_clean(&w->counts));
    free(w);
}

static void step(const process *p)
{
    tt_engine_lock(p->engine);
    tt_engine_step(p->engine);
    tt_engine_unlock(p->engine);
}

static void step_all(const world *w)
{
    for (uint32_t r = 0; r < RANKS; r++)
        step(&w->p[r]);
}

/* ---------------------------------------------------------------- groups -- */

static tutti_err seat(world *w, uint32_t r, const process *who, uint32_t rank)
{
    const process *p = &w->p[r];
    const tt_access accesses[2] = {
        {.net = p->net, .addr = who->addr, .addr_bytes = who->addr_bytes},
        {.net = p->other,
         .addr = who->other_addr,
         .addr_bytes = who->other_bytes}};
    return tt_mesh_seat(p->mesh, rank, &who->id, accesses, p->other ? 2 : 1);
}

static void note(void *arg, tutti_err err)
{
    process *p = arg;
    p->is_over = true;
    p->err = err;
}

/* Rank r enters a group of ranks 0 and 1. */
static void go_in(world *w, uint32_t r, uint64_t number, bool is_seated)
{
    process *p = &w->p[r];
    const tt_group_opts opts = {
        .origin = origin, .number = number, .members = both, .n = 2};
    if (is_seated)
        assert_int_equal(seat(w, r, &w->p[1 - r], 1 - r), 0);
    assert_int_equal(tt_group_create(p->mesh, &opts, &p->team), 0);
    p->program = tt_sum_program(&w->mem, 2, r, COUNT);
    p->is_over = false;
    for (uint32_t i = 0; i < COUNT; i++)
        p->at[i] = i * (r + 1);
    tt_engine_lock(p->engine);
    tutti_err err = tt_sum_begin(p->team, p->program, p->at, 0, note, p);
    tt_engine_unlock(p->engine);
    if (err)
        note(p, err);
}

static const tt_peer *peer_of(const world *w, uint32_t r)
{
    return &w->p[r].mesh->peers[1 - r];
}

static bool is_up(const world *w, uint32_t r)
{
    return peer_of(w, r)->conn->is_up;
}

static void await_ends(const world *w)
{
    uint64_t until = tt_now_ns() + 20 * TT_NS_PER_S;
    while (!(w->p[0].is_over && w->p[1].is_over) && tt_now_ns() < until)
        step_all(w);
    assert_true(w->p[0].is_over && w->p[1].is_over);
}

static void do_group(world *w, uint64_t number)
{
    for (uint32_t r = 0; r < 2; r++)
        go_in(w, r, number, number < 10);
    await_ends(w);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(w->p[r].err, 0);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(w->p[r].at[i], 3 * i);
        go_out(&w->p[r]);
    }
}

static void check_failed(const process *p, const char *part)
{
    const char *text;
    assert_int_equal(tt_team_state(p->team, &text), TUTTI_EPEER);
    if (!strstr(text, part))
        fail_msg("'%s' is not in '%s'", part, text);
}

/* ----------------------------------------------------------------- cases -- */

static const tt_net_ops *transport(uint32_t i)
{
    static const char *const names[] = {"shm", "tcp"};
    return i == 0 ? &tt_net_loop : tt_transport_find(names[i - 1]);
}
enum { TRANSPORTS = 3 };

static void groups_do_well(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TRANSPORTS; t++) {
        world *w = open_world(transport(t));
        for (uint64_t number = 1; number <= 20; number++)
            do_group(w, number);
        assert_int_equal(w->p[0].mesh->n_opened, 1);
        close_world(w);
    }
}

/* Who has not heard of the group yet takes the call, and keeps what comes. */
static void a_call_comes_before_the_seat(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TRANSPORTS; t++) {
        world *w = open_world(transport(t));
        uint64_t until = tt_now_ns() + 10 * TT_NS_PER_S;
        go_in(w, 0, 1, true);
        while (w->p[1].mesh->n_ahead == 0 && tt_now_ns() < until)
            step_all(w);
        assert_true(w->p[1].mesh->n_ahead > 0 && is_up(w, 1));
        assert_int_equal(peer_of(w, 1)->n_accesses, 0);
        go_in(w, 1, 1, true);
        assert_int_equal(peer_of(w, 1)->n_accesses, 1);
        await_ends(w);
        assert_int_equal(w->p[0].err + w->p[1].err, 0);
        go_out(&w->p[0]);
        go_out(&w->p[1]);
        do_group(w, 2);
        assert_int_equal(w->p[0].mesh->n_opened, 1);
        close_world(w);
    }
}

/* Both dial at once, and one has tried in vain what the other dials by: it does
 * not go back there. */
static void both_dial_by_two_transports(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        world *w = open_world_of(transport(1), transport(2));
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(seat(w, r, &w->p[1 - r], 1 - r), 0);
        w->p[1].mesh->peers[0].access = 1;
        do_group(w, 11);
        assert_ptr_equal(peer_of(w, 0)->conn->net, w->p[0].other);
        assert_ptr_equal(peer_of(w, 1)->conn->net, w->p[1].other);
        close_world(w);
    }
}

/* It had no reply by shm while this rank was away, and has come by TCP. What it
 * has given up comes to light after that. */
static void a_call_that_was_given_up(void **state)
{
    (void)state;
    world *w = open_world_of(transport(1), transport(2));
    uint64_t until = tt_now_ns() + 10 * TT_NS_PER_S;
    process *away = &w->p[1];
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(seat(w, r, &w->p[1 - r], 1 - r), 0);
    w->p[0].mesh->dial_ns = 50 * TT_NS_PER_MS;
    go_in(w, 0, 11, false);
    while (!is_up(w, 0) && tt_now_ns() < until)
        step(&w->p[0]);
    assert_ptr_equal(peer_of(w, 0)->conn->net, w->p[0].other);
    while (!is_up(w, 1) && tt_now_ns() < until) {
        tt_engine_lock(away->engine);
        w->other->progress(away->other, true);
        tt_engine_unlock(away->engine);
    }
    go_in(w, 1, 11, false);
    await_ends(w);
    assert_int_equal(w->p[0].err + away->err, 0);
    go_out(&w->p[0]);
    go_out(away);
    close_world(w);
}

/* It was in a group; the next one tells who sits there now. */
static void another_takes_the_seat(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TRANSPORTS; t++) {
        world *w = open_world(transport(t));
        do_group(w, 1);
        go_in(w, 0, 2, true);
        const process before = {.id = w->p[1].id,
                                .addr_bytes = w->p[1].addr_bytes};
        stop(w, 1);
        start(w, 1);
        assert_int_equal(seat(w, 0, &w->p[1], 1), 0);
        check_failed(&w->p[0], "rank 1 is lost: it was started again");
        assert_true(w->p[0].is_over);
        go_out(&w->p[0]);
        assert_int_equal(w->p[0].mesh->n_ahead, 0);
        for (uint64_t number = 3; number <= 5; number++)
            do_group(w, number);
        assert_int_equal(seat(w, 0, &before, 1), TUTTI_EPEER);
        assert_int_equal(tt_link_id_compare(&peer_of(w, 0)->id, &w->p[1].id),
                         0);
        do_group(w, 6);
        close_world(w);
    }
}

/* It calls before this rank has been told of it. */
static void another_calls(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TRANSPORTS; t++) {
        world *w = open_world(transport(t));
        uint64_t until = tt_now_ns() + 10 * TT_NS_PER_S;
        do_group(w, 1);
        go_in(w, 0, 2, true);
        stop(w, 1);
        start(w, 1);
        go_in(w, 1, 3, true);
        while (w->p[0].mesh->n_opened < 2 && tt_now_ns() < until)
            step_all(w);
        check_failed(&w->p[0], "rank 1 is lost: ");
        go_out(&w->p[0]);
        go_in(w, 0, 3, true);
        await_ends(w);
        assert_int_equal(w->p[0].err + w->p[1].err, 0);
        go_out(&w->p[0]);
        go_out(&w->p[1]);
        close_world(w);
    }
}

static void lose(process *p, uint32_t rank)
{
    tt_engine_lock(p->engine);
    tt_engine_up.lost(&p->mesh->peers[rank], TUTTI_EPEER, "a test cuts it");
    tt_engine_step(p->engine); /* upcalls come in the middle of it */
    tt_engine_unlock(p->engine);
}

/* One side has lost the connection and calls again; the other one has not
 * noticed, and is told something by the old one that never comes. */
static void the_same_one_calls_again(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TRANSPORTS; t++) {
        world *w = open_world(transport(t));
        uint64_t until = tt_now_ns() + 10 * TT_NS_PER_S;
        do_group(w, 1);
        go_in(w, 0, 2, true);
        lose(&w->p[1], 0);
        assert_true(peer_of(w, 1)->is_lost);
        go_in(w, 1, 2, true);
        assert_false(peer_of(w, 1)->is_lost);
        while (!is_up(w, 1) && tt_now_ns() < until)
            step_all(w);
        while (!w->p[1].is_over && tt_now_ns() < until)
            step_all(w); /* it is told that the group has failed */
        check_failed(&w->p[0], "rank 1 is lost: ");
        assert_int_not_equal(w->p[1].err, 0);
        for (uint32_t r = 0; r < 2; r++)
            go_out(&w->p[r]);
        do_group(w, 3);
        close_world(w);
    }
}

/* A lost one is tried again for the next group. */
static void a_lost_one_is_tried_again(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TRANSPORTS; t++) {
        world *w = open_world(transport(t));
        for (uint64_t number = 1; number <= 60; number += 2) {
            do_group(w, number);
            go_in(w, 0, number + 1, true);
            lose(&w->p[0], 1);
            check_failed(&w->p[0], "rank 1 is lost: a test cuts it");
            go_out(&w->p[0]);
            assert_int_equal(w->p[0].mesh->n_ahead, 0);
            uint64_t until = tt_now_ns() + 10 * TT_NS_PER_S;
            while (!peer_of(w, 1)->is_lost && tt_now_ns() < until)
                step_all(w);
            assert_true(peer_of(w, 1)->is_lost);
        }
        close_world(w);
    }
}

/* Nobody is there: the group says so, with the addresses. */
static void nobody_sits_there(void **state)
{
    (void)state;
    for (uint32_t t = 1; t < TRANSPORTS; t++) {
        world *w = open_world(transport(t));
        const process before = w->p[1];
        uint64_t until = tt_now_ns() + 10 * TT_NS_PER_S;
        const tt_group_opts opts = {
            .origin = origin, .number = 1, .members = both, .n = 2};
        stop(w, 1);
        assert_int_equal(seat(w, 0, &before, 1), 0);
        process *p = &w->p[0];
        assert_int_equal(tt_group_create(p->mesh, &opts, &p->team), 0);
        p->program = tt_sum_program(&w->mem, 2, 0, COUNT);
        tt_engine_lock(p->engine);
        assert_int_equal(tt_sum_begin(p->team, p->program, p->at, 0, note, p),
                         0);
        tt_engine_unlock(p->engine);
        while (!p->is_over && tt_now_ns() < until)
            step(p);
        assert_int_equal(p->err, TUTTI_EPEER);
        go_out(p);
        start(w, 1);
        do_group(w, 2);
        close_world(w);
    }
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    world *w = open_world(&tt_net_loop);
    tt_mesh *mesh = w->p[0].mesh;
    const tt_link_id none = {{0}};
    const tt_access accesses[2] = {{.net = w->p[0].net,
                                    .addr = w->p[1].addr,
                                    .addr_bytes = TT_NET_ADDR_MAX + 1}};
    const tt_link_id *id = &w->p[1].id;
    tt_team *team;
    assert_int_equal(seat(w, 0, &w->p[1], 0), TUTTI_EINVAL);
    assert_int_equal(seat(w, 0, &w->p[1], RANKS), TUTTI_EINVAL);
    assert_int_equal(tt_mesh_seat(mesh, 1, &none, NULL, 0), TUTTI_EINVAL);
    assert_int_equal(tt_mesh_seat(mesh, 1, id, accesses, 1), TUTTI_EINVAL);
    assert_int_equal(tt_mesh_seat(mesh, 1, id, accesses, 2), TUTTI_EINVAL);
    assert_int_equal(tt_team_create(mesh, 1, both, 2, &team), TUTTI_EINVAL);
    assert_null(tt_mesh_called(w->p[0].net, 0, id));
    assert_null(tt_mesh_called(w->p[0].net, RANKS, id));
    assert_null(tt_mesh_called(w->p[0].net, 1, &none));
    do_group(w, 1);
    close_world(w);
}

/* Without memory for the addresses nothing has changed. */
static void memory_for_a_seat(void **state)
{
    (void)state;
    world *w = open_world(&tt_net_loop);
    w->counts.fail_at = w->counts.n_allocs + 1;
    assert_int_equal(seat(w, 0, &w->p[1], 1), TUTTI_ENOMEM);
    assert_int_equal(peer_of(w, 0)->n_accesses, 0);
    do_group(w, 1);
    close_world(w);
}

/* ----------------------------------------------------------------- storm -- */

/* Groups one after the other, of two or three; somebody is started again, loses
 * a connection, or has no memory. */
typedef struct storm {
    world *w;
    tt_rng rng;
    uint64_t number, seed;
    uint32_t n, ranks[RANKS];
    uint32_t n_entered, n_out;
    bool is_broken; /* it need not go well */
    bool is_told;
    bool is_last; /* all are in it, and nothing happens */
    uint32_t n_well, n_broken, n_started;
} storm;

static uint32_t below(storm *s, uint64_t n)
{
    return (uint32_t)tt_rng_below(&s->rng, n);
}

static uint32_t place_of(const storm *s, uint32_t r)
{
    uint32_t i = 0;
    while (i < s->n && s->ranks[i] != r)
        i++;
    return i;
}

static void form(storm *s)
{
    s->number++;
    s->n = s->n_entered = s->n_out = 0;
    s->is_broken = s->is_told = false;
    uint32_t absent = s->is_last ? RANKS : below(s, RANKS + 1);
    for (uint32_t r = 0; r < RANKS; r++)
        if (r != absent)
            s->ranks[s->n++] = r;
}

/* False: there is no memory. */
static bool enter(storm *s, uint32_t r)
{
    world *w = s->w;
    process *p = &w->p[r];
    const tt_group_opts opts = {
        .origin = origin, .number = s->number, .members = s->ranks, .n = s->n};
    for (uint32_t i = 0; i < s->n; i++)
        if (s->ranks[i] != r && seat(w, r, &w->p[s->ranks[i]], s->ranks[i]))
            return false;
    if (tt_group_create(p->mesh, &opts, &p->team))
        return false;
    p->program = tt_sum_program(&tt_mem_std, s->n, place_of(s, r), COUNT);
    p->is_over = false;
    for (uint32_t i = 0; i < COUNT; i++)
        p->at[i] = i * (r + 1) + (uint32_t)s->number;
    tt_engine_lock(p->engine);
    tutti_err err = tt_sum_begin(p->team, p->program, p->at, 0, note, p);
    tt_engine_unlock(p->engine);
    if (err)
        note(p, err);
    return true;
}

static void end_one(storm *s, uint32_t r)
{
    process *p = &s->w->p[r];
    if (p->err && !s->is_broken) {
        const char *text;
        tt_team_state(p->team, &text);
        fail_msg("rank %u, group %llu: %s (TT_SEED=%llu)", r,
                 (unsigned long long)s->number, text,
                 (unsigned long long)s->seed);
    }
    for (uint32_t i = 0; i < COUNT && !p->err; i++) {
        uint32_t want = 0;
        for (uint32_t k = 0; k < s->n; k++)
            want += i * (s->ranks[k] + 1) + (uint32_t)s->number;
        if (p->at[i] != want)
            fail_msg("rank %u, group %llu: wrong result (TT_SEED=%llu)", r,
                     (unsigned long long)s->number,
                     (unsigned long long)s->seed);
    }
    go_out(p);
    s->n_out++;
}

static void turn(storm *s)
{
    uint32_t r = below(s, RANKS);
    process *p = &s->w->p[r];
    bool is_member = place_of(s, r) < s->n;
    step(p);
    if (!is_member || below(s, 4) > 0)
        return;
    if (!p->team && place_of(s, r) == s->n_entered) {
        s->n_entered++;
        if (s->is_told || !enter(s, r)) {
            s->is_broken = true;
            s->n_out++;
        }
    } else if (p->team && s->is_told) {
        tt_engine_lock(p->engine);
        tt_team_fail(p->team, TUTTI_EABORTED, TT_NONE, "it is told");
        tt_engine_unlock(p->engine);
    }
    if (p->team && p->is_over)
        end_one(s, r);
}

static void restart(storm *s)
{
    uint32_t r = below(s, RANKS);
    bool was_in = s->w->p[r].team != NULL;
    s->w->counts.fail_at = 0;
    stop(s->w, r);
    start(s->w, r);
    s->n_started++;
    if (place_of(s, r) >= s->n)
        return;
    s->is_broken = true;
    s->n_out += was_in;
}

/* One group, from its forming to its end. */
static void play(storm *s, bool is_poor)
{
    form(s);
    uint32_t fate = s->is_last ? 0 : below(s, 4), at = below(s, 60);
    uint32_t told_at = at + below(s, 400);
    tt_test_mem *counts = &s->w->counts;
    if (is_poor && fate == 3) {
        s->is_broken = true;
        counts->fail_at = counts->n_allocs + 1 + below(s, 30);
    }
    for (uint32_t i = 0; s->n_out < s->n; i++) {
        if (i == at && fate == 1)
            restart(s);
        if (i == at && fate == 2 && s->n_entered > 0) {
            process *p = &s->w->p[s->ranks[below(s, s->n_entered)]];
            s->is_broken = true;
            lose(p, (p->net->rank + 1 + below(s, RANKS - 1)) % RANKS);
        }
        s->is_told |= s->is_broken && i >= told_at;
        turn(s);
        if (i > 3000000)
            fail_msg("stuck in group %llu (TT_SEED=%llu)",
                     (unsigned long long)s->number,
                     (unsigned long long)s->seed);
    }
    counts->fail_at = 0;
    s->n_well += !s->is_broken;
    s->n_broken += s->is_broken;
    /* Who has a connection that is not there for the other notices that. */
    for (uint32_t quiet = 0; s->is_broken && quiet < 100; quiet++)
        step_all(s->w);
}

static void run_storm(const tt_net_ops *ops, uint64_t number, uint32_t n,
                      bool is_poor)
{
    storm s = {.w = open_world(ops), .seed = tt_test_seed(number)};
    s.rng.state = s.seed;
    while (s.number < n)
        play(&s, is_poor);
    s.is_last = true; /* nothing of those before it is kept after it */
    play(&s, false);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(s.w->p[r].mesh->n_ahead, 0);
    print_message("# %u groups went well, %u broke, %u processes were started "
                  "again\n",
                  s.n_well, s.n_broken, s.n_started);
    assert_true(s.n_well > n / 8 && s.n_broken > n / 8);
    close_world(s.w);
}

static void storm_in_memory(void **state)
{
    (void)state;
    run_storm(&tt_net_loop, 1, 1000, true);
}

static void storm_with_delays(void **state)
{
    (void)state;
    tt_chaos_opts chaos = TT_CHAOS_OPTS_INIT;
    chaos.seed = tt_test_seed(2);
    chaos.full_per_1000 = 200;
    chaos.delay_per_1000 = 200;
    chaos.delay_turns = 20;
    run_storm(tt_chaos_wrap(&tt_net_loop, &chaos), 2, 500, false);
}

static void storm_over_shm(void **state)
{
    (void)state;
    run_storm(tt_transport_find("shm"), 3, 300, true);
}

static void storm_over_tcp(void **state)
{
    (void)state;
    run_storm(tt_transport_find("tcp"), 4, 300, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_do_well),
        cmocka_unit_test(a_call_comes_before_the_seat),
        cmocka_unit_test(both_dial_by_two_transports),
        cmocka_unit_test(a_call_that_was_given_up),
        cmocka_unit_test(another_takes_the_seat),
        cmocka_unit_test(another_calls),
        cmocka_unit_test(the_same_one_calls_again),
        cmocka_unit_test(a_lost_one_is_tried_again),
        cmocka_unit_test(nobody_sits_there),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(memory_for_a_seat),
        cmocka_unit_test(storm_in_memory),
        cmocka_unit_test(storm_with_delays),
        cmocka_unit_test(storm_over_shm),
        cmocka_unit_test(storm_over_tcp),
    };
    tt_test_limit(240);
    return TT_RUN_TAP(tests);
}
