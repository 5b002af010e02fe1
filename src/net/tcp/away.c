/* SPDX-License-Identifier: BSD-3-Clause
 * away.c - how a strand gets another socket when its own is lost.
 *
 * Idea       The stream outlives its sockets (link.h, resume). A strand whose
 *            socket drops is cut, and both sides dial each other again, by the
 *            one way in; link.h sees to it that one of two dials stays. Where
 *            one side cannot dial, it waits for the other's.
 * Which      A strand is known by its first dial: who dialled, and the number
 *            of that call. A link that names no strand here is told so, and
 *            then the other side gives the connection up; but one whose first
 *            dial never came here may come late (meet.c), unless it, or a later
 *            one, was given up here.
 * Verdict    Where the address that the socket had led to refuses, or somebody
 *            else answers there, the other side is dead: it is lost at once, as
 *            if nothing was ever tried again. Whatever else happens may be an
 *            outage, and is waited out for TUTTI_RECONNECT.
 * Return     Tries that nobody answers are a second apart. Where an interface
 *            of this host comes up meanwhile, or has another address, all
 *            strands that are away are dialled at once.
 * Log        A warning says who is away, but not before that has lasted a
 *            while: most that drop are dead, and their loss says it all.
 * Next       link/resume.c, meet.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "net/tcp/tcp.h"

/* Between two dials of a strand, whose own tries follow each other faster. */
#define AGAIN_NS (100 * TT_NS_PER_MS)
/* A try that is not answered. */
#define TRY_NS (100 * TT_NS_PER_MS)
#define MOST_TRY_NS TT_NS_PER_S
/* New sockets by which the other side says nothing. */
#define MEET_NS (5 * TT_NS_PER_S)
#define TELL_NS (100 * TT_NS_PER_MS)
#define NEW_NS (2 * TT_NS_PER_S)
/* Between two looks at interfaces. */
#define LOOK_NS (100 * TT_NS_PER_MS)
#define MOST_IFACES 128
/* Why it is away: the engine has heard nothing, and has named it. */
#define SILENT EAGAIN

struct tt_tcp_again {
    tt_link_id who;   /* the other side */
    uint64_t call;    /* of the first dial */
    bool is_own;      /* which this side made */
    tt_addr far;      /* where the socket leads, or led */
    uint64_t away_ns; /* since then it is away */
    uint32_t n_dials, n_theirs;
    tt_link_dial *dial;  /* NULL: none is under way */
    tt_door_call *to;    /* NULL: not needed, or not known */
    bool is_detour;      /* it does not keep to the rail */
    uint64_t next_ns;    /* no dial before that */
    uint64_t meeting_ns; /* since then there is a new socket */
};

static tt_tcp_net *net_of(const tt_tcp_conn *conn)
{
    return (tt_tcp_net *)conn->base.net;
}

static void note_far(tt_tcp_strand *s)
{
    tt_addr *far = &s->again->far;
    far->len = sizeof(far->u);
    if (getpeername(s->link.fd, &far->u.sa, &far->len) != 0)
        *far = (tt_addr){0};
    tt_tcp_plain(far);
}

bool tt_tcp_keep(tt_tcp_strand *s, const tt_link_event *link, uint64_t call)
{
    const tt_net *net = s->conn->base.net;
    s->again = tt_new(net->mem, 1, sizeof(*s->again));
    if (!s->again ||
        !tt_resume_begin(&s->link, net->mem, net->settings->reconnect_bytes))
        return false;
    if (net->reach)
        tt_resume_distrust(&s->link);
    s->again->who = link->who.id;
    s->again->call = call;
    s->again->is_own = link->kind == TT_LINK_DIALLED;
    note_far(s);
    s->lasts = true;
    return true;
}

static void stop_dialling(tt_tcp_strand *s)
{
    tt_link_dial_end(s->again->dial);
    tt_free(s->conn->base.net->mem, s->again->to, 1, sizeof(*s->again->to));
    s->again->dial = NULL;
    s->again->to = NULL;
}

