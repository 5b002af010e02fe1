/* SPDX-License-Identifier: BSD-3-Clause
 * run_loop.c - watches the ranks of a job until it is over.
 *
 * Idea       One poll over a signalfd (children that ended, signals to pass
 *            on), the ranks' output, our output, and our input.
 * The end    When a rank fails, the others get some seconds to end by
 *            themselves (the library tells them which peer is lost, and they
 *            say so), then SIGTERM, then SIGKILL. Ctrl-C: SIGINT at once,
 *            the rest within a second. With --keep-going a rank that was
 *            killed has not failed as long as others run, or have ended well.
 * Invariant  Ended ranks stay unreaped until all is over, so the number of
 *            their process group is still theirs when we signal it. */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What comes next when the ranks do not end by themselves. */
typedef enum stage {
    RUNNING, /* nothing is wrong */
    GRACE,   /* they should be ending; next SIGTERM */
    TERMED,  /* next SIGKILL */
    KILLED,  /* next to kill whatever leads to a host */
    FORCED,  /* next to give up */
    GIVEN_UP
} stage;

/* Seconds until the next stage. After Ctrl-C the sum is below one. */
static const double patience[2][GIVEN_UP] = {
    [0] = {[TERMED] = 2.0, [KILLED] = 1.0, [FORCED] = 1.0},
    [1] = {[GRACE] = 0.4, [TERMED] = 0.2, [KILLED] = 0.1, [FORCED] = 0.2}};

/* How long children of ended ranks may go on writing. */
static const double linger_s = 0.3;

typedef struct watch {
    run_job *job;
    int signal_fd;
    struct pollfd *fds;
    uint32_t n_running;
    stage stage;
    double next_s;    /* when the next stage is due; 0: never */
    double asked_s;   /* when a signal asked us to end; 0: never */
    double ended_s;   /* when the last rank ended; 0: not yet */
    pid_t status_pid; /* shows what the job is at; not above 0: nobody does */
    bool has_swept;   /* what the ended ranks left behind was killed */
    /* Answers `tutti status` here where ranks are on other hosts; NULL: none is. */
    tutti_desk *desk;
    run_task *asked; /* for it */
    /* Input for rank 0 that its pipe did not take yet. */
    char input[512];
    size_t input_len;
} watch;

static run_stream *stream(watch *w, uint32_t i)
{
    run_task *task = &w->job->tasks[i / 2];
    return i % 2 ? &task->err : &task->out;
}

static void say(run_job *job, const char *fmt, ...) CLI_PRINTF(2, 3);
static void say(run_job *job, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    run_sink *sink = &job->sinks[1];
    if (sink->open_line)
        run_sink_add(sink, "\n", 1);
    sink->open_line = NULL;
    run_sink_add(sink, "tutti run: ", 11);
    run_sink_add(sink, text, strlen(text));
    run_sink_add(sink, "\n", 1);
}

/* --------------------------------------------------------------- stages -- */

static void signal_all(watch *w, int sig)
{
    for (uint32_t i = 0; i < w->job->n; i++)
        run_signal(&w->job->tasks[i], sig);
}

static void enter(watch *w, stage to)
{
    w->stage = to;
    if (to == GIVEN_UP) {
        w->next_s = 0;
        return;
    }
    double wait_s = patience[w->job->interrupted != 0][to];
    if (to == GRACE && !w->job->interrupted)
        wait_s = w->job->grace_s;
    w->next_s = cli_now_s() + wait_s;
}

static void kill_local(run_task *task)
{
    if (task->pid)
        kill(-task->pid, SIGKILL);
}

/* The patience of a stage is over. */
static void escalate(watch *w)
{
    run_job *job = w->job;
    if (w->stage == GRACE) {
        if (!job->interrupted && w->n_running)
            say(job, "%u other rank%s did not end within %g s; ending %s",
                w->n_running, w->n_running > 1 ? "s" : "", job->grace_s,
                w->n_running > 1 ? "them" : "it");
        signal_all(w, SIGTERM);
    } else if (w->stage == TERMED) {
        signal_all(w, SIGKILL);
    } else if (w->stage == KILLED) {
        for (uint32_t i = 0; i < job->n; i++)
            kill_local(&job->tasks[i]);
    }
    enter(w, w->stage + 1);
}

/* ---------------------------------------------------------------- ranks -- */

static void read_rest(run_stream *s)
{
    struct pollfd p = {s->fd, POLLIN, 0};
    while (s->fd >= 0 && !run_sink_is_full(s->to) && poll(&p, 1, 0) > 0)
        run_stream_read(s);
}

