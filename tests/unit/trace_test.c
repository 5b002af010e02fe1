/* SPDX-License-Identifier: BSD-3-Clause
 * trace_test.c - the Chrome trace is JSON, says what happened, and does not
 * depend on how it is drained, on the locale or on odd numbers. The text is
 * read by a small parser of the whole JSON grammar. */
#include "support/tap.h"

#include "export/export.h"
#include "plan/plan.h"

#include "support/alloc.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------- a parser -- */

typedef struct json {
    const char *at;
    bool is_bad;
} json;

static void space(json *j)
{
    while (*j->at && strchr(" \t\r\n", *j->at))
        j->at++;
}

static bool eat(json *j, const char *text)
{
    space(j);
    size_t n = strlen(text);
    if (strncmp(j->at, text, n) != 0)
        return false;
    j->at += n;
    return true;
}

static void need(json *j, const char *text)
{
    if (!eat(j, text))
        j->is_bad = true;
}

static void string(json *j)
{
    need(j, "\"");
    while (!j->is_bad && *j->at != '"') {
        unsigned char c = (unsigned char)*j->at++;
        if (c < ' ')
            j->is_bad = true;
        if (c == '\\' && (!*j->at || !strchr("\"\\/bfnrt", *j->at++)))
            j->is_bad = true;
    }
    need(j, "\"");
}

static void number(json *j)
{
    j->at += *j->at == '-';
    if (*j->at == '0' && j->at[1] >= '0' && j->at[1] <= '9')
        j->is_bad = true;
    size_t whole = strspn(j->at, "0123456789");
    j->at += whole;
    if (whole == 0)
        j->is_bad = true;
    if (*j->at != '.')
        return;
    size_t rest = strspn(++j->at, "0123456789");
    j->at += rest;
    if (rest == 0)
        j->is_bad = true;
}

/* Nested at most 4 deep here, so recursion will do. */
static void value(json *j, int depth)
{
    space(j);
    if (j->is_bad || depth > 4) {
        j->is_bad = true;
    } else if (eat(j, "{")) {
        while (!j->is_bad && !eat(j, "}")) {
            space(j);
            string(j);
            need(j, ":");
            value(j, depth + 1);
            if (!eat(j, ",")) {
                need(j, "}");
                return;
            }
        }
    } else if (eat(j, "[")) {
        while (!j->is_bad && !eat(j, "]")) {
            value(j, depth + 1);
            if (!eat(j, ",")) {
                need(j, "]");
                return;
            }
        }
    } else if (*j->at == '"') {
        string(j);
    } else if (!eat(j, "true")) {
        number(j);
    }
}

