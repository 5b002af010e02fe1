/* SPDX-License-Identifier: BSD-3-Clause
 * group_test.c - groups break by the thousand on the connections of a
 * communicator, and it does not notice.
 *
 * The storm: some ranks in one thread, each with an endless row of calls of a
 * communicator and one group after the other, as a controller would make them.
 * Most groups break somewhere in the middle: a member gives up, never comes,
 * reduces less than the others, or something else. Its buffers are spoilt and
 * freed at once, so what still read or wrote them is found out. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/state.h"
#include "support/alloc.h"
#include "support/chaos.h"
#include "support/loop.h"
#include "support/rig.h"
#include "support/seed.h"
#include "support/sums.h"

enum { RANKS = 4, BUFFERS = 3, SIZES = 3, MORE_SIZES = 5, BROKEN = 1000 };
/* In elements. The storm has the first SIZES of them. */
static const uint64_t sizes[MORE_SIZES] = {5, 700, 20011, 15000, 3 << 20};
static const uint64_t origin = UINT64_C(0x123456789abcdef);

/* Giving pages of shared memory back takes long: freed buffers are used again,
 * after a while. */
enum { SPARES = 8 };
typedef struct spares {
    uint32_t *at[SPARES];
    uint32_t next;
} spares;

/* A buffer of a group, or of a call of the communicator. */
typedef struct buffer {
    uint32_t *at;
    uint64_t count;
    bool is_begun, is_over;
    tutti_err err;
} buffer;

typedef struct group {
    uint64_t number;
    uint32_t n, ranks[RANKS], n_buffers, size[BUFFERS];
    uint32_t n_left, n_well;
    uint32_t doom;    /* the member that breaks it; TT_NONE: nobody */
    uint32_t lazy;    /* that has a buffer less than the others; TT_NONE */
    uint32_t odd;     /* that has another first buffer; TT_NONE */
    uint32_t told_in; /* the controller tells the others in so many turns */
    bool is_broken;
} group;

typedef struct member {
    group *g; /* NULL: in none */
    uint32_t me;
    tt_team *team; /* NULL: not entered */
    buffer of[BUFFERS];
} member;

typedef struct world {
    tt_rig rig;
    tt_regions *regions; /* [RANKS]; NULL: ordinary memory */
    spares spares[RANKS][MORE_SIZES];
    tt_rng rng;
    uint64_t seed;
    tt_program *programs[RANKS][RANKS + 1][RANKS][MORE_SIZES];
    member members[RANKS];
    uint64_t last_number;
    uint32_t n_broken, n_well, n_told;
    /* The communicator's calls. */
    uint64_t n_calls[RANKS], last_call;
    buffer call[RANKS];
} world;

/* --------------------------------------------------------------- buffers -- */

static uint32_t value(uint64_t what, uint32_t rank, uint64_t i)
{
    return (uint32_t)((what + 1) * 2654435761u + rank * 40503u + i * 7);
}

static spares *spares_of(world *w, uint32_t rank, uint64_t count)
{
    uint32_t size = 0;
    while (sizes[size] != count)
        size++;
    return &w->spares[rank][size];
}

static uint32_t *new_memory(world *w, uint32_t rank, uint64_t count)
{
    if (!w->regions)
        return malloc(count * 4);
    spares *s = spares_of(w, rank, count);
    uint32_t *at = s->at[s->next];
    s->at[s->next] = NULL;
    return at ? at : tt_regions_alloc(&w->regions[rank], count * 4);
}

static void free_memory(world *w, uint32_t rank, uint64_t count, uint32_t *at)
{
    if (!at || !w->regions) {
        free(at);
        return;
    }
    memset(at, 0xee, count * 4);
    spares *s = spares_of(w, rank, count);
    while (s->at[s->next % SPARES] && s->next < 2 * SPARES)
        s->next++;
    s->next %= SPARES;
    tt_regions_free(&w->regions[rank], s->at[s->next]);
    s->at[s->next] = at;
    s->next = (s->next + 1) % SPARES;
}

static void make_buffer(world *w, buffer *b, uint32_t rank, uint64_t what,
                        uint64_t count)
{
    *b = (buffer){.count = count};
    b->at = new_memory(w, rank, count);
    for (uint64_t i = 0; i < count; i++)
        b->at[i] = value(what, rank, i);
}

static void free_buffer(world *w, buffer *b, uint32_t rank)
{
    free_memory(w, rank, b->count, b->at);
    *b = (buffer){.at = NULL};
}

static void check_buffer(const world *w, const buffer *b, uint64_t what,
                         const uint32_t *ranks, uint32_t n, const char *of)
{
    for (uint64_t i = 0; i < b->count; i++) {
        uint32_t want = 0;
        for (uint32_t k = 0; k < n; k++)
            want += value(what, ranks[k], i);
        if (b->at[i] != want)
            fail_msg("%s: element %llu of %llu is %08x instead of %08x "
                     "(TT_SEED=%llu)",
                     of, (unsigned long long)i, (unsigned long long)b->count,
                     b->at[i], want, (unsigned long long)w->seed);
    }
}

