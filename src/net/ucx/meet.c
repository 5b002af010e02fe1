/* SPDX-License-Identifier: BSD-3-Clause
 * meet.c - how two processes that are to speak UCX meet: over a link
 * (link/link.h), dialled like any other.
 *
 * Idea       The link stands, so both know with whom they speak. Each then
 *            tells the address of its UCX worker, and a key. With that each
 *            makes an endpoint and says HELLO by UCX, with the key that it was
 *            told:
 *
 *              both    by link  card, address
 *              both    by UCX   HELLO
 *              called  by link  READY  your HELLO has come
 *              caller  by link  READY  yours too, and your READY: we are up
 *
 *            UCX finds the way; HELLO proves that it has found one, both ways.
 * Agreement  The caller says the last word. Where it finds no way it ends the
 *            link, and then neither side is up.
 * Later      The link stays. BYE and GONE go there, and its end tells that the
 *            process at the other side has ended, on whatever host.
 * Time       Once the other side has answered, UCX has a third of what is left:
 *            another transport may connect the two.
 * Trust      Whoever has not met knows no key, and nothing that it sends by UCX
 *            is believed (recv.c). An address is bounded, and has a sum: UCX
 *            reads it without looking.
 * Next       net/door.h, worker.c, recv.c. */
#include "net/ucx/ucx.h"

#if TT_HAVE_UCX

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"

/* How long whoever has called may take for the rest. */
#define CALLED_NS (20 * TT_NS_PER_S)

/* Of a link: who calls. */
typedef struct said {
    uint32_t rank;
    uint8_t none[TT_LINK_SAID - 4];
} said;
_Static_assert(sizeof(said) == TT_LINK_SAID, "a link says so much");

/* What is known only until the conn is up. */
struct tt_ucx_meeting {
    uint64_t until_ns;
    tt_link_dial *dial;
    tt_door_call call;
    tt_ucx_card card; /* theirs */
    uint8_t address[TT_UCX_ADDRESS_MAX];
};

static tt_ucx_net *net_of(const tt_ucx_conn *conn)
{
    return (tt_ucx_net *)conn->base.net;
}

/* ------------------------------------------------------------- listening -- */

tutti_err tt_ucx_listen(tt_ucx_net *net, tutti_diag *diag)
{
    return tt_door_open_net(&net->door, &net->base, TT_LINK_UCX, diag);
}

size_t tt_ucx_address(tt_net *base, void *buf, size_t size)
{
    return tt_door_address(&((tt_ucx_net *)base)->door, TT_UCX_CARD_MAGIC, buf,
                           size);
}

/* -------------------------------------------------------- beginning, end -- */

/* A place in the table. */
static tutti_err take_slot(tt_ucx_conn *conn)
{
    tt_ucx_net *net = net_of(conn);
    size_t slot = 0;
    while (slot < net->n_conns && net->conns[slot])
        slot++;
    tutti_err err = tt_grow(net->base.mem, (void **)&net->conns,
                            &net->most_conns, slot + 1, sizeof(tt_ucx_conn *));
    if (err)
        return err;
    if (slot == net->n_conns)
        net->n_conns++;
    net->conns[slot] = conn;
    conn->mine.slot = (uint32_t)slot;
    return TUTTI_OK;
}

static tutti_err begin(tt_ucx_conn *conn, uint64_t until_ns, tutti_diag *diag)
{
    tt_ucx_net *net = net_of(conn);
    const tt_mem *mem = net->base.mem;
    conn->mine = (tt_ucx_card){.magic = TT_UCX_CARD_MAGIC,
                               .n_bytes = (uint32_t)net->address_len,
                               .rank = net->base.rank,
                               .sum = net->address_sum};
    tutti_err err = tt_random(&conn->mine.key, sizeof(conn->mine.key), diag);
    if (err)
        return err;
    tt_ucx_tx *tx = tt_new(mem, 1, sizeof(*tx));
    struct tt_ucx_meeting *m = tt_new(mem, 1, sizeof(*m));
    if (!tx || !m || take_slot(conn)) {
        tt_free(mem, tx, 1, sizeof(*tx));
        tt_free(mem, m, 1, sizeof(*m));
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a connection");
    }
    tx->conn = conn;
    tx->net = net;
    for (int i = 0; i < TT_UCX_OUTS; i++)
        tx->out[i].tx = tx;
    m->until_ns = until_ns;
    net->n_meetings++;
    conn->tx = tx;
    conn->meeting = m;
    conn->seq_in = 1; /* HELLO is not handed up */
    return TUTTI_OK;
}

