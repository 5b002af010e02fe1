/* SPDX-License-Identifier: BSD-3-Clause
 * shrink.c - what the ranks of a communicator that are left can do when it has
 * failed: agree, and make another one of themselves.
 *
 * A shrink is agreements in a row. The first says who is left. Each makes the
 * communicator of these, and the next agreement says that all have it; where
 * one more was lost meanwhile it says that, too, and the next try is made of
 * who is left then. So nobody speaks to a communicator that is not there, and
 * all who return have the same one. Where those who are not left are to be put
 * out one more says that all have seen to that (expel.c).
 * Next: engine/agree.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "members/members.h"

static tutti_err say(tutti_comm *comm, tutti_err err, const char *text)
{
    comm->says_own = true;
    return tt_comm_fail(comm, err, "%s", text);
}

static uint32_t count_left(const tutti_comm *comm, const tt_opinion *v)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < comm->n_ranks; r++)
        n += !tt_vote_has_lost(v, r);
    return n;
}

/* An error that all ranks that are left get. */
static tutti_err judge(tutti_comm *comm, const tt_ballot *own,
                       const tt_opinion *v)
{
    char text[200];
    if (v->err == TUTTI_EMISMATCH)
        return say(comm, TUTTI_EMISMATCH,
                   "some ranks called tutti_comm_agree, others "
                   "tutti_comm_shrink or tutti_comm_grow");
    if (v->err) {
        snprintf(text, sizeof(text),
                 "%" PRIu32 " of %" PRIu32 " ranks are left, %" PRIu32
                 " are needed (TUTTI_QUORUM)",
                 count_left(comm, v), comm->n_ranks, own->quorum);
        return say(comm, TUTTI_EPEER, text);
    }
    return TUTTI_OK;
}

static tutti_err wait_for(tutti_comm *comm, const tt_ballot *own,
                          tt_verdict *out)
{
    tt_engine *e = comm->engine;
    tt_engine_lock(e);
    tutti_err err = tt_team_agree(comm->team, own);
    if (!err) {
        tt_engine_flush(e);
        tt_engine_see_through(e, tt_team_has_agreed, comm->team);
        err = tt_team_decision(comm->team, out);
    }
    tt_engine_unlock(e);
    return err;
}

/* Who has seen no failure looks after newcomers while others agree on what to
 * do about it: it will come to that, too. */
static bool is_crossed(const tt_ballot *own, const tt_opinion *v)
{
    return own->what != TT_ON_GROWTH && v->err == TUTTI_EMISMATCH &&
           v->what == (own->what | TT_ON_GROWTH);
}

tutti_err tt_comm_vote(tutti_comm *comm, const tt_ballot *own, tt_verdict *out)
{
    char text[160];
    if (comm->n_ranks > TT_VOTERS_MAX) {
        snprintf(text, sizeof(text),
                 "%" PRIu32 " ranks cannot agree; at most %d can",
                 comm->n_ranks, TT_VOTERS_MAX);
        return say(comm, TUTTI_ELIMIT, text);
    }
    tutti_err err;
    do
        err = wait_for(comm, own, out);
    while (!err && is_crossed(own, &out->decision));
    if (err == TUTTI_EPEER) {
        snprintf(text, sizeof(text),
                 "the others go on without rank %" PRIu32
                 ": it was lost to them, or came too late",
                 comm->rank);
        return say(comm, err, text);
    }
    return err ? say(comm, err, "out of memory for an agreement")
               : judge(comm, own, &out->decision);
}

/* More than half, or as many as the setting says, which is for communicators of
 * any size: all, where it is more. */
static uint32_t quorum_of(const tutti_comm *comm, int quorum)
{
    uint64_t n = quorum > 0 ? (uint64_t)quorum : comm->agreed.quorum;
    if (n == 0)
        return comm->n_ranks / 2 + 1;
    return n < comm->n_ranks ? (uint32_t)n : comm->n_ranks;
}

tutti_err tutti_comm_agree(tutti_comm *comm, uint64_t *mask)
{
    tt_verdict got;
    tutti_err err = tt_comm_enter(comm);
    if (err)
        return err;
    tt_ballot own = {.what = TT_ON_MASK,
                     .quorum = quorum_of(comm, 0),
                     .timeout_ns = comm->timeout_ns};
    if (mask) {
        own.mask = *mask;
        err = tt_comm_vote(comm, &own, &got);
    } else {
        err = say(comm, TUTTI_EINVAL, "tutti_comm_agree: mask is NULL");
    }
    if (!err)
        *mask = got.decision.mask;
    tt_comm_leave(comm);
    return err;
}

/* ---------------------------------------------------------------- shrink -- */

/* What is made: its ranks in the old one. */
typedef struct shrunk {
    uint32_t *ranks;
    tutti_comm *comm;
} shrunk;

/* Of those that are left. */
static tutti_err make(tutti_comm *comm, const tt_verdict *who, uint32_t *ranks,
                      tutti_comm **out)
{
    uint32_t n = 0;
    uint64_t id = tt_fnv1a_u64(TT_FNV1A_START, comm->id);
    id = tt_fnv1a_u64(id, who->seq);
    for (uint32_t r = 0; r < comm->n_ranks; r++)
        if (!tt_vote_has_lost(&who->decision, r)) {
            ranks[n++] = r;
            id = tt_fnv1a_u64(id, r);
        }
    return tt_comm_make_part(comm, ranks, n, id, out);
}

