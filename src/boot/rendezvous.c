/* SPDX-License-Identifier: BSD-3-Clause
 * rendezvous.c - the star around rank 0: opening it, exchanging over it.
 *
 * Idea       Start-up needs little traffic and good sentences. Rank 0 hears
 *            of everything, so it decides and tells; nobody else talks to
 *            anybody else.
 * Cost       One exchange of pieces of len bytes: rank 0 reads N len bytes and
 *            writes N N len: 200 MB once for 1024 cards of 190 bytes. What
 *            goes one way (collect, share) costs N len.
 * Invariant  All ranks get the same outcome of open and of each exchange,
 *            but for the rank that died and losses at the very end.
 * Next       gather.c (rank 0), join.c (the others), store.c, frame.h. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/patience.h"
#include "boot/meet.h"

/* How often rank 0 says that it is alive. */
#define BEAT_NS (500 * TT_NS_PER_MS)

tutti_err tt_boot_blame(tutti_diag *diag, tutti_err err, uint32_t rank,
                        const char *fmt, ...)
{
    va_list args;
    tt_diag_clear(diag);
    va_start(args, fmt);
    vsnprintf(diag->text, sizeof(diag->text), fmt, args);
    va_end(args);
    diag->rank = rank;
    return err;
}

tutti_err tt_boot_fail_unwanted(const tt_boot *boot, tutti_diag *diag)
{
    return tt_fail(diag, TUTTI_EABORTED,
                   "rank %u does not wait for the others any more", boot->rank);
}

void tt_boot_take(tt_boot *boot, uint32_t line, const tt_link_stream *link)
{
    boot->lines[line].link = *link;
    boot->lines[line].link.is_off = boot->unwanted;
}

int tt_boot_put(const tt_boot *boot, tt_link_stream *to, tt_frame_kind kind,
                uint64_t len, uint64_t deadline_ns)
{
    tt_frame frame = boot->like;
    frame.kind = (uint8_t)kind;
    frame.len = len;
    return tt_link_write_all(to, &frame, sizeof(frame), deadline_ns);
}

static tutti_err fail_read(const tt_boot *boot, int why, tutti_diag *diag)
{
    if (why == ETIMEDOUT) {
        tt_diag_clear(diag);
        return TUTTI_ETIMEOUT; /* the caller knows what was waited for */
    }
    if (why == ECANCELED)
        return tt_boot_fail_unwanted(boot, diag);
    return tt_boot_blame(
        diag, TUTTI_EPEER, 0, "rank 0 at %s left during %s: %s", boot->where,
        boot->phase,
        why == EPIPE ? "it closed the connection" : tt_link_error_text(why));
}

static tutti_err hear_error(const tt_boot *boot, const tt_frame *frame,
                            uint64_t deadline_ns, tutti_diag *diag)
{
    char text[TT_FRAME_TEXT];
    size_t len = (size_t)frame->len;
    int why = tt_link_read_all(&boot->lines[0].link, text, len, deadline_ns);
    if (why != 0)
        return fail_read(boot, why, diag);
    return tt_frame_error(frame->extra, text, len, diag);
}

static size_t take_ahead(tt_boot_line *line, tt_frame *frame)
{
    size_t n = line->n_ahead;
    memcpy(frame, &line->ahead, n);
    line->n_ahead = 0;
    return n;
}

tutti_err tt_boot_hear(tt_boot *boot, tt_frame *frame, uint64_t piece,
                       uint64_t deadline_ns, tutti_diag *diag)
{
    tt_boot_line *line = &boot->lines[0];
    size_t n = take_ahead(line, frame);
    int why = tt_link_read_all(&line->link, (char *)frame + n,
                               sizeof(*frame) - n, deadline_ns);
    if (why != 0)
        return fail_read(boot, why, diag);
    tt_frame_fault fault = tt_frame_check(frame, &boot->like, piece);
    if (fault == TT_FRAME_GOOD && frame->kind == TT_FRAME_ERROR)
        return hear_error(boot, frame, deadline_ns, diag);
    if (fault == TT_FRAME_GOOD)
        return TUTTI_OK;
    if (fault == TT_FRAME_OTHER_VERSION)
        return tt_fail(diag, TUTTI_EBOOT,
                       "rank 0 at %s speaks version %u of the start-up "
                       "protocol, rank %u version %d; all ranks need the same "
                       "Tutti",
                       boot->where, frame->version, boot->rank,
                       TT_FRAME_VERSION);
    return tt_fail(diag, TUTTI_EBOOT,
                   "what answered at %s is not rank 0 of this job; choose "
                   "another port in TUTTI_ADDR or MASTER_PORT",
                   boot->where);
}

