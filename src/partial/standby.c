/* SPDX-License-Identifier: BSD-3-Clause
 * standby.c - a controller's copies, and how one of them takes over.
 *
 * Idea       lead.h decides who leads and what may be said; here are the
 *            connections. Of the state of a controller a standby needs little:
 *            who is there, as which incarnation, and the last group of each.
 *            All else
 *            (what is announced, how groups have ended) the workers say again
 *            to whom they come to (talk.h), and the rule begins anew: its
 *            history and what it has measured are lost.
 * Orders     What a worker may act on (it is let in, it is in a group) waits
 *            here until every standby that counts has acknowledged its record.
 * Follow     A standby dials the leader as a worker does, and has its table,
 *            and then its records, by that connection. When it is gone, or
 *            silent for liveness_ns, the standby asks: it holds workers that
 *            come until they are more than half, and tries the other
 *            controllers meanwhile, one of which may lead.
 * Back       A leader whose standby is gone tries the other controllers, too:
 *            one of them may lead by now, and then it ends.
 * Next       lead.h, controller.c. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "partial/control.h"

/* Between two dials; and for each. */
static const uint64_t pause_ns = 250 * TT_NS_PER_MS;
static const uint64_t try_ns = TT_NS_PER_S;
/* After taking over: for workers that have not come yet. */
static const uint64_t gather_ns = TT_NS_PER_S;
enum { OWN_MAX = 64 };

/* --------------------------------------------------------------- records -- */

static void put_record(tt_controller *c, tt_guest *g, uint64_t number,
                       tt_record_kind kind, uint32_t worker,
                       const void *payload, size_t len)
{
    tt_talk head = tt_talk_head(TT_TALK_RECORD, number, len);
    head.flags = (uint8_t)kind;
    head.who = worker;
    tt_control_put(c, g, &head, payload);
}

static void tell_record(tt_controller *c, uint64_t number, tt_record_kind kind,
                        uint32_t worker, const void *payload, size_t len)
{
    for (uint32_t i = 0; i < TT_LEADERS; i++)
        if (c->copies[i])
            put_record(c, c->copies[i], number, kind, worker, payload, len);
}

uint64_t tt_standby_record(tt_controller *c, tt_record_kind kind,
                           uint32_t worker, const void *payload, size_t len)
{
    uint64_t number = tt_lead_record(&c->lead, kind, worker);
    tell_record(c, number, kind, worker, payload, len);
    return number;
}

static void give(tt_controller *c, uint64_t group, const uint32_t *workers,
                 uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tt_guest *g = c->by_worker[workers[i]];
        if (g && group == 0)
            tt_control_welcome(c, g);
        else if (g && c->kept[workers[i]].head.number == group)
            tt_control_tell_group(c, g);
    }
}

void tt_standby_order(tt_controller *c, uint64_t record, uint64_t group,
                      const uint32_t *workers, uint32_t n)
{
    if (!c->orders && record <= tt_lead_may_order(&c->lead)) {
        give(c, group, workers, n);
        return;
    }
    tt_due *o = tt_new(&c->mem, 1, sizeof(*o) + n * sizeof(*workers));
    for (uint32_t i = 0; i < n && !o; i++)
        if (c->by_worker[workers[i]])
            c->by_worker[workers[i]]->is_gone = true;
    if (!o)
        return;
    o->record = record;
    o->group = group;
    o->n = n;
    memcpy(o->workers, workers, n * sizeof(*workers));
    *c->orders_end = o;
    c->orders_end = &o->next;
}

static tt_due *pop(tt_controller *c)
{
    tt_due *o = c->orders;
    c->orders = o->next;
    if (!c->orders)
        c->orders_end = &c->orders;
    return o;
}

static void free_order(tt_controller *c, tt_due *o)
{
    tt_free(&c->mem, o, 1, sizeof(*o) + o->n * sizeof(*o->workers));
}

static void give_orders(tt_controller *c)
{
    while (c->orders && c->orders->record <= tt_lead_may_order(&c->lead)) {
        tt_due *o = pop(c);
        give(c, o->group, o->workers, o->n);
        free_order(c, o);
    }
}

