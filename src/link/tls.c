/* SPDX-License-Identifier: BSD-3-Clause
 * tls.c - the seal: a layer of TLS 1.3 over a stream.
 *
 * Two parts  Until the stream is settled OpenSSL speaks, and reads byte by byte
 *            what it needs and no more (seal.h). Then the records are made here
 *            (records.c), by the same keys, and OpenSSL's state is gone.
 * Sending    A record takes what is there, up to 16 KiB, small pieces together.
 *            A long piece has records of its own, so the other side can open
 *            them straight to where they are wanted. Records lie in a buffer of
 *            the layer's, and one system call sends them. Bytes are taken only
 *            where their record has room, so the caller may change its mind
 *            about what comes next.
 * Receiving  One system call reads as much as fits into a buffer. A record is
 *            opened when it is whole, straight to where its bytes are wanted if
 *            they all are, else where it lies. So what is pending is exact.
 * Memory     Buffers of a stream that is settled come from the trust's few and
 *            go back as soon as they are empty: an idle stream has none. A
 *            guest may send HANDSHAKE_MOST bytes before it has proved itself.
 * Keys       A direction changes its key now and then: AES-GCM must not have
 *            2^24.5 records of one.
 * Fork       The child calls nothing of OpenSSL: close() there only forgets.
 * Next       proof.c (who is let in), guests.c and dial.c (who shakes
 *            hands). */
#include "link/tls.h"
#include "link/seal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if TT_HAVE_OPENSSL

#define RECORD (16 * 1024)
#define HEAD 5
/* Its header, its type, its tag. */
#define RECORD_MORE (HEAD + 1 + 16)
/* Of a record from outside: it may be padded. */
#define RECORD_MOST (HEAD + RECORD + 256)
/* For what TLS itself says between records. */
#define TALK 1024
/* So many records by one system call: fewer cost time (docs/results.md,
 * "Security"), more leave the cache. */
#define BUF (16 * (RECORD + RECORD_MORE) + TALK)
/* Before it is settled: a guest has no more than that. */
#define WORDS_BUF (4 * (RECORD + RECORD_MORE) + TALK)
#define HANDSHAKE_MOST (64 * 1024)
/* So many pieces of the caller's come into one record. */
#define PIECES 16
/* From so many bytes on a piece is long: to copy them on the other side takes
 * longer than one more record. */
#define LONG (8 * 1024)

/* A buffer; bytes [at, end) are in it. */
typedef struct bytes {
    char *buf; /* NULL: it is empty */
    size_t size, at, end;
} bytes;

/* Counts records by what passes. */
typedef struct counter {
    uint8_t head[HEAD];
    size_t n_head, n_left;
    uint64_t n;
} counter;

typedef struct seal {
    tt_tls_end end;
    SSL *ssl; /* NULL: it is settled */
    tt_link_stream below;
    pid_t pid;
    bool is_dialler, has_proof;
    bool has_ended;      /* the other side's bytes, without a word of TLS */
    int below_err, err;  /* of the socket's last call; for good */
    size_t n_heard;      /* before it is settled */
    counter heard, said; /* the same; since the handshake stands */
    tt_record_key opens, seals;
    bool wants_key; /* the other side has asked for a new one */
    bool has_heard_end, has_said_end;
    bytes in, out;
    /* Of `in`: bytes that are open, and lie first; of their record behind
     * them. */
    size_t n_open, n_behind;
    char reason[128];
} seal;

/* ------------------------------------------------------------- buffers -- */

static bool take_buf(seal *e, bytes *b)
{
    if (b->buf)
        return true;
    const bool is_settled = !e->ssl;
    *b = (bytes){.buf = is_settled ? tt_tls_take_buf(e->end.trust, BUF)
                                   : tt_new_raw(&tt_mem_std, WORDS_BUF, 1),
                 .size = is_settled ? BUF : WORDS_BUF};
    return b->buf != NULL;
}

