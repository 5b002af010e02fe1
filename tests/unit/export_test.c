/* SPDX-License-Identifier: BSD-3-Clause
 * export_test.c - the formats: JSON to the byte, the picture to the byte for
 * the ring of 3 and in 80 columns for all, the public functions around them.
 */
#include "support/tap.h"

#include "support/alloc.h"
#include "support/random_schedule.h"
#include "support/seed.h"

#include "export/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti_topology *open_net(const char *spec)
{
    tutti_topology *net = NULL;
    tutti_diag diag;
    if (tutti_topology_open(spec, &net, &diag))
        fail_msg("%s", diag.text);
    return net;
}

static tutti_schedule *plan(const char *spec, const char *planner,
                            tutti_coll coll)
{
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    opts.planner = planner;
    opts.collective = coll;
    opts.size_bytes = 1 << 20;
    tutti_schedule *s = NULL;
    tutti_diag diag;
    tutti_topology *net = open_net(spec);
    if (tutti_plan(net, &opts, &s, NULL, &diag))
        fail_msg("%s", diag.text);
    tutti_topology_free(net);
    return s;
}

static void exports(const tutti_schedule *s, const char *format,
                    const char *expected)
{
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(tutti_export(s, format, &text, &len, NULL), TUTTI_OK);
    assert_int_equal(strlen(text), len);
    assert_string_equal(text, expected);
    tutti_text_free(text);
}

static void test_json(void **state)
{
    (void)state;
    tutti_schedule *s = plan("full:2", "ring", TUTTI_ALL_REDUCE);
    exports(s, "json",
            "{\"collective\":\"all-reduce\",\"n_ranks\":2,\"root\":null,"
            "\"n_blocks\":1,\"n_parts\":2,\n \"chunks\":[\n  [0,0,1],\n"
            "  [0,1,2]],\n \"transfers\":[\n  [0,0,1,0,\"reduce\"],\n"
            "  [0,1,0,1,\"reduce\"],\n  [1,0,0,1,\"copy\"],\n"
            "  [1,1,1,0,\"copy\"]]}\n");
    tutti_schedule_free(s);
    static const char text[] = "tutti-schedule 1\ncollective scatter\nranks 2\n"
                               "root 1\nparts 1\nchunk 0 0 1\nchunk 1 0 1\n"
                               "transfer 0 0 1 0 copy 2\nend\n";
    assert_int_equal(tutti_schedule_read(text, strlen(text), &s, NULL), 0);
    exports(s, "json",
            "{\"collective\":\"scatter\",\"n_ranks\":2,\"root\":1,"
            "\"n_blocks\":2,\"n_parts\":1,\n \"chunks\":[\n  [0,0,1],\n"
            "  [1,0,1]],\n \"transfers\":[\n  [0,0,1,0,\"copy\",2]]}\n");
    exports(s, "schedule", text);
    tutti_schedule_free(s);
}

static void test_picture_of_ring(void **state)
{
    (void)state;
    tutti_schedule *s = plan("full:3", "ring", TUTTI_ALL_REDUCE);
    exports(
        s, "picture",
        "all-reduce on 3 ranks: 3 chunks, 4 steps, 12 transfers\n"
        "Each chunk is 1/3 of the vector.\n"
        "Id c4576bfc7115cca4.\n"
        "\n"
        "Who sends what. `3 +> 1` under a rank: it sends chunk 3 to rank 1, "
        "which adds it\n"
        "(+) to its own value; `=>`: it takes a copy.\n"
        "\n"
        "  step   rank 0   rank 1   rank 2\n"
        "     0   2 +> 1   0 +> 2   1 +> 0\n"
        "     1   1 +> 1   2 +> 2   0 +> 0\n"
        "     2   0 => 1   1 => 2   2 => 0\n"
        "     3   2 => 1   0 => 2   1 => 0\n"
        "\n"
        "Whose contributions ranks hold after each step, where that changes.\n"
        "\n"
        "  chunk 0   start      0      1      2      3\n"
        "  rank 0      0..           012\n"
        "  rank 1      .1.                  012\n"
        "  rank 2      ..2    .12                  012\n"
        "\n"
        "  chunk 1   start      0      1      2      3\n"
        "  rank 0      0..    0.2                  012\n"
        "  rank 1      .1.           012\n"
        "  rank 2      ..2                  012\n"
        "\n"
        "  chunk 2   start      0      1      2      3\n"
        "  rank 0      0..                  012\n"
        "  rank 1      .1.    01.                  012\n"
        "  rank 2      ..2           012\n");
    tutti_schedule_free(s);
}

