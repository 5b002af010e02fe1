/* SPDX-License-Identifier: BSD-3-Clause
 * away_test.c - strands of TCP that lose their sockets, one step after the
 * other: two nets in one process. What is said comes once and in order, and who
 * ends meanwhile waits for it. */
#include "support/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/table.h"
#include "net/tcp/tcp.h"
#include "support/places.h"
#include "support/stranger.h"

enum { BIG = 1 << 20 };

/* One end. */
typedef struct side {
    tt_net *net;
    tt_tcp_conn *conn;
    bool is_open;     /* who calls has lost the connection, and ... */
    tt_tcp_conn *old; /* ... this was it */
    unsigned char card[TT_NET_ADDR_MAX]; /* of the other one, as known here */
    size_t card_bytes;
    bool is_lost, has_missed;
    char text[400];
    int n_away, n_back;
    uint64_t n_said, n_heard, n_left, n_lent;
} side;

static tt_settings settings;
static bool is_local = true;    /* else sockets are of both families */
static unsigned char *out, *in; /* [BIG] */

/* --------------------------------------------------------------- upcalls -- */

static void new_conn(side *s)
{
    s->conn = calloc(1, tt_net_tcp.conn_size);
    s->conn->base =
        (tt_conn){.net = s->net, .peer = s, .rank = 1 - s->net->rank};
}

static tt_conn *called(tt_net *net, uint32_t rank, const tt_link_id *id)
{
    side *s = net->owner;
    (void)rank;
    (void)id;
    if (s->is_open && s->conn->base.is_up && !s->old) {
        static side nobody;
        s->old = s->conn;
        s->old->base.peer = &nobody;
        new_conn(s);
    }
    return s->conn->base.is_up ? NULL : &s->conn->base;
}

static void up(tt_conn *conn)
{
    assert_true(conn->is_up);
}

static void missed(tt_conn *conn, tutti_err why, const char *text)
{
    side *s = conn->peer;
    (void)why;
    s->has_missed = true;
    snprintf(s->text, sizeof(s->text), "%s", text);
}

static void *place(void *arg, const tt_msg *m)
{
    (void)arg;
    assert_true(m->len <= BIG);
    return in;
}

static void arrived(void *arg, const tt_msg *m, const void *data)
{
    side *s = arg;
    assert_false(s->is_lost);
    assert_int_equal(m->seq, s->n_heard++);
    assert_true(m->len == 0 || memcmp(data, out, m->len) == 0);
}

static void left(void *arg, uint64_t n)
{
    ((side *)arg)->n_left += n;
}

static void lost(void *arg, tutti_err why, const char *text)
{
    side *s = arg;
    (void)why;
    assert_false(s->is_lost);
    s->is_lost = true;
    snprintf(s->text, sizeof(s->text), "%s", text);
}

static const void *address(const tt_conn *conn, size_t *len)
{
    const side *s = conn->peer;
    *len = s->card_bytes;
    return s->card_bytes ? s->card : NULL;
}

static void away(void *arg, bool is_away)
{
    side *s = arg;
    *(is_away ? &s->n_away : &s->n_back) += 1;
    assert_in_range(s->n_away - s->n_back, 0, 1);
}

static const tt_net_up upcalls = {.called = called,
                                  .up = up,
                                  .missed = missed,
                                  .place = place,
                                  .arrived = arrived,
                                  .left = left,
                                  .lost = lost,
                                  .address = address,
                                  .away = away};

/* ---------------------------------------------------------------- a pair -- */

/* By an id that begins with this byte: of two dials that of the smaller one
 * stays. */
static void open_side(side *s, uint32_t rank, uint8_t id, uint32_t n_sockets)
{
    tutti_diag diag;
    s->net = calloc(1, tt_net_tcp.net_size);
    *s->net = (tt_net){.ops = &tt_net_tcp,
                       .up = &upcalls,
                       .mem = &tt_mem_std,
                       .settings = &settings,
                       .rank = rank,
                       .n_ranks = 2,
                       .id.bytes = {id, 1},
                       .is_local = is_local,
                       .n_sockets = n_sockets,
                       .owner = s};
    assert_int_equal(tt_net_tcp.open(s->net, &diag), TUTTI_OK);
    new_conn(s);
}

static void dial(side *s)
{
    tutti_diag diag;
    assert_int_equal(tt_net_tcp.dial(&s->conn->base, s->card, s->card_bytes,
                                     tt_now_ns() + 100 * TT_NS_PER_S, &diag),
                     TUTTI_OK);
}

/* Nobody flushes. */
static bool is_quiet;

static void turn(side *s)
{
    if (s->conn->base.is_up && !is_quiet)
        tt_net_tcp.flush(&s->conn->base);
    tt_net_tcp.progress(s->net, true);
}

/* Until `cond`; whoever hangs is ended by the limit of the test. */
#define AWAIT(p, cond)   \
    do {                 \
        turn(&(p)[0]);   \
        turn(&(p)[1]);   \
        if (!(cond))     \
            usleep(200); \
    } while (!(cond))

static void open_pair(side p[2], uint32_t n_sockets)
{
    memset(p, 0, 2 * sizeof(*p));
    open_side(&p[0], 0, 1, n_sockets);
    open_side(&p[1], 1, 2, n_sockets);
    for (int i = 0; i < 2; i++) {
        p[i].card_bytes = tt_net_tcp.address(p[1 - i].net, p[i].card,
                                             TT_NET_ADDR_MAX);
    }
    dial(&p[1]);
    AWAIT(p, p[0].conn->base.is_up && p[1].conn->base.is_up);
}

