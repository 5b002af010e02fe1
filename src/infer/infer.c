/* SPDX-License-Identifier: BSD-3-Clause
 * infer.c - the order of things: what each plane would like to measure next
 * runs at the same time, in one round.
 *
 * Idea       Planes know nothing of each other, and are measured at the same
 *            time also where they share hosts: that is how they will be used,
 *            and a host that cannot feed all its interfaces at once has no more
 *            than it can feed. Each plane goes its own course (plane.c); those
 *            that have come to their end are left out of further rounds.
 * Invariant  The look that a plane has in the round, if any, is the first that
 *            it has not been told.
 * Next       opening.c, plane.c, drawing.c. */
#include <math.h>

#include "infer/inference.h"

/* So many rounds in vain are enough for one way of an interface. */
enum { MAX_VAIN = 3 };
/* So many rounds without any answer from a host that was asked. */
enum { MAX_SILENT = 6 };
/* As in probe/slowifaces.c, and some: neither must hang on the noise. */
#define MUCH_FASTER 10.0

/* --------------------------------------------------------- open and close */

tutti_err tt_infer_open(const tt_infer_spec *spec, const tt_mem *mem,
                        tt_infer **out, tutti_diag *diag)
{
    tutti_err err = tt_infer_check(spec, diag);
    if (err)
        return err;
    tt_infer *inf = tt_new(mem, 1, sizeof(*inf));
    if (!inf)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    inf->mem = mem;
    inf->arena.mem = mem;
    inf->text.mem = mem;
    err = tt_infer_make(inf, spec, diag);
    if (err)
        tt_infer_close(inf);
    else
        *out = inf;
    return err;
}

void tt_infer_close(tt_infer *inf)
{
    if (!inf)
        return;
    for (uint32_t i = 0; inf->planes && i < inf->n_planes; i++)
        tt_arena_free(&inf->planes[i].arena);
    tt_str_free(&inf->text);
    tt_arena_free(&inf->arena);
    tt_free(inf->mem, inf, 1, sizeof(*inf));
}

/* ------------------------------------------------------------------- next */

static tutti_err add_flow(tt_infer *inf, uint32_t src, uint32_t dst)
{
    inf->flows = tt_arena_grow(&inf->arena, inf->flows, &inf->cap_flows,
                               inf->n_flows + 1, sizeof(*inf->flows));
    if (!inf->arena.err)
        inf->flows[inf->n_flows++] =
            (tt_infer_flow){.src = src, .dst = dst, .part = 1};
    return inf->arena.err;
}

/* From flow `first` of the round on. */
static void count_flows(tt_infer *inf, uint32_t first)
{
    for (uint32_t i = 0; i < 2 * inf->spec.n_ports; i++)
        inf->ways[i].n = 0;
    for (uint32_t i = first; i < inf->n_flows; i++) {
        tt_port_out(inf, inf->flows[i].src)->n++;
        tt_port_in(inf, inf->flows[i].dst)->n++;
    }
}

/* What the ports have shown that they can do, shared; 0: nothing is known. */
static void guess_by_ports(tt_infer *inf, uint32_t first)
{
    count_flows(inf, first);
    for (uint32_t i = first; i < inf->n_flows; i++) {
        tt_infer_flow *f = &inf->flows[i];
        const tt_port_way *out = tt_port_out(inf, f->src);
        const tt_port_way *in = tt_port_in(inf, f->dst);
        const double from = out->bps / out->n, to = in->bps / in->n;
        f->guess_bps = fmin(from, to);
        f->link_bps = from < to ? out->bps : in->bps;
    }
}

/* Both ways are equally fast if one has that of the other. */
static const double even = 0.8;

/* With as much on the way there as back a pair would be as slow both ways as
 * the slower one. */
static void set_parts(tt_infer *inf, uint32_t first)
{
    for (uint32_t i = first; i < inf->n_flows; i++) {
        tt_infer_flow *f = &inf->flows[i];
        double fast = f->guess_bps;
        for (uint32_t k = first; k < inf->n_flows; k++) {
            const tt_infer_flow *back = &inf->flows[k];
            if (back->src == f->dst && back->dst == f->src)
                fast = fmax(fast, back->guess_bps);
        }
        if (f->guess_bps > 0 && f->guess_bps <= even * fast)
            f->part = f->guess_bps / fast;
    }
}

