/* SPDX-License-Identifier: BSD-3-Clause
 * begin.c - what rank 0 tells the inference before the first round: hosts,
 * interfaces, who reaches whom and how soon. Hosts that cannot reach each other
 * end the probe here, by name, unless others join them that do not forward
 * (infer/opening.c). Next: probe_rounds.c. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "probe/parts.h"

/* "tried eth0 10.0.0.1 to eth1 10.1.0.2 (no answer)": what was done in vain. */
static void tell_tries(const tt_probe *p, uint32_t a, uint32_t b, char *out,
                       size_t size)
{
    uint32_t n_more = 0;
    size_t used = 0;
    snprintf(out, size,
             "they have no addresses of one family (IPv4, IPv6, link-local)");
    for (uint32_t i = p->first_try[a]; i < p->first_try[a + 1]; i++) {
        const tutti_probe_way *w = &p->ways[i];
        if (p->place_host[p->tries[i].dst] != b)
            continue;
        n_more += used + 150 > size;
        if (n_more == 0)
            used += (size_t)snprintf(
                out + used, size - used, "%s%s %.45s to %s %.45s (%.30s)",
                used ? ", " : "tried ", w->from_dev, w->from_address, w->to_dev,
                w->to_address, w->outcome);
    }
    if (n_more > 0)
        snprintf(out + used, size - used, " and %u more", n_more);
}

/* Hosts that cannot reach each other, by name; of those that did in `before`,
 * [n_hosts][n_hosts], unless it is NULL; one_sided: only those of which one
 * reaches the other. */
static tutti_err check_reach(const tt_probe *p, const uint8_t *before,
                             bool one_sided, tutti_diag *diag)
{
    char pairs[160] = "", tries[260] = "";
    uint32_t n = 0, n_named = 0, n_one_sided = 0;
    size_t used = 0;
    for (uint32_t a = 0; a < p->n_hosts; a++) {
        for (uint32_t b = a + 1; b < p->n_hosts; b++) {
            bool there = tt_probe_reaches(p, a, b);
            bool back = tt_probe_reaches(p, b, a);
            if ((there && back) || (before && !before[a * p->n_hosts + b]) ||
                (one_sided && !there && !back))
                continue;
            n_one_sided += there || back;
            if (n++ == 0)
                there ? tell_tries(p, b, a, tries, sizeof(tries))
                      : tell_tries(p, a, b, tries, sizeof(tries));
            const char *x = p->hosts[a].name, *y = p->hosts[b].name;
            size_t len = strlen(", ") + strlen(x) + strlen(" and ") + strlen(y);
            if (n_named + 1 < n || len >= sizeof(pairs) - used)
                continue; /* those that are named are the first ones */
            used += (size_t)snprintf(pairs + used, sizeof(pairs) - used,
                                     "%s%s and %s", used ? ", " : "", x, y);
            n_named++;
        }
    }
    if (n == 0)
        return TUTTI_OK;
    if (n == n_one_sided)
        return tt_fail(diag, TUTTI_ENET,
                       "%u pair%s of hosts can call each other from one side "
                       "only: %s%s; %s; where a router translates addresses "
                       "the network cannot be measured, but a job works that "
                       "does not measure it (no --probe)",
                       n, n > 1 ? "s" : "", pairs, n > n_named ? ", ..." : "",
                       tries);
    return tt_fail(diag, TUTTI_ENET,
                   "%u pair%s of hosts cannot reach each other: %s%s; %s; "
                   "is a firewall between, or the wrong interface chosen "
                   "(TUTTI_SOCKET_IFNAME)?",
                   n, n > 1 ? "s" : "", pairs, n > n_named ? ", ..." : "",
                   tries);
}

/* A flow is called from where it comes. */
static tutti_err check_one_sided(const tt_probe *p, tutti_diag *diag)
{
    for (uint32_t a = 0; a < p->n_hosts; a++) {
        for (uint32_t b = a + 1; b < p->n_hosts; b++) {
            if (tt_probe_reaches(p, a, b) != tt_probe_reaches(p, b, a))
                return check_reach(p, NULL, true, diag);
        }
    }
    return TUTTI_OK;
}

