/* SPDX-License-Identifier: BSD-3-Clause
 * resume_test.c - a stream that outlives its sockets: cut at every byte, by
 * either end or both, again and again, with and without a seal; every byte
 * comes once. What cannot go on says so. */
#include "support/tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/rng.h"
#include "link/seal.h"
#include "support/alloc.h"
#include "support/rough.h"
#include "support/seed.h"

static uint64_t seed;
static tt_trust *trust;
static bool is_prompt; /* all that was sent is acknowledged at once */
static int n_asked;    /* how often the kernel was, of what is unacknowledged */

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    int *out = va_arg(args, int *);
    va_end(args);
    int rc = (int)syscall(SYS_ioctl, fd, request, out);
    n_asked++;
    if (is_prompt)
        *out = 0;
    return rc;
}

/* One end, and what has passed it. */
typedef struct end {
    tt_link_stream s;
    uint64_t n_sent, n_got, total; /* total: what it has to send */
    unsigned salt;                 /* of what it sends */
    /* [total] what it sends from; spoiled as soon as that may be. NULL: it
     * lends nothing. */
    unsigned char *lent;
    uint64_t n_free; /* of that, spoiled */
} end;

typedef struct pair {
    end a, b;
    bool is_sealed;
    uint64_t rough; /* a seed: sockets that take and give as they like */
    tt_rng rng;
    uint32_t n_cuts;
} pair;

static unsigned char byte_at(unsigned salt, uint64_t k)
{
    return (unsigned char)((k * 31 + (k >> 8) * 7 + salt) & 255);
}

/* --------------------------------------------------------------- sockets -- */

/* Two ends of a TCP connection: a unix socket forgets nothing. */
static void open_tcp(int fds[2], int recv_bytes)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int ear = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(ear >= 0);
    if (recv_bytes > 0)
        setsockopt(ear, SOL_SOCKET, SO_RCVBUF, &recv_bytes, sizeof(recv_bytes));
    assert_int_equal(bind(ear, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(ear, 1), 0);
    assert_int_equal(getsockname(ear, (struct sockaddr *)&at, &len), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&at, len), 0);
    fds[1] = accept4(ear, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    close(ear);
    for (int i = 0; i < 2; i++) {
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
        tt_fork_watch(fds[i]);
    }
}

static void seal(tt_link_stream *a, tt_link_stream *b)
{
    tt_link_why why;
    tt_seal_step at_a = TT_SEAL_WAITS, at_b = TT_SEAL_WAITS;
    assert_true(tt_seal_begin(a, trust, true, 0));
    assert_true(tt_seal_begin(b, trust, false, 0));
    while (at_a != TT_SEAL_DONE || at_b != TT_SEAL_DONE) {
        if (at_a != TT_SEAL_DONE)
            at_a = tt_seal_shake(a, &why);
        if (at_b != TT_SEAL_DONE)
            at_b = tt_seal_shake(b, &why);
        assert_true(at_a != TT_SEAL_FAILED && at_b != TT_SEAL_FAILED);
    }
    tt_seal_settle(a, false);
    tt_seal_settle(b, false);
}

static void open_streams(pair *p, tt_link_stream *a, tt_link_stream *b)
{
    int fds[2];
    open_tcp(fds, 0);
    tt_link_stream_open(a, fds[0]);
    tt_link_stream_open(b, fds[1]);
    if (p->is_sealed)
        seal(a, b);
    if (p->rough == 0)
        return;
    tt_rough_put(a, &(tt_rough_opts){.seed = p->rough++});
    tt_rough_put(b, &(tt_rough_opts){.seed = p->rough++});
}

static void begin(pair *p, uint64_t total_a, uint64_t total_b, size_t most)
{
    p->a = (end){.total = total_a, .salt = 1};
    p->b = (end){.total = total_b, .salt = 77};
    open_streams(p, &p->a.s, &p->b.s);
    assert_true(tt_resume_begin(&p->a.s, &tt_mem_std, most));
    assert_true(tt_resume_begin(&p->b.s, &tt_mem_std, most));
}

