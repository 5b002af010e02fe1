/* SPDX-License-Identifier: BSD-3-Clause
 * lead_test.c - a leader and its standbys: whatever is lost, or late, or
 * suspected in vain, nobody gives an order that one of a greater term, who has
 * given some, does not know of, and who takes over knows of every order.
 *
 * A world has controllers, workers, each connected to one controller or to
 * none, and a queue of records, or of acknowledgements, between controllers.
 * What may happen next: the leader makes a record or gives an order, the first
 * of a queue comes, a leader leaves a standby out or a standby takes its leader
 * for dead, rightly or not, a worker's connection ends, it goes to another
 * controller, hears its term, tells that it knows it; it is started again;
 * workers come that nobody has foreseen. All orders of these for few of them,
 * random ones for more. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "partial/lead.h"
#include "support/seed.h"

enum { CS = 3, WS = 5, DEEP = 40, NOBODY = 255 };

typedef struct record {
    uint16_t term, number;
    uint8_t kind, worker;
} record;

typedef struct queue {
    uint8_t n;
    record all[DEEP];
} queue;

typedef struct controller {
    tt_lead lead;
    tt_lead_row rows[WS];
    uint8_t leader;       /* that it follows */
    uint32_t groups;      /* bit k: it knows of group k */
    uint64_t of_group[8]; /* the record of it */
} controller;

typedef struct worker {
    uint8_t at;
    bool is_welcome;
    uint64_t knows;  /* 0: a process that was never let in */
    uint64_t joined; /* ... is to be by this record; 0: by none yet */
} worker;

typedef struct world {
    uint8_t n_cs, n_ws;
    uint8_t groups, moves, suspicions, leaves, joins; /* left to happen */
    uint8_t restarts;
    uint8_t n_groups;
    uint32_t ordered;   /* groups */
    uint64_t last_term; /* in which an order was given */
    uint8_t last;       /* by whom */
    controller cs[CS];
    worker ws[WS];
    queue to[CS][CS];
} world;

static uint64_t n_worlds, n_orders, n_takeovers, n_later;

/* ---------------------------------------------------------------- events -- */

static void put(world *w, int from, int to, record r)
{
    queue *q = &w->to[from][to];
    if (q->n == DEEP)
        abort();
    q->all[q->n++] = r;
}

static record take(queue *q)
{
    record r = q->all[0];
    memmove(q->all, q->all + 1, --q->n * sizeof(r));
    q->all[q->n] = (record){0};
    return r;
}

/* A record is on its way to all that count. */
static void tell(world *w, int c, tt_record_kind kind, uint8_t who,
                 uint64_t number)
{
    const tt_lead *l = &w->cs[c].lead;
    for (int s = 0; s < w->n_cs; s++)
        if (l->copies[s].counts)
            put(w, c, s,
                (record){(uint16_t)l->term, (uint16_t)number, (uint8_t)kind,
                         who});
}

/* It has a row, from now on. */
static void make_room(controller *m, uint8_t who)
{
    if (who >= m->lead.n)
        tt_lead_widen(&m->lead, m->rows, who + 1u);
}

static uint64_t make(world *w, int c, tt_record_kind kind, uint8_t who)
{
    controller *m = &w->cs[c];
    uint64_t number = tt_lead_record(&m->lead, kind, who);
    if (kind == TT_RECORD_GROUP) {
        m->groups |= 1u << who;
        m->of_group[who] = number;
    }
    tell(w, c, kind, who, number);
    return number;
}

static void forget(world *w, int c)
{
    uint32_t who;
    uint64_t number;
    while (tt_lead_forget(&w->cs[c].lead, &who, &number))
        tell(w, c, TT_RECORD_FORGET, (uint8_t)who, number);
}

/* What has happened, by number; see happen(). */
static int trail[4096];
static uint32_t n_trail;

