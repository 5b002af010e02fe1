/* SPDX-License-Identifier: BSD-3-Clause
 * outcast_test.c - who is put out of a trust: a fresh secret takes the place of
 * all that were known, step by step and never without one in common;
 * certificates that were shown are refused; in handshakes between two
 * trusts. */
#include "support/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "link/link.h"
#include "link/seal.h"
#include "support/folder.h"

#if TT_HAVE_OPENSSL

#include "link/tls.h"
#include "support/trusts.h"

static const char old[] = "old-0123456789-0123456789-0123456789";
static const char older[] = "older-0123456789-0123456789-0123456789";
static const char later[] = "later-0123456789-0123456789-0123456789";
static const uint8_t fresh[2][TT_TRUST_FRESH] = {"fresh", "fresh again"};
static const tt_link_id id_a = {{1}}, id_b = {{2}};

static void write_file(const char *name, const char *a, const char *b)
{
    FILE *f = fopen(tt_folder_path(name), "we");
    assert_non_null(f);
    fprintf(f, "%s\n%s\n", a, b);
    fclose(f);
    assert_int_equal(chmod(tt_folder_path(name), 0600), 0);
}

/* It is looked at again. */
static void look(tt_trust *t)
{
    const struct timespec pause = {.tv_nsec = 250 * 1000 * 1000};
    nanosleep(&pause, NULL);
    assert_true(tt_trust_is_due(t));
    tt_trust_look(t);
}

/* ------------------------------------------------------------ handshakes -- */

typedef struct side {
    tt_link_stream s;
    tt_seal_step step;
    tt_link_why why;
} side;

static void begin(side *x, int fd, tt_trust *t, bool is_dialler, uint32_t pick)
{
    *x = (side){.step = TT_SEAL_WAITS, .why = TT_LINK_WELL};
    tt_fork_watch(fd);
    tt_link_stream_open(&x->s, fd);
    assert_true(tt_seal_begin(&x->s, t, is_dialler, pick));
}

static bool shake(side *x)
{
    if (x->step == TT_SEAL_WAITS)
        x->step = tt_seal_shake(&x->s, &x->why);
    return x->step == TT_SEAL_WAITS;
}

/* What the dialler has heard by then, of a listener who is not let in. */
static void end(side *x)
{
    tt_link_stream_close(&x->s);
}

/* By which id the dialler knows whom it has dialled. */
static const tt_link_id *dialled = &id_b;

/* It is sent away, and TLS tells it: at once, or when it reads. */
static bool is_told(side *x)
{
    char c;
    const struct iovec one = {&c, 1};
    return x->step == TT_SEAL_FAILED
               ? x->why == TT_LINK_OTHER_SECRET
               : tt_link_recv(&x->s, &one, 1) == -1 && errno == EACCES;
}

/* Both are in; as the listener sees it, who judges last. */
static bool meet_by(tt_trust *a, uint32_t pick, tt_trust *b)
{
    int fds[2];
    side dials, listens;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    begin(&dials, fds[0], a, true, pick);
    begin(&listens, fds[1], b, false, 0);
    for (int i = 0; i < 8; i++) {
        shake(&dials);
        shake(&listens);
    }
    bool is_in = dials.step == TT_SEAL_DONE && listens.step == TT_SEAL_DONE;
    if (is_in) {
        tt_seal_note(&dials.s, dialled);
        tt_seal_note(&listens.s, &id_a);
        assert_true(tt_seal_settle(&dials.s, false));
        assert_true(tt_seal_settle(&listens.s, false));
    } else {
        assert_true(is_told(&listens) && is_told(&dials));
    }
    end(&dials);
    end(&listens);
    return is_in;
}

/* As a dial does: one secret after the other. */
static bool meet(tt_trust *a, tt_trust *b)
{
    uint32_t n = tt_trust_secrets(a);
    bool is_in = false;
    for (uint32_t pick = 0; !is_in && pick < (n > 0 ? n : 1); pick++)
        is_in = meet_by(a, pick, b);
    return is_in;
}

static void expect(tt_trust *a, tt_trust *b, bool is_in)
{
    assert_int_equal(meet(a, b), is_in);
    assert_int_equal(meet(b, a), is_in);
}

/* --------------------------------------------------------------- secrets -- */

