/* SPDX-License-Identifier: BSD-3-Clause
 * ucx.h - private to the UCX transport: its state, and its parts.
 *
 *   ucx.c     the transport: progress, cancel, drain, close
 *   meet.c    how two processes meet, over a link, and what they say there
 *   recv.c    what comes
 *   send.c    what goes
 *   worker.c  UCX is started and ended
 *   lib.c     the library itself: found at run time, kept quiet; RDMA devices
 *
 * Circles    meet.c recv.c send.c ucx.c worker.c: the transport's slots are in
 *            all of them, and each may find that a connection has failed. */
#ifndef TT_NET_UCX_H
#define TT_NET_UCX_H

#if TT_HAVE_UCX

/* Its headers are not as clean as ours must be. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>
#pragma GCC diagnostic pop

#include "net/door.h"

/* --------------------------------------------------------------- library -- */

/* What we call of it. */
#define TT_UCX_CALLS(X)               \
    X(ucp_config_read)                \
    X(ucp_config_modify)              \
    X(ucp_config_release)             \
    X(ucp_init_version)               \
    X(ucp_cleanup)                    \
    X(ucp_worker_create)              \
    X(ucp_worker_destroy)             \
    X(ucp_worker_query)               \
    X(ucp_worker_release_address)     \
    X(ucp_worker_get_efd)             \
    X(ucp_worker_arm)                 \
    X(ucp_worker_progress)            \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create)                  \
    X(ucp_ep_close_nbx)               \
    X(ucp_am_send_nbx)                \
    X(ucp_am_recv_data_nbx)           \
    X(ucp_am_data_release)            \
    X(ucp_request_free)               \
    X(ucs_status_string)              \
    X(ucs_log_push_handler)           \
    X(ucs_log_pop_handler)

typedef struct tt_ucx_api {
#define TT_X(name) TT_TYPEOF(name) * name;
    TT_UCX_CALLS(TT_X)
#undef TT_X
} tt_ucx_api;

/* Loads the library when it is first wanted; NULL with a sentence when it is
 * not there. Each tt_ucx_take() that gave one is followed by a
 * tt_ucx_give_back(). [any thread] */
const tt_ucx_api *tt_ucx_take(tutti_diag *diag);
void tt_ucx_give_back(void);

/* Whether a port of an RDMA device (in `sysfs`: /sys/class/infiniband) is
 * active. */
bool tt_ucx_has_rdma(const char *sysfs);
bool tt_ucx_is_wanted(void);

/* --------------------------------------------------------------- by link -- */

/* What a side says over the link of a connection: this, and the address of its
 * worker; then words. */
typedef struct tt_ucx_card {
    uint32_t magic;   /* TT_UCX_CARD_MAGIC */
    uint32_t n_bytes; /* of the address */
    uint32_t rank;
    uint32_t slot; /* of the connection there, */
    uint64_t key;  /* and what shows that a message is for it */
    uint64_t sum;  /* FNV-1a of the address: UCX trusts what it is given */
} tt_ucx_card;
_Static_assert(sizeof(tt_ucx_card) == 32, "as sent");
#define TT_UCX_CARD_MAGIC UINT32_C(0x32786375) /* "ucx2" */
#define TT_UCX_ADDRESS_MAX (16u << 10)

/* Each is said once. */
typedef enum tt_ucx_word_kind {
    TT_UCX_READY = 1, /* your HELLO has come; of the caller: and your READY */
    TT_UCX_BYE,       /* my messages end before seq */
    TT_UCX_GONE,      /* all of yours before your BYE are here */
    TT_UCX_NO         /* UCX does not reach you; seq: why, a negative status */
} tt_ucx_word_kind;
#define TT_UCX_WORDS 4

typedef struct tt_ucx_word {
    uint32_t kind, seq;
} tt_ucx_word;

/* -------------------------------------------------------------- messages -- */

