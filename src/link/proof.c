/* SPDX-License-Identifier: BSD-3-Clause
 * proof.c - what a side proves itself by, in TLS.
 *
 * Secret     An external PSK. Its name, told in clear, and its key both come
 *            from the secret by HKDF with labels of their own, so neither tells
 *            the other nor the secret (RFC 9257, 9258). psk_dhe_ke only: who
 *            learns the secret later cannot read what was sent before.
 * Certs      Both sides show certificates of the CA. A side that has a secret
 *            takes no certificate, and the other way round.
 * Left out   Tickets, resumption, early data, renegotiation, older versions,
 *            compression. Suites of SHA-256 only, which is the PSK's hash.
 * Late       What OpenSSL needs for a secret is made at the first connection:
 *            ranks of one host have none, and start sooner.
 * Exit       OpenSSL's own clean-up at exit is left out, as threads may still
 *            send.
 * Next       tls.h, tls.c (the layer). */
#include "link/seal.h"
#include "link/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#if TT_HAVE_OPENSSL

#include <openssl/hmac.h>
#include <openssl/x509_vfy.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#define SPARE_BUFS 8
#define CHAIN_MOST (32 * 1024)
/* OpenSSL's level: 112 bits (RSA of 2048, no SHA-1), also where the system's
 * configuration asks for less. */
#define SECURITY_LEAST 2
#define LOOK_NS (200 * TT_NS_PER_MS)
/* AES-GCM must not have 2^24.5 of one key. */
#define REKEY_AFTER (UINT64_C(1) << 23)

/* Of a record. */
#define HEAD 5

/* What sessions are for. */
static const unsigned char for_tutti[] = {'t', 'u', 't', 't', 'i'};

/* What the files say. */
typedef struct proofs {
    SSL_CTX *ctx; /* NULL: as before */
    tt_tls_psk keys[TT_SECRETS];
    uint32_t n_keys;
} proofs;

struct tt_trust {
    atomic_uint n_owners;
    bool is_plain, is_by_openssl;
    bool changes; /* by files that are looked at again */
    uint64_t rekey_after;
    char *secret_file, *cert, *cert_key, *ca, *crl; /* NULL: not given */
    uint64_t mark;        /* of the files; of the one who looks */
    pthread_mutex_t lock; /* of what follows */
    proofs has;
    tt_secrets unused; /* until they become has.keys; else none */
    /* Put in by tt_trust_prepare(), before and after tt_trust_renew(). */
    tt_tls_psk prepared, renewed;
    bool is_prepared, is_renewed;
    tt_outcasts outcasts;
    bool is_looking; /* somebody does, at the files */
    uint64_t looked_ns;
    uint64_t *heard; /* [TT_SEAL_HEARD], a ring: right proofs; NULL: none */
    uint64_t n_heard;
    pthread_mutex_t spare_lock; /* of what follows; every stream takes it */
    char *spare[SPARE_BUFS];
    uint32_t n_spare;
};

/* -------------------------------------------------------------- secrets -- */

/* HKDF by SHA-256 (RFC 5869). */
static bool derive(const tt_secret *s, const char *label, uint8_t *out,
                   size_t n)
{
    static const char salt[] = "tutti link, tls 1.3, external psk, sha256";
    uint8_t prk[32];
    bool is_well = HMAC(EVP_sha256(), salt, sizeof(salt) - 1, s->bytes, s->n,
                        prk, NULL) &&
                   tt_tls_expand(prk, label, strlen(label), out, n);
    tt_secret_wipe(prk, sizeof(prk));
    return is_well;
}

static bool make_keys(proofs *out, const tt_secrets *secrets)
{
    tt_tls_psk *keys = out->keys;
    bool is_well = true;
    for (uint32_t i = 0; i < secrets->n; i++)
        is_well = is_well &&
                  derive(&secrets->all[i], "tutti 1 name", keys[i].name,
                         sizeof(keys[i].name)) &&
                  derive(&secrets->all[i], "tutti 1 key", keys[i].key,
                         sizeof(keys[i].key)) &&
                  tt_tls_binder_key(keys[i].key, keys[i].binder_key);
    out->n_keys = secrets->n;
    return is_well;
}

