/* SPDX-License-Identifier: BSD-3-Clause
 * gather.c - rank 0 waits for the other ranks.
 *
 * Who comes has greeted (link/link.h) and has said its rank: strangers, and
 * ranks of other jobs and versions, never get so far. It becomes a member and
 * its connection stands for its rank. One that does not fit, as its rank is
 * here or its job has another number of ranks, is told so and sent away: it may
 * be of another job at the same place. A member that leaves ends the job at
 * once, with the same sentence for everybody.
 *
 * The deadline is the earliest of rank 0's own and those that the members
 * bring along, so rank 0, who alone knows which ranks are missing, is the one
 * that gives up first and can say so to all. Next: join.c. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/patience.h"
#include "boot/meet.h"

/* How long a busy port may take to become free: the last job's end. */
#define BUSY_NS TT_NS_PER_S
/* Somebody who is told why is waited for that long. */
#define TELL_NS TT_NS_PER_S
/* How often to look who was sent away. */
#define LOOK_MS 500
/* More of them are nobody's mistake. */
#define MOST_WARNINGS 10
/* Descriptors that rank 0 has beside those of the other ranks: its input and
 * output, the link thread's, the box, the listener. */
#define OTHER_FILES 8

typedef struct gathering {
    tt_boot *boot;
    uint64_t start_ns, deadline_ns;
    uint32_t n_missing;
    tt_link_box *box;
    tt_link_listener *listener;
    struct pollfd *polls; /* box, members */
    uint64_t n_refused;   /* by the listener, that were told of */
    uint32_t n_warnings;
    char refused[160]; /* the last one sent away, for the timeout's text */
} gathering;

/* ------------------------------------------------------------- listening -- */

static tutti_err fail_listen(const tt_boot *boot, int why, tutti_diag *diag)
{
    if (why == EADDRINUSE && boot->is_local)
        return tt_fail(diag, TUTTI_EBOOT,
                       "rank 0 cannot listen at %s: another rank 0 of a job "
                       "with this name is there; give each job its own "
                       "TUTTI_JOB",
                       boot->where);
    if (why == EADDRINUSE)
        return tt_fail(diag, TUTTI_EBOOT,
                       "rank 0 cannot listen at %s: port %u is in use by "
                       "another program or job (or two processes are rank 0); "
                       "choose a free port in TUTTI_ADDR or MASTER_PORT",
                       boot->where, boot->port);
    return tt_fail_errno(diag, TUTTI_EBOOT, why, "rank 0 cannot listen at %s",
                         boot->where);
}

/* A numeric address is bound as it stands, "localhost" as 127.0.0.1, so that
 * a job of one host is not open to others. A name may mean different addresses
 * on different hosts (127.0.1.1 on its own), so it is only a port here. */
void tt_boot_set_ear(const tt_boot *boot, const tt_settings *set, bool is_any,
                     tt_link_ear *ear, tt_link_listen_opts *o)
{
    const char *host = strcmp(boot->host, "localhost") == 0 ? "127.0.0.1"
                                                            : boot->host;
    if (boot->store) {
        o->interfaces = set->interfaces;
        o->ports = set->ports;
        return;
    }
    o->ears = ear;
    o->n_ears = 1;
    if (boot->is_local)
        ear->at = boot->local;
    else if (is_any || !tt_addr_numeric(host, boot->port, &ear->at))
        tt_addr_numeric("::", boot->port, &ear->at);
}

static tutti_err listen_once(gathering *g, const tt_launch *launch,
                             const tt_settings *set, bool is_any, int *why,
                             tutti_diag *diag)
{
    tt_boot *boot = g->boot;
    tt_link_ear ear = {0};
    tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_RENDEZVOUS),
                             .job = boot->like.job,
                             .trust = boot->trust,
                             .fd = launch->listen_fd};
    tt_boot_set_ear(boot, set, is_any, &ear, &o);
    tutti_err err = tt_link_listen(g->box, &o, &g->listener, why, diag);
    if (*why != EADDRINUSE || !o.ports || !o.ports[0])
        return err;
    return tt_fail(diag, TUTTI_EBOOT,
                   "rank 0 finds no free port in TUTTI_PORT_RANGE %.60s to "
                   "meet the other ranks at; it needs one beside that of each "
                   "rank of its host",
                   o.ports);
}

