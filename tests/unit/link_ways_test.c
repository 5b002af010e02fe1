/* SPDX-License-Identifier: BSD-3-Clause
 * link_ways_test.c - which of a peer's addresses are tried, in which order. */
#include "support/tap.h"

#include "support/places.h"

/* A host of a torus: two neighbours, an address of its own, a bridge of
 * containers, a network for its administration. */
static const tt_iface *torus_host(void)
{
    static tt_iface all[8];
    all[0] = tt_test_iface("eth1 10.0.1.1/30", TT_IFACE_ORDINARY, 10000);
    all[1] = tt_test_iface("eth2 10.0.2.1/30", TT_IFACE_ORDINARY, 10000);
    all[2] = tt_test_iface("mgmt 192.168.0.1/24", TT_IFACE_ORDINARY, 1000);
    all[3] = tt_test_iface("lo 10.9.0.1/32", TT_IFACE_HOST, 0);
    all[4] = tt_test_iface("docker0 172.17.0.1/16", TT_IFACE_INNER, 10000);
    all[5] = tt_test_iface("lo 127.0.0.1/8", TT_IFACE_LOOPBACK, 0);
    all[6] = tt_test_iface("eth1 fe80::1/64", TT_IFACE_LINK_LOCAL, 10000);
    all[7] = tt_test_iface("eth2 fe80::2/64", TT_IFACE_LINK_LOCAL, 10000);
    return all;
}

/* What is expected: "to[%dev]" in order, separated by blanks. */
static void expect_ways(const tt_link_here *here, const tt_link_card *peer,
                        const tt_link_hint *hint, const char *wanted)
{
    tt_link_way ways[TT_LINK_WAYS];
    char got[1000] = "", text[TT_SOCK_TEXT];
    size_t n = tt_link_ways(here, peer, hint, ways);
    for (size_t i = 0; i < n; i++) {
        ways[i].to.u.sa.sa_family == AF_INET ? (ways[i].to.u.v4.sin_port = 0)
                                             : (ways[i].to.u.v6.sin6_port = 0);
        if (ways[i].to.u.sa.sa_family == AF_INET6)
            ways[i].to.u.v6.sin6_scope_id = 0;
        tt_addr_text(&ways[i].to, text);
        size_t used = strlen(got);
        snprintf(got + used, sizeof(got) - used, "%s%.*s%s%s", i ? " " : "",
                 (int)strlen(text) - 2, text, ways[i].dev[0] ? "%" : "",
                 ways[i].dev);
    }
    assert_string_equal(got, wanted);
}

static tt_link_card card_of(const char *const *ips, const int *orders)
{
    tt_link_card card = {.netns = 8};
    for (; ips[card.n_places]; card.n_places++) {
        uint16_t i = card.n_places;
        card.places[i] = tt_test_place(ips[i], 5, (tt_iface_order)orders[i]);
        char name[] = "eth0";
        name[3] = (char)('0' + i);
        card.places[i].dev = tt_link_dev(name);
        card.places[i].mbit = 10000;
    }
    return card;
}

