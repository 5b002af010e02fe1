/* SPDX-License-Identifier: BSD-3-Clause
 * tls.c - the seal: TLS 1.3 by OpenSSL; the one file that knows it.
 *
 * Proof      A secret is an external PSK. Its name, told in clear, and its key both
 *            come from the secret by HKDF with labels of their own, so neither
 *            tells the other nor the secret (RFC 9257, 9258). psk_dhe_ke only: who
 *            learns the secret later cannot read what was sent before. Or both sides
 *            show certificates of the CA. A side that has a secret takes no
 *            certificate, and the other way round.
 * Left out   Tickets, resumption, early data, renegotiation, older versions,
 *            compression. Suites of SHA-256 only, which is the PSK's hash.
 * Sending    A record takes what is there, up to 16 KiB, small pieces together.
 *            Records lie in a buffer of the layer's, and one system call sends
 *            them. Bytes are taken only where their record has room, so OpenSSL never has
 *            half a record that would have to be offered again, and the caller may
 *            change its mind about what comes next.
 * Receiving  One system call reads as much as fits into a buffer, and OpenSSL is
 *            given whole records only: half of one lies in the buffer, so what is
 *            pending is exact. Before the stream is settled there is no buffer
 *            (seal.h).
 * Memory     Buffers come from the trust's few and go back as soon as they are
 *            empty: an idle stream has none. A guest may send HANDSHAKE_MOST bytes
 *            before it has proved itself.
 * Keys       A direction changes its key after rekey_after records: AES-GCM must not
 *            have 2^24.5 of one key.
 * Fork       The child calls nothing of OpenSSL: close() there only forgets.
 * Exit       OpenSSL's own clean-up at exit is left out, as threads may still send.
 * Next       seal.h, guests.c and dial.c (who shakes hands). */
#include "link/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#if TT_HAVE_OPENSSL

#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#define RECORD (16 * 1024)
/* Its header, its type, its tag. */
#define RECORD_MORE (5 + 1 + 16)
/* Of a record from outside: it may be padded. */
#define RECORD_MOST (5 + RECORD + 256)
/* For what TLS itself says between records. */
#define TALK 1024
#define BUF (4 * (RECORD + RECORD_MORE) + TALK)
#define SPARE_BUFS 16
#define HANDSHAKE_MOST (64 * 1024)
#define CHAIN_MOST (32 * 1024)
#define LOOK_NS (200 * TT_NS_PER_MS)
#define REKEY_AFTER (UINT64_C(1) << 23)

/* What sessions are for. */
static const unsigned char for_tutti[] = {'t', 'u', 't', 't', 'i'};

typedef struct key {
    uint8_t name[16];
    uint8_t psk[32];
} key;

struct tt_trust {
    atomic_uint n_owners;
    bool is_plain;
    uint64_t rekey_after;
    BIO_METHOD *bio;
    char *secret_file, *cert, *cert_key, *ca; /* NULL: not given */
    pthread_mutex_t lock;                     /* of what follows */
    SSL_CTX *ctx;
    key keys[TT_SECRETS];
    uint32_t n_keys;
    uint64_t mark, looked_ns; /* of the files */
    bool has_warned;
    char *spare[SPARE_BUFS];
    uint32_t n_spare;
};

/* A buffer; bytes [at, end) are in it. */
typedef struct bytes {
    char *buf; /* NULL: it is empty */
    size_t at, end;
} bytes;

typedef struct seal {
    tt_trust *trust;
    SSL *ssl;
    tt_link_stream below;
    pid_t pid;
    key offered; /* by a dialler */
    bool is_dialler, has_proof, is_settled;
    bool has_ended; /* the other side's bytes, without a word of TLS */
    bool knows_not; /* the name that was offered */
    int below_err, err; /* of the socket's last call; for good */
    size_t n_heard;     /* before it is settled */
    uint64_t n_records; /* of this side's key */
    bytes in, out;
    size_t whole; /* of `in`: bytes of a record that is given to OpenSSL */
    char reason[128];
} seal;

/* ------------------------------------------------------------- buffers -- */

static bool take_buf(seal *e, bytes *b)
{
    tt_trust *t = e->trust;
    if (b->buf)
        return true;
    pthread_mutex_lock(&t->lock);
    if (t->n_spare > 0)
        b->buf = t->spare[--t->n_spare];
    pthread_mutex_unlock(&t->lock);
    if (!b->buf)
        b->buf = malloc(BUF);
    b->at = b->end = 0;
    return b->buf != NULL;
}

