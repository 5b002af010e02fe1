/* SPDX-License-Identifier: BSD-3-Clause
 * draw_test.c - pictures of networks: places that do not collide, ways that
 * meet their ends, the texts to the byte; and traces, which read back. */
#include "support/tap.h"

#include "support/alloc.h"
#include "support/random_network.h"
#include "support/seed.h"

#include "export/export.h"
#include "export/netlayout.h"

#include <stdio.h>
#include <string.h>

static const char *const specs[] = {"full:1",
                                    "full:2",
                                    "full:9",
                                    "ring:5",
                                    "star:1",
                                    "star:70",
                                    "mesh:6",
                                    "torus:2x2",
                                    "torus:4x5",
                                    "mesh:8x8",
                                    "torus:3x3x3",
                                    "torus:2x3x2x3x2",
                                    "racks:5+3",
                                    "racks:100+3+60",
                                    "fattree:8x8",
                                    "bigraph:4x16",
                                    "minsky:12",
                                    "boxes:8+8+4",
                                    "rails:4@eth0=400Mbit,eth1=100Mbit"};
enum { N_SPECS = sizeof(specs) / sizeof(specs[0]) };

static const char slots[] = "tutti-topology 1\n"
                            "switch s t\n"
                            "host a ranks=9\nhost b ranks=2\nhost c d\n"
                            "link s t 1Gbit\nlink a s 1Gbit\nlink b t 1Gbit\n"
                            "link c s 2Gbit\nlink c t 1Gbit\nlink d c 1Gbit\n";

static tutti_topology *open_net(const char *spec)
{
    tutti_topology *net = NULL;
    tutti_diag diag;
    if (tutti_topology_open(spec, &net, &diag))
        fail_msg("%s: %s", spec, diag.text);
    return net;
}

static tutti_topology *parse_net(const char *text)
{
    tutti_topology *net = NULL;
    tutti_diag diag;
    if (tutti_topology_parse(text, strlen(text), &net, &diag))
        fail_msg("%s", diag.text);
    return net;
}

/* Discs have a radius of TT_DRAWN_HOST: no two of them touch. */
static void check_places(const char *name, const tutti_topology *t,
                         const tt_net_layout *l)
{
    const int64_t least = 2 * TT_DRAWN_HOST;
    for (uint32_t a = 0; a < t->n_nodes; a++) {
        const tt_point p = l->nodes[a];
        if (p.x < TT_DRAWN_HOST || p.y < TT_DRAWN_HOST ||
            p.x > l->size.x - TT_DRAWN_HOST || p.y > l->size.y - TT_DRAWN_HOST)
            fail_msg("%s: node %u lies outside", name, a);
        for (uint32_t b = 0; b < a; b++) {
            const int64_t x = p.x - l->nodes[b].x, y = p.y - l->nodes[b].y;
            if (x * x + y * y < least * least)
                fail_msg("%s: nodes %u and %u collide", name, b, a);
        }
    }
}

/* There and back are the same way. */
static void check_bends(const char *name, const tutti_topology *t,
                        const tt_net_layout *l)
{
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_bends *there = &l->bends[i];
        for (uint32_t k = 0; k < there->n; k++) {
            const tt_point p = there->at[k];
            if (p.x < 0 || p.y < 0 || p.x > l->size.x || p.y > l->size.y)
                fail_msg("%s: link %u bends outside", name, i);
        }
        /* A wrap of a flat grid begins away from where it goes. */
        const tt_point from = l->nodes[t->links[i].from];
        const tt_point to = l->nodes[t->links[i].to], p = there->at[0];
        if (t->grid.n_dims == 2 && there->n)
            assert_true((p.x - from.x) * (to.x - from.x) +
                            (p.y - from.y) * (to.y - from.y) <
                        0);
        if (t->links[i].twin == TT_NONE || t->grid.n_dims > 0)
            continue;
        const tt_bends *back = &l->bends[t->links[i].twin];
        assert_int_equal(there->n, back->n);
        for (uint32_t k = 0; k < there->n; k++) {
            assert_int_equal(there->at[k].x, back->at[back->n - 1 - k].x);
            assert_int_equal(there->at[k].y, back->at[back->n - 1 - k].y);
        }
    }
}

