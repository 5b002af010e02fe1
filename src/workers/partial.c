/* SPDX-License-Identifier: BSD-3-Clause
 * partial.c - partial reduce as tutti_partial.h shows it: workers and
 * controllers.
 *
 * Idea       src/partial does the work and knows neither requests nor planners.
 *            Here its callbacks end requests, and groups are planned as an
 *            all-reduce of as many ranks would be: so P = N with equal weights
 *            is the same sum, bit for bit, as tutti_all_reduce() with AVG by
 *            the same planner.
 * Opening    With a communicator rank 0 opens a controller and tells all its
 *            addresses; each rank joins, and all agree whether it went well.
 * Next       partial/worker.h, partial/controller.h. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/ifaces.h"
#include "base/log.h"
#include "base/random.h"
#include "core/core.h"
#include "start/start.h"
#include "status/status.h"
#include "workers/workers.h"

enum { MOST_PLACES = 16, N_NEAR = 2 };

/* What rank 0 tells all. */
typedef struct meeting {
    int32_t err;
    uint32_t n;
    uint64_t token, host;
    char why[512];               /* err */
    tt_addr places[MOST_PLACES]; /* the first N_NEAR: of this host */
} meeting;

struct tutti_partial {
    tt_mem mem;
    tt_settings settings;
    tt_engine *engine;
    tt_worker *worker;
    tt_controller *controller; /* in this process; NULL: elsewhere */
    uint64_t end_wait_ns;
    char planner[TT_SETTING_TEXT];
    tt_trust *trust;
    tt_written written;
    tutti_topology *topology; /* ranks are workers; NULL: not known */
    tt_mesh *mesh;  /* of the communicator, where ranks pass on what others do
                      not reach; NULL: none do */
    bool is_inside; /* all workers are on one host */
    char message[TT_WORKER_TEXT]; /* of a call that did not reach the worker */
    char told[TT_WORKER_TEXT];    /* what the worker said last */
};

static const uint64_t group_spin_ns = 20 * TT_NS_PER_US;

/* Members of one host that share its processors do not wait for messages but
 * for processors: what counts is how many messages there are (8 members: star
 * 14, the double tree 28, direct 112), until it is that no rank has more work
 * than others. */
static const uint32_t crowd_least = 4;
static const char crowd_planner[] =
    "-32KiB:star,32KiB-4MiB:dbtree,4MiB-:direct";

/* ----------------------------------------------------------------- plans -- */

static bool is_crowded(const tt_worker_shape *shape)
{
    return shape->is_inside && shape->n >= crowd_least &&
           shape->n > shape->n_cpus && shape->n_cpus > 0;
}

static const char *planner_of(const tutti_partial *p,
                              const tt_worker_shape *shape)
{
    return tt_rule_is_auto(p->planner) && !p->topology && is_crowded(shape)
               ? crowd_planner
               : p->planner;
}

static tutti_err plan_group(void *ctx, const tt_worker_shape *shape,
                            tt_worker_plan *out, tutti_diag *diag)
{
    tutti_partial *p = ctx;
    tutti_topology *own = NULL;
    tt_routes *routes = NULL;
    tutti_err err = TUTTI_OK;
    tt_problem problem = tt_problem_assumed(shape->is_inside);
    problem.collective = TUTTI_ALL_REDUCE;
    problem.n_ranks = shape->n;
    problem.root = TT_NONE;
    problem.size_bytes = shape->bytes;
    problem.cutting.is_inside = shape->is_inside;
    problem.shelf = &p->written.shelf;
    if (p->topology) {
        err = tt_topology_subset(p->topology, shape->workers, shape->n, &p->mem,
                                 &own, diag);
        if (!err)
            err = tt_routes_create(own, &p->mem, &routes, diag);
        /* Only others join them, who are not asked: what they say is passed
         * on. */
        if (err == TUTTI_EINVAL && !p->topology->all_forward)
            err = TUTTI_OK;
        problem.topology = routes ? own : NULL;
        problem.routes = routes;
    }
    if (!err)
        err = tt_plan_make(planner_of(p, shape), &problem, &p->mem,
                           &out->schedule, NULL, diag);
    tt_routes_free(routes);
    tt_topology_free(own);
    tt_cutting cut = tt_cutting_for(&problem.cutting, shape->bytes, 0);
    out->front_bytes = cut.front_bytes;
    out->front_window_bytes = cut.front_window_bytes;
    return err;
}

