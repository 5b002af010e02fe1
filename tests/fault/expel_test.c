/* SPDX-License-Identifier: BSD-3-Clause
 * expel_test.c - a member is put out while the job goes on: it comes back by
 * nothing that it has, those who are left go on, and a newcomer with something
 * else is taken in. By secrets and by certificates; also where one of those who
 * put it out dies in the middle; and where nobody can be put out nothing is
 * changed. */
#include "support/tap.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti.h>

#include "base/rng.h"
#include "support/certs.h"
#include "support/folder.h"
#include "support/procs.h"
#include "support/seed.h"

/* Ranks of the job; who goes; and behind them a newcomer. */
enum { MEMBERS = 4, OUT = 2, NEWCOMER = MEMBERS, PROCS };

typedef enum proof { SECRET, CERTS, ONE_CERT, PLAIN, NOTHING } proof;

/* What processes share. */
typedef struct plan {
    proof proof;
    bool dies; /* rank 3, while it is in tutti_comm_shrink() */
    uint32_t delay_us;
    char address[64];
    _Atomic int n_started; /* members that are out of their first call */
    _Atomic int is_out;    /* the others have said so */
    _Atomic int has_tried;
} plan;

static const char old[] = "old-0123456789-0123456789-0123456789";
static const char later[] = "later-0123456789-0123456789-0123456789";

static bool write_secret(const char *name, const char *secret)
{
    FILE *f = fopen(tt_folder_path(name), "we");
    return f && chmod(tt_folder_path(name), 0600) == 0 &&
           fprintf(f, "%s\n", secret) > 0 && fclose(f) == 0;
}

/* The files of a process: certificates of its own, or everybody's secret. */
static void choose_proof(const plan *p, int me, tutti_comm_opts *o)
{
    static char cert[160], key[160], ca[160];
    char own[16];
    const char *dir;
    o->trust.is_plain = p->proof == PLAIN;
    if (p->proof == SECRET || p->proof == PLAIN)
        o->trust.secret_file = tt_folder_path(me == NEWCOMER ? "later" : "old");
    if (p->proof != CERTS && p->proof != ONE_CERT)
        return;
    snprintf(own, sizeof(own), "certs%d", p->proof == CERTS ? me : 0);
    dir = tt_folder_path(own);
    snprintf(cert, sizeof(cert), "%s/cert.pem", dir);
    snprintf(key, sizeof(key), "%s/key.pem", dir);
    snprintf(ca, sizeof(ca), "%s/ca.pem", dir);
    o->trust.tls_cert = cert;
    o->trust.tls_key = key;
    o->trust.tls_ca = ca;
}

static void await(_Atomic int *flag)
{
    while (!atomic_load(flag))
        usleep(1000);
}

/* ------------------------------------------------------------ who goes -- */

/* By its old proof; and what it still has of the job is of no use. */
static int try_again(plan *p, int me, tutti_comm *comm, tutti_comm_opts *o)
{
    uint64_t all;
    tutti_comm *back;
    await(&p->is_out);
    if (!tt_procs_bits(comm, me, &all))
        return tt_procs_complain(me, "the others still hear it");
    tutti_comm_destroy(comm);
    o->address = p->address;
    o->start_timeout_s = 3;
    tutti_err err = tutti_comm_join(o, &back);
    if (err != TUTTI_EBOOT || !strstr(tutti_last_message(), "secret"))
        return tt_procs_blame(me, "who was put out", err, NULL);
    atomic_store(&p->has_tried, 1);
    return 0;
}

/* --------------------------------------------------------- who are left -- */

static void *die_soon(void *arg)
{
    usleep(((const plan *)arg)->delay_us);
    kill(getpid(), SIGKILL);
    return NULL;
}

static tutti_err put_out(tutti_comm *comm, bool puts_out, tutti_comm **out)
{
    static const int goes = OUT;
    tutti_shrink_opts o = TUTTI_SHRINK_OPTS_INIT;
    o.exclude = &goes;
    o.n_exclude = 1;
    o.quorum = 1;
    o.puts_out = puts_out;
    return tutti_comm_shrink(comm, &o, out);
}

