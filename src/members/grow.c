/* SPDX-License-Identifier: BSD-3-Clause
 * grow.c - a communicator gets larger while it is used: newcomers.
 *
 * Idea       A larger communicator is made by an ordinary start-up
 *            (start/create.c) of all members, which keep their ranks, and the
 *            newcomers, which come behind them: rendezvous, transports, a mesh
 *            of its own. It runs in a thread of each member, while the old
 *            communicator is used; so a newcomer that dies, freezes or lies
 *            ends that start and nothing else. The members look after it in
 *            tutti_comm_grow(), between two of their steps, and take the new
 *            one at the same call.
 * The call   While nobody has knocked at rank 0's entrance (boot/entrance.c): a
 *            small broadcast from rank 0. When somebody has, rank 0 begins to
 *            listen for the meeting, tells the members where, then the
 *            newcomers. While the start is under way: an agreement
 *            (engine/agree.h) whether all have made theirs. It is one, and no
 *            all-reduce, because either all must take the new communicator or
 *            none, whoever dies meanwhile.
 * Newcomers  wait in a barrier of the new communicator until the members have
 *            taken it; these do not wait for them there.
 * Names      The job of the start is made of the old id, the number of this
 *            growth, the number of ranks, and random bits; the new id of that.
 * Given up   A start that is not wanted any more ends at its next wait, and
 *            what it has made is destroyed. Nobody waits for it but who
 *            destroys the communicator: its thread does not outlive that.
 * Next       start/create.c, shrink.c, boot/entrance.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/thread.h"
#include "members/members.h"
#include "probe/probe.h"
#include "start/start.h"

/* Newcomers that have been invited are waited for so long at most. */
static const uint64_t most_wait_ns = 15 * TT_NS_PER_S;
/* A newcomer whose start was in vain knocks again after a pause. */
static const uint64_t first_pause_ns = 100 * TT_NS_PER_MS;
static const uint64_t most_pause_ns = 5 * TT_NS_PER_S;

/* The start of a larger communicator, in this process. The communicator that
 * grows owns it, and the thread. */
typedef struct tt_growth {
    pthread_t thread;
    struct tt_growth *next; /* given up, too */
    pthread_mutex_t lock;   /* of what follows, up to made, and inv.place */
    bool has_place;         /* rank 0: the members may be told */
    bool is_over;
    tutti_err err;
    tutti_diag diag;
    tutti_comm *made;
    atomic_bool is_off; /* nobody wants it any more; set with the lock */
    uint32_t n_new;
    tt_invitation inv;
    tutti_store store;
    tt_launch launch;
    tt_home home;
    tt_settings settings;
    tt_agreed agreed;
    tt_known network; /* rank 0: that of the communicator, if it was measured */
    tt_start_how how;
    tt_mem mem; /* the communicator's */
} tt_growth;

/* ---------------------------------------------- the start, in its thread -- */

/* Rank 0's, whose ctx is the growth: where it listens, for the others to be
 * told. */
static tutti_err put_place(void *ctx, const char *key, const void *bytes,
                           size_t len)
{
    tt_growth *g = ctx;
    (void)key;
    if (len >= sizeof(g->inv.place))
        return TUTTI_ELIMIT;
    pthread_mutex_lock(&g->lock);
    memcpy(g->inv.place, bytes, len);
    g->has_place = true;
    pthread_mutex_unlock(&g->lock);
    return TUTTI_OK;
}

/* The others': ctx is what they were told. */
static tutti_err get_place(void *ctx, const char *key, void *buf, size_t cap,
                           size_t *len, double timeout_s)
{
    const char *place = ctx;
    (void)key;
    (void)timeout_s;
    *len = strlen(place);
    memcpy(buf, place, *len < cap ? *len : cap);
    return TUTTI_OK;
}

static void free_growth(tt_growth *g)
{
    tt_trust_close(g->launch.trust);
    pthread_mutex_destroy(&g->lock);
    tt_known_free(&g->network);
    tt_free(&tt_mem_std, g, 1, sizeof(*g));
}

/* Waits for the thread. */
static void end_thread(tt_growth *g)
{
    pthread_join(g->thread, NULL);
    free_growth(g);
}

static tutti_err start_up(const tt_start_how *how, const tt_mem *own,
                          tutti_comm **out, tutti_diag *diag)
{
    tt_mem *home;
    const tt_mem *mem = tt_start_home(own, &home);
    tutti_err err = mem ? tt_start_run(mem, &home, how, out, diag)
                        : tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    tt_start_free_home(home);
    return err;
}

