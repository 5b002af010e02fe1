/* SPDX-License-Identifier: BSD-3-Clause
 * pairs.c - TEST SUPPORT, linked only while src/infer has no code of its own:
 * the interface of infer/infer.h by the simplest means. Measures every two
 * interfaces that reach each other, one flow at a time; then all to the k-th
 * next at the same time, for the notes; and makes a star of each set of
 * interfaces that reach each other: no racks, no trunks. */
#include <stdio.h>

#include "infer/infer.h"

struct tt_infer {
    const tt_infer_spec *spec; /* not copied: the probe's lives long enough */
    tt_infer_spec own;
    const tt_mem *mem;
    uint32_t at, n_pairs; /* pairs of ports; those that reach */
    uint32_t number;
    uint32_t shift, n_flows;
    tt_infer_flow flow, flows[64];
    double *out, *in; /* [n_ports] */
    uint64_t least_ps;
    char notes[64][200];
};

tutti_err tt_infer_open(const tt_infer_spec *spec, const tt_mem *mem,
                        tt_infer **out, tutti_diag *diag)
{
    tt_infer *inf = tt_new(mem, 1, sizeof(*inf));
    if (!inf)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    *inf = (tt_infer){.own = *spec, .mem = mem, .least_ps = UINT64_MAX};
    inf->spec = &inf->own;
    inf->out = tt_new(mem, spec->n_ports + 1, sizeof(double));
    inf->in = tt_new(mem, spec->n_ports + 1, sizeof(double));
    for (uint32_t i = 0; i < spec->n_ports * spec->n_ports; i++)
        inf->n_pairs += spec->reach[i] != TT_REACH_NONE;
    *out = inf;
    return TUTTI_OK;
}

void tt_infer_close(tt_infer *inf)
{
    if (!inf)
        return;
    tt_free(inf->mem, inf->out, inf->spec->n_ports + 1, sizeof(double));
    tt_free(inf->mem, inf->in, inf->spec->n_ports + 1, sizeof(double));
    tt_free(inf->mem, inf, 1, sizeof(*inf));
}

static tutti_err next_shift(tt_infer *inf, tt_infer_round *round)
{
    uint32_t n = inf->spec->n_ports;
    if (++inf->shift >= n || n > 64)
        return TUTTI_OK;
    inf->n_flows = 0;
    for (uint32_t a = 0; a < n; a++) {
        uint32_t b = (a + inf->shift) % n;
        double guess = inf->out[a] < inf->in[b] ? inf->out[a] : inf->in[b];
        if (inf->spec->reach[a * n + b])
            inf->flows[inf->n_flows++] = (tt_infer_flow){a, b, guess};
    }
    *round = (tt_infer_round){.number = inf->number,
                              .n_likely = inf->n_pairs + n - 1,
                              .n_flows = inf->n_flows,
                              .flows = inf->flows,
                              .why = "all together"};
    return inf->n_flows ? TUTTI_AGAIN : next_shift(inf, round);
}

static void note_shift(tt_infer *inf, const double *bps)
{
    char *at = inf->notes[inf->shift];
    size_t used = (size_t)snprintf(at, 200, "together:");
    for (uint32_t i = 0; i < inf->n_flows && used < 180; i++)
        used += (size_t)snprintf(at + used, 200 - used, " %u>%u %.1f",
                                 inf->flows[i].src, inf->flows[i].dst,
                                 bps[i] / 1e6);
}

tutti_err tt_infer_next(tt_infer *inf, tt_infer_round *round, tutti_diag *diag)
{
    (void)diag;
    uint32_t n = inf->spec->n_ports;
    while (inf->at < n * n && inf->spec->reach[inf->at] == TT_REACH_NONE)
        inf->at++;
    if (inf->at == n * n)
        return next_shift(inf, round);
    uint32_t a = inf->at / n, b = inf->at % n;
    double guess = inf->out[a] < inf->in[b] ? inf->out[a] : inf->in[b];
    inf->flow = (tt_infer_flow){.src = a, .dst = b, .guess_bps = guess};
    *round = (tt_infer_round){.number = inf->number,
                              .n_likely = inf->n_pairs,
                              .n_flows = 1,
                              .flows = &inf->flow,
                              .why = "pairs alone"};
    return TUTTI_AGAIN;
}

