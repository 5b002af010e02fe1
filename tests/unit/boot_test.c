/* SPDX-License-Identifier: BSD-3-Clause
 * boot_test.c - start-up with real processes on loopback: everybody meets, or
 * everybody gets the sentence that names the culprit. */
#include "support/tap.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/sock.h"
#include "boot/boot.h"
#include "boot/frame.h"
#include "boot/meet.h"
#include "link/greet.h"
#include "link/trust.h"
#include "support/stranger.h"

#define MOST 16

/* What one process saw, in memory shared with the test. */
typedef struct outcome {
    tutti_err open, exchange;
    char text[512];
    uint32_t blamed;
    double seconds;
    bool is_right; /* the exchanged data */
    bool was_told; /* that the start was called off */
} outcome;

/* How one process behaves. */
typedef struct role {
    tt_launch launch;
    int delay_ms;
    const volatile outcome *after; /* it comes when this one has ended */
    uint64_t timeout_ms;
    int dies_before; /* exchange number 1 or 2; 0: never */
    /* Before the last exchange one calls the start off, and the others, but
     * for those who are there already, wait until they learn it. */
    bool calls_off, waits;
} role;

typedef struct scene {
    outcome *seen; /* [MOST], shared */
    pid_t pids[MOST];
    int n;
} scene;

static uint16_t free_port(int *keep)
{
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", 0, &addr));
    int fd = tt_link_bind(&addr, 8);
    assert_true(fd >= 0);
    uint16_t port = tt_sock_port(fd);
    if (keep)
        *keep = fd;
    else
        close(fd);
    return port;
}

static void fill(unsigned char *piece, size_t len, uint32_t rank, int round)
{
    for (size_t i = 0; i < len; i++)
        piece[i] = (unsigned char)(rank * 31 + i * 7 + (unsigned)round);
}

static tutti_err exchange(tt_boot *boot, const role *me, int round, size_t len,
                          outcome *seen, tutti_diag *diag)
{
    static unsigned char mine[65536];
    static unsigned char want[65536];
    static unsigned char all[MOST * 65536];
    uint32_t n = me->launch.n_ranks;
    fill(mine, len, me->launch.rank, round);
    tutti_err err = tt_boot_exchange(boot, mine, len, all, diag);
    for (uint32_t r = 0; !err && r < n; r++) {
        fill(want, len, r, round);
        if (memcmp(want, all + r * len, len) != 0)
            seen->is_right = false;
    }
    return err;
}

static void play(const role *me, outcome *seen)
{
    tutti_diag diag;
    memset(&diag, 0, sizeof(diag));
    tt_settings settings;
    memset(&settings, 0, sizeof(settings));
    settings.start_timeout_ns = me->timeout_ms * TT_NS_PER_MS;
    poll(NULL, 0, me->delay_ms);
    while (me->after && me->after->seconds == 0)
        poll(NULL, 0, 5);
    uint64_t start = tt_now_ns();
    tt_boot *boot = NULL;
    seen->is_right = true;
    seen->open = tt_boot_open(&me->launch, &settings, &tt_mem_std,
                              start + settings.start_timeout_ns, &boot, &diag);
    static const size_t lens[] = {1096, 65536, 0};
    for (int round = 1; !seen->open && !seen->exchange && round <= 3; round++) {
        if (me->dies_before == round)
            _exit(0);
        if (round == 3 && me->calls_off)
            tt_boot_call_off(boot);
        for (int i = 0; round == 3 && me->waits && !seen->was_told && i < 500;
             i++) {
            poll(NULL, 0, 10);
            seen->was_told = !tt_boot_is_well(boot, &diag);
        }
        seen->exchange = exchange(boot, me, round, lens[round - 1], seen,
                                  &diag);
    }
    tt_boot_close(seen->open ? NULL : boot);
    seen->seconds = (double)(tt_now_ns() - start) / TT_NS_PER_S;
    seen->blamed = diag.rank;
    snprintf(seen->text, sizeof(seen->text), "%s", diag.text);
}

static void start(scene *s, const role *me)
{
    if (!s->seen)
        s->seen = mmap(NULL, MOST * sizeof(outcome), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(s->seen, MAP_FAILED);
    assert_true(s->n < MOST);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        play(me, &s->seen[s->n]);
        _exit(0);
    }
    s->pids[s->n++] = pid;
}

