/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_tls.c - a stream under a seal, turn by turn, and a real peer of
 * OpenSSL's at the other end, which may be rude (tickets, early data, TLS 1.2,
 * requests in between), or nobody at all; what travels is changed, left out,
 * repeated, cut. Properties: a handshake stands only with who has the secret or
 * a certificate of the CA; what is read is what was said, as far as it goes,
 * and the end is read only where the other side has said it; an error stays;
 * with a fair peer, and nothing changed, there is none. And any text may be a
 * secret's file, a key, a certificate, a list of those revoked, of which a
 * trust is made, or a new one in place of what a trust was made of; and what a
 * dialler says first.
 *
 * Input: who, manners, then actions of two bytes; see act(). First byte from
 * 0xc0 on: files, see run_files(); from 0xe0 on: run_folder(); from 0xf8 on:
 * run_look(). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#if TT_HAVE_OPENSSL

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/pem.h>
#include <openssl/rand.h>

#include "base/fork.h"
#include "base/rng.h"
#include "link/tls.h"
#include "support/certs.h"
#include "support/trusts.h"

enum { ACTIONS = 160, ROOM = 1 << 20, MOST_UNSENT = 80 * 1024 };

/* What travels one way. */
typedef struct queue {
    uint8_t *bytes; /* [ROOM] */
    size_t at, end;
} queue;

typedef struct stage {
    tt_fuzz_input in;
    tt_link_stream s;
    queue to_us, from_us;
    bool is_cut, is_reset, is_full; /* as our side has it */
    bool is_right;                  /* the peer has what lets it in */
    bool is_fair; /* and nothing has been done to what it says */
    bool is_in, is_out, is_settled, has_ended;
    int err;
    uint64_t said, taken; /* by us */
    uint64_t got;         /* of what the peer has said */
    SSL *peer;            /* NULL: nobody */
    tt_tls_end peer_end;
    bool peer_is_in, peer_has_failed, peer_has_ended;
    uint64_t peer_said, peer_got;
    uint32_t n_requests;
} stage;

static uint8_t byte_at(uint64_t at, int way)
{
    return (uint8_t)((at * 0x9e3779b97f4a7c15u >> 32) + (uint64_t)way * 7);
}

/* The same keys in each run of an input. */
static tt_rng rng;

static int random_bytes(unsigned char *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = (unsigned char)tt_rng_below(&rng, 256);
    return 1;
}

static int random_status(void)
{
    return 1;
}

static const RAND_METHOD random_method = {
    .bytes = random_bytes, .pseudorand = random_bytes, .status = random_status};

/* ------------------------------------------------------------- our side -- */

static ssize_t below_recv(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    stage *st = s->state;
    size_t n = st->to_us.end - st->to_us.at;
    (void)n_iov;
    if (n == 0 && st->is_cut)
        return 0;
    if (n == 0) {
        errno = st->is_reset ? ECONNRESET : EAGAIN;
        return -1;
    }
    n = n < iov->iov_len ? n : iov->iov_len;
    memcpy(iov->iov_base, st->to_us.bytes + st->to_us.at, n);
    st->to_us.at += n;
    return (ssize_t)n;
}

static ssize_t below_send(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    stage *st = s->state;
    size_t n = iov->iov_len;
    (void)n_iov;
    if (st->is_reset) {
        errno = EPIPE;
        return -1;
    }
    if (st->is_full || ROOM - st->from_us.end < n) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(st->from_us.bytes + st->from_us.end, iov->iov_base, n);
    st->from_us.end += n;
    return (ssize_t)n;
}

static size_t below_none(const tt_link_stream *s)
{
    (void)s;
    return 0;
}

static bool below_end(tt_link_stream *s)
{
    (void)s;
    return true;
}

static void below_close(tt_link_stream *s)
{
    (void)s;
}

static const tt_link_layer below = {.send = below_send,
                                    .recv = below_recv,
                                    .pending = below_none,
                                    .unsent = below_none,
                                    .end = below_end,
                                    .close = below_close};

