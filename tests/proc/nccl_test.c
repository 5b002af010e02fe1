/* SPDX-License-Identifier: BSD-3-Clause
 * nccl_test.c - the net plugin for NCCL, driven in the way NCCL does it: two
 * and three processes, and nothing of NCCL.
 *
 * With the name of a file it is one rank of a job that somebody else has
 * started; through the file the ranks tell their handles (nccl.sh). */
#include "support/tap.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bind/nccl/nccl_net.h"
#include "support/procs.h"

enum { LIMIT_S = 100, MOST = 4, EACH = 2, IN_FLIGHT = 8, MESSAGES = 60 };
enum { LARGEST = 600000, ROOM = LARGEST + 4096 };

/* What the processes tell each other, as NCCL's bootstrap does. */
typedef struct board {
    char handles[MOST][MOST][EACH][NET_HANDLE_BYTES]; /* of [from] for [to] */
    _Atomic int n_told;
    _Atomic int n_met;
} board;
static board *shared;

static const net_v11 *plugin;
static const net_v10 *older;
static bool is_v10; /* begun by the older table, which has no end */
static int n_warnings;

static void note(int level, unsigned long parts, const char *file, int line,
                 const char *fmt, ...)
{
    va_list args;
    (void)parts;
    if (level != NET_LOG_WARN)
        return;
    n_warnings++;
    fprintf(stderr, "%s:%d ", file, line);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
}

/* The plugin of the build that this test is of. */
static int load(void **out)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
    path[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 3 && strrchr(path, '/'); i++)
        *strrchr(path, '/') = '\0';
    strcat(path, "/libnccl-net-tutti.so");
    *out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*out)
        return tt_procs_complain(-1, "%s", dlerror());
    plugin = dlsym(*out, "ncclNetPlugin_v11");
    older = dlsym(*out, "ncclNetPlugin_v10");
    return plugin && older ? 0 : tt_procs_complain(-1, "a table is missing");
}

static int begin(int rank, void **ctx)
{
    void *lib;
    *ctx = NULL;
    if (load(&lib))
        return 1;
    int rc = is_v10 ? older->init(note, NULL)
                    : plugin->init(ctx, 1, NULL, note, NULL);
    return rc ? tt_procs_complain(rank, "init: %d", rc) : 0;
}

static int end(void *ctx)
{
    return is_v10 ? 0 : plugin->finalize(ctx);
}

static void meet(int n)
{
    const int round = atomic_fetch_add(&shared->n_met, 1) / n;
    while (atomic_load(&shared->n_met) < (round + 1) * n)
        usleep(200);
}

/* ------------------------------------------------------------- connections */

typedef struct ends {
    void *listeners[MOST][EACH], *send[MOST][EACH], *recv[MOST][EACH];
} ends;

static int listen_for_all(void *ctx, ends *e, int rank, int n)
{
    int rc = 0;
    for (int r = 0; r < n; r++)
        for (int k = 0; k < EACH && !rc; k++)
            rc = plugin->listen(ctx, 0, shared->handles[rank][r][k],
                                &e->listeners[r][k]);
    meet(n);
    return rc ? tt_procs_complain(rank, "listen: %d", rc) : 0;
}

static int try_once(void *ctx, ends *e, int rank, int r, int k)
{
    void *device = NULL;
    int rc = 0;
    if (!e->send[r][k])
        rc = plugin->connect(ctx, 0, shared->handles[r][rank][k],
                             &e->send[r][k], &device);
    if (!rc && !e->recv[r][k])
        rc = plugin->accept(e->listeners[r][k], &e->recv[r][k], &device);
    return rc;
}

/* Every rank with every rank, itself too, both ways, EACH times. */
static int connect_all(void *ctx, ends *e, int rank, int n)
{
    int rc = listen_for_all(ctx, e, rank, n);
    for (bool is_open = true; is_open && !rc;) {
        is_open = false;
        for (int i = 0; i < n * EACH && !rc; i++) {
            int r = i / EACH, k = i % EACH;
            rc = try_once(ctx, e, rank, r, k);
            is_open |= !e->send[r][k] || !e->recv[r][k];
        }
    }
    for (int i = 0; i < n * EACH && !rc; i++)
        rc = plugin->close_listen(e->listeners[i / EACH][i % EACH]);
    return rc ? tt_procs_complain(rank, "connect: %d", rc) : 0;
}

/* The senders first or the receivers, by rank: any order is right. */
static int close_all(ends *e, int rank, int n)
{
    int rc = 0;
    for (int i = 0; i < n * EACH; i++) {
        int r = i / EACH, k = i % EACH;
        void *first = rank % 2 ? e->send[r][k] : e->recv[r][k];
        void *second = rank % 2 ? e->recv[r][k] : e->send[r][k];
        rc |= (rank % 2 ? plugin->close_send : plugin->close_recv)(first);
        rc |= (rank % 2 ? plugin->close_recv : plugin->close_send)(second);
    }
    return rc;
}