/* ----------------------------------------------------- the leader's side -- */

static void tell_card(tt_controller *c, tt_guest *g, uint32_t index)
{
    const tt_link_card *card = &c->cards[index];
    const size_t bytes = c->copies[index] ? tt_link_card_bytes(card) : 0;
    tt_talk head = tt_talk_head(TT_TALK_STANDBY, 0, bytes);
    head.who = index;
    tt_control_put(c, g, &head, card);
}

void tt_standby_tell(tt_controller *c, tt_guest *g)
{
    for (uint32_t i = 0; i < TT_LEADERS; i++)
        if (c->copies[i] && c->cards[i].n_places)
            tell_card(c, g, i);
}

static void tell_all_card(tt_controller *c, uint32_t index)
{
    for (tt_guest *g = c->guests; g; g = g->next)
        if (g->is_welcome || g->is_standby)
            tell_card(c, g, index);
}

static void tell_follow(tt_controller *c, tt_guest *g)
{
    tt_str text = {.mem = &c->mem};
    tt_follow follow = {.origin = c->origin,
                        .liveness_ns = c->o.liveness_ns,
                        .index = g->index,
                        .n = c->o.rule.n};
    tt_str_add(&text, (const char *)&follow, sizeof(follow));
    tt_rule_opts_write(&c->o.rule, &text);
    tt_talk head = tt_talk_head(TT_TALK_FOLLOW, 0, text.len);
    if (text.err)
        g->is_gone = true;
    else
        tt_control_put(c, g, &head, text.data);
    tt_str_free(&text);
}

/* A group is told once, as of the first of its members that has it. */
static bool has_it_first(const tt_controller *c, uint32_t worker)
{
    const tt_kept *kept = &c->kept[worker];
    tt_group_head group;
    tt_seat seat = {.worker = TT_NONE};
    if (kept->head.len == 0)
        return false;
    memcpy(&group, kept->said, sizeof(group));
    for (uint32_t i = 0; i < group.n; i++) {
        memcpy(&seat, kept->said + sizeof(group) + i * sizeof(seat),
               sizeof(seat));
        if (c->kept[seat.worker].head.number == kept->head.number)
            break;
    }
    return seat.worker == worker;
}

static void tell_group(tt_controller *c, tt_guest *g, const tt_kept *kept)
{
    memcpy(c->message - sizeof(kept->head), &kept->head, sizeof(kept->head));
    memcpy(c->message, kept->said, kept->head.len);
    put_record(c, g, kept->record, TT_RECORD_GROUP, 0,
               c->message - sizeof(kept->head),
               sizeof(kept->head) + kept->head.len);
}

static void tell_table(tt_controller *c, tt_guest *g)
{
    for (uint32_t w = 0; w < c->n_slots; w++) {
        const tt_lead_row *row = &c->rows[w];
        const uint64_t life = c->kept[w].incarnation;
        uint8_t state = row->state ? row->state : (uint8_t)TT_RECORD_FORGET;
        if (life > 0)
            put_record(c, g, row->record, (tt_record_kind)state, w, &life,
                       sizeof(life));
        if (has_it_first(c, w))
            tell_group(c, g, &c->kept[w]);
    }
    put_record(c, g, c->lead.n_records, TT_RECORD_WHOLE, 0, NULL, 0);
    tt_standby_tell(c, g);
}

void tt_standby_come(tt_controller *c, tt_guest *g)
{
    const uint32_t index = tt_lead_free_index(&c->lead);
    /* Who was frozen has not heard of the end of those that it has, and of this
     * one's: in a term for each nobody could tell it of a leader meanwhile. */
    const bool was_away = c->o.liveness_ns > 0 &&
                          tt_now_ns() - c->turn_ns > c->o.liveness_ns / 2;
    if (c->lead.role != TT_LEAD_LEADS || index == c->lead.index || was_away) {
        g->is_gone = true; /* it tries again */
        return;
    }
    g->is_standby = true;
    g->index = index;
    c->copies[index] = g;
    c->cards[index].n_places = 0;
    tt_lead_copy_to(&c->lead, index);
    tell_follow(c, g);
    tell_table(c, g);
    TT_INFO("partial reduce: standby %u has come", index);
}