static tutti_err open_listener(gathering *g, const tt_launch *launch,
                               const tt_settings *set, tutti_diag *diag)
{
    const tt_boot *boot = g->boot;
    bool is_any = false;
    uint64_t patience = tt_now_ns() + BUSY_NS;
    if (patience > g->deadline_ns)
        patience = g->deadline_ns;
    for (;;) {
        int why = 0;
        tutti_err err = listen_once(g, launch, set, is_any, &why, diag);
        if (err == TUTTI_OK || why == 0 || (boot->store && why == EADDRINUSE))
            return err;
        if (why == EADDRNOTAVAIL && !is_any && !boot->is_local) {
            TT_WARN("%s is not an address of this host: rank 0 listens on all "
                    "addresses, port %u",
                    boot->host, boot->port);
            is_any = true;
        } else if (why != EADDRINUSE || tt_now_ns() >= patience) {
            return fail_listen(boot, why, diag);
        } else {
            poll(NULL, 0, 50);
        }
    }
}

/* --------------------------------------------------------------- telling -- */

/* Reads and drops what is unread, until the other side has closed or the
 * deadline: closing with unread input would destroy what we have sent. */
static void drain(tt_link_stream *s, uint64_t deadline_ns)
{
    char dropped[4096];
    tt_link_end(s);
    while (tt_link_read_all(s, dropped, sizeof(dropped), deadline_ns) == 0)
        continue;
}

static void put_error(const tt_boot *boot, tt_link_stream *to, tutti_err err,
                      const char *text)
{
    struct {
        tt_frame head;
        char text[TT_FRAME_TEXT];
    } out = {.head = boot->like};
    size_t len = strnlen(text, sizeof(out.text));
    memcpy(out.text, text, len);
    out.head.kind = TT_FRAME_ERROR;
    out.head.len = len;
    out.head.extra = (uint32_t) - (int)err;
    /* A small message always fits an empty socket buffer: no waiting. */
    tt_link_write_all(to, &out, sizeof(out.head) + len, 0);
}

void tt_boot_tell(tt_boot *boot, tutti_err err, const tutti_diag *diag)
{
    for (uint32_t r = 0; r < boot->n_lines; r++) {
        if (tt_boot_has(boot, r))
            put_error(boot, &boot->lines[r].link, err, diag->text);
    }
    uint64_t until = tt_now_ns() +
                     (tt_boot_is_unwanted(boot) ? TELL_NS / 10 : TELL_NS);
    for (uint32_t r = 0; r < boot->n_lines; r++) {
        boot->lines[r].link.is_off = NULL;
        if (tt_boot_has(boot, r))
            drain(&boot->lines[r].link, until);
    }
}

/* ---------------------------------------------------------------- coming -- */

static void print_refusal(const tt_boot *boot, const tt_link_refusal *r,
                          char *out, size_t size)
{
    if (r->why == TT_LINK_OTHER_VERSION)
        snprintf(out, size,
                 "rank 0 at %s and the other side (version %u of the greeting) "
                 "have no version in common; all ranks need the same Tutti",
                 boot->where, r->version);
    else if (r->why == TT_LINK_OTHER_JOB)
        snprintf(out, size, "rank 0 at %s belongs to another job", boot->where);
    else
        snprintf(out, size, "%s", tt_link_why_text(r->why));
}

/* The job goes on without them. */
static void note_refused(gathering *g, const char *from, const char *text)
{
    /* In a store that is used again, old values are nobody's mistake. */
    if (g->boot->store || g->n_warnings >= MOST_WARNINGS) {
        TT_DEBUG("start-up: sent %s away: %s", from, text);
    } else {
        TT_WARN("start-up: sent %s away: %s", from, text);
        g->n_warnings++;
    }
    snprintf(g->refused, sizeof(g->refused), "; sent %.40s away: %.90s", from,
             text);
}

static void look_at_refused(gathering *g)
{
    tt_link_refusal r;
    char text[TT_FRAME_TEXT];
    uint64_t n = tt_link_listener_refusal(g->listener, &r, NULL);
    if (n == g->n_refused)
        return;
    g->n_refused = n;
    print_refusal(g->boot, &r, text, sizeof(text));
    note_refused(g, r.from, text);
}

/* A rank has nothing to say before READY. */
static bool is_gone(tt_link_stream *s)
{
    char c;
    const struct iovec one = {&c, 1};
    return tt_link_recv(s, &one, 1) >= 0 || errno != EAGAIN;
}