static SSL_SESSION *session_of(SSL *ssl, const tt_tls_psk *k)
{
    static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    SSL_SESSION *s = SSL_SESSION_new();
    const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    if (s && suite &&
        SSL_SESSION_set1_master_key(s, k->key, sizeof(k->key)) == 1 &&
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
    tt_tls_end *e = SSL_get_app_data(ssl);
    *out = NULL;
    if (md && EVP_MD_get_type(md) != NID_sha256)
        return 0;
    *out = session_of(ssl, &e->offered);
    *id = e->offered.name;
    *n_id = sizeof(e->offered.name);
    return *out != NULL;
}

/* All that count, in the order in which they are offered. [locked] */
static uint32_t n_keys(const tt_trust *t)
{
    return t->is_renewed + t->has.n_keys + t->is_prepared;
}

static const tt_tls_psk *key_at(const tt_trust *t, uint32_t i)
{
    if (t->is_renewed && i == 0)
        return &t->renewed;
    i -= t->is_renewed;
    return i < t->has.n_keys ? &t->has.keys[i] : &t->prepared;
}

/* The one of this name; NULL: none. [locked] */
static const tt_tls_psk *key_of(const tt_trust *t, const uint8_t *name)
{
    for (uint32_t i = 0; i < n_keys(t); i++)
        if (memcmp(key_at(t, i)->name, name, sizeof(key_at(t, i)->name)) == 0)
            return key_at(t, i);
    return NULL;
}

/* The listener's. Without a session the handshake fails: there is no
 * certificate. */
static int find_psk(SSL *ssl, const unsigned char *id, size_t n_id,
                    SSL_SESSION **out)
{
    tt_tls_end *e = SSL_get_app_data(ssl);
    *out = NULL;
    if (n_id != sizeof(((tt_tls_psk *)0)->name))
        return 1;
    pthread_mutex_lock(&e->trust->lock);
    const tt_tls_psk *k = key_of(e->trust, id);
    if (k) {
        e->offered = *k;
        *out = session_of(ssl, k);
    }
    pthread_mutex_unlock(&e->trust->lock);
    return !k || *out;
}

/* A line of OpenSSL's key log, "LABEL RANDOM SECRET" in hex: the traffic
 * secrets are kept. */
static void keep_secret(const SSL *ssl, const char *line)
{
    tt_tls_end *e = SSL_get_app_data(ssl);
    const char *at = strrchr(line, ' ');
    int side = strncmp(line, "CLIENT_TRAFFIC_SECRET_0 ", 24) == 0   ? 0
               : strncmp(line, "SERVER_TRAFFIC_SECRET_0 ", 24) == 0 ? 1
                                                                    : -1;
    size_t n;
    if (e && side >= 0)
        OPENSSL_hexstr2buf_ex(e->traffic[side], sizeof(e->traffic[side]), &n,
                              at + 1, '\0');
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

static bool print_of(const X509 *x, tt_tls_print *out)
{
    return x && X509_digest(x, EVP_sha256(), out->bytes, NULL) == 1;
}

/* What cannot be told counts as one that was put out. */
static bool is_out(tt_trust *t, const X509 *x)
{
    tt_tls_print print;
    return !print_of(x, &print) || tt_trust_refuses(t, &print);
}

/* OpenSSL asks for each certificate of the chain. */
static int check_cert(int is_well, X509_STORE_CTX *at)
{
    const SSL *ssl =
        X509_STORE_CTX_get_ex_data(at, SSL_get_ex_data_X509_STORE_CTX_idx());
    const tt_tls_end *e = SSL_get_app_data(ssl);
    if (!is_well || X509_STORE_CTX_get_error_depth(at) > 0 ||
        !is_out(e->trust, X509_STORE_CTX_get_current_cert(at)))
        return is_well;
    X509_STORE_CTX_set_error(at, X509_V_ERR_CERT_REVOKED);
    return 0;
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

/* Else OpenSSL would ask at the terminal. */
static int tell_no_password(char *out, int size, int is_writing,
                            void *was_asked)
{
    (void)out, (void)size, (void)is_writing;
    *(bool *)was_asked = true;
    return -1;
}

static bool use_key(const tt_trust *t, SSL_CTX *ctx, bool *is_locked)
{
    SSL_CTX_set_default_passwd_cb(ctx, tell_no_password);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, is_locked);
    bool is_well = SSL_CTX_use_PrivateKey_file(ctx, t->cert_key,
                                               SSL_FILETYPE_PEM) == 1 &&
                   SSL_CTX_check_private_key(ctx) == 1;
    SSL_CTX_set_default_passwd_cb(ctx, NULL);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, NULL);
    return is_well;
}

/* Who is in a list of the CA's counts no more. A CA without a list, or whose
 * list is out of date, vouches for nobody. */
static tutti_err use_crl(const tt_trust *t, SSL_CTX *ctx, tutti_diag *diag)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    X509_LOOKUP *files = X509_STORE_add_lookup(store, X509_LOOKUP_file());
    if (!files || X509_load_crl_file(files, t->crl, X509_FILETYPE_PEM) < 1 ||
        X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK) != 1)
        return fail_cert("the list of revoked certificates", t->crl, diag);
    return TUTTI_OK;
}