/* ---------------------------------------------------------------- messages */

static size_t length_of(int k)
{
    static const size_t lengths[] = {0, 1, 100, 5000, 70000, LARGEST};
    return lengths[k % 6] - (k % 6 > 2 ? (size_t)k : 0);
}

static unsigned char byte_of(int from, int to, int which, int k, size_t i)
{
    return (unsigned char)(i * 31 + i / 251 + (size_t)(from * 7 + to * 11) +
                           (size_t)(which * 3 + k));
}

typedef struct stream {
    int from, to, which; /* of the EACH connections */
    void *conn;
    bool sends;
    int n_begun, n_ended;
    struct {
        void *req;
        int k;
        unsigned char *buf;
    } places[IN_FLIGHT];
} stream;

static int begin_message(stream *s, int p)
{
    int tag = 5, rc, k = s->n_begun;
    unsigned char *buf = s->places[p].buf;
    void *data = buf, *mr = NULL;
    size_t n = length_of(k);
    if (s->sends) {
        for (size_t i = 0; i < n; i++)
            buf[i] = byte_of(s->from, s->to, s->which, k, i);
        rc = plugin->isend(s->conn, buf, n, tag, mr, NULL, &s->places[p].req);
    } else {
        size_t room = n + (size_t)(k * 37 % 4096);
        memset(buf, 0xee, room);
        rc = plugin->irecv(s->conn, 1, &data, &room, &tag, &mr, NULL,
                           &s->places[p].req);
    }
    if (!rc && s->places[p].req) {
        s->places[p].k = k;
        s->n_begun++;
    }
    return rc;
}

static int check_message(const stream *s, int p, int bytes)
{
    int k = s->places[p].k;
    size_t n = length_of(k);
    if ((size_t)bytes != n)
        return tt_procs_complain(s->to, "message %d has %d bytes, not %zu", k,
                                 bytes, n);
    for (size_t i = 0; i < n && !s->sends; i++)
        if (s->places[p].buf[i] != byte_of(s->from, s->to, s->which, k, i))
            return tt_procs_complain(s->to, "message %d: byte %zu is wrong", k,
                                     i);
    if (!s->sends && k * 37 % 4096 > 0 && s->places[p].buf[n] != 0xee)
        return tt_procs_complain(s->to, "message %d: more was written", k);
    return 0;
}

/* The newest is asked first: whoever asks out of order gets the same. */
static int turn(stream *s)
{
    int rc = 0;
    for (int p = IN_FLIGHT; p-- > 0 && !rc;) {
        int is_done = 0, bytes = -1;
        if (!s->places[p].req)
            continue;
        rc = plugin->test(s->places[p].req, &is_done, &bytes);
        if (rc || !is_done)
            continue;
        s->places[p].req = NULL;
        s->n_ended++;
        rc = check_message(s, p, bytes);
    }
    for (int p = 0; p < IN_FLIGHT && !rc && s->n_begun < MESSAGES; p++)
        if (!s->places[p].req)
            rc = begin_message(s, p);
    return rc;
}

static int exchange(ends *e, int rank, int n)
{
    static stream all[2 * MOST * EACH];
    const int n_all = 2 * n * EACH;
    int rc = 0;
    memset(all, 0, sizeof(all));
    for (int i = 0; i < n_all; i++) {
        int r = i / 2 / EACH, k = i / 2 % EACH;
        all[i] = i % 2 ? (stream){.from = rank,
                                  .to = r,
                                  .which = k,
                                  .conn = e->send[r][k],
                                  .sends = true}
                       : (stream){.from = r,
                                  .to = rank,
                                  .which = k,
                                  .conn = e->recv[r][k]};
        for (int p = 0; p < IN_FLIGHT; p++)
            all[i].places[p].buf = malloc(ROOM);
    }
    for (int left = n_all * MESSAGES; left > 0 && !rc;) {
        left = n_all * MESSAGES;
        for (int i = 0; i < n_all && !rc; i++) {
            rc = turn(&all[i]);
            left -= all[i].n_ended;
        }
    }
    for (int i = 0; i < n_all; i++)
        for (int p = 0; p < IN_FLIGHT && !rc; p++)
            free(all[i].places[p].buf);
    return rc ? tt_procs_complain(rank, "messages: %d", rc) : 0;
}

