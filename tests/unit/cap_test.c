/* SPDX-License-Identifier: BSD-3-Clause
 * cap_test.c - the token bucket of an interface, by a clock of the test's. */
#include "support/tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hostid.h"
#include "base/rng.h"
#include "net/tcp/cap.h"

#define WINDOW_NS (100 * TT_NS_PER_MS)

/* Names that no other test has; no interface needs to be there. */
static const char *dev_name(char out[TT_IFACE_NAME], int k)
{
    snprintf(out, TT_IFACE_NAME, "t%d-%d", (int)getpid(), k);
    return out;
}

static void file_of(const char *dev, char *out, size_t size)
{
    tt_host_id id;
    tt_host_id_get(&id);
    snprintf(out, size, "/dev/shm/tutti-rate-%u-%llx-%s", (unsigned)geteuid(),
             (unsigned long long)id.netns, dev);
}

/* Bits on the wire of so many bytes of payload. */
static double wire_bits(double bytes)
{
    return bytes * 8 * 1514 / 1448;
}

/* One that takes what it gets, and what it took. */
typedef struct sender {
    tt_tcp_cap cap;
    uint64_t next_ns;
} sender;

enum { MOST_SENDS = 200000 };
typedef struct sent {
    uint64_t at_ns, before; /* bytes that were sent before it */
} sent;
static sent sends[MOST_SENDS + 1];

/* n senders want all they can get for so long, each in pieces of up to `piece`
 * bytes, and come up to late_ns too late. The most of any 100 ms, and all, as
 * shares of the cap. */
static void run(sender *s, uint32_t n, uint64_t bps, uint64_t for_ns,
                size_t piece, uint64_t late_ns, double *most, double *mean)
{
    const uint64_t begin = 1000 * TT_NS_PER_S;
    tt_rng rng = {7};
    uint64_t total = 0;
    uint32_t n_sends = 0, first = 0;
    double worst = 0;
    for (uint32_t i = 0; i < n; i++)
        s[i].next_ns = begin;
    for (;;) {
        uint32_t who = 0;
        for (uint32_t i = 1; i < n; i++)
            if (s[i].next_ns < s[who].next_ns)
                who = i;
        const uint64_t now = s[who].next_ns;
        if (now >= begin + for_ns)
            break;
        uint64_t when = 0;
        size_t got = tt_tcp_cap_take(&s[who].cap, now, piece, &when);
        assert_true(got <= piece);
        if (got == 0) {
            assert_true(when > now && when < now + 10 * TT_NS_PER_S);
            s[who].next_ns = when + (late_ns ? tt_rng_below(&rng, late_ns) : 0);
            continue;
        }
        assert_true(n_sends < MOST_SENDS);
        sends[n_sends++] = (sent){now, total};
        total += got;
        while (sends[first].at_ns + WINDOW_NS <= now)
            first++;
        double bits = wire_bits((double)(total - sends[first].before));
        double share = bits / ((double)bps / 10);
        worst = share > worst ? share : worst;
    }
    *most = worst;
    *mean = wire_bits((double)total) / ((double)bps * (double)for_ns / 1e9);
}

static void test_rate(void **state)
{
    (void)state;
    static const uint64_t rates[] = {20000000, 80000000, 1000000000,
                                     100000000000};
    static const size_t pieces[] = {1, 1000, 65536, 4 << 20};
    for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++)
        for (size_t p = 1; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
            char dev[TT_IFACE_NAME];
            double most, mean;
            sender s = {.next_ns = 0};
            if (pieces[p] < 65536 && rates[r] > 80000000)
                continue; /* too many to remember */
            tt_tcp_cap_open(&s.cap, dev_name(dev, 0), rates[r]);
            run(&s, 1, rates[r], TT_NS_PER_S, pieces[p], 0, &most, &mean);
            tt_tcp_cap_close(&s.cap);
            assert_true(most <= 1.05 && most > 0.95);
            assert_true(mean > 0.97 && mean <= 1.03);
        }
}

/* A sender that comes late sends no more for it. */
static void test_late(void **state)
{
    (void)state;
    char dev[TT_IFACE_NAME];
    double most, mean;
    sender s = {.next_ns = 0};
    tt_tcp_cap_open(&s.cap, dev_name(dev, 0), 80000000);
    run(&s, 1, 80000000, TT_NS_PER_S, 65536, 20 * TT_NS_PER_MS, &most, &mean);
    tt_tcp_cap_close(&s.cap);
    assert_true(most <= 1.05);
    assert_true(mean < 0.9);
}