/* From now on what it sends is lent. */
static void lend(end *e)
{
    e->lent = malloc(e->total);
    assert_non_null(e->lent);
    for (uint64_t k = 0; k < e->total; k++)
        e->lent[k] = byte_at(e->salt, k);
}

/* What is not lent any more is the sender's again. */
static void spoil(end *e)
{
    const uint64_t upto = e->n_sent - tt_resume_lent(&e->s);
    assert_true(tt_resume_lent(&e->s) <= e->n_sent && upto >= e->n_free);
    memset(e->lent + e->n_free, 0xee, upto - e->n_free);
    e->n_free = upto;
}

static void finish(pair *p)
{
    free(p->a.lent);
    free(p->b.lent);
    tt_link_stream_close(&p->a.s);
    tt_link_stream_close(&p->b.s);
}

/* ------------------------------------------------------------- one step -- */

/* As the transport does: errors and ends cut. */
static void cut_on(end *e, ssize_t n)
{
    if (n == 0 || (n < 0 && errno != EAGAIN))
        assert_true(tt_resume_cut(&e->s));
}

static void send_some(end *e, size_t most)
{
    static unsigned char buf[64 * 1024];
    size_t n = e->total - e->n_sent < most ? (size_t)(e->total - e->n_sent)
                                           : most;
    for (size_t i = 0; i < n; i++)
        buf[i] = byte_at(e->salt, e->n_sent + i);
    unsigned char *from = e->lent ? e->lent + e->n_sent : buf;
    /* In two pieces. */
    const struct iovec iov[2] = {{from, n / 3}, {from + n / 3, n - n / 3}};
    e->s.lends = e->lent != NULL;
    ssize_t sent = tt_link_send(&e->s, iov, n > 0 ? 2 : 0);
    e->n_sent += sent > 0 ? (uint64_t)sent : 0;
    if (sent < 0)
        cut_on(e, sent);
    if (e->lent)
        spoil(e);
}

static void recv_some(end *e, const end *from, size_t most)
{
    static unsigned char buf[64 * 1024];
    const struct iovec iov = {buf, most};
    ssize_t n = tt_link_recv(&e->s, &iov, 1);
    for (ssize_t i = 0; i < n; i++)
        assert_int_equal(buf[i], byte_at(from->salt, e->n_got + (uint64_t)i));
    e->n_got += n > 0 ? (uint64_t)n : 0;
    assert_true(e->n_got <= from->n_sent);
    cut_on(e, n);
}

/* A new socket, if one of them is without; both go on by it. */
static void mend(pair *p)
{
    tt_link_stream a, b;
    if (p->a.s.fd >= 0 && p->b.s.fd >= 0)
        return;
    assert_true(tt_resume_cut(&p->a.s) && tt_resume_cut(&p->b.s));
    open_streams(p, &a, &b);
    tt_resume_join(&p->a.s, &a);
    tt_resume_join(&p->b.s, &b);
}

static void meet(end *e)
{
    if (tt_resume_is(&e->s) != TT_RESUME_MEETING)
        return;
    int why = tt_resume_step(&e->s);
    if (why != 0 && why != EAGAIN)
        assert_true(tt_resume_cut(&e->s));
    assert_int_not_equal(tt_resume_is(&e->s), TT_RESUME_OVER);
}

/* how: 0: a gives its socket up, 1: b, 2: both, 3 and 4: what is between them
 * ends it. */
static void shoot(pair *p, unsigned how)
{
    p->n_cuts++;
    if (how == 0 || how == 2)
        assert_true(tt_resume_cut(&p->a.s));
    if (how == 1 || how == 2)
        assert_true(tt_resume_cut(&p->b.s));
    if (how == 3 && p->a.s.fd >= 0)
        shutdown(p->a.s.fd, SHUT_RDWR);
    if (how == 4 && p->b.s.fd >= 0)
        shutdown(p->b.s.fd, SHUT_RDWR);
}

