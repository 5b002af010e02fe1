/* SPDX-License-Identifier: BSD-3-Clause
 * compare.c - what should be the same on all ranks: is it?
 *
 * Each rank hashes its buffers, and one hash of these hashes goes to all; that
 * is all when nothing differs. Else the hashes follow, block by block, until
 * the first that differs. All see the same, so all come to the same.
 * Next: base/xxh64.h. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/xxh64.h"
#include "core/core.h"

/* Of one buffer; or of all of them: then bytes is how many there are. */
typedef struct print {
    uint64_t hash, bytes;
} print;

/* Buffers whose prints go at a time. */
enum { BLOCK = 256 };

/* More is a number that was not meant, and would be read. */
enum { MOST_BUFFERS = 65536 };

typedef struct comparing {
    tutti_comm *comm;
    const tutti_shared *buffers;
    size_t n;
    print *mine;   /* [n] */
    print *theirs; /* [n_ranks][BLOCK] */
    tutti_difference found;
} comparing;

uint64_t tutti_hash(const void *buf, size_t bytes, uint64_t seed)
{
    return tt_xxh64(buf, bytes, seed);
}

/* What rank r says of what lies at `at` of a block of n. */
static const print *told_by(const comparing *c, uint32_t r, size_t n, size_t at)
{
    return &c->theirs[r * n + at];
}

static bool is_same(const print *a, const print *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static tutti_err exchange(const comparing *c, const print *mine, size_t n)
{
    return tutti_all_gather(c->comm, mine, c->theirs, n * sizeof(*mine),
                            TUTTI_U8, NULL, NULL);
}

/* The lowest of the ranks that say what most say; of two that are as many, what
 * the lower rank says. */
static uint32_t find_most(const comparing *c, size_t n, size_t at)
{
    const uint32_t n_ranks = c->comm->n_ranks;
    uint32_t best = 0, most = 0;
    for (uint32_t r = 0; r < n_ranks && most < n_ranks - r; r++) {
        uint32_t like = 0;
        for (uint32_t q = r; q < n_ranks; q++)
            like += is_same(told_by(c, q, n, at), told_by(c, r, n, at));
        if (like > most) {
            most = like;
            best = r;
        }
    }
    return best;
}

static bool are_same(const comparing *c, size_t n, size_t at)
{
    for (uint32_t r = 1; r < c->comm->n_ranks; r++)
        if (!is_same(told_by(c, r, n, at), told_by(c, 0, n, at)))
            return false;
    return true;
}

/* Not all say the same there: who does not? */
static void judge(comparing *c, size_t n, size_t at)
{
    tutti_difference *d = &c->found;
    const uint32_t like = find_most(c, n, at);
    const print *right = told_by(c, like, n, at);
    for (uint32_t r = 0; r < c->comm->n_ranks; r++) {
        const print *its = told_by(c, r, n, at);
        if (is_same(its, right))
            continue;
        if (d->n_ranks == 0) {
            d->rank = (int)r;
            d->hash = its->hash;
            d->bytes = its->bytes;
        }
        if (d->ranks)
            d->ranks[d->n_ranks] = (int)r;
        d->n_ranks++;
    }
    d->like = (int)like;
    d->like_hash = right->hash;
    d->like_bytes = right->bytes;
}

/* "rank 3 and 2 more" */
static void print_who(const tutti_difference *d, char *out, size_t size)
{
    if (d->n_ranks == 1)
        snprintf(out, size, "rank %d has", d->rank);
    else
        snprintf(out, size, "rank %d and %d more have", d->rank,
                 d->n_ranks - 1);
}

static void explain_count(comparing *c)
{
    tutti_difference *d = &c->found;
    char who[64];
    d->buffer = d->bytes < d->like_bytes ? d->bytes : d->like_bytes;
    print_who(d, who, sizeof(who));
    snprintf(d->text, sizeof(d->text),
             "%s another number of buffers (%llu) than rank %d (%llu)", who,
             (unsigned long long)d->bytes, d->like,
             (unsigned long long)d->like_bytes);
    d->bytes = d->like_bytes = 0;
}

static void explain(comparing *c, size_t buffer)
{
    tutti_difference *d = &c->found;
    const char *name = c->buffers[buffer].name;
    char who[64], what[120];
    d->buffer = buffer;
    print_who(d, who, sizeof(who));
    snprintf(what, sizeof(what),
             name ? "buffer %zu of %zu (%.80s)" : "buffer %zu of %zu", buffer,
             c->n, name);
    if (d->bytes != d->like_bytes)
        snprintf(d->text, sizeof(d->text),
                 "%s is not equal: %s %llu bytes, rank %d has %llu", what, who,
                 (unsigned long long)d->bytes, d->like,
                 (unsigned long long)d->like_bytes);
    else
        snprintf(d->text, sizeof(d->text),
                 "%s is not equal: %s other bytes in it than rank %d", what,
                 who, d->like);
}

/* The totals differ. */
static tutti_err find_first(comparing *c)
{
    for (size_t at = 0; at < c->n; at += BLOCK) {
        const size_t n = c->n - at < BLOCK ? c->n - at : BLOCK;
        tutti_err err = exchange(c, c->mine + at, n);
        for (size_t i = 0; !err && i < n; i++)
            if (!are_same(c, n, i)) {
                judge(c, n, i);
                explain(c, at + i);
                return TUTTI_OK;
            }
        if (err)
            return err;
    }
    return TUTTI_OK;
}

/* Only their bytes count from now on: how many buffers each has. */
static void forget_hashes(comparing *c)
{
    for (uint32_t r = 0; r < c->comm->n_ranks; r++)
        c->theirs[r].hash = 0;
}

static tutti_err compare(comparing *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const tutti_shared *b = &c->buffers[i];
        c->mine[i] = (print){tt_xxh64(b->buf, b->bytes, 0), b->bytes};
    }
    const print total = {tt_xxh64(c->mine, c->n * sizeof(print), 0), c->n};
    tutti_err err = exchange(c, &total, 1);
    if (err || are_same(c, 1, 0))
        return err;
    forget_hashes(c);
    if (are_same(c, 1, 0))
        return find_first(c);
    judge(c, 1, 0);
    explain_count(c);
    return TUTTI_OK;
}

