/* SPDX-License-Identifier: BSD-3-Clause
 * learn.c - the network is measured, not given (TUTTI_TOPOLOGY=auto).
 *
 *   fingerprint of all hosts -> was it measured before? -> else the probe
 *   -> it is kept, without interfaces that are too slow to plan with
 *
 * Rank 0 decides and tells: whether there is a file counts on its host only.
 * The network's ranks are the job's, in order, whatever hosts are called.
 * Next       probe.h, cache.c, slowifaces.c. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "probe/learn.h"

#define MOST_DIR 4000
/* How long another job that measures the same network is waited for. */
#define MOST_WAIT_NS (20 * TT_NS_PER_S)
/* Pairs of hosts that are told at level info. */
#define MOST_TOLD 64

bool tt_learn_is_wanted(const tt_settings *settings)
{
    return strcmp(settings->topology, "auto") == 0;
}

/* ------------------------------------------------------------ for people -- */

static const char *const note_words[] = {[TT_NOTE_LINK] = "",
                                         [TT_NOTE_UNKNOWN] = "not known: ",
                                         [TT_NOTE_DOUBT] = "doubtful: "};

static void tell_way(const tutti_probe_way *w, bool is_late)
{
    char figures[64] = "";
    int n = 0;
    if (w->latency_s > 0)
        n = snprintf(figures, sizeof(figures), ", %.3g ms", w->latency_s * 1e3);
    if (w->bytes_per_s > 0)
        snprintf(figures + n, sizeof(figures) - (size_t)n, ", %.4g Mbit/s",
                 w->bytes_per_s * 8e-6);
    TT_LOG(is_late ? TUTTI_LOG_DEBUG : TUTTI_LOG_INFO,
           "%s to %s: %s %s to %s %s%s (%s)", w->from, w->to, w->from_dev,
           w->from_address, w->to_dev, w->to_address, figures,
           w->why ? w->why : "");
}

/* Which interfaces two hosts take, and why. */
static void tell_ways(const tt_probe *probe)
{
    tutti_probe_way w;
    size_t n = 0;
    for (size_t i = 0; tt_probe_way_at(probe, i, &w); i++) {
        if (w.is_chosen)
            tell_way(&w, n++ >= MOST_TOLD);
    }
    if (n > MOST_TOLD)
        TT_INFO("and %zu more, which TUTTI_LOG=debug tells", n - MOST_TOLD);
}

static void tell(const tt_probe *probe)
{
    tutti_probe_info info;
    tt_infer_note note;
    tt_probe_describe(probe, &info);
    TT_INFO("measured the network: %u hosts, %u interfaces, %u rounds of "
            "flows, %.1f s",
            info.n_hosts, info.n_interfaces, info.n_rounds, info.seconds);
    tell_ways(probe);
    for (size_t i = 0; tt_probe_note_at(probe, i, &note); i++) {
        if (note.kind != TT_NOTE_LINK)
            TT_INFO("%s%s", note_words[note.kind], note.text);
    }
}

/* --------------------------------------------------------------- keeping -- */

/* The file: the network, with what it rests on. */
static void put_file(const tt_probe *probe, tt_str *out)
{
    tutti_probe_info info;
    tt_infer_note note;
    tt_str plain = {.mem = &tt_mem_std};
    tt_topology_write(tt_probe_topology(probe), &plain);
    const char *end = plain.err ? NULL : memchr(plain.data, '\n', plain.len);
    size_t first = end ? (size_t)(end - plain.data) + 1 : 0;
    tt_probe_describe(probe, &info);
    if (end)
        tt_str_add(out, plain.data, first);
    tt_str_printf(out,
                  "# measured: %u hosts, %u interfaces, %u rounds of flows, "
                  "%.1f s\n",
                  info.n_hosts, info.n_interfaces, info.n_rounds, info.seconds);
    for (size_t i = 0; tt_probe_note_at(probe, i, &note); i++)
        tt_str_printf(out, "# %s%s\n", note_words[note.kind], note.text);
    if (end)
        tt_str_add(out, end + 1, plain.len - first);
    if (plain.err)
        out->err = plain.err;
    tt_str_free(&plain);
}

void tt_learn_keep(const tt_settings *settings, uint64_t fingerprint,
                   const tt_probe *probe)
{
    char dir[MOST_DIR];
    char *text;
    size_t len;
    tutti_probe_info info;
    tt_probe_cache_dir(settings, dir, sizeof(dir));
    tt_probe_describe(probe, &info);
    tt_str str = {.mem = &tt_mem_std};
    if (!dir[0] || info.n_hosts < 2)
        return;
    put_file(probe, &str);
    if (tt_str_finish(&str, &text, &len)) {
        TT_WARN("no memory to keep the measured network");
        return;
    }
    tt_probe_cache_write(dir, fingerprint, text, len);
    tt_free(&tt_mem_std, text, len + 1, 1);
}

/* -------------------------------------------------------------- learning -- */

/* A job wants to begin, and a few hosts need few rounds: up to eight have
 * measured and planned in 8 s, more have as much time as tutti probe takes.
 * What is cut short then is the confirmation. */