static void complain(const char *what)
{
    printf("# %s, after", what);
    for (uint32_t i = 0; i < n_trail; i++)
        printf(" %d", trail[i]);
    printf("\n");
    fail_msg("%s", what);
}

/* The order that a group is, or that a worker is let in. */
static void order(world *w, int c, uint32_t groups)
{
    const tt_lead *l = &w->cs[c].lead;
    if (l->term < w->last_term) { /* workers do not take it */
        if (groups & ~w->cs[w->last].groups)
            complain("an order of an older term");
        return;
    }
    w->last = (uint8_t)c;
    n_later += w->last_term > 0 && l->term > w->last_term;
    w->last_term = l->term;
    n_orders++;
}

/* A table, and what follows. */
static bool copy(world *w, int c, int s)
{
    controller *m = &w->cs[c], *f = &w->cs[s];
    tt_lead *l = &m->lead;
    if (l->role != TT_LEAD_LEADS || l->copies[s].counts ||
        f->lead.role == TT_LEAD_LEADS || l->term <= f->lead.term ||
        tt_lead_free_index(l) == l->index)
        return false;
    w->to[c][s].n = w->to[s][c].n = 0;
    memset(w->to[c][s].all, 0, sizeof(w->to[c][s].all));
    memset(w->to[s][c].all, 0, sizeof(w->to[s][c].all));
    for (uint8_t k = 0; k < w->n_ws; k++)
        if (w->ws[k].at == s)
            w->ws[k].at = NOBODY;
    tt_lead_follow(&f->lead, l->term, (uint32_t)s);
    f->leader = (uint8_t)c;
    f->groups = 0;
    tt_lead_copy_to(l, (uint32_t)s);
    for (uint8_t k = 0; k < w->n_ws; k++)
        if (m->rows[k].state && m->rows[k].state != TT_RECORD_FORGET)
            put(w, c, s,
                (record){(uint16_t)l->term, (uint16_t)m->rows[k].record,
                         m->rows[k].state, k});
    for (uint8_t g = 0; g < 8; g++)
        if (m->groups & 1u << g)
            put(w, c, s,
                (record){(uint16_t)l->term, (uint16_t)m->of_group[g],
                         TT_RECORD_GROUP, g});
    put(w, c, s,
        (record){(uint16_t)l->term, (uint16_t)l->n_records, TT_RECORD_WHOLE,
                 0});
    return true;
}

static bool deliver(world *w, int from, int to)
{
    if (w->to[from][to].n == 0)
        return false;
    record r = take(&w->to[from][to]);
    controller *m = &w->cs[to];
    if (r.kind == 0) { /* an acknowledgement */
        if (m->lead.role == TT_LEAD_LEADS && m->lead.copies[from].counts)
            tt_lead_ack(&m->lead, (uint32_t)from, r.number);
        forget(w, to);
        return true;
    }
    if (m->lead.role != TT_LEAD_FOLLOWS || m->leader != from)
        return true;
    if (r.kind == TT_RECORD_JOIN)
        make_room(m, r.worker);
    bool acks = tt_lead_hear(&m->lead, r.term, r.number, (tt_record_kind)r.kind,
                             r.worker);
    if (r.kind == TT_RECORD_GROUP) {
        m->groups |= 1u << r.worker;
        m->of_group[r.worker] = r.number;
    }
    if (acks)
        put(w, to, from, (record){r.term, r.number, 0, 0});
    return true;
}

static bool make_group(world *w, int c)
{
    if (w->groups == 0 || w->cs[c].lead.role != TT_LEAD_LEADS)
        return false;
    w->groups--;
    make(w, c, TT_RECORD_GROUP, w->n_groups++);
    return true;
}

static bool give_order(world *w, int c)
{
    controller *m = &w->cs[c];
    const uint64_t may = tt_lead_may_order(&m->lead);
    for (uint8_t g = 0; g < 8; g++) {
        if (!(m->groups & 1u << g) || (w->ordered & 1u << g) ||
            m->of_group[g] > may)
            continue;
        order(w, c, 1u << g);
        w->ordered |= 1u << g;
        return true;
    }
    return false;
}

