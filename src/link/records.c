/* SPDX-License-Identifier: BSD-3-Clause
 * records.c - one record of TLS 1.3, sealed and opened on its way.
 *
 * Idea       OpenSSL's own reading and writing copies all that it moves, and
 *            what comes from memory and goes there costs most. The cipher alone
 *            reads what the caller has and writes where the caller wants it,
 *            and hides the wait for memory behind its work. So once a stream is
 *            settled its records are made here, as kernels do it for kTLS: by
 *            the handshake's traffic secrets, with OpenSSL's ciphers, or with
 *            a quicker one of the same (gcm.c).
 * Bytes      RFC 8446: 4.2.11.2 (what proves a secret), 5.2 (a record), 5.3
 *            (its number is in the nonce), 7.1 (labels),
 *            7.2 (the next secret), 7.3 (key and IV of a secret):
 *              23, 3, 3, length (2 bytes)   authenticated, not hidden
 *              content, its type, zeros     hidden
 *              tag (16 bytes)
 * Next       tls.c. */
#include "link/tls.h"

#include <string.h>

#if TT_HAVE_OPENSSL

#include <openssl/hmac.h>

#define HEAD 5
#define TAG 16

bool tt_tls_expand(const uint8_t prk[32], const void *info, size_t n_info,
                   uint8_t *out, size_t n)
{
    uint8_t text[64], okm[32];
    memcpy(text, info, n_info);
    text[n_info] = 1; /* the first block */
    bool is_well = HMAC(EVP_sha256(), prk, 32, text, n_info + 1, okm, NULL) !=
                   NULL;
    memcpy(out, okm, n);
    tt_secret_wipe(okm, sizeof(okm));
    return is_well;
}

/* RFC 8446's expansion by a label, and a context of at most 32 bytes; n <=
 * 32. */
static bool expand(const uint8_t secret[32], const char *label,
                   const uint8_t *context, size_t n_context, uint8_t *out,
                   size_t n)
{
    uint8_t info[64] = {0, (uint8_t)n};
    size_t n_label = strlen(label);
    info[2] = (uint8_t)(6 + n_label);
    memcpy(info + 3, "tls13 ", 6);
    memcpy(info + 9, label, n_label);
    info[9 + n_label] = (uint8_t)n_context;
    if (n_context > 0)
        memcpy(info + 10 + n_label, context, n_context);
    return tt_tls_expand(secret, info, 10 + n_label + n_context, out, n);
}

bool tt_tls_binder_key(const uint8_t psk[32], uint8_t out[32])
{
    static const uint8_t zeros[32];
    uint8_t early[32], key[32], nothing[32];
    bool is_well = EVP_Digest("", 0, nothing, NULL, EVP_sha256(), NULL) &&
                   HMAC(EVP_sha256(), zeros, 32, psk, 32, early, NULL) &&
                   expand(early, "ext binder", nothing, 32, key, 32) &&
                   expand(key, "finished", NULL, 0, out, 32);
    tt_secret_wipe(early, sizeof(early));
    tt_secret_wipe(key, sizeof(key));
    return is_well;
}

bool tt_tls_is_bound(const uint8_t key[32], const uint8_t *hello, size_t n)
{
    uint8_t hash[32], binder[32];
    return EVP_Digest(hello, n - TT_TLS_BINDERS, hash, NULL, EVP_sha256(),
                      NULL) &&
           HMAC(EVP_sha256(), key, 32, hash, 32, binder, NULL) &&
           CRYPTO_memcmp(binder, hello + n - 32, 32) == 0;
}

static bool use_secret(tt_record_key *k)
{
    uint8_t key[32];
    size_t n_key = k->gcm ? 16 : (size_t)EVP_CIPHER_CTX_get_key_length(k->ctx);
    k->seq = 0;
    bool is_well = n_key <= sizeof(key) &&
                   expand(k->secret, "key", NULL, 0, key, n_key) &&
                   expand(k->secret, "iv", NULL, 0, k->iv, sizeof(k->iv));
    if (is_well && k->gcm)
        tt_gcm_key(k->gcm, key);
    else
        is_well = is_well &&
                  EVP_CipherInit_ex(k->ctx, NULL, NULL, key, NULL, -1) == 1;
    tt_secret_wipe(key, sizeof(key));
    return is_well;
}

static bool open_cipher(tt_record_key *k, const tt_record_way *way)
{
    /* Who wants FIPS 140 wants OpenSSL's provider of it. */
    if (EVP_CIPHER_is_a(way->cipher, "AES-128-GCM") && !way->is_by_openssl &&
        !EVP_default_properties_is_fips_enabled(NULL))
        k->gcm = tt_gcm_new(way->seals);
    if (k->gcm)
        return true;
    k->ctx = EVP_CIPHER_CTX_new();
    return k->ctx && EVP_CipherInit_ex(k->ctx, way->cipher, NULL, NULL, NULL,
                                       way->seals) == 1;
}

