/* SPDX-License-Identifier: BSD-3-Clause
 * clocks.c - clocks run apart, so while a job is recorded (TUTTI_TRACE) each rank
 * goes on to ask the rank whose clock it was compared with at the start
 * (core/tracing.c).
 *
 * When       after 1, 2, 4, ... s, and then each minute; in a tick, so no call waits
 *            for it, and a rank that calls nothing asks nobody.
 * How        some PINGs, one after the other, whose PONGs tell the time. The
 *            quickest counts: it was answered in the middle, give or take half.
 *            What is lost is asked again with the next ones.
 * Next       export/recorded.c, which reads it. */
#include "engine/state.h"

static const uint64_t first_ns = TT_NS_PER_S, most_ns = 60 * TT_NS_PER_S;
static const uint64_t answer_ns = TT_NS_PER_S;
/* As ranks wake up for them the first ones take longer. */
enum { ROUND_TRIPS = 8 };

void tt_clock_begin(tt_mesh *mesh, uint32_t parent)
{
    const uint64_t now_ns = tt_now_ns();
    mesh->clock.with = parent < mesh->n_ranks ? &mesh->peers[parent] : NULL;
    mesh->clock.begun_ns = now_ns;
    mesh->clock.next_ns = now_ns + first_ns;
}

static bool can_ask(const tt_peer *peer)
{
    return !peer->is_lost && !peer->is_away && peer->n_ctl == 0 &&
           peer->conn != &peer->none;
}

static void ask(tt_mesh *mesh)
{
    mesh->clock.sent_ns = tt_now_ns();
    const tt_msg m = {.magic = TT_MSG_MAGIC,
                      .kind = TT_KIND_PING,
                      .seq = mesh->clock.sent_ns,
                      .lane = TT_PING_TIME};
    tt_peer_tell(mesh->clock.with, &m, NULL);
}

/* What has been found, if anything. The next time is as far away as the start is,
 * so clocks are known soon, and for the whole of a long job. */
static void finish(tt_mesh *mesh, uint64_t now_ns)
{
    const uint64_t age_ns = now_ns - mesh->clock.begun_ns;
    tt_mark *r = mesh->clock.trip_ns < UINT64_MAX ? tt_trail_next(mesh->trail)
                                                  : NULL;
    mesh->clock.sent_ns = 0;
    mesh->clock.next_ns = now_ns + (age_ns < first_ns  ? first_ns
                                    : age_ns > most_ns ? most_ns
                                                       : age_ns);
    if (!r)
        return;
    r->t_ns = mesh->clock.middle_ns;
    r->until_ns = mesh->clock.trip_ns;
    r->peer = mesh->clock.with->rank;
    r->u.ahead_ns = mesh->clock.ahead_ns;
    r->kind = TT_MARK_CLOCK;
}

void tt_clock_tick(tt_mesh *mesh, uint64_t now_ns)
{
    if (!mesh->trail || !mesh->clock.with)
        return;
    if (mesh->clock.sent_ns > 0) {
        if (now_ns > mesh->clock.sent_ns + answer_ns)
            finish(mesh, now_ns);
        return;
    }
    if (now_ns < mesh->clock.next_ns || !can_ask(mesh->clock.with))
        return;
    mesh->clock.n_left = ROUND_TRIPS;
    mesh->clock.trip_ns = UINT64_MAX;
    ask(mesh);
}

void tt_clock_hear(const tt_peer *peer, const tt_msg *m)
{
    tt_mesh *mesh = peer->mesh;
    const uint64_t now_ns = tt_now_ns();
    if (m->kind != TT_KIND_PONG || m->lane != TT_PING_TIME ||
        peer != mesh->clock.with || !mesh->trail || mesh->clock.sent_ns == 0 ||
        m->seq != mesh->clock.sent_ns)
        return;
    const uint64_t trip_ns = now_ns - m->seq;
    if (trip_ns < mesh->clock.trip_ns) {
        mesh->clock.trip_ns = trip_ns;
        mesh->clock.middle_ns = m->seq + trip_ns / 2;
        mesh->clock.ahead_ns =
            (int64_t)(m->fingerprint - mesh->clock.middle_ns);
    }
    if (--mesh->clock.n_left > 0 && can_ask(peer))
        ask(mesh);
    else
        finish(mesh, now_ns);
}
