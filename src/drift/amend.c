/* SPDX-License-Identifier: BSD-3-Clause
 * amend.c - where nobody has described the network: do calls take what `auto`
 * was told that they cost? If not, or where two are nearly equal, other
 * planners are tried.
 *
 * Idea       Calls of one collective and class of size are of a kind. Of each
 *            kind every rank times the same N_TIMED calls, or as many groups of
 *            small ones, behind a few that warm up, and says to rank 0 what
 *            they have taken. Of each the least of all ranks counts, as a rank
 *            that comes early waits for others; of those the one in the middle.
 *            Rank 0 judges (trials.h), and when another planner is to be taken
 *            it tells so.
 * Groups     Where ranks share a processor the rank that runs last finds all
 *            its input there: its call looks short, and the next one long. A
 *            group of calls shows the average; but a wait counts in it unless
 *            the same rank is the last one all the time.
 * Change     Integers: the kind, the row of the planner table, and the call
 *            from which on it counts, the same on all ranks (cutover.h). So
 *            plans and bits are equal everywhere.
 * Not timed  Calls that overlap others of this process; those for which the
 *            program names another planner than `auto`, or gives the schedule;
 *            of changing sizes. Half of a group is enough. Each kind says at
 *            most MOST_WINDOWS times what a planner takes. If that did not tell
 *            what a planner that is tried takes, it counts as the slowest.
 * Reach      Who does not know what messages cost tries nobody. Between hosts
 *            only those pairs are asked for by which costs were measured.
 * Rest       Rank 0 begins a change only when every rank has said something
 *            behind the last one's turn: so it has come everywhere. Each says
 *            so at the end of its first call behind it.
 * Over       When a member has left nothing changes any more.
 * Next       trials.c, cutover.h; drift.c, who watches known networks. */
#include "drift/drift.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "drift/trials.h"

enum {
    N_WARM = 2,
    N_WARM_SMALL = 16, /* their first ones touch memory that is new */
    N_TIMED = 6,
    SMALL_GROUP = 8, /* calls */
    MOST_WINDOWS = 3,
    MOST_RANKS = 256, /* above, nothing is measured */
    MOST_OPEN = 32,
    MOST_SORTS = 32
};
static const uint64_t least_bytes = 4 << 10;
/* Of size: up to 512 KiB. */
static const uint8_t most_small_class = 19;

typedef enum word_kind {
    SAY = 1, /* to rank 0: the calls of a kind have taken this */
    COME,    /* to rank 0: `call` has begun, and the turn was before */
    CHANGE   /* rank 0: by this row (cutover.h) */
} word_kind;

typedef struct word {
    uint32_t kind;
    uint8_t coll, size_class;  /* the kind */
    uint8_t row;               /* + 1; 0: what auto takes */
    uint8_t window;            /* SAY: which one, by this row */
    uint64_t call;             /* SAY, COME: that was begun last */
    uint64_t bytes;            /* of each call */
    uint64_t took_ns[N_TIMED]; /* 0: not known */
} word;
_Static_assert(sizeof(word) <= TT_WORD_MAX, "one word says it");
_Static_assert((int)TUTTI_COLL_COUNT <= (int)TT_TAKEN_COLLS,
               "each collective has its rows");

/* What a rank knows of the calls of one kind. */
typedef struct sort {
    uint8_t coll, size_class;
    uint32_t n_windows;       /* by the planner of now, begun */
    uint32_t nth_window;      /* of all, begun last */
    uint32_t n_begun, n_over; /* calls of the last one; that have ended */
    uint64_t bytes, took_ns[N_TIMED];
    uint32_t n_good[N_TIMED]; /* calls of a group that could be timed */
    /* The first call behind all windows by a planner that was told; 0: none. */
    uint64_t capped_at;
    /* Rank 0's: */
    struct {
        uint32_t n_said;            /* ranks */
        uint64_t least_ns[N_TIMED]; /* 0: not known */
    } windows[MOST_WINDOWS];
    bool is_judged; /* by the planner of now */
    tt_trials *trials;
    uint32_t wanted; /* row + 1, from the next turn on; 0: that of now */
} sort;

typedef struct slot {
    struct tt_amend *amend;
    sort *of;
    uint32_t window, index;      /* of what it is a call */
    uint64_t begin_ns, n_issued; /* n_issued: of the engine, before it */
    void (*done)(void *arg, tutti_err err);
    void *arg;
    bool is_open, is_alone;
} slot;

