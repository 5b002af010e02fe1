/* SPDX-License-Identifier: BSD-3-Clause
 * boot_test.c - start-up with real processes on loopback: everybody meets, or
 * everybody gets the sentence that names the culprit. */
#include "support/tap.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sock.h"
#include "boot/boot.h"
#include "boot/frame.h"
#include "boot/launch.h"

#define MOST 16

/* What one process saw, in memory shared with the test. */
typedef struct outcome {
    tutti_err open, exchange;
    char text[512];
    uint32_t blamed;
    double seconds;
    bool is_right; /* the exchanged data */
} outcome;

/* How one process behaves. */
typedef struct role {
    tt_launch launch;
    int delay_ms;
    uint64_t timeout_ms;
    int dies_before; /* exchange number 1 or 2; 0: never */
} role;

typedef struct scene {
    outcome *seen; /* [MOST], shared */
    pid_t pids[MOST];
    int n;
} scene;

static uint16_t free_port(int *keep)
{
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", 0, &addr));
    int fd = tt_sock_listen(&addr, 8);
    assert_true(fd >= 0);
    uint16_t port = tt_sock_port(fd);
    if (keep)
        *keep = fd;
    else
        close(fd);
    return port;
}

static void fill(unsigned char *piece, size_t len, uint32_t rank, int round)
{
    for (size_t i = 0; i < len; i++)
        piece[i] = (unsigned char)(rank * 31 + i * 7 + (unsigned)round);
}

static tutti_err exchange(tt_boot *boot, const role *me, int round, size_t len,
                          outcome *seen, tutti_diag *diag)
{
    static unsigned char mine[65536];
    static unsigned char want[65536];
    static unsigned char all[MOST * 65536];
    uint32_t n = me->launch.n_ranks;
    fill(mine, len, me->launch.rank, round);
    tutti_err err = tt_boot_exchange(boot, mine, len, all, diag);
    for (uint32_t r = 0; !err && r < n; r++) {
        fill(want, len, r, round);
        if (memcmp(want, all + r * len, len) != 0)
            seen->is_right = false;
    }
    return err;
}

static void play(const role *me, outcome *seen)
{
    tutti_diag diag;
    memset(&diag, 0, sizeof(diag));
    tt_settings settings;
    memset(&settings, 0, sizeof(settings));
    settings.start_timeout_ns = me->timeout_ms * TT_NS_PER_MS;
    poll(NULL, 0, me->delay_ms);
    uint64_t start = tt_now_ns();
    tt_boot *boot = NULL;
    seen->is_right = true;
    seen->open = tt_boot_open(&me->launch, &settings, &tt_mem_std,
                              start + settings.start_timeout_ns, &boot, &diag);
    static const size_t lens[] = {1096, 65536, 0};
    for (int round = 1; !seen->open && !seen->exchange && round <= 3; round++) {
        if (me->dies_before == round)
            _exit(0);
        seen->exchange = exchange(boot, me, round, lens[round - 1], seen,
                                  &diag);
    }
    tt_boot_close(seen->open ? NULL : boot);
    seen->seconds = (double)(tt_now_ns() - start) / TT_NS_PER_S;
    seen->blamed = diag.rank;
    snprintf(seen->text, sizeof(seen->text), "%s", diag.text);
}

static void start(scene *s, const role *me)
{
    if (!s->seen)
        s->seen = mmap(NULL, MOST * sizeof(outcome), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(s->seen, MAP_FAILED);
    assert_true(s->n < MOST);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        play(me, &s->seen[s->n]);
        _exit(0);
    }
    s->pids[s->n++] = pid;
}

static void finish(scene *s)
{
    for (int i = 0; i < s->n; i++) {
        int status = 0;
        assert_int_equal(waitpid(s->pids[i], &status, 0), s->pids[i]);
        assert_int_equal(status, 0);
    }
}

static void drop(scene *s)
{
    munmap(s->seen, MOST * sizeof(outcome));
    *s = (scene){0};
}

static role make_role(uint32_t rank, uint32_t n_ranks, const char *address,
                      const char *job)
{
    role me = {.launch = {.rank = rank, .n_ranks = n_ranks},
               .timeout_ms = 8000};
    snprintf(me.launch.address, sizeof(me.launch.address), "%s", address);
    snprintf(me.launch.job, sizeof(me.launch.job), "%s", job);
    return me;
}

