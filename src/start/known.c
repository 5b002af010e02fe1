/* SPDX-License-Identifier: BSD-3-Clause
 * known.c - the network that the job knows (TUTTI_TOPOLOGY), on every rank.
 *
 * Only rank 0 reads the setting and the file, or gets what was measured. The
 * canonical text of the network goes to all, so a file needs to be on
 * one host only, and all ranks plan for the same network, bit for bit.
 *
 * Who sits where: in a file whose hosts have the names of the job's hosts, by
 * name, each rank at the next free place of its host; else, and for a
 * generator, in order of rank. Hosts of one name are numbered as by the probe:
 * "a", "a-2", "a-3", unless the file has several places on "a".
 *
 * Next: core/rails.c (which interfaces connections use). */
#include "start/start.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "probe/probe.h"

/* A text larger than this belongs on every host, and we on a faster way. */
static const uint64_t most_bytes = 4 << 20;

tutti_err tt_known_write(const tutti_topology *t, tt_known *out)
{
    tt_str text = {.mem = &tt_mem_std};
    *out = (tt_known){0};
    tt_topology_write(t, &text);
    return tt_str_finish(&text, &out->text, &out->n_bytes);
}

tutti_err tt_known_read(const char *spec, tt_known *out, tutti_diag *diag)
{
    tutti_topology *t = NULL;
    *out = (tt_known){0};
    if (!spec[0])
        return TUTTI_OK;
    tutti_diag why = {0};
    tutti_err err = tt_network_open(spec, &t, &why);
    if (err && why.line)
        return tt_fail(diag, TUTTI_ECONFIG, "TUTTI_TOPOLOGY: %.80s:%u:%u: %s",
                       spec, why.line, why.column, why.text);
    if (err)
        return tt_fail(diag, TUTTI_ECONFIG, "TUTTI_TOPOLOGY: %s", why.text);
    err = tt_known_write(t, out);
    tt_topology_free(t);
    if (err)
        return tt_fail(diag, err, "no memory for TUTTI_TOPOLOGY");
    size_t len = out->n_bytes;
    out->has_names = !tt_topology_is_generator(spec);
    if (len <= most_bytes)
        return TUTTI_OK;
    tt_known_free(out);
    return tt_fail(diag, TUTTI_ELIMIT,
                   "TUTTI_TOPOLOGY: the network is a text of %zu bytes, at "
                   "most %llu are handed to all ranks",
                   len, (unsigned long long)most_bytes);
}

tutti_err tt_known_learn(const tt_probe_job *job, uint32_t n_hosts,
                         tt_known *out, uint32_t *n_bytes, tutti_diag *diag)
{
    tutti_topology *t = NULL;
    *out = (tt_known){0};
    *n_bytes = 0;
    tutti_err err = tt_learn(job, n_hosts, &t, diag);
    if (err || n_hosts == 1)
        return err;
    if (t) {
        err = tt_known_write(t, out);
        tt_topology_free(t);
    }
    if (err) {
        tt_fail(diag, err, "no memory for the measured network");
        tt_boot_fail(job->boot, err, diag);
        return err;
    }
    *n_bytes = (uint32_t)out->n_bytes;
    return tt_boot_share(job->boot, n_bytes, sizeof(*n_bytes), diag);
}

void tt_known_free(tt_known *k)
{
    if (k->text)
        tt_free(&tt_mem_std, k->text, k->n_bytes + 1, 1);
    *k = (tt_known){0};
}

/* Where newcomers are: on hosts of ranks that t has. */
static tutti_err find_hosts(const tutti_topology *t, const uint32_t *hosts,
                            uint32_t n, uint32_t *beside, tutti_diag *diag)
{
    for (uint32_t r = t->n_ranks; r < n; r++) {
        uint32_t q = 0;
        while (q < t->n_ranks && hosts[q] != hosts[r])
            q++;
        if (q == t->n_ranks)
            return tt_fail(diag, TUTTI_EINVAL,
                           "rank %u is on a host that it does not have", r);
        beside[r - t->n_ranks] = q;
    }
    return TUTTI_OK;
}

tutti_err tt_known_extend(const tt_known *old, const uint32_t *hosts,
                          uint32_t n, tt_known *out, tutti_diag *diag)
{
    tutti_topology *t = NULL, *more = NULL;
    tt_arena arena = {.mem = &tt_mem_std};
    uint32_t *beside = tt_arena_new(&arena, n, sizeof(*beside));
    tutti_err err = beside ? tt_topology_parse(&tt_mem_std, old->text,
                                               old->n_bytes, &t, diag)
                           : tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    if (!err)
        err = find_hosts(t, hosts, n, beside, diag);
    if (!err)
        err = tt_topology_with_more(t, beside, n - t->n_ranks, &tt_mem_std,
                                    &more, diag);
    if (!err)
        err = tt_known_write(more, out);
    tt_topology_free(more);
    tt_topology_free(t);
    tt_arena_free(&arena);
    return err;
}

/* ------------------------------------------------------------ who where -- */

static const char *host_of(const tutti_topology *t, uint32_t rank)
{
    const tt_node *node = &t->nodes[t->rank_node[rank]];
    return node->hub == TT_NONE ? node->name : t->nodes[node->hub].name;
}

