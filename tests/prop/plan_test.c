/* SPDX-License-Identifier: BSD-3-Clause
 * plan_test.c - flat networks: every planner x collective x number of ranks x
 * root: it fits or says why not (one without a prediction needs a topology);
 * what it builds is proven, survives its texts, is built the same again,
 * moves as many elements and takes as many steps as a closed form says. The
 * closed forms here are written from the definitions of the algorithms and
 * share nothing with the planners but arithmetic.
 *
 * TT_SEED=n changes the random block sizes. */
#include "export/export.h"
#include "support/seed.h"
#include "support/tap.h"

#include "base/rng.h"
#include "plan/plan.h"
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_N 1024u

/* One combination. */
typedef struct combo {
    const tt_planner *planner;
    tt_problem problem;
    const tutti_schedule *sched;
    uint64_t sent[MAX_N], received[MAX_N]; /* elements by rank */
} combo;

static uint64_t seed = 1;

static void need(bool ok, const combo *k, const char *what)
{
    if (ok)
        return;
    fail_msg("%s, %s, %u ranks, root %d, TT_SEED=%llu: %s", k->planner->name,
             tutti_coll_name(k->problem.collective), k->problem.n_ranks,
             (int)k->problem.root, (unsigned long long)seed, what);
}

static void need_equal(uint64_t got, uint64_t want, const combo *k,
                       const char *what)
{
    char text[160];
    snprintf(text, sizeof(text), "%s: %llu instead of %llu", what,
             (unsigned long long)got, (unsigned long long)want);
    need(got == want, k, text);
}

/* --------------------------------------------------- who serves what -- */

#define BIT(coll) (1u << TUTTI_##coll)
#define RINGS                                                  \
    (BIT(ALL_REDUCE) | BIT(REDUCE_SCATTER) | BIT(ALL_GATHER) | \
     BIT(BROADCAST) | BIT(REDUCE))
#define SCATTERS (BIT(GATHER) | BIT(SCATTER))

/* Steps of each collective in the order of tutti_coll; c: ceil(log2 n), l:
 * log2 n rounded down (+ 2 when n is no power of two), p: the same and log2 of
 * the parts, a plain n: n - 1, h: n / 2, digits: so many times what follows. */
static const struct served {
    const char *name;
    uint32_t colls;
    const char *steps[8];
} served[] = {
    {"ring", RINGS, {"2n", "1n", "1n", "1n", "1n"}},
    {"biring", RINGS, {"2n", "1n", "1n", "1h", "1h"}},
    {"doubling",
     BIT(ALL_REDUCE) | BIT(ALL_GATHER) | BIT(BROADCAST) | BIT(REDUCE) |
         SCATTERS,
     {"1l", "", "1c", "1c", "1c", "", "1c", "1c"}},
    {"halving",
     BIT(ALL_REDUCE) | BIT(REDUCE_SCATTER) | BIT(ALL_GATHER),
     {"2c", "1c", "1c"}},
    {"halfway", BIT(ALL_REDUCE), {"1p"}},
    {"dbtree",
     BIT(ALL_REDUCE) | BIT(BROADCAST) | BIT(REDUCE),
     {"2c", "", "", "1c", "1c"}},
    {"direct",
     RINGS | SCATTERS | BIT(ALL_TO_ALL),
     {"21", "11", "11", "11", "11", "1n", "11", "11"}},
    {"star",
     BIT(ALL_REDUCE) | BIT(REDUCE_SCATTER) | BIT(ALL_GATHER),
     {"21", "21", "21"}},
    {"oneshot", BIT(ALL_REDUCE), {"11"}},
};

static const struct served *served_by(const tt_planner *planner)
{
    for (size_t i = 0; i < sizeof(served) / sizeof(*served); i++) {
        if (strcmp(served[i].name, planner->name) == 0)
            return &served[i];
    }
    fail_msg("planner %s is not in the table of this test", planner->name);
    return NULL;
}

