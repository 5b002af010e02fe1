/* SPDX-License-Identifier: BSD-3-Clause
 * err.c - error names, texts and diagnoses; how public functions end. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/files.h"

const char *tutti_version(void)
{
    return "0.1.0";
}

const char *tutti_errname(tutti_err err)
{
    switch (err) {
#define TUTTI_X(name, number, text) \
    case TUTTI_##name:              \
        return #name;
        TUTTI_ERR_LIST(TUTTI_X)
#undef TUTTI_X
    }
    return "unknown";
}

const char *tutti_strerror(tutti_err err)
{
    switch (err) {
#define TUTTI_X(name, number, text) \
    case TUTTI_##name:              \
        return text;
        TUTTI_ERR_LIST(TUTTI_X)
#undef TUTTI_X
    }
    return "unknown error number";
}

void tt_err_hear(const char *said, size_t len, char *out, size_t size)
{
    len = strnlen(said, len < size ? len : size - 1);
    for (size_t i = 0; i < len; i++)
        out[i] = (unsigned char)said[i] < ' ' || said[i] == 127 ? '?' : said[i];
    out[len] = '\0';
}

void tt_diag_clear(tutti_diag *diag)
{
    if (diag)
        *diag = TT_DIAG_NONE;
}

void tt_diag_at(tutti_diag *diag, uint32_t rank, uint32_t chunk, uint32_t step)
{
    if (!diag)
        return;
    diag->rank = rank;
    diag->chunk = chunk;
    diag->step = step;
}

static void print(tutti_diag *diag, const char *fmt, va_list args)
    TT_PRINTF(2, 0);
static void print(tutti_diag *diag, const char *fmt, va_list args)
{
    tt_diag_clear(diag);
    if (diag)
        vsnprintf(diag->text, sizeof(diag->text), fmt, args);
}

tutti_err tt_fail(tutti_diag *diag, tutti_err err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print(diag, fmt, args);
    va_end(args);
    return err;
}

tutti_err tt_fail_errno(tutti_diag *diag, tutti_err err, int errno_value,
                        const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print(diag, fmt, args);
    va_end(args);
    if (!diag)
        return err;
    size_t used = strlen(diag->text);
    snprintf(diag->text + used, sizeof(diag->text) - used, ": %s",
             tt_errno_text(errno_value));
    return err;
}

const char *tt_errno_text(int errno_value)
{
    static _Thread_local char text[128];
    /* The XSI and the GNU strerror_r differ; _GNU_SOURCE gives the latter. */
    const char *why = strerror_r(errno_value, text, sizeof(text));
    if (errno_value != EMFILE)
        return why;
    char limited[sizeof(text)];
    snprintf(limited, sizeof(limited), "%.80s, ulimit -n is %llu", why,
             (unsigned long long)tt_files_limit());
    return strcpy(text, limited);
}

static _Thread_local char last_message[sizeof(((tutti_diag *)0)->text)];

void tt_last_message_set(const char *text)
{
    snprintf(last_message, sizeof(last_message), "%s", text);
}

const char *tutti_last_message(void)
{
    return last_message;
}

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
