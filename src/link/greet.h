/* SPDX-License-Identifier: BSD-3-Clause
 * greet.h - private to links: the words by which two processes greet.
 *
 * A word has 128 bytes, little-endian, and nothing follows it before the last
 * one:
 *
 *   HELLO    dialler    who I am, whom I mean, what for, the listener's token
 *   REPLY    listener   come in: who I am, and the same nonce
 *   REFUSE   listener   why not; then it closes
 *   TAKEN    dialler    this is the one. From now on the bytes are the owner's
 *
 * Rules: (1) magic and the range of versions come first and never move; a word
 * of a version that nobody here speaks is looked at no further. HELLO tells the
 * range [min, max] of the dialler, REPLY the version agreed as both, REFUSE the
 * listener's range. (2) A word is whole before it is judged, and is judged in
 * the order version, purpose, job, process, token. (3) REPLY and REFUSE repeat
 * the nonce of HELLO, TAKEN repeats it again; and what REPLY has said, a nonce
 * of the listener's own, so that words that somebody has seen on the wire are
 * no use when they are said again. (4) An id that is zero means nobody in
 * particular; so does the job of a listener, but not that of a HELLO. (5) HELLO
 * with the flag ONE_WAY is the last word itself: there is no reply.
 *
 * Both dial  Let S have the smaller id of two that dial each other for the same
 *            purpose and strand, L the greater. S refuses L's HELLO while its
 *            own dial is under way (CROSSED: L tries again later). L replies to
 *            S's HELLO, and holds its own last word back until that guest has
 *            said TAKEN or is gone. Who has replied to a guest begins no dial
 *            to it before the guest has said TAKEN or is gone; and none as long
 *            as a link from it waits in the box. So at most one of the two is
 *            ever taken, and both know which, if nobody dials who has taken a
 *            link already.
 * Seal       Where there is a trust (trust.h) both prove themselves between
 *            connect() and HELLO, and words go inside TLS. Then (6) the flag
 *            BARE says that what follows the last word is plain text; both
 *            sides want that, or the answer is OTHER_SEAL. (7) Nobody hears a
 *            word of its own id. (8) To a HELLO in plain text the answer is
 *            UNPROVEN, in plain text; who has a trust believes no such answer.
 * Next       greet.c (judges words), guests.c and dial.c (say and hear
 *            them). */
#ifndef TT_LINK_GREET_H
#define TT_LINK_GREET_H

#include "link/link.h"

#define TT_GREET_MAGIC UINT32_C(0x6c747474) /* "tttl" */
#define TT_GREET_VERSION_MIN 1
#define TT_GREET_VERSION_MAX 1
/* Flags of HELLO. */
#define TT_GREET_ONE_WAY 1
#define TT_GREET_BARE 2

typedef enum tt_greet_kind {
    TT_GREET_HELLO = 1,
    TT_GREET_REPLY = 2,
    TT_GREET_REFUSE = 3,
    TT_GREET_TAKEN = 4
} tt_greet_kind;

typedef struct tt_greet_word {
    uint32_t magic;
    uint16_t version_min, version_max;
    uint8_t kind, purpose, why, flags; /* why: of REFUSE */
    uint32_t strand;
    uint64_t job, nonce;
    tt_link_id from, to;
    uint8_t token[TT_LINK_TOKEN]; /* of the listener, in HELLO; else zero */
    uint8_t said[TT_LINK_SAID];
} tt_greet_word;
_Static_assert(sizeof(tt_greet_word) == 128, "a word is 128 bytes");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a word is little-endian; this machine needs a conversion"
#endif

/* What HELLO says for TT_LINK_PASS. Its flags say BARE: what follows the last
 * word are the bytes of the two ends. */
typedef struct tt_greet_pass {
    tt_link_id first; /* who has asked first */
    uint64_t number;  /* of that one's request; not 0 */
    uint8_t ip[16];   /* where to: 4 of them for family 4 */
    uint16_t port;
    uint8_t family; /* 4 or 6 */
    uint8_t none[5];
} tt_greet_pass;
_Static_assert(sizeof(tt_greet_pass) == TT_LINK_SAID, "a link says so much");

/* What a listener asks of HELLO. */
typedef struct tt_greet_terms {
    uint32_t purposes;
    tt_link_id self;
    uint64_t job;
    bool has_token;
    uint8_t token[TT_LINK_TOKEN];
} tt_greet_terms;

/* A listener judges a word: WELL, STRANGE (no word of ours: no answer), or what
 * REFUSE tells. *version: agreed, where it is WELL; the dialler's greatest
 * where it is OTHER_VERSION. */
tt_link_why tt_greet_judge(const tt_greet_word *hello,
                           const tt_greet_terms *terms, uint32_t *version);
/* A dialler judges the answer to its HELLO: WELL, STRANGE, OTHER_PROCESS, or
 * what a REFUSE tells. */
tt_link_why tt_greet_judge_reply(const tt_greet_word *reply,
                                 const tt_greet_word *hello, uint32_t *version);
/* The listener's answer: REPLY where why is WELL, else REFUSE. */
tt_greet_word tt_greet_answer(const tt_greet_word *hello, tt_link_why why,
                              const tt_link_id *self, uint32_t version);
/* Is this the last word of the dialler that said hello, and heard the nonce? */
bool tt_greet_is_taken(const tt_greet_word *word, const tt_greet_word *hello,
                       uint64_t nonce);

#endif