/* --------------------------------------------------------------- opening -- */

static void free_partial(tutti_partial *p)
{
    if (!p)
        return;
    const tt_mem mem = p->mem;
    if (p->worker)
        tt_service_remove_worker(p->worker);
    tt_worker_close(p->worker);
    if (p->controller)
        tt_controller_wait(p->controller, p->end_wait_ns);
    tt_controller_close(p->controller);
    tt_written_free(&p->written);
    tt_topology_free(p->topology);
    tt_trust_close(p->trust);
    tt_mesh_unref(p->mesh);
    if (p->engine)
        tt_process_release();
    tt_free(&mem, p, 1, sizeof(*p));
}

static tutti_err make(const tutti_partial_opts *o, tutti_partial **out,
                      tutti_diag *diag)
{
    tutti_partial *p = tt_new(&tt_mem_std, 1, sizeof(*p));
    if (!p)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for partial reduce");
    p->mem = tt_mem_std;
    tt_written_init(&p->written, &p->mem);
    tutti_err err = tt_settings_read(&p->settings, diag);
    if (!err && o->planner && strlen(o->planner) >= sizeof(p->planner))
        err = tt_fail(diag, TUTTI_EINVAL, "the planner's name is too long");
    if (!err) {
        snprintf(p->planner, sizeof(p->planner), "%s",
                 o->planner ? o->planner : p->settings.planner);
        /* Where no communicator says otherwise: waits for groups are long. */
        tt_engine_opts opts = {.spin_ns = group_spin_ns,
                               .spin_large_ns = group_spin_ns,
                               .spin_aside_ns = group_spin_ns,
                               .liveness_ns = p->settings.liveness_ns,
                               .speak_ns = TT_NS_PER_MS,
                               .patience_ns = p->settings.patience_ns};
        tt_log_setup((tutti_log_level)p->settings.log);
        tt_log_file(p->settings.log_file);
        err = tt_process_engine(&opts, &p->engine, diag);
    }
    if (err)
        free_partial(p);
    else
        *out = p;
    return err;
}

static tutti_err read_opts(const tutti_partial_opts *given,
                           tutti_partial_opts *o, tutti_diag *diag)
{
    tutti_err err = tt_process_enter(diag);
    if (!err)
        err = tt_read_opts(given, o, sizeof(*o), diag);
    if (!err && (!(o->timeout_s >= 0) || !(o->liveness_s >= 0)))
        err = tt_fail(diag, TUTTI_EINVAL,
                      "timeout_s and liveness_s must not be negative");
    return err;
}

static uint64_t time_or(double s, uint64_t otherwise)
{
    return s > 0 ? tt_seconds_to_ns(s) : otherwise;
}

static tutti_err open_controller(const tutti_partial_opts *o, uint32_t n,
                                 const tt_settings *settings,
                                 tt_controller_opts *how, tt_controller **out,
                                 tutti_diag *diag)
{
    tutti_err err = how->leader ? TUTTI_OK
                                : tt_grouping_opts(o, n, &how->rule, diag);
    if (err)
        return err;
    if (how->rule.start_wait_ns == 0)
        how->rule.start_wait_ns = settings->start_timeout_ns;
    how->ports = settings->ports;
    how->interfaces = settings->interfaces;
    how->liveness_ns = time_or(o->liveness_s, settings->liveness_ns);
    how->reconnect_ns = settings->reconnect_ns;
    how->patience_ns = settings->patience_ns;
    how->is_near = settings->reconnect_near;
    how->log = o->log;
    return tt_controller_open(how, &tt_mem_std, out, diag);
}

static tutti_err open_worker(tutti_partial *p, const tutti_partial_opts *o,
                             tt_worker_opts *how, tutti_diag *diag)
{
    how->settings = &p->settings;
    how->engine = p->engine;
    how->regions = p->settings.shm_direct_bytes ? tt_process_regions() : NULL;
    how->is_current = o->is_current;
    how->goes_ahead = o->goes_ahead;
    how->timeout_ns = time_or(o->timeout_s, p->settings.timeout_ns);
    how->join_timeout_ns = p->settings.start_timeout_ns;
    how->trust = p->trust;
    how->plan = plan_group;
    how->plan_ctx = p;
    how->plans_by_member = p->topology != NULL;
    tutti_err err = tt_worker_open(how, &p->mem, &p->worker, diag);
    if (!err)
        tt_service_add_worker(p->worker, p->engine, &p->settings);
    return err;
}

