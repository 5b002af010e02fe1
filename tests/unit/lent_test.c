/* SPDX-License-Identifier: BSD-3-Clause
 * lent_test.c - slices that lie with another worker of the host (partial/views.c):
 * the other worker is made by hand here, so it can lend what it should not. Whatever
 * it does, the worker under test averages the right numbers, or none. */
#include "support/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fdpass.h"
#include "base/fork.h"
#include "base/memfd.h"
#include "link/link.h"
#include "partial/talk.h"
#include "tutti.h"

enum { COUNT = 1 << 14, BYTES = 4 * COUNT, SEGMENT = 4 << 20, BOARD = 64 };
static const float mine = 1, others = 2;

/* What the other one does. */
typedef struct deed {
    const char *what;
    uint64_t board;              /* what it shows; 1 is the epoch */
    uint64_t board_at;           /* where it is said to be */
    uint64_t offset, len_more;   /* of what is lent, beside what is right */
    uint32_t segment;            /* that is said to hold it */
    bool has_no_fd, is_unsealed; /* its memory */
    bool is_refused;             /* "it cannot be read" is answered */
    uint32_t offers;             /* the number of its segment */
    bool lends_anyway;           /* what was refused */
    bool closes;                 /* as soon as it has said everything */
    const char *breaks;          /* the group, with this sentence */
} deed;

typedef struct other {
    const deed *d;
    uint64_t deadline;
    tt_link_box *box;
    int controller, tie;
    uint64_t group;
    unsigned char *base;
    int fd;
} other;

static void must(bool is_well, const char *what)
{
    if (!is_well)
        fail_msg("%s: %s", what, strerror(errno));
}

/* Who has broken the group may find that the worker under test has left it. */
static void say(const other *o, int fd, tt_talk head, const void *payload)
{
    unsigned char bytes[256];
    memcpy(bytes, &head, sizeof(head));
    if (head.len > 0)
        memcpy(bytes + sizeof(head), payload, head.len);
    int err = tt_sock_write_all(fd, bytes, sizeof(head) + head.len,
                                o->deadline);
    if (fd != o->tie || !o->d->breaks)
        must(err == 0, "say");
}

/* The next message and its payload; false: the connection has ended. */
static bool hear(const other *o, int fd, tt_talk *head, void *payload)
{
    if (tt_sock_read_all(fd, head, sizeof(*head), o->deadline) != 0)
        return false;
    must(tt_talk_is_sound(head, BYTES), "a message");
    return head->len == 0 ||
           tt_sock_read_all(fd, payload, head->len, o->deadline) == 0;
}

static tt_link_event await(other *o)
{
    tt_link_event e = {.fd = -1};
    must(tt_link_box_wait(o->box, o->deadline) && tt_link_box_take(o->box, &e),
         "nobody connects");
    return e;
}

/* Worker 0: the one under test has the greater number, and connects. */
static void join(other *o, uint16_t port)
{
    static unsigned char payload[BYTES];
    tt_join j = {.host = tt_place_host(),
                 .nest = tt_place_random(),
                 .port = 1, /* nobody connects there */
                 .n_cpus = 1};
    tt_link_way way = {.cost = 0};
    tt_link_ear ear = {.dev = NULL};
    uint8_t ip[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    tt_talk head;
    tt_link_dial *d;
    tt_link_listener *listener;
    const tt_link_listen_opts here = {
        .purposes = TT_LINK_FOR(TT_LINK_TIE), .ears = &ear, .n_ears = 1};
    tt_place_nest(j.nest, &ear.at);
    must(tt_link_box_open(&tt_mem_std, &o->box, NULL) == TUTTI_OK &&
             tt_link_listen(o->box, &here, &listener, NULL, NULL) == TUTTI_OK &&
             tt_place_addr(ip, port, 0, &way.to),
         "listen");
    tt_link_dial_opts call = {.purpose = TT_LINK_CONTROLLER,
                              .ways = &way,
                              .n_ways = 1,
                              .deadline_ns = o->deadline};
    memcpy(call.said, &j, sizeof(j));
    must(tt_link_dial_begin(o->box, &call, &d, NULL) == TUTTI_OK, "dial");
    o->controller = await(o).fd;
    tt_link_dial_end(d);
    must(hear(o, o->controller, &head, payload) &&
             head.kind == TT_TALK_WELCOME && head.who == 0,
         "welcome");
}

static void meet(other *o)
{
    static unsigned char payload[BYTES];
    tt_talk head = tt_talk_head(TT_TALK_ANNOUNCE, 1, 0);
    say(o, o->controller, head, NULL);
    do
        must(hear(o, o->controller, &head, payload), "a group");
    while (head.kind != TT_TALK_GROUP);
    o->group = head.number;
    tt_link_event e = await(o);
    must(e.kind == TT_LINK_ARRIVED && e.who.purpose == TT_LINK_TIE, "greeting");
    o->tie = e.fd;
}

static void make_memory(other *o)
{
    const deed *d = o->d;
    o->fd = d->is_unsealed ? memfd_create("lent", MFD_CLOEXEC)
                           : tt_memfd_create("lent", SEGMENT);
    must(o->fd >= 0 && ftruncate(o->fd, SEGMENT) == 0, "memory");
    o->base = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, o->fd, 0);
    must(o->base != MAP_FAILED, "map");
    memcpy(o->base + BOARD, &d->board, sizeof(d->board));
    for (size_t i = SEGMENT / 2 / sizeof(float); i < SEGMENT / sizeof(float);
         i++)
        memcpy(o->base + i * sizeof(float), &others, sizeof(others));
}