static void finish(scene *s)
{
    for (int i = 0; i < s->n; i++) {
        int status = 0;
        assert_int_equal(waitpid(s->pids[i], &status, 0), s->pids[i]);
        assert_int_equal(status, 0);
    }
}

static void drop(scene *s)
{
    munmap(s->seen, MOST * sizeof(outcome));
    *s = (scene){0};
}

static role make_role(uint32_t rank, uint32_t n_ranks, const char *address,
                      const char *job)
{
    role me = {.launch = {.rank = rank, .n_ranks = n_ranks},
               .timeout_ms = 30000};
    snprintf(me.launch.address, sizeof(me.launch.address), "%s", address);
    snprintf(me.launch.job, sizeof(me.launch.job), "%s", job);
    return me;
}

static void expect_all_good(scene *s)
{
    finish(s);
    for (int i = 0; i < s->n; i++) {
        if (s->seen[i].open || s->seen[i].exchange)
            print_message("process %d: %s\n", i, s->seen[i].text);
        assert_int_equal(s->seen[i].open, TUTTI_OK);
        assert_int_equal(s->seen[i].exchange, TUTTI_OK);
        assert_true(s->seen[i].is_right);
    }
    drop(s);
}

static void expect_text(const outcome *seen, const char *part)
{
    if (!strstr(seen->text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, seen->text);
}

static void meet(const char *address, const char *job, uint32_t n, int late)
{
    scene s = {0};
    for (uint32_t r = 0; r < n; r++) {
        role me = make_role(r, n, address, job);
        me.delay_ms = r == 0 ? late : 0;
        start(&s, &me);
    }
    expect_all_good(&s);
}

static const char *loopback(char *out, size_t size, const char *host)
{
    snprintf(out, size, "%s:%u", host, free_port(NULL));
    return out;
}

static void test_meet(void **state)
{
    (void)state;
    char where[64];
    meet(loopback(where, sizeof(where), "127.0.0.1"), "", 2, 0);
    meet(loopback(where, sizeof(where), "127.0.0.1"), "a job", MOST, 0);
    meet(loopback(where, sizeof(where), "localhost"), "", 3, 0);
}

static void test_one_rank(void **state)
{
    (void)state;
    meet("", "", 1, 0);
}

static void test_late_rank_0(void **state)
{
    (void)state;
    char where[64];
    meet(loopback(where, sizeof(where), "127.0.0.1"), "", 4, 700);
    meet("", "late", 4, 300);
}

static void test_ipv6(void **state)
{
    (void)state;
    tt_addr addr;
    assert_true(tt_addr_numeric("::1", 0, &addr));
    int fd = tt_link_bind(&addr, 1);
    if (fd < 0) {
        print_message("this machine has no IPv6 loopback\n");
        skip();
    }
    close(fd);
    char where[64];
    meet(loopback(where, sizeof(where), "[::1]"), "", 3, 0);
}

static void test_unix(void **state)
{
    (void)state;
    char job[64];
    snprintf(job, sizeof(job), "boot_test %ld", (long)getpid());
    meet("", job, 5, 0);
    meet("", job, 5, 0); /* the name is free again at once */
}

static void test_inherited_listener(void **state)
{
    (void)state;
    int fd = -1;
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%u", free_port(&fd));
    scene s = {0};
    for (uint32_t r = 0; r < 3; r++) {
        role me = make_role(r, 3, where, "");
        me.launch.listen_fd = r == 0 ? fd : 0;
        start(&s, &me);
    }
    expect_all_good(&s);
    close(fd);
}

static void test_missing_ranks(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    static const uint32_t here[] = {0, 1, 2, 4};
    for (int i = 0; i < 4; i++) {
        role me = make_role(here[i], 8, where, "");
        me.timeout_ms = 8000; /* by then all that come have come */
        start(&s, &me);
    }
    finish(&s);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(s.seen[i].open, TUTTI_ETIMEOUT);
        expect_text(&s.seen[i], "rank 3, 5-7 of 8 have not come to");
        expect_text(&s.seen[i], where);
        assert_int_equal(s.seen[i].blamed, i == 0 ? 3 : TT_NONE);
        assert_true(s.seen[i].seconds < 20);
    }
    drop(&s);
}

