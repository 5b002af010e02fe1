/* SPDX-License-Identifier: BSD-3-Clause
 * stranger.h - sockets of somebody who does not know how Tutti greets. They are
 * non-blocking and close on exec; a failure is -errno. */
#ifndef TT_TESTS_STRANGER_H
#define TT_TESTS_STRANGER_H

#include "base/sock.h"

/* Binds and listens; IPv6 sockets take IPv4 too where the address is the
 * wildcard. */
int tt_stranger_listen(const tt_addr *addr, int backlog);

/* Connects, waiting at most until deadline_ns (then -ETIMEDOUT). */
int tt_stranger_connect(const tt_addr *to, uint64_t deadline_ns);
/* The same, from this address. */
int tt_stranger_connect_from(const tt_addr *from, const tt_addr *to,
                             uint64_t deadline_ns);

/* As tt_link_write_all() and tt_link_read_all(). */
int tt_stranger_write_all(int fd, const void *buf, size_t len,
                          uint64_t deadline_ns);
int tt_stranger_read_all(int fd, void *buf, size_t len, uint64_t deadline_ns);

#endif