/* a, b stay, c goes; whichever of them is first. */
static void test_renewal(void **state)
{
    (void)state;
    tt_trust *a = tt_test_by_secret(old), *b = tt_test_by_secret(old),
             *c = tt_test_by_secret(old);
    for (int i = 0; i < 2; i++) {
        expect(a, b, true);
        assert_true(tt_trust_prepare(a, fresh[i]));
        expect(a, b, true); /* a offers the old one first */
        assert_true(tt_trust_prepare(b, fresh[i]));
        assert_int_equal(tt_trust_secrets(a), 2);
        expect(a, b, true);
        expect(a, c, i == 0);
        assert_true(tt_trust_renew(a));
        expect(a, b, true); /* they have a common one in this moment, too */
        expect(a, c, false);
        expect(b, c, i == 0);
        assert_true(tt_trust_renew(b));
        assert_int_equal(tt_trust_secrets(a), 1);
        expect(a, b, true);
        expect(b, c, false);
        assert_false(tt_trust_renew(a)); /* there is no fresh one */
    }
    tt_trust_close(a);
    tt_trust_close(b);
    tt_trust_close(c);
}

/* Of two that were prepared the second counts, and the first for nothing. */
static void test_two_prepared(void **state)
{
    (void)state;
    tt_trust *a = tt_test_by_secret(old), *b = tt_test_by_secret(old);
    assert_true(tt_trust_prepare(a, fresh[0]));
    assert_true(tt_trust_prepare(a, fresh[1]));
    assert_true(tt_trust_prepare(b, fresh[0]));
    assert_int_equal(tt_trust_secrets(a), 2);
    assert_true(tt_trust_renew(a));
    expect(a, b, false);
    assert_true(tt_trust_prepare(b, fresh[1]));
    expect(a, b, true);
    tt_trust_close(a);
    tt_trust_close(b);
}

static int n_warnings;

static void count_warning(void *arg, tutti_log_level level, const char *line)
{
    (void)arg, (void)level, (void)line;
    n_warnings++;
}

/* What the file still has counts no more, but what is new in it does: also
 * where it is read again before anybody has met. */
static void test_file(void **state)
{
    (void)state;
    write_file("secret", old, older);
    const tt_trust_opts o = {.secret_file = tt_folder_path("secret")};
    tt_trust *a = tt_test_trust(&o), *b = tt_test_by_secret(old),
             *c = tt_test_by_secret(older), *d = tt_test_by_secret(later);
    assert_true(tt_trust_prepare(a, fresh[0]));
    assert_int_equal(tt_trust_secrets(a), 3);
    write_file("secret", old, older);
    look(a); /* it does not forget what is prepared */
    assert_int_equal(tt_trust_secrets(a), 3);
    expect(a, b, true);
    assert_true(tt_trust_renew(a));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_trust_secrets(a), 1);
        expect(a, b, false);
        expect(a, c, false);
        write_file("secret", older, old); /* brought back by mistake */
        look(a);
    }
    expect(a, d, false);
    write_file("secret", later, old);
    look(a);
    assert_int_equal(tt_trust_secrets(a), 2);
    expect(a, d, true);
    expect(a, b, false);
    assert_true(tt_trust_prepare(b, fresh[0]));
    expect(a, b, true);
    write_file("secret", "no secret", "");
    n_warnings = 0;
    tutti_log_set(count_warning, NULL);
    look(a);
    look(a); /* it has not changed: nothing is read, and nothing said */
    tutti_log_set(NULL, NULL);
    assert_int_equal(n_warnings, 1);
    assert_int_equal(tt_trust_secrets(a), 2);
    tt_trust_close(a);
    tt_trust_close(b);
    tt_trust_close(c);
    tt_trust_close(d);
}