typedef struct tt_amend {
    tutti_comm *comm;
    tt_cutover cutover;
    sort sorts[MOST_SORTS]; /* as they come, the same on all ranks */
    uint32_t n_sorts;
    slot slots[MOST_OPEN];
    word change;   /* at the turn */
    uint64_t owed; /* rank 0 is to hear that this call has begun; 0: nothing */
    /* Rank 0's: */
    uint64_t *heard; /* [n_ranks] the call that it has begun last, as it said */
    tt_trials *trials;       /* [MOST_SORTS] */
    tt_explained *explained; /* a place to read them from */
} tt_amend;

static uint8_t *taken(const tt_amend *a, uint32_t coll, uint32_t size_class)
{
    return &a->comm->taken[coll][size_class];
}

static sort *find_sort(tt_amend *a, uint32_t coll, uint32_t size_class)
{
    for (uint32_t i = 0; i < a->n_sorts; i++) {
        if (a->sorts[i].coll == coll && a->sorts[i].size_class == size_class)
            return &a->sorts[i];
    }
    return NULL;
}

static bool is_small(const sort *s)
{
    return s->size_class <= most_small_class;
}

/* NULL: there are too many kinds, and it is not watched. */
static sort *make_sort(tt_amend *a, uint32_t coll, uint32_t size_class)
{
    sort *s = find_sort(a, coll, size_class);
    if (s || a->n_sorts == MOST_SORTS)
        return s;
    s = &a->sorts[a->n_sorts];
    s->coll = (uint8_t)coll;
    s->size_class = (uint8_t)size_class;
    s->trials = a->trials ? &a->trials[a->n_sorts] : NULL;
    a->n_sorts++;
    return s;
}

static void free_amend(tutti_comm *comm)
{
    tt_amend *a = comm->observed;
    const tt_mem *mem = &comm->mem;
    tt_free(mem, a->trials, MOST_SORTS, sizeof(*a->trials));
    tt_free(mem, a->explained, tt_plan_rows() + 1, sizeof(*a->explained));
    tt_cutover_free(&a->cutover);
    tt_free(mem, a->heard, comm->n_ranks, sizeof(uint64_t));
    tt_free(mem, a, 1, sizeof(*a));
}

/* -------------------------------------------------------- rank 0 judges -- */

static uint64_t middle_of(const uint64_t *took_ns)
{
    uint64_t sorted[N_TIMED];
    for (int i = 0; i < N_TIMED; i++) {
        int at = i;
        while (at > 0 && sorted[at - 1] > took_ns[i]) {
            sorted[at] = sorted[at - 1];
            at--;
        }
        sorted[at] = took_ns[i];
    }
    return sorted[0] > 0 ? sorted[N_TIMED / 2] : 0;
}

/* What the planners were predicted to take. False: nothing is known. */
static bool read_trials(const tt_amend *a, sort *s)
{
    tt_explained *all = a->explained;
    const bool is_known = tt_comm_explain(a->comm, (tutti_coll)s->coll,
                                          s->bytes, all) == TUTTI_OK;
    *s->trials = (tt_trials){.breaks_ties = is_small(s), .is_over = !is_known};
    for (uint32_t i = 0; is_known && all[i].planner && i < TT_TRIAL_ROWS; i++) {
        const tt_charge *c = &all[i].charge;
        s->trials->rows[i] = (tt_trial){
            .fits = all[i].fits,
            .time_s = c->time_s,
            .messages_s = c->messages_s,
            .bytes_s = c->bytes_s + c->reduce_s,
        };
        s->trials->first = all[i].is_chosen ? i : s->trials->first;
        s->trials->n = i + 1;
    }
    return is_known;
}

static uint32_t row_of(const tt_amend *a, const sort *s)
{
    const uint8_t row = *taken(a, s->coll, s->size_class);
    return row > 0 ? row - 1U : s->trials->first;
}

/* Do ranks meet whose costs were measured (costmeter.c), or of one host? */
static bool is_measured(const tutti_comm *comm, const tt_transfer *t)
{
    const uint32_t n = comm->n_ranks, up = (t->dst + n - t->src) % n,
                   down = n - up;
    return comm->hosts[t->src] == comm->hosts[t->dst] || (up & (up - 1)) == 0 ||
           (down & (down - 1)) == 0;
}

