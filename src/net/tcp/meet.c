/* SPDX-License-Identifier: BSD-3-Clause
 * meet.c - how two ranks get the sockets between them.
 *
 * Idea       A socket is a link (link/link.h), which tries one of the peer's
 *            addresses after the other until one answers right. The first
 *            strand finds the way; the other ones follow when it stands, over
 *            all networks that are as good. When all of them stand the conn is
 *            up.
 * Who calls  Either side, or both. The caller says which rank it is, the number
 *            of its call, and how many strands the pair has: as many as both
 *            sides would like, which the caller knows from both cards. A strand
 *            that stands twice (both have dialled) is the one that came first
 *            out of the box; link.h has the reason why both sides take the same
 *            one.
 * Time       A call all of whose addresses refuse for TT_DOOR_GIVE_UP_NS fails
 *            early; silence is waited for until the deadline.
 * Next       link/link.h, tcp.c. */
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "net/tcp/tcp.h"

/* How long whoever has called may take for its other strands. */
#define CALLED_NS (20 * TT_NS_PER_S)

static const char no_memory[] = "out of memory for a connection";

/* What is known only until the conn is up. */
struct tt_tcp_meeting {
    tt_tcp_conn *conn;
    struct tt_tcp_meeting *next; /* in net->meetings */
    uint64_t until_ns;
    tt_link_id caller; /* none: nobody has called */
    uint64_t call;
    tt_link_dial *dials[TT_TCP_STRANDS];
    tt_door_call to; /* but for the strand */
};

/* ------------------------------------------------------------- sockets -- */

/* Where two interfaces of this host are on one network, each may have answered
 * for the other's address (ARP), so that a rail's packets come by the wrong
 * one. The kernel brings a bound socket none of those: it resets them. What is
 * not known is well. */
static bool comes_by(int fd, const char *dev)
{
    union {
        struct cmsghdr align;
        char bytes[256];
    } buf;
    int on = 1, off = 0;
    socklen_t len = sizeof(buf);
    struct in_pktinfo info = {0};
    if (setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) != 0)
        return true;
    if (getsockopt(fd, IPPROTO_IP, IP_PKTOPTIONS, &buf, &len) != 0)
        len = 0;
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &off, sizeof(off));
    struct msghdr m = {.msg_control = &buf, .msg_controllen = len};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
            memcpy(&info, CMSG_DATA(c), sizeof(info));
    return info.ipi_ifindex == 0 ||
           (unsigned)info.ipi_ifindex == if_nametoindex(dev);
}

/* The socket of one of several rails goes by its interface whatever the routes
 * say, at the called end, too. Kernels before 5.7 let only root do that; there
 * the addresses alone must lead the right way. */
int tt_tcp_bind_rail(const tt_tcp_conn *conn, int fd)
{
    const tt_link_hint *hint = tt_tcp_rail(conn);
    if (!hint)
        return 0;
    if (!comes_by(fd, hint->dev)) {
        TT_DEBUG("tcp: peer %u reaches %s by another interface of this host "
                 "(net.ipv4.conf.all.arp_ignore=1 keeps them apart)",
                 conn->base.rank, hint->dev);
        return 0;
    }
    int rc = setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, hint->dev,
                        (socklen_t)strlen(hint->dev));
    return rc == 0 || errno == EPERM ? 0 : errno;
}

/* ------------------------------------------------------------- listening -- */

tutti_err tt_tcp_listen(tt_tcp_net *net, tutti_diag *diag)
{
    return tt_door_open_net(&net->door, &net->base, TT_LINK_TCP, diag);
}

size_t tt_tcp_address(tt_net *base, void *buf, size_t size)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    tt_door_look(&net->door, base);
    return tt_door_address(&net->door, (uint32_t)base->settings->sockets, buf,
                           size);
}

/* What a side would like; the network says it where the side does not. */
static uint32_t strands_of(const tt_net *net, uint64_t wish)
{
    uint64_t n = wish ? wish : net->n_sockets;
    return n < 1 ? 1 : n > TT_TCP_STRANDS ? TT_TCP_STRANDS : (uint32_t)n;
}

