/* SPDX-License-Identifier: BSD-3-Clause
 * controller.c - the rule's body.
 *
 * Idea       One thread, one epoll. Who comes has greeted and has said there
 *            what it is (link/link.h, tt_join). A message becomes an event of
 *            the rule; the rule's decisions become messages, queued and flushed
 *            after each turn. A connection that ends, or is silent for
 *            liveness_ns, is a death; the other members of its group are told
 *            at once.
 * Away       A worker on another host whose connection drops is away: it stays
 *            what it was until liveness_ns are over, and comes back by a new
 *            connection (away.c). Who comes back later has been counted as
 *            dead, and joins with the weights that it has. Whose process has
 *            ended is dead at once (knock.c).
 * Invariant  A slot has at most one connection. Who wants one that is taken is
 *            told to try again: the death of the one before may not have been
 *            noticed.
 * Trust      Nothing received is believed for a size; an event that cannot be
 *            (the rule says EINVAL) ends the connection.
 * Next       talk.h (the messages), worker.c (the other end). */
#include "partial/control.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/random.h"
#include "base/thread.h"

/* So long a worker is away before the log tells. */
static const uint64_t tell_ns = 100 * TT_NS_PER_MS;

/* ---------------------------------------------------------------- guests -- */

static void watch(tt_controller *c, tt_guest *g, int op, bool out)
{
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0u),
                            .data.ptr = g};
    epoll_ctl(c->epoll_fd, op, g->pipe.s.fd, &e);
    g->waits_out = out;
}

static void flush_guest(tt_controller *c, tt_guest *g)
{
    if (g->is_gone || g->away_ns)
        return;
    bool is_empty = tt_pipe_flush(&g->pipe);
    if (g->waits_out == is_empty)
        watch(c, g, EPOLL_CTL_MOD, !is_empty);
}

void tt_control_put(tt_controller *c, tt_guest *g, const tt_talk *head,
                    const void *payload)
{
    tt_talk now = *head;
    now.term = c->lead.term;
    tt_pipe_put(&g->pipe, &now, payload);
}

void tt_control_say(tt_controller *c, tt_guest *g, tt_talk_kind kind,
                    uint64_t number, const char *text)
{
    tt_talk head = tt_talk_head(kind, number, text ? strlen(text) : 0);
    tt_control_put(c, g, &head, text);
}

void tt_control_refuse(tt_controller *c, tt_guest *g, tutti_err err,
                       const char *text)
{
    tt_control_say(c, g, TT_TALK_REFUSE, (uint64_t)-err, text);
    tt_pipe_flush(&g->pipe);
    g->says_bye = true;
    g->is_gone = true;
}

/* Its worker is not there any more. */
static void lose_worker(tt_controller *c, tt_guest *g, const char *how)
{
    uint32_t worker = g->worker;
    if (worker == TT_NONE)
        return;
    char text[TT_TALK_TEXT];
    snprintf(text, sizeof(text), "worker %u %s", worker, how);
    TT_INFO("partial reduce: %s", text);
    tt_control_tell_broken(c, worker, tt_control_group_of(c, g), 0, text);
    g->worker = TT_NONE;
    c->by_worker[worker] = NULL;
    c->n_here--;
    tt_prints_end(c, worker);
    tt_lead_go(&c->lead, worker);
    tt_rule_leave(c->rule, worker, !g->says_bye, tt_now_ns());
    tt_standby_record(c, TT_RECORD_LEAVE, worker, NULL, 0);
}

/* Its connection is no good any more. */
static void hang_up(tt_controller *c, tt_guest *g)
{
    if (g->pipe.s.fd >= 0)
        epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, g->pipe.s.fd, NULL);
    tt_pipe_close(&g->pipe);
}

static const char *how_it_went(const tt_guest *g)
{
    if (g->says_bye)
        return "has left";
    if (!g->away_ns || g->is_dead)
        return "has died";
    return tt_knock_is_frozen(g) ? "has been frozen for too long"
                                 : "has been away for too long";
}