/* Where nothing is left in it. */
static void give_buf(seal *e, bytes *b)
{
    if (!b->buf || b->at < b->end)
        return;
    if (b->size == BUF)
        tt_tls_give_buf(e->end.trust, b->buf);
    else
        tt_free(&tt_mem_std, b->buf, b->size, 1);
    *b = (bytes){0};
}

static size_t room_in(const bytes *b)
{
    return b->size - b->end;
}

/* ----------------------------------------------------------------- BIO -- */

static void count(counter *c, const char *at, size_t n)
{
    while (n > 0) {
        bool in_head = c->n_left == 0;
        size_t most = in_head ? HEAD - c->n_head : c->n_left;
        size_t m = n < most ? n : most;
        if (in_head)
            memcpy(c->head + c->n_head, at, m);
        c->n_head += in_head ? m : 0;
        c->n_left -= in_head ? 0 : m;
        at += m;
        n -= m;
        if (c->n_head < HEAD)
            continue;
        c->n_head = 0;
        c->n_left = (size_t)c->head[3] << 8 | c->head[4];
        c->n++;
    }
}

/* Everything OpenSSL says goes into `out`. */
static int bio_write(BIO *bio, const char *data, int len)
{
    seal *e = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!take_buf(e, &e->out) || room_in(&e->out) < (size_t)len) {
        e->below_err = ENOBUFS; /* somebody makes it talk without end */
        return -1;
    }
    memcpy(e->out.buf + e->out.end, data, (size_t)len);
    e->out.end += (size_t)len;
    count(&e->said, data, (size_t)len);
    return len;
}