static void end_meeting(tt_ucx_conn *conn)
{
    if (!conn->meeting)
        return;
    tt_link_dial_end(conn->meeting->dial);
    tt_free(conn->base.net->mem, conn->meeting, 1, sizeof(*conn->meeting));
    conn->meeting = NULL;
    net_of(conn)->n_meetings--;
}

static void close_link(tt_ucx_conn *conn)
{
    if (!conn->is_linked)
        return;
    conn->is_linked = false;
    epoll_ctl(conn->base.net->fd, EPOLL_CTL_DEL, conn->link.fd, NULL);
    /* The end, even where a forked child holds the socket. */
    shutdown(conn->link.fd, SHUT_RDWR);
    tt_link_stream_close(&conn->link);
}

void tt_ucx_part(tt_ucx_conn *conn)
{
    end_meeting(conn);
    close_link(conn);
    if (conn->tx)
        net_of(conn)->conns[conn->mine.slot] = NULL;
}

static void miss(tt_ucx_conn *conn, tutti_err err, const char *text)
{
    TT_INFO("%s", text);
    end_meeting(conn);
    close_link(conn);
    conn->base.net->up->missed(&conn->base, err, text);
}

/* ----------------------------------------------------------- over a link -- */

/* While something is to be said its room is waited for. */
static void watch(const tt_ucx_conn *conn, int op, bool is_full)
{
    struct epoll_event event = {.events = EPOLLIN | (is_full ? EPOLLOUT : 0),
                                .data.ptr = (void *)(uintptr_t)conn};
    epoll_ctl(conn->base.net->fd, op, conn->link.fd, &event);
}

void tt_ucx_say_rest(tt_ucx_conn *conn)
{
    const tt_ucx_net *net = net_of(conn);
    struct iovec all[3] = {
        {&conn->mine, sizeof(conn->mine)},
        {(void *)(uintptr_t)net->address, net->address_len},
        {conn->words, conn->n_words * sizeof(conn->words[0])}};
    size_t skip = conn->n_said, left = 0;
    for (int i = 0; i < 3; i++) {
        size_t n = skip < all[i].iov_len ? skip : all[i].iov_len;
        all[i].iov_base = (char *)all[i].iov_base + n;
        all[i].iov_len -= n;
        skip -= n;
        left += all[i].iov_len;
    }
    if (!conn->is_linked || (left == 0 && tt_link_unsent(&conn->link) == 0))
        return;
    ssize_t n = tt_link_send(&conn->link, all, left > 0 ? 3 : 0);
    bool is_broken = n < 0 && errno != EAGAIN; /* reading tells why */
    if (n > 0) {
        conn->n_said += (size_t)n;
        left -= (size_t)n;
    }
    left += tt_link_unsent(&conn->link);
    watch(conn, EPOLL_CTL_MOD, left > 0 && !is_broken);
}

void tt_ucx_say(tt_ucx_conn *conn, tt_ucx_word_kind kind)
{
    for (uint32_t i = 0; i < conn->n_words; i++)
        if (conn->words[i].kind == kind)
            return;
    conn->words[conn->n_words++] = (tt_ucx_word){
        kind, kind == TT_UCX_NO ? (uint32_t)conn->why : conn->seq_out};
    tt_ucx_say_rest(conn);
}

static bool is_sound(const tt_ucx_conn *conn, const tt_ucx_card *card)
{
    return card->magic == TT_UCX_CARD_MAGIC && card->rank == conn->base.rank &&
           card->n_bytes > 0 && card->n_bytes <= TT_UCX_ADDRESS_MAX;
}

