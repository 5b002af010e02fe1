/* SPDX-License-Identifier: BSD-3-Clause
 * card_test.c - what a controller and workers say of how workers are connected
 * to, with one side made by hand, which may say what it should not: cards that
 * make no sense end the connection, and whoever is in a group with a worker was
 * told its card before, once for each of its lives; who comes back hears what
 * it has missed, and what it says again counts once. Whoever's process has
 * ended is dead at once, and nobody else is. */
#include "support/tap.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "partial/control.h"
#include "partial/partial.h"
#include "support/stranger.h"
#include "tutti.h"

static tt_link_box *box;

static uint64_t soon(void)
{
    return tt_now_ns() + 20 * TT_NS_PER_S;
}

/* What is too long for anybody is only begun. */
static void say(int fd, tt_talk head, const void *payload)
{
    unsigned char bytes[4096];
    const size_t room = sizeof(bytes) - sizeof(head);
    const size_t len = head.len < room ? head.len : 0;
    memcpy(bytes, &head, sizeof(head));
    if (len > 0)
        memcpy(bytes + sizeof(head), payload, len);
    assert_int_equal(
        tt_stranger_write_all(fd, bytes, sizeof(head) + len, soon()), 0);
}

static tt_talk hear(int fd, unsigned char payload[4096])
{
    tt_talk head;
    assert_int_equal(tt_stranger_read_all(fd, &head, sizeof(head), soon()), 0);
    assert_true(tt_talk_is_sound(&head, 4095));
    if (head.len > 0)
        assert_int_equal(tt_stranger_read_all(fd, payload, head.len, soon()),
                         0);
    payload[head.len] = '\0';
    return head;
}

/* ------------------------------------------------------- workers by hand -- */

static tt_controller *open_as(tt_controller_opts *o)
{
    tt_controller *c;
    tt_addr at;
    o->rule.group_size = o->rule.n;
    o->rule.start_wait_ns = o->rule.max_wait_ns = 20 * TT_NS_PER_S;
    o->listen = &at;
    assert_true(tt_addr_numeric("127.0.0.1", 0, &at));
    assert_int_equal(tt_controller_open(o, &tt_mem_std, &c, NULL), 0);
    return c;
}

static tt_controller *open_controller(uint32_t n, uint64_t token)
{
    return open_as(&(tt_controller_opts){.rule = {.n = n}, .token = token});
}

/* The outcome of a worker's dial, which says this. */
static tt_link_event dial_as(const tt_controller *c, const tt_join *j,
                             uint64_t token, tt_link_why *why)
{
    tt_link_way way = {.cost = 0};
    tt_link_dial *d;
    tt_link_event e = {.stream.fd = -1};
    tt_link_dial_opts o = {.purpose = TT_LINK_CONTROLLER,
                           .job = token,
                           .n_rounds = 1,
                           .ways = &way,
                           .n_ways = 1,
                           .deadline_ns = soon()};
    assert_true(tt_addr_numeric("127.0.0.1", tt_controller_port(c), &way.to));
    memcpy(o.said, j, sizeof(*j));
    assert_int_equal(tt_link_dial_begin(box, &o, &d, NULL), 0);
    assert_true(tt_link_box_wait(box, soon()) && tt_link_box_take(box, &e));
    *why = tt_link_dial_outcome(d, 0).why;
    tt_link_dial_end(d);
    return e;
}

static tt_link_event dial(const tt_controller *c, uint32_t who, uint64_t token,
                          tt_link_why *why)
{
    const tt_join j = {.who = who, .host = 7, .n_cpus = 1 + who};
    return dial_as(c, &j, token, why);
}

/* Its number is `who`. */
static int join(const tt_controller *c, uint32_t who)
{
    unsigned char payload[4096];
    tt_link_why why;
    tt_link_event e = dial(c, who, 0, &why);
    assert_int_equal(e.kind, TT_LINK_DIALLED);
    tt_talk head = hear(e.stream.fd, payload);
    assert_int_equal(head.kind, TT_TALK_WELCOME);
    assert_int_equal(head.who, who);
    return e.stream.fd;
}