static void close_side(side *s)
{
    tt_net_tcp.close(&s->conn->base, 0);
    if (s->old)
        tt_net_tcp.close(&s->old->base, 0);
    tt_net_tcp.fini(s->net);
    free(s->old);
    free(s->conn);
    free(s->net);
    s->net = NULL;
}

static void close_pair(side p[2])
{
    for (int i = 0; i < 2; i++)
        if (p[i].net)
            close_side(&p[i]);
}

/* False: there is no room. */
static bool say(side *s, uint32_t len)
{
    const tt_msg m = {.magic = TT_MSG_MAGIC, .len = len, .seq = s->n_said};
    const struct iovec iov = {out, len};
    tt_sent sent = tt_net_tcp.send(&s->conn->base, &m, &iov, len > 0);
    s->n_said += sent != TT_FULL;
    s->n_lent += sent == TT_QUEUED;
    return sent != TT_FULL;
}

/* What is between the ends of the strand ends it. */
static void shoot(const side *s, uint32_t strand)
{
    assert_int_equal(shutdown(s->conn->strands[strand].link.fd, SHUT_RDWR), 0);
}

/* What has left in the end is told when it is asked for. */
static bool is_whole(const side p[2])
{
    for (int i = 0; i < 2; i++)
        tt_net_tcp.settle(&p[i].conn->base);
    return p[0].n_heard == p[1].n_said && p[1].n_heard == p[0].n_said &&
           p[0].n_left == p[0].n_lent && p[1].n_left == p[1].n_lent;
}

static bool is_away(const side p[2])
{
    return p[0].conn->n_away + p[1].conn->n_away > 0;
}

/* --------------------------------------------------------- it comes back -- */

/* Both ends lose the socket, or either; small messages and large ones; one
 * strand, or several. */
static void test_back(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 24; round++) {
        side p[2];
        open_pair(p, 1 + round % 3);
        for (int i = 0; i < 12; i++) {
            say(&p[0], i % 3 ? 100000 : 0);
            say(&p[1], i % 2 ? 0 : 3000);
            turn(&p[round & 1]);
            if (i % 4 == 1)
                shoot(&p[round / 2 & 1], (uint32_t)i % p[0].conn->n_strands);
            AWAIT(p, is_whole(p) || !is_away(p));
        }
        AWAIT(p, is_whole(p) && !is_away(p));
        assert_false(p[0].is_lost || p[1].is_lost);
        assert_int_equal(p[0].n_away, p[0].n_back);
        assert_int_equal(p[1].n_away, p[1].n_back);
        assert_true(p[0].n_away + p[1].n_away > 0);
        close_pair(p);
    }
}

/* What is sent from; twice: it is as it was. */
static void spoil(void)
{
    for (size_t i = 0; i < BIG; i++)
        out[i] ^= 0xee;
}

static uint64_t lent_of(const side *s)
{
    return s->n_lent - s->n_left;
}

/* left() is put off while the other side may not have all, but not behind
 * settle(): neither for what the socket has, nor for what waits for it. Nor
 * does it wait when more follows and the rest has come. */
static void test_put_off(void **state)
{
    (void)state;
    for (uint32_t n_strands = 1; n_strands <= 3; n_strands++) {
        side p[2];
        open_pair(p, n_strands);
        const tt_net_ops *ops = p[0].net->ops;
        tt_conn *conn = &p[0].conn->base;
        for (uint32_t i = 0; i < n_strands; i++)
            say(&p[1], 4096);
        AWAIT(p, p[0].n_heard == n_strands); /* each has had its first words */
        assert_true(say(&p[0], 20000));
        ops->flush(conn);
        assert_int_equal(p[0].conn->strands[0].tx.n, 0);
        assert_int_equal(lent_of(&p[0]), 1);
        ops->settle(conn);
        assert_int_equal(lent_of(&p[0]), 0);
        assert_true(say(&p[0], 20000));
        ops->settle(conn);
        assert_int_equal(lent_of(&p[0]), 1); /* the socket has not got it */
        ops->flush(conn);
        assert_int_equal(lent_of(&p[0]), 0);
        assert_true(say(&p[0], 20000));
        ops->flush(conn);
        assert_int_equal(lent_of(&p[0]), 1);
        AWAIT(p, p[1].n_heard == p[0].n_said);
        for (uint32_t i = 0; i < 2 * n_strands; i++) {
            assert_true(say(&p[0], 40000));
            ops->flush(conn);
        }
        assert_true(lent_of(&p[0]) < 2 * n_strands + 1);
        close_pair(p);
    }
}

/* What is taken back is not read any more, though the other host has no room
 * for it, and then the socket is lost: neither what the socket had, nor what
 * waited. And what has been sent to one who has gone is free, too. */
