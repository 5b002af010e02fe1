/* SPDX-License-Identifier: BSD-3-Clause
 * create.c - start-up: from the environment to a mesh of connected ranks.
 *
 *   settings -> launch -> rendezvous -> who is where -> transports, addresses
 *   -> mesh -> connections of the control graph -> team, communicator
 *
 * All ranks go through the same exchanges whatever happens to them, so that a
 * failure of one is reported by all.
 * Next: connect.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/owncpu.h"
#include "boot/boot.h"
#include "drift/drift.h"
#include "plan/plan.h"
#include "probe/probe.h"
#include "start/steps.h"
#include "status/status.h"

/* How long a rank polls for others that share its cores, on other hosts. */
static const uint64_t crowd_spin_ns = 100000;
/* A partner that runs on another processor may answer while a few polls of
 * shared memory are made: then neither has to wait for its turn once more.
 * Looks at sockets take longer than that. */
static const uint32_t near_polls = 3, far_polls = 1;
/* Two or three times as long as being away and back. Where at most two ranks
 * have this one's home, most partners do run, if nobody gives way sooner; of
 * more they hardly do. */
static const uint32_t pair_polls = 64;
/* Of the engine's thread where programs may compute on all processors. */
static const uint64_t aside_spin_ns = 20000;
/* The limit of the setting, which rank 0 may have read elsewhere. */
static const uint64_t most_eager_bytes = 128 << 10;
/* How long a rank may keep to itself that it has entered a small call. */
static const uint64_t speak_ns = TT_NS_PER_MS;

/* Hosts that are containers may be on one. */
static bool is_same_machine(const hello *a, const hello *b)
{
    return memcmp(a->host.boot_id, b->host.boot_id, sizeof(a->host.boot_id)) ==
           0;
}

/* The host of rank r. */
static tt_start_host look_at_host(const start *st, const hello *hellos,
                                  uint32_t r)
{
    tt_start_host host = {.n_here = 0};
    cpu_set_t all;
    CPU_ZERO(&all);
    for (uint32_t q = 0; q < st->n; q++) {
        if (!is_same_machine(&hellos[q], &hellos[r]))
            continue;
        host.n_here++;
        CPU_OR(&all, &all, &hellos[q].cpus);
    }
    host.n_cpus = (uint32_t)CPU_COUNT(&all);
    snprintf(host.name, sizeof(host.name), "%.63s", hellos[r].host.name);
    return host;
}

/* The processor that rank r shares with its neighbours. */
static uint32_t find_cpu(const start *st, const hello *hellos, uint32_t r)
{
    uint32_t nth = 0, n = 0;
    for (uint32_t q = 0; q < st->n; q++) {
        const bool is_alike = is_same_machine(&hellos[q], &hellos[r]) &&
                              CPU_EQUAL(&hellos[q].cpus, &hellos[r].cpus);
        nth += is_alike && q < r;
        n += is_alike;
    }
    return tt_owncpu_home(&hellos[r].cpus, nth, n);
}

/* Rank 0: hosts are numbered in order of their first ranks. */
static void number_hosts(start *st, const hello *hellos)
{
    st->agreed.n_hosts = 0;
    st->agreed.has_rates = false;
    for (uint32_t r = 0; r < st->n; r++) {
        st->agreed.has_rates |= hellos[r].has_rate;
        uint32_t q = 0;
        while (!tt_host_is_same(&hellos[q].host, &hellos[r].host))
            q++;
        if (q == r)
            st->places[st->agreed.n_hosts] = look_at_host(st, hellos, r);
        st->hosts[r] = q < r ? st->hosts[q] : st->agreed.n_hosts++;
    }
    for (uint32_t r = 0; r < st->n; r++)
        st->cpus[r] = find_cpu(st, hellos, r);
}

/* See tt_agreed. */
static bool is_by_memory(const start *st)
{
    uint8_t row;
    return st->agreed.n_hosts == 1 && tt_start_row(st->order[0], &row) &&
           tt_transports[row]->same_host;
}

/* Ranks that have the home of rank r. */
static uint32_t n_at_home(const start *st, uint32_t r)
{
    uint32_t n = 0;
    for (uint32_t q = 0; q < st->n; q++)
        n += tt_start_share_home(st, q, r);
    return n;
}

