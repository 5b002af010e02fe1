/* SPDX-License-Identifier: BSD-3-Clause
 * create.c - start-up: from the environment to a mesh of connected ranks.
 *
 *   settings -> launch -> rendezvous -> exchange addresses -> connect by each
 *   transport in turn -> exchange outcomes -> mesh, team, communicator
 *
 * All ranks go through the same exchanges whatever happens to them, so that a
 * failure of one is reported by all. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "boot/boot.h"
#include "core/drift.h"
#include "core/learn.h"
#include "plan/plan.h"

#define MAX_TRANSPORTS 8

/* How long a rank polls for others that share its cores, on other hosts. */
static const uint64_t crowd_spin_ns = 100000;
/* Of the engine's thread where programs may compute on all processors. */
static const uint64_t aside_spin_ns = 20000;

/* What TUTTI_TRANSPORTS=auto stands for: what is not built in, or not wanted on
 * this host, is left out. */
static const char automatic[] = "shm,ucx,tcp";
/* In hello.order: connect() may miss. */
#define MAY_MISS 0x80

/* No transport has less. */
static const uint32_t least_payload = 1024;
/* The limit of the setting, which rank 0 may have read elsewhere. */
static const uint64_t most_eager_bytes = 128 << 10;
/* What small calls may have a rank keep in all, where that is enough for this
 * much of each, which is the most inside one host: memory is quicker read where
 * it lies than kept. */
static const uint64_t most_kept_bytes = 32 << 20, least_eager_bytes = 16 << 10;
/* How long a rank may keep to itself that it has entered a small call. */
static const uint64_t speak_ns = TT_NS_PER_MS;

typedef struct address {
    uint32_t len; /* 0: not offered */
    uint8_t bytes[TT_NET_ADDR_MAX];
} address;

/* What a rank tells all others; equal-sized. */
typedef struct hello {
    tt_host_id host;
    tt_agreed settings;                /* only rank 0's count */
    cpu_set_t cpus;                    /* that the process may use */
    uint8_t order[MAX_TRANSPORTS];     /* rows + 1, MAY_MISS; likewise */
    address addresses[MAX_TRANSPORTS]; /* by row of the table */
} hello;

typedef struct outcome {
    int32_t err;
    char text[480];
} outcome;

typedef struct start {
    const tt_mem *mem;  /* for what goes when the call ends */
    const tt_mem *keep; /* the same, at an address that lasts with the mesh */
    tt_mem **home;      /* of keep, for the mesh to take */
    tt_settings settings;
    tt_launch launch;
    uint64_t deadline_ns;
    tt_boot *boot;
    uint32_t rank, n;
    hello *hellos;                /* [n] */
    tt_net *nets[MAX_TRANSPORTS]; /* by row */
    tt_conn **conns;              /* [n] that are up */
    tt_rail_hints hints;
    tt_rails rails;  /* connections beyond these */
    uint32_t *hosts; /* [n] */
    tt_agreed agreed;
    tt_known known;           /* rank 0: what it has been told */
    tutti_topology *topology; /* NULL: not known */
    tutti_diag *diag;
} start;

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

/* Rows of the table in the order of the setting "shm,tcp". */
static tutti_err parse_transports(const start *st, uint8_t *order)
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
        if (row && n < MAX_TRANSPORTS)
            order[n++] =
                (uint8_t)(row |
                          (tt_transports[row - 1]->may_miss ? MAY_MISS : 0));
        at += len + (at[len] == ',');
    }
    if (n == 0)
        return tt_fail(st->diag, TUTTI_ECONFIG,
                       "TUTTI_TRANSPORTS is empty; use a list such as "
                       "shm,tcp");
    return TUTTI_OK;
}

/* Into a number from 0; false: that is the end. */
static bool read_order(uint8_t entry, uint8_t *row)
{
    *row = (uint8_t)((entry & ~MAY_MISS) - 1);
    return entry != 0;
}

static bool is_well(void *boot, tutti_diag *diag)
{
    return tt_boot_is_well(boot, diag);
}