/* The header of every active message: 64 bytes, little-endian as all. */
typedef struct tt_ucx_head {
    tt_msg m;
    uint64_t key;  /* the receiver's: who knows it has met it */
    uint32_t slot; /* likewise */
    uint32_t seq;  /* among those of this direction; HELLO is the first */
} tt_ucx_head;
_Static_assert(sizeof(tt_ucx_head) == 64, "a header is 64 bytes");

/* The magic number of HELLO, which shows that this way is open. */
#define TT_UCX_HELLO_MAGIC 0x8b8b

#define TT_UCX_MAX_PAYLOAD (256u << 10)
/* Sends of a connection that UCX has not finished. */
#define TT_UCX_OUTS 16
#define TT_UCX_AHEAD (256u << 10)
/* Payloads of a connection that are fetched ahead of their turn. */
#define TT_UCX_FETCHES 4

/* A message on its way out. */
typedef struct tt_ucx_out {
    struct tt_ucx_tx *tx;
    tt_ucx_head head;
    bool is_done;
    bool is_borrowed; /* left() is due */
    ucp_dt_iov_t iov[TT_NET_IOV_MAX];
    char small[TT_NET_INLINE];
} tt_ucx_out;

/* What UCX reads and calls back with while sends of a connection are open. It
 * stays until they are closed, and if need be until the worker is. */
typedef struct tt_ucx_tx {
    struct tt_ucx_tx *next;
    struct tt_ucx_net *net;
    struct tt_ucx_conn *conn;    /* NULL: closed meanwhile */
    uint32_t n_open;             /* sends that UCX has not finished */
    tt_ucx_out out[TT_UCX_OUTS]; /* a ring */
} tt_ucx_tx;

typedef struct tt_ucx_buf {
    struct tt_ucx_buf *next;
    char bytes[TT_UCX_MAX_PAYLOAD];
} tt_ucx_buf;

/* A message that has come. */
typedef struct tt_ucx_in {
    struct tt_ucx_in *next;
    struct tt_ucx_conn *conn; /* NULL: lost or closed meanwhile */
    struct tt_ucx_net *net;
    tt_msg m;
    uint32_t seq;
    bool is_remote;   /* the payload is still on the other side ... */
    bool is_fetching; /* ... and coming into buf */
    void *data;       /* UCX's: the payload, or what describes it */
    tt_ucx_buf *buf;
} tt_ucx_in;

/* They are allocated in lots. */
#define TT_UCX_LOT 64
struct tt_ucx_lot {
    struct tt_ucx_lot *next;
    tt_ucx_in in[TT_UCX_LOT];
};

typedef struct tt_ucx_net {
    tt_net base;
    tt_door door;
    const tt_ucx_api *api; /* NULL: not open */
    ucp_context_h context;
    ucp_worker_h worker;
    int worker_fd; /* the library's */
    size_t address_len;
    uint64_t address_sum;
    uint8_t address[TT_UCX_ADDRESS_MAX];
    struct tt_ucx_conn **conns; /* by slot, some NULL */
    size_t n_conns, most_conns;
    uint32_t n_meetings;       /* conns that are not up yet */
    struct tt_ucx_conn *dirty; /* have something for progress() */
    tt_ucx_in *spare_ins;
    tt_ucx_buf *spare_bufs;
    struct tt_ucx_lot *lots; /* all of the ins */
    tt_ucx_tx *closed;       /* of closed connections, still in use */
    bool made_room;          /* outside progress(), which then says so */
} tt_ucx_net;

