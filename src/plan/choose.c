/* SPDX-License-Identifier: BSD-3-Clause
 * choose.c - which planner: by name, by rule, or the one predicted to be best.
 *
 *     rule  = choice | range *("," range)
 *     range = [size] "-" [size] ":" choice
 *     choice = a planner's name | "auto" | "file:" PATH
 *
 * A rule that begins with "file:" is one path to its end; in a range a path has
 * no comma.
 * A size is as in the settings (64KiB, 1MB, 4096); in rules a lone K, M, G or
 * T means KiB and so on. A range holds sizes from its first number (none: 0)
 * up to, not including, the second (none: no end). Ranges rise and do not
 * overlap, so the order in which they are written never matters. The whole
 * rule is checked every time, also the parts that do not apply, so that a
 * mistake shows at the first call and not at the first large vector.
 * No rule (NULL or "") means auto.
 * Next: table.c, planner.c (the predictions). */
#include "plan/planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "base/settings.h"
#include "base/units.h"
#include "base/words.h"

/* Longest size and name that are looked at, and path. */
#define MAX_WORD 24
#define MAX_PATH 255

/* Neither of both: auto. */
typedef struct choice {
    const tt_planner *planner;
    tt_word file; /* its path; len 0: none */
} choice;

typedef struct range {
    uint64_t lo, hi; /* hi UINT64_MAX: no end */
    choice choice;
} range;

static const char file_prefix[] = "file:";
#define FILE_PREFIX_LEN (sizeof(file_prefix) - 1)

/* Whose plan a schedule is that somebody wrote; in no table. */
static const tt_planner writer = {.name = "file",
                                  .blurb = "a schedule that somebody wrote"};

/* ----------------------------------------------------------------- auto -- */

/* Where ranks wait for processors, what counts is how often one waits for
 * another to have had one: large all-reduces take two steps. */
static const uint64_t crowd_direct_bytes = 4 << 20;

bool tt_choose_few_steps(const tt_problem *p)
{
    return p->is_crowd && p->collective == TUTTI_ALL_REDUCE &&
           p->size_bytes >= crowd_direct_bytes && !tt_planner_direct.why_not(p);
}

/* By the closed forms. */
static tutti_err pick_flat(const tt_problem *p, const tt_planner **out,
                           tutti_diag *diag)
{
    double best_s = -1;
    if (tt_choose_few_steps(p)) {
        *out = &tt_planner_direct;
        return TUTTI_OK;
    }
    for (size_t i = 0; tt_planners[i]; i++) {
        const tt_planner *planner = tt_planners[i];
        if (!planner->guess || planner->why_not(p))
            continue;
        double guess_s = planner->guess(p);
        if (best_s < 0 || guess_s < best_s)
            best_s = guess_s;
    }
    for (size_t i = 0; tt_planners[i]; i++) {
        const tt_planner *planner = tt_planners[i];
        if (planner->guess && !planner->why_not(p) &&
            planner->guess(p) <= best_s * TT_EQUAL_GUESS) {
            *out = planner;
            return TUTTI_OK;
        }
    }
    return tt_fail(diag, TUTTI_ENOFIT, "no planner fits %s on %u ranks",
                   tutti_coll_name(p->collective), p->n_ranks);
}

void tt_plan_charges(const tt_problem *p, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; tt_planners[i]; i++) {
        const tt_planner *planner = tt_planners[i];
        char time[TT_UNITS_TEXT];
        if (!planner->guess || planner->why_not(p))
            continue;
        int n = snprintf(text + used, size - used, "%s%s %s", used ? ", " : "",
                         planner->name,
                         tt_units_seconds(planner->guess(p), time));
        if (n < 0 || (size_t)n >= size - used)
            return;
        used += (size_t)n;
    }
}

/* Builds and predicts one. ENOFIT where a planner finds out while it builds
 * that it does not fit. */
static tutti_err try_one(const tt_planner *planner, const tt_problem *p,
                         const tt_mem *mem, tt_candidate *out, tutti_diag *diag)
{
    *out = (tt_candidate){.planner = planner, .time_s = INFINITY};
    bool is_over = false;
    tutti_err err = tt_plan_build(planner, p, mem, &out->sched, diag);
    if (!err)
        err = tt_estimate_is_over(out->sched, p, mem, &is_over, diag);
    if (!err && !is_over)
        err = tt_plan_predict(out->sched, p, mem, &out->time_s, diag);
    if (err) {
        tt_sched_free(out->sched);
        out->sched = NULL;
    }
    return err;
}

