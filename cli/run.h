/* SPDX-License-Identifier: BSD-3-Clause
 * run.h - the parts of `tutti run`: what the job is (run.c), how a rank is
 * started here or on a host (run_spawn.c), what it prints (run_io.c), and the
 * one poll loop that watches it all (run_loop.c). */
#ifndef TT_CLI_RUN_H
#define TT_CLI_RUN_H

#include "cli.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

/* --------------------------------------------------------------- output -- */

/* Standard output or error of the launcher: bytes that wait to be written. */
typedef struct run_sink {
    int fd;
    char *data;
    size_t at, len, cap; /* data[at .. len) waits */
    bool is_broken;      /* nobody reads it any more */
    /* The stream whose unfinished line was written last; NULL: at the start
     * of a line. */
    const struct run_stream *open_line;
} run_sink;

/* One rank's standard output or error. A line that `hears` takes is not the
 * program's, but for what is before it. */
typedef struct run_stream {
    int fd; /* -1: closed */
    run_sink *to;
    char prefix[16]; /* "[3] " or "" */
    char *line;      /* the line that is not complete yet */
    size_t len, cap;
    tutti_desk *hears; /* NULL: nobody */
} run_stream;

/* More than this is not kept back: a line that is longer is written in
 * pieces, and ranks wait while so much is unwritten. */
enum { RUN_LONGEST_LINE = 1 << 20, RUN_MOST_WAITING = 1 << 20 };

/* Reads what is there. At the end of the stream, or when nobody reads the
 * sink any more, closes it. */
void run_stream_read(run_stream *s);
void run_stream_close(run_stream *s);
void run_sink_add(run_sink *sink, const char *data, size_t len);
void run_sink_write(run_sink *sink); /* as much as does not block */
bool run_sink_is_full(const run_sink *sink);

/* ---------------------------------------------------------------- ranks -- */

/* One rank: a process here, or the ssh that leads to it. */
typedef struct run_task {
    uint32_t rank;
    const char *host; /* NULL: here */
    pid_t pid;        /* leads its process group; 0: not started */
    bool has_ended;   /* not reaped until the job is over: the group's number
                         cannot be given to others while we may signal it */
    bool was_signalled;
    int code; /* exit status, or the signal */
    /* The pipe to standard input, when the launcher feeds it; to a host it
     * carries commands (run_spawn.c). -1: none. */
    int input_fd;
    run_stream out, err;
    uint32_t n_dumb; /* questions that it has not answered (run_ask) */
} run_task;

typedef struct run_job {
    const cli_command *self;
    run_task *tasks;
    uint32_t n;
    char **program;      /* argv of the ranks */
    const char *address; /* NULL: local job */
    const char *rsh;
    char name[64];        /* TUTTI_JOB */
    bool pumps_stdin;     /* the launcher reads it and feeds rank 0 */
    double grace_s;       /* for the others, after the first failure */
    bool keeps_going;     /* when ranks are killed */
    bool is_for_machines; /* a program reads what rank 0 prints */
    bool binds;           /* each rank to a processor of its own */
    int secret_fd;        /* has the job's secret; -1: none was made for it */
    char secret[CLI_SECRET];
    run_sink sinks[2];
    sigset_t mask;           /* the signals that the loop reads */
    sigset_t old_mask;       /* what the ranks get */
    struct rlimit old_files; /* of open files, for the ranks */
    pid_t guard_pid;         /* see run_guard_start() */
    int guard_fd;
    /* How it went. */
    const run_task *cause; /* the first that failed */
    int interrupted;       /* the signal that ended the job; 0: none */
} run_job;

/* host:port or [ipv6]:port, as the ranks will read it. */
bool run_is_address(const char *text);

/* --join: sets TUTTI_JOIN, and the secret of that job where it is found. Reports
 * its own failures. */
int run_join(const cli_command *self, const char *text);

/* Starts task i. Reports its own failures. */
int run_spawn(run_job *job, run_task *task);

/* Signals the rank: its process group, or through the control pipe. */
void run_signal(run_task *task, int sig);

/* Asks the rank on its host what the job is at; false: it cannot be asked, or has
 * not answered for long. */
bool run_ask(run_task *task, const char *question);

/* Feeds rank 0; false when its pipe is full or closed. len 0: the end. */
bool run_feed(run_task *task, const char *data, size_t len);

/* Starts a small process that kills every rank's process group when the
 * launcher itself is killed. It learns them through guard_fd. */
int run_guard_start(run_job *job);
void run_guard_add(const run_job *job, pid_t pid);
void run_guard_end(run_job *job);

/* Watches the started tasks until the job is over. */
void run_watch(run_job *job);

#endif
