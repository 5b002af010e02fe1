/* SPDX-License-Identifier: BSD-3-Clause
 * late.c - who is waited for: the sentence of a call that waits for long, and
 * of one whose deadline has passed.
 *
 * Ask        Every member is asked WHO has entered the call (one tells it to
 *            the next, and answers go back that way); after half a second the
 *            answers name the ranks that have not. Where all have, the walk
 *            knows whose data is missing.
 * Patience   The oldest call of a team, if nothing of it has moved for
 *            TUTTI_PATIENCE, asks and says so, and again after twice as long.
 *            One that moves is slow, but does not wait. Of a group, whose
 *            members cannot be asked, its owner tells (tt_team_awaits).
 * Deadline   asks likewise, and fails the team. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"

static const uint64_t ask_ns = 500 * TT_NS_PER_MS;
/* Whether a call moves is looked at so often in the time that it is waited
 * for. */
static const uint64_t looks = 8;
/* Ranks that a sentence lists. */
enum { MOST_LISTED = 8 };

/* Whether `r` takes part in the call, and can answer. */
static bool is_asked(const tt_op *op, uint32_t r)
{
    if (op->members && r != op->members[0] && r != op->members[1])
        return false;
    return r != op->team->rank &&
           !tt_team_is_gone(op->team, tt_team_peer(op->team, r));
}

static void ask(tt_op *op, uint64_t now_ns)
{
    tt_team *team = op->team;
    op->is_asking = true;
    op->ask_until_ns = now_ns + ask_ns;
    if (!op->answers)
        op->answers = tt_new(op->program->mem, team->n, 1);
    if (op->answers)
        memset(op->answers, 0, team->n);
    tt_msg m = tt_team_msg(team, TT_KIND_WHO, op->channel, op->seq);
    m.lane = team->rank;
    m.slice = op->members ? 0 : ++team->n_asks;
    if (m.slice)
        tt_team_tell(team, &m, NULL, NULL);
    for (uint32_t r = 0; op->members && r < team->n; r++)
        if (is_asked(op, r))
            tt_peer_tell(tt_team_peer(team, r), &m, NULL);
}

static bool all_answered(const tt_op *op)
{
    for (uint32_t r = 0; op->answers && r < op->team->n; r++)
        if (is_asked(op, r) && op->answers[r] == 0)
            return false;
    return true;
}

/* "rank 2 (host b, pid 4711)" */
static void print_member(const tt_team *team, uint32_t rank, char *text,
                         size_t size)
{
    char who[TT_CONN_TEXT] = "";
    const tt_conn *conn = rank == team->rank
                              ? NULL
                              : tt_peer_conn(tt_team_peer(team, rank));
    if (conn && conn->net)
        tt_conn_text(conn, who);
    const char *where = strstr(who, " (");
    snprintf(text, size, "rank %" PRIu32 "%s", tt_team_name(team, rank),
             where ? where : "");
}

/* "rank 3" or "ranks 1, 4" of those whose answer is `answer`; returns how many,
 * and the first of them. */
static uint32_t list_ranks(const tt_op *op, uint8_t answer, char *text,
                           size_t size, uint32_t *first)
{
    uint32_t n = 0;
    char list[120] = "";
    size_t used = 0;
    for (uint32_t r = 0; r < op->team->n; r++) {
        if (!is_asked(op, r) || op->answers[r] != answer)
            continue;
        if (n++ == 0)
            *first = r;
        if (n <= MOST_LISTED && used < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used,
                                     "%s%" PRIu32, n > 1 ? ", " : "",
                                     tt_team_name(op->team, r));
    }
    if (n > MOST_LISTED && used < sizeof(list))
        snprintf(list + used, sizeof(list) - used, " and %" PRIu32 " more",
                 n - MOST_LISTED);
    snprintf(text, size, "rank%s %s", n > 1 ? "s" : "", list);
    return n;
}

