/* SPDX-License-Identifier: BSD-3-Clause
 * topology_subset_test.c - a network seen by some of its ranks: the routes
 * between two of them are the same cables as before. */
#include "support/alloc.h"
#include "support/tap.h"

#include "topology/topology.h"

#include <string.h>

static tutti_topology *make(const char *spec)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topology_generate(&tt_mem_std, spec, &t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    return t;
}

static uint32_t route(const tutti_topology *t, uint32_t src, uint32_t dst,
                      uint32_t *links)
{
    tt_routes *r = NULL;
    assert_int_equal(tt_routes_create(t, &tt_mem_std, &r, NULL), TUTTI_OK);
    uint32_t n = tt_route(r, src, dst, 0, links);
    tt_routes_free(r);
    return n;
}

/* What links are, whatever their numbers. */
static void same_links(const tutti_topology *t, const uint32_t *a,
                       const tutti_topology *part, const uint32_t *b,
                       uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const tt_link *x = &t->links[a[i]], *y = &part->links[b[i]];
        assert_int_equal(x->rate_bps, y->rate_bps);
        assert_int_equal(x->latency_ps, y->latency_ps);
        assert_int_equal(x->is_memory, y->is_memory);
        assert_string_equal(t->nodes[x->from].name, part->nodes[y->from].name);
        assert_string_equal(t->nodes[x->to].name, part->nodes[y->to].name);
    }
}

/* Slots of others are left out; hosts of nobody forward. */
static uint32_t n_left_out(const tutti_topology *t, const tutti_topology *part)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++)
        n += t->nodes[v].kind == TT_NODE_SLOT;
    for (uint32_t v = 0; v < part->n_nodes; v++)
        n -= part->nodes[v].kind == TT_NODE_SLOT;
    return n;
}

static bool has_one_way(const tutti_topology *t)
{
    tt_routes *r = NULL;
    bool is_so = t->grid.n_dims == 0 &&
                 tt_routes_create(t, &tt_mem_std, &r, NULL) == TUTTI_OK;
    for (uint32_t i = 0; is_so && i < t->n_ranks * t->n_ranks; i++)
        is_so = i / t->n_ranks == i % t->n_ranks ||
                tt_route_rails(r, i / t->n_ranks, i % t->n_ranks) == 1;
    tt_routes_free(r);
    return is_so;
}

static void check(const char *spec, const uint32_t *members, uint32_t n)
{
    tutti_topology *t = make(spec);
    tutti_topology *part = NULL;
    tutti_diag diag = {0};
    if (tt_topology_subset(t, members, n, &tt_mem_std, &part, &diag))
        fail_msg("%s: %s", spec, diag.text);
    assert_int_equal(part->n_ranks, n);
    uint32_t n_less = n_left_out(t, part);
    assert_int_equal(part->n_nodes, t->n_nodes - n_less);
    assert_int_equal(part->n_links, t->n_links - 2 * n_less);
    assert_int_equal(part->n_sockets, t->n_sockets);
    assert_int_equal(part->grid.n_dims > 0,
                     t->grid.n_dims > 0 && n == t->n_ranks);
    for (uint32_t i = 0; i < n; i++) {
        assert_string_equal(part->nodes[part->rank_node[i]].name,
                            t->nodes[t->rank_node[members[i]]].name);
        for (uint32_t j = 0; j < n; j++) {
            uint32_t a[64], b[64];
            if (i == j)
                continue;
            uint32_t n_a = route(part, i, j, a);
            uint32_t n_b = route(t, members[i], members[j], b);
            assert_int_equal(n_a, n_b);
            /* Which of several ways is a matter of the rank's number. */
            if (has_one_way(t))
                same_links(t, b, part, a, n_a);
        }
    }
    for (uint32_t l = 0; l < t->n_links && n_less == 0; l++) {
        assert_int_equal(part->links[l].rate_bps, t->links[l].rate_bps);
        assert_int_equal(part->links[l].latency_ps, t->links[l].latency_ps);
        assert_int_equal(part->links[l].from, t->links[l].from);
    }
    tt_topology_free(part);
    tt_topology_free(t);
}

/* A host of nobody that does not forward is left out, and who is left may have
 * no path. */
