/* SPDX-License-Identifier: BSD-3-Clause
 * service.c - the thread of a process that tells what its jobs are at.
 *
 * Who asks   `tutti status`: a unix socket of an abstract name, by the one way
 *            in
 *            (link/link.h), which lets in this user only; or a launcher on
 *            another host, by a pipe (status_far.c). Prometheus: a plain
 *            HTTP server at TUTTI_METRICS. SIGUSR1: the table on stderr.
 * Answers    come from the engine, which asks the other ranks. Who does not
 *            answer within a second is told as such.
 * Bounds     One question at a time, and the ranks are asked ten times a second
 *            at most. Who is slow to read loses its answer after two seconds,
 *            who is slow to ask is not heard; when the service ends at once.
 * Life       It begins with the first communicator, or worker of partial
 *            reduce, and ends with the last; the
 *            signal's bell stays, as its handler may run at any time. What
 *            cannot be had (memory, a port) is told at level info, and never a
 *            failure. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/hostid.h"
#include "base/log.h"
#include "base/thread.h"
#include "link/link.h"
#include "status/status.h"

static const uint64_t ask_ns = TT_NS_PER_S;
static const uint64_t tell_ns = 2 * TT_NS_PER_S;
static const uint64_t hear_ns = 500 * TT_NS_PER_MS;
static const uint64_t each_ns = 100 * TT_NS_PER_MS;
/* A worker that its program uses is tried for so long. */
static const uint64_t worker_ns = 200 * TT_NS_PER_MS;
/* Most jobs that one process is in, and tells of. */
enum { MOST_JOBS = 16, MOST_REQUEST = 4096 };
/* Between looks at whether the service ends. */
static const int step_ms = 20;

/* A communicator that there is, or a worker of partial reduce. */
typedef struct entry {
    struct entry *next;
    uint64_t id;       /* of the communicator's team */
    tt_worker *worker; /* NULL: it is a communicator */
    char job[128];
} entry;

static struct {
    pthread_mutex_t life; /* begins, ends */
    pthread_mutex_t lock; /* of the entries */
    entry *entries;
    tt_engine *engine;
    pthread_t thread;
    bool runs;
    atomic_bool stops, was_signalled;
    tt_link_box *box;
    int wake_fd;       /* -1: none yet; then it stays */
    int metrics_fd;    /* -1: none */
    int far_fd;        /* by which a launcher elsewhere asks; -1: none */
    uint64_t asked_ns; /* when the ranks were asked last */
} service = {.life = PTHREAD_MUTEX_INITIALIZER,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .wake_fd = -1,
             .metrics_fd = -1,
             .far_fd = -1};

/* What the signal's handler rings. */
static atomic_int signal_fd = -1;
static atomic_int owner; /* a forked child has other descriptors */

/* ------------------------------------------------------------------ look -- */

static void name_job(uint64_t id, char *job, size_t size)
{
    pthread_mutex_lock(&service.lock);
    for (const entry *e = service.entries; e; e = e->next)
        if (!e->worker && e->id == id)
            snprintf(job, size, "%s", e->job);
    pthread_mutex_unlock(&service.lock);
}

/* [locked] */
static tt_team *find_world(uint64_t id)
{
    tt_team *team = NULL;
    for (uint32_t i = 0; (team = tt_engine_world(service.engine, i)); i++)
        if (tt_team_id(team) == id)
            return team;
    return NULL;
}

static bool begin_look(uint32_t i, tt_job_head *head)
{
    tt_engine_lock(service.engine);
    tt_team *world = tt_engine_world(service.engine, i);
    if (world) {
        *head = (tt_job_head){.magic = TT_REPORT_MAGIC,
                              .version = TT_STATUS_VERSION,
                              .id = tt_team_id(world)};
        tt_team_look(world); /* without memory nobody has answered */
    }
    tt_engine_unlock(service.engine);
    if (world)
        name_job(head->id, head->job, sizeof(head->job));
    return world != NULL;
}

