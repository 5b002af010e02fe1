/* SPDX-License-Identifier: BSD-3-Clause
 * seen.c - what a rank has seen of its large calls and of its connections, and
 * what it says of that.
 *
 * Calls      when each was begun and has ended; those that are issued ahead
 *            share the time with those before them (infer/slowcalls.c).
 * Paces      how fast connections were while something was on its way
 *            (tt_net_pace), since it last spoke.
 * Waits      for how long a thread could have run and had no processor: that of
 *            the program which calls, and the one in which the engine hears
 *            what it is asked. The larger share counts.
 * Next       drift.c, judge.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "drift/drift.h"

#define PARTS TT_JUDGED_CALLS
#define EARLIER 8 /* calls that may have ended behind the one after them */
#define PACES TT_DRIFT_PACES

static tt_slot *slot_of(tt_seen *s, uint64_t number)
{
    return &s->slots[number % TT_DRIFT_SLOTS];
}

tt_slot *tt_seen_open(tt_seen *s, uint64_t number, uint64_t now_ns)
{
    tt_slot *slot = slot_of(s, number);
    if (slot->is_open)
        return NULL;
    *slot = (tt_slot){.number = number, .begin_ns = now_ns, .is_open = true};
    s->last = number;
    if (s->n_open++ == 0)
        s->opened_ns = now_ns;
    return slot;
}

void tt_seen_close(tt_seen *s, tt_slot *slot, tutti_err err)
{
    uint64_t now_ns = tt_now_ns();
    slot->end_ns = err ? 0 : now_ns;
    slot->is_open = false;
    if (--s->n_open == 0)
        s->busy_ns += now_ns - s->opened_ns;
}

/* By whatever plans; NULL: it has not, or is not known. */
static const tt_slot *find_ended(const tt_seen *s, uint64_t number)
{
    const tt_slot *slot = &s->slots[number % TT_DRIFT_SLOTS];
    bool is_it = number > 0 && slot->number == number;
    return is_it && !slot->is_open && slot->end_ns > 0 ? slot : NULL;
}

const tt_slot *tt_seen_ended(const tt_seen *s, uint64_t number)
{
    return number > s->since ? find_ended(s, number) : NULL;
}

bool tt_seen_are_over(const tt_seen *s, const tt_window *w, uint64_t n_begun)
{
    bool are = w->first + w->n - 1 <= n_begun;
    for (uint64_t i = 0; are && i < w->n; i++) {
        const tt_slot *slot = &s->slots[(w->first + i) % TT_DRIFT_SLOTS];
        are = slot->number != w->first + i || !slot->is_open;
    }
    return are;
}

/* ----------------------------------------------------------------- times -- */

static uint32_t part_of(const tt_window *w, uint32_t i)
{
    return i * PARTS / w->n;
}

bool tt_seen_predicted(const tt_seen *s, const tt_window *w, float *parts)
{
    bool is_known = true;
    memset(parts, 0, PARTS * sizeof(*parts));
    for (uint32_t i = 0; i < w->n && is_known; i++) {
        const tt_slot *slot = tt_seen_ended(s, w->first + i);
        is_known = slot != NULL;
        if (slot)
            parts[part_of(w, i)] += (float)slot->predicted_s;
    }
    return is_known;
}

/* When the last of those before has ended; 0: not known. */
static uint64_t find_end_before(const tt_seen *s, uint64_t first)
{
    uint64_t end_ns = 0;
    for (uint64_t i = 1; i <= EARLIER && i < first; i++) {
        const tt_slot *slot = find_ended(s, first - i);
        if (!slot && i == 1)
            return 0;
        if (slot && slot->end_ns > end_ns)
            end_ns = slot->end_ns;
    }
    return end_ns;
}

static void say_times(const tt_seen *s, const tt_window *w, tt_saying *out)
{
    tt_call_time calls[TT_DRIFT_WINDOW] = {{0, 0, 0}};
    float took_s[TT_DRIFT_WINDOW];
    const uint64_t from_ns = find_end_before(s, w->first);
    for (uint32_t i = 0; i < w->n; i++) {
        const tt_slot *slot = tt_seen_ended(s, w->first + i);
        if (slot && from_ns > 0)
            calls[i] = (tt_call_time){slot->begin_ns, slot->end_ns,
                                      slot->predicted_s};
    }
    tt_infer_share_times(calls, w->n, from_ns, took_s);
    for (uint32_t i = 0; i < w->n; i++) {
        float *part = &out->took_s[part_of(w, i)];
        *part = *part < 0 || took_s[i] < 0 ? -1 : *part + took_s[i];
    }
}

/* ----------------------------------------------------------------- paces -- */

/* Puts a pace, and its share of the time, among those that are told: half of
 * the places for the slowest, half for the fastest. */
