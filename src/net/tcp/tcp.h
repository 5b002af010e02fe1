/* SPDX-License-Identifier: BSD-3-Clause
 * tcp.h - private to the TCP transport: its state, and its parts.
 *
 *   tcp.c     messages: send, flush, progress, cancel, close
 *   stream.c  the byte streams, without the socket
 *   meet.c    how a pair gets its sockets
 *   away.c    how a strand gets another one when its own is lost
 *   detour.c  and by which interface
 *   pace.c    how fast sockets have been
 *   cap.c     how much may be sent by an interface
 *   capped.c  which sockets that is about, and until when they are held
 *
 * Circles    away.c meet.c tcp.c: a socket that is lost while messages pass is
 *            met anew, and then messages pass. */
#ifndef TT_NET_TCP_H
#define TT_NET_TCP_H

#include "net/door.h"
#include "net/tcp/cap.h"
#include "net/tcp/stream.h"

#define TT_TCP_MAX_PAYLOAD (4u << 20)

struct tt_tcp_conn;

/* A rank's dial of a connection; call: 0: none. */
typedef struct tt_tcp_call {
    tt_link_id caller;
    uint64_t call;
} tt_tcp_call;

typedef struct tt_tcp_net {
    tt_net base;
    tt_door door;     /* its number: the sockets that this side would like, of
                     which the fewer count; 0: what the network needs */
    uint64_t n_calls; /* that this one has begun */
    struct tt_tcp_meeting *meetings; /* of conns that are not up */
    /* tcp.c's: all strands of a conn are open. */
    void (*on_open)(struct tt_tcp_conn *conn);
    struct tt_tcp_conn **live; /* [most_live]; the first n_live are connected */
    size_t most_live;
    size_t n_ended;
    /* By rank: the latest of each that was given up here. */
    tt_tcp_call *ended; /* [n_ended] */
    uint32_t n_live;
    uint32_t n_blocked; /* sockets that wait until they take more */
    uint32_t n_more;    /* conns that left input unread without an event */
    uint32_t n_away;    /* strands without a socket that works */
    bool has_turns;     /* some conn has several sockets */
    bool is_ending;     /* drain(): no upcalls any more, but address() */
    uint64_t looked_ns; /* at the interfaces of rails */
    uint64_t ifaces;    /* while strands are away: a hash of all, ... */
    uint64_t listed_ns; /* ... as of then */
    /* Since the last progress() flush() has made room for who was refused, or
     * called left(): progress() says so, or they would sleep. */
    bool has_news;
    /* Where there are caps: those of interfaces in use; and strands that are
     * held, the first of them until held_ns, of which timer (in fd) tells who
     * sleeps. */
    tt_tcp_cap *caps;
    uint32_t n_held, first; /* whose turn it is to be the first, of live */
    uint64_t held_ns;
    int timer;
} tt_tcp_net;

/* A strand of a rail that has left its interface. */
typedef struct tt_tcp_detour {
    bool is_off, has_told;
    bool was_down;    /* the interface here, since the rail was left */
    uint64_t back_ns; /* goes back then */
    uint64_t wait_ns,
        well_ns; /* the last wait; a short one is due after that */
} tt_tcp_detour;

/* One socket of a conn. */
typedef struct tt_tcp_strand {
    struct tt_tcp_conn *conn;
    tt_link_stream link; /* of a socket while is_open */
    bool is_open, is_blocked;
    bool is_held;    /* until the interface may send more */
    bool is_due;     /* it was held, and may try again */
    tt_tcp_cap *cap; /* of its socket's interface; NULL: none */
    bool is_shut;    /* our stream has ended */
    /* It outlives its sockets (link.h, resume): both ends say so. */
    bool lasts;
    bool has_said_end;          /* TT_TCP_END */
    bool is_away;               /* it has none that works */
    struct tt_tcp_again *again; /* NULL: does not last, or is lost: away.c */
    uint64_t owed_to;   /* of tx's stream: up to there left() may not wait */
    tt_net_pace before; /* of the sockets that it had */
    tt_tcp_detour detour;
    tt_tcp_rx rx;
    tt_tcp_tx tx;
} tt_tcp_strand;