/* Where nothing is left in it. */
static void give_buf(seal *e, bytes *b)
{
    tt_trust *t = e->trust;
    if (!b->buf || b->at < b->end)
        return;
    pthread_mutex_lock(&t->lock);
    bool is_kept = t->n_spare < SPARE_BUFS;
    if (is_kept)
        t->spare[t->n_spare++] = b->buf;
    pthread_mutex_unlock(&t->lock);
    if (!is_kept)
        free(b->buf);
    *b = (bytes){0};
}

/* ----------------------------------------------------------------- BIO -- */

/* Everything OpenSSL says goes into `out`. */
static int bio_write(BIO *bio, const char *data, int len)
{
    seal *e = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!take_buf(e, &e->out) || BUF - e->out.end < (size_t)len) {
        e->below_err = ENOBUFS; /* somebody makes it talk without end */
        return -1;
    }
    memcpy(e->out.buf + e->out.end, data, (size_t)len);
    e->out.end += (size_t)len;
    return len;
}

/* Straight from the socket: what is asked for, and no more. */
static int read_exactly(seal *e, BIO *bio, char *out, int len)
{
    const struct iovec iov = {out, (size_t)len};
    if (e->n_heard > HANDSHAKE_MOST)
        return -1;
    ssize_t n = tt_link_recv(&e->below, &iov, 1);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    else if (n < 0)
        e->below_err = errno;
    e->has_ended |= n == 0;
    e->n_heard += n > 0 ? (size_t)n : 0;
    return (int)n;
}

/* The bytes of the first record of `in`, header and all; 0: it is not whole. What
 * cannot be one is OpenSSL's to refuse. */
static size_t whole_record(const seal *e)
{
    size_t have = e->in.end - e->in.at;
    if (have < 5)
        return 0;
    const uint8_t *at = (const uint8_t *)e->in.buf + e->in.at;
    size_t n = 5 + ((size_t)at[3] << 8 | at[4]);
    if (n > RECORD_MOST)
        return have;
    return n <= have ? n : 0;
}

static int bio_read(BIO *bio, char *out, int len)
{
    seal *e = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!e->is_settled)
        return read_exactly(e, bio, out, len);
    if (e->whole == 0)
        e->whole = whole_record(e);
    if (e->whole == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t n = (size_t)len < e->whole ? (size_t)len : e->whole;
    memcpy(out, e->in.buf + e->in.at, n);
    e->in.at += n;
    e->whole -= n;
    return (int)n;
}

static long bio_ctrl(BIO *bio, int what, long number, void *arg)
{
    (void)bio, (void)number, (void)arg;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_bio(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK,
                                 "tutti");
    if (m)
        BIO_meth_set_write(m, bio_write), BIO_meth_set_read(m, bio_read),
            BIO_meth_set_ctrl(m, bio_ctrl);
    return m;
}

/* -------------------------------------------------------------- secrets -- */

/* HKDF by SHA-256 (RFC 5869): as much as one hash has. */
static bool expand(const tt_secret *s, const char *label, uint8_t *out,
                   size_t n)
{
    static const char salt[] = "tutti link, tls 1.3, external psk, sha256";
    uint8_t prk[32], okm[32], info[64];
    size_t n_label = strlen(label);
    memcpy(info, label, n_label);
    info[n_label] = 1;
    bool is_well = HMAC(EVP_sha256(), salt, sizeof(salt) - 1, s->bytes, s->n,
                        prk, NULL) &&
                   HMAC(EVP_sha256(), prk, sizeof(prk), info, n_label + 1, okm,
                        NULL);
    memcpy(out, okm, n);
    tt_secret_wipe(prk, sizeof(prk));
    tt_secret_wipe(okm, sizeof(okm));
    return is_well;
}

static bool make_keys(tt_trust *t, const tt_secrets *secrets)
{
    key keys[TT_SECRETS];
    bool is_well = true;
    for (uint32_t i = 0; i < secrets->n; i++)
        is_well = is_well &&
                  expand(&secrets->all[i], "tutti 1 name", keys[i].name,
                         sizeof(keys[i].name)) &&
                  expand(&secrets->all[i], "tutti 1 key", keys[i].psk,
                         sizeof(keys[i].psk));
    if (is_well) {
        memcpy(t->keys, keys, sizeof(keys));
        t->n_keys = secrets->n;
    }
    tt_secret_wipe(keys, sizeof(keys));
    return is_well;
}

