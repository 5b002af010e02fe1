/* SPDX-License-Identifier: BSD-3-Clause
 * standby_test.c - a controller and its standby, with the other sides made by
 * hand: a leader that tells what cannot be, a standby that answers and says
 * nothing, workers of which too few are left, or more than were foreseen,
 * strangers who know of a great term. */
#include "support/tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "partial/lead.h"
#include "partial/partial.h"
#include "partial/rule.h"
#include "support/stranger.h"
#include "tutti.h"

static tt_link_box *box;

static uint64_t soon(void)
{
    return tt_now_ns() + 40 * TT_NS_PER_S;
}

/* Whoever says it may be gone. */
static void say(int fd, tt_talk head, const void *payload)
{
    unsigned char bytes[4096];
    memcpy(bytes, &head, sizeof(head));
    if (head.len > 0)
        memcpy(bytes + sizeof(head), payload, head.len);
    tt_stranger_write_all(fd, bytes, sizeof(head) + head.len, soon());
}

/* kind 0: it has hung up. */
static tt_talk hear(int fd, unsigned char payload[4096])
{
    tt_talk head;
    if (tt_stranger_read_all(fd, &head, sizeof(head), soon()))
        return (tt_talk){.kind = 0};
    assert_true(tt_talk_is_sound(&head, 4095));
    if (head.len > 0)
        assert_int_equal(tt_stranger_read_all(fd, payload, head.len, soon()),
                         0);
    return head;
}

/* Up to one of this kind. */
static tt_talk expect(int fd, tt_talk_kind kind, unsigned char payload[4096])
{
    tt_talk head = hear(fd, payload);
    while (head.kind != kind && head.kind != 0)
        head = hear(fd, payload);
    assert_int_equal(head.kind, kind);
    return head;
}

/* Until it hangs up. */
static void expect_end(int fd)
{
    unsigned char payload[4096];
    while (hear(fd, payload).kind != 0)
        ;
    tt_fork_close(&fd);
}

static tt_controller *open_as(tt_controller_opts *o, const tt_mem *mem)
{
    tt_controller *c;
    tt_addr at;
    tutti_diag diag;
    o->rule.group_size = o->rule.n;
    o->rule.start_wait_ns = o->rule.max_wait_ns = 90 * TT_NS_PER_S;
    o->listen = &at;
    assert_true(tt_addr_numeric("127.0.0.1", 0, &at));
    if (tt_controller_open(o, mem, &c, &diag))
        fail_msg("%s", diag.text);
    return c;
}

static int dial(const tt_controller *c, const tt_join *j)
{
    tt_link_way way = {.cost = 0};
    tt_link_dial *d;
    tt_link_event e = {.stream.fd = -1};
    tt_link_dial_opts o = {.purpose = TT_LINK_CONTROLLER,
                           .n_rounds = 1,
                           .ways = &way,
                           .n_ways = 1,
                           .deadline_ns = soon()};
    assert_true(tt_addr_numeric("127.0.0.1", tt_controller_port(c), &way.to));
    memcpy(o.said, j, sizeof(*j));
    assert_int_equal(tt_link_dial_begin(box, &o, &d, NULL), 0);
    assert_true(tt_link_box_wait(box, soon()) && tt_link_box_take(box, &e));
    tt_link_dial_end(d);
    assert_int_equal(e.kind, TT_LINK_DIALLED);
    return e.stream.fd;
}

typedef struct hand {
    int fd;
    uint32_t who;
    uint64_t term;
    tt_welcome welcome;
} hand;

static hand come(const tt_controller *c, uint32_t who)
{
    unsigned char payload[4096];
    const tt_join j = {.who = who, .host = 7};
    hand h = {.fd = dial(c, &j)};
    const tt_talk head = expect(h.fd, TT_TALK_WELCOME, payload);
    h.term = head.term;
    h.who = head.who;
    memcpy(&h.welcome, payload, sizeof(h.welcome));
    return h;
}

/* A worker of the leader before comes to this one. */
static int come_again(const tt_controller *c, const hand *h, uint32_t who)
{
    const tt_join j = {.who = who,
                       .host = 7,
                       .flags = TT_TALK_AGAIN | TT_TALK_CURRENT,
                       .term = (uint32_t)h->term,
                       .incarnation = h->welcome.incarnation,
                       .origin = h->welcome.origin};
    return dial(c, &j);
}