static void shake(stage *st)
{
    tt_link_why why = TT_LINK_WELL;
    if (st->is_in || st->is_out)
        return;
    tt_seal_step step = tt_seal_shake(&st->s, &why);
    st->is_in = step == TT_SEAL_DONE;
    st->is_out = step == TT_SEAL_FAILED;
    if (st->is_in && !st->is_right)
        tt_fuzz_fail("who has no proof has come in");
    if (st->is_out && st->is_fair)
        tt_fuzz_fail("who has a proof has been sent away");
    if (st->is_out && why != TT_LINK_OTHER_SECRET && why != TT_LINK_NO_SECRET &&
        why != TT_LINK_STRANGE)
        tt_fuzz_fail("a handshake fails for no reason");
    if (st->is_out && (!tt_seal_reason(&st->s) || errno == 0))
        tt_fuzz_fail("a handshake fails without an error");
}

/* Errors of reading stay. */
static void check_read_err(stage *st)
{
    if (errno == EAGAIN && st->err == 0)
        return;
    if (st->is_fair)
        tt_fuzz_fail("what is right cannot be read");
    if (st->err != 0 && errno != st->err)
        tt_fuzz_fail("an error has changed");
    st->err = errno;
}

static void check_send_err(const stage *st)
{
    if (errno != EAGAIN && st->is_fair)
        tt_fuzz_fail("what is right cannot be sent");
}

static void hear(stage *st, size_t most)
{
    static uint8_t in[100000];
    if (!st->is_in)
        return;
    const struct iovec iov[2] = {{in, 1 + most / 3}, {in + 1 + most / 3, most}};
    ssize_t n = tt_link_recv(&st->s, iov, 1 + (int)(most % 2));
    for (ssize_t i = 0; i < n; i++)
        if (in[i] != byte_at(st->got + (uint64_t)i, 1))
            tt_fuzz_fail("what is read was not said");
    if (n > 0)
        st->got += (uint64_t)n;
    if (st->got > st->peer_said)
        tt_fuzz_fail("more is read than was said");
    if (n == 0 && (!st->peer_has_ended || st->got < st->peer_said))
        tt_fuzz_fail("an end that nobody has said");
    if (n > 0 && st->err)
        tt_fuzz_fail("bytes after an error");
    if (n < 0)
        check_read_err(st);
}

static void say(stage *st, size_t n)
{
    static uint8_t out[70000];
    if (!st->is_in || st->has_ended)
        return;
    for (size_t i = 0; i < n; i++)
        out[i] = byte_at(st->taken + i, 0);
    const struct iovec iov[3] = {
        {out, n / 2}, {out + n / 2, n / 4}, {out + n / 2 + n / 4, 0}};
    ssize_t took = tt_link_send(&st->s, iov, 3);
    if (took > (ssize_t)n)
        tt_fuzz_fail("more was taken than was there");
    if (took > 0)
        st->taken += (uint64_t)took;
    if (took < 0)
        check_send_err(st);
    if (tt_link_unsent(&st->s) > MOST_UNSENT)
        tt_fuzz_fail("too much is unsent");
}

/* Returns whether the stream goes on under the seal. */
static bool settle(stage *st, bool is_bare)
{
    if (!st->is_in || st->is_settled)
        return true;
    bool is_well = tt_seal_settle(&st->s, is_bare);
    st->is_settled = is_well;
    if (is_bare && is_well && st->s.layer != &below)
        tt_fuzz_fail("what is bare has a seal");
    return !is_bare || !is_well;
}

static void look(stage *st)
{
    size_t n = tt_link_pending(&st->s);
    if (n > 0 && (st->err || st->is_out))
        tt_fuzz_fail("something is pending that cannot be read");
    if (st->is_in && !st->has_ended && tt_link_send(&st->s, NULL, 0) < 0)
        check_send_err(st);
}

/* ------------------------------------------------------------ the peer -- */

