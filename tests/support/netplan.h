/* SPDX-License-Identifier: BSD-3-Clause
 * netplan.h - networks, plans for them, and the work they make for its links.
 * Include support/tap.h first. */
#ifndef TT_TESTS_NETPLAN_H
#define TT_TESTS_NETPLAN_H

#include <stdio.h>

#include "plan/plan.h"
#include "verify/verify.h"

/* Of a generator's spec; fails the test. */
static inline tutti_topology *tt_test_network(const char *spec)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topology_generate(&tt_mem_std, spec, &t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    return t;
}

/* Of a schedule's text, but for its first and its last line. */
static inline tutti_schedule *tt_test_schedule(const char *body)
{
    char text[2048];
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    int n = snprintf(text, sizeof(text), "tutti-schedule 1\n%send\n", body);
    assert_true(n > 0 && (size_t)n < sizeof(text));
    if (tt_sched_parse(&tt_mem_std, text, (size_t)n, &s, &diag))
        fail_msg("line %u: %s", diag.line, diag.text);
    return s;
}

static inline tt_routes *tt_test_routes(const tutti_topology *t)
{
    tt_routes *routes = NULL;
    tutti_diag diag = {0};
    if (tt_routes_create(t, &tt_mem_std, &routes, &diag))
        fail_msg("%s", diag.text);
    return routes;
}

/* block_bytes may be NULL. The root is the rank in the middle. */
static inline tutti_schedule *tt_test_plan(const char *planner,
                                           const tutti_topology *t,
                                           tutti_coll coll, uint64_t size_bytes,
                                           const uint64_t *block_bytes)
{
    tt_routes *routes = tt_test_routes(t);
    const tt_problem p = {
        .collective = coll,
        .n_ranks = t->n_ranks,
        .root = tt_coll_has_root(coll) ? t->n_ranks / 2 : TT_NONE,
        .size_bytes = size_bytes,
        .topology = t,
        .routes = routes,
        .block_bytes = block_bytes,
    };
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    if (tt_plan_build(tt_planner_find(planner), &p, &tt_mem_std, &s, &diag))
        fail_msg("%s, %s, %u ranks: %s", planner, tutti_coll_name(coll),
                 t->n_ranks, diag.text);
    tt_routes_free(routes);
    return s;
}

static inline void tt_test_proven(const tutti_schedule *s, const char *what)
{
    tutti_diag diag = {0};
    if (tt_verify(s, &tt_mem_std, &diag))
        fail_msg("%s, %s, %u ranks: %s", what, tutti_coll_name(s->collective),
                 s->n_ranks, diag.text);
}

/* The share of its block that a chunk is. */
static inline double tt_test_part(const tutti_schedule *s, uint32_t chunk)
{
    const tt_chunk *c = &s->chunks[chunk];
    return (double)(c->end - c->begin) / (double)s->n_parts;
}

/* The most seconds that any link works, per byte of a block. */
static inline double tt_test_busiest(const tutti_schedule *s,
                                     const tutti_topology *t)
{
    tt_routes *routes = tt_test_routes(t);
    size_t n_route = (size_t)tt_routes_max_links(routes) + 1;
    uint32_t *route = tt_new(&tt_mem_std, n_route, sizeof(*route));
    double *busy = tt_new(&tt_mem_std, t->n_links + 1, sizeof(*busy));
    double most = 0;
    assert_true(route && busy);
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *x = &s->transfers[i];
        uint32_t n = tt_route(routes, x->src, x->dst, x->rail, route);
        for (uint32_t j = 0; j < n; j++) {
            double *link = &busy[route[j]];
            *link += tt_test_part(s, x->chunk) /
                     tt_link_bytes_per_s(&t->links[route[j]]);
            most = *link > most ? *link : most;
        }
    }
    tt_free(&tt_mem_std, busy, t->n_links + 1, sizeof(*busy));
    tt_free(&tt_mem_std, route, n_route, sizeof(*route));
    tt_routes_free(routes);
    return most;
}

/* The same for an all-reduce of 64 MiB, in seconds per Mbit. */
static inline void tt_test_takes(const char *planner, const char *spec,
                                 double want)
{
    tutti_topology *t = tt_test_network(spec);
    tutti_schedule *s = tt_test_plan(planner, t, TUTTI_ALL_REDUCE,
                                     UINT64_C(1) << 26, NULL);
    tt_test_proven(s, spec);
    double got = tt_test_busiest(s, t) * 1e6 / 8;
    if (got < want * (1 - 1e-4) || got > want * (1 + 1e-4))
        fail_msg("%s, %s: %.6g instead of %.6g", planner, spec, got, want);
    tt_sched_free(s);
    tt_topology_free(t);
}

#endif