static void test_no_rank_0(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    role me = make_role(1, 2, where, "");
    me.timeout_ms = 3000; /* by then it has tried */
    start(&s, &me);
    me = make_role(1, 2, "no-such-host.invalid:4711", "");
    me.timeout_ms = 3000;
    start(&s, &me);
    finish(&s);
    assert_int_equal(s.seen[0].open, TUTTI_ETIMEOUT);
    expect_text(&s.seen[0], "rank 1 did not reach rank 0 at 127.0.0.1:");
    expect_text(&s.seen[0], "Connection refused");
    assert_int_equal(s.seen[1].open, TUTTI_ETIMEOUT);
    expect_text(&s.seen[1], "no-such-host.invalid");
    drop(&s);
}

static void test_wrong_size(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    role me = make_role(0, 8, where, "");
    me.timeout_ms = 8000;
    start(&s, &me);
    me = make_role(1, 8, where, "");
    start(&s, &me);
    me = make_role(3, 4, where, "");
    me.delay_ms = 1000;
    start(&s, &me);
    finish(&s);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s.seen[i].open,
                         i < 2 ? TUTTI_ETIMEOUT : TUTTI_ECONFIG);
        expect_text(&s.seen[i], "rank 3 says that the job has 4 ranks");
        expect_text(&s.seen[i], "says 8");
    }
    expect_text(&s.seen[0], "rank 2-7 of 8 have not come to");
    drop(&s);
}

/* A job goes on when ranks of another one come to its place. */
static void test_other_size(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    for (uint32_t r = 0; r < 3; r++) {
        role me = make_role(r, 3, where, "");
        me.delay_ms = r == 2 ? 4000 : 0; /* the others are there by then */
        start(&s, &me);
    }
    for (uint32_t r = 1; r < 3; r++) {
        role me = make_role(r, 4, where, "");
        me.delay_ms = 500;
        start(&s, &me);
    }
    finish(&s);
    for (int i = 0; i < 5; i++)
        assert_int_equal(s.seen[i].open, i < 3 ? TUTTI_OK : TUTTI_ECONFIG);
    expect_text(&s.seen[3], "rank 1 says that the job has 4 ranks");
    drop(&s);
}

static void test_duplicate_rank(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    for (uint32_t r = 0; r < 3; r++) {
        role me = make_role(r < 2 ? r : 1, 3, where, "");
        start(&s, &me);
    }
    role me = make_role(2, 3, where, "");
    me.delay_ms = 4000;
    start(&s, &me);
    finish(&s);
    int second = s.seen[1].open ? 1 : 2;
    for (int i = 0; i < 4; i++)
        assert_int_equal(s.seen[i].open,
                         i == second ? TUTTI_ECONFIG : TUTTI_OK);
    expect_text(&s.seen[second], "two processes say that they are rank 1");
    drop(&s);
}

/* A rank of another job is sent away; ours goes on without noticing. */
static void test_other_job(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    role me = make_role(0, 2, where, "one");
    start(&s, &me);
    me = make_role(1, 2, where, "two");
    start(&s, &me);
    me = make_role(1, 2, where, "one");
    me.after = &s.seen[1]; /* till then rank 0 is there for the stranger */
    start(&s, &me);
    finish(&s);
    assert_int_equal(s.seen[0].open, TUTTI_OK);
    assert_int_equal(s.seen[2].open, TUTTI_OK);
    assert_int_equal(s.seen[1].open, TUTTI_EBOOT);
    expect_text(&s.seen[1], "belongs to another job");
    drop(&s);
}

static int call(uint16_t port)
{
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", port, &addr));
    uint64_t until = tt_now_ns() + 50 * TT_NS_PER_S;
    for (;;) {
        int fd = tt_stranger_connect(&addr, until);
        if (fd >= 0)
            return fd;
        assert_true(tt_now_ns() < until);
        poll(NULL, 0, 10);
    }
}

static int shout(uint16_t port, const void *bytes, size_t len)
{
    int fd = call(port);
    tt_stranger_write_all(fd, bytes, len, tt_now_ns() + TT_NS_PER_S);
    return fd;
}

