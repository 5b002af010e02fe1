/* SPDX-License-Identifier: BSD-3-Clause
 * dial.c - from a list of ways to a finished link.
 *
 * Idea       One way after the other: connect, say HELLO, hear REPLY, say
 *            TAKEN. After the last way the next round begins, with more
 *            patience for each way, and for an answer that was late. An answer
 *            that comes too late is no harm: that try has been closed, and
 *            without TAKEN the listener forgets it.
 * Refusals   A way that is refused at once, or answered by somebody else
 *            (private networks have equal addresses everywhere), costs no time.
 *            A dial all of whose ways refuse for give_up_ns fails, between two
 *            tries; silence is waited for until the deadline.
 * Passed on  A way may lead to somebody who passes the stream on (pass.c): that
 *            one is greeted first, and then, by the same socket, whoever is
 *            meant. What the first one says decides nothing of the other.
 * Both dial  greet.h has the rule; here: HELD and YIELDING. Where the one from
 *            the smaller id has failed on all its ways once, it lets the other
 *            one through: what is between may let connections pass one way
 *            only.
 * Next       listen.c (the other side). */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/random.h"
#include "link/inside.h"

#define TRY_NS (100 * TT_NS_PER_MS)
#define MOST_DOUBLINGS 5
/* Of ANSWER_NS. */
#define MOST_LATE 3
#define ANSWER_NS (1500 * TT_NS_PER_MS)
#define PAUSE_NS (50 * TT_NS_PER_MS)
/* The queue of a unix listener is full: it is there, and will be served. */
#define AGAIN_NS (2 * TT_NS_PER_MS)
/* The other side's own dial is under way, or it has no room. */
#define CROSSED_NS (10 * TT_NS_PER_MS)

static void go_on(tt_link_dial *d, uint64_t until_ns)
{
    d->state = TT_DIAL_PAUSED;
    d->until_ns = until_ns;
}

static void close_try(tt_link_dial *d)
{
    if (d->s.fd >= 0 && d->state != TT_DIAL_OVER)
        tt_link_watch(d->box->host, d->s.fd, &d->node, 0, false);
    tt_link_stream_close(&d->s);
}

/* Its outcome is known. The descriptor, if any, is the owner's now. */
static void finish(tt_link_dial *d, tt_link_event_kind kind)
{
    if (kind != TT_LINK_DIALLED)
        close_try(d);
    else
        tt_link_watch(d->box->host, d->s.fd, &d->node, 0, false);
    d->state = TT_DIAL_OVER;
    d->kind = kind;
    if (d->passed)
        tt_link_pass_dialled(d->passed, kind, &d->s);
    else
        tt_link_put(d->box, &d->item);
}

/* After a round; the tries of many shall not come at once. */
static uint64_t rest_ns(tt_link_dial *d)
{
    return PAUSE_NS / 2 + tt_rng_below(&d->rng, PAUSE_NS);
}

static bool is_told(tt_link_why why)
{
    return why > TT_LINK_WELL && why <= TT_LINK_NO_WAY;
}

/* It is what was to be known, and ends the dial. */
static bool is_verdict(const tt_link_dial *d, tt_link_why why, int err)
{
    if (d->is_asking || (d->o.is_known && d->at != d->o.first))
        return false; /* of whom it means nothing is known */
    return (is_told(why) && (d->o.stops_at & 1u << why)) ||
           (d->o.is_known && why == TT_LINK_REFUSED && err == ECONNREFUSED);
}

/* This try is over; the next one is for the next way. A listener may know only
 * another one of the secrets, so each of them is offered first. */
