/* SPDX-License-Identifier: BSD-3-Clause
 * tls_test.c - who is let in where a secret or certificates are asked for: by
 * links, with real sockets. */
#include "support/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "link/greet.h"
#include "link/seal.h"
#include "support/certs.h"
#include "support/folder.h"
#include "support/stranger.h"
#include "support/trusts.h"

#define LONG_NS (40 * TT_NS_PER_S)

static const char one[] = "one-0123456789-0123456789-0123456789";
static const char two[] = "two-0123456789-0123456789-0123456789";

static uint64_t in_ns(uint64_t ns)
{
    return tt_now_ns() + ns;
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    int fd = open(tt_folder_path(name),
                  O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(chmod(tt_folder_path(name), mode), 0);
}

/* -------------------------------------------------------------- two ends -- */

typedef struct ends {
    tt_link_box *a, *b; /* a dials */
    tt_link_listener *at;
    uint16_t port;
} ends;

static const tt_link_id id_a = {{1}}, id_b = {{2}};

static void open_ends(ends *e, tt_trust *b, bool is_bare)
{
    const tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_TCP),
                                   .self = id_b,
                                   .trust = b,
                                   .is_bare = is_bare,
                                   .is_local = true};
    assert_int_equal(tt_link_box_open(&tt_mem_std, &e->a, NULL), 0);
    assert_int_equal(tt_link_box_open(&tt_mem_std, &e->b, NULL), 0);
    assert_int_equal(tt_link_listen(e->b, &o, &e->at, NULL, NULL), 0);
    e->port = tt_link_listener_port(e->at, 0);
}

static void close_ends(ends *e)
{
    tt_link_box_close(e->a);
    tt_link_box_close(e->b);
}

static tt_link_event take(tt_link_box *box)
{
    tt_link_event e = {.stream.fd = -1};
    uint64_t until = in_ns(LONG_NS);
    while (!tt_link_box_take(box, &e))
        if (!tt_link_box_wait(box, until))
            fail_msg("nothing came into the box");
    return e;
}

typedef struct how {
    tt_trust *trust;
    bool is_bare, is_one_way, says_self;
    uint16_t port; /* 0: the listener's own */
} how;

/* Why it fails, or WELL and the stream. */
static tt_link_why dial(ends *e, const how *h, tt_link_stream *out)
{
    tt_link_way way = {.cost = 0};
    tt_link_dial *d;
    tt_addr_numeric("127.0.0.1", h->port ? h->port : e->port, &way.to);
    const tt_link_dial_opts o = {.purpose = TT_LINK_TCP,
                                 .self = h->says_self ? id_b : id_a,
                                 .to = h->says_self ? (tt_link_id){{0}} : id_b,
                                 .ways = &way,
                                 .n_ways = 1,
                                 .n_rounds = 1,
                                 .trust = h->trust,
                                 .is_bare = h->is_bare,
                                 .is_one_way = h->is_one_way,
                                 .try_ns = LONG_NS,
                                 .answer_ns = LONG_NS,
                                 .deadline_ns = in_ns(LONG_NS)};
    assert_int_equal(tt_link_dial_begin(e->a, &o, &d, NULL), 0);
    tt_link_event got = take(e->a);
    tt_link_outcome outcome = tt_link_dial_outcome(d, 0);
    tt_link_dial_end(d);
    *out = got.stream;
    if (got.kind == TT_LINK_DIALLED)
        return TT_LINK_WELL;
    assert_int_equal(got.kind, TT_LINK_FAILED);
    assert_int_equal(got.stream.fd, -1);
    /* Why a connection was cut: the system says so. */
    assert_true(outcome.err == 0 || outcome.why == TT_LINK_STRANGE ||
                outcome.why == TT_LINK_REFUSED);
    return outcome.why;
}

static void move_word(tt_link_stream *from, tt_link_stream *to)
{
    char got[7];
    assert_int_equal(tt_link_write_all(from, "payload", 7, in_ns(LONG_NS)), 0);
    assert_int_equal(tt_link_read_all(to, got, 7, in_ns(LONG_NS)), 0);
    assert_memory_equal(got, "payload", 7);
}

/* It must come through, and carry bytes; sealed, or not. */
static void expect_in(ends *e, const how *h, bool is_sealed)
{
    tt_link_stream a;
    tt_link_why why = dial(e, h, &a);
    if (why != TT_LINK_WELL)
        fail_msg("it is sent away: %s", tt_link_why_text(why));
    tt_link_event b = take(e->b);
    assert_int_equal(a.layer != NULL, is_sealed);
    assert_int_equal(b.stream.layer != NULL, is_sealed);
    move_word(&a, &b.stream);
    move_word(&b.stream, &a);
    tt_link_stream_close(&a);
    tt_link_stream_close(&b.stream);
}

static void expect_out(ends *e, const how *h, tt_link_why why)
{
    tt_link_stream a;
    tt_link_event b;
    assert_string_equal(tt_link_why_text(dial(e, h, &a)),
                        tt_link_why_text(why));
    assert_false(tt_link_box_take(e->b, &b));
}

