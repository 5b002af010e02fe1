/* SPDX-License-Identifier: BSD-3-Clause
 * base_test.c - memory, arena, hash, errors, log, patience, settings. */
#include "support/alloc.h"
#include "support/tap.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/numbers.h"
#include "base/patience.h"
#include "base/rng.h"
#include "base/settings.h"
#include "support/seed.h"

/* --------------------------------------------------------------- memory -- */

static void test_new(void **state)
{
    (void)state;
    tt_test_mem m;
    tt_mem mem = tt_test_mem_init(&m, 0);
    unsigned char *x = tt_new(&mem, 33, 3);
    assert_non_null(x);
    for (int i = 0; i < 99; i++)
        assert_int_equal(x[i], 0);
    assert_int_equal(m.live_bytes, 99);
    tt_free(&mem, x, 33, 3);
    tt_free(&mem, NULL, 5, 5);
    assert_true(tt_test_mem_is_clean(&m));

    assert_null(tt_new(&mem, 0, 8));
    assert_null(tt_new(&mem, 8, 0));
    assert_null(tt_new(&mem, SIZE_MAX / 2, 3));
    assert_null(tt_new(&mem, SIZE_MAX, SIZE_MAX));
    assert_int_equal(m.n_allocs, 1);
}

static void test_new_fails(void **state)
{
    (void)state;
    tt_test_mem m;
    tt_mem mem = tt_test_mem_init(&m, 2);
    void *a = tt_new(&mem, 1, 8);
    assert_non_null(a);
    assert_null(tt_new(&mem, 1, 8));
    assert_int_equal(m.n_failed, 1);
    tt_free(&mem, a, 1, 8);
    assert_true(tt_test_mem_is_clean(&m));
}

static void test_std(void **state)
{
    (void)state;
    uint64_t *x = tt_new(&tt_mem_std, 4, sizeof(*x));
    assert_non_null(x);
    void *grown = x;
    size_t cap = 4;
    assert_int_equal(tt_grow(&tt_mem_std, &grown, &cap, 1000, sizeof(uint64_t)),
                     TUTTI_OK);
    assert_true(cap >= 1000);
    tt_free(&tt_mem_std, grown, cap, sizeof(uint64_t));
}

/* Large memory takes none before it is written. */
static void test_untouched(void **state)
{
    (void)state;
    static unsigned char there[(64 << 20) / 4096];
    const size_t bytes = 64 << 20, page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *x = tt_new(&tt_mem_std, bytes, 1);
    assert_non_null(x);
    unsigned char *first = x + (page - (uintptr_t)x % page) % page;
    const size_t n_pages = (bytes - page) / page;
    size_t n = 0;
    assert_int_equal(mincore(first, n_pages * page, there), 0);
    for (size_t i = 0; i < n_pages; i++)
        n += there[i] & 1;
    assert_true(n < n_pages / 2);
    for (size_t at = 0; at < bytes; at += page / 2)
        assert_int_equal(x[at], 0);
    tt_free(&tt_mem_std, x, bytes, 1);
}

static void test_grow(void **state)
{
    (void)state;
    tt_test_mem m;
    tt_mem mem = tt_test_mem_init(&m, 0);
    void *items = NULL;
    size_t cap = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(tt_grow(&mem, &items, &cap, i + 1, 4), TUTTI_OK);
        ((uint32_t *)items)[i] = i * i;
    }
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(((uint32_t *)items)[i], i * i);
    assert_true(m.n_allocs <= 8); /* 8, 16, ... 1024: doubling */
    assert_int_equal(m.live_bytes, cap * 4);

    /* What fails changes nothing. */
    void *before = items;
    size_t cap_before = cap;
    m.fail_at = m.n_allocs + 1;
    assert_int_equal(tt_grow(&mem, &items, &cap, 5000, 4), TUTTI_ENOMEM);
    assert_int_equal(tt_grow(&mem, &items, &cap, SIZE_MAX, 4), TUTTI_ENOMEM);
    assert_int_equal(tt_grow(&mem, &items, &cap, SIZE_MAX / 4, 4),
                     TUTTI_ENOMEM);
    assert_ptr_equal(items, before);
    assert_int_equal(cap, cap_before);
    assert_int_equal(((uint32_t *)items)[999], 999 * 999);
    tt_free(&mem, items, cap, 4);
    assert_true(tt_test_mem_is_clean(&m));
}

