/* SPDX-License-Identifier: BSD-3-Clause
 * pass_test.c - streams that are passed on: by one process and by several,
 * sealed from end to end, for those who may ask only, and not for more than
 * there is room for; another way where one is dead; no circles. */
#include "support/tap.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/greet.h"

#define LONG_NS (40 * TT_NS_PER_S)

static tt_trust *trust; /* of all; NULL: none */

static uint64_t in_ns(uint64_t ns)
{
    return tt_now_ns() + ns;
}

/* A process on a host of its own, 127.0.9.NUMBER. */
typedef struct side {
    tt_link_box *box;
    tt_link_listener *listener;
    tt_link_id id;
    uint8_t token[TT_LINK_TOKEN];
    tt_addr at;
} side;

static void open_side(side *s, uint8_t number)
{
    *s = (side){.id = {{number, 1, 2, 3}}};
    memset(s->token, number, sizeof(s->token));
    char host[32];
    tt_link_ear ear = {.dev = NULL};
    tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_TCP),
                             .self = s->id,
                             .job = 7,
                             .has_token = true,
                             .trust = trust,
                             .ears = &ear,
                             .n_ears = 1};
    snprintf(host, sizeof(host), "127.0.9.%u", number);
    assert_true(tt_addr_numeric(host, 0, &ear.at));
    memcpy(o.token, s->token, sizeof(o.token));
    assert_int_equal(tt_link_box_open(&tt_mem_std, &s->box, NULL), TUTTI_OK);
    assert_int_equal(tt_link_listen(s->box, &o, &s->listener, NULL, NULL),
                     TUTTI_OK);
    assert_true(
        tt_addr_numeric(host, tt_link_listener_port(s->listener, 0), &s->at));
    tt_link_listener_pass(s->listener);
    assert_int_equal(tt_link_book_set(s->box, NULL, 0), TUTTI_OK);
}

static void close_side(side *s)
{
    tt_link_box_close(s->box);
    s->box = NULL;
}

static void open_three(side *a, side *b, side *z)
{
    open_side(a, 1);
    open_side(b, 2);
    open_side(z, 3);
}

static void close_three(side *a, side *b, side *z)
{
    close_side(a);
    close_side(b);
    close_side(z);
}

static tt_link_way way_to(const side *to)
{
    tt_link_way way;
    memset(&way, 0, sizeof(way));
    way.to = to->at;
    return way;
}

static tt_link_way way_by(const side *via)
{
    tt_link_way way = way_to(via);
    way.is_via = true;
    way.via = via->id;
    memcpy(way.via_token, via->token, sizeof(way.via_token));
    return way;
}

/* From now on s reaches `to` by these ways. */
static void reaches(side *s, const side *to, const tt_link_way *ways,
                    uint32_t n)
{
    const tt_link_far far = {
        .at = &to->at, .n_at = 1, .ways = ways, .n_ways = n};
    assert_int_equal(tt_link_book_set(s->box, &far, 1), TUTTI_OK);
}

/* Who dials says where to, and nothing of who is between. */
static tt_link_dial_opts dial_opts(const side *from, const side *to,
                                   const tt_link_way *way)
{
    tt_link_dial_opts o = {.purpose = TT_LINK_TCP,
                           .self = from->id,
                           .to = to->id,
                           .job = 7,
                           .trust = trust,
                           .ways = way,
                           .n_ways = 1,
                           .n_rounds = 1,
                           .try_ns = LONG_NS,
                           .answer_ns = LONG_NS,
                           .deadline_ns = in_ns(LONG_NS)};
    memcpy(o.token, to->token, sizeof(o.token));
    memcpy(o.said, "dialler", 7);
    return o;
}

static tt_link_event take(const side *s)
{
    tt_link_event link = {.stream.fd = -1};
    uint64_t until = in_ns(LONG_NS);
    while (!tt_link_box_take(s->box, &link))
        if (!tt_link_box_wait(s->box, until))
            fail_msg("nothing came into the box");
    return link;
}

/* Both ends of a stream that came through. */
typedef struct ends {
    tt_link_stream a, z;
} ends;

