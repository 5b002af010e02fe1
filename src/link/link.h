/* SPDX-License-Identifier: BSD-3-Clause
 * link.h - one way in: listen, dial, greet, and the byte stream that follows.
 *
 * Idea       One thread per process owns every socket that is not a connection
 *            yet: listeners, guests, dials, handshakes. It never calls anybody.
 *            A finished link (a descriptor, who is there, what for) goes into
 *            the box of whoever asked for it; the box has a descriptor that
 *            fits any poll loop. So no function here waits for the caller's
 *            locks, and all of them may be called under any lock.
 * One way    Who connects passes the same steps, in this order:
 *              1  the address is one that was chosen to listen at; at a unix
 *                 socket the kernel says that it is the same user
 *              2  there is a place: guests are bounded, and the one that has
 *                 been silent for longest goes when all places are taken. A
 *                 spare descriptor is kept for the time when none are left
 *              3  where there is a trust (trust.h) the guest proves itself, and
 *                 all that follows is sealed (seal.h); not at unix sockets
 *              4  greet.h's word, of fixed size: version, purpose, job, who to
 *                 whom, token. Nothing is allocated by a size that it tells
 *              5  the reply, and the dialler's last word: this is the one
 *            Until step 5 is done nobody hears of a guest, but for a count of
 *            those sent away. A wrong word is refused, logged with its address,
 *            and never an error.
 * Both dial  Of two dials between the same two processes, for one purpose and
 *            strand, the one from the smaller id stays, before any message:
 *            see greet.h.
 * Passed on  Where only neighbours reach each other a way (tt_link_way) names
 *            one that passes the stream on: see pass.c.
 * Fork       Every descriptor is watched (base/fork.h) from its first moment to
 *            when its owner closes it by tt_fork_close(). A forked child calls
 *            nothing here.
 * Next       greet.h (the words), host.c (the thread), listen.c, guests.c,
 *            dial.c, pass.c, card.c and link_ways.c (addresses),
 *            link_stream.c. */
#ifndef TT_LINK_LINK_H
#define TT_LINK_LINK_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "base/ifaces.h"
#include "base/mem.h"
#include "link/trust.h"

/* ---------------------------------------------------------------- words -- */

/* What a link is for; told in the greeting, so numbers are pinned. */
typedef enum tt_link_purpose {
    TT_LINK_NONE = 0,
    TT_LINK_RENDEZVOUS = 1, /* a rank to rank 0 */
    TT_LINK_JOIN = 2,       /* who comes later, to a member */
    TT_LINK_TCP = 3,        /* a strand of a pair */
    TT_LINK_SHM = 4,        /* a unix link, over which memory is passed */
    TT_LINK_UCX = 5,        /* of a pair that is to speak UCX */
    TT_LINK_CONTROLLER = 6, /* a worker to the controller */
    /* 7 was a worker's to another */
    TT_LINK_PROBE = 8,  /* a try or a flow of the probe */
    TT_LINK_STATUS = 9, /* who looks on, on the same host */
    TT_LINK_PASS = 10,  /* to somebody else: what follows is passed on */
    TT_LINK_PURPOSES
} tt_link_purpose;
#define TT_LINK_FOR(purpose) (1u << (purpose))

/* A process (or, in tests, a rank of one): random; a process that was started
 * again is another one. All zero: nobody in particular. */
typedef struct tt_link_id {
    uint8_t bytes[16];
} tt_link_id;
/* From the system; ESYS where it has none. */
tutti_err tt_link_id_make(tt_link_id *out, tutti_diag *diag);
int tt_link_id_compare(const tt_link_id *a, const tt_link_id *b);
bool tt_link_id_is_none(const tt_link_id *id);

/* Why somebody was sent away, or a way did not work. Those up to _NO_WAY are
 * told by the other side, so numbers are pinned. */