static uint64_t log2_floor(uint64_t n)
{
    uint64_t log = 0;
    while (n >>= 1)
        log++;
    return log;
}

static bool is_pow2(uint64_t n)
{
    return (n & (n - 1)) == 0;
}

static uint64_t log2_ceil(uint64_t n)
{
    return log2_floor(n) + !is_pow2(n);
}

static uint64_t steps_of(const char *form, uint64_t n, uint64_t n_parts)
{
    uint64_t times = (uint64_t)(form[0] - '0');
    switch (n == 1 ? '0' : form[1]) {
    case 'n':
        return times * (n - 1);
    case 'h':
        return times * (n / 2);
    case 'c':
        return times * log2_ceil(n);
    case 'l':
        return times * (log2_floor(n) + (is_pow2(n) ? 0 : 2));
    case 'p':
        return steps_of("1l", n, 0) + log2_floor(n_parts);
    case '1':
        return times;
    default:
        return 0;
    }
}

/* ------------------------------------------------------------ elements -- */

/* The i-th of n shares of count elements. */
static uint64_t share(uint64_t i, uint64_t n, uint64_t count)
{
    return (i + 1) * count / n - i * count / n;
}

/* Adds up what each rank sends and receives when block b has elems[b]. */
static void count_elements(combo *k, const uint64_t *elems)
{
    const tutti_schedule *s = k->sched;
    memset(k->sent, 0, sizeof(k->sent));
    memset(k->received, 0, sizeof(k->received));
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        const tt_chunk *c = &s->chunks[t->chunk];
        uint64_t n = tt_mul_div(c->end, elems[c->block], s->n_parts) -
                     tt_mul_div(c->begin, elems[c->block], s->n_parts);
        k->sent[t->src] += n;
        k->received[t->dst] += n;
    }
}

static uint32_t reversed(uint32_t v, uint32_t n)
{
    uint32_t r = 0;
    for (uint32_t bit = 1, top = n / 2; bit < n; bit *= 2, top /= 2)
        r += v & bit ? top : 0;
    return r;
}

/* Halving: in the step of half h a rank keeps (and later gives back) the
 * chunks at the offsets below min(h, n - h) from its own. */
static uint64_t halving_sent(uint32_t r, uint32_t n, uint64_t count)
{
    uint32_t own = is_pow2(n) ? reversed(r, n) : r;
    uint64_t sum = count - share(own, n, count);
    for (uint32_t h = 1; h < n; h *= 2) {
        for (uint32_t j = 0; j < h && j + h < n; j++) {
            uint32_t c = is_pow2(n) ? own ^ j : (own + n - j) % n;
            sum += share(c, n, count);
        }
    }
    return sum;
}

static uint64_t doubling_sent(uint32_t r, uint32_t n, uint64_t count)
{
    uint64_t logs = log2_floor(n);
    uint64_t n_folded = n - (UINT64_C(1) << logs);
    if (r < 2 * n_folded)
        return r % 2 == 1 ? count : (logs + 1) * count;
    return logs * count;
}

/* By all ranks: each part by half of the players of a power of two, a quarter
 * ...; by one in each exchange of equals and in the folds. */
static uint64_t halfway_sent(const tutti_schedule *s, uint64_t count)
{
    uint64_t players = UINT64_C(1) << log2_floor(s->n_ranks);
    uint64_t holders = players / s->n_parts; /* of a part, in the middle */
    uint64_t ends = players - holders + s->n_ranks - players;
    return (2 * ends + log2_floor(holders) * holders) * count;
}

static uint64_t biring_sent(uint32_t r, uint32_t n, uint64_t count)
{
    uint32_t next = (r + 1) % n;
    uint32_t last = (r + n - 1) % n;
    return 2 * count - share(r, 2 * n, count) - share(n + r, 2 * n, count) -
           share(next, 2 * n, count) - share(n + last, 2 * n, count);
}

