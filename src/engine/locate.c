/* SPDX-License-Identifier: BSD-3-Clause
 * locate.c - where a rank is: its card, asked for when it is first dialled.
 *
 * Idea       From the start a rank has the cards of its neighbours in the control
 *            graph. For another one it asks (LOCATE): the question goes from rank
 *            to rank, each time to the one that is nearest to the one in question
 *            on the ring, so in at most log n steps it comes to one that has the
 *            card, the rank's own neighbour at the latest. The answer (CARD, in
 *            parts) goes back straight, or the way that the question came.
 * Lost       A question ends nowhere where a rank on its way dies, is stopped, or
 *            knows nobody who is nearer. So after a while it is asked again, by
 *            way of all who are connected (each tells it on once), until the time
 *            of the dial is over. Who has died is told of by its neighbours.
 * Fresh      Only the rank itself answers: for a card that may have changed.
 * Back       Who tells a question on had it before the next one. So if each keeps
 *            from whom the latest question of a rank came, that leads to the
 *            rank, and never in a circle.
 * Trust      Lengths are checked here, addresses by the nets that dial them.
 * Next       mesh.c. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"

/* In LOCATE's channel. */
enum { TO_ALL = 1, FRESH = 2 };

/* Ranks on the way may have no processor for long; where nobody is connected yet
 * somebody soon will be. */
static const uint64_t again_ns = TT_NS_PER_S;
static const uint64_t soon_ns = 10 * TT_NS_PER_MS;
static const char no_sense[] = "it sent a message that makes no sense";

/* ----------------------------------------------------------------- cards -- */

/* Of a card: an address, whose bytes follow. */
typedef struct entry {
    uint8_t net, none;
    uint16_t len; /* 0: the end */
} entry;

size_t tt_mesh_card_add(unsigned char *card, size_t used, tt_net *net)
{
    entry e = {.net = net->number};
    e.len = (uint16_t)net->ops->address(net, card + used + sizeof(e));
    memcpy(card + used, &e, sizeof(e));
    return used + sizeof(e) + e.len;
}

/* The entry at *at, which then leads to the next one; false: there is none. */
static bool next_entry(const unsigned char *card, size_t bytes, size_t *at,
                       entry *out)
{
    if (bytes - *at < sizeof(*out))
        return false;
    memcpy(out, card + *at, sizeof(*out));
    if (out->len == 0 || out->len > bytes - *at - sizeof(*out))
        return false;
    *at += sizeof(*out) + out->len;
    return true;
}

const void *tt_locate_address(const tt_peer *peer, const tt_net *net,
                              size_t *len)
{
    const tt_peer *whose = &peer->mesh->peers[peer->rank];
    entry e = {.len = 0};
    for (size_t at = 0; next_entry(whose->seat, whose->seat_bytes, &at, &e);) {
        if (e.net != net->number)
            continue;
        *len = e.len;
        return whose->seat + at - e.len;
    }
    return NULL;
}

/* Takes the card's memory, of so many bytes. */
static void take_card(tt_peer *whose, unsigned char *card, size_t bytes)
{
    tt_free(whose->mesh->mem, whose->seat, whose->seat_bytes, 1);
    whose->seat = card;
    whose->seat_bytes = bytes;
}

tutti_err tt_mesh_card(tt_mesh *mesh, uint32_t rank, const void *card,
                       size_t bytes)
{
    entry e;
    size_t used = 0;
    if (mesh->is_open || rank >= mesh->n_ranks || bytes > TT_MESH_CARD_MAX)
        return TUTTI_EINVAL;
    while (next_entry(card, bytes, &used, &e))
        ; /* what is behind the last one is nobody's */
    if (used == 0)
        return TUTTI_EPROTO;
    unsigned char *own = tt_new(mesh->mem, used, 1);
    if (!own)
        return TUTTI_ENOMEM;
    memcpy(own, card, used);
    tt_engine_lock(mesh->engine);
    take_card(&mesh->peers[rank], own, used);
    tt_engine_unlock(mesh->engine);
    return TUTTI_OK;
}