/* Of a tutti_difference as it was at first: later members come behind. */
static const size_t first_size = offsetof(tutti_difference, text) +
                                 sizeof(((tutti_difference *)0)->text);

tutti_err tt_shared_check(const char *call, const tutti_shared *buffers,
                          size_t n, const tutti_difference *out,
                          tutti_diag *diag)
{
    if (!out || out->size < first_size)
        return tt_fail(diag, TUTTI_EINVAL,
                       "%s: out is NULL, or has no size: begin with "
                       "TUTTI_DIFFERENCE_INIT",
                       call);
    for (size_t i = 0; i < n; i++)
        if (!buffers || (!buffers[i].buf && buffers[i].bytes > 0))
            return tt_fail(diag, TUTTI_EINVAL, "%s: buffer %zu is NULL", call,
                           i);
    return TUTTI_OK;
}

static tutti_err check(tutti_comm *comm, const tutti_shared *buffers, size_t n,
                       const tutti_difference *out)
{
    tutti_diag diag;
    if (n > MOST_BUFFERS)
        return tt_comm_fail(comm, TUTTI_EINVAL,
                            "tutti_comm_compare: %zu buffers are too many; it "
                            "takes %d",
                            n, MOST_BUFFERS);
    tutti_err err = tt_shared_check("tutti_comm_compare", buffers, n, out,
                                    &diag);
    return err ? tt_comm_fail(comm, err, "%s", diag.text) : TUTTI_OK;
}

tutti_err tutti_comm_compare(tutti_comm *comm, const tutti_shared *buffers,
                             size_t n, tutti_difference *out)
{
    if (tt_process_is_child())
        return TUTTI_EFORK;
    tutti_err err = check(comm, buffers, n, out);
    if (err)
        return err;
    const size_t n_theirs = (size_t)comm->n_ranks * (n < BLOCK ? n + 1 : BLOCK);
    comparing c = {.comm = comm,
                   .buffers = buffers,
                   .n = n,
                   .found = {.size = out->size, .ranks = out->ranks}};
    c.mine = tt_new(&comm->mem, n + 1, sizeof(print));
    c.theirs = tt_new(&comm->mem, n_theirs, sizeof(print));
    if (c.mine && c.theirs) {
        err = compare(&c);
    } else {
        err = tt_comm_fail(comm, TUTTI_ENOMEM, "out of memory for comparing");
        tt_comm_call_off(comm, err);
    }
    tt_free(&comm->mem, c.mine, n + 1, sizeof(print));
    tt_free(&comm->mem, c.theirs, n_theirs, sizeof(print));
    if (!err)
        memcpy(out, &c.found,
               out->size < sizeof(c.found) ? out->size : sizeof(c.found));
    return err;
}