/* Processes that share an interface share what it may send; another one is not
 * slower for it. */
static void test_shared(void **state)
{
    (void)state;
    char dev[TT_IFACE_NAME], path[96];
    double most, mean;
    sender s[4], other = {.next_ns = 0};
    memset(s, 0, sizeof(s));
    for (int i = 0; i < 4; i++)
        tt_tcp_cap_open(&s[i].cap, dev_name(dev, 0), 80000000);
    tt_tcp_cap_open(&other.cap, dev_name(dev, 1), 80000000);
    file_of(dev_name(dev, 0), path, sizeof(path));
    if (access(path, F_OK) != 0)
        skip(); /* there is no /dev/shm */
    run(s, 4, 80000000, TT_NS_PER_S, 65536, TT_NS_PER_MS, &most, &mean);
    assert_true(most <= 1.05);
    assert_true(mean > 0.9 && mean <= 1.03);
    run(&other, 1, 80000000, TT_NS_PER_S, 65536, 0, &most, &mean);
    assert_true(mean > 0.97);
    /* The last one removes it. */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(access(path, F_OK), 0);
        tt_tcp_cap_close(&s[i].cap);
    }
    assert_int_not_equal(access(path, F_OK), 0);
    tt_tcp_cap_close(&other.cap);
    tt_tcp_cap_close(&other.cap);
}

/* Whatever stands there, nobody waits for ever: times of another boot, and a
 * file that others may write. */
static void test_strange(void **state)
{
    (void)state;
    char dev[TT_IFACE_NAME], path[96];
    uint64_t when = 0;
    tt_tcp_cap cap;
    tt_tcp_cap_open(&cap, dev_name(dev, 0), 80000000);
    atomic_store(cap.busy_ns, UINT64_MAX - 5);
    assert_true(tt_tcp_cap_take(&cap, TT_NS_PER_S, 1000, &when) > 0);
    atomic_store(cap.busy_ns, 3);
    assert_true(tt_tcp_cap_take(&cap, TT_NS_PER_S, 1000, &when) > 0);
    tt_tcp_cap_close(&cap);

    file_of(dev_name(dev, 2), path, sizeof(path));
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        skip();
    fchmod(fd, 0666);
    tt_tcp_cap_open(&cap, dev, 80000000);
    assert_ptr_equal(cap.busy_ns, &cap.own);
    assert_true(tt_tcp_cap_take(&cap, TT_NS_PER_S, 1000, &when) > 0);
    tt_tcp_cap_close(&cap);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
    close(fd);
}

static void test_give_back(void **state)
{
    (void)state;
    char dev[TT_IFACE_NAME];
    uint64_t when = 0;
    const uint64_t now = 50 * TT_NS_PER_S;
    tt_tcp_cap cap;
    tt_tcp_cap_open(&cap, dev_name(dev, 0), 80000000);
    size_t n = tt_tcp_cap_take(&cap, now, 1 << 20, &when);
    assert_true(n > 0 && n < 1 << 20);
    assert_int_equal(tt_tcp_cap_take(&cap, now, 1 << 20, &when), 0);
    tt_tcp_cap_give_back(&cap, n);
    assert_true(tt_tcp_cap_take(&cap, now, 1 << 20, &when) >= n - 1);
    tt_tcp_cap_close(&cap);
}

/* Whatever the rate, the least is two packets, and time goes on. */
static void test_low(void **state)
{
    (void)state;
    static const uint64_t rates[] = {1, 1000, 1000000};
    for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++) {
        char dev[TT_IFACE_NAME];
        uint64_t when = 0, now = 50 * TT_NS_PER_S;
        tt_tcp_cap cap;
        tt_tcp_cap_open(&cap, dev_name(dev, 0), rates[r]);
        size_t n = tt_tcp_cap_take(&cap, now, 1 << 20, &when);
        assert_true(n >= 2 * 1448 - 1 && n <= 2 * 1448);
        assert_true(tt_tcp_cap_pace(&cap) > 0);
        assert_int_equal(tt_tcp_cap_take(&cap, now, 1 << 20, &when), 0);
        assert_true(when > now);
        assert_true(tt_tcp_cap_take(&cap, when, 1 << 20, &when) > 0);
        tt_tcp_cap_close(&cap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),      cmocka_unit_test(test_late),
        cmocka_unit_test(test_shared),    cmocka_unit_test(test_strange),
        cmocka_unit_test(test_give_back), cmocka_unit_test(test_low),
    };
    return TT_RUN_TAP(tests);
}
