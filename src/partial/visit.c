/* SPDX-License-Identifier: BSD-3-Clause
 * visit.c - a worker and the controller: joining, hearing, beating.
 *
 * Joining blocks and is done by the caller's thread; from the welcome on the
 * worker's thread has the connection. Of several addresses (a host has several
 * interfaces) the first that answers as the controller of this job is taken.
 * Next: crew.c (what a group is). */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "partial/session.h"

/* An address that does not answer must not use up the time of the others. */
static const uint64_t try_ns = 3 * TT_NS_PER_S;
static const uint64_t again_ns = 100 * TT_NS_PER_MS;

void tt_worker_see(tt_worker *w, uint32_t worker)
{
    if (worker >= w->n_seen)
        w->n_seen = worker + 1;
}

void tt_worker_note(tt_worker *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->text, sizeof(w->text), fmt, args);
    va_end(args);
}

void tt_worker_lose(tt_worker *w, tutti_err err, const char *fmt, ...)
{
    char text[TT_WORKER_TEXT];
    va_list args;
    if (w->err)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    w->err = err;
    tt_pipe_close(&w->pipe);
    tt_away_end(w);
    if (w->phase == TT_PHASE_GROUP || w->phase == TT_PHASE_COMMIT)
        tt_crew_break(w, err, false, "%s", text);
    memcpy(w->text, text, sizeof(text));
    tt_compare_drop(w, err);
    w->prints.may = false;
    if (w->phase == TT_PHASE_ANNOUNCED) {
        tt_worker_enter(w, TT_PHASE_IDLE);
        tt_worker_call(w, err);
        tt_worker_drop_early(w, err);
    }
}

/* --------------------------------------------------------------- joining -- */

/* What a refusal's number says; instead: what it is where that makes no
 * sense. */
static tutti_err refusal_of(const tt_talk *head, tutti_err instead)
{
    return head->number > 0 && head->number < 1000
               ? (tutti_err) - (int64_t)head->number
               : instead;
}

static tutti_err refused(const tt_worker *w, tt_link_stream *s,
                         const tt_talk *head, uint64_t deadline,
                         tutti_diag *diag)
{
    char text[TT_TALK_TEXT] = "";
    size_t len = head->len < sizeof(text) ? head->len : sizeof(text) - 1;
    if (tt_link_read_all(s, text, len, deadline) != 0)
        len = 0;
    tt_err_hear(text, len, text, sizeof(text));
    tutti_err err = refusal_of(head, TUTTI_EBOOT);
    return tt_fail(diag, err, "the controller at %s refuses: %s", w->where,
                   text[0] ? text : "it does not say why");
}

static uint16_t count_cpus(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return (uint16_t)(n < 0 ? 0 : n > UINT16_MAX ? UINT16_MAX : n);
}

static tt_join join_of(const tt_worker *w, bool is_current)
{
    return (tt_join){
        .host = w->host,
        .who = w->incarnation > 0 ? w->id : w->o.worker,
        .n = w->o.n_workers,
        .site = w->o.site,
        .n_cpus = count_cpus(),
        .term = (uint32_t)w->term,
        .incarnation = w->incarnation,
        .origin = w->origin,
        .heard = w->heard,
        .flags = (uint16_t)((w->away.is_away ? TT_TALK_AGAIN : 0) |
                            (is_current ? TT_TALK_CURRENT : 0) |
                            (w->o.goes_ahead ? TT_TALK_AHEAD : 0) |
                            (w->settings.check ? TT_TALK_CHECKED : 0))};
}

/* It has greeted as a controller. AGAIN: it has gone, or does not go on. */
static tutti_err hear_welcome(const tt_worker *w, tt_link_stream *s,
                              uint64_t deadline, tt_welcome *out, tt_talk *head,
                              tutti_diag *diag)
{
    int why = tt_link_read_all(s, head, sizeof(*head), deadline);
    if (why != 0) {
        tt_fail(diag, TUTTI_EBOOT, "what listens at %s does not answer (%s)",
                w->where,
                why == EPIPE ? "it closed the connection"
                             : tt_link_error_text(why));
        return TUTTI_AGAIN;
    }
    if (!tt_talk_is_sound(head, TT_TALK_TEXT)) {
        tt_fail(diag, TUTTI_EBOOT,
                "what listens at %s is no controller of this version",
                w->where);
        return TUTTI_AGAIN;
    }
    if (head->kind == TT_TALK_REFUSE)
        return refused(w, s, head, deadline, diag);
    if (head->kind != TT_TALK_WELCOME || head->len != sizeof(*out) ||
        tt_link_read_all(s, out, sizeof(*out), deadline) != 0) {
        tt_fail(diag, TUTTI_EBOOT, "the controller at %s has gone", w->where);
        return TUTTI_AGAIN;
    }
    return TUTTI_OK;
}

