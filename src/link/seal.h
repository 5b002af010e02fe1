/* SPDX-License-Identifier: BSD-3-Clause
 * seal.h - private to links: TLS between connect() and the first word.
 *
 * A guest or a dial puts the seal on its stream, shakes hands as the socket
 * allows, and from then on speaks through the stream. In the end the stream is
 * settled: sealed for good, or bare.
 *
 * Exact      Until a stream is settled not one byte more is read than the
 *            record that is waited for has. Nobody sends a record that was not
 *            asked for (no tickets). So a stream goes bare at a defined byte:
 *            for the dialler after the record with its last word, for the
 *            listener too.
 * Next       trust.c, proof.c, tls.c. */
#ifndef TT_LINK_SEAL_H
#define TT_LINK_SEAL_H

#include "link/link.h"

/* The first byte of a handshake. No word begins with it (TT_GREET_MAGIC). */
#define TT_SEAL_FIRST 0x16

/* ---------------------------------------------------------------- trust.c */

#define TT_SECRETS 8
#define TT_SECRET_LEAST 32
#define TT_SECRET_MOST 1024

typedef struct tt_secret {
    size_t n;
    uint8_t bytes[TT_SECRET_MOST];
} tt_secret;

typedef struct tt_secrets {
    uint32_t n;
    tt_secret all[TT_SECRETS];
} tt_secrets;

/* As trust.h says. Errors: ECONFIG, in a sentence that names the file. */
tutti_err tt_secrets_read(const char *file, tt_secrets *out, tutti_diag *diag);
/* Of a text of len bytes; `file` is for sentences. */
tutti_err tt_secrets_parse(const char *text, size_t len, const char *file,
                           tt_secrets *out, tutti_diag *diag);
/* Is it a descriptor, which may be another one's later? */
bool tt_secret_is_inherited(const char *file);
/* No trace of it is left. */
void tt_secret_wipe(void *secret, size_t len);
/* Must nobody but this user read it? ECONFIG says so. */
tutti_err tt_secret_check(int fd, const char *file, const char *what,
                          tutti_diag *diag);

/* ---------------------------------------------------------- tls.c, proof.c */

typedef enum tt_seal_step {
    TT_SEAL_DONE,  /* both have proved themselves */
    TT_SEAL_WAITS, /* for input, or for room where something is unsent */
    TT_SEAL_FAILED
} tt_seal_step;

/* Its files may have changed, so they are to be looked at before a handshake;
 * false for NULL, and while somebody does. */
bool tt_trust_is_due(tt_trust *t);
/* Looks; files may be slow. [no lock of links'] */
void tt_trust_look(tt_trust *t);
/* A first record that is longer is no dialler's. */
#define TT_SEAL_LOOK 4096
/* So many diallers' proofs are remembered. */
#define TT_SEAL_HEARD 4096
/* What somebody says first, n bytes of it: is it worth a handshake, which costs
 * fifty times this? DONE: he has a secret that is known here, or a certificate,
 * which this cannot tell; WAITS: it is not whole; FAILED: *why is OTHER_SECRET,
 * or STRANGE: somebody else has said it before. */
tt_seal_step tt_seal_look(tt_trust *t, const uint8_t *at, size_t n,
                          tt_link_why *why);
/* Puts it over an open stream; pick: which secret a dialler offers, counted
 * round. False: no memory. */
bool tt_seal_begin(tt_link_stream *s, tt_trust *t, bool is_dialler,
                   uint32_t pick);
/* FAILED: *why is OTHER_SECRET, NO_SECRET or STRANGE (it hung up: errno). The
 * other side has been told, as far as TLS tells. */
tt_seal_step tt_seal_shake(tt_link_stream *s, tt_link_why *why);
/* WAITS, for a listener: has the other side begun as one who has the secret
 * does? What it has said may be an old word of one of ours. By certificates: it
 * speaks TLS. */
bool tt_seal_is_begun(const tt_link_stream *s);
/* OpenSSL's words for what has failed last; for the log. */
const char *tt_seal_reason(const tt_link_stream *s);
/* The other side is this one: what it has shown is kept (tt_trust_shown).
 * Before it is settled. */
void tt_seal_note(const tt_link_stream *s, const tt_link_id *who);
/* The last word has been said, or heard. Bare: the seal is gone; false:
 * something was left in it. Without a seal: true. */
bool tt_seal_settle(tt_link_stream *s, bool is_bare);
/* For tests: what lies below, to put a fault there. */
tt_link_stream *tt_seal_below(tt_link_stream *s);
/* For tests: a new key after so many records, not 2^23. */
void tt_trust_rekey_after(tt_trust *t, uint64_t n_records);

#endif
