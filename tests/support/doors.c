/* SPDX-License-Identifier: BSD-3-Clause
 * doors.c - see doors.h. /proc/PID/fd has the sockets, by inode; /proc/net/tcp,
 * tcp6 and unix say which of them listen, and where. */
#include "support/doors.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_SOCKETS = 256 };

typedef struct search {
    pid_t pid;
    unsigned long inodes[MOST_SOCKETS];
    size_t n_inodes;
    tt_door_found *out;
    size_t n, most;
} search;

static void list_inodes(search *s)
{
    char name[64];
    snprintf(name, sizeof(name), "/proc/%d/fd", (int)s->pid);
    DIR *dir = opendir(name);
    const struct dirent *e;
    while (dir && (e = readdir(dir)) != NULL && s->n_inodes < MOST_SOCKETS) {
        char link[384], to[64] = "";
        snprintf(link, sizeof(link), "%s/%s", name, e->d_name);
        ssize_t len = readlink(link, to, sizeof(to) - 1);
        if (len > 8 && strncmp(to, "socket:[", 8) == 0)
            s->inodes[s->n_inodes++] = strtoul(to + 8, NULL, 10);
    }
    if (dir)
        closedir(dir);
}

static tt_door_found *found(search *s, unsigned long inode)
{
    for (size_t i = 0; i < s->n_inodes && s->n < s->most; i++) {
        if (s->inodes[i] != inode)
            continue;
        s->out[s->n] = (tt_door_found){.pid = s->pid};
        return &s->out[s->n++];
    }
    return NULL;
}

/* "  1: 0100007F:9C41 00000000:0000 0A ... uid timeout inode" */
static void look_tcp(search *s, const char *line)
{
    unsigned port, state;
    unsigned long inode;
    if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*u %*u %lu",
               &port, &state, &inode) != 3 ||
        state != 10)
        return;
    tt_door_found *d = found(s, inode);
    if (d) {
        *d = tt_door_at((uint16_t)port);
        d->pid = s->pid;
    }
}

/* "0000000000000000: 00000002 00000000 00010000 0001 01 12345 @name" */
static void look_unix(search *s, const char *line)
{
    unsigned flags, type;
    unsigned long inode;
    char name[128];
    if (sscanf(line, "%*[^:]: %*x %*x %x %x %*x %lu @%127s", &flags, &type,
               &inode, name) != 4 ||
        !(flags & 0x10000))
        return;
    tt_door_found *d = found(s, inode);
    if (!d)
        return;
    d->is_unix = true;
    d->is_packets = type == SOCK_SEQPACKET;
    d->to.un.sun_family = AF_UNIX;
    size_t len = strnlen(name, sizeof(d->to.un.sun_path) - 1);
    memcpy(d->to.un.sun_path + 1, name, len);
    d->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static void look(search *s, const char *table,
                 void (*one)(search *s, const char *line))
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)s->pid, table);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        one(s, line);
    if (f)
        fclose(f);
}

tt_door_found tt_door_at(uint16_t port)
{
    return (tt_door_found){.to.v4 = {.sin_family = AF_INET,
                                     .sin_port = htons(port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                           .len = sizeof(struct sockaddr_in)};
}

size_t tt_doors_find(pid_t pid, tt_door_found *out, size_t most)
{
    search s = {.pid = pid, .out = out, .most = most};
    list_inodes(&s);
    look(&s, "tcp", look_tcp);
    look(&s, "tcp6", look_tcp);
    look(&s, "unix", look_unix);
    return s.n;
}

int tt_doors_knock(const tt_door_found *door)
{
    int type = door->is_packets ? SOCK_SEQPACKET : SOCK_STREAM;
    int fd = socket(door->to.sa.sa_family, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int rc;
    do
        rc = connect(fd, &door->to.sa, door->len);
    while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}