static void need_json(const char *text)
{
    json j = {.at = text};
    value(&j, 0);
    space(&j);
    /* The parser takes a comma before a closing bracket; JSON does not. */
    if (strstr(text, ",]") || strstr(text, ",}") || strstr(text, ",\n]"))
        j.is_bad = true;
    if (j.is_bad || *j.at)
        fail_msg("not JSON at \"%.60s\"", j.at);
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

/* ---------------------------------------------------------------- tests -- */

static void test_text(void **state)
{
    (void)state;
    static const char *const names[] = {"a \"b\"\\\n", "\xc3\xa9"};
    const tt_trace_opts opts = {
        .n_ranks = 2, .names = names, .has_arrows = true};
    const tutti_event_info e = {.begin_s = 1.5e-6,
                                .sent_s = 2e-6,
                                .end_s = 3.0012e-6,
                                .bytes = 77,
                                .step = 4,
                                .chunk = 5,
                                .src = 0,
                                .dst = 1,
                                .slice = 6,
                                .rail = 2};
    tt_str out = {.mem = &tt_mem_std};
    tt_trace t;
    char *text;
    size_t len;
    tt_trace_begin(&t, &out, &opts);
    tt_trace_event(&t, &e);
    tt_trace_end(&t);
    assert_int_equal(tt_str_finish(&out, &text, &len), TUTTI_OK);
    need_json(text);
    assert_string_equal(
        text,
        "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,"
        "\"args\":{\"name\":\"a \\\"b\\\"\\\\?\"}},\n"
        "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":0,"
        "\"args\":{\"sort_index\":0}},\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,"
        "\"args\":{\"name\":\"?"
        "?\"}},\n"
        "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":0,"
        "\"args\":{\"sort_index\":1}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":259,"
        "\"args\":{\"name\":\"to 1 rail 2\"}},\n"
        "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":259,"
        "\"args\":{\"sort_index\":5168}},\n"
        "{\"name\":\"copy 5.6\",\"cat\":\"copy\",\"ph\":\"X\",\"pid\":0,"
        "\"tid\":259,\"ts\":1.5,\"dur\":0.5,\"bind_id\":1,\"flow_out\":true,"
        "\"args\":{\"step\":4,\"chunk\":5,\"slice\":6,\"done_us\":3.001,"
        "\"bytes\":77}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":33554435,"
        "\"args\":{\"name\":\"from 0 rail 2\"}},\n"
        "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":"
        "33554435,"
        "\"args\":{\"sort_index\":536871984}},\n"
        "{\"name\":\"copy 5.6\",\"cat\":\"copy\",\"ph\":\"X\",\"pid\":1,"
        "\"tid\":33554435,\"ts\":3.001,\"dur\":0,\"bind_id\":1,\"flow_in\":"
        "true,"
        "\"args\":{\"bytes\":77}}\n]}\n");
    tt_free(&tt_mem_std, text, len + 1, 1);
}

static void keep_rail(void *ctx, const tutti_recorded_info *info)
{
    const tutti_event_info *e = &info->event;
    if (e->src == 0 && e->dst == 1 && e->rail == 2 && !info->call_name)
        *(uint32_t *)ctx |= 1u << e->slice;
}

/* Slices that are on their way at a time have tracks of their own, so that no
 * bar overlaps another in part. Read back they are of the same peer and
 * rail. */
static void test_overlap(void **state)
{
    (void)state;
    static const struct {
        double begin_s, sent_s;
        int lane;
    } cases[] = {{0, 10, 0},  {5, 15, 1},  {9, 20, 2},  {10, 12, 0},
                 {12, 13, 0}, {14, 15, 0}, {15, 16, 0}, {15.5, 30, 1}};
    enum { N = sizeof(cases) / sizeof(cases[0]) };
    const tt_trace_opts opts = {.n_ranks = 2, .has_arrows = true};
    tt_str out = {.mem = &tt_mem_std};
    tt_trace t;
    char *text;
    size_t len;
    uint32_t seen = 0;
    tt_trace_begin(&t, &out, &opts);
    for (uint32_t i = 0; i < N; i++)
        tt_trace_event(&t, &(tutti_event_info){.begin_s = cases[i].begin_s,
                                               .sent_s = cases[i].sent_s,
                                               .end_s = cases[i].sent_s,
                                               .dst = 1,
                                               .slice = i,
                                               .rail = 2});
    tt_trace_end(&t);
    assert_int_equal(tt_str_finish(&out, &text, &len), TUTTI_OK);
    need_json(text);
    for (uint32_t i = 0; i < N; i++) {
        char bar[200];
        snprintf(
            bar, sizeof(bar),
            "{\"name\":\"copy 0.%u\",\"cat\":\"copy\",\"ph\":\"X\",\"pid\":0,"
            "\"tid\":%u,",
            i, 259u + ((unsigned)cases[i].lane << 27));
        if (!strstr(text, bar))
            fail_msg("slice %u is not on track %d: %s", i, cases[i].lane, text);
    }
    assert_int_equal(count(text, "\"to 1 rail 2\""), 3);
    assert_int_equal(count(text, "\"from 0 rail 2\""), 1);
    assert_int_equal(tt_trace_read(text, len, keep_rail, &seen, NULL),
                     TUTTI_OK);
    assert_int_equal(seen, (1u << N) - 1);
    tt_free(&tt_mem_std, text, len + 1, 1);
}

/* The next number behind the name, in whole nanoseconds; from there on. */
static long long next_ns(const char **text, const char *name)
{
    *text = strstr(*text, name);
    assert_non_null(*text);
    *text += strlen(name);
    return llround(strtod(*text, NULL) * 1e3);
}

/* Perfetto rounds begin and length to nanoseconds, each by itself: what follows
 * without a gap must not overlap then, or it is dropped. */
static void test_rounding(void **state)
{
    (void)state;
    enum { N = 200 };
    static const double lengths_s[] = {1e-4 / 7, 23.7714285714e-6, 2e-10};
    for (size_t k = 0; k < sizeof(lengths_s) / sizeof(*lengths_s); k++) {
        const double d = lengths_s[k];
        const tt_trace_opts opts = {.n_ranks = 2};
        tt_str out = {.mem = &tt_mem_std};
        tt_trace t;
        char *text;
        size_t len;
        tt_trace_begin(&t, &out, &opts);
        for (int i = 0; i < N; i++)
            tt_trace_event(&t, &(tutti_event_info){.begin_s = i * d,
                                                   .sent_s = (i + 1) * d,
                                                   .end_s = (i + 1) * d,
                                                   .dst = 1});
        tt_trace_end(&t);
        assert_int_equal(tt_str_finish(&out, &text, &len), TUTTI_OK);
        const char *at = text;
        long long until_ns = 0;
        for (int i = 0; i < N; i++) {
            const long long begin_ns = next_ns(&at, "\"ts\":");
            assert_int_equal(begin_ns, until_ns);
            until_ns = begin_ns + next_ns(&at, "\"dur\":");
        }
        assert_int_equal(until_ns, llround(N * d * 1e9));
        tt_free(&tt_mem_std, text, len + 1, 1);
    }
}

/* Nothing happened; no ranks. */
static void test_empty(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 3; n++) {
        const tt_trace_opts opts = {.n_ranks = n};
        tt_str out = {.mem = &tt_mem_std};
        tt_trace t;
        char *text;
        size_t len;
        tt_trace_begin(&t, &out, &opts);
        tt_trace_end(&t);
        assert_int_equal(tt_str_finish(&out, &text, &len), TUTTI_OK);
        need_json(text);
        assert_int_equal(count(text, "rank "), n);
        tt_free(&tt_mem_std, text, len + 1, 1);
    }
}

