/* SPDX-License-Identifier: BSD-3-Clause
 * entrance.c - those who come later: a member of a running job listens for
 * them, and invites them to a start of their own, with all who are there
 * already.
 *
 * Idea       A newcomer dials the entrance (link/link.h: the same way in as for
 *            everybody, with the secret), and waits. When the job wants it, it
 *            gets one message, tt_invitation: which rank it will be, of how
 *            many, and where they all meet; that is an ordinary start-up. Its
 *            connection stays until it has started or failed, so that its end
 *            is noticed.
 * Where      At an address, as rank 0 listens at the start; on one host, at a
 *            name that is made of the job's; through a store, under another
 *            key. An address takes newcomers of any name: only a secret keeps
 *            strangers out there. The newcomer tries again until its deadline:
 *            the job may not listen yet, or its listener may have died.
 * Next       boot.h, rendezvous.c; members/grow.c. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "boot/meet.h"

#define MAGIC UINT32_C(0x6a747474) /* "tttj" */
/* Sending an invitation never waits for longer: it fits an empty socket. */
#define TELL_NS (100 * TT_NS_PER_MS)
/* Of one try at all addresses; and the pause behind it. */
#define TRY_NS (3 * TT_NS_PER_S)
#define PAUSE_MS 50
/* Who knocks says so when it has taken that long. */
#define LONG_NS (3 * TT_NS_PER_S)
#define KEY "tutti-join"

struct tt_entrance {
    tt_boot at; /* where it is */
    tt_link_box *box;
    tt_link_listener *listener;
    uint32_t n;
    tt_link_stream guests[TT_GUESTS_MAX]; /* in the order of coming */
};

static tutti_err set_place(tt_boot *at, const tt_mem *mem,
                           const tt_launch *place, const tt_settings *set,
                           tutti_diag *diag)
{
    char name[TT_SETTING_TEXT + 8];
    *at = (tt_boot){.mem = *mem,
                    .store = place->store,
                    .key = KEY,
                    .trust = place->trust,
                    .interfaces = set->interfaces};
    snprintf(name, sizeof(name), "%s join", place->job);
    at->like.job = tt_fnv1a(TT_FNV1A_START, name, strlen(name));
    if (!place->store && !place->address[0] && !place->job[0])
        return tt_fail(diag, TUTTI_ECONFIG,
                       "newcomers need a place to come to: give an address, a "
                       "store, or the name of a job of this host");
    return tt_boot_set_place(at, place, diag);
}

/* ----------------------------------------------------------- the members -- */

static tutti_err listen_there(tt_entrance *e, const tt_launch *place,
                              const tt_settings *set, tutti_diag *diag)
{
    tt_boot *at = &e->at;
    tt_link_ear ear = {0};
    tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_JOIN),
                             .trust = at->trust,
                             .fd = place->listen_fd};
    char token[TT_STORE_TOKEN];
    int why = 0;
    tutti_err err = at->store ? tt_store_begin(at, token, diag) : TUTTI_OK;
    if (err)
        return err;
    if (at->store)
        o.job = at->like.job;
    tt_boot_set_ear(at, set, false, &ear, &o);
    err = tt_link_listen(e->box, &o, &e->listener, &why, diag);
    if (why == EADDRNOTAVAIL && o.n_ears > 0) {
        tt_boot_set_ear(at, set, true, &ear, &o);
        err = tt_link_listen(e->box, &o, &e->listener, &why, diag);
    }
    if (err && why)
        return tt_fail_errno(diag, TUTTI_EBOOT, why,
                             "cannot listen for newcomers at %s", at->where);
    if (!err && at->store)
        err = tt_store_tell(at, token, set,
                            tt_link_listener_port(e->listener, 0), diag);
    return err;
}

tutti_err tt_entrance_open(const tt_mem *mem, const tt_launch *place,
                           const tt_settings *set, tt_entrance **out,
                           tutti_diag *diag)
{
    tt_entrance *e = tt_new(mem, 1, sizeof(*e));
    if (!e)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for newcomers");
    tutti_err err = set_place(&e->at, mem, place, set, diag);
    if (!err)
        err = tt_link_box_open(&e->at.mem, &e->box, diag);
    if (!err)
        err = listen_there(e, place, set, diag);
    /* What was borrowed is not looked at any more. */
    e->at.mem = *mem;
    e->at.store = NULL;
    e->at.interfaces = NULL;
    if (err) {
        tt_entrance_close(e);
        return err;
    }
    TT_INFO("newcomers are let in at %s", e->at.where);
    *out = e;
    return TUTTI_OK;
}