/* One listener, one dialler. */
static void try_one(tt_trust *a, tt_trust *b, tt_link_why why)
{
    ends e;
    tt_link_refusal last;
    uint64_t n_strangers = 0, until = in_ns(LONG_NS);
    open_ends(&e, b, false);
    const how h = {.trust = a};
    if (why == TT_LINK_WELL)
        expect_in(&e, &h, a != NULL);
    else
        expect_out(&e, &h, why);
    while (why != TT_LINK_WELL && n_strangers == 0 && tt_now_ns() < until)
        tt_link_listener_refusal(e.at, &last, &n_strangers);
    /* Who has not proved itself is nobody whom one would name. */
    assert_int_equal(tt_link_listener_refusal(e.at, &last, NULL), 0);
    assert_int_equal(n_strangers, why != TT_LINK_WELL);
    close_ends(&e);
}

/* ----------------------------------------------------------------- tests -- */

static void test_secret(void **state)
{
    (void)state;
    tt_trust *a = tt_test_by_secret(one), *same = tt_test_by_secret(one),
             *b = tt_test_by_secret(two);
    try_one(NULL, NULL, TT_LINK_WELL);
    try_one(a, same, TT_LINK_WELL);
    try_one(a, b, TT_LINK_OTHER_SECRET);
    try_one(NULL, b, TT_LINK_UNPROVEN);
    try_one(a, NULL, TT_LINK_NO_SECRET);
    tt_trust_close(a);
    tt_trust_close(same);
    tt_trust_close(b);
}

static void test_certs(void **state)
{
    (void)state;
    tt_trust *t = tt_test_by_secret(one);
    tt_trust *good = tt_test_by_cert(true, 3600);
    tt_trust *also = tt_test_by_cert(false, 3600);
    tt_trust *expired = tt_test_by_cert(false, -60);
    tt_trust *foreign = tt_test_by_cert(true, 3600);
    try_one(good, also, TT_LINK_WELL);
    try_one(good, expired, TT_LINK_OTHER_SECRET);
    try_one(expired, good, TT_LINK_OTHER_SECRET);
    try_one(good, foreign, TT_LINK_OTHER_SECRET);
    try_one(good, t, TT_LINK_OTHER_SECRET);
    try_one(t, good, TT_LINK_OTHER_SECRET);
    try_one(NULL, good, TT_LINK_UNPROVEN);
    try_one(good, NULL, TT_LINK_NO_SECRET);
    tt_trust_close(t);
    tt_trust_close(good);
    tt_trust_close(also);
    tt_trust_close(expired);
    tt_trust_close(foreign);
}

/* What follows the greeting in plain text: only where both say so. */
static void test_bare(void **state)
{
    (void)state;
    tt_trust *t = tt_test_by_secret(one);
    const tt_trust_opts o = {
        .secret = (const uint8_t *)one, .n_secret = strlen(one), .is_plain = 1};
    tt_trust *plain = tt_test_trust(&o);
    for (int i = 0; i < 8; i++) {
        ends e;
        const how h = {
            .trust = i & 1 ? plain : t, .is_bare = i == 6, .is_one_way = i & 4};
        open_ends(&e, i & 2 ? plain : t, i == 4);
        bool is_a = i & 1 || i == 6, is_b = i & 2 || i == 4;
        if (is_a == is_b)
            expect_in(&e, &h, !is_a);
        else if (!h.is_one_way)
            expect_out(&e, &h, TT_LINK_OTHER_SEAL);
        close_ends(&e);
    }
    tt_trust_close(t);
    tt_trust_close(plain);
}

static void test_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mode_t mode;
        const char *says; /* NULL: it is right */
    } files[] = {
        {"# made today\n\none-0123456789-0123456789-0123456789\n", 0600, NULL},
        {"one-0123456789-0123456789-0123456789\r\ntwo-0123456789-0123456789-"
         "0123456789",
         0400, NULL},
        {"one-0123456789-0123456789-0123456789\n", 0640, "chmod 600"},
        {"one-0123456789-0123456789-0123456789\n", 0604, "chmod 600"},
        {"", 0600, "has no secret"},
        {"# nothing\n", 0600, "has no secret"},
        {"one-0123456789-0123456789-01234\n", 0600, "can be guessed"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", 0600, "can be guessed"},
        {"one 0123456789-0123456789-0123456789\n", 0600, "without spaces"},
        {"one-0123456789-0123456789-0123456789\001\n", 0600, "without spaces"},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        tt_trust *t = NULL;
        tutti_diag diag = {.text = ""};
        const tt_trust_opts o = {.secret_file = tt_folder_path("secret")};
        unlink(tt_folder_path("secret"));
        write_file("secret", files[i].text, files[i].mode);
        tutti_err err = tt_trust_open(&o, &t, &diag);
        if (files[i].says && !strstr(diag.text, files[i].says))
            fail_msg("file %zu: \"%s\"", i, diag.text);
        assert_int_equal(err, files[i].says ? TUTTI_ECONFIG : TUTTI_OK);
        assert_int_equal(t != NULL, files[i].says == NULL);
        tt_trust_close(t);
    }
}

