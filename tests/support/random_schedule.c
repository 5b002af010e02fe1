/* SPDX-License-Identifier: BSD-3-Clause
 * random_schedule.c - see random_schedule.h.
 *
 * Everything is made of two pieces, on any list of ranks whose first is the
 * root: in_tree() reduces the values of all into the root, out_tree() copies
 * the root's value to all. Each takes the step at which the values are there
 * and returns the step from which the result is there, so pieces can follow
 * each other. Steps are left out at random. */
#include "support/random_schedule.h"

#include <stdlib.h>

enum { MAX_SHARES = 4, PARTS = 60 };

typedef struct maker {
    tt_rng *rng;
    tt_builder *b;
    tutti_coll coll;
    uint32_t n, root;
    uint32_t *list;   /* a permutation of the ranks */
    uint32_t *ready;  /* per place in a list: the step its value is there */
    uint32_t *parent; /* per place in a list */
} maker;

static uint32_t below(maker *m, uint32_t limit)
{
    return (uint32_t)tt_rng_below(m->rng, limit);
}

/* Mostly none. */
static uint32_t slack(maker *m)
{
    return below(m, 4) == 0 ? below(m, 3) : 0;
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t kept = *a;
    *a = *b;
    *b = kept;
}

/* All ranks in random order; `first` first unless it is TT_NONE. */
static void shuffle(maker *m, uint32_t first)
{
    for (uint32_t i = 0; i < m->n; i++) {
        m->list[i] = i;
        swap(&m->list[i], &m->list[below(m, i + 1)]);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->list[i] == first)
            swap(&m->list[0], &m->list[i]);
    }
}

/* ---------------------------------------------------------------- trees -- */

/* A random tree over places 0 .. n-1: parents come before their children. */
static void grow_tree(maker *m, uint32_t n, uint32_t step)
{
    uint32_t shape = below(m, 5);
    uint32_t arity = 1 + below(m, 3);
    for (uint32_t i = 0; i < n; i++) {
        m->ready[i] = step;
        if (i == 0)
            continue;
        if (shape == 0)
            m->parent[i] = i - 1; /* a chain */
        else if (shape == 1)
            m->parent[i] = 0; /* a star */
        else if (shape == 2)
            m->parent[i] = (i - 1) / arity;
        else
            m->parent[i] = below(m, i);
    }
}

static uint32_t in_tree(maker *m, uint32_t chunk, const uint32_t *list,
                        uint32_t n, uint32_t step)
{
    grow_tree(m, n, step);
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t parent = m->parent[i], at = m->ready[i] + slack(m);
        tt_builder_transfer(m->b, at, chunk, list[i], list[parent],
                            TT_XFER_REDUCE);
        if (m->ready[parent] < at + 1)
            m->ready[parent] = at + 1;
    }
    return m->ready[0];
}

static uint32_t out_tree(maker *m, uint32_t chunk, const uint32_t *list,
                         uint32_t n, uint32_t step)
{
    uint32_t end = step;
    grow_tree(m, n, step);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t parent = m->parent[i], at = m->ready[parent] + slack(m);
        tt_builder_transfer(m->b, at, chunk, list[parent], list[i],
                            TT_XFER_COPY);
        m->ready[i] = at + 1;
        if (end < at + 1)
            end = at + 1;
    }
    return end;
}

/* ----------------------------------------------------------- all-reduces -- */

static uint32_t tree_pair(maker *m, uint32_t chunk, const uint32_t *list,
                          uint32_t n, uint32_t step)
{
    step = in_tree(m, chunk, list, n, step);
    return out_tree(m, chunk, list, n, step);
}