static void set_away(tt_tcp_strand *s, bool is_away)
{
    if (s->is_away == is_away)
        return;
    const uint32_t one = is_away ? 1 : UINT32_MAX;
    s->is_away = is_away;
    s->conn->n_away += one;
    net_of(s->conn)->n_away += one;
}

void tt_tcp_forget(tt_tcp_strand *s)
{
    if (!s->again)
        return;
    stop_dialling(s);
    set_away(s, false);
    tt_free(s->conn->base.net->mem, s->again, 1, sizeof(*s->again));
    s->again = NULL;
}

/* ------------------------------------------------------------- dialling -- */

/* The way that leads where the socket led is the first one, and decides. */
static void choose_way(const tt_tcp_strand *s, tt_door_call *to)
{
    for (uint32_t i = 0; i < to->opts.n_ways && !to->opts.is_known; i++) {
        to->opts.is_known = tt_addr_same_ip(&s->again->far, &to->ways[i].to);
        to->opts.first = to->opts.is_known ? i : 0;
    }
}

/* False: it is not known where the other side is, or that is another one. */
static bool find_ways(tt_tcp_strand *s)
{
    tt_tcp_conn *conn = s->conn;
    tt_tcp_net *net = net_of(conn);
    size_t len;
    tt_link_card card;
    uint32_t wish;
    const void *addr = net->base.up->address
                           ? net->base.up->address(&conn->base, &len)
                           : NULL;
    if (!addr ||
        tt_door_read_net(conn->base.rank, addr, len, &card, &wish, NULL) ||
        tt_link_id_compare(&card.id, &s->again->who) != 0)
        return false;
    tt_door_call *to = tt_new(net->base.mem, 1, sizeof(*to));
    bool is_detour = tt_tcp_may_detour(conn, s->again->away_ns);
    if (!to ||
        tt_door_call_to(&net->door, &conn->base, &card, !is_detour, to, NULL)) {
        tt_free(net->base.mem, to, 1, sizeof(*to));
        return false;
    }
    s->again->to = to;
    s->again->is_detour = is_detour;
    to->opts.purpose = TT_LINK_TCP;
    to->opts.is_again = true;
    to->opts.strand = (uint32_t)(s - conn->strands);
    to->opts.deadline_ns = s->again->away_ns + net->base.settings->reconnect_ns;
    to->opts.try_ns = TRY_NS;
    to->opts.most_try_ns = MOST_TRY_NS;
    to->opts.give_up_ns = 0;
    choose_way(s, to);
    if (to->opts.is_known)
        to->opts.stops_at = 1u << TT_LINK_OTHER_PURPOSE |
                            1u << TT_LINK_OTHER_JOB |
                            1u << TT_LINK_OTHER_PROCESS |
                            1u << TT_LINK_OTHER_TOKEN;
    return true;
}

/* Nothing follows where it cannot: the other side may. */
static void dial(tt_tcp_strand *s)
{
    struct tt_tcp_again *a = s->again;
    const tt_tcp_conn *conn = s->conn;
    uint64_t now = tt_now_ns();
    if (a->dial && !a->is_detour && tt_tcp_may_detour(conn, a->away_ns))
        stop_dialling(s);
    if (a->dial || now < a->next_ns)
        return;
    a->next_ns = now + AGAIN_NS;
    if (!a->to && !find_ways(s))
        return;
    const tt_tcp_said say = {.rank = conn->base.net->rank,
                             .n_strands = conn->n_strands,
                             .call = a->call,
                             .is_again = 1,
                             .is_own = a->is_own,
                             .n_dials = ++a->n_dials};
    memcpy(a->to->opts.said, &say, sizeof(say));
    tt_link_dial_begin(net_of(conn)->door.box, &a->to->opts, &a->dial, NULL);
}

