/* SPDX-License-Identifier: BSD-3-Clause
 * json.c - a schedule as one JSON object:
 *
 *     {"collective":"all-reduce","n_ranks":2,"root":null,"n_blocks":1,
 *      "n_parts":1,
 *      "chunks":[[block,begin,end],...],
 *      "transfers":[[step,chunk,src,dst,"reduce"],...]}
 *
 * with one chunk or transfer per line, so that a person can read it too. A
 * transfer on a rail other than 0 has the rail as a sixth item. Next: dot.c. */
#include "export/formats.h"

/* "[1,2,3": the numbers of an item, which stays open. */
static void open_item(tt_str *out, const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tt_str_add(out, i ? "," : "[", 1);
        tt_str_u64(out, numbers[i]);
    }
}

/* Between two items of a list, and before the first. */
static void separate(tt_str *out, uint64_t i)
{
    tt_str_puts(out, i ? ",\n  " : "\n  ");
}

tutti_err tt_write_json(const tutti_schedule *s, tt_str *out)
{
    tt_str_printf(out, "{\"collective\":\"%s\",\"n_ranks\":%u,\"root\":",
                  tutti_coll_name(s->collective), s->n_ranks);
    if (s->root == TT_NONE)
        tt_str_puts(out, "null");
    else
        tt_str_u64(out, s->root);
    tt_str_printf(out, ",\"n_blocks\":%llu,\"n_parts\":%llu,\n \"chunks\":[",
                  (unsigned long long)s->n_blocks,
                  (unsigned long long)s->n_parts);
    for (uint64_t i = 0; i < s->n_chunks && !out->err; i++) {
        const tt_chunk *c = &s->chunks[i];
        separate(out, i);
        open_item(out, (uint64_t[]){c->block, c->begin, c->end}, 3);
        tt_str_add(out, "]", 1);
    }
    tt_str_puts(out, "],\n \"transfers\":[");
    for (uint64_t i = 0; i < s->n_transfers && !out->err; i++) {
        const tt_transfer *t = &s->transfers[i];
        separate(out, i);
        open_item(out, (uint64_t[]){t->step, t->chunk, t->src, t->dst}, 4);
        tt_str_puts(out, t->op == TT_XFER_REDUCE ? ",\"reduce\"" : ",\"copy\"");
        if (t->rail) {
            tt_str_add(out, ",", 1);
            tt_str_u64(out, t->rail);
        }
        tt_str_add(out, "]", 1);
    }
    tt_str_puts(out, "]}\n");
    return out->err;
}