static SSL_SESSION *session_of(SSL *ssl, const key *k)
{
    static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    SSL_SESSION *s = SSL_SESSION_new();
    const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    if (s && suite &&
        SSL_SESSION_set1_master_key(s, k->psk, sizeof(k->psk)) == 1 &&
        SSL_SESSION_set_cipher(s, suite) == 1 &&
        SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) == 1 &&
        SSL_SESSION_set1_id_context(s, for_tutti, sizeof(for_tutti)) == 1)
        return s;
    SSL_SESSION_free(s);
    return NULL;
}

/* The dialler's. It may be asked twice (the other side wants another group). */
static int offer_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id,
                     size_t *n_id, SSL_SESSION **out)
{
    seal *e = SSL_get_app_data(ssl);
    *out = NULL;
    if (md && EVP_MD_get_type(md) != NID_sha256)
        return 0;
    *out = session_of(ssl, &e->offered);
    *id = e->offered.name;
    *n_id = sizeof(e->offered.name);
    return *out != NULL;
}

/* The listener's. Without a session the handshake fails: there is no certificate. */
static int find_psk(SSL *ssl, const unsigned char *id, size_t n_id,
                    SSL_SESSION **out)
{
    seal *e = SSL_get_app_data(ssl);
    tt_trust *t = e->trust;
    key found;
    bool is_found = false;
    *out = NULL;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < t->n_keys && n_id == sizeof(found.name); i++) {
        if (memcmp(t->keys[i].name, id, n_id) != 0)
            continue;
        found = t->keys[i];
        is_found = true;
    }
    pthread_mutex_unlock(&t->lock);
    e->knows_not |= !is_found;
    if (!is_found)
        return 1;
    *out = session_of(ssl, &found);
    tt_secret_wipe(&found, sizeof(found));
    return *out != NULL;
}

/* --------------------------------------------------------- certificates -- */

/* OpenSSL's sentence, of the oldest error; they are forgotten. */
static const char *why_not(char *out, size_t size)
{
    unsigned long code = ERR_get_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    snprintf(out, size, "%s", text ? text : "it does not say why");
    ERR_clear_error();
    return out;
}

static tutti_err fail_cert(const char *what, const char *file, tutti_diag *diag)
{
    char why[128];
    return tt_fail(diag, TUTTI_ECONFIG, "%s %.200s cannot be used: %s", what,
                   file, why_not(why, sizeof(why)));
}

static tutti_err check_key(const char *file, tutti_diag *diag)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tt_fail_errno(diag, TUTTI_ECONFIG, errno,
                             "cannot open the key of the certificate %.200s",
                             file);
    tutti_err err = tt_secret_check(fd, file, "the key of the certificate",
                                    diag);
    close(fd);
    return err;
}

static tutti_err use_certs(const tt_trust *t, SSL_CTX *ctx, tutti_diag *diag)
{
    tutti_err err = check_key(t->cert_key, diag);
    if (err)
        return err;
    if (SSL_CTX_use_certificate_chain_file(ctx, t->cert) != 1)
        return fail_cert("the certificate", t->cert, diag);
    if (SSL_CTX_use_PrivateKey_file(ctx, t->cert_key, SSL_FILETYPE_PEM) != 1)
        return fail_cert("the key of the certificate", t->cert_key, diag);
    if (SSL_CTX_load_verify_locations(ctx, t->ca, NULL) != 1)
        return fail_cert("the certificate of the CA", t->ca, diag);
    return TUTTI_OK;
}

/* -------------------------------------------------------------- context -- */

static bool set_rules(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_clear_options(ctx, SSL_OP_ENABLE_MIDDLEBOX_COMPAT |
                                   SSL_OP_ALLOW_NO_DHE_KEX);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_max_cert_list(ctx, CHAIN_MOST);
    SSL_CTX_set_verify(
        ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_num_tickets(ctx, 0) == 1 &&
           SSL_CTX_set_session_id_context(ctx, for_tutti, sizeof(for_tutti)) ==
               1 &&
           SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:"
                                         "TLS_CHACHA20_POLY1305_SHA256") == 1;
}