static void lose_if_gone(tt_controller *c, tt_guest *g)
{
    if (g->pipe.is_broken && !g->is_gone && g->may_return) {
        hang_up(c, g);
        g->away_ns = tt_now_ns();
        g->knock.next_ns = 0;
        tt_knock_turn(c, g, g->away_ns);
        return;
    }
    g->is_gone = g->is_gone || g->pipe.is_broken;
    if (g->is_gone && (g->is_standby || g->is_held))
        tt_standby_gone(c, g);
    else if (g->is_gone)
        lose_worker(c, g, how_it_went(g));
}

static void free_guest(tt_controller *c, tt_guest *g)
{
    hang_up(c, g);
    tt_knock_end(g);
    tt_free(&c->mem, g->knows, g->n_words, sizeof(uint64_t));
    tt_free(&c->mem, g, 1, sizeof(*g));
}

static void sweep(tt_controller *c)
{
    for (tt_guest *g = c->guests; g; g = g->next)
        lose_if_gone(c, g);
    tt_guest **at = &c->guests;
    while (*at) {
        tt_guest *g = *at;
        if (!g->is_gone) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        free_guest(c, g);
    }
}

/* --------------------------------------------------------------- joining -- */

/* Workers that are here and check what is sent otherwise than this one. */
static bool checks_otherwise(const tt_controller *c, const tt_join *join)
{
    for (const tt_guest *g = c->guests; g; g = g->next)
        if (g->worker != TT_NONE &&
            g->is_checked != ((join->flags & TT_TALK_CHECKED) != 0))
            return true;
    return false;
}

static bool check_join(tt_controller *c, tt_guest *g, const tt_join *join)
{
    char text[TT_TALK_TEXT];
    const uint32_t n = c->o.rule.n, most = c->o.rule.most;
    const bool comes_back = join->flags & TT_TALK_AGAIN;
    tutti_err err = TUTTI_EINVAL;
    if (comes_back && join->origin != c->origin) {
        err = TUTTI_EPEER;
        snprintf(text, sizeof(text),
                 "this is another controller than the one that the worker was "
                 "with; it may join again");
    } else if (join->n && join->n != n)
        snprintf(text, sizeof(text),
                 "the controller was started for %u workers, this one counts "
                 "%u; start both with the same number",
                 n, join->n);
    else if (join->who >= most && (comes_back || join->who != TT_NONE))
        snprintf(text, sizeof(text),
                 "worker %u: workers go from 0 to %u; start the controller "
                 "with more than --max-workers %u",
                 join->who, most - 1, most);
    else if (join->who == TT_NONE && tt_slots_free_one(c) == TT_NONE) {
        err = TUTTI_EBUSY;
        snprintf(text, sizeof(text),
                 "%u workers are here, and no more may come; start the "
                 "controller with more than --max-workers %u",
                 most, most);
    } else if (tt_slots_guest(c, join->who)) {
        err = TUTTI_EBUSY; /* its death may not be noticed yet */
        snprintf(text, sizeof(text),
                 "another process is worker %u; give each its own number",
                 join->who);
    } else if (comes_back && !tt_slots_was_here(c, join)) {
        err = TUTTI_EPEER;
        snprintf(text, sizeof(text),
                 "another process has been worker %u meanwhile", join->who);
    } else if (checks_otherwise(c, join)) {
        snprintf(text, sizeof(text),
                 "TUTTI_CHECK must be the same for all workers: it is %s for "
                 "those that are here",
                 join->flags & TT_TALK_CHECKED ? "off" : "crc");
    } else {
        return true;
    }
    tt_control_refuse(c, g, err, text);
    return false;
}

/* As the rule wants it: hosts in the lower half, sites in the upper one. */
static uint64_t place_of(const tt_join *join)
{
    uint32_t host = (uint32_t)(join->host ^ join->host >> 32);
    return (uint64_t)join->site << 32 | host;
}

void tt_control_welcome(tt_controller *c, tt_guest *g)
{
    tt_welcome say = {
        .origin = c->origin,
        .liveness_ns = c->o.liveness_ns,
        .host = tt_place_host(),
        .n = c->o.rule.n,
        .most = c->o.rule.most,
        .incarnation = tt_rule_incarnation(c->rule, g->worker),
        .is_newcomer = g->is_newcomer,
        .is_dynamic = c->o.rule.is_dynamic,
    };
    tt_talk reply = tt_talk_head(TT_TALK_WELCOME, 0, sizeof(say));
    reply.who = g->worker;
    g->is_welcome = true;
    tt_control_put(c, g, &reply, &say);
    tt_standby_tell(c, g);
}

