/* SPDX-License-Identifier: BSD-3-Clause
 * cache.c - what was measured before: a file each, named by the fingerprint of
 * the hosts. NAME.topo is a network, NAME.costs what messages cost.
 *
 *     tutti-topology 1
 *     # cache 2 0123456789abcdef        version, fingerprint
 *     ...                               the network, with comments
 *     # checksum 0123456789abcdef       of all bytes before this line
 *
 * The first is a topology file, and serves as one. Nothing in them is trusted:
 * who finds one damaged, of other hosts, or a file that another user could have
 * written, says so and measures again, and the new file takes its place at once
 * (rename), so nobody reads half of one.
 * Two jobs that begin at the same time would see half of the network each: the
 * one waits until the other has measured. A lock (flock) on a file beside it
 * says so, and ends with its process. Of those that cannot lock the last one
 * stays. Next: learn.c (who asks), fingerprint.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "probe/learn.h"

#define MOST_PATH 4096
#define LINE_BYTES 48 /* the longest of the two lines, and some */

static const size_t most_bytes = 4 << 20;

const tt_kept_kind tt_kept_network = {
    .suffix = "topo",
    .first_line = "tutti-topology 1\n",
    .name = "network",
    .is_asked_for = true,
};

static size_t put_head(char line[LINE_BYTES], uint64_t fingerprint)
{
    return (size_t)snprintf(line, LINE_BYTES, "# cache %d %016llx\n",
                            TT_LEARN_VERSION, (unsigned long long)fingerprint);
}

static size_t put_foot(char line[LINE_BYTES], uint64_t checksum)
{
    return (size_t)snprintf(line, LINE_BYTES, "# checksum %016llx\n",
                            (unsigned long long)checksum);
}

/* ------------------------------------------------------------- directory -- */

void tt_probe_cache_dir(const tt_settings *settings, char *out, size_t size)
{
    const char *given = settings->probe_cache;
    const char *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = 0;
    out[0] = '\0';
    if (strcmp(given, "off") == 0)
        return;
    if (given[0])
        n = snprintf(out, size, "%s", given);
    else if (base && base[0] == '/') /* as its specification says */
        n = snprintf(out, size, "%s/tutti", base);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.cache/tutti", home);
    if (n < 0 || (size_t)n >= size)
        out[0] = '\0';
}

/* With those above it. Returns 0, or errno: why the first of those that are not
 * there could not be made. */
static int make_dir(const char *dir)
{
    char path[MOST_PATH];
    int why = 0;
    if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path))
        return ENAMETOOLONG;
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        bool is_last = *at == '\0';
        *at = '\0';
        bool is_made = mkdir(path, 0700) == 0 || errno == EEXIST;
        why = is_made ? 0 : why ? why : errno;
        if (is_last)
            return why;
        *at = '/';
    }
}

static bool name_file(char path[MOST_PATH], const char *dir,
                      uint64_t fingerprint, const char *kind)
{
    int n = snprintf(path, MOST_PATH, "%s/%016llx.%s", dir,
                     (unsigned long long)fingerprint, kind);
    return n > 0 && n < MOST_PATH;
}

/* --------------------------------------------------------------- locking -- */

/* Is it still the file of that name? Who unlocks removes it. */
static bool is_current(int fd, const char *path)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && stat(path, &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* Returns the locked file, -EWOULDBLOCK, or -errno. */
static int try_lock(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                  0600);
    if (fd < 0)
        return -errno;
    int why = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (!why && is_current(fd, path))
        return fd;
    close(fd);
    return why == 0 || why == EINTR ? -EWOULDBLOCK : -why;
}

bool tt_probe_cache_lock(const char *dir, uint64_t fingerprint, int *lock)
{
    char path[MOST_PATH];
    *lock = -1;
    if (!dir[0] || make_dir(dir) != 0 ||
        !name_file(path, dir, fingerprint, "lock"))
        return true;
    int fd = try_lock(path);
    *lock = fd < 0 ? -1 : fd;
    return fd != -EWOULDBLOCK;
}

void tt_probe_cache_unlock(const char *dir, uint64_t fingerprint, int lock)
{
    char path[MOST_PATH];
    if (lock < 0)
        return;
    if (name_file(path, dir, fingerprint, "lock"))
        unlink(path);
    close(lock);
}

/* --------------------------------------------------------------- reading -- */

/* A regular file that only this user or root can have written. Returns 0, or
 * errno: EPERM where another user could. */
static int check_file(int fd, struct stat *st)
{
    if (fstat(fd, st) != 0)
        return errno;
    if (!S_ISREG(st->st_mode))
        return S_ISDIR(st->st_mode) ? EISDIR : EINVAL;
    if ((st->st_uid != geteuid() && st->st_uid != 0) ||
        (st->st_mode & (S_IWGRP | S_IWOTH)))
        return EPERM;
    return st->st_size > (off_t)most_bytes ? EFBIG : 0;
}

