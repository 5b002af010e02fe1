/* SPDX-License-Identifier: BSD-3-Clause
 * guests.c - the only accept loop, and those who come.
 *
 * Guests     Who has connected is a guest: silent, until its word has come
 *            whole and proved right; then replied, until its last word. There
 *            are SILENT places for the first kind and REPLIED for the second,
 *            and when all are taken the oldest goes, after a last look at what
 *            it may have said meanwhile. Ours speak at once. A guest has
 *            GUEST_NS for its word, however it is dealt out in bytes.
 * Handshakes Who has no secret of ours, or says what somebody else has said, is
 *            sent away before TLS begins (tt_seal_look), so a flood costs
 *            little. A handshake takes a round trip, in which a flood would
 *            take all places. So who has begun well (tt_seal_is_begun) has one
 *            of SHAKING others, and GUEST_NS again. When they are taken one
 *            goes by chance: those who have come by words said to another
 *            process, or with certificates, may be a flood too.
 * Turns      With certificates nothing is known of a guest before a handshake,
 *            which costs much. So one address may begin AT_ONCE of them, and
 *            then one each TURN_NS; those by which somebody comes in do not
 *            count. Guests beyond that wait in their places.
 * Crowds     Where one address has more than a quarter of the places, whoever
 *            has to go is one of the largest such crowd: who floods from one
 *            place crowds out none but those who share it.
 * Floods     Each turn takes at most BATCH guests, so dials and other
 *            listeners are served in between. A guest costs one allocation of
 *            fixed size, of the process's own memory: a stranger is nobody's.
 *            Where there is none it is closed, and comes again if it is ours.
 *            After a turn in which strangers came, and nobody waits to be
 *            accepted, the thread rests (host.c), so the next ones come
 *            together, and cost it one wake-up. Then most have spoken, too, and
 *            are judged when they are accepted: epoll never hears of them.
 * No room    Without descriptors the oldest silent guest goes; where there is
 *            none the one that waits in the listener's queue is turned away by
 *            means of the spare one, or the listener would be ready for ever.
 * Next       dial.c (the other side). */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "link/inside.h"

/* Alerts of TLS. */
#define UNEXPECTED 10
#define UNKNOWN_SECRET 115
#define BATCH 64
#define SILENT 64
#define SHAKING 256
#define REPLIED 1024
/* Links that nobody has taken yet; more are told to come again. */
#define ARRIVED 1024
#define GUEST_NS (5 * TT_NS_PER_S)
#define AT_ONCE 256
#define TURN_NS (10 * TT_NS_PER_MS)
/* For the last word: it is one of us, and may be slow. */
#define TAKEN_NS (20 * TT_NS_PER_S)
/* Where nobody can be taken in a listener is not looked at for so long. */
#define DEAF_NS (20 * TT_NS_PER_MS)

static void list_add(tt_guest_list *list, tt_link_guest *g)
{
    g->next = NULL;
    g->before = list->last;
    if (list->last)
        list->last->next = g;
    else
        list->first = g;
    list->last = g;
    list->n++;
    list->n_of[g->crowd]++;
}

static void list_remove(tt_guest_list *list, tt_link_guest *g)
{
    if (g->before)
        g->before->next = g->next;
    else
        list->first = g->next;
    if (g->next)
        g->next->before = g->before;
    else
        list->last = g->before;
    list->n--;
    list->n_of[g->crowd]--;
}

static void move_to(tt_link_guest *g, tt_guest_state state)
{
    list_remove(&g->listener->guests[g->state], g);
    g->state = state;
    list_add(&g->listener->guests[state], g);
}

/* events: as tt_link_watch()'s. */
static void watch(tt_link_guest *g, uint32_t events)
{
    if (events != 0 || g->is_watched)
        tt_link_watch(g->listener->box->host, g->s.fd, &g->node, events,
                      !g->is_watched);
    g->is_watched = events != 0;
}

/* Off the lists, and its descriptor out of epoll; the descriptor is still
 * open. */
static void unhinge(tt_link_guest *g)
{
    tt_link_listener *l = g->listener;
    list_remove(&l->guests[g->state], g);
    tt_link_unput(l->box, &g->item);
    watch(g, 0);
    g->node.is_dead = true;
}

static void into_grave(tt_link_guest *g)
{
    tt_link_host *host = g->listener->box->host;
    g->next = host->grave;
    host->grave = g;
}