static ends connect_to(const side *from, const side *to)
{
    ends e;
    tt_link_dial *d;
    const tt_link_way way = way_to(to);
    tt_link_dial_opts o = dial_opts(from, to, &way);
    assert_int_equal(tt_link_dial_begin(from->box, &o, &d, NULL), TUTTI_OK);
    tt_link_event out = take(from);
    if (out.kind != TT_LINK_DIALLED) {
        char tries[300];
        tt_link_tries(d, tries, sizeof(tries));
        fail_msg("it did not come through: %s", tries);
    }
    assert_memory_equal(&out.who.id, &to->id, sizeof(to->id));
    tt_link_dial_end(d);
    tt_link_event in = take(to);
    assert_int_equal(in.kind, TT_LINK_ARRIVED);
    assert_int_equal(in.who.purpose, TT_LINK_TCP);
    assert_memory_equal(&in.who.id, &from->id, sizeof(from->id));
    assert_memory_equal(in.who.said, "dialler", 7);
    assert_int_equal(out.stream.layer != NULL, trust != NULL);
    assert_int_equal(in.stream.layer != NULL, trust != NULL);
    e.a = out.stream;
    e.z = in.stream;
    assert_int_equal(out.way, 0);
    return e;
}

/* Why it did not work. */
static tt_link_why refused(const side *from, const side *to, tt_trust *t)
{
    tt_link_dial *d;
    const tt_link_way way = way_to(to);
    tt_link_dial_opts o = dial_opts(from, to, &way);
    o.trust = t;
    assert_int_equal(tt_link_dial_begin(from->box, &o, &d, NULL), TUTTI_OK);
    tt_link_event out = take(from);
    assert_int_equal(out.kind, TT_LINK_FAILED);
    tt_link_why why = tt_link_dial_outcome(d, 0).why;
    tt_link_dial_end(d);
    return why;
}

/* More than all buffers hold, both ways at once; then the end of one stream,
 * and of the other. */
static void expect_bytes(ends e)
{
    const size_t n = 8 << 20;
    uint8_t *out = malloc(n), *in = malloc(n), *back = malloc(n);
    size_t sent[2] = {0}, got[2] = {0};
    const uint64_t until = in_ns(LONG_NS);
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(i * 7 + i / 251);
    while (got[0] < n || got[1] < n) {
        tt_link_stream *s[2] = {&e.a, &e.z};
        uint8_t *to[2] = {back, in};
        bool has_moved = false;
        for (int i = 0; i < 2; i++) {
            const struct iovec put = {out + sent[i], n - sent[i]};
            ssize_t k = tt_link_send(s[i], &put, 1);
            sent[i] += k > 0 ? (size_t)k : 0;
            const struct iovec take_in = {to[i] + got[i], n - got[i]};
            ssize_t m = got[i] < n ? tt_link_recv(s[i], &take_in, 1) : -1;
            got[i] += m > 0 ? (size_t)m : 0;
            has_moved |= k > 0 || m > 0;
        }
        if (!has_moved) {
            struct pollfd p[2] = {{.fd = e.a.fd, .events = POLLIN},
                                  {.fd = e.z.fd, .events = POLLIN}};
            poll(p, 2, 10);
        }
        assert_true(tt_now_ns() < until);
    }
    assert_memory_equal(in, out, n);
    assert_memory_equal(back, out, n);
    free(out);
    free(in);
    free(back);
}

static void expect_end(ends e)
{
    char byte;
    while (!tt_link_end(&e.a))
        poll(NULL, 0, 1);
    assert_int_equal(tt_link_read_all(&e.z, &byte, 1, in_ns(LONG_NS)), EPIPE);
    /* The other direction goes on. */
    assert_int_equal(tt_link_write_all(&e.z, "x", 1, in_ns(LONG_NS)), 0);
    assert_int_equal(tt_link_read_all(&e.a, &byte, 1, in_ns(LONG_NS)), 0);
    tt_link_stream_close(&e.z);
    assert_int_equal(tt_link_read_all(&e.a, &byte, 1, in_ns(LONG_NS)), EPIPE);
    tt_link_stream_close(&e.a);
}