static void test_put_off_taken_back(void **state)
{
    (void)state;
    const int little = 4096;
    for (int waits = 0; waits < 2; waits++) {
        side p[2];
        open_pair(p, 1);
        tt_conn *conn = &p[0].conn->base;
        setsockopt(p[1].conn->strands[0].link.fd, SOL_SOCKET, SO_RCVBUF,
                   &little, sizeof(little));
        say(&p[1], 4096);
        AWAIT(p, p[0].n_heard == 1);
        for (int i = 0; i < 3; i++)
            assert_true(say(&p[0], 20000));
        if (waits)
            tt_net_tcp.cancel(conn, false, false);
        tt_net_tcp.flush(conn);
        assert_int_equal(p[0].conn->strands[0].tx.n, 0);
        if (!waits)
            tt_net_tcp.cancel(conn, false, false);
        p[0].n_lent = p[0].n_left;
        spoil();
        shoot(&p[0], 0);
        while (!is_away(p))
            turn(&p[0]);
        spoil();
        AWAIT(p, is_whole(p) && !is_away(p));
        assert_true(say(&p[0], 20000));
        tt_net_tcp.flush(conn);
        assert_int_equal(lent_of(&p[0]), 1);
        close_side(&p[1]);
        while (!p[0].is_lost)
            turn(&p[0]);
        assert_int_equal(lent_of(&p[0]), 0);
        close_pair(p);
    }
}

/* However many messages wait, the connection takes more. */
static void test_put_off_bounded(void **state)
{
    (void)state;
    for (uint32_t n_strands = 1; n_strands <= 3; n_strands++) {
        side p[2];
        open_pair(p, n_strands);
        for (uint32_t i = 0; i < 3 * p[0].conn->most_lent; i++) {
            AWAIT(p, say(&p[0], 4096));
            tt_net_tcp.flush(&p[0].conn->base);
            assert_true(lent_of(&p[0]) <= p[0].conn->most_lent);
        }
        AWAIT(p, is_whole(p));
        close_pair(p);
    }
}

/* Several strands are away at a time: the engine hears of it once. What has
 * passed before still counts. */
static void test_strands(void **state)
{
    (void)state;
    side p[2];
    tt_net_pace before = {0}, after = {0};
    open_pair(p, 3);
    for (int i = 0; i < 9; i++)
        assert_true(say(&p[0], 5000));
    AWAIT(p, is_whole(p));
    tt_net_tcp.far->pace(&p[0].conn->base, &before);
    for (uint32_t i = 0; i < 3; i++)
        shoot(&p[0], i);
    for (int i = 0; i < 9; i++)
        assert_true(say(&p[0], 5000));
    AWAIT(p, is_whole(p) && !is_away(p));
    assert_true(p[0].n_away > 0 && p[0].n_away == p[0].n_back);
    tt_net_tcp.far->pace(&p[0].conn->base, &after);
    assert_true(before.bytes >= 9 * 5000);
    assert_true(after.bytes >= before.bytes + 9 * 5000 / 2);
    close_pair(p);
}

static void blind(side p[2])
{
    p[0].card_bytes = p[1].card_bytes = 0;
}

/* What the other side misses gets another socket, and what is away here: not
 * what is well. */
static void test_renew(void **state)
{
    (void)state;
    side p[2];
    open_pair(p, 4);
    const side right = p[0];
    blind(p);
    int kept[4];
    for (int i = 0; i < 4; i++)
        kept[i] = p[0].conn->strands[i].link.fd;
    tt_net_tcp.far->renew(&p[0].conn->base, 0);
    assert_int_equal(p[0].conn->n_away, 0);
    tt_net_tcp.far->renew(&p[0].conn->base, 1 << 2);
    AWAIT(p, p[1].conn->n_away == 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_net_tcp.far->renew(&p[i].conn->base, 0), 1 << 2);
        assert_int_equal(p[i].conn->n_away, 1);
    }
    p[0].card_bytes = right.card_bytes;
    say(&p[0], 300);
    say(&p[1], 300);
    tt_net_tcp.far->renew(&p[0].conn->base, 0);
    AWAIT(p, is_whole(p) && !is_away(p));
    for (int i = 0; i < 4; i++)
        assert_true(i == 2 || p[0].conn->strands[i].link.fd == kept[i]);
    assert_int_equal(p[0].n_away, 1);
    tt_net_tcp.far->renew(&p[0].conn->base, UINT64_MAX);
    assert_in_range(p[0].conn->n_away, 3, 4); /* one is new */
    AWAIT(p, is_whole(p) && !is_away(p));
    close_pair(p);
}

/* Until this side knows that it is away: a socket takes something after it was
 * lost. */
static void stumble(side *s)
{
    while (s->conn->n_away == 0 && say(s, 0))
        tt_net_tcp.flush(&s->conn->base);
}

/* What had come by the socket before is heard while it is away. */
static void test_heard_away(void **state)
{
    (void)state;
    side p[2];
    open_pair(p, 3);
    blind(p);
    say(&p[1], 300);
    tt_net_tcp.flush(&p[1].conn->base);
    shoot(&p[0], 0);
    stumble(&p[0]);
    while (p[0].n_heard == 0)
        turn(&p[0]);
    assert_int_equal(p[0].conn->n_away, 1);
    close_pair(p);
}

/* And before it is said to be lost. */
static void test_last_words(void **state)
{
    (void)state;
    side p[2];
    open_pair(p, 1);
    say(&p[1], 300);
    tt_net_tcp.flush(&p[1].conn->base);
    shoot(&p[1], 0);
    close_side(&p[1]);
    stumble(&p[0]);
    struct pollfd verdict = {
        .fd = tt_link_box_fd(((tt_tcp_net *)p[0].net)->door.box),
        .events = POLLIN};
    assert_int_equal(poll(&verdict, 1, -1), 1);
    turn(&p[0]);
    assert_true(p[0].is_lost);
    assert_int_equal(p[0].n_heard, 1);
    close_pair(p);
}

