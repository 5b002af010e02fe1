/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_controller.c - a controller of partial reduce, and its workers as turns:
 * they come, announce, leave, die, lie and flood, while worker 0 does all as it
 * should. Properties: what the controller says makes sense; a group has members
 * in order, with weights that sum to 1; worker 0 is let in, gets groups only
 * when it has announced, one at a time, and is never sent away; a controller
 * can be closed at any time.
 *
 * Turns      Worker 0 sends a BEAT after each action, and waits for the answer.
 *            What was sent before has been heard by then.
 * Input      what the controller is like (see set_up()), then actions of two
 *            bytes; see act(). */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "partial/partial.h"
#include "support/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { WORKERS = 4, MOST = 16384, ACTIONS = 64, JOB = 5 };

typedef struct worker {
    int fd; /* -1: not here */
    bool is_welcome, has_announced, is_last, is_deaf, is_standby;
    uint32_t id; /* as it was told */
    uint64_t iteration, group, last_group;
    size_t used;
    unsigned char got[MOST];
} worker;

typedef struct stage {
    tt_fuzz_input in;
    tt_controller *c;
    tt_addr at;
    bool is_strict; /* nobody is sent away for its silence */
    uint64_t n_beats;
    worker all[WORKERS]; /* the first one is honest */
} stage;

static tt_link_box *box;

/* ----------------------------------------------------------------- hear -- */

static void hear_group(const stage *s, worker *w, const tt_talk *head,
                       const unsigned char *payload)
{
    tt_group_head g;
    double sum = 0;
    memcpy(&g, payload, sizeof(g));
    if (g.n == 0 || g.n > WORKERS || g.me >= g.n || head->number == 0 ||
        head->len != sizeof(g) + g.n * sizeof(tt_seat))
        tt_fuzz_fail("a group that cannot be");
    uint32_t before = 0;
    for (uint32_t i = 0; i < g.n; i++) {
        tt_seat seat;
        memcpy(&seat, payload + sizeof(g) + i * sizeof(seat), sizeof(seat));
        if (seat.worker >= WORKERS || (i > 0 && seat.worker <= before) ||
            !(seat.weight >= 0) || (i == g.me && seat.worker != w->id))
            tt_fuzz_fail("members that cannot be");
        before = seat.worker;
        sum += seat.weight;
    }
    if (fabs(sum - 1) > 1e-9)
        tt_fuzz_fail("weights that do not sum to 1");
    if (w == s->all && (!w->has_announced || w->group != 0))
        tt_fuzz_fail("a group for who has not announced");
    w->has_announced = false;
    w->group = w->last_group = head->number;
}

/* Of what a newcomer compares with. */
static void hear_prints(const worker *w, const tt_talk *head)
{
    bool is_none = head->flags & TT_TALK_NONE;
    if (head->who >= WORKERS || head->number != w->last_group ||
        head->number == 0 || head->len % sizeof(tt_print) != 0 ||
        (is_none && head->len > 0))
        tt_fuzz_fail("prints that cannot be");
}

/* What a standby is told; a worker hears only how one is connected to. */
static void hear_standby(const worker *w, const tt_talk *head,
                         const unsigned char *payload)
{
    tt_link_card card;
    size_t used = 0;
    bool is_card = head->kind == TT_TALK_STANDBY;
    if (!is_card && !w->is_standby)
        tt_fuzz_fail("a worker is told what is a standby's");
    if (head->kind == TT_TALK_FOLLOW && head->len <= sizeof(tt_follow))
        tt_fuzz_fail("an order to follow that cannot be");
    if (is_card && head->len > 0 &&
        (!tt_link_card_read(&card, payload, head->len, &used) ||
         used != head->len))
        tt_fuzz_fail("a card that cannot be");
}