/* A dial that has waited for its last word goes on. */
static void drop_guest(tt_link_guest *g)
{
    tt_link_dial *d = g->state == TT_GUEST_REPLIED ? tt_link_dial_find(g)
                                                   : NULL;
    unhinge(g);
    tt_link_stream_close(&g->s);
    into_grave(g);
    if (d)
        tt_link_dial_resume(d);
}

void tt_link_bury(tt_link_host *host)
{
    while (host->grave) {
        tt_link_guest *g = host->grave;
        host->grave = g->next;
        tt_free(&tt_mem_std, g, 1, sizeof(*g));
    }
}

static void note_stranger(tt_link_listener *l)
{
    l->n_strangers++;
    l->box->host->has_strangers = true;
}

/* Would one of this job not say so? Ours cross, come back, and are told to come
 * again. */
static bool is_of_strangers(tt_link_why why)
{
    return why == TT_LINK_OTHER_VERSION || why == TT_LINK_OTHER_JOB ||
           why == TT_LINK_OTHER_TOKEN;
}

static const char *from_of(tt_link_guest *g)
{
    return g->from[0] ? g->from : tt_sock_peer_text(g->s.fd, g->from);
}

static void note_refusal(tt_link_guest *g, tt_link_why why, uint32_t version)
{
    tt_link_listener *l = g->listener;
    l->n_refused++;
    l->box->host->has_strangers |= is_of_strangers(why);
    l->refusal = (tt_link_refusal){.why = why, .version = version};
    memcpy(l->refusal.from, from_of(g), sizeof(g->from));
    TT_DEBUG("link: sent %s away: %s", g->from, tt_link_why_text(why));
}

/* The last word has been said. What is unread would make close() reset the
 * connection, and that may destroy it. */
static void hang_up(tt_link_guest *g)
{
    char unread[TT_SEAL_LOOK];
    for (int i = 0; i < 4; i++)
        if (recv(g->s.fd, unread, sizeof(unread), 0) < (ssize_t)sizeof(unread))
            break;
    drop_guest(g);
}

/* A guest begins a handshake in vain: a fatal alert of TLS tells it why, and it
 * does not come again. One packet has it, and the end. */
static void say_alert(const tt_link_guest *g, uint8_t why)
{
    const uint8_t alert[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, why};
    (void)!send(g->s.fd, alert, sizeof(alert), MSG_NOSIGNAL | MSG_MORE);
}

/* The last word, and the end of the stream: one packet has both where nothing
 * lies over the socket. (It is not left to close(), which would drop the word
 * where the guest has said more than was read.) */
static void say_no(tt_link_guest *g, const tt_greet_word *no)
{
    if (g->s.layer)
        tt_link_say(&g->s, no);
    else
        (void)!send(g->s.fd, no, sizeof(*no), MSG_NOSIGNAL | MSG_MORE);
    tt_link_end(&g->s);
}

/* Who does not prove to be one of us. It is told, in plain text, where it has
 * said a word of ours; what TLS says was told. One warning is enough for all of
 * them. */
static void refuse_unproven(tt_link_guest *g, tt_link_why why)
{
    tt_link_listener *l = g->listener;
    const char *what = why == TT_LINK_UNPROVEN
                           ? "it speaks plain text, and has no secret"
                           : tt_link_why_text(why);
    const char *more = g->is_shaking ? tt_seal_reason(&g->s) : "";
    note_stranger(l);
    TT_DEBUG("link: sent %s away: %s", from_of(g), tt_link_why_text(why));
    if (!l->has_warned)
        TT_WARN("link: sent %s away: %s%s%s (of others like it only TUTTI_LOG="
                "debug tells)",
                from_of(g), what, more[0] ? ": " : "", more);
    l->has_warned = true;
    if (g->is_plain) {
        tt_greet_word no = tt_greet_answer(&g->hello, why, &l->terms.self, 0);
        tt_link_say(&g->s, &no);
    }
    hang_up(g);
}

static void refuse(tt_link_guest *g, tt_link_why why, uint32_t version)
{
    tt_link_listener *l = g->listener;
    if (why == TT_LINK_STRANGE) {
        note_stranger(l);
        if (!l->trust && *(const uint8_t *)&g->hello == TT_SEAL_FIRST) {
            say_alert(g, UNEXPECTED); /* nobody here has a secret */
            hang_up(g);
            return;
        }
    } else {
        tt_greet_word no = tt_greet_answer(&g->hello, why, &l->terms.self,
                                           version);
        note_refusal(g, why, version);
        say_no(g, &no);
    }
    drop_guest(g);
}

