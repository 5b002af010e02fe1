/* SPDX-License-Identifier: BSD-3-Clause
 * seal_test.c - the layer that seals a stream: what is sent is what is read, in
 * any pieces; what was changed, left out, repeated or sent back is never
 * read. */
#include "support/tap.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/mem.h"
#include "base/rng.h"
#include "link/seal.h"
#include "support/rough.h"
#include "support/seed.h"
#include "support/trusts.h"

#define MOST (300 * 1024)

static const char ours[] = "0123456789abcdef0123456789abcdef";
static const char theirs[] = "0123456789abcdef0123456789abcdeg";

/* Two ends, and the wire between, which the test moves by hand: what a sends is
 * read at at_a, what is written at at_b comes to b. */
typedef struct wire {
    tt_link_stream a, b; /* a has dialled */
    int at_a, at_b;
    tt_trust *trust;
} wire;

static void open_pair(tt_link_stream *s, int *other)
{
    int fds[2];
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
        0);
    tt_fork_watch(fds[0]);
    tt_link_stream_open(s, fds[0]);
    *other = fds[1];
}

static void begin_wire(wire *w, tt_trust *a, tt_trust *b)
{
    open_pair(&w->a, &w->at_a);
    open_pair(&w->b, &w->at_b);
    assert_true(tt_seal_begin(&w->a, a, true, 0));
    assert_true(tt_seal_begin(&w->b, b, false, 0));
    w->trust = NULL;
}

/* At most so many bytes. Returns how many, or -1: the end. */
static ssize_t pump(int from, int to, size_t most)
{
    static char buf[MOST];
    ssize_t n = recv(from, buf, most < MOST ? most : MOST, 0);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    if (n > 0)
        assert_int_equal(send(to, buf, (size_t)n, MSG_NOSIGNAL), n);
    return n > 0 ? n : -1;
}

/* How it ends, `most` bytes at a time. */
static tt_seal_step shake(wire *w, size_t most, tt_link_why *why_a,
                          tt_link_why *why_b)
{
    tt_seal_step a = TT_SEAL_WAITS, b = TT_SEAL_WAITS;
    for (int i = 0; i < 100000; i++) {
        if (a == TT_SEAL_WAITS)
            a = tt_seal_shake(&w->a, why_a);
        ssize_t moved = pump(w->at_a, w->at_b, most);
        if (b == TT_SEAL_WAITS)
            b = tt_seal_shake(&w->b, why_b);
        moved += pump(w->at_b, w->at_a, most);
        if (a != TT_SEAL_WAITS && b != TT_SEAL_WAITS)
            break;
        if (moved == 0 && (a == TT_SEAL_FAILED || b == TT_SEAL_FAILED))
            break;
    }
    return a == TT_SEAL_DONE ? b : a;
}

static void open_wire_of(wire *w, tt_trust *t)
{
    tt_link_why why;
    begin_wire(w, t, t);
    w->trust = t;
    assert_int_equal(shake(w, MOST, &why, &why), TT_SEAL_DONE);
    assert_true(tt_seal_settle(&w->a, false));
    assert_true(tt_seal_settle(&w->b, false));
}

static void open_wire(wire *w)
{
    open_wire_of(w, tt_test_by_secret(ours));
}

static void close_wire(wire *w)
{
    tt_link_stream_close(&w->a);
    tt_link_stream_close(&w->b);
    close(w->at_a);
    close(w->at_b);
    tt_trust_close(w->trust);
}

static ssize_t say(tt_link_stream *s, const char *text)
{
    const struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};
    return tt_link_send(s, &iov, 1);
}

static void expect(tt_link_stream *s, const char *text)
{
    char got[64] = "";
    const struct iovec iov = {got, strlen(text)};
    assert_int_equal(tt_link_recv(s, &iov, 1), strlen(text));
    assert_string_equal(got, text);
}

static void expect_error(tt_link_stream *s, int err)
{
    char got[64];
    const struct iovec iov = {got, sizeof(got)};
    assert_int_equal(tt_link_recv(s, &iov, 1), -1);
    assert_int_equal(errno, err);
}

/* ----------------------------------------------------------- handshakes -- */