static void check_layout(const char *name, const tutti_topology *t)
{
    tt_net_layout l, again;
    assert_int_equal(tt_layout_find(t, &tt_mem_std, &l, NULL), TUTTI_OK);
    assert_int_equal(tt_layout_find(t, &tt_mem_std, &again, NULL), TUTTI_OK);
    check_places(name, t, &l);
    check_bends(name, t, &l);
    assert_memory_equal(l.nodes, again.nodes, t->n_nodes * sizeof(*l.nodes));
    tt_layout_free(&l);
    tt_layout_free(&again);
}

static void test_layouts(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SPECS; i++) {
        tutti_topology *net = open_net(specs[i]);
        check_layout(specs[i], net);
        tutti_topology_free(net);
    }
    tutti_topology *net = parse_net(slots);
    check_layout("slots", net);
    tutti_topology_free(net);
}

/* Below its switch, in order; a middle switch above the others. */
static void test_levels(void **state)
{
    (void)state;
    tutti_topology *net = open_net("racks:2+2+2");
    tt_net_layout l;
    assert_int_equal(tt_layout_find(net, &tt_mem_std, &l, NULL), TUTTI_OK);
    for (uint32_t i = 0; i < net->n_links; i++) {
        const tt_node *from = &net->nodes[net->links[i].from];
        const tt_node *to = &net->nodes[net->links[i].to];
        const tt_point a = l.nodes[net->links[i].from];
        const tt_point b = l.nodes[net->links[i].to];
        if (from->kind == TT_NODE_HOST || !strcmp(to->name, "core"))
            assert_true(a.y > b.y);
    }
    for (uint32_t r = 1; r < net->n_ranks; r++) {
        const tt_point a = l.nodes[net->rank_node[r - 1]];
        const tt_point b = l.nodes[net->rank_node[r]];
        assert_true(a.x < b.x && a.y == b.y);
    }
    tt_layout_free(&l);
    tutti_topology_free(net);
}

/* -------------------------------------------------------------- pictures -- */

static void draws(const tutti_topology *net, const char *format,
                  const char *expected)
{
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(tutti_topology_draw(net, format, &text, &len, NULL),
                     TUTTI_OK);
    assert_int_equal(strlen(text), len);
    assert_string_equal(text, expected);
    tutti_text_free(text);
}

static void test_layout_json(void **state)
{
    (void)state;
    tutti_topology *net = open_net("full:2@400Mbit/100Mbit,20us");
    draws(net, "layout",
          "{\"width\":264,\"height\":72,\"nodes\":[\n"
          "[\"h0\",\"host\",0,-1,36,36],\n[\"h1\",\"host\",1,-1,228,36]],"
          "\"links\":[\n[0,1,[400000000,20000000],1,[]],\n"
          "[1,0,[100000000,20000000],0,[]]]}\n");
    draws(net, "text",
          "2 ranks, every link 400 Mbit/s there, 100 Mbit/s back, 20 us\n\n"
          "h0 -- 400 Mbit/s there, 100 Mbit/s back, 20 us -- h1(1)\n");
    tutti_topology_free(net);
    net = open_net("full:2@400Mbit,20us");
    draws(net, "layout",
          "{\"width\":264,\"height\":72,\"nodes\":[\n"
          "[\"h0\",\"host\",0,-1,36,36],\n[\"h1\",\"host\",1,-1,228,36]],"
          "\"links\":[\n[0,1,[400000000,20000000],1,[]],\n"
          "[1,0,0,0,[]]]}\n");
    tutti_topology_free(net);
}

