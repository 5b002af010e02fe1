/* SPDX-License-Identifier: BSD-3-Clause
 * chaos_test.c - whatever happens to messages, connections and ranks, by seed:
 * every call ends with right bits, or with an error that names somebody, within
 * its bound; and nothing is left behind.
 *
 * Some ranks in one thread (rig.h), with calls of a communicator and often
 * those of a group beside them, over each transport. One fault comes at a step
 * that the seed chooses: to messages (chaos.h), to the bytes of TCP connections
 * from their first one on (relay.h), or to a rank.
 *
 * Time      is the test's own: clock_gettime() is, and what waits. It goes on
 *           when nothing moves any more, so seconds of silence cost nothing,
 *           and a busy machine changes nothing.
 * Seeds     TT_ROUNDS times 500 of them from TT_SEED on. */
#include "support/tap.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "base/clock.h"
#include "support/alloc.h"
#include "support/chaos.h"
#include "support/growth.h"
#include "support/loop.h"
#include "support/net_pair.h"
#include "support/relay.h"
#include "support/rig.h"
#include "support/sums.h"
#include "support/ucx.h"

enum { SEEDS = 500, WORKERS = 4, RANKS = 4, CALLS = 3, SIZES = 4, SMALL = 2 };
static const uint64_t sizes[SIZES] = {3, 700, 9001, 20011};

static const uint64_t liveness_ns = 400 * TT_NS_PER_MS;
static const uint64_t reconnect_ns = 2 * TT_NS_PER_S;
static const uint64_t deadline_ns = 4 * TT_NS_PER_S;
static const uint64_t spare_ns = 2 *
                                 TT_NS_PER_S; /* for being told, and asked */

/* ------------------------------------------------------------------ time -- */

static _Atomic uint64_t time_ns = 1000 * TT_NS_PER_S;
/* Each look at the clock takes so long: who waits by looking waits not for
 * ever. */
static _Atomic uint64_t look_ns = 100;
/* Where the link thread sleeps, and until when; -1: it does not. */
static _Atomic int sleeps_at = -1;
static _Atomic uint64_t sleeps_until_ns;
static __thread bool is_test;
static tt_relay *relay;

int clock_gettime(clockid_t id, struct timespec *ts)
{
    static __thread bool is_inside;
    if (id != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, id, ts);
    uint64_t step = atomic_load(&look_ns);
    uint64_t now = atomic_fetch_add(&time_ns, step) + step;
    *ts = (struct timespec){(time_t)(now / TT_NS_PER_S),
                            (long)(now % TT_NS_PER_S)};
    /* What is between the ranks works on while one of them closes. */
    if (relay && is_test && !is_inside && step > 100) {
        is_inside = true;
        tt_relay_turn(relay);
        is_inside = false;
    }
    return 0;
}

/* Who sleeps with all ranks in its thread waits for the clock alone. */
int nanosleep(const struct timespec *t, struct timespec *rest)
{
    if (!is_test)
        return (int)syscall(SYS_nanosleep, t, rest);
    atomic_fetch_add(&time_ns,
                     (uint64_t)t->tv_sec * TT_NS_PER_S + (uint64_t)t->tv_nsec);
    return 0;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int ms)
{
    const bool waits = !is_test && ms != 0;
    uint64_t until = ms < 0 ? UINT64_MAX : tt_now_ns() + (uint64_t)ms * 1000000;
    int n;
    if (waits)
        atomic_store(&sleeps_until_ns, until);
    if (waits)
        atomic_store(&sleeps_at, fd);
    do
        n = (int)syscall(SYS_epoll_pwait, fd, events, most, 2 * waits, NULL, 8);
    while (waits && n == 0 && atomic_load(&time_ns) < until);
    if (waits)
        atomic_store(&sleeps_at, -1);
    return n;
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    return tt_relay_connect(fd, addr, len);
}

static bool is_link_idle(void)
{
    struct pollfd one = {.fd = atomic_load(&sleeps_at), .events = POLLIN};
    return one.fd >= 0 && atomic_load(&sleeps_until_ns) > time_ns &&
           poll(&one, 1, 0) == 0;
}

