/* SPDX-License-Identifier: BSD-3-Clause
 * tell.c - what a controller tells workers of groups: the rule's decisions, how
 * their members are connected to, and that one has broken. A group is kept for
 * each of its members, who may not hear of it at once. Next: standby.c (when it
 * is told). */
#include <string.h>

#include "partial/control.h"

/* The group that its worker is in; 0: none. */
uint64_t tt_control_group_of(const tt_controller *c, const tt_guest *g)
{
    return g->old ? g->old : tt_rule_group_of(c->rule, g->worker);
}

void tt_control_tell_broken(tt_controller *c, uint32_t worker, uint64_t group,
                            uint8_t flags, const char *text)
{
    tt_talk head = tt_talk_head(TT_TALK_BROKEN, group, strlen(text));
    head.who = worker;
    head.flags = flags;
    for (uint32_t w = 0; group > 0 && w < c->n_slots; w++) {
        tt_guest *g = c->by_worker[w];
        if (w == worker || !g || g->broken == group ||
            tt_control_group_of(c, g) != group)
            continue;
        g->broken = group;
        tt_control_put(c, g, &head, text);
    }
}

/* How member g connects to another one, unless it was told. Who comes from
 * another controller has not said it yet: it is told when it has. */
static void tell_card(tt_controller *c, tt_guest *g, const tt_guest *other)
{
    uint64_t *word = &g->knows[other->worker / 64];
    const uint64_t bit = UINT64_C(1) << other->worker % 64;
    if (g == other || (*word & bit) || other->card_bytes == 0)
        return;
    *word |= bit;
    tt_talk head = tt_talk_head(TT_TALK_CARD, 0, other->card_bytes);
    head.who = other->worker;
    tt_control_put(c, g, &head, other->card);
}

void tt_control_tell_card(tt_controller *c, const tt_guest *g)
{
    const uint64_t group = tt_control_group_of(c, g);
    for (tt_guest *other = c->guests; other && group > 0; other = other->next)
        if (other->worker != TT_NONE && tt_control_group_of(c, other) == group)
            tell_card(c, other, g);
}

/* The group that it was put into last, and how its members are connected to. */
void tt_control_tell_group(tt_controller *c, tt_guest *g)
{
    const tt_kept *kept = &c->kept[g->worker];
    tt_group_head group;
    tt_seat seat;
    memcpy(&group, kept->said, sizeof(group));
    for (uint32_t i = 0; i < group.n; i++) {
        memcpy(&seat, kept->said + sizeof(group) + i * sizeof(seat),
               sizeof(seat));
        if (c->by_worker[seat.worker])
            tell_card(c, g, c->by_worker[seat.worker]);
        if (seat.worker == g->worker)
            group.me = i;
    }
    memcpy(kept->said, &group, sizeof(group));
    tt_prints_expect(g, kept->head.number, kept->said + sizeof(group), group.n);
    tt_control_put(c, g, &kept->head, kept->said);
    if (g->broken == kept->head.number)
        tt_control_say(c, g, TT_TALK_BROKEN, g->broken,
                       "it broke before it was told");
}

/* What the member adds to what all have in common. */
static tt_seat sit(const tutti_group_member *m, const tt_guest *g,
                   tt_group_head *group)
{
    tt_card card = {.max_payload = group->max_payload};
    if (g)
        memcpy(&card, g->card, sizeof(card));
    if (!g || g->n_cpus < group->n_cpus)
        group->n_cpus = g ? g->n_cpus : 0;
    if (card.max_payload < group->max_payload)
        group->max_payload = card.max_payload;
    return (tt_seat){.worker = m->worker,
                     .incarnation = m->incarnation,
                     .iteration = m->iteration,
                     .weight = m->weight,
                     .host = g ? g->host : 0};
}

bool tt_control_keep(tt_controller *c, uint32_t worker, uint64_t record,
                     const tt_talk *head, const void *payload)
{
    tt_kept *kept = &c->kept[worker];
    if (head->len > kept->cap) {
        char *said = tt_new(&c->mem, head->len, 1);
        if (!said)
            return false;
        tt_free(&c->mem, kept->said, kept->cap, 1);
        kept->said = said;
        kept->cap = head->len;
    }
    kept->record = record;
    kept->head = *head;
    memcpy(kept->said, payload, head->len);
    return true;
}

void tt_control_decided(void *ctx, const tutti_group_decision *d)
{
    tt_controller *c = ctx;
    tt_group_head group = {.iteration = d->iteration,
                           .n = d->n,
                           .kind = (uint8_t)d->kind,
                           .is_even = d->is_even,
                           .has_model = d->has_model,
                           .n_cpus = UINT32_MAX,
                           .max_payload = UINT32_MAX};
    size_t bytes = sizeof(group) + d->n * sizeof(tt_seat);
    tt_talk head = tt_talk_head(TT_TALK_GROUP, d->id, bytes);
    for (uint32_t i = 0; i < d->n; i++) {
        const tutti_group_member *m = &d->members[i];
        tt_seat seat = sit(m, c->by_worker[m->worker], &group);
        memcpy(c->message + sizeof(group) + i * sizeof(seat), &seat,
               sizeof(seat));
    }
    memcpy(c->message, &group, sizeof(group));
    c->n_groups = d->id;
    /* The record: the header, and what it has. */
    memcpy(c->message - sizeof(head), &head, sizeof(head));
    uint64_t record = tt_standby_record(
        c, TT_RECORD_GROUP, 0, c->message - sizeof(head), sizeof(head) + bytes);
    for (uint32_t i = 0; i < d->n; i++) {
        const uint32_t w = c->members[i] = d->members[i].worker;
        if (c->by_worker[w] &&
            !tt_control_keep(c, w, record, &head, c->message))
            c->by_worker[w]->is_gone = true;
    }
    tt_standby_order(c, record, d->id, c->members, d->n);
}