static bool suspect(world *w, int c, int other)
{
    controller *m = &w->cs[c];
    if (w->suspicions == 0)
        return false;
    if (m->lead.role == TT_LEAD_LEADS && m->lead.copies[other].counts) {
        tt_lead_leave_out(&m->lead, (uint32_t)other);
        make(w, c, TT_RECORD_WHOLE, 0);
    } else if (m->lead.role != TT_LEAD_FOLLOWS || m->leader != other ||
               !tt_lead_ask(&m->lead)) {
        return false;
    }
    w->suspicions--;
    return true;
}

static bool take_over(world *w, int c)
{
    controller *m = &w->cs[c];
    if (!tt_lead_take_over(&m->lead))
        return false;
    if (w->ordered & ~m->groups)
        complain("it does not know of an order");
    n_takeovers++;
    return true;
}

static bool leave(world *w, int k)
{
    worker *me = &w->ws[k];
    if (me->at == NOBODY || w->moves == 0)
        return false;
    w->moves--;
    tt_lead_go(&w->cs[me->at].lead, (uint32_t)k);
    me->at = NOBODY;
    me->is_welcome = false;
    me->joined = 0;
    return true;
}

/* Another process is the worker from now on. */
static bool restart(world *w, int k)
{
    worker *me = &w->ws[k];
    if (me->at != NOBODY || me->knows == 0 || w->restarts == 0)
        return false;
    w->restarts--;
    me->knows = 0;
    return true;
}

static bool come(world *w, int k, int c)
{
    worker *me = &w->ws[k];
    controller *m = &w->cs[c];
    if (me->at != NOBODY || m->lead.role == TT_LEAD_FOLLOWS ||
        m->lead.role == TT_LEAD_OVER ||
        (m->lead.role != TT_LEAD_LEADS &&
         (me->knows == 0 || k >= (int)m->lead.n)))
        return false;
    tt_lead_hear_term(&m->lead, me->knows);
    if (m->lead.role == TT_LEAD_OVER)
        return true;
    if (m->lead.role == TT_LEAD_LEADS && me->knows > m->lead.term)
        return false; /* it is sent away */
    make_room(m, (uint8_t)k);
    me->at = (uint8_t)c;
    tt_lead_come(&m->lead, (uint32_t)k, me->knows);
    return true;
}

/* It is let in, where it must be by an order; and hears the term. */
static bool welcome(world *w, int k)
{
    worker *me = &w->ws[k];
    if (me->at == NOBODY)
        return false;
    controller *m = &w->cs[me->at];
    if (m->lead.role != TT_LEAD_LEADS || me->knows == m->lead.term)
        return false;
    if (me->knows > m->lead.term) {
        tt_lead_go(&m->lead, (uint32_t)k);
        me->at = NOBODY;
        return true;
    }
    if (m->rows[k].state != TT_RECORD_JOIN ||
        (me->knows == 0 && me->joined == 0)) {
        if (w->joins == 0)
            return false;
        w->joins--;
        me->joined = make(w, me->at, TT_RECORD_JOIN, (uint8_t)k);
        return true;
    }
    if (me->knows == 0 && me->joined > tt_lead_may_order(&m->lead))
        return false;
    if (me->knows == 0)
        order(w, me->at, 0);
    me->knows = m->lead.term;
    me->is_welcome = true;
    return true;
}

static bool confirm(world *w, int k)
{
    worker *me = &w->ws[k];
    if (me->at == NOBODY || !me->is_welcome)
        return false;
    controller *m = &w->cs[me->at];
    if (m->rows[k].knows_term == me->knows || me->knows != m->lead.term)
        return false;
    tt_lead_know(&m->lead, (uint32_t)k, me->knows);
    return m->rows[k].knows_term == me->knows;
}