static void *run(void *arg)
{
    tt_growth *g = arg;
    tutti_comm *made = NULL;
    tutti_diag diag;
    tt_diag_clear(&diag);
    tutti_err err = start_up(&g->how, &g->mem, &made, &diag);
    pthread_mutex_lock(&g->lock);
    const bool is_wanted = !atomic_load(&g->is_off);
    g->err = err;
    g->diag = diag;
    g->made = is_wanted ? made : NULL;
    g->is_over = is_wanted;
    pthread_mutex_unlock(&g->lock);
    if (is_wanted)
        return NULL;
    tutti_comm_destroy(made);
    pthread_mutex_lock(&g->lock);
    g->is_over = true;
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* ----------------------------------------------------------- its members -- */

static tutti_err launch_thread(tt_growth *g, tutti_diag *diag)
{
    int why = tt_thread_start(&g->thread, run, g);
    return why == 0
               ? TUTTI_OK
               : tt_fail_errno(diag, TUTTI_ESYS, why, "a thread for newcomers");
}

static bool is_loopback(const tt_home *home)
{
    char host[TT_SOCK_HOST];
    uint16_t port;
    tt_addr addr;
    return tt_hostport_split(home->address, host, &port) &&
           (strcmp(host, "localhost") == 0 ||
            (tt_addr_numeric(host, port, &addr) && tt_addr_is_loopback(&addr)));
}

/* What all members have in common stays as it is. */
static tutti_err take_settings(tt_growth *g, tutti_diag *diag)
{
    tutti_err err = tt_settings_read(&g->settings, diag);
    g->settings.start_timeout_ns = g->inv.wait_ms * TT_NS_PER_MS;
    g->settings.check = g->agreed.is_checked ? TT_CHECK_CRC : TT_CHECK_OFF;
    memcpy(g->settings.planner, g->agreed.planner, sizeof(g->agreed.planner));
    if (tt_learn_is_wanted(&g->settings))
        g->settings.topology[0] = '\0';
    return err;
}

/* A network that was measured, and may have changed since, is not measured
 * again: calls are under way. */
static tutti_err take_network(const tutti_comm *comm, tt_growth *g)
{
    g->agreed.topology_is_kept = comm->topology &&
                                 (comm->agreed.topology_is_learnt ||
                                  comm->agreed.topology_is_kept);
    g->agreed.topology_is_learnt = false;
    return g->agreed.topology_is_kept && comm->rank == 0
               ? tt_known_write(comm->topology, &g->network)
               : TUTTI_OK;
}

/* is_here: they meet on this host, by the name of the job. */
static tutti_err begin(tutti_comm *comm, const tt_invitation *inv, bool is_here,
                       tutti_diag *diag)
{
    tt_growth *g = tt_new(&tt_mem_std, 1, sizeof(*g));
    if (!g)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for newcomers");
    pthread_mutex_init(&g->lock, NULL);
    atomic_init(&g->is_off, false);
    g->inv = *inv;
    g->n_new = inv->n_ranks - comm->n_ranks;
    g->mem = comm->mem;
    g->home = comm->home;
    g->agreed = comm->agreed;
    g->store = comm->rank == 0
                   ? (tutti_store){put_place, get_place, g}
                   : (tutti_store){put_place, get_place, g->inv.place};
    g->has_place = is_here;
    g->launch = (tt_launch){.rank = comm->rank,
                            .n_ranks = inv->n_ranks,
                            .source = "tutti_comm_grow",
                            .store = is_here ? NULL : &g->store,
                            .is_off = &g->is_off,
                            .trust = tt_trust_ref(comm->trust)};
    memcpy(g->launch.job, inv->job, sizeof(g->launch.job));
    g->how = (tt_start_how){.launch = &g->launch,
                            .home = &g->home,
                            .settings = &g->settings,
                            .agreed = &g->agreed,
                            .network = &g->network,
                            .timeout_ns = comm->timeout_ns,
                            .is_loopback = is_loopback(&g->home)};
    tutti_err err = take_settings(g, diag);
    if (!err)
        err = take_network(comm, g);
    if (!err)
        err = launch_thread(g, diag);
    if (err)
        free_growth(g);
    else
        comm->growth = g;
    return err;
}

/* Those whose threads have nothing left to do, or all. */
static void end_threads(tutti_comm *comm, bool waits)
{
    tt_growth **at = &comm->given_up;
    while (*at) {
        tt_growth *g = *at;
        pthread_mutex_lock(&g->lock);
        const bool is_over = g->is_over;
        pthread_mutex_unlock(&g->lock);
        if (!is_over && !waits) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        end_thread(g);
    }
}

/* The start is not wanted any more. */
static void end_growth(tutti_comm *comm)
{
    tt_growth *g = comm->growth;
    tutti_comm *made = NULL;
    comm->growth = NULL;
    comm->is_growing = false;
    if (!g)
        return;
    if (comm->entrance)
        tt_entrance_dismiss(comm->entrance, g->n_new);
    pthread_mutex_lock(&g->lock);
    atomic_store(&g->is_off, true);
    made = g->made;
    g->made = NULL;
    pthread_mutex_unlock(&g->lock);
    tt_comm_drop(comm, made);
    g->next = comm->given_up;
    comm->given_up = g;
}

static void stop_growing(tutti_comm *comm)
{
    end_growth(comm);
    end_threads(comm, true);
    tt_entrance_close(comm->entrance);
    comm->entrance = NULL;
}

/* --------------------------------------------------- rank 0, at the door -- */

/* What rank 0 says at a call. */
typedef enum word { CANNOT = -1, NOBODY, GO } word;

/* Of a text that is an address, or a name. */
static void set_home(tt_home *home, const char *text)
{
    char host[TT_SOCK_HOST];
    uint16_t port;
    const bool is_address = tt_hostport_split(text, host, &port);
    *home = (tt_home){.listen_fd = 0};
    snprintf(is_address ? home->address : home->job, sizeof(home->job), "%s",
             text);
}

static tt_launch place_of(const tt_home *home, const tutti_store *store,
                          tt_trust *trust)
{
    tt_launch place = {
        .listen_fd = home->listen_fd, .store = store, .trust = trust};
    memcpy(place.address, home->address, sizeof(place.address));
    memcpy(place.job, home->job, sizeof(place.job));
    return place;
}

static tutti_err open_entrance(tutti_comm *comm, const tutti_grow_opts *opts,
                               tutti_diag *diag)
{
    tt_settings set;
    tt_home *home = &comm->home;
    tutti_err err = tt_settings_read(&set, diag);
    if (opts->address)
        set_home(home, opts->address);
    else if (!home->address[0] && !home->job[0])
        set_home(home, set.address[0] ? set.address : set.job);
    const tt_launch place = place_of(home, opts->store, comm->trust);
    if (!err)
        err = tt_entrance_open(&tt_mem_std, &place, &set, &comm->entrance,
                               diag);
    return err;
}

static uint64_t wait_ns(const tutti_grow_opts *opts)
{
    tt_settings set;
    uint64_t most_ns = most_wait_ns;
    if (opts->timeout_s > 0)
        return tt_seconds_to_ns(opts->timeout_s);
    if (!tt_settings_read(&set, NULL) && set.start_timeout_ns < most_ns)
        most_ns = set.start_timeout_ns;
    return most_ns;
}

/* Begins to listen for n of them, and for the members. */
static tutti_err prepare(tutti_comm *comm, const tutti_grow_opts *opts,
                         uint32_t n, tutti_diag *diag)
{
    uint64_t random;
    const uint64_t ms = wait_ns(opts) / TT_NS_PER_MS;
    tt_invitation inv = {.n_ranks = comm->n_ranks + n,
                         .wait_ms = ms > UINT32_MAX ? UINT32_MAX
                                                    : (uint32_t)ms + (ms == 0)};
    tutti_err err = tt_random(&random, sizeof(random), diag);
    if (err)
        return err;
    snprintf(inv.job, sizeof(inv.job),
             "grow-%016" PRIx64 "-%" PRIu64 "-%u-%016" PRIx64, comm->id,
             comm->n_growths++, inv.n_ranks, random);
    const bool is_here = tt_entrance_is_here(comm->entrance) &&
                         comm->agreed.n_hosts == 1;
    return begin(comm, &inv, is_here, diag);
}

/* May the members be told? */
static word judge(tutti_comm *comm, tutti_diag *diag)
{
    tt_growth *g = comm->growth;
    pthread_mutex_lock(&g->lock);
    const bool is_over = g->is_over;
    const bool has_place = g->has_place;
    *diag = g->diag;
    pthread_mutex_unlock(&g->lock);
    if (!is_over && tt_entrance_has(comm->entrance, g->n_new))
        return has_place ? GO : NOBODY;
    end_growth(comm); /* those who have not gone come again */
    return is_over ? CANNOT : NOBODY;
}

static word look_out(tutti_comm *comm, const tutti_grow_opts *opts,
                     tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    if (!comm->entrance)
        err = open_entrance(comm, opts, diag);
    if (!err && !comm->growth) {
        const uint32_t room = TT_VOTERS_MAX > comm->n_ranks
                                  ? TT_VOTERS_MAX - comm->n_ranks
                                  : 0;
        const uint32_t n = tt_entrance_guests(comm->entrance);
        if (n == 0 || room == 0)
            return NOBODY;
        err = prepare(comm, opts, n < room ? n : room, diag);
    }
    return err ? CANNOT : judge(comm, diag);
}

/* ----------------------------------------------------------- the members -- */

static tutti_err from_rank_0(tutti_comm *comm, void *bytes, size_t len)
{
    return tutti_broadcast(comm, bytes, bytes, len, TUTTI_U8, 0, NULL, NULL);
}

/* All are told where to meet, the newcomers last. A member that cannot begin
 * says so at the next call. */
static tutti_err tell_all(tutti_comm *comm)
{
    tt_invitation inv = {.n_ranks = 0};
    tutti_diag diag;
    tt_growth *g = comm->growth;
    if (g) {
        pthread_mutex_lock(&g->lock);
        inv = g->inv;
        pthread_mutex_unlock(&g->lock);
    }
    tutti_err err = from_rank_0(comm, &inv, sizeof(inv));
    if (err)
        return err;
    comm->is_growing = true;
    if (comm->rank > 0 &&
        (!tt_invitation_is_sound(&inv) || inv.n_ranks <= comm->n_ranks ||
         begin(comm, &inv, inv.place[0] == '\0', &diag)))
        TT_WARN("rank %u cannot take newcomers in", comm->rank);
    if (g && !tt_entrance_invite(comm->entrance, &inv, g->n_new)) {
        end_growth(comm);
        comm->is_growing = true; /* the members are to hear of it */
    }
    return TUTTI_AGAIN;
}

static tutti_err wait_for_somebody(tutti_comm *comm,
                                   const tutti_grow_opts *opts)
{
    tutti_diag diag;
    int32_t said = GO;
    tt_diag_clear(&diag);
    if (comm->rank == 0)
        said = look_out(comm, opts, &diag);
    tutti_err err = from_rank_0(comm, &said, sizeof(said));
    if (err)
        return err;
    if (said == CANNOT)
        return tt_comm_fail(comm, TUTTI_EBOOT, "newcomers cannot come: %.300s",
                            comm->rank == 0 ? diag.text : "rank 0 knows why");
    return said == GO ? tell_all(comm) : TUTTI_AGAIN;
}

/* In the mask of an agreement. */
enum { IS_MADE = 1, IS_WELL = 2 };

/* As this rank sees it; why not, if not well. */
static uint64_t see(const tutti_comm *comm, char *why, size_t size)
{
    tt_growth *g = comm->growth;
    uint64_t seen = 0;
    snprintf(why, size, "a rank could not start with them");
    if (!g)
        return seen;
    pthread_mutex_lock(&g->lock);
    if (!g->is_over)
        seen = IS_WELL;
    else if (g->err)
        snprintf(why, size, "%.300s", g->diag.text);
    else if (tutti_comm_failure(g->made))
        snprintf(why, size, "%.300s", tutti_comm_message(g->made));
    else
        seen = IS_WELL | IS_MADE;
    pthread_mutex_unlock(&g->lock);
    if (seen == IS_WELL && comm->entrance &&
        !tt_entrance_has(comm->entrance, g->n_new)) {
        snprintf(why, size, "one has gone before it had started");
        seen = 0;
    }
    return seen;
}

/* All have it, and nobody waits for anybody. */
static void take(tutti_comm *comm, tutti_comm **out)
{
    tt_growth *g = comm->growth;
    tutti_request *req;
    tutti_comm *made = g->made;
    g->made = NULL;
    if (comm->entrance)
        tt_entrance_dismiss(comm->entrance, g->n_new);
    made->entrance = comm->entrance;
    made->stop_growing = stop_growing;
    comm->entrance = NULL;
    comm->growth = NULL;
    comm->is_growing = false;
    end_thread(g);
    if (!tutti_barrier(made, NULL, &req))
        tutti_request_free(req);
    *out = made;
}

static tutti_err refuse(tutti_comm *comm, const char *why)
{
    const uint32_t n = comm->growth ? comm->growth->n_new : 0;
    end_growth(comm);
    if (comm->rank == 0)
        TT_WARN("%u newcomer%s not taken in: %s; the %u ranks go on", n,
                n == 1 ? " is" : "s are", why, comm->n_ranks);
    return tt_comm_fail(comm, TUTTI_EBOOT, "newcomers are not taken in: %s",
                        why);
}

/* The agreement has shown that comm is at an end, or somebody knows already. */
static tutti_err give_up(tutti_comm *comm, const char *why)
{
    end_growth(comm);
    if (!tutti_comm_failure(comm))
        tt_comm_end(comm, TUTTI_EPEER, why);
    comm->says_own = false;
    return tutti_comm_failure(comm);
}

/* With no quorum of its own: whoever is lost, comm has failed, and who knows
 * that already, and shrinks, goes by its own quorum. */
static tutti_err look_after(tutti_comm *comm, tutti_comm **out)
{
    char why[320];
    tt_verdict got;
    const tt_ballot own = {.what = TT_ON_GROWTH,
                           .mask = see(comm, why, sizeof(why)),
                           .quorum = 1,
                           .timeout_ns = comm->timeout_ns};
    tutti_err err = tt_comm_enter(comm);
    if (err)
        return err;
    err = tt_comm_vote(comm, &own, &got);
    tt_comm_leave(comm);
    if (err == TUTTI_EMISMATCH)
        return give_up(comm, "some ranks look after newcomers, others agree on "
                             "something else");
    if (err) {
        end_growth(comm);
        return err;
    }
    for (uint32_t r = 0; r < comm->n_ranks; r++)
        if (tt_vote_has_lost(&got.decision, r))
            return give_up(comm, "a rank is lost");
    if (!(got.decision.mask & IS_WELL))
        return refuse(comm, why);
    if (!(got.decision.mask & IS_MADE))
        return TUTTI_AGAIN;
    take(comm, out);
    return TUTTI_OK;
}

tutti_err tutti_comm_grow(tutti_comm *comm, const tutti_grow_opts *given,
                          tutti_comm **out)
{
    tutti_diag diag;
    tutti_grow_opts opts;
    if (tt_process_is_child())
        return TUTTI_EFORK;
    tutti_err err = tt_read_opts(given, &opts, sizeof(opts), &diag);
    if (!err && (!out || !(opts.timeout_s >= 0)))
        err = tt_fail(&diag, TUTTI_EINVAL,
                      "tutti_comm_grow: out is NULL, or timeout_s is negative "
                      "or no number");
    if (err)
        return tt_comm_fail(comm, err, "%s", diag.text);
    comm->stop_growing = stop_growing;
    end_threads(comm, false);
    return comm->is_growing ? look_after(comm, out)
                            : wait_for_somebody(comm, &opts);
}

/* ---------------------------------------------------------- the newcomer -- */

typedef struct joining {
    tutti_comm_opts opts;
    tt_settings settings;
    tt_home home;
    tt_launch place;
    tt_knock *knock;
    tt_invitation inv;
    uint64_t deadline_ns;
    tutti_diag *diag;
} joining;

static tutti_err read_join(joining *j, const tutti_comm_opts *given,
                           tutti_comm **out)
{
    tutti_comm_opts *o = &j->opts;
    tutti_err err = tt_read_opts(given, o, sizeof(*o), j->diag);
    if (!err && (!out || !(o->timeout_s >= 0) || !(o->start_timeout_s >= 0) ||
                 (o->store && (!o->store->put || !o->store->get))))
        err = tt_fail(j->diag, TUTTI_EINVAL,
                      "tutti_comm_join: no place for the communicator, a time "
                      "that is none, or a store without its functions");
    if (!err)
        err = tt_settings_read(&j->settings, j->diag);
    if (err)
        return err;
    tt_log_setup((tutti_log_level)j->settings.log);
    tt_settings_warn_unknown();
    if (o->check && !tt_parse_check(o->check, &j->settings.check))
        return tt_fail(j->diag, TUTTI_EINVAL,
                       "tutti_comm_join: the check \"%.60s\" is not known; it "
                       "is off or crc",
                       o->check);
    if (o->timeout_s > 0)
        j->settings.timeout_ns = tt_seconds_to_ns(o->timeout_s);
    if (o->start_timeout_s > 0)
        j->settings.start_timeout_ns = tt_seconds_to_ns(o->start_timeout_s);
    set_home(&j->home, o->address ? o->address : j->settings.join);
    return TUTTI_OK;
}

/* Among the ranks that have invited it; until they have all taken the new
 * communicator. */
static tutti_err take_part(joining *j, tutti_comm **out)
{
    tt_launch launch = {.rank = j->inv.rank,
                        .n_ranks = j->inv.n_ranks,
                        .source = "tutti_comm_join",
                        .trust = j->place.trust};
    const tutti_store where = {put_place, get_place, j->inv.place};
    tt_settings settings = j->settings;
    const tt_mem own = {j->opts.alloc, j->opts.alloc_ctx};
    const uint64_t now_ns = tt_now_ns();
    tutti_comm *comm = NULL;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    memcpy(launch.job, j->inv.job, sizeof(launch.job));
    launch.store = j->inv.place[0] ? &where : NULL;
    settings.start_timeout_ns = j->inv.wait_ms * TT_NS_PER_MS;
    opts.timeout_s = j->deadline_ns > now_ns + TT_NS_PER_S
                         ? (double)(j->deadline_ns - now_ns) / TT_NS_PER_S
                         : 1;
    const tt_start_how how = {.launch = &launch,
                              .home = &j->home,
                              .settings = &settings,
                              .timeout_ns = j->settings.timeout_ns};
    tutti_err err = start_up(&how, j->opts.alloc ? &own : NULL, &comm, j->diag);
    if (err)
        return err;
    err = tutti_barrier(comm, &opts, NULL);
    if (err) {
        tt_fail(j->diag, err, "%.400s", tutti_comm_message(comm));
        tutti_comm_destroy(comm);
        return err;
    }
    tt_log_rank((int)j->inv.rank);
    tt_log_file(j->settings.log_file);
    *out = comm;
    return TUTTI_OK;
}

/* Another time it may be otherwise: somebody else has died, say. */
static bool is_worth_another(tutti_err err)
{
    return err == TUTTI_EBOOT || err == TUTTI_EPEER || err == TUTTI_ETIMEOUT ||
           err == TUTTI_EABORTED || err == TUTTI_ENET;
}

static tutti_err join(joining *j, tutti_comm **out)
{
    tutti_diag last;
    uint64_t pause_ns = first_pause_ns;
    tt_diag_clear(&last);
    for (;;) {
        tutti_err err = tt_knock_wait(j->knock, j->deadline_ns, &j->inv,
                                      j->diag);
        if (err == TUTTI_ETIMEOUT && last.text[0]) {
            *j->diag = last;
            return TUTTI_EBOOT;
        }
        if (err)
            return err;
        err = take_part(j, out);
        if (!is_worth_another(err))
            return err;
        TT_INFO("not taken in: %s", j->diag->text);
        last = *j->diag;
        const struct timespec pause = {
            .tv_sec = (time_t)(pause_ns / TT_NS_PER_S),
            .tv_nsec = (long)(pause_ns % TT_NS_PER_S)};
        nanosleep(&pause, NULL);
        pause_ns = pause_ns * 2 < most_pause_ns ? pause_ns * 2 : most_pause_ns;
    }
}

tutti_err tutti_comm_join(const tutti_comm_opts *given, tutti_comm **out)
{
    tutti_diag diag;
    tt_diag_clear(&diag);
    tutti_err err = tt_process_enter(&diag);
    joining *j = err ? NULL : tt_new(&tt_mem_std, 1, sizeof(*j));
    if (!err && !j)
        err = tt_fail(&diag, TUTTI_ENOMEM, "out of memory for joining");
    if (j) {
        tt_trust *trust = NULL;
        j->diag = &diag;
        err = read_join(j, given, out);
        if (!err)
            err = tt_start_trust(&j->opts.trust, &j->settings, false, &trust,
                                 &diag);
        j->place = place_of(&j->home, j->opts.store, trust);
        j->deadline_ns = tt_now_ns() + j->settings.start_timeout_ns;
        if (!err)
            err = tt_knock_open(&tt_mem_std, &j->place, &j->settings, &j->knock,
                                &diag);
        if (!err)
            err = join(j, out);
        tt_knock_close(j->knock);
        tt_trust_close(trust);
        tt_free(&tt_mem_std, j, 1, sizeof(*j));
    }
    if (err)
        tt_last_message_set(diag.text);
    return err;
}