/* The bytes of the card, or of its address, have come. */
static void hear_card(tt_ucx_conn *conn)
{
    struct tt_ucx_meeting *m = conn->meeting;
    if (conn->n_heard == sizeof(m->card)) {
        conn->is_bad = !is_sound(conn, &m->card);
    } else if (conn->n_heard == sizeof(m->card) + m->card.n_bytes) {
        conn->has_card = tt_fnv1a(TT_FNV1A_START, m->address,
                                  m->card.n_bytes) == m->card.sum;
        conn->is_bad = !conn->has_card;
        conn->key = m->card.key;
        conn->their_slot = m->card.slot;
        conn->n_heard = 0;
    }
}

static void hear_word(tt_ucx_conn *conn)
{
    const tt_ucx_word *word = &conn->word;
    conn->n_heard = 0;
    switch ((tt_ucx_word_kind)word->kind) {
    case TT_UCX_READY:
        conn->is_ready = true;
        return;
    case TT_UCX_BYE:
        conn->seq_bye = word->seq; /* what is before it may be on its way */
        conn->hears_bye = true;
        return;
    case TT_UCX_GONE:
        conn->is_gone = conn->is_ending;
        conn->is_bad = !conn->is_ending;
        return;
    case TT_UCX_NO:
        if ((int32_t)word->seq < 0 && (int32_t)word->seq > UCS_ERR_LAST)
            tt_ucx_fail(conn, (ucs_status_t)(int32_t)word->seq);
        return;
    }
    conn->is_bad = true;
}

/* Where the next bytes go. */
static struct iovec place(tt_ucx_conn *conn)
{
    struct tt_ucx_meeting *m = conn->meeting;
    size_t n = conn->n_heard;
    if (conn->has_card)
        return (struct iovec){(char *)&conn->word + n, sizeof(conn->word) - n};
    if (n < sizeof(m->card))
        return (struct iovec){(char *)&m->card + n, sizeof(m->card) - n};
    n -= sizeof(m->card);
    return (struct iovec){m->address + n, m->card.n_bytes - n};
}

void tt_ucx_hear(tt_ucx_conn *conn)
{
    tt_ucx_mark(conn);
    while (conn->is_linked && !conn->is_dead && !conn->is_bad) {
        struct iovec to = place(conn);
        ssize_t n = tt_link_recv(&conn->link, &to, 1);
        if (n < 0 && errno == EAGAIN)
            return;
        conn->is_dead = n <= 0;
        if (n <= 0)
            break;
        conn->n_heard += (size_t)n;
        if (!conn->has_card)
            hear_card(conn);
        else if (conn->n_heard == sizeof(conn->word))
            hear_word(conn);
    }
    if (conn->is_linked) /* nobody looks there again */
        epoll_ctl(conn->base.net->fd, EPOLL_CTL_DEL, conn->link.fd, NULL);
}

/* --------------------------------------------------------------- meeting -- */

static const char *why_hopeless(const tt_ucx_conn *conn)
{
    const tt_ucx_net *net = net_of(conn);
    return conn->why != UCS_OK ? net->api->ucs_status_string(conn->why)
           : conn->is_bad      ? "what it told makes no sense"
           : conn->is_dead     ? "it closed the connection"
           : conn->has_heard   ? "it is heard, but does not hear"
                               : "no answer";
}

/* By UCX from now on. */
static void begin_ucx(tt_ucx_conn *conn)
{
    struct tt_ucx_meeting *m = conn->meeting;
    uint64_t now_ns = tt_now_ns();
    if (conn->is_caller && m->until_ns > now_ns)
        m->until_ns = now_ns + (m->until_ns - now_ns) / 3;
    tt_ucx_make_ep(conn, m->address);
    if (conn->ep)
        tt_ucx_say_hello(conn);
}

