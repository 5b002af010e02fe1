/* SPDX-License-Identifier: BSD-3-Clause
 * inside.h - private to links: what the thread, the listeners and the dials
 * share.
 *
 * Lock       One, the host's, for everything here. The thread holds it for a
 *            turn
 *            (events, times) but not while it sleeps, and calls nobody's code
 *            under it. Locks that are taken inside (a trust's, those of base/)
 *            are leaves. Files of a trust are read without it. A step of a
 *            handshake is under it: 0.25 ms where somebody proves a secret, and
 *            a turn has 64 at most, so who dials or takes what has come waits
 *            16 ms at worst.
 * Events     epoll hands back a pointer to a node, and the thread may have it
 *            at hand while it waits for the lock. So who frees a node marks it
 *            dead, and either waits until the turn that could have it has ended
 *            (tt_link_retire), or puts it into the grave, which the thread
 *            empties at the end of a turn.
 * Circles    guests.c dial.c: of two processes that dial each other one link
 *            stays, which the guest and the dial at each end decide together
 *            (greet.h).
 * Circles    dial.c guests.c pass.c: a guest may want to be passed on, for
 *            which somebody is dialled.
 * Next       host.c. */
#ifndef TT_LINK_INSIDE_H
#define TT_LINK_INSIDE_H

#include <pthread.h>

#include "base/clock.h"
#include "base/rng.h"
#include "link/greet.h"
#include "link/seal.h"

/* Who may wait to be accepted; the system has a limit of its own. */
#define TT_LINK_BACKLOG 4096

typedef enum tt_link_node_kind {
    TT_LINK_NODE_WAKE,
    TT_LINK_NODE_EAR,
    TT_LINK_NODE_GUEST,
    TT_LINK_NODE_DIAL,
    TT_LINK_NODE_PASS
} tt_link_node_kind;

typedef struct tt_link_node {
    tt_link_node_kind kind;
    bool is_dead;       /* no event is for it any more */
    uint64_t left_turn; /* n_turns when epoll had it last */
} tt_link_node;

/* What waits in a box: part of a guest or a dial. */
typedef struct tt_link_item {
    struct tt_link_item *next;
    bool is_guest, is_queued;
} tt_link_item;

typedef struct tt_link_passed tt_link_passed;
#define TT_LINK_SEEN 512

/* The thread, and what it looks after. */
typedef struct tt_link_host {
    pthread_mutex_t lock;
    pthread_cond_t turned; /* a turn has ended */
    pthread_t thread;
    uint64_t n_turns;
    bool stops;
    bool has_told;      /* that there are no descriptors left */
    bool has_strangers; /* came in this turn */
    bool is_behind;     /* more may wait to be accepted */
    int epoll_fd, wake_fd;
    int spare_fd; /* given up for a moment when there are no more */
    tt_link_node wake;
    tt_link_box *boxes;
    struct tt_link_guest *grave; /* freed when a turn ends */
    tt_link_dial *dial_grave;    /* likewise */
    struct tt_link_passed *passed, *passed_grave;
    uint32_t n_passed;
} tt_link_host;

struct tt_link_box {
    tt_link_box *next;
    tt_link_host *host;
    const tt_mem *mem;
    int fd;
    tt_link_item *first, **end;
    tt_link_listener *listeners;
    tt_link_dial *dials;
    struct tt_link_book *book; /* NULL: it has none */
    bool is_closing;           /* nothing more is passed on */
    /* The numbers of the last requests to pass a stream on. */
    uint64_t seen[TT_LINK_SEEN];
    uint32_t n_seen;
};

typedef struct tt_link_socket {
    tt_link_node node;
    tt_link_listener *listener;
    int fd;
    bool is_unix;
    uint64_t deaf_until_ns; /* 0: it hears */
} tt_link_socket;

typedef enum tt_guest_state {
    TT_GUEST_SILENT,  /* has not proved, or not said, who it is */
    TT_GUEST_SHAKING, /* the same, but our part of a handshake awaits its */
    TT_GUEST_REPLIED, /* has, and its last word is awaited */
    TT_GUEST_ARRIVED, /* waits in the box */
    TT_GUEST_STATES
} tt_guest_state;