void tt_visit_say_card(tt_worker *w)
{
    unsigned char card[TT_CARD_MOST];
    tt_talk head = tt_talk_head(TT_TALK_CARD, 0, tt_cards_write(w, card));
    tt_visit_say(w, &head, card);
}

/* Takes the pipe where it returns OK. */
static tutti_err settle(tt_worker *w, const tt_pipe *pipe,
                        const tt_welcome *welcome, const tt_talk *head,
                        tutti_diag *diag)
{
    if (welcome->n == 0 || welcome->n > welcome->most ||
        welcome->most > TT_RULE_WORKERS_MAX || head->who >= welcome->most ||
        (w->mesh && (w->n != welcome->n || w->most != welcome->most ||
                     w->id != head->who)))
        return tt_fail(diag, TUTTI_EPROTO,
                       "the controller at %s counts %u workers", w->where,
                       welcome->n);
    w->n = welcome->n;
    w->most = welcome->most;
    w->id = head->who;
    tt_worker_see(w, w->n - 1);
    tt_worker_see(w, w->id);
    w->term = head->term;
    memset(w->standbys, 0, sizeof(w->standbys));
    tutti_err err = tt_cards_open(w, diag);
    if (err)
        return err;
    w->incarnation = welcome->incarnation;
    w->is_newcomer = welcome->is_newcomer;
    w->is_dynamic = welcome->is_dynamic;
    w->origin = welcome->origin;
    w->far_host = welcome->host;
    w->heard = w->ended.number = 0;
    w->liveness_ns = welcome->liveness_ns;
    w->heard_ns = w->said_ns = w->turn_ns = tt_now_ns();
    w->pipe = *pipe;
    w->err = TUTTI_OK;
    tt_visit_say_card(w);
    return TUTTI_OK;
}

/* Why nobody has let it in. AGAIN: nobody is there (yet), or not the
 * controller. */
static tutti_err judge(const tt_worker *w, const tt_link_outcome *o,
                       tutti_diag *diag)
{
    if (o->why == TT_LINK_OTHER_JOB)
        return tt_fail(diag, TUTTI_EINVAL,
                       "the controller at %s refuses: this controller is "
                       "another job's",
                       w->where);
    if (tt_link_is_unproven(o->why))
        return tt_fail(diag, TUTTI_EINVAL,
                       "this worker and the controller at %s share no secret: "
                       "%s; give both the same TUTTI_SECRET_FILE and "
                       "TUTTI_ENCRYPT",
                       w->where, tt_link_outcome_text(o));
    if (o->why == TT_LINK_UNGREETED)
        tt_fail(diag, TUTTI_EBOOT, "what listens at %s does not answer (%s)",
                w->where, strerror(ETIMEDOUT));
    else if (o->why == TT_LINK_STRANGE && o->err)
        tt_fail(diag, TUTTI_EBOOT,
                "what listens at %s does not answer (it closed the connection)",
                w->where);
    else if (o->err || o->why == TT_LINK_SILENT)
        tt_fail_errno(diag, TUTTI_EBOOT, o->err ? o->err : ETIMEDOUT,
                      "no controller answers at %s", w->where);
    else
        tt_fail(diag, TUTTI_EBOOT,
                "what listens at %s is no controller of this version",
                w->where);
    return TUTTI_AGAIN;
}

tutti_err tt_visit_dial(tt_worker *w, tt_link_box *box, const tt_link_way *ways,
                        uint32_t n_ways, bool is_current, uint64_t deadline,
                        tt_link_dial **out, tutti_diag *diag)
{
    const tt_join join = join_of(w, is_current);
    uint64_t now = tt_now_ns();
    uint64_t left = now < deadline ? deadline - now : 0;
    tt_link_dial_opts o = {.purpose = TT_LINK_CONTROLLER,
                           .job = w->o.token,
                           .trust = w->o.trust,
                           .ways = ways,
                           .n_ways = n_ways,
                           .n_rounds = 1,
                           .try_ns = left + 1,
                           .answer_ns = left + 1,
                           .deadline_ns = deadline};
    memcpy(o.said, &join, sizeof(join));
    return tt_link_dial_begin(box, &o, out, diag);
}

/* A connection to the controller, which knows who comes; *out is the
 * caller's. */
