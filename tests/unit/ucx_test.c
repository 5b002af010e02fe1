/* SPDX-License-Identifier: BSD-3-Clause
 * ucx_test.c - what is the UCX transport's alone: which hosts want it, pairs
 * that it misses, what damaged cards do, strangers who know a UCX address. What
 * it shares with all transports is in net_test.c. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* What rank 1, which dials, sees of rank 0. */
static void spoil_the_door(uint32_t rank,
                           unsigned char (*addrs)[TT_NET_ADDR_MAX])
{
    if (rank == 1)
        addrs[0][0] ^= 1;
}

/* What rank 0 tells over the link. */
static void flip_a_bit(tt_ucx_net *net)
{
    net->address[net->address_len / 2] ^= 0x10;
}

static void cut_the_address(tt_ucx_net *net)
{
    net->address_len -= 1;
}

static void tell_none(tt_ucx_net *net)
{
    net->address_len = 0;
}

static void tell_too_much(tt_ucx_net *net)
{
    net->address_len = TT_UCX_ADDRESS_MAX + 1; /* beyond it: its sum */
}

static void spoil_the_card(tt_node *node)
{
    void (*const *how)(tt_ucx_net *) = node->nodes->arg;
    if (node->rank == 0 && *how)
        (*how)((tt_ucx_net *)node->net);
}

static int missed_body(tt_node *node)
{
    void (*const *how)(tt_ucx_net *) = node->nodes->arg;
    NODE_CHECK(node, !node->conns[1 - node->rank]->is_up);
    if (node->rank == 0 && !*how)
        return 0; /* nobody calls */
    while (!node->connect_err && tt_node_turn(node))
        continue;
    NODE_CHECK(node, node->connect_err == (*how ? TUTTI_ENET : TUTTI_EPROTO));
    NODE_CHECK(node, strstr(node->diag.text, "rank 0") != NULL);
    if (node->rank == 1) /* the other one only hears that it hangs up */
        NODE_CHECK(node, strstr(node->diag.text, "no sense") != NULL);
    return 0;
}

static void a_damaged_address_is_refused(void **state)
{
    (void)state;
    void (*how[])(tt_ucx_net *) = {NULL, flip_a_bit, cut_the_address, tell_none,
                                   tell_too_much};
    for (int i = 0; i < 5; i++) {
        tt_nodes nodes = base_nodes(2);
        nodes.arg = &how[i];
        nodes.tamper = how[i] ? NULL : spoil_the_door;
        nodes.before = spoil_the_card;
        nodes.may_fail_connect = true;
        nodes.body = missed_body;
        assert_int_equal(tt_nodes_run(&nodes), 0);
    }
}

/* ------------------------------------------------------------- strangers -- */

enum { HEADS = 300, WORD_BYTES = 300, MOST_BYTES = TT_UCX_MAX_PAYLOAD + 1 };

/* In memory that all ranks see. */
typedef struct known {
    size_t address_len; /* of rank 1's worker */
    uint8_t address[TT_UCX_ADDRESS_MAX];
    _Atomic bool is_over; /* the stranger has said all */
} known;

static void tell_address(tt_node *node)
{
    known *k = node->nodes->arg;
    const tt_ucx_net *net = (const tt_ucx_net *)node->net;
    if (node->rank != 1)
        return;
    memcpy(k->address, net->address, net->address_len);
    k->address_len = net->address_len;
}

/* Another worker, which nobody has met. */
typedef struct stranger {
    const tt_ucx_api *api;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    uint32_t n_open, n_heads; /* that have not left; of all */
    char heads[HEADS][sizeof(tt_ucx_head) + 8];
    unsigned char *bytes; /* [MOST_BYTES] */
} stranger;

static void open_stranger(stranger *s, const known *k)
{
    tutti_diag diag;
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM};
    const ucp_worker_params_t plain = {.field_mask = 0};
    const ucp_ep_params_t to = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
        .address = (const ucp_address_t *)(const void *)k->address};
    ucp_config_t *config;
    s->api = tt_ucx_take(&diag);
    s->bytes = calloc(1, MOST_BYTES);
    if (s->api->ucp_config_read(NULL, NULL, &config) != UCS_OK ||
        s->api->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
                                 &s->context) != UCS_OK ||
        s->api->ucp_worker_create(s->context, &plain, &s->worker) != UCS_OK ||
        s->api->ucp_ep_create(s->worker, &to, &s->ep) != UCS_OK)
        abort();
    s->api->ucp_config_release(config);
}

static void close_stranger(stranger *s)
{
    s->api->ucp_worker_destroy(s->worker);
    s->api->ucp_cleanup(s->context);
    tt_ucx_give_back();
    free(s->bytes);
}

static void on_uttered(void *request, ucs_status_t status, void *arg)
{
    stranger *s = arg;
    (void)status;
    s->api->ucp_request_free(request);
    s->n_open--;
}

static void utter(stranger *s, unsigned id, const void *head, size_t head_len,
                  size_t len)
{
    void *copy = s->heads[s->n_heads++];
    assert_true(s->n_heads <= HEADS && head_len <= sizeof(s->heads[0]));
    memcpy(copy, head, head_len);
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_uttered,
        .user_data = s};
    s->n_open += UCS_PTR_IS_PTR(s->api->ucp_am_send_nbx(
        s->ep, id, copy, head_len, s->bytes, len, &param));
}