static tutti_err guess_look(tt_infer *inf, tt_plane *p, const tt_look *look,
                            uint32_t first)
{
    const tt_flow *flows = p->looks.flows + look->first;
    guess_by_ports(inf, first);
    if (p->n_thoughts == 0)
        return TUTTI_OK;
    tutti_err err = tt_maxmin(&p->filler, &p->best, flows, look->n);
    for (uint32_t i = 0; i < look->n && !err; i++) {
        tt_infer_flow *f = &inf->flows[first + i];
        if (p->filler.bps[i] >= f->guess_bps)
            continue;
        f->guess_bps = p->filler.bps[i];
        f->link_bps = *tt_model_bps(&p->best, p->filler.by[i]);
    }
    return err;
}

static tutti_err add_look(tt_infer *inf, tt_plane *p, const tt_look *look)
{
    tt_flow *flows = p->looks.flows + look->first;
    uint32_t first = inf->n_flows;
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < look->n && !err; i++)
        err = add_flow(inf, p->port[flows[i].src], p->port[flows[i].dst]);
    if (!err)
        err = guess_look(inf, p, look, first);
    if (err)
        return err;
    set_parts(inf, first);
    for (uint32_t i = 0; i < look->n; i++)
        flows[i].part = inf->flows[first + i].part;
    return TUTTI_OK;
}

static tutti_err add_cables(tt_infer *inf)
{
    tt_cables *c = &inf->cables;
    uint32_t first = inf->n_flows;
    tutti_err err = TUTTI_OK;
    /* A look is empty where all cables can be used one way only. */
    while (!err && inf->n_flows == first && tt_cables_left(c) > 0) {
        for (uint32_t i = 0; i < 2 * c->n && !err; i++) {
            const tt_cable *w = &c->list[i / 2];
            uint32_t back = i & 1;
            if (w->can[back] && tt_cables_now(c, i / 2, back))
                err = add_flow(inf, w->port[back], w->port[!back]);
        }
        if (!err && inf->n_flows == first)
            tt_cables_step(c);
    }
    if (!err)
        guess_by_ports(inf, first);
    for (uint32_t i = first; i < inf->n_flows; i++)
        inf->flows[i].is_alone = true;
    return err;
}

/* Has all that the plane's ports have shown been so much less than what those
 * of the other one have, which joins its hosts too? */
static bool is_minor_to(const tt_infer *inf, const tt_plane *p,
                        const tt_plane *other)
{
    double most = 0, least_seen = INFINITY;
    for (uint32_t i = 0; i < p->n; i++) {
        double up = tt_port_out(inf, p->port[i])->bps;
        double down = tt_port_in(inf, p->port[i])->bps;
        most = fmax(most, fmax(up, down));
        least_seen = fmin(least_seen, fmin(up, down));
    }
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t k = 0;
        while (k < other->n && other->host[k] != p->host[i])
            k++;
        if (k == other->n ||
            tt_port_out(inf, other->port[k])->bps < MUCH_FASTER * most ||
            tt_port_in(inf, other->port[k])->bps < MUCH_FASTER * most)
            return false;
    }
    return least_seen > 0;
}

/* A plane that nobody will plan with, a network for administration beside one
 * for data, is not worth more rounds once each port of it has been measured:
 * they take long there. */
static void leave_minor(const tt_infer *inf, tt_plane *p)
{
    tt_looks *l = &p->looks;
    for (uint32_t i = 0; i < inf->n_planes && !p->is_done && l->n_told; i++)
        p->is_done = is_minor_to(inf, p, &inf->planes[i]);
    if (p->is_done && l->n_told < l->n) {
        l->n = l->n_told;
        l->n_flows = l->n_told_flows;
    }
}

static tutti_err make_round(tt_infer *inf, const char **why)
{
    inf->n_flows = 0;
    *why = "cables";
    tutti_err err = add_cables(inf);
    for (uint32_t i = inf->n_planes; i-- > 0 && !err;) {
        tt_look *look;
        leave_minor(inf, &inf->planes[i]);
        err = tt_plane_next(&inf->planes[i], &look);
        if (err || !look)
            continue;
        err = add_look(inf, &inf->planes[i], look);
        *why = look->why;
    }
    return err;
}