/* fastest_s: of all so far, `next` included. Of equal plans the one with the
 * fewest transfers wins, as each costs the processors work that no prediction
 * knows of (on a torus of 16 real links forest's 1050 are 2 % faster than
 * blueconnect's 1920, predicted equal); then the first in the table. */
static bool is_better(const tt_candidate *next, const tt_candidate *best,
                      double fastest_s)
{
    if (!best->sched || next->time_s * TT_EQUAL_GUESS < best->time_s)
        return true;
    return next->time_s <= fastest_s * TT_EQUAL_GUESS &&
           next->sched->n_transfers < best->sched->n_transfers;
}

/* By simulation; where nobody listens only of those that can still win. */
typedef struct contest {
    tt_problem p;
    const tt_mem *mem;
    bool wants_links;
    const tt_audience *audience; /* NULL: nobody listens */
    tt_candidate *best;
    double fastest_s;
    tutti_diag last_misfit; /* that was found out while building */
} contest;

static void tell(const contest *c, size_t row, const tt_candidate *what,
                 const char *why_not)
{
    if (c->audience)
        c->audience->told(c->audience->ctx, row, what, why_not);
}

static tutti_err enter(contest *c, size_t row)
{
    const tt_planner *planner = tt_planners[row];
    tt_candidate next = {.planner = planner};
    tutti_diag misfit;
    tt_diag_clear(&misfit);
    const char *why_not = tt_why_not_auto(planner, &c->p, c->wants_links);
    if (why_not) {
        tell(c, row, &next, why_not);
        return TUTTI_OK;
    }
    tutti_err err = try_one(planner, &c->p, c->mem, &next, &misfit);
    if (err == TUTTI_ENOFIT || err == TUTTI_ELIMIT) {
        c->last_misfit = misfit;
        tell(c, row, &next, misfit.text);
        return TUTTI_OK;
    }
    if (err) {
        c->last_misfit = misfit;
        return err;
    }
    tell(c, row, &next, NULL);
    c->fastest_s = fmin(c->fastest_s, next.time_s);
    if (!c->audience)
        c->p.most_s = c->fastest_s * TT_EQUAL_GUESS;
    if (is_better(&next, c->best, c->fastest_s)) {
        tt_sched_free(c->best->sched);
        *c->best = next;
    } else {
        tt_sched_free(next.sched);
    }
    return TUTTI_OK;
}

/* What each link may carry is known. */
static tutti_err choose_surely(const tt_problem *p, const tt_mem *mem,
                               const tt_audience *audience, tt_candidate *best,
                               tutti_diag *diag)
{
    contest c = {.p = *p,
                 .mem = mem,
                 .wants_links = tt_wants_links(p),
                 .audience = audience,
                 .best = best,
                 .fastest_s = INFINITY};
    const size_t n = tt_plan_rows();
    *best = (tt_candidate){0};
    tt_diag_clear(&c.last_misfit);
    for (size_t i = 0; i < n; i++) {
        tt_progress_tell(p->progress, tt_planners[i]->name, i, n);
        tutti_err err = enter(&c, i);
        if (err) {
            tt_sched_free(best->sched);
            best->sched = NULL;
            return tt_fail(diag, err, "%s", c.last_misfit.text);
        }
    }
    if (best->sched)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ENOFIT, "no planner fits %s on %u ranks%s%.400s",
                   tutti_coll_name(p->collective), p->n_ranks,
                   c.last_misfit.text[0] ? "; " : "", c.last_misfit.text);
}

tutti_err tt_choose_auto(const tt_problem *p, const tt_mem *mem,
                         const tt_audience *audience, tt_candidate *best,
                         tutti_diag *diag)
{
    return tt_topology_is_doubtful(p->topology)
               ? tt_choose_cautiously(p, mem, audience, best, diag)
               : choose_surely(p, mem, audience, best, diag);
}

/* ---------------------------------------------------------------- names -- */

static tutti_err unknown(tt_word name, tutti_diag *diag)
{
    const char *nearest = "auto";
    size_t least = tt_letters_apart(name.at, name.len, nearest);
    for (size_t i = 0; tt_planners[i]; i++) {
        size_t apart = tt_letters_apart(name.at, name.len,
                                        tt_planners[i]->name);
        if (apart < least) {
            least = apart;
            nearest = tt_planners[i]->name;
        }
    }
    return tt_fail(diag, TUTTI_ECONFIG,
                   "there is no planner \"%.*s\"; the nearest is \"%s\"",
                   (int)name.len, name.at, nearest);
}

