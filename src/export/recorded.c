/* SPDX-License-Identifier: BSD-3-Clause
 * recorded.c - reads what ranks have recorded (base/trail.h).
 *
 * Nothing in a file is trusted: a rank may have been killed in the middle of a
 * record, or the file be none. What makes no sense is left out.
 *
 * Clocks     A file tells how far its rank's clock is from that of its parent,
 *            a lower rank: at the start, and from time to time after that.
 *            Between two of these times a clock drifts evenly; after the last,
 *            as it did since the first. A time that took long to ask for says
 *            little, and is left out. The way from parent to parent adds up; so
 *            does the doubt, half of what it took to ask. Where nothing is
 *            told, or the parent's file is missing, the clocks of the day
 *            count.
 * Calls      Ranks tell them by communicator, channel and number there;
 *            together they get one number in the job (number_calls).
 * Next       measured.c. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "export/measured.h"

/* ----------------------------------------------------------------- files -- */

tutti_err tt_measured_add(tt_measured *m, const char *name, const void *head,
                          size_t len, tutti_diag *diag)
{
    const size_t name_len = strlen(name);
    tt_recording r = {0};
    if (len >= sizeof(r.head))
        memcpy(&r.head, head, sizeof(r.head));
    r.head.host[sizeof(r.head.host) - 1] = '\0';
    if (r.head.magic != TT_TRAIL_MAGIC)
        return tt_fail(diag, TUTTI_EFORMAT,
                       "%.300s is no record of this version of Tutti, or of "
                       "another kind of machine",
                       name);
    if (r.head.rank >= r.head.n_ranks || r.head.n_ranks > TT_MAX_RANKS)
        return tt_fail(diag, TUTTI_EFORMAT, "%.300s is of rank %u of %u", name,
                       r.head.rank, r.head.n_ranks);
    tutti_err err = tt_grow(m->mem, (void **)(void *)&m->files, &m->cap_files,
                            m->n_files + 1, sizeof(*m->files));
    r.name = err ? NULL : tt_new(m->mem, name_len + 1, 1);
    if (!r.name)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for the records");
    memcpy(r.name, name, name_len + 1);
    m->files[m->n_files++] = r;
    return TUTTI_OK;
}

static void free_file(const tt_measured *m, tt_recording *r)
{
    tt_free(m->mem, r->name, strlen(r->name) + 1, 1);
    if (r->data)
        tt_free(m->mem, r->data, r->len + 1, 1);
}

void tt_measured_free(tt_measured *m)
{
    for (size_t i = 0; i < m->n_files; i++)
        free_file(m, &m->files[i]);
    tt_free(m->mem, m->files, m->cap_files, sizeof(*m->files));
    m->files = NULL;
    m->n_files = m->cap_files = 0;
}

/* ------------------------------------------------------------------- job -- */

static int by_number(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_job(const void *x, const void *y)
{
    const tt_recording *a = x, *b = y;
    return by_number(a->head.meeting, b->head.meeting);
}

static void keep_only(tt_measured *m, uint64_t job)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_files; i++) {
        if (m->files[i].head.meeting == job)
            m->files[n++] = m->files[i];
        else
            free_file(m, &m->files[i]);
    }
    m->n_files = n;
}

tutti_err tt_measured_choose(tt_measured *m, uint64_t job, tutti_diag *diag)
{
    const tt_recording *best = NULL;
    if (m->n_files > 0)
        qsort(m->files, m->n_files, sizeof(*m->files), by_job);
    m->n_jobs = 0;
    for (size_t i = 0; i < m->n_files; i++) {
        const tt_recording *r = &m->files[i];
        m->n_jobs += i == 0 || by_job(&r[-1], r) != 0;
        bool is_meant = job == 0 || r->head.meeting == job;
        if (is_meant && (!best || r->head.real_ns > best->head.real_ns))
            best = r;
    }
    if (!best)
        return tt_fail(diag, TUTTI_EINVAL, "there is no record of job %016llx",
                       (unsigned long long)job);
    keep_only(m, best->head.meeting);
    return TUTTI_OK;
}

