/* SPDX-License-Identifier: BSD-3-Clause
 * part.c - takes one rank's part out of a schedule.
 *
 * What a rank's own transfers do not tell: which reduction makes a value whole
 * (where an average divides), and which transfers need only one of the two
 * ranks, where it has the other's buffers within reach. The
 * schedule is proven, so counting contributions is enough: sets need not be
 * tracked.
 *
 * Cost O(transfers), memory O(own transfers + own chunks). Next: lower.c. */
#include "walk/lower.h"

#include <string.h>

typedef struct counts {
    uint32_t *held;   /* [n_ranks] contributions in the value */
    uint32_t *before; /* [n_ranks] the same at the start of the step */
    uint64_t *stamp;  /* [n_ranks] chunk + 1 for which held is valid */
} counts;

static uint32_t at_start(const tutti_schedule *s, uint64_t block, uint32_t rank)
{
    uint32_t who;
    tt_hold hold = tt_sched_start(s, block, rank, &who);
    return hold == TT_HOLD_NONE ? 0 : 1;
}

static void touch(const tutti_schedule *s, counts *n, uint32_t chunk,
                  uint32_t rank)
{
    if (n->stamp[rank] == (uint64_t)chunk + 1)
        return;
    n->stamp[rank] = (uint64_t)chunk + 1;
    n->held[rank] = at_start(s, s->chunks[chunk].block, rank);
}

/* Marks, in done[i], the transfers of one chunk whose reduction makes their
 * receiver's value whole. */
static void count_chunk(const tutti_schedule *s, const tt_by_chunk *by,
                        uint32_t chunk, counts *n, uint8_t *done)
{
    uint64_t i = by->first[chunk];
    const uint64_t end = by->first[chunk + 1];
    while (i < end) {
        uint32_t step = s->transfers[by->order[i]].step;
        uint64_t stop = i;
        for (; stop < end; stop++) {
            const tt_transfer *t = &s->transfers[by->order[stop]];
            if (t->step != step)
                break;
            touch(s, n, chunk, t->src);
            touch(s, n, chunk, t->dst);
            n->before[t->src] = n->held[t->src];
        }
        for (uint64_t j = i; j < stop; j++) {
            const tt_transfer *t = &s->transfers[by->order[j]];
            uint32_t add = n->before[t->src];
            n->held[t->dst] = t->op == TT_XFER_COPY ? add
                                                    : n->held[t->dst] + add;
        }
        for (uint64_t j = i; j < stop; j++) {
            const tt_transfer *t = &s->transfers[by->order[j]];
            done[by->order[j]] = t->op == TT_XFER_REDUCE &&
                                 n->held[t->dst] == s->n_ranks;
        }
        i = stop;
    }
}

static tutti_err mark_complete(const tutti_schedule *s, const tt_by_chunk *by,
                               tt_arena *arena, uint8_t *done)
{
    counts n = {
        .held = tt_arena_new(arena, s->n_ranks, sizeof(uint32_t)),
        .before = tt_arena_new(arena, s->n_ranks, sizeof(uint32_t)),
        .stamp = tt_arena_new(arena, s->n_ranks, sizeof(uint64_t)),
    };
    if (arena->err)
        return TUTTI_ENOMEM;
    for (uint64_t c = 0; c < s->n_chunks; c++)
        count_chunk(s, by, (uint32_t)c, &n, done);
    return TUTTI_OK;
}

/* What ranks do with one chunk, up to the step that is looked at. */
typedef struct moves {
    uint64_t *stamp;    /* [n_ranks] chunk + 1 for which the others are valid */
    uint32_t *n_sent;   /* [n_ranks] transfers */
    uint32_t *sent_to;  /* [n_ranks] TT_NONE: more than one rank */
    uint32_t *sent_at;  /* [n_ranks] the last step */
    uint32_t *received; /* [n_ranks] the first step, or TT_NONE */
} moves;