/* The next dial is at once, and by the addresses of then, here and there. */
static void dial_anew(tt_tcp_strand *s)
{
    stop_dialling(s);
    s->again->next_ns = 0;
}

/* ----------------------------------------------------------------- away -- */

static bool is_outage(int why)
{
    static const int outages[] = {
        0,        SILENT,       ECONNRESET,  EPIPE,     ETIMEDOUT,
        ENETDOWN, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ECONNABORTED};
    for (size_t i = 0; i < sizeof(outages) / sizeof(outages[0]); i++)
        if (why == outages[i])
            return true;
    return false;
}

static void tell_engine(const tt_tcp_conn *conn, bool is_away)
{
    const tt_net *net = conn->base.net;
    if (net->up->away && !net_of(conn)->is_ending)
        net->up->away(conn->base.peer, is_away);
}

/* False: it is over, and progress() says so. */
static bool cut(tt_tcp_strand *s, int why)
{
    tt_tcp_conn *conn = s->conn;
    tt_tcp_unwatch(s);
    tt_tcp_note_more(conn); /* what was read of it in vain */
    tt_tcp_keep_pace(s);
    s->is_shut = false;
    bool is_well = tt_resume_cut(&s->link);
    if (!is_well)
        conn->broken = ENOMEM;
    if (s->is_away)
        return is_well;
    set_away(s, true);
    s->again->away_ns = tt_now_ns();
    if (conn->n_away > 1)
        return is_well;
    conn->away_ns = s->again->away_ns;
    conn->away_why = why;
    conn->has_told = false;
    tell_engine(conn, true);
    return is_well;
}

bool tt_tcp_suspend(tt_tcp_strand *s, int why)
{
    if (!s->again || s->rx.is_ended || s->conn->broken || !is_outage(why) ||
        tt_resume_is(&s->link) == TT_RESUME_OVER)
        return false;
    if (s->link.fd >= 0 && !cut(s, why))
        return false;
    dial(s);
    return true;
}

/* Who asks for another socket may not have heard of this one yet. */
static bool is_new(const tt_tcp_strand *s)
{
    return s->link.fd >= 0 &&
           (s->is_away || tt_now_ns() < s->again->meeting_ns + NEW_NS);
}

static bool are_same(const tt_addr *a, const tt_addr *b)
{
    return a->len == b->len &&
           (a->len == 0 ||
            (tt_addr_same_ip(a, b) && a->u.v4.sin_port == b->u.v4.sin_port));
}

static bool lead_alike(const tt_door_call *a, const tt_door_call *b)
{
    bool are = a->opts.n_ways == b->opts.n_ways;
    for (uint32_t i = 0; i < a->opts.n_ways && are; i++) {
        const tt_link_way *x = &a->ways[i], *y = &b->ways[i];
        are = are_same(&x->to, &y->to) && are_same(&x->from, &y->from) &&
              x->is_bound == y->is_bound && strcmp(x->dev, y->dev) == 0;
    }
    return are;
}

/* A dial goes on, but by the addresses of now where they are others. */
static void look_again(tt_tcp_strand *s)
{
    const tt_mem *mem = s->conn->base.net->mem;
    struct tt_tcp_again *a = s->again;
    tt_door_call *was = a->to;
    const bool was_detour = a->is_detour;
    if (!a->dial) {
        dial_anew(s);
        return;
    }
    a->to = NULL;
    if (find_ways(s) && !lead_alike(a->to, was)) {
        tt_free(mem, was, 1, sizeof(*was));
        dial_anew(s);
        return;
    }
    tt_free(mem, a->to, 1, sizeof(*was));
    a->to = was;
    a->is_detour = was_detour;
}

/* The other side may be well, and what is between may not know of the socket
 * any more, or wait long before it tries again. Strands that nobody misses keep
 * theirs: each notices its own loss. */
