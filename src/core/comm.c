/* SPDX-License-Identifier: BSD-3-Clause
 * comm.c - communicators: what makes one, splits one, ends one.
 * Next: call.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "core/core.h"
#include "status/status.h"

static void free_comm(const tt_mem *mem, tutti_comm *comm)
{
    tt_free(mem, comm->hosts, comm->n_ranks, sizeof(uint32_t));
    tt_comm_free_tallies(comm);
    tt_comm_free_rails(comm);
    tt_written_free(&comm->written);
    if (comm->observer)
        comm->observer->free(comm);
    tt_routes_free(comm->routes);
    tt_topology_free(comm->topology);
    tt_trust_close(comm->trust);
    tt_free(mem, comm, 1, sizeof(*comm));
}

/* The communicator's own network and its routes. Ranks that only others join,
 * because no host between forwards, are planned for as if nothing were known:
 * what they say is passed on (neighbours.c). */
static tutti_err take_topology(const tt_comm_parts *parts, tutti_comm *comm)
{
    const tutti_topology *t = parts->topology;
    if (!t)
        return TUTTI_OK;
    tutti_err err = tt_topology_subset(t, parts->seats, parts->n, &comm->mem,
                                       &comm->topology, parts->diag);
    if (!err)
        err = tt_routes_create(comm->topology, &comm->mem, &comm->routes,
                               parts->diag);
    if (err != TUTTI_EINVAL || t->all_forward)
        return err;
    TT_INFO("a communicator of %u ranks plans without its network: %s",
            parts->n, parts->diag->text);
    tt_diag_clear(parts->diag);
    return TUTTI_OK;
}

static void leave(tutti_comm *comm)
{
    tt_engine_lock(comm->engine);
    tt_team_leave(comm->team);
    tt_engine_unlock(comm->engine);
}

tutti_err tt_comm_make(const tt_mem *mem, tt_engine *e,
                       const tt_comm_parts *parts, tutti_comm **out)
{
    tutti_comm *comm = tt_new(mem, 1, sizeof(*comm));
    if (!comm)
        return TUTTI_ENOMEM;
    comm->mem = *mem;
    comm->parts_of = comm;
    tt_written_init(&comm->written, &comm->mem);
    comm->mesh = parts->mesh;
    comm->engine = e;
    comm->id = parts->id;
    comm->timeout_ns = parts->timeout_ns;
    comm->rank = parts->rank;
    comm->n_ranks = parts->n;
    comm->agreed = *parts->agreed;
    comm->trust = tt_trust_ref(parts->trust);
    comm->home = *parts->home;
    comm->observe = parts->observe;
    comm->trail = parts->trail;
    atomic_flag_clear(&comm->busy);
    comm->hosts = tt_new(mem, parts->n, sizeof(uint32_t));
    tutti_err err = TUTTI_ENOMEM;
    if (comm->hosts)
        err = take_topology(parts, comm);
    if (!err)
        err = tt_team_create(parts->mesh, parts->id, parts->members, parts->n,
                             &comm->team);
    if (!err) {
        err = tt_comm_map_rails(comm);
        if (!err && comm->observe)
            err = comm->observe(comm);
        if (err)
            leave(comm);
    }
    if (err) {
        free_comm(mem, comm);
        return err;
    }
    memcpy(comm->hosts, parts->hosts, parts->n * sizeof(uint32_t));
    *out = comm;
    return TUTTI_OK;
}

static void tell_times(const tutti_comm *comm)
{
    char text[TT_UNITS_TEXT];
    double spent_s;
    if (!tt_logs(TUTTI_LOG_INFO) || comm->is_for_start)
        return;
    tt_engine_lock(comm->engine);
    const uint64_t n = tt_team_calls(comm->team, &spent_s);
    tt_engine_unlock(comm->engine);
    TT_INFO("communicator %016" PRIx64 " ends: %" PRIu64 " calls, %s in them",
            comm->id, n, tt_units_seconds(spent_s, text));
}