static void note(void *arg, tutti_err err)
{
    buffer *b = arg;
    b->is_over = true;
    b->err = err;
}

/* -------------------------------------------------------------- programs -- */

static tt_program *program_of(world *w, uint32_t rank, uint32_t n, uint32_t me,
                              uint32_t size)
{
    tt_program **at = &w->programs[rank][n][me][size];
    if (!*at)
        *at = tt_sum_program(w->rig.mem, n, me, sizes[size]);
    return *at;
}

static void free_programs(world *w)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        tt_engine_lock(w->rig.engines[r]);
        for (uint32_t n = 0; n <= RANKS; n++)
            for (uint32_t me = 0; me < RANKS; me++)
                for (uint32_t s = 0; s < MORE_SIZES; s++)
                    tt_program_unref(w->programs[r][n][me][s]);
        tt_engine_unlock(w->rig.engines[r]);
    }
    memset(w->programs, 0, sizeof(w->programs));
}

static tutti_err begin(tt_team *team, tt_program *program, buffer *b)
{
    b->is_begun = true;
    return tt_sum_begin(team, program, b->at, b->count == sizes[3], note, b);
}

/* ---------------------------------------------------------- communicator -- */

static uint32_t size_of_call(uint64_t k)
{
    return (uint32_t)(k % SIZES);
}

static void end_call(world *w, uint32_t r)
{
    static const uint32_t all[RANKS] = {0, 1, 2, 3};
    const char *text;
    tt_team_state(w->rig.teams[0][r], &text);
    if (w->call[r].err)
        fail_msg("rank %u: the communicator has failed: %s (TT_SEED=%llu)", r,
                 text, (unsigned long long)w->seed);
    check_buffer(w, &w->call[r], w->n_calls[r], all, RANKS, "communicator");
    free_buffer(w, &w->call[r], r);
    w->n_calls[r]++;
}

static void call_on(world *w, uint32_t r)
{
    buffer *b = &w->call[r];
    if (b->is_begun && b->is_over)
        end_call(w, r);
    if (b->is_begun || w->n_calls[r] >= w->last_call)
        return;
    uint32_t size = size_of_call(w->n_calls[r]);
    make_buffer(w, b, r, w->n_calls[r], sizes[size]);
    assert_int_equal(
        begin(w->rig.teams[0][r], program_of(w, r, RANKS, r, size), b), 0);
}

/* ---------------------------------------------------------------- groups -- */

/* As a controller: of members that are in none. */
static void form(world *w)
{
    uint32_t ranks[RANKS], n = 0;
    for (uint32_t r = 0; r < RANKS; r++)
        if (!w->members[r].g && tt_rng_below(&w->rng, 4) > 0)
            ranks[n++] = r;
    if (n < 2)
        return;
    group *g = calloc(1, sizeof(*g));
    *g = (group){.number = ++w->last_number,
                 .n = n,
                 .n_buffers = 1 + (uint32_t)tt_rng_below(&w->rng, BUFFERS),
                 .doom = TT_NONE,
                 .lazy = TT_NONE,
                 .odd = TT_NONE,
                 .told_in = 200};
    uint64_t fate = tt_rng_below(&w->rng, 10);
    uint32_t who = (uint32_t)tt_rng_below(&w->rng, n);
    if (fate < 6)
        g->doom = who;
    else if (fate == 6 && g->n_buffers > 1)
        g->lazy = who;
    else if (fate == 7)
        g->odd = who;
    for (uint32_t b = 0; b < g->n_buffers; b++)
        g->size[b] = (uint32_t)tt_rng_below(&w->rng, SIZES);
    for (uint32_t i = 0; i < n; i++) {
        g->ranks[i] = ranks[i];
        w->members[ranks[i]] = (member){.g = g, .me = i};
    }
}

static uint64_t name_of(const group *g, uint32_t bucket)
{
    return g->number << 8 | bucket;
}

static void leave(world *w, uint32_t r, bool is_well)
{
    member *m = &w->members[r];
    group *g = m->g;
    tt_engine_lock(w->rig.engines[r]);
    if (m->team)
        tt_team_leave(m->team);
    tt_engine_unlock(w->rig.engines[r]);
    for (uint32_t b = 0; b < g->n_buffers; b++) {
        buffer *of = &m->of[b];
        assert_true(!of->is_begun || of->is_over);
        if (of->is_begun && !of->err && g->odd == TT_NONE)
            check_buffer(w, of, name_of(g, b), g->ranks, g->n, "group");
        free_buffer(w, of, r);
    }
    g->is_broken |= !is_well;
    g->n_well += is_well;
    *m = (member){.g = NULL};
    if (++g->n_left < g->n)
        return;
    w->n_broken += g->is_broken;
    w->n_well += !g->is_broken;
    free(g);
}

static void enter(world *w, uint32_t r)
{
    member *m = &w->members[r];
    const tt_group_opts opts = {.origin = origin,
                                .number = m->g->number,
                                .members = m->g->ranks,
                                .n = m->g->n};
    assert_int_equal(tt_group_create(w->rig.meshes[r], &opts, &m->team), 0);
}

