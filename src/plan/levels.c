/* SPDX-License-Identifier: BSD-3-Clause
 * levels.c - collectives level by level over a hierarchy.
 *
 * Idea       For one chunk every node of the hierarchy has an owner, a rank
 *            below it (levels.h). Reduction: at each node, leaves first, the
 *            owners at its kids combine what they have at the node's owner.
 *            Distribution is the film backwards. All-reduce is the one after
 *            the other.
 *            Broadcast: from the root upwards, at each node the chunk visits
 *            the owners at all kids in a chain, the node's own owner first, so
 *            that the next level may start; then down, chains again. So no
 *            rank sends more than it must. Reduce is that film backwards.
 * Owners     Where shares are free, levels_segments.c has them. Where block b
 *            belongs to rank b, the owner at every node above b is b. Any other
 *            node is a stranger: b sits somewhere in its sibling, at a fraction
 *            0 <= u < 1 of the bytes there, and so does the owner in the
 *            stranger, by weight. In levels that are all alike this is the
 *            rank in the same position, and uneven ones share the work.
 * Invariant  Each kid's uplink carries a chunk once in each direction that
 *            needs it, however many ranks are below.
 * Circle     Kids pass on in a circle (owner last) when they are many and the
 *            messages large; directly when they are few, or messages small, or
 *            weights differ: in a circle every kid forwards nearly everything,
 *            whatever it owns, so only direct sends reward a small share. The
 *            uplinks carry the same; a circle has fewer flows at a time, and
 *            more steps.
 * Cost       One chunk costs O(N); N - 1 transfers reduce it.
 * Next       flexreduce.c, levels_weights.c. */
#include "plan/levels.h"

/* What a plan may have in transfers by the paper's cuts, and at all: 340 MB
 * and 2.7 GB. An all-reduce has at least one segment for each rank. */
#define PAPER_TRANSFERS (UINT64_C(1) << 24)
#define MOST_TRANSFERS (UINT64_C(1) << 27)
#define MOST_RANKS 8192u

typedef struct writer {
    const tt_levels *l;
    const tt_hierarchy *h;
    tt_film film;
    uint32_t *owner;      /* by node: a place */
    uint32_t *keeper;     /* by node: which kid's owner */
    uint32_t *first_step; /* by height: of a reduction */
} writer;

/* ------------------------------------------------------------ reductions -- */

static uint32_t owner_at_kid(const writer *w, const tt_hier_node *node,
                             uint32_t kid)
{
    return w->owner[node->first_kid + kid];
}

static void combine_at(const writer *w, uint32_t v, uint32_t chunk)
{
    const tt_hier_node *node = &w->h->nodes[v];
    uint32_t k = node->n_kids;
    uint32_t step = w->first_step[node->height];
    for (uint32_t i = 1; i < k; i++) {
        uint32_t kid = (w->keeper[v] + i) % k;
        uint32_t next = w->keeper[v];
        if (w->l->is_ring[v])
            next = (kid + 1) % k;
        tt_film_add(&w->film, step, chunk, owner_at_kid(w, node, kid),
                    owner_at_kid(w, node, next));
        step += w->l->is_ring[v];
    }
}

static void combine(const writer *w, uint32_t chunk)
{
    for (uint32_t v = w->h->n_nodes; v-- > 0;)
        combine_at(w, v, chunk);
}

/* When the reductions of each height begin. */
static tutti_err time_steps(writer *w, tt_arena *arena)
{
    size_t n_heights = (size_t)w->h->nodes[0].height + 1;
    w->first_step = tt_arena_new(arena, n_heights + 1, sizeof(uint32_t));
    if (arena->err)
        return TUTTI_ENOMEM;
    uint32_t *depth = &w->first_step[1]; /* of height i at first_step[i + 1] */
    for (uint32_t v = 0; v < w->h->n_nodes; v++) {
        const tt_hier_node *node = &w->h->nodes[v];
        uint32_t steps = w->l->is_ring[v] ? node->n_kids - 1 : 1;
        if (node->n_kids > 0 && depth[node->height] < steps)
            depth[node->height] = steps;
    }
    for (size_t i = 0; i < n_heights; i++)
        depth[i] += w->first_step[i];
    w->film.n_steps = depth[n_heights - 1];
    return TUTTI_OK;
}