static void hear_message(stage *s, worker *w, const tt_talk *head,
                         const unsigned char *payload)
{
    tt_welcome welcome;
    switch (head->kind) {
    case TT_TALK_WELCOME:
        memcpy(&welcome, payload, sizeof(welcome));
        if (w->is_welcome || head->who >= WORKERS ||
            head->len != sizeof(welcome) || welcome.n != WORKERS)
            tt_fuzz_fail("a welcome that cannot be");
        w->is_welcome = true;
        w->id = head->who;
        return;
    case TT_TALK_REFUSE:
        if (head->len == 0 || (w == s->all && s->is_strict))
            tt_fuzz_fail("who is honest is sent away");
        return;
    case TT_TALK_GROUP:
        hear_group(s, w, head, payload);
        return;
    case TT_TALK_BROKEN:
        /* It may cross with its DONE; and be said before the group is told,
         * which waits for a standby. */
        if (w == s->all && (s->is_strict ? head->number != w->last_group
                                         : head->number < w->last_group))
            tt_fuzz_fail("a group that is not its own breaks");
        return;
    case TT_TALK_CARD:
        if (!tt_card_is_sound(payload, head->len) || head->who >= WORKERS)
            tt_fuzz_fail("a card that cannot be");
        return;
    case TT_TALK_BEAT:
        s->n_beats += w == s->all;
        return;
    case TT_TALK_WAIT:
        if (head->len == 0 || (w == s->all && !w->has_announced))
            tt_fuzz_fail("who has not announced is told who it waits for");
        return;
    case TT_TALK_PRINTS:
        hear_prints(w, head);
        return;
    case TT_TALK_FOLLOW:
    case TT_TALK_RECORD:
    case TT_TALK_STANDBY:
        hear_standby(w, head, payload);
        return;
    default:
        tt_fuzz_fail("the controller makes no sense");
    }
}

/* What has come is whole messages, until it hangs up. */
static void hear(stage *s, worker *w)
{
    tt_talk head;
    ssize_t n = -1;
    while (w->fd >= 0 && !w->is_deaf &&
           (n = recv(w->fd, w->got + w->used, MOST - w->used, MSG_DONTWAIT)) >
               0) {
        size_t at = 0;
        w->used += (size_t)n;
        while (w->used - at >= sizeof(head)) {
            memcpy(&head, w->got + at, sizeof(head));
            if (!tt_talk_is_sound(&head, MOST - sizeof(head)))
                tt_fuzz_fail("the controller makes no sense");
            if (w->used - at < sizeof(head) + head.len)
                break;
            hear_message(s, w, &head, w->got + at + sizeof(head));
            at += sizeof(head) + head.len;
        }
        w->used -= at;
        memmove(w->got, w->got + at, w->used);
    }
    if (n == 0 && w == s->all && s->is_strict)
        tt_fuzz_fail("who is honest is sent away");
    if (n == 0)
        tt_fork_close(&w->fd);
}

/* ------------------------------------------------------------------ say -- */

