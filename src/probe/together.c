/* SPDX-License-Identifier: BSD-3-Clause
 * together.c - what all ranks of a probe do at the same time: agree that all
 * are well, and alive. Next: probe.c. */
#include <stdio.h>
#include <string.h>

#include "probe/parts.h"

/* A sentence. */
#define TEXT sizeof(((tutti_diag *)0)->text)
_Static_assert(TT_PROBE_SAYING == TEXT + sizeof(int32_t), "there is room");

void tt_probe_tell(tt_probe *p, const char *what, uint32_t percent)
{
    const tt_probe_job *job = p->job;
    percent = percent < 100 ? percent : 100;
    p->percent = percent > p->percent ? percent : p->percent;
    if (job->progress && job->rank == 0)
        job->progress(job->progress_ctx, what, p->percent, 100);
}

tutti_err tt_probe_no_memory(tutti_diag *diag)
{
    return tt_fail(diag, TUTTI_ENOMEM, "out of memory in the probe");
}

void tt_probe_be_patient(const tt_probe *p, uint64_t more_ns)
{
    tt_boot_phase(p->job->boot, "the probe", TT_PROBE_PATIENCE_NS + more_ns);
    tt_boot_beats(p->job->boot);
}

void tt_probe_alive(const tt_probe *p)
{
    tt_boot_alive(p->job->boot);
}

/* Rank 0: fails as rank r has. */
static tutti_err fail_as(tt_probe *p, uint32_t r, int32_t code, char *text,
                         tutti_diag *diag)
{
    text[TEXT - 1] = '\0';
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
    tutti_err err = tutti_errname((tutti_err)code)[0] == 'E' ? (tutti_err)code
                                                             : TUTTI_EPROTO;
    bool has_host = p->n_hosts > 0;
    if (r == 0)
        tt_fail(diag, err, "%s", text);
    else
        tt_fail(diag, err, "rank %u%s%s: %s", r, has_host ? " on " : "",
                has_host ? p->hosts[p->host_of[r]].name : "", text);
    tt_boot_fail(p->job->boot, err, diag);
    return err;
}

/* One of them fares ill: says why, and fails with that. */
static tutti_err tell_why(tt_probe *p, tutti_err mine, tutti_diag *diag)
{
    char text[TEXT] = "";
    uint32_t n = p->job->n_ranks, r = 0;
    const int32_t *codes = p->says;
    char *all = (char *)p->says + n * sizeof(*codes);
    uint8_t nothing = 0;
    if (mine)
        snprintf(text, sizeof(text), "%s", diag->text);
    tutti_err err = tt_boot_collect(p->job->boot, text, sizeof(text), all,
                                    diag);
    while (!err && p->job->rank == 0 && codes[r] == TUTTI_OK)
        r++;
    if (!err && p->job->rank == 0)
        err = fail_as(p, r, codes[r], all + r * TEXT, diag);
    /* Who has not failed by now has it from rank 0. */
    return err ? err
               : tt_boot_share(p->job->boot, &nothing, sizeof(nothing), diag);
}

tutti_err tt_probe_agree(tt_probe *p, tutti_err mine, tutti_diag *diag)
{
    int32_t own = mine;
    uint8_t is_well = 1;
    const int32_t *codes = p->says;
    tutti_err err = tt_boot_collect(p->job->boot, &own, sizeof(own), p->says,
                                    diag);
    for (uint32_t r = 0; !err && p->job->rank == 0 && r < p->job->n_ranks; r++)
        is_well &= codes[r] == TUTTI_OK;
    if (!err)
        err = tt_boot_share(p->job->boot, &is_well, sizeof(is_well), diag);
    return err || is_well ? err : tell_why(p, mine, diag);
}