typedef struct tt_ucx_conn {
    tt_conn base;
    ucp_ep_h ep;
    struct tt_ucx_conn *next_dirty;
    bool is_dirty;
    uint64_t cancel_until_ns; /* 0: nothing is to be let go of */
    /* the link: its end tells that the other process has ended */
    tt_link_stream link;
    bool is_linked, is_caller;
    tt_ucx_card mine;
    tt_ucx_word words[TT_UCX_WORDS], word; /* said; what comes */
    uint32_t n_words;
    size_t n_said, n_heard; /* bytes: of all; of what comes, or its part */
    struct tt_ucx_meeting
        *meeting; /* NULL: it is up, has missed, or never began */
    /* start and end */
    uint64_t key;        /* the other side's, */
    uint32_t their_slot; /* likewise */
    bool has_card;       /* they are known */
    bool has_heard;      /* HELLO */
    bool is_ready;       /* the other side has */
    bool is_lost;
    bool is_dead;     /* the link has ended */
    bool is_bad;      /* has sent what is no message */
    bool is_ending;   /* by us: drops what comes */
    bool hears_bye;   /* has come, maybe before what was sent before it */
    bool has_bye;     /* its turn has come */
    bool is_gone;     /* it has got all of ours */
    ucs_status_t why; /* broken when not UCS_OK */
    /* out */
    tt_ucx_tx *tx; /* NULL: never begun, or closed */
    uint32_t first, n, seq_out;
    uint64_t unsent; /* bytes of all in the ring */
    /* in */
    tt_ucx_in *in; /* sorted by seq */
    uint32_t seq_in, seq_bye, n_fetching;
} tt_ucx_conn;

/* -------------------------------------------------------------- worker.c -- */

tutti_err tt_ucx_open(tt_net *base, tutti_diag *diag);
/* To the address of another worker; conn->why says how that went. */
void tt_ucx_make_ep(tt_ucx_conn *conn, const uint8_t *address);
void tt_ucx_fini(tt_net *base);

/* ---------------------------------------------------------------- meet.c -- */

tutti_err tt_ucx_listen(tt_ucx_net *net, tutti_diag *diag);
size_t tt_ucx_address(tt_net *base, void *buf, size_t size);
tutti_err tt_ucx_dial(tt_conn *conn, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag);
/* What has come into the box; may call up. */
void tt_ucx_take_links(tt_ucx_net *net);
/* Of a conn that is not up: is it now, or is there no hope? True: one of both,
 * and it was told. */
bool tt_ucx_meet(tt_ucx_conn *conn);
/* Says a word over the link, once; and what of all was not said yet. */
void tt_ucx_say(tt_ucx_conn *conn, tt_ucx_word_kind kind);
void tt_ucx_say_rest(tt_ucx_conn *conn);
/* Reads what the link has. */
void tt_ucx_hear(tt_ucx_conn *conn);
/* The conn is closed: idempotent. */
void tt_ucx_part(tt_ucx_conn *conn);

/* ---------------------------------------------------------------- recv.c -- */

/* The one active message; arg is the net. */
ucs_status_t tt_ucx_arrive(void *arg, const void *header, size_t header_len,
                           void *data, size_t len,
                           const ucp_am_recv_param_t *param);
/* Calls for payloads that are still on the other side, the first few. */
void tt_ucx_fetch(tt_ucx_conn *conn);
/* Whether all that was sent before BYE is in this process. */
bool tt_ucx_is_whole(const tt_ucx_conn *conn);
/* Hands up what is at hand and in order; false: nothing. */
bool tt_ucx_deliver(tt_ucx_conn *conn);
void tt_ucx_drop_input(tt_ucx_conn *conn);

/* ---------------------------------------------------------------- send.c -- */

tt_sent tt_ucx_send(tt_conn *base, const tt_msg *m, const struct iovec *iov,
                    int n_iov);
/* Takes finished sends out of the ring; returns for how many left() is due. */
uint32_t tt_ucx_settle(tt_ucx_conn *conn, bool *moved);
/* Whether UCX may still read a payload of the engine's. */
bool tt_ucx_has_lent(const tt_ucx_conn *conn);
void tt_ucx_say_hello(tt_ucx_conn *conn);

/* ----------------------------------------------------------------- ucx.c -- */

bool tt_ucx_is_failing(const tt_ucx_conn *conn);
/* There is something for progress(). */
void tt_ucx_mark(tt_ucx_conn *conn);
void tt_ucx_fail(tt_ucx_conn *conn, ucs_status_t why);
/* UCX's error handler; arg is the tt_ucx_tx. */
void tt_ucx_failed(void *arg, ucp_ep_h ep, ucs_status_t status);
/* Moves what can be moved without any upcall; false: nothing. */
bool tt_ucx_turn(tt_ucx_net *net);

#endif
#endif