bool tt_record_key_open(tt_record_key *k, const tt_record_way *way,
                        const uint8_t secret[32], uint64_t seq)
{
    memcpy(k->secret, secret, sizeof(k->secret));
    if (!open_cipher(k, way) || !use_secret(k))
        return false;
    k->seq = seq;
    return true;
}

bool tt_record_key_next(tt_record_key *k)
{
    uint8_t next[32];
    if (!expand(k->secret, "traffic upd", NULL, 0, next, sizeof(next)))
        return false;
    memcpy(k->secret, next, sizeof(next));
    tt_secret_wipe(next, sizeof(next));
    return use_secret(k);
}

void tt_record_key_close(tt_record_key *k)
{
    tt_gcm_free(k->gcm);
    EVP_CIPHER_CTX_free(k->ctx);
    tt_secret_wipe(k, sizeof(*k));
}

/* The nonce of the next record, and what of it is not hidden. */
static bool start(tt_record_key *k, const char *head)
{
    uint8_t nonce[12];
    int n;
    memcpy(nonce, k->iv, sizeof(nonce));
    for (int i = 0; i < 8; i++)
        nonce[11 - i] ^= (uint8_t)(k->seq >> (8 * i));
    k->seq++;
    if (k->gcm) {
        tt_gcm_start(k->gcm, nonce, head, HEAD);
        return true;
    }
    return EVP_CipherInit_ex(k->ctx, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(k->ctx, NULL, &n, (const uint8_t *)head, HEAD) == 1;
}

static bool update(tt_record_key *k, const char *from, size_t len, char *to)
{
    int n;
    if (len > 0 && k->gcm)
        tt_gcm_update(k->gcm, from, len, to);
    return len == 0 || k->gcm ||
           EVP_CipherUpdate(k->ctx, (uint8_t *)to, &n, (const uint8_t *)from,
                            (int)len) == 1;
}

/* The tag of what was sealed. */
static bool put_tag(tt_record_key *k, char *tag)
{
    uint8_t none[TAG];
    int n_none;
    if (k->gcm) {
        tt_gcm_tag(k->gcm, (uint8_t *)tag);
        return true;
    }
    return EVP_CipherFinal_ex(k->ctx, none, &n_none) == 1 &&
           EVP_CIPHER_CTX_ctrl(k->ctx, EVP_CTRL_AEAD_GET_TAG, TAG, tag) == 1;
}

/* Is it the one of what was opened? */
static bool check_tag(tt_record_key *k, char *tag)
{
    uint8_t right[TAG];
    int n_none;
    if (k->gcm) {
        tt_gcm_tag(k->gcm, right);
        return CRYPTO_memcmp(right, tag, TAG) == 0;
    }
    return EVP_CIPHER_CTX_ctrl(k->ctx, EVP_CTRL_AEAD_SET_TAG, TAG, tag) == 1 &&
           EVP_CipherFinal_ex(k->ctx, right, &n_none) == 1;
}

size_t tt_record_seal(tt_record_key *k, char type, const struct iovec *pieces,
                      int n_pieces, char *out)
{
    size_t n = 0, left = 0;
    for (int i = 0; i < n_pieces; i++)
        left += pieces[i].iov_len;
    n = left + 1 + TAG;
    const char head[HEAD] = {SSL3_RT_APPLICATION_DATA, 3, 3, (char)(n >> 8),
                             (char)n};
    memcpy(out, head, HEAD);
    bool is_well = start(k, out);
    char *at = out + HEAD;
    for (int i = 0; i < n_pieces && is_well; i++) {
        is_well = update(k, pieces[i].iov_base, pieces[i].iov_len, at);
        at += pieces[i].iov_len;
    }
    is_well = is_well && update(k, &type, 1, at) && put_tag(k, at + 1);
    return is_well ? HEAD + n : 0;
}

bool tt_record_open(tt_record_key *k, char *record, size_t n, char *out,
                    tt_record *r)
{
    if (n < HEAD + 1 + TAG || record[0] != SSL3_RT_APPLICATION_DATA)
        return false;
    char *from = record + HEAD, *tag = record + n - TAG, type = 0;
    size_t n_most = (size_t)(tag - from) - 1;
    if (!start(k, record) || !update(k, from, n_most, out) ||
        !update(k, tag - 1, 1, &type) || !check_tag(k, tag))
        return false;
    while (type == 0 && n_most > 0) /* somebody pads */
        type = out[--n_most];
    *r = (tt_record){.type = type, .n = n_most};
    return type != 0;
}

#endif
