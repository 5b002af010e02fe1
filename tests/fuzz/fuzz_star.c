/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_star.c - any bytes may come from the other end of the star of start-up,
 * in pieces of any size, whatever this rank is about to do: as rank 0 of three,
 * or as rank 1 of them; and any guests may come where rank 0 gathers them.
 * Property: everything ends, with success or with a sentence; nothing is
 * written outside what an exchange returns (sanitizers); a failure is repeated
 * by what comes after it.
 *
 * Input: who this rank is (2: it gathers), and what it does, 8 steps of a byte
 * each; then what comes by the lines, or what guests say: see deal_out() and
 * come(). */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "boot/meet.h"
#include "link/greet.h"
#include "support/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { RANKS = 3, STEPS = 8, MOST = 3 * TT_BOOT_PIECE_MAX };

/* What comes by one line; an empty stream has ended. */
typedef struct line {
    const uint8_t *data;
    size_t len;
} line;

static line lines[RANKS];

/* [0 or how many bytes] [bytes]: 0 says that nothing is there yet. */
static ssize_t fed_recv(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    line *l = s->state;
    (void)n_iov;
    if (l->len == 0)
        return 0;
    if (l->data[0] == 0) {
        l->data++, l->len--;
        errno = EAGAIN;
        return -1;
    }
    size_t n = l->data[0];
    if (n > l->len - 1)
        n = l->len - 1;
    if (n > iov->iov_len)
        n = iov->iov_len;
    if (n == 0) {
        errno = ECONNRESET;
        l->len = 0;
        return -1;
    }
    memcpy(iov->iov_base, l->data + 1, n);
    l->data += 1 + n, l->len -= 1 + n;
    return (ssize_t)n;
}

static ssize_t sink_send(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    volatile unsigned char sum = 0;
    size_t all = 0;
    (void)s;
    for (int i = 0; i < n_iov; i++) {
        const unsigned char *from = iov[i].iov_base;
        for (size_t k = 0; k < iov[i].iov_len; k++)
            sum = (unsigned char)(sum + from[k]);
        all += iov[i].iov_len;
    }
    return (ssize_t)all;
}

static size_t no_more(const tt_link_stream *s)
{
    (void)s;
    return 0;
}

static bool no_shutdown(tt_link_stream *s)
{
    (void)s;
    return true;
}

static void no_end(tt_link_stream *s)
{
    (void)s;
}

static const tt_link_layer fed = {.send = sink_send,
                                  .recv = fed_recv,
                                  .pending = no_more,
                                  .unsent = no_more,
                                  .end = no_shutdown,
                                  .close = no_end};

static tt_boot *new_boot(uint32_t rank)
{
    tt_boot *boot = tt_new(&tt_mem_std, 1, sizeof(*boot));
    *boot = (tt_boot){.mem = tt_mem_std,
                      .rank = rank,
                      .n_ranks = RANKS,
                      .timeout_ns = 20 * TT_NS_PER_S,
                      .phase = "a test",
                      .where = "nowhere",
                      .n_lines = rank == 0 ? RANKS : 1,
                      .like = {.magic = TT_FRAME_MAGIC,
                               .version = TT_FRAME_VERSION,
                               .job = 1,
                               .rank = rank,
                               .n_ranks = RANKS}};
    boot->lines = tt_new(&tt_mem_std, boot->n_lines, sizeof(*boot->lines));
    for (uint32_t i = 0; i < boot->n_lines; i++) {
        tt_link_stream *s = &boot->lines[i].link;
        *s = (tt_link_stream){.fd = -1, .layer = &fed, .state = &lines[i]};
        if (rank != 0 || i != 0)
            s->fd = eventfd(1, 0); /* there is always something to read */
    }
    return boot;
}

static tutti_err step(tt_boot *boot, uint8_t what, char *room, tutti_diag *diag)
{
    static const size_t lens[] = {0, 1, 24, TT_BOOT_PIECE_MAX};
    size_t n = lens[what >> 4 & 3];
    switch (what & 15) {
    case 0:
    case 1:
        return tt_boot_exchange(boot, room + MOST, n, room, diag);
    case 2:
        return tt_boot_collect(boot, room + MOST, n,
                               boot->rank == 0 ? room : NULL, diag);
    case 3:
        return tt_boot_share(boot, room, n + (what & 64 ? 70000 : 0), diag);
    case 4:
        tt_boot_beats(boot);
        tt_boot_alive(boot);
        return TUTTI_OK;
    case 5:
        tt_boot_call_off(boot);
        return TUTTI_OK;
    case 6:
        tt_boot_phase(boot, "another phase", 20 * TT_NS_PER_S);
        return TUTTI_OK;
    case 7:
        return tt_boot_is_well(boot, diag) ? TUTTI_OK : TUTTI_EPEER;
    default:
        return TUTTI_OK;
    }
}

