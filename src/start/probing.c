/* SPDX-License-Identifier: BSD-3-Clause
 * probing.c - the probe of tutti_plan.h: from the environment to
 * a job that has met, as create.c does it, and then the probe instead of a
 * communicator. Thin, like offline/schedules.c. */
#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "probe/probe.h"
#include "start/start.h"

struct tutti_probe {
    uint32_t rank, n_ranks;
    tt_probe *found;
};

typedef struct probing {
    tt_settings settings;
    tt_launch launch;
    tt_boot *boot;
    tutti_diag *diag;
} probing;

/* Rank 0: a later job need not measure what it could not do better itself. */
static void keep(const probing *st, uint64_t fingerprint,
                 const tt_probe_job *job, const tt_probe *found)
{
    tutti_probe_info info;
    tt_probe_describe(found, &info);
    if (tt_probe_is_cut(found) && job->time_ns > 0 &&
        job->time_ns < tt_learn_time_ns(info.n_hosts))
        TT_INFO("what was measured in so little time is not kept for jobs");
    else
        tt_learn_keep(&st->settings, fingerprint, found);
}

static tutti_err run(probing *st, const tutti_probe_opts *opts,
                     tutti_probe *out)
{
    tutti_err err = tt_start_read(NULL, &st->settings, &st->launch, st->diag);
    if (!err)
        err = tt_boot_open(&st->launch, &st->settings, &tt_mem_std,
                           tt_now_ns() + st->settings.start_timeout_ns,
                           &st->boot, st->diag);
    if (err)
        return err;
    out->rank = st->launch.rank;
    out->n_ranks = st->launch.n_ranks;
    const tt_probe_job job = {
        .mem = &tt_mem_std,
        .boot = st->boot,
        .rank = out->rank,
        .n_ranks = out->n_ranks,
        .settings = &st->settings,
        .trust = st->launch.trust,
        .time_ns = opts->time_s > 0 ? tt_seconds_to_ns(opts->time_s) : 0,
        .progress = opts->progress,
        .progress_ctx = opts->progress_ctx,
    };
    uint64_t fingerprint;
    tt_learn_begin(st->boot);
    err = tt_fingerprint(&job, &fingerprint, st->diag);
    if (!err)
        err = tt_probe_run(&job, &out->found, st->diag);
    if (!err && out->rank == 0)
        keep(st, fingerprint, &job, out->found);
    return err;
}

tutti_err tutti_probe_run(const tutti_probe_opts *opts, tutti_probe **out,
                          tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_probe_opts given;
    probing *st = NULL;
    tutti_probe *probe = NULL;
    tutti_err err = tt_process_enter(&found);
    if (!err)
        err = tt_read_opts(opts, &given, sizeof(given), &found);
    if (!err && !(given.time_s >= 0))
        err = tt_fail(&found, TUTTI_EINVAL,
                      "the time of a probe is no number of seconds");
    if (!err) {
        st = tt_new(&tt_mem_std, 1, sizeof(*st));
        probe = tt_new(&tt_mem_std, 1, sizeof(*probe));
        if (!st || !probe)
            err = tt_fail(&found, TUTTI_ENOMEM, "out of memory");
    }
    if (!err) {
        st->diag = &found;
        err = run(st, &given, probe);
    }
    if (st) {
        tt_boot_close(st->boot);
        tt_trust_close(st->launch.trust);
    }
    tt_free(&tt_mem_std, st, 1, sizeof(*st));
    if (err)
        tutti_probe_free(probe);
    else
        *out = probe;
    return tt_report(err, &found, diag);
}

void tutti_probe_free(tutti_probe *probe)
{
    if (!probe)
        return;
    tt_probe_free(probe->found);
    tt_free(&tt_mem_std, probe, 1, sizeof(*probe));
}

void tutti_probe_describe(const tutti_probe *probe, tutti_probe_info *out)
{
    tt_probe_describe(probe->found, out);
    out->rank = probe->rank;
    out->n_ranks = probe->n_ranks;
}

const tutti_topology *tutti_probe_topology(const tutti_probe *probe)
{
    return tt_probe_topology(probe->found);
}

bool tutti_probe_note_at(const tutti_probe *probe, size_t index,
                         tutti_probe_note *out)
{
    static const tutti_note_kind kinds[] = {
        [TT_NOTE_LINK] = TUTTI_NOTE_LINK,
        [TT_NOTE_UNKNOWN] = TUTTI_NOTE_UNKNOWN,
        [TT_NOTE_DOUBT] = TUTTI_NOTE_DOUBT};
    tt_infer_note note;
    if (!tt_probe_note_at(probe->found, index, &note))
        return false;
    *out = (tutti_probe_note){.kind = kinds[note.kind], .text = note.text};
    return true;
}

bool tutti_probe_way_at(const tutti_probe *probe, size_t index,
                        tutti_probe_way *out)
{
    return tt_probe_way_at(probe->found, index, out);
}
