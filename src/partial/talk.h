/* SPDX-License-Identifier: BSD-3-Clause
 * talk.h - what workers and the controller say to each other.
 *
 * They greet first (link/link.h); there a worker says tt_join. What workers say
 * to each other goes by the engine's mesh. Every message is a header of 32
 * bytes, little-endian, and `len` bytes.
 *
 * A worker whose connection has dropped comes back by another one (away.c), and
 * both say again what may have been lost: the worker its card, how its last
 * group has ended, and what it has announced; the controller the group that the
 * worker has not heard of. All of that has a number or is a state, so it counts
 * once, however often it is said.
 *
 *   kind      from        payload, and what the header's fields mean
 *   WELCOME   controller  tt_welcome; who: its number
 *   REFUSE    controller  a sentence; number: -tutti_err
 *   ANNOUNCE  worker      none; number: iteration; flags: 1 its last
 *   GROUP     controller  tt_group_head, n tt_seat; number: the group
 *   DONE      worker      none, or why it broke; number: the group
 *   BROKEN    controller  a sentence; number: the group; who: by whom
 *   LEAVE     worker      none
 *   BEAT      both        none: I am there
 *   CARD      worker      tt_card, and addresses: how others connect to it;
 *                         before it announces
 *   CARD      controller  the same, of worker `who`; before a GROUP with it
 *   WAIT      controller  a sentence: for whom it waits that has announced
 *   PRINTS    worker      tt_print of each buffer, for the newcomers of its
 *                         last group; number: the group
 *   PRINTS    controller  the same, of worker `who`; flags: 1 there will be
 *                         none
 *   STANDBY   controller  a link's card (link.h), or none: how controller `who`
 *                         of the job is connected to, which may lead later
 *
 * Between the controller that leads and its standbys (lead.h):
 *   FOLLOW    leader      tt_follow, and the rule's options as text
 *   CARD      standby     its link's card
 *   RECORD    leader      number: of the record; flags: tt_record_kind; who:
 *                         the worker. JOIN, LEAVE, FORGET: its incarnation, 8
 *                         bytes, or none. GROUP: the header of the GROUP, and
 *                         its payload
 *   ACK       standby     none; number: it has all records up to this one
 *
 * term: the greatest that its sender knows (0: none, it has had no order).
 *
 * Rules: (1) magic and version come first and never move; (2) every kind has
 * its own limit of len, and nothing longer is read; (3) a payload of fixed
 * size has exactly that; (4) whoever breaks a rule loses the connection. */
#ifndef TT_PARTIAL_TALK_H
#define TT_PARTIAL_TALK_H

#include "base/mem.h"
#include "base/sock.h"
#include "link/link.h"
#include "net/net.h"

#define TT_TALK_MAGIC UINT32_C(0x70747474) /* "tttp" */
#define TT_TALK_VERSION 8
#define TT_TALK_TEXT 400

typedef enum tt_talk_kind {
    TT_TALK_WELCOME = 2,
    TT_TALK_REFUSE,
    TT_TALK_ANNOUNCE,
    TT_TALK_GROUP,
    TT_TALK_DONE,
    TT_TALK_BROKEN,
    TT_TALK_LEAVE,
    TT_TALK_BEAT,
    TT_TALK_CARD = 19,
    TT_TALK_FOLLOW,
    TT_TALK_RECORD,
    TT_TALK_ACK,
    TT_TALK_STANDBY,
    TT_TALK_WAIT,
    TT_TALK_PRINTS
} tt_talk_kind;

typedef struct tt_talk {
    uint32_t magic;
    uint16_t version;
    uint8_t kind, flags;
    uint32_t len, who;
    uint64_t number;
    uint64_t term;
} tt_talk;
_Static_assert(sizeof(tt_talk) == 32, "a header is 32 bytes");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the header is little-endian; this machine needs a conversion"
#endif

#define TT_TALK_LAST 1    /* ANNOUNCE */
#define TT_TALK_CURRENT 1 /* tt_join: it has the current weights */
#define TT_TALK_AHEAD 2   /* tt_join: it computes while its group averages */
#define TT_TALK_CHECKED 4 /* tt_join: by TUTTI_CHECK; all workers alike */
#define TT_TALK_DIFFERS 1 /* DONE, BROKEN: members reduce other buffers */
#define TT_TALK_NONE 1    /* PRINTS */
/* tt_join: it was here, and comes back. ANNOUNCE, DONE: it may have been said
 * before. */
#define TT_TALK_AGAIN 8
#define TT_TALK_STANDBY_JOINS 16 /* tt_join: a standby */

/* In the greeting, whose job is the token: the worker tells it, the controller
 * tells it nobody. */