static void touch_moves(moves *m, uint32_t chunk, uint32_t rank)
{
    if (m->stamp[rank] == (uint64_t)chunk + 1)
        return;
    m->stamp[rank] = (uint64_t)chunk + 1;
    m->n_sent[rank] = 0;
    m->sent_to[rank] = TT_NONE;
    m->received[rank] = TT_NONE;
}

static void note_move(moves *m, const tt_transfer *t)
{
    touch_moves(m, t->chunk, t->src);
    touch_moves(m, t->chunk, t->dst);
    if (m->n_sent[t->src]++ == 0)
        m->sent_to[t->src] = t->dst;
    else if (m->sent_to[t->src] != t->dst)
        m->sent_to[t->src] = TT_NONE;
    m->sent_at[t->src] = t->step;
    if (m->received[t->dst] == TT_NONE)
        m->received[t->dst] = t->step;
}

/* The sender has its own value still, and the receiver has sent nothing of the
 * chunk that would have to leave before it can take this. */
static bool may_pull(const moves *m, const tt_transfer *t)
{
    return m->received[t->src] >= t->step && m->n_sent[t->dst] == 0;
}

/* It is the first thing that the receiver gets of the chunk, and nobody reads
 * what it overwrites: but for the sender, who has done so in an earlier
 * step. */
static bool may_put(const moves *m, const tt_transfer *t)
{
    return t->op == TT_XFER_COPY && m->received[t->dst] == t->step &&
           (m->n_sent[t->dst] == 0 ||
            (m->sent_to[t->dst] == t->src && m->sent_at[t->dst] < t->step));
}

enum { MAY_PULL = 1, MAY_PUT = 2 };

static void mark_chunk(const tutti_schedule *s, const uint32_t *order,
                       uint64_t n, moves *m, uint8_t *within)
{
    const bool puts = s->collective == TUTTI_ALL_REDUCE;
    for (uint64_t i = 0, stop; i < n; i = stop) {
        uint32_t step = s->transfers[order[i]].step;
        for (stop = i; stop < n && s->transfers[order[stop]].step == step;)
            note_move(m, &s->transfers[order[stop++]]);
        for (uint64_t j = i; j < stop; j++) {
            const tt_transfer *t = &s->transfers[order[j]];
            within[order[j]] = (may_pull(m, t) ? MAY_PULL : 0) |
                               (puts && may_put(m, t) ? MAY_PUT : 0);
        }
    }
}

/* Which transfers the ranks can do alone, each in the other's buffers. */
static tutti_err mark_within(const tutti_schedule *s, const tt_by_chunk *by,
                             tt_arena *arena, uint8_t *within)
{
    moves m = {
        .stamp = tt_arena_new(arena, s->n_ranks, sizeof(uint64_t)),
        .n_sent = tt_arena_new(arena, s->n_ranks, sizeof(uint32_t)),
        .sent_to = tt_arena_new(arena, s->n_ranks, sizeof(uint32_t)),
        .sent_at = tt_arena_new(arena, s->n_ranks, sizeof(uint32_t)),
        .received = tt_arena_new(arena, s->n_ranks, sizeof(uint32_t)),
    };
    if (arena->err)
        return TUTTI_ENOMEM;
    for (uint64_t c = 0; c < s->n_chunks; c++)
        mark_chunk(s, by->order + by->first[c], by->first[c + 1] - by->first[c],
                   &m, within);
    return TUTTI_OK;
}

/* Per transfer of the schedule; NULL: none. */
typedef struct xfer_marks {
    uint8_t *done, *within;
} xfer_marks;

static tutti_err make_marks(const tutti_schedule *s, tt_arena *scratch,
                            xfer_marks *out)
{
    tt_by_chunk by;
    tutti_err err = tt_sched_by_chunk(s, scratch, &by);
    if (!err && tt_coll_reduces(s->collective)) {
        out->done = tt_arena_new(scratch, s->n_transfers, 1);
        err = mark_complete(s, &by, scratch, out->done);
    }
    if (err)
        return err;
    out->within = tt_arena_new(scratch, s->n_transfers, 1);
    return mark_within(s, &by, scratch, out->within);
}