static void expect_all_good(scene *s)
{
    finish(s);
    for (int i = 0; i < s->n; i++) {
        if (s->seen[i].open || s->seen[i].exchange)
            print_message("process %d: %s\n", i, s->seen[i].text);
        assert_int_equal(s->seen[i].open, TUTTI_OK);
        assert_int_equal(s->seen[i].exchange, TUTTI_OK);
        assert_true(s->seen[i].is_right);
    }
    drop(s);
}

static void expect_text(const outcome *seen, const char *part)
{
    if (!strstr(seen->text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, seen->text);
}

static void meet(const char *address, const char *job, uint32_t n, int late)
{
    scene s = {0};
    for (uint32_t r = 0; r < n; r++) {
        role me = make_role(r, n, address, job);
        me.delay_ms = r == 0 ? late : 0;
        start(&s, &me);
    }
    expect_all_good(&s);
}

static const char *loopback(char *out, size_t size, const char *host)
{
    snprintf(out, size, "%s:%u", host, free_port(NULL));
    return out;
}

static void test_meet(void **state)
{
    (void)state;
    char where[64];
    meet(loopback(where, sizeof(where), "127.0.0.1"), "", 2, 0);
    meet(loopback(where, sizeof(where), "127.0.0.1"), "a job", MOST, 0);
    meet(loopback(where, sizeof(where), "localhost"), "", 3, 0);
}

static void test_one_rank(void **state)
{
    (void)state;
    meet("", "", 1, 0);
}

static void test_late_rank_0(void **state)
{
    (void)state;
    char where[64];
    meet(loopback(where, sizeof(where), "127.0.0.1"), "", 4, 700);
    meet("", "late", 4, 300);
}

static void test_ipv6(void **state)
{
    (void)state;
    tt_addr addr;
    assert_true(tt_addr_numeric("::1", 0, &addr));
    int fd = tt_sock_listen(&addr, 1);
    if (fd < 0) {
        print_message("this machine has no IPv6 loopback\n");
        skip();
    }
    close(fd);
    char where[64];
    meet(loopback(where, sizeof(where), "[::1]"), "", 3, 0);
}

static void test_unix(void **state)
{
    (void)state;
    char job[64];
    snprintf(job, sizeof(job), "boot_test %ld", (long)getpid());
    meet("", job, 5, 0);
    meet("", job, 5, 0); /* the name is free again at once */
}

static void test_inherited_listener(void **state)
{
    (void)state;
    int fd = -1;
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%u", free_port(&fd));
    scene s = {0};
    for (uint32_t r = 0; r < 3; r++) {
        role me = make_role(r, 3, where, "");
        me.launch.listen_fd = r == 0 ? fd : 0;
        start(&s, &me);
    }
    expect_all_good(&s);
    close(fd);
}

static void test_missing_ranks(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    static const uint32_t here[] = {0, 1, 2, 4};
    for (int i = 0; i < 4; i++) {
        role me = make_role(here[i], 8, where, "");
        me.timeout_ms = 500;
        start(&s, &me);
    }
    finish(&s);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(s.seen[i].open, TUTTI_ETIMEOUT);
        expect_text(&s.seen[i], "rank 3, 5-7 of 8 have not come to");
        expect_text(&s.seen[i], where);
        assert_int_equal(s.seen[i].blamed, i == 0 ? 3 : TT_NONE);
        assert_true(s.seen[i].seconds < 2.5);
    }
    drop(&s);
}

static void test_no_rank_0(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    role me = make_role(1, 2, where, "");
    me.timeout_ms = 300;
    start(&s, &me);
    me = make_role(1, 2, "no-such-host.invalid:4711", "");
    me.timeout_ms = 300;
    start(&s, &me);
    finish(&s);
    assert_int_equal(s.seen[0].open, TUTTI_ETIMEOUT);
    expect_text(&s.seen[0], "rank 1 did not reach rank 0 at 127.0.0.1:");
    expect_text(&s.seen[0], "Connection refused");
    assert_int_equal(s.seen[1].open, TUTTI_ETIMEOUT);
    expect_text(&s.seen[1], "no-such-host.invalid");
    drop(&s);
}