static bool is_done(const pair *p)
{
    return p->a.n_got == p->b.total && p->b.n_got == p->a.total;
}

static void step(pair *p, size_t most)
{
    mend(p);
    meet(&p->a);
    meet(&p->b);
    send_some(&p->a, 1 + tt_rng_below(&p->rng, most));
    send_some(&p->b, 1 + tt_rng_below(&p->rng, most));
    recv_some(&p->a, &p->b, 1 + tt_rng_below(&p->rng, most));
    recv_some(&p->b, &p->a, 1 + tt_rng_below(&p->rng, most));
}

/* ----------------------------------------------------------------- tests -- */

/* Each byte of the stream is the last one before a cut. */
static void cut_everywhere(bool is_sealed, uint64_t stride)
{
    for (unsigned how = 0; how < 5; how++)
        for (uint64_t k = 0; k <= 60; k += stride) {
            pair p = {.is_sealed = is_sealed, .rng = {.state = k + how}};
            begin(&p, 60, 50, 1 << 20);
            while (!is_done(&p)) {
                if (p.n_cuts == 0 && p.a.n_sent >= k)
                    shoot(&p, how);
                step(&p, 1);
            }
            assert_int_equal(p.n_cuts, 1);
            finish(&p);
        }
}

static void test_every_byte(void **state)
{
    (void)state;
    cut_everywhere(false, 1);
}

static void test_every_byte_sealed(void **state)
{
    (void)state;
    if (!trust)
        skip();
    cut_everywhere(true, 15);
}

/* Often, also while the ends meet, or what was lost is sent again. */
static void shoot_often(bool is_sealed, bool is_rough, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        pair p = {.is_sealed = is_sealed,
                  .rough = is_rough ? seed + 1000 * i + 1 : 0,
                  .rng = {.state = seed + i}};
        uint64_t often = 2 + tt_rng_below(&p.rng, 40);
        begin(&p, 300000, 200000, 4 << 20);
        while (!is_done(&p)) {
            bool is_first = p.n_cuts == 0 && p.a.n_sent > 1000;
            if (is_first || (p.n_cuts < 30 && tt_rng_below(&p.rng, often) == 0))
                shoot(&p, (unsigned)tt_rng_below(&p.rng, 5));
            step(&p, 60000);
        }
        assert_true(p.n_cuts > 0);
        finish(&p);
    }
}

/* The same from memory that is lent, wanted back now and then, and spoiled as
 * soon as it is back. */
static void shoot_lent(bool is_sealed, uint64_t n)
{
    uint64_t n_lent = 0;
    for (uint64_t i = 0; i < n; i++) {
        pair p = {.is_sealed = is_sealed, .rng = {.state = seed + i}};
        const uint64_t often = 2 + tt_rng_below(&p.rng, 40);
        begin(&p, 600000, 400000, i % 4 == 3 ? 64 << 10 : 4 << 20);
        if (i % 4 == 3)
            p.n_cuts = 30; /* what has no room is not kept */
        lend(&p.a);
        lend(&p.b);
        while (!is_done(&p)) {
            if (p.n_cuts < 30 && tt_rng_below(&p.rng, often) == 0)
                shoot(&p, (unsigned)tt_rng_below(&p.rng, 5));
            step(&p, 60000);
            end *e = tt_rng_below(&p.rng, 2) ? &p.a : &p.b;
            n_lent += tt_resume_lent(&e->s);
            if (tt_rng_below(&p.rng, often) > 0)
                continue;
            tt_resume_settle(&e->s, tt_rng_below(&p.rng, 2) > 0);
            assert_int_equal(tt_resume_lent(&e->s), 0);
            spoil(e);
        }
        finish(&p);
    }
    assert_true(n_lent > 0);
}