static void offer(const other *o)
{
    struct {
        tt_talk head;
        tt_reach reach;
    } m = {tt_talk_head(TT_TALK_REACH, 0, sizeof(tt_reach)),
           {.bytes = SEGMENT, .board = o->d->board_at}};
    m.head.who = o->d->offers;
    must(tt_fdpass_send(o->tie, &m, sizeof(m), &o->fd, !o->d->has_no_fd),
         "offer");
}

/* A slice like the one that has come: lent, or sent where it cannot be. */
static void give(const other *o, const tt_talk *like)
{
    static float slice[COUNT];
    const deed *d = o->d;
    tt_talk head = *like;
    head.number = o->group;
    if (d->is_refused && !d->lends_anyway) {
        for (int i = 0; i < COUNT; i++)
            slice[i] = others;
        unsigned char *bytes = o->base; /* not used for anything else then */
        memcpy(bytes, &head, sizeof(head));
        memcpy(bytes + sizeof(head), slice, head.len);
        must(tt_sock_write_all(o->tie, bytes, sizeof(head) + head.len,
                               o->deadline) == 0,
             "send");
        return;
    }
    const tt_ref ref = {.offset = SEGMENT / 2 + d->offset,
                        .len = like->len + d->len_more,
                        .epoch = 1,
                        .segment = d->segment};
    head.kind = TT_TALK_REF;
    head.len = sizeof(ref);
    say(o, o->tie, head, &ref);
}

/* Both halves are exchanged, as `ring` does it; what comes is answered likewise. */
static void exchange(const other *o)
{
    static unsigned char payload[BYTES];
    tt_talk head;
    int n_taken = 0;
    bool is_answered = false;
    tt_talk waiting[4];
    int n_waiting = 0;
    while (n_taken < 2 && hear(o, o->tie, &head, payload)) {
        if (head.kind == TT_TALK_BIND) {
            say(o, o->tie, head, payload); /* the same buffer */
            offer(o);
        } else if (head.kind == TT_TALK_REACHED) {
            assert_int_equal(head.flags & TT_TALK_CANNOT, o->d->is_refused);
            is_answered = true;
        } else if (head.kind == TT_TALK_REACH) {
            tt_talk no = tt_talk_head(TT_TALK_REACHED, 0, 0);
            no.who = head.who;
            no.flags = TT_TALK_CANNOT;
            say(o, o->tie, no, NULL);
        } else if (head.kind == TT_TALK_DATA) {
            must(n_waiting < 4, "too many slices");
            waiting[n_waiting++] = head;
        } else if (head.kind == TT_TALK_TAKEN) {
            n_taken++;
        }
        for (int i = 0; is_answered && i < n_waiting; i++)
            give(o, &waiting[i]);
        if (o->d->breaks && is_answered && n_waiting > 0)
            return;
        if (is_answered && o->d->is_refused)
            n_taken += n_waiting;
        n_waiting = is_answered ? 0 : n_waiting;
    }
}

/* All that it has to say, as `doubling` has it, and away. */
static void answer_and_close(other *o, const tt_talk *bind_head,
                             const void *bind, tt_talk like)
{
    say(o, o->tie, *bind_head, bind);
    offer(o);
    must(tt_sock_write_all(o->tie, &like, sizeof(like), o->deadline) == 0 &&
             tt_sock_write_all(o->tie, o->base + SEGMENT / 2, like.len,
                               o->deadline) == 0,
         "answer");
    tt_fork_close(&o->tie);
}

static void exchange_and_close(other *o)
{
    static unsigned char payload[BYTES];
    tt_talk head;
    tt_talk bind_head = {.len = 0};
    tt_bind bind = {.count = 0};
    while (hear(o, o->tie, &head, payload)) {
        if (head.kind == TT_TALK_BIND) {
            bind_head = head;
            memcpy(&bind, payload, sizeof(bind));
        } else if (head.kind == TT_TALK_DATA) {
            answer_and_close(o, &bind_head, &bind, head);
            return;
        }
    }
}

