/* SPDX-License-Identifier: BSD-3-Clause
 * gpu.c - calls on memory of GPUs: what a communicator has for them.
 *
 * Idea       Its streams on its GPU, made with the first such call. A call then
 *            has a mirror: host memory of the same shape, which the GPU knows
 *            and which processes of the host share (tutti_alloc()), so that
 *            everything that serves calls on host memory serves these.
 *            engine/stage.c has the GPU move what goes there and back. Behind
 *            it lie the words by which GPU and host tell each other.
 * Mirrors    are kept from call to call, for all communicators: to make one
 *            known to a GPU takes as long as to fill it. Those of calls that
 *            failed wait until the GPU is done with everything.
 * Near       Where all ranks sit on one host and map each other's memory, large
 *            calls go without the host (engine/near.c), but for all-to-all and
 *            scaled sums, which need a copy of their input. Whether they do is
 *            found out once, in the first call that could: all ranks tell where
 *            their memory is, try to map the others', and agree.
 * Threads    A communicator's is used by the thread that calls, and, with the
 *            engine's lock, by the engine; its promises by any thread that asks
 *            for an event, one at a time (tt_streams_lock()).
 * Next       device/device.h, engine/stage.c. */
#include <pthread.h>
#include <string.h>

#include "base/child.h"
#include "base/log.h"
#include "base/numbers.h"
#include "core/core.h"

/* Smaller ones are sooner there by the host: two processes that share a GPU get
 * it in turns of some 100 us. */
static const uint64_t least_near_bytes = 1 << 20;
/* Mirrors that are kept though no call needs them. */
static const uint64_t most_idle_bytes = UINT64_C(4) << 30;

struct tt_mirror {
    tt_mirror *next;
    unsigned char *at;
    size_t bytes;
    tt_device *device;
    bool is_shared; /* when it was made */
};

struct tt_gpu {
    tt_mem mem;
    tt_engine *engine;
    tt_device *device;
    tt_streams *streams;
    _Atomic int n_refs; /* the communicator's, and those of calls */
    enum { NEAR_UNKNOWN, NEAR_NOT, NEAR_ALL } near;
    tt_mirror *late; /* of calls that have failed. [locked] */
};