static void test_no_files(void **state)
{
    (void)state;
    tt_trust *t;
    tutti_diag diag;
    unlink(tt_folder_path("secret"));
    write_file("real", one, 0600);
    assert_int_equal(symlink("real", tt_folder_path("link")), 0);
    const tt_trust_opts bad[] = {
        {.secret_file = tt_folder_path("none")},
        {.secret_file = tt_folder_path(".")},
        {.secret = (const uint8_t *)one, .n_secret = 8},
        {.secret = (const uint8_t *)one},
        {.n_secret = 40},
        {.cert = tt_folder_path("cert.pem")},
        {.cert = tt_folder_path("real"),
         .key = tt_folder_path("real"),
         .ca = tt_folder_path("real")}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        diag.text[0] = '\0';
        assert_int_equal(tt_trust_open(&bad[i], &t, &diag), TUTTI_ECONFIG);
        assert_true(diag.text[0] != '\0');
        assert_null(t);
    }
    /* What counts is whose the file is, not by which name it was found. */
    const tt_trust_opts link = {.secret_file = tt_folder_path("link")};
    assert_int_equal(tt_trust_open(&link, &t, &diag), TUTTI_OK);
    tt_trust_close(t);
    const tt_trust_opts nothing = {.secret_file = "", .is_plain = true};
    assert_int_equal(tt_trust_open(&nothing, &t, &diag), TUTTI_OK);
    assert_null(t);
    assert_false(tt_trust_is_plain(t));
    unlink(tt_folder_path("link"));
}

static void pause_ns(uint64_t ns)
{
    poll(NULL, 0, (int)(ns / TT_NS_PER_MS));
}

/* A secret is changed on one side after the other, without a gap; the old one
 * does not count any more when it is deleted. */
static void test_rotation(void **state)
{
    (void)state;
    char both[256];
    ends e;
    write_file("a", one, 0600);
    write_file("b", one, 0600);
    const tt_trust_opts file_a = {.secret_file = tt_folder_path("a")},
                        file_b = {.secret_file = tt_folder_path("b")};
    tt_trust *a = tt_test_trust(&file_a), *b = tt_test_trust(&file_b);
    const how h = {.trust = a};
    open_ends(&e, b, false);
    expect_in(&e, &h, true);
    snprintf(both, sizeof(both), "%s\n%s\n", two, one);
    write_file("a", both,
               0600); /* a offers the new one, and then the old one */
    pause_ns(300 * TT_NS_PER_MS);
    expect_in(&e, &h, true);
    write_file("b", both, 0600);
    pause_ns(300 * TT_NS_PER_MS);
    expect_in(&e, &h, true);
    write_file("b", "what is no secret", 0600); /* is not taken */
    pause_ns(300 * TT_NS_PER_MS);
    expect_in(&e, &h, true);
    write_file("b", two, 0600);
    pause_ns(300 * TT_NS_PER_MS);
    expect_in(&e, &h, true);
    write_file("a", one, 0600); /* it does not count there any more */
    pause_ns(300 * TT_NS_PER_MS);
    expect_out(&e, &h, TT_LINK_OTHER_SECRET);
    close_ends(&e);
    tt_trust_close(a);
    tt_trust_close(b);
}

/* A file is found again from another folder; a descriptor is read once: later
 * its number may be another file's. */
static void test_found_again(void **state)
{
    (void)state;
    char here[512], by_fd[64];
    write_file("a", one, 0600);
    write_file("b", one, 0600);
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(tt_folder_path(".")), 0);
    int fd = open("b", O_RDONLY | O_CLOEXEC);
    snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
    const tt_trust_opts file = {.secret_file = "a"},
                        handed = {.secret_file = by_fd};
    tt_trust *a = tt_test_trust(&file), *b = tt_test_trust(&handed);
    tt_trust *old = tt_test_by_secret(one), *new = tt_test_by_secret(two);
    assert_int_equal(chdir(here), 0);
    write_file("a", two, 0600);
    write_file("b", two, 0600);
    pause_ns(300 * TT_NS_PER_MS);
    try_one(a, new, TT_LINK_WELL);
    try_one(b, old, TT_LINK_WELL);
    close(fd);
    tt_trust_close(a);
    tt_trust_close(b);
    tt_trust_close(old);
    tt_trust_close(new);
}

/* ------------------------------------------------------------- strangers -- */

static int stranger(const ends *e)
{
    tt_addr to;
    tt_addr_numeric("127.0.0.1", e->port, &to);
    int fd = tt_stranger_connect(&to, in_ns(LONG_NS));
    assert_true(fd >= 0);
    return fd;
}

static void await_end(int fd)
{
    char c;
    while (tt_stranger_read_all(fd, &c, 1, in_ns(LONG_NS)) == 0)
        continue;
    close(fd);
}