uint64_t tt_tcp_renew(tt_conn *base, uint64_t parts)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    uint64_t away = 0;
    for (uint32_t i = 0; i < conn->n_strands && base->is_up; i++) {
        tt_tcp_strand *s = &conn->strands[i];
        bool is_missed = s->is_away || (parts >> i & 1);
        if (!s->again || !is_missed || is_new(s))
            continue;
        if (s->is_away)
            look_again(s);
        tt_tcp_suspend(s, SILENT);
    }
    for (uint32_t i = 0; i < conn->n_strands && base->is_up; i++)
        away |= (uint64_t)conn->strands[i].is_away << i;
    return away;
}

static const char *why_text(const tt_tcp_conn *conn)
{
    return conn->away_why == 0        ? "the connection was closed"
           : conn->away_why == SILENT ? "it does not answer any more"
                                      : tt_link_error_text(conn->away_why);
}

static void lose(tt_tcp_conn *conn, const char *what)
{
    char text[TT_DOOR_TEXT];
    snprintf(text, sizeof(text), "rank %u at %s: %s", conn->base.rank,
             conn->where, what);
    tt_tcp_lose(conn, TUTTI_EPEER, text);
}

/* As long as it might. tries: of its dial; "": there was none. */
static void give_up(tt_tcp_strand *s, const char *tries)
{
    tt_tcp_conn *conn = s->conn;
    char what[300];
    snprintf(what, sizeof(what), "%s, and it has not come back for %.3g s%s%s",
             why_text(conn), (double)(tt_now_ns() - s->again->away_ns) / 1e9,
             tries[0] ? ": tried " : "", tries);
    lose(conn, what);
}

/* ----------------------------------------------------------------- back -- */

static void come_back(tt_tcp_strand *s)
{
    tt_tcp_conn *conn = s->conn;
    dial_anew(s);
    set_away(s, false);
    if (conn->n_away == 0) {
        double gone_s = (double)(tt_now_ns() - conn->away_ns) / 1e9;
        char who[TT_CONN_TEXT];
        tt_conn_text(&conn->base, who);
        if (conn->has_told)
            TT_WARN("%s is back after %.3g s", who, gone_s);
        else
            TT_INFO("%s was away for %.3g s", who, gone_s);
        tell_engine(conn, false);
    }
    if (net_of(conn)->is_ending)
        return;
    tt_tcp_note_more(conn); /* a layer may have read on behind the word */
    tt_tcp_push(s);
}

/* It is away, and has a new socket. */
static void meet(tt_tcp_strand *s)
{
    int why = tt_resume_step(&s->link);
    if (why == EAGAIN)
        return;
    if (why == 0)
        come_back(s);
    else if (!tt_tcp_suspend(s, why))
        lose(s->conn, tt_link_error_text(why));
}

void tt_tcp_meet_again(tt_tcp_conn *conn)
{
    for (uint32_t i = 0; i < conn->n_strands && !conn->is_lost; i++)
        if (conn->strands[i].is_away && conn->strands[i].link.fd >= 0)
            meet(&conn->strands[i]);
}

/* By this socket, which is the strand's now. */
static void join(tt_tcp_strand *s, tt_link_stream *fresh, bool is_ours)
{
    stop_dialling(s);
    tt_door_tune(s->conn->base.net, fresh->fd);
    tt_tcp_cap_socket(s, fresh->fd);
    tt_resume_join(&s->link, fresh);
    note_far(s);
    tt_tcp_note_way(s, is_ours);
    s->again->meeting_ns = tt_now_ns();
    if (!tt_tcp_watch(s))
        tt_tcp_suspend(s, ECONNABORTED);
    else
        meet(s);
}

