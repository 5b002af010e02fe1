/* SPDX-License-Identifier: BSD-3-Clause
 * tracing.c - TUTTI_TRACE: each rank records what it does, and how far its
 * clock is from another's.
 *
 * Clocks     In round b = 1, 2, 4, ... rank r + b, for each r that 2 b divides,
 *            asks rank r for the time: its neighbour in the control graph, so
 *            they are connected. What takes least to and fro counts: the answer
 *            was given in the middle of it, give or take half. The differences
 *            are kept as they are, and added up by who reads them. It is asked
 *            again while the job goes on (engine/clocks.c).
 * Next       base/trail.h (the file), engine/recording.c, offline/merge.c (who
 *            reads it). */
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

/* Each takes 100 us or so, and the least of them is hardly ever disturbed;
 * where ranks wait for processors more are needed. */
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
    comm->trail = trail;
    tt_engine_lock(comm->engine);
    tt_mesh_record(comm->mesh, trail, head.parent);
    tt_engine_unlock(comm->engine);
}
