/* SPDX-License-Identifier: BSD-3-Clause
 * records_test.c - records of our own making beside OpenSSL's: each reads what
 * the other one has sealed, whatever TLS 1.3 allows between; and what is no
 * record is refused. */
#include "support/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork.h"
#include "link/tls.h"

#if TT_HAVE_IPSEC_MB && defined(__x86_64__)
#include <cpuid.h>
#include <intel-ipsec-mb.h>
#endif

#if TT_HAVE_OPENSSL

#define MOST (400 * 1000)

/* Our end, and OpenSSL's at the other end of a socket. */
typedef struct pair {
    tt_link_stream us;
    SSL *peer;
    int fd;
    tt_tls_end end;
} pair;

static tt_trust *trust;
static const char *suite; /* all that the peer has; NULL: as we */

static void open_pair(pair *p, bool dials)
{
    int fds[2];
    tt_link_why why;
    *p = (pair){.end.trust = trust};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    tt_fork_watch(fds[0]);
    tt_link_stream_open(&p->us, fds[0]);
    p->fd = fds[1];
    assert_true(tt_seal_begin(&p->us, trust, dials, 0));
    p->peer = tt_tls_new(&p->end, 0);
    assert_non_null(p->peer);
    SSL_set_fd(p->peer, p->fd);
    if (suite)
        assert_int_equal(SSL_set_ciphersuites(p->peer, suite), 1);
    if (dials)
        SSL_set_accept_state(p->peer);
    else
        SSL_set_connect_state(p->peer);
    tt_seal_step step = TT_SEAL_WAITS;
    for (int i = 0; i < 9; i++) {
        step = step == TT_SEAL_WAITS ? tt_seal_shake(&p->us, &why) : step;
        SSL_do_handshake(p->peer);
    }
    assert_int_equal(step, TT_SEAL_DONE);
    assert_true(SSL_is_init_finished(p->peer));
    if (suite)
        assert_string_equal(SSL_get_cipher_name(p->peer), suite);
}

static void close_pair(pair *p)
{
    SSL_free(p->peer);
    tt_link_stream_close(&p->us);
    close(p->fd);
}

static char text[MOST], got[MOST];

/* The peer's, in as many records as it needs. */
static void say(pair *p, const char *from, size_t n)
{
    for (size_t have = 0, m = 0; have < n; have += m)
        assert_int_equal(SSL_write_ex(p->peer, from + have, n - have, &m), 1);
}

/* n bytes that have come, into two pieces. Where a call brings less, it says
 * that there is more. */
static void receive(tt_link_stream *s, const struct iovec in[2], size_t n)
{
    struct iovec rest[2] = {in[0], in[1]};
    for (size_t have = 0; have < n;) {
        ssize_t m = tt_link_recv(s, rest, 2);
        assert_true(m > 0);
        have += (size_t)m;
        assert_true(have == n || tt_link_pending(s) > 0);
        for (int i = 0; i < 2; i++) {
            size_t k = rest[i].iov_len;
            k = k < (size_t)m ? k : (size_t)m;
            rest[i].iov_base = (char *)rest[i].iov_base + k;
            rest[i].iov_len -= k;
            m -= (ssize_t)k;
        }
    }
}

/* n bytes each way, in two pieces. */
static void talk(pair *p, size_t n)
{
    const struct iovec out[2] = {{text, n / 3}, {text + n / 3, n - n / 3}};
    const struct iovec in[2] = {{got, n / 2}, {got + n / 2, n - n / 2}};
    size_t have = 0;
    assert_int_equal(tt_link_send(&p->us, out, 2), n);
    memset(got, 0, n);
    while (have < n) {
        size_t m = 0;
        assert_int_equal(SSL_read_ex(p->peer, got + have, n - have, &m), 1);
        have += m;
    }
    assert_memory_equal(got, text, n);
    say(p, text, n);
    memset(got, 0, n);
    receive(&p->us, in, n);
    assert_memory_equal(got, text, n);
    assert_int_equal(tt_link_pending(&p->us), 0);
}

static void expect_error(pair *p, int err)
{
    const struct iovec in = {got, MOST};
    assert_int_equal(tt_link_recv(&p->us, &in, 1), -1);
    assert_int_equal(errno, err);
}

/* Words before it is settled, data of all sizes after that, new keys asked for
 * and not, padding, a ticket, the end. */