/* All hear the new term. */
static void leave_out(tt_controller *c, uint32_t index)
{
    c->copies[index] = NULL;
    c->left_ns = tt_now_ns();
    if (!tt_lead_leave_out(&c->lead, index))
        return;
    TT_WARN("partial reduce: standby %u has gone", index);
    tt_standby_record(c, TT_RECORD_WHOLE, 0, NULL, 0);
    tell_all_card(c, index);
}

void tt_standby_gone(tt_controller *c, tt_guest *g)
{
    if (g->is_held && g->join.who < c->n_slots)
        tt_lead_go(&c->lead, g->join.who);
    if (g->is_standby && c->copies[g->index] == g) {
        g->is_standby = false;
        leave_out(c, g->index);
    }
    g->is_standby = g->is_held = false;
}

bool tt_standby_is_behind(const tt_controller *c, const tt_guest *g)
{
    return g->is_standby && c->lead.copies[g->index].acked < c->lead.n_records;
}

/* It lives when it has all that there was when it was last heard: whoever lags
 * for ever would hold all orders. */
static void hear_ack(tt_controller *c, tt_guest *g, uint64_t number)
{
    const tt_lead_copy *copy = &c->lead.copies[g->index];
    const uint64_t had = copy->acked;
    tt_lead_ack(&c->lead, g->index, number);
    if (copy->acked == had || copy->acked < g->owes)
        return;
    g->heard_ns = tt_now_ns();
    g->owes = c->lead.n_records;
}

bool tt_standby_hear(tt_controller *c, tt_guest *g, const tt_talk *head,
                     const unsigned char *payload)
{
    tt_talk beat = tt_talk_head(TT_TALK_BEAT, 0, 0);
    size_t used;
    switch (head->kind) {
    case TT_TALK_ACK:
        hear_ack(c, g, head->number);
        return true;
    case TT_TALK_CARD:
        if (!tt_link_card_read(&c->cards[g->index], payload, head->len, &used))
            return false;
        tell_all_card(c, g->index);
        return true;
    case TT_TALK_BEAT:
        tt_control_put(c, g, &beat, NULL);
        return true;
    default:
        return false;
    }
}

/* ------------------------------------------------------ a standby's side -- */

void tt_standby_hold(tt_controller *c, tt_guest *g)
{
    const tt_join *join = &g->join;
    /* A new one is let in by who leads. */
    if (!tt_slots_was_here(c, join)) {
        g->is_gone = true;
        return;
    }
    /* The end of the connection before must not take its vote. */
    for (tt_guest *old = c->guests; old; old = old->next)
        if (old->is_held && old->join.who == join->who) {
            tt_standby_gone(c, old);
            old->is_gone = true;
        }
    g->is_held = true;
    if (c->lead.role == TT_LEAD_ASKS)
        tt_lead_come(&c->lead, join->who, join->term);
}

static void say(tt_controller *c, tt_talk_kind kind, uint64_t number,
                const void *payload, size_t len)
{
    tt_talk head = tt_talk_head(kind, number, len);
    head.term = c->lead.term;
    tt_pipe_put(&c->up, &head, payload);
    c->up_said_ns = tt_now_ns();
}

static void hang_up(tt_controller *c)
{
    if (c->up.s.fd >= 0)
        epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, c->up.s.fd, NULL);
    tt_pipe_close(&c->up);
}

/* The leader is gone: who has come is counted. */
static void lose_leader(tt_controller *c, const char *how)
{
    const bool was_following = c->lead.role == TT_LEAD_FOLLOWS;
    hang_up(c);
    c->next_ns = tt_now_ns();
    if (!was_following || !tt_lead_ask(&c->lead))
        return;
    TT_WARN("partial reduce: the controller that leads %s; this standby leads "
            "when more than half of %u workers have come",
            how, c->lead.n_rows);
    for (tt_guest *g = c->guests; g; g = g->next)
        if (g->is_held)
            tt_lead_come(&c->lead, g->join.who, g->join.term);
}