typedef enum tt_link_why {
    TT_LINK_WELL = 0,
    TT_LINK_OTHER_VERSION = 1, /* no version in common */
    TT_LINK_OTHER_PURPOSE = 2, /* nobody there serves it (any more) */
    TT_LINK_OTHER_JOB = 3,
    TT_LINK_OTHER_PROCESS = 4, /* it was started again, or is somebody else */
    TT_LINK_OTHER_TOKEN = 5,
    TT_LINK_CROSSED = 6,    /* the other side's own dial comes: wait for it */
    TT_LINK_FULL = 7,       /* too many links wait to be taken: try again */
    TT_LINK_UNPROVEN = 8,   /* in plain text: we have not proved who we are */
    TT_LINK_OTHER_SEAL = 9, /* one side wants it bare, the other does not */
    TT_LINK_NO_WAY = 10,    /* it passes nothing on there, or has tried */
    TT_LINK_REFUSED = 64,   /* the system says so; err has errno */
    TT_LINK_SILENT,         /* no answer to the first packet: an outage */
    TT_LINK_UNGREETED,      /* connected, but nobody answers: it is frozen */
    TT_LINK_STRANGE,        /* something else answers, or hangs up */
    TT_LINK_OTHER_USER,     /* of a unix socket */
    TT_LINK_OTHER_SECRET,   /* one side does not take the other's proof */
    TT_LINK_NO_SECRET       /* it does not prove who it is */
} tt_link_why;
/* "it belongs to another job" */
const char *tt_link_why_text(tt_link_why why);
/* One side has no secret, or another one: who dials again will not fare
 * better. */
static inline bool tt_link_is_unproven(tt_link_why why)
{
    return why == TT_LINK_UNPROVEN || why == TT_LINK_OTHER_SECRET ||
           why == TT_LINK_NO_SECRET || why == TT_LINK_OTHER_SEAL;
}

#define TT_LINK_SAID 48 /* bytes that a purpose may say in the greeting */
#define TT_LINK_TOKEN 16

/* The other side of a link, as it has greeted. */
typedef struct tt_link_who {
    tt_link_purpose purpose;
    uint32_t version; /* agreed */
    uint32_t strand;  /* which of several links for this purpose */
    tt_link_id id;
    uint8_t said[TT_LINK_SAID]; /* the dialler's word; untrusted */
} tt_link_who;

/* ------------------------------------------------------------------ box -- */

/* Where finished links wait for their owner. The link thread is made with the
 * first box of the process and goes with the last; it blocks all signals. */
typedef struct tt_link_box tt_link_box;
typedef struct tt_link_listener tt_link_listener;
typedef struct tt_link_dial tt_link_dial;

typedef enum tt_link_event_kind {
    TT_LINK_ARRIVED, /* somebody has dialled one of the box's listeners */
    TT_LINK_DIALLED, /* a dial of the box's has come through */
    TT_LINK_MET,     /* the other side's dial was the one that stays; its link
                        has arrived or will be next; it has no stream */
    TT_LINK_FAILED   /* a dial has not; no stream either */
} tt_link_event_kind;

/* The bytes of a link: the socket itself, or a layer over it (see the end). */
typedef struct tt_link_stream {
    int fd;                            /* -1: closed */
    const struct tt_link_layer *layer; /* NULL: the socket itself */
    void *state;                       /* the layer's */
    /* tt_link_write_all() and tt_link_read_all() end soon when it is true.
     * NULL: never. */
    const atomic_bool *is_off;
    /* What is sent now goes on at once: the socket itself need not hurry. */
    bool goes_on;
    /* The memory of what is sent now stays as it is: see tt_resume_lent(). */
    bool lends;
} tt_link_stream;

/* What comes into a box. */
typedef struct tt_link_event {
    tt_link_event_kind kind;
    /* The taker's; its socket is non-blocking, close-on-exec and watched. It
     * has a layer where there is a trust, and neither side wants it bare. */
    tt_link_stream stream;
    void *arg;          /* of the dial, or of the listener */
    tt_link_dial *dial; /* its outcome; it still wants tt_link_dial_end() */
    tt_link_listener *listener;
    uint32_t way; /* DIALLED: which of the ways has worked */
    bool is_unix; /* descriptors can be passed over it (base/fdpass.h) */
    tt_link_who who;
} tt_link_event;

/* mem stays good until it is closed. Errors: ENOMEM, ESYS (descriptors, no
 * thread). [any thread] */
tutti_err tt_link_box_open(const tt_mem *mem, tt_link_box **out,
                           tutti_diag *diag);
/* Readable as long as something waits; for poll and epoll only. */
int tt_link_box_fd(const tt_link_box *box);
/* The oldest that waits; false: nothing does. Never blocks. */
bool tt_link_box_take(tt_link_box *box, tt_link_event *out);
/* Waits until something does; false: the deadline (tt_now_ns) has passed. */
bool tt_link_box_wait(tt_link_box *box, uint64_t deadline_ns);
/* Whoever has dialled, and said all that it has to say, is in the box when it
 * returns, or the listener's most_waiting of them. */