static void test_openssl(void **state)
{
    (void)state;
    for (int dials = 0; dials < 2; dials++) {
        pair p;
        open_pair(&p, dials);
        talk(&p, 10);
        talk(&p, 1000);
        assert_true(tt_seal_settle(&p.us, false));
        for (int i = 0; i < 41; i++) {
            talk(&p, 1 + (size_t)(i * i) * 59);
            if (i % 3 == 0)
                SSL_key_update(p.peer, i % 2 ? SSL_KEY_UPDATE_REQUESTED
                                             : SSL_KEY_UPDATE_NOT_REQUESTED);
            if (i == 20)
                SSL_set_block_padding(p.peer, 500);
            if (i == 30 && dials) {
                SSL_clear_options(p.peer, SSL_OP_NO_TICKET);
                SSL_new_session_ticket(p.peer);
            }
        }
        assert_int_equal(SSL_shutdown(p.peer), 0);
        const struct iovec in = {got, MOST};
        assert_int_equal(tt_link_recv(&p.us, &in, 1), 0);
        assert_true(tt_link_end(&p.us));
        assert_int_equal(SSL_shutdown(p.peer), 1);
        close_pair(&p);
    }
}

/* A key update of ours is one of TLS's, and follows when the peer asks. */
static void test_keys(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, true);
    assert_true(tt_seal_settle(&p.us, false));
    tt_trust_rekey_after(trust, 2);
    for (int i = 0; i < 20; i++)
        talk(&p, 40000);
    tt_trust_rekey_after(trust, UINT64_C(1) << 23);
    talk(&p, 9);
    SSL_key_update(p.peer, SSL_KEY_UPDATE_REQUESTED);
    talk(&p, 9); /* sent before the request is heard */
    const struct iovec out = {text, 9};
    assert_int_equal(tt_link_send(&p.us, &out, 1), 9);
    assert_int_equal(recv(p.fd, got, MOST, MSG_PEEK), 9 + 22 + 5 + 22);
    assert_int_equal(SSL_read(p.peer, got, 9), 9);
    close_pair(&p);
}

/* Not one byte more than there is room for is written. */
static void test_room(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, true);
    assert_true(tt_seal_settle(&p.us, false));
    for (size_t room = 98; room <= 101; room++) {
        const struct iovec in = {got, room};
        memset(got, 0x5a, 200);
        assert_int_equal(SSL_write(p.peer, text, 100), 100);
        size_t n = room < 100 ? room : 100;
        assert_int_equal(tt_link_recv(&p.us, &in, 1), n);
        for (size_t i = room; i < 200; i++)
            assert_int_equal(got[i], 0x5a);
        assert_int_equal(tt_link_pending(&p.us), 100 - n);
        const struct iovec rest = {got + n, 100 - n};
        if (n < 100)
            assert_int_equal(tt_link_recv(&p.us, &rest, 1), 100 - n);
        assert_memory_equal(got, text, 100);
    }
    close_pair(&p);
}

/* Headers and long payloads: each payload has records of its own, and those
 * wait until somebody says where it goes. So none of it is copied. */
static void test_long_pieces(void **state)
{
    (void)state;
    enum { HEADER = 16, PAYLOAD = 45056, ROOM = 512 };
    static const size_t in_records[] = {HEADER, 16384, 16384, PAYLOAD - 32768};
    char wire[2 * (HEADER + PAYLOAD) + 8 * 22], here[ROOM];
    const struct iovec out[4] = {{text, HEADER},
                                 {text + 100, PAYLOAD},
                                 {text, HEADER},
                                 {text + 200, PAYLOAD}};
    const struct iovec head = {here, ROOM};
    pair p;
    open_pair(&p, true);
    assert_true(tt_seal_settle(&p.us, false));
    assert_int_equal(tt_link_send(&p.us, out, 4), 2 * (HEADER + PAYLOAD));
    assert_int_equal(recv(p.fd, wire, sizeof(wire), MSG_PEEK), sizeof(wire));
    for (size_t i = 0, at = 0; i < 8; i++) {
        size_t n = (size_t)(uint8_t)wire[at + 3] << 8 | (uint8_t)wire[at + 4];
        assert_int_equal(n, in_records[i % 4] + 17);
        at += 5 + n;
    }
    for (int i = 0; i < 4; i++)
        say(&p, out[i].iov_base, out[i].iov_len);
    assert_int_equal(tt_link_recv(&p.us, &head, 1), HEADER);
    for (int i = 0; i < 2; i++) {
        const struct iovec in[2] = {{got, PAYLOAD}, {here, ROOM}};
        assert_true(tt_link_pending(&p.us) > 0);
        assert_int_equal(tt_link_recv(&p.us, in, 2),
                         PAYLOAD + (i == 0 ? HEADER : 0));
        assert_memory_equal(got, out[2 * i + 1].iov_base, PAYLOAD);
    }
    close_pair(&p);
}

