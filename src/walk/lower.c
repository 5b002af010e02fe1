/* SPDX-License-Identifier: BSD-3-Clause
 * lower.c - binds a part to sizes and buffers.
 *
 * The order of work: cut (how many slices each chunk has), place (where each
 * chunk lives on this rank), lanes (runs of transfers), groups (receives that
 * form one reduction), edges (who waits for whom, by walking the steps), then
 * everything is packed into arrays.
 *
 * Where values live: before the first receive of a chunk in the
 * user's input, afterwards in the output, or in scratch where the rank must
 * not return the chunk; a chunk that is never received but must be returned
 * is copied when the call begins, and lives in the output from then on.
 *
 * Invariant: lanes that depend on each other share a chunk and so have equal
 * slice counts; slice k waits for slices k only.
 * Next: machine.c (performs a bound part). */
#include "walk/lower.h"

#include <string.h>

typedef struct chunk_info {
    uint64_t n_elems;
    uint32_t n_slices;
    bool is_received, is_copied;
    uint64_t far_at; /* in the input of any rank that has it at the start */
    tt_span in, home;
    uint32_t last_group; /* while walking: TT_NONE before the first */
    uint32_t pending;    /* list of sends since last_group, in `nodes` */
} chunk_info;

typedef struct edge {
    uint32_t from, to;
} edge;

typedef struct edges {
    edge *list;
    size_t n, cap;
} edges;

typedef struct node {
    uint32_t lane, next;
} node;

typedef struct work {
    const tt_part *part;
    const tt_layout *lay;
    tt_cut cut;
    tt_arena arena; /* temporary */
    tt_bound *b;
    chunk_info *info;       /* [part->n_chunks] */
    tt_lane *sends, *recvs; /* in schedule order; chunk = index into info */
    uint32_t n_sends, n_recvs, n_groups;
    tt_group *groups;
    uint32_t *group_lanes; /* recv lanes are contiguous per group */
    edges group_to_send, group_to_group, send_to_group;
    node *nodes;
    size_t n_nodes, cap_nodes;
} work;

/* ------------------------------------------------------------------ cut -- */

static tt_cut cut_of(const tt_part *part, const tt_layout *lay)
{
    const tt_cut_input in = {
        .elem_bytes = lay->elem_bytes,
        .n_parts = part->n_parts,
        .total_bytes = lay->total_bytes,
        .front_bytes = lay->front_bytes,
        .staging_max_bytes = lay->staging_max_bytes,
        .most_in_parts = part->max_in_parts,
        .max_block_bytes = lay->max_block_bytes,
        .window = lay->window,
        .max_payload = lay->max_payload,
    };
    return tt_cut_make(&in);
}

/* ---------------------------------------------------------------- place -- */

static void place_chunk(work *w, size_t i, uint64_t *scratch)
{
    const tt_part_chunk *pc = &w->part->chunks[i];
    const tt_layout *lay = w->lay;
    chunk_info *info = &w->info[i];
    uint64_t n = lay->n_elems(lay->ctx, pc->c.block);
    uint64_t begin = tt_cut_border(&w->cut, pc->c.begin, n);
    info->n_elems = tt_cut_border(&w->cut, pc->c.end, n) - begin;
    info->n_slices = tt_cut_slices(&w->cut, info->n_elems);
    info->last_group = TT_NONE;
    info->pending = TT_NONE;
    info->far_at = (lay->in_at(lay->ctx, pc->c.block) + begin) *
                   lay->elem_bytes;
    if (pc->start != TT_HOLD_NONE)
        info->in = (tt_span){
            .offset = info->far_at, .n_elems = info->n_elems, .base = TT_IN};
    info->home = (tt_span){.n_elems = info->n_elems, .base = TT_OUT};
    if (pc->end != TT_HOLD_NONE) {
        info->home.offset = (lay->out_at(lay->ctx, pc->c.block) + begin) *
                            lay->elem_bytes;
        info->is_copied = !info->is_received;
    } else if (info->is_received) {
        info->home.base = TT_SCRATCH;
        info->home.offset = *scratch;
        *scratch += info->n_elems * lay->elem_bytes;
    }
}

