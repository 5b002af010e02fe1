/* SPDX-License-Identifier: BSD-3-Clause
 * strangers.c - what connections of strangers cost a job.
 *
 *     strangers [-s | -t] [-n RANKS] [-c CONNECTIONS] [-r RATE] [-b BYTES]
 *               [-k ROUNDS]
 *
 * RANKS processes of this host all-reduce BYTES over TCP, one call after the
 * other. In each of ROUNDS a part of CONNECTIONS comes, RATE of them a second:
 * to all sockets at which the job listens, and then as many to another process
 * that takes them and hangs up, which costs the machine the same and the job
 * nothing. So the job's throughput is compared at equal load. Strangers are
 * silent, say half a greeting, a wrong one, or something else, and stay until
 * 256 others have come. With -s the job has a secret, and strangers begin TLS:
 * with another secret, and wait; the same, and go on; half of it; with the name
 * of the job's secret, as it can be seen on the wire, but without the secret;
 * and all that one who has it said, again. With -t the job has a certificate
 * (which `openssl` makes), and four fifths of the strangers say what a member
 * says first, which anybody can. Then the job rests, and a part of CONNECTIONS
 * comes to each of both: what that costs of processors. At last jobs are
 * started, with and without strangers at the place where they meet. Printed:
 * the growth of memory (the rank that grew most), the throughput, the costs,
 * how much later jobs start. Fails when a call does. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "tests/support/doors.h"

/* What ranks agree on in each call: the greatest. */
enum { GO, REST, STOP };
enum { MOST_RANKS = 16, MOST_DOORS = 32, STAY = 256, MOST_ROUNDS = 64 };

static const char the_secret[] = "the job's own secret, of 32 bytes or more";

static struct options {
    long n, connections, rate, bytes, rounds;
} opt = {2, 100000, 5000, 1 << 20, 5};
static bool has_secret, has_certs;
static char cert[64], key[64]; /* files */

/* What parent and children share. */
static struct shared {
    atomic_ulong n_calls;
    atomic_bool stops, rests, has_failed;
    atomic_ulong n_strangers; /* of the flood that runs */
    atomic_int n_started;
    double started_s[MOST_RANKS];
} * shared;

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static pid_t begin_child(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ------------------------------------------------------------------- job -- */

static void set_trust(tutti_comm_opts *o, const char *secret, size_t len)
{
    if (has_secret) {
        o->trust.secret = secret;
        o->trust.n_secret = len;
    }
    if (has_certs) {
        o->trust.tls_cert = o->trust.tls_ca = cert;
        o->trust.tls_key = key;
    }
}

static tutti_err call(tutti_comm *comm, float *x, size_t count)
{
    x[0] = atomic_load(&shared->stops)   ? STOP
           : atomic_load(&shared->rests) ? REST
                                         : GO;
    return tutti_all_reduce(comm, x, x, count, TUTTI_F32, TUTTI_MAX, NULL,
                            NULL);
}

static void be_rank(long rank, const char *address)
{
    char text[32];
    tutti_comm *comm;
    size_t count = (size_t)opt.bytes / sizeof(float) + 1;
    float *x = calloc(count, sizeof(*x));
    snprintf(text, sizeof(text), "%ld", rank);
    setenv("TUTTI_RANK", text, 1);
    snprintf(text, sizeof(text), "%ld", opt.n);
    setenv("TUTTI_SIZE", text, 1);
    setenv("TUTTI_ADDR", address, 1);
    setenv("TUTTI_TRANSPORTS", "tcp", 1);
    setenv("TUTTI_LOG", "error", 1);
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    set_trust(&o, the_secret, sizeof(the_secret));
    double begin = now_s();
    tutti_err err = x ? tutti_comm_create(&o, &comm) : TUTTI_ENOMEM;
    shared->started_s[rank] = now_s() - begin;
    bool was_created = !err;
    atomic_fetch_add(&shared->n_started, 1);
    while (!err && x[0] < STOP) {
        while (x[0] == REST && atomic_load(&shared->rests))
            usleep(10000);
        err = call(comm, x, count);
        if (rank == 0)
            atomic_fetch_add(&shared->n_calls, 1);
    }
    if (err) {
        atomic_store(&shared->has_failed, true);
        fprintf(stderr, "rank %ld: %s\n", rank,
                was_created ? tutti_comm_message(comm) : tutti_last_message());
    }
    if (was_created)
        tutti_comm_destroy(comm);
    free(x);
    _exit(err != TUTTI_OK);
}

static void begin_job(pid_t *pids, const char *address)
{
    atomic_store(&shared->stops, false);
    atomic_store(&shared->n_started, 0);
    for (long r = 0; r < opt.n; r++)
        if ((pids[r] = begin_child()) == 0)
            be_rank(r, address);
}

static void await_start(void)
{
    while (atomic_load(&shared->n_started) < opt.n)
        usleep(1000);
}

static void end_job(const pid_t *pids)
{
    atomic_store(&shared->stops, true);
    for (long r = 0; r < opt.n; r++)
        waitpid(pids[r], NULL, 0);
    if (atomic_load(&shared->has_failed))
        exit(1);
}

/* Listens at any port, which is told. */
static int listen_anywhere(uint16_t *port)
{
    tt_door_found at = tt_door_at(0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, &at.to.sa, at.len) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, &at.to.sa, &at.len) != 0) {
        perror("a port to listen at");
        exit(1);
    }
    *port = ntohs(at.to.v4.sin_port);
    return fd;
}

