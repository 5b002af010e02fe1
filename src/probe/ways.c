/* SPDX-License-Identifier: BSD-3-Clause
 * ways.c - what people are told of every pair of addresses: what became of it,
 * which one two hosts would take, and why.
 *
 * Of the pairs of interfaces that reach each other the fastest is taken, as
 * measured; where this very pair was not, what each end has carried at most
 * with others counts, the slower of both. Once the network is known none is
 * faster than its interfaces there: the most of many measurements is one in
 * which the link had saved up for a burst. Among equals an address on the same
 * link goes before one that is routed, then the least latency. Of the addresses
 * of an interface the one that flows took is the interface's.
 * Next       probe.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "probe/parts.h"

/* Rates that differ by less are equal. */
static const double equal_rates = 0.1;

static double most_of(const tt_probe *p, uint32_t port, bool is_out)
{
    double most = 0;
    for (uint32_t q = 0; q < p->n_ports; q++) {
        double bps = is_out ? p->bps[(size_t)port * p->n_ports + q]
                            : p->bps[(size_t)q * p->n_ports + port];
        most = bps > most ? bps : most;
    }
    return most;
}

/* What two interfaces carry, as far as it is known; outs, ins: by port; limits:
 * the same in the network that was found. */
typedef struct speeds {
    double *out, *in, *out_limit, *in_limit;
} speeds;

static double speed_of(const tt_probe *p, const speeds *s, uint32_t number)
{
    uint32_t a = p->place_port[p->tries[number].src];
    uint32_t b = p->place_port[p->tries[number].dst];
    double bps = p->bps[(size_t)a * p->n_ports + b];
    if (!(bps > 0))
        bps = fmin(s->out[a], s->in[b]);
    return fmin(bps, fmin(s->out_limit[a], s->in_limit[b]));
}

/* Of links without a name, and of interfaces that are not in the network,
 * nothing is known. */
static void find_limits(const tt_probe *p, uint32_t port, const speeds *s)
{
    const tutti_topology *t = p->topology;
    const char *dev = p->ports[port].dev;
    const char *host = p->hosts[p->ports[port].host].name;
    s->out_limit[port] = s->in_limit[port] = INFINITY;
    for (uint32_t i = 0; t && dev && i < t->n_links; i++) {
        const tt_link *l = &t->links[i];
        if (!l->dev || strcmp(l->dev, dev) != 0 ||
            strcmp(t->nodes[l->from].name, host) != 0)
            continue;
        s->out_limit[port] = (double)l->rate_bps;
        if (l->twin != TT_NONE)
            s->in_limit[port] = (double)t->links[l->twin].rate_bps;
    }
}

static bool is_better(const tt_probe *p, const speeds *s, uint32_t a,
                      uint32_t b)
{
    double x = speed_of(p, s, a), y = speed_of(p, s, b);
    const tt_probe_mark *m = &p->marks[a], *n = &p->marks[b];
    if (x > y * (1 + equal_rates) || y > x * (1 + equal_rates))
        return x > y;
    if (m->state != n->state)
        return m->state > n->state;
    return m->rtt_us < n->rtt_us;
}

static bool is_best(const tt_probe *p, uint32_t number)
{
    const tt_probe_try *t = &p->tries[number];
    return p->best[(size_t)p->place_port[t->src] * p->n_ports +
                   p->place_port[t->dst]] == number;
}

/* The try that host `from` would take to where `first` leads; *n: how many
 * pairs of interfaces reach. */
static uint32_t choose(const tt_probe *p, const speeds *s, uint32_t first,
                       uint32_t end, uint32_t *n)
{
    uint32_t chosen = TT_NONE;
    *n = 0;
    for (uint32_t i = first; i < end; i++) {
        if (!is_best(p, i))
            continue;
        ++*n;
        if (chosen == TT_NONE || is_better(p, s, i, chosen))
            chosen = i;
    }
    return chosen;
}

static const char *reason(const tt_probe *p, const speeds *s, uint32_t number,
                          uint32_t chosen, uint32_t n)
{
    if (p->marks[number].state < TT_TRY_ROUTED)
        return NULL;
    if (!is_best(p, number))
        return "the interfaces have a better pair of addresses";
    if (number == chosen && n == 1)
        return "the only pair of interfaces that connects";
    double x = speed_of(p, s, number), y = speed_of(p, s, chosen);
    bool is_equal = x <= y * (1 + equal_rates) && y <= x * (1 + equal_rates);
    if (number == chosen)
        return y > 0 ? "the fastest, or as fast as others and nearer"
                     : "the nearest; speeds were not measured";
    if (y > 0 && !(x > 0))
        return "was not measured";
    if (is_equal)
        return "as fast as the chosen one, but not nearer";
    return "slower than the chosen one";
}

