/* SPDX-License-Identifier: BSD-3-Clause
 * shm_meet.c - how the processes of one host get to share memory.
 *
 * Idea       Every process listens on an abstract unix socket (no file) whose
 *            name and a random token are in its exchanged address. Of each
 *            pair the higher rank creates the memory and calls the lower one:
 *
 *              higher -> lower   hello { lower's token, rank }, memfd, bell
 *              lower -> higher   reply { higher's token, rank }, bell
 *
 *            Nobody waits for one peer alone: all calls are made first, then
 *            one loop serves whatever comes, so no order can deadlock.
 *
 * Trust      The kernel tells the uid at the other end; another uid is not
 *            talked to. Without the token nobody gets past hello. The memory
 *            must be sealed against shrinking (or touching it could kill us)
 *            and have the size that both sides expect.
 *
 * Agreement  Either both sides are up or neither. What both know beforehand
 *            (boot id, network namespace, uid, ring size) rules a pair out on
 *            both sides. A call may still fail (a security module between two
 *            containers): so that the lower rank need not wait for it in
 *            vain, it holds a probe, a connection to the higher rank's
 *            listener which is never accepted for use; when the higher rank is
 *            done, it closes its listener, the probe breaks, and a lower rank
 *            that is still waiting knows that no hello will come.
 *
 * Next       shm.c (messages), base/fdpass.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fdpass.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/memfd.h"
#include "net/shm.h"

#define MAGIC UINT32_C(0x316d6873) /* "shm1" */
/* How long to wait before looking whether all ranks still live. */
#define LOOK_MS 200
#define RETRY_MS 2 /* a full backlog: how long until the next try */

/* Hello and reply. */
typedef struct greeting {
    uint32_t magic, rank;
    unsigned char token[TT_SHM_TOKEN];
} greeting;

typedef enum peer_state {
    PEER_OUT,   /* not wanted, or not reachable */
    PEER_CALL,  /* to be called (higher rank's side) */
    PEER_REPLY, /* waiting for its reply */
    PEER_HELLO, /* waiting for its hello; sock is the probe */
    PEER_UP
} peer_state;

typedef struct shm_peer {
    peer_state state;
    int sock;
    tt_shm_card address;
} shm_peer;

typedef struct meeting {
    tt_shm_net *net;
    tt_conn *const *conns;
    shm_peer *peers;      /* by rank */
    struct pollfd *polls; /* listener, strangers, then peers by rank */
    int *strangers;       /* accepted, no hello yet; max_strangers */
    uint32_t n_strangers, max_strangers;
} meeting;

/* ------------------------------------------------------------- addresses */

static void this_host(tt_shm_card *out)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, out->boot_id, sizeof(out->boot_id) - 1);
        if (n < 0)
            out->boot_id[0] = '\0';
        close(fd);
    }
    struct stat st;
    if (stat("/proc/self/ns/net", &st) == 0)
        out->netns = st.st_ino;
    out->uid = (uint32_t)geteuid();
}

