/* SPDX-License-Identifier: BSD-3-Clause
 * open_test.c - groups on open meshes, whose processes are killed and started
 * again, lose connections, and hear of groups one after the other.
 *
 * The test is the controller: it forks the workers, knows who sits where, and
 * tells members of their groups, each a little later than the other, so who is
 * told first calls before it is known. Two groups run at a time; in one of them
 * somebody may be killed, or cuts its connections. The other must not notice,
 * and the next group of the same members must do. */
#include "support/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/state.h"
#include "net/shm/shm.h"
#include "net/tcp/tcp.h"
#include "support/alloc.h"
#include "support/seed.h"
#include "support/sums.h"

#ifdef __SANITIZE_THREAD__ /* ten times as slow */
enum { ROUNDS = 25 };
#else
enum { ROUNDS = 100 };
#endif
enum { WORKERS = 5, NETS = 2, SIZES = 3 };
static const uint64_t sizes[SIZES] = {5, 20011, 1 << 17};
static const uint64_t origin = 77;

/* ----------------------------------------------------------------- words -- */

typedef struct card {
    tt_link_id id;
    size_t len[NETS];
    unsigned char addr[NETS][TT_NET_ADDR_MAX];
} card;

typedef enum what { GROUP, BROKEN, END } what;

/* To a worker. */
typedef struct order {
    what what;
    uint64_t number;
    uint32_t n, ranks[WORKERS];
    card cards[WORKERS]; /* of the members */
    bool dies, cuts;     /* in the middle */
    uint32_t after_us;
} order;

/* From a worker: its card, first of all; how a group has ended. */
typedef struct report {
    uint64_t number; /* 0: the card */
    tutti_err err;
    bool is_wrong;
    int n_fds;
    card card;
    char text[512];
} report;

static const char *const names[NETS] = {"shm", "tcp"};

/* ---------------------------------------------------------------- worker -- */

typedef struct worker {
    uint32_t rank, n_nets;
    int sock;
    tt_test_mem counts;
    tt_mem mem;
    tt_settings settings;
    tt_engine *engine;
    tt_mesh *mesh;
    tt_net *nets[NETS];
    tt_program *programs[WORKERS + 1][WORKERS][SIZES];
} worker;

typedef struct sum {
    uint32_t *at;
    bool is_over;
    tutti_err err;
} sum;

static int count_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 512; fd++) {
        struct pollfd look = {.fd = fd};
        n += poll(&look, 1, 0) == 0 || !(look.revents & POLLNVAL);
    }
    return n;
}

static void must(bool is_true, const char *text)
{
    if (is_true)
        return;
    fprintf(stderr, "open_test: %s\n", text);
    _exit(2);
}

/* only: the transport; NETS: all, as a worker has them. */
static void open_nets(worker *w, uint32_t only, const tt_link_id *id)
{
    tutti_diag diag;
    for (uint32_t i = 0; i < NETS; i++) {
        const tt_net_ops *ops = tt_transport_find(names[i]);
        if (only != NETS && only != i)
            continue;
        const tt_net as = {.ops = ops,
                           .up = &tt_engine_up,
                           .mem = &w->mem,
                           .settings = &w->settings,
                           .rank = w->rank,
                           .n_ranks = WORKERS,
                           .id = *id,
                           .is_local = true,
                           .fd = -1};
        tt_net *net = tt_net_new(&as);
        must(!net->ops->open(net, &diag), diag.text);
        w->nets[w->n_nets++] = net;
    }
}