/* The strict allocator itself must notice. */
static void test_misuse(void **state)
{
    (void)state;
    tt_test_mem m;
    tt_mem mem = tt_test_mem_init(&m, 0);
    void *x = tt_new(&mem, 1, 10);
    assert_false(tt_test_mem_is_clean(&m));
    tt_free(&mem, x, 1, 9);
    assert_int_equal(m.live_blocks, 0);
    assert_int_equal(m.n_misuses, 1);
    assert_false(tt_test_mem_is_clean(&m));
}

/* ---------------------------------------------------------------- arena -- */

static bool is_zero(const unsigned char *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

static void test_arena(void **state)
{
    (void)state;
    tt_test_mem m;
    tt_mem mem = tt_test_mem_init(&m, 0);
    tt_arena arena = {.mem = &mem};
    tt_rng rng = {1};
    unsigned char *at[600];
    size_t bytes[600];
    for (int i = 0; i < 600; i++) {
        bool large = i % 97 == 0;
        bytes[i] = 1 + tt_rng_below(&rng, large ? 300000 : 500);
        at[i] = tt_arena_new(&arena, bytes[i], 1);
        assert_non_null(at[i]);
        assert_int_equal((uintptr_t)at[i] % 16, 0);
        assert_true(is_zero(at[i], bytes[i]));
        memset(at[i], i % 255 + 1, bytes[i]);
    }
    for (int i = 0; i < 600; i++)
        for (size_t k = 0; k < bytes[i]; k++)
            if (at[i][k] != i % 255 + 1)
                fail_msg("allocation %d was overwritten at %zu", i, k);
    assert_true(m.n_allocs < 30); /* small ones share blocks */
    tt_arena_free(&arena);
    assert_null(arena.head);
    assert_true(tt_test_mem_is_clean(&m));
    tt_arena_free(&arena);
}

static void test_arena_limits(void **state)
{
    (void)state;
    tt_test_mem m;
    tt_mem mem = tt_test_mem_init(&m, 0);
    tt_arena arena = {.mem = &mem};
    assert_null(tt_arena_new(&arena, 0, 8));
    assert_null(tt_arena_new(&arena, SIZE_MAX, 2));
    assert_null(tt_arena_new(&arena, SIZE_MAX, 1));
    assert_null(tt_arena_new(&arena, SIZE_MAX - 15, 1));
    assert_non_null(tt_arena_new(&arena, 1, 1));
    m.fail_at = m.n_allocs + 1;
    assert_null(tt_arena_new(&arena, 1 << 20, 1));
    assert_non_null(tt_arena_new(&arena, 1, 1)); /* still of use */
    tt_arena_free(&arena);
    assert_true(tt_test_mem_is_clean(&m));
}

/* ----------------------------------------------------------------- hash -- */

static void test_hash(void **state)
{
    (void)state;
    /* Vectors of the FNV authors. */
    static const struct {
        const char *text;
        uint64_t hash;
    } rows[] = {{"", 0xcbf29ce484222325},
                {"a", 0xaf63dc4c8601ec8c},
                {"b", 0xaf63df4c8601f1a5},
                {"foobar", 0x85944171f73967e8}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_true(tt_fnv1a(TT_FNV1A_START, rows[i].text,
                             strlen(rows[i].text)) == rows[i].hash);
    uint64_t half = tt_fnv1a(TT_FNV1A_START, "foo", 3);
    assert_true(tt_fnv1a(half, "bar", 3) == rows[3].hash);
    static const unsigned char little[] = {8, 7, 6, 5, 4, 3, 2, 1};
    assert_true(tt_fnv1a_u64(TT_FNV1A_START, 0x0102030405060708) ==
                tt_fnv1a(TT_FNV1A_START, little, 8));
    /* Zeros, at the end and between. */
    static const uint32_t values[] = {
        0,        1,         0xff,       0x100,      0xff00,     0x10000,
        0xff0001, 0x1000000, 0x80000000, 0xff0000ff, 0xffffffff, 0x01000100};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const uint32_t v = values[i];
        const unsigned char bytes[] = {
            (unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
            (unsigned char)(v >> 24)};
        assert_true(tt_fnv1a_u32(half, v) == tt_fnv1a(half, bytes, 4));
    }
}

static void test_mul_div(void **state)
{
    (void)state;
    assert_true(tt_mul_div(UINT64_MAX, 7, 7) == UINT64_MAX);
    assert_true(tt_mul_div(UINT64_MAX, UINT64_MAX - 1, UINT64_MAX) ==
                UINT64_MAX - 1);
    assert_int_equal(tt_mul_div(10, 2, 3), 6);
    assert_int_equal(tt_whole(6.9), 6);
    assert_int_equal(tt_whole(-1), 0);
    assert_int_equal(tt_whole(NAN), 0);
    assert_true(tt_whole(0x1.8p63) == UINT64_C(3) << 62);
    assert_true(tt_whole(0x1p64) == UINT64_MAX);
    assert_true(tt_whole(INFINITY) == UINT64_MAX);
}

/* By the definition, without the table. */
static size_t letters_apart(const char *a, const char *b)
{
    if (!*a || !*b)
        return strlen(*a ? a : b);
    size_t least = letters_apart(a + 1, b + 1) + (*a != *b);
    size_t drop = letters_apart(a + 1, b) + 1;
    size_t add = letters_apart(a, b + 1) + 1;
    least = drop < least ? drop : least;
    least = add < least ? add : least;
    if (a[0] != b[1] || a[1] != b[0])
        return least;
    size_t swap = letters_apart(a + 2, b + 2) + 1;
    return swap < least ? swap : least;
}

static void test_nearest(void **state)
{
    (void)state;
    char a[6], b[6], longest[TT_LETTERS_MAX + 2] = "";
    for (unsigned i = 0; i < 1024; i++) {
        size_t n_a = i % 6, n_b = i / 6 % 6;
        for (size_t k = 0; k < 5; k++) {
            a[k] = "xy"[i * 7 >> k & 1];
            b[k] = "xy"[i * 13 >> (k + 1) & 1];
        }
        a[n_a] = b[n_b] = 0;
        assert_int_equal(tt_letters_apart(a, n_a, b), letters_apart(a, b));
    }
    memset(longest, 'x', TT_LETTERS_MAX);
    assert_int_equal(tt_letters_apart(longest, TT_LETTERS_MAX, longest), 0);
    longest[TT_LETTERS_MAX] = 'x';
    assert_true(tt_letters_apart("x", 1, longest) == SIZE_MAX);
    assert_true(tt_letters_apart(longest, TT_LETTERS_MAX + 1, "x") == SIZE_MAX);
}

static void test_numbers(void **state)
{
    (void)state;
    for (uint64_t x = 0; x < 70; x++) {
        uint64_t up = 1, down = 1;
        while (up < x)
            up *= 2;
        while (2 * down <= x)
            down *= 2;
        assert_int_equal(tt_pow2_up(x), up);
        assert_int_equal(UINT64_C(1) << tt_log2_up(x), up);
        assert_int_equal(UINT64_C(1) << tt_log2_down(x), down);
        assert_int_equal(tt_is_pow2(x), x == down);
        assert_int_equal(tt_round_up(x, 7), (x + 6) / 7 * 7);
        for (uint64_t y = 1; y < 20; y++) {
            uint64_t most = x ? 0 : y;
            for (uint64_t d = 1; d <= x; d++)
                most = x % d == 0 && y % d == 0 ? d : most;
            assert_int_equal(tt_gcd(x, y), most);
            assert_int_equal(tt_div_up(x, y), (x + y - 1) / y);
        }
    }
    assert_true(tt_div_up(UINT64_MAX, 2) == UINT64_C(1) << 63);
    assert_true(tt_pow2_up((UINT64_C(1) << 62) + 1) == UINT64_C(1) << 63);
    assert_int_equal(tt_log2_down(UINT64_MAX), 63);
}

/* --------------------------------------------------------------- errors -- */

/* Numbers by their keys; `places` follows each. */
enum { HEAP_MOST = 50 };

typedef struct keyed {
    unsigned key[HEAP_MOST], place[HEAP_MOST];
} keyed;

static bool key_before(const void *arg, const void *a, const void *b)
{
    const keyed *k = arg;
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return k->key[x] < k->key[y];
}

static void key_moved(void *arg, const void *item, size_t at)
{
    keyed *k = arg;
    k->place[*(const unsigned *)item] = (unsigned)at;
}

static const tt_heap_items keyed_items = {sizeof(unsigned), key_before,
                                          key_moved};

/* Every parent comes no later than its children, and every item is told. */
static void expect_heap(const keyed *k, const unsigned *heap, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(k->place[heap[i]], i);
        assert_true(k->key[heap[(i - (i > 0)) / 2]] <= k->key[heap[i]]);
    }
}

static void empty_heap(keyed *k, unsigned *heap, size_t n)
{
    unsigned last = 0;
    for (; n > 0; n--) {
        assert_true(k->key[heap[0]] >= last);
        last = k->key[heap[0]];
        tt_heap_pop(&keyed_items, k, heap, n);
        expect_heap(k, heap, n - 1);
    }
}

static void test_heap(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(1)};
    for (int round = 0; round < 200; round++) {
        keyed k;
        unsigned heap[HEAP_MOST], n = (unsigned)tt_rng_below(&rng, HEAP_MOST);
        unsigned most = 1 + (unsigned)tt_rng_below(&rng, 2 * HEAP_MOST);
        for (unsigned i = 0; i < n; i++) {
            k.key[i] = (unsigned)tt_rng_below(&rng, most);
            tt_heap_push(&keyed_items, &k, heap, i, &i);
            expect_heap(&k, heap, i + 1);
        }
        for (unsigned i = 0; i < n; i++) {
            unsigned old = k.key[i];
            k.key[i] = (unsigned)tt_rng_below(&rng, most);
            if (k.key[i] > old)
                tt_heap_sink(&keyed_items, &k, heap, n, k.place[i], &i);
            else
                tt_heap_rise(&keyed_items, &k, heap, k.place[i], &i);
            expect_heap(&k, heap, n);
        }
        empty_heap(&k, heap, n);
        for (unsigned i = 0; i < n; i++)
            k.place[heap[i] = i] = i;
        tt_heap_make(&keyed_items, &k, heap, n);
        empty_heap(&k, heap, n);
    }
}