static uint32_t count_likely(const tt_infer *inf)
{
    uint32_t most = tt_cables_left(&inf->cables) + inf->number;
    for (uint32_t i = 0; i < inf->n_planes; i++) {
        uint32_t n = tt_plane_likely(&inf->planes[i]);
        most = n > most ? n : most;
    }
    uint32_t limit = inf->spec.max_rounds;
    return limit > 0 && limit < most ? limit : most;
}

tutti_err tt_infer_next(tt_infer *inf, tt_infer_round *round, tutti_diag *diag)
{
    if (!inf->is_out) {
        tutti_err err = make_round(inf, &inf->why);
        if (err)
            return tt_fail(diag, err, "out of memory");
        if (inf->n_flows == 0)
            return TUTTI_OK;
        inf->is_cut = inf->spec.max_rounds > 0 &&
                      inf->number >= inf->spec.max_rounds;
        if (inf->is_cut)
            return TUTTI_OK;
        inf->is_out = true;
    }
    *round = (tt_infer_round){.number = inf->number,
                              .n_likely = count_likely(inf),
                              .n_flows = inf->n_flows,
                              .flows = inf->flows,
                              .why = inf->why};
    return TUTTI_AGAIN;
}

/* ------------------------------------------------------------------- told */

static double good(double bps)
{
    return isfinite(bps) && bps > 0 ? bps : NAN;
}

static double mean_of(const tt_infer_rate *rate)
{
    double mean = good(rate->mean_bps);
    return isnan(mean) || isnan(good(rate->bps)) ? good(rate->bps) : mean;
}

/* One end of a flow, and where the other is. */
static void hear(tt_infer *inf, uint32_t host, uint32_t peer, bool measured)
{
    tt_silence *s = &inf->silence[host];
    s->is_heard |= measured;
    if (measured || (peer == s->peer && inf->spec.n_hosts > 2))
        return;
    s->is_asked = true;
    s->next_peer = peer;
}

/* Hosts that do not answer, whoever asks. (That two do not reach each other
 * may be their own affair.) */
static tutti_err count_silent(tt_infer *inf, const tt_infer_rate *rates,
                              tutti_diag *diag)
{
    const tt_infer_port *ports = inf->spec.ports;
    uint32_t worst = 0;
    for (uint32_t i = 0; i < inf->n_flows; i++) {
        uint32_t src = ports[inf->flows[i].src].host;
        uint32_t dst = ports[inf->flows[i].dst].host;
        bool measured = !isnan(good(rates[i].bps));
        hear(inf, src, dst, measured);
        hear(inf, dst, src, measured);
    }
    for (uint32_t h = 0; h < inf->spec.n_hosts; h++) {
        tt_silence *s = &inf->silence[h];
        if (s->is_heard)
            s->n = 0;
        else if (s->is_asked)
            s->n++;
        s->peer = s->is_asked ? s->next_peer : s->peer;
        s->is_heard = s->is_asked = false;
        worst = s->n > inf->silence[worst].n ? h : worst;
    }
    if (inf->silence[worst].n < MAX_SILENT)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_EPEER,
                   "nothing from or to host %s could be measured in %d rounds; "
                   "is it still there?",
                   tt_host_name(inf, worst), MAX_SILENT);
}

static void note_ways(tt_infer *inf, const tt_infer_rate *rates)
{
    count_flows(inf, 0);
    for (uint32_t i = 0; i < 2 * inf->spec.n_ports; i++)
        inf->ways[i].sum = 0;
    for (uint32_t i = 0; i < inf->n_flows; i++) {
        double got = mean_of(&rates[i]);
        tt_port_out(inf, inf->flows[i].src)->sum += isnan(got) ? 0 : got;
        tt_port_in(inf, inf->flows[i].dst)->sum += isnan(got) ? 0 : got;
    }
    for (uint32_t i = 0; i < 2 * inf->spec.n_ports; i++) {
        tt_port_way *w = &inf->ways[i];
        w->bps = fmax(w->bps, w->sum);
        w->vain += w->n > 0 && w->vain < MAX_VAIN;
    }
}