static size_t find_chunk(const tt_part *part, uint32_t chunk)
{
    size_t low = 0, high = part->n_chunks;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (part->chunks[mid].chunk <= chunk)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static tutti_err place(work *w)
{
    const tt_part *part = w->part;
    w->info = tt_arena_new(&w->arena, part->n_chunks, sizeof(*w->info));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    for (uint64_t i = 0; i < part->n_xfers; i++) {
        const tt_transfer *t = &part->xfers[i].t;
        if (t->dst == part->rank)
            w->info[find_chunk(part, t->chunk)].is_received = true;
    }
    uint64_t scratch = 0;
    uint32_t finest = 1;
    for (size_t i = 0; i < part->n_chunks; i++) {
        place_chunk(w, i, &scratch);
        if (w->info[i].n_slices > finest)
            finest = w->info[i].n_slices;
    }
    w->b->scratch_bytes = scratch;
    w->b->n_positions = finest;
    return TUTTI_OK;
}

/* The chunk's value on this rank right now (while walking the steps). */
static tt_span value_now(const chunk_info *info)
{
    if (info->last_group != TT_NONE || info->is_copied)
        return info->home;
    return info->in;
}

static bool same_memory(const work *w, const tt_span *a, const tt_span *b)
{
    if (a->base == b->base)
        return a->offset == b->offset;
    return w->lay->in_place && a->base != TT_SCRATCH && b->base != TT_SCRATCH;
}

/* ---------------------------------------------------------------- lanes -- */

static bool extends(const work *w, const tt_lane *lane, const tt_transfer *t,
                    size_t at)
{
    const chunk_info *info = &w->info[at];
    uint64_t bytes = info->n_elems * w->lay->elem_bytes;
    return !w->lay->is_near && lane->step == t->step && lane->n_slices == 1 &&
           info->n_slices == 1 && lane->chunk + lane->n_chunks == at &&
           w->part->chunks[at].chunk == w->part->chunks[at - 1].chunk + 1 &&
           lane->is_copy == (t->op == TT_XFER_COPY) &&
           lane->slice_bytes + bytes <= w->lay->max_payload / 2;
}

/* Where tables by peer and port have them. */
static size_t key_of(const work *w, uint32_t peer, uint32_t port)
{
    return (size_t)peer * w->part->n_ports + port;
}

static void add_lane(work *w, const tt_part_xfer *x, uint32_t *open,
                     uint32_t *wires)
{
    const tt_transfer *t = &x->t;
    bool is_send = t->src == w->part->rank;
    uint32_t peer = is_send ? t->dst : t->src;
    size_t key = 2 * key_of(w, peer, x->port) + is_send;
    tt_lane *lanes = is_send ? w->sends : w->recvs;
    uint32_t *n = is_send ? &w->n_sends : &w->n_recvs;
    size_t at = find_chunk(w->part, t->chunk);
    const chunk_info *info = &w->info[at];
    if (info->n_elems == 0)
        return;
    uint32_t *last = &open[key];
    uint64_t bytes = info->n_elems * w->lay->elem_bytes;
    if (*last != TT_NONE && extends(w, &lanes[*last], t, at)) {
        lanes[*last].n_chunks++;
        lanes[*last].slice_bytes += bytes;
        return;
    }
    const bool may = w->lay->is_near ||
                     (w->part->collective == TUTTI_ALL_REDUCE &&
                      info->n_slices > 1);
    uint64_t slice = 0;
    for (uint32_t k = 0; k < info->n_slices; k++) {
        uint64_t len = tt_slice_at(info->n_elems, k + 1, info->n_slices) -
                       tt_slice_at(info->n_elems, k, info->n_slices);
        slice = len > slice ? len : slice;
    }
    lanes[*n] = (tt_lane){
        .peer = peer,
        .step = t->step,
        .chunk = (uint32_t)at,
        .n_chunks = 1,
        .wire = wires[key]++,
        .n_slices = info->n_slices,
        .n_elems = info->n_elems,
        .stride = w->b->n_positions / info->n_slices,
        .is_copy = t->op == TT_XFER_COPY,
        .port = x->port,
        .is_pull = x->may_pull && may,
        .is_put = x->may_put && may,
        .vector_at = x->may_put ? info->home.offset : info->far_at,
        .slice_bytes = slice * w->lay->elem_bytes,
    };
    *last = (*n)++;
}

static tutti_err make_lanes(work *w)
{
    const tt_part *part = w->part;
    size_t n = 2 * key_of(w, part->n_ranks, 0);
    uint32_t *open = tt_arena_new(&w->arena, n, sizeof(*open));
    uint32_t *wires = tt_arena_new(&w->arena, n, sizeof(*wires));
    w->sends = tt_arena_new(&w->arena, part->n_xfers, sizeof(tt_lane));
    w->recvs = tt_arena_new(&w->arena, part->n_xfers, sizeof(tt_lane));
    w->groups = tt_arena_new(&w->arena, part->n_xfers, sizeof(tt_group));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    memset(open, 0xff, n * sizeof(*open));
    for (uint64_t i = 0; i < part->n_xfers; i++)
        add_lane(w, &part->xfers[i], open, wires);
    return TUTTI_OK;
}

/* Receive lanes are in order of (step, first chunk, src); those of a step
 * whose runs of chunks overlap form one group. */
static void make_groups(work *w)
{
    uint64_t reach = 0;
    for (uint32_t l = 0; l < w->n_recvs; l++) {
        tt_lane *lane = &w->recvs[l];
        tt_group *g = w->n_groups ? &w->groups[w->n_groups - 1] : NULL;
        if (!g || w->recvs[g->lanes].step != lane->step ||
            lane->chunk >= reach) {
            g = &w->groups[w->n_groups++];
            *g = (tt_group){.n_slices = lane->n_slices,
                            .stride = lane->stride,
                            .is_copy = lane->is_copy,
                            .lanes = l};
            reach = 0;
        }
        g->n_lanes++;
        lane->group = w->n_groups - 1;
        g->pulls |= lane->is_pull;
        if (lane->chunk + lane->n_chunks > reach)
            reach = lane->chunk + lane->n_chunks;
    }
}

/* ---------------------------------------------------------------- edges -- */

static void add_edge(work *w, edges *e, uint32_t from, uint32_t to)
{
    if (e->n > 0 && e->list[e->n - 1].from == from &&
        e->list[e->n - 1].to == to)
        return;
    e->list = tt_arena_grow(&w->arena, e->list, &e->cap, e->n + 1,
                            sizeof(edge));
    if (!w->arena.err)
        e->list[e->n++] = (edge){from, to};
}

static void walk_send(work *w, uint32_t l, tt_span *spans, uint32_t *n_spans)
{
    tt_lane *lane = &w->sends[l];
    lane->span = *n_spans;
    lane->is_origin = true;
    lane->is_contiguous = true;
    for (uint32_t i = 0; i < lane->n_chunks; i++) {
        chunk_info *info = &w->info[lane->chunk + i];
        spans[*n_spans] = value_now(info);
        const tt_span *now = &spans[*n_spans];
        if (i > 0 && (now[-1].base != now->base ||
                      now[-1].offset + now[-1].n_elems * w->lay->elem_bytes !=
                          now->offset))
            lane->is_contiguous = false;
        ++*n_spans;
        lane->has_input |= info->last_group == TT_NONE;
        if (info->last_group != TT_NONE) {
            lane->is_origin = false;
            add_edge(w, &w->group_to_send, info->last_group, l);
        }
        w->nodes = tt_arena_grow(&w->arena, w->nodes, &w->cap_nodes,
                                 w->n_nodes + 1, sizeof(node));
        if (w->arena.err)
            return;
        w->nodes[w->n_nodes] = (node){l, info->pending};
        info->pending = (uint32_t)w->n_nodes++;
    }
}

/* Group g may write chunk `info` once what was sent from there has left. */
static void walk_write(work *w, uint32_t g, chunk_info *info,
                       const tt_span *spans)
{
    size_t at = (size_t)(info - w->info);
    if (info->last_group != TT_NONE)
        add_edge(w, &w->group_to_group, info->last_group, g);
    for (uint32_t p = info->pending; p != TT_NONE; p = w->nodes[p].next) {
        const tt_lane *lane = &w->sends[w->nodes[p].lane];
        const tt_span *source = &spans[lane->span + (at - lane->chunk)];
        if (same_memory(w, source, &info->home))
            add_edge(w, &w->send_to_group, w->nodes[p].lane, g);
    }
    info->pending = TT_NONE;
}

/* Whether the reduction of (chunk, step) makes the value whole. */
static bool completes(const tt_part *part, uint32_t chunk, uint32_t step)
{
    uint64_t low = 0, high = part->n_xfers;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        const tt_transfer *t = &part->xfers[mid].t;
        if (t->step < step || (t->step == step && t->chunk < chunk))
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < part->n_xfers; low++) {
        const tt_part_xfer *x = &part->xfers[low];
        if (x->t.step != step || x->t.chunk != chunk)
            return false;
        if (x->t.dst == part->rank)
            return x->completes;
    }
    return false;
}