/* The memory of a host with several ranks is no switch. */
static void test_network_of_hubs(void **state)
{
    (void)state;
    static const char text[] = "tutti-topology 1\nswitch s\nhost a b ranks=2\n"
                               "link a s 1Gbit\nlink b s 1Gbit\n";
    tutti_topology *net = NULL;
    tutti_topology_info info;
    tutti_diag diag;
    assert_int_equal(tutti_topology_parse(text, strlen(text), &net, &diag), 0);
    tutti_topology_describe(net, &info);
    assert_int_equal(info.n_ranks, 4);
    assert_int_equal(info.n_switches, 1);
    assert_int_equal(info.n_links, 12);
    tutti_topology_free(net);
}

/* Sizes of blocks are for all-gather and reduce-scatter; other collectives,
 * which have more or fewer blocks than ranks, do not look at them. */
static void test_block_bytes(void **state)
{
    (void)state;
    static const struct row {
        const char *planner;
        tutti_coll coll;
        uint64_t bytes;
    } rows[] = {
        {"direct", TUTTI_ALL_TO_ALL, 6 * 100},
        {"ring", TUTTI_ALL_REDUCE, 4 * 300},
        {"ring", TUTTI_ALL_GATHER, 2 * 7000},
    };
    uint64_t blocks[3] = {1000, 2000, 4000};
    tutti_topology *net = open_net("full:3");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tutti_plan_opts o = TUTTI_PLAN_OPTS_INIT;
        tutti_sim_opts sim = {
            .size = sizeof(sim), .size_bytes = 300, .block_bytes = blocks};
        tutti_schedule *s = NULL;
        tutti_sim_result r;
        tutti_diag diag;
        double with_s, without_s;
        o.planner = rows[i].planner;
        o.collective = rows[i].coll;
        o.size_bytes = sim.size_bytes;
        o.block_bytes = blocks;
        assert_int_equal(tutti_plan(net, &o, &s, NULL, &diag), 0);
        assert_int_equal(tutti_simulate(net, s, &sim, &r, &diag), 0);
        assert_int_equal(r.bytes, rows[i].bytes);
        assert_int_equal(tutti_predict(net, s, &o, &with_s, &diag), 0);
        o.block_bytes = NULL;
        assert_int_equal(tutti_predict(net, s, &o, &without_s, &diag), 0);
        bool is_same = !(with_s < without_s || with_s > without_s);
        assert_true(is_same == (rows[i].coll != TUTTI_ALL_GATHER));
        tutti_schedule_free(s);
    }
    tutti_topology_free(net);
}

static void keep_event(void *ctx, const tutti_event_info *event)
{
    tutti_event_info *events = ctx;
    events[event->src] = *event;
}

/* What tutti.h passes on of an event is all there is. */
static void test_events(void **state)
{
    (void)state;
    static const char text[] = "tutti-schedule 1\ncollective all-reduce\n"
                               "ranks 2\nparts 1\nchunk 0 0 1\n"
                               "transfer 3 0 1 0 reduce 2\n"
                               "transfer 7 0 0 1 copy\nend\n";
    tutti_event_info events[2];
    tutti_sim_opts o = {.size = sizeof(o),
                        .size_bytes = 1000,
                        .on_event = keep_event,
                        .event_ctx = events};
    tutti_sim_result r;
    tutti_schedule *s = NULL;
    tutti_topology *net = open_net("full:2@1GB/s,1us");
    assert_int_equal(tutti_schedule_read(text, strlen(text), &s, NULL), 0);
    assert_int_equal(tutti_simulate(net, s, &o, &r, NULL), 0);
    assert_int_equal(r.n_messages, 2);
    assert_true(events[1].step == 3 && events[1].rail == 2);
    assert_true(events[1].reduces && !events[0].reduces);
    assert_true(events[0].step == 7 && events[0].rail == 0);
    assert_true(events[0].dst == 1 && events[1].bytes == 1000);
    assert_true(events[1].begin_s < events[1].sent_s);
    assert_true(events[1].sent_s < events[1].end_s);
    assert_true(events[0].begin_s >= events[1].end_s);
    assert_true(events[0].end_s >= r.time_s && events[0].end_s <= r.time_s);
    tutti_schedule_free(s);
    tutti_topology_free(net);
}

