/* SPDX-License-Identifier: BSD-3-Clause
 * expel.c - a shrink puts those out that it leaves behind: they do not come
 * back by what they have proved themselves by.
 *
 * Secrets    Rank 0 of those that are left makes a fresh secret, and it goes to
 *            the others over the connections that they have. Each takes it
 *            beside the old one, and says so in an agreement; then it alone
 *            counts. So at any time any two of them have one in common.
 * Certs      Each tells the others which certificates those that go have shown
 *            it, and refuses all of them. Whoever is left must have another
 *            one.
 * Both       The ranks that go are lost to the process from then on, so what
 *            stands of their connections says nothing any more.
 * Next       shrink.c (the agreements), link/trust.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "members/members.h"
#include "net/net.h"

/* Certificates of one rank that are told; it has one at a time. */
#define SHOWN 4

/* What a rank tells of the certificates that it knows; zeros: none. */
typedef struct known {
    tt_tls_print own;
    tt_tls_print shown[][SHOWN]; /* by each rank that goes */
} known;

static bool is_none(const tt_tls_print *p)
{
    static const tt_tls_print none;
    return memcmp(p, &none, sizeof(none)) == 0;
}

/* From rank r of comm on, the next one that is not in made; n_ranks: there is
 * none. ranks are in order. */
static uint32_t next_out(const tutti_comm *comm, const tutti_comm *made,
                         const uint32_t *ranks, uint32_t r)
{
    uint32_t at = 0;
    for (; r < comm->n_ranks; r++) {
        while (at < made->n_ranks && ranks[at] < r)
            at++;
        if (at == made->n_ranks || ranks[at] != r)
            break;
    }
    return r;
}

static tutti_err say(tutti_comm *comm, tutti_err err, const char *text)
{
    comm->says_own = true;
    return tt_comm_fail(comm, err, "%s", text);
}

/* Of a call on made. */
static tutti_err tell(tutti_comm *comm, const tutti_comm *made, tutti_err err)
{
    return err ? say(comm, err, tutti_comm_message(made)) : TUTTI_OK;
}

/* Before a call on made: the others are not to wait for this rank there. */
static tutti_err call_off(tutti_comm *comm, tutti_comm *made, tutti_err err,
                          const char *text)
{
    tutti_comm_abort(made, text);
    return say(comm, err, text);
}

tutti_err tt_expel_check(tutti_comm *comm)
{
    if (!comm->trust)
        return say(comm, TUTTI_ECONFIG,
                   "tutti_comm_shrink: puts_out needs a secret, or "
                   "certificates: without them nothing keeps anybody out "
                   "(docs/explanation/security.md)");
    if (tt_trust_is_plain(comm->trust) && tt_trust_secrets(comm->trust) > 0)
        return say(comm, TUTTI_ECONFIG,
                   "tutti_comm_shrink: with TUTTI_ENCRYPT=0 a fresh secret "
                   "cannot be told, so puts_out needs certificates");
    return TUTTI_OK;
}

/* --------------------------------------------------------------- secrets -- */

/* A pair that others can listen to. */
static bool is_heard(const tutti_comm *made)
{
    for (int r = 0; r < (int)made->n_ranks; r++)
        for (const tt_net_ops *const *t = tt_transports; *t; t++)
            if ((*t)->has_no_trust &&
                strcmp((*t)->name, tutti_comm_transport(made, r)) == 0)
                return true;
    return false;
}

static tutti_err take_secret(tutti_comm *comm, tutti_comm *made)
{
    uint8_t fresh[TT_TRUST_FRESH];
    tutti_err err = TUTTI_OK;
    if (is_heard(made))
        err = call_off(
            comm, made, TUTTI_ECONFIG,
            "tutti_comm_shrink: a fresh secret would go by ucx, in plain "
            "text");
    if (!err && made->rank == 0 && tt_random(fresh, sizeof(fresh), NULL))
        err = call_off(comm, made, TUTTI_ESYS,
                       "the system has no random bytes");
    if (!err)
        err = tell(comm, made,
                   tutti_broadcast(made, fresh, fresh, sizeof(fresh), TUTTI_U8,
                                   0, NULL, NULL));
    if (!err && !tt_trust_prepare(comm->trust, fresh))
        err = say(comm, TUTTI_ENOMEM, "out of memory for a secret");
    explicit_bzero(fresh, sizeof(fresh));
    return err;
}

/* ---------------------------------------------------------- certificates -- */

static size_t bytes_of(uint32_t n_out)
{
    return sizeof(known) + n_out * sizeof(tt_tls_print[SHOWN]);
}

static const known *known_at(const void *all, uint32_t rank, uint32_t n_out)
{
    return (const void *)((const char *)all + rank * bytes_of(n_out));
}

static void fill(const tutti_comm *comm, const tutti_comm *made,
                 const uint32_t *ranks, known *mine)
{
    uint32_t r = next_out(comm, made, ranks, 0);
    tt_trust_own(comm->trust, &mine->own);
    for (uint32_t i = 0; r < comm->n_ranks; i++) {
        uint32_t at = tt_team_member(comm->team, r);
        tt_link_id id;
        size_t n = 0;
        for (uint32_t a = 0; tt_mesh_id(comm->mesh, at, a, &id); a++)
            n += tt_trust_shown(comm->trust, &id, mine->shown[i] + n,
                                SHOWN - n);
        r = next_out(comm, made, ranks, r + 1);
    }
}

