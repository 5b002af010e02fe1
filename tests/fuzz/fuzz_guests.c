/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_guests.c - guests at a listener of the link thread, who come, say any
 * bytes, in any pieces, and go, while this side dials as well; by a unix
 * socket, by TCP, or by TCP where a secret or a certificate is asked for, which
 * some of them have. By TCP some are passed on, to the same listener. Property:
 * who has arrived has proved itself, has said a right greeting and the last
 * word, or a greeting that needs none; nobody who wants to be passed on
 * arrives; and everything can be closed at any time. The thread's turns fall as
 * they will.
 *
 * Input: actions of two bytes, and what is said; see act(). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "link/greet.h"
#include "link/seal.h"
#include "support/fuzz_main.h"
#include "support/trusts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { GUESTS = 6, DIALS = 3, MOST_SAID = 512, ACTIONS = 64 };

typedef struct visit {
    unsigned char said[MOST_SAID];
    size_t n_said;
    uint64_t nonce;             /* as it has heard it */
    bool is_foreign, has_proof; /* its secret; ours has been shown */
} visit;

typedef struct guest {
    tt_link_stream s; /* fd -1: not here */
    visit *visit;
} guest;

typedef struct stage {
    tt_link_box *box;
    tt_link_listener *listener;
    tt_greet_terms terms;
    tt_addr at;
    tt_trust *trust; /* NULL: none is asked for */
    tt_trust **proofs;
    bool is_bare;
    guest guests[GUESTS];
    visit visits[ACTIONS];
    size_t n_visits;
    tt_link_dial *dials[DIALS];
    uint64_t n_passes; /* that were asked for */
    const uint8_t *data;
    size_t len;
} stage;

/* By secrets, by certificates: ours, and that of others. NULL: there is no
 * OpenSSL. */
static tt_trust *trusts[2][2];

