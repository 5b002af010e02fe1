/* SPDX-License-Identifier: BSD-3-Clause
 * net.h - the transport contract: how messages get from one process to
 * another. A transport is one row of table.c, and a folder.
 *
 * A net is a transport's state in this process for one mesh (of the ranks of a
 * communicator, or of workers); a conn is its link to one other rank. A message
 * is a fixed header (tt_msg) and a payload of m.len bytes. Messages of a conn
 * arrive whole, in the order sent, or the conn is lost.
 *
 * Credit is the engine's business: it never sends what the other side has not
 * made room for, so a transport hands every message up as soon as it has it,
 * and the engine takes it at once.
 *
 * Threads: open, and address before the first progress: the thread that makes
 * the communicator. All others: one thread at a time, the one that drives the
 * engine, under the engine's lock. Upcalls come only from inside progress() and
 * flush(), and left() from settle(); an upcall may call send(), flush() and
 * settle() on any conn, and dial(), but never close().
 *
 * Life cycle: open -> address -> (dial send flush settle progress arm cancel
 * address)*
 * -> drain -> close each conn -> fini. fini accepts a net whose open failed;
 * close accepts a conn that never connected. Both are idempotent.
 *
 * Connecting: either side dials, or both at once; then one of the two dials
 * stays, and both sides take the same one. Nobody waits meanwhile: what is not
 * up takes nothing. Strangers can neither connect nor hold up who may.
 *
 * Checked: where the settings say so a net is a layer over the transport's own,
 * which finds flipped bits (checked.c).
 *
 * Next: shm/shm.c, tcp/tcp.c; tests/support/loop.c, the smallest transport.
 */
#ifndef TT_NET_NET_H
#define TT_NET_NET_H

#include <sys/uio.h>

#include "base/regions.h"
#include "base/settings.h"
#include "link/link.h"

/* The wire header: 48 bytes, little-endian. Transports look at len only; the
 * other fields are the engine's (engine/wire.h). */
typedef struct tt_msg {
    uint16_t magic; /* TT_MSG_MAGIC */
    uint8_t kind;   /* 255: the transport's */
    uint8_t flags;
    uint32_t len;     /* bytes of payload */
    uint64_t comm;    /* which communicator of the mesh */
    uint64_t channel; /* 0: collectives; others: point to point */
    uint64_t seq;     /* the call's number in its channel */
    uint64_t fingerprint;
    uint32_t lane; /* which transfer of the pair */
    uint32_t slice;
} tt_msg;

#define TT_MSG_MAGIC 0x7474
_Static_assert(sizeof(tt_msg) == 48, "the wire header is 48 bytes");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire header is little-endian; this machine needs a conversion"
#endif

/* A payload of at most so many bytes is always copied by send(). */
#define TT_NET_INLINE 256
/* Most bytes of what address() tells. */
#define TT_NET_ADDR_MAX 1024
/* Bytes of a host's name. */
#define TT_NET_HOST 64
/* Most segments of one payload. */
#define TT_NET_IOV_MAX 64

typedef struct tt_net tt_net;
typedef struct tt_conn tt_conn;

/* Where not all ranks reach each other: who passes on to whom. */
#define TT_NET_VIAS 4
typedef struct tt_net_told {
    const void *addr; /* what a rank's address() has told */
    size_t len;       /* 0: nothing */
} tt_net_told;
typedef struct tt_net_reach {
    uint32_t n; /* ranks */
    const tt_net_told *told;
    const bool *is_apart; /* a rank is reached by way of others only */
    /* The neighbours by way of which it is, or would be, the best first, up to
     * TT_NONE. */
    const uint32_t (*by)[TT_NET_VIAS];
} tt_net_reach;