/* Is the chunk's value sent in this step, too? */
static bool exchanges(const work *w, const chunk_info *info, uint32_t step)
{
    for (uint32_t p = info->pending; p != TT_NONE; p = w->nodes[p].next)
        if (w->sends[w->nodes[p].lane].step == step)
            return true;
    return false;
}

static void walk_group(work *w, uint32_t g, const tt_span *spans)
{
    tt_bound *b = w->b;
    tt_group *group = &w->groups[g];
    const tt_lane *first = &w->recvs[group->lanes];
    uint32_t chunk = first->chunk, reach = chunk + 1;
    group->pieces = b->n_pieces;
    for (; chunk < reach; chunk++) {
        chunk_info *info = &w->info[chunk];
        tt_piece *piece = &b->pieces[b->n_pieces++];
        *piece = (tt_piece){
            .own = value_now(info),
            .to = info->home,
            .divides = completes(w->part, w->part->chunks[chunk].chunk,
                                 first->step),
            .exchanges = !group->is_copy && exchanges(w, info, first->step),
        };
        for (uint32_t l = 0; l < group->n_lanes; l++) {
            uint32_t end = first[l].chunk + first[l].n_chunks;
            reach = end > reach ? end : reach;
        }
        walk_write(w, g, info, spans);
        info->last_group = g;
    }
    group->n_pieces = b->n_pieces - group->pieces;
}