typedef struct a_card {
    tt_card card;
    unsigned char addresses[2 * TT_NET_ADDR_MAX + 8];
} a_card;

static a_card card_of(uint8_t life, uint32_t max_payload)
{
    a_card a = {.card = {.id = {{life}},
                         .max_payload = max_payload,
                         .lens = {20, TT_NET_ADDR_MAX}}};
    memset(a.addresses, life, sizeof(a.addresses));
    return a;
}

static void say_card(int fd, const a_card *a, size_t len)
{
    say(fd, tt_talk_head(TT_TALK_CARD, 0, len), a);
}

static const size_t card_bytes = sizeof(tt_card) + 20 + TT_NET_ADDR_MAX;

static void expect_refusal_by(int fd, const char *sentence)
{
    unsigned char payload[4096];
    tt_talk head = hear(fd, payload);
    assert_int_equal(head.kind, TT_TALK_REFUSE);
    assert_non_null(strstr((const char *)payload, sentence));
    tt_fork_close(&fd);
}

static void expect_refusal(int fd)
{
    expect_refusal_by(fd, "cannot make sense");
}

static void test_controller_refuses_nonsense(void **state)
{
    (void)state;
    const a_card right = card_of(1, 65536);
    tt_controller *c = open_controller(8, 0);
    a_card wrong;
    uint32_t who = 0;
    int fd = join(c, who++);
    say(fd, tt_talk_head(TT_TALK_ANNOUNCE, 1, 0), NULL); /* without a card */
    expect_refusal(fd);
    const size_t lens[] = {0, sizeof(tt_card) - 1, sizeof(tt_card),
                           card_bytes - 1, card_bytes + 1};
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        fd = join(c, who);
        say_card(fd, &right, lens[i]);
        expect_refusal(fd);
        who = 1 + who % 6;
    }
    for (int what = 0; what < 4; what++) {
        wrong = right;
        size_t len = card_bytes;
        if (what == 0)
            wrong.card.id = (tt_link_id){{0}};
        else if (what == 1)
            wrong.card.max_payload = TT_CARD_LEAST_PAYLOAD - 1;
        else if (what == 2)
            len += ++wrong.card.lens[1] > 0;
        else
            wrong.card.lens[0] = UINT16_MAX;
        fd = join(c, 7);
        say_card(fd, &wrong, len);
        expect_refusal(fd);
    }
    fd = join(c, 7);
    say_card(fd, &right, card_bytes);
    say(fd, tt_talk_head(TT_TALK_ANNOUNCE, UINT64_C(1) << 63, 0), NULL);
    expect_refusal_by(fd, "worker 7 announces iteration 9223372036854775808");
    tt_controller_close(c);
}

/* A group of all comes, with cards before it of those that `cards` has a bit
 * for. */
static void expect_group(int fd, uint32_t me, uint32_t cards,
                         const a_card *of[2], uint32_t max_payload)
{
    unsigned char payload[4096];
    uint32_t had = 0;
    tt_talk head = hear(fd, payload);
    if (head.kind == TT_TALK_PRINTS) { /* of the group before, as a newcomer */
        assert_int_equal(head.flags, TT_TALK_NONE);
        head = hear(fd, payload);
    }
    for (; head.kind == TT_TALK_CARD; head = hear(fd, payload)) {
        assert_true(head.who < 2 && head.who != me);
        assert_int_equal(head.len, card_bytes);
        assert_memory_equal(payload, of[head.who], card_bytes);
        had |= 1u << head.who;
    }
    assert_int_equal(had, cards);
    assert_int_equal(head.kind, TT_TALK_GROUP);
    tt_group_head group;
    tt_seat seat;
    assert_int_equal(head.len, sizeof(group) + 2 * sizeof(seat));
    memcpy(&group, payload, sizeof(group));
    memcpy(&seat, payload + sizeof(group) + sizeof(seat), sizeof(seat));
    assert_int_equal(group.n, 2);
    assert_int_equal(group.me, me);
    assert_int_equal(group.n_cpus, 1);
    assert_int_equal(group.max_payload, max_payload);
    assert_int_equal(seat.worker, 1);
    assert_int_equal(seat.host, 7);
    say(fd, tt_talk_head(TT_TALK_DONE, head.number, 0), NULL);
}