static void end_try(tt_link_dial *d, tt_link_why why, int err)
{
    uint64_t now = tt_now_ns();
    bool was_silent = why == TT_LINK_SILENT || why == TT_LINK_UNGREETED;
    close_try(d);
    d->n_late = why == TT_LINK_UNGREETED ? d->n_late + 1 : 0;
    if (err == EPIPE) /* hung up on before we had spoken, not after */
        err = ECONNRESET;
    d->outcomes[d->at] = (tt_link_outcome){why, err, d->version};
    if (why == TT_LINK_CROSSED || (why == TT_LINK_FULL && !d->is_asking)) {
        d->n_refused = 0;
        go_on(d, now + CROSSED_NS); /* the same way again */
        return;
    }
    if (why == TT_LINK_OTHER_SECRET &&
        ++d->n_secrets < tt_trust_secrets(d->o.trust)) {
        go_on(d, now); /* the same way, and the next secret */
        return;
    }
    d->n_secrets = 0;
    if (is_verdict(d, why, err)) {
        finish(d, TT_LINK_FAILED);
        return;
    }
    if (was_silent && !d->ways[d->at].is_guess)
        d->n_refused = 0;
    else if (d->n_refused++ == 0)
        d->refused_since_ns = now;
    d->at = (d->at + 1) % d->o.n_ways;
    d->n_tried = (d->n_tried + 1) % d->o.n_ways;
    d->round += d->n_tried == 0;
    if (d->o.n_rounds > 0 && d->round == d->o.n_rounds)
        finish(d, TT_LINK_FAILED);
    else
        go_on(d, d->n_tried == 0 ? now + rest_ns(d) : now);
}

/* ------------------------------------------------------------- one try -- */

/* From the address of the interface that was chosen. The port is found when
 * both ends are known, so that ports do not run short. */
static int bind_from(int fd, const tt_link_way *way)
{
    int on = 1;
    if (way->is_bound && way->dev[0] &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, way->dev,
                   (socklen_t)strlen(way->dev)) != 0 &&
        errno != EPERM)
        return errno;
    if (way->from.len == 0)
        return 0;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    return bind(fd, &way->from.u.sa, way->from.len) == 0 ? 0 : errno;
}

/* It is connected: the other side has so long for its answer, twice that where
 * it came too late before. Each try costs a slow one a handshake. Who passes on
 * has no reason to be slower than others. */
static void await_answer(tt_link_dial *d)
{
    uint32_t doublings = d->n_late < MOST_LATE ? d->n_late : MOST_LATE;
    bool is_quick = d->is_asking && d->o.answer_ns > ANSWER_NS;
    d->until_ns += (is_quick ? ANSWER_NS : d->o.answer_ns) << doublings;
}

