/* SPDX-License-Identifier: BSD-3-Clause
 * cards.c - how a worker is connected to: its nets and its mesh, its card, and
 * those of the others.
 *
 * Idea       A worker has a mesh of its own in the process's engine, an open
 *            one: its ranks are the workers, more of which may come, and who is
 *            lost there may come again (engine.h). Its card says how others
 *            connect to it. The controller keeps the cards, and tells them to
 *            those who are to meet. So a worker is connected only to those that
 *            it has been in a group with.
 * Trust      A card comes from the controller, who had it from the worker: its
 *            sizes are checked here, its addresses by the nets.
 * Next       net/net.h, engine/mesh.c. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "partial/session.h"

/* Rows of a card. */
static const char *const rows[TT_CARD_NETS] = {"shm", "tcp"};
/* Calls that cost a member less do not wait for it. The same for all
 * workers. */
static const uint64_t eager_bytes = 16 << 10;
static const uint64_t dial_ns = 10 * TT_NS_PER_S;

/* ------------------------------------------------------------------ nets -- */

/* TUTTI_TRANSPORTS names it; where it names neither, by TCP. */
static bool is_allowed(const tt_worker *w, const char *name)
{
    const char *list = w->settings.transports;
    bool has_shm = strstr(list, "shm") != NULL;
    bool has_tcp = strstr(list, "tcp") != NULL;
    if (strcmp(list, "auto") == 0)
        return true;
    return strcmp(name, "shm") == 0 ? has_shm : has_tcp || !has_shm;
}

static void drop_nets(tt_worker *w)
{
    for (int i = 0; i < TT_CARD_NETS; i++) {
        tt_net_drop(w->nets[i]);
        w->nets[i] = NULL;
    }
}

static tutti_err open_net(tt_worker *w, int row, tutti_diag *diag)
{
    const tt_net as = {.ops = tt_transport_find(rows[row]),
                       .up = &tt_engine_up,
                       .mem = &w->mem,
                       .settings = &w->settings,
                       .regions = w->o.regions,
                       .trust = w->o.trust,
                       .id = w->process,
                       .rank = w->id,
                       .n_ranks = w->n,
                       .is_local = w->o.is_local,
                       .fd = -1};
    tt_net *net = w->nets[row] = tt_net_new(&as);
    return net ? net->ops->open(net, diag)
               : tt_fail(diag, TUTTI_ENOMEM, "out of memory for a worker");
}

static tutti_err make_mesh(tt_worker *w, tutti_diag *diag)
{
    tt_net *nets[TT_CARD_NETS];
    tt_mesh_opts o = {.rank = w->id,
                      .n_ranks = w->n > w->id ? w->n : w->id + 1,
                      .most_ranks = w->most,
                      .nets = nets,
                      .eager_bytes = eager_bytes,
                      .dial_ns = dial_ns};
    for (int i = 0; i < TT_CARD_NETS; i++)
        if (w->nets[i])
            nets[o.n_nets++] = w->nets[i];
    if (tt_mesh_create(w->o.engine, &w->mem, &o, &w->mesh))
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u workers",
                       o.n_ranks);
    return TUTTI_OK;
}

tutti_err tt_cards_open(tt_worker *w, tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    if (w->mesh)
        return err;
    for (int i = 0; i < TT_CARD_NETS && !err; i++)
        if (is_allowed(w, rows[i]))
            err = open_net(w, i, diag);
    if (!err)
        err = make_mesh(w, diag);
    if (err)
        drop_nets(w);
    return err;
}

/* ----------------------------------------------------------------- cards -- */

size_t tt_cards_write(const tt_worker *w, unsigned char bytes[TT_CARD_MOST])
{
    tt_card card = {.id = w->process, .max_payload = UINT32_MAX};
    size_t used = sizeof(card);
    for (int i = 0; i < TT_CARD_NETS; i++) {
        tt_net *net = w->nets[i];
        if (!net)
            continue;
        card.lens[i] = (uint16_t)net->ops->address(net, bytes + used,
                                                   TT_NET_ADDR_MAX);
        used += card.lens[i];
        const uint32_t most = tt_net_most_passed_on(net, w->n);
        if (most < card.max_payload)
            card.max_payload = most;
    }
    memcpy(bytes, &card, sizeof(card));
    return used;
}

tutti_err tt_cards_hear(tt_worker *w, const tt_talk *head,
                        const unsigned char *payload)
{
    tt_card card;
    tt_access accesses[TT_CARD_NETS];
    uint32_t n = 0;
    if (head->who >= w->most || head->who == w->id ||
        !tt_card_is_sound(payload, head->len))
        return TUTTI_EPROTO;
    memcpy(&card, payload, sizeof(card));
    const unsigned char *at = payload + sizeof(card);
    for (int i = 0; i < TT_CARD_NETS; i++) {
        if (w->nets[i] && card.lens[i] > 0)
            accesses[n++] = (tt_access){w->nets[i], at, card.lens[i]};
        at += card.lens[i];
    }
    tutti_err err = tt_mesh_seat(w->mesh, head->who, &card.id, accesses, n);
    return err == TUTTI_EPEER ? TUTTI_OK : err; /* its successor has called */
}
