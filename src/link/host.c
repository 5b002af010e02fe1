/* SPDX-License-Identifier: BSD-3-Clause
 * host.c - the link thread, and the boxes in which finished links wait.
 *
 * One epoll has every socket that is not a connection yet. A turn serves what
 * is ready, then looks whose time is over. See inside.h for the lock and for
 * when memory may be freed. Next: listen.c, dial.c. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/thread.h"
#include "link/inside.h"

#define EVENTS 64
/* Without anything to wait for. */
#define SLEEP_MS 60000

/* After a turn with strangers, and nobody left to accept: so a flood costs few
 * turns. One of ours may wait as long, a few times. */
#define REST_NS (5 * TT_NS_PER_MS)

/* The one of the process. first_lock guards how many boxes use it. */
static tt_link_host the_host;
static pthread_mutex_t first_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t n_users; /* boxes */

/* --------------------------------------------------------------- thread -- */

static void serve(tt_link_host *host, const struct epoll_event *e)
{
    tt_link_node *node = e->data.ptr;
    if (node->is_dead)
        return;
    switch (node->kind) {
    case TT_LINK_NODE_WAKE:
        tt_bell_hear(host->wake_fd);
        break;
    case TT_LINK_NODE_EAR:
        host->is_behind |= tt_link_ear_event((tt_link_socket *)(void *)node);
        break;
    case TT_LINK_NODE_GUEST:
        tt_link_guest_event((tt_link_guest *)(void *)node);
        break;
    case TT_LINK_NODE_DIAL:
        tt_link_dial_event((tt_link_dial *)(void *)node);
        break;
    case TT_LINK_NODE_PASS:
        tt_link_pass_event(node);
        break;
    }
}

/* Returns when it has to look again. */
static uint64_t check_times(tt_link_host *host)
{
    uint64_t now = tt_now_ns();
    uint64_t next = UINT64_MAX;
    for (tt_link_box *box = host->boxes; box; box = box->next) {
        for (tt_link_listener *l = box->listeners; l; l = l->next) {
            uint64_t at = tt_link_guests_check(l, now);
            next = at < next ? at : next;
        }
        /* After the guests: a dial may wait for one. */
        for (tt_link_dial *d = box->dials; d; d = d->next) {
            uint64_t at = tt_link_dial_check(d, now);
            next = at < next ? at : next;
        }
    }
    return next;
}

/* A trust whose files are to be looked at; the caller's own. NULL: none.
 * [locked] */
static tt_trust *due_trust(const tt_link_host *host)
{
    for (const tt_link_box *box = host->boxes; box; box = box->next) {
        for (tt_link_listener *l = box->listeners; l; l = l->next)
            if (tt_trust_is_due(l->trust))
                return tt_trust_ref(l->trust);
        for (tt_link_dial *d = box->dials; d; d = d->next)
            if (tt_trust_is_due(d->o.trust))
                return tt_trust_ref(d->o.trust);
    }
    return NULL;
}

/* Before handshakes. A disk may be slow: who dials, or takes what has come,
 * does not wait for it. [locked; unlocks meanwhile] */
static void look_at_files(tt_link_host *host)
{
    tt_trust *t;
    while ((t = due_trust(host)) != NULL) {
        tt_link_unlock(host);
        tt_trust_look(t);
        tt_trust_close(t);
        tt_link_lock(host);
    }
}

static void bury_all(tt_link_host *host)
{
    tt_link_bury(host);
    tt_link_bury_passed(host);
    tt_link_bury_dials(host);
}

static void *thread_main(void *arg)
{
    tt_link_host *host = arg;
    struct epoll_event events[EVENTS];
    tt_link_lock(host);
    while (!host->stops) {
        uint64_t next = check_times(host);
        bury_all(host);
        host->n_turns++;
        pthread_cond_broadcast(&host->turned);
        bool rests = host->has_strangers && !host->is_behind;
        host->has_strangers = host->is_behind = false;
        tt_link_unlock(host);
        if (rests)
            nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
        int n = epoll_wait(host->epoll_fd, events, EVENTS,
                           tt_poll_ms(next, SLEEP_MS));
        tt_link_lock(host);
        look_at_files(host);
        for (int i = 0; i < n; i++)
            serve(host, &events[i]);
    }
    bury_all(host);
    tt_link_unlock(host);
    return NULL;
}