/* Certificates that stay where they are. */
typedef struct folder {
    char at[128], cert[160], key[160], ca[160], crl[160];
} folder;

static void make_folder(folder *f, const char *name, bool is_new_ca)
{
    snprintf(f->at, sizeof(f->at), "%s", tt_folder_path(name));
    mkdir(f->at, 0700);
    assert_true(is_new_ca ? tt_test_certs(f->at, 3600)
                          : tt_test_cert_again(f->at, 3600));
    snprintf(f->cert, sizeof(f->cert), "%s/cert.pem", f->at);
    snprintf(f->key, sizeof(f->key), "%s/key.pem", f->at);
    snprintf(f->ca, sizeof(f->ca), "%s/ca.pem", f->at);
    snprintf(f->crl, sizeof(f->crl), "%s/crl.pem", f->at);
}

static tt_trust *of_folder(const folder *f, bool has_crl)
{
    const tt_trust_opts o = {.cert = f->cert,
                             .key = f->key,
                             .ca = f->ca,
                             .crl = has_crl ? f->crl : NULL};
    return tt_test_trust(&o);
}

static void remove_folder(const folder *f)
{
    unlink(f->cert);
    unlink(f->key);
    unlink(f->ca);
    unlink(f->crl);
    rmdir(f->at);
}

/* The list has changed; from the next handshake on it counts. */
static void change_list(const folder *f, const folder *gone, long ends_s)
{
    assert_true(tt_test_crl(f->at, gone ? gone->at : NULL, ends_s));
    pause_ns(300 * TT_NS_PER_MS);
}

/* A member's certificate counts no more, while others go on: not where it
 * dials, and not where it is dialled. What stands goes on. */
static void test_put_out(void **state)
{
    (void)state;
    folder of_a, of_b, of_c;
    ends e, back;
    tt_link_stream standing;
    make_folder(&of_a, "a.certs", true);
    make_folder(&of_b, "b.certs", false);
    make_folder(&of_c, "c.certs", false);
    change_list(&of_a, NULL, 3600);
    tt_trust *a = of_folder(&of_a, true), *b = of_folder(&of_b, false),
             *c = of_folder(&of_c, false);
    const how by_a = {.trust = a}, by_b = {.trust = b}, by_c = {.trust = c};
    open_ends(&e, a, false);
    open_ends(&back, b, false);
    expect_in(&e, &by_b, true);
    /* Each knows what the other has shown. */
    tt_tls_print shown;
    assert_int_equal(tt_trust_shown(a, &id_a, &shown, 1), 1);
    assert_int_equal(tt_trust_shown(b, &id_b, &shown, 1), 1);
    assert_int_equal(tt_trust_shown(a, &id_b, &shown, 1), 0);
    expect_in(&back, &by_a, true);
    assert_int_equal(dial(&e, &by_b, &standing), TT_LINK_WELL);
    tt_link_event other = take(e.b);
    change_list(&of_a, &of_b, 3600);
    expect_out(&e, &by_b, TT_LINK_OTHER_SECRET);
    expect_out(&back, &by_a, TT_LINK_OTHER_SECRET);
    expect_in(&e, &by_c, true);
    move_word(&standing, &other.stream);
    move_word(&other.stream, &standing);
    write_file("a.certs/crl.pem", "no list", 0600); /* is not taken */
    pause_ns(300 * TT_NS_PER_MS);
    expect_out(&e, &by_b, TT_LINK_OTHER_SECRET);
    expect_in(&e, &by_c, true);
    change_list(&of_a, NULL, -60); /* out of date */
    expect_out(&e, &by_c, TT_LINK_OTHER_SECRET);
    change_list(&of_a, NULL, 3600);
    expect_in(&e, &by_b, true);
    tt_link_stream_close(&standing);
    tt_link_stream_close(&other.stream);
    close_ends(&e);
    close_ends(&back);
    tt_trust_close(a);
    tt_trust_close(b);
    tt_trust_close(c);
    remove_folder(&of_a);
    remove_folder(&of_b);
    remove_folder(&of_c);
}

static volatile sig_atomic_t is_opening;

static void note_opening(int signal_number)
{
    (void)signal_number;
    is_opening = 1;
}

/* While a file cannot be read nobody waits but who needs it. The system makes
 * the reader of a file with a lease wait, at most 45 s. */
static void test_slow_file(void **state)
{
    (void)state;
    folder f;
    ends e;
    tt_link_event none;
    make_folder(&f, "slow.certs", true);
    tt_trust *t = of_folder(&f, false);
    const how h = {.trust = t};
    open_ends(&e, t, false);
    expect_in(&e, &h, true);
    int fd = open(f.cert, O_RDWR | O_CLOEXEC);
    signal(SIGIO, note_opening);
    bool is_leased = fcntl(fd, F_SETLEASE, F_WRLCK) == 0 &&
                     futimens(fd, NULL) == 0;
    pause_ns(300 * TT_NS_PER_MS);
    int guest = stranger(&e);
    uint64_t begin = tt_now_ns();
    while (is_leased && !is_opening)
        pause_ns(TT_NS_PER_MS);
    assert_false(tt_link_box_take(e.a, &none));
    assert_false(tt_link_box_take(e.b, &none));
    assert_true(tt_now_ns() - begin < 40 * TT_NS_PER_S);
    fcntl(fd, F_SETLEASE, F_UNLCK);
    close(fd);
    close(guest);
    expect_in(&e, &h, true);
    close_ends(&e);
    tt_trust_close(t);
    remove_folder(&f);
}