static tutti_err use_certs(const tt_trust *t, SSL_CTX *ctx, tutti_diag *diag)
{
    bool is_locked = false;
    tutti_err err = check_key(t->cert_key, diag);
    if (err)
        return err;
    if (SSL_CTX_use_certificate_chain_file(ctx, t->cert) != 1)
        return fail_cert("the certificate", t->cert, diag);
    bool has_key = use_key(t, ctx, &is_locked);
    if (is_locked)
        return tt_fail(
            diag, TUTTI_ECONFIG,
            "the key of the certificate %.200s cannot be used: it is "
            "encrypted; `openssl pkey` makes one that is not",
            t->cert_key);
    if (!has_key)
        return fail_cert("the key of the certificate", t->cert_key, diag);
    if (SSL_CTX_load_verify_locations(ctx, t->ca, NULL) != 1)
        return fail_cert("the certificate of the CA", t->ca, diag);
    return t->crl ? use_crl(t, ctx, diag) : TUTTI_OK;
}

/* -------------------------------------------------------------- context -- */

static bool set_rules(SSL_CTX *ctx)
{
    if (SSL_CTX_get_security_level(ctx) < SECURITY_LEAST)
        SSL_CTX_set_security_level(ctx, SECURITY_LEAST);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_clear_options(ctx, SSL_OP_ENABLE_MIDDLEBOX_COMPAT |
                                   SSL_OP_ALLOW_NO_DHE_KEX);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_max_cert_list(ctx, CHAIN_MOST);
    SSL_CTX_set_keylog_callback(ctx, keep_secret);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       check_cert);
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
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
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
    const char *files[] = {t->secret_file, t->cert, t->cert_key, t->ca, t->crl};
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

static tutti_err use_secrets(const tt_secrets *secrets, proofs *out,
                             tutti_diag *diag)
{
    if (make_keys(out, secrets))
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ECONFIG, "OpenSSL has no HMAC");
}

static tutti_err read_files(const tt_trust *t, proofs *out, tutti_diag *diag)
{
    tt_secrets secrets;
    if (t->cert)
        return make_ctx(t, &out->ctx, diag);
    tutti_err err = tt_secrets_read(t->secret_file, &secrets, diag);
    if (!err)
        err = use_secrets(&secrets, out, diag);
    tt_secret_wipe(&secrets, sizeof(secrets));
    return err;
}

/* With the lock. */
static tutti_err make_ready(tt_trust *t, tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    if (!t->has.ctx)
        err = make_ctx(t, &t->has.ctx, diag);
    if (err || t->unused.n == 0)
        return err;
    err = use_secrets(&t->unused, &t->has, diag);
    tt_secret_wipe(&t->unused, sizeof(t->unused));
    return err;
}

