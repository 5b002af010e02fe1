/* SPDX-License-Identifier: BSD-3-Clause
 * link_test.c - one way in: who greets right comes through, whatever strangers
 * do meanwhile; of two dials at once one stays, and both sides know which. */
#include "support/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fdpass.h"
#include "base/fork.h"
#include "base/rng.h"
#include "link/greet.h"
#include "support/alloc.h"
#include "support/stranger.h"

#define LONG_NS (40 * TT_NS_PER_S)

static uint64_t in_ns(uint64_t ns)
{
    return tt_now_ns() + ns;
}

static tt_link_id id_of(uint8_t first)
{
    tt_link_id id = {{first, 1, 2, 3}};
    return id;
}

static tt_trust *trust; /* of all; NULL: none */

/* One side: a box, perhaps a listener. */
typedef struct side {
    tt_link_box *box;
    tt_link_listener *listener;
    tt_link_card card;
    tt_link_id id;
} side;

static tt_link_listen_opts listen_opts(const side *s)
{
    tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_TCP) |
                                         TT_LINK_FOR(TT_LINK_SHM),
                             .self = s->id,
                             .job = 7,
                             .has_token = true,
                             .trust = trust,
                             .is_local = true};
    memset(o.token, 0x5a, sizeof(o.token));
    return o;
}

static void open_box(side *s, uint8_t id)
{
    *s = (side){.id = id_of(id)};
    assert_int_equal(tt_link_box_open(&tt_mem_std, &s->box, NULL), TUTTI_OK);
}

static void listen_as(side *s, const tt_link_listen_opts *o)
{
    int why;
    assert_int_equal(tt_link_listen(s->box, o, &s->listener, &why, NULL),
                     TUTTI_OK);
    tt_link_card_of(s->listener, &s->card);
}

static void open_side(side *s, uint8_t id)
{
    open_box(s, id);
    tt_link_listen_opts o = listen_opts(s);
    listen_as(s, &o);
}

static void close_side(side *s)
{
    tt_link_box_close(s->box);
}

static tt_link_way way_to(const side *to, bool is_unix)
{
    tt_link_way way;
    memset(&way, 0, sizeof(way));
    if (is_unix)
        tt_link_card_nest(&to->card, &way.to);
    else
        tt_addr_numeric("127.0.0.1", tt_link_listener_port(to->listener, 0),
                        &way.to);
    return way;
}

