/* SPDX-License-Identifier: BSD-3-Clause
 * networks.c - the functions of tutti_plan.h that are about a topology: open,
 * bound, plan, predict, simulate, contention. Thin, like schedules.c. */
#include "base/nearest.h"
#include "bound/bound.h"
#include "export/export.h"
#include "offline/offline.h"
#include "plan/plan.h"
#include "verify/verify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Larger topology files are refused before they fill the memory. */
static const size_t max_file_bytes = (size_t)1 << 28;

/* ----------------------------------------------------------------- files -- */

/* Names the generator that is nearest, if one is near enough to be meant. */
static tutti_err no_such_network(const char *spec, tutti_diag *diag)
{
    const size_t len = strcspn(spec, ":@");
    size_t least = len / 3 + 1;
    char meant[64] = "";
    tutti_generator_info row;
    for (size_t i = 0; tt_generator_at(i, &row); i++) {
        const size_t apart = tt_letters_apart(spec, len, row.name);
        if (apart > least || (apart == least && meant[0]))
            continue;
        least = apart;
        snprintf(meant, sizeof(meant), "; did you mean %.40s?", row.name);
    }
    return tt_fail(diag, TUTTI_ESYS,
                   "\"%.200s\" is neither a generator (`tutti topo --list` "
                   "names them) nor a file%s",
                   spec, meant);
}

static tutti_err open_file(const char *path, tutti_topology **out,
                           tutti_diag *diag)
{
    FILE *f = fopen(path, "rbe");
    if (!f && errno == ENOENT)
        return no_such_network(path, diag);
    if (!f)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot open %s", path);
    char *data;
    size_t len;
    tutti_err err = tt_file_text(&tt_mem_std, f, max_file_bytes, path, &data,
                                 &len, diag);
    if (err)
        return err;
    err = tt_topology_read(&tt_mem_std, data, len, out, diag);
    tt_free(&tt_mem_std, data, len + 1, 1);
    return err;
}

tutti_err tt_network_open(const char *spec, tutti_topology **out,
                          tutti_diag *diag)
{
    if (!spec || !*spec)
        return tt_fail(diag, TUTTI_EINVAL,
                       "no network is given: name a file or a generator, such "
                       "as full:8");
    if (tt_topology_is_generator(spec))
        return tt_topology_generate(&tt_mem_std, spec, out, diag);
    return open_file(spec, out, diag);
}

tutti_err tutti_topology_open(const char *spec, tutti_topology **out,
                              tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    return tt_report(tt_network_open(spec, out, &found), &found, diag);
}

tutti_err tutti_topology_parse(const char *text, size_t len,
                               tutti_topology **out, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_err err = tt_topology_read(&tt_mem_std, text, len, out, &found);
    return tt_report(err, &found, diag);
}

tutti_err tutti_topology_payload(const tutti_topology *net,
                                 tutti_topology **out, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    return tt_report(tt_topology_payload(net, &tt_mem_std, out, &found), &found,
                     diag);
}

/* ------------------------------------------------------------ topologies -- */

void tutti_topology_free(tutti_topology *net)
{
    tt_topology_free(net);
}

uint32_t tutti_topology_ranks(const tutti_topology *net)
{
    return net->n_ranks;
}

tutti_err tutti_topology_text(const tutti_topology *net, char **text,
                              size_t *len)
{
    tt_str out = {.mem = &tt_mem_std};
    tt_topology_write(net, &out);
    return tt_str_finish(&out, text, len);
}

tutti_err tutti_topology_draw(const tutti_topology *net, const char *format,
                              char **text, size_t *len, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_err err = tt_net_draw(net, format, &tt_mem_std, text, len, &found);
    return tt_report(err, &found, diag);
}

void tutti_topology_describe(const tutti_topology *net,
                             tutti_topology_info *out)
{
    uint32_t n_switches = 0;
    for (uint32_t v = 0; v < net->n_nodes; v++)
        n_switches += net->nodes[v].kind == TT_NODE_SWITCH;
    *out = (tutti_topology_info){
        .n_ranks = net->n_ranks,
        .n_switches = n_switches,
        .n_links = net->n_links,
        .id = net->id,
    };
}

