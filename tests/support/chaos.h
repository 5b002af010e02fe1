/* SPDX-License-Identifier: BSD-3-Clause
 * chaos.h - a transport that wraps another one and misbehaves by seed. It is no
 * row of the table.
 *
 * Legal mischief, which an engine must not notice: full, delay,
 * connections that pass one way only. Faults, which
 * it must notice: drop, double, truncate, swap, flip, spoil, kill, hole. */
#ifndef TT_TESTS_CHAOS_H
#define TT_TESTS_CHAOS_H

#include "net/net.h"

typedef struct tt_chaos_opts {
    uint64_t seed;
    /* Of 1000 sends, so many are refused although there is room. */
    uint32_t full_per_1000;
    /* Of 1000 messages, so many are copied aside and sent only after up to
     * delay_turns calls of progress(), with all that follow behind them. */
    uint32_t delay_per_1000;
    uint32_t delay_turns;
    /* Nobody can dial a higher rank, as if a firewall were between. */
    bool only_down;
    /* The k-th message that this rank sends on a conn (from 1; 0: none) ... */
    uint64_t drop_at;     /* ... is not sent */
    uint64_t hole_at;     /* ... is not sent, nor any that follows */
    uint64_t double_at;   /* ... is sent twice */
    uint64_t truncate_at; /* ... loses the second half of its payload */
    uint64_t swap_at;     /* ... goes after the next one */
    uint64_t flip_at;     /* ... has one bit of its header flipped, not len's */
    uint64_t spoil_at;  /* ... has one bit flipped, anywhere but in len; ... */
    uint64_t spoil_bit; /* ... this one of its payload; or UINT64_MAX: any */
    uint64_t kill_at;   /* ... is not sent, and the conn is closed */
    uint32_t spoil_per_1000; /* messages of 1000 have any bit flipped */
    /* The faults above happen only on this rank, to messages to that rank;
     * TT_NONE: all. */
    uint32_t only_rank, only_peer;
} tt_chaos_opts;
#define TT_CHAOS_OPTS_INIT                         \
    {                                              \
        .only_rank = TT_NONE, .only_peer = TT_NONE \
    }

/* The wrapped transport, named "chaos". The storage is static: the 16 latest
 * wraps can be in use at a time. [one thread] */
const tt_net_ops *tt_chaos_wrap(const tt_net_ops *inner,
                                const tt_chaos_opts *opts);

#endif