static void test_proof(void **state)
{
    (void)state;
    tt_trust *t[2] = {tt_test_by_secret(ours), tt_test_by_secret(theirs)};
    for (int i = 0; i < 4; i++) {
        tt_link_why a = TT_LINK_WELL, b = TT_LINK_WELL;
        wire w;
        begin_wire(&w, t[i & 1], t[i / 2]);
        bool is_same = (i & 1) == i / 2;
        assert_int_equal(shake(&w, i == 0 ? 1 : MOST, &a, &b),
                         is_same ? TT_SEAL_DONE : TT_SEAL_FAILED);
        assert_int_equal(a, is_same ? TT_LINK_WELL : TT_LINK_OTHER_SECRET);
        assert_int_equal(b, is_same ? TT_LINK_WELL : TT_LINK_OTHER_SECRET);
        close_wire(&w);
    }
    tt_trust_close(t[0]);
    tt_trust_close(t[1]);
}

/* What one has said to another is worth nothing when it is said again, or to
 * whom it came from. */
static void test_replay(void **state)
{
    (void)state;
    static char said[8192];
    tt_trust *t = tt_test_by_secret(ours);
    for (int to_dialler = 0; to_dialler < 2; to_dialler++) {
        tt_link_why why = TT_LINK_WELL;
        size_t n = 0;
        wire w, again;
        begin_wire(&w, t, t);
        for (int i = 0; i < 4; i++) {
            tt_seal_shake(&w.a, &why);
            if (i == 3)
                assert_int_equal(say(&w.a, "model"), 5);
            ssize_t m = recv(w.at_a, said + n, sizeof(said) - n, 0);
            if (m > 0)
                assert_int_equal(write(w.at_b, said + n, (size_t)m), m);
            n += m > 0 ? (size_t)m : 0;
            tt_seal_shake(&w.b, &why);
            pump(w.at_b, w.at_a, MOST);
        }
        expect(&w.b, "model");
        begin_wire(&again, t, t);
        tt_link_stream *s = to_dialler ? &again.a : &again.b;
        tt_seal_shake(s, &why);
        (void)!write(to_dialler ? again.at_a : again.at_b, said, n);
        assert_int_equal(tt_seal_shake(s, &why), TT_SEAL_FAILED);
        close_wire(&w);
        close_wire(&again);
    }
    tt_trust_close(t);
}

/* Whatever bit of a handshake is changed, it fails, or stands as it should. */
static void test_changed_handshake(void **state)
{
    (void)state;
    tt_trust *t = tt_test_by_secret(ours);
    tt_rng rng = {.state = tt_test_seed(7)};
    uint32_t n_failed = 0;
    for (int i = 0; i < 300; i++) {
        tt_link_why why;
        wire w;
        begin_wire(&w, t, t);
        tt_seal_step a = TT_SEAL_WAITS, b = TT_SEAL_WAITS;
        for (int turn = 0; turn < 4; turn++) {
            char bytes[4096];
            if (a == TT_SEAL_WAITS)
                a = tt_seal_shake(&w.a, &why);
            ssize_t n = recv(w.at_a, bytes, sizeof(bytes), 0);
            if (n > 0 && turn == (i & 1))
                bytes[tt_rng_below(&rng, (uint64_t)n)] ^=
                    (char)(1 << tt_rng_below(&rng, 8));
            (void)!send(w.at_b, bytes, n > 0 ? (size_t)n : 0, MSG_NOSIGNAL);
            if (b == TT_SEAL_WAITS)
                b = tt_seal_shake(&w.b, &why);
            pump(w.at_b, w.at_a, MOST);
        }
        assert_true(b != TT_SEAL_DONE);
        n_failed += b == TT_SEAL_FAILED;
        close_wire(&w);
    }
    printf("# %u of 300 failed, the others wait for more\n", n_failed);
    assert_true(n_failed > 200);
    tt_trust_close(t);
}

/* --------------------------------------------------------------- bytes -- */

static uint8_t byte_at(uint64_t at, int way)
{
    return (uint8_t)((at * 0x9e3779b97f4a7c15u >> 32) + (uint64_t)way * 7);
}