static tt_link_dial_opts dial_opts(const side *from, const side *to,
                                   const tt_link_way *way)
{
    tt_link_dial_opts o = {.purpose = TT_LINK_TCP,
                           .strand = 3,
                           .self = from->id,
                           .to = to->id,
                           .job = 7,
                           .trust = trust,
                           .ways = way,
                           .n_ways = 1,
                           .deadline_ns = in_ns(LONG_NS)};
    memset(o.token, 0x5a, sizeof(o.token));
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

static tt_link_event dial(const side *from, const tt_link_dial_opts *o,
                          tt_link_dial **d)
{
    assert_int_equal(tt_link_dial_begin(from->box, o, d, NULL), TUTTI_OK);
    return take(from);
}

static void expect_bytes(tt_link_stream a, tt_link_stream b)
{
    char got[8] = "";
    struct iovec out[2] = {{(void *)(uintptr_t) "abc", 3},
                           {(void *)(uintptr_t) "defgh", 5}};
    struct iovec in[2] = {{got, 1}, {got + 1, 7}};
    assert_int_equal(tt_link_send(&a, out, 2), 8);
    assert_true(tt_sock_wait(b.fd, POLLIN, in_ns(LONG_NS)));
    assert_int_equal(tt_link_pending(&b), 0);
    assert_int_equal(tt_link_recv(&b, in, 2), 8);
    assert_memory_equal(got, "abcdefgh", 8);
    assert_int_equal(tt_link_recv(&b, in, 1), -1);
    assert_int_equal(errno, EAGAIN);
    tt_link_stream_close(&a);
    assert_true(tt_sock_wait(b.fd, POLLIN, in_ns(LONG_NS)));
    assert_int_equal(tt_link_recv(&b, in, 2), 0);
    tt_link_stream_close(&b);
    assert_int_equal(b.fd, -1);
}

/* A dial that must come through. */
static void expect_link(const side *from, const side *to, bool is_unix)
{
    tt_link_way way = way_to(to, is_unix);
    tt_link_dial_opts o = dial_opts(from, to, &way);
    tt_link_dial *d;
    tt_link_event out = dial(from, &o, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    assert_ptr_equal(out.dial, d);
    assert_int_equal(out.is_unix, is_unix);
    assert_memory_equal(&out.who.id, &to->id, sizeof(to->id));
    assert_int_equal(out.who.version, 1);
    tt_link_dial_end(d);
    tt_link_event in = take(to);
    assert_int_equal(in.kind, TT_LINK_ARRIVED);
    assert_ptr_equal(in.listener, to->listener);
    assert_int_equal(in.is_unix, is_unix);
    assert_int_equal(in.who.purpose, TT_LINK_TCP);
    assert_int_equal(in.who.strand, 3);
    assert_memory_equal(&in.who.id, &from->id, sizeof(from->id));
    assert_memory_equal(in.who.said, "dialler", 7);
    expect_bytes(in.stream, out.stream);
}

/* ---------------------------------------------------------------- words -- */

static void test_words(void **state)
{
    (void)state;
    const tt_greet_terms terms = {.purposes = TT_LINK_FOR(TT_LINK_TCP),
                                  .self = id_of(9),
                                  .job = 7,
                                  .has_token = true,
                                  .token = {1, 2}};
    const tt_greet_word good = {.magic = TT_GREET_MAGIC,
                                .version_min = 1,
                                .version_max = 1,
                                .kind = TT_GREET_HELLO,
                                .purpose = TT_LINK_TCP,
                                .strand = 5,
                                .job = 7,
                                .nonce = 99,
                                .from = id_of(3),
                                .to = id_of(9),
                                .token = {1, 2}};
    uint32_t v = 0;
    assert_int_equal(tt_greet_judge(&good, &terms, &v), TT_LINK_WELL);
    assert_int_equal(v, 1);
#define BAD(change, why)                                       \
    do {                                                       \
        tt_greet_word w = good;                                \
        change;                                                \
        assert_int_equal(tt_greet_judge(&w, &terms, &v), why); \
    } while (0)
    BAD(w.magic++, TT_LINK_STRANGE);
    BAD(w.kind = TT_GREET_REPLY, TT_LINK_STRANGE);
    BAD(w.kind = TT_GREET_TAKEN, TT_LINK_STRANGE);
    BAD(w.purpose = TT_LINK_SHM, TT_LINK_OTHER_PURPOSE);
    BAD(w.purpose = 255, TT_LINK_OTHER_PURPOSE);
    BAD(w.purpose = TT_LINK_NONE, TT_LINK_OTHER_PURPOSE);
    BAD(w.job = 8, TT_LINK_OTHER_JOB);
    BAD(w.to = id_of(8), TT_LINK_OTHER_PROCESS);
    BAD(w.token[15] = 1, TT_LINK_OTHER_TOKEN);
    BAD((w.version_min = 2, w.version_max = 9), TT_LINK_OTHER_VERSION);
    assert_int_equal(v, 9);
    BAD((w.version_min = 0, w.version_max = 0), TT_LINK_OTHER_VERSION);
    BAD((w.version_min = 3, w.version_max = 1), TT_LINK_OTHER_VERSION);
    /* Later versions that still speak this one, and nobody in particular. */
    BAD((w.version_min = 1, w.version_max = 9), TT_LINK_WELL);
    assert_int_equal(v, 1);
    BAD(w.job = 0, TT_LINK_OTHER_JOB);
    BAD(w.to = (tt_link_id){{0}}, TT_LINK_WELL);
    tt_greet_terms open = terms;
    tt_greet_word none = good;
    open.job = none.job = 0;
    assert_int_equal(tt_greet_judge(&good, &open, &v), TT_LINK_WELL);
    assert_int_equal(tt_greet_judge(&none, &open, &v), TT_LINK_WELL);
    /* The other way round. */
    tt_greet_word yes = tt_greet_answer(&good, TT_LINK_WELL, &terms.self, 1);
    assert_int_equal(tt_greet_judge_reply(&yes, &good, &v), TT_LINK_WELL);
    tt_greet_word no = tt_greet_answer(&good, TT_LINK_FULL, &terms.self, 1);
    assert_int_equal(tt_greet_judge_reply(&no, &good, &v), TT_LINK_FULL);
    assert_true(tt_link_id_is_none(&no.from)); /* nothing is told */
#undef BAD
#define BAD(change, why)                                            \
    do {                                                            \
        tt_greet_word w = yes;                                      \
        change;                                                     \
        assert_int_equal(tt_greet_judge_reply(&w, &good, &v), why); \
    } while (0)
    BAD(w.magic = 0, TT_LINK_STRANGE);
    BAD(w.nonce++, TT_LINK_STRANGE);
    BAD(w.strand++, TT_LINK_STRANGE);
    BAD(w.kind = TT_GREET_HELLO, TT_LINK_STRANGE);
    BAD((w.kind = TT_GREET_REFUSE, w.why = 0), TT_LINK_STRANGE);
    BAD((w.kind = TT_GREET_REFUSE, w.why = 200), TT_LINK_STRANGE);
    BAD(w.from = id_of(1), TT_LINK_OTHER_PROCESS);
    BAD((w.version_min = 4, w.version_max = 6), TT_LINK_OTHER_VERSION);
    assert_int_equal(v, 6);
#undef BAD
    tt_greet_word taken = good;
    taken.kind = TT_GREET_TAKEN;
    const uint64_t nonce = 0x1234567;
    memcpy(taken.said, &nonce, sizeof(nonce));
    assert_true(tt_greet_is_taken(&taken, &good, nonce));
    assert_false(tt_greet_is_taken(&taken, &good, nonce + 1));
    taken.nonce = 0;
    assert_false(tt_greet_is_taken(&taken, &good, nonce));
}

/* --------------------------------------------------------------- meeting -- */

static void test_meet(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    tt_link_listen_opts o = listen_opts(&a);
    o.is_nest = true;
    listen_as(&a, &o);
    assert_true(a.card.nest != 0);
    assert_int_equal(a.card.n_places, 0);
    for (int i = 0; i < 3; i++) {
        expect_link(&a, &b, false);
        expect_link(&b, &a, true);
    }
    close_side(&a);
    close_side(&b);
}

static void test_v6(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_box(&b, 2);
    tt_link_ear ear = {.dev = NULL};
    assert_true(tt_addr_numeric("::1", 0, &ear.at));
    tt_link_listen_opts o = listen_opts(&b);
    o.ears = &ear;
    o.n_ears = 1;
    int why;
    if (tt_link_listen(b.box, &o, &b.listener, &why, NULL) != TUTTI_OK) {
        print_message("this machine has no IPv6 loopback\n");
        close_side(&a);
        close_side(&b);
        skip();
    }
    tt_link_card_of(b.listener, &b.card);
    assert_int_equal(b.card.n_places, 1);
    assert_int_equal(b.card.places[0].family, 6);
    assert_int_equal(b.card.places[0].ip[15], 1);
    tt_link_way way;
    memset(&way, 0, sizeof(way));
    tt_addr_numeric("::1", tt_link_listener_port(b.listener, 0), &way.to);
    tt_link_dial_opts call = dial_opts(&a, &b, &way);
    tt_link_dial *d;
    tt_link_event out = dial(&a, &call, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    tt_link_event in = take(&b);
    expect_bytes(out.stream, in.stream);
    close_side(&a);
    close_side(&b);
}

static double cpu_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Where nothing happens the thread sleeps: with listeners, a guest that says
 * nothing, a dial that nobody answers, and a link that nobody takes. */
static void test_idle(void **state)
{
    (void)state;
    side a, b;
    open_side(&a, 1);
    open_side(&b, 2);
    tt_link_way way = way_to(&b, false), silent = way;
    silent.to.u.v4.sin_port = 0;
    int fd = tt_link_bind(&silent.to, 8);
    silent.to.u.v4.sin_port = htons(tt_sock_port(fd));
    int guest = tt_stranger_connect(&way.to, in_ns(LONG_NS));
    tt_link_dial_opts o = dial_opts(&a, &b, &way);
    tt_link_dial *d, *e;
    tt_link_event out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    o = dial_opts(&a, &b, &silent);
    o.strand = 4;
    o.answer_ns = LONG_NS;
    assert_int_equal(tt_link_dial_begin(a.box, &o, &e, NULL), TUTTI_OK);
    poll(NULL, 0, 50);
    double before = cpu_s();
    poll(NULL, 0, 500);
    assert_true(cpu_s() - before < 0.05);
    close(guest);
    close(fd);
    tt_link_stream_close(&out.stream);
    close_side(&a);
    close_side(&b);
}

/* Descriptors go over a unix link, and messages keep their borders. */
static void test_packets(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_box(&b, 2);
    tt_link_listen_opts o = listen_opts(&b);
    o.is_nest = o.is_packets = true;
    listen_as(&b, &o);
    tt_link_way way = way_to(&b, true);
    tt_link_dial_opts call = dial_opts(&a, &b, &way);
    call.purpose = TT_LINK_SHM;
    call.is_packets = true;
    tt_link_dial *d;
    tt_link_event out = dial(&a, &call, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    tt_link_event in = take(&b);
    int got = -1;
    char text[3];
    assert_true(tt_fdpass_send(out.stream.fd, "one", 3, &out.stream.fd, 1));
    assert_true(tt_fdpass_send(out.stream.fd, "two", 3, NULL, 0));
    assert_true(tt_sock_wait(in.stream.fd, POLLIN, in_ns(LONG_NS)));
    assert_int_equal(tt_fdpass_recv(in.stream.fd, text, 3, &got, 1), 1);
    assert_memory_equal(text, "one", 3);
    assert_int_equal(tt_fdpass_recv(in.stream.fd, text, 3, NULL, 0), 1);
    assert_memory_equal(text, "two", 3);
    close(got);
    tt_link_stream_close(&in.stream);
    tt_link_stream_close(&out.stream);
    close_side(&a);
    close_side(&b);
}

static void test_one_way(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    tt_link_way way = way_to(&b, false);
    tt_link_dial_opts o = dial_opts(&a, &b, &way);
    o.is_one_way = true;
    tt_link_dial *d;
    tt_link_event out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    tt_link_event in = take(&b);
    assert_int_equal(in.kind, TT_LINK_ARRIVED);
    expect_bytes(out.stream, in.stream);
    close_side(&a);
    close_side(&b);
}

static void expect_refusal(const side *from, const side *to,
                           const tt_link_dial_opts *o, tt_link_why why)
{
    tt_link_dial *d;
    tt_link_refusal r;
    uint64_t before = tt_link_listener_refusal(to->listener, &r, NULL);
    tt_link_event out = dial(from, o, &d);
    assert_int_equal(out.kind, TT_LINK_FAILED);
    assert_int_equal(out.stream.fd, -1);
    assert_int_equal(tt_link_dial_outcome(d, 0).why, why);
    tt_link_dial_end(d);
    assert_int_equal(tt_link_listener_refusal(to->listener, &r, NULL),
                     before + 1);
    assert_int_equal(r.why, why);
    assert_non_null(strstr(r.from, "127.0.0.1:"));
}

static void test_refusals(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    tt_link_way way = way_to(&b, false);
    tt_link_dial_opts good = dial_opts(&a, &b, &way);
    good.n_rounds = 1;
    tt_link_dial_opts o = good;
    o.purpose = TT_LINK_PROBE;
    expect_refusal(&a, &b, &o, TT_LINK_OTHER_PURPOSE);
    o = good;
    o.job = 8;
    expect_refusal(&a, &b, &o, TT_LINK_OTHER_JOB);
    o = good;
    o.to = id_of(3);
    expect_refusal(&a, &b, &o, TT_LINK_OTHER_PROCESS);
    o = good;
    o.token[0] = 0;
    expect_refusal(&a, &b, &o, TT_LINK_OTHER_TOKEN);
    o.n_rounds = 0; /* until the deadline, but such an answer stops it */
    o.stops_at = 1u << TT_LINK_OTHER_TOKEN;
    expect_refusal(&a, &b, &o, TT_LINK_OTHER_TOKEN);
    expect_link(&a, &b, false);
    close_side(&a);
    close_side(&b);
}

/* Of several ways the first that works is taken, and each tells how it
 * ended. */
static void test_ways(void **state)
{
    (void)state;
    side a, b, other;
    open_box(&a, 1);
    open_side(&b, 2);
    open_side(&other, 3);
    int shut = tt_link_bind(&(tt_addr){.u.v4 = {.sin_family = AF_INET},
                                       .len = sizeof(struct sockaddr_in)},
                            1);
    assert_true(shut >= 0);
    tt_link_way ways[3] = {way_to(&other, false), way_to(&other, false),
                           way_to(&b, false)};
    ways[1].to.u.v4.sin_port = htons(tt_sock_port(shut));
    close(shut); /* nobody listens there now */
    tt_link_dial_opts o = dial_opts(&a, &b, ways);
    o.n_ways = 3;
    tt_link_dial *d;
    tt_link_event out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    assert_int_equal(out.way, 2);
    assert_int_equal(tt_link_dial_outcome(d, 0).why, TT_LINK_OTHER_PROCESS);
    assert_int_equal(tt_link_dial_outcome(d, 1).why, TT_LINK_REFUSED);
    assert_int_equal(tt_link_dial_outcome(d, 1).err, ECONNREFUSED);
    tt_link_stream_close(&out.stream);
    tt_link_dial_end(d);
    /* Nothing but refusals: it gives up before its deadline. */
    o.n_ways = 2;
    o.give_up_ns = TT_NS_PER_S; /* by then it has tried both */
    uint64_t start = tt_now_ns();
    out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_FAILED);
    assert_true(tt_now_ns() - start < LONG_NS / 2);
    char tries[400];
    tt_link_tries(d, tries, sizeof(tries));
    assert_non_null(strstr(tries, "127.0.0.1:"));
    assert_non_null(strstr(tries, "(it is another process)"));
    assert_non_null(strstr(tries, "(Connection refused)"));
    tt_link_tries(d, tries, 140); /* room for one only */
    assert_non_null(strstr(tries, " and 1 more"));
    tt_link_dial_end(d);
    o.n_ways = 0;
    assert_int_equal(tt_link_dial_begin(a.box, &o, &d, NULL), TUTTI_EINVAL);
    close_side(&a);
    close_side(&b);
    close_side(&other);
}

/* A way that is silent for longer than refusals are borne hides none behind it,
 * although it is but a guess. */
static void test_guesses(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    tt_addr any = way_to(&b, false).to;
    any.u.v4.sin_port = 0;
    int silent = tt_link_bind(&any, 8), shut = tt_link_bind(&any, 8);
    assert_true(silent >= 0 && shut >= 0);
    tt_link_way ways[3] = {way_to(&b, false), way_to(&b, false),
                           way_to(&b, false)};
    ways[0].to.u.v4.sin_port = htons(tt_sock_port(shut));
    ways[1].to.u.v4.sin_port = htons(tt_sock_port(silent));
    ways[1].is_guess = true;
    close(shut);
    tt_link_dial_opts o = dial_opts(&a, &b, ways);
    o.n_ways = 3;
    o.answer_ns = 500 * TT_NS_PER_MS;
    o.give_up_ns = 100 * TT_NS_PER_MS;
    tt_link_dial *d;
    tt_link_event out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    assert_int_equal(out.way, 2);
    tt_link_stream_close(&out.stream);
    close(silent);
    close_side(&a);
    close_side(&b);
}

/* Somebody listens and never accepts; somebody answers something else. */
static void test_no_answer(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    tt_link_way way = way_to(&b, false);
    way.to.u.v4.sin_port = 0;
    int fd = tt_link_bind(&way.to, 8);
    assert_true(fd >= 0);
    way.to.u.v4.sin_port = htons(tt_sock_port(fd));
    tt_link_dial_opts o = dial_opts(&a, &b, &way);
    o.deadline_ns = in_ns(TT_NS_PER_S); /* by then it is connected */
    tt_link_dial *d;
    tt_link_event out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_FAILED);
    assert_int_equal(tt_link_dial_outcome(d, 0).why, TT_LINK_UNGREETED);
    tt_link_dial_end(d);
    /* The next one's patience grows: 1, 2, 4, 8 and 8 times as much. */
    o = dial_opts(&a, &b, &way);
    o.n_rounds = 5;
    o.try_ns = TT_NS_PER_MS;
    o.answer_ns = 60 * TT_NS_PER_MS;
    uint64_t begin = tt_now_ns();
    out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_FAILED);
    assert_true(tt_now_ns() - begin > (1 + 2 + 4 + 8 + 8) * o.answer_ns);
    tt_link_dial_end(d);
    o = dial_opts(&a, &b, &way);
    o.n_rounds = 1;
    assert_int_equal(tt_link_dial_begin(a.box, &o, &d, NULL), TUTTI_OK);
    int guests[7]; /* the first six are of the dials before */
    for (int i = 0; i < 7; i++) {
        assert_true(tt_sock_wait(fd, POLLIN, in_ns(LONG_NS)));
        guests[i] = accept(fd, NULL, NULL);
        assert_true(guests[i] >= 0);
    }
    assert_int_equal(write(guests[6], "SSH-2.0-", 8), 8);
    out = take(&a);
    for (int i = 0; i < 7; i++)
        close(guests[i]);
    assert_int_equal(out.kind, TT_LINK_FAILED);
    assert_int_equal(tt_link_dial_outcome(d, 0).why, TT_LINK_STRANGE);
    assert_int_equal(tt_link_dial_outcome(d, 0).err, 0);
    tt_link_dial_end(d);
    close(fd);
    close_side(&a);
    close_side(&b);
}

/* ------------------------------------------------------------- strangers -- */

static int knock(const side *to)
{
    tt_link_way way = way_to(to, false);
    int fd = tt_stranger_connect(&way.to, in_ns(LONG_NS));
    assert_true(fd >= 0);
    return fd;
}

static bool is_closed(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void await_closed(int fd)
{
    uint64_t until = in_ns(LONG_NS);
    while (!is_closed(fd)) {
        assert_true(tt_now_ns() < until);
        poll(NULL, 0, 2);
    }
}

/* 300 that say nothing, some dealing out a right greeting byte by byte: ours
 * come through, and who came first has gone. */
static void test_silent_guests(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    int fds[300];
    const tt_greet_word hello = {.magic = TT_GREET_MAGIC,
                                 .version_min = 1,
                                 .version_max = 1,
                                 .kind = TT_GREET_HELLO};
    for (int i = 0; i < 300; i++) {
        fds[i] = knock(&b);
        if (i % 3 == 0)
            assert_int_equal(send(fds[i], &hello, (size_t)i % 128, 0), i % 128);
    }
    expect_link(&a, &b, false);
    await_closed(fds[0]);
    await_closed(fds[1]);
    assert_false(is_closed(fds[299]));
    for (int i = 0; i < 300; i++)
        close(fds[i]);
    close_side(&a);
    close_side(&b);
}

/* The owner hears a guest, and takes what it has brought, while the thread
 * wakes up to do so. */
static void test_settle(void **state)
{
    (void)state;
    side b;
    open_side(&b, 2);
    tt_greet_word hello = {.magic = TT_GREET_MAGIC,
                           .version_min = 1,
                           .version_max = 1,
                           .kind = TT_GREET_HELLO,
                           .purpose = TT_LINK_TCP,
                           .flags = TT_GREET_ONE_WAY,
                           .job = 7,
                           .from = id_of(1)};
    memset(hello.token, 0x5a, sizeof(hello.token));
    for (int i = 0; i < 2000; i++) {
        tt_link_event in = {.stream.fd = -1};
        int fd = knock(&b);
        tt_link_box_settle(b.box); /* now it is one of those who are heard */
        assert_int_equal(send(fd, &hello, sizeof(hello), 0), sizeof(hello));
        assert_int_equal(send(fd, "abc", 3, 0), 3);
        while (!tt_link_box_take(b.box, &in))
            tt_link_box_settle(b.box);
        char got[4] = "";
        assert_int_equal(recv(in.stream.fd, got, 3, MSG_WAITALL), 3);
        assert_string_equal(got, "abc");
        tt_link_stream_close(&in.stream);
        close(fd);
    }
    close_side(&b);
}

/* Who says again what somebody has said is not taken for him: the last word
 * repeats what the listener has just told. */
static void test_said_again(void **state)
{
    (void)state;
    side b;
    open_side(&b, 2);
    tt_greet_word words[2] = {{.magic = TT_GREET_MAGIC,
                               .version_min = 1,
                               .version_max = 1,
                               .kind = TT_GREET_HELLO,
                               .purpose = TT_LINK_TCP,
                               .job = 7,
                               .nonce = 99,
                               .from = id_of(1)}};
    memset(words[0].token, 0x5a, sizeof(words[0].token));
    tt_greet_word reply;
    tt_link_event in;
    for (int i = 0; i < 3; i++) {
        int fd = knock(&b);
        char c;
        assert_int_equal(send(fd, &words[0], sizeof(reply), 0), sizeof(reply));
        assert_int_equal(
            tt_stranger_read_all(fd, &reply, sizeof(reply), in_ns(LONG_NS)), 0);
        assert_int_equal(reply.kind, TT_GREET_REPLY);
        if (i == 0) { /* it is who it says; what it says is seen */
            words[1] = words[0];
            words[1].kind = TT_GREET_TAKEN;
            memset(words[1].token, 0, sizeof(words[1].token));
            memcpy(words[1].said, reply.said, sizeof(reply.said));
        }
        assert_int_equal(send(fd, &words[1], sizeof(reply), 0), sizeof(reply));
        if (i == 0) {
            assert_true(tt_link_box_wait(b.box, in_ns(LONG_NS)));
            assert_true(tt_link_box_take(b.box, &in));
            tt_link_stream_close(&in.stream);
        }
        assert_int_not_equal(tt_stranger_read_all(fd, &c, 1, in_ns(LONG_NS)),
                             ETIMEDOUT);
        assert_false(tt_link_box_take(b.box, &in));
        close(fd);
    }
    close_side(&b);
}

/* What one of many strangers does. */
static void act_strange(int fd, int how, tt_greet_word *hello)
{
    char rubbish[300];
    memset(rubbish, how, sizeof(rubbish));
    if (how % 5 == 1)
        send(fd, rubbish, sizeof(rubbish), MSG_NOSIGNAL);
    else if (how % 5 == 2)
        send(fd, hello, 100, MSG_NOSIGNAL);
    else if (how % 5 == 3) /* right, but for the job */
        send(fd, hello, sizeof(*hello), MSG_NOSIGNAL);
    else if (how % 5 == 4)
        send(fd, hello, 3, MSG_NOSIGNAL);
}

/* In a process of its own: 10^4 connections, some hundreds at a time. */
static void flood(const side *b, int n)
{
    enum { AT_ONCE = 400 };
    int fds[AT_ONCE];
    tt_link_way way = way_to(b, false);
    tt_greet_word hello = {.magic = TT_GREET_MAGIC,
                           .version_min = 1,
                           .version_max = 1,
                           .kind = TT_GREET_HELLO,
                           .purpose = TT_LINK_TCP,
                           .job = 1234};
    for (int i = 0; i < n; i++) {
        int *fd = &fds[i % AT_ONCE];
        if (i >= AT_ONCE && *fd >= 0)
            close(*fd);
        *fd = tt_stranger_connect(&way.to, in_ns(LONG_NS));
        if (*fd >= 0)
            act_strange(*fd, i, &hello);
    }
}

static void test_flood(void **state)
{
    (void)state;
    side a, b;
    open_side(&b, 2);
    open_box(&a, 1);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            flood(&b, 5000);
            _exit(0);
        }
    }
    int n_links = 0, status, n_left = 2;
    while (n_left > 0) {
        expect_link(&a, &b, false);
        n_links++;
        while (n_left > 0 && waitpid(pids[n_left - 1], &status, WNOHANG) > 0) {
            assert_int_equal(status, 0);
            n_left--;
        }
    }
    tt_link_refusal r;
    uint64_t n_strangers = 0;
    assert_true(tt_link_listener_refusal(b.listener, &r, &n_strangers) > 0);
    assert_int_equal(r.why, TT_LINK_OTHER_JOB);
    assert_true(n_strangers > 0);
    print_message("%d links were made meanwhile\n", n_links);
    expect_link(&a, &b, false);
    close_side(&a);
    close_side(&b);
}

