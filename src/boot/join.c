/* SPDX-License-Identifier: BSD-3-Clause
 * join.c - a rank other than 0 finds rank 0.
 *
 * Rank 0 may start last, its host's name may come to be known late, and what
 * answers may be the end of the last job: so every failure before WELCOME is
 * tried again, with a growing pause, until the deadline. All addresses of the
 * name are tried in turn. After WELCOME rank 0 answers for everything: it
 * gives up first and says why, so this rank listens a little beyond its own
 * deadline. Next: rendezvous.c. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/rng.h"
#include "boot/meet.h"

/* One address may be silent (a firewall); the next one is then tried. */
#define TRY_NS (3 * TT_NS_PER_S)
/* Rank 0's sentence about the missing ranks may take that long. */
#define GRACE_NS (2 * TT_NS_PER_S)

typedef struct seeking {
    tt_boot *boot;
    tt_link_box *box;
    uint64_t start_ns, deadline_ns;
    bool is_met;     /* rank 0 said WELCOME */
    bool is_silent;  /* connected, but no answer came */
    char tried[200]; /* the last failure, for the timeout's sentence */
    tt_patience patience;
    tt_rng rng; /* spreads the tries of many ranks */
    uint64_t pause_ms;
} seeking;

static void say_seeking(seeking *s)
{
    if (tt_patience_is_over(&s->patience, tt_now_ns()))
        TT_WARN("waiting %.4g s for rank 0 at %s (last try: %s)",
                tt_patience_say(&s->patience),
                s->boot->where[0] ? s->boot->where : "the program's store",
                s->tried);
}

/* By name or number. */
size_t tt_boot_resolve(const tt_boot *boot, tt_addr *out, char *why,
                       size_t size)
{
    if (boot->is_local) {
        out[0] = boot->local;
        return 1;
    }
    if (tt_addr_numeric(boot->host, boot->port, &out[0]))
        return 1;
    char port[8];
    snprintf(port, sizeof(port), "%u", boot->port);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int err = getaddrinfo(boot->host, port, &hints, &list);
    if (err != 0) {
        snprintf(why, size, "%.100s: %s", boot->host, gai_strerror(err));
        return 0;
    }
    size_t n = 0;
    for (struct addrinfo *a = list; a && n < TT_BOOT_WAYS; a = a->ai_next) {
        if (a->ai_addrlen > sizeof(out[n].u))
            continue;
        out[n] = (tt_addr){.len = a->ai_addrlen};
        memcpy(&out[n].u, a->ai_addr, a->ai_addrlen);
        n++;
    }
    freeaddrinfo(list);
    return n;
}

static tutti_err find_addrs(seeking *s, tt_addr *out, size_t *n,
                            tutti_diag *diag)
{
    *n = 0;
    if (!s->boot->store) {
        *n = tt_boot_resolve(s->boot, out, s->tried, sizeof(s->tried));
        return TUTTI_OK;
    }
    const uint64_t until_ns = tt_patience_next(&s->patience);
    tutti_err err = tt_store_find(
        s->boot, until_ns < s->deadline_ns ? until_ns : s->deadline_ns, out, n,
        diag);
    if (err && err != TUTTI_AGAIN)
        return err;
    if (err)
        snprintf(s->tried, sizeof(s->tried),
                 "rank 0 has not put its addresses "
                 "into the store");
    else if (*n == 0)
        snprintf(s->tried, sizeof(s->tried),
                 "it tells loopback addresses only, and is on another host: "
                 "allow it another interface in TUTTI_SOCKET_IFNAME");
    return TUTTI_OK;
}

/* Waits for WELCOME, then READY. AGAIN: what was there has gone, without a
 * word; try again. Who has greeted is rank 0, however long it does something
 * else: who comes once more would be a second process of this rank to it. */
static tutti_err hear_answers(seeking *s, tutti_diag *diag)
{
    tt_boot *boot = s->boot;
    tt_frame frame;
    uint64_t until = s->deadline_ns;
    for (;;) {
        tutti_err err = tt_boot_hear(boot, &frame, 0, until, diag);
        if (err && err != TUTTI_ECONFIG && boot->store && !s->is_met) {
            snprintf(s->tried, sizeof(s->tried), "%.199s",
                     diag->text[0] ? diag->text : "no answer");
            tt_diag_clear(diag);
            return TUTTI_AGAIN;
        }
        if (err == TUTTI_EPEER && !s->is_met) {
            snprintf(s->tried, sizeof(s->tried),
                     "it closed the connection without an answer");
            return TUTTI_AGAIN;
        }
        if (err == TUTTI_ETIMEOUT && !s->is_met)
            s->is_silent = true;
        if (err)
            return err;
        if (frame.kind == TT_FRAME_READY && s->is_met)
            return TUTTI_OK;
        if (frame.kind != TT_FRAME_WELCOME || s->is_met)
            return tt_fail(diag, TUTTI_EPROTO,
                           "rank 0 at %s sent something unexpected (message "
                           "%u) at start-up",
                           boot->where, frame.kind);
        s->is_met = true;
        until = s->deadline_ns + GRACE_NS;
    }
}

