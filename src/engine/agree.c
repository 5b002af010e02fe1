/* SPDX-License-Identifier: BSD-3-Clause
 * agree.c - the agreements of a team: first the machine of agree.h, which knows
 * no team, then how a team and its mesh carry its messages.
 *
 * A team's machine is made by its first agreement, or by the first message of
 * one. It begins with the members that are lost by then; the mesh tells of
 * others. It goes when the team is left. Who has left may still know the last
 * decision, which others wait for, or which says that they are out: the mesh
 * keeps it.
 * Next: agree.h; watch.c, which looks at the clock. */
#include "engine/agree.h"

#include <string.h>

#include "engine/state.h"
#include "schedule/schedule.h"

/* --------------------------------------------------------------- machine -- */

static bool is_lost(const tt_agree *a, uint32_t rank)
{
    return tt_vote_has_lost(&a->own, rank);
}

/* The own rank is never lost, so there is one. */
static uint32_t leader(const tt_agree *a)
{
    uint32_t r = 0;
    while (is_lost(a, r))
        r++;
    return r;
}

static void say(tt_agree *a, uint32_t to, uint64_t epoch, tt_vote_kind kind)
{
    tt_opinion v = kind == TT_VOTE_DECIDED ? a->last : a->own;
    v.kind = (uint8_t)kind;
    a->ops->send(a->arg, to, epoch, &v);
}

static void say_all(tt_agree *a, uint64_t epoch, tt_vote_kind kind)
{
    for (uint32_t r = 0; r < a->n; r++)
        if (r != a->me && !is_lost(a, r))
            say(a, r, epoch, kind);
}

/* It knows the set as it is now. */
static bool has_reported(const tt_agree *a, uint32_t rank)
{
    return rank == a->me || a->voters[rank].n_lost == a->n_lost + 1;
}

static void end(tt_agree *a, const tt_opinion *decision)
{
    a->last = *decision;
    a->is_open = false;
    a->epoch++;
    for (uint32_t r = 0; r < a->n; r++)
        a->voters[r].n_lost = 0;
}

/* This rank takes part no more; those who wait for it are told. */
static void leave(tt_agree *a)
{
    a->is_out = true;
    a->is_open = false;
    for (uint32_t r = 0; r < a->n; r++)
        if (a->voters[r].awaits > a->epoch)
            say(a, r, a->voters[r].awaits - 1, TT_VOTE_GONE);
}

static void decide(tt_agree *a)
{
    const uint64_t epoch = a->epoch;
    tt_opinion v = a->own;
    for (uint32_t r = 0; r < a->n; r++) {
        if (r == a->me || is_lost(a, r))
            continue;
        v.mask &= a->voters[r].mask;
        if (a->voters[r].what != a->own.what)
            v.err = TUTTI_EMISMATCH;
        v.what |= a->voters[r].what;
    }
    if (a->n - a->n_lost < a->quorum)
        v.err = TUTTI_EPEER;
    end(a, &v);
    say_all(a, epoch, TT_VOTE_DECIDED);
}

static void decide_if_all(tt_agree *a)
{
    for (uint32_t r = 0; r < a->n; r++)
        if (!is_lost(a, r) && !has_reported(a, r))
            return;
    decide(a);
}

/* At the beginning, and when the set has grown. */
static void proceed(tt_agree *a)
{
    const uint32_t lead = leader(a);
    if (!a->is_open)
        return;
    if (lead != a->me) {
        say(a, lead, a->epoch, TT_VOTE_REPORT);
        return;
    }
    say_all(a, a->epoch, TT_VOTE_ASK);
    decide_if_all(a);
}

/* It may live, and wait for an answer. */
static void add(tt_agree *a, uint32_t rank)
{
    const uint64_t awaits = a->voters[rank].awaits;
    a->own.lost[rank / 64] |= UINT64_C(1) << rank % 64;
    a->n_lost++;
    if (awaits > a->epoch)
        say(a, rank, awaits - 1, TT_VOTE_OUT);
}

/* Takes over what it believes; true: the set has grown. A leader before `from`
 * may be among those that it has lost: so in their order. */