/* What follows the greeting: another's stream is sealed by its ends. */
static bool is_bare_for(const tt_link_guest *g)
{
    return g->listener->is_bare || g->hello.purpose == TT_LINK_PASS;
}

static void arrive(tt_link_guest *g)
{
    tt_seal_note(&g->s, &g->hello.from);
    if (!tt_seal_settle(&g->s, is_bare_for(g))) {
        drop_guest(g);
        return;
    }
    if (g->hello.purpose == TT_LINK_PASS) {
        tt_link_pass_begin(g);
        return;
    }
    tt_link_dial *d = tt_link_dial_find(g);
    watch(g, 0);
    move_to(g, TT_GUEST_ARRIVED);
    tt_link_put(g->listener->box, &g->item);
    if (d)
        tt_link_dial_met(d);
}

/* Its word is right. */
static void admit(tt_link_guest *g)
{
    tt_link_listener *l = g->listener;
    if (g->hello.flags & TT_GREET_ONE_WAY) {
        arrive(g);
        return;
    }
    if (l->guests[TT_GUEST_REPLIED].n == REPLIED)
        drop_guest(l->guests[TT_GUEST_REPLIED].first);
    tt_link_dial *d = tt_link_dial_find(g);
    if (d && !tt_link_dial_gives_way(d)) {
        refuse(g, TT_LINK_CROSSED, g->version);
        return;
    }
    if (tt_random(&g->nonce, sizeof(g->nonce), NULL)) {
        drop_guest(g);
        return;
    }
    tt_greet_word yes = tt_greet_answer(&g->hello, TT_LINK_WELL, &l->terms.self,
                                        g->version);
    memcpy(yes.said, &g->nonce, sizeof(g->nonce));
    g->until_ns = tt_now_ns() + TAKEN_NS;
    g->got = 0;
    move_to(g, TT_GUEST_REPLIED);
    if (!tt_link_say(&g->s, &yes))
        drop_guest(g);
}

/* Somebody between has sent our own word back to us: the secret is right. */
static bool is_own_word(const tt_link_guest *g)
{
    const tt_link_id *self = &g->listener->terms.self;
    return !tt_link_id_is_none(self) &&
           tt_link_id_compare(&g->hello.from, self) == 0;
}

static void judge(tt_link_guest *g)
{
    tt_link_listener *l = g->listener;
    uint32_t version = 0;
    tt_link_why why = tt_greet_judge(&g->hello, &l->terms, &version);
    bool is_bare = g->hello.flags & TT_GREET_BARE;
    if (g->is_plain) {
        refuse_unproven(g, TT_LINK_UNPROVEN);
        return;
    }
    if (why == TT_LINK_WELL && g->s.layer && is_bare != is_bare_for(g))
        why = TT_LINK_OTHER_SEAL;
    if (why == TT_LINK_WELL && g->s.layer && is_own_word(g))
        why = TT_LINK_OTHER_PROCESS;
    if (why == TT_LINK_WELL && l->guests[TT_GUEST_ARRIVED].n >= ARRIVED)
        why = TT_LINK_FULL;
    if (why == TT_LINK_WELL && g->hello.purpose == TT_LINK_PASS)
        why = tt_link_pass_judge(g);
    g->version = version;
    if (why == TT_LINK_WELL)
        admit(g);
    else
        refuse(g, why, version);
}

/* What a stranger says is not waited for to its end. */
static bool is_strange(const tt_link_guest *g)
{
    return g->got >= sizeof(g->hello.magic) && g->hello.magic != TT_GREET_MAGIC;
}

/* It may still say more. What has come stays where it is, so only more of it is
 * an event; and so is this. */
static void await_more(tt_link_guest *g)
{
    struct pollfd end = {.fd = g->s.fd, .events = POLLRDHUP};
    if (!g->is_awaited)
        watch(g, EPOLLIN | EPOLLRDHUP | EPOLLET);
    else if (poll(&end, 1, 0) > 0)
        drop_guest(g);
    g->is_awaited = true;
}

/* When its address may begin one more handshake; 0: now. */
static uint64_t turn_of(const tt_link_guest *g, uint64_t now)
{
    const uint64_t ahead = (AT_ONCE - 1) * TURN_NS,
                   paid = g->listener->paid_ns[g->crowd];
    return paid > now + ahead ? paid - ahead : 0;
}