/* Equal, or equal up to the first dot of either. */
static bool is_same_name(const char *a, const char *b)
{
    size_t short_a = strcspn(a, "."), short_b = strcspn(b, ".");
    if (strcmp(a, b) == 0)
        return true;
    return (!a[short_a] || !b[short_b]) && short_a == short_b &&
           strncmp(a, b, short_a) == 0;
}

static bool any_name(const tutti_topology *t, const tt_known_job *job)
{
    for (uint32_t i = 0; i < t->n_ranks; i++) {
        if (is_same_name(host_of(t, i), job->host(job->ctx, 0)))
            return true;
    }
    return false;
}

/* The how manieth host of its name is that of rank r? 1: the first. Hosts are
 * numbered in order of their first ranks. */
static uint32_t number_of(const tt_known_job *job, uint32_t r)
{
    const char *name = job->host(job->ctx, r);
    uint32_t n = 1, n_seen = 0;
    for (uint32_t q = 0; q < job->n && n_seen < job->hosts[r]; q++) {
        if (job->hosts[q] != n_seen)
            continue; /* not its host's first one */
        n_seen++;
        n += strcmp(job->host(job->ctx, q), name) == 0;
    }
    return n;
}

/* A free place of a host of that name; n_ranks: there is none. */
static uint32_t find_place(const tutti_topology *t, const char *name,
                           const bool *is_taken)
{
    uint32_t i = 0;
    while (i < t->n_ranks &&
           (is_taken[i] || !is_same_name(host_of(t, i), name)))
        i++;
    return i;
}

/* places[r]: the rank of t at whose place rank r of the job sits. */
static tutti_err place_by_name(const tutti_topology *t, const tt_known_job *job,
                               uint32_t *places, bool *is_taken,
                               tutti_diag *diag)
{
    for (uint32_t r = 0; r < job->n; r++) {
        const char *name = job->host(job->ctx, r);
        uint32_t number = number_of(job, r), i = t->n_ranks;
        char numbered[64];
        snprintf(numbered, sizeof(numbered), "%.50s-%u", name, number);
        if (number > 1)
            i = find_place(t, numbered, is_taken);
        if (i == t->n_ranks)
            i = find_place(t, name, is_taken);
        if (i == t->n_ranks)
            return tt_fail(diag, TUTTI_ECONFIG,
                           "TUTTI_TOPOLOGY has no place for rank %u: no host "
                           "\"%.63s\", or too few ranks on it",
                           r, name);
        is_taken[i] = true;
        places[r] = i;
    }
    return TUTTI_OK;
}

/* *whole becomes the network of the job's ranks. */
static tutti_err seat(const tt_known_job *job, bool has_names,
                      tutti_topology **whole, tutti_diag *diag)
{
    tutti_topology *t = *whole, *mine = NULL;
    if (!has_names || !any_name(t, job)) {
        if (t->n_ranks == job->n)
            return TUTTI_OK;
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_TOPOLOGY describes %u ranks and the job has %u",
                       t->n_ranks, job->n);
    }
    tt_arena arena = {.mem = &tt_mem_std};
    uint32_t *places = tt_arena_new(&arena, job->n, sizeof(*places));
    bool *is_taken = tt_arena_new(&arena, t->n_ranks, sizeof(*is_taken));
    tutti_err err = TUTTI_OK;
    if (!places || !is_taken)
        err = tt_fail(diag, TUTTI_ENOMEM, "no memory for TUTTI_TOPOLOGY");
    if (!err)
        err = place_by_name(t, job, places, is_taken, diag);
    if (!err)
        err = tt_topology_subset(t, places, job->n, job->mem, &mine, diag);
    tt_arena_free(&arena);
    if (err)
        return err;
    tt_topology_free(t);
    *whole = mine;
    return TUTTI_OK;
}

tutti_err tt_known_share(const tt_known_job *job, uint64_t n_bytes,
                         bool has_names, tutti_topology **out, tutti_diag *diag)
{
    *out = NULL;
    if (n_bytes == 0)
        return TUTTI_OK;
    if (n_bytes > most_bytes)
        return tt_fail(diag, TUTTI_EPROTO,
                       "rank 0 sent a network of impossible size");
    char *text = tt_new(&tt_mem_std, (size_t)n_bytes, 1);
    if (!text)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for TUTTI_TOPOLOGY");
    tutti_topology *t = NULL;
    if (job->rank == 0)
        memcpy(text, job->known->text, (size_t)n_bytes);
    tutti_err err = tt_boot_share(job->boot, text, (size_t)n_bytes, diag);
    if (!err)
        err = tt_topology_parse(job->mem, text, (size_t)n_bytes, &t, diag);
    if (!err)
        err = seat(job, has_names, &t, diag);
    tt_free(&tt_mem_std, text, (size_t)n_bytes, 1);
    if (err) {
        tt_topology_free(t);
        return err;
    }
    *out = t;
    TT_INFO("plans are for the network %016llx of %u ranks",
            (unsigned long long)t->id, t->n_ranks);
    return TUTTI_OK;
}