static void drop_net(start *st, uint8_t row)
{
    tt_net *net = st->nets[row];
    if (!net)
        return;
    const tt_net_ops *ops = net->ops;
    ops->fini(net);
    tt_free(st->mem, net, 1, ops->net_size);
    st->nets[row] = NULL;
}

static tutti_err open_net(start *st, uint8_t row, hello *mine)
{
    const tt_net_ops *ops = tt_transports[row];
    tt_net *net = tt_new(st->keep, 1, ops->net_size);
    if (!net)
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory for transport %s",
                       ops->name);
    *net = (tt_net){.ops = ops,
                    .up = &tt_engine_up,
                    .mem = st->keep,
                    .settings = &st->settings,
                    .regions = tt_process_regions(),
                    .rank = st->rank,
                    .n_ranks = st->n,
                    .is_well = is_well,
                    .is_well_arg = st->boot,
                    .fd = -1};
    st->nets[row] = net;
    tutti_err err = ops->open(net, st->diag);
    if (err)
        return err;
    mine->addresses[row].len =
        (uint32_t)ops->address(net, mine->addresses[row].bytes);
    if (net->max_payload < mine->settings.max_payload)
        mine->settings.max_payload = net->max_payload;
    return TUTTI_OK;
}

/* What was not asked for by name is no reason to fail. */
static tutti_err open_nets(start *st, hello *mine)
{
    uint8_t row;
    for (size_t i = 0; i < MAX_TRANSPORTS && read_order(mine->order[i], &row);
         i++) {
        const tt_net_ops *ops = tt_transports[row];
        bool may_fail = is_automatic(st) && ops->is_wanted;
        if (st->nets[row] || (may_fail && !ops->is_wanted()))
            continue;
        tutti_err err = open_net(st, row, mine);
        if (err && !may_fail)
            return err;
        if (err) {
            TT_INFO("goes on without the transport %s: %s", ops->name,
                    st->diag->text);
            drop_net(st, row);
        }
    }
    return TUTTI_OK;
}

static bool same_host(const hello *a, const hello *b)
{
    return memcmp(a->host.boot_id, b->host.boot_id, sizeof(a->host.boot_id)) ==
               0 &&
           a->host.netns == b->host.netns;
}

/* Connects, by the transport of one row, every pair that is not connected yet
 * and may use it. */
static tutti_err connect_row(start *st, uint8_t row)
{
    const tt_net_ops *ops = tt_transports[row];
    const hello *me = &st->hellos[st->rank];
    tutti_err err = TUTTI_ENOMEM;
    tt_conn **conns = tt_new(st->mem, st->n, sizeof(*conns));
    const void **addrs = tt_new(st->mem, st->n, sizeof(*addrs));
    size_t *lens = tt_new(st->mem, st->n, sizeof(*lens));
    if (!conns || !addrs || !lens)
        goto out;
    for (uint32_t r = 0; r < st->n; r++) {
        const hello *peer = &st->hellos[r];
        addrs[r] = peer->addresses[row].bytes;
        lens[r] = peer->addresses[row].len;
        if (r == st->rank || st->conns[r] || lens[r] == 0 ||
            lens[r] > TT_NET_ADDR_MAX || !st->nets[row] ||
            (ops->same_host && !same_host(me, peer)))
            continue;
        conns[r] = tt_new(st->mem, 1, ops->conn_size);
        if (!conns[r])
            goto out;
        *conns[r] = (tt_conn){.net = st->nets[row], .rank = r};
    }
    err = TUTTI_OK;
    if (st->nets[row])
        st->nets[row]->hints = st->hints.hints[0];
    if (st->nets[row])
        err = ops->connect(st->nets[row], conns, addrs, lens, st->deadline_ns,
                           st->diag);
out:
    if (err == TUTTI_ENOMEM)
        tt_fail(st->diag, err, "out of memory for connections");
    for (uint32_t r = 0; conns && r < st->n; r++) {
        if (!conns[r])
            continue;
        if (!err && conns[r]->is_up) {
            st->conns[r] = conns[r];
            continue;
        }
        ops->close(conns[r], 0);
        tt_free(st->mem, conns[r], 1, ops->conn_size);
    }
    tt_free(st->mem, conns, st->n, sizeof(*conns));
    tt_free(st->mem, addrs, st->n, sizeof(*addrs));
    tt_free(st->mem, lens, st->n, sizeof(*lens));
    return err;
}