/* The new socket is lost, too, before the ends have met. */
static void test_again(void **state)
{
    (void)state;
    side p[2];
    open_pair(p, 1);
    p[1].card_bytes = 0;
    shoot(&p[0], 0);
    stumble(&p[0]);
    while (p[0].conn->strands[0].link.fd < 0)
        turn(&p[0]);
    assert_int_equal(p[0].conn->n_away, 1);
    shoot(&p[0], 0);
    AWAIT(p, is_whole(p) && !is_away(p));
    close_pair(p);
}

static uint16_t own_port(const side *s)
{
    int fd = s->conn->strands[0].link.fd;
    return fd < 0 ? 0 : tt_sock_port(fd);
}

/* By the new socket the other side says nothing: after 5 s another one. */
static void test_mute(void **state)
{
    (void)state;
    side p[2];
    open_pair(p, 1);
    shoot(&p[0], 0);
    stumble(&p[0]);
    while (p[0].conn->strands[0].link.fd < 0)
        turn(&p[0]);
    uint16_t first = own_port(&p[0]);
    uint64_t began_ns = tt_now_ns();
    while (own_port(&p[0]) == first || own_port(&p[0]) == 0) {
        turn(&p[0]);
        usleep(1000);
    }
    assert_true(tt_now_ns() - began_ns >= 4 * TT_NS_PER_S);
    AWAIT(p, is_whole(p) && !is_away(p));
    close_pair(p);
}

static int n_told;

static void hear_log(void *arg, tutti_log_level level, const char *line)
{
    (void)arg;
    n_told += level == TUTTI_LOG_WARN && strstr(line, ") is away: ") != NULL;
}

/* Each time that it lasts the log says so; and once. */
static void test_told(void **state)
{
    (void)state;
    side p[2];
    tutti_log_set(hear_log, NULL);
    open_pair(p, 1);
    const side right = p[0];
    for (int i = 1; i <= 2; i++) {
        n_told = 0;
        blind(p);
        shoot(&p[0], 0);
        stumble(&p[0]);
        AWAIT(p, n_told == 2);
        uint64_t until_ns = tt_now_ns() + 150 * TT_NS_PER_MS;
        AWAIT(p, tt_now_ns() > until_ns);
        assert_int_equal(n_told, 2);
        p[0].card_bytes = right.card_bytes;
        AWAIT(p, is_whole(p) && !is_away(p));
    }
    tutti_log_set(NULL, NULL);
    close_pair(p);
}

/* ------------------------------------------------------------- who ends -- */

typedef struct ending {
    side *s;
    uint64_t deadline_ns, patience_ns;
    _Atomic bool has_ended;
} ending;

static void *drain(void *arg)
{
    ending *e = arg;
    tt_net_tcp.drain(e->s->net, tt_now_ns() + e->deadline_ns, e->patience_ns);
    atomic_store(&e->has_ended, true);
    return NULL;
}

static pthread_t begin_end(ending *e)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain, e), 0);
    return thread;
}

/* The last things are said while the connection is away, or it goes while the
 * net is drained: the other side gets all of them. */
static void test_end_away(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        side p[2];
        ending e = {.s = &p[0],
                    .deadline_ns = 100 * TT_NS_PER_S,
                    .patience_ns = 100 * TT_NS_PER_S};
        open_pair(p, 1 + (uint32_t)round % 3);
        for (int i = 0; i < 9; i++)
            assert_true(say(&p[0], i == 4 ? BIG : 300) || i > 4);
        if (round < 6)
            shoot(&p[round & 1], 0);
        if (round & 2)
            tt_net_tcp.flush(&p[0].conn->base);
        if (round & 4)
            tt_net_tcp.cancel(&p[0].conn->base, false, true);
        const uint64_t n_left = p[0].n_left;
        pthread_t thread = begin_end(&e);
        for (int i = 0; i < 5; i++)
            turn(&p[1]);
        if (round >= 6)
            shoot(&p[1], 0);
        while (!atomic_load(&e.has_ended))
            turn(&p[1]);
        pthread_join(thread, NULL);
        int n_away = p[0].n_away;
        close_side(&p[0]);
        while (!p[1].is_lost)
            turn(&p[1]);
        assert_int_equal(p[1].n_heard, p[0].n_said);
        assert_int_equal(p[0].n_left, n_left); /* no upcalls */
        assert_int_equal(p[0].n_back, 0);
        assert_int_equal(p[0].n_heard, 0);
        assert_int_equal(n_away, round < 6 && (round & 2) ? n_away : 0);
        close_pair(p);
    }
}

/* The socket has taken all, but the other host has no room for it until the
 * deadline has passed. */
static void test_end_unacked(void **state)
{
    (void)state;
    side p[2];
    ending e = {.s = &p[0],
                .deadline_ns = 20 * TT_NS_PER_MS,
                .patience_ns = 100 * TT_NS_PER_S};
    const int little = 4096;
    open_pair(p, 1);
    setsockopt(p[1].conn->strands[0].link.fd, SOL_SOCKET, SO_RCVBUF, &little,
               sizeof(little));
    while (p[0].n_said < 22 && say(&p[0], 4000))
        tt_net_tcp.flush(&p[0].conn->base);
    assert_int_equal(p[0].conn->strands[0].tx.n, 0);
    pthread_t thread = begin_end(&e);
    usleep(200000);
    while (!atomic_load(&e.has_ended))
        turn(&p[1]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 100; i++)
        turn(&p[1]);
    assert_int_equal(p[1].n_heard, p[0].n_said);
    close_pair(p);
}

