/* SPDX-License-Identifier: BSD-3-Clause
 * tracing.c - TUTTI_TRACE: each rank records what it does, and how far its clock
 * is from another's; and `tutti trace`, which reads that again.
 *
 * Clocks     In round b = 1, 2, 4, ... rank r + b, for each r that 2 b divides,
 *            asks rank r for the time: its neighbour in the control graph, so they
 *            are connected. What takes least to and fro counts: the answer was
 *            given in the middle of it, give or take half. The differences are
 *            kept as they are, and added up by who reads them. It is asked again
 *            while the job goes on (engine/clocks.c).
 * Next       base/trail.h (the file), engine/recording.c, export/measured.c. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/trail.h"
#include "core/core.h"
#include "core/report.h"
#include "export/export.h"

/* Each takes 100 us or so, and the least of them is hardly ever disturbed; where
 * ranks wait for processors more are needed. */
enum { ROUND_TRIPS = 32, MOST_ROUND_TRIPS = 1000 };
static const uint64_t good_trip_ns = 300000;

/* ---------------------------------------------------------------- clocks -- */

static tutti_err send_time(tutti_comm *comm, uint64_t ns, uint32_t to)
{
    return tutti_send(comm, &ns, 1, TUTTI_U64, (int)to, NULL, NULL);
}

static tutti_err receive_time(tutti_comm *comm, uint64_t *ns, uint32_t from)
{
    return tutti_recv(comm, ns, 1, TUTTI_U64, (int)from, NULL, NULL);
}

static tutti_err answer(tutti_comm *comm, uint32_t child)
{
    tutti_err err = TUTTI_OK;
    uint64_t theirs = 1; /* 0: it has asked enough */
    while (theirs && !err) {
        err = receive_time(comm, &theirs, child);
        if (!err && theirs)
            err = send_time(comm, tt_now_ns(), child);
    }
    return err;
}

static tutti_err ask(tutti_comm *comm, uint32_t parent, tt_trail_head *head)
{
    tutti_err err = TUTTI_OK;
    head->trip_ns = UINT64_MAX;
    for (int i = 0; i < MOST_ROUND_TRIPS && !err; i++) {
        uint64_t theirs = 0;
        if (i >= ROUND_TRIPS && head->trip_ns < good_trip_ns)
            break;
        const uint64_t begin = tt_now_ns();
        err = send_time(comm, begin, parent);
        if (!err)
            err = receive_time(comm, &theirs, parent);
        const uint64_t trip = tt_now_ns() - begin;
        if (err || trip >= head->trip_ns)
            continue;
        head->trip_ns = trip;
        head->ahead_ns = (int64_t)(theirs - (begin + trip / 2));
    }
    if (!err)
        err = send_time(comm, 0, parent);
    if (!err)
        head->parent = parent;
    return err;
}

static tutti_err compare_clocks(tutti_comm *comm, tt_trail_head *head)
{
    const uint32_t n = comm->n_ranks, r = comm->rank;
    tutti_err err = TUTTI_OK;
    for (uint32_t b = 1; b < n && r % b == 0 && !err; b *= 2) {
        if (r % (2 * b) != 0)
            err = ask(comm, r - b, head);
        else if (r + b < n)
            err = answer(comm, r + b);
    }
    return err;
}

/* ------------------------------------------------------------- recording -- */

static void fill_head(const tutti_comm *comm, const char *host,
                      tt_trail_head *head)
{
    struct timespec day;
    *head = (tt_trail_head){.magic = TT_TRAIL_MAGIC,
                            .meeting = comm->agreed.start_id,
                            .rank = comm->rank,
                            .n_ranks = comm->n_ranks,
                            .pid = (uint32_t)getpid(),
                            .parent = TT_NONE};
    snprintf(head->host, sizeof(head->host), "%s", host);
    clock_gettime(CLOCK_REALTIME, &day);
    head->now_ns = tt_now_ns();
    head->real_ns = (uint64_t)day.tv_sec * TT_NS_PER_S + (uint64_t)day.tv_nsec;
}

static void record_network(tt_trail *trail, const tutti_topology *t)
{
    tt_str text = {.mem = &tt_mem_std};
    char *data;
    size_t len;
    tt_topology_write(t, &text);
    if (tt_str_finish(&text, &data, &len))
        return;
    tt_trail_text(trail, TT_MARK_NETWORK, data, len);
    tt_free(&tt_mem_std, data, len + 1, 1);
}

void tt_comm_record(tutti_comm *comm, const char *host, bool is_new)
{
    const char *dir = comm->agreed.trace;
    tt_trail_head head;
    tt_trail *trail;
    tutti_diag diag = TT_DIAG_NONE;
    char path[TT_SETTING_TEXT + 80];
    if (!dir[0])
        return;
    fill_head(comm, host, &head);
    /* Where hosts do not forward neighbours need not reach each other. */
    bool reaches_all = !comm->topology || comm->topology->all_forward;
    if (is_new && reaches_all && compare_clocks(comm, &head))
        TT_WARN("clocks are not compared: %s", tutti_comm_message(comm));
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        TT_DEBUG("cannot make %s: %s", dir, strerror(errno));
    snprintf(path, sizeof(path), "%s/%016llx-%u" TT_TRAIL_SUFFIX, dir,
             (unsigned long long)head.meeting, head.rank);
    if (tt_trail_open(path, &head, &trail, &diag)) {
        TT_WARN("TUTTI_TRACE: %s; this rank goes on without", diag.text);
        return;
    }
    if (comm->rank == 0 && comm->topology)
        record_network(trail, comm->topology);
    tt_engine_lock(comm->engine);
    tt_mesh_record(comm->mesh, trail, head.parent);
    tt_engine_unlock(comm->engine);
}

/* --------------------------------------------------------------- reading -- */

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
    tt_str text = {.mem = &tt_mem_std};
    FILE *f;
    tutti_err err = open_file(r->name, &f, diag);
    if (err)
        return err;
    err = tt_str_add_file(&text, f, most, r->name, diag);
    fclose(f);
    if (err)
        tt_str_free(&text);
    else if ((err = tt_str_finish(&text, &r->data, &r->len)) != TUTTI_OK)
        tt_fail(diag, err, "no memory for %s", r->name);
    return err;
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