tutti_err tt_infer_told(tt_infer *inf, const double *bps, uint32_t n_flows,
                        tutti_diag *diag)
{
    (void)diag;
    (void)n_flows;
    inf->number++;
    if (inf->shift > 0) {
        note_shift(inf, bps);
        return TUTTI_OK;
    }
    double *out = &inf->out[inf->flow.src], *in = &inf->in[inf->flow.dst];
    *out = bps[0] > *out ? bps[0] : *out;
    *in = bps[0] > *in ? bps[0] : *in;
    inf->at++;
    return TUTTI_OK;
}

void tt_infer_latency(tt_infer *inf, uint32_t src, uint32_t dst,
                      uint64_t latency_ps)
{
    (void)src;
    (void)dst;
    inf->least_ps = latency_ps < inf->least_ps ? latency_ps : inf->least_ps;
}

/* The least port that this one reaches, or is: who has the same is together. */
static uint32_t plane_of(const tt_infer_spec *s, uint32_t port)
{
    for (uint32_t q = 0; q < port; q++) {
        if (s->reach[port * s->n_ports + q] || s->reach[q * s->n_ports + port])
            return q;
    }
    return port;
}

tutti_err tt_infer_finish(tt_infer *inf, tutti_topology **out, tutti_diag *diag)
{
    const tt_infer_spec *s = inf->spec;
    uint32_t nodes[64], switches[64], n = s->n_ports;
    const tt_wire memory = {
        .up_bps = 80000000000, .down_bps = 80000000000, .is_memory = true};
    tt_topo_builder *b;
    if (n > 64 || s->n_hosts > 64)
        return tt_fail(diag, TUTTI_ELIMIT, "test support: 64 interfaces");
    tutti_err err = tt_topo_builder_create(inf->mem, &b, diag);
    for (uint32_t h = 0; !err && h < s->n_hosts; h++)
        nodes[h] = s->n_ranks[h] > 1 ? tt_topo_big_host(b, s->names[h],
                                                        s->n_ranks[h], &memory)
                                     : tt_topo_host(b, s->names[h]);
    for (uint32_t p = 0; !err && p < n; p++) {
        uint32_t plane = plane_of(s, p);
        char name[24];
        snprintf(name, sizeof(name), "net%u", plane);
        switches[p] = plane == p ? UINT32_MAX : switches[plane];
        if (inf->out[p] < 1 || inf->in[p] < 1)
            continue;
        if (switches[p] == UINT32_MAX)
            switches[p] = switches[plane] = tt_topo_switch(b, name);
        tt_wire wire = {.up_bps = (uint64_t)inf->out[p],
                        .down_bps = (uint64_t)inf->in[p],
                        .latency_ps = inf->least_ps / 2,
                        .dev = s->ports[p].dev};
        tt_topo_link(b, nodes[s->ports[p].host], switches[p], &wire);
    }
    uint32_t n_ranks = 0;
    for (uint32_t h = 0; h < s->n_hosts; h++)
        n_ranks += s->n_ranks[h];
    if (!err)
        tt_topo_place(b, s->place, n_ranks);
    snprintf(inf->notes[0], sizeof(inf->notes[0]),
             "every link is the most that single flows have carried");
    return err ? err : tt_topo_seal(b, out, diag);
}

bool tt_infer_note_at(const tt_infer *inf, size_t index, tt_infer_note *out)
{
    if (index >= 64 || !inf->notes[index][0])
        return false;
    *out = (tt_infer_note){.kind = TT_NOTE_LINK, .text = inf->notes[index]};
    return true;
}