static void fill_name(const char *name, struct sockaddr_un *sa, socklen_t *len)
{
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t n = strnlen(name, sizeof(sa->sun_path) - 1);
    memcpy(sa->sun_path + 1, name, n);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

tutti_err tt_shm_listen(tt_shm_net *net, tutti_diag *diag)
{
    uint64_t salt;
    if (getrandom(net->token, sizeof(net->token), 0) != sizeof(net->token) ||
        getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "getrandom");
    snprintf(net->name, sizeof(net->name), "tutti-%d-%016llx", (int)getpid(),
             (unsigned long long)salt);
    net->listener = socket(AF_UNIX,
                           SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (net->listener < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "unix socket");
    tt_fork_watch(net->listener);
    struct sockaddr_un sa;
    socklen_t len;
    fill_name(net->name, &sa, &len);
    if (bind(net->listener, (struct sockaddr *)&sa, len) != 0 ||
        listen(net->listener, (int)net->base.n_ranks + 16) != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "listening on @%s",
                             net->name);
    return TUTTI_OK;
}

size_t tt_shm_address(tt_net *base, void *buf)
{
    const tt_shm_net *net = (const tt_shm_net *)base;
    tt_shm_card address = {.magic = MAGIC, .ring_size = net->ring_size};
    this_host(&address);
    memcpy(address.token, net->token, sizeof(address.token));
    memcpy(address.name, net->name, sizeof(address.name));
    memcpy(buf, &address, sizeof(address));
    return sizeof(address);
}

/* Both sides of a pair come to the same answer. */
static bool may_share(const tt_shm_net *net, uint32_t rank,
                      const tt_shm_card *other)
{
    tt_shm_card own = {.magic = MAGIC};
    this_host(&own);
    if (other->magic != MAGIC || own.netns != other->netns ||
        own.uid != other->uid ||
        memcmp(own.boot_id, other->boot_id, sizeof(own.boot_id)) != 0)
        return false;
    if (other->ring_size != net->ring_size) {
        TT_WARN("no shared memory with rank %u: its TUTTI_SHM_RING is %u, "
                "ours is %u bytes",
                rank, other->ring_size, net->ring_size);
        return false;
    }
    return other->name[sizeof(other->name) - 1] == '\0';
}

/* ---------------------------------------------------------------- memory */

size_t tt_shm_pair_bytes(const tt_shm_net *net)
{
    return tt_duplex_bytes(net->ring_size) +
           tt_duplex_lend_bytes(net->ring_size);
}

/* Maps the memory of a pair; the lower rank is side 0. */
static bool map_memory(const tt_shm_net *net, tt_shm_conn *conn, int fd)
{
    size_t bytes = tt_shm_pair_bytes(net);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return false;
    madvise(memory, bytes, MADV_DONTFORK);
    conn->memory = memory;
    int side = net->base.rank > conn->base.rank;
    tt_duplex_init(&conn->duplex, memory, net->ring_size, side);
    tt_duplex_init_lending(&conn->duplex, memory, net->ring_size, side,
                           tt_shm_resolve, conn);
    return true;
}

static void unmap_memory(const tt_shm_net *net, tt_shm_conn *conn)
{
    if (conn->memory)
        munmap(conn->memory, tt_shm_pair_bytes(net));
    conn->memory = NULL;
}

/* --------------------------------------------------------------- calling */

static bool is_own_user(int sock, int *pid)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
        return false;
    *pid = cred.pid;
    return cred.uid == geteuid();
}

/* Connects to a listener: the socket, -EAGAIN (its backlog is full), -errno. */
static int dial(const char *name)
{
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC,
                      0);
    if (sock < 0)
        return -errno;
    struct sockaddr_un sa;
    socklen_t len;
    fill_name(name, &sa, &len);
    int pid;
    int err = 0;
    if (connect(sock, (struct sockaddr *)&sa, len) != 0)
        err = errno;
    else if (!is_own_user(sock, &pid))
        err = EPERM;
    if (err) {
        close(sock);
        return -err;
    }
    tt_fork_watch(sock);
    return sock;
}

static void drop(const meeting *meet, uint32_t rank, const char *why)
{
    shm_peer *peer = &meet->peers[rank];
    TT_DEBUG("peer %u: no shared memory: %s", rank, why);
    tt_fork_close(&peer->sock);
    unmap_memory(meet->net, (tt_shm_conn *)meet->conns[rank]);
    peer->state = PEER_OUT;
}