/* The same; of one alone also where it is. */
static uint32_t name_ranks(const tt_op *op, uint8_t answer, char *text,
                           size_t size)
{
    uint32_t first = 0;
    uint32_t n = op->answers ? list_ranks(op, answer, text, size, &first) : 0;
    if (n == 1)
        print_member(op->team, first, text, size);
    return n;
}

/* "call 17" or "message 3 of tag 5" */
static void print_number(const tt_op *op, char *text, size_t size)
{
    const uint64_t tag = op->channel >> TT_CHANNEL_TAG;
    int used = snprintf(text, size, "%s %" PRIu64,
                        op->channel ? "message" : "call", op->seq + 1);
    if (tag)
        snprintf(text + used, size - (size_t)used, " of tag %" PRIu64, tag);
}

const tt_side *tt_op_awaits(const tt_op *op)
{
    const tt_side *found = NULL;
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        const tt_side *side = &op->sides[p];
        bool is_better = !found || (found->is_bound && !side->is_bound);
        if (is_better && !tt_walk_is_through(&op->walk, p))
            found = side;
    }
    return found;
}

/* Who has not come, by the answers; then whose data has not. */
static void print_awaited(const tt_op *op, char *text, size_t size)
{
    char who[280];
    tt_team_settle(op->team);
    const tt_side *side = tt_op_awaits(op);
    if (name_ranks(op, 1, who, sizeof(who)) > 0) {
        snprintf(text, size, "%s", who);
    } else if (name_ranks(op, 0, who, sizeof(who)) > 0) {
        snprintf(text, size, "%s, no answer", who);
    } else if (side) {
        const uint32_t p = tt_side_partner(side);
        print_member(op->team, tt_team_rank_of(op->team, side->peer), who,
                     sizeof(who));
        snprintf(text, size, "%s, which has called it, %s", who,
                 tt_walk_has_heard(&op->walk, p) ? "to take what is sent"
                                                 : "to send");
    } else {
        snprintf(text, size, "memory that others read");
    }
}

static void say_waiting(tt_op *op)
{
    char who[360], call[96], number[48];
    print_awaited(op, who, sizeof(who));
    tt_call_title(&op->call, call, sizeof(call));
    print_number(op, number, sizeof(number));
    TT_WARN("waiting %.4g s for %s: %s, %s",
            tt_patience_say(&op->team->patience), who, call, number);
}

static void expire(tt_op *op)
{
    char call[96], silent[160], absent[160], who[360], text[720], tag[32] = "";
    const tt_walk_state is = tt_walk_look(&op->walk);
    tt_call_print(&op->call, call, sizeof(call));
    if (op->channel >> TT_CHANNEL_TAG)
        snprintf(tag, sizeof(tag), ", tag %" PRIu64,
                 op->channel >> TT_CHANNEL_TAG);
    uint32_t culprit = TT_NONE;
    snprintf(who, sizeof(who), "all ranks have called it");
    if (op->answers) {
        uint32_t dumb = TT_NONE;
        uint32_t n_dumb = list_ranks(op, 0, silent, sizeof(silent), &dumb);
        uint32_t n = list_ranks(op, 1, absent, sizeof(absent), &culprit);
        if (n > 0)
            snprintf(who, sizeof(who), "%s %s not called it%s%s", absent,
                     n > 1 ? "have" : "has",
                     n_dumb > 0 ? "; no answer from " : "",
                     n_dumb > 0 ? silent : "");
        else if (n_dumb > 0)
            snprintf(who, sizeof(who), "no answer from %s", silent);
        culprit = n > 0 ? culprit : dumb;
    }
    uint64_t since = op->deadline_ns > op->start_ns ? op->start_ns
                                                    : op->deadline_ns;
    double waited = (double)(op->deadline_ns - since) / 1e9;
    snprintf(text, sizeof(text),
             "%s (call %" PRIu64 "%s) timed out on rank %" PRIu32
             " after %.3g s: %s; at step %" PRIu32 " of %" PRIu32 ", %" PRIu64
             " bytes received",
             call, op->seq + 1, tag, tt_team_name(op->team, op->team->rank),
             waited, who, is.step, is.n_steps, is.moved_bytes);
    tt_team_fail(op->team, TUTTI_ETIMEOUT, culprit, text);
}