/* ------------------------------------------------------------ opening -- */

/* A hash of the job's name, because the name of an abstract socket is short
 * and a job's name may be anything. */
tutti_err tt_boot_set_place(tt_boot *boot, const tt_launch *launch,
                            tutti_diag *diag)
{
    if (boot->store) {
        snprintf(boot->where, sizeof(boot->where),
                 "the place that the program's store tells");
        return TUTTI_OK;
    }
    if (launch->address[0] != '\0') {
        snprintf(boot->where, sizeof(boot->where), "%s", launch->address);
        if (tt_hostport_split(launch->address, boot->host, &boot->port))
            return TUTTI_OK;
        return tt_fail(diag, TUTTI_ECONFIG,
                       "the meeting place \"%.200s\" is not host:port or "
                       "[ipv6]:port",
                       launch->address);
    }
    if (launch->job[0] == '\0')
        return tt_fail(diag, TUTTI_ECONFIG,
                       "a job of %u ranks needs a meeting place: set "
                       "TUTTI_ADDR to host:port, where rank 0 is (or, on one "
                       "host, TUTTI_JOB to a name), or MASTER_ADDR and "
                       "MASTER_PORT",
                       launch->n_ranks);
    char name[64];
    snprintf(name, sizeof(name), "tutti-%u-%016llx", (unsigned)geteuid(),
             (unsigned long long)boot->like.job);
    tt_addr_abstract(name, &boot->local);
    boot->is_local = true;
    snprintf(boot->where, sizeof(boot->where), "@%s (job %.64s, this host)",
             name, launch->job);
    return TUTTI_OK;
}

static tutti_err set_up(tt_boot *boot, const tt_launch *launch,
                        tutti_diag *diag)
{
    boot->n_lines = launch->rank == 0 ? launch->n_ranks : 1;
    boot->lines = tt_new(&boot->mem, boot->n_lines, sizeof(*boot->lines));
    if (!boot->lines) {
        boot->n_lines = 0;
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u ranks",
                       launch->n_ranks);
    }
    for (uint32_t i = 0; i < boot->n_lines; i++)
        boot->lines[i].link.fd = -1;
    return tt_boot_set_place(boot, launch, diag);
}

static tutti_err check_launch(const tt_launch *launch, tutti_diag *diag)
{
    if (launch->n_ranks == 0 || launch->n_ranks > UINT16_MAX)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "a job of %u ranks: 1 to %d are possible",
                       launch->n_ranks, UINT16_MAX);
    if (launch->rank >= launch->n_ranks)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "rank %u of %u: ranks go from 0 to %u", launch->rank,
                       launch->n_ranks, launch->n_ranks - 1);
    return TUTTI_OK;
}

static tutti_err meet(tt_boot *boot, const tt_launch *launch,
                      const tt_settings *settings, uint64_t deadline_ns,
                      tutti_diag *diag)
{
    boot->store = launch->store;
    boot->key = "tutti-meet";
    boot->trust = launch->trust;
    boot->unwanted = launch->is_off;
    boot->interfaces = settings->interfaces;
    boot->via = settings->via;
    boot->patience_ns = settings->patience_ns;
    tutti_err err = set_up(boot, launch, diag);
    if (err)
        return err;
    return boot->rank == 0
               ? tt_boot_gather(boot, launch, settings, deadline_ns, diag)
               : tt_boot_join(boot, deadline_ns, diag);
}