static void check(const other *o, tutti_partial *p, const float *x,
                  tutti_err err)
{
    const deed *d = o->d;
    if (d->breaks) {
        if (err != TUTTI_EPEER || !strstr(tutti_partial_message(p), d->breaks))
            fail_msg("%s: %s, %s", d->what, tutti_errname(err),
                     tutti_partial_message(p));
        for (int i = 0; i < COUNT; i++)
            assert_float_equal(x[i], mine, 0);
        return;
    }
    if (err)
        fail_msg("%s: %s", d->what, tutti_partial_message(p));
    /* One half is averaged here, the other one is the other's word. */
    for (int i = 0; i < COUNT; i++)
        if (x[i] != others && x[i] != (mine + others) / 2)
            fail_msg("%s: %g", d->what, (double)x[i]);
}

static void perform(const deed *d)
{
    static float x[COUNT];
    char where[32];
    tutti_controller *c;
    tutti_partial *p;
    tutti_request *req[3];
    tutti_partial_opts opts = TUTTI_PARTIAL_OPTS_INIT;
    other o = {.d = d, .deadline = tt_now_ns() + 30 * TT_NS_PER_S, .tie = -1};
    opts.planner = d->closes ? "doubling" : "ring";
    opts.end_wait_s = 0.001;
    opts.liveness_s = 60; /* the one made by hand does not beat */
    must(tutti_controller_open("127.0.0.1:0", 2, &opts, &c) == TUTTI_OK,
         tutti_last_message());
    snprintf(where, sizeof(where), "127.0.0.1:%u", tutti_controller_port(c));
    join(&o, tutti_controller_port(c));
    must(tutti_partial_join(where, 1, &opts, &p) == TUTTI_OK,
         tutti_last_message());
    make_memory(&o);
    for (int i = 0; i < COUNT; i++)
        x[i] = mine;
    must(!tutti_partial_announce(p, 1, false, NULL, &req[0]) &&
             !tutti_partial_reduce(p, x, COUNT, TUTTI_F32, NULL, &req[1]) &&
             !tutti_partial_commit(p, NULL, &req[2]),
         "hand in");
    meet(&o);
    if (d->closes)
        exchange_and_close(&o);
    else
        exchange(&o);
    tutti_err err = TUTTI_OK;
    for (int i = 0; i < 3; i++)
        err = tutti_wait(req[i]);
    check(&o, p, x, err);
    tutti_partial_close(p);
    tt_fork_close(&o.tie);
    tt_fork_close(&o.controller);
    tt_link_box_close(o.box);
    close(o.fd);
    munmap(o.base, SEGMENT);
    tutti_controller_close(c);
}

static void test_is_read(void **state)
{
    (void)state;
    perform(&(deed){.what = "sound", .board = 1, .board_at = BOARD});
}

/* Its owner had taken it back before it was read. */
static void test_is_stale(void **state)
{
    (void)state;
    perform(&(deed){.what = "stale",
                    .board = 2,
                    .board_at = BOARD,
                    .breaks = "worker 0 has ended it before worker 1"});
}

static void test_lies_nowhere(void **state)
{
    (void)state;
    static const deed all[] = {
        {"behind the end", 1, BOARD, .offset = SEGMENT / 2,
         .breaks = "makes no sense"},
        {"over the end", 1, BOARD, .offset = SEGMENT / 2 - 4,
         .breaks = "makes no sense"},
        {"before the beginning", 1, BOARD, .offset = -(uint64_t)SEGMENT,
         .breaks = "makes no sense"},
        {"another segment", 1, BOARD, .segment = 1, .breaks = "makes no sense"},
        {"no segment", 1, BOARD, .segment = 64, .breaks = "makes no sense"},
        {"too long", 1, BOARD, .len_more = 4, .breaks = "makes no sense"},
        {"empty", 1, BOARD, .len_more = -(uint64_t)BYTES / 2,
         .breaks = "makes no sense"},
        {"beyond the table", 1, BOARD, .offers = 64,
         .breaks = "makes no sense"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        perform(&all[i]);
}

/* Memory that is not to be trusted is not read; slices are sent. */
static void test_is_refused(void **state)
{
    (void)state;
    static const deed all[] = {
        {"no descriptor", 1, BOARD, .has_no_fd = true, .is_refused = true},
        {"it may shrink", 1, BOARD, .is_unsealed = true, .is_refused = true},
        {"no board", 1, SEGMENT, .is_refused = true},
        {"half a board", 1, SEGMENT - 4, .is_refused = true},
        {"an odd board", 1, BOARD + 4, .is_refused = true},
        {"no board, and lent", 1, SEGMENT, .is_refused = true,
         .lends_anyway = true, .breaks = "makes no sense"},
        {"an odd board, and lent", 1, BOARD + 4, .is_refused = true,
         .lends_anyway = true, .breaks = "makes no sense"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        perform(&all[i]);
}

/* Who answers it has nobody to answer to, and goes on reading. */
static void test_is_closed(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        perform(&(deed){
            .what = "closed", .board = 1, .board_at = BOARD, .closes = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_read),      cmocka_unit_test(test_is_stale),
        cmocka_unit_test(test_lies_nowhere), cmocka_unit_test(test_is_refused),
        cmocka_unit_test(test_is_closed),
    };
    return TT_RUN_TAP(tests);
}
