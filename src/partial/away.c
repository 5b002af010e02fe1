/* SPDX-License-Identifier: BSD-3-Clause
 * away.c - a worker whose connection to the controller has dropped, or is
 * silent, comes back by another one.
 *
 * Idea       It dials where the controller was, and its standbys (lead.h), in
 *            turn for TUTTI_RECONNECT, and then both
 *            say again what may have been lost (talk.h). Its group goes on
 *            meanwhile: the data needs no controller. What the program calls
 *            meanwhile is told when it is back.
 * Why not    link/resume.c, by which the connections between workers go on: its
 *            bytes are known to two processes, and what is said again here can
 *            be said to any controller.
 * Verdict    Where nobody listens any more, or somebody else answers, the
 *            controller is dead. Inside a host there are no outages, so there
 *            is nothing to wait for.
 * Late       Who comes back when the others go on without it has another life
 *            there (incarnation): its group is over, its announcement counts.
 * Next       controller.c (take_back). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hostid.h"
#include "base/log.h"
#include "partial/session.h"

/* Between two dials; and before the log tells that it is away. */
static const uint64_t pause_ns = 100 * TT_NS_PER_MS;
static const uint64_t tell_ns = 100 * TT_NS_PER_MS;
/* To connect, and to be welcomed. */
static const uint64_t try_ns = TT_NS_PER_S;
static const uint64_t meet_ns = 5 * TT_NS_PER_S;
enum { OWN_MAX = 64 };

static bool has_standby(const tt_worker *w)
{
    bool has = false;
    for (uint32_t i = 0; i < TT_LEADERS; i++)
        has = has || w->standbys[i].n_places > 0;
    return has;
}

static uint64_t limit_of(const tt_worker *w)
{
    return w->settings.reconnect_near || w->far_host != w->host ||
                   has_standby(w)
               ? w->settings.reconnect_ns
               : 0;
}

bool tt_away_begin(tt_worker *w, const char *why)
{
    tt_away *a = &w->away;
    if (w->err || limit_of(w) == 0)
        return false;
    /* Who is silent would be waited for. */
    if (!a->is_away)
        a->n_dials = has_standby(w) && !w->pipe.is_broken;
    tt_pipe_close(&w->pipe);
    a->next_ns = tt_now_ns() + (a->is_away ? pause_ns : 0);
    if (a->is_away)
        return true;
    a->is_away = true;
    a->is_told = false;
    a->since_ns = a->next_ns;
    snprintf(a->why, sizeof(a->why), "%s", why);
    return true;
}

void tt_away_end(tt_worker *w)
{
    tt_link_dial_end(w->away.dial);
    tt_link_box_close(w->away.box);
    w->away = (tt_away){.is_away = false};
}

static void give_up(tt_worker *w)
{
    char why[sizeof(w->away.why)];
    memcpy(why, w->away.why, sizeof(why));
    tt_worker_lose(w, TUTTI_EPEER, "the controller at %s has gone: %s",
                   w->where, why);
}

/* -------------------------------------------------------------- dialling -- */

/* Of the next one: where it was, then its standbys. 0: there is none. */
static uint32_t find_ways(tt_worker *w)
{
    tt_away *a = &w->away;
    const uint32_t at = a->n_dials++ % (TT_LEADERS + 1);
    tt_iface ifaces[OWN_MAX];
    tt_link_card own = {.netns = 0};
    tt_host_id host;
    if (at == 0)
        a->ways[0] = (tt_link_way){.to = w->at};
    if (at == 0 || w->standbys[at - 1].n_places == 0)
        return at == 0;
    tt_host_id_get(&host);
    memcpy(own.boot_id, host.boot_id, sizeof(own.boot_id));
    own.netns = host.netns;
    const tt_link_here here = {.card = &own,
                               .interfaces = w->settings.interfaces,
                               .ifaces = ifaces,
                               .n_ifaces = tt_ifaces_list("", ifaces, OWN_MAX)};
    return (uint32_t)tt_link_ways(&here, &w->standbys[at - 1], NULL, a->ways);
}

static void dial(tt_worker *w, uint64_t now)
{
    tt_away *a = &w->away;
    uint32_t n = 0;
    if (!a->box && tt_link_box_open(&w->mem, &a->box, NULL))
        return;
    for (uint32_t i = 0; i <= TT_LEADERS && n == 0; i++)
        n = find_ways(w);
    a->next_ns = now + (has_standby(w) ? pause_ns / 4 : pause_ns);
    if (n > 0)
        tt_visit_dial(w, a->box, a->ways, n, !w->is_newcomer, now + try_ns,
                      &a->dial, NULL);
}