static int open_socket(tt_link_dial *d, const tt_link_way *way)
{
    int family = way->to.u.sa.sa_family;
    bool is_unix = family == AF_UNIX;
    int type = is_unix && d->o.is_packets ? SOCK_SEQPACKET : SOCK_STREAM;
    tt_link_stream_open(&d->s,
                        socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (d->s.fd < 0)
        return errno;
    tt_fork_watch(d->s.fd);
    if (is_unix)
        return 0;
    tt_link_congestion(d->s.fd, d->o.congestion);
    tt_sock_hurry(d->s.fd);
    return bind_from(d->s.fd, way);
}

static void talk(tt_link_dial *d);

/* Who passes it on has come to know whom it means. Where it cannot, it hangs
 * up. */
static void go_past(tt_link_dial *d)
{
    tt_seal_note(&d->s, &d->reply.from);
    if (!tt_seal_settle(&d->s, true)) {
        end_try(d, TT_LINK_STRANGE, 0);
        return;
    }
    d->is_asking = false;
    talk(d);
}

/* The last word is said. */
static void settle(tt_link_dial *d)
{
    if (d->is_asking) {
        go_past(d);
        return;
    }
    tt_seal_note(&d->s, &d->reply.from);
    if (tt_seal_settle(&d->s, d->hello.flags & TT_GREET_BARE))
        finish(d, TT_LINK_DIALLED);
    else
        end_try(d, TT_LINK_STRANGE, 0);
}

/* Says who this is. */
static void say_hello(tt_link_dial *d)
{
    if (!tt_link_say(&d->s, d->is_asking ? &d->ask : &d->hello)) {
        end_try(d, TT_LINK_REFUSED, errno);
        return;
    }
    if (d->o.is_one_way && !d->is_asking) {
        settle(d);
        return;
    }
    d->state = TT_DIAL_GREETED;
    await_answer(d); /* when it gets round to it */
    d->got = 0;
    tt_link_watch(d->box->host, d->s.fd, &d->node, EPOLLIN, false);
}

/* Each side proves to be one of us. */
static void shake(tt_link_dial *d)
{
    tt_link_why why;
    int err;
    char where[TT_SOCK_TEXT];
    switch (tt_seal_shake(&d->s, &why)) {
    case TT_SEAL_DONE:
        say_hello(d);
        return;
    case TT_SEAL_WAITS:
        tt_link_watch(d->box->host, d->s.fd, &d->node,
                      tt_link_shake_events(&d->s), false);
        return;
    case TT_SEAL_FAILED:
        err = why == TT_LINK_STRANGE ? errno : 0;
        TT_DEBUG("link: %s: %s: %s", tt_addr_text(&d->ways[d->at].to, where),
                 tt_link_why_text(why), tt_seal_reason(&d->s));
        end_try(d, why, err);
    }
}

/* The connection to whoever is spoken to stands. */
static void talk(tt_link_dial *d)
{
    bool is_unix = d->ways[d->at].to.u.sa.sa_family == AF_UNIX;
    if (d->passed && !d->is_asking) {
        finish(d, TT_LINK_DIALLED); /* the ends greet each other */
    } else if (is_unix || !d->o.trust) {
        say_hello(d);
    } else if (!tt_seal_begin(&d->s, d->o.trust, true, d->n_secrets)) {
        end_try(d, TT_LINK_REFUSED, ENOMEM);
    } else {
        d->state = TT_DIAL_SHAKING;
        await_answer(d);
        shake(d);
    }
}

/* The connection stands. */
static void begin_talk(tt_link_dial *d)
{
    int why = 0;
    socklen_t len = sizeof(why);
    bool is_unix = d->ways[d->at].to.u.sa.sa_family == AF_UNIX;
    if (getsockopt(d->s.fd, SOL_SOCKET, SO_ERROR, &why, &len) != 0)
        why = errno;
    if (why == 0 && is_unix && !tt_link_is_own_user(d->s.fd)) {
        end_try(d, TT_LINK_OTHER_USER, EPERM); /* somebody has its name */
    } else if (why != 0) {
        end_try(d, TT_LINK_REFUSED, why);
    } else {
        talk(d);
    }
}

static uint64_t any_number(void)
{
    uint64_t number = 0;
    if (tt_random(&number, sizeof(number), NULL) || number == 0)
        number = tt_now_ns();
    return number;
}

/* To be passed on by this way. */
static tt_greet_word ask_by(const tt_link_dial *d, const tt_link_way *way)
{
    tt_greet_pass pass = d->pass;
    if (!d->passed) {
        pass = tt_link_pass_to(&d->meant[d->at]);
        pass.first = d->o.self;
        pass.number = any_number();
    }
    tt_greet_word w = {.magic = TT_GREET_MAGIC,
                       .version_min = TT_GREET_VERSION_MIN,
                       .version_max = TT_GREET_VERSION_MAX,
                       .kind = TT_GREET_HELLO,
                       .purpose = TT_LINK_PASS,
                       .flags = TT_GREET_BARE,
                       .job = d->o.job,
                       .nonce = any_number(),
                       .from = d->o.self,
                       .to = way->via};
    memcpy(w.token, way->via_token, sizeof(w.token));
    memcpy(w.said, &pass, sizeof(w.said));
    return w;
}

static void start_try(tt_link_dial *d)
{
    const tt_link_way *way = &d->ways[d->at];
    d->is_asking = way->is_via;
    if (d->is_asking)
        d->ask = ask_by(d, way);
    uint32_t doublings = d->round < MOST_DOUBLINGS ? d->round : MOST_DOUBLINGS;
    int why = open_socket(d, way);
    if (why == 0) {
        d->state = TT_DIAL_CONNECTING;
        uint64_t try_ns = d->o.try_ns << doublings;
        if (try_ns > d->o.most_try_ns)
            try_ns = d->o.most_try_ns;
        d->until_ns = tt_now_ns() + try_ns;
        d->version = 0;
        if (connect(d->s.fd, &way->to.u.sa, way->to.len) != 0)
            why = errno;
    }
    if (why == EAGAIN) { /* of a unix socket */
        tt_link_stream_close(&d->s);
        go_on(d, tt_now_ns() + AGAIN_NS);
        return;
    }
    if (why == 0 || why == EINPROGRESS || why == EINTR) {
        tt_link_watch(d->box->host, d->s.fd, &d->node, EPOLLOUT, true);
        if (why == 0)
            begin_talk(d);
        return;
    }
    tt_link_stream_close(&d->s);
    end_try(d, TT_LINK_REFUSED, why); /* no route, or no IPv6 here, say */
}

static void say_taken(tt_link_dial *d)
{
    tt_greet_word taken = d->is_asking ? d->ask : d->hello;
    taken.kind = TT_GREET_TAKEN;
    memset(taken.token, 0, sizeof(taken.token));
    memcpy(taken.said, d->reply.said, sizeof(taken.said));
    if (tt_link_say(&d->s, &taken))
        settle(d);
    else
        end_try(d, TT_LINK_STRANGE, errno);
}

/* Somebody between has led us to ourselves. */
static bool is_own_word(const tt_link_dial *d)
{
    return !tt_link_id_is_none(&d->o.self) &&
           tt_link_id_compare(&d->reply.from, &d->o.self) == 0;
}

static void hear_reply(tt_link_dial *d)
{
    int heard = tt_link_hear(&d->s, &d->reply, &d->got);
    bool is_strange = d->got >= sizeof(d->reply.magic) &&
                      d->reply.magic != TT_GREET_MAGIC;
    if (heard == 0 && !is_strange)
        return;
    if (is_strange) {
        end_try(d, TT_LINK_STRANGE, 0);
        return;
    }
    if (heard < 0 && d->s.layer && errno == EACCES) {
        end_try(d, TT_LINK_OTHER_SECRET, 0); /* our certificate */
        return;
    }
    if (heard < 0) {
        end_try(d, TT_LINK_STRANGE, errno ? errno : ECONNREFUSED);
        return;
    }
    const tt_greet_word *said = d->is_asking ? &d->ask : &d->hello;
    tt_link_why why = tt_greet_judge_reply(&d->reply, said, &d->version);
    if (why == TT_LINK_WELL && d->s.layer && is_own_word(d))
        why = TT_LINK_OTHER_PROCESS;
    if (why != TT_LINK_WELL) {
        end_try(d, why, 0);
    } else if (!d->is_asking && tt_link_guest_find(d, TT_GUEST_REPLIED)) {
        d->state = TT_DIAL_YIELDING;
        tt_link_watch(d->box->host, d->s.fd, &d->node, 0, false);
    } else {
        say_taken(d);
    }
}

void tt_link_dial_event(tt_link_dial *d)
{
    if (d->state == TT_DIAL_CONNECTING)
        begin_talk(d);
    else if (d->state == TT_DIAL_SHAKING)
        shake(d);
    else if (d->state == TT_DIAL_GREETED)
        hear_reply(d);
}

/* ----------------------------------------------------------------- time -- */

static bool is_given_up(const tt_link_dial *d, uint64_t now)
{
    return now >= d->o.deadline_ns ||
           (d->o.give_up_ns > 0 && d->state == TT_DIAL_PAUSED &&
            d->n_refused >= d->o.n_ways &&
            now > d->refused_since_ns + d->o.give_up_ns);
}

/* The time is over in the middle of a try. */
static void note_cut(tt_link_dial *d)
{
    tt_link_why why = d->state == TT_DIAL_CONNECTING ? TT_LINK_SILENT
                      : d->state == TT_DIAL_SHAKING ||
                              d->state == TT_DIAL_GREETED
                          ? TT_LINK_UNGREETED
                          : TT_LINK_WELL;
    if (why != TT_LINK_WELL)
        d->outcomes[d->at] = (tt_link_outcome){.why = why};
}

static void begin_or_hold(tt_link_dial *d)
{
    if (tt_link_guest_find(d, TT_GUEST_REPLIED))
        d->state = TT_DIAL_HELD;
    else
        start_try(d);
}

uint64_t tt_link_dial_check(tt_link_dial *d, uint64_t now)
{
    if (d->state == TT_DIAL_OVER)
        return UINT64_MAX;
    if (is_given_up(d, now)) {
        note_cut(d);
        finish(d, TT_LINK_FAILED);
        return UINT64_MAX;
    }
    if (d->state == TT_DIAL_CONNECTING && now >= d->until_ns)
        end_try(d, TT_LINK_SILENT, 0);
    else if ((d->state == TT_DIAL_SHAKING || d->state == TT_DIAL_GREETED) &&
             now >= d->until_ns)
        end_try(d, TT_LINK_UNGREETED, 0);
    /* Where there is no route the next one's turn comes at once. */
    for (uint32_t i = 0;
         i < d->o.n_ways && d->state == TT_DIAL_PAUSED && now >= d->until_ns;
         i++)
        begin_or_hold(d);
    if (d->state == TT_DIAL_OVER)
        return UINT64_MAX;
    bool is_waiting = d->state == TT_DIAL_HELD || d->state == TT_DIAL_YIELDING;
    return is_waiting || d->until_ns > d->o.deadline_ns ? d->o.deadline_ns
                                                        : d->until_ns;
}

/* ------------------------------------------------------------ both dial -- */

bool tt_link_is_pair(const tt_link_dial *d, const tt_link_guest *g)
{
    const tt_link_id *self = &g->listener->terms.self;
    return d->state != TT_DIAL_OVER && !d->passed &&
           d->o.purpose == g->hello.purpose && d->o.strand == g->hello.strand &&
           !tt_link_id_is_none(&d->o.to) &&
           tt_link_id_compare(&d->o.to, &g->hello.from) == 0 &&
           tt_link_id_compare(&d->o.self, self) == 0 &&
           tt_link_id_compare(&d->o.to, self) != 0;
}

tt_link_dial *tt_link_dial_find(const tt_link_guest *g)
{
    tt_link_dial *d = g->listener->box->dials;
    while (d && !tt_link_is_pair(d, g))
        d = d->next;
    return d;
}

bool tt_link_dial_gives_way(tt_link_dial *d)
{
    bool is_smaller = tt_link_id_compare(&d->o.self, &d->o.to) < 0;
    if (d->state == TT_DIAL_HELD || d->state == TT_DIAL_YIELDING)
        return true;
    if (is_smaller && (d->round == 0 || d->state == TT_DIAL_GREETED))
        return false;
    if (d->state == TT_DIAL_GREETED)
        return true; /* it yields when its reply comes */
    close_try(d);
    d->state = TT_DIAL_HELD;
    return true;
}

void tt_link_dial_met(tt_link_dial *d)
{
    finish(d, TT_LINK_MET);
}

void tt_link_dial_resume(tt_link_dial *d)
{
    if (tt_link_guest_find(d, TT_GUEST_REPLIED))
        return;
    if (d->state == TT_DIAL_YIELDING) {
        say_taken(d);
    } else if (d->state == TT_DIAL_HELD) {
        go_on(d, 0);
        tt_link_wake(d->box->host);
    }
}

/* ----------------------------------------------------------------- life -- */

static void free_dial(tt_link_dial *d)
{
    const tt_mem *mem = d->mem;
    uint32_t n = d->room;
    tt_trust_close(d->o.trust);
    tt_free(mem, d->ways, n, sizeof(*d->ways));
    tt_free(mem, d->origins, n, sizeof(*d->origins));
    tt_free(mem, d->meant, n, sizeof(*d->meant));
    tt_free(mem, d->outcomes, n, sizeof(*d->outcomes));
    tt_free(mem, d, 1, sizeof(*d));
}

static void set_defaults(tt_link_dial_opts *o)
{
    o->try_ns = o->try_ns ? o->try_ns : TRY_NS;
    o->answer_ns = o->answer_ns ? o->answer_ns : ANSWER_NS;
    if (o->most_try_ns == 0)
        o->most_try_ns = o->try_ns << MOST_DOUBLINGS;
    if (o->first >= o->n_ways)
        o->first = 0;
}

static tt_greet_word hello_of(const tt_link_dial_opts *o, uint64_t nonce)
{
    bool is_bare = o->is_bare || tt_trust_is_plain(o->trust);
    tt_greet_word w = {.magic = TT_GREET_MAGIC,
                       .version_min = TT_GREET_VERSION_MIN,
                       .version_max = TT_GREET_VERSION_MAX,
                       .kind = TT_GREET_HELLO,
                       .purpose = (uint8_t)o->purpose,
                       .flags = (o->is_one_way ? TT_GREET_ONE_WAY : 0) |
                                (is_bare ? TT_GREET_BARE : 0),
                       .strand = o->strand,
                       .job = o->job,
                       .nonce = nonce,
                       .from = o->self,
                       .to = o->to};
    memcpy(w.token, o->token, sizeof(w.token));
    memcpy(w.said, o->said, sizeof(w.said));
    return w;
}

/* Not in the box's list. NULL: no memory. */
static tt_link_dial *new_dial(const tt_mem *mem, tt_link_box *box,
                              const tt_link_dial_opts *o)
{
    uint64_t nonce = 0;
    tt_link_dial *d = tt_new(mem, 1, sizeof(*d));
    if (!d)
        return NULL;
    d->box = box;
    d->mem = mem;
    d->o = *o;
    d->o.trust = tt_trust_ref(o->trust);
    d->s.fd = -1;
    d->node.kind = TT_LINK_NODE_DIAL;
    d->room = o->n_ways + TT_LINK_PASSES;
    d->ways = tt_new(mem, d->room, sizeof(*d->ways));
    d->origins = tt_new(mem, d->room, sizeof(*d->origins));
    d->meant = tt_new(mem, d->room, sizeof(*d->meant));
    d->outcomes = tt_new(mem, d->room, sizeof(*d->outcomes));
    if (!d->ways || !d->origins || !d->meant || !d->outcomes) {
        free_dial(d);
        return NULL;
    }
    set_defaults(&d->o);
    for (uint32_t i = 0; i < o->n_ways; i++) {
        d->ways[i] = o->ways[i];
        d->origins[i] = i;
        d->meant[i] = o->ways[i].to;
    }
    d->o.ways = d->ways;
    d->at = d->o.first;
    if (tt_random(&nonce, sizeof(nonce), NULL))
        nonce = tt_now_ns();
    d->rng.state = nonce;
    d->hello = hello_of(o, nonce);
    return d;
}

tutti_err tt_link_dial_begin(tt_link_box *box, const tt_link_dial_opts *o,
                             tt_link_dial **out, tutti_diag *diag)
{
    if (o->n_ways == 0)
        return tt_fail(diag, TUTTI_EINVAL, "no address to connect to");
    tt_link_dial *d = new_dial(box->mem, box, o);
    if (!d)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a connection");
    tt_link_lock(box->host);
    tt_link_detour(d);
    d->next = box->dials;
    box->dials = d;
    if (tt_link_guest_find(d, TT_GUEST_ARRIVED))
        finish(d, TT_LINK_MET); /* its link waits to be taken */
    else
        tt_link_wake(box->host);
    tt_link_unlock(box->host);
    *out = d;
    return TUTTI_OK;
}

void tt_link_dial_end(tt_link_dial *d)
{
    if (!d)
        return;
    tt_link_box *box = d->box;
    tt_link_lock(box->host);
    tt_link_dial **at = &box->dials;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    tt_link_unput(box, &d->item);
    close_try(d);
    tt_link_retire(box->host, &d->node);
    tt_link_unlock(box->host);
    free_dial(d);
}

bool tt_link_dial_onwards(tt_link_box *box, const tt_link_dial_opts *o,
                          tt_link_passed *passed, const tt_greet_pass *pass,
                          tt_link_dial **out)
{
    tt_link_dial *d = new_dial(&tt_mem_std, box, o);
    if (!d)
        return false;
    d->passed = passed;
    d->pass = *pass;
    d->next = box->dials;
    box->dials = d;
    tt_link_wake(box->host);
    *out = d;
    return true;
}

void tt_link_dial_bury(tt_link_dial *d)
{
    tt_link_host *host = d->box->host;
    tt_link_dial **at = &d->box->dials;
    while (*at != d)
        at = &(*at)->next; /* its own next stays: somebody may be at it */
    *at = d->next;
    close_try(d);
    d->state = TT_DIAL_OVER;
    d->node.is_dead = true;
    d->next_dead = host->dial_grave;
    host->dial_grave = d;
}

void tt_link_bury_dials(tt_link_host *host)
{
    while (host->dial_grave) {
        tt_link_dial *d = host->dial_grave;
        host->dial_grave = d->next_dead;
        free_dial(d);
    }
}

void tt_link_dial_take(tt_link_dial *d, tt_link_event *out)
{
    *out = (tt_link_event){.kind = d->kind,
                           .stream = d->s,
                           .arg = d->o.arg,
                           .dial = d,
                           .way = d->origins[d->at],
                           .is_unix = d->ways[d->at].to.u.sa.sa_family ==
                                      AF_UNIX,
                           .who = {.purpose = d->o.purpose,
                                   .version = d->version,
                                   .strand = d->o.strand,
                                   .id = d->reply.from}};
    tt_link_stream_open(&d->s, -1);
}

tt_link_outcome tt_link_dial_outcome(const tt_link_dial *d, uint32_t way)
{
    tt_link_lock(d->box->host);
    uint32_t i = 0; /* where it was not tried, or not itself: the next best */
    while (i + 1 < d->o.n_ways && d->origins[i] != way)
        i++;
    tt_link_outcome o = d->outcomes[i];
    tt_link_unlock(d->box->host);
    return o;
}

const char *tt_link_outcome_text(const tt_link_outcome *o)
{
    return o->err ? tt_errno_text(o->err) : tt_link_why_text(o->why);
}

static tt_link_outcome outcome_of(const tt_link_dial *d, uint32_t i)
{
    tt_link_lock(d->box->host);
    tt_link_outcome o = d->outcomes[i];
    tt_link_unlock(d->box->host);
    return o;
}

void tt_link_tries(const tt_link_dial *d, char *out, size_t size)
{
    size_t used = 0;
    uint32_t n_more = 0;
    char text[TT_SOCK_TEXT], last[TT_SOCK_TEXT] = "";
    out[0] = '\0';
    for (uint32_t i = 0; i < d->o.n_ways; i++) {
        tt_addr_text(&d->ways[i].to, text);
        /* The same one from another address of ours. */
        bool is_again = strcmp(text, last) == 0;
        n_more += !is_again && used + 140 > size;
        if (is_again || n_more > 0)
            continue;
        tt_link_outcome o = outcome_of(d, i);
        used += (size_t)snprintf(out + used, size - used, "%s%s%.60s (%.50s)",
                                 used ? ", " : "",
                                 d->ways[i].is_via ? "by way of " : "", text,
                                 tt_link_outcome_text(&o));
        memcpy(last, text, sizeof(last));
    }
    if (n_more > 0)
        snprintf(out + used, size - used, " and %u more", n_more);
}