static void drop_conn(start *st, uint32_t rank)
{
    tt_conn *conn = st->conns[rank];
    conn->net->ops->close(conn, 0);
    tt_free(st->mem, conn, 1, conn->net->ops->conn_size);
    st->conns[rank] = NULL;
}

/* After a transport that may miss: what only one side of a pair takes for
 * connected is dropped. All ranks come here, whether or not they are well. */
static tutti_err compare_sides(start *st, uint8_t row, tutti_err mine)
{
    const size_t size = 1 + ((size_t)st->n + 7) / 8; /* the error, a bit each */
    uint8_t *own = tt_new(st->mem, 1, size);
    uint8_t *all = tt_new(st->mem, st->n, size);
    tutti_err err = TUTTI_ENOMEM;
    if (!own || !all) {
        tt_fail(st->diag, err, "out of memory for connections");
        goto out;
    }
    own[0] = mine != TUTTI_OK;
    for (uint32_t r = 0; !mine && r < st->n; r++)
        if (st->conns[r] && st->conns[r]->net == st->nets[row])
            own[1 + r / 8] |= (uint8_t)(1 << r % 8);
    tutti_diag why;
    err = tt_boot_exchange(st->boot, own, size, all, &why);
    if (err && !mine)
        tt_fail(st->diag, err, "%s", why.text);
    for (uint32_t r = 0; !err && !mine && r < st->n; r++) {
        const uint8_t *other = all + r * size;
        if (other[0]) /* it says why in the next exchange */
            err = tt_fail(st->diag, TUTTI_EPEER, "rank %u has failed", r);
        if (!err && st->conns[r] && st->conns[r]->net == st->nets[row] &&
            !(other[1 + st->rank / 8] >> st->rank % 8 & 1))
            drop_conn(st, r);
    }
out:
    tt_free(st->mem, own, 1, size);
    tt_free(st->mem, all, st->n, size);
    return mine ? mine : err;
}

static tutti_err fail_unconnected(const start *st, uint32_t r)
{
    /* What a transport that may miss has left there. */
    char why[200] = "";
    if (st->diag && st->diag->text[0])
        snprintf(why, sizeof(why), "; %.190s", st->diag->text);
    return tt_fail(st->diag, TUTTI_ENET,
                   "rank %u on %.63s and rank %u on %.63s have no transport in "
                   "common that connects them (rank 0 allows %.60s)%s",
                   st->rank, st->hellos[st->rank].host.name, r,
                   st->hellos[r].host.name, st->settings.transports, why);
}

/* By any rank; all see the same. */
static bool is_offered(const start *st, uint8_t row)
{
    bool is_offered = false;
    for (uint32_t r = 0; row < MAX_TRANSPORTS && r < st->n; r++)
        is_offered |= st->hellos[r].addresses[row].len > 0;
    return is_offered;
}

/* A rank that has failed already only takes part in the comparisons. */
static tutti_err connect_rows(start *st, tutti_err err)
{
    const uint8_t *order = st->hellos[0].order;
    uint8_t row;
    if (err)
        tt_boot_call_off(st->boot);
    for (size_t i = 0; i < MAX_TRANSPORTS && read_order(order[i], &row); i++) {
        bool is_known = false;
        if (!is_offered(st, row))
            continue;
        for (uint8_t r = 0; tt_transports[r] && !is_known; r++)
            is_known = r == row;
        if (is_known && !err) {
            err = connect_row(st, row);
            if (err)
                tt_boot_call_off(st->boot);
        }
        if (order[i] & MAY_MISS)
            err = compare_sides(st, row, err);
    }
    return err;
}