/* What rank r sends in an all-reduce; not for dbtree. */
static uint64_t all_reduce_sent(const char *name, uint32_t r, uint32_t n,
                                uint64_t count)
{
    if (n == 1)
        return 0;
    if (strcmp(name, "ring") == 0)
        return 2 * count - share(r, n, count) - share((r + 1) % n, n, count);
    if (strcmp(name, "biring") == 0)
        return biring_sent(r, n, count);
    if (strcmp(name, "halving") == 0)
        return halving_sent(r, n, count);
    if (strcmp(name, "doubling") == 0)
        return doubling_sent(r, n, count);
    if (strcmp(name, "star") == 0)
        return r == 0 ? (n - 1) * count : count;
    if (strcmp(name, "oneshot") == 0)
        return (n - 1) * count;
    return count - share(r, n, count) + (n - 1) * share(r, n, count);
}

static uint64_t sum_of(const uint64_t *values, uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += values[i];
    return sum;
}

static void check_all_reduce(combo *k, uint64_t count)
{
    const char *name = k->planner->name;
    uint32_t n = k->problem.n_ranks;
    bool is_dbtree = strcmp(name, "dbtree") == 0;
    count_elements(k, &count);
    if (strcmp(name, "halfway") == 0) {
        need_equal(sum_of(k->sent, n), halfway_sent(k->sched, count), k,
                   "elements in all");
        return;
    }
    for (uint32_t r = 0; r < n; r++) {
        if (is_dbtree)
            need(k->sent[r] <= 2 * count + 1, k, "a rank sends too much");
        else
            need_equal(k->sent[r], all_reduce_sent(name, r, n, count), k,
                       "elements sent by a rank in an all-reduce");
    }
    if (strcmp(name, "oneshot") == 0)
        return;
    bool is_folded = strcmp(name, "doubling") == 0;
    if (!is_folded)
        need_equal(sum_of(k->sent, n), 2 * (n - 1) * count, k,
                   "elements in all, the least possible");
    else if (is_pow2(n))
        need_equal(sum_of(k->sent, n), n * log2_floor(n) * count, k,
                   "elements in all");
}

/* Every rank but the root receives (broadcast) or sends (reduce) the vector
 * once. */
static void check_rooted(combo *k, uint64_t count)
{
    count_elements(k, &count);
    bool is_reduce = k->problem.collective == TUTTI_REDUCE;
    for (uint32_t r = 0; r < k->problem.n_ranks; r++) {
        uint64_t want = r == k->problem.root ? 0 : count;
        need_equal(is_reduce ? k->sent[r] : k->received[r], want, k,
                   "elements of a rank");
    }
}

/* No block reaches a rank twice, none leaves a rank twice: with blocks of any
 * sizes, reduce-scatter sends and all-gather receives all but the own one; of a
 * star only the hub, as the others' messages hold everything. */
static void check_blocks(combo *k, const uint64_t *elems)
{
    count_elements(k, elems);
    uint32_t n = k->problem.n_ranks;
    bool is_scatter = k->problem.collective == TUTTI_REDUCE_SCATTER;
    bool is_star = strcmp(k->planner->name, "star") == 0;
    uint64_t total = sum_of(elems, n);
    for (uint32_t r = 0; r < n; r++)
        need_equal(is_scatter ? k->sent[r] : k->received[r],
                   total - (is_star && r > 0 ? 0 : elems[r]), k,
                   "elements of a rank");
}

static uint32_t bits_in(uint32_t v)
{
    uint32_t n = 0;
    for (; v; v &= v - 1)
        n++;
    return n;
}

/* direct: every block but the root's once; doubling: once per bit of its
 * distance from the root. */