static void hosts_that_do_not_forward(void **state)
{
    (void)state;
    const uint32_t neighbours[] = {0, 1, 2}, apart[] = {0, 2};
    tutti_topology *t = make("ring:4@forwards=no");
    tutti_topology *part = NULL;
    tutti_diag diag = {0};
    uint32_t links[4];
    assert_int_equal(
        tt_topology_subset(t, neighbours, 3, &tt_mem_std, &part, &diag),
        TUTTI_OK);
    assert_int_equal(part->n_nodes, 3);
    assert_int_equal(part->n_links, 4);
    assert_false(part->all_forward);
    assert_int_equal(route(part, 0, 1, links), 1);
    assert_int_equal(route(part, 0, 2, links), 0);
    tt_topology_free(part);
    assert_int_equal(tt_topology_subset(t, apart, 2, &tt_mem_std, &part, &diag),
                     TUTTI_EINVAL);
    assert_string_equal(diag.text, "host `h0` has no link");
    tt_topology_free(t);
}

/* Rates of cables shrink by 1448 / 1514, memory's do not, also in a network
 * that was taken out of another; all else stays. */
static void payload_of_networks(void **state)
{
    (void)state;
    const char text[] = "tutti-topology 1\nhost a ranks=2 memory=8Gbit\n"
                        "host b c\nswitch s\nlink a s 1514Mbit/757Mbit 5us\n"
                        "link b s 3028kbit oneway\nlink s b 1bit\n"
                        "link c s 1514bit\n";
    const uint64_t rates[] = {UINT64_C(8000000000),
                              UINT64_C(8000000000),
                              UINT64_C(8000000000),
                              UINT64_C(8000000000),
                              1448000000,
                              724000000,
                              2896000,
                              1,
                              1,
                              1448,
                              1448};
    const uint32_t some[] = {3, 1, 0, 2};
    tutti_topology *nets[3] = {NULL};
    tutti_diag diag = {0};
    if (tt_topology_parse(&tt_mem_std, text, sizeof(text) - 1, &nets[0], &diag))
        fail_msg("%s", diag.text);
    assert_int_equal(
        tt_topology_subset(nets[0], some, 4, &tt_mem_std, &nets[1], NULL),
        TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            tt_topology_payload(nets[i], &tt_mem_std, &nets[2], NULL),
            TUTTI_OK);
        const tutti_topology *t = nets[i], *p = nets[2];
        assert_int_equal(p->n_links, 11);
        for (uint32_t l = 0; l < 11; l++) {
            assert_int_equal(p->links[l].rate_bps, rates[l]);
            assert_int_equal(p->links[l].latency_ps, t->links[l].latency_ps);
            assert_int_equal(p->links[l].to, t->links[l].to);
        }
        for (uint32_t r = 0; r < 4; r++)
            assert_int_equal(p->rank_node[r], t->rank_node[r]);
        tt_topology_free(nets[2]);
    }
    tt_topology_free(nets[0]);
    tt_topology_free(nets[1]);
    tutti_topology *grid = make("torus:3x4");
    assert_int_equal(tt_topology_payload(grid, &tt_mem_std, &nets[2], NULL),
                     TUTTI_OK);
    assert_int_equal(nets[2]->grid.n_dims, 2);
    tt_topology_free(nets[2]);
    tt_topology_free(grid);
}

static void parts_of_networks(void **state)
{
    (void)state;
    const uint32_t some[] = {5, 0, 3};
    const uint32_t one[] = {2};
    const uint32_t all[] = {7, 6, 5, 4, 3, 2, 1, 0};
    const char *const specs[] = {"racks:5+3@nic=400Mbit/100Mbit,trunk=200Mbit",
                                 "star:8", "minsky:2", "bigraph:4x2",
                                 "racks:4+4@order=random:3"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        check(specs[i], some, 3);
        check(specs[i], one, 1);
        check(specs[i], all, 8);
    }
    check("torus:2x4", all, 8);
    check("mesh:2x4", some, 3);
}

