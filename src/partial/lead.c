/* SPDX-License-Identifier: BSD-3-Clause
 * lead.c - see lead.h. */
#include "partial/lead.h"

#include <string.h>

void tt_lead_begin(tt_lead *l, tt_lead_row *rows, uint32_t n)
{
    *l = (tt_lead){.role = TT_LEAD_LEADS, .n = n, .rows = rows};
    l->term = l->old_term = TT_LEADERS;
}

void tt_lead_widen(tt_lead *l, tt_lead_row *rows, uint32_t n)
{
    l->rows = rows;
    l->n = n;
}

void tt_lead_follow(tt_lead *l, uint64_t term, uint32_t index)
{
    tt_lead_row *rows = l->rows;
    const uint32_t n = l->n;
    memset(rows, 0, n * sizeof(*rows));
    *l = (tt_lead){.role = TT_LEAD_FOLLOWS,
                   .index = (uint8_t)index,
                   .n = n,
                   .term = term,
                   .old_term = term,
                   .rows = rows};
}

static uint64_t next_term(const tt_lead *l)
{
    return (l->term / TT_LEADERS + 1) * TT_LEADERS + l->index;
}

static bool is_leaving(uint8_t state)
{
    return state == TT_RECORD_LEAVE || state == TT_RECORD_FORGET;
}

static void set_state(tt_lead *l, uint32_t worker, uint8_t state,
                      uint64_t record)
{
    tt_lead_row *row = &l->rows[worker];
    l->n_rows += (state != 0) - (uint32_t)(row->state != 0);
    l->n_leaving += is_leaving(state) - (uint32_t)is_leaving(row->state);
    row->first = row->state == 0 ? record : row->first;
    row->state = state;
    row->record = record;
}

/* The standby does not get more than half of its table. Who knows the new term
 * does not vote for it, nor does who was never let in, since it does not know
 * yet who it is. All that came to the table behind n_had is of that kind:
 * orders wait for acknowledgements. */
static bool is_paid(const tt_lead *l, tt_lead_debt *debt)
{
    debt->n_rows = debt->n_known = 0;
    for (uint32_t w = 0; w < l->n; w++) {
        const tt_lead_row *row = &l->rows[w];
        bool knows = row->state == TT_RECORD_JOIN &&
                     row->record <= debt->n_had && row->knows_term == l->term;
        if (row->state == 0 || row->first > debt->n_had)
            continue;
        debt->n_rows++;
        debt->n_known += knows || row->first > l->n_ordered;
    }
    return debt->n_rows == 0 || 2 * (uint64_t)debt->n_known > debt->n_rows;
}

static void settle(tt_lead *l)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < l->n_debts; i++)
        if (!is_paid(l, &l->debts[i]))
            l->debts[left++] = l->debts[i];
    l->n_debts = left;
}

/* The term is a new one: whoever is to know it must hear of it. */
static void owe(tt_lead *l, uint64_t n_had)
{
    if (l->n_debts == 0)
        l->old_term = l->term;
    l->term = next_term(l);
    l->debts[l->n_debts++] = (tt_lead_debt){.n_had = n_had};
    settle(l);
}

/* ------------------------------------------------------------ the leader -- */

static uint64_t committed(const tt_lead *l)
{
    uint64_t least = l->n_records;
    for (uint32_t i = 0; i < TT_LEADERS; i++)
        if (l->copies[i].counts && l->copies[i].acked < least)
            least = l->copies[i].acked;
    return least;
}

uint64_t tt_lead_record(tt_lead *l, tt_record_kind kind, uint32_t worker)
{
    l->n_records++;
    if (kind == TT_RECORD_JOIN || kind == TT_RECORD_LEAVE)
        set_state(l, worker, (uint8_t)kind, l->n_records);
    return l->n_records;
}

uint32_t tt_lead_free_index(const tt_lead *l)
{
    for (uint32_t i = 0; i < TT_LEADERS && l->n_debts == 0; i++)
        if (i != l->index && !l->copies[i].counts)
            return i;
    return l->index;
}

static void note_orders(tt_lead *l)
{
    const uint64_t may = tt_lead_may_order(l);
    l->n_ordered = may > l->n_ordered ? may : l->n_ordered;
}

