/* SPDX-License-Identifier: BSD-3-Clause
 * msgring.c - messages from one writer to one reader through shared memory.
 *
 * Idea       A record is a whole number of 64-byte lines and starts with a
 *            word that is 0 until the record is complete. The reader polls
 *            that word, so a message of up to 8 bytes is handed over by the
 *            transfer of a single cache line; there is no head counter.
 *
 *              +0   word: kind << 56 | bytes of the record (0: not yet)
 *              +8   tt_msg
 *              +56  payload of at most 8 bytes; a larger one starts at +64
 *
 *            A REF record holds no payload of tt_msg's length but 8 bytes that
 *            tell where it is (lend.h).
 *
 *            Positions only grow; a position's place is position % size. A
 *            record that would cross the end of the ring is preceded by a PAD
 *            record that fills the ring up to its end.
 *
 * Laps       A writer whose reader keeps up begins again before the end: what
 *            has just been used is still in the caches. A lap is so many times
 *            as long as its longest record, so that enough of them find room
 *            until the reader has seen that it ends.
 *
 * Invariants 1. Before a record is shown, the word behind it is 0: the reader
 *               never takes an old byte for a word. To keep that off the path
 *               of a message, the writer clears a few lines in advance.
 *            2. tail <= reader's pos <= writer's pos; the writer touches only
 *               [pos, limit), limit = tail + size as last seen.
 *            3. A record and the pad before it take at most size/2 + 192
 *               bytes (a lap that ends early has its room before it does). A
 *               reader that has read everything has last told its tail less
 *               than size/16 ago, and has last looked for a sleeping
 *               writer less than 5/16 of size ago: so a writer that waits for
 *               room gets it, polling or asleep.
 *
 * Barriers   word:  writer's release in show() / reader's acquire in
 *                   tt_ring_word()
 *            payload: stores past the cache are not ordered by a release;
 *                   tt_line_fence() in copyin.c does that, before show()
 *            tail:  reader's release in tt_ring_done() / writer's acquire in
 *                   refresh()
 *            sleep: [word, fence, load of reader_sleeps] in put and
 *                   must_wake_reader / [store of reader_sleeps, fence, word]
 *                   when the reader arms: one of the two sees the other's
 *                   store. The same for tail and writer_sleeps.
 *
 * Cost       One line for 8 bytes, 1 + n/64 lines for n bytes, one copy in, no
 *            copy out; one fence per quarter of the ring, or per lap, for the
 *            reader, one per run of messages for the writer.
 *
 * Next       duplex.h (two rings make a connection), shm.c. */
#include "net/shm/msgring.h"

#include <string.h>

#define LINE TT_CACHE_LINE
#define MSG_AT 8    /* place of the header in a record */
#define SMALL_AT 56 /* place of a payload of at most SMALL bytes */
#define SMALL 8
#define KIND_MSG UINT64_C(1)
#define KIND_PAD UINT64_C(2)
#define KIND_REF UINT64_C(3)
#define KIND_SHIFT 56
#define BYTES_MASK ((UINT64_C(1) << KIND_SHIFT) - 1)
#define RING_MIN (16 << 10)
#define RING_MAX (64 << 20)
/* Lines that the writer clears in advance: enough for the next message of up
 * to 128 bytes; the invariant holds without them. */
#define CLEAR_AHEAD (4 * LINE)
/* Lines before they are cleared: so that a store to one, which the reader has
 * had, does not keep waiting all that comes after it. */
#define FETCH_AHEAD (4 * LINE)
/* A lap is at least so long, and so many times its longest record. */
#define LEAST_LAP (64 << 10)
#define LAP_RECORDS 16

_Static_assert(MSG_AT + sizeof(tt_msg) == SMALL_AT, "no gap in a record");
_Static_assert(SMALL_AT + SMALL == LINE, "a small message is one line");

static uint64_t record_bytes(uint32_t len)
{
    if (len <= SMALL)
        return LINE;
    return LINE + (((uint64_t)len + LINE - 1) & ~(uint64_t)(LINE - 1));
}

static size_t payload_at(uint32_t len)
{
    return len <= SMALL ? SMALL_AT : LINE;
}

uint32_t tt_ring_size(uint64_t wish_bytes)
{
    uint32_t size = RING_MIN;
    while (size < RING_MAX && (uint64_t)size * 2 <= wish_bytes)
        size *= 2;
    return size;
}

uint32_t tt_ring_max_payload(uint32_t size)
{
    return size / 4;
}

void tt_ring_tx_init(tt_ring_tx *tx, tt_ring_ctl *ctl, void *data,
                     uint32_t size)
{
    *tx = (tt_ring_tx){
        .ctl = ctl, .data = data, .size = size, .limit = size, .cleared = size};
    tt_copyin_init(&tx->how, size);
}