/* In the order in which make_round has put them there. */
static void tell_all(tt_infer *inf, const tt_infer_rate *rate)
{
    tt_cables *c = &inf->cables;
    bool any = tt_cables_left(c) > 0;
    for (uint32_t i = 0; i < c->n && any; i++) {
        for (int back = 0; back < 2; back++) {
            if (c->list[i].can[back] && tt_cables_now(c, i, back))
                tt_cables_told(c, i, back, good((rate++)->bps));
        }
    }
    if (any)
        tt_cables_step(c);
    for (uint32_t i = inf->n_planes; i-- > 0;) {
        tt_plane *p = &inf->planes[i];
        if (p->looks.n_told == p->looks.n)
            continue;
        const tt_look *look = &p->looks.list[p->looks.n_told];
        for (uint32_t k = 0; k < look->n; k++, rate++) {
            tt_flow *flow = &p->looks.flows[look->first + k];
            flow->bps = good(rate->bps);
            flow->mean_bps = mean_of(rate);
        }
        tt_plane_told(p);
    }
}

tutti_err tt_infer_told(tt_infer *inf, const tt_infer_rate *rates,
                        uint32_t n_flows, tutti_diag *diag)
{
    if (!inf->is_out)
        return tt_fail(diag, TUTTI_EINVAL, "no round waits to be told");
    if (n_flows != inf->n_flows)
        return tt_fail(diag, TUTTI_EINVAL, "told of %u flows, not of %u",
                       n_flows, inf->n_flows);
    note_ways(inf, rates);
    tell_all(inf, rates);
    inf->is_out = false;
    inf->number++;
    return count_silent(inf, rates, diag);
}

void tt_infer_latency(tt_infer *inf, uint32_t src, uint32_t dst,
                      uint64_t latency_ps)
{
    uint32_t n = inf->spec.n_ports;
    double seconds = (double)latency_ps * 1e-12;
    if (src >= n || dst >= n || src == dst || inf->plane_of[src] == TT_NONE ||
        inf->plane_of[src] != inf->plane_of[dst])
        return;
    if (inf->plane_of[src] >= inf->n_planes) {
        tt_cable *c = &inf->cables.list[inf->plane_of[src] - inf->n_planes];
        c->latency_s = fmin(c->latency_s, seconds);
        return;
    }
    tt_plane *p = &inf->planes[inf->plane_of[src]];
    float *at =
        &p->latency_s[(size_t)inf->leaf_of[src] * p->n + inf->leaf_of[dst]];
    *at = seconds < (double)*at ? (float)seconds : *at;
}

void tt_infer_sockets(tt_infer *inf, uint32_t n)
{
    inf->n_sockets = n;
}

/* Can the port send to any of its plane, or hear any of them? */
static bool can(const tt_infer *inf, uint32_t port, bool down)
{
    uint32_t at = inf->plane_of[port], leaf = inf->leaf_of[port];
    if (at == TT_NONE)
        return false;
    if (at >= inf->n_planes)
        return inf->cables.list[at - inf->n_planes].can[leaf ^ down];
    const tt_plane *p = &inf->planes[at];
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->can[(size_t)(down ? i : leaf) * p->n + (down ? leaf : i)])
            return true;
    }
    return false;
}

bool tt_infer_is_enough(const tt_infer *inf)
{
    for (uint32_t i = 0; i < 2 * inf->spec.n_ports; i++) {
        const tt_port_way *w = &inf->ways[i];
        if (!(w->bps > 0) && w->vain < MAX_VAIN && can(inf, i / 2, i % 2))
            return false;
    }
    return true;
}

void tt_infer_cut(tt_infer *inf)
{
    inf->is_cut = true;
}

/* ------------------------------------------------------------------ finish */

tutti_err tt_infer_finish(tt_infer *inf, tutti_topology **out, tutti_diag *diag)
{
    for (uint32_t i = 0; i < inf->n_planes; i++) {
        tutti_err err = tt_plane_settle(&inf->planes[i]);
        if (err)
            return tt_fail(diag, err, "out of memory");
    }
    return tt_draw(inf, out, diag);
}