static void test_errors(void **state)
{
    (void)state;
    assert_string_equal(tutti_errname(TUTTI_OK), "OK");
    assert_string_equal(tutti_errname(TUTTI_EPEER), "EPEER");
    assert_string_equal(tutti_strerror(TUTTI_OK), "success");
    assert_string_equal(tutti_errname((tutti_err)-999), "unknown");
    assert_non_null(tutti_strerror((tutti_err)-999));
    assert_int_equal(TUTTI_ENOFIT, -42); /* pinned for ever */
    assert_int_equal(TUTTI_EPEER, -20);

    char version[32];
    snprintf(version, sizeof(version), "%d.%d.%d", TUTTI_VERSION_MAJOR,
             TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    assert_string_equal(tutti_version(), version);
}

/* What others say does not steer a terminal, and ends. */
static void test_hear(void **state)
{
    (void)state;
    char out[8];
    tt_err_hear("a\x1b[2Jb\n", 7, out, sizeof(out));
    assert_string_equal(out, "a?[2Jb?");
    tt_err_hear("abcdefghij", 10, out, sizeof(out));
    assert_string_equal(out, "abcdefg");
    tt_err_hear("abc", 2, out, sizeof(out));
    assert_string_equal(out, "ab");
    tt_err_hear("abc", 0, out, sizeof(out));
    assert_string_equal(out, "");
    memset(out, 127, sizeof(out));
    tt_err_hear(out, sizeof(out), out, sizeof(out));
    assert_string_equal(out, "???????");
}

static void test_diag(void **state)
{
    (void)state;
    tutti_diag diag = {.line = 7, .rank = 3};
    assert_int_equal(tt_fail(&diag, TUTTI_EFORMAT, "rank %d is odd", 5),
                     TUTTI_EFORMAT);
    assert_string_equal(diag.text, "rank 5 is odd");
    assert_int_equal(diag.line, 0);
    assert_int_equal(diag.rank, TT_NONE);
    tt_fail_errno(&diag, TUTTI_ESYS, ENOENT, "open %s", "x");
    assert_string_equal(diag.text, "open x: No such file or directory");
    assert_int_equal(tt_fail(NULL, TUTTI_EINVAL, "%s", "nobody"), TUTTI_EINVAL);
    assert_int_equal(tt_fail_errno(NULL, TUTTI_ESYS, 1, "x"), TUTTI_ESYS);
    char large[2000];
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    tt_fail_errno(&diag, TUTTI_ESYS, ENOENT, "%s", large);
    assert_int_equal(strlen(diag.text), sizeof(diag.text) - 1);
    tt_last_message_set("first");
    tt_last_message_set("second");
    assert_string_equal(tutti_last_message(), "second");
}

/* ------------------------------------------------------------------ log -- */

typedef struct log_book {
    int n_lines;
    tutti_log_level level;
    char all[4096];
} log_book;

static void note(void *arg, tutti_log_level level, const char *line)
{
    log_book *book = arg;
    size_t used = strlen(book->all);
    book->n_lines++;
    book->level = level;
    snprintf(book->all + used, sizeof(book->all) - used, "%s\n", line);
}

static int n_evaluated;

static int evaluate(void)
{
    return ++n_evaluated;
}

static void test_log(void **state)
{
    (void)state;
    log_book book = {0};
    tutti_log_set(note, &book);
    tt_log_setup(TUTTI_LOG_WARN);
    TT_WARN("rank %d peer %d", 3, 7);
    assert_int_equal(book.n_lines, 1);
    assert_int_equal(book.level, TUTTI_LOG_WARN);
    assert_string_equal(book.all, "rank 3 peer 7\n");
    TT_INFO("%d", evaluate());
    assert_int_equal(n_evaluated, 0);
    assert_int_equal(book.n_lines, 1);
    tt_log_setup(TUTTI_LOG_TRACE);
    TT_TRACE("%d", evaluate());
    assert_int_equal(n_evaluated, 1);
    assert_int_equal(book.level, TUTTI_LOG_TRACE);
    tt_log_setup(TUTTI_LOG_WARN);
    tutti_log_set(NULL, NULL);
}

/* ------------------------------------------------------------- settings -- */

typedef struct amount {
    const char *text;
    uint64_t value;
} amount;

static void check_amounts(bool (*parse)(const char *, uint64_t *),
                          const amount *rows, bool is_good)
{
    for (; rows->text; rows++) {
        uint64_t value = 42;
        if (parse(rows->text, &value) != is_good)
            fail_msg("\"%s\" is %s", rows->text,
                     is_good ? "refused" : "accepted");
        if (value != (is_good ? rows->value : 42))
            fail_msg("\"%s\" is read as %llu", rows->text,
                     (unsigned long long)value);
    }
}

static void test_parse_bytes(void **state)
{
    (void)state;
    static const amount good[] = {{"0", 0},
                                  {"4096", 4096},
                                  {"7B", 7},
                                  {"4K", 4096},
                                  {"64KiB", 65536},
                                  {"64kib", 65536},
                                  {"64KB", 64000},
                                  {"1.5MB", 1500000},
                                  {"1.5KiB", 1536},
                                  {"0.5KiB", 512},
                                  {"18446744073709551615", UINT64_MAX},
                                  {NULL, 0}};
    check_amounts(tt_parse_bytes, good, true);
    static const amount bad[] = {{"", 0},
                                 {" 1", 0},
                                 {"1 ", 0},
                                 {"-1", 0},
                                 {"+1", 0},
                                 {"x", 0},
                                 {"1x", 0},
                                 {"1.5B", 0},
                                 {"1.", 0},
                                 {".5K", 0},
                                 {"1.5.5", 0},
                                 {"1 KiB", 0},
                                 {"KiB", 0},
                                 {"0x10", 0},
                                 {"1e3", 0},
                                 {"18446744073709551616", 0},
                                 {"16777216TiB", 0},
                                 {"0.00000000000000000001TB", 0},
                                 {NULL, 0}};
    check_amounts(tt_parse_bytes, bad, false);
}

static void test_parse_time(void **state)
{
    (void)state;
    static const amount good[] = {{"300s", UINT64_C(300000000000)},
                                  {"300", UINT64_C(300000000000)},
                                  {"10us", 10000},
                                  {"5ms", 5000000},
                                  {"1.5ms", 1500000},
                                  {"0.25", 250000000},
                                  {"17ns", 17},
                                  {"2min", UINT64_C(120000000000)},
                                  {"1h", UINT64_C(3600000000000)},
                                  {"0s", 0},
                                  {NULL, 0}};
    check_amounts(tt_parse_time_ns, good, true);
    static const amount bad[] = {
        {"", 0},    {"s", 0},    {"5KiB", 0},        {"1.5ns", 0}, {"-5s", 0},
        {"5 s", 0}, {"5sec", 0}, {"9999999999h", 0}, {"inf", 0},   {NULL, 0}};
    check_amounts(tt_parse_time_ns, bad, false);
}

static void test_parse_count(void **state)
{
    (void)state;
    static const amount good[] = {
        {"0", 0}, {"007", 7}, {"18446744073709551615", UINT64_MAX}, {NULL, 0}};
    check_amounts(tt_parse_count, good, true);
    static const amount bad[] = {{"", 0},   {"1.0", 0},
                                 {"1K", 0}, {"-0", 0},
                                 {"1 ", 0}, {"18446744073709551616", 0},
                                 {NULL, 0}};
    check_amounts(tt_parse_count, bad, false);
}

static int without_settings(void **state)
{
    (void)state;
    tutti_setting_info s;
    for (size_t i = 0; tutti_setting_at(i, &s); i++)
        unsetenv(s.name);
    return 0;
}

static void test_defaults(void **state)
{
    (void)state;
    tt_settings s;
    tutti_diag diag = {0};
    assert_int_equal(tt_settings_read(&s, &diag), TUTTI_OK);
    assert_string_equal(s.transports, "auto");
    assert_string_equal(s.address, "");
    assert_int_equal(s.window, 0);
    assert_int_equal(s.timeout_ns, UINT64_C(300000000000));
    assert_int_equal(s.staging_max_bytes, 64 << 20);
    assert_int_equal(s.log, TUTTI_LOG_WARN);
}

static void test_environment(void **state)
{
    (void)state;
    setenv("TUTTI_WINDOW", "1024", 1);
    setenv("TUTTI_SPIN", "1.5ms", 1);
    setenv("TUTTI_LOG", "TRACE", 1);
    setenv("TUTTI_PLANNER", "", 1);
    tt_settings s;
    assert_int_equal(tt_settings_read(&s, NULL), TUTTI_OK);
    assert_int_equal(s.window, 1024);
    assert_int_equal(s.spin_ns, 1500000);
    assert_int_equal(s.log, TUTTI_LOG_TRACE);
    assert_string_equal(s.planner, "");
}

static void test_bad_values(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"TUTTI_WINDOW", "-1", "a whole number"},
        {"TUTTI_WINDOW", "1025", "from 0 to 1024"},
        {"TUTTI_WINDOW", "", "a whole number"},
        {"TUTTI_TIMEOUT", "0.5ms", "at least 1ms"},
        {"TUTTI_TIMEOUT", "fast", "a time such as"},
        {"TUTTI_FRONT", "2GiB", "at most 1GiB"},
        {"TUTTI_FRONT", "12KiBB", "a size such as"},
        {"TUTTI_LOG", "loud", "error, warn, info, debug or trace"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setenv(rows[i][0], rows[i][1], 1);
        tt_settings s;
        memset(&s, 0x5a, sizeof(s));
        tutti_diag diag = {0};
        assert_int_equal(tt_settings_read(&s, &diag), TUTTI_ECONFIG);
        char start[128];
        snprintf(start, sizeof(start), "%s is \"%s\"; expected ", rows[i][0],
                 rows[i][1]);
        if (strncmp(diag.text, start, strlen(start)) != 0 ||
            !strstr(diag.text, rows[i][2]))
            fail_msg("%s=%s: %s", rows[i][0], rows[i][1], diag.text);
        assert_int_equal(*(unsigned char *)&s, 0x5a);
        unsetenv(rows[i][0]);
    }
    char text[257];
    memset(text, 'a', 256);
    text[256] = '\0';
    setenv("TUTTI_JOB", text, 1);
    tt_settings s;
    assert_int_equal(tt_settings_read(&s, NULL), TUTTI_ECONFIG);
    text[255] = '\0';
    setenv("TUTTI_JOB", text, 1);
    assert_int_equal(tt_settings_read(&s, NULL), TUTTI_OK);
    assert_string_equal(s.job, text);
}