static void test_wrong_size(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    role me = make_role(0, 8, where, "");
    start(&s, &me);
    me = make_role(1, 8, where, "");
    start(&s, &me);
    me = make_role(3, 4, where, "");
    me.delay_ms = 200;
    start(&s, &me);
    finish(&s);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s.seen[i].open, TUTTI_ECONFIG);
        expect_text(&s.seen[i], "rank 3 says that the job has 4 ranks");
        expect_text(&s.seen[i], "says 8");
    }
    drop(&s);
}

static void test_duplicate_rank(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    for (uint32_t r = 0; r < 3; r++) {
        role me = make_role(r < 2 ? r : 1, 3, where, "");
        start(&s, &me);
    }
    finish(&s);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s.seen[i].open, TUTTI_ECONFIG);
        expect_text(&s.seen[i], "two processes say that they are rank 1");
    }
    drop(&s);
}

/* A rank of another job is sent away; ours goes on without noticing. */
static void test_other_job(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    role me = make_role(0, 2, where, "one");
    start(&s, &me);
    me = make_role(1, 2, where, "two");
    me.delay_ms = 100;
    start(&s, &me);
    me = make_role(1, 2, where, "one");
    me.delay_ms = 300;
    start(&s, &me);
    finish(&s);
    assert_int_equal(s.seen[0].open, TUTTI_OK);
    assert_int_equal(s.seen[2].open, TUTTI_OK);
    assert_int_equal(s.seen[1].open, TUTTI_EBOOT);
    expect_text(&s.seen[1], "belongs to another job");
    drop(&s);
}

static int call(uint16_t port)
{
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", port, &addr));
    uint64_t until = tt_now_ns() + 5 * TT_NS_PER_S;
    for (;;) {
        int fd = tt_sock_connect(&addr, until);
        if (fd >= 0)
            return fd;
        assert_true(tt_now_ns() < until);
        poll(NULL, 0, 10);
    }
}

static int shout(uint16_t port, const void *bytes, size_t len)
{
    int fd = call(port);
    tt_sock_write_all(fd, bytes, len, tt_now_ns() + TT_NS_PER_S);
    return fd;
}

/* Strangers that say nothing, rubbish, half a header, another version. */
static void test_strangers(void **state)
{
    (void)state;
    uint16_t port = free_port(NULL);
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    scene s = {0};
    role me = make_role(0, 2, where, "");
    start(&s, &me);
    tt_frame old = {.magic = TT_FRAME_MAGIC, .version = 77, .kind = 1};
    tt_frame odd = {.magic = TT_FRAME_MAGIC,
                    .version = TT_FRAME_VERSION,
                    .kind = TT_FRAME_DATA,
                    .len = UINT64_MAX};
    int fds[70];
    int n = 0;
    fds[n++] = call(port);
    fds[n++] = shout(port, "GET / HTTP/1.1\r\nHost: you\r\n\r\n", 29);
    fds[n++] = shout(port, &old, 11);
    fds[n++] = shout(port, &odd, sizeof(odd));
    int refused = fds[n++] = shout(port, &old, sizeof(old));
    while (n < 30)
        fds[n++] = call(port);
    tt_frame answer;
    char text[TT_FRAME_TEXT + 1] = "";
    uint64_t until = tt_now_ns() + 5 * TT_NS_PER_S;
    assert_int_equal(tt_sock_read_all(refused, &answer, sizeof(answer), until),
                     0);
    assert_int_equal(answer.kind, TT_FRAME_ERROR);
    assert_in_range(answer.len, 1, TT_FRAME_TEXT);
    assert_int_equal(tt_sock_read_all(refused, text, answer.len, until), 0);
    assert_non_null(strstr(text, "the other side version 77"));
    me = make_role(1, 2, where, "");
    start(&s, &me);
    expect_all_good(&s);
    while (n > 0)
        close(fds[--n]);
}