/* Its controller counts it as dead, rightly or not. */
static bool declare_dead(world *w, int c, int k)
{
    controller *m = &w->cs[c];
    if (w->leaves == 0 || m->lead.role != TT_LEAD_LEADS ||
        m->rows[k].state != TT_RECORD_JOIN)
        return false;
    w->leaves--;
    if (w->ws[k].at == c) {
        tt_lead_go(&m->lead, (uint32_t)k);
        w->ws[k].at = NOBODY;
    }
    make(w, c, TT_RECORD_LEAVE, (uint8_t)k);
    forget(w, c);
    return true;
}

/* Event e; false: it cannot happen now. */
enum { EVENTS = 3 * CS + 3 * CS * CS + 4 * WS + 2 * WS * CS };

static bool happen(world *w, int e)
{
    if (e < CS * CS)
        return deliver(w, e / CS, e % CS);
    if ((e -= CS * CS) < CS * CS)
        return e / CS != e % CS && suspect(w, e / CS, e % CS);
    if ((e -= CS * CS) < CS * CS)
        return e / CS < w->n_cs && e % CS < w->n_cs && e / CS != e % CS &&
               copy(w, e / CS, e % CS);
    if ((e -= CS * CS) < CS)
        return make_group(w, e);
    if ((e -= CS) < CS)
        return give_order(w, e);
    if ((e -= CS) < CS)
        return take_over(w, e);
    if ((e -= CS) < WS)
        return e < w->n_ws && leave(w, e);
    if ((e -= WS) < WS)
        return e < w->n_ws && welcome(w, e);
    if ((e -= WS) < WS)
        return e < w->n_ws && confirm(w, e);
    if ((e -= WS) < WS)
        return e < w->n_ws && restart(w, e);
    const bool is_late = (e -= WS) >= WS * CS;
    const int k = e % (WS * CS) / CS, c = e % CS;
    if (k >= w->n_ws || c >= w->n_cs)
        return false;
    return is_late ? declare_dead(w, c, k) : come(w, k, c);
}

/* ---------------------------------------------------------------- worlds -- */

/* It lies elsewhere now. */
static void settle(world *w)
{
    for (int c = 0; c < CS; c++)
        w->cs[c].lead.rows = w->cs[c].rows;
}

/* The first controller leads workers, n_here of which have come; the others
 * have its table on their way. */
static void begin(world *w, uint8_t n_cs, uint8_t n_ws, uint8_t n_here)
{
    memset(w, 0, sizeof(*w));
    w->n_cs = n_cs;
    w->n_ws = n_ws;
    for (int c = 0; c < CS; c++) {
        tt_lead_begin(&w->cs[c].lead, w->cs[c].rows, n_here);
        if (c > 0)
            tt_lead_follow(&w->cs[c].lead, 0, (uint32_t)c);
    }
    tt_lead *l = &w->cs[0].lead;
    for (uint8_t k = 0; k < n_ws; k++)
        w->ws[k] = (worker){.at = NOBODY};
    for (uint8_t k = 0; k < n_here; k++) {
        make(w, 0, TT_RECORD_JOIN, k);
        w->ws[k] = (worker){.at = 0, .is_welcome = true, .knows = l->term};
        tt_lead_come(l, k, l->term);
    }
    for (int c = 1; c < n_cs; c++)
        copy(w, 0, c);
}

_Static_assert(sizeof(world) % 8 == 0, "a world is words");
enum { SEEN = 1 << 21 };
static uint64_t seen[SEEN];