/* See tt_agreed. */
static bool is_paired(const start *st)
{
    bool is = st->agreed.is_by_memory;
    for (uint32_t r = 0; r < st->n && is; r++)
        is = n_at_home(st, r) == 2;
    return is;
}

/* See tt_agreed. */
static double shared_cpus(const start *st)
{
    bool is_all = tt_start_own_host(st)->n_here == st->n;
    return is_all && st->agreed.n_hosts > 1
               ? tt_start_own_host(st)->n_cpus / (double)st->n
               : 0;
}

/* See tt_agreed. */
static double crowd(const start *st)
{
    const tt_start_host *own = tt_start_own_host(st);
    return own->n_here == st->n && own->n_here > own->n_cpus
               ? own->n_here / (double)own->n_cpus
               : 1;
}

/* Rank 0's settings, into st->agreed, and its network, if it has one. */
static tutti_err read_rules(start *st)
{
    st->agreed = (tt_agreed){
        .window = st->settings.window,
        .front_bytes = st->settings.front_bytes,
        .front_window_bytes = st->settings.front_window_bytes,
        .staging_max_bytes = st->settings.staging_max_bytes,
        .quorum = st->settings.quorum,
        .eager_bytes = st->settings.eager_bytes,
        .watches_drift = st->settings.drift,
        .is_checked = st->settings.check == TT_CHECK_CRC,
        .topology_is_learnt = tt_learn_is_wanted(&st->settings),
    };
    snprintf(st->agreed.planner, sizeof(st->agreed.planner), "%s",
             st->settings.planner);
    snprintf(st->agreed.trace, sizeof(st->agreed.trace), "%s",
             st->settings.trace);
    tutti_err err = tt_start_costs_read(st);
    st->agreed.amends_costs = st->settings.drift && st->agreed.measures_costs;
    if (st->how && st->how->agreed)
        st->agreed = *st->how->agreed;
    st->agreed.start_id = tt_now_ns() ^ (uint64_t)getpid() << 40;
    if (!err && st->rank == 0 && !st->agreed.topology_is_learnt &&
        !st->agreed.topology_is_kept)
        err = tt_known_read(st->settings.topology, &st->told, st->diag);
    st->agreed.topology_bytes = (uint32_t)st->told.n_bytes;
    st->agreed.topology_has_names = st->told.has_names;
    return err;
}

/* Where everybody is, and on which processors: to rank 0, which numbers the
 * hosts. */
static tutti_err say_hello(start *st, tutti_err mine)
{
    hello own, *all = NULL;
    memset(&own, 0, sizeof(own));
    tt_host_id_get(&own.host);
    own.has_rate = st->settings.rate[0] != '\0';
    if (st->n > 1 && !st->settings.topology[0])
        tt_start_costs_print(st, own.host.name, own.print);
    if (sched_getaffinity(0, sizeof(own.cpus), &own.cpus) != 0)
        memset(&own.cpus, 0xff, sizeof(own.cpus)); /* not known: many */
    st->hosts = tt_arena_new(&st->passing, st->n, sizeof(*st->hosts));
    st->cpus = tt_arena_new(&st->passing, st->n, sizeof(*st->cpus));
    st->places = tt_arena_new(&st->passing, st->n, sizeof(*st->places));
    if (st->rank == 0)
        all = tt_arena_new(&st->passing, st->n, sizeof(*all));
    if (!mine &&
        (!st->hosts || !st->cpus || !st->places || (st->rank == 0 && !all)))
        mine = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    tutti_err err = tt_start_agree(st, mine);
    if (!err)
        err = tt_boot_collect(st->boot, &own, sizeof(own), all, st->diag);
    if (!err && st->rank == 0) {
        number_hosts(st, all);
        if (tt_start_costs_are_wanted(st))
            tt_start_costs_look(st, all);
    }
    return err;
}

static bool make_sense(const start *st)
{
    const tt_agreed *a = &st->agreed;
    return a->window <= 1024 && a->staging_max_bytes > 0 &&
           a->eager_bytes <= most_eager_bytes && a->n_hosts > 0 &&
           a->n_hosts <= st->n;
}