static tutti_err walk(work *w)
{
    uint32_t s = 0, g = 0, n_spans = 0;
    while (!w->arena.err && (s < w->n_sends || g < w->n_groups)) {
        uint32_t step_s = s < w->n_sends ? w->sends[s].step : TT_NONE;
        uint32_t step_g = g < w->n_groups ? w->recvs[w->groups[g].lanes].step
                                          : TT_NONE;
        if (s < w->n_sends && step_s <= step_g)
            walk_send(w, s++, w->b->spans, &n_spans);
        else
            walk_group(w, g++, w->b->spans);
    }
    return w->arena.err;
}

/* ----------------------------------------------------------------- pack -- */

/* n items that each have a run, at this place in the item. */
typedef struct items {
    void *first;
    uint32_t n;
    size_t bytes, run_at;
} items;

static tt_run *run_of(const items *of, uint32_t i)
{
    return (tt_run *)(void *)((char *)of->first + i * of->bytes + of->run_at);
}

/* The lists by `to` (or `from`) of some edges, appended to index. */
static void pack_edges(work *w, const edges *e, bool by_to, items of)
{
    tt_bound *b = w->b;
    uint32_t *index = b->index + b->index[0]; /* index[0]: next free */
    uint32_t at = b->index[0];
    uint32_t *count = w->group_lanes; /* scratch, of.n + 1 */
    memset(count, 0, ((size_t)of.n + 1) * sizeof(*count));
    for (size_t i = 0; i < e->n; i++)
        count[(by_to ? e->list[i].to : e->list[i].from) + 1]++;
    for (uint32_t i = 0; i < of.n; i++) {
        *run_of(&of, i) = (tt_run){at + count[i], count[i + 1]};
        count[i + 1] += count[i];
    }
    for (size_t i = 0; i < e->n; i++) {
        uint32_t key = by_to ? e->list[i].to : e->list[i].from;
        index[count[key]++] = by_to ? e->list[i].from : e->list[i].to;
    }
    b->index[0] += (uint32_t)e->n;
}