static void test_ways(void **state)
{
    (void)state;
    static const char *const ips[] = {"10.0.2.2",    "10.0.7.1",   "10.9.0.2",
                                      "192.168.0.2", "172.17.0.1", "127.0.0.1",
                                      "fe80::9",     NULL};
    static const int orders[] = {TT_IFACE_ORDINARY,  TT_IFACE_ORDINARY,
                                 TT_IFACE_HOST,      TT_IFACE_ORDINARY,
                                 TT_IFACE_INNER,     TT_IFACE_LOOPBACK,
                                 TT_IFACE_LINK_LOCAL};
    tt_link_card own = {.netns = 7}, peer = card_of(ips, orders);
    tt_link_here here = {
        .card = &own, .interfaces = "", .ifaces = torus_host(), .n_ifaces = 8};
    /* On-link, the faster first; the host's own address; what may be routed;
     * nobody goes to 172.17.0.1, which is here; link-local by both. */
    expect_ways(&here, &peer, NULL,
                "10.0.2.2%eth2 192.168.0.2%mgmt 10.9.0.2%lo 10.9.0.2 10.0.7.1 "
                "[fe80::9]%eth1 [fe80::9]%eth2");
    tt_link_way ways[TT_LINK_WAYS];
    assert_int_equal(tt_link_ways(&here, &peer, NULL, ways), 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(ways[i].is_routed, i >= 2 && i < 5);
        assert_int_equal(ways[i].is_guess, i >= 5);
    }
    here.interfaces = "^mgmt";
    expect_ways(&here, &peer, NULL,
                "10.0.2.2%eth2 10.9.0.2%lo 10.9.0.2 10.0.7.1 192.168.0.2 "
                "[fe80::9]%eth1 [fe80::9]%eth2");
    here.interfaces = "=eth1";
    expect_ways(&here, &peer, NULL,
                "10.9.0.2 10.0.2.2 10.0.7.1 192.168.0.2 [fe80::9]%eth1");
    here.interfaces = "";
    here.n_ifaces = 4; /* no bridge here: there may be one there */
    expect_ways(&here, &peer, NULL,
                "10.0.2.2%eth2 192.168.0.2%mgmt 10.9.0.2%lo 10.9.0.2 10.0.7.1 "
                "172.17.0.1");
    here.n_ifaces = 0; /* nothing is known */
    expect_ways(&here, &peer, NULL,
                "10.9.0.2 10.0.2.2 10.0.7.1 192.168.0.2 172.17.0.1");
    own.netns = 8; /* the same host */
    expect_ways(&here, &peer, NULL,
                "127.0.0.1 10.9.0.2 10.0.2.2 10.0.7.1 192.168.0.2 "
                "172.17.0.1");
    for (uint16_t i = 0; i < peer.n_places; i++)
        peer.places[i].port = 0;
    expect_ways(&here, &peer, NULL, "");
    peer.places[0].port = 5;
    peer.places[0].family = 9;
    expect_ways(&here, &peer, NULL, "");
}

/* Of networks that are equally fast the smallest goes first. */
static void test_small_networks(void **state)
{
    (void)state;
    static const char *const ips[] = {"10.0.1.2",  "10.0.2.2",  "10.0.3.2",
                                      "fd00:1::2", "fd00:2::2", NULL};
    static const int orders[5] = {TT_IFACE_ORDINARY, TT_IFACE_ORDINARY,
                                  TT_IFACE_ORDINARY, TT_IFACE_ORDINARY,
                                  TT_IFACE_ORDINARY};
    const tt_iface own[] = {
        tt_test_iface("eth1 10.0.1.1/26", TT_IFACE_ORDINARY, 10000),
        tt_test_iface("eth2 10.0.2.1/30", TT_IFACE_ORDINARY, 10000),
        tt_test_iface("eth3 10.0.3.1/24", TT_IFACE_ORDINARY, 10000),
        tt_test_iface("eth4 fd00:1::1/64", TT_IFACE_ORDINARY, 10000),
        tt_test_iface("eth5 fd00:2::1/125", TT_IFACE_ORDINARY, 10000)};
    tt_link_card card = {.netns = 7}, peer = card_of(ips, orders);
    tt_link_here here = {
        .card = &card, .interfaces = "", .ifaces = own, .n_ifaces = 5};
    expect_ways(&here, &peer, NULL,
                "10.0.2.2%eth2 [fd00:2::2]%eth5 10.0.1.2%eth1 10.0.3.2%eth3 "
                "[fd00:1::2]%eth4");
}

/* A link-local address is meant on the link of one interface. */
static void test_scopes(void **state)
{
    (void)state;
    static const char *const ips[] = {"fe80::9", "fd00:1::2", NULL};
    static const int orders[] = {TT_IFACE_LINK_LOCAL, TT_IFACE_ORDINARY};
    tt_iface own[] = {
        tt_test_iface("eth7 fe80::1/64", TT_IFACE_LINK_LOCAL, 10000),
        tt_test_iface("eth1 fd00:1::1/64", TT_IFACE_ORDINARY, 10000)};
    own[1].addr.u.v6.sin6_scope_id = 5;
    tt_link_card card = {.netns = 7}, peer = card_of(ips, orders);
    tt_link_here here = {
        .card = &card, .interfaces = "", .ifaces = own, .n_ifaces = 2};
    tt_link_way ways[TT_LINK_WAYS];
    assert_int_equal(tt_link_ways(&here, &peer, NULL, ways), 2);
    assert_int_equal(ways[0].to.u.v6.sin6_scope_id, 0);
    assert_int_equal(ways[1].to.u.v6.sin6_scope_id, '7');
}