static void keep_pace(tt_saying *out, uint32_t *n, uint32_t to, uint8_t rail,
                      const float pace[2])
{
    uint32_t at = *n;
    while (at > 0 && out->paces[at - 1].bytes_per_s > pace[0])
        at--;
    if (*n == PACES && at == PACES / 2)
        return; /* in the middle */
    if (*n == PACES && at < PACES / 2)
        memmove(&out->paces[at + 1], &out->paces[at],
                (PACES / 2 - 1 - at) * sizeof(out->paces[0]));
    else if (*n == PACES)
        memmove(&out->paces[PACES / 2], &out->paces[PACES / 2 + 1],
                (--at - PACES / 2) * sizeof(out->paces[0]));
    else
        memmove(&out->paces[at + 1], &out->paces[at],
                ((*n)++ - at) * sizeof(out->paces[0]));
    out->paces[at].to = (uint16_t)to;
    out->paces[at].rail = rail;
    out->paces[at].bytes_per_s = pace[0];
    out->paces[at].share = pace[1];
}

/* Of connection i, by rank and port: since it was last asked for. */
static bool find_pace(tutti_comm *comm, tt_seen *s, uint32_t i,
                      tt_net_pace *out)
{
    tt_net_pace now, *seen = &s->paces[i];
    uint32_t to = i / TT_PORTS_MAX;
    if (to == comm->rank ||
        !tt_mesh_pace(comm->mesh, tt_team_member(comm->team, to),
                      i % TT_PORTS_MAX, &now))
        return false;
    tt_net_pace was = *seen;
    *seen = now;
    if (now.bytes < was.bytes || now.busy_ns < was.busy_ns)
        return false; /* another connection */
    *out = (tt_net_pace){now.bytes - was.bytes, now.busy_ns - was.busy_ns};
    return true;
}

/* For how long there were calls since the last time. */
static uint64_t take_busy(tt_seen *s)
{
    uint64_t busy_ns = s->busy_ns, now_ns = tt_now_ns();
    if (s->n_open > 0) {
        busy_ns += now_ns - s->opened_ns;
        s->opened_ns = now_ns;
    }
    s->busy_ns = 0;
    return busy_ns;
}

/* Who has sent little says nothing: credit and the like. */
static void say_paces(tutti_comm *comm, tt_seen *s, tt_saying *out)
{
    uint64_t calls_ns = take_busy(s) + 1;
    uint32_t n = 0, n_conns = comm->n_ranks * TT_PORTS_MAX;
    uint64_t most = 0;
    tt_net_pace *paces = tt_new(&comm->mem, n_conns, sizeof(*paces));
    for (uint32_t i = 0; paces && i < n_conns; i++) {
        if (find_pace(comm, s, i, &paces[i]) && paces[i].bytes > most)
            most = paces[i].bytes;
    }
    for (uint32_t i = 0; paces && i < n_conns; i++) {
        uint32_t to = i / TT_PORTS_MAX;
        if (paces[i].bytes <= most / 8 || paces[i].busy_ns == 0)
            continue;
        const float pace[2] = {
            (float)((double)paces[i].bytes * 1e9 / (double)paces[i].busy_ns),
            (float)((double)paces[i].busy_ns / (double)calls_ns)};
        keep_pace(out, &n, to, tt_comm_rail_of(comm, to, i % TT_PORTS_MAX),
                  pace);
    }
    tt_free(&comm->mem, paces, n_conns, sizeof(*paces));
}

/* ----------------------------------------------------------------- waits -- */

/* For how long the thread could have run and had no processor; false where the
 * kernel does not count that. */
static bool read_waited(pid_t thread, uint64_t *ns)
{
    char name[64], text[80];
    snprintf(name, sizeof(name), "/proc/self/task/%d/schedstat", (int)thread);
    tt_file_head(name, text, sizeof(text));
    const char *second = strchr(text, ' ');
    *ns = second ? strtoull(second, NULL, 10) : 0;
    return second != NULL;
}

/* The share since the last time; 0: not known. thread: of now, 0 for the one
 * that it was. */
static float find_waited(tt_seen *s, int which, pid_t thread)
{
    uint64_t waited_ns = 0, now_ns = tt_now_ns();
    pid_t was = s->waits[which].thread;
    float share = 0;
    thread = thread ? thread : was;
    if (!thread || !read_waited(thread, &waited_ns))
        thread = 0;
    if (thread && was == thread && now_ns > s->waits[which].now_ns)
        share = (float)(waited_ns - s->waits[which].waited_ns) /
                (float)(now_ns - s->waits[which].now_ns);
    s->waits[which].thread = thread;
    s->waits[which].waited_ns = waited_ns;
    s->waits[which].now_ns = now_ns;
    return share;
}

void tt_seen_say(tutti_comm *comm, tt_seen *s, const tt_window *w,
                 tt_saying *out)
{
    *out = (tt_saying){.waited = find_waited(s, 0, 0)};
    float waited = find_waited(s, 1, gettid());
    out->waited = waited > out->waited ? waited : out->waited;
    say_times(s, w, out);
    say_paces(comm, s, out);
}

void tt_seen_forget(tutti_comm *comm, tt_seen *s, bool by_caller)
{
    tt_net_pace pace;
    take_busy(s);
    find_waited(s, 0, by_caller ? gettid() : 0);
    find_waited(s, 1, 0);
    for (uint32_t i = 0; i < comm->n_ranks * TT_PORTS_MAX; i++)
        find_pace(comm, s, i, &pace);
}