static void await_answers(uint64_t id)
{
    const uint64_t until_ns = tt_now_ns() + ask_ns;
    bool is_over = false;
    while (!is_over && tt_now_ns() < until_ns && !atomic_load(&service.stops)) {
        tt_engine_lock(service.engine);
        const tt_team *world = find_world(id);
        is_over = !world || tt_team_has_seen_all(world);
        tt_engine_unlock(service.engine);
        if (!is_over)
            poll(NULL, 0, 2);
    }
}

/* False: it has gone meanwhile, or there is no memory. */
static bool take_answers(tt_seen_job *out)
{
    const char *text;
    tt_job_head *head = &out->head;
    tt_engine_lock(service.engine);
    const tt_team *world = find_world(head->id);
    uint32_t n = world ? tt_team_size(world) : 0;
    out->ranks = n > 0 ? tt_new(&tt_mem_std, n, sizeof(*out->ranks)) : NULL;
    if (out->ranks) {
        head->n_ranks = n;
        if (tt_team_state(world, &text))
            snprintf(head->failure, sizeof(head->failure), "%s", text);
        for (uint32_t r = 0; r < n; r++)
            tt_team_seen(world, r, &out->ranks[r]);
    }
    tt_engine_unlock(service.engine);
    return out->ranks != NULL;
}

/* [service.lock] It cannot be closed meanwhile. A worker that joins has no time
 * for long. */
static bool look_at_worker(const entry *e, tt_seen_job *out)
{
    const uint64_t until_ns = tt_now_ns() + worker_ns;
    tt_host_id host;
    tt_worker_status *s = tt_new(&tt_mem_std, 1, sizeof(*s));
    bool has_told = false;
    while (s && !has_told && !atomic_load(&service.stops)) {
        has_told = tt_worker_look(e->worker, s);
        if (!has_told && tt_now_ns() >= until_ns)
            break;
        if (!has_told)
            poll(NULL, 0, 2);
    }
    if (!has_told) {
        tt_free(&tt_mem_std, s, 1, sizeof(*s));
        return false;
    }
    tt_host_id_get(&host);
    s->pid = (uint32_t)getpid();
    snprintf(s->host, sizeof(s->host), "%s", host.name);
    *out = (tt_seen_job){.head = {.magic = TT_REPORT_MAGIC,
                                  .version = TT_STATUS_VERSION,
                                  .n_ranks = 1,
                                  .is_partial = 1,
                                  .id = s->origin},
                         .workers = s};
    snprintf(out->head.job, sizeof(out->head.job), "%s", e->job);
    return true;
}

/* Those of this process, behind the n jobs that there are. */
static size_t look_at_workers(tt_seen_job jobs[MOST_JOBS], size_t n)
{
    pthread_mutex_lock(&service.lock);
    for (const entry *e = service.entries; e && n < MOST_JOBS; e = e->next)
        if (e->worker && look_at_worker(e, &jobs[n]))
            n += !tt_partial_merge(jobs, n, &jobs[n]);
    pthread_mutex_unlock(&service.lock);
    return n;
}

/* All communicators of this process; returns how many. */
static size_t look_at_ranks(tt_seen_job jobs[MOST_JOBS])
{
    uint32_t n_asked = 0;
    size_t n = 0;
    const uint64_t now_ns = tt_now_ns();
    if (now_ns - service.asked_ns < each_ns)
        poll(NULL, 0, (int)(each_ns / TT_NS_PER_MS));
    while (n_asked < MOST_JOBS && begin_look(n_asked, &jobs[n_asked].head))
        n_asked++;
    for (uint32_t i = 0; i < n_asked; i++)
        await_answers(jobs[i].head.id);
    for (uint32_t i = 0; i < n_asked; i++) {
        jobs[n].head = jobs[i].head;
        n += take_answers(&jobs[n]);
    }
    service.asked_ns = tt_now_ns();
    return n;
}

/* All jobs of this process. */
static size_t look(tt_seen_job jobs[MOST_JOBS])
{
    return look_at_workers(jobs, look_at_ranks(jobs));
}

static void drop(tt_seen_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tt_seen_drop(&jobs[i]);
}