enum { MOST_FDS = 100 };
static int tcp_fds[MOST_FDS];
static uint32_t n_tcp_fds;

static void list_sockets(void)
{
    n_tcp_fds = 0;
    for (int fd = 3; fd < MOST_FDS; fd++) {
        int domain = 0;
        socklen_t len = sizeof(domain);
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
            domain == AF_INET)
            tcp_fds[n_tcp_fds++] = fd;
    }
}

/* Bytes that the kernel has not handed on yet, or that somebody does not read;
 * a number that changes when they do. */
static uint64_t in_flight(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_tcp_fds; i++) {
        int n = 0;
        if (ioctl(tcp_fds[i], SIOCOUTQ, &n) == 0 && n > 0)
            sum += (uint64_t)n * (uint64_t)tcp_fds[i];
    }
    return sum;
}

/* ----------------------------------------------------------------- story -- */

typedef struct row {
    const char *name, *transport, *sockets;
    bool is_checked, is_sealed;
} row;

static const row rows[] = {
    {"loop", NULL, "0", false, false},
    {"loop, crc", NULL, "0", true, false},
    {"shm", "shm", "0", false, false},
    {"shm, crc", "shm", "0", true, false},
    {"tcp", "tcp", "0", false, false},
    {"tcp, 3 sockets", "tcp", "3", false, false},
    {"tcp, crc", "tcp", "0", true, false},
    {"tcp, TLS", "tcp", "0", false, true},
    {"tcp, TLS, 2 sockets, crc", "tcp", "2", true, true},
    {"ucx", "ucx", "1", false, false},
    {"ucx, crc", "ucx", "1", true, false},
};
enum { ROWS = sizeof(rows) / sizeof(*rows), WITHOUT_UCX = ROWS - 2 };
static uint64_t n_rows = ROWS;

/* To messages, to a rank, to the bytes of connections. */
typedef enum fault {
    LEGAL,
    DROP,
    HOLE,
    DOUBLE,
    SWAP,
    TRUNCATE,
    SPOIL,
    KILL,
    PAUSE,
    FREEZE,
    SLOW,
    BLINK,
    DOWN,
    ONE_WAY,
    CUT,
    RESET,
    END,
    FLIP,
    RETURN,
    FAULTS
} fault;

static const char *const names[FAULTS] = {
    "legal mischief",
    "a dropped message",
    "a one-way hole",
    "a doubled message",
    "swapped messages",
    "a truncated message",
    "a spoilt message",
    "a killed connection",
    "a rank that pauses",
    "a frozen rank",
    "a slow network with losses",
    "a link that is down for a while",
    "a link that goes down",
    "a one-way hole in the network",
    "a connection that is cut",
    "a reset at a byte",
    "an end at a byte",
    "a flipped bit at a byte",
    "a network that comes back",
};

/* What a seed decides. */
typedef struct story {
    uint64_t seed;
    const row *row;
    fault fault;
    uint32_t n, victim, n_calls;
    bool has_group;
    tt_chaos_opts chaos;
    tt_relay_opts wire;
    uint64_t freeze_at, freeze_ns; /* after so many turns, for so long */
    uint32_t size[2][CALLS]; /* of the communicator's calls, the group's */
} story;

typedef struct tally {
    _Atomic uint32_t n[FAULTS], n_right[FAULTS], n_bad;
} tally;

static bool is_wire(fault f)
{
    return f >= SLOW;
}

static bool is_over_tcp(const row *r)
{
    return r->transport && strcmp(r->transport, "tcp") == 0;
}

static bool fits(const row *r, fault f)
{
    if (f == SPOIL) /* TCP has its own frames: FLIP */
        return r->is_checked && !is_over_tcp(r);
    if (f == FLIP)
        return r->is_sealed || (r->is_checked && is_over_tcp(r));
    return is_over_tcp(r) || !is_wire(f);
}

