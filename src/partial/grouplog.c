/* SPDX-License-Identifier: BSD-3-Clause
 * grouplog.c - the rule's log: every event and every group, one line each; and
 * its replay.
 *
 *   tutti-groups 1
 *   options NAME VALUE ...                  what differs from 0
 *   TIME join WORKER host=HEX (its place) flags=N
 *   TIME announce WORKER ITERATION [last]
 *   TIME done WORKER GROUP [broken]
 *   TIME leave WORKER [dead]
 *   TIME tick
 *   group ID KIND ITERATION WORKER.INCARNATION:ITERATION:WEIGHT ...
 *
 * Times in nanoseconds. Weights are hexadecimal floats: exact. A group line
 * follows the event that made it. A replay feeds the events to a new rule with
 * the same options, which writes a log of its own, and compares each line, byte
 * by byte. Lines that begin with # are comments. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "partial/rulestate.h"

static const char first_line[] = "tutti-groups 1";

/* Member of tt_rule_opts, as a number. */
#define OPTION_LIST(X) \
    X(n)               \
    X(most)            \
    X(group_size)      \
    X(min_group)       \
    X(window)          \
    X(is_dynamic)      \
    X(is_blind)        \
    X(adapts)          \
    X(soft_wait_ns)    \
    X(max_wait_ns)     \
    X(join_wait_ns)    \
    X(recentre_every)  \
    X(end_wait_ns)     \
    X(start_wait_ns)   \
    X(first_group)

const char *tt_group_kind_name(tt_group_kind kind)
{
    static const char *const names[] = {
#define TUTTI_X(name, number, text) [number] = text,
        TUTTI_GROUP_KIND_LIST(TUTTI_X)
#undef TUTTI_X
    };
    return (size_t)kind < TUTTI_GROUP_KIND_COUNT ? names[kind] : "unknown";
}

void tt_log_begin(tt_rule *rule)
{
    tt_str_printf(rule->log, "%s\noptions", first_line);
    tt_rule_opts_write(&rule->opts, rule->log);
    tt_str_puts(rule->log, "\n");
}