bool tt_entrance_is_here(const tt_entrance *e)
{
    return e->at.is_local;
}

/* It has nothing to say. */
static bool is_gone(tt_link_stream *s)
{
    char c;
    const struct iovec one = {&c, 1};
    return tt_link_recv(s, &one, 1) >= 0 || errno != EAGAIN;
}

static void forget(tt_entrance *e, uint32_t i)
{
    tt_link_stream_close(&e->guests[i]);
    e->n--;
    memmove(&e->guests[i], &e->guests[i + 1], (e->n - i) * sizeof(*e->guests));
}

uint32_t tt_entrance_guests(tt_entrance *e)
{
    tt_link_event link;
    for (uint32_t i = e->n; i > 0; i--)
        if (is_gone(&e->guests[i - 1]))
            forget(e, i - 1);
    while (e->n < TT_GUESTS_MAX && tt_link_box_take(e->box, &link)) {
        char from[TT_SOCK_TEXT];
        TT_INFO("a newcomer waits: %s",
                tt_sock_peer_text(link.stream.fd, from));
        e->guests[e->n++] = link.stream;
    }
    return e->n;
}

bool tt_entrance_has(tt_entrance *e, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (i >= e->n || is_gone(&e->guests[i]))
            return false;
    return true;
}

bool tt_entrance_invite(tt_entrance *e, const tt_invitation *what, uint32_t n)
{
    bool are_told = n <= e->n;
    for (uint32_t i = 0; i < n && i < e->n; i++) {
        tt_invitation inv = *what;
        inv.magic = MAGIC;
        inv.rank = what->n_ranks - n + i;
        are_told &= tt_link_write_all(&e->guests[i], &inv, sizeof(inv),
                                      tt_now_ns() + TELL_NS) == 0;
    }
    return are_told;
}

void tt_entrance_dismiss(tt_entrance *e, uint32_t n)
{
    for (uint32_t i = n < e->n ? n : e->n; i > 0; i--)
        forget(e, i - 1);
}

void tt_entrance_close(tt_entrance *e)
{
    if (!e)
        return;
    tt_entrance_dismiss(e, e->n);
    tt_link_box_close(e->box);
    const tt_mem mem = e->at.mem;
    tt_free(&mem, e, 1, sizeof(*e));
}

/* ---------------------------------------------------------- the newcomer -- */

struct tt_knock {
    tt_boot at;
    const tt_settings *set;
    tt_link_box *box;
    tt_link_stream line;
    bool has_told;   /* that it takes long */
    char tried[200]; /* why the last try was in vain */
};

bool tt_invitation_is_sound(const tt_invitation *inv)
{
    return inv->n_ranks > 1 && inv->n_ranks <= UINT16_MAX &&
           inv->rank < inv->n_ranks && inv->wait_ms > 0 &&
           memchr(inv->job, 0, sizeof(inv->job)) && inv->job[0] &&
           memchr(inv->place, 0, sizeof(inv->place));
}

static tutti_err hear(tt_knock *k, tt_invitation *out, uint64_t deadline_ns,
                      tutti_diag *diag)
{
    int why = tt_link_read_all(&k->line, out, sizeof(*out), deadline_ns);
    if (why == 0 && out->magic == MAGIC && tt_invitation_is_sound(out))
        return TUTTI_OK;
    if (why == 0)
        return tt_fail(diag, TUTTI_EPROTO,
                       "what answers at %s sends an invitation that makes no "
                       "sense",
                       k->at.where);
    snprintf(k->tried, sizeof(k->tried), "%s",
             why == ETIMEDOUT ? "it was not invited" : "the job has left");
    tt_link_stream_close(&k->line);
    return TUTTI_AGAIN;
}

static tutti_err begin_dial(tt_knock *k, const tt_addr *addrs, size_t n,
                            tt_link_dial **out, tutti_diag *diag)
{
    tt_link_way ways[TT_BOOT_WAYS];
    memset(ways, 0, sizeof(ways));
    for (size_t i = 0; i < n; i++)
        ways[i].to = addrs[i];
    const tt_link_dial_opts o = {.purpose = TT_LINK_JOIN,
                                 .job = k->at.like.job,
                                 .trust = k->at.trust,
                                 .ways = ways,
                                 .n_ways = (uint32_t)n,
                                 .deadline_ns = tt_now_ns() + TRY_NS,
                                 .n_rounds = 1};
    return tt_link_dial_begin(k->box, &o, out, diag);
}