/* Takes the stream when it returns OK. AGAIN: it is gone already, or makes no
 * sense; ECONFIG: it is to be told why not. */
static tutti_err admit(gathering *g, tt_link_stream *s,
                       const tt_boot_said *said, tutti_diag *diag)
{
    tt_boot *boot = g->boot;
    char from[TT_SOCK_TEXT];
    tt_sock_peer_text(s->fd, from);
    if (said->rank >= said->n_ranks || is_gone(s))
        return TUTTI_AGAIN;
    if (said->n_ranks != boot->n_ranks)
        return tt_boot_blame(diag, TUTTI_ECONFIG, said->rank,
                             "rank %u says that the job has %u ranks, rank 0 "
                             "at %s says %u",
                             said->rank, said->n_ranks, boot->where,
                             boot->n_ranks);
    if (said->rank == 0 || tt_boot_has(boot, said->rank))
        return tt_boot_blame(diag, TUTTI_ECONFIG, said->rank,
                             "two processes say that they are rank %u; the "
                             "second one is %s",
                             said->rank, from);
    if (tt_boot_put(boot, s, TT_FRAME_WELCOME, 0, tt_now_ns() + TELL_NS) != 0)
        return TUTTI_AGAIN;
    tt_boot_take(boot, said->rank, s);
    g->n_missing--;
    TT_DEBUG("start-up: rank %u has come from %s, %u missing", said->rank, from,
             g->n_missing);
    uint64_t until = tt_now_ns() + said->wait_ms * TT_NS_PER_MS;
    if (until < g->deadline_ns)
        g->deadline_ns = until;
    return TUTTI_OK;
}

static void take_arrivals(gathering *g)
{
    tt_link_event link;
    tt_boot_said said;
    tutti_diag why;
    char from[TT_SOCK_TEXT];
    while (g->n_missing > 0 && tt_link_box_take(g->box, &link)) {
        tt_link_stream s = link.stream;
        memcpy(&said, link.who.said, sizeof(said));
        tutti_err err = admit(g, &s, &said, &why);
        if (err == TUTTI_OK)
            continue;
        if (err != TUTTI_AGAIN) {
            put_error(g->boot, &s, err, why.text);
            note_refused(g, tt_sock_peer_text(s.fd, from), why.text);
        }
        tt_link_stream_close(&s);
    }
}

/* A member has nothing to say before READY: readable means gone. */
static tutti_err check_members(gathering *g, const struct pollfd *polls,
                               tutti_diag *diag)
{
    for (uint32_t r = 1; r < g->boot->n_ranks; r++) {
        if (polls[r - 1].revents == 0)
            continue;
        return tt_boot_blame(diag, TUTTI_EBOOT, r,
                             "rank %u left before all ranks had come", r);
    }
    return TUTTI_OK;
}

/* One round of waiting. */
static tutti_err attend(gathering *g, tutti_diag *diag)
{
    const tt_boot *boot = g->boot;
    struct pollfd *members = g->polls + 1;
    g->polls[0] = (struct pollfd){.fd = tt_link_box_fd(g->box),
                                  .events = POLLIN};
    for (uint32_t r = 1; r < boot->n_ranks; r++)
        members[r - 1] = (struct pollfd){.fd = boot->lines[r].link.fd,
                                         .events = POLLIN};
    int n = poll(
        g->polls, boot->n_ranks,
        tt_poll_ms(g->deadline_ns, boot->unwanted ? TT_BOOT_LOOK_MS : LOOK_MS));
    if (n < 0 && errno != EINTR)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "poll at start-up");
    look_at_refused(g);
    if (n < 0)
        return TUTTI_OK;
    tutti_err err = check_members(g, members, diag);
    if (!err)
        take_arrivals(g);
    return err;
}

/* "3, 5-7", cut short when there is no room; `first` the first of them. */
static void list_missing(const tt_boot *boot, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t r = 1; r < boot->n_ranks; r++) {
        if (tt_boot_has(boot, r))
            continue;
        uint32_t last = r;
        while (last + 1 < boot->n_ranks && !tt_boot_has(boot, last + 1))
            last++;
        if (used + 32 > size) {
            snprintf(out + used, size - used, ", ...");
            return;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%u",
                                 used ? ", " : "", r);
        if (last > r)
            used += (size_t)snprintf(out + used, size - used, "-%u", last);
        r = last;
    }
}

