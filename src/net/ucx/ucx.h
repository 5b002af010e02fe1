/* SPDX-License-Identifier: BSD-3-Clause
 * ucx.h - private to the UCX transport: its state, and its parts.
 *
 *   ucx.c   the transport: progress, cancel, drain, close
 *   recv.c  what comes
 *   send.c  what goes
 *   meet.c  open, address(), who is reached
 *   lib.c   the library itself: found at run time, kept quiet; RDMA devices
 *   fds.c   its descriptors, which a forked child must not keep
 *
 * Circles    meet.c recv.c send.c ucx.c: the transport's slots are in all of them,
 *            and each of them may find that a connection has failed. */
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

#include "base/hostid.h"
#include "net/net.h"

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
    X(ucp_worker_flush_nbx)           \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create)                  \
    X(ucp_ep_close_nbx)               \
    X(ucp_ep_flush_nbx)               \
    X(ucp_am_send_nbx)                \
    X(ucp_am_recv_data_nbx)           \
    X(ucp_am_data_release)            \
    X(ucp_request_free)               \
    X(ucp_request_check_status)       \
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

/* ----------------------------------------------------------- descriptors -- */

/* Descriptors that the library has opened for us. */
typedef struct tt_ucx_fds {
    const tt_mem *mem;
    uint64_t *before; /* a bit for each that was open when it was noted */
    size_t n_words;
    int *own;
    size_t n, cap;
} tt_ucx_fds;

/* Notes what is open now; then watches (fork.h) what is new. Without /proc
 * nothing is watched. Errors: ENOMEM. */
tutti_err tt_ucx_fds_note(tt_ucx_fds *fds);
tutti_err tt_ucx_fds_watch(tt_ucx_fds *fds);
/* Before the library closes them. */
void tt_ucx_fds_unwatch(tt_ucx_fds *fds);

/* -------------------------------------------------------------- messages -- */

/* The header of every active message: 64 bytes, little-endian as all. A word
 * of the transport itself has WORD_MAGIC and a tt_ucx_word. */
typedef struct tt_ucx_head {
    tt_msg m;
    uint64_t key;  /* the receiver's: who knows it may speak */
    uint32_t from; /* rank */
    uint32_t seq;  /* among data and BYE of this direction */
} tt_ucx_head;
_Static_assert(sizeof(tt_ucx_head) == 64, "a header is 64 bytes");

#define TT_UCX_WORD_MAGIC 0x7475
typedef enum tt_ucx_word {
    TT_UCX_HELLO, /* caller -> called, both ways */
    TT_UCX_READY, /* your HELLO has come */
    TT_UCX_BYE,   /* my last message, in order */
    TT_UCX_GONE,  /* your BYE is here, and all that was before it */
    TT_UCX_WORDS
} tt_ucx_word;

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
    struct tt_ucx_conn *conn; /* NULL: closed meanwhile */
    uint32_t n_open;          /* sends that UCX has not finished */
    bool said[TT_UCX_WORDS];
    tt_ucx_head words[TT_UCX_WORDS];
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
    const tt_ucx_api *api; /* NULL: not open */
    ucp_context_h context;
    ucp_worker_h worker;
    int worker_fd; /* the library's */
    uint64_t key;
    tt_host_id host;
    uint64_t pid_ns;
    size_t address_len;
    uint8_t address[TT_NET_ADDR_MAX];
    struct tt_ucx_conn **conns; /* [n_ranks], those that were dialled */
    bool *early;                /* [n_ranks] said HELLO before it was dialled */
    bool is_meeting;            /* some conn may not be up yet */
    struct tt_ucx_conn *dirty;  /* have something for progress() */
    tt_ucx_in *spare_ins;
    tt_ucx_buf *spare_bufs;
    struct tt_ucx_lot *lots; /* all of the ins */
    tt_ucx_tx *closed;       /* of closed connections, still in use */
    bool made_room;          /* outside progress(), which then says so */
    tt_ucx_fds fds;
} tt_ucx_net;

typedef struct tt_ucx_conn {
    tt_conn base;
    ucp_ep_h ep;
    uint64_t key; /* the other side's */
    int pidfd;    /* -1: on another host, or not known */
    struct tt_ucx_conn *next_dirty;
    bool is_dirty;
    /* start and end */
    bool has_heard, is_ready, is_lost, has_missed;
    uint64_t until_ns; /* it must be up by then */
    bool is_dead;      /* its process has ended */
    bool is_bad;       /* has sent what is no message */
    bool is_ending;    /* by us: drops what comes */
    bool hears_bye;    /* has come, maybe before what was sent before it */
    bool has_bye;      /* its turn has come */
    bool is_gone;      /* it has got all of ours */
    ucs_status_t why;  /* broken when not UCS_OK */
    /* out */
    tt_ucx_tx *tx; /* NULL: never connected, or closed */
    uint32_t first, n, seq_out;
    uint64_t unsent; /* bytes of all in the ring */
    /* in */
    tt_ucx_in *in; /* sorted by seq */
    uint32_t seq_in, n_fetching;
} tt_ucx_conn;

/* ---------------------------------------------------------------- meet.c -- */

tutti_err tt_ucx_open(tt_net *base, tutti_diag *diag);
size_t tt_ucx_address(tt_net *base, void *buf);
tutti_err tt_ucx_dial(tt_conn *conn, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag);
/* Of a conn that is not up: is it now, or is there no hope? True: one of both,
 * and it was told. */
bool tt_ucx_meet(tt_ucx_conn *conn);
void tt_ucx_fini(tt_net *base);

/* ---------------------------------------------------------------- recv.c -- */

/* The one active message; arg is the net. */
ucs_status_t tt_ucx_arrive(void *arg, const void *header, size_t header_len,
                           void *data, size_t len,
                           const ucp_am_recv_param_t *param);
/* Calls for payloads that are still on the other side, the first few. */
void tt_ucx_fetch(tt_ucx_conn *conn);
/* Whether BYE and all that was sent before it is in this process. */
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
/* Sends a word, once. */
void tt_ucx_say(tt_ucx_conn *conn, tt_ucx_word word);

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