/* A process with few descriptors, all taken by strangers: ours comes in. */
static void test_no_descriptors(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit few = {40, 40};
        side b;
        open_side(&b, 2);
        setrlimit(RLIMIT_NOFILE, &few);
        ssize_t n = write(ready[1], &b.card, sizeof(b.card));
        uint16_t port = tt_link_listener_port(b.listener, 0);
        n += write(ready[1], &port, sizeof(port));
        tt_link_event in = take(&b);
        /* Until the test has read its word it must stay. */
        char c = 0;
        n += write(in.stream.fd, "!", 1);
        tt_stranger_read_all(in.stream.fd, &c, 1, in_ns(LONG_NS));
        _exit(n > 0 && c == '?' ? 0 : 1);
    }
    side a, b = {.id = id_of(2)};
    uint16_t port = 0;
    assert_int_equal(read(ready[0], &b.card, sizeof(b.card)), sizeof(b.card));
    assert_int_equal(read(ready[0], &port, sizeof(port)), sizeof(port));
    open_box(&a, 1);
    tt_link_way way;
    memset(&way, 0, sizeof(way));
    tt_addr_numeric("127.0.0.1", port, &way.to);
    int fds[60];
    for (int i = 0; i < 60; i++) {
        fds[i] = tt_stranger_connect(&way.to, in_ns(LONG_NS));
        assert_true(fds[i] >= 0);
    }
    tt_link_dial_opts o = dial_opts(&a, &b, &way);
    tt_link_dial *d;
    tt_link_event out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    char c = 0;
    assert_int_equal(tt_stranger_read_all(out.stream.fd, &c, 1, in_ns(LONG_NS)),
                     0);
    assert_int_equal(c, '!');
    assert_int_equal(write(out.stream.fd, "?", 1), 1);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (int i = 0; i < 60; i++)
        close(fds[i]);
    close(ready[0]);
    close(ready[1]);
    tt_link_stream_close(&out.stream);
    close_side(&a);
}

