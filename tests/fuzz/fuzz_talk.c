/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_talk.c - what workers may say to a controller, and a controller to a worker:
 * any bytes, in any pieces, at any time, some of them messages as they should be
 * but for what the input changes. Property: a controller says nothing that makes no
 * sense, and can be closed; a worker's calls end, its buffer is the mean of members
 * or untouched.
 *
 * Input: a byte (bit 0: a worker is tried, else a controller), then messages; see
 * next_message(). */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "partial/partial.h"
#include "support/fuzz_main.h"
#include "tutti.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { WORKERS = 3, MOST = 4096 };

typedef struct input {
    const uint8_t *data;
    size_t len;
} input;

static uint8_t next(input *in)
{
    if (in->len == 0)
        return 0;
    in->len--;
    return *in->data++;
}

/* Pairs of an offset and a byte, until one that does not fit. */
static void change(input *in, void *bytes, size_t len)
{
    while (in->len >= 2 && in->data[0] < len) {
        ((uint8_t *)bytes)[in->data[0]] = in->data[1];
        in->data += 2, in->len -= 2;
    }
    next(in);
}

typedef union payload {
    struct {
        tt_card card;
        unsigned char addresses[64];
    } card;
    struct {
        tt_group_head head;
        tt_seat seats[WORKERS];
    } group;
    char text[32];
} payload;

/* As it should be, for this kind. */
static size_t fill(payload *p, uint8_t kind, uint8_t arg)
{
    memset(p, 0, sizeof(*p));
    switch (kind) {
    case TT_TALK_CARD:
        p->card.card = (tt_card){.id = {{(uint8_t)(1 + arg)}},
                                 .max_payload = 65536,
                                 .lens = {0, 64}};
        return sizeof(p->card);
    case TT_TALK_GROUP: {
        uint32_t n = 1 + arg % WORKERS;
        p->group.head = (tt_group_head){
            .iteration = 1, .n = n, .is_even = 1, .max_payload = 65536};
        for (uint32_t i = 0; i < n; i++)
            p->group.seats[i] = (tt_seat){.worker = i,
                                          .incarnation = i == 0,
                                          .iteration = 1,
                                          .weight = 1.0 / n};
        return sizeof(p->group.head) + n * sizeof(tt_seat);
    }
    case TT_TALK_DONE:
    case TT_TALK_BROKEN:
    case TT_TALK_REFUSE:
        memset(p->text, 'x', arg % sizeof(p->text));
        return arg % sizeof(p->text);
    default:
        return 0;
    }
}

/* A kind, an argument, changes; kind 255: as many bytes as the argument says. */
static size_t next_message(input *in, unsigned char *out)
{
    payload p;
    uint8_t kind = next(in), arg = next(in);
    if (kind == 255) {
        size_t n = arg < in->len ? arg : in->len;
        memcpy(out, in->data, n);
        in->data += n, in->len -= n;
        return n;
    }
    size_t len = fill(&p, kind, arg);
    tt_talk head = tt_talk_head((tt_talk_kind)kind, arg, len);
    head.who = arg % WORKERS;
    change(in, &head, sizeof(head));
    change(in, &p, len);
    memcpy(out, &head, sizeof(head));
    memcpy(out + sizeof(head), &p, len);
    return sizeof(head) + len;
}

/* ------------------------------------------------------------ controller -- */

static tt_link_box *box;

static int join(const tt_addr *to, const tt_join *j)
{
    const tt_link_way way = {.to = *to};
    tt_link_dial *d;
    tt_link_event e;
    tt_link_dial_opts o = {.purpose = TT_LINK_CONTROLLER,
                           .job = 5,
                           .ways = &way,
                           .n_ways = 1,
                           .n_rounds = 1,
                           .deadline_ns = tt_now_ns() + 20 * TT_NS_PER_S};
    memcpy(o.said, j, sizeof(*j));
    if (tt_link_dial_begin(box, &o, &d, NULL))
        tt_fuzz_fail("no dial");
    while (!tt_link_box_take(box, &e))
        tt_link_box_wait(box, UINT64_MAX);
    tt_link_dial_end(d);
    return e.stream.fd;
}

/* What it says is whole messages, until it hangs up. */
static void hear(int fd, size_t *used, unsigned char *got)
{
    tt_talk head;
    ssize_t n;
    while ((n = recv(fd, got + *used, MOST - *used, MSG_DONTWAIT)) > 0) {
        *used += (size_t)n;
        while (*used >= sizeof(head)) {
            memcpy(&head, got, sizeof(head));
            if (!tt_talk_is_sound(&head, MOST - sizeof(head)) ||
                head.kind < TT_TALK_WELCOME ||
                (head.kind > TT_TALK_BEAT && head.kind != TT_TALK_CARD))
                tt_fuzz_fail("the controller makes no sense");
            size_t whole = sizeof(head) + head.len;
            if (*used < whole)
                break;
            memmove(got, got + whole, *used - whole);
            *used -= whole;
        }
    }
}