static void say_nothing(void *arg, tutti_log_level level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

static void make_trusts(void)
{
    static const char one[] = "one-0123456789-0123456789-0123456789";
    static const char two[] = "two-0123456789-0123456789-0123456789";
    const tt_trust_opts o[2] = {
        {.secret = (const uint8_t *)one, .n_secret = sizeof(one)},
        {.secret = (const uint8_t *)two, .n_secret = sizeof(two)}};
    tutti_log_set(say_nothing, NULL); /* who is sent away */
    for (int i = 0; TT_HAVE_OPENSSL && i < 2; i++) {
        if (tt_trust_open(&o[i], &trusts[0][i], NULL))
            tt_fuzz_fail("no secrets");
        trusts[1][i] = tt_test_by_cert(true, 86400);
    }
}

/* To itself, straight and by way of itself. */
static void pass_on(stage *s)
{
    const tt_link_way ways[2] = {
        {.to = s->at}, {.to = s->at, .is_via = true, .via = s->terms.self}};
    const tt_link_far far = {
        .at = &s->at, .n_at = 1, .ways = ways, .n_ways = 2};
    s->terms.purposes |= TT_LINK_FOR(TT_LINK_PASS);
    tt_link_listener_pass(s->listener);
    if (tt_link_book_set(s->box, &far, 1))
        tt_fuzz_fail("no memory");
}

/* Bits 0, 2: a job, a token; 3: few may wait; 4: by TCP; 5: a secret; 6: plain
 * text after it; 7: certificates in place of a secret. */
static void set_up(stage *s, uint8_t kind)
{
    tt_link_card card;
    bool is_nest = !(kind & 48);
    s->proofs = trusts[kind >> 7];
    s->terms = (tt_greet_terms){.purposes = TT_LINK_FOR(TT_LINK_TCP) |
                                            TT_LINK_FOR(TT_LINK_PROBE),
                                .self = {{7}},
                                .job = kind & 1 ? 5 : 0,
                                .has_token = kind & 4,
                                .token = {1, 2, 3}};
    tt_link_listen_opts o = {.purposes = s->terms.purposes,
                             .self = s->terms.self,
                             .job = s->terms.job,
                             .has_token = s->terms.has_token,
                             .trust = kind & 32 ? s->proofs[0] : NULL,
                             .is_bare = (kind & 96) == 96,
                             .is_nest = is_nest,
                             .is_local = !is_nest,
                             .most_waiting = kind & 8 ? 2 : 0};
    memcpy(o.token, s->terms.token, sizeof(o.token));
    if (tt_link_box_open(&tt_mem_std, &s->box, NULL) ||
        tt_link_listen(s->box, &o, &s->listener, NULL, NULL))
        tt_fuzz_fail("nothing to listen with");
    s->trust = o.trust;
    s->is_bare = o.is_bare && o.trust;
    tt_link_card_of(s->listener, &card);
    if (is_nest)
        tt_link_card_nest(&card, &s->at);
    else
        tt_addr_numeric("127.0.0.1", tt_link_listener_port(s->listener, 0),
                        &s->at);
    for (int i = 0; i < GUESTS; i++)
        s->guests[i].s.fd = -1;
    if (!is_nest)
        pass_on(s);
}

static void go(guest *g)
{
    tt_link_stream_close(&g->s);
    g->s.fd = -1;
}

static void come(stage *s, guest *g)
{
    if (g->s.fd >= 0)
        return;
    g->visit = &s->visits[s->n_visits++];
    int fd = socket(s->at.u.sa.sa_family,
                    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    tt_fork_watch(fd);
    tt_link_stream_open(&g->s, fd);
    if (connect(fd, &s->at.u.sa, s->at.len) != 0 && errno != EINPROGRESS)
        go(g);
}

/* Puts on the seal, or goes on with it, as far as that goes now. */
static void shake(stage *s, guest *g, uint8_t arg)
{
    tt_link_why why;
    tt_seal_step step = TT_SEAL_WAITS;
    if (g->s.fd < 0 || !s->proofs[0] || (g->visit->n_said > 0 && !g->s.layer))
        return;
    if (!g->s.layer && !tt_seal_begin(&g->s, s->proofs[arg & 1], true, 0))
        tt_fuzz_fail("no memory");
    for (int i = 0; i < 8 && step == TT_SEAL_WAITS; i++) {
        step = tt_seal_shake(&g->s, &why);
        tt_link_box_settle(s->box);
    }
    g->visit->has_proof = step == TT_SEAL_DONE;
    if (step == TT_SEAL_DONE && g->visit->is_foreign)
        tt_fuzz_fail("another secret is taken");
    if (step == TT_SEAL_FAILED)
        go(g);
}

static void say(guest *g, const void *bytes, size_t n)
{
    visit *v = g->visit;
    if (g->s.fd < 0 || (g->s.layer && !v->has_proof))
        return;
    size_t room = sizeof(v->said) - v->n_said;
    n = n < room ? n : room;
    const struct iovec iov = {(void *)(uintptr_t)bytes, n};
    if (n == 0 || tt_link_send(&g->s, &iov, 1) != (ssize_t)n)
        return;
    memcpy(v->said + v->n_said, bytes, n);
    v->n_said += n;
}

/* What the listener has told it to repeat. */
static uint64_t hear_nonce(const guest *g)
{
    tt_greet_word reply;
    const struct iovec iov = {&reply, sizeof(reply)};
    tt_link_stream s = g->s;
    if (s.fd >= 0 && (!s.layer || g->visit->has_proof) &&
        tt_link_recv(&s, &iov, 1) == sizeof(reply))
        memcpy(&g->visit->nonce, reply.said, sizeof(g->visit->nonce));
    return g->visit ? g->visit->nonce : 0;
}

static tt_greet_word hello_of(const stage *s, uint32_t me, uint8_t kind)
{
    tt_greet_word w = {.magic = TT_GREET_MAGIC,
                       .version_min = 1,
                       .version_max = 1,
                       .kind = kind,
                       .flags = s->is_bare ? TT_GREET_BARE : 0,
                       .purpose = me % 2 ? TT_LINK_PROBE : TT_LINK_TCP,
                       .job = s->terms.job,
                       .nonce = me,
                       .from = {{me < 3 ? 3 : 9}},
                       .to = s->terms.self};
    memcpy(w.token, s->terms.token, sizeof(w.token));
    return w;
}

/* As the input says. */
static void change(stage *s, tt_greet_word *w)
{
    for (; s->len >= 2 && s->data[0] < sizeof(*w); s->data += 2, s->len -= 2)
        ((uint8_t *)w)[s->data[0]] = s->data[1];
    if (s->len > 0)
        s->data++, s->len--;
}

/* The listener would let it in, but for what the input changes. */
static tt_greet_word right_word(stage *s, uint32_t me, uint8_t kind)
{
    tt_greet_word w = hello_of(s, me, kind);
    uint64_t nonce = hear_nonce(&s->guests[me]);
    if (kind == TT_GREET_TAKEN)
        memcpy(w.said, &nonce, sizeof(nonce));
    else
        w.said[0] = (uint8_t)me;
    change(s, &w);
    return w;
}

/* Asks to be passed on, but for what the input changes. */
static tt_greet_word pass_word(stage *s, uint32_t me)
{
    tt_greet_pass pass = {.first = {{3}},
                          .number = ++s->n_passes,
                          .ip = {127, 0, 0, 1},
                          .family = 4};
    if (s->at.u.sa.sa_family == AF_INET)
        pass.port = ntohs(s->at.u.v4.sin_port);
    tt_greet_word w = hello_of(s, me, TT_GREET_HELLO);
    w.purpose = TT_LINK_PASS;
    w.flags = TT_GREET_BARE;
    memcpy(w.said, &pass, sizeof(w.said));
    change(s, &w);
    return w;
}

static void begin_dial(stage *s, uint8_t which)
{
    tt_link_way way = {.to = s->at};
    const tt_link_dial_opts o = {.purpose = TT_LINK_TCP,
                                 .self = s->terms.self,
                                 .to = {{which & 1 ? 3 : 7}},
                                 .job = s->terms.job,
                                 .token = {which & 2 ? 0 : 1, 2, 3},
                                 .ways = &way,
                                 .n_ways = 1,
                                 .is_one_way = which & 4,
                                 .trust = which & 8 ? s->proofs[1] : s->trust,
                                 .is_bare = s->is_bare != !!(which & 16),
                                 .deadline_ns = tt_now_ns() + TT_NS_PER_S};
    tt_link_dial **d = &s->dials[which % DIALS];
    tt_link_dial_end(*d);
    *d = NULL;
    if (tt_link_dial_begin(s->box, &o, d, NULL))
        tt_fuzz_fail("no dial");
}

/* Did it greet right, as the one that has arrived, and say the last word? From
 * byte `at` of what it has said. */
static bool is_of(const stage *s, const visit *v, size_t at,
                  const tt_link_event *e)
{
    tt_greet_word hello, taken;
    uint32_t version;
    const unsigned char *said = v->said + at;
    const size_t n_said = v->n_said - at;
    if (n_said < sizeof(hello))
        return false;
    memcpy(&hello, said, sizeof(hello));
    memset(&taken, 0, sizeof(taken));
    if (n_said >= 2 * sizeof(hello))
        memcpy(&taken, said + sizeof(hello), sizeof(taken));
    const bool is_way = hello.flags & TT_GREET_ONE_WAY;
    if (hello.purpose == TT_LINK_PASS && !s->trust) { /* and then to the end */
        const size_t n = (is_way ? 1 : 2) * sizeof(hello);
        return n_said >= n && is_of(s, v, at + n, e);
    }
    return (v->has_proof || !s->trust) &&
           memcmp(hello.said, e->who.said, sizeof(hello.said)) == 0 &&
           tt_link_id_compare(&hello.from, &e->who.id) == 0 &&
           tt_greet_judge(&hello, &s->terms, &version) == TT_LINK_WELL &&
           (is_way || (n_said >= 2 * sizeof(hello) &&
                       tt_greet_is_taken(&taken, &hello, v->nonce)));
}

static void check(const stage *s, const tt_link_event *e)
{
    bool is_right = e->kind != TT_LINK_ARRIVED ||
                    /* our own dial's */
                    tt_link_id_compare(&e->who.id, &s->terms.self) == 0;
    for (size_t i = 0; i < s->n_visits && !is_right; i++)
        is_right = is_of(s, &s->visits[i], 0, e);
    if (!is_right)
        tt_fuzz_fail("somebody has arrived who has not greeted right");
    if (e->kind == TT_LINK_ARRIVED && e->who.purpose == TT_LINK_PASS)
        tt_fuzz_fail("somebody has arrived who wants to be passed on");
}

static void take(stage *s)
{
    tt_link_event e;
    while (tt_link_box_take(s->box, &e)) {
        check(s, &e);
        tt_link_stream_close(&e.stream);
        if (e.dial) {
            for (int i = 0; i < DIALS; i++)
                if (s->dials[i] == e.dial)
                    s->dials[i] = NULL;
            tt_link_dial_end(e.dial);
        }
    }
}

/* Low three bits: who; the others: what. */
static void act(stage *s, uint8_t what, uint8_t arg)
{
    guest *g = &s->guests[(what & 7) % GUESTS];
    uint32_t me = (what & 7) % GUESTS;
    tt_greet_word w;
    tt_link_refusal r;
    switch (what >> 3 & 15) {
    case 0:
        come(s, g);
        return;
    case 1: {
        size_t n = arg < s->len ? arg : s->len;
        say(g, s->data, n);
        s->data += n, s->len -= n;
        return;
    }
    case 2:
    case 3:
        w = right_word(s, me, TT_GREET_HELLO);
        say(g, &w, (what >> 3 & 15) == 2 ? sizeof(w) : arg % sizeof(w));
        return;
    case 4:
        w = right_word(s, me, TT_GREET_TAKEN);
        say(g, &w, sizeof(w));
        return;
    case 5:
        if (g->s.fd >= 0)
            shutdown(g->s.fd, SHUT_WR);
        return;
    case 6:
        go(g);
        return;
    case 7:
        begin_dial(s, arg);
        return;
    case 8:
        tt_link_listener_refusal(s->listener, &r, NULL);
        return;
    case 9:
        tt_link_box_wait(s->box, tt_now_ns() + TT_NS_PER_MS / 2);
        return;
    case 10:
        tt_link_dial_end(s->dials[arg % DIALS]);
        s->dials[arg % DIALS] = NULL;
        return;
    case 11:
        shake(s, g, arg);
        return;
    case 14:
        w = pass_word(s, me);
        say(g, &w, sizeof(w));
        return;
    default:
        tt_link_box_settle(s->box);
        take(s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static stage s;
    if (len < 1)
        return 0;
    if (TT_HAVE_OPENSSL && !trusts[0][0])
        make_trusts();
    memset(&s, 0, sizeof(s));
    s.data = data + 1;
    s.len = len - 1;
    set_up(&s, data[0]);
    for (int n = 0; s.len >= 2 && n < ACTIONS; n++) {
        uint8_t what = s.data[0], arg = s.data[1];
        s.data += 2, s.len -= 2;
        act(&s, what, arg);
    }
    tt_link_box_settle(s.box);
    take(&s);
    for (int i = 0; i < DIALS; i++)
        tt_link_dial_end(s.dials[i]);
    for (int i = 0; i < GUESTS && s.n_passes > 0; i++)
        go(&s.guests[i]); /* or the box waits for what they still say */
    if (s.n_passes > 0)
        tt_link_listener_close(s.listener);
    tt_link_box_close(s.box);
    for (int i = 0; i < GUESTS; i++)
        go(&s.guests[i]);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    tt_fuzz_mutations = 2000; /* each has a thread of its own */
    int rc = tt_fuzz_main(argc, argv, "tests/fuzz/corpus/guests",
                          LLVMFuzzerTestOneInput);
    for (int i = 0; i < 4; i++)
        tt_trust_close(trusts[i / 2][i % 2]);
    return rc;
}
#endif