static items runs_of_sends(const tt_bound *b, size_t run_at)
{
    return (items){b->sends, b->n_sends, sizeof(*b->sends), run_at};
}

static items runs_of_groups(const tt_bound *b, size_t run_at)
{
    return (items){b->groups, b->n_groups, sizeof(*b->groups), run_at};
}

static void pack_all_edges(work *w)
{
    const tt_bound *b = w->b;
    pack_edges(w, &w->group_to_send, true,
               runs_of_sends(b, offsetof(tt_lane, preds)));
    pack_edges(w, &w->group_to_send, false,
               runs_of_groups(b, offsetof(tt_group, sends)));
    pack_edges(w, &w->group_to_group, true,
               runs_of_groups(b, offsetof(tt_group, preds)));
    pack_edges(w, &w->group_to_group, false,
               runs_of_groups(b, offsetof(tt_group, nexts)));
    pack_edges(w, &w->send_to_group, true,
               runs_of_groups(b, offsetof(tt_group, gates)));
    pack_edges(w, &w->send_to_group, false,
               runs_of_sends(b, offsetof(tt_lane, blocks)));
}

/* The lists of receive lanes: of each group, and of each piece by src. */
static void pack_receives(work *w)
{
    tt_bound *b = w->b;
    for (uint32_t g = 0; g < b->n_groups; g++) {
        tt_group *group = &b->groups[g];
        uint32_t first = group->lanes;
        group->lanes = b->index[0];
        for (uint32_t l = 0; l < group->n_lanes; l++)
            b->index[b->index[0]++] = first + l;
        uint32_t chunk = b->recvs[first].chunk;
        for (uint32_t p = 0; p < group->n_pieces; p++, chunk++) {
            tt_piece *piece = &b->pieces[group->pieces + p];
            piece->inputs = b->index[0];
            for (uint32_t l = first; l < first + group->n_lanes; l++) {
                const tt_lane *lane = &b->recvs[l];
                if (chunk < lane->chunk ||
                    chunk >= lane->chunk + lane->n_chunks)
                    continue;
                uint32_t *list = b->index + piece->inputs;
                uint32_t at = piece->n_inputs++;
                for (; at > 0 && b->recvs[list[at - 1]].peer > lane->peer; at--)
                    list[at] = list[at - 1];
                list[at] = l;
                b->index[0]++;
                piece->own_at += piece->exchanges && lane->peer < w->part->rank;
            }
            if (piece->n_inputs > b->most_inputs)
                b->most_inputs = piece->n_inputs;
        }
    }
}

static size_t lane_key(const work *w, const tt_lane *lane)
{
    return key_of(w, lane->peer, lane->port);
}

/* Partners sorted by peer and port; sends regrouped by partner. The numbers in
 * edges speak of schedule order, so `where` maps them first. */