typedef struct tt_join {
    uint64_t host; /* equal for workers of one host */
    uint32_t who;  /* its number, or TT_NONE: any */
    uint32_t n;    /* workers that it thinks there are; 0: it does not */
    uint32_t site; /* equal for workers near each other; 0: not known */
    uint16_t flags;
    uint16_t n_cpus; /* processors of its host; 0: not known */
    uint32_t term;   /* the greatest that it knows */
    /* AGAIN: how often it had come, to which controller, and the last group
     * that it has heard of. A standby: whose job it follows. */
    uint32_t incarnation;
    uint64_t origin, heard;
} tt_join;
_Static_assert(sizeof(tt_join) == TT_LINK_SAID, "as sent");

typedef struct tt_welcome {
    uint64_t origin;      /* the controller, in the ids of groups; no secret */
    uint64_t liveness_ns; /* silence means death; 0: it does not */
    uint64_t host;        /* of the controller, as in tt_join */
    uint32_t n, most;     /* workers at the start; numbers go up to most */
    uint32_t incarnation;
    uint8_t is_newcomer, is_dynamic, pad[2];
} tt_welcome;
_Static_assert(sizeof(tt_welcome) == 40, "as sent");

typedef struct tt_follow {
    uint64_t origin, liveness_ns; /* as in tt_welcome */
    uint32_t index;               /* which of the controllers it is */
    uint32_t n;                   /* workers */
} tt_follow;
_Static_assert(sizeof(tt_follow) == 24, "as sent");

/* A member. */
typedef struct tt_seat {
    uint32_t worker, incarnation;
    uint64_t iteration;
    double weight;
    uint64_t host;
} tt_seat;
_Static_assert(sizeof(tt_seat) == 32, "as sent");

typedef struct tt_group_head {
    uint64_t iteration;
    uint32_t n, me;
    uint8_t kind, is_even, has_model, pad;
    /* The least of the members': 0: not known; and as in tt_card. */
    uint32_t n_cpus, max_payload, pad_too;
} tt_group_head;
_Static_assert(sizeof(tt_group_head) == 32, "as sent");

/* Its nets: shm, tcp. */
#define TT_CARD_NETS 2
#define TT_CARD_TCP 1

/* Of a buffer: tutti_hash() of its bytes. */
typedef struct tt_print {
    uint64_t hash, bytes;
} tt_print;
#define TT_PRINTS 16384u
#define TT_PRINTS_MOST (TT_PRINTS * sizeof(tt_print))

/* What the nets' address() tells follows it, one after the other. */
typedef struct tt_card {
    tt_link_id id;               /* another one: it was started again */
    uint32_t max_payload;        /* that all its nets carry in a message */
    uint16_t lens[TT_CARD_NETS]; /* of the addresses; 0: it has none */
} tt_card;
_Static_assert(sizeof(tt_card) == 24, "as sent");
#define TT_CARD_LEAST_PAYLOAD 1024
#define TT_CARD_MOST (sizeof(tt_card) + TT_CARD_NETS * TT_NET_ADDR_MAX)
/* So many bytes are one, with its addresses. */
bool tt_card_is_sound(const void *bytes, size_t len);

tt_talk tt_talk_head(tt_talk_kind kind, uint64_t number, size_t len);
bool tt_talk_is_sound(const tt_talk *head, uint64_t most_len);

/* ------------------------------------------------------------------ pipe -- */

/* A connection to or from the controller: small messages, buffered both ways,
 * never blocking. */
typedef struct tt_pipe {
    const tt_mem *mem;
    tt_link_stream s; /* fd -1: none */
    unsigned char *in, *out;
    size_t in_cap, in_len, in_at;
    size_t out_cap, out_len, out_at;
    bool is_deaf; /* the other side has closed it; what it said may be read */
    bool is_broken;
} tt_pipe;

void tt_pipe_open(tt_pipe *p, const tt_mem *mem, tt_link_stream s);
void tt_pipe_close(tt_pipe *p);
/* Appends; a pipe that nobody empties, or that memory fails, is broken. */
void tt_pipe_put(tt_pipe *p, const tt_talk *head, const void *payload);
bool tt_pipe_has_unsent(const tt_pipe *p);
/* Writes what it can; true: nothing is left. */
bool tt_pipe_flush(tt_pipe *p);
/* Reads what is there, or a part of much: ask tt_link_pending() before a
 * sleep. */
void tt_pipe_fill(tt_pipe *p);
/* The next message, and its payload until the next call here; false: there is
 * none. One of more than most_len, or nonsense, breaks the pipe. */
bool tt_pipe_next(tt_pipe *p, uint64_t most_len, tt_talk *head,
                  const unsigned char **payload);

/* ----------------------------------------------------------------- place -- */

/* A number for this host that workers which can meet here share. */
uint64_t tt_place_host(void);

#endif