/* The other side does not look at what comes. */
static void test_end_bounded(void **state)
{
    (void)state;
    for (int is_patient = 0; is_patient < 2; is_patient++) {
        side p[2];
        const uint64_t patience_ns = 400 * TT_NS_PER_MS;
        ending e = {.s = &p[0],
                    .deadline_ns = 100 * TT_NS_PER_MS,
                    .patience_ns = is_patient ? patience_ns : 0};
        open_pair(p, 1);
        say(&p[0], 300);
        shoot(&p[0], 0);
        uint64_t began_ns = tt_now_ns();
        drain(&e);
        uint64_t took_ns = tt_now_ns() - began_ns;
        assert_true(took_ns >= e.deadline_ns + e.patience_ns);
        if (!is_patient)
            assert_int_equal(p[0].conn->n_away, 1);
        close_pair(p);
    }
}

/* The other side has ended: nobody waits for it. */
static void test_end_refused(void **state)
{
    (void)state;
    side p[2];
    ending e = {.deadline_ns = 1000 * TT_NS_PER_S,
                .patience_ns = 1000 * TT_NS_PER_S};
    for (int round = 0; round < 4; round++) {
        int ends = round & 1;
        is_local = round < 2;
        open_pair(p, 2);
        shoot(&p[ends], 0);
        close_side(&p[ends]);
        e.s = &p[1 - ends];
        say(e.s, 300);
        drain(&e);
        assert_true(e.s->conn->is_lost);
        assert_false(e.s->is_lost); /* no upcall */
        close_pair(p);
    }
    is_local = true;
}

/* It has ended, and said so: that its host resets what comes later is no
 * loss. */
static void test_end_both(void **state)
{
    (void)state;
    side p[2];
    ending e = {.s = &p[0],
                .deadline_ns = 100 * TT_NS_PER_S,
                .patience_ns = 100 * TT_NS_PER_S};
    open_pair(p, 1);
    close_side(&p[1]);
    say(&p[0], 300);
    tt_net_tcp.flush(&p[0].conn->base);
    usleep(20000);
    drain(&e);
    assert_int_equal(p[0].conn->away_ns, 0);
    close_pair(p);
}

/* Rank 0 has ended; rank 1 hears that, leaves the connection, and says so, or
 * rank 0 would miss it as long as it is busy with others. */
static void test_end_answered(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n += 2) {
        side p[2];
        ending e = {.s = &p[0], .deadline_ns = 100 * TT_NS_PER_S};
        open_pair(p, n);
        for (uint32_t i = 0; i < n; i++)
            tt_resume_distrust(&p[0].conn->strands[i].link);
        say(&p[0], 300);
        say(&p[1], 5000); /* and the next one by another strand */
        say(&p[1], 300);
        drain(&e);
        while (!p[1].is_lost)
            turn(&p[1]);
        close_side(&p[1]);
        drain(&e); /* it looks again */
        assert_int_equal(p[0].conn->away_ns, 0);
        for (uint32_t i = 0; i < n; i++)
            assert_true(p[0].conn->strands[i].rx.is_ended);
        close_pair(p);
    }
}

/* Ends when the other one asks for the state of its socket. */
static side *ends_then;

int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    int (*real)(int, int, int, void *, socklen_t *);
    *(void **)&real = dlsym(RTLD_NEXT, "getsockopt");
    side *s = level == IPPROTO_TCP && name == TCP_INFO ? ends_then : NULL;
    struct tcp_info info = {0};
    socklen_t room = sizeof(info);
    if (s) {
        ends_then = NULL;
        tt_net_tcp.drain(s->net, tt_now_ns() + 100 * TT_NS_PER_S, 0);
    }
    while (s && info.tcpi_state != TCP_CLOSE &&
           real(fd, level, name, &info, &room) == 0)
        usleep(200);
    return real(fd, level, name, value, len);
}

/* Both end at a time: the last words of the other side come, and its socket is
 * closed, between one look at a socket and the next. */
static void test_end_meanwhile(void **state)
{
    (void)state;
    side p[2];
    ending e = {.s = &p[0], .deadline_ns = TT_NS_PER_S};
    open_pair(p, 1);
    tt_resume_distrust(&p[0].conn->strands[0].link);
    ends_then = &p[1];
    drain(&e);
    assert_null(ends_then);
    assert_int_equal(p[0].conn->away_ns, 0);
    assert_true(p[0].conn->strands[0].rx.is_ended);
    close_pair(p);
}

/* Nothing is acknowledged, but the socket is well: after the deadline others
 * are made. What is not to be resumed is not waited for any longer. */
static void test_end_silent(void **state)
{
    (void)state;
    for (int lasts = 0; lasts < 2; lasts++) {
        side p[2];
        settings.reconnect_near = (uint64_t)lasts;
        open_pair(p, 1);
        settings.reconnect_near = 1;
        while (say(&p[0], BIG))
            tt_net_tcp.flush(&p[0].conn->base);
        tt_net_tcp.cancel(&p[0].conn->base, false, true);
        ending e = {.s = &p[0],
                    .deadline_ns = 20 * TT_NS_PER_MS,
                    .patience_ns = 1000 * TT_NS_PER_S};
        pthread_t thread = begin_end(&e);
        usleep(200000);
        while (!atomic_load(&e.has_ended))
            turn(&p[1]);
        pthread_join(thread, NULL);
        if (lasts)
            assert_int_equal(p[1].n_away, 1);
        while (lasts && p[1].n_heard < p[0].n_said)
            turn(&p[1]);
        close_pair(p);
    }
}