/* What the engine gives to a net: upcalls. `peer` is conn->peer. */
typedef struct tt_net_up {
    /* A header has come whose payload (len > 0) is still to come, at least in
     * part: returns where to write it (len bytes), never NULL; the memory stays
     * good until arrived() or cancel(). Called by streaming transports only;
     * one at a time per conn. */
    void *(*place)(void *peer, const tt_msg *m);
    /* A whole message has come. data: its payload, at the place given, or, if
     * none was asked for, in the transport's memory, where elements may lie,
     * and the engine's only during the call. NULL when len is 0. */
    void (*arrived)(void *peer, const tt_msg *m, const void *data);
    /* For transports that hand up many messages at a time. Who drives the nets
     * has what it waits for: what else has come may be handed up by the next
     * progress(), where it need not be kept any more. NULL: there may always
     * be more. */
    bool (*is_served)(void *peer);
    /* There is something to be sent, and room for it as far as is known, and
     * others may wait for it: a payload that takes long is better handed up by
     * the next progress(), before which it goes. NULL: it does not matter. */
    bool (*has_sends)(void *peer);
    /* The n oldest messages for which send() said TT_QUEUED have left their
     * buffers. */
    void (*left)(void *peer, uint64_t n);
    /* The conn is broken; called once; no upcall follows for this conn. */
    void (*lost)(void *peer, tutti_err why, const char *text);
    /* A rank calls, and who that is: the conn for it, not up (zeroed but for
     * its head, or the one whose dial is under way); NULL: it is not expected.
     * Once for each call, of however many links. */
    tt_conn *(*called)(tt_net *net, uint32_t rank, const tt_link_id *id);
    /* It is connected on both sides; is_up is set. */
    void (*up)(tt_conn *conn);
    /* It could not be connected, and why, in a sentence; no upcall follows for
     * this conn. */
    void (*missed)(tt_conn *conn, tutti_err why, const char *text);
    /* What the other side's address() has told (*len bytes), for a transport
     * that connects it again; the memory is good until the upcall's caller
     * returns. NULL: it is not known, or nobody cares any more. May be NULL. */
    const void *(*address)(const tt_conn *conn, size_t *len);
    /* Nothing passes, and the transport connects it again; or it is back.
     * lost() may follow. May be NULL. */
    void (*away)(void *peer, bool is_away);
} tt_net_up;

/* Head of every transport's per-process state. */
struct tt_net {
    const struct tt_net_ops *ops;
    const tt_net_up *up;
    const tt_mem *mem;
    const tt_settings *settings;
    tt_regions *regions; /* memory that peers may map; NULL: none */
    struct tt_trust
        *trust; /* who is let in (link/trust.h); borrowed by open() */
    uint32_t rank, n_ranks; /* of an open mesh, when it is made: at most */
    /* Of this process, by which others know that it was not started again;
     * none: open() makes one. */
    tt_link_id id;
    bool is_local; /* all ranks are on this host */
    /* This machine has more ranks than processors that they may use. False:
     * not known, either. */
    bool is_crowded;
    void *owner; /* the engine's, for called(); before the first progress() */
    /* [n_ranks]; NULL: none. Before progress() and dial(). */
    const tt_link_hint *hints;
    /* [n_ranks] names of their hosts, for sentences; NULL: not known;
     * likewise. */
    const char (*hosts)[TT_NET_HOST];
    /* NULL: all reach each other; likewise. */
    const tt_net_reach *reach;
    /* How many sockets fill a link, by what is known of the network, the same
     * on all ranks; likewise. 0: one. */
    uint32_t n_sockets;
    /* Before open(); good as long as the net. */
    const tt_iface_cap *caps;
    uint32_t n_caps;
    /* Set by open(): the most payload bytes of one message; and a pollable
     * descriptor that becomes readable when, after arm() returned true,
     * progress() has something to do (-1: never). */
    uint32_t max_payload;
    int fd;
};

/* Head of every transport's per-peer state. */
struct tt_conn {
    tt_net *net;
    void *peer;    /* the engine's, handed to every upcall */
    uint32_t rank; /* of the other side */
    bool is_up;    /* set by the transport when both sides agreed */
    /* Of the other side, for sentences ("pid 4711"); the transport's, good for
     * as long as the conn. NULL: its rank says all there is to say. */
    const char *where;
    tt_conn *next; /* the engine's */
};

/* What a conn has sent since it exists. */
typedef struct tt_net_pace {
    uint64_t bytes;   /* that the other side has acknowledged */
    uint64_t busy_ns; /* while something waited for that */
} tt_net_pace;