/* Sends a random number of bytes from `at` on in random pieces. */
static size_t send_some(tt_link_stream *s, tt_rng *rng, uint64_t at, int way)
{
    static uint8_t out[MOST];
    struct iovec iov[9];
    int n = 1 + (int)tt_rng_below(rng, 8);
    size_t all = 0;
    for (int i = 0; i < n; i++) {
        size_t len = tt_rng_below(rng, UINT64_C(1) << tt_rng_below(rng, 16));
        iov[i] = (struct iovec){out + all, len};
        all += len;
    }
    for (size_t i = 0; i < all; i++)
        out[i] = byte_at(at + i, way);
    ssize_t sent = tt_link_send(s, iov, n);
    if (sent < 0)
        assert_int_equal(errno, EAGAIN);
    return sent > 0 ? (size_t)sent : 0;
}

static size_t recv_some(tt_link_stream *s, tt_rng *rng, uint64_t at, int way)
{
    static uint8_t in[MOST];
    size_t first = 1 + tt_rng_below(rng, UINT64_C(1) << tt_rng_below(rng, 17));
    const struct iovec iov[2] = {{in, first}, {in + first, 1000}};
    ssize_t got = tt_link_recv(s, iov, 2);
    if (got < 0)
        assert_int_equal(errno, EAGAIN);
    for (ssize_t i = 0; i < got; i++)
        assert_int_equal(in[i], byte_at(at + (uint64_t)i, way));
    return got > 0 ? (size_t)got : 0;
}

/* Both ways at once, over a wire that gives and takes as it likes, or under
 * one. */
static void run_both_ways(uint64_t seed, bool is_below, bool is_above)
{
    int fds[2];
    tt_link_stream s[2];
    tt_link_why why;
    tt_trust *t = tt_test_by_secret(ours);
    tt_rng rng = {.state = seed};
    uint64_t sent[2] = {0}, got[2] = {0};
    const uint64_t all = 2000000;
    tt_trust_rekey_after(t, 5);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    for (int i = 0; i < 2; i++) {
        const tt_rough_opts o = {.seed = seed + (uint64_t)i};
        tt_fork_watch(fds[i]);
        tt_link_stream_open(&s[i], fds[i]);
        if (is_below)
            tt_rough_put(&s[i], &o);
        assert_true(tt_seal_begin(&s[i], t, i == 0, 0));
    }
    bool is_done[2] = {false, false};
    while (!is_done[0] || !is_done[1])
        for (int i = 0; i < 2; i++) {
            tt_seal_step step = is_done[i] ? TT_SEAL_DONE
                                           : tt_seal_shake(&s[i], &why);
            assert_int_not_equal(step, TT_SEAL_FAILED);
            is_done[i] = step == TT_SEAL_DONE;
        }
    for (int i = 0; i < 2; i++) {
        const tt_rough_opts o = {.seed = seed + 2 + (uint64_t)i};
        assert_true(tt_seal_settle(&s[i], false));
        if (is_above)
            tt_rough_put(&s[i], &o);
    }
    while (got[0] < all || got[1] < all || got[0] < sent[0] ||
           got[1] < sent[1]) {
        int from = (int)tt_rng_below(&rng, 2);
        if (sent[from] < all)
            sent[from] += send_some(&s[from], &rng, sent[from], from);
        else
            tt_link_send(&s[from], NULL, 0);
        from = (int)tt_rng_below(&rng, 2);
        got[from] += recv_some(&s[!from], &rng, got[from], from);
    }
    assert_int_equal(got[0], sent[0]);
    assert_int_equal(got[1], sent[1]);
    tt_link_stream_close(&s[0]);
    tt_link_stream_close(&s[1]);
    tt_trust_close(t);
}