/* Others may not reach each other, and then a call would fail for a trial. */
static bool can_reach(const tt_amend *a, const sort *s, uint32_t row)
{
    const tutti_comm *comm = a->comm;
    const tt_problem p = {.collective = (tutti_coll)s->coll,
                          .n_ranks = comm->n_ranks,
                          .root = TT_NONE,
                          .size_bytes = s->bytes};
    tutti_schedule *made = NULL;
    tutti_diag diag = TT_DIAG_NONE;
    if (comm->agreed.n_hosts == 1)
        return true;
    bool can = tt_plan_make(tt_planners[row]->name, &p, &comm->mem, &made, NULL,
                            &diag) == TUTTI_OK;
    for (uint64_t i = 0; can && i < made->n_transfers; i++)
        can = is_measured(comm, &made->transfers[i]);
    tt_sched_free(made);
    return can;
}

static uint32_t find_next(const tt_amend *a, sort *s, uint32_t row,
                          uint64_t took_ns)
{
    uint32_t next = tt_trials_take(s->trials, row, took_ns);
    while (!s->trials->is_over && !can_reach(a, s, next)) {
        s->trials->rows[next].fits = false;
        next = tt_trials_take(s->trials, row, took_ns);
    }
    return next;
}

static void judge(tt_amend *a, sort *s, uint64_t took_ns)
{
    char bytes[TT_UNITS_TEXT], took[TT_UNITS_TEXT], told[TT_UNITS_TEXT];
    s->is_judged = true;
    if ((s->trials->n == 0 && !read_trials(a, s)) || s->trials->is_over)
        return;
    const uint32_t row = row_of(a, s);
    const uint32_t next = find_next(a, s, row, took_ns);
    s->wanted = next == row ? 0 : next + 1;
    TT_INFO("%s of %s: by %s they take %s, predicted were %s; %s%s",
            tutti_coll_name((tutti_coll)s->coll),
            tt_units_bytes((double)s->bytes, bytes), tt_planners[row]->name,
            took_ns == TT_TRIAL_UNKNOWN
                ? "an unknown time"
                : tt_units_seconds((double)took_ns * 1e-9, took),
            tt_units_seconds(s->trials->rows[row].time_s, told),
            s->trials->is_over ? "from now on they go by " : "tried is ",
            tt_planners[next]->name);
}

static void take_saying(tt_amend *a, const word *w)
{
    sort *s = find_sort(a, w->coll, w->size_class);
    if (!s || s->is_judged || s->wanted || w->bytes != s->bytes ||
        w->row != *taken(a, w->coll, w->size_class) ||
        w->window >= MOST_WINDOWS)
        return;
    uint64_t *least_ns = s->windows[w->window].least_ns;
    const bool is_first = s->windows[w->window].n_said++ == 0;
    for (int i = 0; i < N_TIMED; i++)
        if (is_first || w->took_ns[i] < least_ns[i])
            least_ns[i] = w->took_ns[i]; /* 0: one does not know */
    const uint64_t took_ns = middle_of(least_ns);
    if (s->windows[w->window].n_said == a->comm->n_ranks && took_ns > 0)
        judge(a, s, took_ns);
}

static bool have_begun(const tt_amend *a, uint64_t call)
{
    uint32_t r = 0;
    while (r < a->comm->n_ranks && a->heard[r] >= call)
        r++;
    return r == a->comm->n_ranks;
}

/* All that there was to say of the windows was said before. */
static void judge_unknown(tt_amend *a)
{
    for (uint32_t i = 0; i < a->n_sorts; i++) {
        sort *s = &a->sorts[i];
        if (s->capped_at > 0 && !s->is_judged && have_begun(a, s->capped_at))
            judge(a, s, TT_TRIAL_UNKNOWN);
    }
}

/* ------------------------------------------------------- words: the change */

/* Rank 0: has everybody made the call of the last turn? And who leaves promises
 * nothing. */
static bool may_change(const tt_amend *a)
{
    const uint64_t last = tt_cutover_last(&a->cutover);
    return tt_cutover_may_begin(&a->cutover) &&
           (last == 0 || have_begun(a, last + 1));
}

static void change_one(tt_amend *a)
{
    uint32_t i = 0;
    while (i < a->n_sorts && !a->sorts[i].wanted)
        i++;
    if (i == a->n_sorts || !may_change(a))
        return;
    const sort *s = &a->sorts[i];
    a->change = (word){.kind = CHANGE,
                       .coll = s->coll,
                       .size_class = s->size_class,
                       .row = (uint8_t)s->wanted};
    tt_cutover_begin(&a->cutover, &a->change, sizeof(a->change));
}

static void take_word(tt_amend *a, uint32_t from, const word *w)
{
    if (w->kind == SAY)
        take_saying(a, w);
    a->heard[from] = w->call;
    judge_unknown(a);
    change_one(a);
}

/* ------------------------------------------------------------------- words */