static tutti_err connect_all(start *st)
{
    st->conns = tt_new(st->mem, st->n, sizeof(*st->conns));
    tutti_err err = TUTTI_OK;
    if (!st->conns || tt_rail_hints_create(st->n, st->mem, &st->hints))
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    if (!err && st->topology)
        err = tt_rail_hints_read(st->topology, st->rank, st->hosts, &st->hints,
                                 st->diag);
    if (!err)
        tt_diag_clear(st->diag);
    err = connect_rows(st, err);
    for (uint32_t r = 0; !err && r < st->n; r++)
        if (r != st->rank && !st->conns[r])
            err = fail_unconnected(st, r);
    return err;
}

/* ------------------------------------------------------------- agreement -- */

/* Who only waited in vain, or was told to stop, knows less than others. */
static int knowledge(int32_t err)
{
    return err == TUTTI_OK         ? 0
           : err == TUTTI_EPEER    ? 1
           : err == TUTTI_ETIMEOUT ? 2
                                   : 3;
}

/* Every rank learns whether all are well; of those that are not the first of
 * those who know most is named. */
static tutti_err agree(start *st, tutti_err mine)
{
    outcome own = {.err = mine};
    if (mine && st->diag)
        snprintf(own.text, sizeof(own.text), "%.479s", st->diag->text);
    outcome *all = tt_new(st->mem, st->n, sizeof(*all));
    if (!all)
        return mine ? mine : tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    tutti_err err = tt_boot_exchange(st->boot, &own, sizeof(own), all,
                                     st->diag);
    uint32_t worst = 0;
    for (uint32_t r = 0; !err && r < st->n; r++) {
        all[r].text[sizeof(all[r].text) - 1] = '\0';
        if (knowledge(all[r].err) > knowledge(all[worst].err))
            worst = r;
    }
    if (!err && all[worst].err && worst == st->rank)
        err = tt_fail(st->diag, mine, "%s", own.text);
    else if (!err && all[worst].err)
        err = tt_fail(st->diag, TUTTI_EBOOT, "rank %u could not start: %s",
                      worst, all[worst].text);
    tt_free(st->mem, all, st->n, sizeof(*all));
    return err;
}

static tutti_err agree_on(void *st, tutti_err mine)
{
    return agree(st, mine);
}

static tutti_err connect_rails(start *st)
{
    const tt_rails_job job = {
        .mem = st->keep,
        .boot = st->boot,
        .rank = st->rank,
        .n = st->n,
        .hints = &st->hints,
        .conns = st->conns,
        .deadline_ns = st->deadline_ns,
        .agree = agree_on,
        .ctx = st,
    };
    return tt_rails_connect(&job, st->topology, &st->rails, st->diag);
}

static void number_hosts(start *st)
{
    st->agreed.n_hosts = 0;
    for (uint32_t r = 0; r < st->n; r++) {
        uint32_t q = 0;
        while (!same_host(&st->hellos[q], &st->hellos[r]))
            q++;
        st->hosts[r] = q < r ? st->hosts[q] : st->agreed.n_hosts++;
    }
}

/* Ranks on this machine, and the processors that any of them may use. */
static uint32_t count_here(const start *st, uint32_t *n_cpus)
{
    const tt_host_id *me = &st->hellos[st->rank].host;
    uint32_t here = 0;
    cpu_set_t all;
    CPU_ZERO(&all);
    for (uint32_t r = 0; r < st->n; r++) {
        const tt_host_id *at = &st->hellos[r].host;
        if (memcmp(at->boot_id, me->boot_id, sizeof(me->boot_id)) != 0)
            continue;
        here++;
        CPU_OR(&all, &all, &st->hellos[r].cpus);
    }
    *n_cpus = (uint32_t)CPU_COUNT(&all);
    return here;
}

/* More threads of ranks, so many each, on this machine than processors that any
 * rank may use. Each rank alone may be bound to one, and hosts that are containers
 * share them. */
static bool is_crowded(const start *st, uint32_t n_threads)
{
    uint32_t n_cpus;
    return count_here(st, &n_cpus) * n_threads > n_cpus;
}

/* See tt_agreed. */
static double shared_cpus(const start *st)
{
    uint32_t n_cpus;
    bool is_all = count_here(st, &n_cpus) == st->n;
    return is_all && st->agreed.n_hosts > 1 ? n_cpus / (double)st->n : 0;
}