void tt_link_box_settle(tt_link_box *box);
/* Ends its dials, closes its listeners and what nobody has taken. Accepts
 * NULL. [any thread] */
void tt_link_box_close(tt_link_box *box);

/* --------------------------------------------------------------- listen -- */

/* A socket to listen at. */
typedef struct tt_link_ear {
    tt_addr at;      /* port 0: any, or of the range */
    const char *dev; /* hears this interface only, where the system lets us
                        bind to it; NULL: all. Borrowed for the call */
} tt_link_ear;

typedef struct tt_link_listen_opts {
    uint32_t purposes; /* TT_LINK_FOR(..) | ..; all others are refused */
    /* Who listens; none (all zero): whoever dials cannot mean somebody else. */
    tt_link_id self;
    uint64_t job; /* the dialler must name it; 0: every job's, or none */
    /* The dialler must know it; has_token false: it need not. */
    bool has_token;
    uint8_t token[TT_LINK_TOKEN];
    /* Who comes by a network proves itself by it, and so does this side; NULL:
     * nobody has to. Unix sockets need none: the kernel tells the user. */
    tt_trust *trust;
    /* After the greeting the bytes are the socket's own: nothing is sealed any
     * more
     * (measurements). Both sides must say so. */
    bool is_bare;
    void *arg;

    /* Where. (1) `fd` > 0: this socket, which listens already; it is copied.
     * (2) n_ears > 0: there, and nowhere else. (3) is_nest: at a unix socket of
     * an abstract name that the card tells. (4) else: loopback where is_local,
     * all addresses where interfaces allow every one, else those that they
     * allow. */
    int fd;
    const tt_link_ear *ears; /* borrowed for the call */
    uint32_t n_ears;
    bool is_nest, is_packets; /* unix: borders of messages are kept */
    bool is_local;            /* all who may come are on this host */
    const char *interfaces;   /* TUTTI_SOCKET_IFNAME's text; NULL: "" */
    const char *ports;        /* TUTTI_PORT_RANGE's text; NULL: "" */
    const char *congestion;   /* NULL: cubic, else reno (base/sock.h) */
    /* Of those that have arrived and were not taken: 0: 1024, and more are told
     * to come again; else so many, and more wait in the system's queue. */
    uint32_t most_waiting;
} tt_link_listen_opts;

/* From now on it passes streams on, to the hosts of the box's book (below). */
void tt_link_listener_pass(tt_link_listener *listener);

/* At most so many sockets of one listener. */
#define TT_LINK_EARS 160

/* Listens from now on. Errors: ESYS where nothing could be bound, with errno in
 * *why (may be NULL; the caller may know a better sentence), ECONFIG (no
 * interface is allowed, or a range of ports that makes no sense), ENOMEM. */
tutti_err tt_link_listen(tt_link_box *box, const tt_link_listen_opts *o,
                         tt_link_listener **out, int *why, tutti_diag *diag);
/* After it nobody arrives there any more; who had, and was not taken, is
 * closed. Accepts NULL. */
void tt_link_listener_close(tt_link_listener *listener);
/* The host's addresses may have changed: it hears those that interfaces allow
 * as well, and the card tells the ones of now. Of a listener that chose its
 * ears by interfaces (NULL: loopback alone). What cannot be heard is left
 * out. */
void tt_link_listener_look(tt_link_listener *listener, const char *interfaces);
/* The port of ear i; 0: it has none. */
uint16_t tt_link_listener_port(const tt_link_listener *listener, uint32_t ear);
uint32_t tt_link_listener_ears(const tt_link_listener *listener);

/* Who was sent away last. Returns how many were since it was opened. Strangers
 * that did not speak our language, or did not prove themselves, are counted in
 * *n_strangers (may be NULL) and never told here. */
typedef struct tt_link_refusal {
    tt_link_why why;
    uint32_t version; /* OTHER_VERSION: the greatest that it speaks */
    char from[TT_SOCK_TEXT];
} tt_link_refusal;
uint64_t tt_link_listener_refusal(tt_link_listener *listener,
                                  tt_link_refusal *last, uint64_t *n_strangers);

/* A listening socket that is handed to somebody else (another process, or
 * tt_link_listen_opts.fd later); or -errno. Not watched. */
int tt_link_bind(const tt_addr *at, int backlog);
/* Who has come to it, or -errno; never blocks. For those who answer guests
 * themselves. */
int tt_link_accept(int listener, tt_addr *from);

/* ----------------------------------------------------------------- card -- */

#define TT_LINK_PLACES 32