static uint32_t n_buffers_of(const member *m)
{
    return m->g->n_buffers - (m->g->lazy == m->me);
}

static void begin_next(world *w, uint32_t r)
{
    member *m = &w->members[r];
    const group *g = m->g;
    uint32_t b = 0;
    while (b < n_buffers_of(m) && m->of[b].is_begun)
        b++;
    if (b == n_buffers_of(m))
        return;
    uint32_t size = g->size[b];
    if (g->odd == m->me && b == 0)
        size = (size + 1) % SIZES;
    make_buffer(w, &m->of[b], r, name_of(g, b), sizes[size]);
    if (begin(m->team, program_of(w, r, g->n, m->me, size), &m->of[b]))
        note(&m->of[b], TUTTI_EPEER);
}

static bool is_through(const member *m)
{
    for (uint32_t b = 0; b < n_buffers_of(m); b++)
        if (!m->of[b].is_over || m->of[b].err)
            return false;
    return true;
}

/* The controller has heard that it broke, and tells those who do not know. */
static bool is_told(world *w, group *g)
{
    if (!g->is_broken || g->told_in == 0)
        return g->is_broken;
    return --g->told_in == 0 && ++w->n_told > 0;
}

static void act(world *w, uint32_t r)
{
    member *m = &w->members[r];
    group *g = m->g;
    const char *text;
    if (!g || tt_rng_below(&w->rng, 3) > 0)
        return;
    bool told = is_told(w, g);
    if (!m->team && told) {
        leave(w, r, false); /* it never was in it */
        return;
    }
    if (!m->team) {
        if (tt_rng_below(&w->rng, 6) == 0)
            enter(w, r);
        return;
    }
    tt_engine_lock(w->rig.engines[r]);
    bool gives_up = g->doom == m->me && tt_rng_below(&w->rng, 12) == 0;
    if (gives_up || told)
        tt_team_fail(m->team, TUTTI_EABORTED, TT_NONE, "a test breaks it");
    else
        begin_next(w, r);
    bool has_failed = tt_team_state(m->team, &text) != TUTTI_OK;
    tt_engine_unlock(w->rig.engines[r]);
    /* Who has less than the others cannot know, and commits. */
    if (has_failed)
        leave(w, r, false);
    else if (is_through(m) && g->doom != m->me)
        leave(w, r, true);
}

/* ----------------------------------------------------------------- storm -- */

static bool turn(world *w)
{
    uint32_t r = (uint32_t)tt_rng_below(&w->rng, RANKS);
    tt_engine *e = w->rig.engines[r];
    act(w, r);
    tt_engine_lock(e);
    call_on(w, r);
    bool has_moved = tt_engine_step(e);
    tt_engine_unlock(e);
    return has_moved;
}

static bool is_busy(const world *w)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (w->members[r].g || w->n_calls[r] < w->last_call)
            return true;
    return false;
}

/* Until n groups are broken, and then until all is quiet. */
static void storm(world *w, uint32_t n)
{
    uint64_t n_turns = 0;
    w->last_call = UINT64_MAX;
    while (w->n_broken < n) {
        if (tt_rng_below(&w->rng, 8) == 0)
            form(w);
        turn(w);
        if (++n_turns > 4000000)
            fail_msg("stuck: %u groups broke (TT_SEED=%llu)", w->n_broken,
                     (unsigned long long)w->seed);
    }
    w->last_call = 0;
    for (uint32_t r = 0; r < RANKS; r++)
        if (w->n_calls[r] + w->call[r].is_begun > w->last_call)
            w->last_call = w->n_calls[r] + w->call[r].is_begun;
    for (n_turns = 0; is_busy(w); n_turns++) {
        turn(w);
        if (n_turns > 10000000)
            fail_msg("stuck at the end (TT_SEED=%llu)",
                     (unsigned long long)w->seed);
    }
    for (uint32_t quiet = 0; quiet < 2000;)
        quiet = turn(w) ? 0 : quiet + 1;
}

/* No connection was lost or made twice, nothing is kept, no place is taken. */
static void check_meshes(const world *w)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const tt_mesh *mesh = w->rig.meshes[r];
        assert_int_equal(mesh->n_ahead, 0);
        assert_true(mesh->n_opened < RANKS);
        for (uint32_t i = 0; i < mesh->n_peers; i++) {
            const tt_peer *p = &mesh->peers[i];
            assert_false(p->is_lost);
            assert_int_equal(p->n_kept + p->n_early + p->n_ctl, 0);
            assert_int_equal(p->n_reserved, 0);
            assert_int_equal(p->n_lent, 0);
            assert_true((uint8_t)(p->n_first - p->n_first_taken) <
                        TT_EAGER_CALLS / 2);
        }
    }
}

