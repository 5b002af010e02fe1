/* SPDX-License-Identifier: BSD-3-Clause
 * mixing.c - what the last groups have mixed.
 *
 * Idea       The groups of the window are edges between workers. While they
 *            connect everybody alive, every model finds its way to every
 *            other. Groups are joined from the newest back; if the newest k
 *            suffice, the graph stays connected until window - k more groups
 *            have come, so a look is needed only then.
 * Invariant  The window has at least ceil((n-1)/(P-1)) groups: fewer cannot
 *            connect n workers, as each joins at most P components.
 * Cost       A look: O(window * P), about 0.1 ms for 1024 workers in pairs.
 *            Seldom where the graph is connected, for each group where not.
 * Next       choice.c. */
#include <math.h>
#include <string.h>

#include "partial/rulestate.h"

/* The window in multiples of the least that can connect: that the rule steps in
 * when chance does not do it, and not before. */
enum { WINDOW_FACTOR = 4 };

uint32_t tt_mixing_least(uint32_t n, uint32_t p)
{
    if (n < 2 || p < 2)
        return 1;
    return (n - 1 + p - 2) / (p - 1);
}

uint32_t tt_mixing_window(const tt_rule *rule)
{
    uint32_t n = tt_rule_active(rule);
    /* Where groups are of those who come, they may be as small as that. */
    uint32_t p = tt_soon_rules(rule) ? rule->opts.min_group
                                     : tt_rule_want(rule);
    uint32_t least = tt_mixing_least(n, p);
    uint32_t window = rule->opts.window ? rule->opts.window
                                        : WINDOW_FACTOR * least;
    if (window < least)
        window = least;
    return window < rule->mixing.group_cap ? window : rule->mixing.group_cap;
}

void tt_mixing_fini(tt_mixing *m, const tt_mem *mem)
{
    tt_free(mem, m->groups, m->group_cap, sizeof(*m->groups));
    tt_free(mem, m->members, m->member_cap, sizeof(*m->members));
    tt_free(mem, m->part, m->n, sizeof(*m->part));
    tt_free(mem, m->x, m->n, sizeof(*m->x));
    tt_free(mem, m->y, m->n, sizeof(*m->y));
}

static uint64_t oldest(uint64_t n, uint32_t cap)
{
    return n > cap ? n - cap : 0;
}

/* The rings as they were, in larger ones. */
static void move(const tt_mixing *from, tt_mixing *to)
{
    uint64_t g = oldest(from->n_groups, from->group_cap);
    uint64_t m = oldest(from->n_members, from->member_cap);
    to->since = m > from->since ? m : from->since;
    for (; g < from->n_groups; g++)
        to->groups[g % to->group_cap] = from->groups[g % from->group_cap];
    for (; m < from->n_members; m++)
        to->members[m % to->member_cap] = from->members[m % from->member_cap];
}

tutti_err tt_mixing_widen(tt_mixing *m, const tt_rule_opts *opts, uint32_t n,
                          const tt_mem *mem)
{
    tt_mixing next = *m;
    uint64_t groups = (uint64_t)WINDOW_FACTOR * n;
    if (opts->window > groups)
        groups = opts->window;
    next.n = n;
    next.group_cap = (uint32_t)groups + 1;
    next.member_cap = 4 * next.group_cap + n;
    next.groups = tt_new(mem, next.group_cap, sizeof(*m->groups));
    next.members = tt_new(mem, next.member_cap, sizeof(*m->members));
    next.part = tt_new(mem, n, sizeof(*m->part));
    next.x = tt_new(mem, n, sizeof(*m->x));
    next.y = tt_new(mem, n, sizeof(*m->y));
    if (!next.groups || !next.members || !next.part || !next.x || !next.y) {
        tt_mixing_fini(&next, mem);
        return TUTTI_ENOMEM;
    }
    move(m, &next);
    tt_mixing_forget_look(&next);
    tt_mixing_fini(m, mem);
    *m = next;
    return TUTTI_OK;
}

void tt_mixing_forget_look(tt_mixing *m)
{
    m->looked = 0;
    m->connected_until = 0;
}

void tt_mixing_add(tt_rule *rule, uint64_t id)
{
    tt_mixing *m = &rule->mixing;
    m->groups[m->n_groups++ % m->group_cap] =
        (tt_past_group){.id = id, .first = m->n_members, .n = rule->n_chosen};
    for (uint32_t i = 0; i < rule->n_chosen; i++)
        m->members[m->n_members++ % m->member_cap] = rule->chosen[i];
    m->looked = 0;
}

/* The k-th newest group; NULL: it is not kept any more. */
static const tt_past_group *newest(const tt_mixing *m, uint64_t k)
{
    if (k >= m->n_groups || k >= m->group_cap)
        return NULL;
    const tt_past_group *g = &m->groups[(m->n_groups - 1 - k) % m->group_cap];
    bool is_kept = g->id > 0 && g->first >= m->since &&
                   g->first + m->member_cap >= m->n_members;
    return is_kept ? g : NULL;
}

static uint32_t member(const tt_mixing *m, const tt_past_group *g, uint32_t i)
{
    return m->members[(g->first + i) % m->member_cap];
}