static tt_tls_print print_of_key(const tt_tls_psk *k)
{
    tt_tls_print print = {{0}};
    memcpy(print.bytes, k->name, sizeof(k->name));
    return print;
}

/* A secret that counts no more stays out, whatever file still has it.
 * [locked] */
static void leave_out_old(const tt_trust *t, proofs *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_keys; i++) {
        tt_tls_print print = print_of_key(&p->keys[i]);
        if (!tt_outcasts_has(&t->outcasts, &print))
            p->keys[n++] = p->keys[i];
    }
    p->n_keys = n;
}

/* By the one who looks. What is no good changes nothing. */
static void take_files(tt_trust *t)
{
    tutti_diag diag;
    proofs fresh = {0};
    tutti_err err = read_files(t, &fresh, &diag);
    if (err) {
        TT_WARN("link: what proves who we are has changed, but is not taken: "
                "%s",
                diag.text);
        tt_secret_wipe(&fresh, sizeof(fresh));
        return;
    }
    pthread_mutex_lock(&t->lock);
    SSL_CTX *old = fresh.ctx ? t->has.ctx : NULL;
    if (!fresh.ctx)
        fresh.ctx = t->has.ctx;
    leave_out_old(t, &fresh);
    t->has = fresh;
    tt_secret_wipe(&t->unused, sizeof(t->unused));
    pthread_mutex_unlock(&t->lock);
    SSL_CTX_free(old);
    tt_secret_wipe(&fresh, sizeof(fresh));
    TT_INFO("link: what proves who we are has changed");
}

/* [locked] */
static bool is_due(const tt_trust *t, uint64_t now)
{
    return !t->is_looking && now - t->looked_ns >= LOOK_NS;
}

bool tt_trust_is_due(tt_trust *t)
{
    if (!t || !t->changes)
        return false;
    uint64_t now = tt_now_ns();
    pthread_mutex_lock(&t->lock);
    bool is = is_due(t, now);
    pthread_mutex_unlock(&t->lock);
    return is;
}

/* Nobody else waits for who looks. */
void tt_trust_look(tt_trust *t)
{
    uint64_t now = tt_now_ns();
    pthread_mutex_lock(&t->lock);
    bool is_mine = is_due(t, now);
    t->is_looking |= is_mine;
    pthread_mutex_unlock(&t->lock);
    if (!is_mine)
        return;
    /* Before they are read: what changes meanwhile is read again. */
    uint64_t mark = mark_of(t);
    bool is_new = mark != t->mark;
    t->mark = mark;
    if (is_new)
        take_files(t);
    pthread_mutex_lock(&t->lock);
    t->looked_ns = now;
    t->is_looking = false;
    pthread_mutex_unlock(&t->lock);
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
    if (given(o->crl) && !has_cert)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_TLS_CRL is set, but TUTTI_TLS_CERT is not: it "
                       "says which certificates count no more");
    if (has_cert && given(o->secret_file))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_SECRET_FILE and TUTTI_TLS_CERT are both set; a "
                       "job proves itself by one of them");
    size_t n = o->secret ? o->n_secret : 0;
    if ((o->secret || o->n_secret > 0) &&
        (n < TT_SECRET_LEAST || n > TT_SECRET_MOST))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "a secret of %zu bytes; it has %d to %d", n,
                       TT_SECRET_LEAST, TT_SECRET_MOST);
    return TUTTI_OK;
}

/* The program may go to another folder later. Links are left: who changes files
 * often changes where they lead. */
static bool copy(char **to, const char *from)
{
    char here[PATH_MAX], text[2 * PATH_MAX];
    if (!given(from))
        return true;
    bool is_near = from[0] != '/' && getcwd(here, sizeof(here));
    snprintf(text, sizeof(text), "%s%s%s", is_near ? here : "",
             is_near ? "/" : "", from);
    *to = strdup(text);
    return *to != NULL;
}

