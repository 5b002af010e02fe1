/* SPDX-License-Identifier: BSD-3-Clause
 * gather.c - rank 0 waits for the other ranks.
 *
 * Who connects is a guest until its HELLO has come whole and proved right;
 * then it is a member and its connection stands for its rank. Guests are
 * never waited for: a guest that says nothing within GUEST_NS, or anything
 * else than a HELLO, is sent away and the job goes on. A HELLO of another job
 * or version is refused with a sentence, and the job goes on too. What can
 * only be this job's own mistake ends it at once, with the same sentence for
 * everybody: a rank that comes twice, a number of ranks that disagrees, a
 * member that leaves.
 *
 * The deadline is the earliest of rank 0's own and those that the members
 * bring along, so rank 0, who alone knows which ranks are missing, is the one
 * that gives up first and can say so to all. Next: join.c. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "boot/meet.h"

/* A guest's time to say HELLO; ours do it at once. */
#define GUEST_NS (5 * TT_NS_PER_S)
/* Guests at a time; more wait in the listener's queue. */
#define GUESTS 64
/* How long a busy port may take to become free: the last job's end. */
#define BUSY_NS TT_NS_PER_S
/* A guest or a member that is told why is waited for that long. */
#define TELL_NS TT_NS_PER_S

typedef struct guest {
    int fd;
    size_t got;
    uint64_t until_ns;
    tt_frame hello;
} guest;

typedef struct gathering {
    tt_boot *boot;
    uint64_t start_ns, deadline_ns;
    uint32_t n_missing;
    uint32_t n_guests;
    guest guests[GUESTS];
    struct pollfd *polls; /* listener, members, guests */
    char refused[160];    /* the last one sent away, for the timeout's text */
} gathering;

int tt_boot_listen_any(uint16_t port, int backlog)
{
    tt_addr any = {.u.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)},
                   .len = sizeof(any.u.v6)};
    int fd = tt_sock_listen(&any, backlog);
    if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL)
        return fd;
    any = (tt_addr){.u.v4 = {.sin_family = AF_INET, .sin_port = htons(port)},
                    .len = sizeof(any.u.v4)};
    return tt_sock_listen(&any, backlog);
}

/* A numeric address is bound as it stands, "localhost" as 127.0.0.1, so that
 * a job of one host is not open to others. A name may mean different addresses
 * on different hosts (127.0.1.1 on its own), so it is only a port here. */
static int bind_here(const tt_boot *boot, int backlog)
{
    tt_addr addr;
    if (boot->is_local)
        return tt_sock_listen(&boot->local, backlog);
    const char *host = strcmp(boot->host, "localhost") == 0 ? "127.0.0.1"
                                                            : boot->host;
    if (!tt_addr_numeric(host, boot->port, &addr))
        return tt_boot_listen_any(boot->port, backlog);
    int fd = tt_sock_listen(&addr, backlog);
    if (fd != -EADDRNOTAVAIL)
        return fd;
    TT_WARN("%s is not an address of this host: rank 0 listens on all "
            "addresses, port %u",
            boot->host, boot->port);
    return tt_boot_listen_any(boot->port, backlog);
}

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

static tutti_err open_listener(tt_boot *boot, int listen_fd,
                               uint64_t deadline_ns, tutti_diag *diag)
{
    if (listen_fd > 0) {
        boot->listener = fcntl(listen_fd, F_DUPFD_CLOEXEC, 0);
        if (boot->listener >= 0 &&
            fcntl(boot->listener, F_SETFL, O_NONBLOCK) == 0)
            return TUTTI_OK;
        return tt_fail_errno(diag, TUTTI_ESYS, errno,
                             "cannot use the listening socket %d", listen_fd);
    }
    int backlog = boot->n_ranks < 128 ? 128 : (int)boot->n_ranks;
    uint64_t patience = tt_now_ns() + BUSY_NS;
    if (patience > deadline_ns)
        patience = deadline_ns;
    for (;;) {
        int fd = bind_here(boot, backlog);
        if (fd >= 0) {
            boot->listener = fd;
            return TUTTI_OK;
        }
        if (fd != -EADDRINUSE || tt_now_ns() >= patience)
            return fail_listen(boot, -fd, diag);
        poll(NULL, 0, 50);
    }
}