/* Until a byte comes the process has no descriptor, and no guest whose place it
 * could take. */
static void be_full(int tell, int hear)
{
    enum { MOST = 64 };
    int taken[MOST], n_taken = 0;
    side b;
    char c;
    open_side(&b, 2);
    const struct rlimit few = {MOST, MOST};
    setrlimit(RLIMIT_NOFILE, &few);
    while ((taken[n_taken] = dup(STDIN_FILENO)) >= 0)
        n_taken++;
    uint16_t port = tt_link_listener_port(b.listener, 0);
    ssize_t n = write(tell, &port, sizeof(port)) + read(hear, &c, 1);
    while (n_taken > 0)
        close(taken[--n_taken]);
    tt_link_event in = take(&b);
    n += write(in.stream.fd, "!", 1);
    _exit(n == 4 ? 0 : 1);
}

/* Who comes is sent away, by means of the spare descriptor, and need not
 * wait. */
static void test_nobody_to_send_away(void **state)
{
    (void)state;
    int up[2], down[2];
    assert_int_equal(pipe(up) + pipe(down), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(down[1]); /* it ends with the test */
        be_full(up[1], down[0]);
    }
    side a, b = {.id = id_of(2)};
    uint16_t port = 0;
    assert_int_equal(read(up[0], &port, sizeof(port)), sizeof(port));
    open_box(&a, 1);
    tt_link_way way;
    memset(&way, 0, sizeof(way));
    tt_addr_numeric("127.0.0.1", port, &way.to);
    for (int i = 0; i < 3; i++) {
        int fd = tt_stranger_connect(&way.to, in_ns(LONG_NS));
        assert_true(fd >= 0);
        await_closed(fd);
        close(fd);
    }
    assert_int_equal(write(down[1], "?", 1), 1);
    tt_link_dial_opts o = dial_opts(&a, &b, &way);
    tt_link_dial *d;
    tt_link_event out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    char c = 0;
    assert_int_equal(tt_stranger_read_all(out.stream.fd, &c, 1, in_ns(LONG_NS)),
                     0);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        close(up[i]);
        close(down[i]);
    }
    tt_link_stream_close(&out.stream);
    close_side(&a);
}