/* ---------------------------------------------------------------- asking -- */

static uint32_t distance(const tt_mesh *mesh, uint32_t a, uint32_t b)
{
    uint32_t there = (b + mesh->n_ranks - a) % mesh->n_ranks;
    return there < mesh->n_ranks - there ? there : mesh->n_ranks - there;
}

/* Of those that are connected, and nearer to it than this rank; NULL: nobody. */
static tt_peer *nearest(tt_mesh *mesh, uint32_t rank)
{
    tt_peer *best = NULL;
    uint32_t least = distance(mesh, mesh->rank, rank);
    for (uint32_t r = 0; r < mesh->n_ranks; r++) {
        tt_peer *peer = &mesh->peers[r];
        if (!tt_peer_hears(peer) || distance(mesh, r, rank) >= least)
            continue;
        least = distance(mesh, r, rank);
        best = peer;
    }
    return best;
}

static void ask(tt_peer *whose, uint64_t flags, uint64_t now_ns)
{
    tt_mesh *mesh = whose->mesh;
    tt_search *search = whose->search;
    tt_msg m = {.magic = TT_MSG_MAGIC,
                .kind = TT_KIND_LOCATE,
                .seq = ++mesh->n_asks,
                .channel = flags | (search->is_fresh ? FRESH : 0),
                .lane = whose->rank,
                .slice = mesh->rank};
    tt_peer *next = flags & TO_ALL ? NULL : nearest(mesh, whose->rank);
    TT_DEBUG("where is rank %u?", whose->rank);
    search->again_ns = now_ns + again_ns;
    if (next) {
        tt_peer_tell(next, &m, NULL);
        return;
    }
    m.channel |= TO_ALL;
    if (!tt_mesh_tell_on(mesh, &m, NULL))
        search->again_ns = now_ns + soon_ns;
}

void tt_locate(tt_peer *peer, bool is_fresh, uint64_t until_ns)
{
    tt_mesh *mesh = peer->mesh;
    tt_peer *whose = &mesh->peers[peer->rank];
    peer->is_sought = true;
    if (whose->search)
        return;
    whose->search = tt_new(mesh->mem, 1, sizeof(*whose->search));
    if (!whose->search) {
        peer->is_sought = false;
        tt_peer_miss(peer, TUTTI_ENOMEM, "out of memory for a connection");
        return;
    }
    *whose->search = (tt_search){
        .first = mesh->n_asks + 1, .until_ns = until_ns, .is_fresh = is_fresh};
    mesh->n_asking++;
    ask(whose, 0, tt_now_ns());
}

void tt_locate_end(tt_peer *whose)
{
    tt_search *search = whose->search;
    if (!search)
        return;
    whose->mesh->n_asking--;
    tt_free(whose->mesh->mem, search->bytes, search->total, 1);
    tt_free(whose->mesh->mem, search, 1, sizeof(*search));
    whose->search = NULL;
}

/* The ports that wait for the card are missed. */
static void fail(tt_peer *whose, tutti_err err, const char *what)
{
    char text[120];
    snprintf(text, sizeof(text), "rank %u cannot reach rank %u: %s",
             whose->mesh->rank, whose->rank, what);
    tt_locate_end(whose);
    for (tt_peer *p = whose; p; p = p->next_port) {
        if (p->is_sought && !tt_peer_is_linked(p))
            tt_peer_miss(p, err, text);
        p->is_sought = false;
    }
}

void tt_locate_expire(tt_peer *whose, uint64_t now_ns)
{
    const tt_search *search = whose->search;
    if (!search)
        return;
    if (whose->is_lost)
        tt_locate_end(whose);
    else if (now_ns > search->until_ns)
        fail(whose, TUTTI_ENET, "nobody has told where it is");
    else if (now_ns > search->again_ns)
        ask(whose, TO_ALL, now_ns);
}

/* ------------------------------------------------------------- answering -- */