/* Who waits in vain says who was sent away, and why. */
static void test_told_of_others(void **state)
{
    (void)state;
    const tt_greet_word hello = {.magic = TT_GREET_MAGIC,
                                 .version_min = 1,
                                 .version_max = 1,
                                 .kind = TT_GREET_HELLO,
                                 .purpose = TT_LINK_RENDEZVOUS,
                                 .job = 1};
    static const char *const texts[] = {
        "belongs to another job",
        "(version 77 of the greeting) have no version",
        "nobody there serves this"};
    for (int i = 0; i < 3; i++) {
        tt_greet_word word = hello;
        if (i == 1)
            word.version_min = word.version_max = 77;
        if (i == 2)
            word.purpose = TT_LINK_PROBE;
        uint16_t port = free_port(NULL);
        char where[64];
        snprintf(where, sizeof(where), "127.0.0.1:%u", port);
        scene s = {0};
        role me = make_role(0, 2, where, "");
        me.timeout_ms = 2000;
        start(&s, &me);
        int fd = shout(port, &word, sizeof(word));
        finish(&s);
        close(fd);
        assert_int_equal(s.seen[0].open, TUTTI_ETIMEOUT);
        expect_text(&s.seen[0], "; sent 127.0.0.1:");
        expect_text(&s.seen[0], texts[i]);
        drop(&s);
    }
}

/* Strangers that say nothing, rubbish, half a greeting, another version, and
 * what was a start-up message before there was a greeting. */
static void test_strangers(void **state)
{
    (void)state;
    uint16_t port = free_port(NULL);
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    scene s = {0};
    role me = make_role(0, 2, where, "");
    start(&s, &me);
    tt_greet_word old = {.magic = TT_GREET_MAGIC,
                         .version_min = 76,
                         .version_max = 77,
                         .kind = TT_GREET_HELLO,
                         .purpose = TT_LINK_RENDEZVOUS};
    tt_frame odd = {.magic = TT_FRAME_MAGIC,
                    .version = TT_FRAME_VERSION,
                    .kind = TT_FRAME_DATA,
                    .len = UINT64_MAX};
    int fds[70];
    int n = 0;
    fds[n++] = call(port);
    fds[n++] = shout(port, "GET / HTTP/1.1\r\nHost: you\r\n\r\n", 29);
    fds[n++] = shout(port, &old, 11);
    fds[n++] = shout(port, &odd, sizeof(odd));
    int refused = fds[n++] = shout(port, &old, sizeof(old));
    while (n < 30)
        fds[n++] = call(port);
    tt_greet_word answer;
    uint64_t until = tt_now_ns() + 50 * TT_NS_PER_S;
    assert_int_equal(
        tt_stranger_read_all(refused, &answer, sizeof(answer), until), 0);
    assert_int_equal(answer.kind, TT_GREET_REFUSE);
    assert_int_equal(answer.why, TT_LINK_OTHER_VERSION);
    me = make_role(1, 2, where, "");
    start(&s, &me);
    expect_all_good(&s);
    while (n > 0)
        close(fds[--n]);
}

/* Who says all that a rank says and goes is no rank; nor who says what makes no
 * sense, or of no job. */
static void test_passers_by(void **state)
{
    (void)state;
    uint16_t port = free_port(NULL);
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    scene s = {0};
    role me = make_role(0, 3, where, "job");
    start(&s, &me);
    tt_greet_word hello = {.magic = TT_GREET_MAGIC,
                           .version_min = 1,
                           .version_max = 1,
                           .kind = TT_GREET_HELLO,
                           .purpose = TT_LINK_RENDEZVOUS,
                           .flags = TT_GREET_ONE_WAY,
                           .job = tt_fnv1a(TT_FNV1A_START, "job", 3)};
    static const tt_boot_said said[] = {{1, 3, 1}, {7, 3, 1}, {5, 5, 1}};
    close(call(port)); /* it listens */
    kill(s.pids[0], SIGSTOP);
    for (int i = 0; i < 3; i++) {
        memcpy(hello.said, &said[i], sizeof(said[i]));
        close(shout(port, &hello, sizeof(hello)));
    }
    memcpy(hello.said, &(tt_boot_said){1, 2, 1}, sizeof(said[0]));
    hello.job = 0;
    int none = shout(port, &hello, sizeof(hello));
    kill(s.pids[0], SIGCONT);
    for (uint32_t r = 1; r < 3; r++) {
        me = make_role(r, 3, where, "job");
        start(&s, &me);
    }
    expect_all_good(&s);
    close(none);
}

/* What answers at rank 0's address speaks another version of the greeting, or
 * something else. */