/* ------------------------------------------------------------------ tell -- */

static void tell(tt_link_stream *to, bool tells_ranks)
{
    tt_seen_job jobs[MOST_JOBS];
    const size_t n = tells_ranks ? look(jobs) : look_at_workers(jobs, 0);
    const uint64_t until_ns = tt_now_ns() + tell_ns;
    int why = 0;
    for (size_t i = 0; i < n && !why; i++) {
        why = tt_link_write_all(to, &jobs[i].head, sizeof(jobs[i].head),
                                until_ns);
        if (!why)
            why = tt_link_write_all(to, tt_seen_rows(&jobs[i]),
                                    tt_seen_bytes(&jobs[i]), until_ns);
    }
    drop(jobs, n);
}

static void serve_onlookers(void)
{
    tt_link_event link;
    while (!atomic_load(&service.stops) &&
           tt_link_box_take(service.box, &link)) {
        link.stream.is_off = &service.stops;
        tell(&link.stream, link.who.said[0] != TT_STATUS_WORKERS);
        tt_link_stream_close(&link.stream);
    }
}

static void write_now(tutti_status_form form, tt_str *out)
{
    tt_seen_job jobs[MOST_JOBS];
    const size_t n = look(jobs);
    tt_status_write(jobs, n, form, out);
    drop(jobs, n);
}

static void print_table(void)
{
    tt_str text = {.mem = &tt_mem_std};
    write_now(TUTTI_STATUS_TABLE, &text);
    if (!text.err)
        tt_far_print(STDERR_FILENO, text.data, text.len, &service.stops);
    tt_str_free(&text);
}

/* A launcher on another host asks for one of its users. */
static void tell_far(void)
{
    char name[TT_FAR_NAME];
    tt_seen_job jobs[MOST_JOBS];
    if (!tt_far_asked(service.far_fd, name))
        return;
    const size_t n = look(jobs);
    tt_far_tell(name, jobs, n, &service.stops);
    drop(jobs, n);
}

/* The request's head, whatever it is; false: it takes too long, or too much, or
 * the service ends. */
static bool read_request(tt_link_stream *s, char *text, size_t size)
{
    const uint64_t until_ns = tt_now_ns() + hear_ns;
    size_t len = 0;
    while (len + 1 < size && !atomic_load(&service.stops)) {
        const struct iovec rest = {text + len, size - 1 - len};
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        if (tt_now_ns() >= until_ns || poll(&p, 1, step_ms) < 0)
            return false;
        ssize_t got = tt_link_recv(s, &rest, 1);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return false;
        len += got > 0 ? (size_t)got : 0;
        text[len] = '\0';
        if (strstr(text, "\r\n\r\n") || strstr(text, "\n\n"))
            return true;
    }
    return false;
}

static bool wants_metrics(const char *request)
{
    return strncmp(request, "GET /metrics ", 13) == 0 ||
           strncmp(request, "GET / ", 6) == 0;
}

static void answer_http(tt_link_stream *s)
{
    char request[MOST_REQUEST], head[160];
    tt_str text = {.mem = &tt_mem_std};
    if (!read_request(s, request, sizeof(request)))
        return;
    const bool is_known = wants_metrics(request);
    if (is_known)
        write_now(TUTTI_STATUS_PROMETHEUS, &text);
    else
        tt_str_puts(&text, "there is /metrics\n");
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %s\r\n"
                     "Content-Type: text/plain; version=0.0.4\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                     is_known ? "200 OK" : "404 Not Found", text.len);
    const uint64_t until_ns = tt_now_ns() + tell_ns;
    if (!text.err && tt_link_write_all(s, head, (size_t)n, until_ns) == 0)
        tt_link_write_all(s, text.data, text.len, until_ns);
    tt_link_end(s);
    tt_str_free(&text);
}

static void serve_metrics(void)
{
    tt_addr from;
    int fd = tt_link_accept(service.metrics_fd, &from);
    if (fd < 0) { /* no descriptors, say: it waits in the queue meanwhile */
        poll(NULL, 0, 100);
        return;
    }
    tt_fork_watch(fd);
    tt_link_stream s;
    tt_link_stream_open(&s, fd);
    s.is_off = &service.stops;
    answer_http(&s);
    tt_link_stream_close(&s);
}