/* Nothing is lost, or it is found and sent again. */
static bool must_be_right(const story *s)
{
    switch (s->fault) {
    case LEGAL:
    case SLOW:
    case BLINK:
    case SPOIL:
    case PAUSE:
    case RETURN:
        return true;
    case CUT:
        return tt_relay_lost(relay) == 0;
    default:
        return false;
    }
}

static void choose_wire(story *s, tt_rng *rng)
{
    static const tt_relay_fault what[FAULTS] = {
        [BLINK] = TT_RELAY_DOWN,   [DOWN] = TT_RELAY_DOWN,
        [ONE_WAY] = TT_RELAY_HOLE, [CUT] = TT_RELAY_CUT,
        [RESET] = TT_RELAY_RESET,  [END] = TT_RELAY_END,
        [FLIP] = TT_RELAY_FLIP,    [RETURN] = TT_RELAY_DOWN};
    s->wire = (tt_relay_opts){.seed = s->seed, .fault = what[s->fault]};
    s->wire.at_byte = 1 +
                      tt_rng_below(rng, UINT64_C(1) << tt_rng_below(rng, 18));
    if (s->fault == FLIP && !s->row->is_sealed)
        s->wire.at_byte += 512; /* greetings have no CRC */
    s->wire.at_conn = 1 + (uint32_t)tt_rng_below(rng, s->n);
    s->wire.is_back = tt_rng_below(rng, 2);
    if (s->fault == BLINK)
        s->wire.for_ns = liveness_ns / 4;
    if (s->fault == DOWN && tt_rng_below(rng, 2))
        s->wire.for_ns = liveness_ns * 3;
    if (s->fault == RETURN) {
        s->wire.for_ns = 1 + tt_rng_below(rng, liveness_ns * 3);
        if (tt_rng_below(rng, 2))
            s->wire.fault = TT_RELAY_HOLE;
    }
    if (s->fault == SLOW || tt_rng_below(rng, 4) == 0) {
        s->wire.delay_ns = tt_rng_below(rng, 5 * TT_NS_PER_MS);
        s->wire.jitter_ns = tt_rng_below(rng, 5 * TT_NS_PER_MS);
        s->wire.stall_per_1000 = (uint32_t)tt_rng_below(rng, 30);
        s->wire.stall_ns = 40 * TT_NS_PER_MS;
        s->wire.bytes_per_s = tt_rng_below(rng, 2) * (20 << 20);
    }
}

static void choose_chaos(story *s, tt_rng *rng)
{
    tt_chaos_opts *c = &s->chaos;
    const uint64_t at = 1 + tt_rng_below(rng, 1 + tt_rng_below(rng, 40));
    *c = (tt_chaos_opts)TT_CHAOS_OPTS_INIT;
    c->seed = s->seed;
    c->only_rank = s->victim;
    if (tt_rng_below(rng, 2))
        c->only_peer = (s->victim + 1) % s->n;
    if (s->fault == LEGAL || tt_rng_below(rng, 3) == 0) {
        c->full_per_1000 = (uint32_t)tt_rng_below(rng, 300);
        c->delay_per_1000 = (uint32_t)tt_rng_below(rng, 300);
        c->delay_turns = 1 + (uint32_t)tt_rng_below(rng, 20);
    }
    c->drop_at = s->fault == DROP ? at : 0;
    c->hole_at = s->fault == HOLE ? at : 0;
    c->double_at = s->fault == DOUBLE ? at : 0;
    c->swap_at = s->fault == SWAP ? at : 0;
    c->truncate_at = s->fault == TRUNCATE ? at : 0;
    c->spoil_at = s->fault == SPOIL ? at : 0;
    c->spoil_bit = UINT64_MAX;
    c->kill_at = s->fault == KILL ? at : 0;
}