static tutti_err seat(const tt_measured *m, tt_recorded *job, tutti_diag *diag)
{
    for (size_t i = 0; i < m->n_files; i++) {
        const tt_trail_head *h = &m->files[i].head;
        if (!m->files[i].data)
            continue;
        if (h->n_ranks != job->n_ranks || job->ranks[h->rank])
            return tt_fail(diag, TUTTI_EFORMAT,
                           "%.300s is of rank %u, of which there is a record, "
                           "or of a job of another size: take it away",
                           m->files[i].name, h->rank);
        job->ranks[h->rank] = &m->files[i];
    }
    return TUTTI_OK;
}

/* Numbers of files: what is not sensible must not overflow. */
static int64_t minus(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b);
}

static int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* The records of a file, one after the other; false: there are no more. *text:
 * what is behind one that has some. */
static bool next_mark(const tt_recording *file, size_t *at, tt_mark *r,
                      const char **text)
{
    while (file->len >= sizeof(*r) && *at <= file->len - sizeof(*r)) {
        memcpy(r, file->data + *at, sizeof(*r));
        *at += sizeof(*r);
        if (r->kind == TT_MARK_END || r->kind >= TT_MARK_KINDS) {
            /* The rest of the piece, or the one that was being written. */
            if (r->kind == TT_MARK_END)
                *at += (TT_TRAIL_PIECE - *at % TT_TRAIL_PIECE) % TT_TRAIL_PIECE;
            continue;
        }
        const bool is_text = r->kind == TT_MARK_NETWORK ||
                             r->kind == TT_MARK_SCHEDULE;
        if (is_text && r->u.n_bytes > file->len - *at)
            return false;
        *text = file->data + *at;
        if (is_text)
            *at += (r->u.n_bytes + sizeof(*r) - 1) & ~(sizeof(*r) - 1);
        return true;
    }
    return false;
}

/* ---------------------------------------------------------------- clocks -- */

/* A comparison is good that took no longer than the quickest one so many times;
 * or whose doubt is less than clocks may drift in the time since the last
 * one. */
static const uint64_t most_trips = 4;
static const uint64_t drift_part = 10000;

static tutti_err add_clock(tt_recorded *job, uint64_t at_ns, int64_t ahead_ns,
                           uint64_t trip_ns)
{
    tutti_err err = tt_grow(job->mem, (void **)(void *)&job->clocks,
                            &job->cap_clocks, job->n_clocks + 1,
                            sizeof(*job->clocks));
    if (!err)
        job->clocks[job->n_clocks++] = (tt_clock_seen){at_ns, ahead_ns,
                                                       trip_ns};
    return err;
}

/* Of those from `first` on the good ones stay. */
static void keep_good(tt_recorded *job, size_t first)
{
    uint64_t least_ns = UINT64_MAX;
    size_t n = first;
    for (size_t i = first; i < job->n_clocks; i++)
        if (job->clocks[i].trip_ns < least_ns)
            least_ns = job->clocks[i].trip_ns;
    for (size_t i = first; i < job->n_clocks; i++) {
        const tt_clock_seen *c = &job->clocks[i];
        const tt_clock_seen *last = n > first ? &job->clocks[n - 1] : NULL;
        if (last && (c->at_ns <= last->at_ns ||
                     (c->trip_ns / most_trips > least_ns &&
                      c->trip_ns / 2 > (c->at_ns - last->at_ns) / drift_part)))
            continue;
        job->clocks[n++] = *c;
    }
    job->n_clocks = n;
}

/* All comparisons of a rank with its parent. */
static tutti_err read_clocks(tt_recorded *job, uint32_t rank)
{
    const tt_recording *file = job->ranks[rank];
    const tt_trail_head *h = &file->head;
    const size_t first = job->n_clocks;
    size_t at = sizeof(*h);
    tt_mark r;
    const char *text;
    tutti_err err = add_clock(job, h->now_ns, h->ahead_ns, h->trip_ns);
    while (!err && next_mark(file, &at, &r, &text))
        if (r.kind == TT_MARK_CLOCK && r.peer == h->parent)
            err = add_clock(job, r.t_ns, r.u.ahead_ns, r.until_ns);
    if (err)
        return err;
    keep_good(job, first);
    uint64_t most_ns = 0;
    for (size_t i = first; i < job->n_clocks; i++)
        most_ns = job->clocks[i].trip_ns > most_ns ? job->clocks[i].trip_ns
                                                   : most_ns;
    job->error_ns[rank] = job->error_ns[h->parent] + most_ns / 2;
    return TUTTI_OK;
}