static void *serve(void *unused)
{
    (void)unused;
    while (!atomic_load(&service.stops)) {
        struct pollfd p[] = {
            {.fd = service.wake_fd, .events = POLLIN},
            {.fd = service.box ? tt_link_box_fd(service.box) : -1,
             .events = POLLIN},
            {.fd = service.metrics_fd, .events = POLLIN},
            {.fd = service.far_fd, .events = POLLIN}};
        if (poll(p, 4, -1) < 0 && errno != EINTR)
            break;
        if (p[0].revents)
            tt_bell_hear(service.wake_fd);
        if (atomic_exchange(&service.was_signalled, false))
            print_table();
        if (p[1].revents)
            serve_onlookers();
        if (p[2].revents)
            serve_metrics();
        if (p[3].revents & POLLIN)
            tell_far();
        else if (p[3].revents)
            tt_fork_close(&service.far_fd);
    }
    return NULL;
}

/* ---------------------------------------------------------------- signal -- */

/* Anything may be interrupted. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    const int before = errno;
    const int fd = atomic_load(&signal_fd);
    (void)number;
    (void)context;
    if (fd >= 0 && getpid() == atomic_load(&owner) &&
        !(info->si_code == SI_QUEUE &&
          info->si_value.sival_int == TUTTI_SIGNAL_MARK)) {
        atomic_store(&service.was_signalled, true);
        tt_bell_ring(fd);
    }
    errno = before;
}

/* It stays: a signal that comes later must not end the program. */
static void hear_signal(void)
{
    struct sigaction is;
    if (sigaction(SIGUSR1, NULL, &is) != 0 || (is.sa_flags & SA_SIGINFO) ||
        is.sa_handler != SIG_DFL)
        return; /* the program has a use for it */
    struct sigaction ours = {.sa_sigaction = on_signal,
                             .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&ours.sa_mask);
    sigaction(SIGUSR1, &ours, NULL);
}

/* ------------------------------------------------------------------ life -- */

void tt_service_name(int pid, char *name, size_t size)
{
    int used = snprintf(name, size, "tutti-status-%u-", (unsigned)geteuid());
    if (pid > 0)
        snprintf(name + used, size - (size_t)used, "%d", pid);
}

tutti_err tt_service_listen(tt_link_box **box, tutti_diag *diag)
{
    char name[64];
    tt_link_listener *listener; /* goes with the box */
    tt_link_ear ear = {0};
    const tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_STATUS),
                                   .ears = &ear,
                                   .n_ears = 1,
                                   .most_waiting = 8};
    tt_service_name((int)getpid(), name, sizeof(name));
    tt_addr_abstract(name, &ear.at);
    tutti_err err = tt_link_box_open(&tt_mem_std, box, diag);
    if (!err)
        err = tt_link_listen(*box, &o, &listener, NULL, diag);
    return err;
}

static void open_socket(void)
{
    tutti_diag diag = TT_DIAG_NONE;
    if (tt_service_listen(&service.box, &diag))
        TT_INFO("tutti status will not see this process: %s", diag.text);
}

/* "10.0.0.1:9400", "[::1]:9400", ":9400" */
static bool parse_address(const char *text, tt_addr *out)
{
    char host[64] = "127.0.0.1";
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (!colon || !tt_parse_count(colon + 1, &port) || port == 0 ||
        port > UINT16_MAX || (size_t)(colon - text) >= sizeof(host))
        return false;
    const bool has_brackets = text[0] == '[' && colon > text + 1 &&
                              colon[-1] == ']';
    if (colon > text)
        snprintf(host, sizeof(host), "%.*s",
                 (int)(colon - text) - 2 * has_brackets, text + has_brackets);
    return tt_addr_numeric(host, (uint16_t)port, out);
}

