/* SPDX-License-Identifier: BSD-3-Clause
 * msgring.h - messages from one writer to one reader through shared memory.
 *
 * The memory is a tt_ring_ctl and `bytes` bytes of data (a power of two, 64-
 * byte aligned, all zero at the start); it may lie at different addresses in
 * the two processes. Each side keeps a private tt_ring_tx or tt_ring_rx.
 * The other side is not trusted: whatever it writes, nothing outside the ring
 * is touched.
 *
 * Next: msgring.c (the format and the barriers). */
#ifndef TT_NET_MSGRING_H
#define TT_NET_MSGRING_H

#include <stdatomic.h>

#include "net/net.h"
#include "net/shm/copyin.h"

/* The shared words besides the data; each on a line of its own. */
typedef struct tt_ring_ctl {
    /* Reader: everything before it may be overwritten. */
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t tail;
    /* Reader: 1 while it sleeps; the writer takes it back with the bell. */
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t reader_sleeps;
    /* Writer: 1 while it sleeps and wants room. */
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t writer_sleeps;
} tt_ring_ctl;

typedef struct tt_ring_tx {
    unsigned char *data;
    uint64_t size;
    uint64_t pos;     /* where the next record goes; only grows */
    uint64_t limit;   /* what lies before it may be written */
    uint64_t cleared; /* record starts in [pos, cleared) hold 0 */
    uint64_t turn;    /* from there on the lap may end */
    uint64_t want;    /* the limit that the refused record needs; 0: none */
    tt_ring_ctl *ctl;
    bool is_broken; /* the reader wrote nonsense */
    tt_copyin how;  /* long payloads are copied */
} tt_ring_tx;

typedef struct tt_ring_rx {
    unsigned char *data;
    uint64_t size;
    uint64_t pos;     /* the record to be read next; only grows */
    uint64_t end;     /* where the record ends that is being read */
    uint64_t told;    /* the last tail that the writer was told, */
    uint64_t tells;   /* and so far behind it may be */
    uint64_t checked; /* where we last looked whether the writer sleeps */
    tt_ring_ctl *ctl;
    uint32_t max_payload;
} tt_ring_rx;

/* The ring size for a wish, and the most payload of one message in it. */
uint32_t tt_ring_size(uint64_t wish_bytes);
uint32_t tt_ring_max_payload(uint32_t size);

void tt_ring_tx_init(tt_ring_tx *tx, tt_ring_ctl *ctl, void *data,
                     uint32_t size);
void tt_ring_rx_init(tt_ring_rx *rx, tt_ring_ctl *ctl, void *data,
                     uint32_t size);

/* Copies a message in and shows it to the reader; false: no room now. */
bool tt_ring_put(tt_ring_tx *tx, const tt_msg *m, const struct iovec *iov,
                 int n_iov);

/* Shows a message whose payload of m->len bytes lies elsewhere: `ref` tells the
 * reader where. With len 0 it is a word to the reader's transport alone. */
bool tt_ring_put_ref(tt_ring_tx *tx, const tt_msg *m, uint64_t ref);

/* After a refused put: is there room now? */
bool tt_ring_has_room(tt_ring_tx *tx);

/* The oldest message. */
enum {
    TT_RING_NONSENSE = -1, /* ... is what the writer wrote */
    TT_RING_EMPTY = 0,
    TT_RING_MSG =
        1,          /* here; *data in the ring, NULL without payload, good until
                        tt_ring_done() */
    TT_RING_REF = 2 /* here; *data is where the 8 bytes of the ref are */
};
int tt_ring_get(tt_ring_rx *rx, tt_msg *m, const void **data);

/* Gives the message's room back. True: the writer sleeps and must be woken;
 * true once per sleep. */
bool tt_ring_done(tt_ring_rx *rx);

/* The first word of the record at pos; 0: there is none yet. Acquire: pairs
 * with the release when a message is shown. */
static inline uint64_t tt_ring_word(const tt_ring_rx *rx, uint64_t pos)
{
    void *at = rx->data + (pos & (rx->size - 1));
    return atomic_load_explicit((_Atomic uint64_t *)at, memory_order_acquire);
}

/* A message (or nonsense) is there. */
static inline bool tt_ring_has_message(const tt_ring_rx *rx)
{
    return tt_ring_word(rx, rx->pos) != 0;
}

/* Going to sleep: set the flag, then look once more (tt_ring_has_message,
 * tt_ring_has_room) after tt_ring_fence(). */
static inline void tt_ring_reader_sleeps(tt_ring_rx *rx, bool on)
{
    atomic_store_explicit(&rx->ctl->reader_sleeps, on, memory_order_relaxed);
}

static inline void tt_ring_writer_sleeps(tt_ring_tx *tx, bool on)
{
    atomic_store_explicit(&tx->ctl->writer_sleeps, on, memory_order_relaxed);
}

/* After puts: must the reader be woken? True once per sleep. */
bool tt_ring_must_wake_reader(tt_ring_tx *tx);

/* A full barrier: what was stored before is seen by all before anything is
 * loaded after. */
static inline void tt_ring_fence(void)
{
#if defined(__SANITIZE_THREAD__)
    /* ThreadSanitizer knows no fences and the compiler warns about them. */
    static _Atomic uint32_t all;
    atomic_fetch_add(&all, 1);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