/* ------------------------------------------------------- beginning, end -- */

static tt_tcp_net *net_of(const tt_tcp_conn *conn)
{
    return (tt_tcp_net *)conn->base.net;
}

static tutti_err set_up_strand(const tt_tcp_net *net, tt_tcp_strand *s)
{
    const tt_mem *mem = net->base.mem;
    const uint32_t n = s->conn->n_strands;
    const bool is_checked = net->base.settings->check == TT_CHECK_CRC;
    s->rx = (tt_tcp_rx){.buf = tt_new(mem, TT_TCP_BUF, 1),
                        .up = net->base.up,
                        .max_payload = net->base.max_payload,
                        .tail = TT_TCP_BUF,
                        .turn_bytes = n > 1 ? TT_TCP_TURN_BYTES : 0,
                        .is_checked = is_checked};
    s->tx = (tt_tcp_tx){.mem = mem,
                        .ahead = TT_TCP_LEAST_AHEAD,
                        .is_checked = is_checked,
                        .out = tt_new(mem, TT_TCP_QUEUE, sizeof(tt_tcp_out))};
    return s->rx.buf && s->tx.out ? TUTTI_OK : TUTTI_ENOMEM;
}

/* Without sockets. ENOMEM: some are there. */
static tutti_err set_up(tt_tcp_conn *conn, uint32_t n)
{
    const tt_tcp_net *net = (const tt_tcp_net *)conn->base.net;
    const tt_mem *mem = net->base.mem;
    conn->strands = tt_new(mem, n, sizeof(*conn->strands));
    if (!conn->strands)
        return TUTTI_ENOMEM;
    conn->n_strands = n;
    conn->most_lent = n * TT_TCP_QUEUE + TT_TCP_PUT_OFF;
    conn->lent = tt_new(mem, conn->most_lent, sizeof(*conn->lent));
    tutti_err err = conn->lent ? TUTTI_OK : TUTTI_ENOMEM;
    for (uint32_t i = 0; !err && i < n; i++) {
        conn->strands[i].conn = conn;
        err = set_up_strand(net, &conn->strands[i]);
    }
    return err;
}

static tutti_err begin(tt_tcp_conn *conn, uint32_t n_strands, uint64_t until_ns)
{
    tt_tcp_net *net = net_of(conn);
    tutti_err err = set_up(conn, n_strands);
    if (!err)
        conn->meeting = tt_new(net->base.mem, 1, sizeof(*conn->meeting));
    if (err || !conn->meeting)
        return TUTTI_ENOMEM;
    conn->meeting->conn = conn;
    conn->meeting->until_ns = until_ns;
    conn->meeting->next = net->meetings;
    net->meetings = conn->meeting;
    return TUTTI_OK;
}

void tt_tcp_end_meeting(tt_tcp_conn *conn)
{
    tt_tcp_net *net = net_of(conn);
    struct tt_tcp_meeting *m = conn->meeting;
    if (!m)
        return;
    struct tt_tcp_meeting **at = &net->meetings;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    for (uint32_t i = 0; i < TT_TCP_STRANDS; i++)
        tt_link_dial_end(m->dials[i]);
    tt_free(net->base.mem, m, 1, sizeof(*m));
    conn->meeting = NULL;
}

void tt_tcp_end_meetings(tt_tcp_net *net)
{
    while (net->meetings)
        tt_tcp_end_meeting(net->meetings->conn);
}

bool tt_tcp_is_meeting(const tt_tcp_net *net, const tt_tcp_said *said,
                       const tt_link_who *who)
{
    const struct tt_tcp_meeting *m = net->meetings;
    for (; m; m = m->next) {
        tt_tcp_said own; /* call: 0 where this side has not dialled */
        memcpy(&own, m->to.opts.said, sizeof(own));
        bool is_it = said->is_own ? m->call == said->call
                                  : own.call == said->call;
        if (is_it && m->conn->base.rank == said->rank &&
            (!said->is_own || tt_link_id_compare(&m->caller, &who->id) == 0))
            return true;
    }
    return false;
}