/* The rank of made that has shown this one, too; or TT_NONE. */
static uint32_t owner_of(const tutti_comm *made, const void *all,
                         uint32_t n_out, const tt_tls_print *p)
{
    for (uint32_t r = 0; r < made->n_ranks; r++)
        if (memcmp(&known_at(all, r, n_out)->own, p, sizeof(*p)) == 0)
            return r;
    return TT_NONE;
}

/* What all know of rank `rank` of comm, the i-th that goes; the same on all
 * ranks. */
typedef struct goer {
    uint32_t rank, i, n_out;
    const void *all;
} goer;

static tutti_err judge(tutti_comm *comm, const tutti_comm *made,
                       const uint32_t *ranks, const goer *g)
{
    char text[200];
    bool is_known = false;
    for (uint32_t at = 0; at < made->n_ranks * SHOWN; at++) {
        const tt_tls_print *p =
            &known_at(g->all, at / SHOWN, g->n_out)->shown[g->i][at % SHOWN];
        uint32_t also = is_none(p) ? TT_NONE
                                   : owner_of(made, g->all, g->n_out, p);
        is_known |= !is_none(p);
        if (also == TT_NONE)
            continue;
        snprintf(text, sizeof(text),
                 "tutti_comm_shrink: rank %" PRIu32
                 " cannot be put out: rank %" PRIu32
                 " has the same certificate",
                 g->rank, ranks[also]);
        return say(comm, TUTTI_ECONFIG, text);
    }
    if (is_known)
        return TUTTI_OK;
    snprintf(text, sizeof(text),
             "tutti_comm_shrink: rank %" PRIu32
             " cannot be put out: it has shown its certificate to nobody that "
             "is left; revoke it (TUTTI_TLS_CRL)",
             g->rank);
    return say(comm, TUTTI_ECONFIG, text);
}

/* "AB:CD:...", as `openssl x509 -fingerprint -sha256` prints it. */
static void report_print(uint32_t rank, const tt_tls_print *p)
{
    char text[3 * sizeof(p->bytes) + 1];
    for (size_t i = 0; i < sizeof(p->bytes); i++)
        snprintf(text + 3 * i, 4, "%02X:", p->bytes[i]);
    text[3 * sizeof(p->bytes) - 1] = '\0';
    TT_INFO("rank %u is put out, with its certificate of the SHA-256 "
            "fingerprint %s; to make that last, revoke it (TUTTI_TLS_CRL)",
            rank, text);
}

static tutti_err refuse(tutti_comm *comm, const tutti_comm *made, const goer *g)
{
    for (uint32_t at = 0; at < made->n_ranks * SHOWN; at++) {
        const tt_tls_print *p =
            &known_at(g->all, at / SHOWN, g->n_out)->shown[g->i][at % SHOWN];
        if (is_none(p) || tt_trust_refuses(comm->trust, p))
            continue;
        if (!tt_trust_refuse(comm->trust, p))
            return say(comm, TUTTI_ENOMEM, "out of memory for certificates");
        report_print(g->rank, p);
    }
    return TUTTI_OK;
}

/* Nothing is refused before all have come to the same end. */
static tutti_err refuse_certs(tutti_comm *comm, tutti_comm *made,
                              const uint32_t *ranks)
{
    goer g = {.n_out = comm->n_ranks - made->n_ranks};
    const size_t n = bytes_of(g.n_out);
    known *mine = tt_new(&comm->mem, 1, n);
    void *all = tt_new(&comm->mem, made->n_ranks, n);
    tutti_err err = TUTTI_OK;
    if (!mine || !all)
        err = call_off(comm, made, TUTTI_ENOMEM,
                       "out of memory for certificates");
    g.all = all;
    if (!err) {
        fill(comm, made, ranks, mine);
        err = tell(comm, made,
                   tutti_all_gather(made, mine, all, n, TUTTI_U8, NULL, NULL));
    }
    for (int pass = 0; pass < 2; pass++) {
        g.rank = next_out(comm, made, ranks, 0);
        for (g.i = 0; !err && g.i < g.n_out; g.i++) {
            err = pass == 0 ? judge(comm, made, ranks, &g)
                            : refuse(comm, made, &g);
            g.rank = next_out(comm, made, ranks, g.rank + 1);
        }
    }
    tt_free(&comm->mem, mine, 1, n);
    tt_free(&comm->mem, all, made->n_ranks, n);
    return err;
}

/* ------------------------------------------------------------------ both -- */

tutti_err tt_expel_prepare(tutti_comm *comm, tutti_comm *made,
                           const uint32_t *ranks)
{
    return tt_trust_secrets(comm->trust) > 0 ? take_secret(comm, made)
                                             : refuse_certs(comm, made, ranks);
}

void tt_expel_finish(tutti_comm *comm, const tutti_comm *made,
                     const uint32_t *ranks)
{
    uint32_t r = next_out(comm, made, ranks, 0);
    if (tt_trust_renew(comm->trust))
        TT_INFO("%u ranks have a fresh secret; it counts in place of all that "
                "were known",
                made->n_ranks);
    for (; r < comm->n_ranks; r = next_out(comm, made, ranks, r + 1))
        tt_mesh_put_out(comm->mesh, tt_team_member(comm->team, r));
}