/* A standby that has the whole table, and may have acknowledged it. */
static hand follow(const tt_controller *c, bool acks)
{
    unsigned char payload[4096];
    const tt_join j = {.who = TT_NONE, .flags = TT_TALK_STANDBY_JOINS};
    hand h = {.fd = dial(c, &j)};
    expect(h.fd, TT_TALK_FOLLOW, payload);
    tt_talk head;
    do {
        head = expect(h.fd, TT_TALK_RECORD, payload);
    } while (head.flags != TT_RECORD_WHOLE);
    h.term = head.term;
    if (acks)
        say(h.fd, tt_talk_head(TT_TALK_ACK, head.number, 0), NULL);
    return h;
}

static void expect_over(tt_controller *c, const char *why)
{
    char text[200];
    const uint64_t until = soon();
    while (!tt_controller_is_over(c, text, sizeof(text)) && tt_now_ns() < until)
        usleep(2000);
    if (!strstr(text, why))
        fail_msg("it says \"%s\"", text);
}

/* ---------------------------------------------------- a leader that lies -- */

typedef struct liar {
    uint32_t who;
    uint8_t kind;
    uint8_t first; /* of its first word; 0: as it should be */
} liar;

/* Somebody has come to follow, and is told how. */
static int take_standby(uint8_t kind)
{
    tt_link_event e;
    struct {
        tt_follow follow;
        char text[400];
    } told = {.follow = {.origin = 1, .index = 1, .n = 4}};
    tt_str text = {.mem = &tt_mem_std};
    const tt_rule_opts rule = {.n = 4, .group_size = 4};
    if (!tt_link_box_wait(box, soon()) || !tt_link_box_take(box, &e))
        return -1;
    tt_rule_opts_write(&rule, &text);
    memcpy(told.text, text.data, text.len);
    tt_talk head = tt_talk_head((tt_talk_kind)kind, 0,
                                sizeof(told.follow) + text.len);
    tt_str_free(&text);
    head.term = 8;
    say(e.stream.fd, head, &told);
    return e.stream.fd;
}

static void *lead(void *arg)
{
    const liar *l = arg;
    unsigned char payload[4096];
    const uint64_t life = 1;
    int fd = take_standby(l->first ? l->first : TT_TALK_FOLLOW);
    tt_talk head = tt_talk_head(TT_TALK_RECORD, 1, sizeof(life));
    head.term = 8;
    head.flags = l->kind;
    head.who = l->who;
    say(fd, head, &life);
    while (hear(fd, payload).kind != 0) /* until it is left alone */
        ;
    tt_fork_close(&fd);
    return NULL;
}

/* Its connection drops, and the standby comes again. */
static void *lead_twice(void *arg)
{
    unsigned char payload[4096];
    (void)arg;
    for (int i = 0; i < 2; i++) {
        int fd = take_standby(TT_TALK_FOLLOW);
        expect(fd, TT_TALK_CARD, payload);
        tt_fork_close(&fd);
    }
    return NULL;
}

static tt_link_listener *listen_as_leader(tt_addr *at)
{
    tt_link_listener *listener;
    tt_link_ear ear = {.dev = NULL};
    const tt_link_listen_opts o = {
        .purposes = TT_LINK_FOR(TT_LINK_CONTROLLER), .ears = &ear, .n_ears = 1};
    assert_true(tt_addr_numeric("127.0.0.1", 0, &ear.at));
    assert_int_equal(tt_link_listen(box, &o, &listener, NULL, NULL), 0);
    assert_true(
        tt_addr_numeric("127.0.0.1", tt_link_listener_port(listener, 0), at));
    return listener;
}

static void close_leader(tt_link_listener *listener)
{
    tt_link_event e;
    tt_link_listener_close(listener);
    while (tt_link_box_take(box, &e)) /* it has dialled again */
        if (e.kind == TT_LINK_ARRIVED)
            tt_link_stream_close(&e.stream);
}

/* Before the table is whole nothing is acknowledged, and a worker that cannot
 * be is found nevertheless. Who begins with another word is not followed at
 * all. */
