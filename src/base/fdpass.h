/* SPDX-License-Identifier: BSD-3-Clause
 * fdpass.h - messages with descriptors over a unix socket (SOCK_SEQPACKET).
 * Nothing blocks; descriptors received are close-on-exec. */
#ifndef TT_BASE_FDPASS_H
#define TT_BASE_FDPASS_H

#include <stdbool.h>
#include <stddef.h>

#define TT_FDPASS_MAX 4

/* Sends one message with n_fds descriptors (0 to TT_FDPASS_MAX), which stay
 * the caller's. False: errno says why. */
bool tt_fdpass_send(int sock, const void *buf, size_t len, const int *fds,
                    int n_fds);

/* Receives one message, which must have exactly len bytes and n_fds
 * descriptors. 1: here, the caller owns fds. 0: nothing has come yet. -1: the
 * other side has closed, or sent something else, or (errno is EMFILE) there is
 * no room for its descriptors; none is kept. */
int tt_fdpass_recv(int sock, void *buf, size_t len, int *fds, int n_fds);

#endif