/* Somebody leads, and this one follows it, from now on or again. */
static bool follow(tt_controller *c, const tt_talk *head,
                   const unsigned char *payload)
{
    tt_follow told;
    if (head->len < sizeof(told) || c->lead.role == TT_LEAD_LEADS ||
        head->term < c->lead.term)
        return false;
    memcpy(&told, payload, sizeof(told));
    if (told.n != c->o.rule.n || told.index >= TT_LEADERS)
        return false;
    for (tt_guest *g = c->guests; g; g = g->next)
        g->is_gone = g->is_gone || g->is_held;
    for (uint32_t i = 0; i < TT_LEADERS; i++)
        c->cards[i].n_places = 0;
    c->origin = told.origin;
    c->o.liveness_ns = told.liveness_ns;
    tt_lead_follow(&c->lead, head->term, told.index);
    say(c, TT_TALK_CARD, 0, &c->own, tt_link_card_bytes(&c->own));
    return true;
}

static bool hear_group(tt_controller *c, uint64_t record,
                       const unsigned char *payload, size_t len)
{
    tt_talk head;
    tt_group_head group;
    tt_seat seat;
    if (len < sizeof(head) + sizeof(group))
        return false;
    memcpy(&head, payload, sizeof(head));
    payload += sizeof(head);
    memcpy(&group, payload, sizeof(group));
    if (head.len != len - sizeof(head) || group.n > c->o.rule.most ||
        head.len != sizeof(group) + group.n * sizeof(seat))
        return false;
    for (uint32_t i = 0; i < group.n; i++) {
        memcpy(&seat, payload + sizeof(group) + i * sizeof(seat), sizeof(seat));
        if (tt_slots_make_room(c, seat.worker))
            return false;
        if (head.number > c->kept[seat.worker].head.number &&
            !tt_control_keep(c, seat.worker, record, &head, payload))
            return false;
    }
    if (head.number > c->n_groups)
        c->n_groups = head.number;
    return true;
}

static bool hear_record(tt_controller *c, const tt_talk *head,
                        const unsigned char *payload)
{
    const tt_record_kind kind = (tt_record_kind)head->flags;
    uint64_t life;
    if (c->lead.role != TT_LEAD_FOLLOWS)
        return true; /* it was on its way */
    if (kind <= TT_RECORD_FORGET && tt_slots_make_room(c, head->who))
        return false;
    if (kind == 0 || kind > TT_RECORD_WHOLE ||
        (kind == TT_RECORD_GROUP &&
         !hear_group(c, head->number, payload, head->len)))
        return false;
    const bool is_whole = c->lead.is_whole || kind == TT_RECORD_WHOLE;
    bool is_heard = tt_lead_hear(&c->lead, head->term, head->number, kind,
                                 head->who);
    if (is_heard != is_whole)
        return false;
    if (head->len == sizeof(life) && kind <= TT_RECORD_FORGET) {
        memcpy(&life, payload, sizeof(life));
        c->kept[head->who].incarnation = (uint32_t)life;
    }
    if (is_whole)
        say(c, TT_TALK_ACK, head->number, NULL, 0);
    return true;
}

static bool hear_card(tt_controller *c, const tt_talk *head,
                      const unsigned char *payload)
{
    size_t used;
    if (head->who >= TT_LEADERS)
        return false;
    c->cards[head->who].n_places = 0;
    return head->len == 0 ||
           tt_link_card_read(&c->cards[head->who], payload, head->len, &used);
}