static int all_with_all(int rank, int n, void *arg)
{
    static ends e;
    void *ctx;
    (void)arg;
    return begin(rank, &ctx) || connect_all(ctx, &e, rank, n) ||
           exchange(&e, rank, n) || close_all(&e, rank, n) || end(ctx) ||
           n_warnings;
}

static void run_all(int n, const char *transports,
                    int (*run)(int rank, int n, void *arg), int wrong)
{
    int status[MOST];
    memset(shared, 0, sizeof(*shared));
    const tt_procs procs = {
        .n = n, .timeout_s = LIMIT_S, .transports = transports, .run = run};
    assert_true(tt_procs_run(&procs, status));
    assert_int_equal(tt_procs_failures(status, n), wrong);
}

static void two_over_shared_memory(void **state)
{
    (void)state;
    run_all(2, "shm", all_with_all, 0);
}

static void three_over_tcp(void **state)
{
    (void)state;
    run_all(3, "tcp", all_with_all, 0);
}

/* --------------------------------------------------------------- the tables */

static int tables_agree(int rank, int n, void *arg)
{
    net_properties_v11 now = {.base = {.port = 1}};
    net_properties_v10 then = {.port = 1};
    char handle[NET_HANDLE_BYTES] = "nobody's";
    void *lib, *listener, *sender = NULL, *mr, *device = NULL;
    int n_devices = 0;
    (void)n;
    (void)arg;
    if (load(&lib) || older->init(note, NULL))
        return 1;
    int bad = older->devices(&n_devices) || n_devices != 1;
    bad |= plugin->properties(0, &now) || older->properties(0, &then);
    bad |= memcmp(&now.base, &then, sizeof(then)) != 0 || now.base.mbit <= 0 ||
           now.base.parts.n != 1 || now.most_multi_requests != 1;
    bad |= older->properties(1, &then) != NET_INVALID_ARGUMENT;
    bad |= older->connect(0, NULL, handle, &sender, &device) !=
               NET_INVALID_ARGUMENT ||
           sender || n_warnings != (rank == 0 ? 1 : 0) + 1;
    bad |= older->listen(0, handle, &listener) ||
           older->reg(listener, handle, 1, NET_POINTER_HOST, &mr) ||
           older->reg(listener, handle, 1, 2, &mr) != NET_INTERNAL_ERROR ||
           older->close_listen(listener);
    return bad;
}

/* One process: the job has one rank, and that is said. */
static void versions_10_and_11_are_the_same(void **state)
{
    (void)state;
    run_all(1, NULL, tables_agree, 0);
}

/* ----------------------------------------------------------------- failures */

static int begin_recv(void *conn, void *buf, size_t room, void **req)
{
    int tag = 0;
    void *mr = NULL;
    return plugin->irecv(conn, 1, &buf, &room, &tag, &mr, NULL, req);
}

/* Until it is done or has failed. */
static int ask(void *req)
{
    int is_done = 0, rc = 0;
    while (!is_done && !rc)
        rc = plugin->test(req, &is_done, NULL);
    return rc;
}

static int more_than_there_is_room_for(int rank, int n, void *arg)
{
    static ends e;
    static char buf[100];
    void *ctx, *req;
    int rc;
    (void)arg;
    if (begin(rank, &ctx) || connect_all(ctx, &e, rank, n))
        return 1;
    if (rank == 0)
        rc = plugin->isend(e.send[1][0], buf, 100, 0, NULL, NULL, &req);
    else
        rc = begin_recv(e.recv[0][0], buf, 10, &req) ||
             ask(req) != NET_INVALID_USAGE || n_warnings != 1;
    for (int i = 0; i < 2 && !rc && rank == 0; i++)
        rc = plugin->isend(e.send[0][1], buf, 8, 0, NULL, NULL, &req) ||
             begin_recv(e.recv[0][1], buf + 50, 4, &req) ||
             ask(req) != NET_INVALID_USAGE;
    meet(n);
    return rc;
}

static void what_is_too_long_is_refused(void **state)
{
    (void)state;
    run_all(2, NULL, more_than_there_is_room_for, 0);
}

/* Places run out, and come back. */
static int many_at_a_time(int rank, int n, void *arg)
{
    static ends e;
    static char bufs[NET_MOST_REQUESTS + 1][8];
    void *ctx, *reqs[NET_MOST_REQUESTS + 1];
    int rc = begin(rank, &ctx) || connect_all(ctx, &e, rank, n);
    (void)arg;
    for (int i = 0; i <= NET_MOST_REQUESTS && !rc; i++)
        rc = rank == 0 ? plugin->isend(e.send[1][0], bufs[i], 8, 0, NULL, NULL,
                                       &reqs[i])
                       : begin_recv(e.recv[0][0], bufs[i], 8, &reqs[i]);
    rc = rc || reqs[NET_MOST_REQUESTS] || !reqs[NET_MOST_REQUESTS - 1];
    for (int i = 0; i < NET_MOST_REQUESTS && !rc; i++)
        rc = ask(reqs[i]);
    if (!rc && rank == 0)
        rc = plugin->isend(e.send[1][0], bufs[0], 8, 0, NULL, NULL, reqs);
    else if (!rc)
        rc = begin_recv(e.recv[0][0], bufs[0], 8, reqs);
    return rc || !reqs[0] || ask(reqs[0]) || close_all(&e, rank, n);
}