static void test_port_in_use(void **state)
{
    (void)state;
    int fd = -1;
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%u", free_port(&fd));
    scene s = {0};
    role me = make_role(0, 2, where, "");
    start(&s, &me);
    me = make_role(1, 2, where, ""); /* meets a listener that never answers */
    me.timeout_ms = 400;
    start(&s, &me);
    finish(&s);
    close(fd);
    assert_int_equal(s.seen[0].open, TUTTI_EBOOT);
    expect_text(&s.seen[0], "is in use");
    expect_text(&s.seen[0], where);
    assert_int_equal(s.seen[1].open, TUTTI_ETIMEOUT);
    expect_text(&s.seen[1], "has not answered as rank 0");
    drop(&s);
}

static void expect_death(int dies_before, int who)
{
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    for (uint32_t r = 0; r < 4; r++) {
        role me = make_role(r, 4, where, "");
        me.dies_before = (int)r == who ? dies_before : 0;
        start(&s, &me);
    }
    finish(&s);
    char part[32];
    snprintf(part, sizeof(part), "rank %d ", who);
    for (int r = 0; r < 4; r++) {
        if (r == who)
            continue;
        assert_int_equal(s.seen[r].open, TUTTI_OK);
        assert_int_equal(s.seen[r].exchange, TUTTI_EPEER);
        expect_text(&s.seen[r], part);
        assert_true(s.seen[r].seconds < 3);
    }
    drop(&s);
}

static void test_death(void **state)
{
    (void)state;
    expect_death(1, 2);
    expect_death(2, 3);
    expect_death(2, 0);
}

/* A rank that is killed while others are still missing ends the wait. */
static void test_death_while_waiting(void **state)
{
    (void)state;
    char where[64];
    loopback(where, sizeof(where), "127.0.0.1");
    scene s = {0};
    for (uint32_t r = 0; r < 3; r++) {
        role me = make_role(r, 4, where, "");
        start(&s, &me);
    }
    poll(NULL, 0, 400);
    kill(s.pids[2], SIGKILL);
    int status;
    waitpid(s.pids[2], &status, 0);
    s.n = 2;
    finish(&s);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s.seen[i].open, TUTTI_EBOOT);
        expect_text(&s.seen[i], "rank 2 left before all ranks had come");
    }
    drop(&s);
}

static void test_nowhere(void **state)
{
    (void)state;
    scene s = {0};
    role me = make_role(0, 2, "", "");
    start(&s, &me);
    me = make_role(0, 2, "nonsense", "");
    start(&s, &me);
    finish(&s);
    assert_int_equal(s.seen[0].open, TUTTI_ECONFIG);
    expect_text(&s.seen[0], "TUTTI_ADDR");
    assert_int_equal(s.seen[1].open, TUTTI_ECONFIG);
    expect_text(&s.seen[1], "\"nonsense\"");
    drop(&s);
}

/* ------------------------------------------------------------- launch -- */

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE",
                                        "PMIX_RANK",
                                        "OMPI_MCA_ess_base_jobid",
                                        "MV2_COMM_WORLD_RANK",
                                        "MV2_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMI_FD",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_JOB_NODELIST",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_NNODES",
                                        "SLURM_STEP_NUM_NODES"};

/* One environment and what it means. TUTTI_* come through settings. */
typedef struct launch_case {
    const char *env; /* "A=1 B=2" */
    tutti_err err;
    uint32_t rank, n_ranks;
    const char *address;
    const char *source; /* or, for an error, what the text must contain */
    const char *job;    /* what it begins with; NULL: "" */
} launch_case;