static void run_storm(const tt_net_ops *ops, uint64_t number, bool is_mapped)
{
    tt_test_mem counts;
    tt_mem mem = tt_test_mem_init(&counts, 0);
    tt_regions regions[RANKS];
    world *w = calloc(1, sizeof(*w));
    for (uint32_t r = 0; r < RANKS; r++)
        regions[r] = (tt_regions)TT_REGIONS_INIT(&tt_mem_std);
    w->seed = tt_test_seed(number);
    w->rng = (tt_rng){w->seed};
    w->regions = is_mapped ? regions : NULL;
    const tt_rig_opts opts = {.n = RANKS,
                              .ops = ops,
                              .mem = &mem,
                              .eager_bytes = 2048,
                              .direct_bytes = is_mapped ? 4096 : 0,
                              .regions = w->regions,
                              .is_silent = tt_rng_below(&w->rng, 2)};
    assert_int_equal(tt_rig_create(&opts, &w->rig), 0);
    storm(w, BROKEN / 2);
    check_meshes(w);
    free_programs(w);
    uint64_t bytes = counts.live_bytes;
    storm(w, BROKEN / 2 + BROKEN);
    check_meshes(w);
    free_programs(w);
    uint64_t grown = counts.live_bytes > bytes ? counts.live_bytes - bytes : 0;
    print_message("# %u groups broke, %u went well, %u were told; %llu calls; "
                  "%llu bytes more\n",
                  w->n_broken, w->n_well, w->n_told,
                  (unsigned long long)w->last_call, (unsigned long long)grown);
    /* Lists grow to the most that they have had. */
    assert_true(grown < (uint64_t)64 * BROKEN);
    assert_true(w->n_well > 20 && w->last_call > 50);
    tt_rig_destroy(&w->rig);
    assert_true(tt_test_mem_is_clean(&counts));
    for (uint32_t r = 0; r < RANKS; r++)
        tt_regions_fini(&regions[r]);
    free(w);
}

static void storm_in_memory(void **state)
{
    (void)state;
    run_storm(&tt_net_loop, 1, true);
}

static void storm_with_delays(void **state)
{
    (void)state;
    tt_chaos_opts chaos = TT_CHAOS_OPTS_INIT;
    chaos.seed = tt_test_seed(2);
    chaos.full_per_1000 = 200;
    chaos.delay_per_1000 = 200;
    chaos.delay_turns = 20;
    run_storm(tt_chaos_wrap(&tt_net_loop, &chaos), 2, false);
}

static void storm_over_shm(void **state)
{
    (void)state;
    run_storm(tt_transport_find("shm"), 3, true);
}

static void storm_over_tcp(void **state)
{
    (void)state;
    run_storm(tt_transport_find("tcp"), 4, false);
}

/* ----------------------------------------------------------- small cases -- */

/* Two ranks in memory, whose groups are entered by hand. */
typedef struct pair {
    world w;
    tt_team *team[2];
    buffer of[2][12];
} pair;

static pair *open_pair(const tt_net_ops *ops, uint64_t eager_bytes)
{
    pair *p = calloc(1, sizeof(*p));
    const tt_rig_opts opts = {.n = 2,
                              .ops = ops,
                              .mem = &tt_mem_std,
                              .eager_bytes = eager_bytes,
                              .liveness_ns = 100 * TT_NS_PER_MS};
    assert_int_equal(tt_rig_create(&opts, &p->w.rig), 0);
    return p;
}

static void go_into(pair *p, uint32_t r, uint64_t number, bool is_alone)
{
    static const uint32_t both[] = {0, 1};
    const tt_group_opts opts = {.origin = origin,
                                .number = number,
                                .members = is_alone ? &both[r] : both,
                                .n = is_alone ? 1 : 2};
    assert_int_equal(tt_group_create(p->w.rig.meshes[r], &opts, &p->team[r]),
                     0);
}

static void go_out(pair *p, uint32_t r)
{
    tt_engine_lock(p->w.rig.engines[r]);
    tt_team_leave(p->team[r]);
    tt_engine_unlock(p->w.rig.engines[r]);
    for (uint32_t i = 0; i < 12; i++)
        free_buffer(&p->w, &p->of[r][i], r);
    p->team[r] = NULL;
}

static void reduce(pair *p, uint32_t r, uint32_t i, uint32_t size)
{
    make_buffer(&p->w, &p->of[r][i], r, i, sizes[size]);
    tt_engine_lock(p->w.rig.engines[r]);
    assert_int_equal(
        begin(p->team[r], program_of(&p->w, r, 2, r, size), &p->of[r][i]), 0);
    tt_engine_unlock(p->w.rig.engines[r]);
}

static void step_both(pair *p)
{
    for (int i = 0; i < 200; i++) {
        tt_engine *e = p->w.rig.engines[i % 2];
        tt_engine_lock(e);
        tt_engine_step(e);
        tt_engine_unlock(e);
    }
}

static const tt_peer *peer_of(const pair *p, uint32_t r)
{
    return &p->w.rig.meshes[r]->peers[1 - r];
}

static tutti_err state_of(const pair *p, uint32_t r, const char **text)
{
    return tt_team_state(p->team[r], text);
}