/* Until the newcomer is there, and who is out has tried in vain. */
static int go_on(plan *p, int me, tutti_comm *comm)
{
    const uint64_t gone = UINT64_C(1) << OUT |
                          (p->dies ? UINT64_C(1) << (MEMBERS - 1) : 0);
    const uint64_t want = ((UINT64_C(1) << PROCS) - 1) & ~gone;
    tutti_grow_opts opts = TUTTI_GROW_OPTS_INIT;
    opts.address = p->address;
    for (;;) {
        uint64_t all = 0;
        tutti_comm *other = NULL;
        tutti_err err = tt_procs_bits(comm, me, &all);
        if (!err && (all & UINT64_C(1) << OUT))
            return tt_procs_complain(me, "who was put out is back");
        if (!err && all == want)
            break;
        if (!err)
            err = tutti_comm_grow(comm, &opts, &other);
        if (err && tutti_comm_failure(comm))
            err = tutti_comm_shrink(comm, NULL, &other);
        if (err && err != TUTTI_AGAIN)
            return tt_procs_blame(me, "who is left", err, comm);
        if (other) {
            tutti_comm_destroy(comm);
            comm = other;
        }
        usleep(500);
    }
    tutti_comm_destroy(comm);
    return 0;
}

static int stay(plan *p, int me, tutti_comm *comm)
{
    tutti_comm *smaller;
    pthread_t thread;
    const bool is_dying = p->dies && me == MEMBERS - 1;
    while (is_dying && atomic_load(&p->n_started) < MEMBERS)
        usleep(1000); /* the others are still in their first call */
    if (is_dying)
        pthread_create(&thread, NULL, die_soon, p);
    tutti_err err = put_out(comm, true, &smaller);
    while (is_dying)
        usleep(1000);
    if (err)
        return tt_procs_blame(me, "put out", err, comm);
    if (tutti_comm_failure(comm) != TUTTI_EPEER)
        return tt_procs_complain(me, "the old communicator is well");
    tutti_comm_destroy(comm);
    atomic_store(&p->is_out, 1);
    return go_on(p, me, smaller);
}

static int take_part(int me, int n, void *arg)
{
    plan *p = arg;
    uint64_t all;
    tutti_comm *comm;
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    (void)n;
    choose_proof(p, me, &o);
    setenv("TUTTI_JOIN", getenv("TUTTI_JOB"), 1);
    if (me != NEWCOMER) {
        setenv("TUTTI_SIZE", "4", 1);
        if (tutti_comm_create(&o, &comm) || tt_procs_bits(comm, me, &all))
            return tt_procs_blame(me, "start", TUTTI_EBOOT, NULL);
        atomic_fetch_add(&p->n_started, 1);
        return me == OUT ? try_again(p, me, comm, &o) : stay(p, me, comm);
    }
    unsetenv("TUTTI_RANK");
    unsetenv("TUTTI_SIZE");
    unsetenv("TUTTI_JOB");
    await(&p->has_tried);
    if (p->proof == SECRET && !write_secret("old", later))
        return tt_procs_complain(me, "no file");
    usleep(300000); /* it is looked at five times a second */
    o.address = p->address;
    o.start_timeout_s = 50;
    tutti_err err = tutti_comm_join(&o, &comm);
    return err ? tt_procs_blame(me, "newcomer", err, NULL) : go_on(p, me, comm);
}

/* ---------------------------------------------------- where it cannot be -- */