/* Recursive doubling; the ranks beyond a power of two fold into the first. */
static uint32_t butterfly(maker *m, uint32_t chunk, const uint32_t *list,
                          uint32_t n, uint32_t step)
{
    uint32_t core = 1;
    while (core * 2 <= n)
        core *= 2;
    for (uint32_t i = core; i < n; i++)
        tt_builder_transfer(m->b, step, chunk, list[i], list[i - core],
                            TT_XFER_REDUCE);
    step += core < n;
    for (uint32_t bit = 1; bit < core; bit *= 2) {
        step += slack(m);
        for (uint32_t i = 0; i < core; i++)
            tt_builder_transfer(m->b, step, chunk, list[i], list[i ^ bit],
                                TT_XFER_REDUCE);
        step++;
    }
    for (uint32_t i = core; i < n; i++)
        tt_builder_transfer(m->b, step, chunk, list[i - core], list[i],
                            TT_XFER_COPY);
    return step + (core < n);
}

/* Groups reduce to their first, the firsts (gathered at the front of the
 * list) run a butterfly, and copy back. Group g has the places g, g + n_groups
 * and so on; `group` is scratch for one. */
static uint32_t grouped(maker *m, uint32_t chunk, uint32_t *list, uint32_t n,
                        uint32_t *group)
{
    uint32_t n_groups = 1 + below(m, n), end = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        uint32_t start = end;
        for (uint32_t g = 0; g < n_groups; g++) {
            uint32_t size = 0;
            for (uint32_t i = g; i < n; i += n_groups)
                group[size++] = list[i];
            uint32_t done = pass == 0 ? in_tree(m, chunk, group, size, start)
                                      : out_tree(m, chunk, group, size, start);
            if (end < done)
                end = done;
        }
        if (pass == 0)
            end = butterfly(m, chunk, list, n_groups, end);
    }
    return end;
}

/* The classical ring in a random order; chunk k is complete first at the
 * place before k. */
static void ring(maker *m)
{
    shuffle(m, TT_NONE);
    uint32_t n = m->n;
    for (uint32_t step = 0; step < 2 * (n - 1); step++) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t chunk = (i + 2 * n - step) % n;
            tt_builder_transfer(m->b, step, chunk, m->list[i],
                                m->list[(i + 1) % n],
                                step < n - 1 ? TT_XFER_REDUCE : TT_XFER_COPY);
        }
    }
}

static void all_reduce(maker *m, uint32_t chunk)
{
    uint32_t *group = calloc(m->n, sizeof(*group));
    uint32_t kind = below(m, 4);
    shuffle(m, TT_NONE);
    if (kind == 0)
        butterfly(m, chunk, m->list, m->n, slack(m));
    else if (kind == 1 && group)
        grouped(m, chunk, m->list, m->n, group);
    else
        tree_pair(m, chunk, m->list, m->n, slack(m));
    free(group);
}

/* --------------------------------------------------------------- others -- */

/* From rank to rank, by way of up to two others. */
static void path(maker *m, uint32_t chunk, uint32_t from, uint32_t to)
{
    uint32_t hops = below(m, 3), step = slack(m);
    shuffle(m, TT_NONE);
    for (uint32_t i = 0; i < m->n && hops > 0 && from != to; i++) {
        uint32_t next = m->list[i];
        if (next == from || next == to)
            continue;
        tt_builder_transfer(m->b, step, chunk, from, next, TT_XFER_COPY);
        step += 1 + slack(m);
        from = next;
        hops--;
    }
    if (from != to)
        tt_builder_transfer(m->b, step, chunk, from, to, TT_XFER_COPY);
}

static void add_chunk(maker *m, uint32_t chunk, uint32_t block)
{
    uint32_t start = slack(m);
    switch (m->coll) {
    case TUTTI_ALL_REDUCE:
        all_reduce(m, chunk);
        return;
    case TUTTI_REDUCE:
        shuffle(m, m->root);
        in_tree(m, chunk, m->list, m->n, start);
        return;
    case TUTTI_REDUCE_SCATTER:
        shuffle(m, block);
        in_tree(m, chunk, m->list, m->n, start);
        return;
    case TUTTI_BROADCAST:
        shuffle(m, m->root);
        out_tree(m, chunk, m->list, m->n, start);
        return;
    case TUTTI_ALL_GATHER:
        shuffle(m, block);
        out_tree(m, chunk, m->list, m->n, start);
        return;
    case TUTTI_GATHER:
        path(m, chunk, block, m->root);
        return;
    case TUTTI_SCATTER:
        path(m, chunk, m->root, block);
        return;
    default:
        path(m, chunk, block / m->n, block % m->n);
    }
}