static void set_up(worker *w, uint32_t only)
{
    const tt_engine_opts opts = {.spin_ns = 20000, .speak_ns = TT_NS_PER_MS};
    tutti_diag diag;
    report first = {.number = 0};
    w->mem = tt_test_mem_init(&w->counts, 0);
    must(!tt_settings_read(&w->settings, &diag), "settings");
    w->settings.shm_ring_bytes = 64 << 10;
    must(!tt_link_id_make(&first.card.id, &diag), "id");
    must(!tt_engine_create(&w->mem, &opts, &w->engine, &diag), "engine");
    open_nets(w, only, &first.card.id);
    for (uint32_t i = 0; i < w->n_nets; i++)
        first.card.len[i] = w->nets[i]->ops->address(
            w->nets[i], first.card.addr[i], TT_NET_ADDR_MAX);
    const tt_mesh_opts mesh = {.rank = w->rank,
                               .n_ranks = WORKERS,
                               .n_nets = w->n_nets,
                               .nets = w->nets,
                               .eager_bytes = 4096,
                               .dial_ns = 5 * TT_NS_PER_S,
                               .kept.mem = &w->mem};
    must(!tt_mesh_create(w->engine, &w->mem, &mesh, &w->mesh), "mesh");
    must(!tt_engine_start(w->engine, &diag), "engine's thread");
    must(send(w->sock, &first, sizeof(first), 0) == sizeof(first), "card");
}

static uint32_t value(uint64_t number, uint32_t rank, uint64_t i)
{
    return (uint32_t)((number + 1) * 2654435761u + rank * 40503u + i * 7);
}

static void note(void *arg, tutti_err err)
{
    sum *s = arg;
    s->is_over = true;
    s->err = err;
}

static uint32_t own_place(const worker *w, const order *o)
{
    uint32_t me = 0;
    while (o->ranks[me] != w->rank)
        me++;
    return me;
}