static void test_lent(void **state)
{
    (void)state;
    shoot_lent(false, 40);
    if (trust)
        shoot_lent(true, 5);
}

/* Short pieces are copied, and so are those that are too many. */
static void test_lent_bounds(void **state)
{
    (void)state;
    int fds[2];
    static char piece[4096];
    tt_link_stream s;
    open_tcp(fds, 0);
    tt_link_stream_open(&s, fds[0]);
    assert_true(tt_resume_begin(&s, &tt_mem_std, 4 << 20));
    s.lends = true;
    struct iovec iov = {piece, sizeof(piece) - 1};
    assert_int_equal(tt_link_send(&s, &iov, 1), sizeof(piece) - 1);
    assert_int_equal(tt_resume_lent(&s), 0);
    iov.iov_len = sizeof(piece);
    for (size_t i = 1; i <= 300; i++) {
        assert_int_equal(tt_link_send(&s, &iov, 1), sizeof(piece));
        assert_int_equal(tt_resume_lent(&s), i * sizeof(piece));
        static char sink[8192];
        while (recv(fds[1], sink, sizeof(sink), 0) > 0)
            continue;
    }
    s.lends = false;
    assert_int_equal(tt_link_send(&s, &iov, 1), sizeof(piece));
    assert_int_equal(tt_resume_lent(&s), 301 * sizeof(piece));
    tt_resume_settle(&s, true);
    assert_int_equal(tt_resume_lent(&s), 0);
    tt_link_stream_close(&s);
    tt_fork_close(&fds[1]);
}

static void test_often(void **state)
{
    (void)state;
    shoot_often(false, false, 40);
    shoot_often(false, true, 20);
}

static void test_often_sealed(void **state)
{
    (void)state;
    if (!trust)
        skip();
    shoot_often(true, false, 5);
    shoot_often(true, true, 3);
}

/* a sends as much as b's host takes, and more. */
static void fill(pair *p, int most)
{
    int fds[2];
    *p = (pair){.a = {.total = 1 << 20, .salt = 1}, .b = {.salt = 77}};
    open_tcp(fds, 4096);
    tt_link_stream_open(&p->a.s, fds[0]);
    tt_link_stream_open(&p->b.s, fds[1]);
    assert_true(tt_resume_begin(&p->a.s, &tt_mem_std, (size_t)most));
    assert_true(tt_resume_begin(&p->b.s, &tt_mem_std, (size_t)most));
    for (int i = 0; i < 20; i++)
        send_some(&p->a, 16 * 1024);
    assert_true(p->a.n_sent > 200000);
    assert_true(tt_resume_cut(&p->a.s));
    mend(p);
}

static void test_bounded(void **state)
{
    (void)state;
    pair p;
    fill(&p, 4 << 20);
    p.a.total = p.a.n_sent;
    p.rng = (tt_rng){.state = 1};
    while (!is_done(&p))
        step(&p, 10000);
    finish(&p);
    /* What is lost is not kept. */
    fill(&p, 4096);
    int why;
    do {
        tt_resume_step(&p.b.s);
        why = tt_resume_step(&p.a.s);
    } while (why == EAGAIN);
    assert_int_equal(why, ESTALE);
    assert_int_equal(tt_resume_is(&p.a.s), TT_RESUME_OVER);
    finish(&p);
}

/* The other end, as a hears it: by this socket the stream begins. */
static const uint64_t first_word[2] = {UINT64_C(0x6e6f6f67), 0};

/* Somebody between takes all that a sends, and is lost before b has any of it.
 * is_met: it says b's word before that, as one does that passes on. Returns why
 * a does not go on; 0: it does, and b has got all. */
