/* SPDX-License-Identifier: BSD-3-Clause
 * store_test.c - ranks that meet through a store of the program's, here files
 * of a directory: several communicators of other members in one process, old
 * values in the store, ranks that do not come, stores that fail. */
#include "support/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tutti.h>

#include "support/procs.h"

#define KEY "tutti-meet"

/* ----------------------------------------------------- a store of files -- */

typedef struct files {
    char dir[64];
    char prefix[32];
    bool fails;
    int slow_ms; /* put() returns so long after others can read the value */
} files;

static void name_file(const files *f, const char *key, const char *end,
                      char out[160])
{
    snprintf(out, 160, "%s/%s%.32s%s", f->dir, f->prefix, key, end);
}

static tutti_err put(void *ctx, const char *key, const void *bytes, size_t len)
{
    const files *f = ctx;
    char name[160];
    char fresh[160];
    char end[32];
    if (f->fails)
        return TUTTI_ENET;
    snprintf(end, sizeof(end), ".%d", (int)getpid());
    name_file(f, key, "", name);
    name_file(f, key, end, fresh);
    FILE *file = fopen(fresh, "w");
    if (!file)
        return TUTTI_ESYS;
    bool is_whole = fwrite(bytes, 1, len, file) == len;
    is_whole = fclose(file) == 0 && is_whole;
    is_whole = is_whole && rename(fresh, name) == 0;
    poll(NULL, 0, f->slow_ms);
    return is_whole ? TUTTI_OK : TUTTI_ESYS;
}

static tutti_err get(void *ctx, const char *key, void *buf, size_t cap,
                     size_t *len, double timeout_s)
{
    const files *f = ctx;
    char name[160];
    double until = tt_now_s() + timeout_s;
    if (f->fails)
        return TUTTI_ENET;
    name_file(f, key, "", name);
    for (;;) {
        int fd = open(name, O_RDONLY);
        if (fd >= 0) {
            ssize_t n = read(fd, buf, cap);
            close(fd);
            if (n < 0)
                return TUTTI_ESYS;
            *len = (size_t)n;
            return TUTTI_OK;
        }
        if (tt_now_s() >= until)
            return TUTTI_AGAIN;
        poll(NULL, 0, 5);
    }
}

static files make_dir(const char *prefix)
{
    files f = {.dir = "/tmp/tutti-store-XXXXXX"};
    snprintf(f.prefix, sizeof(f.prefix), "%s", prefix);
    if (!mkdtemp(f.dir))
        fail_msg("mkdtemp: %s", strerror(errno));
    return f;
}

static void remove_dir(const files *f)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
    if (system(command) != 0)
        print_message("%s stays\n", f->dir);
}

static tutti_err create(const files *f, int rank, int n, double timeout_s,
                        tutti_comm **out)
{
    files mine = *f;
    tutti_store store = {.put = put, .get = get, .ctx = &mine};
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    o.store = &store;
    o.rank = rank;
    o.n_ranks = n;
    o.start_timeout_s = timeout_s;
    return tutti_comm_create(&o, out);
}

/* ------------------------------------------------------------ good cases -- */

/* Ranks of the world, -1 ends. Every process makes those it is in, in order. */
static const int sets[][5] = {{0, 1, 2, 3, -1}, {3, 1, -1}, {2, 0, -1},
                              {1, 2, 3, -1},    {2, -1},    {0, 1, 2, 3, -1}};
#define N_SETS (sizeof(sets) / sizeof(*sets))

static int count_set(const int *set)
{
    int n = 0;
    while (set[n] >= 0)
        n++;
    return n;
}

static int check_sum(tutti_comm *comm, int world_rank, const int *set)
{
    int64_t want = 0;
    for (int i = 0; set[i] >= 0; i++)
        want += (int64_t)1 << (8 * set[i]);
    int64_t x = (int64_t)1 << (8 * world_rank);
    tutti_err err = tutti_all_reduce(comm, &x, &x, 1, TUTTI_I64, TUTTI_SUM,
                                     NULL, NULL);
    if (err)
        return tt_procs_complain(world_rank, "%s", tutti_comm_message(comm));
    if (x != want)
        return tt_procs_complain(world_rank, "another communicator's sum");
    return 0;
}

