/* SPDX-License-Identifier: BSD-3-Clause
 * flood_test.c - a worker that sends as much as it can and reads nothing: what
 * the controller keeps for it stays small. */
#include "support/tap.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "partial/partial.h"
#include "support/alloc.h"
#include "support/stranger.h"

enum { BEATS = 1 << 20 };
static const uint64_t most_bytes = 2 << 20;

/* ------------------------------------------------------------ controller -- */

static tt_link_box *box;

static int join(const tt_controller *c)
{
    tt_link_way way = {.cost = 0};
    tt_link_dial *d;
    tt_link_event e;
    const tt_join j = {.host = 7};
    tt_link_dial_opts o = {.purpose = TT_LINK_CONTROLLER,
                           .ways = &way,
                           .n_ways = 1,
                           .deadline_ns = tt_now_ns() + 20 * TT_NS_PER_S};
    assert_true(tt_addr_numeric("127.0.0.1", tt_controller_port(c), &way.to));
    memcpy(o.said, &j, sizeof(j));
    assert_int_equal(tt_link_dial_begin(box, &o, &d, NULL), 0);
    assert_true(tt_link_box_wait(box, UINT64_MAX) && tt_link_box_take(box, &e));
    tt_link_dial_end(d);
    assert_int_equal(e.kind, TT_LINK_DIALLED);
    return e.stream.fd;
}

static void test_beats(void **state)
{
    (void)state;
    enum { AT_ONCE = 1024 };
    tt_talk beats[AT_ONCE];
    tt_test_mem count;
    tt_controller *c;
    tt_addr at;
    const tt_mem mem = tt_test_mem_init(&count, 0);
    const tt_controller_opts o = {
        .rule = {.n = 2, .group_size = 2, .start_wait_ns = TT_NS_PER_S},
        .listen = &at};
    assert_true(tt_addr_numeric("127.0.0.1", 0, &at));
    assert_int_equal(tt_link_box_open(&tt_mem_std, &box, NULL), 0);
    assert_int_equal(tt_controller_open(&o, &mem, &c, NULL), 0);
    int fd = join(c);
    for (int i = 0; i < AT_ONCE; i++)
        beats[i] = tt_talk_head(TT_TALK_BEAT, 0, 0);
    for (int i = 0; i < BEATS / AT_ONCE; i++)
        assert_int_equal(
            tt_stranger_write_all(fd, beats, sizeof(beats), UINT64_MAX), 0);
    tt_controller_close(c);
    tt_fork_close(&fd);
    tt_link_box_close(box);
    assert_true(tt_test_mem_is_clean(&count));
    assert_true(count.peak_bytes < most_bytes);
}

/* A stream that always has more. */
static size_t n_read;

static ssize_t endless_recv(tt_link_stream *s, const struct iovec *iov,
                            int n_iov)
{
    const size_t all = (size_t)62 << 20;
    (void)s;
    (void)n_iov;
    if (n_read >= all) {
        errno = EAGAIN;
        return -1;
    }
    memset(iov->iov_base, 0, iov->iov_len);
    n_read += iov->iov_len;
    return (ssize_t)iov->iov_len;
}

static size_t endless_pending(const tt_link_stream *s)
{
    (void)s;
    return 0;
}

/* As TLS that has always read ahead. */
static size_t ahead_pending(const tt_link_stream *s)
{
    (void)s;
    return 1;
}

static void endless_close(tt_link_stream *s)
{
    (void)s;
}

static void hear_endless(const tt_link_layer *endless)
{
    tt_test_mem count;
    n_read = 0;
    const tt_mem mem = tt_test_mem_init(&count, 0);
    tt_pipe p = {.mem = &mem, .s = {.fd = dup(0), .layer = endless}};
    tt_pipe_fill(&p);
    tt_pipe_close(&p);
    assert_true(n_read > 0 && n_read < most_bytes);
    assert_true(tt_test_mem_is_clean(&count));
    assert_true(count.peak_bytes < most_bytes);
}

static void test_more_than_is_heard(void **state)
{
    (void)state;
    tt_link_layer endless = {.recv = endless_recv,
                             .pending = endless_pending,
                             .unsent = endless_pending,
                             .close = endless_close};
    hear_endless(&endless);
    endless.pending = ahead_pending;
    hear_endless(&endless);
}

/* A stream that takes so many bytes, then no more. */
static size_t n_room;

static ssize_t slow_send(tt_link_stream *s, const struct iovec *iov, int n_iov)
{
    (void)s;
    (void)n_iov;
    size_t n = iov->iov_len < n_room ? iov->iov_len : n_room;
    n_room -= n;
    if (n > 0)
        return (ssize_t)n;
    errno = EAGAIN;
    return -1;
}

/* A message behind, always: what was sent before is not kept. */
static void test_never_empty(void **state)
{
    (void)state;
    static const tt_link_layer slow = {.send = slow_send,
                                       .pending = endless_pending,
                                       .unsent = endless_pending,
                                       .close = endless_close};
    static const unsigned char payload[4096];
    const tt_talk head = tt_talk_head(TT_TALK_GROUP, 0, sizeof(payload));
    tt_test_mem count;
    const tt_mem mem = tt_test_mem_init(&count, 0);
    tt_pipe p = {.mem = &mem, .s = {.fd = dup(0), .layer = &slow}};
    tt_pipe_put(&p, &head, payload);
    for (int i = 0; i < 10000; i++) {
        tt_pipe_put(&p, &head, payload);
        n_room = sizeof(head) + sizeof(payload);
        assert_false(tt_pipe_flush(&p));
    }
    n_room = SIZE_MAX;
    assert_true(tt_pipe_flush(&p) && !p.is_broken);
    tt_pipe_close(&p);
    assert_true(tt_test_mem_is_clean(&count));
    assert_true(count.peak_bytes < most_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beats),
        cmocka_unit_test(test_more_than_is_heard),
        cmocka_unit_test(test_never_empty),
    };
    tt_test_limit(300);
    return TT_RUN_TAP(tests);
}