static tutti_err open_host(tt_link_host *host, tutti_diag *diag)
{
    *host = (tt_link_host){.wake = {.kind = TT_LINK_NODE_WAKE}};
    pthread_mutex_init(&host->lock, NULL);
    pthread_cond_init(&host->turned, NULL);
    host->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    host->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    host->spare_fd = eventfd(0, EFD_CLOEXEC);
    int why = host->epoll_fd < 0 || host->wake_fd < 0 ? errno : 0;
    tt_fork_watch(host->epoll_fd);
    tt_fork_watch(host->wake_fd);
    tt_fork_watch(host->spare_fd);
    if (why == 0) {
        tt_link_watch(host, host->wake_fd, &host->wake, EPOLLIN, true);
        why = tt_thread_start(&host->thread, thread_main, host);
    }
    if (why == 0)
        return TUTTI_OK;
    tt_fork_close(&host->epoll_fd);
    tt_fork_close(&host->wake_fd);
    tt_fork_close(&host->spare_fd);
    return tt_fail_errno(diag, TUTTI_ESYS, why,
                         "no thread or descriptors for connections");
}

static void close_host(tt_link_host *host)
{
    tt_link_lock(host);
    host->stops = true;
    tt_link_wake(host);
    tt_link_unlock(host);
    pthread_join(host->thread, NULL);
    tt_fork_close(&host->epoll_fd);
    tt_fork_close(&host->wake_fd);
    tt_fork_close(&host->spare_fd);
    pthread_mutex_destroy(&host->lock);
    pthread_cond_destroy(&host->turned);
}

/* One more box wants it. */
static tutti_err take_host(tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    pthread_mutex_lock(&first_lock);
    if (n_users == 0)
        err = open_host(&the_host, diag);
    n_users += !err;
    pthread_mutex_unlock(&first_lock);
    return err;
}

static void leave_host(void)
{
    pthread_mutex_lock(&first_lock);
    if (--n_users == 0)
        close_host(&the_host);
    pthread_mutex_unlock(&first_lock);
}

/* ------------------------------------------------------------------ box -- */

tutti_err tt_link_box_open(const tt_mem *mem, tt_link_box **out,
                           tutti_diag *diag)
{
    tt_link_box *box = tt_new(mem, 1, sizeof(*box));
    if (!box)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for connections");
    *box = (tt_link_box){.host = &the_host, .mem = mem, .end = &box->first};
    box->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tt_fork_watch(box->fd);
    tutti_err err = box->fd < 0 ? tt_fail_errno(diag, TUTTI_ESYS, errno,
                                                "no descriptor for connections")
                                : take_host(diag);
    if (err) {
        tt_fork_close(&box->fd);
        tt_free(mem, box, 1, sizeof(*box));
        return err;
    }
    tt_link_lock(box->host);
    box->next = box->host->boxes;
    box->host->boxes = box;
    tt_link_unlock(box->host);
    *out = box;
    return TUTTI_OK;
}

int tt_link_box_fd(const tt_link_box *box)
{
    return box->fd;
}

bool tt_link_box_take(tt_link_box *box, tt_link_event *out)
{
    tt_link_lock(box->host);
    tt_link_item *item = box->first;
    if (item) {
        tt_link_unput(box, item);
        if (item->is_guest)
            tt_link_guest_take(TT_CONTAINER(item, tt_link_guest, item), out);
        else
            tt_link_dial_take(TT_CONTAINER(item, tt_link_dial, item), out);
    }
    tt_link_unlock(box->host);
    return item != NULL;
}

bool tt_link_box_wait(tt_link_box *box, uint64_t deadline_ns)
{
    return tt_sock_wait(box->fd, POLLIN, deadline_ns);
}

void tt_link_box_settle(tt_link_box *box)
{
    tt_link_lock(box->host);
    look_at_files(box->host);
    for (tt_link_listener *l = box->listeners; l; l = l->next)
        tt_link_guests_settle(l);
    tt_link_unlock(box->host);
}

void tt_link_box_close(tt_link_box *box)
{
    if (!box)
        return;
    tt_link_host *host = box->host;
    tt_link_end_passed(box);
    while (box->dials)
        tt_link_dial_end(box->dials);
    while (box->listeners)
        tt_link_listener_close(box->listeners);
    tt_link_lock(host);
    tt_link_box **at = &host->boxes;
    while (*at != box)
        at = &(*at)->next;
    *at = box->next;
    tt_link_unlock(host);
    leave_host();
    tt_link_free_book(box);
    tt_fork_close(&box->fd);
    tt_free(box->mem, box, 1, sizeof(*box));
}