/* That nobody listens at. */
static uint16_t choose_port(char *address, size_t size)
{
    uint16_t port;
    close(listen_anywhere(&port));
    snprintf(address, size, "127.0.0.1:%u", port);
    return port;
}

/* KiB */
static long rss_of(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        sscanf(line, "VmRSS: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

/* Of all its threads, in seconds, as the scheduler counts: what runs for less
 * than a tick of the clock counts, too. */
static double processor_of(pid_t pid)
{
    char path[300];
    unsigned long long ns, total = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid,
                 entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f && fscanf(f, "%llu", &ns) == 1)
            total += ns;
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
    return (double)total / 1e9;
}

/* ------------------------------------------------------------- strangers -- */

/* How a dialler with this secret begins TLS. */
typedef struct opening {
    char bytes[2048];
    size_t len;
} opening;

static opening of_other, of_own, of_seen;

/* As it says it to a listener that is none. */
static opening open_tls(const char *secret, size_t len)
{
    opening out = {.len = 0};
    char address[64];
    uint16_t port;
    int fd = listen_anywhere(&port);
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    pid_t pid = begin_child();
    if (pid == 0) {
        tutti_comm *comm;
        tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
        set_trust(&o, secret, len);
        o.address = address;
        o.rank = 1;
        o.n_ranks = 2;
        tutti_comm_create(&o, &comm);
        _exit(1);
    }
    int guest = accept(fd, NULL, NULL);
    ssize_t n = recv(guest, out.bytes, sizeof(out.bytes), 0);
    if (n < 100) {
        fprintf(stderr, "it does not begin TLS\n");
        exit(1);
    }
    out.len = (size_t)n;
    end_child(pid);
    close(guest);
    close(fd);
    return out;
}

static void make_openings(void)
{
    static const char other[] = "another secret, which strangers have made up";
    of_other = open_tls(other, sizeof(other));
    of_own = of_seen = open_tls(the_secret, sizeof(the_secret));
    if (has_secret)
        of_own.bytes[of_own.len - 1] ^= 1; /* of what proves the secret */
}

static void remove_certs(void)
{
    unlink(cert);
    unlink(key);
}

static void make_certs(void)
{
    char command[400];
    pid_t pid = getpid();
    snprintf(cert, sizeof(cert), "/tmp/strangers.%d.cert", (int)pid);
    snprintf(key, sizeof(key), "/tmp/strangers.%d.key", (int)pid);
    snprintf(command, sizeof(command),
             "umask 077; openssl req -x509 -newkey ec -pkeyopt "
             "ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=strangers "
             "-keyout %s -out %s 2>/dev/null",
             key, cert);
    atexit(remove_certs);
    if (system(command) != 0) {
        fprintf(stderr, "openssl makes no certificate\n");
        exit(1);
    }
}

static void begin_tls(int fd, unsigned long i)
{
    const opening *o = i % 5 == 4 ? &of_seen : i % 5 == 3 ? &of_own : &of_other;
    size_t len = i % 5 == 2 ? o->len / 2 : o->len;
    ssize_t n = send(fd, o->bytes, len, MSG_NOSIGNAL);
    if (i % 5 == 1)
        n = send(fd, o->bytes, len, MSG_NOSIGNAL);
    (void)n;
}

static void say_something(int fd, unsigned long i)
{
    /* Magic, versions, a greeting (1) for data (3): as in greet.h; without a
     * token. */
    static const char hello[128] = "tttl\1\0\1\0\1\3";
    static const char other[] = "GET / HTTP/1.1\r\n\r\n";
    ssize_t n = 0;
    if (has_secret || has_certs)
        begin_tls(fd, i);
    else if (i % 4 == 1)
        n = send(fd, &hello, sizeof(hello) / 2, MSG_NOSIGNAL);
    else if (i % 4 == 2)
        n = send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
    else if (i % 4 == 3)
        n = send(fd, other, sizeof(other) - 1, MSG_NOSIGNAL);
    (void)n;
}

/* Closed at once: a port that waits (TIME_WAIT) would be missed soon. */
static void hang_up(int fd)
{
    const struct linger now = {.l_onoff = 1};
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
}

static void flood(const tt_door_found *doors, size_t n, unsigned long most)
{
    int fds[STAY];
    double begin = now_s();
    for (int i = 0; i < STAY; i++)
        fds[i] = -1;
    for (unsigned long i = 0; i < most; i++) {
        double wait = begin + (double)i / (double)opt.rate - now_s();
        if (wait > 0.001)
            usleep((useconds_t)(wait * 1e6));
        int *fd = &fds[i % STAY];
        hang_up(*fd);
        *fd = tt_doors_knock(&doors[i % n]);
        if (*fd >= 0) {
            say_something(*fd, i);
            atomic_fetch_add(&shared->n_strangers, 1);
        }
    }
    for (int i = 0; i < STAY; i++)
        hang_up(fds[i]);
    _exit(0);
}

/* Until all have come; returns how many did. */
static unsigned long send_strangers(const tt_door_found *doors, size_t n,
                                    unsigned long most)
{
    atomic_store(&shared->n_strangers, 0);
    pid_t pid = begin_child();
    if (pid == 0)
        flood(doors, n, most);
    waitpid(pid, NULL, 0);
    return atomic_load(&shared->n_strangers);
}

/* Another process, which has nothing else to do. */
static pid_t begin_other(tt_door_found *door)
{
    uint16_t port;
    int fd = listen_anywhere(&port);
    *door = tt_door_at(port);
    pid_t pid = begin_child();
    while (pid == 0) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        int guest = poll(&one, 1, -1) == 1 ? accept(fd, NULL, NULL) : -1;
        if (guest >= 0)
            close(guest);
    }
    close(fd);
    return pid;
}