static story story_of(uint64_t seed)
{
    tt_rng rng = {seed * 0x9e3779b97f4a7c15u};
    story s = {.seed = seed};
    tt_rng_next(&rng);
    do {
        s.row = &rows[tt_rng_below(&rng, n_rows)];
        s.fault = (fault)tt_rng_below(&rng, FAULTS);
    } while (!fits(s.row, s.fault));
    s.n = 2 + (uint32_t)tt_rng_below(&rng, RANKS - 1);
    s.victim = (uint32_t)tt_rng_below(&rng, s.n);
    s.n_calls = 1 + (uint32_t)tt_rng_below(&rng, CALLS);
    s.has_group = tt_rng_below(&rng, 2);
    choose_wire(&s, &rng);
    choose_chaos(&s, &rng);
    s.freeze_at = tt_rng_below(&rng, UINT64_C(1) << tt_rng_below(&rng, 10));
    s.freeze_ns = s.fault == FREEZE ? UINT64_MAX : 0;
    if (s.fault == PAUSE)
        s.freeze_ns = tt_rng_below(&rng, liveness_ns / 2);
    for (int i = 0; i < 2 * CALLS; i++)
        s.size[i / CALLS][i % CALLS] = (uint32_t)tt_rng_below(&rng, SIZES);
    if (s.fault == RETURN) { /* groups break, and what a relay holds is kept */
        s.has_group = false;
        for (int i = 0; i < CALLS; i++)
            s.size[0][i] %= SMALL;
    }
    return s;
}

/* ----------------------------------------------------------------- world -- */

typedef struct call {
    uint32_t *at;
    uint64_t count;
    bool is_begun, is_over;
    tutti_err err;
} call;

/* A rank's calls of the communicator, or of the group. */
typedef struct side {
    tt_team *team;
    call calls[CALLS];
    uint32_t n_begun;
} side;

typedef struct world {
    const story *s;
    tt_rig rig;
    tt_rng rng;
    side sides[RANKS][2];
    tt_program *programs[RANKS][SIZES];
    uint64_t n_turns, frozen_ns, start_ns; /* frozen_ns: since then; 0 */
    uint32_t quiet;
    uint64_t n_passes, stuck; /* of time; what nobody reads */
    char why[600];
} world;

static int blame(world *w, uint32_t r, const char *what, const char *text)
{
    if (!w->why[0])
        snprintf(w->why, sizeof(w->why), "rank %u: %s: %s", r, what, text);
    return 1;
}

static uint32_t value(uint32_t kind, uint32_t k, uint32_t rank, uint64_t i)
{
    return (kind * 100 + k + 1) * 2654435761u + rank * 40503u + (uint32_t)i * 7;
}

static void note(void *arg, tutti_err err)
{
    call *c = arg;
    c->is_over = true;
    c->err = err;
}

static bool is_frozen(world *w, uint32_t r)
{
    const story *s = w->s;
    if (r != s->victim || s->freeze_ns == 0 || w->n_turns < s->freeze_at)
        return false;
    if (w->frozen_ns == 0)
        w->frozen_ns = time_ns;
    return time_ns - w->frozen_ns < s->freeze_ns;
}

static void begin_next(world *w, uint32_t r, uint32_t kind)
{
    side *of = &w->sides[r][kind];
    const uint32_t k = of->n_begun++, size = w->s->size[kind][k];
    call *c = &of->calls[k];
    *c = (call){.count = sizes[size], .is_begun = true};
    c->at = malloc(c->count * 4);
    for (uint64_t i = 0; i < c->count; i++)
        c->at[i] = value(kind, k, r, i);
    if (!w->programs[r][size])
        w->programs[r][size] = tt_sum_program(w->rig.mem, w->s->n, r, c->count);
    tutti_err err = tt_sum_begin_by(of->team, w->programs[r][size], c->at,
                                    time_ns + deadline_ns, note, c);
    if (err)
        note(c, err);
}

/* As a controller would: who is in a group that has broken is told. */
static void tell(world *w, uint32_t r)
{
    const char *text;
    bool is_broken = false;
    for (uint32_t q = 0; q < w->s->n; q++)
        is_broken |= tt_team_state(w->sides[q][1].team, &text) != TUTTI_OK;
    if (is_broken && tt_rng_below(&w->rng, 50) == 0)
        tt_team_fail(w->sides[r][1].team, TUTTI_EABORTED, TT_NONE,
                     "rank 0 says that the group is broken");
}

