/* SPDX-License-Identifier: BSD-3-Clause
 * net.c - libnccl-net-tutti.so: NCCL's bytes between hosts go over Tutti.
 *
 * Idea       All processes of the job are the ranks of one Tutti communicator.
 *            It is made when NCCL first comes to the plugin, by the launcher's
 *            variables, like any other. What NCCL calls a connection is a pair
 *            of tags between two ranks. So NCCL gets what the communicator has:
 *            rails, encryption, outages that are survived, and ranks that pass
 *            on for those that do not reach each other.
 * Listening  A handle names the communicator, the rank, and the listener. Who
 *            connects sends a hello to that rank, with tag HELLO_TAG. There
 *            whoever accepts looks at what a receive from any rank has brought,
 *            the door, which is open while somebody waits.
 * Messages   NCCL's receive may be larger than what is sent; Tutti's may not.
 *            So each message is two: its length, with the connection's tag, and
 *            then, unless it is empty, its bytes, with the next tag. The n-th
 *            length belongs to the n-th receive. NCCL's own tags do not matter:
 *            with one receive per call it asks in the order in which it sends.
 * Itself     A rank may not send to itself with Tutti. A connection within one
 *            process is a loop: two queues, and a copy when both have something.
 * Failures   A rank that dies fails the communicator, on all ranks, and every
 *            call here returns an error from then on. When the last of NCCL's
 *            communicators has gone, the next one makes a new one.
 * Memory     What NCCL has lent must not be touched once a connection is
 *            closed. NCCL closes with messages in flight when it aborts. Then
 *            the Tutti communicator is aborted too, which gives them back.
 * Threads    NCCL calls from several. One lock holds all.
 * Next: nccl_net.h, docs/how-to/nccl.md. */
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <tutti.h>

#include "nccl_net.h"

#define HANDLE_MAGIC UINT64_C(0x3174656e69747474)
#define HELLO_TAG 0
#define FIRST_TAG 2
/* Tags are ints; two for each connection. */
#define MOST_CONNECTIONS ((1u << 30) - FIRST_TAG)
/* The door has no deadline: 30 years. */
#define FOR_EVER_S 1e9
/* What kernels do not tell: 10 Gbit/s, as NCCL's own sockets assume. */
#define USUAL_MBIT 10000
/* The most that NCCL takes. */
#define MOST_BYTES ((size_t)1 << 40)

typedef struct handle {
    uint64_t magic, job;
    uint32_t rank, listener;
} handle;
_Static_assert(sizeof(handle) <= NET_HANDLE_BYTES, "NCCL's limit");

typedef struct hello {
    uint64_t job;
    uint32_t listener;
    uint32_t tag;
} hello;

typedef struct loop loop;
typedef struct conn conn;

typedef enum slot_state {
    SLOT_FREE,
    SLOT_AWAITS_LENGTH, /* a receive; length is being received */
    SLOT_AWAITS_BYTES,
    SLOT_LOOPS, /* in a queue of a loop */
    SLOT_DONE
} slot_state;

/* One message. */
typedef struct slot {
    conn *owner;
    struct slot *next; /* of those that await their length, or loop */
    slot_state state;
    int result; /* why it failed, which has been logged */
    void *data;
    size_t cap;
    uint64_t length;
    tutti_request *length_req, *bytes_req;
} slot;

typedef struct queue {
    slot *first, *last;
} queue;

/* Within one process. */
struct loop {
    queue sent, wanted;
    bool is_shut; /* one end has closed */
};

struct conn {
    int peer;
    int tag;
    bool sends;
    loop *loop; /* NULL: another rank */
    hello hello;
    tutti_request *hello_req;
    queue awaiting;
    slot slots[NET_MOST_REQUESTS];
};

typedef struct arrival {
    struct arrival *next;
    int from;
    uint32_t tag;
    loop *loop;
} arrival;

typedef struct listener {
    struct listener *next;
    uint32_t id;
    arrival *first;
} listener;

static struct {
    pthread_mutex_t lock;
    net_log_fn log;
    tutti_comm *comm;
    int n_users; /* NCCL communicators */
    int rank;
    uint64_t job;
    uint32_t n_listeners, n_connections; /* ever */
    listener *listeners;
    tutti_request *door;
    hello heard;
    int heard_from;
} net = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------ errors */

#define SAY(level, ...)                                             \
    do {                                                            \
        if (net.log)                                                \
            net.log(level, NET_LOG_INIT | NET_LOG_NET, "net.c",     \
                    __LINE__, "NET/Tutti : " __VA_ARGS__);          \
    } while (0)