static void test_cards_are_told_once(void **state)
{
    (void)state;
    const a_card first = card_of(1, 65536);
    const a_card second = card_of(2, 4096);
    const a_card third = card_of(3, 131072);
    const a_card *of[2] = {&first, &second};
    tt_controller *c = open_controller(2, 0);
    int fd[2] = {join(c, 0), join(c, 1)};
    say_card(fd[0], &first, card_bytes);
    say_card(fd[1], &second, card_bytes);
    for (uint64_t step = 1; step <= 5; step++) {
        if (step == 3) { /* worker 1 is started again */
            tt_fork_close(&fd[1]);
            usleep(20000);
            fd[1] = join(c, 1);
            of[1] = &third;
            say_card(fd[1], &third, card_bytes);
        }
        for (int i = 0; i < 2; i++)
            say(fd[i], tt_talk_head(TT_TALK_ANNOUNCE, step, 0), NULL);
        bool is_new = step == 1 || step == 3;
        for (uint32_t i = 0; i < 2; i++)
            expect_group(fd[i], i, is_new ? 2u >> i : 0, of,
                         step < 3 ? 4096 : 65536);
    }
    tt_fork_close(&fd[0]);
    tt_fork_close(&fd[1]);
    tt_controller_close(c);
}

/* Who does not know the token is not let in, and nobody is told it. */
static void test_token_is_asked_for(void **state)
{
    (void)state;
    const uint64_t token = UINT64_C(0x1122334455667788);
    const uint64_t wrong[] = {0, 1, token + 1};
    unsigned char payload[4096];
    tt_link_why why;
    tt_controller *c = open_controller(2, token);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(dial(c, 0, wrong[i], &why).kind, TT_LINK_FAILED);
        assert_int_equal(why, TT_LINK_OTHER_JOB);
    }
    tt_link_event e = dial(c, 0, token, &why);
    assert_int_equal(e.kind, TT_LINK_DIALLED);
    tt_talk head = hear(e.stream.fd, payload);
    assert_int_equal(head.kind, TT_TALK_WELCOME);
    assert_null(memmem(payload, head.len, &token, sizeof(token)));
    tt_link_stream_close(&e.stream);
    tt_controller_close(c);
}

/* Comes, or comes back, and says its card. */
static int come_with(const tt_controller *c, const tt_join *j, tt_welcome *out,
                     const a_card *card, size_t bytes)
{
    unsigned char payload[4096];
    tt_link_why why;
    tt_link_event e = dial_as(c, j, 0, &why);
    assert_int_equal(e.kind, TT_LINK_DIALLED);
    assert_int_equal(hear(e.stream.fd, payload).kind, TT_TALK_WELCOME);
    memcpy(out, payload, sizeof(*out));
    say_card(e.stream.fd, card, bytes);
    return e.stream.fd;
}

static int come(const tt_controller *c, const tt_join *j, tt_welcome *out)
{
    const a_card card = card_of(1 + (uint8_t)j->who, 4096);
    return come_with(c, j, out, &card, card_bytes);
}

static int come_back(const tt_controller *c, tt_join *j, int old,
                     tt_welcome *now)
{
    tt_fork_close(&old);
    j->flags = TT_TALK_AGAIN | TT_TALK_CURRENT;
    j->origin = now->origin;
    j->incarnation = now->incarnation;
    return come(c, j, now);
}

static void say_again(int fd, tt_talk_kind kind, uint64_t number)
{
    tt_talk head = tt_talk_head(kind, number, 0);
    head.flags = TT_TALK_AGAIN;
    say(fd, head, NULL);
}

static uint32_t n_cards; /* that expect() has heard last */

static uint64_t expect(int fd, tt_talk_kind kind)
{
    unsigned char payload[4096];
    tt_talk head = hear(fd, payload);
    for (n_cards = 0; head.kind == TT_TALK_CARD; n_cards++)
        head = hear(fd, payload);
    assert_int_equal(head.kind, kind);
    return head.number;
}

