/* SPDX-License-Identifier: BSD-3-Clause
 * regions_test.c - the memory of tutti_alloc(): whole zeroed pages that do not
 * overlap, given back when they are freed, of no harm to a parent when a child
 * writes to them, and ordinary memory where the system has no other. */
#include "support/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/memfd.h"
#include "base/regions.h"
#include "base/rng.h"
#include "support/seed.h"

#define PAGE 4096
#define MIB ((size_t)1 << 20)

static bool is_filled(const unsigned char *at, size_t n, int byte)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != byte)
            return false;
    return true;
}

/* Pages of the first segment that are real memory. */
static size_t pages_in_use(const tt_regions *r)
{
    const tt_segment *s = &r->segments[0];
    size_t n = s->bytes / PAGE, in_use = 0;
    unsigned char *map = malloc(n);
    assert_int_equal(mincore(s->base, s->bytes, map), 0);
    for (size_t i = 0; i < n; i++)
        in_use += map[i] & 1;
    free(map);
    return in_use;
}

typedef struct buffer {
    unsigned char *at;
    size_t bytes;
    int byte;
} buffer;

/* At random: every new buffer is zeroed and aligned, and no buffer changes
 * while others come and go. */
static void test_random(void **state)
{
    (void)state;
    enum { N = 60, ROUNDS = 3000 };
    tt_rng rng = {tt_test_seed(1)};
    tt_regions r = TT_REGIONS_INIT(&tt_mem_std);
    buffer b[N] = {{NULL, 0, 0}};
    for (int i = 0; i < ROUNDS; i++) {
        buffer *x = &b[tt_rng_below(&rng, N)];
        if (x->at) {
            assert_true(is_filled(x->at, x->bytes, x->byte));
            tt_regions_free(&r, x->at);
            x->at = NULL;
            continue;
        }
        x->bytes = tt_rng_below(&rng, 8) ? tt_rng_below(&rng, 5 * PAGE)
                                         : tt_rng_below(&rng, 3 * MIB);
        x->byte = 1 + (int)tt_rng_below(&rng, 255);
        x->at = tt_regions_alloc(&r, x->bytes);
        assert_non_null(x->at);
        assert_int_equal((uintptr_t)x->at % PAGE, 0);
        if (x->bytes >= 2 * MIB)
            assert_int_equal((uintptr_t)x->at % (2 * MIB), 0);
        assert_int_equal(tt_regions_find(&r, x->at, x->bytes), 0);
        assert_true(is_filled(x->at, x->bytes, 0));
        memset(x->at, x->byte, x->bytes);
    }
    assert_int_equal(atomic_load(&r.n_segments), 1);
    for (int i = 0; i < N; i++)
        tt_regions_free(&r, b[i].at);
    assert_int_equal(pages_in_use(&r), 0);
    tt_regions_fini(&r);
}

static void test_find(void **state)
{
    (void)state;
    tt_regions r = TT_REGIONS_INIT(&tt_mem_std);
    char outside[16] = {0};
    assert_int_equal(tt_regions_find(&r, outside, 16), TT_NONE);
    unsigned char *a = tt_regions_alloc(&r, 0);
    assert_non_null(a);
    a[0] = 1; /* at least a byte */
    const tt_segment *s = &r.segments[0];
    unsigned char *end = s->base + s->bytes;
    assert_int_equal(tt_regions_find(&r, a, 1), 0);
    assert_int_equal(tt_regions_find(&r, s->base, s->bytes), 0);
    assert_int_equal(tt_regions_find(&r, s->base, s->bytes + 1), TT_NONE);
    assert_int_equal(tt_regions_find(&r, end - 1, 1), 0);
    assert_int_equal(tt_regions_find(&r, end - 1, 2), TT_NONE);
    assert_int_equal(tt_regions_find(&r, end, 1), TT_NONE);
    assert_int_equal(tt_regions_find(&r, s->base - 1, 2), TT_NONE);
    assert_int_equal(tt_regions_find(&r, a, SIZE_MAX), TT_NONE);
    assert_int_equal(tt_regions_find(&r, outside, 16), TT_NONE);
    tt_regions_free(&r, a);
    tt_regions_fini(&r);
}