static tutti_err make_partners(work *w)
{
    tt_bound *b = w->b;
    const size_t n = key_of(w, w->part->n_ranks, 0);
    uint32_t *out = tt_arena_new(&w->arena, n + 1, sizeof(*out));
    uint32_t *in = tt_arena_new(&w->arena, n + 1, sizeof(*in));
    uint32_t *where = tt_arena_new(&w->arena, w->n_sends, sizeof(*where));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    for (uint32_t l = 0; l < w->n_sends; l++)
        out[lane_key(w, &w->sends[l])]++;
    for (uint32_t l = 0; l < w->n_recvs; l++)
        in[lane_key(w, &w->recvs[l])]++;
    for (size_t k = 0; k < n; k++)
        b->n_partners += out[k] > 0 || in[k] > 0;
    b->partners = tt_arena_new(&b->arena, b->n_partners, sizeof(tt_partner));
    if (b->arena.err)
        return TUTTI_ENOMEM;
    uint32_t p = 0, sends = 0;
    for (size_t k = 0; k < n; k++) {
        if (out[k] == 0 && in[k] == 0)
            continue;
        b->partners[p] = (tt_partner){.peer = (uint32_t)(k / w->part->n_ports),
                                      .port = (uint32_t)(k % w->part->n_ports),
                                      .sends = sends,
                                      .recvs = b->index[0]};
        sends += out[k];
        b->index[0] += in[k];
        out[k] = p++; /* from now on: the partner's number */
    }
    for (uint32_t l = 0; l < w->n_sends; l++) {
        p = out[lane_key(w, &w->sends[l])];
        tt_partner *partner = &b->partners[p];
        where[l] = partner->sends + partner->n_sends++;
        b->sends[where[l]] = w->sends[l];
        b->sends[where[l]].partner = p;
        partner->grants |= w->sends[l].is_pull;
        b->grants |= w->sends[l].is_pull;
    }
    for (uint32_t l = 0; l < w->n_recvs; l++) {
        p = out[lane_key(w, &w->recvs[l])];
        tt_partner *partner = &b->partners[p];
        b->index[partner->recvs + partner->n_recvs++] = l;
        b->recvs[l].partner = p;
        partner->grants |= b->recvs[l].is_put;
        b->grants |= b->recvs[l].is_put;
    }
    for (size_t i = 0; i < w->group_to_send.n; i++)
        w->group_to_send.list[i].to = where[w->group_to_send.list[i].to];
    for (size_t i = 0; i < w->send_to_group.n; i++)
        w->send_to_group.list[i].from = where[w->send_to_group.list[i].from];
    return TUTTI_OK;
}

static uint64_t lane_bytes(const work *w, const tt_lane *lane)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < lane->n_chunks; i++)
        n += w->info[lane->chunk + i].n_elems;
    return n * w->lay->elem_bytes;
}

static void add_costs(tt_bound *b)
{
    for (uint32_t l = 0; l < b->n_recvs; l++)
        b->partners[b->recvs[l].partner].in_cost +=
            (uint64_t)b->recvs[l].n_slices * TT_SLICE_COST;
    for (uint32_t l = 0; l < b->n_sends; l++)
        b->partners[b->sends[l].partner].out_cost +=
            (uint64_t)b->sends[l].n_slices * TT_SLICE_COST;
    for (uint32_t p = 0; p < b->n_partners; p++) {
        b->partners[p].in_cost += b->partners[p].in_bytes;
        b->partners[p].out_cost += b->partners[p].out_bytes;
    }
}