static bool step(world *w, uint32_t r)
{
    tt_engine *e = w->rig.engines[r];
    const uint32_t kinds = 1 + w->s->has_group;
    bool has_moved = false;
    tt_engine_lock(e);
    for (uint32_t k = 0; k < kinds; k++)
        if (w->sides[r][k].n_begun < w->s->n_calls) {
            has_moved = true;
            if (tt_rng_below(&w->rng, 4) == 0)
                begin_next(w, r, k);
        }
    if (kinds > 1)
        tell(w, r);
    has_moved |= tt_engine_step(e);
    tt_engine_unlock(e);
    return has_moved;
}

/* What the kernel is at is done, or stuck. */
static void settle(world *w)
{
    if (w->n_passes++ % 32 == 0)
        list_sockets();
    for (int i = 0; i < 4; i++) {
        uint64_t flying = in_flight();
        if (flying == 0 || flying == w->stuck)
            return;
        if (i == 3)
            w->stuck = flying;
        usleep(500);
    }
}

/* Nothing moves: time does. */
static void pass_time(world *w)
{
    uint64_t step_ns = liveness_ns / 8, now = time_ns;
    w->quiet = 0;
    if (w->s->row->transport && !is_link_idle()) {
        usleep(200);
        return;
    }
    if (is_over_tcp(w->s->row))
        settle(w);
    if (relay && tt_relay_next_ns(relay) < now + step_ns)
        step_ns = tt_relay_next_ns(relay) - now;
    atomic_fetch_add(&time_ns, step_ns < now ? step_ns : 0);
}

static void turn(world *w)
{
    const uint32_t r = (uint32_t)tt_rng_below(&w->rng, w->s->n);
    bool has_moved = !is_frozen(w, r) && step(w, r);
    if (relay)
        has_moved |= tt_relay_turn(relay);
    w->n_turns++;
    w->quiet = has_moved ? 0 : w->quiet + 1;
    if (w->quiet > 4 * w->s->n)
        pass_time(w);
}

static bool is_busy(const world *w, uint32_t r)
{
    for (uint32_t k = 0; k < 1u + w->s->has_group; k++) {
        const side *of = &w->sides[r][k];
        if (of->n_begun < w->s->n_calls)
            return true;
        for (uint32_t i = 0; i < of->n_begun; i++)
            if (!of->calls[i].is_over)
                return true;
    }
    return false;
}

/* --------------------------------------------------------------- verdict -- */

static int check_bits(world *w, uint32_t r, uint32_t kind, uint32_t k)
{
    const call *c = &w->sides[r][kind].calls[k];
    for (uint64_t i = 0; i < c->count; i++) {
        uint32_t want = 0;
        for (uint32_t q = 0; q < w->s->n; q++)
            want += value(kind, k, q, i);
        if (c->at[i] != want)
            return blame(w, r, "wrong bits",
                         kind ? "of the group" : "of the communicator");
    }
    return 0;
}

static int check_side(world *w, uint32_t r, uint32_t kind, bool *is_right)
{
    const side *of = &w->sides[r][kind];
    const char *text;
    tutti_err err = tt_team_state(of->team, &text);
    int bad = 0;
    for (uint32_t k = 0; k < w->s->n_calls && !bad; k++) {
        const call *c = &of->calls[k];
        *is_right &= !c->err;
        if (!c->err)
            bad = check_bits(w, r, kind, k);
        else if (must_be_right(w->s))
            bad = blame(w, r, "it must be right", text);
        else if (!err || !strstr(text, "rank "))
            bad = blame(w, r, "nobody is named", text);
    }
    return bad;
}

/* Where it waits. */
static void blame_stuck(world *w, uint32_t r)
{
    char text[200] = "";
    for (uint32_t k = 0; k < 1u + w->s->has_group; k++) {
        const side *of = &w->sides[r][k];
        const char *state;
        tt_team_state(of->team, &state);
        for (uint32_t i = 0; i < of->n_begun; i++)
            if (!of->calls[i].is_over)
                snprintf(text, sizeof(text), "in call %u of the %s: %s", i,
                         k ? "group" : "communicator", state);
    }
    blame(w, r, "stuck", text);
}