/* incarnation 0: the next one. False: it is sent away. */
static bool let_in(tt_controller *c, tt_guest *g, uint32_t worker,
                   uint32_t incarnation)
{
    const tt_join *join = &g->join;
    tutti_err err = tt_slots_make_room(c, worker);
    tt_kept *kept = err ? NULL : &c->kept[worker];
    uint32_t flags = (join->flags & TT_TALK_CURRENT ? TT_JOIN_CURRENT : 0) |
                     (join->flags & TT_TALK_AHEAD ? TT_JOIN_AHEAD : 0);
    if (!err && !incarnation &&
        tt_rule_incarnation(c->rule, worker) < kept->incarnation)
        incarnation = kept->incarnation + 1;
    if (!err)
        err = tt_rule_join(c->rule, worker, place_of(join),
                           flags | incarnation << TT_JOIN_LIFE, tt_now_ns(),
                           &g->is_newcomer);
    if (err) {
        tt_control_refuse(
            c, g, err,
            err == TUTTI_ENOMEM
                ? "the controller has no memory for another worker"
                : "the controller has counted a worker of this number already");
        return false;
    }
    g->worker = worker;
    g->host = join->host;
    g->n_cpus = join->n_cpus;
    g->is_checked = (join->flags & TT_TALK_CHECKED) != 0;
    g->may_return = c->o.reconnect_ns > 0 &&
                    (c->o.is_near || join->host != tt_place_host());
    c->by_worker[worker] = g;
    c->n_here++;
    c->has_come = true;
    kept->incarnation = tt_rule_incarnation(c->rule, worker);
    tt_lead_come(&c->lead, worker, join->term);
    TT_DEBUG("partial reduce: worker %u has joined, %u are here", worker,
             c->n_here);
    return true;
}

static void join_guest(tt_controller *c, tt_guest *g)
{
    const tt_join *join = &g->join;
    if (!check_join(c, g, join))
        return;
    uint32_t worker = join->who != TT_NONE ? join->who : tt_slots_free_one(c);
    if (!let_in(c, g, worker, 0))
        return;
    const uint64_t life = c->kept[worker].incarnation;
    uint64_t record = tt_standby_record(c, TT_RECORD_JOIN, worker, &life,
                                        sizeof(life));
    tt_standby_order(c, record, 0, &worker, 1);
}

/* What is newer than what it has heard of. */
static void tell_missed(tt_controller *c, tt_guest *g)
{
    const tt_kept *kept = &c->kept[g->worker];
    const uint64_t group = tt_control_group_of(c, g), heard = g->join.heard;
    if (group > heard && group == kept->head.number &&
        (g->old || kept->record <= tt_lead_may_order(&c->lead)))
        tt_control_tell_group(c, g);
    else if (group > 0 && group == heard && g->broken == group)
        tt_control_say(c, g, TT_TALK_BROKEN, group,
                       "it broke while this worker was away");
    else if (group == 0 && heard > c->n_groups)
        tt_control_say(c, g, TT_TALK_BROKEN, heard,
                       "the controller that leads now does not know of it");
}

void tt_control_admit_again(tt_controller *c, tt_guest *g)
{
    const tt_join *join = &g->join;
    g->is_held = false;
    if (!tt_slots_was_here(c, join) || c->by_worker[join->who] ||
        c->rows[join->who].state != TT_RECORD_JOIN) {
        join_guest(c, g);
        return;
    }
    if (!let_in(c, g, join->who, join->incarnation))
        return;
    const tt_kept *kept = &c->kept[join->who];
    if (kept->head.number >= join->heard)
        g->old = kept->head.number;
    tt_control_welcome(c, g);
    tell_missed(c, g);
}

/* It has been with this controller, or follows one of its job: its term is
 * believed. Anybody else could end the job by a great one. */