static bool merge(tt_agree *a, uint32_t from, const tt_opinion *v)
{
    const uint32_t n_before = a->n_lost;
    for (uint32_t r = 0; r < a->n; r++) {
        if (!tt_vote_has_lost(v, r) || is_lost(a, r) || r == a->me)
            continue;
        const uint32_t lead = leader(a);
        if (lead == from || lead == a->me || !a->ops->is_linked(a->arg, r))
            add(a, r);
    }
    return a->n_lost > n_before;
}

/* Lost to the leader it is lost to all; to another member, that member is lost
 * to this rank. */
static void shut_out(tt_agree *a, uint32_t from)
{
    if (from == leader(a)) {
        leave(a);
        return;
    }
    add(a, from);
    proceed(a);
}

/* Who has reported to this rank, or has asked it, is told: who leads may not be
 * the same to all. */
static void adopt(tt_agree *a, uint32_t from, const tt_opinion *v)
{
    for (uint32_t r = 0; r < a->n; r++)
        if (tt_vote_has_lost(v, r) && !is_lost(a, r))
            add(a, r);
    if (a->voters[from].awaits == a->epoch + 1)
        a->voters[from].awaits = 0; /* it knows */
    end(a, v);
    for (uint32_t r = 0; r < a->n; r++)
        if (a->voters[r].awaits == a->epoch && !is_lost(a, r))
            say(a, r, a->epoch - 1, TT_VOTE_DECIDED);
}

static void hear_report(tt_agree *a, uint32_t from, const tt_opinion *v)
{
    bool has_grown = merge(a, from, v);
    if (leader(a) != a->me) {
        if (has_grown)
            proceed(a);
        return; /* a leader asks again */
    }
    if (memcmp(v->lost, a->own.lost, sizeof(v->lost)) == 0) {
        a->voters[from].mask = v->mask;
        a->voters[from].what = v->what;
        a->voters[from].n_lost = a->n_lost + 1;
    }
    if (has_grown)
        proceed(a);
    else if (has_reported(a, from))
        decide_if_all(a);
    else
        say(a, from, a->epoch, TT_VOTE_ASK);
}

static void hear_ask(tt_agree *a, uint32_t from, const tt_opinion *v)
{
    bool has_grown = merge(a, from, v);
    if (leader(a) == from) {
        a->asked = a->epoch + 1;
        has_grown = true; /* or asked for as it is */
    }
    if (has_grown)
        proceed(a);
}

static void answer_late(tt_agree *a, uint32_t from, uint64_t epoch)
{
    bool is_last = epoch + 1 == a->epoch;
    say(a, from, epoch, is_last ? TT_VOTE_DECIDED : TT_VOTE_OUT);
}

bool tt_agree_hear(tt_agree *a, uint32_t from, uint64_t epoch,
                   const tt_opinion *v)
{
    const bool is_asking = tt_vote_is_asking(v);
    if (v->kind < TT_VOTE_REPORT || v->kind > TT_VOTE_GONE ||
        tt_vote_has_lost(v, from))
        return false;
    if (a->is_out || is_lost(a, from)) {
        if (is_asking)
            say(a, from, epoch, a->is_out ? TT_VOTE_GONE : TT_VOTE_OUT);
        return true;
    }
    if (v->kind == TT_VOTE_GONE)
        tt_agree_lose(a, from);
    else if (v->kind == TT_VOTE_OUT || tt_vote_has_lost(v, a->me))
        shut_out(a, from);
    else if (is_asking && epoch < a->epoch)
        answer_late(a, from, epoch);
    else if (is_asking)
        a->voters[from].awaits = epoch + 1;
    if (v->kind == TT_VOTE_ASK && from == leader(a) && epoch >= a->epoch)
        a->asked = epoch + 1;
    if (is_asking && !a->is_open && epoch >= a->epoch && !is_lost(a, from))
        merge(a, from, v); /* to be known when this rank begins */
    if (!a->is_open || epoch != a->epoch || is_lost(a, from))
        return true;
    if (v->kind == TT_VOTE_REPORT)
        hear_report(a, from, v);
    else if (v->kind == TT_VOTE_ASK)
        hear_ask(a, from, v);
    else if (v->kind == TT_VOTE_DECIDED)
        adopt(a, from, v);
    return true;
}