static void test_records_that_cannot_be(void **state)
{
    (void)state;
    static const liar lies[] = {
        {4, TT_RECORD_JOIN, 0},          {TT_NONE, TT_RECORD_LEAVE, 0},
        {1u << 31, TT_RECORD_FORGET, 0}, {0, 0, 0},
        {0, TT_RECORD_WHOLE + 1, 0},     {0, 0, TT_TALK_WELCOME}};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        tt_controller *c = NULL;
        pthread_t thread;
        tt_addr at;
        liar l = lies[i];
        tt_link_listener *listener = listen_as_leader(&at);
        assert_int_equal(pthread_create(&thread, NULL, lead, &l), 0);
        tt_addr own;
        tt_controller_opts follower = {.leader = &at, .listen = &own};
        assert_true(tt_addr_numeric("127.0.0.1", 0, &own));
        tutti_diag diag;
        if (!l.first) {
            c = open_as(&follower, &tt_mem_std);
        } else {
            assert_int_equal(
                tt_controller_open(&follower, &tt_mem_std, &c, &diag),
                TUTTI_EBOOT);
            assert_non_null(strstr(diag.text, "takes no standby"));
        }
        pthread_join(thread, NULL); /* it has hung up */
        if (!l.first)
            tt_controller_close(c);
        close_leader(listener);
    }
}

/* In the same term: it leads on. */
static void test_follows_again(void **state)
{
    (void)state;
    pthread_t thread;
    tt_addr at;
    tt_link_listener *listener = listen_as_leader(&at);
    assert_int_equal(pthread_create(&thread, NULL, lead_twice, NULL), 0);
    tt_controller *c = open_as(&(tt_controller_opts){.leader = &at},
                               &tt_mem_std);
    pthread_join(thread, NULL);
    tt_controller_close(c);
    close_leader(listener);
}

/* ----------------------------------------------- a leader without copies -- */

static void test_term_of_a_stranger(void **state)
{
    (void)state;
    tt_controller_opts o = {.rule = {.n = 4},
                            .reconnect_ns = 900 * TT_NS_PER_S};
    tt_controller *c = open_as(&o, &tt_mem_std);
    char text[200];
    hand w = come(c, 0);
    hand s = follow(c, true);
    tt_fork_close(&s.fd); /* no worker says that it knows the new term */
    unsigned char payload[4096];
    while (expect(w.fd, TT_TALK_STANDBY, payload).term == w.term)
        ;
    tt_join j = {.who = 0,
                 .host = 7,
                 .term = UINT32_MAX,
                 .incarnation = w.welcome.incarnation,
                 .origin = w.welcome.origin + 1};
    for (int i = 0; i < 5; i++) {
        j.flags = i == 1 || i == 2 || i == 4 ? TT_TALK_AGAIN : 0;
        if (i == 3)
            j.flags = TT_TALK_STANDBY_JOINS;
        if (i == 2) { /* of this job, but never here */
            j.origin--;
            j.incarnation++;
        } else if (i == 4) {
            j.who = 3;
            j.incarnation = 7;
        } else {
            j.origin = w.welcome.origin + 1;
        }
        expect_end(dial(c, &j));
        assert_false(tt_controller_is_over(c, text, sizeof(text)));
    }
    j = (tt_join){.who = TT_NONE,
                  .flags = TT_TALK_STANDBY_JOINS,
                  .term = 1000,
                  .origin = w.welcome.origin};
    expect_end(dial(c, &j));
    expect_over(c, "another controller leads these workers now");
    tt_fork_close(&w.fd);
    tt_controller_close(c);
}

/* A standby and half of the workers die together. */
static void test_too_few_are_left(void **state)
{
    (void)state;
    unsigned char payload[4096];
    tt_controller_opts o = {.rule = {.n = 2}, .liveness_ns = 3 * TT_NS_PER_S};
    tt_controller *c = open_as(&o, &tt_mem_std);
    hand w[2] = {come(c, 0), come(c, 1)};
    hand s = follow(c, true);
    char text[200];
    const uint64_t until = soon();
    tt_fork_close(&s.fd);
    tt_fork_close(&w[1].fd);
    /* The other one lives, and tells what it knows. */
    while (!tt_controller_is_over(c, text, sizeof(text)) &&
           tt_now_ns() < until) {
        tt_talk head = tt_talk_head(TT_TALK_BEAT, 0, 0);
        head.term = w[0].term;
        say(w[0].fd, head, NULL);
        head = hear(w[0].fd, payload);
        if (head.kind == 0)
            break;
        w[0].term = head.term;
        usleep(10000);
    }
    expect_over(c, "more than half are needed");
    tt_fork_close(&w[0].fd);
    tt_controller_close(c);
}