static bool went_on[9];
static int n_sends;

/* Writes down whether more was to follow, and takes all. */
static ssize_t noting_send(tt_link_stream *s, const struct iovec *iov,
                           int n_iov)
{
    assert_int_equal(n_iov, 1);
    assert_true(n_sends < 9);
    went_on[n_sends++] = s->goes_on;
    return (ssize_t)iov->iov_len;
}

static size_t none(const tt_link_stream *s)
{
    (void)s;
    return 0;
}

static void forget(tt_link_stream *s)
{
    (void)s;
}

/* What needs more than one buffer says so, but for the last one: else each
 * would end in a small packet. */
static void test_goes_on(void **state)
{
    (void)state;
    static const tt_link_layer noting = {
        .send = noting_send, .unsent = none, .close = forget};
    const struct iovec out = {text, MOST};
    pair p;
    open_pair(&p, true);
    assert_true(tt_seal_settle(&p.us, false));
    tt_link_stream *below = tt_seal_below(&p.us);
    below->layer = &noting;
    for (int i = 0; i < 2; i++) {
        n_sends = 0;
        assert_int_equal(tt_link_send(&p.us, &out, 1), MOST);
        assert_true(n_sends > 1);
        for (int k = 0; k < n_sends; k++)
            assert_int_equal(went_on[k], k + 1 < n_sends);
    }
    below->layer = NULL;
    close_pair(&p);
}

/* Who has not read what was said before cannot settle. */
static void test_unread(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, false);
    const struct iovec in = {got, 2};
    assert_int_equal(SSL_write(p.peer, "word", 4), 4);
    assert_int_equal(tt_link_recv(&p.us, &in, 1), 2);
    assert_false(tt_seal_settle(&p.us, false));
    close_pair(&p);
}

/* What the peer says in TLS, but not at this time: a request for a certificate,
 * an alert. And what is no record at all, or one that is too short or too
 * long. */
static void test_refused(void **state)
{
    (void)state;
    static const char bad[][7] = {
        "\x17\x03\x03\x00\x00", "\x17\x03\x03\x00\x02xx",
        "\x16\x03\x03\x00\x02xx", "\x17\x03\x03\x7f\xff"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]) + 1; i++) {
        pair p;
        open_pair(&p, false);
        assert_true(tt_seal_settle(&p.us, false));
        if (i < 4) {
            assert_int_equal(write(p.fd, bad[i], 7), 7);
        } else {
            /* Its own record comes back to the peer, who says so. */
            assert_int_equal(write(p.us.fd,
                                   "\x17\x03\x03\x00\x14"
                                   "0123456789abcdefghij",
                                   25),
                             25);
            assert_int_equal(SSL_read(p.peer, got, 10), -1);
        }
        expect_error(&p, EBADMSG);
        expect_error(&p, EBADMSG);
        close_pair(&p);
    }
}

/* What is too short for a record, though it begins as one, is none: nothing is
 * written, and the next one counts as before. */
static void test_short(void **state)
{
    (void)state;
    static const uint8_t secret[32] = {9};
    const EVP_CIPHER *ciphers[] = {EVP_aes_128_gcm(), EVP_chacha20_poly1305()};
    for (int i = 0; i < 4; i++) {
        const tt_record_way seals = {ciphers[i / 2], true, i % 2},
                            opens = {ciphers[i / 2], false, i % 2};
        const struct iovec piece = {text, 3};
        char sealed[3 + 22], out[22];
        tt_record_key from = {0}, to = {0};
        tt_record r = {0};
        assert_true(tt_record_key_open(&from, &seals, secret, 7));
        assert_true(tt_record_key_open(&to, &opens, secret, 7));
        assert_int_equal(tt_record_seal(&from, 23, &piece, 1, sealed), 25);
        memset(out, 0x5a, sizeof(out));
        for (size_t n = 0; n < 22; n++)
            assert_false(tt_record_open(&to, sealed, n, out, &r));
        for (size_t k = 0; k < sizeof(out); k++)
            assert_int_equal(out[k], 0x5a);
        assert_int_equal(to.seq, 7);
        assert_true(tt_record_open(&to, sealed, 25, out, &r));
        assert_int_equal(r.n, 3);
        assert_memory_equal(out, text, 3);
        tt_record_key_close(&from);
        tt_record_key_close(&to);
    }
}