tutti_err tt_boot_open(const tt_launch *launch, const tt_settings *settings,
                       const tt_mem *mem, uint64_t deadline_ns, tt_boot **out,
                       tutti_diag *diag)
{
    tutti_diag why = TT_DIAG_NONE;
    tt_boot *boot = NULL;
    tutti_err err = check_launch(launch, &why);
    if (err)
        goto out;
    boot = tt_new(mem, 1, sizeof(*boot));
    if (!boot) {
        err = tt_fail(&why, TUTTI_ENOMEM, "out of memory at start-up");
        goto out;
    }
    boot->mem = *mem;
    boot->rank = launch->rank;
    boot->n_ranks = launch->n_ranks;
    boot->timeout_ns = settings->start_timeout_ns;
    boot->phase = "start-up";
    boot->like = (tt_frame){
        .magic = TT_FRAME_MAGIC,
        .version = TT_FRAME_VERSION,
        .job = tt_fnv1a(TT_FNV1A_START, launch->job, strlen(launch->job)),
        .rank = launch->rank,
        .n_ranks = launch->n_ranks};
    if (boot->n_ranks > 1)
        err = meet(boot, launch, settings, deadline_ns, &why);
out:
    if (!err) {
        *out = boot;
        return TUTTI_OK;
    }
    tt_boot_close(boot);
    if (diag)
        *diag = why;
    return err;
}

void tt_boot_call_off(tt_boot *boot)
{
    for (uint32_t i = 0; i < boot->n_lines && !boot->is_off; i++) {
        /* Who is gone or does not read is found out in the exchange. */
        if (tt_boot_has(boot, i))
            tt_boot_put(boot, &boot->lines[i].link, TT_FRAME_OFF, 0, 0);
    }
    boot->is_off = true;
}

static bool is_off(const tt_frame *frame, const tt_frame *like)
{
    return tt_frame_check(frame, like, 0) == TT_FRAME_GOOD &&
           frame->kind == TT_FRAME_OFF;
}

/* Reads what is there of the next header; false: the other side has gone. */
static bool look_ahead(tt_boot_line *line)
{
    while (line->n_ahead < sizeof(line->ahead)) {
        const struct iovec rest = {(char *)&line->ahead + line->n_ahead,
                                   sizeof(line->ahead) - line->n_ahead};
        ssize_t n = tt_link_recv(&line->link, &rest, 1);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            return false;
        line->n_ahead += (size_t)n;
    }
    return true;
}

bool tt_boot_is_well(tt_boot *boot, tutti_diag *diag)
{
    for (uint32_t i = 0; i < boot->n_lines; i++) {
        tt_boot_line *line = &boot->lines[i];
        if (!tt_boot_has(boot, i))
            continue;
        bool is_there = look_ahead(line);
        bool is_whole = line->n_ahead == sizeof(line->ahead);
        bool calls_off = is_whole && is_off(&line->ahead, &boot->like);
        /* Another rank may be ahead and have sent its next piece; rank 0
         * speaks out of turn only to call the start off. */
        if (!calls_off && is_there && (boot->rank == 0 || !is_whole))
            continue;
        if (calls_off)
            tt_boot_call_off(boot);
        if (is_whole && (calls_off || boot->rank != 0))
            tt_fail(diag, TUTTI_EPEER, "rank %u has called the start off",
                    line->ahead.rank);
        else
            tt_fail(diag, TUTTI_EPEER, "rank %u died or left during %s", i,
                    boot->phase);
        return false;
    }
    return true;
}

void tt_boot_close(tt_boot *boot)
{
    if (!boot)
        return;
    for (uint32_t i = 0; i < boot->n_lines; i++)
        tt_link_stream_close(&boot->lines[i].link);
    tt_link_box_close(boot->passing);
    const tt_mem mem = boot->mem;
    tt_free(&mem, boot->lines, boot->n_lines, sizeof(*boot->lines));
    tt_free(&mem, boot, 1, sizeof(*boot));
}

/* -------------------------------------------------------- being alive -- */