/* Whoever lives has ended, in time. */
static bool is_through(world *w, uint64_t limit_ns)
{
    bool is_late = time_ns - w->start_ns > limit_ns;
    for (uint32_t r = 0; r < w->s->n; r++) {
        bool is_alive = w->s->fault != FREEZE || r != w->s->victim;
        if (!is_alive || !is_busy(w, r))
            continue;
        if (is_late)
            blame_stuck(w, r);
        return is_late;
    }
    return true;
}

static void play(world *w, bool *is_right)
{
    const story *s = w->s;
    uint64_t limit_ns = deadline_ns;
    /* Who is frozen may not come to a second socket: no connection, no
     * silence. */
    if (s->fault == FREEZE && s->row->sockets[0] == '0')
        limit_ns = liveness_ns + reconnect_ns;
    while (!is_through(w, limit_ns + spare_ns))
        turn(w);
    for (uint32_t r = 0; r < s->n && !w->why[0]; r++) {
        if (s->fault == FREEZE && r == s->victim && is_busy(w, r))
            continue;
        for (uint32_t k = 0; k < 1u + s->has_group; k++)
            if (check_side(w, r, k, is_right))
                return;
    }
}

/* ------------------------------------------------------------------- a seed */

static tutti_err open_world(world *w, const tt_mem *mem, tt_trust **trust)
{
    const story *s = w->s;
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    const tt_trust_opts t = {.secret = (const uint8_t *)secret,
                             .n_secret = sizeof(secret) - 1};
    const tt_net_ops *ops = s->row->transport
                                ? tt_transport_find(s->row->transport)
                                : &tt_net_loop;
    tt_rig_opts o = {.n = s->n,
                     .mem = mem,
                     .eager_bytes = tt_rng_below(&w->rng, 2) * 2048,
                     .liveness_ns = liveness_ns,
                     .reconnect_ns = reconnect_ns,
                     .is_checked = s->row->is_checked,
                     .is_silent = tt_rng_below(&w->rng, 2)};
    setenv("TUTTI_SOCKETS", s->row->sockets, 1);
    *trust = NULL;
    if (s->row->is_sealed && tt_trust_open(&t, trust, NULL))
        return TUTTI_ECONFIG;
    o.trust = *trust;
    o.ops = ops;
    if (is_wire(s->fault))
        relay = tt_relay_open(&s->wire);
    else
        o.ops = tt_chaos_wrap(ops, &s->chaos);
    return tt_rig_create(&o, &w->rig);
}

static tutti_err open_groups(world *w)
{
    static const uint32_t all[RANKS] = {0, 1, 2, 3};
    const tt_group_opts o = {
        .origin = 77, .number = 1, .members = all, .n = w->s->n};
    tutti_err err = TUTTI_OK;
    for (uint32_t r = 0; r < w->s->n && !err; r++) {
        w->sides[r][0].team = w->rig.teams[0][r];
        if (w->s->has_group)
            err = tt_group_create(w->rig.meshes[r], &o, &w->sides[r][1].team);
    }
    return err;
}

static void close_world(world *w)
{
    atomic_store(&look_ns, TT_NS_PER_MS / 10);
    for (uint32_t r = 0; r < w->s->n; r++) {
        tt_engine_lock(w->rig.engines[r]);
        tt_team_fail(w->rig.teams[0][r], TUTTI_EABORTED, TT_NONE, "it is over");
        tt_engine_flush(w->rig.engines[r]);
        if (w->sides[r][1].team)
            tt_team_leave(w->sides[r][1].team);
        for (int k = 0; k < SIZES; k++)
            tt_program_unref(w->programs[r][k]);
        tt_engine_unlock(w->rig.engines[r]);
    }
    tt_rig_destroy(&w->rig);
    tt_relay_close(relay);
    relay = NULL;
    for (int i = 0; i < RANKS * 2 * CALLS; i++)
        free(w->sides[i / (2 * CALLS)][i / CALLS % 2].calls[i % CALLS].at);
    atomic_store(&look_ns, 100);
}