/* One address of a process. */
typedef struct tt_link_place {
    uint8_t family; /* 4 or 6 */
    uint8_t order;  /* tt_iface_order */
    uint16_t port;
    uint32_t mbit;  /* 0: not known */
    uint32_t dev;   /* tt_link_dev() of the interface's name */
    uint8_t ip[16]; /* 4 of them for family 4 */
} tt_link_place;
_Static_assert(sizeof(tt_link_place) == 28, "as sent");

/* Where a process can be reached, by whom: what it hands out, cut after
 * n_places. Little-endian. */
typedef struct tt_link_card {
    uint16_t version, n_places;
    uint32_t uid;
    tt_link_id id;
    uint8_t token[TT_LINK_TOKEN];
    uint8_t boot_id[16]; /* loopback, unix: equal boot_id and netns only */
    uint64_t netns;
    uint64_t nest; /* of the unix socket; 0: it has none */
    tt_link_place places[TT_LINK_PLACES];
} tt_link_card;
#define TT_LINK_CARD_HEAD offsetof(tt_link_card, places)
_Static_assert(TT_LINK_CARD_HEAD == 72, "as sent");

/* The listener's own, as its opts said. */
void tt_link_card_of(const tt_link_listener *listener, tt_link_card *out);
size_t tt_link_card_bytes(const tt_link_card *card);
/* Reads bytes from outside; false when they make no sense. What follows the
 * card is the caller's: it gets how many bytes the card had. */
bool tt_link_card_read(tt_link_card *card, const void *bytes, size_t len,
                       size_t *used);
/* Equal boot id and network namespace; and user. */
bool tt_link_card_is_near(const tt_link_card *a, const tt_link_card *b);
/* The families of those addresses that lead further than to this host or along
 * one cable (neither loopback nor link-local). */
enum { TT_LINK_V4 = 1, TT_LINK_V6 = 2 };
unsigned tt_link_card_families(const tt_link_card *card);
/* The unix socket of a card. */
void tt_link_card_nest(const tt_link_card *card, tt_addr *out);
uint32_t tt_link_dev(const char *name);

/* ----------------------------------------------------------------- ways -- */

/* One way to try. */
typedef struct tt_link_way {
    tt_addr to, from; /* from.len 0: the kernel chooses */
    uint32_t cost;    /* the order of tries */
    bool is_routed;   /* by others */
    bool is_guess; /* nothing says that the peer is on this interface's link */
    bool is_bound; /* it goes by dev whatever the routes say (a rail); kernels
                      before 5.7 let only root do that, and it is no error */
    char dev[TT_IFACE_NAME]; /* "" where the kernel chooses */
    /* It leads to somebody else, of this id and token, who passes the stream
     * on. */
    bool is_via;
    tt_link_id via;
    uint8_t via_token[TT_LINK_TOKEN];
} tt_link_way;
#define TT_LINK_WAYS 48

/* What the dialler knows of its own host. */
typedef struct tt_link_here {
    const tt_link_card *card;
    const char *interfaces; /* TUTTI_SOCKET_IFNAME's text */
    const tt_iface *ifaces; /* all, allowed or not */
    size_t n_ifaces;
} tt_link_here;

/* Where the network is known and names interfaces: those to use, here and there
 * (NULL: any), and whether hosts forward between the two, so that no network of
 * this host is the peer's as well. */
typedef struct tt_link_hint {
    const char *dev, *far_dev;
    bool is_forwarded;
    bool is_rail; /* one of several links: it must not go elsewhere */
} tt_link_hint;

/* The ways to `peer` that are worth a try, best first, not by its unix socket;
 * hint may be NULL. Returns how many. */
size_t tt_link_ways(const tt_link_here *here, const tt_link_card *peer,
                    const tt_link_hint *hint, tt_link_way out[TT_LINK_WAYS]);
/* The way of another strand of a pair whose first one went ways[first]: over
 * the networks that are as good in turn. */
uint32_t tt_link_way_of(const tt_link_way *ways, uint32_t n, uint32_t first,
                        uint32_t strand);

/* ----------------------------------------------------------------- book -- */

/* A host to which streams are passed on, and which is perhaps reached by way of
 * others only (pass.c). */