static void make_staging(work *w)
{
    tt_bound *b = w->b;
    uint64_t at = 0;
    for (uint32_t l = 0; l < b->n_recvs; l++) {
        tt_lane *lane = &b->recvs[l];
        uint32_t slots = lane->n_slices < b->window ? lane->n_slices
                                                    : b->window;
        if (w->lay->is_near)
            slots = 0;
        lane->staging = at;
        at += slots * tt_round_up(lane->slice_bytes, TT_CACHE_LINE);
        b->partners[lane->partner].in_bytes += lane_bytes(w, lane);
        const tt_group *group = &b->groups[lane->group];
        lane->is_contiguous = true;
        const tt_piece *piece = &b->pieces[group->pieces];
        for (uint32_t i = 1; i < group->n_pieces; i++)
            if (piece[i - 1].to.base != piece[i].to.base ||
                piece[i - 1].to.offset +
                        piece[i - 1].to.n_elems * b->elem_bytes !=
                    piece[i].to.offset)
                lane->is_contiguous = false;
    }
    for (uint32_t l = 0; l < b->n_sends; l++) {
        tt_lane *lane = &b->sends[l];
        b->partners[lane->partner].out_bytes += lane_bytes(w, lane);
        lane->staging = at;
        if (!lane->is_contiguous)
            at += tt_round_up(lane->slice_bytes, TT_CACHE_LINE);
    }
    b->staging_bytes = at;
}

static bool is_held(const work *w, size_t i)
{
    return w->part->chunks[i].start != TT_HOLD_NONE && w->info[i].n_elems > 0;
}

static tutti_err make_copies(work *w)
{
    tt_bound *b = w->b;
    const tt_part *part = w->part;
    for (size_t i = 0; i < part->n_chunks; i++) {
        b->n_copies += w->info[i].is_copied && w->info[i].n_elems > 0;
        b->n_inputs += is_held(w, i);
    }
    b->copies = tt_arena_new(&b->arena, b->n_copies, sizeof(tt_local_copy));
    b->inputs = tt_arena_new(&b->arena, b->n_inputs, sizeof(tt_held));
    if (b->arena.err)
        return TUTTI_ENOMEM;
    b->n_copies = b->n_inputs = 0;
    for (size_t i = 0; i < part->n_chunks; i++) {
        const chunk_info *info = &w->info[i];
        if (info->is_copied && info->n_elems > 0)
            b->copies[b->n_copies++] = (tt_local_copy){info->in, info->home,
                                                       info->n_slices};
        if (is_held(w, i))
            b->inputs[b->n_inputs++] = (tt_held){info->in, info->n_slices};
    }
    return TUTTI_OK;
}

/* The front counts, over result chunks, the slices that are still to come. */
static tutti_err make_front(work *w)
{
    tt_bound *b = w->b;
    b->results_at = tt_arena_new(&b->arena, b->n_positions, sizeof(uint32_t));
    if (!b->results_at)
        return TUTTI_ENOMEM;
    for (size_t i = 0; i < w->part->n_chunks; i++) {
        uint32_t g = w->info[i].last_group;
        if (g == TT_NONE || w->part->chunks[i].end == TT_HOLD_NONE ||
            b->groups[g].is_result)
            continue;
        b->groups[g].is_result = true;
        for (uint32_t k = 1; k <= b->groups[g].n_slices; k++)
            b->results_at[k * b->groups[g].stride - 1]++;
    }
    const tt_layout *lay = w->lay;
    for (uint32_t g = 0; g < b->n_groups; g++)
        b->groups[g].streams = lay->streams && b->groups[g].is_result;
    b->window_positions = UINT32_MAX;
    if (tt_coll_has_window(w->part->collective))
        b->window_positions = tt_cut_window(lay->front_window_bytes,
                                            lay->total_bytes, b->n_positions);
    return TUTTI_OK;
}

static void *dup_array(tt_arena *arena, const void *from, size_t n, size_t size)
{
    void *to = tt_arena_new(arena, n, size);
    if (to)
        memcpy(to, from, n * size);
    return to;
}