static bool hear(tt_controller *c, const tt_talk *head,
                 const unsigned char *payload)
{
    tt_standby_hear_term(c, head->term);
    switch (head->kind) {
    case TT_TALK_FOLLOW:
        return follow(c, head, payload);
    case TT_TALK_RECORD:
        return hear_record(c, head, payload);
    case TT_TALK_STANDBY:
        return hear_card(c, head, payload);
    case TT_TALK_REFUSE: /* the job is over */
        c->has_come = c->has_come || c->lead.role == TT_LEAD_FOLLOWS;
        return c->lead.role == TT_LEAD_FOLLOWS;
    default:
        return head->kind == TT_TALK_BEAT;
    }
}

void tt_standby_hear_leader(tt_controller *c)
{
    tt_talk head;
    const unsigned char *payload;
    const uint64_t most = sizeof(tt_talk) + sizeof(tt_group_head) +
                          c->o.rule.most * sizeof(tt_seat) + TT_CARD_MOST;
    tt_pipe_fill(&c->up);
    c->up_heard_ns = tt_now_ns();
    while (c->up.s.fd >= 0 && tt_pipe_next(&c->up, most, &head, &payload))
        if (!hear(c, &head, payload)) {
            lose_leader(c, "says what makes no sense");
            return;
        }
    if (c->up.is_broken)
        lose_leader(c, "has gone");
}

/* ----------------------------------------------------------- taking over -- */

static void end(tt_controller *c, const char *why)
{
    c->lead.role = TT_LEAD_OVER;
    snprintf(c->over, sizeof(c->over), "%.150s", why);
    for (tt_guest *g = c->guests; g; g = g->next)
        g->is_gone = true; /* they go by themselves to who leads */
}

static void take_over(tt_controller *c, uint64_t now)
{
    tutti_diag diag = TT_DIAG_NONE;
    tt_rule *old = c->rule;
    if (c->lead.role != TT_LEAD_ASKS || !tt_lead_take_over(&c->lead))
        return;
    hang_up(c);
    c->led_ns = c->left_ns = now;
    c->o.rule.first_group = c->n_groups;
    c->o.rule.start_wait_ns = gather_ns;
    if (tt_control_make_rule(c, &diag)) {
        end(c, diag.text); /* with the rule that it has */
        return;
    }
    tt_rule_free(old);
    TT_WARN("partial reduce: this standby leads now, in term %llu",
            (unsigned long long)c->lead.term);
    for (tt_guest *g = c->guests; g; g = g->next)
        if (g->is_held && !g->is_gone)
            tt_control_admit_again(c, g);
}

/* Who was there, and has not come, is counted as dead. */
static void miss_workers(tt_controller *c, uint64_t now)
{
    const uint64_t patience = c->o.liveness_ns > gather_ns ? c->o.liveness_ns
                                                           : gather_ns;
    if (c->led_ns == 0 || c->has_missed || now - c->led_ns < patience)
        return;
    c->has_missed = true;
    for (uint32_t w = 0; w < c->n_slots; w++) {
        char text[TT_TALK_TEXT];
        if (c->rows[w].state != TT_RECORD_JOIN || c->by_worker[w])
            continue;
        snprintf(text, sizeof(text),
                 "worker %u has not come to the controller that leads now", w);
        tt_control_tell_broken(c, w, c->kept[w].head.number, 0, text);
        tt_standby_record(c, TT_RECORD_LEAVE, w, NULL, 0);
    }
}

void tt_standby_hear_term(tt_controller *c, uint64_t term)
{
    char text[sizeof(c->over)];
    tt_lead_hear_term(&c->lead, term);
    if (c->lead.role != TT_LEAD_OVER || c->over[0])
        return;
    snprintf(text, sizeof(text),
             "another controller leads these workers now; this one, of term "
             "%llu, ends",
             (unsigned long long)c->lead.term);
    end(c, text);
}

/* By then all who are here have said what they know, and who is away is
 * back. */
static uint64_t most_left_ns(const tt_controller *c)
{
    uint64_t most = gather_ns;
    most = c->o.liveness_ns > most ? c->o.liveness_ns : most;
    return c->o.reconnect_ns > most ? c->o.reconnect_ns : most;
}