static tutti_err exchange_hellos(start *st)
{
    hello *mine = tt_new(st->mem, 1, sizeof(*mine));
    st->hellos = tt_new(st->mem, st->n, sizeof(hello));
    st->hosts = tt_new(st->mem, st->n, sizeof(uint32_t));
    if (!mine || !st->hellos || !st->hosts) {
        tt_free(st->mem, mine, 1, sizeof(*mine));
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    }
    tt_host_id_get(&mine->host);
    if (sched_getaffinity(0, sizeof(mine->cpus), &mine->cpus) != 0)
        memset(&mine->cpus, 0xff, sizeof(mine->cpus)); /* not known: many */
    mine->settings = (tt_agreed){
        .window = st->settings.window,
        .front_bytes = st->settings.front_bytes,
        .front_window_bytes = st->settings.front_window_bytes,
        .staging_max_bytes = st->settings.staging_max_bytes,
        .eager_bytes = st->settings.eager_bytes,
        .max_payload = UINT32_MAX / 4,
    };
    snprintf(mine->settings.planner, sizeof(mine->settings.planner), "%s",
             st->settings.planner);
    tutti_err err = TUTTI_OK;
    mine->settings.watches_drift = st->settings.drift;
    mine->settings.replans = st->settings.replan;
    mine->settings.topology_is_learnt = tt_learn_is_wanted(&st->settings);
    if (st->rank == 0 && !mine->settings.topology_is_learnt)
        err = tt_known_read(st->settings.topology, &st->known, st->diag);
    mine->settings.topology_bytes = (uint32_t)st->known.n_bytes;
    mine->settings.topology_has_names = st->known.has_names;
    if (!err)
        err = parse_transports(st, mine->order);
    if (!err && st->n > 1)
        err = open_nets(st, mine);
    err = agree(st, err);
    if (!err)
        err = tt_boot_exchange(st->boot, mine, sizeof(*mine), st->hellos,
                               st->diag);
    tt_free(st->mem, mine, 1, sizeof(*mine));
    if (err)
        return err;
    st->agreed = st->hellos[0].settings;
    st->agreed.cache_bytes = st->settings.cache_bytes ? st->settings.cache_bytes
                                                      : tt_host_cache_bytes();
    st->agreed.planner[sizeof(st->agreed.planner) - 1] = '\0';
    if (st->agreed.window > 1024 || st->agreed.staging_max_bytes == 0 ||
        st->agreed.eager_bytes > most_eager_bytes)
        return tt_fail(st->diag, TUTTI_EPROTO,
                       "rank 0 sent settings that make no sense");
    for (uint32_t r = 0; r < st->n; r++)
        if (st->hellos[r].settings.max_payload < st->agreed.max_payload)
            st->agreed.max_payload = st->hellos[r].settings.max_payload;
    if (st->n > 1 && st->agreed.max_payload < least_payload)
        return tt_fail(st->diag, TUTTI_EPROTO,
                       "a rank sent settings that make no sense");
    number_hosts(st);
    st->agreed.is_crowded = st->agreed.n_hosts == 1 && is_crowded(st, 1);
    st->agreed.shared_cpus = shared_cpus(st);
    return TUTTI_OK;
}

/* See mesh_opts: TT_EAGER_CALLS calls of every rank may have to be kept. */
static uint64_t eager_bytes(const start *st)
{
    uint64_t room = most_kept_bytes / TT_EAGER_CALLS / st->n;
    if (room < least_eager_bytes || st->agreed.n_hosts == 1)
        room = least_eager_bytes;
    return st->agreed.eager_bytes < room ? st->agreed.eager_bytes : room;
}

static const char *host_name(const void *ctx, uint32_t rank)
{
    const start *st = ctx;
    return st->hellos[rank].host.name;
}

