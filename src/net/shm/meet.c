/* SPDX-License-Identifier: BSD-3-Clause
 * meet.c - how two processes of one host get to share memory.
 *
 * Idea       Links (link/link.h) over abstract unix sockets, at which the
 *            kernel tells the user. The token of a link is in the exchanged
 *            address. Whoever has dialled makes the memory, and what is said on
 *            a link is two messages with descriptors:
 *
 *              caller -> called   hello { rank }, memfd, bell
 *              called -> caller   reply { rank }, bell
 *
 *            With the reply both sides are up. The link stays, for segments and
 *            for the end (shm.c).
 *
 * Trust      The memory must be sealed against shrinking (or touching it could
 *            kill us) and have the size that both sides expect. A link that
 *            brings something else is closed, which its caller hears of at
 *            once.
 *
 * Agreement  What both know beforehand (boot id, network namespace, uid, ring
 *            size) rules a pair out on both sides. Where a caller finds that a
 *            pair does not work the engine dials by another transport.
 *
 * Death      A name that refuses is nobody's any more, and a link that ends may
 *            be that of a process that is just being killed, whose pidfd says
 *            so a moment later. Then no transport leads there: EPEER.
 *
 * Next       shm.c (messages), base/fdpass.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fdpass.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/memfd.h"
#include "net/shm/shm.h"

/* Hello and reply. */
typedef struct greeting {
    uint32_t magic, rank;
} greeting;
#define MAGIC UINT32_C(0x326d6873) /* "shm2" */

/* Of a link: who calls. */
typedef struct said {
    uint32_t rank;
    uint8_t none[TT_LINK_SAID - 4];
} said;
_Static_assert(sizeof(said) == TT_LINK_SAID, "a link says so much");

/* How long a listener that refuses is tried, and a process whose link has ended
 * may take to end as well. */
static const uint64_t patience_ns = 200 * TT_NS_PER_MS;
static const char hung_up[] = "it closed the connection";

/* -------------------------------------------------------------- addresses */

tutti_err tt_shm_listen(tt_shm_net *net, tutti_diag *diag)
{
    tt_link_listen_opts opts = {.purposes = TT_LINK_FOR(TT_LINK_SHM),
                                .is_nest = true,
                                .is_packets = true};
    return tt_door_open(&net->door, &net->base, &opts, diag);
}

size_t tt_shm_address(tt_net *base, void *buf, size_t size)
{
    const tt_shm_net *net = (const tt_shm_net *)base;
    return tt_door_address(&net->door, net->ring_size, buf, size);
}

/* Both sides of a pair come to the same answer; NULL: they may. */
static const char *why_not(const tt_shm_net *net, uint32_t rank,
                           const tt_link_card *card, uint32_t ring_size)
{
    if (!tt_link_card_is_near(&net->door.card, card) || card->nest == 0)
        return "it is on another host, or of another user";
    if (ring_size == net->ring_size)
        return NULL;
    TT_WARN("no shared memory with rank %u: its TUTTI_SHM_RING is %u, "
            "ours is %u bytes",
            rank, ring_size, net->ring_size);
    return "its TUTTI_SHM_RING is another";
}

/* ---------------------------------------------------------------- memory */

/* Maps the memory of a pair; the lower rank is side 0. */
static bool map_memory(const tt_shm_net *net, tt_shm_conn *conn, int fd)
{
    size_t bytes = tt_duplex_bytes(net->ring_size);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return false;
    madvise(memory, bytes, MADV_DONTFORK);
    conn->memory = memory;
    int side = net->base.rank > conn->base.rank;
    tt_duplex_init(&conn->duplex, memory, net->ring_size, side, tt_shm_resolve,
                   conn);
    return true;
}

/* --------------------------------------------------------- beginning, end */

static tt_shm_net *net_of(const tt_shm_conn *conn)
{
    return (tt_shm_net *)conn->base.net;
}

