/* SPDX-License-Identifier: BSD-3-Clause
 * stranger_test.c - strangers at every door of a job, at every time of its
 * life: none is let in, no call fails, and no byte of a result is another one.
 *
 * The job has four processes of this host, and lives four phases: it starts
 * (one rank is late), it runs collectives, it forms groups, it ends. In each of
 * them the test finds the sockets at which the processes listen, as anybody
 * can, and sends to each every row of the table: every word of the greeting,
 * for every purpose, and messages of every protocol without one; with what a
 * stranger has to prove himself; in every manner. A stranger is let in when he
 * is told more than a refusal, or when nobody hangs up on him.
 *
 * A probe has three processes that say they are hosts, and one more. Strangers
 * come when all listen and nothing is measured yet, and then while it measures.
 *
 * Who sees the wire (replayed) sends again what members have said there, whole.
 * The test sees it where it may (CAP_NET_RAW). Who makes words of his own of
 * what he has seen there is kept out by a secret alone. */
#include "support/tap.h"

#include <errno.h>
#include <linux/filter.h>
#include <math.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>
#include <tutti_partial.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "boot/frame.h"
#include "engine/wire.h"
#include "link/greet.h"
#include "partial/talk.h"
#include "probe/probe.h"
#include "support/doors.h"
#include "support/procs.h"
#include "support/seed.h"
#include "support/ucx.h"

enum {
    RANKS = 4,
    COUNT = 3000,
    MOST_DOORS = 16,
    MOST_GUESTS = 700, /* connections at a time */
    MOST_SAYS = 1024,
    MOST_HEARD = 1024,
    MOST_SEEN = 256
};

typedef enum phase { START, RUNNING, GROUPS, ENDING, PHASES } phase;
static const char *const phase_names[] = {"at the start", "while it runs",
                                          "among groups", "at the end"};

/* ----------------------------------------------------------------- table -- */

/* What a stranger says first: a word of the greeting, ... */
typedef struct word_row {
    const char *name;
    uint8_t kind, purpose, flags;
} word_row;

static const word_row words[] = {
    {"hello of a rank", TT_GREET_HELLO, TT_LINK_RENDEZVOUS, 0},
    {"hello of a peer", TT_GREET_HELLO, TT_LINK_TCP, 0},
    {"hello of a neighbour", TT_GREET_HELLO, TT_LINK_SHM, 0},
    {"hello of a worker", TT_GREET_HELLO, TT_LINK_CONTROLLER, 0},
    {"hello of a peer by ucx", TT_GREET_HELLO, TT_LINK_UCX, 0},
    {"hello of a probe", TT_GREET_HELLO, TT_LINK_PROBE, 0},
    {"a probe's call", TT_GREET_HELLO, TT_LINK_PROBE, TT_GREET_ONE_WAY},
    {"a probe's flow", TT_GREET_HELLO, TT_LINK_PROBE,
     TT_GREET_ONE_WAY | TT_GREET_BARE},
    {"hello without a reply", TT_GREET_HELLO, TT_LINK_TCP, TT_GREET_ONE_WAY},
    {"hello for nothing", TT_GREET_HELLO, TT_LINK_NONE, 0},
    {"hello for what is not yet", TT_GREET_HELLO, 200, 255},
    {"reply", TT_GREET_REPLY, TT_LINK_TCP, 0},
    {"refuse", TT_GREET_REFUSE, TT_LINK_TCP, 0},
    {"taken", TT_GREET_TAKEN, TT_LINK_TCP, 0},
    {"a word that is not yet", 77, TT_LINK_TCP, 0}};
enum { N_WORDS = sizeof(words) / sizeof(*words) };

/* ... or a message of a protocol, behind a word or instead of one. */
typedef enum body {
    NO_BODY,
    BOOT_FRAME, /* each with all its kinds */
    TALK,
    MESSAGE,
    HTTP,
    TLS,
    ZEROS,
    ONES,
    BODIES
} body;

/* What he has to prove himself with. Of a job with a secret he lacks that in
 * any row: tls_test.c has those who prove another one. */