/* Whole or not at all: what has begun must end, or the next frame would be
 * read from its middle. Who does not read anything is found out elsewhere. */
static void tell_alive(const tt_boot *boot, tt_link_stream *to)
{
    tt_frame alive = boot->like;
    alive.kind = TT_FRAME_ALIVE;
    const struct iovec iov = {&alive, sizeof(alive)};
    ssize_t n = tt_link_send(to, &iov, 1);
    if (n > 0 && (size_t)n < sizeof(alive))
        tt_link_write_all(to, (const char *)&alive + n,
                          sizeof(alive) - (size_t)n, tt_now_ns() + BEAT_NS);
}

void tt_boot_alive(tt_boot *boot)
{
    if (!boot->beats || boot->rank != 0 || boot->broken)
        return;
    uint64_t now_ns = tt_now_ns();
    if (now_ns < boot->next_beat_ns)
        return;
    boot->next_beat_ns = now_ns + BEAT_NS;
    for (uint32_t r = 1; r < boot->n_lines; r++) {
        if (tt_boot_has(boot, r))
            tell_alive(boot, &boot->lines[r].link);
    }
}

/* -------------------------------------------------------- exchanging -- */

/* What goes in one exchange: len bytes of each rank, those of rank r at
 * all + r * stride. Towards rank 0 alone, `all` is NULL elsewhere. */
typedef struct piece {
    const void *mine;
    char *all;
    size_t len, stride;
} piece;

/* Rank 0's view of one exchange: what has come of each rank's header and
 * piece; done is their sum. */
typedef struct incoming {
    tt_frame head;
    size_t done;
    bool is_right; /* the header is whole, and what it should be */
} incoming;

typedef struct collecting {
    tt_boot *boot;
    piece p;
    incoming *from; /* [n_ranks] */
    struct pollfd *polls;
    uint32_t n_waiting;
    tutti_diag *diag;
} collecting;

static tutti_err check_piece(const collecting *c, uint32_t r)
{
    const tt_frame *head = &c->from[r].head;
    const tt_boot *boot = c->boot;
    tt_frame_fault fault = tt_frame_check(head, &boot->like, c->p.len);
    if (fault == TT_FRAME_GOOD && head->kind == TT_FRAME_DATA &&
        head->rank == r && head->seq == boot->like.seq && head->len == c->p.len)
        return TUTTI_OK;
    return tt_boot_blame(c->diag, TUTTI_EPROTO, r,
                         "rank %u sent something unexpected during %s "
                         "(%llu bytes in exchange %u, expected %zu in %u); do "
                         "all ranks run the same program and Tutti?",
                         r, boot->phase, (unsigned long long)head->len,
                         head->seq, c->p.len, boot->like.seq);
}

/* Its header is whole. */
static tutti_err hear_head(collecting *c, uint32_t r)
{
    incoming *in = &c->from[r];
    if (is_off(&in->head, &c->boot->like)) {
        in->done = 0; /* its piece follows */
        tt_boot_call_off(c->boot);
        return TUTTI_OK;
    }
    tutti_err err = check_piece(c, r);
    in->is_right = !err;
    return err;
}

/* Reads what rank r has sent; stops waiting for it when its piece is whole. */
static tutti_err hear_rank(collecting *c, uint32_t r)
{
    incoming *in = &c->from[r];
    const size_t head = sizeof(in->head);
    for (;;) {
        bool in_head = in->done < head;
        if (!in_head && !in->is_right) {
            tutti_err err = hear_head(c, r);
            if (err)
                return err;
            continue;
        }
        if (in->done == head + c->p.len) {
            c->polls[r].fd = -1;
            c->n_waiting--;
            return TUTTI_OK;
        }
        const struct iovec iov = {
            in_head ? (char *)&in->head + in->done
                    : c->p.all + r * c->p.stride + (in->done - head),
            in_head ? head - in->done : head + c->p.len - in->done};
        ssize_t n = tt_link_recv(&c->boot->lines[r].link, &iov, 1);
        if (n < 0 && errno == EAGAIN)
            return TUTTI_OK;
        if (n <= 0)
            return tt_boot_blame(c->diag, TUTTI_EPEER, r,
                                 "rank %u died or left during %s%s%s", r,
                                 c->boot->phase, n < 0 ? ": " : "",
                                 n < 0 ? tt_link_error_text(errno) : "");
        in->done += (size_t)n;
    }
}