/* What a dialler says first. */
static ssize_t first_words(tt_trust *t, uint8_t *out, size_t size)
{
    int fds[2];
    tt_link_why why;
    tt_link_stream s;
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
        0);
    tt_link_stream_open(&s, fds[0]);
    assert_true(tt_seal_begin(&s, t, true, 0));
    assert_int_equal(tt_seal_shake(&s, &why), TT_SEAL_WAITS);
    ssize_t n = recv(fds[1], out, size, 0);
    tt_link_stream_close(&s);
    close(fds[1]);
    return n;
}

/* The first byte of the answer; -1: it is hung up on. */
static int answer_to(const ends *e, const uint8_t *bytes, ssize_t n)
{
    uint8_t first;
    int fd = stranger(e);
    assert_int_equal(send(fd, bytes, (size_t)n, MSG_NOSIGNAL), n);
    int rc = tt_stranger_read_all(fd, &first, 1, in_ns(LONG_NS));
    assert_int_not_equal(rc, ETIMEDOUT);
    close(fd);
    return rc == 0 ? first : -1;
}

/* What a dialler with the secret says first comes in pieces; and somebody stops
 * within it, or says it again, or something like it. */
static void test_pieces(void **state)
{
    (void)state;
    ends e;
    uint8_t bytes[TT_SEAL_LOOK];
    tt_trust *t = tt_test_by_secret(one);
    open_ends(&e, t, false);
    for (size_t i = 0; i < 5; i++) {
        ssize_t n = first_words(t, bytes, sizeof(bytes));
        const ssize_t pieces[] = {1, 4, 5, 90, n - 1};
        int fd = stranger(&e);
        ssize_t at = pieces[i];
        char first;
        assert_true(n > 100);
        (void)!send(fd, bytes, (size_t)at, MSG_NOSIGNAL);
        pause_ns(10 * TT_NS_PER_MS);
        if (i % 2 == 1)
            shutdown(fd, SHUT_WR);
        else
            (void)!send(fd, bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
        int rc = tt_stranger_read_all(fd, &first, 1, in_ns(LONG_NS));
        assert_int_equal(rc == 0, i % 2 == 0);
        if (rc == 0)
            assert_int_equal(first, TT_SEAL_FIRST); /* it answers */
        close(fd);
    }
    ssize_t n = first_words(t, bytes, sizeof(bytes));
    assert_int_equal(answer_to(&e, bytes, n), TT_SEAL_FIRST);
    assert_int_equal(answer_to(&e, bytes, n), -1);
    bytes[n - 1] ^= 1;
    assert_int_equal(answer_to(&e, bytes, n), 0x15); /* an alert */
    close_ends(&e);
    tt_trust_close(t);
}

/* Whatever somebody without the secret says, it is nobody to us. */
static void test_strangers(void **state)
{
    (void)state;
    static const char *const words[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x00\x05hello",
        "\x16\x03\x01\xff\xff and nothing of the kind",
        "\x16\x16\x16\x16\x16\x16\x16\x16",
        "\x15\x03\x03\x00\x02\x02\x28",
        "\x17\x03\x03\x00\x20 data before all else, thirty-two b",
    };
    ends e;
    tt_trust *t = tt_test_by_secret(one);
    open_ends(&e, t, false);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        int fd = stranger(&e);
        size_t n = i == 1 ? 10 : strlen(words[i]);
        tt_stranger_write_all(fd, words[i], n, in_ns(LONG_NS));
        shutdown(fd, SHUT_WR);
        await_end(fd);
    }
    int silent[100]; /* more than there are places */
    for (int i = 0; i < 100; i++) {
        silent[i] = stranger(&e);
        (void)!send(silent[i], "\x16\x03\x01\x02", (size_t)(i % 5),
                    MSG_NOSIGNAL);
    }
    const how h = {.trust = t};
    expect_in(&e, &h, true);
    for (int i = 0; i < 100; i++)
        close(silent[i]);
    expect_in(&e, &h, true);
    close_ends(&e);
    tt_trust_close(t);
}