/* Neither too wide nor with blanks at the end of a line. */
static void check_picture(const tutti_schedule *s)
{
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(tutti_export(s, "picture", &text, &len, NULL), TUTTI_OK);
    assert_true(len > 0 && text[len - 1] == '\n');
    size_t lines = 0;
    for (const char *at = text; *at; lines++) {
        size_t n = strcspn(at, "\n");
        if (n > 80 || (n > 0 && at[n - 1] == ' '))
            fail_msg("line %zu, \"%.*s\", of\n%s", lines + 1, (int)n, at, text);
        at += n + 1;
    }
    assert_true(lines < 400);
    tutti_text_free(text);
}

static void test_pictures_of_random_schedules(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    for (uint64_t k = seed; k < seed + 500; k++) {
        tt_rng rng = {k};
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, k % 2 ? 8 : 70);
        tutti_coll coll = (tutti_coll)(k % TUTTI_BARRIER);
        tutti_schedule *s = NULL;
        n = coll == TUTTI_ALL_TO_ALL && n > 20 ? 20 : n;
        assert_int_equal(tt_random_schedule(&rng, coll, n, &s), TUTTI_OK);
        check_picture(s);
        tt_sched_free(s);
    }
}

static void test_errors(void **state)
{
    (void)state;
    tutti_schedule *s = NULL;
    tutti_diag diag;
    char *text = NULL;
    size_t len = 0;
    static const char *const specs[] = {
        "",        "full",    "full:",
        "full:0",  "full:-1", "full:65537",
        "full:3x", "rng:3",   "full:99999999999999999999"};
    tutti_topology *net = NULL;
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        assert_int_not_equal(tutti_topology_open(specs[i], &net, &diag), 0);
        assert_true(diag.text[0]);
        assert_non_null(strstr(tutti_last_message(), diag.text));
        assert_null(net);
    }
    assert_int_equal(tutti_topology_open(NULL, &net, NULL), TUTTI_EINVAL);
    assert_int_equal(tutti_topology_open("/no/such", &net, NULL), TUTTI_ESYS);
    assert_int_equal(tutti_topology_open("/", &net, NULL), TUTTI_ESYS);
    assert_null(net);

    net = open_net("full:3");
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    opts.collective = TUTTI_BROADCAST;
    opts.root = 3;
    assert_int_equal(tutti_plan(net, &opts, &s, NULL, &diag), TUTTI_EINVAL);
    assert_non_null(strstr(diag.text, "ranks 0 to 2"));
    opts.root = -1;
    assert_int_equal(tutti_plan(net, &opts, &s, NULL, NULL), TUTTI_EINVAL);
    opts.collective = TUTTI_BARRIER;
    assert_int_equal(tutti_plan(net, &opts, &s, NULL, NULL), TUTTI_EINVAL);
    opts.size = 0;
    assert_int_equal(tutti_plan(net, &opts, &s, NULL, NULL), TUTTI_EINVAL);
    tutti_topology_free(net);
    assert_null(s);

    assert_int_equal(tutti_schedule_read("x\n", 2, &s, &diag), TUTTI_EFORMAT);
    assert_int_equal(diag.line, 1);
    assert_memory_equal(tutti_last_message(), "line 1, column 1: ", 18);
    s = plan("full:3", "ring", TUTTI_ALL_REDUCE);
    assert_int_equal(tutti_export(s, "png", &text, &len, &diag), TUTTI_EINVAL);
    assert_non_null(strstr(diag.text, "schedule, json, picture, dot"));
    assert_int_equal(tutti_export(s, NULL, &text, &len, &diag), TUTTI_EINVAL);
    assert_null(text);
    tutti_text_free(NULL);
    tutti_schedule_free(s);
    tutti_schedule_free(NULL);
}