static bool is_of(const tt_tcp_call *call, const tt_link_id *caller)
{
    return call->call > 0 && tt_link_id_compare(&call->caller, caller) == 0;
}

/* Ranks may have come since it was opened. Without memory it is forgotten, and
 * tried in vain. */
static void note_end(tt_tcp_net *net, uint32_t rank, const tt_tcp_call *call)
{
    const tt_array ended = {&net->ended, sizeof(*net->ended)};
    const size_t want = 2 * ((size_t)rank + 1);
    if (rank >= net->n_ended &&
        tt_arrays_grow(net->base.mem, &ended, 1, net->n_ended, want))
        return;
    net->n_ended = rank >= net->n_ended ? want : net->n_ended;
    net->ended[rank] = *call;
}

/* They may end in any order. */
void tt_tcp_end_call(tt_tcp_conn *conn)
{
    tt_tcp_net *net = net_of(conn);
    const uint32_t rank = conn->base.rank;
    const tt_tcp_call theirs = conn->theirs;
    conn->theirs.call = 0;
    if (theirs.call == 0 || !net->ended) /* the net is ending */
        return;
    const tt_tcp_call *ended = rank < net->n_ended ? &net->ended[rank] : NULL;
    if (!ended || !is_of(ended, &theirs.caller) || ended->call < theirs.call)
        note_end(net, rank, &theirs);
}

bool tt_tcp_has_ended(const tt_tcp_net *net, const tt_tcp_said *said,
                      const tt_link_who *who)
{
    if (said->rank >= net->n_ended)
        return false;
    const tt_tcp_call *ended = &net->ended[said->rank];
    return is_of(ended, &who->id) && said->call <= ended->call;
}

static void miss(tt_tcp_conn *conn, tutti_err err, const char *text)
{
    tt_tcp_end_meeting(conn);
    conn->base.net->up->missed(&conn->base, err, text);
}

/* --------------------------------------------------------------- calling -- */

/* Inside a host there are no outages: a connection ends with its process. */
static bool lasts(const tt_tcp_net *net, const tt_link_card *theirs)
{
    const tt_settings *settings = net->base.settings;
    return settings->reconnect_ns > 0 &&
           (settings->reconnect_near ||
            !tt_link_card_is_near(&net->door.card, theirs));
}

static tutti_err dial_strand(struct tt_tcp_meeting *m, uint32_t strand,
                             tutti_diag *diag)
{
    m->to.opts.strand = strand;
    return tt_link_dial_begin(net_of(m->conn)->door.box, &m->to.opts,
                              &m->dials[strand], diag);
}

tutti_err tt_tcp_dial(tt_conn *base, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    tt_tcp_net *net = net_of(conn);
    tt_link_card card;
    uint32_t wish;
    tutti_err err = tt_door_read_net(base->rank, addr, len, &card, &wish, diag);
    if (err)
        return err;
    uint32_t mine = strands_of(&net->base, net->base.settings->sockets);
    uint32_t theirs = strands_of(&net->base, wish);
    if (begin(conn, mine < theirs ? mine : theirs, deadline_ns))
        return tt_fail(diag, TUTTI_ENOMEM, "%s", no_memory);
    struct tt_tcp_meeting *m = conn->meeting;
    conn->call = ++net->n_calls;
    const tt_tcp_said say = {.rank = net->base.rank,
                             .n_strands = conn->n_strands,
                             .call = conn->call,
                             .lasts = lasts(net, &card)};
    err = tt_door_call_to(&net->door, base, &card, true, &m->to, diag);
    if (err)
        return err;
    m->to.opts.purpose = TT_LINK_TCP;
    m->to.opts.deadline_ns = deadline_ns;
    memcpy(m->to.opts.said, &say, sizeof(say));
    return dial_strand(m, 0, diag);
}

void tt_tcp_go_past(tt_tcp_net *net, uint32_t rank, uint32_t strand)
{
    for (struct tt_tcp_meeting *m = net->meetings; m; m = m->next) {
        if (m->conn->base.rank != rank || strand >= m->conn->n_strands ||
            !m->dials[strand])
            continue;
        tt_link_dial_end(m->dials[strand]);
        m->dials[strand] = NULL;
        dial_strand(m, strand, NULL);
    }
}