static int lose_between(uint64_t n, bool is_met, bool is_distrusted)
{
    static char taken[64 * 1024];
    int fds[2], why;
    pair p = {.a = {.total = n, .salt = 1}, .b = {.salt = 77}};
    tt_link_stream none;
    p.rng = (tt_rng){.state = 1};
    open_streams(&p, &p.b.s, &none);
    open_tcp(fds, 0);
    tt_link_stream_open(&p.a.s, fds[0]);
    assert_true(tt_resume_begin(&p.a.s, &tt_mem_std, 1 << 20));
    assert_true(tt_resume_begin(&p.b.s, &tt_mem_std, 1 << 20));
    if (is_distrusted)
        tt_resume_distrust(&p.a.s);
    if (is_met)
        assert_int_equal(send(fds[1], first_word, sizeof(first_word), 0),
                         sizeof(first_word));
    recv_some(&p.a, &p.b, 1);
    while (p.a.n_sent < n) {
        send_some(&p.a, 64 * 1024);
        while (recv(fds[1], taken, sizeof(taken), 0) > 0)
            continue;
    }
    tt_link_stream_close(&none);
    tt_fork_close(&fds[1]);
    assert_true(tt_resume_cut(&p.a.s) && tt_resume_cut(&p.b.s));
    mend(&p);
    do {
        tt_resume_step(&p.b.s);
        why = tt_resume_step(&p.a.s);
    } while (why == EAGAIN);
    while (why == 0 && !is_done(&p))
        step(&p, 10000);
    finish(&p);
    return why;
}

static void test_passed_on(void **state)
{
    (void)state;
    assert_int_equal(lose_between(300000, true, false), ESTALE);
    assert_int_equal(lose_between(300000, true, true), 0);
    is_prompt = true; /* so little is kept all the same */
    assert_int_equal(lose_between(1000, true, false), 0);
    is_prompt = false;
}

/* A socket that the other end has never read, as the stream began with another
 * one there: what was acknowledged goes again. */
static void test_dropped_unread(void **state)
{
    (void)state;
    assert_int_equal(lose_between(300000, false, false), 0);
}

/* By the first socket, in pieces. */
static void test_first_words(void **state)
{
    (void)state;
    static const uint64_t words[][2] = {{UINT64_C(0x6e6f6f67), 0},
                                        {1, 0},
                                        {UINT64_C(0x16e6f6f67), 0},
                                        {UINT64_C(0x6e6f6f67), 1}};
    for (int i = 0; i < 4; i++) {
        const unsigned char *w = (const unsigned char *)words[i];
        int fds[2];
        char c = 0;
        const struct iovec iov = {&c, 1};
        tt_link_stream a;
        open_tcp(fds, 0);
        tt_link_stream_open(&a, fds[0]);
        assert_true(tt_resume_begin(&a, &tt_mem_std, 4096));
        for (size_t k = 0; k < sizeof(words[i]); k++) {
            assert_int_equal(tt_link_recv(&a, &iov, 1), -1);
            assert_int_equal(errno, EAGAIN);
            assert_int_equal(send(fds[1], w + k, 1, 0), 1);
        }
        assert_int_equal(send(fds[1], "x", 1, 0), 1);
        if (i == 0) {
            assert_int_equal(tt_link_recv(&a, &iov, 1), 1);
            assert_int_equal(c, 'x');
        } else {
            assert_int_equal(tt_link_recv(&a, &iov, 1), -1);
            assert_int_equal(errno, EPROTO);
            assert_int_equal(tt_resume_is(&a), TT_RESUME_OVER);
        }
        tt_link_stream_close(&a);
        tt_fork_close(&fds[1]);
    }
}