/* Straight from the socket: what is asked for, and no more. */
static int bio_read(BIO *bio, char *out, int len)
{
    seal *e = BIO_get_data(bio);
    const struct iovec iov = {out, (size_t)len};
    BIO_clear_retry_flags(bio);
    if (e->n_heard > HANDSHAKE_MOST)
        return -1;
    ssize_t n = tt_link_recv(&e->below, &iov, 1);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    else if (n < 0)
        e->below_err = errno;
    e->has_ended |= n == 0;
    e->n_heard += n > 0 ? (size_t)n : 0;
    count(&e->heard, out, n > 0 ? (size_t)n : 0);
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

/* An alert tells of a record which came broken, or it is about a proof. */
static int err_of_alert(int reason)
{
    bool is_broken = reason == SSL_R_SSLV3_ALERT_BAD_RECORD_MAC ||
                     reason == SSL_R_TLSV1_ALERT_DECRYPTION_FAILED ||
                     reason == SSL_R_TLSV1_ALERT_RECORD_OVERFLOW ||
                     reason == SSL_R_SSLV3_ALERT_UNEXPECTED_MESSAGE ||
                     reason == SSL_R_TLSV1_ALERT_DECODE_ERROR;
    return is_broken ? EBADMSG : EACCES;
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
    else if (reason > SSL_AD_REASON_OFFSET)
        e->err = err_of_alert(reason);
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

static bool has_record_room(const bytes *b)
{
    return room_in(b) >= RECORD + RECORD_MORE + TALK / 2;
}

/* Before it is settled: words, each piece a record of its own. */
static ssize_t say_words(seal *e, cursor *c)
{
    size_t taken = 0;
    while (c->n > 0 && has_record_room(&e->out)) {
        size_t n = c->iov->iov_len - c->at, written = 0;
        int rc = SSL_write_ex(e->ssl, (const char *)c->iov->iov_base + c->at,
                              n < RECORD ? n : RECORD, &written);
        if (rc != 1) {
            fail_of(e, rc);
            return fail_again(e);
        }
        taken += written;
        skip(c, written);
    }
    return (ssize_t)taken;
}

/* What the next record takes. */
static int gather(const cursor *c, struct iovec out[PIECES], size_t *n)
{
    int n_out = 0;
    *n = 0;
    bool is_long = false;
    for (int i = 0; i < c->n && n_out < PIECES && *n < RECORD && !is_long;
         i++) {
        size_t at = i == 0 ? c->at : 0, len = c->iov[i].iov_len - at;
        is_long = len >= LONG;
        if (is_long && *n > 0)
            break;
        len = len < RECORD - *n ? len : RECORD - *n;
        out[n_out++] = (struct iovec){(char *)c->iov[i].iov_base + at, len};
        *n += len;
    }
    return n_out;
}

/* There is a buffer, with room. False: e->err. */
static bool put_record(seal *e, char type, const struct iovec *pieces,
                       int n_pieces)
{
    size_t n = tt_record_seal(&e->seals, type, pieces, n_pieces,
                              e->out.buf + e->out.end);
    e->out.end += n;
    e->err = n > 0 ? e->err : EIO;
    if (n == 0)
        ERR_clear_error();
    return n > 0;
}

/* The old key has served long enough. */
static bool rekey(seal *e)
{
    char word[] = {SSL3_MT_KEY_UPDATE, 0, 0, 1, 0};
    const struct iovec piece = {word, sizeof(word)};
    if (!e->wants_key && e->seals.seq < tt_tls_rekey_after(e->end.trust))
        return true;
    e->wants_key = false;
    if (!put_record(e, SSL3_RT_HANDSHAKE, &piece, 1))
        return false;
    e->err = tt_record_key_next(&e->seals) ? e->err : EIO;
    return !e->err;
}

/* Seals as much as fits; -1 and errno. */
static ssize_t take(seal *e, cursor *c)
{
    size_t taken = 0;
    if (!take_buf(e, &e->out)) {
        errno = ENOMEM;
        return -1;
    }
    if (e->ssl)
        return say_words(e, c);
    while (c->n > 0 && has_record_room(&e->out)) {
        struct iovec pieces[PIECES];
        size_t n;
        int n_pieces = gather(c, pieces, &n);
        if (!rekey(e) ||
            !put_record(e, SSL3_RT_APPLICATION_DATA, pieces, n_pieces))
            return fail_again(e);
        taken += n;
        skip(c, n);
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
    if (e->ssl)
        ERR_clear_error();
    skip(&c, 0);
    while (c.n > 0 && has_room) {
        ssize_t n = take(e, &c);
        if (n < 0)
            return total > 0 ? total : -1;
        total += n;
        /* A buffer is a little more than some whole packets of the kernel's:
         * the rest waits for what follows. */
        e->below.goes_on = c.n > 0;
        has_room = flush(e) > 0; /* an error is told by the next call */
        e->below.goes_on = false;
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
    const struct iovec iov = {e->in.buf + e->in.end, room_in(&e->in)};
    ssize_t n = tt_link_recv(&e->below, &iov, 1);
    if (n > 0)
        e->in.end += (size_t)n;
    *is_all = n < (ssize_t)iov.iov_len && tt_link_pending(&e->below) == 0;
    return n > 0 ? 1 : (int)n;
}

/* The bytes of the first record of `in`, header and all; 0: it is not whole.
 * What cannot be one is refused when it is opened. */
static size_t whole_record(const seal *e)
{
    size_t have = e->in.end - e->in.at;
    if (have < HEAD)
        return 0;
    const uint8_t *at = (const uint8_t *)e->in.buf + e->in.at;
    size_t n = HEAD + ((size_t)at[3] << 8 | at[4]);
    if (n > RECORD_MOST)
        return have;
    return n <= have ? n : 0;
}

/* What TLS says between data: a new key, the end. Tickets are no use. */
static bool hear_talk(seal *e, const char *at, const tt_record *r)
{
    if (r->type == SSL3_RT_ALERT && r->n == 2) {
        e->has_heard_end = at[1] == SSL_AD_CLOSE_NOTIFY;
        if (!e->has_heard_end)
            e->err = err_of_alert(SSL_AD_REASON_OFFSET + (uint8_t)at[1]);
        return e->has_heard_end;
    }
    if (r->type != SSL3_RT_HANDSHAKE || r->n < 5)
        return false;
    if (at[0] != SSL3_MT_KEY_UPDATE)
        return at[0] == SSL3_MT_NEWSESSION_TICKET && e->is_dialler;
    e->wants_key |= at[4] == SSL_KEY_UPDATE_REQUESTED;
    return r->n == 5 && tt_record_key_next(&e->opens);
}

/* Can a record of n bytes be opened straight to where `room` bytes are? */
static bool is_direct(size_t n, size_t room)
{
    return n <= room + RECORD_MORE;
}

/* A record of n bytes: to `out`, if it has room for all that may be in it; else
 * it lies open. Returns what has come to `out`. */
static size_t open_record(seal *e, size_t n, char *out, size_t room)
{
    char *record = e->in.buf + e->in.at;
    const bool goes_out = is_direct(n, room);
    char *to = goes_out ? out : record + HEAD;
    tt_record r;
    if (n > RECORD_MOST || !tt_record_open(&e->opens, record, n, to, &r) ||
        (r.type != SSL3_RT_APPLICATION_DATA && !hear_talk(e, to, &r))) {
        e->err = e->err ? e->err : EBADMSG;
        ERR_clear_error();
        return 0;
    }
    bool lies_open = r.type == SSL3_RT_APPLICATION_DATA && !goes_out && r.n > 0;
    e->in.at += lies_open ? HEAD : n;
    e->n_open = lies_open ? r.n : 0;
    e->n_behind = lies_open ? n - HEAD - r.n : 0;
    return r.type == SSL3_RT_APPLICATION_DATA && goes_out ? r.n : 0;
}

/* So that it need not be copied. `total` bytes of `most` have come before. */
static bool must_wait(size_t n, size_t total, size_t most)
{
    return total > 0 && n > LONG && !is_direct(n, most - total);
}

/* As far as whole records are there; but a long one that has no room waits,
 * where there is something before it: who knows its place asks again. -1 and
 * errno: EAGAIN. 0: the end was said. */
static ssize_t give(seal *e, char *out, size_t most)
{
    size_t total = 0, n = 1;
    while (total < most && n > 0 && !e->err && !e->has_heard_end) {
        n = most - total < e->n_open ? most - total : e->n_open;
        if (n > 0) {
            memcpy(out + total, e->in.buf + e->in.at, n);
            e->n_open -= n;
            e->in.at += e->n_open > 0 ? n : n + e->n_behind;
            total += n;
            continue;
        }
        n = whole_record(e);
        if (must_wait(n, total, most))
            break;
        if (n > 0)
            total += open_record(e, n, out + total, most - total);
    }
    if (total > 0 || most == 0 || e->has_heard_end)
        return (ssize_t)total;
    return fail_again(e);
}

/* From OpenSSL; else as give(). */
static ssize_t hear_words(seal *e, char *out, size_t most)
{
    size_t total = 0;
    while (total < most) {
        size_t n = 0;
        int rc = SSL_read_ex(e->ssl, out + total, most - total, &n);
        total += n;
        if (rc == 1)
            continue;
        e->has_heard_end = SSL_get_error(e->ssl, rc) == SSL_ERROR_ZERO_RETURN;
        if (!e->has_heard_end)
            fail_of(e, rc);
        return total > 0 || e->has_heard_end ? (ssize_t)total : fail_again(e);
    }
    return (ssize_t)total;
}

/* Into one piece. As recv(); *is_all: the socket is empty. */
static ssize_t recv_into(seal *e, char *out, size_t most, bool *is_all)
{
    size_t total = 0;
    if (e->ssl) {
        *is_all = true;
        return hear_words(e, out, most);
    }
    for (;;) {
        ssize_t n = give(e, out + total, most - total);
        total += n > 0 ? (size_t)n : 0;
        bool is_over = e->err || e->has_heard_end;
        if (total == most || is_over || *is_all ||
            must_wait(whole_record(e), total, most)) {
            *is_all = *is_all || is_over;
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
    if (e->ssl)
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
    if (e->err || e->has_heard_end)
        return 0;
    size_t n = e->ssl ? (size_t)SSL_pending(e->ssl) : e->n_open;
    return (n > 0 ? n : whole_record(e)) + tt_link_pending(&e->below);
}

/* ------------------------------------------------------------- the end -- */

static bool seal_end(tt_link_stream *s)
{
    seal *e = s->state;
    char word[] = {1, SSL_AD_CLOSE_NOTIFY};
    const struct iovec piece = {word, sizeof(word)};
    if (e->err)
        return true;
    ERR_clear_error();
    if (!e->has_said_end && e->ssl)
        e->has_said_end = SSL_shutdown(e->ssl) >= 0;
    else if (!e->has_said_end && take_buf(e, &e->out))
        e->has_said_end = put_record(e, SSL3_RT_ALERT, &piece, 1);
    ERR_clear_error();
    return flush(e) > 0 || errno != EAGAIN;
}

static void free_seal(seal *e)
{
    SSL_free(e->ssl);
    tt_record_key_close(&e->opens);
    tt_record_key_close(&e->seals);
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
    if (!e->err && !e->has_proof) {
        ERR_clear_error();
        int rc = SSL_do_handshake(e->ssl);
        bool has_failed = rc != 1 && fail_of(e, rc) < 0;
        if (flush(e) < 0 && errno != EAGAIN && !has_failed)
            e->err = e->below_err = errno;
        if (!e->err && (rc != 1 || e->out.buf))
            return TT_SEAL_WAITS;
    }
    if (!e->has_proof) {
        e->has_proof = !e->err && tt_tls_is_proven(&e->end, e->ssl);
        if (!e->has_proof && !e->err)
            e->err = EACCES; /* it has been put out meanwhile */
        e->heard.n = e->said.n = 0;
    }
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
    if (s->layer != &seal_layer)
        return "";
    long code = e->ssl ? SSL_get_verify_result(e->ssl) : X509_V_OK;
    return code != X509_V_OK ? X509_verify_cert_error_string(code) : e->reason;
}

void tt_seal_note(const tt_link_stream *s, const tt_link_id *who)
{
    const seal *e = s->state;
    if (s->layer == &seal_layer && e->ssl)
        tt_tls_note(&e->end, e->ssl, who);
}

/* From OpenSSL, between two records. */
static bool take_over(seal *e)
{
    const SSL_CIPHER *suite = SSL_get_current_cipher(e->ssl);
    const EVP_CIPHER *cipher =
        EVP_get_cipherbynid(SSL_CIPHER_get_cipher_nid(suite));
    uint8_t(*secrets)[32] = e->end.traffic;
    int mine = e->is_dialler ? 0 : 1;
    bool is_by_openssl = tt_tls_is_by_openssl(e->end.trust);
    const tt_record_way seals = {cipher, true, is_by_openssl},
                        opens = {cipher, false, is_by_openssl};
    bool is_well =
        cipher &&
        tt_record_key_open(&e->seals, &seals, secrets[mine], e->said.n) &&
        tt_record_key_open(&e->opens, &opens, secrets[!mine], e->heard.n);
    tt_secret_wipe(&e->end.traffic, sizeof(e->end.traffic));
    tt_secret_wipe(&e->end.offered, sizeof(e->end.offered));
    SSL_free(e->ssl);
    e->ssl = NULL;
    e->err = is_well ? e->err : EIO;
    return is_well;
}

bool tt_seal_settle(tt_link_stream *s, bool is_bare)
{
    seal *e = s->state;
    if (s->layer != &seal_layer)
        return true;
    if (!is_bare && !e->ssl)
        return true;
    if (SSL_pending(e->ssl) > 0 || e->heard.n_head > 0 || e->heard.n_left > 0)
        return false;
    if (!is_bare)
        return take_over(e);
    if (e->out.buf)
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
tt_seal_step tt_seal_look(tt_trust *t, const uint8_t *at, size_t n,
                          tt_link_why *why)
{
    (void)t, (void)at, (void)n;
    *why = TT_LINK_NO_SECRET;
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

void tt_seal_note(const tt_link_stream *s, const tt_link_id *who)
{
    (void)s, (void)who;
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