/* Stands in front of the C library's: no descriptor, not even the spare one; or
 * there is always one more who has come, and gone again. Negative: neither. */
static atomic_int n_refusals = -1, n_endless = -1;
static int (*real_accept4)(int, struct sockaddr *, socklen_t *, int);

__attribute__((visibility("default"))) int
accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    if (atomic_load(&n_endless) >= 0) {
        int ends[2];
        atomic_fetch_add(&n_endless, 1);
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
        close(ends[1]);
        return ends[0];
    }
    if (atomic_load(&n_refusals) < 0)
        return real_accept4(fd, from, len, flags);
    atomic_fetch_add(&n_refusals, 1);
    errno = EMFILE;
    return -1;
}

/* The thread does not run in circles meanwhile. */
static void test_deaf(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    atomic_store(&n_refusals, 0);
    int fd = knock(&b);
    poll(NULL, 0, 400);
    int n = atomic_exchange(&n_refusals, -1);
    assert_in_range(n, 1, 400 / 20 * 2 + 2); /* two tries each time */
    close(fd);
    expect_link(&a, &b, false);
    close_side(&a);
    close_side(&b);
}

/* ------------------------------------------------------------- both dial -- */

typedef struct end {
    tt_link_stream s;
    bool was_mine; /* this side has dialled */
} end;