/* ------------------------------------------------------- how it is found -- */

/* Leads to this place, whatever it led to. */
static void lead_to(side *s, const char *ip, uint16_t port, bool keeps)
{
    tt_door d = {.box = NULL};
    uint32_t number;
    assert_true(tt_door_read(s->card, s->card_bytes, &d.card, &number));
    if (keeps)
        d.card.places[1] = d.card.places[0];
    d.card.n_places = keeps ? 2 : 1;
    d.card.places[0] = tt_test_place(ip, port, TT_IFACE_LOOPBACK);
    s->card_bytes = tt_door_address(&d, number, s->card, TT_NET_ADDR_MAX);
}

/* Neither side finds the other one, until an address is told anew. */
static void test_moved(void **state)
{
    (void)state;
    for (int knows = 0; knows < 2; knows++) {
        side p[2];
        open_pair(p, 1);
        const side right = p[0];
        p[1].card_bytes = 0;
        if (knows)
            lead_to(&p[0], "127.0.0.2", 1, false);
        else
            p[0].card_bytes = 0;
        say(&p[0], 300);
        say(&p[1], 300);
        shoot(&p[0], 0);
        uint64_t until_ns = tt_now_ns() + 300 * TT_NS_PER_MS;
        AWAIT(p, tt_now_ns() > until_ns);
        assert_int_equal(p[0].conn->n_away + p[1].conn->n_away, 2);
        memcpy(p[0].card, right.card, right.card_bytes);
        p[0].card_bytes = right.card_bytes;
        is_quiet = true;
        tt_net_tcp.far->renew(&p[0].conn->base, 0);
        AWAIT(p, is_whole(p));
        is_quiet = false;
        assert_false(p[0].is_lost || p[1].is_lost);
        close_pair(p);
    }
}

static int mute_listener(const char *ip, uint16_t *port)
{
    tt_addr addr;
    assert_true(tt_addr_numeric(ip, 0, &addr));
    int fd = tt_stranger_listen(&addr, 16);
    assert_true(fd >= 0);
    *port = tt_sock_port(fd);
    return fd;
}

static bool is_renamed; /* an interface */

int getifaddrs(struct ifaddrs **ifaces)
{
    int (*real)(struct ifaddrs **);
    *(void **)&real = dlsym(RTLD_NEXT, "getifaddrs");
    const int rc = real(ifaces);
    if (rc == 0 && is_renamed)
        (*ifaces)->ifa_name[0] ^= 0x20;
    return rc;
}

/* Likewise; and then an interface of this host comes, or goes. */
static void test_interfaces(void **state)
{
    (void)state;
    side p[2];
    uint16_t port;
    int ear = mute_listener("127.0.0.2", &port);
    open_pair(p, 1);
    const side right = p[0];
    p[1].card_bytes = 0;
    lead_to(&p[0], "127.0.0.2", port, false);
    say(&p[0], 300);
    say(&p[1], 300);
    shoot(&p[0], 0);
    uint64_t until_ns = tt_now_ns() + 300 * TT_NS_PER_MS;
    AWAIT(p, tt_now_ns() > until_ns);
    memcpy(p[0].card, right.card, right.card_bytes);
    p[0].card_bytes = right.card_bytes;
    until_ns = tt_now_ns() + 300 * TT_NS_PER_MS;
    AWAIT(p, tt_now_ns() > until_ns);
    assert_int_equal(p[0].conn->n_away + p[1].conn->n_away, 2);
    is_renamed = true;
    AWAIT(p, is_whole(p) && !is_away(p));
    is_renamed = false;
    assert_false(p[0].is_lost || p[1].is_lost);
    close_pair(p);
    close(ear);
}

/* TUTTI_RECONNECT is over; of two the one that could dial says what it
 * tried. */
static void test_given_up(void **state)
{
    (void)state;
    side p[2];
    settings.reconnect_ns = 300 * TT_NS_PER_MS;
    open_pair(p, 1);
    p[1].card_bytes = 0;
    lead_to(&p[0], "127.0.0.2", 1, false);
    shoot(&p[0], 0);
    stumble(&p[0]);
    AWAIT(p, p[0].is_lost && p[1].is_lost);
    settings.reconnect_ns = 1000 * TT_NS_PER_S;
    for (int i = 0; i < 2; i++) {
        assert_non_null(strstr(p[i].text, "it has not come back for "));
        assert_true((strstr(p[i].text, "tried 127.0.0.2:1 (") != NULL) ==
                    (i == 0));
    }
    close_pair(p);
}

/* The address that the socket led to decides, whatever else the card has. */
static void test_verdict(void **state)
{
    (void)state;
    side p[2];
    uint16_t port;
    int ear = mute_listener("127.0.0.2", &port);
    open_pair(p, 1);
    lead_to(&p[0], "127.0.0.2", port, true);
    shoot(&p[1], 0);
    close_side(&p[1]);
    while (!p[0].is_lost)
        turn(&p[0]);
    assert_non_null(strstr(p[0].text, "closed the connection"));
    close_pair(p);
    close(ear);
    /* By another socket it has led elsewhere. */
    is_local = false;
    open_pair(p, 1);
    tt_door d = {.box = NULL};
    uint32_t number;
    assert_true(tt_door_read(p[0].card, p[0].card_bytes, &d.card, &number));
    lead_to(&p[0], "127.0.0.2", d.card.places[0].port, false);
    p[1].card_bytes = 0;
    shoot(&p[0], 0);
    stumble(&p[0]);
    AWAIT(p, is_whole(p) && !is_away(p));
    shoot(&p[1], 0);
    close_side(&p[1]);
    while (!p[0].is_lost)
        turn(&p[0]);
    is_local = true;
    close_pair(p);
}