static tutti_err fill(tt_trust *t, const tt_trust_opts *o, tutti_diag *diag)
{
    if (!copy(&t->secret_file, o->secret_file) || !copy(&t->cert, o->cert) ||
        !copy(&t->cert_key, o->key) || !copy(&t->ca, o->ca) ||
        !copy(&t->crl, o->crl))
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a secret");
    if (!t->secret_file && !t->cert) {
        t->unused.n = 1;
        t->unused.all[0].n = o->n_secret;
        memcpy(t->unused.all[0].bytes, o->secret, o->n_secret);
        return TUTTI_OK;
    }
    t->changes = t->cert || !tt_secret_is_inherited(t->secret_file);
    t->mark = mark_of(t);
    t->looked_ns = tt_now_ns();
    return t->cert ? read_files(t, &t->has, diag)
                   : tt_secrets_read(t->secret_file, &t->unused, diag);
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
    pthread_mutex_init(&t->spare_lock, NULL);
    t->is_plain = o->is_plain;
    t->is_by_openssl = o->is_by_openssl;
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
    SSL_CTX_free(t->has.ctx);
    free(t->secret_file);
    free(t->cert);
    free(t->cert_key);
    free(t->ca);
    free(t->crl);
    free(t->heard);
    tt_outcasts_free(&t->outcasts);
    while (t->n_spare > 0)
        free(t->spare[--t->n_spare]);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->spare_lock);
    tt_secret_wipe(t, sizeof(*t));
    tt_free(&tt_mem_std, t, 1, sizeof(*t));
}

uint32_t tt_trust_secrets(tt_trust *t)
{
    pthread_mutex_lock(&t->lock);
    uint32_t n = t->unused.n > 0 ? t->unused.n : n_keys(t);
    pthread_mutex_unlock(&t->lock);
    return n;
}

bool tt_trust_is_plain(const tt_trust *t)
{
    return t && t->is_plain;
}

void tt_trust_rekey_after(tt_trust *t, uint64_t n_records)
{
    t->rekey_after = n_records;
}

/* After make_ready(), which has said err. */
static void unlock(tt_trust *t, tutti_err err, const tutti_diag *diag)
{
    pthread_mutex_unlock(&t->lock);
    if (err)
        TT_WARN("link: %s", diag->text);
}

/* ------------------------------------------------------------- put out -- */

bool tt_trust_prepare(tt_trust *t, const uint8_t fresh[TT_TRUST_FRESH])
{
    tt_secrets s = {.n = 1, .all[0].n = TT_TRUST_FRESH};
    tutti_diag diag;
    proofs one = {0};
    if (t->cert)
        return false;
    memcpy(s.all[0].bytes, fresh, TT_TRUST_FRESH);
    pthread_mutex_lock(&t->lock);
    tutti_err err = make_ready(t, &diag);
    if (!err)
        err = use_secrets(&s, &one, &diag);
    if (!err && !tt_outcasts_reserve(&t->outcasts, TT_SECRETS))
        err = tt_fail(&diag, TUTTI_ENOMEM, "out of memory for a secret");
    if (!err)
        t->prepared = one.keys[0];
    t->is_prepared = !err;
    unlock(t, err, &diag);
    tt_secret_wipe(&s, sizeof(s));
    tt_secret_wipe(&one, sizeof(one));
    return !err;
}

bool tt_trust_renew(tt_trust *t)
{
    pthread_mutex_lock(&t->lock);
    bool is_well = t->is_prepared;
    for (uint32_t i = 0; is_well && i < t->has.n_keys; i++) {
        tt_tls_print print = print_of_key(&t->has.keys[i]);
        tt_outcasts_add(&t->outcasts, &print); /* there is room */
    }
    if (is_well) {
        t->renewed = t->prepared;
        t->is_renewed = true;
        t->is_prepared = false;
        t->has.n_keys = 0;
        tt_secret_wipe(&t->prepared, sizeof(t->prepared));
        tt_secret_wipe(t->has.keys, sizeof(t->has.keys));
    }
    pthread_mutex_unlock(&t->lock);
    return is_well;
}

size_t tt_trust_shown(tt_trust *t, const struct tt_link_id *who,
                      tt_tls_print *out, size_t most)
{
    pthread_mutex_lock(&t->lock);
    size_t n = tt_outcasts_shown(&t->outcasts, who, out, most);
    pthread_mutex_unlock(&t->lock);
    return n;
}