static bool is_of_job(const tt_controller *c, const tt_join *join)
{
    return join->flags & TT_TALK_STANDBY_JOINS ? join->origin == c->origin
                                               : tt_slots_was_here(c, join);
}

static void add_guest(tt_controller *c, tt_link_stream s, const tt_join *join)
{
    tt_guest *g = tt_new(&c->mem, 1, sizeof(*g));
    if (!g || tt_slots_widen_known(c, g, c->cap)) {
        tt_free(&c->mem, g, 1, sizeof(*g));
        tt_link_stream_close(&s);
        return;
    }
    tt_pipe_open(&g->pipe, &c->mem, s);
    g->worker = TT_NONE;
    g->heard_ns = tt_now_ns();
    g->join = *join;
    g->next = c->guests;
    c->guests = g;
    watch(c, g, EPOLL_CTL_ADD, false);
    if (is_of_job(c, join))
        tt_standby_hear_term(c, join->term);
    /* Sent away without a word, it goes to the one who leads. */
    g->is_gone = c->lead.role == TT_LEAD_OVER ||
                 (c->lead.role == TT_LEAD_LEADS && join->term > c->lead.term);
    if (g->is_gone)
        return;
    if (join->flags & TT_TALK_STANDBY_JOINS)
        tt_standby_come(c, g);
    else if (c->lead.role != TT_LEAD_LEADS)
        tt_standby_hold(c, g);
    else if (c->led_ns && (join->flags & TT_TALK_AGAIN))
        tt_control_admit_again(c, g);
    else
        join_guest(c, g);
}

/* The worker that has been here as this one, and is not counted as dead. */
static tt_guest *find_again(const tt_controller *c, const tt_join *join)
{
    tt_guest *g = tt_slots_was_here(c, join) ? c->by_worker[join->who] : NULL;
    return g && !g->is_gone && g->may_return ? g : NULL;
}

/* It has another connection, and has missed what is newer than join->heard. */
static void take_back(tt_controller *c, tt_guest *g, tt_link_stream s,
                      const tt_join *join)
{
    hang_up(c, g);
    tt_knock_end(g);
    tt_pipe_open(&g->pipe, &c->mem, s);
    if (g->is_missed)
        TT_WARN("partial reduce: worker %u is back after %.3g s", g->worker,
                (double)(tt_now_ns() - g->away_ns) * 1e-9);
    g->away_ns = 0;
    g->is_missed = false;
    g->heard_ns = tt_now_ns();
    memset(g->knows, 0, g->n_words * sizeof(*g->knows));
    watch(c, g, EPOLL_CTL_ADD, false);
    g->join = *join;
    tt_lead_come(&c->lead, g->worker, join->term);
    tt_control_welcome(c, g);
    tell_missed(c, g);
}

static void take_arrivals(tt_controller *c)
{
    tt_link_event link;
    tt_join join;
    for (tt_guest *g = c->guests; g; g = g->next)
        lose_if_gone(c, g); /* it may be who comes */
    while (tt_link_box_take(c->box, &link)) {
        tt_guest *g = tt_knock_hear(&link);
        if (g)
            lose_if_gone(c, g);
        if (g || tt_standby_hear_dial(c, &link))
            continue;
        memcpy(&join, link.who.said, sizeof(join));
        g = find_again(c, &join);
        if (g)
            take_back(c, g, link.stream, &join);
        else
            add_guest(c, link.stream, &join);
    }
}

/* ---------------------------------------------------------------- events -- */

static uint64_t most_len(uint8_t kind)
{
    switch (kind) {
    case TT_TALK_DONE:
        return TT_TALK_TEXT - 1;
    case TT_TALK_CARD:
        return TT_CARD_MOST;
    case TT_TALK_PRINTS:
        return TT_PRINTS_MOST;
    default:
        return 0;
    }
}

static bool hear_done(tt_controller *c, tt_guest *g, const tt_talk *head,
                      const unsigned char *payload)
{
    bool well = head->len == 0;
    uint64_t group = head->number;
    if (!well && tt_control_group_of(c, g) == group) {
        char text[TT_TALK_TEXT];
        tt_err_hear((const char *)payload, head->len, text, sizeof(text));
        tt_control_tell_broken(c, g->worker, group, head->flags, text);
    }
    if (g->old > 0 && g->old == group) {
        g->old = 0;
        return true;
    }
    return tt_rule_done(c->rule, g->worker, group, well, tt_now_ns()) ==
               TUTTI_OK ||
           (head->flags & TT_TALK_AGAIN);
}