static bool is_file(tt_word name)
{
    return name.len >= FILE_PREFIX_LEN &&
           memcmp(name.at, file_prefix, FILE_PREFIX_LEN) == 0;
}

static tutti_err parse_file(tt_word name, choice *out, tutti_diag *diag)
{
    out->file = (tt_word){name.at + FILE_PREFIX_LEN,
                          name.len - FILE_PREFIX_LEN};
    if (out->file.len == 0)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "the path of a schedule is missing behind \"file:\"");
    if (out->file.len > MAX_PATH)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "a path behind \"file:\" can have at most %d characters",
                       MAX_PATH);
    return TUTTI_OK;
}

static tutti_err parse_choice(tt_word name, choice *out, tutti_diag *diag)
{
    *out = (choice){0};
    if (tt_word_is(name, "auto"))
        return TUTTI_OK;
    if (is_file(name))
        return parse_file(name, out, diag);
    for (size_t i = 0; tt_planners[i]; i++) {
        if (tt_word_is(name, tt_planners[i]->name)) {
            out->planner = tt_planners[i];
            return TUTTI_OK;
        }
    }
    if (name.len == 0)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "a planner's name or \"auto\" is missing");
    return unknown(name, diag);
}

/* --------------------------------------------------------------- ranges -- */

static bool parse_size(tt_word s, uint64_t *out)
{
    char text[MAX_WORD + 3];
    if (s.len == 0 || s.len > MAX_WORD)
        return false;
    memcpy(text, s.at, s.len);
    text[s.len] = '\0';
    if (strchr("KMGT", text[s.len - 1]))
        memcpy(text + s.len, "iB", 3);
    return tt_parse_bytes(text, out);
}

static tutti_err parse_range(tt_word s, range *out, tutti_diag *diag)
{
    const char *colon = memchr(s.at, ':', s.len);
    const char *dash = memchr(s.at, '-', s.len);
    if (!colon || !dash || dash > colon)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "\"%.*s\" is not a range of sizes and a planner, "
                       "like 0-4K:doubling or 4K-:ring",
                       (int)s.len, s.at);

    tt_word lo = {s.at, (size_t)(dash - s.at)};
    tt_word hi = {dash + 1, (size_t)(colon - dash - 1)};
    out->lo = 0;
    out->hi = UINT64_MAX;
    tt_word bad = lo;
    bool is_good = lo.len == 0 || parse_size(lo, &out->lo);
    if (is_good) {
        bad = hi;
        is_good = hi.len == 0 || parse_size(hi, &out->hi);
    }
    if (!is_good)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "\"%.*s\" in \"%.*s\" is not a size, like 4096, 4K, "
                       "64KiB or 1M",
                       (int)bad.len, bad.at, (int)s.len, s.at);
    if (out->lo >= out->hi)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "the range \"%.*s\" is empty: the first size must be "
                       "less than the second, which is not included",
                       (int)s.len, s.at);

    tt_word name = {colon + 1, (size_t)(s.at + s.len - colon - 1)};
    return parse_choice(name, &out->choice, diag);
}

static tutti_err pick_by_size(const char *rule, const tt_problem *p,
                              choice *chosen, tutti_diag *diag)
{
    uint64_t reached = 0;
    *chosen = (choice){0};
    for (const char *at = rule; at; at = *at ? at + 1 : NULL) {
        tt_word s = {at, strcspn(at, ",")};
        range r;
        tutti_err err = parse_range(s, &r, diag);
        if (err)
            return err;
        if (r.lo < reached)
            return tt_fail(diag, TUTTI_ECONFIG,
                           "\"%.*s\" begins before the range in front of it "
                           "ends: ranges must rise and not overlap",
                           (int)s.len, s.at);
        reached = r.hi;
        if (p->size_bytes >= r.lo &&
            (p->size_bytes < r.hi || r.hi == UINT64_MAX))
            *chosen = r.choice;
        at += s.len;
    }
    return TUTTI_OK;
}

/* --------------------------------------------------------------- choose -- */

/* What the rule says of p. */
static tutti_err read_rule(const char *rule, const tt_problem *p, choice *out,
                           bool *is_range, tutti_diag *diag)
{
    *out = (choice){0};
    *is_range = false;
    tutti_err err = tt_problem_check(p, diag);
    if (err || !rule || !*rule)
        return err;
    /* A range begins with a number or a dash, or has a colon or a comma. */
    tt_word all = {rule, strlen(rule)};
    *is_range = !is_file(all) &&
                (strpbrk(rule, ":,") || strchr("-0123456789", *rule));
    return *is_range ? pick_by_size(rule, p, out, diag)
                     : parse_choice(all, out, diag);
}

