/* SPDX-License-Identifier: BSD-3-Clause
 * steps.c - what the steps of the start share: that all ranks agree, and nets.
 * Next: connect.c. */
#include "start/steps.h"

#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/log.h"

/* What TUTTI_TRANSPORTS=auto stands for: what is not built in, or not wanted on
 * this host, is left out. */
static const char automatic[] = "shm,ucx,tcp";
/* ------------------------------------------------------------- agreement -- */

typedef struct outcome {
    char text[480];
} outcome;

/* Who only waited in vain, or was told to stop, knows less than others. */
static int knowledge(int32_t err)
{
    return err == TUTTI_OK         ? 0
           : err == TUTTI_EPEER    ? 1
           : err == TUTTI_ETIMEOUT ? 2
                                   : 3;
}

/* The sentence of the rank that knows most, on all ranks. */
static tutti_err tell_worst(start *st, tutti_err mine, uint32_t worst)
{
    outcome own = {.text = ""};
    if (mine && st->diag)
        snprintf(own.text, sizeof(own.text), "%.479s", st->diag->text);
    outcome *all = tt_arena_new(&st->passing, st->n, sizeof(*all));
    if (!all)
        return mine ? mine : tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    tutti_err err = tt_boot_exchange(st->boot, &own, sizeof(own), all,
                                     st->diag);
    all[worst].text[sizeof(all[worst].text) - 1] = '\0';
    if (!err && worst == st->rank)
        err = tt_fail(st->diag, mine, "%s", own.text);
    else if (!err)
        err = tt_fail(st->diag, TUTTI_EBOOT, "rank %u could not start: %s",
                      worst, all[worst].text);
    return err;
}

tutti_err tt_start_agree(start *st, tutti_err mine)
{
    const int32_t own = mine;
    int32_t *all = tt_arena_new(&st->passing, st->n, sizeof(*all));
    if (!all)
        return mine ? mine : tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    tutti_diag why;
    tutti_err err = tt_boot_exchange(st->boot, &own, sizeof(own), all, &why);
    uint32_t worst = 0;
    for (uint32_t r = 0; !err && r < st->n; r++)
        if (knowledge(all[r]) > knowledge(all[worst]))
            worst = r;
    if (err)
        return tt_fail(st->diag, err, "%s", why.text);
    return all[worst] == TUTTI_OK ? TUTTI_OK : tell_worst(st, mine, worst);
}

const char *tt_start_host_name(const start *st, uint32_t rank)
{
    return st->places[st->hosts[rank]].name;
}

/* ------------------------------------------------------------ transports -- */

static bool is_automatic(const start *st)
{
    return strcmp(st->settings.transports, "auto") == 0;
}

/* The row + 1 of the name; 0: none. */
static uint8_t row_of(const char *name)
{
    for (uint8_t row = 0; row < MAX_TRANSPORTS && tt_transports[row]; row++) {
        if (strcmp(tt_transports[row]->name, name) == 0)
            return (uint8_t)(row + 1);
    }
    return 0;
}

/* Beside a secret, where the user has not said that he knows. Every rank comes
 * to the same, as all have the secret and the last word is rank 0's. */
static bool is_barred(const start *st, uint8_t row)
{
    return row && st->launch.trust && !st->settings.ucx_insecure &&
           tt_transports[row - 1]->has_no_trust;
}

static void say_barred(const start *st, const tt_net_ops *ops)
{
    if (st->rank == 0 && ops->is_wanted && ops->is_wanted())
        TT_WARN("%s is not used, though this host has what it is for: the job "
                "has a secret, and %s sends in clear "
                "(TUTTI_UCX_INSECURE=1 allows it)",
                ops->name, ops->name);
}

/* Rows of the table in the order of the setting "shm,tcp". */
tutti_err tt_start_order(const start *st, uint8_t *order)
{
    const char *at = is_automatic(st) ? automatic : st->settings.transports;
    size_t n = 0;
    memset(order, 0, MAX_TRANSPORTS);
    while (*at) {
        char name[32];
        size_t len = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)len, at);
        uint8_t row = row_of(name);
        const char *lack = tt_transport_lack(name);
        if (!row && lack && !is_automatic(st))
            return tt_fail(st->diag, TUTTI_ECONFIG, "TUTTI_TRANSPORTS: %s: %s",
                           name, lack);
        if (!row && !lack)
            return tt_fail(st->diag, TUTTI_ECONFIG,
                           "TUTTI_TRANSPORTS: '%.*s' is no transport; use a "
                           "list such as shm,tcp",
                           (int)len, at);
        if (is_barred(st, row) && !is_automatic(st))
            return tt_fail(st->diag, TUTTI_ECONFIG,
                           "TUTTI_TRANSPORTS: %s sends in clear, and this job "
                           "has a secret; allow it by "
                           "TUTTI_UCX_INSECURE=1, or use tcp",
                           name);
        if (is_barred(st, row))
            say_barred(st, tt_transports[row - 1]);
        else if (row && n < MAX_TRANSPORTS)
            order[n++] = row;
        at += len + (at[len] == ',');
    }
    if (n == 0)
        return tt_fail(st->diag, TUTTI_ECONFIG,
                       "TUTTI_TRANSPORTS is empty; use a list such as "
                       "shm,tcp");
    return TUTTI_OK;
}

bool tt_start_row(uint8_t entry, uint8_t *row)
{
    *row = (uint8_t)(entry - 1);
    return entry != 0;
}

tutti_err tt_start_net(start *st, const tt_net_ops *ops, tt_net **out)
{
    const tt_net as = {.ops = ops,
                       .up = &tt_engine_up,
                       .mem = st->keep,
                       .settings = st->net_settings,
                       .regions = tt_process_regions(),
                       .trust = st->launch.trust,
                       .rank = st->rank,
                       .n_ranks = st->n,
                       .caps = st->caps,
                       .n_caps = st->n_caps,
                       .is_local = st->agreed.n_hosts == 1,
                       .is_crowded = tt_start_is_crowded(st, 1),
                       .fd = -1};
    *out = tt_net_new(&as);
    if (!*out)
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory for transport %s",
                       ops->name);
    return (*out)->ops->open(*out, st->diag);
}

/* What was not asked for by name is no reason to fail. */
tutti_err tt_start_nets(start *st)
{
    const uint8_t *order = st->wish;
    uint8_t row;
    /* Ranks that check cannot understand those that do not. */
    if (st->agreed.is_checked != (st->settings.check == TT_CHECK_CRC))
        return tt_fail(st->diag, TUTTI_ECONFIG,
                       "rank %u has TUTTI_CHECK=%s, rank 0 has not: it must be "
                       "the same on all ranks",
                       st->rank, st->agreed.is_checked ? "off" : "crc");
    for (size_t i = 0; i < MAX_TRANSPORTS && tt_start_row(order[i], &row);
         i++) {
        const tt_net_ops *ops = tt_transports[row];
        bool may_fail = is_automatic(st) && ops->is_wanted;
        if (st->nets[row] || (may_fail && !ops->is_wanted()))
            continue;
        tutti_err err = tt_start_net(st, ops, &st->nets[row]);
        st->known[row] = st->nets[row];
        if (err && !may_fail)
            return err;
        if (err) {
            TT_INFO("goes on without the transport %s: %s", ops->name,
                    st->diag->text);
            tt_net_drop(st->nets[row]);
            st->nets[row] = st->known[row] = NULL;
        }
    }
    return TUTTI_OK;
}