void tt_mixing_strike(tt_rule *rule, uint64_t id)
{
    tt_mixing *m = &rule->mixing;
    for (uint64_t k = 0; k < m->n_groups && k < m->group_cap; k++) {
        tt_past_group *g = &m->groups[(m->n_groups - 1 - k) % m->group_cap];
        if (g->id != id)
            continue;
        g->n = 0;
        tt_mixing_forget_look(m);
        return;
    }
}

static uint32_t find(uint32_t *part, uint32_t i)
{
    while (part[i] != i) {
        part[i] = part[part[i]];
        i = part[i];
    }
    return i;
}

static bool counts(const tt_rule *rule, uint32_t worker)
{
    const tt_rule_worker *w = &rule->workers[worker];
    return w->state != TT_WORKER_ABSENT && !w->is_last;
}

/* Joins a group's members; how many fewer components of those that count. A
 * component counts by its root: the root is one that counts if any does. */
static uint32_t join(tt_rule *rule, const tt_past_group *g)
{
    tt_mixing *m = &rule->mixing;
    uint32_t joined = 0;
    for (uint32_t i = 1; i < g->n; i++) {
        uint32_t a = find(m->part, member(m, g, 0));
        uint32_t b = find(m->part, member(m, g, i));
        if (a == b)
            continue;
        bool a_counts = counts(rule, a);
        bool b_counts = counts(rule, b);
        joined += a_counts && b_counts;
        m->part[a_counts ? b : a] = a_counts ? a : b;
    }
    return joined;
}

/* Components over the window, and until when one is sure. */
static void look(tt_rule *rule)
{
    tt_mixing *m = &rule->mixing;
    const uint32_t window = tt_mixing_window(rule);
    if (m->looked == m->n_groups + 1 && m->window == window)
        return;
    m->window = window;
    m->components = 0;
    for (uint32_t i = 0; i < rule->n; i++) {
        m->part[i] = i;
        m->components += counts(rule, i);
    }
    uint32_t k = 0;
    for (; k < window && m->components > 1; k++) {
        const tt_past_group *g = newest(m, k);
        if (!g)
            break;
        m->components -= join(rule, g);
    }
    m->looked = m->n_groups + 1;
    m->connected_until = m->components == 1 ? m->n_groups + (window - k) : 0;
}

bool tt_mixing_is_frozen(tt_rule *rule)
{
    tt_mixing *m = &rule->mixing;
    const uint32_t window = tt_mixing_window(rule);
    if (rule->opts.is_blind || m->n_groups < window ||
        (m->n_groups < m->connected_until && m->window == window))
        return false;
    look(rule);
    if (m->components > rule->told.most_components)
        rule->told.most_components = m->components;
    return m->components > 1;
}

uint32_t tt_mixing_part(const tt_rule *rule, uint32_t worker)
{
    return find(rule->mixing.part, worker);
}

uint32_t tt_mixing_components(tt_rule *rule)
{
    look(rule);
    return rule->mixing.components;
}

/* --------------------------------------------------------- spectral gap -- */

/* y = (mean of the window's averaging matrices) x. Returns how many groups. */
static uint32_t average(tt_rule *rule, uint32_t window)
{
    tt_mixing *m = &rule->mixing;
    uint32_t n_groups = 0;
    for (uint32_t i = 0; i < rule->n; i++)
        m->y[i] = 0;
    for (uint32_t k = 0; k < window; k++) {
        const tt_past_group *g = newest(m, k);
        if (!g)
            break;
        n_groups++;
        double mean = 0;
        for (uint32_t i = 0; i < g->n; i++)
            mean += m->x[member(m, g, i)];
        for (uint32_t i = 0; i < g->n; i++) {
            uint32_t w = member(m, g, i);
            m->y[w] += mean / g->n - m->x[w];
        }
    }
    for (uint32_t i = 0; i < rule->n && n_groups > 0; i++)
        m->y[i] = m->x[i] + m->y[i] / n_groups;
    return n_groups;
}

/* Takes the mean away, makes the length 1; returns the length before. */
static double centre(const tt_rule *rule, double *x, uint32_t n_alive)
{
    double mean = 0;
    double square = 0;
    for (uint32_t i = 0; i < rule->n; i++) {
        if (!counts(rule, i))
            x[i] = 0;
        mean += x[i] / n_alive;
    }
    for (uint32_t i = 0; i < rule->n; i++) {
        if (counts(rule, i))
            x[i] -= mean;
        square += x[i] * x[i];
    }
    double length = sqrt(square);
    for (uint32_t i = 0; i < rule->n && length > 0; i++)
        x[i] /= length;
    return length;
}

/* The mean of projections is symmetric and positive: the power method finds
 * its greatest eigenvalue beside that of the mean, from below. */
double tt_mixing_gap(tt_rule *rule)
{
    enum { STEPS = 100 };
    tt_mixing *m = &rule->mixing;
    uint32_t n_alive = 0;
    for (uint32_t i = 0; i < rule->n; i++) {
        n_alive += counts(rule, i);
        m->x[i] = (double)((i * 2654435761u) % 1000u) - 500;
    }
    if (n_alive < 2)
        return 1;
    double value = 0;
    centre(rule, m->x, n_alive);
    for (int s = 0; s < STEPS; s++) {
        if (average(rule, tt_mixing_window(rule)) == 0)
            return 0;
        value = centre(rule, m->y, n_alive);
        memcpy(m->x, m->y, rule->n * sizeof(double));
        if (value <= 0)
            break;
    }
    return value < 1 ? 1 - value : 0;
}