/* -------------------------------------------------------------- measures -- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof(*x), compare);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* MB per second of the job while strangers come. */
static double rate_under(const tt_door_found *doors, size_t n,
                         unsigned long *n_came)
{
    double begin = now_s();
    unsigned long before = atomic_load(&shared->n_calls);
    *n_came += send_strangers(doors, n,
                              (unsigned long)(opt.connections / opt.rounds));
    unsigned long n_calls = atomic_load(&shared->n_calls) - before;
    return (double)n_calls * (double)opt.bytes / 1e6 / (now_s() - begin);
}

/* Of the job's ranks, and of the other process, in microseconds a stranger. */
static void measure_cost(const pid_t *pids, const tt_door_found *doors,
                         size_t n, pid_t other_pid, const tt_door_found *other)
{
    unsigned long most = (unsigned long)(opt.connections / opt.rounds);
    double used = 0, used_by_other = -processor_of(other_pid);
    atomic_store(&shared->rests, true);
    sleep(1);
    for (long r = 0; r < opt.n; r++)
        used -= processor_of(pids[r]);
    unsigned long n_came = send_strangers(doors, n, most);
    for (long r = 0; r < opt.n; r++)
        used += processor_of(pids[r]);
    unsigned long n_other = send_strangers(other, 1, most);
    used_by_other += processor_of(other_pid);
    atomic_store(&shared->rests, false);
    printf("processors: %.1f us a stranger; another process takes %.1f us\n",
           used / (double)n_came * 1e6, used_by_other / (double)n_other * 1e6);
}