/* Buffers of one call, as one side has them or as the other side sees them. */
typedef struct tt_buffers {
    const void *in; /* NULL: not to be had */
    void *out;
    size_t bytes; /* of each */
    /* They are no memory of the host: only their number is granted, held and
     * withdrawn. */
    bool is_elsewhere;
} tt_buffers;

/* What a guest is told, by a message of the engine. */
typedef struct tt_grant {
    uint64_t number;  /* 0: nothing is granted */
    uint64_t in, out; /* the transport's; 0: not this one */
} tt_grant;

typedef enum tt_sent {
    TT_FULL,  /* no room now (or lost): nothing was taken; try again later */
    TT_LEFT,  /* taken, and the payload's memory is free already */
    TT_QUEUED /* taken; the payload's memory is borrowed until left(), which may
                 be put off until settle() */
} tt_sent;

/* Memory within reach: the other side may read the input and write the output
 * of a call until withdraw(). No slot is NULL. */
typedef struct tt_net_within {
    /* False: it cannot; in and out may be granted or not each on its own. */
    bool (*grant)(tt_conn *conn, const tt_buffers *mine, tt_grant *out);
    /* Nobody touches them any more. False: the other side does right now, for
     * some microseconds; to be asked again (with the same). Whoever is stopped
     * in the middle for a second, or is_final, is cut off from the memory, and
     * the conn is lost. */
    bool (*withdraw)(tt_conn *conn, const tt_buffers *mine, uint64_t number,
                     bool is_final);
    /* Where the other side's buffers (of out->bytes each) are here. False: that
     * makes no sense. */
    bool (*reach)(tt_conn *conn, const tt_grant *theirs, tt_buffers *out);
    /* To be called around every use; false: withdrawn, the other side's call
     * has failed. One grant of a conn at a time. */
    bool (*hold)(tt_conn *conn, uint64_t number);
    void (*release)(tt_conn *conn);
    /* The same for longer uses, by others than this thread; of several grants
     * at a time. */
    bool (*keep)(tt_conn *conn, uint64_t number);
    void (*drop)(tt_conn *conn, uint64_t number);
} tt_net_within;

/* Networks between hosts, which change while they are used. No slot is NULL. */
typedef struct tt_net_far {
    /* What conn lies on is made anew, where that may help, by the addresses of
     * now: what is away here, and these parts (bits), which the other side
     * misses; all bits: nothing has come of it for long. Returns the parts that
     * are away here, as the other side numbers them, too. */
    uint64_t (*renew)(tt_conn *conn, uint64_t parts);
    /* net->reach is set: all that this process dials goes by way of others
     * where it must, and what others dial by way of this one is passed on, as
     * long as the net is open. Errors: ENOMEM. */
    tutti_err (*pass_on)(tt_net *net);
    /* Costs a system call. */
    void (*pace)(const tt_conn *conn, tt_net_pace *out);
} tt_net_far;