static void check_dealt(combo *k, const uint64_t *elems)
{
    count_elements(k, elems);
    uint32_t n = k->problem.n_ranks;
    uint32_t root = k->problem.root;
    bool is_gather = k->problem.collective == TUTTI_GATHER;
    bool is_tree = strcmp(k->planner->name, "doubling") == 0;
    uint64_t total = 0;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t v = (r + n - root) % n;
        total += elems[r] * (is_tree ? bits_in(v) : v > 0);
    }
    need_equal(sum_of(k->sent, n), total, k, "elements in all");
    need_equal(is_gather ? k->received[root] : k->sent[root],
               sum_of(elems, n) - elems[root], k, "elements of the root");
}

static void check_all_to_all(combo *k, const uint64_t *elems)
{
    count_elements(k, elems);
    uint32_t n = k->problem.n_ranks;
    for (uint32_t r = 0; r < n; r++)
        need_equal(k->sent[r], sum_of(elems + r * n, n) - elems[r * n + r], k,
                   "elements sent by a rank in an all-to-all");
}

static void check_elements(combo *k)
{
    uint32_t n = k->problem.n_ranks;
    const uint64_t counts[] = {0, 1, 7, n - 1, n, 1000003};
    const size_t n_counts = sizeof(counts) / sizeof(*counts);
    uint64_t n_blocks = k->sched->n_blocks;
    uint64_t *elems = calloc(n_blocks, sizeof(*elems));
    assert_non_null(elems);
    tt_rng rng = {seed + n};
    for (uint64_t b = 0; b < n_blocks; b++)
        elems[b] = tt_rng_below(&rng, 4) ? tt_rng_below(&rng, 1000) : 0;

    switch (k->problem.collective) {
    case TUTTI_ALL_REDUCE:
        for (size_t i = 0; i < n_counts; i++)
            check_all_reduce(k, counts[i]);
        break;
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        for (size_t i = 0; i < n_counts; i++)
            check_rooted(k, counts[i]);
        break;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
        check_blocks(k, elems);
        break;
    case TUTTI_ALL_TO_ALL:
        check_all_to_all(k, elems);
        break;
    default:
        check_dealt(k, elems);
        break;
    }
    free(elems);
}

/* ---------------------------------------------------------- properties -- */

static void check_proof(const combo *k)
{
    tutti_diag diag = {0};
    if (tt_verify(k->sched, &tt_mem_std, &diag))
        need(false, k, diag.text);
}

static tutti_schedule *build(const combo *k)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    if (tt_plan_build(k->planner, &k->problem, &tt_mem_std, &s, &diag))
        need(false, k, diag.text);
    return s;
}

static void check_same(const combo *k, const tutti_schedule *b)
{
    const tutti_schedule *a = k->sched;
    need(a->id == b->id && a->n_chunks == b->n_chunks &&
             a->n_transfers == b->n_transfers && a->n_steps == b->n_steps &&
             a->n_parts == b->n_parts && a->root == b->root,
         k, "built or read again, the schedule differs");
    need(memcmp(a->chunks, b->chunks, a->n_chunks * sizeof(tt_chunk)) == 0, k,
         "built or read again, the chunks differ");
    need(a->n_transfers == 0 ||
             memcmp(a->transfers, b->transfers,
                    a->n_transfers * sizeof(tt_transfer)) == 0,
         k, "built or read again, the transfers differ");
}

static void check_text(const combo *k, const char *format)
{
    char *text = NULL;
    size_t len = 0;
    tutti_schedule *again = NULL;
    tutti_diag diag = {0};
    need(!tt_export(k->sched, format, &tt_mem_std, &text, &len, NULL), k,
         "no text");
    if (tt_sched_parse(&tt_mem_std, text, len, &again, &diag))
        need(false, k, diag.text);
    check_same(k, again);
    tt_sched_free(again);
    tt_free(&tt_mem_std, text, len + 1, 1);
}