static void test_listing(void **state)
{
    (void)state;
    setenv("TUTTI_WINDOW", "8", 1);
    setenv("TUTTI_SPIN", "never", 1);
    tutti_setting_info s;
    size_t n = 0;
    int n_seen = 0;
    for (; tutti_setting_at(n, &s); n++) {
        assert_int_equal(strncmp(s.name, "TUTTI_", 6), 0);
        assert_true(strlen(s.help) > 0);
        bool is_window = strcmp(s.name, "TUTTI_WINDOW") == 0;
        bool is_spin = strcmp(s.name, "TUTTI_SPIN") == 0;
        n_seen += is_window || is_spin;
        assert_string_equal(s.source, is_window ? "environment"
                                      : is_spin ? "invalid"
                                                : "default");
        assert_string_equal(s.value, is_window ? "8"
                                     : is_spin ? "never"
                                               : s.fallback);
    }
    assert_int_equal(n_seen, 2);
    assert_false(tutti_setting_at(n, &s));
    assert_false(tutti_setting_at(SIZE_MAX, &s));
}

/* Warnings come once in a process, so this is the only test of them. */
static void test_unknown(void **state)
{
    (void)state;
    log_book book = {0};
    setenv("TUTTI_WINDWO", "8", 1);
    setenv("TUTTI_NOTHING_LIKE_IT", "8", 1);
    setenv("TUTTI_PLANNER", "ring", 1);
    setenv("TUTTIFRUTTI", "1", 1);
    setenv("TUTTI_A_NAME_THAT_IS_SO_LONG_THAT_IT_FITS_NO_BUFFER_AT_ALL_I_FEAR",
           "1", 1);
    tutti_log_set(note, &book);
    tt_settings_warn_unknown();
    assert_int_equal(book.n_lines, 3);
    assert_non_null(strstr(book.all, "TUTTI_WINDWO is no setting; did you "
                                     "mean TUTTI_WINDOW?\n"));
    assert_non_null(strstr(book.all, "TUTTI_NOTHING_LIKE_IT is no setting; "
                                     "`tutti settings` lists them\n"));
    assert_non_null(strstr(book.all, "TUTTI_A_NAME"));
    assert_null(strstr(book.all, "FRUTTI"));
    tt_settings_warn_unknown();
    assert_int_equal(book.n_lines, 3);
    tutti_log_set(NULL, NULL);
}