/* Of two of them: so much per ns. */
static double slope(const tt_clock_seen *a, const tt_clock_seen *b)
{
    return (double)minus((uint64_t)b->ahead_ns, (uint64_t)a->ahead_ns) /
           (double)(b->at_ns - a->at_ns);
}

static int64_t drifted(const tt_clock_seen *from, double by, uint64_t ns)
{
    static const double most = 4e18; /* nonsense must not overflow */
    const double d = by * (double)(ns - from->at_ns);
    return plus(from->ahead_ns, (int64_t)(d > most    ? most
                                          : d < -most ? -most
                                                      : d));
}

/* How far the parent's clock was ahead then, by the rank's own. */
static int64_t parent_ahead(const tt_recorded *job, uint32_t rank, uint64_t ns)
{
    const tt_clock_seen *all = &job->clocks[job->first_clock[rank]];
    const size_t n = job->first_clock[rank + 1] - job->first_clock[rank];
    size_t low = 0, high = n; /* all[low] is the first one after ns */
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (all[mid].at_ns <= ns)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0)
        return all[0].ahead_ns;
    if (low < n)
        return drifted(&all[low - 1], slope(&all[low - 1], &all[low]), ns);
    return drifted(&all[n - 1], n > 1 ? slope(&all[0], &all[n - 1]) : 0, ns);
}

int64_t tt_recorded_time(const tt_recorded *job, uint32_t rank, uint64_t ns)
{
    int64_t at = (int64_t)ns;
    while (job->first_clock[rank + 1] > job->first_clock[rank]) {
        at = plus(at, parent_ahead(job, rank, (uint64_t)at));
        rank = job->ranks[rank]->head.parent;
    }
    return plus(at, job->shift_ns[rank]);
}

double tt_recorded_drift(const tt_recorded *job, uint32_t rank)
{
    const size_t first = job->first_clock[rank];
    const size_t end = job->first_clock[rank + 1];
    if (end < first + 2)
        return 0;
    const uint64_t from = job->clocks[first].at_ns;
    const uint64_t to = job->clocks[end - 1].at_ns;
    const int64_t took = minus((uint64_t)tt_recorded_time(job, rank, to),
                               (uint64_t)tt_recorded_time(job, rank, from));
    return 1 - (double)took / (double)(to - from);
}

static tutti_err set_clocks(tt_recorded *job)
{
    const tt_trail_head *base = NULL;
    tutti_err err = TUTTI_OK;
    for (uint32_t r = 0; r < job->n_ranks && !err; r++) {
        const tt_trail_head *h = job->ranks[r] ? &job->ranks[r]->head : NULL;
        const uint32_t p = h ? h->parent : TT_NONE;
        job->first_clock[r + 1] = job->first_clock[r];
        if (!h)
            continue;
        if (!base) {
            base = h;
            continue;
        }
        if (p < r && job->ranks[p] && job->error_ns[p] != UINT64_MAX) {
            err = read_clocks(job, r);
            job->first_clock[r + 1] = job->n_clocks;
            job->shift_ns[r] =
                minus((uint64_t)tt_recorded_time(job, r, h->now_ns), h->now_ns);
            continue;
        }
        job->shift_ns[r] = minus(base->now_ns, base->real_ns);
        job->shift_ns[r] = plus(job->shift_ns[r], minus(h->real_ns, h->now_ns));
        job->error_ns[r] = UINT64_MAX;
    }
    return err;
}

/* --------------------------------------------------------------- records -- */