/* A dialler is not led to plain text: not by REPLY, not by REFUSE. */
static void test_no_way_back(void **state)
{
    (void)state;
    tt_trust *t = tt_test_by_secret(one);
    for (int i = 0; i < 2; i++) {
        ends e;
        tt_addr at;
        open_ends(&e, t, false);
        tt_addr_numeric("127.0.0.1", 0, &at);
        int fd = tt_stranger_listen(&at, 4);
        uint16_t port = tt_sock_port(fd);
        tt_greet_word word = {.magic = TT_GREET_MAGIC,
                              .version_min = 1,
                              .version_max = 1,
                              .kind = i ? TT_GREET_REPLY : TT_GREET_REFUSE,
                              .purpose = TT_LINK_TCP,
                              .why = TT_LINK_OTHER_JOB};
        tt_link_way way = {.cost = 0};
        tt_addr_numeric("127.0.0.1", port, &way.to);
        const tt_link_dial_opts o = {.purpose = TT_LINK_TCP,
                                     .ways = &way,
                                     .n_ways = 1,
                                     .n_rounds = 1,
                                     .trust = t,
                                     .try_ns = LONG_NS,
                                     .answer_ns = LONG_NS,
                                     .deadline_ns = in_ns(LONG_NS)};
        tt_link_dial *d;
        assert_int_equal(tt_link_dial_begin(e.a, &o, &d, NULL), 0);
        assert_true(tt_sock_wait(fd, POLLIN, in_ns(LONG_NS)));
        int guest = accept(fd, NULL, NULL);
        char first;
        assert_int_equal(recv(guest, &first, 1, MSG_WAITALL), 1);
        assert_int_equal(first, TT_SEAL_FIRST);
        (void)!write(guest, &word, sizeof(word));
        tt_link_event got = take(e.a);
        assert_int_equal(got.kind, TT_LINK_FAILED);
        assert_int_equal(tt_link_dial_outcome(d, 0).why, TT_LINK_NO_SECRET);
        tt_link_dial_end(d);
        close(guest);
        close(fd);
        close_ends(&e);
    }
    tt_trust_close(t);
}

/* Bytes go between two sockets, `most` at a time; stops when one of them ends,
 * or after `limit` bytes. */
typedef struct relay {
    int listener, most;
    uint16_t to;
    size_t limit;
    bool has_flood; /* of silent strangers, before the first answer goes on */
    pthread_t thread;
} relay;

/* More than there are places, until the first ones have been sent away. */
static void relay_flood(const tt_addr *to)
{
    char c;
    int fds[200];
    for (int i = 0; i < 200; i++)
        fds[i] = tt_stranger_connect(to, in_ns(LONG_NS));
    for (int i = 0; i < 100; i++)
        tt_stranger_read_all(fds[i], &c, 1, in_ns(LONG_NS));
    for (int i = 0; i < 200; i++)
        close(fds[i]);
}