static void requests_are_bounded(void **state)
{
    (void)state;
    run_all(2, NULL, many_at_a_time, 0);
}

/* Rank 1 dies; rank 0 is told, wherever it waits. */
static int one_dies(int rank, int n, void *arg)
{
    static ends e;
    static char buf[1 << 20];
    char handle[NET_HANDLE_BYTES];
    void *ctx, *req, *listener, *conn = NULL, *device;
    int rc = 0;
    (void)arg;
    if (begin(rank, &ctx) || connect_all(ctx, &e, rank, n))
        return 2;
    if (rank == 1) {
        meet(n);
        _exit(9);
    }
    if (begin_recv(e.recv[1][0], buf, sizeof(buf), &req) ||
        plugin->listen(ctx, 0, handle, &listener))
        return 2;
    meet(n);
    if (ask(req) != NET_REMOTE_ERROR || n_warnings == 0)
        return tt_procs_complain(0, "no error was told");
    while (!rc && !conn)
        rc = plugin->accept(listener, &conn, &device);
    if (rc != NET_REMOTE_ERROR || plugin->isend(e.send[1][0], buf, 8, 0, NULL,
                                                NULL, &req) != NET_REMOTE_ERROR)
        return tt_procs_complain(0, "later calls: %d", rc);
    return close_all(&e, rank, n) || plugin->close_listen(listener) ||
           plugin->finalize(ctx);
}

static void a_peer_that_dies_is_told(void **state)
{
    (void)state;
    run_all(2, "tcp", one_dies, 1);
}

/* NCCL aborts, with receives in flight. Then all have ended, and both begin
 * anew. */
static int abort_and_begin_anew(int rank, int n, void *arg)
{
    static ends e;
    void *ctx, *req, *buf = malloc(1 << 20);
    if (begin(rank, &ctx) || connect_all(ctx, &e, rank, n) ||
        begin_recv(e.recv[1 - rank][0], buf, 1 << 20, &req))
        return 1;
    meet(n);
    if (rank == 1 && ask(req) != NET_REMOTE_ERROR)
        return tt_procs_complain(1, "the other has aborted");
    if (close_all(&e, rank, n) || end(ctx))
        return 1;
    free(buf);
    memset(&e, 0, sizeof(e));
    n_warnings = 0;
    meet(n);
    return all_with_all(rank, n, arg);
}

static void after_an_abort_all_begins_anew(void **state)
{
    (void)state;
    run_all(2, NULL, abort_and_begin_anew, 0);
}

static void so_it_does_by_version_10(void **state)
{
    (void)state;
    is_v10 = true;
    run_all(2, NULL, abort_and_begin_anew, 0);
    is_v10 = false;
}

static void *map_board(const char *path)
{
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (path && (fd < 0 || ftruncate(fd, sizeof(board)) != 0))
        return MAP_FAILED;
    return mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE,
                MAP_SHARED | (path ? 0 : MAP_ANONYMOUS), fd, 0);
}

static int be_one(void)
{
    const char *rank = getenv("TUTTI_RANK"), *size = getenv("TUTTI_SIZE");
    int n = size ? atoi(size) : 0;
    if (!rank || n < 1 || n > MOST)
        return tt_procs_complain(-1, "a job of 1 to %d ranks, please", MOST);
    int bad = all_with_all(atoi(rank), n, NULL);
    if (!bad && atoi(rank) == 0)
        printf("all is well on %d ranks\n", n);
    return bad;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_10_and_11_are_the_same),
        cmocka_unit_test(two_over_shared_memory),
        cmocka_unit_test(three_over_tcp),
        cmocka_unit_test(what_is_too_long_is_refused),
        cmocka_unit_test(requests_are_bounded),
        cmocka_unit_test(a_peer_that_dies_is_told),
        cmocka_unit_test(after_an_abort_all_begins_anew),
        cmocka_unit_test(so_it_does_by_version_10),
    };
    tt_test_limit(500);
    shared = map_board(argc > 1 ? argv[1] : NULL);
    if (shared == MAP_FAILED)
        return tt_procs_complain(-1, "there is no board");
    if (argc > 1)
        return be_one();
    return TT_RUN_TAP(tests);
}