/* Cuts every block into a few uneven shares, and schedules each if `fill`.
 * Returns the number of chunks. */
static uint32_t add_shares(maker *m, uint64_t n_blocks, bool fill)
{
    uint32_t n_chunks = 0;
    for (uint32_t block = 0; block < n_blocks; block++) {
        uint32_t n_shares = 1 + below(m, MAX_SHARES);
        uint64_t begin = 0;
        for (uint32_t i = 0; i < n_shares; i++) {
            /* Each later share keeps at least one part. */
            uint64_t room = PARTS - begin - (n_shares - 1 - i);
            uint64_t size = i + 1 == n_shares ? room
                                              : 1 + tt_rng_below(m->rng, room);
            uint32_t chunk = tt_builder_chunk(m->b, block, begin, begin + size);
            if (fill)
                add_chunk(m, chunk, block);
            begin += size;
            n_chunks++;
        }
    }
    return n_chunks;
}

static tutti_err open_maker(maker *m, tt_rng *rng, tutti_coll coll,
                            uint32_t n_ranks, uint64_t n_parts)
{
    *m = (maker){.rng = rng, .coll = coll, .n = n_ranks, .root = TT_NONE};
    m->list = calloc(n_ranks, sizeof(*m->list));
    m->ready = calloc(n_ranks, sizeof(*m->ready));
    m->parent = calloc(n_ranks, sizeof(*m->parent));
    if (!m->list || !m->ready || !m->parent)
        return TUTTI_ENOMEM;
    if (tt_coll_has_root(coll))
        m->root = below(m, n_ranks);
    const tt_sched_head head = {coll, n_ranks, m->root, n_parts};
    return tt_builder_create(&tt_mem_std, &head, &m->b, NULL);
}

static tutti_err close_maker(maker *m, tutti_err err, tutti_schedule **out)
{
    free(m->list);
    free(m->ready);
    free(m->parent);
    return err ? err : tt_builder_seal(m->b, out, NULL);
}

tutti_err tt_random_schedule(tt_rng *rng, tutti_coll coll, uint32_t n_ranks,
                             tutti_schedule **out)
{
    bool is_ring = coll == TUTTI_ALL_REDUCE && n_ranks > 1 &&
                   tt_rng_below(rng, 4) == 0;
    maker m;
    tutti_err err = open_maker(&m, rng, coll, n_ranks,
                               is_ring ? n_ranks : PARTS);
    if (!err && is_ring) {
        tt_builder_equal_chunks(m.b, n_ranks);
        ring(&m);
    } else if (!err) {
        add_shares(&m, tt_coll_blocks(coll, n_ranks), true);
    }
    return close_maker(&m, err, out);
}

tutti_err tt_random_garbage(tt_rng *rng, tutti_coll coll, uint32_t n_ranks,
                            uint32_t n_transfers, tutti_schedule **out)
{
    maker m;
    tutti_err err = open_maker(&m, rng, coll, n_ranks, PARTS);
    if (err)
        return close_maker(&m, err, out);
    uint32_t n_chunks = add_shares(&m, tt_coll_blocks(coll, n_ranks), false);
    for (uint32_t i = 0; i < n_transfers && n_ranks > 1; i++) {
        uint32_t src = below(&m, n_ranks);
        uint32_t dst = (src + 1 + below(&m, n_ranks - 1)) % n_ranks;
        /* Steps go up, so that few transfers are the same one twice. Drawn
         * one by one: the order in which arguments are computed is free. */
        uint32_t step = i / 2 * 2 + below(&m, 2);
        uint32_t chunk = below(&m, n_chunks);
        tt_xfer_op op = below(&m, 2) ? TT_XFER_COPY : TT_XFER_REDUCE;
        tt_builder_transfer(m.b, step, chunk, src, dst, op);
    }
    return close_maker(&m, TUTTI_OK, out);
}
