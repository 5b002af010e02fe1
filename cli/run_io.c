/* SPDX-License-Identifier: BSD-3-Clause
 * run_io.c - the output of the ranks, line by line.
 *
 * Idea       Every rank has two pipes. A stream keeps the last, incomplete
 *            line of one; whole lines go to the sink with the rank before
 *            them, so lines of different ranks never mix.
 * Invariant  No byte is lost or changed; only prefixes are put in. A line
 *            above RUN_LONGEST_LINE is written in pieces; if another rank
 *            writes in between, the line is broken there.
 * Blocking   Sinks are never set to O_NONBLOCK (the terminal is not ours): a
 *            pipe that polls writable takes PIPE_BUF bytes. */
#include "run.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes room for `more` bytes; false when there is no memory. */
static bool grow(char **data, size_t len, size_t *cap, size_t more)
{
    if (len + more <= *cap)
        return true;
    size_t wanted = *cap ? *cap : 4096;
    while (wanted < len + more)
        wanted *= 2;
    char *bigger = realloc(*data, wanted);
    if (!bigger)
        return false;
    *data = bigger;
    *cap = wanted;
    return true;
}

/* ---------------------------------------------------------------- sinks -- */

bool run_sink_is_full(const run_sink *sink)
{
    return sink->len - sink->at >= RUN_MOST_WAITING;
}

void run_sink_add(run_sink *sink, const char *data, size_t len)
{
    if (sink->is_broken || !len)
        return;
    if (sink->at) {
        memmove(sink->data, sink->data + sink->at, sink->len - sink->at);
        sink->len -= sink->at;
        sink->at = 0;
    }
    if (!grow(&sink->data, sink->len, &sink->cap, len)) {
        sink->is_broken = true;
        return;
    }
    memcpy(sink->data + sink->len, data, len);
    sink->len += len;
}

void run_sink_write(run_sink *sink)
{
    struct stat st;
    bool is_file = fstat(sink->fd, &st) == 0 && S_ISREG(st.st_mode);
    while (sink->at < sink->len && !sink->is_broken) {
        struct pollfd p = {sink->fd, POLLOUT, 0};
        if (!is_file && poll(&p, 1, 0) == 0)
            return;
        size_t len = sink->len - sink->at;
        if (!is_file && len > PIPE_BUF)
            len = PIPE_BUF;
        ssize_t done = write(sink->fd, sink->data + sink->at, len);
        if (done >= 0)
            sink->at += (size_t)done;
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            sink->is_broken = true;
    }
    sink->at = sink->len = 0;
}

/* -------------------------------------------------------------- streams -- */

/* Writes a piece of a line, with the prefix where a line begins. */
static void put(run_stream *s, const char *data, size_t len)
{
    run_sink *sink = s->to;
    if (!len)
        return;
    if (sink->open_line != s) {
        if (sink->open_line && s->prefix[0])
            run_sink_add(sink, "\n", 1);
        run_sink_add(sink, s->prefix, strlen(s->prefix));
    }
    run_sink_add(sink, data, len);
    sink->open_line = data[len - 1] == '\n' ? NULL : s;
}

static void put_line(run_stream *s, const char *end, size_t len)
{
    put(s, s->line, s->len);
    s->len = 0;
    put(s, end, len);
}

static void keep(run_stream *s, const char *data, size_t len)
{
    bool is_kept = s->len + len < RUN_LONGEST_LINE &&
                   grow(&s->line, s->len, &s->cap, len);
    if (!is_kept) {
        put_line(s, data, len);
        return;
    }
    memcpy(s->line + s->len, data, len);
    s->len += len;
}

/* The line ends so. True: it was no line of the program's; what was before it is
 * kept. */
static bool is_answer(run_stream *s, const char *end, size_t len)
{
    size_t n_own;
    if (!s->hears)
        return false;
    if (s->len == 0) {
        if (!tutti_desk_hear(s->hears, end, len, &n_own))
            return false;
        keep(s, end, n_own);
        return true;
    }
    if (!grow(&s->line, s->len, &s->cap, len))
        return false;
    memcpy(s->line + s->len, end, len);
    if (!tutti_desk_hear(s->hears, s->line, s->len + len, &n_own))
        return false;
    s->len = n_own;
    return true;
}

void run_stream_close(run_stream *s)
{
    if (s->fd < 0)
        return;
    close(s->fd);
    s->fd = -1;
    if (s->len)
        put_line(s, "", 0);
    /* A last line without its end must not swallow the next rank's. */
    if (s->to->open_line == s && s->prefix[0]) {
        run_sink_add(s->to, "\n", 1);
        s->to->open_line = NULL;
    }
    free(s->line);
    s->line = NULL;
}

void run_stream_read(run_stream *s)
{
    static char buf[65536];
    ssize_t got = read(s->fd, buf, sizeof(buf));
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    /* The rank then gets SIGPIPE, as it would without a launcher. */
    if (got <= 0 || s->to->is_broken) {
        run_stream_close(s);
        return;
    }
    const char *at = buf;
    const char *end = buf + got;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline) {
            keep(s, at, (size_t)(end - at));
            return;
        }
        if (!is_answer(s, at, (size_t)(newline + 1 - at)))
            put_line(s, at, (size_t)(newline + 1 - at));
        at = newline + 1;
    }
}