/* Buffers larger than a segment get their own, and segments grow. */
static void test_large(void **state)
{
    (void)state;
    tt_regions r = TT_REGIONS_INIT(&tt_mem_std);
    r.segment_bytes = 4 * MIB;
    unsigned char *at[200];
    for (size_t i = 0; i < 200; i++) {
        size_t bytes = i == 7 ? 300 * MIB : 3 * MIB;
        at[i] = tt_regions_alloc(&r, bytes);
        assert_non_null(at[i]);
        assert_int_not_equal(tt_regions_find(&r, at[i], bytes), TT_NONE);
        at[i][0] = at[i][bytes - 1] = (unsigned char)i;
    }
    assert_true(atomic_load(&r.n_segments) < 12);
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal(at[i][0], i);
        tt_regions_free(&r, at[i]);
    }
    /* What was freed is used again. */
    uint32_t n = atomic_load(&r.n_segments);
    for (int i = 0; i < 500; i++) {
        void *again = tt_regions_alloc(&r, 200 * MIB);
        assert_non_null(again);
        tt_regions_free(&r, again);
    }
    assert_int_equal(atomic_load(&r.n_segments), n);
    assert_null(tt_regions_alloc(&r, SIZE_MAX));
    assert_null(tt_regions_alloc(&r, SIZE_MAX / 2));
    tt_regions_fini(&r);
}

/* Runs body in a child; its exit status. */
static int in_child(int (*body)(tt_regions *r), tt_regions *r)
{
    tt_regions_before_fork(r);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        tt_regions_child(r);
        tt_fork_child();
        _exit(body(r));
    }
    tt_regions_after_fork(r);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static unsigned char *parents;

static int write_as_child(tt_regions *r)
{
    if (!is_filled(parents, 3 * PAGE, 7))
        return 1;
    memset(parents, 9, 2 * PAGE);
    if (!is_filled(parents, 2 * PAGE, 9))
        return 2;
    unsigned char *own = tt_regions_alloc(r, 2 * PAGE);
    if (!own || !is_filled(own, 2 * PAGE, 0))
        return 3;
    if (tt_regions_find(r, own, 1) != TT_NONE)
        return 4; /* nobody may come to read it */
    own[0] = own[2 * PAGE - 1] = 1;
    tt_regions_free(r, own);
    tt_regions_free(r, parents);
    return 0;
}

static void test_fork(void **state)
{
    (void)state;
    tt_regions r = TT_REGIONS_INIT(&tt_mem_std);
    parents = tt_regions_alloc(&r, 3 * PAGE);
    memset(parents, 7, 3 * PAGE);
    for (int i = 0; i < 3; i++)
        assert_int_equal(in_child(write_as_child, &r), 0);
    assert_true(is_filled(parents, 3 * PAGE, 7));
    /* And goes on as before. */
    unsigned char *more = tt_regions_alloc(&r, PAGE);
    assert_int_equal(tt_regions_find(&r, more, PAGE), 0);
    tt_regions_free(&r, more);
    tt_regions_free(&r, parents);
    tt_regions_fini(&r);
}

/* Where memfds are not to be had, memory is. */
static int limit(int what, rlim_t most)
{
    struct rlimit l = {.rlim_cur = most, .rlim_max = most};
    return setrlimit(what, &l);
}