void tt_ring_rx_init(tt_ring_rx *rx, tt_ring_ctl *ctl, void *data,
                     uint32_t size)
{
    *rx = (tt_ring_rx){.ctl = ctl,
                       .data = data,
                       .size = size,
                       .tells = size / 16 < LEAST_LAP / 8 ? size / 16
                                                          : LEAST_LAP / 8,
                       .max_payload = tt_ring_max_payload(size)};
}

/* ------------------------------------------------------------- writing -- */

static _Atomic uint64_t *word_of(unsigned char *data, uint64_t size,
                                 uint64_t pos)
{
    return (_Atomic uint64_t *)(void *)(data + (pos & (size - 1)));
}

/* Release: pairs with the acquire in tt_ring_word(). */
static void show(tt_ring_tx *tx, uint64_t pos, uint64_t kind, uint64_t bytes)
{
    atomic_store_explicit(word_of(tx->data, tx->size, pos),
                          kind << KIND_SHIFT | bytes, memory_order_release);
}

static void clear(tt_ring_tx *tx, uint64_t pos)
{
    atomic_store_explicit(word_of(tx->data, tx->size, pos), 0,
                          memory_order_relaxed);
    tx->cleared = pos + LINE;
}

/* Reads the reader's tail; true when `need` is within the limit now. */
static bool refresh(tt_ring_tx *tx, uint64_t need)
{
    /* Acquire: pairs with the release in tt_ring_done(). */
    uint64_t tail = atomic_load_explicit(&tx->ctl->tail, memory_order_acquire);
    uint64_t seen = tx->limit - tx->size;
    if (tail - seen > tx->pos - seen || tail % LINE != 0) {
        tx->is_broken = true;
        return false;
    }
    tx->limit = tail + tx->size;
    return need <= tx->limit;
}

static inline void copy_in(tt_copyin *how, unsigned char *to, uint32_t len,
                           const struct iovec *iov, int n_iov)
{
    if (n_iov == 1 && len == SMALL && iov[0].iov_len == SMALL) {
        memcpy(to, iov[0].iov_base, SMALL); /* a number: no call */
        return;
    }
    if (n_iov == 1 && len >= TT_COPYIN_LEAST && iov[0].iov_len >= len) {
        tt_copyin_copy(how, to, iov[0].iov_base, len);
        return;
    }
    for (int i = 0; i < n_iov && len > 0; i++) {
        size_t n = iov[i].iov_len < len ? iov[i].iov_len : len;
        if (n > 0)
            memcpy(to, iov[i].iov_base, n);
        to += n;
        len -= (uint32_t)n;
    }
}

/* Word by word, and the first by its parts: that is how it has just been
 * written, and a load that is wider than the stores before it would wait for
 * them. */
static inline void copy_header(unsigned char *record, const tt_msg *m)
{
    volatile uint64_t *to = (volatile uint64_t *)(void *)(record + MSG_AT);
    const volatile tt_msg *from = m;
    to[0] = from->magic | (uint64_t)from->kind << 16 |
            (uint64_t)from->flags << 24 | (uint64_t)from->len << 32;
    to[1] = from->comm;
    to[2] = from->channel;
    to[3] = from->seq;
    to[4] = from->fingerprint;
    to[5] = from->lane | (uint64_t)from->slice << 32;
}

/* Whether the lap, which is long enough, ends here: if its reader has read most
 * of it, and so there is room at the beginning. */
static bool turns_early(tt_ring_tx *tx, uint64_t to_end, uint64_t bytes)
{
    const uint64_t offset = tx->size - to_end;
    bool fits = refresh(tx, tx->pos + to_end + bytes + LINE);
    uint64_t unread = tx->pos + tx->size - tx->limit;
    if (fits && unread <= offset / 4)
        return true;
    tx->turn = tx->pos + LEAST_LAP / 4; /* not asked for each record */
    return false;
}

/* The record at start is in the lap. */
static inline void note_lap(tt_ring_tx *tx, uint64_t start, uint64_t bytes)
{
    const uint64_t lap = start & ~(tx->size - 1);
    if (TT_UNLIKELY(start == lap))
        tx->turn = lap + LEAST_LAP;
    if (tx->turn < lap + LAP_RECORDS * bytes)
        tx->turn = lap + LAP_RECORDS * bytes;
}