/* A standby has gone, and too few workers are there to go on without it. */
static void check_left(tt_controller *c, uint64_t now)
{
    char text[sizeof(c->over)];
    if (c->lead.role != TT_LEAD_LEADS || c->lead.n_debts == 0 ||
        now - c->left_ns <= most_left_ns(c))
        return;
    /* Who is here may be silent for as long as it likes. */
    if (c->o.liveness_ns == 0 && c->n_here > 0)
        return;
    const tt_lead_debt *debt = &c->lead.debts[0];
    snprintf(text, sizeof(text),
             "%u of %u workers know that this controller leads in term %llu, "
             "more than half are needed; it ends",
             debt->n_known, debt->n_rows, (unsigned long long)c->lead.term);
    end(c, text);
}

/* -------------------------------------------------------------- dialling -- */

static bool is_seeking(const tt_controller *c)
{
    return c->up.s.fd < 0 && !c->over[0] &&
           (c->lead.role != TT_LEAD_LEADS || c->lead.n_debts > 0);
}

/* The next of those that may lead: the one that it began with, and standbys. */
static uint32_t ways_to(tt_controller *c, tt_link_way ways[TT_LINK_WAYS])
{
    const uint32_t at = c->n_dials++ % (TT_LEADERS + 1);
    tt_iface own[OWN_MAX];
    const tt_link_here here = {
        .card = &c->own, .ifaces = own, .interfaces = ""};
    if (at == TT_LEADERS && c->leader.len > 0) {
        ways[0] = (tt_link_way){.to = c->leader};
        return 1;
    }
    if (at == TT_LEADERS || at == c->lead.index || !c->cards[at].n_places)
        return 0;
    tt_link_here there = here;
    there.n_ifaces = tt_ifaces_list("", own, OWN_MAX);
    return (uint32_t)tt_link_ways(&there, &c->cards[at], NULL, ways);
}

static tt_link_dial_opts dial_opts(const tt_controller *c,
                                   const tt_link_way *ways, uint32_t n,
                                   uint64_t until)
{
    const tt_join join = {.host = tt_place_host(),
                          .who = TT_NONE,
                          .term = (uint32_t)c->lead.term,
                          .flags = TT_TALK_STANDBY_JOINS,
                          .origin = c->origin};
    tt_link_dial_opts o = {.purpose = TT_LINK_CONTROLLER,
                           .job = c->o.token,
                           .trust = c->o.trust,
                           .ways = ways,
                           .n_ways = n,
                           .n_rounds = 1,
                           .try_ns = try_ns,
                           .answer_ns = try_ns,
                           .deadline_ns = until};
    memcpy(o.said, &join, sizeof(join));
    return o;
}

static void seek(tt_controller *c, uint64_t now)
{
    tt_link_way ways[TT_LINK_WAYS];
    uint32_t n = 0;
    if (!is_seeking(c) || c->dial || now < c->next_ns)
        return;
    c->next_ns = now + pause_ns;
    for (uint32_t i = 0; i <= TT_LEADERS && n == 0; i++)
        n = ways_to(c, ways);
    if (n == 0)
        return;
    const tt_link_dial_opts o = dial_opts(c, ways, n, now + 2 * try_ns);
    tt_link_dial_begin(c->box, &o, &c->dial, NULL);
}

static void listen_up(tt_controller *c)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &c->up};
    epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->up.s.fd, &e);
    c->up_heard_ns = c->up_said_ns = tt_now_ns();
}

bool tt_standby_hear_dial(tt_controller *c, const tt_link_event *link)
{
    tt_link_stream s = link->stream;
    if (link->kind == TT_LINK_ARRIVED)
        return false;
    tt_link_dial_end(c->dial);
    c->dial = NULL;
    if (link->kind != TT_LINK_DIALLED)
        return true;
    if (!is_seeking(c)) {
        tt_link_stream_close(&s);
        return true;
    }
    tt_pipe_open(&c->up, &c->mem, s);
    listen_up(c);
    return true;
}