/* What rank 0 says of the job: settings, who is on which host, the hosts. */
static tutti_err hear_rules(start *st)
{
    rules r = {.settings = st->agreed};
    memcpy(r.order, st->wish, sizeof(r.order));
    tutti_err err = tt_boot_share(st->boot, &r, sizeof(r), st->diag);
    if (err)
        return err;
    memcpy(st->order, r.order, sizeof(st->order));
    st->agreed = r.settings;
    st->agreed.gpu_ipc = st->settings.gpu_ipc != 0;
    st->agreed.cache_bytes = st->settings.cache_bytes ? st->settings.cache_bytes
                                                      : tt_host_cache_bytes();
    st->agreed.planner[sizeof(st->agreed.planner) - 1] = '\0';
    st->agreed.trace[sizeof(st->agreed.trace) - 1] = '\0';
    bool is_sound = make_sense(st);
    if (is_sound)
        err = tt_boot_share(st->boot, st->hosts, st->n * sizeof(*st->hosts),
                            st->diag);
    if (!err && is_sound)
        err = tt_boot_share(st->boot, st->cpus, st->n * sizeof(*st->cpus),
                            st->diag);
    if (!err && is_sound)
        err = tt_boot_share(st->boot, st->places,
                            st->agreed.n_hosts * sizeof(*st->places), st->diag);
    for (uint32_t q = 0; !err && is_sound && q < st->n; q++)
        is_sound = st->hosts[q] < st->agreed.n_hosts;
    if (!err && !is_sound)
        err = tt_fail(st->diag, TUTTI_EPROTO,
                      "rank 0 sent settings that make no sense");
    for (uint32_t i = 0; !err && i < st->agreed.n_hosts; i++)
        st->places[i].name[sizeof(st->places[i].name) - 1] = '\0';
    return err;
}

/* Who is where, and how the job is to be. */
static tutti_err agree_on_rules(start *st)
{
    tutti_err err = tt_start_order(st, st->wish);
    if (!err)
        err = read_rules(st);
    err = say_hello(st, err);
    if (!err)
        err = hear_rules(st);
    if (err)
        return err;
    st->agreed.is_by_memory = is_by_memory(st);
    st->agreed.is_crowded = st->agreed.n_hosts == 1 &&
                            tt_start_is_crowded(st, 1);
    st->agreed.is_paired = is_paired(st);
    st->agreed.shared_cpus = shared_cpus(st);
    st->agreed.crowd = crowd(st);
    if (!st->how || !st->how->agreed)
        st->agreed.costs_are_inside = st->agreed.n_hosts == 1;
    else if (st->agreed.n_hosts > 1)
        st->agreed.amends_costs = false; /* newcomers were not measured */
    return err;
}

static const char *host_name(const void *ctx, uint32_t rank)
{
    return tt_start_host_name(ctx, rank);
}

/* TUTTI_TOPOLOGY=auto: rank 0 gets a network. */
static tutti_err learn_topology(start *st)
{
    const tt_probe_job job = {
        .mem = &tt_mem_std,
        .boot = st->boot,
        .rank = st->rank,
        .n_ranks = st->n,
        .settings = &st->settings,
        .trust = st->launch.trust,
    };
    if (!st->agreed.topology_is_learnt)
        return TUTTI_OK;
    uint64_t begin_ns = tt_now_ns();
    tutti_err err = tt_known_learn(&job, st->agreed.n_hosts, &st->told,
                                   &st->agreed.topology_bytes, st->diag);
    st->deadline_ns += tt_now_ns() - begin_ns; /* what comes has its own time */
    return err;
}

/* That of the communicator which grows, as it is now: its hosts keep their
 * links, and newcomers on them share these. */
static tutti_err keep_topology(start *st)
{
    tutti_diag why;
    tutti_err err = TUTTI_OK;
    if (!st->agreed.topology_is_kept)
        return TUTTI_OK;
    tt_diag_clear(&why);
    if (st->rank == 0)
        err = tt_known_extend(st->how->network, st->hosts, st->n, &st->told,
                              &why);
    if (err)
        TT_WARN("with its newcomers the job plans without the network that was "
                "measured: %s",
                why.text);
    st->agreed.topology_bytes = (uint32_t)st->told.n_bytes;
    return tt_boot_share(st->boot, &st->agreed.topology_bytes,
                         sizeof(st->agreed.topology_bytes), st->diag);
}

