/* SPDX-License-Identifier: BSD-3-Clause
 * plane.c - the course of things in one plane: first rounds, where there are
 * few leaves a thought (cutsearch.c) and the rounds that it asks for, general
 * rounds, then again and again a thought and its rounds, until it asks for
 * none.
 *
 * Next       rounds.c, cutsearch.c. */
#include "infer/plane.h"

#include <math.h>
#include <string.h>

/* More thoughts have never helped. */
enum { MAX_THOUGHTS = 8 };
/* Of so few leaves a thought costs little, and before the general rounds it
 * tells sooner what matters: their time may be short. So many at most. */
enum { FEW_LEAVES = 16, MAX_EARLY = 3 };

/* What all searches of a plane together may use: about as many nanoseconds,
 * but counted, so that it is the same everywhere. Most need a tenth of it. */
static const uint64_t work_per_plane = 700000000, work_per_leaf = 40000000,
                      most_work = UINT64_C(3000000000);

/* ------------------------------------------------------------------ memory */

static void make_scratch(tt_plane *p)
{
    tt_arena *a = &p->arena;
    uint32_t n = p->n;
    p->max_stressed = 10 * n + 8;
    p->senders = tt_arena_new(a, n, sizeof(uint32_t));
    p->receivers = tt_arena_new(a, n, sizeof(uint32_t));
    p->to = tt_arena_new(a, n, sizeof(uint32_t));
    p->node = tt_arena_new(a, n, sizeof(uint32_t));
    p->kid = tt_arena_new(a, n, sizeof(uint32_t));
    p->differ = tt_arena_new(a, n, sizeof(double));
    p->used = tt_arena_new(a, n, sizeof(bool));
    p->taken = tt_arena_new(a, n, sizeof(bool));
    p->some = tt_arena_new(a, (size_t)2 * n + 4, sizeof(bool));
    p->inside = tt_arena_new(a, (size_t)2 * n + 4, sizeof(bool));
    p->search_set = tt_arena_new(a, p->n_words, sizeof(uint64_t));
    p->search_set2 = tt_arena_new(a, p->n_words, sizeof(uint64_t));
    p->stressed = tt_arena_new(a, (size_t)p->max_stressed * (p->n_words + 1),
                               8);
}

tutti_err tt_plane_open(tt_plane *p, uint32_t n, const tt_mem *mem)
{
    *p = (tt_plane){.n = n, .arena = {.mem = mem}};
    tt_arena *a = p->filler.arena = &p->arena;
    p->n_words = (uint32_t)tt_set_words(n);
    p->can = tt_arena_new(a, (size_t)n * n, 1);
    p->latency_s = tt_arena_new(a, (size_t)n * n, sizeof(float));
    p->port = tt_arena_new(a, n, sizeof(uint32_t));
    p->host = tt_arena_new(a, n, sizeof(uint32_t));
    make_scratch(p);
    tt_model_create(&p->best, n, a);
    tt_model_create(&p->trial, n, a);
    tt_model_create(&p->spare, n, a);
    tt_model_create(&p->kept, n, a);
    tt_tree_create(p);
    for (size_t i = 0; !a->err && i < (size_t)n * n; i++)
        p->latency_s[i] = INFINITY;
    return a->err;
}

/* ------------------------------------------------------------------ course */

tutti_err tt_plane_settle(tt_plane *p)
{
    if (p->n_sought == p->looks.n_told)
        return TUTTI_OK;
    p->n_sought = p->looks.n_told;
    /* Each search may use half of what is left. */
    uint64_t all = work_per_plane + p->n * work_per_leaf;
    all = all < most_work ? all : most_work;
    uint64_t used = p->filler.work < all ? p->filler.work : all;
    p->max_work = p->filler.work + (all - used) / 2;
    tutti_err err = tt_cutsearch_find(p);
    return err ? err : tt_fit_noise(p);
}

/* A look without flows is none. */
static void drop_empty(tt_looks *l)
{
    while (l->n > l->n_told && l->list[l->n - 1].n == 0)
        l->n--;
}

/* The next looks; none: it is over. */
static tutti_err think(tt_plane *p)
{
    tutti_err err = tt_rounds_chained(p);
    if (err || p->looks.n > p->looks.n_told)
        return err;
    err = tt_plane_settle(p);
    if (!err)
        err = tt_rounds_targeted(p);
    drop_empty(&p->looks);
    return err;
}

/* What is suspected already; when that is measured, the general rounds. */
static tutti_err think_early(tt_plane *p)
{
    tutti_err err = TUTTI_OK;
    if (p->n >= 3 && p->n <= FEW_LEAVES && p->n_thoughts < MAX_EARLY) {
        tt_rounds_noise(p);
        err = tt_plane_settle(p);
        if (!err)
            err = tt_rounds_targeted(p);
        drop_empty(&p->looks);
    }
    if (!err && p->looks.n > p->looks.n_told) {
        p->stage--; /* once more */
        return TUTTI_OK;
    }
    /* Where there is noise, what was suspected too early does not count against
     * what comes. */
    if (!tt_is_quiet(p))
        p->n_thoughts = p->n_stressed = 0;
    return err ? err : tt_rounds_general(p);
}

/* All looks are told. */
static tutti_err go_on(tt_plane *p)
{
    tutti_err err;
    switch (p->stage++) {
    case 0:
        return tt_rounds_first(p);
    case 1:
        return tt_rounds_second(p);
    case 2:
        return think_early(p);
    case 3:
        tt_rounds_chain_all(p);
        err = tt_fit(p, &p->best);
        return err ? err : think(p);
    default:
        return p->n_thoughts < MAX_THOUGHTS ? think(p) : TUTTI_OK;
    }
}

tutti_err tt_plane_next(tt_plane *p, tt_look **next)
{
    tt_looks *l = &p->looks;
    tutti_err err = TUTTI_OK;
    *next = NULL;
    if (l->n_told == l->n && !p->is_done) {
        err = go_on(p);
        p->is_done = !err && l->n_told == l->n;
    }
    if (!err && l->n_told < l->n)
        *next = &l->list[l->n_told];
    return err;
}

void tt_plane_told(tt_plane *p)
{
    const tt_look *look = &p->looks.list[p->looks.n_told++];
    p->looks.n_told_flows = look->first + look->n;
}

uint32_t tt_plane_likely(const tt_plane *p)
{
    if (p->is_done || p->n_thoughts > 1)
        return p->looks.n;
    /* What mostly follows, as long as nothing is known. */
    return p->stage < 3 ? 3 * p->looks.n : p->looks.n + p->looks.n / 3;
}