static void test_hints(void **state)
{
    (void)state;
    static const char *const ips[] = {"10.0.1.2", "192.168.0.2", "10.5.0.1",
                                      "fe80::9", NULL};
    static const int orders[] = {TT_IFACE_ORDINARY, TT_IFACE_ORDINARY,
                                 TT_IFACE_ORDINARY, TT_IFACE_LINK_LOCAL};
    tt_link_card own = {.netns = 7}, peer = card_of(ips, orders);
    tt_link_here here = {
        .card = &own, .interfaces = "", .ifaces = torus_host(), .n_ifaces = 8};
    tt_link_hint hint = {.dev = "mgmt", .far_dev = "eth1"};
    expect_ways(&here, &peer, &hint, "192.168.0.2%mgmt");
    hint = (tt_link_hint){.dev = "mgmt"};
    expect_ways(&here, &peer, &hint,
                "192.168.0.2%mgmt 10.0.1.2%mgmt 10.5.0.1%mgmt");
    hint = (tt_link_hint){.dev = "eth1"};
    expect_ways(&here, &peer, &hint,
                "10.0.1.2%eth1 192.168.0.2%eth1 10.5.0.1%eth1 [fe80::9]%eth1");
    hint = (tt_link_hint){.far_dev = "eth2"};
    expect_ways(&here, &peer, &hint, "10.5.0.1");
    hint = (tt_link_hint){.dev = "eth1", .far_dev = "eth3"};
    expect_ways(&here, &peer, &hint, "[fe80::9]%eth1");
    hint = (tt_link_hint){.dev = "eth9"};
    expect_ways(&here, &peer, &hint, "");
    hint = (tt_link_hint){.far_dev = "eth9"};
    expect_ways(&here, &peer, &hint, "");
    /* Hosts between: no network of ours is the peer's, whatever it says. */
    hint =
        (tt_link_hint){.dev = "eth1", .far_dev = "eth0", .is_forwarded = true};
    expect_ways(&here, &peer, &hint, "10.5.0.1");
    hint = (tt_link_hint){0};
    expect_ways(&here, &peer, &hint,
                "10.0.1.2%eth1 192.168.0.2%mgmt 10.5.0.1 [fe80::9]%eth1 "
                "[fe80::9]%eth2");
    own.netns = 8; /* inside a host no interface matters */
    hint = (tt_link_hint){.dev = "eth9", .far_dev = "eth9"};
    tt_link_way ways[TT_LINK_WAYS];
    assert_int_equal(tt_link_ways(&here, &peer, &hint, ways), 5);
}

/* A rail goes by its interface whatever the routes say. */
static void test_rail(void **state)
{
    (void)state;
    static const char *const ips[] = {"10.0.2.2", NULL};
    static const int orders[] = {TT_IFACE_ORDINARY};
    tt_link_card own = {.netns = 7}, peer = card_of(ips, orders);
    tt_link_here here = {
        .card = &own, .interfaces = "", .ifaces = torus_host(), .n_ifaces = 8};
    tt_link_hint hint = {.dev = "eth2"};
    tt_link_way ways[TT_LINK_WAYS];
    assert_int_equal(tt_link_ways(&here, &peer, &hint, ways), 1);
    assert_false(ways[0].is_bound);
    hint.is_rail = true;
    assert_int_equal(tt_link_ways(&here, &peer, &hint, ways), 1);
    assert_true(ways[0].is_bound);
}