/* All are told why, and go on, as far as they like. */
static int fail_to(int me, int n, void *arg)
{
    static const char *const says[] = {[ONE_CERT] = "has the same certificate",
                                       [PLAIN] = "TUTTI_ENCRYPT=0",
                                       [NOTHING] = "needs a secret"};
    const plan *p = arg;
    uint64_t all;
    tutti_comm *comm, *smaller;
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    choose_proof(p, me, &o);
    if (tutti_comm_create(&o, &comm) || tt_procs_bits(comm, me, &all))
        return tt_procs_blame(me, "start", TUTTI_EBOOT, NULL);
    if (me != OUT) {
        tutti_err err = put_out(comm, true, &smaller);
        if (err != TUTTI_ECONFIG ||
            !strstr(tutti_comm_message(comm), says[p->proof]))
            return tt_procs_blame(me, "put out", err, comm);
        err = put_out(comm, false, &smaller);
        if (err)
            return tt_procs_blame(me, "left out", err, comm);
        if (tt_procs_bits(smaller, me, &all) ||
            all != ((UINT64_C(1) << n) - 1 - (1 << OUT)))
            return tt_procs_blame(me, "the smaller one", TUTTI_EPROOF, smaller);
        tutti_comm_destroy(smaller);
    } else {
        tt_procs_bits(comm, me, &all); /* until the others have gone */
    }
    tutti_comm_destroy(comm);
    return 0;
}

/* ----------------------------------------------------------------- tests -- */

static void make_files(void)
{
    for (int i = 0; i < PROCS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "certs%d", i);
        mkdir(tt_folder_path(name), 0700);
        assert_true(i == 0 ? tt_test_certs(tt_folder_path(name), 3600)
                           : tt_test_cert_again(tt_folder_path(name), 3600));
    }
    assert_true(write_secret("old", old));
    assert_true(write_secret("later", later));
}

static void remove_files(void)
{
    static const char *const files[] = {"cert.pem", "key.pem", "ca.pem"};
    for (int i = 0; i < 3 * PROCS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "certs%d/%s", i / 3, files[i % 3]);
        unlink(tt_folder_path(name));
    }
}

static void run(const plan *what, int n, int (*each)(int, int, void *))
{
    int status[TT_PROCS_MAX];
    plan *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    *p = *what;
    make_files();
    snprintf(p->address, sizeof(p->address), "127.0.0.1:%d", tt_procs_port());
    const tt_procs procs = {
        .n = n, .timeout_s = 55, .transports = "tcp", .run = each, .arg = p};
    bool is_in_time = tt_procs_run(&procs, status);
    remove_files();
    assert_true(is_in_time);
    for (int r = 0; r < n; r++)
        if (p->dies && r == MEMBERS - 1)
            assert_true(WIFSIGNALED(status[r]));
        else
            assert_int_equal(status[r], 0);
    munmap(p, sizeof(*p));
}

static void by_secrets(void **state)
{
    (void)state;
    run(&(plan){.proof = SECRET}, PROCS, take_part);
}

static void by_certificates(void **state)
{
    (void)state;
    run(&(plan){.proof = CERTS}, PROCS, take_part);
}

static void one_dies(void **state)
{
    uint64_t seed = tt_test_seed(1);
    const char *rounds = getenv("TT_ROUNDS");
    (void)state;
    for (int i = 0; i < (rounds ? atoi(rounds) : 4); i++) {
        tt_rng rng = {seed + (uint64_t)i};
        plan p = {.proof = i % 2 ? CERTS : SECRET, .dies = true};
        p.delay_us = (uint32_t)tt_rng_below(&rng, 4000);
        run(&p, PROCS, take_part);
    }
}

static void where_it_cannot_be(void **state)
{
    (void)state;
    for (proof x = ONE_CERT; x <= NOTHING; x++)
        run(&(plan){.proof = x}, MEMBERS, fail_to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_secrets),
        cmocka_unit_test(by_certificates),
        cmocka_unit_test(one_dies),
        cmocka_unit_test(where_it_cannot_be),
    };
    if (!TT_HAVE_OPENSSL) {
        printf("1..0 # SKIP built without OpenSSL\n");
        return 77;
    }
    if (!tt_folder_open("expel"))
        return 1;
    int failed = TT_RUN_TAP(tests);
    tt_folder_close();
    return failed;
}