static tutti_err seat(const worker *w, const order *o)
{
    for (uint32_t i = 0; i < o->n; i++) {
        tt_access accesses[NETS];
        const card *c = &o->cards[i];
        if (o->ranks[i] == w->rank)
            continue;
        for (uint32_t k = 0; k < w->n_nets; k++)
            accesses[k] = (tt_access){
                .net = w->nets[k], .addr = c->addr[k], .addr_bytes = c->len[k]};
        tutti_err err = tt_mesh_seat(w->mesh, o->ranks[i], &c->id, accesses,
                                     w->n_nets);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

static void begin(worker *w, const order *o, tt_team *team, sum *sums)
{
    const uint32_t me = own_place(w, o);
    for (uint32_t s = 0; s < SIZES; s++) {
        tt_program **program = &w->programs[o->n][me][s];
        sums[s].at = malloc(sizes[s] * 4);
        for (uint64_t i = 0; i < sizes[s]; i++)
            sums[s].at[i] = value(o->number + s, w->rank, i);
        if (!*program)
            *program = tt_sum_program(&w->mem, o->n, me, sizes[s]);
        tt_engine_lock(w->engine);
        tutti_err err = tt_sum_begin(team, *program, sums[s].at, 0, note,
                                     &sums[s]);
        tt_engine_kick(w->engine, false);
        tt_engine_unlock(w->engine);
        if (err)
            note(&sums[s], err);
    }
}

/* The transport's own, where the settings put a layer over it. */
static tt_conn *below(tt_conn *conn)
{
    const tt_net_ops *ops = conn->net->ops;
    size_t at = ops->conn_size - tt_transport_find(ops->name)->conn_size;
    return (tt_conn *)(void *)((char *)conn + at);
}

/* As if the network had. */
static void cut(const worker *w)
{
    tt_engine_lock(w->engine);
    for (uint32_t r = 0; r < WORKERS; r++) {
        tt_conn *conn = w->mesh->peers[r].conn;
        if (!conn || !conn->is_up)
            continue;
        conn = below(conn);
        int fd = strcmp(conn->net->ops->name, "tcp") == 0
                     ? ((const tt_tcp_conn *)conn)->strands[0].link.fd
                     : ((const tt_shm_conn *)conn)->sock;
        shutdown(fd, SHUT_RDWR);
    }
    tt_engine_unlock(w->engine);
}

static bool is_through(const worker *w, const sum *sums)
{
    bool is_over = true;
    tt_engine_lock(w->engine);
    for (uint32_t s = 0; s < SIZES; s++)
        is_over &= sums[s].is_over;
    tt_engine_unlock(w->engine);
    return is_over;
}

/* The controller may have something to say. */
static void hear(const worker *w, const order *group, tt_team *team)
{
    static order o;
    if (recv(w->sock, &o, sizeof(o), MSG_DONTWAIT) != sizeof(o))
        return;
    must(o.what == BROKEN, "what the controller says is not expected");
    if (o.number != group->number)
        return;
    tt_engine_lock(w->engine);
    tt_team_fail(team, TUTTI_EABORTED, TT_NONE, "the controller breaks it");
    tt_engine_unlock(w->engine);
}

static bool is_wrong(const order *o, const sum *sums)
{
    for (uint32_t s = 0; s < SIZES; s++)
        for (uint64_t i = 0; i < sizes[s]; i++) {
            uint32_t want = 0;
            for (uint32_t k = 0; k < o->n; k++)
                want += value(o->number + s, o->ranks[k], i);
            if (sums[s].at[i] != want)
                return true;
        }
    return false;
}

static void perform(worker *w, const order *o, report *r)
{
    const tt_group_opts opts = {
        .origin = origin, .number = o->number, .members = o->ranks, .n = o->n};
    sum sums[SIZES] = {0};
    tt_team *team;
    const char *text;
    r->err = seat(w, o);
    if (r->err) {
        snprintf(r->text, sizeof(r->text), "seat: %d", r->err);
        return;
    }
    must(!tt_group_create(w->mesh, &opts, &team), "group");
    begin(w, o, team, sums);
    if (o->dies || o->cuts)
        usleep(o->after_us);
    if (o->dies)
        kill(getpid(), SIGKILL);
    if (o->cuts)
        cut(w);
    while (!is_through(w, sums)) {
        usleep(100);
        hear(w, o, team);
    }
    tt_engine_lock(w->engine);
    tt_team_state(team, &text);
    snprintf(r->text, sizeof(r->text), "%s", text);
    for (uint32_t s = 0; s < SIZES; s++)
        r->err = r->err ? r->err : sums[s].err;
    tt_team_leave(team);
    tt_engine_unlock(w->engine);
    r->is_wrong = !r->err && is_wrong(o, sums);
    for (uint32_t s = 0; s < SIZES; s++)
        free(sums[s].at);
}

static void take_down(worker *w)
{
    tt_engine_lock(w->engine);
    for (uint32_t n = 0; n <= WORKERS; n++)
        for (uint32_t me = 0; me < WORKERS; me++)
            for (uint32_t s = 0; s < SIZES; s++)
                tt_program_unref(w->programs[n][me][s]);
    tt_engine_unlock(w->engine);
    tt_mesh_unref(w->mesh);
    tt_engine_destroy(w->engine);
    must(tt_test_mem_is_clean(&w->counts), "memory leaks");
}

static void work(uint32_t rank, int sock, uint32_t only)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static order o;
    worker *w = calloc(1, sizeof(*w));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
        signal(fatal[i], SIG_DFL); /* not cmocka's */
    w->rank = rank;
    w->sock = sock;
    const int n_fds = count_fds();
    set_up(w, only);
    for (;;) {
        must(recv(sock, &o, sizeof(o), 0) == sizeof(o), "no orders");
        report r = {.number = o.number};
        if (o.what == END)
            break;
        if (o.what == BROKEN)
            continue; /* it is over here */
        perform(w, &o, &r);
        r.n_fds = count_fds() - n_fds;
        must(send(sock, &r, sizeof(r), 0) == sizeof(r), "report");
    }
    take_down(w);
    must(count_fds() == n_fds, "descriptors leak");
    free(w);
    exit(0);
}

/* ------------------------------------------------------------ controller -- */

typedef struct site {
    pid_t pid;
    int sock;
    card card;
    bool is_busy; /* in a group, and has not reported */
    report last;
} site;

typedef struct world {
    uint32_t only;
    uint64_t seed, last_number;
    tt_rng rng;
    site sites[WORKERS];
    uint32_t n_killed, n_cut, n_failed, n_well;
} world;

static void start(world *w, uint32_t r)
{
    site *s = &w->sites[r];
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    fflush(NULL);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        for (uint32_t i = 0; i < WORKERS; i++)
            if (w->sites[i].sock > 0)
                close(w->sites[i].sock);
        close(pair[0]);
        work(r, pair[1], w->only);
    }
    close(pair[1]);
    s->sock = pair[0];
    assert_int_equal(recv(s->sock, &s->last, sizeof(s->last), 0),
                     sizeof(s->last));
    s->card = s->last.card;
    s->is_busy = false;
}