typedef struct tt_link_far {
    const tt_addr *at; /* its addresses; ports do not count */
    uint32_t n_at;
    /* Straight, or by way of others (is_via), the best first; at most
     * TT_LINK_PASSES count of each. Ports of straight ones do not count. */
    const tt_link_way *ways;
    uint32_t n_ways;
    /* The straight ways are enough, but for a stream that has been there before
     * (is_again): something between may be out. */
    bool is_near;
    uint16_t port; /* no other is passed on to; 0: any is */
} tt_link_far;
#define TT_LINK_PASSES 16
/* The hosts that the box knows, instead of those of before; all is copied. Its
 * dials, and those of the process's boxes that have no book, go by way of
 * others where the book says so: behind the straight ways, and in their place
 * where the host has none. But not those of the probe, which measures. Errors:
 * ENOMEM, and nothing changes. */
tutti_err tt_link_book_set(tt_link_box *box, const tt_link_far *list,
                           uint32_t n);

/* ----------------------------------------------------------------- dial -- */

typedef struct tt_link_dial_opts {
    tt_link_purpose purpose;
    uint32_t strand;
    tt_link_id self;              /* who dials */
    tt_link_id to;                /* all zero: whoever listens there */
    uint64_t job;                 /* 0: none */
    uint8_t token[TT_LINK_TOKEN]; /* the listener's */
    uint8_t said[TT_LINK_SAID];
    tt_trust *trust; /* as the listener's */
    bool is_bare;    /* as the listener's */
    void *arg;
    const tt_link_way *ways; /* copied */
    uint32_t n_ways, first;  /* the first one to try */
    bool is_packets;         /* as the listener's; unix only */
    /* Nobody waits for a reply: the link is finished as soon as the word has
     * been sent (the probe: what the kernel acknowledges is what counts). */
    bool is_one_way;
    const char *congestion; /* a constant; NULL: cubic, else reno */
    uint64_t deadline_ns;   /* tt_now_ns clock */
    /* Each way has so long to connect, twice that in the next round and so on,
     * at most 32 times (0: 100 ms), and so much more to answer (0: 1.5 s),
     * twice that after a try without an answer and so on, at most 8 times. */
    uint64_t try_ns, answer_ns;
    uint64_t most_try_ns; /* 0: 32 times try_ns */
    /* A dial all of whose ways have been refused for so long fails before its
     * deadline (0: never). Silence is waited for. */
    uint64_t give_up_ns;
    /* The first way has led there before: where nobody listens there any more
     * the dial fails at once, and only there stops_at counts. */
    bool is_known;
    bool is_again;     /* for a stream that has been there before */
    uint32_t n_rounds; /* then it fails; 0: until the deadline */
    uint32_t stops_at; /* 1u << why: such an answer ends it at once (only
                           what the other side tells) */
} tt_link_dial_opts;

/* Dials, in the background; the outcome comes into the box. Errors: ENOMEM;
 * EINVAL where there is no way. */
tutti_err tt_link_dial_begin(tt_link_box *box, const tt_link_dial_opts *o,
                             tt_link_dial **out, tutti_diag *diag);
/* Ends it, in whatever state: what it has opened is closed, what waits in the
 * box is gone. Every dial is ended once, also after its outcome. Accepts
 * NULL. */
void tt_link_dial_end(tt_link_dial *dial);

/* How way i has ended last: for sentences. */
typedef struct tt_link_outcome {
    tt_link_why why;  /* WELL: it was not tried */
    int err;          /* errno; 0: none. STRANGE: it hung up; 0: it said
                         something else */
    uint32_t version; /* OTHER_VERSION: the greatest of the other side */
} tt_link_outcome;
tt_link_outcome tt_link_dial_outcome(const tt_link_dial *dial, uint32_t way);
const char *tt_link_outcome_text(const tt_link_outcome *o);
/* "10.0.0.5:4000 (Connection refused), 10.9.0.5:4000 (no answer) and 2 more":
 * what was tried in vain, cut to size. */
void tt_link_tries(const tt_link_dial *dial, char *out, size_t size);

/* --------------------------------------------------------------- stream -- */

/* A layer comes between a stream and its owner: the seal (TLS), or a fault
 * (tests). What a frame is, the owner says. Not locked. A layer may lie on
 * another one: it keeps the stream as it was, and calls that. */

/* All as the system calls: a count, or -1 and errno. send: less than was given,
 * and EAGAIN, mean that the socket is full, so a poll tells when it is not.
 * recv: EAGAIN means that nothing is there, but for what is pending. */