void tt_agree_lose(tt_agree *a, uint32_t rank)
{
    if (rank == a->me || is_lost(a, rank))
        return;
    add(a, rank);
    proceed(a);
}

bool tt_agree_awaits(const tt_agree *a, uint32_t rank)
{
    if (!a->is_open || is_lost(a, rank) || rank == a->me)
        return false;
    const uint32_t lead = leader(a);
    return rank == lead || (lead == a->me && !has_reported(a, rank));
}

uint32_t tt_agree_overdue(tt_agree *a)
{
    uint32_t first = TT_NONE;
    tt_opinion late = a->own;
    if (!a->is_open)
        return TT_NONE;
    if (leader(a) != a->me && a->asked > a->epoch) {
        a->asked = 0;
        return TT_NONE;
    }
    for (uint32_t r = 0; r < a->n; r++)
        if (tt_agree_awaits(a, r)) {
            late.lost[r / 64] |= UINT64_C(1) << r % 64;
            first = first == TT_NONE ? r : first;
        }
    for (uint32_t r = 0; r < a->n; r++)
        if (tt_vote_has_lost(&late, r) && !is_lost(a, r))
            add(a, r);
    if (first != TT_NONE)
        proceed(a);
    return first;
}

void tt_agree_begin(tt_agree *a, uint8_t what, uint64_t mask, uint32_t quorum)
{
    if (a->is_out)
        return;
    a->own.what = what;
    a->own.mask = mask;
    a->quorum = quorum;
    a->is_open = true;
    proceed(a);
}

static size_t bytes_of(uint32_t n)
{
    return sizeof(tt_agree) + n * sizeof(tt_voter);
}

tt_agree *tt_agree_create(const tt_mem *mem, const tt_agree_ops *ops, void *arg,
                          uint32_t n, uint32_t me)
{
    tt_agree *a = n <= TT_VOTERS_MAX ? tt_new(mem, 1, bytes_of(n)) : NULL;
    if (!a)
        return NULL;
    a->ops = ops;
    a->arg = arg;
    a->n = n;
    a->me = me;
    return a;
}

void tt_agree_free(const tt_mem *mem, tt_agree *a)
{
    if (a)
        tt_free(mem, a, 1, bytes_of(a->n));
}

/* --------------------------------------------------------------- carried -- */

static void tell(tt_peer *peer, uint64_t comm, uint64_t seq,
                 const tt_opinion *v)
{
    const tt_msg m = {.magic = TT_MSG_MAGIC,
                      .kind = TT_KIND_VOTE,
                      .comm = comm,
                      .seq = seq,
                      .len = sizeof(*v)};
    peer->is_apart = false; /* it is tried once more */
    tt_peer_tell(peer, &m, v);
}

static void carry(void *arg, uint32_t to, uint64_t epoch, const tt_opinion *v)
{
    const tt_team *team = arg;
    tell(tt_team_peer(team, to), team->id, epoch, v);
}

static bool is_linked(const void *arg, uint32_t rank)
{
    const tt_peer *peer = tt_team_peer(arg, rank);
    return peer->conn != &peer->none && !peer->is_lost;
}

static const tt_agree_ops ops = {carry, is_linked};

static tt_agree *machine_of(tt_team *team)
{
    if (team->agree)
        return team->agree;
    tt_agree *a = tt_agree_create(team->mesh->mem, &ops, team, team->n,
                                  team->rank);
    team->agree = a;
    for (uint32_t r = 0; a && r < team->n; r++)
        if (tt_team_peer(team, r)->is_lost)
            tt_agree_lose(a, r);
    return a;
}

/* After anything that may have ended it. */
static void tell_waiters(const tt_team *team, bool was_open)
{
    if (was_open && !team->agree->is_open)
        tt_engine_wake(team->mesh->engine);
}

