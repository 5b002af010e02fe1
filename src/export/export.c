/* SPDX-License-Identifier: BSD-3-Clause
 * export.c - the table of formats. */
#include "export/formats.h"

#include <stdio.h>
#include <string.h>

static tutti_err write_schedule(const tutti_schedule *s, tt_str *out)
{
    tt_sched_write(s, out);
    return out->err;
}

static tutti_err write_json(const tutti_schedule *s, tt_str *out)
{
    tt_sched_write_json(s, out);
    return out->err;
}

const tt_format tt_formats[] = {
    {"schedule", "the text form, which reads back", write_schedule},
    {"json", "for other programs; it reads back, too", write_json},
    {"picture", "for people", tt_write_picture},
    {"dot", "a graph for Graphviz", tt_write_dot},
    {"svg", "a picture for papers", tt_write_svg},
    {NULL, NULL, NULL},
};

static tutti_err no_such_format(const char *format, tutti_diag *diag)
{
    char names[128] = "";
    for (const tt_format *f = tt_formats; f->name; f++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
                 f->name);
    }
    return tt_fail(diag, TUTTI_EINVAL,
                   "there is no format \"%.40s\"; the formats are: %s",
                   format ? format : "", names);
}

tutti_err tt_export(const tutti_schedule *s, const char *format,
                    const tt_mem *mem, char **text, size_t *len,
                    tutti_diag *diag)
{
    const tt_format *f = tt_formats;
    while (f->name && (!format || strcmp(f->name, format) != 0))
        f++;
    if (!f->name)
        return no_such_format(format, diag);
    tt_str out = {.mem = mem};
    tutti_err err = f->write(s, &out);
    if (err)
        tt_str_free(&out);
    else
        err = tt_str_finish(&out, text, len);
    if (err == TUTTI_ELIMIT)
        tt_fail(diag, err,
                "more than %u transfers are too much for this format; `tutti "
                "view` shows them",
                TT_MAX_DRAWN);
    else if (err)
        tt_fail(diag, err, "no memory for the text of the schedule");
    return err;
}