/* Higher rank: creates the memory and says hello on peer->sock. */
static tutti_err say_hello(const meeting *meet, uint32_t rank, tutti_diag *diag)
{
    tt_shm_net *net = meet->net;
    shm_peer *peer = &meet->peers[rank];
    int fd = tt_memfd_create("tutti", tt_shm_pair_bytes(net));
    if (fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "shared memory (memfd)");
    tt_fork_watch(fd);
    tutti_err err = TUTTI_OK;
    if (!map_memory(net, (tt_shm_conn *)meet->conns[rank], fd))
        err = tt_fail_errno(diag, TUTTI_ENOMEM, errno, "mapping %zu bytes",
                            tt_shm_pair_bytes(net));
    greeting hello = {.magic = MAGIC, .rank = net->base.rank};
    memcpy(hello.token, peer->address.token, sizeof(hello.token));
    peer->state = PEER_REPLY;
    if (!err && !tt_fdpass_send(peer->sock, &hello, sizeof(hello),
                                (int[]){fd, net->bell}, 2))
        drop(meet, rank, strerror(errno));
    tt_fork_close(&fd);
    return err;
}

/* Calls a peer: for real (it is lower), or as a probe (it is higher). Leaves
 * PEER_CALL when it is to be tried again. */
static tutti_err call(const meeting *meet, uint32_t rank, tutti_diag *diag)
{
    shm_peer *peer = &meet->peers[rank];
    int sock = dial(peer->address.name);
    if (sock == -EAGAIN)
        return TUTTI_OK;
    if (sock == -EMFILE || sock == -ENFILE || sock == -ENOMEM)
        return tt_fail_errno(diag, TUTTI_ESYS, -sock, "unix socket");
    if (sock < 0) {
        drop(meet, rank, strerror(-sock));
        return TUTTI_OK;
    }
    peer->sock = sock;
    if (rank < meet->net->base.rank)
        return say_hello(meet, rank, diag);
    peer->state = PEER_HELLO;
    return TUTTI_OK;
}

/* ------------------------------------------------------------- answering */

static void set_up(const meeting *meet, uint32_t rank, int sock, int bell)
{
    tt_shm_conn *conn = (tt_shm_conn *)meet->conns[rank];
    conn->sock = sock;
    conn->bell = bell;
    if (!is_own_user(sock, &conn->pid))
        conn->pid = 0;
    conn->base.is_up = true;
    meet->peers[rank].sock = -1;
    meet->peers[rank].state = PEER_UP;
}

/* Lower rank: a hello with memfd and bell has come; takes all three
 * descriptors, or returns why not. */
static const char *take_hello(const meeting *meet, const greeting *hello,
                              int sock, const int fds[2])
{
    tt_shm_net *net = meet->net;
    uint32_t rank = hello->rank;
    if (hello->magic != MAGIC || rank >= net->base.n_ranks ||
        memcmp(hello->token, net->token, sizeof(net->token)) != 0)
        return "a stranger";
    shm_peer *peer = &meet->peers[rank];
    if (rank <= net->base.rank ||
        (peer->state != PEER_HELLO && peer->state != PEER_CALL))
        return "not expected";
    if (!tt_memfd_is_sound(fds[0], tt_shm_pair_bytes(net)) ||
        !map_memory(net, (tt_shm_conn *)meet->conns[rank], fds[0])) {
        drop(meet, rank, "its memory is not acceptable");
        return "bad memory";
    }
    greeting reply = {.magic = MAGIC, .rank = net->base.rank};
    memcpy(reply.token, peer->address.token, sizeof(reply.token));
    if (!tt_fdpass_send(sock, &reply, sizeof(reply), &net->bell, 1)) {
        drop(meet, rank, strerror(errno));
        return "no reply possible";
    }
    tt_fork_close(&peer->sock); /* the probe has done its service */
    set_up(meet, rank, sock, fds[1]);
    return NULL;
}

/* Reads from an accepted connection; true when it is no stranger any more
 * (taken, or closed). */
static bool hear_stranger(const meeting *meet, int sock)
{
    greeting hello;
    int fds[2];
    int got = tt_fdpass_recv(sock, &hello, sizeof(hello), fds, 2);
    if (got == 0)
        return false;
    const char *why_not = "closed";
    if (got > 0) {
        tt_fork_watch(fds[0]);
        tt_fork_watch(fds[1]);
        why_not = take_hello(meet, &hello, sock, fds);
        tt_fork_close(&fds[0]);
    }
    if (!why_not)
        return true;
    TT_DEBUG("shared memory: a connection was refused: %s", why_not);
    if (got > 0)
        tt_fork_close(&fds[1]);
    tt_fork_close(&sock);
    return true;
}