/* Worker 0 comes back in every state that it may be in; nobody says that a
 * group broke, and nobody is in one twice. */
static void test_who_comes_back(void **state)
{
    (void)state;
    tt_controller_opts o = {.rule = {.n = 2}, .reconnect_ns = 90 * TT_NS_PER_S};
    tt_controller *c = open_as(&o);
    tt_join j[2] = {{.who = 0, .host = 7}, {.who = 1, .host = 7}};
    tt_welcome w[2];
    int fd[2] = {come(c, &j[0], &w[0]), come(c, &j[1], &w[1])};
    /* It was not heard. */
    fd[0] = come_back(c, &j[0], fd[0], &w[0]);
    say_again(fd[0], TT_TALK_ANNOUNCE, 1);
    /* It was. */
    fd[0] = come_back(c, &j[0], fd[0], &w[0]);
    say_again(fd[0], TT_TALK_ANNOUNCE, 1);
    say(fd[1], tt_talk_head(TT_TALK_ANNOUNCE, 1, 0), NULL);
    assert_int_equal(expect(fd[1], TT_TALK_GROUP), 1);
    /* It has not heard of its group; and says again what led to it. */
    fd[0] = come_back(c, &j[0], fd[0], &w[0]);
    assert_int_equal(expect(fd[0], TT_TALK_GROUP), 1);
    assert_int_equal(n_cards, 1); /* which may have been lost, too */
    say_again(fd[0], TT_TALK_ANNOUNCE, 1);
    say(fd[0], tt_talk_head(TT_TALK_DONE, 1, 0), NULL);
    j[0].heard = 1;
    fd[0] = come_back(c, &j[0], fd[0], &w[0]);
    say_again(fd[0], TT_TALK_DONE, 1); /* perhaps again */
    say(fd[1], tt_talk_head(TT_TALK_DONE, 1, 0), NULL);
    say(fd[0], tt_talk_head(TT_TALK_ANNOUNCE, 2, 0), NULL);
    say(fd[1], tt_talk_head(TT_TALK_ANNOUNCE, 2, 0), NULL);
    assert_int_equal(expect(fd[0], TT_TALK_GROUP), 2);
    assert_int_equal(expect(fd[1], TT_TALK_GROUP), 2);
    /* The group breaks meanwhile. */
    tt_fork_close(&fd[0]);
    say(fd[1], tt_talk_head(TT_TALK_DONE, 2, 3), "why");
    say(fd[1], tt_talk_head(TT_TALK_BEAT, 0, 0), NULL);
    assert_int_equal(expect(fd[1], TT_TALK_BEAT), 0);
    j[0].heard = 2;
    fd[0] = come_back(c, &j[0], fd[0], &w[0]);
    assert_int_equal(expect(fd[0], TT_TALK_BROKEN), 2);
    assert_int_equal(w[0].incarnation, 1);
    tt_rule_metrics m;
    tt_controller_measure(c, &m);
    assert_int_equal(m.n_joins, 2);
    assert_int_equal(m.n_deaths, 0);
    tt_fork_close(&fd[0]);
    tt_fork_close(&fd[1]);
    tt_controller_close(c);
}

/* The others go on without it; then it has another life, and is no newcomer. */
static void test_who_comes_back_late(void **state)
{
    (void)state;
    tt_controller_opts o = {.rule = {.n = 2}, .reconnect_ns = TT_NS_PER_MS};
    tt_controller *c = open_as(&o);
    tt_join j[2] = {{.who = 0, .host = 7}, {.who = 1, .host = 7}};
    tt_welcome w[2];
    int fd[2] = {come(c, &j[0], &w[0]), come(c, &j[1], &w[1])};
    tt_rule_metrics m;
    for (uint64_t group = 1; group < 3; group++) {
        for (int i = 0; i < 2; i++)
            say_again(fd[i], TT_TALK_ANNOUNCE, group);
        assert_int_equal(expect(fd[0], TT_TALK_GROUP), group);
        assert_int_equal(expect(fd[1], TT_TALK_GROUP), group);
        say(fd[1], tt_talk_head(TT_TALK_DONE, group, 0), NULL);
        if (group == 2)
            break;
        tt_fork_close(&fd[0]);
        do { /* it has turns as often as it hears something */
            usleep(2000);
            say(fd[1], tt_talk_head(TT_TALK_BEAT, 0, 0), NULL);
            assert_int_equal(expect(fd[1], TT_TALK_BEAT), 0);
            tt_controller_measure(c, &m);
        } while (m.n_deaths == 0);
        j[0].heard = 1;
        fd[0] = come_back(c, &j[0], fd[0], &w[0]);
        assert_int_equal(w[0].incarnation, 2);
        assert_int_equal(w[0].is_newcomer, 0);
        say_again(fd[0], TT_TALK_DONE, 1); /* of its life before */
    }
    tt_fork_close(&fd[0]);
    tt_fork_close(&fd[1]);
    tt_controller_close(c);
}