bool tt_ucx_meet(tt_ucx_conn *conn)
{
    const tt_net *net = conn->base.net;
    if (!conn->meeting)
        return false;
    if (conn->has_card && !conn->ep && !tt_ucx_is_failing(conn))
        begin_ucx(conn);
    bool is_well = conn->ep && conn->has_heard && !tt_ucx_is_failing(conn);
    if (is_well && (conn->is_ready || !conn->is_caller))
        tt_ucx_say(conn, TT_UCX_READY);
    if (is_well && conn->is_ready) {
        end_meeting(conn);
        conn->base.is_up = true;
        net->up->up(&conn->base);
        return true;
    }
    bool is_dialling = conn->meeting->dial; /* its end says more */
    if (!tt_ucx_is_failing(conn) &&
        (is_dialling || tt_now_ns() < conn->meeting->until_ns))
        return false;
    char text[200];
    snprintf(text, sizeof(text), "rank %u does not reach rank %u by UCX: %s",
             net->rank, conn->base.rank, why_hopeless(conn));
    if (conn->why != UCS_OK)
        tt_ucx_say(conn, TT_UCX_NO);
    miss(conn, TUTTI_ENET, text);
    return true;
}

/* ----------------------------------------------------------------- links -- */

tutti_err tt_ucx_dial(tt_conn *base, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag)
{
    tt_ucx_conn *conn = (tt_ucx_conn *)base;
    tt_ucx_net *net = net_of(conn);
    tt_link_card card;
    uint32_t magic;
    tutti_err err = tt_door_read_net(base->rank, addr, len, &card, &magic,
                                     diag);
    if (!err)
        err = begin(conn, deadline_ns, diag);
    if (err)
        return err;
    struct tt_ucx_meeting *m = conn->meeting;
    const said mine = {.rank = net->base.rank};
    err = tt_door_call_to(&net->door, base, &card, true, &m->call, diag);
    m->call.opts.purpose = TT_LINK_UCX;
    m->call.opts.deadline_ns = deadline_ns;
    memcpy(m->call.opts.said, &mine, sizeof(mine));
    if (!err)
        err = tt_link_dial_begin(net->door.box, &m->call.opts, &m->dial, diag);
    if (err)
        end_meeting(conn);
    return err;
}

/* The link of the pair is there; of several the first one stays, on both
 * sides. */
static void take_link(tt_ucx_conn *conn, tt_link_event *link)
{
    if (conn->is_linked || !conn->meeting) {
        tt_link_stream_close(&link->stream);
        return;
    }
    tt_link_dial_end(conn->meeting->dial); /* it is over, or comes too late */
    conn->meeting->dial = NULL;
    tt_door_tune(conn->base.net, link->stream.fd);
    conn->link = link->stream;
    conn->is_linked = true;
    conn->is_caller = link->kind == TT_LINK_DIALLED;
    watch(conn, EPOLL_CTL_ADD, false);
    tt_ucx_say_rest(conn);
    tt_ucx_hear(conn);
}

static void take_arrival(tt_ucx_net *net, tt_link_event *link)
{
    said theirs;
    tutti_diag diag;
    memcpy(&theirs, link->who.said, sizeof(theirs));
    tt_ucx_conn *conn = theirs.rank < net->base.n_ranks
                            ? (tt_ucx_conn *)net->base.up->called(
                                  &net->base, theirs.rank, &link->who.id)
                            : NULL;
    tutti_err err = TUTTI_OK;
    if (conn && !conn->tx)
        err = begin(conn, tt_now_ns() + CALLED_NS, &diag);
    if (conn && !err) {
        take_link(conn, link);
        return;
    }
    tt_link_stream_close(&link->stream);
    if (err)
        miss(conn, err, diag.text);
}

static void take_dialled(tt_ucx_conn *conn, tt_link_event *link)
{
    struct tt_ucx_meeting *m = conn->meeting;
    if (link->kind == TT_LINK_DIALLED) {
        take_link(conn, link);
    } else if (link->kind == TT_LINK_MET) { /* it arrives */
        tt_link_dial_end(m->dial);
        m->dial = NULL;
    } else {
        char text[TT_DOOR_TEXT];
        tutti_err err = tt_door_blame(&m->call, m->dial, &conn->base, text);
        miss(conn, err, text);
    }
}

void tt_ucx_take_links(tt_ucx_net *net)
{
    tt_link_event link;
    while (tt_link_box_take(net->door.box, &link)) {
        if (link.kind == TT_LINK_ARRIVED)
            take_arrival(net, &link);
        else
            take_dialled(link.arg, &link);
    }
}

#else
typedef int tt_ucx_meet_is_empty;
#endif