/* ---------------------------------------------------------------- passed -- */

static void pass_by_one(void)
{
    side a, b, z;
    open_three(&a, &b, &z);
    const tt_link_way onwards = way_to(&z), way = way_by(&b);
    reaches(&b, &z, &onwards, 1);
    reaches(&a, &z, &way, 1);
    ends e = connect_to(&a, &z);
    expect_bytes(e);
    expect_end(e);
    close_three(&a, &b, &z);
}

static void pass_by_two(void)
{
    side a, b, c, z;
    open_side(&a, 1);
    open_side(&b, 2);
    open_side(&c, 3);
    open_side(&z, 4);
    const tt_link_way to_z = way_to(&z), by_c = way_by(&c), way = way_by(&b);
    reaches(&a, &z, &way, 1);
    reaches(&b, &z, &by_c, 1);
    reaches(&c, &z, &to_z, 1);
    ends e = connect_to(&a, &z);
    expect_bytes(e);
    expect_end(e);
    close_side(&a);
    close_side(&b);
    close_side(&c);
    close_side(&z);
}

static void plainly(void **state)
{
    (void)state;
    pass_by_one();
    pass_by_two();
}

static const char secret[] = "one-0123456789-0123456789-0123456789";
static const char other[] = "two-0123456789-0123456789-0123456789";

/* NULL: built without. */
static tt_trust *trust_of(const char *text)
{
    const tt_trust_opts o = {.secret = (const uint8_t *)text,
                             .n_secret = strlen(text)};
    tt_trust *t = NULL;
    return tt_trust_open(&o, &t, NULL) ? NULL : t;
}

/* Who has no secret, or another one, is passed on to nobody. */
static void sealed(void **state)
{
    (void)state;
    trust = trust_of(secret);
    if (!trust)
        skip();
    pass_by_one();
    pass_by_two();
    side a, b, z;
    open_three(&a, &b, &z);
    const tt_link_way onwards = way_to(&z), way = way_by(&b);
    reaches(&b, &z, &onwards, 1);
    reaches(&a, &z, &way, 1);
    tt_trust *strange = trust_of(other);
    assert_int_equal(refused(&a, &z, NULL), TT_LINK_UNPROVEN);
    assert_int_equal(refused(&a, &z, strange), TT_LINK_OTHER_SECRET);
    tt_trust_close(strange);
    close_three(&a, &b, &z);
    tt_trust_close(trust);
    trust = NULL;
}

/* --------------------------------------------------------------- refused -- */

static void who_is_sent_away(void **state)
{
    (void)state;
    side a, b, z;
    open_three(&a, &b, &z);
    const tt_link_way onwards = way_to(&z);
    tt_link_way way = way_by(&b);
    reaches(&a, &z, &way, 1);
    /* b does not know the host. */
    assert_int_equal(refused(&a, &z, NULL), TT_LINK_NO_WAY);
    reaches(&b, &z, &onwards, 1);
    /* Without b's token. */
    way.via_token[0] ^= 1;
    reaches(&a, &z, &way, 1);
    assert_int_equal(refused(&a, &z, NULL), TT_LINK_OTHER_TOKEN);
    /* Another process than is meant. */
    way.via_token[0] ^= 1;
    way.via.bytes[5] ^= 1;
    reaches(&a, &z, &way, 1);
    assert_int_equal(refused(&a, &z, NULL), TT_LINK_OTHER_PROCESS);
    way.via.bytes[5] ^= 1;
    reaches(&a, &z, &way, 1);
    ends e = connect_to(&a, &z);
    expect_end(e);
    close_three(&a, &b, &z);
}

/* Where the book names a port nobody is passed on to another one. */
static void one_port_only(void **state)
{
    (void)state;
    side a, b, z;
    open_three(&a, &b, &z);
    const tt_link_way onwards = way_to(&z), way = way_by(&b);
    const uint16_t port = tt_link_listener_port(z.listener, 0);
    tt_link_far far = {.at = &z.at,
                       .n_at = 1,
                       .ways = &onwards,
                       .n_ways = 1,
                       .port = (uint16_t)(port ^ 1)};
    reaches(&a, &z, &way, 1);
    assert_int_equal(tt_link_book_set(b.box, &far, 1), TUTTI_OK);
    assert_int_equal(refused(&a, &z, NULL), TT_LINK_NO_WAY);
    far.port = port;
    assert_int_equal(tt_link_book_set(b.box, &far, 1), TUTTI_OK);
    expect_end(connect_to(&a, &z));
    close_three(&a, &b, &z);
}

