/* SPDX-License-Identifier: BSD-3-Clause
 * prints.c - newcomers compare what they have with a member of their first
 * group, which had it before: what the controller carries between them.
 *
 * Idea       Who had the model (the first member that counts) hashes its
 *            buffers when the group is over, says so, and goes on. The
 *            controller passes that on to the group's newcomers, which wait for
 *            it; and tells them when it will not come, since that member is
 *            gone or has announced its next step.
 * Next       worker.c (the other end), workers/newcomer.c (what is
 *            compared). */
#include <string.h>

#include "partial/control.h"

void tt_prints_expect(tt_guest *g, uint64_t group, const void *seats,
                      uint32_t n)
{
    tt_seat seat;
    g->source = TT_NONE;
    g->compares = 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&seat, (const char *)seats + i * sizeof(seat), sizeof(seat));
        if (seat.worker == g->worker && seat.weight <= 0)
            g->compares = group;
        if (g->source == TT_NONE && seat.weight > 0)
            g->source = seat.worker;
    }
}

static void pass_on(tt_controller *c, const tt_talk *head, const void *payload)
{
    for (tt_guest *g = c->guests; g; g = g->next) {
        if (g->compares == 0 || g->source != head->who ||
            (head->number && g->compares != head->number))
            continue;
        tt_talk now = *head;
        now.number = g->compares;
        g->compares = 0;
        tt_control_put(c, g, &now, payload);
    }
}

bool tt_prints_hear(tt_controller *c, tt_guest *g, const tt_talk *head,
                    const unsigned char *payload)
{
    tt_talk told = tt_talk_head(TT_TALK_PRINTS, head->number, head->len);
    if (head->number == 0 || head->len % sizeof(tt_print) != 0)
        return false;
    told.who = g->worker;
    pass_on(c, &told, payload);
    return true;
}

void tt_prints_end(tt_controller *c, uint32_t worker)
{
    tt_talk none = tt_talk_head(TT_TALK_PRINTS, 0, 0);
    none.who = worker;
    none.flags = TT_TALK_NONE;
    pass_on(c, &none, NULL);
}