/* False: not now. */
static bool take_turn(tt_link_guest *g)
{
    uint64_t now = tt_now_ns(), *paid = &g->listener->paid_ns[g->crowd];
    g->is_held = turn_of(g, now) > 0;
    if (g->is_held)
        return false;
    *paid = (*paid > now ? *paid : now) + TURN_NS;
    return true;
}

/* It was one of us. */
static void give_turn_back(const tt_link_guest *g)
{
    if (tt_trust_secrets(g->listener->trust) == 0)
        g->listener->paid_ns[g->crowd] -= TURN_NS;
}

static void begin_handshake(tt_link_guest *g)
{
    tt_trust *t = g->listener->trust;
    if (tt_trust_secrets(t) == 0 && !take_turn(g)) {
        g->listener->box->host->has_strangers = true;
        await_more(g);
        return;
    }
    g->is_shaking = tt_seal_begin(&g->s, t, false, 0);
    if (g->is_shaking)
        tt_sock_peer_text(g->s.fd, g->from);
    else
        drop_guest(g); /* no memory */
}

static void begin_proof(tt_link_guest *g)
{
    uint8_t first[TT_SEAL_LOOK];
    tt_link_why why;
    tt_trust *t = g->listener->trust;
    ssize_t n = recv(g->s.fd, first, sizeof(first), MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop_guest(g);
        return;
    }
    g->is_plain = first[0] != TT_SEAL_FIRST;
    g->wants_seal = !g->is_plain;
    if (g->is_plain)
        return;
    switch (tt_seal_look(t, first, (size_t)n, &why)) {
    case TT_SEAL_DONE:
        begin_handshake(g);
        return;
    case TT_SEAL_WAITS:
        await_more(g);
        return;
    case TT_SEAL_FAILED:
        if (why == TT_LINK_STRANGE) {
            refuse(g, why, 0);
            return;
        }
        say_alert(g, UNKNOWN_SECRET);
        refuse_unproven(g, why);
    }
}

static tt_link_guest *by_chance(const tt_guest_list *list)
{
    uint32_t n = 0;
    tt_link_guest *g = list->first;
    if (tt_random(&n, sizeof(n), NULL))
        return g;
    for (n %= list->n; n > 0; n--)
        g = g->next;
    return g;
}

/* Who is to go: g, or the next one from there on of a crowd that is too
 * large. */
static tt_link_guest *of_crowd(const tt_guest_list *list, tt_link_guest *g)
{
    tt_link_guest *goes = g;
    uint32_t most = list->n / 4;
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->n_of[g->crowd] > most) {
            goes = g;
            most = list->n_of[g->crowd];
        }
        g = g->next ? g->next : list->first;
    }
    return goes;
}

/* It has begun well. */
static void begin_shaking(tt_link_guest *g)
{
    tt_guest_list *list = &g->listener->guests[TT_GUEST_SHAKING];
    if (list->n == SHAKING) {
        tt_link_guest *other = of_crowd(list, by_chance(list));
        tt_link_guest_event(other);
        if (list->n == SHAKING)
            drop_guest(other);
    }
    g->until_ns = tt_now_ns() + GUEST_NS;
    move_to(g, TT_GUEST_SHAKING);
}

/* True: it is done, or there is none to be had. Else it goes on later, or the
 * guest is gone. */
static bool prove(tt_link_guest *g)
{
    tt_link_why why;
    if (!g->is_shaking)
        begin_proof(g);
    if (g->is_plain)
        return true;
    if (!g->is_shaking || g->node.is_dead)
        return false;
    switch (tt_seal_shake(&g->s, &why)) {
    case TT_SEAL_DONE:
        give_turn_back(g);
        g->wants_seal = g->is_shaking = false;
        watch(g, EPOLLIN);
        return true;
    case TT_SEAL_WAITS:
        watch(g, tt_link_shake_events(&g->s));
        if (g->state == TT_GUEST_SILENT && tt_seal_is_begun(&g->s))
            begin_shaking(g);
        return false;
    case TT_SEAL_FAILED:
        if (why == TT_LINK_STRANGE)
            refuse(g, why, 0);
        else
            refuse_unproven(g, why);
    }
    return false;
}

void tt_link_guest_event(tt_link_guest *g)
{
    if (g->state == TT_GUEST_ARRIVED)
        return; /* what comes now is for its owner */
    bool is_new = g->state != TT_GUEST_REPLIED;
    if (is_new && g->wants_seal && !prove(g))
        return;
    tt_greet_word *word = is_new ? &g->hello : &g->taken;
    int heard = tt_link_hear(&g->s, word, &g->got);
    if (heard == 0 && !(is_new && is_strange(g)))
        return;
    if (heard > 0 && is_new)
        judge(g);
    else if (heard > 0 && tt_greet_is_taken(&g->taken, &g->hello, g->nonce))
        arrive(g);
    else if (heard == 0)
        refuse(g, TT_LINK_STRANGE, 0);
    else
        drop_guest(g);
}