static void test_both_ways(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    printf("# TT_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 12; i++)
        run_both_ways(seed + 10 * i, i & 1, i & 2);
}

/* Half a record is not pending, or its owner would never sleep; a whole one
 * is. */
static void test_pending(void **state)
{
    (void)state;
    wire w;
    open_wire(&w);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(say(&w.a, "0123456789"), 10);
        while (pump(w.at_a, w.at_b, 1) > 0) {
            char got[64];
            const struct iovec iov = {got, 4};
            ssize_t n = tt_link_recv(&w.b, &iov, 1);
            if (n < 0)
                assert_int_equal(tt_link_pending(&w.b), 0);
            else
                assert_int_equal(tt_link_pending(&w.b), 6);
        }
        expect(&w.b, "456789");
        assert_int_equal(tt_link_pending(&w.b), 0);
        /* Two in one read: the second one is told of. */
        assert_int_equal(say(&w.a, "first"), 5);
        assert_int_equal(say(&w.a, "second"), 6);
        pump(w.at_a, w.at_b, MOST);
        expect(&w.b, "first");
        assert_true(tt_link_pending(&w.b) > 0);
        expect(&w.b, "second");
        assert_int_equal(tt_link_pending(&w.b), 0);
        expect_error(&w.b, EAGAIN);
    }
    close_wire(&w);
}