void tt_tcp_take_redial(tt_tcp_conn *conn, const tt_link_event *link)
{
    tt_link_stream fresh = link->stream;
    tt_tcp_strand *s = &conn->strands[0];
    while (!s->again || s->again->dial != link->dial)
        s++;
    if (link->kind == TT_LINK_DIALLED) {
        join(s, &fresh, true);
        return;
    }
    bool is_time_over = tt_now_ns() >= s->again->to->opts.deadline_ns;
    char tries[160];
    tt_link_tries(link->dial, tries, sizeof(tries));
    stop_dialling(s);
    if (link->kind == TT_LINK_MET)
        return; /* it arrives */
    while (conn->has_more && !conn->is_lost)
        tt_tcp_serve(conn); /* its last words */
    if (conn->is_lost)
        return;
    if (is_time_over)
        give_up(s, tries);
    else
        tt_tcp_lose_closed(conn, conn->away_why == SILENT ? 0 : conn->away_why);
}

static tt_tcp_strand *find(const tt_tcp_net *net, const tt_tcp_said *said,
                           const tt_link_who *who)
{
    for (uint32_t i = 0; i < net->n_live; i++) {
        tt_tcp_conn *conn = net->live[i];
        if (conn->base.rank != said->rank || who->strand >= conn->n_strands)
            continue;
        tt_tcp_strand *s = &conn->strands[who->strand];
        const struct tt_tcp_again *a = s->again;
        if (a && a->call == said->call && a->is_own != said->is_own &&
            tt_link_id_compare(&a->who, &who->id) == 0)
            return s;
    }
    return NULL;
}

/* An outage in the middle of a greeting may leave each side with the dial of
 * its own: that of the smaller id stays, as anywhere (link.h). Then *out is the
 * strand that goes by it now; NULL: the other side is to come to that. False:
 * it is not so. */
static bool is_crossed(tt_tcp_net *net, const tt_tcp_said *said,
                       const tt_link_who *who, tt_tcp_strand **out)
{
    tt_tcp_conn *conn = NULL;
    for (uint32_t i = 0; i < net->n_live && !conn; i++)
        if (net->live[i]->base.rank == said->rank)
            conn = net->live[i];
    if (!conn || who->strand >= conn->n_strands)
        return false;
    tt_tcp_strand *s = &conn->strands[who->strand];
    if (!s->again || tt_link_id_compare(&s->again->who, &who->id) != 0 ||
        s->again->is_own != said->is_own ||
        (said->is_own ? tt_tcp_has_ended(net, said, who)
                      : said->call != conn->call))
        return false;
    bool is_ours = tt_link_id_compare(&net->base.id, &who->id) < 0;
    *out = NULL;
    if (said->is_own == is_ours)
        return true;
    stop_dialling(s); /* it names the other one */
    s->again->call = said->call;
    s->again->is_own = is_ours;
    *out = s;
    return true;
}

/* The other side has cut it, whatever it looks like from here. */
void tt_tcp_take_again(tt_tcp_net *net, const tt_link_event *link)
{
    tt_tcp_said said;
    tt_link_stream fresh = link->stream;
    memcpy(&said, link->who.said, sizeof(said));
    tt_tcp_strand *s = find(net, &said, &link->who);
    if (!s && !is_crossed(net, &said, &link->who, &s) &&
        !tt_tcp_take_late(net, link) &&
        !tt_tcp_is_meeting(net, &said, &link->who)) {
        tt_resume_refuse(&fresh);
        tt_tcp_go_past(net, said.rank, link->who.strand);
        return;
    }
    if (!s) {
        tt_link_stream_close(&fresh); /* too early: it tries again */
        return;
    }
    if (s->rx.is_ended || tt_resume_is(&s->link) == TT_RESUME_OVER) {
        tt_resume_refuse(&fresh);
        tt_tcp_go_past(net, said.rank, link->who.strand);
        return;
    }
    bool is_old = said.n_dials <= s->again->n_theirs;
    bool is_by_rail = tt_tcp_is_by_rail(s->conn, fresh.fd);
    if (is_old || (is_by_rail && tt_tcp_bind_rail(s->conn, fresh.fd) != 0) ||
        (s->link.fd >= 0 && !cut(s, 0))) {
        tt_link_stream_close(&fresh);
        return;
    }
    s->again->n_theirs = said.n_dials;
    join(s, &fresh, false);
}