/* Ranks 0 to 1 to 2: one cluster per chunk, solid and dashed arrows. */
static void test_dot(void **state)
{
    (void)state;
    static const char text[] =
        "tutti-schedule 1\ncollective all-reduce\nranks 2\nparts 4\n"
        "chunk 0 0 1\nchunk 0 1 4\ntransfer 0 0 1 0 reduce\n"
        "transfer 0 1 0 1 reduce\ntransfer 1 0 0 1 copy\n"
        "transfer 1 1 1 0 copy\nend\n";
    tutti_schedule *s = NULL;
    assert_int_equal(tutti_schedule_read(text, strlen(text), &s, NULL), 0);
    exports(s, "dot",
            "digraph \"all-reduce of 2 ranks\" {\n  node [shape=circle];\n"
            "  subgraph cluster_0 {\n"
            "    label=\"chunk 0 of block 0: 0-1 of 4\";\n"
            "    c0_1 [label=\"1\"];\n    c0_0 [label=\"0\"];\n"
            "    c0_1 -> c0_0 [label=\"0\"];\n"
            "    c0_0 -> c0_1 [label=\"1\", style=dashed];\n  }\n"
            "  subgraph cluster_1 {\n"
            "    label=\"chunk 1 of block 0: 1-4 of 4\";\n"
            "    c1_0 [label=\"0\"];\n    c1_1 [label=\"1\"];\n"
            "    c1_0 -> c1_1 [label=\"0\"];\n"
            "    c1_1 -> c1_0 [label=\"1\", style=dashed];\n  }\n}\n");
    tutti_schedule_free(s);
}

static void test_plan_and_describe(void **state)
{
    (void)state;
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    opts.collective = TUTTI_REDUCE;
    opts.root = 2;
    const char *chosen = NULL;
    tutti_schedule *s = NULL;
    tutti_schedule_info info;
    tutti_diag diag;
    tutti_topology *net = open_net("full:4");
    assert_int_equal(tutti_plan(net, &opts, &s, &chosen, &diag), 0);
    assert_string_equal(diag.text, "");
    assert_non_null(chosen);
    tutti_schedule_describe(s, &info);
    assert_int_equal(info.collective, TUTTI_REDUCE);
    assert_int_equal(info.n_ranks, 4);
    assert_int_equal(info.root, 2);
    assert_int_equal(info.id, s->id);
    assert_int_equal(tutti_verify(s, &diag), TUTTI_OK);
    double one = 0, two = 0;
    opts.size_bytes = 1 << 20;
    assert_int_equal(tutti_predict(net, s, &opts, &one, NULL), TUTTI_OK);
    opts.size_bytes = 1 << 22;
    assert_int_equal(tutti_predict(net, s, &opts, &two, NULL), TUTTI_OK);
    assert_true(0 < one && one < two);
    tutti_schedule_free(s);
    tutti_topology_free(net);
    tutti_planner_info planner;
    size_t n = 0;
    for (; tutti_planner_at(n, &planner); n++)
        assert_true(planner.name[0] && planner.blurb[0]);
    assert_true(n > 0);
    assert_false(tutti_planner_at(SIZE_MAX, &planner));
}

static void test_kth_allocation_fails(void **state)
{
    (void)state;
    tutti_schedule *s = plan("full:5", "ring", TUTTI_ALL_REDUCE);
    for (const tt_format *f = tt_formats; f->name; f++) {
        uint64_t k = 1;
        for (;; k++) {
            tt_test_mem m;
            const tt_mem mem = tt_test_mem_init(&m, k);
            char *text = NULL;
            size_t len = 0;
            tutti_err err = tt_export(s, f->name, &mem, &text, &len, NULL);
            assert_int_equal(err, m.n_failed > 0 ? TUTTI_ENOMEM : TUTTI_OK);
            if (!err)
                tt_free(&mem, text, len + 1, 1);
            assert_true(tt_test_mem_is_clean(&m));
            if (m.n_failed == 0)
                break;
        }
        assert_true(k > 3);
    }
    tutti_schedule_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_picture_of_ring),
        cmocka_unit_test(test_pictures_of_random_schedules),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_plan_and_describe),
        cmocka_unit_test(test_network_of_hubs),
        cmocka_unit_test(test_block_bytes),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_kth_allocation_fails),
    };
    return TT_RUN_TAP(tests);
}