/* Hosts that still have another way: interfaces are named. */
static tutti_err fail_ports(const tt_probe *p, const uint8_t *is_lost,
                            tutti_diag *diag)
{
    uint32_t n = 0, first = 0;
    for (uint32_t i = p->n_ports * p->n_ports; i-- > 0;) {
        n += is_lost[i];
        first = is_lost[i] ? i : first;
    }
    const tt_infer_port *from = &p->ports[first / p->n_ports];
    const tt_infer_port *to = &p->ports[first % p->n_ports];
    char more[60] = "";
    if (n > 1)
        snprintf(more, sizeof(more),
                 ", and so have %u more pairs of interfaces", n - 1);
    return tt_fail(diag, TUTTI_ENET,
                   "while the network was measured %s of host %s has ceased to "
                   "reach %s of host %s%s; mend it, or leave interfaces out "
                   "with TUTTI_SOCKET_IFNAME",
                   from->dev, p->hosts[from->host].name, to->dev,
                   p->hosts[to->host].name, more);
}

tutti_err tt_probe_say_lost(tt_probe *p, const uint8_t *is_lost,
                            tutti_diag *diag)
{
    const uint32_t n = p->n_hosts;
    uint8_t *before = tt_arena_new(&p->arena, (size_t)n * n, 1);
    if (!before)
        return tt_probe_no_memory(diag);
    for (uint32_t i = 0; i < n * n; i++)
        before[i] = tt_probe_reaches(p, i / n, i % n);
    for (uint32_t i = 0; i < p->n_ports * p->n_ports; i++)
        p->best[i] = is_lost[i] ? TT_NONE : p->best[i];
    tutti_err err = tt_probe_choose(p, diag);
    if (!err)
        err = check_reach(p, before, false, diag);
    return err ? err : fail_ports(p, is_lost, diag);
}

typedef struct inputs {
    const char **names;
    uint8_t *reach;
    uint32_t *n_ranks, *place;
} inputs;

static tutti_err make_inputs(tt_probe *p, inputs *in, tutti_diag *diag)
{
    size_t n = (size_t)p->n_ports * p->n_ports;
    uint32_t used = 0;
    in->names = tt_arena_new(&p->arena, p->n_hosts, sizeof(*in->names));
    in->reach = tt_arena_new(&p->arena, n + 1, 1);
    in->n_ranks = tt_arena_new(&p->arena, p->n_hosts, sizeof(uint32_t));
    in->place = tt_arena_new(&p->arena, p->job->n_ranks, sizeof(uint32_t));
    if (!in->names || !in->reach || !in->n_ranks || !in->place)
        return tt_probe_no_memory(diag);
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        in->names[h] = p->hosts[h].name;
        in->n_ranks[h] = p->hosts[h].n_ranks;
        for (uint32_t r = 0; r < p->job->n_ranks; r++) {
            if (p->host_of[r] == h)
                in->place[used++] = r;
        }
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t number = p->best[i];
        tt_try_state state = number == TT_NONE
                                 ? TT_TRY_NOT
                                 : (tt_try_state)p->marks[number].state;
        in->reach[i] = state == TT_TRY_LINK     ? TT_REACH_LINK
                       : state == TT_TRY_ROUTED ? TT_REACH_ROUTED
                                                : TT_REACH_NONE;
    }
    return TUTTI_OK;
}

/* Two packets of 1514 bytes are acknowledged by one of 66. */
static const double ack_share = 66. / (2 * 1514);

static void tick(void *ctx)
{
    tt_probe_alive(ctx);
}

/* Rank 0: what the inference has to know before the first round. */
tutti_err tt_probe_begin(tt_probe *p, tutti_diag *diag)
{
    inputs in;
    tutti_err err = tt_probe_choose(p, diag);
    if (!err)
        err = check_one_sided(p, diag);
    if (!err)
        err = make_inputs(p, &in, diag);
    if (err)
        return err;
    const tt_infer_spec spec = {.n_hosts = p->n_hosts,
                                .n_ports = p->n_ports,
                                .names = in.names,
                                .ports = p->ports,
                                .reach = in.reach,
                                .n_ranks = in.n_ranks,
                                .place = in.place,
                                .ack = ack_share,
                                .seed = TT_FNV1A_START,
                                .tick = tick,
                                .tick_ctx = p};
    err = tt_infer_open(&spec, p->mem, &p->infer, diag);
    if (err == TUTTI_ENET) { /* with what was tried */
        tutti_err told = check_reach(p, NULL, false, diag);
        err = told ? told : err;
    }
    for (uint32_t i = 0; !err && i < p->n_ports * p->n_ports; i++) {
        if (p->best[i] != TT_NONE)
            tt_infer_latency(p->infer, i / p->n_ports, i % p->n_ports,
                             p->marks[p->best[i]].rtt_us * UINT64_C(500000));
    }
    return err;
}