typedef struct reading {
    tt_recorded *job;
    uint32_t rank;
    size_t first_call; /* of the rank */
} reading;

static int64_t time_of(const reading *in, uint64_t ns)
{
    return tt_recorded_time(in->job, in->rank, ns);
}

static tt_call_seen *call_of(const reading *in, uint64_t number)
{
    size_t low = in->first_call, high = in->job->n_calls;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (in->job->calls[mid].number < number)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == in->job->n_calls || in->job->calls[low].number != number)
        return NULL;
    return &in->job->calls[low];
}

static tutti_err add_call(const reading *in, const tt_mark *r)
{
    tt_recorded *job = in->job;
    if (job->n_calls > in->first_call &&
        job->calls[job->n_calls - 1].number >= r->call)
        return TUTTI_OK;
    tutti_err err = tt_grow(job->mem, (void **)(void *)&job->calls,
                            &job->cap_calls, job->n_calls + 1,
                            sizeof(*job->calls));
    if (err)
        return err;
    job->calls[job->n_calls++] = (tt_call_seen){
        .number = r->call,
        .comm = r->u.call.comm,
        .channel = r->u.call.channel,
        .seq = r->u.call.seq,
        .schedule = r->u.call.schedule,
        .bytes = r->until_ns,
        .rank = in->rank,
        .n = r->peer,
        .coll = r->coll,
        .begin_ns = time_of(in, r->t_ns),
        .end_ns = time_of(in, r->t_ns),
    };
    return TUTTI_OK;
}

static tutti_err add_slice(const reading *in, const tt_mark *r)
{
    tt_recorded *job = in->job;
    const tt_call_seen *call = call_of(in, r->call);
    const bool is_send = r->kind == TT_MARK_SENT || r->kind == TT_MARK_TAKEN;
    if (!call || r->peer >= job->n_ranks || r->peer == in->rank)
        return TUTTI_OK;
    tutti_err err = tt_grow(job->mem, (void **)(void *)&job->slices,
                            &job->cap_slices, job->n_slices + 1,
                            sizeof(*job->slices));
    if (err)
        return err;
    job->slices[job->n_slices++] = (tt_slice_seen){
        .call = (uint64_t)(call - job->calls), /* until all are read */
        .src = is_send ? in->rank : r->peer,
        .dst = is_send ? r->peer : in->rank,
        .wire = r->u.slice.wire,
        .slice = r->u.slice.slice,
        .step = r->u.slice.step,
        .chunk = r->u.slice.chunk,
        .port = r->port,
        .reduces = r->reduces,
        .kind = r->kind,
        .bytes = r->u.slice.bytes,
        .ns = time_of(in, r->t_ns),
        .until_ns = time_of(in, r->until_ns),
    };
    return TUTTI_OK;
}

static tutti_err add_sleep(const reading *in, const tt_mark *r)
{
    tt_recorded *job = in->job;
    tutti_err err = tt_grow(job->mem, (void **)(void *)&job->sleeps,
                            &job->cap_sleeps, job->n_sleeps + 1,
                            sizeof(*job->sleeps));
    if (!err)
        job->sleeps[job->n_sleeps++] = (tt_sleep_seen){
            in->rank, time_of(in, r->t_ns), time_of(in, r->until_ns)};
    return err;
}

static tutti_err add_schedule(tt_recorded *job, const char *text, size_t len)
{
    tutti_err err = tt_grow(job->mem, (void **)(void *)&job->schedules,
                            &job->cap_schedules, job->n_schedules + 1,
                            sizeof(*job->schedules));
    if (!err)
        err = tt_grow(job->mem, (void **)(void *)&job->schedule_lens,
                      &job->cap_lens, job->n_schedules + 1,
                      sizeof(*job->schedule_lens));
    if (err)
        return err;
    job->schedules[job->n_schedules] = text;
    job->schedule_lens[job->n_schedules++] = len;
    return TUTTI_OK;
}