typedef struct tt_net_ops {
    const char *name; /* "tcp": in settings, logs and errors */
    size_t net_size;  /* the core allocates these (tt_net_new()), zeroed, and */
    size_t conn_size; /* fills the heads except max_payload, fd and is_up */
    bool same_host;   /* works only between processes of one host */
    bool binds;       /* keeps to the interfaces of hints */
    /* It sends in clear, whatever net->trust is. */
    bool has_no_trust;
    /* TUTTI_TRANSPORTS=auto: whether this host has what the transport is for.
     * NULL: always. */
    bool (*is_wanted)(void);

    /* Opens listeners and the like. Errors: ESYS, ENET, ECONFIG, ENOMEM. */
    tutti_err (*open)(tt_net *net, tutti_diag *diag);

    /* Writes what other ranks need to reach this one, now: self-contained
     * bytes, at most size (TT_NET_INLINE or more; TT_NET_ADDR_MAX: all there is
     * to say), the most promising ways first. Returns how many. */
    size_t (*address)(tt_net *net, void *buf, size_t size);

    /* Begins to connect conn (zeroed but for its head) to the rank whose
     * address() wrote addr (untrusted); up() or missed() follow from
     * progress(), at about deadline_ns (tt_now_ns clock) at the latest. Where
     * the other side has called already, that goes on. Never blocks. Errors:
     * EPROTO, ECONFIG, ENET (it cannot be reached) with a sentence; ENOMEM:
     * nothing follows. */
    tutti_err (*dial)(tt_conn *conn, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag);

    /* Offers one message whose payload is the n_iov segments (their sum is
     * m->len <= max_payload; n_iov <= TT_NET_IOV_MAX). Never blocks. The
     * header is copied. Payloads of at most TT_NET_INLINE bytes never stay
     * borrowed (TT_FULL or TT_LEFT). A transport takes little ahead: at most
     * about 64 KiB beyond what is on its way, so that the engine's choice of
     * what goes next stays late. */
    tt_sent (*send)(tt_conn *conn, const tt_msg *m, const struct iovec *iov,
                    int n_iov);

    /* Pushes out what send() took; called once after a run of sends. NULL:
     * send() needs no flush. */
    void (*flush)(tt_conn *conn);

    /* left() is put off no more for what send() has taken so far: it comes when
     * the payloads are with the system, of those that are by now before the
     * return. A transport that may have to send them again puts it off until
     * they have come, to spare a copy: so this is for who waits for nothing
     * else. May be called from upcalls. NULL: it never is put off. */
    void (*settle)(tt_conn *conn);

    /* Moves what can be moved without blocking: receives, finishes sends,
     * notices lost conns. has_event: the descriptor was readable, or it is a
     * slow tick (about every 10 ms): look at rare events too. Returns true
     * when anything was moved. */
    bool (*progress)(tt_net *net, bool has_event);

    /* Before sleeping (on == true): from now on any event makes fd readable.
     * Returns false when something is there already: do not sleep. After the
     * sleep it is called with on == false (result ignored). */
    bool (*arm)(tt_net *net, bool on);

    /* Stops borrowing: queued payloads are copied aside and still sent (left()
     * is not called for them any more). False: the other side is reading one
     * right now; to be asked again, as of withdraw(), and until then all are
     * borrowed, and left() goes on. With drops_input the place of a
     * payload that is being read is given back too: what is still to come of
     * it is read and dropped, and arrived() is not called for it. */
    bool (*cancel)(tt_conn *conn, bool drops_input, bool is_final);

    /* The end is near: on all conns together, sends what was taken, ends the
     * streams and drops what still comes, until everything has been delivered
     * or the deadline (tt_now_ns clock) passes; and so much longer
     * (patience_ns) where the transport connects the other side again. No
     * upcalls but address(). Nothing but close and fini may follow. NULL: what
     * is sent is delivered. */
    void (*drain)(tt_net *net, uint64_t deadline_ns, uint64_t patience_ns);

    /* Sends what was taken, for at most linger_ns, then closes. The other
     * side gets everything taken, then lost(). */
    void (*close)(tt_conn *conn, uint64_t linger_ns);

    void (*fini)(tt_net *net);

    /* NULL: no memory is ever within reach. */
    const tt_net_within *within;

    /* NULL: connections are as they were made, and what address() has told at
     * first is good for ever. */
    const tt_net_far *far;
} tt_net_ops;

/* A copy of *as in new memory of as->mem, as large as its ops, which are a
 * row's, say; with as->settings->check it is a layer over that row, and has ops
 * of its own. To be opened. NULL: out of memory. */
tt_net *tt_net_new(const tt_net *as);
/* Its fini, and its memory. Accepts NULL. */
void tt_net_drop(tt_net *net);

/* Who is at the other side, for sentences: "rank 3 (host b, pid 4711)". Returns
 * text. */
#define TT_CONN_TEXT 192
const char *tt_conn_text(const tt_conn *conn, char text[TT_CONN_TEXT]);

extern const tt_net_ops *const tt_transports[]; /* ends with NULL */
const tt_net_ops *tt_transport_find(const char *name);
/* What is missing where a known transport has no row; NULL: nothing is, or the
 * name is not known. */
const char *tt_transport_lack(const char *name);

/* The most payload of a message where links may be slow and messages are passed
 * on (n ranks): who does that waits until one is whole. Not what rings take
 * that are only long because few ranks have them. */
uint32_t tt_net_most_passed_on(const tt_net *net, uint32_t n);

#endif