static tutti_err begin_dial(const seeking *s, const tt_addr *addrs, size_t n,
                            tt_link_dial **out, tutti_diag *diag)
{
    const tt_boot *boot = s->boot;
    uint64_t now = tt_now_ns();
    uint64_t left_ns = now < s->deadline_ns ? s->deadline_ns - now : 0;
    uint64_t ms = left_ns / TT_NS_PER_MS;
    tt_boot_said said = {.rank = boot->rank,
                         .n_ranks = boot->n_ranks,
                         .wait_ms = ms < UINT32_MAX ? (uint32_t)ms
                                                    : UINT32_MAX};
    tt_link_way ways[TT_BOOT_WAYS];
    memset(ways, 0, sizeof(ways));
    for (size_t i = 0; i < n; i++)
        ways[i].to = addrs[i];
    tt_link_dial_opts o = {
        .purpose = TT_LINK_RENDEZVOUS,
        .job = boot->like.job,
        .trust = boot->trust,
        .ways = ways,
        .n_ways = (uint32_t)n,
        .deadline_ns = s->deadline_ns,
        .try_ns = TRY_NS,
        /* Its launcher may have listened for it, long before it comes. With a
         * store another address may be the right one. */
        .answer_ns = boot->store ? TRY_NS : left_ns + TT_NS_PER_S,
        .n_rounds = 1,
        .stops_at = boot->store ? 0
                                : 1u << TT_LINK_OTHER_VERSION |
                                      1u << TT_LINK_OTHER_JOB};
    memcpy(o.said, &said, sizeof(said));
    return tt_link_dial_begin(s->box, &o, out, diag);
}

/* Why nobody has let it in at this address. AGAIN: it may be otherwise soon. */
static tutti_err judge(seeking *s, const tt_link_outcome *o,
                       const tt_addr *addr, tutti_diag *diag)
{
    const tt_boot *boot = s->boot;
    char where[TT_SOCK_TEXT];
    tt_addr_text(addr, where);
    if (o->why == TT_LINK_OTHER_USER)
        return tt_fail(diag, TUTTI_EBOOT,
                       "%s is held by a process of another user", where);
    if (o->why == TT_LINK_OTHER_VERSION && !boot->store)
        return tt_fail(diag, TUTTI_EBOOT,
                       "rank 0 at %s and rank %u have no version of the "
                       "greeting in common (its last one is %u); all ranks "
                       "need the same Tutti",
                       boot->where, boot->rank, o->version);
    if (o->why == TT_LINK_OTHER_JOB && !boot->store)
        return tt_fail(diag, TUTTI_EBOOT,
                       "rank 0 at %s belongs to another job; give each job its "
                       "own port or its own name",
                       boot->where);
    if (tt_link_is_unproven(o->why) && !boot->store)
        return tt_fail(diag, TUTTI_EBOOT,
                       "rank %u and rank 0 at %s share no secret: %s; give all "
                       "ranks the same TUTTI_SECRET_FILE and TUTTI_ENCRYPT",
                       boot->rank, boot->where, tt_link_outcome_text(o));
    if (o->why == TT_LINK_STRANGE && o->err == 0 && !boot->store)
        return tt_fail(diag, TUTTI_EBOOT,
                       "what answered at %s is not rank 0 of this job; choose "
                       "another port in TUTTI_ADDR or MASTER_PORT",
                       boot->where);
    s->is_silent |= o->why == TT_LINK_UNGREETED;
    if (o->why == TT_LINK_STRANGE)
        snprintf(s->tried, sizeof(s->tried),
                 "it closed the connection without an answer%s",
                 boot->trust ? " (no secret there?)" : "");
    else if (o->why != TT_LINK_WELL)
        snprintf(s->tried, sizeof(s->tried), "%s: %s", where,
                 o->why == TT_LINK_SILENT ? strerror(ETIMEDOUT)
                                          : tt_link_outcome_text(o));
    return TUTTI_AGAIN;
}