static tutti_err copy_xfers(const tutti_schedule *s, const xfer_marks *marks,
                            tt_part *part, uint8_t *used)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++)
        n += s->transfers[i].src == part->rank ||
             s->transfers[i].dst == part->rank;
    part->n_xfers = n;
    part->xfers = tt_arena_new(&part->arena, n, sizeof(tt_part_xfer));
    if (part->arena.err)
        return TUTTI_ENOMEM;
    n = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        if (t->src != part->rank && t->dst != part->rank)
            continue;
        uint8_t within = marks->within ? marks->within[i] : 0;
        part->xfers[n++] = (tt_part_xfer){
            .t = *t,
            .completes = marks->done && marks->done[i],
            .may_pull = (within & MAY_PULL) != 0,
            .may_put = (within & MAY_PUT) != 0,
        };
        used[t->chunk] = 1;
    }
    return TUTTI_OK;
}

static tutti_err copy_chunks(const tutti_schedule *s, tt_part *part,
                             uint8_t *used)
{
    uint32_t who;
    uint64_t n = 0;
    for (uint64_t c = 0; c < s->n_chunks; c++) {
        if (tt_sched_end(s, s->chunks[c].block, part->rank, &who))
            used[c] = 1;
        n += used[c];
    }
    part->n_chunks = n;
    part->chunks = tt_arena_new(&part->arena, n, sizeof(tt_part_chunk));
    if (part->arena.err)
        return TUTTI_ENOMEM;
    n = 0;
    for (uint64_t c = 0; c < s->n_chunks; c++) {
        if (!used[c])
            continue;
        uint64_t block = s->chunks[c].block;
        part->chunks[n++] = (tt_part_chunk){
            .chunk = (uint32_t)c,
            .c = s->chunks[c],
            .start = tt_sched_start(s, block, part->rank, &who),
            .end = tt_sched_end(s, block, part->rank, &who),
        };
    }
    return TUTTI_OK;
}

static void set_ports(tt_part *part, const tt_ports *ports)
{
    for (uint64_t i = 0; i < part->n_xfers; i++) {
        tt_part_xfer *x = &part->xfers[i];
        x->port = ports->of(ports->ctx, &x->t);
        if (x->port >= part->n_ports)
            part->n_ports = x->port + 1u;
    }
}

tutti_err tt_part_extract(const tutti_schedule *s, uint32_t rank,
                          const tt_ports *ports, const tt_mem *mem,
                          tt_part **out)
{
    xfer_marks marks = {.done = NULL};
    tt_part *part = tt_new(mem, 1, sizeof(*part));
    if (!part)
        return TUTTI_ENOMEM;
    *part = (tt_part){
        .collective = s->collective,
        .rank = rank,
        .n_ranks = s->n_ranks,
        .root = s->root,
        .n_blocks = s->n_blocks,
        .n_parts = s->n_parts,
        .n_ports = 1,
        .id = s->id,
        .arena = {.mem = mem},
    };
    tt_arena scratch = {.mem = mem};
    uint8_t *used = tt_arena_new(&scratch, s->n_chunks, 1);
    tutti_err err = make_marks(s, &scratch, &marks);
    if (!err)
        err = scratch.err;
    if (!err)
        err = copy_xfers(s, &marks, part, used);
    if (!err)
        err = copy_chunks(s, part, used);
    if (!err && ports)
        set_ports(part, ports);
    if (!err)
        err = tt_sched_most_in(s, mem, &part->max_in_parts);
    tt_arena_free(&scratch);
    if (err)
        tt_part_free(part);
    else
        *out = part;
    return err;
}

void tt_part_free(tt_part *part)
{
    if (!part)
        return;
    const tt_mem *mem = part->arena.mem;
    tt_arena_free(&part->arena);
    tt_free(mem, part, 1, sizeof(*part));
}