bool tutti_node_at(const tutti_topology *net, size_t index,
                   tutti_node_info *out)
{
    static const tutti_node_kind kinds[] = {
        [TT_NODE_HOST] = TUTTI_NODE_HOST,
        [TT_NODE_SWITCH] = TUTTI_NODE_SWITCH,
        [TT_NODE_HUB] = TUTTI_NODE_HOST,
        [TT_NODE_SLOT] = TUTTI_NODE_SLOT,
    };
    if (index >= net->n_nodes)
        return false;
    const tt_node *node = &net->nodes[index];
    *out = (tutti_node_info){
        .name = node->name,
        .host = node->hub == TT_NONE ? NULL : net->nodes[node->hub].name,
        .kind = kinds[node->kind],
        .rank = node->rank == TT_NONE ? -1 : (int)node->rank,
        .forwards = node->forwards,
    };
    return true;
}

bool tutti_link_at(const tutti_topology *net, size_t index,
                   tutti_link_info *out)
{
    if (index >= net->n_links)
        return false;
    const tt_link *link = &net->links[index];
    *out = (tutti_link_info){
        .from = net->nodes[link->from].name,
        .to = net->nodes[link->to].name,
        .bytes_per_s = tt_link_bytes_per_s(link),
        .latency_s = tt_link_latency_s(link),
        .rate_bps = link->rate_bps,
        .least_bps = link->least_bps,
        .twin = link->twin == TT_NONE ? SIZE_MAX : link->twin,
        .dev = link->dev,
    };
    return true;
}

/* Who is told of routes: of the first ones, or of the others. */
typedef struct listener {
    tutti_route_fn route;
    tutti_rail_fn rail;
    void *ctx;
} listener;

static void hand_pair(const tt_routes *routes, uint32_t src, uint32_t dst,
                      uint32_t *links, const listener *to)
{
    if (to->route) {
        to->route(to->ctx, (int)src, (int)dst, links,
                  tt_route(routes, src, dst, 0, links));
        return;
    }
    uint32_t n = tt_route_rails(routes, src, dst);
    for (uint32_t rail = 1; rail < n; rail++)
        to->rail(to->ctx, (int)src, (int)dst, (int)rail, links,
                 tt_route(routes, src, dst, (uint8_t)rail, links));
}

static tutti_err hand_routes(const tutti_topology *net, const tt_routes *routes,
                             const listener *to)
{
    uint32_t most = tt_routes_max_links(routes);
    uint32_t *links = tt_new(&tt_mem_std, (size_t)most + 1, sizeof(*links));
    if (!links)
        return TUTTI_ENOMEM;
    for (uint32_t src = 0; src < net->n_ranks; src++) {
        for (uint32_t dst = 0; dst < net->n_ranks; dst++) {
            if (src != dst)
                hand_pair(routes, src, dst, links, to);
        }
    }
    tt_free(&tt_mem_std, links, (size_t)most + 1, sizeof(*links));
    return TUTTI_OK;
}

static tutti_err find_routes(const tutti_topology *net, const listener *to,
                             tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tt_routes *routes = NULL;
    tutti_err err = tt_routes_create(net, &tt_mem_std, &routes, &found);
    if (!err && (err = hand_routes(net, routes, to)))
        tt_fail(&found, err, "no memory for a route");
    tt_routes_free(routes);
    return tt_report(err, &found, diag);
}

tutti_err tutti_routes(const tutti_topology *net, tutti_route_fn fn, void *ctx,
                       tutti_diag *diag)
{
    return find_routes(net, &(listener){.route = fn, .ctx = ctx}, diag);
}

tutti_err tutti_rails(const tutti_topology *net, tutti_rail_fn fn, void *ctx,
                      tutti_diag *diag)
{
    return find_routes(net, &(listener){.rail = fn, .ctx = ctx}, diag);
}

bool tutti_generator_at(size_t index, tutti_generator_info *out)
{
    return tt_generator_at(index, out);
}

/* ----------------------------------------------------------------- bound -- */