/* Rank 0's network, if it has one, on all ranks. */
static tutti_err share_topology(start *st)
{
    const tt_known_job job = {
        .mem = st->mem,
        .boot = st->boot,
        .rank = st->rank,
        .n = st->n,
        .known = &st->told,
        .host = host_name,
        .ctx = st,
        .hosts = st->hosts,
    };
    tutti_err err = tt_known_share(&job, st->agreed.topology_bytes,
                                   st->agreed.topology_has_names, &st->topology,
                                   st->diag);
    if (err == TUTTI_ECONFIG && st->how) { /* likewise on all ranks */
        if (st->rank == 0)
            TT_WARN("with its newcomers the job plans without its network: %s",
                    st->diag->text);
        err = TUTTI_OK;
    }
    return st->agreed.topology_bytes ? tt_start_agree(st, err) : err;
}

static void clean(start *st)
{
    tt_mesh_unref(st->mesh);
    if (st->engine)
        tt_process_release();
    tt_start_clean(st);
    tt_known_free(&st->told);
    tt_topology_free(st->topology);
    tt_boot_close(st->boot);
    tt_trust_close(st->launch.trust);
    tt_arena_free(&st->passing);
}

static tutti_err take_engine(start *st)
{
    tt_engine_opts opts = {.spin_ns = st->settings.spin_ns,
                           .spin_large_ns = st->settings.spin_ns,
                           .spin_aside_ns = st->settings.spin_ns,
                           .liveness_ns = st->settings.liveness_ns,
                           .reconnect_ns = st->settings.reconnect_ns,
                           .speak_ns = speak_ns,
                           .patience_ns = st->settings.patience_ns,
                           .home_cpu = st->cpus[st->rank] + 1};
    if (tt_start_is_crowded(st, 1))
        opts.crowd_polls = st->agreed.is_by_memory ? near_polls : far_polls;
    if (st->agreed.is_by_memory && n_at_home(st, st->rank) <= 2)
        opts.apart_polls = pair_polls;
    /* What crosses hosts takes longer than others need to be woken; a small
     * call does not, or not much. */
    if (opts.crowd_polls > 0 && st->agreed.n_hosts > 1) {
        opts.spin_large_ns = 0;
        if (opts.spin_ns > crowd_spin_ns)
            opts.spin_ns = crowd_spin_ns;
    }
    if (tt_start_is_crowded(st, 2) && opts.spin_aside_ns > aside_spin_ns)
        opts.spin_aside_ns = aside_spin_ns;
    return tt_process_engine(&opts, &st->engine, st->diag);
}

/* Takes the engine and the mesh. */
static tutti_err make_comm(start *st, uint64_t timeout_ns, tutti_comm **out)
{
    uint32_t *members = tt_arena_new(&st->passing, st->n, sizeof(*members));
    if (!members)
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    for (uint32_t r = 0; r < st->n; r++)
        members[r] = r;
    tt_home home = {.listen_fd = st->launch.listen_fd};
    memcpy(home.address, st->launch.address, sizeof(home.address));
    memcpy(home.job, st->launch.job, sizeof(home.job));
    const tt_comm_parts parts = {
        .diag = st->diag,
        .mesh = st->mesh,
        .members = members,
        .hosts = st->hosts,
        .n = st->n,
        .rank = st->rank,
        /* Names of jobs are not unique, and there may be none. */
        .id = tt_fnv1a_u64(
            tt_fnv1a(TT_FNV1A_START, st->launch.job, strlen(st->launch.job)),
            st->agreed.start_id),
        .timeout_ns = timeout_ns,
        .agreed = &st->agreed,
        .topology = st->topology,
        .trust = st->launch.trust,
        .home = st->how ? st->how->home : &home,
        .observe = tt_drift_create,
    };
    tutti_err err = tt_comm_make(st->keep, st->engine, &parts, out);
    if (err == TUTTI_ENOMEM)
        tt_fail(st->diag, err, "out of memory for the communicator");
    if (!err) {
        st->engine = NULL;
        st->mesh = NULL;
    }
    return err;
}

