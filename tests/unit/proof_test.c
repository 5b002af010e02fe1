/* SPDX-License-Identifier: BSD-3-Clause
 * proof_test.c - who is let in by TLS, row by row: files that cannot be a
 * proof, and peers (OpenSSL's own, without our rules) with certificates and
 * keys that do not count. Everything is made anew here. */
#include "support/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fork.h"
#include "link/seal.h"
#include "support/certs.h"
#include "support/folder.h"

#if TT_HAVE_OPENSSL

#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>

#include "link/tls.h"

static FILE *create(const char *name)
{
    int fd = open(tt_folder_path(name),
                  O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fdopen(fd, "w");
}

/* --------------------------------------------------------- certificates -- */

static EVP_PKEY *ca_key, *other_key, *mid_key, *key, *weak_key;
static X509 *ca, *other_ca, *mid, *ca_less_mid;
static tt_trust *by_certs, *by_secret;
static const char secret[] = "ours-0123456789-0123456789-0123456789";

static X509 *make_ca(EVP_PKEY *of, X509 *by, EVP_PKEY *by_key, const char *name,
                     const char *basic)
{
    const tt_test_cert_opts o = {.key = of,
                                 .name = name,
                                 .by = by,
                                 .by_key = by_key,
                                 .begins_s = -3600,
                                 .ends_s = 86400,
                                 .basic = basic};
    return tt_test_cert(&o);
}

/* A rank's, of the CA, but for what o says otherwise. */
static X509 *make_cert(tt_test_cert_opts o)
{
    o.key = o.key ? o.key : key;
    o.name = "a rank";
    o.by = o.by ? o.by : ca;
    o.by_key = o.by_key ? o.by_key : ca_key;
    o.begins_s = o.begins_s ? o.begins_s : -3600;
    o.ends_s = o.ends_s ? o.ends_s : 3600;
    return tt_test_cert(&o);
}

static void write_cert(const char *name, X509 *x)
{
    FILE *f = create(name);
    assert_int_equal(PEM_write_X509(f, x), 1);
    fclose(f);
}

static void write_key(const char *name, EVP_PKEY *k, const char *password)
{
    FILE *f = create(name);
    assert_int_equal(
        PEM_write_PrivateKey(f, k, password ? EVP_aes_128_cbc() : NULL,
                             (const unsigned char *)password,
                             password ? (int)strlen(password) : 0, NULL, NULL),
        1);
    fclose(f);
}

static void write_text(const char *name, const char *text, size_t n)
{
    FILE *f = create(name);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

/* The first part of a file as another one. */
static void write_half(const char *name, const char *of)
{
    char text[8192];
    FILE *f = fopen(tt_folder_path(of), "re");
    size_t n = fread(text, 1, sizeof(text), f);
    fclose(f);
    write_text(name, text, n / 2);
}

/* A system that asks for little: what is refused is refused by us. */
static void be_lax(void)
{
    static const char text[] = "openssl_conf = all\n[all]\nssl_conf = ssl\n"
                               "[ssl]\nsystem_default = lax\n"
                               "[lax]\nCipherString = DEFAULT:@SECLEVEL=0\n";
    write_text("lax", text, strlen(text));
    setenv("OPENSSL_CONF", tt_folder_path("lax"), 1);
}

static void make_all(void)
{
    const tt_trust_opts o = {.secret = (const uint8_t *)secret,
                             .n_secret = strlen(secret)};
    ca_key = EVP_EC_gen("P-256");
    other_key = EVP_EC_gen("P-256");
    mid_key = EVP_EC_gen("P-256");
    key = EVP_EC_gen("P-256");
    weak_key = EVP_RSA_gen(1024);
    ca = make_ca(ca_key, NULL, ca_key, "a CA", "critical,CA:TRUE");
    other_ca = make_ca(other_key, NULL, other_key, "a CA", "critical,CA:TRUE");
    mid = make_ca(mid_key, ca, ca_key, "between", "critical,CA:TRUE");
    ca_less_mid = make_ca(mid_key, ca, ca_key, "between", "critical,CA:FALSE");
    X509 *x = make_cert((tt_test_cert_opts){.key = NULL});
    write_cert("cert", x);
    write_cert("ca", ca);
    write_key("key", key, NULL);
    X509_free(x);
    const tt_trust_opts files = {.cert = tt_folder_path("cert"),
                                 .key = tt_folder_path("key"),
                                 .ca = tt_folder_path("ca")};
    assert_int_equal(tt_trust_open(&files, &by_certs, NULL), TUTTI_OK);
    assert_int_equal(tt_trust_open(&o, &by_secret, NULL), TUTTI_OK);
}

/* ---------------------------------------------------------------- files -- */

static void test_files(void **state)
{
    (void)state;
    static const char junk[] = "-----BEGIN CERTIFICATE-----\nno, it is not\n"
                               "-----END CERTIFICATE-----\n";
    X509 *weak = make_cert((tt_test_cert_opts){.key = weak_key});
    X509 *sha1 = make_cert((tt_test_cert_opts){.has_sha1 = true});
    write_cert("weak", weak);
    write_cert("sha1", sha1);
    write_key("weak-key", weak_key, NULL);
    write_key("other-key", other_key, NULL);
    write_key("locked-key", key, "password");
    write_key("open-key", key, NULL);
    assert_int_equal(chmod(tt_folder_path("open-key"), 0640), 0);
    write_half("half", "cert");
    write_half("half-key", "key");
    write_text("junk", junk, strlen(junk));
    write_text("nothing", "", 0);
    static const struct {
        const char *cert, *key, *ca, *says; /* NULL: they are taken */
    } rows[] = {
        {"cert", "key", "ca", NULL},
        {"half", "key", "ca", "the certificate "},
        {"junk", "key", "ca", "the certificate "},
        {"nothing", "key", "ca", "the certificate "},
        {"absent", "key", "ca", "the certificate "},
        {"key", "key", "ca", "the certificate "},
        {"weak", "weak-key", "ca", "key too small"},
        {"sha1", "key", "ca", "md too weak"},
        {"cert", "other-key", "ca", "key values mismatch"},
        {"cert", "weak-key", "ca", "the key of the certificate "},
        {"cert", "locked-key", "ca", "it is encrypted"},
        {"cert", "half-key", "ca", "the key of the certificate "},
        {"cert", "junk", "ca", "the key of the certificate "},
        {"cert", "nothing", "ca", "the key of the certificate "},
        {"cert", "cert", "ca", "the key of the certificate "},
        {"cert", "absent", "ca", "cannot open the key"},
        {"cert", "open-key", "ca", "chmod 600"},
        {"cert", "key", "half", "the certificate of the CA "},
        {"cert", "key", "junk", "the certificate of the CA "},
        {"cert", "key", "nothing", "the certificate of the CA "},
        {"cert", "key", "absent", "the certificate of the CA "},
        {"cert", "key", "key", "the certificate of the CA "},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tt_trust *t = NULL;
        tutti_diag diag = {.text = ""};
        const tt_trust_opts o = {.cert = tt_folder_path(rows[i].cert),
                                 .key = tt_folder_path(rows[i].key),
                                 .ca = tt_folder_path(rows[i].ca)};
        tutti_err err = tt_trust_open(&o, &t, &diag);
        if (rows[i].says && !strstr(diag.text, rows[i].says))
            fail_msg("file %zu: \"%s\"", i, diag.text);
        assert_int_equal(err, rows[i].says ? TUTTI_ECONFIG : TUTTI_OK);
        assert_int_equal(t != NULL, rows[i].says == NULL);
        tt_trust_close(t);
    }
    X509_free(weak);
    X509_free(sha1);
}

static void test_secret_lengths(void **state)
{
    (void)state;
    static uint8_t bytes[1100];
    static const size_t lens[] = {1, 16, 31, 1025, 1100};
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        tt_trust *t;
        tutti_diag diag;
        const tt_trust_opts o = {.secret = bytes, .n_secret = lens[i]};
        assert_int_equal(tt_trust_open(&o, &t, &diag), TUTTI_ECONFIG);
        assert_non_null(strstr(diag.text, "it has 32 to 1024"));
        assert_null(t);
    }
}

/* --------------------------------------------------------------- a peer -- */

/* The key that a peer offers, or asks for. */
typedef struct psk {
    uint8_t name[32], key[64];
    size_t n_name, n_key;
} psk;

static SSL_SESSION *session_of(SSL *ssl)
{
    static const unsigned char suite[] = {0x13, 0x01};
    const psk *p = SSL_get_app_data(ssl);
    SSL_SESSION *s = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(s, p->key, p->n_key);
    SSL_SESSION_set_cipher(s, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION);
    return s;
}

static int offer_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id,
                     size_t *n_id, SSL_SESSION **out)
{
    const psk *p = SSL_get_app_data(ssl);
    (void)md;
    *out = session_of(ssl);
    *id = p->name;
    *n_id = p->n_name;
    return 1;
}