static bool makes_sense(const tt_mesh *mesh, const tt_msg *m)
{
    uint64_t total = m->channel >> 32, at = m->channel & UINT32_MAX;
    if (mesh->is_open || m->lane >= mesh->n_ranks || m->slice >= mesh->n_ranks)
        return false;
    return m->kind != TT_KIND_CARD ||
           (total <= TT_MESH_CARD_MAX && at + m->len <= total);
}

/* The next one on the way to who has asked; NULL: it is not known any more. */
static tt_peer *way_back(tt_mesh *mesh, uint32_t rank)
{
    tt_peer *who = &mesh->peers[rank];
    tt_peer *next = tt_peer_hears(who) ? who : who->back;
    return next && tt_peer_hears(next) ? next : NULL;
}

static void answer(const tt_peer *whose, const tt_msg *question)
{
    tt_mesh *mesh = whose->mesh;
    tt_peer *to = way_back(mesh, question->slice);
    tt_msg m = *question;
    m.kind = TT_KIND_CARD;
    for (size_t at = 0; to && at < whose->seat_bytes; at += m.len) {
        size_t rest = whose->seat_bytes - at;
        m.len = (uint32_t)(rest < TT_NET_INLINE ? rest : TT_NET_INLINE);
        m.channel = (uint64_t)whose->seat_bytes << 32 | at;
        tt_peer_tell(to, &m, whose->seat + at);
    }
}

void tt_locate_asked(tt_peer *from, const tt_msg *m)
{
    tt_mesh *mesh = from->mesh;
    if (!makes_sense(mesh, m)) {
        tt_peer_gone(from, TUTTI_EPROTO, no_sense);
        return;
    }
    tt_peer *who = &mesh->peers[m->slice], *whose = &mesh->peers[m->lane];
    bool is_to_all = m->channel & TO_ALL;
    if (m->slice == mesh->rank || (is_to_all && m->seq <= who->asks))
        return; /* it has come round */
    if (is_to_all)
        who->asks = m->seq;
    who->back = from;
    bool may_answer = m->lane == mesh->rank || !(m->channel & FRESH);
    tt_peer *next = is_to_all ? NULL : nearest(mesh, m->lane);
    if (may_answer && whose->seat)
        answer(whose, m);
    else if (is_to_all)
        tt_mesh_tell_on(mesh, m, from);
    else if (next)
        tt_peer_tell(next, m, NULL);
}

/* All of it has come. */
static void finish(tt_peer *whose)
{
    tt_search *search = whose->search;
    take_card(whose, search->bytes, search->total);
    search->bytes = NULL;
    tt_locate_end(whose);
    for (tt_peer *p = whose; p; p = p->next_port) {
        bool is_sought = p->is_sought;
        p->is_sought = false;
        if (is_sought)
            tt_peer_dial(p);
    }
}

/* Several may answer: of equal parts the first one is taken. */
static void take_part(tt_peer *whose, const tt_msg *m, const void *data)
{
    tt_search *search = whose->search;
    size_t total = (size_t)(m->channel >> 32);
    if (!search || m->seq < search->first ||
        (m->channel & UINT32_MAX) != search->used ||
        (search->bytes && total != search->total))
        return;
    if (!search->bytes) {
        search->bytes = tt_new(whose->mesh->mem, total, 1);
        search->total = search->bytes ? total : 0;
    }
    if (!search->bytes) {
        fail(whose, TUTTI_ENOMEM, "out of memory for a connection");
        return;
    }
    memcpy(search->bytes + search->used, data, m->len);
    search->used += m->len;
    if (search->used == search->total)
        finish(whose);
}

void tt_locate_told(tt_peer *from, const tt_msg *m, const void *data)
{
    tt_mesh *mesh = from->mesh;
    if (!makes_sense(mesh, m)) {
        tt_peer_gone(from, TUTTI_EPROTO, no_sense);
        return;
    }
    if (m->slice == mesh->rank) {
        take_part(&mesh->peers[m->lane], m, data);
        return;
    }
    tt_peer *next = way_back(mesh, m->slice);
    if (next && next != from)
        tt_peer_tell(next, m, data);
}