static const launch_case cases[] = {
    {"", TUTTI_OK, 0, 1, "", "no launcher", NULL},
    {"TUTTI_RANK=2 TUTTI_SIZE=4 TUTTI_ADDR=h:1 RANK=9", TUTTI_OK, 2, 4, "h:1",
     "TUTTI_RANK", NULL},
    {"TUTTI_RANK=2 TUTTI_SIZE=4 TUTTI_JOB=x", TUTTI_OK, 2, 4, "", "TUTTI_RANK",
     "x"},
    {"TUTTI_RANK=2 TUTTI_SIZE=4 MASTER_ADDR=m MASTER_PORT=7", TUTTI_OK, 2, 4,
     "m:7", "TUTTI_RANK", NULL},
    {"TUTTI_RANK=2", TUTTI_ECONFIG, 0, 0, "", "TUTTI_SIZE is not set", NULL},
    {"TUTTI_SIZE=2", TUTTI_ECONFIG, 0, 0, "", "TUTTI_RANK is not set", NULL},
    {"TUTTI_RANK=x TUTTI_SIZE=4", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_RANK is \"x\"", NULL},
    {"TUTTI_RANK=-1 TUTTI_SIZE=4", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_RANK is \"-1\"", NULL},
    {"TUTTI_RANK=4 TUTTI_SIZE=4", TUTTI_ECONFIG, 0, 0, "",
     "expected a rank, 0 to 3", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=0", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_SIZE is \"0\"", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=99999999999", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_SIZE is", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=h", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_ADDR is \"h\"", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=::1:5", TUTTI_ECONFIG, 0, 0, "",
     "[ipv6]:port", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=h:65536", TUTTI_ECONFIG, 0, 0, "",
     "1 to 65535", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=[::1]:5", TUTTI_OK, 0, 2, "[::1]:5",
     "TUTTI_RANK", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=29500", TUTTI_OK, 1, 2,
     "m:29500", "torchrun", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=29500 "
     "TORCHELASTIC_USE_AGENT_STORE=True",
     TUTTI_OK, 1, 2, "m:29501", "torchrun", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=5", TUTTI_OK, 1, 2,
     "[fd00::1]:5", "torchrun", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m TUTTI_ADDR=t:5", TUTTI_OK, 1, 2, "t:5",
     "torchrun", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m", TUTTI_ECONFIG, 0, 0, "",
     "MASTER_PORT is not set", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=0", TUTTI_ECONFIG, 0, 0, "",
     "MASTER_PORT is \"0\"", NULL},
    {"RANK=1 WORLD_SIZE=2", TUTTI_ECONFIG, 0, 0, "", "MASTER_ADDR", NULL},
    {"RANK=1 WORLD_SIZE=2 TUTTI_JOB=j", TUTTI_OK, 1, 2, "", "torchrun", "j"},
    {"RANK=0 WORLD_SIZE=1", TUTTI_OK, 0, 1, "", "torchrun", NULL},
    {"RANK=1", TUTTI_ECONFIG, 0, 0, "", "WORLD_SIZE is not set", NULL},
    {"WORLD_SIZE=2", TUTTI_ECONFIG, 0, 0, "", "RANK is not set", NULL},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=77 PMIX_RANK=1",
     TUTTI_OK, 1, 2, "", "Open MPI", "openmpi-77"},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_MCA_ess_base_jobid=78",
     TUTTI_OK, 1, 2, "", "Open MPI", "openmpi-78"},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=77",
     TUTTI_ECONFIG, 0, 0, "", "TUTTI_ADDR", NULL},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=1 MASTER_ADDR=m MASTER_PORT=9",
     TUTTI_OK, 1, 2, "m:9", "Open MPI", NULL},
    {"MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 TUTTI_ADDR=a:1", TUTTI_OK, 1,
     2, "a:1", "MVAPICH", NULL},
    {"MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_ADDR", NULL},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2", TUTTI_OK, 1, 2, "", "MPICH",
     "mpich-"},
    {"PMI_RANK=1 PMI_SIZE=2", TUTTI_ECONFIG, 0, 0, "", "TUTTI_ADDR", NULL},
    {"PMIX_RANK=1", TUTTI_ECONFIG, 0, 0, "", "PMIX_RANK", NULL},
    {"SLURM_PROCID=1 SLURM_NTASKS=2", TUTTI_OK, 0, 1, "", "no launcher", NULL},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=0 "
     "SLURM_JOB_NODELIST=n SLURM_STEP_NUM_NODES=1",
     TUTTI_OK, 1, 2, "", "Slurm", "slurm-5.0"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=0 "
     "SLURM_JOB_NODELIST=n[2-3] SLURM_NNODES=2 PMI_RANK=1 PMI_SIZE=2 PMI_FD=9",
     TUTTI_OK, 1, 2, "n2:", "Slurm", "slurm-5.0"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=0 "
     "SLURM_JOB_NODELIST=[] SLURM_NNODES=2",
     TUTTI_ECONFIG, 0, 0, "", "SLURM_JOB_NODELIST", NULL},
    {"SLURM_PROCID=1 SLURM_STEP_ID=0", TUTTI_ECONFIG, 0, 0, "",
     "SLURM_NTASKS is not set", NULL},
};

