/* SPDX-License-Identifier: BSD-3-Clause
 * tls.h - private to proof.c and tls.c: what a side proves itself by, as
 * OpenSSL has it. Only these two know OpenSSL. Next: proof.c. */
#ifndef TT_LINK_TLS_H
#define TT_LINK_TLS_H

#if TT_HAVE_OPENSSL

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "link/seal.h"

/* A secret as TLS takes it: what is told in clear, and what is not. */
typedef struct tt_tls_psk {
    uint8_t name[16];
    uint8_t key[32];
} tt_tls_psk;

/* One end of a handshake. */
typedef struct tt_tls_end {
    tt_trust *trust;
    tt_tls_psk offered; /* by a dialler */
} tt_tls_end;

/* A new SSL of the trust. pick: as tt_seal_begin()'s. The end stays where it is.
 * NULL: no memory. */
SSL *tt_tls_new(tt_tls_end *end, uint32_t pick);
/* As tt_seal_is_begun(). */
bool tt_tls_is_begun(const tt_tls_end *end, const SSL *ssl);
/* The handshake stands. Has the other side proved who it is? */
bool tt_tls_is_proven(const tt_tls_end *end, SSL *ssl);
/* After how many records a key is changed. */
uint64_t tt_tls_rekey_after(const tt_trust *t);

/* Buffers that streams of a trust pass round; NULL: no memory. */
char *tt_tls_take_buf(tt_trust *t, size_t size);
void tt_tls_give_buf(tt_trust *t, char *buf); /* accepts NULL */

#endif
#endif
