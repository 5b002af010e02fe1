/* SPDX-License-Identifier: BSD-3-Clause
 * grouping.c - the rule of partial reduce as tutti_partial.h shows it: the
 * options of a program become those of the rule. Thin, like
 * offline/schedules.c. */
#include "workers/workers.h"

#include "base/clock.h"

/* That may come, where nobody says how many. */
enum { USUAL_WORKERS = 1024 };

const char *tutti_group_kind_name(tutti_group_kind kind)
{
    return tt_group_kind_name(kind);
}

static tutti_err read_time(double s, const char *name, uint64_t *out,
                           tutti_diag *diag)
{
    if (!(s >= 0))
        return tt_fail(diag, TUTTI_EINVAL, "%s is %g: it must not be negative",
                       name, s);
    *out = s > 0 ? tt_seconds_to_ns(s) : 0;
    return TUTTI_OK;
}

static tutti_err read_times(const tutti_partial_opts *o, tt_rule_opts *out,
                            tutti_diag *diag)
{
    const struct {
        const char *name;
        double s;
        uint64_t *ns;
    } times[] = {
        {"max_wait_s", o->max_wait_s, &out->max_wait_ns},
        {"soft_wait_s", o->soft_wait_s == -1 ? 0 : o->soft_wait_s,
         &out->soft_wait_ns},
        {"join_wait_s", o->join_wait_s, &out->join_wait_ns},
        {"end_wait_s", o->end_wait_s, &out->end_wait_ns},
        {"start_wait_s", o->start_wait_s, &out->start_wait_ns},
    };
    tutti_err err = TUTTI_OK;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]) && !err; i++)
        err = read_time(times[i].s, times[i].name, times[i].ns, diag);
    return err;
}

tutti_err tt_grouping_opts(const tutti_partial_opts *o, uint32_t n,
                           tt_rule_opts *out, tutti_diag *diag)
{
    if (o->group_size < 0 || o->min_group < 0 || o->history < 0 ||
        o->recentre_every < 0 || o->max_workers < 0)
        return tt_fail(diag, TUTTI_EINVAL,
                       "group_size, min_group, history, recentre_every and "
                       "max_workers are 0 or more");
    const uint32_t usual = n > USUAL_WORKERS ? n : USUAL_WORKERS;
    *out = (tt_rule_opts){
        .n = n,
        .most = o->max_workers > 0 ? (uint32_t)o->max_workers : usual,
        .group_size = (uint32_t)o->group_size,
        .min_group = (uint32_t)o->min_group,
        .window = (uint32_t)o->history,
        .is_dynamic = o->is_dynamic,
        .adapts = o->soft_wait_s == 0,
        .decay = o->decay,
        .recentre_every = (uint64_t)o->recentre_every,
    };
    return read_times(o, out, diag);
}

struct tutti_grouping {
    tt_rule *rule;
    tt_rule_up up;
    uint32_t flags; /* of joining */
};

static void nobody(void *ctx, const tutti_group_decision *group)
{
    (void)ctx;
    (void)group;
}

tutti_err tutti_grouping_create(const tutti_partial_opts *opts,
                                uint32_t n_workers, tutti_group_fn fn,
                                void *ctx, tutti_grouping **out,
                                tutti_diag *diag)
{
    tutti_diag found;
    tutti_partial_opts o;
    tt_rule_opts rule_opts;
    tt_diag_clear(&found);
    tutti_grouping *g = NULL;
    tutti_err err = tt_read_opts(opts, &o, sizeof(o), &found);
    if (!err)
        err = tt_grouping_opts(&o, n_workers, &rule_opts, &found);
    if (!err) {
        g = tt_new(&tt_mem_std, 1, sizeof(*g));
        err = g ? TUTTI_OK
                : tt_fail(&found, TUTTI_ENOMEM, "out of memory for a grouping");
    }
    if (!err) {
        g->up = (tt_rule_up){fn ? fn : nobody, ctx};
        g->flags = o.goes_ahead ? TT_JOIN_AHEAD : 0;
        err = tt_rule_create(&rule_opts, &g->up, &tt_mem_std, &g->rule, &found);
    }
    if (err)
        tt_free(&tt_mem_std, g, 1, sizeof(*g));
    else
        *out = g;
    return tt_report(err, &found, diag);
}

void tutti_grouping_free(tutti_grouping *g)
{
    if (!g)
        return;
    tt_rule_free(g->rule);
    tt_free(&tt_mem_std, g, 1, sizeof(*g));
}

tutti_err tutti_grouping_join(tutti_grouping *g, uint32_t worker, uint64_t host,
                              uint64_t now_ns)
{
    return tt_rule_join(g->rule, worker, host, g->flags, now_ns, NULL);
}

tutti_err tutti_grouping_announce(tutti_grouping *g, uint32_t worker,
                                  uint64_t iteration, bool is_last,
                                  uint64_t now_ns)
{
    return tt_rule_announce(g->rule, worker, iteration, is_last, now_ns);
}

tutti_err tutti_grouping_done(tutti_grouping *g, uint32_t worker,
                              uint64_t group, bool well, uint64_t now_ns)
{
    return tt_rule_done(g->rule, worker, group, well, now_ns);
}

tutti_err tutti_grouping_leave(tutti_grouping *g, uint32_t worker,
                               uint64_t now_ns)
{
    return tt_rule_leave(g->rule, worker, false, now_ns);
}

void tutti_grouping_tick(tutti_grouping *g, uint64_t now_ns)
{
    tt_rule_tick(g->rule, now_ns);
}

uint64_t tutti_grouping_deadline(const tutti_grouping *g)
{
    return tt_rule_deadline(g->rule);
}

void tutti_grouping_measure(tutti_grouping *g, tutti_partial_metrics *out)
{
    tt_rule_measure(g->rule, out);
}

uint64_t tutti_grouping_n_of_size(const tutti_grouping *g, uint32_t size)
{
    return tt_rule_n_of_size(g->rule, size);
}

tutti_err tutti_grouping_replay(const char *text, size_t len, tutti_group_fn fn,
                                void *ctx, tutti_partial_metrics *out,
                                tutti_diag *diag)
{
    tutti_diag found;
    tt_diag_clear(&found);
    tt_rule_up up = {fn ? fn : nobody, ctx};
    tutti_err err = tt_rule_replay(text, len, &tt_mem_std, &up, out, &found);
    return tt_report(err, &found, diag);
}