/* The book calls a host near but has only ways by others: the dialler's own
 * ways stay. */
static void near_as_it_is(void **state)
{
    (void)state;
    side a, b, z;
    open_three(&a, &b, &z);
    const tt_link_way way = way_by(&b);
    const tt_link_far far = {
        .at = &z.at, .n_at = 1, .ways = &way, .n_ways = 1, .is_near = true};
    assert_int_equal(tt_link_book_set(a.box, &far, 1), TUTTI_OK);
    expect_end(connect_to(&a, &z));
    close_three(&a, &b, &z);
}

/* A listener that has not said that it passes anything on. */
static void who_does_not_pass_on(void **state)
{
    (void)state;
    side a, b, z;
    open_three(&a, &b, &z);
    const tt_link_way onwards = way_to(&z);
    tt_link_way way = way_by(&b);
    const tt_link_listen_opts o = {
        .purposes = TT_LINK_FOR(TT_LINK_TCP), .self = b.id, .is_local = true};
    tt_link_listener *other_one;
    assert_int_equal(tt_link_listen(b.box, &o, &other_one, NULL, NULL),
                     TUTTI_OK);
    tt_addr_numeric("127.0.0.1", tt_link_listener_port(other_one, 0), &way.to);
    reaches(&a, &z, &way, 1);
    reaches(&b, &z, &onwards, 1);
    assert_int_equal(refused(&a, &z, NULL), TT_LINK_OTHER_PURPOSE);
    close_three(&a, &b, &z);
}

/* b sends to c and c to b: the search ends, and says so. */
static void circles(void **state)
{
    (void)state;
    side a, b, c, z;
    open_side(&a, 1);
    open_side(&b, 2);
    open_side(&c, 3);
    open_side(&z, 4);
    const tt_link_way by_a = way_by(&a), by_b = way_by(&b), by_c = way_by(&c);
    const tt_link_way all[] = {by_a, by_b, by_c};
    reaches(&a, &z, all, 3);
    reaches(&b, &z, all, 3);
    reaches(&c, &z, all, 3);
    assert_int_equal(refused(&a, &z, NULL), TT_LINK_NO_WAY);
    close_side(&a);
    close_side(&b);
    close_side(&c);
    close_side(&z);
}

/* --------------------------------------------------------------- outages -- */

/* b is gone; then b is there, but cannot go on; the way by c works. */
static void another_way(void **state)
{
    (void)state;
    side a, b, c, gone, z;
    open_side(&a, 1);
    open_side(&b, 2);
    open_side(&c, 3);
    open_side(&gone, 5);
    open_side(&z, 4);
    const tt_link_way to_z = way_to(&z), to_gone = way_to(&gone);
    const tt_link_way ways[] = {way_by(&b), way_by(&c)};
    reaches(&a, &z, ways, 2);
    reaches(&b, &z, &to_gone, 1);
    reaches(&c, &z, &to_z, 1);
    close_side(&gone);
    ends e = connect_to(&a, &z);
    expect_end(e);
    close_side(&b);
    e = connect_to(&a, &z);
    expect_end(e);
    close_side(&a);
    close_side(&c);
    close_side(&z);
}

/* Whoever passes on goes: both ends see the end of the stream. */
static void the_one_between_goes(void **state)
{
    (void)state;
    side a, b, z;
    char byte;
    open_three(&a, &b, &z);
    const tt_link_way onwards = way_to(&z), way = way_by(&b);
    reaches(&b, &z, &onwards, 1);
    reaches(&a, &z, &way, 1);
    ends e = connect_to(&a, &z);
    close_side(&b);
    assert_int_not_equal(tt_link_read_all(&e.a, &byte, 1, in_ns(LONG_NS)), 0);
    assert_int_not_equal(tt_link_read_all(&e.z, &byte, 1, in_ns(LONG_NS)), 0);
    tt_link_stream_close(&e.a);
    tt_link_stream_close(&e.z);
    close_side(&a);
    close_side(&z);
}