/* It was in the middle of a handshake, whichever side it is. */
static void test_meanwhile(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool by_certs = i & 1, is_dialler = i & 2;
        tt_trust *a = by_certs ? tt_test_by_cert(true, 3600)
                               : tt_test_by_secret(old);
        tt_trust *c = by_certs ? tt_test_by_cert(false, 3600)
                               : tt_test_by_secret(old);
        tt_tls_print print;
        int fds[2];
        side ours, theirs;
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        begin(&ours, fds[0], a, is_dialler, 0);
        begin(&theirs, fds[1], c, !is_dialler, 0);
        shake(is_dialler ? &ours : &theirs); /* hello */
        shake(is_dialler ? &theirs : &ours); /* hello, finished */
        if (!is_dialler)
            shake(&theirs); /* its finished */
        tt_trust_own(c, &print);
        if (by_certs)
            assert_true(tt_trust_refuse(a, &print));
        else
            assert_true(tt_trust_prepare(a, fresh[0]) && tt_trust_renew(a));
        shake(&ours);
        assert_int_equal(ours.step, TT_SEAL_FAILED);
        assert_int_not_equal(errno, 0);
        end(&ours);
        end(&theirs);
        tt_trust_close(a);
        tt_trust_close(c);
    }
}

static size_t hear(int from, char *all, size_t size)
{
    const ssize_t n = recv(from, all, size, 0);
    assert_true(n > 0);
    return (size_t)n;
}

/* Where the last record of n bytes begins. */
static size_t last_record(const char *all, size_t n)
{
    size_t at = 0, next = 0;
    while (next < n) {
        at = next;
        next += 5 + ((size_t)(uint8_t)all[at + 3] << 8 | (uint8_t)all[at + 4]);
    }
    assert_true(at > 0 && next == n);
    return at;
}

/* It is refused after it has shown its certificate, and before it has said
 * all. */
static void test_after_certificate(void **state)
{
    (void)state;
    for (int is_dialler = 0; is_dialler < 2; is_dialler++) {
        tt_trust *a = tt_test_by_cert(true, 3600),
                 *c = tt_test_by_cert(false, 3600);
        tt_tls_print print;
        char said[16384];
        int near[2], far[2];
        side ours, theirs;
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, near), 0);
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, far), 0);
        begin(&ours, near[0], a, is_dialler, 0);
        begin(&theirs, far[0], c, !is_dialler, 0);
        for (int turn = is_dialler; turn < 3; turn++) {
            const bool is_ours = turn != 0 && turn != 2; /* 2: theirs again */
            shake(is_ours ? &ours : &theirs);
            if (turn == 2)
                break;
            size_t n = hear(is_ours ? near[1] : far[1], said, sizeof(said));
            assert_int_equal(send(is_ours ? far[1] : near[1], said, n, 0), n);
        }
        const size_t n = hear(far[1], said, sizeof(said));
        const size_t at = last_record(said, n);
        assert_int_equal(send(near[1], said, at, 0), at);
        assert_true(shake(&ours));
        tt_trust_own(c, &print);
        assert_true(tt_trust_refuse(a, &print));
        assert_int_equal(send(near[1], said + at, n - at, 0), n - at);
        shake(&ours);
        assert_int_equal(ours.step, TT_SEAL_FAILED);
        end(&ours);
        end(&theirs);
        close(near[1]);
        close(far[1]);
        tt_trust_close(a);
        tt_trust_close(c);
    }
}

/* ---------------------------------------------------------- certificates -- */

static void test_certs(void **state)
{
    (void)state;
    static const tt_tls_print none;
    static const tt_link_id nobody;
    tt_tls_print own, shown[3];
    tt_trust *a = tt_test_by_cert(true, 3600),
             *b = tt_test_by_cert(false, 3600),
             *c = tt_test_by_cert(false, 3600);
    assert_false(tt_trust_prepare(a, fresh[0]));
    assert_false(tt_trust_renew(a));
    expect(a, b, true);
    tt_trust_own(b, &own);
    assert_memory_not_equal(&own, &none, sizeof(own));
    for (int i = 0; i < 2; i++) { /* once, however often it was shown */
        /* b has been both. */
        assert_int_equal(tt_trust_shown(a, i ? &id_a : &id_b, shown, 3), 1);
        assert_memory_equal(&shown[0], &own, sizeof(own));
    }
    expect(a, c, true);
    assert_int_equal(tt_trust_shown(a, &id_b, shown, 3), 2);
    assert_int_equal(tt_trust_shown(a, &id_b, shown, 1), 1);
    dialled = &nobody; /* who dials one way hears of no id */
    expect(a, c, true);
    dialled = &id_b;
    assert_int_equal(tt_trust_shown(a, &nobody, shown, 3), 0);
    assert_false(tt_trust_refuses(a, &own));
    assert_true(tt_trust_refuse(a, &own));
    assert_true(tt_trust_refuse(a, &own));
    assert_true(tt_trust_refuses(a, &own));
    expect(a, b, false);
    expect(a, c, true);
    expect(b, c, true);
    tt_trust_close(a);
    tt_trust_close(b);
    tt_trust_close(c);
}