static void answer_with(const void *bytes, size_t len, const char *part)
{
    int fd = -1;
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%u", free_port(&fd));
    scene s = {0};
    role me = make_role(1, 2, where, "");
    start(&s, &me);
    int guest = -1;
    for (uint64_t until = tt_now_ns() + 20 * TT_NS_PER_S;
         guest < 0 && tt_now_ns() < until; poll(NULL, 0, 5))
        guest = accept(fd, NULL, NULL);
    assert_true(guest >= 0);
    tt_stranger_write_all(guest, bytes, len, tt_now_ns() + TT_NS_PER_S);
    finish(&s);
    close(guest);
    close(fd);
    assert_int_equal(s.seen[0].open, TUTTI_EBOOT);
    expect_text(&s.seen[0], part);
    expect_text(&s.seen[0], where);
    drop(&s);
}

/* Rank 0 may have no room for somebody who proves itself: to be hung up on is
 * no proof that it has no secret. */
static void test_hung_up(void **state)
{
    (void)state;
    static const char secret[] = "one-0123456789-0123456789-0123456789";
    const tt_trust_opts o = {.secret = (const uint8_t *)secret,
                             .n_secret = strlen(secret)};
    uint16_t port = free_port(NULL);
    tt_addr at;
    char where[64], first;
    scene s = {0};
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    role root = make_role(0, 2, where, ""), me = make_role(1, 2, where, "");
    if (!TT_HAVE_OPENSSL)
        skip();
    assert_int_equal(tt_trust_open(&o, &me.launch.trust, NULL), TUTTI_OK);
    root.launch.trust = me.launch.trust;
    start(&s, &me);
    tt_addr_numeric("127.0.0.1", port, &at);
    int fd = tt_link_bind(&at, 8);
    assert_true(fd >= 0);
    for (int i = 0; i < 2; i++) {
        assert_true(tt_sock_wait(fd, POLLIN, UINT64_MAX));
        int guest = accept(fd, NULL, NULL);
        assert_int_equal(recv(guest, &first, 1, MSG_WAITALL), 1);
        close(guest);
    }
    close(fd);
    start(&s, &root);
    expect_all_good(&s);
    tt_trust_close(me.launch.trust);
}

static void test_other_answers(void **state)
{
    (void)state;
    const tt_greet_word newer = {.magic = TT_GREET_MAGIC,
                                 .version_min = 7,
                                 .version_max = 9,
                                 .kind = TT_GREET_REFUSE,
                                 .why = TT_LINK_OTHER_VERSION};
    answer_with(&newer, sizeof(newer),
                "have no version of the greeting in "
                "common (its last one is 9)");
    answer_with("SSH-2.0-OpenSSH_9.2\r\n", 21,
                "is not rank 0 of this job; choose another port");
}

static void test_port_in_use(void **state)
{
    (void)state;
    int fd = -1;
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%u", free_port(&fd));
    scene s = {0};
    role me = make_role(0, 2, where, "");
    start(&s, &me);
    me = make_role(1, 2, where, ""); /* meets a listener that never answers */
    me.timeout_ms = 3000;
    start(&s, &me);
    finish(&s);
    close(fd);
    assert_int_equal(s.seen[0].open, TUTTI_EBOOT);
    expect_text(&s.seen[0], "is in use");
    expect_text(&s.seen[0], where);
    assert_int_equal(s.seen[1].open, TUTTI_ETIMEOUT);
    expect_text(&s.seen[1], "has not answered as rank 0");
    drop(&s);
}

static void expect_death(int dies_before, int who)
{
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    for (uint32_t r = 0; r < 4; r++) {
        role me = make_role(r, 4, where, "");
        me.dies_before = (int)r == who ? dies_before : 0;
        start(&s, &me);
    }
    finish(&s);
    char part[32];
    snprintf(part, sizeof(part), "rank %d ", who);
    for (int r = 0; r < 4; r++) {
        if (r == who)
            continue;
        assert_int_equal(s.seen[r].open, TUTTI_OK);
        assert_int_equal(s.seen[r].exchange, TUTTI_EPEER);
        expect_text(&s.seen[r], part);
        assert_true(s.seen[r].seconds < 20);
    }
    drop(&s);
}

static void test_death(void **state)
{
    (void)state;
    expect_death(1, 2);
    expect_death(2, 3);
    expect_death(2, 0);
}