static uint32_t first_missing(const collecting *c)
{
    uint32_t r = 1;
    while (c->polls[r].fd < 0)
        r++;
    return r;
}

static void say_waiting(const collecting *c, tt_patience *patience)
{
    if (tt_patience_is_over(patience, tt_now_ns()))
        TT_WARN("waiting %.4g s for rank %u%s to go on with %s",
                tt_patience_say(patience), first_missing(c),
                c->n_waiting > 1 ? " (and others)" : "", c->boot->phase);
}

static tutti_err fail_slow(const collecting *c)
{
    const uint32_t r = first_missing(c);
    return tt_boot_blame(c->diag, TUTTI_ETIMEOUT, r,
                         "rank %u%s did not take part in exchange %u of "
                         "%s within %.3g s",
                         r, c->n_waiting > 1 ? " (and others)" : "",
                         c->boot->like.seq, c->boot->phase,
                         (double)c->boot->timeout_ns / TT_NS_PER_S);
}

static tutti_err collect(collecting *c, uint64_t deadline_ns)
{
    tt_boot *boot = c->boot;
    c->polls[0].fd = -1;
    c->n_waiting = boot->n_ranks - 1;
    for (uint32_t r = 1; r < boot->n_ranks; r++) {
        tt_boot_line *line = &boot->lines[r];
        c->polls[r] = (struct pollfd){.fd = line->link.fd, .events = POLLIN};
        c->from[r].done = take_ahead(line, &c->from[r].head);
        bool has_some = c->from[r].done > 0 || tt_link_pending(&line->link) > 0;
        tutti_err err = has_some ? hear_rank(c, r) : TUTTI_OK;
        if (err)
            return err;
    }
    tt_patience patience = tt_patience_begin(boot->patience_ns, tt_now_ns());
    while (c->n_waiting > 0) {
        tt_boot_alive(boot);
        const uint64_t said_ns = tt_patience_next(&patience);
        int ms = tt_poll_ms(said_ns < deadline_ns ? said_ns : deadline_ns,
                            boot->unwanted ? TT_BOOT_LOOK_MS
                            : boot->beats  ? 100
                                           : 60000);
        int n = poll(c->polls, boot->n_ranks, ms);
        if (n < 0 && errno != EINTR)
            return tt_fail_errno(c->diag, TUTTI_ESYS, errno, "poll during %s",
                                 c->boot->phase);
        if (tt_boot_is_unwanted(boot))
            return tt_boot_fail_unwanted(boot, c->diag);
        if (n <= 0 && tt_now_ns() >= deadline_ns)
            return fail_slow(c);
        say_waiting(c, &patience);
        for (uint32_t r = 1; n > 0 && r < boot->n_ranks; r++) {
            if (c->polls[r].fd < 0 || c->polls[r].revents == 0)
                continue;
            tutti_err err = hear_rank(c, r);
            if (err)
                return err;
        }
    }
    return TUTTI_OK;
}

static tutti_err spread(tt_boot *boot, const void *bytes, uint64_t len,
                        uint64_t deadline_ns, tutti_diag *diag)
{
    for (uint32_t r = 1; r < boot->n_ranks; r++) {
        tt_link_stream *to = &boot->lines[r].link;
        int why = tt_boot_put(boot, to, TT_FRAME_ALL, len, deadline_ns);
        if (why == 0)
            why = tt_link_write_all(to, bytes, (size_t)len, deadline_ns);
        if (why == 0)
            continue;
        /* Half a message has gone out to it: no sentence can follow. */
        tt_link_stream_close(to);
        return tt_boot_blame(diag, TUTTI_EPEER, r,
                             "rank %u died or left during %s: %s", r,
                             boot->phase, tt_link_error_text(why));
    }
    return TUTTI_OK;
}

