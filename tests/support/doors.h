/* SPDX-License-Identifier: BSD-3-Clause
 * doors.h - the ways into a process that a stranger finds: its listening
 * sockets, as the system tells them to everybody. */
#ifndef TT_TESTS_DOORS_H
#define TT_TESTS_DOORS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

typedef struct tt_door_found {
    union {
        struct sockaddr sa;
        struct sockaddr_in v4; /* TCP: on loopback */
        struct sockaddr_un un;
    } to;
    socklen_t len;
    bool is_unix, is_packets;
    pid_t pid;
} tt_door_found;

/* Those of the process, as many as fit; returns how many. */
size_t tt_doors_find(pid_t pid, tt_door_found *out, size_t most);
/* At this port of loopback. */
tt_door_found tt_door_at(uint16_t port);
/* A connection, non-blocking; -1: nobody listens any more. */
int tt_doors_knock(const tt_door_found *door);

#endif