/* Rank 0: the controller, and where it is. */
static tutti_err host_meeting(tutti_partial *p, const tutti_comm *comm,
                              const tutti_partial_opts *o, meeting *m,
                              tutti_diag *diag)
{
    tt_iface ifaces[MOST_PLACES];
    m->host = tt_place_host();
    tt_controller_opts how = {.is_local = comm->agreed.n_hosts == 1,
                              .trust = p->trust};
    tutti_partial_opts own = *o;
    own.max_workers = (int)comm->n_ranks; /* nobody else knows the token */
    tutti_err err = tt_random(&how.token, sizeof(how.token), diag);
    how.token |= 1; /* 0: there is none */
    if (!err)
        err = open_controller(&own, comm->n_ranks, &p->settings, &how,
                              &p->controller, diag);
    if (err)
        return err;
    p->end_wait_ns = how.rule.end_wait_ns ? how.rule.end_wait_ns
                                          : TT_RULE_END_WAIT_NS;
    m->token = how.token;
    uint16_t port = tt_controller_port(p->controller);
    tt_controller_nest(p->controller, &m->places[m->n++]);
    tt_addr_numeric("127.0.0.1", port, &m->places[m->n++]);
    size_t found = how.is_local ? 0
                                : tt_ifaces_list(p->settings.interfaces, ifaces,
                                                 MOST_PLACES - N_NEAR);
    for (size_t i = 0; i < found; i++) {
        tt_addr *to = &m->places[m->n];
        if (ifaces[i].order == TT_IFACE_LOOPBACK)
            continue;
        *to = ifaces[i].addr;
        tt_addr_set_port(to, port);
        m->n++;
    }
    return TUTTI_OK;
}

/* Everybody's error is the worst of all. */
static tutti_err agree(tutti_comm *comm, tutti_err mine, tutti_diag *diag)
{
    int32_t worst = mine;
    tutti_err err = tutti_all_reduce(comm, &worst, &worst, 1, TUTTI_I32,
                                     TUTTI_MIN, NULL, NULL);
    if (err)
        return tt_fail(diag, err, "%s", tutti_comm_message(comm));
    if (mine || worst == TUTTI_OK)
        return mine;
    return tt_fail(diag, (tutti_err)worst,
                   "another rank cannot begin partial reduce: %s",
                   tutti_strerror((tutti_err)worst));
}

static tutti_err meet(tutti_partial *p, tutti_comm *comm,
                      const tutti_partial_opts *o, meeting *m, tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    if (comm->rank == 0)
        err = host_meeting(p, comm, o, m, diag);
    m->err = err;
    snprintf(m->why, sizeof(m->why), "%s", diag->text);
    tutti_err sent = tutti_broadcast(comm, m, m, sizeof(*m), TUTTI_U8, 0, NULL,
                                     NULL);
    if (sent)
        return tt_fail(diag, sent, "%s", tutti_comm_message(comm));
    m->why[sizeof(m->why) - 1] = '\0';
    if (m->err && comm->rank != 0)
        return tt_fail(diag, (tutti_err)m->err,
                       "rank 0 cannot open a controller: %s", m->why);
    return err;
}

static tutti_err copy_topology(tutti_partial *p, const tutti_comm *comm,
                               tutti_diag *diag)
{
    if (!comm->topology)
        return TUTTI_OK;
    uint32_t *all = tt_new(&p->mem, comm->n_ranks, sizeof(*all));
    if (!all)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a network");
    for (uint32_t r = 0; r < comm->n_ranks; r++)
        all[r] = r;
    tutti_err err = tt_topology_subset(comm->topology, all, comm->n_ranks,
                                       &p->mem, &p->topology, diag);
    tt_free(&p->mem, all, comm->n_ranks, sizeof(*all));
    return err;
}

/* The switch that the worker's host hangs at, by number; 0: there is none. */
static uint32_t site_of(const tutti_topology *t, uint32_t worker)
{
    uint32_t at = TT_NONE;
    uint32_t host = t ? tt_node_host(t, t->rank_node[worker]) : 0;
    for (uint32_t i = t ? t->first_out[host] : 0;
         t && i < t->first_out[host + 1]; i++) {
        uint32_t to = t->links[t->out[i]].to;
        if (t->nodes[to].kind == TT_NODE_SWITCH && to < at)
            at = to;
    }
    return at == TT_NONE ? 0 : at + 1;
}