/* False: it cannot be. Who says too much is sent away, and told why. */
static bool hear_announce(tt_controller *c, tt_guest *g, const tt_talk *head)
{
    char text[TT_TALK_TEXT];
    if (g->old) /* of which it has not heard yet */
        return head->flags & TT_TALK_AGAIN;
    if (tt_control_group_of(c, g) == 0) /* before it is in the next one */
        tt_prints_end(c, g->worker);
    tutti_err err = g->card_bytes == 0
                        ? TUTTI_EPROTO
                        : tt_rule_announce(c->rule, g->worker, head->number,
                                           head->flags & TT_TALK_LAST,
                                           tt_now_ns());
    if (err != TUTTI_ELIMIT)
        return err == TUTTI_OK ||
               (err == TUTTI_EINVAL && (head->flags & TT_TALK_AGAIN));
    snprintf(text, sizeof(text),
             "worker %u announces iteration %llu, which is too far beyond what "
             "it, or any other worker, has reached",
             g->worker, (unsigned long long)head->number);
    TT_WARN("partial reduce: %s", text);
    tt_control_refuse(c, g, err, text);
    g->says_bye = false;
    return true;
}

/* Nobody knows it by this one yet. */
static bool hear_card(tt_controller *c, tt_guest *g, const tt_talk *head,
                      const unsigned char *payload)
{
    if (!tt_card_is_sound(payload, head->len))
        return false;
    bool is_same = head->len == g->card_bytes &&
                   memcmp(payload, g->card, head->len) == 0;
    memcpy(g->card, payload, head->len);
    g->card_bytes = head->len;
    tt_knock_meet(c, g); /* it may have come from elsewhere */
    if (is_same)
        return true;
    for (tt_guest *other = c->guests; other; other = other->next)
        other->knows[g->worker / 64] &= ~(UINT64_C(1) << g->worker % 64);
    tt_control_tell_card(c, g);
    return true;
}

/* False: it cannot be. */
static bool hear(tt_controller *c, tt_guest *g, const tt_talk *head,
                 const unsigned char *payload)
{
    if (g->is_held || (!g->is_standby && head->len > most_len(head->kind)))
        return false;
    if (head->term > c->lead.term) /* it would not be here */
        return false;
    if (g->is_standby)
        return tt_standby_hear(c, g, head, payload);
    tt_lead_know(&c->lead, g->worker, head->term);
    switch (head->kind) {
    case TT_TALK_CARD:
        return hear_card(c, g, head, payload);
    case TT_TALK_ANNOUNCE:
        return hear_announce(c, g, head);
    case TT_TALK_DONE:
        return hear_done(c, g, head, payload);
    case TT_TALK_PRINTS:
        return tt_prints_hear(c, g, head, payload);
    case TT_TALK_LEAVE:
        g->says_bye = true;
        g->is_gone = true;
        return true;
    case TT_TALK_BEAT:
        /* Where something waits already it would be no news. */
        if (!tt_pipe_has_unsent(&g->pipe))
            tt_control_say(c, g, TT_TALK_BEAT, 0, NULL);
        return true;
    default:
        return false;
    }
}

static void hear_guest(tt_controller *c, tt_guest *g)
{
    tt_talk head;
    const unsigned char *payload;
    tt_pipe_fill(&g->pipe);
    if (!tt_standby_is_behind(c, g))
        g->heard_ns = tt_now_ns();
    /* What came before the end counts. */
    while (!g->is_gone &&
           tt_pipe_next(&g->pipe, TT_PRINTS_MOST, &head, &payload)) {
        if (hear(c, g, &head, payload))
            continue;
        char text[TT_TALK_TEXT];
        snprintf(text, sizeof(text),
                 "the controller cannot make sense of message %u", head.kind);
        tt_control_refuse(c, g, TUTTI_EPROTO, text);
        g->says_bye = false;
    }
    lose_if_gone(c, g); /* before somebody else gets into a group with it */
}

