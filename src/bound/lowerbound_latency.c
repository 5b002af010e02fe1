/* SPDX-License-Identifier: BSD-3-Clause
 * lowerbound_latency.c - how long the first bit takes between the two ranks
 * that are farthest apart.
 *
 * Idea       Every rank's contribution must arrive at every other, and nothing
 *            travels faster than the links' latencies on the quickest way: the
 *            shortest paths from each rank (Dijkstra).
 * Not in it  A number of sends: one rank may send to all the others at the same
 *            time, so that ceil(log2 N) messages one after the other are needed
 *            only where a send occupies the sender, which no link's latency
 *            says.
 * Cost       N times m log n. Above a fixed amount of that not every rank is
 *            tried, but rank 0, then always the one that was farthest from the
 *            one before: still a bound.
 * Next       optimum.c. */
#include "bound/lowerbound.h"

#include "base/heap.h"
#include "base/mem.h"

#define MOST_LINKS_SEEN UINT64_C(200000000)

/* The nodes on the heap, nearest first. */
typedef struct paths {
    const tutti_topology *t;
    uint64_t *far; /* [n_nodes] from the start; UINT64_MAX: not reached */
    uint32_t *heap, *place; /* place[v]: where on the heap; TT_NONE: not on */
    uint32_t n_heap;
} paths;

static bool is_nearer(const void *arg, const void *a, const void *b)
{
    const paths *p = arg;
    uint32_t v = *(const uint32_t *)a, w = *(const uint32_t *)b;
    return p->far[v] != p->far[w] ? p->far[v] < p->far[w] : v < w;
}

static void moved(void *arg, const void *item, size_t at)
{
    const paths *p = arg;
    p->place[*(const uint32_t *)item] = (uint32_t)at;
}

static const tt_heap_items nearest_first = {sizeof(uint32_t), is_nearer, moved};

static uint32_t take(paths *p)
{
    uint32_t nearest = p->heap[0];
    p->place[nearest] = TT_NONE;
    tt_heap_pop(&nearest_first, p, p->heap, p->n_heap--);
    return nearest;
}

static void reach(paths *p, uint32_t v, uint64_t far)
{
    if (far >= p->far[v])
        return;
    p->far[v] = far;
    uint32_t at = p->place[v] == TT_NONE ? p->n_heap++ : p->place[v];
    tt_heap_rise(&nearest_first, p, p->heap, at, &v);
}

/* Returns the farthest rank. */
static uint32_t walk(paths *p, uint32_t rank)
{
    const tutti_topology *t = p->t;
    uint32_t farthest = rank;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        p->far[v] = UINT64_MAX;
        p->place[v] = TT_NONE;
    }
    reach(p, t->rank_node[rank], 0);
    while (p->n_heap > 0) {
        uint32_t v = take(p);
        if (t->nodes[v].rank != TT_NONE)
            farthest = t->nodes[v].rank; /* nodes come in order of distance */
        for (uint32_t i = t->first_out[v]; i < t->first_out[v + 1]; i++) {
            const tt_link *l = &t->links[t->out[i]];
            uint64_t room = UINT64_MAX - 1 - p->far[v];
            uint64_t step = l->latency_ps < room ? l->latency_ps : room;
            reach(p, l->to, p->far[v] + step);
        }
    }
    return farthest;
}

static uint64_t search(paths *p, const tt_progress *progress)
{
    const tutti_topology *t = p->t;
    uint64_t one = (uint64_t)t->n_nodes + t->n_links;
    uint64_t n_walks = MOST_LINKS_SEEN / one + 1;
    bool is_all = n_walks >= t->n_ranks;
    uint64_t most = 0;
    uint32_t rank = 0;
    if (is_all)
        n_walks = t->n_ranks;
    for (uint64_t i = 0; i < n_walks; i++) {
        uint32_t farthest = walk(p, rank);
        uint64_t far = p->far[t->rank_node[farthest]];
        if (far > most)
            most = far;
        else if (!is_all && i > 1)
            break;
        rank = is_all ? (uint32_t)i + 1 : farthest;
        tt_progress_tell(progress, "looking for the longest way", i, n_walks);
    }
    return most;
}

tutti_err tt_lowerbound_latency(const tutti_topology *t, const tt_mem *mem,
                                const tt_progress *progress, uint64_t *out_ps)
{
    tt_arena arena = {.mem = mem};
    paths p = {
        .t = t,
        .far = tt_arena_new(&arena, t->n_nodes, sizeof(*p.far)),
        .heap = tt_arena_new(&arena, t->n_nodes, sizeof(*p.heap)),
        .place = tt_arena_new(&arena, t->n_nodes, sizeof(*p.place)),
    };
    tutti_err err = arena.err;
    if (!err)
        *out_ps = search(&p, progress);
    tt_arena_free(&arena);
    return err;
}