static void tell(const world *w, uint32_t r, const order *o)
{
    assert_int_equal(send(w->sites[r].sock, o, sizeof(*o), MSG_NOSIGNAL),
                     sizeof(*o));
}

/* Who is told first calls those who are told later. */
static void form(world *w, order *o, const uint32_t *ranks, uint32_t n,
                 uint32_t doom, bool cuts)
{
    *o = (order){.what = GROUP, .number = ++w->last_number, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        o->ranks[i] = ranks[i];
        o->cards[i] = w->sites[ranks[i]].card;
        w->sites[ranks[i]].is_busy = true;
    }
    uint32_t first = (uint32_t)tt_rng_below(&w->rng, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = ranks[(first + i) % n];
        o->dies = r == doom && !cuts;
        o->cuts = r == doom && cuts;
        o->after_us = (uint32_t)tt_rng_below(&w->rng, 3000);
        tell(w, r, o);
        if (tt_rng_below(&w->rng, 2))
            usleep((useconds_t)tt_rng_below(&w->rng, 3000));
    }
}

static bool is_open(const world *w, const order *o, uint32_t doom)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (o->ranks[i] != doom && w->sites[o->ranks[i]].is_busy)
            return true;
    return false;
}

static void hear_site(world *w, uint32_t r)
{
    site *s = &w->sites[r];
    struct pollfd look = {.fd = s->sock, .events = POLLIN};
    if (!s->is_busy || poll(&look, 1, 0) <= 0)
        return;
    if (recv(s->sock, &s->last, sizeof(s->last), 0) != sizeof(s->last))
        fail_msg("worker %u has ended (TT_SEED=%llu)", r,
                 (unsigned long long)w->seed);
    s->is_busy = false;
    if (s->last.is_wrong || s->last.n_fds > 64)
        fail_msg("worker %u: %s, %d descriptors (TT_SEED=%llu)", r,
                 s->last.is_wrong ? "wrong result" : s->last.text,
                 s->last.n_fds, (unsigned long long)w->seed);
}

/* Until all who live have reported; members are told of the dead after a while,
 * as who has not dialled it yet need not know. */
static void await(world *w, const order *o, uint32_t dead, bool cuts)
{
    const uint64_t tell_ns = tt_now_ns() +
                             tt_rng_below(&w->rng, 2) * 100 * TT_NS_PER_MS;
    const uint64_t until_ns = tt_now_ns() + 30 * TT_NS_PER_S;
    bool is_told = dead == TT_NONE;
    while (is_open(w, o, cuts ? TT_NONE : dead)) {
        for (uint32_t i = 0; i < o->n; i++)
            if (cuts || o->ranks[i] != dead)
                hear_site(w, o->ranks[i]);
        order broken = {.what = BROKEN, .number = o->number};
        for (uint32_t i = 0; i < o->n && !is_told && tt_now_ns() > tell_ns; i++)
            if (w->sites[o->ranks[i]].is_busy && (cuts || o->ranks[i] != dead))
                tell(w, o->ranks[i], &broken);
        is_told |= tt_now_ns() > tell_ns;
        if (tt_now_ns() > until_ns)
            fail_msg("group %llu does not end (TT_SEED=%llu)",
                     (unsigned long long)o->number,
                     (unsigned long long)w->seed);
        usleep(200);
    }
}