static tutti_err make_ctx(const tt_trust *t, SSL_CTX **out, tutti_diag *diag)
{
    char why[128];
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    if (!ctx || !set_rules(ctx)) {
        SSL_CTX_free(ctx);
        return tt_fail(diag, TUTTI_ECONFIG,
                       "OpenSSL does not give TLS 1.3 as it is needed: %s",
                       why_not(why, sizeof(why)));
    }
    tutti_err err = TUTTI_OK;
    if (t->cert) {
        err = use_certs(t, ctx, diag);
    } else {
        SSL_CTX_set_psk_use_session_callback(ctx, offer_psk);
        SSL_CTX_set_psk_find_session_callback(ctx, find_psk);
    }
    if (err)
        SSL_CTX_free(ctx);
    else
        *out = ctx;
    return err;
}

/* ---------------------------------------------------------------- files -- */

/* Another number when one of them has changed. */
static uint64_t mark_of(const tt_trust *t)
{
    const char *files[] = {t->secret_file, t->cert, t->cert_key, t->ca};
    uint64_t mark = 1;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct stat st;
        if (!files[i] || stat(files[i], &st) != 0)
            continue;
        mark = tt_fnv1a_u64(mark, (uint64_t)st.st_ino);
        mark = tt_fnv1a_u64(mark, (uint64_t)st.st_size);
        mark = tt_fnv1a_u64(mark, (uint64_t)st.st_mtim.tv_sec * TT_NS_PER_S +
                                      (uint64_t)st.st_mtim.tv_nsec);
    }
    return mark;
}

/* Before they are read: what changes meanwhile is read again. [locked] */
static tutti_err read_files(tt_trust *t, tutti_diag *diag)
{
    tt_secrets secrets;
    tutti_err err = TUTTI_OK;
    t->mark = mark_of(t);
    t->looked_ns = tt_now_ns();
    if (t->secret_file) {
        err = tt_secrets_read(t->secret_file, &secrets, diag);
        if (!err && !make_keys(t, &secrets))
            err = tt_fail(diag, TUTTI_ECONFIG, "OpenSSL has no HMAC");
        tt_secret_wipe(&secrets, sizeof(secrets));
    } else if (t->cert) {
        SSL_CTX *ctx = NULL;
        err = make_ctx(t, &ctx, diag);
        if (err)
            return err;
        SSL_CTX_free(t->ctx);
        t->ctx = ctx;
    }
    return err;
}

/* [locked] */
static void look_again(tt_trust *t)
{
    tutti_diag diag;
    uint64_t now = tt_now_ns();
    if ((!t->secret_file && !t->cert) || now - t->looked_ns < LOOK_NS)
        return;
    t->looked_ns = now;
    if (mark_of(t) == t->mark)
        return;
    tutti_err err = read_files(t, &diag);
    if (err)
        TT_WARN("link: what proves who we are has changed, but is not taken: "
                "%s",
                diag.text);
    else
        TT_INFO("link: what proves who we are has changed");
}

/* --------------------------------------------------------------- trust -- */

static const char *given(const char *text)
{
    return text && text[0] ? text : NULL;
}

static tutti_err check_opts(const tt_trust_opts *o, tutti_diag *diag)
{
    bool has_cert = given(o->cert), has_key = given(o->key),
         has_ca = given(o->ca);
    if (has_cert != has_key || has_key != has_ca)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "certificates need all three of TUTTI_TLS_CERT, "
                       "TUTTI_TLS_KEY and TUTTI_TLS_CA");
    if (has_cert && given(o->secret_file))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_SECRET_FILE and TUTTI_TLS_CERT are both set; a "
                       "job proves itself by one of them");
    if (o->n_secret > 0 &&
        (o->n_secret < TT_SECRET_LEAST || o->n_secret > TT_SECRET_MOST))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "a secret of %zu bytes; it has %d to %d", o->n_secret,
                       TT_SECRET_LEAST, TT_SECRET_MOST);
    return TUTTI_OK;
}

static bool copy(char **to, const char *from)
{
    *to = given(from) ? strdup(from) : NULL;
    return *to || !given(from);
}

static tutti_err fill(tt_trust *t, const tt_trust_opts *o, tutti_diag *diag)
{
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    t->bio = make_bio();
    if (!t->bio || !copy(&t->secret_file, o->secret_file) ||
        !copy(&t->cert, o->cert) || !copy(&t->cert_key, o->key) ||
        !copy(&t->ca, o->ca))
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a secret");
    if (t->secret_file || t->cert) {
        tutti_err err = read_files(t, diag);
        if (err || t->cert)
            return err;
    } else {
        tt_secrets one = {.n = 1, .all[0].n = o->n_secret};
        memcpy(one.all[0].bytes, o->secret, o->n_secret);
        bool is_well = make_keys(t, &one);
        tt_secret_wipe(&one, sizeof(one));
        if (!is_well)
            return tt_fail(diag, TUTTI_ECONFIG, "OpenSSL has no HMAC");
    }
    return make_ctx(t, &t->ctx, diag);
}