/* Reads and drops what is unread, until the other side has closed or the
 * deadline: closing with unread input would destroy what we have sent. */
static void drain(int fd, uint64_t deadline_ns)
{
    char dropped[4096];
    shutdown(fd, SHUT_WR);
    for (;;) {
        ssize_t n = recv(fd, dropped, sizeof(dropped), 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
        if (n < 0 && !tt_sock_wait(fd, POLLIN, deadline_ns))
            return;
    }
}

static void put_error(const tt_boot *boot, int fd, tutti_err err,
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
    tt_sock_write_all(fd, &out, sizeof(out.head) + len, 0);
}

void tt_boot_tell(tt_boot *boot, tutti_err err, const tutti_diag *diag)
{
    for (uint32_t r = 0; r < boot->n_fds; r++) {
        if (boot->fds[r] >= 0)
            put_error(boot, boot->fds[r], err, diag->text);
    }
    uint64_t until = tt_now_ns() + TELL_NS;
    for (uint32_t r = 0; r < boot->n_fds; r++) {
        if (boot->fds[r] >= 0)
            drain(boot->fds[r], until);
    }
}

static void drop_guest(gathering *g, uint32_t i)
{
    close(g->guests[i].fd);
    g->guests[i] = g->guests[--g->n_guests];
}

/* Sends a guest away with a sentence; the job goes on. */
static void refuse(gathering *g, guest *who, const char *fmt, ...)
{
    char text[TT_FRAME_TEXT];
    char from[TT_SOCK_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    put_error(g->boot, who->fd, TUTTI_EBOOT, text);
    shutdown(who->fd, SHUT_WR);
    tt_sock_peer_text(who->fd, from);
    /* In a store that is used again, old values are nobody's mistake. */
    if (g->boot->store)
        TT_DEBUG("start-up: sent %s away: %s", from, text);
    else
        TT_WARN("start-up: sent %s away: %s", from, text);
    snprintf(g->refused, sizeof(g->refused), "; sent %.40s away: %.90s", from,
             text);
}

static tutti_err admit(gathering *g, guest *who, tutti_diag *diag)
{
    tt_boot *boot = g->boot;
    const tt_frame *hello = &who->hello;
    char from[TT_SOCK_TEXT];
    tt_sock_peer_text(who->fd, from);
    if (hello->rank == 0 || boot->fds[hello->rank] >= 0)
        return tt_boot_blame(diag, TUTTI_ECONFIG, hello->rank,
                             "two processes say that they are rank %u; the "
                             "second one is %s",
                             hello->rank, from);
    tt_frame welcome = boot->like;
    welcome.kind = TT_FRAME_WELCOME;
    if (tt_boot_put(boot, who->fd, welcome, tt_now_ns() + TELL_NS) != 0)
        return TUTTI_AGAIN; /* gone already; it may try again */
    boot->fds[hello->rank] = who->fd;
    who->fd = -1;
    g->n_missing--;
    TT_DEBUG("start-up: rank %u has come from %s, %u missing", hello->rank,
             from, g->n_missing);
    uint64_t until = tt_now_ns() + hello->extra * TT_NS_PER_MS;
    if (until < g->deadline_ns)
        g->deadline_ns = until;
    return TUTTI_OK;
}

/* A whole header has come from a guest. */
static tutti_err judge(gathering *g, guest *who, tutti_diag *diag)
{
    const tt_boot *boot = g->boot;
    const tt_frame *hello = &who->hello;
    switch (tt_frame_check(hello, &boot->like, 0)) {
    case TT_FRAME_OTHER_VERSION:
        refuse(g, who,
               "rank 0 at %s speaks version %d of the start-up protocol, the "
               "other side version %u; all ranks need the same Tutti",
               boot->where, TT_FRAME_VERSION, hello->version);
        return TUTTI_AGAIN;
    case TT_FRAME_OTHER_JOB:
        refuse(g, who,
               "rank 0 at %s belongs to another job; give each job its own "
               "%s",
               boot->where,
               boot->store ? "store or prefix" : "port or its own name");
        return TUTTI_AGAIN;
    case TT_FRAME_OTHER_SIZE:
        return tt_boot_blame(diag, TUTTI_ECONFIG, hello->rank,
                             "rank %u says that the job has %u ranks, rank 0 "
                             "at %s says %u",
                             hello->rank, hello->n_ranks, boot->where,
                             boot->n_ranks);
    case TT_FRAME_GOOD:
        if (hello->kind == TT_FRAME_HELLO)
            return admit(g, who, diag);
        return TUTTI_AGAIN;
    default:
        return TUTTI_AGAIN;
    }
}

/* Reads what a guest says. AGAIN: it is to be dropped; BUSY: more to come. */
static tutti_err hear_guest(gathering *g, guest *who, tutti_diag *diag)
{
    char *at = (char *)&who->hello + who->got;
    ssize_t n = recv(who->fd, at, sizeof(who->hello) - who->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return TUTTI_EBUSY;
    if (n <= 0)
        return TUTTI_AGAIN;
    who->got += (size_t)n;
    if (who->got >= sizeof(uint32_t) && who->hello.magic != TT_FRAME_MAGIC)
        return TUTTI_AGAIN;
    return who->got < sizeof(who->hello) ? TUTTI_EBUSY : judge(g, who, diag);
}

static tutti_err serve_guests(gathering *g, const struct pollfd *polls,
                              tutti_diag *diag)
{
    uint64_t now = tt_now_ns();
    /* From the end, because dropping one moves the last into its place. */
    for (uint32_t i = g->n_guests; i-- > 0;) {
        guest *who = &g->guests[i];
        tutti_err err = TUTTI_EBUSY;
        if (polls[i].revents != 0)
            err = hear_guest(g, who, diag);
        if (err == TUTTI_OK) {
            g->guests[i] = g->guests[--g->n_guests];
        } else if (err == TUTTI_AGAIN || now >= who->until_ns) {
            drop_guest(g, i);
        } else if (err != TUTTI_EBUSY) {
            put_error(g->boot, who->fd, err, diag->text);
            drain(who->fd, tt_now_ns() + TELL_NS);
            drop_guest(g, i);
            return err;
        }
    }
    return TUTTI_OK;
}

/* Ours say HELLO at once: when all places are taken, who has been silent for
 * longest goes. */
static void make_room(gathering *g)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < g->n_guests; i++)
        if (g->guests[i].until_ns < g->guests[oldest].until_ns)
            oldest = i;
    if (g->n_guests == GUESTS)
        drop_guest(g, oldest);
}

static void accept_guests(gathering *g)
{
    /* Not without end: others are served in between. */
    for (int n = 0; n < GUESTS; n++) {
        int fd = tt_sock_accept(g->boot->listener);
        if (fd < 0)
            return;
        uint32_t uid;
        if (g->boot->is_local &&
            (!tt_sock_peer_uid(fd, &uid) || uid != geteuid())) {
            close(fd);
            continue;
        }
        tt_sock_hurry(fd);
        make_room(g);
        g->guests[g->n_guests++] = (guest){.fd = fd,
                                           .until_ns = tt_now_ns() + GUEST_NS};
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

/* One round of waiting. polls: listener, ranks 1.., guests. */
static tutti_err attend(gathering *g, tutti_diag *diag)
{
    const tt_boot *boot = g->boot;
    struct pollfd *members = g->polls + 1;
    struct pollfd *guests = g->polls + boot->n_ranks;
    g->polls[0] = (struct pollfd){.fd = boot->listener, .events = POLLIN};
    for (uint32_t r = 1; r < boot->n_ranks; r++)
        members[r - 1] = (struct pollfd){.fd = boot->fds[r], .events = POLLIN};
    for (uint32_t i = 0; i < g->n_guests; i++)
        guests[i] = (struct pollfd){.fd = g->guests[i].fd, .events = POLLIN};
    int n = poll(g->polls, boot->n_ranks + g->n_guests,
                 tt_poll_ms(g->deadline_ns, g->n_guests ? 200 : 60000));
    if (n < 0 && errno != EINTR)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "poll at start-up");
    if (n < 0)
        return TUTTI_OK;
    tutti_err err = check_members(g, members, diag);
    if (err)
        return err;
    err = serve_guests(g, guests, diag);
    if (err)
        return err;
    if (g->polls[0].revents != 0)
        accept_guests(g);
    return TUTTI_OK;
}

/* "3, 5-7", cut short when there is no room; `first` the first of them. */
static void list_missing(const tt_boot *boot, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t r = 1; r < boot->n_ranks; r++) {
        if (boot->fds[r] >= 0)
            continue;
        uint32_t last = r;
        while (last + 1 < boot->n_ranks && boot->fds[last + 1] < 0)
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
    while (boot->fds[first] >= 0)
        first++;
    return tt_boot_blame(
        diag, TUTTI_ETIMEOUT, first,
        "rank %s of %u %s not come to %s within %.3g s%s", ranks, boot->n_ranks,
        g->n_missing == 1 ? "has" : "have", boot->where, waited, g->refused);
}

static tutti_err wait_for_all(gathering *g, tutti_diag *diag)
{
    while (g->n_missing > 0) {
        tutti_err err = attend(g, diag);
        if (err)
            return err;
        if (g->n_missing > 0 && tt_now_ns() >= g->deadline_ns)
            return fail_missing(g, diag);
    }
    tt_frame ready = g->boot->like;
    ready.kind = TT_FRAME_READY;
    for (uint32_t r = 1; r < g->boot->n_ranks; r++) {
        int why = tt_boot_put(g->boot, g->boot->fds[r], ready,
                              tt_now_ns() + TELL_NS);
        if (why != 0)
            return tt_boot_blame(diag, TUTTI_EBOOT, r,
                                 "rank %u left during start-up: %s", r,
                                 strerror(why));
    }
    return TUTTI_OK;
}

tutti_err tt_boot_gather(tt_boot *boot, int listen_fd, uint64_t deadline_ns,
                         tutti_diag *diag)
{
    size_t n_polls = boot->n_ranks + (size_t)GUESTS;
    tutti_err err = TUTTI_ENOMEM;
    gathering *g = tt_new(&boot->mem, 1, sizeof(*g));
    struct pollfd *polls = tt_new(&boot->mem, n_polls, sizeof(*polls));
    if (!g || !polls) {
        tt_fail(diag, err, "out of memory for %u ranks", boot->n_ranks);
        goto out;
    }
    *g = (gathering){.boot = boot,
                     .start_ns = tt_now_ns(),
                     .deadline_ns = deadline_ns,
                     .n_missing = boot->n_ranks - 1,
                     .polls = polls};
    err = open_listener(boot, listen_fd, deadline_ns, diag);
    if (err)
        goto out;
    TT_DEBUG("start-up: rank 0 listens at %s", boot->where);
    err = wait_for_all(g, diag);
    if (err)
        tt_boot_tell(boot, err, diag);
    while (g->n_guests > 0)
        drop_guest(g, 0);
out:
    if (boot->listener >= 0)
        close(boot->listener);
    boot->listener = -1;
    tt_free(&boot->mem, polls, n_polls, sizeof(*polls));
    tt_free(&boot->mem, g, 1, sizeof(*g));
    return err;
}