/* Nobody is an inner rank of both trees, except the root. */
static void check_complementary(const combo *k)
{
    uint8_t inner[2][MAX_N] = {{0}};
    uint32_t root = k->problem.root == TT_NONE ? 0 : k->problem.root;
    const tutti_schedule *s = k->sched;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        bool is_up = t->op == TT_XFER_REDUCE;
        inner[t->chunk][is_up ? t->dst : t->src]++;
    }
    uint8_t most = k->problem.collective == TUTTI_ALL_REDUCE ? 4 : 2;
    for (uint32_t r = 0; r < k->problem.n_ranks; r++) {
        need(r == root || !inner[0][r] || !inner[1][r], k,
             "a rank is an inner one in both trees");
        need(inner[0][r] <= most && inner[1][r] <= most, k,
             "a rank has more than two children");
    }
}

static void check_guess(const combo *k)
{
    double guess_s = k->planner->guess(&k->problem);
    tt_problem bigger = k->problem;
    bigger.size_bytes *= 3;
    need(guess_s >= 0 && guess_s < 1e6, k, "the prediction is no time");
    need((guess_s > 0) == (k->problem.n_ranks > 1), k,
         "the prediction is zero, or not zero on one rank");
    need(k->planner->guess(&bigger) >= guess_s, k,
         "more bytes are predicted to take less time");
}

/* Two for each rank but the hub, whatever the collective: what a rank sends
 * another in a step is a run of chunks. */
static void check_few_messages(const combo *k)
{
    const tutti_schedule *s = k->sched;
    uint32_t next[2][MAX_N] = {{0}}, n_runs = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        const uint32_t other = t->src == 0 ? t->dst : t->src;
        need((t->src == 0) == (t->step == 1), k, "it is no star");
        n_runs += next[t->step][other] != t->chunk + 1;
        next[t->step][other] = t->chunk + 2;
    }
    need_equal(n_runs, 2 * ((uint64_t)k->problem.n_ranks - 1), k, "messages");
}

static void check_built(combo *k, bool is_light)
{
    const struct served *row = served_by(k->planner);
    tutti_schedule *s = build(k);
    k->sched = s;
    need_equal(s->n_steps,
               steps_of(row->steps[k->problem.collective], k->problem.n_ranks,
                        s->n_parts),
               k, "steps");
    check_proof(k);
    check_elements(k);
    check_guess(k);
    if (strcmp(k->planner->name, "dbtree") == 0)
        check_complementary(k);
    if (strcmp(k->planner->name, "star") == 0)
        check_few_messages(k);
    if (!is_light) {
        tutti_schedule *again = build(k);
        check_same(k, again);
        tt_sched_free(again);
        check_text(k, "schedule");
        check_text(k, "json");
    }
    tt_sched_free(s);
    k->sched = NULL;
}

static void check_refused(const combo *k)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    const char *reason = k->planner->why_not(&k->problem);
    need(reason && *reason, k, "it does not say why it does not fit");
    need(tt_plan_build(k->planner, &k->problem, &tt_mem_std, &s, &diag) ==
                 TUTTI_ENOFIT &&
             !s && strstr(diag.text, reason),
         k, "a misfit is not refused with its reason");
}

static tt_problem problem_of(int coll, uint32_t n, uint32_t root)
{
    return (tt_problem){
        .collective = (tutti_coll)coll,
        .n_ranks = n,
        .root = tt_coll_has_root((tutti_coll)coll) ? root : TT_NONE,
        .size_bytes = 1000 * n,
        .alpha_s = 20e-6,
        .beta_s_per_byte = 1e-9,
        .gamma_s_per_byte = 0.1e-9,
    };
}

/* Every planner and root for one collective and n; returns how many fit. */
static int sweep(int coll, uint32_t n, bool is_light)
{
    static combo k;
    int n_fit = 0;
    const uint32_t roots[] = {0, n / 2, n - 1};
    uint32_t n_roots = tt_coll_has_root((tutti_coll)coll) ? 3 : 1;
    if (n_roots > n)
        n_roots = n;
    for (size_t i = 0; tt_planners[i]; i++) {
        k.planner = tt_planners[i];
        bool is_served = k.planner->guess &&
                         served_by(k.planner)->colls >> coll & 1;
        n_fit += is_served;
        for (uint32_t j = 0; j < n_roots; j++) {
            k.problem = problem_of(coll, n, roots[n_roots - 1 - j]);
            if (!is_served) {
                check_refused(&k);
                continue;
            }
            const char *reason = k.planner->why_not(&k.problem);
            need(!reason, &k, "it should fit");
            check_built(&k, is_light);
        }
    }
    return n_fit;
}

