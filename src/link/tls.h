/* SPDX-License-Identifier: BSD-3-Clause
 * tls.h - private to proof.c, outcasts.c, tls.c, records.c and gcm.c: what a
 * side proves itself by, as OpenSSL has it, and its records. Only these know
 * OpenSSL. Next: proof.c. */
#ifndef TT_LINK_TLS_H
#define TT_LINK_TLS_H

#if TT_HAVE_OPENSSL

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "link/link.h"
#include "link/seal.h"

/* A secret as TLS takes it: what is told in clear, and what is not. */
typedef struct tt_tls_psk {
    uint8_t name[16];
    uint8_t key[32];
    uint8_t binder_key[32]; /* of tt_tls_binder_key() */
} tt_tls_psk;

/* One end of a handshake. */
typedef struct tt_tls_end {
    tt_trust *trust;
    tt_tls_psk offered; /* by the dialler; a listener knows it, too */
    /* The first secret of what a dialler sends, and of what a listener sends:
     * all zero before the handshake has come so far. */
    uint8_t traffic[2][32];
} tt_tls_end;

/* A new SSL of the trust. pick: as tt_seal_begin()'s. The end stays where it
 * is. NULL: no memory. */
SSL *tt_tls_new(tt_tls_end *end, uint32_t pick);
/* As tt_seal_note(). */
void tt_tls_note(const tt_tls_end *end, SSL *ssl, const tt_link_id *who);
/* As tt_seal_is_begun(). */
bool tt_tls_is_begun(const tt_tls_end *end, const SSL *ssl);
/* The handshake stands. Has the other side proved who it is? */
bool tt_tls_is_proven(const tt_tls_end *end, SSL *ssl);
/* After how many records a key is changed. */
uint64_t tt_tls_rekey_after(const tt_trust *t);
/* Records are made by OpenSSL's ciphers only. */
bool tt_tls_is_by_openssl(const tt_trust *t);

/* Buffers that streams of a trust pass round, all of one size; NULL: no
 * memory. */
char *tt_tls_take_buf(tt_trust *t, size_t size);
void tt_tls_give_buf(tt_trust *t, char *buf); /* accepts NULL */

/* --------------------------------------------------------- outcasts.c */

/* Who counts no more, by what it proves itself by, and which certificates have
 * been shown by whom. All zero: nobody. [locked by the trust] */
typedef struct tt_outcasts {
    tt_tls_print *out; /* [n_out] */
    size_t n_out, cap_out;
    struct tt_tls_shown *shown; /* [n_shown], the oldest first */
    size_t n_shown;
} tt_outcasts;
bool tt_outcasts_has(const tt_outcasts *o, const tt_tls_print *print);
/* Room for n more; false: no memory, or too many. */
bool tt_outcasts_reserve(tt_outcasts *o, size_t n);
/* The same for one that is not in it. */
bool tt_outcasts_add(tt_outcasts *o, const tt_tls_print *print);
void tt_outcasts_note(tt_outcasts *o, const tt_link_id *who,
                      const tt_tls_print *print);
/* What it has shown; returns how many, of most. */
size_t tt_outcasts_shown(const tt_outcasts *o, const tt_link_id *who,
                         tt_tls_print *out, size_t most);
void tt_outcasts_free(tt_outcasts *o);

/* -------------------------------------------------------------- gcm.c */

/* AES-128-GCM of one direction; one thread at a time. */
typedef struct tt_gcm tt_gcm;
/* To seal, or to open; its key comes next. NULL: OpenSSL's cipher is to do it,
 * as this host has no other, or no better one. */
tt_gcm *tt_gcm_new(bool seals);
void tt_gcm_key(tt_gcm *g, const uint8_t key[16]);
/* A record, whose first n bytes are in clear. */
void tt_gcm_start(tt_gcm *g, const uint8_t nonce[12], const void *aad,
                  size_t n);
/* A piece of it, elsewhere or where it lies. */
void tt_gcm_update(tt_gcm *g, const void *from, size_t n, void *to);
/* What the record must end with. */
void tt_gcm_tag(tt_gcm *g, uint8_t tag[16]);
void tt_gcm_free(tt_gcm *g); /* accepts NULL; wipes it */

/* ---------------------------------------------------------- records.c */

/* HKDF-Expand by SHA-256 (RFC 5869), of one block: n <= 32, n_info < 64. False:
 * OpenSSL does not. */
bool tt_tls_expand(const uint8_t prk[32], const void *info, size_t n_info,
                   uint8_t *out, size_t n);

/* The key by which a ClientHello proves a secret; false as above. */
bool tt_tls_binder_key(const uint8_t psk[32], uint8_t out[32]);
/* The end of a ClientHello: lengths, and one proof. */
#define TT_TLS_BINDERS (2 + 1 + 32)
/* A ClientHello of n > TT_TLS_BINDERS bytes, from its type on: has it been said
 * by one who has the key? */
bool tt_tls_is_bound(const uint8_t key[32], const uint8_t *hello, size_t n);

/* Keys and count of one direction. */
typedef struct tt_record_key {
    tt_gcm *gcm; /* NULL: ctx is the cipher */
    EVP_CIPHER_CTX *ctx;
    uint8_t secret[32], iv[12];
    uint64_t seq; /* of the next record */
} tt_record_key;

/* What was in a record. */
typedef struct tt_record {
    char type; /* SSL3_RT_... */
    size_t n;
} tt_record;

/* How records are sealed, or opened. */
typedef struct tt_record_way {
    const EVP_CIPHER *cipher;
    bool seals;
    bool is_by_openssl; /* whatever else there is */
} tt_record_way;

/* From record `seq` of the secret on. False: OpenSSL does not; close it all the
 * same. */
bool tt_record_key_open(tt_record_key *k, const tt_record_way *way,
                        const uint8_t secret[32], uint64_t seq);
/* The secret that follows; its first record has number 0. */
bool tt_record_key_next(tt_record_key *k);
void tt_record_key_close(tt_record_key *k); /* all zero is fine */
/* At most 16 KiB, to `out`, which has 22 bytes more. Returns its bytes, 0:
 * OpenSSL does not. */
size_t tt_record_seal(tt_record_key *k, char type, const struct iovec *pieces,
                      int n_pieces, char *out);
/* A record of n bytes; what is in it goes to `out`: elsewhere, with room for
 * n - 22, or where it lies (record + 5). False: it is not the one that the
 * other side has sealed; what is at `out` then means nothing. */
bool tt_record_open(tt_record_key *k, char *record, size_t n, char *out,
                    tt_record *r);

#endif
#endif