static bool is_new(world *w)
{
    for (int c = 0; c < CS; c++)
        w->cs[c].lead.rows = NULL;
    uint64_t hash = 1;
    uint64_t words[sizeof(*w) / 8];
    memcpy(words, w, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / 8; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    hash |= 1;
    settle(w);
    for (uint64_t at = hash;; at++) {
        uint64_t *slot = &seen[at % SEEN];
        if (*slot == hash)
            return false;
        if (*slot == 0) {
            *slot = hash;
            return true;
        }
    }
}

static void explore(const world *w)
{
    world *next = malloc(sizeof(*next));
    assert_non_null(next);
    *next = *w;
    settle(next);
    for (int e = 0; e < EVENTS; e++) {
        trail[n_trail++] = e;
        if (!happen(next, e)) { /* it is as it was */
            n_trail--;
            continue;
        }
        if (is_new(next)) {
            if (++n_worlds > SEEN / 2)
                fail_msg("too many worlds");
            explore(next);
        }
        n_trail--;
        *next = *w;
        settle(next);
    }
    free(next);
}

typedef struct limits {
    uint8_t n_cs, n_ws, n_here, groups, moves, suspicions, leaves, restarts;
} limits;

static void all_orders(limits m)
{
    static world w;
    memset(seen, 0, sizeof(seen));
    n_worlds = n_orders = n_takeovers = n_later = 0;
    n_trail = 0;
    begin(&w, m.n_cs, m.n_ws, m.n_here);
    w.groups = m.groups;
    w.moves = m.moves;
    w.suspicions = m.suspicions;
    w.leaves = m.leaves;
    w.restarts = m.restarts;
    w.joins = (uint8_t)(m.leaves + m.n_ws - m.n_here);
    explore(&w);
    printf("# %u controllers, %u workers: %llu worlds, %llu orders, %llu times "
           "another one led, %llu first orders of it\n",
           m.n_cs, m.n_ws, (unsigned long long)n_worlds,
           (unsigned long long)n_orders, (unsigned long long)n_takeovers,
           (unsigned long long)n_later);
    assert_true(n_takeovers > 0);
}

static void test_all_orders(void **state)
{
    (void)state;
    static const limits quick[] = {{2, 2, 2, 1, 2, 2, 0, 0},
                                   {2, 2, 2, 2, 2, 1, 0, 0},
                                   {2, 2, 0, 0, 1, 1, 0, 0},
                                   {2, 2, 1, 1, 1, 1, 0, 0}};
    static const limits slow[] = {{2, 2, 2, 1, 2, 1, 1, 0},
                                  {2, 2, 2, 0, 1, 1, 1, 1},
                                  {3, 1, 1, 1, 1, 2, 0, 0},
                                  {2, 3, 1, 0, 1, 1, 0, 0}};
    for (size_t i = 0; i < sizeof(quick) / sizeof(quick[0]); i++)
        all_orders(quick[i]);
    /* What takes seconds. */
    for (size_t i = 0;
         getenv("TT_ROUNDS") && i < sizeof(slow) / sizeof(slow[0]); i++)
        all_orders(slow[i]);
}

static void test_random(void **state)
{
    static world w;
    const char *rounds = getenv("TT_ROUNDS");
    const uint64_t n = rounds ? strtoull(rounds, NULL, 10) : 3000;
    const uint64_t seed = tt_test_seed(1);
    (void)state;
    n_orders = n_takeovers = n_later = 0;
    for (uint64_t round = 0; round < n; round++) {
        tt_rng rng = {.state = seed + round};
        const uint8_t n_ws = (uint8_t)(2 + tt_rng_below(&rng, WS - 1));
        const uint8_t n_here = (uint8_t)tt_rng_below(&rng, n_ws + 1u);
        begin(&w, (uint8_t)(2 + tt_rng_below(&rng, CS - 1)), n_ws,
              round % 2 ? n_ws : n_here);
        w.groups = 6;
        w.moves = 12;
        w.suspicions = 4;
        w.leaves = w.restarts = (uint8_t)tt_rng_below(&rng, 4);
        w.joins = (uint8_t)(w.leaves + n_ws);
        n_trail = 0;
        for (int i = 0; i < 1500; i++) {
            trail[n_trail++] = (int)tt_rng_below(&rng, EVENTS);
            n_trail -= !happen(&w, trail[n_trail - 1]);
        }
    }
    printf("# TT_SEED=%llu TT_ROUNDS=%llu: %llu orders, %llu times another one "
           "led, %llu first orders of it\n",
           (unsigned long long)seed, (unsigned long long)n,
           (unsigned long long)n_orders, (unsigned long long)n_takeovers,
           (unsigned long long)n_later);
    assert_true(n_takeovers > 0 && n_later > 0);
}

/* Without workers nobody is owed anything. */
static void test_nobody_is_owed(void **state)
{
    (void)state;
    tt_lead_row rows[WS] = {{0}};
    tt_lead l;
    tt_lead_begin(&l, rows, WS);
    tt_lead_copy_to(&l, 1);
    const uint64_t term = l.term;
    assert_true(tt_lead_leave_out(&l, 1));
    assert_true(l.term > term);
    assert_int_equal(l.n_debts, 0);
    assert_int_equal(tt_lead_free_index(&l), 1);
    const uint64_t number = tt_lead_record(&l, TT_RECORD_JOIN, 0);
    assert_int_equal(tt_lead_may_order(&l), number);
    tt_lead_hear_term(&l, l.term + 1);
    assert_int_equal(l.role, TT_LEAD_LEADS);
}

/* A standby that has acknowledged fewer workers than there are is left out. */
static void test_debt_of_the_first_workers(void **state)
{
    (void)state;
    for (uint32_t acked = 0; acked <= WS; acked++)
        for (uint32_t ordered = 0; ordered <= acked; ordered++) {
            tt_lead_row rows[WS] = {{0}};
            tt_lead l;
            tt_lead_begin(&l, rows, WS);
            tt_lead_copy_to(&l, 1);
            tt_lead_copy_to(&l, 2);
            for (uint32_t k = 0; k < WS; k++)
                tt_lead_record(&l, TT_RECORD_JOIN, k);
            tt_lead_ack(&l, 1, acked);
            tt_lead_ack(&l, 2, ordered);
            assert_true(tt_lead_leave_out(&l, 1));
            /* Those that were let in, and no others, may tell it. */
            for (uint32_t k = 0; k < ordered; k++)
                tt_lead_know(&l, k, l.term);
            assert_int_equal(l.n_debts, 0);
            tt_lead_ack(&l, 2, WS);
            assert_int_equal(tt_lead_may_order(&l), WS);
        }
}

/* Three workers were let in; the standby that is left out knows them as they
 * were then, whatever has become of two of them. */
static void test_debt_of_an_older_table(void **state)
{
    (void)state;
    for (int are_back = 0; are_back < 2; are_back++) {
        tt_lead_row rows[3] = {{0}};
        tt_lead l;
        uint32_t who;
        uint64_t number;
        tt_lead_begin(&l, rows, 3);
        tt_lead_copy_to(&l, 1);
        for (uint32_t k = 0; k < 3; k++)
            tt_lead_record(&l, TT_RECORD_JOIN, k);
        tt_lead_ack(&l, 1, 3);
        for (uint32_t k = 1; k < 3; k++) {
            tt_lead_record(&l, TT_RECORD_LEAVE, k);
            if (are_back)
                tt_lead_record(&l, TT_RECORD_JOIN, k);
        }
        assert_true(tt_lead_leave_out(&l, 1));
        assert_false(tt_lead_forget(&l, &who, &number));
        for (uint32_t k = 0; k < 3; k++)
            tt_lead_know(&l, k, l.term);
        assert_int_equal(l.n_debts, 1);
        assert_int_equal(l.debts[0].n_rows, 3);
        assert_int_equal(l.debts[0].n_known, 1);
    }
}

int main(void)
{
    tt_test_limit(600);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_is_owed),
        cmocka_unit_test(test_debt_of_the_first_workers),
        cmocka_unit_test(test_debt_of_an_older_table),
        cmocka_unit_test(test_all_orders),
        cmocka_unit_test(test_random),
    };
    return TT_RUN_TAP(tests);
}