/* ------------------------------------------------------------------ room -- */

/* Connects to b and asks it to pass on to z; its answer, and the last word. */
static int ask_it(const side *b, const side *z, uint64_t number,
                  tt_greet_word *answer, tt_greet_word *taken)
{
    tt_greet_pass pass = {.first = {{1}},
                          .number = number,
                          .port = ntohs(z->at.u.v4.sin_port),
                          .family = 4};
    memcpy(pass.ip, &z->at.u.v4.sin_addr, 4);
    tt_greet_word w = {.magic = TT_GREET_MAGIC,
                       .version_min = TT_GREET_VERSION_MIN,
                       .version_max = TT_GREET_VERSION_MAX,
                       .kind = TT_GREET_HELLO,
                       .purpose = TT_LINK_PASS,
                       .flags = TT_GREET_BARE,
                       .job = 7,
                       .nonce = number,
                       .from = {{1}},
                       .to = b->id};
    memcpy(w.token, b->token, sizeof(w.token));
    memcpy(w.said, &pass, sizeof(w.said));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, &b->at.u.sa, b->at.len), 0);
    assert_int_equal(send(fd, &w, sizeof(w), MSG_NOSIGNAL), sizeof(w));
    assert_int_equal(recv(fd, answer, sizeof(*answer), MSG_WAITALL),
                     sizeof(*answer));
    *taken = w;
    taken->kind = TT_GREET_TAKEN;
    memcpy(taken->said, answer->said, sizeof(taken->said));
    return fd;
}

static int ask(const side *b, const side *z, uint64_t number,
               tt_greet_word *taken)
{
    tt_greet_word yes;
    const int fd = ask_it(b, z, number, &yes, taken);
    assert_int_equal(yes.kind, TT_GREET_REPLY);
    return fd;
}

static void say(int fd, const tt_greet_word *word)
{
    assert_int_equal(send(fd, word, sizeof(*word), MSG_NOSIGNAL),
                     sizeof(*word));
}

/* Takes whoever comes, and says nothing. */
static void open_deaf(side *z, uint8_t number, int backlog, int *fd)
{
    char host[32];
    snprintf(host, sizeof(host), "127.0.9.%u", number);
    *z = (side){.id = {{number, 1, 2, 3}}};
    assert_true(tt_addr_numeric(host, 0, &z->at));
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(*fd >= 0);
    assert_int_equal(bind(*fd, &z->at.u.sa, z->at.len), 0);
    assert_int_equal(listen(*fd, backlog), 0);
    assert_int_equal(getsockname(*fd, &z->at.u.sa, &z->at.len), 0);
}

/* As many as a process passes on, and one more, all of which are let in before
 * the first of them begins. */
static void no_more_than_there_is_room_for(void **state)
{
    (void)state;
    enum { MOST = 1024 };
    static struct pollfd asks[MOST + 1];
    static tt_greet_word taken[MOST + 1];
    struct rlimit files, more = {.rlim_cur = 4 * MOST};
    side b, z;
    int deaf;
    getrlimit(RLIMIT_NOFILE, &files);
    more.rlim_max = files.rlim_max;
    if (files.rlim_cur < more.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) != 0)
        skip();
    open_side(&b, 2);
    open_deaf(&z, 3, 2 * MOST, &deaf);
    const tt_link_way onwards = way_to(&z);
    reaches(&b, &z, &onwards, 1);
    for (uint32_t i = 0; i <= MOST; i++) {
        asks[i].fd = ask(&b, &z, 100 + i, &taken[i]);
        if (i == 0)
            say(asks[i].fd, &taken[i]);
        asks[i].events = POLLIN;
    }
    for (uint32_t i = 1; i <= MOST; i++)
        say(asks[i].fd, &taken[i]);
    assert_int_not_equal(poll(asks, MOST + 1, (int)(LONG_NS / TT_NS_PER_MS)),
                         0); /* somebody is hung up on */
    for (uint32_t i = 0; i <= MOST; i++)
        close(asks[i].fd);
    close(deaf);
    close_side(&b);
    setrlimit(RLIMIT_NOFILE, &files);
}