static int run_seed(uint64_t seed, tally *t)
{
    const story s = story_of(seed);
    world w = {.s = &s, .rng = {seed}, .start_ns = time_ns};
    tt_test_mem counts;
    tt_mem mem = tt_test_mem_init(&counts, 0);
    tt_trust *trust;
    bool is_right = true;
    const int n_fds = tt_count_fds(), n_mappings = tt_count_mappings();
    if (open_world(&w, &mem, &trust) || open_groups(&w))
        blame(&w, 0, "it does not begin", "");
    else
        play(&w, &is_right);
    uint64_t took_ns = time_ns - w.start_ns;
    close_world(&w);
    tt_trust_close(trust);
    if (!tt_test_mem_is_clean(&counts))
        blame(&w, 0, "leak", "of memory");
    if (tt_count_fds() != n_fds || tt_count_mappings() != n_mappings)
        blame(&w, 0, "leak", "of descriptors, or mappings");
    atomic_fetch_add(&t->n[s.fault], 1);
    atomic_fetch_add(&t->n_right[s.fault], is_right);
    if (!w.why[0])
        return 0;
    atomic_fetch_add(&t->n_bad, 1);
    fprintf(stderr,
            "# %s: %u ranks over %s%s, after %.3g s: %s\n"
            "# (TT_SEED=%llu TT_SEEDS=1)\n",
            names[s.fault], s.n, s.row->name, s.has_group ? ", a group" : "",
            (double)took_ns / 1e9, w.why, (unsigned long long)seed);
    return 1;
}

/* ----------------------------------------------------------------- tests -- */

static void ignore_line(void *arg, tutti_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* What a library keeps from its first use on is no leak. */
static void warm_up(void)
{
    tt_rig rig;
    const tt_rig_opts o = {
        .n = 2, .mem = &tt_mem_std, .ops = tt_transport_find("ucx")};
    atomic_store(&look_ns, TT_NS_PER_MS / 10);
    if (n_rows == ROWS && tt_rig_create(&o, &rig) == TUTTI_OK)
        tt_rig_destroy(&rig);
    atomic_store(&look_ns, 100);
}

static void work(uint64_t first, uint64_t end, tally *t)
{
    is_test = true;
    if (!getenv("TUTTI_LOG"))
        tutti_log_set(ignore_line, NULL);
    warm_up();
    for (uint64_t seed = first; seed < end; seed += WORKERS)
        run_seed(seed, t);
}

static void right_or_named(void **state)
{
    (void)state;
    const uint64_t first = number_of("TT_SEED", 1);
    const uint64_t n = number_of("TT_SEEDS", SEEDS * number_of("TT_ROUNDS", 1));
    uint32_t n_all = 0, n_right = 0, n_failed = 0;
    tally *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(t != MAP_FAILED);
    const char *lack = tt_ucx_use(TT_UCX_BY_SHM);
    if (lack) {
        print_message("# without ucx: %s\n", lack);
        n_rows = WITHOUT_UCX;
    }
    fflush(NULL);
    for (uint64_t i = 0; i < WORKERS; i++)
        if (fork() == 0) {
            work(first + i, first + n, t);
            _exit(0);
        }
    for (int status; wait(&status) > 0;)
        n_failed += status != 0;
    for (int f = 0; f < FAULTS; f++) {
        printf("# %-32s %4u seeds, %4u right\n", names[f], t->n[f],
               t->n_right[f]);
        n_all += t->n[f];
        n_right += t->n_right[f];
    }
    assert_int_equal(n_failed, 0);
    assert_int_equal(t->n_bad, 0);
    assert_int_equal(n_all, n);
    if (n >= SEEDS)
        assert_in_range(n_right, n / 5, n - n / 5);
    munmap(t, sizeof(*t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_or_named),
    };
    return TT_RUN_TAP(tests);
}