void tutti_comm_destroy(tutti_comm *comm)
{
    if (!comm || tt_process_is_child())
        return;
    tt_mesh *mesh = comm->mesh;
    if (comm->stop_growing)
        comm->stop_growing(comm);
    tt_comm_tell_calls(comm);
    tell_times(comm);
    tt_service_remove(comm->team);
    tt_engine_lock(comm->engine);
    tt_team_leave(comm->team);
    tt_comm_free_plans(comm);
    tt_engine_unlock(comm->engine);
    tt_gpu_end(comm->gpu);
    tt_mem mem = comm->mem;
    free_comm(&mem, comm);
    tt_mesh_unref(mesh);
    tt_process_release();
}

int tutti_comm_rank(const tutti_comm *comm)
{
    return (int)comm->rank;
}

int tutti_comm_size(const tutti_comm *comm)
{
    return (int)comm->n_ranks;
}

/* The team keeps the reason of a failure, also of asynchronous calls. */
static tutti_err failure_of(const tutti_comm *comm, const char **text)
{
    tt_engine_lock(comm->engine);
    tutti_err err = tt_team_state(comm->team, text);
    tt_engine_unlock(comm->engine);
    return err;
}

const char *tutti_comm_message(const tutti_comm *comm)
{
    const char *text;
    if (tt_process_is_child())
        return comm->message;
    bool is_own = !failure_of(comm, &text) || comm->says_own;
    return is_own ? comm->message : text;
}

tutti_err tutti_comm_failure(const tutti_comm *comm)
{
    const char *text;
    return tt_process_is_child() ? TUTTI_EFORK : failure_of(comm, &text);
}

const char *tutti_comm_transport(const tutti_comm *comm, int rank)
{
    if (rank < 0 || (uint32_t)rank >= comm->n_ranks)
        return NULL;
    return tt_mesh_transport(comm->mesh,
                             tt_team_member(comm->team, (uint32_t)rank));
}

static void end_all(tutti_comm *comm, const char *did, const char *reason)
{
    char text[200];
    if (tt_process_is_child())
        return;
    snprintf(text, sizeof(text), "rank %u %s the communicator%s%.120s",
             comm->rank, did, reason ? ": " : "", reason ? reason : "");
    tt_comm_end(comm, TUTTI_EABORTED, text);
}

void tutti_comm_abort(tutti_comm *comm, const char *reason)
{
    end_all(comm, "aborted", reason);
}

void tutti_comm_revoke(tutti_comm *comm, const char *reason)
{
    end_all(comm, "revoked", reason);
}

tutti_err tutti_comm_lateness(const tutti_comm *comm, int rank, double *ns)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    if (rank < 0 || (uint32_t)rank >= comm->n_ranks || !ns)
        return TUTTI_EINVAL;
    tt_engine_lock(comm->engine);
    *ns = tt_team_lateness(comm->team, (uint32_t)rank);
    tt_engine_unlock(comm->engine);
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- split -- */

typedef struct vote {
    int32_t color, key;
} vote;

/* The ranks of `color` ordered by (key, rank); returns how many. */
static uint32_t select_members(const tutti_comm *comm, const vote *votes,
                               int32_t color, uint32_t *members)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < comm->n_ranks; r++) {
        if (votes[r].color != color)
            continue;
        uint32_t at = n++;
        for (; at > 0 && votes[members[at - 1]].key > votes[r].key; at--)
            members[at] = members[at - 1];
        members[at] = r;
    }
    return n;
}

static uint32_t count_hosts(const uint32_t *hosts, uint32_t n)
{
    uint32_t n_hosts = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool is_new = true;
        for (uint32_t j = 0; j < i && is_new; j++)
            is_new = hosts[j] != hosts[i];
        n_hosts += is_new;
    }
    return n_hosts;
}