void tt_rule_opts_write(const tt_rule_opts *o, tt_str *out)
{
#define TT_X(name)   \
    if (o->name > 0) \
        tt_str_printf(out, " " #name " %" PRIu64, (uint64_t)o->name);
    OPTION_LIST(TT_X)
#undef TT_X
    tt_str_printf(out, " decay %a", o->decay);
}

void tt_log_join(tt_rule *rule, uint32_t worker, uint64_t place, uint32_t flags)
{
    tt_str_printf(rule->log, "%" PRIu64 " join %u host=%" PRIx64 " flags=%u\n",
                  rule->now, worker, place, flags);
}

void tt_log_announce(tt_rule *rule, uint32_t worker, uint64_t iteration,
                     bool is_last)
{
    tt_str_printf(rule->log, "%" PRIu64 " announce %u %" PRIu64 "%s\n",
                  rule->now, worker, iteration, is_last ? " last" : "");
}

void tt_log_done(tt_rule *rule, uint32_t worker, uint64_t group, bool well)
{
    tt_str_printf(rule->log, "%" PRIu64 " done %u %" PRIu64 "%s\n", rule->now,
                  worker, group, well ? "" : " broken");
}

void tt_log_leave(tt_rule *rule, uint32_t worker, bool is_dead)
{
    tt_str_printf(rule->log, "%" PRIu64 " leave %u%s\n", rule->now, worker,
                  is_dead ? " dead" : "");
}

void tt_log_tick(tt_rule *rule)
{
    tt_str_printf(rule->log, "%" PRIu64 " tick\n", rule->now);
}

void tt_log_group(tt_rule *rule, const tt_decision *d)
{
    tt_str *log = rule->log;
    tt_str_printf(log, "group %" PRIu64 " %s %" PRIu64, d->id,
                  tt_group_kind_name(d->kind), d->iteration);
    for (uint32_t i = 0; i < d->n; i++) {
        const tt_group_member *m = &d->members[i];
        tt_str_printf(log, " %u.%u:%" PRIu64 ":%a", m->worker, m->incarnation,
                      m->iteration, m->weight);
    }
    tt_str_puts(log, "\n");
}

/* ---------------------------------------------------------------- replay -- */

typedef struct replay {
    const tt_mem *mem;
    tt_rule *rule;
    tt_rule_up up;
    tt_str made; /* by the new rule, since the last event */
    size_t at;   /* of it that has been compared */
    uint32_t line;
    tutti_diag *diag;
} replay;

static tutti_err refuse(const replay *r, tutti_err err, const char *what)
{
    tutti_err e = tt_fail(r->diag, err, "line %u: %s", r->line, what);
    if (r->diag)
        r->diag->line = r->line;
    return e;
}

static bool read_option(tt_rule_opts *o, const char *name, const char *value)
{
    uint64_t number;
    char end;
    if (strcmp(name, "decay") == 0)
        return sscanf(value, "%la%c", &o->decay, &end) == 1;
    if (sscanf(value, "%" SCNu64 "%c", &number, &end) != 1)
        return false;
#define TT_X(member)                              \
    if (strcmp(name, #member) == 0) {             \
        o->member = (TT_TYPEOF(o->member))number; \
        return true;                              \
    }
    OPTION_LIST(TT_X)
#undef TT_X
    return false;
}

bool tt_rule_opts_read(char *text, tt_rule_opts *out)
{
    char *save = NULL;
    char *word = strtok_r(text, " ", &save);
    *out = (tt_rule_opts){0};
    for (; word; word = strtok_r(NULL, " ", &save)) {
        char *value = strtok_r(NULL, " ", &save);
        if (!value || !read_option(out, word, value))
            return false;
    }
    return true;
}

static tutti_err read_options(replay *r, char *line)
{
    static const char first[] = "options ";
    tt_rule_opts opts;
    if (strncmp(line, first, sizeof(first) - 1) != 0)
        return refuse(r, TUTTI_EFORMAT, "expected the options");
    if (!tt_rule_opts_read(line + sizeof(first) - 1, &opts))
        return refuse(r, TUTTI_EFORMAT, "not an option and its value");
    tutti_err err = tt_rule_create(&opts, &r->up, r->mem, &r->rule, r->diag);
    if (!err)
        r->rule->log = &r->made;
    return err;
}

/* The next group of the new rule is this line. */
static tutti_err compare(replay *r, const char *line)
{
    const size_t len = strlen(line), left = r->made.len - r->at;
    const char *made = r->made.data;
    if (r->made.err)
        return r->made.err;
    if (len >= left || memcmp(made + r->at, line, len) != 0 ||
        made[r->at + len] != '\n')
        return refuse(r, TUTTI_EMISMATCH,
                      "the rule decides otherwise than the log");
    r->at += len + 1;
    return TUTTI_OK;
}

static tutti_err begin_event(replay *r)
{
    if (r->made.err)
        return r->made.err;
    if (r->at < r->made.len)
        return refuse(r, TUTTI_EMISMATCH,
                      "the rule makes a group that is not in the log");
    r->made.len = r->at = 0;
    return TUTTI_OK;
}

typedef struct event {
    uint64_t now, number, place;
    uint32_t worker, flags;
    char word[16], more[16];
} event;

static bool read_event(const char *line, event *e)
{
    *e = (event){0};
    int n = sscanf(line, "%" SCNu64 " %15s", &e->now, e->word);
    if (n == 2 && strcmp(e->word, "tick") == 0)
        return true;
    if (n == 2 && strcmp(e->word, "join") == 0)
        return sscanf(line, "%*s join %u host=%" SCNx64 " flags=%u", &e->worker,
                      &e->place, &e->flags) == 3;
    if (n == 2 && strcmp(e->word, "leave") == 0)
        return sscanf(line, "%*s leave %u %15s", &e->worker, e->more) >= 1;
    if (n != 2 ||
        (strcmp(e->word, "announce") != 0 && strcmp(e->word, "done") != 0))
        return false;
    return sscanf(line, "%*s %*s %u %" SCNu64 " %15s", &e->worker, &e->number,
                  e->more) >= 2;
}

static tutti_err feed(tt_rule *rule, const event *e)
{
    if (strcmp(e->word, "join") == 0)
        return tt_rule_join(rule, e->worker, e->place, e->flags, e->now, NULL);
    if (strcmp(e->word, "announce") == 0)
        return tt_rule_announce(rule, e->worker, e->number,
                                strcmp(e->more, "last") == 0, e->now);
    if (strcmp(e->word, "done") == 0)
        return tt_rule_done(rule, e->worker, e->number,
                            strcmp(e->more, "broken") != 0, e->now);
    if (strcmp(e->word, "leave") == 0)
        return tt_rule_leave(rule, e->worker, strcmp(e->more, "dead") == 0,
                             e->now);
    tt_rule_tick(rule, e->now);
    return TUTTI_OK;
}

/* An event as the new rule has written it: its own line comes first, then the
 * groups. */
static tutti_err compare_event(replay *r, const char *line)
{
    if (r->made.err)
        return r->made.err;
    const char *end = r->made.len ? memchr(r->made.data, '\n', r->made.len)
                                  : NULL;
    size_t len = end ? (size_t)(end - r->made.data) : 0;
    if (!end || strlen(line) != len || memcmp(r->made.data, line, len) != 0)
        return refuse(r, TUTTI_EFORMAT, "the rule writes this event otherwise");
    r->at = len + 1;
    return TUTTI_OK;
}

static tutti_err replay_line(replay *r, char *line)
{
    event e;
    if (line[0] == '#' || line[0] == '\0')
        return TUTTI_OK;
    if (!r->rule)
        return read_options(r, line);
    if (strncmp(line, "group ", 6) == 0)
        return compare(r, line);
    tutti_err err = begin_event(r);
    if (err)
        return err;
    if (!read_event(line, &e))
        return refuse(r, TUTTI_EFORMAT, "not an event");
    if (feed(r->rule, &e))
        return refuse(r, TUTTI_EFORMAT, "this cannot happen here");
    return compare_event(r, line);
}

static tutti_err replay_text(replay *r, char *text)
{
    tutti_err err = TUTTI_OK;
    char *at = text;
    while (!err && *at) {
        char *end = strchr(at, '\n');
        r->line++;
        if (!end)
            return refuse(r, TUTTI_EFORMAT, "the log ends within a line");
        *end = '\0';
        if (r->line == 1 && strcmp(at, first_line) != 0)
            return refuse(r, TUTTI_EFORMAT, "this is no log of groups");
        if (r->line > 1)
            err = replay_line(r, at);
        at = end + 1;
    }
    r->line += r->line == 0;
    if (!err && !r->rule)
        return refuse(r, TUTTI_EFORMAT, "the options are missing");
    return err ? err : begin_event(r);
}

tutti_err tt_rule_replay(const char *text, size_t len, const tt_mem *mem,
                         const tt_rule_up *up, tt_rule_metrics *metrics,
                         tutti_diag *diag)
{
    const char *nul = len > 0 ? memchr(text, 0, len) : NULL;
    if (nul)
        return tt_fail(diag, TUTTI_EFORMAT,
                       "byte %zu is 0: this is no log of groups, or it is "
                       "damaged",
                       (size_t)(nul - text));
    replay r = {.mem = mem, .up = *up, .made = {.mem = mem}, .diag = diag};
    char *copy = tt_new(mem, len + 1, 1);
    if (!copy)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a log");
    memcpy(copy, text, len);
    tutti_err err = replay_text(&r, copy);
    if (!err && metrics)
        tt_rule_measure(r.rule, metrics);
    if (err == TUTTI_ENOMEM)
        tt_fail(diag, err, "out of memory for a replay");
    tt_rule_free(r.rule);
    tt_str_free(&r.made);
    tt_free(mem, copy, len + 1, 1);
    return err;
}