static uint64_t check_list(tt_guest_list *list, uint64_t now)
{
    while (list->first && now >= list->first->until_ns)
        drop_guest(list->first);
    return list->first ? list->first->until_ns : UINT64_MAX;
}

/* Those whose turn it is begin; returns when it is the next one's. */
static uint64_t check_turns(tt_link_listener *l, uint64_t now)
{
    uint64_t first = UINT64_MAX;
    tt_link_guest *next;
    for (tt_link_guest *g = l->guests[TT_GUEST_SILENT].first; g; g = next) {
        next = g->next;
        if (!g->is_held)
            continue;
        uint64_t at = turn_of(g, now);
        if (at == 0)
            tt_link_guest_event(g);
        else if (at < first)
            first = at;
    }
    return first;
}

uint64_t tt_link_guests_check(tt_link_listener *l, uint64_t now)
{
    uint64_t next = check_turns(l, now);
    for (int i = TT_GUEST_SILENT; i < TT_GUEST_ARRIVED; i++) {
        uint64_t at = check_list(&l->guests[i], now);
        next = at < next ? at : next;
    }
    for (uint32_t i = 0; i < l->n_ears; i++) {
        tt_link_socket *ear = &l->ears[i];
        if (ear->deaf_until_ns != 0 && now >= ear->deaf_until_ns) {
            ear->deaf_until_ns = 0;
            tt_link_watch(l->box->host, ear->fd, &ear->node, EPOLLIN, false);
        }
        if (ear->deaf_until_ns != 0 && ear->deaf_until_ns < next)
            next = ear->deaf_until_ns;
    }
    return next;
}

tt_link_guest *tt_link_guest_find(const tt_link_dial *d, tt_guest_state state)
{
    for (tt_link_listener *l = d->box->listeners; l; l = l->next) {
        tt_link_guest *g = l->guests[state].first;
        for (; g; g = g->next)
            if (tt_link_is_pair(d, g))
                return g;
    }
    return NULL;
}

void tt_link_guest_take(tt_link_guest *g, tt_link_event *out)
{
    tt_link_listener *l = g->listener;
    *out = (tt_link_event){.kind = TT_LINK_ARRIVED,
                           .stream = g->s,
                           .arg = l->arg,
                           .listener = l,
                           .is_unix = l->ears[g->ear].is_unix,
                           .who = {.purpose = (tt_link_purpose)g->hello.purpose,
                                   .version = g->version,
                                   .strand = g->hello.strand,
                                   .id = g->hello.from}};
    memcpy(out->who.said, g->hello.said, sizeof(out->who.said));
    unhinge(g);
    into_grave(g);
}

/* --------------------------------------------------------------- accept -- */

/* Who has been silent for longest goes; a look at what it has said first. */
static void make_room(tt_link_listener *l)
{
    tt_guest_list *silent = &l->guests[TT_GUEST_SILENT];
    if (silent->n < SILENT)
        return;
    l->box->host->has_strangers = true;
    tt_link_guest *oldest = of_crowd(silent, silent->first);
    tt_link_guest_event(oldest);
    if (silent->n == SILENT)
        drop_guest(oldest);
}

static uint8_t crowd_of(const tt_link_listener *l, const tt_addr *from)
{
    uint64_t hash = TT_FNV1A_START;
    const struct in6_addr *ip = &from->u.v6.sin6_addr;
    if (from->u.sa.sa_family == AF_INET)
        hash = tt_fnv1a(hash, &from->u.v4.sin_addr, 4);
    else if (from->u.sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(ip))
        hash = tt_fnv1a(hash, &ip->s6_addr[12], 4);
    else if (from->u.sa.sa_family == AF_INET6)
        hash = tt_fnv1a(hash, ip, 8);
    return (uint8_t)(tt_fnv1a_u64(hash, l->salt) >> 32);
}