static void close_pair(pair *p)
{
    const char *text;
    for (uint32_t r = 0; r < 2; r++) {
        if (p->team[r])
            go_out(p, r);
        assert_false(peer_of(p, r)->is_lost);
        assert_int_equal(tt_team_state(p->w.rig.teams[0][r], &text), 0);
    }
    for (uint32_t r = 0; r < 2; r++) {
        tt_engine_lock(p->w.rig.engines[r]);
        for (uint32_t s = 0; s < MORE_SIZES; s++)
            tt_program_unref(p->w.programs[r][2][r][s]);
        tt_engine_unlock(p->w.rig.engines[r]);
    }
    tt_rig_destroy(&p->w.rig);
    free(p);
}

/* What comes before the group is entered is kept, and is all that was
 * missing. */
static void early_data_is_kept(void **state)
{
    (void)state;
    pair *p = open_pair(&tt_net_loop, 2048);
    go_into(p, 0, 1, false);
    for (uint32_t i = 0; i < 12; i++) /* more than may come uncalled */
        reduce(p, 0, i, 0);
    step_both(p);
    assert_int_equal(peer_of(p, 1)->n_kept, TT_EAGER_CALLS);
    assert_true(peer_of(p, 1)->n_early > 0);
    go_into(p, 1, 1, false);
    for (uint32_t i = 0; i < 12; i++)
        reduce(p, 1, i, 0);
    step_both(p);
    for (uint32_t i = 0; i < 12; i++)
        for (uint32_t r = 0; r < 2; r++) {
            static const uint32_t both[] = {0, 1};
            assert_true(p->of[r][i].is_over && !p->of[r][i].err);
            check_buffer(&p->w, &p->of[r][i], i, both, 2, "group");
        }
    assert_int_equal(peer_of(p, 1)->n_kept + peer_of(p, 1)->n_early, 0);
    close_pair(p);
}

typedef struct last_call {
    pair *p;
    uint32_t r;
} last_call;

static void note_and_leave(void *arg, tutti_err err)
{
    last_call *last = arg;
    pair *p = last->p;
    note(&p->of[last->r][0], err);
    tt_team_leave(p->team[last->r]);
    p->team[last->r] = NULL;
}

static void reduce_and_leave(last_call *last, uint32_t size)
{
    pair *p = last->p;
    const uint32_t r = last->r;
    make_buffer(&p->w, &p->of[r][0], r, 0, sizes[size]);
    go_into(p, r, size + 1, false);
    tt_engine_lock(p->w.rig.engines[r]);
    tutti_err err = tt_sum_begin(p->team[r], program_of(&p->w, r, 2, r, size),
                                 p->of[r][0].at, 0, note_and_leave, last);
    tt_engine_unlock(p->w.rig.engines[r]);
    assert_int_equal(err, 0);
}

/* By the one who is told that its call is over: the engine is not through with
 * it, and the group goes when it is. */
static void a_group_is_left_in_its_last_call(void **state)
{
    (void)state;
    static const uint32_t both[] = {0, 1};
    pair *p = open_pair(&tt_net_loop, 2048);
    for (uint32_t size = 0; size < SIZES; size++) {
        last_call last[] = {{p, 0}, {p, 1}};
        for (uint32_t r = 0; r < 2; r++) {
            reduce_and_leave(&last[r], size);
            step_both(p);
        }
        for (uint32_t r = 0; r < 2; r++) {
            const tt_mesh *mesh = p->w.rig.meshes[r];
            assert_true(p->of[r][0].is_over && !p->of[r][0].err);
            check_buffer(&p->w, &p->of[r][0], 0, both, 2, "group");
            free_buffer(&p->w, &p->of[r][0], r);
            assert_int_equal(mesh->n_refs, 1 + TT_RIG_TEAMS);
            assert_false(tt_is_group(mesh->teams->id));
        }
    }
    close_pair(p);
}

/* A peer that speaks of a later group has ended those before it. */
static void a_later_group_frees_the_earlier(void **state)
{
    (void)state;
    pair *p = open_pair(&tt_net_loop, 2048);
    for (uint64_t number = 1; number <= 50; number++) {
        go_into(p, 0, number, false);
        for (uint32_t i = 0; i < 12; i++)
            reduce(p, 0, i, 0);
        step_both(p);
        assert_int_equal(peer_of(p, 1)->n_kept + peer_of(p, 1)->n_early, 12);
        /* Nobody tells: as if the group's end were still on the way. */
        p->team[0]->n = 1;
        go_out(p, 0);
        step_both(p);
    }
    close_pair(p);
}

