/* SPDX-License-Identifier: BSD-3-Clause
 * dot.c - a schedule as a graph for Graphviz: `tutti export F --to dot | dot
 * -Tsvg`. Each chunk is a cluster with the ranks that it passes; an arrow is a
 * transfer, its number the step; solid arrows reduce, dashed ones copy. In a
 * schedule of trees each cluster so shows the tree of reduction and the tree
 * of distribution of one share. */
#include "export/formats.h"

static void write_chunk(const tutti_schedule *s, uint64_t c, tt_str *out)
{
    const tt_chunk *chunk = &s->chunks[c];
    tt_str_printf(out,
                  "  subgraph cluster_%llu {\n"
                  "    label=\"chunk %llu of block %u: %llu-%llu of %llu\";\n",
                  (unsigned long long)c, (unsigned long long)c, chunk->block,
                  (unsigned long long)chunk->begin,
                  (unsigned long long)chunk->end,
                  (unsigned long long)s->n_parts);
}

static void write_node(uint64_t chunk, uint32_t rank, tt_str *out)
{
    tt_str_puts(out, "c");
    tt_str_u64(out, chunk);
    tt_str_puts(out, "_");
    tt_str_u64(out, rank);
}

static void write_arrow(const tt_transfer *t, tt_str *out)
{
    tt_str_puts(out, "    ");
    write_node(t->chunk, t->src, out);
    tt_str_puts(out, " -> ");
    write_node(t->chunk, t->dst, out);
    tt_str_puts(out, " [label=\"");
    tt_str_u64(out, t->step);
    tt_str_puts(out,
                t->op == TT_XFER_REDUCE ? "\"];\n" : "\", style=dashed];\n");
}

/* The ranks of a chunk, once each; seen[r] == chunk + 1: has been written. */
static void write_ranks(const tutti_schedule *s, const tt_by_chunk *by,
                        uint64_t c, uint64_t *seen, tt_str *out)
{
    for (uint64_t i = by->first[c]; i < by->first[c + 1]; i++) {
        const tt_transfer *t = &s->transfers[by->order[i]];
        const uint32_t ends[] = {t->src, t->dst};
        for (int k = 0; k < 2; k++) {
            if (seen[ends[k]] == c + 1)
                continue;
            seen[ends[k]] = c + 1;
            tt_str_puts(out, "    ");
            write_node(c, ends[k], out);
            tt_str_puts(out, " [label=\"");
            tt_str_u64(out, ends[k]);
            tt_str_puts(out, "\"];\n");
        }
    }
}

tutti_err tt_write_dot(const tutti_schedule *s, tt_str *out)
{
    tt_arena arena = {.mem = out->mem};
    tt_by_chunk by = {0};
    uint64_t *seen = tt_arena_new(&arena, s->n_ranks, sizeof(*seen));
    tutti_err err = tt_sched_by_chunk(s, &arena, &by);
    if (!err && !seen)
        err = TUTTI_ENOMEM;
    tt_str_printf(out, "digraph \"%s of %u ranks\" {\n  node [shape=circle];\n",
                  tutti_coll_name(s->collective), s->n_ranks);
    for (uint64_t c = 0; !err && c < s->n_chunks; c++) {
        write_chunk(s, c, out);
        write_ranks(s, &by, c, seen, out);
        for (uint64_t i = by.first[c]; i < by.first[c + 1]; i++)
            write_arrow(&s->transfers[by.order[i]], out);
        tt_str_puts(out, "  }\n");
        err = out->err;
    }
    tt_str_puts(out, "}\n");
    tt_arena_free(&arena);
    return err ? err : out->err;
}