/* Why nobody has let it in. AGAIN: it may be otherwise soon. */
static tutti_err judge(tt_knock *k, const tt_link_dial *dial, uint32_t n,
                       tutti_diag *diag)
{
    tt_link_tries(dial, k->tried, sizeof(k->tried));
    for (uint32_t i = 0; i < n; i++) {
        const tt_link_outcome o = tt_link_dial_outcome(dial, i);
        if (tt_link_is_unproven(o.why))
            return tt_fail(diag, TUTTI_EBOOT,
                           "the job at %s lets nobody in who does not share "
                           "its secret: %s; give the newcomer the same "
                           "TUTTI_SECRET_FILE and TUTTI_ENCRYPT",
                           k->at.where, tt_link_outcome_text(&o));
    }
    return TUTTI_AGAIN;
}

static tutti_err try_once(tt_knock *k, tt_invitation *out, uint64_t deadline_ns,
                          tutti_diag *diag)
{
    tt_addr addrs[TT_BOOT_WAYS];
    size_t n = 0;
    tt_link_dial *dial = NULL;
    tt_link_event link;
    tutti_err err = TUTTI_OK;
    if (k->at.store)
        err = tt_store_find(&k->at, tt_now_ns() + TRY_NS, addrs, &n, diag);
    else
        n = tt_boot_resolve(&k->at, addrs, k->tried, sizeof(k->tried));
    if (err == TUTTI_AGAIN)
        snprintf(k->tried, sizeof(k->tried), "the store has no address");
    if (err || n == 0)
        return err ? err : TUTTI_AGAIN;
    err = begin_dial(k, addrs, n, &dial, diag);
    if (err)
        return err;
    while (!tt_link_box_take(k->box, &link)) /* it has a deadline itself */
        tt_link_box_wait(k->box, UINT64_MAX);
    if (link.kind == TT_LINK_DIALLED) {
        k->line = link.stream;
        err = hear(k, out, deadline_ns, diag);
    } else {
        err = judge(k, dial, (uint32_t)n, diag);
    }
    tt_link_dial_end(dial);
    return err;
}

tutti_err tt_knock_open(const tt_mem *mem, const tt_launch *place,
                        const tt_settings *set, tt_knock **out,
                        tutti_diag *diag)
{
    tt_knock *k = tt_new(mem, 1, sizeof(*k));
    if (!k)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for joining");
    k->line.fd = -1;
    k->set = set;
    tutti_err err = set_place(&k->at, mem, place, set, diag);
    if (!err)
        err = tt_link_box_open(&k->at.mem, &k->box, diag);
    if (err) {
        k->at.mem = *mem;
        tt_knock_close(k);
        return err;
    }
    *out = k;
    return TUTTI_OK;
}

/* Where the secret lives as long as the job's launcher, as `tutti run --join`
 * finds it, nobody will answer when it is gone. */
static tutti_err check_launcher(const tt_knock *k, tutti_diag *diag)
{
    const char *file = k->set->secret_file;
    int pid, fd;
    if (sscanf(file, "/proc/%d/fd/%d", &pid, &fd) != 2 ||
        access(file, F_OK) == 0 || errno != ENOENT)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_EBOOT, "the job of process %d has ended", pid);
}

tutti_err tt_knock_wait(tt_knock *k, uint64_t deadline_ns, tt_invitation *out,
                        tutti_diag *diag)
{
    const uint64_t start_ns = tt_now_ns();
    tutti_err err;
    tt_link_stream_close(&k->line);
    do {
        err = check_launcher(k, diag);
        if (!err)
            err = try_once(k, out, deadline_ns, diag);
        if (err != TUTTI_AGAIN)
            return err;
        if (!k->has_told && tt_now_ns() - start_ns > LONG_NS) {
            k->has_told = true;
            TT_WARN("still looking for a job at %s (last try: %s)", k->at.where,
                    k->tried);
        }
        poll(NULL, 0, PAUSE_MS);
    } while (tt_now_ns() < deadline_ns);
    return tt_fail(diag, TUTTI_ETIMEOUT,
                   "no job at %s has taken this process in within %.3g s (last "
                   "try: %s): see that it runs there and calls "
                   "tutti_comm_grow(), or give TUTTI_START_TIMEOUT more time",
                   k->at.where, (double)(tt_now_ns() - start_ns) / TT_NS_PER_S,
                   k->tried);
}

void tt_knock_close(tt_knock *k)
{
    if (!k)
        return;
    tt_link_stream_close(&k->line);
    tt_link_box_close(k->box);
    const tt_mem mem = k->at.mem;
    tt_free(&mem, k, 1, sizeof(*k));
}