static tutti_err dial(tt_worker *w, tt_link_box *box, bool is_current,
                      uint64_t deadline, tt_link_stream *out, tutti_diag *diag)
{
    tt_link_dial *d;
    tt_link_event link;
    const tt_link_way way = {.to = w->at};
    tutti_err err = tt_visit_dial(w, box, &way, 1, is_current, deadline, &d,
                                  diag);
    if (err)
        return err;
    while (!tt_link_box_take(box, &link)) /* it has a deadline itself */
        tt_link_box_wait(box, UINT64_MAX);
    *out = link.stream;
    if (link.kind != TT_LINK_DIALLED) {
        tt_link_outcome outcome = tt_link_dial_outcome(d, 0);
        err = judge(w, &outcome, diag);
    }
    tt_link_dial_end(d);
    return err;
}

void tt_visit_point(tt_worker *w, const tt_addr *to)
{
    w->at = *to;
    if (to->u.sa.sa_family == AF_UNIX)
        snprintf(w->where, sizeof(w->where), "this host");
    else
        tt_addr_text(to, w->where);
}

static tutti_err try_one(tt_worker *w, tt_link_box *box, const tt_addr *to,
                         bool is_current, uint64_t deadline, tutti_diag *diag)
{
    tt_welcome welcome;
    tt_pipe pipe;
    tt_talk head;
    tt_link_stream s = {.fd = -1};
    uint64_t soon = tt_now_ns() + try_ns;
    if (soon > deadline)
        soon = deadline;
    tt_visit_point(w, to);
    tutti_err err = dial(w, box, is_current, soon, &s, diag);
    tt_pipe_open(&pipe, &w->mem, s);
    if (!err)
        err = hear_welcome(w, &pipe.s, soon, &welcome, &head, diag);
    if (!err)
        err = settle(w, &pipe, &welcome, &head, diag);
    if (err)
        tt_pipe_close(&pipe);
    return err;
}

/* Refusals by another job's controller are no reason to stop: something else
 * may listen at one of several addresses. That the place is taken is what is
 * told in the end, not that the time was over in the middle of a try. */
static tutti_err try_all(tt_worker *w, tt_link_box *box, bool is_current,
                         tutti_diag *diag)
{
    const uint64_t deadline = tt_now_ns() + w->o.join_timeout_ns;
    const tt_addr last = w->at; /* it leads now, maybe */
    const uint32_t n = w->o.n_controllers + (w->incarnation > 0);
    uint64_t busy_ns = 0; /* when the place was taken last */
    tutti_diag why = {0};
    for (;;) {
        tutti_err refusal = TUTTI_AGAIN;
        for (uint32_t i = 0; i < n; i++) {
            const tt_addr *to = i < w->o.n_controllers ? &w->o.controllers[i]
                                                       : &last;
            tutti_err err = try_one(w, box, to, is_current, deadline, diag);
            if (err == TUTTI_OK)
                return err;
            if (err == TUTTI_AGAIN)
                continue;
            why = *diag;
            if (err == TUTTI_EBUSY)
                busy_ns = tt_now_ns();
            else
                refusal = err;
        }
        const uint64_t now = tt_now_ns();
        bool is_late = now + again_ns >= deadline;
        bool was_busy = busy_ns > 0 && now - busy_ns < try_ns;
        if (refusal != TUTTI_AGAIN || (is_late && was_busy))
            *diag = why;
        if (refusal != TUTTI_AGAIN)
            return refusal;
        if (is_late)
            return TUTTI_EBOOT;
        struct timespec pause = {.tv_nsec = (long)again_ns};
        nanosleep(&pause, NULL);
    }
}

tutti_err tt_visit_join(tt_worker *w, bool is_current, tutti_diag *diag)
{
    tt_link_box *box;
    tutti_err err = tt_link_box_open(&w->mem, &box, diag);
    if (err)
        return err;
    err = try_all(w, box, is_current, diag);
    tt_link_box_close(box);
    return err;
}

/* --------------------------------------------------------------- talking -- */

void tt_visit_say(tt_worker *w, const tt_talk *head, const void *payload)
{
    tt_talk now = *head;
    if (w->away.is_away)
        return;
    now.term = w->term;
    tt_pipe_put(&w->pipe, &now, payload);
    w->said_ns = tt_now_ns();
    if (!tt_pipe_flush(&w->pipe))
        tt_worker_wake(w); /* it sends the rest */
}

static void hear_refusal(tt_worker *w, const tt_talk *head,
                         const unsigned char *payload)
{
    char text[TT_TALK_TEXT];
    tutti_err err = refusal_of(head, TUTTI_EPEER);
    tt_err_hear((const char *)payload, head->len, text, sizeof(text));
    tt_worker_lose(w, err, "%s (controller at %s)", text, w->where);
}

/* Who leads now knows a greater term than those before. False: this one did
 * before. */