/* What was not taken may be offered later, or something else instead. */
static void test_full(void **state)
{
    (void)state;
    static char zeros[MOST], got[MOST];
    const struct iovec whole = {zeros, MOST};
    const int few = 4096;
    wire w;
    open_wire(&w);
    setsockopt(w.a.fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof(few));
    size_t taken = 0;
    for (ssize_t n = 1; n > 0;) {
        n = tt_link_send(&w.a, &whole, 1);
        taken += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(errno, EAGAIN);
    assert_true(tt_link_unsent(&w.a) > 0);
    assert_true(taken < 290 * 1024); /* the rest can still be changed */
    size_t n_got = 0;
    while (tt_link_unsent(&w.a) > 0 || n_got < taken) {
        tt_link_send(&w.a, NULL, 0);
        pump(w.at_a, w.at_b, MOST);
        const struct iovec in = {got, MOST};
        ssize_t n = tt_link_recv(&w.b, &in, 1);
        n_got += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(n_got, taken);
    assert_int_equal(say(&w.a, "else"), 4);
    assert_int_equal(tt_link_unsent(&w.a), 0);
    pump(w.at_a, w.at_b, MOST);
    expect(&w.b, "else");
    close_wire(&w);
}

/* Words inside, then the bytes themselves, in one read of the wire. */
static void test_bare(void **state)
{
    (void)state;
    wire w;
    tt_link_why why;
    tt_trust *t = tt_test_by_secret(ours);
    for (int is_reply = 0; is_reply < 2; is_reply++) {
        begin_wire(&w, t, t);
        assert_int_equal(shake(&w, MOST, &why, &why), TT_SEAL_DONE);
        assert_int_equal(say(&w.a, "who I am"), 8);
        if (is_reply) {
            pump(w.at_a, w.at_b, MOST);
            expect(&w.b, "who I am");
            assert_int_equal(say(&w.b, "come in"), 7);
            pump(w.at_b, w.at_a, MOST);
            expect(&w.a, "come in");
            assert_int_equal(say(&w.a, "who I am"), 8);
        }
        assert_true(tt_seal_settle(&w.a, true));
        assert_null(w.a.layer);
        assert_int_equal(say(&w.a, "plain"), 5);
        pump(w.at_a, w.at_b, MOST);
        expect(&w.b, "who I am");
        assert_true(tt_seal_settle(&w.b, true));
        expect(&w.b, "plain");
        assert_int_equal(say(&w.b, "text"), 4);
        pump(w.at_b, w.at_a, MOST);
        expect(&w.a, "text");
        close_wire(&w);
    }
    tt_trust_close(t);
}

static void test_rekey(void **state)
{
    (void)state;
    char bytes[256];
    wire w;
    open_wire(&w);
    tt_trust_rekey_after(w.trust, 3);
    size_t n_long = 0;
    for (int i = 0; i < 30; i++) {
        assert_int_equal(say(&w.a, "abc"), 3);
        ssize_t n = recv(w.at_a, bytes, sizeof(bytes), 0);
        n_long += n > 3 + 22; /* a word about the key goes with it */
        assert_int_equal(write(w.at_b, bytes, (size_t)n), n);
        expect(&w.b, "abc");
        assert_int_equal(tt_link_pending(&w.b), 0);
    }
    assert_true(n_long >= 9 && n_long <= 10);
    assert_int_equal(say(&w.b, "xyz"), 3);
    pump(w.at_b, w.at_a, MOST);
    expect(&w.a, "xyz");
    close_wire(&w);
}

/* -------------------------------------------------------------- faults -- */

/* Two records come, and the bit `at` of them is another one: the record before
 * it is read, and nothing after it. */
static void flip_one(int from, int to, tt_link_stream *s, size_t at)
{
    enum { RECORD = 32 };
    char bytes[2 * RECORD + 1], got[64];
    const struct iovec iov = {got, sizeof(got)};
    assert_int_equal(recv(from, bytes, sizeof(bytes), 0), 2 * RECORD);
    bytes[at / 8] ^= (char)(1 << at % 8);
    assert_int_equal(write(to, bytes, 2 * RECORD), 2 * RECORD);
    shutdown(to, SHUT_WR); /* or a length that grew would be waited for */
    if (at / 8 >= RECORD)
        expect(s, "0123456789");
    int n_tries = 0;
    do
        assert_int_equal(tt_link_recv(s, &iov, 1), -1);
    while (errno == EAGAIN && n_tries++ == 0);
    assert_true(errno == EBADMSG || errno == ECONNRESET);
    assert_int_equal(tt_link_pending(s), 0);
}

/* TT_ROUNDS: so many thousands of flips. */
static uint32_t n_rounds(void)
{
    const char *text = getenv("TT_ROUNDS");
    return text ? (uint32_t)strtoul(text, NULL, 0) : 4;
}

/* Any bit of what is on the wire. */
static void test_flips(void **state)
{
    (void)state;
    const uint64_t wanted = UINT64_C(1000) * n_rounds();
    tt_rng rng = {.state = tt_test_seed(3)};
    tt_trust *t = tt_test_by_secret(ours);
    for (uint64_t i = 0; i < wanted; i += 2) {
        size_t at[2] = {i, i + 1}; /* each bit; then any */
        for (int k = 0; k < 2; k++)
            at[k] = at[k] < 512 ? at[k] : tt_rng_below(&rng, 512);
        wire w;
        open_wire_of(&w, tt_trust_ref(t));
        for (int k = 0; k < 2; k++) {
            assert_int_equal(say(&w.a, k ? "abcdefghij" : "0123456789"), 10);
            assert_int_equal(say(&w.b, k ? "abcdefghij" : "0123456789"), 10);
        }
        flip_one(w.at_a, w.at_b, &w.b, at[0]);
        flip_one(w.at_b, w.at_a, &w.a, at[1]);
        close_wire(&w);
    }
    printf("# %llu flips, all found\n", (unsigned long long)wanted);
    tt_trust_close(t);
}

/* The end that sent it hears of it. */
static void test_told(void **state)
{
    (void)state;
    char bytes[64];
    wire w;
    open_wire(&w);
    assert_int_equal(say(&w.a, "0123456789"), 10);
    assert_int_equal(recv(w.at_a, bytes, sizeof(bytes), 0), 32);
    bytes[20] ^= 1;
    assert_int_equal(write(w.at_b, bytes, 32), 32);
    expect_error(&w.b, EBADMSG);
    expect_error(&w.b, EBADMSG); /* for good */
    assert_int_equal(say(&w.b, "x"), -1);
    assert_int_equal(errno, EBADMSG);
    assert_non_null(strstr(tt_link_error_text(EBADMSG), "changed"));
    close_wire(&w);
}

/* 0: one is left out, 1: comes twice, 2: comes before the one before it, 3:
 * comes back to who sent it. */
static void run_record(int how)
{
    char one[64], two[64];
    wire w;
    open_wire(&w);
    assert_int_equal(say(&w.a, "first"), 5);
    ssize_t n_one = recv(w.at_a, one, sizeof(one), 0);
    assert_int_equal(say(&w.a, "later"), 5);
    ssize_t n_two = recv(w.at_a, two, sizeof(two), 0);
    assert_true(n_one > 0 && n_two > 0);
    if (how == 1) {
        assert_int_equal(write(w.at_b, one, (size_t)n_one), n_one);
        expect(&w.b, "first");
        assert_int_equal(write(w.at_b, one, (size_t)n_one), n_one);
    } else if (how == 3) {
        assert_int_equal(write(w.at_a, one, (size_t)n_one), n_one);
    } else {
        assert_int_equal(write(w.at_b, two, (size_t)n_two), n_two);
        if (how == 2)
            assert_int_equal(write(w.at_b, one, (size_t)n_one), n_one);
    }
    expect_error(how == 3 ? &w.a : &w.b, EBADMSG);
    close_wire(&w);
}

static void test_records(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++)
        run_record(how);
}

/* ------------------------------------------------------------- the end -- */

static void test_end(void **state)
{
    (void)state;
    char got[8];
    const struct iovec iov = {got, sizeof(got)};
    wire w;
    open_wire(&w);
    /* One direction ends, the other one goes on. */
    assert_int_equal(say(&w.a, "last"), 4);
    assert_true(tt_link_end(&w.a));
    while (pump(w.at_a, w.at_b, MOST) >= 0)
        continue;
    assert_int_equal(tt_link_recv(&w.b, &iov, 1), 4);
    assert_int_equal(tt_link_recv(&w.b, &iov, 1), 0);
    assert_int_equal(tt_link_recv(&w.b, &iov, 1), 0);
    assert_int_equal(say(&w.b, "reply"), 5);
    pump(w.at_b, w.at_a, MOST);
    expect(&w.a, "reply");
    /* Closing says so too. */
    tt_link_stream_close(&w.b);
    while (pump(w.at_b, w.at_a, MOST) >= 0)
        continue;
    assert_int_equal(tt_link_recv(&w.a, &iov, 1), 0);
    close_wire(&w);
}

/* Whoever cuts the wire has not said that this is the end. */
static void test_cut(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        wire w;
        open_wire(&w);
        assert_int_equal(say(&w.a, "last"), 4);
        pump(w.at_a, w.at_b, MOST);
        if (half) {
            assert_int_equal(say(&w.a, "half of it"), 10);
            pump(w.at_a, w.at_b, 20);
        }
        close(w.at_b);
        w.at_b = -1;
        expect(&w.b, "last");
        expect_error(&w.b, ECONNRESET);
        close_wire(&w);
    }
}