/* A standby takes over in the middle of a group, of which only worker 1 has
 * heard. */
/* Nobody knows of the group yet, nor how to connect to the other one. */
static void expect_cards_later(const int fd[2])
{
    unsigned char payload[4096];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(expect(fd[i], TT_TALK_GROUP), 1);
        assert_int_equal(n_cards, 0);
    }
    for (int i = 0; i < 2; i++) {
        const a_card card = card_of(1 + (uint8_t)i, 4096);
        say_card(fd[i], &card, card_bytes);
        const tt_talk head = hear(fd[1 - i], payload);
        assert_int_equal(head.kind, TT_TALK_CARD);
        assert_int_equal(head.who, i);
        assert_int_equal(head.len, card_bytes);
    }
}

static void outlive_leader(bool has_heard)
{
    tt_controller_opts o = {.rule = {.n = 2}, .reconnect_ns = 90 * TT_NS_PER_S};
    tt_controller *c = open_as(&o), *standby;
    tt_addr at;
    tt_join j[2] = {{.who = 0, .host = 7}, {.who = 1, .host = 7}};
    tt_welcome w[2];
    tt_link_why why;
    unsigned char payload[4096];
    assert_true(tt_addr_numeric("127.0.0.1", tt_controller_port(c), &at));
    o.leader = &at;
    standby = open_as(&o);
    int fd[2] = {come(c, &j[0], &w[0]), come(c, &j[1], &w[1])};
    for (int i = 0; i < 2; i++)
        say(fd[i], tt_talk_head(TT_TALK_ANNOUNCE, 1, 0), NULL);
    for (int i = 0; i < 2; i++) {
        tt_talk head = hear(fd[i], payload);
        while (head.kind != TT_TALK_GROUP) /* where the standby is, too */
            head = hear(fd[i], payload);
        j[i].term = (uint32_t)head.term;
    }
    tt_controller_close(c);
    for (int i = 0; i < 2; i++) {
        tt_fork_close(&fd[i]);
        j[i].flags = TT_TALK_AGAIN | TT_TALK_CURRENT;
        j[i].origin = w[i].origin;
        j[i].incarnation = w[i].incarnation;
        j[i].heard = has_heard && i == 1;
        fd[i] = dial_as(standby, &j[i], 0, &why).stream.fd;
        assert_true(fd[i] >= 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(expect(fd[i], TT_TALK_WELCOME), 0);
    if (has_heard)
        assert_int_equal(expect(fd[0], TT_TALK_GROUP), 1);
    else
        expect_cards_later(fd);
    for (int i = 0; i < 2; i++)
        tt_fork_close(&fd[i]);
    tt_controller_close(standby);
}

static void test_group_outlives_its_leader(void **state)
{
    (void)state;
    outlive_leader(true);
    outlive_leader(false);
}

static void test_who_does_not(void **state)
{
    (void)state;
    tt_controller_opts o = {.rule = {.n = 2}, .reconnect_ns = 90 * TT_NS_PER_S};
    tt_controller *c = open_as(&o);
    tt_welcome w;
    tt_join j = {.who = 0, .host = 7};
    int fd = come(c, &j, &w);
    tt_link_why why;
    tt_join other = {.who = 0,
                     .host = 7,
                     .flags = TT_TALK_AGAIN,
                     .origin = w.origin + 1,
                     .incarnation = 1};
    expect_refusal_by(dial_as(c, &other, 0, &why).stream.fd,
                      "this is another controller");
    other.origin--;
    other.incarnation++;
    expect_refusal_by(dial_as(c, &other, 0, &why).stream.fd,
                      "another process is worker 0");
    other.who = 1;
    expect_refusal_by(dial_as(c, &other, 0, &why).stream.fd,
                      "another process has been worker 1 meanwhile");
    other.who = TT_NONE;
    expect_refusal_by(dial_as(c, &other, 0, &why).stream.fd,
                      "workers go from 0 to 1");
    tt_fork_close(&fd);
    tt_controller_close(c);
}

/* --------------------------------------- whether who is away still lives -- */

/* Two workers in a group, one of which listens. */
typedef struct pair {
    tt_controller *c;
    tt_join j[2];
    tt_welcome w[2];
    int fd[2], ear;
    tt_link_listener *listener;
} pair;

static void listen_as(pair *p, uint8_t id)
{
    tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_TCP),
                             .self = {{id}},
                             .has_token = true,
                             .token = {7},
                             .fd = p->ear};
    assert_int_equal(tt_link_listen(box, &o, &p->listener, NULL, NULL), 0);
}

