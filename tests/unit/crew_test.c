/* SPDX-License-Identifier: BSD-3-Clause
 * crew_test.c - a group that breaks ends every call that waits for it: of those
 * buffers that are not complete with what went wrong, of one that has become so
 * in the same turn well. What the engine says of ranks is told of workers. A
 * worker's card says how long messages may be that others pass on. */
#include "support/tap.h"

#include <string.h>
#include <sys/socket.h>

#include "partial/session.h"
#include "support/loop.h"
#include "support/rig.h"

typedef struct told {
    int n;
    tutti_err err;
} told;

static void take(void *arg, tutti_err err, bool is_locked)
{
    told *t = arg;
    t->n++;
    t->err = err;
    assert_false(is_locked);
}

static void test_break_ends_all(void **state)
{
    (void)state;
    static tt_worker w;
    told complete = {0, TUTTI_AGAIN};
    told half = {0, TUTTI_AGAIN};
    tt_job second = {.w = &w, .done = take, .arg = &half};
    tt_job first = {.w = &w,
                    .done = take,
                    .arg = &complete,
                    .next = &second,
                    .is_over = true};
    w.phase = TT_PHASE_GROUP;
    w.crew.id = 7;
    w.crew.jobs = &first;
    tt_crew_break(&w, TUTTI_EPEER, false, "worker 3 has died");
    assert_int_equal(complete.n, 1);
    assert_int_equal(complete.err, TUTTI_OK);
    assert_int_equal(half.n, 1);
    assert_int_equal(half.err, TUTTI_EPEER);
    tt_crew_break(&w, TUTTI_EPEER, false, "worker 3 has died");
    tt_crew_advance(&w);
    assert_int_equal(complete.n + half.n, 2);
}

/* The engine names ranks of the mesh, which are workers. */
static void test_sentences_name_workers(void **state)
{
    (void)state;
    static const struct {
        tutti_err err, is;
        const char *text, *says;
    } all[] = {
        {TUTTI_EPEER, TUTTI_EPEER, "rank 3 is lost: it closed it",
         "worker 3 is lost: it closed it"},
        {TUTTI_ENET, TUTTI_ENET, "rank 12 cannot reach ranks 1, 3",
         "worker 12 cannot reach workers 1, 3"},
        {TUTTI_EABORTED, TUTTI_EPEER, "crank 1 has rank, rank ", "has rank"},
        {TUTTI_EMISMATCH, TUTTI_EMISMATCH, "call 1: rank 0 called",
         "all members must reduce the same buffers"},
    };
    static const uint32_t members[2] = {0, 1};
    tt_rig rig;
    const tt_rig_opts opts = {.n = 2, .ops = &tt_net_loop, .mem = &tt_mem_std};
    assert_int_equal(tt_rig_create(&opts, &rig), 0);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        static tt_worker w;
        told half = {0, TUTTI_AGAIN};
        tt_job job = {.w = &w, .done = take, .arg = &half};
        const tt_group_opts group = {
            .origin = 5, .number = i + 1, .members = members, .n = 2};
        w = (tt_worker){.o.engine = rig.engines[0],
                        .mesh = rig.meshes[0],
                        .wake_fd = -1,
                        .pipe.s.fd = -1,
                        .phase = TT_PHASE_GROUP,
                        .crew = {.id = i + 1, .jobs = &job}};
        assert_int_equal(tt_group_create(w.mesh, &group, &w.crew.team), 0);
        tt_crew_fail(&w); /* it is well */
        assert_int_equal(w.crew.err, TUTTI_OK);
        tt_engine_lock(w.o.engine);
        tt_team_fail(w.crew.team, all[i].err, 1, all[i].text);
        tt_engine_unlock(w.o.engine);
        tt_crew_fail(&w);
        assert_int_equal(w.crew.err, all[i].is);
        assert_int_equal(half.err, all[i].is);
        if (!strstr(w.text, all[i].says))
            fail_msg("%s", w.text);
        w.crew.jobs = NULL;
        tt_crew_end(&w);
    }
    tt_rig_destroy(&rig);
}

/* Who was counted as dead says something before it has read why. */
static void test_last_words_are_heard(void **state)
{
    (void)state;
    static const char why[] = "this worker was silent";
    int fds[2];
    tt_pipe here;
    tt_pipe there;
    tt_talk head = tt_talk_head(TT_TALK_REFUSE, 0, sizeof(why));
    const unsigned char *payload;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    tt_pipe_open(&here, &tt_mem_std, (tt_link_stream){.fd = fds[0]});
    tt_pipe_open(&there, &tt_mem_std, (tt_link_stream){.fd = fds[1]});
    tt_pipe_put(&there, &head, why);
    assert_true(tt_pipe_flush(&there));
    tt_pipe_close(&there);
    tt_talk beat = tt_talk_head(TT_TALK_BEAT, 0, 0);
    tt_pipe_put(&here, &beat, NULL);
    assert_true(tt_pipe_flush(&here));
    tt_pipe_fill(&here);
    assert_true(tt_pipe_next(&here, sizeof(why), &head, &payload));
    assert_string_equal((const char *)payload, why);
    tt_pipe_fill(&here);
    assert_true(here.is_broken);
    tt_pipe_close(&here);
}

static size_t no_address(tt_net *net, void *buf, size_t size)
{
    (void)net;
    (void)buf;
    (void)size;
    return 0;
}

/* Rings are longer where there are few workers, messages between hosts not. */
static void test_card_bounds_messages(void **state)
{
    (void)state;
    static const tt_settings settings;
    static const tt_net_ops ops[TT_CARD_NETS] = {
        {.same_host = true, .address = no_address}, {.address = no_address}};
    tt_net nets[TT_CARD_NETS] = {
        {.ops = &ops[0], .settings = &settings, .max_payload = 256 << 10},
        {.ops = &ops[1], .settings = &settings, .max_payload = 4 << 20}};
    for (uint32_t n = 2; n <= 3; n++) {
        static tt_worker w;
        unsigned char bytes[TT_CARD_MOST];
        tt_card card;
        w = (tt_worker){.nets = {&nets[0], &nets[1]}, .n = n};
        assert_int_equal(tt_cards_write(&w, bytes), sizeof(card));
        memcpy(&card, bytes, sizeof(card));
        assert_int_equal(card.max_payload, n > 2 ? 64 << 10 : 256 << 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_break_ends_all),
        cmocka_unit_test(test_sentences_name_workers),
        cmocka_unit_test(test_last_words_are_heard),
        cmocka_unit_test(test_card_bounds_messages),
    };
    return TT_RUN_TAP(tests);
}