/* ---------------------------------------------------------------- thread -- */

/* It may be silent for so long; 0: for ever. */
static uint64_t patience(const tt_controller *c, const tt_guest *g)
{
    return c->o.liveness_ns == 0 && g->away_ns ? c->o.reconnect_ns
                                               : c->o.liveness_ns;
}

/* Most that drop are dead, and their loss says it all. */
static void miss(tt_guest *g, uint64_t now)
{
    if (!g->away_ns || g->is_missed || now - g->away_ns < tell_ns)
        return;
    g->is_missed = true;
    TT_WARN("partial reduce: worker %u is away: its connection was closed",
            g->worker);
}

static void check_silence(tt_controller *c, uint64_t now)
{
    const uint64_t limit = c->o.liveness_ns;
    /* Who was not running itself cannot blame others. */
    bool was_away = limit > 0 && now - c->turn_ns > limit / 2;
    c->turn_ns = now;
    for (tt_guest *g = c->guests; g; g = g->next) {
        const uint64_t most = patience(c, g);
        if (was_away)
            g->heard_ns = now;
        miss(g, now);
        tt_knock_turn(c, g, now);
        if (g->is_gone || most == 0 || now - g->heard_ns <= most)
            continue;
        g->is_gone = g->is_standby || g->is_held;
        if (g->is_gone)
            continue;
        char text[TT_TALK_TEXT];
        snprintf(text, sizeof(text),
                 "this worker was silent for %.3g s, and the others go on "
                 "without it",
                 (double)most * 1e-9);
        tt_control_refuse(c, g, TUTTI_EPEER, text);
        g->says_bye = false;
    }
}

/* A log with a hole does not replay: one that cannot be written ends. */
static void write_log(tt_controller *c)
{
    if (!c->log_file || (c->log.len == 0 && !c->log.err))
        return;
    if (c->log.err)
        errno = ENOMEM;
    if (!c->log.err &&
        fwrite(c->log.data, 1, c->log.len, c->log_file) == c->log.len &&
        fflush(c->log_file) == 0) {
        c->log.len = 0;
        return;
    }
    TT_WARN("partial reduce: the log %s ends here: %s", c->log_name,
            strerror(errno));
    tt_rule_record(c->rule, NULL);
    fclose(c->log_file);
    c->log_file = NULL;
}

/* The last turn has left something of it that no event tells of. */
static bool has_more(const tt_guest *g)
{
    return !g->is_gone && tt_link_pending(&g->pipe.s) > 0;
}

static void turn(tt_controller *c, const struct epoll_event *events, int n)
{
    for (tt_guest *g = c->guests; g; g = g->next)
        if (has_more(g))
            hear_guest(c, g);
    if (tt_link_pending(&c->up.s) > 0)
        tt_standby_hear_leader(c);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == &c->box) {
            take_arrivals(c);
        } else if (events[i].data.ptr == &c->wake_fd) {
            uint64_t count;
            ssize_t got = read(c->wake_fd, &count, sizeof(count));
            (void)got;
        } else if (events[i].data.ptr == &c->up) {
            tt_standby_hear_leader(c);
        } else {
            tt_guest *g = events[i].data.ptr;
            if (!g->is_gone)
                hear_guest(c, g);
        }
    }
    uint64_t now = tt_now_ns();
    if (tt_rule_deadline(c->rule) <= now)
        tt_rule_tick(c->rule, now);
    check_silence(c, now);
    tt_standby_turn(c, now);
    tt_wait_turn(c, now);
    /* A death may make groups, whose messages may find another death. */
    for (int again = 0; again < 2; again++) {
        for (tt_guest *g = c->guests; g; g = g->next)
            flush_guest(c, g);
        sweep(c);
    }
    for (tt_guest *g = c->guests; g; g = g->next)
        flush_guest(c, g);
    write_log(c);
    pthread_cond_broadcast(&c->changed);
}

