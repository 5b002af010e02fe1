/* SPDX-License-Identifier: BSD-3-Clause
 * netdraw.c - the table of a network's pictures, and its layout as JSON, which
 * the page of `tutti view` draws:
 *
 *     {"width":W,"height":H,
 *      "nodes":[[name,kind,rank,hub,x,y],...],
 *      "links":[[from,to,[rate_bps,latency_ps],twin,[x,y,...]],...]}
 *
 * kind is host, switch, hub or slot; rank, hub and twin are -1 where there is
 * none; "crowded":true stands before the nodes of a network whose links are
 * drawn paler; the last list has the bends of the way (netlayout.h says what
 * they mean). A link as fast as the one before has 0 in place of the rate and
 * the latency: networks of very many links are of few kinds.
 *
 * Next: netsvg.c, nettext.c. */
#include "export/netdraw.h"
#include "export/export.h"

#include <string.h>

/* ---------------------------------------------------------------- layout -- */

static void put_int(tt_str *out, const char *before, int64_t value)
{
    tt_str_puts(out, before);
    if (value < 0)
        tt_str_puts(out, "-");
    tt_str_u64(out, value < 0 ? (uint64_t)-value : (uint64_t)value);
}

static int64_t or_minus(uint32_t number)
{
    return number == TT_NONE ? -1 : (int64_t)number;
}

/* Names are [A-Za-z0-9._-]: no letter of them needs an escape. */
static void put_node(tt_str *out, const tt_node *node, tt_point at)
{
    static const char *const kinds[] = {[TT_NODE_HOST] = "host",
                                        [TT_NODE_SWITCH] = "switch",
                                        [TT_NODE_HUB] = "hub",
                                        [TT_NODE_SLOT] = "slot"};
    tt_str_puts(out, "[\"");
    tt_str_puts(out, node->name);
    tt_str_puts(out, "\",\"");
    tt_str_puts(out, kinds[node->kind]);
    put_int(out, "\",", or_minus(node->rank));
    put_int(out, ",", or_minus(node->hub));
    put_int(out, ",", at.x);
    put_int(out, ",", at.y);
    tt_str_puts(out, "]");
}

static void put_link(tt_str *out, const tt_link *l, const tt_link *before,
                     const tt_bends *bends)
{
    put_int(out, "[", l->from);
    put_int(out, ",", l->to);
    if (before && l->rate_bps == before->rate_bps &&
        l->latency_ps == before->latency_ps) {
        tt_str_puts(out, ",0");
    } else {
        put_int(out, ",[", (int64_t)l->rate_bps);
        put_int(out, ",", (int64_t)l->latency_ps);
        tt_str_puts(out, "]");
    }
    put_int(out, ",", or_minus(l->twin));
    tt_str_puts(out, ",[");
    for (uint32_t k = 0; k < bends->n; k++) {
        put_int(out, k ? "," : "", bends->at[k].x);
        put_int(out, ",", bends->at[k].y);
    }
    tt_str_puts(out, "]]");
}

static void net_layout(const tutti_topology *t, const tt_net_layout *l,
                       tt_str *out)
{
    put_int(out, "{\"width\":", l->size.x);
    put_int(out, ",\"height\":", l->size.y);
    if (tt_is_crowded(t))
        tt_str_puts(out, ",\"crowded\":true");
    tt_str_puts(out, ",\"nodes\":[");
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        tt_str_puts(out, v ? ",\n" : "\n");
        put_node(out, &t->nodes[v], l->nodes[v]);
    }
    tt_str_puts(out, "],\"links\":[");
    for (uint32_t i = 0; i < t->n_links; i++) {
        tt_str_puts(out, i ? ",\n" : "\n");
        put_link(out, &t->links[i], i ? &t->links[i - 1] : NULL, &l->bends[i]);
    }
    tt_str_puts(out, "]}\n");
}

/* ----------------------------------------------------------------- table -- */

static const struct {
    const char *name;
    void (*write)(const tutti_topology *t, const tt_net_layout *l, tt_str *out);
} pictures[] = {
    {"svg", tt_net_svg}, {"text", tt_net_text}, {"layout", net_layout}};

tutti_err tt_net_draw(const tutti_topology *t, const char *format,
                      const tt_mem *mem, char **text, size_t *len,
                      tutti_diag *diag)
{
    const size_t n = sizeof(pictures) / sizeof(pictures[0]);
    size_t i = 0;
    while (i < n && (!format || strcmp(format, pictures[i].name) != 0))
        i++;
    if (i == n)
        return tt_fail(diag, TUTTI_EINVAL,
                       "there is no picture \"%.40s\" of a network; there are "
                       "svg, text and layout",
                       format ? format : "");
    tt_net_layout l;
    tutti_err err = tt_layout_find(t, mem, &l, diag);
    if (err)
        return err;
    tt_str out = {.mem = mem};
    pictures[i].write(t, &l, &out);
    tt_layout_free(&l);
    err = tt_str_finish(&out, text, len);
    return err ? tt_fail(diag, err, "no memory for the picture of the network")
               : TUTTI_OK;
}