/* Until all has left, and was dropped. */
static int hush(tt_node *node, stranger *s)
{
    uint64_t until = tt_now_ns() + 30 * TT_NS_PER_S;
    while (s->n_open > 0 && tt_now_ns() < until) {
        s->api->ucp_worker_progress(s->worker);
        tt_node_poll(node, true);
    }
    NODE_CHECK(node, s->n_open == 0);
    return 0;
}

/* Whatever names the connection of the ranks 0 and 1, but for the key. */
static void forge(const tt_node *node, stranger *s)
{
    const tt_ucx_conn *conn = (const tt_ucx_conn *)node->conns[1];
    static const size_t lens[] = {0, WORD_BYTES, 64 << 10, MOST_BYTES};
    static const uint16_t magics[] = {TT_UCX_HELLO_MAGIC, TT_MSG_MAGIC, 0};
    for (uint32_t bit = 0; bit < 64; bit++)
        for (uint32_t i = 0; i < 3; i++) {
            size_t len = lens[(bit + i) % 4];
            tt_ucx_head head = {.m = {.magic = magics[i], .len = (uint32_t)len},
                                .key = conn->key ^ UINT64_C(1) << bit,
                                .slot = bit % 8 == 7 ? UINT32_MAX >> bit % 32
                                                     : conn->their_slot,
                                .seq = conn->seq_out};
            if (bit == 20)
                head.key = 0;
            utter(s, 0, &head, sizeof(head), len);
        }
    /* Heads of other lengths, of which the key would be right. */
    const struct {
        tt_ucx_head head;
        char more[8];
    } h = {.head = {.m = {.magic = TT_MSG_MAGIC},
                    .key = conn->key,
                    .slot = conn->their_slot,
                    .seq = conn->seq_out}};
    for (size_t n = 0; n <= sizeof(h); n++)
        if (n != sizeof(h.head))
            utter(s, 0, &h, n, 0);
    for (uint32_t id = 1; id <= UINT16_MAX; id = 2 * id + 1)
        utter(s, id, &h, sizeof(h.head), WORD_BYTES);
}

static void send_marked(tt_node *node, uint32_t to, uint32_t len,
                        uint16_t magic)
{
    static const unsigned char bytes[WORD_BYTES];
    const tt_msg m = {.magic = magic, .len = len};
    const struct iovec iov = {(void *)(uintptr_t)bytes, len};
    while (node->ops->send(node->conns[to], &m, &iov, len > 0) == TT_FULL &&
           !node->failure[0])
        tt_node_turn(node);
}

static void send_true(tt_node *node, uint32_t to, uint32_t len)
{
    send_marked(node, to, len, TT_MSG_MAGIC);
}

static int stranger_body(tt_node *node)
{
    known *k = node->nodes->arg;
    tt_peer *other = &node->peers[1 - node->rank];
    stranger s = {.api = NULL};
    if (node->rank == 0) {
        open_stranger(&s, k);
        send_true(node, 1, 0);
        forge(node, &s);
        hush(node, &s);
        send_true(node, 1, WORD_BYTES);
        k->is_over = true;
        while (other->n_arrived < 1 && tt_node_turn(node))
            continue;
    } else {
        while ((!k->is_over || other->n_arrived < 2) && !other->is_lost)
            if (!tt_node_poll(node, true))
                usleep(100);
        NODE_CHECK(node, !other->is_lost && other->n_arrived == 2);
        send_true(node, 0, WORD_BYTES);
    }
    tt_node_close(node);
    if (node->rank == 0)
        close_stranger(&s);
    NODE_CHECK(node, node->rank == 1 || other->n_arrived == 1);
    return node->failure[0] != 0;
}

static void a_stranger_who_knows_the_address_is_not_heard(void **state)
{
    (void)state;
    tt_nodes nodes = base_nodes(2);
    known *k = mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(k != MAP_FAILED);
    nodes.arg = k;
    nodes.before = tell_address;
    nodes.body = stranger_body;
    assert_int_equal(tt_nodes_run(&nodes), 0);
    munmap(k, sizeof(*k));
}

/* A bit of the magic that is wrong is for those above to see, who may mend it
 * (checked.c). */
static int wrong_magic_body(tt_node *node)
{
    tt_peer *other = &node->peers[1 - node->rank];
    for (uint32_t bit = 0; node->rank == 0 && bit < 16; bit++)
        send_marked(node, 1, WORD_BYTES, (uint16_t)(TT_MSG_MAGIC ^ 1u << bit));
    while (node->rank == 1 && other->n_arrived < 16 && !other->is_lost &&
           tt_node_turn(node))
        continue;
    NODE_CHECK(node, node->rank == 0 || other->n_arrived == 16);
    tt_node_close(node);
    return node->failure[0] != 0;
}

static void a_wrong_bit_of_the_magic_is_handed_up(void **state)
{
    (void)state;
    tt_nodes nodes = base_nodes(2);
    nodes.any_magic = true;
    nodes.body = wrong_magic_body;
    assert_int_equal(tt_nodes_run(&nodes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_an_active_port_counts, make_sysfs,
                                        remove_sysfs),
        cmocka_unit_test(a_damaged_address_is_refused),
        cmocka_unit_test(a_stranger_who_knows_the_address_is_not_heard),
        cmocka_unit_test(a_wrong_bit_of_the_magic_is_handed_up),
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