static void stop_listening(pair *p)
{
    tt_link_listener_close(p->listener);
    p->listener = NULL;
}

static bool is_known(const tt_guest *g)
{
    return g->knock.is_known;
}

static bool is_asked(const tt_guest *g)
{
    return g->knock.next_ns > 0 && !g->knock.dial;
}

static bool is_found_there(const tt_guest *g)
{
    return g->away_ns > 0 && g->knock.next_ns > g->away_ns;
}

static bool is_away(const tt_guest *g)
{
    return g->away_ns > 0;
}

/* Waits until this is true of worker 0. */
static void await(tt_controller *c, bool (*is)(const tt_guest *g))
{
    const uint64_t until = tt_now_ns() + 200 * TT_NS_PER_S;
    for (bool is_it = false; !is_it; usleep(1000)) {
        pthread_mutex_lock(&c->lock);
        is_it = c->by_worker[0] && is(c->by_worker[0]);
        pthread_mutex_unlock(&c->lock);
        assert_true(tt_now_ns() < until);
    }
}

/* Worker 0 tells where it listens: at another port, or host, where that is
 * wrong. */
static a_card listening_card(const pair *p, bool is_port, bool is_host)
{
    tt_link_card link;
    tt_link_card_of(p->listener, &link);
    assert_true(link.n_places > 0);
    link.n_places = 1;
    link.places[0].port = is_port ? link.places[0].port : 1;
    link.places[0].ip[3] = is_host ? link.places[0].ip[3] : 2;
    a_card a = {.card = {.id = link.id, .max_payload = 4096}};
    a.card.lens[1] = (uint16_t)tt_link_card_bytes(&link);
    memcpy(a.addresses, &link, a.card.lens[1]);
    return a;
}