/* What is behind the type is padding; where all is, there is no type. */
static void test_padding(void **state)
{
    (void)state;
    static const uint8_t secret[32] = {7};
    static const char zeros[9];
    for (int i = 0; i < 40; i++) {
        const tt_record_way seals = {EVP_aes_128_gcm(), true, i % 2},
                            opens = {EVP_aes_128_gcm(), false, i % 2};
        const size_t n = (size_t)i / 2 % 4, n_zeros = (size_t)i / 8 + 1;
        const bool has_type = n_zeros < 5;
        const struct iovec pieces[3] = {{text + 1, has_type ? n : 0},
                                        {(char[]){22}, has_type},
                                        {(char *)zeros, n_zeros}};
        char sealed[32 + 22];
        tt_record_key from = {0}, to = {0};
        tt_record r = {0};
        assert_true(tt_record_key_open(&from, &seals, secret, 0));
        assert_true(tt_record_key_open(&to, &opens, secret, 0));
        size_t len = tt_record_seal(&from, 0, pieces, 3, sealed);
        assert_true(len > 0);
        assert_int_equal(tt_record_open(&to, sealed, len, got, &r), has_type);
        if (has_type) {
            assert_int_equal(r.type, 22);
            assert_int_equal(r.n, n);
            assert_memory_equal(got, text + 1, n);
        }
        tt_record_key_close(&from);
        tt_record_key_close(&to);
    }
}

/* A cipher that does nothing any more: that is told. */
static void test_no_cipher(void **state)
{
    (void)state;
    static const uint8_t secret[32] = {8};
    for (int seals = 0; seals < 2; seals++) {
        const tt_record_way way = {EVP_aes_128_gcm(), seals, true};
        const struct iovec piece = {text, 9};
        char bytes[9 + 22] = {SSL3_RT_APPLICATION_DATA};
        tt_record_key k = {0};
        tt_record r;
        assert_true(tt_record_key_open(&k, &way, secret, 0));
        EVP_CIPHER_CTX_reset(k.ctx);
        if (seals)
            assert_int_equal(tt_record_seal(&k, 23, &piece, 1, bytes), 0);
        else
            assert_false(tt_record_open(&k, bytes, sizeof(bytes), got, &r));
        assert_false(tt_record_key_next(&k));
        tt_record_key_close(&k);
    }
    ERR_clear_error();
}

/* n bytes of the own memory, which need not be there any more; how many of them
 * are not 0. */
static size_t count_left(const void *at, size_t n)
{
    uint8_t bytes[512];
    size_t left = 0;
    assert_true(n <= sizeof(bytes));
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    ssize_t n_read = pread(fd, bytes, n, (off_t)(uintptr_t)at);
    close(fd);
    for (ssize_t i = 0; i < n_read; i++)
        left += bytes[i] != 0;
    return left;
}

/* When a key is closed nothing of it is left: neither of the secret, nor of
 * what a cipher makes of it (some way into its memory, as whoever frees that
 * may write to its beginning). */
static void test_wiped(void **state)
{
    (void)state;
    enum { INTO = 64, LOOKED_AT = 192 };
    static const uint8_t secret[32] = {3, 1, 4};
    for (int i = 0; i < 4; i++) {
        const tt_record_way way = {EVP_aes_128_gcm(), i / 2, i % 2};
        static tt_record_key k;
        assert_true(tt_record_key_open(&k, &way, secret, 5));
        const char *at = k.gcm ? (const char *)k.gcm + INTO : NULL;
        assert_true(count_left(k.secret, sizeof(k.secret)) > 0);
        if (at)
            assert_in_range(count_left(at, LOOKED_AT), LOOKED_AT / 2,
                            LOOKED_AT);
        tt_record_key_close(&k);
        assert_int_equal(count_left(&k, sizeof(k)), 0);
        if (at)
            assert_int_equal(count_left(at, LOOKED_AT), 0);
    }
}

/* The same record by both ciphers: whoever has sealed it, in whatever pieces,
 * both open it, and none with one bit changed. */
