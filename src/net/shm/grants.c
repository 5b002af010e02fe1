/* SPDX-License-Identifier: BSD-3-Clause
 * grants.c - the buffers of a call within the other process's reach.
 *
 * Idea       Buffers from tutti_alloc() are mapped by the peers anyway
 *            (segments.c); a grant says which of them, for how long
 *            (grant.h). What is not shared, or not mapped there yet, is not
 *            granted: then messages bring it.
 * Stopped    A peer that is stopped in the middle of its use must not write
 *            into what the program does with the buffer later, nor read that.
 *            Its pages are then replaced by a private view of themselves: from
 *            the program's first write to a page on, what the peer writes there
 *            goes to where nobody looks (tt_regions_tear). In pages that the
 *            program leaves alone, it still sees what the peer writes.
 * Next       grant.c, engine/within.c (who uses them). */
#include "net/shm/shm.h"

static uint64_t refer(tt_shm_conn *conn, const void *data, size_t bytes)
{
    uint64_t ref;
    return data && tt_shm_refer(conn, data, bytes, &ref) ? ref + 1 : 0;
}

static bool grant(tt_conn *base, const tt_buffers *mine, tt_grant *out)
{
    tt_shm_conn *conn = (tt_shm_conn *)base;
    const tt_shm_net *net = (const tt_shm_net *)base->net;
    if (!conn->memory || conn->is_lost ||
        (!mine->is_elsewhere && mine->bytes < net->least_direct))
        return false;
    tt_grant g = {.number = 0};
    if (!mine->is_elsewhere) {
        g.in = refer(conn, mine->in, mine->bytes);
        g.out = refer(conn, mine->out, mine->bytes);
    }
    if (!g.in && !g.out && !mine->is_elsewhere)
        return false;
    g.number = tt_grant_open(&conn->duplex.granter);
    *out = g;
    return g.number != 0;
}

static bool withdraw(tt_conn *base, const tt_buffers *mine, uint64_t number,
                     bool is_final)
{
    tt_shm_conn *conn = (tt_shm_conn *)base;
    if (!conn->memory)
        return true;
    if (tt_grant_close(&conn->duplex.granter, number)) {
        conn->awaited_ns = 0;
        return true;
    }
    if (!tt_shm_gives_up(conn, is_final))
        return false;
    if (conn->is_stuck && !mine->is_elsewhere) {
        tt_regions *regions = base->net->regions;
        tt_regions_tear(regions, mine->out, mine->bytes);
        if (mine->in != mine->out)
            tt_regions_tear(regions, (void *)(uintptr_t)mine->in, mine->bytes);
    }
    return true;
}

static void *resolve(tt_shm_conn *conn, uint64_t ref, size_t bytes)
{
    return ref ? tt_shm_find(conn, ref - 1, bytes) : NULL;
}

static bool reach(tt_conn *base, const tt_grant *theirs, tt_buffers *out)
{
    tt_shm_conn *conn = (tt_shm_conn *)base;
    if (!conn->memory)
        return true; /* it is closed: nothing is there any more */
    out->in = resolve(conn, theirs->in, out->bytes);
    out->out = resolve(conn, theirs->out, out->bytes);
    return (out->in || !theirs->in) && (out->out || !theirs->out);
}

static bool hold(tt_conn *base, uint64_t number)
{
    const tt_shm_conn *conn = (tt_shm_conn *)base;
    return conn->memory && tt_grant_hold(conn->duplex.theirs, number);
}

static void release(tt_conn *base)
{
    const tt_shm_conn *conn = (tt_shm_conn *)base;
    if (conn->memory)
        tt_grant_release(conn->duplex.theirs);
}

static bool keep(tt_conn *base, uint64_t number)
{
    const tt_shm_conn *conn = (tt_shm_conn *)base;
    return conn->memory && tt_grant_keep(conn->duplex.theirs, number);
}

static void drop(tt_conn *base, uint64_t number)
{
    const tt_shm_conn *conn = (tt_shm_conn *)base;
    if (conn->memory)
        tt_grant_drop(conn->duplex.theirs, number);
}

const tt_net_within tt_shm_within = {
    .grant = grant,
    .withdraw = withdraw,
    .reach = reach,
    .hold = hold,
    .release = release,
    .keep = keep,
    .drop = drop,
};