/* Takes what comes until the dial has an outcome and there is a link. */
static end settle(const side *s)
{
    end e = {.s.fd = -1};
    bool is_over = false;
    while (e.s.fd < 0 || !is_over) {
        tt_link_event link = take(s);
        assert_int_not_equal(link.kind, TT_LINK_FAILED);
        is_over |= link.kind != TT_LINK_ARRIVED;
        if (link.stream.fd < 0)
            continue;
        assert_true(e.s.fd < 0); /* never two */
        e = (end){link.stream, link.kind == TT_LINK_DIALLED};
    }
    return e;
}

static void expect_one(const side *a, const side *b, end *x)
{
    end y = settle(b);
    *x = settle(a);
    tt_addr p = {.len = sizeof(p.u)}, q = {.len = sizeof(q.u)};
    getsockname(x->s.fd, &p.u.sa, &p.len);
    getpeername(y.s.fd, &q.u.sa, &q.len);
    assert_int_equal(p.u.v4.sin_port, q.u.v4.sin_port);
    assert_true(x->was_mine != y.was_mine);
    tt_link_event extra;
    assert_false(tt_link_box_take(a->box, &extra));
    assert_false(tt_link_box_take(b->box, &extra));
    expect_bytes(x->s, y.s);
}

static void test_both_dial(void **state)
{
    (void)state;
    side a, b;
    int n_mine = 0;
    tt_rng rng = {.state = 1};
    open_side(&a, 1);
    open_side(&b, 2);
    tt_link_way to_a = way_to(&a, false), to_b = way_to(&b, false);
    for (int i = 0; i < 300; i++) {
        tt_link_dial_opts x = dial_opts(&a, &b, &to_b);
        tt_link_dial_opts y = dial_opts(&b, &a, &to_a);
        tt_link_dial *d, *e;
        uint64_t lag_us = tt_rng_below(&rng, 4) ? tt_rng_below(&rng, 300) : 0;
        bool is_first = i % 2;
        tt_link_dial_begin(is_first ? a.box : b.box, is_first ? &x : &y,
                           is_first ? &d : &e, NULL);
        for (uint64_t t = tt_now_ns(); tt_now_ns() - t < lag_us * 1000;)
            continue;
        tt_link_dial_begin(is_first ? b.box : a.box, is_first ? &y : &x,
                           is_first ? &e : &d, NULL);
        end got;
        expect_one(&a, &b, &got);
        n_mine += got.was_mine;
        tt_link_dial_end(d);
        tt_link_dial_end(e);
    }
    print_message("the smaller one's dial stayed %d times\n", n_mine);
    close_side(&a);
    close_side(&b);
}

/* It returns although more come all the time. */
static void test_settle_ends(void **state)
{
    (void)state;
    side b;
    open_side(&b, 2);
    atomic_store(&n_endless, 0);
    tt_link_box_settle(b.box);
    int n = atomic_exchange(&n_endless, -1);
    assert_in_range(n, 4096, 4200); /* one queue */
    close_side(&b);
}

/* Reads HELLO of whoever dials fd and answers it; returns the connection. */
static int answer_one(int fd, tt_link_why why)
{
    tt_greet_word hello;
    tt_link_id self = id_of(2);
    assert_true(tt_sock_wait(fd, POLLIN, in_ns(LONG_NS)));
    int guest = accept(fd, NULL, NULL);
    assert_true(guest >= 0);
    assert_int_equal(
        tt_stranger_read_all(guest, &hello, sizeof(hello), in_ns(LONG_NS)), 0);
    tt_greet_word word = tt_greet_answer(&hello, why, &self, 1);
    assert_int_equal(send(guest, &word, sizeof(word), 0), sizeof(word));
    return guest;
}