static tutti_err add(const reading *in, const tt_mark *r, const char *text)
{
    tt_recorded *job = in->job;
    tt_call_seen *call;
    switch ((tt_mark_kind)r->kind) {
    case TT_MARK_CALL:
        return add_call(in, r);
    case TT_MARK_DONE:
        call = call_of(in, r->call);
        if (call) {
            call->end_ns = time_of(in, r->t_ns);
            call->err = (tutti_err)(int32_t)(0u - r->peer);
            call->is_over = true;
        }
        return TUTTI_OK;
    case TT_MARK_SENT:
    case TT_MARK_TAKEN:
    case TT_MARK_ARRIVED:
    case TT_MARK_APPLIED:
        return add_slice(in, r);
    case TT_MARK_ASLEEP:
        return add_sleep(in, r);
    case TT_MARK_NETWORK:
        job->network = text;
        job->network_len = r->u.n_bytes;
        return TUTTI_OK;
    case TT_MARK_SCHEDULE:
        return add_schedule(job, text, r->u.n_bytes);
    case TT_MARK_CLOCK: /* read_clocks() */
    case TT_MARK_END:
    case TT_MARK_KINDS:
        break;
    }
    return TUTTI_OK;
}

/* When the call was entered, or the slice moved; texts have no time, and clocks
 * are not drawn. */
static void stretch(const reading *in, const tt_mark *r)
{
    tt_recorded *job = in->job;
    if (r->kind == TT_MARK_NETWORK || r->kind == TT_MARK_SCHEDULE ||
        r->kind == TT_MARK_CLOCK)
        return;
    const int64_t at = time_of(in, r->t_ns);
    const bool has_end = r->kind == TT_MARK_SENT || r->kind == TT_MARK_ASLEEP;
    const int64_t end = has_end ? time_of(in, r->until_ns) : at;
    job->first_ns = at < job->first_ns ? at : job->first_ns;
    job->last_ns = end > job->last_ns ? end : job->last_ns;
}

static tutti_err read_file(const reading *in, const tt_recording *file)
{
    tutti_err err = TUTTI_OK;
    size_t at = sizeof(tt_trail_head);
    tt_mark r;
    const char *text;
    while (!err && next_mark(file, &at, &r, &text)) {
        stretch(in, &r);
        err = add(in, &r, text);
    }
    return err;
}

/* ----------------------------------------------------------------- order -- */

static int compare_calls(const tt_call_seen *a, const tt_call_seen *b)
{
    int d = by_number(a->comm, b->comm);
    d = d ? d : by_number(a->channel, b->channel);
    return d ? d : by_number(a->seq, b->seq);
}

static int by_call(const void *x, const void *y)
{
    return compare_calls(*(tt_call_seen *const *)x, *(tt_call_seen *const *)y);
}

static int by_entry(const void *x, const void *y)
{
    const tt_call_seen *a = *(tt_call_seen *const *)x;
    const tt_call_seen *b = *(tt_call_seen *const *)y;
    if (a->entered_ns != b->entered_ns)
        return a->entered_ns < b->entered_ns ? -1 : 1;
    return compare_calls(a, b);
}

/* Of the n calls, which are one. */
static void set_entered(tt_call_seen **calls, size_t n)
{
    int64_t first_ns = INT64_MAX;
    for (size_t i = 0; i < n; i++)
        first_ns = calls[i]->begin_ns < first_ns ? calls[i]->begin_ns
                                                 : first_ns;
    for (size_t i = 0; i < n; i++)
        calls[i]->entered_ns = first_ns;
}

/* What ranks call the same call gets one number, in the order in which calls
 * began; each slice, that of its call. */
static tutti_err number_calls(tt_recorded *job)
{
    const size_t n = job->n_calls;
    if (n == 0)
        return TUTTI_OK;
    tt_call_seen **order = tt_new(job->mem, n, sizeof(*order));
    if (!order)
        return TUTTI_ENOMEM;
    for (size_t i = 0; i < n; i++)
        order[i] = &job->calls[i];
    qsort(order, n, sizeof(*order), by_call);
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n; same++)
            if (compare_calls(order[i], order[i + same]) != 0)
                break;
        set_entered(&order[i], same);
    }
    qsort(order, n, sizeof(*order), by_entry);
    for (size_t i = 0; i < n; i++) {
        const bool is_next = i == 0 || compare_calls(order[i - 1], order[i]);
        order[i]->call = (i ? order[i - 1]->call : 0) + is_next;
    }
    tt_free(job->mem, order, n, sizeof(*order));
    for (size_t i = 0; i < job->n_slices; i++)
        job->slices[i].call = job->calls[job->slices[i].call].call;
    return TUTTI_OK;
}

