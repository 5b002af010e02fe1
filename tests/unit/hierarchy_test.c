/* SPDX-License-Identifier: BSD-3-Clause
 * hierarchy_test.c - the tree over the ranks of a network: [..] is a node, a
 * number a rank. */
#include "support/tap.h"

#include "support/alloc.h"

#include "base/str.h"
#include "plan/hierarchy.h"

#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- tools -- */

static tutti_topology *network(const char *spec)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    tutti_err err = strncmp(spec, "tutti-topology", 14) == 0
                        ? tt_topology_parse(&tt_mem_std, spec, strlen(spec), &t,
                                            &diag)
                        : tt_topology_generate(&tt_mem_std, spec, &t, &diag);
    if (err)
        fail_msg("%s: %s", spec, diag.text);
    return t;
}

static void write_node(const tt_hierarchy *h, uint32_t v, tt_str *out)
{
    const tt_hier_node *node = &h->nodes[v];
    if (node->n_kids == 0) {
        tt_str_u64(out, node->rank);
        return;
    }
    tt_str_puts(out, "[");
    for (uint32_t i = 0; i < node->n_kids; i++) {
        if (i > 0)
            tt_str_puts(out, " ");
        write_node(h, node->first_kid + i, out);
    }
    tt_str_puts(out, "]");
}

/* What tt_hierarchy promises of its nodes. */
static void check_form(const tt_hierarchy *h)
{
    uint32_t place = 0;
    for (uint32_t v = 0; v < h->n_nodes; v++) {
        const tt_hier_node *node = &h->nodes[v];
        assert_true(node->n_kids != 1);
        assert_int_equal(node->rank == TT_NONE, node->n_kids > 0);
        assert_int_equal(node->parent == TT_NONE, v == 0);
        if (v > 0) {
            const tt_hier_node *parent = &h->nodes[node->parent];
            assert_true(node->parent < v);
            assert_true(v - parent->first_kid < parent->n_kids);
            assert_true(node->height < parent->height);
            assert_true(node->out_bps > 0 && node->in_bps > 0);
        }
        uint32_t n_ranks = node->n_kids == 0;
        place = node->first_place;
        for (uint32_t i = 0; i < node->n_kids; i++) {
            const tt_hier_node *kid = &h->nodes[node->first_kid + i];
            assert_int_equal(kid->first_place, place);
            n_ranks += kid->n_ranks;
            place += kid->n_ranks;
        }
        assert_int_equal(node->n_ranks, n_ranks);
    }
    assert_int_equal(h->nodes[0].n_ranks, h->n_ranks);
    for (uint32_t i = 0; i < h->n_ranks; i++) {
        assert_int_equal(h->place_of[h->rank_at[i]], i);
        assert_int_equal(h->nodes[h->leaf_at[i]].rank, h->rank_at[i]);
        assert_int_equal(h->nodes[h->leaf_at[i]].first_place, i);
    }
}

static void is_written(const char *spec, const char *want)
{
    tutti_topology *t = network(spec);
    tt_arena arena = {.mem = &tt_mem_std};
    tt_hierarchy h;
    assert_int_equal(tt_hierarchy_find(t, &arena, &h), TUTTI_OK);
    check_form(&h);
    tt_str text = {.mem = &tt_mem_std};
    write_node(&h, 0, &text);
    if (strlen(want) != text.len || memcmp(want, text.data, text.len) != 0)
        fail_msg("%s: %.*s instead of %s", spec, (int)text.len, text.data,
                 want);
    tt_str_free(&text);
    tt_arena_free(&arena);
    tt_topology_free(t);
}

/* dims as "48 2 2", outermost first; "" is uneven. */
static void has_dims(const char *spec, const char *want)
{
    tutti_topology *t = network(spec);
    tt_arena arena = {.mem = &tt_mem_std};
    tt_hierarchy h;
    assert_int_equal(tt_hierarchy_find(t, &arena, &h), TUTTI_OK);
    check_form(&h);
    uint32_t dims[TT_HIER_MAX_DIMS];
    char text[128] = "";
    for (uint32_t i = tt_hierarchy_dims(&h, dims); i-- > 0;)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%u%s",
                 dims[i], i > 0 ? " " : "");
    if (strcmp(text, want) != 0)
        fail_msg("%s: dims \"%s\" instead of \"%s\"", spec, text, want);
    tt_arena_free(&arena);
    tt_topology_free(t);
}

/* ---------------------------------------------------------------- trees -- */

static void trees(void **state)
{
    (void)state;
    is_written("star:4", "[0 1 2 3]");
    is_written("star:1", "0");
    is_written("racks:2+1", "[[0 1] 2]");
    is_written("racks:3+2", "[[0 1 2] [3 4]]");
    is_written("racks:2+2@order=interleaved", "[[0 2] [1 3]]");
    is_written("boxes:2+4", "[[0 1] [2 3 4 5]]");
    is_written("boxes:1+3", "[0 [1 2 3]]");
}

#define HEAD "tutti-topology 1\n"