tutti_err tutti_bound(const tutti_topology *net, const tutti_bound_opts *opts,
                      tutti_bound_info *out, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_bound_opts o;
    tutti_err err = tt_read_opts(opts, &o, sizeof(o), &found);
    const tt_progress progress = {o.progress, o.progress_ctx};
    const tt_optimum_opts how = {
        .gap = o.gap,
        .max_ranks = o.only_bounds ? 1 : 0,
        .progress = &progress,
    };
    if (!err)
        err = tt_optimum_find(net, &how, &tt_mem_std, out, &found);
    return tt_report(err, &found, diag);
}

double tutti_bound_s(const tutti_topology *net, const tutti_bound_info *bound,
                     tutti_coll coll, int root, uint64_t size_bytes)
{
    return tt_optimum_s(bound, net, coll, (uint32_t)root, size_bytes);
}

/* ------------------------------------------------------------------ plan -- */

/* Only these have a block for each rank, of the size that the caller says. */
static const uint64_t *blocks_of(tutti_coll coll, const uint64_t *block_bytes)
{
    bool has_blocks = coll == TUTTI_REDUCE_SCATTER || coll == TUTTI_ALL_GATHER;
    return has_blocks ? block_bytes : NULL;
}

tutti_err tt_problem_read(const tutti_plan_opts *o, uint32_t n, tt_problem *p,
                          tutti_diag *diag)
{
    *p = (tt_problem){
        .collective = o->collective,
        .n_ranks = n,
        .root = TT_NONE,
        .size_bytes = o->size_bytes,
        .block_bytes = blocks_of(o->collective, o->block_bytes),
        .burst_bytes = o->burst_bytes,
    };
    if (!tt_coll_has_schedule(o->collective))
        return tt_fail(diag, TUTTI_EINVAL, "a %s has no schedule of its own",
                       tutti_coll_name(o->collective));
    if (!tt_coll_has_root(o->collective))
        return TUTTI_OK;
    if (o->root < 0 || (uint32_t)o->root >= n)
        return tt_fail(diag, TUTTI_EINVAL,
                       "root %d is not a rank: the network has ranks 0 to %u",
                       o->root, n - 1);
    p->root = (uint32_t)o->root;
    return TUTTI_OK;
}

/* Of ranks on a network that nobody described, or of those that pay beside it:
 * what that is. Errors: EINVAL, ENOMEM. */
static tutti_err charge(const tutti_plan_opts *o, tt_problem *p,
                        tutti_diag *diag)
{
    const tutti_costs *c = o->costs;
    if (!(o->crowd >= 0 && o->crowd <= TT_MAX_RANKS))
        return tt_fail(diag, TUTTI_EINVAL,
                       "%g ranks to a processor are none: give 1 or more",
                       o->crowd);
    if (p->topology && !c)
        return TUTTI_OK;
    if (c && c->message_ns > 0 && (c->byte_ps == 0 || c->reduce_ps == 0))
        return tt_fail(diag, TUTTI_EINVAL,
                       "costs of a message have those of a byte beside them, "
                       "each of them more than 0");
    tt_place here = {.is_inside = o->is_one_host,
                     .is_memory = o->is_one_host,
                     .crowd = o->crowd};
    here.is_crowded = here.is_inside && here.crowd > 1;
    here.is_paired = here.is_inside && here.crowd == 2;
    /* Several hosts on one machine. */
    if (!here.is_inside && here.crowd > 0)
        here.cpus = 1 / o->crowd;
    if (c)
        here.costs = *c;
    tt_plan_cut_for(&p->cutting, &here, !p->topology);
    return tt_plan_charge(p, &here)
               ? tt_fail(diag, TUTTI_ENOMEM, "no memory for a prediction")
               : TUTTI_OK;
}