static void open_metrics(const char *text)
{
    tt_addr at;
    if (!text[0])
        return;
    if (!parse_address(text, &at)) {
        TT_WARN("TUTTI_METRICS is \"%.80s\"; expected: address:port", text);
        return;
    }
    int fd = tt_link_bind(&at, 16);
    if (fd >= 0) {
        tt_fork_watch(fd);
        service.metrics_fd = fd;
        TT_INFO("metrics are told at http://%s/metrics", text);
    } else if (fd == -EADDRINUSE) {
        TT_INFO("metrics at %s are another rank's to tell", text);
    } else {
        TT_WARN("TUTTI_METRICS: cannot listen at %s: %s", text, strerror(-fd));
    }
}

static void close_all(void)
{
    atomic_store(&signal_fd, -1);
    tt_link_box_close(service.box);
    service.box = NULL;
    tt_fork_close(&service.metrics_fd);
    tt_fork_close(&service.far_fd);
}

static void begin(tt_engine *engine, const tt_settings *settings)
{
    service.engine = engine;
    atomic_store(&service.stops, false);
    atomic_store(&service.was_signalled, false);
    if (service.wake_fd < 0) {
        service.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        tt_fork_watch(service.wake_fd);
    }
    if (service.wake_fd < 0)
        return;
    if (settings->status) {
        open_socket();
        service.far_fd = tt_far_open(settings->status_fd);
    }
    open_metrics(settings->metrics);
    service.runs = tt_thread_start(&service.thread, serve, NULL) == 0;
    if (!service.runs) {
        TT_INFO("there is no thread to tell what the job is at");
        close_all();
        return;
    }
    atomic_store(&owner, (int)getpid());
    atomic_store(&signal_fd, service.wake_fd);
    if (settings->status_signal)
        hear_signal();
}

static bool is_wanted(const tt_settings *settings)
{
    return settings && (settings->status || settings->metrics[0] ||
                        settings->status_signal);
}

/* Takes e; NULL: there was no memory. */
static void add(entry *e, tt_engine *engine, const tt_settings *settings)
{
    if (!e)
        return;
    pthread_mutex_lock(&service.life);
    pthread_mutex_lock(&service.lock);
    e->next = service.entries;
    service.entries = e;
    pthread_mutex_unlock(&service.lock);
    if (!service.runs && is_wanted(settings))
        begin(engine, settings);
    pthread_mutex_unlock(&service.life);
}

void tt_service_add(tt_engine *engine, const tt_team *team, const char *job,
                    const tt_settings *settings)
{
    entry *e = tt_new(&tt_mem_std, 1, sizeof(*e));
    if (e) {
        e->id = tt_team_id(team);
        snprintf(e->job, sizeof(e->job), "%.127s", job);
    }
    add(e, engine, settings);
}

void tt_service_add_worker(tt_worker *worker, tt_engine *engine,
                           const tt_settings *settings)
{
    entry *e = tt_new(&tt_mem_std, 1, sizeof(*e));
    if (e) {
        e->worker = worker;
        snprintf(e->job, sizeof(e->job), "%.127s", settings->job);
    }
    add(e, engine, settings);
}

/* worker NULL: the communicator whose id it is. */
static void drop_entry(const tt_worker *worker, uint64_t id)
{
    pthread_mutex_lock(&service.life);
    pthread_mutex_lock(&service.lock);
    entry **at = &service.entries;
    while (*at && ((*at)->worker != worker || (*at)->id != id))
        at = &(*at)->next;
    entry *gone = *at;
    if (gone)
        *at = gone->next;
    const bool is_last = !service.entries;
    pthread_mutex_unlock(&service.lock);
    tt_free(&tt_mem_std, gone, 1, sizeof(*gone));
    if (is_last && service.runs) {
        atomic_store(&service.stops, true);
        tt_bell_ring(service.wake_fd);
        pthread_join(service.thread, NULL);
        service.runs = false;
        close_all();
    }
    pthread_mutex_unlock(&service.life);
}

void tt_service_remove(const tt_team *team)
{
    drop_entry(NULL, tt_team_id(team));
}

void tt_service_remove_worker(const tt_worker *worker)
{
    drop_entry(worker, 0);
}