static void test_ciphers(void **state)
{
    (void)state;
    static const uint8_t secret[32] = {5, 6, 7};
    static const size_t sizes[] = {0, 1, 15, 16, 17, 100, 4096, 16383};
    static char sealed[2][16 * 1024 + 22], copy[16 * 1024 + 22];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t n = sizes[i], cut = n / 3;
        const uint64_t seq = UINT64_C(0xfffffffe) + i;
        const struct iovec pieces[3] = {
            {text, cut}, {NULL, 0}, {text + cut, n - cut}};
        for (int w = 0; w < 2; w++) {
            const tt_record_way way = {EVP_aes_128_gcm(), true, w};
            tt_record_key k = {0};
            assert_true(tt_record_key_open(&k, &way, secret, seq));
            assert_int_equal(tt_record_seal(&k, 23, pieces, 3, sealed[w]),
                             n + 22);
            tt_record_key_close(&k);
        }
        assert_memory_equal(sealed[0], sealed[1], n + 22);
        for (size_t flip = 0; flip < 2 * 8 * (n + 22) && n <= 100; flip++) {
            const tt_record_way way = {EVP_aes_128_gcm(), false, flip % 2};
            size_t at = flip / 2;
            tt_record_key k = {0};
            tt_record r;
            memcpy(copy, sealed[0], n + 22);
            copy[at / 8] ^= (char)(1 << at % 8);
            assert_true(tt_record_key_open(&k, &way, secret, seq));
            assert_false(tt_record_open(&k, copy, n + 22, got, &r));
            tt_record_key_close(&k);
        }
        for (int w = 0; w < 4; w++) {
            const tt_record_way way = {EVP_aes_128_gcm(), false, w % 2};
            tt_record_key k = {0};
            tt_record r;
            memcpy(copy, sealed[0], n + 22);
            char *to = w < 2 ? got : copy + 5;
            assert_true(tt_record_key_open(&k, &way, secret, seq));
            assert_true(tt_record_open(&k, copy, n + 22, to, &r));
            assert_int_equal(r.type, 23);
            assert_int_equal(r.n, n);
            assert_memory_equal(to, text, n);
            tt_record_key_close(&k);
        }
    }
}

/* Is ipsec-mb to be used here? */
static bool is_wide(void)
{
#if TT_HAVE_IPSEC_MB && defined(__x86_64__)
    void *lib = dlopen("libIPSec_MB.so.1", RTLD_NOW | RTLD_LOCAL);
    void *at = lib ? dlsym(lib, "imb_get_version") : NULL;
    unsigned (*version)(void) = NULL, eax, ebx, ecx, edx;
    memcpy(&version, &at, sizeof(at));
    return at && version() >> 8 == IMB_VERSION_NUM >> 8 &&
           __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
           (ecx & bit_VAES) && (ebx & bit_AVX512VL);
#else
    return false;
#endif
}

/* ipsec-mb, where it can be used, unless it must not be. */
static void test_chosen(void **state)
{
    (void)state;
    static const uint8_t secret[32] = {1};
    for (int i = 0; i < 4; i++) {
        const tt_record_way way = {EVP_aes_128_gcm(), i / 2, i % 2};
        tt_record_key k = {0};
        assert_true(tt_record_key_open(&k, &way, secret, 0));
        assert_int_equal(k.gcm != NULL, is_wide() && !way.is_by_openssl);
        tt_record_key_close(&k);
    }
}

static tt_trust *trusts[2];

static int by_any(void **state)
{
    (void)state;
    trust = trusts[0];
    suite = NULL;
    return 0;
}

/* As with a peer that has no AES. */
static int by_chacha20(void **state)
{
    (void)state;
    trust = trusts[0];
    suite = "TLS_CHACHA20_POLY1305_SHA256";
    return 0;
}

static int by_openssl(void **state)
{
    (void)state;
    trust = trusts[1];
    suite = NULL;
    return 0;
}

#define EACH(test)                                           \
    cmocka_unit_test_setup(test, by_any),                    \
        {#test "_by_openssl", test, by_openssl, NULL, NULL}, \
    {                                                        \
#test "_by_chacha20", test, by_chacha20, NULL, NULL  \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_openssl),
        EACH(test_keys),
        EACH(test_room),
        EACH(test_unread),
        EACH(test_refused),
        EACH(test_goes_on),
        EACH(test_long_pieces),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_no_cipher),
        cmocka_unit_test(test_wiped),
        cmocka_unit_test(test_ciphers),
        cmocka_unit_test(test_chosen),
    };
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    tt_trust_opts o = {.secret = (const uint8_t *)secret, .n_secret = 32};
    tt_test_limit(60);
    for (int i = 0; i < 2; i++) {
        o.is_by_openssl = i == 1;
        if (tt_trust_open(&o, &trusts[i], NULL))
            return 1;
    }
    for (size_t i = 0; i < MOST; i++)
        text[i] = (char)(i * 0x9e3779b97f4a7c15u >> 40);
    int rc = TT_RUN_TAP(tests);
    tt_trust_close(trusts[0]);
    tt_trust_close(trusts[1]);
    return rc;
}

#else

int main(void)
{
    printf("1..0 # SKIP built without OpenSSL\n");
    return 77;
}

#endif
