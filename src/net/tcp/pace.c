/* SPDX-License-Identifier: BSD-3-Clause
 * pace.c - how fast the sockets of a conn have been, as the kernel counts
 * it: bytes acknowledged, and how long any were on their way. Their ratio is
 * the rate of the path, however little is sent. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include "net/tcp/tcp.h"

static void add_socket(const tt_tcp_strand *s, tt_net_pace *to)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    memset(&info, 0, sizeof(info)); /* an older kernel fills less */
    if (!s->is_open ||
        getsockopt(s->link.fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return;
    to->bytes += info.tcpi_bytes_acked;
    to->busy_ns += info.tcpi_busy_time * UINT64_C(1000);
}

void tt_tcp_keep_pace(tt_tcp_strand *s)
{
    add_socket(s, &s->before);
}

void tt_tcp_pace(const tt_conn *base, tt_net_pace *out)
{
    const tt_tcp_conn *conn = (const tt_tcp_conn *)base;
    for (uint32_t i = 0; i < conn->n_strands; i++) {
        const tt_tcp_strand *s = &conn->strands[i];
        out->bytes += s->before.bytes;
        out->busy_ns += s->before.busy_ns;
        add_socket(s, out);
    }
}