/* Of the oldest call of the team: it has waited for as long as that may be
 * without a word. */
static bool is_due(tt_op *op, uint64_t now_ns)
{
    tt_team *team = op->team;
    const uint64_t first_ns = team->mesh->engine->opts.patience_ns;
    if (first_ns == 0 || team->is_group)
        return false;
    if (team->waits_issue != op->issue + 1) {
        team->waits_issue = op->issue + 1;
        team->waits_look_ns = now_ns;
        team->waits_moved = 0;
        team->patience = tt_patience_begin(first_ns, now_ns);
    }
    if (now_ns >= team->waits_look_ns) {
        tt_team_settle(team);
        const tt_walk_state is = tt_walk_look(&op->walk);
        const uint64_t moved = is.moved_bytes + is.gone_bytes;
        if (moved != team->waits_moved)
            team->patience = tt_patience_begin(first_ns, now_ns);
        team->waits_moved = moved;
        team->waits_look_ns = now_ns + first_ns / looks;
    }
    return tt_patience_is_over(&team->patience, now_ns);
}

static void look_late(tt_op *op, uint64_t now_ns)
{
    const bool has_expired = now_ns >= op->deadline_ns;
    if (!op->is_asking) {
        if (has_expired || (!op->next && is_due(op, now_ns)))
            ask(op, now_ns);
        return;
    }
    if (now_ns < op->ask_until_ns && !all_answered(op))
        return;
    op->is_asking = false;
    if (has_expired)
        expire(op);
    else
        say_waiting(op);
}

/* What is no op: a receive from any rank, an agreement. */
static void look_at_rest(tt_team *team, uint64_t now_ns)
{
    const tt_any *any = team->anys;
    const tt_agree *agree = team->agree;
    const uint64_t begin_ns = team->agree_until_ns - team->agree_ns;
    const uint64_t first_ns = team->mesh->engine->opts.patience_ns;
    char who[240];
    if (any &&
        tt_patience_tells(&team->any_patience, first_ns, any->start_ns, now_ns))
        TT_WARN("waiting %.4g s for a message of tag %d from any rank",
                tt_patience_say(&team->any_patience), any->tag);
    if (!agree || !agree->is_open ||
        !tt_patience_tells(&team->agree_patience, first_ns, begin_ns, now_ns))
        return;
    double waited_s = tt_patience_say(&team->agree_patience);
    for (uint32_t r = 0; r < team->n; r++)
        if (r != team->rank && tt_agree_awaits(agree, r)) {
            print_member(team, r, who, sizeof(who));
            TT_WARN("waiting %.4g s for %s to come to an agreement", waited_s,
                    who);
            return;
        }
}

void tt_team_look_late(tt_team *team, uint64_t now_ns)
{
    tt_op *next;
    for (tt_op *op = team->ops; op && !team->err; op = next) {
        next = op->next;
        look_late(op, now_ns);
    }
    look_at_rest(team, now_ns);
}

uint32_t tt_team_awaits(const tt_team *team, uint64_t *seq, bool *has_entered)
{
    uint32_t found = TT_NONE;
    *has_entered = true;
    tt_team_settle(team);
    for (const tt_op *op = team->ops; op; op = op->next) {
        const tt_side *side = op->channel == 0 ? tt_op_awaits(op) : NULL;
        if (!side || (side->is_bound && !*has_entered))
            continue;
        found = side->peer->rank;
        *seq = op->seq;
        *has_entered = side->is_bound;
    }
    return found;
}