/* Four bytes of choice, then a length each and the bytes of the lines. */
static void deal_out(const uint8_t *data, size_t len)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        size_t n = len >= 2 ? (size_t)(data[0] | data[1] << 8) : 0;
        size_t head = len >= 2 ? 2 : len;
        if (n > len - head || i == RANKS - 1)
            n = len - head;
        lines[i] = (line){data + head, n};
        data += head + n;
        len -= head + n;
    }
}

/* ---------------------------------------------------------------- gather -- */

enum { GUESTS = 4 };

typedef struct party {
    int fds[GUESTS];
} party;

/* They stay for a while, or rank 0 would have nobody to tell anything. */
static void *leave(void *arg)
{
    party *p = arg;
    usleep(6000);
    for (int i = 0; i < GUESTS; i++)
        close(p->fds[i]);
    return NULL;
}

/* A rank's right greeting, but for pairs of an offset and a byte; what follows
 * comes as it is: the last word, which cannot be right yet, and more. */
static void come(int fd, uint32_t rank, const uint8_t *data, size_t len)
{
    const tt_boot_said said = {rank, RANKS, 4};
    tt_greet_word w = {.magic = TT_GREET_MAGIC,
                       .version_min = 1,
                       .version_max = 1,
                       .kind = TT_GREET_HELLO,
                       .purpose = TT_LINK_RENDEZVOUS,
                       .flags = TT_GREET_ONE_WAY,
                       .job = tt_fnv1a(TT_FNV1A_START, "fuzz", 4)};
    memcpy(w.said, &said, sizeof(said));
    for (; len >= 2 && data[0] < sizeof(w); data += 2, len -= 2)
        ((uint8_t *)&w)[data[0]] = data[1];
    ssize_t n = send(fd, &w, sizeof(w), MSG_NOSIGNAL);
    if (len > 1)
        n = send(fd, data + 1, len - 1, MSG_NOSIGNAL);
    (void)n;
}

static void say_nothing(void *arg, tutti_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static void gather(const uint8_t *data, size_t len)
{
    static const tt_settings settings = {.start_timeout_ns = TT_NS_PER_S};
    tt_launch launch = {.n_ranks = RANKS, .job = "fuzz"};
    tt_addr at = {.u.sa.sa_family = AF_UNIX, .len = sizeof(sa_family_t)};
    tt_boot *boot = NULL;
    tutti_diag diag;
    pthread_t thread;
    party p;
    tutti_log_set(say_nothing, NULL); /* who is sent away */
    launch.listen_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(launch.listen_fd, &at.u.sa, at.len) || /* a name of its own */
        listen(launch.listen_fd, GUESTS))
        tt_fuzz_fail("nothing to listen with");
    at.len = sizeof(at.u);
    getsockname(launch.listen_fd, &at.u.sa, &at.len);
    for (uint32_t i = 0; i < GUESTS; i++) {
        size_t n = len / (GUESTS - i);
        p.fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(p.fds[i], &at.u.sa, at.len))
            tt_fuzz_fail("no guest");
        come(p.fds[i], 1 + i % 2, data, n);
        data += n, len -= n;
    }
    if (pthread_create(&thread, NULL, leave, &p))
        tt_fuzz_fail("no thread");
    tt_diag_clear(&diag);
    tutti_err err = tt_boot_open(&launch, &settings, &tt_mem_std,
                                 tt_now_ns() + 4 * TT_NS_PER_MS, &boot, &diag);
    if (err && diag.text[0] == '\0')
        tt_fuzz_fail("a start fails without a sentence");
    pthread_join(thread, NULL);
    if (!err)
        tt_boot_close(boot);
    close(launch.listen_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static char *room;
    tutti_diag diag;
    tutti_err first = TUTTI_OK;
    if (len < 1 + STEPS)
        return 0;
    room = room ? room : calloc(2, MOST);
    if (data[0] & 2) {
        gather(data + 1, len - 1);
        return 0;
    }
    deal_out(data + 1 + STEPS, len - 1 - STEPS);
    tt_boot *boot = new_boot(data[0] & 1);
    for (int i = 0; i < STEPS; i++) {
        uint8_t what = data[1 + i];
        tt_diag_clear(&diag);
        tutti_err err = step(boot, what, room, &diag);
        if (err && diag.text[0] == '\0')
            tt_fuzz_fail("a failure without a sentence");
        bool is_exchange = (what & 15) < 4 && (what & 15) != 3;
        if (first && is_exchange && err != first)
            tt_fuzz_fail("a failure is forgotten");
        if (!first && is_exchange)
            first = err;
    }
    tt_boot_close(boot);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    tt_fuzz_mutations = 2000; /* some of them wait */
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/star",
                        LLVMFuzzerTestOneInput);
}
#endif