/* Whoever passes on has done with it while it still tries to go on, in vain. */
static void closes_soon(void **state)
{
    (void)state;
    enum { WAYS = 8 };
    side b, z;
    int deaf;
    tt_greet_word taken;
    tt_link_way onwards[WAYS];
    open_side(&b, 2);
    open_deaf(&z, 3, WAYS, &deaf);
    for (int i = 0; i < WAYS; i++)
        onwards[i] = way_by(&z);
    reaches(&b, &z, onwards, WAYS);
    const int fd = ask(&b, &z, 5, &taken);
    say(fd, &taken);
    const int asked = accept(deaf, NULL, NULL); /* and is not answered */
    assert_true(asked >= 0);
    const uint64_t begun_ns = tt_now_ns();
    close_side(&b);
    assert_in_range(tt_now_ns() - begun_ns, 0, 4 * TT_NS_PER_S);
    close(asked);
    close(fd);
    close(deaf);
}

/* A request is taken once, so none comes round. */
static void each_number_once(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {5, 6, 5, 0};
    static const bool is_well[] = {true, true, false, false};
    side b, z;
    tt_greet_word answer, taken;
    open_side(&b, 2);
    open_side(&z, 3);
    const tt_link_way onwards = way_to(&z);
    reaches(&b, &z, &onwards, 1);
    for (int i = 0; i < 4; i++) {
        close(ask_it(&b, &z, numbers[i], &answer, &taken));
        assert_int_equal(answer.kind,
                         is_well[i] ? TT_GREET_REPLY : TT_GREET_REFUSE);
        assert_int_equal(answer.why,
                         is_well[i] ? TT_LINK_WELL : TT_LINK_NO_WAY);
    }
    close_side(&b);
    close_side(&z);
}

/* ------------------------------------------------------------------ book -- */

/* Two hosts have the same address: the one that is reached without help. */
static void the_straight_one(void **state)
{
    (void)state;
    side a, gone, z;
    open_side(&a, 1);
    open_side(&gone, 2);
    open_side(&z, 3);
    const tt_link_way by_gone = way_by(&gone), to_z = way_to(&z);
    const tt_link_far both[] = {
        {.at = &z.at, .n_at = 1, .ways = &by_gone, .n_ways = 1},
        {.at = &z.at, .n_at = 1, .ways = &to_z, .n_ways = 1}};
    close_side(&gone);
    assert_int_equal(tt_link_book_set(a.box, both, 2), TUTTI_OK);
    expect_end(connect_to(&a, &z));
    close_side(&a);
    close_side(&z);
}

/* A host that is near is reached by way of others where a stream has been there
 * before. */
static void near_but_out(void **state)
{
    (void)state;
    side a, b, z;
    open_three(&a, &b, &z);
    tt_link_way out = way_to(&z);
    const tt_link_way to_z = way_to(&z), ways[] = {to_z, way_by(&b)};
    const tt_link_far far = {
        .at = &z.at, .n_at = 1, .ways = ways, .n_ways = 2, .is_near = true};
    assert_true(tt_addr_numeric("203.0.113.1", 0, &out.from)); /* not ours */
    reaches(&b, &z, &to_z, 1);
    assert_int_equal(tt_link_book_set(a.box, &far, 1), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        tt_link_dial *d;
        tt_link_dial_opts o = dial_opts(&a, &z, &out);
        o.is_again = i == 1;
        assert_int_equal(tt_link_dial_begin(a.box, &o, &d, NULL), TUTTI_OK);
        tt_link_event e = take(&a);
        assert_int_equal(e.kind, i ? TT_LINK_DIALLED : TT_LINK_FAILED);
        tt_link_stream_close(&e.stream);
        tt_link_dial_end(d);
        if (i == 0)
            continue;
        tt_link_event in = take(&z);
        tt_link_stream_close(&in.stream);
    }
    close_three(&a, &b, &z);
}

