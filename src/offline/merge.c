/* SPDX-License-Identifier: BSD-3-Clause
 * merge.c - `tutti trace`: reads what ranks have recorded (TUTTI_TRACE) of a
 * job. Next: export/measured.c, base/trail.h (the file), core/tracing.c (who
 * writes it). */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/str.h"
#include "base/trail.h"
#include "export/export.h"
#include "offline/offline.h"

static bool is_record(const char *name)
{
    const size_t len = strlen(name), end = strlen(TT_TRAIL_SUFFIX);
    return len > end && strcmp(name + len - end, TT_TRAIL_SUFFIX) == 0;
}

/* A pipe or a device could keep us waiting. What cannot even be looked at fails
 * to open. */
static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 || S_ISREG(st.st_mode);
}

static tutti_err open_file(const char *path, FILE **out, tutti_diag *diag)
{
    *out = fopen(path, "rbe");
    return *out
               ? TUTTI_OK
               : tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot open %s", path);
}

static tutti_err add_file(const char *path, tt_measured *m, tutti_diag *diag)
{
    char head[sizeof(tt_trail_head)];
    FILE *f;
    tutti_err err = open_file(path, &f, diag);
    if (err)
        return err;
    const size_t len = fread(head, 1, sizeof(head), f);
    fclose(f);
    return tt_measured_add(m, path, head, len, diag);
}

/* A file that cannot be used is no reason to draw none. */
static bool is_left_out(tutti_err err, const tutti_diag *diag)
{
    const bool is_so = err && err != TUTTI_ENOMEM;
    if (is_so)
        TT_WARN("%s; it is left out", diag->text);
    return is_so;
}

/* The heads of all records there. */
static tutti_err read_dir(const char *dir, tt_measured *m, tutti_diag *diag)
{
    DIR *d = opendir(dir);
    if (!d)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot open %s", dir);
    tutti_err err = TUTTI_OK;
    size_t n_bad = 0;
    for (struct dirent *e; !err && (e = readdir(d)) != NULL;) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (is_record(e->d_name) && is_file(path))
            err = add_file(path, m, diag);
        if (is_left_out(err, diag)) {
            n_bad++;
            err = TUTTI_OK;
        }
    }
    closedir(d);
    if (err || m->n_files > 0)
        return err;
    if (n_bad > 0)
        return tt_fail(diag, TUTTI_EFORMAT,
                       "%s has no record of a rank that can be used", dir);
    return tt_fail(diag, TUTTI_ESYS,
                   "%s has no record of a rank (*" TT_TRAIL_SUFFIX
                   "): TUTTI_TRACE=%s makes a job write them",
                   dir, dir);
}

static tutti_err read_file(tt_recording *r, tutti_diag *diag)
{
    static const size_t most = (size_t)1 << 31;
    FILE *f;
    tutti_err err = open_file(r->name, &f, diag);
    return err ? err
               : tt_file_text(&tt_mem_std, f, most, r->name, &r->data, &r->len,
                              diag);
}

/* The files of the job that is chosen, whole. */
static tutti_err read_files(tt_measured *m, tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    size_t n_read = 0;
    for (size_t i = 0; i < m->n_files && !err; i++) {
        err = read_file(&m->files[i], diag);
        if (is_left_out(err, diag))
            err = TUTTI_OK;
        n_read += m->files[i].data != NULL;
    }
    if (!err && n_read == 0)
        err = tt_fail(diag, TUTTI_ESYS, "no record of the job can be read");
    return err;
}

static tutti_err predict(const tutti_topology *net, const tutti_schedule *s,
                         uint64_t bytes, tutti_event_fn on_event, void *ctx)
{
    tutti_sim_opts o = {.size = sizeof(o),
                        .size_bytes = bytes,
                        .as_engine = true,
                        .on_event = on_event,
                        .event_ctx = ctx};
    tutti_sim_result result;
    if (s->collective == TUTTI_ALL_TO_ALL)
        o.size_bytes /= s->n_ranks;
    return tutti_simulate(net, s, &o, &result, NULL);
}

tutti_err tutti_trace_merge(const char *dir, const tutti_merge_opts *opts,
                            tutti_merge_info *info, char **text, size_t *len,
                            tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_merge_opts o;
    tt_measured m = {.mem = &tt_mem_std, .predict = predict};
    tutti_err err = tt_read_opts(opts, &o, sizeof(o), &found);
    if (!err)
        err = read_dir(dir, &m, &found);
    if (!err)
        err = tt_measured_choose(&m, o.job, &found);
    if (!err)
        err = read_files(&m, &found);
    if (!err)
        err = tt_measured_trace(&m, &o, info, text, len, &found);
    tt_measured_free(&m);
    return tt_report(err, &found, diag);
}