tutti_err tt_trust_open(const tt_trust_opts *o, tt_trust **out,
                        tutti_diag *diag)
{
    *out = NULL;
    tutti_err err = check_opts(o, diag);
    if (err || (!given(o->secret_file) && o->n_secret == 0 && !given(o->cert)))
        return err;
    tt_trust *t = tt_new(&tt_mem_std, 1, sizeof(*t));
    if (!t)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a secret");
    atomic_init(&t->n_owners, 1);
    pthread_mutex_init(&t->lock, NULL);
    t->is_plain = o->is_plain;
    t->rekey_after = REKEY_AFTER;
    err = fill(t, o, diag);
    if (err)
        tt_trust_close(t);
    else
        *out = t;
    return err;
}

tt_trust *tt_trust_ref(tt_trust *t)
{
    if (t)
        atomic_fetch_add(&t->n_owners, 1);
    return t;
}

void tt_trust_close(tt_trust *t)
{
    if (!t || atomic_fetch_sub(&t->n_owners, 1) > 1)
        return;
    SSL_CTX_free(t->ctx);
    BIO_meth_free(t->bio);
    free(t->secret_file);
    free(t->cert);
    free(t->cert_key);
    free(t->ca);
    while (t->n_spare > 0)
        free(t->spare[--t->n_spare]);
    pthread_mutex_destroy(&t->lock);
    tt_secret_wipe(t, sizeof(*t));
    tt_free(&tt_mem_std, t, 1, sizeof(*t));
}

bool tt_trust_is_plain(const tt_trust *t)
{
    return t && t->is_plain;
}

void tt_trust_rekey_after(tt_trust *t, uint64_t n_records)
{
    t->rekey_after = n_records;
}

/* --------------------------------------------------------------- errors -- */

/* Alerts that tell of a record which came broken. */
static bool is_broken_alert(int reason)
{
    return reason == SSL_R_SSLV3_ALERT_BAD_RECORD_MAC ||
           reason == SSL_R_TLSV1_ALERT_DECRYPTION_FAILED ||
           reason == SSL_R_TLSV1_ALERT_RECORD_OVERFLOW ||
           reason == SSL_R_SSLV3_ALERT_UNEXPECTED_MESSAGE ||
           reason == SSL_R_TLSV1_ALERT_DECODE_ERROR;
}

/* What a call of OpenSSL's that returned rc means: 0: try again; -1: errno, which
 * stays. */
static int fail_of(seal *e, int rc)
{
    int how = SSL_get_error(e->ssl, rc);
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    if (how == SSL_ERROR_WANT_READ)
        return 0;
    if (e->below_err)
        e->err = e->below_err;
    else if (e->has_ended)
        e->err = ECONNRESET; /* cut off: it has not said that this is the end */
    else if (reason > SSL_AD_REASON_OFFSET && !is_broken_alert(reason))
        e->err = EACCES;
    else
        e->err = EBADMSG;
    const char *text = ERR_reason_error_string(code);
    snprintf(e->reason, sizeof(e->reason), "%s", text ? text : "");
    ERR_clear_error();
    errno = e->err;
    return -1;
}

static ssize_t fail_again(const seal *e)
{
    errno = e->err ? e->err : EAGAIN;
    return -1;
}

/* -------------------------------------------------------------- sending -- */

/* 1: nothing is unsent; -1 and errno. */
static int flush(seal *e)
{
    while (e->out.at < e->out.end) {
        const struct iovec iov = {e->out.buf + e->out.at,
                                  e->out.end - e->out.at};
        ssize_t n = tt_link_send(&e->below, &iov, 1);
        if (n < 0)
            return -1;
        e->out.at += (size_t)n;
    }
    give_buf(e, &e->out);
    return 1;
}

/* What is still to be taken. */
typedef struct cursor {
    const struct iovec *iov;
    int n;
    size_t at; /* of the first one */
} cursor;