void tt_lead_copy_to(tt_lead *l, uint32_t index)
{
    note_orders(l);
    l->copies[index] = (tt_lead_copy){.counts = true, .begun = l->n_records};
}

void tt_lead_ack(tt_lead *l, uint32_t index, uint64_t n_records)
{
    tt_lead_copy *copy = &l->copies[index];
    if (n_records > copy->acked && n_records <= l->n_records)
        copy->acked = n_records;
}

bool tt_lead_forget(tt_lead *l, uint32_t *worker, uint64_t *record)
{
    const uint64_t done = committed(l);
    if (l->n_debts > 0)
        return false;
    for (uint32_t w = 0; w < l->n && l->n_leaving > 0; w++) {
        const tt_lead_row *row = &l->rows[w];
        if (row->record > done)
            continue;
        if (row->state == TT_RECORD_FORGET)
            set_state(l, w, 0, row->record);
        if (row->state != TT_RECORD_LEAVE)
            continue;
        *worker = w;
        *record = ++l->n_records;
        set_state(l, w, TT_RECORD_FORGET, *record);
        return true;
    }
    return false;
}

bool tt_lead_leave_out(tt_lead *l, uint32_t index)
{
    tt_lead_copy *copy = &l->copies[index];
    if (!copy->counts)
        return false;
    note_orders(l);
    copy->counts = false;
    owe(l, copy->acked > copy->begun ? copy->acked : copy->begun);
    return true;
}

void tt_lead_know(tt_lead *l, uint32_t worker, uint64_t term)
{
    tt_lead_row *row = &l->rows[worker];
    if (l->role != TT_LEAD_LEADS || term != l->term ||
        row->knows_term == term || row->state != TT_RECORD_JOIN ||
        row->is_foreign)
        return;
    row->knows_term = term;
    settle(l);
}

uint64_t tt_lead_may_order(const tt_lead *l)
{
    return l->role == TT_LEAD_LEADS && l->n_debts == 0 ? committed(l) : 0;
}

void tt_lead_hear_term(tt_lead *l, uint64_t term)
{
    if (term > l->term && l->role == TT_LEAD_LEADS && l->n_debts > 0)
        l->role = TT_LEAD_OVER;
}

/* ------------------------------------------------------------- a standby -- */

bool tt_lead_hear(tt_lead *l, uint64_t term, uint64_t number,
                  tt_record_kind kind, uint32_t worker)
{
    if (l->role != TT_LEAD_FOLLOWS || term < l->term ||
        (l->is_whole && number != l->n_records + 1) ||
        (kind <= TT_RECORD_FORGET && worker >= l->n))
        return false;
    l->term = l->old_term = term;
    l->n_records = number;
    if (kind <= TT_RECORD_FORGET)
        set_state(l, worker, kind == TT_RECORD_FORGET ? 0 : (uint8_t)kind,
                  number);
    l->is_whole = l->is_whole || kind == TT_RECORD_WHOLE;
    return l->is_whole;
}

bool tt_lead_ask(tt_lead *l)
{
    if (l->role == TT_LEAD_FOLLOWS && l->is_whole)
        l->role = TT_LEAD_ASKS;
    return l->role == TT_LEAD_ASKS;
}

static bool votes(const tt_lead_row *row)
{
    return row->has_come && !row->is_foreign && row->state == TT_RECORD_JOIN;
}

void tt_lead_come(tt_lead *l, uint32_t worker, uint64_t term)
{
    tt_lead_row *row = &l->rows[worker];
    l->n_votes -= votes(row);
    row->has_come = true;
    row->is_foreign = term > l->old_term && term != l->term;
    l->n_votes += votes(row);
}

void tt_lead_go(tt_lead *l, uint32_t worker)
{
    tt_lead_row *row = &l->rows[worker];
    l->n_votes -= votes(row);
    row->has_come = false;
}

bool tt_lead_take_over(tt_lead *l)
{
    if (l->role != TT_LEAD_ASKS || 2 * (uint64_t)l->n_votes <= l->n_rows)
        return false;
    l->role = TT_LEAD_LEADS;
    l->n_ordered = l->n_records;
    owe(l, l->n_records);
    return true;
}