uint64_t tt_learn_time_ns(uint32_t n_hosts)
{
    const uint64_t most = 15 * TT_NS_PER_S / 2;
    uint64_t ns = TT_NS_PER_S / 4 * n_hosts * n_hosts;
    if (n_hosts > 8)
        return 10 * TT_NS_PER_S;
    ns = ns < most ? ns : most;
    return ns < 2 * TT_NS_PER_S ? 2 * TT_NS_PER_S : ns;
}

static tutti_err measure(const tt_probe_job *job, uint64_t fingerprint,
                         tutti_topology **out, tutti_diag *diag)
{
    tt_probe *probe = NULL;
    tutti_err err = tt_probe_run(job, &probe, diag);
    if (!err && job->rank == 0) {
        const tutti_topology *t = tt_probe_topology(probe);
        /* The probe's own goes with the probe. */
        err = tt_topology_subset(t, NULL, t->n_ranks, &tt_mem_std, out, diag);
        if (err)
            tt_boot_fail(job->boot, err, diag);
    }
    if (!err && job->rank == 0) {
        tell(probe);
        tt_learn_keep(job->settings, fingerprint, probe);
    }
    tt_probe_free(probe);
    return err;
}

void tt_learn_begin(tt_boot *boot)
{
    tt_boot_phase(boot, "the search for a measured network",
                  TT_PROBE_PATIENCE_NS);
    tt_boot_beats(boot);
}

/* Rank 0: true when another job was measuring the same, and has ended, so that
 * there may be a file now; or takes too long. */
static bool wait_for_other(const tt_probe_job *job, uint64_t fingerprint,
                           const char *dir, int *lock)
{
    const struct timespec moment = {.tv_nsec = 50 * TT_NS_PER_MS};
    uint64_t patience = job->settings->start_timeout_ns / 2;
    patience = patience < MOST_WAIT_NS ? patience : MOST_WAIT_NS;
    uint64_t until_ns = tt_now_ns() + patience;
    bool has_waited = false;
    while (!tt_probe_cache_lock(dir, fingerprint, lock) &&
           tt_now_ns() < until_ns) {
        if (!has_waited)
            TT_INFO("another job measures this network: waiting for it");
        has_waited = true;
        tt_boot_alive(job->boot);
        nanosleep(&moment, NULL);
    }
    return has_waited;
}

/* Rank 0: was it measured before, or is it by another job just now? *lock: held
 * while this one measures, or -1. */
static bool find_kept(const tt_probe_job *job, uint64_t fingerprint,
                      const char *dir, tutti_topology **out, int *lock)
{
    if (tt_probe_cache_read(dir, fingerprint, job->n_ranks, out))
        return true;
    return wait_for_other(job, fingerprint, dir, lock) &&
           tt_probe_cache_read(dir, fingerprint, job->n_ranks, out);
}

/* From the cache, or by the probe; the same on all ranks. */
static tutti_err find_network(const tt_probe_job *job, uint64_t fingerprint,
                              tutti_topology **out, tutti_diag *diag)
{
    char dir[MOST_DIR] = "";
    uint8_t is_kept = 0;
    int lock = -1;
    if (job->rank == 0) {
        tt_probe_cache_dir(job->settings, dir, sizeof(dir));
        is_kept = find_kept(job, fingerprint, dir, out, &lock);
    }
    tutti_err err = tt_boot_share(job->boot, &is_kept, sizeof(is_kept), diag);
    if (!err && !is_kept)
        err = measure(job, fingerprint, out, diag);
    tt_probe_cache_unlock(dir, fingerprint, lock);
    return err;
}

/* *whole becomes only what is worth planning with. */
static tutti_err leave_out(tutti_topology **whole, tutti_diag *diag)
{
    tutti_topology *less = NULL;
    tutti_err err = tt_without_slow_ifaces(*whole, &less, diag);
    if (err || !less)
        return err;
    tt_topology_free(*whole);
    *whole = less;
    return TUTTI_OK;
}

tutti_err tt_learn(const tt_probe_job *given, uint32_t n_hosts,
                   tutti_topology **out, tutti_diag *diag)
{
    uint64_t fingerprint;
    tutti_topology *found = NULL;
    tt_probe_job timed = *given;
    const tt_probe_job *job = &timed;
    timed.time_ns = tt_learn_time_ns(n_hosts);
    *out = NULL;
    if (n_hosts == 1) {
        if (job->rank == 0)
            TT_INFO("all ranks are on one host, so no network is measured");
        return TUTTI_OK;
    }
    tt_learn_begin(job->boot);
    tutti_err err = tt_fingerprint(job, &fingerprint, diag);
    if (!err)
        err = find_network(job, fingerprint, &found, diag);
    tt_boot_phase(job->boot, "start-up", job->settings->start_timeout_ns);
    if (!err && job->rank == 0) {
        err = leave_out(&found, diag);
        if (err)
            tt_boot_fail(job->boot, err, diag);
    }
    if (err)
        tt_topology_free(found);
    else
        *out = found;
    return err;
}