/* Answers that make no sense, or say that it is over. */
static void test_answers(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        pair p = {.rng = {.state = 1}};
        tt_link_stream a, b;
        uint64_t junk[2] = {i ? UINT64_C(0x6e6f6f67) : 1, UINT64_MAX};
        begin(&p, 10, 0, 4096);
        send_some(&p.a, 10);
        assert_true(tt_resume_cut(&p.a.s));
        open_streams(&p, &a, &b);
        tt_resume_join(&p.a.s, &a);
        if (i == 2)
            tt_resume_refuse(&b);
        else
            assert_int_equal(send(b.fd, junk, sizeof(junk), 0), sizeof(junk));
        int why;
        do
            why = tt_resume_step(&p.a.s);
        while (why == EAGAIN);
        assert_int_equal(why, i == 2 ? ENOLINK : EPROTO);
        assert_int_equal(tt_resume_is(&p.a.s), TT_RESUME_OVER);
        assert_int_equal(tt_link_send(&p.a.s, NULL, 0), -1);
        assert_int_equal(errno, why);
        tt_link_stream_close(&b);
        finish(&p);
    }
}

/* Takes everything, and its socket, which sends nothing, has nothing that is
 * not acknowledged. Says the first word, and no more. */
static ssize_t prompt_send(tt_link_stream *s, const struct iovec *iov,
                           int n_iov)
{
    ssize_t n = 0;
    (void)s;
    for (int i = 0; i < n_iov; i++)
        n += (ssize_t)iov[i].iov_len;
    return n;
}

static ssize_t prompt_recv(tt_link_stream *s, const struct iovec *iov,
                           int n_iov)
{
    (void)s, (void)n_iov;
    if (iov->iov_len == sizeof(first_word)) {
        memcpy(iov->iov_base, first_word, sizeof(first_word));
        return sizeof(first_word);
    }
    errno = EAGAIN;
    return -1;
}

static size_t prompt_none(const tt_link_stream *s)
{
    (void)s;
    return 0;
}

static bool prompt_end(tt_link_stream *s)
{
    (void)s;
    return true;
}

static void prompt_close(tt_link_stream *s)
{
    (void)s;
}

static const tt_link_layer prompt = {.send = prompt_send,
                                     .recv = prompt_recv,
                                     .pending = prompt_none,
                                     .unsent = prompt_none,
                                     .end = prompt_end,
                                     .close = prompt_close};

/* A piece is sent, of which all but a record has come, and the stream goes on
 * with one who says that it has not got so many of the last bytes. n_lent: of
 * it so many are lent, in pieces that nobody asks for, the last of which is as
 * long. Returns why it does not; 0: it does. */
static int ask_again(uint64_t n_missed, size_t n_lent)
{
    pair p = {.a = {.total = 61000, .salt = 1}};
    tt_link_stream a, b;
    int why;
    open_streams(&p, &p.a.s, &p.b.s);
    p.a.s.layer = &prompt;
    assert_true(tt_resume_begin(&p.a.s, &tt_mem_std, 1 << 20));
    recv_some(&p.a, &p.b, 1);
    send_some(&p.a, 1000); /* there is a ring, which has room for the piece */
    if (n_lent > 0) {
        const size_t third = (60000 - n_lent) / 3;
        lend(&p.a);
        while (p.a.n_sent + n_lent < p.a.total) {
            const size_t rest = p.a.total - n_lent - p.a.n_sent;
            send_some(&p.a, rest < third ? rest : third);
        }
        send_some(&p.a, n_lent);
        assert_true(tt_resume_lent(&p.a.s) >= 59999);
    } else {
        send_some(&p.a, 60000);
    }
    assert_int_equal(p.a.n_sent, 61000);
    assert_true(tt_resume_cut(&p.a.s));
    open_streams(&p, &a, &b);
    tt_resume_join(&p.a.s, &a);
    uint64_t junk[2] = {UINT64_C(0x6e6f6f67), p.a.n_sent - n_missed};
    assert_int_equal(send(b.fd, junk, sizeof(junk), 0), sizeof(junk));
    do
        why = tt_resume_step(&p.a.s);
    while (why == EAGAIN);
    tt_link_stream_close(&b);
    finish(&p);
    return why;
}

/* What the other host has acknowledged by then is not copied; a record more is,
 * as a seal may need it. */
