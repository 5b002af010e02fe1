/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_talk.c - what a controller may say to a worker: any bytes, at any time,
 * some of them messages as they should be but for what the input changes.
 * Property: the worker's calls end, with success or a sentence; its buffer is
 * the mean of members or untouched.
 *
 * Input: how it is met (see try_worker()), changes of the welcome and of its
 * head, then messages; see
 * next_message(). */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "link/greet.h"
#include "partial/partial.h"
#include "support/fuzz_main.h"
#include "tutti.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { WORKERS = 3, MOST = 4096 };

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

/* A kind, an argument, changes; kind 255: as many bytes as the argument
 * says. */
static size_t next_message(tt_fuzz_input *in, unsigned char *out)
{
    payload p;
    uint8_t kind = tt_fuzz_next(in), arg = tt_fuzz_next(in);
    if (kind == 255) {
        size_t n = arg < in->len ? arg : in->len;
        memcpy(out, in->data, n);
        in->data += n, in->len -= n;
        return n;
    }
    size_t len = fill(&p, kind, arg);
    tt_talk head = tt_talk_head((tt_talk_kind)kind, arg, len);
    head.who = arg % WORKERS;
    tt_fuzz_change(in, &head, sizeof(head));
    tt_fuzz_change(in, &p, len);
    memcpy(out, &head, sizeof(head));
    memcpy(out + sizeof(head), &p, len);
    return sizeof(head) + len;
}

/* ---------------------------------------------------------------- worker -- */

static tt_link_box *box;
static tt_link_listener *listener;
static uint16_t port;

/* What comes within a while; nobody looks at it. */
static void hear(int fd)
{
    unsigned char said[MOST];
    if (tt_sock_wait(fd, POLLIN, tt_now_ns() + 10 * TT_NS_PER_MS))
        (void)!recv(fd, said, sizeof(said), MSG_DONTWAIT);
}

static atomic_bool is_over; /* the worker has given up */

static void *control(void *arg)
{
    tt_fuzz_input *in = arg;
    unsigned char out[MOST];
    tt_link_event e;
    while (!tt_link_box_take(box, &e)) {
        if (atomic_load(&is_over))
            return NULL;
        tt_link_box_wait(box, tt_now_ns() + 5 * TT_NS_PER_MS);
    }
    tt_welcome welcome = {.n = WORKERS, .most = 2 * WORKERS, .incarnation = 1};
    tt_talk head = tt_talk_head(TT_TALK_WELCOME, 0, sizeof(welcome));
    tt_fuzz_change(in, &welcome, sizeof(welcome));
    tt_fuzz_change(in, &head, sizeof(head));
    memcpy(out, &head, sizeof(head));
    memcpy(out + sizeof(head), &welcome, sizeof(welcome));
    size_t len = sizeof(head) + sizeof(welcome);
    bool is_open = true;
    for (int n = 0; is_open && n < 64; n++) {
        is_open = send(e.stream.fd, out, len, MSG_NOSIGNAL) == (ssize_t)len &&
                  in->len > 0;
        uint8_t pause = is_open ? tt_fuzz_next(in) : 0;
        if (pause & 1) /* it announces meanwhile */
            hear(e.stream.fd);
        if (pause & 128)
            usleep(4000);
        len = is_open ? next_message(in, out) : 0;
        is_open = is_open && len > 0;
    }
    usleep(300);
    tt_link_stream_close(&e.stream);
    return NULL;
}

static int stranger; /* listens where no controller is */

/* Hears a greeting, and says something else. */
static void *be_strange(void *arg)
{
    tt_fuzz_input *in = arg;
    tt_greet_word hello, word;
    if (!tt_sock_wait(stranger, POLLIN, tt_now_ns() + 20 * TT_NS_PER_S))
        return NULL;
    int fd = accept(stranger, NULL, NULL);
    if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello)) {
        word = tt_greet_answer(&hello, TT_LINK_OTHER_JOB, &hello.to, 1);
        tt_fuzz_change(in, &word, sizeof(word));
        size_t n = tt_fuzz_next(in);
        n = n < sizeof(word) ? n : sizeof(word);
        (void)!send(fd, &word, n, MSG_NOSIGNAL);
    }
    shutdown(fd, SHUT_WR);
    recv(fd, &hello, sizeof(hello), 0); /* it hangs up */
    close(fd);
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

static uint16_t open_stranger(void)
{
    tt_addr at;
    tt_addr_numeric("127.0.0.1", 0, &at);
    stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(stranger, &at.u.sa, at.len) || listen(stranger, 16))
        tt_fuzz_fail("nothing to listen with");
    return tt_sock_port(stranger);
}

/* Bit 0: it tries once; 1: who listens is no controller. */
static void try_worker(uint8_t kind, tt_fuzz_input *in)
{
    char where[32];
    pthread_t thread;
    tutti_partial *p;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    uint16_t at = kind & 2 ? open_stranger() : port;
    o.timeout_s = 0.02; /* nobody else is there to meet */
    snprintf(where, sizeof(where), "127.0.0.1:%u", at);
    setenv("TUTTI_START_TIMEOUT", kind & 3 ? "90ms" : "300ms", 1);
    atomic_store(&is_over, false);
    if (pthread_create(&thread, NULL, kind & 2 ? be_strange : control, in))
        tt_fuzz_fail("no thread");
    if (!tutti_partial_join(where, 0, &o, &p)) {
        work(p);
        tutti_partial_close(p);
    }
    atomic_store(&is_over, true);
    if (kind & 2)
        shutdown(stranger, SHUT_RDWR); /* wakes who has not come */
    pthread_join(thread, NULL);
    if (kind & 2)
        close(stranger);
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
    setenv("TUTTI_LOG", "error", 1);
    setenv("TUTTI_RECONNECT", "0", 1); /* who is away would be waited for */
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
    tt_fuzz_input in = {data + 1, len - 1};
    try_worker(data[0], &in);
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