typedef enum proof {
    NONE,
    WRONG,
    FORGED, /* all that is public is right: the job, numbers of ranks */
    PROOFS
} proof;

typedef enum manner {
    WHOLE,
    TWICE,
    TRUNCATED, /* then no more is said */
    CUT,       /* then the connection is */
    SLOW,      /* a few bytes now and then, the first ones one by one */
    REFLECTED, /* what the other side says is said to it */
    MANNERS
} manner;

static char job_name[32];
static uint64_t job_number; /* no secret, where the name is known */
static tt_rng rng;
static bool has_secret; /* the job */
static const uint64_t own_nonces = UINT64_C(0x5eed5eed00000000);

static tt_greet_word word_of(const word_row *row, proof p, uint32_t variant)
{
    tt_greet_word w = {.magic = TT_GREET_MAGIC,
                       .version_min = 1,
                       .version_max = 1,
                       .kind = row->kind,
                       .purpose = row->purpose,
                       .flags = row->flags,
                       .nonce = own_nonces | tt_rng_below(&rng, UINT32_MAX)};
    /* Rank 0, who is here; nobody's number; another number of ranks; and the
     * one that is missing, whose place anybody could take but for a secret. */
    static const tt_boot_said ranks[] = {{0, RANKS, 1},
                                         {RANKS, RANKS, 0},
                                         {RANKS - 1, RANKS + 1, 0},
                                         {RANKS - 1, RANKS, 0}};
    if (p == NONE)
        return w;
    w.job = p == WRONG ? tt_rng_next(&rng) : job_number;
    for (size_t i = 0; i < sizeof(w.token); i++)
        w.token[i] = (uint8_t)tt_rng_next(&rng);
    w.from.bytes[0] = 1;
    w.to.bytes[0] = p == WRONG;
    if (row->purpose == TT_LINK_RENDEZVOUS)
        memcpy(w.said, &ranks[variant % (has_secret ? 4 : 3)],
               sizeof(ranks[0]));
    else
        w.said[0] = (uint8_t)(variant % RANKS), w.said[4] = 1;
    return w;
}

static size_t put_body(body b, uint32_t variant, unsigned char *out)
{
    const tt_frame frame = {.magic = TT_FRAME_MAGIC,
                            .version = TT_FRAME_VERSION,
                            .kind = (uint8_t)(variant % 10),
                            .job = job_number,
                            .len = variant % 2 ? UINT64_MAX : 0,
                            .rank = variant % RANKS,
                            .n_ranks = RANKS,
                            .seq = 1};
    tt_talk talk = tt_talk_head((tt_talk_kind)(variant % 20), variant, 0);
    const tt_msg message = {.magic = TT_MSG_MAGIC,
                            .kind = (uint8_t)(variant % 15),
                            .comm = variant};
    static const char http[] = "GET / HTTP/1.1\r\nHost: you\r\n\r\n";
    static const unsigned char tls[] = {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3};
    const struct {
        const void *bytes;
        size_t len;
    } bodies[] = {[BOOT_FRAME] = {&frame, sizeof(frame)},
                  [TALK] = {&talk, sizeof(talk)},
                  [MESSAGE] = {&message, sizeof(message)},
                  [HTTP] = {http, sizeof(http) - 1},
                  [TLS] = {tls, sizeof(tls)}};
    if (b == NO_BODY)
        return 0;
    if (b == ZEROS || b == ONES) {
        memset(out, b == ZEROS ? 0 : 255, 300);
        return 300;
    }
    memcpy(out, bodies[b].bytes, bodies[b].len);
    return bodies[b].len;
}

/* ---------------------------------------------------------------- guests -- */

typedef struct guest {
    int fd; /* -1: none */
    manner manner;
    unsigned char says[MOST_SAYS], heard[MOST_HEARD];
    size_t len, said, n_heard, pace;
    bool answers;  /* he goes on as a member would, when he is greeted */
    char name[96]; /* of the row */
} guest;

static guest *guests;
static size_t n_guests, n_ever, n_let_in;
static uint64_t patience_ns;