/* It acknowledges, again and again, what it has acknowledged. */
static void test_copy_that_does_not_grow(void **state)
{
    (void)state;
    unsigned char payload[4096];
    tt_controller_opts o = {.rule = {.n = 4}, .liveness_ns = 3 * TT_NS_PER_S};
    tt_controller *c = open_as(&o, &tt_mem_std);
    hand w[3] = {come(c, 0), come(c, 1), come(c, 2)};
    hand s = follow(c, true);
    const tt_join j = {.who = 3, .host = 7};
    const int fd = dial(c, &j);
    const uint64_t until = soon();
    const uint64_t term = s.term;
    while (w[0].term <= term && tt_now_ns() < until) {
        say(s.fd, tt_talk_head(TT_TALK_ACK, 3, 0), NULL);
        for (int i = 0; i < 3; i++) {
            tt_talk head = tt_talk_head(TT_TALK_BEAT, 0, 0);
            head.term = w[i].term;
            say(w[i].fd, head, NULL);
            head = hear(w[i].fd, payload);
            assert_int_not_equal(head.kind, 0);
            w[i].term = head.term;
        }
        usleep(10000);
    }
    assert_true(w[0].term > term);
    tt_fork_close(&s.fd);
    for (int i = 0; i < 3; i++)
        tt_fork_close(&w[i].fd);
    int end = fd;
    tt_fork_close(&end);
    tt_controller_close(c);
}

/* The standby has acknowledged the empty table, and is gone before any of the
 * workers that came meanwhile was let in. */
static void test_workers_that_nobody_has_acknowledged(void **state)
{
    (void)state;
    unsigned char payload[4096];
    tt_controller_opts o = {.rule = {.n = 3}, .liveness_ns = 3 * TT_NS_PER_S};
    tt_controller *c = open_as(&o, &tt_mem_std);
    hand s = follow(c, true);
    int fds[3];
    for (uint32_t i = 0; i < 3; i++) {
        const tt_join j = {.who = i, .host = 7};
        fds[i] = dial(c, &j);
        expect(s.fd, TT_TALK_RECORD, payload);
    }
    tt_fork_close(&s.fd);
    for (int i = 0; i < 3; i++) {
        expect(fds[i], TT_TALK_WELCOME, payload);
        tt_fork_close(&fds[i]);
    }
    tt_controller_close(c);
}

/* It asks whether the leader lives, more than once. */
static void test_beats(void **state)
{
    (void)state;
    unsigned char payload[4096];
    tt_controller_opts o = {.rule = {.n = 4}};
    tt_controller *c = open_as(&o, &tt_mem_std);
    hand s = follow(c, true);
    for (int i = 0; i < 3; i++) {
        tt_talk head = tt_talk_head(TT_TALK_BEAT, 0, 0);
        head.term = s.term;
        say(s.fd, head, NULL);
        expect(s.fd, TT_TALK_BEAT, payload);
    }
    tt_fork_close(&s.fd);
    tt_controller_close(c);
}

/* ----------------------------------------------------------- taking over -- */

/* Who came later counts as the others do, and may come with any number. */
static void test_more_workers_than_foreseen(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {0, 40, TT_NONE, TT_NONE, 7};
    enum { N = sizeof(numbers) / sizeof(numbers[0]) };
    unsigned char payload[4096];
    tt_controller_opts o = {.rule = {.n = 2, .most = 41}};
    tt_controller_opts p = {.rule = {.n = 2}};
    tt_controller *a = open_as(&o, &tt_mem_std);
    tt_addr at;
    assert_true(tt_addr_numeric("127.0.0.1", tt_controller_port(a), &at));
    p.leader = &at;
    tt_controller *b = open_as(&p, &tt_mem_std);
    hand w[N];
    for (int i = 0; i < N; i++)
        w[i] = come(a, numbers[i]);
    assert_int_equal(w[2].who, 1); /* of the start, then the first free one */
    assert_int_equal(w[3].who, 2);
    tt_join j = {.who = 41, .host = 7};
    int fd = dial(a, &j);
    expect(fd, TT_TALK_REFUSE, payload);
    assert_non_null(strstr((char *)payload, "workers go from 0 to 40"));
    tt_fork_close(&fd);
    tt_controller_close(a);
    int again[N];
    for (int i = 0; i < N; i++)
        again[i] = come_again(b, &w[i], w[i].who);
    for (int i = 0; i < N; i++) {
        tt_talk head = expect(again[i], TT_TALK_WELCOME, payload);
        tt_welcome welcome;
        memcpy(&welcome, payload, sizeof(welcome));
        assert_int_equal(head.who, w[i].who);
        assert_int_equal(welcome.incarnation, w[i].welcome.incarnation);
        tt_talk beat = tt_talk_head(TT_TALK_BEAT, 0, 0);
        beat.term = head.term;
        say(again[i], beat, NULL);
    }
    hand more = come(b, TT_NONE); /* 3: nobody has had it */
    assert_int_equal(more.who, 3);
    tt_fork_close(&more.fd);
    for (int i = 0; i < N; i++) {
        tt_fork_close(&w[i].fd);
        tt_fork_close(&again[i]);
    }
    tt_controller_close(b);
}