/* Who hears that the other side's dial is under way, or that there is no room,
 * tries again and again: not at once, and however long it takes. */
static void test_come_again(void **state)
{
    (void)state;
    static const tt_link_why whys[] = {TT_LINK_CROSSED, TT_LINK_FULL};
    side a, b = {.id = id_of(2)};
    tt_link_way way;
    open_box(&a, 1);
    memset(&way, 0, sizeof(way));
    tt_addr_numeric("127.0.0.1", 0, &way.to);
    int fd = tt_link_bind(&way.to, 8);
    way.to.u.v4.sin_port = htons(tt_sock_port(fd));
    for (int i = 0; i < 2; i++) {
        tt_link_dial_opts o = dial_opts(&a, &b, &way);
        o.give_up_ns = TT_NS_PER_MS; /* it is no refusal */
        tt_link_dial *d;
        assert_int_equal(tt_link_dial_begin(a.box, &o, &d, NULL), TUTTI_OK);
        uint64_t start = tt_now_ns();
        for (int n = 0; n < 20; n++)
            close(answer_one(fd, whys[i]));
        assert_true(tt_now_ns() - start >= 150 * TT_NS_PER_MS);
        int guest = answer_one(fd, TT_LINK_WELL);
        tt_link_event out = take(&a);
        assert_int_equal(out.kind, TT_LINK_DIALLED);
        tt_link_dial_end(d);
        tt_link_stream_close(&out.stream);
        close(guest);
    }
    close(fd);
    close_side(&a);
}

/* What is between lets connections pass one way only: the greater one's dial is
 * let through when the smaller one's has failed. */
static void test_one_cannot_dial(void **state)
{
    (void)state;
    side a, b;
    open_side(&a, 1);
    open_side(&b, 2);
    for (int smaller = 0; smaller < 2; smaller++) {
        tt_link_way to_a = way_to(&a, false), to_b = way_to(&b, false);
        /* Nobody listens at port 1. */
        *(smaller ? &to_b.to.u.v4.sin_port : &to_a.to.u.v4.sin_port) = htons(1);
        tt_link_dial_opts x = dial_opts(&a, &b, &to_b);
        tt_link_dial_opts y = dial_opts(&b, &a, &to_a);
        tt_link_dial *d, *e;
        tt_link_dial_begin(a.box, &x, &d, NULL);
        tt_link_dial_begin(b.box, &y, &e, NULL);
        end got;
        expect_one(&a, &b, &got);
        assert_int_equal(got.was_mine, !smaller);
        tt_link_dial_end(d);
        tt_link_dial_end(e);
    }
    close_side(&a);
    close_side(&b);
}

/* ---------------------------------------------------------------- ending -- */

static void test_cancel(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    tt_link_way way = way_to(&b, false);
    tt_link_way silent = way;
    tt_addr any = way.to;
    any.u.v4.sin_port = 0;
    int fd = tt_link_bind(&any, 8);
    silent.to.u.v4.sin_port = htons(tt_sock_port(fd));
    tt_link_dial *d;
    for (int i = 0; i < 60; i++) {
        tt_link_dial_opts o = dial_opts(&a, &b, i % 2 ? &silent : &way);
        assert_int_equal(tt_link_dial_begin(a.box, &o, &d, NULL), TUTTI_OK);
        if (i % 3)
            poll(NULL, 0, i % 3);
        tt_link_dial_end(d);
    }
    tt_link_event link;
    assert_false(tt_link_box_take(a.box, &link));
    while (tt_link_box_take(b.box, &link))
        tt_link_stream_close(&link.stream);
    /* An arrival that nobody takes is closed with the listener. */
    tt_link_dial_opts o = dial_opts(&a, &b, &way);
    tt_link_event out = dial(&a, &o, &d);
    assert_int_equal(out.kind, TT_LINK_DIALLED);
    assert_true(tt_link_box_wait(b.box, in_ns(LONG_NS)));
    tt_link_listener_close(b.listener);
    await_closed(out.stream.fd);
    assert_false(tt_link_box_take(b.box, &link));
    assert_false(tt_link_box_wait(b.box, 0));
    /* And a guest in the middle of its greeting. */
    tt_link_listen_opts again = listen_opts(&b);
    listen_as(&b, &again);
    int guest = knock(&b);
    assert_int_equal(send(guest, "t", 1, 0), 1);
    tt_link_listener_close(b.listener);
    await_closed(guest);
    close(guest);
    close(fd);
    tt_link_stream_close(&out.stream);
    close_side(&a);
    close_side(&b);
}

/* A forked child keeps nothing. */
static void test_fork(void **state)
{
    (void)state;
    side a, b;
    open_box(&a, 1);
    open_side(&b, 2);
    tt_link_way way = way_to(&b, false);
    tt_link_dial_opts o = dial_opts(&a, &b, &way);
    tt_link_dial *d;
    tt_link_event out = dial(&a, &o, &d);
    tt_link_event in = take(&b);
    int guest = knock(&b);
    poll(NULL, 0, 20);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tt_fork_child();
        bool is_shut = fcntl(out.stream.fd, F_GETFD) < 0 &&
                       fcntl(in.stream.fd, F_GETFD) < 0;
        close(guest);
        close(STDIN_FILENO);
        for (int fd = 3; fd < 200; fd++) {
            int kind = 0;
            socklen_t len = sizeof(kind);
            is_shut &= getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &len) != 0;
        }
        _exit(is_shut ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(guest);
    expect_bytes(out.stream, in.stream);
    close_side(&a);
    close_side(&b);
}

/* ----------------------------------------------------------------- where -- */

