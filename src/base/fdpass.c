/* SPDX-License-Identifier: BSD-3-Clause
 * fdpass.c - see fdpass.h. */
#include "base/fdpass.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(TT_FDPASS_MAX * sizeof(int))];
} control;

bool tt_fdpass_send(int sock, const void *buf, size_t len, const int *fds,
                    int n_fds)
{
    struct iovec iov = {.iov_base = (void *)(size_t)buf, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    control ctl;
    size_t bytes = (size_t)n_fds * sizeof(int);
    if (n_fds > 0) {
        memset(&ctl, 0, sizeof(ctl));
        msg.msg_control = ctl.bytes;
        msg.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(c), fds, bytes);
    }
    ssize_t sent;
    do
        sent = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)len;
}

/* Collects the descriptors of a message; returns how many (at most
 * TT_FDPASS_MAX: the kernel drops what has no room). */
static int collect(struct msghdr *msg, int *fds)
{
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t bytes = c->cmsg_len - CMSG_LEN(0);
        for (size_t i = 0; i < bytes / sizeof(int); i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (n < TT_FDPASS_MAX)
                fds[n++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

int tt_fdpass_recv(int sock, void *buf, size_t len, int *fds, int n_fds)
{
    struct iovec iov = {.iov_base = buf, .iov_len = len};
    int all[TT_FDPASS_MAX], n = 0;
    control ctl;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = ctl.bytes,
                         .msg_controllen = sizeof(ctl.bytes)};
    ssize_t got;
    do
        got = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    if (msg.msg_controllen > 0)
        n = collect(&msg, all);
    if (got == (ssize_t)len && n == n_fds &&
        !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        for (int i = 0; i < n; i++)
            fds[i] = all[i];
        return 1;
    }
    bool had_no_room = n < n_fds && (msg.msg_flags & MSG_CTRUNC);
    while (n > 0)
        close(all[--n]);
    errno = had_no_room ? EMFILE : EPROTO;
    return -1;
}