/* The first strand has found the way, here or there: the others. */
static tutti_err dial_others(struct tt_tcp_meeting *m, uint32_t way,
                             tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 1; !err && i < m->conn->n_strands; i++) {
        m->to.opts.first = tt_link_way_of(m->to.ways, m->to.opts.n_ways, way,
                                          i);
        err = dial_strand(m, i, diag);
    }
    return err;
}

/* ------------------------------------------------------------ what comes -- */

static void tell_place(const tt_tcp_conn *conn, const char *where,
                       const tt_link_way *way)
{
    if (!way)
        TT_DEBUG("tcp: peer %u at %s, by its choice", conn->base.rank, where);
    else
        TT_DEBUG("tcp: peer %u at %s, %s%s", conn->base.rank, where,
                 way->is_routed ? "by a route" : "on ",
                 way->is_routed ? ""
                 : way->dev[0]  ? way->dev
                                : "this host");
}

/* What was said of it: by the other side, where that has dialled (way: NULL),
 * or by this one. */
static void take_link(tt_tcp_conn *conn, const tt_link_event *link,
                      const tt_link_way *way)
{
    tt_link_stream s = link->stream;
    uint32_t at = link->who.strand;
    tt_tcp_said said;
    tutti_diag diag;
    if (!conn->meeting || at >= conn->n_strands || conn->strands[at].is_open ||
        (!way && tt_tcp_bind_rail(conn, s.fd) != 0)) {
        tt_link_stream_close(&s);
        return;
    }
    struct tt_tcp_meeting *m = conn->meeting;
    tt_tcp_strand *strand = &conn->strands[at];
    char where[TT_SOCK_TEXT];
    tt_link_dial_end(m->dials[at]); /* it is over, or has come too late */
    m->dials[at] = NULL;
    tt_door_tune(conn->base.net, s.fd);
    tt_tcp_cap_socket(strand, s.fd);
    strand->link = s;
    strand->is_open = true;
    conn->n_open++;
    memcpy(&said, way ? m->to.opts.said : link->who.said, sizeof(said));
    if (said.lasts && !tt_tcp_keep(strand, link, said.call)) {
        miss(conn, TUTTI_ENOMEM, no_memory);
        return;
    }
    tt_sock_peer_text(s.fd, where);
    if (at == 0)
        conn->base.where = memcpy(conn->where, where, sizeof(where));
    tell_place(conn, where, way);
    tutti_err err = TUTTI_OK;
    if (at == 0 && way && conn->n_strands > 1)
        err = dial_others(m, link->way, &diag);
    if (err) {
        miss(conn, err, diag.text);
        return;
    }
    if (conn->n_open < conn->n_strands)
        return;
    tt_tcp_end_meeting(conn);
    net_of(conn)->on_open(conn);
}

/* Another strand of a call; NULL: it is the first one. */
static tt_tcp_conn *find_call(const tt_tcp_net *net, const tt_link_event *link,
                              const tt_tcp_said *theirs)
{
    struct tt_tcp_meeting *m = net->meetings;
    while (m && (m->call != theirs->call ||
                 tt_link_id_compare(&m->caller, &link->who.id) != 0))
        m = m->next;
    return m ? m->conn : NULL;
}

