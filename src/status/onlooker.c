/* SPDX-License-Identifier: BSD-3-Clause
 * onlooker.c - asks the processes of this user what their jobs are at.
 *
 * Idea       They listen at unix sockets whose names the kernel lists
 *            (/proc/net/unix). One of a job tells of all its ranks, so those that
 *            have been told of are not asked. Who does not answer is named.
 * Cost       Half a second for each process that does not answer, a few seconds
 *            in all. Next: service.c, which answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/hostid.h"
#include "link/link.h"
#include "status/status.h"

static const uint64_t answer_ns = 500 * TT_NS_PER_MS;
static const uint64_t tell_ns = 4 * TT_NS_PER_S;
static const uint64_t all_ns = 10 * TT_NS_PER_S;
enum { MOST_PROCESSES = 4096, MOST_JOBS = 256 };

typedef struct onlooker {
    const char *wanted; /* job; NULL: all */
    tt_host_id host;    /* this one */
    tt_link_box *box;
    uint64_t until_ns;
    tt_seen_job jobs[MOST_JOBS];
    size_t n_jobs;
    int pids[MOST_PROCESSES], dumb[MOST_PROCESSES];
    size_t n_pids, n_dumb;
} onlooker;

/* ------------------------------------------------------------- processes -- */

static void note_process(onlooker *o, int pid)
{
    for (size_t i = 0; i < o->n_pids; i++)
        if (o->pids[i] == pid)
            return;
    if (o->n_pids < MOST_PROCESSES)
        o->pids[o->n_pids++] = pid;
}

static tutti_err list_processes(onlooker *o, tutti_diag *diag)
{
    char name[64], line[512];
    FILE *f = fopen("/proc/net/unix", "re");
    if (!f)
        return tt_fail(diag, TUTTI_ESYS, "cannot read /proc/net/unix");
    tt_service_name(0, name, sizeof(name));
    while (fgets(line, sizeof(line), f)) {
        const char *at = strchr(line, '@');
        if (at && strncmp(at + 1, name, strlen(name)) == 0)
            note_process(o, atoi(at + 1 + strlen(name)));
    }
    fclose(f);
    return TUTTI_OK;
}

/* 'T': it is stopped; '\0': it is not there. */
static char state_of(int pid)
{
    char path[40], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    const char *at = strrchr(tt_file_head(path, text, sizeof(text)), ')');
    return at && at[1] ? at[2] : '\0';
}

/* ------------------------------------------------------------------- ask -- */

/* Other hosts have processes of the same numbers. Where a rank's host is not known
 * all are on one. */
static bool is_here(const onlooker *o, const tt_status *s, uint32_t pid)
{
    return s->pid == pid && (!s->host[0] || strncmp(s->host, o->host.name,
                                                    sizeof(s->host) - 1) == 0);
}

/* Workers tell of themselves, so they are on this host. */
static bool has_process(const onlooker *o, const tt_seen_job *job, uint32_t pid)
{
    for (uint32_t r = 0; r < job->head.n_ranks; r++)
        if (job->head.is_partial ? job->workers[r].pid == pid
                                 : is_here(o, &job->ranks[r], pid))
            return true;
    return false;
}

/* What is to be asked of a process: others may have told of its communicators, but
 * of workers only it does. */
typedef enum wish { NOTHING, WORKERS, ALL } wish;

static wish what_to_ask(const onlooker *o, int pid)
{
    wish found = ALL;
    for (size_t j = 0; j < o->n_jobs; j++) {
        const tt_seen_job *job = &o->jobs[j];
        if (!has_process(o, job, (uint32_t)pid))
            continue;
        if (job->head.is_partial)
            return NOTHING; /* it has spoken itself */
        found = found == ALL ? NOTHING : found;
        for (uint32_t r = 0; r < job->head.n_ranks; r++)
            if (is_here(o, &job->ranks[r], (uint32_t)pid) &&
                job->ranks[r].is_worker)
                found = WORKERS;
    }
    return found;
}

/* Of this host: the system knows more of it. */
static void look_at_dumb(const onlooker *o, tt_seen_job *job)
{
    for (uint32_t r = 0; !job->head.is_partial && r < job->head.n_ranks; r++) {
        tt_status *s = &job->ranks[r];
        for (size_t i = 0; s->is == TT_STATUS_UNKNOWN && i < o->n_pids; i++)
            if (is_here(o, s, (uint32_t)o->pids[i]) &&
                state_of(o->pids[i]) == 'T')
                s->is = TT_STATUS_STOPPED;
    }
}