/* Another process has taken the port. */
static void test_other_process(void **state)
{
    (void)state;
    side p[2], third;
    open_pair(p, 1);
    tt_door d = {.box = NULL};
    uint32_t number;
    assert_true(tt_door_read(p[0].card, p[0].card_bytes, &d.card, &number));
    shoot(&p[1], 0);
    close_side(&p[1]);
    snprintf(settings.ports, sizeof(settings.ports), "%u",
             d.card.places[0].port);
    memset(&third, 0, sizeof(third));
    open_side(&third, 1, 3, 1);
    settings.ports[0] = '\0';
    while (!p[0].is_lost)
        turn(&p[0]);
    close_side(&third);
    close_pair(p);
}

/* What is known is where another process is: nobody dials there. */
static void test_other_card(void **state)
{
    (void)state;
    side p[2];
    open_pair(p, 1);
    const side right = p[1];
    p[1].card_bytes = 0;
    tt_door d = {.box = NULL};
    uint32_t number;
    assert_true(tt_door_read(p[0].card, p[0].card_bytes, &d.card, &number));
    d.card.id.bytes[15] ^= 1;
    tt_door_address(&d, number, p[0].card, TT_NET_ADDR_MAX);
    shoot(&p[0], 0);
    stumble(&p[0]);
    uint64_t until_ns = tt_now_ns() + 300 * TT_NS_PER_MS;
    AWAIT(p, tt_now_ns() > until_ns);
    assert_false(p[0].is_lost);
    p[1].card_bytes = right.card_bytes;
    AWAIT(p, is_whole(p) && !is_away(p));
    close_pair(p);
}

/* The other side, whoever dialled, has given the connection up, and says so. */
static void test_unknown(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        side p[2];
        open_pair(p, 1);
        shoot(&p[who], 0);
        tt_net_tcp.close(&p[who].conn->base, 0);
        free(p[who].conn);
        new_conn(&p[who]);
        AWAIT(p, p[1 - who].is_lost);
        assert_non_null(strstr(p[1 - who].text, tt_link_error_text(ENOLINK)));
        close_pair(p);
    }
}

/* What comes of such a dial: the first 4 bytes of the answer's second word (1:
 * it is not known, 0: it goes on); -1: it is hung up. */
static int knock(side p[2], const tt_tcp_said *said, uint32_t strand,
                 uint8_t self)
{
    tt_door *door = &((tt_tcp_net *)p[1].net)->door;
    tt_link_box *box;
    tt_link_dial *d;
    tt_link_card card;
    tt_door_call to;
    tt_link_event link;
    uint32_t number, word[4];
    assert_true(tt_door_read(p[1].card, p[1].card_bytes, &card, &number));
    assert_int_equal(tt_link_box_open(&tt_mem_std, &box, NULL), TUTTI_OK);
    assert_int_equal(
        tt_door_call_to(door, &p[1].conn->base, &card, false, &to, NULL),
        TUTTI_OK);
    to.opts.purpose = TT_LINK_TCP;
    to.opts.strand = strand;
    to.opts.deadline_ns = tt_now_ns() + 100 * TT_NS_PER_S;
    to.opts.self.bytes[15] ^= self;
    memcpy(to.opts.said, said, sizeof(*said));
    assert_int_equal(tt_link_dial_begin(box, &to.opts, &d, NULL), TUTTI_OK);
    assert_true(tt_link_box_wait(box, to.opts.deadline_ns));
    assert_true(tt_link_box_take(box, &link));
    assert_int_equal(link.kind, TT_LINK_DIALLED);
    ssize_t n;
    do {
        turn(&p[0]);
        n = recv(link.stream.fd, word, sizeof(word), MSG_PEEK);
    } while (n != 0 && n < (ssize_t)sizeof(word));
    tt_link_stream_close(&link.stream);
    tt_link_dial_end(d);
    tt_link_box_close(box);
    return n == 0 ? -1 : (int)word[1];
}

/* Who names a strand wrongly cuts nothing; nor does who comes late. */
static void test_knock(void **state)
{
    (void)state;
    side p[2];
    open_pair(p, 1);
    const tt_tcp_said right = {.rank = 1,
                               .n_strands = 1,
                               .call = ((tt_tcp_net *)p[1].net)->n_calls,
                               .is_again = 1,
                               .is_own = 1,
                               .n_dials = 1};
    tt_tcp_said wrong = right;
    wrong.call++;
    assert_int_equal(knock(p, &wrong, 0, 0), 1);
    wrong = right;
    wrong.is_own = 0;
    assert_int_equal(knock(p, &wrong, 0, 0), 1);
    wrong = right;
    wrong.rank = 0;
    assert_int_equal(knock(p, &wrong, 0, 0), 1);
    assert_int_equal(knock(p, &right, 1, 0), 1);
    assert_int_equal(knock(p, &right, 0, 1), 1);
    wrong = right;
    wrong.n_dials = 0;
    assert_int_equal(knock(p, &wrong, 0, 0), -1);
    assert_int_equal(p[0].n_away, 0);
    assert_int_equal(knock(p, &right, 0, 0), 0);
    assert_int_equal(p[0].n_away, 1);
    assert_int_equal(knock(p, &right, 0, 0), -1);
    say(&p[1], 300);
    AWAIT(p, is_whole(p) && !is_away(p));
    close_pair(p);
}