static int result_of(tutti_err err)
{
    switch (err) {
    case TUTTI_EPEER:
    case TUTTI_ETIMEOUT:
    case TUTTI_EABORTED:
    case TUTTI_ENET:
    case TUTTI_EMISMATCH:
    case TUTTI_EPROTO:
        return NET_REMOTE_ERROR;
    default:
        return NET_SYSTEM_ERROR;
    }
}

static int fail(tutti_err err, const char *what)
{
    const char *why = net.comm ? tutti_comm_message(net.comm) : "";
    if (!why[0])
        why = tutti_strerror(err);
    SAY(NET_LOG_WARN, "%s failed: %s", what, why);
    return result_of(err);
}

/* ----------------------------------------------------------- communicator */

static void forget(void)
{
    tutti_comm_destroy(net.comm);
    net.comm = NULL;
    if (net.door)
        tutti_wait(net.door);
    net.door = NULL;
}

/* Rank 0 gives the communicator a name that no other has. */
static tutti_err name_job(tutti_comm *comm)
{
    uint64_t job = 0;
    if (getrandom(&job, sizeof(job), 0) != (ssize_t)sizeof(job))
        return TUTTI_ESYS;
    tutti_err err = tutti_broadcast(comm, &job, &job, sizeof(job), TUTTI_U8, 0,
                                    NULL, NULL);
    if (!err)
        net.job = job;
    return err;
}

static int meet(void)
{
    tutti_comm *comm;
    tutti_err err = tutti_comm_create(NULL, &comm);
    if (err) {
        SAY(NET_LOG_WARN, "the ranks do not come together: %s",
            tutti_last_message());
        return result_of(err);
    }
    net.comm = comm;
    net.rank = tutti_comm_rank(comm);
    err = name_job(comm);
    if (err) {
        int result = fail(err, "naming the job");
        forget();
        return result;
    }
    SAY(NET_LOG_INFO, "Tutti %s, rank %d of %d", tutti_version(), net.rank,
        tutti_comm_size(comm));
    if (tutti_comm_size(comm) == 1)
        SAY(NET_LOG_WARN,
            "this process is alone: several find each other by TUTTI_RANK, "
            "TUTTI_SIZE and TUTTI_ADDR, or what other launchers set");
    return NET_OK;
}

static int begin(net_log_fn log)
{
    int result = NET_OK;
    pthread_mutex_lock(&net.lock);
    net.log = log;
    if (net.comm && net.n_users == 0 && tutti_comm_failure(net.comm))
        forget();
    if (!net.comm)
        result = meet();
    else if (tutti_comm_failure(net.comm))
        result = fail(tutti_comm_failure(net.comm), "another communicator");
    if (!result)
        net.n_users++;
    pthread_mutex_unlock(&net.lock);
    return result;
}

/* The communicator stays, others may still use theirs, unless it has failed. */
static int finish(void *ctx)
{
    (void)ctx;
    pthread_mutex_lock(&net.lock);
    if (net.n_users > 0)
        net.n_users--;
    if (net.n_users == 0 && net.comm && tutti_comm_failure(net.comm))
        forget();
    pthread_mutex_unlock(&net.lock);
    return NET_OK;
}

/* The program ends: in good order, whatever NCCL has closed. */
__attribute__((destructor)) static void leave(void)
{
    forget();
}

/* ----------------------------------------------------------------- device */

static int read_mbit(const char *interface)
{
    char path[64 + IF_NAMESIZE];
    int mbit = 0;
    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", interface);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    if (fscanf(f, "%d", &mbit) != 1)
        mbit = 0;
    fclose(f);
    return mbit;
}

