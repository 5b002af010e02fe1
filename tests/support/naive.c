/* SPDX-License-Identifier: BSD-3-Clause
 * naive.c - see naive.h.
 *
 * Every rank's contribution to every chunk is a pair of random 64-bit
 * integers; sums wrap around. Random, because with contributions that are
 * linear in the rank "rank 2 three times, ranks 1 and 3 never" gives the right
 * number. The outcome is judged by the integers alone. Beside its sum a value
 * carries how often each contribution is in it: a sum that was spoilt by a
 * doubled contribution, and then overwritten, leaves no trace in the outcome,
 * but rule 3 forbids it all the same.
 *
 * All chunks go forward together, step by step: first every message of the
 * step is filled, then every message is delivered. */
#include "support/naive.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

typedef struct value {
    uint64_t sum[2];
    bool is_defined;
    /* The last step (+ 1) that wrote it, and how. */
    uint32_t written;
    uint8_t op;
} value;

typedef struct machine {
    const tutti_schedule *s;
    uint64_t (*inputs)[2]; /* of (rank, chunk) */
    value *values;         /* of (rank, chunk) */
    uint16_t *times;       /* n_ranks for each value */
    value *messages;       /* n_transfers */
    uint16_t *message_times;
    const char *why;
} machine;

static size_t cell(const machine *m, uint32_t rank, uint64_t chunk)
{
    return (size_t)(rank * m->s->n_chunks + chunk);
}

/* ------------------------------------------- the table, in its own words -- */

static bool starts_with_own(const tutti_schedule *s, uint32_t rank,
                            uint32_t block)
{
    if (s->collective == TUTTI_ALL_GATHER || s->collective == TUTTI_GATHER)
        return block == rank;
    if (s->collective == TUTTI_BROADCAST || s->collective == TUTTI_SCATTER)
        return rank == s->root;
    if (s->collective == TUTTI_ALL_TO_ALL)
        return block >= rank * s->n_ranks && block < (rank + 1) * s->n_ranks;
    return true;
}

static bool must_end_with(const tutti_schedule *s, uint32_t rank,
                          uint32_t block)
{
    switch (s->collective) {
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
        return rank == s->root;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_SCATTER:
        return rank == block;
    case TUTTI_ALL_TO_ALL:
        return block % s->n_ranks == rank;
    default:
        return true;
    }
}

/* Does the right result of a block contain the contribution of `from`? */
static bool is_in_result(const tutti_schedule *s, uint32_t block, uint32_t from)
{
    switch (s->collective) {
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
        return from == s->root;
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return from == block;
    case TUTTI_ALL_TO_ALL:
        return from == block / s->n_ranks;
    default:
        return true;
    }
}

/* ------------------------------------------------------------ execution -- */

static void fill_inputs(machine *m, uint64_t seed)
{
    tt_rng rng = {seed};
    for (uint32_t r = 0; r < m->s->n_ranks; r++) {
        for (uint64_t c = 0; c < m->s->n_chunks; c++) {
            size_t at = cell(m, r, c);
            m->inputs[at][0] = tt_rng_next(&rng);
            m->inputs[at][1] = tt_rng_next(&rng);
            if (!starts_with_own(m->s, r, m->s->chunks[c].block))
                continue;
            m->values[at].is_defined = true;
            memcpy(m->values[at].sum, m->inputs[at], sizeof(m->inputs[at]));
            m->times[at * m->s->n_ranks + r] = 1;
        }
    }
}

static void send(machine *m, size_t i)
{
    const tt_transfer *t = &m->s->transfers[i];
    size_t n = m->s->n_ranks, from = cell(m, t->src, t->chunk);
    m->messages[i] = m->values[from];
    memcpy(m->message_times + i * n, m->times + from * n,
           n * sizeof(*m->times));
    if (!m->values[from].is_defined)
        m->why = "sends an undefined value";
}

static void receive(machine *m, size_t i)
{
    const tt_transfer *t = &m->s->transfers[i];
    const value *message = &m->messages[i];
    size_t n = m->s->n_ranks, to = cell(m, t->dst, t->chunk);
    value *own = &m->values[to];
    if (own->written == t->step + 1 &&
        (own->op == TT_XFER_COPY || t->op == TT_XFER_COPY))
        m->why = "a copy is not the only input of its step";
    if (t->op == TT_XFER_REDUCE && !own->is_defined)
        m->why = "reduces into an undefined value";
    bool adds = t->op == TT_XFER_REDUCE;
    for (int k = 0; k < 2; k++)
        own->sum[k] = (adds ? own->sum[k] : 0) + message->sum[k];
    for (size_t r = 0; r < n; r++) {
        uint16_t *times = &m->times[to * n + r];
        *times = (uint16_t)((adds ? *times : 0) + m->message_times[i * n + r]);
        if (*times > 1)
            m->why = "a contribution is doubled";
    }
    own->is_defined = true;
    own->written = t->step + 1;
    own->op = t->op;
}

static void perform(machine *m)
{
    size_t n = (size_t)m->s->n_transfers;
    for (size_t i = 0; i < n && !m->why;) {
        size_t end = i;
        while (end < n && m->s->transfers[end].step == m->s->transfers[i].step)
            end++;
        for (size_t k = i; k < end; k++)
            send(m, k);
        for (; i < end && !m->why; i++)
            receive(m, i);
    }
}

static void judge(machine *m)
{
    for (uint64_t c = 0; c < m->s->n_chunks; c++) {
        uint32_t block = m->s->chunks[c].block;
        uint64_t right[2] = {0, 0};
        for (uint32_t r = 0; r < m->s->n_ranks; r++) {
            if (!is_in_result(m->s, block, r))
                continue;
            right[0] += m->inputs[cell(m, r, c)][0];
            right[1] += m->inputs[cell(m, r, c)][1];
        }
        for (uint32_t r = 0; r < m->s->n_ranks; r++) {
            const value *v = &m->values[cell(m, r, c)];
            if (!must_end_with(m->s, r, block))
                continue;
            if (!v->is_defined || v->sum[0] != right[0] ||
                v->sum[1] != right[1])
                m->why = "a rank ends with a wrong value";
        }
    }
}

bool tt_naive_is_right(const tutti_schedule *s, uint64_t seed, const char **why)
{
    size_t cells = (size_t)(s->n_ranks * s->n_chunks);
    size_t n = (size_t)s->n_transfers;
    machine m = {
        .s = s,
        .inputs = calloc(cells, sizeof(*m.inputs)),
        .values = calloc(cells, sizeof(*m.values)),
        .times = calloc(cells * s->n_ranks, sizeof(*m.times)),
        .messages = calloc(n + 1, sizeof(*m.messages)),
        .message_times = calloc(n * s->n_ranks + 1, sizeof(*m.times)),
        .why = "no memory",
    };
    if (m.inputs && m.values && m.times && m.messages && m.message_times) {
        m.why = NULL;
        fill_inputs(&m, seed);
        perform(&m);
        if (!m.why)
            judge(&m);
    }
    free(m.inputs);
    free(m.values);
    free(m.times);
    free(m.messages);
    free(m.message_times);
    *why = m.why;
    return m.why == NULL;
}