/* Two of three come to a standby; one of them by two connections, of which the
 * first ends. */
static void test_vote_of_two_connections(void **state)
{
    (void)state;
    unsigned char payload[4096];
    tt_controller_opts o = {.rule = {.n = 3}}, p = {.rule = {.n = 3}};
    tt_controller *a = open_as(&o, &tt_mem_std);
    tt_addr at;
    assert_true(tt_addr_numeric("127.0.0.1", tt_controller_port(a), &at));
    p.leader = &at;
    tt_controller *b = open_as(&p, &tt_mem_std);
    hand w[3] = {come(a, 0), come(a, 1), come(a, 2)};
    tt_controller_close(a);
    /* A new one, one from before that, one of other workers: not here. */
    const tt_join fresh = {.who = 0, .host = 7};
    hand before = w[0], foreign = w[0];
    before.welcome.incarnation--;
    foreign.welcome.origin++;
    expect_end(dial(b, &fresh));
    expect_end(come_again(b, &before, 0));
    expect_end(come_again(b, &foreign, 0));
    expect_end(come_again(b, &w[0], 3));
    const int old = come_again(b, &w[0], 0);
    int now = come_again(b, &w[0], 0);
    expect_end(old);
    int other = come_again(b, &w[1], 1);
    expect(now, TT_TALK_WELCOME, payload);
    expect(other, TT_TALK_WELCOME, payload);
    for (int i = 0; i < 3; i++)
        tt_fork_close(&w[i].fd);
    tt_fork_close(&now);
    tt_fork_close(&other);
    tt_controller_close(b);
}

/* Memory that has none of this size when it fails. */
static atomic_size_t first_size;
static atomic_bool fails;

static void *note_first(void *ctx, void *ptr, size_t old, size_t size)
{
    size_t none = 0;
    if (!ptr)
        atomic_compare_exchange_strong(&first_size, &none, size);
    if (!ptr && atomic_load(&fails) && size == atomic_load(&first_size))
        return NULL;
    return tt_mem_std.fn(ctx, ptr, old, size);
}

static void test_no_memory_to_take_over(void **state)
{
    (void)state;
    const tt_mem mem = {note_first, tt_mem_std.ctx};
    const tt_rule_opts opts = {.n = 1, .group_size = 1};
    const tt_rule_up up = {0};
    tt_rule *rule;
    assert_int_equal(tt_rule_create(&opts, &up, &mem, &rule, NULL), 0);
    tt_rule_free(rule);
    tt_controller_opts o = {.rule = {.n = 1}}, p = {.rule = {.n = 1}};
    tt_controller *a = open_as(&o, &tt_mem_std);
    tt_addr at;
    assert_true(tt_addr_numeric("127.0.0.1", tt_controller_port(a), &at));
    p.leader = &at;
    tt_controller *b = open_as(&p, &mem);
    hand w = come(a, 0);
    atomic_store(&fails, true);
    tt_controller_close(a);
    int fd = come_again(b, &w, 0);
    expect_over(b, "memory");
    expect_end(fd);
    tt_fork_close(&w.fd);
    tt_controller_close(b);
    atomic_store(&fails, false);
}

static int open_links(void **state)
{
    (void)state;
    return tt_link_box_open(&tt_mem_std, &box, NULL);
}

static int close_links(void **state)
{
    (void)state;
    tt_link_box_close(box);
    return 0;
}

int main(void)
{
    tt_test_limit(300);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_that_cannot_be),
        cmocka_unit_test(test_follows_again),
        cmocka_unit_test(test_term_of_a_stranger),
        cmocka_unit_test(test_too_few_are_left),
        cmocka_unit_test(test_copy_that_does_not_grow),
        cmocka_unit_test(test_workers_that_nobody_has_acknowledged),
        cmocka_unit_test(test_more_workers_than_foreseen),
        cmocka_unit_test(test_beats),
        cmocka_unit_test(test_vote_of_two_connections),
        cmocka_unit_test(test_no_memory_to_take_over),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, open_links, close_links);
}