/* It has a deadline itself; false: the start is not wanted any more. */
static bool await_dial(seeking *s, tt_link_event *out)
{
    while (!tt_link_box_take(s->box, out)) {
        if (tt_boot_is_unwanted(s->boot))
            return false;
        say_seeking(s);
        tt_link_box_wait(s->box,
                         s->boot->unwanted
                             ? tt_now_ns() + TT_BOOT_LOOK_MS * TT_NS_PER_MS
                             : tt_patience_next(&s->patience));
    }
    return true;
}

/* All addresses, once. AGAIN: not reached. */
static tutti_err try_addrs(seeking *s, const tt_addr *addrs, size_t n,
                           tutti_diag *diag)
{
    tt_boot *boot = s->boot;
    tt_link_dial *dial = NULL;
    tt_link_event link;
    tutti_err err = begin_dial(s, addrs, n, &dial, diag);
    if (err)
        return err;
    bool has_come = await_dial(s, &link);
    s->is_silent = false;
    if (!has_come) {
        err = tt_boot_fail_unwanted(boot, diag);
    } else if (link.kind == TT_LINK_DIALLED) {
        tt_boot_take(boot, 0, &link.stream);
        err = hear_answers(s, diag);
        if (err)
            tt_link_stream_close(&boot->lines[0].link);
    } else {
        err = TUTTI_AGAIN;
        for (uint32_t i = 0; i < n && err == TUTTI_AGAIN; i++) {
            tt_link_outcome o = tt_link_dial_outcome(dial, i);
            err = judge(s, &o, &addrs[i], diag);
        }
    }
    tt_link_dial_end(dial);
    return err;
}

static tutti_err fail_late(const seeking *s, tutti_diag *diag)
{
    const tt_boot *boot = s->boot;
    double waited = (double)(tt_now_ns() - s->start_ns) / TT_NS_PER_S;
    if (s->is_met)
        return tt_boot_blame(diag, TUTTI_ETIMEOUT, 0,
                             "rank %u has met rank 0 at %s, but other ranks "
                             "were still missing after %.3g s",
                             boot->rank, boot->where, waited);
    if (s->is_silent)
        return tt_boot_blame(diag, TUTTI_ETIMEOUT, 0,
                             "rank %u connected to %s, but what is there has "
                             "not answered as rank 0 of this job does within "
                             "%.3g s; is the port another program's?",
                             boot->rank, boot->where, waited);
    return tt_boot_blame(diag, TUTTI_ETIMEOUT, 0,
                         "rank %u did not reach rank 0 at %s within %.3g s "
                         "(last try: %s)",
                         boot->rank, boot->where, waited, s->tried);
}

static void rest(seeking *s)
{
    uint64_t most = 100 + s->boot->n_ranks / 4; /* rank 0 has to serve all */
    s->pause_ms = s->pause_ms * 2 < most ? s->pause_ms * 2 : most;
    uint64_t ms = s->pause_ms / 2 + tt_rng_below(&s->rng, s->pause_ms);
    uint64_t until = tt_now_ns() + ms * TT_NS_PER_MS;
    if (until > s->deadline_ns)
        until = s->deadline_ns;
    poll(NULL, 0, tt_poll_ms(until, 60000));
}

static tutti_err seek(seeking *s, tutti_diag *diag)
{
    do {
        tt_addr addrs[TT_BOOT_WAYS];
        size_t n;
        tutti_err err = find_addrs(s, addrs, &n, diag);
        if (err)
            return err;
        err = n > 0 ? try_addrs(s, addrs, n, diag) : TUTTI_AGAIN;
        if (err == TUTTI_ETIMEOUT && diag->text[0] == '\0')
            return fail_late(s, diag);
        if (err != TUTTI_AGAIN)
            return err;
        if (tt_boot_is_unwanted(s->boot))
            return tt_boot_fail_unwanted(s->boot, diag);
        rest(s);
        say_seeking(s);
    } while (tt_now_ns() < s->deadline_ns);
    return fail_late(s, diag);
}

tutti_err tt_boot_join(tt_boot *boot, uint64_t deadline_ns, tutti_diag *diag)
{
    seeking s = {.boot = boot,
                 .start_ns = tt_now_ns(),
                 .deadline_ns = deadline_ns,
                 .tried = "none",
                 .rng = {.state = boot->rank},
                 .pause_ms = 1};
    s.patience = tt_patience_begin(boot->patience_ns, s.start_ns);
    tutti_err err = tt_link_box_open(&boot->mem, &s.box, diag);
    if (!err)
        err = seek(&s, diag);
    tt_link_box_close(s.box);
    return err;
}