static bool end_text(char *text, size_t size)
{
    char *end = memchr(text, 0, size);
    for (char *c = text; end && c < end; c++)
        if (*c < ' ' || *c == 127)
            *c = '?';
    return end != NULL;
}

static bool is_sound_rank(tt_status *s)
{
    return s->version == TT_STATUS_VERSION && s->is <= TT_STATUS_FAILED &&
           s->waits <= TT_WAITS_TO_TAKE && end_text(s->host, sizeof(s->host)) &&
           end_text(s->transports, sizeof(s->transports));
}

static bool is_sound_worker(tt_worker_status *s)
{
    return s->version == TT_STATUS_VERSION && s->is <= TT_WORKER_COMMITS &&
           s->waits <= TT_WAITS_TO_TAKE && end_text(s->host, sizeof(s->host)) &&
           end_text(s->text, sizeof(s->text));
}

/* Another Tutti of this user may be there. */
static bool is_sound(tt_seen_job *job)
{
    for (uint32_t r = 0; r < job->head.n_ranks; r++)
        if (job->head.is_partial ? !is_sound_worker(&job->workers[r])
                                 : !is_sound_rank(&job->ranks[r]))
            return false;
    return end_text(job->head.job, sizeof(job->head.job)) &&
           end_text(job->head.failure, sizeof(job->head.failure));
}

/* The same communicator may have been told of by another process, which has not
 * heard all ranks. */
static void keep(onlooker *o, tt_seen_job *job)
{
    if (job->head.is_partial && tt_partial_merge(o->jobs, o->n_jobs, job))
        return;
    for (size_t j = 0; j < o->n_jobs && !job->head.is_partial; j++) {
        tt_seen_job *known = &o->jobs[j];
        if (known->head.is_partial || known->head.id != job->head.id ||
            known->head.n_ranks != job->head.n_ranks ||
            strcmp(known->head.job, job->head.job) != 0)
            continue;
        for (uint32_t r = 0; r < job->head.n_ranks; r++)
            if (known->ranks[r].is < TT_STATUS_IDLE &&
                job->ranks[r].is >= known->ranks[r].is)
                known->ranks[r] = job->ranks[r];
        tt_seen_drop(job);
        return;
    }
    if (o->n_jobs < MOST_JOBS)
        o->jobs[o->n_jobs++] = *job;
    else
        tt_seen_drop(job);
}

/* JOB: there may be more. NOTHING_TO_TELL: it has none, and that is an answer. */
typedef enum heard { NO_ANSWER, NOTHING_TO_TELL, JOB } heard;

static heard hear_job(onlooker *o, tt_link_stream *from, uint64_t until_ns)
{
    tt_seen_job job = {.ranks = NULL};
    tt_job_head *head = &job.head;
    if (tt_link_read_all(from, head, sizeof(*head), until_ns) != 0 ||
        head->magic != TT_REPORT_MAGIC || head->version != TT_STATUS_VERSION ||
        head->is_partial > 1 || head->n_ranks > TT_REPORT_RANKS)
        return NO_ANSWER;
    if (head->n_ranks == 0)
        return NOTHING_TO_TELL;
    void *rows = tt_new(&tt_mem_std, tt_seen_bytes(&job), 1);
    job.ranks = head->is_partial ? NULL : rows;
    job.workers = head->is_partial ? rows : NULL;
    bool is_whole = rows &&
                    tt_link_read_all(from, rows, tt_seen_bytes(&job),
                                     until_ns) == 0 &&
                    is_sound(&job);
    if (is_whole)
        keep(o, &job);
    else
        tt_seen_drop(&job);
    return is_whole ? JOB : NO_ANSWER;
}

