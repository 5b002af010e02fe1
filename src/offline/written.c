/* SPDX-License-Identifier: BSD-3-Clause
 * written.c - schedules that somebody wrote: files that rules name
 * (TUTTI_PLANNER=file:x), and tutti_plan_use().
 *
 * Each is proven before it is kept, and kept as long as its owner: a file that
 * changes during a job changes nothing. Whether all ranks have the same one is
 * seen in the call, by its id.
 * Next       core/use.c, core/plans.c (who asks), plan/choose.c (rules). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "offline/offline.h"
#include "verify/verify.h"

/* As large as what the command line reads. */
static const size_t most_file_bytes = (size_t)1 << 31;

struct tt_writing {
    struct tt_writing *next;
    tutti_schedule *sched;
    char path[]; /* "": of no file */
};

static void free_writing(const tt_mem *mem, struct tt_writing *w)
{
    tt_sched_free(w->sched);
    tt_free(mem, w, sizeof(*w) + strlen(w->path) + 1, 1);
}

/* In front of the list; takes the schedule, also when it fails. */
static tutti_err keep(const tt_written *w, struct tt_writing **list,
                      const char *path, tutti_schedule *s)
{
    size_t len = strlen(path);
    struct tt_writing *new = tt_new(w->mem, sizeof(*new) + len + 1, 1);
    if (!new) {
        tt_sched_free(s);
        return TUTTI_ENOMEM;
    }
    memcpy(new->path, path, len + 1);
    new->sched = s;
    new->next = *list;
    *list = new;
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- files -- */

static tutti_err parse_file(const tt_mem *mem, const char *path,
                            tutti_schedule **out, tutti_diag *diag)
{
    FILE *f = fopen(path, "rbe");
    if (!f)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot open %s", path);
    char *data;
    size_t len;
    tutti_err err = tt_file_text(mem, f, most_file_bytes, path, &data, &len,
                                 diag);
    if (err)
        return err;
    err = tt_sched_parse(mem, data, len, out, diag);
    tt_free(mem, data, len + 1, 1);
    return err;
}

/* What is wrong with a file is wrong where the file is: no other rank knows. So
 * it is none of the errors that all ranks see alike (call.c). */
static tutti_err say_where(tutti_err err, const char *path, tutti_diag *diag)
{
    char said[sizeof(diag->text)];
    if (err == TUTTI_ENOMEM || err == TUTTI_ESYS || !diag)
        return err;
    snprintf(said, sizeof(said), "%s", diag->text);
    if (diag->line)
        tt_fail(diag, err, "%.160s:%u:%u: %.300s", path, diag->line,
                diag->column, said);
    else
        tt_fail(diag, err, "the schedule in %.160s is not proven: %.280s", path,
                said);
    return err == TUTTI_EPROOF ? err : TUTTI_EFORMAT;
}

static tutti_err find_file(void *ctx, const char *path,
                           const tutti_schedule **out, tutti_diag *diag)
{
    tt_written *w = ctx;
    for (const struct tt_writing *i = w->files; i; i = i->next)
        if (strcmp(i->path, path) == 0) {
            *out = i->sched;
            return TUTTI_OK;
        }
    tutti_schedule *s = NULL;
    tutti_diag own = TT_DIAG_NONE;
    diag = diag ? diag : &own;
    tutti_err err = parse_file(w->mem, path, &s, diag);
    if (!err)
        err = tt_verify(s, w->mem, diag);
    if (err) {
        tt_sched_free(s);
        return say_where(err, path, diag);
    }
    TT_INFO("%s has a proven schedule: %s of %u ranks, id fnv1a:%016llx", path,
            tutti_coll_name(s->collective), s->n_ranks,
            (unsigned long long)s->id);
    *out = s;
    err = keep(w, &w->files, path, s);
    return err ? tt_fail(diag, err, "no memory for %s", path) : TUTTI_OK;
}

void tt_written_init(tt_written *w, const tt_mem *mem)
{
    *w = (tt_written){.mem = mem, .shelf = {find_file, w}};
}

static void free_list(const tt_mem *mem, struct tt_writing **list)
{
    while (*list) {
        struct tt_writing *first = *list;
        *list = first->next;
        free_writing(mem, first);
    }
}

void tt_written_free(tt_written *w)
{
    free_list(w->mem, &w->files);
    free_list(w->mem, &w->used);
}

/* ------------------------------------------------------------------- use -- */

const tutti_schedule *tt_written_used(const tt_written *w, tutti_coll coll,
                                      uint32_t root)
{
    for (const struct tt_writing *i = w->used; i; i = i->next)
        if (i->sched->collective == coll && i->sched->root == root)
            return i->sched;
    return NULL;
}

tutti_err tt_written_use(tt_written *w, tutti_coll coll, tutti_schedule *s)
{
    struct tt_writing **at = &w->used;
    tutti_err err = s ? keep(w, &w->used, "", s) : TUTTI_OK;
    if (err)
        return err;
    while (*at) {
        struct tt_writing *i = *at;
        bool goes = i->sched->collective == coll && i->sched != s &&
                    (!s || i->sched->root == s->root);
        if (!goes) {
            at = &i->next;
            continue;
        }
        *at = i->next;
        free_writing(w->mem, i);
    }
    return TUTTI_OK;
}