static tutti_err join_meeting(tutti_partial *p, tutti_comm *comm,
                              const tutti_partial_opts *o, const meeting *m,
                              tutti_diag *diag)
{
    bool is_here = m->host == tt_place_host();
    uint32_t skip = !is_here && m->n > N_NEAR ? N_NEAR : 0;
    if (m->n == 0 || m->n > MOST_PLACES)
        return tt_fail(diag, TUTTI_EPROTO, "rank 0 tells no place to meet");
    tt_worker_opts how = {.controllers = m->places + skip,
                          .n_controllers = m->n - skip,
                          .worker = comm->rank,
                          .n_workers = comm->n_ranks,
                          .is_local = comm->agreed.n_hosts == 1,
                          .token = m->token};
    tutti_err err = copy_topology(p, comm, diag);
    if (!err && tt_mesh_passes_on(comm->mesh))
        p->mesh = tt_mesh_ref(comm->mesh);
    how.site = site_of(p->topology, comm->rank);
    return err ? err : open_worker(p, o, &how, diag);
}

tutti_err tutti_partial_open(tutti_comm *comm, const tutti_partial_opts *opts,
                             tutti_partial **out)
{
    tutti_diag diag = TT_DIAG_NONE;
    tutti_partial_opts o;
    tutti_partial *p = NULL;
    meeting m = {0};
    if (!comm || !out) {
        tt_fail(&diag, TUTTI_EINVAL, "comm and out must not be NULL");
        return tt_report(TUTTI_EINVAL, &diag, NULL);
    }
    tutti_err err = read_opts(opts, &o, &diag);
    if (!err)
        err = make(&o, &p, &diag);
    if (!err)
        p->trust = tt_trust_ref(comm->trust);
    /* From here on all ranks take the same steps. */
    tutti_err all = agree(comm, err, &diag);
    if (!all)
        all = meet(p, comm, &o, &m, &diag);
    if (!all || m.err == TUTTI_OK) {
        err = all ? all : join_meeting(p, comm, &o, &m, &diag);
        all = agree(comm, err, &diag);
    }
    if (all && p)
        p->end_wait_ns = 0;
    if (all)
        free_partial(p);
    else
        *out = p;
    return tt_report(all, &diag, NULL);
}

/* By name or number. Returns how many; diag says why none. */
static uint32_t look_up(const char *host, uint16_t port, tt_addr *out,
                        tutti_diag *diag)
{
    if (tt_addr_numeric(host, port, out))
        return 1;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int why = getaddrinfo(host, NULL, &hints, &list);
    uint32_t n = 0;
    for (struct addrinfo *a = why ? NULL : list; a && n < MOST_PLACES;
         a = a->ai_next) {
        if (a->ai_addrlen > sizeof(out[n].u))
            continue;
        out[n] = (tt_addr){.len = a->ai_addrlen};
        memcpy(&out[n].u, a->ai_addr, a->ai_addrlen);
        tt_addr_set_port(&out[n++], port);
    }
    if (!why)
        freeaddrinfo(list);
    if (n == 0)
        tt_fail(diag, TUTTI_ECONFIG, "%.100s: %s", host,
                why ? gai_strerror(why) : "no address");
    return n;
}

/* "host:port"; to listen, port 0 is any. */
static uint32_t resolve(const char *text, bool listens, tt_addr *out,
                        tutti_diag *diag)
{
    char host[TT_SOCK_HOST];
    char copy[TT_SETTING_TEXT];
    uint16_t port;
    size_t len = strlen(text);
    bool is_any = listens && len > 2 && len < sizeof(copy) &&
                  strcmp(text + len - 2, ":0") == 0;
    snprintf(copy, sizeof(copy), "%.*s", (int)sizeof(copy) - 1, text);
    if (is_any)
        copy[len - 1] = '1';
    if (len >= sizeof(copy) || !tt_hostport_split(copy, host, &port)) {
        tt_fail(diag, TUTTI_ECONFIG,
                "\"%.200s\" is no place of a controller; expected host:port "
                "or [ipv6]:port",
                text);
        return 0;
    }
    return look_up(host, is_any ? 0 : port, out, diag);
}