/* ----------------------------------------------------------------- time -- */

static void tell(tt_tcp_conn *conn)
{
    char who[TT_CONN_TEXT];
    conn->has_told = true;
    TT_WARN("%s is away: %s; trying again for %.3g s",
            tt_conn_text(&conn->base, who), why_text(conn),
            (double)conn->base.net->settings->reconnect_ns / 1e9);
}

/* The interfaces that run, or their addresses, are others than at the last
 * look: what was dialled before waits for a host that had no cable. */
static bool has_moved(tt_tcp_net *net, uint64_t now)
{
    tt_iface all[MOST_IFACES];
    const uint64_t before = net->ifaces;
    if (net->n_away == 0)
        net->ifaces = 0;
    if (net->n_away == 0 || now < net->listed_ns + LOOK_NS)
        return false;
    net->listed_ns = now;
    net->ifaces = TT_FNV1A_START;
    for (size_t i = tt_ifaces_list("", all, MOST_IFACES); i-- > 0;) {
        net->ifaces = tt_fnv1a(net->ifaces, all[i].name, sizeof(all[i].name));
        net->ifaces = tt_fnv1a(net->ifaces, &all[i].addr.u, all[i].addr.len);
    }
    return before != 0 && before != net->ifaces;
}

static void look_after(tt_tcp_conn *conn, uint64_t now, bool moved)
{
    uint64_t limit = conn->base.net->settings->reconnect_ns;
    if (!conn->has_told && conn->away_why != SILENT &&
        now > conn->away_ns + TELL_NS)
        tell(conn);
    for (uint32_t i = 0; i < conn->n_strands && !conn->is_lost; i++) {
        tt_tcp_strand *s = &conn->strands[i];
        if (!s->is_away)
            continue;
        if (moved && s->link.fd < 0)
            dial_anew(s);
        if (s->link.fd < 0)
            dial(s);
        else if (now > s->again->meeting_ns + MEET_NS)
            tt_tcp_suspend(s, ETIMEDOUT);
        else
            meet(s);
        /* A dial's own end says more. */
        if (s->is_away && now > s->again->away_ns + limit + TT_NS_PER_S / 2)
            give_up(s, "");
    }
}

/* Now and then: what keeps to an interface that is down, or left it. */
static void look_at_rails(tt_tcp_net *net, uint64_t now)
{
    const char *dev = NULL;
    bool is_up = true;
    if (!net->base.hints || now < net->looked_ns + LOOK_NS)
        return;
    net->looked_ns = now;
    for (uint32_t i = net->n_live; i-- > 0;) {
        tt_tcp_conn *conn = net->live[i];
        const tt_link_hint *rail = tt_tcp_rail(conn);
        if (!rail)
            continue;
        if (!dev || strcmp(dev, rail->dev) != 0)
            is_up = tt_tcp_is_running(rail->dev);
        dev = rail->dev;
        for (uint32_t k = 0; k < conn->n_strands && !conn->is_lost; k++) {
            tt_tcp_strand *s = &conn->strands[k];
            if (s->again && tt_tcp_must_turn(s, is_up, now) && !s->is_away)
                tt_tcp_suspend(s, ENETDOWN);
        }
    }
}

void tt_tcp_look_after(tt_tcp_net *net)
{
    uint64_t now = tt_now_ns();
    look_at_rails(net, now);
    const bool moved = has_moved(net, now);
    for (uint32_t i = net->n_away > 0 ? net->n_live : 0; i-- > 0;)
        if (net->live[i]->n_away > 0)
            look_after(net->live[i], now, moved);
}