static void trees_from_files(void **state)
{
    (void)state;
    /* The middle is a link. */
    is_written(HEAD "switch s t\nhost a b c d e\n"
                    "link a s 1Gbit 0us\nlink b s 1Gbit 0us\n"
                    "link s t 1Gbit 0us\nlink c t 1Gbit 0us\n"
                    "link d t 1Gbit 0us\nlink e t 1Gbit 0us\n",
               "[[0 1] [2 3 4]]");
    /* Switches without ranks, and in a chain. */
    is_written(HEAD "switch s t u v w\nhost a b c\n"
                    "link a s 1Gbit 0us\nlink s t 1Gbit 0us\n"
                    "link t u 1Gbit 0us\nlink b u 1Gbit 0us\n"
                    "link c u 1Gbit 0us\nlink v t 1Gbit 0us\n"
                    "link w v 1Gbit 0us\n",
               "[0 [1 2]]");
    /* A host that forwards. */
    is_written(HEAD "host a b c\nlink a b 1Gbit 0us\nlink b c 1Gbit 0us\n",
               "[1 0 2]");
    /* Hosts of several ranks on one switch, one more beside them. */
    is_written(HEAD "switch s\nhost a ranks=2 memory=80Gbit\n"
                    "host b ranks=3 memory=80Gbit\nhost c\n"
                    "link a s 1Gbit 0us\nlink b s 1Gbit 0us\n"
                    "link c s 1Gbit 0us\n",
               "[[0 1] [2 3 4] 5]");
}

static void uplinks(void **state)
{
    (void)state;
    tutti_topology *t = network("racks:2+3@nic=400Mbit,trunk=200Mbit/100Mbit");
    tt_arena arena = {.mem = &tt_mem_std};
    tt_hierarchy h;
    assert_int_equal(tt_hierarchy_find(t, &arena, &h), TUTTI_OK);
    assert_int_equal(h.nodes[1].out_bps, 200000000);
    assert_int_equal(h.nodes[1].in_bps, 100000000);
    assert_true(tt_hier_rate(&h.nodes[1]) == 1e8);
    assert_int_equal(h.nodes[h.leaf_at[4]].out_bps, 400000000);
    tt_arena_free(&arena);
    tt_topology_free(t);
}

/* --------------------------------------------------------------- others -- */

static void grids(void **state)
{
    (void)state;
    is_written("mesh:2x3", "[[0 1 2] [3 4 5]]");
    has_dims("torus:8x8", "8 8");
    has_dims("torus:4x8", "4 8");
    has_dims("torus:2x3x4", "2 3 4");
    has_dims("ring:7", "7");
    has_dims("mesh:1x5", "5");
}

static void clusters(void **state)
{
    (void)state;
    has_dims("full:6", "6");
    has_dims("minsky:48", "48 2 2");
    has_dims("minsky:1", "2 2");
    has_dims("fattree:4x4", "4 4");
    has_dims("bigraph:4x4", "4 4");
}

static void uniform_or_not(void **state)
{
    (void)state;
    has_dims("racks:4+4", "2 4");
    has_dims("racks:4+3", "");
    has_dims("star:1", "");
    has_dims("star:12", "12");
}

/* 3000 hosts in a row: deep, and no recursion. */
static void deep_chain(void **state)
{
    (void)state;
    tt_str text = {.mem = &tt_mem_std};
    tt_str_puts(&text, HEAD);
    for (int i = 0; i < 3000; i++)
        tt_str_printf(&text, "host h%d\n", i);
    for (int i = 0; i + 1 < 3000; i++)
        tt_str_printf(&text, "link h%d h%d 1Gbit 0us\n", i, i + 1);
    tutti_topology *t = NULL;
    assert_int_equal(
        tt_topology_parse(&tt_mem_std, text.data, text.len, &t, NULL),
        TUTTI_OK);
    tt_arena arena = {.mem = &tt_mem_std};
    tt_hierarchy h;
    assert_int_equal(tt_hierarchy_find(t, &arena, &h), TUTTI_OK);
    check_form(&h);
    assert_int_equal(h.nodes[0].height, 1500);
    tt_arena_free(&arena);
    tt_topology_free(t);
    tt_str_free(&text);
}

static void no_memory(void **state)
{
    (void)state;
    static const char *const specs[] = {"racks:2+3", "mesh:2x3", "minsky:2"};
    for (size_t i = 0; i < 3; i++) {
        tutti_topology *t = network(specs[i]);
        for (uint64_t k = 1;; k++) {
            tt_test_mem m;
            tt_mem mem = tt_test_mem_init(&m, k);
            tt_arena arena = {.mem = &mem};
            tt_hierarchy h;
            tutti_err err = tt_hierarchy_find(t, &arena, &h);
            tt_arena_free(&arena);
            assert_true(tt_test_mem_is_clean(&m));
            assert_int_equal(err, m.n_failed ? TUTTI_ENOMEM : TUTTI_OK);
            if (m.n_failed == 0)
                break;
        }
        tt_topology_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees),      cmocka_unit_test(trees_from_files),
        cmocka_unit_test(uplinks),    cmocka_unit_test(grids),
        cmocka_unit_test(clusters),   cmocka_unit_test(uniform_or_not),
        cmocka_unit_test(deep_chain), cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