static void *relay_main(void *arg)
{
    relay *r = arg;
    tt_addr to;
    char buf[4096];
    size_t moved = 0;
    bool is_open = true;
    tt_addr_numeric("127.0.0.1", r->to, &to);
    if (!tt_sock_wait(r->listener, POLLIN, in_ns(LONG_NS)))
        return NULL;
    int fds[2] = {accept(r->listener, NULL, NULL),
                  tt_stranger_connect(&to, in_ns(LONG_NS))};
    while (is_open && moved < r->limit) {
        struct pollfd p[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
        poll(p, 2, 1000);
        if (r->has_flood && p[1].revents) {
            r->has_flood = false;
            relay_flood(&to);
        }
        for (int i = 0; i < 2; i++) {
            ssize_t n = p[i].revents ? read(fds[i], buf, (size_t)r->most) : -2;
            if (n > 0 && send(fds[!i], buf, (size_t)n, MSG_NOSIGNAL) != n)
                n = 0;
            is_open &= n > 0 || n == -2 || errno == EAGAIN;
            is_open &= n != 0;
            moved += n > 0 ? (size_t)n : 0;
        }
    }
    close(fds[0]);
    close(fds[1]);
    return NULL;
}

static uint16_t begin_relay(relay *r, uint16_t to, int most, size_t limit,
                            bool has_flood)
{
    tt_addr at;
    tt_addr_numeric("127.0.0.1", 0, &at);
    *r = (relay){.listener = tt_stranger_listen(&at, 4),
                 .to = to,
                 .most = most,
                 .limit = limit,
                 .has_flood = has_flood};
    assert_true(r->listener >= 0);
    pthread_create(&r->thread, NULL, relay_main, r);
    return tt_sock_port(r->listener);
}

static void end_relay(relay *r)
{
    pthread_join(r->thread, NULL);
    close(r->listener);
}

/* Byte by byte it stands; cut short anywhere nobody has come. */
static void test_slow_and_cut(void **state)
{
    (void)state;
    tt_trust *t = tt_test_by_secret(one);
    ends e;
    relay r;
    open_ends(&e, t, false);
    how h = {.trust = t, .port = begin_relay(&r, e.port, 1, SIZE_MAX, false)};
    expect_in(&e, &h, true);
    end_relay(&r);
    for (size_t limit = 1; limit < 700; limit += 37) {
        tt_link_stream a;
        tt_link_event b;
        h.port = begin_relay(&r, e.port, 1, limit, false);
        tt_link_why why = dial(&e, &h, &a);
        end_relay(&r);
        assert_true(why == TT_LINK_STRANGE || why == TT_LINK_REFUSED);
        assert_false(tt_link_box_take(e.b, &b));
    }
    h.port = 0;
    expect_in(&e, &h, true);
    close_ends(&e);
    tt_trust_close(t);
}

/* n guests from there who say that, and have their answer. */
static void begin_guests(const char *from, uint16_t port, const uint8_t *word,
                         size_t len, int *fds, size_t n)
{
    tt_addr here, to;
    char c;
    tt_addr_numeric(from, 0, &here);
    tt_addr_numeric("127.0.0.1", port, &to);
    for (size_t i = 0; i < n; i++) {
        fds[i] = tt_stranger_connect_from(&here, &to, in_ns(LONG_NS));
        assert_true(fds[i] >= 0);
        assert_int_equal(send(fds[i], word, len, MSG_NOSIGNAL), len);
        tt_stranger_read_all(fds[i], &c, 1, in_ns(LONG_NS));
    }
}

/* Who was sent away; all are closed. */
static size_t end_guests(const int *fds, size_t n)
{
    char said[4096];
    size_t n_gone = 0;
    for (size_t i = 0; i < n; i++) {
        ssize_t got;
        do
            got = recv(fds[i], said, sizeof(said), MSG_DONTWAIT);
        while (got > 0);
        n_gone += got == 0 || errno != EAGAIN;
        close(fds[i]);
    }
    return n_gone;
}

/* Members who are in the middle of a handshake by certificates, and a flood of
 * such handshakes from another address: none of them goes. By chance, of any,
 * one in 2000 times all would stay. They have 5 s. */
static void test_crowd(void **state)
{
    (void)state;
    enum { MEMBERS = 20, FLOOD = 350, GUEST_S = 4 };
    tt_trust *t = tt_test_by_cert(true, 3600);
    uint8_t word[4096];
    ssize_t len = first_words(t, word, sizeof(word));
    bool is_late = true;
    assert_true(len > 0);
    for (int tries = 0; is_late && tries < 5; tries++) {
        static int members[MEMBERS], flood[FLOOD];
        ends e;
        open_ends(&e, t, false);
        uint64_t until = in_ns(GUEST_S * TT_NS_PER_S);
        begin_guests("127.0.0.1", e.port, word, (size_t)len, members, MEMBERS);
        begin_guests("127.0.0.2", e.port, word, (size_t)len, flood, FLOOD);
        size_t n_gone = end_guests(members, MEMBERS);
        is_late = tt_now_ns() > until;
        if (!is_late)
            assert_int_equal(n_gone, 0);
        assert_true(end_guests(flood, FLOOD) > 0);
        close_ends(&e);
    }
    tt_trust_close(t);
    if (is_late)
        skip();
}

/* Who says hello, and waits for no answer; all from there. */
static void say_hello(const char *from, uint16_t port, const uint8_t *word,
                      size_t len, int *fds, size_t n)
{
    tt_addr here, to;
    tt_addr_numeric(from, 0, &here);
    tt_addr_numeric("127.0.0.1", port, &to);
    for (size_t i = 0; i < n; i++) {
        fds[i] = tt_stranger_connect_from(&here, &to, in_ns(LONG_NS));
        assert_true(fds[i] >= 0);
        (void)!send(fds[i], word, len, MSG_NOSIGNAL);
    }
}

/* Those that were answered; what they hear next is the end. */
static size_t count_answered(const int *fds, size_t n)
{
    size_t n_answered = 0;
    char c;
    for (size_t i = 0; i < n; i++)
        n_answered += recv(fds[i], &c, 1, MSG_DONTWAIT) == 1;
    return n_answered;
}

/* By certificates an address has so many handshakes, and then one each 10 ms,
 * that come to nothing; one whose turn has not come begins when it has, and
 * what others do is no matter. Who comes in uses up nothing. */
static void test_turns(void **state)
{
    (void)state;
    enum { FLOOD = 900, AT_ONCE = 256, TURN_MS = 10 };
    static int flood[FLOOD];
    tt_trust *t = tt_test_by_cert(true, 3600);
    uint8_t word[4096];
    ssize_t len = first_words(t, word, sizeof(word));
    const how h = {.trust = t};
    ends e;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    open_ends(&e, t, false);
    for (int i = 0; i < 20; i++)
        expect_in(&e, &h, true);
    uint64_t begin = tt_now_ns();
    say_hello("127.0.0.2", e.port, word, (size_t)len, flood, FLOOD);
    expect_in(&e, &h, true);
    size_t n = count_answered(flood, FLOOD);
    uint64_t ms = (tt_now_ns() - begin) / TT_NS_PER_MS;
    assert_true(n > 0);
    if (n > AT_ONCE + ms / TURN_MS + 1)
        fail_msg("%zu handshakes in %u ms", n, (unsigned)ms);
    end_guests(flood, FLOOD);
    /* Their turns come, while nothing else happens. */
    say_hello("127.0.0.2", e.port, word, (size_t)len, flood, AT_ONCE + 20);
    char c;
    for (int i = AT_ONCE - 20; i < AT_ONCE + 20; i++)
        assert_int_equal(tt_stranger_read_all(flood[i], &c, 1, in_ns(LONG_NS)),
                         0);
    end_guests(flood, AT_ONCE + 20);
    expect_in(&e, &h, true);
    close_ends(&e);
    tt_trust_close(t);
}

/* Who has begun a handshake well is not sent away for those who say nothing. */
static void test_flood(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        tt_trust *t = i ? tt_test_by_cert(true, 3600) : tt_test_by_secret(one);
        ends e;
        relay r;
        open_ends(&e, t, false);
        how h = {.trust = t,
                 .port = begin_relay(&r, e.port, 4096, SIZE_MAX, true)};
        expect_in(&e, &h, true);
        end_relay(&r);
        close_ends(&e);
        tt_trust_close(t);
    }
}