static tutti_err ask(onlooker *o, int pid, wish what, tutti_diag *diag)
{
    char name[64];
    tt_link_way way = {.cost = 0};
    tt_link_dial *dial = NULL;
    tt_link_event link;
    const uint64_t now_ns = tt_now_ns();
    const uint64_t until_ns = now_ns + tell_ns < o->until_ns ? now_ns + tell_ns
                                                             : o->until_ns;
    tt_service_name(pid, name, sizeof(name));
    tt_addr_abstract(name, &way.to);
    const tt_link_dial_opts opts = {
        .purpose = TT_LINK_STATUS,
        .ways = &way,
        .n_ways = 1,
        .n_rounds = 1,
        .deadline_ns = now_ns + answer_ns,
        .try_ns = answer_ns,
        .answer_ns = answer_ns,
        .said = {what == WORKERS ? TT_STATUS_WORKERS : 0}};
    tutti_err err = tt_link_dial_begin(o->box, &opts, &dial, diag);
    if (err)
        return err;
    while (!tt_link_box_take(o->box, &link)) /* it has a deadline itself */
        tt_link_box_wait(o->box, UINT64_MAX);
    bool has_told = false;
    if (link.kind == TT_LINK_DIALLED) {
        heard what_came = JOB;
        while (tt_now_ns() < until_ns && what_came == JOB) {
            what_came = hear_job(o, &link.stream, until_ns);
            has_told |= what_came != NO_ANSWER;
        }
        tt_link_stream_close(&link.stream);
    }
    if (!has_told && what == ALL && state_of(pid) != '\0')
        o->dumb[o->n_dumb++] = pid;
    tt_link_dial_end(dial);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ tell -- */

static bool is_wanted(const onlooker *o, const tt_seen_job *job)
{
    if (!o->wanted)
        return true;
    const size_t len = strcspn(job->head.job, "#");
    if (strcmp(job->head.job, o->wanted) == 0 ||
        (strlen(o->wanted) == len &&
         strncmp(job->head.job, o->wanted, len) == 0))
        return true;
    const uint32_t pid = (uint32_t)strtoul(o->wanted, NULL, 10);
    return pid && has_process(o, job, pid);
}

static void add_dumb(const onlooker *o, tutti_status_form form, tt_str *out)
{
    for (size_t i = 0; i < o->n_dumb && form == TUTTI_STATUS_TABLE; i++)
        tt_str_printf(out, "process %d does not answer%s\n", o->dumb[i],
                      state_of(o->dumb[i]) == 'T' ? ": it is stopped" : "");
}

static tutti_err look(onlooker *o, tutti_status_form form, tt_str *out,
                      size_t *n_jobs, tutti_diag *diag)
{
    tutti_err err = list_processes(o, diag);
    if (!err)
        err = tt_link_box_open(&tt_mem_std, &o->box, diag);
    o->until_ns = tt_now_ns() + all_ns;
    tt_host_id_get(&o->host);
    for (size_t i = 0; !err && i < o->n_pids; i++) {
        const wish what = what_to_ask(o, o->pids[i]);
        if (what != NOTHING && tt_now_ns() < o->until_ns)
            err = ask(o, o->pids[i], what, diag);
    }
    tt_link_box_close(o->box);
    size_t n = 0;
    for (size_t j = 0; j < o->n_jobs; j++) {
        tt_seen_job job = o->jobs[j];
        look_at_dumb(o, &job);
        if (is_wanted(o, &job))
            o->jobs[n++] = job;
        else
            tt_seen_drop(&job);
    }
    o->n_jobs = n;
    if (!err)
        tt_status_write(o->jobs, n, form, out);
    if (!err && !o->wanted)
        add_dumb(o, form, out);
    *n_jobs = n;
    return err;
}

tutti_err tutti_status(const char *job, tutti_status_form form, char **text,
                       size_t *n_jobs)
{
    tutti_diag diag = TT_DIAG_NONE;
    tt_str out = {.mem = &tt_mem_std};
    size_t len, n = 0;
    tutti_err err = tt_process_enter(&diag);
    onlooker *o = tt_new(&tt_mem_std, 1, sizeof(*o));
    if (!err && (!text || !n_jobs || form > TUTTI_STATUS_PROMETHEUS))
        err = tt_fail(&diag, TUTTI_EINVAL, "tutti_status: no such form");
    if (!err && !o)
        err = tt_fail(&diag, TUTTI_ENOMEM, "out of memory");
    if (!err) {
        o->wanted = job;
        err = look(o, form, &out, &n, &diag);
        if (!err)
            err = tt_str_finish(&out, text, &len);
    }
    for (size_t j = 0; o && j < o->n_jobs; j++)
        tt_seen_drop(&o->jobs[j]);
    tt_free(&tt_mem_std, o, 1, sizeof(*o));
    if (err)
        tt_str_free(&out);
    else
        *n_jobs = n;
    return tt_report(err, &diag, NULL);
}