static int offer_early(SSL *ssl, const EVP_MD *md, const unsigned char **id,
                       size_t *n_id, SSL_SESSION **out)
{
    static const unsigned char suite[] = {0x13, 0x01}, ctx[] = "tutti";
    tt_tls_end *e = SSL_get_app_data(ssl);
    SSL_SESSION *s = SSL_SESSION_new();
    (void)md;
    SSL_SESSION_set1_master_key(s, e->offered.key, sizeof(e->offered.key));
    SSL_SESSION_set_cipher(s, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION);
    SSL_SESSION_set1_id_context(s, ctx, 5);
    SSL_SESSION_set_max_early_data(s, 1000);
    *id = e->offered.name;
    *n_id = sizeof(e->offered.name);
    *out = s;
    return 1;
}

/* What our own side would not do. */
static void be_rude(stage *st, uint8_t manners)
{
    SSL *p = st->peer;
    size_t written;
    if (manners & 1) {
        SSL_clear_options(p, SSL_OP_NO_TICKET);
        SSL_set_num_tickets(p, 2);
    }
    if (manners & 2)
        SSL_set_options(p, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    if (manners & 4) {
        SSL_set_min_proto_version(p, TLS1_VERSION);
        SSL_set_max_proto_version(p, TLS1_2_VERSION);
    }
    if (manners & 8)
        SSL_set_options(p, SSL_OP_ALLOW_NO_DHE_KEX);
    if (manners & 16)
        SSL_set1_groups_list(p, "P-384");
    if (manners & 32)
        SSL_set_block_padding(p, 512);
    if (manners & 64)
        SSL_set_post_handshake_auth(p, 1);
    if ((manners & 128) && !SSL_is_server(p)) {
        SSL_set_psk_use_session_callback(p, offer_early);
        SSL_write_early_data(p, "too early", 9, &written);
    }
    st->is_fair = st->is_fair && !(manners & (4 | 8 | 64 | 128));
}

static void peer_shake(stage *st)
{
    if (!st->peer || st->peer_is_in || st->peer_has_failed)
        return;
    int rc = SSL_do_handshake(st->peer);
    st->peer_is_in = rc == 1;
    st->peer_has_failed = rc != 1 &&
                          SSL_get_error(st->peer, rc) != SSL_ERROR_WANT_READ;
    ERR_clear_error();
    if (st->peer_has_failed && st->is_fair)
        tt_fuzz_fail("what is right is refused by the peer");
}

static void peer_hear(stage *st)
{
    uint8_t in[4096];
    size_t n;
    if (!st->peer || !st->peer_is_in)
        return;
    while (SSL_read_ex(st->peer, in, sizeof(in), &n) == 1) {
        for (size_t i = 0; i < n; i++)
            if (in[i] != byte_at(st->peer_got + i, 0))
                tt_fuzz_fail("the peer reads what was not said");
        st->peer_got += n;
    }
    ERR_clear_error();
    if (st->peer_got > st->taken)
        tt_fuzz_fail("the peer reads more than was said");
}

static void peer_say(stage *st, size_t n)
{
    static uint8_t out[70000];
    size_t written = 0;
    if (!st->peer || !st->peer_is_in || st->peer_has_ended || n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        out[i] = byte_at(st->peer_said + i, 1);
    if (SSL_write_ex(st->peer, out, n, &written) == 1)
        st->peer_said += written;
    ERR_clear_error();
    /* Nobody says so much in a greeting. */
    st->is_fair = st->is_fair && (st->is_settled || st->peer_said < 30000);
}

static void peer_do(stage *st, uint8_t what)
{
    if (!st->peer)
        return;
    switch (what % 6) {
    case 0:
    case 1:
        SSL_key_update(st->peer, what % 6 ? SSL_KEY_UPDATE_REQUESTED
                                          : SSL_KEY_UPDATE_NOT_REQUESTED);
        SSL_do_handshake(st->peer);
        /* Each wants an answer, for which there may be no room. And who takes
         * a new key before the stream is settled is none of ours: it goes on
         * with the first one. */
        st->is_fair = st->is_fair && st->is_settled && st->n_requests++ < 8;
        break;
    case 2:
        if (SSL_is_server(st->peer))
            SSL_new_session_ticket(st->peer);
        break;
    case 3:
        st->peer_has_ended = SSL_shutdown(st->peer) >= 0 || st->peer_has_ended;
        break;
    case 4:
        SSL_verify_client_post_handshake(st->peer);
        SSL_do_handshake(st->peer);
        st->is_fair = false;
        break;
    default:
        SSL_renegotiate(st->peer);
        SSL_do_handshake(st->peer);
        st->is_fair = false;
    }
    ERR_clear_error();
}

/* ------------------------------------------------------------- the wire -- */

static size_t to_us(stage *st, size_t most)
{
    size_t room = ROOM - st->to_us.end;
    most = most < room ? most : room;
    if (!st->peer || most == 0)
        return 0;
    int n = BIO_read(SSL_get_wbio(st->peer), st->to_us.bytes + st->to_us.end,
                     (int)most);
    st->to_us.end += n > 0 ? (size_t)n : 0;
    return n > 0 ? (size_t)n : 0;
}

static size_t from_us(stage *st, size_t most)
{
    size_t n = st->from_us.end - st->from_us.at;
    n = n < most ? n : most;
    if (st->peer && n > 0)
        BIO_write(SSL_get_rbio(st->peer), st->from_us.bytes + st->from_us.at,
                  (int)n);
    st->from_us.at += n;
    return n;
}

/* Until nothing moves. */
static void shake_all(stage *st)
{
    size_t moved = 1;
    for (int i = 0; i < 20 && moved > 0; i++) {
        shake(st);
        moved = from_us(st, SIZE_MAX);
        peer_shake(st);
        moved += to_us(st, SIZE_MAX);
    }
}

static void flip(stage *st, size_t at)
{
    st->is_fair = false;
    if (at < st->to_us.end - st->to_us.at)
        st->to_us.bytes[st->to_us.at + at] ^=
            (uint8_t)(1 << (tt_fuzz_next(&st->in) & 7));
}

/* Before what is there. */
static void put(stage *st, const uint8_t *bytes, size_t n)
{
    queue *q = &st->to_us;
    st->is_fair = false;
    if (ROOM - q->end < n)
        return;
    memmove(q->bytes + q->at + n, q->bytes + q->at, q->end - q->at);
    memcpy(q->bytes + q->at, bytes, n);
    q->end += n;
}

/* The first record is left out, comes twice, or what we have said comes
 * back. */
static void jumble(stage *st, uint8_t how)
{
    static uint8_t copy[70000];
    queue *q = how % 3 == 2 ? &st->from_us : &st->to_us;
    const uint8_t *at = q->bytes + q->at;
    size_t have = q->end - q->at;
    size_t n = have >= 5 ? 5 + ((size_t)at[3] << 8 | at[4]) : have;
    n = n < have ? n : have;
    n = n < sizeof(copy) ? n : sizeof(copy);
    st->is_fair = false;
    memcpy(copy, at, n);
    if (how % 3 == 0)
        q->at += n;
    else
        put(st, copy, n);
}

static void cut(stage *st, uint8_t how)
{
    if (how % 4 >= 2) {
        st->is_full = how & 1;
        return;
    }
    st->is_fair = false;
    st->is_cut = st->is_cut || how % 4 == 0;
    st->is_reset = st->is_reset || how % 4 == 1;
}

/* ---------------------------------------------------------------- turns -- */

/* False: there is no seal any more. */
static bool act(stage *st, uint8_t what, uint8_t arg)
{
    size_t n = (size_t)arg * arg;
    switch (what & 15) {
    case 0:
        shake(st);
        return true;
    case 1:
        hear(st, n);
        return true;
    case 2:
        say(st, n);
        return true;
    case 3:
        return settle(st, arg & 1);
    case 4:
        peer_shake(st);
        peer_hear(st);
        return true;
    case 5:
        peer_say(st, n);
        return true;
    case 6:
        peer_do(st, arg);
        return true;
    case 7:
        to_us(st, arg == 255 ? SIZE_MAX : arg);
        return true;
    case 8:
        from_us(st, arg == 255 ? SIZE_MAX : arg);
        return true;
    case 9:
        shake_all(st);
        return true;
    case 10:
        flip(st, arg);
        return true;
    case 11:
        n = arg < st->in.len ? arg : st->in.len;
        put(st, st->in.data, n);
        st->in.data += n, st->in.len -= n;
        return true;
    case 12:
        jumble(st, arg);
        return true;
    case 13:
        cut(st, arg);
        return true;
    case 14:
        if (st->is_in)
            tt_link_end(&st->s);
        st->has_ended = st->is_in;
        return true;
    default:
        look(st);
        return true;
    }
}

/* -------------------------------------------------------------- trusts -- */

enum { OURS, THEIRS, CERTS, FOREIGN, N_TRUSTS };
static tt_trust *trusts[N_TRUSTS], *quick[N_TRUSTS]; /* quick: rekeys soon */

/* That the files of the certificates are gone. */
static void say_nothing(void *arg, tutti_log_level level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

static void make_trusts(void)
{
    tutti_log_set(say_nothing, NULL);
    RAND_set_rand_method(&random_method);
    for (int i = 0; i < 2; i++) {
        tt_trust **t = i ? quick : trusts;
        t[OURS] = tt_test_by_secret("ours-0123456789-0123456789-0123456789");
        t[THEIRS] =
            tt_test_by_secret("theirs-0123456789-0123456789-0123456789");
        t[CERTS] = tt_test_by_cert(i == 0, 86400);
    }
    trusts[FOREIGN] = tt_test_by_cert(true, 86400);
    tt_trust_rekey_after(quick[OURS], 2);
    tt_trust_rekey_after(quick[CERTS], 2);
}

/* Bits 0, 1: the peer; 2: we have certificates; 3: we dial; 4: nobody is there;
 * 5: a key for two records. */
static void set_up(stage *st, uint8_t who, uint8_t manners)
{
    static uint8_t rooms[2][ROOM];
    uint32_t us = who & 4 ? CERTS : OURS, them = who & 3;
    *st = (stage){
        .in = st->in, .to_us.bytes = rooms[0], .from_us.bytes = rooms[1]};
    st->s = (tt_link_stream){.fd = -1, .layer = &below, .state = st};
    if (!tt_seal_begin(&st->s, (who & 32 ? quick : trusts)[us], who & 8, 0))
        tt_fuzz_fail("no memory");
    if (who & 16)
        return;
    st->is_right = st->is_fair = us == them;
    st->peer_end.trust = trusts[them];
    st->peer = tt_tls_new(&st->peer_end, 0);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (!st->peer || !in || !out)
        tt_fuzz_fail("no memory");
    SSL_set_bio(st->peer, in, out);
    if (who & 8)
        SSL_set_accept_state(st->peer);
    else
        SSL_set_connect_state(st->peer);
    be_rude(st, manners);
}

static void run_stream(const uint8_t *data, size_t len)
{
    static stage st;
    st = (stage){.in = {data + 2, len - 2}};
    set_up(&st, data[0], data[1]);
    bool goes_on = true;
    for (int n = 0; goes_on && st.in.len >= 2 && n < ACTIONS; n++) {
        uint8_t what = tt_fuzz_next(&st.in), arg = tt_fuzz_next(&st.in);
        goes_on = act(&st, what, arg);
    }
    tt_link_stream_close(&st.s);
    SSL_free(st.peer);
    ERR_clear_error();
}

/* ---------------------------------------------------------------- files -- */

static void check_secrets(const tt_secrets *s, tutti_err err,
                          const tutti_diag *diag)
{
    if (err && diag->text[0] == '\0')
        tt_fuzz_fail("a file is refused without a sentence");
    if (!err && (s->n == 0 || s->n > TT_SECRETS))
        tt_fuzz_fail("a file with so many secrets");
    for (uint32_t i = 0; !err && i < s->n; i++)
        if (s->all[i].n < TT_SECRET_LEAST || s->all[i].n > TT_SECRET_MOST)
            tt_fuzz_fail("a secret of an impossible length");
}

/* ------------------------------------------------- certificates' files -- */

enum { CERT, KEY, CA, CRL, N_PARTS };
static const char *const parts[] = {"cert.pem", "key.pem", "ca.pem", "crl.pem"};

typedef struct content {
    uint8_t bytes[4096];
    size_t len;
} content;

static content good[N_PARTS], foreign[N_PARTS], locked_key, gone_crl;
static char folder[] = "/tmp/tutti-fuzz-XXXXXX";
static char files[N_PARTS][64], secret_file[64];
/* Made of good files, which become others. */
static tt_trust *by_files[2];

static void read_part(const char *path, content *out)
{
    FILE *f = fopen(path, "re");
    out->len = f ? fread(out->bytes, 1, sizeof(out->bytes), f) : 0;
    if (f)
        fclose(f);
}

static void write_part(const char *path, const void *bytes, size_t len,
                       mode_t mode)
{
    unlink(path);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, mode);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
        tt_fuzz_fail("no file");
    close(fd);
}

static void lock_key(void)
{
    BIO *in = BIO_new_mem_buf(good[KEY].bytes, (int)good[KEY].len);
    BIO *out = BIO_new(BIO_s_mem());
    EVP_PKEY *key = PEM_read_bio_PrivateKey(in, NULL, NULL, NULL);
    if (PEM_write_bio_PrivateKey(out, key, EVP_aes_128_cbc(),
                                 (const unsigned char *)"password", 8, NULL,
                                 NULL) != 1)
        tt_fuzz_fail("no key");
    locked_key.len = (size_t)BIO_read(out, locked_key.bytes,
                                      sizeof(locked_key.bytes));
    EVP_PKEY_free(key);
    BIO_free(in);
    BIO_free(out);
}

static void remove_folder(void)
{
    for (int i = 0; i < N_PARTS; i++)
        unlink(files[i]);
    unlink(secret_file);
    rmdir(folder);
    tt_trust_close(by_files[0]);
    tt_trust_close(by_files[1]);
}

/* The foreign ones first: the CA that is made last signs the lists. */
static void make_folder(void)
{
    if (!mkdtemp(folder))
        tt_fuzz_fail("no folder");
    atexit(remove_folder);
    snprintf(secret_file, sizeof(secret_file), "%s/secret", folder);
    for (int i = 0; i < N_PARTS; i++)
        snprintf(files[i], sizeof(files[i]), "%s/%s", folder, parts[i]);
    for (int k = 0; k < 2; k++) {
        if (!tt_test_certs(folder, 86400) ||
            !tt_test_crl(folder, k ? NULL : folder, 86400))
            tt_fuzz_fail("no certificates");
        for (int i = 0; i < N_PARTS; i++)
            read_part(files[i], k ? &good[i] : &foreign[i]);
    }
    lock_key();
    if (!tt_test_crl(folder, folder, 86400))
        tt_fuzz_fail("no list");
    read_part(files[CRL], &gone_crl);
}

/* A file as the input wants it. Returns whether it is good. */
static bool put_part(int i, uint8_t how, const uint8_t *text, size_t len)
{
    const content *as = &good[i];
    if (how % 8 == 3)
        as = &foreign[i];
    if (how % 8 == 4)
        as = i == CRL ? &gone_crl : &locked_key;
    if (how % 8 < 5)
        write_part(files[i], as->bytes, as->len, 0600);
    else if (how % 8 == 5)
        unlink(files[i]);
    else
        write_part(files[i], text, len, how % 8 == 6 ? 0600 : 0640);
    return how % 8 < 3 || (how % 8 == 4 && i == CRL);
}

/* They meet in one process; whoever is out by its own list may not. */
static bool meet(tt_trust *a, tt_trust *b)
{
    int fds[2];
    tt_link_stream s[2];
    tt_link_why why;
    tt_seal_step step[2] = {TT_SEAL_WAITS, TT_SEAL_WAITS};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds))
        tt_fuzz_fail("no sockets");
    for (int i = 0; i < 2; i++) {
        tt_fork_watch(fds[i]);
        tt_link_stream_open(&s[i], fds[i]);
        if (!tt_seal_begin(&s[i], i ? b : a, i == 0, 0))
            tt_fuzz_fail("no memory");
    }
    for (int i = 0; i < 12; i++)
        if (step[i % 2] == TT_SEAL_WAITS)
            step[i % 2] = tt_seal_shake(&s[i % 2], &why);
    tt_link_stream_close(&s[0]);
    tt_link_stream_close(&s[1]);
    return step[0] == TT_SEAL_DONE && step[1] == TT_SEAL_DONE;
}