/* "0-3,8" */
static void print_cpus(char *text, size_t size)
{
    cpu_set_t may;
    size_t used = 0;
    snprintf(text, size, "any");
    if (sched_getaffinity(0, sizeof(may), &may) != 0)
        return;
    for (int c = 0; c < CPU_SETSIZE && used + 16 < size; c++) {
        if (!CPU_ISSET(c, &may) || (c > 0 && CPU_ISSET(c - 1, &may)))
            continue;
        int last = c;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &may))
            last++;
        used += (size_t)snprintf(text + used, size - used, "%s%d",
                                 used ? "," : "", c);
        if (last > c)
            used += (size_t)snprintf(text + used, size - used, "-%d", last);
    }
}

/* "shm with 3 ranks, tcp with 4" */
static void print_transports(const start *st, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "nobody");
    for (size_t i = 0; i < MAX_TRANSPORTS && tt_transports[i]; i++) {
        const char *name = tt_transports[i]->name;
        uint32_t n = 0;
        for (uint32_t r = 0; r < st->n; r++)
            n += r != st->rank &&
                 strcmp(tt_mesh_transport(st->mesh, r), name) == 0;
        if (n > 0 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s with %u",
                                     used ? ", " : "", name, n);
    }
}

static void report_network(const start *st)
{
    tutti_diag diag = TT_DIAG_NONE;
    tt_summary summary;
    if (st->rank != 0 || !tt_logs(TUTTI_LOG_INFO))
        return;
    if (!st->topology)
        TT_INFO("the network is not known (TUTTI_TOPOLOGY): planners go by "
                "size");
    else if (tt_summary_make(st->topology, TT_SUMMARY_BYTES, &summary, &diag))
        TT_INFO("there is no summary of the network: %s", diag.text);
    else
        TT_INFO("network: %s", summary.text);
}