/* TUTTI_TOPOLOGY=auto: rank 0 gets a network. */
static tutti_err learn_topology(start *st)
{
    const tt_learn_job job = {
        .mem = st->mem,
        .boot = st->boot,
        .rank = st->rank,
        .n_ranks = st->n,
        .n_hosts = st->agreed.n_hosts,
        .settings = &st->settings,
    };
    if (!st->agreed.topology_is_learnt)
        return TUTTI_OK;
    uint64_t begin_ns = tt_now_ns();
    tutti_err err = tt_learn(&job, &st->known, &st->agreed.topology_bytes,
                             st->diag);
    st->deadline_ns += tt_now_ns() - begin_ns; /* what comes has its own time */
    return err;
}

/* Rank 0's network, if it has one, on all ranks. */
static tutti_err share_topology(start *st)
{
    const tt_known_job job = {
        .mem = st->mem,
        .boot = st->boot,
        .rank = st->rank,
        .n = st->n,
        .known = &st->known,
        .host = host_name,
        .ctx = st,
        .hosts = st->hosts,
    };
    tutti_err err = tt_known_share(&job, st->agreed.topology_bytes,
                                   st->agreed.topology_has_names, &st->topology,
                                   st->diag);
    for (size_t row = 0; row < MAX_TRANSPORTS && !err && st->topology; row++) {
        if (st->nets[row])
            st->nets[row]->n_sockets = st->topology->n_sockets;
    }
    return st->agreed.topology_bytes ? agree(st, err) : err;
}

/* ------------------------------------------------------------------ mesh -- */

/* A net without connections would only be polled for nothing. */
static bool is_used(const start *st, const tt_net *net)
{
    for (uint32_t r = 0; r < st->n; r++)
        if (st->conns[r] && st->conns[r]->net == net)
            return true;
    return false;
}

static tutti_err make_mesh(start *st, tt_engine *e, tt_mesh **out)
{
    tt_net *nets[MAX_TRANSPORTS + TT_PORTS_MAX];
    uint32_t n_nets = 0;
    for (size_t i = 0; i < MAX_TRANSPORTS; i++)
        if (st->nets[i] && is_used(st, st->nets[i]))
            nets[n_nets++] = st->nets[i];
    for (uint32_t i = 0; i < st->rails.n_nets; i++)
        nets[n_nets++] = st->rails.nets[i];
    for (uint32_t i = 0; i < n_nets; i++) { /* ours go when the call ends */
        nets[i]->settings = NULL;
        nets[i]->hints = NULL;
    }
    tt_mesh_opts opts = {.rank = st->rank,
                         .n_ranks = st->n,
                         .n_nets = n_nets,
                         .nets = nets,
                         .conns = st->conns,
                         .n_more = (uint32_t)st->rails.n_more,
                         .more = st->rails.more,
                         .eager_bytes = eager_bytes(st),
                         .home = *st->home};
    tutti_err err = tt_mesh_create(e, st->keep, &opts, out);
    if (err)
        return tt_fail(st->diag, err, "out of memory for the mesh");
    *st->home = NULL;
    /* They are the mesh's now. */
    for (size_t i = 0; i < MAX_TRANSPORTS; i++)
        if (st->nets[i] && is_used(st, st->nets[i]))
            st->nets[i] = NULL;
    memset(st->conns, 0, st->n * sizeof(*st->conns));
    st->rails.n_nets = 0;
    st->rails.n_more = 0;
    return TUTTI_OK;
}

static void clean(start *st)
{
    tt_rails_free(&st->rails, st->mem);
    for (uint32_t r = 0; st->conns && r < st->n; r++)
        if (st->conns[r])
            drop_conn(st, r);
    for (uint8_t i = 0; i < MAX_TRANSPORTS; i++)
        drop_net(st, i);
    tt_free(st->mem, st->conns, st->n, sizeof(*st->conns));
    tt_rail_hints_free(&st->hints, st->mem);
    tt_free(st->mem, st->hellos, st->n, sizeof(hello));
    tt_free(st->mem, st->hosts, st->n, sizeof(uint32_t));
    tt_known_free(&st->known);
    tt_topology_free(st->topology);
    tt_boot_close(st->boot);
}