static void describe(run_job *job, const run_task *task, const char *then)
{
    char who[320];
    if (task->host)
        snprintf(who, sizeof(who), "rank %u (host %s)", task->rank, task->host);
    else
        snprintf(who, sizeof(who), "rank %u (pid %d)", task->rank,
                 (int)task->pid);
    if (task->was_signalled)
        say(job, "%s was killed by signal %d (%s)%s", who, task->code,
            strsignal(task->code), then);
    else if (task->host && task->code == 255)
        say(job,
            "%s ended with status 255: it failed, or %s could not reach "
            "the host%s",
            who, job->rsh, then);
    else
        say(job, "%s exited with status %d%s", who, task->code, then);
}

/* Learns whether the task has ended, without reaping it. */
static bool ended_now(watch *w, run_task *task)
{
    siginfo_t info = {0};
    if (task->has_ended ||
        waitid(P_PID, (id_t)task->pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
        info.si_pid != task->pid)
        return false;
    task->has_ended = true;
    task->was_signalled = info.si_code != CLD_EXITED;
    task->code = info.si_status;
    /* A host's shell says 128 + n for signal n. */
    if (task->host && !task->was_signalled && task->code > 128 &&
        task->code - 128 < NSIG) {
        task->was_signalled = true;
        task->code -= 128;
    }
    w->n_running--;
    return true;
}

/* Of ranks found ended in one look, a killed one is the likelier cause of the
 * others' failure. */
static bool is_better_cause(const run_task *task, const run_task *cause)
{
    if (!task->was_signalled && task->code == 0)
        return false;
    return !cause || (task->was_signalled && !cause->was_signalled);
}

/* --keep-going: the others are to go on without it, whether it was killed or
 * has given up (it woke up and is not one of them any more). When all have ended
 * one of them must have ended well. */
static bool is_spared(const watch *w, const run_task *task)
{
    const run_job *job = w->job;
    const bool has_failed = task->was_signalled || task->code;
    bool is_alone = w->n_running == 0;
    for (uint32_t i = 0; i < job->n && is_alone; i++) {
        const run_task *other = &job->tasks[i];
        is_alone = !other->has_ended || other->was_signalled || other->code;
    }
    return job->keeps_going && has_failed && !is_alone;
}

/* Those that have ended since the last look; the better one of `cause` and of
 * these. */
static run_task *scan(watch *w, run_task *cause)
{
    for (uint32_t i = 0; i < w->job->n; i++) {
        run_task *task = &w->job->tasks[i];
        if (!ended_now(w, task))
            continue;
        read_rest(&task->out);
        read_rest(&task->err);
        /* The children of a killed rank must not keep its sockets open. */
        if (task->was_signalled && !task->host)
            kill_local(task);
        if (is_spared(w, task))
            describe(w->job, task, w->n_running ? "; the others go on" : "");
        else if (is_better_cause(task, cause))
            cause = task;
    }
    return cause;
}

/* A process that is killed closes its connections a moment before it is seen to
 * have ended; others, who fail by that, may be seen before it. */
static run_task *look_again(watch *w, run_task *cause)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    for (int i = 0; i < 10 && w->n_running && !cause->was_signalled; i++) {
        nanosleep(&moment, NULL);
        cause = scan(w, cause);
    }
    return cause;
}

static void look_for_ended(watch *w)
{
    run_job *job = w->job;
    run_task *cause = scan(w, NULL);
    if (cause && !job->cause && !job->interrupted)
        cause = look_again(w, cause);
    if (!w->n_running && !w->ended_s) {
        w->ended_s = cli_now_s();
        if (!job->interrupted) /* whoever reads the output may take his time */
            w->next_s = 0;
    }
    if (!cause || job->cause || job->interrupted)
        return;
    job->cause = cause;
    describe(job, cause, "");
    if (w->stage == RUNNING && w->n_running)
        enter(w, GRACE);
}

/* -------------------------------------------------------------- signals -- */

static bool catches(pid_t pid, int sig)
{
    char path[40], line[128];
    unsigned long long caught = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "SigCgt: %llx", &caught) == 1)
            break;
    if (f)
        fclose(f);
    return caught >> (sig - 1) & 1;
}

/* SIGUSR1: what the job is at, on stderr. The signal would end a program that
 * has no use for it; to one that has, it is passed on. */