static void report(const start *st)
{
    char text[256];
    if (!tt_logs(TUTTI_LOG_INFO))
        return;
    TT_INFO("tutti %s: rank %u of %u on %s, started by %s, %u host%s",
            tutti_version(), st->rank, st->n, tt_start_own_host(st)->name,
            st->launch.source, st->agreed.n_hosts,
            st->agreed.n_hosts == 1 ? "" : "s");
    print_cpus(text, sizeof(text));
    TT_INFO("processors: %s, of %u for the %u rank%s on this machine", text,
            tt_start_own_host(st)->n_cpus, tt_start_own_host(st)->n_here,
            tt_start_own_host(st)->n_here == 1 ? "" : "s");
    print_transports(st, text, sizeof(text));
    TT_INFO("connects by %s; planner %s", text, st->agreed.planner);
    report_network(st);
    for (uint32_t r = 0; r < st->n; r++)
        if (r != st->rank)
            TT_DEBUG("peer %u on %.63s by %s", r, tt_start_host_name(st, r),
                     tt_mesh_transport(st->mesh, r));
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

/* Whoever cannot read them says so before the others wait for it. */
static tutti_err check_settings(const start *st)
{
    tt_iface_cap caps[TT_CAPS_MAX];
    uint32_t n;
    tutti_err err = check_planner(st);
    return err ? err : tt_caps_read(st->settings.rate, caps, &n, st->diag);
}

static bool says_something(const tutti_trust *given)
{
    const char *const files[] = {given->secret_file, given->tls_cert,
                                 given->tls_key, given->tls_ca, given->tls_crl};
    bool says = given->secret || given->n_secret > 0;
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        says |= files[i] && files[i][0];
    return says;
}

tutti_err tt_start_trust(const tutti_trust *given, const tt_settings *settings,
                         bool is_first, tt_trust **out, tutti_diag *diag)
{
    tt_trust_opts o = {.secret_file = settings->secret_file,
                       .cert = settings->tls_cert,
                       .key = settings->tls_key,
                       .ca = settings->tls_ca,
                       .crl = settings->tls_crl,
                       .is_plain = settings->encrypt == 0,
                       .is_by_openssl = settings->ipsec_mb == 0};
    if (given && says_something(given))
        o = (tt_trust_opts){.secret_file = given->secret_file,
                            .secret = given->secret,
                            .n_secret = given->n_secret,
                            .cert = given->tls_cert,
                            .key = given->tls_key,
                            .ca = given->tls_ca,
                            .crl = given->tls_crl,
                            .is_plain = o.is_plain,
                            .is_by_openssl = o.is_by_openssl};
    o.is_plain |= given && given->is_plain;
    /* Once in a process, however many communicators it opens. */
    static atomic_flag has_warned = ATOMIC_FLAG_INIT;
    tutti_err err = tt_trust_open(&o, out, diag);
    if (!err && is_first && tt_trust_is_plain(*out) &&
        !atomic_flag_test_and_set(&has_warned))
        TT_WARN("TUTTI_ENCRYPT is 0: who comes must prove who it is, but all "
                "data travels in clear");
    return err;
}

tutti_err tt_start_read(const tutti_comm_opts *opts, tt_settings *settings,
                        tt_launch *launch, tutti_diag *diag)
{
    tutti_err err = tt_settings_read(settings, diag);
    if (err)
        return err;
    tt_log_setup((tutti_log_level)settings->log);
    tt_settings_warn_unknown();
    err = tt_launch_detect(opts, settings, launch, diag);
    if (err)
        return err;
    tt_log_rank((int)launch->rank);
    tt_log_file(settings->log_file);
    err = tt_start_trust(opts ? &opts->trust : NULL, settings,
                         launch->rank == 0, &launch->trust, diag);
    if (err)
        return err;
    uint64_t instance = tt_process_next_instance();
    size_t used = strlen(launch->job);
    if (instance > 0 && used > 0)
        snprintf(launch->job + used, sizeof(launch->job) - used, "#%llu",
                 (unsigned long long)instance);
    return TUTTI_OK;
}

/* Who this rank is, and how the job is to be. */
static tutti_err detect(start *st, const tutti_comm_opts *opts)
{
    tutti_err err = tt_start_read(opts, &st->settings, &st->launch, st->diag);
    if (!err)
        err = check_settings(st);
    if (!err && opts->check &&
        !tt_parse_check(opts->check, &st->settings.check))
        err = tt_fail(st->diag, TUTTI_EINVAL,
                      "tutti_comm_create: the check \"%.60s\" is not known; "
                      "it is off or crc",
                      opts->check);
    if (opts->start_timeout_s > 0)
        st->settings.start_timeout_ns = tt_seconds_to_ns(opts->start_timeout_s);
    if (opts->timeout_s > 0)
        st->settings.timeout_ns = tt_seconds_to_ns(opts->timeout_s);
    st->rank = st->launch.rank;
    st->n = st->launch.n_ranks;
    return err;
}

/* The same, told by who knows. */
static tutti_err take_over(start *st)
{
    st->settings = *st->how->settings;
    st->settings.timeout_ns = st->how->timeout_ns;
    st->launch = *st->how->launch;
    tt_trust_ref(st->launch.trust);
    st->rank = st->launch.rank;
    st->n = st->launch.n_ranks;
    return check_settings(st);
}

static tutti_err open_boot(start *st)
{
    tt_settings there = st->settings;
    st->deadline_ns = tt_now_ns() + st->settings.start_timeout_ns;
    if (st->how && st->how->is_loopback)
        snprintf(there.interfaces, sizeof(there.interfaces), "=lo");
    return tt_boot_open(&st->launch, &there, st->keep, st->deadline_ns,
                        &st->boot, st->diag);
}

/* From the meeting to a mesh of which some is connected. */
static tutti_err meet(start *st)
{
    tutti_err err = open_boot(st);
    if (!err)
        err = agree_on_rules(st);
    if (!err)
        err = learn_topology(st);
    if (!err)
        err = keep_topology(st);
    if (!err)
        err = share_topology(st);
    if (!err)
        err = tt_start_caps(st);
    if (!err)
        err = tt_start_offer(st);
    if (!err)
        err = tt_start_ports(st);
    if (err)
        return err;
    err = take_engine(st);
    if (!err)
        err = tt_start_mesh(st);
    err = tt_start_agree(st, err);
    return err ? err : tt_start_connect(st);
}

static tutti_err run(start *st, const tutti_comm_opts *opts, tutti_comm **out)
{
    tutti_comm *comm = NULL;
    tutti_err err = st->how ? take_over(st) : detect(st, opts);
    if (!err)
        err = meet(st);
    if (err)
        return err;
    report(st);
    /* Nobody may speak to a communicator that does not exist yet on the other
     * side: one more round. */
    err = make_comm(st, st->settings.timeout_ns, &comm);
    err = tt_start_agree(st, err);
    if (!err)
        err = tt_start_costs(st, comm);
    if (err) {
        tutti_comm_destroy(comm);
        return err;
    }
    tt_service_add(comm->engine, comm->team, comm->home.job, &st->settings);
    tt_comm_record(comm, tt_start_own_host(st)->name, st->how == NULL);
    *out = comm;
    return TUTTI_OK;
}

/* *home is set to NULL when the mesh has taken it. */
static tutti_err start_up(const tt_mem *mem, tt_mem **home,
                          const tutti_comm_opts *opts, const tt_start_how *how,
                          tutti_comm **out, tutti_diag *diag)
{
    /* The state is large for a stack; it goes when the call ends. */
    const tt_mem local = *mem;
    start *st = tt_new(&local, 1, sizeof(*st));
    if (!st)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    st->mem = &local;
    st->keep = mem;
    st->home = home;
    st->how = how;
    st->diag = diag;
    st->kept.mem = mem;
    st->passing.mem = &local;
    tutti_err err = run(st, opts, out);
    clean(st);
    tt_free(&local, st, 1, sizeof(*st));
    return err;
}

tutti_err tt_start_run(const tt_mem *mem, tt_mem **home,
                       const tt_start_how *how, tutti_comm **out,
                       tutti_diag *diag)
{
    return start_up(mem, home, NULL, how, out, diag);
}

const tt_mem *tt_start_home(const tt_mem *own, tt_mem **home)
{
    *home = NULL;
    if (!own)
        return &tt_mem_std;
    *home = tt_new(own, 1, sizeof(**home));
    if (*home)
        **home = *own;
    return *home;
}

void tt_start_free_home(tt_mem *home)
{
    if (!home)
        return;
    const tt_mem own = *home;
    tt_free(&own, home, 1, sizeof(*home));
}

static tutti_err read_opts(const tutti_comm_opts *given, tutti_comm_opts *opts,
                           tutti_comm **out, tutti_diag *diag)
{
    tutti_err err = tt_read_opts(given, opts, sizeof(*opts), diag);
    if (err)
        return err;
    if (!out || !(opts->timeout_s >= 0) || !(opts->start_timeout_s >= 0))
        return tt_fail(diag, TUTTI_EINVAL,
                       "tutti_comm_create: no place for the communicator, or "
                       "a time that is none");
    if (opts->store &&
        (opts->n_ranks <= 0 || !opts->store->put || !opts->store->get))
        return tt_fail(diag, TUTTI_EINVAL,
                       "tutti_comm_create: a store needs n_ranks and rank, and "
                       "both of its functions");
    return TUTTI_OK;
}

tutti_err tutti_comm_create(const tutti_comm_opts *given, tutti_comm **out)
{
    tutti_diag diag;
    tutti_comm_opts opts;
    tt_diag_clear(&diag);
    tutti_err err = tt_process_enter(&diag);
    if (!err)
        err = read_opts(given, &opts, out, &diag);
    if (!err) {
        /* Meshes outlive communicators, so the allocator gets a home that the
         * mesh takes over. */
        const tt_mem own = {opts.alloc, opts.alloc_ctx};
        tt_mem *home;
        const tt_mem *mem = tt_start_home(opts.alloc ? &own : NULL, &home);
        err = mem ? start_up(mem, &home, &opts, NULL, out, &diag)
                  : tt_fail(&diag, TUTTI_ENOMEM, "out of memory");
        tt_start_free_home(home);
    }
    if (err)
        tt_last_message_set(diag.text);
    return err;
}