/* The team was left, or this rank has no memory. A decision that is known is
 * told; who asks about an earlier one had no part in that, so it is out. */
static void answer(tt_peer *peer, const tt_msg *m)
{
    const tt_mesh *mesh = peer->mesh;
    tt_opinion said = {.kind = TT_VOTE_GONE};
    for (uint32_t i = 0; i < TT_VERDICTS; i++) {
        const tt_verdict *last = &mesh->verdicts[i];
        if (last->comm != m->comm || last->decision.kind != TT_VOTE_DECIDED)
            continue;
        if (last->seq == m->seq)
            said = last->decision;
        else if (last->seq > m->seq)
            said.kind = TT_VOTE_OUT;
    }
    tell(peer, m->comm, m->seq, &said);
}

bool tt_vote_hear(tt_peer *peer, tt_team *team, const tt_msg *m,
                  const void *data)
{
    tt_opinion v;
    memcpy(&v, data, sizeof(v));
    const uint32_t rank = team ? tt_team_rank_of(team, peer) : TT_NONE;
    if (rank == TT_NONE || !machine_of(team)) {
        if (tt_vote_is_asking(&v))
            answer(peer, m);
        return true;
    }
    const bool was_open = team->agree->is_open;
    const bool is_sound = tt_agree_hear(team->agree, rank, m->seq, &v);
    tell_waiters(team, was_open);
    return is_sound;
}

void tt_vote_hear_lost(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_opinion v;
    memcpy(&v, data, sizeof(v));
    if (!tt_vote_is_asking(&v) || peer->conn == &peer->none)
        return;
    v = (tt_opinion){.kind = TT_VOTE_OUT};
    tt_peer_tell_now(peer, m, &v);
}

void tt_vote_lose(const tt_peer *peer)
{
    for (tt_team *team = peer->mesh->teams; team; team = team->next) {
        const uint32_t rank = tt_team_rank_of(team, peer);
        if (!team->agree || rank == TT_NONE)
            continue;
        const bool was_open = team->agree->is_open;
        tt_agree_lose(team->agree, rank);
        tell_waiters(team, was_open);
    }
}

void tt_vote_leave(tt_team *team)
{
    tt_mesh *mesh = team->mesh;
    tt_agree *a = team->agree;
    if (!a)
        return;
    if (!a->is_out && a->epoch > 0) {
        tt_verdict *v = &mesh->verdicts[mesh->n_verdicts++ % TT_VERDICTS];
        *v = (tt_verdict){team->id, a->epoch - 1, a->last};
        v->decision.kind = TT_VOTE_DECIDED;
    }
    leave(a);
    tt_agree_free(mesh->mem, a);
    team->agree = NULL;
}

uint32_t tt_vote_expire(tt_team *team, uint64_t now_ns)
{
    if (now_ns < team->agree_until_ns)
        return TT_NONE;
    team->agree_until_ns = now_ns + team->agree_ns;
    uint32_t late = tt_agree_overdue(team->agree);
    tell_waiters(team, true);
    return late;
}

tutti_err tt_team_agree(tt_team *team, const tt_ballot *own)
{
    tt_agree *a = machine_of(team);
    if (!a)
        return TUTTI_ENOMEM;
    team->agree_ns = own->timeout_ns;
    team->agree_until_ns = tt_now_ns() + own->timeout_ns;
    team->mesh->engine->n_active++;
    for (int i = 0; i < own->n_exclude; i++)
        tt_agree_lose(a, (uint32_t)own->exclude[i]);
    tt_agree_begin(a, own->what, own->mask, own->quorum);
    return TUTTI_OK;
}

bool tt_team_has_agreed(const void *arg)
{
    const tt_team *team = arg;
    return !team->agree->is_open;
}

tutti_err tt_team_decision(const tt_team *team, tt_verdict *out)
{
    const tt_agree *a = team->agree;
    team->mesh->engine->n_active--;
    if (a->is_out)
        return TUTTI_EPEER;
    *out = (tt_verdict){team->id, a->epoch - 1, a->last};
    return TUTTI_OK;
}