static void show_status(watch *w)
{
    const run_job *job = w->job;
    /* -1: there was no process for it; waitpid() would take a rank then. */
    if (w->status_pid > 0 && waitpid(w->status_pid, NULL, WNOHANG) == 0)
        return; /* one at a time */
    w->status_pid = fork();
    if (w->status_pid == 0) {
        sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execl("/proc/self/exe", "tutti", "status", job->name, (char *)NULL);
        _exit(CLI_FAILED);
    }
    for (uint32_t i = 0; i < job->n; i++) {
        const run_task *task = &job->tasks[i];
        if (!task->host && task->pid && !task->has_ended &&
            catches(task->pid, SIGUSR1))
            sigqueue(task->pid, SIGUSR1,
                     (union sigval){.sival_int = TUTTI_SIGNAL_MARK});
    }
}

static void pass_on(watch *w, int sig)
{
    if (sig == SIGUSR1) {
        show_status(w);
        return;
    }
    signal_all(w, sig);
    if (sig == SIGUSR2)
        return;
    if (sig == SIGTSTP) { /* Ctrl-Z: stop too, until the shell says go on */
        raise(SIGSTOP);
        signal_all(w, SIGCONT);
        return;
    }
    double now = cli_now_s();
    /* Some senders signal both a process and its group: that is one wish. */
    if (w->asked_s && now - w->asked_s < 0.2)
        return;
    w->asked_s = now;
    if (w->job->interrupted) { /* asked twice: now */
        signal_all(w, SIGKILL);
        enter(w, KILLED);
        return;
    }
    w->job->interrupted = sig;
    say(w->job, "ending the job: signal %d (%s)", sig, strsignal(sig));
    enter(w, GRACE);
}

static void read_signals(watch *w)
{
    struct signalfd_siginfo info;
    while (read(w->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGCHLD)
            pass_on(w, (int)info.ssi_signo);
    }
    look_for_ended(w);
}

/* ----------------------------------------------------------------- desk -- */

static void open_desk(watch *w)
{
    run_job *job = w->job;
    bool is_elsewhere = false;
    for (uint32_t i = 0; i < job->n; i++)
        is_elsewhere |= job->tasks[i].host != NULL;
    if (!is_elsewhere || tutti_desk_open(&w->desk))
        return;
    for (uint32_t i = 0; i < job->n; i++)
        job->tasks[i].err.hears = w->desk;
}

/* One of the ranks that have answered, or have not been asked, more often than
 * others. */
static run_task *ask_one(watch *w, const char *question)
{
    run_task *best = NULL;
    for (uint32_t i = 0; i < w->job->n; i++) {
        run_task *task = &w->job->tasks[i];
        if (task->host && !task->has_ended && task->err.fd >= 0 &&
            (!best || task->n_dumb < best->n_dumb))
            best = task;
    }
    if (!best || !run_ask(best, question))
        return NULL;
    best->n_dumb++; /* until it answers */
    return best;
}

static void look_at_desk(watch *w)
{
    if (w->asked && tutti_desk_waits(w->desk) < 0) {
        w->asked->n_dumb = 0;
        w->asked = NULL;
    }
    if (w->asked && tutti_desk_waits(w->desk) == 0) {
        w->asked = NULL;
        tutti_desk_give_up(w->desk);
    }
    const char *question = tutti_desk_question(w->desk);
    if (question && !(w->asked = ask_one(w, question)))
        tutti_desk_give_up(w->desk);
}

/* ---------------------------------------------------------------- input -- */

static void pump(watch *w)
{
    run_job *job = w->job;
    run_task *first = &job->tasks[0];
    if (!w->input_len) {
        ssize_t got = read(STDIN_FILENO, w->input, sizeof(w->input));
        if (got < 0 && errno == EINTR)
            return;
        if (got <= 0) {
            run_feed(first, NULL, 0);
            job->pumps_stdin = false;
            return;
        }
        w->input_len = (size_t)got;
    }
    if (run_feed(first, w->input, w->input_len))
        w->input_len = 0;
    else if (errno != EAGAIN)
        job->pumps_stdin = false;
}

/* ----------------------------------------------------------------- loop -- */

/* The descriptors: signals, input, two sinks, the desk, two streams for each rank;
 * -1 where there is nothing to do. */
enum { AT_SIGNALS, AT_INPUT, AT_SINKS, AT_DESK = 4, AT_STREAMS };