/* Of the fastest interface, as its driver tells it. */
static int find_mbit(void)
{
    struct ifaddrs *list;
    int most = 0;
    if (getifaddrs(&list) != 0)
        return USUAL_MBIT;
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        if (!(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
            continue;
        int mbit = read_mbit(at->ifa_name);
        if (mbit > most)
            most = mbit;
    }
    freeifaddrs(list);
    return most > 0 ? most : USUAL_MBIT;
}

static int count_devices(int *n)
{
    *n = 1;
    return NET_OK;
}

static int tell_v10(int device, net_properties_v10 *out)
{
    static char name[] = "tutti";
    if (device != 0)
        return NET_INVALID_ARGUMENT;
    *out = (net_properties_v10){
        .name = name,
        .pointers = NET_POINTER_HOST,
        .mbit = find_mbit(),
        .most_connections = 1 << 16,
        .most_grouped = 1,
        .parts = {.n = 1},
        .most_p2p_bytes = MOST_BYTES,
        .most_coll_bytes = MOST_BYTES,
    };
    return NET_OK;
}

static int tell_v11(int device, net_properties_v11 *out)
{
    out->most_multi_requests = 1;
    return tell_v10(device, &out->base);
}

/* ------------------------------------------------------------- connections */

static tutti_call_opts tagged(uint32_t tag)
{
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.tag = (int)tag;
    return o;
}

/* Nobody comes where there is nobody else. */
static tutti_err open_door(void)
{
    tutti_call_opts o = tagged(HELLO_TAG);
    if (net.door || tutti_comm_size(net.comm) == 1)
        return TUTTI_OK;
    o.timeout_s = FOR_EVER_S;
    return tutti_recv_any(net.comm, &net.heard, sizeof(net.heard), TUTTI_U8,
                          &net.heard_from, &o, &net.door);
}

static int start_listening(void *at, void **out)
{
    listener *l = calloc(1, sizeof(*l));
    if (!l)
        return NET_SYSTEM_ERROR;
    l->id = net.n_listeners++;
    l->next = net.listeners;
    net.listeners = l;
    const handle h = {HANDLE_MAGIC, net.job, (uint32_t)net.rank, l->id};
    memset(at, 0, NET_HANDLE_BYTES);
    memcpy(at, &h, sizeof(h));
    *out = l;
    return NET_OK;
}

static int start_to_listen(int device, void *at, void **out)
{
    int result = NET_INTERNAL_ERROR;
    pthread_mutex_lock(&net.lock);
    if (device == 0 && net.comm)
        result = start_listening(at, out);
    pthread_mutex_unlock(&net.lock);
    return result;
}

static conn *make_conn(int peer, uint32_t tag, bool sends)
{
    conn *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->peer = peer;
    c->tag = (int)tag;
    c->sends = sends;
    for (int i = 0; i < NET_MOST_REQUESTS; i++)
        c->slots[i].owner = c;
    return c;
}

static int arrive(uint32_t listener_id, int from, uint32_t tag, loop *lp)
{
    listener *l = net.listeners;
    while (l && l->id != listener_id)
        l = l->next;
    if (!l) {
        SAY(NET_LOG_INFO, "rank %d connects to a listener that has closed",
            from);
        return NET_REMOTE_ERROR;
    }
    arrival *a = calloc(1, sizeof(*a));
    if (!a)
        return NET_SYSTEM_ERROR;
    *a = (arrival){.from = from, .tag = tag, .loop = lp};
    arrival **tail = &l->first;
    while (*tail)
        tail = &(*tail)->next;
    *tail = a;
    return NET_OK;
}

/* Until somebody has come to the listener, or nobody is at the door. */
static int look_at_door(const listener *l)
{
    while (!l->first) {
        tutti_err err = open_door();
        if (!err && net.door)
            err = tutti_test(net.door);
        if (err == TUTTI_AGAIN || (!err && !net.door))
            return NET_OK;
        if (err)
            return fail(err, "accepting");
        tutti_wait(net.door);
        net.door = NULL;
        const hello *h = &net.heard;
        if (h->job == net.job && arrive(h->listener, net.heard_from, h->tag,
                                        NULL) == NET_SYSTEM_ERROR)
            return NET_SYSTEM_ERROR;
    }
    return NET_OK;
}

static int dial_self(conn *c, uint32_t listener_id)
{
    c->loop = calloc(1, sizeof(*c->loop));
    if (!c->loop)
        return NET_SYSTEM_ERROR;
    return arrive(listener_id, net.rank, (uint32_t)c->tag, c->loop);
}

static int dial(conn *c, uint32_t listener_id)
{
    c->hello = (hello){net.job, listener_id, (uint32_t)c->tag};
    tutti_call_opts o = tagged(HELLO_TAG);
    tutti_err err = tutti_send(net.comm, &c->hello, sizeof(c->hello), TUTTI_U8,
                               c->peer, &o, &c->hello_req);
    return err ? fail(err, "connecting") : NET_OK;
}

static int start_connecting(const handle *h, void **out)
{
    if (h->magic != HANDLE_MAGIC || h->job != net.job ||
        h->rank >= (uint32_t)tutti_comm_size(net.comm)) {
        SAY(NET_LOG_WARN,
            "who listens is not of this job: do all processes have the same "
            "TUTTI_ADDR and TUTTI_SIZE, or the like?");
        return NET_INVALID_ARGUMENT;
    }
    if (net.n_connections == MOST_CONNECTIONS) {
        SAY(NET_LOG_WARN, "no more than %u connections", MOST_CONNECTIONS);
        return NET_SYSTEM_ERROR;
    }
    conn *c = make_conn((int)h->rank, FIRST_TAG + 2 * net.n_connections, true);
    if (!c)
        return NET_SYSTEM_ERROR;
    net.n_connections++;
    int result = c->peer == net.rank ? dial_self(c, h->listener)
                                     : dial(c, h->listener);
    if (result) {
        free(c->loop);
        free(c);
        return result;
    }
    *out = c;
    return NET_OK;
}

static int start_to_connect(int device, const void *at, void **out)
{
    handle h;
    int result = NET_INTERNAL_ERROR;
    *out = NULL;
    memcpy(&h, at, sizeof(h));
    pthread_mutex_lock(&net.lock);
    if (device == 0 && net.comm)
        result = start_connecting(&h, out);
    pthread_mutex_unlock(&net.lock);
    return result;
}

/* The first that has come, if somebody has. */
static int take(listener *l, void **out)
{
    int result = look_at_door(l);
    arrival *a = l->first;
    if (result || !a)
        return result;
    conn *c = make_conn(a->from, a->tag, false);
    if (!c)
        return NET_SYSTEM_ERROR;
    c->loop = a->loop;
    l->first = a->next;
    free(a);
    *out = c;
    return NET_OK;
}

static int accept_one(void *at, void **out, void **device)
{
    (void)device;
    *out = NULL;
    pthread_mutex_lock(&net.lock);
    int result = net.comm ? take(at, out) : NET_INTERNAL_ERROR;
    pthread_mutex_unlock(&net.lock);
    return result;
}

static void shut(loop *lp)
{
    if (lp->is_shut)
        free(lp);
    else
        lp->is_shut = true;
}

static int close_listener(void *at)
{
    listener *l = at;
    pthread_mutex_lock(&net.lock);
    listener **place = &net.listeners;
    while (*place != l)
        place = &(*place)->next;
    *place = l->next;
    while (l->first) {
        arrival *a = l->first;
        l->first = a->next;
        if (a->loop)
            shut(a->loop);
        free(a);
    }
    free(l);
    pthread_mutex_unlock(&net.lock);
    return NET_OK;
}

/* ------------------------------------------------------------------ memory */

static int register_memory(void *at, void *data, size_t bytes, int type,
                           void **mr)
{
    (void)at;
    (void)data;
    (void)bytes;
    *mr = NULL;
    return type == NET_POINTER_HOST ? NET_OK : NET_INTERNAL_ERROR;
}

static int forget_memory(void *at, void *mr)
{
    (void)at;
    (void)mr;
    return NET_OK;
}

/* ---------------------------------------------------------------- messages */

static void push(queue *q, slot *s)
{
    s->next = NULL;
    if (q->last)
        q->last->next = s;
    else
        q->first = s;
    q->last = s;
}

static slot *pop(queue *q)
{
    slot *s = q->first;
    q->first = s->next;
    if (!q->first)
        q->last = NULL;
    return s;
}

/* NULL: all are in use, and NCCL asks again. */
static slot *find_slot(conn *c, void *data, size_t cap)
{
    for (int i = 0; i < NET_MOST_REQUESTS; i++) {
        slot *s = &c->slots[i];
        if (s->state != SLOT_FREE)
            continue;
        *s = (slot){.owner = c, .data = data, .cap = cap, .length = cap};
        return s;
    }
    return NULL;
}

static int check_fit(const slot *s)
{
    if (s->length <= s->cap)
        return NET_OK;
    SAY(NET_LOG_WARN,
        "rank %d sends %llu bytes, and NCCL has room for %zu: do the ranks "
        "call the same, with the same settings?",
        s->owner->peer, (unsigned long long)s->length, s->cap);
    return NET_INVALID_USAGE;
}

static void move(loop *lp)
{
    while (lp->sent.first && lp->wanted.first) {
        slot *from = pop(&lp->sent), *to = pop(&lp->wanted);
        to->length = from->length;
        to->result = check_fit(to);
        from->result = to->result;
        if (!to->result && to->length > 0)
            memcpy(to->data, from->data, to->length);
        to->state = from->state = SLOT_DONE;
    }
}

static void put_into_loop(slot *s, queue *q)
{
    s->state = SLOT_LOOPS;
    push(q, s);
    move(s->owner->loop);
}

static int begin_send(slot *s)
{
    conn *c = s->owner;
    const tutti_call_opts for_length = tagged((uint32_t)c->tag),
                          for_bytes = tagged((uint32_t)c->tag + 1);
    s->state = SLOT_AWAITS_BYTES;
    tutti_err err = tutti_send(net.comm, &s->length, sizeof(s->length),
                               TUTTI_U8, c->peer, &for_length, &s->length_req);
    if (!err && s->length > 0)
        err = tutti_send(net.comm, s->data, s->length, TUTTI_U8, c->peer,
                         &for_bytes, &s->bytes_req);
    return err ? fail(err, "sending") : NET_OK;
}

static int begin_recv(slot *s)
{
    conn *c = s->owner;
    const tutti_call_opts for_length = tagged((uint32_t)c->tag);
    s->state = SLOT_AWAITS_LENGTH;
    tutti_err err = tutti_recv(net.comm, &s->length, sizeof(s->length),
                               TUTTI_U8, c->peer, &for_length, &s->length_req);
    if (err)
        return fail(err, "receiving");
    push(&c->awaiting, s);
    return NET_OK;
}

static int send_one(void *at, void *data, size_t bytes, int tag, void *mr,
                    void *profile, void **request)
{
    (void)tag;
    (void)mr;
    (void)profile;
    conn *c = at;
    int result = NET_OK;
    pthread_mutex_lock(&net.lock);
    slot *s = find_slot(c, data, bytes);
    if (s && c->loop)
        put_into_loop(s, &c->loop->sent);
    else if (s)
        result = begin_send(s);
    *request = result ? NULL : s;
    pthread_mutex_unlock(&net.lock);
    return result;
}

static int recv_one(void *at, int n, void **data, size_t *bytes, int *tags,
                    void **mrs, void **profiles, void **request)
{
    (void)tags;
    (void)mrs;
    (void)profiles;
    conn *c = at;
    int result = NET_OK;
    *request = NULL;
    if (n != 1)
        return NET_INTERNAL_ERROR;
    pthread_mutex_lock(&net.lock);
    slot *s = find_slot(c, data[0], bytes[0]);
    if (s && c->loop)
        put_into_loop(s, &c->loop->wanted);
    else if (s)
        result = begin_recv(s);
    *request = result ? NULL : s;
    pthread_mutex_unlock(&net.lock);
    return result;
}

/* Frees it when it is done. */
static tutti_err end_request(tutti_request **req)
{
    if (!*req)
        return TUTTI_OK;
    tutti_err err = tutti_test(*req);
    if (err == TUTTI_AGAIN)
        return err;
    tutti_wait(*req);
    *req = NULL;
    return err;
}

/* Its length has come. */
static int want_bytes(slot *s)
{
    const conn *c = s->owner;
    const tutti_call_opts for_bytes = tagged((uint32_t)c->tag + 1);
    s->state = SLOT_AWAITS_BYTES;
    int result = check_fit(s);
    if (result || s->length == 0)
        return result;
    tutti_err err = tutti_recv(net.comm, s->data, s->length, TUTTI_U8, c->peer,
                               &for_bytes, &s->bytes_req);
    return err ? fail(err, "receiving") : NET_OK;
}

/* Lengths are taken in order: bytes carry no number. */
static void hear_lengths(conn *c)
{
    while (c->awaiting.first) {
        tutti_err err = end_request(&c->awaiting.first->length_req);
        if (err == TUTTI_AGAIN)
            return;
        slot *s = pop(&c->awaiting);
        s->result = err ? fail(err, "receiving") : want_bytes(s);
    }
}

static void progress(slot *s)
{
    hear_lengths(s->owner);
    if (s->state != SLOT_AWAITS_BYTES || s->result)
        return;
    tutti_err err = end_request(&s->length_req);
    if (!err)
        err = end_request(&s->bytes_req);
    if (!err)
        s->state = SLOT_DONE;
    else if (err != TUTTI_AGAIN)
        s->result = fail(err, s->owner->sends ? "sending" : "receiving");
}

static int fail_if_shut(const slot *s)
{
    if (s->state != SLOT_LOOPS || !s->owner->loop->is_shut)
        return NET_OK;
    SAY(NET_LOG_WARN, "the other end, in this process, has closed");
    return NET_REMOTE_ERROR;
}

/* After an error nothing frees the slot: its memory is in use until close(). */
static int test_one(void *at, int *is_done, int *bytes)
{
    slot *s = at;
    *is_done = 0;
    pthread_mutex_lock(&net.lock);
    progress(s);
    int result = s->result ? s->result : fail_if_shut(s);
    if (!result && s->state == SLOT_DONE) {
        if (bytes)
            bytes[0] = (int)s->length;
        s->state = SLOT_FREE;
        *is_done = 1;
    }
    pthread_mutex_unlock(&net.lock);
    return result;
}

/* What is received lies in the host's memory, and needs no flush. */
static int flush_none(void *at, int n, void **data, int *bytes, void **mrs,
                      void **request)
{
    (void)at;
    (void)n;
    (void)data;
    (void)bytes;
    (void)mrs;
    *request = NULL;
    return NET_OK;
}

/* ------------------------------------------------------------------- close */

static bool is_in_flight(const tutti_request *req)
{
    return req && tutti_test((tutti_request *)req) == TUTTI_AGAIN;
}

static void take_back(conn *c)
{
    bool is_busy = false;
    for (int i = 0; i < NET_MOST_REQUESTS; i++)
        is_busy |= is_in_flight(c->slots[i].length_req) ||
                   is_in_flight(c->slots[i].bytes_req);
    if (is_busy) {
        SAY(NET_LOG_WARN, "NCCL closes a connection with rank %d that has "
                          "messages in flight: the job's others end, too",
            c->peer);
        tutti_comm_abort(net.comm,
                         "NCCL has closed a connection with messages in "
                         "flight");
    }
    for (int i = 0; i < NET_MOST_REQUESTS; i++) {
        slot *s = &c->slots[i];
        if (s->length_req)
            tutti_wait(s->length_req);
        if (s->bytes_req)
            tutti_wait(s->bytes_req);
    }
    if (c->hello_req)
        tutti_wait(c->hello_req);
}

static int close_conn(void *at)
{
    conn *c = at;
    pthread_mutex_lock(&net.lock);
    if (c->loop) {
        *(c->sends ? &c->loop->sent : &c->loop->wanted) = (queue){NULL, NULL};
        shut(c->loop);
    }
    take_back(c);
    free(c);
    pthread_mutex_unlock(&net.lock);
    return NET_OK;
}

/* ------------------------------------------------------------------ tables */

/* In this version NCCL begins once, for all of its communicators, and again only
 * when none is left; it does not say when that is. */
static int begin_v10(net_log_fn log, void *profiler)
{
    (void)profiler;
    pthread_mutex_lock(&net.lock);
    net.n_users = 0;
    pthread_mutex_unlock(&net.lock);
    return begin(log);
}

static int begin_v11(void **ctx, uint64_t comm, void *config, net_log_fn log,
                     void *profiler)
{
    (void)comm;
    (void)config;
    (void)profiler;
    *ctx = &net;
    return begin(log);
}

static int listen_v11(void *ctx, int device, void *at, void **out)
{
    (void)ctx;
    return start_to_listen(device, at, out);
}

static int connect_v10(int device, void *config, void *at, void **out,
                       void **device_handle)
{
    (void)config;
    (void)device_handle;
    return start_to_connect(device, at, out);
}

static int connect_v11(void *ctx, int device, void *at, void **out,
                       void **device_handle)
{
    (void)ctx;
    (void)device_handle;
    return start_to_connect(device, at, out);
}

#define CALLS                                                         \
    .devices = count_devices, .accept = accept_one,                   \
    .reg = register_memory, .dereg = forget_memory, .isend = send_one, \
    .irecv = recv_one, .iflush = flush_none, .test = test_one,        \
    .close_send = close_conn, .close_recv = close_conn,               \
    .close_listen = close_listener

TUTTI_API extern const net_v10 ncclNetPlugin_v10;
TUTTI_API extern const net_v11 ncclNetPlugin_v11;

const net_v10 ncclNetPlugin_v10 = {
    .name = "Tutti",
    .init = begin_v10,
    .properties = tell_v10,
    .listen = start_to_listen,
    .connect = connect_v10,
    CALLS,
};

const net_v11 ncclNetPlugin_v11 = {
    .name = "Tutti",
    .init = begin_v11,
    .properties = tell_v11,
    .listen = listen_v11,
    .connect = connect_v11,
    CALLS,
    .finalize = finish,
};