static void meet(pair *p, bool is_port, bool is_host)
{
    tt_controller_opts o = {.rule = {.n = 2},
                            .reconnect_ns = 900 * TT_NS_PER_S};
    tt_addr at;
    *p = (pair){.c = open_as(&o)};
    assert_true(tt_addr_numeric("127.0.0.1", 0, &at));
    p->ear = tt_link_bind(&at, 100);
    assert_true(p->ear > 0);
    listen_as(p, 1);
    const a_card card = listening_card(p, is_port, is_host);
    for (uint32_t i = 0; i < 2; i++)
        p->j[i] = (tt_join){.who = i, .host = 7};
    p->fd[0] = come_with(p->c, &p->j[0], &p->w[0], &card,
                         sizeof(card.card) + card.card.lens[1]);
    p->fd[1] = come(p->c, &p->j[1], &p->w[1]);
    for (int i = 0; i < 2; i++)
        say_again(p->fd[i], TT_TALK_ANNOUNCE, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(expect(p->fd[i], TT_TALK_GROUP), 1);
    p->j[0].heard = 1;
}

static void part(pair *p, uint64_t n_deaths)
{
    tt_rule_metrics m;
    tt_controller_measure(p->c, &m);
    assert_int_equal(m.n_deaths, n_deaths);
    stop_listening(p);
    for (int i = 0; i < 2; i++)
        if (p->fd[i] >= 0)
            tt_fork_close(&p->fd[i]);
    if (p->ear >= 0)
        close(p->ear);
    tt_controller_close(p->c);
}

/* Their group is as it was. */
static void expect_return(pair *p)
{
    p->fd[0] = come_back(p->c, &p->j[0], p->fd[0], &p->w[0]);
    unsigned char payload[4096];
    assert_int_equal(p->w[0].incarnation, 1);
    /* It listens elsewhere now. */
    assert_int_equal(hear(p->fd[1], payload).kind, TT_TALK_CARD);
    say(p->fd[1], tt_talk_head(TT_TALK_BEAT, 0, 0), NULL);
    assert_int_equal(expect(p->fd[1], TT_TALK_BEAT), 0);
}

static void test_killed_is_dead(void **state)
{
    (void)state;
    pair p;
    for (int is_other = 0; is_other < 2; is_other++) {
        meet(&p, true, true);
        await(p.c, is_known);
        stop_listening(&p);
        if (is_other)
            listen_as(&p, 2);
        else
            close(p.ear);
        p.ear = is_other ? p.ear : -1;
        tt_fork_close(&p.fd[0]);
        assert_int_equal(expect(p.fd[1], TT_TALK_BROKEN), 1);
        part(&p, 1);
    }
}

/* It lives, but does not come back; and then it does not. */
static void test_killed_while_away(void **state)
{
    (void)state;
    pair p;
    meet(&p, true, true);
    await(p.c, is_known);
    tt_fork_close(&p.fd[0]);
    await(p.c, is_found_there);
    say(p.fd[1], tt_talk_head(TT_TALK_BEAT, 0, 0), NULL);
    assert_int_equal(expect(p.fd[1], TT_TALK_BEAT), 0);
    stop_listening(&p);
    close(p.ear);
    p.ear = -1;
    assert_int_equal(expect(p.fd[1], TT_TALK_BROKEN), 1);
    part(&p, 1);
}

static void test_frozen_is_not_dead(void **state)
{
    (void)state;
    pair p;
    meet(&p, true, true);
    await(p.c, is_known);
    stop_listening(&p); /* the system still takes connections */
    tt_fork_close(&p.fd[0]);
    await(p.c, tt_knock_is_frozen);
    expect_return(&p);
    part(&p, 0);
}

/* A refusal tells nothing where nobody has ever answered. */
static void test_unknown_is_not_dead(void **state)
{
    (void)state;
    pair p;
    meet(&p, false, true);
    await(p.c, is_asked);
    tt_fork_close(&p.fd[0]);
    await(p.c, is_away);
    expect_return(&p);
    part(&p, 0);
    meet(&p, true, false); /* it has come from elsewhere */
    tt_fork_close(&p.fd[0]);
    await(p.c, is_away);
    pthread_mutex_lock(&p.c->lock);
    assert_int_equal(p.c->by_worker[0]->knock.at.len, 0);
    pthread_mutex_unlock(&p.c->lock);
    expect_return(&p);
    part(&p, 0);
}

/* -------------------------------------------------- a controller by hand -- */

typedef struct lie {
    tt_talk head;
    const void *payload;
} lie;

static void *control(void *arg)
{
    const lie *l = arg;
    unsigned char payload[4096];
    tt_link_event e;
    if (!tt_link_box_wait(box, soon()) || !tt_link_box_take(box, &e))
        return NULL;
    const tt_welcome welcome = {.origin = 1,
                                .host = tt_place_host(),
                                .n = 3,
                                .most = 3,
                                .incarnation = 1};
    tt_talk head = tt_talk_head(TT_TALK_WELCOME, 0, sizeof(welcome));
    say(e.stream.fd, head, &welcome);
    assert_int_equal(hear(e.stream.fd, payload).kind, TT_TALK_CARD);
    assert_int_equal(hear(e.stream.fd, payload).kind, TT_TALK_ANNOUNCE);
    say(e.stream.fd, l->head, l->payload);
    tt_stranger_read_all(e.stream.fd, payload, 1,
                         soon()); /* until it has gone */
    tt_link_stream_close(&e.stream);
    return NULL;
}

static void expect_loss(uint16_t port, tt_talk head, const void *payload,
                        tutti_err err, const char *says)
{
    char where[32];
    lie l = {head, payload};
    pthread_t thread;
    tutti_partial *p;
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    assert_int_equal(pthread_create(&thread, NULL, control, &l), 0);
    if (tutti_partial_join(where, 0, NULL, &p))
        fail_msg("%s", tutti_last_message());
    assert_int_equal(tutti_partial_announce(p, 1, false, NULL, NULL), err);
    assert_non_null(strstr(tutti_partial_message(p), says));
    tutti_partial_close(p);
    pthread_join(thread, NULL);
}

static void test_worker_refuses_nonsense(void **state)
{
    (void)state;
    tt_link_listener *listener;
    tt_link_ear ear = {.dev = NULL};
    const tt_link_listen_opts o = {
        .purposes = TT_LINK_FOR(TT_LINK_CONTROLLER), .ears = &ear, .n_ears = 1};
    assert_true(tt_addr_numeric("127.0.0.1", 0, &ear.at));
    assert_int_equal(tt_link_listen(box, &o, &listener, NULL, NULL), 0);
    const uint16_t port = tt_link_listener_port(listener, 0);
    const a_card right = card_of(1, 65536);
    struct {
        tt_group_head head;
        tt_seat seats[2];
    } group = {.head = {.n = 2, .max_payload = TT_CARD_LEAST_PAYLOAD - 1},
               .seats = {{.worker = 0, .incarnation = 1}, {.worker = 1}}};
    tt_talk head = tt_talk_head(TT_TALK_CARD, 0, card_bytes);
    for (uint32_t who = 0; who < 4; who += 3) { /* itself; nobody */
        head.who = who;
        expect_loss(port, head, &right, TUTTI_EPROTO,
                    "tells a worker that cannot be");
    }
    head.who = 1;
    head.len--;
    expect_loss(port, head, &right, TUTTI_EPROTO,
                "tells a worker that cannot be");
    head = tt_talk_head(TT_TALK_GROUP, 1, sizeof(group));
    expect_loss(port, head, &group, TUTTI_EPROTO,
                "tells a group that cannot be");
    group.head.max_payload++;
    group.seats[1].worker = 0;
    expect_loss(port, head, &group, TUTTI_EPROTO,
                "tells a group that cannot be");
    head.len--;
    expect_loss(port, head, &group, TUTTI_EPROTO,
                "tells a group that cannot be");
    static const unsigned char much[TT_CARD_MOST + 1];
    head = tt_talk_head(TT_TALK_CARD, 0, TT_CARD_MOST + 1);
    expect_loss(port, head, much, TUTTI_EPROTO,
                "tells a worker that cannot be");
    head = tt_talk_head(TT_TALK_PRINTS, 1, sizeof(tt_print) - 1);
    expect_loss(port, head, much, TUTTI_EPROTO, "tells prints that cannot be");
    head = tt_talk_head(TT_TALK_PRINTS, 1, TT_PRINTS_MOST + 1);
    expect_loss(port, head, much, TUTTI_EPEER, "has gone");
    tt_link_listener_close(listener);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controller_refuses_nonsense),
        cmocka_unit_test(test_cards_are_told_once),
        cmocka_unit_test(test_token_is_asked_for),
        cmocka_unit_test(test_who_comes_back),
        cmocka_unit_test(test_who_comes_back_late),
        cmocka_unit_test(test_group_outlives_its_leader),
        cmocka_unit_test(test_who_does_not),
        cmocka_unit_test(test_killed_is_dead),
        cmocka_unit_test(test_killed_while_away),
        cmocka_unit_test(test_frozen_is_not_dead),
        cmocka_unit_test(test_unknown_is_not_dead),
        cmocka_unit_test(test_worker_refuses_nonsense),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, open_links, close_links);
}