static void fill_fds(watch *w)
{
    run_job *job = w->job;
    w->fds[AT_SIGNALS] = (struct pollfd){w->signal_fd, POLLIN, 0};
    w->fds[AT_INPUT] = (struct pollfd){-1, 0, 0};
    if (job->pumps_stdin && w->input_len)
        w->fds[AT_INPUT] = (struct pollfd){job->tasks[0].input_fd, POLLOUT, 0};
    else if (job->pumps_stdin)
        w->fds[AT_INPUT] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    for (int i = 0; i < 2; i++) {
        run_sink *sink = &job->sinks[i];
        bool waits = sink->at < sink->len && !sink->is_broken;
        w->fds[AT_SINKS + i] = (struct pollfd){waits ? sink->fd : -1, POLLOUT,
                                               0};
    }
    w->fds[AT_DESK] = (struct pollfd){w->desk ? tutti_desk_fd(w->desk) : -1,
                                      POLLIN, 0};
    for (uint32_t i = 0; i < 2 * job->n; i++) {
        run_stream *s = stream(w, i);
        bool reads = s->fd >= 0 && !run_sink_is_full(s->to);
        w->fds[AT_STREAMS + i] = (struct pollfd){reads ? s->fd : -1, POLLIN, 0};
    }
}

static bool is_drained(watch *w)
{
    for (uint32_t i = 0; i < 2 * w->job->n; i++) {
        if (stream(w, i)->fd >= 0)
            return false;
    }
    for (int i = 0; i < 2; i++) {
        const run_sink *sink = &w->job->sinks[i];
        if (sink->at < sink->len && !sink->is_broken)
            return false;
    }
    return true;
}

/* When all ranks have ended: the children they left may write a little
 * longer; then they are killed, and what is in the pipes is read. A pipe that
 * stays open even so is in the hands of a daemon. */
static void sweep(watch *w)
{
    double since = cli_now_s() - w->ended_s;
    if (!w->has_swept && since > linger_s) {
        w->has_swept = true;
        for (uint32_t i = 0; i < w->job->n; i++)
            kill_local(&w->job->tasks[i]);
    }
    if (since < 2 * linger_s)
        return;
    for (uint32_t i = 0; i < 2 * w->job->n; i++) {
        run_stream *s = stream(w, i);
        read_rest(s);
        if (!run_sink_is_full(s->to))
            run_stream_close(s);
    }
}

static bool is_over(watch *w)
{
    if (w->stage == GIVEN_UP)
        return true;
    if (w->n_running)
        return false;
    if (is_drained(w))
        return true;
    sweep(w);
    return false;
}

static int timeout_ms(const watch *w)
{
    double left = w->next_s ? w->next_s - cli_now_s() : -1;
    const double waits = w->desk ? tutti_desk_waits(w->desk) : -1;
    if (!w->n_running)
        return 20;
    if (!w->next_s && waits < 0)
        return -1;
    if (!w->next_s || (waits >= 0 && waits < left))
        left = waits;
    return left <= 0 ? 0 : (int)(left * 1e3) + 1;
}

static void turn(watch *w)
{
    fill_fds(w);
    int n = poll(w->fds, AT_STREAMS + 2 * w->job->n, timeout_ms(w));
    if (n > 0) {
        for (uint32_t i = 0; i < 2 * w->job->n; i++) {
            if (w->fds[AT_STREAMS + i].revents)
                run_stream_read(stream(w, i));
        }
        if (w->fds[AT_INPUT].revents)
            pump(w);
        if (w->fds[AT_SIGNALS].revents)
            read_signals(w);
    }
    if (w->desk)
        look_at_desk(w);
    for (int i = 0; i < 2; i++)
        run_sink_write(&w->job->sinks[i]);
    if (w->next_s && cli_now_s() >= w->next_s)
        escalate(w);
}

/* Kills what is left of the groups, then reaps. */
static void finish(watch *w)
{
    for (uint32_t i = 0; i < w->job->n; i++)
        kill_local(&w->job->tasks[i]);
    run_guard_end(w->job);
    for (uint32_t i = 0; i < w->job->n; i++) {
        run_task *task = &w->job->tasks[i];
        run_stream_close(&task->out);
        run_stream_close(&task->err);
        if (task->input_fd >= 0)
            close(task->input_fd);
        if (task->pid)
            waitpid(task->pid, NULL, task->has_ended ? 0 : WNOHANG);
    }
    for (int i = 0; i < 2; i++)
        run_sink_write(&w->job->sinks[i]);
}

void run_watch(run_job *job)
{
    watch w = {.job = job, .n_running = job->n};
    w.signal_fd = signalfd(-1, &job->mask, SFD_CLOEXEC | SFD_NONBLOCK);
    w.fds = calloc(AT_STREAMS + 2 * (size_t)job->n, sizeof(*w.fds));
    if (w.signal_fd < 0 || !w.fds) {
        cli_fail(job->self, "cannot watch the ranks: %s", strerror(errno));
    } else {
        open_desk(&w);
        look_for_ended(&w);
        while (!is_over(&w))
            turn(&w);
    }
    finish(&w);
    tutti_desk_close(w.desk);
    free(w.fds);
    if (w.signal_fd >= 0)
        close(w.signal_fd);
}