/* Into the list of those that are not up yet, once. */
static void begin(tt_shm_conn *conn, uint64_t until_ns)
{
    tt_shm_net *net = net_of(conn);
    conn->until_ns = until_ns;
    if (conn->is_begun)
        return;
    conn->is_begun = true;
    conn->bell = conn->sock = conn->pidfd = -1;
    conn->next_pending = net->pending;
    net->pending = conn;
}

static void leave_pending(tt_shm_conn *conn)
{
    tt_shm_conn **at = &net_of(conn)->pending;
    while (*at && *at != conn)
        at = &(*at)->next_pending;
    if (*at)
        *at = conn->next_pending;
}

void tt_shm_end_meeting(tt_shm_conn *conn)
{
    leave_pending(conn);
    tt_link_dial_end(conn->dial);
    conn->dial = NULL;
}

static void close_link(tt_shm_conn *conn)
{
    if (conn->sock < 0)
        return;
    epoll_ctl(conn->base.net->fd, EPOLL_CTL_DEL, conn->sock, NULL);
    /* Its reply, if it still comes, has to fail there. */
    shutdown(conn->sock, SHUT_RDWR);
    tt_fork_close(&conn->sock);
}

static void tell_missed(tt_shm_conn *conn, tutti_err err, const char *text)
{
    tt_shm_end_meeting(conn);
    close_link(conn);
    conn->is_doubted = false;
    if (conn->pidfd >= 0)
        epoll_ctl(conn->base.net->fd, EPOLL_CTL_DEL, conn->pidfd, NULL);
    conn->base.net->up->missed(&conn->base, err, text);
}

static void miss(tt_shm_conn *conn, tutti_err err, const char *why)
{
    char text[160];
    snprintf(text, sizeof(text), "no shared memory with rank %u: %s",
             conn->base.rank, why);
    tell_missed(conn, err, text);
}

/* Its process is no more, or its connections are not. */
static void miss_dead(tt_shm_conn *conn)
{
    char text[96];
    if (conn->where[0])
        snprintf(text, sizeof(text), "rank %u (%s) exited", conn->base.rank,
                 conn->where);
    else
        snprintf(text, sizeof(text),
                 "rank %u exited or left: nobody listens there any more",
                 conn->base.rank);
    tell_missed(conn, TUTTI_EPEER, text);
}

/* The link has ended: is its process ending, too? */
static void doubt(tt_shm_conn *conn)
{
    const uint64_t until_ns = tt_now_ns() + patience_ns;
    if (conn->pidfd < 0 && !conn->is_gone) {
        miss(conn, TUTTI_ENET, hung_up);
        return;
    }
    close_link(conn);
    conn->is_doubted = true;
    if (conn->until_ns > until_ns)
        conn->until_ns = until_ns;
}

/* What should have come with descriptors has not. */
static void miss_message(tt_shm_conn *conn)
{
    if (errno == EMFILE)
        miss(conn, TUTTI_ENET, tt_errno_text(errno));
    else
        doubt(conn);
}

/* Its end is noticed from now on. Without pidfds (old kernels, a pid of another
 * namespace) the socket alone has to do. */
static void watch_process(tt_shm_conn *conn)
{
    struct ucred cred = {0};
    socklen_t len = sizeof(cred);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    getsockopt(conn->sock, SOL_SOCKET, SO_PEERCRED, &cred, &len);
    snprintf(conn->where, sizeof(conn->where), "pid %d", cred.pid);
    conn->base.where = conn->where;
    if (cred.pid > 0)
        conn->pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
    if (conn->pidfd < 0) {
        conn->is_gone = cred.pid > 0 && errno == ESRCH;
        TT_DEBUG("peer %u: no pidfd for %s", conn->base.rank, conn->where);
        return;
    }
    tt_fork_watch(conn->pidfd);
    if (epoll_ctl(conn->base.net->fd, EPOLL_CTL_ADD, conn->pidfd, &event) != 0)
        TT_WARN("peer %u: epoll_ctl: %s", conn->base.rank, strerror(errno));
}