/* Also where its time lies ahead: nobody knows how old it is. */
static bool is_old(const struct stat *st, uint64_t most_age_s)
{
    const time_t now = time(NULL);
    return most_age_s > 0 &&
           (st->st_mtime > now || (uint64_t)(now - st->st_mtime) > most_age_s);
}

/* Returns 0, or errno; ENOENT where there is none, or only an old one. The
 * caller frees *text, of *len + 1 bytes. */
static int read_file(const char *path, uint64_t most_age_s, char **text,
                     size_t *len)
{
    struct stat st = {0};
    /* A pipe by that name must not make anybody wait. */
    int fd = open(path,
                  O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    *text = NULL;
    if (fd < 0)
        return errno;
    int why = check_file(fd, &st);
    if (!why && is_old(&st, most_age_s))
        why = ENOENT;
    size_t want = why ? 0 : (size_t)st.st_size;
    if (!why && !(*text = tt_new(&tt_mem_std, want + 1, 1)))
        why = ENOMEM;
    *len = 0;
    while (!why && *len < want) {
        ssize_t n = read(fd, *text + *len, want - *len);
        if (n < 0 && errno != EINTR)
            why = errno;
        if (n == 0) { /* it is shorter by now */
            memset(*text + *len, 0, want - *len);
            break;
        }
        *len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (why && *text)
        tt_free(&tt_mem_std, *text, want + 1, 1);
    *len = want;
    return why;
}

/* NULL, or what is wrong with it. */
static const char *find_fault(const tt_kept_kind *kind, const char *text,
                              size_t len, uint64_t fingerprint)
{
    char line[LINE_BYTES];
    size_t n = put_foot(line, 0), first = strlen(kind->first_line);
    if (len < first + n)
        return "is damaged";
    put_foot(line, tt_fnv1a(TT_FNV1A_START, text, len - n));
    if (memcmp(text + len - n, line, n) != 0)
        return "is damaged";
    n = put_head(line, fingerprint);
    if (len < first + n || memcmp(text, kind->first_line, first) != 0 ||
        memcmp(text + first, line, n) != 0)
        return "is of other hosts, or of another Tutti";
    return NULL;
}

static const char *take(const char *text, size_t len, uint32_t n_ranks,
                        tutti_topology **out)
{
    tutti_topology *t = NULL;
    if (tt_topology_parse(&tt_mem_std, text, len, &t, NULL))
        return "holds no network";
    if (t->n_ranks != n_ranks) {
        tt_topology_free(t);
        return "is of another number of ranks";
    }
    *out = t;
    return NULL;
}

/* NULL: it is what was kept, or why it is not. */
typedef const char *(*use_fn)(void *ctx, const char *text, size_t len);

static bool read_kept(const tt_kept_kind *kind, const char *dir,
                      uint64_t fingerprint, use_fn use, void *ctx)
{
    char path[MOST_PATH];
    char *text;
    size_t len = 0;
    if (!dir[0] || !name_file(path, dir, fingerprint, kind->suffix))
        return false;
    int why = read_file(path, kind->most_age_s, &text, &len);
    if (why == ENOENT)
        return false;
    if (why) {
        TT_WARN("cannot read %s: %s; the %s is measured again", path,
                why == EPERM ? "users other than this one can write to it"
                             : strerror(why),
                kind->name);
        return false;
    }
    const char *fault = find_fault(kind, text, len, fingerprint);
    if (!fault)
        fault = use(ctx, text, len);
    tt_free(&tt_mem_std, text, len + 1, 1);
    if (fault)
        TT_WARN("%s %s; the %s is measured again", path, fault, kind->name);
    else
        TT_INFO("the %s was measured before: %s", kind->name, path);
    return !fault;
}

typedef struct wanted_network {
    uint32_t n_ranks;
    tutti_topology **out;
} wanted_network;

static const char *use_network(void *ctx, const char *text, size_t len)
{
    const wanted_network *w = ctx;
    return take(text, len, w->n_ranks, w->out);
}

bool tt_probe_cache_read(const char *dir, uint64_t fingerprint,
                         uint32_t n_ranks, tutti_topology **out)
{
    wanted_network w = {n_ranks, out};
    *out = NULL;
    return read_kept(&tt_kept_network, dir, fingerprint, use_network, &w);
}

typedef struct wanted_line {
    char *out;
    size_t size;
} wanted_line;

/* The line behind the head. */
static const char *use_line(void *ctx, const char *text, size_t len)
{
    const wanted_line *w = ctx;
    const char *head = memchr(text, '\n', len);
    const char *line = head ? strchr(head + 1, '\n') : NULL;
    const size_t n = line ? strcspn(line + 1, "\n") : 0;
    if (n == 0 || n >= w->size)
        return "is damaged";
    memcpy(w->out, line + 1, n);
    w->out[n] = '\0';
    return NULL;
}

bool tt_kept_read(const tt_settings *settings, const tt_kept_kind *kind,
                  uint64_t fingerprint, char *line, size_t size)
{
    char dir[MOST_PATH];
    wanted_line w = {line, size};
    tt_probe_cache_dir(settings, dir, sizeof(dir));
    return read_kept(kind, dir, fingerprint, use_line, &w);
}

/* --------------------------------------------------------------- writing -- */

static int put_file(const char *path, const char *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                  0644);
    if (fd < 0)
        return errno;
    int why = 0;
    for (size_t at = 0; at < len && !why;) {
        ssize_t n = write(fd, text + at, len - at);
        if (n < 0 && errno != EINTR)
            why = errno;
        at += n > 0 ? (size_t)n : 0;
    }
    if (close(fd) != 0 && !why)
        why = errno;
    return why;
}

/* The whole at once, by another name first. */
static int replace_file(const char *path, const char *text, size_t len)
{
    char other[MOST_PATH];
    int n = snprintf(other, sizeof(other), "%s.%ld.new", path, (long)getpid());
    if (n < 0 || n >= (int)sizeof(other))
        return ENAMETOOLONG;
    unlink(other); /* of a process of this number that was killed */
    int why = put_file(other, text, len);
    if (!why && rename(other, path) != 0)
        why = errno;
    if (why)
        unlink(other);
    return why;
}

/* As name_file() makes them; others' files may lie beside. */
static bool is_kept_name(const char *name, const char *suffix)
{
    const size_t n = 16;
    return strspn(name, "0123456789abcdef") == n && name[n] == '.' &&
           strcmp(name + n + 1, suffix) == 0;
}

/* Those that are too old to be read, so that they do not fill the directory. */
static void sweep(const tt_kept_kind *kind, const char *dir)
{
    const struct dirent *entry;
    DIR *all = kind->most_age_s > 0 ? opendir(dir) : NULL;
    while (all && (entry = readdir(all))) {
        struct stat st;
        if (is_kept_name(entry->d_name, kind->suffix) &&
            fstatat(dirfd(all), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            is_old(&st, kind->most_age_s))
            unlinkat(dirfd(all), entry->d_name, 0);
    }
    if (all)
        closedir(all);
}

static void write_kept(const tt_kept_kind *kind, const char *dir,
                       uint64_t fingerprint, const char *text, size_t len)
{
    char path[MOST_PATH], line[LINE_BYTES];
    size_t first = strlen(kind->first_line), whole = 0;
    char *data = NULL;
    if (!dir[0] || len < first || memcmp(text, kind->first_line, first) != 0)
        return;
    tt_str str = {.mem = &tt_mem_std};
    tt_str_puts(&str, kind->first_line);
    put_head(line, fingerprint);
    tt_str_puts(&str, line);
    tt_str_add(&str, text + first, len - first);
    if (!str.err) {
        put_foot(line, tt_fnv1a(TT_FNV1A_START, str.data, str.len));
        tt_str_puts(&str, line);
    }
    int why = tt_str_finish(&str, &data, &whole) ? ENOMEM : make_dir(dir);
    if (!why && !name_file(path, dir, fingerprint, kind->suffix))
        why = ENAMETOOLONG;
    if (!why && whole > most_bytes)
        why = EFBIG;
    if (!why)
        sweep(kind, dir);
    if (!why)
        why = replace_file(path, data, whole);
    if (data)
        tt_free(&tt_mem_std, data, whole + 1, 1);
    if (why)
        TT_LOG(kind->is_asked_for ? TUTTI_LOG_WARN : TUTTI_LOG_INFO,
               "cannot keep the measured %s in %s: %s; the next job measures "
               "again, unless TUTTI_PROBE_CACHE names another directory",
               kind->name, dir, strerror(why));
    else
        TT_INFO("the measured %s is kept in %s", kind->name, path);
}

void tt_probe_cache_write(const char *dir, uint64_t fingerprint,
                          const char *text, size_t len)
{
    write_kept(&tt_kept_network, dir, fingerprint, text, len);
}

void tt_kept_write(const tt_settings *settings, const tt_kept_kind *kind,
                   uint64_t fingerprint, const char *line)
{
    char dir[MOST_PATH], text[256];
    tt_probe_cache_dir(settings, dir, sizeof(dir));
    const int n = snprintf(text, sizeof(text), "%s%s\n", kind->first_line,
                           line);
    if (n > 0 && (size_t)n < sizeof(text))
        write_kept(kind, dir, fingerprint, text, (size_t)n);
}