static tutti_err collect_root(tt_boot *boot, const piece *p, tutti_diag *diag)
{
    tutti_err err = TUTTI_ENOMEM;
    collecting c = {.boot = boot, .p = *p, .diag = diag};
    c.from = tt_new(&boot->mem, boot->n_ranks, sizeof(*c.from));
    c.polls = tt_new(&boot->mem, boot->n_ranks, sizeof(*c.polls));
    if (!c.from || !c.polls) {
        tt_fail(diag, err, "out of memory for %u ranks", boot->n_ranks);
        goto out;
    }
    err = collect(&c, tt_now_ns() + boot->timeout_ns);
out:
    tt_free(&boot->mem, c.from, boot->n_ranks, sizeof(*c.from));
    tt_free(&boot->mem, c.polls, boot->n_ranks, sizeof(*c.polls));
    return err;
}

/* Rank 0 gives up first and names the rank, so wait a little longer. */
static uint64_t leaf_timeout_ns(const tt_boot *boot)
{
    return boot->timeout_ns + 2 * TT_NS_PER_S;
}

static tutti_err fail_waiting(const tt_boot *boot, tutti_diag *diag)
{
    if (boot->beats)
        return tt_boot_blame(diag, TUTTI_ETIMEOUT, 0,
                             "rank 0 at %s has not been heard of for %.3g s "
                             "during %s (exchange %u); it was stopped, or "
                             "cannot be reached any more",
                             boot->where,
                             (double)leaf_timeout_ns(boot) / TT_NS_PER_S,
                             boot->phase, boot->like.seq);
    return tt_boot_blame(diag, TUTTI_ETIMEOUT, 0,
                         "rank 0 at %s did not finish exchange %u of %s within "
                         "%.3g s",
                         boot->where, boot->like.seq, boot->phase,
                         (double)boot->timeout_ns / TT_NS_PER_S);
}

/* When writing fails rank 0 may have said why before: the next read tells. */
static void put_piece(tt_boot *boot, const void *mine, size_t len,
                      uint64_t deadline_ns)
{
    tt_link_stream *to = &boot->lines[0].link;
    if (tt_boot_put(boot, to, TT_FRAME_DATA, len, deadline_ns) == 0)
        tt_link_write_all(to, mine, len, deadline_ns);
}

/* len bytes from rank 0, of pieces of `each`. */
static tutti_err hear_all(tt_boot *boot, void *bytes, uint64_t len, size_t each,
                          uint64_t deadline_ns, tutti_diag *diag)
{
    tt_frame answer;
    tutti_err err;
    do {
        err = tt_boot_hear(boot, &answer, each, deadline_ns, diag);
        if (!err && answer.kind == TT_FRAME_ALIVE)
            deadline_ns = tt_now_ns() + leaf_timeout_ns(boot);
    } while (!err &&
             (is_off(&answer, &boot->like) || answer.kind == TT_FRAME_ALIVE));
    if (err == TUTTI_ETIMEOUT && diag->text[0] == '\0')
        return fail_waiting(boot, diag);
    if (err)
        return err;
    if (answer.kind != TT_FRAME_ALL || answer.seq != boot->like.seq ||
        answer.len != len)
        return tt_boot_blame(diag, TUTTI_EPROTO, 0,
                             "rank 0 sent something unexpected during %s "
                             "(message %u of %llu bytes in exchange %u)",
                             boot->phase, answer.kind,
                             (unsigned long long)answer.len, answer.seq);
    int why = tt_link_read_all(&boot->lines[0].link, bytes, (size_t)len,
                               deadline_ns);
    if (why == ETIMEDOUT)
        return fail_waiting(boot, diag);
    return why == 0 ? TUTTI_OK : fail_read(boot, why, diag);
}

typedef enum direction {
    TO_ROOT = 1,
    FROM_ROOT = 2,
    BOTH = TO_ROOT | FROM_ROOT
} direction;