/* ------------------------------------------------------- free to choose -- */

/* Where each node's segments have been read up to. */
typedef struct reader {
    const tt_segments *s;
    size_t *at;
} reader;

/* The owners of the next chunk. */
static void read_owners(reader *r, writer *w)
{
    uint64_t end = r->s->at[0].list[r->at[0]].end;
    for (uint32_t v = w->h->n_nodes; v-- > 0;) {
        const tt_hier_node *node = &w->h->nodes[v];
        const tt_owned *segment = &r->s->at[v].list[r->at[v]];
        w->owner[v] = segment->place;
        r->at[v] += segment->end == end;
        for (uint32_t i = 0; i < node->n_kids; i++) {
            if (owner_at_kid(w, node, i) == w->owner[v])
                w->keeper[v] = i;
        }
    }
}

/* ----------------------------------------------------------- prescribed -- */

/* Where strangers find a block: u, by node. */
typedef struct finder {
    bool *is_above;  /* by node: the block's rank is below, or it */
    double *u;       /* by node that is not above */
    uint64_t *bytes; /* by place: of all blocks before it; [n_ranks + 1] */
} finder;

/* The middle of the block's bytes among all below v. */
static double middle(const writer *w, const finder *f, uint32_t v,
                     uint32_t place)
{
    const tt_hier_node *node = &w->h->nodes[v];
    uint64_t first = f->bytes[node->first_place];
    uint64_t all = f->bytes[node->first_place + node->n_ranks] - first;
    double before = (double)(f->bytes[place] - first);
    double upto = (double)(f->bytes[place + 1] - first);
    if (all > 0)
        return (before + upto) / 2 / (double)all;
    return (place - node->first_place + 0.5) / node->n_ranks;
}

static bool is_below(const tt_hier_node *node, uint32_t place)
{
    return place - node->first_place < node->n_ranks;
}

/* v is above the block's rank: its kids are, too, or learn where in their
 * sibling the block is. */
static void descend(writer *w, finder *f, uint32_t v, uint32_t place)
{
    const tt_hier_node *node = &w->h->nodes[v];
    for (uint32_t i = 0; i < node->n_kids; i++) {
        bool is_it = is_below(&w->h->nodes[node->first_kid + i], place);
        f->is_above[node->first_kid + i] = is_it;
        if (is_it)
            w->keeper[v] = i;
    }
    double u = middle(w, f, node->first_kid + w->keeper[v], place);
    for (uint32_t i = 0; i < node->n_kids; i++)
        f->u[node->first_kid + i] = u;
}

/* v is a stranger: the kid at u keeps the block; inside, u is what is left of
 * it. */
static void point(writer *w, finder *f, uint32_t v)
{
    const tt_hier_node *node = &w->h->nodes[v];
    const uint64_t *weight = &w->l->weight[node->first_kid];
    double at = f->u[v] * (double)w->l->total[v];
    uint32_t kid = 0;
    while (kid + 1 < node->n_kids && at >= (double)weight[kid]) {
        at -= (double)weight[kid];
        kid++;
    }
    double u = weight[kid] == 0 ? 0.5 : at / (double)weight[kid];
    w->keeper[v] = kid;
    for (uint32_t i = 0; i < node->n_kids; i++) {
        f->is_above[node->first_kid + i] = false;
        f->u[node->first_kid + i] = u;
    }
}

/* The owners of the block of the rank at `place`. */
static void find_owners(writer *w, finder *f, uint32_t place)
{
    f->is_above[0] = true;
    for (uint32_t v = 0; v < w->h->n_nodes; v++) {
        if (w->h->nodes[v].n_kids == 0)
            w->owner[v] = w->h->nodes[v].first_place;
        else if (f->is_above[v])
            descend(w, f, v, place);
        else
            point(w, f, v);
    }
    for (uint32_t v = w->h->n_nodes; v-- > 0;) {
        if (w->h->nodes[v].n_kids > 0)
            w->owner[v] = owner_at_kid(w, &w->h->nodes[v], w->keeper[v]);
    }
}

