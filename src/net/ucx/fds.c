/* SPDX-License-Identifier: BSD-3-Clause
 * fds.c - the descriptors that UCX opens for us: a forked child must not
 * keep them (base/fork.h), or the death of its parent stays hidden.
 *
 * Idea       UCX does not tell them, so what is open before and after its start
 *            is compared; among what is new are the epolls that hold the
 *            sockets which it makes later, and those go with their epoll.
 * Caution    What another thread of the program opens meanwhile could be taken
 *            for UCX's, and would be missing in forked children: only kinds
 *            that UCX opens are taken, and epolls only when they hold nothing
 *            older.
 * Next       base/fork.c, lib.c. */
#include "net/ucx/ucx.h"

#if TT_HAVE_UCX

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"

static bool is_noted(const tt_ucx_fds *fds, int fd)
{
    size_t word = (size_t)fd / 64;
    return word < fds->n_words && (fds->before[word] >> (fd % 64) & 1);
}

static bool note(tt_ucx_fds *fds, int fd)
{
    size_t n_words = (size_t)fd / 64 + 1;
    if (n_words > fds->n_words) {
        size_t cap = n_words * 2;
        uint64_t *bigger = tt_new(fds->mem, cap, sizeof(uint64_t));
        if (!bigger)
            return false;
        if (fds->n_words > 0)
            memcpy(bigger, fds->before, fds->n_words * sizeof(uint64_t));
        tt_free(fds->mem, fds->before, fds->n_words, sizeof(uint64_t));
        fds->before = bigger;
        fds->n_words = cap;
    }
    fds->before[fd / 64] |= UINT64_C(1) << (fd % 64);
    return true;
}

/* Of a kind that UCX opens? */
static bool is_likely(int fd)
{
    static const char *const kinds[] = {
        "socket:",           "pipe:",
        "anon_inode:[event", "anon_inode:[timerfd",
        "/dev/shm/ucx",      "/memfd:ucx",
        "/dev/infiniband/",  "anon_inode:[infiniband"};
    char link[40], target[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof(target) - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strncmp(target, kinds[i], strlen(kinds[i])) == 0)
            return true;
    }
    return false;
}

static void forget_noted(tt_ucx_fds *fds)
{
    tt_free(fds->mem, fds->before, fds->n_words, sizeof(uint64_t));
    fds->before = NULL;
    fds->n_words = 0;
}

/* The next descriptor of the listing; -1: no more. */
static int next_fd(DIR *dir)
{
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && fd != dirfd(dir))
            return (int)fd;
    }
    return -1;
}

tutti_err tt_ucx_fds_note(tt_ucx_fds *fds)
{
    bool fits = true;
    forget_noted(fds);
    DIR *dir = opendir("/proc/self/fd");
    for (int fd; dir && fits && (fd = next_fd(dir)) >= 0;)
        fits = note(fds, fd);
    if (dir)
        closedir(dir);
    return fits ? TUTTI_OK : TUTTI_ENOMEM;
}

/* An epoll that another thread has made before would hold older ones. */
static bool holds_older(const tt_ucx_fds *fds, int fd)
{
    char path[40], line[256];
    bool found = false;
    int target;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "re");
    while (info && !found && fgets(line, sizeof(line), info))
        found = sscanf(line, "tfd: %d", &target) == 1 && is_noted(fds, target);
    if (info)
        fclose(info);
    return found;
}

tutti_err tt_ucx_fds_watch(tt_ucx_fds *fds)
{
    tutti_err err = TUTTI_OK;
    DIR *dir = fds->before ? opendir("/proc/self/fd") : NULL;
    for (int fd; dir && !err && (fd = next_fd(dir)) >= 0;) {
        if (is_noted(fds, fd) || !is_likely(fd) || holds_older(fds, fd))
            continue;
        void *own = fds->own;
        err = tt_grow(fds->mem, &own, &fds->cap, fds->n + 1, sizeof(int));
        if (err)
            break;
        fds->own = own;
        fds->own[fds->n++] = fd;
        tt_fork_watch(fd);
    }
    if (dir)
        closedir(dir);
    forget_noted(fds);
    return err;
}

void tt_ucx_fds_unwatch(tt_ucx_fds *fds)
{
    forget_noted(fds);
    for (size_t i = 0; i < fds->n; i++)
        tt_fork_unwatch(fds->own[i]);
    tt_free(fds->mem, fds->own, fds->cap, sizeof(int));
    fds->own = NULL;
    fds->n = fds->cap = 0;
}

#else
typedef int tt_ucx_fds_is_empty;
#endif