/* One more agreement: whether what all have done has gone well, mine. *is_same:
 * no more were lost since then. */
static tutti_err look_again(tutti_comm *comm, tt_ballot *own, tt_verdict *who,
                            bool mine, bool *is_same)
{
    const tt_opinion was = who->decision;
    own->mask = mine;
    tutti_err err = tt_comm_vote(comm, own, who);
    if (err)
        return err;
    *is_same = memcmp(was.lost, who->decision.lost, sizeof(was.lost)) == 0;
    return *is_same && !(who->decision.mask & 1) ? TUTTI_ENOMEM : TUTTI_OK;
}

/* A communicator of those that `who` says are left; *made NULL: more are lost
 * by now. */
static tutti_err try(tutti_comm *comm, tt_ballot *own, tt_verdict *who,
                     bool puts_out, shrunk *out)
{
    bool is_same = false;
    out->comm = NULL;
    tutti_err err = make(comm, who, out->ranks, &out->comm);
    err = look_again(comm, own, who, !err, &is_same);
    if (err == TUTTI_ENOMEM)
        err = say(comm, err, "a rank could not make its communicator");
    if (!err && is_same && puts_out) {
        tutti_err mine = tt_expel_prepare(comm, out->comm, out->ranks);
        err = look_again(comm, own, who, !mine, &is_same);
        if (err == TUTTI_ENOMEM)
            err = mine ? mine
                       : say(comm, err, "a rank could not put others out");
        if (!err && is_same)
            tt_expel_finish(comm, out->comm, out->ranks);
    }
    if (!err && is_same)
        return TUTTI_OK;
    tt_comm_drop(comm, out->comm);
    out->comm = NULL;
    return err;
}

/* Until the same ranks are left before and after. */
static tutti_err shrink(tutti_comm *comm, tt_ballot *own, bool puts_out,
                        shrunk *out)
{
    tt_verdict who;
    own->mask = 1;
    tutti_err err = tt_comm_vote(comm, own, &who);
    while (!err && !out->comm)
        err = try(comm, own, &who, puts_out, out);
    return err;
}

/* Those that are to be left out are others. */
static tutti_err check_exclude(tutti_comm *comm, const tutti_shrink_opts *opts)
{
    char text[120];
    const int own = (int)comm->rank;
    if (opts->n_exclude < 0 || (opts->n_exclude > 0 && !opts->exclude))
        return say(comm, TUTTI_EINVAL,
                   "tutti_comm_shrink: exclude is NULL or n_exclude negative");
    for (int i = 0; i < opts->n_exclude; i++) {
        const int r = opts->exclude[i];
        if (r >= 0 && r < (int)comm->n_ranks && r != own)
            continue;
        snprintf(text, sizeof(text),
                 r == own ? "tutti_comm_shrink: rank %d, which calls it, is in "
                            "exclude"
                          : "tutti_comm_shrink: there is no rank %d to leave "
                            "out",
                 r);
        return say(comm, TUTTI_EINVAL, text);
    }
    return TUTTI_OK;
}

static tutti_err check(tutti_comm *comm, const tutti_shrink_opts *given,
                       tutti_shrink_opts *opts, tutti_comm **out)
{
    tutti_diag diag;
    tutti_err err = tt_read_opts(given, opts, sizeof(*opts), &diag);
    if (err)
        return say(comm, err, diag.text);
    if (!out)
        return say(comm, TUTTI_EINVAL, "tutti_comm_shrink: out is NULL");
    if (opts->quorum < 0)
        return say(comm, TUTTI_EINVAL,
                   "tutti_comm_shrink: quorum is negative; 0 is the default");
    if (opts->quorum > (int)comm->n_ranks)
        return say(comm, TUTTI_EINVAL,
                   "tutti_comm_shrink: quorum is larger than the communicator");
    if (!(opts->timeout_s >= 0))
        return say(comm, TUTTI_EINVAL,
                   "tutti_comm_shrink: timeout_s is negative or no number; 0 "
                   "is the communicator's");
    err = check_exclude(comm, opts);
    return !err && opts->puts_out ? tt_expel_check(comm) : err;
}

tutti_err tutti_comm_shrink(tutti_comm *comm, const tutti_shrink_opts *given,
                            tutti_comm **out)
{
    tutti_shrink_opts opts;
    shrunk made = {.comm = NULL};
    tutti_err err = tt_comm_enter(comm);
    if (err)
        return err;
    err = check(comm, given, &opts, out);
    made.ranks = tt_new(&comm->mem, comm->n_ranks, sizeof(*made.ranks));
    if (!err && !made.ranks)
        err = say(comm, TUTTI_ENOMEM, "out of memory for a shrink");
    if (!err) {
        tt_ballot own = {.what = TT_ON_MEMBERS,
                         .quorum = quorum_of(comm, opts.quorum),
                         .timeout_ns = opts.timeout_s > 0
                                           ? tt_seconds_to_ns(opts.timeout_s)
                                           : comm->timeout_ns,
                         .exclude = opts.exclude,
                         .n_exclude = opts.n_exclude};
        err = shrink(comm, &own, opts.puts_out, &made);
    }
    for (uint32_t i = 0; !err && opts.old_ranks && i < made.comm->n_ranks; i++)
        opts.old_ranks[i] = (int)made.ranks[i];
    tt_free(&comm->mem, made.ranks, comm->n_ranks, sizeof(*made.ranks));
    if (!err)
        *out = made.comm;
    tt_comm_leave(comm);
    return err;
}