/* What comes for a group that is over is dropped, and who waits is told. */
static void a_group_that_is_over_is_over(void **state)
{
    (void)state;
    const char *text;
    for (uint32_t size = 0; size < SIZES; size++) {
        for (int is_kept = 0; is_kept < 2; is_kept++) {
            pair *p = open_pair(&tt_net_loop, 2048);
            go_into(p, 1, 7, true);
            if (!is_kept)
                go_out(p, 1);
            go_into(p, 0, 6, false);
            reduce(p, 0, 0, size);
            step_both(p);
            if (is_kept) {
                assert_int_equal(state_of(p, 0, &text), 0);
                go_out(p, 1);
                step_both(p);
            }
            assert_int_equal(state_of(p, 0, &text), TUTTI_EPEER);
            assert_string_equal(text, "rank 1 has ended it before rank 0");
            assert_int_equal(p->w.rig.meshes[1]->n_ahead, 0);
            go_out(p, 0);
            go_into(p, 0, 8, false);
            go_into(p, 1, 8, false);
            reduce(p, 0, 0, size);
            reduce(p, 1, 0, size);
            step_both(p);
            assert_true(p->of[0][0].is_over && !p->of[0][0].err);
            close_pair(p);
        }
    }
}

/* It is broken before it is entered here. */
static void a_broken_group_is_not_begun(void **state)
{
    (void)state;
    const char *text;
    pair *p = open_pair(&tt_net_loop, 2048);
    go_into(p, 0, 1, false);
    reduce(p, 0, 0, 2);
    step_both(p);
    assert_true(p->w.rig.meshes[1]->n_ahead > 0);
    go_out(p, 0);
    step_both(p);
    assert_int_equal(p->w.rig.meshes[1]->n_ahead, 0);
    go_into(p, 1, 1, false);
    assert_int_equal(state_of(p, 1, &text), TUTTI_EPEER);
    assert_string_equal(text, "rank 0 has ended it before rank 1");
    close_pair(p);
}

/* Who is told that a rank is lost, and why, loses it in its other teams, too; a
 * sentence that only sounds so says nothing of them. */
static void a_loss_is_told_with_its_cause(void **state)
{
    (void)state;
    static const char sentence[] = "rank 2 is lost: it was cut";
    for (uint32_t is_loss = 0; is_loss < 2; is_loss++) {
        tt_rig rig;
        const tt_rig_opts opts = {
            .n = 3, .ops = &tt_net_loop, .mem = &tt_mem_std};
        tt_reason reason = {
            .err = TUTTI_EPEER, .culprit = 2, .is_loss = is_loss};
        snprintf(reason.text, sizeof(reason.text), "%s",
                 is_loss ? "it was cut" : sentence);
        assert_int_equal(tt_rig_create(&opts, &rig), 0);
        tt_engine_lock(rig.engines[1]);
        tt_team_told(rig.teams[0][1], &reason);
        tt_engine_unlock(rig.engines[1]);
        for (uint32_t t = 0; t < TT_RIG_TEAMS; t++) {
            const char *text;
            bool has_failed = t == 0 || is_loss;
            assert_int_equal(tt_team_state(rig.teams[t][1], &text),
                             has_failed ? TUTTI_EPEER : TUTTI_OK);
            assert_string_equal(text, has_failed ? sentence : "");
        }
        tt_rig_destroy(&rig);
    }
}

/* A member that says nothing for long breaks the group, and no more: when it
 * comes back it is as it was. */
static void silence_breaks_the_group_alone(void **state)
{
    (void)state;
    const char *text;
    pair *p = open_pair(tt_transport_find("tcp"), 2048);
    go_into(p, 0, 1, false);
    reduce(p, 0, 0, 2);
    go_into(p, 1, 1, false);
    for (uint64_t until = tt_now_ns() + 5 * TT_NS_PER_S;
         peer_of(p, 1)->heard == 0 && tt_now_ns() < until;)
        step_both(p);
    tt_engine *e = p->w.rig.engines[0];
    for (uint64_t until = tt_now_ns() + 5 * TT_NS_PER_S;
         !state_of(p, 0, &text) && tt_now_ns() < until;) {
        tt_engine_lock(e);
        tt_engine_step(e);
        tt_engine_unlock(e);
    }
    assert_int_equal(state_of(p, 0, &text), TUTTI_EPEER);
    assert_string_equal(text, "rank 1 is lost: it does not answer any more");
    assert_false(peer_of(p, 0)->is_lost);
    go_out(p, 0);
    for (uint64_t until = tt_now_ns() + 5 * TT_NS_PER_S;
         !state_of(p, 1, &text) && tt_now_ns() < until;)
        step_both(p);
    assert_int_equal(state_of(p, 1, &text), TUTTI_EPEER);
    go_out(p, 1);
    for (uint32_t r = 0; r < 2; r++) {
        go_into(p, r, 2, false);
        reduce(p, r, 0, 2);
    }
    for (uint64_t until = tt_now_ns() + 5 * TT_NS_PER_S;
         !(p->of[0][0].is_over && p->of[1][0].is_over) && tt_now_ns() < until;)
        step_both(p);
    assert_true(p->of[0][0].is_over && !p->of[0][0].err);
    assert_true(p->of[1][0].is_over && !p->of[1][0].err);
    assert_int_equal(p->w.rig.meshes[0]->n_opened, 1);
    close_pair(p);
}

/* A process that had no processor has not asked: whoever is silent for it
 * meanwhile lives. */