static struct {
    pthread_mutex_t lock;
    tt_mirror *idle, *torn;
    uint64_t idle_bytes;
    uint32_t n_used; /* by calls that are not over */
    uint32_t n_gpus;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --------------------------------------------------------------- mirrors -- */

static void destroy_mirror(tt_mirror *m)
{
    tt_device_unpin(m->device, m->at);
    tt_regions_free(tt_process_regions(), m->at);
    tt_free(&tt_mem_std, m, 1, sizeof(*m));
}

static size_t size_of_mirror(size_t bytes)
{
    const size_t large = (size_t)64 << 20, page = (size_t)64 << 10;
    if (bytes > large)
        return tt_round_up(bytes, large);
    return tt_pow2_up(bytes < page ? page : bytes);
}

static void destroy_list(tt_mirror *m)
{
    while (m) {
        tt_mirror *next = m->next;
        destroy_mirror(m);
        m = next;
    }
}

static void count_unused(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.n_used--;
    pthread_mutex_unlock(&pool.lock);
}

/* What is not needed, for whoever destroys it, while no call is under way: the
 * driver unpins memory when all streams are done, and lets nobody in before. */
static tt_mirror *take_surplus(void)
{
    if (pool.n_used > 0)
        return NULL;
    tt_mirror *out = pool.torn;
    pool.torn = NULL;
    while (pool.idle_bytes > most_idle_bytes) {
        tt_mirror *m = pool.idle;
        pool.idle = m->next;
        pool.idle_bytes -= m->bytes;
        m->next = out;
        out = m;
    }
    return out;
}

static tt_mirror *find_idle(tt_device *device, size_t bytes)
{
    tt_mirror **best = NULL;
    for (tt_mirror **at = &pool.idle; *at; at = &(*at)->next)
        if ((*at)->device == device && (*at)->bytes >= bytes &&
            (*at)->bytes / 4 <= bytes &&
            (!best || (*at)->bytes < (*best)->bytes))
            best = at;
    if (!best)
        return NULL;
    tt_mirror *m = *best;
    *best = m->next;
    pool.idle_bytes -= m->bytes;
    return m;
}

static tutti_err new_mirror(tt_device *device, size_t bytes, tt_mirror **out,
                            tutti_diag *diag)
{
    tt_mirror *m = tt_new(&tt_mem_std, 1, sizeof(*m));
    if (m)
        *m = (tt_mirror){.bytes = bytes, .device = device};
    if (m)
        m->at = tt_regions_alloc(tt_process_regions(), bytes);
    if (!m || !m->at) {
        tt_free(&tt_mem_std, m, 1, sizeof(*m));
        return tt_fail(diag, TUTTI_ENOMEM,
                       "no memory for %zu bytes on their way from a GPU",
                       bytes);
    }
    m->is_shared = tt_regions_find(tt_process_regions(), m->at, bytes) !=
                   TT_NONE;
    tutti_err err = tt_device_pin(device, m->at, bytes, diag);
    if (!err) {
        *out = m;
        return TUTTI_OK;
    }
    tt_regions_free(tt_process_regions(), m->at);
    tt_free(&tt_mem_std, m, 1, sizeof(*m));
    return err;
}

static tutti_err get_mirror(tt_device *device, size_t bytes, tt_mirror **out,
                            tutti_diag *diag)
{
    const size_t whole = size_of_mirror(bytes);
    tutti_err err = TUTTI_OK;
    pthread_mutex_lock(&pool.lock);
    tt_mirror *surplus = take_surplus();
    tt_mirror *m = find_idle(device, whole);
    pool.n_used++;
    pthread_mutex_unlock(&pool.lock);
    destroy_list(surplus);
    if (!m)
        err = new_mirror(device, whole, &m, diag);
    if (err)
        count_unused();
    *out = m;
    return err;
}

/* Since the GPU knows its pages they were replaced, for a peer that was stopped
 * while it used them (tt_regions_tear()). */
static bool is_torn(const tt_mirror *m)
{
    return m->is_shared &&
           tt_regions_find(tt_process_regions(), m->at, m->bytes) == TT_NONE;
}

/* Under the engine's lock: nothing is unpinned here. */
static void put_mirror(tt_mirror *m)
{
    const bool torn = is_torn(m);
    pthread_mutex_lock(&pool.lock);
    tt_mirror **list = torn ? &pool.torn : &pool.idle;
    m->next = *list;
    *list = m;
    pool.idle_bytes += torn ? 0 : m->bytes;
    pthread_mutex_unlock(&pool.lock);
}

/* ------------------------------------------------------------------ life -- */

static tutti_err create(tutti_comm *comm, tt_device *device, tutti_diag *diag)
{
    tt_gpu *g = tt_new(&comm->mem, 1, sizeof(*g));
    if (!g)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    *g = (tt_gpu){.mem = comm->mem, .engine = comm->engine, .device = device};
    atomic_init(&g->n_refs, 1);
    tutti_err err = tt_streams_create(device, &g->mem, tt_engine_bell,
                                      comm->engine, &g->streams, diag);
    if (err) {
        tt_free(&comm->mem, g, 1, sizeof(*g));
        return err;
    }
    pthread_mutex_lock(&pool.lock);
    pool.n_gpus++;
    pthread_mutex_unlock(&pool.lock);
    comm->gpu = g;
    return TUTTI_OK;
}

void tt_gpu_unref(tt_gpu *g)
{
    if (!g ||
        atomic_fetch_sub_explicit(&g->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    tt_mirror *idle = NULL, *torn = NULL;
    tt_streams_free(g->streams);
    destroy_list(g->late);
    pthread_mutex_lock(&pool.lock);
    if (--pool.n_gpus == 0) {
        idle = pool.idle;
        torn = pool.torn;
        pool.idle = pool.torn = NULL;
        pool.idle_bytes = 0;
    }
    pthread_mutex_unlock(&pool.lock);
    destroy_list(idle);
    destroy_list(torn);
    tt_mem mem = g->mem;
    tt_free(&mem, g, 1, sizeof(*g));
}

void tt_gpu_end(tt_gpu *g)
{
    if (g)
        tt_engine_part_from(g->engine, g->streams);
    for (int s = 0; g && s < TT_STREAMS; s++)
        tt_streams_drain(g->streams, (tt_stream)s);
    tt_gpu_unref(g);
}

/* ------------------------------------------------------------------ near -- */

/* What a rank tells of its GPU. */
typedef struct card {
    tt_device_place place;
    uint8_t can; /* it wants to, and its memory can be mapped */
    uint8_t pad[7];
} card;

static bool has_shared_host(const tutti_comm *comm)
{
    return comm->n_ranks > 1 && comm->n_ranks <= TT_DEVICE_SOURCES &&
           comm->agreed.n_hosts == 1 && tt_team_goes_by(comm->team, "shm");
}

/* A call that the communicator makes of itself, before the one that is being
 * made. */
static tutti_err make_call(tutti_comm *comm, tt_call_in *call)
{
    const tutti_call_opts opts = {
        .size = sizeof(opts), .scale = 1, .planner = "direct"};
    call->opts = &opts;
    return tt_comm_call_inner(comm, call);
}

/* By direct calls, so that all are connected with all then. */
static tutti_err find_near(tutti_comm *comm, const void *ptr, bool *all)
{
    tt_gpu *g = comm->gpu;
    tutti_diag diag = TT_DIAG_NONE;
    card *cards = tt_new(&comm->mem, comm->n_ranks, sizeof(*cards));
    if (!cards)
        return tt_comm_fail(comm, TUTTI_ENOMEM, "out of memory");
    card mine = {.can = comm->agreed.gpu_ipc && has_shared_host(comm)};
    if (mine.can &&
        tt_device_export(g->device, ptr, 1, &mine.place, &diag) != TUTTI_OK)
        mine.can = 0;
    tt_call_in tell = {.shape = {.coll = TUTTI_ALL_GATHER,
                                 .count = sizeof(card),
                                 .root = TT_NONE},
                       .in = &mine,
                       .out = cards,
                       .type = TUTTI_U8};
    tutti_err err = make_call(comm, &tell);
    uint8_t can = 1;
    for (uint32_t r = 0; r < comm->n_ranks && !err; r++)
        can &= cards[r].can;
    for (uint32_t r = 0; r < comm->n_ranks && !err && can; r++) {
        void *there;
        if (r == comm->rank)
            continue;
        if (tt_device_import(g->device, (uintptr_t)g + 1 + r, &cards[r].place,
                             &there, &diag))
            can = 0;
        else
            tt_device_release(g->device, &cards[r].place, there);
    }
    tt_call_in agree = {
        .shape = {.coll = TUTTI_ALL_REDUCE, .count = 1, .root = TT_NONE},
        .in = &can,
        .out = &can,
        .type = TUTTI_U8,
        .op = TUTTI_MIN};
    if (!err)
        err = make_call(comm, &agree);
    for (uint32_t r = 0; r < comm->n_ranks; r++)
        tt_device_let_go(g->device, (uintptr_t)g + 1 + r);
    tt_free(&comm->mem, cards, comm->n_ranks, sizeof(*cards));
    *all = can;
    if (!err && comm->rank == 0)
        TT_INFO("GPU memory: %s%s%s",
                can ? "ranks use each other's where it is"
                    : "by way of the host",
                diag.text[0] ? ": " : "", diag.text);
    return err;
}

/* It could be: what a call is made of, the same on all ranks, says so. */
static bool suits_near(const tutti_comm *comm, const tt_call_in *call)
{
    const bool is_scaled = tt_coll_reduces(call->shape.coll) &&
                           call->op == TUTTI_SCALED_SUM;
    return call->shape.coll != TUTTI_ALL_TO_ALL && !call->is_message &&
           !call->is_barrier && !is_scaled && comm->n_ranks > 1 &&
           call->sizes.total_bytes >= least_near_bytes &&
           !(call->opts && call->opts->planner);
}

static tutti_err choose_way(tutti_comm *comm, const tt_call_in *call,
                            tt_gpu_use *use)
{
    tt_gpu *g = comm->gpu;
    if (!suits_near(comm, call) || g->near == NEAR_NOT)
        return TUTTI_OK;
    if (g->near == NEAR_UNKNOWN) {
        bool all = false;
        const void *ptr = use->call.in_bytes > 0 ? call->in : call->out;
        tutti_err err = find_near(comm, ptr, &all);
        if (err)
            return err;
        g->near = all ? NEAR_ALL : NEAR_NOT;
    }
    if (g->near == NEAR_ALL)
        use->call.way = &tt_way_near;
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- calls -- */

/* Whose memory a buffer is; the same as the communicator's so far. */
static tutti_err check(tutti_comm *comm, const void *ptr, uint64_t bytes,
                       const char *name, tt_device **device)
{
    tutti_diag diag = TT_DIAG_NONE;
    tt_device *d;
    if (bytes == 0)
        return TUTTI_OK;
    tutti_err err = tt_device_of(ptr, &d, &diag);
    if (err)
        return tt_comm_fail(comm, err, "%s is not memory of a GPU: %s", name,
                            diag.text);
    if (*device && d != *device)
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "%s is memory of GPU %d, but the call, or the "
                            "communicator, uses GPU %d",
                            name, tt_device_ordinal(d),
                            tt_device_ordinal(*device));
    *device = d;
    return TUTTI_OK;
}

tutti_err tt_gpu_look(tutti_comm *comm, const tt_call_in *call, tt_gpu_use *use)
{
    tutti_diag diag = TT_DIAG_NONE;
    const uint64_t size = call->shape.elem_bytes;
    *use = (tt_gpu_use){.is_on_device = call->opts && call->opts->on_device};
    if (!call->opts || !call->opts->on_device || call->is_barrier ||
        (call->sizes.in_elems == 0 && call->sizes.out_elems == 0))
        return TUTTI_OK;
    tt_device *device = comm->gpu ? comm->gpu->device : NULL;
    tutti_err err = check(comm, call->in, call->sizes.in_elems * size, "in",
                          &device);
    if (!err)
        err = check(comm, call->out, call->sizes.out_elems * size, "out",
                    &device);
    if (err)
        return err;
    if (!comm->gpu && create(comm, device, &diag))
        return tt_comm_fail(comm, TUTTI_ESYS, "%s", diag.text);
    use->gpu = comm->gpu;
    use->call = (tt_gpu_call){
        .streams = comm->gpu->streams,
        .engine = comm->engine,
        .device = device,
        .in = call->in,
        .out = call->out,
        .in_bytes = call->sizes.in_elems * size,
        .out_bytes = call->sizes.out_elems * size,
        .after = call->opts->after,
        .way = &tt_way_stage,
    };
    return choose_way(comm, call, use);
}

/* Where input and output lie in the mirror; returns where they end. */
static size_t lay(const tt_call_in *call, bool is_apart, size_t *in_at,
                  size_t *out_at)
{
    const uint64_t size = call->shape.elem_bytes;
    const size_t in_bytes = call->sizes.in_elems * size;
    const size_t out_bytes = call->sizes.out_elems * size;
    *in_at = 0;
    *out_at = tt_round_up(in_bytes, 4096);
    if (!is_apart && in_bytes > 0 && out_bytes > 0) {
        const uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
        const uintptr_t low = in < out ? in : out;
        *in_at = in - low;
        *out_at = out - low;
    }
    const size_t in_end = *in_at + in_bytes, out_end = *out_at + out_bytes;
    return in_end > out_end ? in_end : out_end;
}

static tutti_err give(const tt_call_in *call, bool is_apart, tt_gpu_use *use,
                      tt_op_start *start, tutti_diag *diag)
{
    size_t in_at = 0, out_at = 0, end = 0;
    if (!tt_gpu_is_near(&use->call))
        end = lay(call, is_apart, &in_at, &out_at);
    end = tt_round_up(end, TT_CACHE_LINE);
    tutti_err err = get_mirror(use->call.device, end + sizeof(tt_gpu_words),
                               &use->mirror, diag);
    if (err)
        return err;
    use->call.words = (tt_gpu_words *)(void *)(use->mirror->at + end);
    memset(use->call.words, 0, sizeof(*use->call.words));
    if (!tt_gpu_is_near(&use->call)) {
        start->in = use->mirror->at + in_at;
        start->out = use->mirror->at + out_at;
    }
    start->gpu = use->call;
    err = start->gpu.way->give(start, diag);
    use->call = start->gpu;
    return err;
}

tutti_err tt_gpu_begin(const tt_call_in *call, bool is_apart, tt_gpu_use *use,
                       tt_op_start *start, tutti_diag *diag)
{
    atomic_fetch_add_explicit(&use->gpu->n_refs, 1, memory_order_relaxed);
    use->is_open = true;
    tutti_err err = give(call, is_apart, use, start, diag);
    if (err)
        tt_gpu_forget(use);
    return err;
}

void tt_gpu_done(tt_gpu_use *use, tutti_err err)
{
    tt_gpu *g = use->gpu;
    if (!g)
        return;
    use->is_open = false;
    if (use->promise.number)
        tt_streams_keep(g->streams, &use->promise);
    if (err) /* it may not have come to a call of the engine's */
        tt_gpu_release(&use->call);
    use->call.way->take_back(&g->mem, &use->call);
    tt_mirror *m = use->mirror;
    use->mirror = NULL;
    if (m)
        count_unused();
    if (m && !err) {
        put_mirror(m);
    } else if (m) {
        m->next = g->late;
        g->late = m;
    }
}

bool tt_gpu_is_given(const tt_gpu_use *use)
{
    return atomic_load_explicit(&use->call.words->is_given,
                                memory_order_acquire);
}

/* The engine keeps promises, and must not wait for the driver: so that is asked
 * without its lock. */
tutti_err tt_gpu_event(tt_gpu_use *use, bool (*is_over)(const void *arg),
                       const void *arg, void **event)
{
    tutti_diag diag = TT_DIAG_NONE;
    tutti_err err = TUTTI_OK;
    tt_streams *streams = use->gpu->streams;
    tt_streams_lock(streams);
    tt_engine_lock(use->gpu->engine);
    const bool is_needed = !is_over(arg);
    const bool is_new = is_needed && !use->promise.number;
    if (is_new)
        err = tt_streams_promise(streams, &use->promise, &diag);
    tt_engine_unlock(use->gpu->engine);
    if (is_new && !err)
        err = tt_streams_event(streams, &use->promise, &diag);
    if (err) {
        TT_DEBUG("%s", diag.text);
        tt_engine_lock(use->gpu->engine);
        use->promise.number = 0; /* nobody has it */
        tt_engine_unlock(use->gpu->engine);
    } else if (is_needed) {
        *event = use->promise.event;
    }
    tt_streams_unlock(streams);
    return err;
}

/* It did not begin; nobody uses its memory any more. */
static void call_off(tt_gpu_use *use)
{
    tt_gpu_release(&use->call);
    tt_streams_drain(use->gpu->streams, TT_FETCH);
    tt_streams_drain(use->gpu->streams, TT_STORE);
    tt_engine_lock(use->gpu->engine);
    tt_gpu_done(use, TUTTI_EABORTED);
    tt_engine_unlock(use->gpu->engine);
}

void tt_gpu_forget(tt_gpu_use *use)
{
    if (!use->gpu)
        return;
    if (use->is_open)
        call_off(use);
    if (use->promise.number)
        tt_streams_forget(use->gpu->streams, &use->promise);
    tt_gpu_unref(use->gpu);
    use->gpu = NULL;
}