static void say_bytes(worker *w, const void *bytes, size_t n)
{
    if (w->fd >= 0)
        (void)!send(w->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say(worker *w, const tt_talk *head, const void *payload)
{
    unsigned char out[MOST];
    memcpy(out, head, sizeof(*head));
    if (head->len > 0)
        memcpy(out + sizeof(*head), payload, head->len);
    say_bytes(w, out, sizeof(*head) + head->len);
}

static void say_short(worker *w, tt_talk_kind kind, uint64_t number)
{
    tt_talk head = tt_talk_head(kind, number, 0);
    say(w, &head, NULL);
}

static tt_card card_of(const worker *w)
{
    return (tt_card){.id = {{1, (uint8_t)w->id}}, .max_payload = 65536};
}

static void say_card(worker *w)
{
    const tt_card card = card_of(w);
    tt_talk head = tt_talk_head(TT_TALK_CARD, 0, sizeof(card));
    say(w, &head, &card);
}

static void announce(worker *w, bool is_last)
{
    if (w->has_announced || w->is_last || w->group != 0)
        return;
    tt_talk head = tt_talk_head(TT_TALK_ANNOUNCE, ++w->iteration, 0);
    head.flags = is_last ? TT_TALK_LAST : 0;
    w->is_last = is_last;
    w->has_announced = w->fd >= 0;
    say(w, &head, NULL);
}

static void end_group(worker *w, bool is_well, uint8_t arg)
{
    static const char why[] = "its buffer\nis another one";
    if (w->group == 0)
        return;
    tt_talk head = tt_talk_head(TT_TALK_DONE, w->group,
                                is_well ? 0 : sizeof(why));
    head.flags = !is_well && (arg & 1) ? TT_TALK_DIFFERS : 0;
    w->group = 0;
    say(w, &head, why);
}

/* A message as it should be, for its kind, but for what the input changes. */
static void lie(stage *s, worker *w, uint8_t kind)
{
    union {
        tt_card card;
        char text[64];
    } payload = {.card = card_of(w)};
    size_t len = kind == TT_TALK_CARD   ? sizeof(tt_card)
                 : kind == TT_TALK_DONE ? kind % sizeof(payload.text)
                                        : 0;
    tt_talk head = tt_talk_head((tt_talk_kind)kind, w->iteration, len);
    tt_fuzz_change(&s->in, &head, sizeof(head));
    tt_fuzz_change(&s->in, &payload, sizeof(payload));
    say_bytes(w, &head, sizeof(head));
    say_bytes(w, &payload, head.len < sizeof(payload) ? head.len : len);
}

static void flood(worker *w)
{
    w->is_deaf = true;
    for (int i = 0; i < 200; i++)
        say_short(w, TT_TALK_BEAT, 0);
}

/* ----------------------------------------------------------------- come -- */

/* arg & 128: the input changes what it says; 64: any number will do; 32: it
 * tells no card; 16: of another job. */
static void come(stage *s, worker *w, uint32_t number, uint8_t arg)
{
    const tt_link_way way = {.to = s->at};
    tt_link_dial *d;
    tt_link_event e;
    tt_join j = {.who = arg & 64 ? TT_NONE : number,
                 .host = 7,
                 .n_cpus = 2,
                 .n = WORKERS,
                 .site = arg & 3,
                 .flags = TT_TALK_CURRENT | (arg & 4 ? TT_TALK_AHEAD : 0)};
    tt_link_dial_opts o = {.purpose = TT_LINK_CONTROLLER,
                           .job = arg & 16 ? JOB + 1 : JOB,
                           .ways = &way,
                           .n_ways = 1,
                           .n_rounds = 1,
                           .deadline_ns = tt_now_ns() + 20 * TT_NS_PER_S};
    if (w->fd >= 0)
        return;
    if (arg & 128)
        tt_fuzz_change(&s->in, &j, sizeof(j));
    if (s->is_strict) /* nothing happens without its word */
        j.flags &= (uint16_t)~TT_TALK_STANDBY_JOINS;
    memcpy(o.said, &j, sizeof(j));
    if (tt_link_dial_begin(box, &o, &d, NULL))
        tt_fuzz_fail("no dial");
    while (!tt_link_box_take(box, &e))
        tt_link_box_wait(box, UINT64_MAX);
    tt_link_dial_end(d);
    if (e.kind == TT_LINK_DIALLED && (arg & 16))
        tt_fuzz_fail("a worker of another job is let in");
    *w = (worker){.fd = e.stream.fd,
                  .id = number,
                  .is_standby = j.flags & TT_TALK_STANDBY_JOINS};
    if (!(arg & 32))
        say_card(w);
}

/* ---------------------------------------------------------------- turns -- */

static void hear_all(stage *s)
{
    for (int i = 0; i < WORKERS; i++)
        hear(s, &s->all[i]);
}

static void turn(stage *s)
{
    worker *w = s->all;
    const uint64_t n = s->n_beats;
    uint32_t looks = 0; /* of a millisecond each, however busy the machine is */
    if (w->fd < 0)
        return;
    say_short(w, TT_TALK_BEAT, 0);
    while (w->fd >= 0 && s->n_beats == n) {
        struct pollfd p = {w->fd, POLLIN, 0};
        if (poll(&p, 1, 1) == 0) /* something else was said in its place */
            say_short(w, TT_TALK_BEAT, 0);
        hear(s, w);
        if (++looks > 20000)
            tt_fuzz_fail("who is honest is not heard");
    }
    hear_all(s);
}

/* What worker 0 does is right. */
static void act_honest(stage *s, uint8_t what)
{
    worker *w = s->all;
    if (what % 2)
        end_group(w, true, 0);
    else
        announce(w, false);
}

static void act_other(stage *s, worker *w, uint8_t what, uint8_t arg)
{
    unsigned char zeros[64] = {0};
    size_t n;
    switch (what) {
    case 0:
        come(s, w, (uint32_t)(w - s->all), arg);
        return;
    case 1:
        announce(w, arg & 1);
        return;
    case 2:
        end_group(w, true, arg);
        return;
    case 3:
        end_group(w, false, arg);
        return;
    case 4:
        say_card(w);
        return;
    case 5:
        say_short(w, TT_TALK_LEAVE, 0);
        return;
    case 6:
        tt_fork_close(&w->fd);
        return;
    case 7:
        say_short(w, (tt_talk_kind)arg, arg); /* of any kind */
        return;
    case 8:
        lie(s, w, arg);
        return;
    case 9:
        n = arg < s->in.len ? arg : s->in.len;
        say_bytes(w, s->in.data, n);
        s->in.data += n, s->in.len -= n;
        return;
    case 10:
        flood(w);
        return;
    case 11:
        say_bytes(w, zeros, arg % sizeof(zeros));
        return;
    default:
        w->is_deaf = false;
    }
}

/* Low two bits: who; the next four: what. */
static void act(stage *s, uint8_t what, uint8_t arg)
{
    worker *w = &s->all[what & 3];
    switch (what >> 2 & 15) {
    case 13:
        usleep(1200); /* waits are over */
        break;
    case 14:
        for (int i = 0; i < WORKERS; i++)
            announce(&s->all[i], arg & 1);
        break;
    case 15:
        for (int i = 0; i < WORKERS; i++)
            end_group(&s->all[i], true, arg);
        break;
    default:
        if (w == s->all)
            act_honest(s, what >> 2);
        else
            act_other(s, w, what >> 2 & 15, arg);
    }
    turn(s);
}

static void set_up(stage *s, uint8_t kind)
{
    const tt_controller_opts o = {
        .rule = {.n = WORKERS,
                 .group_size = kind & 1 ? 3 : 2,
                 .is_dynamic = kind & 2,
                 .recentre_every = kind & 4 ? 2 : 0,
                 .start_wait_ns = 1,
                 .soft_wait_ns = kind & 8 ? TT_NS_PER_MS / 4 : 0,
                 .end_wait_ns = TT_NS_PER_MS,
                 .join_wait_ns = TT_NS_PER_MS / 4,
                 .max_wait_ns = TT_NS_PER_MS},
        .is_local = true,
        .token = JOB,
        .liveness_ns = kind & 16 ? TT_NS_PER_MS : 0,
        .patience_ns = kind & 64 ? TT_NS_PER_MS / 4 : 0,
        .log = kind & 32 ? "/dev/full" : "/dev/null"};
    if (tt_controller_open(&o, &tt_mem_std, &s->c, NULL))
        tt_fuzz_fail("no controller");
    tt_controller_nest(s->c, &s->at);
    s->is_strict = !(kind & 16);
    for (int i = 0; i < WORKERS; i++)
        s->all[i].fd = -1;
    come(s, s->all, 0, 0);
    turn(s);
}

static void check_end(stage *s)
{
    tt_rule_metrics m;
    tt_controller_measure(s->c, &m);
    uint64_t n = 0;
    for (uint32_t i = 0; i <= WORKERS; i++)
        n += tt_controller_n_of_size(s->c, i);
    if (n < m.n_groups)
        tt_fuzz_fail("groups of impossible sizes");
    if (tt_controller_wait(s->c, 1) && s->all[0].fd >= 0 && s->is_strict)
        tt_fuzz_fail("all have gone, but one is here");
}

static void say_nothing(void *arg, tutti_log_level level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static stage s;
    if (len < 1)
        return 0;
    tutti_log_set(say_nothing, NULL); /* of the log that cannot be written */
    if (!box && tt_link_box_open(&tt_mem_std, &box, NULL))
        tt_fuzz_fail("no box");
    s = (stage){.in = {data + 1, len - 1}};
    set_up(&s, data[0]);
    for (int n = 0; s.in.len >= 2 && n < ACTIONS; n++) {
        uint8_t what = tt_fuzz_next(&s.in), arg = tt_fuzz_next(&s.in);
        act(&s, what, arg);
    }
    check_end(&s);
    if (len % 2)
        for (int i = 0; i < WORKERS; i++)
            tt_fork_close(&s.all[i].fd);
    tt_controller_close(s.c);
    for (int i = 0; i < WORKERS; i++)
        tt_fork_close(&s.all[i].fd);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    tt_fuzz_mutations = 500; /* each has threads */
    int rc = tt_fuzz_main(argc, argv, "tests/fuzz/corpus/controller",
                          LLVMFuzzerTestOneInput);
    tt_link_box_close(box);
    return rc;
}
#endif