static void a_pause_of_ones_own_is_no_silence(void **state)
{
    (void)state;
    const char *text;
    pair *p = open_pair(tt_transport_find("tcp"), 2048);
    for (uint32_t r = 0; r < 2; r++)
        go_into(p, r, 1, false);
    reduce(p, 0, 0, 2);
    for (uint64_t until = tt_now_ns() + 5 * TT_NS_PER_S;
         peer_of(p, 0)->heard == 0 && tt_now_ns() < until;)
        step_both(p);
    for (int i = 0; i < 3; i++) {
        usleep(300 * 1000); /* three times as long as a peer may be silent */
        step_both(p);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(state_of(p, r, &text), 0);
    }
    reduce(p, 1, 0, 2);
    for (uint64_t until = tt_now_ns() + 5 * TT_NS_PER_S;
         !(p->of[0][0].is_over && p->of[1][0].is_over) && tt_now_ns() < until;)
        step_both(p);
    assert_true(p->of[0][0].is_over && !p->of[0][0].err);
    assert_true(p->of[1][0].is_over && !p->of[1][0].err);
    close_pair(p);
}

static void step_one(const pair *p, uint32_t r)
{
    tt_engine *e = p->w.rig.engines[r];
    tt_engine_lock(e);
    tt_engine_step(e);
    tt_engine_unlock(e);
}

/* A call of the communicator, begun at both. */
static void begin_calls(pair *p, uint32_t size)
{
    for (uint32_t r = 0; r < 2; r++) {
        make_buffer(&p->w, &p->w.call[r], r, 99, sizes[size]);
        tt_engine_lock(p->w.rig.engines[r]);
        assert_int_equal(begin(p->w.rig.teams[0][r],
                               program_of(&p->w, r, 2, r, size), &p->w.call[r]),
                         0);
        tt_engine_unlock(p->w.rig.engines[r]);
    }
}

static void end_calls(pair *p)
{
    static const uint32_t both[] = {0, 1};
    for (uint64_t until = tt_now_ns() + 20 * TT_NS_PER_S;
         !(p->w.call[0].is_over && p->w.call[1].is_over) &&
         tt_now_ns() < until;)
        step_both(p);
    for (uint32_t r = 0; r < 2; r++) {
        assert_true(p->w.call[r].is_over && !p->w.call[r].err);
        check_buffer(&p->w, &p->w.call[r], 99, both, 2, "communicator");
        free_buffer(&p->w, &p->w.call[r], r);
    }
}

/* The connection is full of a communicator's and a group's slices when the
 * group breaks, and its memory is something else at once. */
static void memory_on_its_way_is_taken_back(void **state)
{
    (void)state;
    uint32_t n_lent = 0;
    pair *p = open_pair(tt_transport_find("tcp"), 2048);
    for (uint64_t number = 1; number <= 30; number++) {
        const tt_peer *to = peer_of(p, 0);
        for (uint32_t r = 0; r < 2; r++) {
            go_into(p, r, number, false);
            reduce(p, r, 0, 4);
        }
        begin_calls(p, 4);
        /* One side sends until nothing more goes; the other reads a part. */
        for (uint64_t i = 0; i < 2000 && to->n_lent == 0; i++)
            step_one(p, 0);
        n_lent += to->n_lent > 0;
        for (uint64_t i = 0; i < number; i++)
            step_one(p, 1);
        go_out(p, number % 2); /* who sends, or who reads */
        for (size_t i = 0; number % 2 == 0 && i < to->n_lent; i++) {
            const tt_lent *lent = &to->lent[(to->lent_head + i) % to->lent_cap];
            assert_ptr_equal(lent->op->team, p->w.rig.teams[0][0]);
        }
        end_calls(p);
        for (uint32_t r = 0; r < 2; r++)
            if (p->team[r])
                go_out(p, r);
    }
    assert_true(n_lent > 5);
    close_pair(p);
}

/* A FIRST that is half read when its group breaks gives its place back; the
 * rest of it does not arrive. */
static void half_a_first_gives_its_place_back(void **state)
{
    (void)state;
    pair *p = open_pair(&tt_net_loop, 2048);
    for (uint32_t number = 1; number <= 100; number++) {
        for (uint32_t r = 0; r < 2; r++)
            go_into(p, r, number, false);
        reduce(p, 1, 0, 0);
        step_both(p);
        tt_peer *from = &p->w.rig.meshes[1]->peers[0];
        const tt_op *op = p->team[1]->ops;
        tt_msg m = {.magic = TT_MSG_MAGIC,
                    .kind = TT_KIND_FIRST,
                    .comm = p->team[1]->id,
                    .fingerprint = op->fingerprint};
        p->w.rig.meshes[0]->peers[1].n_first++; /* as if it had sent it */
        tt_engine_lock(p->w.rig.engines[1]);
        uint8_t n_taken = from->n_taken;
        while (!from->placing && m.len < 4 * sizes[0]) {
            m.len += 4; /* as long as the first slice is */
            assert_non_null(tt_engine_up.place(from, &m));
        }
        assert_ptr_equal(from->placing, op->sides);
        tt_team_fail(p->team[1], TUTTI_EABORTED, TT_NONE, "a test breaks it");
        assert_null(from->placing);
        assert_int_equal((uint8_t)(from->n_taken - n_taken), 1);
        tt_engine_unlock(p->w.rig.engines[1]);
        go_out(p, 1);
        step_both(p);
        go_out(p, 0);
    }
    const tt_peer *to = peer_of(p, 0);
    assert_true((uint8_t)(to->n_first - to->n_first_taken) <
                TT_EAGER_CALLS / 2);
    close_pair(p);
}