/* Of a controller that runs by itself: the job's name says who belongs to it.
 * 0: there is none, and where there is no secret either it lets everybody
 * in. */
static uint64_t token_of(const tt_settings *settings)
{
    const char *job = settings->job;
    return job[0] ? tt_fnv1a(TT_FNV1A_START, job, strlen(job)) | 1 : 0;
}

/* Several, with commas between: the leader and its standbys. */
static uint32_t resolve_all(const char *text, tt_addr out[MOST_PLACES],
                            tutti_diag *diag)
{
    char copy[TT_SETTING_TEXT];
    tt_addr found[MOST_PLACES];
    uint32_t n = 0;
    char *save = NULL;
    if (!strchr(text, ',') || strlen(text) >= sizeof(copy))
        return resolve(text, false, out, diag);
    memcpy(copy, text, strlen(text) + 1);
    for (char *at = strtok_r(copy, ",", &save); at;
         at = strtok_r(NULL, ",", &save)) {
        uint32_t more = resolve(at, false, found, diag);
        if (more == 0)
            return 0;
        for (uint32_t i = 0; i < more && n < MOST_PLACES; i++)
            out[n++] = found[i];
    }
    return n;
}

static tutti_err join(const char *controller, int worker,
                      const tutti_partial_opts *o, tutti_partial *p,
                      tutti_diag *diag)
{
    tt_addr places[MOST_PLACES];
    const char *where = controller ? controller : p->settings.controller;
    if (!where[0])
        return tt_fail(diag, TUTTI_ECONFIG,
                       "where is the controller? Name its host:port, or set "
                       "TUTTI_CONTROLLER");
    if (worker < -1)
        return tt_fail(diag, TUTTI_EINVAL,
                       "worker %d: a worker is 0 or more, or -1: any", worker);
    uint32_t n = resolve_all(where, places, diag);
    if (n == 0)
        return TUTTI_ECONFIG;
    tutti_err err = tt_start_trust(&o->trust, &p->settings, false, &p->trust,
                                   diag);
    if (err)
        return err;
    tt_worker_opts how = {.controllers = places,
                          .n_controllers = n,
                          .token = token_of(&p->settings),
                          .worker = worker < 0 ? TT_NONE : (uint32_t)worker};
    return open_worker(p, o, &how, diag);
}

tutti_err tutti_partial_join(const char *controller, int worker,
                             const tutti_partial_opts *opts,
                             tutti_partial **out)
{
    tutti_diag diag = TT_DIAG_NONE;
    tutti_partial_opts o;
    tutti_partial *p = NULL;
    tutti_err err = read_opts(opts, &o, &diag);
    if (!err && !out)
        err = tt_fail(&diag, TUTTI_EINVAL, "out must not be NULL");
    if (!err)
        err = make(&o, &p, &diag);
    if (!err)
        err = join(controller, worker, &o, p, &diag);
    if (err)
        free_partial(p);
    else
        *out = p;
    return tt_report(err, &diag, NULL);
}

void tutti_partial_close(tutti_partial *p)
{
    if (!tt_process_is_child())
        free_partial(p);
}

/* ----------------------------------------------------------------- calls -- */

static tutti_err fail(tutti_partial *p, tutti_err err, const char *text)
{
    snprintf(p->message, sizeof(p->message), "%s", text);
    return err;
}

/* *req, if it is wanted, is set before the worker can end it. */
static tutti_err prepare(tutti_partial *p, const tutti_call_opts *opts,
                         tutti_request **req, tutti_request **made)
{
    if (req)
        *req = NULL;
    if (tt_process_is_child())
        return TUTTI_EFORK;
    p->message[0] = '\0';
    if (opts && opts->size != sizeof(*opts))
        return fail(p, TUTTI_EINVAL, "options without TUTTI_CALL_OPTS_INIT");
    if (opts && opts->on_device)
        return fail(p, TUTTI_EINVAL,
                    "a partial reduce is not on memory of a GPU");
    tutti_err err = tt_request_make(&p->mem, p->engine, opts, made);
    if (err)
        return fail(p, err, "out of memory for a request");
    if (req)
        *req = *made;
    return TUTTI_OK;
}