/* A strand's turn ends with the message that brings its payloads to so many
 * bytes: the next message goes by the next strand. Both sides count alike, so
 * messages are read in the order in which they were sent, and nothing has to be
 * said. */
#define TT_TCP_TURN_BYTES (4u << 10)
#define TT_TCP_STRANDS 16

/* A message that is borrowed: the strand, and where it ends in its stream. */
typedef struct tt_tcp_lent {
    uint64_t end;
    uint32_t strand;
} tt_tcp_lent;
/* Of all that is borrowed: where there is more, left() is not put off. */
#define TT_TCP_PUT_OFF 256

typedef struct tt_tcp_conn {
    tt_conn base;
    bool is_lost;
    bool is_flushing;
    bool has_refused; /* send() did, and there was no room since */
    bool has_more;    /* input was left unread without an event */
    int broken;       /* errno of a failed send; told after all input is read */
    uint32_t n_away;  /* strands */
    uint64_t away_ns; /* when the first of them went, ... */
    int away_why;     /* ... and errno; 0: the stream ended */
    bool has_told;    /* the log says so */
    char where[TT_SOCK_TEXT];
    uint64_t call;      /* this side's; 0: it has not dialled */
    tt_tcp_call theirs; /* the other side's, where a strand came by it */
    struct tt_tcp_meeting *meeting; /* NULL: it is up, or never began */
    uint32_t n_strands, n_open;
    tt_tcp_strand *strands; /* [n_strands] */
    uint32_t to, from;      /* whose turn it is to send, to receive */
    uint32_t turn_bytes;    /* sent in this turn */
    tt_tcp_lent *lent;      /* [most_lent] a ring, the oldest first */
    uint32_t most_lent, first_lent, n_lent;
} tt_tcp_conn;

/* ----------------------------------------------------------------- tcp.c */

/* All bytes of a socket are heard of, or those of a strand that is away are not
 * any more. */
bool tt_tcp_watch(tt_tcp_strand *s);
void tt_tcp_unwatch(tt_tcp_strand *s);
/* Reads what has come; true: something has. */
bool tt_tcp_serve(tt_tcp_conn *conn);
/* The next progress() reads it, whatever epoll says. */
void tt_tcp_note_more(tt_tcp_conn *conn);
/* It is up again: what waits is sent. */
void tt_tcp_push(tt_tcp_strand *s);
/* In a sentence; or as a process that has died closes it: errno, 0 for the end
 * of the stream. */
void tt_tcp_lose(tt_tcp_conn *conn, tutti_err err, const char *text);
void tt_tcp_lose_closed(tt_tcp_conn *conn, int why);

/* ---------------------------------------------------------------- pace.c */

void tt_tcp_pace(const tt_conn *base, tt_net_pace *out);
/* The strand's socket is about to be closed: what it has sent still counts. */
void tt_tcp_keep_pace(tt_tcp_strand *s);

/* -------------------------------------------------------------- capped.c */

void tt_tcp_caps_close(tt_tcp_net *net);
/* The strand has this socket from now on. */
void tt_tcp_cap_socket(tt_tcp_strand *s, int fd);
/* How many of so many bytes it may send now; 0: it is held, where hold says
 * so. */
size_t tt_tcp_leave(tt_tcp_strand *s, size_t want, bool hold);
/* It waits for nothing any more. */
void tt_tcp_unhold(tt_tcp_strand *s);
/* When it is time: what was held is due. False: it is not. */
bool tt_tcp_release_held(tt_tcp_net *net);
/* Whoever sleeps is woken in time. */
void tt_tcp_set_timer(const tt_tcp_net *net);
void tt_tcp_clear_timer(const tt_tcp_net *net);

/* ---------------------------------------------------------------- meet.c */

/* Of a link: who calls, and the number of the call, the same for all
 * strands. */
