/* SPDX-License-Identifier: BSD-3-Clause
 * certs.h - certificates for tests, made anew each time (EC keys). */
#ifndef TT_TESTS_CERTS_H
#define TT_TESTS_CERTS_H

#include <stdbool.h>

/* Writes DIR/ca.pem, DIR/cert.pem, DIR/key.pem: a CA, and what it has signed.
 * The certificate ends so many seconds from now. False: not possible. */
bool tt_test_certs(const char *dir, long ends_s);
/* The same by the CA that was made last. */
bool tt_test_cert_again(const char *dir, long ends_s);
/* Writes DIR/crl.pem: what that CA has revoked, which is GONE/cert.pem, or
 * nothing
 * (NULL). The list ends so many seconds from now. */
bool tt_test_crl(const char *dir, const char *gone, long ends_s);

#if TT_HAVE_OPENSSL
#include <openssl/x509.h>

/* NULL: it has no such extension. */
typedef struct tt_test_cert_opts {
    EVP_PKEY *key;
    const char *name;
    X509 *by; /* NULL: itself */
    EVP_PKEY *by_key;
    long begins_s, ends_s; /* from now */
    const char *basic;     /* constraints */
    const char *usage;     /* of the key */
    const char *serves;    /* extended usage */
    bool has_sha1;         /* as the signature's hash */
} tt_test_cert_opts;

/* The caller frees it. */
X509 *tt_test_cert(const tt_test_cert_opts *o);
#endif

#endif
