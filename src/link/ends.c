/* SPDX-License-Identifier: BSD-3-Clause
 * ends.c - what listeners, guests and dials need alike: the thread's ear, words
 * over sockets, a place in a box, who has come to a socket. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bell.h"
#include "link/inside.h"

void tt_link_lock(tt_link_host *host)
{
    pthread_mutex_lock(&host->lock);
}

void tt_link_unlock(tt_link_host *host)
{
    pthread_mutex_unlock(&host->lock);
}

void tt_link_wake(tt_link_host *host)
{
    tt_bell_ring(host->wake_fd);
}

void tt_link_retire(tt_link_host *host, tt_link_node *node)
{
    node->is_dead = true;
    if (host->n_turns == node->left_turn)
        tt_link_wake(host);
    while (host->n_turns == node->left_turn)
        pthread_cond_wait(&host->turned, &host->lock);
}

void tt_link_watch(tt_link_host *host, int fd, tt_link_node *node,
                   uint32_t events, bool is_new)
{
    struct epoll_event e = {.events = events, .data.ptr = node};
    int op = events == 0 ? EPOLL_CTL_DEL
             : is_new    ? EPOLL_CTL_ADD
                         : EPOLL_CTL_MOD;
    epoll_ctl(host->epoll_fd, op, fd, &e);
    node->left_turn = host->n_turns;
}

bool tt_link_say(tt_link_stream *s, const tt_greet_word *word)
{
    const struct iovec iov = {(void *)(uintptr_t)word, sizeof(*word)};
    return tt_link_send(s, &iov, 1) == sizeof(*word) && tt_link_unsent(s) == 0;
}

int tt_link_hear(tt_link_stream *s, tt_greet_word *word, size_t *got)
{
    const struct iovec iov = {(char *)word + *got, sizeof(*word) - *got};
    ssize_t n = tt_link_recv(s, &iov, 1);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        errno = n == 0 ? 0 : errno;
        return -1;
    }
    *got += (size_t)n;
    return *got == sizeof(*word);
}

uint32_t tt_link_shake_events(const tt_link_stream *s)
{
    return tt_link_unsent(s) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

bool tt_link_is_own_user(int fd)
{
    uint32_t uid;
    return tt_sock_peer_uid(fd, &uid) && uid == (uint32_t)geteuid();
}

/* ------------------------------------------------------------- sockets -- */

void tt_link_congestion(int fd, const char *name)
{
    if (!name || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name,
                            (socklen_t)strlen(name)) != 0)
        tt_sock_congestion(fd);
}

/* ----------------------------------------------------------------- box -- */

void tt_link_put(tt_link_box *box, tt_link_item *item)
{
    item->next = NULL;
    item->is_queued = true;
    if (!box->first)
        tt_bell_ring(box->fd);
    *box->end = item;
    box->end = &item->next;
}

void tt_link_unput(tt_link_box *box, tt_link_item *item)
{
    tt_link_item **at = &box->first;
    if (!item->is_queued)
        return;
    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    if (!*at)
        box->end = at;
    item->is_queued = false;
    if (!box->first)
        tt_bell_hear(box->fd);
}

int tt_link_accept(int listener, tt_addr *from)
{
    for (;;) {
        *from = (tt_addr){.len = sizeof(from->u)};
        int fd = accept4(listener, &from->u.sa, &from->len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            return fd;
        if (errno != EINTR && errno != ECONNABORTED)
            return -errno;
    }
}