static void set_member(tt_settings *settings, const char *name,
                       const char *value)
{
    char *to = NULL;
    if (strcmp(name, "TUTTI_RANK") == 0)
        to = settings->rank;
    else if (strcmp(name, "TUTTI_SIZE") == 0)
        to = settings->n_ranks;
    else if (strcmp(name, "TUTTI_ADDR") == 0)
        to = settings->address;
    else if (strcmp(name, "TUTTI_JOB") == 0)
        to = settings->job;
    else
        setenv(name, value, 1);
    if (to)
        snprintf(to, TT_SETTING_TEXT, "%s", value);
}

static void set_env(const char *env, tt_settings *settings)
{
    char copy[512];
    char *rest = NULL;
    memset(settings, 0, sizeof(*settings));
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    snprintf(copy, sizeof(copy), "%s", env);
    for (char *w = strtok_r(copy, " ", &rest); w;
         w = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(w, '=');
        assert_non_null(equals);
        *equals = '\0';
        set_member(settings, w, equals + 1);
    }
}

static void check_case(const launch_case *c)
{
    tt_settings settings;
    tt_launch got;
    tutti_diag diag;
    set_env(c->env, &settings);
    tutti_err err = tt_launch_detect(NULL, &settings, &got, &diag);
    if (err != c->err)
        fail_msg("\"%s\": %s, expected %s (%s)", c->env, tutti_errname(err),
                 tutti_errname(c->err), err ? diag.text : "");
    if (err) {
        if (!strstr(diag.text, c->source))
            fail_msg("\"%s\": \"%s\" is not in \"%s\"", c->env, c->source,
                     diag.text);
        return;
    }
    assert_int_equal(got.rank, c->rank);
    assert_int_equal(got.n_ranks, c->n_ranks);
    assert_string_equal(got.source, c->source);
    size_t n = strlen(c->address);
    got.address[n + (n == 0 || c->address[n - 1] != ':')] = '\0';
    if (n > 0 && c->address[n - 1] == ':')
        got.address[n] = '\0';
    assert_string_equal(got.address, c->address);
    const char *job = c->job ? c->job : "";
    assert_memory_equal(got.job, job, strlen(job) + !c->job);
}

static void test_launchers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_case(&cases[i]);
}

static void test_options(void **state)
{
    (void)state;
    tt_settings settings;
    tt_launch got;
    tutti_diag diag;
    set_env("TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_ADDR=a:1", &settings);
    tutti_comm_opts opts = TUTTI_COMM_OPTS_INIT;
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag), 0);
    assert_int_equal(got.rank, 1);
    assert_string_equal(got.address, "a:1");
    opts.address = "b:2";
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag), 0);
    assert_int_equal(got.rank, 1);
    assert_string_equal(got.address, "b:2");
    opts.n_ranks = 5;
    opts.rank = 4;
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag), 0);
    assert_int_equal(got.rank, 4);
    assert_int_equal(got.n_ranks, 5);
    opts.rank = 5;
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag),
                     TUTTI_ECONFIG);
    opts.rank = 0;
    opts.address = "b";
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag),
                     TUTTI_ECONFIG);
}

static void test_listen_fd(void **state)
{
    (void)state;
    tt_settings settings;
    tt_launch got;
    tutti_diag diag;
    int fd = -1;
    uint16_t port = free_port(&fd);
    char env[128];
    snprintf(env, sizeof(env),
             "TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=127.0.0.1:%u", port);
    set_env(env, &settings);
    snprintf(settings.listen_fd, sizeof(settings.listen_fd), "%d", fd);
    assert_int_equal(tt_launch_detect(NULL, &settings, &got, &diag), 0);
    assert_int_equal(got.listen_fd, fd);
    snprintf(settings.rank, sizeof(settings.rank), "1");
    assert_int_equal(tt_launch_detect(NULL, &settings, &got, &diag), 0);
    assert_int_equal(got.listen_fd, 0);
    close(fd);
    snprintf(settings.rank, sizeof(settings.rank), "0");
    assert_int_equal(tt_launch_detect(NULL, &settings, &got, &diag), 0);
    assert_int_equal(got.listen_fd, 0); /* it listens no more */
    snprintf(settings.listen_fd, sizeof(settings.listen_fd), "stdin");
    assert_int_equal(tt_launch_detect(NULL, &settings, &got, &diag),
                     TUTTI_ECONFIG);
}