static int compare_slices(const tt_slice_seen *a, const tt_slice_seen *b)
{
    int d = by_number(a->call, b->call);
    d = d ? d : by_number(a->src, b->src);
    d = d ? d : by_number(a->dst, b->dst);
    d = d ? d : by_number(a->port, b->port);
    d = d ? d : by_number(a->wire, b->wire);
    return d ? d : by_number(a->slice, b->slice);
}

static int compare(const void *a, const void *b)
{
    const tt_slice_seen *x = a, *y = b;
    int d = compare_slices(x, y);
    return d ? d : by_number(x->kind, y->kind);
}

bool tt_slice_is_same(const tt_slice_seen *a, const tt_slice_seen *b)
{
    return compare_slices(a, b) == 0;
}

static tutti_err read_ranks(tt_recorded *job)
{
    tutti_err err = TUTTI_OK;
    job->first_ns = INT64_MAX;
    job->last_ns = INT64_MIN;
    for (uint32_t r = 0; r < job->n_ranks && !err; r++) {
        const reading in = {job, r, job->n_calls};
        if (job->ranks[r])
            err = read_file(&in, job->ranks[r]);
    }
    if (job->first_ns > job->last_ns)
        job->first_ns = job->last_ns = 0;
    if (!err)
        err = number_calls(job);
    if (!err && job->n_slices > 0)
        qsort(job->slices, job->n_slices, sizeof(*job->slices), compare);
    return err;
}

tutti_err tt_recorded_read(const tt_measured *m, tt_recorded *out,
                           tutti_diag *diag)
{
    assert(m->n_files > 0);
    *out = (tt_recorded){.mem = m->mem,
                         .id = m->files[0].head.meeting,
                         .n_ranks = m->files[0].head.n_ranks};
    out->ranks = tt_new(m->mem, out->n_ranks, sizeof(*out->ranks));
    out->shift_ns = tt_new(m->mem, out->n_ranks, sizeof(*out->shift_ns));
    out->error_ns = tt_new(m->mem, out->n_ranks, sizeof(*out->error_ns));
    out->first_clock = tt_new(m->mem, (size_t)out->n_ranks + 1,
                              sizeof(*out->first_clock));
    if (!out->ranks || !out->shift_ns || !out->error_ns || !out->first_clock)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for the records");
    tutti_err err = seat(m, out, diag);
    if (err)
        return err;
    err = set_clocks(out);
    if (!err)
        err = read_ranks(out);
    return err ? tt_fail(diag, err, "no memory for the records") : TUTTI_OK;
}

void tt_recorded_free(tt_recorded *job)
{
    const tt_mem *mem = job->mem;
    tt_free(mem, job->ranks, job->n_ranks, sizeof(*job->ranks));
    tt_free(mem, job->shift_ns, job->n_ranks, sizeof(*job->shift_ns));
    tt_free(mem, job->error_ns, job->n_ranks, sizeof(*job->error_ns));
    tt_free(mem, job->first_clock, (size_t)job->n_ranks + 1,
            sizeof(*job->first_clock));
    tt_free(mem, job->clocks, job->cap_clocks, sizeof(*job->clocks));
    tt_free(mem, job->calls, job->cap_calls, sizeof(*job->calls));
    tt_free(mem, job->slices, job->cap_slices, sizeof(*job->slices));
    tt_free(mem, job->sleeps, job->cap_sleeps, sizeof(*job->sleeps));
    tt_free(mem, job->schedules, job->cap_schedules, sizeof(*job->schedules));
    tt_free(mem, job->schedule_lens, job->cap_lens,
            sizeof(*job->schedule_lens));
}