tutti_err tutti_plan(const tutti_topology *net, const tutti_plan_opts *opts,
                     tutti_schedule **out, const char **chosen,
                     tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_plan_opts o;
    tt_problem p;
    tt_routes *routes = NULL;
    const tt_planner *planner = NULL;
    tt_written written;
    tt_written_init(&written, &tt_mem_std);
    tutti_err err = tt_read_opts(opts, &o, sizeof(o), &found);
    const tt_progress progress = {o.progress, o.progress_ctx};
    if (!err)
        err = tt_problem_read(&o, net->n_ranks, &p, &found);
    if (!err)
        err = tt_routes_create(net, &tt_mem_std, &routes, &found);
    if (!err) {
        p.topology = net;
        p.routes = routes;
        p.progress = &progress;
        p.shelf = &written.shelf;
        err = charge(&o, &p, &found);
    }
    if (!err) {
        err = tt_plan_make(o.planner, &p, &tt_mem_std, out, &planner, &found);
    }
    if (!err && chosen)
        *chosen = planner->name;
    tt_routes_free(routes);
    tt_written_free(&written);
    return tt_report(err, &found, diag);
}

/* The problem that a schedule was made for, at this size. */
static tt_problem solved_by(const tutti_schedule *sched,
                            const tutti_topology *net, uint64_t size_bytes,
                            const uint64_t *block_bytes)
{
    return (tt_problem){
        .collective = sched->collective,
        .n_ranks = sched->n_ranks,
        .root = sched->root,
        .size_bytes = size_bytes,
        .block_bytes = blocks_of(sched->collective, block_bytes),
        .topology = net,
    };
}

tutti_err tutti_predict(const tutti_topology *net, const tutti_schedule *sched,
                        const tutti_plan_opts *opts, double *seconds,
                        tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_plan_opts o;
    tt_routes *routes = NULL;
    tutti_err err = tt_read_opts(opts, &o, sizeof(o), &found);
    const tt_progress progress = {o.progress, o.progress_ctx};
    tt_problem p = solved_by(sched, net, o.size_bytes, o.block_bytes);
    p.progress = &progress;
    p.burst_bytes = o.burst_bytes;
    if (!err && o.costs)
        err = tt_routes_create(net, &tt_mem_std, &routes, &found);
    p.routes = routes;
    if (!err)
        err = charge(&o, &p, &found);
    if (!err)
        err = tt_plan_predict(sched, &p, &tt_mem_std, seconds, &found);
    tt_routes_free(routes);
    return tt_report(err, &found, diag);
}

/* --------------------------------------------------------------- explain -- */

static void tell(const tt_explained *e, tutti_charge_fn fn, void *ctx)
{
    const tutti_charge c = {
        .planner = e->planner->name,
        .fits = e->fits,
        .is_chosen = e->is_chosen,
        .time_s = e->fits ? e->charge.time_s : -1,
        .messages_s = e->fits ? e->charge.messages_s : -1,
        .bytes_s = e->fits ? e->charge.bytes_s : -1,
        .reduce_s = e->fits ? e->charge.reduce_s : -1,
        .why = e->why,
    };
    fn(ctx, &c);
}

static tutti_err explain(const tt_problem *p, tutti_charge_fn fn, void *ctx,
                         tutti_diag *diag)
{
    const size_t n = tt_plan_rows() + 1;
    tt_explained *all = tt_new(&tt_mem_std, n, sizeof(*all));
    tutti_err err = all ? tt_plan_explain(p, &tt_mem_std, all, diag)
                        : tt_fail(diag, TUTTI_ENOMEM, "no memory for charges");
    for (size_t i = 0; !err && i + 1 < n; i++)
        tell(&all[i], fn, ctx);
    tt_free(&tt_mem_std, all, n, sizeof(*all));
    return err;
}

tutti_err tutti_explain(const tutti_topology *net, uint32_t n_ranks,
                        const tutti_plan_opts *opts, tutti_charge_fn fn,
                        void *ctx, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_plan_opts o;
    tt_problem p;
    tt_routes *routes = NULL;
    tutti_err err = tt_read_opts(opts, &o, sizeof(o), &found);
    const tt_progress progress = {o.progress, o.progress_ctx};
    const uint32_t n = net ? net->n_ranks : n_ranks;
    if (!err && n == 0)
        err = tt_fail(&found, TUTTI_EINVAL, "there must be at least one rank");
    if (!err)
        err = tt_problem_read(&o, n, &p, &found);
    if (!err && net)
        err = tt_routes_create(net, &tt_mem_std, &routes, &found);
    if (!err) {
        p.topology = net;
        p.routes = routes;
        p.progress = &progress;
        err = charge(&o, &p, &found);
    }
    if (!err)
        err = explain(&p, fn, ctx, &found);
    tt_routes_free(routes);
    return tt_report(err, &found, diag);
}