static void check_well(world *w, const order *o)
{
    for (uint32_t i = 0; i < o->n; i++) {
        const report *r = &w->sites[o->ranks[i]].last;
        if (r->err || r->number != o->number)
            fail_msg("worker %u, group %llu: error %d: %s (TT_SEED=%llu)",
                     o->ranks[i], (unsigned long long)o->number, r->err,
                     r->text, (unsigned long long)w->seed);
    }
    w->n_well++;
}

static void bury(world *w, uint32_t r)
{
    int status;
    site *s = &w->sites[r];
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(s->sock);
    s->sock = -1;
    w->n_killed++;
}

/* Two groups; something happens in one of them; then a third one, of those to
 * whom it has happened. */
static void play(world *w)
{
    static order mine, other, again;
    uint32_t ranks[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        uint32_t k = (uint32_t)tt_rng_below(&w->rng, i + 1);
        ranks[i] = ranks[k];
        ranks[k] = i;
    }
    uint32_t n = 2 + (uint32_t)tt_rng_below(&w->rng, 2);
    uint64_t fate = tt_rng_below(&w->rng, 3);
    bool cuts = fate == 1;
    uint32_t doom = fate == 2 ? TT_NONE : ranks[tt_rng_below(&w->rng, n)];
    form(w, &other, ranks + n, WORKERS - n, TT_NONE, false);
    form(w, &mine, ranks, n, doom, cuts);
    if (doom != TT_NONE && !cuts)
        bury(w, doom);
    if (doom != TT_NONE && !cuts && tt_rng_below(&w->rng, 2))
        start(w, doom);
    await(w, &mine, doom, cuts);
    await(w, &other, TT_NONE, false);
    check_well(w, &other);
    if (doom == TT_NONE)
        check_well(w, &mine);
    for (uint32_t i = 0; i < n; i++)
        w->n_failed += (ranks[i] != doom || cuts) &&
                       w->sites[ranks[i]].last.err != TUTTI_OK;
    w->n_cut += doom != TT_NONE && cuts;
    if (doom == TT_NONE)
        return;
    if (w->sites[doom].sock < 0)
        start(w, doom);
    /* Who has not noticed the cut yet may fail once more. */
    bool is_well = false;
    for (uint32_t i = 0; i < 3 && !is_well; i++) {
        form(w, &again, ranks, n, TT_NONE, false);
        await(w, &again, TT_NONE, false);
        is_well = true;
        for (uint32_t k = 0; k < n && cuts && i < 2; k++)
            is_well &= !w->sites[ranks[k]].last.err;
    }
    check_well(w, &again);
}

static void storm(uint32_t only)
{
    world *w = calloc(1, sizeof(*w));
    w->only = only;
    w->seed = tt_test_seed(only + 1);
    w->rng.state = w->seed;
    for (uint32_t r = 0; r < WORKERS; r++)
        start(w, r);
    for (uint32_t i = 0; i < ROUNDS; i++)
        play(w);
    for (uint32_t r = 0; r < WORKERS; r++) {
        const order end = {.what = END};
        int status;
        tell(w, r, &end);
        assert_int_equal(waitpid(w->sites[r].pid, &status, 0), w->sites[r].pid);
        assert_int_equal(status, 0);
        close(w->sites[r].sock);
    }
    print_message("# %u killed, %u cut, %u failed there; %u groups did well\n",
                  w->n_killed, w->n_cut, w->n_failed, w->n_well);
    assert_true(w->n_killed > 0 && w->n_cut > 0);
    assert_true(w->n_failed > w->n_killed);
    free(w);
}

static void over_shm(void **state)
{
    (void)state;
    storm(0);
}

static void over_tcp(void **state)
{
    (void)state;
    storm(1);
}

static void over_both(void **state)
{
    (void)state;
    storm(NETS);
}

static void checked(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it starts no thread of its own */
#endif
    setenv("TUTTI_CHECK", "crc", 1);
    storm(NETS);
    unsetenv("TUTTI_CHECK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shm),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(over_both),
        cmocka_unit_test(checked),
    };
    tt_test_limit(300);
    return TT_RUN_TAP(tests);
}