static void skip(cursor *c, size_t n)
{
    c->at += n;
    while (c->n > 0 && c->at >= c->iov->iov_len) {
        c->at -= c->iov->iov_len;
        c->iov++;
        c->n--;
    }
}

/* What the next record takes: in its place, or gathered in `aside`. */
static const char *gather(const cursor *c, char aside[RECORD], size_t *n)
{
    const char *first = (const char *)c->iov->iov_base + c->at;
    *n = c->iov->iov_len - c->at;
    if (*n >= RECORD || c->n == 1) {
        *n = *n < RECORD ? *n : RECORD;
        return first;
    }
    memcpy(aside, first, *n);
    for (int i = 1; i < c->n && *n < RECORD; i++) {
        size_t room = RECORD - *n;
        size_t more = c->iov[i].iov_len < room ? c->iov[i].iov_len : room;
        memcpy(aside + *n, c->iov[i].iov_base, more);
        *n += more;
    }
    return aside;
}

/* The old key has served long enough. The other side's is its own business. */
static int rekey(seal *e)
{
    if (e->n_records < e->trust->rekey_after)
        return 1;
    e->n_records = 0;
    int rc = SSL_key_update(e->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
    if (rc == 1)
        rc = SSL_do_handshake(e->ssl);
    return rc == 1 ? 1 : fail_of(e, rc);
}

/* Seals as much as fits; -1 and errno. */
static ssize_t take(seal *e, cursor *c)
{
    char aside[RECORD];
    size_t taken = 0;
    while (c->n > 0 &&
           BUF - e->out.end >= RECORD + RECORD_MORE + TALK / 2) {
        size_t n, written = 0;
        const char *from = gather(c, aside, &n);
        if (rekey(e) != 1)
            return -1;
        int rc = SSL_write_ex(e->ssl, from, n, &written);
        if (rc != 1) {
            fail_of(e, rc);
            return fail_again(e);
        }
        e->n_records++;
        taken += written;
        skip(c, written);
    }
    return (ssize_t)taken;
}

static ssize_t seal_send(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    seal *e = s->state;
    cursor c = {iov, n_iov, 0};
    ssize_t total = 0;
    bool has_room = true;
    if (e->err)
        return fail_again(e);
    if (flush(e) < 0)
        return -1;
    ERR_clear_error();
    skip(&c, 0);
    while (c.n > 0 && has_room) {
        ssize_t n = take(e, &c);
        if (n < 0)
            return total > 0 ? total : -1;
        total += n;
        has_room = flush(e) > 0; /* an error is told by the next call */
    }
    return total;
}

static size_t seal_unsent(const tt_link_stream *s)
{
    const seal *e = s->state;
    return e->err ? 0 : e->out.end - e->out.at;
}

/* ------------------------------------------------------------ receiving -- */

/* One system call. 1: something has come, 0: the end; -1 and errno. */
static int fill_in(seal *e, bool *is_all)
{
    if (!take_buf(e, &e->in))
        errno = ENOMEM;
    if (!e->in.buf)
        return -1;
    if (e->in.at > 0) {
        memmove(e->in.buf, e->in.buf + e->in.at, e->in.end - e->in.at);
        e->in.end -= e->in.at;
        e->in.at = 0;
    }
    const struct iovec iov = {e->in.buf + e->in.end, BUF - e->in.end};
    ssize_t n = tt_link_recv(&e->below, &iov, 1);
    if (n > 0)
        e->in.end += (size_t)n;
    *is_all = n < (ssize_t)iov.iov_len && tt_link_pending(&e->below) == 0;
    return n > 0 ? 1 : (int)n;
}

/* From OpenSSL, as far as whole records are there. -1 and errno: EAGAIN. 0: the end
 * was said. */
static ssize_t give(seal *e, char *out, size_t most)
{
    size_t total = 0;
    while (total < most) {
        size_t n = 0;
        int rc = SSL_read_ex(e->ssl, out + total, most - total, &n);
        total += n;
        if (rc == 1)
            continue;
        if (SSL_get_error(e->ssl, rc) == SSL_ERROR_ZERO_RETURN)
            return (ssize_t)total;
        fail_of(e, rc);
        return total > 0 ? (ssize_t)total : fail_again(e);
    }
    return (ssize_t)total;
}

static bool has_said_end(const seal *e)
{
    return (SSL_get_shutdown(e->ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}

/* Into one piece. As recv(); *is_all: the socket is empty. */
static ssize_t recv_into(seal *e, char *out, size_t most, bool *is_all)
{
    size_t total = 0;
    for (;;) {
        ssize_t n = give(e, out + total, most - total);
        total += n > 0 ? (size_t)n : 0;
        bool is_over = e->err || has_said_end(e);
        if (total == most || is_over || *is_all || !e->is_settled) {
            *is_all = *is_all || is_over || !e->is_settled;
            return total > 0 || n == 0 ? (ssize_t)total : fail_again(e);
        }
        int more = fill_in(e, is_all);
        if (more > 0)
            continue;
        *is_all = true;
        if (more == 0)
            e->err = ECONNRESET; /* cut off */
        else if (errno != EAGAIN)
            e->err = errno;
        return total > 0 ? (ssize_t)total : fail_again(e);
    }
}

/* Where nothing has come errno says why. */
static ssize_t recv_all(seal *e, const struct iovec *iov, int n_iov)
{
    size_t total = 0;
    bool is_all = false;
    for (int i = 0; i < n_iov; i++) {
        if (iov[i].iov_len == 0)
            continue;
        ssize_t n = recv_into(e, iov[i].iov_base, iov[i].iov_len, &is_all);
        if (n < 0 && total == 0)
            return -1;
        total += n > 0 ? (size_t)n : 0;
        if (n < (ssize_t)iov[i].iov_len)
            break;
    }
    return (ssize_t)total;
}

static ssize_t seal_recv(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    seal *e = s->state;
    if (e->err)
        return fail_again(e);
    ERR_clear_error();
    ssize_t n = recv_all(e, iov, n_iov);
    int why = errno;
    give_buf(e, &e->in);
    errno = why;
    return n;
}

static size_t seal_pending(const tt_link_stream *s)
{
    const seal *e = s->state;
    if (e->err)
        return 0;
    return (size_t)SSL_pending(e->ssl) +
           (e->whole > 0 ? e->whole : whole_record(e)) +
           tt_link_pending(&e->below);
}

/* ------------------------------------------------------------- the end -- */

static bool seal_end(tt_link_stream *s)
{
    seal *e = s->state;
    ERR_clear_error();
    if (e->err)
        return true;
    if (!(SSL_get_shutdown(e->ssl) & SSL_SENT_SHUTDOWN) &&
        SSL_shutdown(e->ssl) < 0)
        ERR_clear_error();
    return flush(e) > 0 || errno != EAGAIN;
}

static void free_seal(seal *e)
{
    SSL_free(e->ssl);
    e->in.at = e->in.end;
    e->out.at = e->out.end;
    give_buf(e, &e->in);
    give_buf(e, &e->out);
    tt_trust_close(e->trust);
    tt_secret_wipe(e, sizeof(*e));
    tt_free(&tt_mem_std, e, 1, sizeof(*e));
}

/* What the other side reads to its end was all, as far as there is room to say so. */
static void seal_close(tt_link_stream *s)
{
    seal *e = s->state;
    if (e->pid != getpid())
        return;
    if (e->has_proof)
        seal_end(s);
    if (e->below.layer)
        e->below.layer->close(&e->below);
    free_seal(e);
}

static const tt_link_layer seal_layer = {.send = seal_send,
                                         .recv = seal_recv,
                                         .pending = seal_pending,
                                         .unsent = seal_unsent,
                                         .end = seal_end,
                                         .close = seal_close};

/* ------------------------------------------------------------ handshake -- */

static bool open_ssl(seal *e, uint32_t pick)
{
    tt_trust *t = e->trust;
    BIO *bio = BIO_new(t->bio);
    pthread_mutex_lock(&t->lock);
    look_again(t);
    if (t->n_keys > 0)
        e->offered = t->keys[pick % t->n_keys];
    e->ssl = SSL_new(t->ctx);
    pthread_mutex_unlock(&t->lock);
    if (!bio || !e->ssl) {
        BIO_free(bio);
        return false;
    }
    BIO_set_data(bio, e);
    BIO_set_init(bio, 1);
    SSL_set_bio(e->ssl, bio, bio);
    return SSL_set_app_data(e->ssl, e) == 1;
}

bool tt_seal_begin(tt_link_stream *s, tt_trust *t, bool is_dialler,
                   uint32_t pick)
{
    seal *e = tt_new(&tt_mem_std, 1, sizeof(*e));
    if (!e)
        return false;
    e->trust = tt_trust_ref(t);
    e->below = *s;
    e->pid = getpid();
    e->is_dialler = is_dialler;
    if (!open_ssl(e, pick)) {
        free_seal(e);
        return false;
    }
    if (is_dialler)
        SSL_set_connect_state(e->ssl);
    else
        SSL_set_accept_state(e->ssl);
    s->layer = &seal_layer;
    s->state = e;
    return true;
}

/* That it stands does not say who is there. */
static bool is_proven(const seal *e)
{
    if (!e->trust->cert)
        return SSL_session_reused(e->ssl) == 1;
    return SSL_get0_peer_certificate(e->ssl) &&
           SSL_get_verify_result(e->ssl) == X509_V_OK;
}

/* Who says what TLS is, but fails, knows another secret. A dialler has heard an alert,
 * or has seen a certificate, where the other side has a proof at all. */
static tt_link_why why_of(const seal *e)
{
    if (!e->is_dialler)
        return e->has_ended || e->below_err ? TT_LINK_STRANGE
                                            : TT_LINK_OTHER_SECRET;
    return e->err == EACCES || SSL_get_verify_result(e->ssl) != X509_V_OK
               ? TT_LINK_OTHER_SECRET
               : TT_LINK_NO_SECRET;
}

tt_seal_step tt_seal_shake(tt_link_stream *s, tt_link_why *why)
{
    seal *e = s->state;
    if (!e->err) {
        ERR_clear_error();
        int rc = SSL_do_handshake(e->ssl);
        bool has_failed = rc != 1 && fail_of(e, rc) < 0;
        if (flush(e) < 0 && errno != EAGAIN && !has_failed)
            e->err = e->below_err = errno;
        if (!e->err && (rc != 1 || e->out.buf))
            return TT_SEAL_WAITS;
    }
    e->has_proof = !e->err && is_proven(e);
    if (e->has_proof)
        return TT_SEAL_DONE;
    *why = why_of(e);
    return TT_SEAL_FAILED;
}

const char *tt_seal_reason(const tt_link_stream *s)
{
    const seal *e = s->state;
    long code = s->layer == &seal_layer ? SSL_get_verify_result(e->ssl)
                                        : X509_V_OK;
    if (code != X509_V_OK)
        return X509_verify_cert_error_string(code);
    return s->layer == &seal_layer ? e->reason : "";
}

bool tt_seal_settle(tt_link_stream *s, bool is_bare)
{
    seal *e = s->state;
    if (s->layer != &seal_layer)
        return true;
    if (!is_bare) {
        e->is_settled = true;
        return true;
    }
    if (SSL_pending(e->ssl) > 0 || e->out.buf)
        return false;
    *s = e->below;
    free_seal(e);
    return true;
}

tt_link_stream *tt_seal_below(tt_link_stream *s)
{
    seal *e = s->state;
    return &e->below;
}

#else /* without OpenSSL */

tutti_err tt_trust_open(const tt_trust_opts *o, tt_trust **out,
                        tutti_diag *diag)
{
    bool is_asked = o->n_secret > 0 || (o->secret_file && o->secret_file[0]) ||
                    (o->cert && o->cert[0]);
    *out = NULL;
    if (!is_asked)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ECONFIG,
                   "a secret or a certificate is asked for, but this Tutti was "
                   "built without OpenSSL: install libssl-dev and build again");
}

tt_trust *tt_trust_ref(tt_trust *t)
{
    return t;
}

void tt_trust_close(tt_trust *t)
{
    (void)t;
}

bool tt_trust_is_plain(const tt_trust *t)
{
    (void)t;
    return false;
}

/* There is no trust, so nobody comes here. */
bool tt_seal_begin(tt_link_stream *s, tt_trust *t, bool is_dialler,
                   uint32_t pick)
{
    (void)s, (void)t, (void)is_dialler, (void)pick;
    return false;
}

tt_seal_step tt_seal_shake(tt_link_stream *s, tt_link_why *why)
{
    (void)s;
    *why = TT_LINK_NO_SECRET;
    return TT_SEAL_FAILED;
}

const char *tt_seal_reason(const tt_link_stream *s)
{
    (void)s;
    return "";
}

bool tt_seal_settle(tt_link_stream *s, bool is_bare)
{
    (void)s, (void)is_bare;
    return true;
}

tt_link_stream *tt_seal_below(tt_link_stream *s)
{
    return s;
}

void tt_trust_rekey_after(tt_trust *t, uint64_t n_records)
{
    (void)t, (void)n_records;
}

#endif