static bool is_sort(const word *w)
{
    return w->coll < TT_TAKEN_COLLS && w->size_class < TT_TAKEN_CLASSES;
}

static bool hear_rank_0(tt_amend *a, const word *w)
{
    if (w->kind != CHANGE || !is_sort(w) || w->row == 0 ||
        w->row > tt_plan_rows() || !tt_cutover_promise(&a->cutover))
        return false;
    a->change = *w;
    return true;
}

static bool hear(void *arg, uint32_t from, const void *bytes, uint32_t len)
{
    word w;
    tt_amend *a = arg;
    bool is_right;
    if (tt_cutover_hears(&a->cutover, from, bytes, len, &is_right))
        return is_right;
    if (len != sizeof(w))
        return false;
    memcpy(&w, bytes, sizeof(w));
    if (a->comm->rank > 0)
        return hear_rank_0(a, &w);
    if (w.kind != COME && (w.kind != SAY || !is_sort(&w)))
        return false;
    take_word(a, from, &w);
    return true;
}

static void hear_no_more(void *arg)
{
    tt_amend *a = arg;
    tt_cutover_end(&a->cutover);
}

static const tt_listener listener = {hear, hear_no_more};

/* ------------------------------------------------------------------ calls */

static void tell(tt_amend *a, const word *w)
{
    if (a->comm->rank > 0)
        tt_team_say(a->comm->team, w, sizeof(*w));
    else
        take_word(a, 0, w);
}

static uint32_t n_warm(const sort *s)
{
    return is_small(s) ? N_WARM_SMALL : N_WARM;
}

static uint32_t n_group(const sort *s)
{
    return is_small(s) ? SMALL_GROUP : 1;
}

static void say(tt_amend *a, const sort *s)
{
    word w = {.kind = SAY,
              .coll = s->coll,
              .size_class = s->size_class,
              .row = *taken(a, s->coll, s->size_class),
              .window = (uint8_t)(s->n_windows - 1),
              .call = tt_cutover_calls(&a->cutover),
              .bytes = s->bytes};
    for (int i = 0; i < N_TIMED; i++)
        w.took_ns[i] = 2 * s->n_good[i] >= n_group(s)
                           ? s->took_ns[i] / s->n_good[i]
                           : 0;
    tell(a, &w);
}

static void say_come(tt_amend *a)
{
    const word w = {.kind = COME, .call = tt_cutover_calls(&a->cutover)};
    if (a->owed == 0 || w.call < a->owed)
        return;
    a->owed = 0;
    tell(a, &w);
}

static bool was_alone(const slot *at)
{
    const tt_engine *e = at->amend->comm->engine;
    return at->is_alone && tt_engine_issued(e) == at->n_issued + 1;
}

/* A call of a window is over. */
static void time_call(tt_amend *a, const slot *at, bool is_good)
{
    sort *s = at->of;
    if (at->index < n_warm(s))
        return;
    const uint32_t i = (at->index - n_warm(s)) / n_group(s);
    s->n_over++;
    if (is_good && was_alone(at)) {
        s->took_ns[i] += tt_now_ns() - at->begin_ns;
        s->n_good[i]++;
    }
    if (is_good && !a->cutover.is_over && s->n_over == N_TIMED * n_group(s))
        say(a, s);
}

static void end_call(void *arg, tutti_err err)
{
    slot *at = arg;
    tt_amend *a = at->amend;
    at->is_open = false;
    if (at->of && at->of->nth_window == at->window)
        time_call(a, at, !err);
    if (!err && !a->cutover.is_over)
        say_come(a);
    at->done(at->arg, err);
}

/* Counts the call; false: it is not one of a window. */
static bool count(sort *s, uint64_t bytes, uint32_t *window, uint32_t *index)
{
    const bool is_full = s->n_begun == n_warm(s) + N_TIMED * n_group(s);
    if (s->n_windows == 0 || s->bytes != bytes || is_full) {
        if (s->n_windows == MOST_WINDOWS)
            return false;
        s->n_windows++;
        s->nth_window++;
        s->n_begun = s->n_over = 0;
        memset(s->took_ns, 0, sizeof(s->took_ns));
        memset(s->n_good, 0, sizeof(s->n_good));
        s->bytes = bytes;
    }
    *window = s->nth_window;
    *index = s->n_begun++;
    return true;
}

/* Of a planner that is tried there is nothing more to be heard. */
static void cap(tt_amend *a, sort *s)
{
    if (s->capped_at == 0 && *taken(a, s->coll, s->size_class) > 0)
        s->capped_at = a->owed = tt_cutover_calls(&a->cutover);
}

