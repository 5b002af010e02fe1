/* SPDX-License-Identifier: BSD-3-Clause
 * relay.c - blocks go from neighbour to neighbour, where others do not reach
 * each other.
 *
 * Idea       In a gather, a scatter and an all-to-all each block has one rank
 *            that holds it and one that wants it. Where hosts do not forward,
 *            the two may have no route. Then the ranks between take a copy each
 *            and send it on: they receive it into scratch memory. A block is
 *            cut into shares, which may go different ways (relay_paths.c has
 *            which). Shares of one block that go the same way are one chunk.
 * Steps      All ways end in the last step, so of the chunks that want the same
 *            link the one that has farthest to go comes first.
 * Invariant  No rank gets a share twice.
 * Cost       Within a few percent of what the links allow, where blocks are
 *            large enough for shares; else of what whole blocks allow.
 * Picture    line of 4, all-to-all, blocks of rank 0, a number is a step:
 *
 *               0          1          2
 *            0 ---> 1   0 ---> 1 ---> 2 ---> 3    block of 3
 *                          1      2
 *                       0 ---> 1 ---> 2           block of 2
 *                          2
 *                       0 ---> 1                  block of 1
 * Next       relay_paths.c; direct.c (where all reach each other). */
#include "plan/relay_paths.h"

#include <string.h>

/* Of a block: shares of less are not worth a message. */
#define LEAST_SHARE_BYTES (16 << 10)
#define MOST_SHARES 8
/* The way through n ranks takes n hops at most, so there are n * n * n of
 * them. */
#define MOST_RANKS_ALL 256

static const char *why_not(const tt_problem *p)
{
    if (tt_coll_has_trees(p->collective))
        return "it has only gather, scatter and all-to-all";
    if (!p->topology)
        return "it needs a topology";
    if (p->topology->all_forward)
        return "all ranks reach each other";
    return p->collective == TUTTI_ALL_TO_ALL && p->n_ranks > MOST_RANKS_ALL
               ? "more ranks than it does an all-to-all for"
               : NULL;
}

static uint32_t shares_of(const tt_problem *p)
{
    uint64_t n = p->size_bytes / p->n_ranks / LEAST_SHARE_BYTES;
    return n < 1 ? 1 : n > MOST_SHARES ? MOST_SHARES : (uint32_t)n;
}

static uint32_t longest(const tt_relay_paths *paths)
{
    uint32_t most = 0;
    for (size_t i = 0; i < (size_t)paths->n_blocks * paths->n_shares; i++)
        most = paths->n_hops[i] > most ? paths->n_hops[i] : most;
    return most;
}

static bool is_same_way(const tt_relay_paths *paths, uint32_t block, uint32_t a,
                        uint32_t z)
{
    const uint32_t *n_hops = paths->n_hops + (size_t)block * paths->n_shares;
    return n_hops[a] == n_hops[z] &&
           memcmp(tt_relay_path(paths, block, a),
                  tt_relay_path(paths, block, z),
                  (n_hops[a] + 1) * sizeof(*paths->ranks)) == 0;
}

/* How many shares go the way of this one; 0: an earlier one has that way. */
static uint32_t count_same(const tt_relay_paths *paths, uint32_t block,
                           uint32_t share)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < paths->n_shares; s++) {
        bool is_same = is_same_way(paths, block, share, s);
        if (is_same && s < share)
            return 0;
        n += is_same;
    }
    return n;
}

static void add_block(const tt_relay_paths *paths, uint32_t block,
                      uint32_t n_steps, tt_builder *b)
{
    uint64_t begin = 0;
    for (uint32_t s = 0; s < paths->n_shares; s++) {
        uint32_t n_same = count_same(paths, block, s);
        if (n_same == 0)
            continue;
        uint32_t c = tt_builder_chunk(b, block, begin, begin + n_same);
        uint32_t n = paths->n_hops[(size_t)block * paths->n_shares + s];
        const uint16_t *ranks = tt_relay_path(paths, block, s);
        begin += n_same;
        for (uint32_t h = 0; h < n; h++)
            tt_builder_transfer(b, n_steps - n + h, c, ranks[h], ranks[h + 1],
                                TT_XFER_COPY);
    }
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    tt_relay_paths paths;
    tutti_err err = tt_relay_paths_find(p, shares_of(p), scratch, &paths, diag);
    if (err)
        return err;
    const uint32_t n_steps = longest(&paths);
    tt_builder_parts(b, paths.n_shares);
    for (uint32_t block = 0; block < paths.n_blocks; block++)
        add_block(&paths, block, n_steps, b);
    return TUTTI_OK;
}

const tt_planner tt_planner_relay = {
    .name = "relay",
    .blurb = "blocks go from neighbour to neighbour where hosts do not forward",
    .fits = "hosts that do not forward; all-to-all up to 256 ranks",
    .why_not = why_not,
    .build = build,
    .uses_links = true,
};