/* It measures the straight way. */
static void a_probe_is_not_passed_on(void **state)
{
    (void)state;
    side a, b, z;
    tt_link_dial *d;
    open_three(&a, &b, &z);
    const tt_link_way way = way_by(&b), to_z = way_to(&z);
    reaches(&a, &z, &way, 1);
    close_side(&b);
    tt_link_dial_opts o = dial_opts(&a, &z, &to_z);
    o.purpose = TT_LINK_PROBE;
    assert_int_equal(tt_link_dial_begin(a.box, &o, &d, NULL), TUTTI_OK);
    assert_int_equal(take(&a).kind, TT_LINK_FAILED);
    assert_int_equal(tt_link_dial_outcome(d, 0).why, TT_LINK_OTHER_PURPOSE);
    tt_link_dial_end(d);
    close_side(&a);
    close_side(&z);
}

/* Of a straight way it does not count: many listen at a host. */
static void the_port_that_is_meant(void **state)
{
    (void)state;
    side a, b, z;
    open_three(&a, &b, &z);
    const tt_link_way way = way_by(&b);
    tt_link_way onwards = way_to(&z);
    onwards.to.u.v4.sin_port ^= 1;
    reaches(&b, &z, &onwards, 1);
    reaches(&a, &z, &way, 1);
    expect_end(connect_to(&a, &z));
    close_three(&a, &b, &z);
}

/* ----------------------------------------------------------------- bytes -- */

/* a has sent so much that nothing more fits; z has not read. */
typedef struct stuffed {
    side a, b, z;
    ends e;
    size_t n;
} stuffed;

static void stuff(stuffed *s)
{
    static char block[1 << 16];
    open_side(&s->a, 1);
    open_side(&s->b, 2);
    open_side(&s->z, 3);
    const tt_link_way onwards = way_to(&s->z), way = way_by(&s->b);
    reaches(&s->b, &s->z, &onwards, 1);
    reaches(&s->a, &s->z, &way, 1);
    s->e = connect_to(&s->a, &s->z);
    const struct iovec iov = {block, sizeof(block)};
    for (s->n = 0;;) {
        struct pollfd p = {.fd = s->e.a.fd, .events = POLLOUT};
        ssize_t k = tt_link_send(&s->e.a, &iov, 1);
        s->n += k > 0 ? (size_t)k : 0;
        if (k < 0 && poll(&p, 1, 300) == 0)
            return;
    }
}