typedef struct tt_tcp_said {
    uint32_t rank, n_strands;
    uint64_t call;
    uint8_t
        lasts; /* the strands do; only the connection's first dials say it */
    /* The strand of such a call (the caller's own, or the other's) has lost its
     * socket, and goes on by this one; the caller's number for the dial. */
    uint8_t is_again, is_own;
    uint8_t none[1];
    uint32_t n_dials;
    uint8_t rest[TT_LINK_SAID - 24];
} tt_tcp_said;
_Static_assert(sizeof(tt_tcp_said) == TT_LINK_SAID, "a link says so much");

tutti_err tt_tcp_listen(tt_tcp_net *net, tutti_diag *diag);
/* The slots. */
size_t tt_tcp_address(tt_net *net, void *buf, size_t size);
tutti_err tt_tcp_dial(tt_conn *conn, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag);
/* What has come; true: something has. */
bool tt_tcp_take_links(tt_tcp_net *net);
/* The conn is closed, or up. Idempotent. */
void tt_tcp_end_meeting(tt_tcp_conn *conn);
/* The call is known, but its conn is not up yet. */
bool tt_tcp_is_meeting(const tt_tcp_net *net, const tt_tcp_said *said,
                       const tt_link_who *who);
/* It is given up: a dial of that call that comes again is refused. */
void tt_tcp_end_call(tt_tcp_conn *conn);
/* The rank's call, or a later one, was given up here. */
bool tt_tcp_has_ended(const tt_tcp_net *net, const tt_tcp_said *said,
                      const tt_link_who *who);
/* A link of a dial that comes again, to a strand whose first link came through
 * there, but never here: its last word was lost. The strand is there then, and
 * away, or will be when the others are. False: it is not so. */
bool tt_tcp_take_late(tt_tcp_net *net, const tt_link_event *link);
/* What came of the rank's dial of this strand, which one of ours may have met,
 * was of no use: ours begins anew. */
void tt_tcp_go_past(tt_tcp_net *net, uint32_t rank, uint32_t strand);
/* What is not up will never be. */
void tt_tcp_end_meetings(tt_tcp_net *net);
/* Of a socket by which a rank is reached, as its interface is chosen: errno. */
int tt_tcp_bind_rail(const tt_tcp_conn *conn, int fd);

/* ---------------------------------------------------------------- away.c */

/* The strand has a socket, its first one: call and who has dialled are those of
 * this link. False: out of memory. */
bool tt_tcp_keep(tt_tcp_strand *s, const tt_link_event *link, uint64_t call);
/* Its socket is lost (errno; 0: the stream ended by accident): it gets another
 * one. False: that cannot be. */
bool tt_tcp_suspend(tt_tcp_strand *s, int why);
/* The slots; a part is a strand. */
uint64_t tt_tcp_renew(tt_conn *conn, uint64_t parts);
/* Strands that are away meet those of the other side again; or time is over. */
void tt_tcp_meet_again(tt_tcp_conn *conn);
void tt_tcp_look_after(tt_tcp_net *net);
/* A link of such a dial. */
void tt_tcp_take_again(tt_tcp_net *net, const tt_link_event *link);
void tt_tcp_take_redial(tt_tcp_conn *conn, const tt_link_event *link);
/* It is closed, or lost. Idempotent. */
void tt_tcp_forget(tt_tcp_strand *s);

/* -------------------------------------------------------------- detour.c */

/* The address of a socket for both families as that of its own. */
void tt_tcp_plain(tt_addr *addr);
/* Of a conn that is one of several between its ranks; NULL: it is none. */
const tt_link_hint *tt_tcp_rail(const tt_tcp_conn *conn);
/* Of a socket: does it go by the conn's rail, if that is one? */
bool tt_tcp_is_by_rail(const tt_tcp_conn *conn, int fd);
/* Its strand is away since then: may it go by other interfaces? */
bool tt_tcp_may_detour(const tt_tcp_conn *conn, uint64_t away_ns);
/* The strand has a new socket; is_ours: this side has dialled. */
void tt_tcp_note_way(tt_tcp_strand *s, bool is_ours);
/* Is the interface up, with a carrier? */
bool tt_tcp_is_running(const char *dev);
/* Its interface is_up, or not: must the strand leave it, or go back to it? */
bool tt_tcp_must_turn(tt_tcp_strand *s, bool is_up, uint64_t now_ns);

#endif