/* Whoever is led to itself by somebody between finds out. */
static void test_reflection(void **state)
{
    (void)state;
    tt_trust *t = tt_test_by_secret(one);
    ends e;
    relay r;
    open_ends(&e, t, false);
    const how h = {.trust = t,
                   .says_self = true,
                   .port = begin_relay(&r, e.port, 4096, SIZE_MAX, false)};
    expect_out(&e, &h, TT_LINK_OTHER_PROCESS);
    end_relay(&r);
    close_ends(&e);
    tt_trust_close(t);
}

/* A program without standard input: 0 is a descriptor like others. */
static void test_no_stdin(void **state)
{
    (void)state;
    static tt_secrets secrets;
    char by_fd[64];
    ends e;
    tt_addr to;
    write_file("a", one, 0600);
    int file = open(tt_folder_path("a"), O_RDONLY | O_CLOEXEC);
    snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", file);
    open_ends(&e, NULL, false);
    int was = dup(0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    tt_addr_numeric("127.0.0.1", e.port, &to);
    close(0);
    errno = ENOENT;
    tutti_err err = tt_secrets_read(by_fd, &secrets, NULL);
    bool is_out = connect(fd, &to.u.sa, to.len) == 0 &&
                  write(fd, "GET / HTTP/1.1\r\n\r\n", 18) == 18 &&
                  tt_sock_wait(fd, POLLIN, in_ns(LONG_NS));
    dup2(was, 0);
    close(was);
    close(fd);
    close(file);
    close_ends(&e);
    assert_int_equal(err, TUTTI_OK);
    assert_true(is_out);
}

/* A unix socket needs no secret: the kernel tells the user. */
static void test_unix(void **state)
{
    (void)state;
    tt_trust *t = tt_test_by_secret(one);
    tt_link_box *box;
    tt_link_listener *at;
    tt_link_card card;
    tt_link_dial *d;
    assert_int_equal(tt_link_box_open(&tt_mem_std, &box, NULL), 0);
    const tt_link_listen_opts lo = {
        .purposes = TT_LINK_FOR(TT_LINK_SHM), .trust = t, .is_nest = true};
    assert_int_equal(tt_link_listen(box, &lo, &at, NULL, NULL), 0);
    tt_link_card_of(at, &card);
    tt_link_way way = {.cost = 0};
    tt_link_card_nest(&card, &way.to);
    const tt_link_dial_opts o = {.purpose = TT_LINK_SHM,
                                 .ways = &way,
                                 .n_ways = 1,
                                 .trust = t,
                                 .deadline_ns = in_ns(LONG_NS)};
    assert_int_equal(tt_link_dial_begin(box, &o, &d, NULL), 0);
    for (int i = 0; i < 2; i++) {
        tt_link_event e = take(box);
        assert_true(e.is_unix);
        assert_null(e.stream.layer);
        tt_link_stream_close(&e.stream);
    }
    tt_link_dial_end(d);
    tt_link_box_close(box);
    tt_trust_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_secret),       cmocka_unit_test(test_certs),
        cmocka_unit_test(test_bare),         cmocka_unit_test(test_files),
        cmocka_unit_test(test_no_files),     cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_strangers),    cmocka_unit_test(test_no_way_back),
        cmocka_unit_test(test_slow_and_cut), cmocka_unit_test(test_reflection),
        cmocka_unit_test(test_found_again),  cmocka_unit_test(test_flood),
        cmocka_unit_test(test_crowd),        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_unix),         cmocka_unit_test(test_no_stdin),
        cmocka_unit_test(test_put_out),      cmocka_unit_test(test_slow_file),
        cmocka_unit_test(test_pieces),
    };
    tt_test_limit(120);
    if (!TT_HAVE_OPENSSL) {
        printf("1..0 # SKIP built without OpenSSL\n");
        return 77;
    }
    if (!tt_folder_open("tls"))
        return 1;
    int failed = TT_RUN_TAP(tests);
    tt_folder_close();
    return failed;
}
