/* SPDX-License-Identifier: BSD-3-Clause
 * ucx_test.c - what is the UCX transport's alone: which hosts want it, pairs
 * that it misses, addresses that are damaged. What it shares with all
 * transports is in net_test.c. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/table.h"
#include "net/ucx/ucx.h"
#include "support/net_pair.h"
#include "support/ucx.h"

#if TT_HAVE_UCX

/* ------------------------------------------------------------------ RDMA -- */

/* A tree such as /sys/class/infiniband. */
static char sysfs[64];

static void make_dir(const char *path)
{
    char full[200];
    snprintf(full, sizeof(full), "%s/%s", sysfs, path);
    assert_int_equal(mkdir(full, 0700), 0);
}

static void make_state(const char *path, const char *text)
{
    char full[200];
    snprintf(full, sizeof(full), "%s/%s/state", sysfs, path);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_sysfs(void **state)
{
    (void)state;
    snprintf(sysfs, sizeof(sysfs), "/tmp/tutti-ucx-XXXXXX");
    return mkdtemp(sysfs) ? 0 : 1;
}

static int remove_sysfs(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof(command), "rm -r '%s'", sysfs);
    return system(command);
}

static void only_an_active_port_counts(void **state)
{
    (void)state;
    assert_false(tt_ucx_has_rdma("/nowhere/at/all"));
    assert_false(tt_ucx_has_rdma(sysfs));
    make_dir("mlx5_0");
    assert_false(tt_ucx_has_rdma(sysfs));
    make_dir("mlx5_0/ports");
    make_dir("mlx5_0/ports/1");
    assert_false(tt_ucx_has_rdma(sysfs));
    make_state("mlx5_0/ports/1", "1: DOWN\n");
    assert_false(tt_ucx_has_rdma(sysfs));
    make_dir("mlx5_0/ports/2");
    make_state("mlx5_0/ports/2", "2: INIT\n");
    make_dir("mlx5_1");
    make_dir("mlx5_1/ports");
    make_dir("mlx5_1/ports/1");
    make_state("mlx5_1/ports/1", "");
    assert_false(tt_ucx_has_rdma(sysfs));
    make_state("mlx5_1/ports/1", "4: ACTIVE\n");
    assert_true(tt_ucx_has_rdma(sysfs));
}

/* ---------------------------------------------------------------- misses -- */

static tt_nodes base_nodes(uint32_t n)
{
    const char *lack = tt_ucx_use(TT_UCX_BY_TCP);
    if (lack) {
        print_message("# skipped: %s\n", lack);
        skip();
    }
    tt_nodes nodes = {.ops = &tt_net_ucx, .n = n, .seed = tt_test_seed()};
    nodes.settings.liveness_ns = TT_NS_PER_S;
    return nodes;
}

/* What rank 0 sees of rank 1. */
static void another_version(uint32_t rank,
                            unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    if (rank == 0)
        addrs[1][0] ^= 1;
}

static void damage(uint32_t rank, unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    if (rank == 0)
        addrs[1][60] ^= 0x10; /* in what is UCX's */
}

static int refusal_body(tt_node *node)
{
    if (node->rank == 0) {
        NODE_CHECK(node, node->connect_err == TUTTI_EPROTO);
        NODE_CHECK(node, strstr(node->diag.text, "rank 1") != NULL);
        return 0;
    }
    /* The other side is not reached. */
    NODE_CHECK(node, node->connect_err == TUTTI_ENET);
    NODE_CHECK(node, !node->conns[0]->is_up);
    NODE_CHECK(node, strstr(node->diag.text, "rank 0") != NULL);
    return 0;
}

static void a_damaged_address_is_refused(void **state)
{
    (void)state;
    void (*const how[])(uint32_t, unsigned char(*)[TT_NET_ADDR_MAX]) = {
        another_version, damage};
    for (int i = 0; i < 2; i++) {
        tt_nodes nodes = base_nodes(2);
        nodes.connect_s = 1.5; /* a third of it is waited */
        nodes.tamper = how[i];
        nodes.may_fail_connect = true;
        nodes.body = refusal_body;
        assert_int_equal(tt_nodes_run(&nodes), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_an_active_port_counts, make_sysfs,
                                        remove_sysfs),
        cmocka_unit_test(a_damaged_address_is_refused),
    };
    return TT_RUN_TAP(tests);
}

#else

static void without_ucx(void **state)
{
    (void)state;
    assert_null(tt_transport_find("ucx"));
    assert_non_null(strstr(tt_transport_lack("ucx"), "libucx-dev"));
    assert_null(tt_transport_lack("tcp"));
    assert_null(tt_transport_lack("pigeon"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_ucx)};
    return TT_RUN_TAP(tests);
}

#endif