static int without_files(tt_regions *r)
{
    tt_regions fresh = TT_REGIONS_INIT(&tt_mem_std);
    (void)r;
    if (limit(RLIMIT_FSIZE, PAGE) != 0)
        return 1;
    unsigned char *at = tt_regions_alloc(&fresh, 2 * PAGE + 5);
    if (!at || !is_filled(at, 3 * PAGE, 0) || (uintptr_t)at % PAGE != 0)
        return 2;
    if (tt_regions_find(&fresh, at, 1) != TT_NONE)
        return 3;
    memset(at, 1, 3 * PAGE);
    tt_regions_free(&fresh, at);
    /* What fits under the limit can still be shared. */
    at = tt_regions_alloc(&fresh, PAGE);
    if (!at || tt_regions_find(&fresh, at, PAGE) != 0)
        return 4;
    tt_regions_free(&fresh, at);
    return 0;
}

static int without_descriptors(tt_regions *r)
{
    tt_regions fresh = TT_REGIONS_INIT(&tt_mem_std);
    (void)r;
    if (limit(RLIMIT_NOFILE, 3) != 0)
        return 1;
    unsigned char *at = tt_regions_alloc(&fresh, PAGE);
    if (!at || tt_regions_find(&fresh, at, 1) != TT_NONE)
        return 2;
    at[0] = 1;
    tt_regions_free(&fresh, at);
    return 0;
}

static void test_limits(void **state)
{
    (void)state;
    tt_regions r = TT_REGIONS_INIT(&tt_mem_std);
    assert_int_equal(in_child(without_files, &r), 0);
    assert_int_equal(in_child(without_descriptors, &r), 0);
    tt_regions_fini(&r);
}

/* What may come from another process. */
static void test_sound(void **state)
{
    (void)state;
    int fd = tt_memfd_create("test", 2 * PAGE);
    assert_true(fd >= 0);
    assert_true(tt_memfd_is_sound(fd, 2 * PAGE));
    assert_false(tt_memfd_is_sound(fd, PAGE));
    assert_int_not_equal(ftruncate(fd, PAGE), 0);
    close(fd);
    fd = memfd_create("open to change", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_false(tt_memfd_is_sound(fd, PAGE));
    close(fd);
    assert_false(tt_memfd_is_sound(STDIN_FILENO, 0));
    assert_false(tt_memfd_is_sound(-1, 0));
}

/* What is torn keeps what it has, and once it was written to does not see what
 * others write; no new buffer is near it. */
static void test_tear(void **state)
{
    (void)state;
    tt_regions r = TT_REGIONS_INIT(&tt_mem_std);
    unsigned char *a = tt_regions_alloc(&r, 4 * PAGE);
    unsigned char *b = tt_regions_alloc(&r, PAGE);
    const tt_segment *s = &r.segments[0];
    unsigned char *there = tt_memfd_map(s->fd, s->bytes,
                                        PROT_READ | PROT_WRITE);
    assert_non_null(there);
    memset(a, 1, 4 * PAGE);
    memset(b, 2, PAGE);
    tt_regions_tear(&r, a + PAGE + 10, PAGE);
    assert_true(is_filled(a, 4 * PAGE, 1));
    memset(a + PAGE, 3, 2 * PAGE); /* the program's */
    memset(there + (a - s->base), 9, 4 * PAGE);
    assert_true(is_filled(a + PAGE, 2 * PAGE, 3));
    assert_true(is_filled(a, PAGE, 9)); /* was not torn */
    assert_true(is_filled(b, PAGE, 2));
    assert_int_equal(tt_regions_find(&r, a, 1), TT_NONE);
    unsigned char *c = tt_regions_alloc(&r, PAGE);
    assert_int_equal(tt_regions_find(&r, c, PAGE), 1);
    tt_regions_free(&r, a);
    tt_regions_free(&r, b);
    tt_regions_free(&r, c);
    munmap(there, s->bytes);
    tt_regions_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_find),
        cmocka_unit_test(test_large),  cmocka_unit_test(test_fork),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_sound),
        cmocka_unit_test(test_tear),
    };
    return TT_RUN_TAP(tests);
}
