/* SPDX-License-Identifier: BSD-3-Clause
 * trusts.c - see trusts.h. */
#include "support/trusts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/certs.h"

static void give_up(const char *why)
{
    fprintf(stderr, "a trust for tests: %s\n", why);
    abort();
}

tt_trust *tt_test_trust(const tt_trust_opts *o)
{
    tt_trust *t = NULL;
    tutti_diag diag;
    if (tt_trust_open(o, &t, &diag))
        give_up(diag.text);
    return t;
}

tt_trust *tt_test_by_secret(const char *secret)
{
    const tt_trust_opts o = {.secret = (const uint8_t *)secret,
                             .n_secret = strlen(secret)};
    return tt_test_trust(&o);
}

/* In a folder of their own: files that change are read again. */
tt_trust *tt_test_by_cert(bool is_new_ca, long ends_s)
{
    char dir[] = "/tmp/tutti-certs-XXXXXX", cert[64], key[64], ca[64];
    if (!mkdtemp(dir))
        give_up("no folder");
    if (!(is_new_ca ? tt_test_certs(dir, ends_s)
                    : tt_test_cert_again(dir, ends_s)))
        give_up("no certificates");
    snprintf(cert, sizeof(cert), "%s/cert.pem", dir);
    snprintf(key, sizeof(key), "%s/key.pem", dir);
    snprintf(ca, sizeof(ca), "%s/ca.pem", dir);
    tt_trust *t =
        tt_test_trust(&(tt_trust_opts){.cert = cert, .key = key, .ca = ca});
    unlink(cert);
    unlink(key);
    unlink(ca);
    rmdir(dir);
    return t;
}