/* True: it is the strand's, or was closed since there is one. */
static bool take_arrival(tt_tcp_net *net, const tt_link_event *link)
{
    tt_tcp_said theirs;
    tt_link_stream s = link->stream;
    memcpy(&theirs, link->who.said, sizeof(theirs));
    if (theirs.is_again) {
        tt_tcp_take_again(net, link);
        return true;
    }
    if (net->is_ending) {
        tt_link_stream_close(&s);
        return false;
    }
    tt_tcp_conn *conn = find_call(net, link, &theirs);
    if (!conn && theirs.rank < net->base.n_ranks && theirs.n_strands >= 1 &&
        theirs.n_strands <= strands_of(&net->base, net->base.settings->sockets))
        conn = (tt_tcp_conn *)net->base.up->called(&net->base, theirs.rank,
                                                   &link->who.id);
    if (conn && !conn->strands &&
        begin(conn, theirs.n_strands, tt_now_ns() + CALLED_NS)) {
        tt_link_stream_close(&s);
        miss(conn, TUTTI_ENOMEM, no_memory);
        return false;
    }
    if (!conn || !conn->meeting || conn->n_strands != theirs.n_strands) {
        tt_link_stream_close(&s);
        return false;
    }
    conn->meeting->caller = link->who.id;
    conn->meeting->call = theirs.call;
    conn->theirs = (tt_tcp_call){link->who.id, theirs.call};
    take_link(conn, link, NULL);
    return true;
}

/* The rank has called again since: what comes of this call is from before. */
static bool is_past(const tt_tcp_net *net, const tt_tcp_said *said,
                    const tt_link_id *caller)
{
    bool is = false;
    for (uint32_t i = 0; i < net->n_live; i++) {
        const tt_tcp_conn *conn = net->live[i];
        is |= conn->base.rank == said->rank && is_of(&conn->theirs, caller) &&
              conn->theirs.call > said->call;
    }
    for (const struct tt_tcp_meeting *m = net->meetings; m; m = m->next)
        is |= m->conn->base.rank == said->rank && m->call > said->call &&
              tt_link_id_compare(&m->caller, caller) == 0;
    return is;
}

bool tt_tcp_take_late(tt_tcp_net *net, const tt_link_event *link)
{
    int ends[2];
    tt_tcp_said said;
    tt_link_event first = *link;
    memcpy(&said, link->who.said, sizeof(said));
    const tt_tcp_conn *conn = find_call(net, link, &said);
    if (!said.is_own || tt_tcp_has_ended(net, &said, &link->who) ||
        is_past(net, &said, &link->who.id) ||
        (conn && (link->who.strand >= conn->n_strands ||
                  conn->strands[link->who.strand].is_open)))
        return false;
    /* A socket that ends at once stands for the one that never came. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   ends) != 0)
        return false;
    tt_fork_watch(ends[0]);
    close(ends[1]);
    said.is_again = 0;
    said.lasts = 1;
    memcpy(first.who.said, &said, sizeof(said));
    first.stream = (tt_link_stream){.fd = ends[0]};
    return take_arrival(net, &first);
}

static void take_dialled(tt_tcp_conn *conn, const tt_link_event *link)
{
    struct tt_tcp_meeting *m = conn->meeting;
    if (!m) {
        tt_tcp_take_redial(conn, link);
    } else if (link->kind == TT_LINK_FAILED) {
        char text[TT_DOOR_TEXT];
        tutti_err err = tt_door_blame(&m->to, link->dial, &conn->base, text);
        miss(conn, err, text);
    } else if (link->kind == TT_LINK_DIALLED) {
        take_link(conn, link, &m->to.ways[link->way]);
    } else { /* MET: it arrives */
        tt_link_dial_end(link->dial);
        m->dials[link->who.strand] = NULL;
    }
}

bool tt_tcp_take_links(tt_tcp_net *net)
{
    tt_link_event link;
    bool has_come = false;
    while (tt_link_box_take(net->door.box, &link)) {
        has_come = true;
        if (link.kind == TT_LINK_ARRIVED)
            take_arrival(net, &link);
        else
            take_dialled(link.arg, &link);
    }
    uint64_t now_ns = net->meetings ? tt_now_ns() : 0;
    struct tt_tcp_meeting *next;
    for (struct tt_tcp_meeting *m = net->meetings; m; m = next) {
        next = m->next;
        if (m->until_ns + TT_DOOR_GIVE_UP_NS < now_ns) {
            char text[120];
            snprintf(text, sizeof(text),
                     "rank %u did not connect to rank %u in time",
                     m->conn->base.rank, net->base.rank);
            miss(m->conn, TUTTI_ETIMEOUT, text);
        }
    }
    tt_tcp_look_after(net);
    return has_come;
}
