/* SPDX-License-Identifier: BSD-3-Clause
 * word.c - words between rank 0 of a team and all others, carried by their
 * engines.
 *
 * Tree       A rank's parent is its own number without the lowest bit that is
 *            set. Their distance is a power of two, so the two are neighbours
 *            in the control graph: they are connected from the start, and each
 *            hears when the other leaves. Rank 0 speaks to all, who tell it on
 *            to their children; what the others say goes up, as it is.
 * Order      What a rank says comes in the order in which it was said: there is
 *            one way, by connections that keep the order.
 * Over       A member that has left carries nothing on. Its neighbours in the
 *            tree tell theirs, so everybody hears that words are over, behind
 *            all words that came that way.
 * Alive      A program that waits for a word waits for engines only; its
 *            neighbours in the tree are watched meanwhile (watch.c), and theirs
 *            by them, if these wait for the same.
 * Next       drift/drift.c and drift/amend.c, which speak. */
#include "engine/state.h"

/* Words of those behind a child that may wait for the parent. Honest ones are
 * few, also while the parent is away: drift.c answers, and amend.c says a few
 * of each kind of calls between two words of rank 0. */
static const uint32_t most_up = 4096;

/* In m->slice: whereto. */
enum { UP, DOWN, OVER };

static uint32_t parent_of(uint32_t rank)
{
    return rank & (rank - 1);
}

/* The ranks that it speaks for: itself and those behind it. */
static uint32_t width_of(uint32_t rank)
{
    return rank & -rank;
}

uint32_t tt_word_next(const tt_team *team, uint32_t after)
{
    const uint32_t rank = team->rank;
    if (after == TT_NONE && rank > 0)
        return parent_of(rank);
    const uint32_t bit = after == TT_NONE || after < rank ? 1
                                                          : 2 * (after - rank);
    const bool is_child = rank == 0 || bit < width_of(rank);
    return is_child && bit < team->n - rank ? rank + bit : TT_NONE;
}

static bool is_neighbour(const tt_team *team, uint32_t rank)
{
    uint32_t r = tt_word_next(team, TT_NONE);
    while (r != TT_NONE && r != rank)
        r = tt_word_next(team, r);
    return r != TT_NONE;
}

/* To those behind this rank; all: and to its parent. */
static void tell_on(const tt_team *team, const tt_msg *m, const void *bytes,
                    bool all)
{
    for (uint32_t r = tt_word_next(team, TT_NONE); r != TT_NONE;
         r = tt_word_next(team, r))
        if (all || r > team->rank)
            tt_peer_tell(tt_team_peer(team, r), m, bytes);
}

static void end(tt_team *team)
{
    tt_msg m = tt_team_msg(team, TT_KIND_WORD, 0, 0);
    if (team->words.are_over || team->is_group || team->err)
        return;
    m.slice = OVER;
    m.lane = team->rank;
    team->words.are_over = true;
    tell_on(team, &m, NULL, true);
    tt_team_await(team, 0);
    if (team->words.listener)
        team->words.listener->over(team->words.arg);
    tt_engine_wake(team->mesh->engine);
}

/* Of those by whom words come port 0 counts: they come by that. */
void tt_word_part(tt_team *team, const tt_peer *peer)
{
    const uint32_t rank = tt_team_rank_of(team, peer);
    if (peer == tt_team_peer(team, rank) && is_neighbour(team, rank))
        end(team);
}

static tt_word_is hear(tt_team *team, const tt_msg *m, const void *bytes)
{
    const tt_listener *l = team->words.listener;
    const bool is_sound = !l || team->words.are_over ||
                          l->hear(team->words.arg, m->lane, bytes, m->len);
    return is_sound ? TT_WORD_HEARD : TT_WORD_SENSELESS;
}

/* Words of those behind a child that wait for the parent. */
static uint32_t n_waiting(const tt_peer *parent, uint32_t child)
{
    uint32_t n = 0;
    for (size_t i = 0; i < parent->n_ctl; i++) {
        const size_t at = (parent->ctl_head + i) % parent->ctl_cap;
        const tt_msg *m = &parent->ctl[at].m;
        n += m->kind == TT_KIND_WORD && m->lane - child < width_of(child);
    }
    return n;
}

static tt_word_is tell_up(const tt_team *team, uint32_t child, const tt_msg *m,
                          const void *data)
{
    tt_peer *parent = tt_team_peer(team, parent_of(team->rank));
    if (parent->n_ctl >= most_up && n_waiting(parent, child) >= most_up)
        return TT_WORD_FLOOD;
    tt_peer_tell(parent, m, data);
    return TT_WORD_HEARD;
}

tt_word_is tt_word_hear(tt_team *team, const tt_peer *peer, const tt_msg *m,
                        const void *data)
{
    const uint32_t rank = tt_team_rank_of(team, peer);
    if (rank == TT_NONE || !is_neighbour(team, rank))
        return TT_WORD_BREACH;
    const bool is_child = rank > team->rank;
    if (m->slice == OVER) {
        end(team);
        return m->len == 0 ? TT_WORD_HEARD : TT_WORD_BREACH;
    }
    if (m->slice == DOWN && !is_child && m->lane == 0) {
        tell_on(team, m, data, false);
        return hear(team, m, data);
    }
    if (m->slice != UP || !is_child || m->lane - rank >= width_of(rank) ||
        m->lane >= team->n)
        return TT_WORD_BREACH;
    return team->rank == 0 ? hear(team, m, data) : tell_up(team, rank, m, data);
}

void tt_team_listen(tt_team *team, const tt_listener *listener, void *arg)
{
    tt_engine_lock(team->mesh->engine);
    team->words.listener = listener;
    team->words.arg = arg;
    tt_engine_unlock(team->mesh->engine);
}

void tt_team_say(tt_team *team, const void *bytes, uint32_t len)
{
    const uint32_t rank = team->rank;
    tt_msg m = tt_team_msg(team, TT_KIND_WORD, 0, 0);
    m.slice = rank == 0 ? DOWN : UP;
    m.lane = rank;
    m.len = len;
    if (team->err)
        return;
    if (rank == 0)
        tell_on(team, &m, bytes, false);
    else
        tt_peer_tell(tt_team_peer(team, parent_of(rank)), &m, bytes);
}

void tt_team_await(tt_team *team, uint64_t timeout_ns)
{
    const bool was = team->words.until_ns > 0;
    const bool does = timeout_ns > 0 && !team->err && !team->words.are_over;
    team->words.until_ns = does ? tt_now_ns() + timeout_ns : 0;
    team->words.timeout_ns = timeout_ns;
    team->mesh->engine->n_active += does;
    team->mesh->engine->n_active -= was;
}