/* Also that of rank 0, whose name is that of its number. */
static void test_svg_names(void **state)
{
    (void)state;
    tutti_topology *net = open_net("racks:2+1@order=interleaved");
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(tutti_topology_draw(net, "svg", &text, &len, NULL),
                     TUTTI_OK);
    static const char *const names[] = {">h0</text>", ">h1</text>",
                                        ">h2</text>", ">rack0</text>"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_non_null(strstr(text, names[i]));
    tutti_text_free(text);
    tutti_topology_free(net);
}

/* From 4 links a node and 64 more on. */
static void test_crowded(void **state)
{
    (void)state;
    static const char *const nets[] = {"full:10", "full:11"};
    for (int i = 0; i < 2; i++) {
        tutti_topology *net = open_net(nets[i]);
        char *text = NULL;
        size_t len = 0;
        assert_int_equal(tutti_topology_draw(net, "layout", &text, &len, NULL),
                         TUTTI_OK);
        assert_int_equal(strstr(text, ",\"crowded\":true,\"nodes\"") != NULL,
                         i);
        tutti_text_free(text);
        assert_int_equal(tutti_topology_draw(net, "svg", &text, &len, NULL),
                         TUTTI_OK);
        assert_int_equal(strstr(text, "stroke-opacity=\"0.35\"") != NULL, i);
        tutti_text_free(text);
        tutti_topology_free(net);
    }
}

static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *rate, *said;
    } cases[] = {{"1bit", "1 bit/s"},         {"999bit", "999 bit/s"},
                 {"1kbit", "1 kbit/s"},       {"12345bit", "12.35 kbit/s"},
                 {"99999bit", "100 kbit/s"},  {"123456bit", "123 kbit/s"},
                 {"123500bit", "124 kbit/s"}, {"123567bit", "124 kbit/s"},
                 {"1500Mbit", "1.5 Gbit/s"},  {"999999bit", "1000 kbit/s"},
                 {"12.5GB/s", "100 Gbit/s"},  {"9995bit", "10 kbit/s"},
                 {"1000Tbit", "1000 Tbit/s"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char spec[64], wanted[128];
        snprintf(spec, sizeof(spec), "full:2@%s,0ps", cases[i].rate);
        snprintf(wanted, sizeof(wanted),
                 "2 ranks, every link %s\n\nh0 -- %s -- h1(1)\n", cases[i].said,
                 cases[i].said);
        tutti_topology *net = open_net(spec);
        draws(net, "text", wanted);
        tutti_topology_free(net);
    }
}

static void test_refused(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len = 0;
    tutti_diag diag;
    tutti_topology *net = open_net("full:2");
    assert_int_equal(tutti_topology_draw(net, "png", &text, &len, &diag),
                     TUTTI_EINVAL);
    assert_non_null(strstr(diag.text, "svg"));
    assert_int_equal(tutti_topology_draw(net, NULL, &text, &len, &diag),
                     TUTTI_EINVAL);
    tutti_topology_free(net);
    net = open_net("star:5000");
    assert_int_equal(tutti_topology_draw(net, "svg", &text, &len, &diag),
                     TUTTI_ELIMIT);
    assert_non_null(strstr(diag.text, "4096"));
    assert_null(text);
    tutti_topology_free(net);
}

static void test_random_networks(void **state)
{
    (void)state;
    const uint64_t seed = tt_test_seed(1);
    static const char *const formats[] = {"svg", "text", "layout"};
    for (uint64_t k = seed; k < seed + 200; k++) {
        tt_rng rng = {k};
        tutti_topology *net = tt_random_network(&tt_mem_std, &rng, 14);
        check_layout("random", net);
        for (int f = 0; f < 3; f++) {
            char *text = NULL;
            size_t len = 0;
            assert_int_equal(
                tt_net_draw(net, formats[f], &tt_mem_std, &text, &len, NULL),
                TUTTI_OK);
            assert_true(len > 0 && text[len - 1] == '\n');
            tutti_text_free(text);
        }
        tt_topology_free(net);
    }
}

static void test_kth_allocation_fails(void **state)
{
    (void)state;
    tutti_topology *net = parse_net(slots);
    static const char *const formats[] = {"svg", "text", "layout"};
    for (int f = 0; f < 3; f++) {
        for (uint64_t k = 1;; k++) {
            tt_test_mem m;
            const tt_mem mem = tt_test_mem_init(&m, k);
            char *text = NULL;
            size_t len = 0;
            tutti_err err = tt_net_draw(net, formats[f], &mem, &text, &len,
                                        NULL);
            assert_int_equal(err, m.n_failed > 0 ? TUTTI_ENOMEM : TUTTI_OK);
            if (!err)
                tt_free(&mem, text, len + 1, 1);
            assert_true(tt_test_mem_is_clean(&m));
            if (m.n_failed == 0)
                break;
        }
    }
    tutti_topology_free(net);
}

/* ---------------------------------------------------------------- traces -- */