static int make_many(int rank, int n, void *arg)
{
    const files *f = arg;
    tutti_comm *comms[N_SETS] = {NULL};
    int bad = 0;
    (void)n;
    /* Not looked at: the store is the program's own word. */
    setenv("MASTER_ADDR", "no-such-host.invalid", 1);
    setenv("MASTER_PORT", "1", 1);
    setenv("TUTTI_ADDR", "127.0.0.1:1", 1);
    for (size_t i = 0; i < N_SETS && !bad; i++) {
        files own = *f;
        snprintf(own.prefix, sizeof(own.prefix), "set%zu-", i);
        for (int r = 0; sets[i][r] >= 0; r++) {
            if (sets[i][r] != rank)
                continue;
            if (create(&own, r, count_set(sets[i]), 20, &comms[i]))
                bad = tt_procs_complain(rank, "%s", tutti_last_message());
        }
    }
    for (size_t i = N_SETS; !bad && i-- > 0;)
        if (comms[i])
            bad |= check_sum(comms[i], rank, sets[i]);
    for (size_t i = 0; i < N_SETS; i++)
        tutti_comm_destroy(comms[i]);
    return bad;
}

static void communicators_do_not_meet_each_other(void **state)
{
    (void)state;
    static const char *const transports[] = {NULL, "tcp"};
    for (int i = 0; i < 2; i++) {
        int status[TT_PROCS_MAX];
        files f = make_dir("");
        tt_procs p = {.n = 4,
                      .timeout_s = 55,
                      .transports = transports[i],
                      .run = make_many,
                      .arg = &f};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, 4), 0);
        remove_dir(&f);
    }
}

/* The others have read where rank 0 is, and greeted it, long before it looks:
 * they come once. */
static int make_slowly(int rank, int n, void *arg)
{
    const int set[] = {0, 1, 2, -1};
    tutti_comm *comm;
    if (create(arg, rank, n, 40, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = check_sum(comm, rank, set);
    tutti_comm_destroy(comm);
    return bad;
}

static void a_store_may_be_slow(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    files f = make_dir("slow-");
    f.slow_ms = 5000;
    tt_procs p = {.n = 3, .timeout_s = 55, .run = make_slowly, .arg = &f};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, 3), 0);
    remove_dir(&f);
}

/* The same store again and again: what it has is old, until rank 0, who comes
 * last, has written over it. */
static int make_again(int rank, int n, void *arg)
{
    const int set[] = {0, 1, 2, -1};
    for (int i = 0; i < 4; i++) {
        tutti_comm *comm;
        if (rank == 0)
            poll(NULL, 0, 200);
        if (create(arg, rank, n, 40, &comm))
            return tt_procs_complain(rank, "%s", tutti_last_message());
        int bad = check_sum(comm, rank, set);
        tutti_comm_destroy(comm);
        if (bad)
            return bad;
    }
    return 0;
}

static void an_old_value_is_passed_over(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    files f = make_dir("again-");
    tt_procs p = {.n = 3, .timeout_s = 55, .run = make_again, .arg = &f};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, 3), 0);
    remove_dir(&f);
}

/* A rank 0 that reads an old value's port while another rank 0 is there. */
static int meet_the_wrong_one(int rank, int n, void *arg)
{
    const files *f = arg;
    const int right[] = {0, 1, -1};
    tutti_comm *comm;
    (void)n;
    files other = *f;
    snprintf(other.prefix, sizeof(other.prefix), "other-");
    if (rank == 2) { /* rank 0 of the other one, whose rank 1 never comes */
        if (create(&other, 0, 2, 5, &comm) != TUTTI_ETIMEOUT ||
            !strstr(tutti_last_message(), "rank 1 of 2 has not come"))
            return tt_procs_complain(rank, "%s", tutti_last_message());
        return 0;
    }
    if (rank == 0) {
        char value[2048];
        size_t len;
        if (get(&other, KEY, value, sizeof(value), &len, 20))
            return tt_procs_complain(rank, "no value to copy");
        /* With another token it is an old value of this store. */
        value[13] = value[13] == '0' ? '1' : '0';
        if (put(arg, KEY, value, len))
            return 1;
        poll(NULL, 0, 500);
    }
    if (create(f, rank, 2, 40, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = check_sum(comm, rank, right);
    tutti_comm_destroy(comm);
    return bad;
}

static void another_communicators_rank_0_sends_it_away(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    files f = make_dir("");
    tt_procs p = {
        .n = 3, .timeout_s = 55, .run = meet_the_wrong_one, .arg = &f};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, 3), 0);
    remove_dir(&f);
}

/* -------------------------------------------------------------- mistakes -- */