/* Hosts of several ranks stay such: their hub, and the slots of members. */
static void big_hosts_of_parts(void **state)
{
    (void)state;
    const char text[] =
        "tutti-topology 1\nhost a ranks=3 memory=8Gbit,1us\n"
        "host b ranks=2\nhost c ranks=2\nswitch s\n"
        "link a s 1Gbit dev=eth0\nlink b s 1Gbit\nlink c s 1Gbit\n";
    const uint32_t some[] = {4, 2, 0}; /* b.1, a.2, a.0 */
    const char *const names[] = {"b.1", "a.2", "a.0"};
    const char *const hosts[] = {"b", "a", "a"};
    tutti_topology *t = NULL, *part = NULL, *payload = NULL;
    tutti_diag diag = {0};
    if (tt_topology_parse(&tt_mem_std, text, sizeof(text) - 1, &t, &diag) ||
        tt_topology_subset(t, some, 3, &tt_mem_std, &part, &diag) ||
        tt_topology_payload(part, &tt_mem_std, &payload, &diag))
        fail_msg("%s", diag.text);
    const tutti_topology *copies[] = {part, payload};
    for (int i = 0; i < 2; i++) {
        const tutti_topology *p = copies[i];
        assert_int_equal(p->n_nodes, 7); /* a, 2 slots, b, 1 slot, c, s */
        for (uint32_t r = 0; r < 3; r++) {
            uint32_t v = p->rank_node[r];
            assert_int_equal(p->nodes[v].kind, TT_NODE_SLOT);
            assert_string_equal(p->nodes[v].name, names[r]);
            assert_string_equal(p->nodes[tt_node_host(p, v)].name, hosts[r]);
        }
        assert_int_equal(p->nodes[5].kind, TT_NODE_SWITCH); /* c */
        assert_true(p->links[0].is_memory);
        assert_int_equal(p->links[0].rate_bps, UINT64_C(8000000000));
        assert_int_equal(p->links[0].latency_ps, 1000000);
        assert_string_equal(p->links[6].dev, "eth0");
    }
    tt_topology_free(payload);
    tt_topology_free(part);
    tt_topology_free(t);
}

static void sits(const tutti_topology *t, uint32_t rank, const char *name,
                 const char *host)
{
    uint32_t v = t->rank_node[rank];
    assert_int_equal(t->nodes[v].rank, rank);
    assert_string_equal(t->nodes[v].name, name);
    assert_string_equal(t->nodes[tt_node_host(t, v)].name, host);
}

/* Hosts get more ranks, and keep their cables; what is written is read
 * again. */
static void more_ranks(void **state)
{
    (void)state;
    const char text[] =
        "tutti-topology 1\nhost a ranks=3 memory=8Gbit,1us\n"
        "host b\nhost c ranks=2\nswitch s\n"
        "link a s 1Gbit dev=eth0\nlink b s 2Gbit dev=eth1\nlink c s 3Gbit\n";
    const uint32_t some[] = {3, 2, 0, 5}; /* b, a.2, a.0, c.1 */
    const uint32_t beside[] = {2, 0, 0, 1};
    tutti_topology *t = NULL, *part = NULL, *more = NULL, *again = NULL;
    tutti_diag diag = {0};
    tt_str out = {.mem = &tt_mem_std};
    char *written;
    size_t len;
    uint32_t links[8];
    if (tt_topology_parse(&tt_mem_std, text, sizeof(text) - 1, &t, &diag) ||
        tt_topology_subset(t, some, 4, &tt_mem_std, &part, &diag) ||
        tt_topology_with_more(part, beside, 4, &tt_mem_std, &more, &diag))
        fail_msg("%s", diag.text);
    assert_int_equal(more->n_ranks, 8);
    sits(more, 0, "b.0", "b");
    sits(more, 1, "a.2", "a");
    sits(more, 2, "a.0", "a");
    sits(more, 3, "c.1", "c");
    sits(more, 4, "a.1", "a"); /* that is free */
    sits(more, 5, "b.1", "b");
    sits(more, 6, "b.2", "b");
    sits(more, 7, "a.3", "a");
    assert_int_equal(route(more, 5, 7, links), 4);
    assert_int_equal(more->links[links[0]].rate_bps, tt_wire_memory.up_bps);
    assert_int_equal(more->links[links[1]].rate_bps, UINT64_C(2000000000));
    assert_string_equal(more->links[links[1]].dev, "eth1");
    assert_int_equal(more->links[links[3]].rate_bps, UINT64_C(8000000000));
    tt_topology_write(more, &out);
    assert_int_equal(tt_str_finish(&out, &written, &len), TUTTI_OK);
    assert_int_equal(tt_topology_parse(&tt_mem_std, written, len, &again, NULL),
                     TUTTI_OK);
    for (uint32_t r = 0; r < 8; r++)
        assert_string_equal(
            again->nodes[tt_node_host(again, again->rank_node[r])].name,
            more->nodes[tt_node_host(more, more->rank_node[r])].name);
    tt_free(&tt_mem_std, written, len + 1, 1);
    tt_topology_free(again);
    tt_topology_free(more);
    tt_topology_free(part);
    tt_topology_free(t);
}

/* A host may be named as a slot of another is: before it or behind it in the
 * file, links are the host's, also when the other one grows, and is read
 * again. */
