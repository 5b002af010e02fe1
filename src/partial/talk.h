/* SPDX-License-Identifier: BSD-3-Clause
 * talk.h - what workers, and the controller, say to each other.
 *
 * They greet first (link/link.h); there a worker says tt_join to the controller, and
 * tt_greeting to another worker.
 * Every message is a header of 32 bytes, little-endian, and `len` bytes.
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
 *   BIND      worker      tt_bind: bucket `who` of group `number` is begun here
 *   DATA      worker      a slice: `lane`, `slice` of that bucket; after BIND,
 *                         and, but for bucket 0, after the other side's
 *   CREDIT    worker      none: slices below `slice` of `lane` are consumed
 *   OVER      worker      none: I am done with group `number`
 *   REACH     worker      tt_reach, and a descriptor: segment `who` of my memory
 *   REACHED   worker      none: segment `who` can be read here; flags: 1 it cannot
 *   REF       worker      tt_ref: a slice, as DATA, to be read where it lies
 *   TAKEN     worker      none: slices below `slice` of `lane` were read there
 *
 * Rules: (1) magic and version come first and never move; (2) every kind has
 * its own limit of len, and nothing longer is read; (3) a payload of fixed
 * size has exactly that; (4) whoever breaks a rule loses the connection. */
#ifndef TT_PARTIAL_TALK_H
#define TT_PARTIAL_TALK_H

#include "base/mem.h"
#include "base/sock.h"
#include "link/link.h"

#define TT_TALK_MAGIC UINT32_C(0x70747474) /* "tttp" */
#define TT_TALK_VERSION 5
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
    TT_TALK_BIND = 11,
    TT_TALK_DATA,
    TT_TALK_CREDIT,
    TT_TALK_OVER,
    TT_TALK_REACH,
    TT_TALK_REACHED,
    TT_TALK_REF,
    TT_TALK_TAKEN
} tt_talk_kind;

typedef struct tt_talk {
    uint32_t magic;
    uint16_t version;
    uint8_t kind, flags;
    uint32_t len, who;
    uint64_t number;
    uint32_t lane, slice;
} tt_talk;
_Static_assert(sizeof(tt_talk) == 32, "a header is 32 bytes");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the header is little-endian; this machine needs a conversion"
#endif

#define TT_TALK_LAST 1    /* ANNOUNCE */
#define TT_TALK_CURRENT 1 /* tt_join: it has the current weights */
#define TT_TALK_AHEAD 2   /* tt_join: it computes while its group averages */
#define TT_TALK_DIFFERS 1 /* DONE, BROKEN: members reduce other buffers */
#define TT_TALK_CANNOT 1  /* REACHED */

/* In the greeting, whose job is the token. */
typedef struct tt_join {
    uint64_t host; /* equal for workers that can meet at unix sockets */
    uint64_t nest; /* names the unix socket where it listens */
    uint32_t who;  /* its number, or TT_NONE: any */
    uint32_t n;    /* workers that it thinks there are; 0: it does not */
    uint32_t site; /* equal for workers near each other; 0: not known */
    uint16_t port; /* where it listens */
    uint16_t flags;
    uint32_t n_cpus, pad; /* processors of its host; 0: not known */
} tt_join;
_Static_assert(sizeof(tt_join) == 40, "as sent");

typedef struct tt_welcome {
    uint64_t token;
    uint64_t liveness_ns; /* silence means death; 0: it does not */
    uint32_t n, incarnation;
    uint32_t is_newcomer, is_dynamic;
} tt_welcome;
_Static_assert(sizeof(tt_welcome) == 32, "as sent");

/* A member, and where it listens. */
typedef struct tt_seat {
    uint32_t worker, incarnation;
    uint64_t iteration;
    double weight;
    uint64_t host, nest;
    uint8_t ip[16]; /* IPv6, or IPv4 mapped */
    uint16_t port;
    uint16_t
        at_controller; /* it is on the controller's host: use that address */
    uint32_t pad;      /* 0 */
} tt_seat;
_Static_assert(sizeof(tt_seat) == 64, "as sent");

typedef struct tt_group_head {
    uint64_t iteration;
    uint32_t n, me;
    uint8_t kind, is_even, has_model, pad;
    uint32_t n_cpus; /* the least of the members'; 0: not known */
} tt_group_head;
_Static_assert(sizeof(tt_group_head) == 24, "as sent");

typedef struct tt_greeting {
    uint64_t token;
    uint32_t from, from_incarnation, to, to_incarnation;
} tt_greeting;
_Static_assert(sizeof(tt_greeting) == 24, "as sent");

typedef struct tt_bind {
    uint64_t fingerprint, count;
    uint32_t type, pad;
} tt_bind;
_Static_assert(sizeof(tt_bind) == 24, "as sent");

/* A segment of this worker's memory (base/regions.h), and where its board is
 * (views.c): in a segment that came before, or in this one. */
typedef struct tt_reach {
    uint64_t bytes, board;
    uint32_t board_segment, pad;
} tt_reach;
_Static_assert(sizeof(tt_reach) == 24, "as sent");

typedef struct tt_ref {
    uint64_t offset, len;
    uint64_t epoch; /* what the board shows as long as it may be read */
    uint32_t segment, pad;
} tt_ref;
_Static_assert(sizeof(tt_ref) == 32, "as sent");

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

void tt_pipe_open(tt_pipe *p, const tt_mem *mem, int fd);
void tt_pipe_close(tt_pipe *p);
/* Appends; a pipe that nobody empties, or that memory fails, is broken. */
void tt_pipe_put(tt_pipe *p, const tt_talk *head, const void *payload);
/* Writes what it can; true: nothing is left. */
bool tt_pipe_flush(tt_pipe *p);
/* Reads what is there. */
void tt_pipe_fill(tt_pipe *p);
/* The next message, and its payload until the next call here; false: there is
 * none. One of more than most_len, or nonsense, breaks the pipe. */
bool tt_pipe_next(tt_pipe *p, uint64_t most_len, tt_talk *head,
                  const unsigned char **payload);

/* ---------------------------------------------------------------- places -- */

/* A number for this host that workers which can meet here share. */
uint64_t tt_place_host(void);
/* The unix socket that `nest` names. */
void tt_place_nest(uint64_t nest, tt_addr *out);
/* An address as 16 bytes, of a unix socket the loopback's; and back with a
 * port. */
void tt_place_ip(const tt_addr *addr, uint8_t ip[16]);
bool tt_place_addr(const uint8_t ip[16], uint16_t port, uint32_t scope,
                   tt_addr *out);
bool tt_place_is_loopback(const uint8_t ip[16]);
/* Something that nobody else has. */
uint64_t tt_place_random(void);
/* In the box: workers for this purpose, as `o` says, and by the unix socket that
 * `nest` names (0: none), which may fail: there are other ways. *why: errno where
 * o's addresses cannot be had. */
tutti_err tt_place_listen(tt_link_box *box, const tt_link_listen_opts *o,
                          uint64_t nest, tt_link_listener **out, int *why,
                          tutti_diag *diag);

#endif