static tutti_err make_comm(start *st, uint64_t timeout_ns, tutti_comm **out)
{
    tt_engine *e;
    tt_engine_opts opts = {.spin_ns = st->settings.spin_ns,
                           .spin_large_ns = st->settings.spin_ns,
                           .spin_aside_ns = st->settings.spin_ns,
                           .liveness_ns = st->settings.liveness_ns,
                           .speak_ns = speak_ns,
                           .yields = is_crowded(st, 1)};
    uint32_t *members = tt_new(st->mem, st->n, sizeof(*members));
    if (!members)
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    for (uint32_t r = 0; r < st->n; r++)
        members[r] = r;
    tt_comm_parts parts = {
        .diag = st->diag,
        .members = members,
        .hosts = st->hosts,
        .n = st->n,
        .rank = st->rank,
        .id = tt_fnv1a(TT_FNV1A_START, st->launch.job, strlen(st->launch.job)),
        .timeout_ns = timeout_ns,
        .agreed = &st->agreed,
        .topology = st->topology,
    };
    /* What crosses hosts takes longer than others need to be woken; a small call
     * does not, or not much. */
    if (opts.yields && st->agreed.n_hosts > 1) {
        opts.spin_large_ns = 0;
        if (opts.spin_ns > crowd_spin_ns)
            opts.spin_ns = crowd_spin_ns;
    }
    if (is_crowded(st, 2) && opts.spin_aside_ns > aside_spin_ns)
        opts.spin_aside_ns = aside_spin_ns;
    tutti_err err = tt_process_engine(&opts, &e, st->diag);
    if (!err) {
        err = make_mesh(st, e, &parts.mesh);
        if (!err) {
            err = tt_comm_make(st->keep, e, &parts, out);
            if (err) {
                if (err == TUTTI_ENOMEM)
                    tt_fail(st->diag, err,
                            "out of memory for the communicator");
                tt_mesh_unref(parts.mesh);
            }
        }
        if (err)
            tt_process_release();
    }
    tt_free(st->mem, members, st->n, sizeof(*members));
    return err;
}

static void report(const start *st)
{
    TT_INFO("rank %u of %u on %s, started by %s, %u host%s", st->rank, st->n,
            st->hellos[st->rank].host.name, st->launch.source,
            st->agreed.n_hosts, st->agreed.n_hosts == 1 ? "" : "s");
    for (uint32_t r = 0; r < st->n; r++)
        if (st->conns[r])
            TT_DEBUG("peer %u on %.63s by %s", r, st->hellos[r].host.name,
                     st->conns[r]->net->ops->name);
}

/* A rule that cannot be read is refused here; whether its planners fit is seen
 * call by call. */
static tutti_err check_planner(const start *st)
{
    tutti_diag diag;
    const tt_planner *planner;
    tt_problem any = {.collective = TUTTI_ALL_REDUCE,
                      .n_ranks = 2,
                      .root = TT_NONE,
                      .size_bytes = 1};
    tutti_err err = tt_plan_choose(st->settings.planner, &any, &planner, &diag);
    if (err != TUTTI_ECONFIG)
        return TUTTI_OK;
    return tt_fail(st->diag, err, "TUTTI_PLANNER: %.400s", diag.text);
}

/* Who this rank is, and how the job is to be. */
static tutti_err detect(start *st, const tutti_comm_opts *opts)
{
    tutti_err err = tt_settings_read(&st->settings, st->diag);
    if (err)
        return err;
    tt_log_setup((tutti_log_level)st->settings.log);
    tt_settings_warn_unknown();
    err = check_planner(st);
    if (!err)
        err = tt_launch_detect(opts, &st->settings, &st->launch, st->diag);
    if (err)
        return err;
    if (opts && opts->start_timeout_s > 0)
        st->settings.start_timeout_ns = tt_seconds_to_ns(opts->start_timeout_s);
    if (opts && opts->timeout_s > 0)
        st->settings.timeout_ns = tt_seconds_to_ns(opts->timeout_s);
    st->rank = st->launch.rank;
    st->n = st->launch.n_ranks;
    tt_log_rank((int)st->rank);
    /* Communicators that one process makes one after the other must not meet
     * each other. */
    uint64_t instance = tt_process_next_instance();
    size_t used = strlen(st->launch.job);
    if (instance > 0 && used > 0)
        snprintf(st->launch.job + used, sizeof(st->launch.job) - used, "#%llu",
                 (unsigned long long)instance);
    return TUTTI_OK;
}

