/* SPDX-License-Identifier: BSD-3-Clause
 * report.c - see report.h. */
#include "core/report.h"
#include "core/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tutti_err tt_report(tutti_err err, const tutti_diag *found, tutti_diag *diag)
{
    if (diag)
        *diag = *found;
    if (!err)
        return err;
    char text[sizeof(found->text) + 40] = "";
    if (found->line)
        snprintf(text, sizeof(text), "line %u, column %u: ", found->line,
                 found->column);
    size_t used = strlen(text);
    snprintf(text + used, sizeof(text) - used, "%s",
             found->text[0] ? found->text : tutti_strerror(err));
    tt_last_message_set(text);
    return err;
}

tutti_err tt_read_opts(const void *given, void *out, size_t size_bytes,
                       tutti_diag *diag)
{
    size_t size = size_bytes;
    memset(out, 0, size_bytes);
    if (given)
        memcpy(&size, given, sizeof(size));
    if (size < sizeof(size))
        return tt_fail(diag, TUTTI_EINVAL,
                       "the options have no size: begin with the _INIT macro "
                       "of their type");
    if (given)
        memcpy(out, given, size < size_bytes ? size : size_bytes);
    memcpy(out, &size_bytes, sizeof(size_bytes));
    return TUTTI_OK;
}

tutti_err tt_comm_fail(tutti_comm *comm, tutti_err err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(comm->message, sizeof(comm->message), fmt, args);
    va_end(args);
    return err;
}