static int wait_ms(const tt_controller *c)
{
    for (const tt_guest *g = c->guests; g; g = g->next)
        if (has_more(g))
            return 0;
    if (tt_link_pending(&c->up.s) > 0)
        return 0;
    uint64_t at = tt_rule_deadline(c->rule);
    if (c->leader.len > 0 || c->lead.n_debts > 0)
        at = at < tt_now_ns() + tell_ns ? at : tt_now_ns() + tell_ns;
    uint64_t beat = tt_now_ns() +
                    (c->o.liveness_ns ? c->o.liveness_ns / 4 : TT_NS_PER_S);
    return tt_poll_ms(at < beat ? at : beat, 1000);
}

static void *thread_main(void *arg)
{
    tt_controller *c = arg;
    struct epoll_event events[64];
    pthread_mutex_lock(&c->lock);
    c->turn_ns = tt_now_ns();
    while (!c->stops) {
        int ms = wait_ms(c);
        pthread_mutex_unlock(&c->lock);
        int n = epoll_wait(c->epoll_fd, events, 64, ms);
        pthread_mutex_lock(&c->lock);
        turn(c, events, n > 0 ? n : 0);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ------------------------------------------------------------------ life -- */

static tutti_err listen_for_workers(tt_controller *c, tutti_diag *diag)
{
    int why = 0;
    char text[TT_SOCK_TEXT] = "any address";
    tt_link_ear ear = {.dev = NULL};
    tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_CONTROLLER),
                             .job = c->o.token,
                             .trust = c->o.trust,
                             .is_local = c->o.is_local,
                             .interfaces = c->o.interfaces};
    if (c->o.listen) {
        tt_addr_text(c->o.listen, text);
        ear.at = *c->o.listen;
        o.ears = &ear;
        o.n_ears = 1;
    } else {
        o.ports = c->o.ports;
    }
    tutti_err err = tt_link_listen(c->box, &o, &c->listener, &why, diag);
    o.is_nest = true;
    if (!err && !c->o.listen) /* other ways serve where it fails */
        tt_link_listen(c->box, &o, &c->nest, NULL, NULL);
    if (why != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, why,
                             "the controller cannot listen at %s", text);
    return err;
}

static tutti_err open_fds(tt_controller *c, tutti_diag *diag)
{
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tt_fork_watch(c->epoll_fd);
    tt_fork_watch(c->wake_fd);
    if (c->epoll_fd < 0 || c->wake_fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno,
                             "no descriptors for a controller");
    tutti_err err = tt_link_box_open(&c->mem, &c->box, diag);
    if (!err)
        err = listen_for_workers(c, diag);
    if (err)
        return err;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &c->box};
    epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, tt_link_box_fd(c->box), &e);
    e.data.ptr = &c->wake_fd;
    epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->wake_fd, &e);
    return TUTTI_OK;
}

static tutti_err open_log(tt_controller *c, tutti_diag *diag)
{
    if (!c->o.log)
        return TUTTI_OK;
    c->log_file = fopen(c->o.log, "we");
    if (!c->log_file)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot write %.200s",
                             c->o.log);
    c->log.mem = &c->mem;
    snprintf(c->log_name, sizeof(c->log_name), "%s", c->o.log);
    return TUTTI_OK;
}

tutti_err tt_control_make_rule(tt_controller *c, tutti_diag *diag)
{
    const tt_rule_opts opts = c->o.rule;
    tt_rule_up up = {tt_control_decided, c};
    tutti_err err = tt_rule_create(&opts, &up, &c->mem, &c->rule, diag);
    if (err)
        return err;
    c->o.rule = *tt_rule_opts_of(c->rule);
    /* A standby's begins when it leads. */
    if (c->log_file && (c->leader.len == 0 || c->led_ns))
        tt_rule_record(c->rule, &c->log);
    return TUTTI_OK;
}

static tutti_err start(tt_controller *c, tutti_diag *diag)
{
    int why = tt_thread_start(&c->thread, thread_main, c);
    if (why != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, why,
                             "no thread for a controller");
    c->has_thread = true;
    return TUTTI_OK;
}