/* Each action: who, and what; 7: everybody is heard. */
static void talk_to(const tt_addr *at, input *in)
{
    static unsigned char got[WORKERS][MOST];
    unsigned char out[MOST];
    int fds[WORKERS] = {-1, -1, -1};
    size_t used[WORKERS] = {0};
    for (int n = 0; in->len > 0 && n < 64; n++) {
        uint8_t what = next(in);
        uint32_t w = what % WORKERS;
        tt_join j = {.who = w, .host = 7, .n_cpus = 2, .n = WORKERS};
        if (fds[w] < 0) {
            if (what & 128)
                change(in, &j, sizeof(j));
            fds[w] = join(at, &j);
            used[w] = 0;
        } else if ((what >> 3 & 15) == 15) {
            tt_fork_close(&fds[w]);
        } else if (what >> 3 & 8) {
            usleep(100);
        } else {
            size_t len = next_message(in, out);
            ssize_t sent = send(fds[w], out, len, MSG_NOSIGNAL | MSG_DONTWAIT);
            (void)sent;
        }
        for (uint32_t i = 0; i < WORKERS; i++)
            if (fds[i] >= 0)
                hear(fds[i], &used[i], got[i]);
    }
    for (int i = 0; i < WORKERS; i++)
        tt_fork_close(&fds[i]);
}

static void try_controller(uint8_t kind, input *in)
{
    tt_controller *c;
    tt_addr at;
    const tt_controller_opts o = {.rule = {.n = WORKERS,
                                           .group_size = 2 + (kind >> 1) % 2,
                                           .is_dynamic = kind & 8,
                                           .recentre_every = kind & 16 ? 2 : 0,
                                           .start_wait_ns = 1,
                                           .max_wait_ns = TT_NS_PER_MS},
                                  .is_local = true,
                                  .token = 5};
    if (tt_controller_open(&o, &tt_mem_std, &c, NULL))
        tt_fuzz_fail("no controller");
    tt_controller_nest(c, &at);
    talk_to(&at, in);
    usleep(200); /* it reads the end */
    tt_controller_close(c);
}

/* ---------------------------------------------------------------- worker -- */

static tt_link_listener *listener;
static uint16_t port;

static void *control(void *arg)
{
    input *in = arg;
    unsigned char out[MOST];
    tt_link_event e;
    if (!tt_link_box_wait(box, tt_now_ns() + 20 * TT_NS_PER_S) ||
        !tt_link_box_take(box, &e))
        return NULL;
    tt_welcome welcome = {.n = WORKERS, .incarnation = 1};
    tt_talk head = tt_talk_head(TT_TALK_WELCOME, 0, sizeof(welcome));
    change(in, &welcome, sizeof(welcome));
    memcpy(out, &head, sizeof(head));
    memcpy(out + sizeof(head), &welcome, sizeof(welcome));
    size_t len = sizeof(head) + sizeof(welcome);
    bool is_open = true;
    for (int n = 0; is_open && n < 64; n++) {
        is_open = send(e.stream.fd, out, len, MSG_NOSIGNAL) == (ssize_t)len &&
                  in->len > 0;
        if (is_open && (next(in) & 1)) /* it announces meanwhile */
            usleep(300);
        len = is_open ? next_message(in, out) : 0;
        is_open = is_open && len > 0;
    }
    usleep(300);
    tt_link_stream_close(&e.stream);
    return NULL;
}

static void work(tutti_partial *p)
{
    double x[64];
    tutti_err err = TUTTI_OK;
    for (uint64_t step = 1; !err && step < 5; step++) {
        for (int i = 0; i < 64; i++)
            x[i] = i;
        err = tutti_partial_announce(p, step, false, NULL, NULL);
        if (!err)
            err = tutti_partial_reduce(p, x, 64, TUTTI_F64, NULL, NULL);
        if (!err)
            err = tutti_partial_commit(p, NULL, NULL);
        for (int i = 0; i < 64; i++)
            if (x[i] < 0 || x[i] > i)
                tt_fuzz_fail("a buffer that nobody has reduced has changed");
        if (err && tutti_partial_message(p)[0] == '\0')
            tt_fuzz_fail("a failure without a sentence");
    }
}

static void try_worker(input *in)
{
    char where[32];
    pthread_t thread;
    tutti_partial *p;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    o.timeout_s = 0.02; /* nobody else is there to meet */
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    if (pthread_create(&thread, NULL, control, in))
        tt_fuzz_fail("no thread");
    if (!tutti_partial_join(where, 0, &o, &p)) {
        work(p);
        tutti_partial_close(p);
    }
    pthread_join(thread, NULL);
    tt_link_event e; /* it may have come again */
    tt_link_box_settle(box);
    while (tt_link_box_take(box, &e))
        tt_link_stream_close(&e.stream);
}

static void set_up(void)
{
    tt_link_ear ear = {.dev = NULL};
    const tt_link_listen_opts o = {
        .purposes = TT_LINK_FOR(TT_LINK_CONTROLLER), .ears = &ear, .n_ears = 1};
    setenv("TUTTI_START_TIMEOUT", "2", 1);
    setenv("TUTTI_LOG", "error", 1);
    if (!tt_addr_numeric("127.0.0.1", 0, &ear.at) ||
        tt_link_box_open(&tt_mem_std, &box, NULL) ||
        tt_link_listen(box, &o, &listener, NULL, NULL))
        tt_fuzz_fail("nothing to listen with");
    port = tt_link_listener_port(listener, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 1)
        return 0;
    if (!box)
        set_up();
    input in = {data + 1, len - 1};
    if (data[0] & 1)
        try_worker(&in);
    else
        try_controller(data[0], &in);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    tt_fuzz_mutations = 500; /* each has threads, and waits */
    int rc = tt_fuzz_main(argc, argv, "tests/fuzz/corpus/talk",
                          LLVMFuzzerTestOneInput);
    tt_link_box_close(box);
    return rc;
}
#endif