static void add_guest(tt_link_socket *ear, int fd, const tt_addr *from)
{
    tt_link_listener *l = ear->listener;
    if (ear->is_unix && !tt_link_is_own_user(fd)) {
        note_stranger(l);
        close(fd);
        return;
    }
    make_room(l);
    tt_link_guest *g = tt_new(&tt_mem_std, 1, sizeof(*g));
    if (!g) {
        close(fd);
        return;
    }
    tt_fork_watch(fd);
    *g = (tt_link_guest){.node.kind = TT_LINK_NODE_GUEST,
                         .item.is_guest = true,
                         .listener = l,
                         .ear = (uint32_t)(ear - l->ears),
                         .s.fd = fd,
                         .wants_seal = l->trust && !ear->is_unix,
                         .crowd = crowd_of(l, from),
                         .until_ns = tt_now_ns() + GUEST_NS};
    list_add(&l->guests[TT_GUEST_SILENT], g);
    tt_link_guest_event(g); /* it often has spoken by now, and is gone */
    if (!g->is_watched && !g->node.is_dead && g->state != TT_GUEST_ARRIVED)
        watch(g, EPOLLIN);
}

/* A guest in this state makes room; false: there was none. */
static bool sacrifice(tt_link_host *host, tt_guest_state state)
{
    for (tt_link_box *box = host->boxes; box; box = box->next)
        for (tt_link_listener *l = box->listeners; l; l = l->next)
            if (l->guests[state].n > 0) {
                drop_guest(of_crowd(&l->guests[state], l->guests[state].first));
                return true;
            }
    return false;
}

/* Whoever waits longest is turned away; false: that was not possible. */
static bool turn_away(tt_link_host *host, int listener)
{
    tt_addr from;
    tt_fork_close(&host->spare_fd);
    int fd = tt_link_accept(listener, &from);
    if (fd >= 0)
        close(fd);
    host->spare_fd = eventfd(0, EFD_CLOEXEC);
    tt_fork_watch(host->spare_fd);
    return fd >= 0;
}

static void be_deaf(tt_link_socket *ear)
{
    struct epoll_event none = {.data.ptr = &ear->node};
    ear->deaf_until_ns = tt_now_ns() + DEAF_NS;
    epoll_ctl(ear->listener->box->host->epoll_fd, EPOLL_CTL_MOD, ear->fd,
              &none);
}

/* Nobody could be taken in. True: there may be more. */
static bool is_more(tt_link_socket *ear, int err)
{
    tt_link_host *host = ear->listener->box->host;
    if (err == -EAGAIN)
        return false;
    if (!host->has_told)
        TT_WARN("link: cannot accept connections: %s; connections that have "
                "not said who they are make room (raise ulimit -n?)",
                tt_errno_text(-err));
    host->has_told = true;
    bool is_short = err == -EMFILE || err == -ENFILE;
    if (is_short &&
        (sacrifice(host, TT_GUEST_SILENT) ||
         sacrifice(host, TT_GUEST_SHAKING) || turn_away(host, ear->fd)))
        return true;
    be_deaf(ear);
    return false;
}

static bool is_full(const tt_link_listener *l)
{
    return l->most_waiting > 0 &&
           l->guests[TT_GUEST_ARRIVED].n >= l->most_waiting;
}

bool tt_link_ear_event(tt_link_socket *ear)
{
    tt_addr from;
    for (int n = 0; n < BATCH; n++) {
        if (is_full(ear->listener)) {
            be_deaf(ear);
            return false;
        }
        int fd = tt_link_accept(ear->fd, &from);
        if (fd >= 0)
            add_guest(ear, fd, &from);
        else if (!is_more(ear, fd))
            return false;
    }
    return true;
}

void tt_link_guests_settle(tt_link_listener *l)
{
    /* Not longer than it takes for those who wait now: more may come all the
     * time. */
    for (uint32_t i = 0; i < l->n_ears; i++)
        for (int n = 0; n <= TT_LINK_BACKLOG / BATCH; n++)
            if (!tt_link_ear_event(&l->ears[i]))
                break;
    tt_link_guest *next;
    for (int i = TT_GUEST_SHAKING; i >= TT_GUEST_SILENT; i--)
        for (tt_link_guest *g = l->guests[i].first; g; g = next) {
            next = g->next;
            tt_link_guest_event(g);
        }
}

/* ----------------------------------------------------------------- end -- */

static tt_link_guest *any_guest(tt_link_listener *l)
{
    for (int i = 0; i < TT_GUEST_STATES; i++)
        if (l->guests[i].first)
            return l->guests[i].first;
    return NULL;
}

void tt_link_guests_expel(tt_link_listener *l)
{
    for (tt_link_guest *g = any_guest(l); g; g = any_guest(l))
        drop_guest(g);
}