/* Times that are no times, and a locale whose numbers have commas. */
static void test_odd_times(void **state)
{
    (void)state;
    static const double odd[] = {NAN, -1, INFINITY, 1e300, 1e-300, 0, 3600.25};
    const size_t n = sizeof(odd) / sizeof(*odd);
    const tt_trace_opts opts = {.n_ranks = 1, .has_arrows = true};
    tt_str out = {.mem = &tt_mem_std};
    tt_trace t;
    char *text;
    size_t len;
    const char *was = setlocale(LC_NUMERIC, NULL);
    char kept[64];
    snprintf(kept, sizeof(kept), "%s", was);
    setlocale(LC_NUMERIC, "de_DE.UTF-8"); /* where there is one */
    tt_trace_begin(&t, &out, &opts);
    for (size_t i = 0; i < n * n; i++) {
        const tutti_event_info e = {.begin_s = odd[i / n],
                                    .sent_s = odd[i % n],
                                    .end_s = odd[(i / n + i % n) % n],
                                    .src = 65535,
                                    .dst = UINT32_MAX,
                                    .rail = 255,
                                    .bytes = UINT64_MAX,
                                    .chunk = UINT32_MAX};
        tt_trace_event(&t, &e);
    }
    tt_trace_end(&t);
    setlocale(LC_NUMERIC, kept);
    assert_int_equal(tt_str_finish(&out, &text, &len), TUTTI_OK);
    need_json(text);
    assert_int_equal(count(text, "\"ph\":\"X\""), 2 * n * n);
    assert_non_null(strstr(text, "\"ts\":3600250000,\"dur\":0,"));
    tt_free(&tt_mem_std, text, len + 1, 1);
}

typedef struct drain {
    tt_trace t;
    tt_str out, all;
} drain;

/* What a program does that writes to a file as it goes. */
static void keep(void *ctx, const tutti_event_info *e)
{
    drain *d = ctx;
    tt_trace_event(&d->t, e);
    tt_str_add(&d->all, d->out.data, d->out.len);
    d->out.len = 0;
}