static void more_ranks_beside_their_names(void **state)
{
    (void)state;
    const char *const texts[] = {
        "tutti-topology 1\nhost a a.0 a.1 s\n"
        "link a s 1Gbit\nlink a.0 s 2Gbit\nlink a.1 s 3Gbit\n",
        "tutti-topology 1\nhost a.0 a.1 a s\n"
        "link a s 1Gbit\nlink a.0 s 2Gbit\nlink a.1 s 3Gbit\n"};
    for (int i = 0; i < 2; i++) {
        tutti_topology *t = NULL, *more = NULL, *again = NULL;
        const uint32_t beside[] = {i ? 2 : 0, i ? 2 : 0};
        tutti_diag diag = {0};
        tt_str out = {.mem = &tt_mem_std};
        char *written;
        size_t len;
        uint32_t links[8];
        if (tt_topology_parse(&tt_mem_std, texts[i], strlen(texts[i]), &t,
                              &diag) ||
            tt_topology_with_more(t, beside, 2, &tt_mem_std, &more, &diag))
            fail_msg("%s", diag.text);
        tt_topology_write(more, &out);
        assert_int_equal(tt_str_finish(&out, &written, &len), TUTTI_OK);
        if (tt_topology_parse(&tt_mem_std, written, len, &again, &diag))
            fail_msg("%s:\n%s", diag.text, written);
        for (int k = 0; k < 2; k++) {
            const tutti_topology *now = k ? again : more;
            const uint32_t v = now->rank_node[5];
            assert_int_equal(now->n_ranks, 6);
            assert_int_equal(now->nodes[v].kind, TT_NODE_SLOT);
            assert_string_equal(now->nodes[tt_node_host(now, v)].name, "a");
            /* From a.1 to the last of a. */
            assert_int_equal(route(now, i ? 1 : 2, 5, links), 3);
            assert_int_equal(now->links[links[0]].rate_bps,
                             UINT64_C(3000000000));
            assert_int_equal(now->links[links[1]].rate_bps,
                             UINT64_C(1000000000));
        }
        tt_free(&tt_mem_std, written, len + 1, 1);
        tt_topology_free(again);
        tt_topology_free(more);
        tt_topology_free(t);
    }
}

/* Interfaces have names also where a host becomes a switch: it has no rank of
 * the part. */
static void interfaces_of_parts(void **state)
{
    (void)state;
    const char text[] = "tutti-topology 1\nhost a ranks=2\nhost b c\n"
                        "switch s\nlink a s 1Gbit dev=eth0\n"
                        "link s b 1Gbit dev=eth1\nlink b c 1Gbit dev=x/y\n";
    const uint32_t some[] = {2, 1};
    tutti_topology *t = NULL, *part = NULL, *payload = NULL;
    tutti_diag diag = {0};
    if (tt_topology_parse(&tt_mem_std, text, sizeof(text) - 1, &t, &diag) ||
        tt_topology_subset(t, some, 2, &tt_mem_std, &part, &diag) ||
        tt_topology_payload(part, &tt_mem_std, &payload, &diag))
        fail_msg("%s", diag.text);
    const tutti_topology *copies[] = {part, payload};
    uint32_t n_less = t->n_links - part->n_links; /* memory, of others */
    for (uint32_t l = 0; l < 2 * part->n_links; l++) {
        const char *dev = t->links[l / 2 + n_less].dev;
        const char *copy = copies[l % 2]->links[l / 2].dev;
        assert_string_equal(copy ? copy : "-", dev ? dev : "-");
    }
    tt_topology_free(payload);
    tt_topology_free(part);
    tt_topology_free(t);
}

static void no_memory(void **state)
{
    (void)state;
    const uint32_t some[] = {5, 0, 3};
    tutti_topology *t = make("racks:5+3");
    for (uint64_t k = 1;; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        tutti_topology *part = NULL;
        tutti_err err = tt_topology_subset(t, some, 3, &mem, &part, NULL);
        assert_int_equal(err, m.n_failed ? TUTTI_ENOMEM : TUTTI_OK);
        tt_topology_free(part);
        assert_true(tt_test_mem_is_clean(&m));
        if (!m.n_failed)
            break;
    }
    tt_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_networks),
        cmocka_unit_test(hosts_that_do_not_forward),
        cmocka_unit_test(payload_of_networks),
        cmocka_unit_test(big_hosts_of_parts),
        cmocka_unit_test(more_ranks),
        cmocka_unit_test(more_ranks_beside_their_names),
        cmocka_unit_test(interfaces_of_parts),
        cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