/* What comes back: one piece, or those of all. */
static uint64_t back_bytes(const tt_boot *boot, direction how, const piece *p)
{
    return how == FROM_ROOT ? p->len : (uint64_t)boot->n_ranks * p->len;
}

static tutti_err run_root(tt_boot *boot, direction how, const piece *p)
{
    uint64_t deadline_ns = tt_now_ns() + boot->timeout_ns;
    tutti_err err = TUTTI_OK;
    if (how & TO_ROOT)
        err = collect_root(boot, p, &boot->why);
    if (!err && (how & FROM_ROOT))
        err = spread(boot, p->all, back_bytes(boot, how, p), deadline_ns,
                     &boot->why);
    if (err)
        tt_boot_tell(boot, err, &boot->why);
    return err;
}

static tutti_err run_leaf(tt_boot *boot, direction how, const piece *p)
{
    uint64_t deadline_ns = tt_now_ns() + leaf_timeout_ns(boot);
    if (how & TO_ROOT)
        put_piece(boot, p->mine, p->len, deadline_ns);
    if (how & FROM_ROOT)
        return hear_all(boot, p->all, back_bytes(boot, how, p), p->len,
                        deadline_ns, &boot->why);
    return TUTTI_OK;
}

static tutti_err run(tt_boot *boot, direction how, const piece *p,
                     tutti_diag *diag)
{
    tutti_err err = boot->broken;
    if (!err) {
        boot->like.seq++;
        if (p->len > 0 && (how & TO_ROOT) && p->all)
            memmove(p->all + boot->rank * p->stride, p->mine, p->len);
        tt_diag_clear(&boot->why);
        if (boot->n_ranks > 1)
            err = boot->rank == 0 ? run_root(boot, how, p)
                                  : run_leaf(boot, how, p);
        boot->broken = err;
    }
    if (err && diag)
        *diag = boot->why;
    return err;
}

tutti_err tt_boot_exchange(tt_boot *boot, const void *mine, size_t len,
                           void *all, tutti_diag *diag)
{
    const piece p = {mine, all, len, len};
    if (len > TT_BOOT_PIECE_MAX)
        return tt_fail(diag, TUTTI_ELIMIT,
                       "a piece of %zu bytes: start-up exchanges at most %d",
                       len, TT_BOOT_PIECE_MAX);
    return run(boot, BOTH, &p, diag);
}

/* Piece by piece, each with its own time. */
static tutti_err run_pieces(tt_boot *boot, direction how, const piece *whole,
                            tutti_diag *diag)
{
    tutti_err err;
    size_t at = 0;
    do {
        piece p = *whole;
        p.len = whole->len - at < TT_BOOT_PIECE_MAX ? whole->len - at
                                                    : TT_BOOT_PIECE_MAX;
        p.mine = whole->mine ? (const char *)whole->mine + at : NULL;
        p.all = whole->all ? whole->all + at : NULL;
        err = run(boot, how, &p, diag);
        at += p.len;
    } while (!err && at < whole->len);
    return err;
}

tutti_err tt_boot_collect(tt_boot *boot, const void *mine, size_t len,
                          void *all, tutti_diag *diag)
{
    const piece whole = {mine, boot->rank == 0 ? all : NULL, len, len};
    return run_pieces(boot, TO_ROOT, &whole, diag);
}

tutti_err tt_boot_share(tt_boot *boot, void *bytes, size_t len,
                        tutti_diag *diag)
{
    const piece whole = {NULL, bytes, len, 0};
    return run_pieces(boot, FROM_ROOT, &whole, diag);
}

void tt_boot_phase(tt_boot *boot, const char *phase, uint64_t timeout_ns)
{
    boot->phase = phase;
    boot->timeout_ns = timeout_ns;
    boot->beats = false;
}

void tt_boot_beats(tt_boot *boot)
{
    boot->beats = boot->n_ranks > 1;
}

void tt_boot_fail(tt_boot *boot, tutti_err err, const tutti_diag *diag)
{
    if (boot->broken)
        return;
    boot->broken = err;
    boot->why = *diag;
    if (boot->n_ranks > 1)
        tt_boot_tell(boot, err, diag);
}