typedef struct tt_link_layer {
    ssize_t (*send)(tt_link_stream *s, const struct iovec *iov, int n_iov);
    ssize_t (*recv)(tt_link_stream *s, const struct iovec *iov, int n_iov);
    size_t (*pending)(const tt_link_stream *s);
    size_t (*unsent)(const tt_link_stream *s);
    bool (*end)(tt_link_stream *s);   /* all but the shutdown() itself */
    void (*close)(tt_link_stream *s); /* all but the descriptor */
} tt_link_layer;

void tt_link_stream_open(tt_link_stream *s, int fd); /* takes fd */
/* Bytes taken, 0 for 0 bytes only; -1 and errno: EAGAIN when none could be. No
 * signal. */
ssize_t tt_link_send(tt_link_stream *s, const struct iovec *iov, int n_iov);
/* Bytes read; 0: the other side has ended its stream; -1 and errno. */
ssize_t tt_link_recv(tt_link_stream *s, const struct iovec *iov, int n_iov);
/* Bytes that have been read from the socket but not handed out: a poll does not
 * tell of them, so ask before sleeping. */
static inline size_t tt_link_pending(const tt_link_stream *s)
{
    return s->layer ? s->layer->pending(s) : 0;
}
/* Bytes that send() has taken, but the socket has not: poll for POLLOUT, and
 * then send again, if need be nothing (n_iov 0). */
static inline size_t tt_link_unsent(const tt_link_stream *s)
{
    return s->layer ? s->layer->unsent(s) : 0;
}
/* All of len bytes, waiting for it: 0, or errno (ETIMEDOUT at the deadline;
 * EPIPE when the other side has ended its stream; ECANCELED: is_off). */
int tt_link_write_all(tt_link_stream *s, const void *buf, size_t len,
                      uint64_t deadline_ns);
int tt_link_read_all(tt_link_stream *s, void *buf, size_t len,
                     uint64_t deadline_ns);
/* Nothing more will be sent: the other side reads what was, and then the end.
 * False: what is unsent must go first; again then. */
bool tt_link_end(tt_link_stream *s);
void tt_link_stream_close(tt_link_stream *s);
/* tt_errno_text(), but for what layers say: EBADMSG, EACCES (the seal), ESTALE,
 * ENOLINK (resume). */
const char *tt_link_error_text(int err);

/* --------------------------------------------------------------- resume -- */

/* A layer by which a stream goes on over another socket when its own is lost:
 * no byte is lost, and none comes twice. Both ends have it, from the first byte
 * on. See resume.c. */
typedef enum tt_resume_state {
    TT_RESUME_ON,
    TT_RESUME_CUT,     /* without a socket: send and recv say EAGAIN */
    TT_RESUME_MEETING, /* likewise: the ends have not agreed where to go on */
    TT_RESUME_OVER     /* it cannot go on: errno */
} tt_resume_state;

/* Over a stream by which nothing has passed, or the layer that it has. It keeps
 * at most so many bytes of what was sent. False: out of memory. */
bool tt_resume_begin(tt_link_stream *s, const tt_mem *mem, size_t most);
/* What is acknowledged may be on its way all the same, as somebody passes it
 * on: as much as may be is kept, always. */
void tt_resume_distrust(tt_link_stream *s);
/* Gives the socket up (s->fd is -1); what has come by it is still read. The
 * other end sees the end, or a reset. False: it is over (out of memory). */
bool tt_resume_cut(tt_link_stream *s);
/* Takes another socket between the two ends, with the layers that it has. What
 * has been cut only. */
void tt_resume_join(tt_link_stream *s, tt_link_stream *fresh);
/* Meets, as far as the socket lets it. 0: it is on, and unsent() tells what
 * goes first. EAGAIN: not yet. Else errno: over, or the new socket is lost,
 * too. */
int tt_resume_step(tt_link_stream *s);
tt_resume_state tt_resume_is(const tt_link_stream *s);
/* Of the bytes that were sent with s->lends: the memory of the last so many may
 * still be read, and stays as it is until it is known that they have come, or
 * until tt_resume_settle(). 0 bytes: none. */
size_t tt_resume_lent(const tt_link_stream *s);
/* Nothing is lent any more: what may not have come is copied. offers:
 * yields the processor once before, as the reader may wait for it. Other
 * threads of this process wait for the engine meanwhile. */
void tt_resume_settle(tt_link_stream *s, bool offers);
/* Without a socket: not all of what was sent is known to have come. */
bool tt_resume_owes(const tt_link_stream *s);
/* Answers one who wants to go on with a stream that is not known here; closes
 * it. */
void tt_resume_refuse(tt_link_stream *fresh);

#endif