/* --------------------------------------------------------------- chains -- */

typedef struct chains {
    uint32_t *held; /* by node: the step from which its owner may send */
    bool *is_above; /* by node: the root of the collective is below, or it */
    bool is_dry;    /* dry: only count the steps */
    uint32_t n_steps;
} chains;

/* From the owner at one node to that at its sibling. */
static void hop(const writer *w, chains *c, uint32_t chunk, uint32_t from,
                uint32_t to)
{
    uint32_t step = c->held[from];
    c->held[to] = step + 1;
    if (c->is_dry)
        c->n_steps = c->n_steps > step ? c->n_steps : step + 1;
    else /* of a distribution the number of steps cancels out */
        tt_film_add(&w->film, w->film.n_steps - 1 - step, chunk, w->owner[to],
                    w->owner[from]);
}

/* From kid `first`, whose owner has the chunk, to the owners at all kids. */
static void chain_at(const writer *w, chains *c, uint32_t chunk, uint32_t v,
                     uint32_t first)
{
    const tt_hier_node *node = &w->h->nodes[v];
    uint32_t keeper = w->keeper[v];
    uint32_t at = node->first_kid + first;
    if (keeper != first) {
        hop(w, c, chunk, at, node->first_kid + keeper);
        at = node->first_kid + keeper;
    }
    for (uint32_t i = 1; i < node->n_kids; i++) {
        uint32_t kid = (first + i) % node->n_kids;
        if (kid == keeper)
            continue;
        hop(w, c, chunk, at, node->first_kid + kid);
        at = node->first_kid + kid;
    }
}

/* Up from the root of the collective, then down everywhere else. */
static void cast(const writer *w, chains *c, uint32_t chunk)
{
    uint32_t kid = w->h->leaf_at[w->h->place_of[w->l->p->root]];
    c->held[kid] = 0;
    while (kid != 0) {
        uint32_t v = w->h->nodes[kid].parent;
        uint32_t first_kid = w->h->nodes[v].first_kid;
        chain_at(w, c, chunk, v, kid - first_kid);
        c->held[v] = c->held[first_kid + w->keeper[v]];
        kid = v;
    }
    for (uint32_t v = 0; v < w->h->n_nodes; v++) {
        const tt_hier_node *node = &w->h->nodes[v];
        if (node->n_kids == 0 || c->is_above[v])
            continue;
        c->held[node->first_kid + w->keeper[v]] = c->held[v];
        chain_at(w, c, chunk, v, w->keeper[v]);
    }
}

/* ------------------------------------------------------------------ plan -- */

/* Block b is chunk b. */
static tutti_err write_blocks(writer *w, tt_arena *arena)
{
    const uint64_t *sizes = w->l->p->block_bytes;
    uint32_t n = w->h->n_ranks;
    finder f = {0};
    f.is_above = tt_arena_new(arena, w->h->n_nodes, sizeof(*f.is_above));
    f.u = tt_arena_new(arena, w->h->n_nodes, sizeof(*f.u));
    f.bytes = tt_arena_new(arena, (size_t)n + 1, sizeof(*f.bytes));
    if (arena->err)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        f.bytes[i + 1] = f.bytes[i] + (sizes ? sizes[w->h->rank_at[i]] : 1);
    tt_builder_whole_blocks(w->film.b);
    for (uint32_t block = 0; block < n; block++) {
        tt_progress_tell(w->l->p->progress, "writing transfers", block, n);
        find_owners(w, &f, w->h->place_of[block]);
        combine(w, block);
    }
    return TUTTI_OK;
}