static bool is_refusal(const unsigned char *at, size_t left)
{
    const size_t alert = 7; /* of TLS: whole, and nothing behind it */
    uint32_t magic = 0;
    if (left < sizeof(magic) || (left == alert && at[0] == 0x15))
        return true;
    memcpy(&magic, at, sizeof(magic));
    if (magic == TT_FRAME_MAGIC)
        return left < sizeof(tt_frame) || at[6] == TT_FRAME_ERROR;
    return magic == TT_TALK_MAGIC &&
           (left < sizeof(tt_talk) || at[6] == TT_TALK_REFUSE);
}

/* He may be greeted where the listener asks for no proof yet; what comes then
 * must be a refusal. */
static void judge(const guest *g)
{
    size_t at = 0;
    uint32_t magic = TT_GREET_MAGIC;
    while (g->n_heard - at >= sizeof(tt_greet_word) &&
           memcmp(g->heard + at, &magic, sizeof(magic)) == 0)
        at += sizeof(tt_greet_word);
    if (is_refusal(g->heard + at, g->n_heard - at))
        return;
    n_let_in++;
    fprintf(stderr, "let in: %s\n", g->name);
}

static void end_guest(guest *g)
{
    judge(g);
    close(g->fd);
    g->fd = -1;
}

/* The last word, as it should be, and what he had in mind. */
static void answer(guest *g)
{
    tt_greet_word reply, taken;
    if (!g->answers || g->n_heard < sizeof(reply))
        return;
    g->answers = false;
    memcpy(&reply, g->heard, sizeof(reply));
    memcpy(&taken, g->says, sizeof(taken));
    if (reply.kind != TT_GREET_REPLY)
        return;
    taken.kind = TT_GREET_TAKEN;
    memset(taken.token, 0, sizeof(taken.token));
    memcpy(taken.said, reply.said, sizeof(taken.said));
    send(g->fd, &taken, sizeof(taken), MSG_NOSIGNAL | MSG_DONTWAIT);
    send(g->fd, g->says + sizeof(taken), g->len - sizeof(taken),
         MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void hear(guest *g)
{
    unsigned char more[512];
    for (;;) {
        ssize_t n = recv(g->fd, more, sizeof(more), MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            end_guest(g);
            return;
        }
        size_t room = sizeof(g->heard) - g->n_heard;
        size_t keeps = (size_t)n < room ? (size_t)n : room;
        memcpy(g->heard + g->n_heard, more, keeps);
        g->n_heard += keeps;
        answer(g);
        if (g->manner == REFLECTED)
            send(g->fd, more, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Another number of bytes for each, so that something is cut at every byte. */
static size_t slowly(const guest *g)
{
    size_t end = g->said + (g->said < 4 ? 1 : g->pace);
    return end < g->len ? end : g->len - 1;
}

static void speak(guest *g)
{
    size_t end = g->answers ? sizeof(tt_greet_word) : g->len;
    if (g->manner == TRUNCATED || g->manner == CUT)
        end = g->len / 2;
    else if (g->manner == SLOW)
        end = slowly(g);
    while (g->said < end) {
        ssize_t n = send(g->fd, g->says + g->said, end - g->said,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            return;
        g->said += (size_t)n;
    }
}

static size_t n_here(void)
{
    size_t n = 0;
    for (size_t i = 0; i < n_guests; i++)
        n += guests[i].fd >= 0;
    return n;
}

/* Hears all of them until so few are left. */
static void attend(size_t most)
{
    struct pollfd polls[MOST_GUESTS];
    uint64_t until = tt_now_ns() + patience_ns;
    while (n_here() > most && tt_now_ns() < until) {
        for (size_t i = 0; i < n_guests; i++)
            polls[i] = (struct pollfd){.fd = guests[i].fd, .events = POLLIN};
        poll(polls, n_guests, 20);
        for (size_t i = 0; i < n_guests; i++) {
            if (guests[i].fd >= 0 && polls[i].revents)
                hear(&guests[i]);
            if (guests[i].fd >= 0 && guests[i].manner == SLOW)
                speak(&guests[i]);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < n_guests; i++)
        if (guests[i].fd >= 0)
            guests[kept++] = guests[i];
    n_guests = kept;
    if (kept <= most)
        return;
    n_let_in += kept;
    fprintf(stderr, "nobody hangs up on %zu strangers; on: %s\n", kept,
            guests[0].name);
}

static guest *begin(const tt_door_found *door, manner m, const char *name)
{
    if (n_guests == MOST_GUESTS)
        attend(MOST_GUESTS / 2);
    if (n_guests == MOST_GUESTS)
        return NULL;
    int fd = tt_doors_knock(door);
    if (fd < 0)
        return NULL; /* it has been closed */
    guest *g = &guests[n_guests++];
    *g = (guest){.fd = fd, .manner = m, .pace = 3 + n_ever % 13};
    snprintf(g->name, sizeof(g->name), "%s", name);
    n_ever++;
    return g;
}

static void say(guest *g, const void *bytes, size_t len)
{
    memcpy(g->says + g->len, bytes, len);
    g->len += len;
}

/* All is there that he says. */
static void go(guest *g)
{
    speak(g);
    if (g->manner == TRUNCATED)
        shutdown(g->fd, SHUT_WR);
    if (g->manner == CUT) {
        const struct linger now = {.l_onoff = 1};
        setsockopt(g->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        end_guest(g);
        n_guests -= g == &guests[n_guests - 1];
    }
}

/* ------------------------------------------------------------- the wire -- */

typedef struct seen_word {
    uint16_t port; /* to which it was said */
    tt_greet_word word;
} seen_word;

static seen_word seen[MOST_SEEN];
static size_t n_seen, n_replayed;

/* Short packets of this host's own; -1: it may not be looked at. */
static int open_wire(void)
{
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 400, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, 0xffff)};
    const struct sock_fprog filter = {4, code};
    int size = 8 << 20;
    int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const struct sockaddr_ll lo = {.sll_family = AF_PACKET,
                                   .sll_protocol = htons(ETH_P_IP),
                                   .sll_ifindex = (int)if_nametoindex("lo")};
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
    if (bind(fd, (const struct sockaddr *)&lo, sizeof(lo)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void look_at(const unsigned char *packet, size_t len)
{
    size_t ip = (size_t)(packet[0] & 15) * 4;
    if (len < ip + 20 || packet[9] != 6)
        return;
    size_t at = ip + (size_t)(packet[ip + 12] >> 4) * 4;
    seen_word *s = &seen[n_seen];
    if (len < at + sizeof(s->word) || n_seen == MOST_SEEN)
        return;
    memcpy(&s->word, packet + at, sizeof(s->word));
    s->port = (uint16_t)(packet[ip + 2] << 8 | packet[ip + 3]);
    bool is_new = s->word.magic == TT_GREET_MAGIC &&
                  s->word.kind == TT_GREET_HELLO &&
                  s->word.nonce >> 32 != own_nonces >> 32;
    for (size_t i = 0; i < n_seen; i++)
        is_new &= seen[i].word.nonce != s->word.nonce;
    n_seen += is_new;
}

static void watch_wire(int fd)
{
    unsigned char packet[512];
    ssize_t n;
    while (fd >= 0 && (n = recv(fd, packet, sizeof(packet), 0)) > 0)
        look_at(packet, (size_t)n);
}

/* All that was said there by members: hello, the last word, and then something
 * of each kind that may follow. */
static void replay(const tt_door_found *door)
{
    for (size_t i = 0; i < n_seen && !door->is_unix; i++) {
        unsigned char more[MOST_SAYS];
        tt_greet_word taken = seen[i].word;
        if (seen[i].port != ntohs(door->to.v4.sin_port))
            continue;
        guest *g = begin(door, i % 8 == 7 ? TWICE : WHOLE,
                         "a member's replayed");
        if (!g)
            return;
        taken.kind = TT_GREET_TAKEN;
        memset(taken.token, 0, sizeof(taken.token));
        for (int k = g->manner == TWICE; k >= 0; k--) {
            say(g, &seen[i].word, sizeof(taken));
            say(g, &taken, sizeof(taken));
        }
        say(g, more, put_body(MESSAGE, (uint32_t)i, more));
        go(g);
        n_replayed++;
    }
}

/* ---------------------------------------------------------------- attack -- */

static void try_word(const tt_door_found *door, uint32_t w, proof p, manner m)
{
    static const char *const proofs[] = {"no proof", "wrong", "forged"};
    static const char *const manners[] = {"whole",   "twice", "truncated",
                                          "cut off", "slow",  "reflected"};
    static uint32_t variant;
    unsigned char more[MOST_SAYS];
    char name[96];
    snprintf(name, sizeof(name), "%s, %s, %s", words[w].name, proofs[p],
             manners[m]);
    tt_greet_word word = word_of(&words[w], p, ++variant);
    guest *g = begin(door, m, name);
    if (!g)
        return;
    for (int i = m == TWICE; i >= 0; i--)
        say(g, &word, sizeof(word));
    g->answers = p == FORGED && m == WHOLE;
    if (words[w].kind == TT_GREET_HELLO && !g->answers) {
        word.kind = TT_GREET_TAKEN;
        memset(word.token, 0, sizeof(word.token));
        say(g, &word, sizeof(word));
    }
    say(g, more, put_body((body)(variant % BODIES), variant, more));
    go(g);
}

static void try_body(const tt_door_found *door, body b, uint32_t variant,
                     manner m)
{
    unsigned char more[MOST_SAYS];
    guest *g = begin(door, m, "a message without a greeting");
    if (!g)
        return;
    for (int i = m == TWICE; i >= 0; i--)
        say(g, more, put_body(b, variant, more));
    go(g);
}

static void try_all(const tt_door_found *door, uint32_t each)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < N_WORDS; w++)
        for (int p = 0; p < PROOFS; p++)
            for (int m = 0; m < MANNERS; m++)
                if (each == 0 || n++ % each == w % each)
                    try_word(door, w, (proof)p, (manner)m);
    for (int b = NO_BODY + 1; b < BODIES; b++)
        for (uint32_t v = 0; v < (b <= MESSAGE ? 20 : 1); v++)
            try_body(door, (body)b, v, (manner)((uint32_t)b + v) % MANNERS);
    if (!begin(door, TRUNCATED, "silence"))
        return;
    begin(door, SLOW, "silence")->len = 1;
}

static size_t find_doors(const pid_t *pids, int n, tt_door_found *doors)
{
    size_t found = 0;
    for (int r = 0; r < n; r++)
        found += tt_doors_find(pids[r], doors + found, MOST_DOORS - found);
    return found;
}

/* ------------------------------------------------------------------- job -- */

typedef struct plot {
    const char *transports, *address, *secret;
    const char *controller;       /* of its own process; NULL: in rank 0's */
    pid_t controller_pid;         /* 0: none */
    bool is_probe;                /* START and ENDING, of a probe */
    uint32_t tries_each;          /* only one of so many words; 0: all */
    atomic_int n_reached[PHASES]; /* ranks */
    atomic_bool is_over[PHASES];  /* the strangers have done what they can */
    int wire;
    size_t n_doors[PHASES];
} plot;

static void reach(plot *p, phase at)
{
    atomic_fetch_add(&p->n_reached[at], 1);
}

static int fails(int rank, const char *what, tutti_err err, const char *text)
{
    return err ? tt_procs_complain(rank, "%s: %s: %s", what, tutti_errname(err),
                                   text)
               : 0;
}

/* Every result is looked at, byte by byte, until all have seen that it is
 * over. */
static int run_calls(plot *story, tutti_comm *comm, int rank)
{
    static int32_t x[COUNT], y[COUNT];
    bool is_over = false;
    for (int32_t step = 1; !is_over; step++) {
        if (step == 5) /* connections are made when they are needed */
            reach(story, RUNNING);
        for (int32_t i = 0; i < COUNT; i++)
            x[i] = rank * 1000 + i * step;
        x[0] = !atomic_load(&story->is_over[RUNNING]);
        tutti_err err = tutti_all_reduce(comm, x, y, COUNT, TUTTI_I32,
                                         TUTTI_SUM, NULL, NULL);
        if (err)
            return fails(rank, "all-reduce", err, tutti_comm_message(comm));
        for (int32_t i = 1; i < COUNT; i++)
            if (y[i] != RANKS * (RANKS - 1) / 2 * 1000 + RANKS * i * step)
                return tt_procs_complain(rank, "a wrong sum in call %d", step);
        is_over = y[0] == 0;
    }
    return 0;
}

static int check_mean(tutti_partial *p, const double *x, int rank)
{
    tutti_partial_group g;
    double mean = 0;
    if (tutti_partial_group_of(p, &g))
        return tt_procs_complain(rank, "no group");
    for (uint32_t i = 0; i < g.n; i++)
        mean += g.members[i].weight * g.members[i].worker * 100;
    for (int i = 0; i < COUNT; i++)
        if (fabs(x[i] - mean - i % 13) > 1e-9)
            return tt_procs_complain(rank, "element %d is %g, not %g", i, x[i],
                                     mean + i % 13);
    return 0;
}

static int run_groups(plot *story, tutti_comm *comm, int rank)
{
    static double x[COUNT];
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    tutti_partial *p = NULL;
    o.group_size = 2;
    tutti_err err = story->controller
                        ? tutti_partial_join(story->controller, rank, &o, &p)
                        : tutti_partial_open(comm, &o, &p);
    if (err)
        return fails(rank, "open", err, tutti_last_message());
    bool is_last = false;
    for (uint64_t step = 1; !err && !is_last; step++) {
        if (step == 20)
            reach(story, GROUPS);
        is_last = atomic_load(&story->is_over[GROUPS]);
        for (int i = 0; i < COUNT; i++)
            x[i] = rank * 100 + i % 13;
        err = tutti_partial_announce(p, step, is_last, NULL, NULL);
        if (!err)
            err = tutti_partial_reduce(p, x, COUNT, TUTTI_F64, NULL, NULL);
        if (!err)
            err = tutti_partial_commit(p, NULL, NULL);
        if (!err && check_mean(p, x, rank))
            return 1;
    }
    reach(story, ENDING);
    if (err)
        return fails(rank, "group", err, tutti_partial_message(p));
    while (!atomic_load(&story->is_over[ENDING]))
        usleep(2000);
    tutti_partial_close(p);
    return 0;
}

static int be_rank(int rank, int n, void *arg)
{
    plot *story = arg;
    tutti_comm *comm;
    setenv("TUTTI_JOB", job_name, 1);
    if (story->address)
        setenv("TUTTI_ADDR", story->address, 1);
    if (story->secret)
        setenv("TUTTI_SECRET_FILE", story->secret, 1);
    reach(story, START);
    while (rank == n - 1 && !atomic_load(&story->is_over[START]))
        usleep(2000);
    tutti_err err = tutti_comm_create(NULL, &comm);
    if (err)
        return fails(rank, "start", err, tutti_last_message());
    int failed = run_calls(story, comm, rank) || run_groups(story, comm, rank);
    tutti_comm_destroy(comm);
    return failed;
}

/* As `tutti controller` does. */
static pid_t begin_controller(const plot *story)
{
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    tutti_controller *c;
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    setenv("TUTTI_SECRET_FILE", story->secret, 1);
    o.group_size = 2;
    if (tutti_controller_open(story->controller, RANKS, &o, &c)) {
        fprintf(stderr, "controller: %s\n", tutti_last_message());
        _exit(1);
    }
    while (tutti_controller_wait(c, 1) == TUTTI_AGAIN && getppid() != 1)
        continue;
    tutti_controller_close(c);
    _exit(0);
}

/* ----------------------------------------------------------------- probe -- */

typedef struct prober {
    plot *story;
    tt_boot *boot;
} prober;

/* Rank 0 is told how far the probe is, and keeps the others waiting. */
static void hold(void *ctx, const char *what, uint64_t percent, uint64_t of)
{
    const prober *me = ctx;
    const phase at = percent < 10 ? START : ENDING;
    (void)what, (void)of;
    if (percent == 0)
        return; /* nobody listens yet */
    atomic_store(&me->story->n_reached[at], RANKS);
    while (!atomic_load(&me->story->is_over[at])) {
        tt_boot_alive(me->boot);
        usleep(2000);
    }
}

static tutti_err probe(int rank, int n, plot *story, tt_trust *trust,
                       tutti_diag *diag)
{
    tt_settings settings = {.start_timeout_ns = 60 * TT_NS_PER_S};
    tt_launch launch = {.rank = (uint32_t)rank, .n_ranks = (uint32_t)n};
    tt_host_id id = {.boot_id = {1}, .netns = (uint64_t)rank % 3, .name = "h"};
    tt_iface own = {.prefix = 24, .order = TT_IFACE_ORDINARY, .name = "lo"};
    prober me = {.story = story};
    tt_probe *p = NULL;
    char address[32];
    snprintf(launch.job, sizeof(launch.job), "%s", job_name);
    snprintf(address, sizeof(address), "127.0.1.%d", 1 + rank % 3);
    tt_addr_numeric(address, 0, &own.addr);
    tutti_err err = tt_boot_open(&launch, &settings, &tt_mem_std,
                                 tt_now_ns() + settings.start_timeout_ns,
                                 &me.boot, diag);
    if (err)
        return err;
    const tt_probe_job job = {.mem = &tt_mem_std,
                              .boot = me.boot,
                              .rank = launch.rank,
                              .n_ranks = launch.n_ranks,
                              .settings = &settings,
                              .trust = trust,
                              .time_ns = 300 * TT_NS_PER_S,
                              .progress = hold,
                              .progress_ctx = &me,
                              .id = &id,
                              .ifaces = &own,
                              .n_ifaces = 1};
    err = tt_probe_run(&job, &p, diag);
    if (!err && rank == 0 && tt_probe_topology(p)->n_ranks != launch.n_ranks)
        err = tt_fail(diag, TUTTI_EPROTO, "it has not found all ranks");
    tt_probe_free(p);
    tt_boot_close(me.boot);
    return err;
}

static int be_prober(int rank, int n, void *arg)
{
    plot *story = arg;
    tt_trust *trust;
    tutti_diag diag;
    const tt_trust_opts has = {.secret_file = story->secret};
    tutti_err err = tt_trust_open(&has, &trust, &diag);
    if (!err)
        err = probe(rank, n, story, trust, &diag);
    tt_trust_close(trust);
    return fails(rank, "probe", err, diag.text);
}

/* ------------------------------------------------------------------ plot -- */

static void attack(plot *p, phase at, const pid_t *pids, int n)
{
    tt_door_found doors[MOST_DOORS];
    size_t n_doors = find_doors(pids, n, doors);
    if (p->controller_pid > 0)
        n_doors += tt_doors_find(p->controller_pid, doors + n_doors,
                                 MOST_DOORS - n_doors);
    if (n_doors == 0 || p->n_doors[at] > 0)
        return; /* not yet; enough */
    p->n_doors[at] = n_doors;
    if (at == ENDING) /* they end meanwhile */
        atomic_store(&p->is_over[at], true);
    for (size_t i = 0; i < n_doors; i++) {
        try_all(&doors[i], p->tries_each);
        replay(&doors[i]);
    }
    attend(0);
    atomic_store(&p->is_over[at], true);
}

static void watch(const pid_t *pids, int n, double seconds, void *arg)
{
    plot *p = arg;
    (void)seconds;
    watch_wire(p->wire);
    for (int at = 0; at < PHASES; at++) {
        int reached = atomic_load(&p->n_reached[at]);
        if (reached == n)
            attack(p, (phase)at, pids, n);
    }
}

static void tell(const plot *p)
{
    for (int i = 0; i < PHASES; i++)
        printf("# %s: %zu doors\n", phase_names[i], p->n_doors[i]);
    printf("# %zu strangers, %zu of them by what was seen on the wire\n",
           n_ever, n_replayed);
}

static void attack_all(const plot *by)
{
    int status[RANKS], ended = 0;
    plot *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    guests = calloc(MOST_GUESTS, sizeof(*guests));
    assert_true(p != MAP_FAILED && guests);
    rng.state = tt_test_seed(1);
    snprintf(job_name, sizeof(job_name), "strangers-%d", (int)getpid());
    job_number = tt_fnv1a(TT_FNV1A_START, job_name, strlen(job_name));
    *p = *by;
    has_secret = p->secret != NULL;
    if (p->controller)
        p->controller_pid = begin_controller(p);
    /* Without a secret a probe trusts who sees its wire: its calls are one way,
     * so the other side cannot say what must come back. */
    p->wire = p->is_probe && !has_secret ? -1 : open_wire();
    n_seen = n_replayed = n_ever = n_let_in = n_guests = 0;
    patience_ns = 120 * TT_NS_PER_S;
    const tt_procs procs = {.n = RANKS,
                            .timeout_s = 500,
                            .transports = p->transports,
                            .run = p->is_probe ? be_prober : be_rank,
                            .arg = p,
                            .watch = watch};
    assert_true(tt_procs_run(&procs, status));
    tell(p);
    assert_int_equal(tt_procs_failures(status, RANKS), 0);
    assert_int_equal(n_let_in, 0);
    if (p->controller_pid > 0)
        waitpid(p->controller_pid, &ended, 0);
    assert_int_equal(ended, 0);
    for (int i = 0; i < PHASES; i++)
        if (!p->is_probe || i == START || i == ENDING)
            assert_true(p->n_doors[i] > 0);
    if (p->wire >= 0)
        close(p->wire);
    free(guests);
    munmap(p, sizeof(*p));
}

static const char *free_place(char *where, size_t size)
{
    tt_addr any;
    assert_true(tt_addr_numeric("127.0.0.1", 0, &any));
    int fd = tt_link_bind(&any, 8);
    snprintf(where, size, "127.0.0.1:%u", tt_sock_port(fd));
    close(fd);
    return where;
}

static void test_tcp(void **state)
{
    (void)state;
    char where[64];
    attack_all(&(plot){.transports = "tcp",
                       .address = free_place(where, sizeof(where))});
}

static void test_unix(void **state)
{
    (void)state;
    attack_all(&(plot){.transports = NULL});
}

/* UCX's own sockets are none of these: it talks by memory here. */
static void test_ucx(void **state)
{
    (void)state;
    char where[64];
    if (tt_ucx_use(TT_UCX_BY_SHM))
        skip();
    attack_all(&(plot){.transports = "ucx",
                       .address = free_place(where, sizeof(where)),
                       .tries_each = 4});
}

/* A new file, of this name. */
static void write_secret(char *path)
{
    static const char line[] =
        "a-secret-of-more-than-32-letters-and-no-space\n";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, line, sizeof(line) - 1), sizeof(line) - 1);
    close(fd);
}

/* Nobody gets so far that he is greeted. The controller is a process of its
 * own. */
static void test_secret(void **state)
{
    (void)state;
    char where[64], there[64], path[] = "/tmp/tutti-stranger-XXXXXX";
    if (!TT_HAVE_OPENSSL)
        skip();
    write_secret(path);
    attack_all(&(plot){.transports = "tcp",
                       .address = free_place(where, sizeof(where)),
                       .secret = path,
                       .controller = free_place(there, sizeof(there))});
    unlink(path);
}

static void test_probe(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-stranger-XXXXXX";
    attack_all(&(plot){.is_probe = true, .tries_each = 4});
    if (!TT_HAVE_OPENSSL)
        return;
    write_secret(path);
    attack_all(&(plot){.is_probe = true, .tries_each = 4, .secret = path});
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp),    cmocka_unit_test(test_unix),
        cmocka_unit_test(test_secret), cmocka_unit_test(test_ucx),
        cmocka_unit_test(test_probe),
    };
    tt_test_limit(1200);
    return TT_RUN_TAP(tests);
}
