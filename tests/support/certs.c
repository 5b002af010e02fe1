/* SPDX-License-Identifier: BSD-3-Clause
 * certs.c - see certs.h. */
#include "support/certs.h"

#include <stdio.h>

#if TT_HAVE_OPENSSL

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

static EVP_PKEY *ca_key;
static X509 *ca;

static FILE *open_in(const char *dir, const char *name)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    return fd >= 0 ? fdopen(fd, "w") : NULL;
}

static void extend(X509 *x, int nid, const char *value)
{
    if (!value)
        return;
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    X509_add_ext(x, e, -1);
    X509_EXTENSION_free(e);
}

X509 *tt_test_cert(const tt_test_cert_opts *o)
{
    static long serial;
    X509 *x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(x), o->begins_s);
    X509_gmtime_adj(X509_getm_notAfter(x), o->ends_s);
    X509_set_pubkey(x, o->key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)o->name, -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(o->by ? o->by : x));
    extend(x, NID_basic_constraints, o->basic);
    extend(x, NID_key_usage, o->usage);
    extend(x, NID_ext_key_usage, o->serves);
    X509_sign(x, o->by_key, o->has_sha1 ? EVP_sha1() : EVP_sha256());
    return x;
}

static bool write_cert(const char *dir, const char *name, X509 *x)
{
    FILE *f = open_in(dir, name);
    bool is_well = f && PEM_write_X509(f, x) == 1;
    return f && fclose(f) == 0 && is_well;
}

bool tt_test_cert_again(const char *dir, long ends_s)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    const tt_test_cert_opts o = {.key = key,
                                 .name = "a rank",
                                 .by = ca,
                                 .by_key = ca_key,
                                 .begins_s = -3600,
                                 .ends_s = ends_s};
    X509 *x = tt_test_cert(&o);
    FILE *f = open_in(dir, "key.pem");
    bool is_well = f &&
                   PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1;
    is_well = f && fclose(f) == 0 && is_well &&
              write_cert(dir, "cert.pem", x) && write_cert(dir, "ca.pem", ca);
    X509_free(x);
    EVP_PKEY_free(key);
    return is_well;
}

bool tt_test_certs(const char *dir, long ends_s)
{
    EVP_PKEY_free(ca_key);
    X509_free(ca);
    ca_key = EVP_EC_gen("P-256");
    const tt_test_cert_opts o = {.key = ca_key,
                                 .name = "a CA",
                                 .by_key = ca_key,
                                 .begins_s = -3600,
                                 .ends_s = 86400,
                                 .basic = "critical,CA:TRUE"};
    ca = tt_test_cert(&o);
    return tt_test_cert_again(dir, ends_s);
}

#else

bool tt_test_certs(const char *dir, long ends_s)
{
    (void)dir, (void)ends_s;
    return false;
}

bool tt_test_cert_again(const char *dir, long ends_s)
{
    return tt_test_certs(dir, ends_s);
}

#endif