static void set_up(tt_shm_conn *conn)
{
    tt_shm_net *net = net_of(conn);
    /* One that this one replaces may still be there. */
    if (tt_grow(net->base.mem, (void **)&net->live, &net->most_live,
                net->n_live + 1, sizeof(tt_shm_conn *))) {
        miss(conn, TUTTI_ENOMEM, "out of memory");
        return;
    }
    tt_shm_end_meeting(conn);
    conn->base.is_up = true;
    net->live[net->n_live++] = conn;
    net->base.up->up(&conn->base);
}

/* ---------------------------------------------------------------- caller */

tutti_err tt_shm_dial(tt_conn *base, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag)
{
    tt_shm_conn *conn = (tt_shm_conn *)base;
    tt_shm_net *net = net_of(conn);
    tt_link_card card;
    uint32_t ring_size;
    if (!tt_door_read(addr, len, &card, &ring_size))
        return tt_fail(diag, TUTTI_ENET,
                       "rank %u told an address that makes no sense",
                       base->rank);
    const char *why = why_not(net, base->rank, &card, ring_size);
    if (why)
        return tt_fail(diag, TUTTI_ENET, "no shared memory with rank %u: %s",
                       base->rank, why);
    tt_link_way way = {.cost = 0};
    tt_link_card_nest(&card, &way.to);
    tt_link_dial_opts opts = {.purpose = TT_LINK_SHM,
                              .self = net->door.card.id,
                              .to = card.id,
                              .arg = conn,
                              .ways = &way,
                              .n_ways = 1,
                              .is_packets = true,
                              .deadline_ns = deadline_ns,
                              .give_up_ns = patience_ns};
    const said mine = {.rank = net->base.rank};
    memcpy(opts.token, card.token, sizeof(opts.token));
    memcpy(opts.said, &mine, sizeof(mine));
    tutti_err err = tt_link_dial_begin(net->door.box, &opts, &conn->dial, diag);
    if (!err)
        begin(conn, deadline_ns);
    return err;
}

/* Makes the memory and says hello. NULL, or why not. Until the reply comes the
 * memory's descriptor keeps a place for the bell: whoever replies is up, so the
 * reply must not fail here. */
static const char *say_hello(tt_shm_conn *conn)
{
    tt_shm_net *net = net_of(conn);
    const greeting hello = {.magic = MAGIC, .rank = net->base.rank};
    int fd = tt_memfd_create("tutti", tt_duplex_bytes(net->ring_size));
    if (fd < 0)
        return tt_errno_text(errno);
    tt_fork_watch(fd);
    const char *why = NULL;
    if (!map_memory(net, conn, fd))
        why = "the memory cannot be mapped";
    else if (!tt_fdpass_send(conn->sock, &hello, sizeof(hello),
                             (int[]){fd, net->bell}, 2) &&
             errno != EPIPE &&
             errno != ECONNRESET) /* these hear_reply() finds */
        why = strerror(errno);
    conn->bell = fd;
    return why;
}

static void hear_reply(tt_shm_conn *conn)
{
    greeting reply;
    int bell;
    tt_fork_close(&conn->bell);
    int got = tt_fdpass_recv(conn->sock, &reply, sizeof(reply), &bell, 1);
    if (got == 0)
        return;
    if (got < 0) {
        miss_message(conn);
        return;
    }
    tt_fork_watch(bell);
    conn->bell = bell;
    if (reply.magic == MAGIC && reply.rank == conn->base.rank)
        set_up(conn);
    else
        miss(conn, TUTTI_ENET, "its reply makes no sense");
}

/* ---------------------------------------------------------------- called */