static bool hear_term(tt_worker *w, uint64_t term)
{
    static const char why[] = "another controller leads now";
    const bool is_new = term > w->term;
    if (term < w->term && !tt_away_begin(w, why))
        tt_worker_lose(w, TUTTI_EPEER, "the controller at %s has gone: %s",
                       w->where, why);
    if (term < w->term)
        return false;
    w->term = term;
    if (is_new) {
        tt_talk beat = tt_talk_head(TT_TALK_BEAT, 0, 0);
        tt_visit_say(w, &beat, NULL);
    }
    return true;
}

static bool hear_standby(tt_worker *w, const tt_talk *head,
                         const unsigned char *payload)
{
    size_t used;
    if (head->who >= TT_LEADERS)
        return false;
    w->standbys[head->who].n_places = 0;
    return head->len == 0 || tt_link_card_read(&w->standbys[head->who], payload,
                                               head->len, &used);
}

static void hear(tt_worker *w, const tt_talk *head,
                 const unsigned char *payload)
{
    char text[TT_TALK_TEXT];
    switch (head->kind) {
    case TT_TALK_CARD:
        if (tt_cards_hear(w, head, payload))
            tt_worker_lose(w, TUTTI_EPROTO,
                           "the controller at %s tells a worker that cannot be",
                           w->where);
        break;
    case TT_TALK_GROUP:
        if (tt_crew_begin(w, head, payload))
            tt_worker_lose(w, TUTTI_EPROTO,
                           "the controller at %s tells a group that cannot be",
                           w->where);
        break;
    case TT_TALK_BROKEN:
        tt_err_hear((const char *)payload, head->len, text, sizeof(text));
        if (head->number == w->crew.id)
            tt_crew_break(w,
                          head->flags & TT_TALK_DIFFERS ? TUTTI_EMISMATCH
                                                        : TUTTI_EPEER,
                          true, "%s", text);
        break;
    case TT_TALK_REFUSE:
        hear_refusal(w, head, payload);
        break;
    case TT_TALK_BEAT:
        break;
    case TT_TALK_WAIT:
        tt_err_hear((const char *)payload, head->len, text, sizeof(text));
        if (w->phase == TT_PHASE_ANNOUNCED) {
            snprintf(w->awaited, sizeof(w->awaited), "%s", text);
            TT_WARN("worker %u: %s", w->id, text);
        }
        break;
    case TT_TALK_PRINTS:
        if (tt_compare_hear(w, head, payload))
            tt_worker_lose(w, TUTTI_EPROTO,
                           "the controller at %s tells prints that cannot be",
                           w->where);
        break;
    case TT_TALK_WELCOME:
        if (!tt_away_welcome(w, head, payload))
            break;
        /* fall through */
    case TT_TALK_STANDBY:
        if (head->kind == TT_TALK_STANDBY && hear_standby(w, head, payload))
            break;
        /* fall through */
    default:
        tt_worker_lose(w, TUTTI_EPROTO,
                       "the controller at %s says what makes no sense",
                       w->where);
    }
}

void tt_visit_hear(tt_worker *w)
{
    tt_talk head;
    const unsigned char *payload;
    uint64_t most = sizeof(tt_group_head) + (uint64_t)w->most * sizeof(tt_seat);
    if (most < TT_PRINTS_MOST)
        most = TT_PRINTS_MOST;
    if (w->pipe.s.fd < 0)
        return;
    tt_pipe_fill(&w->pipe);
    w->heard_ns = tt_now_ns();
    while (!w->err && w->pipe.s.fd >= 0 &&
           tt_pipe_next(&w->pipe, most, &head, &payload))
        if (hear_term(w, head.term))
            hear(w, &head, payload);
    static const char closed[] = "it closed the connection";
    if (!w->err && w->pipe.is_broken && !tt_away_begin(w, closed))
        tt_worker_lose(w, TUTTI_EPEER, "the controller at %s has gone: %s",
                       w->where, closed);
}

void tt_visit_check(tt_worker *w, uint64_t now)
{
    const uint64_t limit = w->liveness_ns;
    bool was_away = now - w->turn_ns > limit / 2;
    w->turn_ns = now;
    if (w->err || w->pipe.s.fd < 0 || w->away.is_away || limit == 0)
        return;
    if (was_away)
        w->heard_ns = now;
    if (now - w->said_ns >= limit / 4) {
        tt_talk beat = tt_talk_head(TT_TALK_BEAT, 0, 0);
        tt_visit_say(w, &beat, NULL);
    }
    if (now - w->heard_ns > limit + limit / 2 &&
        !tt_away_begin(w, "it does not answer"))
        tt_worker_lose(w, TUTTI_ETIMEOUT,
                       "the controller at %s has been silent for %.3g s",
                       w->where, (double)(now - w->heard_ns) * 1e-9);
}
