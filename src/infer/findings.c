/* SPDX-License-Identifier: BSD-3-Clause
 * findings.c - the notes: kept as one text, so that they live as long as what
 * they are about. */
#include <stdarg.h>
#include <stdio.h>

#include "infer/inference.h"

void tt_note(tt_infer *inf, tt_infer_note_kind kind, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    inf->findings = tt_arena_grow(&inf->arena, inf->findings,
                                  &inf->cap_findings, inf->n_findings + 1,
                                  sizeof(*inf->findings));
    if (inf->arena.err) {
        inf->text.err = inf->arena.err;
        return;
    }
    inf->findings[inf->n_findings++] = (tt_finding){.kind = kind,
                                                    .at = inf->text.len};
    tt_str_puts(&inf->text, line);
    tt_str_add(&inf->text, "", 1);
}

const char *tt_rate_text(double bps, char at[32])
{
    static const char *const units[] = {"bit", "kbit", "Mbit", "Gbit", "Tbit"};
    double value = (double)tt_figure_rate(bps);
    size_t unit = 0;
    while (value >= 1000 && unit < 4) {
        value /= 1000;
        unit++;
    }
    snprintf(at, 32, "%.3g%s", value, units[unit]);
    return at;
}

void tt_notes_clear(tt_infer *inf)
{
    tt_str_free(&inf->text);
    inf->text = (tt_str){.mem = inf->mem};
    inf->n_findings = 0;
}

bool tt_infer_note_at(const tt_infer *inf, size_t index, tt_infer_note *out)
{
    if (index >= inf->n_findings || inf->text.err)
        return false;
    const tt_finding *f = &inf->findings[index];
    *out = (tt_infer_note){.kind = f->kind, .text = inf->text.data + f->at};
    return true;
}
