/* SPDX-License-Identifier: BSD-3-Clause
 * tls.c - the seal: a layer of TLS 1.3 over a stream.
 *
 * Sending    A record takes what is there, up to 16 KiB, small pieces together.
 *            Records lie in a buffer of the layer's, and one system call sends
 *            them. Bytes are taken only where their record has room, so OpenSSL
 *            never has half a record that would have to be offered again, and
 *            the caller may change its mind about what comes next.
 * Receiving  One system call reads as much as fits into a buffer, and OpenSSL is
 *            given whole records only: half of one lies in the buffer, so what
 *            is pending is exact. Before the stream is settled there is no
 *            buffer
 *            (seal.h).
 * Memory     Buffers come from the trust's few and go back as soon as they are
 *            empty: an idle stream has none. A guest may send HANDSHAKE_MOST
 *            bytes before it has proved itself.
 * Keys       A direction changes its key now and then: AES-GCM must not have 2^24.5
 *            records of one.
 * Fork       The child calls nothing of OpenSSL: close() there only forgets.
 * Next       proof.c (who is let in), guests.c and dial.c (who shakes hands). */
#include "link/tls.h"
#include "link/seal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if TT_HAVE_OPENSSL

#define RECORD (16 * 1024)
/* Its header, its type, its tag. */
#define RECORD_MORE (5 + 1 + 16)
/* Of a record from outside: it may be padded. */
#define RECORD_MOST (5 + RECORD + 256)
/* For what TLS itself says between records. */
#define TALK 1024
#define BUF (4 * (RECORD + RECORD_MORE) + TALK)
#define HANDSHAKE_MOST (64 * 1024)

/* A buffer; bytes [at, end) are in it. */
typedef struct bytes {
    char *buf; /* NULL: it is empty */
    size_t at, end;
} bytes;

typedef struct seal {
    tt_tls_end end;
    SSL *ssl;
    tt_link_stream below;
    pid_t pid;
    bool is_dialler, has_proof, is_settled;
    bool has_ended;     /* the other side's bytes, without a word of TLS */
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
    if (!b->buf)
        *b = (bytes){.buf = tt_tls_take_buf(e->end.trust, BUF)};
    return b->buf != NULL;
}

/* Where nothing is left in it. */
static void give_buf(seal *e, bytes *b)
{
    if (!b->buf || b->at < b->end)
        return;
    tt_tls_give_buf(e->end.trust, b->buf);
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

/* The bytes of the first record of `in`, header and all; 0: it is not whole.
 * What cannot be one is OpenSSL's to refuse. */
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

static BIO_METHOD *method; /* the same for all streams */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_method(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti");
    if (!method)
        return;
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_ctrl(method, bio_ctrl);
}

static bool open_ssl(seal *e, uint32_t pick)
{
    pthread_once(&once, make_method);
    BIO *bio = method ? BIO_new(method) : NULL;
    e->ssl = bio ? tt_tls_new(&e->end, pick) : NULL;
    if (!e->ssl) {
        BIO_free(bio);
        return false;
    }
    BIO_set_data(bio, e);
    BIO_set_init(bio, 1);
    SSL_set_bio(e->ssl, bio, bio);
    return true;
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

/* What a call of OpenSSL's that returned rc means: 0: try again; -1: errno,
 * which stays. */
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
    if (e->n_records < tt_tls_rekey_after(e->end.trust))
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
    while (c->n > 0 && BUF - e->out.end >= RECORD + RECORD_MORE + TALK / 2) {
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

/* From OpenSSL, as far as whole records are there. -1 and errno: EAGAIN. 0: the
 * end was said. */
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
    tt_trust_close(e->end.trust);
    tt_secret_wipe(e, sizeof(*e));
    tt_free(&tt_mem_std, e, 1, sizeof(*e));
}

/* What the other side reads to its end was all, as far as there is room to say
 * so. */
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

bool tt_seal_begin(tt_link_stream *s, tt_trust *t, bool is_dialler,
                   uint32_t pick)
{
    seal *e = tt_new(&tt_mem_std, 1, sizeof(*e));
    if (!e)
        return false;
    e->end.trust = tt_trust_ref(t);
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

/* Who says what TLS is, but fails, knows another secret. A dialler has heard an
 * alert, or has seen a certificate, where the other side has a proof at all.
 * Who hangs up has said nothing: it may have had no room. */
static tt_link_why why_of(const seal *e)
{
    if (e->has_ended || e->below_err)
        return TT_LINK_STRANGE;
    if (!e->is_dialler)
        return TT_LINK_OTHER_SECRET;
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
    e->has_proof = !e->err && tt_tls_is_proven(&e->end, e->ssl);
    if (e->has_proof)
        return TT_SEAL_DONE;
    *why = why_of(e);
    errno = e->err;
    return TT_SEAL_FAILED;
}

bool tt_seal_is_begun(const tt_link_stream *s)
{
    const seal *e = s->state;
    return tt_tls_is_begun(&e->end, e->ssl);
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

/* There is no trust, so nobody comes here. */
tt_seal_step tt_seal_look(tt_trust *t, const uint8_t *at, size_t n)
{
    (void)t, (void)at, (void)n;
    return TT_SEAL_FAILED;
}

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

bool tt_seal_is_begun(const tt_link_stream *s)
{
    (void)s;
    return false;
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

#endif