static void measure_run(void)
{
    char address[64];
    pid_t pids[MOST_RANKS];
    tt_door_found doors[MOST_DOORS], other;
    double at_job[MOST_ROUNDS], at_other[MOST_ROUNDS], ratio[MOST_ROUNDS];
    long before[MOST_RANKS], growth = 0;
    size_t n_doors = 0;
    unsigned long n_came = 0, n_other = 0;
    choose_port(address, sizeof(address));
    begin_job(pids, address);
    await_start();
    sleep(2);
    for (long r = 0; r < opt.n; r++) {
        n_doors += tt_doors_find(pids[r], doors + n_doors,
                                 MOST_DOORS - n_doors);
        before[r] = rss_of(pids[r]);
    }
    if (n_doors == 0) {
        fprintf(stderr, "the job listens nowhere\n");
        exit(1);
    }
    pid_t pid = begin_other(&other);
    for (long k = 0; k < opt.rounds; k++) {
        bool is_first = k % 2 == 0;
        if (is_first)
            at_other[k] = rate_under(&other, 1, &n_other);
        at_job[k] = rate_under(doors, n_doors, &n_came);
        if (!is_first)
            at_other[k] = rate_under(&other, 1, &n_other);
        ratio[k] = at_job[k] / at_other[k];
    }
    for (long r = 0; r < opt.n; r++)
        if (rss_of(pids[r]) - before[r] > growth)
            growth = rss_of(pids[r]) - before[r];
    measure_cost(pids, doors, n_doors, pid, &other);
    end_child(pid);
    end_job(pids);
    size_t n = (size_t)opt.rounds;
    printf("%lu strangers at %zu sockets of the job, %lu at another process\n",
           n_came, n_doors, n_other);
    printf("memory grew by %.2f MiB\n", (double)growth / 1024);
    double share = median(ratio, n), least = ratio[0];
    printf("throughput %.0f MB/s, beside another process's %.0f MB/s: %.3f of "
           "it (rounds %.3f to %.3f)\n",
           median(at_job, n), median(at_other, n), share, least, ratio[n - 1]);
}

/* The rank that took longest. */
static double start_once(bool has_strangers)
{
    char address[64];
    pid_t pids[MOST_RANKS], pid = -1;
    double longest = 0;
    tt_door_found door = tt_door_at(choose_port(address, sizeof(address)));
    if (has_strangers && (pid = begin_child()) == 0)
        flood(&door, 1, 1000000000);
    if (has_strangers)
        usleep(100000);
    begin_job(pids, address);
    await_start();
    for (long r = 0; r < opt.n; r++)
        if (shared->started_s[r] > longest)
            longest = shared->started_s[r];
    end_job(pids);
    if (has_strangers)
        end_child(pid);
    return longest;
}

static void measure_start(void)
{
    double with[MOST_ROUNDS], without[MOST_ROUNDS];
    size_t n = (size_t)opt.rounds;
    for (size_t k = 0; k < n; k++) {
        without[k] = start_once(false);
        with[k] = start_once(true);
    }
    double plain = median(without, n), late = median(with, n);
    printf("a start took %.3f s, among strangers %.3f s: %.3f s more (longest "
           "%.3f s)\n",
           plain, late, late - plain, with[n - 1]);
}

int main(int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "stn:c:r:b:k:")) != -1) {
        long value = optarg ? atol(optarg) : 0;
        has_secret |= c == 's';
        has_certs |= c == 't';
        if (c == 's' || c == 't')
            continue;
        if (c == '?' || value <= 0)
            return 2;
        *(c == 'n'   ? &opt.n
          : c == 'c' ? &opt.connections
          : c == 'r' ? &opt.rate
          : c == 'b' ? &opt.bytes
                     : &opt.rounds) = value;
    }
    if (opt.n > MOST_RANKS || opt.rounds > MOST_ROUNDS ||
        (has_secret && has_certs))
        return 2;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (has_certs)
        make_certs();
    if (has_secret || has_certs)
        make_openings();
    measure_run();
    measure_start();
    return 0;
}