static void expect(const files *f, int rank, tutti_err want, const char *text)
{
    tutti_comm *comm;
    double start = tt_now_s();
    tutti_err err = create(f, rank, 3, 0.3, &comm);
    if (err != want || !strstr(tutti_last_message(), text))
        fail_msg("rank %d: %s, \"%s\"; expected %s, \"%s\"", rank,
                 tutti_errname(err), tutti_last_message(), tutti_errname(want),
                 text);
    assert_true(tt_now_s() - start < 20);
}

static void who_does_not_come_is_named(void **state)
{
    (void)state;
    files f = make_dir("x");
    expect(&f, 1, TUTTI_ETIMEOUT,
           "rank 1 did not reach rank 0 at the place "
           "that the program's store tells within ");
    expect(&f, 1, TUTTI_ETIMEOUT, "rank 0 has not put its addresses");
    expect(&f, 0, TUTTI_ETIMEOUT, "rank 1-2 of 3 have not come to port ");
    /* Now the store has what rank 0 has left there. */
    expect(&f, 2, TUTTI_ETIMEOUT, "rank 2 did not reach rank 0 at ");
    remove_dir(&f);
}

static void a_value_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const char *const values[] = {
        "",
        "tutti-meet 1 ",
        "tutti-meet 2 0123456789abcdef 00000000000000000000000000000000 1 2 "
        "::1",
        "tutti-meet 1 0123456789abcdeg 00000000000000000000000000000000 1 2 "
        "::1",
        "tutti-meet 1 0123456789abcdef 00000000000000000000000000000000 1 0 "
        "::1",
        "tutti-meet 1 0123456789abcdef 00000000000000000000000000000000 1 2",
        "tutti-meet 1 0123456789abcdef 00000000000000000000000000000000 1 2 "
        "host",
        "tutti-meet 1 0123456789abcdef 0000 1 2 ::1",
        "tutti-meet 1 0123456789abcdef 00000000000000000000000000000000 x 2 "
        "::1"};
    files f = make_dir("y");
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        assert_int_equal(put(&f, KEY, values[i], strlen(values[i])), 0);
        expect(&f, 1, TUTTI_EBOOT, "is not from rank 0 of this Tutti");
    }
    char many[2048] = "tutti-meet 1 0123456789abcdef "
                      "00000000000000000000000000000000 1 2";
    while (strlen(many) < 1500)
        strncat(many, " 1.2.3.4", sizeof(many) - strlen(many) - 1);
    assert_int_equal(put(&f, KEY, many, strlen(many)), 0);
    expect(&f, 1, TUTTI_EBOOT, "is not from rank 0 of this Tutti");
    remove_dir(&f);
}

/* As where GLOO_SOCKET_IFNAME or TUTTI_SOCKET_IFNAME is lo on several hosts. */
static void loopback_of_another_host_is_told(void **state)
{
    (void)state;
    static const char value[] =
        "tutti-meet 1 0123456789abcdef 00000000000000000000000000000000 1 2 "
        "127.0.0.1 ::1";
    files f = make_dir("z");
    assert_int_equal(put(&f, KEY, value, strlen(value)), 0);
    expect(&f, 1, TUTTI_ETIMEOUT,
           "(last try: it tells loopback addresses only, and is on another "
           "host: allow it another interface in TUTTI_SOCKET_IFNAME)");
    expect(&f, 1, TUTTI_ETIMEOUT, "did not reach rank 0 at 127.0.0.1:2 ");
    remove_dir(&f);
}

static void a_store_that_fails_ends_the_start(void **state)
{
    (void)state;
    files f = {.dir = "/tmp", .fails = true};
    expect(&f, 0, TUTTI_EBOOT, "failed when rank 0 told its addresses");
    expect(&f, 1, TUTTI_EBOOT, "failed when rank 1 looked for rank 0");
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    tutti_comm *comm;
    tutti_store store = {.put = put};
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    o.n_ranks = 2;
    o.store = &store;
    assert_int_equal(tutti_comm_create(&o, &comm), TUTTI_EINVAL);
    store.get = get;
    o.n_ranks = 0;
    assert_int_equal(tutti_comm_create(&o, &comm), TUTTI_EINVAL);
    o.n_ranks = 2;
    o.start_timeout_s = -1;
    assert_int_equal(tutti_comm_create(&o, &comm), TUTTI_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicators_do_not_meet_each_other),
        cmocka_unit_test(a_store_may_be_slow),
        cmocka_unit_test(an_old_value_is_passed_over),
        cmocka_unit_test(another_communicators_rank_0_sends_it_away),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(a_value_that_makes_no_sense_is_refused),
        cmocka_unit_test(loopback_of_another_host_is_told),
        cmocka_unit_test(a_store_that_fails_ends_the_start),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return TT_RUN_TAP(tests);
}