void tt_standby_turn(tt_controller *c, uint64_t now)
{
    const uint64_t limit = c->o.liveness_ns;
    uint32_t worker;
    uint64_t record;
    if (c->up.s.fd >= 0 && limit > 0 && now - c->up_said_ns >= limit / 4)
        say(c, TT_TALK_BEAT, 0, NULL, 0);
    if (c->up.s.fd >= 0 && limit > 0 && now - c->up_heard_ns > limit)
        lose_leader(c, "has been silent");
    tt_pipe_flush(&c->up);
    take_over(c, now);
    while (c->lead.role == TT_LEAD_LEADS &&
           tt_lead_forget(&c->lead, &worker, &record))
        tell_record(c, record, TT_RECORD_FORGET, worker, NULL, 0);
    miss_workers(c, now);
    check_left(c, now);
    seek(c, now);
    give_orders(c);
}

/* ------------------------------------------------------------------ life -- */

static tutti_err read_follow(tt_controller *c, tt_link_stream *s,
                             uint64_t until, tutti_diag *diag)
{
    tt_talk head;
    tt_follow told;
    char text[4096];
    if (tt_link_read_all(s, &head, sizeof(head), until) ||
        !tt_talk_is_sound(&head, sizeof(told) + sizeof(text) - 1) ||
        head.kind != TT_TALK_FOLLOW || head.len < sizeof(told) ||
        tt_link_read_all(s, &told, sizeof(told), until) ||
        tt_link_read_all(s, text, head.len - sizeof(told), until))
        return tt_fail(diag, TUTTI_EBOOT,
                       "the controller to follow takes no standby; is it one "
                       "of this version?");
    text[head.len - sizeof(told)] = '\0';
    c->origin = told.origin;
    c->o.liveness_ns = told.liveness_ns;
    c->lead = (tt_lead){.term = head.term, .index = (uint8_t)told.index};
    if (told.index >= TT_LEADERS || !tt_rule_opts_read(text, &c->o.rule) ||
        c->o.rule.n != told.n)
        return tt_fail(diag, TUTTI_EPROTO,
                       "the controller to follow tells options that make no "
                       "sense");
    return TUTTI_OK;
}

tutti_err tt_standby_join(tt_controller *c, tutti_diag *diag)
{
    const tt_link_way way = {.to = c->leader};
    const uint64_t until = tt_now_ns() + 10 * TT_NS_PER_S;
    char where[TT_SOCK_TEXT];
    tt_link_dial *dial;
    tt_link_event link;
    tt_link_box *box;
    const tt_link_dial_opts o = dial_opts(c, &way, 1, until);
    tt_addr_text(&c->leader, where);
    tutti_err err = tt_link_box_open(&c->mem, &box, diag);
    if (err)
        return err;
    err = tt_link_dial_begin(box, &o, &dial, diag);
    if (!err) {
        while (!tt_link_box_take(box, &link)) /* it has a deadline itself */
            tt_link_box_wait(box, UINT64_MAX);
        tt_link_outcome outcome = tt_link_dial_outcome(dial, 0);
        if (link.kind == TT_LINK_DIALLED)
            tt_pipe_open(&c->up, &c->mem, link.stream);
        else
            err = tt_fail(diag, TUTTI_EBOOT,
                          "no controller to follow at %s: %s", where,
                          tt_link_outcome_text(&outcome));
        tt_link_dial_end(dial);
    }
    tt_link_box_close(box);
    return err ? err : read_follow(c, &c->up.s, until, diag);
}

void tt_standby_begin(tt_controller *c)
{
    const tt_lead told = c->lead;
    tt_link_card_of(c->listener, &c->own);
    tt_lead_begin(&c->lead, c->rows, c->n_slots);
    if (c->leader.len == 0)
        return;
    tt_lead_follow(&c->lead, told.term, told.index);
    listen_up(c);
    say(c, TT_TALK_CARD, 0, &c->own, tt_link_card_bytes(&c->own));
}

void tt_standby_fini(tt_controller *c)
{
    hang_up(c);
    while (c->orders)
        free_order(c, pop(c));
}