/* From the meeting to connections between all. */
static tutti_err meet(start *st)
{
    st->deadline_ns = tt_now_ns() + st->settings.start_timeout_ns;
    tutti_err err = tt_boot_open(&st->launch, &st->settings, st->keep,
                                 st->deadline_ns, &st->boot, st->diag);
    if (!err)
        err = exchange_hellos(st);
    if (!err)
        err = learn_topology(st);
    if (!err)
        err = share_topology(st);
    if (err)
        return err;
    err = connect_all(st);
    if (err)
        tt_boot_call_off(st->boot);
    err = agree(st, err);
    return err ? err : connect_rails(st);
}

static tutti_err run(start *st, const tutti_comm_opts *opts, tutti_comm **out)
{
    tutti_comm *comm = NULL;
    tutti_err err = detect(st, opts);
    if (!err)
        err = meet(st);
    if (err)
        return err;
    report(st);
    /* Nobody may speak to a communicator that does not exist yet on the other
     * side: one more round. */
    err = make_comm(st, st->settings.timeout_ns, &comm);
    if (!err && tt_replan_prepare(comm, &st->settings))
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    err = agree(st, err);
    if (err) {
        tutti_comm_destroy(comm);
        return err;
    }
    tt_replan_give(comm, &st->boot);
    *out = comm;
    return TUTTI_OK;
}

/* *home is set to NULL when the mesh has taken it. */
static tutti_err start_up(const tt_mem *mem, tt_mem **home,
                          const tutti_comm_opts *opts, tutti_comm **out,
                          tutti_diag *diag)
{
    /* The state is large for a stack; it goes when the call ends. */
    const tt_mem local = *mem;
    start *st = tt_new(&local, 1, sizeof(*st));
    if (!st)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    st->mem = &local;
    st->keep = mem;
    st->home = home;
    st->diag = diag;
    tutti_err err = run(st, opts, out);
    clean(st);
    tt_free(&local, st, 1, sizeof(*st));
    return err;
}

static tutti_err check_opts(const tutti_comm_opts *opts, tutti_comm **out,
                            tutti_diag *diag)
{
    if (!out ||
        (opts && (opts->size != sizeof(*opts) || !(opts->timeout_s >= 0) ||
                  !(opts->start_timeout_s >= 0))))
        return tt_fail(diag, TUTTI_EINVAL,
                       "tutti_comm_create: no place for the communicator, or "
                       "options without TUTTI_COMM_OPTS_INIT");
    if (opts && opts->store &&
        (opts->n_ranks <= 0 || !opts->store->put || !opts->store->get))
        return tt_fail(diag, TUTTI_EINVAL,
                       "tutti_comm_create: a store needs n_ranks and rank, and "
                       "both of its functions");
    return TUTTI_OK;
}

tutti_err tutti_comm_create(const tutti_comm_opts *opts, tutti_comm **out)
{
    tutti_diag diag;
    tt_diag_clear(&diag);
    tutti_err err = tt_process_enter(&diag);
    if (!err)
        err = check_opts(opts, out, &diag);
    if (!err) {
        /* Meshes outlive communicators, so the allocator gets a home that the
         * mesh takes over. */
        const tt_mem *mem = &tt_mem_std;
        tt_mem *home = NULL;
        if (opts && opts->alloc) {
            tt_mem given = {opts->alloc, opts->alloc_ctx};
            mem = home = tt_new(&given, 1, sizeof(*home));
            if (home)
                *home = given;
        }
        err = mem ? start_up(mem, &home, opts, out, &diag)
                  : tt_fail(&diag, TUTTI_ENOMEM, "out of memory");
        if (home) {
            tt_mem given = *home;
            tt_free(&given, home, 1, sizeof(*home));
        }
    }
    if (err)
        tt_last_message_set(diag.text);
    return err;
}
