/* SPDX-License-Identifier: BSD-3-Clause
 * likeness.c - a newcomer that has got the others' model compares it with a
 * member of the group that it got it from: the first that counts, which tells
 * what it has by the controller (prints.c), and goes on. Next:
 * workers/newcomer.c. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "partial/session.h"

/* The first that counts; TT_NONE: nobody does more than others. */
static uint32_t find_source(const tt_crew *c)
{
    uint32_t first = TT_NONE;
    bool has_newcomers = false;
    for (uint32_t i = 0; i < c->n; i++) {
        has_newcomers = has_newcomers || c->members[i].weight <= 0;
        if (first == TT_NONE && c->members[i].weight > 0)
            first = c->workers[i];
    }
    return has_newcomers ? first : TT_NONE;
}

tutti_err tt_worker_compares(tt_worker *w, tt_worker_compared *out)
{
    tutti_err err = TUTTI_OK;
    pthread_mutex_lock(&w->lock);
    const tt_crew *c = &w->crew;
    *out = (tt_worker_compared){.worker = w->id, .source = TT_NONE};
    if (w->err)
        err = w->err;
    else if (!w->prints.may)
        err = tt_worker_refuse(w, TUTTI_EINVAL,
                               "there is nothing to compare: commit a group "
                               "first, and compare before the next "
                               "announcement");
    else
        out->source = find_source(c);
    out->gives = out->source == w->id;
    out->compares = out->source != TT_NONE && c->members[c->me].weight <= 0;
    pthread_mutex_unlock(&w->lock);
    return err;
}

void tt_worker_give_prints(tt_worker *w, const tt_print *prints, size_t n)
{
    pthread_mutex_lock(&w->lock);
    tt_talk head = tt_talk_head(TT_TALK_PRINTS, w->crew.id,
                                n * sizeof(*prints));
    if (!w->err && w->prints.may)
        tt_visit_say(w, &head, prints);
    pthread_mutex_unlock(&w->lock);
}

static void end(tt_worker *w, tutti_err err)
{
    tt_worker_done done = w->prints.done;
    w->prints.done = NULL;
    tt_worker_end(w, done, w->prints.arg, err);
}

static tutti_err fail(tt_worker *w, tutti_err err)
{
    tt_worker_note(w, "worker %u cannot compare what it has: worker %u %s",
                   w->id, find_source(&w->crew),
                   err == TUTTI_ETIMEOUT ? "has not told what it has in time"
                                         : "is gone, or does not compare");
    return err;
}

tutti_err tt_worker_await_prints(tt_worker *w, tt_worker_done done, void *arg)
{
    tutti_err err = TUTTI_OK;
    pthread_mutex_lock(&w->lock);
    tt_prints *p = &w->prints;
    if (!w->err && p->is_none)
        err = fail(w, TUTTI_EPEER);
    else
        err = w->err;
    if (!err) {
        p->done = done;
        p->arg = arg;
        p->waits = tt_patience_begin(w->settings.patience_ns, tt_now_ns());
    }
    if (!err && p->is_there)
        end(w, TUTTI_OK);
    if (!err)
        tt_worker_wake(w); /* it looks at the time from now on */
    pthread_mutex_unlock(&w->lock);
    return err;
}

const tt_print *tt_worker_prints(tt_worker *w, size_t *n)
{
    pthread_mutex_lock(&w->lock);
    *n = w->prints.n;
    const tt_print *all = w->prints.all;
    pthread_mutex_unlock(&w->lock);
    return all;
}

/* ----------------------------------------------------------- [locked] -- */

void tt_compare_begin(tt_worker *w)
{
    tt_prints *p = &w->prints;
    *p = (tt_prints){.all = p->all, .cap = p->cap};
}

tutti_err tt_compare_hear(tt_worker *w, const tt_talk *head,
                          const unsigned char *payload)
{
    tt_prints *p = &w->prints;
    if (head->len % sizeof(tt_print) != 0 || head->len > TT_PRINTS_MOST)
        return TUTTI_EPROTO;
    if (head->number != w->crew.id || w->phase == TT_PHASE_ANNOUNCED ||
        p->is_there)
        return TUTTI_OK; /* nobody waits for it */
    p->n = head->len / sizeof(tt_print);
    if ((head->flags & TT_TALK_NONE) ||
        tt_grow(&w->mem, (void **)(void *)&p->all, &p->cap, p->n,
                sizeof(*p->all))) {
        tt_compare_drop(w, TUTTI_EPEER);
        return TUTTI_OK;
    }
    if (p->n > 0)
        memcpy(p->all, payload, head->len);
    p->is_there = true;
    if (p->done)
        end(w, TUTTI_OK);
    return TUTTI_OK;
}

void tt_compare_drop(tt_worker *w, tutti_err err)
{
    tt_prints *p = &w->prints;
    if (p->is_there)
        return;
    p->is_none = true;
    if (!p->done)
        return;
    if (!w->err)
        fail(w, err);
    end(w, err);
}

void tt_compare_check(tt_worker *w, uint64_t now)
{
    tt_prints *p = &w->prints;
    if (!p->done)
        return;
    if (now - p->waits.since_ns >= w->o.timeout_ns)
        tt_compare_drop(w, TUTTI_ETIMEOUT);
    else if (tt_patience_is_over(&p->waits, now))
        TT_WARN("worker %u: waiting %.4g s for worker %u, to compare what it "
                "has joined with",
                w->id, tt_patience_say(&p->waits), find_source(&w->crew));
}

void tt_compare_fini(tt_worker *w)
{
    tt_free(&w->mem, w->prints.all, w->prints.cap, sizeof(*w->prints.all));
}