/* -------------------------------------------------------------- simulate -- */

/* Slices, windows and queues are what the caller asks for, or the engine's. */
static tutti_err simulate(const tutti_topology *net,
                          const tutti_schedule *sched, tutti_sim_opts *o,
                          tutti_sim_result *out, tutti_diag *diag)
{
    if (o->is_packet && o->is_fluid)
        return tt_fail(diag, TUTTI_EINVAL,
                       "a simulation is of packets, or it is fluid");
    if (o->as_engine) {
        const tt_problem p = solved_by(sched, net, o->size_bytes,
                                       o->block_bytes);
        tutti_sim_opts engine;
        tutti_err err = tt_plan_sim_opts(sched, &p, &tt_mem_std, &engine, diag);
        if (err)
            return err;
        o->n_slices = 0;
        o->front_bytes = engine.front_bytes;
        o->window = engine.window;
        o->front_window_bytes = engine.front_window_bytes;
        if (!o->is_packet && !o->is_fluid) {
            o->is_packet = engine.is_packet;
            o->cut_through = engine.cut_through;
        }
    }
    o->block_bytes = blocks_of(sched->collective, o->block_bytes);
    return tt_simulate(sched, net, o, &tt_mem_std, out, diag);
}

tutti_err tutti_simulate(const tutti_topology *net, const tutti_schedule *sched,
                         const tutti_sim_opts *opts, tutti_sim_result *out,
                         tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_sim_opts o;
    tutti_err err = tt_read_opts(opts, &o, sizeof(o), &found);
    if (!err)
        err = simulate(net, sched, &o, out, &found);
    return tt_report(err, &found, diag);
}

/* The ranks' names for the trace: those of their nodes. */
static const char **rank_names(const tutti_topology *net, tt_arena *arena)
{
    const char **names = tt_arena_new(arena, net->n_ranks, sizeof(*names));
    for (uint32_t r = 0; names && r < net->n_ranks; r++)
        names[r] = net->nodes[net->rank_node[r]].name;
    return names;
}

tutti_err tutti_trace(const tutti_topology *net, const tutti_schedule *sched,
                      const tutti_sim_opts *opts, tutti_sim_result *out,
                      char **text, size_t *len, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tutti_sim_opts o;
    tt_arena arena = {.mem = &tt_mem_std};
    tt_str json = {.mem = &tt_mem_std};
    tt_trace trace;
    const tt_trace_opts how = {.n_ranks = net->n_ranks,
                               .names = rank_names(net, &arena)};
    tutti_err err = tt_read_opts(opts, &o, sizeof(o), &found);
    if (!err) {
        tt_trace_begin(&trace, &json, &how);
        o.on_event = tt_trace_event;
        o.event_ctx = &trace;
        err = simulate(net, sched, &o, out, &found);
        tt_trace_end(&trace);
    }
    if (err)
        tt_str_free(&json);
    else if ((err = tt_str_finish(&json, text, len)))
        tt_fail(&found, err, "no memory for the trace");
    tt_arena_free(&arena);
    return tt_report(err, &found, diag);
}

tutti_err tutti_trace_read(const char *text, size_t len, tutti_recorded_fn fn,
                           void *ctx, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    return tt_report(tt_trace_read(text, len, fn, ctx, &found), &found, diag);
}

tutti_err tutti_contention(const tutti_topology *net,
                           const tutti_schedule *sched,
                           tutti_contention_info *out, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tt_routes *routes = NULL;
    tutti_err err = tt_routes_create(net, &tt_mem_std, &routes, &found);
    if (!err)
        err = tt_contention(sched, net, routes, &tt_mem_std, out, &found);
    tt_routes_free(routes);
    return tt_report(err, &found, diag);
}
