/* SPDX-License-Identifier: BSD-3-Clause
 * rules_test.c - what rank 0 says of the job is believed as far as it can be
 * so; else a rank that starts says that it makes no sense. */
#include "support/tap.h"

#include <string.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "base/clock.h"
#include "start/steps.h"
#include "support/procs.h"

/* What rank 0 says in its place. */
typedef struct lie {
    uint64_t window, staging_max_bytes, eager_bytes;
    uint32_t n_hosts, hosts[2];
} lie;

/* As far as it is listened to. */
static tutti_err tell(start *st, const lie *l)
{
    hello own = {.has_rate = false}, all[2];
    rules r = {.settings = {.window = l->window,
                            .staging_max_bytes = l->staging_max_bytes,
                            .eager_bytes = l->eager_bytes,
                            .n_hosts = l->n_hosts}};
    uint32_t hosts[2] = {l->hosts[0], l->hosts[1]}, cpus[2] = {TT_NONE, 12345};
    tt_start_host places[2] = {{.name = "a"}, {.name = "b"}};
    tutti_err err = tt_boot_open(&st->launch, &st->settings, st->mem,
                                 tt_now_ns() + 30 * TT_NS_PER_S, &st->boot,
                                 st->diag);
    if (!err)
        err = tt_start_agree(st, TUTTI_OK);
    if (!err)
        err = tt_boot_collect(st->boot, &own, sizeof(own), all, st->diag);
    if (!err)
        err = tt_boot_share(st->boot, &r, sizeof(r), st->diag);
    if (!err && l->hosts[1] > 0)
        err = tt_boot_share(st->boot, hosts, sizeof(hosts), st->diag);
    if (!err && l->hosts[1] > 0)
        err = tt_boot_share(st->boot, cpus, sizeof(cpus), st->diag);
    if (!err && l->hosts[1] > 0)
        err = tt_boot_share(st->boot, places, l->n_hosts * sizeof(*places),
                            st->diag);
    /* Until it has heard all, and goes. */
    if (!err)
        tt_start_agree(st, TUTTI_OK);
    tt_boot_close(st->boot);
    return err;
}

static int lie_to_one(int rank, int n, void *arg)
{
    static start st;
    tutti_diag diag = {0};
    if (rank == 1) {
        tutti_comm *comm;
        if (tutti_comm_create(NULL, &comm) != TUTTI_EPROTO ||
            !strstr(tutti_last_message(), "settings that make no sense"))
            return tt_procs_complain(rank, "%s", tutti_last_message());
        return 0;
    }
    st = (start){.mem = &tt_mem_std, .passing.mem = &tt_mem_std, .diag = &diag};
    st.n = (uint32_t)n;
    tutti_err err = tt_start_read(NULL, &st.settings, &st.launch, &diag);
    if (!err)
        err = tell(&st, arg);
    tt_arena_free(&st.passing);
    return err ? tt_procs_complain(rank, "%s", diag.text) : 0;
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    lie lies[] = {{1025, 1, 0, 1, {0}},
                  {1024, 0, 0, 1, {0}},
                  {8, 1, (128 << 10) + 1, 1, {0}},
                  {8, 1, 0, 0, {0}},
                  {8, 1, 0, 3, {0}},
                  {8, 1, 128 << 10, 1, {0, 1}},
                  {1024, 1, 0, 2, {0, 2}}};
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        int status[TT_PROCS_MAX];
        tt_procs p = {
            .n = 2, .timeout_s = 55, .run = lie_to_one, .arg = &lies[i]};
        assert_true(tt_procs_run(&p, status));
        if (tt_procs_failures(status, p.n) > 0)
            fail_msg("lie %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return TT_RUN_TAP(tests);
}