static void check_put_out(tt_trust *t, bool counts)
{
    static const uint8_t fresh[TT_TRUST_FRESH] = "fresh";
    tt_tls_print own;
    bool has_secret = tt_trust_secrets(t) > 0;
    tt_trust_own(t, &own);
    if (counts && !meet(t, t))
        tt_fuzz_fail("who has a proof is sent away");
    if (tt_trust_prepare(t, fresh) != has_secret ||
        tt_trust_renew(t) != has_secret)
        tt_fuzz_fail("a fresh secret is taken, or not, by mistake");
    if (has_secret && tt_trust_secrets(t) != 1)
        tt_fuzz_fail("an old secret counts still");
    if (!has_secret && (!tt_trust_refuse(t, &own) || meet(t, t)))
        tt_fuzz_fail("who was put out comes in");
    if (has_secret && !meet(t, t))
        tt_fuzz_fail("the fresh secret does not count");
}

/* Bit 0: its mode is right; 1: as certificates; 2: another file, 3: a
 * folder. */
static void run_files(uint8_t kind, const uint8_t *text, size_t len)
{
    static tt_secrets s;
    static const char none[] = "/proc/self/fd/99999";
    char path[40];
    tt_trust *t = NULL;
    tutti_diag diag;
    tt_diag_clear(&diag);
    check_secrets(
        &s, tt_secrets_parse((const char *)text, len, "a file", &s, &diag),
        &diag);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd < 0 || fchmod(fd, kind & 1 ? 0600 : 0640) ||
        write(fd, text, len) != (ssize_t)len)
        tt_fuzz_fail("no file");
    if (kind & 4)
        snprintf(path, sizeof(path), "%s", kind & 8 ? "/" : none);
    tt_diag_clear(&diag);
    check_secrets(&s, tt_secrets_read(path, &s, &diag), &diag);
    const tt_trust_opts o[2] = {{.secret_file = path},
                                {.cert = path, .key = path, .ca = path}};
    tt_diag_clear(&diag);
    tutti_err err = tt_trust_open(&o[kind >> 1 & 1], &t, &diag);
    if (err ? diag.text[0] == '\0' || t : t == NULL)
        tt_fuzz_fail("a file is neither taken nor refused");
    if (!err && !(kind & 2) && tt_trust_secrets(t) != s.n)
        tt_fuzz_fail("some of the secrets do not count");
    if (!err && !(kind & 2))
        check_put_out(t, true);
    tt_trust_close(t);
    close(fd);
}