/* Nobody is there any more, or somebody else is. A connection that closes in
 * the middle of the greeting is no proof of that: it may have been an
 * outage. */
static bool is_dead(const tt_link_outcome *o)
{
    return (o->why == TT_LINK_REFUSED && o->err == ECONNREFUSED) ||
           o->why == TT_LINK_OTHER_PURPOSE || o->why == TT_LINK_OTHER_JOB ||
           o->why == TT_LINK_OTHER_PROCESS || o->why == TT_LINK_OTHER_TOKEN ||
           tt_link_is_unproven(o->why);
}

static void hear_dial(tt_worker *w, const tt_link_event *link, uint64_t now)
{
    tt_away *a = &w->away;
    tt_link_outcome outcome = tt_link_dial_outcome(a->dial, 0);
    tt_link_dial_end(a->dial);
    a->dial = NULL;
    if (link->kind == TT_LINK_DIALLED) {
        tt_pipe_open(&w->pipe, &w->mem, link->stream);
        w->heard_ns = a->met_ns = now;
        a->to = a->ways[link->way].to;
    } else if (is_dead(&outcome) && !has_standby(w)) {
        give_up(w);
    }
}

void tt_away_check(tt_worker *w, uint64_t now)
{
    tt_away *a = &w->away;
    tt_link_event link;
    if (!a->is_away)
        return;
    if (!a->is_told && now >= a->since_ns + tell_ns) {
        a->is_told = true;
        TT_WARN("worker %u: the controller at %s is away: %s; trying again for "
                "%.3g s",
                w->id, w->where, a->why, (double)limit_of(w) * 1e-9);
    }
    if (a->dial && tt_link_box_take(a->box, &link))
        hear_dial(w, &link, now);
    if (!a->is_away)
        return;
    if (w->pipe.s.fd >= 0 && now >= a->met_ns + meet_ns)
        tt_away_begin(w, a->why);
    if (now >= a->since_ns + limit_of(w))
        give_up(w);
    else if (w->pipe.s.fd < 0 && !a->dial && now >= a->next_ns)
        dial(w, now);
}

uint64_t tt_away_deadline(const tt_worker *w)
{
    return w->away.is_away ? tt_now_ns() + pause_ns : UINT64_MAX;
}

/* ------------------------------------------------------------------ back -- */

static void say_again(tt_worker *w)
{
    tt_visit_say_card(w);
    if (w->ended.number > 0) {
        w->ended.flags |= TT_TALK_AGAIN;
        tt_visit_say(w, &w->ended, w->ended_why);
    }
    if (w->phase == TT_PHASE_ANNOUNCED) {
        w->announced.flags |= TT_TALK_AGAIN;
        tt_visit_say(w, &w->announced, NULL);
    }
}

static bool is_same(const tt_addr *a, const tt_addr *b)
{
    return a->len == b->len && memcmp(&a->u, &b->u, a->len) == 0;
}

tutti_err tt_away_welcome(tt_worker *w, const tt_talk *head,
                          const unsigned char *payload)
{
    tt_welcome welcome;
    if (!w->away.is_away || head->len != sizeof(welcome))
        return TUTTI_EPROTO;
    memcpy(&welcome, payload, sizeof(welcome));
    if (welcome.n != w->n || welcome.most != w->most || head->who != w->id ||
        welcome.origin != w->origin)
        return TUTTI_EPROTO;
    uint64_t now = tt_now_ns();
    const double gone_s = (double)(now - w->away.since_ns) * 1e-9;
    const bool is_other = !is_same(&w->at, &w->away.to);
    tt_visit_point(w, &w->away.to);
    if (w->away.is_told || is_other)
        TT_WARN("worker %u: the controller at %s %s after %.3g s", w->id,
                w->where, is_other ? "leads now, found" : "is back", gone_s);
    w->far_host = welcome.host;
    tt_away_end(w);
    memset(w->standbys, 0, sizeof(w->standbys));
    w->heard_ns = w->turn_ns = now;
    if (welcome.incarnation != w->incarnation) {
        w->incarnation = welcome.incarnation;
        w->is_newcomer = welcome.is_newcomer;
        tt_crew_break(w, TUTTI_EPEER, false,
                      "the others went on without worker %u, which was away "
                      "for %.3g s",
                      w->id, gone_s);
    }
    say_again(w);
    tt_compare_drop(w, TUTTI_EPEER); /* it was told while nobody listened */
    return TUTTI_OK;
}