tutti_err tt_controller_open(const tt_controller_opts *o, const tt_mem *mem,
                             tt_controller **out, tutti_diag *diag)
{
    tt_controller *c = tt_new(mem, 1, sizeof(*c));
    if (!c)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a controller");
    c->mem = *mem;
    c->o = *o;
    c->epoll_fd = c->wake_fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    tt_cond_init(&c->changed);
    c->up.s.fd = -1;
    c->orders_end = &c->orders;
    c->o.trust = tt_trust_ref(o->trust);
    if (o->leader)
        c->leader = *o->leader;
    tutti_err err = tt_random(&c->origin, sizeof(c->origin), diag);
    if (!err && o->leader)
        err = tt_standby_join(c, diag);
    if (!err)
        err = open_log(c, diag);
    if (!err)
        err = tt_control_make_rule(c, diag);
    if (!err)
        err = tt_slots_open(c, c->o.rule.n, diag);
    if (!err)
        err = open_fds(c, diag);
    if (!err)
        tt_standby_begin(c);
    c->o.log = c->o.ports = c->o.interfaces = NULL; /* the caller's */
    c->o.listen = c->o.leader = NULL;
    c->open_ns = tt_now_ns();
    if (!err)
        err = start(c, diag);
    if (err)
        tt_controller_close(c);
    else
        *out = c;
    return err;
}

static void stop(tt_controller *c)
{
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    c->stops = true;
    ssize_t n = write(c->wake_fd, &one, sizeof(one));
    (void)n;
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
}

static bool has_copies(const tt_controller *c)
{
    bool has = false;
    for (uint32_t i = 0; i < TT_LEADERS; i++)
        has = has || c->copies[i];
    return has;
}

void tt_controller_close(tt_controller *c)
{
    if (!c)
        return;
    if (c->has_thread)
        stop(c);
    tt_link_dial_end(c->dial);
    for (tt_guest *g = c->guests; g; g = g->next)
        tt_knock_end(g);
    tt_link_box_close(c->box);
    bool is_over = !has_copies(c) || c->n_here == 0;
    while (c->guests) {
        tt_guest *g = c->guests;
        c->guests = g->next;
        if (is_over) /* else a standby takes over */
            tt_control_say(c, g, TT_TALK_REFUSE, (uint64_t)-TUTTI_EPEER,
                           "the controller has been closed");
        tt_pipe_flush(&g->pipe);
        free_guest(c, g);
    }
    write_log(c);
    if (c->log_file)
        fclose(c->log_file);
    tt_str_free(&c->log);
    tt_fork_close(&c->epoll_fd);
    tt_fork_close(&c->wake_fd);
    const tt_mem mem = c->mem;
    tt_standby_fini(c);
    tt_trust_close(c->o.trust);
    tt_rule_free(c->rule);
    tt_slots_fini(c);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    tt_free(&mem, c, 1, sizeof(*c));
}

uint16_t tt_controller_port(const tt_controller *c)
{
    return tt_link_listener_port(c->listener, 0);
}

void tt_controller_nest(const tt_controller *c, tt_addr *out)
{
    tt_link_card card = {.nest = 0};
    if (c->nest)
        tt_link_card_of(c->nest, &card);
    tt_link_card_nest(&card, out);
}

void tt_controller_measure(tt_controller *c, tt_rule_metrics *out)
{
    pthread_mutex_lock(&c->lock);
    tt_rule_measure(c->rule, out);
    pthread_mutex_unlock(&c->lock);
}

uint64_t tt_controller_n_of_size(tt_controller *c, uint32_t size)
{
    pthread_mutex_lock(&c->lock);
    uint64_t n = tt_rule_n_of_size(c->rule, size);
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* Not just to another controller. */
static bool have_gone(const tt_controller *c)
{
    return c->has_come && c->n_here == 0 && c->lead.n_debts == 0;
}

bool tt_controller_wait(tt_controller *c, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t sum = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(sum / TT_NS_PER_S);
    until.tv_nsec = (long)(sum % TT_NS_PER_S);
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    while (rc == 0 && !c->over[0] && !have_gone(c))
        rc = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    bool is_over = c->over[0] || have_gone(c);
    pthread_mutex_unlock(&c->lock);
    return is_over;
}

bool tt_controller_is_over(tt_controller *c, char *text, size_t size)
{
    pthread_mutex_lock(&c->lock);
    snprintf(text, size, "%s", c->over);
    pthread_mutex_unlock(&c->lock);
    return text[0] != '\0';
}