/* The request is with the worker now, or err. */
static tutti_err finish(tutti_err err, tutti_request *made, tutti_request **req)
{
    if (err) {
        tt_request_drop(made);
        if (req)
            *req = NULL;
        return err;
    }
    if (!req)
        return tutti_wait(made);
    *req = made;
    return TUTTI_OK;
}

tutti_err tutti_partial_announce(tutti_partial *p, uint64_t iteration,
                                 bool is_last, const tutti_call_opts *opts,
                                 tutti_request **req)
{
    tutti_request *made;
    tutti_err err = prepare(p, opts, req, &made);
    if (err)
        return err;
    return finish(
        tt_worker_announce(p->worker, iteration, is_last, tt_request_end, made),
        made, req);
}

tutti_err tutti_partial_reduce(tutti_partial *p, void *buf, size_t count,
                               tutti_type type, const tutti_call_opts *opts,
                               tutti_request **req)
{
    tutti_request *made;
    tutti_err err = prepare(p, opts, req, &made);
    if (err)
        return err;
    const tt_worker_buffer what = {.buf = buf,
                                   .count = count,
                                   .type = type,
                                   .is_scratch = opts && opts->is_scratch,
                                   .waits = !req || (opts && opts->waits)};
    return finish(tt_worker_reduce(p->worker, &what, tt_request_end, made),
                  made, req);
}

tutti_err tutti_partial_commit(tutti_partial *p, const tutti_call_opts *opts,
                               tutti_request **req)
{
    tutti_request *made;
    tutti_err err = prepare(p, opts, req, &made);
    if (err)
        return err;
    return finish(tt_worker_commit(p->worker, tt_request_end, made), made, req);
}

/* The newcomer waits for what the other one has. */
static tutti_err await_prints(tutti_partial *p)
{
    tutti_request *made;
    tutti_err err = prepare(p, NULL, NULL, &made);
    if (err)
        return err;
    return finish(tt_worker_await_prints(p->worker, tt_request_end, made), made,
                  NULL);
}

static tutti_err compare(tutti_partial *p, const tt_worker_compared *with,
                         const tutti_shared *buffers, size_t n,
                         tutti_difference *out)
{
    tt_print *mine = tt_new(&p->mem, n + 1, sizeof(*mine));
    size_t n_theirs;
    tutti_err err = TUTTI_OK;
    if (!mine)
        return fail(p, TUTTI_ENOMEM, "out of memory for comparing");
    tt_newcomer_prints(buffers, n, mine);
    if (with->gives)
        tt_worker_give_prints(p->worker, mine, n);
    else
        err = await_prints(p);
    if (!err && with->compares) {
        const tt_print *theirs = tt_worker_prints(p->worker, &n_theirs);
        tt_newcomer_compare(with, buffers, mine, n, theirs, n_theirs, out);
    }
    tt_free(&p->mem, mine, n + 1, sizeof(*mine));
    return err;
}

tutti_err tutti_partial_compare(tutti_partial *p, const tutti_shared *buffers,
                                size_t n, tutti_difference *out)
{
    tt_worker_compared with;
    tutti_diag diag = TT_DIAG_NONE;
    if (tt_process_is_child())
        return TUTTI_EFORK;
    p->message[0] = '\0';
    if (tt_newcomer_check(buffers, n, out, &diag))
        return fail(p, TUTTI_EINVAL, diag.text);
    tutti_err err = tt_worker_compares(p->worker, &with);
    if (err)
        return err;
    tt_newcomer_clear(out);
    return with.gives || with.compares ? compare(p, &with, buffers, n, out)
                                       : TUTTI_OK;
}

void tutti_partial_abandon(tutti_partial *p, const char *reason)
{
    if (!tt_process_is_child())
        tt_worker_abandon(p->worker, reason);
}

void tutti_partial_leave(tutti_partial *p)
{
    if (!tt_process_is_child())
        tt_worker_leave(p->worker);
}

tutti_err tutti_partial_rejoin(tutti_partial *p, bool is_current)
{
    tutti_diag diag = TT_DIAG_NONE;
    if (tt_process_is_child())
        return TUTTI_EFORK;
    p->message[0] = '\0';
    tutti_err err = tt_worker_rejoin(p->worker, is_current, &diag);
    return err ? fail(p, err, diag.text) : TUTTI_OK;
}

/* ------------------------------------------------------------- questions -- */