/* A secret shows nothing, and nobody in particular is not remembered. */
static void test_nothing_shown(void **state)
{
    (void)state;
    static const tt_tls_print none;
    static const tt_link_id nobody;
    tt_tls_print print;
    tt_trust *a = tt_test_by_secret(old), *b = tt_test_by_secret(old);
    expect(a, b, true);
    assert_int_equal(tt_trust_shown(a, &id_b, &print, 1), 0);
    tt_trust_own(a, &print);
    assert_memory_equal(&print, &none, sizeof(none));
    assert_int_equal(tt_trust_shown(a, &nobody, &print, 1), 0);
    tt_trust_close(a);
    tt_trust_close(b);
}

/* The lists are bounded: of what was shown the oldest goes; of those who are
 * out nobody does. */
static void test_bounds(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    tt_outcasts o = {0};
    tt_tls_print print = {{0}}, got;
    tt_link_id who = {{0}};
    for (uint32_t i = 1; i <= MOST + 1; i++) {
        memcpy(print.bytes, &i, sizeof(i));
        memcpy(who.bytes, &i, sizeof(i));
        tt_outcasts_note(&o, &who, &print);
        tt_outcasts_note(&o, &who, &print);
        assert_int_equal(tt_outcasts_add(&o, &print), i <= MOST);
    }
    assert_false(tt_outcasts_has(&o, &print));
    assert_int_equal(tt_outcasts_shown(&o, &who, &got, 1), 1);
    for (uint32_t i = 1; i <= 2; i++) {
        memcpy(who.bytes, &i, sizeof(i));
        memcpy(print.bytes, &i, sizeof(i));
        assert_int_equal(tt_outcasts_shown(&o, &who, &got, 1), i == 2);
        assert_true(tt_outcasts_has(&o, &print));
    }
    assert_false(tt_outcasts_reserve(&o, 1));
    assert_true(tt_outcasts_add(&o, &print)); /* it is there */
    tt_outcasts_free(&o);
    assert_true(tt_outcasts_reserve(&o, MOST));
    assert_false(tt_outcasts_reserve(&o, MOST + 1));
    tt_outcasts_free(&o);
}

/* A certificate that has been shown under ever new ids pushes out only its
 * own. */
static void test_many_ids(void **state)
{
    (void)state;
    enum { MOST_OF_ONE = 256 };
    tt_outcasts o = {0};
    const tt_tls_print others = {{1}}, liars = {{2}};
    tt_tls_print got;
    tt_outcasts_note(&o, &id_a, &others);
    for (uint32_t i = 1; i <= 5000; i++) {
        tt_link_id who = {{0}};
        memcpy(who.bytes + 4, &i, sizeof(i));
        tt_outcasts_note(&o, &who, &liars);
        for (uint32_t back = 0; back <= MOST_OF_ONE && back < i; back += 255) {
            const uint32_t was = i - back;
            memcpy(who.bytes + 4, &was, sizeof(was));
            assert_int_equal(tt_outcasts_shown(&o, &who, &got, 1), 1);
        }
        if (i <= MOST_OF_ONE)
            continue;
        const uint32_t gone = i - MOST_OF_ONE;
        memcpy(who.bytes + 4, &gone, sizeof(gone));
        assert_int_equal(tt_outcasts_shown(&o, &who, &got, 1), 0);
    }
    assert_int_equal(tt_outcasts_shown(&o, &id_a, &got, 1), 1);
    assert_memory_equal(&got, &others, sizeof(got));
    tt_outcasts_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_renewal),
        cmocka_unit_test(test_two_prepared),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_meanwhile),
        cmocka_unit_test(test_certs),
        cmocka_unit_test(test_nothing_shown),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_many_ids),
        cmocka_unit_test(test_after_certificate),
    };
    tt_test_limit(120);
    if (!tt_folder_open("outcast"))
        return 1;
    int failed = TT_RUN_TAP(tests);
    tt_folder_close();
    return failed;
}

#else

int main(void)
{
    printf("1..0 # SKIP built without OpenSSL\n");
    return 77;
}

#endif