static size_t count_bytes(tt_link_stream *from)
{
    static char bytes[1 << 16];
    const uint64_t until_ns = in_ns(LONG_NS);
    const struct iovec iov = {bytes, sizeof(bytes)};
    for (size_t n = 0; tt_now_ns() < until_ns;) {
        ssize_t k = tt_link_recv(from, &iov, 1);
        struct pollfd p = {.fd = from->fd, .events = POLLIN};
        if (k == 0 || (k < 0 && errno != EAGAIN))
            return n;
        n += k > 0 ? (size_t)k : 0;
        if (k < 0)
            poll(&p, 1, 100);
    }
    return 0;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * TT_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* One way only: what had no room waits, costs nothing, and goes on when there
 * is some. */
static void slow_reader(void **state)
{
    (void)state;
    stuffed s;
    stuff(&s);
    const uint64_t begun_ns = cpu_ns();
    poll(NULL, 0, 300);
    assert_in_range(cpu_ns() - begun_ns, 0, 100 * TT_NS_PER_MS);
    while (!tt_link_end(&s.e.a))
        poll(NULL, 0, 1);
    assert_int_equal(count_bytes(&s.e.z), s.n);
    tt_link_stream_close(&s.e.z);
    tt_link_stream_close(&s.e.a);
    close_side(&s.a);
    close_side(&s.b);
    close_side(&s.z);
}

/* Who does not read goes: the other one hears of it, and nothing is left. */
static void reader_goes(void **state)
{
    (void)state;
    stuffed s;
    char byte;
    stuff(&s);
    tt_link_stream_close(&s.e.z);
    assert_int_not_equal(tt_link_read_all(&s.e.a, &byte, 1, in_ns(LONG_NS)), 0);
    tt_link_stream_close(&s.e.a);
    const uint64_t begun_ns = tt_now_ns();
    close_side(&s.b);
    assert_in_range(tt_now_ns() - begun_ns, 0, 8 * TT_NS_PER_S);
    close_side(&s.a);
    close_side(&s.z);
}

static void *close_it(void *arg)
{
    close_side(arg);
    return NULL;
}

/* Whoever passes on goes when the last words have been said. */
static void last_words(void **state)
{
    (void)state;
    stuffed s;
    pthread_t closer;
    stuff(&s);
    while (!tt_link_end(&s.e.a))
        poll(NULL, 0, 1);
    assert_int_equal(pthread_create(&closer, NULL, close_it, &s.b), 0);
    poll(NULL, 0, 20); /* it has begun to close, most likely */
    assert_int_equal(count_bytes(&s.e.z), s.n);
    tt_link_stream_close(&s.e.z);
    tt_link_stream_close(&s.e.a);
    pthread_join(closer, NULL);
    close_side(&s.a);
    close_side(&s.z);
}

/* One way or another: of both ends that dial by b, one stays. */
static void both_dial(void **state)
{
    (void)state;
    side a, b, z;
    open_three(&a, &b, &z);
    const tt_link_way to_a = way_to(&a), to_z = way_to(&z), way = way_by(&b);
    const tt_link_far both[] = {
        {.at = &a.at, .n_at = 1, .ways = &to_a, .n_ways = 1},
        {.at = &z.at, .n_at = 1, .ways = &to_z, .n_ways = 1}};
    assert_int_equal(tt_link_book_set(b.box, both, 2), TUTTI_OK);
    reaches(&a, &z, &way, 1);
    reaches(&z, &a, &way, 1);
    for (int i = 0; i < 20; i++) {
        tt_link_dial *da, *dz;
        tt_link_dial_opts oa = dial_opts(&a, &z, &to_z);
        tt_link_dial_opts oz = dial_opts(&z, &a, &to_a);
        oa.n_rounds = oz.n_rounds = 0;
        assert_int_equal(tt_link_dial_begin(a.box, &oa, &da, NULL), TUTTI_OK);
        assert_int_equal(tt_link_dial_begin(z.box, &oz, &dz, NULL), TUTTI_OK);
        tt_link_event at_a = take(&a), at_z = take(&z);
        while (at_a.kind == TT_LINK_MET)
            at_a = take(&a);
        while (at_z.kind == TT_LINK_MET)
            at_z = take(&z);
        assert_int_equal(at_a.kind == TT_LINK_DIALLED,
                         at_z.kind == TT_LINK_ARRIVED);
        assert_int_equal(at_z.kind == TT_LINK_DIALLED,
                         at_a.kind == TT_LINK_ARRIVED);
        tt_link_dial_end(da);
        tt_link_dial_end(dz);
        expect_end((ends){.a = at_a.stream, .z = at_z.stream});
    }
    close_three(&a, &b, &z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plainly),
        cmocka_unit_test(sealed),
        cmocka_unit_test(who_is_sent_away),
        cmocka_unit_test(one_port_only),
        cmocka_unit_test(near_as_it_is),
        cmocka_unit_test(who_does_not_pass_on),
        cmocka_unit_test(circles),
        cmocka_unit_test(another_way),
        cmocka_unit_test(the_one_between_goes),
        cmocka_unit_test(both_dial),
        cmocka_unit_test(no_more_than_there_is_room_for),
        cmocka_unit_test(closes_soon),
        cmocka_unit_test(each_number_once),
        cmocka_unit_test(the_straight_one),
        cmocka_unit_test(near_but_out),
        cmocka_unit_test(a_probe_is_not_passed_on),
        cmocka_unit_test(the_port_that_is_meant),
        cmocka_unit_test(slow_reader),
        cmocka_unit_test(reader_goes),
        cmocka_unit_test(last_words),
    };
    return TT_RUN_TAP(tests);
}