tutti_err tt_comm_make_part(tutti_comm *comm, const uint32_t *ranks, uint32_t n,
                            uint64_t id, tutti_comm **out)
{
    tt_arena arena = {.mem = &comm->mem};
    uint32_t *members = tt_arena_new(&arena, n, sizeof(*members));
    uint32_t *hosts = tt_arena_new(&arena, n, sizeof(*hosts));
    tt_agreed agreed = comm->agreed;
    tt_engine_opts opts = {0};
    tt_engine *e;
    tutti_diag diag;
    tutti_err err = TUTTI_ENOMEM;
    if (!members || !hosts)
        goto out;
    tt_diag_clear(&diag);
    tt_comm_parts parts = {
        .mesh = comm->mesh,
        .members = members,
        .hosts = hosts,
        .n = n,
        .id = id,
        .timeout_ns = comm->timeout_ns,
        .agreed = &agreed,
        .topology = comm->topology,
        .seats = ranks,
        .trust = comm->trust,
        .home = &comm->home,
        .observe = comm->observe,
        .trail = comm->trail,
        .diag = &diag,
    };
    for (uint32_t i = 0; i < n; i++) {
        if (ranks[i] == comm->rank)
            parts.rank = i;
        hosts[i] = comm->hosts[ranks[i]];
        members[i] = tt_team_member(comm->team, ranks[i]);
    }
    agreed.n_hosts = count_hosts(hosts, n);
    /* By their ranks in the whole it was measured who reaches whom. */
    agreed.amends_costs &= agreed.n_hosts == 1;
    err = tt_process_engine(&opts, &e, NULL);
    if (err)
        goto out;
    tt_mesh_ref(comm->mesh);
    /* The mesh's allocator lives as long as the mesh does. */
    err = tt_comm_make(tt_mesh_mem(comm->mesh), e, &parts, out);
    if (!err) {
        tt_service_add(e, (*out)->team, comm->home.job, NULL);
    } else {
        tt_mesh_unref(comm->mesh);
        tt_process_release();
    }
out:
    tt_arena_free(&arena);
    return err;
}

static tutti_err make_split(tutti_comm *comm, const vote *votes, int color,
                            tutti_comm **out)
{
    uint32_t *members = tt_new(&comm->mem, comm->n_ranks, sizeof(*members));
    if (!members)
        return TUTTI_ENOMEM;
    uint64_t id = tt_fnv1a_u64(TT_FNV1A_START, comm->id);
    id = tt_fnv1a_u64(id, comm->n_splits);
    id = tt_fnv1a_u64(id, (uint64_t)color);
    uint32_t n = select_members(comm, votes, color, members);
    tutti_err err = tt_comm_make_part(comm, members, n, id, out);
    tt_free(&comm->mem, members, comm->n_ranks, sizeof(*members));
    return err;
}

/* Nobody speaks to a new communicator before all have made theirs; and either
 * all have it or none. */
static tutti_err agree_on_split(tutti_comm *comm, tutti_err mine)
{
    int32_t worst = mine;
    tutti_err err = tutti_all_reduce(comm, &worst, &worst, 1, TUTTI_I32,
                                     TUTTI_MIN, NULL, NULL);
    if (err || worst == TUTTI_OK)
        return err;
    return tt_comm_fail(comm, (tutti_err)worst,
                        "a rank could not make its communicator: %s",
                        tutti_strerror((tutti_err)worst));
}

void tt_comm_drop(const tutti_comm *parent, tutti_comm *made)
{
    if (!made)
        return;
    tt_engine_lock(made->engine);
    tt_team_follow(made->team, parent->team);
    tt_engine_unlock(made->engine);
    tutti_comm_destroy(made);
}

tutti_err tutti_comm_split(tutti_comm *comm, int color, int key,
                           tutti_comm **out)
{
    if (!out || color < -1)
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "tutti_comm_split: the color is -1 or more, and "
                            "out must not be NULL");
    vote mine = {color, key};
    vote *votes = tt_new(&comm->mem, comm->n_ranks, sizeof(*votes));
    if (!votes)
        return tt_comm_fail(comm, TUTTI_ENOMEM, "out of memory for a split");
    tutti_err err = tutti_all_gather(comm, &mine, votes, sizeof(mine), TUTTI_U8,
                                     NULL, NULL);
    tutti_comm *made = NULL;
    if (!err) {
        comm->n_splits++;
        if (color != -1)
            err = make_split(comm, votes, color, &made);
        err = agree_on_split(comm, err);
    }
    tt_free(&comm->mem, votes, comm->n_ranks, sizeof(*votes));
    if (err)
        tt_comm_drop(comm, made);
    else
        *out = made;
    return err;
}