/* The planner that the rule names; NULL: auto. */
static tutti_err read_planner(const char *rule, const tt_problem *p,
                              const tt_planner **out, tutti_diag *diag)
{
    choice said;
    bool is_range;
    *out = NULL;
    tutti_err err = read_rule(rule, p, &said, &is_range, diag);
    if (err || !said.planner)
        return err;
    if (!is_range)
        err = tt_planner_check(said.planner, p, diag);
    else if (said.planner->why_not(p))
        return TUTTI_OK;
    if (!err)
        *out = said.planner;
    return err;
}

tutti_err tt_plan_choose(const char *rule, const tt_problem *p,
                         const tt_planner **out, tutti_diag *diag)
{
    const tt_planner *chosen;
    tutti_err err = read_planner(rule, p, &chosen, diag);
    if (!err && !chosen)
        err = pick_flat(p, &chosen, diag);
    if (!err)
        *out = chosen;
    return err;
}

/* "a broadcast of 4 ranks from rank 1" */
static void describe(char *out, size_t size, const tt_problem *p)
{
    int n = snprintf(out, size, "a call of %s of %u ranks",
                     tutti_coll_name(p->collective), p->n_ranks);
    if (p->root != TT_NONE && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, " with root %u", p->root);
}

static tutti_err is_for_others(const char *path, const tutti_schedule *s,
                               const tt_problem *p, tutti_diag *diag)
{
    char has[96], wants[96];
    const tt_problem its = {
        .collective = s->collective, .n_ranks = s->n_ranks, .root = s->root};
    describe(has, sizeof(has), &its);
    describe(wants, sizeof(wants), p);
    return tt_fail(diag, TUTTI_ENOFIT,
                   "the schedule in %.200s is for %s, not for %s", path, has,
                   wants);
}

tutti_err tt_plan_written(const char *rule, const tt_problem *p,
                          const tutti_schedule **out, tutti_diag *diag)
{
    choice said;
    bool is_range;
    char path[MAX_PATH + 1];
    const tutti_schedule *s;
    *out = NULL;
    tutti_err err = read_rule(rule, p, &said, &is_range, diag);
    if (err || said.file.len == 0)
        return err;
    snprintf(path, sizeof(path), "%.*s", (int)said.file.len, said.file.at);
    if (!p->shelf)
        return tt_fail(diag, TUTTI_ECONFIG, "no file is read here: %s", path);
    err = p->shelf->find(p->shelf->ctx, path, &s, diag);
    if (err)
        return err;
    const bool is_such = s->collective == p->collective && s->root == p->root;
    if (!is_such || s->n_ranks != p->n_ranks)
        return is_range || (p->has_job_rule && !is_such)
                   ? TUTTI_OK
                   : is_for_others(path, s, p, diag);
    char who[300];
    snprintf(who, sizeof(who), "the schedule in %.260s", path);
    err = tt_plan_check_routes(who, p, s, diag);
    if (!err)
        *out = s;
    return err;
}

/* A planner's. */
static tutti_err make_planned(const char *rule, const tt_problem *p,
                              const tt_mem *mem, tt_candidate *best,
                              tutti_diag *diag)
{
    tutti_err err = read_planner(rule, p, &best->planner, diag);
    if (!err && !best->planner && p->topology)
        err = tt_choose_auto(p, mem, NULL, best, diag);
    else if (!err && !best->planner)
        err = pick_flat(p, &best->planner, diag);
    if (!err && !best->sched)
        err = tt_plan_build(best->planner, p, mem, &best->sched, diag);
    return err;
}

tutti_err tt_plan_make(const char *rule, const tt_problem *p, const tt_mem *mem,
                       tutti_schedule **out, const tt_planner **chosen,
                       tutti_diag *diag)
{
    tt_candidate best = {.planner = &writer};
    const tutti_schedule *written;
    tutti_err err = tt_plan_written(rule, p, &written, diag);
    if (!err && written) {
        err = tt_sched_copy(written, mem, &best.sched);
        if (err)
            tt_fail(diag, err, "no memory for a schedule");
    } else if (!err) {
        err = make_planned(rule, p, mem, &best, diag);
    }
    if (err)
        return err;
    *out = best.sched;
    if (chosen)
        *chosen = best.planner;
    return TUTTI_OK;
}