void tutti_partial_describe(tutti_partial *p, tutti_partial_info *out)
{
    *out = (tutti_partial_info){.worker = 0};
    if (!tt_process_is_child())
        tt_worker_tell(p->worker, out);
    out->has_controller = p->controller != NULL;
}

tutti_err tutti_partial_state(tutti_partial *p)
{
    char text[TT_WORKER_TEXT];
    return tt_process_is_child() ? TUTTI_EFORK
                                 : tt_worker_state(p->worker, text);
}

const char *tutti_partial_message(tutti_partial *p)
{
    if (p->message[0] != '\0' || tt_process_is_child())
        return p->message;
    tt_worker_state(p->worker, p->told);
    return p->told;
}

tutti_err tutti_partial_group_of(tutti_partial *p, tutti_partial_group *out)
{
    return tt_process_is_child() ? TUTTI_EFORK
                                 : tt_worker_group_of(p->worker, out);
}

tutti_err tutti_partial_measure(tutti_partial *p, tutti_partial_metrics *out)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    if (!p->controller)
        return fail(p, TUTTI_EINVAL,
                    "the controller that could tell is in another process");
    tt_controller_measure(p->controller, out);
    return TUTTI_OK;
}

uint64_t tutti_partial_n_of_size(tutti_partial *p, uint32_t size)
{
    if (tt_process_is_child() || !p->controller)
        return 0;
    return tt_controller_n_of_size(p->controller, size);
}

/* ----------------------------------------------------------- controllers -- */

static void warn_if_open(const tt_controller_opts *how)
{
    if (!how->trust && !how->token &&
        !(how->listen && tt_addr_is_loopback(how->listen)))
        TT_WARN("this controller lets in whoever reaches it; give it and its "
                "workers a secret (TUTTI_SECRET_FILE)");
}

tutti_err tutti_controller_open(const char *listen, uint32_t n_workers,
                                const tutti_partial_opts *opts,
                                tutti_controller **out)
{
    tutti_diag diag = TT_DIAG_NONE;
    tutti_partial_opts o;
    tt_settings settings;
    tt_addr places[MOST_PLACES], leaders[MOST_PLACES];
    tt_controller_opts how = {0};
    tutti_err err = read_opts(opts, &o, &diag);
    if (!err && !out)
        err = tt_fail(&diag, TUTTI_EINVAL, "out must not be NULL");
    if (!err)
        err = tt_settings_read(&settings, &diag);
    if (!err) {
        tt_log_setup((tutti_log_level)settings.log);
        tt_log_file(settings.log_file);
        how.listen = listen ? places : NULL;
        if (listen && resolve(listen, true, places, &diag) == 0)
            err = TUTTI_ECONFIG;
    }
    if (!err && o.leader) {
        how.leader = leaders;
        if (resolve(o.leader, false, leaders, &diag) == 0)
            err = TUTTI_ECONFIG;
    }
    if (!err)
        err = tt_start_trust(&o.trust, &settings, true, &how.trust, &diag);
    if (!err) {
        how.token = token_of(&settings);
        err = open_controller(&o, n_workers, &settings, &how, out, &diag);
    }
    if (!err)
        warn_if_open(&how);
    tt_trust_close(how.trust);
    return tt_report(err, &diag, NULL);
}

int tutti_controller_port(const tutti_controller *c)
{
    return tt_controller_port(c);
}

void tutti_controller_measure(tutti_controller *c, tutti_partial_metrics *out)
{
    if (tt_process_is_child())
        *out = (tutti_partial_metrics){0};
    else
        tt_controller_measure(c, out);
}

uint64_t tutti_controller_n_of_size(tutti_controller *c, uint32_t size)
{
    return tt_process_is_child() ? 0 : tt_controller_n_of_size(c, size);
}

tutti_err tutti_controller_wait(tutti_controller *c, double seconds)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    uint64_t ns = seconds > 0 ? tt_seconds_to_ns(seconds) : 0;
    tutti_diag diag = TT_DIAG_NONE;
    if (!tt_controller_wait(c, ns))
        return TUTTI_AGAIN;
    if (!tt_controller_is_over(c, diag.text, sizeof(diag.text)))
        return TUTTI_OK;
    return tt_report(TUTTI_EPEER, &diag, NULL);
}

void tutti_controller_close(tutti_controller *c)
{
    if (!tt_process_is_child())
        tt_controller_close(c);
}
