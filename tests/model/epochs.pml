/* SPDX-License-Identifier: BSD-3-Clause
 * epochs.pml - calls, losses, revocations and shrinks: no two ranks that go on
 * together end the same call in different epochs, and every survivor ends.
 *
 * A rank performs calls 0 .. CALLS - 1 on a communicator; each ends when every
 * member's contribution has come. Where that cannot be, since a member is lost,
 * or somebody has revoked it, the communicator fails, and who has failed tells
 * the others. All that are left agree who they are, and go on as the next epoch:
 * first they learn from each other which call was the last that somebody has
 * ended (the program's catch_up() in failures.md), then they do the rest.
 *
 * Messages   are bits: to whom a rank has sent what. They come when the receiver
 *            looks, however late. Each belongs to an epoch, as every message of
 *            the library carries its communicator's id.
 * Agreement  is one step here: some member decides, when all that are not lost
 *            have come, or without one that is late. tests/prop/agree_test.c
 *            shows of the real machine that nobody decides differently.
 * Faults     are FAULTS: a rank dies, revokes, or is late for an agreement, at
 *            any time.
 * Mutants    which must be found wrong: UNTAGGED, messages do not belong to an
 *            epoch; NO_CATCH_UP; DEAF, who fails tells nobody.
 * Ends       no step can be taken back, so there is no endless run; and a rank
 *            that waits for ever is an invalid end state. */
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define N 3
#define EPOCHS (2 + 2 * FAULTS)
#define NOBODY 128 /* as members: no quorum, everybody ends */

#define HAS(set, r) (((set) >> (r)) & 1)
#define SIZE(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2))
#ifdef UNTAGGED
#define TAG(e) 0
#else
#define TAG(e) (e)
#endif
/* Call CALLS of an epoch is the first one: what each has ended before. */
#define SENT(c, r) sent[(TAG(e) * CALLS + (c)) * N + (r)]
/* Who dies has told one of the others, perhaps. */
#define NEXT(i) ((me + i) % N)
#define NEWS(r) news[e * N + (r)]
#define ENDED(r, c) ended[(r) * CALLS + (c)]

byte faults = FAULTS;
byte dead, gone;      /* sets of ranks: bit r is rank r; gone: at the end */
byte members[EPOCHS]; /* 0: not decided yet */
byte failed[EPOCHS], here[EPOCHS]; /* here: have come to the agreement */
byte sent[EPOCHS * CALLS * N];     /* to whom */
byte made[CALLS * N];              /* 1 + the epoch of the last one */
byte news[EPOCHS * N], at_call[EPOCHS * N];
byte ended[N * CALLS]; /* 1 + the epoch; 0: it has not */
byte epoch[N];

#define IN(r) HAS(members[e], r)
#define CAME(c, q) (!IN(q) || HAS(SENT(c, q), me))
#define ALL_CAME(c) (CAME(c, 0) && CAME(c, 1) && CAME(c, 2))
#define TOLD(q) (!IN(q) || HAS(NEWS(q), me))
#define ALL_TOLD (TOLD(0) && TOLD(1) && TOLD(2))
#define IS_LOST (members[e] & dead)
#ifdef DEAF
#define FAILS (IS_LOST || HAS(failed[e], me))
#else
#define FAILS (IS_LOST || failed[e])
#endif
#define SETTLED ((members[e] & ~(here[e] | dead | gone)) == 0)

/* Who has begun goes on, if that is more than half. */
inline decide(set)
{
    members[e + 1] = (SIZE(set) * 2 > SIZE(members[e]) -> (set) : NOBODY)
}

/* Whoever is in this epoch has ended the same calls in the same ones. */
inline check()
{
    d_step {
        for (q : 0 .. N - 1) {
            for (i : 0 .. CALLS - 1) {
                assert(!IN(q) || epoch[q] != e || ENDED(q, i) == 0 ||
                       ENDED(me, i) == 0 || ENDED(q, i) == ENDED(me, i))
            }
        }
        i = 0;
        q = 0
    }
}

proctype rank(byte me)
{
    byte e, k, q, i;
    {
    calls:
        do
        :: k == CALLS -> goto over
        :: else ->
            d_step {
                made[k * N + me] = 1 + e;
                SENT(k, me) = SENT(k, me) | 1 << me | 1 << NEXT(1)
            }
            SENT(k, me) = SENT(k, me) | 1 << NEXT(2);
            if
            :: ALL_CAME(k) ->
                d_step {
                    for (q : 0 .. N - 1) { /* of this epoch, all of them */
                        assert(!IN(q) || made[k * N + q] >= 1 + e)
                    }
                    q = 0;
                    ENDED(me, k) = 1 + e;
                    k++
                };
                check()
            :: FAILS -> goto shrink
            fi
        od;
    shrink:
        atomic {
            failed[e] = failed[e] | 1 << me;
            here[e] = here[e] | 1 << me
        }
        if
        :: members[e + 1] -> skip
        :: atomic { !members[e + 1] && SETTLED -> decide(members[e] & here[e]) }
        :: atomic { !members[e + 1] && SETTLED ->
                    decide(members[e] & here[e] & ~dead) }
        :: atomic { !members[e + 1] && !SETTLED && faults ->
                    faults--; decide(members[e] & here[e]) }
        fi;
        d_step {
            e++;
            epoch[me] = e;
            assert(e < EPOCHS - 1)
        };
        if
        :: IN(me) -> skip
        :: else -> goto over /* the others go on without it, or nobody does */
        fi;
        d_step {
            at_call[e * N + me] = k;
            NEWS(me) = 1 << me | 1 << NEXT(1)
        }
        NEWS(me) = NEWS(me) | 1 << NEXT(2);
        if
        :: ALL_TOLD -> skip
        :: FAILS -> goto shrink
        fi;
#ifndef NO_CATCH_UP
        atomic {
            for (q : 0 .. N - 1) {
                if
                :: IN(q) && at_call[e * N + q] > k ->
                    ENDED(me, k) = ENDED(q, k);
                    k++
                :: else -> skip
                fi
            };
            q = 0
        };
#endif
        check();
        goto calls;
    over:
        gone = gone | 1 << me
    } unless { HAS(dead, me) }
}

/* A rank dies, or revokes. */
proctype fate()
{
    byte r;
    do
    :: atomic { faults ->
                faults--;
                select(r : 0 .. N - 1);
                if
                :: dead = dead | 1 << r
                :: !HAS(gone, r) -> failed[epoch[r]] = failed[epoch[r]] | 1 << r
                fi }
    :: break
    od
}

init
{
    atomic {
        members[0] = (1 << N) - 1;
        run rank(0);
        run rank(1);
        run rank(2);
        run fate()
    }
}