/* A rank that is killed while others are still missing ends the wait. */
static void test_death_while_waiting(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    for (uint32_t r = 0; r < 3; r++) {
        role me = make_role(r, 4, where, "");
        start(&s, &me);
    }
    poll(NULL, 0, 6000); /* by then they have come */
    kill(s.pids[2], SIGKILL);
    int status;
    waitpid(s.pids[2], &status, 0);
    s.n = 2;
    finish(&s);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s.seen[i].open, TUTTI_EBOOT);
        expect_text(&s.seen[i], "rank 2 left before all ranks had come");
    }
    drop(&s);
}

static void test_nowhere(void **state)
{
    (void)state;
    scene s = {0};
    role me = make_role(0, 2, "", "");
    start(&s, &me);
    me = make_role(0, 2, "nonsense", "");
    start(&s, &me);
    finish(&s);
    assert_int_equal(s.seen[0].open, TUTTI_ECONFIG);
    expect_text(&s.seen[0], "TUTTI_ADDR");
    assert_int_equal(s.seen[1].open, TUTTI_ECONFIG);
    expect_text(&s.seen[1], "\"nonsense\"");
    drop(&s);
}

/* Whoever it is, all learn it, and all meet once more. */
static void test_called_off(void **state)
{
    (void)state;
    for (uint32_t who = 0; who < 3; who += 2) {
        char where[64];
        loopback(where, sizeof(where), "127.0.0.1");
        scene s = {0};
        for (uint32_t r = 0; r < 4; r++) {
            role me = make_role(r, 4, where, "");
            me.calls_off = r == who;
            me.waits = r != who && r != 3;
            start(&s, &me);
        }
        finish(&s);
        for (uint32_t r = 0; r < 4; r++) {
            assert_int_equal(s.seen[r].exchange, TUTTI_OK);
            assert_true(s.seen[r].is_right);
            assert_int_equal(s.seen[r].was_told, r != who && r != 3);
            if (s.seen[r].was_told)
                expect_text(&s.seen[r], "has called the start off");
        }
        drop(&s);
    }
}

/* What goes one way: rank 0 hears all, then all hear rank 0, time and again;
 * and what rank 0 says when it gives up. */
static void play_one_way(uint32_t rank, uint32_t n, const char *job,
                         outcome *seen)
{
    tutti_diag diag;
    tt_diag_clear(&diag);
    tt_settings settings = {.start_timeout_ns = 40 * TT_NS_PER_S};
    tt_launch launch = {.rank = rank, .n_ranks = n};
    snprintf(launch.job, sizeof(launch.job), "%s", job);
    tt_boot *boot = NULL;
    seen->open = tt_boot_open(&launch, &settings, &tt_mem_std,
                              tt_now_ns() + settings.start_timeout_ns, &boot,
                              &diag);
    tt_boot_phase(boot, "the test", 20 * TT_NS_PER_S);
    seen->is_right = true;
    for (uint32_t round = 0; round < 100; round++) {
        uint32_t mine[3] = {rank, round, rank * round}, all[3 * MOST] = {0};
        uint32_t said[2] = {rank == 0 ? round : 0, rank == 0 ? 7 : 0};
        if (tt_boot_collect(boot, mine, sizeof(mine), all, &diag) ||
            tt_boot_share(boot, said, sizeof(said), &diag))
            seen->is_right = false;
        seen->is_right &= said[0] == round && said[1] == 7;
        for (uint32_t r = 0; rank == 0 && r < n; r++)
            seen->is_right &= all[3 * r] == r && all[3 * r + 1] == round &&
                              all[3 * r + 2] == r * round;
    }
    if (rank == 0) {
        tutti_diag why;
        tt_fail(&why, TUTTI_ENET, "the network is not what it was");
        tt_boot_fail(boot, TUTTI_ENET, &why);
    }
    char byte = 0;
    tt_boot_collect(boot, &byte, 1, rank == 0 ? (char[MOST]){0} : NULL, &diag);
    seen->exchange = tt_boot_share(boot, &byte, 1, &diag);
    snprintf(seen->text, sizeof(seen->text), "%s", diag.text);
    tt_boot_close(boot);
}