typedef struct tt_link_guest {
    tt_link_node node;
    tt_link_item item;
    struct tt_link_guest *next, *before; /* of its state's list, or grave */
    tt_link_listener *listener;
    tt_guest_state state;
    uint32_t ear, version;
    tt_link_stream s;
    /* It is to prove itself; it does, or speaks plain text instead, and will be
     * sent away for it. */
    bool wants_seal, is_shaking, is_plain;
    bool is_watched; /* by epoll */
    bool is_awaited; /* the rest of its first record, or its turn */
    bool is_held;    /* until its address may begin another handshake */
    uint8_t crowd;
    char from[TT_SOCK_TEXT]; /* while it proves itself: it may hang up */
    uint64_t until_ns;
    size_t got;
    uint64_t nonce; /* that it was told, and has to repeat */
    tt_greet_word hello, taken;
} tt_link_guest;

/* Oldest first; all of a list have the same time, so it is in order of it. Who
 * comes from the same address (by IPv6: network of 64 bits) is of one crowd. */
#define TT_LINK_CROWDS 256
typedef struct tt_guest_list {
    tt_link_guest *first, *last;
    uint32_t n;
    uint16_t n_of[TT_LINK_CROWDS];
} tt_guest_list;

struct tt_link_listener {
    tt_link_listener *next;
    tt_link_box *box;
    tt_greet_terms terms;
    void *arg;
    uint32_t most_waiting; /* 0: not bounded in this way */
    tt_trust *trust;       /* NULL: none */
    bool is_bare;          /* what follows the greeting */
    bool has_warned;       /* of somebody without a proof */
    uint64_t salt;         /* so that nobody chooses his crowd */
    tt_link_card card;
    uint32_t n_ears;
    tt_link_socket *ears;
    tt_guest_list guests[TT_GUEST_STATES]; /* by state */
    /* Of certificates: until when the handshakes are paid for that each address
     * has begun. */
    uint64_t paid_ns[TT_LINK_CROWDS];
    uint64_t n_refused, n_strangers;
    tt_link_refusal refusal;
};

typedef enum tt_dial_state {
    TT_DIAL_PAUSED,     /* until until_ns */
    TT_DIAL_CONNECTING, /* until until_ns, as the next one */
    TT_DIAL_SHAKING,    /* until until_ns: the seal */
    TT_DIAL_GREETED,    /* HELLO is sent */
    TT_DIAL_HELD, /* a guest of the same pair is about to say its last word */
    TT_DIAL_YIELDING, /* the same, and the reply has come */
    TT_DIAL_OVER      /* its outcome is known */
} tt_dial_state;

struct tt_link_dial {
    tt_link_node node;
    tt_link_item item;
    tt_link_dial *next, *next_dead;
    tt_link_box *box;
    const tt_mem *mem;
    /* The stream for which it dials, by what its first one has said; NULL: it
     * is its owner's own. Nobody greets then, but those who pass it on. */
    tt_link_passed *passed;
    tt_greet_pass pass;
    tt_link_dial_opts o;
    uint32_t room;     /* of these; o.n_ways count */
    tt_link_way *ways; /* the owner's, and those by way of others */
    /* Of each: which of the owner's it stands for, and where that leads. */
    uint32_t *origins;
    tt_addr *meant;
    tt_link_outcome *outcomes;
    tt_dial_state state;
    tt_link_event_kind kind; /* of its outcome */
    tt_link_stream s;
    uint32_t at;        /* the way of this try */
    uint32_t n_secrets; /* that this way's other side did not know */
    uint32_t n_tried, round;
    uint64_t until_ns;
    uint64_t refused_since_ns; /* the last n_refused tries, in a row, were */
    uint32_t n_refused;
    uint32_t n_late; /* the last tries, in a row, had no answer */
    tt_rng rng;      /* spreads the tries of many */
    size_t got;
    uint32_t version;
    /* It speaks to the one who is to pass it on, not yet to whom it means. */
    bool is_asking;
    tt_greet_word ask, hello, reply;
};

/* ---------------------------------------------------------------- ends.c */

void tt_link_lock(tt_link_host *host);
void tt_link_unlock(tt_link_host *host);
/* The thread's next turn comes soon. [locked] */
void tt_link_wake(tt_link_host *host);
/* It is dead, and no longer watched: waits until the thread cannot have an
 * event of it. Unlocks meanwhile. [locked, not the thread] */
void tt_link_retire(tt_link_host *host, tt_link_node *node);
/* events: of epoll; 0 ends it. [locked] */
void tt_link_watch(tt_link_host *host, int fd, tt_link_node *node,
                   uint32_t events, bool is_new);
