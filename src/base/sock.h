/* SPDX-License-Identifier: BSD-3-Clause
 * sock.h - what start-up and transports need of sockets: addresses as text,
 * waits with a deadline. link/ makes them. Nothing here sets a diag: the caller
 * knows what the socket was for. */
#ifndef TT_BASE_SOCK_H
#define TT_BASE_SOCK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Room for the longest printed address, "[ipv6%scope]:port" or "@name". */
#define TT_SOCK_TEXT 128
#define TT_SOCK_HOST 256

typedef struct tt_addr {
    union {
        struct sockaddr sa;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un un;
    } u;
    socklen_t len;
} tt_addr;

/* "host:port", "[ipv6]:port": false when the text is neither. host has
 * TT_SOCK_HOST bytes. */
bool tt_hostport_split(const char *text, char *host, uint16_t *port);

/* A numeric IPv4 or IPv6 address; false when host is a name. */
bool tt_addr_numeric(const char *host, uint16_t port, tt_addr *out);
/* Of family 4 or 6, from the 4 or 16 bytes of ip. */
void tt_addr_of(uint8_t family, const uint8_t *ip, uint16_t port, tt_addr *out);
/* Of IPv4 or IPv6; else nothing happens. */
void tt_addr_set_port(tt_addr *addr, uint16_t port);
/* The abstract unix address "@name". */
void tt_addr_abstract(const char *name, tt_addr *out);
/* Prints into out (TT_SOCK_TEXT bytes) and returns it. */
const char *tt_addr_text(const tt_addr *addr, char *out);
/* The other end's address; "unknown" where there is none. */
const char *tt_sock_peer_text(int fd, char *out);
/* The port of a bound socket; 0 when it has none. */
uint16_t tt_sock_port(int fd);

/* Cubic, else reno; never the system's own choice, which may be bbr: it loses
 * on links that several flows share, and collapses where buffers are shallow.
 * What a listener accepts inherits it. False where neither may be chosen. */
bool tt_sock_congestion(int fd);
/* Small messages go at once; of TCP, else nothing happens. */
void tt_sock_hurry(int fd);
/* Milliseconds until deadline_ns for poll(), rounded up, at most max_ms. */
int tt_poll_ms(uint64_t deadline_ns, int max_ms);
/* Waits for poll events; false at the deadline. */
bool tt_sock_wait(int fd, short events, uint64_t deadline_ns);
/* The user at the other end of a unix socket; false when it is unknown. */
bool tt_sock_peer_uid(int fd, uint32_t *uid);

#endif