/* A record with `len` bytes of iov. */
static inline bool put(tt_ring_tx *tx, const tt_msg *m, uint64_t kind,
                       uint32_t len, const struct iovec *iov, int n_iov)
{
    uint64_t bytes = record_bytes(len);
    uint64_t to_end = tx->size - (tx->pos & (tx->size - 1));
    bool fits = bytes <= to_end && (TT_LIKELY(tx->pos < tx->turn) ||
                                    !turns_early(tx, to_end, bytes));
    uint64_t skip = fits ? 0 : to_end;
    uint64_t start = tx->pos + skip;
    uint64_t end = start + bytes;
    if (TT_UNLIKELY(end + LINE > tx->limit) && !refresh(tx, end + LINE)) {
        tx->want = end + LINE;
        return false;
    }
    unsigned char *record = tx->data + (start & (tx->size - 1));
    copy_in(&tx->how, record + payload_at(len), len, iov, n_iov);
    copy_header(record, m);
    if (end >= tx->cleared)
        clear(tx, end);
    show(tx, start, kind, bytes);
    if (TT_UNLIKELY(skip > 0))
        show(tx, tx->pos, KIND_PAD, skip);
    note_lap(tx, start, bytes);
    tx->pos = end;
    tx->want = 0;
    while (tx->cleared < tx->limit && tx->cleared - end < CLEAR_AHEAD) {
        if (tx->cleared + FETCH_AHEAD < tx->limit)
            TT_PREFETCH_TO_WRITE(
                word_of(tx->data, tx->size, tx->cleared + FETCH_AHEAD));
        clear(tx, tx->cleared);
    }
    return true;
}

bool tt_ring_put(tt_ring_tx *tx, const tt_msg *m, const struct iovec *iov,
                 int n_iov)
{
    return put(tx, m, KIND_MSG, m->len, iov, n_iov);
}

bool tt_ring_put_ref(tt_ring_tx *tx, const tt_msg *m, uint64_t ref)
{
    const struct iovec iov = {.iov_base = &ref, .iov_len = sizeof(ref)};
    return put(tx, m, KIND_REF, sizeof(ref), &iov, 1);
}

bool tt_ring_has_room(tt_ring_tx *tx)
{
    return tx->want <= tx->limit || refresh(tx, tx->want) || tx->is_broken;
}

bool tt_ring_must_wake_reader(tt_ring_tx *tx)
{
    tt_ring_fence(); /* pairs with the fence of the reader that arms */
    _Atomic uint32_t *flag = &tx->ctl->reader_sleeps;
    return TT_UNLIKELY(atomic_load_explicit(flag, memory_order_relaxed)) &&
           atomic_exchange_explicit(flag, 0, memory_order_relaxed) != 0;
}

/* ------------------------------------------------------------- reading -- */

/* Follows a PAD record at pos; 0 when it makes no sense. */
static uint64_t after_pad(const tt_ring_rx *rx, uint64_t word)
{
    uint64_t offset = rx->pos & (rx->size - 1);
    if (offset == 0 || (word & BYTES_MASK) != rx->size - offset)
        return 0;
    return rx->pos + rx->size - offset;
}

int tt_ring_get(tt_ring_rx *rx, tt_msg *m, const void **data)
{
    uint64_t word = tt_ring_word(rx, rx->pos);
    if (word == 0)
        return TT_RING_EMPTY;
    uint64_t start = rx->pos;
    if (TT_UNLIKELY(word >> KIND_SHIFT == KIND_PAD)) {
        start = after_pad(rx, word);
        word = start ? tt_ring_word(rx, start) : 0;
    }
    uint64_t offset = start & (rx->size - 1);
    const unsigned char *record = rx->data + offset;
    /* Their way here takes as long as the engine's work on the header. Not
     * lines behind the record: the writer would have to take them back. */
    if ((word & BYTES_MASK) > LINE)
        TT_PREFETCH(record + LINE);
    if ((word & BYTES_MASK) > 2 * LINE)
        TT_PREFETCH(record + 2 * LINE);
    /* Copied first, checked then: the writer could change it any time. */
    memcpy(m, record + MSG_AT, sizeof(*m));
    bool is_ref = word >> KIND_SHIFT == KIND_REF;
    uint32_t len = is_ref ? sizeof(uint64_t) : m->len;
    uint64_t bytes = record_bytes(len);
    uint64_t kind = is_ref ? KIND_REF : KIND_MSG;
    if (TT_UNLIKELY(word != (kind << KIND_SHIFT | bytes) ||
                    m->len > rx->max_payload || bytes > rx->size - offset))
        return TT_RING_NONSENSE;
    *data = len ? record + payload_at(len) : NULL;
    rx->end = start + bytes;
    return is_ref ? TT_RING_REF : TT_RING_MSG;
}

bool tt_ring_done(tt_ring_rx *rx)
{
    rx->pos = rx->end;
    if (rx->pos - rx->told < rx->tells)
        return false;
    rx->told = rx->pos;
    /* Release: pairs with the acquire in refresh(). */
    atomic_store_explicit(&rx->ctl->tail, rx->pos, memory_order_release);
    if (rx->pos - rx->checked < rx->size / 4)
        return false;
    rx->checked = rx->pos;
    tt_ring_fence(); /* pairs with the fence of the writer that arms */
    _Atomic uint32_t *flag = &rx->ctl->writer_sleeps;
    return TT_UNLIKELY(atomic_load_explicit(flag, memory_order_relaxed)) &&
           atomic_exchange_explicit(flag, 0, memory_order_relaxed) != 0;
}