/* All chunks once: as combinations when c is NULL, else as chains. */
static void write_segments(writer *w, reader *r, chains *c)
{
    const tt_segment_list *segments = &r->s->at[0];
    for (uint32_t v = 0; v < w->h->n_nodes; v++)
        r->at[v] = 0;
    for (uint32_t chunk = 0; chunk < segments->n; chunk++) {
        tt_progress_tell(w->l->p->progress, "writing transfers", chunk,
                         segments->n);
        read_owners(r, w);
        if (c)
            cast(w, c, chunk);
        else
            combine(w, chunk);
    }
}

static tutti_err write_chains(writer *w, reader *r, tt_arena *arena)
{
    chains c = {.is_dry = w->film.is_forth};
    c.held = tt_arena_new(arena, w->h->n_nodes, sizeof(*c.held));
    c.is_above = tt_arena_new(arena, w->h->n_nodes, sizeof(*c.is_above));
    if (arena->err)
        return TUTTI_ENOMEM;
    uint32_t v = w->h->leaf_at[w->h->place_of[w->l->p->root]];
    for (; v != TT_NONE; v = w->h->nodes[v].parent)
        c.is_above[v] = true;
    if (c.is_dry) { /* how long is what a reduction is the mirror image of? */
        write_segments(w, r, &c);
        w->film.n_steps = c.n_steps;
        c.is_dry = false;
    }
    write_segments(w, r, &c);
    return TUTTI_OK;
}

static tutti_err write_free(writer *w, const tt_segments *s, tt_arena *arena)
{
    reader r = {.s = s};
    r.at = tt_arena_new(arena, w->h->n_nodes, sizeof(*r.at));
    if (!r.at)
        return TUTTI_ENOMEM;
    uint64_t begin = 0;
    for (size_t i = 0; i < s->at[0].n; i++) {
        tt_builder_chunk(w->film.b, 0, begin, s->at[0].list[i].end);
        begin = s->at[0].list[i].end;
    }
    if (tt_coll_has_root(w->l->p->collective))
        return write_chains(w, &r, arena);
    write_segments(w, &r, NULL);
    return TUTTI_OK;
}

/* As many segments as give so many transfers; one per rank in any case. */
static uint64_t segments_for(uint64_t n_transfers, uint32_t n_ranks)
{
    uint64_t n = n_transfers / (2 * (uint64_t)n_ranks);
    return n > n_ranks ? n : n_ranks;
}

static tutti_err make_segments(const tt_levels *l, tt_arena *arena,
                               tt_segments *out, tutti_diag *diag)
{
    const tt_segments_limits limits = {
        .by_paper = segments_for(PAPER_TRANSFERS, l->h->n_ranks),
        .at_all = segments_for(MOST_TRANSFERS, l->h->n_ranks),
    };
    return tt_segments_make(l, &limits, arena, out, diag);
}

tutti_err tt_levels_plan(const tt_problem *p, const tt_hierarchy *h,
                         tt_weighting weighting, tt_arena *scratch,
                         tt_builder *b, tutti_diag *diag)
{
    tt_levels l;
    tt_segments s = {.at = NULL};
    writer w = {.l = &l, .h = h, .film = tt_film_of(p, b, h->rank_at)};
    tutti_err err = tt_levels_init(&l, p, h, weighting, scratch);
    w.owner = tt_arena_new(scratch, h->n_nodes, sizeof(*w.owner));
    w.keeper = tt_arena_new(scratch, h->n_nodes, sizeof(*w.keeper));
    if (err || time_steps(&w, scratch))
        return TUTTI_ENOMEM;
    if (p->collective == TUTTI_REDUCE_SCATTER ||
        p->collective == TUTTI_ALL_GATHER)
        return write_blocks(&w, scratch);
    err = make_segments(&l, scratch, &s, diag);
    if (err)
        return err;
    tt_builder_parts(b, s.n_parts);
    return write_free(&w, &s, scratch);
}

const char *tt_levels_why_not(const tt_problem *p)
{
    if (!p->topology)
        return "it needs a topology";
    if (p->n_ranks > MOST_RANKS)
        return "it plans for at most 8192 ranks";
    return tt_why_no_trees(p);
}