static int find_psk(SSL *ssl, const unsigned char *id, size_t n_id,
                    SSL_SESSION **out)
{
    (void)id, (void)n_id; /* it takes any name */
    *out = session_of(ssl);
    return 1;
}

/* As our own side has it. */
static psk right_psk(void)
{
    tt_tls_end end = {.trust = by_secret};
    SSL *ssl = tt_tls_new(&end, 0);
    psk p = {.n_name = sizeof(end.offered.name),
             .n_key = sizeof(end.offered.key)};
    memcpy(p.name, end.offered.name, p.n_name);
    memcpy(p.key, end.offered.key, p.n_key);
    SSL_free(ssl);
    return p;
}

/* OpenSSL's, which asks for nothing: what is refused is refused by us. */
static SSL_CTX *peer_ctx(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    SSL_CTX_set_security_level(ctx, 0);
    SSL_CTX_set_num_tickets(ctx, 0);
    return ctx;
}

static SSL_CTX *psk_ctx(void)
{
    SSL_CTX *ctx = peer_ctx();
    SSL_CTX_set_psk_use_session_callback(ctx, offer_psk);
    SSL_CTX_set_psk_find_session_callback(ctx, find_psk);
    return ctx;
}

/* What was said: our side's end of it. */
typedef struct outcome {
    tt_seal_step step;
    tt_link_why why;
    bool was_begun;
    char reason[160];
} outcome;