void tt_trust_own(tt_trust *t, tt_tls_print *out)
{
    *out = (tt_tls_print){{0}};
    pthread_mutex_lock(&t->lock);
    if (t->cert)
        print_of(SSL_CTX_get0_certificate(t->has.ctx), out);
    pthread_mutex_unlock(&t->lock);
}

bool tt_trust_refuses(tt_trust *t, const tt_tls_print *print)
{
    pthread_mutex_lock(&t->lock);
    bool is = tt_outcasts_has(&t->outcasts, print);
    pthread_mutex_unlock(&t->lock);
    return is;
}

bool tt_trust_refuse(tt_trust *t, const tt_tls_print *print)
{
    pthread_mutex_lock(&t->lock);
    bool is_well = tt_outcasts_add(&t->outcasts, print);
    pthread_mutex_unlock(&t->lock);
    return is_well;
}

/* ----------------------------------------------------------- for tls.c -- */

SSL *tt_tls_new(tt_tls_end *end, uint32_t pick)
{
    tt_trust *t = end->trust;
    tutti_diag diag;
    pthread_mutex_lock(&t->lock);
    tutti_err err = make_ready(t, &diag);
    if (n_keys(t) > 0)
        end->offered = *key_at(t, pick % n_keys(t));
    SSL *ssl = err ? NULL : SSL_new(t->has.ctx);
    unlock(t, err, &diag);
    if (ssl && SSL_set_app_data(ssl, end) == 1)
        return ssl;
    SSL_free(ssl);
    return NULL;
}

/* The proof has been heard before: who says it again has seen it on the wire.
 * False: it is now. No memory: nobody is turned away for it. [locked] */
static bool is_heard(tt_trust *t, const uint8_t *proof)
{
    uint64_t mark;
    memcpy(&mark, proof, sizeof(mark));
    if (!t->heard)
        t->heard = calloc(TT_SEAL_HEARD, sizeof(*t->heard));
    for (size_t i = 0; t->heard && i < TT_SEAL_HEARD; i++)
        if (t->heard[i] == mark)
            return true;
    if (t->heard)
        t->heard[t->n_heard++ % TT_SEAL_HEARD] = mark;
    return false;
}

/* Of a ClientHello of n bytes with this name. [locked] */
static tt_link_why why_not_worth(tt_trust *t, const uint8_t *name,
                                 const uint8_t *hello, size_t n)
{
    const tt_tls_psk *k = key_of(t, name);
    if (!k || !tt_tls_is_bound(k->binder_key, hello, n))
        return TT_LINK_OTHER_SECRET;
    return is_heard(t, hello + n - 32) ? TT_LINK_STRANGE : TT_LINK_WELL;
}

/* A ClientHello is one record, and ends with the names of its secrets, of which
 * a dialler has one, and what proves them: name, age (4), lengths, proof. */
tt_seal_step tt_seal_look(tt_trust *t, const uint8_t *at, size_t n,
                          tt_link_why *why)
{
    const size_t from_end = sizeof(((tt_tls_psk *)0)->name) + 4 +
                            TT_TLS_BINDERS;
    tutti_diag diag;
    *why = TT_LINK_OTHER_SECRET;
    if (t->cert)
        return TT_SEAL_DONE;
    size_t len = n < HEAD ? 0 : HEAD + ((size_t)at[3] << 8 | at[4]);
    if (n >= HEAD && (len > TT_SEAL_LOOK || len < HEAD + from_end))
        return TT_SEAL_FAILED;
    if (n < HEAD || n < len)
        return TT_SEAL_WAITS;
    pthread_mutex_lock(&t->lock);
    tutti_err err = make_ready(t, &diag);
    if (!err)
        *why = why_not_worth(t, at + len - from_end, at + HEAD, len - HEAD);
    unlock(t, err, &diag);
    return *why == TT_LINK_WELL ? TT_SEAL_DONE : TT_SEAL_FAILED;
}

/* OpenSSL takes a session only where the binder, which needs the key, is
 * right. */