static void test_slurm_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *host;
    } lists[] = {
        {"a", "a"},
        {"a,b", "a"},
        {"node[01-04,7]", "node01"},
        {"node[7],x", "node7"},
        {"r[1-2]n[03,05]-ib,z", "r1n03-ib"},
        {"gpu[0010]", "gpu0010"},
    };
    static const char *const bad[] = {"",     ",a",    "a[", "a[]",
                                      "a[x]", "a[1-2", "a]"};
    char host[32];
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_true(tt_slurm_first_host(lists[i].list, host, sizeof(host)));
        assert_string_equal(host, lists[i].host);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(tt_slurm_first_host(bad[i], host, sizeof(host)));
    assert_true(tt_slurm_first_host("abc", host, 4));
    assert_false(tt_slurm_first_host("abcd", host, 4));
}

/* A process manager of a few lines, on the other end of a socket pair. */
static void manage(int fd)
{
    static const struct {
        const char *question, *answer;
    } talk[] = {
        {"cmd=init ", "cmd=response_to_init rc=0\n"},
        {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1 rc=0\n"},
        {"cmd=barrier_in", "cmd=barrier_out rc=0\n"},
        {"cmd=get kvsname=kvs_1 key=tutti-address",
         "cmd=get_result rc=0 msg=success value=10.0.0.1:77\n"},
        {"cmd=finalize", "cmd=finalize_ack rc=0\n"},
    };
    for (size_t i = 0; i < sizeof(talk) / sizeof(talk[0]); i++) {
        char line[256] = "";
        ssize_t n = read(fd, line, sizeof(line) - 1);
        if (n <= 0 ||
            strncmp(line, talk[i].question, strlen(talk[i].question)) != 0)
            _exit(1);
        if (write(fd, talk[i].answer, strlen(talk[i].answer)) < 0)
            _exit(1);
    }
    _exit(0);
}

static void test_pmi(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0)
        manage(pair[1]);
    close(pair[1]);
    char text[64] = "";
    tutti_diag diag;
    assert_int_equal(tt_pmi_share(pair[0], false, text, sizeof(text), &diag),
                     TUTTI_OK);
    assert_string_equal(text, "10.0.0.1:77");
    int status = -1;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    /* Nobody there any more. */
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(tt_pmi_share(pair[0], true, text, sizeof(text), &diag),
                     TUTTI_EBOOT);
    close(pair[0]);
}

static void test_host_id(void **state)
{
    (void)state;
    tt_host_id a;
    tt_host_id b;
    memset(&a, 0xff, sizeof(a));
    memset(&b, 0, sizeof(b));
    tt_host_id_get(&a);
    tt_host_id_get(&b);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(a.uid, geteuid());
    static const uint8_t none[16];
    assert_memory_not_equal(a.boot_id, none, 16);
}

int main(void)
{
    tt_log_setup(TUTTI_LOG_ERROR); /* strangers are worth a warning */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meet),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_late_rank_0),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_unix),
        cmocka_unit_test(test_inherited_listener),
        cmocka_unit_test(test_missing_ranks),
        cmocka_unit_test(test_no_rank_0),
        cmocka_unit_test(test_wrong_size),
        cmocka_unit_test(test_duplicate_rank),
        cmocka_unit_test(test_other_job),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_death_while_waiting),
        cmocka_unit_test(test_nowhere),
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_listen_fd),
        cmocka_unit_test(test_slurm_lists),
        cmocka_unit_test(test_pmi),
        cmocka_unit_test(test_host_id),
    };
    return TT_RUN_TAP(tests);
}