static void test_come_at_once(void **state)
{
    (void)state;
    static const size_t n_lent[] = {0, 18 * 1024, 20001};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask_again(0, n_lent[i]), 0);
        assert_int_equal(ask_again(18 * 1024, n_lent[i]), 0);
        assert_int_equal(ask_again(18 * 1024 + 1, n_lent[i]), ESTALE);
        assert_int_equal(ask_again(60000, n_lent[i]), ESTALE);
    }
}

/* What is known to have come is not lent any more. */
static void test_lent_comes(void **state)
{
    (void)state;
    pair p = {.a = {.total = 100000, .salt = 1}};
    open_streams(&p, &p.a.s, &p.b.s);
    p.a.s.layer = &prompt;
    assert_true(tt_resume_begin(&p.a.s, &tt_mem_std, 1 << 20));
    recv_some(&p.a, &p.b, 1);
    lend(&p.a);
    for (int i = 0; i < 3; i++)
        send_some(&p.a, 20000);
    assert_int_equal(tt_resume_lent(&p.a.s), 60000);
    send_some(&p.a, 40000); /* the kernel is asked */
    assert_in_range(tt_resume_lent(&p.a.s), 18 * 1024, 40000);
    finish(&p);
}

/* The kernel is not asked for a small piece that finds room. */
static void test_small_asks_nobody(void **state)
{
    (void)state;
    pair p = {.a = {.total = 61000, .salt = 1}};
    open_streams(&p, &p.a.s, &p.b.s);
    p.a.s.layer = &prompt;
    assert_true(tt_resume_begin(&p.a.s, &tt_mem_std, 1 << 20));
    recv_some(&p.a, &p.b, 1);
    send_some(&p.a, 1000); /* there is a ring */
    n_asked = 0;
    for (int i = 0; i < 20; i++)
        send_some(&p.a, 1000);
    assert_int_equal(n_asked, 0);
    send_some(&p.a, 40000);
    assert_true(n_asked > 0);
    finish(&p);
}

/* The k-th allocation fails: then the stream is over, or goes on. */
static void test_memory(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        tt_test_mem m;
        tt_mem mem = tt_test_mem_init(&m, k);
        pair p = {.a = {.total = 100000, .salt = 1}};
        open_streams(&p, &p.a.s, &p.b.s);
        bool is_on = tt_resume_begin(&p.a.s, &mem, 1 << 20) &&
                     tt_resume_begin(&p.b.s, &mem, 1 << 20);
        if (is_on) {
            send_some(&p.a, 50000);
            is_on = tt_resume_cut(&p.b.s);
            assert_true(is_on == (tt_resume_is(&p.b.s) != TT_RESUME_OVER));
        }
        uint64_t n_failed = m.n_failed;
        finish(&p);
        assert_true(tt_test_mem_is_clean(&m));
        if (n_failed == 0)
            break;
    }
}

int main(void)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    const tt_trust_opts o = {.secret = (const uint8_t *)secret,
                             .n_secret = sizeof(secret) - 1};
    tt_test_limit(300);
    seed = tt_test_seed(tt_now_ns());
    printf("# TT_SEED=%llu\n", (unsigned long long)seed);
    if (tt_trust_open(&o, &trust, NULL))
        trust = NULL; /* without OpenSSL */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_every_byte_sealed),
        cmocka_unit_test(test_often),
        cmocka_unit_test(test_lent),
        cmocka_unit_test(test_lent_bounds),
        cmocka_unit_test(test_often_sealed),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_passed_on),
        cmocka_unit_test(test_dropped_unread),
        cmocka_unit_test(test_first_words),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_come_at_once),
        cmocka_unit_test(test_lent_comes),
        cmocka_unit_test(test_small_asks_nobody),
        cmocka_unit_test(test_memory),
    };
    int rc = TT_RUN_TAP(tests);
    tt_trust_close(trust);
    return rc;
}