bool tt_tls_is_begun(const tt_tls_end *end, const SSL *ssl)
{
    OSSL_HANDSHAKE_STATE at = SSL_get_state(ssl);
    if (!end->trust->cert)
        return SSL_session_reused(ssl) == 1;
    return at != TLS_ST_BEFORE && at != TLS_ST_SR_CLNT_HELLO;
}

/* Since it was asked for, a secret may count no more, and a certificate be
 * refused. */
bool tt_tls_is_proven(const tt_tls_end *end, SSL *ssl)
{
    tt_trust *t = end->trust;
    if (t->cert)
        return SSL_get0_peer_certificate(ssl) &&
               SSL_get_verify_result(ssl) == X509_V_OK &&
               !is_out(t, SSL_get0_peer_certificate(ssl));
    pthread_mutex_lock(&t->lock);
    bool counts = key_of(t, end->offered.name) != NULL;
    pthread_mutex_unlock(&t->lock);
    return counts && SSL_session_reused(ssl) == 1;
}

void tt_tls_note(const tt_tls_end *end, SSL *ssl, const tt_link_id *who)
{
    tt_trust *t = end->trust;
    tt_tls_print print;
    if (tt_link_id_is_none(who) ||
        !print_of(SSL_get0_peer_certificate(ssl), &print))
        return;
    pthread_mutex_lock(&t->lock);
    tt_outcasts_note(&t->outcasts, who, &print);
    pthread_mutex_unlock(&t->lock);
}

uint64_t tt_tls_rekey_after(const tt_trust *t)
{
    return t->rekey_after;
}

bool tt_tls_is_by_openssl(const tt_trust *t)
{
    return t->is_by_openssl;
}

char *tt_tls_take_buf(tt_trust *t, size_t size)
{
    char *buf = NULL;
    pthread_mutex_lock(&t->spare_lock);
    if (t->n_spare > 0)
        buf = t->spare[--t->n_spare];
    pthread_mutex_unlock(&t->spare_lock);
    return buf ? buf : malloc(size);
}

void tt_tls_give_buf(tt_trust *t, char *buf)
{
    pthread_mutex_lock(&t->spare_lock);
    bool is_kept = buf && t->n_spare < SPARE_BUFS;
    if (is_kept)
        t->spare[t->n_spare++] = buf;
    pthread_mutex_unlock(&t->spare_lock);
    if (!is_kept)
        free(buf);
}

#else /* without OpenSSL */

tutti_err tt_trust_open(const tt_trust_opts *o, tt_trust **out,
                        tutti_diag *diag)
{
    bool is_asked = o->secret || o->n_secret > 0 ||
                    (o->secret_file && o->secret_file[0]) ||
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

uint32_t tt_trust_secrets(tt_trust *t)
{
    (void)t;
    return 0;
}

bool tt_trust_is_plain(const tt_trust *t)
{
    (void)t;
    return false;
}

bool tt_trust_is_due(tt_trust *t)
{
    (void)t;
    return false;
}

void tt_trust_look(tt_trust *t)
{
    (void)t;
}

void tt_trust_rekey_after(tt_trust *t, uint64_t n_records)
{
    (void)t, (void)n_records;
}

bool tt_trust_prepare(tt_trust *t, const uint8_t fresh[TT_TRUST_FRESH])
{
    (void)t, (void)fresh;
    return false;
}

bool tt_trust_renew(tt_trust *t)
{
    (void)t;
    return false;
}

size_t tt_trust_shown(tt_trust *t, const struct tt_link_id *who,
                      tt_tls_print *out, size_t most)
{
    (void)t, (void)who, (void)out, (void)most;
    return 0;
}

void tt_trust_own(tt_trust *t, tt_tls_print *out)
{
    (void)t;
    *out = (tt_tls_print){{0}};
}

bool tt_trust_refuse(tt_trust *t, const tt_tls_print *print)
{
    (void)t, (void)print;
    return false;
}

bool tt_trust_refuses(tt_trust *t, const tt_tls_print *print)
{
    (void)t, (void)print;
    return false;
}

#endif