/* The last word of rank 1's first dial was lost, so its second one is the first
 * that comes here: in an open mesh it is taken, whatever there is. But not one
 * of a call that is known to be over, or that a later one has replaced. */
static void test_late(void **state)
{
    (void)state;
    enum { LIVES, ENDED, LATER };
    for (int what = LIVES; what <= LATER; what++) {
        side p[2];
        memset(p, 0, sizeof(p));
        for (uint32_t r = 0; r < 2; r++)
            open_side(&p[r], r, (uint8_t)(r + 1), 1);
        for (int i = 0; i < 2; i++)
            p[i].card_bytes = tt_net_tcp.address(p[1 - i].net, p[i].card,
                                                 TT_NET_ADDR_MAX);
        ((tt_tcp_net *)p[1].net)->n_calls = 5;
        dial(&p[1]);
        AWAIT(p, p[0].conn->base.is_up && p[1].conn->base.is_up);
        tt_tcp_said said = {.rank = 1,
                            .n_strands = 1,
                            .call = 6 + (what == LIVES) - (what == LATER),
                            .is_again = 1,
                            .is_own = 1,
                            .n_dials = 1};
        p[0].is_open = true;
        if (what == ENDED) { /* the older one, which was replaced, ends last */
            tt_tcp_conn *before = p[0].conn;
            new_conn(&p[0]);
            before->theirs.call = 4;
            p[0].conn->theirs = (tt_tcp_call){before->theirs.caller, 6};
            tt_net_tcp.close(&p[0].conn->base, 0);
            tt_net_tcp.close(&before->base, 0);
            free(before);
        }
        /* It stands, and is not away yet: once more. */
        assert_int_equal(knock(p, &said, 0, 0), what == LIVES ? -1 : 1);
        said.n_dials++;
        assert_int_equal(knock(p, &said, 0, 0), what != LIVES);
        assert_int_equal(p[0].old != NULL, what == LIVES);
        close_pair(p);
    }
}

/* What address() told is told once more, cut to size. */
static void test_address(void **state)
{
    (void)state;
    side p[2];
    unsigned char now[TT_NET_INLINE + 1];
    open_pair(p, 1);
    now[TT_NET_INLINE] = 77;
    size_t n = tt_net_tcp.address(p[1].net, now, TT_NET_INLINE);
    assert_int_equal(now[TT_NET_INLINE], 77);
    assert_int_equal(n, p[0].card_bytes);
    assert_memory_equal(now, p[0].card, n);
    close_pair(p);
}

/* Rank 1 has given the connection up and dials a new one, while rank 0 dials
 * for the old one, and that dial stays. */
static void test_dials_anew(void **state)
{
    (void)state;
    side p[2];
    uint16_t port;
    open_pair(p, 1);
    p[0].is_open = true;
    int ear = mute_listener("127.0.0.1", &port);
    lead_to(&p[1], "127.0.0.1", port, true);
    shoot(&p[1], 0);
    tt_net_tcp.close(&p[1].conn->base, 0);
    free(p[1].conn);
    new_conn(&p[1]);
    dial(&p[1]);
    struct pollfd fd = {.fd = ear, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, -1), 1);
    int mute = accept(ear, NULL, NULL);
    close(ear);
    /* Its dial hangs there; that of rank 0 comes, and is for what is gone. */
    AWAIT(p, p[0].old && p[0].conn->base.is_up && p[1].conn->base.is_up);
    p[0].n_heard = p[1].n_heard = p[0].n_said = p[1].n_said = 0;
    say(&p[0], 300);
    AWAIT(p, p[1].n_heard == 1);
    close(mute);
    close_pair(p);
}

int main(void)
{
    tt_test_limit(300);
    settings = (tt_settings){.timeout_ns = 100 * TT_NS_PER_S,
                             .reconnect_ns = 1000 * TT_NS_PER_S,
                             .reconnect_bytes = 4 << 20,
                             .reconnect_near = 1};
    out = calloc(1, BIG);
    in = calloc(1, BIG);
    for (int i = 0; i < BIG; i++)
        out[i] = (unsigned char)(i * 7 + (i >> 8));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back),
        cmocka_unit_test(test_put_off),
        cmocka_unit_test(test_put_off_taken_back),
        cmocka_unit_test(test_put_off_bounded),
        cmocka_unit_test(test_strands),
        cmocka_unit_test(test_renew),
        cmocka_unit_test(test_heard_away),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_mute),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_verdict),
        cmocka_unit_test(test_other_card),
        cmocka_unit_test(test_other_process),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_knock),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_end_away),
        cmocka_unit_test(test_end_unacked),
        cmocka_unit_test(test_end_bounded),
        cmocka_unit_test(test_end_refused),
        cmocka_unit_test(test_end_both),
        cmocka_unit_test(test_end_answered),
        cmocka_unit_test(test_end_meanwhile),
        cmocka_unit_test(test_end_silent),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_interfaces),
        cmocka_unit_test(test_address),
        cmocka_unit_test(test_dials_anew),
    };
    int rc = TT_RUN_TAP(tests);
    free(out);
    free(in);
    return rc;
}