/* Further sockets go by the networks that are as good as the first one's. */
static void test_way_of(void **state)
{
    (void)state;
    static const struct {
        uint32_t cost;
        const char *dev;
        bool is_routed;
    } rows[] = {{1012, "a", false}, {1012, "a", false}, {1012, "b", false},
                {1013, "c", false}, {1012, "d", false}, {2000, "", true}};
    tt_link_way ways[6] = {0};
    for (int i = 0; i < 6; i++) {
        ways[i].cost = rows[i].cost;
        ways[i].is_routed = rows[i].is_routed;
        snprintf(ways[i].dev, sizeof(ways[i].dev), "%s", rows[i].dev);
    }
    static const uint32_t turns[] = {0, 2, 4, 0, 2};
    for (uint32_t k = 0; k < 5; k++)
        assert_int_equal(tt_link_way_of(ways, 6, 0, k), turns[k]);
    assert_int_equal(tt_link_way_of(ways, 6, 2, 1), 0);
    assert_int_equal(tt_link_way_of(ways, 6, 3, 1), 3); /* alone */
    assert_int_equal(tt_link_way_of(ways, 6, 5, 3), 5);
}

/* A card that names a place twice is not tried twice. */
static void test_same_way_once(void **state)
{
    (void)state;
    static const char *const ips[] = {"10.0.2.2", "10.0.2.2", "10.0.7.1",
                                      "10.0.7.1", NULL};
    static const int orders[4] = {TT_IFACE_ORDINARY, TT_IFACE_ORDINARY,
                                  TT_IFACE_ORDINARY, TT_IFACE_ORDINARY};
    tt_link_card own = {.netns = 7}, peer = card_of(ips, orders);
    tt_link_here here = {
        .card = &own, .interfaces = "", .ifaces = torus_host(), .n_ifaces = 8};
    expect_ways(&here, &peer, NULL, "10.0.2.2%eth2 10.0.7.1");
}

/* More link-local addresses than there is room for tries: others stay. */
static void test_many_ways(void **state)
{
    (void)state;
    tt_iface own[12];
    tt_link_card card = {.netns = 7}, peer = {.netns = 8, .n_places = 12};
    for (int i = 0; i < 12; i++) {
        char text[40];
        snprintf(text, sizeof(text), "eth%c fe80::%d/64", 'a' + i, i + 1);
        own[i] = tt_test_iface(text, TT_IFACE_LINK_LOCAL, 0);
        snprintf(text, sizeof(text), "fe80::1:%d", i);
        peer.places[i] = tt_test_place(text, 5, TT_IFACE_LINK_LOCAL);
    }
    peer.places[11] = tt_test_place("10.0.0.1", 5, TT_IFACE_ORDINARY);
    tt_link_here here = {
        .card = &card, .interfaces = "", .ifaces = own, .n_ifaces = 12};
    tt_link_way ways[TT_LINK_WAYS];
    assert_int_equal(tt_link_ways(&here, &peer, NULL, ways), TT_LINK_WAYS);
    assert_true(ways[0].to.u.sa.sa_family == AF_INET);
    assert_true(ways[47].to.u.sa.sa_family == AF_INET6);
}

/* Neither loopback nor link-local addresses lead to another network. */
static void test_families(void **state)
{
    (void)state;
    static const char *const ips[] = {"127.0.0.1", "fe80::1", "10.0.0.1",
                                      "fd00::1", NULL};
    static const int orders[4] = {TT_IFACE_LOOPBACK, TT_IFACE_LINK_LOCAL,
                                  TT_IFACE_INNER, TT_IFACE_ORDINARY};
    tt_link_card card = card_of(ips, orders);
    for (uint16_t n = 4; n > 0; n--) {
        static const unsigned want[] = {0, 0, TT_LINK_V4,
                                        TT_LINK_V4 | TT_LINK_V6};
        card.n_places = n;
        assert_int_equal(tt_link_card_families(&card), want[n - 1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),      cmocka_unit_test(test_hints),
        cmocka_unit_test(test_rail),      cmocka_unit_test(test_way_of),
        cmocka_unit_test(test_many_ways), cmocka_unit_test(test_same_way_once),
        cmocka_unit_test(test_families),  cmocka_unit_test(test_small_networks),
        cmocka_unit_test(test_scopes),
    };
    return TT_RUN_TAP(tests);
}