/* Of those that were made before, when it is time. */
static void look_again_at(const uint8_t *text, size_t len)
{
    const tt_trust_opts o[2] = {
        {.secret_file = secret_file},
        {.cert = files[CERT], .key = files[KEY], .ca = files[CA]}};
    if (!by_files[0])
        write_part(secret_file, "secret-0123456789-0123456789-0123456789", 39,
                   0600);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; !by_files[i] && k < N_PARTS; k++)
            put_part(k, 0, text, len);
        if (!by_files[i] && tt_trust_open(&o[i], &by_files[i], NULL))
            tt_fuzz_fail("good files are refused");
    }
    write_part(secret_file, text, len, 0600);
    for (int i = 0; i < 2; i++)
        if (tt_trust_is_due(by_files[i]))
            tt_trust_look(by_files[i]);
    if (tt_trust_secrets(by_files[0]) == 0 || tt_trust_secrets(by_files[1]) > 0)
        tt_fuzz_fail("what is no good has changed something");
}

/* Bit 0: with a list; 1: no certificates, but their key; 2: a secret, too. Then
 * how each file is; the rest is the text of some. */
static void run_folder(uint8_t kind, const uint8_t *text, size_t len)
{
    tt_fuzz_input in = {text, len};
    tt_trust *t = NULL;
    tutti_diag diag;
    bool is_good = !(kind & 6), is_out = false;
    if (good[0].len == 0)
        make_folder();
    uint8_t how[N_PARTS];
    for (int i = 0; i < N_PARTS; i++)
        how[i] = tt_fuzz_next(&in);
    look_again_at(in.data, in.len);
    for (int i = 0; i < N_PARTS; i++)
        is_good &= put_part(i, how[i], in.data, in.len) ||
                   (i == CRL && !(kind & 1));
    is_out = kind & 1 && how[CRL] % 8 == 4;
    const tt_trust_opts o = {.cert = kind & 2 ? NULL : files[CERT],
                             .key = files[KEY],
                             .ca = files[CA],
                             .crl = kind & 1 ? files[CRL] : "",
                             .secret_file = kind & 4 ? secret_file : NULL};
    tt_diag_clear(&diag);
    tutti_err err = tt_trust_open(&o, &t, &diag);
    if (err ? diag.text[0] == '\0' || t : t == NULL)
        tt_fuzz_fail("files are neither taken nor refused");
    if (err && is_good)
        tt_fuzz_fail("good files are refused");
    if (!err && (kind & 6))
        tt_fuzz_fail("half a proof is taken");
    if (!err && is_out && is_good && meet(t, t))
        tt_fuzz_fail("who is in the list comes in");
    if (!err)
        check_put_out(t, is_good && !is_out);
    tt_trust_close(t);
    ERR_clear_error();
}