/* ------------------------------------------------------------- no reader -- */

static void open_deaf(tt_rig *rig)
{
    static tt_chaos_opts never = TT_CHAOS_OPTS_INIT;
    never.full_per_1000 = 1000;
    const tt_rig_opts opts = {.n = 3,
                              .ops = tt_chaos_wrap(&tt_net_loop, &never),
                              .mem = &tt_mem_std,
                              .eager_bytes = 2048,
                              .is_linked = true};
    assert_int_equal(tt_rig_create(&opts, rig), 0);
    tt_engine_lock(rig->engines[0]);
}

static void close_deaf(tt_rig *rig)
{
    tt_engine_unlock(rig->engines[0]);
    tt_rig_destroy(rig);
}

/* A peer may ask and ask, and take no answer: nobody is lost by that, neither
 * it nor those who are told its questions, and little waits for any of them. */
static void who_asks_and_does_not_listen(void **state)
{
    (void)state;
    static const tt_kind kinds[] = {TT_KIND_PING, TT_KIND_WHO, TT_KIND_HERE,
                                    TT_KIND_CALL};
    tt_rig rig;
    const char *text;
    open_deaf(&rig);
    tt_peer *peers = rig.meshes[0]->peers;
    for (uint32_t n = 1; n <= 2 * TT_CTL_MAX; n++) {
        tt_msg m = {.magic = TT_MSG_MAGIC,
                    .kind = (uint8_t)kinds[n % 4],
                    .comm = rig.teams[0][0]->id + n / 4 % 2 * 99,
                    .seq = n,
                    .lane = 2,
                    .slice = n};
        if (m.kind == TT_KIND_HERE)
            m.fingerprint = 2;
        if (m.kind == TT_KIND_CALL)
            m.lane = 1, m.slice = 2;
        tt_engine_up.arrived(&peers[1], &m, NULL);
    }
    tt_engine_step(rig.engines[0]);
    for (uint32_t r = 1; r < 3; r++) {
        assert_false(peers[r].is_lost);
        assert_true(peers[r].ctl_cap <= 4096);
    }
    assert_int_equal(tt_team_state(rig.teams[0][0], &text), TUTTI_OK);
    close_deaf(&rig);
}

/* What must not be dropped is bounded, too: then the peer is lost. */
static void who_takes_nothing_is_lost(void **state)
{
    (void)state;
    tt_rig rig;
    const char *text;
    open_deaf(&rig);
    tt_peer *peer = &rig.meshes[0]->peers[1];
    const tt_msg m = {.magic = TT_MSG_MAGIC,
                      .kind = TT_KIND_CREDIT,
                      .comm = rig.teams[0][0]->id};
    /* With TUTTI_CHECK=crc the layer keeps one: it takes a message, and then
     * has no room below for it. */
    uint32_t n_kept = rig.settings.check == TT_CHECK_CRC;
    for (uint32_t n = 0; n <= TT_CTL_MAX + n_kept; n++) {
        assert_false(peer->is_lost);
        tt_peer_tell(peer, &m, NULL);
    }
    tt_engine_step(rig.engines[0]); /* it is given up in the next pass */
    assert_true(peer->is_lost);
    assert_true(peer->ctl_cap <= TT_CTL_MAX);
    assert_int_equal(tt_team_state(rig.teams[0][0], &text), TUTTI_ELIMIT);
    assert_string_equal(text,
                        "rank 1 is lost: it does not take what it is told");
    close_deaf(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_data_is_kept),
        cmocka_unit_test(a_group_is_left_in_its_last_call),
        cmocka_unit_test(a_later_group_frees_the_earlier),
        cmocka_unit_test(a_group_that_is_over_is_over),
        cmocka_unit_test(a_broken_group_is_not_begun),
        cmocka_unit_test(a_loss_is_told_with_its_cause),
        cmocka_unit_test(silence_breaks_the_group_alone),
        cmocka_unit_test(a_pause_of_ones_own_is_no_silence),
        cmocka_unit_test(memory_on_its_way_is_taken_back),
        cmocka_unit_test(half_a_first_gives_its_place_back),
        cmocka_unit_test(who_asks_and_does_not_listen),
        cmocka_unit_test(who_takes_nothing_is_lost),
        cmocka_unit_test(storm_in_memory),
        cmocka_unit_test(storm_with_delays),
        cmocka_unit_test(storm_over_shm),
        cmocka_unit_test(storm_over_tcp),
    };
    return TT_RUN_TAP(tests);
}