/* To be called with what the peer sends; may change it. */
typedef void (*between)(uint8_t *bytes, size_t n, void *arg);

static size_t to_us(SSL *peer, int fd, between change, void *arg)
{
    uint8_t bytes[16384];
    int n = BIO_read(SSL_get_wbio(peer), bytes, sizeof(bytes));
    if (n <= 0)
        return 0;
    if (change)
        change(bytes, (size_t)n, arg);
    (void)!send(fd, bytes, (size_t)n, MSG_NOSIGNAL);
    return (size_t)n;
}

static size_t from_us(SSL *peer, int fd)
{
    char bytes[16384];
    ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n > 0)
        BIO_write(SSL_get_rbio(peer), bytes, (int)n);
    return n > 0 ? (size_t)n : 0;
}

/* Until nothing moves any more. */
static outcome meet(tt_trust *t, bool is_dialler, SSL_CTX *ctx, void *data,
                    between change)
{
    int fds[2];
    tt_link_stream s;
    outcome o = {.step = TT_SEAL_WAITS, .why = TT_LINK_WELL};
    SSL *peer = SSL_new(ctx);
    SSL_set_app_data(peer, data);
    SSL_set_bio(peer, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (is_dialler)
        SSL_set_accept_state(peer);
    else
        SSL_set_connect_state(peer);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    tt_fork_watch(fds[0]);
    tt_link_stream_open(&s, fds[0]);
    assert_true(tt_seal_begin(&s, t, is_dialler, 0));
    for (size_t moved = 1; moved > 0;) {
        SSL_do_handshake(peer);
        moved = to_us(peer, fds[1], change, data);
        if (o.step == TT_SEAL_WAITS)
            o.step = tt_seal_shake(&s, &o.why);
        o.was_begun |= o.step == TT_SEAL_WAITS && tt_seal_is_begun(&s);
        moved += from_us(peer, fds[1]);
    }
    snprintf(o.reason, sizeof(o.reason), "%s", tt_seal_reason(&s));
    ERR_clear_error();
    tt_link_stream_close(&s);
    SSL_free(peer);
    close(fds[1]);
    return o;
}

/* says: NULL: it is let in. */
static void expect(const char *who, const outcome *o, const char *says)
{
    if (!says && o->step != TT_SEAL_DONE)
        fail_msg("%s is sent away: %s", who, o->reason);
    if (!says)
        return;
    if (o->step != TT_SEAL_FAILED)
        fail_msg("%s is not sent away (%d)", who, o->step);
    if (!strstr(o->reason, says))
        fail_msg("%s is sent away for \"%s\"", who, o->reason);
    assert_true(o->why == TT_LINK_OTHER_SECRET || o->why == TT_LINK_NO_SECRET);
    assert_true(tt_link_why_text(o->why)[0] != '\0');
}

/* ------------------------------------------------------ its certificate -- */

typedef struct cert_row {
    const char *who;
    tt_test_cert_opts o;
    X509 *between; /* shown with it */
    /* Why it is refused as one who dials, and as one who listens; NULL: it is
     * let in. */
    const char *dials, *listens;
} cert_row;

static void run_cert(const cert_row *row, X509 *x)
{
    for (int is_dialler = 0; is_dialler < 2; is_dialler++) {
        SSL_CTX *ctx = peer_ctx();
        assert_int_equal(SSL_CTX_use_certificate(ctx, x), 1);
        assert_int_equal(
            SSL_CTX_use_PrivateKey(ctx, row->o.key ? row->o.key : key), 1);
        if (row->between)
            SSL_CTX_add1_chain_cert(ctx, row->between);
        outcome o = meet(by_certs, is_dialler, ctx, NULL, NULL);
        expect(row->who, &o, is_dialler ? row->listens : row->dials);
        SSL_CTX_free(ctx);
    }
}

static void test_certs(void **state)
{
    (void)state;
    static const char purpose[] = "purpose";
    const cert_row rows[] = {
        {.who = "a good one", .o = {.key = NULL}},
        {.who = "one for both",
         .o = {.serves = "serverAuth,clientAuth", .usage = "digitalSignature"}},
        {.who = "one by a CA between",
         .o = {.by = mid, .by_key = mid_key},
         .between = mid},
        {"an expired one", {.ends_s = -60}, NULL, "expired", "expired"},
        {"one of tomorrow", {.begins_s = 600}, NULL, "not yet", "not yet"},
        {"one of another CA by the same name",
         {.by = other_ca, .by_key = other_key},
         NULL,
         "signature failure",
         "signature failure"},
        {"one of an unknown CA",
         {.by = mid, .by_key = mid_key},
         NULL,
         "issuer",
         "issuer"},
        {"one whose CA is none",
         {.by = ca_less_mid, .by_key = mid_key},
         ca_less_mid,
         "invalid CA",
         "invalid CA"},
        {"one for listeners", {.serves = "serverAuth"}, NULL, purpose, NULL},
        {"one for diallers", {.serves = "clientAuth"}, NULL, NULL, purpose},
        {"one for code", {.serves = "codeSigning"}, NULL, purpose, purpose},
        {"one whose key does not sign",
         {.usage = "keyCertSign"},
         NULL,
         purpose,
         purpose},
        {"one of a weak key",
         {.key = weak_key},
         NULL,
         "key too weak",
         "key too weak"},
        {"one signed by SHA-1", {.has_sha1 = true}, NULL, "weak", "weak"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        X509 *x = make_cert(rows[i].o);
        run_cert(&rows[i], x);
        X509_free(x);
    }
    const cert_row self = {.who = "one of its own",
                           .dials = "self-signed",
                           .listens = "self-signed"};
    X509 *x = make_ca(key, NULL, key, "a rank", NULL);
    run_cert(&self, x);
    X509_free(x);
}

/* A peer without a certificate, by a secret where certificates count, and the
 * other way round. */
static void test_other_proof(void **state)
{
    (void)state;
    psk p = right_psk();
    X509 *x = make_cert((tt_test_cert_opts){.key = NULL});
    for (int is_dialler = 0; is_dialler < 2; is_dialler++) {
        SSL_CTX *nobody = peer_ctx(), *has_psk = psk_ctx(), *cert = peer_ctx();
        SSL_CTX_use_certificate(cert, x);
        SSL_CTX_use_PrivateKey(cert, key);
        SSL_CTX_set_psk_use_session_callback(cert, NULL);
        for (int i = 0; i < 2; i++) {
            outcome o = meet(by_certs, is_dialler, i ? has_psk : nobody, &p,
                             NULL);
            expect("one without a certificate", &o, "");
        }
        outcome o = meet(by_secret, is_dialler, nobody, &p, NULL);
        expect("one without a proof", &o, "");
        assert_false(o.was_begun);
        o = meet(by_secret, is_dialler, cert, &p, NULL);
        expect("one with a certificate", &o, "");
        assert_false(o.was_begun);
        SSL_CTX_free(nobody);
        SSL_CTX_free(has_psk);
        SSL_CTX_free(cert);
    }
    X509_free(x);
}

/* --------------------------------------------------------------- its key -- */

static void run_psk(const char *who, psk p, bool is_in)
{
    for (int is_dialler = 0; is_dialler < 2; is_dialler++) {
        SSL_CTX *ctx = psk_ctx();
        outcome o = meet(by_secret, is_dialler, ctx, &p, NULL);
        bool is_name_only = p.n_key == 32 && is_dialler &&
                            memcmp(p.key, right_psk().key, 32) == 0;
        /* Who listens takes our name, whatever its own one is. */
        expect(who, &o, is_in || is_name_only ? NULL : "");
        if (!is_in && !is_name_only)
            assert_false(o.was_begun);
        SSL_CTX_free(ctx);
    }
}

static void test_psk(void **state)
{
    (void)state;
    const psk right = right_psk();
    psk p = right;
    run_psk("who has the secret", p, true);
    p.name[15] ^= 1;
    run_psk("another name", p, false);
    p = right;
    p.n_name = 15;
    run_psk("half a name", p, false);
    p.n_name = 17;
    run_psk("a longer name", p, false);
    p = right;
    p.key[31] ^= 1;
    run_psk("another key", p, false);
    p = right;
    p.n_key = 16;
    run_psk("half a key", p, false);
    p.n_key = 48;
    run_psk("a longer key", p, false);
    p = right;
    memset(p.key, 0, sizeof(p.key));
    run_psk("no key", p, false);
}

/* ------------------------------------------------------------- its ways -- */

static void test_versions(void **state)
{
    (void)state;
    psk p = right_psk();
    X509 *x = make_cert((tt_test_cert_opts){.key = NULL});
    for (int i = 0; i < 4; i++) {
        bool is_dialler = i & 1;
        tt_trust *t = i & 2 ? by_certs : by_secret;
        SSL_CTX *old = psk_ctx(), *other = psk_ctx();
        SSL_CTX *const all[] = {old, other};
        for (int k = 0; k < 2; k++) {
            SSL_CTX_use_certificate(all[k], x);
            SSL_CTX_use_PrivateKey(all[k], key);
        }
        SSL_CTX_set_max_proto_version(old, TLS1_2_VERSION);
        SSL_CTX_set_ciphersuites(other, "TLS_AES_256_GCM_SHA384");
        outcome o = meet(t, is_dialler, old, &p, NULL);
        expect("TLS 1.2", &o,
               is_dialler ? "protocol version" : "unsupported protocol");
        o = meet(t, is_dialler, other, &p, NULL);
        expect("another suite", &o, is_dialler ? "handshake failure" : "");
        SSL_CTX_free(old);
        SSL_CTX_free(other);
    }
    X509_free(x);
}

/* It asks for another group, and gets the secret once more. */
static void test_other_group(void **state)
{
    (void)state;
    psk p = right_psk();
    for (int is_dialler = 0; is_dialler < 2; is_dialler++) {
        SSL_CTX *ctx = psk_ctx();
        assert_int_equal(SSL_CTX_set1_groups_list(
                             ctx, is_dialler ? "P-384" : "P-384:X25519"),
                         1);
        outcome o = meet(by_secret, is_dialler, ctx, &p, NULL);
        expect("who wants another group", &o, NULL);
        SSL_CTX_free(ctx);
    }
}

/* HKDF-Expand-Label of one block (RFC 8446, 7.1), without "tls13 ". */
static void expand_label(const uint8_t secret_in[32], const char *label,
                         const uint8_t *hash, size_t n_hash, uint8_t out[32])
{
    uint8_t info[80] = {0, 32, (uint8_t)(6 + strlen(label))};
    size_t n = 3;
    memcpy(info + n, "tls13 ", 6);
    memcpy(info + n + 6, label, strlen(label));
    n += 6 + strlen(label);
    info[n++] = (uint8_t)n_hash;
    if (n_hash > 0)
        memcpy(info + n, hash, n_hash);
    n += n_hash;
    info[n++] = 1;
    HMAC(EVP_sha256(), secret_in, 32, info, n, out, NULL);
}

/* In place of the last 32 bytes of a ClientHello: what proves the key. */
static void say_binder(uint8_t *hello, size_t n, const psk *p)
{
    static const uint8_t zeros[32];
    uint8_t early[32], of_binder[32], of_finish[32], hash[32];
    HMAC(EVP_sha256(), zeros, 32, p->key, p->n_key, early, NULL);
    EVP_Digest("", 0, hash, NULL, EVP_sha256(), NULL);
    expand_label(early, "ext binder", hash, 32, of_binder);
    expand_label(of_binder, "finished", NULL, 0, of_finish);
    EVP_Digest(hello, n - 35, hash, NULL, EVP_sha256(), NULL);
    HMAC(EVP_sha256(), of_finish, 32, hash, 32, hello + n - 32, NULL);
}

/* What a peer says first, to out; returns its bytes. */
static size_t say_hello(psk *p, uint8_t out[TT_SEAL_LOOK])
{
    SSL_CTX *ctx = psk_ctx();
    SSL *peer = SSL_new(ctx);
    SSL_set_app_data(peer, p);
    SSL_set_bio(peer, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(peer);
    SSL_do_handshake(peer);
    int n = BIO_read(SSL_get_wbio(peer), out, TT_SEAL_LOOK);
    assert_true(n > 100);
    ERR_clear_error();
    SSL_free(peer);
    SSL_CTX_free(ctx);
    return (size_t)n;
}

static tt_trust *look_trust;

static void expect_look(const uint8_t *hello, size_t n, tt_link_why expected)
{
    tt_link_why why;
    tt_seal_step step = tt_seal_look(look_trust, hello, n, &why);
    assert_int_equal(step,
                     expected == TT_LINK_WELL ? TT_SEAL_DONE : TT_SEAL_FAILED);
    assert_int_equal(why, expected);
}

/* Before a handshake: who has the secret is told from who does not, wherever
 * what he says differs by a bit; and who says it first from who says it
 * again. */
static void test_look(void **state)
{
    (void)state;
    const tt_trust_opts o = {.secret = (const uint8_t *)secret,
                             .n_secret = strlen(secret)};
    uint8_t hello[TT_SEAL_LOOK];
    psk p = right_psk(), other = p;
    tt_link_why why;
    other.key[31] ^= 1;
    assert_int_equal(tt_trust_open(&o, &look_trust, NULL), TUTTI_OK);
    size_t n = say_hello(&other, hello);
    expect_look(hello, n, TT_LINK_OTHER_SECRET);
    n = say_hello(&p, hello);
    for (size_t len = 0; len < n; len++)
        assert_int_equal(tt_seal_look(look_trust, hello, len, &why),
                         TT_SEAL_WAITS);
    for (size_t i = 5; i < n; i += i == n - 36 ? 4 : 1) {
        hello[i] ^= 1; /* not the lengths before the proof: it proves no more */
        expect_look(hello, n, TT_LINK_OTHER_SECRET);
        hello[i] ^= 1;
    }
    expect_look(hello, n, TT_LINK_WELL);
    expect_look(hello, n, TT_LINK_STRANGE);
    static const uint8_t brief[] = {0x16, 3, 1, 0, 1, 1};
    expect_look(brief, sizeof(brief), TT_LINK_OTHER_SECRET);
    tt_trust_close(look_trust);
}

/* So many are remembered, and no more. */
static void test_heard(void **state)
{
    (void)state;
    const tt_trust_opts o = {.secret = (const uint8_t *)secret,
                             .n_secret = strlen(secret)};
    uint8_t first[TT_SEAL_LOOK], other[TT_SEAL_LOOK];
    psk p = right_psk();
    assert_int_equal(tt_trust_open(&o, &look_trust, NULL), TUTTI_OK);
    size_t n = say_hello(&p, first);
    memcpy(other, first, n);
    expect_look(first, n, TT_LINK_WELL);
    for (uint32_t i = 1; i <= TT_SEAL_HEARD; i++) {
        memcpy(other + 11, &i, sizeof(i)); /* of its random bytes */
        say_binder(other + 5, n - 5, &p);
        expect_look(other, n, TT_LINK_WELL);
        if (i == TT_SEAL_HEARD - 1)
            expect_look(first, n, TT_LINK_STRANGE);
    }
    expect_look(other, n, TT_LINK_STRANGE);
    expect_look(first, n, TT_LINK_WELL);
    tt_trust_close(look_trust);
}

typedef struct modes {
    psk p; /* first: the callbacks' */
    uint8_t mode;
    bool is_over;
} modes;

/* Another psk_key_exchange_modes, as somebody would say it who has the key. */
static void change_mode(uint8_t *bytes, size_t n, void *arg)
{
    static const uint8_t modes_ext[] = {0, 0x2d, 0, 2, 1, 1};
    modes *m = arg;
    uint8_t *at = m->is_over ? NULL
                             : memmem(bytes, n, modes_ext, sizeof(modes_ext));
    m->is_over = true;
    if (!at)
        return;
    at[5] = m->mode;
    say_binder(bytes + 5, n - 5, &m->p);
}

/* A key alone, without Diffie-Hellman, does not do. */
static void test_no_dhe(void **state)
{
    (void)state;
    for (uint8_t mode = 0; mode < 2; mode++) {
        modes m = {.p = right_psk(), .mode = mode};
        SSL_CTX *ctx = psk_ctx();
        SSL_CTX_clear_options(ctx, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
        outcome o = meet(by_secret, false, ctx, &m, change_mode);
        if (mode == 0)
            expect("a key without Diffie-Hellman", &o, "");
        else /* the binder is right: it is answered */
            assert_true(o.was_begun);
        assert_int_equal(o.was_begun, mode == 1);
        SSL_CTX_free(ctx);
    }
}

static int tear_down(void **state)
{
    (void)state;
    tt_folder_close();
    tt_trust_close(by_certs);
    tt_trust_close(by_secret);
    EVP_PKEY *const keys[] = {ca_key, other_key, mid_key, key, weak_key};
    for (int i = 0; i < 5; i++)
        EVP_PKEY_free(keys[i]);
    X509 *const certs[] = {ca, other_ca, mid, ca_less_mid};
    for (int i = 0; i < 4; i++)
        X509_free(certs[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_certs),
        cmocka_unit_test(test_other_proof),
        cmocka_unit_test(test_psk),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_no_dhe),
        cmocka_unit_test(test_secret_lengths),
        cmocka_unit_test(test_look),
        cmocka_unit_test(test_heard),
        cmocka_unit_test(test_other_group),
    };
    tt_test_limit(120);
    if (!tt_folder_open("proof"))
        return 1;
    be_lax();
    make_all();
    int failed = TT_RUN_TAP(tests);
    tear_down(NULL);
    return failed;
}

#else

int main(void)
{
    printf("1..0 # SKIP built without OpenSSL\n");
    return 77;
}

#endif