static void test_one_way(void **state)
{
    (void)state;
    char job[64];
    snprintf(job, sizeof(job), "boot_test one way %ld", (long)getpid());
    for (uint32_t n = 1; n <= 5; n += 2) {
        outcome *seen = mmap(NULL, MOST * sizeof(*seen), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(seen, MAP_FAILED);
        for (uint32_t r = 0; r < n; r++) {
            if (fork() == 0) {
                play_one_way(r, n, job, &seen[r]);
                _exit(0);
            }
        }
        for (uint32_t r = 0; r < n; r++)
            assert_true(wait(NULL) > 0);
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(seen[r].open, TUTTI_OK);
            assert_true(seen[r].is_right);
            assert_int_equal(seen[r].exchange, TUTTI_ENET);
            expect_text(&seen[r], "the network is not what it was");
        }
        munmap(seen, MOST * sizeof(*seen));
    }
}

/* Rank 0 takes longer than the others would wait, but says that it is alive;
 * then it is stopped. */
static void play_stopped(uint32_t rank, uint32_t n, const char *job,
                         outcome *seen)
{
    tutti_diag diag;
    tt_diag_clear(&diag);
    tt_settings settings = {.start_timeout_ns = 40 * TT_NS_PER_S};
    tt_launch launch = {.rank = rank, .n_ranks = n};
    snprintf(launch.job, sizeof(launch.job), "%s", job);
    tt_boot *boot = NULL;
    seen->open = tt_boot_open(&launch, &settings, &tt_mem_std,
                              tt_now_ns() + settings.start_timeout_ns, &boot,
                              &diag);
    tt_boot_phase(boot, "the test", 3 * TT_NS_PER_S);
    tt_boot_beats(boot);
    uint32_t said = rank == 0 ? 7 : 0;
    uint64_t until_ns = tt_now_ns() + 6500 * TT_NS_PER_MS;
    while (rank == 0 && tt_now_ns() < until_ns) {
        tt_boot_alive(boot);
        poll(NULL, 0, 50);
    }
    seen->is_right = !tt_boot_share(boot, &said, sizeof(said), &diag) &&
                     said == 7;
    uint64_t start = tt_now_ns();
    if (rank == 0)
        kill(getpid(), SIGSTOP);
    seen->exchange = tt_boot_share(boot, &said, sizeof(said), &diag);
    seen->seconds = (double)(tt_now_ns() - start) / TT_NS_PER_S;
    seen->blamed = diag.rank;
    snprintf(seen->text, sizeof(seen->text), "%s", diag.text);
    tt_boot_close(boot);
}

static void test_stopped_rank_0(void **state)
{
    enum { N = 3 };
    (void)state;
    char job[64];
    snprintf(job, sizeof(job), "boot_test stopped %ld", (long)getpid());
    outcome *seen = mmap(NULL, N * sizeof(*seen), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    pid_t pids[N];
    for (uint32_t r = 0; r < N; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            play_stopped(r, N, job, &seen[r]);
            _exit(0);
        }
    }
    for (uint32_t r = N; r-- > 0;) {
        if (r == 0)
            kill(pids[0], SIGKILL);
        assert_int_equal(waitpid(pids[r], NULL, 0), pids[r]);
    }
    for (uint32_t r = 0; r < N; r++) {
        assert_int_equal(seen[r].open, TUTTI_OK);
        assert_true(seen[r].is_right);
    }
    for (uint32_t r = 1; r < N; r++) {
        assert_int_equal(seen[r].exchange, TUTTI_ETIMEOUT);
        assert_int_equal(seen[r].blamed, 0);
        expect_text(&seen[r], "has not been heard of for 5 s during the test");
        assert_true(seen[r].seconds < 30);
    }
    munmap(seen, N * sizeof(*seen));
}

int main(void)
{
    tt_log_setup(TUTTI_LOG_ERROR); /* strangers are worth a warning */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meet),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_late_rank_0),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_unix),
        cmocka_unit_test(test_inherited_listener),
        cmocka_unit_test(test_missing_ranks),
        cmocka_unit_test(test_no_rank_0),
        cmocka_unit_test(test_wrong_size),
        cmocka_unit_test(test_other_size),
        cmocka_unit_test(test_duplicate_rank),
        cmocka_unit_test(test_other_job),
        cmocka_unit_test(test_told_of_others),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_passers_by),
        cmocka_unit_test(test_other_answers),
        cmocka_unit_test(test_hung_up),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_death_while_waiting),
        cmocka_unit_test(test_nowhere),
        cmocka_unit_test(test_called_off),
        cmocka_unit_test(test_one_way),
        cmocka_unit_test(test_stopped_rank_0),
    };
    return TT_RUN_TAP(tests);
}