/* ---------------------------------------------------------------- tests -- */

static void every_n(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 70; n++) {
        for (int coll = 0; coll < TUTTI_COLL_COUNT; coll++) {
            if (!tt_coll_has_schedule((tutti_coll)coll))
                continue;
            bool is_rare = coll == TUTTI_ALL_TO_ALL || coll == TUTTI_GATHER ||
                           coll == TUTTI_SCATTER;
            assert_true(sweep(coll, n, false) >= (is_rare ? 1 : 2));
        }
    }
}

/* All-to-all has n * n blocks, too many to prove quickly. */
static void large_n(void **state)
{
    (void)state;
    const uint32_t sizes[] = {127, 128, 129, 255, 256, 1000, 1024};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (int coll = 0; coll < TUTTI_COLL_COUNT; coll++) {
            if (coll == TUTTI_ALL_TO_ALL && sizes[i] > 129)
                continue;
            if (tt_coll_has_schedule((tutti_coll)coll))
                sweep(coll, sizes[i], true);
        }
    }
}

/* Up to the limit everything that can have a schedule is served twice; what
 * cannot says so instead of filling the memory. */
static void huge_n(void **state)
{
    (void)state;
    const uint32_t sizes[] = {4096, 46341, 46342, 65535, TT_MAX_RANKS};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (int coll = 0; coll <= TUTTI_REDUCE; coll++) {
            tt_problem p = problem_of(coll, sizes[i], 0);
            int n_fit = 0;
            for (size_t j = 0; tt_planners[j]; j++)
                n_fit += !tt_planners[j]->why_not(&p);
            assert_true(n_fit >= 2);
        }
    }
    tt_problem p = problem_of(TUTTI_ALL_REDUCE, TT_MAX_RANKS, 0);
    assert_non_null(tt_planner_find("ring")->why_not(&p));
    p.collective = TUTTI_ALL_TO_ALL;
    assert_non_null(tt_planner_find("direct")->why_not(&p));
}

static void bad_problems(void **state)
{
    (void)state;
    static combo k;
    const struct {
        int coll;
        uint32_t n, root;
        tutti_err want;
    } bad[] = {
        {TUTTI_ALL_REDUCE, 0, 0, TUTTI_EINVAL},
        {TUTTI_ALL_REDUCE, TT_MAX_RANKS + 1, 0, TUTTI_ELIMIT},
        {TUTTI_BROADCAST, 5, 5, TUTTI_EINVAL},
        {TUTTI_BROADCAST, 5, TT_NONE, TUTTI_EINVAL},
        {TUTTI_BARRIER, 5, 0, TUTTI_ENOFIT},
        {TUTTI_SENDRECV, 5, 0, TUTTI_ENOFIT},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        k.planner = tt_planner_find("direct");
        k.problem = problem_of(bad[i].coll, bad[i].n, bad[i].root);
        tutti_schedule *s = NULL;
        tutti_diag diag = {0};
        tutti_err err = tt_plan_build(k.planner, &k.problem, &tt_mem_std, &s,
                                      &diag);
        need(err == bad[i].want && !s && diag.text[0], &k,
             "a bad problem is not refused as it should be");
    }
}

int main(void)
{
    seed = tt_test_seed(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_n),
        cmocka_unit_test(large_n),
        cmocka_unit_test(huge_n),
        cmocka_unit_test(bad_problems),
    };
    return TT_RUN_TAP(tests);
}
