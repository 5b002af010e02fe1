/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_topology.c - any bytes may be handed to the readers of networks: the
 * file format, generator specs, or whichever of them the text seems to be.
 * What is refused has a place and a sentence; what is read writes a file that
 * reads back to the same network, and has routes. */
#include "support/alloc.h"
#include "support/fuzz_main.h"

#include "topology/topology.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_round_trip(const tt_mem *mem, const tutti_topology *t)
{
    tt_str text = {.mem = mem}, again = {.mem = mem};
    tutti_topology *u = NULL;
    tt_topology_write(t, &text);
    if (text.err)
        tt_fuzz_fail("a network cannot be written");
    if (tt_topology_parse(mem, text.data, text.len, &u, NULL))
        tt_fuzz_fail("a written network cannot be read");
    if (u->id != t->id)
        tt_fuzz_fail("a written network reads back to another");
    tt_topology_write(u, &again);
    if (again.len != text.len || memcmp(text.data, again.data, text.len) != 0)
        tt_fuzz_fail("a network is written in two ways");
    tt_topology_free(u);
    tt_str_free(&text);
    tt_str_free(&again);
}

static void check_route(const tutti_topology *t, const tt_routes *r,
                        uint32_t src, uint32_t dst, uint8_t rail)
{
    static uint32_t links[TT_MAX_NODES];
    uint32_t at = t->rank_node[src];
    uint32_t n = tt_route(r, src, dst, rail, links);
    if (n == 0 && !t->all_forward)
        return;
    if (n == 0 || n > tt_routes_max_links(r))
        tt_fuzz_fail("a route has a wrong length");
    for (uint32_t i = 0; i < n; i++) {
        if (t->links[links[i]].from != at)
            tt_fuzz_fail("a route has a gap");
        at = t->links[links[i]].to;
    }
    if (at != t->rank_node[dst])
        tt_fuzz_fail("a route does not arrive");
}

static void check_routes(const tt_mem *mem, const tutti_topology *t)
{
    tt_routes *r = NULL;
    tutti_err err = tt_routes_create(t, mem, &r, NULL);
    if (err == TUTTI_ELIMIT)
        return;
    if (err)
        tt_fuzz_fail("a network has no routes");
    uint32_t step = 1 + t->n_ranks / 16;
    for (uint32_t src = 0; src < t->n_ranks; src += step) {
        for (uint32_t dst = 0; dst < t->n_ranks; dst += step) {
            if (src != dst)
                check_route(t, r, src, dst, (uint8_t)(src + dst));
        }
    }
    tt_routes_free(r);
}

/* A spec may ask for as much as the limits allow; here, for less, so that the
 * search stays fast. */
static bool is_modest(const uint8_t *data, size_t len)
{
    int n_digits = 0;
    for (size_t i = 0; i < len; i++) {
        n_digits = data[i] >= '0' && data[i] <= '9' ? n_digits + 1 : 0;
        if (n_digits > 2)
            return false;
    }
    return len < 64 || memchr(data, '\n', len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, 0);
    tutti_topology *t = NULL;
    tutti_diag diag;
    const char *text = (const char *)data;
    bool is_any = len > 0 && data[0] != 't' && data[0] != '<';
    if (is_any && !is_modest(data, len))
        return 0;
    tutti_err err = is_any ? tt_topology_read(&mem, text, len, &t, &diag)
                           : tt_topology_parse(&mem, text, len, &t, &diag);
    if (err && err != TUTTI_ENOFIT &&
        (diag.line == 0 || diag.column == 0 || !diag.text[0]))
        tt_fuzz_fail("an error without a place or a sentence");
    if (!err) {
        check_round_trip(&mem, t);
        check_routes(&mem, t);
    }
    tt_topology_free(t);
    if (!tt_test_mem_is_clean(&m))
        tt_fuzz_fail("memory is lost");
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/topology",
                        LLVMFuzzerTestOneInput);
}
#endif