static void accept_all(meeting *meet)
{
    int sock;
    while ((sock = accept4(meet->net->listener, NULL, NULL,
                           SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        int pid;
        if (!is_own_user(sock, &pid) ||
            meet->n_strangers == meet->max_strangers) {
            close(sock);
            continue;
        }
        tt_fork_watch(sock);
        meet->strangers[meet->n_strangers++] = sock;
    }
}

/* Higher rank: the reply, or the end of a call. Lower rank: the end of the
 * probe. */
static void hear_peer(const meeting *meet, uint32_t rank)
{
    shm_peer *peer = &meet->peers[rank];
    greeting reply;
    int bell;
    int n_fds = peer->state == PEER_REPLY;
    int got = tt_fdpass_recv(peer->sock, &reply, sizeof(reply), &bell, n_fds);
    if (got == 0)
        return;
    if (got < 0 || n_fds == 0) {
        drop(meet, rank, "it closed the connection");
        return;
    }
    tt_fork_watch(bell);
    if (reply.magic == MAGIC && reply.rank == rank &&
        memcmp(reply.token, meet->net->token, sizeof(reply.token)) == 0) {
        set_up(meet, rank, peer->sock, bell);
    } else {
        tt_fork_close(&bell);
        drop(meet, rank, "its reply makes no sense");
    }
}

/* -------------------------------------------------------------- the loop */

/* Fills polls; returns whether anybody is still waited for. */
static bool prepare(const meeting *meet, uint32_t *n_polls, bool *must_retry)
{
    bool is_waiting = false;
    *must_retry = false;
    uint32_t n = 0;
    meet->polls[n++] = (struct pollfd){.fd = meet->net->listener,
                                       .events = POLLIN};
    for (uint32_t i = 0; i < meet->n_strangers; i++)
        meet->polls[n++] = (struct pollfd){.fd = meet->strangers[i],
                                           .events = POLLIN};
    for (uint32_t r = 0; r < meet->net->base.n_ranks; r++) {
        const shm_peer *peer = &meet->peers[r];
        bool waits = peer->state == PEER_REPLY || peer->state == PEER_HELLO;
        is_waiting |= waits || peer->state == PEER_CALL;
        *must_retry |= peer->state == PEER_CALL;
        meet->polls[n++] = (struct pollfd){.fd = waits ? peer->sock : -1,
                                           .events = POLLIN};
    }
    *n_polls = n;
    return is_waiting;
}

static void serve(meeting *meet)
{
    const struct pollfd *polls = meet->polls;
    uint32_t n_strangers = meet->n_strangers;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n_strangers; i++) {
        if (polls[1 + i].revents == 0 ||
            !hear_stranger(meet, meet->strangers[i]))
            meet->strangers[kept++] = meet->strangers[i];
    }
    meet->n_strangers = kept;
    for (uint32_t r = 0; r < meet->net->base.n_ranks; r++) {
        const shm_peer *peer = &meet->peers[r];
        const struct pollfd *p = &polls[1 + n_strangers + r];
        if (p->revents != 0 && p->fd == peer->sock)
            hear_peer(meet, r);
    }
    accept_all(meet);
}

static tutti_err late(const meeting *meet, tutti_diag *diag)
{
    char who[200] = "";
    uint32_t first = TT_NONE;
    for (uint32_t r = 0; r < meet->net->base.n_ranks; r++) {
        peer_state state = meet->peers[r].state;
        if (state == PEER_OUT || state == PEER_UP)
            continue;
        size_t used = strlen(who);
        snprintf(who + used, sizeof(who) - used, "%s%u",
                 first == TT_NONE ? "" : ", ", r);
        if (first == TT_NONE)
            first = r;
    }
    tt_fail(diag, TUTTI_ETIMEOUT,
            "no connection by shared memory in time with rank %s", who);
    if (diag)
        diag->rank = first;
    return TUTTI_ETIMEOUT;
}

static tutti_err call_all(const meeting *meet, tutti_diag *diag)
{
    for (uint32_t r = 0; r < meet->net->base.n_ranks; r++) {
        tutti_err err = TUTTI_OK;
        if (meet->peers[r].state == PEER_CALL)
            err = call(meet, r, diag);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

static tutti_err run(meeting *meet, uint64_t deadline_ns, tutti_diag *diag)
{
    uint64_t look_ns = tt_now_ns() + LOOK_MS * TT_NS_PER_MS;
    for (;;) {
        tutti_err err = call_all(meet, diag);
        if (err)
            return err;
        uint32_t n;
        bool must_retry;
        if (!prepare(meet, &n, &must_retry))
            return TUTTI_OK;
        uint64_t now = tt_now_ns();
        if (now >= deadline_ns)
            return late(meet, diag);
        uint64_t left_ms = (deadline_ns - now) / TT_NS_PER_MS + 1;
        int wait_ms = left_ms < LOOK_MS ? (int)left_ms : LOOK_MS;
        if (must_retry && wait_ms > RETRY_MS)
            wait_ms = RETRY_MS;
        int ready = poll(meet->polls, n, wait_ms);
        if (ready < 0 && errno != EINTR)
            return tt_fail_errno(diag, TUTTI_ESYS, errno, "poll");
        const tt_net *net = &meet->net->base;
        if (net->is_well && tt_now_ns() >= look_ns) {
            if (!net->is_well(net->is_well_arg, diag))
                return TUTTI_EPEER;
            look_ns = tt_now_ns() + LOOK_MS * TT_NS_PER_MS;
        }
        serve(meet);
    }
}

static void read_addresses(const meeting *meet, const void *const *addrs,
                           const size_t *addr_lens)
{
    for (uint32_t r = 0; r < meet->net->base.n_ranks; r++) {
        shm_peer *peer = &meet->peers[r];
        peer->sock = -1;
        if (!meet->conns[r] || addr_lens[r] != sizeof(peer->address))
            continue;
        memcpy(&peer->address, addrs[r], sizeof(peer->address));
        if (may_share(meet->net, r, &peer->address))
            peer->state = PEER_CALL;
    }
}

/* Closes what the meeting opened and did not hand over to a conn. */
static void adjourn(meeting *meet)
{
    for (uint32_t i = 0; i < meet->n_strangers; i++)
        tt_fork_close(&meet->strangers[i]);
    for (uint32_t r = 0; r < meet->net->base.n_ranks; r++)
        tt_fork_close(&meet->peers[r].sock);
}

tutti_err tt_shm_meet(tt_shm_net *net, tt_conn *const *conns,
                      const void *const *addrs, const size_t *addr_lens,
                      uint64_t deadline_ns, tutti_diag *diag)
{
    const tt_mem *mem = net->base.mem;
    uint32_t n = net->base.n_ranks;
    /* A lower rank's probe and a higher one's hello, and some room more. */
    meeting meet = {.net = net, .conns = conns, .max_strangers = n + 16};
    uint32_t n_polls = 1 + meet.max_strangers + n;
    meet.peers = tt_new(mem, n, sizeof(*meet.peers));
    meet.strangers = tt_new(mem, meet.max_strangers, sizeof(int));
    meet.polls = tt_new(mem, n_polls, sizeof(*meet.polls));
    tutti_err err;
    if (meet.peers && meet.strangers && meet.polls) {
        read_addresses(&meet, addrs, addr_lens);
        err = run(&meet, deadline_ns, diag);
        adjourn(&meet);
    } else {
        err = tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u connections",
                      n);
    }
    tt_free(mem, meet.peers, n, sizeof(*meet.peers));
    tt_free(mem, meet.strangers, meet.max_strangers, sizeof(int));
    tt_free(mem, meet.polls, n_polls, sizeof(*meet.polls));
    return err;
}