/* Bit 0: of several secrets; 1: certificates. What is said is a right word,
 * changed by pairs of an offset and a byte; or the input itself. */
static void run_look(uint8_t kind, const uint8_t *data, size_t len)
{
    uint8_t said[4096];
    tt_fuzz_input in = {data, len};
    tt_link_why why;
    bool is_own = kind & 4;
    tt_tls_end end = {.trust = trusts[OURS]};
    SSL *ssl = is_own ? NULL : tt_tls_new(&end, kind);
    BIO *out = BIO_new(BIO_s_mem()), *none = BIO_new(BIO_s_mem());
    int n = 0;
    if (ssl) {
        SSL_set_bio(ssl, none, out);
        SSL_set_connect_state(ssl);
        SSL_do_handshake(ssl);
        n = BIO_read(out, said, sizeof(said));
        tt_fuzz_change(&in, said, n < 256 ? (size_t)n : 256);
    }
    const uint8_t *at = ssl ? said : data;
    size_t n_said = ssl ? (size_t)n : len;
    tt_seal_step step = tt_seal_look(trusts[kind & 2 ? CERTS : OURS], at,
                                     n_said, &why);
    if (step == TT_SEAL_FAILED && why != TT_LINK_OTHER_SECRET &&
        why != TT_LINK_STRANGE)
        tt_fuzz_fail("somebody is refused for no reason");
    if ((kind & 2) && step != TT_SEAL_DONE)
        tt_fuzz_fail("a secret is asked for where certificates count");
    SSL_free(ssl);
    if (!ssl) {
        BIO_free(out);
        BIO_free(none);
    }
    ERR_clear_error();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2)
        return 0;
    if (!trusts[OURS])
        make_trusts();
    rng = (tt_rng){1};
    if (data[0] >= 0xf8)
        run_look(data[0], data + 1, len - 1);
    else if (data[0] >= 0xe0)
        run_folder(data[0], data + 1, len - 1);
    else if (data[0] >= 0xc0)
        run_files(data[0], data + 1, len - 1);
    else
        run_stream(data, len);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    tt_fuzz_mutations = 2000; /* each has a handshake */
    int rc = tt_fuzz_main(argc, argv, "tests/fuzz/corpus/tls",
                          LLVMFuzzerTestOneInput);
    for (int i = 0; i < N_TRUSTS; i++) {
        tt_trust_close(trusts[i]);
        tt_trust_close(quick[i]);
    }
    return rc;
}
#endif

#else /* without OpenSSL */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    return 0;
}

#ifndef TT_LIBFUZZER
int main(void)
{
    printf("1..0 # SKIP built without OpenSSL\n");
    return 77;
}
#endif
#endif