static tutti_err fail_missing(const gathering *g, tutti_diag *diag)
{
    const tt_boot *boot = g->boot;
    char ranks[160];
    list_missing(boot, ranks, sizeof(ranks));
    double waited = (double)(tt_now_ns() - g->start_ns) / TT_NS_PER_S;
    uint32_t first = 1;
    while (tt_boot_has(boot, first))
        first++;
    return tt_boot_blame(
        diag, TUTTI_ETIMEOUT, first,
        "rank %s of %u %s not come to %s within %.3g s%s", ranks, boot->n_ranks,
        g->n_missing == 1 ? "has" : "have", boot->where, waited, g->refused);
}

static void say_missing(const gathering *g, tt_patience *patience)
{
    char ranks[160];
    if (!tt_patience_is_over(patience, tt_now_ns()))
        return;
    list_missing(g->boot, ranks, sizeof(ranks));
    TT_WARN("waiting %.4g s for rank%s %s of %u to come to %s",
            tt_patience_say(patience), g->n_missing > 1 ? "s" : "", ranks,
            g->boot->n_ranks, g->boot->where);
}

static tutti_err wait_for_all(gathering *g, tutti_diag *diag)
{
    tt_patience patience = tt_patience_begin(g->boot->patience_ns, g->start_ns);
    while (g->n_missing > 0) {
        tutti_err err = attend(g, diag);
        say_missing(g, &patience);
        if (!err && tt_boot_is_unwanted(g->boot))
            err = tt_boot_fail_unwanted(g->boot, diag);
        if (err)
            return err;
        if (g->n_missing > 0 && tt_now_ns() >= g->deadline_ns)
            return fail_missing(g, diag);
    }
    for (uint32_t r = 1; r < g->boot->n_ranks; r++) {
        int why = tt_boot_put(g->boot, &g->boot->lines[r].link, TT_FRAME_READY,
                              0, tt_now_ns() + TELL_NS);
        if (why != 0)
            return tt_boot_blame(diag, TUTTI_EBOOT, r,
                                 "rank %u left during start-up: %s", r,
                                 strerror(why));
    }
    return TUTTI_OK;
}

/* A connection each. */
static tutti_err check_files(const tt_boot *boot, tutti_diag *diag)
{
    if (tt_files_allow((uint64_t)boot->n_ranks + OTHER_FILES))
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ESYS,
                   "rank 0 is connected with each of %u ranks at start-up, but "
                   "may have no more than %llu open files; raise ulimit -n",
                   boot->n_ranks, (unsigned long long)tt_files_limit());
}

static tutti_err gather(gathering *g, const tt_launch *launch,
                        const tt_settings *set, tutti_diag *diag)
{
    tt_boot *boot = g->boot;
    char token[TT_STORE_TOKEN];
    tutti_err err = TUTTI_OK;
    if (boot->store)
        err = tt_store_begin(boot, token, diag);
    if (!err)
        err = open_listener(g, launch, set, diag);
    if (!err && boot->store)
        err = tt_store_tell(boot, token, set,
                            tt_link_listener_port(g->listener, 0), diag);
    if (err)
        return err;
    TT_DEBUG("start-up: rank 0 listens at %s", boot->where);
    err = wait_for_all(g, diag);
    if (err)
        tt_boot_tell(boot, err, diag);
    return err;
}

tutti_err tt_boot_gather(tt_boot *boot, const tt_launch *launch,
                         const tt_settings *settings, uint64_t deadline_ns,
                         tutti_diag *diag)
{
    gathering g = {.boot = boot,
                   .start_ns = tt_now_ns(),
                   .deadline_ns = deadline_ns,
                   .n_missing = boot->n_ranks - 1};
    tutti_err err = check_files(boot, diag);
    g.polls = tt_new(&boot->mem, boot->n_ranks, sizeof(*g.polls));
    if (!err && !g.polls)
        err = tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u ranks",
                      boot->n_ranks);
    if (!err)
        err = tt_link_box_open(&boot->mem, &g.box, diag);
    if (!err)
        err = gather(&g, launch, settings, diag);
    tt_link_box_close(g.box);
    tt_free(&boot->mem, g.polls, boot->n_ranks, sizeof(*g.polls));
    return err;
}