static tutti_err allocate(work *w)
{
    tt_bound *b = w->b;
    uint64_t n_spans = 1, n_pieces = 1;
    for (uint32_t l = 0; l < w->n_sends; l++)
        n_spans += w->sends[l].n_chunks;
    for (uint32_t l = 0; l < w->n_recvs; l++)
        n_pieces += w->recvs[l].n_chunks;
    b->spans = tt_arena_new(&b->arena, n_spans, sizeof(tt_span));
    b->pieces = tt_arena_new(&b->arena, n_pieces, sizeof(tt_piece));
    return b->arena.err;
}

static tutti_err pack(work *w)
{
    tt_bound *b = w->b;
    b->n_sends = w->n_sends;
    b->n_recvs = w->n_recvs;
    b->n_groups = w->n_groups;
    size_t n_index =
        2 +
        2 * (w->group_to_send.n + w->group_to_group.n + w->send_to_group.n) +
        2 * (size_t)w->n_recvs;
    for (uint32_t l = 0; l < w->n_recvs; l++)
        n_index += w->recvs[l].n_chunks;
    if (n_index > UINT32_MAX)
        return TUTTI_ELIMIT;
    b->index = tt_arena_new(&b->arena, n_index, sizeof(uint32_t));
    w->group_lanes = tt_arena_new(
        &w->arena, (size_t)w->n_sends + w->n_recvs + w->n_groups + 2,
        sizeof(uint32_t));
    b->sends = dup_array(&b->arena, w->sends, w->n_sends, sizeof(tt_lane));
    b->recvs = dup_array(&b->arena, w->recvs, w->n_recvs, sizeof(tt_lane));
    b->groups = dup_array(&b->arena, w->groups, w->n_groups, sizeof(tt_group));
    if (b->arena.err || w->arena.err)
        return TUTTI_ENOMEM;
    b->index[0] = 1;
    tutti_err err = make_partners(w);
    if (err)
        return err;
    pack_all_edges(w);
    pack_receives(w);
    make_staging(w);
    add_costs(b);
    for (uint32_t l = 0; l < b->n_sends; l++)
        if (b->sends[l].slice_bytes > w->lay->max_payload)
            return TUTTI_ELIMIT;
    for (uint32_t l = 0; l < b->n_recvs; l++)
        if (b->recvs[l].slice_bytes > w->lay->max_payload)
            return TUTTI_ELIMIT;
    err = make_copies(w);
    return err ? err : make_front(w);
}

static bool are_within(const tt_lane *lanes, uint32_t n)
{
    for (uint32_t l = 0; l < n; l++)
        if (lanes[l].n_slices != 1 || !(lanes[l].is_pull || lanes[l].is_put))
            return false;
    return true;
}

tutti_err tt_bound_create(const tt_part *part, const tt_layout *layout,
                          const tt_mem *mem, tt_bound **out)
{
    tt_bound *b = tt_new(mem, 1, sizeof(*b));
    if (!b)
        return TUTTI_ENOMEM;
    b->arena.mem = mem;
    b->schedule_id = part->id;
    b->elem_bytes = layout->elem_bytes;
    b->window = layout->window;
    b->total_bytes = layout->total_bytes;
    b->n_positions = 1;
    work w = {.part = part,
              .lay = layout,
              .cut = cut_of(part, layout),
              .arena = {.mem = mem},
              .b = b};
    tutti_err err = place(&w);
    if (!err)
        err = make_lanes(&w);
    if (!err)
        err = allocate(&w);
    if (!err) {
        make_groups(&w);
        err = walk(&w);
    }
    if (!err)
        err = pack(&w);
    tt_arena_free(&w.arena);
    if (err) {
        tt_bound_free(b);
        return err;
    }
    b->is_within = are_within(b->sends, b->n_sends) &&
                   are_within(b->recvs, b->n_recvs);
    *out = b;
    return TUTTI_OK;
}

void tt_bound_free(tt_bound *bound)
{
    if (!bound)
        return;
    const tt_mem *mem = bound->arena.mem;
    tt_arena_free(&bound->arena);
    tt_free(mem, bound, 1, sizeof(*bound));
}