/* A whole simulation, drained after every event: bars of one track follow
 * each other; every slice is there once. */
static void test_simulation(void **state)
{
    (void)state;
    tutti_topology *net = NULL;
    tutti_schedule *s = NULL;
    tutti_diag diag;
    const tt_problem p = {.collective = TUTTI_ALL_REDUCE,
                          .n_ranks = 12,
                          .root = TT_NONE,
                          .size_bytes = 1 << 20};
    if (tt_topology_generate(&tt_mem_std, "star:12@1GB/s,3us", &net, &diag) ||
        tt_plan_build(tt_planner_find("direct"), &p, &tt_mem_std, &s, &diag))
        fail_msg("%s", diag.text);
    drain d = {.out.mem = &tt_mem_std, .all.mem = &tt_mem_std};
    const tt_trace_opts opts = {.n_ranks = 12};
    const tutti_sim_opts o = {.size_bytes = 1 << 20,
                              .n_slices = 16,
                              .on_event = keep,
                              .event_ctx = &d};
    tutti_sim_result r;
    tt_trace_begin(&d.t, &d.out, &opts);
    if (tt_simulate(s, net, &o, &tt_mem_std, &r, &diag))
        fail_msg("%s", diag.text);
    tt_trace_end(&d.t);
    tt_str_add(&d.all, d.out.data, d.out.len);
    char *text;
    size_t len;
    assert_int_equal(tt_str_finish(&d.all, &text, &len), TUTTI_OK);
    need_json(text);
    assert_int_equal(count(text, "\"ph\":\"X\""), r.n_messages);
    assert_int_equal(count(text, "thread_name"), 12 * 11);
    tt_free(&tt_mem_std, text, len + 1, 1);
    tt_str_free(&d.out);
    tt_sched_free(s);
    tt_topology_free(net);
}

static void test_no_memory(void **state)
{
    (void)state;
    tutti_err err = TUTTI_ENOMEM;
    for (uint64_t k = 1; err; k++) {
        tt_test_mem m;
        tt_mem mem = tt_test_mem_init(&m, k);
        tt_str out = {.mem = &mem};
        const tt_trace_opts opts = {.n_ranks = 3, .has_arrows = true};
        tt_trace t;
        tt_trace_begin(&t, &out, &opts);
        for (uint32_t i = 0; i < 400; i++)
            tt_trace_event(&t, &(tutti_event_info){.dst = i});
        tt_trace_end(&t);
        err = out.err;
        assert_true(err == TUTTI_OK || err == TUTTI_ENOMEM);
        tt_str_free(&out);
        assert_true(tt_test_mem_is_clean(&m));
        assert_true(k < 1000);
    }
}

/* More at a time than there are tracks: those of the last one come behind each
 * other, or have no length. */
static void test_too_many_at_a_time(void **state)
{
    (void)state;
    const tt_trace_opts opts = {.n_ranks = 1};
    tt_str out = {.mem = &tt_mem_std};
    tt_trace t;
    char *text;
    size_t len;
    tt_trace_begin(&t, &out, &opts);
    for (int i = 0; i < TT_TRACE_LANES + 2; i++)
        tt_trace_event(&t, &(tutti_event_info){
                               .begin_s = i, .sent_s = 100 + i, .end_s = 200});
    tt_trace_event(
        &t, &(tutti_event_info){.begin_s = 50, .sent_s = 60, .end_s = 200});
    tt_trace_end(&t);
    assert_int_equal(tt_str_finish(&out, &text, &len), TUTTI_OK);
    need_json(text);
    assert_int_equal(count(text, "\"dur\":100000000,"), TT_TRACE_LANES);
    assert_non_null(strstr(text, "\"ts\":115000000,\"dur\":1000000,"));
    assert_non_null(strstr(text, "\"ts\":116000000,\"dur\":1000000,"));
    assert_non_null(strstr(text, "\"ts\":60000000,\"dur\":0,"));
    tt_free(&tt_mem_std, text, len + 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_odd_times),
        cmocka_unit_test(test_simulation),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_too_many_at_a_time),
    };
    return TT_RUN_TAP(tests);
}
