/* SPDX-License-Identifier: BSD-3-Clause
 * door.c - see door.h. Next: tcp/meet.c, shm/meet.c. */
#include "net/door.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/random.h"

static tutti_err watch(const tt_door *door, tt_net *net, tutti_diag *diag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = net};
    if (epoll_ctl(net->fd, EPOLL_CTL_ADD, tt_link_box_fd(door->box), &event))
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_ctl");
    return TUTTI_OK;
}

tutti_err tt_door_open(tt_door *door, tt_net *net, tt_link_listen_opts *o,
                       tutti_diag *diag)
{
    tt_link_listener *listener;
    tutti_err err = tt_link_box_open(net->mem, &door->box, diag);
    if (!err)
        err = watch(door, net, diag);
    if (!err && tt_link_id_is_none(&net->id))
        err = tt_link_id_make(&net->id, diag);
    o->self = net->id;
    o->trust = door->trust = tt_trust_ref(net->trust);
    if (!err)
        err = tt_random(o->token, sizeof(o->token), diag);
    o->has_token = true;
    if (!err)
        err = tt_link_listen(door->box, o, &listener, NULL, diag);
    if (!err)
        tt_link_card_of(listener, &door->card);
    return err;
}

void tt_door_close(tt_door *door)
{
    tt_link_box_close(door->box);
    door->box = NULL;
    tt_trust_close(door->trust);
    door->trust = NULL;
}

size_t tt_door_address(const tt_door *door, uint32_t number, void *buf)
{
    size_t len = tt_link_card_bytes(&door->card);
    memcpy(buf, &door->card, len);
    memcpy((char *)buf + len, &number, sizeof(number));
    return len + sizeof(number);
}

bool tt_door_read(const void *addr, size_t len, tt_link_card *card,
                  uint32_t *number)
{
    size_t used;
    if (!tt_link_card_read(card, addr, len, &used) ||
        len - used != sizeof(*number))
        return false;
    memcpy(number, (const char *)addr + used, sizeof(*number));
    return true;
}