static const char *outcome(const tt_probe_mark *mark)
{
    static const char *const texts[TT_TRY_STATES] = {
        [TT_TRY_NOT] = "not tried",
        [TT_TRY_OWN] = "is an address of the calling host itself",
        [TT_TRY_SILENT] = "no answer",
        [TT_TRY_STRANGE] = "somebody else answers there",
        [TT_TRY_ROUTED] = "connects, routed",
        [TT_TRY_LINK] = "connects, in one subnet"};
    return mark->state == TT_TRY_FAILED ? tt_errno_text(mark->why)
                                        : texts[mark->state];
}

/* The address alone; LINK-local ones without the interface, which is told
 * anyway. */
static const char *address(tt_probe *p, uint32_t place)
{
    char text[TT_SOCK_TEXT];
    tt_addr addr;
    tt_addr_of(p->places[place].family, p->places[place].ip, 0, &addr);
    tt_addr_text(&addr, text);
    size_t len = strlen(text);
    bool is_v6 = text[0] == '[';
    char *out = tt_arena_new(&p->arena, len + 1, 1);
    if (!out)
        return NULL;
    /* without port and brackets */
    size_t end = (size_t)(strrchr(text, ':') - text);
    memcpy(out, text + is_v6, end - (is_v6 ? 2 : 0));
    return out;
}

static tutti_probe_way way_of(const tt_probe *p, const speeds *s, uint32_t i,
                              const char *const *texts)
{
    const tt_probe_try *t = &p->tries[i];
    const tt_probe_mark *mark = &p->marks[i];
    bool reaches = mark->state >= TT_TRY_ROUTED;
    return (tutti_probe_way){
        .from = p->hosts[p->place_host[t->src]].name,
        .to = p->hosts[p->place_host[t->dst]].name,
        .from_dev = p->places[t->src].dev,
        .to_dev = p->places[t->dst].dev,
        .from_address = texts[t->src],
        .to_address = texts[t->dst],
        .outcome = outcome(mark),
        .connects = reaches,
        .latency_s = reaches ? mark->rtt_us * 0.5e-6 : 0,
        .bytes_per_s = is_best(p, i) ? speed_of(p, s, i) / 8 : 0,
    };
}

static void fill_ways(tt_probe *p, const speeds *s, const char *const *texts)
{
    for (uint32_t i = 0; i < p->n_tries;) {
        uint32_t to = p->place_host[p->tries[i].dst], end = i, n;
        uint32_t from = p->place_host[p->tries[i].src];
        while (end < p->n_tries && p->place_host[p->tries[end].dst] == to &&
               p->place_host[p->tries[end].src] == from)
            end++;
        uint32_t chosen = choose(p, s, i, end, &n);
        for (; i < end; i++) {
            p->ways[i] = way_of(p, s, i, texts);
            p->ways[i].is_chosen = i == chosen;
            p->ways[i].why = reason(p, s, i, chosen, n);
        }
    }
}

static bool find_speeds(tt_probe *p, const speeds *s)
{
    if (!s->out || !s->in || !s->out_limit || !s->in_limit)
        return false;
    for (uint32_t i = 0; i < p->n_ports; i++) {
        s->out[i] = most_of(p, i, true);
        s->in[i] = most_of(p, i, false);
        find_limits(p, i, s);
    }
    return true;
}

tutti_err tt_probe_choose(tt_probe *p, tutti_diag *diag)
{
    tt_arena arena = {.mem = p->mem};
    size_t n = p->n_ports + 1;
    const speeds s = {.out = tt_arena_new(&arena, n, sizeof(double)),
                      .in = tt_arena_new(&arena, n, sizeof(double)),
                      .out_limit = tt_arena_new(&arena, n, sizeof(double)),
                      .in_limit = tt_arena_new(&arena, n, sizeof(double))};
    const char **texts = tt_arena_new(&arena, p->n_places + 1, sizeof(*texts));
    p->ways = tt_arena_new(&p->arena, p->n_tries + 1, sizeof(*p->ways));
    bool is_made = find_speeds(p, &s) && texts && p->ways;
    for (uint32_t i = 0; is_made && i < p->n_places; i++) {
        texts[i] = address(p, i);
        is_made = texts[i];
    }
    if (is_made)
        fill_ways(p, &s, texts);
    tt_arena_free(&arena);
    return is_made ? TUTTI_OK : tt_probe_no_memory(diag);
}