enum { MOST = 4096 };
typedef struct log {
    tutti_event_info events[MOST];
    uint64_t calls[MOST];
    bool predicted[MOST], has_name[MOST];
    size_t n;
} log;

static void keep(void *ctx, const tutti_recorded_info *info)
{
    log *l = ctx;
    assert_true(l->n < MOST);
    l->has_name[l->n] = info->call_name != NULL;
    l->predicted[l->n] = info->is_predicted;
    l->calls[l->n] = info->call;
    l->events[l->n++] = info->event;
}

static void keep_simulated(void *ctx, const tutti_event_info *e)
{
    keep(ctx, &(tutti_recorded_info){.event = *e});
}

static void check_equal(const tutti_event_info *a, const tutti_event_info *b)
{
    assert_true(a->step == b->step && a->chunk == b->chunk);
    assert_true(a->src == b->src && a->dst == b->dst && a->rail == b->rail);
    assert_true(a->slice == b->slice && a->bytes == b->bytes);
    assert_true(a->reduces == b->reduces);
    assert_float_equal(a->begin_s, b->begin_s, 1e-11);
    assert_float_equal(a->sent_s, b->sent_s, 1e-11);
    assert_float_equal(a->end_s, b->end_s, 1e-11);
}

static void test_trace_reads_back(void **state)
{
    (void)state;
    static log simulated, read;
    simulated.n = read.n = 0;
    tutti_topology *net = open_net("rails:3@eth0=400Mbit,eth1=100Mbit");
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    opts.planner = "ring";
    opts.size_bytes = 1 << 20;
    tutti_schedule *s = NULL;
    assert_int_equal(tutti_plan(net, &opts, &s, NULL, NULL), TUTTI_OK);
    tutti_sim_opts sim = {.size = sizeof(sim),
                          .size_bytes = 1 << 20,
                          .n_slices = 4,
                          .on_event = keep_simulated,
                          .event_ctx = &simulated};
    tutti_sim_result result;
    assert_int_equal(tutti_simulate(net, s, &sim, &result, NULL), TUTTI_OK);
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(tutti_trace(net, s, &sim, &result, &text, &len, NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_trace_read(text, len, keep, &read, NULL), TUTTI_OK);
    assert_true(read.n > 20);
    assert_int_equal(read.n, simulated.n);
    for (size_t i = 0; i < read.n; i++)
        check_equal(&simulated.events[i], &read.events[i]);
    tutti_text_free(text);
    tutti_schedule_free(s);
    tutti_topology_free(net);
}

#define EVENT(MORE)                                                          \
    "{\"name\":\"x\",\"cat\":\"copy\",\"ph\":\"X\",\"pid\":2,\"tid\":770,"   \
    "\"ts\":1.5,\"dur\":2,\"args\":{\"step\":4,\"chunk\":5,\"bytes\":6" MORE \
    "}}"

static void test_trace_forms(void **state)
{
    (void)state;
    static log l;
    static const char *const good[] = {
        "[" EVENT("") "]", "{\"traceEvents\":[" EVENT("") "]}",
        " {\"a\":[{\"b\":[null,true,-1.5e+2]},\"x\\\"y\"] , \"traceEvents\" :"
        " [ {\"ph\":\"M\",\"args\":{\"name\":\"n\"}},\n" EVENT(
            "") ",{}] ,\"z\":false } ",
        "[" EVENT(",\"call\":12,\"done_us\":9") "]",
        "[{\"ph\":\"X\",\"cat\":\"other\"}," EVENT(",\"step2\":[1]") "]"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        l.n = 0;
        tutti_diag diag;
        if (tutti_trace_read(good[i], strlen(good[i]), keep, &l, &diag))
            fail_msg("%s: %s", good[i], diag.text);
        assert_int_equal(l.n, 1);
        const tutti_event_info *e = &l.events[0];
        assert_true(e->src == 2 && e->dst == 3 && e->rail == 1);
        assert_true(e->step == 4 && e->chunk == 5 && e->bytes == 6);
        assert_true(!e->reduces && e->slice == 0);
        assert_float_equal(e->begin_s, 1.5e-6, 1e-15);
        assert_float_equal(e->sent_s, 3.5e-6, 1e-15);
        assert_float_equal(e->end_s, i == 3 ? 9e-6 : 3.5e-6, 1e-15);
        assert_int_equal(l.calls[0], i == 3 ? 12 : 0);
    }
}

/* Two processes for each rank, and calls, as a job's trace has them. */
static void test_trace_of_a_job(void **state)
{
    (void)state;
    static log l;
    static const char text[] =
        "{\"traceEvents\":["
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,"
        "\"args\":{\"name\":\"a: rank 0\"}},"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,"
        "\"args\":{\"name\":\"a: rank 0, predicted\"}},"
        "{\"name\":\"all-reduce 6 B\",\"ph\":\"X\",\"pid\":2,\"tid\":67108864,"
        "\"ts\":1,\"dur\":4,\"args\":{\"call\":7,\"bytes\":6}},"
        "{\"name\":\"asleep\",\"ph\":\"X\",\"pid\":2,\"tid\":67108868,"
        "\"ts\":1,\"dur\":4},\n" EVENT("") ",{\"cat\":\"reduce\",\"ph\":"
                                           "\"X\",\"pid\":3,\"tid\":1,\"ts\":1,"
                                           "\"dur\":1,\"args\":{\"step\":0,"
                                           "\"chunk\":0,\"bytes\":9}}]}";
    l.n = 0;
    assert_int_equal(tutti_trace_read(text, strlen(text), keep, &l, NULL), 0);
    assert_int_equal(l.n, 3);
    assert_true(l.has_name[0] && l.calls[0] == 7 && l.events[0].src == 1);
    assert_true(l.events[0].bytes == 6 && !l.predicted[0]);
    assert_true(!l.has_name[1] && l.events[1].src == 1 && !l.predicted[1]);
    assert_true(!l.has_name[2] && l.events[2].src == 1 && l.predicted[2]);
}

static void test_trace_errors(void **state)
{
    (void)state;
    static log l;
    static const struct {
        const char *text, *said;
        uint32_t line;
    } bad[] = {{"", "begins with { or [", 1},
               {"\n\nx", "begins with { or [", 3},
               {"[", "an object", 1},
               {"[]", "no transfers", 0},
               {"{}", "no transfers", 0},
               {"{\"traceEvents\":{}}", "a list of events", 1},
               {"[{\"ph\":\"X\"}\n{}]", "a comma or the end of the list", 2},
               {"[{\"ph\" \"X\"}]", "a colon", 1},
               {"[{\"ph\":\"X}]", "the end of a string", 1},
               {"[{\"ph\":.5}]", "a number", 1},
               {"[{\"a\":[1 2]}]", "a comma", 1},
               {"[" EVENT("") "", "a comma", 1},
               {"[{\"ph\":\"X\",\"cat\":\"copy\",\"pid\":7,\"tid\":1,"
                "\"ts\":1,\"dur\":1e300,\"args\":{\"step\":0,\"chunk\":0,"
                "\"bytes\":1}}]",
                "no transfers", 0},
               {"[{\"ph\":\"X\",\"cat\":\"copy\",\"pid\":70000,\"tid\":1,"
                "\"ts\":1,\"dur\":1,\"args\":{\"step\":0,\"chunk\":0,"
                "\"bytes\":1}}]",
                "no transfers", 0}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        l.n = 0;
        tutti_diag diag;
        const tutti_err err = tutti_trace_read(bad[i].text, strlen(bad[i].text),
                                               keep, &l, &diag);
        assert_int_equal(err, TUTTI_EFORMAT);
        if (!strstr(diag.text, bad[i].said))
            fail_msg("%s: %s", bad[i].text, diag.text);
        assert_int_equal(diag.line, bad[i].line);
    }
    char deep[400];
    memset(deep, '[', sizeof(deep));
    memcpy(deep, "{\"a\":", 5);
    assert_int_equal(tutti_trace_read(deep, sizeof(deep), keep, &l, NULL),
                     TUTTI_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_layout_json),
        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_svg_names),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_random_networks),
        cmocka_unit_test(test_kth_allocation_fails),
        cmocka_unit_test(test_trace_reads_back),
        cmocka_unit_test(test_trace_forms),
        cmocka_unit_test(test_trace_of_a_job),
        cmocka_unit_test(test_trace_errors),
    };
    return TT_RUN_TAP(tests);
}