/* A child forgets its copy; nothing of it reaches the other side. */
static void test_fork(void **state)
{
    (void)state;
    wire w;
    open_wire(&w);
    assert_int_equal(say(&w.a, "before"), 6);
    pid_t child = fork();
    if (child == 0) {
        tt_link_stream_close(&w.a);
        tt_link_stream_close(&w.b);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(say(&w.a, "after"), 5);
    pump(w.at_a, w.at_b, MOST);
    expect(&w.b, "beforeafter");
    close_wire(&w);
}

/* An idle stream costs at most 64 KiB, though it was busy. */
static void test_idle_memory(void **state)
{
    (void)state;
    enum { N = 50 };
    static wire w[N];
    static char zeros[100000], got[MOST];
    const struct iovec out = {zeros, sizeof(zeros)}, in = {got, MOST};
    tt_trust *t = tt_test_by_secret(ours);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (int i = 0; i < N; i++) {
        open_wire_of(&w[i], tt_trust_ref(t));
        assert_true(tt_link_send(&w[i].a, &out, 1) > 0);
        while (tt_link_unsent(&w[i].a) > 0 ||
               pump(w[i].at_a, w[i].at_b, MOST) > 0) {
            tt_link_send(&w[i].a, NULL, 0);
            (void)!tt_link_recv(&w[i].b, &in, 1);
        }
    }
    size_t each = (mallinfo2().uordblks + mallinfo2().hblkhd - before) / N / 2;
    printf("# an idle stream has %zu bytes\n", each);
    for (int i = 0; i < N; i++)
        close_wire(&w[i]);
    tt_trust_close(t);
#ifndef __SANITIZE_ADDRESS__
    assert_true(each <= 64 * 1024);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proof),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_changed_handshake),
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_pending),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_bare),
        cmocka_unit_test(test_rekey),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_idle_memory),
    };
    tt_test_limit(120 + 3 * n_rounds());
    if (!TT_HAVE_OPENSSL) {
        printf("1..0 # SKIP built without OpenSSL\n");
        return 77;
    }
    return TT_RUN_TAP(tests);
}
