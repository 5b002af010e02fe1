/* SPDX-License-Identifier: BSD-3-Clause
 * trust.h - what proves who somebody is: a secret, or certificates.
 *
 * Idea       Whoever is given the same trust is one of us. Listeners and dials have
 *            it in their options (link.h): every connection by a network is
 *            then TLS 1.3 before its first word, both sides have proved
 *            themselves when it stands, and whoever cannot is sent away. There
 *            is no way back to plain text: not by an option of the other side,
 *            and not by a failure.
 * Secret     A file of text: each line is one, of 32 to 1024 printable characters
 *            without spaces, the newest first; at most 8. Lines that begin with
 *            #, and empty ones, are skipped. The characters count as they stand
 *            (`openssl rand -hex 32` makes one). The file is regular, of this
 *            user, and nobody else may read it. A listener takes all of them; a
 *            dial offers the first, and the next where that is not known. So a
 *            secret is changed without a gap: the new one goes before the old
 *            one, on one host after the other; later the old one is deleted.
 * Certs      Both sides have one that the CA has signed. A name is not asked for:
 *            the CA is the trust. It is used by who dials and who listens, so
 *            its extended key usage must name both or none. Keys that are weaker than
 *            112 bits, and signatures by SHA-1, are refused; so are keys that are
 *            encrypted.
 * Change     The files are looked at before handshakes, at most five times a second
 *            (those of /proc/self/fd/ once: the number may be another file's
 *            later). What is no good when it is read again changes nothing.
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
    bool
        is_plain; /* who has proved itself sends plain text (TUTTI_ENCRYPT=0) */
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

#endif