static void test_where(void **state)
{
    (void)state;
    side s;
    open_box(&s, 1);
    tt_link_listen_opts o = listen_opts(&s);
    listen_as(&s, &o); /* all are here: loopback only */
    assert_int_equal(tt_link_listener_ears(s.listener), 1);
    assert_int_equal(s.card.n_places, 1);
    assert_int_equal(s.card.places[0].ip[0], 127);
    assert_int_equal(s.card.places[0].port,
                     tt_link_listener_port(s.listener, 0));
    tt_link_listener_close(s.listener);
    o.is_local = false;
    o.interfaces = "=lo"; /* that interface's addresses only */
    listen_as(&s, &o);
    for (int i = 0; i < s.card.n_places; i++)
        assert_int_equal(s.card.places[i].order, TT_IFACE_LOOPBACK);
    assert_true(s.card.n_places >= 1);
    tt_link_listener_close(s.listener);
    o.interfaces = "";
    listen_as(&s, &o); /* everywhere */
    assert_int_equal(tt_link_listener_ears(s.listener), 1);
    assert_true(s.card.n_places >= 1);
    uint16_t port = tt_link_listener_port(s.listener, 0);
    /* A range of one port that is taken. */
    tt_link_listener *other = NULL;
    tutti_diag diag;
    int why = 0;
    char range[16];
    snprintf(range, sizeof(range), "%u", port);
    o.ports = range;
    assert_int_equal(tt_link_listen(s.box, &o, &other, &why, &diag),
                     TUTTI_ESYS);
    assert_int_equal(why, EADDRINUSE);
    assert_non_null(strstr(diag.text, "TUTTI_PORT_RANGE"));
    o.ports = "7-x";
    assert_int_equal(tt_link_listen(s.box, &o, &other, &why, &diag),
                     TUTTI_ECONFIG);
    assert_non_null(strstr(diag.text, "TUTTI_PORT_RANGE is \"7-x\""));
    unsigned last = port + 20 < UINT16_MAX ? port + 20 : UINT16_MAX;
    snprintf(range, sizeof(range), "%u-%u", port, last);
    o.ports = range;
    assert_int_equal(tt_link_listen(s.box, &o, &other, &why, &diag), TUTTI_OK);
    assert_in_range(tt_link_listener_port(other, 0), port + 1, port + 20);
    o.interfaces = "=nosuch0";
    assert_int_equal(tt_link_listen(s.box, &o, &other, &why, &diag),
                     TUTTI_ECONFIG);
    assert_non_null(strstr(diag.text, "nosuch0"));
    close_side(&s);
}

static void test_card(void **state)
{
    (void)state;
    side s;
    open_side(&s, 1);
    tt_link_card back;
    unsigned char bytes[sizeof(back) + 8];
    size_t len = tt_link_card_bytes(&s.card), used = 0;
    memset(bytes, 0, sizeof(bytes));
    memcpy(bytes, &s.card, len);
    assert_true(tt_link_card_read(&back, bytes, len + 8, &used));
    assert_int_equal(used, len);
    assert_memory_equal(&back, &s.card, len);
    assert_true(tt_link_card_is_near(&back, &s.card));
    for (size_t cut = 0; cut < len; cut++)
        assert_false(tt_link_card_read(&back, bytes, cut, &used));
    bytes[2] = TT_LINK_PLACES + 1;
    assert_false(tt_link_card_read(&back, bytes, sizeof(bytes), &used));
    close_side(&s);
}

/* ---------------------------------------------------------------- memory -- */

/* A listener, a dial, a link; whatever fails, all is given back. Returns
 * whether it came through. */
static bool scenario(const tt_mem *mem, uint64_t wait_ns)
{
    side s = {.id = id_of(1)};
    tt_link_dial *d = NULL;
    int why;
    bool is_well = false;
    tt_link_listen_opts o = listen_opts(&s);
    if (tt_link_box_open(mem, &s.box, NULL) == TUTTI_OK &&
        tt_link_listen(s.box, &o, &s.listener, &why, NULL) == TUTTI_OK) {
        tt_link_way way = way_to(&s, false);
        tt_link_dial_opts call = dial_opts(&s, &s, &way);
        call.to = (tt_link_id){{0}};
        call.n_rounds = 2;
        call.deadline_ns = in_ns(wait_ns);
        tt_link_event link;
        if (tt_link_dial_begin(s.box, &call, &d, NULL) == TUTTI_OK)
            for (int n = 0; n < 2 && tt_link_box_wait(s.box, in_ns(wait_ns));
                 n++) {
                tt_link_box_take(s.box, &link);
                is_well = link.kind == TT_LINK_ARRIVED;
                n += link.kind == TT_LINK_FAILED;
                tt_link_stream_close(&link.stream);
            }
    }
    tt_link_box_close(s.box);
    return is_well;
}

static void test_no_memory(void **state)
{
    (void)state;
    tt_test_mem m;
    bool is_well = false;
    for (uint64_t k = 1; !is_well && k < 50; k++) {
        tt_mem mem = tt_test_mem_init(&m, k);
        scenario(&mem, LONG_NS);
        is_well = m.n_failed == 0;
        assert_true(tt_test_mem_is_clean(&m));
    }
    assert_true(is_well);
}

/* The same where everybody has to prove who he is. */
static int have_trust(void **state)
{
    (void)state;
    static const uint8_t secret[] = "0123456789abcdef0123456789abcdef";
    const tt_trust_opts o = {.secret = secret, .n_secret = sizeof(secret) - 1};
    tutti_diag diag;
    tutti_err err = tt_trust_open(&o, &trust, &diag);
    if (err)
        printf("# %s\n", diag.text);
    return err;
}

static int drop_trust(void **state)
{
    (void)state;
    tt_trust_close(trust);
    trust = NULL;
    return 0;
}

#if TT_HAVE_OPENSSL
#define SEALED(test)                                         \
    {                                                        \
#test ", sealed", test, have_trust, drop_trust, NULL \
    }
#else
#define SEALED(test) cmocka_unit_test(test)
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_meet),
        cmocka_unit_test(test_v6),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_packets),
        cmocka_unit_test(test_one_way),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_silent_guests),
        cmocka_unit_test(test_settle),
        cmocka_unit_test(test_said_again),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_nobody_to_send_away),
        cmocka_unit_test(test_deaf),
        cmocka_unit_test(test_settle_ends),
        cmocka_unit_test(test_both_dial),
        cmocka_unit_test(test_come_again),
        cmocka_unit_test(test_one_cannot_dial),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_card),
        cmocka_unit_test(test_no_memory),
        SEALED(test_meet),
        SEALED(test_v6),
        SEALED(test_ways),
        SEALED(test_both_dial),
        SEALED(test_one_cannot_dial),
        SEALED(test_no_memory),
    };
    tt_test_limit(120);
    *(void **)(&real_accept4) = dlsym(RTLD_NEXT, "accept4");
    return TT_RUN_TAP(tests);
}