static void hear_hello(tt_shm_conn *conn)
{
    tt_shm_net *net = net_of(conn);
    const greeting reply = {.magic = MAGIC, .rank = net->base.rank};
    greeting hello;
    int fds[2];
    int got = tt_fdpass_recv(conn->sock, &hello, sizeof(hello), fds, 2);
    if (got == 0)
        return;
    if (got < 0) {
        miss_message(conn);
        return;
    }
    tt_fork_watch(fds[0]);
    tt_fork_watch(fds[1]);
    conn->bell = fds[1];
    const char *why = NULL;
    if (hello.magic != MAGIC || hello.rank != conn->base.rank ||
        !tt_memfd_is_sound(fds[0], tt_duplex_bytes(net->ring_size)) ||
        !map_memory(net, conn, fds[0]))
        why = "its memory is not acceptable";
    else if (!tt_fdpass_send(conn->sock, &reply, sizeof(reply), &net->bell, 1))
        why = errno == EPIPE || errno == ECONNRESET ? hung_up : strerror(errno);
    tt_fork_close(&fds[0]);
    if (!why)
        set_up(conn);
    else if (why == hung_up)
        doubt(conn);
    else
        miss(conn, TUTTI_ENET, why);
}

/* ------------------------------------------------------------- what comes */

void tt_shm_hear_meeting(tt_shm_conn *conn)
{
    if (conn->sock >= 0 && conn->is_caller)
        hear_reply(conn);
    else if (conn->sock >= 0)
        hear_hello(conn);
    bool is_open = conn->sock >= 0 || conn->is_doubted;
    if (!conn->base.is_up && is_open && tt_shm_has_exited(conn))
        miss_dead(conn);
}

/* A link of the pair is there; of several the first one stays, on both
 * sides. */
static void take_link(tt_shm_conn *conn, const tt_link_event *link,
                      bool is_caller)
{
    int fd = link->stream.fd; /* a unix socket has no layer */
    const char *why = NULL;
    if (conn->base.is_up || conn->sock >= 0 || conn->is_doubted) {
        tt_fork_close(&fd);
        return;
    }
    tt_link_dial_end(conn->dial); /* it is over, or has come too late */
    conn->dial = NULL;
    conn->sock = fd;
    conn->is_caller = is_caller;
    watch_process(conn);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(conn->base.net->fd, EPOLL_CTL_ADD, fd, &event) != 0)
        why = strerror(errno);
    else if (is_caller)
        why = say_hello(conn);
    if (why)
        miss(conn, TUTTI_ESYS, why);
}

static void take_arrival(tt_shm_net *net, const tt_link_event *link)
{
    said theirs;
    memcpy(&theirs, link->who.said, sizeof(theirs));
    tt_conn *base = theirs.rank < net->base.n_ranks
                        ? net->base.up->called(&net->base, theirs.rank,
                                               &link->who.id)
                        : NULL;
    if (!base) {
        int fd = link->stream.fd;
        tt_fork_close(&fd);
        return;
    }
    tt_shm_conn *conn = (tt_shm_conn *)base;
    begin(conn, tt_now_ns() + TT_SHM_CALLED_NS);
    take_link(conn, link, false);
}

void tt_shm_take_links(tt_shm_net *net)
{
    tt_link_event link;
    while (tt_link_box_take(net->door.box, &link)) {
        tt_shm_conn *conn = link.arg;
        if (link.kind == TT_LINK_ARRIVED) {
            take_arrival(net, &link);
        } else if (link.kind == TT_LINK_DIALLED) {
            take_link(conn, &link, true);
        } else if (link.kind == TT_LINK_MET) {
            tt_link_dial_end(conn->dial);
            conn->dial = NULL;
        } else {
            tt_link_outcome o = tt_link_dial_outcome(conn->dial, 0);
            if (o.why == TT_LINK_REFUSED && o.err == ECONNREFUSED)
                miss_dead(conn);
            else
                miss(conn, TUTTI_ENET, tt_link_outcome_text(&o));
        }
    }
}

void tt_shm_check_meetings(tt_shm_net *net)
{
    uint64_t now_ns = tt_now_ns();
    tt_shm_conn *next;
    for (tt_shm_conn *conn = net->pending; conn; conn = next) {
        next = conn->next_pending;
        if (conn->is_doubted && tt_shm_has_exited(conn))
            miss_dead(conn);
        else if (now_ns > conn->until_ns)
            miss(conn, TUTTI_ENET, conn->is_doubted ? hung_up : "no answer");
    }
}
