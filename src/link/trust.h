/* SPDX-License-Identifier: BSD-3-Clause
 * trust.h - what proves who somebody is: a secret, or certificates.
 *
 * Idea       Whoever is given the same trust is one of us. Listeners and dials
 *            have it in their options (link.h): every connection by a network
 *            is then TLS 1.3 before its first word, both sides have proved
 *            themselves when it stands, and whoever cannot is sent away. There
 *            is no way back to plain text: not by an option of the other side,
 *            and not by a failure.
 * Secret     A file of text: each line is one, of 32 to 1024 printable
 *            characters without spaces, the newest first; at most 8. Lines that
 *            begin with #, and empty ones, are skipped. The characters count as
 *            they stand
 *            (`openssl rand -hex 32` makes one). The file is regular, of this
 *            user, and nobody else may read it. A listener takes all of them; a
 *            dial offers the first, and the next where that is not known. So a
 *            secret is changed without a gap: the new one goes before the old
 *            one, on one host after the other; later the old one is deleted.
 * Certs      Both sides have one that the CA has signed. A name is not asked
 *            for: the CA is the trust. It is used by who dials and who listens,
 *            so its extended key usage must name both or none. Keys that are
 *            weaker than
 *            112 bits, and signatures by SHA-1, are refused; so are keys that
 *            are encrypted.
 *            Whose certificate is in a list of the CA's (crl) is not let in any
 *            more; with a list, each CA must have one that is not out of date.
 *            Connections that stand go on.
 * Change     The files are looked at before handshakes, at most five times a
 *            second
 *            (those of /proc/self/fd/ once: the number may be another file's
 *            later). What is no good when it is read again changes nothing.
 * Put out    A member is put out while others go on. With secrets they take a
 *            fresh one that it is not told (prepare, and when all have it
 *            renew): all that was known until then counts no more, but what is
 *            new in the file later does. With certificates its own are refused.
 *            Both for as long as the trust lasts.
 * Next       link.h; trust.c (the file), proof.c, seal.h. */
#ifndef TT_LINK_TRUST_H
#define TT_LINK_TRUST_H

#include "base/err.h"

/* Counted; of any thread. */
typedef struct tt_trust tt_trust;

/* Nothing is kept of it. NULL or "": not given. */
typedef struct tt_trust_opts {
    const char *secret_file;
    /* Instead of a file: 32 to 1024 bytes, any. */
    const uint8_t *secret;
    size_t n_secret;
    const char *cert, *key, *ca; /* files, PEM; all three or none */
    const char *crl;             /* beside them; PEM */
    /* Who has proved itself sends plain text (TUTTI_ENCRYPT=0). */
    bool is_plain;
    bool is_by_openssl; /* no other library encrypts (TUTTI_IPSEC_MB=0) */
} tt_trust_opts;

/* Where nothing is given *out is NULL, and all is well. Errors: ECONFIG (in one
 * sentence: a file, its owner, its mode, its content; a secret's file beside
 * certificates; built without OpenSSL), ENOMEM. */
tutti_err tt_trust_open(const tt_trust_opts *o, tt_trust **out,
                        tutti_diag *diag);
/* One more owner. Accepts NULL. */
tt_trust *tt_trust_ref(tt_trust *t);
/* One owner less. Accepts NULL. */
void tt_trust_close(tt_trust *t);
/* How many secrets a dial may offer; 0: it shows a certificate. */
uint32_t tt_trust_secrets(tt_trust *t);
/* TUTTI_ENCRYPT=0; false for NULL. */
bool tt_trust_is_plain(const tt_trust *t);

/* A secret of so many bytes is taken from now on, too, and offered last. There
 * is one such, the last. False: there is none to be had (certificates, no
 * memory). */
#define TT_TRUST_FRESH 32
bool tt_trust_prepare(tt_trust *t, const uint8_t fresh[TT_TRUST_FRESH]);
/* It alone counts, and what its file has that is not known yet. False: there is
 * none. */
bool tt_trust_renew(tt_trust *t);

/* The SHA-256 of a certificate; or the name of a secret. */
typedef struct tt_tls_print {
    uint8_t bytes[32];
} tt_tls_print;
/* What a process has shown whose links have greeted by that id; returns how
 * many, at most `most`. */
struct tt_link_id;
size_t tt_trust_shown(tt_trust *t, const struct tt_link_id *who,
                      tt_tls_print *out, size_t most);
/* This side's own; zeros: it has none. */
void tt_trust_own(tt_trust *t, tt_tls_print *out);
/* Who shows it is let in no more. False: no memory, or 4096 are out. */
bool tt_trust_refuse(tt_trust *t, const tt_tls_print *print);
bool tt_trust_refuses(tt_trust *t, const tt_tls_print *print);

#endif