/* ------------------------------------------------------------- patience -- */

/* So long, twice that, and so on, since it began; nobody, and no patience. */
static void test_patience(void **state)
{
    (void)state;
    tt_patience p = {.first_ns = 0};
    assert_false(tt_patience_tells(&p, 10 * TT_NS_PER_S, 0, UINT64_MAX / 2));
    for (uint64_t since_ns = 100; since_ns < 300; since_ns += 100) {
        uint64_t at_ns = since_ns + 10 * TT_NS_PER_S;
        assert_false(
            tt_patience_tells(&p, 10 * TT_NS_PER_S, since_ns, at_ns - 1));
        assert_true(tt_patience_tells(&p, 10 * TT_NS_PER_S, since_ns, at_ns));
        assert_true(tt_patience_say(&p) == 10.0);
        at_ns += 10 * TT_NS_PER_S;
        assert_false(
            tt_patience_tells(&p, 10 * TT_NS_PER_S, since_ns, at_ns - 1));
        assert_true(tt_patience_tells(&p, 10 * TT_NS_PER_S, since_ns, at_ns));
        assert_true(tt_patience_say(&p) == 20.0);
    }
    assert_false(tt_patience_tells(&p, 10 * TT_NS_PER_S, 0, UINT64_MAX / 2));
    assert_false(tt_patience_tells(&p, 0, 300, UINT64_MAX / 2));
}

int main(void)
{
    /* No TUTTI_ name of the caller's may decide a test. */
    clearenv();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),
        cmocka_unit_test(test_new_fails),
        cmocka_unit_test(test_std),
        cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_limits),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_mul_div),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_hear),
        cmocka_unit_test(test_diag),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_parse_bytes),
        cmocka_unit_test(test_parse_time),
        cmocka_unit_test(test_parse_count),
        cmocka_unit_test(test_patience),
        cmocka_unit_test_setup(test_defaults, without_settings),
        cmocka_unit_test_setup(test_environment, without_settings),
        cmocka_unit_test_setup(test_bad_values, without_settings),
        cmocka_unit_test_setup(test_listing, without_settings),
        cmocka_unit_test_setup(test_unknown, without_settings),
    };
    return TT_RUN_TAP(tests);
}