/* Into the box, or out of it. [locked] */
void tt_link_put(tt_link_box *box, tt_link_item *item);
void tt_link_unput(tt_link_box *box, tt_link_item *item);
/* HELLO, REPLY and their like; a socket that is new has room for them. */
bool tt_link_say(tt_link_stream *s, const tt_greet_word *word);
/* 1: the word is whole; 0: not yet; -1: the connection has ended, errno says
 * why
 * (0: it was closed). */
int tt_link_hear(tt_link_stream *s, tt_greet_word *word, size_t *got);
/* What a handshake waits for, of epoll. */
uint32_t tt_link_shake_events(const tt_link_stream *s);
/* Only processes of this user come by unix sockets. */
bool tt_link_is_own_user(int fd);
/* Cubic, else reno, where name is NULL or cannot be had. */
void tt_link_congestion(int fd, const char *name);

/* -------------------------------------------------------------- guests.c */

/* Returns whether there may be more. */
bool tt_link_ear_event(tt_link_socket *ear);
void tt_link_guest_event(tt_link_guest *g);
/* Those whose time is over go; returns when the next one's is. */
uint64_t tt_link_guests_check(tt_link_listener *l, uint64_t now);
/* A guest of the pair in this state; NULL: none. */
tt_link_guest *tt_link_guest_find(const tt_link_dial *d, tt_guest_state state);
/* What it has brought is the owner's; the guest is dead. */
void tt_link_guest_take(tt_link_guest *g, tt_link_event *out);
void tt_link_bury(tt_link_host *host);
/* Hears all that have come by now. [locked] */
void tt_link_guests_settle(tt_link_listener *l);
/* All of them go. [locked] */
void tt_link_guests_expel(tt_link_listener *l);

/* ---------------------------------------------------------------- card.c */

/* Of the first of the sockets that hears the interface's address; 0: none
 * does. */
uint16_t tt_link_port_of(const tt_iface *iface, const tt_link_socket *ears,
                         uint32_t n);
/* The places of a listener that was opened by o at these sockets. */
void tt_link_card_fill(tt_link_card *card, const tt_link_listen_opts *o,
                       const tt_link_socket *ears, uint32_t n);

/* ---------------------------------------------------------------- dial.c */

void tt_link_dial_event(tt_link_dial *d);
/* Goes on where it is time; returns when it is next. */
uint64_t tt_link_dial_check(tt_link_dial *d, uint64_t now);
void tt_link_dial_take(tt_link_dial *d, tt_link_event *out);

/* Do they dial each other, for the same purpose and strand? */
bool tt_link_is_pair(const tt_link_dial *d, const tt_link_guest *g);
/* The dial of this pair that has no outcome yet; NULL: none. */
tt_link_dial *tt_link_dial_find(const tt_link_guest *g);
/* A guest of the same pair has said HELLO: may it come in, and does the dial
 * wait for its last word? */
bool tt_link_dial_gives_way(tt_link_dial *d);
/* It has said its last word; or it is gone. */
void tt_link_dial_met(tt_link_dial *d);
void tt_link_dial_resume(tt_link_dial *d);

/* Dials for a stream that is passed on, in memory of the process. False: no
 * memory. [locked] */
bool tt_link_dial_onwards(tt_link_box *box, const tt_link_dial_opts *o,
                          tt_link_passed *passed, const tt_greet_pass *pass,
                          tt_link_dial **out);
/* Ends such a one; freed when a turn ends. [locked] */
void tt_link_dial_bury(tt_link_dial *d);
void tt_link_bury_dials(tt_link_host *host);

/* ---------------------------------------------------------------- pass.c */

/* What is said to be passed on to this address; but for who asks. */
tt_greet_pass tt_link_pass_to(const tt_addr *to);
/* May it be passed on? Once for each word. */
tt_link_why tt_link_pass_judge(tt_link_guest *g);
/* It has said its last word: the guest is dead. */
void tt_link_pass_begin(tt_link_guest *g);
/* Its dial has an outcome; takes the socket of s where it is DIALLED. */
void tt_link_pass_dialled(tt_link_passed *p, tt_link_event_kind kind,
                          tt_link_stream *s);
void tt_link_pass_event(tt_link_node *node);
void tt_link_bury_passed(tt_link_host *host);
/* Those of the box end, soon. [not locked] */
void tt_link_end_passed(tt_link_box *box);
void tt_link_free_book(tt_link_box *box);
/* Its ways by way of others, as books say. [locked] */
void tt_link_detour(tt_link_dial *d);

#endif