/* By the planner that `auto` takes? The same on all ranks. */
static bool is_ours(const tutti_comm *comm, const tt_call_in *call,
                    const tt_op_start *start)
{
    return (!call->opts || tt_rule_is_auto(call->opts->planner)) &&
           !tt_gpu_is_near(&start->gpu) &&
           !tt_comm_uses(comm, call->shape.coll, call->shape.root) &&
           comm->agreed.costs.message_ns > 0;
}

static void watch(tutti_comm *comm, const tt_call_in *call, tt_op_start *start)
{
    tt_amend *a = comm->observed;
    const uint64_t bytes = call->sizes.total_bytes;
    slot *at = a->slots;
    uint32_t window = 0, index = 0;
    sort *s = NULL;
    if (is_ours(comm, call, start))
        s = make_sort(a, call->shape.coll, tt_comm_size_class(bytes));
    if (s && !count(s, bytes, &window, &index)) {
        cap(a, s);
        s = NULL;
    }
    while (at < a->slots + MOST_OPEN && at->is_open)
        at++;
    if (at == a->slots + MOST_OPEN)
        return; /* its window is never full: nothing is said of it */
    *at = (slot){.amend = a,
                 .of = s,
                 .window = window,
                 .index = index,
                 .begin_ns = start->now_ns,
                 .done = start->done,
                 .arg = start->arg,
                 .is_open = true,
                 .is_alone = tt_engine_is_idle(comm->engine),
                 .n_issued = tt_engine_issued(comm->engine)};
    start->done = end_call;
    start->arg = at;
}

/* The communicator may live on. */
static void close_call(tutti_comm *comm, const tt_op_start *start,
                       tutti_err err)
{
    slot *at = start->arg;
    (void)comm;
    (void)err;
    if (start->done == end_call) /* else it was not watched */
        at->is_open = false;
}

/* All ranks before the same call. [locked] */
static void make_change(tt_amend *a)
{
    const word *c = &a->change;
    sort *s = find_sort(a, c->coll, c->size_class);
    *taken(a, c->coll, c->size_class) = c->row;
    tt_comm_forget_plans(a->comm);
    a->owed = tt_cutover_calls(&a->cutover) + 1;
    if (!s)
        return;
    s->n_windows = s->n_begun = s->n_over = 0;
    s->nth_window++; /* what is open is of none */
    s->capped_at = 0;
    memset(s->windows, 0, sizeof(s->windows));
    s->wanted = 0;
    s->is_judged = s->trials && s->trials->is_over;
}

static tutti_err count_call(tutti_comm *comm)
{
    tt_amend *a = comm->observed;
    if (!tt_cutover_is_near(&a->cutover))
        return TUTTI_OK;
    tt_engine_lock(comm->engine);
    if (tt_cutover_comes(&a->cutover))
        make_change(a);
    tt_engine_unlock(comm->engine);
    return TUTTI_OK;
}

/* Those whose result needs what every rank has. */
static bool counts(tutti_coll coll, uint64_t bytes)
{
    return bytes >= least_bytes &&
           (coll == TUTTI_ALL_REDUCE || coll == TUTTI_ALL_GATHER ||
            coll == TUTTI_REDUCE_SCATTER);
}

static const tt_observer observer = {
    .wants = counts,
    .before = count_call,
    .begins = watch,
    .failed = close_call,
    .free = free_amend,
};

tutti_err tt_amend_create(tutti_comm *comm)
{
    const uint32_t n = comm->n_ranks;
    if (comm->topology || !comm->agreed.amends_costs ||
        !tt_rule_is_auto(comm->agreed.planner) || n < 2 || n > MOST_RANKS)
        return TUTTI_OK;
    tt_amend *a = comm->observed = tt_new(&comm->mem, 1, sizeof(*a));
    if (!a)
        return TUTTI_ENOMEM;
    comm->observer = &observer;
    a->comm = comm;
    if (tt_cutover_init(&a->cutover, comm))
        return TUTTI_ENOMEM;
    if (comm->rank == 0) {
        a->heard = tt_new(&comm->mem, n, sizeof(uint64_t));
        a->trials = tt_new(&comm->mem, MOST_SORTS, sizeof(*a->trials));
        a->explained = tt_new(&comm->mem, tt_plan_rows() + 1,
                              sizeof(*a->explained));
        if (!a->heard || !a->trials || !a->explained)
            return TUTTI_ENOMEM;
    }
    tt_team_listen(comm->team, &listener, a);
    return TUTTI_OK;
}
